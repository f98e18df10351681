//! Number formats. Only this module knows how a format is spelled, how wide it is and how it rounds.
//!
//! A [`DType`] is a *storage* format: the format of elements in memory. A [`ValueType`] is the type of a value of the
//! epilogue graph while it is computed. An operand of 16 bits is widened to `f32` when it is loaded, and rounded once,
//! to nearest even, when it is stored. So arithmetic never happens in a 16-bit format, unless the graph contains an
//! explicit rounding ([`cast`](crate::Expr::cast) to `F16` or `BF16`). `f64` operands are `f64` values, and results
//! that are computed from them stay `f64`.
//!
//! A store to a format of eight bits saturates, because its range is small: a number that is too large becomes the
//! largest number of the format. Floating-point formats of eight bits are `f32` values, and integer formats `i32`
//! values.

use float8::{F8E4M3, F8E5M2};
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary64. Its values are `f64` too, and no tensor core multiplies it here.
    F64,
    /// IEEE binary16. Overflow rounds to infinity, as IEEE 754 requires.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Eight bits with a fraction of three (E4M3FN): up to 448, NaN, no infinities. A store saturates: larger numbers
    /// and infinities become 448. In a program it is a `float8::F8E4M3`.
    E4M3,
    /// Eight bits with a fraction of two: up to 57344, with infinities. A store saturates like that of `E4M3`, so it
    /// never writes an infinity. In a program it is a `float8::F8E5M2`.
    E5M2,
    /// 32-bit two's complement integer; arithmetic wraps.
    I32,
    /// 8-bit two's complement integer, which is loaded as an `i32`. A store takes an `i32` or an `f32` value, which it
    /// rounds to the nearest integer, ties to even, and saturates. NaN becomes 0.
    I8,
    /// The same without a sign: 0 to 255. In a program it is a `u8`.
    U8,
    /// 4-bit two's complement integer, -8 to 7, for an operand of a product alone. Two share a byte: the one with the lower
    /// index has the lower four bits. Each run begins with a new byte, so leading dimension and batch stride, in elements,
    /// are even. In a program these bytes are `u8`.
    I4,
    /// The same without a sign: 0 to 15.
    U4,
    /// One byte, 0 or 1. Any other byte reads as true. In a program it is a `u8`, because a `bool` forbids other bytes.
    Bool,
    /// One bit, the lowest of a byte first. Each run (a row of a row-major matrix) begins with a new byte, so leading
    /// dimension and batch stride, in elements, are multiples of 8. `numpy.packbits(mask, axis=-1, bitorder="little")`
    /// makes this layout. In a program these bytes are `u8`.
    Bits8,
    /// The same, but each run begins with new 128 bits: leading dimension and batch stride are multiples of 128. These
    /// are cuBLASLt's ReLU masks, whose columns are the rows of our row-major matrices.
    Bits128,
}

/// The type of a value while it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// A binary32 number.
    F32,
    /// A binary64 number.
    F64,
    /// A 32-bit integer; arithmetic wraps.
    I32,
    /// A truth value.
    Bool,
}

struct Facts {
    name: &'static str,
    /// Bytes of the smallest piece of memory that holds whole elements.
    size: usize,
    /// Elements in such a piece.
    packed: usize,
    /// The length of a run is rounded up to a multiple of this.
    run: usize,
    cuda: &'static str,
    value: ValueType,
}

impl Facts {
    const fn bytes(name: &'static str, size: usize, cuda: &'static str, value: ValueType) -> Facts {
        Facts { name, size, packed: 1, run: 1, cuda, value }
    }

    const fn bits(name: &'static str, run: usize) -> Facts {
        Facts { name, size: 1, packed: 8, run, cuda: "b1", value: ValueType::Bool }
    }

    const fn nibbles(name: &'static str, cuda: &'static str) -> Facts {
        Facts { name, size: 1, packed: 2, run: 2, cuda, value: ValueType::I32 }
    }
}

