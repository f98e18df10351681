//! The front door: a product (or a pointwise operation) with an epilogue; reference, plan, execute.

#[cfg(feature = "jit")]
mod asked;
#[cfg(feature = "cuda")]
mod autotune;
#[cfg(feature = "jit")]
mod compile;
#[cfg(feature = "cuda")]
mod execute;
#[cfg(feature = "jit")]
mod memo;
#[cfg(feature = "jit")]
mod parallel;
#[cfg(feature = "jit")]
mod precompile;
mod run;

pub use run::RanOn;

use crate::args::{ArgumentErrors, HostArgs};
use crate::build::Epilogue;
use crate::dtype::DType;
use crate::emit::{self, RenderError};
use crate::ir::{Order, Side};
use crate::plan::{KernelPlan, Mainloop, Math, PlanError, Preferences, Problem, Tile};
use crate::problem::{Layout, Operation, Shape};
use crate::reference::{self, Precision};
use crate::source::Source;
use crate::target::{Gpu, Target};
use std::num::{NonZeroI32, NonZeroUsize};

/// An operation and its epilogue. Nothing is compiled until `plan`.
#[doc(alias = "matmul")]
#[doc(alias = "bmm")]
#[derive(Clone, Debug)]
pub struct Gemm {
    operation: Operation,
    epilogue: Epilogue,
    preferences: Preferences,
    #[cfg(feature = "jit")]
    identity: memo::Identity,
}

impl Gemm {
    pub(crate) fn of(operation: Operation, epilogue: &Epilogue) -> Gemm {
        Gemm {
            operation,
            epilogue: epilogue.clone(),
            preferences: Preferences::default(),
            #[cfg(feature = "jit")]
            identity: memo::Identity::default(),
        }
    }

    /// Another preference makes another product.
    fn prefer(self, change: impl FnOnce(&mut Preferences)) -> Gemm {
        let mut other = Gemm { preferences: self.preferences, ..Gemm::of(self.operation, &self.epilogue) };
        change(&mut other.preferences);
        other
    }

    /// The same operation and preferences with another epilogue.
    pub(crate) fn with_epilogue(&self, epilogue: &Epilogue) -> Gemm {
        Gemm { preferences: self.preferences, ..Gemm::of(self.operation, epilogue) }
    }

