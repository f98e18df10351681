//! From a group to a kernel: an operation, an epilogue, and the tensors that it reads and writes.

use super::columns;
use super::group::{Group, GroupKind};
use super::images::group_of_channels;
use super::product::{self, Product};
use super::space::{Placement, Space};
use super::view::View;
use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::{DType, ValueType};
use crate::gemm::Gemm;
use crate::ir::axes::{M, N};
use crate::ir::{Monoid, Order, Over, Side};
use crate::network::format::Format;
use crate::network::graph::{EdgeId, Node, NodeId, Source};
use crate::network::network::Network;
use crate::network::operator::{Anchor, Kind, Normalisation, Reduction, Spread};
use crate::problem::{Attention, Operation, Shape};
use std::cell::RefCell;
use std::collections::HashMap;

/// A tensor that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its name among the kernel's arguments.
    pub name: String,
    /// The edge in whose memory it lies.
    pub edge: EdgeId,
    /// Its format.
    pub dtype: DType,
    /// Elements before its first.
    pub offset: usize,
    /// The leading dimension, where it has one.
    pub ld: Option<usize>,
    /// The distance of batch entries, where it has one.
    pub batch_stride: Option<usize>,
    /// Whether the kernel writes it.
    pub written: bool,
}

/// A kernel of a fused network.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The nodes in it.
    pub nodes: Vec<NodeId>,
    /// The operation and the epilogue.
    pub gemm: Gemm,
    /// The extents.
    pub shape: Shape,
    /// What it reads and writes.
    pub accesses: Vec<Access>,
}

/// What a kernel is made from.
pub(super) struct Parts<'a> {
    pub network: &'a Network,
    pub views: &'a HashMap<EdgeId, View>,
    /// Edges that something outside of the group reads.
    pub kept: &'a dyn Fn(EdgeId) -> bool,
}

/// The loads of a kernel under construction: each tensor once.
pub(super) struct Loads<'a, 'g> {
    pub parts: &'a Parts<'a>,
    pub space: &'a Space,
    pub builder: &'g Builder,
    values: RefCell<HashMap<EdgeId, Expr<'g>>>,
    accesses: &'a RefCell<Vec<Access>>,
    loaded: RefCell<HashMap<String, (String, Expr<'g>)>>,
}

impl<'g> Loads<'_, 'g> {
    /// The value of an edge in the kernel: computed there, a constant, or loaded.
    fn value(&self, edge: EdgeId, place: impl Fn(&View) -> Option<View>) -> Option<Expr<'g>> {
        if let Some(value) = self.values.borrow().get(&edge) {
            return Some(*value);
        }
        let of = self.parts.network.type_of(edge);
        let single = self.parts.network.value_of(edge).and_then(|tensor| tensor.only());
        // An integer of a format that kernels lack may be one that they have.
        let dtype = match (of.format.dtype(), single) {
            (None, Some(x)) if f64::from(x as i32) == x => DType::I32,
            (dtype, _) => dtype?,
        };
        if let Some(x) = single {
            return Some(match dtype.value_type() {
                ValueType::I32 => self.builder.constant(x as i32),
                ValueType::Bool => self.builder.constant(x != 0.0),
                ValueType::F32 => self.builder.constant(x),
                ValueType::F64 => self.builder.constant(x).cast(DType::F64),
            });
        }
        let view = place(self.parts.views.get(&edge)?)?.stretched(&self.space.shape)?;
        self.load(&view, dtype)
    }

    /// An element of the memory of a tensor, at a place that the kernel computes.
    pub fn element(&self, view: &View, dtype: DType, place: Expr<'g>) -> Expr<'g> {
        let name = format!("t{}", self.accesses.borrow().len());
        let (offset, ld, batch_stride) = (0, None, None);
        let access = Access { name: name.clone(), edge: view.root, dtype, offset, ld, batch_stride, written: false };
        self.accesses.borrow_mut().push(access);
        self.builder.gather(&name, dtype, place)
    }

    /// The value of a tensor that lies in memory.
    pub fn load(&self, view: &View, dtype: DType) -> Option<Expr<'g>> {
        let place = self.space.place(view, dtype);
        let known = format!("{view:?}{dtype}");
        if let Some((_, value)) = self.loaded.borrow().get(&known) {
            return Some(*value);
        }
        let name = format!("t{}", self.accesses.borrow().len());
        let (value, offset, ld, batch_stride) = match place {
            Placement::Operand { operand, ld, batch_stride } => {
                (self.builder.load(&name, operand), view.offset, ld, batch_stride)
            }
            Placement::Table => {
                let index = self.space.index(self.builder, view);
                (self.builder.gather(&name, dtype, index), 0, None, None)
            }
        };
        let access = Access { name: name.clone(), edge: view.root, dtype, offset, ld, batch_stride, written: false };
        self.accesses.borrow_mut().push(access);
        self.loaded.borrow_mut().insert(known, (name, value));
        Some(value)
    }
}

