//! Training: from an epilogue to the pair of it and its derivative.
//!
//! [`Epilogue::backward`] turns an epilogue into two: the [forward](Pair::forward) one, which also stores what the
//! backward pass needs, and the [backward](Pair::backward) one, which turns incoming gradients into those of the
//! accumulator and of every argument. Both are ordinary epilogues: they print, serialise and run like any other. (To
//! differentiate one again, give its arguments other names in its text: those of gradients are taken.)
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
//! The incoming gradient of one stored matrix is the accumulator, so there has to be one; those of further outputs are
//! loaded as `upstream_NAME`, as they lie in the forward pass. A stored reduction has a gradient only if it is a sum.
//! Other stored reductions, and vectors of what rows come to, are left out by [`Wrt::detached`]. Gradients pass through a
//! reduction inside the graph if it is a sum, a mean, a norm, a logsumexp or, over one axis, the largest or the smallest
//! element; the first of equal elements gets all of it. An argument that no gradient reaches gets zeros. The backward
//! epilogue takes only the arguments that it needs: [`arguments`](crate::Epilogue::arguments) lists them, and a bias is
//! not among them.
//!
//! # Derivatives
//!
//! They are rows of the [table](crate::ir::op): a user's function needs none of its own, and a
//! [`CustomOp`](crate::CustomOp) brings its [partials](crate::CustomOp::partial). Comparisons, integers, rounding to
//! integers have none. A rounding to a narrower format passes the gradient through. A select's gradient never comes from
//! the arm that was not picked, not even as a NaN, and a region of the forward pass is a region of the backward pass.
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
//! - At NaN the derivatives of `relu` and `threshold` are 0, and PyTorch's are 1: the mask that is saved is `x > limit`.
//! - Where both operands of a minimum or maximum are equal the second gets the whole gradient; PyTorch gives each a half.
//!   A half would be a third case, and take a second bit.
//! - `hardsigmoid` is a ReLU6 of `x + 3`: it has the border's derivative where that sum rounds to the border.
//! - The mask `z >= 0` of cuBLASLt, where it is [kept](Wrt::keeps), stands for the ReLU's own: the derivative at 0 is 1.
//! - Where an output is [kept](Wrt::keeps), a comparison of it with 0 is of the rounded output: that of `relu`, `elu`,
//!   `selu`, `celu`. A value that the format rounds to 0, which in `f16` is at most 2^-25, has the derivative at 0.
//!
//! # The reserve
//!
//! What the backward pass cannot compute from its arguments is saved, and as few bits as possible: see [`ReservePlan`].
//! ReLU takes 1 bit an element; sigmoid and tanh their slope, or nothing where the output is [kept](Wrt::keeps); GELU
//! what it is applied to; a select by a condition on a value that is saved the value, and a bit for the condition, since
//! the saved value is rounded and may lie on the other side; a condition on coordinates, a bias, a residual nothing. A
//! [`Reserve`] knows which epilogues and which shape it was made for, and a launch refuses every other; of two pairs of
//! the same epilogues either takes the other's.

mod cut;
mod decisions;
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
        // Sums of integer products are far larger than what is stored in the end.
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

/// What an epilogue means, written down: of a function its body, since its name may stand for another one elsewhere.
fn written(epilogue: &Epilogue) -> String {
    let inlined = crate::pass::inline(epilogue.checked());
    serde_json::to_string(&Document::of(inlined.graph())).unwrap_or_default()
}

/// The name of each selected value: the output's, where the caller keeps one.
fn unnamed_or_output(selected: &[Selected], names: &[Arc<str>]) -> Vec<Arc<str>> {
    selected.iter().zip(names).map(|(s, name)| s.output.clone().unwrap_or_else(|| name.clone())).collect()
}
