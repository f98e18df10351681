//! Weights of eight and four bits beside 16-bit activations, against 16-bit weights; and products of scaled blocks.
//!
//! `cargo bench --bench low_bits`. Contenders take turns as in `eight_bits`. A figure of weights is the time of our f16 product
//! over theirs, so above 1 they are faster; one of blocks is cuBLASLt's time over ours. `-- --rows 1,8` takes these rows,
//! `--shape 1x8192x8192` these weights, `--only TEXT` the cases whose title contains TEXT, and `--tiles 4` measures four more
//! tiles of each kernel, and `--mainloop sm90a` or `gemv` has weights of fewer bits read by that mainloop.
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
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Blocks, Gemm, Operation, Tensor};
use statistics::{Spread, median};
use std::sync::Arc;
use turns::{Contender, Result, best, contest, plans};

/// Bytes that all turns of a contender read.
const POOL: usize = 512 << 20;
const ROUNDS: usize = 15;

/// Memory for every contender: operands are cut out of a pool, another piece in each turn.
struct Operands {
    pool: CudaSlice<u8>,
    tokens: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    d: CudaSlice<u8>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, Shape { m, n, k, .. }: Shape) -> Result<Operands> {
        let mut state = 1u64;
        let mut noise = |len: usize, high: u8| -> Result<CudaSlice<u8>> {
            let block: Vec<u8> = (0..len.min(1 << 22))
                .map(|i| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // The upper byte of 16 bits, so that numbers of all formats are small.
                    if i % 2 == 1 { high | (state >> 60) as u8 } else { (state >> 40) as u8 & 0xb7 }
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
        let blocks = (m.max(n) * k.div_ceil(32)).max(1) * 4;
        Ok(Operands {
            pool: noise(POOL.max(4 * n * k), 0x30)?,
            tokens: noise(2 * m * k, 0x30)?,
            scales: noise(blocks, 0x3c)?,
            d: stream.alloc_zeros(4 * m * n)?,
        })
    }
}

/// Our product. The weights of a turn are the next piece of the pool.
fn ours<'a>(stream: &'a Arc<CudaStream>, plan: postlude::Plan, gemm: &Gemm, shape: Shape) -> Contender<'a, Operands> {
    let (operation, d) = (gemm.operation(), BF16);
    let [a, b] = operation.dtypes();
    let name = plan.kernel().plan.tile.to_string();
    let launch = move |operands: &mut Operands, turn: usize| {
        let Operands { pool, tokens, scales, d: out } = operands;
        let (bytes_a, bytes_b) = (a.bytes(shape.m * shape.k), b.bytes(shape.n * shape.k));
        // Many rows are as much data as the weights: both come from the pool.
        let together = if shape.m > 64 { bytes_a } else { 0 } + bytes_b;
        let at = turn % (pool.len() / together) * together;
        let weights = pool.slice(at..at + bytes_b);
        let rows = if shape.m > 64 { pool.slice(at + bytes_b..at + together) } else { tokens.slice(..bytes_a) };
        let mut args = DeviceArgs::new()
            .input("a", Tensor::of_device_bytes(a, &rows))
            .input("b", Tensor::of_device_bytes(b, &weights))
            .output("d", Tensor::of_device_bytes(d, out));
        for field in postlude::problem::ScaleField::of(operation) {
            let format = match operation.scales()[field.operand] {
                Some(_) if field.zero => Blocks::zero_format(operation.dtypes()[field.operand]),
                Some(blocks) => blocks.dtype,
                None => F32,
            };
            args = args.input(field.name(), Tensor::of_device_bytes(format, &*scales));
        }
        Ok(plan.execute(stream, &mut args)?)
    };
    Contender { name, launch: Box::new(launch) }
}

