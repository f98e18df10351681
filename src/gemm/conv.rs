//! Convolutions and their gradients: the same calls as a product's, with the extents of the images instead of M, N and K.

use super::{Gemm, RanOn};
use crate::args::{ArgumentErrors, HostArgs};
use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::DType;
use crate::error::Error;
use crate::plan::{KernelPlan, PlanError, Problem};
use crate::problem::{ConvFault, ConvShape, Convolution, GradientOf, Operation, Patches, Shape};
use crate::target::{Gpu, Target};
#[cfg(feature = "cuda")]
use {
    super::Plan,
    crate::device::{Device, DeviceArgs},
    cudarc::driver::CudaStream,
    std::sync::Arc,
};
#[cfg(feature = "jit")]
use {crate::gemm::Kernel, crate::jit::Cache};

/// A convolution of NHWC images `a` with KRSC filters `b`, and its epilogue. Nothing is compiled until `plan`.
///
/// To the epilogue it is a product: M are the output pixels of all images (N P Q), N are the filters. So a vector over N has an
/// element for each output channel, and a matrix is an NHWC activation. [`Convolution::pixel`] says where a row lies.
///
/// ```
/// use postlude::prelude::*;
/// let epilogue = Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F32.over(N))).relu(), F32))?;
/// // One image of 3 x 3 pixels with one channel, and one filter that adds up 2 x 2 pixels.
/// let conv = Conv::new(F32, ConvShape::new(1, [3, 3, 1], [1, 2, 2]), &epilogue)?;
/// let image = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
/// let (filter, bias, mut d) = ([1.0f32; 4], [-20.0f32], [0.0f32; 4]);
/// conv.reference(HostArgs::new().input("a", &image).input("b", &filter).input("bias", &bias).output("d", &mut d))?;
/// assert_eq!(d, [0.0, 0.0, 4.0, 8.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "conv2d")]
#[doc(alias = "conv1d")]
#[derive(Clone, Debug)]
pub struct Conv {
    gemm: Gemm,
    convolution: Convolution,
}

impl Conv {
    /// D = epilogue(images * filters), both in one format.
    ///
    /// # Errors
    /// If the numbers of the shape do not fit together.
    pub fn new(dtype: DType, shape: ConvShape, epilogue: &Epilogue) -> Result<Conv, ConvFault> {
        Ok(Conv::of(dtype, Convolution::new(shape)?, epilogue))
    }

    /// The same of a shape that has been checked.
    pub fn of(dtype: DType, convolution: Convolution, epilogue: &Epilogue) -> Conv {
        Conv { gemm: Gemm::of(Operation::Convolution { dtype, convolution }, epilogue), convolution }
    }

    /// The gradient of the images, behind any epilogue: of `a`, the gradient dY of the convolution's output, and of the filters
    /// `b`. M are the pixels of X (N H W), N are its channels, K are taps and filters.
    ///
    /// So the derivative of the layer before is an epilogue of the product: it loads what that layer saved, and its bias
    /// gradient is a reduction over M. Pixels under no window have the accumulator 0.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| e.store("dx", e.acc(), F32))?;
    /// // One image of 3 x 3 pixels with one channel, and one filter of 2 x 2 pixels.
    /// let shape = ConvShape::new(1, [3, 3, 1], [1, 2, 2]);
    /// let (dy, filter, mut dx) = ([1.0f32, 0.0, 0.0, 10.0], [1.0f32, 2.0, 3.0, 4.0], [0.0f32; 9]);
    /// let args = HostArgs::new().input("a", &dy).input("b", &filter).output("dx", &mut dx);
    /// Conv::data_gradient(F32, shape, &epilogue)?.reference(args)?;
    /// assert_eq!(dx, [1.0, 2.0, 0.0, 3.0, 14.0, 20.0, 0.0, 30.0, 40.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers of the shape do not fit together.
    #[doc(alias = "dgrad")]
    pub fn data_gradient(dtype: DType, shape: ConvShape, epilogue: &Epilogue) -> Result<Conv, ConvFault> {
        Ok(Conv::gradient(dtype, Convolution::new(shape)?, GradientOf::Images, epilogue))
    }

