//! Scratch memory in place of what a launch writes, so that a kernel can be tried without a trace.

use super::buffer::{Window, Write};
use super::{DeviceArgs, DeviceError, Launch};
use crate::args::{Args, ArgumentErrors, Given, Tensor};
use crate::dtype::DType;
use cudarc::driver::{CudaStream, result};
use std::sync::Arc;

/// Arguments, and a copy of each that is written, as far as a launch reaches.
pub(crate) struct Scratch<'s, 'a> {
    args: &'s mut DeviceArgs<'a>,
    /// One for each argument; what is only read has none.
    copies: Vec<Option<Copy>>,
}

struct Copy {
    window: Window,
    lies: Written,
}

/// An argument that is written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub dtype: DType,
    /// From the first to the last, gaps between runs included.
    pub elements: usize,
    pub runs: StridedRuns,
}

/// `outer` runs of `inner` elements for each of `entries` batch entries.
#[derive(Clone, Copy)]
pub(super) struct StridedRuns {
    pub inner: usize,
    pub outer: usize,
    pub ld: usize,
    pub entries: usize,
    pub batch_stride: usize,
}

impl Written {
    /// The elements without what lies between runs, which a launch does not write: that is the user's, and may be anything.
    fn without_gaps(&self, bytes: Vec<u8>) -> Vec<u8> {
        let StridedRuns { inner, outer, ld, entries, batch_stride } = self.runs;
        let run = self.dtype.bytes(inner);
        let all = run * outer * entries;
        if all == bytes.len() {
            return bytes;
        }
        let mut packed = Vec::with_capacity(all);
        for first in (0..entries).flat_map(|entry| (0..outer).map(move |line| entry * batch_stride + line * ld)) {
            let at = self.dtype.bytes(first);
            packed.extend_from_slice(&bytes[at..at + run]);
        }
        packed
    }
}

/// Addresses in scratch memory agree with the user's up to this, so that they are as aligned.
const ALIGNMENT: u64 = 256;

/// Why there is no scratch memory.
pub(crate) enum ScratchError {
    Arguments(ArgumentErrors),
    Device(DeviceError),
}

impl<'s, 'a> Scratch<'s, 'a> {
    /// Makes room. The contents are anything.
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

    /// Copies what the user's memory holds, gaps between runs included.
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

    /// The arguments with the copies in place of what is written.
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

    /// What the copies hold now, each with its format, without what lies between runs. Waits for it.
    pub fn download(&self, stream: &Arc<CudaStream>) -> Result<Vec<(DType, Vec<u8>)>, DeviceError> {
        let copies = self.copies.iter().flatten().map(|copy| {
            let bytes = copy.window.download(stream).map_err(DeviceError::driver("copy a result from the device"))?;
            Ok((copy.lies.dtype, copy.lies.without_gaps(bytes)))
        });
        copies.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_runs_is_left_out() {
        let lies = |dtype, elements, runs| Written { dtype, elements, runs };
        let bytes: Vec<u8> = (0..20).collect();
        // Two entries of two rows of three, at a leading dimension of 4 and a batch stride of 10; from first to last 17.
        let runs = StridedRuns { inner: 3, outer: 2, ld: 4, entries: 2, batch_stride: 10 };
        let packed = lies(DType::Bool, 17, runs).without_gaps(bytes[..17].to_vec());
        assert_eq!(packed, [0, 1, 2, 4, 5, 6, 10, 11, 12, 14, 15, 16]);
        // Rows of ten bits begin at every third byte.
        let runs = StridedRuns { inner: 10, outer: 3, ld: 24, entries: 1, batch_stride: 0 };
        assert_eq!(lies(DType::Bits8, 58, runs).without_gaps(bytes[..8].to_vec()), [0, 1, 3, 4, 6, 7]);
        let runs = StridedRuns { inner: 4, outer: 5, ld: 4, entries: 1, batch_stride: 20 };
        assert_eq!(lies(DType::Bool, 20, runs).without_gaps(bytes.clone()), bytes);
        assert!(lies(DType::F32, 0, StridedRuns { inner: 0, ..runs }).without_gaps(Vec::new()).is_empty());
    }
}
