//! Launches that were recorded as a CUDA graph.

use super::DeviceError;
use super::probe::captured;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use std::sync::Arc;

/// The default streams, by the numbers that the driver gives them instead of addresses.
const LAST_DEFAULT: usize = 2;

/// A graph of the driver, which one thread uses at a time.
pub(crate) struct Recorded(CudaGraph);

// SAFETY: the driver wants calls with one graph to be serialized, from whatever thread. Its owner alone uses it.
unsafe impl Send for Recorded {}
// SAFETY: nothing is done with a shared reference.
unsafe impl Sync for Recorded {}

impl Recorded {
    /// Whether launches in a stream can be recorded. A capture cannot wait for events outside of it, by which cudarc orders
    /// streams unless that is switched off. The driver captures no default stream, and nothing while the program itself
    /// captures.
    pub fn is_possible(stream: &CudaStream) -> bool {
        let is_own = stream.cu_stream().addr() > LAST_DEFAULT;
        is_own && !stream.context().is_managing_stream_synchronization() && captured(stream).is_ok_and(|captured| !captured)
    }

    /// Records what `run` launches in a stream. `None` if `run` says that it failed, or the driver cannot. Then nothing was
    /// launched.
    pub fn of(stream: &Arc<CudaStream>, run: impl FnOnce() -> bool) -> Option<Recorded> {
        // What other threads do with the driver meanwhile does not matter to the capture.
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).ok()?;
        let done = run();
        // A capture has to end, whatever happened in it.
        let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        graph.ok().flatten().filter(|_| done).map(Recorded)
    }

    /// Launches all of it in its stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch(&mut self) -> Result<(), DeviceError> {
        self.0.launch().map_err(DeviceError::driver("launch a graph"))
    }
}
