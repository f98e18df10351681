//! `rows`: no product. Threads that share a row hold it, or read it again for each stage of reductions
//! (`templates/mainloop/rows.cuh`).

use super::rows_parts::{self, BESIDE, BYTE, REGISTERS, Row, has_masks, held, keeps_sums, reduces_down, states};
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::plan::{InstrKind, Phase, Program, Reason};
use crate::problem::Operation;

/// Bytes in which a warp leaves the states of a row.
const PLACE: usize = 32;
/// Bytes of two mbarriers, which count what other blocks leave.
const MBARRIERS: usize = 16;
/// Its rules.
pub(super) struct Rows;

const LONGEST_ROW: usize = 1 << 24;

/// Threads of a block that share a row, columns that they hold at a time, rows together, and whether the next rows are loaded
/// ahead.
fn own(tile: &Tile) -> [usize; 4] {
    match tile.shape {
        TileShape::Rows { group, span, together, ahead, .. } => [group, span, together, usize::from(ahead)],
        _ => [1; 4],
    }
}

/// Batches of rows on their way to shared memory, and bytes of an element of all their matrices.
fn copies(tile: &Tile) -> [usize; 2] {
    if let TileShape::Rows { copies, .. } = tile.shape { copies } else { [0; 2] }
}

/// Bytes in which warps leave the states of rows, and in which those of other blocks arrive.
fn places(group: usize, tile: &Tile) -> usize {
    let blocks = blocks(tile);
    let arrivals = if blocks > 1 { MBARRIERS } else { 0 };
    if group > 32 || tile.is_whole() { 2 * (tile.threads / 32 * PLACE * blocks) + arrivals } else { 0 }
}

/// Blocks that share a row.
fn blocks(tile: &Tile) -> usize {
    if let TileShape::Rows { cluster, .. } = tile.shape { cluster } else { 1 }
}

impl Tile {
    /// Whether what is reduced is held, so that memory is read once.
    pub(crate) fn holds_rows(&self) -> bool {
        self.rules().holds_rows(self)
    }

    /// Neighbouring columns that the threads that share a row read together, in strips of so many.
    pub(in crate::plan) fn columns_at_once(&self, strip: usize) -> Option<usize> {
        matches!(self.shape, TileShape::Rows { .. }).then(|| own(self)[0] * strip)
    }

    /// Whether the next batches of rows are on their way to shared memory.
    pub(crate) fn copies_rows(&self) -> bool {
        copies(self)[0] > 0
    }

    /// Whether it is a whole matrix.
    fn is_whole(&self) -> bool {
        matches!(self.shape, TileShape::Rows { whole: true, .. })
    }
}

impl Rules for Rows {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        asked.operation.layout().map(|_| "the operation is a product".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let ranked = (1u8..).zip(tiles(request));
        let tried: Vec<Tried> = ranked.map(|(rank, tile)| Tried { tile, obstacle: None, time: Some(f64::from(rank)) }).collect();
        match request.program.band {
            Some(band) if tried.is_empty() => {
                let shape =
                    TileShape::Rows { group: 1, span: band, together: 1, ahead: false, whole: false, cluster: 1, copies: [0; 2] };
                let tile = Tile { bm: LEAST_THREADS, bn: band, shape, threads: LEAST_THREADS, min_blocks: 1 };
                let why = format!(
                    "powers of two of threads do not share bands of {band} columns in strips of {}, with up to {MOST_ELEMENTS} \
                     columns each",
                    request.strip
                );
                vec![Tried { tile, obstacle: Some(why), time: None }]
            }
            _ => tried,
        }
    }

