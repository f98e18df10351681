//! Launching: arguments into the parameter block, and the block into the stream.
//!
//! A plan decides everything that does not change from launch to launch: the order of the slots, the offset of each
//! field, the fields that depend on the extents alone, the grid. A launch looks its arguments up and fills in
//! addresses, strides and scalars. It allocates nothing unless there are more arguments than [`INLINE`].

use super::block::{BlockLayout, MapField, ParameterBlock};
use super::bound::BoundOperand;
use super::passes::Passer;
use super::reduce::Reducer;
use super::repack::Repacker;
use super::split::Splitter;
use super::tensor_map::{MappedTensor, UNIT};
use super::written::{StridedRuns, Written};
use super::{DeviceArgs, DeviceError, probe};
use crate::args::{ArgumentError, ArgumentErrors, ArgumentFault, Bound, Given, Slot, SlotKind, bind, bind_into};
use crate::plan::{KernelPlan, MapSource, alignment};
use crate::problem::{Patches, ScaleField, Shape};
use cudarc::driver::sys::{CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, cuLaunchKernelEx};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, SyncOnDrop};
use std::ptr;
use std::sync::Arc;

/// The number of arguments up to which a launch does not allocate.
const INLINE: usize = 16;

/// The constant part of a plan's launches.
pub(crate) struct Launch {
    function: CudaFunction,
    before: Before,
    reducer: Reducer,
    /// The slots of the kernel's `a` and `b`.
    operand_slots: [usize; 2],
    /// The slots of scales and zero points of the operand that a copy widens.
    scale_slots: [Option<usize>; 2],
    /// The patches that maps describe, if any.
    patches: Option<Patches>,
    /// The arguments of the kernel; made for `shape`.
    slots: Vec<Slot>,
    pub shape: Shape,
    /// The context in which its addresses are valid.
    pub context: Arc<CudaContext>,
    layout: BlockLayout,
    /// The needed alignment of each slot's memory, in bytes.
    alignment: Vec<usize>,
    grid: Option<[u32; 3]>,
    threads: u32,
    shared_memory: u32,
    attributes: Vec<Attribute>,
}

/// The kernels that run before the plan's.
#[derive(Default)]
pub(crate) struct Before {
    /// Copies the operands that the kernel cannot read directly.
    pub repacker: Option<Repacker>,
    /// Multiplies the parts of K: the product, a launch of its own, and the memory of its sums.
    pub product: Option<(Splitter, Box<Launch>)>,
    /// Reduces what the plan's kernel uses: launches of their own, in order, and the memory of their results.
    pub passes: Option<(Passer, Vec<Launch>)>,
}

/// The attributes of a launch beyond grid and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    /// The kernel may begin while the previous launch of the stream still runs, and waits for that itself.
    Programmatic,
}

/// The most attributes that a launch has.
const ATTRIBUTES: usize = 1;

/// Why a launch failed.
pub(crate) enum LaunchError {
    Arguments(ArgumentErrors),
    Device(DeviceError),
}

impl Launch {
    /// # Errors
    /// If the driver lacks what the kernel needs.
    pub fn new(
        plan: &KernelPlan,
        function: CudaFunction,
        before: Before,
        slots: Vec<Slot>,
        shape: Shape,
        context: &Arc<CudaContext>,
    ) -> Result<Launch, DeviceError> {
        if !plan.maps.is_empty() {
            probe::tensor_maps()?;
        }
        let operands = slots.len() - plan.arguments.len();
        // Maps slots to the kernel's operands and back: a transposed product exchanges them.
        let multiplies = plan.split.is_none() && operands >= 2;
        let operand = |index: usize| if plan.transposed && multiplies { 1 - index } else { index };
        let scale = |field: ScaleField| {
            let name = ScaleField { operand: operand(field.operand), ..field }.name();
            slots.iter().position(|slot| &*slot.name == name).unwrap_or(0)
        };
        let programmatic = plan.programmatic && probe::programmatic_launches();
        let workspace = plan.workspace(shape);
        Ok(Launch {
            layout: BlockLayout::new(plan, shape, &workspace, operand, scale, operands),
            reducer: Reducer::new(plan, operands, workspace.bytes),
            alignment: needed_alignment(plan, shape, operands, &slots, operand),
            grid: plan.grid(shape),
            threads: plan.tile.threads as u32,
            shared_memory: plan.shared_memory() as u32,
            attributes: programmatic.then_some(Attribute::Programmatic).into_iter().collect(),
            function,
            before,
            operand_slots: [operand(0), operand(1)],
            scale_slots: [false, true].map(|zero| {
                let operand = plan.repack?.widened?.operand;
                plan.repack?.widened?.blocks.filter(|blocks| blocks.zero_points || !zero)?;
                Some(scale(ScaleField { operand, zero }))
            }),
            patches: plan.operation.patches(),
            slots,
            shape,
            context: context.clone(),
        })
    }

