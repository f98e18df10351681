//! The derivative of a pointwise operator by one of its inputs: a pointwise operator itself, whose expression follows from
//! the operator's.

use super::pointwise::{Body, Gives, Operands, Pointwise};
use super::{ANY, miscounted};
use crate::build::{Epilogue, Expr};
use crate::dtype::{DType, ValueType};
use crate::grad;
use crate::ir::{Graph, Node};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::graph::Applied;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Between the name of an operator and the input that it is differentiated by.
const MARK: char = '\'';
/// The most derivatives of derivatives. A document may ask for any number.
const DEEPEST: usize = 4;
/// The name of the incoming gradient among the arguments of an expression.
const INCOMING: &str = "g";
/// The name of the output's value.
const OUTPUT: &str = "y";

/// The gradient of one input of a pointwise operator, from the operator's inputs, its output, and the gradient of its output,
/// which comes last. What the expression does not use may be left out. If the output is there, the derivative is taken from it
/// where it follows from it: that of a sigmoid does.
///
/// Its name is the operator's, a mark, and the input: `Tanh'0`. Attributes are the operator's. The result has the shape to
/// which all of them are stretched: the sum over what the input was stretched along is another node.
pub struct Derivative {
    of: Applied,
    input: usize,
    name: String,
}

impl Derivative {
    /// The derivative of an operator by an input.
    pub(crate) fn new(of: &Applied, input: usize) -> Arc<Derivative> {
        Arc::new(Derivative { of: of.clone(), input, name: format!("{}{MARK}{input}", of.name()) })
    }

    /// The operator and the input that a name says, if it is one of a derivative.
    pub(crate) fn parsed(name: &str) -> Option<(&str, usize)> {
        let (of, input) = name.rsplit_once(MARK)?;
        let plain = input.len() < 4 && input.chars().all(|c| c.is_ascii_digit());
        let shallow = name.matches(MARK).count() <= DEEPEST;
        if plain && shallow && !of.is_empty() { Some((of, input.parse().ok()?)) } else { None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operator that it is the derivative of.
    pub fn of(&self) -> &Applied {
        &self.of
    }

    /// What a network knows about it.
    pub(crate) fn expression(&self) -> Option<Pointwise<'_>> {
        let (body, gives) = (Body::Derivative(self), Gives::LikeOrLast(self.input));
        let of = match self.of.expression() {
            Some(of) => of,
            // An operator that is not an expression may have a gradient that is one.
            None => self.of.gradient_body(self.input).map(|_| Pointwise::new(body))?,
        };
        Some(Pointwise { body, gives, whole: None, ..of })
    }

    /// How many inputs a node has, at least and at most.
    pub(crate) fn arity(&self) -> (usize, usize) {
        let (least, most) = self.of.arity();
        (least.max(self.input + 1) + 2, if most == ANY { ANY } else { most + 2 })
    }

    /// Whether a node has as many inputs and outputs, and such attributes: every fault.
    pub(crate) fn admits(&self, inputs: &[bool], outputs: usize, attributes: &Attributes) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        faults.extend(miscounted(&self.name, "inputs", inputs.len(), self.arity()));
        faults.extend(miscounted(&self.name, "outputs", outputs, (1, 1)));
        faults.extend(self.of.admits_attributes(attributes));
        if inputs.last() == Some(&false) {
            faults.push(Fault::Shape(format!("{} needs the gradient of the output, its last input", self.name)));
        }
        faults
    }

    /// Whether an input of the operator may be left out because the expression does not use it. One that the operator's own
    /// node may lack is absent there if it is absent here.
    pub(crate) fn may_lack(&self, input: usize) -> bool {
        let (least, most) = self.of.arity();
        input < least || most == ANY
    }