/// cuBLASLt's algorithms for the same.
fn theirs<'a>(
    stream: &'a Arc<CudaStream>,
    library: &'a Library,
    operation: Operation,
    shape: Shape,
    operands: &mut Operands,
) -> Result<Vec<Contender<'a, Operands>>> {
    let [dtype, _] = operation.dtypes();
    let blocks = operation.scales().map(|blocks| blocks.is_some());
    let at = move |operands: &mut Operands, turn: usize| {
        let Operands { pool, tokens, scales, d } = operands;
        let (bytes_a, bytes_b) = (dtype.bytes(shape.m * shape.k), dtype.bytes(shape.n * shape.k));
        let together = if shape.m > 64 { bytes_a } else { 0 } + bytes_b;
        let begin = pool.device_ptr(stream).0 + (turn % (pool.len() / together) * together) as u64;
        let a = if shape.m > 64 { begin + bytes_b as u64 } else { tokens.device_ptr(stream).0 };
        let scale = scales.device_ptr(stream).0;
        let scales = blocks.map(|has| if has { scale } else { 0 });
        Addresses { a, b: begin, d: d.device_ptr_mut(stream).0, scales: [scales[0], scales[1], 0], ..Addresses::default() }
    };
    let eight_bits = dtype.is_eight_bits().then_some(EightBits { b: dtype, d: BF16, fast: false, blocks });
    let request = Request { dtype, layout: TN, shape, epilogue: 1, bias: BF16, aux_ld: 0, tf32: false, eight_bits };
    let product = Product::new(library, &request, &at(operands, 0))?;
    Ok(turns::algorithms(stream, product, "cuBLASLt", at))
}

struct Options {
    rows: Vec<usize>,
    shapes: Vec<Shape>,
    only: String,
    tiles: usize,
    rounds: usize,
    /// The mainloop of weights of fewer bits, if one is asked for.
    mainloop: Option<Mainloop>,
}

impl Options {
    fn of(args: &[String]) -> Result<Options> {
        let value = |name: &str| support::value(args, name);
        let numbers = |text: &String| text.split(',').map(str::parse).collect::<std::result::Result<Vec<usize>, _>>();
        Ok(Options {
            rows: value("--rows").map_or(Ok(vec![1, 2, 4, 8, 16]), numbers)?,
            shapes: match value("--shape") {
                Some(text) => vec![turns::shape(text)?],
                None => vec![Shape::new(1, 8192, 8192), Shape::new(1, 14336, 4096), Shape::new(1, 4096, 14336)],
            },
            only: value("--only").cloned().unwrap_or_default(),
            tiles: value("--tiles").map_or(Ok(0), |tiles| tiles.parse())?,
            rounds: support::rounds(args, ROUNDS),
            mainloop: value("--mainloop").map(|name| mainloop(name)).transpose()?,
        })
    }
}

/// One of the mainloops that read weights of fewer bits.
fn mainloop(name: &str) -> Result<Mainloop> {
    let all = [Mainloop::Gemv, Mainloop::Sm90a];
    all.into_iter().find(|mainloop| mainloop.to_string() == name).ok_or_else(|| format!("no such mainloop: {name}").into())
}

/// Weights of fewer bits beside f16 ones.
fn weights(device: &Device, stream: &Arc<CudaStream>, library: &Library, options: &Options) -> Result<()> {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), BF16))?;
    let groups = Blocks::groups;
    let formats = [
        ("f16", F16, None),
        ("i8", I8, None),
        ("e4m3", E4M3, None),
        ("i8, groups of 128", I8, Some(groups(128).scales_as(F16))),
        ("i4, groups of 128", I4, Some(groups(128).scales_as(F16))),
        ("u4, groups of 64, zero points", U4, Some(groups(64).scales_as(F16).with_zero_points())),
    ];
    for weights in &options.shapes {
        for &rows in &options.rows {
            let shape = Shape { m: rows, ..*weights };
            let title = format!("{shape}: weights");
            if !title.contains(&options.only) {
                continue;
            }
            let mut operands = Operands::new(stream, shape)?;
            let (mut contenders, mut ranges) = (Vec::new(), Vec::new());
            for (_, b, blocks) in formats {
                let operation = Operation::Product { a: F16, b, layout: TN, scales: [None, blocks] };
                let gemm = Gemm::of(operation, &epilogue);
                let gemm = options.mainloop.filter(|_| b != F16).map_or(gemm.clone(), |mainloop| gemm.mainloop(mainloop));
                let from = contenders.len();
                for plan in plans(device, &gemm, shape, if b == F16 { 0 } else { options.tiles })? {
                    contenders.push(ours(stream, plan, &gemm, shape));
                }
                ranges.push(from..contenders.len());
            }
            let mine = contenders.len();
            let peer = Operation::product(F16, TN);
            contenders.extend(theirs(stream, library, peer, shape, &mut operands).unwrap_or_default());
            let seconds = contest(stream, &contenders, &mut operands, options.rounds)?;
            println!("{title}");
            let us = |i: usize| 1e6 * median(&seconds[i]);
            let line = |what: &str, i: usize, bytes: usize| {
                let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[0], &seconds[i]);
                let rate = bytes as f64 / median(&seconds[i]) / 1e12;
                println!("  {ratio:.3} [{low:.3}, {high:.3}]  {:6.2} us, {rate:.2} TB/s  {what}: {}", us(i), contenders[i].name);
            };
            for ((what, b, _), range) in formats.iter().zip(&ranges) {
                range.clone().filter(|i| !seconds[*i].is_empty()).for_each(|i| line(what, i, b.bytes(shape.n * shape.k)));
            }
            if let Some(i) = best(&seconds, mine..contenders.len()) {
                line("f16", i, F16.bytes(shape.n * shape.k));
            }
        }
    }
    Ok(())
}

