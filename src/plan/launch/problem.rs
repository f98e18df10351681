//! Problems: extents, and how the arguments will lie in memory.

use crate::args::{ArgumentError, ArgumentErrors, ArgumentFault, Slot, SlotKind, is_unread_operand, laid_out};
use crate::check::Need;
#[cfg(feature = "jit")]
use crate::ir::name::word;
use crate::plan::TMA_UNIT;
use crate::problem::Shape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The extents to plan for, and what is known in advance of strides and alignment. Without a statement an argument is
/// contiguous and aligned to 16 bytes, as fresh device memory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The extents.
    pub shape: Shape,
    strides: BTreeMap<String, Strides>,
}

/// How one argument will lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strides {
    /// Leading dimension in elements.
    pub ld: Option<usize>,
    /// Batch stride in elements.
    pub batch_stride: Option<usize>,
    /// Bytes that its address is a multiple of.
    pub alignment: usize,
}

impl Default for Strides {
    fn default() -> Strides {
        Strides { ld: None, batch_stride: None, alignment: 16 }
    }
}

impl From<Shape> for Problem {
    fn from(shape: Shape) -> Problem {
        Problem { shape, strides: BTreeMap::new() }
    }
}

impl Problem {
    /// One M x N x K problem.
    pub fn new(m: usize, n: usize, k: usize) -> Problem {
        Shape::new(m, n, k).into()
    }

    /// The same for each of `batch` entries.
    #[must_use]
    pub fn batched(self, batch: usize) -> Problem {
        Problem { shape: self.shape.batched(batch), ..self }
    }

    /// The leading dimension that an argument will have.
    #[must_use]
    pub fn ld(mut self, name: &str, elements: usize) -> Problem {
        self.strides.entry(name.into()).or_default().ld = Some(elements);
        self
    }

    /// The batch stride that an argument will have.
    #[must_use]
    pub fn batch_stride(mut self, name: &str, elements: usize) -> Problem {
        self.strides.entry(name.into()).or_default().batch_stride = Some(elements);
        self
    }

    /// The bytes that an argument's address will be a multiple of: a power of two, of which up to 16 count.
    #[must_use]
    pub fn align(mut self, name: &str, bytes: usize) -> Problem {
        self.strides.entry(name.into()).or_default().alignment = bytes;
        self
    }

    /// Checks that the problem names only arguments that exist, and states only strides and addresses that a launch
    /// could take.
    pub(in crate::plan) fn check(&self, slots: &[Slot]) -> Result<(), ArgumentErrors> {
        let fault = |(name, strides): (&String, &Strides)| {
            let fault = match slots.iter().find(|slot| *slot.name == **name) {
                None if is_unread_operand(name, slots) => return None,
                None => ArgumentFault::Unknown { known: slots.iter().map(|slot| slot.name.to_string()).collect() },
                Some(slot) if slot.need == Need::Unused => return None,
                Some(_) if !strides.alignment.is_power_of_two() => ArgumentFault::Alignment { got: strides.alignment },
                Some(slot) => laid_out(&slot.kind, strides.ld, strides.batch_stride).err()?,
            };
            Some(ArgumentError { name: name.clone(), fault })
        };
        let faults: Vec<_> = self.strides.iter().filter_map(fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(ArgumentErrors(faults)) }
    }

    /// The statements beyond the extents that affect a plan: one phrase for each argument.
    #[cfg(feature = "jit")]
    pub(crate) fn stated(&self) -> impl Iterator<Item = String> + '_ {
        self.strides.iter().filter_map(|(name, &Strides { ld, batch_stride, alignment })| {
            let ld = ld.map(|ld| format!("leading dimension {ld}"));
            let batch_stride = batch_stride.map(|stride| format!("batch stride {stride}"));
            let alignment = (alignment < 16).then(|| format!("an address aligned to {alignment} bytes"));
            let stated: Vec<_> = ld.into_iter().chain(batch_stride).chain(alignment).collect();
            (!stated.is_empty()).then(|| format!("`{}` with {}", word(name), stated.join(" and ")))
        })
    }

    /// The leading dimension of an argument, if it is known.
    pub(in crate::plan) fn known_ld(&self, name: &str) -> Option<usize> {
        self.strides.get(name).and_then(|s| s.ld)
    }

    /// The batch stride of an argument, if it is known.
    pub(in crate::plan) fn known_batch_stride(&self, name: &str) -> Option<usize> {
        self.strides.get(name).and_then(|s| s.batch_stride)
    }

    /// The bytes that an argument's address is a multiple of, as far as is known.
    pub(in crate::plan) fn known_alignment(&self, name: &str) -> usize {
        self.strides.get(name).copied().unwrap_or_default().alignment
    }

    /// The same problem with another's statements about an argument.
    pub(in crate::plan) fn like(mut self, other: &Problem, name: &str) -> Problem {
        if let Some(strides) = other.strides.get(name) {
            self.strides.insert(name.into(), *strides);
        }
        self
    }

    /// The same problem without the statements about some arguments.
    pub(in crate::plan) fn without(mut self, names: &[&str]) -> Problem {
        self.strides.retain(|name, _| !names.contains(&&**name));
        self
    }

    /// The problem of these extents with the statements about these arguments alone.
    pub(in crate::plan) fn only(mut self, shape: Shape, slots: &[Slot]) -> Problem {
        self.strides.retain(|name, _| slots.iter().any(|slot| *slot.name == **name));
        Problem { shape, ..self }
    }

    /// Bytes from run to run of an argument; 0 if it has only one run.
    pub(crate) fn run_distance(&self, slot: &Slot) -> usize {
        let ld = self.strides.get(&*slot.name).and_then(|s| s.ld);
        match &slot.kind {
            SlotKind::Memory { dtype, outer, inner, matrix: true, .. } if *outer > 1 => {
                dtype.bytes(ld.unwrap_or(inner.next_multiple_of(dtype.run())))
            }
            _ => 0,
        }
    }

    /// The layout of the runs of an argument.
    pub(crate) fn runs(&self, slot: &Slot) -> ArgumentRuns {
        let whole = match &slot.kind {
            SlotKind::Memory { dtype, inner, .. } => (inner * dtype.size()).is_multiple_of(TMA_UNIT),
            SlotKind::Scalar(_) | SlotKind::Table { .. } => true,
        };
        ArgumentRuns { alignment: self.alignment(slot), whole }
    }

    /// The alignment of every run of an argument, in bytes: 16, 8, 4, 2 or 1.
    pub(crate) fn alignment(&self, slot: &Slot) -> usize {
        let strides = self.strides.get(&*slot.name).copied().unwrap_or_default();
        let SlotKind::Memory { dtype, outer, inner, matrix, batch, .. } = &slot.kind else { return 16 };
        if *outer == 0 || *inner == 0 {
            return 16; // Nothing is read.
        }
        let run = strides.ld.unwrap_or((*inner).max(1).next_multiple_of(dtype.run()));
        let ld = if *matrix && *outer > 1 { run } else { 0 };
        let batch_stride = match batch {
            // If the product overflows, only its lowest bits matter here.
            Some(entries) if *entries > 1 => strides.batch_stride.unwrap_or(outer.wrapping_mul(run)),
            _ => 0,
        };
        alignment(strides.alignment as u64, [ld, batch_stride].map(|elements| dtype.bytes(elements)))
    }
}

