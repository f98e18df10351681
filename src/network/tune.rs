//! Tuning a network: each kernel compares tiles on the tensors that it meets, and the whole network decides.

use super::device::{NetworkPlan, NetworkPlanError, driver, problem};
use crate::device::probe::{may_wait, milliseconds};
use crate::device::{LAUNCHED, Plug, WARM};
use crate::gemm::Plan;
use crate::tune::{Autotune, Outcome, Spread, Tuning};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaSlice, CudaStream};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of the time after which no further tile is compiled.
const COMPILING: f64 = 0.5;

/// Kernels that are a smaller part of a run are not tuned.
const SMALL: f64 = 0.004;

/// Microseconds of runs that are timed together, and the most runs. Shorter kernels than the host takes to launch one are
/// timed in a single run, behind what keeps the GPU busy.
const BURST: f64 = 5_000.0;
const RUNS: f64 = 1000.0;

/// Kernels that are launched while memory is cleared once.
const KERNELS_OF_A_PLUG: usize = 3;

/// The tuning of a kernel, and of its equals in the network.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTuning {
    /// The numbers of the kernels, in order of launches.
    pub kernels: Vec<usize>,
    /// The operators in the first.
    pub title: String,
    /// Their part of the time of all kernels, each timed by itself.
    pub share: f64,
    /// What was compared, or the reason why nothing was.
    pub tuning: Result<Tuning, String>,
}

/// The result of tuning a network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkTuning {
    /// Each kind of kernel, the one with the greatest share first.
    pub kernels: Vec<KernelTuning>,
    /// Microseconds of a run before.
    pub before: Option<Spread>,
    /// Microseconds of a run with all the tiles that won, and its time over that of the run before in the same round.
    /// `None` if no tile won.
    pub after: Option<(Spread, Spread)>,
    /// Whether the tiles that won run from now on: if the whole network is faster.
    pub taken: bool,
    /// The duration of the search.
    pub elapsed: Duration,
}

impl fmt::Display for NetworkTuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let won = |kind: &&KernelTuning| kind.tuning.as_ref().is_ok_and(|tuning| change(tuning).is_some());
        let (count, all) = (self.kernels.iter().filter(won).count(), self.kernels.len());
        writeln!(f, "tuned {all} kinds of kernels in {:.1} s: another tile won for {count}", self.elapsed.as_secs_f64())?;
        for KernelTuning { kernels, title, share, tuning } in &self.kernels {
            let numbers: Vec<String> = kernels.iter().map(usize::to_string).collect();
            write!(f, "  {:5.1} %  {} ({title}): ", share * 100.0, numbers.join(", "))?;
            match tuning {
                Err(why) => writeln!(f, "not tuned: {}", why.lines().next().unwrap_or_default())?,
                Ok(tuning) => match change(tuning) {
                    Some((tile, ratio)) => writeln!(f, "{tile}, {ratio:.3} of the time before")?,
                    None => writeln!(f, "stays, compared in {} rounds", tuning.rounds)?,
                },
            }
        }
        if let Some(Spread { low, median, high }) = self.before {
            writeln!(f, "a run: {median:.1} us [{low:.1}, {high:.1}]")?;
        }
        if let Some((Spread { median, .. }, ratio)) = self.after {
            let words = if self.taken { "taken" } else { "not faster as a whole: all stay as they were" };
            let Spread { low, median: part, high } = ratio;
            writeln!(f, "with these tiles: {median:.1} us, {part:.3} [{low:.3}, {high:.3}] of that: {words}")?;
        }
        Ok(())
    }
}

/// The tile that won, in words, and its time over that of the one before.
fn change(tuning: &Tuning) -> Option<(String, f64)> {
    let winner = tuning.trials.iter().find(|trial| trial.outcome == Outcome::Wins)?;
    Some((winner.candidate.tile.to_string(), winner.ratio?.median))
}

/// Kernels that do the same.
struct Kind {
    kernels: Vec<usize>,
    /// Microseconds of one.
    time: f64,
}

impl Kind {
    /// Microseconds of all.
    fn total(&self) -> f64 {
        self.time * self.kernels.len() as f64
    }
}