    fn broken_rule(&self, tile: &Tile, _: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [group, span, together, _]) = (*tile, own(tile));
        let (blocks, [depth, of_element]) = (blocks(tile), copies(tile));
        let at_once = (threads / group.max(1)).max(1) * together.max(1);
        first_broken(&[
            (
                [threads, group, together].iter().all(|x| x.is_power_of_two()),
                "threads, groups of them and rows together are powers of two",
            ),
            ((32..=1024).contains(&threads) && group <= threads, "a block has 32 to 1024 threads, and whole groups"),
            (
                span > 0 && span.is_multiple_of((group * strip).max(1)) && bn.is_multiple_of(span),
                "a group's strips cover a row in whole spans",
            ),
            (bn <= LONGEST_ROW, "a row has at most 16777216 columns"),
            (
                bm.is_multiple_of(at_once) && (bn == span.saturating_mul(blocks) || bm == at_once || tile.is_whole()),
                "a tile has whole batches of rows, and one where they are read again",
            ),
            ([1, 2, 4, 8].contains(&blocks), "1, 2, 4 or 8 blocks share a row"),
            (
                blocks == 1 || (group == threads && bn == span.saturating_mul(blocks) && !tile.is_whole()),
                "blocks that share a row hold it, and no other at the time",
            ),
            (
                (depth > 0) == (of_element > 0) && depth <= MOST_DEPTH && (depth == 0 || tile.holds_rows() && !tile.is_whole()),
                "up to eight batches are on their way to threads that hold rows, and have bytes",
            ),
        ])
    }

    /// Rows may be longer than other tiles are wide.
    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let [group, span, together, _] = own(tile);
        vec![tile.bn.min(1), group, together, span.min(1), blocks(tile)]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [group, span, together, ahead] = own(tile);
        let cluster = ("CLUSTER", blocks(tile));
        let mut constants =
            vec![("GROUP", group), ("SPAN", span), ("TOGETHER", together), ("AHEAD", ahead), ("PLACE", PLACE), cluster];
        let [depth, bytes] = copies(tile);
        if depth > 0 {
            let at = places(group, tile);
            constants.extend([("DEPTH", depth), ("BYTES", bytes), ("AT_KEPT", at)]);
        }
        constants
    }

    fn words(&self, tile: &Tile) -> String {
        let [group, span, ..] = own(tile);
        let again = || if span == tile.bn { "which they read again".into() } else { format!("{span} columns at a time") };
        let held = if tile.holds_rows() { "which they hold".into() } else { again() };
        let whole = if tile.is_whole() { ", a whole matrix" } else { "" };
        let of_blocks = if blocks(tile) > 1 { format!(" in each of {} blocks", blocks(tile)) } else { String::new() };
        let ahead = if tile.copies_rows() { format!(", copied ahead by {}", copies(tile)[0]) } else { String::new() };
        format!(", {group} threads a row{of_blocks}, {held}{whole}{ahead}")
    }

    /// Each element of a row that a thread has at a time is read for each stage, stored, and enters sums, by code of its own.
    /// Rows that are held have this code twice, with and without edges.
    fn price(&self, of: &Priced<'_>) -> Price {
        let ([group, span, together, ahead], stages) = (own(of.copied.tile), &of.copied.program.stages);
        let times = if of.copied.tile.holds_rows() { 2.0 } else { 1.0 };
        let elements = times * (span / group.max(1) * together) as f64;
        let inside = stages.iter().map(|stage| stage.reductions.len()).sum::<usize>() as f64;
        let read = ((stages.len() + 1) * (1 + of.widening(0))) as f64;
        let loads = of.copied.program.steps.iter().filter(|step| matches!(step.kind, InstrKind::Load { .. })).count() as f64;
        let each = 0.212 * read + 1.07 * loads + 5.43 * ahead as f64 * (1.0 + loads);
        let kernel = 65.1 + elements * each + 6.64 * inside;
        let (store, reduction) = (29.5 + 1.12 * elements, 133.0 + 3.6 * elements);
        Price { kernel, thousand: times * 181.0, load: 0.0, store, reduction, sum: 0.0 }
    }

    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        let program = request.program;
        let [any, all] = program.reduces_all();
        if let Some(band) = program.band
            && (tile.bn != band || !(tile.is_whole() || tile.holds_rows()))
        {
            return Err(format!("has {} columns, and does not hold bands of {band}", tile.bn).into());
        }
        if !own(tile)[1].is_multiple_of(BYTE) && has_masks(program, request.operation) {
            return Err("ends inside of a byte of a mask".into());
        }
        if program.band.is_none() && request.shape.n > tile.bn {
            return Err(format!("has rows of {} columns, and the problem's have {}", tile.bn, request.shape.n).into());
        }
        if copies(tile)[0] > 0 && !rows_parts::can_copy(request, copies(tile)[1]) {
            return Err(format!("copies {} bytes of each element, and others are read", copies(tile)[1]).into());
        }
        if tile.is_whole() && request.shape.m > tile.bm {
            return Err(format!("has {} rows, and the problem {}", tile.bm, request.shape.m).into());
        }
        if blocks(tile) > 1 && !program.reductions.is_empty() && !reduces_down(program) {
            return Err("shares rows among blocks, and something is reduced along them behind what they come to".into());
        }
        if any && !tile.is_whole() {
            return Err("is a part of what is reduced over all rows and columns".into());
        }
        if tile.is_whole() && !tile.holds_rows() && !(all && program.reductions.is_empty()) {
            return Err("is read again, and something is reduced beside what all rows and columns come to".into());
        }
        request.passes(0).map(|()| *tile)
    }

    fn holds_rows(&self, tile: &Tile) -> bool {
        let [group, span, together, _] = own(tile);
        span.saturating_mul(blocks(tile)) == tile.bn
            && (!tile.is_whole() || tile.bm == (tile.threads / group.max(1)).max(1) * together)
    }

    /// The states of a row's warps, twice, and what counts those of other blocks.
    fn memory(&self, tile: &Tile, _: DType) -> [usize; 2] {
        let ([group, span, together, _], [depth, bytes]) = (own(tile), copies(tile));
        let elements = tile.threads.saturating_mul(span / group.max(1)).saturating_mul(together);
        [places(group, tile).saturating_add(elements.saturating_mul(depth).saturating_mul(bytes)), 0]
    }

    fn accumulators(&self, tile: &Tile) -> usize {
        let [group, span, together, _] = own(tile);
        // A row that is read again is not held to the end.
        if tile.holds_rows() { span / group.max(1) * together } else { 0 }
    }

    fn fewest_threads(&self, tile: &Tile) -> usize {
        if tile.holds_rows() { BUSY } else { 0 }
    }

    /// A thread that holds its part of a row runs through its code once, so it reloads once.
    fn tolerated_spills(&self, tile: &Tile) -> u32 {
        if tile.holds_rows() { SPILLED } else { 0 }
    }

    fn cluster(&self, tile: &Tile) -> usize {
        blocks(tile)
    }

    fn unit(&self, tile: &Tile, _: usize) -> Unit {
        let [group, span, ..] = own(tile);
        let unit = Unit::of_strips(tile, group);
        if blocks(tile) > 1 { Unit { columns: span, ..unit } } else { unit }
    }

    /// Those of bf16, which the compiler would keep as they are widened, in twice the registers. With more stages, and where sums
    /// over M take registers, that was slower (docs/measurements/0066-long-rows.md).
    fn renews_rows(&self, tile: &Tile, program: &Program, dtype: DType) -> bool {
        let loads = || program.loads_of(Phase::Visit).any(|(_, _, operand)| operand.dtype == DType::BF16);
        let has_any = dtype == DType::BF16 || loads();
        has_any && tile.holds_rows() && program.stages.len() <= MOST_RENEWED && program.reductions.is_empty()
    }

    /// With a branch for the label in each strip, elements would stay widened, and registers run out.
    fn goes_over_strips(&self, tile: &Tile) -> bool {
        tile.holds_rows()
    }

    fn place_of_states(&self) -> Option<usize> {
        Some(PLACE)
    }

    fn keeps_sums(&self, tile: &Tile, program: &Program, dtype: DType) -> bool {
        let [group, span, together, _] = own(tile);
        let (columns, bytes) = (span / group.max(1), held(program, dtype.size()).into_iter().sum::<usize>());
        tile.holds_rows() && keeps_sums(program, [group, tile.threads], columns, columns * together * bytes / 4)
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        let ([group, span, together, _], strip) = (own(of.tile), of.strip);
        let visits = span / (group * strip).max(1);
        let column = strip * visits;
        Copies { visit: column * together, column, row: together, again: together, limited: false }
    }

    fn shares_operands(&self) -> bool {
        false
    }

    fn shares_fixups(&self) -> bool {
        true
    }

    fn reads_of_rows(&self, tile: &Tile, stages: usize) -> String {
        match (tile.holds_rows(), tile.is_whole()) {
            (true, false) if blocks(tile) == 1 => "held in registers, so that memory is read once".into(),
            (true, false) => format!("held in registers of {} blocks, so that memory is read once", blocks(tile)),
            (true, true) => "the matrix is held in registers of one block, so that memory is read once".into(),
            (false, whole) => {
                let what =
                    if whole { "the matrix is too large to be held, so that it" } else { "too long to be held, so that each" };
                format!("{what} is read {} times, mostly from the L2 cache", stages + 1)
            }
        }
    }
}

