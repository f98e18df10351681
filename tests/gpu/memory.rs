//! Device memory of any format, its element type forgotten.

use crate::layout::{Buffer, place};
use postlude::args::IntoTensor;
use postlude::cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, DeviceRepr, DriverError};
use postlude::device::{DeviceArgs, DeviceBuffer};
use postlude::{DType, Element, Tensor};
use std::sync::Arc;

/// An allocation.
pub trait Block {
    fn read(&self, start: usize, len: usize) -> Box<dyn Readable + '_>;
    fn write(&mut self, start: usize, len: usize) -> Box<dyn Writable + '_>;
    fn download(&self, stream: &Arc<CudaStream>) -> Result<Vec<u8>, DriverError>;
    /// For libraries that take addresses.
    fn address(&mut self, stream: &Arc<CudaStream>) -> u64;
}

/// A part of an allocation that is read.
pub trait Readable {
    fn tensor(&self) -> Tensor<DeviceBuffer<'_>>;
}

/// A part of an allocation that is written.
pub trait Writable {
    fn tensor(&mut self) -> Tensor<DeviceBuffer<'_>>;
}

impl<T: Element + DeviceRepr> Block for CudaSlice<T> {
    fn read(&self, start: usize, len: usize) -> Box<dyn Readable + '_> {
        Box::new(self.slice(start..start + len))
    }
    fn write(&mut self, start: usize, len: usize) -> Box<dyn Writable + '_> {
        Box::new(self.slice_mut(start..start + len))
    }
    fn download(&self, stream: &Arc<CudaStream>) -> Result<Vec<u8>, DriverError> {
        Ok(bytemuck::cast_slice(&stream.clone_dtoh(self)?).to_vec())
    }
    fn address(&mut self, stream: &Arc<CudaStream>) -> u64 {
        self.device_ptr_mut(stream).0
    }
}

impl<T: Element> Readable for CudaView<'_, T> {
    fn tensor(&self) -> Tensor<DeviceBuffer<'_>> {
        self.into_tensor()
    }
}

impl<T: Element> Writable for CudaViewMut<'_, T> {
    fn tensor(&mut self) -> Tensor<DeviceBuffer<'_>> {
        self.into_tensor()
    }
}

/// Copies bytes to the device as elements of a format.
fn upload(stream: &Arc<CudaStream>, dtype: DType, bytes: &[u8]) -> Result<Box<dyn Block>, DriverError> {
    fn typed<T: Element + DeviceRepr>(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<Box<dyn Block>, DriverError> {
        let elements: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        Ok(Box::new(stream.clone_htod(&elements)?))
    }
    match dtype {
        DType::F32 => typed::<f32>(stream, bytes),
        DType::F64 => typed::<f64>(stream, bytes),
        DType::F16 => typed::<half::f16>(stream, bytes),
        DType::BF16 => typed::<half::bf16>(stream, bytes),
        DType::E4M3 => typed::<postlude::float8::F8E4M3>(stream, bytes),
        DType::E5M2 => typed::<postlude::float8::F8E5M2>(stream, bytes),
        DType::I32 => typed::<i32>(stream, bytes),
        DType::I8 => typed::<i8>(stream, bytes),
        DType::U8 | DType::I4 | DType::U4 | DType::Bool | DType::Bits8 | DType::Bits128 => typed::<u8>(stream, bytes),
    }
}

/// The device's copy of some arguments.
pub struct DeviceCopy(Vec<Box<dyn Block>>);

impl DeviceCopy {
    pub fn of(stream: &Arc<CudaStream>, buffers: &[Buffer]) -> Result<DeviceCopy, DriverError> {
        buffers.iter().map(|b| upload(stream, b.dtype, &b.bytes)).collect::<Result<_, _>>().map(DeviceCopy)
    }

    /// Calls `run` with the arguments.
    pub fn with<R>(&mut self, buffers: &[Buffer], run: impl FnOnce(DeviceArgs<'_>) -> R) -> R {
        enum View<'a> {
            Read(Box<dyn Readable + 'a>),
            Write(Box<dyn Writable + 'a>),
        }
        // Bit masks are passed as bytes.
        let bytes = |b: &Buffer, elements| if b.dtype.is_packed() { b.dtype.bytes(elements) } else { elements };
        let views = self.0.iter_mut().zip(buffers).map(|(block, b)| match b.written {
            true => View::Write(block.write(bytes(b, b.place.offset), bytes(b, b.len))),
            false => View::Read(block.read(bytes(b, b.place.offset), bytes(b, b.len))),
        });
        let mut views: Vec<View<'_>> = views.collect();
        let args = views.iter_mut().zip(buffers).fold(DeviceArgs::new(), |args, (view, b)| match view {
            View::Read(view) => args.input(&b.name, place(view.tensor(), b.place)),
            View::Write(view) => args.output(&b.name, place(view.tensor(), b.place)),
        });
        run(args)
    }

    /// The address of a buffer's first byte.
    pub fn address(&mut self, buffers: &[Buffer], name: &str, stream: &Arc<CudaStream>) -> u64 {
        let found = self.0.iter_mut().zip(buffers).find(|(_, b)| b.name == name);
        found.map_or(0, |(block, _)| block.address(stream))
    }

    /// Copies what was written back.
    pub fn download(&self, stream: &Arc<CudaStream>, buffers: &mut [Buffer]) -> Result<(), DriverError> {
        for (block, buffer) in self.0.iter().zip(buffers).filter(|(_, b)| b.written) {
            buffer.bytes = block.download(stream)?;
        }
        Ok(())
    }
}