    /// D = epilogue(A B), A and B of one format, lying as the layout says.
    ///
    /// Two row-major matrices, `x @ y`, are [`TT`](Layout::TT); `x @ w.T`, a linear layer, is [`TN`](Layout::TN); `x.T @ y` is
    /// [`NT`](Layout::NT), and two column-major matrices, as in BLAS, are [`NN`](Layout::NN). [`Layout`] has a picture.
    pub fn new(dtype: DType, layout: Layout, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Product { dtype, layout }, epilogue)
    }

    /// D = epilogue(A): an epilogue over a matrix that already exists, which is passed as `a`. K does not count:
    /// [`Shape::matrix`] has none.
    ///
    /// An epilogue that reads no accumulator needs no `a`: it works on what it loads, and a matrix that it stores under the name of a
    /// loaded one is updated in place. The format and order given here then mean nothing.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let relu_ = Epilogue::build(|e| e.store("x", e.load("x", F32).relu(), F32))?;
    /// let mut x = [1.0f32, -2.0, -0.5, 4.0];
    /// Gemm::pointwise(F32, Order::RowMajor, &relu_).reference(Shape::matrix(2, 2), HostArgs::new().output("x", &mut x))?;
    /// assert_eq!(x, [1.0, 0.0, 0.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pointwise(dtype: DType, order: Order, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Pointwise { dtype, order }, epilogue)
    }

    /// How transcendental primitives are spelled. Default: fast where every stored matrix is 16 bit or narrower.
    #[must_use]
    pub fn math(self, math: Math) -> Gemm {
        self.prefer(|preferences| preferences.math = math)
    }

    /// Whether `f32` operands may be rounded to tf32 (10 bits of mantissa) for the tensor cores. Default: no.
    #[must_use]
    pub fn tf32(self, allow: bool) -> Gemm {
        self.prefer(|preferences| preferences.tf32 = allow)
    }

    /// This mainloop and no other.
    #[must_use]
    pub fn mainloop(self, mainloop: Mainloop) -> Gemm {
        self.prefer(|preferences| preferences.mainloop = Some(mainloop))
    }

    /// This tile and no other.
    #[must_use]
    pub fn tile(self, tile: Tile) -> Gemm {
        self.prefer(|preferences| preferences.tile = Some(tile))
    }

    /// The order of the tiles: groups of this many rows of tiles, each group swept from column to column, or of as many
    /// columns if it is negative. Tiles that run at the same time then share operands in the level-2 cache. 0, the default,
    /// leaves it to the choice. A run-time number: it changes no kernel.
    #[must_use]
    pub fn raster_group(self, group: i32) -> Gemm {
        // Of the one number without an absolute value, the nearest that has one.
        self.prefer(|preferences| preferences.raster_group = NonZeroI32::new(group.max(-i32::MAX)))
    }

    /// Whether the blocks of a Hopper kernel wait for each other before each takes its next tile; a block that does so in vain, for some ten
    /// microseconds, because another multiprocessor is busy with something else, goes on alone. Default: where
    /// K and the output are so large that blocks which drift apart would read the same operands from memory one after another. Results
    /// are the same. Counting takes 256 bytes of device memory for each stream; where there are none, and in launches that are captured, nobody
    /// waits.
    #[must_use]
    pub fn lockstep(self, waits: bool) -> Gemm {
        self.prefer(|preferences| preferences.lockstep = Some(waits))
    }

    /// In how many parts K is split, for outputs that leave multiprocessors idle. Each part is multiplied as an entry of a batch,
    /// into sums that the plan owns (`f32`, one matrix a part, one piece of memory for each stream); a second kernel adds them up,
    /// always in the same order, and runs the epilogue once. 0, the default, splits where `sm90a` multiplies and estimates expect it to
    /// pay, and `explain()` says what they expect of any mainloop; 1 leaves K whole; any other number, up to 64, is how many, and
    /// planning fails if K is not so many times a multiple of 8, or the problem has a batch. A capture cannot allocate: run a plan that splits once on the
    /// stream before it is captured there.
    #[must_use]
    pub fn split_k(self, parts: usize) -> Gemm {
        self.prefer(|preferences| preferences.split_k = NonZeroUsize::new(parts))
    }

    /// Whether a launch may begin while the one before it in the stream still runs. Default: yes, where the kernel can.
    ///
    /// Such a kernel prepares itself and then waits, before it reads or writes anything, until all that precedes it in the
    /// stream is done, whatever that is: results are the same, gaps between kernels shorter. A kernel of the program's own
    /// that follows sees nothing of it unless it is launched the same way. Captured into a graph, the launch becomes a
    /// programmatic edge.
    #[must_use]
    pub fn programmatic_launch(self, allow: bool) -> Gemm {
        self.prefer(|preferences| preferences.programmatic = allow)
    }

    /// Declares operands constant: nothing that may still run when a launch begins writes them, as with the weights of inference.
    ///
    /// A programmatic launch then fetches them while its predecessors finish, which shortens short kernels. Default: neither. If an
    /// earlier launch, not only the last one, may still be writing a declared operand, results are wrong.
    ///
    /// ```
    /// use postlude::build::recipes;
    /// use postlude::prelude::*;
    /// let gemm = Gemm::new(F16, TN, &recipes::identity(F16)?).constant_operands([Side::B]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn constant_operands(self, operands: impl IntoIterator<Item = Side>) -> Gemm {
        let mut constant = [false; 2];
        operands.into_iter().for_each(|side| constant[side as usize] = true);
        self.prefer(|preferences| preferences.constant = constant)
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The epilogue.
    pub fn epilogue(&self) -> &Epilogue {
        &self.epilogue
    }

    /// Computes on the CPU what the kernel means.
    ///
    /// # Errors
    /// Every argument that does not fit; nothing is written then.
    pub fn reference(&self, shape: Shape, args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
        reference::run(self.operation, self.epilogue.checked(), shape, args, Precision::F32)
    }

    /// The kernel's plan for a target and a number of multiprocessors. Needs no GPU and compiles nothing.
    ///
    /// # Errors
    /// If the epilogue does not fit the operation, the problem has strides that no launch could take, or the target lacks what it needs or has no
    /// multiprocessors.
    pub fn kernel_plan(&self, target: Target, gpu: impl Into<Gpu>, problem: impl Into<Problem>) -> Result<KernelPlan, PlanError> {
        let checked = self.epilogue.checked();
        KernelPlan::new(self.operation, checked, &problem.into(), target, gpu, self.preferences)
    }
}

impl KernelPlan {
    /// The CUDA source.
    ///
    /// # Errors
    /// Only if a template of this library is at fault.
    pub fn source(&self) -> Result<Source, RenderError> {
        emit::render(self)
    }
}

#[cfg(feature = "jit")]
pub use compile::Kernel;
#[cfg(feature = "jit")]
pub use precompile::{Wanted, precompile};

#[cfg(feature = "cuda")]
pub use execute::Plan;
