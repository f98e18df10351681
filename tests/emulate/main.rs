//! Kernels on a processor: what the templates print is compiled as C++ and held to the reference, without a GPU.
//!
//! That goes as far as kernels do without tensor cores: `simt`, `gemv` and `pointwise`, with the epilogue, the walk over tiles, the guards at
//! the edges, masks and reductions that all mainloops have in common. `cuda.hpp` says how. Two launches in opposite orders of blocks have to
//! agree bit by bit; what neither proves is what a GPU does about timing.

mod program;

use postlude::args::{HostArgs, SlotKind, Tensor, slots};
use postlude::build::recipes;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::target::Target;
use program::Program;

/// Numbers from -2 to 2 in steps that products keep exact for a while.
fn bytes(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let mut state = (seed as u32).wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut out = Vec::new();
    while out.len() < dtype.bytes(count) {
        let eighths = (next() % 33) as i32 - 16;
        match dtype {
            F32 => out.extend((eighths as f32 / 8.0).to_le_bytes()),
            F16 => out.extend(postlude::half::f16::from_f32(eighths as f32 / 8.0).to_le_bytes()),
            BF16 => out.extend(postlude::half::bf16::from_f32(eighths as f32 / 8.0).to_le_bytes()),
            I32 => out.extend((eighths * 12_345).to_le_bytes()),
            Bool => out.push((next() % 2) as u8),
            Bits8 | Bits128 => out.push(next() as u8),
        }
    }
    out
}

/// Values of a buffer, as far as they belong to it: of runs that are longer than they need to be not the rest.
fn values(kind: &SlotKind, bytes: &[u8]) -> Vec<f64> {
    let SlotKind::Memory { dtype, outer, inner, batch, .. } = kind else { return Vec::new() };
    let ld = inner.next_multiple_of(dtype.run());
    let at = |i: usize| match dtype {
        F32 => f64::from(f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())),
        F16 => postlude::half::f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f64(),
        BF16 => postlude::half::bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f64(),
        I32 => f64::from(i32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())),
        Bool => f64::from(bytes[i]),
        Bits8 | Bits128 => f64::from(bytes[i / 8] >> (i % 8) & 1),
    };
    let runs = outer * batch.unwrap_or(1);
    (0..runs).flat_map(|run| (0..*inner).map(move |i| run * ld + i)).map(at).collect()
}

/// Launches a kernel on shapes and rasters, and compares all that it writes with the reference, to a relative error.
fn check(name: &str, gemm: &Gemm, shapes: &[Shape], rasters: &[i32], tolerance: f64) {
    // One kernel serves a class of problems: what is compiled once is tried on every shape of its class.
    let mut programs: Vec<(String, Program)> = Vec::new();
    for &shape in shapes {
        let plan = gemm.kernel(Target::SM_80, 108, shape).unwrap();
        let text = plan.source().unwrap().text().to_owned();
        if !programs.iter().any(|(known, _)| *known == text) {
            let Some(program) = Program::of(&format!("{name}_{}", programs.len()), plan) else { return };
            programs.push((text.clone(), program));
        }
        let (_, program) = programs.iter().find(|(known, _)| *known == text).unwrap();
        let slots = slots(gemm.operation(), gemm.epilogue().checked(), shape);
        let mut before = Vec::new();
        for (seed, slot) in slots.iter().enumerate() {
            before.push(match &slot.kind {
                SlotKind::Memory { dtype, outer, inner, batch, .. } => {
                    bytes(*dtype, inner.next_multiple_of(dtype.run()) * outer * batch.unwrap_or(1), seed + 1)
                }
                SlotKind::Scalar(_) => Vec::new(),
            });
        }
        let (mut expected, mut args) = (before.clone(), HostArgs::new());
        for ((slot, bytes), input) in slots.iter().zip(&mut expected).zip(&before) {
            args = match &slot.kind {
                SlotKind::Scalar(_) => args.scalar(&slot.name, 0.75f32),
                SlotKind::Memory { dtype, written: true, .. } => args.output(&slot.name, Tensor::of_bytes_mut(*dtype, bytes)),
                SlotKind::Memory { dtype, .. } => args.input(&slot.name, Tensor::of_bytes(*dtype, input)),
            };
        }
        gemm.reference(shape, args).unwrap();
        for &raster in rasters {
            let launches = program.launch(gemm, shape, raster, &before, 0.75);
            for (turn, launched) in launches.iter().enumerate() {
                for ((slot, expected), found) in slots.iter().zip(&expected).zip(launched) {
                    let (expected, found) = (values(&slot.kind, expected), values(&slot.kind, found));
                    let differ = expected.iter().zip(&found).position(|(e, f)| (e - f).abs() > tolerance * e.abs().max(1.0) || e.is_nan() != f.is_nan());
                    if let Some(at) = differ {
                        let tile = program.plan().tile;
                        panic!("{name}, launch {turn}: `{}`[{at}] is {}, not {}; {shape}, raster {raster}, {tile}", slot.name, found[at], expected[at]);
                    }
                }
            }
        }
    }
}

