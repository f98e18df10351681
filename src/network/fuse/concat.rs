//! Where results lie: memory of their own, or the memory of a concatenation, which needs no kernel. What computes a part writes
//! it into the whole.

use super::group::{Group, GroupKind, Grouper};
use super::layout::Wish;
use super::product::{self, Obstacle};
use super::view::{View, channels_last};
use super::windows;
use crate::network::graph::{EdgeId, Node, NodeId};
use crate::network::meaning::{self, layout};
use crate::network::network::Network;
use crate::network::operator::{Kind, Moves, Table};
use std::collections::{HashMap, HashSet};

/// Where a part of a concatenation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// The result of the concatenation.
    pub whole: EdgeId,
    pub axis: usize,
    /// Elements of the axis before it.
    pub start: usize,
    /// The concatenation, and which of its inputs the part is.
    pub node: NodeId,
    pub input: usize,
}

impl Home {
    /// The part's place in the whole, whose axes lie in an order.
    pub fn view(&self, part: EdgeId, shape: &[usize], whole: &[usize], order: &[usize]) -> View {
        let mut view = View::ordered(self.whole, whole, order);
        view.offset = self.start * view.dims[self.axis].1;
        shape.iter().zip(&mut view.dims).for_each(|(extent, dim)| dim.0 = *extent);
        View { source: part, ..view }
    }
}

/// Whether what a node computes gets memory of its own, which may lie anywhere.
fn writes(node: &Node) -> bool {
    match node.kind() {
        Kind::View(moves) => matches!(moves, Moves::Nothing | Moves::Blocks { .. }),
        Kind::Table(table) => table == Table::Slices,
        Kind::Opaque => false,
        _ => true,
    }
}

/// The parts that may be written in place: those of one concatenation that a kernel computes, and nobody else gets.
pub(super) fn homes(network: &Network, forced: &HashSet<EdgeId>) -> HashMap<EdgeId, Home> {
    let graph = network.graph();
    let mut homes: HashMap<EdgeId, Home> = HashMap::new();
    for (id, node) in graph.nodes().filter(|(_, node)| matches!(node.kind(), Kind::View(Moves::Join))) {
        let whole = node.outputs[0];
        let Some(shape) = network.type_of(whole).shape() else { continue };
        let Ok(axis) = meaning::axis(node.attributes.int_or("axis", 0), shape.len()) else { continue };
        let mut start = 0;
        for (input, edge) in node.inputs.iter().enumerate() {
            let Some(edge) = *edge else { continue };
            let Some(extents) = network.type_of(edge).shape().filter(|extents| extents.len() == shape.len()) else { break };
            let home = Home { whole, axis, start, node: id, input };
            start += extents[axis];
            let computed = graph.producer(edge).is_some_and(|producer| writes(graph.node(producer)));
            if computed && !forced.contains(&edge) {
                homes.entry(edge).or_insert(home);
            }
        }
    }
    homes
}

