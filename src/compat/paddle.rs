//! Paddle's `fused_gemm_epilogue` and `fused_gemm_epilogue_grad`: their attributes and shapes as products with epilogues.
//!
//! Forward: Out = activation(X Y + bias). X has two dimensions or more, of which all but the last are rows; Y has two, bias one.
//! Backward, as two products: DX = (DOut Y^T) with the derivative of the *previous* layer's activation, whose reserve it
//! reads; DY = X^T DOut; DBias = the sum of DOut over its rows, which the product that makes DY can take along, if DY has
//! elements. In a chain of these operators, where X is the previous one's Out, that one's DBias is the sum of DX over its
//! rows, which the product that makes DX can store along with it: see [`FusedGemmEpilogue::backward_with_bias`].
//!
//! # Where it differs
//!
//! - N may be anything: Paddle wants a multiple of 128 for ReLU and of 8 for GELU. Where it is one, the reserves are the
//!   same bytes: ReLU's is a mask in [`Bits128`](DType::Bits128), in the first eighth of what Paddle allocates for it.
//! - The rows of a transposed X are its first dimension, and all others its columns, as Paddle's kernels multiply it. Of Paddle's shape
//!   functions the older ones agree; newer ones take it for a batch of matrices where it has more than two dimensions. Its DX has the
//!   rows and columns that the operator before gave X, so that reserve and DBias are that operator's.
//! - Gradients are stored. What Paddle calls add-to, a gradient that is added to what is there, is asked of the step that runs:
//!   `layer::Step::accumulate`.

use super::cublaslt::{self, Formats};
use crate::args::Args;
use crate::build::Epilogue;
use crate::check::Diagnostics;
use crate::dtype::{DType, ValueType};
use crate::ir::axes::N;
use crate::ir::{Monoid, Order};
use crate::problem::{Layout, Operation, Shape};

/// The attribute `activation` and, of the gradient, `activation_grad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `none`.
    None,
    /// `relu`, `relu_grad`.
    Relu,
    /// `gelu`, `gelu_grad`: the tanh form.
    Gelu,
}

impl Activation {
    /// The activation of a value of the attribute `activation`: `none`, `relu` or `gelu`.
    pub fn from_name(name: &str) -> Option<Activation> {
        match name {
            "none" => Some(Activation::None),
            "relu" => Some(Activation::Relu),
            "gelu" => Some(Activation::Gelu),
            _ => None,
        }
    }

    /// The activation of a value of the gradient's attribute `activation_grad`: `none`, `relu_grad` or `gelu_grad`.
    pub fn from_gradient_name(name: &str) -> Option<Activation> {
        match name {
            "none" => Some(Activation::None),
            "relu_grad" => Some(Activation::Relu),
            "gelu_grad" => Some(Activation::Gelu),
            _ => None,
        }
    }
}

/// The attributes of the operator, or of its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedGemmEpilogue {
    /// X lies K x M.
    pub trans_x: bool,
    /// Y lies N x K.
    pub trans_y: bool,
    /// Of this layer; of the gradient operator, the previous layer's.
    pub activation: Activation,
    /// The format of all tensors.
    pub dtype: DType,
}

/// A tensor of the operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorName {
    /// X.
    X,
    /// Y.
    Y,
    /// The gradient of Out.
    DOut,
}

/// One product to run: `a` and `b` are these tensors as they lie, the result is `d`, a bias gradient `bgrad`, the reserve `aux`.
///
/// Pass every argument list through [`arrange`](Product::arrange): a transposed X of more than two dimensions makes DX a batch of
/// products, whose tensors do not lie one entry behind the other. (Without it such a step refuses `a` as too short.)
#[derive(Clone, Debug)]
pub struct Product {
    /// What is passed as `a`.
    pub a: TensorName,
    /// What is passed as `b`.
    pub b: TensorName,
    /// The operation.
    pub operation: Operation,
    /// Its extents.
    pub shape: Shape,
    /// Its epilogue.
    pub epilogue: Epilogue,
    /// Dimensions of the result `d`.
    pub dims: Vec<usize>,
    /// The reserve that it writes or reads, if there is one.
    pub reserve: Option<ReserveSpace>,
    /// How the arguments lie that are not contiguous.
    pub strides: Vec<Strides>,
}

/// How an argument lies, in elements of its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// The argument.
    pub name: &'static str,
    /// The distance of its rows, or columns if it lies column by column.
    pub leading_dimension: usize,
    /// The distance of its batch entries; 0 if they share it.
    pub batch_stride: usize,
}

