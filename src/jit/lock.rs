//! One process compiles, the others wait for its file.
//!
//! A lock saves work and decides nothing. A process that does not get one compiles as well, and the results are the
//! same: the file system may have no locks, or the holder may take too long. The system drops the lock of a process
//! that ends, however it ends. Keys that begin with the same three digits share a lock. So there are at most 4096
//! files, and threads that compile different kernels rarely meet. The files are never removed, because a lock on a file
//! without a name would exclude nobody.

use super::fault::CacheFault;
use super::key::CacheKey;
use super::layout::LOCKS;
use super::store::Store;
use std::fs::{File, TryLockError};
use std::time::{Duration, Instant};

/// The number of a key's digits that name its lock.
const DIGITS: usize = 3;

/// The outcome of waiting for the right to compile.
pub(super) enum Turn<T> {
    /// This process compiles. The others wait as long as the file is held. Without a file they do not know.
    Ours(Option<File>),
    /// Another process has compiled it.
    Done(T),
}

/// Waits for the turn to compile `key`, or until `look` finds the kernel, or until `patience` ends.
pub(super) fn turn<T>(store: &Store, key: &CacheKey, patience: Duration, mut look: impl FnMut() -> Option<T>) -> Turn<T> {
    if patience.is_zero() || !store.writable() {
        return Turn::Ours(None);
    }
    let path = store.folder(LOCKS).join(&key.to_string()[..DIGITS]);
    let file = match store.hold(&path) {
        Ok(file) => file,
        Err(error) => {
            store.report_error(CacheFault::Unlocked, &path, &error);
            return Turn::Ours(None);
        }
    };
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    let mut waited = false;
    loop {
        match file.try_lock() {
            // Another process may have finished between the last look and now.
            Ok(()) => return look().map_or(Turn::Ours(Some(file)), Turn::Done),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                store.report(CacheFault::Unlocked, &path, &error);
                return Turn::Ours(None);
            }
        }
        // The holder may now work on another key of the same lock.
        if let (true, Some(done)) = (waited, look()) {
            return Turn::Done(done);
        }
        if start.elapsed() >= patience {
            store.report(CacheFault::Slow, &path, &format_args!("{key} is not there after {patience:?}"));
            return Turn::Ours(None);
        }
        std::thread::sleep(pause.min(patience.saturating_sub(start.elapsed())));
        waited = true;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = CacheKey::for_test(7);
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn one_turn_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("cache"), true).unwrap();
        let nothing = || None::<()>;
        let Turn::Ours(Some(held)) = turn(&store, &KEY, LONG, nothing) else { panic!("a new lock") };
        assert!(matches!(turn(&store, &CacheKey::for_test(8), LONG, nothing), Turn::Ours(Some(_))), "another byte");
        assert!(matches!(turn(&store, &KEY, Duration::from_millis(30), nothing), Turn::Ours(None)), "patience ends");
        let mut looks = 0;
        let done = turn(&store, &KEY, LONG, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert!(matches!(done, Turn::Done(3)), "somebody writes it meanwhile");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| matches!(turn(&store, &KEY, LONG, nothing), Turn::Ours(Some(_))));
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
            assert!(waiting.join().unwrap());
        });
        assert!(matches!(turn(&store, &KEY, LONG, || Some(1)), Turn::Done(1)), "done before it was our turn");
    }

    #[test]
    fn no_lock_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("cache"), true).unwrap();
        assert!(matches!(turn(&store, &KEY, Duration::ZERO, || Some(1)), Turn::Ours(None)));
        assert!(!store.folder(LOCKS).exists());
        std::fs::create_dir_all(store.folder(LOCKS).join("070")).unwrap();
        assert!(matches!(turn(&store, &KEY, LONG, || Some(1)), Turn::Ours(None)), "a directory in its place");
        let reader = Store::open(store.root(), false).unwrap();
        assert!(matches!(turn(&reader, &KEY, LONG, || Some(1)), Turn::Ours(None)));
    }
}
