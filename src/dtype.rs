//! Number formats: the only place that knows how a format is spelled, how wide it is and how it rounds.
//!
//! A [`DType`] is a *storage* format, what lies in memory. A [`ValueType`] is what a value of the epilogue graph is while
//! it is being computed: every floating-point operand is widened to `f32` when it is loaded and rounded once, to nearest
//! even, when it is stored. Arithmetic therefore never happens in a 16-bit format unless the graph says so with an explicit
//! rounding ([`cast`](crate::Expr::cast) to `F16` or `BF16`).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16. Overflow rounds to infinity, as IEEE says.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// 32-bit two's complement integer; arithmetic wraps.
    I32,
    /// One byte, 0 or 1; any other byte reads as true.
    Bool,
}

/// What a value is while it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// A binary32 number.
    F32,
    /// A 32-bit integer; arithmetic wraps.
    I32,
    /// A truth value.
    Bool,
}

struct Facts {
    name: &'static str,
    size: usize,
    cuda: &'static str,
    value: ValueType,
}

impl DType {
    /// Every format, in declaration order.
    pub const ALL: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::Bool];

    const fn facts(self) -> Facts {
        match self {
            DType::F32 => Facts { name: "f32", size: 4, cuda: "float", value: ValueType::F32 },
            DType::F16 => Facts { name: "f16", size: 2, cuda: "f16", value: ValueType::F32 },
            DType::BF16 => Facts { name: "bf16", size: 2, cuda: "bf16", value: ValueType::F32 },
            DType::I32 => Facts { name: "i32", size: 4, cuda: "int", value: ValueType::I32 },
            DType::Bool => Facts { name: "bool", size: 1, cuda: "b8", value: ValueType::Bool },
        }
    }

    /// The name in text, JSON and messages: `f16`, `bf16`, ...
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The format of that name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        self.facts().size
    }

    /// The storage type in generated CUDA.
    pub const fn cuda(self) -> &'static str {
        self.facts().cuda
    }

    /// What an element becomes when it is loaded.
    pub const fn value_type(self) -> ValueType {
        self.facts().value
    }

    /// Whether matrices A and B may have this format.
    pub const fn multiplies(self) -> bool {
        !matches!(self, DType::Bool)
    }

    /// The value nearest to `x` that this format holds, ties to even; the exact rounding of a store.
    ///
    /// `x` is a value of the matching [`ValueType`]: a number, an `i32` or 0/1, held in an `f64`. A number need not be an
    /// `f32`: it is rounded once, not first to `f32` and then again.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => f64::from(x as f32),
            DType::F16 => f64::from(f16::from_f32(to_odd(x)).to_f32()),
            DType::BF16 => f64::from(bf16::from_f32(to_odd(x)).to_f32()),
            DType::I32 => f64::from(x as i32),
            DType::Bool => f64::from(u8::from(x != 0.0)),
        }
    }

    /// The element at `index` of a little-endian buffer.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read(self, bytes: &[u8], index: usize) -> f64 {
        let at = index * self.size();
        let word = |n: usize| &bytes[at..at + n];
        match self {
            DType::F32 => f64::from(f32::from_le_bytes([word(4)[0], word(4)[1], word(4)[2], word(4)[3]])),
            DType::F16 => f64::from(f16::from_le_bytes([word(2)[0], word(2)[1]]).to_f32()),
            DType::BF16 => f64::from(bf16::from_le_bytes([word(2)[0], word(2)[1]]).to_f32()),
            DType::I32 => f64::from(i32::from_le_bytes([word(4)[0], word(4)[1], word(4)[2], word(4)[3]])),
            DType::Bool => f64::from(u8::from(bytes[at] != 0)),
        }
    }

    /// The elements from `index` on of a little-endian buffer, as `f32`: what [`read`](DType::read) gives, many at a time.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read_run(self, bytes: &[u8], index: usize, out: &mut [f32]) {
        let run = &bytes[index * self.size()..][..out.len() * self.size()];
        if let (DType::F16, Ok(run)) = (self, bytemuck::try_cast_slice::<u8, f16>(run)) {
            run.convert_to_f32_slice(out);
        } else if let (DType::BF16, Ok(run)) = (self, bytemuck::try_cast_slice::<u8, bf16>(run)) {
            run.convert_to_f32_slice(out);
        } else {
            out.iter_mut().enumerate().for_each(|(i, x)| *x = self.read(run, i) as f32);
        }
    }

    /// Rounds `x` as a store does and writes it at `index` of a little-endian buffer.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn write(self, bytes: &mut [u8], index: usize, x: f64) {
        let at = index * self.size();
        match self {
            DType::F32 => bytes[at..at + 4].copy_from_slice(&(x as f32).to_le_bytes()),
            DType::F16 => bytes[at..at + 2].copy_from_slice(&f16::from_f32(to_odd(x)).to_le_bytes()),
            DType::BF16 => bytes[at..at + 2].copy_from_slice(&bf16::from_f32(to_odd(x)).to_le_bytes()),
            DType::I32 => bytes[at..at + 4].copy_from_slice(&(x as i32).to_le_bytes()),
            DType::Bool => bytes[at] = u8::from(x != 0.0),
        }
    }
}

