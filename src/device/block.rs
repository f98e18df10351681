//! The parameter block of a launch.
//!
//! A plan decides the source and offset of each field. A launch goes through the list.

use super::bound::BoundOperand;
use super::tensor_map::Bytes;
use crate::ir::{Constant, Coordinate};
use crate::plan::{FieldValue, KernelPlan, MapSource, PARAMETER_LIMIT, TensorMap, Workspace};
use crate::problem::{ScaleField, Shape};

/// A kernel's parameters as the driver reads them: the first bytes, as many as the kernel declares.
#[repr(C, align(64))]
pub(super) struct ParameterBlock([u8; PARAMETER_LIMIT]);

/// The fields that a launch writes into a block.
pub(super) struct BlockLayout {
    fields: Vec<Field>,
    pub maps: Vec<MapField>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    offset: usize,
    value: Value,
}

/// The source of a field. Numbers are slots unless said otherwise.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// A number that plan and shape decide.
    Int(u32),
    Long(u64),
    Address(usize),
    Ld(usize),
    BatchStride(usize),
    /// Whether a slot is aligned to so many bytes.
    Wide(usize, usize),
    Scalar(usize),
    /// A coordinate of the launch's origin.
    Origin(usize),
    /// An address in the workspace.
    Workspace(usize),
}

/// A tensor map of the memory in a slot, with the flag beside it, and whether L2 fetches its lines in pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapField {
    pub map: TensorMap,
    pub slot: usize,
    pub in_pairs: bool,
    used: usize,
    bytes: usize,
}

impl BlockLayout {
    /// The fields for launches of a plan on a shape. `operand` names the slot of each operand of the kernel, and `scale` of
    /// each of its scales and zero points. The epilogue's arguments begin at slot `operands`.
    pub fn new(
        plan: &KernelPlan,
        shape: Shape,
        workspace: &Workspace,
        operand: impl Fn(usize) -> usize,
        scale: impl Fn(ScaleField) -> usize,
        operands: usize,
    ) -> BlockLayout {
        let seen = plan.seen(shape);
        let slot = |argument: usize| plan.slot_of(argument, operands);
        let priorities = plan.priorities(shape);
        let [edge_row, edge_column] = plan.edge_tiles(shape);
        let maps = plan.maps.iter().map(|map| {
            let slot = match map.source {
                MapSource::Operand(i) => operand(i),
                MapSource::Patches => usize::from(plan.operation.patches().is_some_and(|patches| !patches.are_rows())),
                MapSource::Filters => 1,
                MapSource::Argument(i) | MapSource::Remainders(i) => slot(i),
            };
            MapField { map: *map, slot, in_pairs: priorities.fetches_pairs(map.source), used: 0, bytes: 0 }
        });
        let mut layout = BlockLayout { fields: Vec::with_capacity(plan.params.fields.len()), maps: maps.collect() };
        let axis = |axis: usize| if plan.transposed { 1 - axis } else { axis };
        for field in &plan.params.fields {
            let int = |x: usize| Value::Int(x as u32);
            let value = match field.value {
                // A pointwise kernel reads no operand if its epilogue reads no accumulator.
                FieldValue::OperandPointer(i) | FieldValue::OperandLd(i) | FieldValue::OperandBatchStride(i) if i >= operands => {
                    Value::Long(0)
                }
                FieldValue::M => int(seen.m),
                FieldValue::N => int(seen.n),
                FieldValue::K => int(seen.k),
                FieldValue::Batch => int(seen.batch),
                FieldValue::Raster => Value::Int(plan.group_within(shape) as u32),
                FieldValue::Origin(Coordinate::Row) => Value::Origin(axis(0)),
                FieldValue::Origin(Coordinate::Column) => Value::Origin(axis(1)),
                FieldValue::Origin(Coordinate::Batch | Coordinate::Sequence) => Value::Origin(2),
                FieldValue::OperandPointer(i) => Value::Address(operand(i)),
                FieldValue::OperandLd(i) => Value::Ld(operand(i)),
                FieldValue::OperandBatchStride(i) => Value::BatchStride(operand(i)),
                FieldValue::ScalePointer(field) => Value::Address(scale(field)),
                FieldValue::ScaleLd(field) => Value::Ld(scale(field)),
                FieldValue::ScaleBatchStride(field) => Value::BatchStride(scale(field)),
                FieldValue::Patch(field) => {
                    let Some(patches) = plan.operation.patches() else { continue };
                    let number = field.value(&patches, plan.operation.dtype().size(), seen);
                    if field.is_long() { Value::Long(number as u64) } else { Value::Int(number as u32) }
                }
                FieldValue::Attention(field) => {
                    let Some(attention) = plan.operation.attention() else { continue };
                    int(field.value(&attention, shape, plan.tile.bm))
                }
                FieldValue::ScoreScale => {
                    let Some(attention) = plan.operation.attention() else { continue };
                    Value::Int(attention.scale().to_bits())
                }
                // The keys are the operand behind A and B.
                FieldValue::KeyPointer => Value::Address(2),
                FieldValue::KeyLd => Value::Ld(2),
                FieldValue::KeyBatchStride => Value::BatchStride(2),
                FieldValue::Pointer(i) => Value::Address(slot(i)),
                FieldValue::Ld(i) => Value::Ld(slot(i)),
                FieldValue::BatchStride(i) => Value::BatchStride(slot(i)),
                // A table has one run.
                FieldValue::Length(i) => Value::Ld(slot(i)),
                FieldValue::Wide(i) => Value::Wide(slot(i), plan.wide_access_to(i)),
                FieldValue::Scalar(i) => Value::Scalar(slot(i)),
                FieldValue::OperandPolicy(i) => Value::Long(priorities.operands[i].policy()),
                FieldValue::MatrixPolicy => Value::Long(priorities.matrices.policy()),
                FieldValue::EdgeRow => int(edge_row),
                FieldValue::EdgeColumn => int(edge_column),
                FieldValue::Progress => Value::Workspace(0),
                FieldValue::Partials(i) => Value::Workspace(workspace.partials[i]),
                FieldValue::Arrivals(i) => Value::Workspace(workspace.arrivals[i]),
                FieldValue::Mapped(i) => {
                    layout.maps[i].used = field.offset;
                    continue;
                }
                FieldValue::Map(i) => {
                    layout.maps[i].bytes = field.offset;
                    continue;
                }
            };
            layout.fields.push(Field { offset: field.offset, value });
        }
        layout
    }

