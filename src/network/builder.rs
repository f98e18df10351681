//! Building a network with ordinary Rust: a closure, values, operators and methods.

use super::attribute::Attributes;
use super::check::NetworkDiagnostic;
use super::custom::CustomOperator;
use super::format::Format;
use super::graph::{Applied, EdgeId, Graph, Node, Source};
use super::operator::Operator;
use super::tensor::Tensor;
use super::types::{IntoDims, Type};
use crate::ir::name::{meant, word};
use std::cell::RefCell;
use std::ops;
use std::panic::Location;
use std::sync::Arc;

/// Collects the nodes of a network. The closure of [`Network::build`](super::Network::build) receives it.
#[derive(Debug)]
pub struct NetworkBuilder {
    graph: RefCell<Graph>,
    faults: RefCell<Vec<NetworkDiagnostic>>,
    built_at: &'static Location<'static>,
}

/// A tensor of the network under construction: a handle, copied freely.
#[derive(Clone, Copy, Debug)]
#[must_use = "a value does nothing until it reaches an output"]
pub struct Value<'g> {
    builder: &'g NetworkBuilder,
    edge: EdgeId,
}

impl NetworkBuilder {
    pub(super) fn at(built_at: &'static Location<'static>) -> NetworkBuilder {
        NetworkBuilder { graph: RefCell::default(), faults: RefCell::default(), built_at }
    }

    pub(super) fn finish(self) -> (Graph, Vec<NetworkDiagnostic>) {
        (self.graph.into_inner(), self.faults.into_inner())
    }

    fn value(&self, edge: EdgeId) -> Value<'_> {
        Value { builder: self, edge }
    }

    /// A tensor that the caller passes. An extent is a number, or a name that is bound before the network is planned:
    /// `g.input("x", F16, ("batch", 768))`.
    pub fn input(&self, name: &str, format: impl Into<Format>, dims: impl IntoDims) -> Value<'_> {
        let source = Source::Input(Type::new(format, dims));
        self.value(self.graph.borrow_mut().add_edge(name, source))
    }

    /// A tensor that is part of the network: a weight.
    pub fn constant(&self, name: &str, tensor: Tensor) -> Value<'_> {
        self.value(self.graph.borrow_mut().add_edge(name, Source::Constant(tensor)))
    }

    /// A vector of indices: a shape, axes, pads.
    pub fn indices(&self, values: &[i64]) -> Value<'_> {
        let name = format!("c{}", self.graph.borrow().edges.len());
        self.constant(&name, Tensor::indices(values))
    }

    /// One number in the format of a constant or input.
    pub fn number(&self, format: impl Into<Format>, x: f64) -> Value<'_> {
        let name = format!("c{}", self.graph.borrow().edges.len());
        self.constant(&name, Tensor::scalar(format, x))
    }

    /// Names a value that the caller gets.
    #[track_caller]
    pub fn output(&self, name: &str, value: Value<'_>) {
        if self.owns(value, Location::caller()) {
            self.graph.borrow_mut().outputs.push((name.into(), value.edge));
        }
    }

    /// Whether a value is this builder's; another one's is reported.
    fn owns(&self, value: Value<'_>, built_at: &'static Location<'static>) -> bool {
        let own = std::ptr::eq(value.builder, self);
        if !own {
            let fault = NetworkDiagnostic::new(
                "N0105",
                "a value of another network is used here",
                "build every value of a network with the builder handed to its own closure",
            );
            self.faults.borrow_mut().push(fault.at(Some(built_at)));
        }
        own
    }

    /// Applies an operator of the table, of one output.
    #[track_caller]
    pub fn apply<'g>(&'g self, operator: &str, inputs: &[Value<'g>], attributes: Attributes) -> Value<'g> {
        let inputs: Vec<Option<Value<'g>>> = inputs.iter().copied().map(Some).collect();
        self.apply_all(operator, &inputs, attributes, 1)[0]
    }

    /// Applies an operator of the table to inputs of which some are left out, with so many outputs, at least one.
    #[track_caller]
    pub fn apply_all<'g>(
        &'g self,
        operator: &str,
        inputs: &[Option<Value<'g>>],
        attributes: Attributes,
        outputs: usize,
    ) -> Vec<Value<'g>> {
        let built_at = Location::caller();
        let row = Operator::named(operator).unwrap_or_else(|| {
            let near = meant(operator, Operator::all().map(|row| row.name));
            let message = format!("there is no operator {}{near}", word(operator));
            let help = "use a name of `Operator::all`, or register a custom operator";
            self.faults.borrow_mut().push(NetworkDiagnostic::new("N0201", message, help).at(Some(built_at)));
            // Stands in for the unknown one, so that whatever is built on it is checked, too.
            Operator::named("Identity").expect("the table has the row")
        });
        self.push(Applied::Row(row), inputs, attributes, outputs, built_at)
    }

    /// Applies an operator of the program's own.
    #[track_caller]
    pub fn custom<'g, const N: usize>(&'g self, operator: &Arc<CustomOperator>, inputs: [Value<'g>; N]) -> Vec<Value<'g>> {
        self.push(Applied::Custom(operator.clone()), &inputs.map(Some), Attributes::new(), 1, Location::caller())
    }

    fn push<'g>(
        &'g self,
        operator: Applied,
        inputs: &[Option<Value<'g>>],
        attributes: Attributes,
        outputs: usize,
        built_at: &'static Location<'static>,
    ) -> Vec<Value<'g>> {
        let own = |value: &Option<Value<'g>>| value.filter(|value| self.owns(*value, built_at)).map(|value| value.edge);
        let inputs: Vec<Option<EdgeId>> = inputs.iter().map(own).collect();
        let mut graph = self.graph.borrow_mut();
        let index = graph.nodes.len();
        let names = (0..outputs.max(1)).map(|i| if i == 0 { format!("v{index}") } else { format!("v{index}.{i}") });
        let names = names.map(Arc::from).collect();
        let (name, outputs) = (format!("n{index}").into(), Vec::new());
        let node = Node { name, operator, attributes, inputs, outputs, built_at: Some(built_at) };
        graph.add_node(node, names).into_iter().map(|edge| self.value(edge)).collect()
    }

    /// The line of the closure.
    pub fn built_at(&self) -> &'static Location<'static> {
        self.built_at
    }
}

macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $method:ident = $operator:literal;)*) => { $(
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $method(self) -> Value<'g> {
            self.apply($operator, &[], Attributes::new())
        }
    )* };
}

macro_rules! binary {
    ($($(#[doc = $doc:literal])+ $method:ident = $operator:literal;)*) => { $(
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $method(self, other: Value<'g>) -> Value<'g> {
            self.apply($operator, &[other], Attributes::new())
        }
    )* };
}

impl<'g> Value<'g> {
    /// Applies an operator of the table to this value and others.
    #[track_caller]
    pub fn apply(self, operator: &str, rest: &[Value<'g>], attributes: Attributes) -> Value<'g> {
        let inputs: Vec<Value<'g>> = std::iter::once(self).chain(rest.iter().copied()).collect();
        self.builder.apply(operator, &inputs, attributes)
    }

    unary! {
        /// max(x, 0).
        relu = "Relu";
        /// 1 / (1 + e^-x).
        sigmoid = "Sigmoid";
        /// The hyperbolic tangent.
        tanh = "Tanh";
        /// GELU in its exact form.
        gelu = "Gelu";
        /// e^x.
        exp = "Exp";
        /// The square root.
        sqrt = "Sqrt";
    }

    binary! {
        /// The matrix product, as NumPy's `matmul`.
        matmul = "MatMul";
        /// The larger of both.
        max = "Max";
        /// The smaller of both.
        min = "Min";
    }

    /// e^x over the sum of all along an axis.
    #[track_caller]
    pub fn softmax(self, axis: i64) -> Value<'g> {
        self.apply("Softmax", &[], Attributes::new().with("axis", axis))
    }

    /// Rows over the last axis centred, over their deviation, times a scale, plus a bias.
    #[track_caller]
    pub fn layer_norm(self, scale: Value<'g>, bias: Value<'g>, epsilon: f32) -> Value<'g> {
        self.apply("LayerNormalization", &[scale, bias], Attributes::new().with("epsilon", epsilon))
    }

    /// The same elements in another shape: 0 keeps an extent, -1 is what is left.
    #[track_caller]
    pub fn reshape(self, shape: &[i64]) -> Value<'g> {
        let shape = self.builder.indices(shape);
        self.apply("Reshape", &[shape], Attributes::new())
    }

    /// Axes in another order.
    #[track_caller]
    pub fn transpose(self, order: &[i64]) -> Value<'g> {
        self.apply("Transpose", &[], Attributes::new().with("perm", order))
    }
}

macro_rules! operators {
    ($($tr:ident $method:ident $operator:literal),*) => { $(
        impl<'g> ops::$tr for Value<'g> {
            type Output = Value<'g>;
            #[track_caller]
            fn $method(self, right: Value<'g>) -> Value<'g> {
                self.apply($operator, &[right], Attributes::new())
            }
        }
    )* };
}

operators! { Add add "Add", Sub sub "Sub", Mul mul "Mul", Div div "Div" }

impl<'g> ops::Neg for Value<'g> {
    type Output = Value<'g>;
    #[track_caller]
    fn neg(self) -> Value<'g> {
        self.apply("Neg", &[], Attributes::new())
    }
}
