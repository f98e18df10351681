//! Operators of a program's own.

use super::fault::Fault;
use super::graph::GradientBody;
use super::operator::{ANY, Body, Operands, OwnBody, Pointwise, miscounted};
use super::tensor::Tensor;
use super::types::Type;
use crate::build::Expr;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The types of a custom operator's outputs.
type CustomTyping = dyn Fn(&[&Type]) -> Result<Vec<Type>, Fault> + Send + Sync;
/// The outputs of a custom operator.
type CustomMeaning = dyn Fn(&[&Tensor]) -> Result<Vec<Tensor>, Fault> + Send + Sync;
/// The gradients of every input, from the inputs and the gradient of the output.
type OwnGradient = dyn for<'g> Fn(&Operands<'g, '_>, Expr<'g>) -> Vec<Expr<'g>> + Send + Sync;

/// What a custom operator computes.
#[derive(Clone)]
enum Forward {
    /// An expression of the epilogue language.
    Expression(Arc<OwnBody>),
    /// Two closures over tensors in host memory.
    Closures { typing: Arc<CustomTyping>, meaning: Arc<CustomMeaning> },
}

/// The gradient that a program gives.
#[derive(Clone)]
enum Backward {
    /// Expressions of the epilogue language.
    Expressions(Arc<OwnGradient>),
    /// Another operator: of the inputs and the gradients of the outputs, with a gradient for each input.
    Operator(Arc<CustomOperator>),
    /// Expressions of another number of inputs, which no node can have.
    Misfit(usize),
}

/// An operator that a program defines, in one of three ways:
///
/// - [`pointwise`](CustomOperator::pointwise): a function on expressions of the epilogue language. Typing, broadcasting, the
///   value on the CPU, fusion into kernels and the gradient follow from it, as for a row of the table.
/// - the same with a [`gradient`](CustomOperator::gradient) of its own, which is another function on expressions;
/// - [`new`](CustomOperator::new): two closures over tensors in host memory, one for types and one for values. Such an operator
///   runs on the CPU, and fusion leaves it alone. Its gradient is an expression, or a closure as well
///   ([`gradient_of_tensors`](CustomOperator::gradient_of_tensors)).
///
/// ```
/// use postlude::network::{CustomOperator, Network, Tensor};
/// use postlude::prelude::*;
///
/// let add_relu = CustomOperator::pointwise("AddRelu", |[x, y]| (x + y).relu());
/// let network = Network::build(|g| {
///     let (x, w, b) = (g.input("x", F32, [2, 3]), g.input("w", F32, [3, 2]), g.input("b", F32, [2]));
///     g.output("y", g.custom(&add_relu, [x.matmul(w), b])[0]);
/// })?;
/// assert_eq!(network.fuse()?.kernels().count(), 1); // it stands in the product's epilogue
///
/// // This one passes gradients through what has none: a straight-through estimator.
/// let rounded = CustomOperator::pointwise("Rounded", |[x]| x.round()).gradient(|[_], dy| [dy]);
/// let network = Network::build(|g| g.output("y", g.custom(&rounded, [g.input("x", F32, [1])])[0]))?;
/// let outputs = network.backward("y", &["x"])?.run(&[("x", Tensor::of(&[1.6f32], &[1])?)])?;
/// assert_eq!((outputs[0].1.numbers(), outputs[1].1.numbers()), (vec![2.0], vec![1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CustomOperator {
    name: String,
    arity: usize,
    /// Whether it has inputs behind these: the gradients that another operator's outputs get.
    takes_more: bool,
    forward: Forward,
    backward: Option<Backward>,
}

impl CustomOperator {
    /// An operator of so many inputs, by closures for the types of its outputs and for their tensors.
    ///
    /// ```
    /// use postlude::network::{CustomOperator, Network, Tensor};
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
    pub fn new(
        name: &str,
        arity: usize,
        typing: impl Fn(&[&Type]) -> Result<Vec<Type>, Fault> + Send + Sync + 'static,
        meaning: impl Fn(&[&Tensor]) -> Result<Vec<Tensor>, Fault> + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        let forward = Forward::Closures { typing: Arc::new(typing), meaning: Arc::new(meaning) };
        Arc::new(CustomOperator { name: name.to_owned(), arity, takes_more: false, forward, backward: None })
    }

