//! Filling a cache beforehand, on every core and without a GPU.

use super::{Gemm, Kernel, parallel};
use crate::error::Error;
use crate::jit::Cache;
use crate::plan::Problem;
use crate::target::{Gpu, Target};

/// A kernel that will be wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The product and its epilogue.
    pub gemm: Gemm,
    /// What it will run on.
    pub target: Target,
    /// Its multiprocessors and model; the choice of the tile depends on them.
    pub gpu: Gpu,
    /// The problem.
    pub problem: Problem,
}

/// Compiles every kernel that the cache does not have, on `threads` threads (0: one a core). `finished` is told of each as soon as
/// it is there, by its place in `wanted`. The answers are in the order of `wanted`; one that fails does not stop the others.
///
/// The cache then has what [`Gemm::compile`] and `Gemm::plan` ask for if they ask with the same target, count and problem: also
/// in another process, and on a machine without NVRTC.
pub fn precompile(
    cache: &Cache,
    wanted: &[Wanted],
    threads: usize,
    finished: impl Fn(usize, &Result<Kernel, Error>) + Sync,
) -> Vec<Result<Kernel, Error>> {
    let threads = if threads == 0 { parallel::cores() } else { threads };
    let kernels = parallel::map(wanted.len(), threads, |at| {
        let Wanted { gemm, target, gpu, problem } = &wanted[at];
        let kernel = gemm.compile(cache, *target, *gpu, problem.clone());
        finished(at, &kernel);
        kernel
    });
    cache.tell("precompile");
    kernels
}

impl Gemm {
    /// Fills a cache for several targets, each with its number of multiprocessors, on every core.
    ///
    /// # Errors
    /// Of the targets that fail, the first.
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
