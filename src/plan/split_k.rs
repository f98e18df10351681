//! Split-K: few tiles with a long K become several times as many tiles with a shorter one.
//!
//! The parts of K are the entries of a batch, so the mainloop does not know about them: an entry lies a part of K
//! behind the one before, and its accumulators are stored as they are. The plan itself is a pointwise kernel, which
//! adds up the entries' sums in their order and runs the epilogue once.
//!
//! Estimates of both ways decide whether that pays. A way takes at least the time in which memory delivers A and B, and
//! in which multiprocessors take in their shares of them. The second kernel costs as much as the copies of unaligned
//! operands: a launch, and the sums written once and read once. For `sm90a` the estimates were compared with measured
//! times, and decide. For other mainloops they only say what is worth trying (`docs/measurements/0041-split-k.md`).

use crate::args::{Slot, slots};
use crate::check::{Checked, check};
use crate::ir::graph::{Graph, Node};
use crate::ir::{Operand, Order, Sink, SinkKind};
use crate::plan::epilogue::bytes;
use crate::plan::launch::repack::{BANDWIDTH, LAUNCH, MEMORY};
use crate::plan::mainloop::patches;
use crate::plan::request::PlanRequest;
use crate::plan::transposed::lies_in_columns;
use crate::plan::{KernelPlan, PlanError, Preferences, Problem, SplitK, TMA_UNIT, planner};
use crate::problem::{Attention, GradientOf, Operation, Shape};

/// The most parts.
const MOST: usize = 64;
/// Bytes that a part of K is a multiple of. With the first, every part is as aligned as the operands. With the second
/// it also consists of whole blocks of K and begins at a cache line. Chosen parts use the second if K allows it.
const WHOLE: usize = TMA_UNIT;
const LINES: usize = 128;
/// The fewest K elements of a part. Shorter parts gain nothing.
const LEAST_TERMS: usize = 256;
/// The longest time that is worth a split, as a share of the time in one piece.
pub(super) const WORTHWHILE: f64 = 0.85;
/// Bytes a nanosecond that one multiprocessor takes in, however few of them work, and that all of them take in
/// together: tiles of `sm90a` on an H200.
const TAKEN_IN: f64 = 150.0;
const TAKEN_IN_TOGETHER: f64 = 11_000.0;
/// Alignment of the rows of the sums in bytes.
const ROW: usize = 16;

/// Why K of a problem cannot be split.
pub(super) fn obstacle(request: &PlanRequest<'_>) -> Option<String> {
    let shape = request.problem.shape;
    match request.operation {
        Operation::Pool { .. } | Operation::Pointwise { .. } => Some("the operation has no product".into()),
        Operation::Attention { .. } => Some("a softmax goes over all keys".into()),
        _ if request.epilogue.summed_operand().is_some() => {
            Some("the epilogue sums an operand over K, which one kernel has to read whole".into())
        }
        operation if operation.patches().is_some_and(|patches| patches.convolution.measures().groups > 1) => {
            Some("the groups of a convolution are not split".into())
        }
        operation
            if operation
                .patches()
                .is_some_and(|patches| patches.are_rows() && !patches::has_whole_panels(&patches, operation.dtype().size())) =>
        {
            Some("parts of a convolution's K are whole pieces of 128 bytes of channels, and its channels are not".into())
        }
        operation if operation.is_scaled() || operation.widened().is_some() => {
            Some("one of its operands is scaled along K, or widened".into())
        }
        operation if operation.patches().is_some_and(|patches| patches.windows().spread != [1; 2]) => {
            Some("the gradient of images is not split where the window moves by several pixels".into())
        }
        _ if shape.batch > 1 => Some(format!("a batch of {} entries is not split", shape.batch)),
        _ => (shape.is_empty() || shape.k == 0).then(|| "there is nothing to add up".into()),
    }
}

/// K elements of each of so many parts, or why there are none. Parts are equal, except that the last part of the gradient of
/// filters may be shorter: its K are pixels, behind which mainloops read zeros.
pub(super) fn terms_of_part(operation: Operation, k: usize, parts: usize) -> Result<usize, String> {
    let whole = whole_terms(operation);
    if parts > MOST {
        return Err(format!("{MOST} are the most"));
    }
    if operation.patches().is_some_and(|patches| !patches.are_rows()) {
        let terms = k.div_ceil(whole).div_ceil(parts) * whole;
        return if terms * (parts - 1) < k { Ok(terms) } else { Err(format!("a part of {k} K elements would have none")) };
    }
    if k.is_multiple_of(parts * whole) {
        Ok(k / parts)
    } else {
        Err(format!("parts of {k} K elements would not be equal multiples of {whole}"))
    }
}

/// K elements that a part is a multiple of: 8 also for elements larger than 16 bits.
const fn whole_terms(operation: Operation) -> usize {
    let size = operation.dtype().size();
    if operation.patches().is_some() {
        return LINES / size;
    }
    WHOLE / if size < 2 { size } else { 2 }
}

