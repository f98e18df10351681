//! The arguments of kernels that leave results for each other: each of them has some of the user's, and some that lie in memory
//! of the plan.

use super::DeviceError;
use super::bound::BoundOperand;
use super::rooms::Rooms;
use crate::args::Slot;
use crate::plan::{InterimLayout, Passes, Place, alignment};
use crate::problem::Shape;
use cudarc::driver::CudaStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the kernels of a plan leave for each other.
pub(crate) struct Passer {
    /// The arguments of a launch as the user sees them.
    pub(super) slots: Vec<Slot>,
    /// For each kernel, where its arguments are. The last is the plan's own.
    places: Vec<Vec<Place>>,
    layout: Vec<InterimLayout>,
    /// Bytes of an element of each.
    sizes: Vec<usize>,
    bytes: usize,
    rooms: Mutex<Rooms>,
}

/// While this guard lives, no other thread puts a launch of the plan between its kernels.
pub(super) struct Turn<'a> {
    _turn: MutexGuard<'a, Rooms>,
    /// Where the memory of the plan begins.
    address: u64,
}

impl Passer {
    /// For a user's problem of this shape, with these arguments.
    pub fn new(passes: &Passes, slots: Vec<Slot>, shape: Shape) -> Passer {
        let places = (0..passes.passes.len()).map(|pass| passes.places(pass, &slots, shape)).collect();
        let (layout, bytes) = passes.layout(shape);
        let sizes = passes.interim.iter().map(|interim| interim.operand.dtype.size()).collect();
        Passer { slots, places, layout, sizes, bytes, rooms: Mutex::default() }
    }

    /// The most arguments of one of its kernels.
    pub(super) fn most(&self) -> usize {
        self.places.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// The turn of a launch.
    ///
    /// # Errors
    /// If the device has not enough memory, or a stream without any is being captured.
    pub(super) fn turn(&self, stream: &Arc<CudaStream>) -> Result<Turn<'_>, DeviceError> {
        let mut turn = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let address = turn.on(stream, self.bytes).map_err(|error| error.of_workspace(self.bytes))?;
        Ok(Turn { _turn: turn, address })
    }

    /// The arguments of the kernel with a number, in order. `given` are the user's; without a turn those of the plan are nowhere.
    pub(super) fn arguments<'r>(
        &self,
        kernel: usize,
        given: &[BoundOperand],
        turn: Option<&Turn<'_>>,
        room: &'r mut [BoundOperand],
    ) -> &'r mut [BoundOperand] {
        let places = &self.places[kernel];
        for (argument, place) in room.iter_mut().zip(places) {
            *argument = match *place {
                Place::Given(slot) => given[slot],
                Place::Interim(index) => {
                    let InterimLayout { at, ld, batch_stride } = self.layout[index];
                    let address = turn.map_or(0, |turn| turn.address + at as u64);
                    let aligned = alignment(address, [ld, batch_stride].map(|elements| elements * self.sizes[index]));
                    BoundOperand { address, ld, batch_stride, aligned, ..BoundOperand::NONE }
                }
            };
        }
        &mut room[..places.len()]
    }
}
