//! From a plan to a kernel: rendering, compiling, and planning again if registers run out.

use super::*;
use crate::error::{CustomFailure, Error};
use crate::jit::{Cache, JitError, Options};
use crate::plan::InstrKind;
use crate::source::Cubin;
use std::sync::Arc;

/// A plan, its source and its binary. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The plan.
    pub plan: Arc<KernelPlan>,
    /// The compiled source.
    pub source: Arc<Source>,
    /// The binary.
    pub cubin: Arc<Cubin>,
    /// The kernel that copies operands before this one, if the plan has one.
    pub repack: Option<(Source, Arc<Cubin>)>,
    /// The kernel that multiplies the parts of K before this one, if the plan has one.
    pub split: Option<Arc<Kernel>>,
    /// The kernels that reduce what this one uses, if the plan has some, in order.
    pub before: Vec<Arc<Kernel>>,
}

impl Gemm {
    /// Compiles the kernel for a target, or takes it from the cache. It needs NVRTC, but neither a GPU nor a driver, so
    /// a cache can be filled in advance. `gpu` states the device's multiprocessors and model, on which the choice of
    /// tile depends.
    ///
    /// A kernel that runs out of registers is compiled again: with fewer blocks on a multiprocessor, then with a
    /// smaller tile. If nothing helps, the result is the kernel that spills least.
    ///
    /// A repeated request takes the kernel from memory, and neither plans nor prints.
    ///
    /// # Errors
    /// If there is no plan, no NVRTC, or a custom primitive does not compile.
    pub fn compile(
        &self,
        cache: &Cache,
        target: Target,
        gpu: impl Into<Gpu>,
        problem: impl Into<Problem>,
    ) -> Result<Kernel, Error> {
        let problem = problem.into();
        let gpu = gpu.into();
        let key = memo::key(self, target, gpu, &problem, "");
        let make = || {
            let asked = self.kernel_plan(target, gpu, problem.clone())?;
            Ok(memo::Made { kernel: Kernel::of(asked.clone(), cache)?, asked: Arc::new(asked) })
        };
        memo::made(cache, key, make).map_err(|error| self.tell(error, target, gpu, &problem))
    }
}

impl Kernel {
    /// Compiles a plan, and relaxes it as long as registers run out.
    pub(super) fn of(mut plan: KernelPlan, cache: &Cache) -> Result<Kernel, Error> {
        let repack = plan.repack.as_ref().map(|repack| -> Result<_, Error> {
            let source = emit::render_repack(repack)?;
            let cubin = cache.compile(&source, &plan.target, &Options::new())?;
            Ok((source, cubin))
        });
        let repack = repack.transpose()?;
        let product = plan.split.as_mut().map(|split| -> Result<_, Error> {
            let product = Kernel::of((*split.product).clone(), cache)?;
            // The compiled plan replaces the planned one, because its registers may have run out.
            *split.product = (*product.plan).clone();
            Ok(Arc::new(product))
        });
        let product = product.transpose()?;
        let mut before = Vec::with_capacity(plan.before.len());
        for plan in &mut plan.before {
            let kernel = Kernel::of(plan.clone(), cache)?;
            *plan = (*kernel.plan).clone();
            before.push(Arc::new(kernel));
        }
        let mut best: Option<Kernel> = None;
        loop {
            let source = plan.source()?;
            let compiled = match cache.compile(&source, &plan.target, &Options::new()) {
                // Without a kernel so far any other form of the plan is better.
                Err(error) if best.is_none() && error.ran_out_of_registers() && (plan.roll() || plan.relax()) => continue,
                compiled => compiled.map_err(|error| blame(&plan, error)),
            };
            let (source, cubin) = match (compiled, &best) {
                (Ok(cubin), _) => (source, cubin),
                // A kernel that spills still works.
                (Err(error), Some(best)) => {
                    tracing::warn!(entry = best.source.entry(), %error, "a kernel whose registers ran out stays as it is");
                    return Ok(best.clone());
                }
                (Err(error), None) => return Err(error),
            };
            let (plan_so_far, source) = (Arc::new(plan.clone()), Arc::new(source));
            let (repack, split, before) = (repack.clone(), product.clone(), before.clone());
            let kernel = Kernel { plan: plan_so_far, source, cubin, repack, split, before };
            let least = best.as_ref().map_or(u32::MAX, Kernel::spilled);
            let best = if kernel.spilled() < least { best.insert(kernel) } else { best.get_or_insert(kernel) };
            if best.spilled() <= best.plan.tolerated_spills() || !plan.relax() {
                return Ok(best.clone());
            }
        }
    }

    /// Bytes that a thread spills to memory and reloads because registers ran out.
    fn spilled(&self) -> u32 {
        self.cubin.info.spill_store_bytes.saturating_add(self.cubin.info.spill_load_bytes)
    }

    /// The plan in words, with the compiler's figures for the kernel.
    pub fn explain(&self) -> String {
        let product = self.split.as_ref().map(|product| product.compiled()).unwrap_or_default();
        let before: String = self.before.iter().map(|kernel| kernel.compiled()).collect();
        let own = match (product.is_empty(), before.is_empty()) {
            (false, _) => "the kernel that adds up and runs the epilogue\n",
            (true, false) => "the last kernel\n",
            (true, true) => "",
        };
        format!("{}{product}{before}{own}{}", self.plan.explain(), self.compiled())
    }

    /// The compiler's figures.
    fn compiled(&self) -> String {
        let info = &self.cubin.info;
        let compiled = match info.compile_ms {
            Some(ms) => format!("compiled in {ms:.0} ms"),
            None => format!("from the {} cache", info.origin),
        };
        format!(
            "registers     {} a thread; {} bytes spilled, {} bytes of stack\nbinary        {} bytes, {compiled}, {}\n",
            info.registers,
            self.spilled(),
            info.stack_bytes,
            self.cubin.bytes.len(),
            info.compiler,
        )
    }
}

/// Attributes a compiler error to its custom primitive.
fn blame(plan: &KernelPlan, error: JitError) -> Error {
    let JitError::Compile(failure) = &error else { return error.into() };
    let Some(at) = failure.errors().find_map(|m| m.step) else { return error.into() };
    let Some(InstrKind::Custom { name, cuda, .. }) = plan.steps().nth(at as usize).map(|step| &step.kind) else {
        return error.into();
    };
    let messages = failure.errors().filter(|m| m.step == Some(at)).map(|m| m.text.clone()).collect();
    let of_scores = plan.scores.iter().flat_map(|scores| &scores.program.built_at);
    let built_at = plan.program.built_at.iter().chain(of_scores).nth(at as usize).copied().flatten().map(ToString::to_string);
    Error::Custom(CustomFailure { primitive: name.clone(), cuda: cuda.clone(), built_at, messages })
}
