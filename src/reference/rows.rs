//! Reductions inside the graph. Each is a pass over the output before the steps that need its result.

use super::eval::Results;
use super::memory::{Arguments, Format, OperandView, Strides};
use super::piece::Source;
use super::reduce::Reducer;
use super::tile::{Job, Targets, Task};
use super::{Precision, Shape};
use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Monoid, Node, NodeId};

/// A reduction inside the graph, and the memory for its results.
struct Room {
    id: NodeId,
    /// The number of reductions behind it, including itself.
    stage: usize,
    dtype: DType,
    /// The axes of the output that it does not go over. It has a result for each element along them.
    axes: Axes,
    band: Option<(Axes, usize)>,
    bytes: Vec<u8>,
}

/// The axes along which a result varies, and the bands along one of them.
type Varies = (Axes, Option<(Axes, usize)>);

/// All reductions that some sink needs.
pub(super) struct Rooms(Vec<Room>);

impl Rooms {
    pub fn of(Task { epilogue, shape, precision, .. }: Task<'_>) -> Rooms {
        let graph = epilogue.graph();
        let (stages, live) = (graph.stages(), graph.live());
        let rooms = graph.nodes().filter(|(id, _)| live[id.index()]).filter_map(|(id, node)| {
            let Node::Reduce { over, .. } = node else { return None };
            let dtype = match (epilogue.type_of(id).value, precision) {
                (ValueType::F32, Precision::F64) => DType::F64,
                (value, _) => value.storage(),
            };
            let (axes, band) = (over.kept(Axes::MNL), over.band);
            let bytes = vec![0; dtype.bytes(extents(axes, shape).into_iter().product())];
            Some(Room { id, stage: stages[id.index()], dtype, axes, band, bytes })
        });
        Rooms(rooms.collect())
    }

    /// Computes all of them, in an order in which operands come first.
    pub fn reduce<'a>(&'a mut self, task: Task<'_>, arguments: &mut Arguments<'a>) -> Results {
        let places: Vec<(NodeId, usize, Varies, OperandView)> = self
            .0
            .iter_mut()
            .map(|Room { id, stage, dtype, axes, band, bytes }| {
                let tensor = OperandView { memory: arguments.push(bytes), dtype: *dtype, strides: strides(*axes, task.shape) };
                (*id, *stage, (*axes, *band), tensor)
            })
            .collect();
        let last = places.iter().map(|(_, stage, ..)| *stage).max().unwrap_or_default();
        let mut done = Results::new();
        for stage in 1..=last {
            let now = || places.iter().filter(|(_, of, ..)| *of == stage);
            let reducers = now().map(|(id, _, varies, tensor)| reducer(task.epilogue, *id, *varies, tensor)).collect();
            Job::new(task, arguments, Targets { reducers, ..Targets::default() }, &done).run();
            done.extend(now().map(|(id, _, _, tensor)| (*id, *tensor)));
        }
        done
    }
}

fn extents(axes: Axes, shape: Shape) -> [usize; 3] {
    [(M, shape.m), (N, shape.n), (L, shape.batch)].map(|(axis, extent)| if axes.contains(axis) { extent } else { 1 })
}

fn strides(axes: Axes, shape: Shape) -> Strides {
    let [rows, columns, _] = extents(axes, shape);
    let along = |axis, stride| if axes.contains(axis) { stride } else { 0 };
    Strides { row: along(M, columns), column: along(N, 1), batch: along(L, rows * columns), sequence: 0 }
}

/// The reducer that a sink of its results would have.
fn reducer(epilogue: &Checked, id: NodeId, (axes, band): Varies, tensor: &OperandView) -> Reducer {
    let Node::Reduce { monoid, args, .. } = epilogue.graph().node(id) else {
        unreachable!("{id} has a room, and only reductions do");
    };
    let (monoid, first): (Monoid, NodeId) = (*monoid, args[0]);
    Reducer {
        source: epilogue.summed_product(monoid, first).map_or(Source::Value(first), Source::Product),
        others: args[1..].to_vec(),
        monoid,
        absolute: false,
        value: epilogue.type_of(first).value,
        axes,
        band,
        memory: tensor.memory,
        format: Format::Stored(tensor.dtype),
        strides: tensor.strides,
        onto: None,
        partials: Vec::new(),
    }
}
