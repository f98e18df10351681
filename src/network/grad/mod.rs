//! Training: from a network to the network that also computes gradients.
//!
//! [`Network::backward`] goes through the nodes from the last to the first. Each operator's rule, a column of the
//! [table](super::operator), adds nodes that compute the gradients of its inputs from the gradients of its outputs. The
//! result is an ordinary network: the same passes, fusion, memory plan and execution serve it.
//!
//! A rule of a pointwise operator follows from its expression, a program's own included. What an operand was stretched along is
//! summed up. What a rule needs of the forward pass is an edge, so it is kept as long as a node reads it.

mod loss;
mod moves;
mod normal;
mod places;
mod pointwise;
mod product;
mod reduce;
mod tape;
mod windows;

pub(crate) use tape::{Rule, Step, Tape};

/// The rules, by the names that the table's rows give them.
pub(crate) mod rules {
    pub(crate) use super::loss::*;
    pub(crate) use super::moves::*;
    pub(crate) use super::normal::*;
    pub(crate) use super::places::*;
    pub(crate) use super::pointwise::*;
    pub(crate) use super::product::*;
    pub(crate) use super::reduce::*;
    pub(crate) use super::windows::*;
}

use super::check::NetworkDiagnostics;
use super::fault::Fault;
use super::graph::{Applied, EdgeId, Graph};
use super::network::Network;
use super::pass;
use super::types::Type;
use crate::ir::name::{meant, word};
use std::collections::HashMap;
use std::sync::Arc;

/// Why a network has no backward network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BackwardError {
    /// The network has no output, or no input, of that name.
    #[error("the network has no {what} {}{near}", word(name))]
    Unknown {
        /// `input` or `output`.
        what: &'static str,
        /// The name.
        name: String,
        /// What was probably meant.
        near: String,
    },
    /// The loss is not one number.
    #[error(
        "loss {} is {given}, not one number: reduce it with ReduceMean or ReduceSum, or pass its gradient \
         (`Network::backward_through`)",
        word(name)
    )]
    NotOne {
        /// The output.
        name: String,
        /// Its type.
        given: String,
    },
    /// A tensor of integers or conditions has no gradient.
    #[error("{what} {} is {given}, and only tensors of floating-point numbers have gradients", word(name))]
    NotFloat {
        /// `input` or `output`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Its type.
        given: String,
    },
    /// No gradient reaches an input: no output depends on it, or through integers and conditions alone.
    #[error("no gradient reaches input {}: leave it out, or use it in what the gradients come from", word(name))]
    Unreached {
        /// The input.
        name: String,
    },
    /// An operator between an input and an output has no gradient.
    #[error("node {} ({operator}) has no gradient: {fault}\n  = help: {}", word(node), cure(fault))]
    Operator {
        /// The node's name.
        node: String,
        /// Its operator.
        operator: String,
        /// Why.
        fault: Fault,
    },
    /// The backward network breaks a rule: a name is taken.
    #[error(transparent)]
    Check(#[from] NetworkDiagnostics),
}

/// What to do about an operator without a gradient.
fn cure(fault: &Fault) -> &'static str {
    match fault {
        Fault::Unsupported(_) => {
            "write it with other operators, give a custom operator a gradient, or compute it outside of what is differentiated"
        }
        other => other.cure(),
    }
}

/// The prefix of the name of an input's gradient.
const GRADIENT: &str = "grad_";
/// The prefix of the name of an output's incoming gradient.
const UPSTREAM: &str = "upstream_";

