//! Reductions inside the graph against plain loops in `f64`: axes, batches, stages that wait for each other, updates in place.

use crate::support::{Matrix, Numbers, POINTWISE};
use postlude::build::recipes::{self, Mask, Norm};
use postlude::ir::Order::{ColumnMajor, RowMajor};
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Operation, Tensor};

/// More rows and columns than a tile of the reference has, and entries.
const EXTENTS: [usize; 3] = [131, 270, 2];

fn matrix(seed: u64) -> Matrix {
    let mut numbers = Numbers(seed);
    Matrix::new(F32, RowMajor, EXTENTS, 3).filled(|_, _, _| numbers.between(-3.0, 3.0))
}

fn shape() -> Shape {
    Shape::matrix(EXTENTS[0], EXTENTS[1]).batched(EXTENTS[2])
}

/// A row of a matrix, as `f64`.
fn row(a: &Matrix, i: usize, l: usize) -> Vec<f64> {
    (0..a.extents[1]).map(|j| a.at(i, j, l)).collect()
}

/// D against a formula of a row, an element and its column.
fn check(
    epilogue: &Epilogue,
    bound: f64,
    args: impl FnOnce(HostArgs<'static>) -> HostArgs<'static>,
    f: impl Fn(&[f64], usize) -> f64,
) {
    let a = matrix(7);
    let mut d = Matrix::new(F32, RowMajor, EXTENTS, 1);
    let [mut mean, mut rstd, mut loss, mut scale] = [(); 4].map(|()| vec![0f32; EXTENTS[0] * EXTENTS[2]]);
    let mut given = args(HostArgs::new()).input("a", a.input()).output("d", d.output());
    for (name, room) in [("mean", &mut mean), ("rstd", &mut rstd), ("loss", &mut loss), ("row_scale", &mut scale)] {
        if epilogue.arguments().iter().any(|a| &*a.name == name) {
            given = given.output(name, &mut room[..]);
        }
    }
    run(POINTWISE, epilogue.checked(), shape(), given, Precision::F32).unwrap();
    for l in 0..EXTENTS[2] {
        for i in 0..EXTENTS[0] {
            let row = row(&a, i, l);
            for j in 0..EXTENTS[1] {
                let (got, exact) = (d.at(i, j, l), f(&row, j));
                assert!((got - exact).abs() <= bound * exact.abs().max(1.0), "{i} {j} {l}: {got}, not {exact}");
            }
        }
    }
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn exponentials(x: &[f64]) -> f64 {
    x.iter().map(|x| x.exp()).sum()
}

#[test]
fn recipes_follow_their_formulas() {
    let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    check(
        &recipes::softmax(Mask::None, F32).unwrap(),
        1e-6,
        |a| a.scalar("scale", 0.5f32),
        |x, j| (x[j] / 2.0).exp() / x.iter().map(|x| (x / 2.0).exp()).sum::<f64>(),
    );
    check(&recipes::log_softmax(Mask::None, F32).unwrap(), 1e-6, |a| a, |x, j| x[j] - exponentials(x).ln());
    check(
        &recipes::layer_norm(Norm::default(), F32).unwrap(),
        2e-6,
        |a| a,
        |x, j| {
            let variance = x.iter().map(|y| (y - mean(x)).powi(2)).sum::<f64>() / x.len() as f64;
            (x[j] - mean(x)) / (variance + 1e-5).sqrt()
        },
    );
    check(
        &recipes::rms_norm(Norm::default(), F32).unwrap(),
        1e-6,
        |a| a.scalar("epsilon", 0.25f32),
        |x, j| x[j] / (square(x) / x.len() as f64 + 0.25).sqrt(),
    );
    check(&recipes::l2_normalize(F32).unwrap(), 1e-6, |a| a, |x, j| x[j] / square(x).sqrt());
    check(
        &recipes::quantize_rows(F32).unwrap(),
        0.0,
        |a| a,
        |x, j| {
            let scale = (x.iter().fold(0f64, |m, x| m.max(x.abs())) / 127.0) as f32;
            f64::from((x[j] as f32 / scale).round_ties_even())
        },
    );
    static TARGET: [i32; EXTENTS[0] * EXTENTS[2]] = [5; EXTENTS[0] * EXTENTS[2]];
    check(
        &recipes::cross_entropy(F32).unwrap(),
        1e-6,
        |a| a.input("target", &TARGET[..]),
        |x, j| x[j].exp() / exponentials(x) - if j == 5 { 1.0 } else { 0.0 },
    );
}

#[test]
fn a_loss_and_an_index_are_vectors() {
    let a = Matrix::new(F32, RowMajor, [2, 3, 1], 0).filled(|i, j, _| [[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]][i][j]);
    let (target, mut loss, mut class, mut d) = ([2i32, 0], [0f32; 2], [0i32; 2], [0f32; 6]);
    let epilogue = recipes::cross_entropy(F32).unwrap();
    let args = HostArgs::new().input("a", a.input()).input("target", &target).output("loss", &mut loss).output("d", &mut d);
    run(POINTWISE, epilogue.checked(), Shape::matrix(2, 3), args, Precision::F32).unwrap();
    let exact = [exponentials(&[1.0, 3.0, 2.0]).ln() - 2.0, 3f64.ln()];
    assert!(loss.iter().zip(exact).all(|(got, exact)| (f64::from(*got) - exact).abs() < 1e-6), "{loss:?}, not {exact:?}");
    let args = HostArgs::new().input("a", a.input()).output("d", &mut class);
    run(POINTWISE, recipes::argmax().unwrap().checked(), Shape::matrix(2, 3), args, Precision::F32).unwrap();
    assert_eq!(class, [1, 0]);
}

/// Every axis, of matrices that vary along all of them, of one that the batch shares, and of a vector.
#[test]
fn reductions_go_over_their_axes_and_no_others() {
    let epilogue = Epilogue::build(|e| {
        let (x, shared, bias) = (e.acc(), e.load("shared", F32.over(M | N)), e.load("bias", F32.over(N)));
        e.store("rows", x.sum_over(N) + shared.sum_over(N), F32);
        e.store("columns", x.sum_over(M) + bias.sum_over(M), F32);
        e.store("all", x.sum_over(M | N) + bias.max_over(N), F32);
        e.store("entries", x.sum_over(L), F32.over(M | N));
        e.store("count", e.constant(1.0).sum_over(M | L), F32);
    });
    let [rows, columns, entries] = [5usize, 7, 3];
    let mut numbers = Numbers(3);
    let x = Matrix::new(F32, RowMajor, [rows, columns, entries], 0).filled(|_, _, _| numbers.small());
    let shared = Matrix::new(F32, RowMajor, [rows, columns, 1], 0).filled(|_, _, _| numbers.small());
    let bias: Vec<f32> = (0..columns).map(|_| numbers.small() as f32).collect();
    let [mut by_row, mut by_column, mut all, mut count] =
        [(); 4].map(|()| Matrix::new(F32, RowMajor, [rows, columns, entries], 0));
    let mut over_entries = Matrix::new(F32, RowMajor, [rows, columns, 1], 0);
    let args = HostArgs::new().input("a", x.input()).input("shared", Tensor::of_bytes(F32, &shared.bytes)).input("bias", &bias);
    let args = args.output("rows", by_row.output()).output("columns", by_column.output()).output("all", all.output());
    let args = args.output("entries", Tensor::of_bytes_mut(F32, &mut over_entries.bytes)).output("count", count.output());
    let shape = Shape::matrix(rows, columns).batched(entries);
    run(POINTWISE, epilogue.unwrap().checked(), shape, args, Precision::F32).unwrap();
    let sum = |i: &dyn Fn(usize) -> bool, j: &dyn Fn(usize) -> bool, l: &dyn Fn(usize) -> bool, m: &Matrix| {
        let mut sum = 0.0;
        for (a, b, c) in
            (0..m.extents[0]).flat_map(|a| (0..m.extents[1]).flat_map(move |b| (0..m.extents[2]).map(move |c| (a, b, c))))
        {
            sum += if i(a) && j(b) && l(c) { m.at(a, b, c) } else { 0.0 };
        }
        sum
    };
    let any = |_: usize| true;
    let largest = bias.iter().copied().fold(f32::MIN, f32::max);
    for l in 0..entries {
        for i in 0..rows {
            for (j, by_hand) in bias.iter().enumerate() {
                let [here_i, here_j, here_l] = [i, j, l].map(|here| move |at: usize| at == here);
                assert_eq!(by_row.at(i, j, l), sum(&here_i, &any, &here_l, &x) + sum(&here_i, &any, &any, &shared));
                assert_eq!(by_column.at(i, j, l), sum(&any, &here_j, &here_l, &x) + rows as f64 * f64::from(*by_hand));
                assert_eq!(all.at(i, j, l), sum(&any, &any, &here_l, &x) + f64::from(largest));
                assert_eq!(over_entries.at(i, j, 0), sum(&here_i, &here_j, &any, &x));
                assert_eq!(count.at(i, j, l), (rows * entries) as f64);
            }
        }
    }
}

/// Bands of columns and of rows, the last of which is shorter, with every monoid whose elements are one value.
#[test]
fn bands_come_to_one_result_each() {
    let [rows, columns, entries] = EXTENTS;
    let x = matrix(21);
    let shape = shape();
    for over in [N.bands(64), (M | N).bands(100), M.bands(7), (M | L).bands(131), (M | N | L).bands(271)] {
        let epilogue = Epilogue::build(|e| {
            let x = e.acc();
            e.store("mean", x.mean_over(over), F32);
            e.store("largest", x.max_over(over), F32);
            e.store("count", x.gt(0.0).count_over(over), I32);
        });
        let epilogue = epilogue.unwrap();
        assert_eq!(epilogue.to_string().parse::<Epilogue>().unwrap().to_string(), epilogue.to_string());
        assert_eq!(Epilogue::from_json(&epilogue.to_json(), &postlude::build::registry()).unwrap(), epilogue);
        let [mut mean, mut largest] = [(); 2].map(|()| Matrix::new(F32, RowMajor, EXTENTS, 0));
        let mut count = Matrix::new(I32, RowMajor, EXTENTS, 0);
        let args = HostArgs::new().input("a", x.input()).output("mean", mean.output());
        let args = args.output("largest", largest.output()).output("count", count.output());
        run(POINTWISE, epilogue.checked(), shape, args, Precision::F32).unwrap();
        let range = |axis: postlude::ir::Axes, at: usize, extent: usize| match over.band {
            _ if !over.axes.contains(axis) => at..at + 1,
            Some((of, width)) if of == axis => at / width * width..extent.min((at / width + 1) * width),
            _ => 0..extent,
        };
        for (i, j, l) in [(0, 0, 0), (130, 269, 1), (77, 100, 0), (6, 199, 1), (7, 63, 1), (64, 256, 0)] {
            let (of_m, of_n, of_l) = (range(M, i, rows), range(N, j, columns), range(L, l, entries));
            let mut elements = Vec::new();
            for (i, j, l) in of_m.flat_map(|i| {
                of_n.clone().flat_map({
                    let of_l = of_l.clone();
                    move |j| of_l.clone().map(move |l| (i, j, l))
                })
            }) {
                elements.push(x.at(i, j, l));
            }
            let exact = elements.iter().sum::<f64>() / elements.len() as f64;
            assert!((mean.at(i, j, l) - exact).abs() < 1e-5, "{over} {i} {j} {l}: {}, not {exact}", mean.at(i, j, l));
            assert_eq!(largest.at(i, j, l), elements.iter().copied().fold(f64::MIN, f64::max), "{over} {i} {j} {l}");
            assert_eq!(count.at(i, j, l), elements.iter().filter(|x| **x > 0.0).count() as f64, "{over} {i} {j} {l}");
        }
    }
    let refused = Epilogue::build(|e| e.store("d", e.acc().sum_over(N.bands(0)), F32)).unwrap_err().to_string();
    assert!(refused.contains("E0207") && refused.contains("N.bands(64)"), "{refused}");
}

/// A group norm against plain loops, with and without groups of one column.
#[test]
fn groups_of_columns_are_normalised() {
    let [rows, columns, entries] = EXTENTS;
    let x = matrix(22);
    let (weight, bias): (Vec<f32>, Vec<f32>) = (0..columns).map(|j| (1.0 + j as f32 / 64.0, j as f32 / 8.0)).unzip();
    for group in [1, 27, 64] {
        let epilogue = recipes::group_norm(group, Norm { weights: Some(F32), residual: None }, F32).unwrap();
        let mut d = Matrix::new(F32, RowMajor, EXTENTS, 0);
        let [mut means, mut rstds] = [(); 2].map(|()| vec![0f32; columns * entries]);
        let args = HostArgs::new().input("a", x.input()).input("weight", &weight).input("bias", &bias).output("d", d.output());
        let args = args.scalar("epsilon", 0.25f32).output("mean", &mut means).output("rstd", &mut rstds);
        run(POINTWISE, epilogue.checked(), shape(), args, Precision::F32).unwrap();
        for l in 0..entries {
            for first in (0..columns).step_by(group) {
                let of_group = first..columns.min(first + group);
                let all: Vec<f64> =
                    (0..rows).flat_map(|i| of_group.clone().map(move |j| (i, j))).map(|(i, j)| x.at(i, j, l)).collect();
                let centre = mean(&all);
                let variance = mean(&all.iter().map(|x| (x - centre).powi(2)).collect::<Vec<_>>());
                let rstd = 1.0 / (variance + 0.25).sqrt();
                for j in of_group {
                    assert!((f64::from(means[l * columns + j]) - centre).abs() < 1e-5);
                    assert!((f64::from(rstds[l * columns + j]) - rstd).abs() < 1e-5);
                    for i in [0, 70, rows - 1] {
                        let exact = (x.at(i, j, l) - centre) * rstd * f64::from(weight[j]) + f64::from(bias[j]);
                        assert!((d.at(i, j, l) - exact).abs() < 1e-4, "{group} {i} {j} {l}: {}, not {exact}", d.at(i, j, l));
                    }
                }
            }
        }
    }
}

/// Results are of what was there before anything was written.
#[test]
fn an_update_in_place_reduces_what_it_replaces() {
    let epilogue = Epilogue::build(|e| {
        let x = e.load("x", F32);
        e.store("x", x - x.mean_over(N), F32);
    });
    let mut x = matrix(9);
    let before = x.clone();
    let args = HostArgs::new().output("x", x.output());
    run(POINTWISE, epilogue.unwrap().checked(), shape(), args, Precision::F32).unwrap();
    for (i, l) in [(0, 0), (130, 1)] {
        let row = row(&before, i, l);
        assert!((0..EXTENTS[1]).all(|j| (x.at(i, j, l) - (row[j] - mean(&row))).abs() < 1e-5));
    }
}

/// The transposed epilogue over the transposed matrix gives the same, and so does the text read back.
#[test]
fn transposing_exchanges_the_axes() {
    let epilogue = recipes::softmax(Mask::Causal, F32).unwrap();
    let turned = postlude::pass::transpose(epilogue.checked());
    assert!(turned.graph().nodes().any(|(_, node)| matches!(node, postlude::ir::Node::Reduce { over, .. } if over.axes == M)));
    assert_eq!(&postlude::pass::transpose(&turned), epilogue.checked());
    let a = matrix(11);
    let [mut d, mut t] = [RowMajor, ColumnMajor].map(|order| match order {
        RowMajor => Matrix::new(F32, order, EXTENTS, 0),
        ColumnMajor => Matrix::new(F32, order, [EXTENTS[1], EXTENTS[0], EXTENTS[2]], 0),
    });
    let args = HostArgs::new().input("a", a.input()).output("d", d.output());
    run(POINTWISE, epilogue.checked(), shape(), args, Precision::F32).unwrap();
    let args = HostArgs::new().input("a", a.input()).output("d", t.output());
    let operation = Operation::Pointwise { dtype: F32, order: ColumnMajor };
    run(operation, &turned, shape().transposed(), args, Precision::F32).unwrap();
    assert!(d.bytes == t.bytes);
    assert_eq!(d.at(0, 0, 0), 1.0);
    assert_eq!(d.at(0, 1, 0), 0.0);
}

#[test]
fn results_of_nothing_are_identities() {
    let epilogue = Epilogue::build(|e| {
        let x = e.acc();
        e.reduce("least", x.max_over(M | L), Monoid::Min, F32.over(N));
        e.store("d", x, F32);
    });
    let mut least = [0f32; 2];
    let (a, mut d): ([f32; 0], [f32; 0]) = ([], []);
    let args = HostArgs::new().input("a", &a[..]).output("least", &mut least).output("d", &mut d[..]);
    run(POINTWISE, epilogue.unwrap().checked(), Shape::matrix(0, 2), args, Precision::F32).unwrap();
    assert_eq!(least, [f32::INFINITY; 2]);
}

/// The places of the k largest, as a sort of the row gives them: NaN first, and the smaller column first among equals.
fn sorted(row: &[f64], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    let key = |place: &usize| (!row[*place].is_nan(), if row[*place].is_nan() { 0.0 } else { -row[*place] });
    places.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap());
    places.truncate(k);
    places
}

#[test]
fn the_largest_of_rows_are_those_of_a_sort() {
    const ROWS: usize = 40;
    let mut numbers = Numbers(5);
    for (columns, k) in [(1, 1), (1, 3), (7, 2), (64, 8), (300, 32), (5, 5), (6, 9)] {
        // Few values, so that there are equals; rows of nothing but minus infinity, and of NaN.
        let any = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, 1.0, 1.5, -2.0, 3e38, -3e38, 1e-40];
        let element = |i: usize, x: f64| match i % 5 {
            0 => f32::NEG_INFINITY,
            1 => x as f32,
            2 => [f32::NAN, 1.0][usize::from(x > 0.0)],
            _ => any[(x.abs() * 1e4) as usize % any.len()],
        };
        let a: Vec<f32> = (0..ROWS * columns).map(|at| element(at / columns, numbers.between(-3.0, 3.0))).collect();
        let (mut values, mut indices) = (vec![vec![0f32; ROWS]; k], vec![vec![0i32; ROWS]; k]);
        let names: Vec<[String; 2]> = (0..k).map(|i| [format!("value{i}"), format!("index{i}")]).collect();
        let mut args = HostArgs::new().input("a", &a);
        for (names, (values, indices)) in names.iter().zip(values.iter_mut().zip(&mut indices)) {
            args = args.output(&names[0], &mut values[..]).output(&names[1], &mut indices[..]);
        }
        let epilogue = recipes::top_k(k).unwrap();
        Gemm::pointwise(F32, RowMajor, &epilogue).reference(Shape::matrix(ROWS, columns), args).unwrap();
        let mut d = vec![0f32; ROWS * columns];
        let chosen = Epilogue::build(|e| e.store("d", e.acc().top_k_over(N, k).selected.select(1.0, 0.0), F32)).unwrap();
        let args = HostArgs::new().input("a", &a).output("d", &mut d);
        Gemm::pointwise(F32, RowMajor, &chosen).reference(Shape::matrix(ROWS, columns), args).unwrap();
        for i in 0..ROWS {
            let row: Vec<f64> = a[i * columns..][..columns].iter().map(|x| f64::from(*x)).collect();
            let places = sorted(&row, k);
            for rank in 0..k {
                let (index, value) = places.get(rank).map_or((-1, f64::NEG_INFINITY), |at| (*at as i32, row[*at]));
                assert_eq!(indices[rank][i], index, "row {i}, rank {rank}: {row:?}");
                let got = f64::from(values[rank][i]);
                assert!(got == value || got.is_nan() && value.is_nan(), "row {i}, rank {rank}: {got}, not {value}");
            }
            for j in 0..columns {
                assert_eq!(d[i * columns + j] == 1.0, places.contains(&j), "row {i}, column {j}: {row:?}");
            }
        }
    }
}

