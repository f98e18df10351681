//! Kernels that use what their rows come to: rows that a warp holds, a block holds and nobody holds, however they lie;
//! and behind products.

use crate::case::Case;
use postlude::build::recipes::{self, Mask, Norm};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{DType, Epilogue, Gemm};

/// Runs everything on threads of their own, since compiling takes the time.
fn run_all(cases: &[Case]) {
    let failures = std::thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

/// Sums of thousands of terms in another order, and exponentials of what is less by such a sum.
const SLACK: f64 = 40.0;

fn forward(d: DType) -> Vec<Epilogue> {
    let norm = Norm { weights: Some(d), residual: Some(d) };
    let all = [
        recipes::softmax(Mask::Loaded(Bits8), d),
        recipes::log_softmax(Mask::None, d),
        recipes::layer_norm(norm, d),
        recipes::rms_norm(Norm { residual: None, ..norm }, d),
        recipes::l2_normalize(d),
    ];
    all.into_iter().map(|recipe| recipe.unwrap()).collect()
}

/// Scalars that are left out, but for that one which keeps norms of random rows apart from 0.
fn case(gemm: &Gemm, shape: Shape) -> Case {
    let case = Case::new(gemm, shape).slack(SLACK);
    let has = |name: &str| gemm.epilogue().arguments().iter().any(|a| &*a.name == name);
    let case = if has("epsilon") { case.scalar("epsilon", 0.125f32) } else { case };
    if has("scale") { case.scalar("scale", 0.5f32) } else { case }
}

/// From one element to more than a block holds, and rows that end inside of a strip.
const ROWS: [[usize; 2]; 10] =
    [[33, 1], [257, 40], [100, 128], [65, 1000], [40, 4096], [3, 4097], [5, 16384], [2, 33001], [1, 100_000], [9, 65536]];

#[test]
fn rows_of_every_length() {
    let mut cases = Vec::new();
    for (i, d) in [F16, BF16, F32].into_iter().enumerate() {
        for (j, epilogue) in forward(d).into_iter().enumerate() {
            for [m, n] in ROWS.into_iter().skip((i + j) % 3).step_by(3) {
                cases.push(case(&Gemm::pointwise(d, Order::RowMajor, &epilogue), Shape::matrix(m, n)));
            }
        }
    }
    run_all(&cases);
}

/// What is loaded is exact, and so is its order.
#[test]
fn the_largest_of_rows() {
    let mut cases = Vec::new();
    for (d, k) in [(F16, 2), (BF16, 8), (F32, 4)] {
        for epilogue in [recipes::top_k(k), recipes::top_k_softmax(k, d)].map(Result::unwrap) {
            cases.extend(ROWS.map(|[m, n]| case(&Gemm::pointwise(d, Order::RowMajor, &epilogue), Shape::matrix(m, n))));
        }
    }
    run_all(&cases);
}

#[test]
fn rows_that_lie_anyhow() {
    let mut cases = Vec::new();
    for (i, epilogue) in forward(F16).into_iter().enumerate() {
        let gemm = Gemm::pointwise(F16, [Order::RowMajor, Order::ColumnMajor][i % 2], &epilogue);
        let shape = Shape::matrix(37, 520).batched(3);
        cases.push(case(&gemm, shape));
        cases.push(case(&gemm, shape).ld("a", 523).ld("d", 531).batch_stride("d", 531 * 40));
        cases.push(case(&gemm, shape).offset("a", 1).offset("d", 3));
    }
    let turned = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F16.column_major())).unwrap();
    cases.push(case(&Gemm::pointwise(F16, Order::ColumnMajor, &turned), Shape::matrix(2000, 70)));
    let across = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F32)).unwrap();
    cases.push(case(&Gemm::pointwise(F16, Order::RowMajor, &across), Shape::matrix(200, 70)));
    run_all(&cases);
}

