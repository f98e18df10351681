//! Operands: several sets of them, so that a launch never finds its own in the cache.

use crate::Result;
use half::{bf16, f16};
use postlude::check::Argument;
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, result};
use postlude::device::DeviceArgs;
use postlude::prelude::*;
use std::sync::Arc;

/// Bytes that the sets together exceed, unless that takes too many of them: several times any level-2 cache.
const ROTATED: usize = 240 << 20;

/// The most sets.
const SETS: usize = 160;

/// Elements of the noise that buffers are filled with: odd, so that no row of a matrix repeats another.
const NOISE: usize = (1 << 22) - 3;

/// Elements in one window of a sample, and how many windows there are at most.
const WINDOW: usize = 1 << 14;
const WINDOWS: usize = 256;

/// Memory of one of the formats.
pub enum Data {
    F16(CudaSlice<f16>),
    BF16(CudaSlice<bf16>),
    F32(CudaSlice<f32>),
}

/// Does the same with memory of any format.
macro_rules! each {
    ($data:expr, $name:ident => $body:expr) => {
        match $data {
            Data::F16($name) => $body,
            Data::BF16($name) => $body,
            Data::F32($name) => $body,
        }
    };
}

impl Data {
    pub fn address(&self, stream: &Arc<CudaStream>) -> u64 {
        each!(self, data => data.device_ptr(stream).0)
    }

    pub fn address_mut(&mut self, stream: &Arc<CudaStream>) -> u64 {
        each!(self, data => data.device_ptr_mut(stream).0)
    }

    fn input<'a>(&'a self, args: DeviceArgs<'a>, name: &str) -> DeviceArgs<'a> {
        each!(self, data => args.input(name, data))
    }

    fn output<'a>(&'a mut self, args: DeviceArgs<'a>, name: &str) -> DeviceArgs<'a> {
        each!(self, data => args.output(name, data))
    }
}

/// Random elements in [-0.5, 0.5] on the device: constant data would draw less power, and run faster than any real one.
pub struct Noise {
    stream: Arc<CudaStream>,
    f16: CudaSlice<f16>,
    bf16: CudaSlice<bf16>,
    f32: CudaSlice<f32>,
    bytes: CudaSlice<u8>,
}

impl Noise {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Noise> {
        let mut state = 1u64;
        let numbers: Vec<f32> = (0..NOISE)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
            })
            .collect();
        let f16: Vec<f16> = numbers.iter().map(|x| f16::from_f32(*x)).collect();
        let bf16: Vec<bf16> = numbers.iter().map(|x| bf16::from_f32(*x)).collect();
        // The eight of 24 random bits below the sign and exponent.
        let bytes: Vec<u8> = numbers.iter().map(|x| ((x + 0.5) * 65536.0) as u32 as u8).collect();
        let stream = stream.clone();
        let (f16, bf16) = (stream.clone_htod(&f16)?, stream.clone_htod(&bf16)?);
        Ok(Noise { f16, bf16, f32: stream.clone_htod(&numbers)?, bytes: stream.clone_htod(&bytes)?, stream })
    }

    /// A buffer of it, beginning anywhere.
    fn fill<T: DeviceRepr>(&self, noise: &CudaSlice<T>, len: usize, seed: usize) -> Result<CudaSlice<T>> {
        // SAFETY: every element is copied into below before anything reads it.
        let mut data = unsafe { self.stream.alloc::<T>(len) }?;
        let (mut done, mut from) = (0, seed.wrapping_mul(1_000_003) % NOISE);
        while done < len {
            let count = (NOISE - from).min(len - done);
            self.stream.memcpy_dtod(&noise.slice(from..from + count), &mut data.slice_mut(done..done + count))?;
            (done, from) = (done + count, 0);
        }
        Ok(data)
    }

    fn data(&self, dtype: DType, len: usize, seed: usize) -> Result<Data> {
        Ok(match dtype {
            DType::F32 => Data::F32(self.fill(&self.f32, len, seed)?),
            DType::BF16 => Data::BF16(self.fill(&self.bf16, len, seed)?),
            _ => Data::F16(self.fill(&self.f16, len, seed)?),
        })
    }
}

/// The memory of one launch.
pub struct Set {
    pub a: Data,
    pub b: Data,
    pub bias: Data,
    /// Another matrix of D's extents.
    pub c: Data,
    pub row_scale: Data,
    pub d: Data,
    /// A product before its pointwise part.
    pub between: Option<Data>,
    pub training: Option<Training>,
}

/// The additional memory of a training step.
pub struct Training {
    /// One bit an element of D, rows of a multiple of 128.
    pub mask: CudaSlice<u8>,
    /// The sum of each column, ours and cuBLASLt's, which has D's format.
    pub sums: CudaSlice<f32>,
    pub rounded_sums: Data,
}