/// Edges in every direction, whole tiles, less than one, no terms.
fn shapes() -> Vec<Shape> {
    let extents = [(150, 200, 33), (64, 64, 32), (5, 7, 3), (129, 65, 0), (33, 130, 17)];
    let mut all: Vec<Shape> = extents.into_iter().map(|(m, n, k)| Shape::new(m, n, k)).collect();
    all.push(Shape::new(40, 70, 20).batched(3));
    all
}

const RASTERS: [i32; 4] = [1, 2, -2, -1];

/// Matrices, vectors and a number, in every layout: each element once, whatever the order of tiles.
#[test]
fn products_of_every_layout() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("rows", F32.over(M)) + e.load("columns", F32.over(N)) * e.scalar("by", F32);
        e.store("d", (z + e.load("c", F32)).relu() - e.load("turned", F32.column_major()), F32);
    });
    let epilogue = epilogue.unwrap();
    for layout in Layout::ALL {
        check(&format!("layout_{layout:?}"), &Gemm::new(F32, layout, &epilogue), &shapes(), &RASTERS, 1e-5);
    }
}

/// Rows that begin anywhere, so that nothing is moved in pieces of 16 bytes, and rows of which all can be.
#[test]
fn alignments_of_every_kind() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F16), F16)).unwrap();
    let gemm = Gemm::new(F16, TN, &epilogue).mainloop(Mainloop::Simt);
    check("unaligned", &gemm, &[Shape::new(67, 45, 31), Shape::new(64, 129, 1)], &[2], 1e-3);
    check("aligned", &gemm, &[Shape::new(96, 160, 64), Shape::new(64, 128, 72)], &[2], 1e-3);
}

#[test]
fn integers_wrap() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_i32();
        e.store("d", z * e.load("c", I32) - e.load("by", I32.over(N)), I32);
        e.store("quotient", z / e.load("c", I32), I32.column_major());
    });
    check("integers", &Gemm::new(I32, NT, &epilogue.unwrap()), &shapes(), &[-2], 0.0);
}

/// What tiles come to is combined by the last of them, in one order: of rows, columns, entries, all of it and every monoid.
#[test]
fn reductions_of_every_kind() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        e.store("d", z, F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("added", z, Monoid::Sum.atomic(), F32.over(M));
        e.reduce("largest", z, Monoid::Max, F32.over(M | L));
        e.reduce("smallest", z, Monoid::Min, F32.pointer());
        e.reduce("amax", z, Monoid::AbsMax, F32.over(N | L));
        e.reduce("lse", z, Monoid::LogSumExp, F32.over(M));
        e.reduce("more", z * e.load("c", F32), Monoid::Sum.accumulate(), F32.over(N));
        e.reduce("each", z, Monoid::Max, F32.over(M | N));
        e.reduce("any", z.gt(8.0), Monoid::Max, Bool.over(N));
        e.reduce("whole", z.cast(I32), Monoid::Sum, I32.over(M));
    });
    check("reductions", &Gemm::new(F32, TN, &epilogue.unwrap()), &shapes(), &[1, -2], 2e-5);
}

/// Masks are read and written along either axis, and end inside of a byte.
#[test]
fn masks_of_either_order() {
    let epilogue = Epilogue::build(|e| {
        let keep = e.load("keep", Bits8).select(e.acc(), -e.acc());
        let z = e.load("columns", Bits8.over(N)).select(keep, keep + e.load("turned", Bits8.column_major()).cast(F32));
        e.store("d", z, F32);
        e.store("rows", z.gt(0.0), Bits8);
        e.store("down", z.lt(0.5), Bits8.column_major());
        e.store("wide", z.ge(1.0), Bits128);
    });
    check("masks", &Gemm::new(F32, TT, &epilogue.unwrap()), &shapes(), &[2], 1e-5);
}

/// A few rows, or columns, against a matrix that passes through once.
#[test]
fn a_few_rows() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        e.store("d", z, F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let epilogue = epilogue.unwrap();
    for (name, layout, rows) in [("gemv_k", TN, 1), ("gemv_k4", NN, 4), ("gemv_n", TT, 1), ("gemv_n3", NT, 3)] {
        let gemm = Gemm::new(F32, layout, &epilogue).mainloop(Mainloop::Gemv);
        let shapes = [(67, 45), (300, 1030), (8, 0), (129, 64)].map(|(n, k)| Shape::new(rows, n, k));
        check(name, &gemm, &shapes, &[1], 1e-4);
    }
}

#[test]
fn pointwise_matrices() {
    let epilogue = recipes::residual(F32, F32, |z| z.relu()).unwrap();
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let gemm = Gemm::pointwise(F32, order, &epilogue);
        check(&format!("pointwise_{}", order.name()), &gemm, &shapes(), &RASTERS, 1e-6);
    }
}
