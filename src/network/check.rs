//! The check of a network: from a [`Graph`] to types for every edge, or to every diagnostic at once.

use super::fault::Fault;
use super::graph::{EdgeId, Graph, Node, NodeId, Source};
use super::operator::Kind;
use super::print;
use super::tensor::Tensor;
use super::types::{Dim, Type};
use crate::ir::name::{seen, word};
use std::collections::HashSet;
use std::fmt;
use std::panic::Location;

/// One broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkDiagnostic {
    code: &'static str,
    message: String,
    line: Option<String>,
    built_at: Option<String>,
    note: Option<String>,
    help: String,
}

impl NetworkDiagnostic {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> NetworkDiagnostic {
        let message = seen(&message.into());
        NetworkDiagnostic { code, message, line: None, built_at: None, note: None, help: seen(&help.into()) }
    }

    /// At a line of Rust.
    pub(crate) fn at(mut self, built_at: Option<&'static Location<'static>>) -> NetworkDiagnostic {
        self.built_at = built_at.map(ToString::to_string);
        self
    }

    /// A fault of a node.
    fn of(graph: &Graph, types: &[Option<Type>], node: &Node, fault: &Fault) -> NetworkDiagnostic {
        let mut diagnostic = NetworkDiagnostic::new(fault.code(), fault.to_string(), fault.cure()).at(node.built_at);
        diagnostic.line = Some(print::node_line(graph, node, |edge| types[edge.index()].as_ref().map(ToString::to_string)));
        let typed = |edge: &EdgeId| {
            let name = word(&graph.edge(*edge).name);
            types[edge.index()].as_ref().map(|t| format!("{name} is {t}"))
        };
        let inputs: Vec<String> = node.inputs.iter().flatten().filter_map(typed).collect();
        diagnostic.note = (!inputs.is_empty()).then(|| inputs.join(", "));
        diagnostic
    }

    /// The rule's code, as listed in [`network`](super).
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn cure(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for NetworkDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(at) = &self.built_at {
            writeln!(f, "  --> {at}")?;
        }
        if let Some(line) = &self.line {
            writeln!(f, "   |\n   | {line}")?;
        }
        writeln!(f, "   |")?;
        if let Some(note) = &self.note {
            writeln!(f, "   = note: {note}")?;
        }
        write!(f, "   = help: {}", self.help)
    }
}

/// Every broken rule of one network, in the order of its listing. Never empty.
#[derive(Clone, PartialEq)]
pub struct NetworkDiagnostics(Vec<NetworkDiagnostic>);

impl NetworkDiagnostics {
    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, NetworkDiagnostic> {
        self.0.iter()
    }
}

impl fmt::Display for NetworkDiagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file may have as many faults as nodes.
        const SHOWN: usize = 50;
        for diagnostic in self.0.iter().take(SHOWN) {
            writeln!(f, "{diagnostic}\n")?;
        }
        let (count, hidden) = (self.0.len(), self.0.len().saturating_sub(SHOWN));
        write!(f, "{count} error{} in the network", if count == 1 { "" } else { "s" })?;
        if hidden == 0 { Ok(()) } else { write!(f, ", {hidden} of them not shown") }
    }
}

/// The same as [`Display`](fmt::Display), on lines of its own.
impl fmt::Debug for NetworkDiagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for NetworkDiagnostics {}

/// What the check found out about every edge.
pub(crate) struct Findings {
    pub types: Vec<Type>,
    /// Tensors that follow from shapes and constants, and are small.
    pub values: Vec<Option<Tensor>>,
}

/// The most characters of the name of an input or output. Exporters write paths of modules.
const LONGEST: usize = 1024;

/// The longest extent: beyond it sizes might overflow.
const LONGEST_EXTENT: usize = 1 << 40;

/// The most elements of a tensor that the check computes.
const SMALL: usize = 1024;

/// Types every edge of a graph. `early` are faults that were found before.
///
/// # Errors
/// Every broken rule.
pub(crate) fn check(graph: &Graph, early: Vec<NetworkDiagnostic>) -> Result<Findings, NetworkDiagnostics> {
    let mut faults = early;
    names(graph, &mut faults);
    let mut types: Vec<Option<Type>> = vec![None; graph.edges.len()];
    let mut values: Vec<Option<Tensor>> = vec![None; graph.edges.len()];
    for (id, edge) in graph.edges() {
        match &edge.source {
            Source::Input(of) => {
                let fault = too_long(of).map(|fault| NetworkDiagnostic::new(fault.code(), fault.to_string(), fault.cure()));
                faults.extend(fault);
                types[id.index()] = Some(of.clone());
            }
            Source::Constant(tensor) => {
                types[id.index()] = Some(Type::of(tensor));
                values[id.index()] = Some(tensor.clone());
            }
            Source::Node(..) => {}
        }
    }
    for (id, node) in graph.nodes() {
        let misfits = node.misfits();
        if !misfits.is_empty() {
            faults.extend(misfits.iter().map(|fault| NetworkDiagnostic::of(graph, &types, node, fault)));
            continue;
        }
        if let Some(late) = node.inputs.iter().flatten().find(|edge| comes_later(graph, **edge, id)) {
            let name = word(&graph.edge(*late).name);
            faults.push(NetworkDiagnostic::new("N0104", format!("{name} is used before it is computed"), "sort the nodes"));
            continue;
        }
        // A node behind a faulty one has no types to go by.
        if node.inputs.iter().flatten().any(|edge| types[edge.index()].is_none()) {
            continue;
        }
        let found = {
            let inputs: Vec<Option<&Type>> =
                node.inputs.iter().map(|edge| edge.and_then(|edge| types[edge.index()].as_ref())).collect();
            let constants: Vec<Option<&Tensor>> =
                node.inputs.iter().map(|edge| edge.and_then(|edge| values[edge.index()].as_ref())).collect();
            node.types(&inputs, &constants)
        };
        match found {
            Ok(found) => {
                faults.extend(found.iter().filter_map(too_long).map(|fault| NetworkDiagnostic::of(graph, &types, node, &fault)));
                for (output, found) in node.outputs.iter().zip(found) {
                    types[output.index()] = Some(found);
                }
                propagate(node, &mut types, &mut values);
            }
            Err(fault) => faults.push(NetworkDiagnostic::of(graph, &types, node, &fault)),
        }
    }
    if !faults.is_empty() {
        return Err(NetworkDiagnostics(faults));
    }
    Ok(Findings { types: types.into_iter().flatten().collect(), values })
}