/// The kernel of a group.
///
/// # Errors
/// If it cannot be said as an epilogue: why. A group that was formed can.
pub(super) fn kernel(group: &Group, parts: &Parts<'_>) -> Result<Kernel, String> {
    let graph = parts.network.graph();
    let mut nodes = group.nodes.iter().map(|id| graph.node(*id));
    let anchor = nodes.find(|node| group.kind == GroupKind::Product && product::begins(parts.network, node));
    let product = anchor.map(|node| product::product(parts.network, node, parts.views)).transpose();
    let product = product.map_err(|obstacle| obstacle.to_string())?;
    let space = match &product {
        Some(product) => product.space.clone(),
        None => tensor_space(group, parts),
    };
    let accesses: RefCell<Vec<Access>> = RefCell::default();
    if let Some(product) = &product {
        let [a, b] = product.operation.dtypes();
        let names = [("a", a), ("b", b), (Attention::KEYS, a)];
        for ((name, dtype), operand) in names.into_iter().zip(&product.operands) {
            let batched = (space.extents().batch > 1).then_some(operand.batch_stride);
            accesses.borrow_mut().push(Access {
                name: name.to_owned(),
                edge: operand.view.root,
                dtype,
                offset: operand.view.offset,
                ld: Some(operand.ld),
                batch_stride: batched,
                written: false,
            });
        }
        accesses.borrow_mut().extend(product.further.iter().cloned());
    }
    let fault: RefCell<Option<String>> = RefCell::default();
    let built = Epilogue::build_lenient(|e| {
        let loads = Loads {
            parts,
            space: &space,
            builder: e,
            values: RefCell::default(),
            accesses: &accesses,
            loaded: RefCell::default(),
        };
        let mut sums: HashMap<EdgeId, Monoid> = HashMap::new();
        for id in &group.nodes {
            let node = graph.node(*id);
            let monoid = columns::monoid(parts.network, node, group);
            sums.extend(monoid.map(|monoid| (node.outputs[0], monoid)));
            // An expression says the element of a sum over rows.
            let said = match monoid.and(node.inputs[0]) {
                Some(element) => {
                    let element = loads.value(element, |view| Some(view.clone()));
                    let absolute = matches!(node.kind(), Kind::Reduction(Reduction::AbsoluteSum));
                    element.map(|element| vec![if absolute { element.abs() } else { element }])
                }
                None => say(node, &loads, product.as_ref()),
            };
            match said {
                Some(values) => loads.values.borrow_mut().extend(node.outputs.iter().copied().zip(values)),
                None => *fault.borrow_mut() = Some(format!("{} cannot be said as an epilogue", node.operator_name())),
            }
        }
        for edge in group.nodes.iter().flat_map(|id| &graph.node(*id).outputs).filter(|edge| (parts.kept)(**edge)) {
            let value = loads.values.borrow().get(edge).copied();
            let format = parts.network.type_of(*edge).format.dtype();
            match (value, format) {
                (Some(value), Some(dtype)) if sums.contains_key(edge) => {
                    let name = format!("y{}", accesses.borrow().len());
                    e.reduce(&name, value, sums[edge], dtype.over(N));
                    let (edge, offset, ld, batch_stride) = (*edge, 0, None, None);
                    accesses.borrow_mut().push(Access { name, edge, dtype, offset, ld, batch_stride, written: true });
                }
                (Some(value), Some(dtype)) if store(e, *edge, value, dtype, parts, &space, &accesses).is_some() => {}
                _ => *fault.borrow_mut() = Some(format!("{} has no value", graph.edge(*edge).name)),
            }
        }
    });
    if let Some(fault) = fault.into_inner() {
        return Err(fault);
    }
    let (epilogue, _) = built.map_err(|faults| faults.to_string())?;
    let (operation, shape) = match product {
        Some(product) => (product.operation, product.shape),
        None => (Operation::Pointwise { dtype: DType::F32, order: Order::RowMajor }, space.extents()),
    };
    // Weights may be fetched before the kernel in front is done.
    let given = |name: &str| accesses.borrow().iter().any(|a| a.name == name && graph.constant(a.edge).is_some());
    let sides = [Side::A, Side::B].into_iter().filter(|side| operation.multiplies() && given(side.name()));
    let gemm = Gemm::of(operation, &epilogue).constant_operands(sides);
    Ok(Kernel { nodes: group.nodes.clone(), gemm, shape, accesses: accesses.into_inner() })
}

