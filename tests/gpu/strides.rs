//! Leading dimensions, offsets, batches: operands that are parts of something larger.

use crate::case::Case;
use crate::layout::Place;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

/// Every kind of operand: vectors over both axes, a matrix that is read, one that is updated, and an output.
fn epilogue(d: DType) -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", d.over(N)) + e.load("residual", d);
        let c = e.load("c", F32);
        e.store("c", c * 0.5 + z, F32);
        e.store("d", z, d);
    })
    .unwrap()
}

/// The same with everything that can be per batch entry.
fn batched(d: DType) -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M).batched()) + e.load("bias", d.over(N)) + e.load("residual", d);
        let z = z * e.load("factor", F32.over(L)) + e.batch().cast(F32) + e.load("shared", d.over(M | N));
        e.store("d", z, d);
    })
    .unwrap()
}

fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(F16, NT, epilogue),
        Gemm::new(F16, TT, epilogue).mainloop(Mainloop::Simt),
        Gemm::new(F32, NN, epilogue),
        Gemm::new(F32, TN, epilogue).tf32(true),
        Gemm::new(F32, NT, epilogue).tf32(true),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
        Gemm::pointwise(F32, Order::ColumnMajor, epilogue),
    ]
}

const SHAPES: [Shape; 3] = [Shape::new(130, 136, 72), Shape::new(67, 131, 45), Shape::new(9, 8, 16)];

fn names(gemm: &Gemm) -> Vec<&'static str> {
    let product = matches!(gemm.operation(), postlude::Operation::Product { .. });
    [&["a", "residual", "c", "d"][..], if product { &["b"] } else { &[] }].concat()
}

#[test]
fn leading_dimensions() {
    for gemm in gemms(&epilogue(F16)) {
        for shape in SHAPES {
            // Aligned, odd, and different for each operand.
            for add in [8, 1, 3] {
                let case = names(&gemm)
                    .iter()
                    .enumerate()
                    .fold(Case::new(&gemm, shape), |case, (i, name)| case.ld(name, 136 + add * (i + 1)));
                case.run();
            }
        }
    }
}

#[test]
fn offsets() {
    for gemm in gemms(&epilogue(F16)) {
        let names = [names(&gemm), vec!["bias", "scale"]].concat();
        for shape in SHAPES {
            // Each operand alone off by one element, then all by one, by two, by a whole vector.
            for name in &names {
                Case::new(&gemm, shape).offset(name, 1).run();
            }
            for offset in [1, 2, 8] {
                names.iter().fold(Case::new(&gemm, shape), |case, name| case.offset(name, offset)).run();
            }
        }
    }
}

#[test]
fn batches() {
    let epilogue = batched(F16);
    for gemm in gemms(&epilogue) {
        for shape in [Shape::new(70, 40, 33).batched(3), Shape::new(8, 130, 64).batched(5), Shape::new(7, 7, 7).batched(1)] {
            Case::new(&gemm, shape).run();
            Case::new(&gemm, shape).origin(0, 0, 11).run();
        }
        Case::new(&gemm, Shape::new(7, 7, 7).batched(0)).run();
    }
}

#[test]
fn many_batches_of_little() {
    let gemm = Gemm::new(F16, TN, &batched(F32));
    Case::new(&gemm, Shape::new(3, 5, 7).batched(1031)).run();
    // More than a grid has rows.
    Case::new(&gemm, Shape::new(1, 2, 1).batched(70_001)).run();
}

#[test]
fn batch_strides() {
    let epilogue = batched(F16);
    for gemm in gemms(&epilogue) {
        let product = matches!(gemm.operation(), postlude::Operation::Product { .. });
        for shape in [Shape::new(36, 40, 24).batched(4), Shape::new(35, 41, 23).batched(3)] {
            let contiguous = Case::new(&gemm, shape);
            // Shared by the batch although it has a batch.
            let shared = ["residual", "factor", "scale"].iter().fold(contiguous.clone(), |c, name| c.batch_stride(name, 0));
            shared.batch_stride("a", 0).run();
            if product {
                contiguous.clone().batch_stride("b", 0).run();
            }
            // Apart by more than they need, by an odd number of elements.
            contiguous.clone().batch_stride("d", 2011).batch_stride("a", 1999).batch_stride("residual", 4001).run();
        }
    }
}

#[test]
fn interleaved_batches() {
    // Entry l of a row lies between the same rows of the entries beside it, as heads do in attention.
    let gemms = [Gemm::new(F16, TN, &batched(F16)), Gemm::new(F32, TT, &batched(F32))];
    for gemm in gemms {
        for (m, n, k, l) in [(33, 40, 24, 4), (34, 13, 9, 3)] {
            let b_run = if gemm.operation() == (postlude::Operation::product(F16, TN)) { k } else { n };
            Case::new(&gemm, Shape::new(m, n, k).batched(l))
                .ld("d", l * n)
                .batch_stride("d", n)
                .ld("residual", l * n)
                .batch_stride("residual", n)
                .ld("a", l * k)
                .batch_stride("a", k)
                .ld("b", l * b_run)
                .batch_stride("b", b_run)
                .run();
        }
    }
}

#[test]
fn places_are_what_they_seem() {
    let case = Case::new(&Gemm::new(F16, TN, &epilogue(F16)), SHAPES[0]).offset("d", 1).ld("d", 140);
    let buffers = case.buffers();
    let d = buffers.iter().find(|b| b.name == "d").unwrap();
    assert_eq!(format!("{:?}", d.place), format!("{:?}", Place { offset: 1, ld: Some(140), ..Place::default() }));
    assert_eq!((d.alignment(), d.len), (2, 129 * 140 + 136));
    assert!(d.strayed().is_empty());
}
