//! The same work on several threads.

use std::thread::{self, Builder};

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
}
