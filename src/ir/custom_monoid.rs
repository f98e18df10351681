//! Monoids that the program defines: lift, combine and result are expressions.
//!
//! The CPU evaluates the expressions. A kernel contains them as a struct beside those of the table. A serialised graph
//! contains the monoid's name and the fingerprint of its definition, as for a [`CustomOp`](super::CustomOp).

use super::fnv1a;
use super::graph::{Constant, Graph, Node, NodeId};
use super::op::Op;
use super::text;
use crate::dtype::ValueType;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// One of a monoid's three functions, as a graph of primitives over parameters and constants. Calls are inlined.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    graph: Graph,
    parameters: usize,
    results: Vec<NodeId>,
}

/// A monoid that the program defines. Equal definitions share one object, which lives as long as the program.
pub struct CustomMonoid {
    name: String,
    takes: Vec<ValueType>,
    gives: ValueType,
    identity: Vec<Constant>,
    lift: Body,
    combine: Body,
    result: Body,
    fingerprint: u64,
}

/// Bodies with at most this many nodes are evaluated on the stack.
const FEW: usize = 64;

impl Body {
    /// A graph whose first nodes are the parameters, and the values it returns.
    pub(crate) fn new(graph: Graph, parameters: usize, results: Vec<NodeId>) -> Body {
        Body { graph, parameters, results }
    }

    /// The nodes; the first are the [parameters](Body::parameters).
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many parameters there are.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// The nodes whose values the function returns.
    pub fn results(&self) -> &[NodeId] {
        &self.results
    }

    /// The primitives that the results need, in order, without parameters and constants.
    pub fn computed(&self) -> Vec<NodeId> {
        let needed = self.graph.needed_by(self.results.iter().copied());
        let is_computed = |(id, node): &(NodeId, &Node)| needed[id.index()] && matches!(node, Node::Apply { .. });
        self.graph.nodes().filter(is_computed).map(|(id, _)| id).collect()
    }

    /// Issue slots of one evaluation, roughly.
    fn cost(&self) -> u32 {
        self.computed().iter().map(|id| self.graph.node(*id).cost()).sum()
    }

    /// The primitives for `f32` whose exact spelling [forks](Op::forks), one for each place.
    fn forks(&self) -> impl Iterator<Item = Op> + '_ {
        self.computed()
            .into_iter()
            .filter_map(|id| match self.graph.node(id) {
                Node::Apply { op, args } if args.iter().all(|arg| self.graph.value_type(*arg) == ValueType::F32) => Some(*op),
                _ => None,
            })
            .filter(|op| op.forks())
    }

    /// Evaluates the function at these parameters.
    fn evaluate(&self, parameters: &[f64], results: &mut [f64]) {
        let (mut few, mut many) = ([0.0; FEW], Vec::new());
        let values = match self.graph.len() {
            count if count <= FEW => &mut few[..count],
            count => {
                many.resize(count, 0.0);
                &mut many[..]
            }
        };
        for (id, node) in self.graph.nodes() {
            values[id.index()] = match node {
                Node::Constant(constant) => constant.value(),
                Node::Apply { op, args } => {
                    let (mut numbers, mut types) = ([0.0; MOST_OPERANDS], [ValueType::F32; MOST_OPERANDS]);
                    for (i, arg) in args.iter().enumerate() {
                        (numbers[i], types[i]) = (values[arg.index()], self.graph.value_type(*arg));
                    }
                    match op.row().on_integers(&types[..args.len()]) {
                        Some(eval) => f64::from(eval(&numbers.map(|x| x as i32)[..args.len()])),
                        None => (op.row().eval)(&numbers[..args.len()]),
                    }
                }
                _ => parameters[id.index()],
            };
        }
        results.iter_mut().zip(&self.results).for_each(|(to, from)| *to = values[from.index()]);
    }
}

/// The most operands that a primitive has.
const MOST_OPERANDS: usize = 3;

impl CustomMonoid {
    /// The most words of 4 bytes in a state.
    pub const MOST_WORDS: usize = 8;

    /// The most values in an element.
    pub const MOST_VALUES: usize = 4;

