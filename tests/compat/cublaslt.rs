//! cuBLASLt's epilogues by their documentation: D, auxiliaries, sums, and the edges where they differ from the rest.

use postlude::check::Role;
use postlude::compat::cublaslt::{self, Formats};
use postlude::grad::Wrt;
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{HostArgs, Operation, Tensor};
use std::collections::BTreeMap;

const M_: usize = 3;
const N_: usize = 5;
/// A row of a mask.
const LD: usize = 128;

const POINTWISE: Operation = Operation::Pointwise { dtype: F32, order: postlude::ir::Order::RowMajor };

/// Runs an epilogue over a matrix; returns its outputs.
fn outputs(epilogue: &Epilogue, z: &[f32], inputs: &BTreeMap<&str, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let mut room: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for argument in epilogue.arguments().iter().filter(|a| a.role.is_written()) {
        room.insert(argument.name.to_string(), vec![0xff; 4 * M_ * LD]);
    }
    let mut args = HostArgs::new().input("a", z);
    let mut free: BTreeMap<&str, &mut Vec<u8>> = room.iter_mut().map(|(n, b)| (n.as_str(), b)).collect();
    for argument in epilogue.arguments() {
        let name = &*argument.name;
        args = match argument.role {
            Role::Scalar(_) => args.scalar(name, if name == "alpha" { 2.0f32 } else { 0.5 }),
            Role::Table(_) | Role::Counts(_) => unreachable!("none of them gathers or counts"),
            Role::Input(o) => args.input(name, Tensor::of_bytes(o.dtype, &inputs[name])),
            Role::Output(o) | Role::Update(o) => args.output(name, Tensor::of_bytes_mut(o.dtype, free.remove(name).unwrap())),
        };
    }
    run(POINTWISE, epilogue.checked(), Shape::new(M_, N_, 0), args, Precision::F32).unwrap_or_else(|e| panic!("{e}"));
    room
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8], count: usize) -> Vec<f32> {
    (0..count).map(|i| F32.read(bytes, i) as f32).collect()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn near(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let fits = (f64::from(*found) - expected).abs() <= 2e-6 * (1.0 + expected.abs());
        assert!(fits || found.is_nan() && expected.is_nan(), "{found}, not {expected}");
    }
}

#[test]
fn every_one_is_what_its_name_says() {
    let a: Vec<f32> = (0..M_ * N_).map(|i| ((i * 7 % 15) as f32 - 7.0) / 4.0).collect();
    let c: Vec<f32> = (0..M_ * N_).map(|i| (i as f32 - 6.0) / 8.0).collect();
    let bias: Vec<f32> = (0..N_).map(|i| i as f32 / 4.0 - 0.5).collect();
    let aux: Vec<f32> = (0..M_ * N_).map(|i| (i as f32 - 7.0) / 3.0).collect();
    let mask = |i: usize, j: usize| (i + 2 * j).is_multiple_of(3);
    let mut bits = vec![0u8; M_ * LD / 8];
    for (i, j) in (0..M_).flat_map(|i| (0..N_).map(move |j| (i, j))).filter(|(i, j)| mask(*i, *j)) {
        bits[(i * LD + j) / 8] |= 1 << (j % 8);
    }
    for with_c in [false, true] {
        for named in cublaslt::ALL.iter().filter(|named| !named.name.starts_with("BGRAD")) {
            let formats = Formats { c: with_c.then_some(F32), ..Formats::of(F32) };
            let epilogue = (named.build)(formats).unwrap_or_else(|e| panic!("{}: {e}", named.name));
            let name = named.name;
            let aux_in = if name.starts_with("DRELU") { bits.clone() } else { bytes(&aux) };
            let inputs = BTreeMap::from([("c", bytes(&c)), ("bias", bytes(&bias)), ("aux", aux_in)]);
            let written = outputs(&epilogue, &a, &inputs);
            let z: Vec<f64> = (0..M_ * N_)
                .map(|i| {
                    let z = 2.0 * a[i] + if with_c { 0.5 * c[i] } else { 0.0 };
                    f64::from(z + if name.contains("BIAS") { bias[i % N_] } else { 0.0 })
                })
                .collect();
            let h = 1e-5;
            let d: Vec<f64> = (0..M_ * N_)
                .map(|i| match name {
                    "DEFAULT" | "BIAS" => z[i],
                    _ if name.starts_with("RELU") => z[i].max(0.0),
                    _ if name.starts_with("GELU") => gelu(z[i]),
                    _ if name.starts_with("DRELU") => {
                        if mask(i / N_, i % N_) {
                            z[i]
                        } else {
                            0.0
                        }
                    }
                    _ if name.starts_with("DGELU") => {
                        let x = f64::from(aux[i]);
                        z[i] * (gelu(x + h) - gelu(x - h)) / (2.0 * h)
                    }
                    other => panic!("write down what {other} is"),
                })
                .collect();
            near(&floats(&written["d"], M_ * N_), &d);
            if name.ends_with("BGRAD") {
                let sums: Vec<f64> = (0..N_).map(|j| (0..M_).map(|i| d[i * N_ + j]).sum()).collect();
                near(&floats(&written["bgrad"], N_), &sums);
            }
            if name.starts_with("GELU_AUX") {
                near(&floats(&written["aux"], M_ * N_), &z);
            }
            if name.starts_with("RELU_AUX") {
                for (i, z) in z.iter().enumerate() {
                    let bit = i / N_ * LD + i % N_;
                    assert_eq!(written["aux"][bit / 8] >> (bit % 8) & 1 == 1, *z >= 0.0, "{name} at {i}");
                }
            }
        }
    }
}

