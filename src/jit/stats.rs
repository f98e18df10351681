//! The counts of a cache, as numbers and as events.
//!
//! The events have the target `postlude::cache`. Each answer is one event, with the `level` that it came from: `memory`
//! (at the level TRACE, since it takes less time than its event), `disk`, `compiled`, `awaited` (from disk, after
//! another process had compiled it). A `miss` comes before the latter two, and where there is no answer. `bytes` is the
//! size of the binary, `ms` the time.

use crate::source::Cubin;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The target of these events.
pub(super) const EVENTS: &str = "postlude::cache";

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counts of a [`Cache`](super::Cache) so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct CacheStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes read from the directory.
            pub bytes_read: u64,
            /// Bytes written to the directory.
            pub bytes_written: u64,
            /// Kernels in memory now.
            pub held: usize,
        }

        impl CacheStats {
            /// Emits all counts in one event.
            pub(super) fn tell(&self, when: &str) {
                tracing::debug!(
                    target: EVENTS,
                    when,
                    $($name = self.$name,)*
                    bytes_read = self.bytes_read,
                    bytes_written = self.bytes_written,
                    held = self.held,
                    "counts of the kernel cache"
                );
            }
        }

        #[derive(Default)]
        pub(super) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            pub fn read(&self) -> CacheStats {
                CacheStats { $($name: self.$name.load(Relaxed),)* ..CacheStats::default() }
            }
        }
    };
}

counters! {
    /// Kernels that were in memory, or that another thread was already fetching.
    memory_hits,
    /// Kernels read from disk.
    disk_hits,
    /// Kernels that were neither in memory nor on disk.
    misses,
    /// Kernels compiled.
    compiles,
    /// Microseconds spent in NVRTC; the times of parallel threads are added.
    compile_us,
    /// Compilations that failed.
    failures,
    /// Kernels that another process was compiling, and that were then read from disk.
    awaited,
    /// Entries on disk that were damaged.
    damaged,
    /// Compiled kernels that could not be written to an existing directory.
    unsaved,
}

/// The level of an answer other than memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Disk,
    Awaited,
    Compiled,
}

impl Counters {
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    /// An answer from memory. It emits an event only if there is a subscriber.
    pub fn remembered(&self, kernel: &dyn Display, bytes: impl Fn() -> usize) {
        Self::add(&self.memory_hits, 1);
        tracing::trace!(target: EVENTS, level = "memory", %kernel, bytes = bytes(), ms = 0.0);
    }

    /// Neither in memory nor on disk.
    pub fn missed(&self, kernel: &dyn Display) {
        Self::add(&self.misses, 1);
        tracing::debug!(target: EVENTS, level = "miss", %kernel, bytes = 0, ms = 0.0);
    }

    /// Any other answer.
    pub fn answered(&self, from: Level, kernel: &dyn Display, cubin: &Cubin, ms: f64) {
        let level = match from {
            Level::Disk => {
                Self::add(&self.disk_hits, 1);
                "disk"
            }
            Level::Awaited => {
                Self::add(&self.disk_hits, 1);
                Self::add(&self.awaited, 1);
                "awaited"
            }
            Level::Compiled => {
                Self::add(&self.compiles, 1);
                Self::add(&self.compile_us, (ms * 1e3) as u64);
                "compiled"
            }
        };
        let info = &cubin.info;
        let (bytes, registers) = (cubin.bytes.len(), info.registers);
        tracing::debug!(target: EVENTS, level, %kernel, bytes, ms, architecture = %info.target, registers);
    }
}
