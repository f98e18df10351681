//! Kernels that use what their rows come to: short rows and long ones, held and read again, transposed, with vectors,
//! masks and sums.

use super::{Case, monoids, shapes};
use postlude::build::recipes::{self, Mask, Norm};
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;

/// One element to a few hundred, several rows and one, rows that end inside of a strip, and whole tiles.
fn rows() -> Vec<Shape> {
    let mut all = shapes(&[(3, 1, 0), (9, 5, 0), (17, 67, 0), (5, 300, 0), (2, 1030, 0), (20, 128, 0)]);
    all.push(Shape::matrix(5, 70).batched(3));
    all
}

fn case(
    name: &'static str,
    dtype: DType,
    order: Order,
    epilogue: Result<Epilogue, postlude::Diagnostics>,
    tolerance: f64,
) -> Case {
    Case { name, gemm: Gemm::pointwise(dtype, order, &epilogue.unwrap()), shapes: rows(), rasters: &[1], tolerance }
}

/// The same with a tile of these numbers, in place of the plan's.
fn on(case: Case, name: &'static str, [threads, group, span, bn, together, bm]: [usize; 6]) -> Case {
    let shape = TileShape::Rows {
        group,
        span,
        together,
        ahead: bm * group > threads * together,
        whole: false,
        cluster: 1,
        copies: [0; 2],
    };
    Case { name, gemm: case.gemm.tile(Tile { bm, bn, shape, threads, min_blocks: 1 }), ..case }
}

/// The same with a tile that reads a whole matrix again for each stage.
fn again_whole(case: Case) -> Case {
    let shape = TileShape::Rows { group: 64, span: 64 * 4, together: 2, ahead: false, whole: true, cluster: 1, copies: [0; 2] };
    Case { gemm: case.gemm.tile(Tile { bm: 24, bn: 64 * 4 * 5, shape, threads: 128, min_blocks: 1 }), ..case }
}

/// Every monoid of the table beside others of its stage, and values that wait for each other.
fn monoids() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let scale = e.load("rows", F32.over(M)).abs() + 1.0;
        let first = z.max_over(N) - z.min_over(N) + z.mean_over(N) * scale + z.absmax_over(N);
        let second = (z - first).norm_over(N) + z.variance_over(N) * 0.125 + (z * first).sum_over(N) * 0.01;
        let index = (z.argmax_over(N) - z.argmin_over(N)).cast(F32) + z.gt(second).count_over(N).cast(F32);
        let level = e.load("bias", F32.over(N)).max_over(N) + e.constant(1.0).sum_over(N);
        let whole = z.cast(I32).sum_over(N) + (z * 2.0).cast(I32).max_over(N);
        let any = z.gt(1.5).max_over(N);
        let y = any.select(z * first, second - z) + index + level + whole.cast(F32) + (z * 0.01 + 1.0).product_over(N);
        e.store("d", y.region(e.row().lt(2), |y| y.sin()).otherwise(|y| y.tanh() + y * 0.125), F32);
        e.store("second", second, F32.over(M).batched());
        e.store("level", level, F32.pointer());
        e.store("any", any, Bool.over(M).batched());
        e.store("above", z.gt(first * 0.25), Bits8);
    })
}

/// Sums of what rows have come to, along every axis.
fn sinks() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let y = e.acc() * e.load("weight", F32.over(N)) - e.acc().mean_over(N);
        e.store("d", y, F32);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y * y, Monoid::Sum, F32.over(M).batched());
        e.reduce("all", y, Monoid::AbsMax, F32.pointer());
        e.bincount("counts", e.column() % 5 - e.row());
    })
}

/// Sums over M of every size of state, some of each entry, beside those of rows. With `all` also of everything.
fn many_sinks(all: bool) -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let y = e.acc() * e.load("weight", F32.over(N)) - e.acc().mean_over(N);
        e.store("d", y, F32);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("largest", y, Monoid::Max, F32.over(N).batched());
        e.reduce("exponentials", y, Monoid::LogSumExp, F32.over(N));
        e.reduce("first", e.acc(), Monoid::ArgMax, I32.over(N));
        e.reduce("onto", y, Monoid::Sum.accumulate(), F32.over(N));
        e.reduce("any", y, Monoid::Sum.atomic(), F32.over(N).batched());
        e.reduce("rows", y * y, Monoid::Sum, F32.over(M).batched());
        if all {
            e.reduce("variance", y, monoids::variance(), F32.over(N));
            e.reduce("all", y, Monoid::AbsMax, F32.pointer());
        }
    })
}

