//! cuBLASLt's epilogues under their names, beside cuBLASLt itself: the same operands, the same outputs.
//!
//! Operands are integers so small that every sum is exact, halved: what neither library may round has to agree to the bit.

use crate::case::{Case, Fill};
use crate::layout::Buffer;
use crate::memory::DeviceCopy;
use crate::peer::{Addresses, EightBits, Library, Product, Request};
use crate::rig::gpu;
use postlude::compat::cublaslt::{self, Formats, Named};
use postlude::cudarc::driver::DevicePtr;
use postlude::device::Device;
use postlude::prelude::*;
use postlude::{DType, Gemm, Operation};

/// Aligned as cuBLASLt wants it; of the second neither extent is a multiple of a tile, nor N of a mask's 128.
const SHAPES: [Shape; 2] = [Shape::new(256, 384, 128), Shape::new(200, 264, 136)];

const ALPHA: f32 = 0.5;
const BETA: f32 = 0.25;

fn small(rng: &mut crate::layout::Rng, _: DType) -> f64 {
    (rng.bits() % 7) as f64 - 3.0
}

/// cuBLASLt and the device, or a word that something is missing.
fn library() -> Option<(&'static Device, Library)> {
    let device = gpu()?;
    match Library::new(&device.context().default_stream()) {
        Ok(library) => Some((device, library)),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn case(named: &Named, formats: Formats, layout: Layout, shape: Shape) -> Case {
    let epilogue = (named.build)(formats).unwrap_or_else(|e| panic!("{}: {e}", named.name));
    let case = Case::new(&Gemm::new(formats.d, layout, &epilogue), shape).scalar("alpha", ALPHA);
    let case = if formats.c.is_some() { case.scalar("beta", BETA) } else { case };
    ["a", "b", "c", "bias"].into_iter().fold(case, |case, name| case.fill(name, small))
}

/// cuBLASLt's results for the same arguments with its first algorithm, or why it has none.
fn theirs(library: &Library, device: &Device, named: &Named, case: &Case, given: &[Buffer]) -> Result<Vec<Buffer>, String> {
    let stream = device.context().default_stream();
    let mut copy = DeviceCopy::of(&stream, given).map_err(|e| e.to_string())?;
    let mut at = |name: &str| copy.address(given, name, &stream);
    let sums = at("bgrad");
    let bias = if sums != 0 { sums } else { at("bias") };
    let at = Addresses {
        a: at("a"),
        b: at("b"),
        c: at("c"),
        d: at("d"),
        bias,
        aux: at("aux"),
        scales: [at("scale_a"), at("scale_b"), at("scale_d")],
        amax: at("amax"),
    };
    let Operation::Product { a: dtype, layout, .. } = case.gemm.operation() else { return Err("no product".into()) };
    let of = |name: &str| given.iter().find(|b| b.name == name).map(|b| b.dtype);
    let aux_ld = of("aux").map_or(0, |dtype| case.shape.n.next_multiple_of(dtype.run()));
    let bias = of("bgrad").or(of("bias")).unwrap_or(dtype);
    let eight_bits =
        (dtype.size() == 1).then(|| EightBits { b: dtype, d: of("d").unwrap_or(dtype), fast: false, blocks: [false; 2] });
    let request = Request { dtype, layout, shape: case.shape, epilogue: named.value, bias, aux_ld, tf32: false, eight_bits };
    let beta = if at.c == 0 { 0.0 } else { BETA };
    // Beside a D of eight bits it wants memory for a C also where beta is 0.
    let none = stream.alloc_zeros::<u8>(2 * case.shape.m * case.shape.n).map_err(|e| e.to_string())?;
    let at = if eight_bits.is_some() && at.c == 0 { Addresses { c: none.device_ptr(&stream).0, ..at } } else { at };
    let product = Product::new(library, &request, &at).map_err(|e| e.to_string())?;
    // SAFETY: the addresses are those of allocations in `copy` of the extents and formats of the request, contiguous as
    // `case` has them; `copy` outlives the wait.
    unsafe { product.launch(&stream, &at, [ALPHA, beta], 0) }.map_err(|e| e.to_string())?;
    stream.synchronize().map_err(|e| e.to_string())?;
    let mut got = given.to_vec();
    copy.download(&stream, &mut got).map_err(|e| e.to_string())?;
    Ok(got)
}

/// The distance of numbers next to 1.
fn unit(dtype: DType) -> f64 {
    match dtype {
        F16 => 2f64.powi(-10),
        BF16 => 2f64.powi(-7),
        E4M3 => 2f64.powi(-3),
        _ => 2f64.powi(-18),
    }
}

/// How far apart numbers may be: two roundings of the format, and what cuBLASLt's `tanh` is off by.
fn near(dtype: DType, x: f64, y: f64, exact: bool) -> bool {
    x == y || x.is_nan() && y.is_nan() || !exact && (x - y).abs() <= 1.5 * unit(dtype) * x.abs().max(y.abs()) + 2e-3
}

/// Runs both and compares every output, where `counts` says so of its column.
fn compare(
    library: &Library,
    device: &Device,
    named: &Named,
    case: &Case,
    counts: impl Fn(usize) -> bool,
) -> Result<[Vec<Buffer>; 2], String> {
    let given = case.buffers();
    let ours = case.launch(device, &given, &case.problem(&given));
    let theirs = theirs(library, device, named, case, &given)?;
    let exact = !named.name.contains("GELU");
    let d = |buffers: &'_ [Buffer]| buffers.iter().position(|b| b.name == "d").ok_or("no d");
    let stored = [&ours[d(&ours)?], &theirs[d(&theirs)?]];
    for (ours, theirs) in ours.iter().zip(&theirs).filter(|(ours, _)| ours.written) {
        let fits = |column: usize, x: f64, y: f64| match &*ours.name {
            // Exact sums of what both have read, rounded once.
            "bgrad" if named.name.starts_with("BGRAD") => x == y,
            "bgrad" => (x - y).abs() <= apart(stored, case.shape.m, column) + 1.5 * unit(ours.dtype) * x.abs().max(y.abs()),
            // GELU's argument is a sum like any other.
            name => near(ours.dtype, x, y, exact || name == "aux"),
        };
        let pairs = ours.elements().zip(theirs.elements()).filter(|((at, _), _)| counts(at[2]));
        let different = pairs.filter(|((at, x), (_, y))| !fits(at[2], *x, *y));
        let different: Vec<_> = different.map(|((at, x), (_, y))| format!("{at:?}: {x}, cuBLASLt has {y}")).collect();
        let some = &different[..different.len().min(5)];
        assert!(different.is_empty(), "{} `{}` of {case}\n{} differ: {some:?}", named.name, ours.name, different.len());
    }
    Ok([ours, theirs])
}

/// How far apart two sums over a column may be. Each library adds up D before it is rounded, or as it is stored, or
/// what its own kernel has in between: what D differs by counts whole, and roundings, of which none knows of the other,
/// four standard deviations.
fn apart([ours, theirs]: [&Buffer; 2], rows: usize, column: usize) -> f64 {
    let rows = (0..rows).map(|row| (ours.at(0, row, column), theirs.at(0, row, column)));
    let (differences, squares) = rows.fold((0.0, 0.0), |(differences, squares), (x, y)| {
        (differences + (x - y).abs(), squares + (unit(ours.dtype) * x.abs().max(y.abs())).powi(2) / 6.0)
    });
    differences + 4.0 * squares.sqrt()
}

fn run(dtype: DType, names: &[&str]) {
    let Some((device, library)) = library() else { return };
    for named in cublaslt::ALL.iter().filter(|n| names.contains(&n.name)) {
        for (layout, shape) in [TN, NN, NT].into_iter().zip(SHAPES.into_iter().cycle()) {
            for with_c in [false, true] {
                let formats = Formats { c: with_c.then_some(dtype), ..Formats::of(dtype) };
                let case = case(named, formats, layout, shape);
                let outcome = compare(&library, device, named, &case, |_| true);
                outcome.unwrap_or_else(|e| panic!("{} {dtype} {layout}: {e}", named.name));
            }
        }
    }
}

const PLAIN: [&str; 6] = ["DEFAULT", "RELU", "BIAS", "RELU_BIAS", "GELU", "GELU_BIAS"];
const WITH_AUXILIARIES: [&str; 4] = ["RELU_AUX", "RELU_AUX_BIAS", "GELU_AUX", "GELU_AUX_BIAS"];
const BACKWARD: [&str; 4] = ["DRELU", "DGELU", "DRELU_BGRAD", "DGELU_BGRAD"];

#[test]
fn plain() {
    [F16, BF16].into_iter().for_each(|dtype| run(dtype, &PLAIN));
}

#[test]
fn with_auxiliaries() {
    [F16, BF16].into_iter().for_each(|dtype| run(dtype, &WITH_AUXILIARIES));
}

#[test]
fn backward() {
    [F16, BF16].into_iter().for_each(|dtype| run(dtype, &BACKWARD));
}

/// fp8: scales by pointer, the scale of D and the largest size before it.
#[test]
fn scales_and_maxima_of_fp8() {
    let Some((device, library)) = library() else { return };
    let power: Fill = |rng, _| [0.25, 0.5, 1.0, 2.0][(rng.bits() % 4) as usize];
    for d in [BF16, E4M3] {
        let mut compared = 0;
        for named in cublaslt::ALL.iter().filter(|named| PLAIN.contains(&named.name)) {
            for shape in SHAPES.map(|shape| Shape { n: shape.n.next_multiple_of(16), k: shape.k.next_multiple_of(16), ..shape }) {
                let epilogue = (named.build)(Formats::fp8(d)).unwrap_or_else(|e| panic!("{}: {e}", named.name));
                let case = Case::new(&Gemm::new(E4M3, TN, &epilogue), shape).scalar("alpha", ALPHA);
                let case = ["a", "b", "bias"].into_iter().fold(case, |case, name| case.fill(name, small));
                let case = ["scale_a", "scale_b", "scale_d"].into_iter().fold(case, |case, name| case.fill(name, power));
                match compare(&library, device, named, &case, |_| true) {
                    Ok(_) => compared += 1,
                    Err(why) => println!("{} of e4m3 to {d}: cuBLASLt {}: {why}", named.name, library.version()),
                }
                case.without(if d == E4M3 { &["scale_a", "scale_d"] } else { &["scale_b"] }).run();
            }
        }
        assert!(compared > 0, "cuBLASLt {} has no product of e4m3 to {d}", library.version());
    }
}

/// Sums of an operand over K, inside the product. cuBLASLt has them for some layouts only.
#[test]
fn sums_of_operands() {
    let Some((device, library)) = library() else { return };
    for named in cublaslt::ALL.iter().filter(|named| named.name.starts_with("BGRAD")) {
        let mut compared = 0;
        for (dtype, layout) in [F16, BF16].into_iter().flat_map(|dtype| Layout::ALL.map(|layout| (dtype, layout))) {
            for shape in SHAPES {
                let case = case(named, Formats::of(dtype), layout, shape);
                match compare(&library, device, named, &case, |_| true) {
                    Ok(_) => compared += 1,
                    Err(why) => println!("{} {dtype} {layout}: cuBLASLt {}: {why}", named.name, library.version()),
                }
            }
        }
        assert!(compared > 0, "cuBLASLt {} has {} for no layout", library.version(), named.name);
    }
}

/// Zeros and infinities: D and the mask agree to the bit there, too. NaN does where it is not masked; what cuBLASLt makes of
/// it beside a mask is said, and is its own affair.
#[test]
fn edges_of_relu() {
    let Some((device, library)) = library() else { return };
    let odd: Fill = |rng, _| [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0][(rng.bits() % 7) as usize];
    let zeros: Fill = |rng, _| [0.0, -0.0, 1.0, -1.0][(rng.bits() % 4) as usize];
    for dtype in [F16, BF16] {
        for named in cublaslt::ALL.iter().filter(|n| matches!(n.name, "RELU" | "RELU_BIAS" | "RELU_AUX" | "RELU_AUX_BIAS")) {
            let case = case(named, Formats::of(dtype), TN, Shape::new(200, 264, 8)).fill("a", zeros).fill("bias", odd);
            let given = case.buffers();
            let bias = given.iter().find(|b| b.name == "bias");
            let nan = |column: usize| bias.is_some_and(|bias| bias.at(0, 0, column).is_nan());
            let masked = named.name.contains("AUX");
            let outcome = compare(&library, device, named, &case, |column| !masked || !nan(column));
            let [_, theirs] = outcome.unwrap_or_else(|e| panic!("{} {dtype}: {e}", named.name));
            for buffer in theirs.iter().filter(|b| b.written && masked && bias.is_some()) {
                let values = buffer.elements().filter(|(at, _)| nan(at[2])).map(|(_, x)| x);
                let (nans, ones) =
                    values.fold((0, 0), |(nans, ones), x| (nans + i32::from(x.is_nan()), ones + i32::from(x == 1.0)));
                println!("{} {dtype} `{}` of NaN: {nans} NaN, {ones} ones", named.name, buffer.name);
            }
        }
    }
}

/// A bias gradient in `f32` beside 16-bit matrices, which sums of many rows need: we have it, and say whether cuBLASLt has.
#[test]
fn gradients_in_full_precision() {
    let Some((device, library)) = library() else { return };
    for dtype in [F16, BF16] {
        for named in cublaslt::ALL.iter().filter(|n| matches!(n.name, "DRELU_BGRAD" | "DGELU_BGRAD")) {
            let formats = Formats { bias: F32, ..Formats::of(dtype) };
            let case = case(named, formats, TN, SHAPES[0]);
            match compare(&library, device, named, &case, |_| true) {
                Ok(_) => println!("cuBLASLt {} sums {dtype} in f32", library.version()),
                Err(why) => println!("{} {dtype}, gradient f32: cuBLASLt {}: {why}", named.name, library.version()),
            }
            case.run();
        }
    }
}
