//! Tuning a plan: every tile and order that may be faster runs on the user's inputs, and the fastest is kept.

use super::bench::Bench;
use super::{Gemm, Kernel, Plan};
use crate::device::probe::may_wait;
use crate::device::{Device, DeviceArgs, Launch, Scratch, ScratchError};
use crate::error::Error;
use crate::jit::Cache;
use crate::parallel;
use crate::plan::{KernelPlan, PlanError, Problem, Tile};
use crate::problem::Shape;
use crate::tune::{Autotune, Candidate, Outcome, Record, Spread, Subject, Trial, Tuning};
use cudarc::driver::CudaStream;
use std::sync::Arc;
use std::time::Instant;

/// The part of the budget after which no further tile is compared.
const CHECKED: f64 = 0.75;

/// The highest ratio at which a change of tile is worthwhile. The ratio must also be outside the spread.
const WORTHWHILE: f64 = 0.99;

/// A tile that takes part in the comparison.
struct Contender {
    candidate: Candidate,
    kernel: Kernel,
    launch: Launch,
    /// Microseconds a launch, one figure a round.
    times: Vec<f64>,
}

/// The state of a candidate before the first measurement.
enum Ready {
    Yes(Box<Contender>),
    No(Candidate, Outcome),
}

/// The library's own plan, and the plan of the other way round if the planner compared both.
struct Ways {
    first: KernelPlan,
    other: Option<KernelPlan>,
}

impl Ways {
    fn of(&self, transposed: bool) -> &KernelPlan {
        self.other.as_ref().filter(|plan| plan.transposed == transposed).unwrap_or(&self.first)
    }

    /// The tiles that fit both ways, by estimated time.
    fn candidates(&self) -> Vec<Candidate> {
        let of = |plan: &KernelPlan| {
            let (transposed, nanoseconds) = (plan.transposed, plan.choice.estimated().unwrap_or(1) as f64);
            let timed = plan.choice.candidates().zip(plan.choice.estimates());
            let timed = timed.map(|((tile, raster), (_, hundredths))| {
                (Candidate { tile, raster, transposed }, nanoseconds * hundredths as f64)
            });
            timed.collect::<Vec<_>>()
        };
        let mut all = of(&self.first);
        if let Some(other) = &self.other {
            all.extend(of(other));
            all.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        all.into_iter().map(|(candidate, _)| candidate).collect()
    }

    /// The plan of a candidate.
    fn with(&self, candidate: &Candidate, reason: &str) -> Option<KernelPlan> {
        self.of(candidate.transposed).with_tile(candidate.tile, candidate.raster, reason)
    }
}

impl Gemm {
    /// The plan with the tile that tuning found to be the fastest, if there is a record.
    pub(super) fn tuned(&self, device: &Device, fresh: &KernelPlan, problem: &Problem) -> Option<KernelPlan> {
        let record = Record::find(device.cache(), &self.subject(device, fresh, problem.shape))?;
        if record.transposed == fresh.transposed {
            return record.apply(device.cache(), fresh);
        }
        record.apply(device.cache(), &self.other_way(device, fresh, problem)?)
    }

    /// The plan of the other way round, if the planner compares both.
    fn other_way(&self, device: &Device, fresh: &KernelPlan, problem: &Problem) -> Option<KernelPlan> {
        let other = self.clone().transposed(!fresh.transposed);
        let plan = || other.kernel_plan(device.target(), device.gpu(), problem.clone()).ok();
        fresh.choice.knows_other_way().then(plan)?.filter(|plan| plan.split.is_none() && fresh.split.is_none())
    }

    fn ways(&self, device: &Device, problem: &Problem) -> Result<Ways, PlanError> {
        let first = self.kernel_plan(device.target(), device.gpu(), problem.clone())?;
        let other = self.other_way(device, &first, problem);
        Ok(Ways { first, other })
    }

