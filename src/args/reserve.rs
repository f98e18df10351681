//! Reserves: the values that a forward launch saves for the backward one, with a proof of their origin.

use super::{Args, Given, IntoTensor, Tensor};
use crate::dtype::DType;
use crate::problem::Shape;
use std::fmt;
use std::sync::Arc;

/// The prefix of the names of saved values; a number follows.
pub(crate) const PREFIX: &str = "reserve";

/// The pair of epilogues and the problem that a reserve belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveTag {
    /// A fingerprint of the pair's graphs and of the plan of what to save.
    pub fingerprint: u64,
    /// The problem.
    pub shape: Shape,
}

impl ReserveTag {
    /// Whether it was made for a problem with this output. K is irrelevant.
    pub fn fits(&self, shape: Shape) -> bool {
        (self.shape.m, self.shape.n, self.shape.batch) == (shape.m, shape.n, shape.batch)
    }
}

/// Memory for the values that a forward launch saves: one buffer of bytes a value.
/// [`ReservePlan::allocate`](crate::grad::ReservePlan::allocate) makes it, and
/// [`ReservePlan::over`](crate::grad::ReservePlan::over) makes it over buffers of your own.
#[derive(Clone, Debug)]
pub struct Reserve<T> {
    tag: ReserveTag,
    values: Vec<(Arc<str>, DType, T)>,
}

impl<T> Reserve<T> {
    pub(crate) fn new(tag: ReserveTag, values: Vec<(Arc<str>, DType, T)>) -> Reserve<T> {
        Reserve { tag, values }
    }

    /// The pair and the problem it belongs to.
    pub fn tag(&self) -> ReserveTag {
        self.tag
    }

    /// The buffers with their arguments' names.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &T)> {
        self.values.iter().map(|(name, _, buffer)| (&**name, buffer))
    }
}

impl<B> Args<B> {
    /// Adds the reserve that a forward launch writes.
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

    /// Adds the reserve that a forward launch saved, for the backward launch. The launch rejects a reserve of another
    /// pair or for another shape.
    ///
    /// Memory that is passed as an [`input`](Args::input) under the name of one of its values belongs to no pair. Only
    /// its format and extents are checked. Use that for a mask or an auxiliary of another library.
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

/// The name of a saved value: `reserve0@01234567`.
pub(crate) fn name(value: &str, fingerprint: u64) -> Arc<str> {
    format!("{value}@{:08x}", fingerprint as u32).into()
}

/// Whether a name is such a name.
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
