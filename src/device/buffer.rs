//! Buffers: the user's device memory, borrowed, without its element type.

use crate::args::{Args, Given, IntoTensor, Tensor};
use crate::dtype::{DType, Element};
use crate::plan::Problem;
use crate::problem::Shape;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, SyncOnDrop,
};
use std::fmt;
use std::sync::Arc;

/// Arguments in device memory.
pub type DeviceArgs<'a> = Args<DeviceBuffer<'a>>;

/// Device memory that an argument borrows.
pub struct DeviceBuffer<'a>(Handle<'a>);

enum Handle<'a> {
    Read(&'a (dyn Read + 'a)),
    Write(&'a mut (dyn Write + 'a)),
}

trait Read: Send + Sync {
    fn context(&self) -> &Arc<CudaContext>;
    fn pointer<'s>(&'s self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>);
}

pub(super) trait Write: Send + Sync {
    fn context(&self) -> &Arc<CudaContext>;
    fn pointer<'s>(&'s mut self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>);
}

macro_rules! readable {
    ($($memory:ty),*) => { $(
        impl<T: Element> Read for $memory {
            fn context(&self) -> &Arc<CudaContext> {
                DeviceSlice::<T>::stream(self).context()
            }
            fn pointer<'s>(&'s self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>) {
                self.device_ptr(stream)
            }
        }
    )* };
}

macro_rules! writable {
    ($($memory:ty),*) => { $(
        impl<T: Element> Write for $memory {
            fn context(&self) -> &Arc<CudaContext> {
                DeviceSlice::<T>::stream(self).context()
            }
            fn pointer<'s>(&'s mut self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>) {
                self.device_ptr_mut(stream)
            }
        }
    )* };
}

readable! { CudaSlice<T>, CudaView<'_, T> }
writable! { CudaSlice<T>, CudaViewMut<'_, T> }

impl DeviceBuffer<'_> {
    /// The device of the memory.
    pub fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// The context of the address.
    pub(super) fn context(&self) -> &Arc<CudaContext> {
        match &self.0 {
            Handle::Read(memory) => memory.context(),
            Handle::Write(memory) => memory.context(),
        }
    }

    /// The same memory for a shorter lifetime.
    pub(super) fn reborrow(&mut self) -> DeviceBuffer<'_> {
        match &mut self.0 {
            Handle::Read(memory) => DeviceBuffer(Handle::Read(&**memory)),
            Handle::Write(memory) => DeviceBuffer(Handle::Write(&mut **memory)),
        }
    }

    /// Its address, ordered into the stream until the guard is dropped.
    pub(super) fn pointer<'s>(&'s mut self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>) {
        match &mut self.0 {
            Handle::Read(memory) => memory.pointer(stream),
            Handle::Write(memory) => memory.pointer(stream),
        }
    }
}

/// Bytes that the library owns, at a given distance from an address aligned to 256.
pub(super) struct Window {
    memory: CudaSlice<u8>,
    offset: usize,
    pub bytes: usize,
}

impl Window {
    /// `bytes` bytes, zeroed.
    pub fn new(stream: &Arc<CudaStream>, offset: usize, bytes: usize) -> Result<Window, DriverError> {
        // The driver cannot allocate zero bytes.
        Ok(Window { memory: stream.alloc_zeros((offset + bytes).max(1))?, offset, bytes })
    }

    /// As an argument.
    pub fn buffer(&mut self) -> DeviceBuffer<'_> {
        DeviceBuffer(Handle::Write(self))
    }

    /// Copies it to the host, and waits for it.
    pub fn download(&self, stream: &Arc<CudaStream>) -> Result<Vec<u8>, DriverError> {
        if self.bytes == 0 {
            Ok(Vec::new())
        } else {
            stream.clone_dtoh(&self.memory.slice(self.offset..self.offset + self.bytes))
        }
    }
}

impl Write for Window {
    fn context(&self) -> &Arc<CudaContext> {
        self.memory.context()
    }
    fn pointer<'s>(&'s mut self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>) {
        let (address, guard) = self.memory.device_ptr_mut(stream);
        (address + self.offset as u64, guard)
    }
}

impl fmt::Debug for DeviceBuffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer(device {})", self.ordinal())
    }
}

impl<'a, T: Element> IntoTensor<DeviceBuffer<'a>> for &'a CudaSlice<T> {
    fn into_tensor(self) -> Tensor<DeviceBuffer<'a>> {
        Tensor::new(DeviceBuffer(Handle::Read(self)), T::DTYPE, self.len(), false)
    }
}

impl<'a, 'b: 'a, T: Element> IntoTensor<DeviceBuffer<'a>> for &'a CudaView<'b, T> {
    fn into_tensor(self) -> Tensor<DeviceBuffer<'a>> {
        Tensor::new(DeviceBuffer(Handle::Read(self)), T::DTYPE, self.len(), false)
    }
}

impl<'a, T: Element> IntoTensor<DeviceBuffer<'a>> for &'a mut CudaSlice<T> {
    fn into_tensor(self) -> Tensor<DeviceBuffer<'a>> {
        let len = self.len();
        Tensor::new(DeviceBuffer(Handle::Write(self)), T::DTYPE, len, true)
    }
}

impl<'a, 'b: 'a, T: Element> IntoTensor<DeviceBuffer<'a>> for &'a mut CudaViewMut<'b, T> {
    fn into_tensor(self) -> Tensor<DeviceBuffer<'a>> {
        let len = self.len();
        Tensor::new(DeviceBuffer(Handle::Write(self)), T::DTYPE, len, true)
    }
}

impl<'a> Tensor<DeviceBuffer<'a>> {
    /// Device memory as elements of a format chosen at run time, with the given borrow: `of_device_bytes(dtype,
    /// &bytes)` for an input, `&mut bytes` for an output. A remainder too short for an element is ignored. An address
    /// between two elements is an error of the launch.
    ///
    /// ```no_run
    /// # use postlude::prelude::*;
    /// # fn f(bytes: &postlude::cudarc::driver::CudaSlice<u8>, dtype: DType) {
    /// let args = DeviceArgs::new().input("bias", postlude::Tensor::of_device_bytes(dtype, bytes));
    /// # }
    /// ```
    pub fn of_device_bytes(dtype: DType, memory: impl IntoTensor<DeviceBuffer<'a>>) -> Self {
        let Tensor { buffer, dtype: from, len, mutable, .. } = memory.into_tensor();
        Tensor::new(buffer, dtype, dtype.elements(from.bytes(len)), mutable)
    }
}

impl DeviceArgs<'_> {
    /// The problem with these arguments' strides and the alignment of their addresses.
    pub(crate) fn problem(&mut self, shape: Shape, stream: &CudaStream) -> Problem {
        let mut problem = Problem::from(shape);
        for (name, given) in &mut self.given {
            let Given::Tensor { tensor, .. } = given else { continue };
            let (address, _guard) = tensor.buffer.pointer(stream);
            problem = problem.align(name, 1 << address.trailing_zeros().min(8));
            if let Some(ld) = tensor.leading_dimension {
                problem = problem.ld(name, ld);
            }
            if let Some(batch_stride) = tensor.batch_stride {
                problem = problem.batch_stride(name, batch_stride);
            }
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decided at compile time.
    #[test]
    fn arguments_may_go_to_other_threads() {
        fn goes<T: Send + Sync>() {}
        goes::<DeviceArgs<'_>>();
        goes::<Tensor<DeviceBuffer<'_>>>();
    }
}
