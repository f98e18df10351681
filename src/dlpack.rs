//! DLPack: tensors of NumPy, PyTorch, CuPy, JAX and others as arguments, and buffers of this library as theirs.
//!
//! The crate [`dlpark`] owns and validates the descriptors, both legacy and versioned. This module turns them into
//! [`Tensor`]s, and back. Numbers of eight bits come as DLPack's codes, or as bytes: a reader that knows better says so
//! with [`reinterpret`](Tensor::reinterpret). DLPack has no bit masks, so they travel as bytes.
//!
//! ```
//! use postlude::prelude::*;
//! use postlude::{dlpack, args::MemoryLayout};
//! let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 2.0, F32))?;
//! // Another library's tensors; here this one plays both parts.
//! let rows = MemoryLayout::contiguous(&[2, 2])?;
//! let of = |x: [f32; 4]| dlpack::export(x.map(f32::to_le_bytes).concat(), F32, rows);
//! let (a, mut d) = (of([1.0, 2.0, 3.0, 4.0])?, of([0.0; 4])?);
//! // SAFETY: both descriptors tell the truth about their memory.
//! let (a, d) = unsafe { (Tensor::from_dlpack(&a)?, Tensor::from_dlpack_mut(&mut d)?) };
//! let args = HostArgs::new().input("a", a).output("d", d);
//! Gemm::pointwise(F32, Order::RowMajor, &epilogue).reference(Shape::matrix(2, 2), args)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Streams
//!
//! A descriptor does not say when its data is ready. The protocol does: a consumer passes its stream to the producer's
//! `__dlpack__(stream=...)`, and the producer orders its work before what the consumer launches there. So call the producer
//! with the stream on which the plan will be executed. [`stream`] spells it for the protocol.

