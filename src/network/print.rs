//! The listing of a network, and its drawing.

use super::graph::{EdgeId, Graph, Node, Source};
use super::network::Network;
use crate::ir::name::{shown, word};
use std::fmt;
use std::fmt::Write as _;

/// The longest line of a listing that names come from.
const LONGEST_LINE: usize = 400;

/// A node's line: outputs with their types, operator, inputs, attributes.
pub(super) fn node_line(graph: &Graph, node: &Node, typed: impl Fn(EdgeId) -> Option<String>) -> String {
    let name = |edge: &EdgeId| word(&graph.edge(*edge).name);
    let output = |edge: &EdgeId| match typed(*edge) {
        Some(t) => format!("{}: {t}", name(edge)),
        None => name(edge),
    };
    let outputs: Vec<String> = node.outputs.iter().map(output).collect();
    let inputs: Vec<String> = node.inputs.iter().map(|edge| edge.as_ref().map_or_else(|| "-".to_owned(), name)).collect();
    let mut line = format!("{} = {} {}", outputs.join(", "), word(node.operator_name()), inputs.join(", "));
    if node.attributes.iter().next().is_some() {
        let attributes: Vec<String> = node.attributes.iter().map(|(name, value)| format!("{}={value}", word(name))).collect();
        let _ = write!(line, " {{{}}}", attributes.join(", "));
    }
    shown(line.trim_end(), LONGEST_LINE)
}

/// The listing: inputs, constants, nodes in order, outputs, with the type of every edge.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = self.graph();
        for (id, edge) in graph.edges() {
            match edge.source {
                Source::Input(_) => writeln!(f, "input {}: {}", word(&edge.name), self.type_of(id))?,
                Source::Constant(_) => writeln!(f, "constant {}: {}", word(&edge.name), self.type_of(id))?,
                Source::Node(..) => {}
            }
        }
        for (_, node) in graph.nodes() {
            writeln!(f, "{}", node_line(graph, node, |edge| Some(self.type_of(edge).to_string())))?;
        }
        for (name, edge) in graph.outputs() {
            writeln!(f, "output {} = {}", word(name), word(&graph.edge(*edge).name))?;
        }
        Ok(())
    }
}

/// A word as DOT quotes it.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", shown(&escaped, LONGEST_LINE))
}

impl Network {
    /// The network in Graphviz's DOT language: a box for each node, an arrow for each use of an edge.
    pub fn to_dot(&self) -> String {
        self.to_dot_grouped(&[])
    }

    /// The same with nodes of a group in a box of their own, under its title.
    pub(crate) fn to_dot_grouped(&self, groups: &[(String, Vec<super::graph::NodeId>)]) -> String {
        let graph = self.graph();
        let mut out = String::from("digraph network {\n  node [shape=box, fontname=\"sans-serif\"];\n");
        for (id, node) in graph.nodes() {
            let _ = writeln!(out, "  n{} [label={}];", id.index(), quoted(node.operator_name()));
        }
        for (index, (title, nodes)) in groups.iter().enumerate() {
            let list: Vec<String> = nodes.iter().map(|node| format!("n{}", node.index())).collect();
            let _ = writeln!(out, "  subgraph cluster_{index} {{ label={}; {}; }}", quoted(title), list.join("; "));
        }
        for (id, edge) in graph.edges() {
            if let Source::Input(_) = edge.source {
                let label = quoted(&format!("{} {}", edge.name, self.type_of(id)));
                let _ = writeln!(out, "  e{} [label={label}, shape=ellipse];", id.index());
            }
        }
        for (id, node) in graph.nodes() {
            for edge in node.inputs.iter().flatten() {
                let label = quoted(&self.type_of(*edge).to_string());
                match graph.edge(*edge).source {
                    Source::Node(from, _) => {
                        let _ = writeln!(out, "  n{} -> n{} [label={label}];", from.index(), id.index());
                    }
                    Source::Input(_) => {
                        let _ = writeln!(out, "  e{} -> n{};", edge.index(), id.index());
                    }
                    Source::Constant(_) => {}
                }
            }
        }
        for (index, (name, edge)) in graph.outputs().iter().enumerate() {
            let _ = writeln!(out, "  o{index} [label={}, shape=ellipse];", quoted(name));
            if let Some(from) = graph.producer(*edge) {
                let _ = writeln!(out, "  n{} -> o{index};", from.index());
            }
        }
        out.push_str("}\n");
        out
    }
}
