//! A complete linear layer: Y = f(X W + b), its gradients, and the chain of several layers. [`Conv2d`] is the same for
//! convolutions.
//!
//! A [`Linear`] is a definition: formats, extents, transpositions, and the epilogue f with its derivative. Each product
//! of a training step is a [`Step`], made once for a number of rows and run again and again: on a GPU through
//! `Step::plan`, on the CPU through [`Step::reference`]. Nothing besides the steps is launched.
//!
//! ```
//! use postlude::layer::Linear;
//! use postlude::prelude::*;
//! // Two inputs, three outputs: tanh in the first column, ReLU in the others.
//! let layer = Linear::new(F32, [2, 3], |e, z| z.region(e.column().lt(1), |z| z.tanh()).otherwise(|z| z.relu()))?;
//!
//! let (x, w, bias) = ([1.0f32, 2.0], [0.5f32, 1.0, -1.0, 0.0, 0.5, 0.25], [0.0f32, 0.5, 0.0]);
//! let (mut y, mut reserve) = ([0.0f32; 3], layer.reserve(1));
//! let args = HostArgs::new().input("x", &x).input("w", &w).input("bias", &bias).output("y", &mut y);
//! layer.forward(1).reference(args.saving(&mut reserve))?;
//! assert_eq!(y, [0.5f32.tanh(), 2.5, 0.0]);
//!
//! let (dy, mut dz, mut dbias) = ([1.0f32; 3], [0.0f32; 3], [0.0f32; 3]);
//! let args = HostArgs::new().input("dy", &dy).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
//! layer.activation_grad(1)?.reference(args.saved(&reserve))?;
//! assert_eq!((dz[1..].to_vec(), dbias), (vec![1.0, 0.0], dz));
//!
//! let mut dw = [0.0f32; 6];
//! layer.wgrad(1)?.reference(HostArgs::new().input("x", &x).input("dz", &dz).output("dw", &mut dw))?;
//! assert_eq!(dw[4..], [2.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a GPU each step is planned once, and then only launched:
//!
#![cfg_attr(feature = "cuda", doc = "```no_run")]
#![cfg_attr(not(feature = "cuda"), doc = "```ignore")]
//! # use postlude::half::f16;
//! # use postlude::layer::Linear;
//! # use postlude::prelude::*;
//! let (rows, [inputs, outputs]) = (4096, [1024, 4096]);
//! let layer = Linear::new(F16, [inputs, outputs], |_, z| z.gelu())?.trans_w(true).gradients(F32);
//! let device = Device::new(0)?;
//! let (forward, wgrad) = (layer.forward(rows).plan(&device)?, layer.wgrad(rows)?.accumulate(&["dw"])?.plan(&device)?);
//!
//! let stream = device.context().default_stream();
//! let (x, w) = (stream.alloc_zeros::<f16>(rows * inputs)?, stream.alloc_zeros::<f16>(outputs * inputs)?);
//! let bias = stream.alloc_zeros::<f16>(outputs)?;
//! let (mut y, dz) = (stream.alloc_zeros::<f16>(rows * outputs)?, stream.alloc_zeros::<f16>(rows * outputs)?);
//! let (mut dw, mut reserve) = (stream.alloc_zeros::<f32>(outputs * inputs)?, layer.reserve_on(&stream, rows)?);
//! for _ in 0..100 {
//!     let args = DeviceArgs::new().input("x", &x).input("w", &w).input("bias", &bias).output("y", &mut y);
//!     forward.execute(&stream, &mut args.saving(&mut reserve))?;
//!     // ... the rest of the network, and back to this layer ...
//!     wgrad.execute(&stream, &mut DeviceArgs::new().input("x", &x).input("dz", &dz).output("dw", &mut dw))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Steps
//!
//! With M rows, K inputs and N outputs:
//!
//! | step | computes | reads | writes |
//! | --- | --- | --- | --- |
//! | [`forward`](Linear::forward) | Y = f(X W + b) | `x`, `w`, the arguments of f | `y`, the reserve |
//! | [`inference`](Linear::inference) | the same | the same | `y` |
//! | [`activation_grad`](Linear::activation_grad) | dZ = dY f'(Z), db = the sum of dZ over M | `dy`, the reserve, the arguments of f | `grad_acc` (dZ), `grad_bias`, `grad_NAME` |
//! | [`wgrad`](Linear::wgrad) | dW = X^T dZ | `x`, `dz` | `dw` |
//! | [`wgrad_with_bias`](Linear::wgrad_with_bias) | dW = X^T dZ, db = the sum of dZ over M | `x`, `dz` | `dw`, `grad_bias` |
//! | [`dgrad`](Linear::dgrad) | dX = dZ W^T | `dz`, `w` | `dx` |
//! | [`dgrad_into`](Linear::dgrad_into) | dZ_prev = (dZ W^T) f_prev'(Z_prev), db_prev, of the layer before | `dz`, `w`; that layer's reserve and the arguments of its f | that layer's `grad_acc`, `grad_bias`, `grad_NAME` |
//!
//! In a chain of layers only the previous layer's activation needs the gradient that [`dgrad`](Linear::dgrad) makes.
//! [`dgrad_into`](Linear::dgrad_into) puts that layer's derivative and bias gradient behind the product. So a network of
//! L layers takes L products forward, 2 L - 1 backward, and one pass over the last output, which the loss needs anyway.
//! The last bias gradient belongs to a dZ that none of the products made. The product that reads this dZ also sums it:
//! [`wgrad_with_bias`](Linear::wgrad_with_bias).
//!
//! # Accumulating
//!
//! Gradients overwrite their memory. [`accumulate`](Step::accumulate) makes a step add to the outputs that it names, in
//! place and before the one rounding of the store: dW over several batches, dX of a tensor with several users.
//! [`plus`](Step::plus) adds a matrix to the product itself, before f' is applied: a contribution to Y from elsewhere,
//! such as a skip connection.
//!
//! # Memory
//!
//! - X is M x K, row-major, or K x M with [`trans_x`](Linear::trans_x).
//! - W is K x N, or N x K with [`trans_w`](Linear::trans_w).
//! - A gradient has the layout of its tensor.
//! - Any of them may have a leading dimension ([`IntoTensor::ld`](crate::args::IntoTensor::ld)).
//! - All leading dimensions of an input with more than two count as rows. A [batch](Linear::batched) is different: layers
//!   of one size side by side, each with an X and a W of its own.

