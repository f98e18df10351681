//! Launching: arguments into the parameter block, and the block into the stream.

use super::restride::Restrider;
use super::tensor_map::{Bytes, Tensor};
use super::{DeviceArgs, DeviceError, probe};
use crate::args::{ArgumentError, ArgumentErrors, Bound, Fault, Given, Slot, SlotKind, bind};
use crate::ir::graph::{Constant, Coordinate};
use crate::plan::{FieldValue, KernelPlan, MapSource, PARAMETER_LIMIT, TensorMap, alignment};
use crate::problem::Shape;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, SyncOnDrop};
use std::sync::Arc;

/// Shared memory that a kernel may have without asking.
const DEFAULT_SHARED_MEMORY: usize = 48 * 1024;

/// A kernel's parameters as the driver reads them: the first bytes, as many as the kernel declares.
#[repr(C, align(64))]
struct ParameterBlock([u8; PARAMETER_LIMIT]);

// SAFETY: plain bytes without padding or pointers of this address space; the driver copies as many as the kernel's one
// parameter has, which `Params::size` bounds by PARAMETER_LIMIT.
unsafe impl DeviceRepr for ParameterBlock {}

pub(super) fn allow_shared_memory(function: &CudaFunction, bytes: usize) -> Result<(), DeviceError> {
    if bytes <= DEFAULT_SHARED_MEMORY {
        return Ok(());
    }
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    function.set_attribute(attribute, bytes).map_err(DeviceError::driver("reserve shared memory"))
}

/// What stays the same from launch to launch of a plan.
pub(crate) struct Launch {
    plan: KernelPlan,
    function: CudaFunction,
    /// Copies what the kernel cannot read as it lies.
    restrider: Option<Restrider>,
    /// What a launch needs, as the user sees it; made for `shape`.
    slots: Vec<Slot>,
    pub shape: Shape,
    pub ordinal: usize,
}

/// Why a launch did not happen.
pub(crate) enum LaunchError {
    Arguments(ArgumentErrors),
    Device(DeviceError),
}

/// A tensor of a launch: where it is and how it lies.
#[derive(Clone, Copy, Default)]
struct Place {
    address: u64,
    ld: usize,
    strided: bool,
    batch_stride: usize,
    size: usize,
}

impl Launch {
    /// # Errors
    /// If the driver lacks what the kernel needs.
    pub fn new(
        plan: KernelPlan,
        function: CudaFunction,
        restrider: Option<Restrider>,
        slots: Vec<Slot>,
        shape: Shape,
        ordinal: usize,
    ) -> Result<Launch, DeviceError> {
        if !plan.maps.is_empty() {
            probe::tensor_maps()?;
        }
        Ok(Launch { plan, function, restrider, slots, shape, ordinal })
    }