    /// The gradient of the filters, behind any epilogue: of `a`, the gradient dY of the convolution's output, and of the images
    /// `b`. M are the filters, N are their elements (R S C), K are the output pixels. A group is a batch entry.
    ///
    /// A sum of `a` over K, `e.reduce("db", e.a(), Monoid::Sum, F32.over(M))`, is the gradient of a bias.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| {
    ///     e.store("dw", e.acc(), F32);
    ///     e.reduce("db", e.a(), Monoid::Sum, F32.over(M));
    /// })?;
    /// let shape = ConvShape::new(1, [3, 3, 1], [1, 2, 2]);
    /// let (dy, x) = ([1.0f32, 0.0, 0.0, 10.0], [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    /// let (mut dw, mut db) = ([0.0f32; 4], [0.0f32]);
    /// let args = HostArgs::new().input("a", &dy).input("b", &x).output("dw", &mut dw).output("db", &mut db);
    /// Conv::filter_gradient(F32, shape, &epilogue)?.reference(args)?;
    /// assert_eq!((dw, db), ([51.0, 62.0, 84.0, 95.0], [11.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers of the shape do not fit together.
    #[doc(alias = "wgrad")]
    pub fn filter_gradient(dtype: DType, shape: ConvShape, epilogue: &Epilogue) -> Result<Conv, ConvFault> {
        Ok(Conv::gradient(dtype, Convolution::new(shape)?, GradientOf::Filters, epilogue))
    }

    /// A gradient of a convolution that has been checked.
    pub fn gradient(dtype: DType, convolution: Convolution, of: GradientOf, epilogue: &Epilogue) -> Conv {
        Conv { gemm: Gemm::of(Operation::ConvolutionGradient { dtype, convolution, of }, epilogue), convolution }
    }

    /// What the convolution measures, also that of a gradient.
    pub fn convolution(&self) -> Convolution {
        self.convolution
    }

    /// The extents that the epilogue sees: M output pixels, N filters, K elements of a filter; or those of the gradient.
    pub fn shape(&self) -> Shape {
        self.gemm.operation.patches().map_or_else(|| self.convolution.shape(), |patches| patches.shape())
    }

