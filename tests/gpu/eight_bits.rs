//! Operands, loads and stores of eight bits, on every mainloop.

use crate::case::Case;
use crate::layout::Rng;
use crate::rig::{Rig, rig};
use postlude::plan::{Mainloop, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Gemm};

/// Formats of A and B.
const PAIRS: [(DType, DType); 6] = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (I8, I8), (U8, I8), (I8, U8)];

/// Aligned, unaligned, and smaller than a tile.
const SHAPES: [Shape; 5] = [
    Shape::new(256, 384, 512),
    Shape::new(130, 258, 272),
    Shape::new(129, 77, 201),
    Shape::new(33, 18, 5),
    Shape::new(72, 80, 0),
];

fn sum(e: &Builder, a: DType) -> postlude::Expr<'_> {
    if a.value_type().is_float() { e.acc() } else { e.acc_i32().cast(F32) * 0.001 }
}

/// With scales of rows and columns, a bias and an activation, to 16 bits; and quantised beside its largest value.
fn epilogues(a: DType) -> [Epilogue; 3] {
    let scaled = Epilogue::build(|e| {
        let z = sum(e, a) * e.load("rows", F32.over(M)) * e.load("columns", F32.over(N)) + e.load("bias", BF16.over(N));
        e.store("d", z.relu(), BF16);
    });
    let quantised = Epilogue::build(|e| {
        let z = sum(e, a) + e.load("bias", F32.over(N));
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
        e.store("d", z * 4.0, a);
    });
    let beside = Epilogue::build(|e| {
        let c = e.load("c", a);
        let c = if a.value_type().is_float() { c } else { c.cast(F32) * 0.125 };
        e.store("d", sum(e, a) + c, a.column_major());
        e.store("other", sum(e, a) * e.load("by", E4M3.over(M)), E5M2);
    });
    [scaled, quantised, beside].map(Result::unwrap)
}

fn run(mainloop: Mainloop, pairs: &[(DType, DType)], layouts: &[Layout], shapes: &[Shape]) {
    for &(a, b) in pairs {
        for epilogue in epilogues(a) {
            for &layout in layouts {
                let gemm = Gemm::mixed(a, b, layout, &epilogue).mainloop(mainloop);
                for &shape in shapes {
                    Case::new(&gemm, shape).run();
                }
            }
        }
    }
}

#[test]
fn simt() {
    run(Mainloop::Simt, &PAIRS, &[TN, NT], &SHAPES);
    run(Mainloop::Simt, &[(E5M2, E5M2), (U8, U8)], &[NN, TT], &SHAPES[..3]);
}

#[test]
fn gemv() {
    let shapes = [Shape::new(1, 512, 384), Shape::new(3, 77, 201), Shape::new(129, 2, 64)];
    run(Mainloop::Gemv, &PAIRS[2..4], &Layout::ALL, &shapes);
}

#[test]
fn sm80() {
    run(Mainloop::Sm80, &PAIRS, &[TN], &[SHAPES[0], SHAPES[1], Shape::new(129, 77, 204), Shape::new(72, 80, 0)]);
}

#[test]
fn sm90a() {
    run(Mainloop::Sm90a, &PAIRS, &[TN], &SHAPES);
}

/// Operands that lie otherwise are transposed into scratch first.
#[test]
fn sm90a_in_other_layouts() {
    run(Mainloop::Sm90a, &[(E4M3, E5M2), (I8, U8)], &[NN, NT, TT], &SHAPES);
    let [epilogue, ..] = epilogues(I8);
    let gemm = Gemm::new(I8, NT, &epilogue).mainloop(Mainloop::Sm90a);
    let case = Case::new(&gemm, Shape::new(70, 130, 90).batched(3)).offset("a", 5).ld("a", 77).ld("b", 131);
    case.clone().run();
    case.batch_stride("a", 0).batch_stride("b", 0).run();
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(256, 256, 256)).unwrap();
    assert!(plan.explain().contains("transposes    a and b:"), "{}", plan.explain());
}

/// Every kind of Hopper's tiles, with sums that are promoted and with those of the tensor cores.
#[test]
fn every_kind_of_tile() {
    for (a, b) in [(E4M3, E4M3), (I8, I8)] {
        for fast in [false, true] {
            for epilogue in &epilogues(a)[..2] {
                let gemm = Gemm::mixed(a, b, TN, epilogue).fast_accumulation(fast);
                let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(1024, 1024, 512)).unwrap();
                let mut kinds = Vec::new();
                for (tile, _) in plan.choice.candidates() {
                    let TileShape::Sm90a { consumers, schedule, cluster, .. } = tile.shape else { panic!("{tile}") };
                    if kinds.contains(&(consumers, schedule, cluster, tile.bn % 64)) {
                        continue;
                    }
                    kinds.push((consumers, schedule, cluster, tile.bn % 64));
                    Case::new(&gemm.clone().tile(tile), Shape::new(400, 528, 640)).run();
                }
                assert!(kinds.len() >= 6, "{kinds:?}");
            }
        }
    }
}