/// What a row comes to is used, stored, and summed with other rows'.
#[test]
fn stages_vectors_and_sums() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let first = z.max_over(N) - z.min_over(N) + z.mean_over(N);
        let second = (z - first).norm_over(N) * 0.03125;
        let best = e.column().eq(z.argmax_over(N));
        let y = best.region(best, |_| best).otherwise(|b| b).select(z * first, second - z);
        e.store("d", y, F32);
        e.store("second", second, F32.over(M).batched());
        e.store("best", best, Bits8);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y, Monoid::AbsMax, F32.over(M).batched());
        e.reduce("all", y * y, Monoid::Sum, F32.pointer());
    });
    let epilogue = epilogue.unwrap();
    let cases = [[300, 129], [1000, 1024], [70, 5000], [9, 30_000]].map(|[m, n]| {
        let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue);
        Case::new(&gemm, Shape::matrix(m, n).batched(2)).slack(SLACK)
    });
    run_all(&cases);
}

/// One column of a row that has what no other has: a loss of what the row's label says, labels outside, labels that wait for the
/// row, sums beside, and rows behind a product.
#[test]
fn labels_of_rows() {
    let loss = |d: DType| {
        Epilogue::build(|e| {
            let label = e.row() * 4099 % 70_001 % 5003 - 2;
            let share = (e.acc() + e.load("bias", F16.over(N))).log_softmax_over(N);
            let is_label = e.column().eq(label);
            e.store("loss", -is_label.select(share, 0.0).sum_over(N), F32.over(M).batched());
            e.store("d", share.exp() - is_label.select(1.0, 0.0), d);
        })
    };
    let sums = Epilogue::build(|e| {
        let z = e.acc() + e.load("c", F16);
        let [first, last] = [z.argmax_over(N), e.row() % 3].map(|label| e.column().eq(label));
        let rest = z - first.select(z, 0.0).sum_over(N) * 0.5;
        let y = first.select(rest, z) - last.select(rest * 2.0, 0.0).sum_over(N);
        e.store("d", y, F32);
        e.store("first", last, Bits8);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
    });
    let epilogues = [loss(F16), loss(BF16), loss(F32), sums].map(Result::unwrap);
    let mut cases = Vec::new();
    for (i, epilogue) in epilogues.iter().enumerate() {
        let d = [F16, BF16, F32, F16][i];
        for [m, n] in ROWS.into_iter().filter(|[m, _]| *m > 1) {
            let gemm = Gemm::pointwise(d, Order::RowMajor, epilogue);
            cases.push(case(&gemm, Shape::matrix(m, n)));
            cases.push(case(&gemm, Shape::matrix(7, n.min(5000)).batched(2)).offset("d", 1));
        }
    }
    cases.extend([64, 200].map(|n| case(&Gemm::new(F16, TN, &epilogues[0]), Shape::new(300, n, 72))));
    run_all(&cases);
}

