//! Training: from an epilogue to the pair of it and its derivative.
//!
//! [`Epilogue::backward`] turns an epilogue into two: the [forward](Pair::forward) one, which also stores what the backward pass
//! needs, and the [backward](Pair::backward) one, which turns incoming gradients into those of the accumulator and of every
//! argument. Both are ordinary epilogues: they print, serialise and run like any other.
//!
//! ```
//! use postlude::prelude::*;
//! use postlude::grad::Wrt;
//! let epilogue = Epilogue::build(|e| {
//!     let z = e.acc() + e.load("bias", F32.over(N));
//!     e.store("d", z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.relu()), F32);
//! })?;
//! let pair = epilogue.backward(Wrt::all())?;
//!
//! let shape = Shape::new(2, 3, 0);
//! let mut reserve = pair.reserve().allocate(shape);
//! let (z, bias, mut d) = ([0.5f32, -1.0, 2.0, 0.5, -1.0, 2.0], [0.0f32; 3], [0.0f32; 6]);
//! let args = HostArgs::new().input("a", &z).input("bias", &bias).scalar("boundary", 1).output("d", &mut d);
//! Gemm::pointwise(F32, Default::default(), pair.forward()).reference(shape, args.saving(&mut reserve))?;
//!
//! let (upstream, mut dz, mut dbias) = ([1.0f32; 6], [0.0f32; 6], [0.0f32; 3]);
//! let args = HostArgs::new().input("a", &upstream).scalar("boundary", 1).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
//! Gemm::pointwise(F32, Default::default(), pair.backward()).reference(shape, args.saved(&reserve))?;
//! assert_eq!(dz[3..], [1.0, 0.0, 1.0]); // relu in the second row
//! assert!((dbias[1] - 0.19661).abs() < 1e-5); // sigmoid' (-1) + 0
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the backward epilogue is
//!
//! Its accumulator is the incoming gradient of one output ([`Wrt::through`]): it runs behind the product that makes that
//! gradient (the next layer's), or over the gradient as a pointwise operation. It computes, as far as asked for:
//!
//! | gradient of | name | what it is |
//! | --- | --- | --- |
//! | the accumulator | `grad_acc` | a matrix |
//! | a matrix | `grad_NAME` | a matrix; where the batch shares it, the sum over the batch |
//! | a vector over N, M | `grad_NAME` | the sum over M, N, and over the batch if that shares it |
//! | a scalar | `grad_NAME` | the sum over everything |
//!
//! Incoming gradients of further outputs are loaded as `upstream_NAME`, as they lie in the forward pass. What no gradient
//! reaches gets zeros.
//!
//! # Derivatives
//!
//! They are rows of the [table](crate::ir::op): a user's function needs none of its own, and a [`CustomOp`](crate::CustomOp)
//! brings its [partials](crate::CustomOp::partial). Comparisons, integers, rounding to integers have none. A rounding to a
//! narrower format passes the gradient through. At the border of a minimum or maximum the second operand gets all: ReLU's
//! derivative at 0 is 0. A select's gradient never comes from the arm that was not picked, not even as a NaN, and a region
//! of the forward pass is a region of the backward pass.
//!
//! # The reserve
//!
//! What the backward pass cannot compute from its arguments is saved, and as few bits as possible: see
//! [`ReservePlan`]. ReLU takes 1 bit an element; sigmoid and tanh the output; GELU what it is applied to; a condition on
//! coordinates, a bias, a residual nothing. A [`Reserve`] knows which pair and which shape it was made for, and a launch
//! refuses every other.

mod cut;
mod error;
mod joint;
mod reserve;
mod select;
mod split;
mod sweep;
mod wrt;

pub use crate::args::{Reserve, ReserveTag};
pub use error::GradError;
pub use reserve::{ReserveError, ReservePlan, Saved};
pub use wrt::{Keep, Wrt};

use crate::build::Epilogue;
use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::axes::Axes;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Monoid, Operand, Order, Reduction, Sink, SinkKind};
use joint::{FORWARD, Folded, Joint};
use select::Selected;
use std::sync::Arc;

