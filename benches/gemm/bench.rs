//! The contests: the contenders of each case, and the records of them.

use crate::Result;
use crate::case::{Case, Fused, Group, Kind, PARTS, RASTERS, SELECTION_ROUNDS, Slices};
use crate::contest::{Arena, Contender, Times};
use crate::cublaslt::Library;
use crate::epilogues::{self, Kernel};
use crate::operands::{Begins, Noise, Operands, Output};
use crate::options::{Named, Options};
use crate::peer::{Epilogue, Product};
use crate::statistics::Spread;
use postlude::cudarc::driver::CudaStream;
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude_record::Record;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The number of cuBLASLt's algorithms that go from the selection into the contest. The fastest in short slices need
/// not be the fastest in long ones.
pub const FINALISTS: usize = 2;

/// Candidates that take longer than this many times the fastest one's time are not measured any further.
const HOPELESS: f64 = 1.3;

pub struct Bench<'b> {
    pub device: &'b Device,
    pub arena: Arena<'b>,
    pub library: Library,
    options: &'b Options,
    noise: Noise,
    gpu: String,
    software: String,
}

/// One side of a comparison.
pub struct Side {
    /// Its place in the contest.
    pub contender: usize,
    pub name: &'static str,
    /// The kernel, or the algorithm.
    pub kernel: String,
}

impl<'b> Bench<'b> {
    pub fn new(device: &'b Device, stream: &'b Arc<CudaStream>, options: &'b Options) -> Result<Bench<'b>> {
        let library = Library::new(stream)?;
        let compiler = postlude::jit::compiler()?.identity;
        let compiler: Vec<&str> = compiler.split(' ').take(2).collect();
        Ok(Bench {
            software: format!("{}, cuBLASLt {}", compiler.join(" "), library.version()),
            gpu: device.name().to_owned(),
            noise: Noise::new(stream)?,
            arena: Arena { stream, mode: options.launch, measured: options.measured },
            device,
            library,
            options,
        })
    }

    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// The name of the GPU.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// The slices that a case runs in.
    pub fn slices(&self, case: &Case) -> Vec<Slices> {
        self.options.slices(case.group)
    }

    /// The file that measurements are appended to, if there is one.
    pub fn csv(&self) -> Option<&Path> {
        self.options.csv.as_deref().filter(|_| self.options.measured)
    }

    pub fn stream(&self) -> &'b Arc<CudaStream> {
        self.arena.stream
    }

    /// Compiles every kernel of the cases, many at a time.
    pub fn precompile(&self, cases: &[Case]) -> Result<()> {
        let mut wanted = Vec::new();
        for case in cases {
            for &fused in &case.epilogues {
                if case.kind != Kind::Copy {
                    let gemm = epilogues::product(case, fused)?;
                    wanted.extend(self.others(&gemm, case)?.into_iter().map(|gemm| (gemm, case.shape)));
                    wanted.push((gemm, case.shape));
                }
                if matches!(case.kind, Kind::Sequence | Kind::Copy | Kind::Training) {
                    wanted.push((epilogues::pointwise(case, fused)?, case.shape));
                }
                if case.kind == Kind::Training {
                    wanted.push((epilogues::product(case, fused.without_training())?, case.shape));
                }
                if case.kind == Kind::Training && fused.has_sums() {
                    let (sums, shape, _) = epilogues::sums(case, fused)?;
                    wanted.push((sums, shape));
                    wanted.push((epilogues::atomic(case, fused)?, case.shape));
                }
            }
        }
        epilogues::precompile(self.device, &wanted);
        Ok(())
    }

    /// The operation with each tile that fits, the chosen one first, and with those of the portable mainloop.
    fn candidates(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        let plan = |gemm: &Gemm| gemm.kernel_plan(self.device.target(), self.device.gpu(), case.shape);
        let mut tiles: Vec<Tile> = plan(gemm)?.choice.candidates().map(|(tile, _)| tile).collect();
        if let Ok(portable) = plan(&gemm.clone().mainloop(Mainloop::Sm80)) {
            let others: Vec<Tile> =
                portable.choice.candidates().map(|(tile, _)| tile).filter(|tile| !tiles.contains(tile)).collect();
            tiles.extend(others);
        }
        Ok(tiles.into_iter().map(|tile| gemm.clone().tile(tile)).collect())
    }

