//! Whatever a plan accepts compiles: random graphs for every generation of GPU, through the real compiler.
//!
//! `POSTLUDE_COMPILE_TIMES` names a file, to which each compilation appends a line: the kernel's target, mainloop,
//! operation, tile, split and halves; steps, loads, stores, reductions, words of their states, operand sums; instructions
//! estimated and found; milliseconds estimated and taken. Without NVRTC these tests say that they are skipped; with
//! `POSTLUDE_REQUIRE_NVRTC=1` they fail instead.
#![allow(missing_docs, reason = "a test binary")]

#[path = "support/compiler.rs"]
mod compiler;
#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/problems.rs"]
mod problems;
#[path = "support/sass.rs"]
#[allow(dead_code, reason = "each test crate uses its part")]
mod sass;
#[path = "support/softcap.rs"]
mod softcap;

use compiler::nvrtc;
use graphs::{Style, well_typed};
use postlude::ir::Graph;
use postlude::jit::{Cache, Options};
use postlude::plan::{Code, InstrKind, KernelPlan, Math, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use problems::{Problem, problem};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::io::Write as _;
use std::time::{Duration, Instant};

const TARGETS: [Target; 5] = [Target::SM_75, Target::SM_80, Target::SM_89, Target::SM_90, Target::SM_90A];

fn request(style: Style, integer: bool) -> impl Strategy<Value = (Graph, Problem)> {
    (well_typed(if integer { style.integer() } else { style }), problem(integer))
}

/// This thread's processor time, if the system reports it; otherwise the elapsed time, which other work lengthens.
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|line| line.split(' ').next()?.parse().ok());
    spent.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Compiles a plan's own kernel, and returns the time.
fn compiles(plan: &KernelPlan) -> Result<(), TestCaseError> {
    let compile = |plan: &KernelPlan| {
        let source = plan.source().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let start = processor_time();
        let cubin = Cache::in_memory().compile(&source, &plan.target, &Options::new());
        Ok::<_, TestCaseError>((cubin, processor_time().saturating_sub(start).as_millis()))
    };
    let mut plan = plan.clone();
    let (cubin, took) = loop {
        match compile(&plan)? {
            (Err(error), _) if error.ran_out_of_registers() && (plan.roll() || plan.relax()) => {}
            compiled => break compiled,
        }
    };
    let cubin = cubin.map_err(|error| TestCaseError::fail(format!("{error}\n{}", plan.explain())))?;
    let Code { instructions, .. } = plan.code;
    let bytes = sass::code_bytes(&cubin.bytes).unwrap_or_default();
    // The estimate may be too high; its shortfall is bounded. Rows that are held have their code twice, and for each stage.
    let times = if matches!(plan.tile.shape, TileShape::Rows { .. }) { 12 } else { 3 };
    prop_assert!(bytes / 16 < LEAST + times * instructions, "{} instructions\n{}", bytes / 16, plan.explain());
    if let Some(file) = std::env::var_os("POSTLUDE_COMPILE_TIMES") {
        let (target, mainloop) = (plan.target, plan.tile.mainloop());
        let estimate = plan.compile_time().as_secs_f64() * 1e3;
        let program = &plan.program;
        let loads = program.steps.iter().filter(|step| matches!(step.kind, InstrKind::Load { .. })).count();
        let words: usize = program.reductions.iter().map(|reduction| reduction.monoid.words(reduction.value)).sum();
        let counts = [program.steps.len(), loads, program.stores.len(), program.reductions.len(), words, program.sums.len()];
        let counts = counts.map(|count| count.to_string()).join(",");
        let (split, split_epilogue) = (plan.split.is_some(), program.splits_epilogue(plan.fast_math));
        let line = format!(
            "{target},{mainloop},{},{},{split},{split_epilogue},{counts},{instructions},{},{estimate:.0},{took}\n",
            plan.operation.to_string().replace(", ", " "),
            plan.tile.to_string().replace(", ", " "),
            bytes / 16
        );
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("a file to write times to");
        file.write_all(line.as_bytes()).expect("a file that can be written");
    }
    Ok(())
}

/// Instructions of a kernel besides its epilogue's values: mainloop, stores, reductions of every kind.
const LEAST: usize = 20_000;

/// How many cases, unless the environment says.
const CASES: u32 = 16;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES),
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 64,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_plan_accepts_compiles(
        (graph, problem) in prop_oneof![
            4 => request(Style::everything(), false),
            1 => request(Style::everything(), true),
            2 => request(Style { steps: 150, stores: 8, ..Style::everything() }, false),
            2 => request(Style { inner: Some(N.into()), ..Style::everything() }, false),
            1 => request(Style { inner: Some(M.into()), operand_sums: false, ..Style::everything() }, false),
            1 => request(Style { inner: Some((M | N).into()), operand_sums: false, ..Style::everything() }, false),
            1 => request(Style { inner: Some(N.bands(32)), operand_sums: false, ..Style::everything() }, false),
            1 => request(Style { inner: Some((M | N).bands(8)), operand_sums: false, ..Style::everything() }, false),
            1 => request(Style { inner: Some(N.into()), operand_sums: false, ..Style::everything() }, true),
            1 => request(Style { inner: Some((M | N).into()), operand_sums: false, ..Style::everything() }, true),
        ],
        target in select(TARGETS.to_vec()),
        math in select(vec![Math::Exact, Math::Fast]),
        tile in prop_oneof![Just(None), any::<Index>().prop_map(Some)],
    ) {
        if nvrtc() {
            let epilogue = Epilogue::from_graph(graph).expect("a well-typed graph");
            let gemm = problem.gemm(&epilogue).math(math);
            let Ok(mut plan) = gemm.kernel_plan(target, 108, problem.shape) else { return Ok(()) };
            // What autotuning would try.
            let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
            if let Some(index) = tile.filter(|_| !tiles.is_empty())
                && let Ok(other) = gemm.tile(*index.get(&tiles)).kernel_plan(target, 108, problem.shape)
            {
                plan = other;
            }
            for (plan, _) in plan.earlier(problem.shape) {
                compiles(plan)?;
            }
            compiles(&plan)?;
        }
    }
}
