//! How what a launch writes lies in memory.

use crate::dtype::DType;

/// An output.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub dtype: DType,
    /// From the first to the last, gaps between runs included.
    pub elements: usize,
    pub runs: StridedRuns,
}

/// `outer` runs of `inner` elements for each of `entries` batch entries.
#[derive(Clone, Copy)]
pub(super) struct StridedRuns {
    pub inner: usize,
    pub outer: usize,
    pub ld: usize,
    pub entries: usize,
    pub batch_stride: usize,
}

impl Written {
    /// The elements without the gaps between runs. A launch does not write the gaps, which belong to the user.
    pub fn without_gaps(&self, bytes: Vec<u8>) -> Vec<u8> {
        let StridedRuns { inner, outer, ld, entries, batch_stride } = self.runs;
        let run = self.dtype.bytes(inner);
        let all = run * outer * entries;
        if all == bytes.len() {
            return bytes;
        }
        let mut packed = Vec::with_capacity(all);
        for first in (0..entries).flat_map(|entry| (0..outer).map(move |line| entry * batch_stride + line * ld)) {
            let at = self.dtype.bytes(first);
            packed.extend_from_slice(&bytes[at..at + run]);
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_runs_is_left_out() {
        let lies = |dtype, elements, runs| Written { dtype, elements, runs };
        let bytes: Vec<u8> = (0..20).collect();
        // Two entries of two rows of three, at a leading dimension of 4 and a batch stride of 10; from first to last 17.
        let runs = StridedRuns { inner: 3, outer: 2, ld: 4, entries: 2, batch_stride: 10 };
        let packed = lies(DType::Bool, 17, runs).without_gaps(bytes[..17].to_vec());
        assert_eq!(packed, [0, 1, 2, 4, 5, 6, 10, 11, 12, 14, 15, 16]);
        // Rows of ten bits begin at every third byte.
        let runs = StridedRuns { inner: 10, outer: 3, ld: 24, entries: 1, batch_stride: 0 };
        assert_eq!(lies(DType::Bits8, 58, runs).without_gaps(bytes[..8].to_vec()), [0, 1, 3, 4, 6, 7]);
        let runs = StridedRuns { inner: 4, outer: 5, ld: 4, entries: 1, batch_stride: 20 };
        assert_eq!(lies(DType::Bool, 20, runs).without_gaps(bytes.clone()), bytes);
        assert!(lies(DType::F32, 0, StridedRuns { inner: 0, ..runs }).without_gaps(Vec::new()).is_empty());
    }
}
