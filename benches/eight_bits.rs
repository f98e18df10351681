//! Products of eight bits against cuBLASLt's, the best of the eight algorithms that it proposes.
//!
//! `cargo bench --bench eight_bits`. Contenders take turns in one process, shuffled in every round, over matrices that
//! are more than the level-2 cache holds together; a figure is the median over the rounds of the ratio of times inside a
//! round. `-- --tiles 8` also measures the eight tiles that are estimated to be the best beside the one that is chosen.
//! `--shape 4096x4096x4096` measures that shape instead of the list, and `--only TEXT` the cases whose title contains TEXT.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "gemm/cublaslt.rs"]
mod cublaslt;
#[path = "gemm/statistics.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod statistics;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;
#[path = "gemm/turns.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod turns;

use cublaslt::{Addresses, EightBits, Library, Product, Request};
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use postlude::prelude::*;
use postlude::{Gemm, Tensor};
use statistics::{Spread, median};
use std::sync::Arc;
use turns::{Contender, Result, best, contest, plans};

const SHAPES: [Shape; 5] = [
    Shape::new(8192, 8192, 8192),
    Shape::new(4096, 4096, 4096),
    Shape::new(16384, 8192, 1024),
    Shape::new(4096, 14336, 4096),
    Shape::new(2048, 2048, 2048),
];
/// Rounds.
const ROUNDS: usize = 15;
/// Bytes that the sets of matrices come to together.
const BEYOND_CACHE: usize = 200 << 20;

/// What is done with the sums.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Stored as they are: floating-point ones as BF16, integers as I32.
    Plain,
    /// Scaled by rows and columns, with a bias and relu, as BF16.
    Scaled,
    /// Integers scaled by rows and columns, to eight bits.
    Requantised,
    /// A bias, relu, the largest size and a scale, to eight bits; of integers scales of rows and columns besides.
    Quantised,
}

impl Does {
    const ALL: [Does; 4] = [Does::Plain, Does::Scaled, Does::Requantised, Does::Quantised];

    const fn name(self) -> &'static str {
        match self {
            Does::Plain => "plain",
            Does::Scaled => "row and column scales, bias, relu",
            Does::Requantised => "row and column scales, to eight bits",
            Does::Quantised => "bias, relu, amax, to eight bits",
        }
    }

    fn d(self, dtype: DType) -> DType {
        match self {
            Does::Plain if dtype == I8 => I32,
            Does::Plain | Does::Scaled => BF16,
            Does::Requantised | Does::Quantised => dtype,
        }
    }

    fn epilogue(self, dtype: DType) -> Result<Epilogue> {
        Ok(Epilogue::build(|e| {
            let z = if dtype == I8 { e.acc_i32().cast(F32) } else { e.acc() };
            let scaled = |z| z * e.load("rows", F32.over(M)) * e.load("columns", F32.over(N));
            match self {
                Does::Plain if dtype == I8 => e.store("d", e.acc_i32(), I32),
                Does::Plain => e.store("d", z, BF16),
                Does::Scaled => e.store("d", (scaled(z) + e.load("bias", BF16.over(N))).relu(), BF16),
                Does::Requantised => e.store("d", scaled(z), dtype),
                Does::Quantised => {
                    let z = if dtype == I8 { scaled(z) } else { z };
                    let z = (z + e.load("bias", BF16.over(N))).relu();
                    e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
                    e.store("d", z * e.load("scale", F32.pointer()), dtype);
                }
            }
        })?)
    }

    /// cuBLASLt's epilogue that does most of it.
    const fn peer(self, dtype: DType) -> (&'static str, u32) {
        match (self, dtype) {
            (Does::Plain | Does::Requantised, _) => ("plain", 1),
            (_, DType::I8) => ("plain", 1),
            (Does::Scaled, _) => ("bias, relu", 6),
            (Does::Quantised, _) => ("bias, relu, amax", 6),
        }
    }
}

