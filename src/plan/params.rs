//! The parameter block: names, types and offsets. The one truth from which both the CUDA `struct Params` and the bytes of
//! a launch are made.

use super::Program;
use crate::check::{Argument, Role};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::L;
use crate::ir::{Coordinate, Order};
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
        }
    }

    const fn size(self) -> usize {
        match self {
            FieldType::Int | FieldType::Float => 4,
            _ => 8,
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
    /// Its size in bytes, a multiple of 8.
    pub size: usize,
}

/// The most bytes a kernel's parameters may take on every device.
pub const LIMIT: usize = 4096;

impl Params {
    pub(super) fn of(operation: Operation, arguments: &[Argument], program: &Program) -> Params {
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
            if lies_along_columns(operand.axes, operand.order) {
                params.push(&format!("arg{i}_wide"), FieldType::Int, FieldValue::Wide(i));
            }
        }
        params.size = params.size.next_multiple_of(8);
        params
    }

    fn push(&mut self, name: &str, field_type: FieldType, value: FieldValue) {
        let offset = self.size.next_multiple_of(field_type.size());
        self.size = offset + field_type.size();
        self.fields.push(Field { name: name.into(), field_type, value, offset });
    }
}

/// Whether a strip of columns is a run of consecutive elements, which a wide access can move.
pub(crate) fn lies_along_columns(axes: crate::ir::Axes, order: Order) -> bool {
    axes.contains(crate::ir::axes::N) && (!axes.is_matrix() || order == Order::RowMajor)
}