    /// The block of a launch, without its maps. `workspace` is the workspace's address.
    pub fn block(&self, places: &[BoundOperand], origin: [i32; 3], workspace: u64) -> ParameterBlock {
        let mut block = ParameterBlock([0; PARAMETER_LIMIT]);
        for Field { offset, value } in &self.fields {
            let mut int = |x: u32| block.put(*offset, x.to_le_bytes());
            match *value {
                Value::Int(x) => int(x),
                Value::Long(x) => block.put(*offset, x.to_le_bytes()),
                Value::Wide(slot, needs) => int(u32::from(places[slot].aligned >= needs)),
                Value::Origin(axis) => int(origin[axis].cast_unsigned()),
                Value::Scalar(slot) => match places[slot].scalar {
                    Constant::F32(bits) => int(bits),
                    Constant::F64(bits) => block.put(*offset, bits.to_le_bytes()),
                    Constant::I32(x) => int(x.cast_unsigned()),
                    Constant::Bool(b) => int(u32::from(b)),
                },
                Value::Address(slot) => block.put(*offset, places[slot].address.to_le_bytes()),
                Value::Workspace(at) => block.put(*offset, (workspace + at as u64).to_le_bytes()),
                Value::Ld(slot) => block.put(*offset, (places[slot].ld as u64).to_le_bytes()),
                Value::BatchStride(slot) => block.put(*offset, (places[slot].batch_stride as u64).to_le_bytes()),
            }
        }
        block
    }
}

impl MapField {
    /// Puts a map into the block, if there is one. A fresh block says that there is none.
    pub fn put(&self, block: &mut ParameterBlock, map: Option<Bytes>) {
        if let Some(bytes) = map {
            block.put(self.used, 1u32.to_le_bytes());
            block.put(self.bytes, bytes);
        }
    }
}

impl ParameterBlock {
    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.0[offset..offset + N].copy_from_slice(&bytes);
    }
}
