//! Definitions of calls and custom primitives. A document contains only their names. After the check, bodies replace
//! calls without another check.

use super::diagnostic::{Diagnostic, FaultSite, Part};
use super::types;
use crate::dtype::ValueType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::name::word;
use crate::ir::{CustomOp, Function, Op, text};
use std::collections::{HashMap, HashSet};

/// Checks names and bodies. The bodies of `activations` are known to be correct.
pub(super) fn check(graph: &Graph, activations: &[&'static Function], out: &mut Vec<Diagnostic>) {
    check_names(graph, activations, out);
    let mut bodies = Bodies { graph, seen: activations.iter().copied().collect(), chain: Vec::new(), out };
    for (id, node) in graph.nodes() {
        if let Node::Call { function, .. } = node {
            bodies.visit(function, id);
        }
    }
}

/// The definition of a name.
#[derive(Clone, Copy, PartialEq)]
enum Definition<'g> {
    Function(&'static Function),
    Custom(&'g CustomOp),
}

/// A document in which one name has two definitions could not be read.
fn check_names(graph: &Graph, activations: &[&'static Function], out: &mut Vec<Diagnostic>) {
    let mut first: HashMap<(&str, &str), (NodeId, Definition)> = HashMap::new();
    for (id, node) in graph.nodes() {
        let (kind, definition) = match node {
            Node::Call { function, .. } => ("functions", Definition::Function(function)),
            Node::Custom { op, .. } => ("custom primitives", Definition::Custom(op)),
            _ => continue,
        };
        let name = node.mnemonic();
        let fault = |code, message: String| Diagnostic::new(graph, code, FaultSite::Node(id), &message);
        if let Definition::Function(function) = definition
            && let Some(activation) = activations.iter().find(|activation| activation.name == name)
        {
            if *activation != function {
                out.push(
                    fault("E0108", format!("`{name}` is an activation, and this is another function"))
                        .mark(Part::Subject, "another definition")
                        .help("give the function a name of its own, or call the activation"),
                );
            }
            continue;
        }
        let (earlier, other) = *first.entry((kind, name)).or_insert((id, definition));
        if other != definition {
            out.push(
                fault("E0108", format!("`{}` names two {kind}", word(name)))
                    .mark(Part::Subject, "another definition")
                    .note(graph, "it is first used here", FaultSite::Node(earlier))
                    .help("give each definition a name of its own"),
            );
        } else if earlier == id && matches!(definition, Definition::Function(_)) && !text::is_free(name) {
            let message = match Op::from_name(name) {
                Some(_) => format!("`{name}` is a primitive, and this is a function"),
                None => format!("`{}` is not a name for a function", word(name)),
            };
            out.push(fault("E0109", message).mark(Part::Subject, "").help(
                "use one visible word without another meaning in the text form, where a line that calls the function begins \
                 with it",
            ));
        }
    }
}

/// The bodies of functions. Each is checked once.
struct Bodies<'c> {
    graph: &'c Graph,
    seen: HashSet<&'static Function>,
    /// The functions whose bodies led here, each calling the next.
    chain: Vec<&'static Function>,
    out: &'c mut Vec<Diagnostic>,
}

impl Bodies<'_> {
    /// Checks a function's body, and those of the functions that it calls. `call` is the call in the graph that led here.
    fn visit(&mut self, function: &'static Function, call: NodeId) {
        if let Some(at) = self.chain.iter().position(|caller| *caller == function) {
            let name = |f: &Function| format!("`{}`", word(f.name));
            let through: Vec<String> = self.chain[at + 1..].iter().map(|f| name(f)).collect();
            let through = if through.is_empty() { String::new() } else { format!(" through {}", through.join(" and ")) };
            self.fault(
                "E0206",
                call,
                &format!("{} calls itself{through}", name(function)),
                "end the recursion: what a call stands for is written out before a kernel is made",
            );
            return;
        }
        if !self.seen.insert(function) {
            return;
        }
        let (body, result) = function.apart(ValueType::F32);
        self.check_body(function, &body, result, call);
        self.chain.push(function);
        for (_, node) in body.nodes() {
            if let Node::Call { function, .. } = node {
                self.visit(function, call);
            }
        }
        self.chain.pop();
    }

    fn check_body(&mut self, function: &Function, body: &Graph, result: NodeId, call: NodeId) {
        const CODE: &str = "E0205";
        let name = match self.chain.last() {
            Some(caller) => format!("the body of `{}`, which `{}` calls,", word(function.name), word(caller.name)),
            None => format!("the body of `{}`", word(function.name)),
        };
        let parameters = function.parameters.len();
        for (id, node) in body.nodes() {
            let leaf = match node {
                Node::Scalar { .. } => id.index() >= parameters,
                Node::Accumulator(_) | Node::Element(..) | Node::Coordinate(_) => true,
                Node::Load { .. } | Node::Gather { .. } => true,
                Node::Reduce { .. } => {
                    let message = format!("{name} reduces, and a function works on one element");
                    return self.fault(CODE, call, &message, "reduce in the epilogue, and pass the result as an argument");
                }
                Node::Constant(_) | Node::Apply { .. } | Node::Call { .. } | Node::Custom { .. } => false,
            };
            if leaf {
                let message = format!("{name} uses `{}`, which is not one of its arguments", node.mnemonic());
                let help = "pass the value as an argument: only those and constants reach a body";
                return self.fault(CODE, call, &message, help);
            }
        }
        if !body.sinks().is_empty() {
            return self.fault(
                CODE,
                call,
                &format!("{name} stores something"),
                "store in the epilogue: a body only gives a value",
            );
        }
        let mut faults = Vec::new();
        let types = types::infer(body, &mut faults);
        for inner in &faults {
            let fault = self.new_fault(CODE, call, &format!("{name} is wrong: {}", inner.message()), inner.cure());
            self.out.push(match inner.order() {
                Some(index) => fault.note(body, "it is this line of the body", FaultSite::Node(NodeId(index as u32))),
                None => fault,
            });
        }
        match types.get(result.index()).filter(|_| types.len() >= parameters) {
            None => {
                let help = "return a value of the graph that the body receives, and do not replace that graph";
                self.fault(CODE, call, &format!("{name} gives a value of another graph"), help);
            }
            Some(Some(found)) if found.value != ValueType::F32 => {
                let help = "end it with a conversion (`Op::ToF32`), or with a `select` between numbers";
                self.fault(CODE, call, &format!("{name} gives {}, and a function's value is f32", found.value), help);
            }
            Some(_) => {}
        }
    }

    fn new_fault(&self, code: &'static str, call: NodeId, message: &str, help: &str) -> Diagnostic {
        Diagnostic::new(self.graph, code, FaultSite::Node(call), message).mark(Part::Subject, "").help(help)
    }

    fn fault(&mut self, code: &'static str, call: NodeId, message: &str, help: &str) {
        let fault = self.new_fault(code, call, message, help);
        self.out.push(fault);
    }
}
