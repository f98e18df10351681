//! Other libraries' epilogues under their own names, as plain functions over the public builder: for programs that come from
//! there, and as examples. Nothing in the rest of the library knows of them.
//!
//! The page `docs/coming_from.md` of the repository has a line of ours for each name of cuBLASLt's, CUTLASS's, nvmath-python's,
//! PaddlePaddle's and PyTorch's.

pub mod cublaslt;
pub mod paddle;
