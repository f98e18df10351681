//! cuBLASLt's products over the operands of a contest.

use crate::Result;
use crate::case::Fused;
use crate::cublaslt::{self, Addresses, Library, Request};
use crate::operands::{Operands, Set};
use postlude::cudarc::driver::CudaStream;
use postlude::ir::Order;
use postlude::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// What it does to its accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    None,
    Bias,
    ReluBias,
    GeluBias,
    /// Adds C, which is not D.
    PlusC,
}

impl Epilogue {
    /// The whole epilogue, if it has that; else what it has of it: the bias.
    pub fn of(fused: Fused) -> Epilogue {
        match fused {
            Fused::Identity => Epilogue::None,
            Fused::Relu => Epilogue::ReluBias,
            Fused::Gelu => Epilogue::GeluBias,
            Fused::Residual => Epilogue::PlusC,
            Fused::Regions | Fused::Heavy => Epilogue::Bias,
        }
    }

    fn has_bias(self) -> bool {
        matches!(self, Epilogue::Bias | Epilogue::ReluBias | Epilogue::GeluBias)
    }

    /// `CUBLASLT_EPILOGUE_*`.
    fn number(self) -> u32 {
        match self {
            Epilogue::None | Epilogue::PlusC => 1,
            Epilogue::Bias => 4,
            Epilogue::ReluBias => 6,
            Epilogue::GeluBias => 36,
        }
    }
}

/// Some rows of a product of ours.
pub struct Product<'l> {
    product: cublaslt::Product<'l>,
    epilogue: Epilogue,
    rows: Range<usize>,
    layout: Layout,
    /// Of the whole product.
    shape: Shape,
}

impl<'l> Product<'l> {
    /// The rows have to be all of them if A is column-major.
    pub fn new(
        library: &'l Library,
        dtype: DType,
        layout: Layout,
        shape: Shape,
        rows: Range<usize>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        if rows.end > shape.m || (layout.a() == Order::ColumnMajor && rows.len() < shape.m) {
            return Err(format!("rows {rows:?} of {shape} do not lie together").into());
        }
        let part = Shape { m: rows.len(), ..shape };
        let request = Request { dtype, layout, shape: part, epilogue: epilogue.number(), bias: dtype, aux_ld: 0 };
        let product = cublaslt::Product::new(library, &request, &Addresses::default())?;
        Ok(Product { product, epilogue, rows, layout, shape })
    }

    /// How many algorithms were proposed.
    pub fn algorithms(&self) -> usize {
        self.product.algorithms()
    }

    /// What an algorithm is called in a table.
    pub fn name(&self, algorithm: usize) -> String {
        format!("algorithm {} of {}", algorithm + 1, self.algorithms())
    }

    pub fn launch(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize, algorithm: usize) -> Result<()> {
        if operands.shape != self.shape {
            return Err(format!("operands of {} for a product of {}", operands.shape, self.shape).into());
        }
        let size = operands.dtype.size();
        let Set { a, b, bias, c, d, .. } = operands.set(turn);
        let row_of_a = if self.layout.a() == Order::RowMajor { self.shape.k } else { 0 };
        let at = |address: u64, row: usize| address + (self.rows.start * row * size) as u64;
        let with_c = self.epilogue == Epilogue::PlusC;
        let addresses = Addresses {
            a: at(a.address(stream), row_of_a),
            b: b.address(stream),
            c: at(c.address(stream), self.shape.n),
            d: at(d.address_mut(stream), self.shape.n),
            bias: if self.epilogue.has_bias() { bias.address(stream) } else { 0 },
            aux: 0,
        };
        // SAFETY: A, B, bias, C and D are device memory of the shape that was compared above, of which the addresses are those
        // of the rows from the first of `rows` on; they are borrowed here, and there is one stream, which whoever times it waits
        // for.
        unsafe { self.product.launch(stream, &addresses, [1.0, f32::from(with_c)], algorithm) }
    }
}