use crate::args::{HostBuffer, IntoTensor, LayoutError, MemoryLayout, Tensor};
use crate::dtype::DType;
#[cfg(feature = "cuda")]
use cudarc::driver::CudaContext;
pub use dlpark;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, TensorRef, versioned};
use std::ffi::c_void;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// Why a descriptor is not an argument, or a buffer has no descriptor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// The descriptor contradicts itself.
    #[error("the DLPack descriptor is invalid: {0}")]
    Invalid(#[from] dlpark::tensor::Error),
    /// Elements of a format that no argument has.
    #[error("DLPack elements of code {code}, {bits} bits and {lanes} lanes have no format here: convert the data")]
    Format {
        /// DLPack's type code.
        code: u8,
        /// Bits of an element.
        bits: u8,
        /// Lanes of a vector type.
        lanes: u16,
    },
    /// Memory on another device than the one asked for.
    #[error("the tensor is on DLPack device {got:?}, not on {needs:?} (type, ordinal): copy it there")]
    Device {
        /// Type and ordinal asked for.
        needs: (u32, i32),
        /// Type and ordinal of the tensor.
        got: (u32, i32),
    },
    /// An output whose owner permits reading only.
    #[error("the tensor is read-only: pass a writable one as an output")]
    ReadOnly,
    /// Extents or strides that no launch takes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A buffer shorter than its layout.
    #[error("the layout takes {needs} bytes, and the buffer has {got}")]
    TooShort {
        /// Bytes from the first to the last element.
        needs: usize,
        /// Bytes of the buffer.
        got: usize,
    },
    /// The descriptor could not be made.
    #[error("no DLPack descriptor: {0}")]
    Export(#[from] dlpark::metadata::Error),
}

/// DLPack's description of a format. Bit masks are bytes.
pub const fn data_type(dtype: DType) -> DLDataType {
    let (code, bits) = match dtype {
        DType::F32 => (DLDataTypeCode::FLOAT, 32),
        DType::F64 => (DLDataTypeCode::FLOAT, 64),
        DType::F16 => (DLDataTypeCode::FLOAT, 16),
        DType::BF16 => (DLDataTypeCode::BFLOAT, 16),
        DType::E4M3 => (DLDataTypeCode::FLOAT8_E4M3FN, 8),
        DType::E5M2 => (DLDataTypeCode::FLOAT8_E5M2, 8),
        DType::I32 => (DLDataTypeCode::INT, 32),
        DType::I8 => (DLDataTypeCode::INT, 8),
        DType::U8 | DType::I4 | DType::U4 | DType::Bits8 | DType::Bits128 => (DLDataTypeCode::UINT, 8),
        DType::Bool => (DLDataTypeCode::BOOL, 8),
    };
    DLDataType { code, bits, lanes: 1 }
}

/// The format that DLPack describes, if there is one here. Bytes are `u8` numbers.
pub fn format(data_type: DLDataType) -> Option<DType> {
    DType::ALL.into_iter().find(|dtype| !dtype.is_packed() && self::data_type(*dtype) == data_type)
}

/// The stream as a consumer passes it to `__dlpack__(stream=...)`: its handle, and 1 for the legacy default stream.
#[cfg(feature = "cuda")]
pub fn stream(stream: &cudarc::driver::CudaStream) -> i64 {
    match stream.cu_stream() as i64 {
        0 => 1,
        handle => handle,
    }
}

/// Extents and strides of a descriptor.
fn layout(tensor: &TensorRef<'_>) -> Result<MemoryLayout, DlpackError> {
    let large = |_| LayoutError::TooLarge;
    let extents = tensor.shape().iter().map(|extent| usize::try_from(*extent)).collect::<Result<Vec<_>, _>>().map_err(large)?;
    let strides = tensor.strides_or_compact()?;
    let strides = strides.iter().map(|stride| isize::try_from(*stride)).collect::<Result<Vec<_>, _>>().map_err(large)?;
    Ok(MemoryLayout::new(&extents, &strides)?)
}

/// The format and the layout of a descriptor that was validated.
///
/// # Errors
/// If no argument has such a format or layout.
pub fn describe(tensor: &TensorRef<'_>) -> Result<(DType, MemoryLayout), DlpackError> {
    Ok((format_of(tensor)?, layout(tensor)?))
}

/// The format of a descriptor's elements.
fn format_of(tensor: &TensorRef<'_>) -> Result<DType, DlpackError> {
    let DLDataType { code, bits, lanes } = tensor.dtype();
    format(tensor.dtype()).ok_or(DlpackError::Format { code: code.0, bits, lanes })
}

fn on(tensor: &TensorRef<'_>, needs: DLDevice) -> Result<(), DlpackError> {
    let (needs, got): ((u32, i32), (u32, i32)) = (needs.into(), tensor.device().into());
    // Pinned memory belongs to the host, whichever device it is pinned for.
    let pinned = needs == <(u32, i32)>::from(DLDevice::CPU) && got == (DLDeviceType::CUDAHOST.0, got.1);
    if got == needs || pinned { Ok(()) } else { Err(DlpackError::Device { needs, got }) }
}

fn writable<M: ManagedTensorBase>(tensor: &Managed<M>) -> Result<(), DlpackError> {
    if tensor.flags().contains(DlpackFlags::READ_ONLY) { Err(DlpackError::ReadOnly) } else { Ok(()) }
}

/// Where the elements begin, and how many bytes they take.
///
/// # Safety
/// The descriptor tells the truth about its memory.
unsafe fn place(tensor: &TensorRef<'_>, dtype: DType, layout: MemoryLayout) -> Result<(*mut u8, usize), DlpackError> {
    // SAFETY: the caller's promise.
    let first = unsafe { tensor.offset_bytes_ptr()? }.cast_mut();
    let bytes = if first.is_null() { 0 } else { dtype.bytes(layout.span()) };
    Ok((if bytes == 0 { std::ptr::NonNull::dangling().as_ptr() } else { first }, bytes))
}

impl<'a> Tensor<HostBuffer<'a>> {
    /// A tensor in host memory, for reading.
    ///
    /// # Safety
    /// The descriptor tells the truth about its memory, and nothing writes that memory while the tensor lives.
    ///
    /// # Errors
    /// If the descriptor is invalid, of another device, or of a format or layout that no argument has.
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: &'a Managed<M>) -> Result<Self, DlpackError> {
        let tensor = tensor.validate()?;
        on(&tensor, DLDevice::CPU)?;
        let (dtype, layout) = describe(&tensor)?;
        // SAFETY: the caller's promise: these bytes are there, and nothing writes them.
        let bytes = unsafe {
            let (first, bytes) = place(&tensor, dtype, layout)?;
            std::slice::from_raw_parts(first, bytes)
        };
        Ok(Tensor::of_bytes(dtype, bytes).laid_out(layout))
    }

    /// A tensor in host memory, for writing.
    ///
    /// # Safety
    /// The descriptor tells the truth about its memory, and nothing else uses that memory while the tensor lives.
    ///
    /// # Errors
    /// As [`from_dlpack`](Tensor::from_dlpack), and if the tensor is read-only.
    pub unsafe fn from_dlpack_mut<M: ManagedTensorBase>(tensor: &'a mut Managed<M>) -> Result<Self, DlpackError> {
        writable(tensor)?;
        let tensor = tensor.validate()?;
        on(&tensor, DLDevice::CPU)?;
        let (dtype, layout) = describe(&tensor)?;
        // SAFETY: the caller's promise: these bytes are there, and nothing else uses them.
        let bytes = unsafe {
            let (first, bytes) = place(&tensor, dtype, layout)?;
            std::slice::from_raw_parts_mut(first, bytes)
        };
        Ok(Tensor::of_bytes_mut(dtype, bytes).laid_out(layout))
    }
}