    pub fn run(&self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), LaunchError> {
        let got = stream.context().ordinal();
        if got != self.ordinal {
            return Err(LaunchError::Device(DeviceError::Stream { needs: self.ordinal, got }));
        }
        let bound = bind(&self.slots, self.shape, args).map_err(LaunchError::Arguments)?;
        self.check_devices(args)?;
        if self.shape.is_empty() {
            return Ok(());
        }
        let origin = args.origin;
        // The guards order the launch after what was written and before what comes next, on every stream.
        let mut guards: Vec<SyncOnDrop<'_>> = Vec::with_capacity(bound.len());
        let mut addresses = vec![0u64; args.given.len()];
        for (address, (_, given)) in addresses.iter_mut().zip(&mut args.given) {
            if let Given::Tensor { tensor, .. } = given {
                let (pointer, guard) = tensor.buffer.pointer(stream);
                *address = pointer;
                guards.push(guard);
            }
        }
        let mut places: Vec<Place> = bound.iter().map(|b| place(b, &addresses)).collect();
        self.check_alignment(&places).map_err(LaunchError::Arguments)?;
        let copied = match &self.restrider {
            Some(restrider) => {
                let operands = [0, 1].map(|i| self.tensor(self.operand(i), &places));
                Some(restrider.copy(stream, operands).map_err(LaunchError::Device)?)
            }
            None => None,
        };
        for (i, copy) in copied.iter().flat_map(|c| c.operands.iter().enumerate()) {
            let Some(Tensor { address, ld, batch_stride, size, .. }) = *copy else { continue };
            places[self.operand(i)] = Place { address, ld, strided: true, batch_stride, size };
        }
        let maps = self.plan.maps.iter().map(|map| self.map(map, &places)).collect::<Result<Vec<_>, _>>();
        let maps = maps.map_err(|error| LaunchError::Device(DeviceError::Driver { what: "describe a tensor", error }))?;
        let block = self.block(&bound, &places, &maps, origin);
        let grid = self.plan.grid(self.shape).ok_or_else(|| {
            let fault = Fault::TooLarge { limit: "2147483647 tiles for each batch entry" };
            LaunchError::Arguments(ArgumentErrors(vec![ArgumentError { name: "a".into(), fault }]))
        })?;
        let config = LaunchConfig {
            grid_dim: grid.into(),
            block_dim: (self.plan.tile.threads as u32, 1, 1),
            shared_mem_bytes: self.plan.shared_memory() as u32,
        };
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&block);
        // SAFETY: the kernel was rendered from `self.plan`, whose parameter layout `block` follows. Every address in it is
        // device memory of this context, borrowed by `args` for the call and ordered by `guards`; `bind` has checked that
        // each is long enough for the extents and strides in the block, and `check_alignment` that it is aligned as the
        // kernel assumes. The kernel touches nothing else.
        unsafe { launch.launch(config) }
            .map(|_| ())
            .map_err(|error| LaunchError::Device(DeviceError::Driver { what: "launch the kernel", error }))
    }

    fn check_devices(&self, args: &DeviceArgs<'_>) -> Result<(), LaunchError> {
        let elsewhere = args.given.iter().filter_map(|(name, given)| {
            let Given::Tensor { tensor, .. } = given else { return None };
            let got = tensor.buffer.ordinal();
            let fault = Fault::WrongDevice { needs: self.ordinal, got };
            (got != self.ordinal).then(|| ArgumentError { name: name.clone(), fault })
        });
        let errors: Vec<_> = elsewhere.collect();
        if errors.is_empty() { Ok(()) } else { Err(LaunchError::Arguments(ArgumentErrors(errors))) }
    }

    /// The operands of the product must be as aligned as the kernel was compiled for; everything else is looked at by
    /// the kernel.
    fn check_alignment(&self, places: &[Place]) -> Result<(), ArgumentErrors> {
        let mut errors = Vec::new();
        // Without terms there is nothing to read.
        let read = if self.shape.k == 0 { 0 } else { self.operands() };
        for (i, slot) in self.slots.iter().enumerate().take(read) {
            let needs = self.plan.alignment[self.operand(i)];
            let got = self.aligned(places[i]);
            if got < needs {
                errors.push(ArgumentError { name: slot.name.to_string(), fault: Fault::Misaligned { needs, got } });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(ArgumentErrors(errors)) }
    }

    fn aligned(&self, place: Place) -> usize {
        let batch_stride = if self.shape.batch > 1 { place.batch_stride } else { 0 };
        let ld = if place.strided { place.ld } else { 0 };
        alignment(place.address, ld, batch_stride, place.size)
    }

    /// How many slots are operands of the operation.
    fn operands(&self) -> usize {
        self.slots.len() - self.plan.arguments.len()
    }

    /// Which slot the kernel's operand is, and the reverse: a transposed product has them exchanged.
    fn operand(&self, index: usize) -> usize {
        if self.plan.transposed && self.operands() == 2 { 1 - index } else { index }
    }

    fn map(&self, map: &TensorMap, places: &[Place]) -> Result<Option<Bytes>, DriverError> {
        let slot = match map.source {
            MapSource::Operand(i) => self.operand(i),
            MapSource::Argument(i) => self.operands() + i,
        };
        self.tensor(slot, places).encode(map)
    }

    /// A slot's memory with its extents; those of a scalar are 0.
    fn tensor(&self, slot: usize, places: &[Place]) -> Tensor {
        let (inner, outer) = match &self.slots[slot].kind {
            SlotKind::Memory { inner, outer, .. } => (*inner, *outer),
            SlotKind::Scalar(_) => (0, 0),
        };
        let Place { address, ld, batch_stride, size, .. } = places[slot];
        Tensor { address, inner, outer, batch: self.shape.batch, ld, batch_stride, size }
    }

    fn block(&self, bound: &[Bound], places: &[Place], maps: &[Option<Bytes>], origin: [i32; 3]) -> ParameterBlock {
        let shape = if self.plan.transposed { self.shape.transposed() } else { self.shape };
        let [row, column, batch] = origin;
        let (row, column) = if self.plan.transposed { (column, row) } else { (row, column) };
        let argument = |index: usize| self.operands() + index;
        let mut block = ParameterBlock([0; PARAMETER_LIMIT]);
        for field in &self.plan.params.fields {
            let int = |x: usize| (x as u32).to_le_bytes().to_vec();
            let long = |x: usize| (x as u64).to_le_bytes().to_vec();
            let bytes = match field.value {
                FieldValue::M => int(shape.m),
                FieldValue::N => int(shape.n),
                FieldValue::K => int(shape.k),
                FieldValue::Batch => int(shape.batch),
                FieldValue::Raster => self.plan.raster.to_le_bytes().to_vec(),
                FieldValue::Origin(Coordinate::Row) => row.to_le_bytes().to_vec(),
                FieldValue::Origin(Coordinate::Column) => column.to_le_bytes().to_vec(),
                FieldValue::Origin(Coordinate::Batch) => batch.to_le_bytes().to_vec(),
                FieldValue::OperandPointer(i) => places[self.operand(i)].address.to_le_bytes().to_vec(),
                FieldValue::OperandLd(i) => long(places[self.operand(i)].ld),
                FieldValue::OperandBatchStride(i) => long(places[self.operand(i)].batch_stride),
                FieldValue::Pointer(i) => places[argument(i)].address.to_le_bytes().to_vec(),
                FieldValue::Ld(i) => long(places[argument(i)].ld),
                FieldValue::BatchStride(i) => long(places[argument(i)].batch_stride),
                FieldValue::Wide(i) => {
                    let place = places[argument(i)];
                    int(usize::from(self.aligned(place) >= (self.plan.strip * place.size).min(16)))
                }
                FieldValue::Scalar(i) => match bound[argument(i)] {
                    Bound::Scalar(Constant::F32(bits)) => bits.to_le_bytes().to_vec(),
                    Bound::Scalar(Constant::I32(x)) => x.to_le_bytes().to_vec(),
                    Bound::Scalar(Constant::Bool(b)) => u32::from(b).to_le_bytes().to_vec(),
                    Bound::Tensor(_) => unreachable!("`bind` gave memory for a scalar"),
                },
                FieldValue::Mapped(i) => int(usize::from(maps[i].is_some())),
                FieldValue::Map(i) => maps[i].unwrap_or([0; 128]).to_vec(),
            };
            block.0[field.offset..field.offset + bytes.len()].copy_from_slice(&bytes);
        }
        block
    }
}

fn place(bound: &Bound, addresses: &[u64]) -> Place {
    match bound {
        Bound::Scalar(_) => Place::default(),
        Bound::Tensor(t) => Place {
            address: addresses[t.given],
            ld: t.leading_dimension,
            strided: t.strided,
            batch_stride: t.batch_stride,
            size: t.dtype.size(),
        },
    }
}
