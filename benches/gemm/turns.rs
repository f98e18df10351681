//! Contenders that take turns on a GPU, over matrices that are more than its cache holds.

use crate::cublaslt::{Addresses, Product};
use crate::statistics::{Shuffle, median};
use postlude::Shape;
use postlude::cudarc::driver::CudaStream;
use postlude::cudarc::driver::sys::CUevent_flags;
use postlude::device::Device;
use postlude::{Gemm, Plan};
use std::error::Error;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Seconds of a contender in a round.
const SLICE: f64 = 2e-3;

/// Enqueues one launch over the operands of a turn.
pub type Launch<'a, O> = Box<dyn Fn(&mut O, usize) -> Result<()> + 'a>;

/// One contender: what it is called, and how it launches.
pub struct Contender<'a, O> {
    pub name: String,
    pub launch: Launch<'a, O>,
}

/// Seconds of a launch.
fn time<O>(stream: &Arc<CudaStream>, contender: &Contender<'_, O>, operands: &mut O, launches: usize) -> Result<f64> {
    let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    (0..launches).try_for_each(|turn| (contender.launch)(operands, turn))?;
    let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / launches as f64)
}

/// Seconds of every contender in every round; of those that fail nothing.
pub fn contest<O>(
    stream: &Arc<CudaStream>,
    contenders: &[Contender<'_, O>],
    operands: &mut O,
    rounds: usize,
) -> Result<Vec<Vec<f64>>> {
    let mut launches = Vec::new();
    for contender in contenders {
        let once = time(stream, contender, operands, 1).and_then(|_| time(stream, contender, operands, 4));
        launches.push(once.map_or(0, |seconds| (SLICE / seconds).ceil() as usize));
    }
    let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(7));
    for _ in 0..rounds {
        for i in shuffle.order(contenders.len()).into_iter().filter(|i| launches[*i] > 0) {
            seconds[i].push(time(stream, &contenders[i], operands, launches[i])?);
        }
    }
    Ok(seconds)
}

/// A shape as `4096x4096x4096`.
pub fn shape(text: &str) -> Result<Shape> {
    let extents: Vec<usize> = text.split('x').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let &[m, n, k] = extents.as_slice() else {
        return Err(format!("`{text}` is not a shape: write it as 4096x4096x4096").into());
    };
    Ok(Shape::new(m, n, k))
}

/// The chosen plan, and those of as many other tiles, the best first.
pub fn plans(device: &Device, gemm: &Gemm, shape: Shape, others: usize) -> Result<Vec<Plan>> {
    let plan = gemm.plan(device, shape)?;
    let others: Vec<_> = plan.kernel().plan.choice.candidates().skip(1).take(others).collect();
    let mut plans = vec![plan];
    for (tile, raster) in others {
        plans.push(gemm.clone().tile(tile).raster_group(raster).plan(device, shape)?);
    }
    Ok(plans)
}

/// The fastest of some contenders, among those that ran.
pub fn best(seconds: &[Vec<f64>], among: Range<usize>) -> Option<usize> {
    let ran = among.filter(|i| !seconds[*i].is_empty());
    ran.min_by(|x, y| median(&seconds[*x]).total_cmp(&median(&seconds[*y])))
}

/// A contender for each of cuBLASLt's algorithms. `at` gives the addresses of a turn, which have to have room for the shape that
/// the product was made for, and live as long as the operands.
pub fn algorithms<'a, O: 'a>(
    stream: &'a Arc<CudaStream>,
    product: Product<'a>,
    what: &str,
    at: impl Fn(&mut O, usize) -> Addresses + Copy + 'a,
) -> Vec<Contender<'a, O>> {
    let product = Rc::new(product);
    let each = (0..product.algorithms()).map(|algorithm| {
        let product = product.clone();
        let launch = move |operands: &mut O, turn: usize| {
            let addresses = at(operands, turn);
            // SAFETY: the caller's addresses lie in the operands' memory, which every slice waits for, and there is one stream.
            unsafe { product.launch(stream, &addresses, [1.0, 0.0], algorithm) }
        };
        Contender { name: format!("{what}, algorithm {}", algorithm + 1), launch: Box::new(launch) as Launch<'a, O> }
    });
    each.collect()
}
