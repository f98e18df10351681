//! The rights of a plan, exactly where it has them: wide accesses, overlapping tiles, reads ahead of earlier launches,
//! tensor maps.

use crate::{Asked, seen};
use postlude::Operation;
use postlude::check::Role;
use postlude::ir::axes::Axes;
use postlude::plan::{InstrKind, KernelPlan, Mainloop, MapSource, PlannedReduction, TileShape};
use postlude::prelude::*;

/// The strip of a visit is the one of its tile: aligned for every matrix along it, and whole within the tile.
pub fn strip(plan: &KernelPlan) {
    let strip = plan.strip;
    assert!(strip.is_power_of_two() || plan.staging.is_some());
    assert!(plan.tile.bn.is_multiple_of(strip), "{strip} of {}", plan.tile);
    match &plan.staging {
        Some(staging) => {
            assert_eq!((strip, &plan.maps), (staging.strip, &staging.maps), "another tile has its own: {}", plan.tile)
        }
        None => {
            let lies_along = |operand: &Operand| operand.axes.is_matrix() && operand.order == Order::RowMajor;
            let matrices = plan.arguments.iter().zip(&plan.argument_runs).filter_map(|(argument, runs)| {
                argument
                    .role
                    .operand()
                    .filter(lies_along)
                    .filter(|o| !o.dtype.is_packed())
                    .map(|operand| (operand.dtype.size(), runs.alignment))
            });
            let matrices: Vec<_> = matrices.collect();
            // A lane moves at least a word, if need be in pieces.
            let words = matrices.iter().map(|(size, _)| *size).min().map_or(1, |narrowest| 4 / narrowest.min(4));
            let aligned = matrices.iter().all(|(size, alignment)| alignment % (size * strip).min(16) == 0);
            assert!(aligned || strip <= words, "{strip} columns of {matrices:?}");
        }
    }
    assert_eq!(plan.staging.is_some(), plan.tile.mainloop() == Mainloop::Sm90a);
}

/// A grid is within the device's count and, if blocks are persistent, within the device's size.
pub fn grid(plan: &KernelPlan, shape: Shape) {
    let [x, y, z] = plan.grid(shape).unwrap().map(|blocks| blocks as usize);
    let shape = seen(plan, shape);
    assert!(x <= i32::MAX as usize && y <= 65_535 && z <= 65_535 && x >= 1);
    let (rows, columns) = (shape.m.div_ceil(plan.tile.bm), shape.n.div_ceil(plan.tile.bn));
    if let TileShape::Sm90a { cluster: [m, n], .. } = plan.tile.shape {
        let clusters = rows.div_ceil(m) * columns.div_ceil(n) * shape.batch;
        // A cluster runs also on a device that is smaller than one.
        assert!(
            x <= plan.gpu.multiprocessors.max(m * n),
            "{x} blocks on {} multiprocessors: {}",
            plan.gpu.multiprocessors,
            plan.tile
        );
        assert!(x.is_multiple_of(m * n) && x / (m * n) <= clusters && (y, z) == (1, 1));
        // Clusters of four do not reach every multiprocessor of a group of them.
        let reached = if m * n > 2 { plan.gpu.multiprocessors * 10 / 11 } else { plan.gpu.multiprocessors };
        assert_eq!(x / (m * n), clusters.min((reached / (m * n)).max(1)), "nobody is idle for nothing");
    } else {
        assert_eq!(x, rows * columns * plan.tile.cluster());
        assert!(y * z >= shape.batch && (y - 1) * z < shape.batch);
    }
}

/// Elements are computed twice exactly where nothing counts them but a largest one of all, nothing has changed their operands,
/// and they share no byte.
pub fn shifted_edges(plan: &KernelPlan) {
    let operands = plan.arguments.iter().filter_map(|argument| argument.role.operand());
    let shared_bytes = operands.filter(|operand| operand.axes.is_matrix()).any(|operand| operand.dtype.is_packed());
    let updated = plan.arguments.iter().any(|argument| matches!(argument.role, Role::Update(_)));
    let largest = [Monoid::Max, Monoid::Min, Monoid::AbsMax, Monoid::ArgMax, Monoid::ArgMin];
    let total = |reduce: &PlannedReduction| reduce.operand.axes == Axes::NONE && largest.contains(&reduce.monoid);
    let counted = !plan.program.reductions.iter().all(total) || !plan.program.sums.is_empty() || !plan.program.counts.is_empty();
    let may = plan.tile.mainloop() == Mainloop::Sm90a && !shared_bytes && !updated && !counted;
    assert_eq!(plan.shifted_edges, may, "{}", plan.explain());
}

