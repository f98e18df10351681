//! Sinks: the nodes with effects.
//!
//! A sink consumes one value of the graph and writes memory: a [store](SinkKind::Store) every element, a
//! [reduction](SinkKind::Reduce) what many elements come to. What is particular to a kind stands here: its word and
//! parameters in text, its operand, its view from the transposed problem. A bit mask is no kind of its own but a store in a
//! bit format ([`DType::Bits8`](crate::DType::Bits8), [`DType::Bits128`](crate::DType::Bits128)).

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
    /// The values it consumes: one, unless a reduction's elements are made of more.
    pub values: Vec<NodeId>,
    /// What it does with it.
    pub kind: SinkKind,
}

impl Sink {
    /// A sink of one value.
    pub fn new(name: impl Into<Arc<str>>, value: NodeId, kind: SinkKind) -> Sink {
        Sink { name: name.into(), values: vec![value], kind }
    }

    /// The first of the values: the only one, unless a reduction's elements are made of more.
    ///
    /// # Panics
    /// If there is none: a graph takes no such sink.
    pub fn value(&self) -> NodeId {
        self.values[0]
    }

    /// The same sink of other values.
    #[must_use]
    pub fn map(&self, value: impl FnMut(NodeId) -> NodeId) -> Sink {
        Sink { values: self.values.iter().copied().map(value).collect(), ..self.clone() }
    }
}

/// What a sink does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SinkKind {
    /// Writes every element, rounded once to the operand's format.
    Store(Operand),
    /// Combines the elements along every axis that its operand does not vary along, and writes what remains.
    Reduce(Reduction),
}

/// A reduction: over every axis that its operand does not vary along.
///
/// A result over N (`F32.over(N)`) combines all rows of all batch entries, a batched one (`F32.over(N).batched()`) the rows
/// of each entry, one number ([`F32.pointer()`](crate::DType::pointer)) everything. Every element of the output takes part,
/// whether or not the value varies from one to the next: the sum of 1 over M is M. There is nothing beyond the edge of the
/// output; over no elements the result is the monoid's identity.
///
/// Of an operand's elements ([`Builder::a`](crate::Builder::a), [`Builder::b`](crate::Builder::b)) a reduction goes over that operand's own axes:
/// over K, and over the batch unless the result is batched. It is a sum, over M of `a` and over N of `b`, taken inside the
/// product, which has the elements at hand; of elements as they are stored, each once for every entry of the batch that reads it. Where
/// the output is empty there is no product either, and the sum is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// What combines two elements.
    pub monoid: Monoid,
    /// Whether a kernel may combine partial results in the order in which they happen to arrive. Otherwise, which is the
    /// default, two launches of one plan give the same bits. Kernels make use of it for sums.
    pub atomic: bool,
    /// Whether what the memory holds takes part as one more element: the result is added to it, if it is a sum; over no
    /// elements it stays. Otherwise it is overwritten.
    pub accumulate: bool,
    /// How the result lies in memory.
    pub operand: Operand,
}

/// How to reduce: a monoid, whether in any order, and whether onto what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    pub(crate) monoid: Monoid,
    pub(crate) atomic: bool,
    pub(crate) accumulate: bool,
}

impl Reduce {
    /// The same, to a result of this kind.
    pub(crate) const fn to(self, operand: Operand) -> SinkKind {
        let Reduce { monoid, atomic, accumulate } = self;
        SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand })
    }

    /// The same reduction, whose kernel may combine partial results in any order: see [`Monoid::atomic`].
    #[must_use]
    pub const fn atomic(self) -> Reduce {
        Reduce { atomic: true, ..self }
    }

    /// The same reduction, in which what the memory holds takes part: see [`Monoid::accumulate`].
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
    /// The reduction whose kernel may combine partial results in any order: cheaper, and not the same bits twice.
    pub const fn atomic(self) -> Reduce {
        Reduce { monoid: self, atomic: true, accumulate: false }
    }

    /// The reduction in which what the memory holds takes part as one more element: a sum is added to it.
    pub const fn accumulate(self) -> Reduce {
        Reduce { monoid: self, atomic: false, accumulate: true }
    }
}

impl SinkKind {
    /// The operand it writes.
    pub const fn operand(self) -> Operand {
        match self {
            SinkKind::Store(operand) | SinkKind::Reduce(Reduction { operand, .. }) => operand,
        }
    }

    /// Whether it combines its result with what the memory holds.
    pub const fn accumulates(self) -> bool {
        matches!(self, SinkKind::Reduce(Reduction { accumulate: true, .. }))
    }

    /// The same sink, in which a reduction may combine partial results in any order: see [`Monoid::atomic`].
    #[must_use]
    pub const fn atomic(self) -> SinkKind {
        match self {
            SinkKind::Store(operand) => SinkKind::Store(operand),
            SinkKind::Reduce(reduction) => SinkKind::Reduce(Reduction { atomic: true, ..reduction }),
        }
    }

    /// The same sink with another operand.
    #[must_use]
    pub const fn with_operand(self, operand: Operand) -> SinkKind {
        match self {
            SinkKind::Store(_) => SinkKind::Store(operand),
            SinkKind::Reduce(reduction) => SinkKind::Reduce(Reduction { operand, ..reduction }),
        }
    }

    /// The same sink seen from the transposed problem.
    #[must_use]
    pub const fn transposed(self) -> SinkKind {
        self.with_operand(self.operand().transposed())
    }

    /// The same sink with its operand in the one way it is written in a graph.
    #[must_use]
    pub(crate) const fn canonical(self) -> SinkKind {
        self.with_operand(self.operand().canonical())
    }

    /// The word it begins with in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SinkKind::Store(_) => "store",
            SinkKind::Reduce(_) => "reduce",
        }
    }

    /// The words between its name and its operand in text.
    pub fn parameters(self) -> String {
        match self {
            SinkKind::Store(_) => String::new(),
            SinkKind::Reduce(Reduction { monoid, atomic, accumulate, .. }) => {
                let flags = [(atomic, " atomic"), (accumulate, " accumulate")];
                flags.into_iter().filter(|(set, _)| *set).fold(monoid.word().into_owned(), |words, (_, flag)| words + flag)
            }
        }
    }

    /// The words that sinks begin with.
    pub(crate) const WORDS: [&'static str; 2] = ["store", "reduce"];

    /// The inverse of [`name`](SinkKind::name) and [`parameters`](SinkKind::parameters): the sink that `word` begins, from
    /// the words behind its name, and the rest of those.
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
                    return Err(format!("`{word}` stands twice"));
                }
                rest = behind;
            }
            reduce = Some(Reduce { monoid, atomic, accumulate });
        }
        let kind = move |operand| reduce.map_or(SinkKind::Store(operand), |reduce| reduce.to(operand));
        Ok((kind, rest))
    }
}
