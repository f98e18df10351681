//! Tensors of Python: where they are, of which format, and how they lie. Nothing is copied.

use crate::error::{Error, argument};
use dlpark::DlpackFlags;
use dlpark::ffi::{DLDevice, DLDeviceType};
use dlpark::python::consumer::{DlpackStream, StreamArg, stream};
use dlpark::python::{ImportRequest, ImportedDlpack};
use postlude::args::MemoryLayout;
use postlude::{DType, dlpack};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::ffi::c_void;

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Host,
    /// The CUDA device of this ordinal.
    Cuda(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Host => write!(f, "the CPU"),
            Place::Cuda(ordinal) => write!(f, "CUDA device {ordinal}"),
        }
    }
}

/// A tensor of Python.
pub struct Borrowed {
    pub address: u64,
    pub dtype: DType,
    pub layout: MemoryLayout,
    pub place: Place,
    pub writable: bool,
    /// What keeps the memory, where the object itself might not.
    _owner: Option<ImportedDlpack>,
}

impl Borrowed {
    /// The bytes from the first to the last element.
    pub fn bytes(&self) -> usize {
        if self.dtype.is_packed() { self.layout.span() } else { self.dtype.bytes(self.layout.span()) }
    }

    /// Whether both share a byte.
    pub fn overlaps(&self, other: &Borrowed) -> bool {
        let (own, theirs) = (self.bytes() as u64, other.bytes() as u64);
        let apart = self.address + own <= other.address || other.address + theirs <= self.address;
        self.place == other.place && own > 0 && theirs > 0 && !apart
    }
}

/// PyTorch's formats by the identity of their objects, which live as long as PyTorch.
static TORCH: PyOnceLock<HashMap<usize, DType>> = PyOnceLock::new();

/// PyTorch's name of a format.
pub fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::E4M3 => "float8_e4m3fn",
        DType::E5M2 => "float8_e5m2",
        DType::I32 => "int32",
        DType::I8 => "int8",
        DType::U8 | DType::I4 | DType::U4 | DType::Bits8 | DType::Bits128 => "uint8",
        DType::Bool => "bool",
    }
}

fn torch_formats(py: Python<'_>) -> PyResult<&HashMap<usize, DType>> {
    TORCH.get_or_try_init(py, || {
        let torch = py.import("torch")?;
        let named = DType::ALL.into_iter().filter(|dtype| !dtype.is_packed());
        Ok(named.filter_map(|dtype| Some((torch.getattr(torch_name(dtype)).ok()?.as_ptr() as usize, dtype))).collect())
    })
}

/// Reads a tensor: one of PyTorch by its attributes, another through DLPack, ordered into `stream` of its device.
pub fn read(name: &str, object: &Bound<'_, PyAny>, stream: impl Fn(usize) -> PyResult<u64>) -> PyResult<Borrowed> {
    let py = object.py();
    if let Ok(address) = object.call_method0(intern!(py, "data_ptr")) {
        return torch(name, object, address.extract()?);
    }
    if !object.hasattr(intern!(py, "__dlpack__"))? {
        let kind = object.get_type();
        return Err(argument(format!("argument `{name}`: {kind} is not a tensor: pass one of PyTorch, NumPy or DLPack")));
    }
    through_dlpack(name, object, stream)
}

fn numbers<const N: usize, T: Copy + Default + for<'a, 'py> FromPyObject<'a, 'py>>(
    name: &str,
    tuple: &Bound<'_, PyAny>,
) -> PyResult<([T; N], usize)> {
    let tuple = tuple.cast::<PyTuple>()?;
    if tuple.len() > N {
        return Err(argument(format!(
            "argument `{name}`: has {} axes, and a launch takes up to {N}: merge the leading ones",
            tuple.len()
        )));
    }
    let mut out = [T::default(); N];
    for (to, from) in out.iter_mut().zip(tuple.iter()) {
        *to = from.extract::<T>().map_err(|_| argument(format!("argument `{name}`: extents and strides are integers")))?;
    }
    Ok((out, tuple.len()))
}

fn torch(name: &str, object: &Bound<'_, PyAny>, address: u64) -> PyResult<Borrowed> {
    let py = object.py();
    let format = object.getattr(intern!(py, "dtype"))?;
    let dtype = torch_formats(py)?.get(&(format.as_ptr() as usize)).copied();
    let dtype = dtype.ok_or_else(|| argument(format!("argument `{name}`: {format} has no format here: convert it")))?;
    let (extents, rank) = numbers::<3, usize>(name, &object.getattr(intern!(py, "shape"))?)?;
    let (strides, _) = numbers::<3, isize>(name, &object.call_method0(intern!(py, "stride"))?)?;
    let layout = MemoryLayout::new(&extents[..rank], &strides[..rank]);
    let layout = layout.map_err(|error| argument(format!("argument `{name}`: {error}")))?;
    let place = match object.call_method0(intern!(py, "get_device"))?.extract::<i64>()? {
        -1 => Place::Host,
        ordinal => Place::Cuda(usize::try_from(ordinal).unwrap_or_default()),
    };
    Ok(Borrowed { address, dtype, layout, place, writable: true, _owner: None })
}

/// The consumer's stream, for the producer.
struct Consumer(u64);

// SAFETY: the handle is that of the stream on which the launch follows, so it is alive, and `stream::cuda` spells it as the
// protocol wants. Host memory gets none.
unsafe impl DlpackStream for Consumer {
    fn as_python_arg(&self, _: Python<'_>, device: DLDevice) -> PyResult<StreamArg> {
        Ok(if device.device_type == DLDeviceType::CUDA { stream::cuda(self.0 as *mut c_void) } else { stream::none() })
    }
}

fn through_dlpack(name: &str, object: &Bound<'_, PyAny>, stream: impl Fn(usize) -> PyResult<u64>) -> PyResult<Borrowed> {
    let request = ImportRequest::new(object.as_borrowed())?;
    let device = request.device()?;
    let place = match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => Place::Host,
        DLDeviceType::CUDA => Place::Cuda(usize::try_from(device.device_id).unwrap_or_default()),
        _ => return Err(argument(format!("argument `{name}`: is on device {:?}: copy it to the CPU or a CUDA device", device))),
    };
    let consumer = match place {
        Place::Host => Consumer(0),
        Place::Cuda(ordinal) => Consumer(stream(ordinal)?),
    };
    let owner = request.import(Some(&consumer), None)?;
    let fault = |error: &dyn std::fmt::Display| Error::new_err(format!("argument `{name}`: {error}"));
    let tensor = owner.validate().map_err(|error| fault(&error))?;
    let (dtype, layout) = dlpack::describe(&tensor).map_err(|error| argument(format!("argument `{name}`: {error}")))?;
    let address = tensor.data_ptr() as u64 + tensor.byte_offset();
    let writable = !owner.flags().contains(DlpackFlags::READ_ONLY);
    Ok(Borrowed { address, dtype, layout, place, writable, _owner: Some(owner) })
}
