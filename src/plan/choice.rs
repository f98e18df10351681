//! The choice of mainloop, tile and rasterisation, with a reason for everything that was not chosen.
//!
//! The mainloop follows from formats and target. Among its tiles the choice takes the one with the least estimated
//! time: the tiles a multiprocessor gets, times the measured time of one tile, alone or beside as many as are resident.
//! Hopper's tiles have a model of their own (`mainloop/sm90a/cost.rs`).

use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::{Node, Order};
use crate::plan::launch::raster;
use crate::plan::mainloop::candidates::{
    Candidate, GEMV_K, GEMV_N, GEMV_WIDENED, NARROW, POINTWISE, SIMT, SIMT_F64, SM80, SM80_EIGHT_BITS, SM80_TF32, SUMS,
};
use crate::plan::mainloop::scaled::{self, FEW_WIDENED};
use crate::plan::mainloop::sm90a::cost::{self, CostInputs, CostModel};
use crate::plan::mainloop::sm90a::few_rows::{self, narrow_tiles_read_faster};
use crate::plan::mainloop::{direct, patches};
use crate::plan::{
    ArgumentRuns, Code, Considered, MOST_CHUNK, Mainloop, PARAMETER_LIMIT, Params, Preferences, Program, Reason, Repack, Staging,
    TMA_UNIT, Tile, TileShape, Verdict, rows,
};
use crate::problem::{Layout, Operation, Shape};
use crate::target::{Gpu, Target};
use serde::Serialize;
use std::fmt;

/// The chosen tile, if any fits, and the verdict on each candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    chosen: Option<(Tile, i32)>,
    /// The estimated time of the chosen tile, where estimates have a unit.
    nanoseconds: Option<u64>,
    /// The same, also for a tile that the caller asked for.
    #[serde(skip)]
    estimated: Option<u64>,
    /// Every candidate that was considered.
    pub verdicts: Vec<Verdict>,
    /// The other tiles that fit, the best first.
    #[serde(skip)]
    others: Vec<(Tile, i32)>,
}

impl Choice {
    /// The tile and the group height of its rasterisation.
    pub fn chosen(&self) -> Option<(Tile, i32)> {
        self.chosen
    }

    /// The estimated nanoseconds of a launch; `None` where estimates only compare tiles.
    pub fn nanoseconds(&self) -> Option<u64> {
        self.nanoseconds
    }

    /// The estimated time of the tile, which compares plans of one problem.
    pub(super) fn estimated(&self) -> Option<u64> {
        self.estimated
    }

    /// The fewest bytes of parameters among the candidates that were rejected because of them, if there is one.
    pub(super) fn fewest_parameters(&self) -> Option<usize> {
        let sizes = self.verdicts.iter().filter_map(|verdict| match verdict.reason {
            Reason::Parameters(size) => Some(size),
            _ => None,
        });
        sizes.min()
    }

