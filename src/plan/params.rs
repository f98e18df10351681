//! The parameter block: names, types and offsets. The one truth from which both the CUDA `struct Params` and the bytes of
//! a launch are made.

use super::reduce::sets;
use super::{Program, TensorMap};
use crate::check::{Argument, Role};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::L;
use crate::ir::{Coordinate, Operand, Order};
use crate::problem::Operation;
use serde::Serialize;

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A 32-bit integer.
    Int,
    /// A 64-bit integer.
    Long,
    /// A binary32 number.
    Float,
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

    /// Bytes its offset is a multiple of, as the CUDA compiler has it.
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
    /// Terms.
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
    /// Address of an argument.
    Pointer(usize),
    /// Its leading dimension.
    Ld(usize),
    /// Its batch stride.
    BatchStride(usize),
    /// Whether its address and strides allow wide accesses of a strip.
    Wide(usize),
    /// Its value.
    Scalar(usize),
    /// Address of a reduction's slices, or of those of a sum of an operand, which are counted behind.
    Partials(usize),
    /// Address of the counters of a set of axes that results of reductions vary along, or of a sum of an operand, which are counted
    /// behind.
    Arrivals(usize),
    /// Whether a tensor map of the plan describes its operand in this launch; the kernel may use the map only then.
    Mapped(usize),
    /// The tensor map itself; zero where it does not.
    Map(usize),
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name in CUDA: ours, never the user's.
    pub name: String,
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
    pub(super) fn of(operation: Operation, arguments: &[Argument], program: &Program, maps: &[TensorMap]) -> Params {
        let mut params = Params { fields: Vec::new(), size: 0 };
        let operands: &[&str] = match operation {
            Operation::Product { .. } => &["a", "b"],
            Operation::Pointwise { .. } => &["a"],
        };
        for (name, value) in [("m", FieldValue::M), ("n", FieldValue::N), ("k", FieldValue::K), ("batch", FieldValue::Batch)] {
            params.push(name, FieldType::Int, value);
        }
        params.push("raster", FieldType::Int, FieldValue::Raster);
        for coordinate in Coordinate::ALL {
            params.push(&format!("origin_{}", coordinate.name()), FieldType::Int, FieldValue::Origin(coordinate));
        }
        for (i, name) in operands.iter().enumerate() {
            params.push(name, FieldType::Operand, FieldValue::OperandPointer(i));
            params.push(&format!("ld{name}"), FieldType::Long, FieldValue::OperandLd(i));
            params.push(&format!("batch_stride_{name}"), FieldType::Long, FieldValue::OperandBatchStride(i));
        }
        for (i, argument) in arguments.iter().enumerate().filter(|(i, _)| program.uses(*i)) {
            let operand = match argument.role {
                Role::Scalar(value) => {
                    let field_type = if value == ValueType::F32 { FieldType::Float } else { FieldType::Int };
                    params.push(&format!("arg{i}"), field_type, FieldValue::Scalar(i));
                    continue;
                }
                Role::Input(operand) | Role::Output(operand) | Role::Update(operand) => operand,
            };
            let dtype = operand.dtype;
            let field_type = if argument.role.is_written() { FieldType::Output(dtype) } else { FieldType::Input(dtype) };
            params.push(&format!("arg{i}"), field_type, FieldValue::Pointer(i));
            if operand.axes.is_matrix() {
                params.push(&format!("arg{i}_ld"), FieldType::Long, FieldValue::Ld(i));
            }
            if operand.axes.contains(L) {
                params.push(&format!("arg{i}_batch_stride"), FieldType::Long, FieldValue::BatchStride(i));
            }
            if has_wide(operand) {
                params.push(&format!("arg{i}_wide"), FieldType::Int, FieldValue::Wide(i));
            }
        }
        for i in 0..sets(&program.reductions).len() + program.sums.len() {
            params.push(&format!("arrivals{i}"), FieldType::Workspace, FieldValue::Arrivals(i));
        }
        for i in 0..program.reductions.len() + program.sums.len() {
            params.push(&format!("partials{i}"), FieldType::Workspace, FieldValue::Partials(i));
        }
        // The flags first: they fill what the maps' alignment leaves.
        for i in 0..maps.len() {
            params.push(&format!("map{i}_used"), FieldType::Int, FieldValue::Mapped(i));
        }
        for i in 0..maps.len() {
            params.push(&format!("map{i}"), FieldType::TensorMap, FieldValue::Map(i));
        }
        let widest = params.fields.iter().map(|field| field.field_type.alignment()).max().unwrap_or(1);
        params.size = params.size.next_multiple_of(widest);
        params
    }

    fn push(&mut self, name: &str, field_type: FieldType, value: FieldValue) {
        let offset = self.size.next_multiple_of(field_type.alignment());
        self.size = offset + field_type.size();
        self.fields.push(Field { name: name.into(), field_type, value, offset });
    }
}

/// Whether a strip of columns is a run of consecutive elements, which a wide access can move.
pub(crate) fn lies_along_columns(axes: crate::ir::Axes, order: Order) -> bool {
    axes.contains(crate::ir::axes::N) && (!axes.is_matrix() || order == Order::RowMajor)
}

/// Whether a launch says if wide accesses to an operand are aligned: to runs along a strip, and to the lines of a mask.
pub(crate) fn has_wide(Operand { dtype, axes, order }: Operand) -> bool {
    lies_along_columns(axes, order) || dtype.is_packed() && axes.is_matrix()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MapSource, Swizzle};
    use crate::problem::Layout;

    fn params(maps: usize) -> Params {
        let map = TensorMap {
            source: MapSource::Operand(0),
            dtype: DType::F16,
            box_inner: 64,
            box_outer: 128,
            swizzle: Swizzle::B128,
            required: true,
        };
        let epilogue = crate::build::recipes::bias_activation(DType::F16, DType::F16, |z| z.relu()).expect("a recipe");
        let checked = crate::pass::fold(&crate::pass::inline(epilogue.checked()));
        let operation = Operation::Product { dtype: DType::F16, layout: Layout::TN };
        Params::of(operation, checked.arguments(), &Program::of(&checked), &vec![map; maps])
    }

    #[test]
    fn maps_are_aligned_and_come_last() {
        let plain = params(0);
        assert_eq!(plain.size % 8, 0);
        for count in 1..4 {
            let with = params(count);
            assert_eq!(with.fields[..plain.fields.len()], plain.fields, "what stands before keeps its place");
            let maps: Vec<_> = with.fields.iter().filter(|f| f.field_type == FieldType::TensorMap).collect();
            let numbers: Vec<_> = maps.iter().map(|f| (f.name.as_str(), f.value)).collect();
            let expected = [("map0", FieldValue::Map(0)), ("map1", FieldValue::Map(1)), ("map2", FieldValue::Map(2))];
            assert_eq!(numbers, expected[..count]);
            assert!(maps.iter().all(|f| f.offset % 64 == 0));
            assert_eq!(with.size, maps[count - 1].offset + 128);
            assert!(with.fields.windows(2).all(|pair| pair[0].offset + pair[0].field_type.size() <= pair[1].offset));
            assert!(with.size.next_multiple_of(64) == with.size && with.size - 128 * count < plain.size + 4 * count + 64);
        }
    }
}
