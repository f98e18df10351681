//! Binding: every slot gets the argument of its name, or every fault is reported and nothing runs.

use super::place::fit;
use super::slot::is_unread_operand;
use super::{Args, Given, Misfit, ReserveTag, Slot, SlotKind, reserve};
use crate::check::Need;
use crate::dtype::{DType, ValueType};
use crate::ir::Constant;
use crate::ir::name::{self, word};
use crate::problem::Shape;
use std::fmt;

/// What fills a slot: a scalar's value, or the place of a tensor among the given arguments with its strides. A number in the slot of
/// memory is what every element is, since none was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A number.
    Scalar(Constant),
    /// Memory.
    Tensor(BoundTensor),
}

/// A tensor that fits its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundTensor {
    /// Which of the given arguments.
    pub given: usize,
    /// Its format.
    pub dtype: DType,
    /// Whether there is more than one run, and so a leading dimension that counts.
    pub strided: bool,
    /// Leading dimension in elements; for a vector its length.
    pub leading_dimension: usize,
    /// Batch stride in elements; 0 where the batch shares it.
    pub batch_stride: usize,
    /// Elements from its first to its last, gaps included.
    pub elements: usize,
}

impl Bound {
    /// What stands in a slot before anything is bound to it, and in one that nothing uses.
    pub(crate) const NONE: Bound = Bound::Scalar(Constant::Bool(false));

    /// What fills a slot that nothing was given for, if it may be left out.
    fn left_out(need: Need) -> Option<Bound> {
        match need {
            Need::Required => None,
            Need::Optional(default) => Some(Bound::Scalar(default)),
            Need::Unused => Some(Bound::NONE),
        }
    }

    /// What fills a slot from the given argument of this index.
    fn given<B>(slot: &Slot, index: usize, shape: Shape, given: &Given<B>) -> Result<Bound, ArgumentFault> {
        if slot.need == Need::Unused { Ok(Bound::NONE) } else { fit(&slot.kind, index, shape, given) }
    }
}

/// One argument that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// The argument's name.
    pub name: String,
    /// What is wrong, what is needed and what was given.
    pub fault: ArgumentFault,
}

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentFault {
    /// Not given.
    Missing {
        /// What is needed.
        needs: String,
    },
    /// Given, but the epilogue has no such argument.
    Unknown {
        /// The names it has.
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
        /// What is needed.
        needs: String,
        /// What was given.
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
    /// Passed with `input`, but it is written.
    ReadOnly,
    /// Part of a reserve that was passed with `saved`, but it is written.
    Saved {
        /// The reserve.
        reserve: ReserveTag,
    },
    /// Passed with `output`, but borrowed to be read.
    Shared,
    /// Too few elements for its extents and strides.
    TooShort {
        /// What it is.
        what: String,
        /// Elements needed.
        needs: usize,
        /// Elements given.
        got: usize,
        /// Leading dimension used, of a matrix.
        leading_dimension: Option<usize>,
        /// Batch stride used, of several entries.
        batch_stride: Option<usize>,
    },
    /// One byte for each element, where elements are bits.
    Unpacked {
        /// The format needed.
        dtype: DType,
        /// Bytes that the bits take.
        needs: usize,
        /// Bytes given.
        got: usize,
    },
    /// As many elements as all batch entries together would have, for a vector or one element that they share.
    Unbatched {
        /// What it is.
        what: String,
        /// Elements needed.
        needs: usize,
        /// Elements given.
        got: usize,
        /// Batch entries.
        batch: usize,
    },
    /// A leading dimension below the length of a run, or one for something that is no matrix.
    LeadingDimension {
        /// What it is.
        what: String,
        /// The least it may be; 0 if there is none.
        least: usize,
        /// What was given.
        got: usize,
    },
    /// A batch stride for something the batch shares, or one that makes batch entries of an output overlap.
    BatchStride {
        /// What is wrong.
        why: &'static str,
        /// What was given.
        got: usize,
    },
    /// A leading dimension or batch stride that does not begin each run of a bit mask where its format has it begin.
    Multiple {
        /// Which of the two.
        what: &'static str,
        /// The mask's format.
        dtype: DType,
        /// What was given, in elements.
        got: usize,
    },
    /// A problem says that its address is a multiple of something else than a power of two.
    Alignment {
        /// What was given, in bytes.
        got: usize,
    },
    /// Extents beyond what coordinates or addresses can count.
    TooLarge {
        /// The limit.
        limit: &'static str,
    },
    /// It lives on another device than the plan was made for, or in another context of the same.
    WrongDevice {
        /// The plan's device ordinal.
        needs: usize,
        /// The argument's.
        got: usize,
    },
    /// Its address is no multiple of its elements' size: bytes of a larger buffer, cut off in the wrong place.
    BetweenElements {
        /// Bytes that the address has to be a multiple of.
        needs: usize,
        /// The largest power of two that it is a multiple of.
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
                "is part of a {reserve}, which this epilogue knows nothing of: pass the reserve of the same `backward()` pair"
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
                write!(f, "is written, and was borrowed to be read: borrow it mutably, as in `(&mut d).ld(..)`")
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
                "holds {got} bytes, one for each element, and {dtype} holds eight elements in a byte, the first in the lowest bit: declare it \
                 `Bool`, or pack it into {needs} bytes; if it is packed, pass a slice of those"
            ),
            ArgumentFault::Unbatched { what, needs, got, batch } => write!(
                f,
                "holds {got} elements, {needs} for each of {batch} batch entries, but they share it ({what}): declare it `batched()`, as in \
                 `F32.over(N).batched()`; if it is shared, pass a slice of {needs}"
            ),
            ArgumentFault::LeadingDimension { what, least: 0, got } => {
                write!(f, "{what} has no leading dimension, got {got}; remove it")
            }
            ArgumentFault::LeadingDimension { what, least, got } => {
                write!(f, "{what} needs a leading dimension of at least {least}, got {got}")
            }
            ArgumentFault::BatchStride { why, got } => write!(f, "batch stride {got}: {why}"),
            ArgumentFault::Multiple { what, dtype, got } => {
                write!(f, "{what} {got}: of {dtype} it is counted in bits, and a multiple of {}", dtype.run())
            }
            ArgumentFault::Alignment { got } => {
                write!(f, "alignment {got}: addresses are multiples of a power of two of bytes, 1 at least")
            }
            ArgumentFault::TooLarge { limit } => write!(f, "the problem is too large: {limit}"),
            ArgumentFault::WrongDevice { needs, got } if needs == got => {
                write!(f, "lives in another context of device {got} than the plan: allocate it in the plan's")
            }
            ArgumentFault::WrongDevice { needs, got } => {
                write!(f, "lives on device {got}; the plan was made for device {needs}: copy it there")
            }
            ArgumentFault::BetweenElements { needs, got } => {
                write!(f, "begins between elements: its address is a multiple of {got} bytes, and must be one of {needs}")
            }
            ArgumentFault::Misaligned { needs, got } => write!(
                f,
                "is aligned to {got} bytes; this plan's kernel needs {needs}: plan for these arguments (`plan_for`), or state the alignment in the problem"
            ),
        }
    }
}