    /// The object of this definition. [`CustomMonoid::build`] checks the parts and the laws.
    pub(crate) fn interned(
        name: &str,
        takes: Vec<ValueType>,
        identity: Vec<Constant>,
        [lift, combine, result]: [Body; 3],
    ) -> &'static CustomMonoid {
        static DEFINED: Mutex<Vec<&'static CustomMonoid>> = Mutex::new(Vec::new());
        let gives = result.results.first().map_or(ValueType::F32, |id| result.graph.value_type(*id));
        let mut monoid = CustomMonoid { name: name.into(), takes, gives, identity, lift, combine, result, fingerprint: 0 };
        monoid.fingerprint = fnv1a(monoid.text().bytes());
        let mut defined = DEFINED.lock().unwrap_or_else(PoisonError::into_inner);
        defined.iter().copied().find(|other| **other == monoid).unwrap_or_else(|| {
            let monoid: &'static CustomMonoid = Box::leak(Box::new(monoid));
            defined.push(monoid);
            monoid
        })
    }

    /// The whole definition as text: everything that can reach a kernel.
    fn text(&self) -> String {
        let types = |types: &[ValueType]| types.iter().map(|t| t.name()).collect::<Vec<_>>().join(" ");
        let mut text = format!("{}\n{}\n", self.name, types(&self.takes));
        for constant in &self.identity {
            text += &format!("{} {}\n", constant.value_type().name(), constant.value());
        }
        for body in [&self.lift, &self.combine, &self.result] {
            text += &text::print(&body.graph, |_| None);
            text += &body.results.iter().map(|id| format!(" {id}")).collect::<String>();
            text.push('\n');
        }
        text
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name in text and JSON, with the fingerprint.
    pub fn word(&self) -> String {
        format!("{}#{:016x}", self.name, self.fingerprint)
    }

    /// A fingerprint of the definition (64-bit FNV-1a).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The types of the values that make an element.
    pub fn takes(&self) -> &[ValueType] {
        &self.takes
    }

    /// The type of the result.
    pub fn gives(&self) -> ValueType {
        self.gives
    }

    /// The words of the identity state.
    pub fn state(&self) -> &[Constant] {
        &self.identity
    }

    /// The function from an element to a state.
    pub fn lifted(&self) -> &Body {
        &self.lift
    }

    /// The function from two states to one.
    pub fn combined(&self) -> &Body {
        &self.combine
    }

    /// The function from a state to the stored result.
    pub fn settled(&self) -> &Body {
        &self.result
    }

    pub(super) fn words(&self) -> usize {
        self.identity.len()
    }

    pub(super) fn cost(&self) -> u32 {
        self.lift.cost() + self.combine.cost()
    }

    /// The primitives that fork where a state takes an element in, one for each place.
    pub(crate) fn forks(&self) -> Vec<Op> {
        self.lift.forks().chain(self.combine.forks()).collect()
    }

    pub(super) fn identity(&self) -> Vec<f64> {
        self.identity.iter().map(|constant| constant.value()).collect()
    }

    pub(super) fn take(&self, state: &mut [f64], element: &[f64]) {
        let mut lifted = [0.0; CustomMonoid::MOST_WORDS];
        let lifted = &mut lifted[..self.words()];
        self.lift.evaluate(element, lifted);
        self.join(state, lifted);
    }

    pub(super) fn join(&self, state: &mut [f64], other: &[f64]) {
        let mut both = [0.0; 2 * CustomMonoid::MOST_WORDS];
        let words = self.words();
        both[..words].copy_from_slice(state);
        both[words..2 * words].copy_from_slice(other);
        self.combine.evaluate(&both[..2 * words], state);
    }

    pub(super) fn result(&self, state: &[f64]) -> f64 {
        let mut result = [0.0];
        self.result.evaluate(state, &mut result);
        result[0]
    }

    /// The first law that these elements break, if any, and the states that break it.
    pub(crate) fn broken_law(&self, elements: &[Vec<f64>]) -> Option<(&'static str, Vec<Vec<f64>>)> {
        let unit = self.identity();
        let mut states: Vec<Vec<f64>> = elements
            .iter()
            .map(|element| {
                let mut state = vec![0.0; self.words()];
                self.lift.evaluate(element, &mut state);
                state
            })
            .collect();
        states.push(unit.clone());
        let joined = |a: &[f64], b: &[f64]| {
            let mut state = a.to_vec();
            self.join(&mut state, b);
            state
        };
        // Sums of three values in another order differ by roundings.
        let near = |a: &[f64], b: &[f64]| {
            let size = a.iter().chain(b).filter(|x| x.is_finite()).fold(1e-30, |m: f64, x| m.max(x.abs()));
            a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * size)
        };
        for a in &states {
            if !near(&joined(&unit, a), a) || !near(&joined(a, &unit), a) {
                return Some(("a state combined with the identity changes", vec![a.clone()]));
            }
            for b in &states {
                let both = joined(a, b);
                if !near(&both, &joined(b, a)) {
                    return Some(("`combine` of two states depends on their order", vec![a.clone(), b.clone()]));
                }
                for c in &states {
                    if !near(&joined(&both, c), &joined(a, &joined(b, c))) {
                        return Some((
                            "`combine` of three states depends on their grouping",
                            vec![a.clone(), b.clone(), c.clone()],
                        ));
                    }
                }
            }
        }
        None
    }
}

/// Equal by definition.
impl PartialEq for CustomMonoid {
    fn eq(&self, other: &CustomMonoid) -> bool {
        std::ptr::eq(self, other) || self.fingerprint == other.fingerprint && self.text() == other.text()
    }
}

impl Eq for CustomMonoid {}

impl Hash for CustomMonoid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

impl fmt::Debug for CustomMonoid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomMonoid").field("name", &self.name).finish_non_exhaustive()
    }
}