/// `x` as an `f32`, rounded to odd: an inexact result is the neighbour whose last bit is 1. It is never a tie of a narrower
/// format, so that rounding it again gives what rounding `x` at once would.
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let exact = f64::from(near);
    if exact == x || x.is_nan() || near.to_bits() & 1 == 1 {
        near
    } else if exact.abs() > x.abs() {
        f32::from_bits(near.to_bits() - 1)
    } else {
        f32::from_bits(near.to_bits() + 1)
    }
}

impl ValueType {
    /// The name in text, JSON and messages.
    pub const fn name(self) -> &'static str {
        self.storage().name()
    }

    /// The type in generated CUDA.
    pub const fn cuda(self) -> &'static str {
        match self {
            ValueType::F32 => "float",
            ValueType::I32 => "int",
            ValueType::Bool => "bool",
        }
    }

    /// The storage format that holds such a value without loss.
    pub const fn storage(self) -> DType {
        match self {
            ValueType::F32 => DType::F32,
            ValueType::I32 => DType::I32,
            ValueType::Bool => DType::Bool,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type with the layout of a storage format. Sealed: the formats are [`DType`]'s.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The format.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed: bytemuck::Pod {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! { f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, u8 => Bool }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_serde() {
        for d in DType::ALL {
            assert_eq!(DType::from_name(d.name()), Some(d));
            assert_eq!(serde_json::to_string(&d).unwrap(), format!("\"{}\"", d.name()));
        }
    }

    #[test]
    fn read_returns_what_write_rounded() {
        for d in DType::ALL {
            let mut bytes = vec![0xAAu8; 3 * d.size()];
            for x in [0.0, 1.0, -2.5, 0.1, 65519.0, 65520.0, 1e-8, 3.0e38] {
                d.write(&mut bytes, 1, x);
                assert_eq!(d.read(&bytes, 1), d.round(x), "{d} {x}");
            }
            assert!(bytes[..d.size()].iter().all(|b| *b == 0xAA) && bytes[2 * d.size()..].iter().all(|b| *b == 0xAA));
        }
    }

    #[test]
    fn a_run_is_its_elements() {
        for d in DType::ALL {
            // Aligned and not.
            for start in 0..2 {
                let mut bytes = vec![0u8; start + 40 * d.size()];
                (0..40).for_each(|i| d.write(&mut bytes[start..], i, f64::from(i as i32 - 20) / 7.0));
                let mut run = [0.0f32; 33];
                d.read_run(&bytes[start..], 5, &mut run);
                assert!(run.iter().enumerate().all(|(i, x)| f64::from(*x) == d.read(&bytes[start..], 5 + i)), "{d}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        assert_eq!(DType::F16.round(2049.0), 2048.0);
        assert_eq!(DType::F16.round(2051.0), 2052.0);
        assert_eq!(DType::F16.round(65519.0), 65504.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        assert_eq!(DType::BF16.round(257.0), 256.0);
        assert_eq!(DType::BF16.round(259.0), 260.0);
        assert!(DType::F16.round(f64::NAN).is_nan());
    }

    #[test]
    fn a_number_is_rounded_once() {
        let (tie, little) = (1.0 + 2f64.powi(-11), 2f64.powi(-40));
        assert_eq!([tie - little, tie, tie + little].map(|x| DType::F16.round(x)), [1.0, 1.0, 1.0 + 2f64.powi(-10)]);
        assert_eq!([-tie - little, -tie + little].map(|x| DType::F16.round(x)), [-1.0 - 2f64.powi(-10), -1.0]);
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!([tie - little, tie, tie + little].map(|x| DType::BF16.round(x)), [1.0, 1.0, 1.0 + 2f64.powi(-7)]);
        // Ties of the smallest subnormals, where `f32` is subnormal or zero itself.
        assert_eq!(DType::F16.round(2f64.powi(-25) * (1.0 + little)), 2f64.powi(-24));
        assert_eq!(DType::BF16.round(2f64.powi(-134) * (1.0 + little)), 2f64.powi(-133));
        assert_eq!(DType::BF16.round(-1e-300).to_bits(), (-0.0f64).to_bits());
        assert_eq!([1e300, -1e300].map(|x| DType::BF16.round(x)), [f64::INFINITY, f64::NEG_INFINITY]);
    }
}
