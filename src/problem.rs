//! The operation that produces the accumulator, and its extents.

mod attention;
mod convolution;
mod layouts;
mod patches;
mod pooling;
mod scales;
mod scores;

pub use attention::Attention;
pub use convolution::{ConvFault, ConvShape, Convolution};
pub use layouts::{nchw_to_nhwc, nhwc_to_nchw, oihw_to_krsc};
pub use patches::{GradientOf, Patches, Windows};
pub use pooling::{PoolKind, Pooling};
pub use scales::{Blocks, ScaleField};
pub use scores::Scores;

use crate::dtype::{DType, ValueType};
use crate::ir::Order;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How A and B lie in memory, in BLAS's letters: A's first, then B's.
///
/// | | A (M x K) | B (K x N) |
/// | --- | --- | --- |
/// | `TN` | row-major, K contiguous | column-major, K contiguous: weights stored N x K |
/// | `TT` | row-major, K contiguous | row-major, N contiguous |
/// | `NN` | column-major, M contiguous | column-major, K contiguous |
/// | `NT` | column-major, M contiguous | row-major, N contiguous |
///
/// The arrows run along consecutive elements in memory:
///
/// ```text
///        A          B              A          B              A          B              A          B
///      K ->       N               K ->       N ->          K          N               K          N ->
///    M [-->]    K [|  ]         M [-->]    K [-->]       M [|  ]    K [|  ]         M [|  ]    K [-->]
///      [-->]      [v  ]           [-->]      [-->]         [v  ]      [v  ]           [v  ]      [-->]
///         TN                         TT                        NN                        NT
/// ```
///
/// Two row-major matrices, as NumPy and PyTorch create them, give `x @ w` as `TT`. A linear layer, `x @ w.T` with `w`
/// stored N x K, is `TN`, the layout that tensor cores read fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// K contiguous in both: A row-major, B column-major, as in `x @ w.T` of row-major `x` and `w`.
    TN,
    /// M contiguous in A, K in B: both matrices column-major, as in BLAS and Fortran.
    NN,
    /// M contiguous in A, N in B: A column-major, B row-major, as in `x.T @ y` of row-major `x` and `y`.
    NT,
    /// K contiguous in A, N in B: both matrices row-major, as in `x @ y`.
    TT,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Layout; 4] = [Layout::TN, Layout::NN, Layout::NT, Layout::TT];

    /// The layout with a given name: `TN`, `NN`, `NT` or `TT`.
    pub fn from_name(name: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.to_string() == name)
    }

    /// The layout of operands in these orders, as M x K and K x N matrices.
    pub const fn of(a: Order, b: Order) -> Layout {
        match (a, b) {
            (Order::RowMajor, Order::ColumnMajor) => Layout::TN,
            (Order::RowMajor, Order::RowMajor) => Layout::TT,
            (Order::ColumnMajor, Order::ColumnMajor) => Layout::NN,
            (Order::ColumnMajor, Order::RowMajor) => Layout::NT,
        }
    }

    /// A's order as an M x K matrix.
    pub const fn a(self) -> Order {
        match self {
            Layout::TN | Layout::TT => Order::RowMajor,
            Layout::NN | Layout::NT => Order::ColumnMajor,
        }
    }

    /// B's order as a K x N matrix.
    pub const fn b(self) -> Order {
        match self {
            Layout::TN | Layout::NN => Order::ColumnMajor,
            Layout::NT | Layout::TT => Order::RowMajor,
        }
    }

    /// The layout of the transposed product. Its A is this B, and its B is this A.
    #[must_use]
    pub const fn transposed(self) -> Layout {
        match self {
            Layout::NN => Layout::TT,
            Layout::TT => Layout::NN,
            same => same,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The operation that produces the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A matrix product of `a` (M x K) and `b` (K x N), accumulated in `f32` (`f64` for `f64`, `i32` for integers). Both
    /// have one format, except that the two fp8 formats may be mixed, and the two 8-bit integers, and that one of them may be
    /// of eight or four bits beside a 16-bit one.
    Product {
        /// Format of A.
        a: DType,
        /// Format of B.
        b: DType,
        /// Their layout.
        layout: Layout,
        /// The blocks of A and of B that are scaled, if they are.
        #[serde(default, skip_serializing_if = "are_unscaled")]
        scales: [Option<Blocks>; 2],
    },
    /// A convolution of the images `a` with the filters `b`: a product of one row for each output pixel, and one column for
    /// each filter.
    Convolution {
        /// Format of both.
        dtype: DType,
        /// What it measures.
        convolution: Convolution,
    },
    /// A gradient of a convolution. `a` is the gradient of its output, dY. For the gradient of the images `b` are the filters:
    /// a product of one row for each pixel of X and one column for each channel. For the gradient of the filters `b` are the
    /// images: each row is a filter, each column an element of it, and a group is a batch entry.
    ConvolutionGradient {
        /// Format of both.
        dtype: DType,
        /// What the convolution measures.
        convolution: Convolution,
        /// Whose gradient it is.
        of: GradientOf,
    },
    /// An attention: a product of the softmax of scores, which is computed on the way from the queries `a` and `keys`, and of the
    /// values `b`.
    Attention {
        /// Format of queries, keys and values.
        dtype: DType,
        /// What it measures.
        attention: Attention,
    },
    /// A pool of the images `a`: one row for each output pixel, one column for each channel, and no product.
    Pool {
        /// Format of the images: `f32`, `f16` or `bf16`.
        dtype: DType,
        /// What it measures.
        pooling: Pooling,
    },
    /// An existing matrix `a` (M x N): no product, and K is ignored.
    Pointwise {
        /// Its format.
        dtype: DType,
        /// Its order.
        order: Order,
    },
}

/// Whether neither operand has blocks.
fn are_unscaled(scales: &[Option<Blocks>; 2]) -> bool {
    *scales == [None; 2]
}

impl Operation {
    /// The product of matrices of one format.
    pub const fn product(dtype: DType, layout: Layout) -> Operation {
        Operation::mixed(dtype, dtype, layout)
    }

    /// The product of matrices of two formats.
    pub const fn mixed(a: DType, b: DType, layout: Layout) -> Operation {
        Operation::Product { a, b, layout, scales: [None; 2] }
    }

    /// The blocks of `a` and `b` that are scaled along K.
    pub const fn scales(self) -> [Option<Blocks>; 2] {
        match self {
            Operation::Product { scales, .. } => scales,
            _ => [None; 2],
        }
    }

    /// Whether an operand has blocks that are scaled.
    pub(crate) const fn is_scaled(self) -> bool {
        !matches!(self.scales(), [None, None])
    }

    /// The operand with weights of eight or four bits beside a 16-bit operand, which are widened on their way: 0 for `a`, 1
    /// for `b`.
    pub(crate) const fn widened(self) -> Option<usize> {
        match self.dtypes() {
            [a, b] if a.widens_beside(b) => Some(0),
            [a, b] if b.widens_beside(a) => Some(1),
            _ => None,
        }
    }

    /// The format that is multiplied: that of `a`, or the wider one if the other is widened.
    pub(crate) const fn multiplied(self) -> DType {
        match self.widened() {
            Some(narrow) => self.dtypes()[1 - narrow],
            None => self.dtype(),
        }
    }

    /// Format of `a`. That of `b`, if there is one, has elements of the same size and values of the same type, unless one of
    /// them has fewer bits than the other and is widened.
    pub const fn dtype(self) -> DType {
        self.dtypes()[0]
    }

    /// Formats of `a` and `b`; without a product `a`'s twice.
    pub const fn dtypes(self) -> [DType; 2] {
        match self {
            Operation::Product { a, b, .. } => [a, b],
            Operation::Convolution { dtype, .. }
            | Operation::ConvolutionGradient { dtype, .. }
            | Operation::Attention { dtype, .. }
            | Operation::Pool { dtype, .. }
            | Operation::Pointwise { dtype, .. } => [dtype; 2],
        }
    }

    /// How A and B of a product lie. A convolution's do as `TN`: K is contiguous in a filter, and in a pixel tap by tap. Those of
    /// the gradient of its images do as `TT`, and those of the gradient of its filters as `NT`. The weights and values of an
    /// attention do as `TT`.
    pub const fn layout(self) -> Option<Layout> {
        match (self, self.patches()) {
            (Operation::Product { layout, .. }, _) => Some(layout),
            (Operation::Attention { .. }, _) => Some(Layout::TT),
            (_, Some(patches)) => Some(patches.layout()),
            _ => None,
        }
    }

    /// Whether K is the contiguous axis of `a`, and of `b`.
    pub(crate) fn k_contiguous(self) -> [bool; 2] {
        self.layout().map_or([true; 2], |layout| [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor])
    }

    /// Whether it multiplies: a product, a convolution or a gradient of one, or an attention.
    pub const fn multiplies(self) -> bool {
        self.layout().is_some()
    }

    /// The convolution, if it is one.
    pub const fn convolution(self) -> Option<Convolution> {
        match self {
            Operation::Convolution { convolution, .. } => Some(convolution),
            _ => None,
        }
    }

    /// The attention, if it is one.
    pub const fn attention(self) -> Option<Attention> {
        match self {
            Operation::Attention { attention, .. } => Some(attention),
            _ => None,
        }
    }

    /// How it reads images, if it does: a convolution or a gradient of one.
    pub const fn patches(self) -> Option<Patches> {
        match self {
            Operation::Convolution { convolution, .. } => Some(Patches { convolution, gradient: None }),
            Operation::ConvolutionGradient { convolution, of, .. } => Some(Patches { convolution, gradient: Some(of) }),
            _ => None,
        }
    }

    /// The same operation in its simplest form: a convolution that reads each pixel once is a product, and so are its gradients.
    #[must_use]
    pub(crate) fn simplest(self) -> Operation {
        match self.patches() {
            Some(patches) if patches.convolution.is_product() => Operation::product(self.dtype(), patches.layout()),
            _ => self,
        }
    }

    /// The extents of its launches, if it has its own: those of a convolution, a gradient of one, or a pool.
    pub(crate) fn extents(self) -> Option<Shape> {
        self.patches().map(|patches| patches.shape()).or(self.pooling().map(|pooling| pooling.shape()))
    }

    /// The pool, if it is one.
    pub const fn pooling(self) -> Option<Pooling> {
        match self {
            Operation::Pool { pooling, .. } => Some(pooling),
            _ => None,
        }
    }

    /// Whether `b` has another format than `a`.
    pub const fn is_mixed(self) -> bool {
        let [a, b] = self.dtypes();
        a as u8 != b as u8
    }

    /// The type of its accumulator.
    pub const fn accumulator(self) -> ValueType {
        let [a, b] = self.dtypes();
        if a.value_type().is_float() { a.value_type() } else { b.value_type() }
    }

    /// The operation that computes the transposed matrix. Plans never transpose what reads images, nor an attention: these stay
    /// as they are.
    #[must_use]
    pub const fn transposed(self) -> Operation {
        match self {
            Operation::Product { a, b, layout, scales: [of_a, of_b] } => {
                Operation::Product { a: b, b: a, layout: layout.transposed(), scales: [of_b, of_a] }
            }
            Operation::Pointwise { dtype, order } => Operation::Pointwise { dtype, order: order.transposed() },
            other => other,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Product { a, b, layout, scales } => {
                write!(f, "product of {a}")?;
                if self.is_mixed() {
                    write!(f, " and {b}")?;
                }
                write!(f, ", {layout}")?;
                let named = ["a", "b"].into_iter().zip(scales).filter_map(|(name, blocks)| Some((name, (*blocks)?)));
                named.into_iter().try_for_each(|(name, blocks)| write!(f, ", {name} in blocks of {blocks}"))
            }
            Operation::Convolution { dtype, convolution } => write!(f, "convolution of {dtype}, {convolution}"),
            Operation::ConvolutionGradient { dtype, convolution, of } => {
                write!(f, "gradient of the {of} of a convolution of {dtype}, {convolution}")
            }
            Operation::Attention { dtype, attention } => write!(f, "attention of {dtype}, {attention}"),
            Operation::Pool { dtype, pooling } => write!(f, "pool of {dtype}, {pooling}"),
            Operation::Pointwise { dtype, order } => write!(f, "pointwise over {dtype}, {}", order.name()),
        }
    }
}

/// Extents: M x N outputs, K products each, L batch entries. Any of them may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// K elements of each product.
    pub k: usize,
    /// Batch entries (L).
    pub batch: usize,
}

