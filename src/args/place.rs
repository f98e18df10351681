//! Places: how the argument of one slot lies in memory, and whether it fits.

use super::bind::{Bound, BoundTensor, needs};
use super::{ArgumentFault, Given, SlotKind, Tensor};
use crate::dtype::{DType, ValueType};
use crate::ir::Constant;
use crate::problem::Shape;

/// How an argument lies in memory.
pub(crate) struct Laid {
    /// Elements from run to run.
    ld: usize,
    /// Elements from batch entry to batch entry.
    batch_stride: usize,
    /// Elements from the first to the last.
    needs: usize,
    /// Whether runs follow each other as closely as they can.
    close: bool,
}

/// How an argument lies that is given these strides.
pub(crate) fn laid_out(
    kind: &SlotKind,
    leading_dimension: Option<usize>,
    batch_stride: Option<usize>,
) -> Result<Laid, ArgumentFault> {
    let (dtype, what, outer, inner, matrix, batch, written) = match kind {
        SlotKind::Memory { dtype, what, outer, inner, matrix, batch, written } => {
            (*dtype, what, *outer, *inner, *matrix, *batch, *written)
        }
        SlotKind::Scalar(_) => return without_strides("a scalar", leading_dimension.or(batch_stride)),
        SlotKind::Table(_) => {
            return match batch_stride.filter(|stride| *stride != 0) {
                Some(got) => Err(ArgumentFault::BatchStride { why: "every batch entry reads the same table; remove it", got }),
                None => without_strides("a table", leading_dimension),
            };
        }
    };
    let begins = |what, elements: usize| match elements % dtype.run() {
        0 => Ok(elements),
        _ => Err(ArgumentFault::Multiple { what, dtype, got: elements }),
    };
    let too_large = || ArgumentFault::TooLarge { limit: "the operand's last element lies beyond 2^63 bytes" };
    let least = inner.max(1).checked_next_multiple_of(dtype.run()).ok_or_else(too_large)?;
    let ld = match leading_dimension {
        Some(got) if !matrix => return Err(ArgumentFault::LeadingDimension { what: what.clone(), least: 0, got }),
        // Of lines without elements, or of none, any distance will do.
        Some(got) if got < least && inner > 0 && outer > 0 => {
            return Err(ArgumentFault::LeadingDimension { what: what.clone(), least, got });
        }
        Some(got) => begins("leading dimension", got)?,
        None => least,
    };
    // Elements from the first to the last of one batch entry.
    let span = if outer == 0 || inner == 0 { Some(0) } else { (outer - 1).checked_mul(ld).and_then(|x| x.checked_add(inner)) };
    let span = span.ok_or_else(too_large)?;
    let batch_stride = match (batch, batch_stride) {
        (None, None | Some(0)) => 0,
        (None, Some(got)) => {
            return Err(ArgumentFault::BatchStride { why: "the batch shares this operand; declare it `batched()`", got });
        }
        (Some(_), Some(got)) => begins("batch stride", got)?,
        (Some(_), None) => outer.checked_mul(ld).ok_or_else(too_large)?,
    };
    let entries = batch.unwrap_or(1);
    // Entries of an output must not overlap: one after the other, or interleaved inside the leading dimension.
    let apart = batch_stride >= span || (batch_stride >= inner && entries.checked_mul(batch_stride).is_some_and(|x| x <= ld));
    if written && entries > 1 && !apart {
        return Err(ArgumentFault::BatchStride { why: "batch entries of an output would overlap", got: batch_stride });
    }
    let needs = if span == 0 || entries == 0 {
        Some(0)
    } else {
        (entries - 1).checked_mul(batch_stride).and_then(|x| x.checked_add(span))
    };
    let needs = needs.filter(|n| n.checked_mul(dtype.size()).is_some_and(|b| i64::try_from(b).is_ok())).ok_or_else(too_large)?;
    Ok(Laid { ld, batch_stride, needs, close: ld == least })
}

/// How something lies that has no strides.
fn without_strides(what: &str, given: Option<usize>) -> Result<Laid, ArgumentFault> {
    match given {
        Some(got) => Err(ArgumentFault::LeadingDimension { what: what.into(), least: 0, got }),
        None => Ok(Laid { ld: 0, batch_stride: 0, needs: 0, close: true }),
    }
}

