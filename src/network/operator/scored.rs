//! An attention with pointwise nodes between its first product and its softmax: masks, biases, caps.
//!
//! Together these nodes are a function of scores ([`Scores`]), whatever they are: what the epilogue language can say decides, not
//! a list of patterns.

use super::Operator;
use crate::build::{Builder, Expr};
use crate::dtype::ValueType;
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::graph::Applied;
use crate::problem::Scores;
use std::fmt;

/// An operand of a node between the products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// The score itself.
    Score,
    /// The result of an earlier node.
    Step(usize),
    /// A further input of the attention.
    Input(usize),
    /// A number of this type.
    Number(f64, ValueType),
}

/// A pointwise node between the products.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub operator: Applied,
    pub attributes: Attributes,
    /// `None` for one that is left out.
    pub operands: Vec<Option<Operand>>,
    /// The formats of the first operand and of the result.
    pub formats: [Format; 2],
}

/// The operator of such an attention: queries, keys, values, and what the nodes read besides. Only fusion makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub(crate) steps: Vec<Step>,
    /// Further inputs.
    pub(crate) inputs: usize,
}

impl Scored {
    /// The row that it is a form of.
    pub(crate) fn row() -> Option<&'static Operator> {
        Operator::named("ScaledDotProductAttention")
    }

    /// The function of scores, with expressions for further inputs. `load` gives them, each once.
    ///
    /// # Errors
    /// If the language cannot say it: why.
    pub(crate) fn function(&self, load: impl for<'g> Fn(&'g Builder, usize) -> Option<Expr<'g>>) -> Result<Scores, Fault> {
        if let Some(step) = self.steps.iter().find(|step| step.operator.expression().is_none()) {
            return Err(Fault::Unsupported(format!("{} between the products of an attention", step.operator.name())));
        }
        let mut lacking = None;
        let built = Scores::build(|s| {
            let inputs: Vec<Option<Expr<'_>>> = (0..self.inputs).map(|input| load(s, input)).collect();
            lacking = inputs.iter().position(Option::is_none);
            self.apply(s, &inputs)
        });
        if let Some(input) = lacking {
            return Err(Fault::Shape(format!("input {} of an attention lies where no kernel reads it", input + 3)));
        }
        built.map_err(|faults| {
            let first = faults.iter().next().map(|fault| fault.message().to_owned()).unwrap_or_default();
            Fault::Unsupported(format!("an attention with such a function of its scores ({first})"))
        })
    }

    fn apply<'g>(&self, s: &'g Builder, inputs: &[Option<Expr<'g>>]) -> Expr<'g> {
        let mut results: Vec<Expr<'g>> = Vec::new();
        for step in &self.steps {
            let value = |operand: &Option<Operand>| match (*operand)? {
                Operand::Score => Some(s.acc()),
                Operand::Step(index) => Some(results[index]),
                Operand::Input(index) => inputs[index],
                Operand::Number(x, ValueType::I32) => Some(s.constant(x as i32)),
                Operand::Number(x, ValueType::Bool) => Some(s.constant(x != 0.0)),
                Operand::Number(x, _) => Some(s.constant(x as f32)),
            };
            let values: Vec<Option<Expr<'g>>> = step.operands.iter().map(value).collect();
            results.push(match step.operator.expression() {
                Some(pointwise) => pointwise.apply(s, &values, &step.attributes, step.formats),
                None => s.acc(), // `function` has refused it
            });
        }
        results.last().copied().unwrap_or_else(|| s.acc())
    }
}

/// The nodes, in order.
impl fmt::Display for Scored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.steps.iter().map(|step| step.operator.name()).collect();
        f.write_str(&names.join(", "))
    }
}
