//! Places: the memory layout of a slot's argument, and whether it fits.

use super::bind::{Bound, BoundTensor, needs};
use super::{ArgumentFault, Given, SlotKind, Tensor};
use crate::dtype::{DType, ValueType};
use crate::ir::Constant;
use crate::problem::Shape;

/// The memory layout of an argument.
pub(crate) struct Laid {
    /// Elements from run to run.
    ld: usize,
    /// Elements from batch entry to batch entry.
    batch_stride: usize,
    /// Elements from the first to the last.
    needs: usize,
    /// Whether runs follow each other without gaps.
    close: bool,
}

/// The layout of an argument with given strides.
pub(crate) fn laid_out(
    kind: &SlotKind,
    leading_dimension: Option<usize>,
    batch_stride: Option<usize>,
) -> Result<Laid, ArgumentFault> {
    let (dtype, what, outer, inner, matrix, batch, written) = match kind {
        SlotKind::Memory { dtype, what, outer, inner, matrix, batch, written, order: _ } => {
            (*dtype, what, *outer, *inner, *matrix, *batch, *written)
        }
        SlotKind::Scalar(_) => return without_strides("a scalar", leading_dimension.or(batch_stride)),
        SlotKind::Table { .. } => {
            return match batch_stride.filter(|stride| *stride != 0) {
                Some(got) => Err(ArgumentFault::BatchStride { why: "all batch entries share one table; remove it", got }),
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
        // Without elements, or with one line, any distance is valid.
        Some(got) if got < least && inner > 0 && outer > 0 => {
            return Err(ArgumentFault::LeadingDimension { what: what.clone(), least, got });
        }
        Some(got) => begins("leading dimension", got)?,
        None => least,
    };
    // Elements from the first to the last, in one batch entry.
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
    // Entries of an output must not overlap: they follow each other, or are interleaved inside the leading dimension.
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

/// The layout of an argument without strides.
fn without_strides(what: &str, given: Option<usize>) -> Result<Laid, ArgumentFault> {
    match given {
        Some(got) => Err(ArgumentFault::LeadingDimension { what: what.into(), least: 0, got }),
        None => Ok(Laid { ld: 0, batch_stride: 0, needs: 0, close: true }),
    }
}

/// Fits a table: the whole memory is the table, and determines its length.
fn table<B>(kind: &SlotKind, dtype: DType, index: usize, tensor: &Tensor<B>) -> Result<Bound, ArgumentFault> {
    if tensor.dtype != dtype {
        return Err(ArgumentFault::DType { needs: dtype, got: tensor.dtype });
    }
    let (ld, batch_stride) = tensor.strides(kind)?;
    laid_out(kind, ld, batch_stride)?;
    let (strided, batch_stride, elements) = (false, 0, tensor.len);
    Ok(Bound::Tensor(BoundTensor { given: index, dtype, strided, leading_dimension: elements, batch_stride, elements }))
}

impl<B> Tensor<B> {
    /// Leading dimension and batch stride for a slot: what was set, or else what follows from the stated layout.
    pub(crate) fn strides(&self, kind: &SlotKind) -> Result<(Option<usize>, Option<usize>), ArgumentFault> {
        let (ld, batch_stride) = self.layout.map_or(Ok((None, None)), |layout| layout.place(kind, self.dtype))?;
        Ok((self.leading_dimension.or(ld), self.batch_stride.or(batch_stride)))
    }
}

/// Fits a number. An `f64` converts to the nearest `f32`, if that is finite.
fn scalar(needs: ValueType, value: Constant) -> Result<Constant, ArgumentFault> {
    let nearest = Constant::of(needs, value.value());
    match (needs, value.value_type()) {
        (needs, got) if needs == got => Ok(value),
        (ValueType::F32, ValueType::F64) if nearest.value().is_finite() == value.value().is_finite() => Ok(nearest),
        (needs, got) => Err(ArgumentFault::ScalarType { needs, got }),
    }
}

/// Whether a tensor that was passed as an output, or not, may be written.
fn can_write<B>(tensor: &Tensor<B>, writable: bool) -> Result<(), ArgumentFault> {
    match (writable, tensor.mutable) {
        (false, _) => Err(tensor.reserve.map_or(ArgumentFault::ReadOnly, |reserve| ArgumentFault::Saved { reserve })),
        (true, false) => Err(ArgumentFault::Shared),
        (true, true) => Ok(()),
    }
}

/// Fits the given argument of this index to a slot.
pub(super) fn fit<B>(kind: &SlotKind, index: usize, shape: Shape, given: &Given<B>) -> Result<Bound, ArgumentFault> {
    let (dtype, what, outer, inner, matrix, batch, written, tensor, writable) = match (kind, given) {
        (SlotKind::Scalar(needs), Given::Scalar(value)) => {
            return scalar(*needs, *value).map(Bound::Scalar);
        }
        (
            SlotKind::Memory { dtype, what, outer, inner, matrix, batch, written, order: _ },
            Given::Tensor { tensor, writable },
        ) => (*dtype, what, *outer, *inner, *matrix, *batch, *written, tensor, *writable),
        (SlotKind::Table { dtype, written }, Given::Tensor { tensor, writable }) => {
            return if *written { can_write(tensor, *writable) } else { Ok(()) }
                .and_then(|()| table(kind, *dtype, index, tensor));
        }
        (kind, Given::Scalar(_)) => return Err(ArgumentFault::Kind { needs: needs(kind), got: "a scalar by value".into() }),
        (kind, Given::Tensor { .. }) => return Err(ArgumentFault::Kind { needs: needs(kind), got: "memory".into() }),
    };
    if let Some(reserve) = tensor.reserve.filter(|reserve| !reserve.fits(shape)) {
        return Err(ArgumentFault::ReserveShape { reserve, shape });
    }
    // Bit masks are passed as bytes. A `u8` of Rust is a condition or a number, and so are the bytes of other libraries.
    let len = match tensor.dtype {
        given if given == dtype => tensor.len,
        DType::Bool | DType::U8 if dtype.is_packed() || matches!(dtype, DType::U8 | DType::Bool) => dtype.elements(tensor.len),
        got => return Err(ArgumentFault::DType { needs: dtype, got }),
    };
    if written {
        can_write(tensor, writable)?;
    }
    let (given_ld, given_batch_stride) = tensor.strides(kind)?;
    let Laid { ld, batch_stride, needs, close } = laid_out(kind, given_ld, given_batch_stride)?;
    let entries = batch.unwrap_or(1);
    // A mask with one byte for each element would be read as bits of its first few rows. `Bits128` is exempt: Paddle's
    // reserves have that size, with bits in their first eighth. So are lines with explicit distances, and masks whose
    // bits fit one word: padding explains such sizes too.
    let elements = outer.checked_mul(inner).and_then(|x| x.checked_mul(entries));
    let unpacked =
        dtype == DType::Bits8 && tensor.dtype == DType::Bool && tensor.layout.is_none() && Some(tensor.len) == elements;
    if unpacked && close && tensor.len > dtype.bytes(needs).next_multiple_of(8) {
        return Err(ArgumentFault::Unpacked { dtype, needs: dtype.bytes(needs), got: tensor.len });
    }
    if len < needs {
        let (leading_dimension, batch_stride) = (matrix.then_some(ld), (entries > 1).then_some(batch_stride));
        return Err(ArgumentFault::TooShort { what: what.clone(), needs, got: len, leading_dimension, batch_stride });
    }
    // Longer memory is allowed. But memory of exactly this length is probably a vector for each entry.
    let (asked, entries) = (given_ld.or(given_batch_stride), shape.batch);
    let all = needs.checked_mul(entries).filter(|all| !matrix && batch.is_none() && asked.is_none() && *all > needs);
    if all == Some(len) {
        return Err(ArgumentFault::Unbatched { what: what.clone(), needs, got: len, batch: entries });
    }
    let strided = matrix && outer > 1;
    Ok(Bound::Tensor(BoundTensor { given: index, dtype, strided, leading_dimension: ld, batch_stride, elements: needs }))
}
