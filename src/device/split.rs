//! The product of the parts of K, or of all of it: a launch before the plan's own, into sums that the plan owns.

use super::launch::{BoundOperand, Launch, LaunchError};
use super::rooms::Rooms;
use crate::plan::{SplitK, alignment};
use crate::problem::{ScaleField, Shape};
use cudarc::driver::CudaStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The multiplying kernel of a plan that splits K, and the sums.
pub(crate) struct Splitter {
    product: Box<Launch>,
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
}

impl Splitter {
    /// `product` is the launch of the split's kernel on the split's shape and slots.
    pub fn new(product: Launch, split: SplitK, shape: Shape) -> Splitter {
        Splitter { product: Box::new(product), split, shape, sums: Mutex::default() }
    }

    /// How many arguments of the user the product reads: A, B, and their scales.
    pub(super) fn operands(&self) -> usize {
        2 + ScaleField::of(self.split.operation).count()
    }

    /// Puts the product of the parts into the stream. `operands` are the user's A and B, with their scales.
    ///
    /// # Errors
    /// If there is no memory for the sums, the stream has none yet and is being captured, or the kernel cannot read the
    /// operands directly.
    pub(super) fn multiply(&self, stream: &Arc<CudaStream>, operands: &[BoundOperand]) -> Result<Multiplied<'_>, LaunchError> {
        let bytes = self.split.bytes(self.shape);
        let mut turn = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let address = turn.on(stream, bytes).map_err(|error| LaunchError::Device(error.of_workspace(bytes)))?;
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
        let mut places = [BoundOperand::NONE; 7];
        places[..operands.len()].copy_from_slice(operands);
        (places[0], places[1], places[operands.len()]) = (part(0), part(1), sums);
        self.product.put(stream, &mut places[..=operands.len()], [0; 3])?;
        Ok(Multiplied { _turn: turn, sums })
    }
}