/// Rows that one tile holds: a sample of the tiles that do, either way round, ragged edges, batches, and rows of one element.
#[test]
fn rows_in_the_kernel_of_a_product() {
    let turned = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(M));
        let y = (z - z.mean_over(M)).softmax_over(M);
        e.store("d", y, F16.column_major());
        e.store("largest", y.max_over(M), F32.over(N).batched());
    });
    let kept = Epilogue::build(|e| {
        let z = (e.acc() + e.load("bias", F16.over(N))).relu();
        let (mean, scale) = (z.mean_over(N), (z - z.mean_over(N)).mean_square_over(N));
        let y = (z - mean) * (scale + 0.125).rsqrt() * e.load("weight", F16.over(N)) + e.load("residual", F16);
        e.store("d", y, F16);
        e.store("mean", mean, F32.over(M).batched());
        e.store("best", z.argmax_over(N), I32.over(M).batched());
        e.store("positive", y.gt(0.0), Bits8);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y, Monoid::AbsMax, F32.over(M));
    });
    // Values alone: where two sums are equal but for rounding, either coordinate is right.
    let values = Epilogue::build(|e| {
        let best = (e.acc() + e.load("bias", F32.over(N))).top_k_over(N, 2);
        best.values.into_iter().enumerate().for_each(|(i, value)| e.store(&format!("value{i}"), value, F32.over(M).batched()));
    });
    let norm = Norm { weights: Some(F16), residual: None };
    let epilogues = [recipes::softmax(Mask::None, F16), recipes::layer_norm(norm, F16), kept, turned, values].map(Result::unwrap);
    let mut cases = Vec::new();
    for (i, epilogue) in epilogues.iter().enumerate() {
        let turned = i == 3;
        for (j, [m, n]) in [[600, 256], [333, 250], [130, 64], [65, 24], [9000, 128], [70, 8]].into_iter().enumerate() {
            // A kernel of its own finds the largest of short rows sooner.
            if i == 4 && n < 64 {
                continue;
            }
            let [m, n] = if turned { [n, m] } else { [m, n] };
            let shape = Shape::new(m, n, 104).batched(1 + usize::from(j == 1 && i < 2));
            let gemm = Gemm::new([F16, BF16][j % 2], Layout::ALL[(i + j) % 4], epilogue).mainloop(Mainloop::Sm90a);
            // Of many rows one kernel is faster in any case.
            let many = if turned { Shape { n: 50_000, ..shape } } else { Shape { m: 50_000, ..shape } };
            let plan = gemm.kernel_plan(postlude::target::Target::SM_90A, 132, many).unwrap();
            assert!(plan.split.is_none(), "{}", plan.explain());
            let step = if j == 1 { 5 } else { 40 };
            for (tile, _) in plan.choice.candidates().step_by(step) {
                cases.push(case(&gemm.clone().tile(tile), shape));
            }
        }
    }
    let conv = Conv::new(F16, ConvShape::new(50, [19, 17, 64], [72, 3, 3]).padding([1, 1]), &epilogues[1]).unwrap();
    let conv = conv.prefer(|gemm| gemm.mainloop(Mainloop::Sm90a));
    assert!(conv.kernel_plan(postlude::target::Target::SM_90A, 132).unwrap().split.is_none());
    cases.push(case(conv.gemm(), conv.shape()));
    run_all(&cases);
}

/// Where a product's tiles have parts of rows, its accumulators go through memory.
#[test]
fn rows_behind_a_product() {
    let mut cases = Vec::new();
    let mainloops = [(F16, Mainloop::Sm90a), (BF16, Mainloop::Sm80), (F32, Mainloop::Simt), (F16, Mainloop::Gemv)];
    for (i, (d, mainloop)) in mainloops.into_iter().enumerate() {
        for (j, epilogue) in forward(d).into_iter().enumerate() {
            let gemm = Gemm::new(d, Layout::ALL[(i + j) % 4], &epilogue).mainloop(mainloop);
            cases.push(case(&gemm, Shape::new(130, 264, 96).batched(1 + j % 3)));
            cases.push(case(&gemm, Shape::new(4, 1000, 200)));
        }
    }
    run_all(&cases);
}

#[test]
fn gradients_of_rows() {
    let mut cases = Vec::new();
    for d in [F16, F32] {
        for epilogue in forward(d) {
            let detached =
                ["mean", "rstd", "sum"].into_iter().filter(|name| epilogue.arguments().iter().any(|a| &*a.name == *name));
            let pair = epilogue.backward(detached.fold(Wrt::all(), Wrt::detached)).unwrap();
            // Bounds of f32 are too wide for so many elements.
            let long = (d == F16).then_some([5, 65536]);
            for [m, n] in [[70, 200], [9, 4096]].into_iter().chain(long) {
                cases.push(case(&Gemm::pointwise(d, Order::RowMajor, pair.backward()), Shape::matrix(m, n)).steep());
                cases.push(case(&Gemm::pointwise(d, Order::RowMajor, pair.forward()), Shape::matrix(m, n)));
            }
        }
    }
    run_all(&cases);
}

