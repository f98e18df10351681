//! Rooms: device memory that a plan owns, for each stream that it has run on, so that launches on two streams do not share any.

use super::DeviceError;
use super::probe::captured;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// `CU_STREAM_PER_THREAD`: one handle for as many streams as there are threads.
const PER_THREAD: usize = 2;

/// The rooms of a plan. None goes before the plan, not even for a larger one: a captured graph may hold its address.
#[derive(Default)]
pub(super) struct Rooms(Vec<Room>);

/// The memory is freed in the order of the stream, after the last kernel that uses it. The stream is kept, so that no other one
/// takes its place.
struct Room {
    stream: Arc<CudaStream>,
    /// Whose stream it is, if each thread has another one of that handle.
    thread: Option<ThreadId>,
    memory: CudaSlice<u8>,
    address: u64,
}

/// Why there is no room.
pub(super) enum NoRoom {
    /// The driver does not tell whether the stream is being captured.
    Unknown(DriverError),
    /// The stream is being captured, which cannot allocate, and has no room yet.
    Capture,
    /// The device's memory does not suffice.
    Full(DriverError),
}

impl NoRoom {
    /// The error of a workspace of so many bytes.
    pub fn of_workspace(self, bytes: usize) -> DeviceError {
        match self {
            NoRoom::Unknown(error) => DeviceError::Driver { what: "ask whether the stream is being captured", error },
            NoRoom::Capture => DeviceError::WorkspaceInCapture { bytes },
            NoRoom::Full(error) => DeviceError::Workspace { bytes, error },
        }
    }
}

impl Rooms {
    /// The address of a room of the stream's that has so many bytes, which the first launch to need it allocates, with zeros in it.
    pub fn on(&mut self, stream: &Arc<CudaStream>, bytes: usize) -> Result<u64, NoRoom> {
        let Rooms(rooms) = self;
        let thread = (stream.cu_stream().addr() == PER_THREAD).then(|| thread::current().id());
        // Handles alone would not do: those of default streams are the same in every context.
        let mine = |room: &&Room| *room.stream == **stream && room.thread == thread && room.memory.len() >= bytes;
        if let Some(found) = rooms.iter().find(mine) {
            return Ok(found.address);
        }
        if captured(stream).map_err(NoRoom::Unknown)? {
            return Err(NoRoom::Capture);
        }
        let memory = stream.alloc_zeros::<u8>(bytes).map_err(NoRoom::Full)?;
        let (address, guard) = memory.device_ptr(stream);
        drop(guard);
        rooms.push(Room { stream: stream.clone(), thread, memory, address });
        Ok(address)
    }
}

impl Drop for Room {
    /// Frees are put into the stream of the thread that drops, which is not the one with the last kernel.
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody is left to hear of a failure, and a context that has failed runs no kernel any more.
            let _ = self.stream.context().synchronize();
        }
    }
}
