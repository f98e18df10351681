//! Operands: several sets of them, so that a launch never finds its own in the cache.

use crate::Result;
use half::f16;
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use postlude::device::DeviceArgs;
use postlude::prelude::*;
use std::sync::Arc;

/// Bytes that the sets together exceed: several times any level-2 cache.
const ROTATED: usize = 240 << 20;

/// Memory of either format.
pub enum Data {
    F16(CudaSlice<f16>),
    F32(CudaSlice<f32>),
}

impl Data {
    /// Random elements in [-0.5, 0.5]: constant data would draw less power, and run faster than any real one.
    fn random(stream: &Arc<CudaStream>, dtype: DType, len: usize, seed: u64) -> Result<Data> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        Ok(match dtype {
            DType::F32 => Data::F32(stream.clone_htod(&(0..len).map(|_| next()).collect::<Vec<f32>>())?),
            _ => {
                let table: Vec<f16> = (0..1 << 16).map(|_| f16::from_f32(next())).collect();
                let mut index = seed;
                let elements = (0..len).map(|_| {
                    index = index.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    table[(index >> 48) as usize]
                });
                Data::F16(stream.clone_htod(&elements.collect::<Vec<f16>>())?)
            }
        })
    }

    pub fn bytes(dtype: DType, len: usize) -> usize {
        len * dtype.size()
    }

    pub fn address(&self, stream: &Arc<CudaStream>) -> u64 {
        match self {
            Data::F16(data) => data.device_ptr(stream).0,
            Data::F32(data) => data.device_ptr(stream).0,
        }
    }

    pub fn address_mut(&mut self, stream: &Arc<CudaStream>) -> u64 {
        match self {
            Data::F16(data) => data.device_ptr_mut(stream).0,
            Data::F32(data) => data.device_ptr_mut(stream).0,
        }
    }

    fn input<'a>(&'a self, args: DeviceArgs<'a>, name: &str) -> DeviceArgs<'a> {
        match self {
            Data::F16(data) => args.input(name, data),
            Data::F32(data) => args.input(name, data),
        }
    }

    fn output<'a>(&'a mut self, args: DeviceArgs<'a>, name: &str) -> DeviceArgs<'a> {
        match self {
            Data::F16(data) => args.output(name, data),
            Data::F32(data) => args.output(name, data),
        }
    }
}

/// A, B, bias and D of one launch.
pub struct Set {
    pub a: Data,
    pub b: Data,
    pub bias: Data,
    pub d: Data,
}

pub struct Operands {
    pub sets: Vec<Set>,
    /// Whether there is no B.
    pub pointwise: bool,
}

impl Operands {
    pub fn new(stream: &Arc<CudaStream>, dtype: DType, d: DType, shape: Shape) -> Result<Operands> {
        let Shape { m, n, k, .. } = shape;
        let bytes = Data::bytes(dtype, m * k + k * n) + Data::bytes(d, m * n);
        let sets = (0..ROTATED.div_ceil(bytes).clamp(1, 8) as u64).map(|i| {
            Ok(Set {
                a: Data::random(stream, dtype, m * k, 4 * i + 1)?,
                b: Data::random(stream, dtype, k * n, 4 * i + 2)?,
                bias: Data::random(stream, d, n, 4 * i + 3)?,
                d: Data::random(stream, d, m * n, 4 * i + 4)?,
            })
        });
        Ok(Operands { sets: sets.collect::<Result<_>>()?, pointwise: false })
    }

    pub fn set(&mut self, turn: usize) -> &mut Set {
        let count = self.sets.len();
        &mut self.sets[turn % count]
    }

    /// The arguments of one launch.
    pub fn args(&mut self, turn: usize, names: &[&str]) -> DeviceArgs<'_> {
        let pointwise = self.pointwise;
        let Set { a, b, bias, d } = self.set(turn);
        let mut args = a.input(DeviceArgs::new(), "a");
        if !pointwise {
            args = b.input(args, "b");
        }
        if names.contains(&"bias") {
            args = bias.input(args, "bias");
        }
        d.output(args, "d")
    }

    /// Copies A to D.
    pub fn copy(&mut self, stream: &Arc<CudaStream>, turn: usize) {
        match self.set(turn) {
            Set { a: Data::F16(a), d: Data::F16(d), .. } => stream.memcpy_dtod(a, d),
            Set { a: Data::F32(a), d: Data::F32(d), .. } => stream.memcpy_dtod(a, d),
            _ => unreachable!("A and D have one format"),
        }
        .expect("a copy");
    }

    /// Fills the first D with NaN.
    pub fn poison(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        match &mut self.sets[0].d {
            Data::F16(d) => stream.memcpy_htod(&vec![f16::NAN; d.len()], d)?,
            Data::F32(d) => stream.memcpy_htod(&vec![f32::NAN; d.len()], d)?,
        }
        Ok(())
    }

    /// Elements of the first D, from everywhere in it.
    pub fn sample(&self, stream: &Arc<CudaStream>) -> Result<Vec<f32>> {
        let all: Vec<f32> = match &self.sets[0].d {
            Data::F16(d) => stream.clone_dtoh(d)?.into_iter().map(f16::to_f32).collect(),
            Data::F32(d) => stream.clone_dtoh(d)?,
        };
        Ok(all.into_iter().step_by(37).collect())
    }
}

/// |x - y| / |y|.
pub fn distance(x: &[f32], y: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = x.iter().zip(y).map(|(x, y)| square(f64::from(*x) - f64::from(*y))).sum();
    (difference / y.iter().map(|y| square(f64::from(*y))).sum::<f64>()).sqrt()
}