impl DType {
    /// Every format, in declaration order.
    pub const ALL: [DType; 14] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::E4M3,
        DType::E5M2,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::I4,
        DType::U4,
        DType::Bool,
        DType::Bits8,
        DType::Bits128,
    ];

    const fn facts(self) -> Facts {
        match self {
            DType::F32 => Facts::bytes("f32", 4, "float", ValueType::F32),
            DType::F64 => Facts::bytes("f64", 8, "double", ValueType::F64),
            DType::F16 => Facts::bytes("f16", 2, "f16", ValueType::F32),
            DType::BF16 => Facts::bytes("bf16", 2, "bf16", ValueType::F32),
            DType::E4M3 => Facts::bytes("e4m3", 1, "e4m3", ValueType::F32),
            DType::E5M2 => Facts::bytes("e5m2", 1, "e5m2", ValueType::F32),
            DType::I32 => Facts::bytes("i32", 4, "int", ValueType::I32),
            DType::I8 => Facts::bytes("i8", 1, "int8", ValueType::I32),
            DType::U8 => Facts::bytes("u8", 1, "uint8", ValueType::I32),
            DType::I4 => Facts::nibbles("i4", "int4x2"),
            DType::U4 => Facts::nibbles("u4", "uint4x2"),
            DType::Bool => Facts::bytes("bool", 1, "b8", ValueType::Bool),
            DType::Bits8 => Facts::bits("bits8", 8),
            DType::Bits128 => Facts::bits("bits128", 128),
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

    /// Bytes of an element; for packed formats, of the byte that several elements share.
    pub const fn size(self) -> usize {
        self.facts().size
    }

    /// Whether elements are smaller than a byte.
    pub const fn is_packed(self) -> bool {
        self.facts().packed > 1
    }

    /// Elements that share a piece of memory of [`size`](DType::size) bytes.
    pub const fn packed(self) -> usize {
        self.facts().packed
    }

    /// Leading dimensions and batch strides are multiples of this, in elements: 1, or 8 and 128 for the bit formats, and 2
    /// for integers of four bits.
    pub const fn run(self) -> usize {
        self.facts().run
    }

    /// Bits of one element.
    pub const fn bits(self) -> usize {
        self.facts().size * 8 / self.facts().packed
    }

    /// Bytes of `elements` consecutive elements, the first of which begins a byte.
    pub const fn bytes(self, elements: usize) -> usize {
        elements.div_ceil(self.facts().packed).saturating_mul(self.facts().size)
    }

    /// Elements in `bytes`. A remainder too short for an element does not count.
    pub const fn elements(self, bytes: usize) -> usize {
        bytes / self.facts().size * self.facts().packed
    }

    /// The storage type in generated CUDA.
    pub const fn cuda(self) -> &'static str {
        self.facts().cuda
    }

    /// The name in instructions that multiply this format.
    pub(crate) const fn instruction(self) -> &'static str {
        match self {
            DType::I8 => "s8",
            DType::F32 => "tf32",
            other => other.name(),
        }
    }

    /// The type of a loaded element.
    pub const fn value_type(self) -> ValueType {
        self.facts().value
    }

    /// Whether it is a number of eight bits. The conversions of these formats are a separate part of the prelude.
    pub const fn is_eight_bits(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8)
    }

    /// Whether it is a floating-point number of eight bits.
    pub(crate) const fn is_float8(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2)
    }

    /// Whether it is an integer of four bits, which only operands of a product are.
    pub const fn is_four_bits(self) -> bool {
        matches!(self, DType::I4 | DType::U4)
    }

    /// Whether a store takes values of a type: the type of a load, and `f32` if the store saturates to an integer.
    pub const fn takes(self, value: ValueType) -> bool {
        let saturates = matches!(self, DType::I8 | DType::U8) && matches!(value, ValueType::F32);
        saturates || self.value_type() as u8 == value as u8
    }

    /// Whether tensor cores sum its products with fewer bits than `f32` has.
    pub(crate) const fn sums_coarsely(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2)
    }

    /// Whether Hopper's tensor cores read it only where K is contiguous: what has 16 bits they transpose.
    pub(crate) const fn lies_along_k(self) -> bool {
        self.size() != 2
    }

    /// The default format of gradients of such elements: eight bits are not enough for sums.
    pub(crate) const fn of_gradients(self) -> DType {
        match self {
            DType::E4M3 | DType::E5M2 => DType::BF16,
            other => other,
        }
    }

    /// Whether matrices A and B may have this format.
    pub const fn multiplies(self) -> bool {
        !matches!(self.value_type(), ValueType::Bool) && !self.is_four_bits()
    }

    /// Whether an operand of this format is widened to a 16-bit format when it meets one: weights of eight or four bits
    /// beside activations.
    pub const fn widens_beside(self, other: DType) -> bool {
        (self.is_eight_bits() || self.is_four_bits()) && matches!(other, DType::F16 | DType::BF16)
    }

    /// Whether a product's operands may have this format and another one.
    pub const fn mixes_with(self, other: DType) -> bool {
        matches!(
            (self, other),
            (DType::E4M3, DType::E5M2) | (DType::E5M2, DType::E4M3) | (DType::I8, DType::U8) | (DType::U8, DType::I8)
        )
    }

    /// The value of this format nearest to `x`, ties to even: the exact rounding of a store. Formats of eight bits
    /// saturate.
    ///
    /// `x` is a value of the matching [`ValueType`]: a number, an `i32` or 0/1, held in an `f64`. A number does not
    /// have to be an `f32`: it is rounded once, without a rounding to `f32` before.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => f64::from(x as f32),
            DType::F64 => x,
            DType::F16 => f64::from(f16::from_f32(to_odd(x)).to_f32()),
            DType::BF16 => f64::from(bf16::from_f32(to_odd(x)).to_f32()),
            DType::E4M3 | DType::E5M2 => self.decode(self.encode(x)),
            DType::I32 => f64::from(x as i32),
            // `as` saturates, and turns NaN into 0.
            DType::I8 => f64::from(x.round_ties_even() as i8),
            DType::U8 => f64::from(x.round_ties_even() as u8),
            DType::I4 => f64::from((x.round_ties_even() as i8).clamp(-8, 7)),
            DType::U4 => f64::from((x.round_ties_even() as u8).min(15)),
            DType::Bool | DType::Bits8 | DType::Bits128 => f64::from(u8::from(x != 0.0)),
        }
    }

    /// The byte of a floating-point number of eight bits. Every NaN becomes the same byte, as on GPUs.
    const fn encode(self, x: f64) -> u8 {
        match self {
            _ if x.is_nan() => 0x7f,
            DType::E4M3 => F8E4M3::from_f64(x).to_bits(),
            _ => F8E5M2::from_f64(x).to_bits(),
        }
    }

    /// The value of a byte that holds a floating-point number of eight bits.
    const fn decode(self, byte: u8) -> f64 {
        match self {
            DType::E4M3 => F8E4M3::from_bits(byte).to_f64(),
            _ => F8E5M2::from_bits(byte).to_f64(),
        }
    }

    /// The element at `index` of a little-endian buffer.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read(self, bytes: &[u8], index: usize) -> f64 {
        let at = index / self.facts().packed * self.size();
        match self {
            DType::F32 => f64::from(f32::from_le_bytes(word(bytes, at))),
            DType::F64 => f64::from_le_bytes(word(bytes, at)),
            DType::F16 => f64::from(f16::from_le_bytes(word(bytes, at)).to_f32()),
            DType::BF16 => f64::from(bf16::from_le_bytes(word(bytes, at)).to_f32()),
            DType::E4M3 | DType::E5M2 => self.decode(bytes[at]),
            DType::I32 => f64::from(i32::from_le_bytes(word(bytes, at))),
            DType::I8 => f64::from(bytes[at] as i8),
            DType::U8 => f64::from(bytes[at]),
            // The sign is the highest of four bits.
            DType::I4 => f64::from((bytes[at] << (4 - index % 2 * 4)) as i8 >> 4),
            DType::U4 => f64::from(bytes[at] >> (index % 2 * 4) & 0xf),
            DType::Bool => f64::from(u8::from(bytes[at] != 0)),
            DType::Bits8 | DType::Bits128 => f64::from(bytes[at] >> (index % 8) & 1),
        }
    }

    /// The elements from `index` on of a little-endian buffer, as `f32`: the values of [`read`](DType::read), many at a
    /// time. `F64` elements are rounded.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read_run(self, bytes: &[u8], index: usize, out: &mut [f32]) {
        if self.is_packed() {
            return out.iter_mut().enumerate().for_each(|(i, x)| *x = self.read(bytes, index + i) as f32);
        }
        let run = &bytes[index * self.size()..][..out.len() * self.size()];
        if let (DType::F16, Ok(run)) = (self, bytemuck::try_cast_slice::<u8, f16>(run)) {
            run.convert_to_f32_slice(out);
        } else if let (DType::BF16, Ok(run)) = (self, bytemuck::try_cast_slice::<u8, bf16>(run)) {
            run.convert_to_f32_slice(out);
        } else {
            out.iter_mut().enumerate().for_each(|(i, x)| *x = self.read(run, i) as f32);
        }
    }

    /// The same as `f64`, which represents all of them exactly.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn read_wide(self, bytes: &[u8], index: usize, out: &mut [f64]) {
        const AT_ONCE: usize = 512;
        if matches!(self, DType::F64 | DType::I32) {
            return out.iter_mut().enumerate().for_each(|(i, x)| *x = self.read(bytes, index + i));
        }
        let mut run = [0.0f32; AT_ONCE];
        for (i, out) in out.chunks_mut(AT_ONCE).enumerate() {
            self.read_run(bytes, index + i * AT_ONCE, &mut run[..out.len()]);
            out.iter_mut().zip(run).for_each(|(x, f)| *x = f64::from(f));
        }
    }

    /// Rounds `x` as a store does and writes it at `index` of a little-endian buffer.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn write(self, bytes: &mut [u8], index: usize, x: f64) {
        let at = index / self.facts().packed * self.size();
        match self {
            DType::F32 => bytes[at..at + 4].copy_from_slice(&(x as f32).to_le_bytes()),
            DType::F64 => bytes[at..at + 8].copy_from_slice(&x.to_le_bytes()),
            DType::F16 => bytes[at..at + 2].copy_from_slice(&f16::from_f32(to_odd(x)).to_le_bytes()),
            DType::BF16 => bytes[at..at + 2].copy_from_slice(&bf16::from_f32(to_odd(x)).to_le_bytes()),
            DType::E4M3 | DType::E5M2 => bytes[at] = self.encode(x),
            DType::I32 => bytes[at..at + 4].copy_from_slice(&(x as i32).to_le_bytes()),
            DType::I8 => bytes[at] = (x.round_ties_even() as i8) as u8,
            DType::U8 => bytes[at] = x.round_ties_even() as u8,
            DType::I4 | DType::U4 => {
                let shift = index % 2 * 4;
                bytes[at] = bytes[at] & !(0xf << shift) | (self.round(x) as i8 as u8 & 0xf) << shift;
            }
            DType::Bool => bytes[at] = u8::from(x != 0.0),
            DType::Bits8 | DType::Bits128 => bytes[at] = bytes[at] & !(1 << (index % 8)) | u8::from(x != 0.0) << (index % 8),
        }
    }
}

