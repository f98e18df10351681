//! Rooms: device memory that a plan owns, one piece for each stream that it has run on, so that launches on two streams do not
//! share any.

use cudarc::driver::sys::CUstreamCaptureStatus;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use std::sync::Arc;

/// The rooms of a plan.
#[derive(Default)]
pub(super) struct Rooms(Vec<Room>);

/// The memory is freed in the order of the stream, after the last kernel that uses it. The stream is kept, so that no other one
/// takes its place.
struct Room {
    stream: Arc<CudaStream>,
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

impl Rooms {
    /// The address of the stream's room, which the first launch on it allocates, with zeros in it.
    pub fn on(&mut self, stream: &Arc<CudaStream>, bytes: usize) -> Result<u64, NoRoom> {
        let Rooms(rooms) = self;
        let mine = rooms.iter().position(|room| room.stream.cu_stream() == stream.cu_stream());
        if let Some(found) = mine.map(|i| &rooms[i]).filter(|room| room.memory.len() >= bytes) {
            return Ok(found.address);
        }
        if stream.capture_status().map_err(NoRoom::Unknown)? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Err(NoRoom::Capture);
        }
        let memory = stream.alloc_zeros::<u8>(bytes).map_err(NoRoom::Full)?;
        let (address, guard) = memory.device_ptr(stream);
        drop(guard);
        if let Some(i) = mine {
            rooms.swap_remove(i);
        }
        rooms.push(Room { stream: stream.clone(), memory, address });
        Ok(address)
    }
}
