//! Constants of a graph: numbers and truth values, by their bits.

use super::text::{format_f32, format_f64};
use crate::dtype::{DType, ValueType};
use std::fmt;

/// A constant, compared and stored by its bits, so that NaN and -0.0 are values like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// An `f32`, by its bits.
    F32(u32),
    /// An `f64`, by its bits.
    F64(u64),
    /// An `i32`.
    I32(i32),
    /// A truth value.
    Bool(bool),
}

impl From<f32> for Constant {
    fn from(x: f32) -> Constant {
        Constant::F32(x.to_bits())
    }
}

impl From<f64> for Constant {
    fn from(x: f64) -> Constant {
        Constant::F64(x.to_bits())
    }
}

impl From<i32> for Constant {
    fn from(x: i32) -> Constant {
        Constant::I32(x)
    }
}

impl From<bool> for Constant {
    fn from(x: bool) -> Constant {
        Constant::Bool(x)
    }
}

impl Constant {
    /// The constant as a value of the wanted type. Rust takes a number with a point for an `f64`, so if an `f32` is
    /// wanted the number is rounded to one.
    pub(crate) fn meant_as(self, wanted: ValueType) -> Constant {
        match (self, wanted) {
            (Constant::F64(bits), ValueType::F32) => Constant::from(f64::from_bits(bits) as f32),
            _ => self,
        }
    }

    /// Its type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Constant::F32(_) => ValueType::F32,
            Constant::F64(_) => ValueType::F64,
            Constant::I32(_) => ValueType::I32,
            Constant::Bool(_) => ValueType::Bool,
        }
    }

    /// Its value.
    pub fn value(self) -> f64 {
        match self {
            Constant::F32(bits) => f64::from(f32::from_bits(bits)),
            Constant::F64(bits) => f64::from_bits(bits),
            Constant::I32(x) => f64::from(x),
            Constant::Bool(b) => f64::from(u8::from(b)),
        }
    }

    /// The constant after a store in this format, which holds its type.
    #[must_use]
    pub fn rounded(self, dtype: DType) -> Constant {
        Constant::of(self.value_type(), dtype.round(self.value()))
    }

    /// The constant of a type nearest to a value.
    pub fn of(value_type: ValueType, x: f64) -> Constant {
        match value_type {
            ValueType::F32 => Constant::F32((x as f32).to_bits()),
            ValueType::F64 => Constant::F64(x.to_bits()),
            ValueType::I32 => Constant::I32(x as i32),
            ValueType::Bool => Constant::Bool(x != 0.0),
        }
    }
}

/// The value in text, which reads back bit for bit.
impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Constant::F32(bits) => f.write_str(&format_f32(bits)),
            Constant::F64(bits) => f.write_str(&format_f64(bits)),
            Constant::I32(x) => x.fmt(f),
            Constant::Bool(b) => b.fmt(f),
        }
    }
}
