//! Launches that are recorded as a CUDA graph, in a stream beside the program's.

use super::DeviceError;
use super::probe::{captured, is_per_thread};
use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaEvent, CudaGraph, CudaStream};
use std::sync::Arc;

/// A stream of the library's own, in which launches are recorded.
///
/// The driver captures no default stream, and whatever another thread puts into a captured stream gets into the graph. cudarc
/// orders streams by events, for which a capture cannot wait, so launches in this stream are ordered as a whole. cudarc does
/// not count it either: a context with a stream of the program's own pays for events with every launch.
pub(crate) struct Side(Arc<CudaStream>);

impl Side {
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Arc<CudaContext>) -> Result<Side, DeviceError> {
        let failed = DeviceError::driver("create a stream");
        let created = context.bind_to_thread().and_then(|()| stream::create(stream::StreamKind::NonBlocking));
        // SAFETY: it was created in this context, and `drop` destroys it. Plans that own memory on it are dropped before.
        Ok(Side(created.map(|created| unsafe { context.wrap_borrowed_stream(created) }).map_err(failed)?))
    }

    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.0
    }

    /// Calls with this stream, whose work goes behind what is in the program's stream, and before what comes there next.
    ///
    /// # Errors
    /// What the driver says, or `run`.
    pub fn between<E: From<DeviceError>>(&self, stream: &CudaStream, run: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let ordered = || DeviceError::driver("order two streams");
        self.0.join(stream).map_err(ordered())?;
        let done = run();
        stream.join(&self.0).map_err(ordered())?;
        done
    }

    /// Records what `run` launches in this stream. `None` if `run` says that it failed, or the driver cannot. Then nothing was
    /// launched.
    pub fn record(&self, run: impl FnOnce() -> bool) -> Option<Recorded> {
        // What other threads do with the driver meanwhile does not matter to the capture.
        self.0.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).ok()?;
        let done = run();
        // A capture has to end, whatever happened in it.
        let graph = self.0.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        let graph = graph.ok().flatten().filter(|_| done)?;
        Some(Recorded { graph, side: self.0.clone(), last: self.0.context().new_event(None).ok()? })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let context = self.0.context();
        // Nothing can report a failure here. The driver lets the stream's work end before it is gone.
        let _ = context.bind_to_thread();
        // SAFETY: it was created by `new`, and nothing uses it any more.
        context.record_err(unsafe { stream::destroy(self.0.cu_stream()) });
    }
}

/// A graph of the driver, which one thread uses at a time.
pub(crate) struct Recorded {
    graph: CudaGraph,
    side: Arc<CudaStream>,
    /// When the last launch is done.
    last: CudaEvent,
}

// SAFETY: the driver wants calls with one graph to be serialized, from whatever thread. Its owner alone uses it.
unsafe impl Send for Recorded {}
// SAFETY: nothing is done with a shared reference.
unsafe impl Sync for Recorded {}

impl Recorded {
    /// Whether a graph may take the place of launches in a stream: not where the program records the stream itself. A handle
    /// that means another stream in each thread cannot be told from others.
    pub fn suits(stream: &CudaStream) -> bool {
        !is_per_thread(stream) && captured(stream).is_ok_and(|captured| !captured)
    }

    /// Launches all of it in a stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch(&mut self, stream: &CudaStream) -> Result<(), DeviceError> {
        let failed = || DeviceError::driver("launch a graph");
        stream.context().bind_to_thread().map_err(failed())?;
        // SAFETY: the graph and the stream live, and `&mut self` keeps other threads from the graph. Its kernels use memory
        // of the caller, which orders the stream behind and before other uses, and of plans that live as long as the graph.
        unsafe { graph::launch(self.graph.cu_graph_exec(), stream.cu_stream()) }.map_err(failed())?;
        self.last.record(stream).map_err(failed())
    }
}

impl Drop for Recorded {
    /// Memory that kernels have beside their arguments is freed in the side stream, thus after the last launch.
    fn drop(&mut self) {
        self.side.context().record_err(self.side.wait(&self.last));
    }
}