impl Shape {
    /// The largest permitted M, N, K and L: 2^31 - 2^16. Kernels count elements of an axis in 32 bits, up to the end of
    /// the last tile or step of K.
    pub const LARGEST: usize = (1 << 31) - (1 << 16);
    /// The limit in words.
    pub(crate) const LIMIT: &'static str = "M, N, K and the batch are at most 2147418112 each (`Shape::LARGEST`)";

    /// Whether an extent exceeds the limit.
    pub(crate) const fn is_too_large(self) -> bool {
        self.m > Self::LARGEST || self.n > Self::LARGEST || self.k > Self::LARGEST || self.batch > Self::LARGEST
    }

    /// One M x N x K problem.
    pub const fn new(m: usize, n: usize, k: usize) -> Shape {
        Shape { m, n, k, batch: 1 }
    }

    /// A matrix of M rows and N columns, for a pointwise operation, which has no K.
    pub const fn matrix(m: usize, n: usize) -> Shape {
        Shape { m, n, k: 0, batch: 1 }
    }

    /// The same for each of `batch` entries.
    #[must_use]
    pub const fn batched(self, batch: usize) -> Shape {
        Shape { batch, ..self }
    }

    /// The transposed problem.
    #[must_use]
    pub const fn transposed(self) -> Shape {
        Shape { m: self.n, n: self.m, ..self }
    }

    /// Whether the output has no element.
    pub const fn is_empty(self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} x {}", self.m, self.n, self.k)?;
        if self.batch == 1 { Ok(()) } else { write!(f, " x {} batches", self.batch) }
    }
}
