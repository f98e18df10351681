//! Devices and streams: the primary contexts, which PyTorch uses too.

use crate::error::{poisoned, raise};
use postlude::Device;
use postlude::cudarc::driver::CudaStream;
use postlude::cudarc::driver::sys::CUstream;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock};

/// The devices that were asked for, and streams of others by their handles.
#[derive(Default)]
struct Known {
    devices: HashMap<usize, Device>,
    streams: HashMap<(usize, u64), Arc<CudaStream>>,
}

fn known() -> &'static Mutex<Known> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    KNOWN.get_or_init(Mutex::default)
}

/// PyTorch's function for the current stream's handle.
static CURRENT: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();

/// The handle of the stream on which PyTorch works now; the default stream where PyTorch is not loaded.
pub fn current_stream(py: Python<'_>, ordinal: usize) -> PyResult<u64> {
    let modules = || py.import("sys")?.getattr("modules")?.cast_into::<PyDict>().map_err(PyErr::from);
    if CURRENT.get(py).is_none() && modules()?.contains("torch")? {
        let function = py.import("torch._C")?.getattr("_cuda_getCurrentRawStream").ok().map(Bound::unbind);
        // Another thread may have been first, with the same answer.
        let _ = CURRENT.set(py, function);
    }
    match CURRENT.get(py) {
        Some(Some(function)) => function.bind(py).call1((ordinal,))?.extract(),
        _ => Ok(0),
    }
}

/// A device and a stream of it.
pub fn device(ordinal: usize, handle: u64) -> PyResult<(Device, Arc<CudaStream>)> {
    let mut known = known().lock().map_err(poisoned)?;
    let device = match known.devices.entry(ordinal) {
        Entry::Occupied(found) => found.get().clone(),
        Entry::Vacant(place) => place.insert(Device::new(ordinal).map_err(raise)?).clone(),
    };
    let stream = known.streams.entry((ordinal, handle)).or_insert_with(|| {
        // SAFETY: PyTorch's streams come from pools that live as long as the process, and the default stream always exists.
        unsafe { device.context().wrap_borrowed_stream(handle as CUstream) }
    });
    let stream = stream.clone();
    Ok((device, stream))
}

/// Whether a GPU and a compiler for it are there, in words.
#[pyfunction]
pub fn gpu(py: Python<'_>) -> (bool, String) {
    py.detach(|| match Device::find() {
        Ok(device) => (true, device.to_string()),
        Err(error) => (false, error.to_string()),
    })
}

/// Makes an empty tensor as another library does, beside one of its tensors.
pub fn empty<'py>(
    beside: &Bound<'py, PyAny>,
    extents: &[usize],
    dtype: postlude::DType,
    host: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = beside.py();
    let extents = pyo3::types::PyTuple::new(py, extents)?;
    if let Ok(new_empty) = beside.getattr(intern!(py, "new_empty")) {
        let options = PyDict::new(py);
        let format = py.import(intern!(py, "torch"))?.getattr(crate::tensor::torch_name(dtype))?;
        options.set_item(intern!(py, "dtype"), format)?;
        return new_empty.call((extents,), Some(&options));
    }
    if !host {
        let text = "only PyTorch's tensors have an allocator here: pass the output in `out`";
        return Err(crate::error::argument(text));
    }
    py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "empty"), (extents, crate::tensor::torch_name(dtype)))
}