impl Grouper<'_> {
    /// The order of a tensor with a border: that of images, if it is one of images.
    pub fn padded_order(&self, node: &Node, shape: &[usize]) -> Vec<usize> {
        let from = node.inputs[0].and_then(|edge| self.views.get(&edge));
        let last = matches!(node.kind(), Kind::Table(Table::Border))
            && from.is_some_and(|from| from.order() == channels_last(shape.len()));
        if last { channels_last(shape.len()) } else { (0..shape.len()).collect() }
    }

    /// Whether strides say a view.
    pub fn says(&self, node: &Node, shape: &[usize]) -> bool {
        let from = node.inputs.first().copied().flatten().and_then(|edge| self.views.get(&edge));
        let constants: Vec<_> = node.inputs.iter().map(|edge| edge.and_then(|edge| self.network.value_of(edge))).collect();
        from.is_some_and(|from| from.behind(node, 0, shape, &constants).is_some())
    }

    /// The shape over which a copy runs: that of the result, or of what is copied in order.
    pub fn copied_shape(&self, node: &Node, shape: &[usize]) -> Vec<usize> {
        match node.inputs.first().copied().flatten().and_then(|edge| self.views.get(&edge)) {
            Some(from) if matches!(node.kind(), Kind::View(Moves::Blocks { .. })) => {
                from.blocks(node).map_or_else(|| shape.to_vec(), |blocks| blocks.shape())
            }
            Some(from) if !self.says(node, shape) => from.shape(),
            _ => shape.to_vec(),
        }
    }

    /// The order in which a copy writes. A product reads matrices either way, so what lies along columns stays so: turning it
    /// would take longer.
    pub fn copied_order(&self, node: &Node, rank: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rank).collect();
        let from =
            node.inputs[0].and_then(|edge| self.views.get(&edge)).filter(|_| matches!(node.kind(), Kind::View(Moves::Order)));
        let perm = layout::permutation(node.attributes.ints("perm"), rank).ok();
        if let (6, Kind::View(Moves::Blocks { gathers })) = (rank, node.kind()) {
            let lies_last = node.inputs[0].and_then(|edge| self.views.get(&edge)).is_some_and(windows::lie_last);
            let depth = if gathers { vec![0, 4, 5, 1, 2, 3] } else { vec![0, 2, 3, 4, 5, 1] };
            return if lies_last { depth } else { order };
        }
        let (Some(from), Some(perm), [.., _, _]) = (from, perm, &order[..]) else { return order };
        let along_columns = from.dims[perm[rank - 1]].1 != 1 && from.dims[perm[rank - 2]].1 == 1;
        let reads = |id: &NodeId| matches!(self.network.graph().node(*id).kind(), Kind::Anchor(a) if a.multiplies_matrices());
        let only_products = self.users[node.outputs[0].index()].iter().all(reads);
        let given = self.network.graph().outputs().iter().any(|(_, edge)| *edge == node.outputs[0]);
        if along_columns && only_products && !given {
            order.swap(rank - 1, rank - 2);
        }
        order
    }

    /// The order of a copy: that of its place. Else planes become channels side by side, and anything else lies in order, as
    /// what a caller gets does.
    pub fn other_order(&self, node: &Node, rank: usize) -> Vec<usize> {
        let from = node.inputs[0].and_then(|edge| self.views.get(&edge));
        let last = channels_last(rank);
        if let Some(home) = self.homes.get(&node.outputs[0]) {
            let same = if from.is_some_and(|from| from.order() == last) { last } else { (0..rank).collect() };
            return self.orders.get(&home.whole).cloned().unwrap_or(same);
        }
        let turns = from.is_some_and(View::is_contiguous) && !self.forced.contains(&node.outputs[0]);
        if turns { last } else { (0..rank).collect() }
    }

    /// A concatenation: every part lies in its place, or has to be copied there.
    pub fn place(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        let whole = node.outputs[0];
        for (input, edge) in node.inputs.iter().enumerate() {
            let lies = edge.and_then(|edge| self.views.get(&edge)).is_some_and(|view| view.root == whole);
            if !lies && self.was_copied(*edge) {
                return self.alone(id, node, "no kernel writes a part of it in its place");
            }
            if !lies {
                self.wishes.insert(Wish::Copied(id, input));
            }
        }
        let order = self.orders.get(&whole).cloned().unwrap_or_else(|| (0..shape.len()).collect());
        self.begin(id, node, GroupKind::Place, shape, order);
    }

    /// The place of a part of a concatenation, if the group can write there.
    fn home(&mut self, group: usize, edge: EdgeId, shape: &[usize]) -> Option<View> {
        let home = *self.homes.get(&edge)?;
        let whole = self.shape(home.whole)?;
        let Group { kind, nodes, order, .. } = &self.groups[group];
        // What blocks join lies as the result does.
        let order = if order.len() == shape.len() { order.clone() } else { channels_last(shape.len()) };
        let order = self.orders.get(&home.whole).filter(|known| **known == order).cloned().or_else(|| {
            let free = !self.orders.contains_key(&home.whole);
            free.then_some(order)
        })?;
        let view = home.view(edge, shape, &whole, &order);
        if *kind == GroupKind::Product {
            let anchor = nodes.iter().map(|id| self.network.graph().node(*id)).find(|node| self.begins(node))?;
            match product::product(self.network, anchor, &self.views) {
                Ok(product) => drop(product.space.written(&view)?),
                // The next grouping knows more.
                Err(Obstacle::Layout(_)) => {}
                Err(Obstacle::Other(_)) => return None,
            }
        }
        self.orders.insert(home.whole, order);
        Some(view)
    }

    /// Gives the outputs of a group's node memory of their own, or a place in a concatenation.
    pub fn own_memory(&mut self, group: usize, node: &Node) {
        let Group { order, shape: full, .. } = self.groups[group].clone();
        let blocks = matches!(node.kind(), Kind::View(Moves::Blocks { .. })) && order.len() == 6;
        for edge in &node.outputs {
            let Some(shape) = self.shape(*edge) else { continue };
            let own = if shape == full {
                View::ordered(*edge, &shape, &order)
            } else if blocks && !order.is_sorted() {
                View::ordered(*edge, &shape, &channels_last(shape.len()))
            } else {
                View::whole(*edge, &shape)
            };
            let given = self.network.graph().outputs().iter().any(|(_, output)| output == edge);
            if given && !own.is_contiguous() {
                self.wishes.insert(Wish::InOrder(*edge));
            }
            let home = if shape == full || blocks { self.home(group, *edge, &shape) } else { None };
            let view = home.or_else(|| self.as_read(node, *edge, &shape)).unwrap_or(own);
            self.views.insert(*edge, view);
        }
    }

    /// Wishes for copies of parts that a kernel would write into memory that it also reads, or twice.
    pub fn check_places(&mut self) {
        for group in self.groups.iter().filter(|group| group.kind != GroupKind::Place) {
            let nodes = || group.nodes.iter().map(|id| self.network.graph().node(*id));
            let root = |edge: &EdgeId| self.views.get(edge).map(|view| view.root);
            let own: HashSet<EdgeId> = nodes().flat_map(|node| node.outputs.iter().copied()).collect();
            let mut used: HashSet<EdgeId> = nodes()
                .flat_map(|node| node.inputs.iter().flatten())
                .filter(|edge| !own.contains(edge))
                .filter_map(root)
                .collect();
            let outputs: Vec<EdgeId> = nodes().flat_map(|node| node.outputs.iter().copied()).collect();
            for edge in outputs {
                let home = self.homes.get(&edge).filter(|home| root(&edge) == Some(home.whole));
                if let Some(home) = home.filter(|home| !used.insert(home.whole)) {
                    self.wishes.insert(Wish::Copied(home.node, home.input));
                }
            }
        }
    }
}
