//! Memory layout: nothing overlaps, everything fits, and alignment meets the hardware's needs.

use crate::seen;
use postlude::Operation;
use postlude::dtype::ValueType;
use postlude::ir::Side;
use postlude::ir::axes::{Axes, L, M, N};
use postlude::plan::SharedRegion::{Barriers, Bits, Loads, Partials, Parts, Stores, Sums, Vectors};
use postlude::plan::{FieldValue, InstrKind, KernelPlan, PARAMETER_LIMIT, Phase, Program, Schedule, Staged, Swizzle, TileShape};
use postlude::prelude::*;

/// Bytes from `at` on, under a name.
struct Region {
    name: String,
    at: usize,
    bytes: usize,
}

fn region(name: impl Into<String>, at: usize, bytes: usize) -> Region {
    Region { name: name.into(), at, bytes }
}

/// Regions overlap nowhere and end within `end`.
fn disjoint(mut regions: Vec<Region>, end: usize, context: &dyn Fn() -> String) {
    regions.retain(|region| region.bytes > 0);
    regions.sort_by_key(|region| region.at);
    for pair in regions.windows(2) {
        let [first, second] = pair else { continue };
        assert!(first.at + first.bytes <= second.at, "{} runs into {}\n{}", first.name, second.name, context());
    }
    if let Some(last) = regions.last() {
        assert!(last.at + last.bytes <= end, "{} ends at {} of {end}\n{}", last.name, last.at + last.bytes, context());
    }
}

fn consumers(plan: &KernelPlan) -> usize {
    if let TileShape::Sm90a { consumers, .. } = plan.tile.shape { consumers } else { 1 }
}

/// The regions of a block's shared memory.
pub fn shared(plan: &KernelPlan) {
    let limit = plan.target.shared_memory_per_block_opt_in() as usize;
    assert!(plan.shared_memory() <= limit, "{}", plan.explain());
    let (Some(s), TileShape::Sm90a { bk, stages, consumers, .. }) = (&plan.staging, plan.tile.shape) else { return };
    let Operation::Product { a: dtype, layout, .. } = plan.operation else { panic!("{}", plan.explain()) };
    // If N is contiguous, B comes in panels of 64 columns.
    let multiplied = plan.tile.bn * plan.tile.parts();
    let columns = if layout.b() == Order::RowMajor { multiplied.next_multiple_of(64) } else { multiplied };
    let stage = (plan.tile.bm + columns) * bk * dtype.size();
    let (load_chunks, store_chunks) = (s.chunk_rings * s.load_stages, s.chunk_rings * s.store_buffers);
    // The barriers, as the template counts them: two sides of everything that is filled and emptied.
    let shared_place = if s.chunk_rings < consumers { 2 } else { 0 };
    // Totals are published without the producer's help.
    let published = !plan.program.reductions.is_empty() && !only_totals(&plan.program);
    let of_reductions = if published { 2 * consumers } else { 0 };
    let bytes = |region| s.memory.of(region).bytes;
    let at = |region| s.memory.of(region).at;
    let of_sums = if bytes(Sums) > 0 { 4 } else { 0 };
    let of_delayed = if s.delayed_store { 2 * consumers * s.store_buffers } else { 0 };
    let of_partials = if plan.tile.parts() > 1 { 2 * consumers } else { 0 };
    let (turns, of_vectors) = (2, 4);
    let barriers =
        2 * stages + turns + of_vectors + 2 * load_chunks + shared_place + of_reductions + of_sums + of_delayed + of_partials;
    // Vectors and sums of operands are of two tiles: one is filled while the other is read.
    let regions = vec![
        region("stages", 0, stages * stage),
        region("stores", at(Stores), store_chunks * bytes(Stores)),
        region("loads", at(Loads), load_chunks * bytes(Loads)),
        region("vectors", at(Vectors), 2 * bytes(Vectors)),
        region("masks", at(Bits), consumers * bytes(Bits)),
        region("parts of reductions", at(Parts), consumers * bytes(Parts)),
        region("sums of operands", at(Sums), 2 * bytes(Sums)),
        region("sums of other blocks", at(Partials), consumers * bytes(Partials)),
        region("barriers", at(Barriers), 8 * barriers),
    ];
    // Of every element that a consumer finishes a sum from each of the other blocks.
    assert_eq!(bytes(Partials), (plan.tile.parts() - 1) * s.rows * plan.tile.bn * 4, "{s:?}");
    assert!(bytes(Partials) == 0 || at(Partials).is_multiple_of(16), "sums come by 16 bytes: {s:?}");
    disjoint(regions, s.memory.end(), &|| format!("{s:?}\n{}", plan.explain()));
    assert_eq!((at(Stores), at(Barriers) + 8 * barriers), (stages * stage, s.memory.end()), "what the template asserts");
    assert!(stages >= 2 && s.store_buffers >= 1 && (s.chunk_rings == consumers || s.chunk_rings == 1));
    assert!(s.loads.is_empty() || s.load_stages >= 1, "a load without a place");
    for (at, to) in [(at(Vectors), 16), (at(Bits), 16), (at(Parts), 16), (at(Sums), 4), (at(Barriers), 8), (bytes(Vectors), 16)] {
        assert!(at.is_multiple_of(to), "{at} by {to}: {s:?}");
    }
}

