//! The parameter block: names, types and offsets. Both the CUDA `struct Params` and the bytes of a launch are made from
//! it.

use crate::check::{Argument, Role};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{L, S};
use crate::ir::{Coordinate, Operand, Order};
use crate::plan::epilogue::reduce::sets;
use crate::plan::{AttentionField, PatchField, PlannedScores, Program};
use crate::problem::{Operation, ScaleField};
use serde::Serialize;
use std::fmt;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A 32-bit integer.
    Int,
    /// A 64-bit integer.
    Long,
    /// A binary32 number.
    Float,
    /// A binary64 number.
    Double,
    /// The address of elements that are read.
    Input(DType),
    /// The address of elements that are written.
    Output(DType),
    /// The address of an operand of the operation.
    Operand,
    /// An address in the plan's own workspace.
    Workspace,
    /// A tensor map.
    TensorMap,
}

impl FieldType {
    /// The declaration in CUDA up to the name.
    pub fn cuda(self) -> String {
        match self {
            FieldType::Int => "int ".into(),
            FieldType::Long => "i64 ".into(),
            FieldType::Float => "float ".into(),
            FieldType::Double => "double ".into(),
            FieldType::Input(dtype) => format!("const {}* ", dtype.cuda()),
            FieldType::Output(dtype) => format!("{}* ", dtype.cuda()),
            FieldType::Operand => "const void* ".into(),
            FieldType::Workspace => "void* ".into(),
            FieldType::TensorMap => "TensorMap ".into(),
        }
    }

    /// Bytes it takes.
    pub const fn size(self) -> usize {
        match self {
            FieldType::Int | FieldType::Float => 4,
            FieldType::TensorMap => 128,
            _ => 8,
        }
    }

    /// Alignment of its offset in bytes, as the CUDA compiler chooses it.
    const fn alignment(self) -> usize {
        match self {
            FieldType::TensorMap => 64,
            other => other.size(),
        }
    }
}

/// What a launch puts into a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldValue {
    /// Rows.
    M,
    /// Columns.
    N,
    /// The extent K.
    K,
    /// Batch entries.
    Batch,
    /// Group height of the rasterisation.
    Raster,
    /// The coordinate of the first element.
    Origin(Coordinate),
    /// Address of `a` (0) or `b` (1).
    OperandPointer(usize),
    /// Leading dimension of `a` or `b`.
    OperandLd(usize),
    /// Batch stride of `a` or `b`.
    OperandBatchStride(usize),
    /// Address of scales or zero points of `a` or `b`.
    ScalePointer(ScaleField),
    /// Their leading dimension.
    ScaleLd(ScaleField),
    /// Their batch stride.
    ScaleBatchStride(ScaleField),
    /// A number of the convolution.
    Patch(PatchField),
    /// A number of the attention.
    Attention(AttentionField),
    /// The factor of its scores.
    ScoreScale,
    /// Address of its keys.
    KeyPointer,
    /// Their leading dimension.
    KeyLd,
    /// Their batch stride.
    KeyBatchStride,
    /// Address of an argument.
    Pointer(usize),
    /// Its leading dimension.
    Ld(usize),
    /// Its batch stride.
    BatchStride(usize),
    /// Whether its address and strides allow wide accesses of a strip.
    Wide(usize),
    /// The number of elements of a table.
    Length(usize),
    /// Its value.
    Scalar(usize),
    /// The L2 cache policy for reads of `a` or `b`.
    OperandPolicy(usize),
    /// The L2 cache policy for the epilogue's matrices.
    MatrixPolicy,
    /// The row where the last row of tiles begins, if edge tiles are shifted.
    EdgeRow,
    /// The column in which the last column of tiles begins.
    EdgeColumn,
    /// Address of the count of tiles that blocks have begun.
    Progress,
    /// Address of the slices of a reduction. The sums of operands are numbered after the reductions, and then those of blocks
    /// that share K.
    Partials(usize),
    /// Address of the arrival counters of a set of axes that results of reductions vary along. The sums of operands are
    /// numbered after these sets, and then those of blocks that share K.
    Arrivals(usize),
    /// Whether a tensor map of the plan describes its operand in this launch. The kernel may use the map only then.
    Mapped(usize),
    /// The tensor map itself; zero if it does not.
    Map(usize),
}

