//! Builds the monoids that a program defines, from expressions.

use super::expr::{Builder, Expr};
use crate::check::{self, Diagnostics};
use crate::dtype::{DType, ValueType};
use crate::ir::custom_monoid::Body;
use crate::ir::function::expand;
use crate::ir::graph::Constant;
use crate::ir::name::{is_identifier, word};
use crate::ir::{CustomMonoid, Graph, Monoid, Node, NodeId};

/// Why the definition of a monoid is rejected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonoidError {
    /// The name is not an identifier.
    #[error("monoid `{}`: a name is a letter followed by at most 62 letters, digits or underscores", word(.0))]
    Name(String),
    /// An element has too few or too many values, or a state too few or too many words.
    #[error("monoid `{name}`: {count} {what}; between 1 and {most} are supported")]
    Count {
        /// The monoid.
        name: String,
        /// The kind of number: values or words.
        what: &'static str,
        /// The number given.
        count: usize,
        /// The largest number supported.
        most: usize,
    },
    /// A word of the state has another type than the expression that computes it.
    #[error("monoid `{name}`: `{part}` returns {is} as word {index}, where the state has {wanted}")]
    Word {
        /// The monoid.
        name: String,
        /// The closure.
        part: &'static str,
        /// Which word.
        index: usize,
        /// The expression's type.
        is: ValueType,
        /// The state's.
        wanted: ValueType,
    },
    /// A word of the state is a condition.
    #[error("monoid `{name}`: word {index} of the state is a bool; keep 0 or 1 as an i32, and compare with `.ne(0)`")]
    Condition {
        /// The monoid.
        name: String,
        /// Which word.
        index: usize,
    },
    /// A value is an `f64`. Monoids of a program's own do not support `f64`.
    #[error(
        "monoid `{name}`: {what} is an f64, and states are made of words of 4 bytes; insert `.cast(F32)`, or reduce \
         with one of `Monoid::ALL`"
    )]
    Double {
        /// The monoid.
        name: String,
        /// The value that is an `f64`, described in words.
        what: String,
    },
    /// An expression uses a node that a monoid cannot reach.
    #[error("monoid `{name}`: `{part}` uses `{what}`{}; it may use only its parameters and constants: pass it as a \
        value of the element",
        built_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default())]
    Uses {
        /// The monoid.
        name: String,
        /// The closure.
        part: &'static str,
        /// The node it uses.
        what: String,
        /// The source location.
        built_at: Option<String>,
    },
    /// An expression has type errors.
    #[error("monoid `{name}`: in `{part}`\n{faults}")]
    Types {
        /// The monoid.
        name: String,
        /// The closure.
        part: &'static str,
        /// All errors.
        faults: Diagnostics,
    },
    /// The definition is not a monoid. Kernels choose the order in which they combine elements.
    #[error("`{name}` is not a monoid: {law}; for instance {states:?}")]
    Law {
        /// The name.
        name: String,
        /// The law that is broken.
        law: &'static str,
        /// States that violate it.
        states: Vec<Vec<f64>>,
    },
}