impl Network {
    /// The network that computes a loss, and the gradients of it with respect to some inputs.
    ///
    /// Its inputs are this network's. Its outputs are the loss, and `grad_NAME` for each named input, in the input's type.
    /// (If the loss has that name, `grad_` comes before it once more.) Weights have to be inputs, so that each step passes new
    /// ones.
    ///
    /// ```
    /// use postlude::network::{Network, Tensor};
    /// use postlude::prelude::*;
    ///
    /// let network = Network::build(|g| {
    ///     let (x, w, b) = (g.input("x", F32, [2, 3]), g.input("w", F32, [3, 1]), g.input("b", F32, [1]));
    ///     let error = (x.matmul(w) + b).sigmoid() - g.input("target", F32, [2, 1]);
    ///     g.output("loss", (error * error).apply("ReduceMean", &[], Default::default()));
    /// })?;
    /// let training = network.backward("loss", &["w", "b"])?;
    /// let names: Vec<&str> = training.outputs().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["loss", "grad_w", "grad_b"]);
    ///
    /// let x = Tensor::of(&[1.0f32, 0.0, -1.0, 0.5, 2.0, 1.0], &[2, 3])?;
    /// let target = Tensor::of(&[1.0f32, 0.0], &[2, 1])?;
    /// let (mut w, mut b) = (vec![0.0; 3], vec![0.0]);
    /// let mut losses = Vec::new();
    /// for _ in 0..50 {
    ///     let (now, bias) = (Tensor::of_numbers(F32, &[3, 1], &w)?, Tensor::of_numbers(F32, &[1], &b)?);
    ///     let outputs = training.run(&[("x", x.clone()), ("target", target.clone()), ("w", now), ("b", bias)])?;
    ///     losses.push(outputs[0].1.numbers()[0]);
    ///     w.iter_mut().zip(outputs[1].1.numbers()).for_each(|(w, g)| *w -= g);
    ///     b.iter_mut().zip(outputs[2].1.numbers()).for_each(|(b, g)| *b -= g);
    /// }
    /// assert!(losses[0] == 0.25 && losses[49] < 0.02);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Conventions
    ///
    /// Derivatives at kinks are those of [`grad`](crate::grad#borders). The gradient of a largest element along axes
    /// (`ReduceMax`) is shared among equal ones, as PyTorch's `amax` shares it. A `MaxPool` gives it to the first. Comparisons
    /// and integers hand on no gradient. `Floor`, `Round` and `Sign` are errors and not silent zeros.
    ///
    /// # Errors
    /// If a name is unknown, the loss is not one number, an input holds integers or is not reached, or an operator on the way
    /// has no gradient.
    pub fn backward(&self, loss: &str, inputs: &[&str]) -> Result<Network, BackwardError> {
        let of = self.type_of(self.output_edge(loss)?);
        if of.shape().is_none_or(|shape| shape.iter().product::<usize>() != 1) {
            return Err(BackwardError::NotOne { name: loss.to_owned(), given: of.to_string() });
        }
        differentiated(self, &[loss], true, inputs)
    }

    /// The network that computes some outputs, and gradients of inputs from given gradients of these outputs: each is a further
    /// input `upstream_NAME` in the output's type.
    ///
    /// ```
    /// use postlude::network::{Network, Tensor};
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| g.output("y", g.input("x", F32, [2]).exp()))?;
    /// let backward = network.backward_through(&["y"], &["x"])?;
    /// let inputs = [("x", Tensor::of(&[0.0f32, 0.0], &[2])?), ("upstream_y", Tensor::of(&[2.0f32, -3.0], &[2])?)];
    /// assert_eq!(backward.run(&inputs)?[1].1.numbers(), [2.0, -3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`backward`](Network::backward).
    pub fn backward_through(&self, outputs: &[&str], inputs: &[&str]) -> Result<Network, BackwardError> {
        differentiated(self, outputs, false, inputs)
    }

    fn output_edge(&self, name: &str) -> Result<EdgeId, BackwardError> {
        let found = self.graph().outputs().iter().find(|(known, _)| **known == *name);
        found.map(|(_, edge)| *edge).ok_or_else(|| BackwardError::Unknown {
            what: "output",
            name: name.to_owned(),
            near: meant(name, self.outputs().map(|(name, _)| name)),
        })
    }

    fn input_edge(&self, name: &str) -> Result<EdgeId, BackwardError> {
        let graph = self.graph();
        let found = graph.inputs().iter().find(|edge| *graph.edge(**edge).name == *name);
        found.copied().ok_or_else(|| BackwardError::Unknown {
            what: "input",
            name: name.to_owned(),
            near: meant(name, self.inputs().map(|(name, _)| name)),
        })
    }
}

/// Fails for a tensor that has no gradient.
fn admit(what: &'static str, name: &str, of: &Type) -> Result<(), BackwardError> {
    let fault = || BackwardError::NotFloat { what, name: name.to_owned(), given: of.to_string() };
    if of.format.is_float() { Ok(()) } else { Err(fault()) }
}

