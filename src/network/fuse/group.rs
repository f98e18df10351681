//! Grouping: which nodes become one kernel.
//!
//! Nodes are taken in order. A node joins the group of one of its inputs if the epilogue language can say it there, and no
//! other kernel would have to run in between. What decides is what an epilogue can say, not a list of patterns:
//!
//! - a product, a convolution, a pool, or a function of rows begins a group;
//! - a pointwise node joins any group whose space is its shape, with everything else that it reads loaded as operands;
//! - a function of rows joins a group without a product, whose rows are its own, and so does a norm of channels;
//! - a sum over all rows joins what computes its elements ([columns]);
//! - groups of pointwise nodes that a joining node reads join, too.
//!
//! Views have no kernel where strides say what they are.
//!
//! Convolutions and pools read and write images with their channels side by side, and so does what joins them or reads them
//! element by element: the memory of their results has another order than the axes. Where that is not to be had, the group is
//! formed all the same, and the grouping [wishes](Wish) for a copy.

use super::columns;
use super::concat::{self, Home};
use super::images;
use super::layout::Wish;
use super::narrow;
use super::product::{self, Obstacle};
use super::rows;
use super::space::Placement;
use super::tables;
use super::view::{View, channels_last};
use super::windows;
use crate::dtype::{DType, ValueType};
use crate::ir::Order;
use crate::ir::axes::{M, N};
use crate::network::graph::{EdgeId, Node, NodeId, Source};
use crate::network::meaning::layout;
use crate::network::network::Network;
use crate::network::operator::{Kind, Moves, Normalisation};
use crate::network::tensor::{Tensor, strides};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What a group computes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// Behind a product, a convolution or a pool.
    Product,
    /// Over tensors that exist, a row at a time: columns begin at this axis.
    Rows(usize),
    /// Over images that exist, each a matrix of pixels and channels.
    Images,
    /// Over tensors that exist.
    Pointwise,
    /// The same with sums over rows: the first axes, so many of them.
    Columns(usize),
    /// A copy into another order.
    Copy,
    /// A concatenation, whose parts other kernels write where they belong.
    Place,
    /// No kernel computes it, and why.
    Alone(String),
}

/// The nodes of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub kind: GroupKind,
    pub nodes: Vec<NodeId>,
    pub shape: Vec<usize>,
    /// The axes as elements of such a shape lie in memory.
    pub order: Vec<usize>,
}

/// The most nodes and the most tensors that a kernel reads: beyond, registers and code cost more than a trip to memory.
const MOST_NODES: usize = 48;
const MOST_LOADS: usize = 12;

/// Why an edge is left in memory, for a reader.
pub(super) type Reasons = HashMap<(EdgeId, NodeId), &'static str>;

/// The groups of a network, in an order in which they can run, the views, and why edges stay in memory.
pub(super) struct Grouping {
    pub groups: Vec<Group>,
    pub views: HashMap<EdgeId, View>,
    pub reasons: Reasons,
    /// Nodes that are views, without a kernel.
    pub free: Vec<NodeId>,
    /// What lies in the wrong order. If there is any, groups have to be formed again.
    pub wishes: BTreeSet<Wish>,
}

pub(super) struct Grouper<'a> {
    pub network: &'a Network,
    pub groups: Vec<Group>,
    group_of: HashMap<NodeId, usize>,
    pub views: HashMap<EdgeId, View>,
    pub reasons: Reasons,
    free: Vec<NodeId>,
    pub wishes: BTreeSet<Wish>,
    /// Where parts of concatenations belong, and the order of what they are parts of.
    pub homes: HashMap<EdgeId, Home>,
    pub orders: HashMap<EdgeId, Vec<usize>>,
    /// Edges that must have memory of their own.
    pub forced: HashSet<EdgeId>,
    pub users: Vec<Vec<NodeId>>,
}

/// Groups the nodes of a network all of whose shapes are known.
pub(super) fn group(network: &Network, forced: HashSet<EdgeId>) -> Grouping {
    let (groups, group_of) = (Vec::new(), HashMap::new());
    let (views, reasons, free, wishes) = (HashMap::new(), HashMap::new(), Vec::new(), BTreeSet::new());
    let users = network.graph().users();
    let (homes, orders) = (concat::homes(network, &forced), HashMap::new());
    let mut grouper = Grouper { network, groups, group_of, views, reasons, free, wishes, homes, orders, forced, users };
    for (id, edge) in network.graph().edges() {
        if let (Source::Input(_) | Source::Constant(_), Some(shape)) = (&edge.source, network.type_of(id).shape()) {
            grouper.views.insert(id, View::whole(id, &shape));
        }
    }
    for (id, node) in network.graph().nodes() {
        grouper.node(id, node);
    }
    grouper.check_places();
    grouper.finish()
}

