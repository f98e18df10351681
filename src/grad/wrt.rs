//! The request of a backward pass: what to differentiate with respect to, and what the forward pass may keep for it.

use crate::dtype::DType;
use crate::ir::NodeId;
use std::collections::BTreeMap;

/// The gradients that a backward epilogue computes, and the values that it may take from the forward pass.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::grad::Wrt;
/// let epilogue = postlude::build::recipes::bias_activation(F16, F16, |z| z.relu())?;
/// // Gradients of the accumulator and the bias. The caller keeps `d`, from which ReLU's mask follows.
/// let pair = epilogue.backward(Wrt::all().keeps("d"))?;
/// assert_eq!(pair.reserve().bits_per_element(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Wrt {
    /// Arguments that were named.
    pub(super) names: Vec<String>,
    /// Whether every floating-point argument is included, too.
    pub(super) all: bool,
    pub(super) accumulator: bool,
    pub(super) through: Option<String>,
    pub(super) detached: Vec<String>,
    pub(super) kept: Vec<String>,
    pub(super) exact: bool,
    pub(super) masks: DType,
    pub(super) pins: BTreeMap<NodeId, Keep>,
    pub(super) formats: BTreeMap<String, DType>,
}

/// How one value that the backward pass needs is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is saved in this format, if any value behind it is needed.
    As(DType),
    /// It is never saved, but recomputed from saved values.
    Recompute,
}

impl Wrt {
    fn new(names: Vec<String>, all: bool, accumulator: bool) -> Wrt {
        Wrt {
            names,
            all,
            accumulator,
            through: None,
            detached: Vec::new(),
            kept: Vec::new(),
            exact: false,
            masks: DType::Bits8,
            pins: BTreeMap::new(),
            formats: BTreeMap::new(),
        }
    }

    /// The accumulator and every floating-point argument: matrices, vectors, scalars. Tables for `gather` are
    /// constants.
    pub fn all() -> Wrt {
        Wrt::new(Vec::new(), true, true)
    }

    /// Only the accumulator: what the backward products need.
    pub fn accumulator() -> Wrt {
        Wrt::new(Vec::new(), false, true)
    }

    /// These arguments, and not the accumulator.
    pub fn arguments<'n>(names: impl IntoIterator<Item = &'n str>) -> Wrt {
        Wrt::new(names.into_iter().map(str::to_owned).collect(), false, false)
    }

    /// Adds this argument.
    #[must_use]
    pub fn and(mut self, name: &str) -> Wrt {
        self.names.push(name.into());
        self
    }

    /// The output whose incoming gradient is the accumulator of the backward epilogue. Default: `d`, or else the first
    /// output that has a gradient. Incoming gradients of the others are loaded as `upstream_NAME`.
    #[must_use]
    pub fn through(mut self, output: &str) -> Wrt {
        self.through = Some(output.into());
        self
    }

    /// No gradient comes in through this output: a statistic, a copy for another purpose.
    #[must_use]
    pub fn detached(mut self, output: &str) -> Wrt {
        self.detached.push(output.into());
        self
    }

    /// States that the caller keeps this output until the backward pass, which may therefore load it at no cost.
    #[must_use]
    pub fn keeps(mut self, output: &str) -> Wrt {
        self.kept.push(output.into());
        self
    }

    /// Saves values as `f32`. Otherwise they are rounded to the format of the output.
    #[must_use]
    pub fn exact(mut self) -> Wrt {
        self.exact = true;
        self
    }

    /// The format of saved conditions: [`Bits8`](DType::Bits8), which is the default, [`Bits128`](DType::Bits128) as
    /// cuBLASLt reads it, or [`Bool`](DType::Bool).
    #[must_use]
    pub fn masks(mut self, format: DType) -> Wrt {
        self.masks = format;
        self
    }

    /// Decides about one value by its number in the listing ([`Expr::id`](crate::Expr::id) while it is built).
    #[must_use]
    pub fn pin(mut self, value: NodeId, keep: Keep) -> Wrt {
        self.pins.insert(value, keep);
        self
    }

    /// The format of one gradient: that of an argument by its name, or that of the accumulator by `acc`. By default a
    /// gradient has the format of its argument, and the accumulator's gradient that of the output.
    #[must_use]
    pub fn format(mut self, name: &str, dtype: DType) -> Wrt {
        self.formats.insert(name.into(), dtype);
        self
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        self.all || self.names.iter().any(|n| n == name)
    }
}