    /// An operator by a function on expressions of the epilogue language: of the element of each input at one place. Inputs
    /// share a format, which is also that of the result, and are stretched by NumPy's rules.
    pub fn pointwise<const N: usize>(
        name: &str,
        body: impl for<'g> Fn([Expr<'g>; N]) -> Expr<'g> + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        CustomOperator::pointwise_with(name, N, move |s| body(std::array::from_fn(|index| s.x(index))))
    }

    /// [`pointwise`](CustomOperator::pointwise) for a function that also reads the attributes of its node, as a document may
    /// give them.
    pub fn pointwise_with(
        name: &str,
        arity: usize,
        body: impl for<'g> Fn(&Operands<'g, '_>) -> Expr<'g> + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        let forward = Forward::Expression(Arc::new(body));
        Arc::new(CustomOperator { name: name.to_owned(), arity, takes_more: false, forward, backward: None })
    }

    /// The operator with a gradient of its own: a function on expressions, of the inputs and of the gradient of the output, to
    /// the gradients of the inputs. What an input was stretched along is summed up afterwards.
    ///
    /// ```
    /// use postlude::network::{CustomOperator, Network, Tensor};
    /// use postlude::prelude::*;
    /// // x sigmoid(y), with the derivatives that a calculation by hand gives.
    /// let mul_sigmoid = CustomOperator::pointwise("MulSigmoid", |[x, y]| x * y.sigmoid()).gradient(|[x, y], dz| {
    ///     let s = y.sigmoid();
    ///     [dz * s, dz * x * s * (1.0 - s)]
    /// });
    /// let network = Network::build(|g| {
    ///     let (x, y) = (g.input("x", F32, [1]), g.input("y", F32, [1]));
    ///     g.output("z", g.custom(&mul_sigmoid, [x, y])[0]);
    /// })?;
    /// let inputs = ["x", "y"].map(|name| (name, Tensor::scalar(F32, 0.0).reshaped(&[1]).unwrap()));
    /// assert_eq!(network.backward("z", &["x"])?.run(&inputs)?[1].1.numbers(), [0.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A gradient for another number of inputs than the operator takes is a broken rule (N0202) of each node.
    #[must_use]
    pub fn gradient<const N: usize>(
        &self,
        gradient: impl for<'g> Fn([Expr<'g>; N], Expr<'g>) -> [Expr<'g>; N] + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        if N != self.arity {
            return self.with_backward(Backward::Misfit(N));
        }
        let of = named(move |s, g| gradient(std::array::from_fn(|index| s.x(index)), g).to_vec());
        self.with_backward(Backward::Expressions(Arc::new(of)))
    }

    /// The operator with a gradient of its own: a closure over tensors in host memory. It is given the inputs, then the
    /// gradients of the outputs, and returns a gradient for each input in the input's type. Those of inputs that hold integers
    /// are not used.
    ///
    /// ```
    /// use postlude::network::{CustomOperator, Network, Tensor};
    /// use postlude::prelude::*;
    ///
    /// fn reversed(x: &Tensor) -> Result<Vec<Tensor>, postlude::network::Fault> {
    ///     let mut numbers = x.numbers();
    ///     numbers.reverse();
    ///     Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?])
    /// }
    /// let operator = CustomOperator::new("Reversed", 1, |x| Ok(vec![x[0].clone()]), |x| reversed(x[0]))
    ///     .gradient_of_tensors(|_, dy| reversed(dy[0]));
    /// let network = Network::build(|g| {
    ///     let (x, w) = (g.input("x", F32, [2]), g.input("w", F32, [2]));
    ///     g.output("y", (g.custom(&operator, [x])[0] * w).apply("ReduceSum", &[], Default::default()));
    /// })?;
    /// let inputs = [("x", Tensor::of(&[1.0f32, 2.0], &[2])?), ("w", Tensor::of(&[3.0f32, 4.0], &[2])?)];
    /// assert_eq!(network.backward("y", &["x"])?.run(&inputs)?[1].1.numbers(), [4.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn gradient_of_tensors(
        &self,
        gradient: impl Fn(&[&Tensor], &[&Tensor]) -> Result<Vec<Tensor>, Fault> + Send + Sync + 'static,
    ) -> Arc<CustomOperator> {
        let (arity, name) = (self.arity, format!("{}'", self.name));
        let (of, called) = (self.forward.clone(), name.clone());
        let typing = move |given: &[&Type]| {
            let (inputs, incoming) = given.split_at(arity.min(given.len()));
            let outputs = match &of {
                Forward::Expression(_) => 1,
                Forward::Closures { typing, .. } => typing(inputs)?.len(),
            };
            match miscounted(&called, "gradients of outputs", incoming.len(), (outputs, outputs)) {
                Some(fault) => Err(fault),
                None => Ok(inputs.iter().map(|of| (*of).clone()).collect()),
            }
        };
        let meaning = move |given: &[&Tensor]| {
            let (inputs, incoming) = given.split_at(arity.min(given.len()));
            let found = gradient(inputs, incoming)?;
            let fits = |(found, input): (&Tensor, &&Tensor)| found.shape() == input.shape() && found.format() == input.format();
            if found.len() != arity || !found.iter().zip(inputs).all(fits) {
                return Err(Fault::Shape(format!("its gradients are not one for each of {arity} inputs, in their types")));
            }
            Ok(found)
        };
        let forward = Forward::Closures { typing: Arc::new(typing), meaning: Arc::new(meaning) };
        // Behind the inputs is a gradient for each output. The typing knows how many.
        let own = CustomOperator { name, arity, takes_more: true, forward, backward: None };
        self.with_backward(Backward::Operator(Arc::new(own)))
    }

    fn with_backward(&self, backward: Backward) -> Arc<CustomOperator> {
        Arc::new(CustomOperator { backward: Some(backward), ..self.clone() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many inputs it takes.
    pub fn arity(&self) -> usize {
        self.arity
    }

    /// Its expression, if it is one.
    pub(crate) fn expression(&self) -> Option<Pointwise<'_>> {
        match &self.forward {
            Forward::Expression(body) => Some(Pointwise::new(Body::Own(&**body))),
            Forward::Closures { .. } => None,
        }
    }

    /// The expression of the gradient of an input, if the program gave one.
    pub(crate) fn gradient_body(&self, input: usize) -> Option<GradientBody<'_>> {
        let Some(Backward::Expressions(gradient)) = &self.backward else { return None };
        Some(Box::new(move |s, g| gradient(s, g).get(input).copied().unwrap_or_else(|| s.constant(0.0))))
    }

    /// The operator that computes the gradients of all inputs, if the program gave one.
    pub(crate) fn gradient_operator(&self) -> Option<&Arc<CustomOperator>> {
        if let Some(Backward::Operator(operator)) = &self.backward { Some(operator) } else { None }
    }

    pub(crate) fn admits(&self, inputs: usize, outputs: usize) -> Vec<Fault> {
        let single = matches!(self.forward, Forward::Expression(_)) && outputs != 1;
        let most = if self.takes_more { ANY } else { self.arity };
        let of_inputs = miscounted(&self.name, "inputs", inputs, (self.arity, most));
        let of_gradient = match &self.backward {
            Some(Backward::Misfit(given)) => miscounted(&self.name, "inputs of its gradient", *given, (self.arity, self.arity)),
            _ => None,
        };
        of_inputs
            .into_iter()
            .chain(of_gradient)
            .chain(single.then(|| miscounted(&self.name, "outputs", outputs, (1, 1))).flatten())
            .collect()
    }

    pub(crate) fn types(&self, inputs: &[Option<&Type>]) -> Result<Vec<Type>, Fault> {
        match &self.forward {
            Forward::Closures { typing, .. } => typing(&inputs.iter().copied().flatten().collect::<Vec<_>>()),
            Forward::Expression(_) => Err(Fault::Unsupported(format!("{} as closures", self.name))),
        }
    }

    pub(crate) fn evaluate(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, Fault> {
        match &self.forward {
            Forward::Closures { meaning, .. } => meaning(&inputs.iter().copied().flatten().collect::<Vec<_>>()),
            Forward::Expression(_) => Err(Fault::Unsupported(format!("{} as closures", self.name))),
        }
    }
}

/// Names the lifetimes of a closure over operands.
fn named<F: for<'g> Fn(&Operands<'g, '_>, Expr<'g>) -> Vec<Expr<'g>>>(of: F) -> F {
    of
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

    /// With one more, and its gradient. A name of the table stays the table's.
    #[must_use]
    pub fn with(mut self, operator: &Arc<CustomOperator>) -> Operators {
        if let Some(gradient) = operator.gradient_operator() {
            self.0.insert(gradient.name.clone(), gradient.clone());
        }
        self.0.insert(operator.name.clone(), operator.clone());
        self
    }

    /// The operator of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<CustomOperator>> {
        self.0.get(name)
    }
}