#[test]
fn parts_of_k_batches_and_sums_of_operands() {
    for (a, b) in [(E4M3, E5M2), (I8, I8)] {
        let floats = a.value_type().is_float();
        let [scaled, ..] = epilogues(a);
        Case::new(&Gemm::mixed(a, b, TN, &scaled).split_k(4), Shape::new(96, 160, 2048)).run();
        Case::new(&Gemm::mixed(a, b, NT, &scaled).mainloop(Mainloop::Sm90a).split_k(4), Shape::new(96, 160, 2048)).run();
        Case::new(&Gemm::mixed(a, b, TN, &scaled), Shape::new(96, 160, 208).batched(3)).run();
        let summed = Epilogue::build(|e| {
            let (of_a, of_b) = if floats { (e.a(), e.b()) } else { (e.a_i32(), e.b_i32()) };
            e.store("d", sum(e, a), F32);
            e.reduce("rows", of_a, Monoid::Sum, a.value_type().storage().over(M));
            e.reduce("columns", of_b, Monoid::Sum, a.value_type().storage().over(N));
        })
        .unwrap();
        for mainloop in [Mainloop::Sm90a, Mainloop::Sm80, Mainloop::Simt] {
            Case::new(&Gemm::mixed(a, b, TN, &summed).mainloop(mainloop), Shape::new(300, 200, 656)).run();
        }
    }
}

/// From 0 to 1: what is cut off then has one sign.
pub fn positive(rng: &mut Rng, dtype: DType) -> f64 {
    let x = rng.element(F32).abs();
    dtype.round(x - x.floor())
}

/// Long sums of one sign, where tensor cores by themselves would be far off.
#[test]
fn long_sums_of_one_sign() {
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    for (mainloop, a) in [(Mainloop::Sm90a, E4M3), (Mainloop::Sm90a, E5M2), (Mainloop::Sm80, E4M3), (Mainloop::Simt, E4M3)] {
        for k in [1024, 8192, 65536] {
            let gemm = Gemm::new(a, TN, &epilogue).mainloop(mainloop);
            Case::new(&gemm, Shape::new(64, 72, k)).fill("a", positive).fill("b", positive).run();
        }
    }
}

/// And that they are, where they are allowed to.
#[test]
fn sums_of_the_tensor_cores_are_coarse() {
    let Some(Rig::Gpu(device)) = rig() else { return };
    if device.target() != Target::SM_90A {
        return;
    }
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    let off = |fast: bool| {
        let gemm = Gemm::new(E4M3, TN, &epilogue).mainloop(Mainloop::Sm90a).fast_accumulation(fast).split_k(1);
        let case = Case::new(&gemm, Shape::new(64, 64, 8192)).fill("a", positive).fill("b", positive);
        let given = case.buffers();
        let got = case.launch(device, &given, &case.problem(&given));
        let mut defined = given.clone();
        gemm.reference(case.shape, case.host(&mut defined)).unwrap();
        let of = |buffers: &[crate::layout::Buffer]| -> Vec<f64> {
            buffers.iter().find(|b| b.name == "d").unwrap().elements().map(|(_, x)| x).collect()
        };
        let (got, defined) = (of(&got), of(&defined));
        let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        norm(&mut got.iter().zip(&defined).map(|(x, y)| x - y)) / norm(&mut defined.iter().copied())
    };
    let (promoted, fast) = (off(false), off(true));
    println!("relative error of a sum of 8192 terms of one sign: promoted {promoted:.1e}, fast {fast:.1e}");
    assert!(promoted < 1e-3 && fast > 2e-2, "{promoted} {fast}");
}

/// Every number of 16 bits, every tie and its neighbours, to the last bit.
#[test]
fn stores_are_the_reference_to_the_bit() {
    let Some(Rig::Gpu(device)) = rig() else { return };
    let halves = (0..=u16::MAX).map(|bits| postlude::half::f16::from_bits(bits).to_f32());
    let between = |decode: fn(u8) -> f32| (0..0x7b).map(move |code| (decode(code) + decode(code + 1)) / 2.0);
    let ties = between(|code| postlude::float8::F8E4M3::from_bits(code).to_f32())
        .chain(between(|code| postlude::float8::F8E5M2::from_bits(code).to_f32()));
    let integers = (0..600).map(|i| i as f32 / 2.0);
    let far = [464.0, 61440.0, 1e9, 3e9, f32::MAX, f32::INFINITY, f32::from_bits(1)];
    let exact = ties.chain(integers).chain(far).flat_map(|x| [x, -x]).flat_map(|x| [x.next_down(), x, x.next_up()]);
    let mut points: Vec<f32> = halves.chain(exact).chain([f32::NAN, -f32::NAN]).collect();
    points.resize(points.len().next_multiple_of(256), -0.0);
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        for (name, dtype) in [("e4m3", E4M3), ("e5m2", E5M2), ("i8", I8), ("u8", U8)] {
            e.store(name, z, dtype);
            e.store(&format!("turned_{name}"), z, dtype.column_major());
        }
        e.store("whole", z.cast(I32), I8);
        e.store("cast", z.cast(E4M3).ne(z.cast(E4M3)).select(-1.0, z.cast(E4M3)) + z.cast(U8).cast(F32), F32);
    });
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue.unwrap());
    let case = Case::new(&gemm, Shape::matrix(points.len() / 256, 256));
    let mut given = case.buffers();
    let mut next = points.iter().map(|x| f64::from(*x));
    let a = given.iter_mut().find(|buffer| buffer.name == "a").unwrap();
    a.fill(|| next.next().unwrap());
    let got = case.launch(device, &given, &case.problem(&given));
    let mut defined = given.clone();
    gemm.reference(case.shape, case.host(&mut defined)).unwrap();
    for (got, defined) in got.iter().zip(&defined) {
        let differs = got.bytes.iter().zip(&defined.bytes).position(|(x, y)| x != y);
        assert_eq!(differs, None, "`{}`", got.name);
    }
}
