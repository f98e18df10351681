//! Memory: where the elements of an argument lie, and how several threads read and write them.

use crate::args::{Args, Bound, BoundTensor, Given, HostArgs, HostBuffer, Tensor as Claim};
use crate::check::Checked;
use crate::dtype::DType;
use crate::ir::axes::{Axes, L, M, N, S};
use crate::ir::{Constant, Operand, Order, Reduction, Sink, SinkKind};
use std::sync::{Arc, PoisonError, RwLock};

/// Distances in elements from one row, column and batch entry to the next; 0 along an axis that an operand does not
/// vary along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strides {
    pub row: usize,
    pub column: usize,
    pub batch: usize,
    /// From one sequence of an attention to the next, in an operand of its function of scores.
    pub sequence: usize,
}

impl Strides {
    fn of(operand: Operand, bound: &BoundTensor, heads: usize) -> Strides {
        let matrix = operand.axes.is_matrix();
        let outer = if matrix { bound.leading_dimension } else { 1 };
        let (row, column) = match operand.order {
            Order::ColumnMajor if matrix => (1, outer),
            _ => (outer, 1),
        };
        let along = |axis, stride| if operand.axes.contains(axis) { stride } else { 0 };
        let entries = if operand.axes.contains(L) { heads } else { 1 };
        Strides {
            row: along(M, row),
            column: along(N, column),
            batch: along(L, bound.batch_stride),
            sequence: along(S, entries * bound.batch_stride),
        }
    }

    /// The element's index.
    pub fn index(self, row: usize, column: usize, batch: usize) -> usize {
        row * self.row + column * self.column + batch * self.batch
    }
}

/// How a value becomes bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    /// Rounded to a storage format.
    Stored(DType),
    /// Unrounded, as a native `f64`.
    Exact,
}

impl Format {
    /// Bytes of consecutive elements, the first of which begins a byte.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Format::Stored(dtype) => dtype.bytes(elements),
            Format::Exact => elements * size_of::<f64>(),
        }
    }

    /// The length to which a run is rounded up if another follows, in elements, so that no two runs share a byte.
    pub fn run(self, elements: usize) -> usize {
        match self {
            Format::Stored(dtype) => dtype.elements(dtype.bytes(elements)),
            Format::Exact => elements,
        }
    }

    pub fn read(self, bytes: &[u8], index: usize) -> f64 {
        match self {
            Format::Stored(dtype) => dtype.read(bytes, index),
            Format::Exact => bytemuck::pod_read_unaligned(&bytes[index * 8..][..8]),
        }
    }

    pub fn write(self, bytes: &mut [u8], index: usize, x: f64) {
        match self {
            Format::Stored(dtype) => dtype.write(bytes, index, x),
            Format::Exact => bytes[index * 8..][..8].copy_from_slice(&x.to_ne_bytes()),
        }
    }
}

/// An operand in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperandView {
    pub memory: usize,
    pub dtype: DType,
    pub strides: Strides,
}

/// Bytes that the threads share: read by all, or written by one thread at a time. Written memory is locked while a tile
/// is copied, and only one tile reads and writes each element.
enum Memory<'a> {
    Read(&'a [u8]),
    Written(RwLock<&'a mut [u8]>),
}

/// The arguments of one run.
pub(super) struct Arguments<'a> {
    bound: Vec<(Arc<str>, Bound)>,
    memory: Vec<Memory<'a>>,
    pub origin: [i32; 3],
    /// Batch entries of the problem.
    entries: usize,
}

impl<'a> Arguments<'a> {
    /// Takes ownership of the buffers. Those that the epilogue writes are writable.
    pub fn take(bound: Vec<(Arc<str>, Bound)>, args: HostArgs<'a>, epilogue: &Checked, entries: usize) -> Arguments<'a> {
        let written = |name: &str| epilogue.argument(name).is_some_and(|(_, a)| a.role.is_written());
        let memory = args.given.into_iter().map(|(name, given)| match given {
            Given::Tensor { tensor: Claim { buffer: HostBuffer::Write(bytes), .. }, .. } if written(&name) => {
                Memory::Written(RwLock::new(bytes))
            }
            Given::Tensor { tensor: Claim { buffer: HostBuffer::Write(bytes), .. }, .. } => Memory::Read(bytes),
            Given::Tensor { tensor: Claim { buffer: HostBuffer::Read(bytes), .. }, .. } => Memory::Read(bytes),
            Given::Scalar(_) => Memory::Read(&[]),
        });
        Arguments { memory: memory.collect(), bound, origin: args.origin, entries }
    }

    /// Only reads the buffers.
    pub fn view(bound: Vec<(Arc<str>, Bound)>, args: &'a HostArgs<'_>, entries: usize) -> Arguments<'a> {
        let memory = args.given.iter().map(|(_, given)| match given {
            Given::Tensor { tensor, .. } => Memory::Read(tensor.buffer.bytes()),
            Given::Scalar(_) => Memory::Read(&[]),
        });
        Arguments { memory: memory.collect(), bound, origin: args.origin, entries }
    }