/// Products of scaled blocks.
fn blocks(device: &Device, stream: &Arc<CudaStream>, library: &Library, options: &Options) -> Result<()> {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), BF16))?;
    let (rows, squares) = (Blocks::groups(128), Blocks::squares(128));
    for shape in [Shape::new(8192, 8192, 8192), Shape::new(4096, 4096, 4096), Shape::new(4096, 14336, 4096)] {
        for (what, scales) in [
            ("1x128 by 128x128", [Some(rows), Some(squares)]),
            ("1x128 by 1x128", [Some(rows), Some(rows)]),
            ("no blocks, promoted", [None, None]),
        ] {
            let title = format!("{shape}: {what}");
            if !title.contains(&options.only) {
                continue;
            }
            let mut operands = Operands::new(stream, shape)?;
            let operation = Operation::Product { a: E4M3, b: E4M3, layout: TN, scales };
            let gemm = Gemm::of(operation, &epilogue);
            let mut contenders = Vec::new();
            for plan in plans(device, &gemm, shape, options.tiles)? {
                contenders.push(ours(stream, plan, &gemm, shape));
            }
            let mine = contenders.len();
            // cuBLASLt's scales of single lines are of one kind here.
            if scales[1] != Some(rows) {
                contenders.extend(theirs(stream, library, operation, shape, &mut operands).unwrap_or_default());
            }
            let seconds = contest(stream, &contenders, &mut operands, options.rounds)?;
            println!("{title}");
            let rate = |i: usize| 2.0 * (shape.m * shape.n) as f64 * shape.k as f64 / median(&seconds[i]) / 1e12;
            let peer = best(&seconds, mine..contenders.len());
            for i in (0..mine).filter(|i| !seconds[*i].is_empty()) {
                let against = peer.map_or(String::new(), |peer| {
                    let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[peer], &seconds[i]);
                    format!("{ratio:.3} [{low:.3}, {high:.3}]  ")
                });
                println!("  {against}{:.0} TFLOP/s  {}", rate(i), contenders[i].name);
            }
            match peer {
                Some(peer) => {
                    let mut first = |i: usize| -> Result<Vec<f32>> {
                        (contenders[i].launch)(&mut operands, 0)?;
                        let bytes = stream.clone_dtoh(&operands.d.slice(..1 << 20))?;
                        Ok(bytes
                            .chunks_exact(2)
                            .map(|x| f32::from_bits(u32::from(u16::from_le_bytes([x[0], x[1]])) << 16))
                            .collect())
                    };
                    let (mine, theirs) = (first(0)?, first(peer)?);
                    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>().sqrt();
                    let apart = norm(&mut mine.iter().zip(&theirs).map(|(x, y)| x - y)) / norm(&mut mine.iter().copied());
                    println!("  {:.0} TFLOP/s  {}; results are {apart:.1e} apart", rate(peer), contenders[peer].name);
                }
                None => println!("  cuBLASLt ran none"),
            }
        }
    }
    Ok(())
}

fn run(device: &Device, options: &Options) -> Result<()> {
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let library = Library::new(&stream)?;
    println!("{device:?}, cuBLASLt {}", library.version());
    weights(device, &stream, &library, options)?;
    blocks(device, &stream, &library, options)
}

fn main() {
    support::on_gpu(|device, args| run(device, &Options::of(args)?));
}
