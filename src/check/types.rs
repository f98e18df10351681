//! Types of values: the type of each node and the axes it varies along, from its operands.

use super::Type;
use super::diagnostic::{Diagnostic, FaultSite, Part};
use super::sinks;
use crate::dtype::{DType, ValueType};
use crate::ir::Over;
use crate::ir::axes::K;
use crate::ir::graph::{Constant, Graph, Node, NodeId};
use crate::ir::op::Signature;
use crate::ir::{Function, Monoid};

/// The type of every node; `None` if a fault was reported, or if an operand has no type.
pub(super) fn infer(graph: &Graph, out: &mut Vec<Diagnostic>) -> Vec<Option<Type>> {
    infer_inside(graph, &[], out)
}

/// The same for the body of the last of the functions `inside`, each of which calls the next.
fn infer_inside(graph: &Graph, inside: &[&Function], out: &mut Vec<Diagnostic>) -> Vec<Option<Type>> {
    let mut types: Vec<Option<Type>> = Vec::with_capacity(graph.len());
    let mut accumulator: Option<(ValueType, NodeId)> = None;
    for (id, node) in graph.nodes() {
        let of = |value| Some(Type { value, axes: graph.axes(id) });
        let found = match node {
            Node::Accumulator(value) | Node::Element(_, value) => {
                if let Some((other, first)) = accumulator.filter(|(other, _)| other != value) {
                    let element = |id| matches!(graph.node(id), Node::Element(..));
                    let message = match element(id) || element(first) {
                        true => "operands and accumulators of different types",
                        false => "two accumulators of different types",
                    };
                    out.push(
                        Diagnostic::new(graph, "E0203", FaultSite::Node(id), message)
                            .mark(Part::Format, &format!("not {other}"))
                            .note(graph, "the other one is here", FaultSite::Node(first))
                            .help("a floating-point product has `acc()`, one of `F64` `acc_f64()`, an integer one `acc_i32()`"),
                    );
                }
                accumulator.get_or_insert((*value, id));
                of(*value)
            }
            Node::Constant(c) => of(c.value_type()),
            Node::Coordinate(_) => of(ValueType::I32),
            Node::Scalar { value_type, default, .. } => {
                out.extend(default.and_then(|default| other_default(graph, id, default, *value_type)));
                of(*value_type)
            }
            Node::Load { operand, .. } if operand.axes.contains(K) => {
                out.push(along_k(Diagnostic::new(graph, "E0107", FaultSite::Node(id), &format!("{operand} {ALONG_K}"))));
                None
            }
            Node::Load { operand, .. } if operand.dtype.is_four_bits() => {
                let message = format!("{} is a format of the product's operands alone", operand.dtype);
                out.push(four_bits(Diagnostic::new(graph, "E0112", FaultSite::Node(id), &message)));
                None
            }
            Node::Load { operand, default, .. } => {
                out.extend(default.and_then(|default| other_default(graph, id, default, operand.dtype.value_type())));
                of(operand.dtype.value_type())
            }
            Node::Gather { dtype, args, .. } => gathered(graph, id, *dtype, args, &types, out),
            Node::Apply { op, args } => of_signature(graph, id, args, &types, op.row().signature, out),
            Node::Call { function, args } => of_signature(graph, id, args, &types, called(function, args, &types, inside), out),
            Node::Custom { op, args } => of_signature(graph, id, args, &types, Signature::float(op.arity()), out),
            Node::Reduce { monoid, over, args } => reduced(graph, id, *monoid, *over, args, &types, out),
        };
        types.push(found);
    }
    types
}

fn typed(
    graph: &Graph,
    id: NodeId,
    args: &[NodeId],
    types: &[Option<Type>],
    arity: usize,
    out: &mut Vec<Diagnostic>,
) -> Option<Vec<Type>> {
    if args.len() != arity {
        let node = graph.node(id);
        let operands = if arity == 1 { "operand" } else { "operands" };
        let message = format!("`{}` takes {arity} {operands}, not {}", node.mnemonic(), args.len());
        let help = match node {
            Node::Call { function, .. } => format!("pass {arity} {operands}: {}", function.parameters.join(", ")),
            Node::Apply { op, .. } => format!("pass {arity} {operands}: {}", op.row().doc.trim()),
            Node::Gather { .. } => "pass the index, as in `e.gather(\"table\", F32, e.row())`".into(),
            _ => format!("pass the {arity} {operands} it was registered with"),
        };
        out.push(Diagnostic::new(graph, "E0202", FaultSite::Node(id), &message).mark(Part::Subject, "").help(&help));
        return None;
    }
    let operands: Option<Vec<Type>> = args.iter().map(|a| types[a.index()]).collect();
    let operands = operands?;
    if operands.iter().any(|operand| operand.axes.contains(K)) {
        let message = format!("`{}` takes an element of an operand of the product", graph.node(id).mnemonic());
        let mut diagnostic = Diagnostic::new(graph, "E0204", FaultSite::Node(id), &message).help(ELEMENT);
        for (index, operand) in operands.iter().enumerate().filter(|(_, operand)| operand.axes.contains(K)) {
            diagnostic = diagnostic.mark(Part::Operand(index), &operand.to_string());
        }
        out.push(diagnostic);
        return None;
    }
    Some(operands)
}

