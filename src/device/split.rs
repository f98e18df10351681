//! The product of the parts of K, or of all of it: a launch before the plan's own, into sums that the plan owns.

use super::launch::{Launch, LaunchError, Place};
use super::rooms::Rooms;
use crate::plan::{Split, alignment};
use crate::problem::Shape;
use cudarc::driver::CudaStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The multiplying kernel of a plan that splits K, and the sums.
pub(crate) struct Splitter {
    product: Box<Launch>,
    split: Split,
    /// The user's problem.
    shape: Shape,
    sums: Mutex<Rooms>,
}

/// While it lives, no other thread puts a launch of the plan between the product and the kernel that adds up.
pub(super) struct Multiplied<'a> {
    _turn: MutexGuard<'a, Rooms>,
    /// Where the sums are.
    pub sums: Place,
}

impl Splitter {
    /// `product` is the launch of the split's kernel on the split's shape and slots.
    pub fn new(product: Launch, split: Split, shape: Shape) -> Splitter {
        Splitter { product: Box::new(product), split, shape, sums: Mutex::default() }
    }

    /// Puts the product of the parts into the stream. `operands` are the user's A and B.
    ///
    /// # Errors
    /// If there is no memory for the sums, the stream is being captured and has none yet, or the kernel cannot read the
    /// operands as they lie.
    pub(super) fn multiply(&self, stream: &Arc<CudaStream>, operands: [Place; 2]) -> Result<Multiplied<'_>, LaunchError> {
        let bytes = self.split.bytes(self.shape);
        let mut turn = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let address = turn.on(stream, bytes).map_err(|error| LaunchError::Device(error.of_workspace(bytes)))?;
        let distances = self.split.distances(self.shape, operands.map(|place| place.ld));
        let size = self.split.operation.dtype().size();
        let part = |i: usize| match distances {
            Some(distances) => Place {
                batch_stride: distances[i],
                aligned: alignment(operands[i].aligned as u64, [0, distances[i] * size]),
                ..operands[i]
            },
            None => operands[i],
        };
        let [ld, batch_stride] = self.split.sums_strides(self.shape);
        let sums = Place { address, ld, batch_stride, ..Place::NONE };
        self.product.put(stream, &mut [part(0), part(1), sums], [0; 3])?;
        Ok(Multiplied { _turn: turn, sums })
    }
}
