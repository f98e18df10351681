//! Postlude (crate docs come here).

pub mod args;
pub mod build;
pub mod check;
#[cfg(feature = "cuda")]
pub mod device;
pub mod dtype;
pub mod emit;
pub mod error;
pub mod gemm;
pub mod ir;
#[cfg(feature = "jit")]
pub mod jit;
pub mod pass;
pub mod plan;
pub mod problem;
pub mod reference;
pub mod source;
pub mod target;

pub use args::{Args, HostArgs, Tensor};
pub use build::{Builder, Epilogue, Expr};
pub use check::{Diagnostic, Diagnostics};
#[cfg(feature = "cuda")]
pub use cudarc;
pub use dtype::{DType, Element};
pub use error::Error;
pub use gemm::{Gemm, RanOn};
pub use half;
pub use ir::{CustomOp, Op, Operand, Registry};
pub use problem::{Layout, Operation, Shape};
pub use reference::Precision;

/// What most programs need, in one line: `use postlude::prelude::*;`.
pub mod prelude {
    pub use crate::args::{Args, HostArgs, IntoTensor, Tensor};
    pub use crate::build::{Epilogue, Expr};
    #[cfg(feature = "cuda")]
    pub use crate::device::{Device, DeviceArgs};
    pub use crate::dtype::DType::{self, BF16, Bool, F16, F32, I32};
    pub use crate::gemm::{Gemm, RanOn};
    pub use crate::ir::axes::{L, M, N};
    pub use crate::ir::{CustomOp, Operand, Registry};
    pub use crate::problem::{
        Layout::{self, NN, NT, TN, TT},
        Shape,
    };
}
