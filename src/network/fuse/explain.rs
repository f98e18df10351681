//! A fused network in words: kernels with their nodes, and every edge that is left in memory, with the reason.

use super::kernel::Kernel;
use super::memory::traffic;
use super::{Fused, Step};
use crate::ir::name::word;
use crate::network::graph::{EdgeId, NodeId};
use crate::problem::Operation;
use std::fmt::Write as _;

/// Bytes in a unit that fits.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

impl Kernel {
    /// The operation and its extents, in words.
    pub(super) fn measures(&self) -> String {
        match self.gemm.operation() {
            Operation::Pool { .. } => self.gemm.operation().to_string(),
            Operation::Pointwise { .. } => format!("over {} x {}", self.shape.m, self.shape.n),
            product => format!("{product} {}", self.shape),
        }
    }
}

impl Fused {
    /// The kernels in order, each with its nodes; for every edge between kernels why it was not fused; launches, bytes
    /// moved and memory, before and after.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        let graph = self.network.graph();
        let did = &self.simplified;
        if did.quantised > 0 {
            let _ = writeln!(out, "{} products of quantised numbers are products of eight bits", did.quantised);
        }
        for (name, why) in &did.unquantised {
            let _ = writeln!(out, "{} is not a product of eight bits: {why}", word(name));
        }
        if did.attentions > 0 {
            let _ = writeln!(out, "{} attentions take the place of two products and a softmax each", did.attentions);
        }
        for (name, why) in &did.unattended {
            let _ = writeln!(out, "{} and the softmax before it are not one attention: {why}", word(name));
        }
        let _ = writeln!(
            out,
            "{} nodes, of which {} were folded, {} shared, {} dead, {} batch norms and {} products beside others; {} are views",
            did.before,
            did.folded,
            did.shared,
            did.dead,
            did.batch_norms,
            did.merged,
            self.free.len()
        );
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Kernel(kernel) => {
                    let _ = writeln!(out, "kernel {at}: {} ({})", kernel.title(&self.network), kernel.measures());
                    self.explain_edges(&mut out, kernel);
                }
                Step::Node { node, why } => {
                    let node = graph.node(*node);
                    let _ = writeln!(out, "on the CPU {at}: {} {}: {why}", node.operator_name(), word(&node.name));
                }
            }
        }
        let (before, after) = (self.traffic_before(), traffic(self));
        let _ = writeln!(out, "launches   {} instead of {}", self.steps.len(), did.before);
        let _ = writeln!(out, "moved      {} instead of {}", size(after), size(before));
        let memory = &self.memory;
        let _ = writeln!(
            out,
            "memory     {} for {} of tensors; at least {} are alive at a time",
            size(memory.peak),
            size(memory.sum),
            size(memory.bound)
        );
        out
    }

    /// The edges that a kernel writes for others, each with its readers and the reason.
    fn explain_edges(&self, out: &mut String, kernel: &Kernel) {
        let graph = self.network.graph();
        for access in kernel.accesses.iter().filter(|access| access.written) {
            let name = word(&graph.edge(access.edge).name);
            let of = self.network.type_of(access.edge);
            let mut reasons: Vec<&str> = graph
                .nodes()
                .filter(|(id, _)| !kernel.nodes.contains(id))
                .flat_map(|(id, node)| node.inputs.iter().flatten().map(move |edge| (id, *edge)))
                .filter(|(_, edge)| self.root(*edge) == access.edge)
                .filter_map(|(id, edge)| self.reason(edge, id))
                .collect();
            if graph.outputs().iter().any(|(_, edge)| self.root(*edge) == access.edge) {
                reasons.push("the caller gets it");
            }
            reasons.sort_unstable();
            reasons.dedup();
            let _ = writeln!(out, "  writes {name}: {of}, because {}", reasons.join("; "));
        }
    }

    fn reason(&self, edge: EdgeId, reader: NodeId) -> Option<&'static str> {
        self.reasons.get(&(edge, reader)).copied()
    }

    /// Bytes that move if every node is a kernel.
    fn traffic_before(&self) -> usize {
        let bytes = |edge: &EdgeId| self.network.type_of(*edge).bytes().unwrap_or(0);
        let nodes = self.network.graph().nodes().filter(|(id, _)| !self.free.contains(id));
        nodes.flat_map(|(_, node)| node.inputs.iter().flatten().chain(&node.outputs)).map(bytes).sum()
    }

    /// The network in Graphviz's DOT language, with a box around the nodes of each kernel.
    pub fn to_dot(&self) -> String {
        let groups: Vec<(String, Vec<NodeId>)> =
            self.kernels().enumerate().map(|(at, kernel)| (format!("kernel {at}"), kernel.nodes.clone())).collect();
        self.network.to_dot_grouped(&groups)
    }
}
