//! The arguments of the product of the parts of K, or of all of it: a launch before the plan's own, into sums that the plan
//! owns.

use super::DeviceError;
use super::bound::BoundOperand;
use super::rooms::Rooms;
use crate::plan::{SplitK, alignment};
use crate::problem::{ScaleField, Shape};
use cudarc::driver::CudaStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sums of a plan that splits K.
pub(crate) struct Splitter {
    split: SplitK,
    /// The user's problem.
    shape: Shape,
    sums: Mutex<Rooms>,
}

/// While this guard lives, no other thread puts a launch of the plan between the product and the kernel that adds up.
pub(super) struct Multiplied<'a> {
    _turn: MutexGuard<'a, Rooms>,
    /// The address of the sums.
    pub sums: BoundOperand,
    /// The product's: A, B, their scales, and the sums.
    pub arguments: [BoundOperand; 7],
}

impl Splitter {
    /// For a user's problem of this shape.
    pub fn new(split: SplitK, shape: Shape) -> Splitter {
        Splitter { split, shape, sums: Mutex::default() }
    }

    /// How many arguments of the user the product reads: A, B, and their scales, or the keys of an attention.
    pub(super) fn operands(&self) -> usize {
        2 + ScaleField::of(self.split.operation).count() + usize::from(self.split.operation.attention().is_some())
    }

    /// The turn of a launch of the product. `operands` are the user's A and B, with their scales.
    ///
    /// # Errors
    /// If there is no memory for the sums, or the stream has none yet and is being captured.
    pub(super) fn turn(&self, stream: &Arc<CudaStream>, operands: &[BoundOperand]) -> Result<Multiplied<'_>, DeviceError> {
        let bytes = self.split.bytes(self.shape);
        let mut turn = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let address = turn.on(stream, bytes).map_err(|error| error.of_workspace(bytes))?;
        let distances = self.split.distances(self.shape, [operands[0].ld, operands[1].ld]);
        let size = self.split.operation.dtype().size();
        let part = |i: usize| match distances {
            Some(distances) => BoundOperand {
                batch_stride: distances[i],
                aligned: alignment(operands[i].aligned as u64, [0, distances[i] * size]),
                ..operands[i]
            },
            None => operands[i],
        };
        let [ld, batch_stride] = self.split.sums_strides(self.shape);
        let sums = BoundOperand { address, ld, batch_stride, ..BoundOperand::NONE };
        let mut arguments = [BoundOperand::NONE; 7];
        arguments[..operands.len()].copy_from_slice(operands);
        (arguments[0], arguments[1], arguments[operands.len()]) = (part(0), part(1), sums);
        Ok(Multiplied { _turn: turn, sums, arguments })
    }
}
