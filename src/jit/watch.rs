//! How long a compilation may take, how far it is, and how it is called off.

use super::error::{JitError, TooLong};
use crate::source::{Cubin, Source};
use crate::target::Target;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The environment variable with the most seconds that a compilation of [`Cache::global`](super::Cache::global) may be estimated to
/// take; 0 for any number of them.
pub const COMPILE_LIMIT: &str = "POSTLUDE_COMPILE_LIMIT";

/// How often a watcher is told how far a compilation is.
const TICK: Duration = Duration::from_millis(100);

/// How far a compilation is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// What is compiled for.
    pub target: Target,
    /// The time since it began.
    pub elapsed: Duration,
    /// The time that it is estimated to take in all; `None` for a source that no plan was printed to.
    pub estimate: Option<Duration>,
}

impl Progress {
    /// The part of the estimated time that has passed, from 0 to 0.99: only the end of the compilation tells that it has ended.
    pub fn fraction(&self) -> Option<f64> {
        let estimate = self.estimate?.as_secs_f64().max(1e-3);
        Some((self.elapsed.as_secs_f64() / estimate).min(0.99))
    }
}

type Tell = dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync;

/// A closure that is told of compilations, and may call them off.
#[derive(Clone, Default)]
pub(super) struct Watcher(Option<Arc<Tell>>);

impl Watcher {
    pub fn new(tell: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Watcher {
        Watcher(Some(Arc::new(tell)))
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watcher" } else { "None" })
    }
}

/// The same one.
impl PartialEq for Watcher {
    fn eq(&self, other: &Watcher) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for Watcher {}

/// How much longer compilations take here than on the machine that estimates are of: as the last ones were measured. Time that other
/// work on the machine takes from the compiler does not count: a busy machine would else refuse kernels that it compiles when it is idle.
pub(super) struct Pace(AtomicU64);

impl Default for Pace {
    fn default() -> Pace {
        Pace(AtomicU64::new(1f64.to_bits()))
    }
}

impl Pace {
    /// What a source is estimated to take here.
    pub fn estimate(&self, source: &Source) -> Option<Duration> {
        source.expected().map(|expected| expected.mul_f64(f64::from_bits(self.0.load(Relaxed))))
    }

    /// Learns from a compilation. Two at the same time may both count, or one.
    fn learn(&self, expected: Duration, took: Duration) {
        let ratio = (took.as_secs_f64() / expected.as_secs_f64().max(1e-3)).clamp(0.1, 10.0);
        let before = f64::from_bits(self.0.load(Relaxed));
        // Half the way, on a scale of ratios: one outlier among many changes little.
        self.0.store((before * ratio).sqrt().to_bits(), Relaxed);
    }
}

/// The processor time of this thread. Elsewhere than on Linux the time since the first call.
pub(super) fn worked() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let part = |x: i64| u64::try_from(x).unwrap_or_default();
        Duration::from_secs(part(spent.tv_sec)) + Duration::from_nanos(part(spent.tv_nsec))
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        START.elapsed()
    }
}

/// Refuses a source that is estimated to take longer than the limit.
pub(super) fn within(limit: Option<Duration>, pace: &Pace, source: &Source, target: Target) -> Result<(), JitError> {
    match (limit, pace.estimate(source)) {
        (Some(limit), Some(estimate)) if estimate > limit => Err(TooLong { target, estimate, limit }.into()),
        _ => Ok(()),
    }
}

/// Compiles while the watcher is told how far it is. `compile` is handed what turns true once the watcher has called it off.
pub(super) fn watched(
    watcher: &Watcher,
    pace: &Pace,
    source: &Source,
    target: Target,
    compile: impl FnOnce(&AtomicBool) -> Result<Cubin, JitError>,
) -> Result<Cubin, JitError> {
    let (start, cancel) = (Instant::now(), AtomicBool::new(false));
    let run = || {
        let before = worked();
        let compiled = compile(&cancel);
        if let (Ok(_), Some(expected)) = (&compiled, source.expected()) {
            pace.learn(expected, worked().saturating_sub(before));
        }
        compiled
    };
    let Some(tell) = &watcher.0 else { return run() };
    let estimate = pace.estimate(source);
    let goes_on = || tell(&Progress { target, elapsed: start.elapsed(), estimate }).is_continue();
    if !goes_on() {
        return Err(JitError::Cancelled { target, elapsed: start.elapsed() });
    }
    let (done, ended) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            let mut is_done = done.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_done {
                is_done = ended.wait_timeout(is_done, TICK).unwrap_or_else(PoisonError::into_inner).0;
                if !*is_done && !goes_on() {
                    cancel.store(true, Relaxed);
                    return;
                }
            }
        });
        let compiled = run();
        *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ended.notify_all();
        if let Err(panic) = ticker.join() {
            std::panic::resume_unwind(panic);
        }
        compiled
    })
}
