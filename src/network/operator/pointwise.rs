//! Pointwise operators: one expression each, from which typing, the meaning on the CPU and fusion follow.

use super::{Call, Derivative, Site};
use crate::args::{HostArgs, Tensor as ArgTensor};
use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::DType;
use crate::gemm::Gemm;
use crate::ir::Order;
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::tensor::Tensor;
use crate::network::types::{Dim, Type, broadcast, broadcast_shapes};
use crate::problem::Shape;
use std::fmt;

/// The name of an operand that a node lacks, ahead of its number.
const LACKED: &str = "lacked ";

/// The operands of an expression.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'g, 'a> {
    pub(crate) builder: &'g Builder,
    pub(crate) values: &'a [Option<Expr<'g>>],
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// The format of the result.
    pub to: Format,
    /// The format of the first operand.
    pub from: Format,
}

impl<'g> Operands<'g, '_> {
    /// An operand that every node has, counted from 0. If an expression asks for one that its node lacks, the node has a fault.
    pub fn x(&self, index: usize) -> Expr<'g> {
        // A load that no node gives stands in, and `Pointwise::epilogue` finds it.
        self.get(index).unwrap_or_else(|| self.builder.load(&format!("{LACKED}{index}"), DType::F32))
    }

    /// An operand that may be left out.
    pub fn get(&self, index: usize) -> Option<Expr<'g>> {
        self.values.get(index).copied().flatten()
    }

    /// Every operand.
    pub fn all(&self) -> impl Iterator<Item = Expr<'g>> + '_ {
        self.values.iter().copied().flatten()
    }

    /// A number attribute.
    pub fn float(&self, name: &str, default: f32) -> f64 {
        self.attributes.float_or(name, default)
    }

    /// A constant.
    pub fn constant(&self, x: f64) -> Expr<'g> {
        self.builder.constant(x)
    }
}

/// The expression of a row of the table.
pub type RowBody = for<'g> fn(&Operands<'g, '_>) -> Expr<'g>;
/// The expression of a program's own operator.
pub type OwnBody = dyn for<'g> Fn(&Operands<'g, '_>) -> Expr<'g> + Send + Sync;

/// The expression of an operator.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// That of a row of the table.
    Row(RowBody),
    /// That of a program's own operator.
    Own(&'a OwnBody),
    /// The derivative of another operator's.
    Derivative(&'a Derivative),
}

/// The value of an operator on whole numbers, which is wrapped to the result's format. `None` where that has no meaning.
pub type Whole = fn(&[i128], &Attributes, Format) -> Option<i128>;

/// The format of a pointwise result, and which operands have to share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// The operands' format, which they share from this one on.
    Shared(usize),
    /// A condition; the operands share a format.
    Condition,
    /// The first operand's format; the others have any.
    First,
    /// The format of this operand.
    Like(usize),
    /// The format of this operand, or an unsigned byte.
    QuantizedLike(usize),
    /// The format that the attribute `to` names.
    Named,
    /// The format of this operand, or where it is left out that of the last.
    LikeOrLast(usize),
}

/// How operands of fewer axes lie under the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// By NumPy's rules: their last axes agree.
    Numpy,
    /// Vectors along axis 1.
    Channel,
    /// Vectors along the attribute `axis`, which defaults to 1.
    Axis,
}

/// A function of elements at one place.
#[derive(Clone, Copy)]
pub struct Pointwise<'a> {
    /// The expression.
    pub body: Body<'a>,
    /// The value on whole numbers that the expression's language has no type for.
    pub whole: Option<Whole>,
    /// The format of the result.
    pub gives: Gives,
    /// How operands broadcast.
    pub spread: Spread,
}

impl fmt::Debug for Pointwise<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointwise({:?}, {:?})", self.gives, self.spread)
    }
}

