//! Fusing a network: which nodes become one kernel, where tensors lie, and what is left in memory and why.
//!
//! ```
//! use postlude::network::{Network, Tensor};
//! use postlude::prelude::*;
//!
//! let network = Network::build(|g| {
//!     let x = g.input("x", F16, (64, 128));
//!     let w = g.input("w", F16, (128, 256));
//!     let b = g.input("b", F16, [256]);
//!     let scale = g.input("scale", F16, (64, 1));
//!     g.output("y", (x.matmul(w) + b).gelu() * scale);
//! })?;
//! let fused = network.fuse()?;
//! assert_eq!(fused.kernels().count(), 1); // the product, with the bias, the activation and the scale in its epilogue
//! println!("{}", fused.explain());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod columns;
mod concat;
mod explain;
mod group;
mod images;
mod kernel;
mod layout;
mod memory;
mod narrow;
mod product;
mod rows;
mod run;
mod space;
mod svg;
mod tables;
mod view;
mod windows;

pub use kernel::{Access, Kernel};
pub use memory::{MemoryPlan, Place};
pub use view::View;

use super::check::NetworkDiagnostics;
use super::graph::{EdgeId, NodeId};
use super::network::Network;
use super::operator::{Anchor, Kind};
use super::pass::Simplified;
use crate::ir::name::word;
use group::{GroupKind, Grouping, Reasons};
use kernel::Parts;
use std::collections::{HashMap, HashSet};

/// Why a network could not be fused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    /// An extent has no number yet.
    #[error("extent `{}` is not bound; bind it with `Network::bind`", .0)]
    Unbound(String),
    /// The network breaks a rule, once its extents are known.
    #[error(transparent)]
    Check(#[from] NetworkDiagnostics),
    /// A group of nodes has no epilogue, which is a fault of this library.
    #[error("nodes {} were fused, and have no kernel: {why}", word(nodes))]
    Kernel {
        /// The nodes.
        nodes: String,
        /// What is wrong.
        why: String,
    },
}

/// A step of a fused network.
#[derive(Clone, Debug)]
pub enum Step {
    /// A kernel.
    Kernel(Box<Kernel>),
    /// A node that no kernel serves, and why. It runs on the CPU alone.
    Node {
        /// The node.
        node: NodeId,
        /// Why no kernel serves it.
        why: String,
    },
}

/// A network as kernels.
#[derive(Clone, Debug)]
pub struct Fused {
    network: Network,
    steps: Vec<Step>,
    views: HashMap<EdgeId, View>,
    reasons: Reasons,
    free: Vec<NodeId>,
    simplified: Simplified,
    memory: MemoryPlan,
}

impl Network {
    /// Fuses the network, whose extents have to be numbers, after [simplifying](Network::simplified) it.
    ///
    /// # Errors
    /// If an extent is not bound.
    pub fn fuse(&self) -> Result<Fused, FuseError> {
        self.fuse_for(true)
    }

    /// [`fuse`](Network::fuse) for kernels that have attention, or have it not.
    pub(crate) fn fuse_for(&self, attends: bool) -> Result<Fused, FuseError> {
        if let Some(symbol) = self.symbols().first() {
            return Err(FuseError::Unbound(symbol.to_string()));
        }
        let (mut network, mut simplified) = self.simplified();
        if attends {
            network = super::pass::attention::lower(&network, &mut simplified);
        }
        // A tensor that a kernel cannot read in place has to be copied: found by trying, at most once for each edge and reader.
        let mut forced: HashSet<EdgeId> = outputs_in_order(&network);
        let most = self.graph().edges().count() + self.graph().nodes().map(|(_, node)| node.inputs.len()).sum::<usize>();
        for _ in 0..=most {
            let grouping = group::group(&network, forced.clone());
            if !grouping.wishes.is_empty() {
                network = layout::granted(&network, &grouping.wishes, &mut forced);
                continue;
            }
            let stuck = stuck_operands(&network, &grouping, &forced);
            if stuck.is_empty() {
                // Two products and a softmax take tensors that an attention does not.
                let alone: Vec<(String, String)> =
                    grouping.groups.iter().filter_map(|group| attention_alone(&network, group)).collect();
                if !alone.is_empty() {
                    let mut fused = self.fuse_for(false)?;
                    fused.simplified.unattended = alone;
                    return Ok(fused);
                }
                return Fused::of(network, grouping, simplified);
            }
            forced.extend(stuck);
        }
        let nodes = network.graph().nodes().map(|(_, node)| node.name.to_string()).take(8).collect::<Vec<_>>().join(", ");
        Err(FuseError::Kernel { nodes, why: "every copy into another order asks for one more".to_owned() })
    }
}

