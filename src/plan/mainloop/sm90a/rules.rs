//! `sm90a`: Hopper's tensor cores through `wgmma`, fed by TMA (`templates/mainloop/sm90a/`).

use super::cost::{self, CostInputs};
use super::operand_maps::passes_registers;
use super::reads::{double, pays_copies, turns, without_tf32};
use super::staging::{MOST_CHUNK, Staging};
use super::{few_rows, few_tiles, l2, widened, widened_tiles};
use crate::check::Checked;
use crate::dtype::DType;
use crate::ir::{Operand, Order};
use crate::plan::code::{Code, Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::mainloop::rules::{Asked, Number, Rules, Tried, first_broken};
use crate::plan::mainloop::tile::{Schedule, Tile, TileShape};
use crate::plan::mainloop::{patches, scaled};
use crate::plan::request::TileRequest;
use crate::plan::{InstrKind, Mainloop, Phase, Program, Reason, Stage, TMA_UNIT};
use crate::problem::{Layout, Operation, Shape};
use crate::target::Gpu;

/// Its rules.
pub(in crate::plan) struct Sm90a;

/// The parts of a tile that are this mainloop's own.
#[derive(Clone, Copy)]
struct Own {
    bk: usize,
    stages: usize,
    consumers: usize,
    schedule: Schedule,
    cluster: [usize; 2],
    splits_k: bool,
}

const fn own(tile: &Tile) -> Own {
    match tile.shape {
        TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k } => {
            Own { bk, stages, consumers, schedule, cluster, splits_k }
        }
        _ => Own { bk: 1, stages: 1, consumers: 1, schedule: Schedule::Cooperative, cluster: [1; 2], splits_k: false },
    }
}

impl Tile {
    pub(in crate::plan) const fn cooperative(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 64, stages, consumers: 2, schedule: Schedule::Cooperative, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 384, min_blocks: 1 }
    }

    pub(in crate::plan) const fn ping_pong(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 64, stages, consumers: 2, schedule: Schedule::PingPong, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 384, min_blocks: 1 }
    }

    /// One consumer, with twice the K elements in a stage: for narrow outputs, which wait for memory.
    pub(in crate::plan) const fn single(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 128, stages, consumers: 1, schedule: Schedule::Cooperative, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 256, min_blocks: 1 }
    }

    /// The same tile with the same bytes of K in a stage, for elements of this size.
    pub(in crate::plan) const fn of_elements(self, size: usize) -> Tile {
        match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k } => {
                let shape = TileShape::Sm90a { bk: bk * 2 / size, stages, consumers, schedule, cluster, splits_k };
                Tile { shape, ..self }
            }
            _ => self,
        }
    }

    pub(in crate::plan) const fn clustered(self, along_m: usize, along_n: usize) -> Tile {
        match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, .. } => {
                let cluster = [along_m, along_n];
                let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k: false };
                Tile { shape, ..self }
            }
            _ => self,
        }
    }

    /// The tile of a cluster of this many blocks that share K. Each block finishes its part of the columns.
    pub(in crate::plan) const fn in_parts(self, parts: usize) -> Tile {
        match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, .. } => {
                let cluster = [1, parts];
                let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k: parts > 1 };
                Tile { bn: self.bn / parts, shape, ..self }
            }
            _ => self,
        }
    }

    /// The same tile with another number of stages.
    const fn of_stages(self, stages: usize) -> Tile {
        let Own { bk, consumers, schedule, cluster, splits_k, .. } = own(&self);
        Tile { shape: TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k }, ..self }
    }
}

/// The most instructions of epilogue code in a Hopper kernel. Longer code takes the compiler too long.
const MOST_CODE: usize = 9000;

