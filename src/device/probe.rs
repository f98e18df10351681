//! Asks whether there is a driver. cudarc panics if the library is missing, so this module asks first.

use super::DeviceError;
use cudarc::driver::sys::{CUevent, CUresult, CUstreamCaptureStatus, cuDriverGetVersion};
use cudarc::driver::{CudaEvent, CudaStream, DriverError};

#[cfg(windows)]
const NAMES: [&str; 1] = ["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Finds the driver's library, and in it a function that every supported version has.
pub(super) fn driver() -> Result<(), DeviceError> {
    find(b"cuLaunchKernelEx\0", "CUDA 11.8")
}

/// Whether the driver can encode tensor maps.
pub(super) fn tensor_maps() -> Result<(), DeviceError> {
    find(b"cuTensorMapEncodeTiled\0", "CUDA 12.0")
}

/// Whether the driver supports programmatic launches and records them into graphs: since CUDA 12.3.
pub(super) fn programmatic_launches() -> bool {
    let mut version = 0;
    // SAFETY: the driver writes one integer; it needs no context, and a library is loaded, since there is a device.
    unsafe { cuDriverGetVersion(&mut version) }.result().is_ok_and(|()| version >= 12_030)
}

/// Whether work in the stream is being recorded into a graph.
pub(super) fn captured(stream: &CudaStream) -> Result<bool, DriverError> {
    Ok(stream.capture_status()? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Whether its handle is `CU_STREAM_PER_THREAD`: one for as many streams as there are threads.
pub(super) fn is_per_thread(stream: &CudaStream) -> bool {
    stream.cu_stream().addr() == 2
}

/// Checks that the program may wait for the stream. A synchronisation invalidates a capture, so this check comes before
/// any other work.
///
/// # Errors
/// If the stream is being captured, or the driver does not report it.
pub(crate) fn may_wait(stream: &CudaStream, what: &'static str) -> Result<(), DeviceError> {
    match captured(stream) {
        Ok(false) => Ok(()),
        Ok(true) => Err(DeviceError::Capture { what }),
        Err(error) => Err(DeviceError::Driver { what: "ask whether the stream is being captured", error }),
    }
}

/// Milliseconds between two events of a stream; waits for the second. cudarc calls the function of its bindings'
/// version. Drivers before CUDA 12.8 lack it, and cudarc panics. Every driver has the first version.
pub(crate) fn milliseconds(start: &CudaEvent, end: &CudaEvent) -> Result<f32, DeviceError> {
    let failed = |error| DeviceError::Driver { what: "tell the time between two events", error };
    end.synchronize().map_err(failed)?;
    let mut milliseconds = 0.0;
    look_up(b"cuEventElapsedTime\0", "CUDA 2.0", |function: &Elapsed| {
        // SAFETY: the function has had this signature since it was introduced; both events live, and their context is
        // current, since the second has just been waited for in it.
        unsafe { function(&mut milliseconds, start.cu_event(), end.cu_event()) }.result()
    })?
    .map_err(failed)?;
    Ok(milliseconds)
}

type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

fn find(function: &[u8], since: &str) -> Result<(), DeviceError> {
    look_up(function, since, |_: &*const ()| ())
}

/// Finds a function of the driver and calls `then` with it.
fn look_up<F, T>(function: &[u8], since: &str, then: impl FnOnce(&F) -> T) -> Result<T, DeviceError> {
    let mut tried = Vec::new();
    for name in NAMES {
        // SAFETY: the driver's library runs no code on loading that depends on the state of this process; cudarc loads
        // the same library by the same names.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => {
                // SAFETY: `F` is a pointer: every caller uses the function's own type.
                if let Ok(found) = unsafe { library.get::<F>(function) } {
                    let done = then(&found);
                    // The library stays loaded: cudarc will open it again.
                    std::mem::forget(library);
                    return Ok(done);
                }
                std::mem::forget(library);
                tried.push(format!("{name} is a driver older than {since}"));
            }
            Err(error) => tried.push(reason(&error)),
        }
    }
    Err(DeviceError::NoDriver { tried: tried.join("; ") })
}

/// The loader's message, which names the library.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
