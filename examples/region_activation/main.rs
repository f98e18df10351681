//! A different activation in each region of the output, in one kernel, with borders that move at run time.
//!
//! D = activation(A B + bias) in f16, three times: sigmoid above a row and tanh below it; three bands; tanh on and below the
//! diagonal and nothing above it. The borders are arguments of the launch: moving them compiles nothing.
//!
//! Runs on the GPU if there is one, on the CPU otherwise, and says why. Compares its results with a plain loop and, on
//! the GPU, with the CPU reference. There the table also shows that one kernel serves every border. Draws the last
//! three rows:
//!
//! ```text
//! $ cargo run --release --example region_activation
//! D = activation(A B + bias): 1024 x 1024 x 256, f16
//! Runs on the CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//!
//! epilogue        borders     least   greatest   off the plain loop
//! two bands             0    -0.999      0.999              0.00024
//! two bands           256    -0.999      0.999              0.00024
//! two bands           333    -0.999      0.999              0.00024
//! two bands           512    -0.999      0.998              0.00024
//! three bands     300 724    -0.999      3.754              0.00045
//! causal                -    -0.999      0.999              0.00024
//!
//! Picture: target/region_activation.png
//! ```

#[path = "../support/canvas.rs"]
mod canvas;
pub mod field;
pub mod picture;

use field::Field;
use picture::Panel;
use postlude::cudarc::driver::CudaStream;
use postlude::device::Device;
use postlude::gemm::Plan;
use postlude::half::f16;
use postlude::prelude::*;
use std::io::Write;
use std::sync::Arc;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Extents of the product.
pub const SHAPE: Shape = Shape::new(1024, 1024, 256);

/// Sigmoid above the boundary, tanh from there on.
fn two_bands() -> Result<Epilogue> {
    Ok(Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let above = e.row().lt(e.scalar("boundary", I32));
        e.store("d", z.region(above, |z| z.sigmoid()).otherwise(|z| z.tanh()), F16);
    })?)
}

/// Sigmoid, then SiLU, then tanh.
fn three_bands() -> Result<Epilogue> {
    Ok(Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let (row, first, second) = (e.row(), e.scalar("first", I32), e.scalar("second", I32));
        let y = z.region(row.lt(first), |z| z.sigmoid()).region(row.lt(second), |z| z.silu()).otherwise(|z| z.tanh());
        e.store("d", y, F16);
    })?)
}

/// Tanh where column <= row, zero elsewhere.
fn causal() -> Result<Epilogue> {
    Ok(Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z.region(e.column().le(e.row()), |z| z.tanh()).otherwise(|_| e.constant(0.0));
        e.store("d", y, F16);
    })?)
}

/// The function of a region, for the plain loop and the picture.
pub type Function = fn(f64) -> f64;

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn silu(z: f64) -> f64 {
    z * sigmoid(z)
}

fn zero(_: f64) -> f64 {
    0.0
}

/// One row of the table: an epilogue, its borders, and the expected function.
struct Case {
    name: &'static str,
    /// Run-time scalars.
    borders: Vec<(&'static str, i32)>,
    functions: Vec<Function>,
    /// The index of the function at a row and column.
    region: Box<dyn Fn(usize, usize) -> usize>,
}

/// A product and its epilogue, planned for the GPU if there is one.
struct Runner {
    gemm: Gemm,
    plan: Option<(Plan, Arc<CudaStream>)>,
}

impl Runner {
    fn new(epilogue: Epilogue, device: Option<&Device>) -> Result<Runner> {
        let gemm = Gemm::new(F16, TN, &epilogue);
        let plan = device.map(|device| Ok::<_, postlude::Error>((gemm.plan(device, SHAPE)?, device.context().default_stream())));
        Ok(Runner { plan: plan.transpose()?, gemm })
    }

    /// Computes with these borders, on the GPU if there is a plan.
    fn run(&self, field: &Field, borders: &[(&str, i32)]) -> Result<Vec<f16>> {
        let mut d = vec![f16::NAN; SHAPE.m * SHAPE.n];
        match &self.plan {
            Some((plan, stream)) => plan.execute_host(stream, arguments(field, borders, &mut d))?,
            None => self.gemm.reference(SHAPE, arguments(field, borders, &mut d))?,
        }
        Ok(d)
    }

    /// On the GPU: the largest difference to the CPU reference.
    fn off_reference(&self, field: &Field, borders: &[(&str, i32)], d: &[f16]) -> Result<Option<f64>> {
        if self.plan.is_none() {
            return Ok(None);
        }
        let mut expected = vec![f16::NAN; d.len()];
        self.gemm.reference(SHAPE, arguments(field, borders, &mut expected))?;
        let off = d.iter().zip(&expected).map(|(x, y)| difference(x.to_f64(), y.to_f64()));
        Ok(Some(off.fold(0.0, f64::max)))
    }