    fn subject(&self, device: &Device, fresh: &KernelPlan, shape: Shape) -> Subject {
        Subject::new(device.name(), fresh, &self.epilogue.to_json(), &self.preferences, shape)
    }
}

impl Plan {
    /// Measures which of the tiles that fit the problem is the fastest. From then on that tile runs, in this plan and
    /// in every later plan of the same kind, also in other processes that share the kernel cache.
    ///
    /// Tiles run on the arguments' inputs. Scratch memory replaces every output, so the outputs keep every bit. A tile
    /// wins if its results equal those of the present one within rounding, and if it is faster by more than the spread
    /// of the measurements. Waits for the stream.
    ///
    /// Measure where and how the plan will run, because other work of the GPU affects the result.
    ///
    /// # Errors
    /// Those of [`execute`](Plan::execute); if the device has no memory for the scratch copies; or if a graph is
    /// recorded from the stream. The plan is then unchanged.
    pub fn autotune(&mut self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>, options: Autotune) -> Result<Tuning, Error> {
        let start = Instant::now();
        may_wait(stream, "`Plan::autotune`")?;
        let mut scratch = Scratch::new(&self.launch, stream, args).map_err(|error| match error {
            ScratchError::Arguments(error) => Error::from(error),
            ScratchError::Device(error) => error.into(),
        })?;
        let ways = self.gemm.ways(&self.device, &self.problem)?;
        let ready = self.contenders(&ways, options, start.checked_add(options.budget / 2));

        let mut bench = Bench::new(stream, &mut scratch);
        let first = bench.first_run(&self.launch)?;
        let (mut trials, mut contenders) = (Vec::new(), Vec::new());
        let checked = start.checked_add(options.budget.mul_f64(CHECKED));
        for candidate in ready {
            match candidate {
                Ready::No(candidate, outcome) => trials.push(Trial { candidate, time: None, ratio: None, outcome }),
                Ready::Yes(contender) if is_past(checked) => {
                    let outcome = Outcome::Untried("the time was up before it ran");
                    trials.push(Trial { candidate: contender.candidate, time: None, ratio: None, outcome });
                }
                Ready::Yes(contender) => match bench.check(&contender.launch)? {
                    None => contenders.push(*contender),
                    Some(outcome) => {
                        trials.push(Trial { candidate: contender.candidate, time: None, ratio: None, outcome });
                    }
                },
            }
        }
        let deadline = start.checked_add(options.budget);
        // The last is the twin of the first.
        let own = &*self.launch;
        let launches: Vec<&Launch> = [own].into_iter().chain(contenders.iter().map(|c| &c.launch)).chain([own]).collect();
        let mut times = bench.rounds(&launches, first, options.rounds, deadline)?;
        drop(bench);
        let (twin, own) = (times.pop().unwrap_or_default(), times.remove(0));
        contenders.iter_mut().zip(times).for_each(|(contender, times)| contender.times = times);
        self.settle(&ways, [own, twin], contenders, trials, start)
    }

    /// Whether a candidate has the tile that runs now.
    fn has_tile_of(&self, candidate: &Candidate) -> bool {
        same(&candidate.tile, &self.kernel.plan.tile) && candidate.transposed == self.kernel.plan.transposed
    }

    /// Whether a candidate is the kernel that runs now.
    fn runs(&self, candidate: &Candidate) -> bool {
        self.has_tile_of(candidate) && candidate.raster == self.kernel.plan.raster
    }

    /// What runs now, as the planner lists it: with as many blocks on a multiprocessor as it asked for.
    fn present(&self, ways: &Ways) -> Option<Candidate> {
        let raster = self.kernel.plan.raster;
        let listed = ways.candidates().into_iter().find(|candidate| self.has_tile_of(candidate));
        listed.map(|candidate| Candidate { raster, ..candidate })
    }

    /// The candidates: the best other tiles by estimate, then all tiles, including the present one, in other orders.
    /// Other orders need no kernels of their own.
    fn candidates(&self, ways: &Ways, tiles: usize) -> Vec<Candidate> {
        let (own, others): (Vec<_>, Vec<_>) = ways.candidates().into_iter().partition(|candidate| self.has_tile_of(candidate));
        let tiles: Vec<_> = own.into_iter().chain(others.into_iter().take(tiles - 1)).collect();
        let fixed = self.gemm.preferences.raster_group.is_some();
        let shape = self.problem.shape;
        let orders = |candidate: &Candidate| {
            let Candidate { tile, raster, transposed } = *candidate;
            let rasters = if fixed { Vec::new() } else { ways.of(transposed).rasters(&tile, raster, shape) };
            rasters.into_iter().map(move |raster| Candidate { tile, raster, transposed })
        };
        tiles.iter().copied().chain(tiles.iter().flat_map(orders)).filter(|candidate| !self.runs(candidate)).collect()
    }

