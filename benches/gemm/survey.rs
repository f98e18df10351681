//! The survey: every tile that might be best, on shapes that nobody picked. The cost model of tiles is fitted to what it finds.

use crate::Result;
use crate::bench::Bench;
use crate::case::{Case, Fused, Slices};
use crate::contest::Contender;
use crate::epilogues::{self, Kernel};
use crate::operands::Operands;
use postlude::prelude::*;
use std::fs::OpenOptions;
use std::io::Write;

/// Tiles that are estimated to take longer than this many hundredths of the chosen one's time are not measured, nor more than so many.
const WITHIN: u64 = 145;
const MOST: usize = 24;

/// How often each contender runs.
const ROUNDS: usize = 5;

/// The columns of a line.
const HEADER: &str = "gpu,dtype,layout,m,n,k,epilogue,kernel,raster_group,parts,us";

impl Bench<'_> {
    /// The operation as it is planned, then on each tile that might be faster.
    pub fn surveyed(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        let plan = gemm.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?;
        let tiles = plan.choice.estimates().filter(|(_, hundredths)| *hundredths <= WITHIN).take(MOST);
        let mut gemms = vec![gemm.clone()];
        // A plan that splits K has the tiles of the kernel that adds up; the product in one piece has its own.
        let whole = gemm.clone().split_k(1);
        if plan.split.is_some() {
            let plan = whole.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?;
            let tiles = plan.choice.estimates().filter(|(_, hundredths)| *hundredths <= WITHIN).take(MOST);
            gemms.extend(tiles.map(|(tile, _)| whole.clone().tile(tile)));
        } else {
            gemms.extend(tiles.map(|(tile, _)| whole.clone().tile(tile)));
        }
        Ok(gemms)
    }

    /// Measures a shape, and writes a line for each contender.
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
        let product;
        let mut contenders: Vec<Contender<'_>> = kernels.iter().map(|kernel| self.ours(kernel)).collect();
        let mut best = None;
        if Fused::PEERED.contains(&fused) {
            product = self.product(case, fused)?;
            let all: Vec<_> = (0..product.algorithms()).map(|algorithm| self.theirs(&product, algorithm)).collect();
            let fastest = self.arena.run(&all, operands, Slices::Brief, ROUNDS)?.ranking().first().copied();
            best = fastest.map(|algorithm| product.name(algorithm));
            contenders.extend(fastest.map(|algorithm| self.theirs(&product, algorithm)));
        }
        self.agree(case, &contenders, operands)?;
        let times = self.arena.run(&contenders, operands, Slices::Brief, ROUNDS)?;
        let us = |contender: usize| times.median(contender) * 1e6;
        let least = (1..kernels.len()).map(us).fold(f64::INFINITY, f64::min);
        eprintln!("  {} tiles, chosen {:.3} of the best", kernels.len() - 1, least / us(0));
        let Some(path) = self.csv() else { return Ok(()) };
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            writeln!(file, "{HEADER}")?;
        }
        let Shape { m, n, k, .. } = case.shape;
        let begin = format!("{},{},{},{m},{n},{k},{}", self.gpu(), case.dtype, case.layout, fused.word());
        let mut lines = String::new();
        for (i, kernel) in kernels.iter().enumerate() {
            let name = if i == 0 { format!("chosen: {}", kernel.name()) } else { kernel.name() };
            lines += &format!("{begin},\"{name}\",{},{},{:.3}\n", kernel.raster(), kernel.parts(), us(i));
        }
        if let Some(name) = best {
            lines += &format!("{begin},\"cuBLASLt {name}\",0,1,{:.3}\n", us(kernels.len()));
        }
        file.write_all(lines.as_bytes())?;
        Ok(())
    }
}