impl Rules for Sm90a {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        let Asked { operation, shape, alignment, target, epilogue, forced, .. } = *asked;
        let size = operation.multiplied().size();
        if !forced && target.has_wgmma() && !pays_copies(asked) {
            let [a, b] = alignment;
            return Some(if alignment.iter().any(|bytes| *bytes < TMA_UNIT) {
                format!("TMA wants operands aligned to {TMA_UNIT} bytes, a has {a} and b {b}: copies would take longer")
            } else {
                "wgmma reads tf32 with K contiguous: copies would take longer".into()
            });
        }
        if let Some(of) = operation.patches().filter(|_| target.has_wgmma()) {
            if !forced && patches::padded_terms(&of, size, shape) > 2 * shape.k {
                return Some("it goes through 128 bytes of channels at a time, and most of them would be zeros".into());
            }
            if let Some(why) = patches::beyond_tma(&of, size) {
                return Some(why);
            }
        }
        if patches::has_residues(operation) && !patches::goes_by_residues(operation, epilogue, Mainloop::Sm90a) {
            return Some("it goes through pixels by their remainders, and the epilogue has to see rows in order".into());
        }
        let Some(_) = operation.layout() else { return Some("the operation has no product".into()) };
        if let Some(why) = scaled::odd_blocks(operation) {
            return Some(why);
        }
        if !target.has_wgmma() {
            return Some(format!("{target} has no wgmma"));
        }
        match operation.multiplied() {
            DType::F16 | DType::BF16 | DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8 => {
                double(epilogue).map(|value| format!("its epilogues have no f64 values, and {value} is one: sm80 has them"))
            }
            DType::F32 => without_tf32(asked),
            other => Some(format!("operands of {other} have no tensor-core form here")),
        }
    }

    /// A list; or tiles for the problem, if it has few rows or few tiles, before the others.
    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let size = request.operation.multiplied().size();
        let shares = request.program.stages.is_empty() && self.has_few_tiles(request);
        if widened::in_registers(request.operation) {
            let made = widened_tiles::tiles(&CostInputs::of(request)).into_iter();
            return made.map(|tile| Tried { tile, obstacle: None, time: None }).collect();
        }
        let made = match (self.has_few_rows(request) && size == 2, shares) {
            (true, _) => few_rows::tiles(&CostInputs::of(request)),
            (_, true) => few_tiles::tiles(&CostInputs::of(request)),
            _ => Vec::new(),
        };
        let others = cost::tiles(CostInputs::of(request)).filter(|tile| !made.contains(tile));
        made.iter().copied().chain(others).map(|tile| Tried { tile, obstacle: None, time: None }).collect()
    }

    fn estimate(&self, tile: &Tile, request: &TileRequest<'_>) -> f64 {
        let inputs = CostInputs::of(request);
        if widened::in_registers(request.operation) {
            return widened_tiles::estimate(tile, &inputs);
        }
        match (self.has_few_rows(request), self.has_few_tiles(request)) {
            (true, _) => few_rows::estimate(tile, &inputs),
            (_, true) => few_tiles::estimate(tile, &inputs),
            _ => cost::estimate(tile, &inputs, inputs.model()),
        }
    }

    fn nanoseconds(&self, _: DType) -> Option<f64> {
        Some(cost::NANOSECONDS)
    }

    fn decides_splits(&self) -> bool {
        true
    }

    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        let TileRequest { program, strip, .. } = *request;
        if let Some(obstacle) = cost::lacks_room(tile, request.promotes()) {
            return Err(obstacle.into());
        }
        let Own { stages, splits_k, .. } = own(tile);
        if !program.stages.is_empty() {
            fits_accumulators(tile, request)?;
        }
        if splits_k && !program.sums.is_empty() {
            return Err("its blocks share K, and sums of an operand are taken by blocks that have all of it".into());
        }
        let copied = Copied { tile, operation: request.operation, strip, program, fast_math: request.fast_math };
        let of_stages = tile.accumulators() * (program.cost_of_stages(request.fast_math) as usize + 2 * program.stages.len());
        let code = Code::of(copied).instructions + of_stages;
        if code > MOST_CODE && request.preferences.tile.is_none() {
            return Err(format!("its epilogue would be {code} instructions of code, which takes long to compile").into());
        }
        let few = self.has_few_rows(request) || self.has_few_tiles(request);
        let staged = |most| {
            let deep = |stages| tile.of_stages(stages);
            let (staging, stages) =
                Staging::of(request.program, request.operation, request.argument_runs, &deep(most), request.target, MOST_CHUNK)?;
            request.passes(staging.maps.len())?;
            let suits = !staging.is_common(tile) && (few || staging.runs_ahead(&deep(stages)));
            Ok::<_, Reason>((suits, deep(stages)))
        };
        let (suits, fitting) = staged(stages)?;
        // Consumers that share chunk buffers run their epilogues one after the other, and matrices that are hardly loaded ahead
        // keep them waiting. That costs time unless products hide it. A caller who names a tile gets the stages of that tile.
        if suits || request.preferences.tile.is_some() || cost::hides(&fitting, &CostInputs::of(request)) {
            return Ok(fitting);
        }
        let own = (2..stages).rev().filter_map(|stages| staged(stages).ok()).find(|(suits, _)| *suits);
        Ok(own.map_or(fitting, |(_, tile)| tile))
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, alignment: [usize; 2], _: usize) -> Option<&'static str> {
        let Own { bk, consumers, schedule, cluster, splits_k, .. } = own(tile);
        let Tile { bm, bn, threads, .. } = *tile;
        let ping_pong = schedule == Schedule::PingPong;
        let (rows, widens) = (tile.consumer_rows(), widened::in_registers(operation));
        let (a, Some(layout)) = (operation.multiplied(), operation.layout()) else { return Some("it multiplies") };
        let patches_rule = broken_rule_of_patches(tile, operation);
        let halves = |extent: usize, k_major: bool, shared: usize| shared == 1 || !k_major || extent.is_multiple_of(16);
        first_broken(&[
            (matches!(consumers, 1 | 2) && (!ping_pong || consumers == 2), "one or two consumers, two for ping-pong"),
            (
                threads == 128 * (1 + consumers) && tile.min_blocks == 1,
                "a producer and the consumers, one block a multiprocessor",
            ),
            (rows > 0 && rows.is_multiple_of(64) && bm.is_multiple_of(rows) && bm <= 256, "a consumer's rows come by 64"),
            ((8..=256).contains(&tile.multiplied_columns()) && bn.is_multiple_of(8), "8 to 256 columns, by 8"),
            (
                !a.is_eight_bits() || a.sums_coarsely() || bn < 32 || bn.is_multiple_of(16),
                "8, 16 or 24 columns, or more by 16, of integers",
            ),
            (tile.multiplied() <= 200, "a thread holds at most 200 accumulators"),
            (bk > 0 && (bk * a.size()).is_multiple_of(128), "K comes by 128 bytes"),
            (
                !a.lies_along_k() || layout == Layout::TN || layout == Layout::NN && passes_registers(operation),
                "operands of eight bits, and B of tf32, lie with K contiguous",
            ),
            (
                !passes_registers(operation) || widened_tiles::registers(tile, operation) <= widened_tiles::MOST_BESIDE_A,
                "a thread has registers for two blocks of A beside its accumulators",
            ),
            (
                !widens || widened::has_lines(tile, operation) && bk.is_multiple_of(128) && (splits_k || cluster == [1; 2]),
                "a block widens weights by lines of 64 or 128 bytes, for itself",
            ),
            (splits_k || matches!(cluster, [1, 1] | [2, 1] | [1, 2]), "a cluster is one block or two"),
            (!splits_k || matches!(cluster, [1, 2 | 3 | 4 | 8]), "two, three, four or eight blocks along N share K"),
            (!splits_k || !ping_pong, "blocks that share K have consumers that share the tile"),
            (!splits_k || a.size() == 2, "blocks share K of 16-bit operands"),
            (
                splits_k
                    || halves(bm, layout.a() == Order::RowMajor, cluster[1])
                        && halves(bn, layout.b() == Order::ColumnMajor, cluster[0]),
                "blocks of a cluster fetch whole halves",
            ),
            (alignment.iter().all(|a| *a >= TMA_UNIT), "TMA copies operands aligned to 16 bytes"),
            (takes_scales(operation, bn), "each 64 columns of a tile lie in one block of scales"),
            (patches_rule.is_none(), patches_rule.unwrap_or_default()),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let Own { bk, stages, consumers, cluster: [m, n], .. } = own(tile);
        vec![tile.bn, bk, stages, consumers, m, n]
    }

    fn constants(&self, tile: &Tile, sums: bool) -> Vec<Number> {
        let Own { bk, stages, consumers, schedule, cluster: [cluster_m, cluster_n], .. } = own(tile);
        let ping_pong = usize::from(schedule == Schedule::PingPong);
        // Three warpgroups have 168 registers a thread. The producer gives some to the warpgroups that hold accumulators. To
        // sum operands it needs more than 24.
        let [producer, consumer] = if tile.multiplied() > 160 && !sums { [24, 240] } else { [40, 232] };
        vec![
            ("BK", bk),
            ("STAGES", stages),
            ("CONSUMERS", consumers),
            ("PING_PONG", ping_pong),
            ("CLUSTER_M", cluster_m),
            ("CLUSTER_N", cluster_n),
            ("PRODUCER_REGISTERS", producer),
            ("CONSUMER_REGISTERS", consumer),
        ]
    }

    fn words(&self, tile: &Tile) -> String {
        let Own { bk, stages, consumers, schedule, cluster: [m, n], splits_k } = own(tile);
        let schedule = match schedule {
            Schedule::Cooperative => "cooperative",
            Schedule::PingPong => "ping-pong",
        };
        let cluster = match (splits_k, [m, n]) {
            (true, _) => format!(", K in {n} parts"),
            (false, [1, 1]) => String::new(),
            (false, _) => format!(", cluster {m}x{n}"),
        };
        format!("x{bk}, {stages} stages, {consumers} {schedule}{cluster}")
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let Copied { tile, operation, .. } = of.copied;
        let accumulators = tile.accumulators() as f64;
        let each = 1.36 + if operation.is_scaled() { 2.66 } else { 0.0 };
        // It is one block of code, for which the assembler takes more than its length.
        let thousand = 215.0 + 10.1 * of.instructions() as f64 / 1e3;
        let (load, reduction) = (2.08 * accumulators, 244.0 + 3.33 * accumulators);
        // Registers stay occupied over each fork and each call (`docs/measurements/0068-compile-outliers.md`).
        let [forks, calls] = of.jumps();
        let jumps = 0.067 * forks * forks + 0.024 * calls * accumulators;
        Price { kernel: 290.0 + each * accumulators + jumps, thousand, load, store: 42.5, reduction, sum: 383.0 }
    }

    fn accumulators(&self, tile: &Tile) -> usize {
        tile.consumer_rows() * tile.bn / 128
    }

    fn cluster(&self, tile: &Tile) -> usize {
        let [m, n] = own(tile).cluster;
        m * n
    }

    fn rastered(&self, tile: &Tile) -> [usize; 2] {
        let [m, n] = own(tile).cluster;
        [m * tile.bm, n * tile.bn]
    }

    fn parts(&self, tile: &Tile) -> usize {
        let Own { cluster: [_, parts], splits_k, .. } = own(tile);
        if splits_k { parts } else { 1 }
    }

    fn consumer_rows(&self, tile: &Tile) -> usize {
        let Own { consumers, schedule, .. } = own(tile);
        if schedule == Schedule::Cooperative { tile.bm / consumers.max(1) } else { tile.bm }
    }

    /// A lane holds two of eight consecutive columns.
    fn unit(&self, tile: &Tile, _: usize) -> Unit {
        Unit { rows: tile.consumer_rows(), columns: tile.bn, threads: 128, row_lanes: 4, row_sharers: 1 }
    }

    fn publishers(&self, tile: &Tile) -> Option<usize> {
        Some(own(tile).consumers)
    }

    /// Every accumulator of a thread, two of every eight columns, two of every sixteen rows.
    fn copies(&self, of: &Copied<'_>) -> Copies {
        let (tile, halves) = (of.tile, if of.program.splits_epilogue(of.fast_math) { 2 } else { 1 });
        let row = tile.accumulators() * 4 / tile.bn;
        Copies { visit: tile.accumulators() / halves, column: tile.bn / 4 / halves, row, again: 1, limited: false }
    }

    /// A persistent kernel has as many blocks as there is work and room for.
    fn grid(&self, tile: &Tile, [rows, columns]: [usize; 2], batch: usize, gpu: Gpu) -> Option<[u32; 3]> {
        let [m, n] = own(tile).cluster;
        let work = rows.div_ceil(m).checked_mul(columns.div_ceil(n))?.checked_mul(batch)?;
        let clusters = work.min(tile.clusters_at_once(gpu.multiprocessors));
        (work <= i32::MAX as usize).then_some([(clusters * m * n) as u32, 1, 1])
    }

    fn raster(&self, tile: &Tile, request: &TileRequest<'_>) -> Option<i32> {
        Some(l2::group(self.rastered(tile), request))
    }

    fn is_staged(&self) -> bool {
        true
    }

    fn widens_copies(&self) -> bool {
        true
    }

    /// No matrix of single bytes or bits is moved row by row.
    fn keeps_order(&self, operand: &Operand) -> bool {
        operand.dtype.size() == 1
    }

    /// Either order is staged as fast, but tiles have at least 64 rows: the shorter side of a narrow output becomes the
    /// columns.
    fn prefers_transposed(&self, operation: Operation, shape: Shape) -> Option<bool> {
        if let Some(turns) = turns(operation, shape) {
            return Some(turns);
        }
        if let Some(weights) = operation.widened() {
            let (turned, rows) = if weights == 0 { (operation, shape.n) } else { (operation.transposed(), shape.m) };
            // With more rows the weights stay B, which is copied.
            return widened::in_registers(turned).then_some((weights == 0) != (rows <= widened::MOST_ROWS));
        }
        (shape.m.min(shape.n) <= cost::NARROW).then_some(shape.m < shape.n)
    }

    /// Few rows have estimates that know which way a tile lies. Elsewhere the same tile has nearly the same both ways, and
    /// matrices of bytes and bits, which are moved along their rows only, stay as they are.
    fn other_way(&self, operation: Operation, epilogue: &Checked, shape: Shape) -> Option<f64> {
        if turns(operation, shape).is_some() || operation.widened().is_some() {
            return None;
        }
        if few_rows::applies(operation, shape) {
            return Some(1.0);
        }
        let is_wide = |operand: Operand| !operand.axes.is_matrix() || operand.dtype.size() > 1;
        let all_wide = || epilogue.arguments().iter().filter_map(|argument| argument.role.operand()).all(is_wide);
        let is_short = cost::is_short(operation, shape) && operation.layout() == Some(Layout::TN);
        let pays = cost::has_few_waves(operation, shape) || is_short;
        (pays && all_wide()).then_some(0.98)
    }

    fn reads_of_rows(&self, _: &Tile, _: usize) -> String {
        "held as accumulators, since a row lies in one tile: one kernel for all".into()
    }
}

