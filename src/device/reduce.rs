//! Reductions in a launch: the workspace of the plan, and identities for empty outputs. Blocks in lockstep count their
//! tiles in the same workspace.

use super::DeviceError;
use super::bound::BoundOperand;
use super::probe::captured;
use super::rooms::Rooms;
use crate::args::{Slot, SlotKind};
use crate::ir::Monoid;
use crate::plan::KernelPlan;
use cudarc::driver::sys::{cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async};
use cudarc::driver::{CudaStream, DriverError};
use std::sync::{Arc, Mutex, PoisonError};

/// The reductions of a plan.
pub(super) struct Reducer {
    /// Bytes of the workspace.
    bytes: usize,
    /// Whether a launch can run without it: it only counts tiles there, which saves time.
    optional: bool,
    rooms: Mutex<Rooms>,
    /// The slot of each overwritten result, with the identity in its format.
    identities: Vec<(usize, Vec<u8>)>,
}

impl Reducer {
    /// For a plan whose arguments begin at slot `operands`, and a workspace of so many bytes.
    pub fn new(plan: &KernelPlan, operands: usize, bytes: usize) -> Reducer {
        // A reduction that accumulates nothing leaves its memory as it is.
        let overwritten = plan.program.reductions.iter().filter(|reduce| !reduce.accumulate);
        let reduced = overwritten.map(|reduce| (reduce.argument, reduce.operand.dtype, reduce.monoid.of_nothing(reduce.value)));
        let sums = plan.program.sums.iter().filter(|sum| !sum.accumulate);
        let sums = sums.map(|sum| (sum.argument, sum.operand.dtype, Monoid::Sum.of_nothing(sum.value)));
        let identities = reduced.chain(sums).map(|(argument, dtype, identity)| {
            let mut bytes = vec![0; dtype.size()];
            dtype.write(&mut bytes, 0, identity);
            (operands + argument, bytes)
        });
        let optional = plan.program.reductions.is_empty() && plan.program.sums.is_empty() && !plan.shares_sums();
        Reducer { bytes, optional, rooms: Mutex::default(), identities: identities.collect() }
    }

    /// Whether a launch without tiles has nothing to write.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Whether it has a workspace.
    pub fn owns_memory(&self) -> bool {
        self.bytes > 0
    }

    /// The address of the stream's workspace. It is 0 if none is needed, or if the launch can run without and there is
    /// none or it is being captured.
    ///
    /// # Errors
    /// If there is no memory for it, or the stream is being captured and has none yet.
    pub fn workspace(&self, stream: &Arc<CudaStream>) -> Result<u64, DeviceError> {
        let bytes = self.bytes;
        if bytes == 0 {
            return Ok(0);
        }
        // A graph may outlive the plan, and nothing keeps the plan alive for it.
        if self.optional && captured(stream).unwrap_or(true) {
            return Ok(0);
        }
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        match rooms.on(stream, bytes) {
            Err(_) if self.optional => Ok(0),
            room => room.map_err(|error| error.of_workspace(bytes)),
        }
    }

    /// Puts the identities into the stream, in place of a kernel without tiles.
    ///
    /// # Errors
    /// If the driver rejects the call.
    pub fn write_identities(&self, stream: &CudaStream, slots: &[Slot], places: &[BoundOperand]) -> Result<(), DeviceError> {
        for (slot, identity) in &self.identities {
            let SlotKind::Memory { inner, outer, matrix, batch, .. } = slots[*slot].kind else { continue };
            let BoundOperand { address, ld, batch_stride, .. } = places[*slot];
            // The batch shares a matrix: otherwise nothing would be reduced.
            let (runs, distance) = if matrix { (outer, ld) } else { (batch.unwrap_or(1), batch_stride) };
            fill(stream, address, [inner, runs], distance, identity)
                .map_err(|error| DeviceError::Driver { what: "write the identities of reductions", error })?;
        }
        Ok(())
    }
}

/// Writes an element `inner` times side by side, and repeats that `runs` times at a distance in elements.
fn fill(stream: &CudaStream, to: u64, [inner, runs]: [usize; 2], distance: usize, element: &[u8]) -> Result<(), DriverError> {
    if inner == 0 || runs == 0 {
        return Ok(());
    }
    // A single run needs no distance.
    let pitch = if runs > 1 { distance } else { inner } * element.len();
    let stream = stream.cu_stream();
    if let &[a, b, c, d, e, f, g, h] = element {
        // The driver fills words of up to 4 bytes. So the halves of an element are filled one after the other, along
        // the shorter axis.
        let halves = [(to, u32::from_ne_bytes([a, b, c, d])), (to + 4, u32::from_ne_bytes([e, f, g, h]))];
        let (lines, step, count, pitch) = if runs < inner { (runs, pitch, inner, 8) } else { (inner, 8, runs, pitch) };
        for (start, half) in (0..lines).flat_map(|line| halves.map(|(to, half)| (to + (line * step) as u64, half))) {
            // SAFETY: as below; a line is `count` words of 4 bytes at this pitch, which are halves of elements.
            unsafe { cuMemsetD2D32Async(start, pitch, half, 1, count, stream) }.result()?;
        }
        return Ok(());
    }
    // SAFETY: `to` is the address of a result whose slot says that it has as many elements at this distance, which `bind` has
    // checked of memory that the caller of the launch borrows and orders into this stream.
    let status = unsafe {
        match *element {
            [a] => cuMemsetD2D8Async(to, pitch, a, inner, runs, stream),
            [a, b] => cuMemsetD2D16Async(to, pitch, u16::from_ne_bytes([a, b]), inner, runs, stream),
            [a, b, c, d] => cuMemsetD2D32Async(to, pitch, u32::from_ne_bytes([a, b, c, d]), inner, runs, stream),
            _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
        }
    };
    status.result()
}
