//! The names of the mainloops.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A mainloop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mainloop {
    /// Single multiply-adds, full precision, any operand.
    Simt,
    /// Tensor cores through `mma.sync`, fed by `cp.async`.
    Sm80,
    /// Hopper's tensor cores through `wgmma`, fed by TMA.
    Sm90a,
    /// Attention: `mma.sync` on blocks of keys and values, with a softmax that goes along.
    Attention,
    /// Convolutions of few channels: `mma.sync` on lines of the images in shared memory.
    Bands,
    /// The gradient of the filters of few channels, likewise.
    BandsFilters,
    /// Convolutions with one channel to a filter: single multiply-adds, at the speed of memory.
    Depthwise,
    /// The gradient of such filters: single multiply-adds, at the speed of memory.
    DepthwiseFilters,
    /// The same as `Depthwise` where windows move without gaps, on lines of the images in shared memory.
    DepthwiseLines,
    /// Single multiply-adds, full precision, for few rows: B passes through registers once.
    Gemv,
    /// No product: the accumulator is a matrix in memory.
    Pointwise,
    /// No product either: for epilogues that use the results of their rows' reductions. The threads that share a row
    /// hold it, or read it again for each stage.
    Rows,
    /// The same where reductions go over whole matrices or groups of their columns: the blocks of a cluster hold these in
    /// shared memory.
    Groups,
}

impl Mainloop {
    /// Those of products, convolutions and pointwise operations without reductions along rows, the best first.
    pub(in crate::plan) const BEST_FIRST: [Mainloop; 11] = [
        Mainloop::Attention,
        Mainloop::Gemv,
        Mainloop::DepthwiseLines,
        Mainloop::Depthwise,
        Mainloop::DepthwiseFilters,
        Mainloop::Bands,
        Mainloop::BandsFilters,
        Mainloop::Sm90a,
        Mainloop::Sm80,
        Mainloop::Simt,
        Mainloop::Pointwise,
    ];

    /// Those of pointwise operations whose epilogue uses the results of its rows' reductions, the best first.
    pub(in crate::plan) const OF_ROWS: [Mainloop; 2] = [Mainloop::Groups, Mainloop::Rows];

    /// The name, which is also that of its template.
    pub const fn name(self) -> &'static str {
        match self {
            Mainloop::Simt => "simt",
            Mainloop::Sm80 => "sm80",
            Mainloop::Sm90a => "sm90a",
            Mainloop::Attention => "attention",
            Mainloop::Bands => "bands",
            Mainloop::BandsFilters => "bands_filters",
            Mainloop::Depthwise => "depthwise",
            Mainloop::DepthwiseFilters => "depthwise_filters",
            Mainloop::DepthwiseLines => "depthwise_lines",
            Mainloop::Gemv => "gemv",
            Mainloop::Pointwise => "pointwise",
            Mainloop::Rows => "rows",
            Mainloop::Groups => "groups",
        }
    }
}

impl fmt::Display for Mainloop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