impl Sm90a {
    /// Whether few rows wait for wide weights, and nothing is reduced along rows.
    fn has_few_rows(&self, request: &TileRequest<'_>) -> bool {
        request.program.stages.is_empty() && few_rows::applies(request.operation, request.shape)
    }

    /// Whether too few tiles for the multiprocessors have a long K.
    fn has_few_tiles(&self, request: &TileRequest<'_>) -> bool {
        few_tiles::applies(request.operation, request.shape, request.gpu)
    }
}

/// The rule of what reads images that a tile of Hopper's breaks, if any.
fn broken_rule_of_patches(tile: &Tile, operation: Operation) -> Option<&'static str> {
    let TileShape::Sm90a { cluster, splits_k, .. } = tile.shape else { return None };
    let patches = operation.patches()?;
    let alone = cluster == [1; 2] && !splits_k;
    let rules = [
        (!tile.spans_groups(operation), "a group of a convolution has filters for whole tiles of columns"),
        (cluster[1] == 1 && !splits_k, "blocks of a cluster share the filters of a convolution, not its images"),
        (!patches::has_residues(operation) || alone, "tiles with different numbers of taps belong to one block"),
        (
            patches.are_rows() || alone && tile.bn.is_multiple_of(64),
            "a tile of a gradient of filters has whole pieces of 64 channels, and a cluster has one block",
        ),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| rule)
}

