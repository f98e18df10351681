//! The peer: cuBLASLt, the best of its eight heuristics, 32 MiB of workspace, the same layouts and outputs as ours.

use cudarc::cublaslt::{result, sys};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use postlude::{Element, Layout, Shape};
use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::Arc;

const WORKSPACE: usize = 32 << 20;

/// What cuBLASLt fuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fused {
    Nothing,
    BiasRelu,
}

/// A product D = epilogue(A B) with row-major D, as cuBLASLt sees it: the transposed product in column-major matrices.
pub struct Peer {
    handle: sys::cublasLtHandle_t,
    product: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithms: Vec<sys::cublasLtMatmulAlgo_t>,
    best: usize,
    workspace: CudaSlice<u8>,
    stream: Arc<CudaStream>,
}

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

impl Peer {
    pub fn new<T: Element>(
        stream: &Arc<CudaStream>,
        layout: Layout,
        shape: Shape,
        fused: Fused,
        bias: &CudaSlice<T>,
    ) -> Fallible<Peer> {
        use postlude::ir::Order::RowMajor;
        let data = match T::DTYPE {
            postlude::DType::F16 => sys::cudaDataType::CUDA_R_16F,
            postlude::DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
            _ => sys::cudaDataType::CUDA_R_32F,
        };
        let (m, n, k) = (shape.m as u64, shape.n as u64, shape.k as u64);
        // B, then A: each as the column-major matrix that its memory is.
        let (b_rows, b_columns, b_turned) = if layout.b() == RowMajor { (n, k, 0i32) } else { (k, n, 1) };
        let (a_rows, a_columns, a_turned) = if layout.a() == RowMajor { (k, m, 0i32) } else { (m, k, 1) };
        // SAFETY: every handle below was made by the library just before and is destroyed only with this value; attributes
        // are passed with their own sizes.
        unsafe {
            let handle = result::create_handle()?;
            let product =
                result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)?;
            let set = |attribute, value: *const c_void, size| result::set_matmul_desc_attribute(product, attribute, value, size);
            use sys::cublasLtMatmulDescAttributes_t as Attribute;
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, from_ref(&b_turned).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, from_ref(&a_turned).cast(), 4)?;
            if fused == Fused::BiasRelu {
                let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS;
                let (pointer, _guard) = bias.device_ptr(stream);
                set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, from_ref(&epilogue).cast(), 4)?;
                set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, from_ref(&pointer).cast(), 8)?;
            }
            let layouts = [
                result::create_matrix_layout(data, b_rows, b_columns, b_rows as i64)?,
                result::create_matrix_layout(data, a_rows, a_columns, a_rows as i64)?,
                result::create_matrix_layout(data, n, m, n as i64)?,
            ];
            let preference = result::create_matmul_pref()?;
            let limit = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            result::set_matmul_pref_attribute(preference, limit, from_ref(&WORKSPACE).cast(), 8)?;
            let mut found: [sys::cublasLtMatmulHeuristicResult_t; 8] = std::mem::zeroed();
            let mut count = 0;
            let [b, a, d] = layouts;
            sys::cublasLtMatmulAlgoGetHeuristic(handle, product, b, a, d, d, preference, 8, found.as_mut_ptr(), &mut count)
                .result()?;
            result::destroy_matmul_pref(preference)?;
            let algorithms = found[..count as usize].iter().map(|f| f.algo).collect();
            let workspace = stream.alloc_zeros(WORKSPACE)?;
            Ok(Peer { handle, product, layouts, algorithms, best: 0, workspace, stream: stream.clone() })
        }
    }

    /// How many heuristics there are.
    pub fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Runs with this heuristic from now on.
    pub fn choose(&mut self, algorithm: usize) {
        self.best = algorithm;
    }

    pub fn run<T: Element>(&mut self, a: &CudaSlice<T>, b: &CudaSlice<T>, d: &mut CudaSlice<T>) {
        let (one, zero) = (1.0f32, 0.0f32);
        let (a, _a) = a.device_ptr(&self.stream);
        let (b, _b) = b.device_ptr(&self.stream);
        let (d, _d) = d.device_ptr_mut(&self.stream);
        let bytes = self.workspace.len();
        let (workspace, _w) = self.workspace.device_ptr_mut(&self.stream);
        let [b_layout, a_layout, d_layout] = self.layouts;
        // SAFETY: the buffers have the extents of the layouts, which `Peer::new` took from the same shape.
        let done = unsafe {
            result::matmul(
                self.handle,
                self.product,
                from_ref(&one).cast(),
                from_ref(&zero).cast(),
                b as *const c_void,
                b_layout,
                a as *const c_void,
                a_layout,
                d as *const c_void,
                d_layout,
                d as *mut c_void,
                d_layout,
                &self.algorithms[self.best],
                workspace as *mut c_void,
                bytes,
                self.stream.cu_stream().cast(),
            )
        };
        done.expect("cuBLASLt refuses one of its own heuristics");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}
