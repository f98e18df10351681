//! What a cache has done so far.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a [`Cache`](super::Cache) has done so far.
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
    /// Microseconds that NVRTC took for them; those of threads side by side are added.
    compile_us,
    /// Compilations that failed.
    failures,
    /// Kernels that another process was compiling, and that were read from disk after it.
    awaited,
    /// Entries on disk that were damaged.
    damaged,
    /// Compiled kernels that could not be written to disk although there is a directory.
    unsaved,
}

impl Counters {
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }
}