/// Bytes of a row of one matrix that a thread holds, if few threads share the row and if many do. Fewer threads combine
/// sooner.
const HELD: usize = 64;
const HELD_OF_MANY: usize = 2 * HELD;
const MANY: usize = 256;
/// The most elements of a whole matrix that a thread holds: each has code of its own.
const MOST_ELEMENTS: usize = 128;
/// The most bytes that it holds of all matrices.
const MOST_HELD: usize = 256;
/// The most batches of rows on their way.
const MOST_DEPTH: usize = 8;
/// Threads of a block.
const LEAST_THREADS: usize = 128;
const MOST_THREADS: usize = 1024;
/// Threads of a multiprocessor below which tiles that hold less are better, and bytes that a thread may spill and reload
/// (docs/measurements/0063-groups-in-clusters.md).
const BUSY: usize = 512;
const SPILLED: u32 = 16;
/// The most stages for which rows are widened again.
const MOST_RENEWED: usize = 2;
/// Blocks that may share a row, without vectors and with (docs/measurements/0084-one-state-of-moments.md), and threads of each.
const CLUSTERS: [[usize; 2]; 2] = [[8, 4], [4, 8]];
const MOST_OF_CLUSTER: usize = 256;
/// Threads of each with sums over M, one block to a multiprocessor.
const MOST_WITH_SUMS: usize = 512;
/// The most rows of which one thread has parts at a time.
const MOST_TOGETHER: usize = 4;
/// The most threads of a multiprocessor.
const RESIDENT: usize = 2048;
/// The most batches of rows of a tile.
const MOST_BATCHES: usize = 1024;

