//! Faults that cost only time. Each kind is a warning once in the life of a cache, and after that a debug event: a full
//! disk affects every kernel, and hides no damaged file.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum CacheFault {
            $($(#[$doc])* $name,)*
        }

        impl CacheFault {
            #[cfg(test)]
            const ALL: &[CacheFault] = &[$(CacheFault::$name),*];

            fn text(self) -> &'static str {
                match self {
                    $(CacheFault::$name => $text,)*
                }
            }
        }
    };
}

faults! {
    /// A file exists but cannot be read.
    Unreadable = "a cached file cannot be read",
    /// Another user may have put a file there, or may change it.
    Untrusted = "a cached file is not used, because another user may have put it there",
    /// A folder occupies the place of a file.
    InTheWay = "a folder lay in the place of a cached file",
    /// A file is damaged.
    Damaged = "a cached file is damaged; where it can be written it is removed and made again",
    /// A file cannot be written: the disk is full, or belongs to another user.
    Unwritable = "a file cannot be cached",
    /// A file cannot be removed.
    Unremovable = "a cached file cannot be removed",
    /// A lock cannot be taken, so several processes may compile the same kernel.
    Unlocked = "a lock cannot be used; other processes may compile the same kernels",
    /// A lock is held for longer than the patience.
    Slow = "another process takes long to compile a kernel; it is compiled here too",
    /// The directory cannot be swept.
    Unswept = "the cache directory cannot be swept",
    /// The directory is swept without a lock, so possibly by several processes at once.
    Crowded = "the lock for sweeping cannot be used; the cache directory is swept without it",
    /// There is no compiler.
    NoCompiler = "there is no compiler; kernels of other compilers are used",
    /// A note names a wrong compiler.
    Mistaken = "a note beside the cached kernels named another compiler than the present one; it is replaced",
    /// NVRTC compiled a kernel without reporting its registers.
    Unmeasured = "the compiler did not report registers and spills",
    /// The driver rejected a kernel from disk.
    Refused = "the driver rejected a cached kernel; it is compiled again",
    /// The driver rejected a kernel from disk, and nothing can be compiled.
    Older = "the driver rejected a cached kernel; one from an older compiler is used",
    /// A tuning record is damaged.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Record = "a tuning record cannot be read; it is ignored",
    /// A tuning record does not fit any more.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Outdated = "a tuning record does not fit the problem any more; it is ignored",
    /// A tuned kernel no longer compiles.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Untuned = "a tuning record's kernel does not compile any more; the estimate's choice is used",
}

impl Display for CacheFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// The kinds that have been warned about.
#[derive(Debug, Default)]
pub(crate) struct Faults(AtomicU32);

impl Faults {
    /// Reports a fault. The first of its kind is a warning.
    pub fn report(&self, fault: CacheFault, what: &dyn Display, why: &dyn Display) {
        let bit = 1 << fault as u32;
        if self.0.fetch_or(bit, Relaxed) & bit == 0 {
            tracing::warn!(%what, %why, "{fault}; further cases are debug events");
            if fault == CacheFault::Untrusted {
                unheard(&format_args!("{fault}: {why}"));
            }
        } else {
            tracing::debug!(%what, %why, "{fault}");
        }
    }
}

/// Prints a message on standard error, once in the life of the process, if no `tracing` subscriber hears it on this
/// thread. It serves rejected kernels: without a message every start would silently compile them again.
pub(super) fn unheard(text: &dyn Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !tracing::dispatcher::get_default(|listener| listener.is::<tracing::subscriber::NoSubscriber>()) {
        return;
    }
    let text = text.to_string();
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
        // If standard error is closed, nothing can be reported.
        let _ = writeln!(std::io::stderr(), "postlude: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_bit_and_its_words() {
        assert!(CacheFault::ALL.len() <= u32::BITS as usize);
        for (at, fault) in CacheFault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, at);
            assert!(CacheFault::ALL[..at].iter().all(|other| other.text() != fault.text()), "{fault}");
        }
    }
}