impl CustomMonoid {
    /// Defines a monoid: `identity` is the state of no elements, `lift` maps an element to a state, `combine` merges two
    /// states, and `result` maps the last state to the number that is stored.
    ///
    /// `takes` lists the types of the values in an element: `[F32]` for one value, `[F32, I32]` for two. A state has up
    /// to eight words, each `f32` or `i32`. The closures receive the builder in order to make constants. The CPU
    /// evaluates the same expressions in `f64`.
    ///
    /// A kernel chooses the order in which it combines elements, and keeps it from launch to launch. So `combine` has
    /// to be associative and commutative up to rounding, and combining with `identity` must change nothing. `build`
    /// tries these laws on a few elements. Equal definitions are one monoid, which lives until the program ends.
    ///
    /// ```
    /// use postlude::prelude::*;
    /// use postlude::CustomMonoid;
    ///
    /// let variance = CustomMonoid::build(
    ///     "variance",
    ///     [F32],
    ///     [0.0, 0.0, 0.0], // count, mean, sum of squared distances from the mean
    ///     |e, [x]| [e.constant(1.0), x, e.constant(0.0)],
    ///     |_, [n, mean, square], [k, other, more]| {
    ///         let (count, delta) = (n + k, other - mean);
    ///         let share = k / count.max(1.0);
    ///         [count, mean + delta * share, square + more + delta * delta * n * share]
    ///     },
    ///     |_, [n, _, square]| square / n,
    /// )?;
    /// let epilogue = Epilogue::build(|e| e.reduce("variance", e.acc(), variance, F32.over(M)))?;
    /// # assert!(epilogue.to_string().contains("variance#"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a part of the definition is ill-typed, or a law does not hold.
    pub fn build<const A: usize, const W: usize>(
        name: &str,
        takes: [DType; A],
        identity: [impl Into<Constant>; W],
        lift: impl for<'g> FnOnce(&'g Builder, [Expr<'g>; A]) -> [Expr<'g>; W],
        combine: impl for<'g> FnOnce(&'g Builder, [Expr<'g>; W], [Expr<'g>; W]) -> [Expr<'g>; W],
        result: impl for<'g> FnOnce(&'g Builder, [Expr<'g>; W]) -> Expr<'g>,
    ) -> Result<Monoid, MonoidError> {
        if !is_identifier(name) {
            return Err(MonoidError::Name(name.into()));
        }
        for (what, count, most) in
            [("values of an element", A, CustomMonoid::MOST_VALUES), ("words of a state", W, CustomMonoid::MOST_WORDS)]
        {
            if count == 0 || count > most {
                return Err(MonoidError::Count { name: name.into(), what, count, most });
            }
        }
        let (takes, identity) = (takes.map(DType::value_type), identity.map(|word| word.into().meant_as(ValueType::F32)));
        let state = identity.map(Constant::value_type);
        if let Some(index) = state.iter().position(|word| *word == ValueType::Bool) {
            return Err(MonoidError::Condition { name: name.into(), index });
        }
        if let Some(index) = takes.iter().position(|value| *value == ValueType::F64) {
            return Err(MonoidError::Double { name: name.into(), what: format!("value {index} of an element") });
        }
        let lift = body(name, "lift", &takes, Some(&state), |e, x| lift(e, array(x)).map(|word| word.id).to_vec())?;
        let both = [state, state].concat();
        let combine = body(name, "combine", &both, Some(&state), |e, x| {
            combine(e, array(&x[..W]), array(&x[W..])).map(|word| word.id).to_vec()
        })?;
        let result = body(name, "result", &state, None, |e, x| vec![result(e, array(x)).id])?;
        let monoid = CustomMonoid::interned(name, takes.to_vec(), identity.to_vec(), [lift, combine, result]);
        match monoid.broken_law(&samples(&takes)) {
            Some((law, states)) => Err(MonoidError::Law { name: name.into(), law, states }),
            None => Ok(Monoid::Custom(monoid)),
        }
    }
}

/// As many expressions as the array has.
fn array<'g, const N: usize>(from: &[Expr<'g>]) -> [Expr<'g>; N] {
    std::array::from_fn(|i| from[i])
}

