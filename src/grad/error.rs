//! Reasons why there is no backward epilogue.

use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::Over;
use crate::ir::name::word;
use std::panic::Location;

/// Why an epilogue cannot be differentiated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradError {
    /// A custom primitive lacks a derivative.
    #[error(
        "custom primitive `{primitive}` has no derivative with respect to its operand {operand}{}: add one with \
         `CustomOp::partial({operand}, ..)`",
        used(*.built_at)
    )]
    Custom {
        /// The primitive.
        primitive: String,
        /// The operand.
        operand: usize,
        /// Where it was used, if a program did.
        built_at: Option<&'static Location<'static>>,
    },
    /// A function with a derivative of its own that returns its argument.
    #[error(
        "function `{function}` has a derivative of its own, but its value is one of its arguments, which has another{}: make \
         it a `CustomOp` with `partial`s, whose value is distinct",
        used(*.built_at)
    )]
    Argument {
        /// The function.
        function: &'static str,
        /// Where it was used, if a program did.
        built_at: Option<&'static Location<'static>>,
    },
    /// A reduction inside the graph whose operand gets no gradient from its result.
    #[error(
        "`{}` over {over}, whose result the epilogue uses, has no gradient{}: build it from sums, means and largest elements \
         over one axis, or load its result in a second epilogue",
        word(.monoid),
        used(*.built_at)
    )]
    Reduction {
        /// The monoid.
        monoid: String,
        /// The axes.
        over: Over,
        /// Where it was built, if a program did.
        built_at: Option<&'static Location<'static>>,
    },
    /// A name that is not an argument of the epilogue.
    #[error("the epilogue has no argument `{}` that {what}; it has {}", word(.name), list(.known))]
    Unknown {
        /// The name.
        name: String,
        /// The property that it lacks.
        what: &'static str,
        /// The names with that property.
        known: Vec<String>,
    },
    /// An argument without a gradient.
    #[error("argument `{name}` holds {dtype} values, which have no gradient: leave it out")]
    Discrete {
        /// The argument.
        name: String,
        /// Its format.
        dtype: DType,
    },
    /// A table, whose gradient would have to be scattered.
    #[error(
        "argument `{name}` is a table for `gather`, and its gradient would add up where indices are equal, which no epilogue \
         does: leave it out, and the table is a constant"
    )]
    Table {
        /// The argument.
        name: String,
    },
    /// No argument was named.
    #[error("there is nothing to differentiate with respect to: name an argument, or use `Wrt::all()`")]
    Nothing,
    /// No output has a gradient.
    #[error(
        "no gradient comes in as a matrix, which is the backward epilogue's accumulator: store a floating-point value as f32, \
         f64, f16 or bf16"
    )]
    NoOutput,
    /// An output through which no gradient can come in.
    #[error("a gradient cannot come in through `{}`: {why}", word(.name))]
    Output {
        /// The output.
        name: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// A format that cannot hold the value.
    #[error("`{}` cannot be kept as {dtype}: {cure}", word(.name))]
    Format {
        /// The value.
        name: String,
        /// The format.
        dtype: DType,
        /// The cure.
        cure: &'static str,
    },
    /// A name that the backward epilogue needs is already used.
    #[error(
        "the epilogue has an argument `{name}`, a name that its gradients need: build it with another name, or edit the \
         epilogue's text"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A name that is too long for the prefix of its gradient.
    #[error(
        "the name of the gradient of `{name}` begins with `{prefix}`, which makes it too long: use a name of at most {most} \
         characters"
    )]
    Long {
        /// The name.
        name: String,
        /// The prefix.
        prefix: &'static str,
        /// The most characters it may have.
        most: usize,
    },
    /// Every value that could be saved was pinned to be recomputed.
    #[error(
        "the backward pass needs values of the accumulator, and every one that could be saved is pinned to be recomputed: \
         remove a pin"
    )]
    Pinned,
    /// A pin names no value of the epilogue.
    #[error("there is no value %{0} to pin")]
    Pin(usize),
    /// The resulting graph breaks a rule: it is too large.
    #[error("the epilogue with its gradients breaks a rule:\n{0}")]
    Graph(#[from] Diagnostics),
}

fn used(built_at: Option<&'static Location<'static>>) -> String {
    built_at.map(|at| format!(" (used at {at})")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