/// Device memory of another library.
#[cfg(feature = "cuda")]
impl<'a> Tensor<crate::device::DeviceBuffer<'a>> {
    /// A tensor in the memory of a context's device, for reading. The producer was called with the stream of the launch.
    ///
    /// # Safety
    /// The descriptor tells the truth about its memory, which the context can address, as the device's primary context can
    /// for memory of CUDA's runtime. Nothing writes the memory until all launches that take the tensor are done.
    ///
    /// # Errors
    /// If the descriptor is invalid, of another device, or of a format or layout that no argument has.
    pub unsafe fn from_dlpack_on<M: ManagedTensorBase>(
        context: &'a Arc<CudaContext>,
        tensor: &'a Managed<M>,
    ) -> Result<Self, DlpackError> {
        let (address, dtype, layout) = on_device(context, tensor)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { Tensor::from_raw(context, address, dtype, layout) })
    }

    /// [`from_dlpack_on`](Tensor::from_dlpack_on) for an output or an update.
    ///
    /// # Safety
    /// As `from_dlpack_on`. Besides, nothing else reads the memory meanwhile, and no other argument overlaps it.
    ///
    /// # Errors
    /// As `from_dlpack_on`, and if the tensor is read-only.
    pub unsafe fn from_dlpack_mut_on<M: ManagedTensorBase>(
        context: &'a Arc<CudaContext>,
        tensor: &'a mut Managed<M>,
    ) -> Result<Self, DlpackError> {
        writable(tensor)?;
        let (address, dtype, layout) = on_device(context, tensor)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { Tensor::from_raw_mut(context, address, dtype, layout) })
    }
}

#[cfg(feature = "cuda")]
fn on_device<M: ManagedTensorBase>(
    context: &CudaContext,
    tensor: &Managed<M>,
) -> Result<(u64, DType, MemoryLayout), DlpackError> {
    let tensor = tensor.validate()?;
    on(&tensor, DLDevice::cuda(i32::try_from(context.ordinal()).unwrap_or(i32::MAX)))?;
    let (dtype, layout) = describe(&tensor)?;
    // Nothing reads the address here, so it is computed as a number.
    Ok((tensor.data_ptr() as u64 + tensor.byte_offset(), dtype, layout))
}