/// Sums over M beside two matrices, and a second stage.
fn sums_beside() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let beside = e.load("beside", F16);
        let y = e.acc() * e.load("weight", F32.over(N)) - (e.acc() * beside).mean_over(N);
        let z = y - y.absmax_over(N) * e.load("rows", F32.over(M));
        e.store("d", z + beside, F32);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("products", e.acc() * beside, Monoid::Sum, F32.over(N));
    })
}

/// What all rows and columns come to, beside what rows do, used by values along every axis.
fn whole() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N)) * e.load("rows", F32.over(M));
        let mean = z.mean_over(M | N);
        let deviation = (z - mean).mean_square_over(M | N).sqrt();
        let row = (z - mean).max_over(N) * deviation;
        let any = z.gt(row * 0.5).max_over(M | N);
        let best = e.reduce_over([z, e.row() * 1000 + e.column()], Monoid::ArgMax, M | N);
        let by_row = e.load("rows", F32.over(M)) * mean + row;
        e.store("d", any.select(z - mean, z) / (deviation + 1.0) + by_row + best.cast(F32), F32);
        e.store("mean", mean, F32.pointer().batched());
        e.store("by_row", by_row, F32.over(M).batched());
        e.store("level", e.load("bias", F32.over(N)).absmax_over(M | N), F32.pointer());
    })
}

/// The same without rows, so that a matrix that is not held can be read again.
fn norm_of_all() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() * e.load("weight", F32.over(N)) + e.load("rows", F32.over(M));
        let centred = z - z.mean_over(M | N);
        let rstd = (centred.mean_square_over(M | N) + 0.125).rsqrt();
        let scaled = e.load("rows", F32.over(M)) * rstd;
        e.store("d", centred * rstd + scaled, F32);
        e.store("above", centred.gt(0.0), Bits8);
        e.store("rstd", rstd, F32.pointer().batched());
        e.store("scaled", scaled, F32.over(M).batched());
    })
}

/// Sums along every axis of what a whole matrix has come to.
fn sinks_of_all() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let y = e.acc() - e.acc().mean_over(M | N);
        e.store("d", y, F32);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y * y, Monoid::Sum, F32.over(M).batched());
        e.reduce("all", y, Monoid::AbsMax, F32.pointer());
    })
}

/// What no block has all of: columns, entries, and rows and columns beside each other.
fn of_every_axis() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N)) * e.load("rows", F32.over(M));
        let column = z.mean_over(M);
        let centred = z - column;
        let scale = (centred.mean_square_over(M) + 0.125).rsqrt();
        let row = (centred * scale).max_over(N);
        let entries = (z * 0.5).sum_over(L);
        let all = (z + row).sum_over(M | N | L) * 0.001;
        e.store("d", centred * scale + row + entries + all, F32);
        e.store("column", column, F32.over(N).batched());
        e.store("scale", scale * e.load("bias", F32.over(N)), F32.over(N).batched());
        e.store("row", row + 1.0, F32.over(M).batched());
        e.store("all", all, F32.pointer());
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    })
}

/// What bands of columns come to: in each row, and over all rows, with a part of a band at the end.
fn bands(columns: usize) -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N)) * e.load("rows", F32.over(M));
        let centred = z - z.mean_over(N.bands(columns));
        let scale = (centred.mean_square_over(N.bands(columns)) + 0.125).rsqrt();
        e.store("d", centred * scale * e.load("bias", F32.over(N)), F32);
        e.store("scale", scale + e.load("rows", F32.over(M)), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    })
}

/// The same over all rows, with what else varies along columns alone.
fn groups(columns: usize) -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let group = (M | N).bands(columns);
        let z = e.acc() + e.load("bias", F32.over(N)) * e.load("rows", F32.over(M));
        let centred = z - z.mean_over(group);
        let scale = (centred.mean_square_over(group) + 0.125).rsqrt();
        let scaled = scale * e.load("bias", F32.over(N));
        e.store("d", centred * scaled, F32);
        e.store("scale", scale, F32.over(N).batched());
        e.store("scaled", scaled, F32.over(N).batched());
        e.store("most", z.absmax_over(group) + e.constant(1.0).sum_over(group), F32.over(N).batched());
    })
}

/// What a block has not all of: groups beside columns, behind a matrix of the batch.
fn groups_apart() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let centred = z - z.mean_over((M | N).bands(8));
        let scale = (centred.sum_over(M).abs() + 1.0).logsumexp_over((M | N).bands(8));
        e.store("d", centred / scale, F32);
        e.store("scale", scale, F32.over(N).batched());
        e.store("norm", z.norm_over((M | N | L).bands(16)), F32.over(N));
        // The mean of squared distances from a mean is reduced beside it.
        e.store("variance", centred.mean_square_over((M | N).bands(8)), F32.over(N).batched());
        e.store("of_columns", (z - z.mean_over(M)).mean_square_over(M), F32.over(N).batched());
    })
}