/// The best number of parts by estimate, its time, and the time in one piece, in nanoseconds. `None` if there is
/// nothing to choose.
pub(super) fn best(request: &PlanRequest<'_>, whole: &KernelPlan) -> Option<(usize, f64, f64)> {
    let Shape { m, n, k, .. } = request.problem.shape;
    let size = request.operation.dtype().size() as f64;
    let floor = bytes::of_operands(request.operation, request.problem.shape) / MEMORY;
    let time = |plan: &KernelPlan, parts: usize| {
        // If N is contiguous, columns come by 128 bytes.
        let along_n = plan.operation.layout().is_some_and(|layout| layout.b() == Order::RowMajor);
        let by = if along_n { LINES / size as usize } else { 1 };
        let (lines, shared) = (plan.tile.bm + plan.tile.multiplied_columns().next_multiple_of(by), plan.tile.parts());
        let terms = terms_of_part(request.operation, k, parts).unwrap_or(k / parts);
        let seen = Shape { k: terms, batch: parts, ..request.problem.shape };
        let seen = if plan.transposed { seen.transposed() } else { seen };
        let (blocks, multiprocessors) = (plan.tile.count(seen), request.gpu.multiprocessors as u64);
        let each = TAKEN_IN.min(TAKEN_IN_TOGETHER / blocks.min(multiprocessors) as f64);
        let taken_in = blocks.div_ceil(multiprocessors) as f64 * lines as f64 * (seen.k / shared) as f64 * size / each;
        plan.choice.nanoseconds().map(|nanoseconds| (nanoseconds as f64).max(taken_in).max(floor))
    };
    let second = |parts: usize| 1e9 * (LAUNCH + 2.0 * 4.0 * parts as f64 * m as f64 * n as f64 / BANDWIDTH);
    let resident = request.gpu.multiprocessors.saturating_mul(3 * whole.tile.min_blocks);
    if whole.tile.count(request.problem.shape) > resident as u64 {
        return None; // No multiprocessor is idle.
    }
    let alone = time(whole, 1)?;
    let operation = request.operation;
    let whole_terms = whole_terms(operation);
    let lines = if operation.patches().is_some_and(|patches| !patches.are_rows()) { 1 } else { LINES / WHOLE } * whole_terms;
    let parts = |block: usize| {
        (2..=MOST).filter(move |&parts| {
            let terms = terms_of_part(operation, k, parts);
            terms.is_ok_and(|terms| terms >= LEAST_TERMS && terms.is_multiple_of(block))
        })
    };
    let block = if parts(lines).next().is_some() { lines } else { whole_terms };
    // If this lower bound is too long already, the parts need not be planned.
    let hopeful = parts(block).filter(|&parts| floor.max(alone / parts as f64) + second(parts) < WORTHWHILE * alone);
    let estimates = hopeful.filter_map(|parts| {
        let product = product(request, parts).ok()?;
        Some((parts, time(&product, parts)? + second(parts), alone))
    });
    estimates.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The plan of a split in this many parts.
pub(super) fn in_parts(request: &PlanRequest<'_>, parts: usize, reason: String) -> Result<KernelPlan, PlanError> {
    let PlanRequest { operation, epilogue, problem, target, gpu, preferences, .. } = *request;
    let product = product(request, parts)?;
    let sums = sums(operation, epilogue);
    let Preferences { math, programmatic, .. } = preferences;
    let mut plan = planner::one(&PlanRequest {
        operation: Operation::Pointwise { dtype: sums.dtype, order: sums.order },
        epilogue,
        problem: &sums_of(operation, problem, sums),
        target,
        gpu,
        preferences: Preferences { math, programmatic, ..Preferences::default() },
        parts,
    })?;
    let split = SplitK { parts, operation, sums, product: Box::new(product), why: String::new() };
    if parts > 1 {
        plan.choice.split(parts, true, reason);
    }
    (plan.scratch, plan.split) = (split.bytes(problem.shape), Some(split));
    Ok(plan)
}

/// The problem of the kernel behind the product. Its `a` is the sums.
fn sums_of(operation: Operation, problem: &Problem, sums: Operand) -> Problem {
    let Shape { m, n, .. } = problem.shape;
    let (ld, outer) = (ld(sums, problem.shape), if sums.order == Order::RowMajor { m } else { n });
    let beside = operation.attention().map_or_else(Vec::new, |attention| attention.names().collect());
    problem.clone().without(&["a", "b"]).without(&beside).ld("a", ld).batch_stride("a", ld * outer)
}

/// The plan of the kernel that multiplies the parts.
fn product(request: &PlanRequest<'_>, parts: usize) -> Result<KernelPlan, PlanError> {
    let PlanRequest { operation, epilogue, problem, preferences, .. } = *request;
    let (shape, sums) = (problem.shape, sums(operation, epilogue));
    let terms = if parts > 1 { terms_of_part(operation, shape.k, parts).unwrap_or(shape.k / parts) } else { shape.k };
    let lds = lds(operation, problem);
    let [a, b] = distances(operation, terms, lds);
    let alignment = |name| problem.known_alignment(name);
    let entries = if parts > 1 { parts } else { shape.batch };
    let in_parts = Problem::from(Shape { k: terms, batch: entries, ..shape })
        .align("a", alignment("a"))
        .align("b", alignment("b"))
        .ld("a", lds[0])
        .ld("b", lds[1])
        .ld("sums", ld(sums, shape));
    let in_parts = match operation.attention() {
        Some(attention) => {
            let keys = problem.known_ld(Attention::KEYS).unwrap_or(attention.width());
            attention.names().fold(in_parts, |in_parts, name| in_parts.like(problem, name)).ld(Attention::KEYS, keys)
        }
        None => in_parts,
    };
    let stated = ["a", "b"].map(|name| problem.known_batch_stride(name));
    let strides = if parts > 1 { [Some(a), Some(b)] } else { stated };
    let in_parts = ["a", "b"].into_iter().zip(strides).fold(in_parts, |problem, (name, stride)| match stride {
        Some(stride) => problem.batch_stride(name, stride),
        None => problem,
    });
    planner::one(&PlanRequest { epilogue: &store(sums), problem: &in_parts, preferences, parts: 1, ..*request })
}

/// The layout of the sums: the order of most bytes that the epilogue reads and writes.
pub(super) fn sums(operation: Operation, epilogue: &Checked) -> Operand {
    let dtype = operation.accumulator().storage();
    if lies_in_columns(operation, epilogue) { dtype.column_major() } else { dtype.into() }
}

/// Elements from row to row of the sums, or from column to column.
const fn ld(sums: Operand, shape: Shape) -> usize {
    let run = match sums.order {
        Order::RowMajor => shape.n,
        Order::ColumnMajor => shape.m,
    };
    run.next_multiple_of(ROW / sums.dtype.size())
}

/// The epilogue that stores accumulators as they are.
fn store(sums: Operand) -> Checked {
    let mut graph = Graph::new();
    let value = graph.push(Node::Accumulator(sums.dtype.value_type()), None);
    graph.sink(Sink::new("sums", value, SinkKind::Store(sums)), None);
    check(graph).expect("a store of the accumulator")
}

/// The known leading dimensions of A and B, or those of contiguous operands.
fn lds(operation: Operation, problem: &Problem) -> [usize; 2] {
    let Shape { m, n, k, .. } = problem.shape;
    if let Some(patches) = operation.patches() {
        let of = patches.convolution.measures();
        let runs = match patches.gradient {
            None => [("a", of.channels), ("b", k)],
            Some(GradientOf::Images) => [("a", of.filters), ("b", patches.convolution.shape().k)],
            Some(GradientOf::Filters) => [("a", of.filters), ("b", of.channels)],
        };
        return runs.map(|(name, run)| problem.known_ld(name).unwrap_or(run));
    }
    if let Some(attention) = operation.attention() {
        return [("a", attention.width()), ("b", n)].map(|(name, run)| problem.known_ld(name).unwrap_or(run));
    }
    let Some(layout) = operation.layout() else { return [0; 2] };
    let run = |order, row: usize, column: usize| if order == Order::RowMajor { row } else { column };
    [("a", run(layout.a(), k, m)), ("b", run(layout.b(), n, k))].map(|(name, run)| problem.known_ld(name).unwrap_or(run))
}

/// Elements of A and B from part to part, for parts of this many K elements. Those of a convolution
/// lie in the same images and filters: its kernels count from the beginning of a part.
fn distances(operation: Operation, terms: usize, [a, b]: [usize; 2]) -> [usize; 2] {
    let Operation::Product { layout, .. } = operation else { return [0; 2] };
    let across = |k_contiguous: bool, ld: usize| if k_contiguous { terms } else { terms.saturating_mul(ld) };
    [across(layout.a() == Order::RowMajor, a), across(layout.b() == Order::ColumnMajor, b)]
}

impl SplitK {
    /// The user's shape as the product sees it.
    pub fn shape(&self, shape: Shape) -> Shape {
        let batch = if self.parts > 1 { self.parts } else { shape.batch };
        let k = if self.parts > 1 { terms_of_part(self.operation, shape.k, self.parts).unwrap_or_default() } else { shape.k };
        Shape { k, batch, ..shape }
    }

    /// Elements from row to row of the sums, or from column to column, and from part to part.
    pub fn sums_strides(&self, shape: Shape) -> [usize; 2] {
        let ld = ld(self.sums, shape);
        [ld, ld * if self.sums.order == Order::RowMajor { shape.m } else { shape.n }]
    }

    /// Bytes of the sums.
    pub fn bytes(&self, shape: Shape) -> usize {
        self.sums_strides(shape)[1].saturating_mul(self.shape(shape).batch).saturating_mul(self.sums.dtype.size())
    }

    /// Elements from part to part of A and B with these leading dimensions; `None` if there is one part.
    pub fn distances(&self, shape: Shape, lds: [usize; 2]) -> Option<[usize; 2]> {
        (self.parts > 1).then(|| distances(self.operation, self.shape(shape).k, lds))
    }

    /// The arguments of a launch of the product: A, B and the sums, for a user's shape.
    pub fn slots(&self, shape: Shape) -> Vec<Slot> {
        slots(self.operation, &store(self.sums), self.shape(shape))
    }
}
