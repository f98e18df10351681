//! Planners: a product for problems of any size, each kind of which is planned once.

use super::{Gemm, Plan};
use crate::args::{Args, Given};
use crate::device::{Device, DeviceArgs};
use crate::error::Error;
use crate::problem::Shape;
use crate::tune::{Autotune, Tuning};
use cudarc::driver::CudaStream;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A product on a device, for callers whose extents and strides change from call to call: an adapter of another library,
/// a layer of a network. It keeps the plans that it made, and with them their scratch memory.
///
/// ```no_run
/// use postlude::gemm::Planner;
/// use postlude::prelude::*;
/// # fn f(a: &postlude::cudarc::driver::CudaSlice<f32>, d: &mut postlude::cudarc::driver::CudaSlice<f32>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::new(0)?;
/// let planner = Planner::new(&Gemm::new(F32, TN, &postlude::build::recipes::identity(F32)?), &device);
/// let stream = device.context().default_stream();
/// for rows in [16, 32, 16] {
///     let mut args = DeviceArgs::new().input("a", a).input("b", a).output("d", &mut *d);
///     planner.execute(Shape::new(rows, 64, 64), &stream, &mut args)?; // plans twice
/// }
/// # Ok(()) }
/// ```
pub struct Planner {
    gemm: Gemm,
    device: Device,
    plans: Mutex<HashMap<Vec<u64>, Arc<Plan>>>,
}

/// The most plans that are kept. Beyond it all are forgotten: whoever has so many sizes needs the newest.
const MOST: usize = 512;

impl Planner {
    /// Plans nothing yet.
    pub fn new(gemm: &Gemm, device: &Device) -> Planner {
        Planner { gemm: gemm.clone(), device: device.clone(), plans: Mutex::default() }
    }

    /// The product.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// The plan for arguments as they are: the one that was made for such extents, strides and alignment, or a new one.
    ///
    /// # Errors
    /// As [`Gemm::plan_for`].
    pub fn plan(&self, shape: Shape, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<Arc<Plan>, Error> {
        let key = key(shape, args, |buffer| buffer.address(stream));
        if let Some(plan) = self.plans().get(&key) {
            return Ok(plan.clone());
        }
        // Nobody waits for a compilation of another kind.
        let plan = Arc::new(self.gemm.plan_for(&self.device, shape, stream, args)?);
        Ok(keep(&mut self.plans(), key, plan))
    }

    /// Plans if no such problem was planned, and launches.
    ///
    /// # Errors
    /// As [`Gemm::plan_for`] and [`Plan::execute`]; nothing is launched then.
    pub fn execute(&self, shape: Shape, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), Error> {
        self.plan(shape, stream, args)?.execute(stream, args)
    }

    /// [`Plan::autotune`] for such a problem. Later plans of the kind have the tile that was found.
    ///
    /// # Errors
    /// As `Plan::autotune`.
    pub fn autotune(
        &self,
        shape: Shape,
        stream: &Arc<CudaStream>,
        args: &mut DeviceArgs<'_>,
        options: Autotune,
    ) -> Result<Tuning, Error> {
        let key = key(shape, args, |buffer| buffer.address(stream));
        let mut plan = self.gemm.plan_for(&self.device, shape, stream, args)?;
        let tuning = plan.autotune(stream, args, options)?;
        self.plans().insert(key, Arc::new(plan));
        Ok(tuning)
    }

    fn plans(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u64>, Arc<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a plan. Another thread may have been first. Its plan stays, because it may already own scratch memory.
fn keep<T: Clone>(plans: &mut HashMap<Vec<u64>, T>, key: Vec<u64>, plan: T) -> T {
    if plans.len() >= MOST {
        plans.clear();
    }
    plans.entry(key).or_insert(plan).clone()
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Planner({}, {} plans)", self.gemm.operation(), self.plans().len())
    }
}

/// Everything that a plan depends on beside product and device: extents, and of each argument strides and alignment, in an
/// order of their own, because programs pass arguments in any.
fn key<B>(shape: Shape, args: &mut Args<B>, address: impl Fn(&mut B) -> u64) -> Vec<u64> {
    let mut key = Vec::with_capacity(4 + 5 * args.given.len());
    key.extend([shape.m, shape.n, shape.k, shape.batch].map(|extent| extent as u64));
    for (name, given) in &mut args.given {
        let Given::Tensor { tensor, .. } = given else { continue };
        key.push(crate::ir::fnv1a(name.bytes()));
        key.push(u64::from(address(&mut tensor.buffer).trailing_zeros().min(8)));
        let strides = |strides: [Option<usize>; 2]| strides.map(|stride| stride.map_or(u64::MAX, |stride| stride as u64));
        key.extend(strides([tensor.leading_dimension, tensor.batch_stride]));
        if let Some(layout) = tensor.layout {
            key.extend(layout.strides().iter().map(|stride| *stride as u64));
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{HostArgs, IntoTensor, MemoryLayout};

    #[test]
    fn the_first_of_equal_plans_stays_until_there_are_too_many() {
        let mut plans = HashMap::new();
        assert_eq!((keep(&mut plans, vec![0], "first"), keep(&mut plans, vec![0], "second")), ("first", "first"));
        for key in 1..MOST as u64 {
            assert_eq!(keep(&mut plans, vec![key], "other"), "other");
        }
        assert_eq!((plans.len(), plans[&vec![0]]), (MOST, "first"));
        assert_eq!(keep(&mut plans, vec![MOST as u64], "newest"), "newest");
        assert_eq!(plans, HashMap::from([(vec![MOST as u64], "newest")]));
    }

    /// Each part of a problem that a plan depends on makes another key, and nothing else does.
    #[test]
    fn problems_of_a_kind_share_a_key() {
        let (shape, memory, other) = (Shape::new(2, 3, 4), [1.0f32; 64], [2.0f32; 64]);
        let of = |shape: Shape, address: u64, mut args: HostArgs<'_>| key(shape, &mut args, |_| address);
        let ab = || HostArgs::new().input("a", &memory).input("b", &memory);
        let plain = of(shape, 256, ab());
        assert_eq!(of(shape, 512, HostArgs::new().input("a", &other).input("b", &other)), plain, "other memory, as aligned");
        assert_eq!(of(shape, 256, ab().scalar("alpha", 2.0f32)), plain, "a number");
        let layout = |rows| MemoryLayout::new(&[4, 4], &[rows, 1]).unwrap();
        let others = [
            of(Shape::new(1, 3, 4), 256, ab()),
            of(Shape::new(2, 1, 4), 256, ab()),
            of(Shape::new(2, 3, 1), 256, ab()),
            of(shape.batched(5), 256, ab()),
            of(shape, 128, ab()),
            of(shape, 16, ab()),
            of(shape, 256, HostArgs::new().input("a", &memory)),
            of(shape, 256, HostArgs::new().input("a", &memory).input("c", &memory)),
            of(shape, 256, HostArgs::new().input("a", memory.ld(8)).input("b", &memory)),
            of(shape, 256, HostArgs::new().input("a", &memory).input("b", memory.ld(8))),
            of(shape, 256, HostArgs::new().input("a", memory.batch_stride(8)).input("b", &memory)),
            of(shape, 256, HostArgs::new().input("a", memory.laid_out(layout(4))).input("b", &memory)),
            of(shape, 256, HostArgs::new().input("a", memory.laid_out(layout(8))).input("b", &memory)),
            plain,
        ];
        for (index, key) in others.iter().enumerate() {
            assert!(!others[..index].contains(key), "{index}: {key:?}");
        }
    }
}