/// Norms of what lies far from zero, where sums of squares would lose the variance.
fn far() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + 1000.0;
        let centred = z - z.mean_over(M);
        e.store("d", centred * (centred.mean_square_over(M) + 1e-3).rsqrt(), F32);
        let group = (M | N).bands(8);
        e.store("variance", (z - z.mean_over(group)).mean_square_over(group), F32.over(N).batched());
    })
}

/// Groups that shared memory holds, beside another matrix: sums, indices and what is stored along columns.
fn held_groups(columns: usize) -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let group = (M | N).bands(columns);
        let z = e.acc() + e.load("bias", F32.over(N)) - e.load("beside", F16);
        let centred = z - z.mean_over(group);
        let scale = (centred.mean_square_over(group) + 0.125).rsqrt();
        let best = e.reduce_over([z, e.column() * 1000 + e.row()], Monoid::ArgMax, group);
        e.store("d", centred * scale * e.load("bias", F32.over(N)), F32);
        e.store("first", scale - centred.absmax_over(group) - z.min_over(group), F32.over(N).batched());
        e.store("best", best, I32.over(N).batched());
    })
}

/// The same in a tile of three groups of eight columns, whose threads go down seven rows, three at a time.
fn in_threes(case: Case) -> Case {
    let shape = TileShape::Groups { band: 8, cluster: 1, bytes: 6, together: 3 };
    let tile = Tile { bm: 7 * 32, bn: 3 * 8, shape, threads: 96, min_blocks: 1 };
    let shapes = [(224, 48), (100, 67), (3, 20)].map(|(m, n)| Shape::matrix(m, n).batched(2));
    Case { gemm: case.gemm.tile(tile), shapes: shapes.into(), ..case }
}

/// The same with so many tiles that blocks share the fix-up: whole tiles and a part of one, and entries.
fn shared(case: Case) -> Case {
    let mut shapes = shapes(&[(520, 512, 0), (517, 509, 0)]);
    shapes.push(Shape::matrix(519, 300).batched(2));
    for shape in &shapes {
        let plan = case.gemm.kernel_plan(Target::SM_80, 108, *shape).unwrap();
        assert_eq!(plan.helpers, 108 / shape.batch, "{}", plan.explain());
    }
    Case { shapes, ..case }
}

/// The same in blocks of a single multiprocessor, which copy the next of their rows to shared memory.
fn in_turns(case: Case) -> Case {
    let shapes = shapes(&[(2000, 64, 0), (260, 1000, 0), (130, 1024, 0), (90, 4096, 0)]);
    for shape in &shapes {
        let plan = case.gemm.kernel_plan(Target::SM_80, 1, *shape).unwrap();
        assert!(plan.explain().contains("copied ahead by"), "{}", plan.explain());
    }
    Case { shapes, ..case }
}

/// The same with so many columns of a thread that registers have no room for their sums.
fn kept(case: Case) -> Case {
    let shapes = shapes(&[(13, 4096, 0), (9, 3001, 0)]);
    for shape in &shapes {
        let plan = case.gemm.kernel_plan(Target::SM_80, 108, *shape).unwrap();
        assert!(plan.explain().contains("keep sums over M there from row to row"), "{}", plan.explain());
    }
    Case { shapes, ..case }
}

