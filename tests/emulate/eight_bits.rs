//! Numbers of eight bits, bit for bit: what kernels of both kinds write, those with the instructions for it and those
//! without, beside the reference; over every number of 16 bits, every tie with its neighbours, and what is not finite.

use crate::program::Program;
use postlude::args::{HostArgs, Tensor, slots};
use postlude::ir::Order;
use postlude::prelude::*;
use postlude::target::Target;

const COLUMNS: usize = 256;

/// Every number of 16 bits; halves of the integers around both ranges; and of both formats every point half way between
/// two numbers: each with its neighbours in single precision.
fn points() -> Vec<f32> {
    let halves = (0..=u16::MAX).map(|bits| postlude::half::f16::from_bits(bits).to_f32());
    let integers = (-600..600).map(|i| i as f32 / 2.0);
    let between = |decode: fn(u8) -> f32| {
        (0..0x7b).flat_map(move |code| {
            let tie = (decode(code) + decode(code + 1)) / 2.0;
            [tie, -tie]
        })
    };
    let ties = between(|code| postlude::float8::F8E4M3::from_bits(code).to_f32())
        .chain(between(|code| postlude::float8::F8E5M2::from_bits(code).to_f32()));
    let far = [464.0, 61440.0, 1e9, 3e9, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE / 2.0, f32::from_bits(1)];
    let far = far.into_iter().flat_map(|x| [x, -x]);
    let exact = integers.chain(ties).chain(far).flat_map(|x| [x.next_down(), x, x.next_up()]);
    let mut points: Vec<f32> = halves.chain(exact).chain([f32::NAN, -f32::NAN]).collect();
    points.resize(points.len().next_multiple_of(COLUMNS), -0.0);
    points
}

/// Runs a pointwise kernel for a target's architecture, and holds what it writes to the reference, byte by byte.
fn hold(name: &str, dtype: DType, input: &[u8], epilogue: &Epilogue) {
    let (gemm, shape) =
        (Gemm::pointwise(dtype, Order::RowMajor, epilogue), Shape::matrix(input.len() / dtype.size() / COLUMNS, COLUMNS));
    let slots = slots(gemm.operation(), gemm.epilogue().checked(), shape);
    let elements = shape.m * shape.n;
    let buffer = |slot: &postlude::args::Slot| match epilogue.checked().argument(&slot.name) {
        Some((_, argument)) => vec![0; argument.role.operand().unwrap().dtype.size() * elements],
        None => input.to_vec(),
    };
    let before: Vec<Vec<u8>> = slots.iter().map(buffer).collect();
    let mut expected = before.clone();
    let mut args = HostArgs::new();
    for (slot, bytes) in slots.iter().zip(&mut expected) {
        args = match epilogue.checked().argument(&slot.name) {
            Some((_, argument)) => args.output(&slot.name, Tensor::of_bytes_mut(argument.role.operand().unwrap().dtype, bytes)),
            None => args.input(&slot.name, Tensor::of_bytes(dtype, input)),
        };
    }
    gemm.reference(shape, args).unwrap();
    for architecture in [800, 900] {
        let plan = gemm.kernel_plan(Target::SM_80, 108, shape).unwrap();
        let text = format!("#undef __CUDA_ARCH__\n#define __CUDA_ARCH__ {architecture}\n{}", plan.source().unwrap().text());
        let program = Program::of(&format!("{name}_{architecture}"), plan, &text).unwrap_or_else(|fault| panic!("{fault}"));
        let Some(program) = program else { return };
        for launched in program.launch(&slots, shape, 1, &before, 0.0).unwrap_or_else(|fault| panic!("{fault}")) {
            for ((slot, expected), found) in slots.iter().zip(&expected).zip(&launched) {
                let differs = expected.iter().zip(found).position(|(e, f)| e != f);
                if let Some(at) = differs {
                    panic!("{name}, {architecture}: byte {at} of `{}` is {:#x}, not {:#x}", slot.name, found[at], expected[at]);
                }
            }
        }
    }
}

#[test]
fn stores_are_the_reference_to_the_bit() {
    let bytes: Vec<u8> = points().iter().flat_map(|x| x.to_le_bytes()).collect();
    // Along a strip four numbers are packed at once, across it one at a time.
    for (name, columns) in [("stored_in_rows", false), ("stored_in_columns", true)] {
        let to = |dtype: DType| if columns { dtype.column_major() } else { dtype.into() };
        let epilogue = Epilogue::build(|e| {
            let z = e.acc();
            e.store("e4m3", z, to(E4M3));
            e.store("e5m2", z, to(E5M2));
            e.store("i8", z, to(I8));
            e.store("u8", z, to(U8));
            e.store("wide", z.cast(I32), to(I8));
            e.store("unsigned", z.cast(I32), to(U8));
        });
        hold(name, F32, &bytes, &epilogue.unwrap());
    }
}

#[test]
fn casts_are_the_reference_to_the_bit() {
    // What a NaN is made of is not specified, so that it is told by a comparison.
    let bytes: Vec<u8> = points().iter().flat_map(|x| x.to_le_bytes()).collect();
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        for (name, dtype) in [("e4m3", E4M3), ("e5m2", E5M2)] {
            let cast = z.cast(dtype);
            e.store(name, cast.ne(cast).select(-1.0, cast), F32);
        }
        e.store("i8", z.cast(I8), I32);
        e.store("u8", z.cast(U8), I32);
    });
    hold("cast", F32, &bytes, &epilogue.unwrap());
}

#[test]
fn every_byte_is_read_as_the_reference_reads_it() {
    let bytes: Vec<u8> = (0..=255).collect();
    for dtype in [E4M3, E5M2, I8, U8] {
        let epilogue = Epilogue::build(|e| match dtype.value_type().is_float() {
            true => e.store("d", e.acc().ne(e.acc()).select(-1.0, e.acc()), F32),
            false => e.store("d", e.acc_i32(), I32),
        });
        hold(&format!("read_{dtype}"), dtype, &bytes, &epilogue.unwrap());
    }
}
