//! Repacking: a small kernel copies operands that TMA cannot read into aligned rows before the product.

use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::{Mainloop, TMA_UNIT, passes_registers, widened};
use crate::problem::{Blocks, Layout, Operation, Shape};
use serde::Serialize;

/// The operands that a launch copies into scratch memory of the plan before the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Repack {
    /// Format of the operands.
    pub dtype: DType,
    /// Whether `a` and `b`, as the kernel sees them, are copied.
    pub operands: [bool; 2],
    /// Which of them have K strided, and are copied so that K is contiguous.
    pub transposed: [bool; 2],
    /// The one that is widened to `dtype` on the way, if any is.
    pub widened: Option<Widened>,
}

/// An operand of eight or four bits whose copy has 16, scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Widened {
    /// Which one it is: 0 for `a`, 1 for `b`, as the kernel sees them.
    pub operand: usize,
    /// Its format in memory.
    pub from: DType,
    /// Whether its lines lie along K.
    pub k_contiguous: bool,
    /// Its blocks of scales.
    pub blocks: Option<Blocks>,
}

impl Repack {
    /// Threads of a block of the copying kernel.
    pub const THREADS: usize = 256;
    /// Units of 16 bytes that each thread writes. 1 to 4 units measured the same with 256 threads.
    pub const UNITS: usize = 4;
    /// Alignment of a copy's rows in bytes: a line of the cache.
    const LINE: usize = 128;

    /// Lines and elements of the piece that a block of the copying kernel transposes.
    pub const TILE: usize = 64;

    /// The operands of this alignment that must be copied for a mainloop; `None` if it reads both as they are.
    pub(in crate::plan) fn of(mainloop: Mainloop, operation: Operation, alignment: [usize; 2]) -> Option<Repack> {
        let transposed = Self::transposes(mainloop, operation, alignment);
        // Hopper's mainloop widens an A in registers.
        let copied = |operand: &usize| {
            let reads = mainloop.rules().is_staged() && widened::in_registers(operation) && alignment[*operand] >= TMA_UNIT;
            mainloop.rules().widens_copies() && !reads
        };
        let widened = operation.widened().filter(copied).map(|operand| Widened {
            operand,
            from: operation.dtypes()[operand],
            k_contiguous: operation.k_contiguous()[operand],
            blocks: operation.scales()[operand],
        });
        let unaligned = |i: usize| mainloop.rules().is_staged() && (alignment[i] < TMA_UNIT || transposed[i]);
        let operands = [0, 1].map(|i| unaligned(i) || widened.is_some_and(|widened| widened.operand == i));
        let dtype = operation.multiplied();
        let needed = operation.patches().is_none() && operands.contains(&true);
        needed.then_some(Repack { dtype, operands, transposed, widened })
    }

    /// The operands that a mainloop reads only with K contiguous, and that have K strided. Hopper's reads an A of tf32 through
    /// registers then, if it needs no copy for its alignment.
    pub(in crate::plan) fn transposes(mainloop: Mainloop, operation: Operation, alignment: [usize; 2]) -> [bool; 2] {
        match operation {
            Operation::Product { a, layout, .. }
                if mainloop.rules().is_staged() && a.lies_along_k() && operation.widened().is_none() =>
            {
                let through_registers = passes_registers(operation) && alignment[0] >= TMA_UNIT;
                [layout.a() == Order::ColumnMajor && !through_registers, layout.b() == Order::RowMajor]
            }
            _ => [false; 2],
        }
    }

    /// The operation on the copies.
    pub(in crate::plan) fn read(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Product { layout, .. } if self.widened.is_some() => Operation::product(self.dtype, layout),
            Operation::Product { a, b, layout, scales } => {
                let [first, second] = self.transposed;
                let first = if first { Order::RowMajor } else { layout.a() };
                let second = if second { Order::ColumnMajor } else { layout.b() };
                Operation::Product { a, b, layout: Layout::of(first, second), scales }
            }
            other => other,
        }
    }

    /// Elements from row to row of the copy of an operand whose rows have `inner` elements.
    pub const fn ld(&self, inner: usize) -> usize {
        inner.next_multiple_of(Self::LINE / self.dtype.size())
    }

    /// Bytes of scratch for a problem if the batch shares no operand. `shape` is as the kernel sees it.
    pub fn bytes(&self, operation: Operation, shape: Shape) -> usize {
        let Operation::Product { layout, .. } = operation else { return 0 };
        let rows = |order, outer: usize, inner: usize| {
            let (outer, inner) = if order == Order::RowMajor { (outer, inner) } else { (inner, outer) };
            (outer * self.ld(inner)).saturating_mul(self.dtype.size() * shape.batch)
        };
        let [a, b] = [rows(layout.a(), shape.m, shape.k), rows(layout.b(), shape.k, shape.n)];
        (self.operands[0] as usize * a).saturating_add(self.operands[1] as usize * b)
    }

    /// Whether copying pays: compares what the product gains over the mainloop that reads operands as they lie with
    /// what the copies of some operands take. That mainloop copies 8, 4 or 2 bytes at a time, and loses a number of seconds
    /// for each operation. With 2 bytes, which `cp.async` cannot copy, it also loses time for each K element. With tf32 it
    /// loses both at any alignment. Measured on an H200 (`docs/measurements/0040-unaligned-operands.md`,
    /// `docs/measurements/0085-tf32-through-wgmma.md`).
    pub(in crate::plan) fn pays(shape: Shape, size: usize, alignment: [usize; 2], copied: [bool; 2]) -> bool {
        let [m, n, k, batch] = [shape.m, shape.n, shape.k, shape.batch].map(|x| x as f64);
        let elements = |copied: bool, extent: f64| if copied { extent * k } else { 0.0 };
        let bytes = 2.0 * size as f64 * batch * (elements(copied[0], m) + elements(copied[1], n));
        let (each_operation, each_term) = match (size, alignment[0].min(alignment[1])) {
            (4, 16) => (3.0e-15, 11e-9),
            (4, 8) => (3.3e-15, 11e-9),
            (4, _) => (5.1e-15, 11e-9),
            (_, 8) => (1.07e-15, 0.0),
            (_, 4) => (3.0e-15, 0.0),
            _ => (6.0e-15, 25e-9),
        };
        2.0 * m * n * k * batch * each_operation + k * each_term > LAUNCH + bytes / BANDWIDTH
    }
}

/// The least seconds that one more kernel in the stream takes.
pub(in crate::plan) const LAUNCH: f64 = 3e-6;
/// Bytes that the copying kernel reads and writes in a second.
pub(in crate::plan) const BANDWIDTH: f64 = 3.9e12;
/// Bytes that memory delivers in a nanosecond at most: what `gemv` reaches on an H200.
pub(in crate::plan) const MEMORY: f64 = 4.35e3;