/// What lies in `reserve_space`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveSpace {
    /// ReLU's is a mask in [`Bits128`](DType::Bits128), GELU's has the format of all tensors.
    pub dtype: DType,
    /// Its dimensions: those of the tensor that the activation made, as Paddle infers them.
    pub dims: Vec<usize>,
    /// The bytes that it takes: of a mask 16 for each 128 columns begun, where Paddle allocates one for each element.
    pub bytes: usize,
}

impl Product {
    fn new(
        (a, b): (TensorName, TensorName),
        operation: Operation,
        shape: Shape,
        epilogue: Epilogue,
        dims: Vec<usize>,
    ) -> Product {
        let reserve = epilogue.checked().argument("aux").and_then(|(_, aux)| aux.role.operand()).map(|aux| {
            let (columns, rows) = dims.split_last().map_or((0, 0), |(last, rows)| (*last, count(rows)));
            // Both are at most `Shape::LARGEST`, so that this fits 64 bits.
            let bytes = rows * aux.dtype.bytes(columns.next_multiple_of(aux.dtype.run()));
            ReserveSpace { dtype: aux.dtype, dims: dims.clone(), bytes }
        });
        Product { a, b, operation, shape, epilogue, dims, reserve, strides: Vec::new() }
    }

    /// The argument list with the tensors' strides: the buffers are those of the tensors, whole and as they lie.
    #[must_use]
    pub fn arrange<B>(&self, args: Args<B>) -> Args<B> {
        arranged(&self.strides, args)
    }
}

/// Arguments with these strides.
pub(crate) fn arranged<B>(strides: &[Strides], args: Args<B>) -> Args<B> {
    strides.iter().fold(args, |args, s| args.strided(s.name, s.leading_dimension, s.batch_stride))
}

/// The gradient operator.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// DX, and with [`FusedGemmEpilogue::backward_with_bias`] the previous operator's DBias as `bgrad`.
    pub dx: Product,
    /// DY.
    pub dy: Product,
    /// DY, and DBias as `bgrad`: where that has not come out of the next operator's DX.
    pub dy_with_bias: Product,
}

/// Why the operator refuses its inputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaddleError {
    /// The wrong number of dimensions.
    #[error("{tensor} has {got} dimensions; it needs {needs}")]
    Rank {
        /// The tensor.
        tensor: &'static str,
        /// What it needs.
        needs: &'static str,
        /// How many it has.
        got: usize,
    },
    /// Two extents that should be the same.
    #[error("{left} is {a}, and {right} is {b}: they have to be the same")]
    Extent {
        /// One.
        left: &'static str,
        /// Its value.
        a: usize,
        /// The other.
        right: &'static str,
        /// Its value.
        b: usize,
    },
    /// A tensor with more rows or columns than a product has.
    #[error("{tensor} of the dimensions {dims:?} is too large: {limit}", limit = Shape::LIMIT)]
    TooLarge {
        /// The tensor.
        tensor: &'static str,
        /// Its dimensions.
        dims: Vec<usize>,
    },
    /// A reserve without an activation.
    #[error("a reserve is of no use with activation `none`: leave it out")]
    UselessReserve,
    /// An activation's gradient without a reserve.
    #[error("the derivative of an activation needs its reserve: pass it, or use activation `none`")]
    MissingReserve,
    /// A format that the operator does not have.
    #[error("the operator multiplies matrices of f32, f16 or bf16, and not of {0}")]
    Operands(DType),
    /// An epilogue that breaks a rule.
    #[error(transparent)]
    Format(#[from] Diagnostics),
}

/// Rows and columns of X, Y and Out.
struct Extents {
    m: usize,
    n: usize,
    k: usize,
}

impl FusedGemmEpilogue {
    fn formats(&self) -> Formats {
        Formats { scaled: false, ..Formats::of(self.dtype) }
    }

