//! The sweep: from outputs to arguments, it computes each value's gradient from those of its users.
//!
//! # Arms
//!
//! A select, a minimum and a maximum pick one of two operands, and the other may be anything: infinite, or NaN. A
//! gradient that is 0 there does not stay 0 on its way through the other arm, since 0 times infinity is NaN. So no
//! gradient is masked on its way in. Values that only one arm needs get the whole gradient: correct where that arm is
//! picked, and arbitrary elsewhere. The gradient that leaves the arm is selected by the condition once more:
//!
//! ```text
//! y = select(c, f(x), g(x))        dx = select(c, dy * f'(x), dy * g'(x))
//! ```
//!
//! No gradient depends on an arm that was not picked. If the condition is positional, the kernel of the backward
//! epilogue branches like that of the forward one.

use super::error::GradError;
use super::joint::Joint;
use super::masks;
use crate::ir::graph::{Node, NodeId};
use crate::ir::inner_adjoint::Reduced;
use crate::ir::{Graph, Op};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The two arms of a value that picks: blocks `2 i + 1` and `2 i + 2` for the `i`-th. Block 0 is outside of all arms.
#[derive(Clone, Copy)]
struct Arms {
    condition: NodeId,
    /// The block of the value itself.
    parent: usize,
}

struct Sweep<'j> {
    joint: &'j mut Joint,
    /// Whether a gradient has to reach this value.
    active: Vec<bool>,
    arms: Vec<Arms>,
    /// Whether an arm may take its value from the value that picked it.
    through: bool,
    /// For an arm's value, the arm's block and the value that equals it there.
    same: HashMap<NodeId, (usize, NodeId)>,
    /// For each value, the sum of the gradients from each block.
    pending: HashMap<NodeId, BTreeMap<usize, NodeId>>,
}

/// Adds the gradients of `leaves` to a joint graph, from those of outputs; `None` for a leaf without a gradient.
///
/// With `through`, a derivative that follows from the value of an arm takes it from the select: the two are equal where
/// it matters, and then a sigmoid in one region and a hyperbolic tangent in the other share one output.
pub(super) fn sweep(
    joint: &mut Joint,
    outputs: &[(NodeId, NodeId)],
    leaves: &[NodeId],
    through: bool,
) -> Result<Vec<Option<NodeId>>, GradError> {
    let forward = joint.types.len();
    let active = active(joint, leaves);
    let mut sweep = Sweep { joint, active, arms: Vec::new(), through, same: HashMap::new(), pending: HashMap::new() };
    for (value, gradient) in outputs {
        sweep.add(*value, 0, *gradient);
    }
    let ids: Vec<NodeId> = sweep.joint.graph.nodes().take(forward).map(|(id, _)| id).collect();
    let mut found = vec![None; leaves.len()];
    for id in ids.into_iter().rev() {
        if let Some(leaf) = leaves.iter().position(|leaf| *leaf == id) {
            found[leaf] = sweep.collapse(id, Some(0)).map(|(_, g)| g);
        } else {
            // A reduction sums up gradients, so none of them may be arbitrary anywhere.
            let reduces = matches!(sweep.joint.graph.node(id), Node::Reduce { .. });
            if let Some((block, g)) = sweep.collapse(id, reduces.then_some(0)) {
                sweep.step(id, block, g)?;
            }
        }
    }
    Ok(found)
}

/// The floating-point values that depend on a leaf in a differentiable way.
fn active(joint: &Joint, leaves: &[NodeId]) -> Vec<bool> {
    let mut active = vec![false; joint.types.len()];
    for (id, node) in joint.graph.nodes().take(active.len()) {
        if leaves.contains(&id) {
            active[id.index()] = true;
            continue;
        }
        let reached = |a: &NodeId| active[a.index()];
        active[id.index()] = joint.types[id.index()].value.is_float()
            && match node {
                _ if joint.rules.get(&id).is_some_and(|(_, args)| args.iter().any(reached)) => true,
                Node::Apply { op, args } => op.row().is_differentiable() && args.iter().any(reached),
                Node::Custom { args, .. } => args.iter().any(reached),
                // An index does not have a gradient.
                Node::Reduce { args, .. } => reached(&args[0]),
                _ => false,
            };
    }
    active
}

