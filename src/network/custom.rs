//! Operators of a program's own.

use super::fault::Fault;
use super::tensor::Tensor;
use super::types::Type;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The types of a custom operator's outputs.
type CustomTyping = dyn Fn(&[&Type]) -> Result<Vec<Type>, Fault> + Send + Sync;
/// The outputs of a custom operator.
type CustomMeaning = dyn Fn(&[&Tensor]) -> Result<Vec<Tensor>, Fault> + Send + Sync;

/// An operator that a program defines by two closures over tensors in host memory: one for types, one for values.
///
/// It runs on the CPU, and fusion leaves it alone. What can be said in the epilogue language is better written with the
/// builder's operators, which then fuse as any others.
///
/// ```
/// use postlude::network::{CustomOperator, Network, Tensor, Type};
/// use postlude::prelude::*;
///
/// let reversed = CustomOperator::new("Reversed", 1, |x| Ok(vec![x[0].clone()]), |x| {
///     let mut numbers = x[0].numbers();
///     numbers.reverse();
///     Ok(vec![Tensor::of_numbers(x[0].format(), x[0].shape(), &numbers)?])
/// });
/// let network = Network::build(|g| {
///     let x = g.input("x", F32, [3]);
///     g.output("y", g.custom(&reversed, [x])[0].relu());
/// })?;
/// let y = network.run(&[("x", Tensor::of(&[1.0f32, -2.0, 3.0], &[3])?)])?;
/// assert_eq!(y[0].1.numbers(), [3.0, 0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CustomOperator {
    name: String,
    arity: usize,
    typing: Box<CustomTyping>,
    meaning: Box<CustomMeaning>,
}

impl CustomOperator {
    /// An operator of so many inputs.
    pub fn new(
        name: &str,
        arity: usize,
        typing: impl Fn(&[&Type]) -> Result<Vec<Type>, Fault> + Send + Sync + 'static,
        meaning: impl Fn(&[&Tensor]) -> Result<Vec<Tensor>, Fault> + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        Arc::new(CustomOperator { name: name.to_owned(), arity, typing: Box::new(typing), meaning: Box::new(meaning) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many inputs it takes.
    pub fn arity(&self) -> usize {
        self.arity
    }

    pub(crate) fn admits(&self, inputs: usize, _outputs: usize) -> Vec<Fault> {
        if inputs == self.arity {
            return Vec::new();
        }
        let (name, takes) = (self.name.clone(), self.arity.to_string());
        vec![Fault::Arity { name, takes, what: "inputs", given: inputs }]
    }

    pub(crate) fn types(&self, inputs: &[Option<&Type>]) -> Result<Vec<Type>, Fault> {
        (self.typing)(&inputs.iter().copied().flatten().collect::<Vec<_>>())
    }

    pub(crate) fn evaluate(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, Fault> {
        (self.meaning)(&inputs.iter().copied().flatten().collect::<Vec<_>>())
    }
}

/// A definition is itself alone: of two that share a name neither stands for the other.
impl PartialEq for CustomOperator {
    fn eq(&self, other: &CustomOperator) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for CustomOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomOperator({})", self.name)
    }
}

/// The custom operators that a document may name.
#[derive(Clone, Debug, Default)]
pub struct Operators(BTreeMap<String, Arc<CustomOperator>>);

impl Operators {
    /// None but the table's.
    pub fn new() -> Operators {
        Operators::default()
    }

    /// With one more. A name of the table stays the table's.
    #[must_use]
    pub fn with(mut self, operator: &Arc<CustomOperator>) -> Operators {
        self.0.insert(operator.name.clone(), operator.clone());
        self
    }

    /// The operator of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<CustomOperator>> {
        self.0.get(name)
    }
}
