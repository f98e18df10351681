//! Operands that a launch may leave out, on every mainloop: all of them there, none, and every other one; of every format and along every
//! axis, staged by tensor maps, element by element and not at all.

use crate::case::Case;
use crate::gathers::{SHAPES, gemms};
use crate::rig::gpu;
use half::f16;
use postlude::build::recipes;
use postlude::device::DeviceArgs;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

/// With names in the order of first use.
fn epilogue(d: impl Into<Operand>) -> (Epilogue, Vec<String>) {
    let d = d.into();
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load_or("scale", F32.pointer(), 0.5) * e.load_or("rows", F16.over(M), 1.25);
        let z = z + e.load_or("columns", F16.over(N).batched(), 0.1) + e.load_or("level", I32.over(N), -3).cast(F32) * 0.01;
        let z = z + e.load_or("c", F16, -2.0) - e.load_or("turned", F32.column_major(), 0.75) + e.load("there", BF16);
        let z = e.load_or("keep", Bits8, true).select(z, 0.0) + e.load_or("masked", Bits8.over(N), true).cast(F32);
        let z = e.load_or("lit", Bool.over(M).batched(), false).select(z, -z);
        let bytes = e.load_or("bytes", Bool, true) & e.load_or("down", Bits8.column_major(), true);
        e.store("d", bytes.select(z, e.load_or("other", BF16.column_major(), 7.0)), d);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let epilogue = epilogue.unwrap();
    let names = epilogue.arguments().iter().filter(|a| a.need.default().is_some()).map(|a| a.name.to_string()).collect();
    (epilogue, names)
}

/// Everything, nothing, and the two halves.
fn run_without(names: &[String], case: &Case) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let odd = |odd: usize| names.iter().copied().skip(odd).step_by(2).collect();
    for left_out in [Vec::new(), names.clone(), odd(0), odd(1)] {
        case.clone().without(&left_out).run();
    }
}

#[test]
fn on_every_mainloop() {
    for d in [Operand::from(F16), F32.column_major()] {
        let (epilogue, names) = epilogue(d);
        for gemm in gemms(&epilogue) {
            SHAPES.into_iter().for_each(|shape| run_without(&names, &Case::new(&gemm, shape)));
        }
        for shape in [Shape::new(3, 136, 264), Shape::new(133, 2, 51)] {
            run_without(&names, &Case::new(&Gemm::new(F16, NT, &epilogue).mainloop(Mainloop::Gemv), shape));
        }
        let split = Gemm::new(F16, TN, &epilogue).split_k(4);
        run_without(&names, &Case::new(&split, Shape::new(72, 136, 640)));
    }
}

/// Where no operand of the epilogue is aligned for tensor maps.
#[test]
fn where_nothing_is_aligned() {
    let (epilogue, names) = epilogue(F16);
    for gemm in gemms(&epilogue) {
        let case = Case::new(&gemm, Shape::new(200, 144, 64)).ld("c", 147).ld("turned", 203).ld("other", 201);
        run_without(&names, &case.offset("columns", 3).offset("rows", 1).offset("level", 1));
    }
}

/// Every matrix of a chunk may be missing, so that a consumer waits for a chunk into which nothing comes.
#[test]
fn matrices_alone() {
    let epilogue =
        Epilogue::build(|e| e.store("d", e.acc() + e.load_or("c", F16, 1.0) * e.load_or("by", F16, 2.0), F16)).unwrap();
    let names = ["c".to_owned(), "by".to_owned()];
    for gemm in gemms(&epilogue) {
        for shape in SHAPES.into_iter().chain([Shape::new(1024, 2048, 128)]) {
            run_without(&names, &Case::new(&gemm, shape));
        }
    }
}

#[test]
fn numbers_by_value() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.scalar_or("alpha", F32, 0.5);
        e.store("d", e.row().lt(e.scalar_or("boundary", I32, 3)).select(z, e.scalar_or("on", Bool, true).select(-z, z)), F16);
    });
    let case = Case::new(&Gemm::new(F16, TN, &epilogue.unwrap()), Shape::new(64, 48, 32));
    case.clone().run();
    case.clone().scalar("alpha", -1.5f32).run();
    case.scalar("alpha", 2.0f32).scalar("boundary", 10).scalar("on", false).run();
}

/// The same plan, and so the same kernel, launched with the operand and without it.
#[test]
fn one_plan_serves_both() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let (m, n, k) = (256usize, 192, 64);
    let epilogue =
        Epilogue::build(|e| e.store("d", e.acc() + e.load_or("bias", F16.over(N), 0.25) + e.load_or("c", F16, 2.0), F16));
    let plan = Gemm::new(F16, TN, &epilogue.unwrap()).plan(device, Shape::new(m, n, k)).unwrap();
    let of = |x: f32, len: usize| stream.clone_htod(&vec![f16::from_f32(x); len]).unwrap();
    let (a, b, bias, c) = (of(0.5, m * k), of(1.0, n * k), of(-8.0, n), of(16.0, m * n));
    for (with_bias, with_c) in [(true, true), (false, true), (true, false), (false, false), (true, true)] {
        let mut d = of(f32::NAN, m * n);
        let mut args = DeviceArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
        if with_bias {
            args = args.input("bias", &bias);
        }
        if with_c {
            args = args.input("c", &c);
        }
        plan.execute(&stream, &mut args).unwrap();
        drop(args);
        let expected = 32.0 + if with_bias { -8.0 } else { 0.25 } + if with_c { 16.0 } else { 2.0 };
        let found = stream.clone_dtoh(&d).unwrap();
        assert!(found.iter().all(|x| x.to_f32() == expected), "{with_bias} {with_c}: {} is not {expected}", found[0]);
    }
}

/// What may be left out has to be there where a graph says so.
#[test]
fn what_is_required_is_missed() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let gemm = Gemm::new(F16, TN, &recipes::bias_activation(F16, F16, |z| z.relu()).unwrap());
    let plan = gemm.plan(device, Shape::new(64, 48, 32)).unwrap();
    let (a, b) = (stream.alloc_zeros::<f16>(64 * 32).unwrap(), stream.alloc_zeros::<f16>(48 * 32).unwrap());
    let mut d = stream.alloc_zeros::<f16>(64 * 48).unwrap();
    let mut args = DeviceArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    let error = plan.execute(&stream, &mut args).unwrap_err().to_string();
    assert!(error.contains("argument `bias`: missing"), "{error}");
}

/// A launch may pass unused arguments, and the kernel ignores them.
#[test]
fn what_is_unused_is_ignored() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let (epilogue, warnings) = Epilogue::build_lenient(|e| {
        let _unused = e.load("unused", F32);
        e.store("d", e.acc() + e.load_or("bias", F16.over(N), 1.0), F16);
    })
    .unwrap();
    assert_eq!(warnings.len(), 1);
    let plan = Gemm::new(F16, TN, &epilogue).plan(device, Shape::new(64, 48, 32)).unwrap();
    let ones = |len: usize| stream.clone_htod(&vec![f16::ONE; len]).unwrap();
    let (a, b, other) = (ones(64 * 32), ones(48 * 32), ones(3));
    for passes in [false, true] {
        let mut d = ones(64 * 48);
        let mut args = DeviceArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
        if passes {
            args = args.input("unused", &other);
        }
        plan.execute(&stream, &mut args).unwrap();
        drop(args);
        assert!(stream.clone_dtoh(&d).unwrap().iter().all(|x| x.to_f32() == 33.0));
    }
}
