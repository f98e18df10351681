//! Plans: everything that decides a kernel, as plain data.
//!
//! [`KernelPlan::new`] turns a checked epilogue, an operation and a problem into a plan for one target, and `emit`
//! prints it. A plan holds no pointers. Extents enter only through decisions: tile order and scratch size. One kernel
//! serves every problem of its class (format, layout, alignment, tile). M, N, K, leading dimensions, addresses and
//! scalars are parameters of the launch.

mod choice;
mod choose;
mod code;
mod epilogue;
mod error;
mod explain;
mod kernel;
mod kernels;
mod launch;
mod mainloop;
mod passes;
mod planner;
mod preferences;
mod request;
mod rows;
mod split_k;
mod transposed;
mod verdict;

pub use crate::pass::Interim;
pub use choice::{Choice, UnknownTile};
pub use code::Code;
pub(crate) use epilogue::fixup::shares_fixup;
pub(crate) use epilogue::operand_sums::MOST_PARTS;
pub use epilogue::operand_sums::OperandSum;
pub use epilogue::program::{Instr, InstrKind, Phase, Program, Store};
pub(crate) use epilogue::reduce::{NOTE_BYTES, sets};
pub use epilogue::reduce::{Parts, PlannedCount, PlannedReduction, Unit};
pub use epilogue::scores::PlannedScores;
pub use epilogue::stage::{Item, RowReduce, Stage};
pub use epilogue::window::KeyBound;
pub use epilogue::workspace::Workspace;
pub use error::PlanError;
pub use kernel::{KernelPlan, SplitK};
pub use launch::attention::AttentionField;
pub use launch::maps::{MapSource, Swizzle, TMA_UNIT, TensorMap};
pub use launch::params::{Field, FieldType, FieldValue, LIMIT as PARAMETER_LIMIT, Params};
pub(crate) use launch::params::{has_entries, has_wide, lies_along_columns};
pub use launch::problem::{ArgumentRuns, Problem, Strides, alignment};
pub use launch::repack::{Repack, Widened};
pub use mainloop::name::Mainloop;
pub use mainloop::patches::PatchField;
#[cfg(feature = "cuda")]
pub(crate) use mainloop::patches::corners;
pub(crate) use mainloop::pool::constants as pool_constants;
pub use mainloop::sm90a::cost_model::CostModel;
pub use mainloop::sm90a::l2::{Priorities, Priority};
pub(crate) use mainloop::sm90a::operand_maps::passes_registers;
pub use mainloop::sm90a::smem::{Extent, SharedLayout, SharedRegion};
pub use mainloop::sm90a::staging::{CHUNK_ROWS, Staged, Staging};
pub(crate) use mainloop::sm90a::widened::{self, panel_terms};
pub use mainloop::tile::{Schedule, Tile, TileShape};
pub use passes::{InterimLayout, Pass, Passes, Place};
pub use preferences::{Math, Preferences};
pub use verdict::{Considered, Reason, Verdict};