impl DType {
    /// [`write`](DType::write) of several numbers, from `index` on.
    ///
    /// # Panics
    /// If the buffer is too short.
    pub fn write_wide(self, bytes: &mut [u8], index: usize, numbers: &[f64]) {
        const AT_ONCE: usize = 512;
        if !matches!(self, DType::F16 | DType::BF16) {
            return numbers.iter().enumerate().for_each(|(i, x)| self.write(bytes, index + i, *x));
        }
        let bytes = &mut bytes[index * self.size()..][..numbers.len() * self.size()];
        let (mut run, mut halves) = ([0.0f32; AT_ONCE], [0u16; AT_ONCE]);
        for (numbers, bytes) in numbers.chunks(AT_ONCE).zip(bytes.chunks_mut(AT_ONCE * self.size())) {
            let (run, halves) = (&mut run[..numbers.len()], &mut halves[..numbers.len()]);
            run.iter_mut().zip(numbers).for_each(|(x, wide)| *x = to_odd(*wide));
            match self {
                DType::F16 => halves.reinterpret_cast_mut::<f16>().convert_from_f32_slice(run),
                _ => halves.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(run),
            }
            bytes.chunks_exact_mut(2).zip(halves).for_each(|(to, half)| to.copy_from_slice(&half.to_le_bytes()));
        }
    }
}

