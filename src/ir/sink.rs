//! Sinks: the nodes with effects.
//!
//! A sink consumes one value of the graph and writes memory: a [store](SinkKind::Store) writes every element, a
//! [reduction](SinkKind::Reduce) combines many elements, and a [count](SinkKind::Bincount) counts how often each index
//! occurs. This file contains everything that depends on the kind: its word and parameters in text, its operand, its view
//! from the transposed problem. A bit mask is not a separate kind, but a store in a bit format
//! ([`DType::Bits8`](crate::DType::Bits8), [`DType::Bits128`](crate::DType::Bits128)).

use super::custom::Registry;
use super::graph::NodeId;
use super::monoid::Monoid;
use super::operand::Operand;
use std::sync::Arc;

/// One effect of the epilogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sink {
    /// The argument's name. The name of a loaded matrix updates that matrix in place.
    pub name: Arc<str>,
    /// The values it consumes: one, unless a reduction's elements consist of several.
    pub values: Vec<NodeId>,
    /// The kind of effect.
    pub kind: SinkKind,
}

impl Sink {
    /// A sink of one value.
    pub fn new(name: impl Into<Arc<str>>, value: NodeId, kind: SinkKind) -> Sink {
        Sink { name: name.into(), values: vec![value], kind }
    }

    /// The first of the values: the only one, unless a reduction's elements consist of several.
    ///
    /// # Panics
    /// If there is none. A graph does not accept such a sink.
    pub fn value(&self) -> NodeId {
        self.values[0]
    }

    /// The same sink with other values.
    #[must_use]
    pub fn map(&self, value: impl FnMut(NodeId) -> NodeId) -> Sink {
        Sink { values: self.values.iter().copied().map(value).collect(), ..self.clone() }
    }
}

/// The kind of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SinkKind {
    /// Writes every element, rounded once to the operand's format.
    Store(Operand),
    /// Combines the elements along every axis that its operand does not vary along, and writes the results.
    Reduce(Reduction),
    /// Adds 1, for every element of the output, to the entry of a table whose index is the value: NumPy's `bincount`. An
    /// index outside the table counts nowhere. The operand is one number's; a launch passes a table of any length.
    Bincount(Operand),
}

/// A reduction over every axis that its operand does not vary along.
///
/// A result over N (`F32.over(N)`) combines all rows of all batch entries. A batched result (`F32.over(N).batched()`)
/// combines the rows of each entry, and one number ([`F32.pointer()`](crate::DType::pointer)) combines everything.
/// Every element of the output takes part, even if the value does not vary from one element to the next: the sum of 1
/// over M is M. Nothing beyond the edge of the output takes part. Over no elements the result is the monoid's identity.
///
/// A reduction of an operand's elements ([`Builder::a`](crate::Builder::a), [`Builder::b`](crate::Builder::b)) goes
/// over that operand's own axes: over K, and over the batch unless the result is batched. It must be a sum, over M for
/// `a` and over N for `b`. The product, which has the elements at hand, computes it from the stored elements. Each
/// element counts once for every entry of the batch that reads it. If the output is empty there is no product, and the
/// sum is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The monoid that combines elements.
    pub monoid: Monoid,
    /// Whether a kernel may combine partial results in the order in which they arrive. By default it may not, and two
    /// launches of one plan give the same bits. Kernels use this freedom for sums.
    pub atomic: bool,
    /// Whether the value in memory takes part as one more element: a sum is added to it. Over no elements it stays
    /// unchanged. By default it is overwritten.
    pub accumulate: bool,
    /// How the result lies in memory.
    pub operand: Operand,
}

/// A kind of reduction: a monoid, whether any order is allowed, and whether it accumulates onto memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    pub(crate) monoid: Monoid,
    pub(crate) atomic: bool,
    pub(crate) accumulate: bool,
}

impl Reduce {
    /// The sink that reduces to this operand.
    pub(crate) const fn to(self, operand: Operand) -> SinkKind {
        let Reduce { monoid, atomic, accumulate } = self;
        SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand })
    }

    /// The same reduction, but its kernel may combine partial results in any order: see [`Monoid::atomic`].
    #[must_use]
    pub const fn atomic(self) -> Reduce {
        Reduce { atomic: true, ..self }
    }

    /// The same reduction, but the value in memory takes part: see [`Monoid::accumulate`].
    #[must_use]
    pub const fn accumulate(self) -> Reduce {
        Reduce { accumulate: true, ..self }
    }
}