/// An epilogue with its derivative.
#[derive(Clone, Debug)]
pub struct Pair {
    forward: Epilogue,
    backward: Epilogue,
    reserve: ReservePlan,
    through: Arc<str>,
}

impl Pair {
    /// The epilogue, which also stores what the backward pass needs.
    pub fn forward(&self) -> &Epilogue {
        &self.forward
    }

    /// The epilogue that computes the gradients; its accumulator is the incoming gradient of [`through`](Pair::through).
    pub fn backward(&self) -> &Epilogue {
        &self.backward
    }

    /// What is saved in between.
    pub fn reserve(&self) -> &ReservePlan {
        &self.reserve
    }

    /// The output whose incoming gradient is the accumulator of the backward epilogue.
    pub fn through(&self) -> &str {
        &self.through
    }
}

impl Epilogue {
    /// Differentiates: the epilogue that also saves what its derivative needs, and the derivative.
    ///
    /// # Errors
    /// If a name is unknown or taken, an output or an argument has no gradient, or a custom primitive has no derivative.
    pub fn backward(&self, wrt: Wrt) -> Result<Pair, GradError> {
        let forward = self.checked();
        let outputs = Outputs::of(forward, &wrt)?;
        let incoming: Vec<Arc<str>> = outputs.others.iter().map(|o| upstream(&o.name)).collect();
        if wrt.masks.value_type() != ValueType::Bool {
            let cure = "use `Bits8`, `Bits128` or `Bool`";
            return Err(GradError::Format { name: "a saved condition".into(), dtype: wrt.masks, cure });
        }
        // Derivatives in terms of what a region's arms are, or of what the region is: whichever takes fewer bits, then less work.
        let mut best: Option<Candidate> = None;
        for through in [false, true] {
            let candidate = Candidate::new(forward, &outputs, &incoming, &wrt, through)?;
            if best.as_ref().is_none_or(|best| candidate.cost < best.cost) {
                best = Some(candidate);
            }
        }
        let Some(Candidate { folded, selected, .. }) = best else { return Err(GradError::Nothing) };
        taken(forward, folded.checked.graph().sinks().iter().map(|s| &s.name).chain(&incoming))?;
        // The names hold a fingerprint of the pair, which is made of what it is without them.
        let unnamed: Vec<Arc<str>> = (0..selected.len()).map(|i| format!("reserve{i}").into()).collect();
        let print = |names: &[Arc<str>]| -> Result<(Epilogue, Epilogue, Vec<NodeId>), GradError> {
            let (graph, values) = split::forward(forward, &folded, &selected, names);
            let backward = split::backward(&folded, &selected, names);
            Ok((Epilogue::from_graph(graph)?, Epilogue::from_graph(backward)?, values))
        };
        let (before, after, _) = print(&unnamed_or_output(&selected, &unnamed))?;
        let fingerprint = reserve::fingerprint(&[&before.to_json(), &after.to_json()]);
        let named: Vec<Arc<str>> = unnamed.iter().map(|name| format!("{name}@{:08x}", fingerprint as u32).into()).collect();
        let names = unnamed_or_output(&selected, &named);
        taken(forward, named.iter())?;
        let (forward, backward, values) = print(&names)?;
        let reserve = ReservePlan::new((&forward, &backward), &selected, &names, &values, &incoming, fingerprint);
        Ok(Pair { forward, backward, reserve, through: outputs.through.name })
    }
}

/// One way to differentiate, and what it saves.
struct Candidate {
    folded: Folded,
    selected: Vec<Selected>,
    /// Bits saved and issue slots, for one element.
    cost: (usize, u32),
}

