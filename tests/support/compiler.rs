//! Whether there is a compiler to test with. Include this file with `#[path = "support/compiler.rs"] mod compiler;`.

/// Whether there is NVRTC. Without it this prints a message, or fails if `POSTLUDE_REQUIRE_NVRTC` is 1.
pub fn nvrtc() -> bool {
    match postlude::jit::compiler() {
        Ok(_) => true,
        Err(error) if std::env::var_os("POSTLUDE_REQUIRE_NVRTC").is_some_and(|v| v == "1") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: NVRTC not found ({error})");
            false
        }
    }
}
