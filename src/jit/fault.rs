//! What goes wrong and costs only time. Each kind of it is said aloud once in the life of a cache, and after that as a debug event: a
//! full disk is full for every kernel, and hides no damaged file.

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
    /// A file is there and cannot be read.
    Unreadable = "a cached file cannot be read",
    /// Somebody else may have put a file there, or may change it.
    Untrusted = "a cached file is not used, for somebody else may have put it there",
    /// A folder lies in the place of a file.
    InTheWay = "a folder lay in the place of a cached file",
    /// A file is not what it should be.
    Damaged = "a cached file is damaged; where it can be written it is removed and made again",
    /// A file cannot be written: the disk is full, or somebody else's.
    Unwritable = "a file cannot be cached",
    /// A file cannot be removed.
    Unremovable = "a cached file cannot be removed",
    /// A lock cannot be had, so several processes may compile the same kernel.
    Unlocked = "a lock cannot be used; other processes may compile the same kernels",
    /// A lock is held for longer than there is patience.
    Slow = "another process takes long to compile a kernel; it is compiled here too",
    /// The directory cannot be swept.
    Unswept = "the directory cannot be swept",
    /// The directory is swept without a lock, so perhaps by several at once.
    Crowded = "the lock for sweeping cannot be used; the directory is swept without",
    /// There is no compiler.
    NoCompiler = "there is no compiler; kernels that another one has made are used",
    /// A note says of a compiler what is not true.
    Mistaken = "a note beside the cached kernels named another compiler than the one that is there; it is replaced",
    /// NVRTC compiled a kernel, and did not tell what it needs.
    Unmeasured = "the compiler did not report registers and spills",
    /// The driver refused a kernel from disk.
    Refused = "a cached kernel was refused by the driver; it is compiled again",
    /// The driver refused a kernel from disk, and nothing can be compiled.
    Older = "a cached kernel was refused by the driver; one from an older compiler is used",
    /// A record of tuning is not what it should be.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Record = "what tuning found earlier cannot be read; it is ignored",
    /// A record of tuning is of no use any more.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Outdated = "what tuning found earlier does not fit the problem any more; it is ignored",
    /// A tuned kernel does not compile any more.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels is tuned"))]
    Untuned = "what tuning found earlier does not compile any more; the estimate's choice is used",
}

impl Display for CacheFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// The kinds that were said aloud.
#[derive(Debug, Default)]
pub(crate) struct Faults(AtomicU32);

impl Faults {
    /// Says what happened to what: aloud, if it is the first of its kind.
    pub fn report(&self, fault: CacheFault, what: &dyn Display, why: &dyn Display) {
        let bit = 1 << fault as u32;
        if self.0.fetch_or(bit, Relaxed) & bit == 0 {
            tracing::warn!(%what, %why, "{fault}; this is said only once");
            if fault == CacheFault::Untrusted {
                unheard(&format_args!("{fault}: {why}"));
            }
        } else {
            tracing::debug!(%what, %why, "{fault}");
        }
    }
}

/// Says on standard error, once in the life of the process, what no subscriber of `tracing` hears on this thread. It is for kernels
/// that are refused: without a word every start would compile them again, and nobody would know why.
pub(super) fn unheard(text: &dyn Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !tracing::dispatcher::get_default(|listener| listener.is::<tracing::subscriber::NoSubscriber>()) {
        return;
    }
    let text = text.to_string();
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
        // Where standard error is closed there is nobody to tell.
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