impl<'a> Pointwise<'a> {
    pub(crate) const fn new(body: Body<'a>) -> Pointwise<'a> {
        Pointwise { body, whole: None, gives: Gives::Shared(0), spread: Spread::Numpy }
    }

    /// The format of the result.
    ///
    /// # Errors
    /// If operands differ that have to share one.
    pub(crate) fn result(&self, name: &str, formats: &[Option<Format>], attributes: &Attributes) -> Result<Format, Fault> {
        let at = |index: usize| formats.get(index).copied().flatten();
        let shared = |from: usize| {
            let mut all = formats.iter().skip(from).flatten().copied();
            let first = all.next().ok_or_else(|| Fault::Format(format!("{name} lacks an operand")))?;
            match all.find(|other| *other != first) {
                Some(other) => Err(Fault::Format(format!("{name} takes operands of one format, not {first} and {other}"))),
                None => Ok(first),
            }
        };
        match self.gives {
            Gives::Shared(from) => shared(from),
            Gives::Condition => shared(0).map(|_| Format::Bool),
            Gives::First => shared(0).or_else(|fault| at(0).ok_or(fault)),
            Gives::Like(index) => at(index).ok_or_else(|| Fault::Format(format!("{name} lacks its operand {index}"))),
            Gives::QuantizedLike(index) => Ok(at(index).unwrap_or(Format::U8)),
            Gives::Named => named_format(attributes, "to"),
            Gives::LikeOrLast(index) => at(index)
                .or_else(|| formats.last().copied().flatten())
                .ok_or_else(|| Fault::Format(format!("{name} lacks its last operand"))),
        }
    }

    /// Why no kernel computes what a node of these formats means, if so. Its expression may be near, and is not the same.
    pub(crate) fn obstacle(&self, attributes: &Attributes, formats: &[Option<Format>], to: Format) -> Option<&'static str> {
        let from_float = formats.first().copied().flatten().is_some_and(Format::is_float);
        let converts = matches!(self.gives, Gives::Named | Gives::Like(_));
        if is_whole(self, formats, to) {
            return Some("kernels saturate integers of its format, where it wraps");
        }
        if converts && from_float && matches!(to, Format::I8 | Format::U8) {
            return Some("kernels round to integers of its format, where it cuts off");
        }
        if attributes.int_or("saturate", 1) == 0 && matches!(to, Format::E4M3 | Format::E5M2) {
            return Some("kernels saturate numbers of eight bits");
        }
        if attributes.int_or("block_size", 0) != 0 {
            return Some("kernels have no scale for each block");
        }
        attributes.flag("training_mode").then_some("kernels have its form of inference alone")
    }

    /// The shapes of the operands with axes of extent 1 where they are stretched along.
    pub(crate) fn placed(&self, attributes: &Attributes, shapes: &[Option<Vec<Dim>>]) -> Vec<Option<Vec<Dim>>> {
        let rank = shapes.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let axis = match self.spread {
            Spread::Numpy => return shapes.to_vec(),
            Spread::Channel => 1,
            Spread::Axis => wrapped_axis(attributes.int_or("axis", 1), rank),
        };
        let place = |(index, shape): (usize, &Option<Vec<Dim>>)| match shape {
            Some(dims) if index > 0 && dims.len() == 1 && axis < rank => {
                let mut placed = vec![Dim::Known(1); rank];
                placed[axis] = dims[0].clone();
                Some(placed)
            }
            other => other.clone(),
        };
        shapes.iter().enumerate().map(place).collect()
    }

    /// The expression on operands of an epilogue under construction.
    pub(crate) fn apply<'g>(
        &self,
        builder: &'g Builder,
        values: &[Option<Expr<'g>>],
        attributes: &Attributes,
        [from, to]: [Format; 2],
    ) -> Expr<'g> {
        let operands = Operands { builder, values, attributes, to, from };
        match self.body {
            Body::Row(body) => body(&operands),
            Body::Own(body) => body(&operands),
            Body::Derivative(of) => of.apply(&operands),
        }
    }

    /// The epilogue that computes a node over operands `x0`, `x1`, ... of these formats, and stores it as `y`.
    pub(crate) fn epilogue(
        &self,
        attributes: &Attributes,
        operands: &[Option<(DType, bool)>],
        [from, to]: [Format; 2],
        stored: DType,
    ) -> Result<Epilogue, Fault> {
        let built = Epilogue::build_lenient(|e| {
            let load = |(index, operand): (usize, &Option<(DType, bool)>)| {
                let (dtype, single) = (*operand)?;
                let name = format!("x{index}");
                Some(if single { e.load(&name, dtype.pointer()) } else { e.load(&name, dtype) })
            };
            let values: Vec<Option<Expr<'_>>> = operands.iter().enumerate().map(load).collect();
            e.store("y", self.apply(e, &values, attributes, [from, to]), stored);
        });
        let (epilogue, _) = built.map_err(|faults| {
            let first = faults.iter().next().map(|fault| fault.message().to_owned()).unwrap_or_default();
            Fault::Format(format!("its expression has no meaning on {from}: {first}"))
        })?;
        match epilogue.arguments().iter().find_map(|argument| argument.name.strip_prefix(LACKED)) {
            Some(index) => {
                let count = operands.len();
                Err(Fault::Value(format!("its expression asks for operand {index}, counted from 0, and the node has {count}")))
            }
            None => Ok(epilogue),
        }
    }
}

