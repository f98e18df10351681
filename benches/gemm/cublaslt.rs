//! The peer: cuBLASLt, with the best of the algorithms that it proposes.
//!
//! It thinks in columns, so a row-major D = A B is given to it as the column-major product of the transposed matrices,
//! where the bias over N is one over rows, which its epilogues can add.

use cudarc::cublaslt::{result, sys};
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
use postlude::ir::Order;
use postlude::prelude::*;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use sys::cublasLtMatmulDescAttributes_t as Attribute;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WORKSPACE: usize = 32 << 20;
const ALGORITHMS: usize = 8;

/// A product as a request to cuBLASLt, in our terms.
#[derive(Clone, Debug)]
pub struct Request {
    /// The format of A, B, C and D.
    pub dtype: DType,
    pub layout: Layout,
    pub shape: Shape,
    /// `CUBLASLT_EPILOGUE_*`.
    pub epilogue: u32,
    /// The format of the bias, or of its gradient.
    pub bias: DType,
    /// From row to row of the auxiliary matrix, in its elements; 0 without one.
    pub aux_ld: usize,
    /// Whether A and B, in `f32`, may be rounded to tf32.
    pub tf32: bool,
    /// What is otherwise where A and B have eight bits; K is contiguous in both then.
    pub eight_bits: Option<EightBits>,
}

/// What products of eight bits have besides.
#[derive(Clone, Copy, Debug)]
pub struct EightBits {
    /// Of B.
    pub b: DType,
    /// Of D. C has it too, but that it is BF16 beside a D of eight floating-point bits.
    pub d: DType,
    /// Whether floating-point sums are left to the tensor cores.
    pub fast: bool,
    /// Whether the scales of A and of B are those of blocks along K: of 1 x 128 of A, and of 128 x 128 of B.
    pub blocks: [bool; 2],
}

/// The device addresses of a product's matrices and vectors; 0 for missing ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses {
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub d: u64,
    /// The bias, or its gradient.
    pub bias: u64,
    pub aux: u64,
    /// For fp8: what A, B and D are multiplied by, and the largest absolute value of an element of D before that.
    pub scales: [u64; 3],
    pub amax: u64,
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

/// A product as cuBLASLt sees it.
pub struct Product<'l> {
    library: &'l Library,
    description: sys::cublasLtMatmulDesc_t,
    /// The layouts of the first operand (our B), the second (our A), C and D.
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    /// The format of alpha and beta.
    scalars: DType,
    algorithms: Vec<sys::cublasLtMatmulHeuristicResult_t>,
}

