//! Attention: two products with a softmax between them as one node, whose scores are never in memory.
//!
//! Contract: a `MatMul`, a `Mul` or `Div` by a positive number, pointwise nodes, a `Softmax` over the last axis and another
//! `MatMul` become one `ScaledDotProductAttention`. Nobody else reads what lies between, the formats are f16 or bf16, and
//! heads are as wide as kernels take them. The pointwise nodes are a function of scores, of whatever they read besides.
//! Scores, what they become and their softmax are no longer rounded to 16 bits. A query from which all keys are hidden gets
//! zeros.

use super::{Rewriter, Simplified};
use crate::dtype::{DType, ValueType};
use crate::network::attribute::Attributes;
use crate::network::format::Format;
use crate::network::graph::{Applied, EdgeId, Node, NodeId};
use crate::network::network::Network;
use crate::network::operator::pointwise::Spread;
use crate::network::operator::scored::{Operand, Step};
use crate::network::operator::{Anchor, Kind, Normalisation, Operator, Scored};
use crate::network::types::{Dim, Type};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The most elements of a query and of a value: those of a kernel's tile.
const WIDEST: usize = 128;
/// Elements that a kernel moves at a time, 16 bytes of them.
const RUN: usize = 8;
/// The most pointwise nodes between the products, and the most tensors that they read.
const MOST_STEPS: usize = 24;
const MOST_INPUTS: usize = 6;

/// The nodes of an attention.
struct Found {
    /// Those that go: all but the last one.
    nodes: Vec<NodeId>,
    queries: EdgeId,
    /// The keys as the first product reads them: turned.
    turned_keys: EdgeId,
    values: EdgeId,
    scale: f64,
    scored: Scored,
    /// What the function of scores reads besides.
    inputs: Vec<EdgeId>,
}

fn is_matmul(node: &Node) -> bool {
    matches!(node.kind(), Kind::Anchor(Anchor::MatMul))
}

/// The number that an edge always has.
fn number(network: &Network, edge: EdgeId) -> Option<f64> {
    network.value_of(edge).and_then(|tensor| tensor.only())
}

/// The factor by which a node multiplies an edge, which is the other input.
fn factor(network: &Network, node: &Node) -> Option<(EdgeId, f64)> {
    let (first, second) = (node.inputs.first().copied().flatten()?, node.inputs.get(1).copied().flatten()?);
    match (node.operator_name(), number(network, first), number(network, second)) {
        ("Mul", None, Some(x)) => Some((first, x)),
        ("Mul", Some(x), None) => Some((second, x)),
        ("Div", None, Some(x)) => Some((first, 1.0 / x)),
        _ => None,
    }
}

/// The search for an attention that ends with a product.
struct Search<'a> {
    network: &'a Network,
    users: &'a [Vec<NodeId>],
}

impl<'a> Search<'a> {
    fn is_output(&self, edge: EdgeId) -> bool {
        self.network.graph().outputs().iter().any(|(_, output)| *output == edge)
    }

    /// What computes an edge that nobody else reads.
    fn before(&self, edge: EdgeId) -> Option<(NodeId, &'a Node)> {
        let graph = self.network.graph();
        let id = graph.producer(edge).filter(|_| self.users[edge.index()].len() == 1 && !self.is_output(edge))?;
        Some((id, graph.node(id)))
    }

    fn shape(&self, edge: EdgeId) -> Option<Vec<usize>> {
        self.network.type_of(edge).shape()
    }

    /// The softmax over the last axis whose result an edge is, perhaps in another format, with what it reads.
    fn softmax(&self, edge: EdgeId) -> Option<(Vec<NodeId>, EdgeId)> {
        let (mut id, mut node) = self.before(edge)?;
        let mut nodes = vec![id];
        if node.operator_name() == "Cast" {
            (id, node) = self.before(node.inputs[0]?)?;
            nodes.push(id);
        }
        let scores = node.inputs.first().copied().flatten()?;
        let rank = self.network.type_of(scores).dims.as_ref()?.len();
        let along = crate::network::meaning::axis(node.attributes.int_or("axis", -1), rank).ok()?;
        (matches!(node.kind(), Kind::Normalisation(Normalisation::Softmax)) && along + 1 == rank).then_some((nodes, scores))
    }

