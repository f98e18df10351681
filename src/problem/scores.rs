//! Functions of scores, as an attention has them: checked graphs that are kept once.

use crate::check::{Argument, Checked, Diagnostics, RESULT, check_scores};
use crate::ir::op::Signature;
use crate::ir::{Node, NodeId, Registry, wire};
use crate::pass;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// A checked function of an attention's scores: what a score becomes before the softmax.
///
/// It is a graph like an epilogue's, of the scores of all queries and keys of a sequence: [`acc`](crate::Builder::acc) is the
/// score, already multiplied by the attention's [scale](crate::Attention::scale) and rounded to `f32`. A row is a query and a
/// column a key, both counted from 0 in their sequence. A batch entry is a head, and [`sequence`](crate::Builder::sequence)
/// is the number of the sequence. The axes of an operand are those of the scores, too:
///
/// | operand | in memory |
/// | --- | --- |
/// | `F32.over(N)`; `F32.over(N \| S)` | one element for each key; for each key of each sequence |
/// | `F32.over(L)` | one element for each head |
/// | `F16.over(M \| N)`, `F16.over(M \| N \| S)` | a matrix of queries and keys; one for each sequence |
/// | `F16`, `F16.over(M \| N \| L \| S)` | a matrix for each head; for each head of each sequence, heads of one side by side |
///
/// A score of minus infinity hides the key from the query: it has no weight. A query from which all keys are hidden gets zeros,
/// as from PyTorch's `scaled_dot_product_attention`. A key that [`causal`](crate::Attention::causal) hides stays hidden,
/// whatever the function makes of it.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::{Attention, Scores};
/// // The bias of ALiBi, and keys up to 256 positions back.
/// let scores = Scores::build(|s| {
///     let ahead = s.column() - s.row();
///     let score = s.acc() + s.load("slopes", F32.over(L)) * ahead.cast(F32);
///     (ahead.le(0) & ahead.gt(-256)).select(score, f32::NEG_INFINITY)
/// })?;
/// let attention = Attention::new(64).scores(&scores);
/// let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F16))?;
/// let plan = Gemm::attention(F16, attention, &epilogue);
/// # let _ = plan;
/// # Ok::<(), postlude::Diagnostics>(())
/// ```
///
/// Equal functions are one, which lives as long as the program. So a function is as cheap to copy as a number.
#[derive(Clone, Copy)]
pub struct Scores(&'static Kept);

/// A function, and what follows from it.
struct Kept {
    checked: Checked,
    /// Without calls.
    inlined: Checked,
    arguments: Vec<Argument>,
}

/// All functions of this program.
static ALL: Mutex<Vec<&'static Kept>> = Mutex::new(Vec::new());

impl Scores {
    /// The function of a graph that has passed the check.
    pub(crate) fn of(checked: Checked) -> Scores {
        let inlined = pass::inline(&checked);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.checked == checked && known.inlined == inlined) {
            return Scores(known);
        }
        let arguments = inlined.arguments().iter().filter(|argument| *argument.name != *RESULT).cloned().collect();
        let kept: &'static Kept = Box::leak(Box::new(Kept { checked, inlined, arguments }));
        all.push(kept);
        Scores(kept)
    }

    /// The graph and the results of the check.
    pub fn checked(&self) -> &'static Checked {
        &self.0.checked
    }

    /// The graph without calls.
    pub(crate) fn inlined(&self) -> &'static Checked {
        &self.0.inlined
    }

    /// The node of [`inlined`](Scores::inlined) that is the result.
    pub(crate) fn result(&self) -> NodeId {
        self.inlined().graph().sinks()[0].value()
    }

    /// Whether every score stays as it is.
    pub(crate) fn is_identity(&self) -> bool {
        let (checked, mut value) = (self.inlined(), self.result());
        // A conversion to the type that a value has already.
        while let Node::Apply { op, args } = checked.graph().node(value)
            && op.row().signature == Signature::Convert(checked.type_of(args[0]).value)
            && op.row().format.is_none()
        {
            value = args[0];
        }
        matches!(checked.graph().node(value), Node::Accumulator(_))
    }

    /// The arguments that it adds to those of a launch, in the order of first use.
    pub fn arguments(&self) -> &'static [Argument] {
        &self.0.arguments
    }
}

impl PartialEq for Scores {
    fn eq(&self, other: &Scores) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Scores {}

impl Hash for Scores {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

/// The text form of its graph.
impl fmt::Debug for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The listing: the text form, with the type of every value.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = self.checked();
        f.write_str(&crate::ir::text::print(checked.graph(), |id| Some(checked.type_of(id).to_string())))
    }
}

/// The graph without calls, as a document.
impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        wire::Document::of(self.inlined().graph()).serialize(serializer)
    }
}

/// Reads and checks a document without calls and custom primitives.
impl<'de> Deserialize<'de> for Scores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scores, D::Error> {
        let document = wire::Document::deserialize(deserializer)?;
        let graph = document.into_graph(&Registry::default()).map_err(serde::de::Error::custom)?;
        let checked: Result<Checked, Diagnostics> = check_scores(graph, &[], None, &[]);
        checked.map(Scores::of).map_err(serde::de::Error::custom)
    }
}
