//! Copies of operands that the kernel cannot read directly: the copying kernel, and its scratch memory.

use super::DeviceError;
use super::bound::BoundOperand;
use super::rooms::{NoRoom, Rooms};
use super::tensor_map::MappedTensor;
use crate::plan::Repack;
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The copying kernel of a plan, and its scratch.
pub(crate) struct Repacker {
    function: CudaFunction,
    repack: Repack,
    scratch: Mutex<Rooms>,
}

/// While this guard lives, no other thread puts a launch of the plan between the copies and the kernel that reads them.
pub(super) struct Copied<'a> {
    _turn: MutexGuard<'a, Rooms>,
    /// The replacements of `a` and `b`, as the kernel sees them.
    pub operands: [Option<MappedTensor>; 2],
}

const UNIT: usize = 16;

/// Scales or zero points as the kernel reads them: fields of `struct Params` of the template.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Scales {
    address: u64,
    ld: i64,
    batch_stride: i64,
}

/// One operand as the kernel reads it: `struct Operand` of the template.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operand {
    from: u64,
    to: u64,
    ld: i64,
    batch_stride: i64,
    units: i64,
    entry_units: i64,
    rows: i32,
    length: i32,
    batch: i32,
    blocks: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Block([Operand; 2], [Scales; 2]);

// SAFETY: plain integers without padding, laid out as the kernel's one parameter.
unsafe impl DeviceRepr for Block {}

impl Repacker {
    pub fn new(function: CudaFunction, repack: Repack) -> Repacker {
        Repacker { function, repack, scratch: Mutex::default() }
    }

    /// Puts the copies into the stream. `operands` are the kernel's `a` and `b` in the user's memory; `scales` are the scales
    /// and zero points of the one that is widened.
    ///
    /// # Errors
    /// If there is no memory for the copies, or the stream is being captured and has none yet.
    pub(super) fn copy(
        &self,
        stream: &Arc<CudaStream>,
        operands: [Option<MappedTensor>; 2],
        scales: [BoundOperand; 2],
    ) -> Result<Copied<'_>, DeviceError> {
        // A copy's elements: those of the operand, or the wider ones.
        let widened = |i: usize| self.repack.widened.is_some_and(|widened| widened.operand == i);
        let size_of_copy = |i: usize, size: usize| if widened(i) { self.repack.dtype.size() } else { size };
        let mut needed = 0;
        let places = [0, 1].map(|i| {
            let MappedTensor { inner, outer, batch, batch_stride, size, .. } = operands[i]?;
            // A batch that shares the operand shares the copy.
            let entries = if batch_stride == 0 { batch.min(1) } else { batch };
            let (inner, outer) = if self.repack.transposed[i] { (outer, inner) } else { (inner, outer) };
            let ld = self.repack.ld(inner);
            if !self.repack.operands[i] || inner * outer * entries == 0 {
                return None;
            }
            let (at, size) = (needed, size_of_copy(i, size));
            needed += outer * ld * size * entries;
            Some((at, entries, ld))
        });
        let mut turn = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if places.iter().all(Option::is_none) {
            return Ok(Copied { _turn: turn, operands: [None, None] });
        }
        let base = turn.on(stream, needed).map_err(|error| match error {
            NoRoom::Unknown(error) => DeviceError::Driver { what: "ask whether the stream is being captured", error },
            NoRoom::Capture => DeviceError::ScratchInCapture { bytes: needed },
            NoRoom::Full(error) => DeviceError::Scratch { bytes: needed, error },
        })?;
        let (mut block, mut grid, mut copies) = (Block::default(), 0u64, [None, None]);
        for (i, place) in places.into_iter().enumerate() {
            let (Some((at, entries, ld)), Some(original)) = (place, operands[i]) else { continue };
            let MappedTensor { address, inner, outer, size, .. } = original;
            let size = size_of_copy(i, size);
            let units = ld * size / UNIT;
            // Runs of the copy, and elements of one.
            let [runs, run] = if self.repack.transposed[i] { [inner, outer] } else { [outer, inner] };
            let blocks = if self.repack.transposed[i] {
                runs.div_ceil(Repack::TILE) * run.div_ceil(Repack::TILE) * entries
            } else {
                ((run * size).div_ceil(UNIT) * runs * entries).div_ceil(Repack::THREADS * Repack::UNITS)
            } as u64;
            grid += blocks;
            let to = base + at as u64;
            block.0[i] = Operand {
                from: address,
                to,
                ld: original.ld as i64,
                batch_stride: original.batch_stride as i64,
                units: units as i64,
                entry_units: (units * runs) as i64,
                rows: outer as i32,
                length: inner as i32,
                batch: entries as i32,
                blocks: blocks as u32,
            };
            let batch_stride = if original.batch_stride == 0 { 0 } else { ld * runs };
            copies[i] = Some(MappedTensor { address: to, inner: run, outer: runs, ld, batch_stride, size, ..original });
        }
        block.1 = scales.map(|BoundOperand { address, ld, batch_stride, .. }| Scales {
            address,
            ld: ld as i64,
            batch_stride: batch_stride as i64,
        });
        let grid = u32::try_from(grid).ok().filter(|blocks| *blocks <= i32::MAX as u32);
        let Some(grid) = grid else { return Err(DeviceError::ScratchTooLarge { bytes: needed }) };
        let config = LaunchConfig { grid_dim: (grid, 1, 1), block_dim: (Repack::THREADS as u32, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&block);
        // SAFETY: `block` begins with the kernel's one parameter. It reads `outer` rows of `inner` elements of every entry, which
        // `bind` has checked to lie in memory that the caller of the launch borrows and orders into this stream; it writes
        // the units that `needed` counts, in memory that only this stream's launches of this plan use.
        unsafe { launch.launch(config) }.map_err(|error| DeviceError::Driver { what: "launch the copies of operands", error })?;
        Ok(Copied { _turn: turn, operands: copies })
    }
}