impl Candidate {
    fn new(
        forward: &Checked,
        outputs: &Outputs,
        incoming: &[Arc<str>],
        wrt: &Wrt,
        through: bool,
    ) -> Result<Candidate, GradError> {
        let operand = outputs.through.operand;
        let mut joint = Joint::new(forward);
        let leaves = leaves(forward, &joint, wrt, operand.dtype)?;
        let seeds: Vec<(NodeId, NodeId)> = outputs.seeds(forward, &mut joint);
        let ids: Vec<NodeId> = leaves.iter().map(|leaf| leaf.id).collect();
        let gradients = sweep::sweep(&mut joint, &seeds, &ids, through)?;
        let mut sinks = Vec::new();
        for (Leaf { name, operand, .. }, gradient) in leaves.into_iter().zip(gradients) {
            let value = gradient.unwrap_or_else(|| joint.graph.constant_f32(0.0));
            let kind = if operand.axes.contains(Axes::MNL) {
                SinkKind::Store(operand)
            } else {
                SinkKind::Reduce(Reduction { monoid: Monoid::Sum, atomic: false, operand })
            };
            sinks.push(Sink { name: format!("grad_{name}").into(), value, kind });
        }
        let folded = joint.fold(sinks);
        // Sums of integer products are far larger than what is stored in the end.
        let integer = forward.accumulator() == Some(ValueType::I32);
        let float = if wrt.exact || integer { DType::F32 } else { operand.dtype };
        let selected = select::select(forward, &folded, incoming, wrt, (float, operand.order))?;
        let bits = selected.iter().filter(|s| s.output.is_none()).map(|s| s.operand.dtype.bits()).sum();
        let names: Vec<Arc<str>> = (0..selected.len()).map(|i| i.to_string().into()).collect();
        let cost = (bits, work(&split::backward(&folded, &selected, &names)));
        Ok(Candidate { folded, selected, cost })
    }
}

/// Issue slots of an element, roughly.
fn work(graph: &Graph) -> u32 {
    let cost = |node: &Node| match node {
        Node::Apply { op, .. } => op.row().cost,
        Node::Custom { op, .. } => op.cost(),
        _ => 0,
    };
    graph.nodes().map(|(_, node)| cost(node)).sum()
}

/// The name of each selected value: the output's, where the caller keeps one.
fn unnamed_or_output(selected: &[Selected], names: &[Arc<str>]) -> Vec<Arc<str>> {
    selected.iter().zip(names).map(|(s, name)| s.output.clone().unwrap_or_else(|| name.clone())).collect()
}

fn upstream(output: &str) -> Arc<str> {
    format!("upstream_{output}").into()
}

fn taken<'n>(forward: &Checked, mut names: impl Iterator<Item = &'n Arc<str>>) -> Result<(), GradError> {
    match names.find(|name| forward.argument(name).is_some()) {
        Some(name) => Err(GradError::Name { name: name.to_string() }),
        None => Ok(()),
    }
}

/// An output through which a gradient comes in.
struct Output {
    name: Arc<str>,
    value: NodeId,
    operand: Operand,
}

struct Outputs {
    /// The one whose gradient is the accumulator.
    through: Output,
    others: Vec<Output>,
}

impl Outputs {
    fn of(forward: &Checked, wrt: &Wrt) -> Result<Outputs, GradError> {
        let sinks = forward.graph().sinks();
        let names = || sinks.iter().map(|s| s.name.to_string()).collect();
        for name in wrt.through.iter().chain(&wrt.detached) {
            if !sinks.iter().any(|s| *s.name == **name) {
                return Err(GradError::Unknown { name: name.clone(), what: "is an output", known: names() });
            }
        }
        let mut outputs = Vec::new();
        for sink in sinks.iter().filter(|s| !wrt.detached.iter().any(|d| **d == *s.name)) {
            if forward.type_of(sink.value).value != ValueType::F32 {
                continue;
            }
            let why = match sink.kind {
                SinkKind::Store(operand) if !operand.axes.contains(Axes::MNL) => {
                    Some("the batch shares it; let it vary along the batch, or leave it out with `Wrt::detached`")
                }
                SinkKind::Reduce(Reduction { monoid, .. }) if monoid != Monoid::Sum => {
                    Some("only sums have gradients among reductions; leave it out with `Wrt::detached`")
                }
                SinkKind::Store(_) | SinkKind::Reduce(_) => None,
            };
            if let Some(why) = why {
                return Err(GradError::Output { name: sink.name.to_string(), why });
            }
            outputs.push(Output { name: sink.name.clone(), value: sink.value, operand: sink.kind.operand() });
        }
        let matrix = |o: &Output| o.operand.axes.contains(Axes::MNL);
        let chosen = match &wrt.through {
            Some(name) => outputs.iter().position(|o| *o.name == **name && matrix(o)).ok_or_else(|| GradError::Output {
                name: name.clone(),
                why: "it is no matrix of f32 values; choose one that is stored as f32, f16 or bf16",
            })?,
            None => {
                let d = outputs.iter().position(|o| &*o.name == "d" && matrix(o));
                d.or_else(|| outputs.iter().position(matrix)).ok_or(GradError::NoOutput)?
            }
        };
        let through = outputs.remove(chosen);
        Ok(Outputs { through, others: outputs })
    }

