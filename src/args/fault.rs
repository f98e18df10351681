//! Faults: why an argument does not fit, in data and in words.

use super::{Misfit, ReserveTag};
use crate::dtype::{DType, ValueType};
use crate::ir::name::{self, word};
use crate::problem::Shape;
use std::fmt;

/// One argument that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// The argument's name.
    pub name: String,
    /// The fault, with the needed and the given value.
    pub fault: ArgumentFault,
}

/// Why an argument does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentFault {
    /// Not given.
    Missing {
        /// The needed argument.
        needs: String,
    },
    /// Given, but the epilogue has no such argument.
    Unknown {
        /// The epilogue's arguments.
        known: Vec<String>,
    },
    /// Part of a reserve that another pair of epilogues saves.
    ForeignReserve {
        /// The reserve.
        reserve: ReserveTag,
    },
    /// Part of a reserve that was made for another problem.
    ReserveShape {
        /// The reserve.
        reserve: ReserveTag,
        /// The problem of this launch.
        shape: Shape,
    },
    /// The epilogue does not fit the operation, one of whose operands this is.
    Misfit(Misfit),
    /// Given more than once.
    Twice,
    /// A scalar where memory is needed, or the reverse.
    Kind {
        /// The needed kind.
        needs: String,
        /// The given kind.
        got: String,
    },
    /// The wrong format.
    DType {
        /// The format needed.
        needs: DType,
        /// The format given.
        got: DType,
    },
    /// A scalar of the wrong type.
    ScalarType {
        /// The type needed.
        needs: ValueType,
        /// The type given.
        got: ValueType,
    },
    /// Passed with `input`, but the epilogue writes it.
    ReadOnly,
    /// Part of a reserve that was passed with `saved`, but the epilogue writes it.
    Saved {
        /// The reserve.
        reserve: ReserveTag,
    },
    /// Passed with `output`, but borrowed for reading.
    Shared,
    /// Too few elements for its extents and strides.
    TooShort {
        /// A description of the argument.
        what: String,
        /// Elements needed.
        needs: usize,
        /// Elements in the buffer.
        got: usize,
        /// Leading dimension, of a matrix.
        leading_dimension: Option<usize>,
        /// Batch stride, with several entries.
        batch_stride: Option<usize>,
    },
    /// One byte for each element, where elements are bits.
    Unpacked {
        /// The format needed.
        dtype: DType,
        /// Bytes that the bit mask takes.
        needs: usize,
        /// Bytes given.
        got: usize,
    },
    /// A vector or one element that the batch shares, with as many elements as all entries together would have.
    Unbatched {
        /// A description of the argument.
        what: String,
        /// Elements needed.
        needs: usize,
        /// Elements given.
        got: usize,
        /// Batch entries.
        batch: usize,
    },
    /// A leading dimension below the length of a run, or one for an argument that is not a matrix.
    LeadingDimension {
        /// A description of the argument.
        what: String,
        /// The least valid value; 0 if the argument has no leading dimension.
        least: usize,
        /// The given value.
        got: usize,
    },
    /// A batch stride for an operand that the batch shares, or one that makes batch entries of an output overlap.
    BatchStride {
        /// The reason.
        why: &'static str,
        /// The given value.
        got: usize,
    },
    /// Extents that differ from the argument's.
    Extents {
        /// A description of the argument.
        what: String,
        /// The argument's extents: batch entries, rows, columns.
        needs: Vec<usize>,
        /// The extents given.
        got: Vec<usize>,
    },
    /// Strides of another order, or along which no axis is contiguous.
    Strides {
        /// A description of the argument.
        what: String,
        /// The strides given, in elements.
        got: Vec<usize>,
    },
    /// A leading dimension or batch stride that does not begin each run of a bit mask at a valid position of its
    /// format.
    Multiple {
        /// The kind of stride.
        what: &'static str,
        /// The mask's format.
        dtype: DType,
        /// The given value, in elements.
        got: usize,
    },
    /// A problem states an alignment that is not a power of two.
    Alignment {
        /// The given alignment, in bytes.
        got: usize,
    },
    /// Extents beyond the range of coordinates or addresses.
    TooLarge {
        /// The limit.
        limit: &'static str,
    },
    /// The memory is on another device than the plan's, or in another context of the same device.
    WrongDevice {
        /// The plan's device ordinal.
        needs: usize,
        /// The argument's.
        got: usize,
    },
    /// The address is not a multiple of the elements' size: bytes of a larger buffer, split at the wrong place.
    BetweenElements {
        /// The needed alignment of the address, in bytes.
        needs: usize,
        /// The largest power of two that divides the address.
        got: usize,
    },
    /// Its address or strides are less aligned than the plan was made for.
    Misaligned {
        /// Bytes of alignment that the plan's kernel needs.
        needs: usize,
        /// Bytes of alignment that the argument has.
        got: usize,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "argument `{}`: ", word(&self.name))?;
        match &self.fault {
            ArgumentFault::Missing { needs } => write!(f, "missing; it needs {needs}"),
            ArgumentFault::Unknown { known } => {
                let meant = name::meant(&self.name, known.iter().map(String::as_str));
                write!(f, "the epilogue has no such argument; it has {}{meant}", known.join(", "))
            }
            ArgumentFault::ForeignReserve { reserve } => write!(
                f,
                "is part of a {reserve}, which belongs to another epilogue: pass the reserve of the same `backward()` pair"
            ),
            ArgumentFault::ReserveShape { reserve, shape } => {
                write!(f, "is part of a {reserve}, and the problem is {shape}: allocate one for this problem")
            }
            ArgumentFault::Misfit(misfit) => misfit.fmt(f),
            ArgumentFault::Twice => write!(f, "given twice; pass each name once"),
            ArgumentFault::Kind { needs, got } => write!(f, "needs {needs}, got {got}"),
            ArgumentFault::DType { needs, got } => {
                write!(f, "needs elements of {needs}, got {got}; convert the data, or have the ")?;
                match &*self.name {
                    "a" | "b" => write!(f, "operation take {got}: `Gemm::new({got:?}, ..)`, `Gemm::pointwise({got:?}, ..)`"),
                    _ => write!(f, "epilogue load, store or multiply {got}"),
                }
            }
            ArgumentFault::ScalarType { needs, got } => write!(f, "needs a scalar of type {needs}, got {got}"),
            ArgumentFault::ReadOnly => write!(f, "is written; pass a mutable buffer with `output`"),
            ArgumentFault::Saved { reserve } => {
                write!(f, "is part of a {reserve}, which this epilogue writes: pass it with `saving`")
            }
            ArgumentFault::Shared => {
                write!(f, "is written, but was borrowed for reading: borrow it mutably, as in `(&mut d).ld(..)`")
            }
            ArgumentFault::TooShort { what, needs, got, leading_dimension, batch_stride } => {
                let ld = leading_dimension.map(|ld| format!("leading dimension {ld}"));
                let stride = batch_stride.map(|stride| format!("batch stride {stride}"));
                let lies: Vec<_> = ld.into_iter().chain(stride).collect();
                let with = if lies.is_empty() { "" } else { " with " };
                write!(f, "too short: {what}{with}{} needs {needs} elements, got {got}", lies.join(" and "))
            }
            ArgumentFault::Unpacked { dtype, needs, got } => write!(
                f,
                "holds {got} bytes, one for each element, and {dtype} holds eight elements in a byte, the first in the \
                 lowest bit: declare it \
                 `Bool`, or pack it into {needs} bytes; if it is packed, pass a slice of those"
            ),
            ArgumentFault::Unbatched { what, needs, got, batch } => write!(
                f,
                "holds {got} elements, {needs} for each of {batch} batch entries, but they share it ({what}): declare \
                 it `batched()`, as in \
                 `F32.over(N).batched()`; if it is shared, pass a slice of {needs}"
            ),
            ArgumentFault::LeadingDimension { what, least: 0, got } => {
                write!(f, "{what} has no leading dimension, got {got}; remove it")
            }
            ArgumentFault::LeadingDimension { what, least, got } => {
                write!(f, "{what} needs a leading dimension of at least {least}, got {got}")
            }
            ArgumentFault::BatchStride { why, got } => write!(f, "batch stride {got}: {why}"),
            ArgumentFault::Extents { what, needs, got } => {
                write!(f, "has extents {got:?}; {what} needs {needs:?}: pass a tensor of that size, or reshape it")
            }
            ArgumentFault::Strides { what, got } => write!(
                f,
                "has strides {got:?}, so that elements of a run do not lie side by side ({what}): pass a contiguous copy, or \
                 declare the other order"
            ),
            ArgumentFault::Multiple { what, dtype, got } => {
                write!(f, "{what} {got}: for {dtype} it counts bits, and has to be a multiple of {}", dtype.run())
            }
            ArgumentFault::Alignment { got } => {
                write!(f, "alignment {got}: an alignment is a power of two, at least 1")
            }
            ArgumentFault::TooLarge { limit } => write!(f, "the problem is too large: {limit}"),
            ArgumentFault::WrongDevice { needs, got } if needs == got => {
                write!(f, "is in another context of device {got}: allocate it in the plan's context")
            }
            ArgumentFault::WrongDevice { needs, got } => {
                write!(f, "is on device {got}; the plan was made for device {needs}: copy it there")
            }
            ArgumentFault::BetweenElements { needs, got } => {
                write!(f, "begins between elements: its address is a multiple of {got} bytes, and must be one of {needs}")
            }
            ArgumentFault::Misaligned { needs, got } => write!(
                f,
                "is aligned to {got} bytes; this plan's kernel needs {needs}: plan for these arguments (`plan_for`), \
                 or state the alignment in the problem"
            ),
        }
    }
}

/// All arguments that do not fit. Nothing was launched and nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentErrors(pub Vec<ArgumentError>);

impl std::error::Error for ArgumentError {}

impl fmt::Display for ArgumentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ArgumentErrors {}
