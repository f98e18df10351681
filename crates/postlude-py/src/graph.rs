//! Graphs: what the Python builder adds nodes to.

use crate::epilogue::Epilogue;
use crate::error::{argument, broken, poisoned};
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::ir::Over;
use postlude::ir::axes::Axes;
use postlude::ir::graph::{Constant, Coordinate, Graph, Node, NodeId, Side};
use postlude::ir::{Monoid, Op, Operand, Order, Reduction, Sink, SinkKind};
use postlude::{DType, Epilogue as Checked};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// A graph under construction, and the place in the program of each of its parts.
#[pyclass(frozen, name = "Graph", module = "postlude._native")]
pub struct PyGraph(Mutex<State>);

#[derive(Default)]
struct State {
    graph: Graph,
    nodes: Vec<NodeId>,
    places: Vec<String>,
    sinks: Vec<String>,
}

impl State {
    fn push(&mut self, node: Node, at: &str) -> usize {
        let id = self.graph.push(node, None);
        if id.index() == self.nodes.len() {
            self.nodes.push(id);
            self.places.push(at.to_owned());
        }
        id.index()
    }

    fn id(&self, index: usize) -> PyResult<NodeId> {
        self.nodes.get(index).copied().ok_or_else(|| argument(format!("%{index} is not a value of this graph")))
    }

    fn ids(&self, indices: &[usize]) -> PyResult<Vec<NodeId>> {
        indices.iter().map(|index| self.id(*index)).collect()
    }
}

/// The format of a name.
pub fn dtype(name: &str) -> PyResult<DType> {
    let known = || DType::ALL.map(DType::name).join(", ");
    DType::from_name(name).ok_or_else(|| argument(format!("no format `{name}`; the formats are {}", known())))
}

fn value_type(name: &str) -> PyResult<ValueType> {
    let found = ValueType::ALL.into_iter().find(|value| value.name() == name);
    found.ok_or_else(|| argument(format!("no type `{name}`; the types are f32, f64, i32, bool")))
}

fn axes(letters: &str) -> PyResult<Axes> {
    let sorted: Vec<&str> = ["M", "N", "L"].into_iter().filter(|letter| letters.contains(letter)).collect();
    let known = letters.chars().all(|c| matches!(c, 'M' | 'N' | 'L' | ',' | ' '));
    let found = Axes::from_letters(&sorted.join(",")).filter(|_| known);
    found.ok_or_else(|| argument(format!("no axes `{letters}`; the axes are M (rows), N (columns) and L (batch)")))
}

/// Axes, one of them perhaps in bands: `M,N/8`.
fn over(letters: &str) -> PyResult<Over> {
    match letters.contains('/') {
        true => Over::from_letters(letters).ok_or_else(|| argument(format!("no axes `{letters}`; bands of N are `M,N/8`"))),
        false => axes(letters).map(Over::from),
    }
}

/// Format, axes and order as an operand.
fn operand((format, letters, column_major): (&str, &str, bool)) -> PyResult<Operand> {
    let order = if column_major { Order::ColumnMajor } else { Order::RowMajor };
    Ok(Operand { dtype: dtype(format)?, axes: axes(letters)?, order })
}

fn monoid(name: &str) -> PyResult<Monoid> {
    Monoid::from_name(name).ok_or_else(|| argument(format!("no monoid `{name}`")))
}

/// What is added under a name: a primitive or an activation.
fn applied(name: &str, args: Vec<NodeId>) -> PyResult<Node> {
    if let Some(op) = Op::from_name(name) {
        return Ok(Node::Apply { op, args });
    }
    let function = activation::ALL.iter().find(|function| function.name == name);
    let function = function.ok_or_else(|| argument(format!("no primitive and no activation `{name}`")))?;
    if args.len() != function.parameters.len() {
        return Err(argument(format!("`{name}` takes {}, got {} value(s)", function.parameters.join(", "), args.len())));
    }
    Ok(Node::Call { function, args })
}

type Described<'a> = (&'a str, &'a str, bool);

#[pymethods]
impl PyGraph {
    #[new]
    fn new() -> PyGraph {
        PyGraph(Mutex::default())
    }

    fn accumulator(&self, value: &str, at: &str) -> PyResult<usize> {
        Ok(self.0.lock().map_err(poisoned)?.push(Node::Accumulator(value_type(value)?), at))
    }

    fn element(&self, side: &str, value: &str, at: &str) -> PyResult<usize> {
        let side = if side == "a" { Side::A } else { Side::B };
        Ok(self.0.lock().map_err(poisoned)?.push(Node::Element(side, value_type(value)?), at))
    }

    fn coordinate(&self, name: &str, at: &str) -> PyResult<usize> {
        let found = Coordinate::ALL.into_iter().find(|coordinate| coordinate.name() == name);
        let node = Node::Coordinate(found.ok_or_else(|| argument(format!("no coordinate `{name}`")))?);
        Ok(self.0.lock().map_err(poisoned)?.push(node, at))
    }

