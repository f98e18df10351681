//! Filling a cache in advance, on every core and without a GPU.

use super::{Gemm, Kernel, memo};
use crate::error::Error;
use crate::jit::{Cache, CacheKey};
use crate::parallel;
use crate::plan::Problem;
use crate::target::{Gpu, Target};
use std::collections::HashMap;

/// A kernel that will be needed.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The product and its epilogue.
    pub gemm: Gemm,
    /// The target that it will run on.
    pub target: Target,
    /// The GPU's multiprocessors and model, on which the choice of the tile depends.
    pub gpu: Gpu,
    /// The problem.
    pub problem: Problem,
}

/// Compiles every kernel that the cache does not have, on `threads` threads (0: one for each core). It calls `finished`
/// for each kernel as soon as it is there, with its index in `wanted`. The results are in the order of `wanted`. A
/// kernel that fails does not stop the others.
///
/// The cache then has the kernels for [`Gemm::compile`] and `Gemm::plan` with the same target, GPU and problem: also in
/// another process, and on a machine without NVRTC.
pub fn precompile(
    cache: &Cache,
    wanted: &[Wanted],
    threads: usize,
    finished: impl Fn(usize, &Result<Kernel, Error>) + Sync,
) -> Vec<Result<Kernel, Error>> {
    let threads = if threads == 0 { parallel::cores() } else { threads };
    // One thread makes the kernel of equal requests, and then finds it in memory.
    let keys = parallel::map(wanted.len(), threads, |at| {
        let Wanted { gemm, target, gpu, problem } = &wanted[at];
        memo::key(gemm, *target, *gpu, problem, "")
    });
    let mut classes: Vec<Vec<usize>> = Vec::new();
    let mut class_of: HashMap<CacheKey, usize> = HashMap::new();
    for (at, key) in keys.into_iter().enumerate() {
        let class = key.map_or(classes.len(), |key| *class_of.entry(key).or_insert(classes.len()));
        match classes.get_mut(class) {
            Some(equal) => equal.push(at),
            None => classes.push(vec![at]),
        }
    }
    let made = parallel::map(classes.len(), threads, |class| {
        let make = |at: &usize| {
            let Wanted { gemm, target, gpu, problem } = &wanted[*at];
            let kernel = gemm.compile(cache, *target, *gpu, problem.clone());
            finished(*at, &kernel);
            (*at, kernel)
        };
        classes[class].iter().map(make).collect::<Vec<_>>()
    });
    cache.tell("precompile");
    let mut kernels: Vec<(usize, Result<Kernel, Error>)> = made.into_iter().flatten().collect();
    kernels.sort_by_key(|(at, _)| *at);
    kernels.into_iter().map(|(_, kernel)| kernel).collect()
}

impl Gemm {
    /// Fills a cache for several targets, each with its GPU, on every core.
    ///
    /// # Errors
    /// The first error among the targets.
    pub fn precompile(
        &self,
        cache: &Cache,
        targets: &[(Target, impl Into<Gpu> + Copy)],
        problem: impl Into<Problem>,
    ) -> Result<Vec<Kernel>, Error> {
        let problem = problem.into();
        let wanted = targets.iter().map(|&(target, gpu)| {
            let (gemm, gpu, problem) = (self.clone(), gpu.into(), problem.clone());
            Wanted { gemm, target, gpu, problem }
        });
        precompile(cache, &wanted.collect::<Vec<_>>(), 0, |_, _| ()).into_iter().collect()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::jit::tests::events::heard;

    #[test]
    fn the_numbers_are_an_event_at_the_end() {
        let cache = Cache::in_memory();
        let (kernels, events) = heard(tracing::Level::DEBUG, || precompile(&cache, &[], 1, |_, _| ()));
        assert!(kernels.is_empty());
        let told: Vec<_> = events.iter().map(|event| (event.target, event.get("when"), event.get("compiles"))).collect();
        assert_eq!(told, [("postlude::cache", "precompile", "0")]);
    }
}