/// cuBLASLt's A is our B: its sums are one value for each row of its D, which is a column of ours.
#[test]
fn where_beta_is_zero_c_is_not_looked_at() {
    let epilogue = cublaslt::default(Formats { c: Some(F32), ..Formats::of(F32) }).unwrap();
    let (a, c) = ([1.0f32, 2.0], [f32::NAN, f32::INFINITY]);
    let with = |beta: f32| {
        let mut d = [9.0f32; 2];
        let args = HostArgs::new().input("a", &a).input("c", &c).scalar("alpha", 2.0f32).scalar("beta", beta).output("d", &mut d);
        run(POINTWISE, epilogue.checked(), Shape::new(1, 2, 0), args, Precision::F32).unwrap();
        d
    };
    assert_eq!(with(0.0), [2.0, 4.0]);
    assert_eq!(with(-0.0), [2.0, 4.0]);
    assert!(with(0.5)[0].is_nan() && with(0.5)[1] == f32::INFINITY);
}

/// Without factors, C is added as it is, and the launch has neither number.
#[test]
fn c_is_added_without_factors() {
    let formats = Formats { c: Some(F32), scaled: false, ..Formats::of(F32) };
    let epilogue = cublaslt::default(formats).unwrap();
    let (a, c, mut d) = ([1.0f32, 2.0], [0.5f32, -4.0], [9.0f32; 2]);
    let args = HostArgs::new().input("a", &a).input("c", &c).output("d", &mut d);
    run(POINTWISE, epilogue.checked(), Shape::new(1, 2, 0), args, Precision::F32).unwrap();
    assert_eq!(d, [1.5, -2.0]);
}