impl<'l> Product<'l> {
    /// # Errors
    /// If the library has no algorithm for it. Some algorithms depend on the alignment of the addresses.
    pub fn new(library: &'l Library, request: &Request, at: &Addresses) -> Result<Self> {
        let Request { dtype, layout, shape: Shape { m, n, k, .. }, .. } = *request;
        // A row-major matrix is the column-major one of the transposed extents.
        let (b_rows, b_columns, transpose_b) = if layout.b() == Order::RowMajor { (n, k, 0i32) } else { (k, n, 1i32) };
        let (a_rows, a_columns, transpose_a) = if layout.a() == Order::RowMajor { (k, m, 0i32) } else { (m, k, 1i32) };
        let matrix = |dtype: DType, rows: usize, columns: usize| {
            result::create_matrix_layout(format(dtype), rows as u64, columns as u64, rows as i64)
        };
        let blocks = request.eight_bits.map_or([false; 2], |eight| eight.blocks);
        let (b, d) = request.eight_bits.map_or((dtype, dtype), |eight| (eight.b, eight.d));
        let c = if matches!(d, E4M3 | E5M2) { BF16 } else { d };
        let layouts = [matrix(b, b_rows, b_columns)?, matrix(dtype, a_rows, a_columns)?, matrix(c, n, m)?, matrix(d, n, m)?];
        let scalars = if matches!(d, I32 | F64) { d } else { F32 };
        let compute = match dtype {
            I8 | U8 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32I,
            F64 => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            F32 if request.tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description = result::create_matmul_desc(compute, format(scalars))?;
        let mut product = Product { library, description, layouts, scalars, algorithms: Vec::new() };
        if request.eight_bits.is_some_and(|eight| eight.fast) {
            set(description, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &1i8)?;
        }
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transpose_b)?;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transpose_a)?;
        set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &request.epilogue)?;
        if at.bias != 0 {
            set(description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &format(request.bias))?;
        }
        if request.aux_ld > 0 {
            set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &(request.aux_ld as i64))?;
        }
        // cuBLASLt's first operand is our B. Modes 4 and 5 are `VEC128_32F` and `BLK128x128_32F`.
        let modes = [Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE];
        for ((attribute, mode), _) in modes.into_iter().zip([4i32, 5]).zip(blocks).filter(|(_, has)| *has) {
            set(description, attribute, &mode)?;
        }
        product.point_at(at)?;
        product.algorithms = product.propose()?;
        Ok(product)
    }

    /// Tells the description where vectors and auxiliaries lie.
    fn point_at(&self, at: &Addresses) -> Result<()> {
        let pointers = [
            (Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias),
            (Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux),
            (Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.scales[1]),
            (Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.scales[0]),
            (Attribute::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, at.scales[2]),
            (Attribute::CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, at.amax),
        ];
        pointers.into_iter().filter(|(_, address)| *address != 0).try_for_each(|(which, at)| set(self.description, which, &at))
    }

    /// Asks for algorithms.
    fn propose(&self) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>> {
        let preference = result::create_matmul_pref()?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed(); ALGORITHMS];
        let mut count = 0;
        let [b, a, c, d] = self.layouts;
        // SAFETY: every handle was made by `new` and lives as long as `self`, the preference till the end of this block; the
        // attribute is a `size_t`, and `found` has room for as many results as are asked for.
        unsafe {
            result::set_matmul_pref_attribute(preference, attribute, (&raw const WORKSPACE_SIZE).cast(), size_of::<usize>())?;
            let answer = sys::cublasLtMatmulAlgoGetHeuristic(
                self.library.handle,
                self.description,
                b,
                a,
                c,
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

    /// D = the epilogue of alpha A B + beta C.
    ///
    /// # Safety
    /// The addresses point to device memory of the request's extents and formats, borrowed until the stream has run
    /// this; D, a gradient and a stored auxiliary mutably. Nothing else uses the library's memory on another stream.
    pub unsafe fn launch(
        &self,
        stream: &Arc<CudaStream>,
        at: &Addresses,
        [alpha, beta]: [f32; 2],
        algorithm: usize,
    ) -> Result<()> {
        self.point_at(at)?;
        let mut workspace = self.library.workspace.borrow_mut();
        let workspace = workspace.device_ptr_mut(stream).0;
        let [layout_b, layout_a, layout_c, layout_d] = self.layouts;
        let c = if beta == 0.0 && at.c == 0 { at.d } else { at.c };
        let (whole, double) = ([alpha as i32, beta as i32], [f64::from(alpha), f64::from(beta)]);
        let [alpha, beta]: [*const c_void; 2] = match self.scalars {
            I32 => [(&raw const whole[0]).cast(), (&raw const whole[1]).cast()],
            F64 => [(&raw const double[0]).cast(), (&raw const double[1]).cast()],
            _ => [(&raw const alpha).cast(), (&raw const beta).cast()],
        };
        // SAFETY: the handles live as long as `self`; the caller vouches for the addresses; the workspace has the size that the
        // algorithms were told, and is used by one stream.
        unsafe {
            result::matmul(
                self.library.handle,
                self.description,
                alpha,
                beta,
                at.b as *const c_void,
                layout_b,
                at.a as *const c_void,
                layout_a,
                c as *const c_void,
                layout_c,
                at.d as *mut c_void,
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

fn format(dtype: DType) -> sys::cudaDataType_t {
    match dtype {
        F16 => sys::cudaDataType_t::CUDA_R_16F,
        BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        E4M3 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
        E5M2 => sys::cudaDataType_t::CUDA_R_8F_E5M2,
        I8 => sys::cudaDataType_t::CUDA_R_8I,
        I32 => sys::cudaDataType_t::CUDA_R_32I,
        F64 => sys::cudaDataType_t::CUDA_R_64F,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

static WORKSPACE_SIZE: usize = WORKSPACE;

/// Sets an attribute of a product.
fn set<T>(description: sys::cublasLtMatmulDesc_t, attribute: Attribute, value: &T) -> Result<()> {
    // SAFETY: the description has not been destroyed, and the value is copied before the call returns.
    unsafe { result::set_matmul_desc_attribute(description, attribute, std::ptr::from_ref(value).cast(), size_of::<T>())? };
    Ok(())
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        // SAFETY: each was made by `new` and nothing uses it any more: the timing code has waited for every launch.
        unsafe {
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.description);
        }
    }
}
