//! The formats of a network's tensors: those of kernels, and the integers that shapes and indices are written in.

use crate::dtype::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The format of a tensor's elements.
///
/// A [`DType`] converts into one. Kernels have no format for the other five, which hold shapes, indices and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// Eight bits, three of them a fraction, without infinities.
    E4M3,
    /// Eight bits, two of them a fraction.
    E5M2,
    /// 8-bit integer.
    I8,
    /// 16-bit integer.
    I16,
    /// 32-bit integer.
    I32,
    /// 64-bit integer: shapes and indices.
    I64,
    /// 8-bit integer without a sign.
    U8,
    /// 16-bit integer without a sign.
    U16,
    /// 32-bit integer without a sign.
    U32,
    /// 64-bit integer without a sign.
    U64,
    /// One byte, 0 or 1.
    Bool,
}

/// Name, bytes, the format of kernels, and whether an integer has a sign.
struct Facts(&'static str, usize, Option<DType>, bool);

impl Format {
    /// Every format, in declaration order.
    pub const ALL: [Format; 15] = [
        Format::F32,
        Format::F64,
        Format::F16,
        Format::BF16,
        Format::E4M3,
        Format::E5M2,
        Format::I8,
        Format::I16,
        Format::I32,
        Format::I64,
        Format::U8,
        Format::U16,
        Format::U32,
        Format::U64,
        Format::Bool,
    ];

    const fn facts(self) -> Facts {
        match self {
            Format::F32 => Facts("f32", 4, Some(DType::F32), true),
            Format::F64 => Facts("f64", 8, Some(DType::F64), true),
            Format::F16 => Facts("f16", 2, Some(DType::F16), true),
            Format::BF16 => Facts("bf16", 2, Some(DType::BF16), true),
            Format::E4M3 => Facts("e4m3", 1, Some(DType::E4M3), true),
            Format::E5M2 => Facts("e5m2", 1, Some(DType::E5M2), true),
            Format::I8 => Facts("i8", 1, Some(DType::I8), true),
            Format::I16 => Facts("i16", 2, None, true),
            Format::I32 => Facts("i32", 4, Some(DType::I32), true),
            Format::I64 => Facts("i64", 8, None, true),
            Format::U8 => Facts("u8", 1, Some(DType::U8), false),
            Format::U16 => Facts("u16", 2, None, false),
            Format::U32 => Facts("u32", 4, None, false),
            Format::U64 => Facts("u64", 8, None, false),
            Format::Bool => Facts("bool", 1, Some(DType::Bool), false),
        }
    }

    /// The name in text, JSON and messages.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        self.facts().1
    }

    /// The format of kernels, if they have it.
    pub const fn dtype(self) -> Option<DType> {
        self.facts().2
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::F64 | Format::F16 | Format::BF16 | Format::E4M3 | Format::E5M2)
    }

    /// Whether elements are integers; conditions are none.
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, Format::Bool)
    }

    /// The smallest and the largest integer; of `bool` 0 and 1.
    pub const fn range(self) -> (i128, i128) {
        let bits = 8 * self.size() as u32;
        match self {
            Format::Bool => (0, 1),
            _ if self.facts().3 => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            _ => (0, (1 << bits) - 1),
        }
    }

    /// The integer as the format holds it: the lowest bits, as two's complement. A condition is 0 or 1.
    pub const fn wrap(self, x: i128) -> i128 {
        if matches!(self, Format::Bool) {
            return (x != 0) as i128;
        }
        let bits = 8 * self.size() as u32;
        let low = x & ((1 << bits) - 1);
        let (least, most) = self.range();
        if least < 0 && low > most { low - (1 << bits) } else { low }
    }

    /// The element at `index` of little-endian bytes, as a number; integers beyond 2^53 are rounded.
    ///
    /// # Panics
    /// If the bytes are too short.
    pub(crate) fn read(self, bytes: &[u8], index: usize) -> f64 {
        match self.dtype() {
            Some(dtype) => dtype.read(bytes, index),
            None => self.read_integer(bytes, index) as f64,
        }
    }

    /// The integer at `index` of little-endian bytes; the whole part of a floating-point number.
    ///
    /// # Panics
    /// If the bytes are too short.
    pub(crate) fn read_integer(self, bytes: &[u8], index: usize) -> i128 {
        if self.is_float() {
            return self.read(bytes, index) as i128;
        }
        let size = self.size();
        let mut word = [0u8; 16];
        word[..size].copy_from_slice(&bytes[index * size..][..size]);
        self.wrap(i128::from_le_bytes(word))
    }

    /// Writes a number as a store does: floating-point formats round once, integers take the nearest and saturate.
    ///
    /// # Panics
    /// If the bytes are too short.
    pub(crate) fn write(self, bytes: &mut [u8], index: usize, x: f64) {
        match self.dtype() {
            Some(dtype) => dtype.write(bytes, index, x),
            None => {
                let (least, most) = self.range();
                self.write_integer(bytes, index, (x.round_ties_even() as i128).clamp(least, most));
            }
        }
    }

    /// Writes an integer, wrapped to the format; a floating-point format takes the nearest number.
    ///
    /// # Panics
    /// If the bytes are too short.
    pub(crate) fn write_integer(self, bytes: &mut [u8], index: usize, x: i128) {
        if self.is_float() {
            return self.write(bytes, index, x as f64);
        }
        let size = self.size();
        bytes[index * size..][..size].copy_from_slice(&self.wrap(x).to_le_bytes()[..size]);
    }
}

impl From<DType> for Format {
    fn from(dtype: DType) -> Format {
        match dtype {
            DType::F32 => Format::F32,
            DType::F64 => Format::F64,
            DType::F16 => Format::F16,
            DType::BF16 => Format::BF16,
            DType::E4M3 => Format::E4M3,
            DType::E5M2 => Format::E5M2,
            DType::I32 => Format::I32,
            // No edge of a network has four bits: an epilogue does not take them.
            DType::I8 | DType::I4 => Format::I8,
            DType::U8 | DType::U4 => Format::U8,
            // A network knows one format of conditions.
            DType::Bool | DType::Bits8 | DType::Bits128 => Format::Bool,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_to_every_format() {
        for format in Format::ALL.into_iter().filter(|format| format.is_integer()) {
            let (least, most) = format.range();
            assert_eq!((format.wrap(most + 1), format.wrap(least - 1)), (least, most), "{format}");
            let mut bytes = [0u8; 24];
            for x in [least, most, 0, 1, 100] {
                format.write_integer(&mut bytes, 2, x);
                assert_eq!(format.read_integer(&bytes, 2), x, "{format}");
            }
            format.write(&mut bytes, 1, 1e30);
            assert_eq!(format.read_integer(&bytes, 1), most, "{format}");
        }
    }

    #[test]
    fn formats_of_kernels_are_themselves() {
        let both = Format::ALL.into_iter().filter_map(|format| Some((format, format.dtype()?)));
        assert!(both.clone().all(|(format, dtype)| Format::from(dtype) == format && format.size() == dtype.size()));
        assert_eq!(both.count(), 10);
    }
}