/// How the runs of an argument lie in memory, as far as is known in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgumentRuns {
    /// Bytes that address, leading dimension and batch stride are multiples of: 16, 8, 4, 2 or 1.
    pub alignment: usize,
    /// Whether the length of each run is a multiple of [`TMA_UNIT`], so that TMA can write it.
    pub whole: bool,
}

/// The largest power of two up to 16 that divides an address and two strides, in bytes.
pub fn alignment(address: u64, strides: [usize; 2]) -> usize {
    let bits = strides.into_iter().fold(address, |bits, stride| bits | stride as u64);
    1 << bits.trailing_zeros().min(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::slots;
    use crate::build::Epilogue;
    use crate::dtype::DType::F32;
    use crate::gemm::Gemm;
    use crate::problem::Layout;

    #[test]
    fn a_kernel_keeps_the_statements_about_its_own_arguments() {
        let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F32), F32)).unwrap();
        let (shape, gemm) = (Shape::new(64, 32, 16), Gemm::new(F32, Layout::TN, &epilogue));
        let own = slots(gemm.operation(), gemm.epilogue().checked(), shape);
        let of_all = Problem::new(8, 8, 8).ld("a", 24).ld("c", 40).align("d", 4).ld("other", 48).align("more", 8);
        assert_eq!(of_all.only(shape, &own), Problem::from(shape).ld("a", 24).ld("c", 40).align("d", 4));
    }

    /// The memo of plans identifies a problem by its JSON form, so that form must contain everything a plan can depend
    /// on. The patterns name every field, so a new field does not compile until somebody adds it to this test.
    #[test]
    fn everything_about_a_problem_is_written_down() {
        let base = Problem::new(64, 32, 16).ld("a", 24);
        let Problem { shape, strides } = &base;
        let Shape { m: _, n: _, k: _, batch: _ } = shape;
        let Strides { ld: _, batch_stride: _, alignment: _ } = strides["a"];
        let others = [
            Problem::new(65, 32, 16).ld("a", 24),
            Problem::new(64, 33, 16).ld("a", 24),
            Problem::new(64, 32, 17).ld("a", 24),
            base.clone().batched(2),
            base.clone().ld("a", 32),
            base.clone().batch_stride("a", 2048),
            base.clone().align("a", 8),
            Problem::new(64, 32, 16).ld("b", 24),
            Problem::new(64, 32, 16),
        ];
        let written = |problem: &Problem| serde_json::to_string(problem).expect("JSON");
        let all: std::collections::BTreeSet<String> = others.iter().chain([&base]).map(written).collect();
        assert_eq!(all.len(), others.len() + 1);
        let read: Problem = serde_json::from_str(&written(&base)).expect("a problem");
        assert_eq!(read, base);
    }

    #[test]
    fn runs_lie_at_the_stated_distance_or_side_by_side() {
        use crate::dtype::DType::{self, Bits8, F16};
        use crate::ir::Order::RowMajor;
        let slot = |dtype: DType, outer: usize, inner: usize, matrix: bool| {
            let what = String::new();
            let kind = SlotKind::Memory { dtype, what, outer, inner, matrix, order: RowMajor, batch: None, written: false };
            Slot { name: "x".into(), kind, need: Need::Required }
        };
        let (plain, stated) = (Problem::new(5, 9, 3), Problem::new(5, 9, 3).ld("x", 24));
        for (slot, distances) in [
            (slot(F16, 5, 9, true), [18, 48]),
            (slot(F16, 1, 9, true), [0, 0]),
            (slot(F16, 5, 9, false), [0, 0]),
            (slot(Bits8, 5, 9, true), [2, 3]),
        ] {
            assert_eq!([&plain, &stated].map(|problem| problem.run_distance(&slot)), distances);
        }
    }
}