/// The name of an attention without a kernel, if a group is one, and why it has none.
fn attention_alone(network: &Network, group: &group::Group) -> Option<(String, String)> {
    let GroupKind::Alone(why) = &group.kind else { return None };
    let mut nodes = group.nodes.iter().map(|id| network.graph().node(*id));
    let attention = nodes.find(|node| matches!(node.kind(), Kind::Anchor(Anchor::Attention)))?;
    Some((attention.name.to_string(), why.clone()))
}

/// Edges that a caller gets, which have to lie in order.
fn outputs_in_order(network: &Network) -> HashSet<EdgeId> {
    network.graph().outputs().iter().map(|(_, edge)| *edge).collect()
}

/// Operands of products without a kernel that are views of another order: as copies they may have one.
fn stuck_operands(network: &Network, grouping: &Grouping, forced: &HashSet<EdgeId>) -> Vec<EdgeId> {
    let alone = grouping.groups.iter().filter(|group| matches!(group.kind, GroupKind::Alone(_)));
    let nodes = alone.flat_map(|group| &group.nodes).map(|id| network.graph().node(*id));
    let products = nodes.filter(|node| matches!(node.kind(), Kind::Anchor(_)));
    let edges = products.flat_map(|node| node.inputs.iter().flatten().copied());
    let moved = |edge: &EdgeId| grouping.views.get(edge).is_some_and(|view| !view.is_contiguous() && view.source != *edge);
    edges.filter(|edge| moved(edge) && !forced.contains(edge)).collect()
}

impl Fused {
    fn of(network: Network, grouping: Grouping, simplified: Simplified) -> Result<Fused, FuseError> {
        let Grouping { groups, views, reasons, free, .. } = grouping;
        let mut group_of: HashMap<NodeId, usize> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            group_of.extend(group.nodes.iter().map(|node| (*node, index)));
        }
        let root = |edge: EdgeId| views.get(&edge).map_or(edge, |view| view.source);
        // An edge is kept if a caller gets it, or a node of another group reads it or a view of it.
        let mut kept: HashSet<EdgeId> = network.graph().outputs().iter().map(|(_, edge)| root(*edge)).collect();
        for (id, node) in network.graph().nodes() {
            let own = group_of.get(&id);
            if own.is_none() {
                continue;
            }
            for edge in node.inputs.iter().flatten() {
                let from = network.graph().producer(root(*edge)).and_then(|producer| group_of.get(&producer));
                if from != own || root(*edge) != *edge {
                    kept.insert(root(*edge));
                }
            }
        }
        let parts = Parts { network: &network, views: &views, kept: &|edge| kept.contains(&edge) };
        let mut steps = Vec::new();
        for group in &groups {
            steps.push(match &group.kind {
                GroupKind::Place => continue,
                GroupKind::Alone(why) => Step::Node { node: group.nodes[0], why: why.clone() },
                _ => {
                    let built = kernel::kernel(group, &parts);
                    let names = || group.nodes.iter().map(|id| network.graph().node(*id).name.to_string()).collect::<Vec<_>>();
                    Step::Kernel(Box::new(built.map_err(|why| FuseError::Kernel { nodes: names().join(", "), why })?))
                }
            });
        }
        let memory = MemoryPlan::default();
        let mut fused = Fused { network, steps, views, reasons, free, simplified, memory };
        fused.memory = memory::plan(&fused);
        Ok(fused)
    }

    /// The network that was fused: simplified.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.steps.iter().filter_map(|step| if let Step::Kernel(kernel) = step { Some(&**kernel) } else { None })
    }

    /// The nodes that no kernel serves, each with the reason.
    pub fn unserved(&self) -> impl Iterator<Item = (&super::graph::Node, &str)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Node { node, why } => Some((self.network.graph().node(*node), why.as_str())),
            Step::Kernel(_) => None,
        })
    }

    /// Where tensors lie.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// The edge in whose memory an edge lies.
    pub(crate) fn root(&self, edge: EdgeId) -> EdgeId {
        self.views.get(&edge).map_or(edge, |view| view.root)
    }

    /// Where the elements of an edge lie.
    #[cfg(feature = "cuda")]
    pub(crate) fn view(&self, edge: EdgeId) -> Option<&View> {
        self.views.get(&edge)
    }

    /// The edges whose memory a step reads or writes, once each.
    fn roots(&self, step: &Step) -> HashSet<EdgeId> {
        match step {
            Step::Kernel(kernel) => kernel.accesses.iter().map(|access| access.edge).collect(),
            Step::Node { node, .. } => {
                let node = self.network.graph().node(*node);
                node.inputs.iter().flatten().chain(&node.outputs).map(|edge| self.root(*edge)).collect()
            }
        }
    }
}
