//! Storage: candle's memory as arguments of a launch, and outputs in candle's memory.

use crate::fused::Product;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};
use postlude::args::{HostBuffer, MemoryLayout};
use postlude::{DType, Gemm, HostArgs, IntoTensor, Shape, Tensor as Memory};

/// An argument that a launch reads.
pub(crate) enum Input<'a> {
    Tensor(&'a Tensor),
    Scalar(f64),
}

/// An output to make: its name, its format, and how it lies.
pub(crate) struct Wanted<'a> {
    pub name: &'a str,
    pub dtype: DType,
    pub layout: MemoryLayout,
}

/// An output in candle's memory.
pub(crate) struct Output {
    pub storage: Storage,
    pub shape: candle_core::Shape,
}

impl Output {
    /// A tensor without a history.
    pub fn into_tensor(self) -> Tensor {
        Tensor::from_storage(self.storage, self.shape, BackpropOp::none(), false)
    }
}

/// A number as the scalar of that name takes it.
fn constant(gemm: &Gemm, name: &str, number: f64) -> postlude::ir::Constant {
    let wanted = gemm.epilogue().arguments().iter().find(|argument| *argument.name == *name);
    match wanted.map(|argument| argument.role) {
        Some(postlude::check::Role::Scalar(value)) => postlude::ir::Constant::of(value, number),
        _ => number.into(),
    }
}

/// Extents and strides of a tensor. With too many axes it is an error, whatever the strides.
pub(crate) fn lies(layout: &Layout) -> Result<MemoryLayout> {
    let mut strides = [0isize; MemoryLayout::AXES];
    for (ours, theirs) in strides.iter_mut().zip(layout.stride()) {
        *ours = theirs.cast_signed();
    }
    let rank = layout.dims().len();
    let lies = match strides.get(..rank) {
        Some(strides) => MemoryLayout::new(layout.dims(), strides),
        None => MemoryLayout::new(layout.dims(), &vec![0; rank]),
    };
    lies.map_err(Error::wrap)
}

fn no_format(storage: &impl std::fmt::Debug) -> Error {
    let text = format!("{storage:?}");
    let kind = text.split(['(', ' ']).next().unwrap_or_default();
    Error::msg(format!("candle's {kind} tensors have no format in Postlude: convert the tensor"))
}

fn host<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<Memory<HostBuffer<'a>>> {
    macro_rules! borrowed {
        ($($variant:ident),*) => {
            match storage {
                $(CpuStorage::$variant(values) => (&values[layout.start_offset()..]).into_tensor(),)*
                other => return Err(no_format(other)),
            }
        };
    }
    Ok(borrowed!(U8, I32, BF16, F16, F32, F64, F8E4M3).laid_out(lies(layout)?))
}

/// New memory of candle for an output. Bit masks are bytes.
fn new_host(wanted: &Wanted<'_>) -> Result<CpuStorage> {
    let elements = wanted.layout.span();
    Ok(match wanted.dtype {
        DType::F32 => CpuStorage::F32(vec![0.0; elements]),
        DType::F64 => CpuStorage::F64(vec![0.0; elements]),
        DType::F16 => CpuStorage::F16(vec![postlude::half::f16::ZERO; elements]),
        DType::BF16 => CpuStorage::BF16(vec![postlude::half::bf16::ZERO; elements]),
        DType::E4M3 => CpuStorage::F8E4M3(vec![postlude::float8::F8E4M3::ZERO; elements]),
        DType::I32 => CpuStorage::I32(vec![0; elements]),
        DType::U8 | DType::Bool | DType::Bits8 | DType::Bits128 => CpuStorage::U8(vec![0; elements]),
        DType::E5M2 | DType::I8 | DType::I4 | DType::U4 => return Err(unstorable(wanted.dtype)),
    })
}

fn unstorable(dtype: DType) -> Error {
    Error::msg(format!("candle has no tensors of {dtype}: store another format"))
}