/// The space of a group without a product: as its tensors lie best.
fn tensor_space(group: &Group, parts: &Parts<'_>) -> Space {
    let graph = parts.network.graph();
    if let GroupKind::Columns(rows) = group.kind {
        return Space::ordered(&group.shape, group.order.clone(), 0, rows);
    }
    if group.kind == GroupKind::Images {
        // Pixels are rows where channels lie side by side, and columns where these lie in planes.
        let rank = group.shape.len();
        return Space::ordered(&group.shape, group.order.clone(), 1, if group.order.is_sorted() { 2 } else { rank - 1 });
    }
    let columns = if let GroupKind::Rows(axis) = group.kind { Some(axis) } else { None };
    let own: Vec<EdgeId> = group.nodes.iter().flat_map(|id| graph.node(*id).outputs.iter().copied()).collect();
    let written = own.iter().filter_map(|edge| parts.views.get(edge)?.reshaped(&group.shape));
    let mut views: Vec<(View, DType)> = written.map(|view| (view, DType::F32)).collect();
    let written = views.len();
    for id in &group.nodes {
        let node = graph.node(*id);
        for (index, edge) in node.inputs.iter().enumerate() {
            let Some(edge) = edge.filter(|edge| !own.contains(edge)) else { continue };
            let view = parts.views.get(&edge).and_then(|view| spread(node, index, view, &group.shape)?.stretched(&group.shape));
            if let (Some(view), Some(dtype)) = (view, parts.network.type_of(edge).format.dtype()) {
                views.push((view, dtype));
            }
        }
    }
    Space::for_tensors(&group.shape, &views, written, columns)
}

/// An operand with the axes that it lies along: a vector of channels among the others.
fn spread(node: &Node, index: usize, view: &View, shape: &[usize]) -> Option<View> {
    let along = match (node.expression(), node.kind()) {
        (Some(pointwise), _) => pointwise.spread,
        // The bias, or scale and bias.
        (None, Kind::Anchor(Anchor::Conv) | Kind::Normalisation(Normalisation::Channels)) => Spread::Channel,
        _ => Spread::Numpy,
    };
    if along == Spread::Numpy || index == 0 || view.dims.len() != 1 {
        return Some(view.clone());
    }
    // An operator whose vectors lie along channels has no such attribute.
    let axis = crate::network::meaning::axis(node.attributes.int_or("axis", 1), shape.len()).ok()?;
    let mut dims = vec![(1, 0); shape.len()];
    *dims.get_mut(axis)? = view.dims[0];
    Some(View { dims, ..view.clone() })
}