    /// Whether it owns memory on the device, which only one plan may use.
    pub fn owns_memory(&self) -> bool {
        let Before { repacker, product, passes } = &self.before;
        repacker.is_some() || product.is_some() || passes.is_some() || self.reducer.owns_memory()
    }

    /// The arguments of a launch as the user sees them.
    fn given(&self) -> &[Slot] {
        self.before.passes.as_ref().map_or(&self.slots, |(passer, _)| &passer.slots)
    }

    pub fn run(&self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), LaunchError> {
        self.run_beside(stream, stream, args)
    }

    /// [`run`](Launch::run) in another stream than the one that is ordered after earlier uses of the arguments, and before later
    /// ones. The caller orders these two streams.
    pub fn run_beside(
        &self,
        ordered: &Arc<CudaStream>,
        stream: &Arc<CudaStream>,
        args: &mut DeviceArgs<'_>,
    ) -> Result<(), LaunchError> {
        let streams = [ordered, stream];
        let count = self.given().len().max(args.given.len());
        if count <= INLINE {
            let (mut bound, mut places) = ([Bound::NONE; INLINE], [BoundOperand::NONE; INLINE]);
            self.run_in(streams, args, &mut bound, &mut [0; INLINE], &mut places, &mut [const { None }; INLINE])
        } else {
            let (mut bound, mut places) = (vec![Bound::NONE; count], vec![BoundOperand::NONE; count]);
            let mut guards: Vec<_> = (0..count).map(|_| None).collect();
            self.run_in(streams, args, &mut bound, &mut vec![0; count], &mut places, &mut guards)
        }
    }

    /// The arguments that a launch writes, with their layouts.
    pub(super) fn written(&self, args: &DeviceArgs<'_>) -> Result<Vec<(usize, Written)>, ArgumentErrors> {
        let bound = bind(self.given(), self.shape, args)?;
        let written = self.given().iter().zip(bound).filter_map(|(slot, bound)| match (&slot.kind, bound) {
            (&SlotKind::Memory { written: true, inner, outer, batch, .. }, Bound::Tensor(t)) => {
                let (ld, batch_stride) = (t.leading_dimension, t.batch_stride);
                let runs = StridedRuns { inner, outer, ld, entries: batch.unwrap_or(1), batch_stride };
                Some((t.given, Written { dtype: t.dtype, elements: t.elements, runs }))
            }
            (SlotKind::Table { written: true, .. }, Bound::Tensor(t)) => {
                let runs = StridedRuns { inner: t.elements, outer: 1, ld: t.elements, entries: 1, batch_stride: 0 };
                Some((t.given, Written { dtype: t.dtype, elements: t.elements, runs }))
            }
            _ => None,
        });
        Ok(written.collect())
    }