/// Every argument that does not fit. Nothing was launched and nothing written.
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

/// What a missing argument would have to be.
fn missing(slot: &Slot) -> ArgumentFault {
    let needs = needs(&slot.kind);
    let of_reserve = match &slot.kind {
        SlotKind::Memory { written, .. } if reserve::has_name(&slot.name) => {
            let (method, reserve) = if *written { ("saving", "&mut reserve") } else { ("saved", "&reserve") };
            format!(", of the reserve: pass all of it with `.{method}({reserve})`, a `Reserve` of this `backward()` pair")
        }
        _ => String::new(),
    };
    ArgumentFault::Missing { needs: needs + &of_reserve }
}

pub(super) fn needs(kind: &SlotKind) -> String {
    match kind {
        SlotKind::Scalar(value) => format!("a scalar of type {value}"),
        SlotKind::Table(dtype) => format!("memory of {dtype}, a table of any length"),
        SlotKind::Memory { dtype, what, batch, .. } => {
            let batch = batch.filter(|l| *l != 1).map(|l| format!(", for each of {l} batch entries")).unwrap_or_default();
            format!("memory of {dtype}, {what}{batch}")
        }
    }
}

/// [`bind`] into memory of the caller's, one place a slot. Allocates nothing unless something does not fit.
#[cfg(feature = "cuda")]
pub(crate) fn bind_into<B>(slots: &[Slot], shape: Shape, args: &Args<B>, bound: &mut [Bound]) -> Result<(), ArgumentErrors> {
    let mut fits = too_large(shape, args.origin).is_none();
    let (mut next, mut used) = (0, 0);
    for (slot, place) in slots.iter().zip(&mut *bound) {
        // Programs mostly pass arguments in the order of the slots: the search goes on where the last one ended.
        let named = |at: &usize| *args.given[*at].0 == *slot.name;
        let found = (next..args.given.len()).find(named).or_else(|| (0..next.min(args.given.len())).find(named));
        let found = match found {
            None => Bound::left_out(slot.need),
            Some(at) => {
                (next, used) = (at + 1, used + 1);
                Bound::given(slot, at, shape, &args.given[at].1).ok()
            }
        };
        match found {
            Some(b) if fits => *place = b,
            _ => {
                fits = false;
                break;
            }
        }
    }
    // Slots have different names, so if as many found an argument as there are, none is left over or given twice.
    if !fits || used != args.given.len() {
        bound.copy_from_slice(&bind(slots, shape, args)?);
    }
    Ok(())
}