/// The values of a node's outputs, as expressions.
fn say<'g>(node: &Node, loads: &Loads<'_, 'g>, product: Option<&Product>) -> Option<Vec<Expr<'g>>> {
    let e = loads.builder;
    let shape = &loads.space.shape;
    let input = |index: usize| {
        let edge = node.inputs.get(index).copied().flatten()?;
        loads.value(edge, |view| spread(node, index, view, shape))
    };
    let format = |edge: EdgeId| loads.parts.network.type_of(edge).format;
    let accumulator = || {
        Some(match product?.operation.accumulator() {
            ValueType::F64 => e.acc_f64(),
            ValueType::I32 => e.acc_i32(),
            ValueType::F32 | ValueType::Bool => e.acc(),
        })
    };
    match node.kind() {
        Kind::Pooling(_) | Kind::Reduction(_) if product.is_some() => Some(vec![accumulator()?]),
        Kind::Anchor(Anchor::Conv) => Some(vec![match node.inputs.get(2).copied().flatten() {
            Some(_) => accumulator()? + input(2)?,
            None => accumulator()?,
        }]),
        Kind::Anchor(anchor) => {
            let acc = accumulator()?;
            if anchor != Anchor::Gemm {
                return Some(vec![acc]);
            }
            let times = |x: Expr<'g>, factor: f64| if factor == 1.0 { x } else { x * factor };
            let scaled = times(acc, node.attributes.float_or("alpha", 1.0));
            Some(vec![match node.inputs.get(2).copied().flatten() {
                Some(_) => scaled + times(input(2)?, node.attributes.float_or("beta", 1.0)),
                None => scaled,
            }])
        }
        Kind::Pointwise(pointwise) => {
            let first = node.inputs.iter().flatten().next().copied()?;
            let values: Vec<Option<Expr<'g>>> = (0..node.inputs.len()).map(input).collect();
            let complete = values.iter().zip(&node.inputs).all(|(value, edge)| value.is_some() || edge.is_none());
            let formats: [Format; 2] = [format(first), format(node.outputs[0])];
            complete.then(|| vec![pointwise.apply(e, &values, &node.attributes, formats)])
        }
        Kind::Normalisation(of) => {
            let x = input(0)?;
            let epsilon = node.attributes.float_or("epsilon", 1e-5);
            match of {
                Normalisation::Softmax => Some(vec![x.softmax_over(N)]),
                Normalisation::LogSoftmax => Some(vec![x.log_softmax_over(N)]),
                Normalisation::LayerNorm => {
                    let mean = x.mean_over(N);
                    let centred = x - mean;
                    let inverse = (centred.mean_square_over(N) + epsilon).rsqrt();
                    let scaled = centred * inverse * input(1)?;
                    let y = if node.inputs.get(2).copied().flatten().is_some() { scaled + input(2)? } else { scaled };
                    Some(vec![y, mean, inverse])
                }
                Normalisation::RmsNorm => Some(vec![x * (x.mean_square_over(N) + epsilon).rsqrt() * input(1)?]),
                Normalisation::Channels => {
                    let (columns, channels) = (group_of_channels(node, shape)?, loads.space.axes_of(1));
                    let over = match columns {
                        1 => Over::from(channels.transposed()),
                        _ => Over { axes: M | N, band: Some((channels, columns)) },
                    };
                    let centred = x - x.mean_over(over);
                    let inverse = (centred.mean_square_over(over) + epsilon).rsqrt();
                    Some(vec![centred * inverse * input(1)? + input(2)?])
                }
                Normalisation::Other => None,
            }
        }
        Kind::Reduction(of) => {
            let x = input(0)?;
            Some(vec![match of {
                Reduction::Of(monoid) => e.reduce_over(x, monoid, N),
                Reduction::AbsoluteSum => x.abs().sum_over(N),
                Reduction::LogSum => x.sum_over(N).log(),
                Reduction::Other => return None,
            }])
        }
        Kind::View(_) => {
            let x = node.inputs.first().copied().flatten()?;
            let view = loads.parts.views.get(&x)?;
            let constants: Vec<_> =
                node.inputs.iter().map(|edge| edge.and_then(|edge| loads.parts.network.value_of(edge))).collect();
            // A shape that strides cannot say is that of a copy in order.
            let moved = view.blocks(node).or_else(|| view.behind(node, 0, shape, &constants)).unwrap_or_else(|| view.clone());
            Some(vec![loads.load(&moved, format(x).dtype()?)?])
        }
        Kind::Table(table) => Some(vec![super::tables::say(node, table, loads)?]),
        _ => None,
    }
}

/// Stores an edge in its own memory: a matrix, or a vector of what rows come to. `None` if no kernel writes there.
fn store<'g>(
    e: &'g Builder,
    edge: EdgeId,
    value: Expr<'g>,
    dtype: DType,
    parts: &Parts<'_>,
    space: &Space,
    accesses: &RefCell<Vec<Access>>,
) -> Option<()> {
    let name = format!("y{}", accesses.borrow().len());
    let Shape { m, n, batch, .. } = space.extents();
    let elements = parts.network.type_of(edge).shape().map_or(0, |shape| shape.iter().product());
    let is_vector = elements != m * n * batch;
    let (mut offset, mut root) = (0, edge);
    let (ld, batch_stride) = if is_vector {
        let operand = dtype.over(M);
        e.store(&name, value, if batch > 1 { operand.batched() } else { operand });
        (None, (batch > 1).then_some(m))
    } else {
        // A copy has the shape of what it copies.
        let view = parts.views.get(&edge)?.reshaped(&space.shape)?;
        offset = view.offset;
        root = view.root;
        let (order, ld, batch_stride) = space.written(&view)?;
        let operand = crate::ir::Operand::from(dtype);
        e.store(&name, value, if order == Order::RowMajor { operand } else { operand.column_major() });
        (Some(ld.max(1)), (batch > 1).then_some(batch_stride))
    };
    accesses.borrow_mut().push(Access { name, edge: root, dtype, offset, ld, batch_stride, written: true });
    Some(())
}

impl Kernel {
    /// What the kernel is, in a few words.
    pub fn title(&self, network: &Network) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|id| network.graph().node(*id).operator_name()).collect();
        names.join(" + ")
    }

    /// Whether an edge's tensor is an input or a constant of the network.
    pub(super) fn is_given(network: &Network, edge: EdgeId) -> bool {
        !matches!(network.graph().edge(edge).source, Source::Node(..))
    }
}
