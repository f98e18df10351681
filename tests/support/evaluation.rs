//! A small, fixed problem for any epilogue: its results on the CPU, as text.

use postlude::check::{Need, Role};
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::ir::axes::{L, M, N};
use postlude::{DType, Epilogue, HostArgs, Operation, Precision, Shape, Tensor};
use std::fmt::Write;

/// Two batch entries of a matrix with small odd extents.
const SHAPE: Shape = Shape::new(3, 5, 0).batched(2);

/// Elements of a table.
const TABLE: usize = 7;

/// The values of every output, one line a row, for arguments that follow a fixed pattern; and once more without those
/// that may be left out.
pub fn evaluate(epilogue: &Epilogue) -> Result<String, String> {
    let mut out = outputs(epilogue, |_| true)?;
    if epilogue.arguments().iter().any(|argument| argument.need != Need::Required) {
        out += "\nwithout what may be left out\n";
        out += &outputs(epilogue, |need| need == Need::Required)?;
    }
    Ok(out)
}

/// The values of every output, where a launch passes these arguments.
fn outputs(epilogue: &Epilogue, passes: impl Fn(Need) -> bool) -> Result<String, String> {
    let count = SHAPE.m * SHAPE.n * SHAPE.batch;
    let accumulator = epilogue.checked().accumulator().unwrap_or(ValueType::F32).storage();
    let operation = Operation::Pointwise { dtype: accumulator, order: Order::RowMajor };
    // Each run of a bit mask begins a byte, or 16 of them.
    let room = |dtype: DType| if dtype.is_packed() { SHAPE.n * dtype.run() * SHAPE.batch } else { count };
    let mut memory: Vec<(String, Role, Vec<u8>)> = Vec::new();
    for (index, argument) in epilogue.arguments().iter().enumerate() {
        let bytes = match argument.role {
            Role::Table(dtype) => pattern(dtype, TABLE, index + 1),
            // Counts grow from what is there.
            Role::Counts(dtype) => pattern(dtype, TABLE, 1),
            role => role.operand().map_or_else(Vec::new, |operand| pattern(operand.dtype, room(operand.dtype), index + 1)),
        };
        memory.push((argument.name.to_string(), argument.role, bytes));
    }
    let a = pattern(accumulator, count, 0);
    let mut args = HostArgs::new().input("a", Tensor::of_bytes(accumulator, &a)).origin(0, 0, 0);
    for ((name, role, bytes), argument) in memory.iter_mut().zip(epilogue.arguments()) {
        args = match role {
            _ if !passes(argument.need) => args,
            Role::Scalar(ValueType::F32) => args.scalar(name, 0.75f32),
            Role::Scalar(ValueType::F64) => args.scalar(name, 0.75),
            Role::Scalar(ValueType::I32) => args.scalar(name, 2),
            Role::Scalar(ValueType::Bool) => args.scalar(name, true),
            Role::Table(dtype) => args.input(name, Tensor::of_bytes(*dtype, bytes)),
            Role::Counts(dtype) => args.output(name, Tensor::of_bytes_mut(*dtype, bytes)),
            Role::Input(operand) => args.input(name, Tensor::of_bytes(operand.dtype, bytes)),
            Role::Output(operand) | Role::Update(operand) => args.output(name, Tensor::of_bytes_mut(operand.dtype, bytes)),
        };
    }
    postlude::reference::run(operation, epilogue.checked(), SHAPE, args, Precision::F32).map_err(|e| e.to_string())?;
    let mut out = String::new();
    for (name, role, bytes) in &memory {
        if let Role::Counts(dtype) = role {
            let values: Vec<String> = (0..TABLE).map(|i| number(*dtype, dtype.read(bytes, i))).collect();
            let _ = writeln!(out, "{name}\n  {}", values.join(" "));
        }
        let (true, Some(operand)) = (role.is_written(), role.operand()) else { continue };
        let _ = writeln!(out, "{name}");
        let along = |axis, extent| if operand.axes.contains(axis) { extent } else { 1 };
        let (rows, columns) = (along(M, SHAPE.m), along(N, SHAPE.n));
        let run = |elements: usize| elements.next_multiple_of(operand.dtype.run());
        for row in 0..rows * along(L, SHAPE.batch) {
            let element = |column: usize| match operand.order {
                Order::RowMajor => row * run(columns) + column,
                Order::ColumnMajor => row / rows * (columns * run(rows)) + column * run(rows) + row % rows,
            };
            let values: Vec<String> =
                (0..columns).map(|c| number(operand.dtype, operand.dtype.read(bytes, element(c)))).collect();
            let _ = writeln!(out, "  {}", values.join(" "));
        }
    }
    Ok(out)
}

/// Quarters from -2 to 2, with another offset for each argument; small integers; alternating truth.
fn pattern(dtype: DType, count: usize, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; dtype.bytes(count)];
    for index in 0..count {
        let step = ((index * 7 + seed * 5) % 17) as f64 - 8.0;
        let value = match dtype {
            DType::Bool | DType::Bits8 | DType::Bits128 => f64::from(u8::from((index + seed).is_multiple_of(3))),
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
        ValueType::F64 => format!("{x:>13.9}"),
        _ => format!("{x:>8}"),
    }
}