/// The format that a word attribute names.
///
/// # Errors
/// If there is no such attribute, or no such format.
pub(crate) fn named_format(attributes: &Attributes, name: &str) -> Result<Format, Fault> {
    let word = attributes.text_or(name, "");
    let format = Format::ALL.into_iter().find(|format| format.name() == word);
    format.ok_or_else(|| Fault::attribute(name, format!("names a format such as `f16`, not `{word}`")))
}

/// An axis counted from the end if it is negative.
pub(crate) fn wrapped_axis(axis: i64, rank: usize) -> usize {
    let wrapped = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(wrapped).unwrap_or(usize::MAX)
}

fn row(name: &str) -> Result<Pointwise<'static>, Fault> {
    let row = super::Operator::named(name).and_then(super::Operator::expression);
    row.ok_or_else(|| Fault::Unsupported(format!("{name} as a pointwise operator")))
}

/// The types of every pointwise row.
pub(super) fn typing(site: &Site<'_>) -> Result<Vec<Type>, Fault> {
    row(site.name)?.types(site)
}

/// The meaning of every pointwise row.
pub(crate) fn meaning(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    row(call.name)?.evaluate(call)
}

impl Pointwise<'_> {
    /// The types of a node's outputs.
    ///
    /// # Errors
    /// If the expression has no meaning on such operands, or they do not broadcast.
    pub(crate) fn types(&self, site: &Site<'_>) -> Result<Vec<Type>, Fault> {
        let formats: Vec<Option<Format>> = site.inputs.iter().map(|input| input.map(|t| t.format)).collect();
        let to = self.result(site.name, &formats, site.attributes)?;
        let from = formats.iter().flatten().next().copied().unwrap_or(to);
        if let Body::Derivative(of) = self.body {
            of.check(&formats, site.attributes, to)?;
        }
        // The expression's own check says whether it takes such values; scalars are as good as matrices here.
        let kernels: Option<Vec<Option<(DType, bool)>>> =
            formats.iter().map(|format| format.map_or(Some(None), |f| f.dtype().map(|d| Some((d, false))))).collect();
        match (kernels, to.dtype()) {
            (Some(operands), Some(stored)) if !is_whole(self, &formats, to) => {
                self.epilogue(site.attributes, &operands, [from, to], stored)?;
            }
            _ if self.whole.is_none() => return Err(Fault::format(site.name, from)),
            _ => {}
        }
        let shapes: Vec<Option<Vec<Dim>>> = site.inputs.iter().map(|input| input.and_then(|t| t.dims.clone())).collect();
        let unknown = site.inputs.iter().zip(&shapes).any(|(input, shape)| input.is_some() && shape.is_none());
        let placed = self.placed(site.attributes, &shapes);
        let dims = broadcast(placed.iter().flatten().map(Vec::as_slice))?;
        let dims = (!unknown).then_some(dims);
        let mut types = vec![Type { format: to, dims: dims.clone() }];
        // Dropout's mask.
        types.extend((1..site.outputs).map(|_| Type { format: Format::Bool, dims: dims.clone() }));
        Ok(types)
    }

    /// A node's outputs: its epilogue, over the first operand's matrix, by the reference.
    ///
    /// # Errors
    /// If the tensors do not fit.
    pub(crate) fn evaluate(&self, call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
        let formats: Vec<Option<Format>> = call.inputs.iter().map(|input| input.map(Tensor::format)).collect();
        let to = self.result(call.name, &formats, call.attributes)?;
        let from = formats.iter().flatten().next().copied().unwrap_or(to);
        let shapes: Vec<Option<Vec<Dim>>> =
            call.inputs.iter().map(|input| input.map(|t| t.shape().iter().copied().map(Dim::Known).collect())).collect();
        let placed: Vec<Option<Vec<usize>>> = self
            .placed(call.attributes, &shapes)
            .into_iter()
            .map(|dims| dims.map(|dims| dims.iter().filter_map(Dim::known).collect()))
            .collect();
        let shape = broadcast_shapes(placed.iter().flatten().map(Vec::as_slice))?;
        let mut operands = Vec::new();
        for (tensor, place) in call.inputs.iter().zip(&placed) {
            operands.push(match (tensor, place) {
                (Some(tensor), Some(place)) if tensor.len() == 1 => Some(tensor.reshaped(&vec![1; place.len()])?),
                (Some(tensor), Some(place)) => Some(tensor.reshaped(place)?.broadcast(&shape)?),
                _ => None,
            });
        }
        let mut results = vec![if is_whole(self, &formats, to) {
            on_integers(self, call, &operands, &shape, to)?
        } else {
            on_numbers(self, call, &operands, &shape, [from, to])?
        }];
        for _ in 1..call.outputs {
            let all = vec![1.0; shape.iter().product()];
            results.push(Tensor::of_numbers(Format::Bool, &shape, &all)?);
        }
        Ok(results)
    }
}