mod conv2d;
mod paddle;
mod rewrite;
mod step;
mod trained;

pub use crate::error::LinearError;
pub use conv2d::Conv2d;
#[cfg(feature = "cuda")]
pub use step::StepPlan;
pub use step::{Names, Step};

use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::DType;
use crate::gemm::Gemm;
use crate::grad::{Pair, Reserve, Wrt};
use crate::ir::axes::Axes;
use crate::ir::{Operand, Order, Side};
use crate::problem::{Layout, Shape};
use trained::{DZ, DZ_SCALE, Formats, Trained, W_SCALE, X_SCALE, same, stored};

/// A linear layer: Y = f(X W + b). See the [module](self).
#[derive(Clone, Debug)]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    entries: usize,
    x: Order,
    w: Order,
    trained: Trained,
}

impl Linear {
    /// A layer of `[inputs, outputs]` whose tensors all have one format: Y = f(X W + b), stored as `y`, with a vector
    /// `bias` over the outputs. `f` may use coordinates, and load matrices, vectors and scalars of its own.
    ///
    /// # Errors
    /// If `f` makes an invalid graph or has no derivative, or a format is not floating-point.
    #[track_caller]
    pub fn new(
        dtype: DType,
        extents: [usize; 2],
        f: impl for<'g> FnOnce(&'g Builder, Expr<'g>) -> Expr<'g>,
    ) -> Result<Linear, LinearError> {
        Ok(Linear::of(extents, Trained::with_bias(dtype, f)?))
    }