#[test]
fn shares_of_the_largest_sum_to_one() {
    for k in [1, 2, 5] {
        check(
            &recipes::top_k_softmax(k, F32).unwrap(),
            1e-6,
            |args| args,
            |row, j| {
                let places = sorted(row, k);
                let sum: f64 = places.iter().map(|at| row[*at].exp()).sum();
                if places.contains(&j) { row[j].exp() / sum } else { 0.0 }
            },
        );
    }
    // The largest of a column are found like those of a row. Elements along both axes have no order.
    let turned = Epilogue::build(|e| e.store("d", e.acc().top_k_over(M, 2).selected.select(e.acc(), 0.0), F32)).unwrap();
    let (a, mut d) = ([1f32, 9.0, 3.0, 2.0, 2.0, 8.0], [0f32; 6]);
    let args = HostArgs::new().input("a", &a).output("d", &mut d);
    Gemm::pointwise(F32, RowMajor, &turned).reference(Shape::matrix(3, 2), args).unwrap();
    assert_eq!(d, [0.0, 9.0, 3.0, 0.0, 2.0, 8.0]);
    assert!(Epilogue::build(|e| e.store("d", e.acc().top_k_over(M | N, 2).values[0], F32.pointer())).is_err());
    assert!(Epilogue::build(|e| e.store("d", e.acc().top_k_over(N, 0).selected.select(1.0, e.acc()), F32)).is_ok());
}