/// Fits a table: all of the memory that was given, whose length is the table's.
fn table<B>(kind: &SlotKind, dtype: DType, index: usize, tensor: &Tensor<B>) -> Result<Bound, ArgumentFault> {
    if tensor.dtype != dtype {
        return Err(ArgumentFault::DType { needs: dtype, got: tensor.dtype });
    }
    laid_out(kind, tensor.leading_dimension, tensor.batch_stride)?;
    let (strided, batch_stride, elements) = (false, 0, tensor.len);
    Ok(Bound::Tensor(BoundTensor { given: index, dtype, strided, leading_dimension: elements, batch_stride, elements }))
}

/// Fits a number. An `f64` stands for the nearest `f32`, if there is one that is not infinite.
fn scalar(needs: ValueType, value: Constant) -> Result<Constant, ArgumentFault> {
    let nearest = Constant::of(needs, value.value());
    match (needs, value.value_type()) {
        (needs, got) if needs == got => Ok(value),
        (ValueType::F32, ValueType::F64) if nearest.value().is_finite() == value.value().is_finite() => Ok(nearest),
        (needs, got) => Err(ArgumentFault::ScalarType { needs, got }),
    }
}

/// Fits the given argument of this index to a slot.
pub(super) fn fit<B>(kind: &SlotKind, index: usize, shape: Shape, given: &Given<B>) -> Result<Bound, ArgumentFault> {
    let (dtype, what, outer, inner, matrix, batch, written, tensor, writable) = match (kind, given) {
        (SlotKind::Scalar(needs), Given::Scalar(value)) => {
            return scalar(*needs, *value).map(Bound::Scalar);
        }
        (SlotKind::Memory { dtype, what, outer, inner, matrix, batch, written }, Given::Tensor { tensor, writable }) => {
            (*dtype, what, *outer, *inner, *matrix, *batch, *written, tensor, *writable)
        }
        (SlotKind::Table(dtype), Given::Tensor { tensor, .. }) => return table(kind, *dtype, index, tensor),
        (kind, Given::Scalar(_)) => return Err(ArgumentFault::Kind { needs: needs(kind), got: "a scalar by value".into() }),
        (kind, Given::Tensor { .. }) => return Err(ArgumentFault::Kind { needs: needs(kind), got: "memory".into() }),
    };
    if let Some(reserve) = tensor.reserve.filter(|reserve| !reserve.fits(shape)) {
        return Err(ArgumentFault::ReserveShape { reserve, shape });
    }
    // Bit masks are passed as the bytes they lie in.
    let len = match tensor.dtype {
        given if given == dtype => tensor.len,
        DType::Bool if dtype.is_packed() => dtype.elements(tensor.len),
        got => return Err(ArgumentFault::DType { needs: dtype, got }),
    };
    if written && !writable {
        return Err(tensor.reserve.map_or(ArgumentFault::ReadOnly, |reserve| ArgumentFault::Saved { reserve }));
    }
    if written && !tensor.mutable {
        return Err(ArgumentFault::Shared);
    }
    let Laid { ld, batch_stride, needs, close } = laid_out(kind, tensor.leading_dimension, tensor.batch_stride)?;
    let entries = batch.unwrap_or(1);
    // A mask of a byte for each element would be read as bits of its first few rows. Not where `Bits128` is meant: Paddle's reserves are
    // of that size, with bits in their first eighth. Nor where lines are said to lie apart, or a word would hold all of its bits: there
    // the size is that of padding as well.
    let elements = outer.checked_mul(inner).and_then(|x| x.checked_mul(entries));
    let unpacked = dtype == DType::Bits8 && tensor.dtype == DType::Bool && Some(tensor.len) == elements;
    if unpacked && close && tensor.len > dtype.bytes(needs).next_multiple_of(8) {
        return Err(ArgumentFault::Unpacked { dtype, needs: dtype.bytes(needs), got: tensor.len });
    }
    if len < needs {
        let (leading_dimension, batch_stride) = (matrix.then_some(ld), (entries > 1).then_some(batch_stride));
        return Err(ArgumentFault::TooShort { what: what.clone(), needs, got: len, leading_dimension, batch_stride });
    }
    // Longer memory is fine, but of exactly this length it is what a vector would be that each entry has for itself.
    let (asked, entries) = (tensor.leading_dimension.or(tensor.batch_stride), shape.batch);
    let all = needs.checked_mul(entries).filter(|all| !matrix && batch.is_none() && asked.is_none() && *all > needs);
    if all == Some(len) {
        return Err(ArgumentFault::Unbatched { what: what.clone(), needs, got: len, batch: entries });
    }
    let strided = matrix && outer > 1;
    Ok(Bound::Tensor(BoundTensor { given: index, dtype, strided, leading_dimension: ld, batch_stride, elements: needs }))
}