    fn extents(&self, x: &[usize], y: &[usize]) -> Result<Extents, PaddleError> {
        let rank = |tensor, needs, got| Err(PaddleError::Rank { tensor, needs, got });
        if self.dtype.value_type() != ValueType::F32 {
            return Err(PaddleError::Operands(self.dtype));
        }
        let &[y0, y1] = y else { return rank("Y", "2", y.len()) };
        let Some((&last, leading)) = x.split_last().filter(|(_, leading)| !leading.is_empty()) else {
            return rank("X", "2 or more", x.len());
        };
        let (m, k) = if self.trans_x { (count(&x[1..]), x[0]) } else { (count(leading), last) };
        let (n, inner) = if self.trans_y { (y0, y1) } else { (y1, y0) };
        same(("K of X", k), ("K of Y", inner))?;
        for (tensor, dims, extents) in [("X", x, [m, k]), ("Y", y, [k, n])] {
            if extents.iter().any(|extent| *extent > Shape::LARGEST) {
                return Err(PaddleError::TooLarge { tensor, dims: dims.to_vec() });
            }
        }
        Ok(Extents { m, n, k })
    }

    /// Dimensions of Out.
    fn out(&self, x: &[usize], extents: &Extents) -> Vec<usize> {
        let rows = if self.trans_x { &x[1..] } else { &x[..x.len() - 1] };
        rows.iter().copied().chain([extents.n]).collect()
    }

    fn product(&self, layout: Layout) -> Operation {
        Operation::Product { dtype: self.dtype, layout }
    }

    /// Out, with the reserve if asked for.
    ///
    /// # Errors
    /// If the dimensions do not fit, or there is no activation to save something of.
    pub fn forward(&self, x: &[usize], y: &[usize], bias: &[usize], reserve: bool) -> Result<Product, PaddleError> {
        let extents = self.extents(x, y)?;
        let &[length] = bias else { return Err(PaddleError::Rank { tensor: "bias", needs: "1", got: bias.len() }) };
        same(("the length of bias", length), ("N of Y", extents.n))?;
        let epilogue = match (self.activation, reserve) {
            (Activation::None, true) => return Err(PaddleError::UselessReserve),
            (Activation::None, false) => cublaslt::bias(self.formats()),
            (Activation::Relu, false) => cublaslt::relu_bias(self.formats()),
            (Activation::Relu, true) => cublaslt::relu_aux_bias(self.formats()),
            (Activation::Gelu, false) => cublaslt::gelu_bias(self.formats()),
            (Activation::Gelu, true) => cublaslt::gelu_aux_bias(self.formats()),
        };
        let operation = self.product(Layout::of(Order::stored(self.trans_x), Order::stored(self.trans_y)));
        let shape = Shape::new(extents.m, extents.n, extents.k);
        let dims = self.out(x, &extents);
        Ok(Product::new((TensorName::X, TensorName::Y), operation, shape, epilogue?, dims))
    }

    /// The gradients, with the reserve of the previous layer's activation if there is one.
    ///
    /// # Errors
    /// If the dimensions do not fit, or a reserve is missing.
    pub fn backward(&self, dout: &[usize], x: &[usize], y: &[usize], reserve: bool) -> Result<Gradients, PaddleError> {
        let (formats, extents) = (self.formats(), self.extents(x, y)?);
        let activation = self.activation_before(reserve)?;
        let epilogue = match activation {
            Activation::None => cublaslt::default(formats),
            Activation::Relu => cublaslt::drelu(formats),
            Activation::Gelu => cublaslt::dgelu(formats),
        };
        // Elements lie without gaps, and so do the bits of rows that fill their lines: all dimensions but the first are one.
        let lines_are_whole = x.last().is_some_and(|last| last.is_multiple_of(DType::Bits128.run()));
        let entries = activation == Activation::Relu && !lines_are_whole;
        self.gradients(dout, [x, y], extents, epilogue?, entries)
    }

    /// The same, where the product that makes DX also stores its sum over its rows as `bgrad`: DBias of the previous operator,
    /// whose Out X is, in place of [`dy_with_bias`](Gradients::dy_with_bias) of that operator. It is summed before DX is rounded, over
    /// all dimensions but the last, and has as many elements as that.
    ///
    /// # Errors
    /// As [`backward`](FusedGemmEpilogue::backward).
    pub fn backward_with_bias(&self, dout: &[usize], x: &[usize], y: &[usize], reserve: bool) -> Result<Gradients, PaddleError> {
        let (formats, extents) = (self.formats(), self.extents(x, y)?);
        let epilogue = match self.activation_before(reserve)? {
            Activation::None => Epilogue::build(|e| {
                e.store("d", e.acc(), formats.d);
                e.reduce("bgrad", e.acc(), Monoid::Sum, formats.bias.over(N));
            }),
            Activation::Relu => cublaslt::drelu_bgrad(formats),
            Activation::Gelu => cublaslt::dgelu_bgrad(formats),
        };
        self.gradients(dout, [x, y], extents, epilogue?, true)
    }