    /// Launches, with room for all arguments.
    fn run_in<'g>(
        &self,
        [ordered, stream]: [&'g Arc<CudaStream>; 2],
        args: &'g mut DeviceArgs<'_>,
        bound: &mut [Bound],
        addresses: &mut [u64],
        places: &mut [BoundOperand],
        guards: &mut [Option<SyncOnDrop<'g>>],
    ) -> Result<(), LaunchError> {
        if *stream.context() != self.context {
            let (needs, got) = (self.context.ordinal(), stream.context().ordinal());
            return Err(LaunchError::Device(DeviceError::Stream { needs, got }));
        }
        let bound = &mut bound[..self.given().len()];
        bind_into(self.given(), self.shape, args, bound).map_err(LaunchError::Arguments)?;
        self.check_devices(args)?;
        if self.shape.is_empty() && self.reducer.is_empty() {
            return Ok(());
        }
        let origin = args.origin;
        // The guards order the launch after earlier writes and before later uses, on every stream.
        for ((address, guard), (_, given)) in addresses.iter_mut().zip(guards).zip(&mut args.given) {
            if let Given::Tensor { tensor, .. } = given {
                let (pointer, order) = tensor.buffer.pointer(ordered);
                *address = pointer;
                *guard = Some(order);
            }
        }
        for ((place, bound), slot) in places.iter_mut().zip(bound.iter()).zip(self.given()) {
            *place = place_of(slot, bound, addresses);
        }
        self.put(stream, &mut places[..self.given().len()], origin)
    }

    /// Puts the launch into the stream. `places` has the arguments; nothing needs it afterwards.
    pub(super) fn put(&self, stream: &Arc<CudaStream>, places: &mut [BoundOperand], origin: [i32; 3]) -> Result<(), LaunchError> {
        let Some((passer, _)) = &self.before.passes else { return self.put_own(stream, places, origin) };
        let count = passer.most();
        if count <= INLINE {
            self.put_all(stream, places, origin, &mut [BoundOperand::NONE; INLINE])
        } else {
            self.put_all(stream, places, origin, &mut vec![BoundOperand::NONE; count])
        }
    }

    /// Puts the kernels that reduce, and then the plan's own. Nothing is launched if an argument does not suit one of them.
    fn put_all(
        &self,
        stream: &Arc<CudaStream>,
        given: &[BoundOperand],
        origin: [i32; 3],
        room: &mut [BoundOperand],
    ) -> Result<(), LaunchError> {
        let Some((passer, launches)) = &self.before.passes else { return Ok(()) };
        if self.shape.is_empty() {
            return self.put_own(stream, passer.arguments(launches.len(), given, None, room), origin);
        }
        for (kernel, launch) in launches.iter().chain([self]).enumerate() {
            let arguments = passer.arguments(kernel, given, None, room);
            launch.check_alignment(arguments).map_err(LaunchError::Arguments)?;
        }
        let turn = passer.turn(stream).map_err(LaunchError::Device)?;
        for (kernel, launch) in launches.iter().enumerate() {
            launch.put(stream, passer.arguments(kernel, given, Some(&turn), room), origin)?;
        }
        self.put_own(stream, passer.arguments(launches.len(), given, Some(&turn), room), origin)
    }

    /// Puts the plan's own kernel into the stream, behind a product and copies.
    fn put_own(&self, stream: &Arc<CudaStream>, places: &mut [BoundOperand], origin: [i32; 3]) -> Result<(), LaunchError> {
        if self.shape.is_empty() {
            let entered = stream.context().bind_to_thread().map_err(DeviceError::driver("enter the stream's context"));
            let written = entered.and_then(|()| self.reducer.write_identities(stream, &self.slots, places));
            return written.map_err(LaunchError::Device);
        }
        self.check_alignment(places).map_err(LaunchError::Arguments)?;
        let Some(grid) = self.grid else {
            let fault = ArgumentFault::TooLarge { limit: "2147483647 tiles for each batch entry" };
            return Err(LaunchError::Arguments(ArgumentErrors(vec![ArgumentError { name: "a".into(), fault }])));
        };
        let driver = |what| move |error| LaunchError::Device(DeviceError::Driver { what, error });
        let workspace = self.reducer.workspace(stream).map_err(LaunchError::Device)?;
        let multiplied = match &self.before.product {
            Some((splitter, product)) => {
                let operands = splitter.operands();
                let mut turn = splitter.turn(stream, &places[..operands]).map_err(LaunchError::Device)?;
                product.put(stream, turn.arguments(operands + 1), [0; 3])?;
                Some(turn)
            }
            None => None,
        };
        if let Some(multiplied) = &multiplied {
            places[0] = multiplied.sums;
        }
        let copied = match &self.before.repacker {
            Some(repacker) => {
                let operands = self.operand_slots.map(|slot| self.tensor(slot, &places[slot]));
                let scales = self.scale_slots.map(|slot| slot.map_or(BoundOperand::NONE, |slot| places[slot]));
                Some(repacker.copy(stream, operands, scales).map_err(LaunchError::Device)?)
            }
            None => None,
        };
        for (slot, copy) in self.operand_slots.into_iter().zip(copied.iter().flat_map(|c| c.operands)) {
            let Some(MappedTensor { address, ld, batch_stride, .. }) = copy else { continue };
            places[slot] = BoundOperand { address, ld, batch_stride, ..BoundOperand::NONE };
        }
        let mut block = self.layout.block(places, origin, workspace);
        // A null address tells the kernel that the operand is left out, so the operand needs no map.
        let described = |field: &&MapField| places[field.slot].address != 0 || !self.slots[field.slot].may_be_left_out();
        for field in self.layout.maps.iter().filter(described) {
            let copy =
                copied.as_ref().and_then(|c| self.operand_slots.iter().zip(c.operands).find(|(slot, _)| **slot == field.slot)?.1);
            let tensor = copy.or_else(|| self.tensor(field.slot, &places[field.slot]));
            let map = tensor.map_or(Ok(None), |t| match (&self.patches, field.map.source) {
                (Some(of), MapSource::Patches) => t.encode_patches(of, &field.map),
                (Some(of), MapSource::Remainders(_)) => t.encode_remainders(of, &field.map),
                (Some(of), MapSource::Filters) => t.of_filters(&of.convolution).encode(&field.map, field.in_pairs),
                _ => t.encode(&field.map, field.in_pairs),
            });
            let map = map.map_err(driver("describe a tensor"))?;
            if map.is_none() && field.map.required && self.alignment[field.slot] > 1 {
                let name = self.slots[field.slot].name.to_string();
                let fault = ArgumentFault::TooLarge { limit: "extents of 2^32 elements and strides of 2^40 bytes" };
                return Err(LaunchError::Arguments(ArgumentErrors(vec![ArgumentError { name, fault }])));
            }
            field.put(&mut block, map);
        }
        stream.context().bind_to_thread().map_err(driver("enter the stream's context"))?;
        self.submit(stream, grid, &block).map_err(driver("launch the kernel"))
    }

    /// Puts the kernel into the stream.
    fn submit(&self, stream: &CudaStream, grid: [u32; 3], block: &ParameterBlock) -> Result<(), DriverError> {
        let mut attributes = [NO_ATTRIBUTE; ATTRIBUTES];
        let count = self.attributes.iter().zip(&mut attributes).map(|(ours, theirs)| *theirs = ours.encode()).count();
        let config = CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_memory,
            hStream: stream.cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        let mut parameters = [ptr::from_ref(block).cast_mut().cast()];
        // SAFETY: the function's module is loaded as long as `self.function` lives, and the stream lives for the call.
        // `config` and `attributes` are the driver's own structures, the latter with `count` initialised elements.
        // The kernel was rendered from the plan whose parameter layout `block` follows; the driver reads `Params::size` bytes
        // of it, at most as many as it has, before it returns. Every address in the block is device memory of this context, the
        // plan's own workspace or borrowed by the caller's arguments and ordered by its guards; `bind_into` has checked that
        // each is long enough for the extents and strides in the block (the parts of K lie inside the operand that was
        // checked), and `check_alignment` that it is aligned as the kernel assumes. The kernel touches nothing else.
        unsafe { cuLaunchKernelEx(&config, self.function.cu_function(), parameters.as_mut_ptr(), ptr::null_mut()) }.result()
    }

    fn check_devices(&self, args: &DeviceArgs<'_>) -> Result<(), LaunchError> {
        let elsewhere = args.given.iter().filter_map(|(name, given)| {
            let Given::Tensor { tensor, .. } = given else { return None };
            let fault = || ArgumentFault::WrongDevice { needs: self.context.ordinal(), got: tensor.buffer.ordinal() };
            (*tensor.buffer.context() != self.context).then(|| ArgumentError { name: name.clone(), fault: fault() })
        });
        // Collecting nothing allocates nothing.
        let errors: Vec<_> = elsewhere.collect();
        if errors.is_empty() { Ok(()) } else { Err(LaunchError::Arguments(ArgumentErrors(errors))) }
    }

    /// Operands, and matrices that the kernel copies through tensor maps, must be as aligned as the kernel was compiled
    /// for. The kernel checks the alignment of everything else.
    fn check_alignment(&self, places: &[BoundOperand]) -> Result<(), ArgumentErrors> {
        let slots = self.alignment.iter().zip(places).zip(&self.slots);
        let misaligned = slots.filter(|((needs, place), _)| place.aligned < **needs).map(|((needs, place), slot)| {
            let (needs, got) = (*needs, place.aligned);
            let between = got < slot.kind.element_size();
            let fault =
                if between { ArgumentFault::BetweenElements { needs, got } } else { ArgumentFault::Misaligned { needs, got } };
            ArgumentError { name: slot.name.to_string(), fault }
        });
        let errors: Vec<_> = misaligned.collect();
        if errors.is_empty() { Ok(()) } else { Err(ArgumentErrors(errors)) }
    }

    /// A slot's memory with its extents.
    fn tensor(&self, slot: usize, place: &BoundOperand) -> Option<MappedTensor> {
        let SlotKind::Memory { inner, outer, dtype, .. } = &self.slots[slot].kind else { return None };
        let BoundOperand { address, ld, batch_stride, .. } = *place;
        let (inner, outer, batch, size) = (*inner, *outer, self.shape.batch, dtype.size());
        Some(MappedTensor { address, inner, outer, batch, ld, batch_stride, size })
    }
}

/// Where the argument of a slot lies.
fn place_of(slot: &Slot, bound: &Bound, addresses: &[u64]) -> BoundOperand {
    match bound {
        Bound::Scalar(value) => BoundOperand { scalar: *value, ..BoundOperand::NONE },
        Bound::Tensor(t) => {
            let address = addresses[t.given];
            let (ld, batch_stride) = (t.leading_dimension, t.batch_stride);
            // A stride along an extent of 1 is never used.
            let is_batched = matches!(slot.kind, SlotKind::Memory { batch: Some(2..), .. });
            let across = (if t.strided { ld } else { 0 }, if is_batched { batch_stride } else { 0 });
            let aligned = alignment(address, [across.0, across.1].map(|elements| t.dtype.bytes(elements)));
            BoundOperand { address, ld, batch_stride, aligned, ..BoundOperand::NONE }
        }
    }
}

/// The needed alignment of each slot. `operand` maps the first slots to the kernel's operands.
fn needed_alignment(
    plan: &KernelPlan,
    shape: Shape,
    operands: usize,
    slots: &[Slot],
    operand: impl Fn(usize) -> usize,
) -> Vec<usize> {
    let needs = |(slot, kind): (usize, &SlotKind)| match slot.checked_sub(operands) {
        // Without K elements nothing is read.
        None if shape.k == 0 => 1,
        // Keys, which are read as queries are.
        None if plan.operation.attention().is_some() && slot == 2 => plan.alignment[0],
        // Scales are read one by one.
        None if slot > 1 => kind.element_size(),
        // The kernels before it read them.
        None if plan.split.is_some() => kind.element_size(),
        None => plan.alignment[operand(slot)],
        Some(argument) if plan.needs_pieces(argument) => UNIT as usize,
        Some(_) => kind.element_size(),
    };
    slots.iter().map(|slot| &slot.kind).enumerate().map(needs).collect()
}

const NO_ATTRIBUTE: CUlaunchAttribute = CUlaunchAttribute {
    id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE,
    pad: [0; 4],
    value: CUlaunchAttributeValue { pad: [0; 64] },
};

impl Attribute {
    fn encode(self) -> CUlaunchAttribute {
        let mut attribute = NO_ATTRIBUTE;
        match self {
            Attribute::Programmatic => {
                attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
                attribute.value.programmaticStreamSerializationAllowed = 1;
            }
        }
        attribute
    }
}
