//! Buffers: the user's device memory, borrowed, without its element type.

use crate::args::{Args, Given, IntoTensor, MemoryLayout, Slot, Tensor};
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
    /// Memory of others, which they order.
    Raw(&'a Arc<CudaContext>, u64),
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
            Handle::Raw(context, _) => context,
        }
    }

    /// The same memory for a shorter lifetime.
    pub(super) fn reborrow(&mut self) -> DeviceBuffer<'_> {
        match &mut self.0 {
            Handle::Read(memory) => DeviceBuffer(Handle::Read(&**memory)),
            Handle::Write(memory) => DeviceBuffer(Handle::Write(&mut **memory)),
            Handle::Raw(context, address) => DeviceBuffer(Handle::Raw(context, *address)),
        }
    }

    /// Its address, for a look at its alignment. The stream waits for earlier writes, and nothing waits for the look.
    pub(crate) fn address(&mut self, stream: &CudaStream) -> u64 {
        let (address, guard) = self.pointer(stream);
        // Dropping it would record an event that a launch records anyway. It owns nothing.
        std::mem::forget(guard);
        address
    }

    /// Its address, ordered into the stream until the guard is dropped.
    pub(crate) fn pointer<'s>(&'s mut self, stream: &'s CudaStream) -> (u64, SyncOnDrop<'s>) {
        match &mut self.0 {
            Handle::Read(memory) => memory.pointer(stream),
            Handle::Write(memory) => memory.pointer(stream),
            Handle::Raw(_, address) => (*address, SyncOnDrop::Record(None)),
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

/// Memory that another library owns: candle, PyTorch, the program's own allocator.
impl<'a> Tensor<DeviceBuffer<'a>> {
    /// Device memory at an address, for reading: a format chosen at run time, and extents and strides as its owner states
    /// them. A launch checks format, extents, strides, alignment and context, as it does for every argument.
    ///
    /// The memory belongs to `context`. For memory of CUDA's runtime, and thus of PyTorch, this is the device's primary
    /// context: [`Device::context`](crate::Device::context) of [`Device::new`](crate::Device::new).
    ///
    /// ```no_run
    /// # use postlude::prelude::*;
    /// use postlude::args::MemoryLayout;
    /// # fn f(device: &Device, plan: &Plan, stream: &std::sync::Arc<postlude::cudarc::driver::CudaStream>, [a, b, d]: [u64; 3])
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let (context, rows) = (device.context(), MemoryLayout::contiguous(&[256, 256])?);
    /// // SAFETY: the addresses are those of such matrices, and the stream is the only one that uses them.
    /// let (a, b, d) = unsafe {
    ///     let [a, b] = [a, b].map(|address| postlude::Tensor::from_raw(context, address, F16, rows));
    ///     (a, b, postlude::Tensor::from_raw_mut(context, d, F16, rows))
    /// };
    /// plan.execute(stream, &mut DeviceArgs::new().input("a", a).input("b", b).output("d", d))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Safety
    /// From `address` on, `layout.span()` elements of the format are device memory of this context until all launches that
    /// take the tensor are done. Nothing else writes them meanwhile: the owner orders its own work, because no event
    /// follows memory of others.
    pub unsafe fn from_raw(context: &'a Arc<CudaContext>, address: u64, dtype: DType, layout: MemoryLayout) -> Self {
        Tensor::new(DeviceBuffer(Handle::Raw(context, address)), dtype, elements(dtype, layout), false).laid_out(layout)
    }

    /// [`from_raw`](Tensor::from_raw) for an output or an update.
    ///
    /// # Safety
    /// As `from_raw`. Besides, nothing else reads the memory meanwhile, and no other argument of the launch overlaps it.
    pub unsafe fn from_raw_mut(context: &'a Arc<CudaContext>, address: u64, dtype: DType, layout: MemoryLayout) -> Self {
        Tensor::new(DeviceBuffer(Handle::Raw(context, address)), dtype, elements(dtype, layout), true).laid_out(layout)
    }
}

/// The elements of memory with this layout. Bit masks count bytes.
fn elements(dtype: DType, layout: MemoryLayout) -> usize {
    if dtype.is_packed() { dtype.elements(layout.span()) } else { layout.span() }
}

impl DeviceArgs<'_> {
    /// Takes leading dimensions and batch strides from the layouts that were stated. One that does not fit stays as it is,
    /// and the launch reports it.
    pub(crate) fn take_layouts(&mut self, slots: &[Slot]) {
        for (name, given) in &mut self.given {
            let Given::Tensor { tensor, .. } = given else { continue };
            let slot = slots.iter().find(|slot| *slot.name == **name);
            if let Some(Ok((ld, batch_stride))) = slot.map(|slot| tensor.strides(&slot.kind)) {
                (tensor.leading_dimension, tensor.batch_stride) = (ld, batch_stride);
            }
        }
    }

    /// Whether an argument states its layout.
    pub(crate) fn state_layouts(&self) -> bool {
        self.given.iter().any(|(_, given)| matches!(given, Given::Tensor { tensor, .. } if tensor.layout.is_some()))
    }

    /// The problem with these arguments' strides and the alignment of their addresses.
    pub(crate) fn problem(&mut self, shape: Shape, stream: &CudaStream) -> Problem {
        let mut problem = Problem::from(shape);
        for (name, given) in &mut self.given {
            let Given::Tensor { tensor, .. } = given else { continue };
            let address = tensor.buffer.address(stream);
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
