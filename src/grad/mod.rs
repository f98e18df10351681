//! Training: from an epilogue to the pair of it and its derivative.
//!
//! [`Epilogue::backward`] turns an epilogue into two. The [forward](Pair::forward) epilogue also stores what the
//! backward pass needs. The [backward](Pair::backward) epilogue turns incoming gradients into those of the accumulator
//! and of every argument. Both are ordinary epilogues: they print, serialise and run like any other. (To differentiate
//! one again, rename its arguments in its text, because the names of gradients are taken.)
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
//! let shape = Shape::matrix(2, 3);
//! let mut reserve = pair.reserve().allocate(shape);
//! let (z, bias, mut d) = ([0.5f32, -1.0, 2.0, 0.5, -1.0, 2.0], [0.0f32; 3], [0.0f32; 6]);
//! let args = HostArgs::new().input("a", &z).input("bias", &bias).scalar("boundary", 1).output("d", &mut d);
//! Gemm::pointwise(F32, Default::default(), pair.forward()).reference(shape, args.saving(&mut reserve))?;
//!
//! let (upstream, mut dz, mut dbias) = ([1.0f32; 6], [0.0f32; 6], [0.0f32; 3]);
//! let args = HostArgs::new().input("a", &upstream).scalar("boundary", 1);
//! let args = args.output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
//! Gemm::pointwise(F32, Default::default(), pair.backward()).reference(shape, args.saved(&reserve))?;
//! assert_eq!(dz[3..], [1.0, 0.0, 1.0]); // relu in the second row
//! assert!((dbias[1] - 0.19661).abs() < 1e-5); // sigmoid' (-1) + 0
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The backward epilogue
//!
//! Its accumulator is the incoming gradient of one output ([`Wrt::through`]). It runs behind the product that computes
//! that gradient (of the next layer), or over the gradient as a pointwise operation. It computes the requested
//! gradients:
//!
//! | gradient of | name | value |
//! | --- | --- | --- |
//! | the accumulator | `grad_acc` | a matrix |
//! | a matrix | `grad_NAME` | a matrix; if the batch shares it, the sum over the batch |
//! | a vector over N, M | `grad_NAME` | the sum over M, N, and over the batch if the batch shares it |
//! | a scalar | `grad_NAME` | the sum over everything |
//!
//! The incoming gradient of one stored matrix is the accumulator, so at least one matrix must be stored. Those of
//! further outputs are loaded as `upstream_NAME`, in the layout of the forward pass. A stored reduction has a gradient
//! only if it is a sum. Leave out other stored reductions, and vectors of reduction results, with [`Wrt::detached`].
//! Gradients pass through a reduction inside the graph if it is a sum, a mean, a norm, a logsumexp or, over one axis,
//! the largest or the smallest element; the first of equal elements gets the whole gradient. An argument that no
//! gradient reaches gets zeros. The backward epilogue takes only the arguments that it needs:
//! [`arguments`](crate::Epilogue::arguments) lists them, and a bias is not among them.
//!
//! # Derivatives
//!
//! Derivatives are rows of the [table](crate::ir::op). A user's function needs no derivative of its own, and a
//! [`CustomOp`](crate::CustomOp) has [partials](crate::CustomOp::partial). Comparisons, integers and roundings to
//! integers have none. A rounding to a narrower format passes the gradient through. One to `e4m3` or `e5m2`, which saturates,
//! passes it through inside the format's range, and gives 0 outside: one saved bit. A store rounds as a cast does. A
//! select's gradient never comes from the arm that was not selected, not even as a NaN, and a region of the forward pass
//! is a region of the backward pass.
//!
//! # Borders
//!
//! At a kink the derivative is the one that PyTorch (2.7) computes, where PyTorch has the activation:
//!
//! | activation | derivative at its borders |
//! | --- | --- |
//! | `relu`, `relu_squared` | 0 at 0 |
//! | `relu6`, `hardtanh` | 0 at both bounds |
//! | `clamp` | 1 at both bounds, 0 at NaN; `low` and `high` have theirs only outside |
//! | `leaky_relu`, `prelu` | the slope at 0 and at NaN |
//! | `elu`, `selu`, `celu` | that of the exponential at 0: alpha, scale times alpha, 1 |
//! | `hardsigmoid` | 0 at -3 and 3, and at NaN |
//! | `hardswish` | 0 at -3, 1 at 3 |
//! | `softshrink`, `hardshrink`, `shrink` | 0 at -lambda and lambda |
//! | `threshold`, `thresholded_relu` | 0 at the limit |
//! | `hardsigmoid_with` | alpha at both bounds |
//! | `rrelu` | the mean slope at 0 |
//! | `abs` | 0 at 0 and at NaN |
//!
//! These differ:
//!
//! - At NaN the derivatives of `relu` and `threshold` are 0, and PyTorch's are 1: the saved mask is `x > limit`.
//! - If both operands of a minimum or maximum are equal, the second gets the whole gradient. PyTorch gives each a half.
//!   A half would be a third case, and take a second bit.
//! - `hardsigmoid` is a ReLU6 of `x + 3`: it has the border's derivative where that sum rounds to the border.
//! - The mask `z >= 0` of cuBLASLt, if it is [kept](Wrt::keeps), replaces the ReLU's own mask: the derivative at 0 is
//!   1.
//! - If an output of `relu`, `elu`, `selu` or `celu` is [kept](Wrt::keeps), the backward pass compares the rounded
//!   output with 0. A value that the format rounds to 0, at most 2^-25 in `f16`, has the derivative at 0.
//!
//! # The reserve
//!
//! The forward pass saves what the backward pass cannot compute from its arguments, with as few bits as possible: see
//! [`ReservePlan`]. For example, for each element:
//!
//! - ReLU takes 1 bit.
//! - Sigmoid and tanh take their slope, or nothing if the output is [kept](Wrt::keeps).
//! - GELU takes its operand.
//! - A select by a condition on a saved value takes the value, and a bit for the condition, because the saved value is
//!   rounded and may lie on the other side.
//! - A condition on coordinates, a bias or a residual takes nothing.
//!
//! A [`Reserve`] knows its epilogues and its shape, and a launch refuses any other. Two pairs of the same epilogues
//! accept each other's reserves.