    /// Compiles and loads the candidates.
    fn contenders(&self, ways: &Ways, options: Autotune, deadline: Option<Instant>) -> Vec<Ready> {
        let candidates = &self.candidates(ways, options.candidates)[..];
        let compiled = compile(ways, candidates, self.device.cache(), deadline);
        let mut ready: Vec<Ready> = Vec::new();
        for (&candidate, kernel) in candidates.iter().zip(compiled) {
            let no = |outcome| Ready::No(candidate, outcome);
            let loaded = kernel.map(|kernel| {
                kernel
                    .and_then(|kernel| self.gemm.load(&self.device, kernel, self.problem.shape))
                    .map_err(|error| error.to_string())
            });
            ready.push(match loaded {
                None => no(Outcome::Untried("the time was up before it was compiled")),
                Some(Err(why)) => no(Outcome::Fails(why)),
                Some(Ok((kernel, launch))) => Ready::Yes(Box::new(Contender { candidate, kernel, launch, times: Vec::new() })),
            });
        }
        ready
    }

    /// The plan anew: with the tile that tuning has found since.
    pub(crate) fn again(&self) -> Result<Plan, Error> {
        self.gemm.plan(&self.device, self.problem.clone())
    }

    /// Compiles what tuning will compare, of several plans side by side: those that are begun before a deadline are in the cache
    /// then.
    pub(crate) fn prepare(plans: &[&Plan], options: Autotune, deadline: Option<Instant>) {
        let mut wanted = Vec::new();
        for plan in plans {
            let ways = plan.gemm.ways(&plan.device, &plan.problem);
            wanted.extend(ways.ok().map(|ways| (plan.device.cache(), plan.candidates(&ways, options.candidates), ways)));
        }
        // The most promising tile of each plan comes first. Other orders of a tile have its kernel.
        let mut all: Vec<(usize, usize)> = wanted
            .iter()
            .enumerate()
            .flat_map(|(plan, (_, candidates, _))| (0..candidates.len()).map(move |at| (at, plan)))
            .collect();
        all.sort_unstable();
        parallel::map(all.len(), parallel::cores(), |at| {
            let (candidate, plan) = all[at];
            let (cache, candidates, ways) = &wanted[plan];
            compile(ways, &candidates[candidate..=candidate], cache, deadline);
        });
    }

    /// Stores a record of the tile that runs, in place of what this tuning of another plan has stored.
    pub(crate) fn keep_present(&self, tuning: &Tuning) {
        let time = tuning.trials.first().and_then(|trial| trial.time);
        let Some((ways, time)) = self.gemm.ways(&self.device, &self.problem).ok().zip(time) else { return };
        if let Some(present) = self.present(&ways) {
            let subject = self.gemm.subject(&self.device, &ways.first, self.problem.shape);
            // A directory that cannot be written has no record of the other tile either.
            let _ = Record::new(&present, time, None, tuning.rounds).keep(self.device.cache(), &subject);
        }
    }

    /// Takes the fastest tile, stores the record, and reports.
    fn settle(
        &mut self,
        ways: &Ways,
        [own, twin]: [Vec<f64>; 2],
        contenders: Vec<Contender>,
        others: Vec<Trial>,
        start: Instant,
    ) -> Result<Tuning, Error> {
        let rounds = own.len();
        let time = Spread::of(own.iter().copied());
        let over_own = |times: &[f64]| Spread::of(times.iter().zip(&own).map(|(theirs, ours)| theirs / ours));
        let (ratio, twin) = (|c: &Contender| over_own(&c.times), over_own(&twin));
        let least = twin.map_or(WORTHWHILE, |twin| twin.low.min(WORTHWHILE));
        let faster = |c: &Contender| ratio(c).filter(|r| r.high < 1.0 && r.median < least).map(|r| r.median);
        let best = contenders.iter().enumerate().filter_map(|(i, c)| Some((i, faster(c)?)));
        let best = best.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i);