#[test]
fn sums_of_operands_stand_beside_the_product() {
    const K_: usize = 4;
    let a: Vec<f32> = (0..M_ * K_).map(|i| ((i * 7 % 15) as f32 - 7.0) / 4.0).collect();
    let b: Vec<f32> = (0..K_ * N_).map(|i| ((i * 5 % 13) as f32 - 6.0) / 8.0).collect();
    let at = |i: usize, j: usize| (0..K_).map(|k| f64::from(a[i * K_ + k] * b[k * N_ + j])).sum::<f64>();
    let z: Vec<f64> = (0..M_ * N_).map(|i| 2.0 * at(i / N_, i % N_)).collect();
    for (build, sums) in [
        (
            cublaslt::bgrada as fn(Formats) -> _,
            (0..N_).map(|j| (0..K_).map(|k| f64::from(b[k * N_ + j])).sum()).collect::<Vec<f64>>(),
        ),
        (cublaslt::bgradb, (0..M_).map(|i| (0..K_).map(|k| f64::from(a[i * K_ + k])).sum()).collect()),
    ] {
        let epilogue: Epilogue = build(Formats::of(F32)).unwrap();
        let (mut d, mut bgrad) = (vec![f32::NAN; M_ * N_], vec![f32::NAN; sums.len()]);
        let args = HostArgs::new().input("a", &a).input("b", &b).scalar("alpha", 2.0f32);
        let args = args.output("d", &mut d).output("bgrad", &mut bgrad);
        let product = Operation::product(F32, TT);
        run(product, epilogue.checked(), Shape::new(M_, N_, K_), args, Precision::F32).unwrap();
        near(&d, &z);
        near(&bgrad, &sums);
    }
}

/// Scales of both operands, of D, and the largest size before the last of them, beside plain arithmetic; left out, a scale is 1.
#[test]
fn scales_of_eight_bits() {
    let (m, n, k) = (3, 4, 5);
    let numbers = |count: usize, seed: usize| (0..count).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect::<Vec<f32>>();
    let (a, b, bias) = (numbers(m * k, 1), numbers(n * k, 2), numbers(n, 3));
    let (rows, columns) = ([0.5f32, 2.0, 4.0], [1.0f32, 0.25, 2.0, 0.5]);
    let to = |dtype: DType, x: &[f32]| {
        let mut bytes = vec![0u8; dtype.bytes(x.len())];
        x.iter().enumerate().for_each(|(i, x)| dtype.write(&mut bytes, i, f64::from(*x)));
        bytes
    };
    for (dtype, d, vectors) in [(E4M3, E4M3, false), (E4M3, E4M3, true), (E5M2, F16, true), (I8, I8, true)] {
        let mut formats = if dtype == I8 { Formats::int8(d) } else { Formats::fp8(d) };
        formats.bias = F32;
        if vectors {
            (formats.scales.a, formats.scales.b) = (Some(F32.over(M)), Some(F32.over(N)));
        }
        let epilogue = cublaslt::relu_bias(formats).unwrap();
        let (a_bytes, b_bytes) = (to(dtype, &a), to(dtype, &b));
        for given in [true, false] {
            let (mut out, mut amax) = (vec![0u8; d.bytes(m * n)], [0.0f32]);
            let args = HostArgs::new()
                .input("a", Tensor::of_bytes(dtype, &a_bytes))
                .input("b", Tensor::of_bytes(dtype, &b_bytes))
                .input("bias", &bias)
                .scalar("alpha", 0.5)
                .output("d", Tensor::of_bytes_mut(d, &mut out))
                .output("amax", &mut amax);
            let (by, scale_d) = (if vectors { (&rows[..], &columns[..]) } else { (&rows[..1], &columns[1..2]) }, [0.5f32]);
            let args = if given { args.input("scale_a", by.0).input("scale_b", by.1).input("scale_d", &scale_d) } else { args };
            let shape = Shape::new(m, n, k);
            Gemm::new(dtype, TN, &epilogue).reference(shape, args.used_by(epilogue.checked())).unwrap();
            let mut largest = 0.0f64;
            for i in 0..m {
                for j in 0..n {
                    let sum: f64 = (0..k).map(|x| f64::from(a[i * k + x]) * f64::from(b[j * k + x])).sum();
                    let scale = |by: &[f32], at: usize| if given { f64::from(by[if vectors { at } else { 0 }]) } else { 1.0 };
                    let z = (0.5 * sum * scale(by.0, i) * scale(by.1, j) + f64::from(bias[j])).max(0.0);
                    largest = largest.max(z);
                    let stored = if formats.scales.d && given { 0.5 * z } else { z };
                    assert_eq!(d.read(&out, i * n + j), d.round(stored), "{dtype} {d} {vectors} {given} {i} {j}");
                }
            }
            assert_eq!(f64::from(amax[0]), if formats.scales.amax { largest } else { 0.0 });
        }
    }
}

