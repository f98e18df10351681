//! Scratch memory in place of a launch's outputs, so that a kernel can be tried without side effects.

use super::buffer::{Window, Write};
use super::written::Written;
use super::{DeviceArgs, DeviceError, Launch};
use crate::args::{Args, ArgumentErrors, Given, Tensor};
use crate::dtype::DType;
use cudarc::driver::{CudaStream, result};
use std::sync::Arc;

/// The arguments, with a copy of each output in the range that a launch writes.
pub(crate) struct Scratch<'s, 'a> {
    args: &'s mut DeviceArgs<'a>,
    /// One for each argument; `None` for inputs.
    copies: Vec<Option<Copy>>,
}

struct Copy {
    window: Window,
    lies: Written,
}

/// Addresses in scratch memory agree with the user's up to this power of two, so they are as aligned.
const ALIGNMENT: u64 = 256;

/// Why there is no scratch memory.
pub(crate) enum ScratchError {
    Arguments(ArgumentErrors),
    Device(DeviceError),
}

impl<'s, 'a> Scratch<'s, 'a> {
    /// Allocates the copies, with undefined contents.
    pub fn new(launch: &Launch, stream: &Arc<CudaStream>, args: &'s mut DeviceArgs<'a>) -> Result<Scratch<'s, 'a>, ScratchError> {
        let written = launch.written(args).map_err(ScratchError::Arguments)?;
        let mut copies: Vec<Option<Copy>> = (0..args.given.len()).map(|_| None).collect();
        for (at, lies) in written {
            let Some((_, Given::Tensor { tensor, .. })) = args.given.get_mut(at) else { continue };
            let (address, _guard) = tensor.buffer.pointer(stream);
            let window = Window::new(stream, (address % ALIGNMENT) as usize, lies.dtype.bytes(lies.elements));
            let window = window.map_err(DeviceError::driver("allocate memory")).map_err(ScratchError::Device)?;
            copies[at] = Some(Copy { window, lies });
        }
        Ok(Scratch { args, copies })
    }

    /// Copies the user's memory, including the gaps between runs.
    pub fn restore(&mut self, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        stream.context().bind_to_thread().map_err(DeviceError::driver("enter the stream's context"))?;
        for ((_, given), copy) in self.args.given.iter_mut().zip(&mut self.copies) {
            let (Given::Tensor { tensor, .. }, Some(Copy { window, .. })) = (given, copy) else { continue };
            if window.bytes == 0 {
                continue;
            }
            let bytes = window.bytes;
            let (from, _read) = tensor.buffer.pointer(stream);
            let (to, _written) = window.pointer(stream);
            // SAFETY: `to` is the beginning of the window's `bytes` bytes; `from` that of a buffer which `Launch::written` has
            // found to be as long. Both are ordered into the stream by their guards, which end after the copy is in it.
            unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
                .map_err(DeviceError::driver("copy an argument"))?;
        }
        Ok(())
    }

    /// The arguments with copies in place of the outputs.
    pub fn args(&mut self) -> DeviceArgs<'_> {
        let origin = self.args.origin;
        let given = self.args.given.iter_mut().zip(&mut self.copies).map(|((name, given), copy)| {
            let given = match (given, copy) {
                (Given::Scalar(value), _) => Given::Scalar(*value),
                (Given::Tensor { tensor, writable }, copy) => {
                    let tensor = match copy {
                        Some(Copy { window, lies }) => {
                            Tensor { dtype: lies.dtype, len: lies.elements, ..tensor.over(window.buffer()) }
                        }
                        None => tensor.over(()).over(tensor.buffer.reborrow()),
                    };
                    Given::Tensor { tensor, writable: *writable }
                }
            };
            (name.clone(), given)
        });
        Args { given: given.collect(), origin }
    }

    /// The present contents of the copies, each with its format, without the gaps between runs. Waits for them.
    pub fn download(&self, stream: &Arc<CudaStream>) -> Result<Vec<(DType, Vec<u8>)>, DeviceError> {
        let copies = self.copies.iter().flatten().map(|copy| {
            let bytes = copy.window.download(stream).map_err(DeviceError::driver("copy a result from the device"))?;
            Ok((copy.lies.dtype, copy.lies.without_gaps(bytes)))
        });
        copies.collect()
    }
}
