//! A checked network.

use super::builder::NetworkBuilder;
use super::check::{self, NetworkDiagnostic, NetworkDiagnostics};
use super::graph::{EdgeId, Graph, Source};
use super::tensor::Tensor;
use super::types::{Dim, Type};
use crate::ir::name::meant;
use std::panic::Location;
use std::sync::Arc;

/// A network that keeps every rule, with the type of each edge. Cheap to clone.
///
/// See [`network`](super) for an example.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    graph: Graph,
    types: Vec<Type>,
    values: Vec<Option<Tensor>>,
}

impl PartialEq for Network {
    fn eq(&self, other: &Network) -> bool {
        self.inner.graph == other.inner.graph
    }
}

impl Network {
    /// Builds a network with a closure and checks it. Building never fails: the check finds every error at once.
    ///
    /// # Errors
    /// Every broken rule.
    #[track_caller]
    pub fn build(build: impl FnOnce(&NetworkBuilder)) -> Result<Network, NetworkDiagnostics> {
        let builder = NetworkBuilder::at(Location::caller());
        build(&builder);
        let (graph, faults) = builder.finish();
        Network::checked(graph, faults)
    }

    /// Checks a graph.
    ///
    /// # Errors
    /// Every broken rule.
    pub fn from_graph(graph: Graph) -> Result<Network, NetworkDiagnostics> {
        Network::checked(graph, Vec::new())
    }

    pub(crate) fn checked(graph: Graph, faults: Vec<NetworkDiagnostic>) -> Result<Network, NetworkDiagnostics> {
        let found = check::check(&graph, faults)?;
        Ok(Network { inner: Arc::new(Inner { graph, types: found.types, values: found.values }) })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// The type of an edge.
    pub fn type_of(&self, edge: EdgeId) -> &Type {
        &self.inner.types[edge.index()]
    }

    /// The tensor of an edge that is a constant, or a small one that follows from constants and shapes.
    pub fn value_of(&self, edge: EdgeId) -> Option<&Tensor> {
        self.inner.values[edge.index()].as_ref()
    }

    /// Names and types of what a caller passes, in order.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.graph().inputs().iter().map(|edge| (&*self.graph().edge(*edge).name, self.type_of(*edge)))
    }

    /// Names and types of what a caller gets, in order.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.graph().outputs().iter().map(|(name, edge)| (&**name, self.type_of(*edge)))
    }

    /// The names of extents that are not numbers yet, in order of their first use.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        check::symbols(self.graph())
    }

    /// The network with numbers for some of its symbols.
    ///
    /// ```
    /// use postlude::network::Network;
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| {
    ///     let x = g.input("x", F32, ("batch", 16));
    ///     g.output("y", x.softmax(-1));
    /// })?;
    /// let bound = network.bind(&[("batch", 8)])?;
    /// assert_eq!(bound.outputs().next().unwrap().1.to_string(), "f32[8,16]");
    /// # Ok::<(), postlude::network::NetworkDiagnostics>(())
    /// ```
    ///
    /// # Errors
    /// If the network has no such symbol, or its shapes do not fit the numbers: every broken rule.
    pub fn bind(&self, extents: &[(&str, usize)]) -> Result<Network, NetworkDiagnostics> {
        let symbols = self.symbols();
        let unknown = extents.iter().filter(|(name, _)| !symbols.iter().any(|symbol| **symbol == **name));
        let faults = unknown.map(|(name, _)| {
            let message = format!("the network has no extent `{name}`{}", meant(name, symbols.iter().map(|s| &**s)));
            NetworkDiagnostic::new("N0301", message, "bind the symbols that `Network::symbols` names")
        });
        let faults = faults.collect();
        let mut graph = self.graph().clone();
        for edge in &mut graph.edges {
            let Source::Input(Type { dims: Some(dims), .. }) = &mut edge.source else { continue };
            for dim in dims {
                if let Dim::Symbol(symbol) = dim
                    && let Some((_, extent)) = extents.iter().find(|(name, _)| **name == **symbol)
                {
                    *dim = Dim::Known(*extent);
                }
            }
        }
        Network::checked(graph, faults)
    }

    /// The network with tensors in the place of some inputs, which become constants: what never changes between runs, such
    /// as weights, axes and shapes. Kernels need to know axes and shapes.
    ///
    /// ```
    /// use postlude::network::{Format, Network, Tensor};
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| {
    ///     let (x, shape) = (g.input("x", F32, (4, 6)), g.input("shape", Format::I64, [3]));
    ///     g.output("y", x.apply("Reshape", &[shape], Default::default()).relu());
    /// })?;
    /// assert_eq!(network.fuse()?.unserved().count(), 2); // nothing is known of the shape
    /// let fixed = network.fix(&[("shape", Tensor::of_numbers(Format::I64, &[3], &[2.0, 2.0, 6.0])?)])?;
    /// assert_eq!(fixed.outputs().next().unwrap().1.to_string(), "f32[2,2,6]");
    /// assert_eq!(fixed.fuse()?.kernels().count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the network has no such input, or a tensor is not of its type; and every rule that the tensors break.
    pub fn fix(&self, inputs: &[(&str, Tensor)]) -> Result<Network, NetworkDiagnostics> {
        let mut graph = self.graph().clone();
        let mut faults = Vec::new();
        for (name, tensor) in inputs {
            let edge = graph.inputs.iter().copied().find(|edge| *graph.edge(*edge).name == **name);
            let fault = match edge {
                Some(edge) if self.type_of(edge).admits(tensor) => {
                    graph.edges[edge.index()].source = Source::Constant(tensor.clone());
                    graph.inputs.retain(|input| *input != edge);
                    continue;
                }
                Some(edge) => format!("input `{name}` is {}, and cannot be fixed to {tensor}", self.type_of(edge)),
                None => format!("the network has no input `{name}`{}", meant(name, self.inputs().map(|(name, _)| name))),
            };
            faults.push(NetworkDiagnostic::new(
                "N0302",
                fault,
                "fix inputs that `Network::inputs` names, to tensors of their types",
            ));
        }
        Network::checked(graph, faults)
    }
}