/// Builds a closure over parameters of these types, and checks that it returns the types of a state.
fn body(
    name: &str,
    part: &'static str,
    parameters: &[ValueType],
    state: Option<&[ValueType]>,
    build: impl FnOnce(&Builder, &[Expr<'_>]) -> Vec<NodeId>,
) -> Result<Body, MonoidError> {
    let parameter = |(i, &value_type)| Node::scalar(format!("{part} {i}"), value_type);
    let parameters: Vec<Node> = parameters.iter().enumerate().map(parameter).collect();
    let mut results = Vec::new();
    let (graph, foreign) = Builder::build(|e| {
        let given: Vec<Expr<'_>> = parameters.iter().map(|node| e.push(node.clone(), None)).collect();
        results = build(e, &given);
    });
    let uses = |what: &str, built_at: Option<String>| MonoidError::Uses { name: name.into(), part, what: what.into(), built_at };
    if let Some(at) = foreign.first() {
        return Err(uses("an expression of another builder", Some(at.to_string())));
    }
    // A closure may return another builder's value without using it in an operation.
    if results.iter().any(|id| id.index() >= graph.len()) {
        return Err(uses("an expression of another builder", None));
    }
    for (id, node) in graph.nodes().skip(parameters.len()) {
        if !matches!(node, Node::Constant(_) | Node::Apply { .. } | Node::Call { .. }) {
            return Err(uses(node.mnemonic(), graph.built_at(id).map(ToString::to_string)));
        }
    }
    let types = check::value_types(&graph).map_err(|faults| MonoidError::Types { name: name.into(), part, faults })?;
    if types.contains(&ValueType::F64) {
        return Err(MonoidError::Double { name: name.into(), what: format!("a value of `{part}`") });
    }
    for (index, id) in results.iter().enumerate() {
        let is = types[id.index()];
        if let Some(&wanted) = state.and_then(|state| state.get(index)).filter(|wanted| **wanted != is) {
            return Err(MonoidError::Word { name: name.into(), part, index, is, wanted });
        }
    }
    let (mut whole, mut ids) = (Graph::new(), Vec::new());
    for (id, node) in graph.nodes() {
        ids.push(expand(&mut whole, node.map_args(|a: NodeId| ids[a.index()]), graph.built_at(id), &mut |_, _, _| {}));
    }
    Ok(Body::new(whole, parameters.len(), results.iter().map(|id| ids[id.index()]).collect()))
}

/// A few elements on which the laws are tried.
fn samples(takes: &[ValueType]) -> Vec<Vec<f64>> {
    let of = |value: ValueType, i: usize| match value {
        ValueType::F32 | ValueType::F64 => [-2.5, 0.0, 0.25, 3.0, 1000.0][i % 5],
        ValueType::I32 => [-7.0, 0.0, 1.0, 9.0, 4096.0][i % 5],
        ValueType::Bool => [0.0, 1.0][i % 2],
    };
    (0..5).map(|i| takes.iter().enumerate().map(|(place, value)| of(*value, i + 2 * place)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{Bool, F32, I32};

    fn sum_of(
        name: &str,
        identity: f32,
        combine: impl for<'g> FnOnce(&'g Builder, [Expr<'g>; 1], [Expr<'g>; 1]) -> [Expr<'g>; 1],
    ) -> Result<Monoid, MonoidError> {
        CustomMonoid::build(name, [F32], [identity], |_, [x]| [x], combine, |_, [s]| s)
    }

    #[test]
    fn equal_definitions_are_one() {
        let build = |name, scale: f32| {
            CustomMonoid::build(name, [F32], [0.0], |_, [x]| [x], |_, [a], [b]| [a + b], |_, [s]| s * scale).unwrap()
        };
        assert_eq!(build("a", 2.0), build("a", 2.0));
        assert_ne!(build("a", 2.0), build("a", 3.0));
        assert_ne!(build("a", 2.0), build("b", 2.0));
        let (one, again) = (build("a", 2.0).custom().unwrap(), build("a", 2.0).custom().unwrap());
        assert!(std::ptr::eq(one, again));
    }

    #[test]
    fn what_is_not_a_monoid_is_refused() {
        let says = |result: Result<Monoid, MonoidError>, words: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        };
        says(sum_of("minus", 0.0, |_, [a], [b]| [a - b]), "combined with the identity changes");
        says(sum_of("one", 1.0, |_, [a], [b]| [a + b]), "combined with the identity changes");
        says(sum_of("root", 0.0, |_, [a], [b]| [a + b + a.sqrt() * 0.0]), "combined with the identity changes");
        says(sum_of("first", 0.0, |_, [a], [b]| [a.eq(0.0).select(b, a)]), "depends on their order");
        says(
            sum_of("apart", 0.0, |_, [a], [b]| [(a * a + b * b + a * b * 3.0).abs().sqrt()]),
            "combined with the identity changes",
        );
        says(sum_of("grouped", 0.0, |_, [a], [b]| [a + b + a * b * (a - b).abs()]), "depends on their grouping");
        says(sum_of("9", 0.0, |_, [a], [b]| [a + b]), "a name is a letter");
        says(sum_of("row", 0.0, |e, [a], [b]| [a + b + e.row().cast(F32)]), "`combine` uses `row`");
        says(sum_of("load", 0.0, |e, [a], [b]| [a + b + e.load("x", F32.pointer())]), "`combine` uses `load`");
        says(sum_of("mixed", 0.0, |e, [a], [b]| [a + b + e.constant(1)]), "in `combine`");
        says(sum_of("whole", 0.0, |_, [a], [b]| [(a + b).cast(I32)]), "`combine` returns i32 as word 0");
        let any = CustomMonoid::build("any", [Bool], [false], |_, [x]| [x], |_, [a], [b]| [a | b], |_, [s]| s);
        says(any, "keep 0 or 1");
        let none = CustomMonoid::build("none", [F32], [0.0; 0], |_, _| [], |_, _, _| [], |e, _| e.constant(0.0));
        says(none, "0 words of a state");
    }
}
