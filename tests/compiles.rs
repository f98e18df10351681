//! Whatever a plan accepts compiles: random graphs for every generation of GPU, through the real compiler. And how near the
//! estimates of compile times are (`docs/jit_cache.md`):
//!
//! ```sh
//! POSTLUDE_COMPILE_SECONDS=280 cargo test --release --test compiles -- --ignored --nocapture estimates
//! ```
//!
//! `POSTLUDE_COMPILE_SEED` is the first seed, `POSTLUDE_COMPILE_THREADS` the number of threads, and
//! `POSTLUDE_COMPILE_MAINLOOP` a mainloop, if only its kernels count. `POSTLUDE_COMPILE_TIMES` names a file to which each
//! kernel appends a line of JSON. Without NVRTC these tests say that they are skipped; with `POSTLUDE_REQUIRE_NVRTC=1` they
//! fail instead.
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
use postlude::ir::{Graph, Over};
use postlude::jit::{Cache, Options};
use postlude::plan::{KernelPlan, Math, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use problems::{Problem, problem};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZero;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TARGETS: [Target; 5] = [Target::SM_75, Target::SM_80, Target::SM_89, Target::SM_90, Target::SM_90A];

/// What a planner is asked at random.
#[derive(Clone, Debug)]
struct Case {
    graph: Graph,
    problem: Problem,
    target: Target,
    math: Math,
    /// The candidate tile to take instead of the first choice.
    tile: Option<Index>,
}

fn case() -> impl Strategy<Value = Case> {
    let of = |style: Style, integer: bool| (well_typed(if integer { style.integer() } else { style }), problem(integer)).boxed();
    let inner = |over: Over| Style { inner: Some(over), ..Style::everything() };
    let alone = |over: Over| Style { operand_sums: false, ..inner(over) };
    let requests = prop_oneof![
        4 => of(Style::everything(), false),
        1 => of(Style::everything(), true),
        2 => of(Style { steps: 150, stores: 8, ..Style::everything() }, false),
        2 => of(inner(N.into()), false),
        1 => of(alone(M.into()), false),
        1 => of(alone((M | N).into()), false),
        1 => of(alone(N.bands(32)), false),
        1 => of(alone((M | N).bands(8)), false),
        1 => of(alone(N.into()), true),
        1 => of(alone((M | N).into()), true),
    ];
    let tile = prop_oneof![Just(None), any::<Index>().prop_map(Some)];
    let all = (requests, select(TARGETS.to_vec()), select(vec![Math::Exact, Math::Fast]), tile);
    all.prop_map(|((graph, problem), target, math, tile)| Case { graph, problem, target, math, tile })
}

impl Case {
    /// The kernels of the plan, in the order in which they run. There are none if the planner refuses.
    fn kernels(self) -> Vec<KernelPlan> {
        let Case { graph, problem, target, math, tile } = self;
        let epilogue = Epilogue::from_graph(graph).expect("a well-typed graph");
        let gemm = problem.gemm(&epilogue).math(math);
        let Ok(mut plan) = gemm.kernel_plan(target, 108, problem.shape) else { return Vec::new() };
        // What autotuning would try.
        let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
        if let Some(index) = tile.filter(|_| !tiles.is_empty())
            && let Ok(other) = gemm.tile(*index.get(&tiles)).kernel_plan(target, 108, problem.shape)
        {
            plan = other;
        }
        plan.earlier(problem.shape).into_iter().map(|(plan, _)| plan).chain([&plan]).cloned().collect()
    }
}

/// This thread's processor time, if the system reports it; otherwise the elapsed time, which other work lengthens.
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|line| line.split(' ').next()?.parse().ok());
    spent.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// A kernel that was compiled: its plan, as it was compiled in the end, and the instructions and seconds that it took.
struct Compiled {
    plan: KernelPlan,
    instructions: usize,
    seconds: f64,
}

