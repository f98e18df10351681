//! The explanation of a plan: what will run, what it takes, and why the planner chose it.

use crate::ir::axes::L;
use crate::plan::{InstrKind, Item, KernelPlan, MOST_PARTS, OperandSum, Phase, SplitK, Staging, TMA_UNIT, Widened, widened};
use std::fmt::Write;

impl KernelPlan {
    /// The plan in words: kernel, tile, memory, where each value is computed, and the verdict on every candidate.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        if let Some(SplitK { parts: 1, operation, product, why, .. }) = &self.split {
            let _ = writeln!(
                out,
                "two kernels   {operation}, multiplied by {}, which stores its accumulators; then the kernel below: {} bytes of \
                 scratch, written once and read once. One kernel does not do both: {why}",
                product.tile, self.scratch,
            );
        } else if let Some(SplitK { parts, operation, sums, product, .. }) = &self.split {
            let (order, dtype) = (sums.order.name().replace('_', "-"), sums.dtype);
            let _ = writeln!(
                out,
                "split         {}: K in {parts} parts, multiplied by {}; then the kernel below, which adds up their sums in \
                 order: {} bytes of scratch, {dtype}, {order}",
                operation, product.tile, self.scratch,
            );
        }
        if let Some(passes) = &self.passes {
            let names: Vec<String> = self.before.iter().map(|plan| plan.tile.mainloop().to_string()).collect();
            let _ = writeln!(
                out,
                "kernels       {}: {} reduce(s) what blocks wait for; then the kernel below: {} bytes of scratch. One kernel \
                 does not do it: {}",
                self.before.len() + 1,
                names.join(", "),
                self.scratch,
                passes.why,
            );
        }
        let _ = writeln!(out, "kernel        {} for {}", self.tile, self.target);
        let _ = writeln!(
            out,
            "operation     {}{}",
            self.operation,
            if self.transposed { " (the transposed problem: outputs are column-major)" } else { "" }
        );
        let _ = writeln!(
            out,
            "threads       {} a block, with registers for {} block(s) a multiprocessor",
            self.tile.threads, self.tile.min_blocks
        );
        let _ = writeln!(out, "shared memory {} bytes, dynamic", self.shared_memory());
        let _ = writeln!(out, "alignment     a {} bytes, b {} bytes", self.alignment[0], self.alignment[1]);
        if let Some(repack) = &self.repack {
            let names: Vec<_> =
                ["a", "b"].into_iter().zip(repack.operands).filter_map(|(n, copied)| copied.then_some(n)).collect();
            let _ = writeln!(
                out,
                "copies        {} into aligned rows before the kernel, {} bytes of scratch: TMA reads multiples of {TMA_UNIT} \
                 bytes",
                names.join(" and "),
                self.scratch,
            );
            if let Some(Widened { operand, from, .. }) = repack.widened {
                let name = ["a", "b"][operand];
                let _ = writeln!(
                    out,
                    "widens        {name}: {from} becomes {} in the copy, rounded where it is scaled; with K contiguous in the \
                     weights, up to {} rows need no copy",
                    repack.dtype,
                    widened::MOST_ROWS
                );
            }
            let names: Vec<_> =
                ["a", "b"].into_iter().zip(repack.transposed).filter_map(|(n, turned)| turned.then_some(n)).collect();
            if !names.is_empty() {
                let _ = writeln!(
                    out,
                    "transposes    {}: wgmma reads {} with K contiguous; such an operand needs no copy",
                    names.join(" and "),
                    if repack.dtype.is_eight_bits() { "eight bits" } else { "tf32" },
                );
            }
        }
        if let Some(operand) = self.operation.widened().filter(|_| self.staging.is_some()) {
            let _ = writeln!(
                out,
                "widens        {}: {} becomes {} in registers, on its way to the tensor cores",
                ["a", "b"][operand],
                self.operation.dtypes()[operand],
                self.operation.multiplied(),
            );
        }
        if self.promotes {
            let _ = writeln!(
                out,
                "accumulates   in f32 the tensor cores' sums of 128 K elements; with `Gemm::fast_accumulation` tensor cores add \
                 up everything, with 13 bits"
            );
        }
        if let Some(note) = self.tile.rules().note(self.operation) {
            let _ = writeln!(out, "{note}");
        }
        let _ = writeln!(out, "strip         {} columns a visit", self.strip);
        let along = if self.raster > 0 { "rows" } else { "columns" };
        let _ = writeln!(out, "raster        groups of {} {along} of tiles", self.raster.abs());
        if self.shifted_edges {
            let _ =
                writeln!(out, "edges         shifted: the last tiles end where the output does, and overlap the tiles before");
        }
        if self.lockstep {
            let _ = writeln!(out, "lockstep      blocks wait for each other between tiles, to read operands from memory once");
        }
        if let Some(staging) = &self.staging {
            let _ = writeln!(
                out,
                "staging       {} matrices read, {} chunks ahead; {} written, {} chunks on their way{}{}{}; {} vectors",
                staging.loads.len(),
                staging.load_stages,
                staging.stores.len(),
                staging.store_buffers,
                match staging {
                    Staging { delayed_store: true, .. } => " under the next tile's products",
                    Staging { direct_store: true, .. } => ", moved by their lanes",
                    _ => "",
                },
                if staging.is_common(&self.tile) { ", both consumers' in one place" } else { "" },
                if self.chunks_by_rows() { ", row by row" } else { "" },
                staging.vectors.len(),
            );
        }
        let _ = writeln!(
            out,
            "math          {}",
            if self.fast_math { "fast: every stored matrix is 16 bit or narrower, or it was asked for" } else { "exact" }
        );
        let seconds = self.compile_time().as_secs_f64();
        let _ = write!(
            out,
            "code          about {} instructions of epilogue, compiled in about {seconds:.1} s",
            self.code.instructions
        );
        if !self.code.calls.is_empty() {
            let names: Vec<_> = self.code.calls.iter().map(|op| op.name()).collect();
            let _ = write!(out, "; {} called", names.join(", "));
        }
        if self.code.is_rolled(self.strip) {
            let _ = write!(out, "; a loop over a strip's elements, {} at a time", self.code.visit_unroll);
        }
        let _ = writeln!(out);
        let _ = writeln!(out, "parameters    {} bytes", self.params.size);
        if !self.maps.is_empty() {
            let _ = writeln!(out, "tensor maps   {}", self.maps.len());
        }
        if self.programmatic {
            let _ =
                writeln!(out, "launch        may begin while the one before it in the stream still runs, and waits by itself");
        }
        if let Some(operand) = self.weights {
            let name = ["a", "b"][operand];
            let _ = writeln!(
                out,
                "weights       {name}, whose first blocks of K are fetched into the L2 cache before earlier launches are done"
            );
        }
        let count = |phase| self.program.of_phase(phase).count();
        let _ = writeln!(
            out,
            "values        {} once a tile, {} once a row, {} once a column strip, {} for every element ({} matrix loads)",
            count(Phase::Tile),
            count(Phase::Row),
            count(Phase::Column),
            count(Phase::Visit),
            self.program.steps.iter().filter(|s| s.phase == Phase::Visit && matches!(s.kind, InstrKind::Load { .. })).count(),
        );
        if let Some(scores) = &self.scores {
            let count = |phase| scores.program.of_phase(phase).count();
            let _ = writeln!(
                out,
                "scores        a function of {} values once a tile, {} once a query, {} once a key, {} for every score; about {} \
                 instructions; {}",
                count(Phase::Tile),
                count(Phase::Row),
                count(Phase::Column),
                count(Phase::Visit),
                scores.code.instructions,
                match scores.bounds.len() {
                    0 => "no condition on coordinates lets a tile skip blocks of keys".to_owned(),
                    bounds => format!("tiles skip blocks of keys beyond {bounds} bound(s)"),
                }
            );
        }
        if !self.program.stages.is_empty() {
            let counts: Vec<String> = self.program.stages.iter().map(|stage| stage.reductions.len().to_string()).collect();
            let _ = writeln!(
                out,
                "rows          reduced in {} stage(s), {} at a time{}; {}",
                counts.len(),
                counts.join(" and "),
                self.program.band.map_or_else(String::new, |band| format!(", in bands of {band} columns")),
                self.tile.rules().reads_of_rows(&self.tile, self.program.stages.len())
            );
        }
        if !self.program.reductions.is_empty() {
            let (count, bytes) = (self.program.reductions.len(), self.parts().bytes);
            let arriving = self.program.reductions.iter().filter(|r| r.adds_as_they_arrive(&self.tile)).count();
            let totals = self.program.reductions.iter().filter(|r| r.is_total(&self.tile)).count();
            let totals = if totals > 0 { format!(", {totals} once for all tiles of a consumer") } else { String::new() };
            let _ = writeln!(
                out,
                "reductions    {count}, of which {arriving} add up as tiles arrive{totals}, the others in the tiles' \
                 order; {bytes} bytes of shared memory for each unit of {} threads{}",
                self.tile.unit(self.strip).threads,
                if self.keeps_sums() { ", which keep sums over M there from row to row" } else { "" },
            );
        }
        if self.helpers > 0 {
            let _ = writeln!(
                out,
                "fix-up        of sums over M, shared by the last block to arrive and up to {} that wait for it",
                self.helpers
            );
        }
        for OperandSum { side, operand, .. } in &self.program.sums {
            let over = if operand.axes.contains(L) { "K" } else { "K and the batch" };
            let _ = writeln!(
                out,
                "operand sums  {} over {over}, inside the product, by up to {MOST_PARTS} tiles each, whose slices are added up \
                 in order; K stays in one piece",
                side.name(),
            );
        }
        let branches = branches(&self.program.visit);
        if branches > 0 {
            let _ = writeln!(out, "regions       {branches} branch(es): where a condition is uniform over a strip one arm runs");
        }
        let _ = write!(out, "candidates\n{}", self.choice);
        if let Some(SplitK { parts: 1, product, .. }) = &self.split {
            let _ = write!(out, "the product\n{}", product.explain());
        } else if let Some(split) = &self.split {
            let _ = write!(out, "the product of the parts, {} batch entries of K\n{}", split.parts, split.product.explain());
        }
        for (index, plan) in self.before.iter().enumerate() {
            let _ = write!(out, "kernel {} of {}\n{}", index + 1, self.before.len() + 1, plan.explain());
        }
        out
    }
}

fn branches(items: &[Item]) -> usize {
    items
        .iter()
        .map(|item| if let Item::Branch { then, otherwise, .. } = item { 1 + branches(then) + branches(otherwise) } else { 0 })
        .sum()
}