/// The tiles that suit the rows of a problem, the best first.
fn tiles(request: &TileRequest<'_>) -> Vec<Tile> {
    let sizes = held(request.program, request.operation.dtype().size());
    let [bytes, widest] = [sizes.iter().sum::<usize>(), sizes.iter().copied().max().unwrap_or_default()];
    let [bytes, widest] = [bytes, widest].map(|bytes| bytes.max(1) * request.strip);
    let columns = request.program.band.unwrap_or(request.shape.n).max(1);
    let row = Row { request, strips: columns.div_ceil(request.strip), bytes, widest };
    if request.program.reduces_all()[0] {
        return row.wholes();
    }
    let is_many = row.group(HELD) > MANY;
    // Vectors over N take registers beside a matrix (docs/measurements/0061-moments-and-straight-rows.md).
    let has_vectors = row.bytes == row.widest && request.program.loads_of(Phase::Column).next().is_some();
    let order = match (states(request.program), is_many) {
        (0, true) if !has_vectors => [HELD_OF_MANY, HELD, HELD / 2],
        (0, _) => [HELD, HELD_OF_MANY, HELD / 2],
        // Sums over M need registers of their own.
        (_, false) => [HELD / 2, HELD, HELD_OF_MANY],
        (_, true) => [HELD, HELD / 2, HELD_OF_MANY],
    };
    let mut tiles: Vec<Tile> = order.into_iter().filter_map(|bytes| row.held(bytes, 1)).collect();
    let has_clusters = request.target.has_clusters() && request.program.band.is_none();
    // 1024 threads of one block leave each of them too few registers.
    if has_clusters && tiles.first().is_none_or(|tile| tile.threads == MOST_THREADS) {
        let with_sums = [HELD / 2, HELD].into_iter().flat_map(|bytes| [2, 4, 8].map(|cluster| (bytes, cluster)));
        let of_clusters: Vec<Tile> = match request.program.reductions.is_empty() {
            true => {
                let of_clusters = CLUSTERS[usize::from(has_vectors)].into_iter();
                let of_clusters = of_clusters.filter_map(|cluster| row.held(HELD_OF_MANY, cluster));
                of_clusters.filter(|tile| tile.threads <= MOST_OF_CLUSTER).collect()
            }
            // With half as many columns a thread has registers for their sums.
            false if reduces_down(request.program) => {
                let of_clusters = with_sums.filter_map(|(bytes, cluster)| row.held(bytes, cluster));
                of_clusters.filter(|tile| tile.threads <= MOST_WITH_SUMS).take(1).collect()
            }
            false => Vec::new(),
        };
        tiles.splice(0..0, of_clusters);
    }
    // If registers run out, the plan falls back to the next tile that holds less. With sums over M, each row that is
    // read again would leave a slice for every column, which takes longer than spills.
    if request.program.band.is_none() && (tiles.is_empty() || states(request.program) == 0) {
        tiles.push(row.again());
    }
    tiles.dedup();
    tiles
}