    /// A layer of `[inputs, outputs]` with any epilogue behind X W, and control over the saved values. X, W and dZ have
    /// the format `dtype`. Y is the output that gradients come in [through](Wrt::through).
    ///
    /// If Y is kept anyway, because the next layer's weight gradient reads it, `Wrt::all().keeps("y")` saves nothing
    /// twice. The backward steps then take `y` as well.
    ///
    /// # Errors
    /// If there is no derivative, dZ is not requested or has another format than W, or an argument has the name of one
    /// of the layer's tensors.
    pub fn with_epilogue(dtype: DType, extents: [usize; 2], epilogue: &Epilogue, wrt: Wrt) -> Result<Linear, LinearError> {
        Ok(Linear::of(extents, Trained::of(dtype, epilogue, wrt)?))
    }

    fn of([inputs, outputs]: [usize; 2], trained: Trained) -> Linear {
        Linear { inputs, outputs, entries: 1, x: Order::RowMajor, w: Order::RowMajor, trained }
    }

    /// Whether X is transposed, K x M.
    #[must_use]
    pub fn trans_x(self, transposed: bool) -> Linear {
        Linear { x: Order::stored(transposed), ..self }
    }

    /// Whether W is transposed, N x K: one row an output.
    #[must_use]
    pub fn trans_w(self, transposed: bool) -> Linear {
        Linear { w: Order::stored(transposed), ..self }
    }

    /// `entries` layers side by side, each with its own X, W, and arguments declared `batched()`. They share all other
    /// arguments, such as the bias of [`Linear::new`], whose gradient is summed over them.
    #[must_use]
    pub fn batched(self, entries: usize) -> Linear {
        Linear { entries, ..self }
    }

    /// The format of dW and of the gradients of f's arguments. By default each gradient has the format of its argument.
    #[must_use]
    pub fn gradients(self, dtype: DType) -> Linear {
        Linear { trained: Trained { gradients: Some(dtype), ..self.trained }, ..self }
    }

    /// The layer with operands of eight bits, as Transformer Engine's HYBRID: X and W in `E4M3`, dZ in `E5M2`. Products read
    /// numbers over scales, each an `f32` in memory: `x_scale`, `w_scale` and `dz_scale`, which multiply what a step computes.
    /// Y, dX, dW, the reserve and the arguments of f keep the format of the layer.
    ///
    /// | tensor | who stores it in eight bits |
    /// | --- | --- |
    /// | X | [`quantize`](Step::quantize)`("y", E4M3)` on the forward step of the layer before, over `y_scale` |
    /// | W | a pass with [`recipes::quantize`](crate::build::recipes::quantize) after each step of the optimiser |
    /// | dZ | [`activation_grad`](Linear::activation_grad) and the next layer's [`dgrad_into`](Linear::dgrad_into), over `grad_acc_scale` |
    ///
    /// Each of them also computes the largest magnitude (`y_amax`, `d_amax`, `grad_acc_amax`), from which
    /// [`recipes::delayed_scale`](crate::build::recipes::delayed_scale) makes the scales of later steps. Sums over K are
    /// [promoted](crate::Gemm::fast_accumulation), and gradients of biases are sums of numbers that were not rounded to eight
    /// bits. So [`wgrad_with_bias`](Linear::wgrad_with_bias), which reads rounded ones, is refused.
    ///
    /// ```
    /// # use postlude::layer::Linear;
    /// # use postlude::prelude::*;
    /// use postlude::float8::F8E4M3;
    /// let layer = Linear::new(F32, [2, 1], |_, z| z.relu())?.fp8()?;
    /// let [x, w] = [[1.0f32, 2.0], [3.0, 0.5]].map(|v| v.map(F8E4M3::from_f32));
    /// let (bias, mut y, mut reserve) = ([1.0f32], [0.0f32], layer.reserve(1));
    /// let args = HostArgs::new().input("x", &x).input("w", &w).input("bias", &bias).output("y", &mut y);
    /// let args = args.input("x_scale", &[2.0f32]).input("w_scale", &[0.5f32]);
    /// layer.forward(1).reference(args.saving(&mut reserve))?;
    /// assert_eq!(y, [5.0]); // (1 * 2) (3 * 0.5) + (2 * 2) (0.5 * 0.5) + 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the layer's format is not `f32`, `f16` or `bf16`, or f has an argument with the name of a scale.
    #[doc(alias = "HYBRID")]
    #[doc(alias = "fp8_autocast")]
    pub fn fp8(self) -> Result<Linear, LinearError> {
        Ok(Linear { trained: self.trained.hybrid()?, ..self })
    }

