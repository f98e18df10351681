//! Products of quantised numbers.
//!
//! Contract: a `MatMul`, `Gemm` or `Conv` of two operands that `DequantizeLinear` gives multiplies the numbers of eight bits
//! themselves. What they are multiplied by, their scales, multiplies the sums. A zero point of the first operand is taken out
//! of the sums by the sums of the weights. `QLinearMatMul`, `QLinearConv`, `MatMulInteger` and `ConvInteger` become the same
//! product and the pointwise nodes behind it.
//!
//! Sums of integers are exact, so a result is rounded less often than before: in `f32`, once for the scale and once for each
//! node behind it. Where it is quantised again, it is the same number or the next one, which a tie decides. A product that
//! stays as it is has a reason in [`Simplified::unquantised`].

use super::{Rewriter, Simplified};
use crate::network::attribute::Attributes;
use crate::network::format::Format;
use crate::network::graph::{Applied, EdgeId, Node, Source};
use crate::network::meaning::{self, layout, product};
use crate::network::network::Network;
use crate::network::operator::{Kind, Moves, Operator};
use crate::network::tensor::Tensor;
use std::borrow::Cow;

/// The most terms of a sum of products of bytes less a zero point, so that it is an integer of 32 bits.
const MOST_TERMS: usize = 1 << 16;

/// Why a product stays as it is.
type Why = &'static str;

/// An operand of a product: numbers of eight bits, and what they stand for.
#[derive(Clone)]
struct Operand<'a> {
    /// The edge of the numbers.
    numbers: EdgeId,
    /// Views between the numbers and the product, the first one first.
    views: Vec<&'a Node>,
    /// Its axes, as the product sees them.
    shape: Vec<usize>,
    format: Format,
    /// What the numbers are multiplied by, if anything.
    scale: Option<Tensor>,
    /// What is subtracted from them.
    zero: Option<Tensor>,
    /// The axis along which scale and zero point have several numbers.
    axis: usize,
    /// The operand itself, if it is known.
    known: Option<Tensor>,
    /// The node that quantises it, if its twin shall: to `i8`, with a zero point that is less by 128.
    twin: Option<&'a Node>,
}

/// What stands behind the sums.
enum End {
    /// Numbers of a format, times `alpha`, with `beta` times an addend.
    Real { format: Format, alpha: f64, addend: Option<(EdgeId, f64)> },
    /// Quantised numbers, by a scale and a zero point, of sums with an addend.
    Quantised { scale: EdgeId, zero: EdgeId, addend: Option<Tensor> },
    /// The sums.
    Sums,
}

/// A product of quantised numbers.
struct Found<'a> {
    node: &'a Node,
    x: Operand<'a>,
    w: Operand<'a>,
    convolves: bool,
    end: End,
}

/// The tensor of an edge that only constants decide.
fn known(network: &Network, edge: EdgeId) -> Option<Cow<'_, Tensor>> {
    if let Some(tensor) = network.value_of(edge) {
        return Some(Cow::Borrowed(tensor));
    }
    let Source::Node(id, output) = network.graph().edge(edge).source else { return None };
    let node = network.graph().node(id);
    // What quantised weights are made by.
    if !matches!(node.operator_name(), "QuantizeLinear" | "Cast" | "Transpose" | "Reshape" | "Identity") {
        return None;
    }
    let inputs: Vec<Option<Cow<'_, Tensor>>> =
        node.inputs.iter().map(|edge| edge.map_or(Some(None), |edge| known(network, edge).map(Some))).collect::<Option<_>>()?;
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_deref).collect();
    node.evaluate(&inputs).ok()?.into_iter().nth(output).map(Cow::Owned)
}

/// A scale or a zero point: a number, or one for each of several rows or channels.
fn parameter(network: &Network, edge: Option<EdgeId>) -> Result<Option<Tensor>, Why> {
    let of = |edge| known(network, edge).map(Cow::into_owned).ok_or("a scale or a zero point is not a constant");
    edge.map(of).transpose()
}

