//! The same work for many items, on many threads.

use crate::reference::side_by_side;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of threads that the machine offers to a process.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The results of `work` for each number below `count`, in order. The calls begin in order, on `threads` threads,
/// including this one.
pub(super) fn map<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
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