    /// Adds writable memory and returns its index.
    pub fn push(&mut self, bytes: &'a mut [u8]) -> usize {
        self.memory.push(Memory::Written(RwLock::new(bytes)));
        self.memory.len() - 1
    }

    fn bound(&self, name: &str) -> &Bound {
        let found = self.bound.iter().find(|(n, _)| **n == *name);
        &found.expect("every argument of a checked epilogue has a slot, and binding filled it").1
    }

    /// A scalar's value.
    pub fn scalar(&self, name: &str) -> f64 {
        match self.bound(name) {
            Bound::Scalar(constant) => constant.value(),
            Bound::Tensor(_) => unreachable!("binding refuses memory where a scalar is needed"),
        }
    }

    /// The value of every element of an operand that was left out.
    pub fn given_for(&self, name: &str) -> Option<Constant> {
        match self.bound(name) {
            Bound::Scalar(default) => Some(*default),
            Bound::Tensor(_) => None,
        }
    }

    /// An operand's memory and strides.
    pub fn tensor(&self, name: &str, operand: Operand) -> OperandView {
        match self.bound(name) {
            Bound::Tensor(bound) => {
                let strides = Strides::of(operand, bound, self.entries);
                OperandView { memory: bound.given, dtype: bound.dtype, strides }
            }
            Bound::Scalar(_) => unreachable!("binding refuses a scalar where memory is needed, and no output is left out"),
        }
    }

    /// A table's memory, and its number of elements.
    pub fn table(&self, name: &str) -> (OperandView, usize) {
        match self.bound(name) {
            Bound::Tensor(bound) => {
                let strides = Strides { row: 0, column: 0, batch: 0, sequence: 0 };
                (OperandView { memory: bound.given, dtype: bound.dtype, strides }, bound.elements)
            }
            Bound::Scalar(_) => unreachable!("binding refuses a scalar where a table is needed"),
        }
    }

    /// A table's elements.
    pub fn counts(&self, name: &str) -> Vec<f64> {
        let (table, length) = self.table(name);
        let mut values = vec![0.0; length];
        self.read(&table, 0, 1, &mut values);
        values
    }

    /// The memory of a sink.
    pub fn target(&self, sink: &Sink) -> OperandView {
        match sink.kind {
            SinkKind::Bincount(_) => self.table(&sink.name).0,
            SinkKind::Store(operand) | SinkKind::Reduce(Reduction { operand, .. }) => self.tensor(&sink.name, operand),
        }
    }

    /// Reads elements from `start` on, `step` apart.
    pub fn read(&self, tensor: &OperandView, start: usize, step: usize, out: &mut [f64]) {
        self.with_bytes(tensor, |bytes| {
            out.iter_mut().enumerate().for_each(|(i, x)| *x = tensor.dtype.read(bytes, start + i * step));
        });
    }

    /// Lends a tensor's memory to `read`.
    pub fn with_bytes(&self, tensor: &OperandView, read: impl FnOnce(&[u8])) {
        match &self.memory[tensor.memory] {
            Memory::Read(bytes) => read(bytes),
            Memory::Written(lock) => read(&lock.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Adds 1 to elements of written memory, each time its index occurs.
    pub fn count(&self, memory: usize, format: Format, indices: &[usize]) {
        let Memory::Written(lock) = &self.memory[memory] else { unreachable!("binding refuses counts that cannot be written") };
        let mut bytes = lock.write().unwrap_or_else(PoisonError::into_inner);
        for index in indices {
            let before = format.read(&bytes, *index);
            format.write(&mut bytes, *index, before + 1.0);
        }
    }

    /// Writes bytes at given offsets.
    pub fn write<'b>(&self, memory: usize, runs: impl Iterator<Item = (usize, &'b [u8])>) {
        let Memory::Written(lock) = &self.memory[memory] else {
            unreachable!("binding refuses an output that cannot be written")
        };
        let mut bytes = lock.write().unwrap_or_else(PoisonError::into_inner);
        for (offset, run) in runs {
            bytes[offset..][..run.len()].copy_from_slice(run);
        }
    }
}

/// The same arguments, borrowed for reading: binding examines them while the outputs are held elsewhere.
pub(super) fn claims<'a>(args: &'a HostArgs<'_>) -> HostArgs<'a> {
    let given = args.given.iter().map(|(name, given)| {
        let given = match given {
            Given::Scalar(constant) => Given::Scalar(*constant),
            Given::Tensor { tensor, writable } => {
                Given::Tensor { tensor: tensor.over(HostBuffer::Read(tensor.buffer.bytes())), writable: *writable }
            }
        };
        (name.clone(), given)
    });
    Args { given: given.collect(), origin: args.origin }
}

/// An operand of the operation, described like an operand of an epilogue.
pub(super) fn product_operand(dtype: DType, order: Order) -> Operand {
    Operand { dtype, axes: Axes::MNL, order }
}