    /// Every tile that fits the problem, with its rasterisation: the chosen one first, then by estimated time. A tuner
    /// measures these with [`Gemm::tile`](crate::Gemm::tile).
    pub fn candidates(&self) -> impl Iterator<Item = (Tile, i32)> + '_ {
        self.chosen.into_iter().chain(self.others.iter().copied())
    }

    /// The same tiles, each with its estimated time in hundredths of the chosen one's.
    pub fn estimates(&self) -> impl Iterator<Item = (Tile, u64)> + '_ {
        let of = |tile: Tile| {
            let mut slower = self.verdicts.iter().filter(move |verdict| verdict.candidate == Considered::Tile(tile));
            slower.find_map(|verdict| if let Reason::Slower(times) = verdict.reason { Some(times) } else { None })
        };
        self.candidates().map(move |(tile, _)| (tile, of(tile).unwrap_or(100)))
    }

    /// Replaces the choice, and drops the other candidates.
    pub(super) fn settle(&mut self, tile: Tile, raster: i32, reason: impl Into<String>) {
        self.others.clear();
        self.chosen = Some((tile, raster));
        self.accept(tile, reason);
    }

    /// Notes that registers ran out, and what of the tile is compiled again.
    pub(super) fn relaxed(&mut self, tile: &Tile, what: &str) {
        self.accept(*tile, format!("registers ran out; compiled again {what}"));
    }

    /// The next best tile whose threads hold fewer accumulators, where registers ran out for good.
    pub(super) fn retreat(&mut self, tile: &Tile) -> Option<(Tile, i32)> {
        let held = Tile::accumulators;
        let next = self.others.iter().position(|(other, _)| held(other) < held(tile)).map(|at| self.others.remove(at))?;
        self.accept(next.0, "registers ran out with the one before");
        Some(next)
    }

    fn reject(&mut self, candidate: Considered, reason: impl Into<Reason>) {
        self.verdicts.push(Verdict { candidate, chosen: false, reason: reason.into() });
    }

    /// Records that the rows are reduced where the product is computed.
    pub(super) fn whole_rows(&mut self, estimates: String) {
        self.verdicts.push(Verdict { candidate: Considered::Rows, chosen: true, reason: estimates.into() });
    }

    /// Why none of the tiles of an accepted width was chosen, or no mainloop, in words.
    pub(super) fn reason(&self, accepts: impl Fn(&Tile) -> bool) -> Option<String> {
        let fits = |verdict: &&Verdict| match verdict.candidate {
            Considered::Tile(tile) => accepts(&tile),
            considered => considered == Considered::Mainloop(Mainloop::Sm90a),
        };
        self.verdicts.iter().find(fits).map(|verdict| verdict.reason.to_string())
    }

    /// Records the verdict on a split of K.
    pub(super) fn split(&mut self, parts: usize, chosen: bool, reason: String) {
        self.verdicts.push(Verdict { candidate: Considered::Split(parts), chosen, reason: reason.into() });
    }

    /// Records the estimate of the best tile of the other orientation.
    pub(super) fn turned(&mut self, tile: Tile, transposed: bool, time: u64, chosen: u64) {
        let [time, chosen] = [time, chosen].map(|nanoseconds| nanoseconds as f64 / 1e3);
        let way = if transposed { "transposed" } else { "as it is" };
        let words = format!("{way} the problem is estimated at {time:.1} us, as chosen at {chosen:.1} us");
        self.reject(Considered::Turned(tile), words);
    }

    fn accept(&mut self, tile: Tile, reason: impl Into<Reason>) {
        self.verdicts.push(Verdict { candidate: Considered::Tile(tile), chosen: true, reason: reason.into() });
    }
}

/// How many of the slower tiles are listed one by one.
const SLOWER: usize = 8;

/// The verdicts in words. Only the best of the slower tiles are listed.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slower = 0;
        for verdict in &self.verdicts {
            slower += usize::from(matches!(verdict.reason, Reason::Slower(_)));
            if slower <= SLOWER || !matches!(verdict.reason, Reason::Slower(_)) {
                let mark = if verdict.chosen { "*" } else { "-" };
                writeln!(f, "  {mark} {}: {}", verdict.candidate, verdict.reason)?;
            }
        }
        if slower > SLOWER { writeln!(f, "  - {} more, estimated to be slower still", slower - SLOWER) } else { Ok(()) }
    }
}

/// The inputs of the choice, as the kernel sees them.
pub(super) struct TileRequest<'r> {
    pub operation: Operation,
    pub program: &'r Program,
    pub argument_runs: &'r [ArgumentRuns],
    /// The parameter block without tensor maps.
    pub params: &'r Params,
    pub shape: Shape,
    pub alignment: [usize; 2],
    /// Whether rows of both operands begin at multiples of 128 bytes, as far as is known.
    pub rows_begin_at_lines: bool,
    pub strip: usize,
    pub target: Target,
    pub gpu: Gpu,
    pub preferences: Preferences,
    pub fast_math: bool,
    /// The number of matrices whose sum is a pointwise kernel's accumulator.
    pub parts: usize,
}

impl TileRequest<'_> {
    /// The inputs of the cost estimates of Hopper's tiles.
    fn cost_inputs(&self) -> CostInputs<'_> {
        let &TileRequest { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, .. } = self;
        let promotes = self.promotes();
        CostInputs { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, promotes }
    }

    /// Whether the kernel promotes the tensor cores' partial sums.
    pub fn promotes(&self) -> bool {
        promotes(self.operation, self.preferences)
    }
}

