//! Reserves: what a forward launch saves for the backward one, and the proof that it did.

use super::{Args, Given, IntoTensor, Tensor};
use crate::dtype::DType;
use crate::problem::Shape;
use std::fmt;
use std::sync::Arc;

/// What names of saved values begin with; their number follows.
pub(crate) const PREFIX: &str = "reserve";

/// Which pair of epilogues a reserve belongs to, and which problem it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveTag {
    /// Of the pair's graphs and the plan of what to save.
    pub fingerprint: u64,
    /// The problem.
    pub shape: Shape,
}

impl ReserveTag {
    /// Whether it was made for a problem of this output: K does not count.
    pub fn fits(&self, shape: Shape) -> bool {
        (self.shape.m, self.shape.n, self.shape.batch) == (shape.m, shape.n, shape.batch)
    }
}

/// Memory for what a forward launch saves: one buffer of bytes a value, made by
/// [`ReservePlan::allocate`](crate::grad::ReservePlan::allocate), or over buffers of your own by
/// [`ReservePlan::over`](crate::grad::ReservePlan::over).
#[derive(Clone, Debug)]
pub struct Reserve<T> {
    tag: ReserveTag,
    values: Vec<(Arc<str>, DType, T)>,
}

impl<T> Reserve<T> {
    pub(crate) fn new(tag: ReserveTag, values: Vec<(Arc<str>, DType, T)>) -> Reserve<T> {
        Reserve { tag, values }
    }

    /// Which pair and problem it is for.
    pub fn tag(&self) -> ReserveTag {
        self.tag
    }

    /// The buffers with their arguments' names.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &T)> {
        self.values.iter().map(|(name, _, buffer)| (&**name, buffer))
    }
}

impl<B> Args<B> {
    /// What a forward launch saves.
    #[must_use]
    pub fn saving<'r, T>(mut self, reserve: &'r mut Reserve<T>) -> Args<B>
    where
        &'r mut T: IntoTensor<B>,
    {
        let tag = reserve.tag;
        for (name, dtype, buffer) in &mut reserve.values {
            let tensor = of_bytes(buffer.into_tensor(), *dtype, tag);
            self.given.push((name.to_string(), Given::Tensor { tensor, writable: true }));
        }
        self
    }

    /// What a forward launch saved, for the backward one. The launch refuses a reserve of another pair or for another shape.
    ///
    /// Memory that is passed as an [`input`](Args::input) under the name of one of its values belongs to no pair, and its format
    /// and extents are all that is checked: for a mask or an auxiliary that another library has left.
    #[must_use]
    pub fn saved<'r, T>(mut self, reserve: &'r Reserve<T>) -> Args<B>
    where
        &'r T: IntoTensor<B>,
    {
        for (name, dtype, buffer) in &reserve.values {
            let tensor = of_bytes(buffer.into_tensor(), *dtype, reserve.tag);
            self.given.push((name.to_string(), Given::Tensor { tensor, writable: false }));
        }
        self
    }
}

/// The name of a saved value of a pair without others: `reserve0@01234567`.
pub(crate) fn name(value: &str, fingerprint: u64) -> Arc<str> {
    format!("{value}@{:08x}", fingerprint as u32).into()
}

/// Whether a name is one of those.
pub(super) fn has_name(name: &str) -> bool {
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('@'));
    parts.is_some_and(|(index, fingerprint)| digits(index, 10) && fingerprint.len() == 8 && digits(fingerprint, 16))
}

/// The bytes of a tensor as elements of a format.
fn of_bytes<B>(tensor: Tensor<B>, dtype: DType, tag: ReserveTag) -> Tensor<B> {
    let bytes = tensor.dtype.bytes(tensor.len);
    Tensor { dtype, len: dtype.elements(bytes), reserve: Some(tag), ..tensor }
}

impl fmt::Display for ReserveTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reserve @{:08x} of {} x {}", self.fingerprint as u32, self.shape.m, self.shape.n)?;
        if self.shape.batch == 1 { Ok(()) } else { write!(f, " x {} batches", self.shape.batch) }
    }
}