        let outcome = if best.is_some() { Outcome::Replaced } else { Outcome::Stays };
        let KernelPlan { tile, raster, transposed, .. } = *self.kernel.plan;
        let mut trials = vec![Trial { candidate: Candidate { tile, raster, transposed }, time, ratio: None, outcome }];
        trials.extend(contenders.iter().enumerate().map(|(i, c)| {
            let outcome = if best == Some(i) { Outcome::Wins } else { Outcome::Loses };
            Trial { candidate: c.candidate, time: Spread::of(c.times.iter().copied()), ratio: ratio(c), outcome }
        }));
        trials.extend(others);

        let record = match best.map(|i| &contenders[i]) {
            Some(c) => Spread::of(c.times.iter().copied()).map(|won| Record::new(&c.candidate, won, time, rounds)),
            None => self.present(ways).zip(time).map(|(present, time)| Record::new(&present, time, None, rounds)),
        };
        let subject = self.gemm.subject(&self.device, &ways.first, self.problem.shape);
        let kept =
            record.as_ref().map_or(Err("nothing was measured".into()), |record| record.keep(self.device.cache(), &subject));
        let winner = best.and_then(|i| contenders.into_iter().nth(i));
        if let Some(Contender { mut kernel, launch, .. }) = winner {
            // The verdicts of the tuned plan say why it was chosen. The tile is the one that compiled.
            let tuned = |record: Record| record.apply(self.device.cache(), ways.of(record.transposed));
            if let Some(plan) = record.and_then(tuned) {
                Arc::make_mut(&mut kernel.plan).choice = plan.choice;
            }
            (self.kernel, self.launch) = (kernel, Arc::new(launch));
        }
        let gpu = self.device.name().to_owned();
        let tuning = Tuning { gpu, shape: self.problem.shape, trials, twin, rounds, elapsed: start.elapsed(), kept };
        self.tuning = Some(tuning.clone());
        Ok(tuning)
    }
}

/// Whether two tiles are the same, apart from the number of blocks for which the compiler leaves registers.
fn same(a: &Tile, b: &Tile) -> bool {
    Tile { min_blocks: b.min_blocks, ..*a } == *b
}

