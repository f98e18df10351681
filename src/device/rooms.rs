//! Rooms: device memory that a plan owns, one piece for each stream, so that launches on two streams share none.

use super::DeviceError;
use super::probe::{captured, is_per_thread};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// The rooms of a plan. A room lives as long as the plan, even after a larger one is needed: a captured graph may hold
/// its address.
#[derive(Default)]
pub(super) struct Rooms(Vec<Room>);

/// The memory is freed in stream order, after the last kernel that uses it. The stream is kept alive, so that no other
/// stream reuses its handle.
struct Room {
    stream: Arc<CudaStream>,
    /// The thread of the stream, if each thread has another stream of that handle.
    thread: Option<ThreadId>,
    memory: CudaSlice<u8>,
    address: u64,
}

/// Why there is no room.
pub(super) enum NoRoom {
    /// The driver does not report whether the stream is being captured.
    Unknown(DriverError),
    /// The stream has no room yet and is being captured, which cannot allocate.
    Capture,
    /// The device's memory does not suffice.
    Full(DriverError),
}

impl NoRoom {
    /// The error for a workspace of so many bytes.
    pub fn of_workspace(self, bytes: usize) -> DeviceError {
        match self {
            NoRoom::Unknown(error) => DeviceError::Driver { what: "ask whether the stream is being captured", error },
            NoRoom::Capture => DeviceError::WorkspaceInCapture { bytes },
            NoRoom::Full(error) => DeviceError::Workspace { bytes, error },
        }
    }
}

impl Rooms {
    /// The address of a room of the stream with so many bytes. The first launch that needs it allocates it, zeroed.
    pub fn on(&mut self, stream: &Arc<CudaStream>, bytes: usize) -> Result<u64, NoRoom> {
        let Rooms(rooms) = self;
        let thread = is_per_thread(stream).then(|| thread::current().id());
        // Handles alone are ambiguous: those of default streams are the same in every context.
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
    /// Frees go into the stream of the dropping thread, which may differ from that of the last kernel.
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nothing can report a failure here, and a context that has failed runs no more kernels.
            let _ = self.stream.context().synchronize();
        }
    }
}