pub fn all() -> Vec<Case> {
    let norm = |weights, residual| Norm { weights, residual };
    let row = Order::RowMajor;
    let turned = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F32.column_major()));
    let across = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F32));
    let doubles = Epilogue::build(|e| e.store("d", e.acc_f64().softmax_over(N) - e.acc_f64().mean_over(N), F64));
    let held = [64, 64, 64 * 4 * 5, 64 * 4 * 5, 1, 2];
    let again = [128, 64, 64 * 4, 64 * 4 * 5, 1, 2];
    let large = |case: Case| Case { shapes: shapes(&[(300, 200, 0), (5, 3000, 0), (700, 9, 0)]), ..case };
    let product = |case: Case, dtype, shapes: Vec<Shape>| {
        let gemm = Gemm::new(dtype, TN, case.gemm.epilogue()).mainloop(Mainloop::Simt);
        Case { gemm, shapes, ..case }
    };
    let behind = || vec![Shape::new(70, 40, 24), Shape::new(33, 132, 9).batched(2)];
    // Each shape compiles up to five kernels.
    let apart = |case: Case| {
        let mut few = shapes(&[(9, 5, 0), (17, 67, 0)]);
        few.push(Shape::matrix(5, 70).batched(3));
        Case { shapes: few, ..case }
    };
    let doubles_of_all = Epilogue::build(|e| e.store("d", e.acc_f64() - e.acc_f64().mean_over(M | N), F64));
    let ahead = [64, 32, 32 * 4 * 10, 32 * 4 * 10, 1, 8];
    vec![
        case("stages_softmax", F32, row, recipes::softmax(Mask::Causal, F32), 2e-6),
        case("stages_softmax_f16", F16, row, recipes::softmax(Mask::Loaded(Bits8), F16), 1e-3),
        case("stages_layer_norm", BF16, row, recipes::layer_norm(norm(Some(F32), Some(F16)), F32), 2e-5),
        case("stages_cross_entropy", F32, row, recipes::cross_entropy(F32), 1e-5),
        case("stages_cross_entropy_f16", F16, row, recipes::cross_entropy(F16), 1e-3),
        case("stages_quantize", F16, row, recipes::quantize_rows(F16), 1e-3),
        case("stages_quantize_i8", F32, row, recipes::quantize_rows(I8), 0.0),
        case("stages_delayed_scale", F32, row, recipes::delayed_scale(E5M2, 1), 1e-6),
        case("stages_monoids", F32, row, monoids(), 2e-4),
        case("stages_sinks", F32, row, sinks(), 2e-5),
        case("stages_turned", F32, Order::ColumnMajor, turned, 2e-6),
        case("stages_across", F32, row, across, 2e-6),
        case("stages_top_k", F32, row, recipes::top_k(3), 1e-6),
        case("stages_top_k_softmax", F16, row, recipes::top_k_softmax(2, F16), 1e-3),
        case("stages_doubles", F64, row, doubles, 1e-12),
        case("whole_matrices", F32, row, whole(), 2e-4),
        case("whole_matrices_of_doubles", F64, row, doubles_of_all, 1e-12),
        again_whole(case("whole_matrices_again", F32, row, norm_of_all(), 2e-5)),
        large(case("whole_matrices_large", F32, row, norm_of_all(), 2e-5)),
        case("whole_matrices_in_columns", F32, Order::ColumnMajor, sinks_of_all(), 2e-5),
        case("whole_matrices_sums", F32, row, sinks_of_all(), 2e-5),
        case("groups_in_rows", F32, row, bands(24), 2e-5),
        case("groups_in_rows_odd", F16, row, bands(5), 2e-5),
        case("groups_of_one", F32, row, bands(1), 2e-4),
        case("groups_in_rows_in_columns", F32, Order::ColumnMajor, bands(64), 2e-5),
        case("groups_of_columns", F32, row, groups(8), 2e-5),
        case("groups_of_columns_ten", F16, row, groups(10), 2e-5),
        large(case("groups_of_columns_again", F32, row, groups(264), 2e-5)),
        case("groups_of_columns_in_columns", F16, Order::ColumnMajor, groups(16), 2e-5),
        case("groups_held", F16, row, held_groups(10), 2e-5),
        in_threes(case("groups_held_in_threes", F32, row, held_groups(8), 2e-5)),
        apart(case("passes_of_groups", F32, row, groups_apart(), 2e-5)),
        large(case("passes_of_groups_tall", F16, row, groups_apart(), 2e-5)),
        large(case("passes_far_from_zero", F32, row, far(), 1e-3)),
        case("passes", F32, row, of_every_axis(), 2e-4),
        apart(case("passes_in_columns", F32, Order::ColumnMajor, of_every_axis(), 2e-4)),
        product(case("passes_behind_a_product", F32, row, of_every_axis(), 2e-4), F32, behind()),
        product(case("passes_behind_halves", F16, row, norm_of_all(), 2e-4), F16, behind()),
        on(case("", F32, row, monoids(), 2e-4), "stages_held", held),
        on(case("", F32, row, monoids(), 2e-4), "stages_again", again),
        on(case("", F32, row, sinks(), 2e-5), "stages_sinks_again", again),
        on(case("", F32, row, sinks(), 2e-5), "stages_sinks_ahead", ahead),
        in_turns(case("sums_beside_in_turns", F16, row, sums_beside(), 2e-5)),
        shared(on(case("", F32, row, many_sinks(true), 2e-5), "stages_sinks_shared", [64, 64, 64 * 4 * 2, 64 * 4 * 2, 1, 8])),
        kept(on(case("", F32, row, many_sinks(false), 2e-5), "stages_sinks_kept", [1024, 1024, 1024 * 4, 1024 * 4, 1, 4])),
    ]
}