/// The matrices of one turn, and what all turns share.
struct Operands {
    sets: Vec<[CudaSlice<u8>; 4]>,
    rows: CudaSlice<f32>,
    columns: CudaSlice<f32>,
    bias: CudaSlice<postlude::half::bf16>,
    scale: CudaSlice<f32>,
    amax: CudaSlice<f32>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, dtype: DType, Shape { m, n, k, .. }: Shape) -> Result<Operands> {
        let count = BEYOND_CACHE.div_ceil((m + n) * k + 2 * m * n).clamp(1, 12);
        let mut state = 1u64;
        let mut noise = |len: usize| -> Result<CudaSlice<u8>> {
            let block: Vec<u8> = (0..len.min(1 << 22))
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let x = (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
                    if dtype == I8 { (x * 200.0) as i8 as u8 } else { postlude::float8::F8E4M3::from_f32(x).to_bits() }
                })
                .collect();
            let mut all = stream.alloc_zeros::<u8>(len)?;
            let block = stream.clone_htod(&block)?;
            for start in (0..len).step_by(block.len()) {
                let end = (start + block.len()).min(len);
                stream.memcpy_dtod(&block.slice(..end - start), &mut all.slice_mut(start..end))?;
            }
            Ok(all)
        };
        let mut sets = Vec::new();
        for _ in 0..count {
            sets.push([noise(m * k)?, noise(k * n)?, stream.alloc_zeros(4 * m * n)?, stream.alloc_zeros(2 * m * n)?]);
        }
        let ones = |len: usize| stream.clone_htod(&vec![1.0f32 / 64.0; len]);
        Ok(Operands {
            sets,
            rows: ones(m)?,
            columns: ones(n)?,
            bias: stream.alloc_zeros(n)?,
            scale: ones(1)?,
            amax: stream.alloc_zeros(1)?,
        })
    }
}

fn ours<'a>(stream: &'a Arc<CudaStream>, name: String, plan: postlude::Plan, gemm: &Gemm, does: Does) -> Contender<'a, Operands> {
    let (dtype, epilogue) = (gemm.operation().dtype(), gemm.epilogue().clone());
    let launch = move |operands: &mut Operands, turn: usize| {
        let turn = turn % operands.sets.len();
        let Operands { sets, rows, columns, bias, scale, amax } = operands;
        let [a, b, d, _] = &mut sets[turn];
        let args = DeviceArgs::new()
            .input("a", Tensor::of_device_bytes(dtype, &*a))
            .input("b", Tensor::of_device_bytes(dtype, &*b))
            .input("rows", &*rows)
            .input("columns", &*columns)
            .input("bias", &*bias)
            .input("scale", &*scale)
            .output("d", Tensor::of_device_bytes(does.d(dtype), d))
            .output("amax", amax);
        Ok(plan.execute(stream, &mut args.used_by(epilogue.checked()))?)
    };
    Contender { name, launch: Box::new(launch) }
}

fn theirs<'a>(
    stream: &'a Arc<CudaStream>,
    library: &'a Library,
    does: Does,
    dtype: DType,
    fast: bool,
    shape: Shape,
    operands: &mut Operands,
) -> Result<Vec<Contender<'a, Operands>>> {
    let at = move |operands: &mut Operands, turn: usize| {
        let turn = turn % operands.sets.len();
        let Operands { sets, bias, scale, amax, .. } = operands;
        let [a, b, d, c] = &mut sets[turn];
        let mut at = Addresses { a: a.device_ptr(stream).0, b: b.device_ptr(stream).0, ..Addresses::default() };
        (at.d, at.c) =
            (d.device_ptr_mut(stream).0, if does == Does::Quantised && dtype != I8 { c.device_ptr(stream).0 } else { 0 });
        if does.peer(dtype).1 != 1 {
            at.bias = bias.device_ptr(stream).0;
        }
        if does == Does::Quantised && dtype != I8 {
            (at.scales[2], at.amax) = (scale.device_ptr(stream).0, amax.device_ptr_mut(stream).0);
        }
        at
    };
    let (what, epilogue) = does.peer(dtype);
    let d = if dtype == I8 && does == Does::Scaled { I32 } else { does.d(dtype) };
    let eight_bits = Some(EightBits { b: dtype, d, fast: fast && dtype != I8, blocks: [false; 2] });
    let request = Request { dtype, layout: TN, shape, epilogue, bias: BF16, aux_ld: 0, tf32: false, eight_bits };
    let product = Product::new(library, &request, &at(operands, 0))?;
    Ok(turns::algorithms(stream, product, &format!("cuBLASLt ({what} to {d})"), at))
}