mod cut;
mod decisions;
mod derivative;
mod ends;
mod error;
mod joint;
mod masks;
mod reserve;
mod select;
mod split;
mod sweep;
mod wrt;

pub use crate::args::{Reserve, ReserveTag};
pub(crate) use derivative::derivative;
pub use error::GradError;
pub use reserve::{Free, ReserveError, ReservePlan, Saved};
pub use wrt::{Keep, Wrt};

use crate::args;
use crate::build::Epilogue;
use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::axes::Axes;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::wire::Document;
use crate::ir::{Monoid, Reduce, Sink, SinkKind};
use ends::{Leaf, Outputs, gradient_of, leaves, taken, upstream};
use joint::{Folded, Joint};
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

    /// The plan of the values that are saved in between.
    pub fn reserve(&self) -> &ReservePlan {
        &self.reserve
    }

    /// The output whose incoming gradient is the accumulator of the backward epilogue.
    pub fn through(&self) -> &str {
        &self.through
    }
}

impl Epilogue {
    /// Differentiates. The result is the epilogue that also saves what its derivative needs, and the derivative.
    ///
    /// # Errors
    /// If a name is unknown or taken, an output or an argument has no gradient, a custom primitive has no derivative, or
    /// a function's is lost because its value is its argument.
    pub fn backward(&self, wrt: Wrt) -> Result<Pair, GradError> {
        let forward = self.checked();
        let outputs = Outputs::of(forward, &wrt)?;
        let incoming: Vec<Arc<str>> = outputs.others.iter().map(|o| upstream(&o.name)).collect();
        if wrt.masks.value_type() != ValueType::Bool {
            let cure = "use `Bits8`, `Bits128` or `Bool`";
            return Err(GradError::Format { name: "a saved condition".into(), dtype: wrt.masks, cure });
        }
        // Derivatives use the values of a region's arms, or the value of the region: whichever needs fewer bits, then
        // less work.
        let mut best: Option<Candidate> = None;
        for through in [false, true] {
            let candidate = Candidate::new(forward, &outputs, &incoming, &wrt, through)?;
            if best.as_ref().is_none_or(|best| candidate.cost < best.cost) {
                best = Some(candidate);
            }
        }
        let Some(Candidate { folded, selected, .. }) = best else { return Err(GradError::Nothing) };
        taken(forward, folded.checked.graph().sinks().iter().map(|s| &s.name).chain(&incoming))?;
        // The names contain a fingerprint of the pair, which is computed without them.
        let unnamed: Vec<Arc<str>> = (0..selected.len()).map(|i| format!("{}{i}", args::reserve::PREFIX).into()).collect();
        let print = |names: &[Arc<str>]| -> Result<(Epilogue, Epilogue, Vec<NodeId>), GradError> {
            let (graph, values) = split::forward(forward, &folded, &selected, names);
            let backward = split::backward(&folded, &selected, names);
            Ok((Epilogue::from_graph(graph)?, Epilogue::from_graph(backward)?, values))
        };
        let (before, after, _) = print(&unnamed_or_output(&selected, &unnamed))?;
        let fingerprint = reserve::fingerprint(&[&before, &after].map(written));
        let named: Vec<Arc<str>> = unnamed.iter().map(|name| args::reserve::name(name, fingerprint)).collect();
        let names = unnamed_or_output(&selected, &named);
        taken(forward, named.iter())?;
        let (forward, backward, values) = print(&names)?;
        let reserve = ReservePlan::new((&forward, &backward), &selected, &names, &values, &incoming, fingerprint);
        Ok(Pair { forward, backward, reserve, through: outputs.through.name })
    }
}

