//! The time limit of a compilation, its progress, and its cancellation.

use super::error::{JitError, TooLong};
use crate::source::{Cubin, Source};
use crate::target::Target;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval between progress reports.
const TICK: Duration = Duration::from_millis(100);

/// The progress of a compilation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The target.
    pub target: Target,
    /// The time since it began.
    pub elapsed: Duration,
    /// The estimated total time; `None` for a source that was not rendered from a plan.
    pub estimate: Option<Duration>,
}

impl Progress {
    /// The elapsed part of the estimate, from 0 to 0.99: only the end of the compilation is certain.
    pub fn fraction(&self) -> Option<f64> {
        let estimate = self.estimate?.as_secs_f64().max(1e-3);
        Some((self.elapsed.as_secs_f64() / estimate).min(0.99))
    }
}

type Tell = dyn Fn(&Progress) -> ControlFlow<()> + Send + Sync;

/// A closure that receives the progress of compilations and may cancel them.
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

/// How much longer compilations take here than on the machine of the estimates, measured on the last ones. Time that
/// other work takes from the compiler does not count. Otherwise a busy machine would reject kernels that it compiles
/// when idle.
pub(super) struct Pace(AtomicU64);

impl Default for Pace {
    fn default() -> Pace {
        Pace(AtomicU64::new(1f64.to_bits()))
    }
}

impl Pace {
    /// The estimated time of a source on this machine.
    pub fn estimate(&self, source: &Source) -> Option<Duration> {
        source.expected().map(|expected| expected.mul_f64(f64::from_bits(self.0.load(Relaxed))))
    }

    /// Learns from a compilation. One of two at the same time may be lost.
    fn learn(&self, expected: Duration, took: Duration) {
        let ratio = (took.as_secs_f64() / expected.as_secs_f64().max(1e-3)).clamp(0.1, 10.0);
        let before = f64::from_bits(self.0.load(Relaxed));
        // Half the way, on a scale of ratios: one outlier changes little.
        self.0.store((before * ratio).sqrt().to_bits(), Relaxed);
    }
}

/// The processor time of this thread. On systems other than Linux, the time since the first call.
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

/// Rejects a source whose estimate exceeds the limit.
pub(super) fn within(limit: Option<Duration>, pace: &Pace, source: &Source, target: Target) -> Result<(), JitError> {
    match (limit, pace.estimate(source)) {
        (Some(limit), Some(estimate)) if estimate > limit => Err(TooLong { target, estimate, limit }.into()),
        _ => Ok(()),
    }
}

/// Compiles while the watcher receives the progress. `compile` receives a flag that becomes true when the watcher
/// cancels.
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
