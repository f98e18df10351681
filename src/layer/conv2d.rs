//! A complete convolutional layer: Y = f(X * W + b), and its gradients.

use super::rewrite;
use super::step::{Names, Step};
use super::trained::{DZ, Trained, same, stored};
use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::DType;
use crate::error::LinearError;
use crate::gemm::Conv;
use crate::grad::{Pair, Reserve, Wrt};
use crate::ir::axes::Axes;
use crate::ir::{Operand, Order, Side};
use crate::problem::{ConvShape, Convolution, GradientOf, Shape};

/// A convolutional layer: Y = f(X * W + b), with NHWC images X and Y, and KRSC filters W.
///
/// As for a [`Linear`](super::Linear) each product of a training step is a [`Step`], with the same names:
///
/// | step | computes | reads | writes |
/// | --- | --- | --- | --- |
/// | [`forward`](Conv2d::forward) | Y = f(X * W + b) | `x`, `w`, the arguments of f | `y`, the reserve |
/// | [`inference`](Conv2d::inference) | the same | the same | `y` |
/// | [`activation_grad`](Conv2d::activation_grad) | dZ = dY f'(Z), db = the sum of dZ over all pixels | `dy`, the reserve, the arguments of f | `grad_acc` (dZ), `grad_bias`, `grad_NAME` |
/// | [`wgrad`](Conv2d::wgrad) | dW | `dz`, `x` | `dw` |
/// | [`wgrad_with_bias`](Conv2d::wgrad_with_bias) | dW, and db = the sum of dZ over all pixels | `dz`, `x` | `dw`, `grad_bias` |
/// | [`dgrad`](Conv2d::dgrad) | dX | `dz`, `w` | `dx` |
/// | [`dgrad_into`](Conv2d::dgrad_into) | dZ_prev = dX f_prev'(Z_prev), db_prev, of the layer before | `dz`, `w`; that layer's reserve and the arguments of its f | that layer's `grad_acc`, `grad_bias`, `grad_NAME` |
///
/// ```
/// use postlude::layer::Conv2d;
/// use postlude::prelude::*;
/// // One image of 3 x 3 pixels, and one filter that adds up 2 x 2 pixels.
/// let layer = Conv2d::new(F32, ConvShape::new(1, [3, 3, 1], [1, 2, 2]), |_, z| z.relu())?;
/// let (x, w, bias) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0f32; 4], [-20.0f32]);
/// let (mut y, mut reserve) = ([0.0f32; 4], layer.reserve());
/// let args = HostArgs::new().input("x", &x).input("w", &w).input("bias", &bias).output("y", &mut y);
/// layer.forward().reference(args.saving(&mut reserve))?;
/// assert_eq!(y, [0.0, 0.0, 4.0, 8.0]);
///
/// let (dy, mut dz, mut dbias) = ([1.0f32; 4], [0.0f32; 4], [0.0f32]);
/// let args = HostArgs::new().input("dy", &dy).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
/// layer.activation_grad()?.reference(args.saved(&reserve))?;
/// assert_eq!((dz, dbias), ([0.0, 0.0, 1.0, 1.0], [2.0]));
///
/// let (mut dw, mut dx) = ([0.0f32; 4], [0.0f32; 9]);
/// layer.wgrad()?.reference(HostArgs::new().input("dz", &dz).input("x", &x).output("dw", &mut dw))?;
/// layer.dgrad()?.reference(HostArgs::new().input("dz", &dz).input("w", &w).output("dx", &mut dx))?;
/// assert_eq!((dw, dx), ([9.0, 11.0, 15.0, 17.0], [0.0, 0.0, 0.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "conv2d")]
#[derive(Clone, Debug)]
pub struct Conv2d {
    convolution: Convolution,
    trained: Trained,
}

impl Conv2d {
    /// A layer whose tensors all have one format: Y = f(X * W + b), stored as `y`, with a vector `bias` over the filters. `f`
    /// may use coordinates, and load matrices, vectors and scalars of its own.
    ///
    /// # Errors
    /// If the numbers of the shape do not fit together, `f` makes an invalid graph or has no derivative, or the format is not
    /// floating-point.
    #[track_caller]
    pub fn new(
        dtype: DType,
        shape: ConvShape,
        f: impl for<'g> FnOnce(&'g Builder, Expr<'g>) -> Expr<'g>,
    ) -> Result<Conv2d, LinearError> {
        Ok(Conv2d { convolution: Convolution::new(shape)?, trained: Trained::with_bias(dtype, f)? })
    }

    /// A layer with any epilogue behind X * W, and control over the saved values: see
    /// [`Linear::with_epilogue`](super::Linear::with_epilogue).
    ///
    /// # Errors
    /// As `new`, if dZ is not requested or has another format than W, if Y or dZ is not row-major, or an argument has the name
    /// of one of the layer's tensors.
    pub fn with_epilogue(dtype: DType, shape: ConvShape, epilogue: &Epilogue, wrt: Wrt) -> Result<Conv2d, LinearError> {
        let (convolution, trained) = (Convolution::new(shape)?, Trained::of(dtype, epilogue, wrt)?);
        match [trained.y, trained.dz].iter().any(|operand| operand.order != Order::RowMajor) {
            true => Err(LinearError::Channels),
            false => Ok(Conv2d { convolution, trained }),
        }
    }

    /// The format of dW and of the gradients of f's arguments. By default each gradient has the format of its argument.
    #[must_use]
    pub fn gradients(self, dtype: DType) -> Conv2d {
        Conv2d { trained: Trained { gradients: Some(dtype), ..self.trained }, ..self }
    }