/// What to measure.
struct Options {
    /// Tiles beside the chosen one.
    tiles: usize,
    rounds: usize,
    shapes: Vec<Shape>,
    /// A part of the titles of the cases.
    only: String,
}

impl Options {
    fn of(args: &[String]) -> Result<Options> {
        let value = |name: &str| support::value(args, name);
        Ok(Options {
            tiles: value("--tiles").map_or(Ok(0), |tiles| tiles.parse())?,
            rounds: support::rounds(args, ROUNDS),
            shapes: value("--shape").map_or(Ok(SHAPES.to_vec()), |text| turns::shape(text).map(|shape| vec![shape]))?,
            only: value("--only").cloned().unwrap_or_default(),
        })
    }
}

fn run(device: &Device, options: &Options) -> Result<()> {
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let library = Library::new(&stream)?;
    println!("{device:?}, cuBLASLt {}", library.version());
    for &shape in &options.shapes {
        for (dtype, fast) in [(E4M3, false), (E4M3, true), (I8, true)] {
            let mut operands = Operands::new(&stream, dtype, shape)?;
            let mode = if dtype == I8 {
                ""
            } else if fast {
                ", fast"
            } else {
                ", promoted"
            };
            for does in Does::ALL {
                let title = format!("{shape}, {dtype}{mode}: {}", does.name());
                if !title.contains(&options.only) || (does == Does::Requantised && dtype != I8) {
                    continue;
                }
                let gemm = Gemm::new(dtype, TN, &does.epilogue(dtype)?).fast_accumulation(fast);
                let plans = plans(device, &gemm, shape, options.tiles)?.into_iter();
                let mut contenders: Vec<_> =
                    plans.map(|plan| ours(&stream, plan.kernel().plan.tile.to_string(), plan, &gemm, does)).collect();
                let mine = contenders.len();
                // What it has no algorithm for it does not take part in.
                contenders.extend(theirs(&stream, &library, does, dtype, fast, shape, &mut operands).unwrap_or_default());
                let seconds = contest(&stream, &contenders, &mut operands, options.rounds)?;
                let rate = |i: usize| 2.0 * (shape.m * shape.n) as f64 * shape.k as f64 / median(&seconds[i]) / 1e12;
                println!("{title}");
                if let Some(best) = best(&seconds, mine..contenders.len()) {
                    let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[best], &seconds[0]);
                    let (mine, theirs) = (rate(0), rate(best));
                    println!(
                        "  {ratio:.3} [{low:.3}, {high:.3}]  {mine:.0} over {theirs:.0} TFLOP/s  {}  {}",
                        contenders[0].name, contenders[best].name
                    );
                } else {
                    println!("  {:.0} TFLOP/s  {}; cuBLASLt ran none", rate(0), contenders[0].name);
                }
                for (i, contender) in contenders.iter().enumerate().take(mine).skip(1) {
                    let Spread { median: ratio, .. } = Spread::of_ratios(&seconds[i], &seconds[0]);
                    println!("    {ratio:.3} times the chosen one's time: {}", contender.name);
                }
            }
        }
    }
    Ok(())
}

fn main() {
    support::on_gpu(|device, args| run(device, &Options::of(args)?));
}
