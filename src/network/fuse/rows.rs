//! Functions of rows: along the last axes, in a kernel that reads whole rows.

use super::group::{Group, GroupKind, Grouper};
use crate::network::graph::{Node, NodeId};
use crate::network::network::Network;
use crate::network::operator::{Kind, Normalisation, Reduction};

/// The axis at which the rows of a function begin, if it is one that kernels have and its rows are the last axes.
pub(super) fn row_axis(network: &Network, node: &Node) -> Option<usize> {
    let x = network.type_of(node.inputs.first().copied().flatten()?).shape()?;
    let axis = |default: i64| crate::network::meaning::axis(node.attributes.int_or("axis", default), x.len()).ok();
    match node.kind() {
        Kind::Normalisation(Normalisation::Softmax | Normalisation::LogSoftmax) => {
            axis(-1).filter(|axis| x[axis + 1..].iter().all(|extent| *extent == 1))
        }
        Kind::Normalisation(Normalisation::LayerNorm | Normalisation::RmsNorm) => axis(-1),
        Kind::Reduction(Reduction::Other) => None,
        Kind::Reduction(_) => {
            let axes = match node.inputs.get(1).copied().flatten() {
                Some(edge) => crate::network::meaning::axes(&network.value_of(edge)?.sizes(), x.len()).ok()?,
                None => Vec::new(),
            };
            let all = axes.is_empty() && !node.attributes.flag("noop_with_empty_axes");
            let axes: Vec<usize> = if all { (0..x.len()).collect() } else { axes };
            // Rows of one element each.
            if axes.iter().all(|axis| x[*axis] == 1) {
                return Some(x.len());
            }
            let first = *axes.first()?;
            (first..x.len()).all(|axis| axes.contains(&axis) || x[axis] == 1).then_some(first)
        }
        _ => None,
    }
}

impl Grouper<'_> {
    /// Puts a function of rows into the kernel that computes its input, if that is one over rows, or into one of its own.
    pub fn rows(&mut self, id: NodeId, node: &Node, axis: usize) {
        let Some(shape) = node.inputs.first().copied().flatten().and_then(|edge| self.shape(edge)) else { return };
        for (group, edge) in self.sources(node) {
            let Group { kind, shape: own, order, .. } = &self.groups[group];
            let obstacle = match kind {
                _ if !order.is_sorted() => Some("its rows do not lie side by side"),
                GroupKind::Pointwise if *own == shape => self.obstacle(group, node),
                GroupKind::Rows(other) if *other == axis && *own == shape => self.obstacle(group, node),
                GroupKind::Product => Some("a function of rows reads whole rows, which lie in several tiles of a product"),
                _ => Some("its reader computes another shape"),
            };
            match obstacle {
                Some(why) => {
                    self.reasons.insert((edge, id), why);
                }
                None => {
                    self.groups[group].kind = GroupKind::Rows(axis);
                    self.join(group, id, node);
                    self.absorb(group);
                    return;
                }
            }
        }
        let order = (0..shape.len()).collect();
        self.begin(id, node, GroupKind::Rows(axis), &shape, order);
    }
}