    /// K and N.
    pub fn extents(&self) -> [usize; 2] {
        [self.inputs, self.outputs]
    }

    /// The epilogue with its derivative, and the plan of the saved values.
    pub fn pair(&self) -> &Pair {
        &self.trained.pair
    }

    /// The extents of the forward product, for which a reserve is made.
    pub fn shape(&self, rows: usize) -> Shape {
        Shape::new(rows, self.outputs, self.inputs).batched(self.entries)
    }

    /// Host memory for the values that [`forward`](Linear::forward) saves.
    pub fn reserve(&self, rows: usize) -> Reserve<Vec<u8>> {
        self.trained.reserve(self.shape(rows))
    }

    /// Y = f(X W + b), and the values that its derivative needs.
    pub fn forward(&self, rows: usize) -> Step {
        self.product(&self.trained.forward, rows).saves(self.trained.saved())
    }

    /// Y = f(X W + b), without saved values.
    pub fn inference(&self, rows: usize) -> Step {
        self.product(&self.trained.epilogue, rows)
    }

    fn product(&self, epilogue: &Epilogue, rows: usize) -> Step {
        let Formats { x, w, .. } = self.trained.formats;
        let gemm = Gemm::mixed(x, w, Layout::of(self.x, self.w), epilogue);
        Step::new(gemm, self.shape(rows), Names::new("x", Some("w")))
    }

    /// dZ = dY f'(Z), with the gradients of the bias and of all other arguments of f: a pass over a dY that is already
    /// in memory.
    ///
    /// # Errors
    /// If a gradient cannot have the format that [`gradients`](Linear::gradients) asks for.
    pub fn activation_grad(&self, rows: usize) -> Result<Step, LinearError> {
        Ok(Step::new(self.trained.activation_grad()?, Shape { k: 0, ..self.shape(rows) }, Names::new("dy", None)))
    }

    /// dW = X^T dZ.
    ///
    /// # Errors
    /// If dW cannot have the format that [`gradients`](Linear::gradients) asks for.
    pub fn wgrad(&self, rows: usize) -> Result<Step, LinearError> {
        let Formats { x, dz, .. } = self.trained.formats;
        let dw = self.trained.filters(Operand { dtype: self.trained.dtype, axes: Axes::MNL, order: self.w })?;
        let epilogue = self.trained.behind(&stored("dw", dw)?, [X_SCALE, DZ_SCALE])?;
        let gemm = Gemm::mixed(x, dz, Layout::of(self.x.transposed(), self.trained.dz.order), &epilogue);
        let shape = Shape::new(self.inputs, self.outputs, rows).batched(self.entries);
        Ok(Step::new(gemm, shape, Names::new("x", Some("dz"))))
    }

