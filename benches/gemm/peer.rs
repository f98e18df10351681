//! The peer: cuBLASLt, with the best of the algorithms that it proposes.
//!
//! It thinks in columns, so a row-major D = A B is given to it as the column-major product of the transposed matrices,
//! where the bias over N is one over rows, which its epilogues can add.

use crate::Result;
use crate::operands::{Operands, Set};
use cudarc::cublaslt::{result, sys};
use postlude::cudarc::driver::sys::CUevent_flags;
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
use postlude::ir::Order;
use postlude::prelude::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

const WORKSPACE: usize = 32 << 20;
const ALGORITHMS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    None,
    ReluBias,
}

/// A product as cuBLASLt sees it.
pub struct Lt {
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    /// Of the first operand (our B), the second (our A), and D.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithms: Vec<sys::cublasLtMatmulHeuristicResult_t>,
    best: usize,
    workspace: RefCell<CudaSlice<u8>>,
    activation: Activation,
}

impl Lt {
    pub fn new(stream: &Arc<CudaStream>, dtype: DType, layout: Layout, shape: Shape, activation: Activation) -> Result<Lt> {
        // SAFETY: only looks whether the library can be loaded; cudarc panics where it cannot.
        if !unsafe { sys::is_culib_present() } {
            return Err("libcublasLt was not found".into());
        }
        stream.context().bind_to_thread()?;
        let format = if dtype == F16 { sys::cudaDataType_t::CUDA_R_16F } else { sys::cudaDataType_t::CUDA_R_32F };
        let Shape { m, n, k, .. } = shape;
        // A row-major matrix is the column-major one of the transposed extents.
        let (b_rows, b_columns, transpose_b) = if layout.b() == Order::RowMajor { (n, k, 0i32) } else { (k, n, 1i32) };
        let (a_rows, a_columns, transpose_a) = if layout.a() == Order::RowMajor { (k, m, 0i32) } else { (m, k, 1i32) };
        let matrix = |rows: usize, columns: usize| result::create_matrix_layout(format, rows as u64, columns as u64, rows as i64);
        let layouts = [matrix(b_rows, b_columns)?, matrix(a_rows, a_columns)?, matrix(n, m)?];
        let handle = result::create_handle()?;
        let description =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType_t::CUDA_R_32F)?;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transpose_b)?;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transpose_a)?;
        if activation == Activation::ReluBias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS;
            set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        }
        let preference = result::create_matmul_pref()?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); ALGORITHMS];
        let mut count = 0;
        let [b, a, d] = layouts;
        // SAFETY: every handle was made above and is not destroyed before the end of this block; the attribute is a
        // `size_t`, and `found` has room for as many results as are asked for.
        unsafe {
            result::set_matmul_pref_attribute(preference, attribute, (&raw const WORKSPACE_SIZE).cast(), size_of::<usize>())?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                description,
                b,
                a,
                d,
                d,
                preference,
                ALGORITHMS as i32,
                found.as_mut_ptr().cast(),
                &raw mut count,
            )
            .result()?;
            result::destroy_matmul_pref(preference)?;
        }
        // SAFETY: the library wrote the first `count` results, and zeros are a valid one anyway.
        let algorithms: Vec<_> = found.iter().take(count as usize).map(|result| unsafe { result.assume_init() }).collect();
        if algorithms.is_empty() {
            return Err("no algorithm was proposed".into());
        }
        let workspace = RefCell::new(stream.alloc_zeros(WORKSPACE)?);
        Ok(Lt { handle, description, layouts, algorithms, best: 0, workspace, activation })
    }

    /// Times every proposed algorithm and keeps the fastest.
    pub fn choose(&mut self, stream: &Arc<CudaStream>, operands: &mut Operands) -> Result<()> {
        let mut best = f32::INFINITY;
        for algorithm in 0..self.algorithms.len() {
            let mut times = Vec::new();
            for _ in 0..3 {
                let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
                for turn in 0..5 {
                    self.run(stream, operands, turn, algorithm)?;
                }
                let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
                end.synchronize()?;
                times.push(start.elapsed_ms(&end)?);
            }
            times.sort_by(f32::total_cmp);
            if times[1] < best {
                (best, self.best) = (times[1], algorithm);
            }
        }
        Ok(())
    }

    pub fn name(&self) -> String {
        format!("cuBLASLt, best of {} ({})", self.algorithms.len(), self.best)
    }

    pub fn launch(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize) {
        self.run(stream, operands, turn, self.best).expect("cuBLASLt to launch");
    }

    fn run(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize, algorithm: usize) -> Result<()> {
        let Set { a, b, bias, d } = operands.set(turn);
        if self.activation == Activation::ReluBias {
            let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            set(self.description, attribute, &bias.address(stream))?;
        }
        let (alpha, beta) = (1f32, 0f32);
        let mut workspace = self.workspace.borrow_mut();
        let workspace = workspace.device_ptr_mut(stream).0;
        let d = d.address_mut(stream) as *mut c_void;
        let [layout_b, layout_a, layout_d] = self.layouts;
        // SAFETY: the handles live as long as `self`; A, B, bias and D are device memory of the extents in the layouts,
        // borrowed here and used on this one stream only; the workspace has the size that the algorithms were told.
        unsafe {
            result::matmul(
                self.handle,
                self.description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                b.address(stream) as *const c_void,
                layout_b,
                a.address(stream) as *const c_void,
                layout_a,
                d,
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

impl Drop for Lt {
    fn drop(&mut self) {
        // SAFETY: each was made by `new` and nothing uses it any more: every launch has been waited for by whoever timed it.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.description);
            let _ = result::destroy_handle(self.handle);
        }
    }
}