/// Sums over M beside rows that blocks take one after the other, and clusters share: the next ones are on their way. Rows that
/// end inside of a strip and of a block, entries, and a few rows.
#[test]
fn sums_beside_many_rows() {
    let shapes = [[1100, 1024], [540, 4096], [140, 16_384], [40, 65_536]];
    let ragged = [[1099, 1001], [301, 4001], [19, 40_000], [3, 65_536], [1, 30_000]];
    let mut cases = Vec::new();
    for (i, d) in [F16, BF16].into_iter().enumerate() {
        let forward = recipes::layer_norm(Norm { weights: Some(d), residual: None }, d).unwrap();
        let pair = forward.backward(Wrt::all().detached("mean").detached("rstd")).unwrap();
        let gemm = Gemm::pointwise(d, Order::RowMajor, pair.backward());
        let shapes = shapes.into_iter().chain(ragged).skip(i).step_by(2).map(|[m, n]| Shape::matrix(m, n));
        cases.extend(shapes.chain([Shape::matrix(190, 2048).batched(3)]).map(|shape| case(&gemm, shape).steep()));
        cases.push(case(&gemm, Shape::matrix(40, 16_384)).ld("a", 16_400).offset("a", 8).steep());
    }
    // One sum that is exact, so that a row that is lost or counted twice shows; and largest elements.
    let exact = Epilogue::build(|e| {
        let label = e.acc().argmax_over(N);
        e.reduce("rows", e.constant(1.0) + 0.0 * e.acc(), Monoid::Sum, F32.over(N));
        e.reduce("best", e.column().eq(label).cast(I32), Monoid::Sum, I32.over(N));
        e.reduce("largest", e.acc(), Monoid::Max, F32.over(N));
    });
    let gemm = Gemm::pointwise(F16, Order::RowMajor, &exact.unwrap());
    cases.extend([shapes[1], shapes[3]].map(|[m, n]| Case::new(&gemm, Shape::matrix(m, n))));
    run_all(&cases);
}

/// What all rows and columns come to, alone and beside what rows do.
fn whole() -> [Epilogue; 3] {
    let norm = Epilogue::build(|e| {
        let z = e.acc() * e.load("weight", F32.over(N)) + e.load("level", F32.over(M));
        let centred = z - z.mean_over(M | N);
        let rstd = (centred.mean_square_over(M | N) + 0.125).rsqrt();
        e.store("d", centred * rstd + e.load("level", F32.over(M)) * rstd, F16);
        e.store("above", centred.gt(0.0), Bits8);
        e.store("rstd", rstd, F32.pointer().batched());
    });
    let beside = Epilogue::build(|e| {
        let z = e.acc() + e.load("residual", F16);
        let scale = z.absmax_over(M | N) / 448.0;
        let row = (z / scale).max_over(N);
        e.store("d", z / scale, E4M3);
        e.store("step", scale, F32.pointer().batched());
        e.store("row", row, F32.over(M).batched());
    });
    let sums = Epilogue::build(|e| {
        let y = e.acc() - e.acc().mean_over(M | N);
        e.store("d", y, F32);
        e.reduce("columns", y * y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y, Monoid::AbsMax, F32.over(M).batched());
    });
    [norm, beside, sums].map(Result::unwrap)
}