impl Compiled {
    fn of(plan: &KernelPlan) -> Result<Compiled, String> {
        let mut plan = plan.clone();
        loop {
            let source = plan.source().map_err(|error| error.to_string())?;
            let start = processor_time();
            let cubin = Cache::in_memory().compile(&source, &plan.target, &Options::new());
            let seconds = processor_time().saturating_sub(start).as_secs_f64();
            match cubin {
                Ok(cubin) => {
                    let instructions = sass::code_bytes(&cubin.bytes).unwrap_or_default() / 16;
                    return Ok(Compiled { plan, instructions, seconds });
                }
                Err(error) if error.ran_out_of_registers() && (plan.roll() || plan.relax()) => {}
                Err(error) => return Err(format!("{error}\n{}", plan.explain())),
            }
        }
    }

    /// The same, with the shortest of several times if the first is long: other work beside a core lengthens them.
    fn measured(plan: &KernelPlan) -> Result<Compiled, String> {
        let mut kernel = Compiled::of(plan)?;
        for _ in 1..TIMES {
            if kernel.ratio() > NAMED {
                kernel.seconds = kernel.seconds.min(Compiled::of(plan)?.seconds);
            }
        }
        Ok(kernel)
    }

    /// How long it took over its estimate.
    fn ratio(&self) -> f64 {
        self.seconds / self.plan.compile_time().as_secs_f64()
    }

    /// What it is, in a line.
    fn words(&self) -> String {
        let Compiled { plan, instructions, seconds } = self;
        let (target, operation, tile, expected) = (plan.target, plan.operation, plan.tile, plan.code.instructions);
        let ratio = self.ratio();
        format!(
            "{ratio:.2} of its estimate, {seconds:.2} s, {instructions} instructions ({expected}): {operation}, {tile}, {target}"
        )
    }
}

/// Instructions of a kernel besides its epilogue's values: mainloop, stores, reductions of every kind.
const LEAST: usize = 20_000;

/// How many cases, unless the environment says.
const CASES: u32 = 16;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: number("PROPTEST_CASES").unwrap_or(CASES),
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 64,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_plan_accepts_compiles(case in case()) {
        if nvrtc() {
            for plan in case.kernels() {
                let Compiled { plan, instructions, .. } = Compiled::of(&plan).map_err(TestCaseError::fail)?;
                // The estimate may be too high; its shortfall is bounded. Rows that are held have their code twice, and for each
                // stage.
                let times = if matches!(plan.tile.shape, TileShape::Rows { .. }) { 12 } else { 3 };
                let most = LEAST + times * plan.code.instructions;
                prop_assert!(instructions < most, "{instructions} instructions\n{}", plan.explain());
            }
        }
    }
}

/// A number of the environment.
fn number<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// The case of a seed.
fn drawn(seed: u64) -> Case {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    case().new_tree(&mut runner).expect("a case").current()
}

/// A ratio to its estimate from which a kernel is named.
const NAMED: f64 = 1.6;

/// How often such a kernel is compiled.
const TIMES: usize = 3;

/// The least share of kernels that take between half and twice the median of all ratios to their estimates.
const NEAR: f64 = 0.95;

/// Seconds for which random kernels are compiled, unless the environment says.
const SECONDS: u64 = 60;

