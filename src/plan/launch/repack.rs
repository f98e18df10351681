//! Re-striding: operands that TMA cannot read are copied into rows that it can, by a small kernel before the product.

use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::Mainloop;
use crate::problem::{Layout, Operation, Shape};
use serde::Serialize;

/// Which operands a launch copies before the kernel runs, into scratch memory of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Repack {
    /// Format of the operands.
    pub dtype: DType,
    /// Whether `a` and `b`, as the kernel sees them, are copied.
    pub operands: [bool; 2],
    /// Which of them lie with K strided, and are copied so that it is contiguous.
    pub transposed: [bool; 2],
}

impl Repack {
    /// Threads of a block of the copying kernel.
    pub const THREADS: usize = 256;
    /// Units of 16 bytes that one of them writes. 1 to 4 measured the same with 256 threads.
    pub const UNITS: usize = 4;
    /// Bytes that a copy's rows begin at multiples of: a line of the cache.
    const LINE: usize = 128;

    /// Lines and elements of the piece that a block of the copying kernel transposes.
    pub const TILE: usize = 64;

    /// What a mainloop has copied of operands of that alignment; nothing if it reads them as they are.
    pub(in crate::plan) fn of(mainloop: Mainloop, operation: Operation, alignment: [usize; 2]) -> Option<Repack> {
        let transposed = Self::transposes(mainloop, operation);
        let operands = [0, 1].map(|i| alignment[i] < 16 || transposed[i]);
        let needed = mainloop == Mainloop::Sm90a && operation.convolution().is_none() && operands.contains(&true);
        needed.then_some(Repack { dtype: operation.dtype(), operands, transposed })
    }

    /// Which operands a mainloop reads only with K contiguous, and lie otherwise.
    pub(in crate::plan) fn transposes(mainloop: Mainloop, operation: Operation) -> [bool; 2] {
        match operation {
            Operation::Product { a, layout, .. } if mainloop == Mainloop::Sm90a && a.is_eight_bits() => {
                [layout.a() == Order::ColumnMajor, layout.b() == Order::RowMajor]
            }
            _ => [false; 2],
        }
    }

    /// The operation on the copies.
    pub(in crate::plan) fn read(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Product { a, b, .. } if self.transposed != [false; 2] => Operation::Product { a, b, layout: Layout::TN },
            other => other,
        }
    }

    /// Elements from row to row of the copy of an operand whose rows have `inner`.
    pub const fn ld(&self, inner: usize) -> usize {
        inner.next_multiple_of(Self::LINE / self.dtype.size())
    }

    /// Bytes of scratch that a problem takes if no operand is shared by the batch; `shape` as the kernel sees it.
    pub fn bytes(&self, operation: Operation, shape: Shape) -> usize {
        let Operation::Product { layout, .. } = operation else { return 0 };
        let rows = |order, outer: usize, inner: usize| {
            let (outer, inner) = if order == Order::RowMajor { (outer, inner) } else { (inner, outer) };
            (outer * self.ld(inner)).saturating_mul(self.dtype.size() * shape.batch)
        };
        let [a, b] = [rows(layout.a(), shape.m, shape.k), rows(layout.b(), shape.k, shape.n)];
        (self.operands[0] as usize * a).saturating_add(self.operands[1] as usize * b)
    }

    /// Whether copying pays: what the product gains over the mainloop that reads operands as they lie, against what the
    /// copies take. Copying 8, 4 or 2 bytes at a time, that mainloop loses so many seconds for each operation; and with 2
    /// bytes, which `cp.async` cannot, for each term besides. Measured on an H200 (`docs/measurements/0040-unaligned-operands.md`).
    pub(in crate::plan) fn pays(shape: Shape, size: usize, alignment: [usize; 2]) -> bool {
        let [m, n, k, batch] = [shape.m, shape.n, shape.k, shape.batch].map(|x| x as f64);
        let copied = |extent: f64, alignment: usize| if alignment < 16 { extent * k } else { 0.0 };
        let bytes = 2.0 * size as f64 * batch * (copied(m, alignment[0]) + copied(n, alignment[1]));
        let (each_operation, each_term) = match alignment[0].min(alignment[1]) {
            8 => (1.07e-15, 0.0),
            4 => (3.0e-15, 0.0),
            _ => (6.0e-15, 25e-9),
        };
        2.0 * m * n * k * batch * each_operation + k * each_term > LAUNCH + bytes / BANDWIDTH
    }
}

/// Seconds that one more kernel in the stream takes, at least.
pub(in crate::plan) const LAUNCH: f64 = 3e-6;
/// Bytes that the copying kernel reads and writes each second.
pub(in crate::plan) const BANDWIDTH: f64 = 3.9e12;
