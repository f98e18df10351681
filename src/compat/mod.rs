//! Other libraries' epilogues under their own names, as plain functions over the public builder: for programs that come from
//! there, and as examples. Nothing in the rest of the library knows of them.

pub mod cublaslt;
pub mod paddle;