    /// Whether the kernels of a case were named.
    fn are_named(&self, case: &Case) -> bool {
        case.kind == Kind::Choice && !self.options.kernels.is_empty()
    }

    /// The operation with the kernels that were named.
    fn named(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        let of_name = |Named { tile: name, raster, lockstep, transposed }: &Named| {
            let mut gemm = gemm.clone().raster_group(*raster);
            if let Some(transposed) = transposed {
                gemm = gemm.transposed(*transposed);
            }
            if !name.is_empty() {
                let plan = gemm.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?;
                let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
                let ends = tiles.iter().find(|tile| tile.to_string().ends_with(name));
                let tile = ends.or_else(|| tiles.iter().find(|tile| tile.to_string().contains(name)));
                gemm = gemm.tile(*tile.ok_or_else(|| format!("no tile is called `{name}`:\n{}", plan.choice))?);
            }
            Ok(if let Some(waits) = lockstep { gemm.lockstep(*waits) } else { gemm })
        };
        self.options.kernels.iter().map(of_name).collect()
    }

    /// The operation on its tile, with fewer stages of the mainloop's ring: as few as two.
    fn shorter_rings(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        let plan = gemm.kernel_plan(self.device.target(), self.device.gpu(), case.shape)?;
        let TileShape::Sm90a { bk, stages: most, consumers, schedule, cluster, splits_k } = plan.tile.shape else {
            return Ok(Vec::new());
        };
        let shorter = |stages| {
            let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k };
            gemm.clone().tile(Tile { shape, ..plan.tile })
        };
        Ok((2..most).rev().map(shorter).collect())
    }

    /// The peers of an operation with its chosen kernel.
    fn others(&self, gemm: &Gemm, case: &Case) -> Result<Vec<Gemm>> {
        Ok(match case.kind {
            Kind::Choice if self.are_named(case) => self.named(gemm, case)?,
            Kind::Choice => self.candidates(gemm, case)?,
            Kind::Raster => RASTERS.map(|group| gemm.clone().raster_group(group)).to_vec(),
            Kind::Stages => self.shorter_rings(gemm, case)?,
            Kind::Parts => PARTS.map(|parts| gemm.clone().split_k(parts)).to_vec(),
            Kind::Survey => self.surveyed(gemm, case)?,
            Kind::Peer | Kind::Tax | Kind::Sequence | Kind::Copy | Kind::Training => Vec::new(),
        })
    }

    pub fn case(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        match case.kind {
            Kind::Peer => self.peer(case, operands),
            Kind::Tax => self.tax(case, operands),
            Kind::Sequence => self.sequence(case, operands),
            Kind::Choice | Kind::Raster | Kind::Stages | Kind::Parts => self.choice(case, operands),
            Kind::Survey => self.survey(case, operands),
            Kind::Copy => self.copy(case, operands),
            Kind::Training => self.training(case, operands),
        }
    }

    pub fn kernel(&self, gemm: &Gemm, case: &Case) -> Result<Kernel> {
        Kernel::new(self.device, gemm, case.shape, Begins::WithProduct)
    }

    pub fn ours<'a>(&'a self, kernel: &'a Kernel) -> Contender<'a> {
        Contender::new(|operands, turn| kernel.launch(self.stream(), operands, turn))
    }

    /// cuBLASLt's product of a case, with cuBLASLt's own epilogue.
    pub fn product(&self, case: &Case, fused: Fused) -> Result<Product<'_>> {
        Product::new(&self.library, case, 0..case.shape.m, Epilogue::of(fused))
    }

    /// One of cuBLASLt's algorithms.
    pub fn theirs<'a>(&'a self, product: &'a Product<'_>, algorithm: usize) -> Contender<'a> {
        Contender::new(move |operands, turn| product.launch(self.stream(), operands, turn, algorithm))
    }

    /// Times every algorithm that cuBLASLt proposes for a product, in short slices; the fastest come first.
    pub fn rank(&self, product: &Product<'_>, operands: &mut Operands) -> Result<Vec<usize>> {
        let contenders: Vec<_> = (0..product.algorithms()).map(|algorithm| self.theirs(product, algorithm)).collect();
        Ok(self.arena.run(&contenders, operands, Slices::Short, SELECTION_ROUNDS)?.ranking())
    }

    /// Those of them that come into a contest.
    fn finalists(&self, product: &Product<'_>, operands: &mut Operands) -> Result<Vec<usize>> {
        let mut ranking = self.rank(product, operands)?;
        ranking.truncate(FINALISTS);
        Ok(ranking)
    }

    /// Ours against cuBLASLt's best.
    fn peer(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let fused = case.epilogues[0];
        let kernel = self.kernel(&epilogues::product(case, fused)?, case)?;
        let product = self.product(case, fused)?;
        let finalists = self.finalists(&product, operands)?;
        let mut contenders = vec![self.ours(&kernel)];
        contenders.extend(finalists.iter().map(|algorithm| self.theirs(&product, *algorithm)));
        let distance = self.agree(case, &contenders, operands)?;
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            // The peer is whichever of them did best.
            let best = times.ranking().into_iter().find(|i| *i != 0).ok_or("no peer")?;
            let ours = Side { contender: 0, name: "postlude", kernel: kernel.name() };
            let peer = Side { contender: best, name: "cuBLASLt", kernel: product.name(finalists[best - 1]) };
            self.record(case, fused, slices, operands, times, &ours, &peer, distance)
        })
    }

    /// Every epilogue against our identity.
    fn tax(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let kernels: Vec<Kernel> =
            case.epilogues.iter().map(|e| self.kernel(&epilogues::product(case, *e)?, case)).collect::<Result<_>>()?;
        let contenders: Vec<_> = kernels.iter().map(|kernel| self.ours(kernel)).collect();
        for contender in &contenders {
            self.arena.distance(std::slice::from_ref(contender), |_| Output::D, operands)?;
        }
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            let side = |i: usize, name| Side { contender: i, name, kernel: kernels[i].name() };
            for (i, &fused) in case.epilogues.iter().enumerate().skip(1) {
                let (ours, identity) = (side(i, "postlude"), side(0, "postlude identity"));
                self.record(case, fused, slices, operands, times, &ours, &identity, f64::NAN)?;
            }
            Ok(())
        })
    }

    /// The chosen tile, order of tiles, or number of parts, against all others.
    fn choice(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let fused = case.epilogues[0];
        let gemm = epilogues::product(case, fused)?;
        let others = self.others(&gemm, case)?;
        let mut kernels = vec![self.kernel(&gemm, case)?];
        for gemm in others {
            match self.kernel(&gemm, case) {
                Ok(kernel) if kernel.is_like(&kernels[0]) => {}
                Ok(kernel) => kernels.push(kernel),
                Err(error) => eprintln!("  left out: {error}"),
            }
        }
        // Kernels that were named on the command line are an experiment, so all of them are shown.
        let named = self.are_named(case);
        let (product, finalists);
        let mut contenders: Vec<_> = kernels.iter().map(|kernel| self.ours(kernel)).collect();
        let mut names: Vec<(&'static str, String)> = Vec::new();
        for kernel in &kernels {
            let ordered = named || case.kind == Kind::Raster;
            names.push(("another choice", if ordered { kernel.name_and_raster() } else { kernel.name() }));
        }
        if named && Fused::PEERED.contains(&fused) {
            product = self.product(case, fused)?;
            finalists = self.finalists(&product, operands)?;
            names.extend(finalists.iter().map(|algorithm| ("cuBLASLt", product.name(*algorithm))));
            contenders.extend(finalists.iter().map(|algorithm| self.theirs(&product, *algorithm)));
        }
        let distance = self.agree(case, &contenders, operands)?;
        let first = self.arena.run(&contenders, operands, Slices::Short, 3)?;
        let least = first.ranking().first().map_or(0.0, |best| first.median(*best));
        // A model of parts is held against all of them.
        let kept = |i: usize| i == 0 || named || case.kind == Kind::Parts || first.median(i) <= HOPELESS * least;
        let (kept, contenders): (Vec<usize>, Vec<_>) = contenders.into_iter().enumerate().filter(|(i, _)| kept(*i)).unzip();
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            let side = |i: usize, who| Side { contender: i, name: who, kernel: names[kept[i]].1.clone() };
            for (i, whose) in kept.iter().enumerate().skip(1) {
                let (ours, other) = (side(0, "postlude"), side(i, names[*whose].0));
                self.record(case, fused, slices, operands, times, &ours, &other, distance)?;
            }
            if kept.len() == 1 {
                eprintln!("  {}: everything else takes over {HOPELESS} times its time", names[0].1);
                self.record(case, fused, slices, operands, times, &side(0, "postlude"), &side(0, "another choice"), distance)?;
            }
            Ok(())
        })
    }

    /// Runs a contest for each length of slices, and hands the times on.
    pub fn each_slices(
        &self,
        case: &Case,
        contenders: &[Contender<'_>],
        operands: &mut Operands,
        mut then: impl FnMut(Slices, &Times, &Operands) -> Result<()>,
    ) -> Result<()> {
        for slices in self.slices(case) {
            let rounds = self.options.rounds.unwrap_or(slices.rounds());
            let times = self.arena.run(contenders, operands, slices, rounds)?;
            then(slices, &times, operands)?;
        }
        Ok(())
    }

    /// Checks that the contenders compute the same values of D as the first, and says how closely.
    pub fn agree(&self, case: &Case, contenders: &[Contender<'_>], operands: &mut Operands) -> Result<f64> {
        self.agree_on(case, contenders, |_| Output::D, operands)
    }

    /// The same of an output that each has.
    pub fn agree_on(
        &self,
        case: &Case,
        contenders: &[Contender<'_>],
        output: impl Fn(usize) -> Output,
        operands: &mut Operands,
    ) -> Result<f64> {
        let (distance, whose) = self.arena.distance(contenders, &output, operands)?;
        let limit = match (output(0), case.dtype) {
            // For bits it is the root of the share that differs: those where sums in different orders have different
            // signs.
            (Output::Mask, _) => 2e-2,
            // One rounding of a product more or less, and approximate functions.
            (_, DType::F32) if case.group == Group::Tf32 => 4e-3,
            (_, DType::F32) => 1e-4,
            (_, DType::BF16) => 2e-2,
            _ => 4e-3,
        };
        if distance <= limit {
            Ok(distance)
        } else {
            let of = contenders.len() - 1;
            Err(format!("wrong values: {:?} of peer {whose} of {of} differs from ours by {distance:.1e}", output(whose)).into())
        }
    }

    /// Prints a comparison, and appends it to the file.
    #[allow(clippy::too_many_arguments, reason = "each is a column or more")]
    pub fn record(
        &self,
        case: &Case,
        fused: Fused,
        slices: Slices,
        operands: &Operands,
        times: &Times,
        ours: &Side,
        peer: &Side,
        distance: f64,
    ) -> Result<()> {
        let Spread { median: ratio, low, high } =
            Spread::of_ratios(&times.seconds[peer.contender], &times.seconds[ours.contender]);
        let us = |side: &Side| significant(times.median(side.contender) * 1e6);
        let record = Record {
            group: if self.are_named(case) { "kernels" } else { case.group.word() }.into(),
            gpu: self.gpu.clone(),
            software: self.software.clone(),
            dtype: case.dtype.to_string(),
            layout: case.layout.to_string(),
            m: case.shape.m,
            n: case.shape.n,
            k: case.shape.k,
            epilogue: fused.title().into(),
            slices: slices.word().into(),
            rounds: times.rounds,
            launch: times.launch.clone(),
            sets: operands.sets.len(),
            bytes: case.bytes(fused),
            working_set: operands.working_set,
            kernel: ours.kernel.clone(),
            us: us(ours),
            peer: peer.name.into(),
            peer_kernel: peer.kernel.clone(),
            peer_us: us(peer),
            ratio: significant(ratio),
            low: significant(low),
            high: significant(high),
            distance: significant(distance),
        };
        eprintln!(
            "  {:<5} {:.3} [{:.3}, {:.3}]  {:.1} us ({})  {} {:.1} us ({})",
            record.slices, ratio, low, high, record.us, record.kernel, record.peer, record.peer_us, record.peer_kernel
        );
        let Some(path) = self.csv() else { return Ok(()) };
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            writeln!(file, "{}", Record::HEADER.join(","))?;
        }
        writeln!(file, "{}", record.to_line())?;
        Ok(())
    }
}

/// Five digits: no measurement has more.
fn significant(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}
