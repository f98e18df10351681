//! Means and variances that share a state, against their definition in `f64`.

use crate::rig::gpu;
use postlude::device::DeviceArgs;
use postlude::prelude::*;

/// Rows of one thread, a warp, a block, a cluster, and rows that are read again.
const ROWS: [[usize; 2]; 9] = [[33, 1], [9, 3], [65, 40], [20, 128], [7, 1000], [3, 4097], [4, 16384], [3, 65_536], [2, 100_000]];

/// Elements by row and column.
type Fill = fn(usize, usize) -> f32;

/// Mean and variance of each row, as a layer norm has them.
fn moments(fill: Fill, [m, n]: [usize; 2]) -> Option<Vec<[f32; 2]>> {
    let device = gpu()?;
    let epilogue = Epilogue::build(|e| {
        let mean = e.acc().mean_over(N);
        let centred = e.acc() - mean;
        e.store("mean", mean, F32.over(M).batched());
        e.store("variance", centred.mean_square_over(N), F32.over(M).batched());
        e.store("d", centred, F32);
    });
    let stream = device.context().new_stream().unwrap();
    let a: Vec<f32> = (0..m * n).map(|at| fill(at / n, at % n)).collect();
    let a = stream.clone_htod(&a).unwrap();
    let plan = Gemm::pointwise(F32, Order::RowMajor, &epilogue.unwrap()).plan(device, Shape::matrix(m, n)).unwrap();
    let run = || {
        let mut d = stream.alloc_zeros::<f32>(m * n).unwrap();
        let (mut mean, mut variance) = (stream.alloc_zeros::<f32>(m).unwrap(), stream.alloc_zeros::<f32>(m).unwrap());
        let args = DeviceArgs::new().input("a", &a).output("d", &mut d).output("mean", &mut mean);
        plan.execute(&stream, &mut args.output("variance", &mut variance)).unwrap();
        let [mean, variance] = [mean, variance].map(|of| stream.clone_dtoh(&of).unwrap());
        mean.into_iter().zip(variance).map(|(mean, variance)| [mean, variance]).collect::<Vec<_>>()
    };
    let first = run();
    let bits = |of: &[[f32; 2]]| of.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&first), bits(&run()), "they are the same each time");
    Some(first)
}

/// Compares moments of rows with their definition.
fn verify(shapes: &[[usize; 2]], fill: Fill) {
    for &shape in shapes {
        let Some(found) = moments(fill, shape) else { return };
        for (i, [mean, variance]) in found.into_iter().enumerate() {
            let row = || (0..shape[1]).map(|j| f64::from(fill(i, j)));
            let n = shape[1] as f64;
            let exact = row().sum::<f64>() / n;
            let squares = row().map(|x| (x - exact) * (x - exact)).sum::<f64>() / n;
            let [of_mean, of_squares] = [f64::from(mean) - exact, f64::from(variance) - squares];
            let near = of_mean.abs() <= 2e-7 * (exact.abs() + squares.sqrt()) && of_squares.abs() <= 3e-6 * squares;
            assert!(near, "row {i} of {shape:?}: {mean} and {variance}, not {exact} and {squares}");
        }
    }
}

/// A million and a little, which a sum of squares would lose; numbers around 0; and rows in which the first element of each
/// strip lies far from all others.
#[test]
fn variances_keep_their_digits() {
    let fills: [Fill; 3] = [
        |i, j| 1e6 + ((i * 31 + j * j * 7 + j * 3) % 64) as f32 * 0.25,
        |i, j| ((i * 31 + j * j * 7 + j * 3) % 1021) as f32 / 1021.0 - 0.5,
        |i, j| if j % 8 == 0 { 1000.0 } else { ((i + j * j) % 61) as f32 },
    ];
    fills.into_iter().for_each(|fill| verify(&ROWS, fill));
}

/// Rows that threads hold, in which the first element lies far from all others.
#[test]
fn a_far_first_element_costs_no_digit() {
    verify(&ROWS[..8], |i, j| if j == 0 { 1000.0 } else { ((i * 31 + j * j * 7 + j * 3) % 1021) as f32 / 1021.0 - 0.5 });
}

#[test]
fn equal_elements_have_no_variance() {
    for shape in ROWS {
        let Some(found) = moments(|i, _| 0.1 + i as f32, shape) else { return };
        for (i, moments) in found.into_iter().enumerate() {
            assert_eq!(moments, [0.1 + i as f32, 0.0], "row {i} of {shape:?}");
        }
    }
}

/// An infinite element is in the mean, and has no distance from it.
#[test]
fn infinities_have_no_variance() {
    let fills: [(Fill, f32); 4] = [
        (|_, j| if j == 0 { f32::INFINITY } else { 1.0 }, f32::INFINITY),
        (|_, j| if j % 40 == 39 { f32::NEG_INFINITY } else { 1.0 }, f32::NEG_INFINITY),
        (|_, j| [f32::INFINITY, 0.0, f32::NEG_INFINITY][j % 3], f32::NAN),
        (|_, j| if j % 30 == 7 { f32::NAN } else { 1.0 }, f32::NAN),
    ];
    for (shape, (fill, mean)) in ROWS[2..].iter().flat_map(|shape| fills.map(|fill| (*shape, fill))) {
        let Some(found) = moments(fill, shape) else { return };
        let same = |of: f32| of == mean || of.is_nan() && mean.is_nan();
        assert!(found.iter().all(|[of, variance]| same(*of) && variance.is_nan()), "{shape:?}: {found:?}, mean {mean}");
    }
}
