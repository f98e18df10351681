//! Operands of more than 2^31 elements: offsets need 64 bits.

use crate::rig::gpu;
use half::f16;
use postlude::args::IntoTensor;
use postlude::build::recipes;
use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::device::DeviceArgs;
use postlude::ir::Order;
use postlude::plan::{Mainloop, Problem};
use postlude::prelude::*;
use postlude::{Gemm, Layout};
use std::sync::Arc;

/// The distance between rows: three of them span more than 2^31 elements.
const LD: usize = (1 << 30) + 24;

fn zeros(stream: &Arc<CudaStream>, len: usize) -> Option<CudaSlice<f16>> {
    stream.alloc_zeros::<f16>(len).map_err(|e| eprintln!("skipped: no room for {len} elements ({e})")).ok()
}

/// Runs of a matrix, far apart.
fn spread(stream: &Arc<CudaStream>, runs: usize, run: usize, value: impl Fn(usize, usize) -> f32) -> Option<CudaSlice<f16>> {
    // Whole pieces of 16 bytes: memcheck reports a `cp.async` of a part of a piece as one of all of it.
    let mut memory = zeros(stream, (runs - 1) * LD + run.next_multiple_of(8))?;
    for o in 0..runs {
        let elements: Vec<f16> = (0..run).map(|i| f16::from_f32(value(o, i))).collect();
        stream.memcpy_htod(&elements, &mut memory.slice_mut(o * LD..o * LD + run)).ok()?;
    }
    Some(memory)
}

/// Small integers, so that every sum is exact.
fn a(m: usize, k: usize) -> f32 {
    ((m * 5 + k * 3) % 7) as f32 - 3.0
}
fn b(k: usize, n: usize) -> f32 {
    ((k * 2 + n * 3) % 5) as f32 - 2.0
}
fn c(m: usize, n: usize) -> f32 {
    ((m + n * 2) % 9) as f32
}

#[test]
fn rows_far_apart() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let (m, n, k) = (3, 3, 20);
    // K is contiguous in one layout, and strided in the other: there A and B are short.
    let epilogue = recipes::linear_combination(F16, F16).unwrap();
    for (mainloop, layout) in [(Mainloop::Sm80, TN), (Mainloop::Simt, TN), (Mainloop::Sm80, NT), (Mainloop::Simt, NT)] {
        let k = if layout == TN { k } else { 3 };
        let a_data = if layout == TN { spread(&stream, m, k, a) } else { spread(&stream, k, m, |k, m| a(m, k)) };
        let b_data = if layout == TN { spread(&stream, n, k, |n, k| b(k, n)) } else { spread(&stream, k, n, b) };
        let (Some(a_data), Some(b_data)) = (a_data, b_data) else { return };
        let (Some(c_data), Some(mut d_data)) = (spread(&stream, m, n, c), zeros(&stream, (m - 1) * LD + n)) else { return };
        let problem = ["a", "b", "c", "d"].iter().fold(Problem::new(m, n, k), |problem, name| problem.ld(name, LD));
        let plan = Gemm::new(F16, layout, &epilogue).mainloop(mainloop).plan(device, problem).unwrap();
        let mut args = DeviceArgs::new()
            .input("a", (&a_data).into_tensor().ld(LD))
            .input("b", (&b_data).into_tensor().ld(LD))
            .input("c", (&c_data).into_tensor().ld(LD))
            .scalar("alpha", 1.0f32)
            .scalar("beta", 2.0f32)
            .output("d", (&mut d_data).into_tensor().ld(LD));
        plan.execute(&stream, &mut args).unwrap();
        drop(args);
        for row in 0..m {
            let got = stream.clone_dtoh(&d_data.slice(row * LD..row * LD + n)).unwrap();
            let expected: Vec<f32> = (0..n).map(|n| (0..k).map(|k| a(row, k) * b(k, n)).sum::<f32>() + 2.0 * c(row, n)).collect();
            assert_eq!(got.iter().map(|x| x.to_f32()).collect::<Vec<_>>(), expected, "{mainloop} {layout} row {row}");
        }
    }
}

#[test]
fn batch_entries_far_apart() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let (Some(a_data), Some(mut d_data)) = (spread(&stream, 3, 35, |l, i| a(i, l)), zeros(&stream, 2 * LD + 35)) else { return };
    let gemm = Gemm::pointwise(F16, Order::RowMajor, &recipes::identity(F16).unwrap());
    let problem = Problem::new(5, 7, 0).batched(3).batch_stride("a", LD).batch_stride("d", LD);
    let plan = gemm.plan(device, problem).unwrap();
    let mut args = DeviceArgs::new()
        .input("a", (&a_data).into_tensor().batch_stride(LD))
        .output("d", (&mut d_data).into_tensor().batch_stride(LD));
    plan.execute(&stream, &mut args).unwrap();
    drop(args);
    for l in 0..3 {
        let got = stream.clone_dtoh(&d_data.slice(l * LD..l * LD + 35)).unwrap();
        assert!(got.iter().enumerate().all(|(i, x)| x.to_f32() == a(i, l)), "entry {l}");
    }
}

#[test]
fn a_large_output() {
    // 2.7 * 10^9 elements, more tiles than a wave by far; an outer product, whose every element is known.
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    let (m, n) = (65_600, 41_000);
    let Some(mut d_data) = zeros(&stream, m * n) else { return };
    let column = |len: usize, value: fn(usize) -> f32| -> CudaSlice<f16> {
        stream.clone_htod(&(0..len).map(|i| f16::from_f32(value(i))).collect::<Vec<_>>()).unwrap()
    };
    let (a_data, b_data) = (column(m, |i| (i % 61) as f32), column(n, |i| (i % 31) as f32));
    for layout in [Layout::TN, Layout::NT] {
        stream.memset_zeros(&mut d_data).unwrap();
        let plan = Gemm::new(F16, layout, &recipes::identity(F16).unwrap()).plan(device, Shape::new(m, n, 1)).unwrap();
        let mut args = DeviceArgs::new().input("a", &a_data).input("b", &b_data).output("d", &mut d_data);
        plan.execute(&stream, &mut args).unwrap();
        drop(args);
        for row in [0, 1, 127, 128, 32_767, 52_377, 52_378, 52_379, 52_380, 60_001, m - 2, m - 1] {
            let got = stream.clone_dtoh(&d_data.slice(row * n..(row + 1) * n)).unwrap();
            let wrong = got.iter().enumerate().find(|(i, x)| x.to_f32() != ((row % 61) * (i % 31)) as f32);
            assert_eq!(wrong, None, "{layout} row {row}");
        }
    }
}
