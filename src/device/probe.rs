//! Whether there is a driver. cudarc panics where the library is missing, so this asks first.

use super::DeviceError;
use cudarc::driver::sys::cuDriverGetVersion;

#[cfg(windows)]
const NAMES: [&str; 1] = ["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Finds the driver's library and a function that every supported version has.
pub(super) fn driver() -> Result<(), DeviceError> {
    find(b"cuLaunchKernelEx\0", "CUDA 11.8")
}

/// Whether the driver describes tensors to the copy engine.
pub(super) fn tensor_maps() -> Result<(), DeviceError> {
    find(b"cuTensorMapEncodeTiled\0", "CUDA 12.0")
}

/// Whether the driver lets a launch begin early and records that into graphs: since CUDA 12.3.
pub(super) fn programmatic_launches() -> bool {
    let mut version = 0;
    // SAFETY: the driver writes one integer; it needs no context, and a library is loaded, since there is a device.
    unsafe { cuDriverGetVersion(&mut version) }.result().is_ok_and(|()| version >= 12_030)
}

fn find(function: &[u8], since: &str) -> Result<(), DeviceError> {
    let mut tried = Vec::new();
    for name in NAMES {
        // SAFETY: the driver's library runs no code on loading that depends on the state of this process; cudarc loads
        // the same library by the same names.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => {
                // SAFETY: the symbol is only looked up, never called or read through.
                let found = unsafe { library.get::<*const ()>(function) }.is_ok();
                // The library stays loaded: cudarc will open it again.
                std::mem::forget(library);
                if found {
                    return Ok(());
                }
                tried.push(format!("{name} is a driver older than {since}"));
            }
            Err(error) => tried.push(reason(&error)),
        }
    }
    Err(DeviceError::NoDriver { tried: tried.join("; ") })
}

/// The loader's own words, which name the library.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
