//! Binding: every slot gets the argument of its name. Otherwise every fault is reported, and nothing runs.

use super::place::fit;
use super::slot::is_unread_operand;
use super::{Args, ArgumentError, ArgumentErrors, ArgumentFault, Given, Slot, SlotKind, reserve};
use crate::check::Need;
use crate::dtype::DType;
use crate::ir::Constant;
use crate::problem::Shape;

/// The content of a slot: a scalar's value, or the index of a given tensor with its strides. A number in a memory slot
/// is the value of every element, since no memory was given.
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
    /// The index of the given argument.
    pub given: usize,
    /// Its format.
    pub dtype: DType,
    /// Whether there is more than one run, so that the leading dimension matters.
    pub strided: bool,
    /// Leading dimension in elements; for a vector its length.
    pub leading_dimension: usize,
    /// Batch stride in elements; 0 if the batch shares it.
    pub batch_stride: usize,
    /// Elements from its first to its last, gaps included.
    pub elements: usize,
}

impl Bound {
    /// The content of a slot before binding, and of an unused slot.
    pub(crate) const NONE: Bound = Bound::Scalar(Constant::Bool(false));

    /// The content of an optional slot without an argument.
    fn left_out(need: Need) -> Option<Bound> {
        match need {
            Need::Required => None,
            Need::Optional(default) => Some(Bound::Scalar(default)),
            Need::Unused => Some(Bound::NONE),
        }
    }

    /// The content of a slot from the given argument of this index.
    fn given<B>(slot: &Slot, index: usize, shape: Shape, given: &Given<B>) -> Result<Bound, ArgumentFault> {
        if slot.need == Need::Unused { Ok(Bound::NONE) } else { fit(&slot.kind, index, shape, given) }
    }
}

/// A description of the missing argument.
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
        SlotKind::Table { dtype, .. } => format!("memory of {dtype}, a table of any length"),
        SlotKind::Memory { dtype, what, batch, .. } => {
            let batch = batch.filter(|l| *l != 1).map(|l| format!(", for each of {l} batch entries")).unwrap_or_default();
            format!("memory of {dtype}, {what}{batch}")
        }
    }
}

/// [`bind`] into the caller's memory, one place a slot. It allocates nothing unless something does not fit.
#[cfg(feature = "cuda")]
pub(crate) fn bind_into<B>(slots: &[Slot], shape: Shape, args: &Args<B>, bound: &mut [Bound]) -> Result<(), ArgumentErrors> {
    let mut fits = too_large(shape, args.origin).is_none();
    let (mut next, mut used) = (0, 0);
    for (slot, place) in slots.iter().zip(&mut *bound) {
        // Programs mostly pass arguments in the order of the slots. So the search continues after the last hit.
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
    // Slots have different names. If as many slots found an argument as there are arguments, no argument is unused or
    // given twice.
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

/// The quantity that exceeds the range of kernels, and its limit.
fn too_large(shape: Shape, origin: [i32; 3]) -> Option<(&'static str, &'static str)> {
    let extents = [shape.m, shape.n, shape.batch];
    let over = |(extent, origin): (usize, i32)| extent as i64 + i64::from(origin) > i64::from(i32::MAX);
    if shape.is_too_large() {
        Some(("shape", Shape::LIMIT))
    } else if extents.into_iter().zip(origin).any(over) {
        Some(("origin", "extent plus origin is at most 2147483647 along each axis"))
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

    /// A matrix of one line has no distance to the next, and neither has a vector.
    #[test]
    fn matrices_of_several_lines_are_strided() {
        let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).expect("a graph");
        let operation = Operation::Pointwise { dtype: F32, order: Order::RowMajor };
        let memory = [1.0f32; 6];
        for (m, n, strided) in [(3, 2, true), (2, 1, true), (1, 6, false)] {
            let (shape, mut d) = (Shape::new(m, n, 0), [0.0f32; 6]);
            let slots = slots(operation, epilogue.checked(), shape);
            let args = HostArgs::new().input("a", &memory).input("bias", &memory).output("d", &mut d);
            let bound = bind(&slots, shape, &args).expect("arguments that fit");
            for (slot, bound) in slots.iter().zip(&bound) {
                let Bound::Tensor(tensor) = bound else { panic!("{} is memory", slot.name) };
                assert_eq!(tensor.strided, strided && slot.name.as_ref() != "bias", "{} of {m} x {n}", slot.name);
            }
        }
    }

    /// The fast path through a launch's arguments agrees with the thorough one, or falls back to it.
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
