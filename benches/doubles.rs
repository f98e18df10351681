//! Products in `f64` against cuBLASLt's.
//!
//! `cargo bench --bench doubles`. Contenders take turns as in `eight_bits`. A figure is cuBLASLt's time over ours, so above 1
//! ours are faster. `-- --shape 4096x4096x4096` takes one product, `-- --tiles 4` measures four more tiles, `-- --rounds 15` sets
//! the rounds. cuBLASLt has tensor cores for doubles, which ours do not use: they multiply at half of the rate at best.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "gemm/cublaslt.rs"]
mod cublaslt;
#[path = "gemm/statistics.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod statistics;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;
#[path = "gemm/turns.rs"]
mod turns;

use cublaslt::{Addresses, Library, Product, Request};
use postlude::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use postlude::prelude::*;
use statistics::{Spread, median};
use std::sync::Arc;
use turns::{Contender, Result, best, contest, plans};

const ROUNDS: usize = 15;

/// Squares, a narrow product, and a single row.
const SHAPES: [Shape; 5] = [
    Shape::new(4096, 4096, 4096),
    Shape::new(2048, 2048, 2048),
    Shape::new(1000, 1000, 1000),
    Shape::new(4096, 64, 4096),
    Shape::new(1, 8192, 8192),
];

struct Operands {
    a: CudaSlice<f64>,
    b: CudaSlice<f64>,
    d: CudaSlice<f64>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, Shape { m, n, k, .. }: Shape) -> Result<Operands> {
        let mut state = 1u64;
        let mut noise = |len: usize| -> Result<CudaSlice<f64>> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 12) as f64 / (1u64 << 51) as f64 - 1.0
            };
            Ok(stream.clone_htod(&(0..len).map(|_| next()).collect::<Vec<f64>>())?)
        };
        Ok(Operands { a: noise(m * k)?, b: noise(n * k)?, d: stream.alloc_zeros(m * n)? })
    }
}

fn ours<'a>(stream: &'a Arc<CudaStream>, plan: Plan) -> Contender<'a, Operands> {
    let name = plan.kernel().plan.tile.to_string();
    let launch = move |Operands { a, b, d }: &mut Operands, _| {
        Ok(plan.execute(stream, &mut DeviceArgs::new().input("a", &*a).input("b", &*b).output("d", d))?)
    };
    Contender { name, launch: Box::new(launch) }
}

/// cuBLASLt's algorithms for the same.
fn theirs<'a>(
    stream: &'a Arc<CudaStream>,
    library: &'a Library,
    layout: Layout,
    shape: Shape,
    operands: &mut Operands,
) -> Result<Vec<Contender<'a, Operands>>> {
    let at = move |Operands { a, b, d }: &mut Operands, _: usize| Addresses {
        a: a.device_ptr(stream).0,
        b: b.device_ptr(stream).0,
        d: d.device_ptr_mut(stream).0,
        ..Addresses::default()
    };
    let request = Request { dtype: F64, layout, shape, epilogue: 1, bias: F64, aux_ld: 0, tf32: false, eight_bits: None };
    let product = Product::new(library, &request, &at(operands, 0))?;
    Ok(turns::algorithms(stream, product, "cuBLASLt", at))
}

fn run(device: &Device, args: &[String]) -> Result<()> {
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let library = Library::new(&stream)?;
    let [tiles, rounds] = [("--tiles", 0), ("--rounds", ROUNDS)].map(|(name, or)| support::number(args, name).unwrap_or(or));
    let rounds = support::rounds(args, rounds);
    let shapes = match support::value(args, "--shape") {
        Some(text) => vec![turns::shape(text)?],
        None => SHAPES.to_vec(),
    };
    println!("{device:?}, cuBLASLt {}", library.version());
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_f64(), F64))?;
    for shape in shapes {
        for layout in [TN, NN] {
            let mut operands = Operands::new(&stream, shape)?;
            let gemm = Gemm::new(F64, layout, &epilogue);
            let mut contenders: Vec<_> =
                plans(device, &gemm, shape, tiles)?.into_iter().map(|plan| ours(&stream, plan)).collect();
            let mine = contenders.len();
            match theirs(&stream, &library, layout, shape, &mut operands) {
                Ok(theirs) => contenders.extend(theirs),
                Err(error) => println!("{shape} {layout}: {error}"),
            }
            let seconds = contest(&stream, &contenders, &mut operands, rounds)?;
            println!("{shape} {layout}");
            let peer = best(&seconds, mine..contenders.len());
            let rate = |i: usize| 2.0 * (shape.m * shape.n) as f64 * shape.k as f64 / median(&seconds[i]) / 1e12;
            for i in (0..mine).chain(peer).filter(|i| !seconds[*i].is_empty()) {
                let against = peer.filter(|peer| *peer != i).map_or(String::new(), |peer| {
                    let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[peer], &seconds[i]);
                    format!("{ratio:.3} [{low:.3}, {high:.3}]  ")
                });
                println!("  {against}{:.1} us, {:.1} TFLOP/s  {}", 1e6 * median(&seconds[i]), rate(i), contenders[i].name);
            }
            if let Some(peer) = peer {
                let mut first = |i: usize| -> Result<Vec<f64>> {
                    (contenders[i].launch)(&mut operands, 0)?;
                    Ok(stream.clone_dtoh(&operands.d)?)
                };
                let (mine, theirs) = (first(0)?, first(peer)?);
                let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
                let apart = norm(&mut mine.iter().zip(&theirs).map(|(x, y)| x - y)) / norm(&mut mine.iter().copied());
                println!("  results are {apart:.1e} apart");
            }
        }
    }
    Ok(())
}

fn main() {
    support::on_gpu(run);
}