#[test]
fn the_numbers_are_those_of_the_header() {
    let numbers: Vec<u32> = cublaslt::ALL.iter().map(|n| n.value).collect();
    assert_eq!(numbers, [1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512]);
    assert_eq!(cublaslt::by_value(152).map(|n| n.name), Some("DRELU_BGRAD"));
    assert!(cublaslt::by_value(3).is_none());
}

#[test]
fn faults_behind_a_number_are_nobodys_line() {
    for named in cublaslt::ALL {
        let faults = (named.build)(Formats::of(I32)).unwrap_err();
        assert!(faults.iter().all(|fault| fault.built_at().is_none()), "{faults}");
    }
}

#[test]
fn the_order_of_a_recipes_sums_can_be_given_up() {
    let sums = cublaslt::drelu_bgrad(Formats { bias: F32, ..Formats::of(F16) }).unwrap();
    let atomic = sums.atomic();
    assert_ne!(atomic, sums);
    assert_eq!(atomic.to_string(), sums.to_string().replace("\"bgrad\" sum f32", "\"bgrad\" sum atomic f32"));
    assert_eq!((atomic.atomic(), atomic.arguments()), (atomic.clone(), sums.arguments()));
}

#[test]
fn edges_of_relu_are_as_documented() {
    let mut z = [0.0f32; M_ * N_];
    z[..5].copy_from_slice(&[f32::NAN, -0.0, 0.0, f32::INFINITY, -1.0]);
    let written = outputs(&cublaslt::relu_aux(Formats::of(F32)).unwrap(), &z, &BTreeMap::new());
    let d = floats(&written["d"], 5);
    assert!(d[0].is_nan() && d[1..] == [0.0, 0.0, f32::INFINITY, 0.0], "{d:?}");
    assert_eq!(written["aux"][0], 0b0_1110);
}

#[test]
fn far_out_the_derivative_of_gelu_is_1_or_0() {
    let aux: Vec<f32> = [1e20, -1e20, 3e13, -3e13, f32::INFINITY, f32::NEG_INFINITY, 9.0, -9.0, f32::MAX, f32::MIN]
        .into_iter()
        .chain([20.0; M_ * N_ - 10])
        .collect();
    let out = outputs(&cublaslt::dgelu(Formats::of(F32)).unwrap(), &[0.5; M_ * N_], &BTreeMap::from([("aux", bytes(&aux))]));
    let expected: Vec<f64> = aux.iter().map(|x| if *x > 0.0 { 1.0 } else { 0.0 }).collect();
    near(&floats(&out["d"], M_ * N_), &expected);
}

#[test]
fn the_derivative_of_the_one_is_the_other() {
    // DGELU_BGRAD is what differentiation finds for GELU_AUX_BIAS, whose auxiliary the caller keeps.
    let pair = cublaslt::gelu_aux_bias(Formats::of(F32)).unwrap();
    let pair = pair.backward(Wrt::arguments(["bias"]).detached("aux").keeps("aux")).unwrap();
    assert_eq!(pair.reserve().bits_per_element(), 0);
    let dz: Vec<f32> = (0..M_ * N_).map(|i| (i as f32 - 6.0) / 4.0).collect();
    let aux: Vec<f32> = (0..M_ * N_).map(|i| (i as f32 - 7.0) / 3.0).collect();
    let ours = outputs(pair.backward(), &dz, &BTreeMap::from([("aux", bytes(&aux))]));
    let half: Vec<f32> = dz.iter().map(|x| x / 2.0).collect();
    let theirs = outputs(&cublaslt::dgelu_bgrad(Formats::of(F32)).unwrap(), &half, &BTreeMap::from([("aux", bytes(&aux))]));
    let expected: Vec<f64> = floats(&theirs["bgrad"], N_).into_iter().map(f64::from).collect();
    near(&floats(&ours["grad_bias"], N_), &expected);
}