impl Sweep<'_> {
    /// Adds a gradient from a user in a block to a value's gradient.
    fn add(&mut self, to: NodeId, block: usize, gradient: NodeId) {
        if !self.active[to.index()] {
            return;
        }
        let graph: &mut Graph = &mut self.joint.graph;
        // Behind a conversion, a gradient has the type of the converted value.
        let value = self.joint.types[to.index()].value;
        let gradient = match graph.value_type(gradient) == value {
            true => gradient,
            false => graph.apply(Op::cast(value.storage()), &[gradient]),
        };
        let sums = self.pending.entry(to).or_default();
        let sum = sums.get(&block).map_or(gradient, |sum| graph.apply(Op::Add, &[*sum, gradient]));
        sums.insert(block, sum);
    }

    fn parent(&self, block: usize) -> usize {
        self.arms[(block - 1) / 2].parent
    }

    /// The innermost block that contains both. A block's number is larger than that of the block around it.
    fn common(&self, mut a: usize, mut b: usize) -> usize {
        while a != b {
            if a > b { a = self.parent(a) } else { b = self.parent(b) }
        }
        a
    }

    /// A value's whole gradient, and the block in which it is correct: the given one, or the innermost that contains
    /// all users.
    fn collapse(&mut self, id: NodeId, to: Option<usize>) -> Option<(usize, NodeId)> {
        let mut sums = self.pending.remove(&id)?;
        let home = to.or_else(|| sums.keys().copied().reduce(|a, b| self.common(a, b)))?;
        while let Some(block) = sums.keys().next_back().copied().filter(|block| *block != home) {
            let Arms { condition, parent } = self.arms[(block - 1) / 2];
            let first = (block - 1) / 2 * 2 + 1;
            let graph = &mut self.joint.graph;
            let zero = graph.constant_of(self.joint.types[id.index()].value, 0.0);
            let [then, otherwise] = [first, first + 1].map(|arm| sums.remove(&arm).unwrap_or(zero));
            let mut sum = graph.apply(Op::Select, &[condition, then, otherwise]);
            if let Some(other) = sums.get(&parent) {
                sum = graph.apply(Op::Add, &[*other, sum]);
            }
            sums.insert(parent, sum);
        }
        sums.remove(&home).map(|g| (home, g))
    }

    /// Two more arms of a value in a block. Returns the number of the first one.
    fn arm(&mut self, condition: NodeId, parent: usize) -> usize {
        self.arms.push(Arms { condition, parent });
        2 * self.arms.len() - 1
    }

    /// The condition of `select(condition, g, 0)` or `select(condition, 0, g)`, and the arm that holds the gradient.
    fn masked(&self, gradient: NodeId, g: NodeId) -> Option<(NodeId, usize)> {
        let graph = &self.joint.graph;
        let is_zero = |id: NodeId| masks::is_zero(graph, id);
        match masks::parts(graph.node(gradient))? {
            [condition, then, zero] if then == g && is_zero(zero) => Some((condition, 0)),
            [condition, zero, otherwise] if otherwise == g && is_zero(zero) => Some((condition, 1)),
            _ => None,
        }
    }

    /// Passes a value's gradient on to its operands.
    fn step(&mut self, id: NodeId, block: usize, g: NodeId) -> Result<(), GradError> {
        let y = self.same.get(&id).filter(|(arm, _)| *arm == block).map_or(id, |(_, y)| *y);
        let graph = &mut self.joint.graph;
        if let Some((function, args)) = self.joint.rules.get(&id).cloned() {
            let gradients = function.gradient.map(|gradient| gradient(graph, &args, y, g)).unwrap_or_default();
            for (arg, gradient) in args.iter().zip(gradients) {
                let Some(gradient) = gradient else { continue };
                // A rule that masks the gradient picks an arm, like that of ReLU.
                match self.masked(gradient, g) {
                    Some((condition, arm)) => {
                        let first = self.arm(condition, block);
                        self.add(*arg, first + arm, g);
                    }
                    None => self.add(*arg, block, gradient),
                }
            }
            return Ok(());
        }
        match graph.node(id).clone() {
            Node::Apply { op, args } => match op.row().picks {
                Some(picks) => {
                    let condition = (picks.condition)(graph, &args);
                    let first = self.arm(condition, block);
                    for (arm, operand) in picks.arms.into_iter().enumerate() {
                        self.add(args[operand], first + arm, g);
                        if self.through {
                            self.same.insert(args[operand], (first + arm, y));
                        }
                    }
                }
                None => {
                    let gradients = op.row().gradients(graph, &args, y, g).unwrap_or_default();
                    self.hand_on(block, &args, gradients);
                }
            },
            Node::Custom { op, args } => {
                let mut gradients = Vec::new();
                for operand in 0..args.len() {
                    if !self.active[args[operand].index()] {
                        gradients.push(None);
                        continue;
                    }
                    let built_at = graph.built_at(id);
                    let Some((derivative, operands)) = op.derivative_op(operand) else {
                        return Err(GradError::Custom { primitive: op.name().into(), operand, built_at });
                    };
                    let operands = operands.into_iter().map(|i| args[i]).collect();
                    let slope = graph.push(Node::Custom { op: Arc::new(derivative), args: operands }, built_at);
                    gradients.push(Some(graph.apply(Op::Mul, &[g, slope])));
                }
                self.hand_on(block, &args, gradients);
            }
            Node::Reduce { monoid, over, args } => {
                let built_at = graph.built_at(id);
                let gradient = monoid
                    .inner_adjoint()
                    .and_then(|adjoint| adjoint(graph, Reduced { over, args: &args, result: y }, g))
                    .ok_or_else(|| GradError::Reduction { monoid: monoid.name().into(), over, built_at })?;
                self.add(args[0], block, gradient);
            }
            _ => {}
        }
        Ok(())
    }

    fn hand_on(&mut self, block: usize, args: &[NodeId], gradients: Vec<Option<NodeId>>) {
        for (arg, gradient) in args.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                self.add(*arg, block, gradient);
            }
        }
    }
}