/// The name in CUDA. All names are generated, and none comes from the user.
impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |i: &usize| if *i == 0 { "a" } else { "b" };
        match self {
            FieldValue::M => f.write_str("m"),
            FieldValue::N => f.write_str("n"),
            FieldValue::K => f.write_str("k"),
            FieldValue::Batch => f.write_str("batch"),
            FieldValue::Raster => f.write_str("raster"),
            FieldValue::Origin(coordinate) => write!(f, "origin_{}", coordinate.name()),
            FieldValue::OperandPointer(i) => f.write_str(operand(i)),
            FieldValue::OperandLd(i) => write!(f, "ld{}", operand(i)),
            FieldValue::OperandBatchStride(i) => write!(f, "batch_stride_{}", operand(i)),
            FieldValue::ScalePointer(field) => f.write_str(field.name()),
            FieldValue::ScaleLd(field) => write!(f, "{}_ld", field.name()),
            FieldValue::ScaleBatchStride(field) => write!(f, "batch_stride_{}", field.name()),
            FieldValue::Patch(field) => f.write_str(field.name()),
            FieldValue::Attention(field) => f.write_str(field.name()),
            FieldValue::ScoreScale => f.write_str("score_scale"),
            FieldValue::KeyPointer => f.write_str("key"),
            FieldValue::KeyLd => f.write_str("key_ld"),
            FieldValue::KeyBatchStride => f.write_str("batch_stride_key"),
            FieldValue::Pointer(i) | FieldValue::Scalar(i) => write!(f, "arg{i}"),
            FieldValue::Ld(i) => write!(f, "arg{i}_ld"),
            FieldValue::BatchStride(i) => write!(f, "arg{i}_batch_stride"),
            FieldValue::Length(i) => write!(f, "arg{i}_length"),
            FieldValue::Wide(i) => write!(f, "arg{i}_wide"),
            FieldValue::OperandPolicy(i) => write!(f, "{}_policy", operand(i)),
            FieldValue::MatrixPolicy => f.write_str("matrix_policy"),
            FieldValue::EdgeRow => f.write_str("edge_row"),
            FieldValue::EdgeColumn => f.write_str("edge_column"),
            FieldValue::Progress => f.write_str("progress"),
            FieldValue::Partials(i) => write!(f, "partials{i}"),
            FieldValue::Arrivals(i) => write!(f, "arrivals{i}"),
            FieldValue::Mapped(i) => write!(f, "map{i}_used"),
            FieldValue::Map(i) => write!(f, "map{i}"),
        }
    }
}

/// One field, named after its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its type.
    pub field_type: FieldType,
    /// What a launch puts there.
    pub value: FieldValue,
    /// Its place in the block, in bytes.
    pub offset: usize,
}

/// The block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Params {
    /// The fields in order.
    pub fields: Vec<Field>,
    /// Its size in bytes, a multiple of the widest alignment in it.
    pub size: usize,
}

/// The most bytes a kernel's parameters may take on every device.
pub const LIMIT: usize = 4096;

