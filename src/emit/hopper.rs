//! What the template of a Hopper kernel sees.

use super::Access;
use super::printer::Printer;
use super::wgmma::Wgmma;
use crate::plan::{FieldValue, KernelPlan, Staged, Staging, TensorMap};
use serde::Serialize;

/// A matrix that passes through shared memory.
#[derive(Serialize)]
struct StagedMatrix {
    #[serde(flatten)]
    access: Access,
    /// Bytes it takes there.
    bytes: usize,
    /// Its tensor map, and what that moves at a time.
    map: Option<String>,
    panel: Option<TensorMap>,
    /// Whether the map reaches all of it, in every launch.
    whole: bool,
}

/// A vector that passes through shared memory.
#[derive(Serialize)]
struct StagedVector {
    #[serde(flatten)]
    access: Access,
    /// Elements of a tile's slice.
    extent: usize,
    /// The axis it runs over, as the tile's origin has it, and the problem's extent along it.
    axis: &'static str,
    limit: &'static str,
}

/// The facts of a Hopper kernel. On others the lists are empty.
#[derive(Serialize)]
pub(super) struct Hopper {
    hopper: bool,
    /// What a Hopper kernel calls the columns that a block multiplies, and the blocks that fetch together.
    multiplied: &'static str,
    fetchers: &'static str,
    wgmma: Option<Wgmma>,
    staged_loads: Vec<StagedMatrix>,
    staged_stores: Vec<StagedMatrix>,
    staged_bits: Vec<StagedMatrix>,
    staged_vectors: Vec<StagedVector>,
    /// Whether a Hopper epilogue's code is for half of a tile's columns.
    split_epilogue: bool,
    /// Whether a Hopper consumer goes through a tile's chunks row by row.
    row_order: bool,
    /// Whether lanes move what a Hopper epilogue writes.
    direct_store: bool,
    /// Whether a Hopper tile's results leave under the next one's products.
    delayed_store: bool,
    /// Whether blocks wait for each other between tiles.
    lockstep: bool,
    /// Whether the last tiles end where the output does.
    shifted_edges: bool,
}

impl Hopper {
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Hopper {
        let program = &plan.program;
        let staged = |list: fn(&Staging) -> &Vec<Staged>| plan.staging.iter().flat_map(list);
        let written = |list: fn(&Staging) -> &Vec<Staged>| {
            staged(list).map(|s| matrix(plan, s, printer.store(s.of, &program.stores[s.of]))).collect()
        };
        Hopper {
            hopper: plan.staging.is_some(),
            multiplied: if plan.tile.parts() > 1 { "MULTIPLIED" } else { "BN" },
            fetchers: if plan.tile.parts() > 1 { "1" } else { "CLUSTER" },
            wgmma: plan.staging.is_some().then(|| Wgmma::of(plan)),
            staged_loads: staged(|s| &s.loads).map(|s| matrix(plan, s, printer.step_access(s.of))).collect(),
            staged_stores: written(|s| &s.stores),
            staged_bits: written(|s| &s.bits),
            staged_vectors: staged(|s| &s.vectors).map(|s| vector(printer.step_access(s.of), plan)).collect(),
            split_epilogue: program.splits_epilogue(plan.fast_math),
            row_order: plan.chunks_by_rows(),
            lockstep: plan.lockstep,
            shifted_edges: plan.shifted_edges,
            direct_store: plan.staging.as_ref().is_some_and(|s| s.direct_store),
            delayed_store: plan.staging.as_ref().is_some_and(|s| s.delayed_store),
        }
    }
}

fn matrix(plan: &KernelPlan, staged: &Staged, access: Access) -> StagedMatrix {
    let panel = staged.map.map(|m| plan.maps[m]);
    let whole = panel.is_some_and(|map| map.required);
    StagedMatrix { access, bytes: staged.bytes, map: staged.map.map(|m| FieldValue::Map(m).to_string()), panel, whole }
}

fn vector(access: Access, plan: &KernelPlan) -> StagedVector {
    let [axis, limit] = if access.rows { ["row", "m"] } else { ["column", "n"] };
    StagedVector { extent: if access.rows { plan.tile.bm } else { plan.tile.bn }, axis, limit, access }
}
