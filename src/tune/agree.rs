//! Whether two kernels computed the same result: to the bit, or within the rounding of another order.

use crate::dtype::{DType, ValueType};
use crate::parallel;
use std::ops::Range;

/// One element in so many may differ arbitrarily: a comparison or a cast in an epilogue may change sides at its
/// threshold.
const OUTLIERS: usize = 100_000;

/// Elements compared together: whole bytes of bit masks.
const CHUNK: usize = 4096;

/// Elements that a thread compares at a time.
const PIECE: usize = 256 * CHUNK;

/// The largest distance of two results, relative to the elements.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        // A little more than one unit in the last place: a sum in another order rounds differently.
        DType::F16 => 1.2e-3,
        DType::BF16 => 9e-3,
        // Sums in another order, and the epilogue's amplification of the difference.
        DType::F32 => 1e-4,
        DType::F64 => 1e-12,
        DType::E4M3 => 0.14,
        DType::E5M2 => 0.28,
        DType::I32 | DType::I8 | DType::U8 | DType::I4 | DType::U4 | DType::Bool | DType::Bits8 | DType::Bits128 => 0.0,
    }
}

/// How `got` differs from `expected` beyond rounding, if it does. Both have the same number of elements.
pub(crate) fn disagreement(dtype: DType, expected: &[u8], got: &[u8]) -> Option<String> {
    if expected == got {
        return None;
    }
    let count = dtype.elements(expected.len());
    let relative = tolerance(dtype);
    // Where K elements cancel, the rest is as uncertain as they were large.
    let absolute = if dtype.value_type() == ValueType::I32 { 1.0 } else { largest(dtype, expected) * relative / 8.0 };
    let differ = |x: f64, y: f64| {
        let same = x == y || (x.is_nan() && y.is_nan());
        let near = (x - y).abs() <= relative * x.abs().max(y.abs()) + absolute && x.is_finite() && y.is_finite();
        !same && !near
    };
    let pieces = in_pieces(count, |elements| {
        let (mut wrong, mut worst) = (0, None);
        let (mut x, mut y) = ([0.0; CHUNK], [0.0; CHUNK]);
        for (start, end) in chunks(elements) {
            let bytes = dtype.bytes(start)..dtype.bytes(end);
            if expected[bytes.clone()] == got[bytes] {
                continue;
            }
            let (x, y) = (&mut x[..end - start], &mut y[..end - start]);
            dtype.read_wide(expected, start, x);
            dtype.read_wide(got, start, y);
            for (i, (x, y)) in x.iter().zip(&*y).enumerate().filter(|(_, (x, y))| differ(**x, **y)) {
                wrong += 1;
                worst.get_or_insert((start + i, *x, *y));
            }
        }
        (wrong, worst)
    });
    let wrong: usize = pieces.iter().map(|(wrong, _)| wrong).sum();
    let (at, x, y) = pieces.into_iter().find_map(|(_, worst)| worst)?;
    (wrong > count / OUTLIERS).then(|| format!("{wrong} of {count} elements, the first at {at}: {y} for {x}"))
}

fn largest(dtype: DType, bytes: &[u8]) -> f64 {
    let of_piece = |elements| {
        let (mut largest, mut chunk) = (0f64, [0.0; CHUNK]);
        for (start, end) in chunks(elements) {
            let chunk = &mut chunk[..end - start];
            dtype.read_wide(bytes, start, chunk);
            largest = chunk.iter().filter(|x| x.is_finite()).fold(largest, |largest, x| largest.max(x.abs()));
        }
        largest
    };
    in_pieces(dtype.elements(bytes.len()), of_piece).into_iter().fold(0.0, f64::max)
}

/// What `work` says of each piece of some elements, on all cores: results have hundreds of megabytes.
fn in_pieces<T: Send>(count: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    parallel::map(count.div_ceil(PIECE), parallel::cores(), |at| work(at * PIECE..((at + 1) * PIECE).min(count)))
}

/// The chunks of some elements.
fn chunks(elements: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end = elements.end;
    elements.step_by(CHUNK).map(move |start| (start, (start + CHUNK).min(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{BF16, Bool, F16, F32, F64, I32};

    fn bytes(dtype: DType, elements: &[f64]) -> Vec<u8> {
        let mut bytes = vec![0; elements.len() * dtype.size()];
        elements.iter().enumerate().for_each(|(i, x)| dtype.write(&mut bytes, i, *x));
        bytes
    }

    fn wrong(dtype: DType, expected: &[f64], got: &[f64]) -> bool {
        disagreement(dtype, &bytes(dtype, expected), &bytes(dtype, got)).is_some()
    }

    #[test]
    fn rounding_is_forgiven_and_no_more() {
        for (dtype, near, far) in
            [(F16, 1.001, 1.003), (BF16, 1.0078125, 1.03), (F32, 1.00005, 1.0005), (F64, 1.0 + 5e-13, 1.0 + 1e-11)]
        {
            for scale in [1.0, 1024.0] {
                let wrong = |of: [f64; 2], got: [f64; 2]| wrong(dtype, &of.map(|x| x * scale), &got.map(|x| x * scale));
                assert!(!wrong([1.0, -3.0], [near, -3.0]), "{dtype}");
                assert!(wrong([1.0, -3.0], [far, -3.0]) && wrong([1.0, -3.0], [1.0, 3.0]), "{dtype}");
            }
        }
        assert!(!wrong(F32, &[1000.0, 0.0], &[1000.0, 0.01]), "cancellation");
        assert!(wrong(F32, &[1000.0, 0.0], &[1000.0, 0.02]));
        assert!(!wrong(I32, &[5.0, 7.0], &[5.0, 8.0]) && wrong(I32, &[5.0, 7.0], &[5.0, 9.0]));
        assert!(wrong(Bool, &[0.0, 1.0], &[1.0, 1.0]) && !wrong(Bool, &[0.0, 1.0], &[0.0, 1.0]));
    }

    #[test]
    fn what_is_no_number_has_to_be_none_in_both() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert!(!wrong(F32, &[nan, inf, 1.0], &[nan, inf, 1.00001]));
        for got in [[1.0, inf, 1.0], [nan, -inf, 1.0], [nan, 3e38, 1.0], [nan, inf, nan]] {
            assert!(wrong(F32, &[nan, inf, 1.0], &got), "{got:?}");
        }
    }

    #[test]
    fn a_few_thresholds_may_fall_the_other_way() {
        let expected = vec![0.0; 3 * OUTLIERS];
        let mut got = expected.clone();
        for (i, allowed) in [(0, true), (CHUNK + 1, true), (3 * OUTLIERS - 1, true), (77, false)] {
            got[i] = 1.0;
            assert_eq!(!wrong(Bool, &expected, &got), allowed, "{i}");
        }
        let text = disagreement(Bool, &bytes(Bool, &expected), &bytes(Bool, &got)).unwrap();
        assert_eq!(text, "4 of 300000 elements, the first at 0: 1 for 0");
    }

    #[test]
    fn several_threads_say_what_one_would() {
        let far = vec![0.0; PIECE + 3];
        let mut got = far.clone();
        (got[7], got[PIECE], got[PIECE + 2]) = (2.0, 3.0, 4.0);
        got[100..111].fill(1.0);
        let text = disagreement(F32, &bytes(F32, &far), &bytes(F32, &got)).unwrap();
        assert_eq!(text, format!("14 of {} elements, the first at 7: 2 for 0", PIECE + 3), "pieces on several threads");
    }
}
