//! Regions: boundaries anywhere, origins, and every kind of condition.

use crate::case::Case;
use postlude::build::recipes;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(F32, TT, epilogue),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Simt),
        Gemm::new(F32, NT, epilogue).tf32(true),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
    ]
}

const SHAPE: Shape = Shape::new(300, 140, 24);
/// Inside a tile, at a tile's edge, at a row of a fragment, nowhere, everywhere.
const BOUNDARIES: [i32; 12] = [-5, 0, 1, 7, 64, 100, 128, 129, 256, 299, 300, i32::MAX];

#[test]
fn rows_before_a_boundary() {
    for d in [F16, F32] {
        let epilogue = recipes::split_rows(F16, d, |z| z.sigmoid(), |z| z.tanh()).unwrap();
        for gemm in gemms(&epilogue) {
            for boundary in BOUNDARIES {
                Case::new(&gemm, SHAPE).scalar("boundary", boundary).run();
            }
            for (origin, boundary) in [(100, 128), (-40, 0), (i32::MAX - 300, i32::MAX - 100), (i32::MIN, i32::MIN + 129)] {
                Case::new(&gemm, SHAPE).scalar("boundary", boundary).origin(origin, 0, 0).run();
            }
        }
    }
}

#[test]
fn columns() {
    let epilogue = Epilogue::build(|e| {
        let (z, column) = (e.acc(), e.column());
        let y = z
            .region(column.lt(e.scalar("first", I32)), |z| z.silu() * 0.125)
            .region(column.lt(e.scalar("second", I32)), |z| z.gelu());
        e.store("d", y.otherwise(|z| z.tanh()), F16);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for (first, second) in [(0, 0), (64, 128), (61, 70), (-1, 1000), (139, 140)] {
            Case::new(&gemm, SHAPE).scalar("first", first).scalar("second", second).run();
            Case::new(&gemm, SHAPE).scalar("first", first).scalar("second", second).origin(0, 7, 0).run();
        }
    }
}

#[test]
fn causal() {
    let epilogue = Epilogue::build(|e| {
        let keep = e.row().ge(e.column());
        e.store("d", keep.select(e.acc() * e.scalar("scale", F32), f32::NEG_INFINITY), F16);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for (row, column) in [(0, 0), (64, 0), (0, 100), (1000, 3), (-200, 0)] {
            Case::new(&gemm, SHAPE).scalar("scale", 0.125f32).origin(row, column, 0).run();
        }
    }
}

#[test]
fn checkerboard() {
    // Costly arms behind a condition that changes from element to element.
    let epilogue = Epilogue::build(|e| {
        let even = ((e.row() + e.column()) % 2).eq(0);
        e.store("d", e.acc().region(even, |z| z.sigmoid()).otherwise(|z| z.tanh()), F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        Case::new(&gemm, SHAPE).run();
        Case::new(&gemm, SHAPE).origin(1, 0, 0).run();
    }
}

#[test]
fn conditions_on_data() {
    // A condition that is loaded: along rows, along columns, and both; and one on the accumulator itself.
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        let y = z.region(e.load("rows", Bool.over(M)), |z| z.sigmoid()).region(e.load("columns", Bool.over(N)), |z| z.tanh());
        let y = y.otherwise(|z| z.gelu_tanh());
        e.store("d", z.gt(0.5).select(y.exp(), y), F32);
        e.store("e", e.load("mask", Bool).select(y.erf(), y.sin()), F16);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        Case::new(&gemm, SHAPE).run();
        Case::new(&gemm, Shape::new(67, 45, 9)).run();
    }
}

#[test]
fn nested_and_shared() {
    // Arms that share values with each other and with what lies outside.
    let epilogue = Epilogue::build(|e| {
        let (z, row) = (e.acc() + e.load("bias", F32.over(N)), e.row());
        let (outer, inner) = (row.lt(e.scalar("outer", I32)), e.column().ge(e.scalar("inner", I32)));
        let shared = z.sigmoid();
        let y = outer.select(inner.select(shared * z, z.tanh()), shared + z.exp() * 0.01);
        e.store("d", y, F32);
        e.store("shared", shared, F16);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for (outer, inner) in [(128, 64), (65, 3), (0, 0), (400, 139)] {
            Case::new(&gemm, SHAPE).scalar("outer", outer).scalar("inner", inner).run();
        }
    }
}

#[test]
fn an_unselected_nan_stays_out() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        // Either arm is NaN on the far side of -1 and 1.
        e.store("d", z.gt(0.0).select((z + 1.0).log(), (1.0 - z).log()), F32);
        e.store("e", e.row().lt(20).select((z - 1e30).sqrt(), z), F16);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        Case::new(&gemm, Shape::new(70, 66, 30)).run();
    }
}

#[test]
fn scalars_by_pointer_and_by_value() {
    let epilogue = Epilogue::build(|e| {
        let scale = e.load("scale", F32.pointer()) * e.scalar("alpha", F32) + e.load("half", F16.pointer());
        let on = e.scalar("on", Bool) & e.load("flag", Bool.pointer());
        let limit = e.load("limit", I32.pointer());
        let z = e.acc() * scale + e.load("per_entry", BF16.over(L));
        e.store("d", (on & e.row().lt(limit)).select(z.sigmoid(), z), F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for on in [true, false] {
            let case = Case::new(&gemm, Shape::new(70, 40, 16).batched(2)).scalar("alpha", 1.75f32).scalar("on", on);
            for seed in 0..3 {
                case.clone().seed(seed).offset("scale", 1).offset("half", 3).run();
            }
        }
    }
}

#[test]
fn coordinates_are_values() {
    let epilogue = Epilogue::build(|e| {
        let (r, c, l) = (e.row(), e.column(), e.batch());
        e.store("d", r * 100_003 + c * 7 - l * 3 + (r % 5) * (c / 3), I32);
        e.store("e", e.acc() + (r - c).cast(F32) * e.load("slope", F32.over(L)), F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for (row, column, batch) in [(0, 0, 0), (-7, 12, 3), (1 << 30, -(1 << 30), 1 << 20)] {
            Case::new(&gemm, Shape::new(130, 70, 8).batched(3)).origin(row, column, batch).run();
        }
    }
}
