//! The layout of a plan is consistent, for any epilogue, tile and shape: regions of shared memory, workspaces,
//! parameter blocks, grids. Each rule is stated here a second time, in hardware terms, and random plans are compared
//! with it.
//!
//! A plan also says what it may *not* do: compute elements twice, read ahead of earlier launches, fetch unaligned data.
//! Those properties go both ways, so a plan that never does any of it fails as well.

#[path = "../support/graphs.rs"]
mod graphs;
mod memory;
#[path = "../support/monoids.rs"]
mod monoids;
mod rights;
#[path = "../support/softcap.rs"]
mod softcap;

use graphs::{Style, well_typed};
use postlude::plan::{KernelPlan, Mainloop, Problem, Schedule, SharedRegion, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use proptest::prelude::*;
use proptest::sample::select;

/// An epilogue of everything, or of so little that it leaves shared memory to the product, or of operands in every
/// format and order.
fn epilogue() -> impl Strategy<Value = Epilogue> {
    let short = Style { steps: 6, stores: 2, ..Style::everything() };
    let plain = Style { reductions: false, operand_sums: false, ..short.clone() };
    let random = prop_oneof![1 => well_typed(Style::everything()), 1 => well_typed(short), 1 => well_typed(plain)];
    prop_oneof![random.prop_map(|graph| Epilogue::from_graph(graph).unwrap()), moved()]
}

/// An epilogue that computes little and moves much: matrices, masks and vectors in, matrices, masks and reductions out.
fn moved() -> impl Strategy<Value = Epilogue> {
    // Doubles would send all of them past Hopper's mainloop, which moves most.
    let formats: Vec<DType> = DType::ALL.into_iter().filter(|dtype| *dtype != F64 && !dtype.is_four_bits()).collect();
    let matrix = move || (select(formats.clone()), any::<bool>());
    let matrix = |most: usize| proptest::collection::vec(matrix(), 0..=most);
    let vectors = proptest::collection::vec((select(vec![F16, F32, Bool, I32]), select(vec![M, N, M | L, N | L])), 0..4);
    let reductions = proptest::collection::vec(
        (select(vec![Monoid::Sum, Monoid::Max, Monoid::LogSumExp]), select(vec![M, N, L, M | L, N | L]), any::<bool>()),
        0..3,
    );
    (matrix(3), matrix(2), matrix(2), vectors, reductions).prop_map(|(loads, mut stores, more, vectors, reductions)| {
        stores.extend(more);
        let order = |(dtype, by_rows): (DType, bool)| if by_rows { dtype.into() } else { dtype.column_major() };
        let build = |e: &Builder| {
            let mut z = e.acc();
            for (i, &load) in loads.iter().enumerate() {
                z += e.load(&format!("c{i}"), order(load)).cast(F32);
            }
            for (i, &(dtype, axes)) in vectors.iter().enumerate() {
                z += e.load(&format!("v{i}"), dtype.over(axes)).cast(F32);
            }
            for (i, &store) in stores.iter().enumerate() {
                let value = match store.0 {
                    Bool | Bits8 | Bits128 => z.gt(0.0),
                    I32 => z.cast(I32),
                    _ => z,
                };
                e.store(&format!("d{i}"), value, order(store));
            }
            for (i, &(monoid, axes, atomic)) in reductions.iter().enumerate() {
                let operand = F32.over(axes);
                let with = if atomic { monoid.atomic() } else { monoid.into() };
                e.reduce(&format!("r{i}"), z, with, operand);
            }
            if stores.is_empty() && reductions.is_empty() {
                e.store("d", z, F16);
            }
        };
        Epilogue::build(build).unwrap()
    })
}

/// An extent: whole tiles, a little more, a single element.
fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![select(vec![1, 16, 128, 192, 1000, 1536, 4096, 8192]), 1..3000usize]
}

