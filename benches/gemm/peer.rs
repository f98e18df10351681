//! cuBLASLt's products over the operands of a contest.

use crate::Result;
use crate::case::{Case, Fused, Group};
use crate::cublaslt::{self, Addresses, Library, Request};
use crate::operands::{Operands, Set, Training};
use postlude::cudarc::driver::{CudaStream, DevicePtrMut};
use postlude::ir::Order;
use postlude::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// The operation on its accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    None,
    Bias,
    ReluBias,
    GeluBias,
    /// Adds C, which is not D.
    PlusC,
    /// Stores the mask of ReLU.
    ReluAuxBias,
    /// Stores what GELU is applied to.
    GeluAuxBias,
    /// With the sum of each column.
    DreluBgrad,
    DgeluBgrad,
    /// With the sum over K of cuBLASLt's A, which is our B.
    Bgrada,
}

impl Epilogue {
    /// The whole epilogue, if cuBLASLt has it; otherwise the part that it has: the bias.
    pub fn of(fused: Fused) -> Epilogue {
        match fused {
            Fused::Identity | Fused::Activation(_) => Epilogue::None,
            Fused::Relu => Epilogue::ReluBias,
            Fused::Gelu => Epilogue::GeluBias,
            Fused::Residual => Epilogue::PlusC,
            Fused::Regions | Fused::Heavy => Epilogue::Bias,
            Fused::ReluMask => Epilogue::ReluAuxBias,
            Fused::GeluInput => Epilogue::GeluAuxBias,
            Fused::MaskSum => Epilogue::DreluBgrad,
            Fused::GeluSum => Epilogue::DgeluBgrad,
            Fused::BiasSum => Epilogue::Bgrada,
        }
    }

    fn has_bias(self) -> bool {
        matches!(self, Epilogue::Bias | Epilogue::ReluBias | Epilogue::GeluBias | Epilogue::ReluAuxBias | Epilogue::GeluAuxBias)
    }

    /// `CUBLASLT_EPILOGUE_*`.
    fn number(self) -> u32 {
        match self {
            Epilogue::None | Epilogue::PlusC => 1,
            Epilogue::Bias => 4,
            Epilogue::ReluBias => 6,
            Epilogue::GeluBias => 36,
            Epilogue::ReluAuxBias => 134,
            Epilogue::GeluAuxBias => 164,
            Epilogue::DreluBgrad => 152,
            Epilogue::DgeluBgrad => 208,
            Epilogue::Bgrada => 256,
        }
    }
}

/// Some rows of a product of ours.
pub struct Product<'l> {
    product: cublaslt::Product<'l>,
    epilogue: Epilogue,
    rows: Range<usize>,
    layout: Layout,
    /// The time of the whole product.
    shape: Shape,
}

impl<'l> Product<'l> {
    /// The rows have to be all of them if A is column-major.
    pub fn new(library: &'l Library, case: &Case, rows: Range<usize>, epilogue: Epilogue) -> Result<Self> {
        let &Case { dtype, layout, shape, group, .. } = case;
        let tf32 = group == Group::Tf32;
        if rows.end > shape.m || (layout.a() == Order::ColumnMajor && rows.len() < shape.m) {
            return Err(format!("rows {rows:?} of {shape} do not lie together").into());
        }
        let part = Shape { m: rows.len(), ..shape };
        let request =
            Request { dtype, layout, shape: part, epilogue: epilogue.number(), bias: dtype, aux_ld: 0, tf32, eight_bits: None };
        let product = cublaslt::Product::new(library, &request, &Addresses::default())?;
        Ok(Product { product, epilogue, rows, layout, shape })
    }

    /// A step of training over all rows, of such operands.
    pub fn of_training(
        library: &'l Library,
        layout: Layout,
        epilogue: Epilogue,
        stream: &Arc<CudaStream>,
        operands: &mut Operands,
    ) -> Result<Self> {
        let (dtype, shape) = (operands.dtype, operands.shape);
        let run = if matches!(epilogue, Epilogue::DgeluBgrad | Epilogue::GeluAuxBias) { 8 } else { Bits128.run() };
        let aux_ld = if epilogue == Epilogue::Bgrada { 0 } else { shape.n.next_multiple_of(run) };
        let request =
            Request { dtype, layout, shape, epilogue: epilogue.number(), bias: dtype, aux_ld, tf32: false, eight_bits: None };
        let at = addresses(epilogue, operands.set(0), stream);
        let product = cublaslt::Product::new(library, &request, &at)?;
        Ok(Product { product, epilogue, rows: 0..shape.m, layout, shape })
    }

    /// How many algorithms were proposed.
    pub fn algorithms(&self) -> usize {
        self.product.algorithms()
    }

    /// The name of an algorithm in a table.
    pub fn name(&self, algorithm: usize) -> String {
        format!("algorithm {} of {}", algorithm + 1, self.algorithms())
    }

    pub fn launch(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize, algorithm: usize) -> Result<()> {
        if operands.shape != self.shape {
            return Err(format!("operands of {} for a product of {}", operands.shape, self.shape).into());
        }
        let size = operands.dtype.size();
        let all = addresses(self.epilogue, operands.set(turn), stream);
        let row_of_a = if self.layout.a() == Order::RowMajor { self.shape.k } else { 0 };
        let from = |address: u64, row: usize| address + (self.rows.start * row * size) as u64;
        let (a, c, d) = (from(all.a, row_of_a), from(all.c, self.shape.n), from(all.d, self.shape.n));
        let beta = f32::from(self.epilogue == Epilogue::PlusC);
        // SAFETY: the addresses are those of a set's matrices and vectors, device memory of the shape that was compared above,
        // from the first of `rows` on; `of_training` was given operands that have what its epilogue takes. They are borrowed
        // here, and there is one stream, which the timing code waits for.
        unsafe { self.product.launch(stream, &Addresses { a, c, d, ..all }, [1.0, beta], algorithm) }
    }
}

/// The addresses of a set's matrices and vectors that an epilogue has.
fn addresses(epilogue: Epilogue, set: &mut Set, stream: &Arc<CudaStream>) -> Addresses {
    let Set { a, b, bias, c: matrix, d, training, .. } = set;
    let (a, b, c, d) = (a.address(stream), b.address(stream), matrix.address(stream), d.address_mut(stream));
    let bias = if epilogue.has_bias() { bias.address(stream) } else { 0 };
    let plain = Addresses { a, b, c, d, bias, ..Addresses::default() };
    let Some(Training { mask, rounded_sums, .. }) = training else { return plain };
    match epilogue {
        Epilogue::GeluAuxBias => Addresses { aux: matrix.address_mut(stream), ..plain },
        Epilogue::ReluAuxBias => Addresses { aux: mask.device_ptr_mut(stream).0, ..plain },
        Epilogue::DreluBgrad => Addresses { aux: mask.device_ptr_mut(stream).0, bias: rounded_sums.address_mut(stream), ..plain },
        Epilogue::Bgrada => Addresses { bias: rounded_sums.address_mut(stream), ..plain },
        Epilogue::DgeluBgrad => Addresses { aux: c, bias: rounded_sums.address_mut(stream), ..plain },
        _ => plain,
    }
}