/// Matrices that a block holds, reads again, or has a part of; one and many of them, in either order.
#[test]
fn matrices_that_come_to_one_number() {
    let mut cases = Vec::new();
    for (i, epilogue) in whole().into_iter().enumerate() {
        let order = [Order::RowMajor, Order::RowMajor, Order::ColumnMajor][i];
        let gemm = Gemm::pointwise(F16, order, &epilogue);
        for (j, [m, n]) in [[1, 1], [7, 33], [196, 24], [64, 256], [300, 520], [33, 4096], [1025, 1000]].into_iter().enumerate() {
            cases.push(case(&gemm, Shape::matrix(m, n).batched([1, 3, 200][j % 3])));
        }
        cases.push(case(&gemm, Shape::matrix(70, 100).batched(2)).offset("a", 1).ld("a", 107).ld("d", 105));
    }
    // Every tile that fits a matrix.
    let gemm = Gemm::pointwise(F16, Order::RowMajor, &whole()[0]);
    for shape in [Shape::matrix(60, 120).batched(150), Shape::matrix(250, 64).batched(150)] {
        let plan = gemm.kernel_plan(postlude::target::Target::SM_90A, 132, shape).unwrap();
        assert!(plan.before.is_empty(), "{}", plan.explain());
        cases.extend(plan.choice.candidates().map(|(tile, _)| case(&gemm.clone().tile(tile), shape)));
    }
    run_all(&cases);
}

/// Columns, batch entries and everything beside rows: kernels that leave results for each other, behind nothing and behind
/// products.
#[test]
fn kernels_that_wait_for_each_other() {
    let every_axis = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N)) * e.load("level", F32.over(M));
        let column = z.mean_over(M);
        let centred = z - column;
        let scale = (centred.mean_square_over(M) + 0.125).rsqrt();
        let row = (centred * scale).max_over(N);
        let all = (z + row).mean_over(M | N | L);
        e.store("d", centred * scale + row + z.sum_over(L) + all, F32);
        e.store("column", column, F32.over(N).batched());
        e.store("rstd", scale * e.load("bias", F32.over(N)), F32.over(N).batched());
        e.store("row", row + 1.0, F32.over(M).batched());
        e.store("all", all, F32.pointer());
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let columns = Epilogue::build(|e| {
        let y = e.acc().softmax_over(M);
        e.store("d", y, F16);
        e.store("largest", y.max_over(M), F32.over(N).batched());
    });
    let [every_axis, columns] = [every_axis, columns].map(Result::unwrap);
    let mut cases = Vec::new();
    for (d, order) in [(F16, Order::RowMajor), (F32, Order::ColumnMajor)] {
        for (m, n, batch) in [(200, 70, 3), (1000, 1030, 2), (3, 5000, 1)] {
            cases.push(case(&Gemm::pointwise(d, order, &every_axis), Shape::matrix(m, n).batched(batch)));
        }
    }
    cases.push(case(&Gemm::pointwise(F16, Order::RowMajor, &columns), Shape::matrix(3000, 1000)));
    let [norm, beside, _] = whole();
    let mainloops = [(F16, Mainloop::Sm90a), (BF16, Mainloop::Sm80), (F32, Mainloop::Simt), (F16, Mainloop::Gemv)];
    for (i, (d, mainloop)) in mainloops.into_iter().enumerate() {
        for (j, epilogue) in [&every_axis, &columns, &norm, &beside].into_iter().enumerate() {
            let gemm = Gemm::new(d, Layout::ALL[(i + j) % 4], epilogue).mainloop(mainloop);
            cases.push(case(&gemm, Shape::new(130, 264, 96).batched(1 + j % 3)));
            cases.push(case(&gemm, Shape::new(4, 1000, 200)));
        }
    }
    let shape = Shape::new(2048, 512, 256);
    let plan = Gemm::new(F16, TN, &beside).kernel_plan(postlude::target::Target::SM_90A, 132, shape).unwrap();
    assert!(plan.before.len() == 1 && plan.mainloop() == Mainloop::Sm90a, "{}", plan.explain());
    cases.push(case(&Gemm::new(F16, TN, &beside), shape));
    run_all(&cases);
}