/// The memory of sets besides the operands of a product and its epilogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Besides {
    /// The matrix that a pointwise operation reads.
    pub between: bool,
    /// The memory of a training step.
    pub training: bool,
}

pub struct Operands {
    pub dtype: DType,
    pub shape: Shape,
    pub besides: Besides,
    pub sets: Vec<Set>,
    /// The bytes of all sets, as far as every launch touches them.
    pub working_set: u64,
}

/// The outputs of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    D,
    Mask,
    /// GELU's argument, stored beside D.
    Stored,
    /// The same, left by a separate product.
    Between,
    /// In `f32`, as we have them.
    Sums,
    /// In D's format.
    RoundedSums,
}

/// The first matrix of our launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// A and B.
    WithProduct,
    /// A product that lies in memory.
    Between,
    /// D, as something else has left it.
    Stored,
    /// B, for a launch without D.
    OperandB,
}

impl Operands {
    pub fn new(noise: &Noise, dtype: DType, shape: Shape, besides: Besides) -> Result<Operands> {
        let Shape { m, n, k, .. } = shape;
        let bytes = (m * k + k * n + m * n) * dtype.size();
        let count = ROTATED.div_ceil(bytes).clamp(1, SETS);
        let sets = (0..count).map(|i| {
            let data = |which: usize, dtype, len| noise.data(dtype, len, 8 * i + which);
            let training = || -> Result<Training> {
                let mask = noise.fill(&noise.bytes, m * Bits128.bytes(n.next_multiple_of(Bits128.run())), i)?;
                let (sums, rounded_sums) = (noise.fill(&noise.f32, n, i)?, data(0, dtype, n)?);
                Ok(Training { mask, sums, rounded_sums })
            };
            Ok(Set {
                a: data(1, dtype, m * k)?,
                b: data(2, dtype, k * n)?,
                bias: data(3, dtype, n)?,
                c: data(4, dtype, m * n)?,
                row_scale: data(5, F32, m)?,
                d: data(6, dtype, m * n)?,
                between: besides.between.then(|| data(7, dtype, m * n)).transpose()?,
                training: besides.training.then(training).transpose()?,
            })
        });
        Ok(Operands { dtype, shape, besides, sets: sets.collect::<Result<_>>()?, working_set: (bytes * count) as u64 })
    }

    pub fn set(&mut self, turn: usize) -> &mut Set {
        let count = self.sets.len();
        &mut self.sets[turn % count]
    }