impl Grouper<'_> {
    pub fn shape(&self, edge: EdgeId) -> Option<Vec<usize>> {
        self.network.type_of(edge).shape()
    }

    /// The group that computes an edge, directly or through views.
    fn computes(&self, edge: EdgeId) -> Option<usize> {
        let root = self.views.get(&edge).map_or(edge, |view| view.source);
        self.network.graph().producer(root).and_then(|node| self.group_of.get(&node).copied())
    }

    /// Whether kernels have the formats of a node's edges. Indices and shapes that are constants do not count.
    fn has_kernel_formats(&self, node: &Node) -> bool {
        let edges = node.inputs.iter().flatten().chain(&node.outputs);
        // A function of elements reads single numbers alone.
        let reads = |tensor: &Tensor| !matches!(node.kind(), Kind::Pointwise(_)) || tensor.len() == 1;
        let counts = |edge: &&EdgeId| !node.outputs.contains(edge) && self.network.value_of(**edge).is_some_and(reads);
        edges.filter(|edge| !counts(edge)).all(|edge| self.network.type_of(*edge).format.dtype().is_some())
    }

    fn node(&mut self, id: NodeId, node: &Node) {
        let shapes: Option<Vec<Vec<usize>>> = node.outputs.iter().map(|edge| self.shape(*edge)).collect();
        let Some(shapes) = shapes else { return self.alone(id, node, "its shape is not known before it runs") };
        if node.inputs.iter().flatten().any(|edge| self.shape(*edge).is_none()) {
            return self.alone(id, node, "the shape of an input is not known before it runs");
        }
        let view =
            matches!(node.kind(), Kind::View(_)) || node.operator_name() == "Dropout" || columns::hands_on(self.network, node);
        if view && self.as_views(id, node, &shapes) {
            return;
        }
        if let Kind::Table(table) = node.kind() {
            return match tables::serves(self.network, node, table, &self.views) {
                Ok(()) => {
                    let order = self.padded_order(node, &shapes[0]);
                    self.begin(id, node, GroupKind::Pointwise, &shapes[0], order);
                }
                Err(why) => self.alone(id, node, why),
            };
        }
        if !self.has_kernel_formats(node) {
            return self.alone(id, node, "kernels do not have its formats");
        }
        match node.kind() {
            _ if self.begins(node) => self.product(id, node, &shapes[0]),
            Kind::Pointwise(_) if shapes.len() > 1 || node.operator_name() == "Dropout" => {
                self.alone(id, node, "kernels have neither a mask of it nor its form in training");
            }
            Kind::Pointwise(pointwise) => {
                let format = |edge: &Option<EdgeId>| edge.map(|edge| self.network.type_of(edge).format);
                let formats: Vec<_> = node.inputs.iter().map(format).collect();
                match pointwise.obstacle(&node.attributes, &formats, self.network.type_of(node.outputs[0]).format) {
                    Some(why) => self.alone(id, node, why),
                    None => self.pointwise(id, node, &shapes[0]),
                }
            }
            Kind::Normalisation(Normalisation::Channels) => match images::group_of_channels(node, &shapes[0]) {
                Some(_) if !shapes[0].contains(&0) => self.images(id, node, &shapes[0]),
                _ => self.alone(id, node, "its groups do not divide the channels, or it has no elements"),
            },
            Kind::Reduction(of) if !self.value_type(node.inputs[0]).is_some_and(|value| of.takes(value)) => {
                self.alone(id, node, "kernels have no such reduction of its format");
            }
            Kind::Normalisation(_) | Kind::Reduction(_) => match rows::row_axis(self.network, node) {
                Some(axis) => self.rows(id, node, axis),
                None if self.columns(id, node) => {}
                None => {
                    self.alone(id, node, "kernels have functions of rows along the last axes, and sums over the first, alone")
                }
            },
            Kind::View(Moves::Nothing) => {
                let order = self.other_order(node, shapes[0].len());
                self.begin(id, node, GroupKind::Copy, &shapes[0], order);
            }
            Kind::View(Moves::Join) => self.place(id, node, &shapes[0]),
            Kind::View(Moves::Slice) if !self.says(node, &shapes[0]) => self.alone(id, node, "kernels slice forwards alone"),
            Kind::View(moves) if moves.has_a_copy() => {
                let shape = self.copied_shape(node, &shapes[0]);
                let order = self.copied_order(node, shape.len());
                self.begin(id, node, GroupKind::Copy, &shape, order);
            }
            kind => self.alone(id, node, &format!("no kernel serves operators of the kind {}", kind.word())),
        }
    }

    /// Whether a node begins a kernel with an accumulator. A reduction is a pool only of images that lie as pools want them.
    pub fn begins(&self, node: &Node) -> bool {
        let lies = || node.inputs[0].and_then(|edge| self.views.get(&edge)).is_some_and(windows::lie_last);
        product::begins(self.network, node) && (!matches!(node.kind(), Kind::Reduction(_)) || lies())
    }

    /// The type that the elements of an edge have in a kernel.
    fn value_type(&self, edge: Option<EdgeId>) -> Option<ValueType> {
        Some(self.network.type_of(edge?).format.dtype()?.value_type())
    }

    fn product(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        let images = !matches!(node.kind(), Kind::Anchor(anchor) if anchor.multiplies_matrices());
        let order = if images { channels_last(shape.len()) } else { (0..shape.len()).collect() };
        match product::product(self.network, node, &self.views) {
            Ok(_) if images => self.begin(id, node, GroupKind::Product, shape, order),
            Ok(product) => self.begin(id, node, GroupKind::Product, shape, product.space.memory_order()),
            Err(Obstacle::Layout(input)) if !self.was_copied(node.inputs[input]) => {
                // Another input may lie in the wrong order, too; then the next grouping wishes for that.
                self.wishes.insert(Wish::ChannelsLast(id, input));
                self.begin(id, node, GroupKind::Product, shape, order);
            }
            Err(why) => self.alone(id, node, &why.to_string()),
        }
    }

    /// Whether an edge is a copy into another order.
    pub fn was_copied(&self, edge: Option<EdgeId>) -> bool {
        let producer = edge.and_then(|edge| self.network.graph().producer(edge));
        producer.is_some_and(|id| matches!(self.network.graph().node(id).kind(), Kind::View(Moves::Nothing)))
    }

    /// Makes the outputs views of the input's memory, if strides can say so and none has to have memory of its own.
    fn as_views(&mut self, id: NodeId, node: &Node, shapes: &[Vec<usize>]) -> bool {
        let Some(input) = node.inputs.first().copied().flatten() else { return false };
        let Some(from) = self.views.get(&input).cloned().filter(|_| !matches!(node.kind(), Kind::View(Moves::Nothing))) else {
            return false;
        };
        let constants: Vec<_> = node.inputs.iter().map(|edge| edge.and_then(|edge| self.network.value_of(edge))).collect();
        let output = |(i, shape): (usize, &Vec<usize>)| from.behind(node, i, shape, &constants);
        let Some(views) = shapes.iter().enumerate().map(output).collect::<Option<Vec<View>>>() else { return false };
        // What a caller gets lies in order, in memory of the network's own.
        let given = self.network.graph().producer(from.source).is_none();
        let forced = |(edge, view): &(&EdgeId, &View)| self.forced.contains(edge) && (given || !view.is_contiguous());
        let forced: Vec<EdgeId> = node.outputs.iter().zip(&views).filter(forced).map(|(edge, _)| *edge).collect();
        if !forced.is_empty() {
            // A node that no kernel copies stays a view, with a copy behind it.
            let copied = matches!(node.kind(), Kind::View(moves) if !moves.has_a_copy());
            self.wishes.extend(forced.into_iter().filter(|_| copied).map(Wish::InOrder));
            return false;
        }
        self.views.extend(node.outputs.iter().copied().zip(views));
        self.free.push(id);
        true
    }

    /// The memory of a product's result in the order of its only reader, a transposition, if the kernel can write it so.
    pub fn as_read(&self, node: &Node, edge: EdgeId, shape: &[usize]) -> Option<View> {
        let [reader] = self.users[edge.index()][..] else { return None };
        let reader = self.network.graph().node(reader);
        let plain = matches!(node.kind(), Kind::Anchor(anchor) if anchor.multiplies_matrices())
            && matches!(reader.kind(), Kind::View(Moves::Order))
            && !self.forced.contains(&edge);
        let order = layout::permutation(reader.attributes.ints("perm"), shape.len()).ok().filter(|_| plain)?;
        let read: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
        let mut dims: Vec<(usize, usize)> = shape.iter().map(|extent| (*extent, 0)).collect();
        order.iter().zip(strides(&read)).for_each(|(axis, stride)| dims[*axis].1 = stride);
        let view = View { root: edge, source: edge, offset: 0, dims };
        let space = product::product(self.network, node, &self.views).ok()?.space;
        match space.place(&view, DType::F32) {
            Placement::Operand { operand, .. } if operand.axes.contains(M | N) && operand.order == Order::RowMajor => Some(view),
            _ => None,
        }
    }

    pub fn begin(&mut self, id: NodeId, node: &Node, kind: GroupKind, shape: &[usize], order: Vec<usize>) {
        for edge in node.inputs.iter().flatten() {
            if self.computes(*edge).is_some() {
                let why = match kind {
                    GroupKind::Product if windows::pools(self.network, node) => "a pool reads many of its elements for one",
                    GroupKind::Product => "a product reads all of it before it computes an element",
                    GroupKind::Place => "its reader sees it beside other tensors",
                    GroupKind::Copy => "a copy into another order reads it elsewhere",
                    GroupKind::Images => "what all of an image comes to lies in several tiles",
                    GroupKind::Rows(_) => "a function of rows reads whole rows, which lie in several tiles of a product",
                    GroupKind::Pointwise | GroupKind::Columns(_) => "its reader computes another shape",
                    GroupKind::Alone(_) => "no kernel computes its reader",
                };
                self.reasons.entry((*edge, id)).or_insert(why);
            }
        }
        self.group_of.insert(id, self.groups.len());
        self.groups.push(Group { kind, nodes: vec![id], shape: shape.to_vec(), order });
        self.own_memory(self.groups.len() - 1, node);
    }

    pub fn alone(&mut self, id: NodeId, node: &Node, why: &str) {
        self.begin(id, node, GroupKind::Alone(why.to_owned()), &[], Vec::new());
    }

    pub fn join(&mut self, group: usize, id: NodeId, node: &Node) {
        self.group_of.insert(id, group);
        self.groups[group].nodes.push(id);
        self.own_memory(group, node);
    }

    /// The groups that a group depends on, directly.
    fn needs(&self, group: usize) -> BTreeSet<usize> {
        let nodes = self.groups[group].nodes.iter().map(|id| self.network.graph().node(*id));
        let edges = nodes.flat_map(|node| node.inputs.iter().flatten());
        edges.filter_map(|edge| self.computes(*edge)).filter(|other| *other != group).collect()
    }

    /// Whether a group depends on another.
    fn depends(&self, group: usize, on: usize) -> bool {
        let (mut open, mut seen) = (vec![group], HashSet::new());
        while let Some(next) = open.pop() {
            for need in self.needs(next) {
                if need == on {
                    return true;
                }
                if seen.insert(need) {
                    open.push(need);
                }
            }
        }
        false
    }

    /// Tensors that a group loads from memory.
    fn loads(&self, group: usize) -> usize {
        let nodes = self.groups[group].nodes.iter().map(|id| self.network.graph().node(*id));
        let edges: HashSet<EdgeId> = nodes.flat_map(|node| node.inputs.iter().flatten().copied()).collect();
        edges.into_iter().filter(|edge| self.computes(*edge) != Some(group)).count()
    }

    /// Why a node cannot join a group, if so. Its shape, and its rows, are the caller's business.
    pub fn obstacle(&self, group: usize, node: &Node) -> Option<&'static str> {
        let others = node.inputs.iter().flatten().filter_map(|edge| self.computes(*edge)).filter(|other| *other != group);
        if others.clone().any(|other| self.depends(other, group)) {
            return Some("another kernel has to run in between");
        }
        if self.reads_moved(node, group) {
            return Some("its reader sees it in another shape or order");
        }
        let full = self.groups[group].nodes.len() >= MOST_NODES || self.loads(group) + node.inputs.len() > MOST_LOADS;
        full.then_some("the kernel would be too long")
    }

    /// Whether a node reads what a group computes elsewhere than it is computed: a view of it, or what rows come to without
    /// the axes that they went over.
    fn reads_moved(&self, node: &Node, group: usize) -> bool {
        let own = node.inputs.iter().flatten().filter(|edge| self.computes(**edge) == Some(group));
        let moved = |edge: &EdgeId| self.views.get(edge).is_some_and(|view| view.source != *edge);
        let fits = |edge: &EdgeId| self.shape(*edge).is_some_and(|shape| self.fits(group, &shape));
        own.clone().any(moved) || own.clone().any(|edge| !fits(edge))
    }

    /// The groups of a node's inputs, the last first, with an edge from each.
    pub fn sources(&self, node: &Node) -> Vec<(usize, EdgeId)> {
        let mut found: Vec<(usize, EdgeId)> =
            node.inputs.iter().flatten().filter_map(|edge| Some((self.computes(*edge)?, *edge))).collect();
        found.sort_by_key(|(group, _)| std::cmp::Reverse(*group));
        found.dedup_by_key(|(group, _)| *group);
        found
    }

    /// Whether a shape is that of the group, or that of its rows: 1 along the columns.
    fn fits(&self, group: usize, shape: &[usize]) -> bool {
        let Group { kind, shape: own, .. } = &self.groups[group];
        let rows =
            |axis: usize| shape.len() == own.len() && shape[..axis] == own[..axis] && shape[axis..].iter().all(|e| *e == 1);
        shape == own.as_slice() || matches!(kind, GroupKind::Rows(axis) if rows(*axis))
    }

    fn pointwise(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        if narrow::dequantises_for_others(self.network, &self.users, node) {
            self.reasons.extend(node.inputs[0].map(|edge| ((edge, id), narrow::WHY)));
            let order = self.order_of(node, shape);
            return self.begin(id, node, GroupKind::Pointwise, shape, order);
        }
        for (group, edge) in self.sources(node) {
            let obstacle = match &self.groups[group].kind {
                GroupKind::Alone(_) => Some("no kernel computes it"),
                GroupKind::Copy | GroupKind::Place => Some("a copy writes it"),
                _ if !self.fits(group, shape) => Some("its reader computes another shape"),
                _ => self.obstacle(group, node),
            };
            match obstacle {
                Some(why) => {
                    self.reasons.insert((edge, id), why);
                }
                None => {
                    self.join(group, id, node);
                    self.absorb(group);
                    return;
                }
            }
        }
        let order = self.order_of(node, shape);
        self.begin(id, node, GroupKind::Pointwise, shape, order);
    }

    /// The order of a result in memory: that of images, if an operand lies like that, else that of the axes.
    pub fn order_of(&self, node: &Node, shape: &[usize]) -> Vec<usize> {
        let last = channels_last(shape.len());
        let lies = |edge: &EdgeId| self.views.get(edge).is_some_and(|view| view.shape() == shape && view.order() == last);
        if node.inputs.iter().flatten().any(lies) { last } else { (0..shape.len()).collect() }
    }

    /// Takes in groups of pointwise nodes that the group reads, where no other kernel has to run in between.
    pub fn absorb(&mut self, group: usize) {
        for other in self.needs(group) {
            let Group { kind, nodes, shape, order } = &self.groups[other];
            let to = &self.groups[group];
            let same = *kind == GroupKind::Pointwise && *shape == to.shape && *order == to.order;
            let short = nodes.len() + self.groups[group].nodes.len() <= MOST_NODES;
            let few = self.loads(other) + self.loads(group) <= MOST_LOADS;
            let graph = self.network.graph();
            let moved = self.groups[group].nodes.iter().any(|node| self.reads_moved(graph.node(*node), other));
            let between = self.needs(group).iter().any(|need| *need != other && self.depends(*need, other));
            if same && short && few && !moved && !between && !self.depends(other, group) {
                let nodes = std::mem::take(&mut self.groups[other].nodes);
                self.group_of.extend(nodes.iter().map(|node| (*node, group)));
                self.groups[group].nodes.extend(nodes);
                self.groups[group].nodes.sort_unstable();
            }
        }
    }

    /// The groups in an order in which they can run.
    fn finish(mut self) -> Grouping {
        // What joined another kernel than that of one of its inputs.
        for (id, node) in self.network.graph().nodes() {
            let Some(own) = self.group_of.get(&id).copied() else { continue };
            for edge in node.inputs.iter().flatten().copied() {
                if self.computes(edge).is_some_and(|group| group != own) {
                    self.reasons.entry((edge, id)).or_insert("its reader stands in another kernel");
                }
            }
        }
        let mut order: Vec<usize> = Vec::new();
        let mut done = vec![false; self.groups.len()];
        let needs: Vec<BTreeSet<usize>> = (0..self.groups.len()).map(|group| self.needs(group)).collect();
        while order.len() < self.groups.len() {
            let ready = |group: &usize| !done[*group] && needs[*group].iter().all(|need| done[*need]);
            // Groups have no cycles: each joining node was checked. Were there one, this would end all the same.
            let Some(next) = (0..self.groups.len()).find(ready) else { break };
            done[next] = true;
            order.push(next);
        }
        let groups = order.into_iter().map(|group| self.groups[group].clone()).filter(|group| !group.nodes.is_empty()).collect();
        Grouping { groups, views: self.views, reasons: self.reasons, free: self.free, wishes: self.wishes }
    }
}
