//! Preferences: the user's requests beyond the epilogue.

#[cfg(feature = "jit")]
use crate::ir::Side;
use crate::plan::{Mainloop, Program, Tile};
use crate::problem::Operation;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroI32, NonZeroUsize};

/// How transcendental primitives are spelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Math {
    /// Fast if every stored matrix is 16 bit or narrower, exact otherwise. If no matrix is stored, the formats of the
    /// vectors decide, and without these those of the reductions.
    #[default]
    Auto,
    /// Within the table's units in the last place.
    Exact,
    /// Hardware approximations and short polynomials, within the table's bounds.
    Fast,
}

/// The user's requests beyond the epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Preferences {
    /// How transcendental primitives are spelled.
    pub math: Math,
    /// Whether `f32` operands may be rounded to tf32 for the tensor cores.
    pub tf32: bool,
    /// Whether tensor cores may add up all products of floating-point numbers of eight bits: see
    /// [`Gemm::fast_accumulation`](crate::Gemm::fast_accumulation).
    pub fast_accumulation: bool,
    /// Use only this mainloop.
    pub mainloop: Option<Mainloop>,
    /// Use only this tile.
    pub tile: Option<Tile>,
    /// Whether a launch may begin while the one before it in the stream still runs, if the kernel supports that.
    pub programmatic: bool,
    /// Whether `a` and `b` are constant: see [`Gemm::constant_operands`](crate::Gemm::constant_operands).
    pub constant: [bool; 2],
    /// Use only this rasterisation: see [`Gemm::raster_group`](crate::Gemm::raster_group).
    pub raster_group: Option<NonZeroI32>,
    /// Whether blocks run in lockstep: see [`Gemm::lockstep`](crate::Gemm::lockstep).
    pub lockstep: Option<bool>,
    /// Split K in this many parts, 1 for no split: see [`Gemm::split_k`](crate::Gemm::split_k).
    pub split_k: Option<NonZeroUsize>,
    /// Compute the product transposed, or as it is: see [`Gemm::transposed`](crate::Gemm::transposed).
    pub transposed: Option<bool>,
}

impl Preferences {
    /// Whether Hopper's kernel for an operation promotes: it adds up in `f32` the tensor cores' sums of 128 K elements.
    pub(super) fn promotes(&self, operation: Operation) -> bool {
        let scaled = operation.is_scaled();
        operation.multiplies() && operation.multiplied().sums_coarsely() && (scaled || !self.fast_accumulation)
    }

    /// The requests, as calls of the methods of [`Gemm`](crate::Gemm).
    #[cfg(feature = "jit")]
    pub(crate) fn stated(&self) -> impl Iterator<Item = String> {
        let Preferences {
            math,
            tf32,
            fast_accumulation,
            mainloop,
            tile,
            programmatic,
            constant: [a, b],
            raster_group,
            lockstep,
            split_k,
            transposed,
        } = *self;
        let stated = [
            (math != Math::Auto).then(|| format!("math({math:?})")),
            tf32.then(|| "tf32(true)".into()),
            fast_accumulation.then(|| "fast_accumulation(true)".into()),
            mainloop.map(|mainloop| format!("mainloop({mainloop})")),
            tile.map(|tile| format!("tile({tile})")),
            (!programmatic).then(|| "programmatic_launch(false)".into()),
            (a || b).then(|| format!("constant_operands([{}])", sides([a, b]))),
            raster_group.map(|group| format!("raster_group({group})")),
            lockstep.map(|waits| format!("lockstep({waits})")),
            split_k.map(|parts| format!("split_k({parts})")),
            transposed.map(|is| format!("transposed({is})")),
        ];
        stated.into_iter().flatten().map(|method| format!("`Gemm::{method}`"))
    }
}

/// The sides that are declared constant, as Rust spells them.
#[cfg(feature = "jit")]
fn sides(declared: [bool; 2]) -> String {
    let named = Side::ALL.into_iter().zip(declared).filter(|(_, is)| *is);
    named.map(|(side, _)| format!("Side::{side:?}")).collect::<Vec<_>>().join(", ")
}

impl Math {
    /// Whether approximations are used.
    pub(super) fn is_fast(self, program: &Program) -> bool {
        match self {
            Math::Exact => false,
            Math::Fast => true,
            Math::Auto => {
                let stored = || program.stores.iter().map(|store| store.operand);
                let has_matrix = stored().any(|operand| operand.axes.is_matrix());
                let reduced = program.reductions.iter().map(|r| r.operand).filter(|_| program.stores.is_empty());
                let mut deciding = stored().filter(|operand| !has_matrix || operand.axes.is_matrix()).chain(reduced);
                deciding.all(|operand| operand.dtype.size() <= 2)
            }
        }
    }
}

impl Default for Preferences {
    fn default() -> Preferences {
        Preferences {
            math: Math::Auto,
            tf32: false,
            fast_accumulation: false,
            mainloop: None,
            tile: None,
            programmatic: true,
            constant: [false; 2],
            raster_group: None,
            lockstep: None,
            split_k: None,
            transposed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The default preferences with each field changed, one at a time. The pattern names every field, so a new field
    /// does not compile until somebody adds it here.
    macro_rules! each_changed {
        ($($field:ident: $other:expr),* $(,)?) => {{
            let Preferences { $($field: _),* } = Preferences::default();
            [$((stringify!($field), Preferences { $field: $other, ..Preferences::default() })),*]
        }};
    }

    /// The memo of plans identifies preferences by their JSON form. A field that is missing there would return a kernel
    /// for other preferences.
    #[test]
    fn every_preference_is_written_down() {
        let one = NonZeroUsize::new(1);
        let each = each_changed! {
            math: Math::Exact,
            tf32: true,
            fast_accumulation: true,
            mainloop: Some(Mainloop::Simt),
            tile: Some(Tile::pointwise(16, 256, 128)),
            programmatic: false,
            constant: [false, true],
            raster_group: NonZeroI32::new(1),
            lockstep: Some(false),
            split_k: one,
            transposed: Some(false),
        };
        let written = |preferences: &Preferences| serde_json::to_value(preferences).expect("JSON");
        let default = written(&Preferences::default());
        for (field, changed) in each {
            let Value::Object(fields) = written(&changed) else { panic!("an object") };
            let differing: Vec<&String> =
                fields.iter().filter(|(name, value)| default[name.as_str()] != **value).map(|(name, _)| name).collect();
            assert_eq!(differing, [field]);
        }
        let sides = [[true, false], [false, true], [true, true]]
            .map(|constant| written(&Preferences { constant, ..Preferences::default() }));
        assert!(sides[0] != sides[1] && sides[1] != sides[2], "either operand counts");
    }
}