impl From<Monoid> for Reduce {
    fn from(monoid: Monoid) -> Reduce {
        Reduce { monoid, atomic: false, accumulate: false }
    }
}

impl Monoid {
    /// The reduction whose kernel may combine partial results in any order: cheaper, but its bits vary from launch to
    /// launch.
    pub const fn atomic(self) -> Reduce {
        Reduce { monoid: self, atomic: true, accumulate: false }
    }

    /// The reduction in which the value in memory takes part as one more element: a sum is added to it.
    pub const fn accumulate(self) -> Reduce {
        Reduce { monoid: self, atomic: false, accumulate: true }
    }
}

impl SinkKind {
    /// The operand it writes.
    pub const fn operand(self) -> Operand {
        match self {
            SinkKind::Store(operand) | SinkKind::Bincount(operand) | SinkKind::Reduce(Reduction { operand, .. }) => operand,
        }
    }

    /// Whether it combines its result with the value in memory.
    pub const fn accumulates(self) -> bool {
        matches!(self, SinkKind::Bincount(_) | SinkKind::Reduce(Reduction { accumulate: true, .. }))
    }

    /// The same sink, but a reduction may combine partial results in any order: see [`Monoid::atomic`].
    #[must_use]
    pub const fn atomic(self) -> SinkKind {
        match self {
            SinkKind::Store(_) | SinkKind::Bincount(_) => self,
            SinkKind::Reduce(reduction) => SinkKind::Reduce(Reduction { atomic: true, ..reduction }),
        }
    }

    /// The same sink with another operand.
    #[must_use]
    pub const fn with_operand(self, operand: Operand) -> SinkKind {
        match self {
            SinkKind::Store(_) => SinkKind::Store(operand),
            SinkKind::Bincount(_) => SinkKind::Bincount(operand),
            SinkKind::Reduce(reduction) => SinkKind::Reduce(Reduction { operand, ..reduction }),
        }
    }

    /// The same sink seen from the transposed problem.
    #[must_use]
    pub const fn transposed(self) -> SinkKind {
        self.with_operand(self.operand().transposed())
    }

    /// The same sink with its operand in the only form that a graph contains.
    #[must_use]
    pub(crate) const fn canonical(self) -> SinkKind {
        self.with_operand(self.operand().canonical())
    }

    /// Its first word in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SinkKind::Store(_) => "store",
            SinkKind::Reduce(_) => "reduce",
            SinkKind::Bincount(_) => "bincount",
        }
    }

    /// The words between its name and its operand in text.
    pub fn parameters(self) -> String {
        match self {
            SinkKind::Store(_) | SinkKind::Bincount(_) => String::new(),
            SinkKind::Reduce(Reduction { monoid, atomic, accumulate, .. }) => {
                let flags = [(atomic, " atomic"), (accumulate, " accumulate")];
                flags.into_iter().filter(|(set, _)| *set).fold(monoid.word().into_owned(), |words, (_, flag)| words + flag)
            }
        }
    }

    /// The first words of sinks.
    pub(crate) const WORDS: [&'static str; 3] = ["store", "reduce", "bincount"];

    /// The inverse of [`name`](SinkKind::name) and [`parameters`](SinkKind::parameters). Returns the sink that begins
    /// with `word`, from the words after its name, and the remaining words.
    pub(crate) fn parse(
        registry: &Registry,
        word: &str,
        rest: &str,
    ) -> Result<(impl FnOnce(Operand) -> SinkKind, String), String> {
        let head = |text: &str| {
            text.split_once(char::is_whitespace).map_or((text.to_owned(), String::new()), |(h, r)| (h.into(), r.trim().into()))
        };
        let mut rest = rest.trim().to_owned();
        let mut reduce = None;
        if word == "reduce" {
            let (name, behind) = head(&rest);
            let monoid = registry.monoid(&name)?;
            rest = behind;
            let (mut atomic, mut accumulate) = (false, false);
            loop {
                let (word, behind) = head(&rest);
                let flag = match &*word {
                    "atomic" => &mut atomic,
                    "accumulate" => &mut accumulate,
                    _ => break,
                };
                if std::mem::replace(flag, true) {
                    return Err(format!("`{word}` appears twice"));
                }
                rest = behind;
            }
            reduce = Some(Reduce { monoid, atomic, accumulate });
        }
        let others = if word == "bincount" { SinkKind::Bincount } else { SinkKind::Store };
        let kind = move |operand| reduce.map_or(others(operand), |reduce| reduce.to(operand));
        Ok((kind, rest))
    }
}