/// A random request.
#[derive(Clone, Debug)]
pub struct Asked {
    epilogue: Epilogue,
    layout: Layout,
    shape: Shape,
    target: Target,
    multiprocessors: usize,
    constant: [bool; 2],
    programmatic: bool,
    lockstep: bool,
    /// Elements that rows of `a` and `b` are longer than they need to be.
    slack: [usize; 2],
    split: Option<usize>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let shape = ([extent(), extent(), extent()], select(vec![1usize, 1, 3]));
    let device = (select(vec![Target::SM_80, Target::SM_90A, Target::SM_90A]), select(vec![1usize, 7, 108, 132]));
    let wishes = (any::<[bool; 2]>(), any::<bool>(), any::<bool>(), select(vec![[0, 0], [0, 0], [1, 0], [0, 3], [4, 8]]));
    let split = select(vec![None, None, Some(1), Some(2)]);
    (epilogue(), select(Layout::ALL.to_vec()), shape, device, wishes, split).prop_map(
        |(epilogue, layout, ([m, n, k], batch), (target, multiprocessors), (constant, programmatic, lockstep, slack), split)| {
            Asked {
                epilogue,
                layout,
                shape: Shape::new(m, n, k).batched(batch),
                target,
                multiprocessors,
                constant,
                programmatic,
                lockstep,
                slack,
                split,
            }
        },
    )
}

impl Asked {
    /// The plan, if there is one.
    fn plan(&self) -> Option<KernelPlan> {
        let Shape { m, n, k, .. } = self.shape;
        let constant = Side::ALL.into_iter().zip(self.constant).filter_map(|(side, is)| is.then_some(side));
        let gemm = Gemm::new(F16, self.layout, &self.epilogue)
            .constant_operands(constant)
            .programmatic_launch(self.programmatic)
            .lockstep(self.lockstep);
        let gemm = self.split.map_or(gemm.clone(), |parts| gemm.split_k(parts));
        let run = |order, row, column| if order == Order::RowMajor { row } else { column };
        let mut problem = Problem::from(self.shape);
        for (name, least, slack) in [("a", run(self.layout.a(), k, m), 0), ("b", run(self.layout.b(), n, k), 1)] {
            problem = problem.ld(name, least + self.slack[slack]);
        }
        gemm.kernel_plan(self.target, self.multiprocessors, problem).ok()
    }
}

/// The plan, the kernel of its product, and both with every other tile that fits; each with the shape it sees.
fn every_plan(asked: &Asked) -> Vec<(KernelPlan, Shape)> {
    let Some(plan) = asked.plan() else { return Vec::new() };
    let mut plans = vec![(plan.clone(), asked.shape)];
    plans.extend(plan.earlier(asked.shape).into_iter().map(|(plan, shape)| (plan.clone(), shape)));
    let with_tiles = |(plan, shape): &(KernelPlan, Shape)| {
        let candidates: Vec<(Tile, i32)> = plan.choice.candidates().collect();
        let others = candidates.into_iter().map(|(tile, raster)| (plan.with_tile(tile, raster, "").unwrap(), *shape));
        others.collect::<Vec<_>>()
    };
    let others: Vec<_> = plans.iter().flat_map(with_tiles).collect();
    plans.extend(others);
    plans
}

/// The shape as the kernel sees it.
fn seen(plan: &KernelPlan, shape: Shape) -> Shape {
    if plan.transposed { Shape { m: shape.n, n: shape.m, ..shape } } else { shape }
}

