//! The same work on several threads: for all threads alike, for many items, or for pieces of many buffers.

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

/// A buffer that threads fill piece by piece.
pub(crate) struct Buffer<'a> {
    pub bytes: &'a mut [u8],
    /// The bytes of a unit, which no piece cuts. Not zero.
    pub unit: usize,
}

/// Fills buffers in pieces of whole units, on as many threads as pay. `work` gets the number of the buffer, the number of
/// units before the piece, and the piece.
pub(crate) fn in_pieces(buffers: Vec<Buffer<'_>>, work: impl Fn(usize, usize, &mut [u8]) + Sync) {
    /// A thread takes longer to start than to fill much less.
    const PIECE: usize = 1 << 17;
    let bytes: usize = buffers.iter().map(|buffer| buffer.bytes.len()).sum();
    let pieces = buffers.into_iter().enumerate().flat_map(|(index, Buffer { bytes, unit })| {
        let units = (PIECE / unit).max(1);
        bytes.chunks_mut(units * unit).enumerate().map(move |(at, piece)| (index, at * units, piece))
    });
    let pieces = Mutex::new(pieces);
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    side_by_side(cores().min(bytes / PIECE), || {
        while let Some((buffer, first, piece)) = next() {
            work(buffer, first, piece);
        }
    });
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
    fn pieces_are_whole_units_and_cover_every_buffer() {
        let units = [3, 1 << 18, 1, 2];
        let mut buffers: Vec<Vec<u8>> = [300_000, 1 << 19, 0, 2].iter().map(|bytes| vec![0; *bytes]).collect();
        let work = |buffer: usize, first: usize, piece: &mut [u8]| {
            assert_eq!(piece.len() % units[buffer], 0);
            for (at, unit) in piece.chunks_mut(units[buffer]).enumerate() {
                unit.iter_mut().for_each(|byte| *byte += (buffer + first + at) as u8 | 1);
            }
        };
        let given = buffers.iter_mut().zip(units).map(|(bytes, unit)| Buffer { bytes, unit }).collect();
        in_pieces(given, work);
        for (buffer, (bytes, unit)) in buffers.iter().zip(units).enumerate() {
            for (at, unit) in bytes.chunks(unit).enumerate() {
                assert!(unit.iter().all(|byte| *byte == (buffer + at) as u8 | 1), "unit {at} of buffer {buffer}");
            }
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
