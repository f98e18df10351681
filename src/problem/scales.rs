//! Scales along K: numbers that the elements of an operand are multiplied by before they are multiplied with each other.

use crate::dtype::DType;
use crate::ir::Order;
use crate::problem::{Operation, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The blocks of an operand that share a scale. An operand with blocks stands for the numbers `(stored - zero) * scale`, where
/// scale and zero point are those of the element's block.
///
/// Scales of whole rows of A and columns of B need no blocks: they commute with the sum over K, and an epilogue multiplies by
/// them (`e.load("scale", F32.over(N))`).
///
/// The scales of A are the argument `a_scale`, those of B `b_scale`; zero points are `a_zero` and `b_zero`. A batch has its
/// own, unless their batch stride is 0. What lies beside each other depends on the blocks:
///
/// | blocks | scales of A | scales of B |
/// | --- | --- | --- |
/// | of one line: `groups` | M x K/terms, M contiguous | K/terms x N, N contiguous |
/// | of several lines: `squares` | M/lines x K/terms, K contiguous | K/terms x N/lines, K contiguous |
///
/// So activations of 1 x 128 and weights of 128 x 128, as DeepSeek's, are passed as PyTorch's `_scaled_mm` wants them, and
/// groups of weights as GPTQ and AWQ store them. The last block along an axis may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// Elements of K in a block, a multiple of 32.
    pub terms: usize,
    /// Rows of A or columns of B in a block: 1, or a multiple of 32.
    pub lines: usize,
    /// Format of the scales: `F32`, `F16` or `BF16`.
    pub dtype: DType,
    /// Whether each block has a zero point beside its scale, for integers. It is an `I8` beside `I8` and `I4`, and a `U8`
    /// beside `U8` and `U4`.
    pub zero_points: bool,
}

impl Blocks {
    /// Blocks of this many elements of K in a single row of A or column of B, with `f32` scales.
    pub const fn groups(terms: usize) -> Blocks {
        Blocks { terms, lines: 1, dtype: DType::F32, zero_points: false }
    }

    /// Blocks of this many elements of K and as many rows of A or columns of B, with `f32` scales.
    pub const fn squares(terms: usize) -> Blocks {
        Blocks { terms, lines: terms, dtype: DType::F32, zero_points: false }
    }

    /// The same with scales of another format.
    #[must_use]
    pub const fn scales_as(self, dtype: DType) -> Blocks {
        Blocks { dtype, ..self }
    }

    /// The same with a zero point for each block.
    #[must_use]
    pub const fn with_zero_points(self) -> Blocks {
        Blocks { zero_points: true, ..self }
    }

    /// The format of zero points of elements of this format.
    pub const fn zero_format(element: DType) -> DType {
        match element {
            DType::I4 | DType::I8 => DType::I8,
            _ => DType::U8,
        }
    }

    /// Whether the numbers are ones that kernels know, and the cure if not.
    pub(crate) fn broken_rule(&self, element: DType) -> Option<&'static str> {
        let integers = matches!(element, DType::I8 | DType::U8 | DType::I4 | DType::U4);
        let comes = |number: usize| number > 0 && number.is_multiple_of(32) && number <= Shape::LARGEST;
        [
            (comes(self.terms), "a block has a multiple of 32 elements of K, such as 128"),
            (self.lines == 1 || comes(self.lines), "a block has one row or column, or a multiple of 32"),
            (matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16), "scales are f32, f16 or bf16"),
            (!self.zero_points || integers, "zero points belong to integers; leave them out"),
        ]
        .into_iter()
        .find_map(|(holds, rule)| (!holds).then_some(rule))
    }

    /// Blocks along the lines and along K of an operand with this many.
    pub const fn counts(&self, lines: usize, k: usize) -> [usize; 2] {
        [lines.div_ceil(self.lines), k.div_ceil(self.terms)]
    }

    /// Whether scales of neighbouring lines lie beside each other, and not those along K.
    pub const fn lines_contiguous(&self) -> bool {
        self.lines == 1
    }

    /// The order of the scales of A as a matrix of lines by K, and of B as one of K by lines.
    pub(crate) const fn order(&self, of_a: bool) -> Order {
        if self.lines_contiguous() == of_a { Order::ColumnMajor } else { Order::RowMajor }
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} scaled in {}", self.lines, self.terms, self.dtype)?;
        f.write_str(if self.zero_points { " with zero points" } else { "" })
    }
}

/// An argument that belongs to the blocks of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ScaleField {
    /// The operand: 0 for `a`, 1 for `b`.
    pub operand: usize,
    /// Whether it has the zero points, and not the scales.
    pub zero: bool,
}

impl ScaleField {
    /// Every argument of this kind, in the order of slots.
    pub const ALL: [ScaleField; 4] = [
        ScaleField { operand: 0, zero: false },
        ScaleField { operand: 1, zero: false },
        ScaleField { operand: 0, zero: true },
        ScaleField { operand: 1, zero: true },
    ];

    /// Those that an operation has.
    pub fn of(operation: Operation) -> impl Iterator<Item = ScaleField> + Clone {
        let scales = operation.scales();
        ScaleField::ALL.into_iter().filter(move |field| scales[field.operand].is_some_and(|b| b.zero_points || !field.zero))
    }

    /// Its name among the arguments of a launch.
    pub const fn name(self) -> &'static str {
        match self {
            ScaleField { operand: 0, zero: false } => "a_scale",
            ScaleField { operand: 0, zero: true } => "a_zero",
            ScaleField { zero: false, .. } => "b_scale",
            ScaleField { zero: true, .. } => "b_zero",
        }
    }

    /// Its format.
    pub(crate) fn format(self, operation: Operation) -> DType {
        let scales = operation.scales()[self.operand].map_or(DType::F32, |blocks| blocks.dtype);
        if self.zero { Blocks::zero_format(operation.dtypes()[self.operand]) } else { scales }
    }
}
