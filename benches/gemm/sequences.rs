//! Contests against several kernels: the launches of a program without fusion.

use crate::Result;
use crate::bench::{Bench, Side};
use crate::case::{Case, Fused, boundary};
use crate::contest::Contender;
use crate::epilogues::{self, Kernel};
use crate::operands::{Begins, NO_MATRIX_BETWEEN, Operands, Output};
use crate::peer::{Epilogue, Product};
use crate::rows::{Function, Rows};
use std::ops::Range;

impl Bench<'_> {
    /// An epilogue that cuBLASLt does not have, against its product with bias and the remaining work: a hand-written
    /// pass over D in place, our pointwise operation from another matrix to D, and for the regions a product and a pass
    /// for each of them.
    pub fn sequence(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let fused = case.epilogues[0];
        let (m, edge, stream) = (case.shape.m, boundary(case.shape.m), self.stream());
        if !Rows::fits(case.shape.n) {
            return Err("the hand-written passes need whole vectors in a row".into());
        }
        let kernel = self.kernel(&epilogues::product(case, fused)?, case)?;
        let tail = Kernel::new(self.device, &epilogues::pointwise(case, fused)?, case.shape, Begins::Between)?;
        let rows = |function| Rows::new(self.device, case.dtype, function);
        let pass = rows(if fused == Fused::Regions { Function::Regions } else { Function::Heavy })?;
        let (first, second) = (rows(Function::Sigmoid)?, rows(Function::Tanh)?);
        let product = |rows: Range<usize>| Product::new(&self.library, case, rows, Epilogue::of(fused));
        let (whole, above, below) = (product(0..m)?, product(0..edge)?, product(edge..m)?);
        let [best, best_above, best_below] = [&whole, &above, &below].map(|product| self.rank(product, operands).map(|r| r[0]));
        let (best, best_above, best_below) = (best?, best_above?, best_below?);

        let mut contenders = vec![self.ours(&kernel)];
        let mut peers = vec![("product, hand-written pass", format!("{}; in place", whole.name(best)))];
        contenders.push(Contender::new(|operands: &mut Operands, turn| {
            whole.launch(stream, operands, turn, best)?;
            pass.launch(stream, operands, turn, 0..m, edge)
        }));
        peers.push(("product, our pointwise", format!("{}; {}", whole.name(best), tail.tile())));
        contenders.push(Contender::new(|operands: &mut Operands, turn| {
            // The product goes where the pointwise operation reads it.
            swap(operands, turn)?;
            let outcome = whole.launch(stream, operands, turn, best);
            swap(operands, turn)?;
            outcome?;
            tail.launch(stream, operands, turn)
        }));
        if fused == Fused::Regions {
            peers.push(("two products, two passes", format!("{}; {}; in place", above.name(best_above), below.name(best_below))));
            contenders.push(Contender::new(|operands: &mut Operands, turn| {
                above.launch(stream, operands, turn, best_above)?;
                first.launch(stream, operands, turn, 0..edge, 0)?;
                below.launch(stream, operands, turn, best_below)?;
                second.launch(stream, operands, turn, edge..m, 0)
            }));
        }
        let distance = self.agree(case, &contenders, operands)?;
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            let ours = Side { contender: 0, name: "postlude", kernel: kernel.tile().to_string() };
            for (i, (name, kernels)) in peers.iter().enumerate() {
                let peer = Side { contender: i + 1, name, kernel: kernels.clone() };
                self.record(case, fused, slices, operands, times, &ours, &peer, distance)?;
            }
            Ok(())
        })
    }

    /// A pointwise operation against a copy of as many bytes.
    pub fn copy(&self, case: &Case, operands: &mut Operands) -> Result<()> {
        let (fused, stream) = (case.epilogues[0], self.stream());
        let kernel = Kernel::new(self.device, &epilogues::pointwise(case, fused)?, case.shape, Begins::Between)?;
        let contenders = [self.ours(&kernel), Contender::new(|operands: &mut Operands, turn| operands.copy(stream, turn))];
        self.arena.distance(&contenders[..1], |_| Output::D, operands)?;
        self.each_slices(case, &contenders, operands, |slices, times, operands| {
            let ours = Side { contender: 0, name: "postlude", kernel: kernel.tile().to_string() };
            let copy = Side { contender: 1, name: "device copy", kernel: String::new() };
            self.record(case, fused, slices, operands, times, &ours, &copy, f64::NAN)
        })
    }
}

/// Exchanges D and the matrix between.
pub fn swap(operands: &mut Operands, turn: usize) -> Result<()> {
    let set = operands.set(turn);
    let between = set.between.as_mut().ok_or(NO_MATRIX_BETWEEN)?;
    std::mem::swap(&mut set.d, between);
    Ok(())
}