/// Bands of columns in each row and over all rows: of every width, one and many matrices, either order; in kernels of one and of
/// several.
#[test]
fn bands_of_columns() {
    let norm = Norm { weights: Some(F32), residual: None };
    let by_row = |columns: usize| {
        let epilogue = Epilogue::build(|e| {
            let z = e.acc() + e.load("bias", F32.over(N));
            let rstd = (z.mean_square_over(N.bands(columns)) + 0.125).rsqrt();
            e.store("d", z * rstd, F16);
            e.store("best", e.column().eq(z.argmax_over(N.bands(columns))), Bool);
            e.reduce("sums", z * rstd, Monoid::Sum, F32.over(N));
        });
        epilogue.unwrap()
    };
    let mut cases = Vec::new();
    for (i, columns) in [1, 5, 8, 10, 24, 64, 128, 520].into_iter().enumerate() {
        let order = [Order::RowMajor, Order::ColumnMajor][usize::from(i % 3 == 2)];
        let groups = recipes::group_norm(columns, norm, F16).unwrap();
        for (j, [m, n]) in [[64, 320], [196, 1040], [1, 77], [3000, 640]].into_iter().enumerate().skip(i % 2).step_by(2) {
            let shape = Shape::matrix(m, n).batched([1, 3, 40, 2][(i + j) % 4]);
            cases.push(case(&Gemm::pointwise(F16, order, &groups), shape));
            // An index needs a block that holds the band, and no power of two of threads shares 65 strips of eight columns.
            if columns != 520 {
                cases.push(case(&Gemm::pointwise(F16, order, &by_row(columns)), shape));
            }
        }
    }
    // Behind products and convolutions.
    for (i, (d, mainloop)) in [(F16, Mainloop::Sm90a), (BF16, Mainloop::Sm80), (F32, Mainloop::Simt)].into_iter().enumerate() {
        for epilogue in [recipes::group_norm(8, norm, d).unwrap(), by_row(64), recipes::group_norm(1, norm, d).unwrap()] {
            let gemm = Gemm::new(d, Layout::ALL[i], &epilogue).mainloop(mainloop);
            cases.push(case(&gemm, Shape::new(130, 264, 96).batched(3)));
        }
    }
    run_all(&cases);
}

/// Matrices and groups of their columns that the shared memory of one block or of a cluster holds: every tile of each, whole
/// passes and not, groups that the edge cuts, strides, a residual, and what is stored beside.
#[test]
fn groups_that_clusters_hold() {
    let several = |over: Over| {
        let epilogue = Epilogue::build(|e| {
            let z = e.acc() + e.load("bias", F32.over(N)) + e.load("residual", F32);
            let centred = z - z.mean_over(over);
            let scale = (centred.mean_square_over(over) + 0.125).rsqrt();
            let largest = centred.absmax_over(over);
            e.store("d", centred * scale + largest, F16);
            e.store("above", centred.gt(scale), Bool);
            e.store("most", largest, F32.over(N).batched());
            let best = e.reduce_over([z, e.column() * 5000 + e.row()], Monoid::ArgMax, over);
            e.store("best", best, I32.over(N).batched());
        });
        epilogue.unwrap()
    };
    let norm = |columns, residual| recipes::group_norm(columns, Norm { weights: Some(F32), residual }, F16).unwrap();
    let matrix = Epilogue::build(|e| {
        let rstd = (e.acc().mean_square_over(M | N) + 0.125).rsqrt();
        e.store("d", e.acc() * rstd * e.load("weight", F16.over(N)), F16);
        e.store("rstd", rstd, F32.pointer().batched());
    });
    let all = [
        (norm(10, None), Shape::matrix(4096, 320).batched(2)),
        (norm(20, None), Shape::matrix(1024, 640).batched(3)),
        (norm(40, Some(F16)), Shape::matrix(250, 1240).batched(2)),
        (norm(8, None), Shape::matrix(3136, 64).batched(3)),
        (norm(10, Some(BF16)), Shape::matrix(1003, 77).batched(2)),
        (several((M | N).bands(6)), Shape::matrix(700, 100).batched(2)),
        (several((M | N).bands(16)), Shape::matrix(37, 176)),
        (several((M | N).into()), Shape::matrix(900, 120).batched(2)),
        (matrix.unwrap(), Shape::matrix(3000, 256).batched(2)),
    ];
    let mut cases = Vec::new();
    for (epilogue, shape) in all {
        let gemm = Gemm::pointwise(F16, Order::RowMajor, &epilogue).mainloop(Mainloop::Groups);
        let plan = gemm.kernel_plan(postlude::target::Target::SM_90A, 132, shape).unwrap();
        assert!(plan.before.is_empty() && plan.mainloop() == Mainloop::Groups, "{}", plan.explain());
        cases.extend(plan.choice.candidates().map(|(tile, _)| case(&gemm.clone().tile(tile), shape)));
    }
    let gemm = Gemm::pointwise(BF16, Order::RowMajor, &norm(10, None)).mainloop(Mainloop::Groups);
    let shape = Shape::matrix(300, 90).batched(3);
    cases.push(case(&gemm, shape).ld("a", 97).ld("d", 93));
    cases.push(case(&gemm, shape).offset("a", 1).offset("d", 3));
    let turned = Gemm::pointwise(F16, Order::ColumnMajor, &norm(16, None)).mainloop(Mainloop::Groups);
    cases.push(case(&turned, Shape::matrix(320, 96).batched(2)));
    run_all(&cases);
}