/// The places of pieces within the bytes that all of a kind have.
fn pieces(what: &str, staged: &[Staged], bytes: usize, plan: &KernelPlan) {
    let regions = staged.iter().map(|piece| region(format!("{what} {}", piece.of), piece.at, piece.bytes)).collect();
    disjoint(regions, bytes, &|| format!("{staged:?}\n{}", plan.explain()));
}

/// The staged operands: every operand once, in chunks and slices of its size, at addresses that tensor maps allow.
pub fn chunks(plan: &KernelPlan) {
    let Some(s) = &plan.staging else { return };
    let (rows, program) = (s.rows, &plan.program);
    let turns = matches!(plan.tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. });
    assert_eq!(rows, if turns { plan.tile.bm } else { plan.tile.bm / consumers(plan) });
    assert!(plan.tile.bn.is_multiple_of(s.chunk) && s.chunk.is_multiple_of(4 * s.strip) && s.strip >= 1, "{s:?}");
    assert!(s.store_rows == 16 || s.store_rows == 64);

    let loads_of = |phases: &[Phase]| {
        let loads = program.steps.iter().enumerate().filter_map(|(of, step)| match step.kind {
            InstrKind::Load { operand, argument } if phases.contains(&step.phase) => Some((of, operand, argument)),
            _ => None,
        });
        loads.collect::<Vec<_>>()
    };
    let is_along = |operand: Operand| operand.order == Order::RowMajor;
    // A line of a chunk lies along the contiguous axis; those of masks are whole bytes.
    let chunk_bytes = |operand: Operand| {
        let (lines, elements) = if is_along(operand) { (64, s.chunk) } else { (s.chunk, 64) };
        lines * operand.dtype.bytes(elements)
    };
    let mut matrices = Vec::new();
    let loads = loads_of(&[Phase::Visit]);
    assert_eq!(s.loads.iter().map(|load| load.of).collect::<Vec<_>>(), loads.iter().map(|load| load.0).collect::<Vec<_>>());
    matrices.extend(
        s.loads
            .iter()
            .zip(loads)
            .map(|(load, (_, operand, argument))| (load, operand, argument, 64, s.memory.of(Loads).at, s.memory.of(Loads).bytes)),
    );
    for store in &s.stores {
        let stored = &program.stores[store.of];
        matrices.push((store, stored.operand, stored.argument, s.store_rows, s.memory.of(Stores).at, s.memory.of(Stores).bytes));
    }
    let (packed, whole): (Vec<usize>, Vec<usize>) =
        (0..program.stores.len()).partition(|i| program.stores[*i].operand.dtype.is_packed());
    assert_eq!(s.stores.iter().map(|store| store.of).collect::<Vec<_>>(), whole);
    assert_eq!(s.bits.iter().map(|bits| bits.of).collect::<Vec<_>>(), packed);

    for (staged, operand, argument, store_rows, region_at, stride) in matrices {
        assert_eq!(staged.bytes, chunk_bytes(operand), "{staged:?}");
        if operand.dtype.is_packed() {
            assert!(staged.map.is_none() && staged.at.is_multiple_of(16));
            continue;
        }
        // Swizzles count from multiples of 1024 bytes, with a map or without, in every chunk of the ring.
        assert!([staged.at, region_at, stride].iter().all(|at| at.is_multiple_of(1024)), "{staged:?} of {s:?}");
        let Some(map) = staged.map.map(|map| plan.maps[map]) else { continue };
        assert_eq!((map.source, map.dtype), (postlude::plan::MapSource::Argument(argument), operand.dtype));
        let inner = map.box_inner * operand.dtype.size();
        let line = staged.bytes / if is_along(operand) { 64 } else { s.chunk };
        assert!(line.is_multiple_of(inner) && inner.is_multiple_of(16), "whole boxes make a line: {map:?}");
        assert_eq!(
            map.box_outer,
            if is_along(operand) { store_rows } else { s.chunk },
            "rows that move together: {map:?} of {s:?}"
        );
        assert!(map.box_inner <= 256 && map.box_outer <= 256);
        let width = match map.swizzle {
            Swizzle::None => 0,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        };
        assert_eq!(width, if [32, 64, 128].contains(&inner) { inner } else { 0 }, "{map:?}");
    }
    for (step, operand, _) in loads_of(&[Phase::Row, Phase::Column]) {
        let vector = s.vectors.iter().find(|vector| vector.of == step).unwrap();
        let extent = if operand.axes.contains(M) { plan.tile.bm } else { plan.tile.bn };
        assert!(vector.bytes == extent * operand.dtype.size() && vector.at.is_multiple_of(16), "{vector:?}");
    }
    assert!(s.bits.iter().all(|mask| mask.bytes == rows * plan.tile.bn / 8));
    pieces("load", &s.loads, s.memory.of(Loads).bytes, plan);
    pieces("store", &s.stores, s.memory.of(Stores).bytes, plan);
    pieces("mask", &s.bits, s.memory.of(Bits).bytes, plan);
    pieces("vector", &s.vectors, s.memory.of(Vectors).bytes, plan);
    assert_eq!(s.memory.of(Parts).bytes, plan.parts().bytes);
}