    /// Whether a node may stand between the products: why not.
    fn obstacle(&self, node: &Node) -> Option<&'static str> {
        let Some(pointwise) = node.expression() else { return Some("a node between the products is not pointwise") };
        let format = |edge: EdgeId| self.network.type_of(edge).format;
        let formats: Vec<Option<Format>> = node.inputs.iter().map(|edge| edge.map(format)).collect();
        let output = node.outputs[0];
        if pointwise.obstacle(&node.attributes, &formats, format(output)).is_some() || node.outputs.len() != 1 {
            return Some("a node between the products computes what no expression says");
        }
        (pointwise.spread != Spread::Numpy).then_some("an operand between the products lies along other axes than the last")
    }

    /// Takes in nodes that compute what only the region reads, such as a mask's numbers of its conditions.
    fn absorb(&self, region: &mut BTreeSet<NodeId>, products: &HashSet<EdgeId>) {
        let graph = self.network.graph();
        let is_read =
            |edge: &EdgeId| self.network.type_of(*edge).format.dtype().is_some() || number(self.network, *edge).is_some();
        loop {
            let inputs = region.iter().flat_map(|id| graph.node(*id).inputs.iter().flatten().copied());
            let next = inputs.filter(|edge| !products.contains(edge) && !self.is_output(*edge)).find_map(|edge| {
                let id = graph.producer(edge).filter(|id| !region.contains(id))?;
                let node = graph.node(id);
                let own = self.users[edge.index()].iter().all(|user| region.contains(user));
                let said = own && self.obstacle(node).is_none() && node.inputs.iter().flatten().all(is_read);
                said.then_some(id)
            });
            match next {
                Some(id) if region.len() < MOST_STEPS => region.insert(id),
                _ => return,
            };
        }
    }

    /// The first product before an edge, in whose direction pointwise nodes lie, and these nodes.
    fn region(&self, scores: EdgeId) -> Result<(NodeId, BTreeSet<NodeId>), &'static str> {
        let graph = self.network.graph();
        let Some(shape) = self.shape(scores) else { return Err("the shape of the scores is not known") };
        let (mut open, mut seen, mut products) = (vec![scores], BTreeSet::new(), Vec::new());
        let mut why = "no product lies before the softmax";
        while let Some(edge) = open.pop() {
            let Some(id) = graph.producer(edge).filter(|id| !seen.contains(id)) else { continue };
            let node = graph.node(id);
            if self.shape(edge).as_deref() != Some(&shape) {
                continue;
            }
            if is_matmul(node) {
                products.push(id);
                continue;
            }
            match self.obstacle(node) {
                Some(obstacle) => why = obstacle,
                None => {
                    seen.insert(id);
                    open.extend(node.inputs.iter().flatten());
                }
            }
        }
        // A bias may be a product, too: the scores are those whose heads a kernel takes, of the node nearest to the end.
        products.sort_unstable();
        products.reverse();
        for product in products {
            let mut region: BTreeSet<NodeId> = BTreeSet::new();
            let mut from: HashSet<EdgeId> = graph.node(product).outputs.iter().copied().collect();
            for id in &seen {
                let node = graph.node(*id);
                if node.inputs.iter().flatten().any(|edge| from.contains(edge)) {
                    region.insert(*id);
                    from.extend(&node.outputs);
                }
            }
            let inside = |edge: &EdgeId| {
                let mut users = self.users[edge.index()].iter();
                *edge == scores || !self.is_output(*edge) && users.all(|user| region.contains(user))
            };
            if !from.contains(&scores) {
                continue;
            }
            if self.users[scores.index()].len() != 1 || self.is_output(scores) || !from.iter().all(inside) {
                why = "something else reads the scores";
                continue;
            }
            self.absorb(&mut region, &graph.node(product).outputs.iter().copied().collect());
            return Ok((product, region));
        }
        Err(why)
    }

    /// Finds the attention that ends with a product. Gives `None` if no softmax stands before the product, and the reason if no
    /// kernel serves the attention.
    fn found(&self, last: &Node) -> Option<Result<Found, &'static str>> {
        let (nodes, scores) = self.softmax(last.inputs[0]?)?;
        Some(self.attention(last, nodes, scores))
    }

    fn attention(&self, last: &Node, mut nodes: Vec<NodeId>, scores: EdgeId) -> Result<Found, &'static str> {
        let graph = self.network.graph();
        let (product, region) = self.region(scores)?;
        let node = graph.node(product);
        let edge = |node: &Node, index: usize| node.inputs.get(index).copied().flatten().ok_or("an operand is left out");
        let (queries, turned_keys, values) = (edge(node, 0)?, edge(node, 1)?, edge(last, 1)?);
        if !fits(self.network, [queries, turned_keys, values]) {
            return Err("kernels take f16 and bf16, and heads of up to 128 elements, multiples of 8");
        }
        // A factor right behind the product is the attention's own.
        let (mut value, mut scale) = (node.outputs[0], 1.0);
        let mut steps: Vec<NodeId> = region.iter().copied().collect();
        let scales =
            |id: &NodeId| factor(self.network, graph.node(*id)).filter(|(of, by)| *of == value && *by > 0.0 && by.is_finite());
        let scaled = steps.iter().enumerate().find_map(|(at, id)| Some((at, scales(id)?.1)));
        if let Some((at, by)) = scaled.filter(|_| self.users[value.index()].len() == 1) {
            let id = steps.remove(at);
            nodes.push(id);
            (value, scale) = (graph.node(id).outputs[0], by);
        }
        nodes.extend(steps.iter().copied().chain([product]));
        if steps.len() > MOST_STEPS {
            return Err("too many nodes stand between the products");
        }
        let (mut said, mut inputs, mut places) = (Vec::new(), Vec::new(), HashMap::from([(value, Operand::Score)]));
        for (index, id) in steps.iter().enumerate() {
            let node = graph.node(*id);
            let mut operands = Vec::new();
            for edge in &node.inputs {
                operands.push(match edge {
                    Some(edge) => Some(self.operand(*edge, &places, &mut inputs)?),
                    None => None,
                });
            }
            let first = node.inputs.iter().flatten().next().ok_or("a node reads nothing")?;
            let formats = [*first, node.outputs[0]].map(|edge| self.network.type_of(edge).format);
            let (operator, attributes) = (node.operator.clone(), node.attributes.clone());
            said.push(Step { operator, attributes, operands, formats });
            places.insert(node.outputs[0], Operand::Step(index));
        }
        if inputs.len() > MOST_INPUTS {
            return Err("too many tensors are read between the products");
        }
        let scored = Scored { steps: said, inputs: inputs.len() };
        let dtypes: Option<Vec<DType>> = inputs.iter().map(|edge| self.network.type_of(*edge).format.dtype()).collect();
        let dtypes = dtypes.ok_or("kernels do not have the format of a mask")?;
        let says = scored.function(|s, input| Some(s.load(&format!("x{input}"), dtypes[input])));
        let says = says.map_err(|_| "the language of epilogues does not say what becomes of the scores")?;
        // Casts may leave nothing to say.
        let (scored, inputs) =
            if says.is_identity() { (Scored { steps: Vec::new(), inputs: 0 }, Vec::new()) } else { (scored, inputs) };
        Ok(Found { nodes, queries, turned_keys, values, scale, scored, inputs })
    }

    /// What an operand of a node between the products is.
    fn operand(
        &self,
        edge: EdgeId,
        places: &HashMap<EdgeId, Operand>,
        inputs: &mut Vec<EdgeId>,
    ) -> Result<Operand, &'static str> {
        if let Some(place) = places.get(&edge) {
            return Ok(*place);
        }
        let format = self.network.type_of(edge).format;
        let single = number(self.network, edge);
        match (single, format.dtype().map(DType::value_type)) {
            (Some(x), Some(value)) if value != ValueType::F64 => return Ok(Operand::Number(x, value)),
            (Some(x), None) if f64::from(x as i32) == x => return Ok(Operand::Number(x, ValueType::I32)),
            (_, None) => return Err("kernels do not have the format of a mask"),
            _ => {}
        }
        let known = inputs.iter().position(|input| *input == edge);
        Ok(Operand::Input(known.unwrap_or_else(|| {
            inputs.push(edge);
            inputs.len() - 1
        })))
    }
}

