//! The peer: cuBLASLt, with the best of the algorithms that it proposes.
//!
//! It thinks in columns, so a row-major D = A B is given to it as the column-major product of the transposed matrices,
//! where the bias over N is one over rows, which its epilogues can add.

use crate::Result;
use crate::case::Fused;
use crate::operands::{Operands, Set};
use cudarc::cublaslt::{result, sys};
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
use postlude::ir::Order;
use postlude::prelude::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

const WORKSPACE: usize = 32 << 20;
const ALGORITHMS: usize = 8;

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

    fn attribute(self) -> sys::cublasLtEpilogue_t {
        match self {
            Epilogue::None | Epilogue::PlusC => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            Epilogue::Bias => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::ReluBias => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
            Epilogue::GeluBias => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        }
    }
}

/// The library, and the memory that all its products share: they run one after another.
pub struct Library {
    handle: sys::cublasLtHandle_t,
    workspace: RefCell<CudaSlice<u8>>,
}

impl Library {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Library> {
        // SAFETY: only looks whether the library can be loaded; cudarc panics where it cannot.
        if !unsafe { sys::is_culib_present() } {
            return Err("libcublasLt was not found".into());
        }
        stream.context().bind_to_thread()?;
        Ok(Library { handle: result::create_handle()?, workspace: RefCell::new(stream.alloc_zeros(WORKSPACE)?) })
    }

    /// As in `13.0.2`.
    pub fn version(&self) -> String {
        // SAFETY: takes nothing and returns a number.
        let version = unsafe { sys::cublasLtGetVersion() };
        format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: made by `new`; products borrow the library, so none is left.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// A product as cuBLASLt sees it: some rows of ours.
pub struct Product<'l> {
    library: &'l Library,
    description: sys::cublasLtMatmulDesc_t,
    /// Of the first operand (our B), the second (our A), and D.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithms: Vec<sys::cublasLtMatmulHeuristicResult_t>,
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
        let format = match dtype {
            DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
            DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
            _ => sys::cudaDataType_t::CUDA_R_32F,
        };
        let (m, n, k) = (rows.len(), shape.n, shape.k);
        // A row-major matrix is the column-major one of the transposed extents.
        let (b_rows, b_columns, transpose_b) = if layout.b() == Order::RowMajor { (n, k, 0i32) } else { (k, n, 1i32) };
        let (a_rows, a_columns, transpose_a) = if layout.a() == Order::RowMajor { (k, m, 0i32) } else { (m, k, 1i32) };
        let matrix = |rows: usize, columns: usize| result::create_matrix_layout(format, rows as u64, columns as u64, rows as i64);
        let layouts = [matrix(b_rows, b_columns)?, matrix(a_rows, a_columns)?, matrix(n, m)?];
        let description =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType_t::CUDA_R_32F)?;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transpose_b)?;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transpose_a)?;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.attribute())?;
        let mut product = Product { library, description, layouts, algorithms: Vec::new(), epilogue, rows, layout, shape };
        product.algorithms = product.propose()?;
        Ok(product)
    }

    /// Asks for algorithms.
    fn propose(&self) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>> {
        let preference = result::create_matmul_pref()?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); ALGORITHMS];
        let mut count = 0;
        let [b, a, d] = self.layouts;
        // SAFETY: every handle was made by `new` and lives as long as `self`, the preference till the end of this block; the
        // attribute is a `size_t`, and `found` has room for as many results as are asked for.
        unsafe {
            result::set_matmul_pref_attribute(preference, attribute, (&raw const WORKSPACE_SIZE).cast(), size_of::<usize>())?;
            let answer = sys::cublasLtMatmulAlgoGetHeuristic(
                self.library.handle,
                self.description,
                b,
                a,
                d,
                d,
                preference,
                ALGORITHMS as i32,
                found.as_mut_ptr().cast(),
                &raw mut count,
            );
            result::destroy_matmul_pref(preference)?;
            answer.result()?;
        }
        // SAFETY: the library wrote the first `count` results, and zeros are a valid one anyway.
        let algorithms: Vec<_> = found.iter().take(count as usize).map(|result| unsafe { result.assume_init() }).collect();
        if algorithms.is_empty() { Err("cuBLASLt proposed no algorithm".into()) } else { Ok(algorithms) }
    }

    /// How many algorithms were proposed.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
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
        if self.epilogue.has_bias() {
            let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            set(self.description, attribute, &bias.address(stream))?;
        }
        let (alpha, beta) = (1f32, if self.epilogue == Epilogue::PlusC { 1f32 } else { 0f32 });
        let mut workspace = self.library.workspace.borrow_mut();
        let workspace = workspace.device_ptr_mut(stream).0;
        let (row_of_a, row_of_d) =
            if self.layout.a() == Order::RowMajor { (self.shape.k, self.shape.n) } else { (0, self.shape.n) };
        let at = |address: u64, row: usize| address + (self.rows.start * row * size) as u64;
        let d = at(d.address_mut(stream), row_of_d) as *mut c_void;
        let c = if self.epilogue == Epilogue::PlusC { at(c.address(stream), row_of_d) as *const c_void } else { d.cast_const() };
        let [layout_b, layout_a, layout_d] = self.layouts;
        // SAFETY: the handles live as long as `self`; A, B, bias, C and D are device memory of the shape that was compared
        // above, of which the layouts describe the rows from the first of `rows` on; they are borrowed here and used on
        // this one stream only; the workspace has the size that the algorithms were told.
        unsafe {
            result::matmul(
                self.library.handle,
                self.description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                b.address(stream) as *const c_void,
                layout_b,
                at(a.address(stream), row_of_a) as *const c_void,
                layout_a,
                c,
                layout_d,
                d,
                layout_d,
                &raw const self.algorithms[algorithm].algo,
                workspace as *mut c_void,
                WORKSPACE,
                stream.cu_stream().cast(),
            )?;
        }
        Ok(())
    }
}

static WORKSPACE_SIZE: usize = WORKSPACE;

/// Sets an attribute of a product.
fn set<T>(description: sys::cublasLtMatmulDesc_t, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
    // SAFETY: the description has not been destroyed, and the value is copied before the call returns.
    unsafe { result::set_matmul_desc_attribute(description, attribute, std::ptr::from_ref(value).cast(), size_of::<T>())? };
    Ok(())
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        // SAFETY: each was made by `new` and nothing uses it any more: every launch has been waited for by whoever timed it.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.description);
        }
    }
}