    /// The kernel's name in the cache: equal keys are equal kernels.
    fn key(&self) -> Option<&str> {
        self.plan.as_ref().map(|(plan, _)| plan.kernel().cubin.info.key.as_str())
    }
}

fn arguments<'a>(field: &'a Field, borders: &[(&str, i32)], d: &'a mut Vec<f16>) -> HostArgs<'a> {
    let args = HostArgs::new().input("a", &field.a).input("b", &field.b).input("bias", &field.bias).output("d", d);
    borders.iter().fold(args, |args, (name, row)| args.scalar(name, *row))
}

/// The difference of two values, relative to those greater than 1.
fn difference(x: f64, y: f64) -> f64 {
    (x - y).abs() / y.abs().max(1.0)
}

/// The largest difference from a plain loop, at elements spread over the output.
fn off_plain_loop(field: &Field, case: &Case, d: &[f16]) -> f64 {
    let places = (0..SHAPE.m * SHAPE.n).step_by(509).map(|i| (i / SHAPE.n, i % SHAPE.n));
    let off = places.map(|(row, column)| {
        let y = case.functions[(case.region)(row, column)](field.z(row, column));
        difference(d[row * SHAPE.n + column].to_f64(), y)
    });
    off.fold(0.0, f64::max)
}

/// Computes, checks and draws; writes the table to `out`.
pub fn run(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "D = activation(A B + bias): {SHAPE}, f16")?;
    let device = Device::find();
    match &device {
        Ok(device) => writeln!(out, "Runs on the GPU: {device}\n")?,
        Err(why) => writeln!(out, "Runs on the CPU: {why}\n")?,
    }
    let device = device.ok();

    let field = Field::new(SHAPE);
    let (two, three, causal) = (
        Runner::new(two_bands()?, device.as_ref())?,
        Runner::new(three_bands()?, device.as_ref())?,
        Runner::new(causal()?, device.as_ref())?,
    );
    let compiles = || device.as_ref().map(|device| device.cache().stats().compiles);
    let compiled = compiles();

    let two_bands = |boundary: usize| Case {
        name: "two bands",
        borders: vec![("boundary", boundary as i32)],
        functions: vec![sigmoid, f64::tanh],
        region: Box::new(move |row, _| usize::from(row >= boundary)),
    };
    let three_bands = |first: usize, second: usize| Case {
        name: "three bands",
        borders: vec![("first", first as i32), ("second", second as i32)],
        functions: vec![sigmoid, silu, f64::tanh],
        region: Box::new(move |row, _| usize::from(row >= first) + usize::from(row >= second)),
    };
    let below_diagonal = Case {
        name: "causal",
        borders: vec![],
        functions: vec![f64::tanh, zero],
        region: Box::new(|row, column| usize::from(column > row)),
    };
    let cases = [
        (&two, two_bands(0)),
        (&two, two_bands(256)),
        (&two, two_bands(333)),
        (&two, two_bands(512)),
        (&three, three_bands(300, 724)),
        (&causal, below_diagonal),
    ];

    let gpu = if device.is_some() { "   off the reference  kernel" } else { "" };
    writeln!(out, "epilogue        borders     least   greatest   off the plain loop{gpu}")?;
    let mut panels = Vec::new();
    for (runner, case) in cases {
        let d = runner.run(&field, &case.borders)?;
        let (least, greatest) = d.iter().fold((f16::INFINITY, f16::NEG_INFINITY), |(l, g), x| (l.min(*x), g.max(*x)));
        let off = off_plain_loop(&field, &case, &d);
        let rows: Vec<String> = case.borders.iter().map(|(_, row)| row.to_string()).collect();
        let rows = if rows.is_empty() { "-".to_owned() } else { rows.join(" ") };
        write!(out, "{:<12} {rows:>10} {least:>9.3} {greatest:>10.3} {off:>20.5}", case.name)?;
        let off_reference = runner.off_reference(&field, &case.borders, &d)?;
        if let (Some(off), Some(key)) = (off_reference, runner.key()) {
            write!(out, " {off:>19.5}  {}", &key[..12])?;
        }
        writeln!(out)?;
        // Two units in the last place of an f16: one from rounding, one from the GPU's faster tanh.
        if off.max(off_reference.unwrap_or(0.0)) > 2e-3 {
            return Err(format!("{} is wrong by {off}", case.name).into());
        }
        let rows = case.borders.iter().map(|(_, row)| *row as usize).collect();
        panels.push(Panel { values: d, extents: [SHAPE.m, SHAPE.n], functions: case.functions, region: case.region, rows });
    }
    if let (Some(before), Some(after)) = (compiled, compiles()) {
        writeln!(out, "\nKernels compiled while the borders moved: {}", after - before)?;
    }

    // The last case of each epilogue.
    let path = picture::draw(&panels[3..])?;
    writeln!(out, "\nPicture: {}", path.display())?;
    Ok(())
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