/// Whether kernels take such queries, keys and values.
fn fits(network: &Network, edges: [EdgeId; 3]) -> bool {
    let types = edges.map(|edge| network.type_of(edge));
    let dims: Option<Vec<&Vec<Dim>>> = types.iter().map(|of| of.dims.as_ref()).collect();
    let Some(&[q, k, v]) = dims.as_deref() else { return false };
    let rank = q.len();
    let sixteen = |of: &&Type| matches!(of.format.dtype(), Some(DType::F16 | DType::BF16)) && of.format == types[0].format;
    let width = |dim: Option<&Dim>| matches!(dim, Some(Dim::Known(x)) if *x % RUN == 0 && (RUN..=WIDEST).contains(x));
    rank >= 3
        && k.len() == rank
        && v.len() == rank
        && types.iter().all(sixteen)
        && q[..rank - 2] == k[..rank - 2]
        && q[..rank - 2] == v[..rank - 2]
        && width(q.last())
        && width(v.last())
}

/// The network with attentions as single nodes.
pub(in crate::network) fn lower(network: &Network, did: &mut Simplified) -> Network {
    let graph = network.graph();
    let users = graph.users();
    let (Some(attention), Some(transpose)) = (Scored::row(), Operator::named("Transpose")) else {
        return network.clone();
    };
    let search = Search { network, users: &users };
    let mut all: HashMap<NodeId, Found> = HashMap::new();
    for (id, node) in graph.nodes().filter(|(_, node)| is_matmul(node)) {
        match search.found(node) {
            Some(Ok(found)) => {
                all.insert(id, found);
            }
            Some(Err(why)) => did.unattended.push((node.name.to_string(), why.to_owned())),
            None => {}
        }
    }
    if all.is_empty() {
        return network.clone();
    }
    let gone: HashSet<NodeId> = all.values().flat_map(|found| found.nodes.iter().copied()).collect();
    let mut rewriter = Rewriter::new(network);
    for (id, node) in graph.nodes() {
        if let Some(found) = all.get(&id) {
            let rank = network.type_of(found.queries).dims.as_ref().map_or(2, Vec::len) as i64;
            let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            let made = |operator, name: String, attributes, inputs: &[EdgeId]| {
                let inputs = inputs.iter().copied().map(Some).collect();
                Node { name: name.into(), operator, attributes, inputs, outputs: Vec::new(), built_at: node.built_at }
            };
            let name = format!("{}.keys", node.name);
            let turned = rewriter.edge(found.turned_keys);
            let turn = made(Applied::Row(transpose), name.clone(), Attributes::new().with("perm", order), &[turned]);
            let keys = rewriter.graph.add_node(turn, vec![format!("{name}.out").into()])[0];
            let (queries, values) = (rewriter.edge(found.queries), rewriter.edge(found.values));
            let attributes = Attributes::new().with("scale", found.scale as f32);
            let further: Vec<EdgeId> = found.inputs.iter().map(|edge| rewriter.edge(*edge)).collect();
            let operator = match found.scored.steps.is_empty() {
                true => Applied::Row(attention),
                false => Applied::Scored(Arc::new(found.scored.clone())),
            };
            let inputs = [&[queries, keys, values], &further[..]].concat();
            rewriter.add(made(operator, node.name.to_string(), attributes, &inputs), &node.outputs);
            did.attentions += 1;
        } else if !gone.contains(&id) {
            rewriter.keep(node);
        }
    }
    rewriter.finish()
}