/// The help for a misused element of an operand.
pub(super) const ELEMENT: &str = "an operand's element exists only inside the product: sum it over K, as it is, with \
                                  `e.reduce(\"sums\", e.b(), Monoid::Sum, F32.over(N))`, of `e.a()` over M";

/// The fault of an argument that varies along K, and the cure.
pub(super) const ALONG_K: &str = "varies along K, which only the operands of the product do";
pub(super) fn along_k(fault: Diagnostic) -> Diagnostic {
    fault.mark(Part::Format, "").help("name axes of the output, which are M, N and L; the product's operands are `a` and `b`")
}

/// The fault of an argument with elements of four bits, and the cure.
pub(super) fn four_bits(fault: Diagnostic) -> Diagnostic {
    fault.mark(Part::Format, "").help("use a format of at least eight bits, such as `I8`; `a` or `b` may have four")
}

/// The fault of an argument's default whose type is not that of the argument's values.
fn other_default(graph: &Graph, id: NodeId, default: Constant, value: ValueType) -> Option<Diagnostic> {
    let found = default.value_type();
    let number = match value {
        ValueType::F32 | ValueType::F64 => "a floating-point number, such as `0.0`",
        ValueType::I32 => "an integer, such as `0`",
        ValueType::Bool => "`true` or `false`",
    };
    (found != value).then(|| {
        Diagnostic::new(graph, "E0111", FaultSite::Node(id), &format!("the default of an argument of {value} is of type {found}"))
            .mark(Part::Format, &format!("holds {value} values"))
            .mark(Part::Default, "")
            .help(&format!("write {number}"))
    })
}

/// The element of a table: it varies along the index's axes.
fn gathered(
    graph: &Graph,
    id: NodeId,
    dtype: DType,
    args: &[NodeId],
    types: &[Option<Type>],
    out: &mut Vec<Diagnostic>,
) -> Option<Type> {
    if dtype.is_packed() {
        let fault = Diagnostic::new(graph, "E0110", FaultSite::Node(id), &format!("a table of {dtype} cannot be gathered from"));
        let help = "give the table a format of at least one byte an element, such as `Bool`";
        out.push(fault.mark(Part::Format, "several elements share a byte").help(help));
        return None;
    }
    let operands = typed(graph, id, args, types, 1, out)?;
    if operands[0].value != ValueType::I32 {
        let fault = Diagnostic::new(graph, "E0201", FaultSite::Node(id), "`gather` takes an i32 index");
        let help = "load the index as an integer format, or insert `.cast(I32)`";
        out.push(fault.mark(Part::Operand(0), &operands[0].to_string()).help(help));
        return None;
    }
    Some(Type { value: dtype.value_type(), axes: graph.axes(id) })
}

/// The result of a reduction inside the graph. It varies along the axes of its operands that the reduction does not go
/// over.
fn reduced(
    graph: &Graph,
    id: NodeId,
    monoid: Monoid,
    over: Over,
    args: &[NodeId],
    types: &[Option<Type>],
    out: &mut Vec<Diagnostic>,
) -> Option<Type> {
    let new = |code, message: &str| Diagnostic::new(graph, code, FaultSite::Node(id), message);
    if !over.is_meaningful() {
        let message = format!("a reduction over {over}, which is not a set of axes of the output");
        out.push(new("E0207", &message).mark(Part::Format, "").help(
            "reduce over M, N, L or some of them, one of M and N perhaps in bands of at least 1: `x.sum_over(N)`, \
             `x.sum_over(N.bands(64))`",
        ));
        return None;
    }
    let values: Vec<Option<Type>> = args.iter().map(|a| types[a.index()]).collect();
    let faults = out.len();
    sinks::check_element(
        &values,
        monoid,
        &new,
        "reduce over one of M and N, or give the index: `e.reduce_over([value, index], ..)`",
        out,
    );
    if out.len() > faults {
        return None;
    }
    let operands = typed(graph, id, args, types, monoid.arity(), out)?;
    Some(Type { value: monoid.gives(operands[0].value), axes: graph.axes(id) })
}

/// The signature of a function: it also takes integers or `f64`s throughout, if its body does. See [`Function::apart`].
fn called(function: &Function, args: &[NodeId], types: &[Option<Type>], inside: &[&Function]) -> Signature {
    let arity = function.parameters.len();
    let is_given = |value| args.iter().any(|a| types[a.index()].is_some_and(|t| t.value == value));
    let takes = |value| is_given(value) && is_defined_over(value, function, inside);
    match (takes(ValueType::I32), takes(ValueType::F64)) {
        (true, _) => Signature::numeric(arity),
        (_, true) => Signature::floating(arity),
        _ => Signature::float(arity),
    }
}

