//! Why there is no backward epilogue.

use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::Axes;
use crate::ir::name::word;
use std::panic::Location;

/// Why an epilogue has no backward epilogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradError {
    /// A custom primitive lacks a derivative.
    #[error(
        "custom primitive `{primitive}` has no derivative with respect to its operand {operand}{}: add one with `CustomOp::partial({operand}, ..)`",
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
    /// A function that returns its argument, and brings a derivative.
    #[error(
        "function `{function}` brings a derivative, but its value is one of its arguments, which has its own{}: make it a `CustomOp` with \
         `partial`s, which is a value of its own",
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
        "`{}` over {over}, whose result the epilogue uses, has no gradient{}: build it of sums, means and largest elements over one axis, or load its \
         result in a second epilogue",
        word(.monoid),
        used(*.built_at)
    )]
    Reduction {
        /// The monoid.
        monoid: String,
        /// The axes.
        over: Axes,
        /// Where it was built, if a program did.
        built_at: Option<&'static Location<'static>>,
    },
    /// A name that is no argument of the epilogue.
    #[error("the epilogue has no argument `{}` that {what}; it has {}", word(.name), list(.known))]
    Unknown {
        /// The name.
        name: String,
        /// What it should be.
        what: &'static str,
        /// The names that are.
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
    /// A table, whose gradient would be scattered over it.
    #[error(
        "argument `{name}` is a table that is gathered from, and its gradient would add up where indices meet, which no epilogue does: \
         leave it out, and the table is a constant"
    )]
    Table {
        /// The argument.
        name: String,
    },
    /// Nothing was asked for.
    #[error("there is nothing to differentiate with respect to: name an argument, or use `Wrt::all()`")]
    Nothing,
    /// No output has a gradient.
    #[error(
        "no gradient comes in as a matrix, which is the backward epilogue's accumulator: store a floating-point value as f32, f64, f16 or bf16"
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
    /// A format that cannot hold what it was asked to.
    #[error("`{}` cannot be kept as {dtype}: {cure}", word(.name))]
    Format {
        /// What it was asked for.
        name: String,
        /// The format.
        dtype: DType,
        /// What to do.
        cure: &'static str,
    },
    /// A name that the backward epilogue needs is taken.
    #[error(
        "the epilogue has an argument `{name}`, a name that its gradients need: build it with another name, or edit the epilogue's text"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A name that leaves no room for that of its gradient.
    #[error("the gradient of `{name}` is called `{prefix}` and that, which is too long: use a name of at most {most} characters")]
    Long {
        /// The name.
        name: String,
        /// What stands before it.
        prefix: &'static str,
        /// The most characters it may have.
        most: usize,
    },
    /// Everything that could be saved was pinned to be computed again.
    #[error(
        "the backward pass needs values of the accumulator, and every one that could be saved is pinned to be recomputed: remove a pin"
    )]
    Pinned,
    /// A pin names no value of the epilogue.
    #[error("there is no value %{0} to pin")]
    Pin(usize),
    /// A graph that came out breaks a rule: it is too large.
    #[error("the epilogue with its gradients is no epilogue:\n{0}")]
    Graph(#[from] Diagnostics),
}

fn used(built_at: Option<&'static Location<'static>>) -> String {
    built_at.map(|at| format!(" (used at {at})")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
