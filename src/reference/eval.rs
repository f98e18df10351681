//! The interpreter: the values of a graph, a row of a tile at a time.
//!
//! Every live node becomes one step that fills one vector. The vector is as long as the tile is wide if the node varies
//! along N, and has one element otherwise. Steps that do not vary along M run once for a tile, and the others once for
//! each of its rows.

use super::Precision;
use super::memory::{Arguments, OperandView, product_operand};
use super::piece::EvalTile;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::Order;
use crate::ir::axes::{M, N};
use crate::ir::{Coordinate, CustomOp, Node, NodeId, Op};
use crate::problem::{Operation, Pooling};
use std::collections::HashMap;
use std::sync::Arc;

/// The places of the results of reductions inside the graph.
pub(super) type Results = HashMap<NodeId, OperandView>;

/// A graph as a list of steps.
pub(super) struct EvalProgram {
    steps: Vec<EvalInstr>,
    values: usize,
}

/// Computes one value.
struct EvalInstr {
    value: usize,
    kind: Kind,
    /// Whether it varies along the tile's columns.
    wide: bool,
    /// Whether it varies along the tile's rows.
    tall: bool,
    /// Whether the value is rounded to `f32`.
    round: bool,
}

enum Kind {
    Fixed(f64),
    Accumulator,
    Coordinate(Coordinate),
    Load(OperandView),
    /// Windows of images.
    Pool(OperandView, Pooling),
    /// From a table with this many elements.
    Gather(OperandView, usize, usize),
    Primitive(fn(&[f64]) -> f64, Vec<usize>),
    Integer(fn(&[i32]) -> i32, Vec<usize>),
    Custom(Arc<CustomOp>, Vec<usize>),
}

/// One value for each node, over the columns of a tile. Integers and truth values are held exactly.
pub(super) struct Frame(Vec<Vec<f64>>);

/// The point of an evaluation: a tile, and a row of it for values that vary along M.
struct EvalPoint<'p, 'a> {
    arguments: &'p Arguments<'a>,
    tile: &'p EvalTile,
    row: usize,
    accumulators: &'p dyn Fn(&mut [f64]),
}

impl EvalProgram {
    /// The program that computes some values of a graph without calls, from the results of the finished reductions.
    pub fn new(
        operation: Operation,
        epilogue: &Checked,
        arguments: &Arguments,
        precision: Precision,
        values: impl IntoIterator<Item = NodeId>,
        done: &Results,
    ) -> EvalProgram {
        let graph = epilogue.graph();
        let live = graph.needed_beside(values, |id| done.contains_key(&id));
        // Elements of operands are summed elsewhere. They have no value at an element of the output.
        let valued = graph.nodes().filter(|(id, node)| live[id.index()] && !matches!(node, Node::Element(..)));
        let steps = valued.map(|(id, node)| {
            let of = epilogue.type_of(id);
            let kind = match node {
                Node::Accumulator(_) => match operation {
                    Operation::Pool { pooling, .. } => {
                        Kind::Pool(arguments.tensor("a", product_operand(operation.dtype(), Order::RowMajor)), pooling)
                    }
                    Operation::Pointwise { order, .. } => {
                        Kind::Load(arguments.tensor("a", product_operand(operation.dtype(), order)))
                    }
                    _ => Kind::Accumulator,
                },
                Node::Constant(c) => Kind::Fixed(c.value()),
                Node::Coordinate(c) => Kind::Coordinate(*c),
                Node::Scalar { name, .. } => Kind::Fixed(arguments.scalar(name)),
                Node::Load { name, operand, .. } => match arguments.given_for(name) {
                    Some(default) => Kind::Fixed(default.value()),
                    None => Kind::Load(arguments.tensor(name, *operand)),
                },
                Node::Gather { name, args, .. } => {
                    let (table, length) = arguments.table(name);
                    Kind::Gather(table, length, args[0].index())
                }
                Node::Apply { op, args } => apply(*op, args, epilogue),
                Node::Custom { op, args } => Kind::Custom(op.clone(), places(args)),
                Node::Reduce { .. } => Kind::Load(done[&id]),
                Node::Call { function, .. } => unreachable!("`{}` has been inlined", function.name),
                Node::Element(..) => unreachable!("elements of operands have been left out"),
            };
            let computed = matches!(kind, Kind::Primitive(..) | Kind::Integer(..) | Kind::Custom(..) | Kind::Pool(..));
            let round = computed && of.value == ValueType::F32 && precision == Precision::F32;
            EvalInstr { value: id.index(), kind, wide: of.axes.contains(N), tall: of.axes.contains(M), round }
        });
        EvalProgram { steps: steps.collect(), values: graph.len() }
    }