/// A buffer that a descriptor can own.
pub trait Exported: Send + 'static {
    /// Its device, the address of its first byte, and its length in bytes.
    fn memory(&mut self) -> (DLDevice, *mut c_void, usize);
}

impl Exported for Vec<u8> {
    fn memory(&mut self) -> (DLDevice, *mut c_void, usize) {
        (DLDevice::CPU, self.as_mut_ptr().cast(), self.len())
    }
}

#[cfg(feature = "cuda")]
impl Exported for cudarc::driver::CudaSlice<u8> {
    fn memory(&mut self) -> (DLDevice, *mut c_void, usize) {
        use cudarc::driver::{DevicePtrMut, DeviceSlice};
        let (bytes, stream) = (self.len(), DeviceSlice::<u8>::stream(self).clone());
        let device = DLDevice::cuda(i32::try_from(stream.context().ordinal()).unwrap_or(i32::MAX));
        let (address, _ordered) = self.device_ptr_mut(&stream);
        (device, address as *mut c_void, bytes)
    }
}

/// A buffer as a versioned descriptor, which owns it. Bit masks have extents in bytes.
///
/// Work on device memory may be unfinished: the caller orders the consumer's stream behind it, as the protocol says.
///
/// # Errors
/// If the buffer is shorter than the layout.
pub fn export(buffer: impl Exported, dtype: DType, layout: MemoryLayout) -> Result<versioned::Dlpack, DlpackError> {
    export_as::<DLManagedTensorVersioned>(buffer, dtype, layout)
}

