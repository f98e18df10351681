//! Contests of training steps: forward products with saved values, and backward products with a bias gradient.

use crate::Result;
use crate::bench::{Bench, FINALISTS, Side};
use crate::case::{Case, Fused};
use crate::contest::Contender;
use crate::epilogues::{self, Kernel};
use crate::operands::{Begins, Operands, Output};
use crate::peer::{Epilogue, Product};
use crate::sequences::swap;
use postlude::prelude::*;

impl Bench<'_> {
    /// Four peers: cuBLASLt's epilogue of the same name, whose gradient has D's format, since it rejects `f32` beside
    /// 16 bits; cuBLASLt's product, a pass and a sum one after another; ours with atomic sums; and our product without
    /// the additions of training. Our gradient is `f32`. If the product sums B itself, the peers in several launches
    /// are our product and our sum of B.
    pub fn training(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let (fused, stream) = (case.epilogues[0], self.stream());
        let kernel = self.kernel(&epilogues::product(case, fused)?, case)?;
        let plain = self.kernel(&epilogues::product(case, fused.without_training())?, case)?;
        let pass = Kernel::new(self.device, &epilogues::pointwise(case, fused)?, case.shape, Begins::Between)?;
        // Only what has sums has these.
        let (mut sums, mut atomic) = (None, None);
        if fused.has_sums() {
            let (gemm, shape, begins) = epilogues::sums(case, fused)?;
            sums = Some(Kernel::new(self.device, &gemm, shape, begins)?);
            atomic = Some(self.kernel(&epilogues::atomic(case, fused)?, case)?);
        }

        let whole = Product::of_training(&self.library, case.layout, Epilogue::of(fused), stream, operands)?;
        let (mut finalists, mut others) = (Vec::new(), Vec::new());
        for algorithm in self.rank(&whole, operands)? {
            if finalists.len() == FINALISTS {
                break;
            }
            // An algorithm that computes something else is not a peer. With so many rows there are some.
            let theirs = Contender::new(|operands: &mut Operands, turn| whole.launch(stream, operands, turn, algorithm));
            match self.agree_on(case, &[self.ours(&kernel), theirs], |i| besides(fused, i == 1), operands) {
                Ok(_) => finalists.push(algorithm),
                Err(error) => {
                    eprintln!("  left out: cuBLASLt's {}: {error}", whole.name(algorithm));
                    others.push(algorithm);
                }
            }
        }
        // Sums of 16 bits may leave their range in all of them. How long they take is known all the same; the distance
        // is infinite.
        let wrong = finalists.is_empty();
        if wrong && !fused.has_sums() {
            return Err("none of cuBLASLt's algorithms agrees with ours".into());
        } else if wrong {
            eprintln!("  none of cuBLASLt's algorithms agrees with ours: the fastest are timed as they are");
            finalists = others.into_iter().take(FINALISTS).collect();
        }
        let first = if matches!(fused, Fused::ReluMask | Fused::GeluInput) { Epilogue::Bias } else { Epilogue::None };
        let product = Product::new(&self.library, case, 0..case.shape.m, first)?;
        let best = self.rank(&product, operands)?[0];

        let mut contenders = vec![self.ours(&kernel)];
        let mut peers = Vec::new();
        for &algorithm in &finalists {
            let whole = &whole;
            peers.push((theirs(case, fused), whole.name(algorithm)));
            contenders.push(Contender::new(move |operands: &mut Operands, turn| whole.launch(stream, operands, turn, algorithm)));
        }
        let (steps, kernels) = match fused {
            Fused::BiasSum => ("product, sums", plain.tile().to_string()),
            _ if fused.has_sums() => ("product, pass, sums", format!("{}; {}", product.name(best), pass.tile())),
            _ => ("product, pass", format!("{}; {}", product.name(best), pass.tile())),
        };
        peers.push((steps, kernels));
        contenders.push(Contender::new(|operands: &mut Operands, turn| {
            if fused == Fused::BiasSum {
                plain.launch(stream, operands, turn)?;
                return sums.as_ref().map_or(Ok(()), |sums| sums.launch(stream, operands, turn));
            }
            // The product goes where the pass reads it.
            swap(operands, turn)?;
            let outcome = product.launch(stream, operands, turn, best);
            swap(operands, turn)?;
            outcome?;
            pass.launch(stream, operands, turn)?;
            sums.as_ref().map_or(Ok(()), |sums| sums.launch(stream, operands, turn))
        }));
        if let Some(atomic) = &atomic {
            peers.push(("atomic", atomic.tile().to_string()));
            contenders.push(self.ours(atomic));
        }
        let mut distance = self.agree(case, &contenders, operands)?;
        if wrong {
            self.agree_on(
                case,
                &[self.ours(&kernel), self.ours(atomic.as_ref().unwrap_or(&kernel))],
                |_| besides(fused, false),
                operands,
            )?;
            distance = f64::INFINITY;
        } else {
            let output = |contender: usize| match fused {
                // The product in between has left it.
                Fused::GeluInput if contender == finalists.len() + 1 => Output::Between,
                _ => besides(fused, (1..=finalists.len()).contains(&contender)),
            };
            distance = distance.max(self.agree_on(case, &contenders, output, operands)?);
        }
        peers.push(("without training", plain.tile().to_string()));
        contenders.push(self.ours(&plain));
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            let ours = Side { contender: 0, name: "postlude", kernel: kernel.tile().to_string() };
            // The best of cuBLASLt's.
            let best = times.ranking().into_iter().find(|i| (1..=finalists.len()).contains(i)).ok_or("no peer")?;
            for i in std::iter::once(best).chain(finalists.len() + 1..=peers.len()) {
                let (name, kernel) = &peers[i - 1];
                let peer = Side { contender: i, name, kernel: kernel.clone() };
                let distance = if *name == "without training" { f64::NAN } else { distance };
                self.record(case, fused, slices, operands, times, &ours, &peer, distance)?;
            }
            Ok(())
        })
    }
}

/// The outputs of a launch beside D, cuBLASLt's or ours.
fn besides(fused: Fused, theirs: bool) -> Output {
    match fused {
        Fused::ReluMask => Output::Mask,
        Fused::GeluInput => Output::Stored,
        _ if theirs => Output::RoundedSums,
        _ => Output::Sums,
    }
}

/// cuBLASLt's name in a table: with the format of its sums, if that differs from ours.
fn theirs(case: &Case, fused: Fused) -> &'static str {
    match case.dtype {
        F16 if fused.has_sums() => "cuBLASLt, gradient f16",
        BF16 if fused.has_sums() => "cuBLASLt, gradient bf16",
        _ => "cuBLASLt",
    }
}
