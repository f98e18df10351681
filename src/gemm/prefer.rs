//! The requests of a program beyond the epilogue. Each method makes another product.

use super::Gemm;
use crate::ir::Side;
use crate::plan::{Mainloop, Math, Preferences, Tile};
use std::num::{NonZeroI32, NonZeroUsize};

impl Gemm {
    /// Another preference makes another product.
    fn prefer(self, change: impl FnOnce(&mut Preferences)) -> Gemm {
        let mut other = Gemm { preferences: self.preferences, ..Gemm::of(self.operation, &self.epilogue) };
        change(&mut other.preferences);
        other
    }

    /// How transcendental primitives are spelled. Default: fast where every stored matrix is 16 bit or narrower.
    #[must_use]
    pub fn math(self, math: Math) -> Gemm {
        self.prefer(|preferences| preferences.math = math)
    }

    /// Whether `f32` operands may be rounded to tf32 (10 bits of mantissa) for the tensor cores. Default: no.
    ///
    /// They are rounded to nearest. `sm90a` breaks a tie to the even number, as TMA does, and `sm80` away from zero. A number
    /// above the range of tf32 becomes infinite. The product is summed in `f32`. Sums of operands are those of unrounded
    /// elements.
    #[must_use]
    pub fn tf32(self, allow: bool) -> Gemm {
        self.prefer(|preferences| preferences.tf32 = allow)
    }

    /// Whether tensor cores may add up all products of `E4M3` and `E5M2` operands by themselves. Default: no.
    ///
    /// Hopper's tensor cores keep 13 bits behind the point of the largest addend and cut off the rest. Over 8192 elements of
    /// K with one sign the sum is 13 % too low, over 65536 about half. By default, kernels of `sm90a` take out the sum of 128
    /// elements of K and add these sums up in `f32`, which is within 5e-4 for any K. Other mainloops multiply these formats
    /// in `f16` or `f32`, so this option does not change them.
    #[must_use]
    pub fn fast_accumulation(self, allow: bool) -> Gemm {
        self.prefer(|preferences| preferences.fast_accumulation = allow)
    }

    /// Uses only this mainloop.
    #[must_use]
    pub fn mainloop(self, mainloop: Mainloop) -> Gemm {
        self.prefer(|preferences| preferences.mainloop = Some(mainloop))
    }

    /// Uses only this tile.
    #[must_use]
    pub fn tile(self, tile: Tile) -> Gemm {
        self.prefer(|preferences| preferences.tile = Some(tile))
    }

    /// The order of the tiles: groups of this many rows of tiles, each group swept from column to column, or of as many
    /// columns if it is negative. Tiles that run at the same time then share operands in the L2 cache. With 0, the
    /// default, the planner chooses. The number is a parameter of the launch, so it changes no kernel.
    #[must_use]
    pub fn raster_group(self, group: i32) -> Gemm {
        // The least `i32` has no absolute value, so the next number replaces it.
        self.prefer(|preferences| preferences.raster_group = NonZeroI32::new(group.max(-i32::MAX)))
    }

    /// Whether the blocks of a Hopper kernel run in lockstep: each waits for the others before it takes its next tile.
    /// Default: yes, if K and the output are so large that blocks that drift apart would read the same operands from
    /// memory one after another.
    ///
    /// Results are the same. A block that has waited for some ten microseconds, because another multiprocessor is busy
    /// with other work, continues alone. Counting takes 256 bytes of device memory for each stream. Without them, and
    /// in captured launches, blocks do not wait.
    #[must_use]
    pub fn lockstep(self, waits: bool) -> Gemm {
        self.prefer(|preferences| preferences.lockstep = Some(waits))
    }

    /// Whether a product is computed transposed: B's columns become the rows of the kernel's tiles, and A's rows their
    /// columns. Default: where it decides the time, the planner compares the estimates of both.
    ///
    /// Results are the same apart from the order of sums. [`KernelPlan::explain`](crate::plan::KernelPlan::explain) says which
    /// way was chosen, and tiles that [`tile`](Gemm::tile) names are those of that way. Only products of matrices have two ways.
    #[must_use]
    pub fn transposed(self, transposed: bool) -> Gemm {
        self.prefer(|preferences| preferences.transposed = Some(transposed))
    }

    /// The number of parts in which K is split, for outputs that leave multiprocessors idle.
    ///
    /// Each part is multiplied as an entry of a batch, into sums that the plan owns (`f32`, one matrix for each part,
    /// separate memory for each stream). A second kernel adds them up, always in the same order, and runs the epilogue
    /// once. With 0, the default, K is split if `sm90a` multiplies and estimates expect it to pay; `explain()` states
    /// the estimates for every mainloop. 1 leaves K whole. Any other number, up to 64, is the number of parts; planning
    /// fails if K is not a multiple of 8 times that number, or if the problem has a batch. A capture cannot allocate:
    /// run a plan that splits K once on a stream before you capture it there.
    #[must_use]
    pub fn split_k(self, parts: usize) -> Gemm {
        self.prefer(|preferences| preferences.split_k = NonZeroUsize::new(parts))
    }

    /// Whether a launch may begin while the one before it in the stream still runs. Default: yes, on
    /// `sm_90` and later, unless the library copies an operand first.
    ///
    /// Such a kernel prepares itself. Before it reads or writes memory it waits until all earlier work in the stream is
    /// done. So results are the same, and the gaps between kernels are shorter. A kernel of the program that follows is
    /// not affected, unless it is launched the same way. In a captured graph the launch becomes a programmatic edge.
    #[must_use]
    pub fn programmatic_launch(self, allow: bool) -> Gemm {
        self.prefer(|preferences| preferences.programmatic = allow)
    }

    /// Declares operands constant: no work that may still run when a launch begins writes them. The weights of
    /// inference are an example.
    ///
    /// A programmatic launch then fetches them before earlier kernels are done, which shortens short kernels. Default:
    /// none. If any earlier launch may still be writing a declared operand, not only the last one, results are wrong.
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
}
