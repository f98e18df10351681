//! THE table of operators: one row for each, and everything that a network knows about it.
//!
//! | column | says |
//! | --- | --- |
//! | name, doc | ONNX's name at opset 17 or later, and what it computes |
//! | inputs, outputs | how many, at least and at most |
//! | attributes | names and types |
//! | typing | formats and shapes of the outputs, from those of the inputs |
//! | meaning | the outputs on the CPU |
//! | gradient | how the gradients of the inputs follow from those of the outputs |
//! | kind | what fusion may do with it |
//!
//! A [pointwise](Kind::Pointwise) row is a function on expressions of the epilogue language, and nothing else: typing,
//! meaning, gradient and fusion follow from it. Formats that the language lacks, such as `i64`, take the row's function on whole
//! numbers.

mod derivative;
mod gradients;
mod moved;
pub(crate) mod pointwise;
mod rows;
pub(crate) mod scored;
pub(crate) mod typing;
mod wide;

pub use derivative::Derivative;
pub use pointwise::{Body, Gives, Operands, OwnBody, Pointwise, RowBody, Spread, Whole};
pub use scored::Scored;

use super::attribute::{AttributeType, Attributes};
use super::fault::Fault;
use super::grad::{Rule, rules};
use super::tensor::Tensor;
use super::types::Type;
use crate::dtype::ValueType;
use crate::ir::Monoid;
use crate::problem::GradientOf;
use std::fmt;

/// What a typing rule sees of a node.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The operator's name.
    pub name: &'a str,
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// The types of its inputs; `None` for one that is left out.
    pub inputs: &'a [Option<&'a Type>],
    /// The tensors of inputs that are constants.
    pub constants: &'a [Option<&'a Tensor>],
    /// How many outputs it has.
    pub outputs: usize,
}

/// What a meaning sees of a node.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operator's name.
    pub name: &'a str,
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// Its inputs; `None` for one that is left out.
    pub inputs: &'a [Option<&'a Tensor>],
    /// How many outputs it has.
    pub outputs: usize,
}

impl<'a> Call<'a> {
    /// An input that the operator needs.
    ///
    /// # Errors
    /// If it was left out.
    pub fn input(&self, index: usize) -> Result<&'a Tensor, Fault> {
        self.get(index).ok_or_else(|| Fault::Shape(format!("{} needs its input {index}", self.name)))
    }

    /// An input that may be left out.
    pub fn get(&self, index: usize) -> Option<&'a Tensor> {
        self.inputs.get(index).copied().flatten()
    }

    /// An input of indices or extents that may be left out.
    pub fn sizes(&self, index: usize) -> Option<Vec<i64>> {
        self.get(index).map(Tensor::sizes)
    }
}

impl<'a> Site<'a> {
    /// An input's type.
    ///
    /// # Errors
    /// If it was left out.
    pub fn input(&self, index: usize) -> Result<&'a Type, Fault> {
        self.get(index).ok_or_else(|| Fault::Shape(format!("{} needs its input {index}", self.name)))
    }

    /// The type of an input that may be left out.
    pub fn get(&self, index: usize) -> Option<&'a Type> {
        self.inputs.get(index).copied().flatten()
    }

    /// The tensor of an input that is a constant.
    pub fn constant(&self, index: usize) -> Option<&'a Tensor> {
        self.constants.get(index).copied().flatten()
    }
}

/// The types of a node's outputs.
pub type Typing = fn(&Site<'_>) -> Result<Vec<Type>, Fault>;
/// The outputs of a node.
pub type Meaning = fn(&Call<'_>) -> Result<Vec<Tensor>, Fault>;

/// What fusion may do with an operator.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind<'a> {
    /// A product that an epilogue can stand behind.
    Anchor(Anchor),
    /// A function of elements at one place: an expression of the epilogue language.
    Pointwise(Pointwise<'a>),
    /// Elements along axes become one.
    Reduction(Reduction),
    /// A function of a whole row, with the row's extent.
    Normalisation(Normalisation),
    /// The same elements in another shape or order.
    View(Moves),
    /// Elements of a tensor at places that a kernel can compute.
    Table(Table),
    /// A window of elements becomes one.
    Pooling(Pools),
    /// Nothing is known but its meaning.
    Opaque,
}

impl Anchor {
    /// Whether it multiplies matrices, as opposed to images.
    pub(crate) const fn multiplies_matrices(self) -> bool {
        matches!(self, Anchor::MatMul | Anchor::Gemm | Anchor::WideMatMul | Anchor::Attention)
    }
}

impl Kind<'_> {
    /// The kind in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Anchor(_) => "anchor",
            Kind::Pointwise(_) => "pointwise",
            Kind::Reduction(_) => "reduction",
            Kind::Normalisation(_) => "normalisation",
            Kind::View(_) => "view",
            Kind::Table(_) => "table",
            Kind::Pooling(_) => "pooling",
            Kind::Opaque => "opaque",
        }
    }
}