/// Whether a deadline has passed. `None` never passes: the budget exceeds the range of the clock.
fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Compiles plans with other tiles on all cores. `None` for candidates that were not begun before the deadline.
fn compile(
    ways: &Ways,
    candidates: &[Candidate],
    cache: &Cache,
    deadline: Option<Instant>,
) -> Vec<Option<Result<Kernel, Error>>> {
    parallel::map(candidates.len(), parallel::cores(), |at| {
        let plan = (!is_past(deadline)).then(|| ways.with(&candidates[at], "to be compared")).flatten()?;
        Some(Kernel::of(plan, cache))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::recipes;
    use crate::dtype::DType::F16;
    use crate::problem::Layout;
    use half::f16;

    #[test]
    #[ignore = "needs a GPU"]
    fn a_slow_tile_is_replaced() {
        let device = Device::find().unwrap().with_cache(Cache::in_memory()).unwrap();
        let shape = Shape::new(2048, 2048, 2048);
        let gemm = Gemm::new(F16, Layout::TN, &recipes::bias_activation(F16, F16, |z| z.relu()).unwrap());
        let fresh = gemm.kernel_plan(device.target(), device.gpu(), shape).unwrap();
        // A record of the slowest tile by estimate.
        let (slow, raster) = fresh.choice.candidates().last().unwrap();
        let candidate = Candidate { tile: slow, raster, transposed: fresh.transposed };
        let time = Spread::of([1.0]).unwrap();
        let subject = gemm.subject(&device, &fresh, shape);
        let _ = Record::new(&candidate, time, None, 1).keep(device.cache(), &subject);
        let mut plan = gemm.plan(&device, shape).unwrap();
        assert!(same(&plan.kernel.plan.tile, &slow) && plan.explain().contains("tuned: 1.00 us"), "{}", plan.explain());

        let stream = device.context().default_stream();
        let ones = stream.clone_htod(&vec![f16::ONE; 2048 * 2048]).unwrap();
        let mut d = stream.clone_htod(&vec![f16::NAN; 2048 * 2048]).unwrap();
        let mut args = DeviceArgs::new().input("a", &ones).input("b", &ones).input("bias", &ones).output("d", &mut d);
        let tuning = plan.autotune(&stream, &mut args, Autotune::new()).unwrap();
        println!("{tuning}");
        let winner = tuning.winner().unwrap();
        assert_eq!(winner.outcome, Outcome::Wins, "{tuning}");
        let won = winner.candidate.tile;
        assert!(winner.ratio.unwrap().high < 1.0 && !same(&won, &slow), "{tuning}");
        let orders = |tile: &Tile| tuning.trials.iter().filter(|trial| same(&trial.candidate.tile, tile)).count();
        assert!(orders(&slow) > 1 && orders(&won) > 1, "{tuning}");
        assert!(same(&plan.kernel.plan.tile, &won) && plan.kernel.plan.tile == plan.kernel().plan.tile);
        assert!(plan.explain().contains("taken") && plan.explain().contains("tuned: "), "{}", plan.explain());
        drop(args);
        assert!(stream.clone_dtoh(&d).unwrap().iter().all(|x| x.is_nan()), "tuning writes nothing of the user's");

        // The next plan uses the record.
        let next = gemm.plan(&device, shape).unwrap();
        assert_eq!(next.kernel.plan.tile, plan.kernel.plan.tile);
        let mut args = DeviceArgs::new().input("a", &ones).input("b", &ones).input("bias", &ones).output("d", &mut d);
        plan.execute(&stream, &mut args).unwrap();
        drop(args);
        assert!(stream.clone_dtoh(&d).unwrap().iter().all(|x| x.to_f32() == 2048.0));
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_tile_that_disagrees_never_wins() {
        let device = Device::find().unwrap().with_cache(Cache::in_memory()).unwrap();
        let shape = Shape::new(512, 512, 512);
        let recipe = |bias: bool| {
            let plain = recipes::identity(F16).unwrap();
            if bias { recipes::bias_activation(F16, F16, |z| z.relu()).unwrap() } else { plain }
        };
        // Another epilogue's kernel, which omits the bias, stands in for a miscompiled one.
        let (gemm, wrong) = (Gemm::new(F16, Layout::TN, &recipe(true)), Gemm::new(F16, Layout::TN, &recipe(false)));
        let (plan, wrong) = (gemm.plan(&device, shape).unwrap(), wrong.plan(&device, shape).unwrap());
        let stream = device.context().default_stream();
        let ones = stream.clone_htod(&vec![f16::ONE; 512 * 512]).unwrap();
        let mut d = stream.alloc_zeros::<f16>(512 * 512).unwrap();
        let mut all = DeviceArgs::new().input("a", &ones).input("b", &ones).input("bias", &ones).output("d", &mut d);
        let Ok(mut scratch) = Scratch::new(&plan.launch, &stream, &mut all) else { panic!("no scratch memory") };
        let mut bench = Bench::new(&stream, &mut scratch);
        assert!(bench.first_run(&plan.launch).unwrap() > 0.0);
        assert_eq!(bench.check(&plan.launch).unwrap(), None);
        let expected = std::mem::take(&mut bench.results);
        drop(bench);
        drop(scratch);
        drop(all);
        let mut few = DeviceArgs::new().input("a", &ones).input("b", &ones).output("d", &mut d);
        let Ok(mut scratch) = Scratch::new(&wrong.launch, &stream, &mut few) else { panic!("no scratch memory") };
        let mut bench = Bench::new(&stream, &mut scratch);
        bench.results = expected;
        let outcome = bench.check(&wrong.launch).unwrap();
        assert!(matches!(&outcome, Some(Outcome::Disagrees(how)) if how.contains("262144 of 262144")), "{outcome:?}");
        let outcome = bench.check(&plan.launch).unwrap();
        assert!(matches!(&outcome, Some(Outcome::Fails(why)) if why.contains("`bias`")), "{outcome:?}");
    }
}
