//! Timing kernels against each other: in bursts without a pause between them, in another order in each round, at the clock of
//! sustained work.

use crate::device::probe::milliseconds;
use crate::device::{DeviceError, LAUNCHED, Launch, Plug, Scratch, WARM};
use crate::dtype::DType;
use crate::error::Error;
use crate::ir::fnv1a;
use crate::tune::{Outcome, disagreement};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};
use std::sync::Arc;
use std::time::Instant;

/// The total time of a burst of launches in microseconds, roughly, and the most launches.
const BURST: f64 = 500.0;
const LAUNCHES: usize = 16;

/// How often memory is cleared before launches that have to queue up.
const PLUGS: usize = 4;

/// Rounds that run whatever the budget is.
const LEAST_ROUNDS: usize = 3;

/// The stream and memory with which kernels are compared.
pub(super) struct Bench<'b, 's, 'a> {
    stream: &'b Arc<CudaStream>,
    scratch: &'b mut Scratch<'s, 'a>,
    plug: Plug,
    /// The results of the present kernel.
    pub results: Vec<(DType, Vec<u8>)>,
}

fn driver(error: DriverError) -> DeviceError {
    DeviceError::Driver { what: "time a kernel", error }
}

impl<'b, 's, 'a> Bench<'b, 's, 'a> {
    pub fn new(stream: &'b Arc<CudaStream>, scratch: &'b mut Scratch<'s, 'a>) -> Bench<'b, 's, 'a> {
        Bench { stream, scratch, plug: Plug::new(stream), results: Vec::new() }
    }

    /// Runs the present kernel, stores its results, and returns the microseconds of a launch.
    pub fn first_run(&mut self, launch: &Launch) -> Result<f64, Error> {
        self.scratch.restore(self.stream)?;
        launch.run(self.stream, &mut self.scratch.args())?;
        self.results = self.scratch.download(self.stream)?;
        self.plug.hold(self.stream, PLUGS)?;
        let [start, end] = self.burst(launch, 1)?;
        Ok(f64::from(milliseconds(&start, &end)?) * 1e3)
    }

    /// The fault of another kernel or its results, if there is one.
    pub fn check(&mut self, launch: &Launch) -> Result<Option<Outcome>, Error> {
        self.scratch.restore(self.stream)?;
        if let Err(error) = launch.run(self.stream, &mut self.scratch.args()) {
            return Ok(Some(Outcome::Fails(Error::from(error).to_string())));
        }
        let got = self.scratch.download(self.stream)?;
        let pairs = self.results.iter().zip(&got);
        let how = pairs.into_iter().find_map(|((dtype, expected), (_, got))| disagreement(*dtype, expected, got));
        Ok(how.map(Outcome::Disagrees))
    }

    /// Runs each kernel once a round, in a different order every time. Returns the microseconds of a launch of each, one figure a
    /// round. `first` is that of the first kernel, roughly.
    pub fn rounds(
        &mut self,
        launches: &[&Launch],
        first: f64,
        rounds: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<Vec<f64>>, Error> {
        let repeats = |time: f64| (time / first.max(0.1)) as usize;
        let (burst, is_short) = (repeats(BURST).clamp(1, LAUNCHES), first < LAUNCHED);
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); launches.len()];
        for round in 0..rounds {
            if round >= LEAST_ROUNDS && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            // Updates in place would grow without limit.
            self.scratch.restore(self.stream)?;
            // The first of all has the clock of work already.
            if let (0, Some(own)) = (round, launches.first()) {
                self.burst(own, repeats(WARM).clamp(1, 1 << 12))?;
            }
            self.plug.hold(self.stream, PLUGS)?;
            let mut order: Vec<usize> = (0..launches.len()).collect();
            order.sort_by_key(|at| fnv1a([round, *at].iter().flat_map(|x| x.to_le_bytes())));
            let mut bursts = Vec::with_capacity(order.len());
            for at in order {
                if is_short {
                    self.plug.hold(self.stream, PLUGS)?;
                }
                bursts.push((at, self.burst(launches[at], burst)?));
            }
            for (at, [start, end]) in bursts {
                times[at].push(f64::from(milliseconds(&start, &end)?) * 1e3 / burst as f64);
            }
        }
        Ok(times)
    }

    /// Launches a kernel several times, between two events.
    fn burst(&mut self, launch: &Launch, launches: usize) -> Result<[CudaEvent; 2], Error> {
        let event = || self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(driver);
        let start = event()?;
        let mut args = self.scratch.args();
        for _ in 0..launches {
            launch.run(self.stream, &mut args)?;
        }
        Ok([start, event()?])
    }
}