/// Accumulators of a thread.
fn accumulators(tile: &Tile) -> usize {
    match tile.shape {
        TileShape::Sm90a { schedule: Schedule::Cooperative, consumers, .. } => tile.bm / consumers * tile.bn / 128,
        TileShape::Sm90a { .. } => tile.bm * tile.bn / 128,
        _ => tile.bm * tile.bn / tile.threads,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn memory_holds_everything_once(asked in asked()) {
        for (plan, shape) in every_plan(&asked) {
            memory::shared(&plan);
            memory::chunks(&plan);
            memory::workspace(&plan, shape);
            memory::parameters(&plan);
        }
    }

    #[test]
    fn a_plan_takes_its_rights_and_no_more(asked in asked()) {
        for (plan, shape) in every_plan(&asked) {
            rights::strip(&plan);
            rights::grid(&plan, shape);
            rights::shifted_edges(&plan);
            rights::early(&plan, &asked);
            rights::tensor_maps(&plan);
        }
    }

    /// Registers run out once in a while: each answer leaves more of them to a thread, and the answers end.
    #[test]
    fn whoever_lacks_registers_gets_more(asked in asked()) {
        let Some(mut plan) = asked.plan() else { return Ok(()) };
        let chunk = |plan: &KernelPlan| plan.staging.as_ref().map_or(0, |staging| staging.chunk);
        let (mut before, mut columns, mut steps) = (plan.tile, chunk(&plan), 0);
        while plan.relax() {
            let (held, blocks) = (accumulators(&plan.tile), plan.tile.min_blocks);
            let same = (plan.tile.bm, plan.tile.bn) == (before.bm, before.bn);
            let narrower = blocks == before.min_blocks && chunk(&plan) < columns;
            let fewer = held < accumulators(&before) || same && (blocks < before.min_blocks || narrower);
            prop_assert!(fewer, "{} after {before}", plan.tile);
            memory::shared(&plan);
            rights::strip(&plan);
            (before, columns, steps) = (plan.tile, chunk(&plan), steps + 1);
            prop_assert!(steps < 100);
        }
    }
}

/// The properties see all that they speak of: plans of every mainloop that random products reach, and every kind of region.
#[test]
fn random_plans_reach_every_region() {
    let mut reached = std::collections::BTreeSet::new();
    let mut note = |what: &'static str, seen: bool| {
        if seen {
            reached.insert(what);
        }
    };
    let strategy = asked();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..1000 {
        let asked = proptest::strategy::ValueTree::current(&strategy.new_tree(&mut runner).unwrap());
        let Some(plan) = asked.plan() else { continue };
        let earlier = plan.earlier(asked.shape).into_iter().map(|(plan, _)| plan);
        for plan in [&plan].into_iter().chain(earlier) {
            note("simt", plan.tile.mainloop() == Mainloop::Simt);
            note("sm80", plan.tile.mainloop() == Mainloop::Sm80);
            note("gemv", plan.tile.mainloop() == Mainloop::Gemv);
            note("split", plan.split.is_some());
            note("copied", plan.repack.is_some());
            note("shifted_edges", plan.shifted_edges);
            note("overlaps", plan.constant.contains(&true));
            note("workspace", plan.workspace(asked.shape).bytes > 256);
            let Some(staging) = &plan.staging else { continue };
            note("loads", !staging.loads.is_empty());
            note("loads without a map", staging.loads.iter().any(|load| load.map.is_none()));
            note("stores of rows", staging.stores.iter().any(|store| store.map.is_some()) && staging.store_rows == 16);
            note("stores of chunks", !staging.stores.is_empty() && staging.store_rows == 64);
            note("masks", !staging.bits.is_empty());
            note("vectors", !staging.vectors.is_empty());
            note("parts", staging.memory.of(SharedRegion::Parts).bytes > 0);
            note("sums", staging.memory.of(SharedRegion::Sums).bytes > 0);
            note("lanes", staging.direct_store);
            note("one ring", staging.chunk_rings == 1);
            note("blocks that share K", plan.tile.parts() > 1);
        }
    }
    let all = [
        "blocks that share K",
        "copied",
        "shifted_edges",
        "gemv",
        "lanes",
        "loads",
        "loads without a map",
        "masks",
        "one ring",
        "overlaps",
        "parts",
        "sm80",
        "split",
        "stores of chunks",
        "stores of rows",
        "sums",
        "vectors",
        "workspace",
    ];
    let missing: Vec<_> = all.into_iter().filter(|what| !reached.contains(what)).collect();
    assert!(missing.is_empty(), "no random plan had {missing:?}");
}
