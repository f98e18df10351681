//! Attention: a product whose left operand is computed on the way, the softmax of the scores of queries and keys.

use super::{Scores, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An attention: each query takes the mean of the values, weighted with the softmax of its scores.
///
/// To an epilogue it is a product of M queries, N columns of the values and K keys: the accumulator is
/// `softmax(scale * A keys^T) B`, where `a` has the queries (M x `width`), `keys` the keys (K x `width`), and `b` the values
/// (K x N), all row-major. Batch entries are heads. The scores are never in memory. A function of them ([`Scores`]) stands before
/// the softmax, if [`scores`](Attention::scores) gives one.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::Attention;
/// // One query that is as near to the first key as to the second one.
/// let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 10.0, F32))?;
/// let (queries, keys, values, mut d) = ([1.0f32, 1.0], [2.0f32, 0.0, 0.0, 2.0], [1.0f32, 3.0], [0.0f32]);
/// let args = HostArgs::new().input("a", &queries).input("keys", &keys).input("b", &values).output("d", &mut d);
/// Gemm::attention(F32, Attention::new(2), &epilogue).reference(Shape::new(1, 1, 2), args)?;
/// assert_eq!(d, [20.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    width: usize,
    sequences: usize,
    causal: bool,
    scale: Factor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scores: Option<Scores>,
}

/// A binary32 number that is compared by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "f32", into = "f32")]
struct Factor(u32);

impl From<f32> for Factor {
    fn from(x: f32) -> Factor {
        Factor(x.to_bits())
    }
}

impl From<Factor> for f32 {
    fn from(Factor(bits): Factor) -> f32 {
        f32::from_bits(bits)
    }
}

impl Attention {
    /// The name of the keys among the arguments of a launch.
    pub(crate) const KEYS: &'static str = "keys";

    /// The attention of queries and keys of `width` elements, whose scores are divided by the root of `width`.
    pub fn new(width: usize) -> Attention {
        let scale = 1.0 / (width.max(1) as f64).sqrt();
        Attention { width, sequences: 1, causal: false, scale: Factor::from(scale as f32), scores: None }
    }

    /// Multiplies scores by another factor, which has to be positive and finite.
    #[must_use]
    pub fn scaled(self, scale: f32) -> Attention {
        Attention { scale: Factor::from(scale), ..self }
    }

    /// A query sees only the keys up to its own position, both counted from the beginning of their sequence.
    #[must_use]
    pub const fn causal(self) -> Attention {
        Attention { causal: true, ..self }
    }

    /// Makes of each score what the function says, before the softmax: a bias, a mask, a cap.
    #[must_use]
    pub const fn scores(self, scores: &Scores) -> Attention {
        Attention { scores: Some(*scores), ..self }
    }

    /// The rows are those of so many sequences of equal length, one behind the other, and so are the keys. A query sees only
    /// the keys of its own sequence.
    #[must_use]
    pub const fn sequences(self, sequences: usize) -> Attention {
        Attention { sequences, ..self }
    }

    /// Elements of a query and of a key.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The factor of the scores.
    pub fn scale(&self) -> f32 {
        self.scale.into()
    }

    /// Whether a query sees only the keys up to its own position.
    pub const fn is_causal(&self) -> bool {
        self.causal
    }

    /// What a score becomes, if it does not stay as it is.
    pub const fn function(&self) -> Option<Scores> {
        self.scores
    }

    /// The names of its arguments beside queries and values: the keys, and those of a function of scores.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let of_scores = self.scores.map_or(&[][..], |scores| scores.arguments());
        std::iter::once(Attention::KEYS).chain(of_scores.iter().map(|argument| &*argument.name))
    }

    /// The number of sequences.
    pub(crate) const fn count(&self) -> usize {
        self.sequences
    }

    /// The rule that it breaks by itself, if any.
    pub(crate) fn broken_rule(&self) -> Option<&'static str> {
        match self.scale() {
            _ if self.width == 0 => Some("queries and keys have at least one element"),
            _ if self.sequences == 0 => Some("there is at least one sequence"),
            scale if !(scale.is_finite() && scale > 0.0) => Some("the scale is positive and finite"),
            _ => None,
        }
    }

    /// Whether launches may have these extents: rows and keys are those of whole sequences.
    pub(crate) const fn fits(&self, shape: Shape) -> bool {
        shape.m.is_multiple_of(self.sequences) && shape.k.is_multiple_of(self.sequences)
    }

    /// Queries and keys of a sequence.
    pub(crate) fn lengths(&self, shape: Shape) -> [usize; 2] {
        [shape.m, shape.k].map(|all| all / self.sequences.max(1))
    }

    /// Rows of all sequences, if each is filled up to whole tiles of `rows` rows. A single sequence ends where M does.
    pub(crate) fn padded_rows(&self, shape: Shape, rows: usize) -> usize {
        let [queries, _] = self.lengths(shape);
        if self.sequences == 1 { shape.m } else { queries.next_multiple_of(rows.max(1)).saturating_mul(self.sequences) }
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heads of {}, scores times {}", self.width, self.scale())?;
        if self.sequences != 1 {
            write!(f, ", {} sequences", self.sequences)?;
        }
        f.write_str(if self.causal { ", causal" } else { "" })?;
        f.write_str(if self.scores.is_some() { ", with a function of scores" } else { "" })
    }
}