/// What a view does to a tensor's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Nothing.
    Nothing,
    /// The same elements in order, in another shape.
    Shape,
    /// Axes of extent 1 come or go.
    Units,
    /// Axes in another order.
    Order,
    /// Axes stretched to an extent.
    Stretch,
    /// A part of each axis.
    Slice,
    /// Parts along an axis, one an output.
    Split,
    /// Inputs side by side along an axis.
    Join,
    /// Blocks of pixels become channels if `gathers`, and channels blocks of pixels otherwise.
    Blocks {
        /// Whether pixels are gathered.
        gathers: bool,
    },
    /// The same bits in another format.
    Bits,
}

impl Moves {
    /// Whether a kernel copies the elements where strides cannot say the view.
    pub(crate) const fn has_a_copy(self) -> bool {
        matches!(self, Moves::Shape | Moves::Order | Moves::Stretch | Moves::Slice | Moves::Blocks { .. })
    }
}

/// The tables that a kernel can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Slices that indices name.
    Slices,
    /// A tensor with a border.
    Border,
}

/// What a pool makes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    /// What becomes of a window. No kernel serves norms yet.
    pub of: Reduction,
    /// Whether the window is a whole image.
    pub whole: bool,
}

/// The products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// A matrix product as NumPy's.
    MatMul,
    /// A product of two matrices with scales and an addend.
    Gemm,
    /// A convolution.
    Conv,
    /// A matrix product of numbers of eight bits, in their sums' format.
    WideMatMul,
    /// A convolution of numbers of eight bits, in their sums' format.
    WideConv,
    /// Two products with a softmax between them.
    Attention,
    /// A gradient of a convolution.
    ConvGradient(GradientOf),
    /// A product that fusion does not reach yet.
    Other,
}

/// The reductions that an epilogue can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// What a monoid makes of the elements.
    Of(Monoid),
    /// The sum of absolute values.
    AbsoluteSum,
    /// The logarithm of the sum.
    LogSum,
    /// One that no kernel serves yet.
    Other,
}

impl Reduction {
    /// Whether a kernel reduces values of this type.
    pub(crate) fn takes(self, value: ValueType) -> bool {
        match self {
            Reduction::Of(monoid) => monoid.takes(0).contains(&value),
            Reduction::AbsoluteSum => Monoid::Sum.takes(0).contains(&value),
            Reduction::LogSum => value == ValueType::F32,
            Reduction::Other => false,
        }
    }
}

/// The functions of a row, or of the channels of an image, that a kernel can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalisation {
    /// e^x over the sum of all.
    Softmax,
    /// The logarithm of that.
    LogSoftmax,
    /// Centred, over the standard deviation.
    LayerNorm,
    /// Over the root of the mean square.
    RmsNorm,
    /// Channels of each image, or groups of them, centred, over the standard deviation.
    Channels,
    /// One that no kernel serves yet.
    Other,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Operator {
    /// ONNX's name.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// How many inputs, at least and at most.
    pub inputs: (usize, usize),
    /// How many outputs, at least and at most.
    pub outputs: (usize, usize),
    /// The attributes it takes.
    pub attributes: &'static [(&'static str, AttributeType)],
    /// What fusion may do with it.
    pub kind: Kind<'static>,
    /// Whether ONNX has it. It has no operators for some gradients.
    pub is_onnx: bool,
    typing: Typing,
    meaning: Meaning,
    gradient: Option<Rule>,
}

/// As many as there are.
pub(crate) const ANY: usize = usize::MAX;

impl Operator {
    /// A row without attributes, of one output.
    const fn new(
        name: &'static str,
        doc: &'static str,
        inputs: (usize, usize),
        kind: Kind<'static>,
        typing: Typing,
        meaning: Meaning,
    ) -> Operator {
        let (outputs, attributes) = ((1, 1), &[] as &[_]);
        Operator { name, doc, inputs, outputs, attributes, kind, is_onnx: true, typing, meaning, gradient: None }
    }

    /// A pointwise row: typing and meaning follow from its expression.
    const fn pointwise(name: &'static str, doc: &'static str, inputs: usize, body: RowBody) -> Operator {
        let kind = Kind::Pointwise(Pointwise::new(Body::Row(body)));
        Operator::new(name, doc, (inputs, inputs), kind, pointwise::typing, pointwise::meaning).gradient_by(rules::pointwise)
    }

    /// The same with more outputs.
    const fn outputs(self, least: usize, most: usize) -> Operator {
        Operator { outputs: (least, most), ..self }
    }

    /// The same with other bounds of its inputs.
    const fn inputs(self, least: usize, most: usize) -> Operator {
        Operator { inputs: (least, most), ..self }
    }