fn is_zero(tensor: &Tensor) -> bool {
    tensor.numbers().iter().all(|x| *x == 0.0)
}

impl<'a> Operand<'a> {
    /// The operand of these edges: numbers, scale, zero point.
    fn new(network: &Network, [numbers, scale, zero]: [Option<EdgeId>; 3], axis: usize) -> Result<Operand<'a>, Why> {
        let numbers = numbers.ok_or("it lacks an operand")?;
        let of = network.type_of(numbers);
        let shape = of.shape().ok_or("the shape of an operand is not known")?;
        let (scale, zero) = (parameter(network, scale)?, parameter(network, zero)?.filter(|zero| !is_zero(zero)));
        let known = known(network, numbers).map(Cow::into_owned);
        Ok(Operand { numbers, views: Vec::new(), shape, format: of.format, scale, zero, axis, known, twin: None })
    }

    /// The operand behind an edge that a `DequantizeLinear` gives, perhaps through views. `None` if none does.
    fn dequantised(network: &'a Network, edge: EdgeId) -> Option<Result<Operand<'a>, Why>> {
        let graph = network.graph();
        let (mut at, mut views) = (edge, Vec::new());
        let node = loop {
            let node = graph.node(graph.producer(at)?);
            match node.kind() {
                Kind::View(Moves::Shape | Moves::Units | Moves::Order | Moves::Nothing) => views.push(node),
                _ if node.operator_name() == "DequantizeLinear" => break node,
                _ => return None,
            }
            at = node.inputs[0]?;
        };
        views.reverse();
        let input = |index: usize| node.inputs.get(index).copied().flatten();
        let inputs = [0, 1, 2].map(input);
        Some(Operand::new(network, inputs, 0).and_then(|operand| operand.seen(network, node, views)))
    }

    /// The operand of a `DequantizeLinear` through views.
    fn seen(mut self, network: &Network, node: &Node, views: Vec<&'a Node>) -> Result<Operand<'a>, Why> {
        if node.attributes.int_or("block_size", 0) != 0 {
            return Err("kernels have no scale for each block of its operands");
        }
        let axis = meaning::axis(node.attributes.int_or("axis", 1), self.shape.len());
        self.axis = axis.unwrap_or(0);
        let several = [&self.scale, &self.zero].into_iter().flatten().any(|tensor| tensor.len() != 1);
        for view in &views {
            let shape = network.type_of(view.outputs[0]).shape().ok_or("the shape of an operand is not known")?;
            if several {
                // Where the axis of the scales comes to lie.
                let order = layout::permutation(view.attributes.ints("perm"), self.shape.len()).ok();
                let order = order.filter(|_| matches!(view.kind(), Kind::View(Moves::Order)));
                let moved = order.and_then(|order| order.iter().position(|axis| *axis == self.axis));
                self.axis = moved.ok_or("its weights have scales of channels, and another shape in between")?;
            }
            if let Some(tensor) = self.known.take() {
                let rest = view.inputs[1..].iter().map(|edge| edge.and_then(|edge| network.value_of(edge)));
                let inputs: Vec<Option<&Tensor>> = [Some(&tensor)].into_iter().chain(rest).collect();
                self.known = view.evaluate(&inputs).ok().and_then(|mut outputs| outputs.pop());
            }
            self.shape = shape;
        }
        self.views = views;
        Ok(self)
    }

    fn is_float(&self) -> bool {
        self.format.is_float()
    }

    /// Weights as `i8` without a zero point, if they are known and fit.
    fn centred(&mut self) -> Result<(), Why> {
        let Some(zero) = &self.zero else { return Ok(()) };
        let why = "a zero point of its weights is not 0";
        let tensor = self.known.as_ref().filter(|_| !self.is_float()).ok_or(why)?;
        let numbers = product::centred(tensor, Some(zero), self.axis).map_err(|_| why)?.integers();
        let (least, most) = Format::I8.range();
        if numbers.iter().any(|x| *x < least || *x > most) {
            return Err("its weights less their zero point do not fit into eight bits");
        }
        self.known = Some(Tensor::of_integers(Format::I8, tensor.shape(), &numbers).map_err(|_| why)?);
        (self.format, self.zero) = (Format::I8, None);
        Ok(())
    }

    /// Images of `u8` as `i8`, if a node of the network quantises them.
    fn signed(&mut self, network: &'a Network) -> Result<(), Why> {
        let why = "kernels have no convolution of u8 and i8";
        let graph = network.graph();
        let node = graph.producer(self.numbers).map(|id| graph.node(id)).filter(|node| node.operator_name() == "QuantizeLinear");
        let single = self.zero.as_ref().is_none_or(|zero| zero.len() == 1);
        let node = node.filter(|node| single && node.attributes.int_or("block_size", 0) == 0).ok_or(why)?;
        // It has to be the one that the product subtracts.
        let own = parameter(network, node.inputs.get(2).copied().flatten())?;
        let number = |zero: &Option<Tensor>| zero.as_ref().map_or(Some(0.0), Tensor::only);
        let zero = number(&own).filter(|own| Some(*own) == number(&self.zero)).ok_or(why)? - 128.0;
        self.zero = (zero != 0.0).then(|| Tensor::scalar(Format::I8, zero));
        (self.format, self.twin, self.known) = (Format::I8, Some(node), None);
        Ok(())
    }
}

/// The product that a node is, if its operands are quantised, or why it stays as it is. `None` if nothing is quantised.
fn found<'a>(network: &'a Network, node: &'a Node) -> Option<Result<Found<'a>, Why>> {
    let Applied::Row(row) = node.operator else { return None };
    let input = |index: usize| node.inputs.get(index).copied().flatten();
    let rank = |index: usize| input(index).and_then(|edge| network.type_of(edge).shape()).map_or(0, |shape| shape.len());
    let convolves = matches!(row.name, "Conv" | "ConvInteger" | "QLinearConv");
    let channels = |index: usize| if convolves { 0 } else { rank(index).saturating_sub(1) };
    let rows = |index: usize| if convolves { 1 } else { rank(index).saturating_sub(2) };
    let both = |x: Result<Operand<'a>, Why>, w: Result<Operand<'a>, Why>, end: Result<End, Why>| {
        Some(x.and_then(|x| Ok(Found { node, x, w: w?, convolves, end: end? })))
    };
    match row.name {
        "MatMul" | "Gemm" | "Conv" => {
            let (x, w) = match [0, 1].map(|index| input(index).and_then(|edge| Operand::dequantised(network, edge))) {
                [Some(x), Some(w)] => (x, w),
                [None, None] => return None,
                _ => return Some(Err("one of its operands alone is quantised")),
            };
            let [alpha, beta] = ["alpha", "beta"].map(|name| node.attributes.float_or(name, 1.0));
            let format = network.type_of(node.outputs[0]).format;
            both(x, w, Ok(End::Real { format, alpha, addend: input(2).map(|edge| (edge, beta)) }))
        }
        "MatMulInteger" | "ConvInteger" => {
            let x = Operand::new(network, [input(0), None, input(2)], rows(0));
            both(x, Operand::new(network, [input(1), None, input(3)], channels(1)), Ok(End::Sums))
        }
        "QLinearMatMul" | "QLinearConv" => {
            let x = Operand::new(network, [input(0), input(1), input(2)], rows(0));
            let w = Operand::new(network, [input(3), input(4), input(5)], channels(3));
            let addend = parameter(network, input(8)).map_err(|_| "its bias is not a constant");
            let end = addend.and_then(|addend| {
                let (scale, zero) = (input(6).ok_or("it lacks a scale")?, input(7).ok_or("it lacks a zero point")?);
                Ok(End::Quantised { scale, zero, addend })
            });
            both(x, w, end)
        }
        _ => None,
    }
}

impl<'a> Found<'a> {
    /// The axis of the weights that a result's channels lie along.
    fn channel(&self) -> usize {
        match self.convolves {
            true => 0,
            false => self.w.shape.len() - if self.node.attributes.flag("transB") { 2 } else { 1 },
        }
    }

    /// The product as kernels have it.
    ///
    /// # Errors
    /// If they do not: why.
    fn served(mut self, network: &'a Network) -> Result<Found<'a>, Why> {
        if self.x.shape.len() < 2 || self.w.shape.len() < 2 {
            return Err("an operand is a vector");
        }
        self.w.centred()?;
        if self.convolves && (self.x.format, self.w.format) == (Format::U8, Format::I8) {
            self.x.signed(network)?;
        }
        let (Some(a), Some(b)) = (self.x.format.dtype(), self.w.format.dtype()) else {
            return Err("kernels do not have the formats of its operands");
        };
        if !a.is_eight_bits() || a != b && (self.convolves || !a.mixes_with(b)) {
            return Err("kernels multiply neither of its formats by the other");
        }
        let channels = self.w.shape[self.channel()];
        let terms: usize = match self.convolves {
            true => self.w.shape[1..].iter().product(),
            false => self.w.shape[self.w.shape.len() - 2..].iter().product::<usize>() / channels.max(1),
        };
        if !self.x.is_float() && terms > MOST_TERMS {
            return Err("sums of so many products do not fit into 32 bits");
        }
        if [&self.x.scale, &self.x.zero].into_iter().flatten().any(|tensor| tensor.len() != 1) {
            return Err("its first operand has several scales or zero points");
        }
        let fits = |scale: &Tensor| scale.len() == 1 || scale.len() == channels && self.w.axis == self.channel();
        if !self.w.scale.as_ref().is_none_or(fits) {
            return Err("its weights have scales along the axis that is summed");
        }
        if self.x.zero.is_some() {
            let border = self.node.attributes.ints("pads").is_some_and(|pads| pads.iter().any(|pad| *pad != 0));
            let inside = matches!(self.node.attributes.text_or("auto_pad", "NOTSET"), "NOTSET" | "VALID");
            if self.convolves && (border || !inside) {
                return Err("a border counts as 0, which its zero point is not");
            }
            if self.x.is_float() || self.w.known.is_none() || !self.convolves && self.w.shape.len() != 2 {
                return Err("its zero point is not 0, and the sums of its weights are not known");
            }
        }
        let (least, most) = Format::I32.range();
        if self.correction().into_iter().flatten().any(|x| x < least || x > most) {
            return Err("its bias and zero point do not fit into 32 bits");
        }
        Ok(self)
    }

    /// What is subtracted from the sums of each channel: the zero point times the sum of its weights, less an addend.
    fn correction(&self) -> Option<Vec<i128>> {
        let addend = if let End::Quantised { addend, .. } = &self.end { addend.as_ref().map(Tensor::integers) } else { None };
        let zero = self.x.zero.as_ref().map(|zero| zero.integers()[0]);
        if addend.is_none() && zero.is_none() {
            return None;
        }
        let channels = self.w.shape[self.channel()];
        let mut sums = vec![0i128; channels];
        if let (Some(zero), Some(weights)) = (zero, &self.w.known) {
            let [_, _, inner] = meaning::around(weights.shape(), self.channel());
            let channel = |i: usize| i / inner.max(1) % channels.max(1);
            weights.integers().into_iter().enumerate().for_each(|(i, w)| sums[channel(i)] += zero * w);
        }
        let addend = addend.unwrap_or_default();
        sums.iter_mut().zip(addend).for_each(|(sum, addend)| *sum -= addend);
        Some(sums)
    }

    /// What the sums are multiplied by.
    fn scale(&self, alpha: f64) -> Option<Tensor> {
        let [x, w] = [&self.x.scale, &self.w.scale].map(|scale| scale.as_ref().map_or_else(|| vec![1.0], Tensor::numbers));
        let scale: Vec<f64> = w.iter().map(|w| alpha * x[0] * w).collect();
        if scale.len() == 1 {
            return Some(Tensor::scalar(Format::F32, scale[0]));
        }
        Tensor::of_numbers(Format::F32, &[scale.len()], &scale).ok()
    }
}

/// A network that is being rebuilt, around one product.
struct Around<'a, 'b> {
    rewriter: &'b mut Rewriter<'a>,
    of: &'a Node,
}

impl<'a> Around<'a, '_> {
    fn node(&mut self, operator: &str, inputs: &[EdgeId], attributes: Attributes, what: &str) -> Option<EdgeId> {
        let operator = Applied::Row(Operator::named(operator)?);
        let (name, inputs) = (format!("{}.{what}", self.of.name).into(), inputs.iter().copied().map(Some).collect());
        let node = Node { name, operator, attributes, inputs, outputs: Vec::new(), built_at: self.of.built_at };
        self.rewriter.graph.add_node(node, vec![format!("{}.{what}.out", self.of.name).into()]).first().copied()
    }

    fn constant(&mut self, tensor: Tensor, what: &str) -> EdgeId {
        self.rewriter.graph.add_edge(format!("{}.{what}", self.of.name), Source::Constant(tensor))
    }

    /// An operand's numbers, through its views.
    fn numbers(&mut self, operand: &Operand<'a>, what: &str) -> Option<EdgeId> {
        let mut edge = match operand.twin {
            Some(node) => {
                let [x, scale] = [0, 1].map(|index| node.inputs[index]);
                let (x, scale) = (self.rewriter.edge(x?), self.rewriter.edge(scale?));
                let zero = operand.zero.clone().unwrap_or_else(|| Tensor::scalar(Format::I8, 0.0));
                let zero = self.constant(zero, "zero");
                let mut attributes = node.attributes.clone();
                attributes.0.remove("output_dtype");
                self.node("QuantizeLinear", &[x, scale, zero], attributes, "signed")?
            }
            None => self.rewriter.edge(operand.numbers),
        };
        for (at, view) in operand.views.iter().enumerate() {
            let mut copy = self.rewriter.renamed(view);
            copy.inputs[0] = Some(edge);
            copy.name = format!("{}.{what}{at}", self.of.name).into();
            let name = format!("{}.out", copy.name).into();
            edge = self.rewriter.graph.add_node(copy, vec![name]).first().copied()?;
        }
        Some(edge)
    }

    /// A number or a vector, along the channels of a result.
    fn along_channels(&mut self, edge: EdgeId, shape: &[usize], found: &Found<'_>) -> Option<EdgeId> {
        if !found.convolves || shape.len() != 1 {
            return Some(edge);
        }
        let axes: Vec<i64> = (1..found.x.shape.len() as i64 - 1).collect();
        let axes = self.constant(Tensor::indices(&axes), "axes");
        self.node("Unsqueeze", &[edge, axes], Attributes::new(), "along_channels")
    }

    /// The product and what stands behind it.
    fn lowered(&mut self, network: &Network, found: &Found<'a>) -> Option<EdgeId> {
        let (mut attributes, operator) = match found.convolves {
            true => (found.node.attributes.clone(), "WideConv"),
            false => (Attributes::new(), "WideMatMul"),
        };
        for mark in ["transA", "transB"].into_iter().filter(|mark| found.node.attributes.flag(mark)) {
            attributes = attributes.with(mark, 1);
        }
        let x = self.numbers(&found.x, "x")?;
        let w = match &found.w.known {
            Some(tensor) if !found.convolves && tensor.rank() == 2 => {
                // Tensor cores read operands of eight bits along K.
                let turned = if attributes.flag("transB") { tensor.clone() } else { product::transposed(tensor).ok()? };
                attributes = attributes.with("transB", 1);
                self.constant(turned, "weights")
            }
            Some(tensor) => self.constant(tensor.clone(), "weights"),
            None => self.numbers(&found.w, "w")?,
        };
        let sums = self.node(operator, &[x, w], attributes, "sums")?;
        let alpha = if let End::Real { alpha, .. } = found.end { alpha } else { 1.0 };
        let correction = match found.correction() {
            Some(sums) => Some(Tensor::of_integers(Format::I32, &[sums.len()], &sums).ok()?),
            None => None,
        };
        if let End::Sums = found.end {
            let Some(tensor) = correction else { return Some(sums) };
            let shape = tensor.shape().to_vec();
            let correction = self.constant(tensor, "correction");
            let correction = self.along_channels(correction, &shape, found)?;
            return self.node("Sub", &[sums, correction], Attributes::new(), "centred");
        }
        let scale = self.constant(found.scale(alpha)?, "scale");
        let real = if found.x.is_float() {
            let shape = found.scale(alpha)?.shape().to_vec();
            let scale = self.along_channels(scale, &shape, found)?;
            self.node("Mul", &[sums, scale], Attributes::new(), "scaled")?
        } else {
            let mut inputs = vec![sums, scale];
            inputs.extend(correction.map(|tensor| self.constant(tensor, "correction")));
            let axis = if found.convolves { 1 } else { -1 };
            self.node("DequantizeLinear", &inputs, Attributes::new().with("axis", axis), "scaled")?
        };
        match &found.end {
            End::Real { format, addend, .. } => {
                let mut real = real;
                if let Some((edge, beta)) = addend {
                    let of = network.type_of(*edge);
                    let mut addend = self.rewriter.edge(*edge);
                    if of.format != Format::F32 {
                        let to = Attributes::new().with("to", Format::F32.name());
                        addend = self.node("Cast", &[addend], to, "wide_addend")?;
                    }
                    addend = self.along_channels(addend, &of.shape()?, found)?;
                    if *beta != 1.0 {
                        let beta = self.constant(Tensor::scalar(Format::F32, *beta), "beta");
                        addend = self.node("Mul", &[addend, beta], Attributes::new(), "times_beta")?;
                    }
                    real = self.node("Add", &[real, addend], Attributes::new(), "added")?;
                }
                if *format != Format::F32 {
                    let to = Attributes::new().with("to", format.name());
                    real = self.node("Cast", &[real], to, "rounded")?;
                }
                Some(real)
            }
            End::Quantised { scale, zero, .. } => {
                let (scale, zero) = (self.rewriter.edge(*scale), self.rewriter.edge(*zero));
                let axis = if found.convolves { 1 } else { -1 };
                self.node("QuantizeLinear", &[real, scale, zero], Attributes::new().with("axis", axis), "quantised")
            }
            End::Sums => None,
        }
    }
}

pub(super) fn lower(network: &Network, did: &mut Simplified) -> Network {
    let mut rewriter = Rewriter::new(network);
    for (_, node) in network.graph().nodes() {
        let lowered = found(network, node).map(|found| {
            let found = found?.served(network)?;
            let mut around = Around { rewriter: &mut rewriter, of: node };
            around.lowered(network, &found).ok_or("the shape of what stands behind it is not known")
        });
        if let Some(Err(why)) = lowered {
            did.unquantised.push((node.name.to_string(), why));
        }
        match lowered.and_then(Result::ok) {
            Some(edge) => {
                rewriter.graph.edges[edge.index()].name = network.graph().edge(node.outputs[0]).name.clone();
                rewriter.stand_for(node.outputs[0], edge);
                did.quantised += 1;
            }
            None => rewriter.keep(node),
        }
    }
    // What dequantised the operands need not be folded first.
    if did.quantised == 0 { network.clone() } else { super::alive(&rewriter.finish()) }
}