#[test]
#[ignore = "compiles random kernels for as long as the environment says"]
fn estimates_of_compile_times_are_near() {
    if !nvrtc() {
        return;
    }
    let (next, limit) = (AtomicU64::new(number("POSTLUDE_COMPILE_SEED").unwrap_or(0)), number("POSTLUDE_COMPILE_SECONDS"));
    let limit = Duration::from_secs(limit.unwrap_or(SECONDS));
    let threads = number("POSTLUDE_COMPILE_THREADS").or(std::thread::available_parallelism().ok());
    let only = std::env::var("POSTLUDE_COMPILE_MAINLOOP").ok();
    let file = std::env::var_os("POSTLUDE_COMPILE_TIMES");
    let file = file.map(|file| std::fs::OpenOptions::new().append(true).create(true).open(file).expect("a file for times"));
    let (found, start) = (Mutex::new(Vec::new()), Instant::now());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let kernels = drawn(seed).kernels().into_iter();
            for plan in kernels.filter(|plan| only.as_ref().is_none_or(|only| plan.tile.mainloop().name() == only)) {
                let compiled = Compiled::measured(&plan);
                if let (Ok(Compiled { plan, instructions, seconds }), Some(mut file)) = (&compiled, file.as_ref()) {
                    let estimate = plan.compile_time().as_secs_f64();
                    let line = serde_json::json!({
                        "seed": seed, "seconds": seconds, "estimate": estimate, "instructions": instructions, "plan": plan
                    });
                    file.write_all(format!("{line}\n").as_bytes()).expect("a file that can be written");
                }
                found.lock().expect("no thread has panicked").push((seed, compiled));
            }
            if start.elapsed() > limit {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads.map_or(1, NonZero::get)).for_each(|_| drop(scope.spawn(work))));
    report(&found.into_inner().expect("no thread has panicked"));
}

/// Says how near the estimates are, and names what took long.
fn report(found: &[(u64, Result<Compiled, String>)]) {
    let mut kernels: Vec<(u64, &Compiled)> =
        found.iter().filter_map(|(seed, kernel)| Some((*seed, kernel.as_ref().ok()?))).collect();
    kernels.sort_by(|(_, a), (_, b)| a.ratio().total_cmp(&b.ratio()));
    let near = |of: &[f64], middle: f64| {
        of.iter().filter(|ratio| (0.5..=2.0).contains(&(*ratio / middle))).count() as f64 / of.len().max(1) as f64
    };
    let mut by_mainloop: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (_, kernel) in &kernels {
        by_mainloop.entry(kernel.plan.tile.mainloop().name()).or_default().push(kernel.ratio());
    }
    for (mainloop, ratios) in &by_mainloop {
        let (count, share, last) = (ratios.len(), 100.0 * near(ratios, 1.0), ratios.len() - 1);
        let [least, middle, most] = [ratios[0], ratios[last / 2], ratios[last]];
        println!("{mainloop:<18}{count:>5} kernels, {share:5.1} % within 2, {least:.2} to {most:.2}, median {middle:.2}");
    }
    for (seed, kernel) in kernels.iter().rev().take_while(|(_, kernel)| kernel.ratio() > NAMED) {
        println!("seed {seed}: {}", kernel.words());
    }
    let failed: Vec<&(u64, Result<Compiled, String>)> = found.iter().filter(|(_, kernel)| kernel.is_err()).collect();
    for (seed, kernel) in &failed {
        println!("seed {seed}: {}", kernel.as_ref().err().map_or("", String::as_str));
    }
    let ratios: Vec<f64> = kernels.iter().map(|(_, kernel)| kernel.ratio()).collect();
    let (Some(worst), median) = (ratios.last(), ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)) else {
        panic!("no kernel was compiled");
    };
    let slowest = kernels.iter().map(|(_, kernel)| kernel.seconds).fold(0.0, f64::max);
    let minutes = kernels.iter().map(|(_, kernel)| kernel.seconds).sum::<f64>() / 60.0;
    println!(
        "{} kernels in {minutes:.1} minutes, {:.1} % within a factor of 2, {} over it, median {median:.2}, worst {worst:.2}, \
         slowest {slowest:.1} s",
        ratios.len(),
        100.0 * near(&ratios, 1.0),
        ratios.iter().filter(|ratio| **ratio > 2.0).count(),
    );
    assert!(failed.is_empty(), "{} kernels did not compile", failed.len());
    // A fast or a slow machine multiplies all ratios.
    let share = near(&ratios, median);
    assert!(share >= NEAR, "{share:.3} of the kernels are within a factor of 2 of the median");
}