/// The bytes of one element.
fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

/// `x` as an `f32`, rounded to odd: an inexact result is the neighbour whose last bit is 1. It is never a tie of a
/// narrower format, so rounding it again gives the same result as rounding `x` directly.
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let (exact, bits) = (f64::from(near), near.to_bits());
    // Without branches, so that a loop over many numbers takes several at once.
    let beside = if exact.abs() > x.abs() { bits.wrapping_sub(1) } else { bits.wrapping_add(1) };
    let stays = (exact == x) | x.is_nan() | (bits & 1 == 1);
    f32::from_bits(if stays { bits } else { beside })
}

impl ValueType {
    /// Every type, in declaration order.
    pub const ALL: [ValueType; 4] = [ValueType::F32, ValueType::F64, ValueType::I32, ValueType::Bool];

    /// Whether it is a floating-point number.
    pub const fn is_float(self) -> bool {
        matches!(self, ValueType::F32 | ValueType::F64)
    }

    /// The name in text, JSON and messages.
    pub const fn name(self) -> &'static str {
        self.storage().name()
    }

    /// The type in generated CUDA.
    pub const fn cuda(self) -> &'static str {
        match self {
            ValueType::F32 => "float",
            ValueType::F64 => "double",
            ValueType::I32 => "int",
            ValueType::Bool => "bool",
        }
    }

    /// The storage format that holds such a value without loss.
    pub const fn storage(self) -> DType {
        match self {
            ValueType::F32 => DType::F32,
            ValueType::F64 => DType::F64,
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

/// A Rust type with the layout of a storage format. The trait is sealed, because [`DType`] lists the formats.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the element of a format",
    note = "elements are `f32`, `f64`, `half::f16`, `half::bf16`, `float8::F8E4M3`, `float8::F8E5M2`, `i32`, `i8`, and `u8` \
            for conditions and integers"
)]
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

elements! { f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, F8E4M3 => E4M3, F8E5M2 => E5M2, i32 => I32, i8 => I8, u8 => Bool }

#[cfg(test)]
mod tests;
