//! Kernels that use what their rows come to: short rows and long ones, held and read again, transposed, with vectors,
//! masks and sums.

use super::{Case, shapes};
use postlude::build::recipes::{self, Mask, Norm};
use postlude::plan::{Tile, TileShape};
use postlude::prelude::*;

/// One element to a few hundred, several rows and one, and rows that end inside of a strip.
fn rows() -> Vec<Shape> {
    let mut all = shapes(&[(3, 1, 0), (9, 5, 0), (17, 67, 0), (5, 300, 0), (2, 1030, 0)]);
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
    let shape = TileShape::Rows { group, span, together, ahead: bm * group > threads * together };
    Case { name, gemm: case.gemm.tile(Tile { bm, bn, shape, threads, min_blocks: 1 }), ..case }
}

/// Every monoid of the table beside others of its stage, and values that wait for each other.
fn monoids() -> Result<Epilogue, postlude::Diagnostics> {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let scale = e.load("rows", F32.over(M)).abs() + 1.0;
        let first = z.max_over(N) - z.min_over(N) + z.mean_over(N) * scale + z.absmax_over(N);
        let second = (z - first).norm_over(N) + (z * first).sum_over(N) * 0.01;
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

pub fn all() -> Vec<Case> {
    let norm = |weights, residual| Norm { weights, residual };
    let row = Order::RowMajor;
    let turned = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F32.column_major()));
    let across = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F32));
    let doubles = Epilogue::build(|e| e.store("d", e.acc_f64().softmax_over(N) - e.acc_f64().mean_over(N), F64));
    let held = [64, 64, 64 * 4 * 5, 64 * 4 * 5, 1, 2];
    let again = [128, 64, 64 * 4, 64 * 4 * 5, 1, 2];
    let ahead = [64, 32, 32 * 4 * 10, 32 * 4 * 10, 1, 8];
    vec![
        case("stages_softmax", F32, row, recipes::softmax(Mask::Causal, F32), 2e-6),
        case("stages_softmax_f16", F16, row, recipes::softmax(Mask::Loaded(Bits8), F16), 1e-3),
        case("stages_layer_norm", BF16, row, recipes::layer_norm(norm(Some(F32), Some(F16)), F32), 2e-5),
        case("stages_cross_entropy", F32, row, recipes::cross_entropy(F32), 1e-5),
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
        on(case("", F32, row, monoids(), 2e-4), "stages_held", held),
        on(case("", F32, row, monoids(), 2e-4), "stages_again", again),
        on(case("", F32, row, sinks(), 2e-5), "stages_sinks_again", again),
        on(case("", F32, row, sinks(), 2e-5), "stages_sinks_ahead", ahead),
    ]
}