    /// What it measures.
    pub fn convolution(&self) -> Convolution {
        self.convolution
    }

    /// The epilogue with its derivative, and the plan of the saved values.
    pub fn pair(&self) -> &Pair {
        &self.trained.pair
    }

    /// The extents of the forward product, for which a reserve is made: a row is an output pixel.
    pub fn shape(&self) -> Shape {
        self.convolution.shape()
    }

    /// Host memory for the values that [`forward`](Conv2d::forward) saves.
    pub fn reserve(&self) -> Reserve<Vec<u8>> {
        self.trained.reserve(self.shape())
    }

    /// Device memory for the values that [`forward`](Conv2d::forward) saves.
    ///
    /// # Errors
    /// If the device has no memory left.
    #[cfg(feature = "cuda")]
    pub fn reserve_on(
        &self,
        stream: &std::sync::Arc<cudarc::driver::CudaStream>,
    ) -> Result<Reserve<cudarc::driver::CudaSlice<u8>>, crate::error::Error> {
        self.trained.reserve_on(stream, self.shape())
    }

    /// Y = f(X * W + b), and the values that its derivative needs.
    pub fn forward(&self) -> Step {
        self.product(self.trained.pair.forward()).saves(self.trained.saved())
    }

    /// Y = f(X * W + b), without saved values.
    pub fn inference(&self) -> Step {
        self.product(&self.trained.epilogue)
    }

    fn product(&self, epilogue: &Epilogue) -> Step {
        let conv = Conv::of(self.trained.dtype, self.convolution, epilogue);
        Step::new(conv.gemm().clone(), conv.shape(), Names::new("x", Some("w")))
    }

    fn gradient(&self, of: GradientOf, epilogue: &Epilogue) -> Step {
        let conv = Conv::gradient(self.trained.dtype, self.convolution, of, epilogue);
        let other = if of == GradientOf::Images { "w" } else { "x" };
        Step::new(conv.gemm().clone(), conv.shape(), Names::new("dz", Some(other)))
    }

    /// dZ = dY f'(Z), with the gradients of the bias and of all other arguments of f: a pass over a dY that is already
    /// in memory.
    ///
    /// # Errors
    /// If a gradient cannot have the format that [`gradients`](Conv2d::gradients) asks for.
    pub fn activation_grad(&self) -> Result<Step, LinearError> {
        Ok(Step::new(self.trained.activation_grad()?, Shape { k: 0, ..self.shape() }, Names::new("dy", None)))
    }

    /// dW, of dZ and X.
    ///
    /// # Errors
    /// If dW cannot have the format that [`gradients`](Conv2d::gradients) asks for.
    pub fn wgrad(&self) -> Result<Step, LinearError> {
        let dw = self.trained.filters(Operand { dtype: self.trained.dtype, axes: Axes::MNL, order: Order::RowMajor })?;
        Ok(self.gradient(GradientOf::Filters, &stored("dw", dw)?))
    }

    /// dW, and db = the sum of dZ over all pixels, under its name in [`activation_grad`](Conv2d::activation_grad):
    /// `grad_bias` for the bias of [`Conv2d::new`]. The sum is taken inside the product, which is not split then. Use it for
    /// a dZ from elsewhere: where [`activation_grad`](Conv2d::activation_grad) or [`dgrad_into`](Conv2d::dgrad_into) computed
    /// dZ, they have summed it too.
    ///
    /// # Errors
    /// If no gradient of a vector is the sum of dZ, or a gradient cannot have the format that
    /// [`gradients`](Conv2d::gradients) requests.
    pub fn wgrad_with_bias(&self) -> Result<Step, LinearError> {
        let sums = rewrite::sums_of(&self.trained.derivative()?, DZ);
        if sums.is_empty() {
            return Err(LinearError::NoBias);
        }
        let step = self.wgrad()?;
        let epilogue = rewrite::with_sums(step.gemm().epilogue(), Side::A, &sums)?;
        Ok(step.with(|gemm| gemm.with_epilogue(&epilogue)))
    }

    /// dX, of dZ and W.
    ///
    /// # Errors
    /// Never for a format that a layer can have.
    pub fn dgrad(&self) -> Result<Step, LinearError> {
        let dx = Operand { dtype: self.trained.dtype, axes: Axes::MNL, order: Order::RowMajor };
        Ok(self.gradient(GradientOf::Images, &stored("dx", dx)?))
    }

    /// dZ_prev = dX f_prev'(Z_prev): the gradient of the argument of the previous layer's activation f_prev, if X is that
    /// layer's output. The step also computes the gradients of that layer's bias and of all other arguments of f_prev.
    /// Arguments besides `dz` and `w` are those of `previous`'s [`activation_grad`](Conv2d::activation_grad).
    ///
    /// # Errors
    /// If X is not the previous layer's output: in images, rows, columns, channels or format.
    pub fn dgrad_into(&self, previous: &Conv2d) -> Result<Step, LinearError> {
        let (makes, takes) = (previous.convolution.measures(), self.convolution.measures());
        let [height, width] = previous.convolution.output();
        same("images", makes.images, takes.images)?;
        same("rows", height, takes.height)?;
        same("pixels a row", width, takes.width)?;
        same("channels", makes.filters, takes.channels)?;
        self.trained.follows(&previous.trained)?;
        Ok(self.gradient(GradientOf::Images, &previous.trained.derivative()?))
    }
}
