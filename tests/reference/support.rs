//! Matrices in bytes, small graphs, and deterministic numbers.

use postlude::args::{HostBuffer, IntoTensor};
use postlude::dtype::ValueType;
use postlude::ir::{Graph, Node, NodeId, Order, Sink, SinkKind};
use postlude::reference::{Precision, oracle, run};
use postlude::{Args, DType, Epilogue, HostArgs, Layout, Operand, Operation, Shape, Tensor};

pub const POINTWISE: Operation = Operation::Pointwise { dtype: DType::F32, order: Order::RowMajor };

pub fn product(dtype: DType, layout: Layout) -> Operation {
    Operation::product(dtype, layout)
}

/// A batch of matrices with its own leading dimension and batch stride. Every byte outside of elements is a canary.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub dtype: DType,
    pub order: Order,
    pub extents: [usize; 3],
    pub ld: usize,
    pub batch_stride: usize,
    pub bytes: Vec<u8>,
}

pub const CANARY: u8 = 0xA5;

impl Matrix {
    /// `pad` elements between runs and between batch entries; the memory ends with the last element.
    pub fn new(dtype: DType, order: Order, [rows, columns, batch]: [usize; 3], pad: usize) -> Matrix {
        let (outer, inner) = if order == Order::RowMajor { (rows, columns) } else { (columns, rows) };
        let ld = inner.max(1) + pad;
        Matrix::strided(dtype, order, [rows, columns, batch], ld, outer * ld + pad)
    }

    pub fn strided(dtype: DType, order: Order, extents: [usize; 3], ld: usize, batch_stride: usize) -> Matrix {
        let mut matrix = Matrix { dtype, order, extents, ld, batch_stride, bytes: Vec::new() };
        if extents.iter().all(|e| *e > 0) {
            let last = matrix.index(extents[0] - 1, extents[1] - 1, extents[2] - 1);
            matrix.bytes = vec![CANARY; (last + 1) * dtype.size()];
        }
        matrix
    }

    pub fn index(&self, row: usize, column: usize, batch: usize) -> usize {
        let (outer, inner) = if self.order == Order::RowMajor { (row, column) } else { (column, row) };
        outer * self.ld + inner + batch * self.batch_stride
    }

    pub fn at(&self, row: usize, column: usize, batch: usize) -> f64 {
        self.dtype.read(&self.bytes, self.index(row, column, batch))
    }

    pub fn set(&mut self, row: usize, column: usize, batch: usize, x: f64) {
        let index = self.index(row, column, batch);
        self.dtype.write(&mut self.bytes, index, x);
    }

    /// Sets every element.
    #[must_use]
    pub fn filled(mut self, mut value: impl FnMut(usize, usize, usize) -> f64) -> Matrix {
        let [rows, columns, batch] = self.extents;
        for l in 0..batch {
            for i in 0..rows {
                for j in 0..columns {
                    self.set(i, j, l, value(i, j, l));
                }
            }
        }
        self
    }

    pub fn input(&self) -> Tensor<HostBuffer<'_>> {
        Tensor::of_bytes(self.dtype, &self.bytes).ld(self.ld).batch_stride(self.batch_stride)
    }

    pub fn output(&mut self) -> Tensor<HostBuffer<'_>> {
        let (ld, batch_stride) = (self.ld, self.batch_stride);
        Tensor::of_bytes_mut(self.dtype, &mut self.bytes).ld(ld).batch_stride(batch_stride)
    }
}

/// Integers from -4 to 4, so that sums of a few thousand products are exact in every format.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn small(&mut self) -> f64 {
        (self.bits() % 9) as f64 - 4.0
    }

    /// In [low, high), and an `f32`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        f64::from((low + (high - low) * (self.bits() as f64 / 2f64.powi(31))) as f32)
    }
}

/// A row of numbers of one format.
pub fn row(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * dtype.size()];
    values.iter().enumerate().for_each(|(i, x)| dtype.write(&mut bytes, i, *x));
    bytes
}

/// A graph over named rows, which every column is an independent point of.
pub struct Points {
    pub graph: Graph,
    inputs: Vec<(String, DType, Vec<u8>)>,
    count: usize,
}

impl Points {
    pub fn new(count: usize) -> Points {
        Points { graph: Graph::new(), inputs: Vec::new(), count }
    }

    pub fn load(&mut self, name: &str, value: ValueType, values: &[f64]) -> NodeId {
        let dtype = value.storage();
        self.inputs.push((name.into(), dtype, row(dtype, values)));
        self.graph.push(Node::load(name, dtype), None)
    }

    pub fn store(&mut self, name: &str, value: NodeId, dtype: DType) {
        let kind = SinkKind::Store(Operand::from(dtype));
        self.graph.sink(Sink::new(name, value, kind), None);
    }

    fn args<'a>(inputs: &'a [(String, DType, Vec<u8>)], a: &'a [f32]) -> HostArgs<'a> {
        inputs
            .iter()
            .fold(Args::new().input("a", a), |args, (name, dtype, bytes)| args.input(name, Tensor::of_bytes(*dtype, bytes)))
    }

    /// The stored values of each sink in turn.
    pub fn run(&self, precision: Precision) -> Vec<Vec<f64>> {
        let epilogue = Epilogue::from_graph(self.graph.clone()).unwrap_or_else(|e| panic!("{e}"));
        let a = vec![0.0f32; self.count];
        let operands = self.graph.sinks().iter().map(|s| (s.name.clone(), s.kind.operand().dtype));
        let mut outputs: Vec<_> = operands.map(|(name, d)| (name, d, vec![CANARY; self.count * d.size()])).collect();
        let args = outputs.iter_mut().fold(Points::args(&self.inputs, &a), |args, (name, dtype, bytes)| {
            args.output(name, Tensor::of_bytes_mut(*dtype, bytes))
        });
        run(POINTWISE, epilogue.checked(), Shape::new(1, self.count, 0), args, precision).unwrap();
        outputs.iter().map(|(_, dtype, bytes)| (0..self.count).map(|i| dtype.read(bytes, i)).collect()).collect()
    }

    /// The values of each sink in turn, before they are rounded.
    pub fn exact(&self) -> Vec<Vec<f64>> {
        let epilogue = Epilogue::from_graph(self.graph.clone()).unwrap_or_else(|e| panic!("{e}"));
        let a = vec![0.0f32; self.count];
        let sinks = self.graph.sinks();
        let mut room: Vec<Vec<u8>> = sinks.iter().map(|s| vec![CANARY; self.count * s.kind.operand().dtype.size()]).collect();
        let args = sinks.iter().zip(&mut room).fold(Points::args(&self.inputs, &a), |args, (sink, bytes)| {
            args.output(&sink.name, Tensor::of_bytes_mut(sink.kind.operand().dtype, bytes))
        });
        let found = oracle(POINTWISE, epilogue.checked(), Shape::new(1, self.count, 0), &args).unwrap();
        drop(args);
        assert!(room.iter().flatten().all(|b| *b == CANARY), "the oracle wrote an output");
        found.outputs.into_iter().map(|o| o.values).collect()
    }
}

/// Equal in every bit, or both NaN.
pub fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