/// Whether results with one element are all that is published.
fn only_totals(program: &Program) -> bool {
    program.sums.is_empty() && program.reductions.iter().all(|reduction| reduction.operand.axes == Axes::NONE)
}

/// Slices and counters: a slice for each unit that shares a block of a result, a counter for each block, and none of them twice.
pub fn workspace(plan: &KernelPlan, asked: Shape) {
    let (workspace, program) = (plan.workspace(asked), &plan.program);
    let shape = seen(plan, asked);
    let rows = plan.staging.as_ref().map_or(plan.tile.bm, |s| s.rows);
    let along = [(M, shape.m.div_ceil(rows), rows), (N, shape.n.div_ceil(plan.tile.bn), plan.tile.bn), (L, shape.batch, 1)];
    // On Hopper each consumer of each block has a slice of a total, however many tiles it goes through.
    let consumers = match plan.tile.shape {
        TileShape::Sm90a { consumers, .. } => Some(consumers * plan.grid(asked).map_or(0, |[blocks, ..]| blocks as usize)),
        _ => None,
    };
    let total = |_: Axes| consumers.filter(|_| only_totals(program));
    let of = |axes: Axes| {
        if let Some(slices) = total(axes) {
            return (1, slices, 1);
        }
        along.iter().fold((1, 1, 1), |(blocks, slices, elements), (axis, count, extent)| {
            if axes.contains(*axis) { (blocks * count, slices, elements * extent) } else { (blocks, slices * count, elements) }
        })
    };
    let mut regions = vec![region("progress", 0, if plan.lockstep { 256 } else { 0 })];
    let mut sets: Vec<Axes> = Vec::new();
    for (i, reduction) in program.reductions.iter().enumerate() {
        let axes = reduction.operand.axes;
        let (blocks, slices, elements) = of(axes);
        if !sets.contains(&axes) {
            // Units that share a fix-up also count its pieces, and who has left.
            let each = if plan.helpers > 0 && axes.without(L) == N { 12 } else { 4 };
            let counters = || region(format!("counters of {axes:?}"), workspace.arrivals[sets.len()], each * blocks);
            regions.extend((slices > 1 || total(axes).is_some()).then(counters));
            sets.push(axes);
        }
        let added = reduction.atomic && total(axes).is_none() && reduction.monoid.adds() && reduction.value != ValueType::F64;
        let bytes = if added { 1 } else { slices } * blocks * elements * 4 * reduction.monoid.words(reduction.value);
        let slices_of = || region(format!("slices of reduction {i}"), workspace.partials[i], bytes);
        regions.extend((slices > 1 || total(axes).is_some()).then(slices_of));
    }
    for (i, sum) in program.sums.iter().enumerate() {
        let (along, across, extent) = match sum.side {
            Side::A => (shape.m.div_ceil(plan.tile.bm), shape.n.div_ceil(plan.tile.bn), plan.tile.bm),
            Side::B => (shape.n.div_ceil(plan.tile.bn), shape.m.div_ceil(plan.tile.bm), plan.tile.bn),
        };
        let (entries, together) = if sum.operand.axes.contains(L) { (shape.batch, 1) } else { (1, shape.batch) };
        let (blocks, slices) = (along * entries, across.min(16) * together);
        let (arrivals, partials) = (workspace.arrivals[sets.len() + i], workspace.partials[program.reductions.len() + i]);
        regions.extend((slices > 1).then(|| region(format!("counters of sum {i}"), arrivals, 4 * blocks)));
        regions.extend((slices > 1).then(|| region(format!("slices of sum {i}"), partials, 4 * slices * blocks * extent)));
    }
    assert_eq!(workspace.arrivals.len(), sets.len() + program.sums.len());
    assert_eq!(workspace.partials.len(), program.reductions.len() + program.sums.len());
    assert!(regions.iter().all(|region| region.at.is_multiple_of(16)));
    disjoint(regions, workspace.bytes, &|| format!("{workspace:?} for {shape}\n{}", plan.explain()));
}

