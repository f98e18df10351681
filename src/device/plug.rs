//! Work that keeps a GPU busy while launches queue up behind it: what measurements have in common.

use super::DeviceError;
use cudarc::driver::{CudaSlice, CudaStream};
use std::sync::Arc;

/// Microseconds of work before a measurement. A GPU that was idle has a higher clock than one at work, on which a kernel that
/// needs less power may be the faster one.
pub(crate) const WARM: f64 = 60_000.0;

/// Microseconds of a kernel that runs longer than the host takes to launch it.
pub(crate) const LAUNCHED: f64 = 10.0;

/// Bytes whose clearing takes the GPU about as long as the host takes for a few launches.
const BYTES: usize = 64 << 20;

/// Memory that is cleared again and again. A device without room for it is measured without.
pub(crate) struct Plug(Option<CudaSlice<u8>>);

impl Plug {
    pub fn new(stream: &Arc<CudaStream>) -> Plug {
        Plug(stream.alloc_zeros(BYTES).ok())
    }

    /// Keeps the GPU busy for a while: what follows in the stream waits.
    ///
    /// # Errors
    /// What the driver says.
    pub fn hold(&mut self, stream: &Arc<CudaStream>, times: usize) -> Result<(), DeviceError> {
        for _ in 0..times {
            if let Some(memory) = &mut self.0 {
                stream.memset_zeros(memory).map_err(DeviceError::driver("keep the GPU busy"))?;
            }
        }
        Ok(())
    }
}