/// Matches arguments to slots; the result is in the order of the slots.
pub(crate) fn bind<B>(slots: &[Slot], shape: Shape, args: &Args<B>) -> Result<Vec<Bound>, ArgumentErrors> {
    let mut errors = Vec::new();
    let mut fault = |name: &str, fault: ArgumentFault| errors.push(ArgumentError { name: name.into(), fault });
    if let Some((name, limit)) = too_large(shape, args.origin) {
        fault(name, ArgumentFault::TooLarge { limit });
    }
    let mut bound = Vec::with_capacity(slots.len());
    for slot in slots {
        match args.given.iter().position(|(name, _)| **name == *slot.name) {
            None => match Bound::left_out(slot.need) {
                Some(b) => bound.push(b),
                None => fault(&slot.name, missing(slot)),
            },
            Some(index) => match Bound::given(slot, index, shape, &args.given[index].1) {
                Ok(b) => bound.push(b),
                Err(f) => fault(&slot.name, f),
            },
        }
    }
    for (i, (name, given)) in args.given.iter().enumerate() {
        let reserve = if let Given::Tensor { tensor, .. } = given { tensor.reserve } else { None };
        if args.given[..i].iter().any(|(earlier, _)| earlier == name) {
            fault(name, ArgumentFault::Twice);
        } else if slots.iter().any(|s| *s.name == **name) || is_unread_operand(name, slots) {
            continue;
        } else if let Some(reserve) = reserve {
            fault(name, ArgumentFault::ForeignReserve { reserve });
        } else {
            fault(name, ArgumentFault::Unknown { known: slots.iter().map(|s| s.name.to_string()).collect() });
        }
    }
    if errors.is_empty() { Ok(bound) } else { Err(ArgumentErrors(errors)) }
}

/// What counts further than kernels do, and how far that is.
fn too_large(shape: Shape, origin: [i32; 3]) -> Option<(&'static str, &'static str)> {
    let extents = [shape.m, shape.n, shape.batch];
    let over = |(extent, origin): (usize, i32)| extent as i64 + i64::from(origin) > i64::from(i32::MAX);
    if shape.is_too_large() {
        Some(("shape", Shape::LIMIT))
    } else if extents.into_iter().zip(origin).any(over) {
        Some(("origin", "extent plus origin counts up to 2147483647 along each axis"))
    } else {
        None
    }
}

#[cfg(test)]
#[cfg(feature = "cuda")]
mod tests {
    use super::*;
    use crate::args::{HostArgs, slots};
    use crate::build::Epilogue;
    use crate::dtype::DType::{F16, F32};
    use crate::ir::Order;
    use crate::ir::axes::N;
    use crate::problem::Operation;

    /// The quick way through a launch's arguments finds what the thorough one finds, or goes that way.
    #[test]
    fn both_ways_of_binding_agree() {
        let (epilogue, _) = Epilogue::build_lenient(|e| {
            let _ = e.load("unused", F16);
            let z = e.acc() * e.scalar_or("alpha", F32, 0.5) + e.load_or("bias", F32.over(N), 2.0);
            e.store("d", z * e.load("c", F32), F32);
        })
        .expect("a graph");
        let shape = Shape::new(2, 2, 0);
        let slots = slots(Operation::Pointwise { dtype: F32, order: Order::RowMajor }, epilogue.checked(), shape);
        let memory = [1.0f32; 4];
        let names = ["a", "alpha", "bias", "c", "d", "unused", "stranger", "c"];
        // Every set of arguments, from the first to the last and back.
        for set in 0..2 * (1 << names.len()) {
            let (set, back) = (set / 2, set % 2 == 1);
            let mut d = [0.0f32; 4];
            let mut room = Some(&mut d);
            let mut args = HostArgs::new();
            let order: Vec<usize> = if back { (0..names.len()).rev().collect() } else { (0..names.len()).collect() };
            for name in order.into_iter().filter(|i| set >> i & 1 == 1).map(|i| names[i]) {
                args = match name {
                    "alpha" => args.scalar(name, 3.0f32),
                    "d" => args.output(name, room.take().expect("one output")),
                    _ => args.input(name, &memory),
                };
            }
            let mut bound = [Bound::NONE; 16];
            let quick = bind_into(&slots, shape, &args, &mut bound[..slots.len()]).map(|()| bound[..slots.len()].to_vec());
            let thorough = bind(&slots, shape, &args);
            assert_eq!(quick, thorough, "{set:b}, back: {back}");
            let (needed, strange) = (0b1_1001, 0b1100_0000);
            let fits = set & needed == needed && set & strange == 0 || set & needed == 0b1_0001 && set & strange == 0b1000_0000;
            assert_eq!(thorough.is_ok(), fits, "{set:b}");
            if let (Ok(bound), true) = (thorough, set & 0b110 == 0) {
                let left_out = [Bound::Scalar(0.5f32.into()), Bound::Scalar(2.0f32.into())];
                assert!(left_out.iter().all(|value| bound.contains(value)), "{bound:?}");
            }
        }
    }
}
