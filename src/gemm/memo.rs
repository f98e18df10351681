//! The memo: it finds a kernel that this process has made before by its request, without planning or printing.
//!
//! A request is hashed in two parts. The [`Gemm`] hashes epilogue, operation and preferences once. Each call adds the
//! target, the GPU and the problem.

use super::{Gemm, Kernel};
use crate::check::Need;
#[cfg(feature = "cuda")]
use crate::device::Launch;
use crate::error::Error;
use crate::ir::graph::Node;
use crate::ir::wire;
#[cfg(feature = "cuda")]
use crate::jit::Memos;
use crate::jit::{Cache, CacheKey};
use crate::pass;
use crate::plan::KernelPlan;
use crate::plan::Problem;
use crate::source::Origin;
use crate::target::{Gpu, Target};
use std::sync::{Arc, OnceLock};

/// The hash of a [`Gemm`], once it has been computed. Copies share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity(Arc<OnceLock<CacheKey>>);

impl Identity {
    /// The hash of everything that a plan depends on, except target and problem; `None` if it cannot be serialised.
    fn of(&self, gemm: &Gemm) -> Option<CacheKey> {
        if let Some(known) = self.0.get() {
            return Some(*known);
        }
        // The pattern names every field, so a new field has to be added to the key or excluded here.
        let Gemm { operation, epilogue, preferences, identity: _ } = gemm;
        // Without calls, so that two functions with the same name are told apart by their bodies.
        let inlined = pass::inline(epilogue.checked());
        let graph = serde_json::to_vec(&wire::Document::of(inlined.graph())).ok()?;
        let rest = serde_json::to_vec(&(operation, preferences)).ok()?;
        let mut fields: Vec<&[u8]> = vec![&graph, &rest];
        // Unused arguments have places among a plan's arguments, but do not appear in the graph.
        let unused = epilogue.arguments().iter().filter(|argument| argument.need == Need::Unused);
        fields.extend(unused.map(|argument| argument.name.as_bytes()));
        // That of scores is in the operation.
        let of_scores = operation.attention().and_then(|attention| attention.function()).map(|scores| scores.inlined().graph());
        for (_, node) in inlined.graph().nodes().chain(of_scores.into_iter().flat_map(|graph| graph.nodes())) {
            if let Node::Custom { op, .. } = node {
                fields.push(op.cuda().as_bytes());
            }
        }
        Some(*self.0.get_or_init(|| CacheKey::of_memo(&fields)))
    }
}

/// The key of a request. `also` is a further dependency that the request does not state.
pub(super) fn key(gemm: &Gemm, target: Target, gpu: Gpu, problem: &Problem, also: &str) -> Option<CacheKey> {
    let identity = gemm.identity.of(gemm)?;
    let problem = serde_json::to_vec(problem).ok()?;
    let target = target.to_string();
    let gpu = gpu.to_string();
    Some(CacheKey::of_memo(&[identity.as_bytes(), target.as_bytes(), gpu.as_bytes(), &problem, also.as_bytes()]))
}

/// The kernel of a request: the memorised one or, if there is none, the one that `make` makes.
#[cfg(feature = "cuda")]
pub(super) fn kernel(
    cache: &Cache,
    key: Option<CacheKey>,
    make: impl FnOnce() -> Result<Kernel, Error>,
) -> Result<Kernel, Error> {
    if let Some(known) = key.and_then(|key| cache.memo(&key, |kernel: &Kernel| kernel.cubin.bytes.len())) {
        return Ok((*known).clone());
    }
    let made = make()?;
    if let Some(key) = key {
        cache.keep_memo(key, Arc::new(remembered(&made)));
    }
    Ok(made)
}

/// A kernel, and the plan that was asked for: registers may have run out since.
#[derive(Clone)]
pub(super) struct Made {
    pub kernel: Kernel,
    pub asked: Arc<KernelPlan>,
}

/// The kernel of a request without tuning, if this process has made it.
#[cfg(feature = "cuda")]
pub(super) fn known(cache: &Cache, key: Option<CacheKey>) -> Option<Arc<Made>> {
    cache.memo(&key?, |made: &Made| made.kernel.cubin.bytes.len())
}

