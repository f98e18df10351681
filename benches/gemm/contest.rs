//! Contests: contenders take turns in one process, shuffled in every round; what counts is the ratio of times inside a
//! round.
//!
//! Short kernels run as CUDA graphs, every contender's: one launch after another would measure the host.

use crate::Result;
use crate::case::Slices;
use crate::operands::{Operands, Output};
use crate::options::LaunchMode;
use crate::statistics::{Shuffle, median};
use postlude::cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::cudarc::driver::{CudaGraph, CudaStream};
use std::sync::Arc;

/// Enqueues some work over the operands of a turn.
type Launch<'a> = Box<dyn Fn(&mut Operands, usize) -> Result<()> + 'a>;

/// Seconds below which a launch is so short that the host might limit it.
const HOST_LIMITED: f64 = 200e-6;

/// The fewest launches of a graph.
const GRAPH: usize = 20;

/// One contender.
pub struct Contender<'a> {
    launch: Launch<'a>,
}

impl<'a> Contender<'a> {
    pub fn new(launch: impl Fn(&mut Operands, usize) -> Result<()> + 'a) -> Contender<'a> {
        Contender { launch: Box::new(launch) }
    }

    /// Launches once, over the first operands.
    pub fn once(&self, operands: &mut Operands) -> Result<()> {
        (self.launch)(operands, 0)
    }
}

/// What came out.
pub struct Times {
    /// Seconds of a launch: for each contender, in each round.
    pub seconds: Vec<Vec<f64>>,
    /// How launches got to the device.
    pub launch: String,
    pub rounds: usize,
}

impl Times {
    pub fn median(&self, contender: usize) -> f64 {
        median(&self.seconds[contender])
    }

    /// Contenders, the fastest first.
    pub fn ranking(&self) -> Vec<usize> {
        let mut ranking: Vec<usize> = (0..self.seconds.len()).collect();
        ranking.sort_by(|a, b| self.median(*a).total_cmp(&self.median(*b)));
        ranking
    }
}

/// Where contests take place.
pub struct Arena<'s> {
    pub stream: &'s Arc<CudaStream>,
    pub mode: LaunchMode,
    /// False if everything only has to run.
    pub measured: bool,
}

/// A contender as it is timed: a graph of some launches, or the launches themselves.
struct Runner<'c, 'a> {
    contender: &'c Contender<'a>,
    graph: Option<CudaGraph>,
    /// How often the graph, or the launch, runs in a slice.
    repeats: usize,
    launches: usize,
}

impl Arena<'_> {
    /// Runs the contenders over the same operands.
    pub fn run(&self, contenders: &[Contender<'_>], operands: &mut Operands, slices: Slices, rounds: usize) -> Result<Times> {
        let rounds = if self.measured { rounds } else { 1 };
        let mut once = Vec::new();
        for contender in contenders {
            self.time(operands, contender, 1)?;
            once.push(self.time(operands, contender, 3)? / 3.0);
        }
        let graphs = match self.mode {
            LaunchMode::Auto => once.iter().any(|seconds| *seconds < HOST_LIMITED),
            LaunchMode::Stream => false,
            LaunchMode::Graph => true,
        };
        // Every graph turns through all operands.
        let sets = operands.sets.len();
        let launches = if graphs { sets * GRAPH.div_ceil(sets) } else { 1 };
        let mut runners = Vec::new();
        for (contender, once) in contenders.iter().zip(once) {
            let graph = if graphs { Some(self.capture(operands, contender, launches)?) } else { None };
            let mut runner = Runner { contender, graph, repeats: 1, launches };
            if graphs {
                self.slice(operands, &runner)?;
            }
            let once = if graphs { self.slice(operands, &runner)? } else { once };
            runner.repeats = ((slices.seconds() / (once * launches as f64)).round() as usize).max(1);
            runners.push((runner, once));
        }
        if self.measured {
            let share = slices.warm_up() / contenders.len() as f64;
            for (runner, once) in &mut runners {
                let slice = *once * (runner.repeats * runner.launches) as f64;
                for _ in 0..(share / slice).ceil() as usize {
                    self.slice(operands, runner)?;
                }
            }
        }
        let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(0x9e37_79b9_7f4a_7c15));
        for _ in 0..rounds {
            for i in shuffle.order(contenders.len()) {
                seconds[i].push(self.slice(operands, &runners[i].0)?);
            }
        }
        let launch = if graphs { format!("graph of {launches}") } else { "stream".to_owned() };
        Ok(Times { seconds, launch, rounds })
    }

    /// Seconds of one launch, in a slice.
    fn slice(&self, operands: &mut Operands, runner: &Runner<'_, '_>) -> Result<f64> {
        let Some(graph) = &runner.graph else {
            return Ok(self.time(operands, runner.contender, runner.repeats)? / runner.repeats as f64);
        };
        let launch = |_: usize| Ok(graph.launch()?);
        Ok(self.elapsed(runner.repeats, launch)? / (runner.repeats * runner.launches) as f64)
    }

    /// Seconds of some launches together.
    fn time(&self, operands: &mut Operands, contender: &Contender<'_>, launches: usize) -> Result<f64> {
        self.elapsed(launches, |turn| (contender.launch)(operands, turn))
    }

    fn elapsed(&self, times: usize, mut enqueue: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        let start = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        for turn in 0..times {
            enqueue(turn)?;
        }
        let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_ms(&end)?) / 1e3)
    }

    fn capture(&self, operands: &mut Operands, contender: &Contender<'_>, launches: usize) -> Result<CudaGraph> {
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let outcome = (0..launches).try_for_each(|turn| (contender.launch)(operands, turn));
        let graph = self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        outcome?;
        let graph = graph?.ok_or("nothing was captured")?;
        graph.upload()?;
        Ok(graph)
    }

    /// Whether contenders agree: |x - y| / |y| over a sample of what each left in its output, which was full of NaN, where y
    /// is the first one's. The largest of them, and whose it is.
    pub fn distance(
        &self,
        contenders: &[Contender<'_>],
        output: impl Fn(usize) -> Output,
        operands: &mut Operands,
    ) -> Result<(f64, usize)> {
        let (mut first, mut largest) = (Vec::new(), (0f64, 0));
        for (i, contender) in contenders.iter().enumerate() {
            // Who writes no bits must not find the ones of before.
            operands.poison(self.stream, output(i), i == 0)?;
            contender.once(operands)?;
            let sample = operands.sample(self.stream, output(i))?;
            if first.is_empty() {
                first = sample;
                continue;
            }
            let square = |x: f64| x * x;
            let difference: f64 = sample.iter().zip(&first).map(|(x, y)| square(f64::from(*x) - f64::from(*y))).sum();
            let norm: f64 = first.iter().map(|y| square(f64::from(*y))).sum();
            let distance = (difference / norm).sqrt();
            // A NaN must not get lost in a maximum.
            if distance.is_nan() {
                largest = (f64::INFINITY, i);
            } else if distance > largest.0 {
                largest = (distance, i);
            }
        }
        if first.iter().any(|x| x.is_nan()) {
            return Err("elements of the output were not written".into());
        }
        Ok(largest)
    }
}