/// One way to differentiate, and the values that it saves.
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
        let mut joint = Joint::new(forward)?;
        let leaves = leaves(forward, &joint, wrt, operand.dtype.of_gradients())?;
        let seeds: Vec<(NodeId, NodeId)> = outputs.seeds(forward, &mut joint);
        let ids: Vec<NodeId> = leaves.iter().map(|leaf| leaf.id).collect();
        let gradients = sweep::sweep(&mut joint, &seeds, &ids, through)?;
        let mut sinks = Vec::new();
        for (Leaf { name, operand, .. }, gradient) in leaves.into_iter().zip(gradients) {
            let value = gradient.unwrap_or_else(|| joint.graph.constant_of(operand.dtype.value_type(), 0.0));
            let kind =
                if operand.axes.contains(Axes::MNL) { SinkKind::Store(operand) } else { Reduce::from(Monoid::Sum).to(operand) };
            sinks.push(Sink::new(gradient_of(&name), value, kind));
        }
        let folded = joint.fold(sinks, incoming);
        // Sums of integer products are far larger than the stored results.
        let integer = forward.accumulator() == Some(ValueType::I32);
        let narrow = operand.dtype.value_type() == ValueType::F32;
        let float = if wrt.exact || integer || !narrow { DType::F32 } else { operand.dtype.of_gradients() };
        let selected = select::select(forward, &folded, incoming, wrt, (float, operand.order))?;
        let bits = selected.iter().filter(|s| s.output.is_none()).map(|s| reserve::bits(s.operand)).sum();
        let names: Vec<Arc<str>> = (0..selected.len()).map(|i| i.to_string().into()).collect();
        let cost = (bits, work(&split::backward(&folded, &selected, &names)));
        Ok(Candidate { folded, selected, cost })
    }
}

/// Issue slots of an element, roughly.
fn work(graph: &Graph) -> u32 {
    graph.nodes().map(|(_, node)| node.cost()).sum()
}

/// The definition of an epilogue as text. Functions are inlined, since a name may have another meaning elsewhere.
fn written(epilogue: &Epilogue) -> String {
    let inlined = crate::pass::inline(epilogue.checked());
    serde_json::to_string(&Document::of(inlined.graph())).unwrap_or_default()
}

/// The name of each selected value: the output's name, if the caller keeps the output.
fn unnamed_or_output(selected: &[Selected], names: &[Arc<str>]) -> Vec<Arc<str>> {
    selected.iter().zip(names).map(|(s, name)| s.output.clone().unwrap_or_else(|| name.clone())).collect()
}