/// Whether a node is computed in whole numbers: all operands are integers, and one has a format that the expression
/// would not wrap as its own.
fn is_whole(pointwise: &Pointwise<'_>, formats: &[Option<Format>], to: Format) -> bool {
    let mut all = formats.iter().flatten();
    let own = |format: &Format| matches!(format, Format::I32 | Format::Bool);
    let exact = all.clone().all(|format| !format.is_float()) && !to.is_float();
    pointwise.whole.is_some() && exact && !(all.all(own) && own(&to))
}

fn on_integers(
    pointwise: &Pointwise<'_>,
    call: &Call<'_>,
    operands: &[Option<Tensor>],
    shape: &[usize],
    to: Format,
) -> Result<Tensor, Fault> {
    let whole = pointwise.whole.ok_or_else(|| Fault::format(call.name, to))?;
    let mut out = Tensor::blank(to, shape)?;
    let count = out.len();
    let given: Vec<&Tensor> = operands.iter().flatten().collect();
    let bytes = out.bytes_mut();
    let mut x = vec![0; given.len()];
    for at in 0..count {
        for (x, tensor) in x.iter_mut().zip(&given) {
            *x = tensor.format().read_integer(tensor.bytes(), if tensor.len() == 1 { 0 } else { at });
        }
        let value = whole(&x, call.attributes, to).ok_or_else(|| Fault::format(call.name, to))?;
        to.write_integer(bytes, at, value);
    }
    Ok(out)
}

fn on_numbers(
    pointwise: &Pointwise<'_>,
    call: &Call<'_>,
    operands: &[Option<Tensor>],
    shape: &[usize],
    formats: [Format; 2],
) -> Result<Tensor, Fault> {
    let stored = formats[1].dtype().ok_or_else(|| Fault::format(call.name, formats[1]))?;
    let mut described = Vec::new();
    for operand in operands {
        described.push(operand.as_ref().map(|t| Ok::<_, Fault>((t.dtype(call.name)?, t.len() == 1))).transpose()?);
    }
    let epilogue = pointwise.epilogue(call.attributes, &described, formats, stored)?;
    let mut out = Tensor::blank(formats[1], shape)?;
    if out.is_empty() {
        return Ok(out);
    }
    // Lines of some length: the reference goes through a matrix by tiles.
    let columns = [4096, 1024, 256, 64, 16, 4].into_iter().find(|width| out.len().is_multiple_of(*width)).unwrap_or(1);
    let (rows, columns) = if out.len() % 4 == 0 { (out.len() / columns, columns) } else { (1, out.len()) };
    let bytes = out.bytes_mut();
    let mut args = HostArgs::new().output("y", ArgTensor::of_bytes_mut(stored, bytes));
    for (index, (tensor, described)) in operands.iter().zip(&described).enumerate() {
        if let (Some(tensor), Some((dtype, _))) = (tensor, described) {
            args = args.input(&format!("x{index}"), ArgTensor::of_bytes(*dtype, tensor.bytes()));
        }
    }
    let gemm = Gemm::pointwise(DType::F32, Order::RowMajor, &epilogue);
    gemm.reference(Shape::matrix(rows, columns), args).map_err(|errors| Fault::Value(errors.to_string()))?;
    Ok(out)
}