/// Whether Hopper's kernel for an operation promotes: it adds up in `f32` the tensor cores' sums of 128 K elements.
pub(super) fn promotes(operation: Operation, preferences: Preferences) -> bool {
    let scaled = operation.is_scaled();
    operation.multiplies() && operation.dtype().sums_coarsely() && (scaled || !preferences.fast_accumulation)
}

/// Nanoseconds of one unit of the candidates' times, where it was measured: `sm80` takes 322 and 2527 us for 4096^3 and
/// 8192^3 in f16 (`docs/measurements/0001-mma-sync-against-cublaslt.md`).
fn unit(mainloop: Mainloop, dtype: DType) -> Option<f64> {
    match (mainloop, dtype) {
        (Mainloop::Sm90a, _) => Some(cost::NANOSECONDS),
        (Mainloop::Sm80, DType::F16 | DType::BF16) => Some(0.27),
        (Mainloop::Simt, DType::F32) => Some(1.0),
        _ => None,
    }
}

/// Chooses the tile of a mainloop and its rasterisation, with a verdict on every candidate. It chooses none if none
/// fits.
pub(super) fn choose(mainloop: Mainloop, request: &TileRequest, choice: &mut Choice) {
    // The tiles that fit, with their estimated times.
    let mut estimates: Vec<(Tile, f64)> = Vec::new();
    let mut consider = |tile: &Tile, obstacle: Option<String>, estimate: &dyn Fn(&Tile) -> f64| match obstacle
        .map_or_else(|| fit(tile, request), |obstacle| Err(obstacle.into()))
    {
        // Tiles that differ only in their stages may fit with the same number of stages.
        Ok(tile) if estimates.iter().any(|(known, _)| *known == tile) => {}
        Ok(tile) => estimates.push((tile, estimate(&tile))),
        Err(obstacle) => choice.reject(Considered::Tile(*tile), obstacle),
    };
    let whole_rows = !request.program.stages.is_empty();
    let few = mainloop == Mainloop::Sm90a && !whole_rows && few_rows::applies(request.operation, request.shape);
    let (inputs, model) = (request.cost_inputs(), CostModel::of(request.gpu.model, request.rows_begin_at_lines));
    let on_hopper = |tile: &Tile| if few { few_rows::estimate(tile, &inputs) } else { cost::estimate(tile, &inputs, model) };
    if let Some(tile) = request.preferences.tile {
        consider(&tile, None, &on_hopper);
    } else if mainloop == Mainloop::Sm90a {
        let size = request.operation.dtype().size();
        let made = if few && size == 2 { few_rows::tiles(&inputs) } else { Vec::new() };
        for tile in made.iter().copied().chain(cost::tiles(size).filter(|tile| !made.contains(tile))) {
            consider(&tile, None, &on_hopper);
        }
    } else if matches!(mainloop, Mainloop::Bands | Mainloop::Depthwise) {
        for (tile, time) in direct::tiles(mainloop, request) {
            consider(&tile, None, &|_| time);
        }
    } else if mainloop == Mainloop::Rows {
        for (rank, tile) in (1u8..).zip(rows::tiles(request)) {
            consider(&tile, None, &|_| f64::from(rank));
        }
    } else {
        let candidates: &[Candidate] = match (mainloop, request.operation.dtype()) {
            (Mainloop::Sm80, DType::F32) => &SM80_TF32,
            (Mainloop::Sm80, dtype) if dtype.is_eight_bits() => &SM80_EIGHT_BITS,
            (Mainloop::Sm80, _) => &SM80,
            (Mainloop::Gemv, _) if request.operation.widened().is_some() => &GEMV_WIDENED,
            (Mainloop::Gemv, _) if runs_along_k(request.operation) => &GEMV_K,
            (Mainloop::Gemv, _) => &GEMV_N,
            (Mainloop::Pointwise, _) if request.parts > 1 => &SUMS,
            (Mainloop::Pointwise, _) if request.wants_narrow_tiles() => &NARROW,
            (Mainloop::Pointwise, _) => &POINTWISE,
            (_, DType::F64) => &SIMT_F64,
            _ => &SIMT,
        };
        for candidate in candidates {
            consider(&candidate.tile, unsuitable(candidate, request), &|_| estimate(candidate, request));
        }
    }
    estimates.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some(&(chosen, least)) = estimates.first() else { return };
    let tiles = tiles(&chosen, request.shape);
    choice.accept(chosen, format!("the least estimated time: {tiles} tiles on {} multiprocessors", request.gpu.multiprocessors));
    for (tile, estimate) in &estimates[1..] {
        choice.reject(Considered::Tile(*tile), Reason::Slower((estimate / least * 100.0).round() as u64));
    }
    let rastered = |tile: Tile| (tile, raster::group(&tile, request));
    choice.others = estimates[1..].iter().map(|(tile, _)| rastered(*tile)).collect();
    choice.chosen = Some(rastered(chosen));
    let measured = request.preferences.tile.is_none();
    let unit = unit(mainloop, request.operation.dtype()).filter(|_| measured);
    choice.nanoseconds = unit.map(|unit| (least * unit) as u64);
    choice.estimated = few.then_some((least * cost::NANOSECONDS) as u64);
}