/// A fault of a type one of whose extents is longer than any tensor.
fn too_long(of: &Type) -> Option<Fault> {
    let longest = of.dims.iter().flatten().filter_map(Dim::known).max()?;
    (longest > LONGEST_EXTENT).then(|| Fault::TooLarge { shape: vec![longest] })
}

fn comes_later(graph: &Graph, edge: EdgeId, node: NodeId) -> bool {
    graph.producer(edge).is_some_and(|producer| producer >= node)
}

/// Computes small tensors of extents, so that shapes that a network computes are known.
pub(super) fn propagate(node: &Node, types: &mut [Option<Type>], values: &mut [Option<Tensor>]) {
    let small = |edge: &EdgeId| {
        let shape = types[edge.index()].as_ref().and_then(Type::shape);
        shape.is_some_and(|shape| shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).is_some_and(|n| n <= SMALL))
    };
    let found = if node.operator_name() == "Shape" {
        let known = node.inputs[0].and_then(|edge| types[edge.index()].as_ref()?.dims.clone());
        let Some(dims) = known else { return };
        let (start, end) = super::meaning::layout::shape_range(&node.attributes, dims.len());
        let part: Option<Vec<i64>> =
            dims.get(start..end.max(start)).unwrap_or_default().iter().map(|dim| Some(dim.known()? as i64)).collect();
        part.map(|extents| vec![Tensor::indices(&extents)])
    } else {
        let inputs: Option<Vec<Option<&Tensor>>> = node
            .inputs
            .iter()
            .map(|edge| edge.map_or(Some(None), |edge| values[edge.index()].as_ref().filter(|t| t.len() <= SMALL).map(Some)))
            .collect();
        let shapes_follow = node.inputs.iter().any(Option::is_some) || node.operator_name() == "Constant";
        // Windows may be long where tensors are short, and a program's operators are its own.
        let short = !matches!(node.kind(), Kind::Pooling(_) | Kind::Anchor(_) | Kind::Normalisation(_));
        let row = !matches!(node.operator, super::graph::Applied::Custom(_)) && short;
        match inputs {
            Some(inputs) if row && shapes_follow && node.outputs.iter().all(small) => node.evaluate(&inputs).ok(),
            _ => None,
        }
    };
    for (output, tensor) in node.outputs.iter().zip(found.into_iter().flatten()) {
        types[output.index()] = Some(Type::of(&tensor));
        values[output.index()] = Some(tensor);
    }
}

/// Names of inputs and outputs: one word each, and no two alike.
fn names(graph: &Graph, faults: &mut Vec<NetworkDiagnostic>) {
    let inputs = graph.inputs.iter().map(|edge| (&graph.edge(*edge).name, "inputs"));
    let outputs = graph.outputs.iter().map(|(name, _)| (name, "outputs"));
    let mut taken = HashSet::new();
    for (name, what) in inputs.chain(outputs) {
        if name.is_empty() || name.chars().count() > LONGEST {
            let message = format!("{} is no name: one has 1 to {LONGEST} characters", word(name));
            faults.push(NetworkDiagnostic::new("N0102", message, "rename it"));
        }
        if !taken.insert((name, what)) {
            let message = format!("two {what} have the name {}", word(name));
            faults.push(NetworkDiagnostic::new("N0103", message, "rename one of them"));
        }
    }
    if graph.outputs.is_empty() {
        faults.push(NetworkDiagnostic::new("N0101", "the network has no output", "name one with `g.output(\"y\", y)`"));
    }
}

/// The symbols of a graph's inputs, in order of their first use.
pub(crate) fn symbols(graph: &Graph) -> Vec<std::sync::Arc<str>> {
    let mut out = Vec::new();
    for edge in &graph.inputs {
        let Source::Input(Type { dims: Some(dims), .. }) = &graph.edge(*edge).source else { continue };
        for dim in dims {
            if let Dim::Symbol(name) = dim
                && !out.contains(name)
            {
                out.push(name.clone());
            }
        }
    }
    out
}
