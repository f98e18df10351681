//! The shortest useful program: a product with a bias, the sigmoid in its first rows and the tanh below, in one kernel.
//!
//! It runs on the GPU if there is one, on the CPU if not, and says which:
//!
//! ```text
//! $ cargo run --release --example quickstart
//!   0.731  0.881  0.378
//!   0.953  0.953  0.378
//!   0.000  0.964 -0.905
//!  -0.964  0.762 -0.905
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

use postlude::prelude::*;
use std::io::Write;

/// Computes D = activation(A B + bias) and prints it.
pub fn run(out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let first_rows = e.row().lt(e.scalar("boundary", I32));
        e.store("d", z.region(first_rows, |z| z.sigmoid()).otherwise(|z| z.tanh()), F32);
    })?;
    let (a, b, bias) = ([1.0f32, 0.0, 2.0, 1.0, 0.0, 0.0, -1.0, -1.0], [1.0f32, 0.0, 1.0, 1.0, 1.0, -1.0], [0.0f32, 2.0, -1.5]);
    let mut d = [0.0f32; 12];
    let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).scalar("boundary", 2).output("d", &mut d);
    let ran_on = Gemm::new(F32, TT, &epilogue).run(Shape::new(4, 3, 2), args)?;

    for row in d.chunks(3) {
        writeln!(out, "{}", row.iter().map(|x| format!("{x:7.3}")).collect::<String>())?;
    }
    writeln!(out, "{ran_on}")?;
    Ok(())
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