/// Whether Hopper's mainloop scales the operands of a product in tiles of this many columns: 64 columns, or all of the tile,
/// lie in one block.
fn takes_scales(operation: Operation, bn: usize) -> bool {
    let whole = |lines: usize| lines == 1 || lines.is_multiple_of(64) && (bn.is_multiple_of(64) || 64 % bn == 0);
    !operation.is_scaled() || whole(operation.scales()[1].map_or(64, |blocks| blocks.lines))
}

/// Whether the accumulators of a tile of Hopper's mainloop are whole rows, and all that the stages need.
fn fits_accumulators(tile: &Tile, request: &TileRequest<'_>) -> Result<(), String> {
    if tile.parts() > 1 {
        return Err("its blocks share K, and finish parts of rows".into());
    }
    if request.shape.n > tile.bn {
        return Err(format!("has rows of {} columns, and the problem's have {}", tile.bn, request.shape.n));
    }
    match stages_read(request.program) {
        true => Err("what is reduced along rows is read from a matrix, which arrives in parts of rows".into()),
        false => Ok(()),
    }
}

/// Whether a term of a stage needs a matrix from memory.
fn stages_read(program: &Program) -> bool {
    let mut needed: Vec<usize> = program.stages.iter().flat_map(Stage::terms).copied().collect();
    let mut seen = vec![false; program.steps.len()];
    while let Some(step) = needed.pop() {
        if std::mem::replace(&mut seen[step], true) {
            continue;
        }
        if program.steps[step].phase == Phase::Visit && matches!(program.steps[step].kind, InstrKind::Load { .. }) {
            return true;
        }
        needed.extend(program.args(step));
    }
    false
}
