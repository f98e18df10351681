//! Counts by index, on every mainloop. The kernel stores the indices as well, so that the host can count the same.

use crate::case::Case;
use crate::gathers::{SHAPES, gemms};
use crate::layout::Buffer;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

fn run(gemm: &Gemm, shape: Shape) {
    let case = Case::new(gemm, shape);
    let given = case.buffers();
    let Some(got) = case.run_on(&given) else { return };
    let values = |buffers: &[Buffer], name: &str| -> Vec<f64> {
        let buffer = buffers.iter().find(|buffer| buffer.name == name).unwrap();
        buffer.elements().map(|(_, value)| value).collect()
    };
    let [mut expected, mut rows] = ["counts", "rows"].map(|name| values(&given, name));
    let index = values(&got, "index");
    for at in index.iter().filter(|at| **at >= 0.0 && **at < expected.len() as f64).copied().collect::<Vec<_>>() {
        expected[at as usize] += 1.0;
    }
    rows.iter_mut().take(shape.m).for_each(|count| *count += (shape.n * shape.batch) as f64);
    assert_eq!(values(&got, "counts"), expected, "{case}");
    assert_eq!(values(&got, "rows"), rows, "{case}");
    assert!(index.iter().any(|at| *at < 0.0) && index.iter().any(|at| *at >= expected.len() as f64), "some lie outside");
}

#[test]
fn every_element_counts_once_on_every_mainloop() {
    let epilogue = Epilogue::build(|e| {
        let index = (e.acc() * 60.0 + 30.0).floor().cast(I32);
        e.bincount("counts", index);
        e.store("index", index, I32);
        e.bincount("rows", e.row());
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        SHAPES.into_iter().for_each(|shape| run(&gemm, shape));
        run(&gemm, Shape::new(1000, 520, 64));
    }
    run(&Gemm::new(F16, NT, &epilogue).mainloop(Mainloop::Gemv), Shape::new(3, 136, 264));
    // Split along K, few rows, and unaligned operands.
    run(&Gemm::new(F16, TN, &epilogue).split_k(4), Shape::new(130, 136, 640));
    run(&Gemm::new(F16, TN, &epilogue), Shape::new(24, 1000, 512));
    run(&Gemm::new(F16, TN, &epilogue), Shape::new(257, 391, 67));
}

/// Counts alone, behind statistics of rows.
#[test]
fn counts_of_rows() {
    let epilogue = Epilogue::build(|e| {
        let share = e.acc() / e.acc().absmax_over(N) * 40.0 + 30.0;
        e.bincount("counts", share.cast(I32));
        e.store("index", share.cast(I32), I32);
        e.bincount("rows", e.row());
    })
    .unwrap();
    let more = Epilogue::build(|e| e.bincount("only", e.row() + e.column())).unwrap();
    for shape in [Shape::matrix(40, 65), Shape::matrix(33, 1000)] {
        run(&Gemm::pointwise(F16, Order::RowMajor, &epilogue), shape);
        Case::new(&Gemm::new(F16, TN, &more), Shape { k: 64, ..shape }).run();
    }
}