    /// The previous layer's activation, whose derivative needs a reserve.
    fn activation_before(&self, reserve: bool) -> Result<Activation, PaddleError> {
        match self.activation {
            Activation::None if reserve => Err(PaddleError::UselessReserve),
            Activation::None => Ok(Activation::None),
            _ if !reserve => Err(PaddleError::MissingReserve),
            activation => Ok(activation),
        }
    }

    /// The gradients, with the epilogue of the product that makes DX. `entries`: whether what that stores or reads has rows of X's
    /// last dimension, also where X lies transposed.
    fn gradients(
        &self,
        dout: &[usize],
        [x, y]: [&[usize]; 2],
        extents: Extents,
        epilogue: Epilogue,
        entries: bool,
    ) -> Result<Gradients, PaddleError> {
        let Extents { m, n, k } = extents;
        let needed = self.out(x, &extents);
        if dout.len() != needed.len() {
            return Err(PaddleError::Rank { tensor: "DOut", needs: "as many as X", got: dout.len() });
        }
        for (needs, got) in needed.iter().zip(dout) {
            same(("an extent of DOut", *got), ("that of Out", *needs))?;
        }
        // DOut lies M x N; transposed views lie the other way.
        let (row, column) = (Order::RowMajor, Order::ColumnMajor);
        let (x_lies, y_lies) = (Order::stored(self.trans_x), Order::stored(self.trans_y));
        let step = |a, b, layout, [m, n, k]: [usize; 3], epilogue, dims: &[usize]| {
            Product::new((a, b), self.product(layout), Shape::new(m, n, k), epilogue, dims.to_vec())
        };
        let dx = match self.trans_x {
            true if entries && x.len() > 2 => {
                self.dx_by_entries(x, step(TensorName::Y, TensorName::DOut, Layout::of(y_lies, column), [k, m, n], epilogue, x))
            }
            false => step(TensorName::DOut, TensorName::Y, Layout::of(row, y_lies.transposed()), [m, k, n], epilogue, x),
            true => step(TensorName::Y, TensorName::DOut, Layout::of(y_lies, column), [k, m, n], epilogue, x),
        };
        let product_of_y = |epilogue| match self.trans_y {
            false => step(TensorName::X, TensorName::DOut, Layout::of(x_lies.transposed(), row), [k, n, m], epilogue, y),
            true => step(TensorName::DOut, TensorName::X, Layout::of(column, x_lies), [n, k, m], epilogue, y),
        };
        let dy = product_of_y(cublaslt::default(self.formats())?);
        // The sum of DOut over its rows, which are the product's terms: of its B or, if Y lies transposed, of its A.
        let sums = if self.trans_y { cublaslt::bgradb } else { cublaslt::bgrada };
        let dy_with_bias = product_of_y(sums(self.formats())?);
        Ok(Gradients { dx, dy, dy_with_bias })
    }
}

impl FusedGemmEpilogue {
    /// DX of an X that lies K x .. x C, as a product for each of the rows between: K rows of C columns, as the operator before made
    /// X. The entries lie inside of each other's rows.
    fn dx_by_entries(&self, x: &[usize], step: Product) -> Product {
        let (columns, n) = (x.last().copied().unwrap_or(1), step.shape.k);
        let entries = count(&x[1..x.len() - 1]);
        // Of Y every entry needs all.
        let y_line = if self.trans_y { step.shape.m } else { n };
        let line = |dtype: DType| columns.next_multiple_of(dtype.run());
        let strides = |name, leading_dimension, batch_stride| Strides { name, leading_dimension, batch_stride };
        let mut all = vec![strides("a", y_line, 0), strides("b", n, columns * n), strides("d", entries * columns, columns)];
        if let Some(reserve) = &step.reserve {
            all.push(strides("aux", entries * line(reserve.dtype), line(reserve.dtype)));
        }
        let shape = Shape::new(step.shape.m, columns, n).batched(entries);
        Product { shape, strides: all, ..step }
    }
}

/// How many rows these dimensions are. What is more than can be counted is as many as can.
fn count(dims: &[usize]) -> usize {
    dims.iter().fold(1, |rows: usize, extent| rows.saturating_mul(*extent))
}

fn same((left, a): (&'static str, usize), (right, b): (&'static str, usize)) -> Result<(), PaddleError> {
    if a == b { Ok(()) } else { Err(PaddleError::Extent { left, a, right, b }) }
}