    /// The number of values that an element takes.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the accumulators of a product are needed.
    pub fn multiplies(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.kind, Kind::Accumulator))
    }

    pub fn frame(&self) -> Frame {
        Frame(vec![Vec::new(); self.values])
    }

    /// Computes the values that do not vary along the rows of a tile.
    pub fn begin(&self, frame: &mut Frame, arguments: &Arguments, tile: &EvalTile) {
        for step in &self.steps {
            frame.0[step.value].resize(if step.wide { tile.columns.len() } else { 1 }, 0.0);
        }
        let place = EvalPoint { arguments, tile, row: tile.rows.start, accumulators: &|_| {} };
        self.steps.iter().filter(|s| !s.tall).for_each(|s| s.run(&mut frame.0, &place));
    }

    /// Computes all other values for one row.
    pub fn row(&self, frame: &mut Frame, arguments: &Arguments, tile: &EvalTile, row: usize, accumulators: &dyn Fn(&mut [f64])) {
        let place = EvalPoint { arguments, tile, row, accumulators };
        self.steps.iter().filter(|s| s.tall).for_each(|s| s.run(&mut frame.0, &place));
    }
}

impl Frame {
    /// A node's value: one for each column of the tile, or one for all columns.
    pub fn value(&self, id: NodeId) -> &[f64] {
        &self.0[id.index()]
    }
}

fn places(args: &[NodeId]) -> Vec<usize> {
    args.iter().map(|a| a.index()).collect()
}

fn apply(op: Op, args: &[NodeId], epilogue: &Checked) -> Kind {
    let types: Vec<ValueType> = args.iter().map(|a| epilogue.type_of(*a).value).collect();
    match op.row().on_integers(&types) {
        Some(eval) => Kind::Integer(eval, places(args)),
        None => Kind::Primitive(op.row().eval, places(args)),
    }
}

impl EvalInstr {
    fn run(&self, values: &mut [Vec<f64>], place: &EvalPoint<'_, '_>) {
        let (before, rest) = values.split_at_mut(self.value);
        let out = &mut rest[0][..];
        let &EvalPoint { arguments, tile, row, accumulators } = place;
        match &self.kind {
            Kind::Fixed(x) => out.fill(*x),
            Kind::Accumulator => accumulators(out),
            Kind::Coordinate(coordinate) => {
                let (axis, first) = match coordinate {
                    Coordinate::Row => (0, row),
                    Coordinate::Column => (1, tile.columns.start),
                    Coordinate::Batch => (2, tile.batch),
                    Coordinate::Sequence => (2, tile.sequence.unwrap_or_default()),
                };
                // Scores are counted from 0.
                let origin = if tile.sequence.is_some() { 0 } else { arguments.origin[axis] };
                let first = f64::from(origin) + first as f64;
                out.iter_mut().enumerate().for_each(|(i, x)| *x = first + i as f64);
            }
            Kind::Load(tensor) => {
                let start = tensor.strides.index(row, tile.columns.start, tile.batch)
                    + tile.sequence.unwrap_or_default() * tensor.strides.sequence;
                arguments.read(tensor, start, tensor.strides.column, out);
            }
            Kind::Pool(images, pooling) => arguments.with_bytes(images, |bytes| {
                let pixel = |column, pixel| images.dtype.read(bytes, images.strides.index(pixel, column, tile.batch));
                let round = |x: f64| if self.round { f64::from(x as f32) } else { x };
                for (x, column) in out.iter_mut().zip(tile.columns.clone()) {
                    *x = pooling.pooled(row, |at| pixel(column, at), round);
                }
            }),
            Kind::Gather(table, length, index) => arguments.with_bytes(table, |bytes| {
                let element = |index: f64| usize::try_from(index as i32).ok().filter(|at| at < length);
                let read = |index: &[f64]| element(index[0]).map_or(0.0, |at| table.dtype.read(bytes, at));
                self.map(out, before, &[*index], |x| x, read);
            }),
            Kind::Primitive(eval, args) => self.map(out, before, args, |x| x, eval),
            Kind::Integer(eval, args) => self.map(out, before, args, |x| x as i32, |x| f64::from(eval(x))),
            Kind::Custom(op, args) => self.map(out, before, args, |x| x, |x| op.eval(x)),
        }
    }

    /// Fills `out` with the values of `eval` over the operands. An operand with one element applies to all columns.
    fn map<T: Copy>(
        &self,
        out: &mut [f64],
        values: &[Vec<f64>],
        args: &[usize],
        of: impl Fn(f64) -> T,
        eval: impl Fn(&[T]) -> f64,
    ) {
        let eval = |x: &[T]| if self.round { f64::from(eval(x) as f32) } else { eval(x) };
        let at = |a: usize, i: usize| of(values[a][i.min(values[a].len() - 1)]);
        let out = out.iter_mut().enumerate();
        match *args {
            [a] => out.for_each(|(i, x)| *x = eval(&[at(a, i)])),
            [a, b] => out.for_each(|(i, x)| *x = eval(&[at(a, i), at(b, i)])),
            [a, b, c] => out.for_each(|(i, x)| *x = eval(&[at(a, i), at(b, i), at(c, i)])),
            _ => out.for_each(|(i, x)| *x = eval(&args.iter().map(|a| at(*a, i)).collect::<Vec<_>>())),
        }
    }
}
