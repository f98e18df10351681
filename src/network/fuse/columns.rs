//! Sums over rows: of all axes but the columns', in the kernel that computes the elements, or in one that reads them.
//!
//! The gradient of a bias is one: it belongs into the kernel that computes the gradient of what the bias was added to.

use super::group::{Group, GroupKind, Grouper};
use super::product;
use crate::dtype::ValueType;
use crate::ir::Monoid;
use crate::network::graph::{Node, NodeId};
use crate::network::network::Network;
use crate::network::operator::{Kind, Reduction};
use std::collections::BTreeSet;

/// The monoid of a reduction that is one, or is one of its elements' absolute values.
fn monoid_of(node: &Node) -> Option<Monoid> {
    match node.kind() {
        Kind::Reduction(Reduction::Of(monoid)) => Some(monoid),
        Kind::Reduction(Reduction::AbsoluteSum) => Some(Monoid::Sum),
        _ => None,
    }
}

/// The axes that a reduction goes over, if they are known.
fn axes(network: &Network, node: &Node) -> Option<(BTreeSet<usize>, Vec<usize>)> {
    monoid_of(node)?;
    let shape = network.type_of(node.inputs.first().copied().flatten()?).shape()?;
    let list = match node.inputs.get(1).copied().flatten() {
        Some(edge) => network.value_of(edge)?.sizes(),
        None => Vec::new(),
    };
    let axes = match list.is_empty() {
        true if node.attributes.flag("noop_with_empty_axes") => Vec::new(),
        true => (0..shape.len()).collect(),
        false => crate::network::meaning::axes(&list, shape.len()).ok()?,
    };
    Some((axes.into_iter().collect(), shape))
}

/// Whether a reduction goes over one element each: its result is its input.
pub(super) fn hands_on(network: &Network, node: &Node) -> bool {
    let same = matches!(node.kind(), Kind::Reduction(Reduction::Of(monoid)) if monoid.keeps_one());
    same && axes(network, node).is_some_and(|(axes, shape)| axes.iter().all(|axis| shape[*axis] == 1))
}

/// The axes of rows that a reduction sums over in a kernel whose elements are counted in this order, and how many they are: the
/// first ones. Axes of extent 1 may be of either.
fn rows(axes: &BTreeSet<usize>, shape: &[usize], order: &[usize]) -> Option<usize> {
    let reduced = |axis: &usize| axes.contains(axis);
    let last = order.iter().rposition(|axis| reduced(axis) && shape[*axis] != 1).map_or(0, |last| last + 1);
    let mixed = order[..last].iter().any(|axis| !reduced(axis) && shape[*axis] != 1);
    // What is left lies in the order of the network's axes, as the result does.
    let kept: Vec<usize> = order[last..].iter().copied().filter(|axis| shape[*axis] != 1).collect();
    (!mixed && kept.is_sorted() && !kept.is_empty()).then_some(last)
}

/// How many axes of a group's order are rows that a node sums over, if it does.
pub(super) fn summed(network: &Network, node: &Node, group: &Group) -> Option<usize> {
    let (axes, shape) = axes(network, node)?;
    if shape != group.shape || !network.type_of(node.outputs[0]).format.is_float() {
        return None;
    }
    rows(&axes, &shape, &group.order)
}

/// The monoid of a node that sums over the rows of a group's kernel, and not along them.
pub(super) fn monoid(network: &Network, node: &Node, group: &Group) -> Option<Monoid> {
    if matches!(group.kind, GroupKind::Rows(_)) {
        return None;
    }
    summed(network, node, group)?;
    monoid_of(node)
}

impl Grouper<'_> {
    /// Puts a reduction into the kernel that computes its elements, or into one of its own. Whether it did.
    pub fn columns(&mut self, id: NodeId, node: &Node) -> bool {
        let Some((axes, shape)) = axes(self.network, node) else { return false };
        // Elsewhere a reader would take the element for the result, which has its shape.
        let one_row = axes.iter().all(|axis| shape[*axis] == 1);
        if !self.network.type_of(node.outputs[0]).format.is_float() || shape.contains(&0) || one_row {
            return false;
        }
        for (group, edge) in self.sources(node) {
            let own = &self.groups[group];
            let fits = own.shape == shape && rows(&axes, &shape, &own.order).is_some_and(|count| self.counts(group, count));
            let obstacle = if fits { self.obstacle(group, node) } else { Some("a sum over its rows is a kernel of its own") };
            match obstacle {
                Some(why) => drop(self.reasons.insert((edge, id), why)),
                None => {
                    let count = rows(&axes, &shape, &self.groups[group].order).unwrap_or(0);
                    if self.groups[group].kind == GroupKind::Pointwise {
                        self.groups[group].kind = GroupKind::Columns(count);
                    }
                    self.join(group, id, node);
                    self.absorb(group);
                    return true;
                }
            }
        }
        let lies = node.inputs[0].and_then(|edge| self.views.get(&edge)).map(|view| view.order());
        let plain: Vec<usize> = (0..shape.len()).collect();
        // Rows that do not lie first are counted first: the kernel reads its elements through a table.
        let (first, kept): (Vec<usize>, Vec<usize>) = plain.iter().partition(|axis| axes.contains(axis));
        let orders = lies.into_iter().chain([plain, [first, kept].concat()]);
        let Some((count, order)) = orders.filter_map(|order| Some((rows(&axes, &shape, &order)?, order))).next() else {
            return false;
        };
        self.begin(id, node, GroupKind::Columns(count), &shape, order);
        true
    }

    /// Whether the first axes of a group's order are the rows of its kernel.
    fn counts(&self, group: usize, count: usize) -> bool {
        let Group { kind, nodes, shape, order } = &self.groups[group];
        match kind {
            GroupKind::Pointwise => true,
            GroupKind::Columns(other) => order[*other.min(&count)..*other.max(&count)].iter().all(|axis| shape[*axis] == 1),
            GroupKind::Product => {
                let anchor = nodes.iter().map(|id| self.network.graph().node(*id)).find(|node| self.begins(node));
                let product = anchor.and_then(|node| product::product(self.network, node, &self.views).ok());
                product.is_some_and(|product| {
                    let narrow = product.operation.accumulator() == ValueType::F32;
                    narrow && product.space.counts_rows(&order[..count])
                })
            }
            _ => false,
        }
    }
}
