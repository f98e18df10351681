//! The survey: every tile that might be best, on shapes that nobody picked. The cost model of tiles is fitted to what it finds.

use crate::Result;
use crate::bench::Bench;
use crate::case::{Case, Fused, Slices};
use crate::contest::Contender;
use crate::epilogues::{self, Kernel};
use crate::operands::Operands;
use postlude::plan::{Considered, KernelPlan};
use postlude::prelude::*;
use std::fs::OpenOptions;
use std::io::Write;

/// Tiles that are estimated to take longer than this many hundredths of the chosen one's time are not measured, nor more
/// than so many.
const WITHIN: u64 = 145;
const MOST: usize = 24;
/// The same of slices that take long.
const MOST_LONG: usize = 10;

/// How often each algorithm of the peer runs.
const ROUNDS: usize = 5;

/// The columns of a line.
const HEADER: &str = "gpu,dtype,layout,m,n,k,epilogue,slices,peer_us,chosen_us,tiles";

impl Bench<'_> {
    /// The operation as it is planned, then on each tile that might be faster.
    pub fn surveyed(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        let plan = gemm.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?;
        // A plan that splits K has the tiles of the kernel that adds up; the product in one piece has its own.
        let whole = gemm.clone().split_k(1);
        let plan =
            if plan.split.is_some() { whole.kernel_plan(self.device.target(), self.device.gpu(), case.shape)? } else { plan };
        let most = if self.slices(case).contains(&Slices::Long) { MOST_LONG } else { MOST };
        let promising = |plan: &KernelPlan, most: usize| {
            let tiles = plan.choice.estimates().filter(|(_, hundredths)| *hundredths <= WITHIN).take(most);
            let gemm = whole.clone().transposed(plan.transposed);
            tiles.map(move |(tile, _)| gemm.clone().tile(tile)).collect::<Vec<Gemm>>()
        };
        let mut all = vec![gemm.clone()];
        all.extend(promising(&plan, most));
        // If the planner compares both ways, half as many tiles of the other way.
        if plan.choice.verdicts.iter().any(|verdict| matches!(verdict.candidate, Considered::Turned(_))) {
            let other = whole.clone().transposed(!plan.transposed);
            all.extend(promising(&other.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?, most / 2));
        }
        Ok(all)
    }

    /// Measures a shape, and writes a line: the peer, the plan as it is chosen, and each tile.
    pub fn survey(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let fused = case.epilogues[0];
        let mut kernels: Vec<Kernel> = Vec::new();
        for gemm in self.surveyed(&epilogues::product(case, fused)?, case)? {
            match self.kernel(&gemm, case) {
                Ok(kernel) if kernels.iter().skip(1).any(|other| kernel.is_like(other)) => {}
                Ok(kernel) => kernels.push(kernel),
                Err(error) => eprintln!("  left out: {error}"),
            }
        }
        let product = if Fused::PEERED.contains(&fused) { Some(self.product(case, fused)?) } else { None };
        let mut contenders: Vec<Contender<'_>> = kernels.iter().map(|kernel| self.ours(kernel)).collect();
        if let Some(product) = &product {
            let all: Vec<_> = (0..product.algorithms()).map(|algorithm| self.theirs(product, algorithm)).collect();
            let fastest = self.arena.run(&all, operands, Slices::Brief, ROUNDS)?.ranking().first().copied();
            contenders.extend(fastest.map(|algorithm| self.theirs(product, algorithm)));
        }
        self.agree(case, &contenders, operands)?;
        self.each_slices(case, &contenders, operands, |slices, times, _| {
            let us = |contender: usize| times.median(contender) * 1e6;
            let named = |kernel: &Kernel| {
                format!("{}{}", kernel.name(), if kernel.is_transposed() { ", transposed" } else { ", as it is" })
            };
            let tiles: Vec<(String, f64)> = (1..kernels.len()).map(|i| (named(&kernels[i]), us(i))).collect();
            let least = tiles.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
            eprintln!("  {} tiles, chosen {:.3} of the best", tiles.len(), least / us(0));
            let Some(path) = self.csv() else { return Ok(()) };
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            if file.metadata()?.len() == 0 {
                writeln!(file, "{HEADER}")?;
            }
            let Shape { m, n, k, .. } = case.shape;
            let peer = if contenders.len() > kernels.len() { format!("{:.2}", us(kernels.len())) } else { String::new() };
            let tiles: Vec<String> = tiles.iter().map(|(name, us)| format!("{name} = {us:.2}")).collect();
            let (gpu, dtype, layout, word) = (self.gpu(), case.dtype, case.layout, fused.word());
            let (slices, chosen, tiles) = (slices.word(), us(0), tiles.join("; "));
            writeln!(file, "{gpu},{dtype},{layout},{m},{n},{k},{word},{slices},{peer},{chosen:.2},\"{tiles}\"")?;
            Ok(())
        })
    }
}