/// [`export`] in either form: legacy (`dlpark::ffi::DLManagedTensor`) or versioned.
///
/// # Errors
/// As `export`.
pub fn export_as<M: ManagedTensorBase>(
    buffer: impl Exported,
    dtype: DType,
    layout: MemoryLayout,
) -> Result<Managed<M>, DlpackError> {
    let mut owner = Box::new(buffer);
    let (device, address, got) = owner.memory();
    let needs = if dtype.is_packed() { layout.span() } else { dtype.bytes(layout.span()) };
    if needs > got {
        return Err(DlpackError::TooShort { needs, got });
    }
    // All fit: a layout has checked that they are below 2^63 bytes.
    let shape: Vec<i64> = layout.extents().iter().map(|extent| *extent as i64).collect();
    let mut strides: Vec<i64> = layout.strides().iter().map(|stride| *stride as i64).collect();
    // Readers ask whether a tensor is compact, so an axis of one element gets the stride of a compact one.
    for axis in (0..shape.len()).rev().filter(|axis| shape[*axis] <= 1) {
        strides[axis] = strides.get(axis + 1).map_or(1, |inner| inner.saturating_mul(shape[axis + 1].max(1)));
    }
    let mut described = Dynamic::new(&shape[..], &strides[..]).initialize_as::<M>(owner)?;
    described.set_data(address).set_device(device).set_dtype(data_type(dtype));
    // SAFETY: the descriptor owns the buffer, which does not move on the heap, and the layout lies inside it.
    Ok(unsafe { described.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::recipes;
    use crate::prelude::*;
    use dlpark::ffi::DLManagedTensor;

    fn layout(extents: &[usize], strides: &[isize]) -> MemoryLayout {
        MemoryLayout::new(extents, strides).expect("a layout")
    }

    fn floats(x: &[f32]) -> Vec<u8> {
        x.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn formats_are_there_and_back() {
        for dtype in DType::ALL {
            let back = if dtype.is_packed() { DType::U8 } else { dtype };
            assert_eq!(format(data_type(dtype)), Some(back));
        }
        assert_eq!(format(DLDataType { code: DLDataTypeCode::INT, bits: 64, lanes: 1 }), None);
        assert_eq!(format(DLDataType { lanes: 4, ..data_type(F32) }), None);
    }

    #[test]
    fn a_product_of_tensors_in_either_form() {
        // B lies transposed and with gaps.
        let a = export_as::<DLManagedTensor>(floats(&[1.0, 2.0]), F32, layout(&[1, 2], &[2, 1])).expect("a descriptor");
        let b = export(floats(&[3.0, 4.0, 0.0, 5.0, 6.0]), F32, layout(&[2, 2], &[1, 3])).expect("a descriptor");
        let mut d = export(floats(&[0.0; 2]), F32, layout(&[1, 2], &[2, 1])).expect("a descriptor");
        // SAFETY: the descriptors tell the truth.
        let (a, b, out) = unsafe {
            let out = Tensor::from_dlpack_mut(&mut d).expect("a tensor");
            (Tensor::from_dlpack(&a).expect("a tensor"), Tensor::from_dlpack(&b).expect("a tensor"), out)
        };
        let args = HostArgs::new().input("a", a).input("b", b).output("d", out);
        Gemm::new(F32, TN, &recipes::identity(F32).expect("an epilogue")).reference(Shape::new(1, 2, 2), args).expect("it runs");
        // SAFETY: as above, and nothing writes any more.
        assert_eq!(unsafe { d.validate().expect("valid").cpu_slice::<f32>().expect("floats") }, [11.0, 17.0]);
    }

    #[test]
    fn what_is_not_an_argument_says_why() {
        let of = |bytes: usize, dtype, layout| export(vec![0u8; bytes], dtype, layout);
        assert!(matches!(of(7, F32, layout(&[2], &[1])), Err(DlpackError::TooShort { needs: 8, got: 7 })));
        let mut fixed = of(8, F32, layout(&[2], &[1])).expect("a descriptor");
        // SAFETY: the memory may be read only, which is less than before.
        unsafe { *fixed.flags_mut() |= DlpackFlags::READ_ONLY };
        // SAFETY: the descriptor tells the truth.
        assert!(matches!(unsafe { Tensor::from_dlpack_mut(&mut fixed) }, Err(DlpackError::ReadOnly)));
        // SAFETY: as above.
        assert!(unsafe { Tensor::from_dlpack(&fixed) }.is_ok());

        let mut values = Box::new([0i64; 2]);
        let (address, shape) = (values.as_mut_ptr().cast(), [2i64]);
        let mut described = Dynamic::new(&shape[..], &[1i64][..]).initialize(values).expect("a descriptor");
        described.set_data(address).set_device(DLDevice::CPU).set_dtype(DLDataType::I64);
        // SAFETY: the descriptor owns the numbers.
        let long: versioned::Dlpack = unsafe { described.finish() };
        // SAFETY: the descriptor tells the truth.
        assert!(matches!(unsafe { Tensor::from_dlpack(&long) }, Err(DlpackError::Format { bits: 64, .. })));

        struct Elsewhere;
        impl Exported for Elsewhere {
            fn memory(&mut self) -> (DLDevice, *mut c_void, usize) {
                (DLDevice::cuda(1), std::ptr::null_mut(), 8)
            }
        }
        let elsewhere = export(Elsewhere, F32, layout(&[2], &[1])).expect("a descriptor");
        // SAFETY: nothing reads the memory.
        let error = unsafe { Tensor::from_dlpack(&elsewhere) }.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("the tensor is on DLPack device (2, 1), not on (1, 0) (type, ordinal): copy it there"));
    }

    #[test]
    fn bytes_may_be_numbers_of_eight_bits() {
        let (one, two) = (0x38u8, 0x40u8);
        let bytes = export(vec![one, two], U8, layout(&[1, 2], &[2, 1])).expect("a descriptor");
        // SAFETY: the descriptor tells the truth.
        let tensor = unsafe { Tensor::from_dlpack(&bytes) }.expect("a tensor").reinterpret(E4M3);
        let mut d = [0.0f32; 2];
        let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32)).expect("an epilogue");
        let args = HostArgs::new().input("a", tensor).output("d", &mut d);
        Gemm::pointwise(E4M3, Order::RowMajor, &epilogue).reference(Shape::matrix(1, 2), args).expect("it runs");
        assert_eq!(d, [1.0, 2.0]);
    }
}
