//! Epilogues under other libraries' names mean what those libraries document.

mod cublaslt;
mod paddle;