/// Whether a function's body is well typed over arguments of this type, with a result of the same type. The body of a
/// function that calls itself is not; that is reported elsewhere.
fn is_defined_over(value: ValueType, function: &Function, inside: &[&Function]) -> bool {
    if inside.contains(&function) {
        return false;
    }
    let (body, result) = function.apart(value);
    let mut faults = Vec::new();
    let types = infer_inside(&body, &[inside, &[function]].concat(), &mut faults);
    faults.is_empty() && types.get(result.index()).is_some_and(|t| t.is_some_and(|t| t.value == value))
}

fn of_signature(
    graph: &Graph,
    id: NodeId,
    args: &[NodeId],
    types: &[Option<Type>],
    signature: Signature,
    out: &mut Vec<Diagnostic>,
) -> Option<Type> {
    let operands = typed(graph, id, args, types, signature.arity(), out)?;
    let value = result(graph, id, signature, &operands, out)?;
    Some(Type { value, axes: graph.axes(id) })
}

/// The message and the help for a primitive with an `f64` beside another type: how to write a number beside an `f64`.
const NUMBERS: &str = "operands of one type";
const NUMBER: &str = "a number to the left of an operator is an f32, and so is one that ends in `f32`: write it to the right, \
                      as in `z * 0.1`, or as `e.constant(0.1)`";

/// Whether all operands that are not `f64` are `f32` constants, which the program meant as `f64`.
fn takes_numbers(graph: &Graph, id: NodeId, values: &[ValueType]) -> bool {
    let is_number = |arg: &NodeId| matches!(graph.node(*arg), Node::Constant(Constant::F32(_)));
    graph.node(id).args().iter().zip(values).all(|(arg, value)| *value == ValueType::F64 || is_number(arg))
}

/// The type of the result, or a diagnostic that marks each operand with its type.
fn result(graph: &Graph, id: NodeId, signature: Signature, operands: &[Type], out: &mut Vec<Diagnostic>) -> Option<ValueType> {
    use ValueType::{Bool, F32, F64, I32};
    let values: Vec<ValueType> = operands.iter().map(|t| t.value).collect();
    if let Some(found) = signature.result(&values) {
        return Some(found);
    }
    let has_condition = values.contains(&Bool);
    let has_double = values.contains(&F64);
    let is_conditional = signature == Signature::Select && values[0] == Bool;
    let (wants, help) = match signature {
        Signature::Same { takes: [F32], .. } => ("f32 operands", "insert `.cast(F32)` on the operand that is not f32"),
        Signature::Same { takes: [F32, F64, ..], .. } if has_double && takes_numbers(graph, id, &values) => (NUMBERS, NUMBER),
        Signature::Same { takes: [F32, F64, ..], .. } if has_double && !has_condition => {
            (NUMBERS, "insert `.cast(F64)` on the operand that is not f64")
        }
        Signature::Same { takes: [F32, F64], .. } => ("f32 operands", "insert `.cast(F32)` on the operand that is not f32"),
        Signature::Same { takes: [I32], .. } => ("i32 operands", "insert `.cast(I32)` on the operand that is not i32"),
        Signature::Same { takes: [F32, F64, I32], .. } if has_condition && has_double => {
            (NUMBERS, "choose between numbers with `select`, or insert `.cast(F64)` on the condition")
        }
        Signature::Same { takes: [F32, F64, I32], .. } if has_condition => {
            ("operands all f32 or all i32", "choose between numbers with `select`, or insert `.cast(F32)` on the condition")
        }
        Signature::Same { takes: [F32, F64, I32], .. } => (
            "operands all f32 or all i32",
            "insert `.cast(F32)` on an integer, or write a constant in the other operand's type (`2.0`, not `2`)",
        ),
        Signature::Same { takes: [Bool, I32], .. } => (
            "operands all conditions or all i32",
            "compare a number with something, or insert `.cast(Bool)`; for the bits of an f32 take its `.to_bits()`",
        ),
        Signature::Same { .. } => (
            "operands of one type",
            "insert `.cast(F32)` on an integer, or write a constant in the other operand's type (`2.0`, not `2`)",
        ),
        Signature::Select if is_conditional && has_double => {
            ("a condition and two operands of one type", "insert `.cast(F64)` on the arm that is not f64")
        }
        Signature::Select if is_conditional => (
            "a condition and two operands of one type",
            "insert `.cast(F32)` on the arm that is not f32, or write a constant in the other arm's type (`0.0`, not `0`)",
        ),
        Signature::Select => {
            ("a condition and two operands of one type", "make the condition a comparison, or insert `.cast(Bool)`")
        }
        Signature::Convert(_) => ("one operand", "pass the value to be converted"),
    };
    let name = graph.node(id).mnemonic();
    let mut diagnostic = Diagnostic::new(graph, "E0201", FaultSite::Node(id), &format!("`{name}` takes {wants}")).help(help);
    // In a select, either the condition is wrong or its arms do not fit each other.
    let blamed = match signature {
        Signature::Select if is_conditional => 1..3,
        Signature::Select => 0..1,
        _ => 0..operands.len(),
    };
    for (index, operand) in operands.iter().enumerate().filter(|(index, _)| blamed.contains(index)) {
        diagnostic = diagnostic.mark(Part::Operand(index), &operand.to_string());
    }
    out.push(diagnostic);
    None
}