/// Derivatives of group norms.
#[test]
fn gradients_of_bands() {
    let mut cases = Vec::new();
    for (columns, d) in [(10, F16), (32, F32)] {
        let epilogue = recipes::group_norm(columns, Norm { weights: Some(d), residual: None }, d).unwrap();
        let pair = epilogue.backward(Wrt::all().detached("mean").detached("rstd")).unwrap();
        for [m, n, batch] in [[64, 320, 3], [1500, 640, 1]] {
            let shape = Shape::matrix(m, n).batched(batch);
            cases.push(case(&Gemm::pointwise(d, Order::RowMajor, pair.backward()), shape).steep());
            cases.push(case(&Gemm::pointwise(d, Order::RowMajor, pair.forward()), shape));
        }
    }
    run_all(&cases);
}

/// Derivatives of what a whole matrix is normalised by.
#[test]
fn gradients_of_matrices() {
    let mut cases = Vec::new();
    for epilogue in whole().into_iter().take(1) {
        let pair = epilogue.backward(Wrt::all().detached("above").detached("rstd")).unwrap();
        for [m, n] in [[70, 200], [2000, 1024]] {
            cases.push(case(&Gemm::pointwise(F16, Order::RowMajor, pair.backward()), Shape::matrix(m, n)).steep());
            cases.push(case(&Gemm::pointwise(F16, Order::RowMajor, pair.forward()), Shape::matrix(m, n)));
        }
    }
    run_all(&cases);
}

/// Infinities, NaNs and rows of nothing else, in softmax.
#[test]
fn rows_of_what_is_no_number() {
    let softmax = recipes::softmax(Mask::None, F32).unwrap();
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &softmax);
    let fills: [crate::case::Fill; 4] = [
        |rng, _| [f64::NEG_INFINITY, 1.0, -2.0][(rng.bits() % 3) as usize],
        |_, _| f64::NEG_INFINITY,
        |rng, _| [f64::NAN, 1.0][usize::from(rng.bits() % 512 == 0)],
        |rng, _| [3e38, -3e38, 88.0, 0.0][(rng.bits() % 4) as usize],
    ];
    let cases = fills.map(|fill| Case::new(&gemm, Shape::matrix(20, 300)).slack(SLACK).scalar("scale", 1.0f32).fill("a", fill));
    run_all(&cases);
}