    fn constant(&self, value: f64, value_type: &str, at: &str) -> PyResult<usize> {
        let constant = Constant::of(self::value_type(value_type)?, value);
        Ok(self.0.lock().map_err(poisoned)?.push(Node::Constant(constant), at))
    }

    #[pyo3(signature = (name, value_type, default, at))]
    fn scalar(&self, name: &str, value_type: &str, default: Option<f64>, at: &str) -> PyResult<usize> {
        let value_type = self::value_type(value_type)?;
        let default = default.map(|default| Constant::of(value_type, default));
        Ok(self.0.lock().map_err(poisoned)?.push(Node::Scalar { name: name.into(), value_type, default }, at))
    }

    #[pyo3(signature = (name, described, default, at))]
    fn load(&self, name: &str, described: Described<'_>, default: Option<f64>, at: &str) -> PyResult<usize> {
        let operand = operand(described)?;
        let default = default.map(|default| Constant::of(operand.dtype.value_type(), default));
        Ok(self.0.lock().map_err(poisoned)?.push(Node::Load { name: name.into(), operand, default }, at))
    }

    fn gather(&self, name: &str, format: &str, index: usize, at: &str) -> PyResult<usize> {
        let mut state = self.0.lock().map_err(poisoned)?;
        let node = Node::Gather { name: name.into(), dtype: dtype(format)?, args: vec![state.id(index)?] };
        Ok(state.push(node, at))
    }

    fn apply(&self, name: &str, args: Vec<usize>, at: &str) -> PyResult<usize> {
        let mut state = self.0.lock().map_err(poisoned)?;
        let node = applied(name, state.ids(&args)?)?;
        Ok(state.push(node, at))
    }

    fn cast(&self, value: usize, format: &str, at: &str) -> PyResult<usize> {
        let mut state = self.0.lock().map_err(poisoned)?;
        let node = Node::Apply { op: Op::cast(dtype(format)?), args: vec![state.id(value)?] };
        Ok(state.push(node, at))
    }

    fn reduce_over(&self, monoid: &str, over: &str, args: Vec<usize>, at: &str) -> PyResult<usize> {
        let mut state = self.0.lock().map_err(poisoned)?;
        let node = Node::Reduce { monoid: self::monoid(monoid)?, over: self::over(over)?, args: state.ids(&args)? };
        Ok(state.push(node, at))
    }

    fn store(&self, name: &str, value: usize, described: Described<'_>, at: &str) -> PyResult<()> {
        let mut state = self.0.lock().map_err(poisoned)?;
        let sink = Sink::new(name, state.id(value)?, SinkKind::Store(operand(described)?));
        state.graph.sink(sink, None);
        state.sinks.push(at.to_owned());
        Ok(())
    }

    fn reduce(
        &self,
        name: &str,
        values: Vec<usize>,
        monoid: &str,
        flags: (bool, bool),
        described: Described<'_>,
        at: &str,
    ) -> PyResult<()> {
        let mut state = self.0.lock().map_err(poisoned)?;
        if values.is_empty() {
            return Err(argument(format!("reduction `{name}` has no value: pass one")));
        }
        let (atomic, accumulate) = flags;
        let reduction = Reduction { monoid: self::monoid(monoid)?, atomic, accumulate, operand: operand(described)? };
        let sink = Sink { name: name.into(), values: state.ids(&values)?, kind: SinkKind::Reduce(reduction) };
        state.graph.sink(sink, None);
        state.sinks.push(at.to_owned());
        Ok(())
    }

    fn value_type(&self, value: usize) -> PyResult<&'static str> {
        let state = self.0.lock().map_err(poisoned)?;
        let id = state.id(value)?;
        Ok(state.graph.value_type(id).name())
    }

    /// Checks the graph.
    fn finish(&self) -> PyResult<Epilogue> {
        let state = self.0.lock().map_err(poisoned)?;
        let places: Vec<&String> = state.places.iter().chain(&state.sinks).collect();
        let checked = Checked::from_graph(state.graph.clone())
            .map_err(|faults| broken(&faults.located(|order| places.get(order).map(|at| (*at).clone()))))?;
        Ok(Epilogue(Arc::new(checked)))
    }
}

/// The names of primitives and activations, with the names of their parameters behind the first and their documentation.
#[pyfunction]
pub fn methods() -> Vec<(&'static str, Option<Vec<&'static str>>, &'static str)> {
    let primitives = Op::ALL.iter().map(|op| (op.name(), None, op.row().doc));
    let activations = activation::ALL.iter().map(|f| (f.name, Some(f.parameters[1..].to_vec()), f.doc));
    primitives.chain(activations).collect()
}

/// The names of the monoids.
#[pyfunction]
pub fn monoids() -> Vec<&'static str> {
    Monoid::ALL.into_iter().map(Monoid::name).collect()
}