/// The mainloops that can compute a product or a pointwise operation, the best first, with verdicts on the others. The
/// list is empty if the mainloop that the caller asked for cannot. `shape` and `alignment` describe `a` and `b` as the
/// user sees them.
pub(super) fn mainloops(
    operation: Operation,
    shape: Shape,
    alignment: [usize; 2],
    target: Target,
    preferences: Preferences,
    epilogue: &Checked,
    choice: &mut Choice,
) -> Vec<Mainloop> {
    let forced = preferences.mainloop.or(preferences.tile.map(|t| t.mainloop()));
    let mut usable = Vec::new();
    let reduces = rows::reduces(epilogue);
    if reduces && !operation.multiplies() {
        let why_not = match forced {
            Some(other) if other != Mainloop::Rows => {
                Some(format!("{other} was asked for, and the epilogue uses what its rows come to"))
            }
            _ => None,
        };
        match why_not {
            Some(why) => choice.reject(Considered::Mainloop(Mainloop::Rows), why),
            None => usable.push(Mainloop::Rows),
        }
        return usable;
    }
    for mainloop in Mainloop::BEST_FIRST.into_iter().filter(|mainloop| !reduces || *mainloop == Mainloop::Sm90a) {
        let why_not = match forced {
            Some(other) if other != mainloop => Some(format!("{other} was asked for")),
            _ if matches!(mainloop, Mainloop::Bands | Mainloop::Depthwise) => {
                let split = operation.convolution().filter(|of| of.shape() != shape).map(|_| "it has all of K".into());
                split.or_else(|| direct::why_not(mainloop, operation, target, forced.is_some()))
            }
            None if mainloop == Mainloop::Gemv && operation.widened().is_none() && shape.m.min(shape.n) > FEW => {
                Some(format!("for at most {FEW} rows or columns"))
            }
            _ if mainloop == Mainloop::Gemv
                && let Some(weights) = operation.widened()
                && (if weights == 1 { shape.m } else { shape.n }) > FEW_WIDENED =>
            {
                Some(format!("for at most {FEW_WIDENED} rows beside weights of fewer bits"))
            }
            None if mainloop == Mainloop::Gemv && narrow_tiles_read_faster(operation, shape, alignment, target) => {
                Some("narrow tiles of sm90a read as fast, and multiply faster".into())
            }
            None if mainloop == Mainloop::Sm90a
                && target.has_wgmma()
                && alignment.iter().any(|bytes| *bytes < TMA_UNIT)
                && Repack::transposes(mainloop, operation) == [false; 2]
                && operation.patches().is_none()
                && operation.widened().is_none()
                && !Repack::pays(shape, operation.dtype().size(), alignment) =>
            {
                let [a, b] = alignment;
                Some(format!("TMA wants operands aligned to {TMA_UNIT} bytes, a has {a} and b {b}: copies would take longer"))
            }
            None if mainloop == Mainloop::Sm90a
                && target.has_wgmma()
                && let Some(of) = operation.patches()
                && patches::padded_terms(&of, operation.dtype().size(), shape) > 2 * shape.k =>
            {
                Some("it goes through 128 bytes of channels at a time, and most of them would be zeros".into())
            }
            _ if mainloop == Mainloop::Sm90a
                && target.has_wgmma()
                && let Some(why) = operation.patches().and_then(|of| patches::beyond_tma(&of, operation.dtype().size())) =>
            {
                Some(why)
            }
            _ if mainloop == Mainloop::Sm90a
                && patches::has_residues(operation)
                && !patches::goes_by_residues(operation, epilogue, mainloop) =>
            {
                Some("it goes through pixels by their remainders, and the epilogue has to see rows in order".into())
            }
            _ if mainloop == Mainloop::Gemv && epilogue.summed_operand().is_some() => Some("it has no sums of operands".into()),
            _ if mainloop == Mainloop::Sm90a && why_not(mainloop, operation, target, preferences).is_none() => {
                double(epilogue).map(|value| format!("its epilogues have no f64 values, and {value} is one: sm80 has them"))
            }
            _ => why_not(mainloop, operation, target, preferences),
        };
        match why_not {
            Some(why) => choice.reject(Considered::Mainloop(mainloop), why),
            None => usable.push(mainloop),
        }
    }
    usable
}