fn written<'a>(storage: &'a mut CpuStorage, wanted: &Wanted<'_>) -> Result<Memory<HostBuffer<'a>>> {
    macro_rules! borrowed {
        ($($variant:ident),*) => {
            match storage {
                $(CpuStorage::$variant(values) => values.as_mut_slice().into_tensor(),)*
                other => return Err(no_format(other)),
            }
        };
    }
    Ok(borrowed!(U8, I32, BF16, F16, F32, F64, F8E4M3).laid_out(wanted.layout))
}

/// Computes on the device of the inputs, and returns the outputs in candle's memory.
pub(crate) fn run(product: &Product, shape: Shape, inputs: &[(&str, Input<'_>)], wanted: &[Wanted<'_>]) -> Result<Vec<Output>> {
    let storages = storages(product, shape, inputs, wanted)?;
    let outputs = storages.into_iter().zip(wanted);
    Ok(outputs.map(|(storage, wanted)| Output { storage, shape: wanted.layout.extents().into() }).collect())
}

fn storages(product: &Product, shape: Shape, inputs: &[(&str, Input<'_>)], wanted: &[Wanted<'_>]) -> Result<Vec<Storage>> {
    let gemm = &product.gemm;
    let guards: Vec<_> = inputs
        .iter()
        .map(|(_, input)| match input {
            Input::Tensor(tensor) => Some(tensor.storage_and_layout()),
            Input::Scalar(_) => None,
        })
        .collect();
    #[cfg(feature = "cuda")]
    if let Some(device) = guards.iter().flatten().find_map(|(storage, _)| cuda::device(storage)) {
        return cuda::run(product, device, shape, inputs, &guards, wanted);
    }
    let mut storages = wanted.iter().map(new_host).collect::<Result<Vec<_>>>()?;
    let mut args = HostArgs::new();
    for ((name, input), guard) in inputs.iter().zip(&guards) {
        args = match (input, guard) {
            (Input::Scalar(number), _) => args.scalar(name, constant(gemm, name, *number)),
            (_, Some((storage, layout))) => match &**storage {
                Storage::Cpu(storage) => args.input(name, host(storage, layout)?),
                _ => return Err(Error::msg(format!("argument `{name}`: is on another device than the other tensors"))),
            },
            (Input::Tensor(_), None) => args,
        };
    }
    for (wanted, storage) in wanted.iter().zip(&mut storages) {
        args = args.output(wanted.name, written(storage, wanted)?);
    }
    gemm.reference(shape, args).map_err(Error::wrap)?;
    Ok(storages.into_iter().map(Storage::Cpu).collect())
}

#[cfg(feature = "cuda")]
pub(crate) mod cuda {
    //! Tensors on a GPU.

    use super::*;
    use candle_core::StorageRef;
    use candle_core::cuda_backend::{CudaDevice, CudaStorage, CudaStorageSlice};
    use postlude::cudarc::driver::{CudaContext, CudaView};
    use postlude::device::DeviceBuffer;
    use postlude::gemm::Planner;
    use postlude::{Device, DeviceArgs};
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};

    /// The planners of one product, one for each device.
    pub(crate) type Planners = Mutex<Vec<(Device, Arc<Planner>)>>;

    pub(super) fn device(storage: &Storage) -> Option<&CudaDevice> {
        if let Storage::Cuda(storage) = storage { Some(&storage.device) } else { None }
    }

    /// Postlude's device of a context.
    fn opened(context: &Arc<CudaContext>) -> Result<Device> {
        static OPENED: OnceLock<Mutex<Vec<Device>>> = OnceLock::new();
        let mut opened = OPENED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.iter().find(|device| device.context() == context) {
            return Ok(device.clone());
        }
        let device = Device::of(context).map_err(Error::wrap)?;
        opened.push(device.clone());
        Ok(device)
    }

    /// A part of candle's memory, of the element type that it has.
    macro_rules! views {
        ($($variant:ident $element:ty),*) => {
            enum View<'a> { $($variant(CudaView<'a, $element>)),* }

            impl<'a> View<'a> {
                fn of(storage: &'a CudaStorage, layout: &Layout) -> Result<View<'a>> {
                    Ok(match &storage.slice {
                        $(CudaStorageSlice::$variant(slice) => View::$variant(slice.slice(layout.start_offset()..)),)*
                        _ => return Err(Error::msg("this format of candle has none in Postlude: convert the tensor")),
                    })
                }

                fn tensor(&'a self) -> Memory<DeviceBuffer<'a>> {
                    match self { $(View::$variant(view) => view.into_tensor(),)* }
                }
            }

            fn written<'a>(slice: &'a mut CudaStorageSlice, wanted: &Wanted<'_>) -> Result<Memory<DeviceBuffer<'a>>> {
                Ok(match slice {
                    $(CudaStorageSlice::$variant(slice) => slice.into_tensor().laid_out(wanted.layout),)*
                    _ => return Err(unstorable(wanted.dtype)),
                })
            }
        };
    }

    views! {
        U8 u8, I32 i32, BF16 postlude::half::bf16, F16 postlude::half::f16, F32 f32, F64 f64, F8E4M3 postlude::float8::F8E4M3
    }

    fn new_slice(device: &CudaDevice, wanted: &Wanted<'_>) -> Result<CudaStorageSlice> {
        // The driver cannot allocate zero bytes.
        let elements = wanted.layout.span().max(1);
        macro_rules! allocated {
            ($variant:ident) => {{
                #[allow(unsafe_code, reason = "candle's allocator leaves the elements as they are")]
                // SAFETY: the launch writes every element before anything reads one, in the order of this stream.
                let slice = unsafe { device.alloc(elements)? };
                CudaStorageSlice::$variant(slice)
            }};
        }
        Ok(match wanted.dtype {
            DType::F32 => allocated!(F32),
            DType::F64 => allocated!(F64),
            DType::F16 => allocated!(F16),
            DType::BF16 => allocated!(BF16),
            DType::E4M3 => allocated!(F8E4M3),
            DType::I32 => allocated!(I32),
            DType::U8 | DType::Bool | DType::Bits8 | DType::Bits128 => allocated!(U8),
            DType::E5M2 | DType::I8 | DType::I4 | DType::U4 => return Err(unstorable(wanted.dtype)),
        })
    }

    /// The planner of a product in a context.
    fn planner(product: &Product, context: &Arc<CudaContext>) -> Result<Arc<Planner>> {
        let mut planners = product.planners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, planner)) = planners.iter().find(|(device, _)| device.context() == context) {
            return Ok(planner.clone());
        }
        let device = opened(context)?;
        let planner = Arc::new(Planner::new(&product.gemm, &device));
        planners.push((device, planner.clone()));
        Ok(planner)
    }

    pub(super) fn run(
        product: &Product,
        device: &CudaDevice,
        shape: Shape,
        inputs: &[(&str, Input<'_>)],
        guards: &[Option<(StorageRef<'_>, &Layout)>],
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Storage>> {
        let stream = device.cuda_stream();
        let planner = planner(product, stream.context())?;
        let mut slices = wanted.iter().map(|wanted| new_slice(device, wanted)).collect::<Result<Vec<_>>>()?;
        let mut views = Vec::with_capacity(inputs.len());
        for ((name, _), guard) in inputs.iter().zip(guards) {
            views.push(match guard {
                None => None,
                Some((storage, layout)) => match &**storage {
                    Storage::Cuda(storage) => Some((View::of(storage, layout)?, lies(layout)?)),
                    _ => return Err(Error::msg(format!("argument `{name}`: is on another device than the other tensors"))),
                },
            });
        }
        let mut args = DeviceArgs::new();
        for ((name, input), view) in inputs.iter().zip(&views) {
            args = match (input, view) {
                (Input::Scalar(number), _) => args.scalar(name, constant(&product.gemm, name, *number)),
                (_, Some((view, layout))) => args.input(name, view.tensor().laid_out(*layout)),
                (Input::Tensor(_), None) => args,
            };
        }
        for (wanted, slice) in wanted.iter().zip(&mut slices) {
            args = args.output(wanted.name, written(slice, wanted)?);
        }
        planner.execute(shape, &stream, &mut args).map_err(Error::wrap)?;
        drop(args);
        drop(views);
        let stored = slices.into_iter().map(|slice| Storage::Cuda(CudaStorage { slice, device: device.clone() }));
        Ok(stored.collect())
    }
}