    /// The arguments of one launch of ours, whose epilogue has these.
    pub fn args(&mut self, turn: usize, begins: Begins, arguments: &[Argument]) -> DeviceArgs<'_> {
        let Set { a, b, bias, c, row_scale, d, between, training } = self.set(turn);
        // Read or written, as the launch begins.
        let (stored, d) = match begins {
            Begins::Stored => (Some(&*d), None),
            Begins::OperandB => (None, None),
            Begins::WithProduct | Begins::Between => (None, Some(d)),
        };
        let names: Vec<&str> = arguments.iter().map(|a| &*a.name).collect();
        let mut args = match (begins, between, stored) {
            (Begins::Between, Some(between), _) => between.input(DeviceArgs::new(), "a"),
            (Begins::Stored, _, Some(d)) => d.input(DeviceArgs::new(), "a"),
            (Begins::OperandB, ..) => b.input(DeviceArgs::new(), "a"),
            _ => b.input(a.input(DeviceArgs::new(), "a"), "b"),
        };
        for (name, data) in [("bias", &*bias), ("row_scale", &*row_scale)] {
            if names.contains(&name) {
                args = data.input(args, name);
            }
        }
        // An auxiliary, written or read: a mask, or a matrix that GELU is applied to, which lies where C would.
        let aux = arguments.iter().find(|a| &*a.name == "aux").map(|a| a.role);
        let aux = aux.map(|role| (role.is_written(), role.operand().is_some_and(|operand| operand.dtype.is_packed())));
        if let Some(Training { mask, sums, .. }) = training {
            args = match aux {
                Some((true, true)) => args.output("aux", mask),
                Some((false, true)) => args.input("aux", &*mask),
                _ => args,
            };
            if names.contains(&"bgrad") {
                args = args.output("bgrad", sums);
            }
        }
        args = match aux {
            Some((true, false)) => c.output(args, "aux"),
            Some((false, false)) => c.input(args, "aux"),
            _ if names.contains(&"c") => c.input(args, "c"),
            _ => args,
        };
        match d {
            Some(d) => d.output(args, "d"),
            None => args,
        }
    }

    /// Copies the matrix between to D.
    pub fn copy(&mut self, stream: &Arc<CudaStream>, turn: usize) -> Result<()> {
        match self.set(turn) {
            Set { between: Some(Data::F16(from)), d: Data::F16(d), .. } => stream.memcpy_dtod(from, d)?,
            Set { between: Some(Data::BF16(from)), d: Data::BF16(d), .. } => stream.memcpy_dtod(from, d)?,
            Set { between: Some(Data::F32(from)), d: Data::F32(d), .. } => stream.memcpy_dtod(from, d)?,
            _ => return Err("there is no matrix to copy".into()),
        }
        Ok(())
    }

    /// Fills an output of the first set with NaN, a mask with ones or with zeros.
    pub fn poison(&mut self, stream: &Arc<CudaStream>, output: Output, ones: bool) -> Result<()> {
        let byte = if ones || output != Output::Mask { 0xff } else { 0 };
        let Set { c, d, between, training, .. } = &mut self.sets[0];
        match (output, training) {
            (Output::D, _) => each!(d, d => set_bytes(stream, d, byte)),
            (Output::Stored, _) => each!(c, c => set_bytes(stream, c, byte)),
            (Output::Between, _) => match between {
                Some(between) => each!(between, between => set_bytes(stream, between, byte)),
                None => Err(NO_MATRIX_BETWEEN.into()),
            },
            (_, None) => Err(NO_TRAINING.into()),
            (Output::Mask, Some(Training { mask, .. })) => set_bytes(stream, mask, byte),
            (Output::Sums, Some(Training { sums, .. })) => set_bytes(stream, sums, byte),
            (Output::RoundedSums, Some(Training { rounded_sums, .. })) => {
                each!(rounded_sums, sums => set_bytes(stream, sums, byte))
            }
        }
    }

    /// Elements of an output of the first set: all of them, or windows from everywhere in it. Bits are 0 or 1.
    pub fn sample(&self, stream: &Arc<CudaStream>, output: Output) -> Result<Vec<f32>> {
        let Set { c, d, between, training, .. } = &self.sets[0];
        let mut sample = Vec::new();
        match (output, training) {
            (Output::D, _) => each!(d, d => numbers(stream, d, &mut sample)?),
            (Output::Stored, _) => each!(c, c => numbers(stream, c, &mut sample)?),
            (Output::Between, _) => match between {
                Some(between) => each!(between, between => numbers(stream, between, &mut sample)?),
                None => return Err(NO_MATRIX_BETWEEN.into()),
            },
            (_, None) => return Err(NO_TRAINING.into()),
            (Output::Sums, Some(Training { sums, .. })) => numbers(stream, sums, &mut sample)?,
            (Output::RoundedSums, Some(Training { rounded_sums, .. })) => {
                each!(rounded_sums, sums => numbers(stream, sums, &mut sample)?);
            }
            (Output::Mask, Some(Training { mask, .. })) => {
                // A row ends before the memory that it takes does.
                let (n, run) = (self.shape.n, self.shape.n.next_multiple_of(Bits128.run()));
                read(stream, mask, |at, byte| {
                    let bits = (0..8).filter(|bit| (8 * at + bit) % run < n);
                    sample.extend(bits.map(|bit| f32::from(byte >> bit & 1)));
                })?;
            }
        }
        Ok(sample)
    }
}

/// Said of operands of a product that nothing pointwise follows.
pub const NO_MATRIX_BETWEEN: &str = "there is no matrix between";
const NO_TRAINING: &str = "these operands are not of a step of training";

/// Sets every byte; all bits set are a NaN of each format.
fn set_bytes<T>(stream: &Arc<CudaStream>, data: &mut CudaSlice<T>, byte: u8) -> Result<()> {
    let bytes = data.num_bytes();
    let (address, _borrowed) = data.device_ptr_mut(stream);
    // SAFETY: the data is device memory of so many bytes, borrowed for this call, and any bits are an element.
    unsafe { result::memset_d8_async(address, byte, bytes, stream.cu_stream())? };
    Ok(())
}

/// Reads elements: all of them, or windows from everywhere.
fn numbers<T: DeviceRepr + Copy + Into<f32>>(stream: &Arc<CudaStream>, data: &CudaSlice<T>, to: &mut Vec<f32>) -> Result<()> {
    read(stream, data, |_, x| to.push(x.into()))
}

/// Hands on elements with their places: all of them, or windows from everywhere.
fn read<T: DeviceRepr + Copy>(stream: &Arc<CudaStream>, data: &CudaSlice<T>, mut each: impl FnMut(usize, T)) -> Result<()> {
    let len = data.len();
    let (starts, window) = if len <= WINDOW * WINDOWS {
        (vec![0], len)
    } else {
        // The last window ends with the data.
        let step = (len - WINDOW) / (WINDOWS - 1);
        ((0..WINDOWS - 1).map(|i| step * i).chain([len - WINDOW]).collect(), WINDOW)
    };
    for start in starts {
        let elements = stream.clone_dtoh(&data.slice(start..start + window))?;
        stream.synchronize()?;
        elements.into_iter().enumerate().for_each(|(i, x)| each(start + i, x));
    }
    Ok(())
}