    /// The same with attributes.
    const fn with(self, attributes: &'static [(&'static str, AttributeType)]) -> Operator {
        Operator { attributes, ..self }
    }

    /// A pointwise row whose formats follow another rule.
    const fn gives(self, gives: Gives) -> Operator {
        let kind = if let Kind::Pointwise(p) = self.kind { Kind::Pointwise(Pointwise { gives, ..p }) } else { self.kind };
        Operator { kind, ..self }
    }

    /// A pointwise row whose operands lie along an axis.
    const fn spread(self, spread: Spread) -> Operator {
        let kind = if let Kind::Pointwise(p) = self.kind { Kind::Pointwise(Pointwise { spread, ..p }) } else { self.kind };
        Operator { kind, ..self }
    }

    /// A pointwise row with a value on whole numbers.
    const fn whole(self, whole: Whole) -> Operator {
        let kind =
            if let Kind::Pointwise(p) = self.kind { Kind::Pointwise(Pointwise { whole: Some(whole), ..p }) } else { self.kind };
        Operator { kind, ..self }
    }

    /// The same with a typing rule of its own.
    const fn typed(self, typing: Typing) -> Operator {
        Operator { typing, ..self }
    }

    /// The same with a meaning of its own on the CPU.
    const fn means(self, meaning: Meaning) -> Operator {
        Operator { meaning, ..self }
    }

    /// The same with a rule for gradients.
    const fn gradient_by(self, rule: Rule) -> Operator {
        Operator { gradient: Some(rule), ..self }
    }

    /// The same outside of ONNX.
    const fn own(self) -> Operator {
        Operator { is_onnx: false, ..self }
    }

    /// Whether there is a rule for the gradients of its inputs. That of a pointwise row is its expression, which may have none.
    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    /// How gradients of the inputs follow from those of the outputs, if they do.
    pub(crate) fn gradient(&self) -> Option<Rule> {
        self.gradient
    }

    /// Every row, in order of kinds.
    pub fn all() -> impl Iterator<Item = &'static Operator> {
        rows::TABLES.iter().copied().flatten()
    }

    /// The row of that name.
    pub fn named(name: &str) -> Option<&'static Operator> {
        Operator::all().find(|row| row.name == name)
    }

    /// The row's expression, if it is pointwise.
    pub fn expression(&self) -> Option<Pointwise<'static>> {
        if let Kind::Pointwise(pointwise) = self.kind { Some(pointwise) } else { None }
    }

    /// The types of a node's outputs.
    ///
    /// # Errors
    /// If the inputs' types do not fit.
    pub fn types(&self, site: &Site<'_>) -> Result<Vec<Type>, Fault> {
        (self.typing)(site)
    }

    /// The outputs of a node on the CPU.
    ///
    /// # Errors
    /// If the tensors do not fit, or the case is not supported.
    pub fn evaluate(&self, call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
        (self.meaning)(call)
    }

    /// Whether a node has as many inputs and outputs, and such attributes, as the row says: every fault.
    pub(crate) fn admits(&self, inputs: usize, outputs: usize, attributes: &Attributes) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        faults.extend(miscounted(self.name, "inputs", inputs, self.inputs));
        faults.extend(miscounted(self.name, "outputs", outputs, self.outputs));
        faults.extend(self.admits_attributes(attributes));
        faults
    }

    /// Whether a node has such attributes as the row says: every fault.
    pub(crate) fn admits_attributes(&self, attributes: &Attributes) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (name, value) in attributes.iter() {
            match self.attributes.iter().find(|(known, _)| *known == name) {
                None => faults.push(Fault::attribute(name, format!("is none of {}'s", self.name))),
                Some((_, kind)) if *kind != value.kind() => {
                    faults.push(Fault::attribute(name, format!("is {}, not {}", kind.words(), value.kind().words())));
                }
                Some(_) => {}
            }
        }
        faults
    }
}

/// A fault, if a node has more inputs or outputs than an operator takes at most, or fewer than at least.
pub(crate) fn miscounted(name: &str, what: &'static str, given: usize, (least, most): (usize, usize)) -> Option<Fault> {
    let takes = match most {
        _ if least == most => format!("{least}"),
        ANY => format!("at least {least}"),
        most => format!("{least} to {most}"),
    };
    (given < least || given > most).then(|| Fault::Arity { name: name.to_owned(), takes, what, given })
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operator({})", self.name)
    }
}

impl PartialEq for Operator {
    fn eq(&self, other: &Operator) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_doc() {
        let mut names: Vec<_> = Operator::all().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 120, "{count} rows");
        for row in Operator::all() {
            assert!(row.doc.len() > 3, "{} has no doc", row.name);
            assert!(row.inputs.0 <= row.inputs.1 && row.outputs.0 <= row.outputs.1, "{}", row.name);
        }
    }
}