/// Reads before the end of earlier launches cover only operands that were declared constant, and never a copy that a
/// launch makes itself.
pub fn early(plan: &KernelPlan, asked: &Asked) {
    let copied = plan.repack.map_or([false; 2], |repack| repack.operands);
    let hopper = plan.tile.mainloop() == Mainloop::Sm90a;
    assert_eq!(copied, plan.alignment.map(|bytes| hopper && bytes < 16), "TMA reads rows of whole 16 bytes");
    let multiplies = matches!(plan.operation, Operation::Product { .. });
    let said = if plan.transposed { [asked.constant[1], asked.constant[0]] } else { asked.constant };
    for side in [0, 1] {
        let constant = multiplies && said[side] && !copied[side];
        assert_eq!(plan.constant[side], constant, "operand {side}: {}", plan.explain());
    }
    let able = plan.target.has_programmatic_launches();
    assert_eq!(plan.programmatic, asked.programmatic && able && plan.repack.is_none(), "{}", plan.explain());
    assert!(!plan.lockstep || hopper);
    // What comes into the cache without that is the longer operand.
    let seen = seen(plan, asked.shape);
    let longer = usize::from(seen.m < seen.n);
    assert!(
        plan.weights.is_none_or(|operand| hopper && operand == longer && plan.constant == [false; 2] && plan.repack.is_none())
    );
}

/// A tensor map describes a matrix that is aligned to 16 bytes. A kernel needs the map if it has no other path.
pub fn tensor_maps(plan: &KernelPlan) {
    let Some(staging) = &plan.staging else {
        assert!(plan.maps.is_empty());
        return;
    };
    let TileShape::Sm90a { cluster: [m, n], .. } = plan.tile.shape else { panic!("{}", plan.tile) };
    let Operation::Product { layout, .. } = plan.operation else { panic!("{}", plan.explain()) };
    let k_major = [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor];
    // Blocks of a cluster along N have the same rows of A, and each fetches its share of them; but those that share K
    // have other terms.
    let parts = plan.tile.parts();
    let [m, n] = if parts > 1 { [1, 1] } else { [m, n] };
    for (i, (extent, shared)) in [(plan.tile.bm, n), (plan.tile.bn * parts, m)].into_iter().enumerate() {
        let map = plan.maps[i];
        assert!(map.source == MapSource::Operand(i) && map.required && map.box_inner * map.dtype.size() == 128);
        assert_eq!(map.box_outer, if k_major[i] { extent } else { 64 } / shared);
    }
    let argument = |step: usize| match plan.program.steps[step].kind {
        InstrKind::Load { argument, .. } => argument,
        _ => panic!("step {step} loads nothing"),
    };
    for load in &staging.loads {
        let runs = plan.argument_runs[argument(load.of)];
        assert!(load.map.is_none() || runs.alignment >= 16);
        assert!(load.map.is_none_or(|map| plan.maps[map].required), "a load has one way");
    }
    for store in &staging.stores {
        let runs = plan.argument_runs[plan.program.stores[store.of].argument];
        assert!(store.map.is_none() || runs.alignment >= 16 && !staging.direct_store);
        assert!(store.map.is_none_or(|map| plan.maps[map].required == runs.whole), "what is not whole has another way");
    }
    if staging.delayed_store || staging.direct_store {
        assert!(staging.loads.is_empty());
        let moved = |store: &postlude::plan::Staged| {
            let store = &plan.program.stores[store.of];
            let runs = plan.argument_runs[store.argument];
            store.operand.order == Order::RowMajor && runs.alignment >= 16 && runs.whole
        };
        assert!(staging.stores.iter().all(moved), "only whole pieces leave so");
    }
    // Code for half of the columns runs twice, and would cost the registers that reductions keep from column to column.
    assert!(!plan.program.splits_epilogue(plan.fast_math) || plan.program.reductions.is_empty());
}