impl Row<'_> {
    /// A tile whose threads hold rows, in so many blocks.
    fn held(&self, bytes: usize, cluster: usize) -> Option<Tile> {
        let TileRequest { shape, strip, gpu, .. } = *self.request;
        let of_row = self.group(bytes);
        if cluster > 1 && of_row < cluster * LEAST_THREADS {
            return None;
        }
        let group = of_row / cluster;
        let visits = self.strips.div_ceil(of_row);
        if group > MOST_THREADS || visits * self.bytes > MOST_HELD || visits * strip > MOST_ELEMENTS {
            return None;
        }
        let threads = group.max(LEAST_THREADS);
        let mut together = 1;
        while cluster == 1 && together < MOST_TOGETHER && 2 * together * visits * self.bytes <= HELD {
            together *= 2;
        }
        let (states, held) = (states(self.request.program), together * visits * self.bytes / 4);
        let kept = keeps_sums(self.request.program, [group, threads], visits * strip, held);
        let registers = BESIDE + held + if kept { 0 } else { visits * strip * states };
        let ahead = states > 0 && !kept && (registers + held) * threads <= REGISTERS;
        let registers = if ahead { registers + held } else { registers };
        let min_blocks = (REGISTERS / (registers * threads)).clamp(1, RESIDENT / threads);
        let (at_once, span) = (threads / group * together, self.span(group, visits));
        let tile = |batches, copies| {
            let shape = TileShape::Rows { group, span, together, ahead: ahead && batches > 1, whole: false, cluster, copies };
            Tile { bm: at_once * batches, bn: span * cluster, shape, threads, min_blocks }
        };
        let one = tile(1, [0; 2]);
        if states == 0 {
            return Some(one);
        }
        // Sums over M cost a tile less, the more rows it has: take as many rows as leave a tile for every block.
        let tiles_at_once = one.clusters_at_once(gpu.multiprocessors) * min_blocks;
        let batches = shape.m.saturating_mul(shape.batch).div_ceil(at_once * tiles_at_once).clamp(1, MOST_BATCHES);
        let elements = threads * visits * strip * together;
        let copies = if batches > 1 { rows_parts::copies(self.request, &one, places(group, &one), elements) } else { [0; 2] };
        Some(tile(batches, copies))
    }

    /// Tiles that are whole matrices: held by few threads, by many, by as many as have registers for it, or read again.
    fn wholes(&self) -> Vec<Tile> {
        let threads = [128, 256, 512, MOST_THREADS];
        let few = threads.into_iter().filter_map(|threads| self.whole(threads, HELD));
        let many = threads.into_iter().rev().filter_map(|threads| self.whole(threads, MOST_HELD));
        let mut tiles: Vec<Tile> = Vec::new();
        for tile in few.chain(many).chain([self.whole_again()]) {
            if !tiles.contains(&tile) {
                tiles.push(tile);
            }
        }
        tiles
    }

    /// Threads that share a row of a whole matrix, among so many of a block, strips that a thread has of the row, and the span.
    fn shared(&self, threads: usize, most_visits: usize) -> [usize; 3] {
        if self.request.program.band.is_some() {
            let group = self.dividing(threads);
            return [group, self.strips / group, self.strips * self.request.strip];
        }
        let group = self.strips.next_power_of_two().max(BYTE / self.request.strip).min(threads);
        let visits = self.strips.div_ceil(group).min(most_visits);
        [group, visits, self.span(group, visits)]
    }

    /// A tile of this many threads that hold a whole matrix, each at most so many bytes of it.
    fn whole(&self, threads: usize, bytes: usize) -> Option<Tile> {
        let TileRequest { shape, strip, .. } = *self.request;
        let [group, visits, span] = self.shared(threads, usize::MAX);
        let at_once = threads / group;
        let together = shape.m.max(1).div_ceil(at_once).next_power_of_two();
        let held = together.saturating_mul(visits).saturating_mul(self.bytes);
        let room = (REGISTERS / threads).saturating_sub(BESIDE) * 4;
        let elements = together.saturating_mul(visits).saturating_mul(strip);
        if held > bytes.min(room) || elements > MOST_ELEMENTS {
            return None;
        }
        let shape = TileShape::Rows { group, span, together, ahead: false, whole: true, cluster: 1, copies: [0; 2] };
        let min_blocks = (REGISTERS / ((BESIDE + held / 4) * threads)).clamp(1, RESIDENT / threads);
        Some(Tile { bm: at_once * together, bn: span, shape, threads, min_blocks })
    }

    /// A tile whose threads read a whole matrix again for each stage.
    fn whole_again(&self) -> Tile {
        let TileRequest { shape, strip, gpu, .. } = *self.request;
        let threads = if shape.batch > gpu.multiprocessors { MOST_THREADS / 2 } else { MOST_THREADS };
        let [group, visits, span] = self.shared(threads, self.visits(HELD));
        let mut together = 1;
        while 2 * together * visits * self.bytes <= HELD && 2 * together * visits * strip <= HELD {
            together *= 2;
        }
        let bm = shape.m.max(1).next_multiple_of(threads / group * together);
        // If threads held it, more than one batch of rows says that they do not.
        let bm = bm.max(2 * threads / group * together);
        let shape = TileShape::Rows { group, span, together, ahead: false, whole: true, cluster: 1, copies: [0; 2] };
        let bn = self.request.program.band.unwrap_or(self.request.shape.n.max(1).next_multiple_of(span));
        Tile { bm, bn, shape, threads, min_blocks: MOST_THREADS / threads }
    }

    /// A tile whose threads read a row again for each stage.
    fn again(&self) -> Tile {
        let group = (MOST_THREADS / 2).min(self.strips.next_power_of_two().max(32));
        let span = group * self.visits(HELD) * self.request.strip;
        // More than one span, because a single span would be held.
        let columns = self.request.shape.n.max(1).next_multiple_of(span).max(2 * span);
        let shape = TileShape::Rows { group, span, together: 1, ahead: false, whole: false, cluster: 1, copies: [0; 2] };
        Tile { bm: 1, bn: columns, shape, threads: group, min_blocks: (MOST_THREADS / group).min(RESIDENT / group) }
    }
}