/// The kernel of a request without tuning: the memorised one or, if there is none, the one that `make` makes.
pub(super) fn made(cache: &Cache, key: Option<CacheKey>, make: impl FnOnce() -> Result<Made, Error>) -> Result<Kernel, Error> {
    if let Some(known) = key.and_then(|key| cache.memo(&key, |made: &Made| made.kernel.cubin.bytes.len())) {
        return Ok(known.kernel.clone());
    }
    let Made { kernel, asked } = make()?;
    if let Some(key) = key {
        cache.keep_memo(key, Arc::new(Made { kernel: remembered(&kernel), asked }));
    }
    Ok(kernel)
}

/// The kernel as later requests see it.
fn remembered(kernel: &Kernel) -> Kernel {
    let mut known = kernel.clone();
    if known.cubin.info.origin != Origin::Memory {
        Arc::make_mut(&mut known.cubin).info.origin = Origin::Memory;
    }
    known
}

/// A loaded kernel with its launches.
#[cfg(feature = "cuda")]
struct Prepared {
    /// The requested plan, compared by address, since tuning makes another plan for the same request.
    plan: Arc<KernelPlan>,
    kernel: Kernel,
    launch: Arc<Launch>,
}

/// A kernel that is ready to launch: the memorised one, if it is the same kernel and owns no memory on the device that
/// plans cannot share.
#[cfg(feature = "cuda")]
pub(super) fn launch(
    launches: &Memos,
    key: Option<CacheKey>,
    kernel: Kernel,
    load: impl FnOnce(Kernel) -> Result<(Kernel, Launch), Error>,
) -> Result<(Kernel, Arc<Launch>), Error> {
    let plan = kernel.plan.clone();
    let known = key.and_then(|key| launches.get::<Prepared>(&key));
    if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.plan, &plan)) {
        return Ok((known.kernel.clone(), known.launch.clone()));
    }
    let (kernel, launch) = load(kernel)?;
    let launch = Arc::new(launch);
    if let Some(key) = key.filter(|_| !launch.owns_memory()) {
        let prepared = Prepared { plan, kernel: remembered(&kernel), launch: launch.clone() };
        launches.keep(key, Arc::new(prepared));
    }
    Ok((kernel, launch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Epilogue, recipes};
    use crate::dtype::DType::{BF16, E4M3, E5M2, F16, F32, I4};
    use crate::ir::axes::N;
    use crate::ir::{CustomOp, Function, Graph, Op, Order, Side, Sink, SinkKind};
    use crate::plan::{Mainloop, Math};
    use crate::problem::{Attention, Blocks, Layout, Scores, Shape};
    use std::collections::HashSet;

    const SHAPE: Shape = Shape::new(64, 128, 32);

    fn relu() -> Epilogue {
        recipes::bias_activation(F16, F16, |z| z.relu()).unwrap()
    }

    fn custom(cuda: &str) -> Epilogue {
        let op = Arc::new(CustomOp::new("mine", 1, cuda, |x| x[0]).unwrap());
        Epilogue::build(|e| e.store("d", e.custom(&op, [e.acc()]), F16)).unwrap()
    }

    fn calling(function: &'static Function) -> Epilogue {
        let mut graph = Graph::new();
        let accumulator = graph.push(Node::Accumulator(F32.value_type()), None);
        let value = graph.push(Node::Call { function, args: vec![accumulator] }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(F16.into())), None);
        Epilogue::from_graph(graph).unwrap()
    }

    static TWICE: Function = Function {
        name: "twice",
        doc: "x + x",
        parameters: &["x"],
        body: |graph, x| graph.apply(Op::Add, &[x[0], x[0]]),
        gradient: None,
    };
    static SQUARED: Function = Function { doc: "x * x", body: |graph, x| graph.apply(Op::Mul, &[x[0], x[0]]), ..TWICE };

    fn optional(default: f32) -> Epilogue {
        Epilogue::build(|e| e.store("d", (e.acc() + e.load_or("bias", F16.over(N), default)).relu(), F16)).unwrap()
    }

    /// ReLU with an unused argument.
    fn with_unused(name: &str) -> Epilogue {
        let built = Epilogue::build_lenient(|e| {
            let _ = e.load(name, F16);
            e.store("d", (e.acc() + e.load("bias", F16.over(N))).relu(), F16);
        });
        built.unwrap().0
    }

    #[test]
    fn whatever_decides_a_kernel_is_in_the_key() {
        let base = Gemm::new(F16, Layout::TN, &relu());
        let of = |gemm: &Gemm, target, gpu: &str, problem: Problem, also| {
            key(gemm, target, gpu.parse().unwrap(), &problem, also).unwrap()
        };
        let plain = |gemm: &Gemm| of(gemm, Target::SM_80, "108", SHAPE.into(), "");
        let first = plain(&base);
        assert_eq!(plain(&base), first);
        assert_eq!(plain(&Gemm::new(F16, Layout::TN, &relu())), first, "built anew");
        let tile = base.kernel_plan(Target::SM_80, 108, SHAPE).unwrap().tile;
        let gelu = recipes::bias_activation(F16, F16, |z| z.gelu()).unwrap();
        let renamed = recipes::bias_activation(F16, BF16, |z| z.relu()).unwrap();
        let gemm = |epilogue: &Epilogue| Gemm::new(F16, Layout::TN, epilogue);
        let attending = |cuda: Option<&str>| {
            let scores = cuda.map(|cuda| {
                let op = Arc::new(CustomOp::new("mine", 1, cuda, |x| x[0]).unwrap());
                Scores::build(|s| s.custom(&op, [s.acc()])).unwrap()
            });
            let attention = Attention::new(64);
            plain(&Gemm::attention(F16, scores.map_or(attention, |scores| attention.scores(&scores)), &relu()))
        };
        let others = [
            of(&base, Target::SM_90A, "108", SHAPE.into(), ""),
            of(&base, Target::SM_80, "107", SHAPE.into(), ""),
            of(&base, Target::SM_80, "108@h100", SHAPE.into(), ""),
            of(&base, Target::SM_80, "108", SHAPE.batched(2).into(), ""),
            of(&base, Target::SM_80, "108", Problem::from(SHAPE).ld("a", 40), ""),
            of(&base, Target::SM_80, "108", Problem::from(SHAPE.batched(2)).batch_stride("a", 4096), ""),
            of(&base, Target::SM_80, "108", Problem::from(SHAPE.batched(2)).batch_stride("a", 8192), ""),
            of(&base, Target::SM_80, "108", Problem::from(SHAPE).align("a", 16), ""),
            of(&base, Target::SM_80, "108", Problem::from(SHAPE).align("a", 8), ""),
            of(&base, Target::SM_80, "108", SHAPE.into(), "a GPU"),
            plain(&gemm(&gelu)),
            plain(&gemm(&renamed)),
            plain(&gemm(&optional(0.0))),
            plain(&gemm(&optional(1.0))),
            plain(&gemm(&with_unused("more"))),
            plain(&gemm(&with_unused("other"))),
            plain(&gemm(&calling(&TWICE))),
            plain(&gemm(&calling(&SQUARED))),
            plain(&gemm(&custom("$0 + 1.0f"))),
            plain(&gemm(&custom("$0 + 2.0f"))),
            plain(&Gemm::new(BF16, Layout::TN, &relu())),
            plain(&Gemm::new(F16, Layout::NN, &relu())),
            plain(&Gemm::pointwise(F16, Order::RowMajor, &relu())),
            plain(&base.clone().math(Math::Exact)),
            plain(&base.clone().tf32(true)),
            plain(&base.clone().fast_accumulation(true)),
            plain(&Gemm::mixed(E4M3, E5M2, Layout::TN, &relu())),
            plain(&Gemm::mixed(E5M2, E4M3, Layout::TN, &relu())),
            plain(&Gemm::mixed(F16, I4, Layout::TN, &relu())),
            plain(&Gemm::grouped_weights(F16, I4, Layout::TN, Blocks::groups(64), &relu())),
            plain(&Gemm::grouped_weights(F16, I4, Layout::TN, Blocks::groups(64).with_zero_points(), &relu())),
            plain(&Gemm::block_scaled([E4M3; 2], Layout::TN, [Blocks::groups(128); 2], &relu())),
            attending(None),
            attending(Some("$0 + 1.0f")),
            attending(Some("$0 + 2.0f")),
            plain(&base.clone().mainloop(Mainloop::Simt)),
            plain(&base.clone().tile(tile)),
            plain(&base.clone().programmatic_launch(false)),
            plain(&base.clone().constant_operands([Side::A])),
            plain(&base.clone().raster_group(4)),
            plain(&base.clone().lockstep(true)),
            plain(&base.clone().split_k(1)),
            plain(&base.clone().split_k(2)),
        ];
        let all: HashSet<_> = others.iter().copied().chain([first]).collect();
        assert_eq!(all.len(), others.len() + 1);
    }
}
