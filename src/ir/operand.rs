//! Operands: how a matrix, a vector or a scalar in memory is described to the graph.

use super::axes::{Axes, L};
use crate::dtype::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which axis of a matrix is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A row's elements are contiguous; the leading dimension is the distance between rows.
    #[default]
    RowMajor,
    /// A column's elements are contiguous; the leading dimension is the distance between columns.
    ColumnMajor,
}

impl Order {
    /// The name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Order::RowMajor => "row_major",
            Order::ColumnMajor => "column_major",
        }
    }

    /// The order of a matrix that is stored transposed, or not.
    pub const fn stored(transposed: bool) -> Order {
        if transposed { Order::ColumnMajor } else { Order::RowMajor }
    }

    /// The other order.
    pub const fn transposed(self) -> Order {
        match self {
            Order::RowMajor => Order::ColumnMajor,
            Order::ColumnMajor => Order::RowMajor,
        }
    }
}

/// The format of an operand in memory, the axes it varies along and, for a matrix, its order.
///
/// Start from a [`DType`]: `F16.into()` is a row-major matrix, one per batch entry; `F16.over(N)` a vector with one
/// element per column, shared by the batch; `F32.pointer()` one number in device memory.
///
/// ```
/// use postlude::prelude::*;
/// let bias = F16.over(N);
/// let per_sample_scale = F32.over(M).batched();
/// let residual = Operand::from(BF16).column_major();
/// assert_eq!(bias.to_string(), "f16[N]");
/// assert_eq!(per_sample_scale.to_string(), "f32[M,L]");
/// assert_eq!(residual.to_string(), "bf16[M,N,L] column_major");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// The storage format.
    pub dtype: DType,
    /// The axes it varies along. With L there is a batch stride, without it the batch shares the operand.
    pub axes: Axes,
    /// The order; meaningful for a matrix only.
    #[serde(default)]
    pub order: Order,
}

impl Operand {
    /// Column-major.
    #[must_use]
    pub const fn column_major(self) -> Operand {
        Operand { order: Order::ColumnMajor, ..self }
    }

    /// One for each batch entry, at a batch stride given at launch.
    #[must_use]
    pub const fn batched(self) -> Operand {
        Operand { axes: self.axes.union(L), ..self }
    }

    /// The same for every batch entry.
    #[must_use]
    pub const fn shared(self) -> Operand {
        Operand { axes: self.axes.without(L), ..self }
    }

    /// The operand as the transposed problem sees it.
    #[must_use]
    pub const fn transposed(self) -> Operand {
        let order = if self.axes.is_matrix() { self.order.transposed() } else { self.order };
        Operand { dtype: self.dtype, axes: self.axes.transposed(), order }
    }

    /// The same operand in the only form that a graph contains: an order has no meaning unless the operand is a matrix.
    #[must_use]
    pub(crate) const fn canonical(self) -> Operand {
        if self.axes.is_matrix() { self } else { Operand { order: Order::RowMajor, ..self } }
    }
}

impl From<DType> for Operand {
    fn from(dtype: DType) -> Operand {
        Operand { dtype, axes: Axes::MNL, order: Order::RowMajor }
    }
}

impl DType {
    /// A vector of this format over M or N (or a matrix, over both), shared by the batch.
    #[must_use]
    pub const fn over(self, axes: Axes) -> Operand {
        Operand { dtype: self, axes, order: Order::RowMajor }
    }

    /// One number of this format in device memory, read through a pointer at launch.
    #[must_use]
    pub const fn pointer(self) -> Operand {
        self.over(Axes::NONE)
    }

    /// A column-major matrix of this format.
    #[must_use]
    pub const fn column_major(self) -> Operand {
        self.over(Axes::MNL).column_major()
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.axes)?;
        match self.order {
            Order::ColumnMajor if self.axes.is_matrix() => write!(f, " {}", self.order.name()),
            _ => Ok(()),
        }
    }
}