/// The first value of an epilogue that is an `f64`, in the words of the listing.
fn double(epilogue: &Checked) -> Option<String> {
    let graph = epilogue.graph();
    let (id, node) = graph.nodes().find(|(id, _)| epilogue.type_of(*id).value == ValueType::F64)?;
    Some(match node {
        Node::Scalar { name, .. } | Node::Load { name, .. } | Node::Gather { name, .. } => format!("`{name}`"),
        _ => format!("{id} of the epilogue, `{}`,", node.mnemonic()),
    })
}

/// Why a mainloop cannot compute the operation, if it cannot.
fn why_not(mainloop: Mainloop, operation: Operation, target: Target, preferences: Preferences) -> Option<String> {
    let dtype = operation.widened().map_or(operation.dtype(), |narrow| operation.dtypes()[1 - narrow]);
    let Some(layout) = operation.layout() else {
        return (mainloop != Mainloop::Pointwise).then(|| "the operation has no product".into());
    };
    if let Some(why) = scaled::why_not(mainloop, operation, layout, target) {
        return Some(why);
    }
    match (mainloop, dtype) {
        (Mainloop::Gemv, _) if operation.patches().is_some() => {
            Some("it reads matrices, and the operation is a convolution".into())
        }
        (Mainloop::Simt | Mainloop::Gemv | Mainloop::Bands | Mainloop::Depthwise, _) => None,
        (Mainloop::Pointwise | Mainloop::Rows, _) => Some("the operation is a product".into()),
        (Mainloop::Sm80, _) if !target.has_cp_async_and_mma16() => {
            Some(format!("{target} has no cp.async and mma.sync.m16n8k16"))
        }
        (Mainloop::Sm90a, _) if !target.has_wgmma() => Some(format!("{target} has no wgmma")),
        (_, DType::F16 | DType::BF16) => None,
        (Mainloop::Sm80, _) if dtype.is_eight_bits() && layout != Layout::TN => {
            Some(format!("operands of eight bits are multiplied with K contiguous, which is TN, and these are {layout}"))
        }
        (_, DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8) => None,
        (Mainloop::Sm80, DType::F32) if preferences.tf32 => None,
        (Mainloop::Sm80, DType::F32) => Some("f32 operands keep full precision unless tf32 is asked for".into()),
        (_, other) => Some(format!("operands of {other} have no tensor-core form here")),
    }
}

/// The most rows for which `gemv` is considered. Reading B bounds such a product, so tensor cores gain nothing.
pub(super) const FEW: usize = 4;

/// Whether K is the contiguous axis of B.
fn runs_along_k(operation: Operation) -> bool {
    operation.layout().is_some_and(|layout| layout.b() == Order::ColumnMajor)
}

pub(super) fn tiles(tile: &Tile, shape: Shape) -> u64 {
    let tiles = shape.m.div_ceil(tile.bm) as u64 * shape.n.div_ceil(tile.bn) as u64;
    tiles.saturating_mul(shape.batch as u64)
}

