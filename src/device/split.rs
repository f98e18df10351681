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
    /// The product's: A, B, their scales, or the keys of an attention and what its function of scores reads, and the sums.
    few: [BoundOperand; FEW],
    /// The same, if they are more.
    many: Vec<BoundOperand>,
}

/// The number of arguments up to which a product's are kept without an allocation.
const FEW: usize = 7;

impl Multiplied<'_> {
    /// The first so many arguments of the product.
    pub(super) fn arguments(&mut self, count: usize) -> &mut [BoundOperand] {
        if count <= FEW { &mut self.few[..count] } else { &mut self.many[..count] }
    }
}

impl Splitter {
    /// For a user's problem of this shape.
    pub fn new(split: SplitK, shape: Shape) -> Splitter {
        Splitter { split, shape, sums: Mutex::default() }
    }

    /// How many arguments of the user the product reads: A, B, and their scales, or the keys of an attention.
    pub(super) fn operands(&self) -> usize {
        let operation = self.split.operation;
        2 + ScaleField::of(operation).count() + operation.attention().map_or(0, |attention| attention.names().count())
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
        let count = operands.len() + 1;
        let many = if count > FEW { vec![BoundOperand::NONE; count] } else { Vec::new() };
        let mut multiplied = Multiplied { _turn: turn, sums, few: [BoundOperand::NONE; FEW], many };
        let arguments = multiplied.arguments(count);
        arguments[..operands.len()].copy_from_slice(operands);
        (arguments[0], arguments[1], arguments[operands.len()]) = (part(0), part(1), sums);
        Ok(multiplied)
    }
}