/// The edges that depend on some inputs through floating-point numbers.
fn active(network: &Network, inputs: &[EdgeId]) -> Vec<bool> {
    let graph = network.graph();
    let mut active = vec![false; graph.edges.len()];
    inputs.iter().for_each(|edge| active[edge.index()] = true);
    for (_, node) in graph.nodes() {
        if node.inputs.iter().flatten().any(|edge| active[edge.index()]) {
            for output in &node.outputs {
                active[output.index()] = network.type_of(*output).format.is_float();
            }
        }
    }
    active
}

fn differentiated(network: &Network, outputs: &[&str], loss: bool, inputs: &[&str]) -> Result<Network, BackwardError> {
    let mut leaves = Vec::new();
    for name in inputs {
        let edge = network.input_edge(name)?;
        admit("input", name, network.type_of(edge))?;
        leaves.push(edge);
    }
    let active = active(network, &leaves);
    let mut tape = Tape::new(network);
    let mut pending: HashMap<EdgeId, EdgeId> = HashMap::new();
    let mut taken = Vec::new();
    for name in outputs {
        let edge = network.output_edge(name)?;
        let of = network.type_of(edge).clone();
        admit("output", name, &of)?;
        let seed = if loss { tape.ones(&of) } else { tape.input(&format!("{UPSTREAM}{name}"), of) };
        add(&mut tape, &mut pending, edge, seed).map_err(|fault| failed(name, "output", fault))?;
        taken.push(((*name).into(), edge));
    }
    for node in network.graph().nodes.iter().rev() {
        let incoming: Vec<Option<EdgeId>> = node.outputs.iter().map(|edge| pending.get(edge).copied()).collect();
        let wanted: Vec<bool> = node.inputs.iter().map(|edge| edge.is_some_and(|edge| active[edge.index()])).collect();
        if !wanted.contains(&true) || incoming.iter().all(Option::is_none) {
            continue;
        }
        tape.work_on(node);
        let found = step(&mut tape, &Step { node, incoming: &incoming, wanted: &wanted })
            .map_err(|fault| failed(&node.name, node.operator_name(), fault))?;
        for (at, (edge, gradient)) in node.inputs.iter().zip(found).enumerate() {
            if let (Some(edge), Some(gradient), true) = (edge, gradient, wanted[at]) {
                add(&mut tape, &mut pending, *edge, gradient).map_err(|fault| failed(&node.name, node.operator_name(), fault))?;
            }
        }
    }
    for (name, leaf) in inputs.iter().zip(&leaves) {
        let gradient = pending.get(leaf).ok_or_else(|| BackwardError::Unreached { name: (*name).to_owned() })?;
        let mut named = format!("{GRADIENT}{name}");
        while taken.iter().any(|(known, _): &(Arc<str>, EdgeId)| **known == *named) {
            named.insert_str(0, GRADIENT);
        }
        taken.push((named.into(), *gradient));
    }
    let mut graph: Graph = tape.finish();
    graph.outputs = taken;
    Ok(pass::alive(&Network::from_graph(graph)?))
}

/// The gradients of a node's inputs.
fn step(tape: &mut Tape, step: &Step<'_>) -> Result<Vec<Option<EdgeId>>, Fault> {
    let without = || Err(Fault::Unsupported(format!("the gradient of {}", step.node.operator_name())));
    match &step.node.operator {
        Applied::Row(row) => row.gradient().map_or_else(without, |rule| rule(tape, step)),
        Applied::Derivative(_) => pointwise::pointwise(tape, step),
        Applied::Scored(_) => without(),
        Applied::Custom(custom) => match custom.gradient_operator() {
            Some(operator) => pointwise::by_operator(tape, step, operator),
            None if custom.expression().is_some() || custom.gradient_body(0).is_some() => pointwise::pointwise(tape, step),
            None => without(),
        },
    }
}

/// Adds a gradient to what an edge has.
fn add(tape: &mut Tape, pending: &mut HashMap<EdgeId, EdgeId>, edge: EdgeId, gradient: EdgeId) -> Result<(), Fault> {
    let sum = match pending.get(&edge) {
        Some(sum) => tape.binary("Add", *sum, gradient)?,
        None => gradient,
    };
    pending.insert(edge, sum);
    Ok(())
}

fn failed(node: &str, operator: &str, fault: Fault) -> BackwardError {
    BackwardError::Operator { node: node.to_owned(), operator: operator.to_owned(), fault }
}