/// What runs are timed with.
struct Bench<'a> {
    stream: &'a Arc<CudaStream>,
    inputs: &'a [(&'a str, &'a CudaSlice<u8>)],
    plug: Plug,
}

impl NetworkPlan {
    /// Measures for each kernel which of the tiles that fit is the fastest, on the tensors that it meets in a run on these
    /// inputs. Then it measures the whole network with all the tiles that won. If that is faster, they run from now on, here
    /// and in every later plan, also in other processes that share the kernel cache.
    ///
    /// The time limit of `options` is that of the whole search. Kernels that do the same are tuned once. The longest come first,
    /// and each has as much of the time as of a run. `told` is called for each kind of kernel that is done, with their number.
    /// Waits for the stream.
    ///
    /// # Errors
    /// As [`execute`](NetworkPlan::execute), or if a graph is recorded from the stream. A kernel that cannot be tuned stays as
    /// it is, and the result says why.
    pub fn autotune(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, &CudaSlice<u8>)],
        options: Autotune,
        mut told: impl FnMut(usize),
    ) -> Result<NetworkTuning, NetworkPlanError> {
        let start = Instant::now();
        may_wait(stream, "`NetworkPlan::autotune`")?;
        let mut bench = Bench { stream, inputs, plug: Plug::new(stream) };
        let kinds = self.timed_kinds(&mut bench)?;
        let all: f64 = kinds.iter().map(Kind::total).sum();
        let large = kinds.iter().take_while(|kind| kind.total() >= SMALL * all).count();
        let longest: Vec<&Plan> = kinds[..large].iter().map(|kind| &self.plans[kind.kernels[0]]).collect();
        Plan::prepare(&longest, options, start.checked_add(options.budget.mul_f64(COMPILING)));

        let left = options.budget.saturating_sub(start.elapsed()).as_secs_f64();
        let mut tuned: Vec<Option<Plan>> = (0..self.plans.len()).map(|_| None).collect();
        let mut kernels = Vec::with_capacity(kinds.len());
        for (place, kind) in kinds.iter().enumerate() {
            let share = kind.total() / all;
            let tuning = if place < large {
                let budget = Duration::try_from_secs_f64(left * share).unwrap_or_default();
                self.tune(&bench, kind, options.budget(budget), &mut tuned)?
            } else {
                Err("it is a small part of a run".to_owned())
            };
            kernels.push(KernelTuning { kernels: kind.kernels.clone(), title: self.title(kind.kernels[0]), share, tuning });
            told(kinds.len());
        }
        let rounds = self.compare(&mut bench, &mut tuned, options.rounds)?;
        let spread = |of: &dyn Fn(&[f64; 2]) -> f64| Spread::of(rounds.iter().map(of));
        let before = spread(&|[old, _]| *old);
        let is_changed = tuned.iter().any(Option::is_some);
        let after = spread(&|[_, new]| *new).zip(spread(&|[old, new]| new / old)).filter(|_| is_changed);
        let taken = after.is_some_and(|(_, ratio)| ratio.median < 1.0);
        if taken {
            self.swap(&mut tuned);
        } else {
            for KernelTuning { kernels, tuning, .. } in &kernels {
                if let (Some(_), Ok(tuning)) = (&tuned[kernels[0]], tuning) {
                    self.plans[kernels[0]].keep_present(tuning);
                }
            }
        }
        Ok(NetworkTuning { kernels, before, after, taken, elapsed: start.elapsed() })
    }

    /// The kernels by what they do, with the time of each: those with the longest time together come first.
    fn timed_kinds(&mut self, bench: &mut Bench<'_>) -> Result<Vec<Kind>, NetworkPlanError> {
        // The first run prepares memory.
        self.execute(bench.stream, bench.inputs)?;
        let mut kinds = self.kinds();
        for Kind { kernels, time } in &mut kinds {
            let first = kernels[0];
            for _ in 0..2 {
                *time = time.min(self.time(bench, first..first + 1, 1)?);
            }
        }
        kinds.sort_by(|x, y| y.total().total_cmp(&x.total()));
        Ok(kinds)
    }

    /// What a kernel is, in a few words.
    fn title(&self, at: usize) -> String {
        self.fused.kernels().nth(at).map(|kernel| kernel.title(self.fused.network())).unwrap_or_default()
    }

    /// The kernels by what they do.
    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (at, kernel) in self.fused.kernels().enumerate() {
            let key = format!("{:?} {:?} {}", kernel.gemm.operation(), problem(kernel), kernel.gemm.epilogue().to_json());
            let next = kinds.len();
            match kinds.get_mut(*known.entry(key).or_insert(next)) {
                Some(kind) => kind.kernels.push(at),
                None => kinds.push(Kind { kernels: vec![at], time: f64::INFINITY }),
            }
        }
        kinds
    }

    /// Tunes second plans of a kind of kernels, and leaves them in `tuned` if another tile won. The reason if that fails.
    fn tune(
        &mut self,
        bench: &Bench<'_>,
        kind: &Kind,
        options: Autotune,
        tuned: &mut [Option<Plan>],
    ) -> Result<Result<Tuning, String>, NetworkPlanError> {
        let first = kind.kernels[0];
        let mut plan = self.again(first)?;
        // Behind the kernels before it, a kernel meets the tensors of a run.
        self.execute_kernels(bench.stream, bench.inputs, 0..first)?;
        let mut done = Err("it was not launched".to_owned());
        self.each(bench.inputs, first..first + 1, &mut |_, _, args| {
            done = plan.autotune(bench.stream, args, options).map_err(|error| error.to_string());
            Ok(())
        })?;
        if done.as_ref().is_ok_and(|tuning| change(tuning).is_some()) {
            tuned[first] = Some(plan);
            for at in &kind.kernels[1..] {
                tuned[*at] = Some(self.again(*at)?);
            }
        }
        Ok(done)
    }

    /// The plan of a kernel, anew: with the tile that tuning has found.
    fn again(&self, at: usize) -> Result<Plan, NetworkPlanError> {
        self.plans[at].again().map_err(|error| NetworkPlanError::Kernel { nodes: self.title(at), error: Box::new(error) })
    }

    /// Runs the network with its own plans and with others, in turns. Returns both times of each round.
    fn compare(
        &mut self,
        bench: &mut Bench<'_>,
        others: &mut [Option<Plan>],
        rounds: usize,
    ) -> Result<Vec<[f64; 2]>, NetworkPlanError> {
        let all = 0..self.plans.len();
        let mut run = f64::INFINITY;
        for _ in 0..2 {
            run = run.min(self.time(bench, all.clone(), 1)?);
        }
        let is_short = run < LAUNCHED * self.plans.len() as f64;
        let runs = |time: f64| if is_short { 1 } else { (time / run).clamp(1.0, RUNS) as usize };
        self.time(bench, all.clone(), runs(WARM))?;
        let mut times = Vec::with_capacity(rounds);
        for round in 0..=rounds {
            let mut both = [0.0; 2];
            for turn in 0..2 {
                // Those that go first change from round to round.
                let is_new = (turn + round) % 2;
                if is_new == 1 {
                    self.swap(others);
                }
                let time = self.time(bench, all.clone(), runs(BURST));
                if is_new == 1 {
                    self.swap(others);
                }
                both[is_new] = time?;
            }
            // The first round prepares the memory of the others.
            if round > 0 {
                times.push(both);
            }
        }
        Ok(times)
    }

    fn swap(&mut self, others: &mut [Option<Plan>]) {
        self.replays.clear();
        for (own, other) in self.plans.iter_mut().zip(others) {
            if let Some(other) = other {
                std::mem::swap(own, other);
            }
        }
    }

    /// Microseconds of some of the kernels, one behind the other, in the mean of some runs.
    fn time(&mut self, bench: &mut Bench<'_>, which: Range<usize>, runs: usize) -> Result<f64, NetworkPlanError> {
        let Bench { stream, inputs, plug } = bench;
        let failed = driver("time a network");
        let event = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(&failed);
        plug.hold(stream, 2 + which.len() / KERNELS_OF_A_PLUG)?;
        let begin = event()?;
        for _ in 0..runs {
            self.execute_kernels(stream, inputs, which.clone())?;
        }
        Ok(f64::from(milliseconds(&begin, &event()?)?) * 1e3 / runs as f64)
    }
}