    /// The operation and the epilogue, for what takes a [`Gemm`] and a [`Shape`]. The shape has to be [`Conv::shape`].
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The same convolution with other preferences: whatever a [`Gemm`] may be asked for.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// use postlude::plan::Mainloop;
    /// # let epilogue = postlude::build::recipes::identity(F16)?;
    /// let conv = Conv::new(F16, ConvShape::new(8, [14, 14, 64], [64, 3, 3]).padding([1, 1]), &epilogue)?;
    /// let conv = conv.prefer(|gemm| gemm.mainloop(Mainloop::Simt).programmatic_launch(false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn prefer(self, change: impl FnOnce(Gemm) -> Gemm) -> Conv {
        let Conv { gemm, convolution } = self;
        let (operation, epilogue) = (gemm.operation, gemm.epilogue.clone());
        let preferences = change(gemm).preferences;
        Conv { gemm: Gemm { preferences, ..Gemm::of(operation, &epilogue) }, convolution }
    }

    /// Computes on the CPU what the kernel means, as [`Gemm::reference`] does.
    ///
    /// # Errors
    /// Every argument that does not fit; nothing is written then.
    pub fn reference(&self, args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
        self.gemm.reference(self.shape(), args)
    }

    /// The kernel's plan for a target and a number of multiprocessors. Needs no GPU and compiles nothing.
    ///
    /// # Errors
    /// As [`Gemm::kernel_plan`].
    pub fn kernel_plan(&self, target: Target, gpu: impl Into<Gpu>) -> Result<KernelPlan, PlanError> {
        self.gemm.kernel_plan(target, gpu, self.shape())
    }

    /// The problem: its extents, to which strides and alignments of arguments can be added.
    pub fn problem(&self) -> Problem {
        self.shape().into()
    }

    /// Computes once on arguments in host memory, as [`Gemm::run`] does.
    ///
    /// # Errors
    /// As [`Gemm::run`].
    pub fn run(&self, args: HostArgs<'_>) -> Result<RanOn, Error> {
        self.gemm.run(self.shape(), args)
    }

    /// Compiles the kernel for a target, or takes it from the cache, as [`Gemm::compile`] does.
    ///
    /// # Errors
    /// As [`Gemm::compile`].
    #[cfg(feature = "jit")]
    pub fn compile(&self, cache: &Cache, target: Target, gpu: impl Into<Gpu>) -> Result<Kernel, Error> {
        self.gemm.compile(cache, target, gpu, self.shape())
    }

    /// Chooses the kernel, compiles it or takes it from the cache, and loads it, as [`Gemm::plan`] does.
    ///
    /// # Errors
    /// As [`Gemm::plan`].
    #[cfg(feature = "cuda")]
    pub fn plan(&self, device: &Device) -> Result<Plan, Error> {
        self.gemm.plan(device, self.shape())
    }

    /// [`plan`](Conv::plan) for arguments as they are: their strides and the alignment of their addresses.
    ///
    /// # Errors
    /// As `plan`.
    #[cfg(feature = "cuda")]
    pub fn plan_for(&self, device: &Device, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<Plan, Error> {
        self.gemm.plan_for(device, self.shape(), stream, args)
    }
}

/// Where an output element of a convolution lies, as integers of an epilogue. Its channel is [`Builder::column`].
#[derive(Clone, Copy)]
pub struct Pixel<'b> {
    /// The image, counted from 0.
    pub image: Expr<'b>,
    /// The row of the output image.
    pub y: Expr<'b>,
    /// The pixel of that row.
    pub x: Expr<'b>,
}

impl Convolution {
    /// Where an element lies in the output images: values that vary along M, and cost what a value of each row costs.
    ///
    /// A condition on them makes a region, as one on [`Builder::row`] does. The output's width and height are constants of
    /// the epilogue.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// use postlude::Convolution;
    /// let convolution = Convolution::new(ConvShape::new(1, [2, 2, 1], [1, 1, 1]))?;
    /// let epilogue = Epilogue::build(|e| {
    ///     let right_half = convolution.pixel(e).x.ge(1);
    ///     e.store("d", e.acc().region(right_half, |z| z * 10.0).otherwise(|z| z), F32);
    /// })?;
    /// let (image, filter, mut d) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32], [0.0f32; 4]);
    /// let args = HostArgs::new().input("a", &image).input("b", &filter).output("d", &mut d);
    /// Conv::of(F32, convolution, &epilogue).reference(args)?;
    /// assert_eq!(d, [1.0, 20.0, 3.0, 40.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pixel<'b>(&self, e: &'b Builder) -> Pixel<'b> {
        Pixel::of(self.output(), e)
    }

    /// [`pixel`](Convolution::pixel) for the gradient of the images, whose rows are the pixels of X.
    pub fn input_pixel<'b>(&self, e: &'b Builder) -> Pixel<'b> {
        Pixel::of(Patches { convolution: *self, gradient: Some(GradientOf::Images) }.windows().grid, e)
    }
}

impl<'b> Pixel<'b> {
    /// The pixel of a row, in images of so many rows and columns.
    fn of(extents: [usize; 2], e: &'b Builder) -> Pixel<'b> {
        let [height, width] = extents.map(|extent| i32::try_from(extent).unwrap_or(i32::MAX));
        let row = e.row();
        let line = row.floor_div(width);
        Pixel { image: line.floor_div(height), y: line.floor_mod(height), x: row.floor_mod(width) }
    }
}
