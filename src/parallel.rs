//! The same work on several threads: for all threads alike, for many items, or two works side by side.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder};

/// The number of threads that the machine offers to a process. It reads files the first time.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Runs the same work on `threads` threads, including this one, or on fewer if the system has no more.
pub(crate) fn side_by_side(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..threads {
            if Builder::new().spawn_scoped(scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// The results of two different works: one on a thread of its own, or first if the system has no more, and one on this thread.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what loads kernels copies beside it"))]
pub(crate) fn both<A: Send, B>(beside: impl Fn() -> A + Sync, here: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| match Builder::new().spawn_scoped(scope, &beside) {
        Ok(other) => {
            let own = here();
            (other.join().unwrap_or_else(|panic| resume_unwind(panic)), own)
        }
        Err(_) => (beside(), here()),
    })
}

/// The results of `work` for each number below `count`, in order. The calls begin in order, on `threads` threads,
/// including this one.
#[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "only what compiles has so many items"))]
pub(crate) fn map<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((0..count).map(|_| None).collect::<Vec<Option<T>>>());
    let run = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            let made = work(at);
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(made);
        }
    };
    side_by_side(threads.min(count), run);
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_works_run_beside_each_other() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Mutex::new(receiver);
        let main = thread::current().id();
        let (other, own) = both(
            || (receiver.lock().unwrap().recv().unwrap(), thread::current().id() == main),
            || {
                // The other waits for this.
                sender.send(7).unwrap();
                "here"
            },
        );
        assert_eq!((other, own), ((7, false), "here"));
    }

    #[test]
    fn every_thread_works_and_one_does_for_none() {
        for (threads, runs) in [(0, 1), (1, 1), (4, 4)] {
            let count = AtomicUsize::new(0);
            side_by_side(threads, || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), runs);
        }
    }

    #[test]
    fn results_are_in_order_and_complete() {
        for (count, threads) in [(0, 4), (1, 4), (100, 1), (100, 7), (3, 0)] {
            assert_eq!(map(count, threads, |at| at * at), (0..count).map(|at| at * at).collect::<Vec<_>>());
        }
    }

    #[test]
    fn threads_work_side_by_side() {
        let meet = std::sync::Barrier::new(3);
        assert_eq!(map(3, 3, |_| meet.wait().is_leader()).into_iter().filter(|leader| *leader).count(), 1);
    }
}