    /// The expression over arguments `x0`, `x1`, ... and the incoming gradient.
    fn graph(&self, types: &[Option<ValueType>], attributes: &Attributes, formats: [Format; 2]) -> Result<Graph, Fault> {
        let without =
            |why: &str| Fault::Unsupported(format!("the derivative of {} by input {}{why}", self.of.name(), self.input));
        let [inputs @ .., output, Some(incoming)] = types else { return Err(without("")) };
        // An input that was left out, because nothing uses it, has some format here all the same.
        let dtype = |input: usize, given: Option<ValueType>| -> Option<DType> {
            let absent = given.is_none() && !self.may_lack(input);
            (!absent).then(|| given.unwrap_or(*incoming).storage())
        };
        let said = |fault: String| Fault::Unsupported(format!("{} on such numbers ({fault})", self.name));
        let given = self.of.gradient_body(self.input);
        let built = Epilogue::build_lenient(|e| {
            let value = |(i, t): (usize, &Option<ValueType>)| Some(e.load(&format!("x{i}"), dtype(i, *t)?));
            let values: Vec<Option<Expr<'_>>> = inputs.iter().enumerate().map(value).collect();
            let y = match &given {
                Some(gradient) => {
                    let g = e.load(INCOMING, incoming.storage());
                    gradient(&Operands { builder: e, values: &values, attributes, to: formats[1], from: formats[0] }, g)
                }
                None => match self.of.expression() {
                    Some(of) => of.apply(e, &values, attributes, formats),
                    None => e.constant(f64::NAN),
                },
            };
            e.store("y", y, y.value_type().storage());
        });
        let (epilogue, _) =
            built.map_err(|faults| said(faults.iter().map(|fault| fault.message()).collect::<Vec<_>>().join("; ")))?;
        if given.is_some() {
            return Ok(epilogue.graph().pruned(&mut []));
        }
        let leaf = format!("x{}", self.input);
        let found = grad::derivative(&epilogue, &leaf, (INCOMING, incoming.storage()), output.map(|_| OUTPUT))
            .map_err(|error| said(error.to_string()))?;
        found.ok_or_else(|| without(", which is zero wherever it exists,"))
    }

    /// The inputs that the expression uses, the incoming gradient aside, of inputs in these formats, and whether the incoming
    /// gradient is the result. The last formats are those of the output, if it is there, and of its gradient. The output is
    /// counted as the input behind the operator's.
    ///
    /// # Errors
    /// If there is no derivative.
    pub(crate) fn uses(&self, formats: &[Option<Format>], attributes: &Attributes) -> Result<(BTreeSet<usize>, bool), Fault> {
        let to = formats.last().copied().flatten().unwrap_or(Format::F32);
        let graph = self.checked_graph(formats, attributes, to)?;
        let loads = graph.nodes().filter_map(|(_, node)| match node {
            Node::Load { name, .. } if **name == *OUTPUT => Some(formats.len().saturating_sub(2)),
            Node::Load { name, .. } => name.strip_prefix('x').and_then(|index| index.parse().ok()),
            _ => None,
        });
        // The incoming gradient itself: the input was handed on.
        let value = graph.sinks().first().map(|sink| graph.node(sink.value()));
        let same = matches!(value, Some(Node::Load { name, .. }) if **name == *INCOMING);
        Ok((loads.collect(), same))
    }

    fn checked_graph(&self, formats: &[Option<Format>], attributes: &Attributes, to: Format) -> Result<Graph, Fault> {
        let value = |format: &Option<Format>| match format {
            Some(format) => {
                format.dtype().map(|dtype| Some(dtype.value_type())).ok_or_else(|| Fault::format(&self.name, *format))
            }
            None => Ok(None),
        };
        let types: Vec<Option<ValueType>> = formats.iter().map(value).collect::<Result<_, _>>()?;
        let from = formats.iter().flatten().next().copied().unwrap_or(to);
        self.graph(&types, attributes, [from, to])
    }

    /// Whether there is a derivative.
    ///
    /// # Errors
    /// If not: why.
    pub(crate) fn check(&self, formats: &[Option<Format>], attributes: &Attributes, to: Format) -> Result<(), Fault> {
        self.checked_graph(formats, attributes, to).map(|_| ())
    }

    /// The expression on operands of an epilogue under construction.
    pub(crate) fn apply<'g>(&self, s: &Operands<'g, '_>) -> Expr<'g> {
        let types: Vec<Option<ValueType>> = s.values.iter().map(|value| value.map(Expr::value_type)).collect();
        let graph = self.graph(&types, s.attributes, [s.from, s.to]);
        let load = |name: &str| match name.strip_prefix('x') {
            Some(index) => s.get(index.parse().ok()?),
            None if name == OUTPUT => s.get(s.values.len().checked_sub(2)?),
            None => s.values.last().copied().flatten(),
        };
        // The typing rule has found the derivative before. Without one, the value would be no number.
        let value = graph.ok().and_then(|graph| s.builder.graft(&graph, load));
        value.unwrap_or_else(|| s.builder.constant(f64::NAN))
    }
}

/// A derivative is one of its operator by its input.
impl PartialEq for Derivative {
    fn eq(&self, other: &Derivative) -> bool {
        self.input == other.input && self.of == other.of
    }
}

impl fmt::Debug for Derivative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Derivative({})", self.name)
    }
}