impl Params {
    /// The block of a kernel without tensor maps.
    pub(in crate::plan) fn of(
        operation: Operation,
        arguments: &[Argument],
        program: &Program,
        scores: Option<&PlannedScores>,
        lockstep: bool,
        shifted_edges: bool,
        shares_sums: bool,
    ) -> Params {
        let mut params = Params { fields: Vec::new(), size: 0 };
        let operands = if operation.multiplies() { 2 } else { 1 };
        for value in [FieldValue::M, FieldValue::N, FieldValue::K, FieldValue::Batch, FieldValue::Raster] {
            params.push(FieldType::Int, value);
        }
        for coordinate in Coordinate::OF_OUTPUT {
            params.push(FieldType::Int, FieldValue::Origin(coordinate));
        }
        for value in [FieldValue::EdgeRow, FieldValue::EdgeColumn].into_iter().filter(|_| shifted_edges) {
            params.push(FieldType::Int, value);
        }
        for i in 0..operands {
            params.push(FieldType::Operand, FieldValue::OperandPointer(i));
            params.push(FieldType::Long, FieldValue::OperandLd(i));
            params.push(FieldType::Long, FieldValue::OperandBatchStride(i));
        }
        for field in ScaleField::of(operation) {
            params.push(FieldType::Input(field.format(operation)), FieldValue::ScalePointer(field));
            params.push(FieldType::Long, FieldValue::ScaleLd(field));
            params.push(FieldType::Long, FieldValue::ScaleBatchStride(field));
        }
        if operation.attention().is_some() {
            params.push(FieldType::Operand, FieldValue::KeyPointer);
            params.push(FieldType::Long, FieldValue::KeyLd);
            params.push(FieldType::Long, FieldValue::KeyBatchStride);
            AttentionField::ALL.into_iter().for_each(|field| params.push(FieldType::Int, FieldValue::Attention(field)));
            params.push(FieldType::Float, FieldValue::ScoreScale);
        }
        for field in PatchField::ALL.into_iter().filter(|_| operation.patches().is_some()) {
            params.push(if field.is_long() { FieldType::Long } else { FieldType::Int }, FieldValue::Patch(field));
        }
        for (i, argument) in arguments.iter().enumerate().filter(|(i, _)| program.uses(*i)) {
            params.argument(i, argument.role);
        }
        if let Some(scores) = scores {
            let used = scores.arguments.iter().enumerate().filter(|(i, _)| scores.program.uses(*i));
            used.for_each(|(i, argument)| params.argument(arguments.len() + i, argument.role));
        }
        let more = program.sums.len() + usize::from(shares_sums);
        for i in 0..sets(&program.reductions).len() + more {
            params.push(FieldType::Workspace, FieldValue::Arrivals(i));
        }
        for i in 0..program.reductions.len() + more {
            params.push(FieldType::Workspace, FieldValue::Partials(i));
        }
        if lockstep {
            params.push(FieldType::Workspace, FieldValue::Progress);
        }
        params.size = params.size.next_multiple_of(FieldType::Long.alignment());
        params
    }

    /// The same block with this many tensor maps, and the fields that belong to them, at its end.
    pub(in crate::plan) fn with_maps(mut self, maps: usize) -> Params {
        let size = self.size_with(maps);
        for (field_type, value) in of_maps(maps) {
            self.push(field_type, value);
        }
        self.size = size;
        self
    }

    /// The size that `with_maps` would give, without building the block.
    pub(in crate::plan) fn size_with(&self, maps: usize) -> usize {
        let size = of_maps(maps).fold(self.size, |size, (field_type, _)| offset(size, field_type) + field_type.size());
        size.next_multiple_of(if maps > 0 { FieldType::TensorMap.alignment() } else { 1 })
    }

    /// The fields of the argument with a number.
    fn argument(&mut self, i: usize, role: Role) {
        let operand = match role {
            Role::Scalar(value) => {
                let field_type = match value {
                    ValueType::F32 => FieldType::Float,
                    ValueType::F64 => FieldType::Double,
                    ValueType::I32 | ValueType::Bool => FieldType::Int,
                };
                return self.push(field_type, FieldValue::Scalar(i));
            }
            Role::Table(dtype) => {
                self.push(FieldType::Input(dtype), FieldValue::Pointer(i));
                return self.push(FieldType::Long, FieldValue::Length(i));
            }
            Role::Counts(dtype) => {
                self.push(FieldType::Output(dtype), FieldValue::Pointer(i));
                return self.push(FieldType::Long, FieldValue::Length(i));
            }
            Role::Input(operand) | Role::Output(operand) | Role::Update(operand) => operand,
        };
        let dtype = operand.dtype;
        let field_type = if role.is_written() { FieldType::Output(dtype) } else { FieldType::Input(dtype) };
        self.push(field_type, FieldValue::Pointer(i));
        if operand.axes.is_matrix() {
            self.push(FieldType::Long, FieldValue::Ld(i));
        }
        if has_entries(operand) {
            self.push(FieldType::Long, FieldValue::BatchStride(i));
        }
        if has_wide(operand) {
            self.push(FieldType::Int, FieldValue::Wide(i));
        }
    }