    /// Values with their incoming gradients.
    fn seeds(&self, forward: &Checked, joint: &mut Joint) -> Vec<(NodeId, NodeId)> {
        let seed = |joint: &mut Joint, output: &Output, node: Node| {
            let built_at = forward.graph().built_at(output.value);
            (joint.of_user[output.value.index()], joint.graph.push(node, built_at))
        };
        let mut seeds = vec![seed(joint, &self.through, Node::Accumulator(ValueType::F32))];
        for output in &self.others {
            let load = Node::Load { name: upstream(&output.name), operand: output.operand };
            seeds.push(seed(joint, output, load));
        }
        seeds
    }
}

/// What is differentiated with respect to.
struct Leaf {
    name: Arc<str>,
    id: NodeId,
    /// Of its gradient.
    operand: Operand,
}

/// The accumulator and the arguments that were asked for.
fn leaves(forward: &Checked, joint: &Joint, wrt: &Wrt, output: DType) -> Result<Vec<Leaf>, GradError> {
    let mut leaves = Vec::new();
    let mut known = Vec::new();
    let format = |name: &str, dtype: DType| wrt.formats.get(name).copied().unwrap_or(dtype);
    for (id, node) in joint.graph.nodes() {
        let (name, value, operand) = match node {
            // Whether or not a value of the epilogue depends on it.
            Node::Load { name, operand } if **name == *FORWARD => {
                if wrt.accumulator && operand.dtype.value_type() == ValueType::F32 {
                    taken(forward, [&Arc::from("acc")].into_iter())?;
                    let operand = Operand { order: order(forward), ..format("acc", output).into() };
                    leaves.push(Leaf { name: "acc".into(), id, operand });
                }
                continue;
            }
            Node::Load { name, operand } => (name, operand.dtype.value_type(), *operand),
            Node::Scalar { name, value_type } => (name, *value_type, value_type.storage().pointer()),
            _ => continue,
        };
        if value != ValueType::F32 {
            if wrt.names.is_some() && wrt.wants(name) {
                return Err(GradError::Discrete { name: name.to_string(), dtype: operand.dtype });
            }
            continue;
        }
        known.push(name.to_string());
        if wrt.wants(name) {
            leaves.push(Leaf { name: name.clone(), id, operand: Operand { dtype: format(name, operand.dtype), ..operand } });
        }
    }
    let missing = wrt.names.iter().flatten().find(|name| !known.contains(name));
    if let Some(name) = missing {
        return Err(GradError::Unknown { name: name.clone(), what: "has a gradient", known });
    }
    for (name, dtype) in wrt.formats.iter().filter(|(_, dtype)| dtype.value_type() != ValueType::F32) {
        let cure = "a gradient is f32, f16 or bf16";
        return Err(GradError::Format { name: format!("the gradient of {name}"), dtype: *dtype, cure });
    }
    if let Some(name) = wrt.formats.keys().find(|name| !leaves.iter().any(|l| *l.name == ***name)) {
        let known = leaves.iter().map(|l| l.name.to_string()).collect();
        return Err(GradError::Unknown { name: name.clone(), what: "is differentiated with respect to", known });
    }
    if leaves.is_empty() { Err(GradError::Nothing) } else { Ok(leaves) }
}

/// The order of most matrices that are stored.
fn order(forward: &Checked) -> Order {
    let matrices = forward.graph().sinks().iter().map(|s| s.kind.operand()).filter(|o| o.axes.is_matrix());
    let column = matrices.clone().filter(|o| o.order == Order::ColumnMajor).count();
    if 2 * column > matrices.count() { Order::ColumnMajor } else { Order::RowMajor }
}
