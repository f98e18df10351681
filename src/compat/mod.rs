//! Epilogues of other libraries under their own names, as plain functions over the public builder: for programs that
//! use those libraries, and as examples. The rest of the library does not depend on them.
//!
//! The page `docs/coming_from.md` of the repository has a line of ours for each name of cuBLASLt, CUTLASS,
//! nvmath-python, PaddlePaddle and PyTorch.

pub mod cublaslt;
pub mod paddle;
