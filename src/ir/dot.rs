//! Drawing: the graph in Graphviz's DOT language.

use super::graph::{Constant, Graph, Node, NodeId};
use super::{name, text};
use std::fmt::Write;

/// The graph as a DOT document: leaves are boxes, sinks are cylinders, everything else ellipses; each with its type.
///
/// Every label is a JSON string without DOT's own escapes, so that no name can end its label.
pub fn dot(graph: &Graph, type_of: impl Fn(NodeId) -> String) -> String {
    let mut out = String::from("digraph epilogue {\n  rankdir=TB;\n  node [fontname=\"monospace\"];\n");
    for (id, node) in graph.nodes() {
        let (shape, detail) = match node {
            Node::Load { name, operand, default } => ("box", format!("{name}: {operand}{}", or(*default))),
            Node::Gather { name, dtype, .. } => ("box", format!("{name}: {dtype}")),
            Node::Scalar { name, default, .. } => ("box", format!("{name}{}", or(*default))),
            Node::Constant(_) => ("plaintext", text::node_line(graph, id, None).text.split(' ').next_back().unwrap_or("").into()),
            Node::Accumulator(_) | Node::Element(..) | Node::Coordinate(_) => ("box", String::new()),
            Node::Reduce { monoid, over, .. } => ("ellipse", format!("{} {over}", monoid.word())),
            _ => ("ellipse", String::new()),
        };
        let label = label(&[node.mnemonic(), &detail, &type_of(id)]);
        let _ = writeln!(out, "  n{} [shape={shape}, label={label}];", id.index());
        for (i, arg) in node.args().iter().enumerate() {
            let _ = writeln!(out, "  n{} -> n{}{};", arg.index(), id.index(), order(i, node.args().len()));
        }
    }
    for (index, sink) in graph.sinks().iter().enumerate() {
        let what = format!("{} {}", sink.kind.name(), sink.kind.parameters());
        let label = label(&[what.trim_end(), &sink.name, &sink.kind.operand().to_string()]);
        let _ = writeln!(out, "  s{index} [shape=cylinder, label={label}];");
        for (i, value) in sink.values.iter().enumerate() {
            let _ = writeln!(out, "  n{} -> s{index}{};", value.index(), order(i, sink.values.len()));
        }
    }
    out + "}\n"
}

/// The value of an argument that is left out.
fn or(default: Option<Constant>) -> String {
    default.map(|default| format!(" or {default}")).unwrap_or_default()
}

/// The label of an edge to one of several operands.
fn order(operand: usize, count: usize) -> String {
    if count > 1 { format!(" [label=\"{operand}\", fontsize=9]") } else { String::new() }
}

fn label(parts: &[&str]) -> String {
    let mut text = String::from("\"");
    for (i, part) in parts.iter().filter(|p| !p.is_empty()).enumerate() {
        if i > 0 {
            text.push_str("\\n");
        }
        for c in part.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if name::is_unseen(c) => {
                    text.extend(c.escape_default().flat_map(|e| if e == '\\' { vec!['\\', '\\'] } else { vec![e] }))
                }
                c => text.push(c),
            }
        }
    }
    text.push('"');
    text
}