/// The parameter block: fields aligned as the compiler has them, one behind the other, and one for each thing that a
/// kernel asks for.
pub fn parameters(plan: &KernelPlan) {
    let params = &plan.params;
    for field in &params.fields {
        let map = matches!(field.value, FieldValue::Map(_));
        let alignment = if map { 64 } else { field.field_type.size() };
        assert!(field.offset.is_multiple_of(alignment), "{field:?}");
    }
    let regions = params.fields.iter().map(|field| region(field.value.to_string(), field.offset, field.field_type.size()));
    disjoint(regions.collect(), params.size, &|| plan.explain());
    assert!(params.size <= PARAMETER_LIMIT && params.size.is_multiple_of(if plan.maps.is_empty() { 8 } else { 64 }));
    let has = |value: FieldValue| params.fields.iter().filter(|field| field.value == value).count();
    for value in [FieldValue::M, FieldValue::N, FieldValue::K, FieldValue::Batch, FieldValue::Raster] {
        assert_eq!(has(value), 1, "{value}");
    }
    for (i, argument) in plan.arguments.iter().enumerate() {
        // Folding may leave an argument without a use; whatever is written is used.
        let count = has(FieldValue::Pointer(i)) + has(FieldValue::Scalar(i));
        assert!(count == 1 || count == 0 && !argument.role.is_written(), "{argument:?}");
    }
    assert_eq!(has(FieldValue::EdgeRow) + has(FieldValue::EdgeColumn), if plan.shifted_edges { 2 } else { 0 });
    assert_eq!(has(FieldValue::Progress), usize::from(plan.lockstep));
    assert_eq!(params.fields.iter().filter(|field| matches!(field.value, FieldValue::Map(_))).count(), plan.maps.len());
    assert!((0..plan.maps.len()).all(|i| has(FieldValue::Map(i)) == 1 && has(FieldValue::Mapped(i)) == 1));
}