    /// dW = X^T dZ, and db = the sum of dZ over M, under its name in [`activation_grad`](Linear::activation_grad):
    /// `grad_bias` for the bias of [`Linear::new`]. The sum is taken inside the product, which reads the stored dZ
    /// anyway.
    ///
    /// If [`activation_grad`](Linear::activation_grad) or [`dgrad_into`](Linear::dgrad_into) computed dZ, it has summed
    /// it too, and `wgrad` is enough. Use this step for a dZ from elsewhere: a loss, or a layer without an activation.
    /// A layer without inputs has no dW, and no product runs that could take the sum: db is then 0, or keeps its value
    /// if it accumulates.
    ///
    /// # Errors
    /// If dZ has [eight bits](Linear::fp8). If no gradient of a vector is the sum of dZ: the epilogue adds no bias to the
    /// product, or its gradient was not requested. If a gradient cannot have the format that
    /// [`gradients`](Linear::gradients) requests.
    pub fn wgrad_with_bias(&self, rows: usize) -> Result<Step, LinearError> {
        if self.trained.is_scaled() {
            return Err(LinearError::RoundedSum);
        }
        let sums = rewrite::sums_of(&self.trained.derivative()?, DZ);
        if sums.is_empty() {
            return Err(LinearError::NoBias);
        }
        let step = self.wgrad(rows)?;
        let epilogue = rewrite::with_sums(step.gemm().epilogue(), Side::B, &sums)?;
        Ok(step.with(|gemm| gemm.with_epilogue(&epilogue)))
    }

    /// dX = dZ W^T.
    ///
    /// # Errors
    /// Never for a format that a layer can have.
    pub fn dgrad(&self, rows: usize) -> Result<Step, LinearError> {
        let dx = Operand { dtype: self.trained.dtype, axes: Axes::MNL, order: self.x };
        self.dgrad_with(&stored("dx", dx)?, rows)
    }

    /// dZ_prev = (dZ W^T) f_prev'(Z_prev): the gradient of the argument of the previous layer's activation f_prev, if X
    /// is that layer's output. The step also computes the gradients of that layer's bias and of all other arguments of
    /// f_prev. Arguments besides `dz` and `w` are those of `previous`'s [`activation_grad`](Linear::activation_grad).
    ///
    /// # Errors
    /// If X is not the previous layer's output: in number of columns, batch, format or order.
    pub fn dgrad_into(&self, previous: &Linear, rows: usize) -> Result<Step, LinearError> {
        same("columns", previous.outputs, self.inputs)?;
        same("batch entries", previous.entries, self.entries)?;
        self.trained.follows(&previous.trained)?;
        if previous.trained.y.order != self.x {
            return Err(LinearError::Order { makes: previous.trained.y.order, takes: self.x });
        }
        self.dgrad_with(&previous.trained.derivative()?, rows)
    }

    fn dgrad_with(&self, epilogue: &Epilogue, rows: usize) -> Result<Step, LinearError> {
        let Formats { w, dz, .. } = self.trained.formats;
        let epilogue = self.trained.behind(epilogue, [DZ_SCALE, W_SCALE])?;
        let gemm = Gemm::mixed(dz, w, Layout::of(self.trained.dz.order, self.w.transposed()), &epilogue);
        let shape = Shape::new(rows, self.inputs, self.outputs).batched(self.entries);
        Ok(Step::new(gemm, shape, Names::new("dz", Some("w"))))
    }
}

#[cfg(feature = "cuda")]
mod on_device {
    use super::Linear;
    use crate::error::Error;
    use crate::grad::Reserve;
    use cudarc::driver::{CudaSlice, CudaStream};
    use std::sync::Arc;

    impl Linear {
        /// Device memory for the values that [`forward`](Linear::forward) saves.
        ///
        /// # Errors
        /// If the device has no memory left.
        pub fn reserve_on(&self, stream: &Arc<CudaStream>, rows: usize) -> Result<Reserve<CudaSlice<u8>>, Error> {
            self.trained.reserve_on(stream, self.shape(rows))
        }
    }
}