    fn push(&mut self, field_type: FieldType, value: FieldValue) {
        let offset = offset(self.size, field_type);
        self.size = offset + field_type.size();
        self.fields.push(Field { field_type, value, offset });
    }
}

/// The offset of a field that follows this many bytes.
const fn offset(size: usize, field_type: FieldType) -> usize {
    size.next_multiple_of(field_type.alignment())
}

/// The fields that tensor maps bring along: policies of a product's operands and of matrices, flags, the maps.
fn of_maps(maps: usize) -> impl Iterator<Item = (FieldType, FieldValue)> {
    let policies = [FieldValue::OperandPolicy(0), FieldValue::OperandPolicy(1), FieldValue::MatrixPolicy];
    let policies = policies.into_iter().filter(move |_| maps > 0).map(|value| (FieldType::Long, value));
    // The flags come first, because they fill the gap before the maps' alignment.
    let flags = (0..maps).map(|i| (FieldType::Int, FieldValue::Mapped(i)));
    policies.chain(flags).chain((0..maps).map(|i| (FieldType::TensorMap, FieldValue::Map(i))))
}

/// Whether a strip of columns is a run of consecutive elements, which one wide access can move.
pub(crate) fn lies_along_columns(axes: crate::ir::Axes, order: Order) -> bool {
    axes.contains(crate::ir::axes::N) && (!axes.is_matrix() || order == Order::RowMajor)
}

/// Whether an operand has an entry for each batch entry, or for each sequence of an attention.
pub(crate) fn has_entries(operand: Operand) -> bool {
    operand.axes.contains(L) || operand.axes.contains(S)
}

/// Whether a launch states if wide accesses to an operand are aligned. It does for runs along a strip, and for the
/// lines of a mask.
pub(crate) fn has_wide(Operand { dtype, axes, order }: Operand) -> bool {
    lies_along_columns(axes, order) || dtype.is_packed() && axes.is_matrix()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Layout;

    fn params(maps: usize) -> Params {
        let epilogue = crate::build::recipes::bias_activation(DType::F16, DType::F16, |z| z.relu()).expect("a recipe");
        let checked = crate::pass::fold(&crate::pass::inline(epilogue.checked()));
        let operation = Operation::product(DType::F16, Layout::TN);
        Params::of(operation, checked.arguments(), &Program::of(&checked), None, false, false, false).with_maps(maps)
    }

    #[test]
    fn maps_are_aligned_and_come_last() {
        let plain = params(0);
        assert_eq!(plain.size % 8, 0);
        for count in 1..4 {
            let with = params(count);
            assert_eq!(plain.size_with(count), with.size);
            assert_eq!(with.fields[..plain.fields.len()], plain.fields, "what stands before keeps its place");
            let maps: Vec<_> = with.fields.iter().filter(|f| f.field_type == FieldType::TensorMap).collect();
            let names: Vec<_> = maps.iter().map(|f| f.value.to_string()).collect();
            assert_eq!(names, ["map0", "map1", "map2"][..count]);
            assert!(maps.iter().all(|f| f.offset % 64 == 0));
            assert_eq!(with.size, maps[count - 1].offset + 128);
            assert!(with.fields.windows(2).all(|pair| pair[0].offset + pair[0].field_type.size() <= pair[1].offset));
            assert!(with.size.next_multiple_of(64) == with.size && with.size - 128 * count < plain.size + 3 * 8 + 4 * count + 64);
        }
    }
}
