//! A small, fixed problem for any epilogue: what it gives on the CPU, as text.

use postlude::check::Role;
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::{DType, Epilogue, HostArgs, Operation, Precision, Shape, Tensor};
use std::fmt::Write;

/// Two batch entries of a matrix that is no multiple of anything.
const SHAPE: Shape = Shape::new(3, 5, 0).batched(2);

/// The values of every output, one line a row, for arguments that follow a fixed pattern.
pub fn evaluate(epilogue: &Epilogue) -> Result<String, String> {
    let accumulator = epilogue.checked().accumulator().unwrap_or(ValueType::F32).storage();
    let operation = Operation::Pointwise { dtype: accumulator, order: Order::RowMajor };
    let count = SHAPE.m * SHAPE.n * SHAPE.batch;
    let mut memory: Vec<(String, Role, Vec<u8>)> = Vec::new();
    for (index, argument) in epilogue.arguments().iter().enumerate() {
        let bytes = argument.role.operand().map_or_else(Vec::new, |operand| pattern(operand.dtype, count, index + 1));
        memory.push((argument.name.to_string(), argument.role, bytes));
    }
    let a = pattern(accumulator, count, 0);
    let mut args = HostArgs::new().input("a", Tensor::of_bytes(accumulator, &a)).origin(0, 0, 0);
    for (name, role, bytes) in &mut memory {
        args = match role {
            Role::Scalar(ValueType::F32) => args.scalar(name, 0.75f32),
            Role::Scalar(ValueType::I32) => args.scalar(name, 2),
            Role::Scalar(ValueType::Bool) => args.scalar(name, true),
            Role::Input(operand) => args.input(name, Tensor::of_bytes(operand.dtype, bytes)),
            Role::Output(operand) | Role::Update(operand) => args.output(name, Tensor::of_bytes_mut(operand.dtype, bytes)),
        };
    }
    postlude::reference::run(operation, epilogue.checked(), SHAPE, args, Precision::F32).map_err(|e| e.to_string())?;
    let mut out = String::new();
    for (name, role, bytes) in &memory {
        let (true, Some(operand)) = (role.is_written(), role.operand()) else { continue };
        let _ = writeln!(out, "{name}");
        let shared = !operand.axes.contains(postlude::ir::axes::L);
        for row in 0..if shared { SHAPE.m } else { SHAPE.m * SHAPE.batch } {
            let element = |column: usize| match operand.order {
                Order::RowMajor => row * SHAPE.n + column,
                Order::ColumnMajor => row / SHAPE.m * (SHAPE.m * SHAPE.n) + column * SHAPE.m + row % SHAPE.m,
            };
            let values: Vec<String> =
                (0..SHAPE.n).map(|c| number(operand.dtype, operand.dtype.read(bytes, element(c)))).collect();
            let _ = writeln!(out, "  {}", values.join(" "));
        }
    }
    Ok(out)
}

/// Quarters from -2 to 2, each argument at a place of its own; small integers; alternating truth.
fn pattern(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * dtype.size()];
    for index in 0..count {
        let step = ((index * 7 + seed * 5) % 17) as f64 - 8.0;
        let value = match dtype {
            DType::Bool => f64::from(u8::from((index + seed).is_multiple_of(3))),
            DType::I32 => step,
            _ => step / 4.0,
        };
        dtype.write(&mut bytes, index, value);
    }
    bytes
}

fn number(dtype: DType, x: f64) -> String {
    match dtype.value_type() {
        ValueType::F32 => format!("{x:>8.4}"),
        _ => format!("{x:>8}"),
    }
}
