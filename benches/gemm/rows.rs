//! Hand-written kernels that pass over D once, in place: a program's additions to a library's product.

use crate::Result;
use crate::operands::{Operands, Set};
use postlude::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use postlude::cudarc::nvrtc::Ptx;
use postlude::jit::{Options, Source};
use postlude::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Elements of an access, accesses of a block.
const VECTOR: usize = 8;
const BLOCK: usize = 1024;

/// As numbered in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Sigmoid = 0,
    Tanh = 1,
    Regions = 2,
    Heavy = 3,
}

pub struct Rows {
    function: CudaFunction,
}

impl Rows {
    pub fn new(device: &Device, dtype: DType, function: Function) -> Result<Rows> {
        let defines = format!("#define ELEMENT_BF16 {}\n#define FUNCTION {}\n", i32::from(dtype == BF16), function as i32);
        let source = Source::new(defines + include_str!("rows.cu"), "rows");
        let cubin = device.cache().compile(&source, &device.target(), &Options::new())?;
        let module = device.context().load_module(Ptx::from_binary(cubin.bytes.to_vec()))?;
        Ok(Rows { function: module.load_function("rows")? })
    }

    /// Whether it can pass over a matrix with so many columns.
    pub fn fits(columns: usize) -> bool {
        columns.is_multiple_of(VECTOR)
    }

    /// Passes over some rows of D; the boundary counts from the first of them.
    pub fn launch(
        &self,
        stream: &Arc<CudaStream>,
        operands: &mut Operands,
        turn: usize,
        rows: Range<usize>,
        boundary: usize,
    ) -> Result<()> {
        let Shape { m, n, .. } = operands.shape;
        if !Rows::fits(n) || rows.end > m {
            return Err(format!("no pass over rows {rows:?} of {m} x {n}").into());
        }
        let size = operands.dtype.size();
        let Set { c, row_scale, d, .. } = operands.set(turn);
        let (d, c) = (d.address_mut(stream) + (rows.start * n * size) as u64, c.address(stream) + (rows.start * n * size) as u64);
        let row_scale = row_scale.address(stream) + (rows.start * 4) as u64;
        let vectors = u32::try_from(rows.len() * n / VECTOR)?;
        let (per_row, boundary) = ((n / VECTOR) as u32, boundary as u32);
        let config =
            LaunchConfig { grid_dim: (vectors.div_ceil(BLOCK as u32), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&d).arg(&c).arg(&row_scale).arg(&vectors).arg(&per_row).arg(&boundary);
        // SAFETY: D and C have m x n elements of two bytes and the scales m of four; the rows lie inside, n is a multiple of
        // the vector, and the kernel touches `vectors` vectors. D is borrowed mutably, and this is the only stream.
        unsafe { launch.launch(config)? };
        Ok(())
    }
}