/// Why a candidate is not meant for a problem.
fn unsuitable(candidate: &Candidate, request: &TileRequest) -> Option<String> {
    let least = request.alignment[0].min(request.alignment[1]);
    let (from, to) = candidate.alignment;
    if !(from..=to).contains(&least) {
        Some(format!("for operands aligned to {from} to {to} bytes, not {least}"))
    } else {
        (request.shape.m > candidate.rows).then(|| format!("for at most {} rows", candidate.rows))
    }
}

/// The most instructions of epilogue code in a Hopper kernel. Longer code takes the compiler too long.
const MOST_CODE: usize = 9000;

/// The tile as it fits beside the epilogue's operands, or the reason why it does not fit.
fn fit(tile: &Tile, request: &TileRequest) -> Result<Tile, Reason> {
    let TileRequest { operation, program, alignment, strip, target, .. } = *request;
    if let Some(obstacle) = tile.obstacle(operation, &program.reductions, alignment, strip, target) {
        return Err(obstacle.into());
    }
    if let Some(obstacle) = cost::lacks_room(tile, request.promotes()) {
        return Err(obstacle.into());
    }
    if matches!(tile.shape, TileShape::Rows { .. }) && request.shape.n > tile.bn {
        return Err(format!("has rows of {} columns, and the problem's have {}", tile.bn, request.shape.n).into());
    }
    let passes = |maps| match request.params.size_with(maps) {
        size if size > PARAMETER_LIMIT => Err(Reason::Parameters(size)),
        _ => Ok(()),
    };
    let TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k } = tile.shape else {
        return passes(0).map(|()| *tile);
    };
    if !program.stages.is_empty() {
        rows::fits_accumulators(tile, request)?;
    }
    if splits_k && !program.sums.is_empty() {
        return Err("its blocks share K, and sums of an operand are taken by blocks that have all of it".into());
    }
    let of_stages = tile.accumulators() * (program.cost_of_stages(request.fast_math) as usize + 2 * program.stages.len());
    let code = Code::of(program, tile, strip, request.fast_math).instructions + of_stages;
    if code > MOST_CODE && request.preferences.tile.is_none() {
        return Err(format!("its epilogue would be {code} instructions of code, which takes long to compile").into());
    }
    let staged = |most| {
        let deep = |stages| Tile { shape: TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k }, ..*tile };
        let (staging, stages) =
            Staging::of(request.program, request.operation, request.argument_runs, &deep(most), request.target, MOST_CHUNK)?;
        passes(staging.maps.len())?;
        Ok::<_, Reason>((staging.is_common(tile), deep(stages)))
    };
    let (common, fitting) = staged(stages)?;
    // Consumers that share chunk buffers run their epilogues one after the other. That costs time unless products hide
    // it. A caller who names a tile gets the stages of that tile.
    if !common || request.preferences.tile.is_some() || cost::hides(&fitting, &request.cost_inputs()) {
        return Ok(fitting);
    }
    let own = (2..stages).rev().filter_map(|stages| staged(stages).ok()).find(|(common, _)| !common);
    Ok(own.map_or(fitting, |(_, tile)| tile))
}

/// Relative time: full rounds of as many tiles as are resident, then the remaining tiles, which take at least as long
/// as one tile alone.
fn estimate(candidate: &Candidate, request: &TileRequest) -> f64 {
    let resident = candidate.tile.min_blocks as u64;
    let blocks = tiles(&candidate.tile, request.shape).saturating_mul(candidate.tile.cluster() as u64);
    let on_one = blocks.div_ceil(request.gpu.multiprocessors as u64);
    let (rounds, left) = (on_one / resident, on_one % resident);
    let rest = if left > 0 { candidate.alone.max(left as f64 * candidate.full) } else { 0.0 };
    // A tile multiplies the channels of all groups that its columns are filters of.
    let groups = match request.operation.patches() {
        Some(patches) if candidate.tile.spans_groups(request.operation) => {
            candidate.tile.bn.div_ceil(patches.lines_of_group().max(1)) as f64
        }
        _ => 1.0,
    };
    ((rounds * resident) as f64 * candidate.full + rest) * (groups * request.shape.k as f64 + candidate.overhead)
}
