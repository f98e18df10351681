//! Host memory: copies a launch's arguments to the device, and its results back.

use super::{DeviceArgs, DeviceError};
use crate::args::{Args, Given, HostArgs, HostBuffer, IntoTensor, Tensor};
use cudarc::driver::{CudaSlice, CudaStream};
use std::sync::Arc;

/// Arguments in host memory with a copy of each on the device.
pub(crate) struct Copies<'h> {
    host: HostArgs<'h>,
    /// One for each argument; `None` for a scalar.
    device: Vec<Option<CudaSlice<u8>>>,
}

impl<'h> Copies<'h> {
    /// Copies every buffer to the stream's device.
    pub fn upload(stream: &Arc<CudaStream>, host: HostArgs<'h>) -> Result<Copies<'h>, DeviceError> {
        let copy = |(_, given): &(String, Given<HostBuffer<'h>>)| {
            let Given::Tensor { tensor, .. } = given else { return Ok(None) };
            let bytes = tensor.buffer.bytes();
            // The driver cannot allocate zero bytes.
            let mut slice = stream.alloc_zeros::<u8>(bytes.len().max(1)).map_err(DeviceError::driver("allocate memory"))?;
            if !bytes.is_empty() {
                stream.memcpy_htod(bytes, &mut slice).map_err(DeviceError::driver("copy an argument to the device"))?;
            }
            Ok(Some(slice))
        };
        let device = host.given.iter().map(copy).collect::<Result<_, DeviceError>>()?;
        Ok(Copies { host, device })
    }

    /// The copies as arguments of a launch.
    pub fn args(&mut self) -> DeviceArgs<'_> {
        let given = self.host.given.iter().zip(&mut self.device).filter_map(|((name, given), copy)| {
            let given = match (given, copy) {
                (Given::Scalar(value), _) => Given::Scalar(*value),
                (Given::Tensor { tensor, writable }, Some(copy)) => {
                    let buffer = if tensor.mutable { copy.into_tensor().buffer } else { (&*copy).into_tensor().buffer };
                    Given::Tensor { tensor: tensor.over(buffer), writable: *writable }
                }
                (Given::Tensor { .. }, None) => return None,
            };
            Some((name.clone(), given))
        });
        Args { given: given.collect(), origin: self.host.origin }
    }

    /// The original arguments in host memory.
    pub fn into_host(self) -> HostArgs<'h> {
        self.host
    }

    /// Copies the outputs back, and waits for the copies.
    pub fn download(self, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        for ((_, given), copy) in self.host.given.into_iter().zip(&self.device) {
            if let (Given::Tensor { tensor: Tensor { buffer: HostBuffer::Write(bytes), .. }, writable: true }, Some(copy)) =
                (given, copy)
                && !bytes.is_empty()
            {
                stream.memcpy_dtoh(copy, bytes).map_err(DeviceError::driver("copy a result from the device"))?;
            }
        }
        stream.synchronize().map_err(DeviceError::driver("run the kernel"))
    }
}
