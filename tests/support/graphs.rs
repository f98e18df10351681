//! Random epilogue graphs for property tests: well-typed ones by construction, and ones that keep no rule at all.
//!
//! A graph is drawn as a list of steps, each of which picks its operands among the values before it, so that a failing
//! graph shrinks by losing steps. Include this file with `#[path = "support/graphs.rs"] mod graphs;`, and the primitive
//! and the monoids it uses with `#[path = "support/softcap.rs"] mod softcap;` and `#[path = "support/monoids.rs"] mod
//! monoids;` beside it.

#![allow(dead_code, reason = "each test crate uses its part")]

use crate::monoids;
use crate::softcap::softcap;
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::ir::axes::{K, L, M, N};
use postlude::ir::op::Signature;
use postlude::ir::{
    Axes, Constant, Coordinate, Function, Graph, Monoid, Node, NodeId, Operand, Order, Over, Reduction, Side, Sink, SinkKind,
};
use postlude::{CustomOp, DType, Op};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::HashSet;
use std::sync::Arc;

/// The parameters of a random graph.
#[derive(Clone, Debug)]
pub struct Style {
    /// The type of its accumulator.
    pub accumulator: ValueType,
    /// Primitives on floating-point values. Integers and conditions always have all of theirs.
    pub float_ops: Vec<Op>,
    /// Functions.
    pub functions: Vec<&'static Function>,
    /// A custom primitive.
    pub custom: Option<Arc<CustomOp>>,
    /// Constants are of moderate size, and parameters of functions are positive constants.
    pub tame: bool,
    /// Whether conditions compare floating-point values, too, and not integers alone.
    pub float_conditions: bool,
    /// Formats of loads and stores.
    pub formats: Vec<DType>,
    /// Whether values are reduced, too.
    pub reductions: bool,
    /// The axes that reductions inside the graph go over, if there are any.
    pub inner: Option<Over>,
    /// Whether operands of the product are summed, too: such an epilogue is a product's.
    pub operand_sums: bool,
    /// The most steps.
    pub steps: usize,
    /// The most stores.
    pub stores: usize,
}

impl Style {
    /// Everything the library has.
    pub fn everything() -> Style {
        Style {
            accumulator: ValueType::F32,
            float_ops: Op::ALL.to_vec(),
            functions: activation::ALL.to_vec(),
            custom: Some(softcap()),
            tame: false,
            float_conditions: true,
            formats: storable(),
            reductions: true,
            inner: None,
            operand_sums: true,
            steps: 32,
            stores: 4,
        }
    }

    /// Continuous primitives whose derivatives are about one at most, so that the rounding errors of two evaluations stay
    /// rounding errors: what may be compared with a GPU.
    pub fn tame() -> Style {
        use Op::{Abs, Add, Cos, Erf, Max, Min, Neg, Select, Sin, Sub, Tanh, ToF32};
        let steep = ["relu_squared", "threshold", "snake", "hardshrink", "shrink", "thresholded_relu"];
        let products = ["affine", "scaled_tanh", "parametric_softplus", "swish_beta", "hardsigmoid_with", "rrelu"];
        Style {
            float_ops: vec![Add, Sub, Min, Max, Abs, Neg, Tanh, Erf, Sin, Cos, Select, ToF32],
            functions: activation::ALL
                .iter()
                .copied()
                .filter(|f| !steep.contains(&f.name) && !products.contains(&f.name))
                .collect(),
            custom: None,
            tame: true,
            float_conditions: false,
            operand_sums: false,
            steps: 16,
            stores: 2,
            ..Style::everything()
        }
    }

    /// The same over the accumulator of an integer product.
    pub fn integer(self) -> Style {
        Style { accumulator: ValueType::I32, ..self }
    }
}

/// A graph that passes the check.
pub fn well_typed(style: Style) -> impl Strategy<Value = Graph> {
    let (steps, stores) = (vec(step(), 0..=style.steps), vec(step(), 1..=style.stores));
    (steps, stores).prop_map(move |(steps, stores)| {
        let mut maker = Maker::new(style.clone());
        for step in &steps {
            maker.step(step);
        }
        maker.finish(&stores)
    })
}

/// A graph of any nodes over any nodes, with any names and any stores. Nothing is promised but that references point
/// backwards, which the arena itself demands.
pub fn arbitrary() -> impl Strategy<Value = Graph> {
    let node = (0u8..11, vec(any::<Index>(), 0..5), any::<u32>(), name(), operand());
    let sink = (name(), any::<Index>(), sink_kind());
    (vec(node, 0..24), vec(sink, 0..4)).prop_map(|(nodes, sinks)| {
        let mut graph = Graph::new();
        let mut ids: Vec<NodeId> = Vec::new();
        for (kind, picks, bits, name, operand) in nodes {
            let args: Vec<NodeId> = if ids.is_empty() { Vec::new() } else { picks.iter().map(|p| *p.get(&ids)).collect() };
            let node = match kind {
                0 => Node::Accumulator(pick(&VALUES, bits)),
                1 => Node::Constant(constant(pick(&VALUES, bits), bits)),
                2 => Node::Coordinate(pick(&Coordinate::ALL, bits)),
                3 => Node::Scalar { name: name.as_str().into(), value_type: pick(&VALUES, bits), default: default(bits >> 8) },
                4 => Node::Load { name: name.as_str().into(), operand, default: default(bits) },
                5 => Node::Call { function: pick(activation::ALL, bits), args },
                6 => Node::Custom { op: softcap(), args },
                7 => Node::Element(pick(&Side::ALL, bits), pick(&VALUES, bits >> 1)),
                8 => Node::Gather { name: name.as_str().into(), dtype: operand.dtype, args },
                9 => Node::Reduce { monoid: pick(&Monoid::ALL, bits), over: operand.axes.into(), args },
                _ => Node::Apply { op: pick(Op::ALL, bits), args },
            };
            ids.push(graph.push(node, None));
        }
        for (name, value, kind) in sinks {
            if !ids.is_empty() {
                graph.sink(Sink::new(name.as_str(), *value.get(&ids), kind), None);
            }
        }
        graph
    })
}

/// The default of half of all arguments, of any type.
fn default(bits: u32) -> Option<Constant> {
    (bits & 4 != 0).then(|| constant(pick(&VALUES, bits), bits.rotate_right(3)))
}

/// Names: good ones, ones that want out of their quotes, and any characters.
pub fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(HOSTILE_NAMES).prop_map(str::to_owned),
        3 => "[c-z]",
        1 => ".{0,70}",
    ]
}

/// Names that a careless printer would let end a string, a comment, a line or a label.
pub const HOSTILE_NAMES: &[&str] = &[
    "",
    "a",
    "b",
    "\"",
    "\\",
    "\\\"",
    "line\nend",
    "carriage\rreturn",
    "nul\0byte",
    "*/",
    "// comment \\",
    "\"); asm(\"trap;\"); (\"",
    "d\", %0\nstore \"e",
    "; test: check",
    "%0",
    "= acc f32",
    "\u{85}\u{2028}\u{2029}\u{202e}\u{feff}",
    "pay\u{202e}eet",
    "zero\u{200b}width",
    "x\u{2028}%9 = acc f32",
    "\u{1b}[31m",
    "größe ∇",
    "{{ name }} {% raw %}",
    "$0 #include <x>",
    "long name long name long name long name long name long name long name",
];

/// Any sink.
fn sink_kind() -> impl Strategy<Value = SinkKind> {
    (operand(), any::<u8>()).prop_map(|(operand, bits)| match Monoid::ALL.get(usize::from(bits) % (2 * Monoid::ALL.len())) {
        Some(&monoid) => SinkKind::Reduce(Reduction { monoid, atomic: bits & 64 != 0, accumulate: bits & 128 != 0, operand }),
        None if bits & 32 != 0 => SinkKind::Bincount(operand),
        None => SinkKind::Store(operand),
    })
}

/// The formats that an epilogue loads and stores.
pub fn storable() -> Vec<DType> {
    DType::ALL.into_iter().filter(|dtype| !dtype.is_four_bits()).collect()
}

/// Any operand.
pub fn operand() -> impl Strategy<Value = Operand> {
    (select(storable()), axes(), any::<bool>()).prop_map(|(dtype, axes, row_major)| Operand {
        dtype,
        axes,
        order: if row_major { Order::RowMajor } else { Order::ColumnMajor },
    })
}

fn axes() -> impl Strategy<Value = Axes> {
    prop_oneof![2 => Just(Axes::MNL), 1 => any::<u8>().prop_map(any_axes)]
}

/// Any axes of the output; of 64 in 1 K, which no argument varies along.
fn any_axes(bits: u8) -> Axes {
    if bits.is_multiple_of(64) { subset(bits >> 6) | K } else { subset(bits) }
}

fn subset(bits: u8) -> Axes {
    [M, N, L].into_iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).fold(Axes::NONE, |all, (_, axis)| all | axis)
}

const VALUES: [ValueType; 3] = [ValueType::F32, ValueType::I32, ValueType::Bool];

fn pick<T: Copy>(list: &[T], bits: u32) -> T {
    list[bits as usize % list.len()]
}

fn constant(value: ValueType, bits: u32) -> Constant {
    match value {
        ValueType::F32 => Constant::F32(bits),
        ValueType::F64 => Constant::F64(u64::from(bits) << 32 | u64::from(bits)),
        ValueType::I32 => Constant::I32(bits as i32),
        ValueType::Bool => Constant::Bool(bits & 1 == 1),
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Load,
    Gather,
    Scalar,
    Coordinate,
    Constant,
    Float,
    Integer,
    Condition,
    Call,
    Custom,
    Region,
    Inner,
}

/// One step: what to add, which values it takes, and a number for everything else.
#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    picks: [Index; 3],
    bits: u32,
    operand: Operand,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        2 => Just(Kind::Load),
        1 => Just(Kind::Gather),
        1 => Just(Kind::Scalar),
        1 => Just(Kind::Coordinate),
        1 => Just(Kind::Constant),
        6 => Just(Kind::Float),
        2 => Just(Kind::Integer),
        2 => Just(Kind::Condition),
        3 => Just(Kind::Call),
        1 => Just(Kind::Custom),
        2 => Just(Kind::Region),
        1 => Just(Kind::Inner),
    ];
    let picks = [any::<Index>(), any::<Index>(), any::<Index>()];
    (kind, picks, any::<u32>(), operand()).prop_map(|(kind, picks, bits, operand)| Step { kind, picks, bits, operand })
}

#[derive(Clone, Copy)]
struct Value {
    id: NodeId,
    value: ValueType,
    axes: Axes,
}

/// Makes a graph of steps; every value it holds is well typed.
struct Maker {
    style: Style,
    graph: Graph,
    values: Vec<Value>,
    loads: Vec<(Arc<str>, Operand)>,
    names: usize,
}

impl Maker {
    fn new(style: Style) -> Maker {
        let mut maker = Maker { graph: Graph::new(), values: Vec::new(), loads: Vec::new(), names: 0, style };
        let accumulator = maker.style.accumulator;
        let acc = maker.add(Node::Accumulator(accumulator), accumulator, Axes::MNL);
        if accumulator != ValueType::F32 {
            maker.apply(Op::ToF32, ValueType::F32, &[acc]);
        }
        let row = maker.coordinate(Coordinate::Row);
        let column = maker.coordinate(Coordinate::Column);
        maker.apply(Op::Lt, ValueType::Bool, &[row, column]);
        maker
    }

    fn add(&mut self, node: Node, value: ValueType, axes: Axes) -> Value {
        let added = Value { id: self.graph.push(node, None), value, axes };
        self.values.push(added);
        added
    }

    fn join(args: &[Value]) -> (Vec<NodeId>, Axes) {
        (args.iter().map(|a| a.id).collect(), args.iter().fold(Axes::NONE, |all, a| all | a.axes))
    }

    fn apply(&mut self, op: Op, value: ValueType, args: &[Value]) -> Value {
        let (args, axes) = Maker::join(args);
        self.add(Node::Apply { op, args }, value, axes)
    }

    fn call(&mut self, function: &'static Function, x: Value, step: &Step) -> Value {
        let mut args = vec![x];
        for i in 1..function.parameters.len() {
            let tame = Constant::F32(pick(&[0.25f32, 0.5, 1.0], step.bits >> i).to_bits());
            args.push(if self.style.tame { self.constant(tame) } else { self.pick(ValueType::F32, &step.picks[i % 3]) });
        }
        let (args, axes) = Maker::join(&args);
        self.add(Node::Call { function, args }, ValueType::F32, axes)
    }

    fn constant(&mut self, constant: Constant) -> Value {
        self.add(Node::Constant(constant), constant.value_type(), Axes::NONE)
    }

    fn integer(&mut self, x: i32) -> Value {
        self.constant(Constant::I32(x))
    }

    fn coordinate(&mut self, coordinate: Coordinate) -> Value {
        self.add(Node::Coordinate(coordinate), ValueType::I32, coordinate.axis())
    }

    fn scalar(&mut self, value: ValueType) -> Value {
        let name = self.name("s");
        self.add(Node::scalar(name, value), value, Axes::NONE)
    }

    fn name(&mut self, head: &str) -> Arc<str> {
        self.names += 1;
        format!("{head}{}", self.names).into()
    }

    /// A format, if the style has it, else that of its values.
    fn format(&self, dtype: DType) -> DType {
        if self.style.formats.contains(&dtype) { dtype } else { dtype.value_type().storage() }
    }

    /// A value of a type, more often a late one. There is always one.
    fn pick(&self, value: ValueType, index: &Index) -> Value {
        let all: Vec<Value> = self.values.iter().copied().filter(|v| v.value == value).collect();
        let at = index.index(3 * all.len());
        all[if at < all.len() { at } else { all.len() - 1 - (at - all.len()) / 4 }]
    }

    fn picks(&self, value: ValueType, count: usize, step: &Step) -> Vec<Value> {
        step.picks[..count].iter().map(|index| self.pick(value, index)).collect()
    }

    fn step(&mut self, step: &Step) {
        use ValueType::{Bool, F32, I32};
        match step.kind {
            Kind::Gather => {
                let (name, format) = (self.name("t"), self.format(step.operand.dtype));
                let dtype = if format.is_packed() { Bool.storage() } else { format };
                let (args, axes) = Maker::join(&self.picks(I32, 1, step));
                self.add(Node::Gather { name, dtype, args }, dtype.value_type(), axes);
            }
            Kind::Load => {
                let (name, dtype) = (self.name("x"), self.format(step.operand.dtype));
                let operand = Operand { dtype, axes: step.operand.axes.without(K), ..step.operand };
                // An optional argument is not updated in place.
                let default =
                    step.bits.is_multiple_of(3).then(|| Constant::of(dtype.value_type(), f64::from(step.bits % 7) / 2.0));
                if default.is_none() {
                    self.loads.push((name.clone(), operand));
                }
                self.add(Node::Load { name, operand, default }, dtype.value_type(), operand.axes);
            }
            Kind::Scalar => {
                self.scalar(pick(&VALUES, step.bits));
            }
            Kind::Coordinate => {
                self.coordinate(pick(&Coordinate::OF_OUTPUT, step.bits));
            }
            Kind::Constant => {
                let (value, bits) = (pick(&VALUES, step.bits), step.bits.rotate_right(2));
                self.constant(match value {
                    F32 if self.style.tame => Constant::F32(pick(&[-1.5f32, -0.25, 0.0, 0.5, 2.0], bits).to_bits()),
                    I32 => Constant::I32(pick(&[-3, -1, 0, 1, 2, 7, 64, i32::MIN, i32::MAX, bits as i32], bits)),
                    value => constant(value, bits),
                });
            }
            Kind::Float => {
                let op = pick(&self.style.float_ops, step.bits);
                self.primitive(op, F32, step);
            }
            Kind::Integer => {
                let integers: Vec<Op> = Op::ALL.iter().copied().filter(|o| o.row().eval_i32.is_some()).collect();
                self.primitive(pick(&integers, step.bits), I32, step);
            }
            Kind::Condition => {
                let conditions = [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::And, Op::Or, Op::Not];
                let operands = if self.style.float_conditions && step.bits & 64 != 0 { F32 } else { I32 };
                self.primitive(pick(&conditions, step.bits), operands, step);
            }
            Kind::Call => {
                let (function, x) = (pick(&self.style.functions, step.bits), self.pick(F32, &step.picks[0]));
                self.call(function, x, step);
            }
            Kind::Custom => {
                if let Some(op) = self.style.custom.clone() {
                    let (args, axes) = Maker::join(&self.picks(F32, op.arity(), step));
                    self.add(Node::Custom { op, args }, F32, axes);
                }
            }
            Kind::Inner => {
                let Some(over) = self.style.inner else { return };
                let value = self.pick(pick(&VALUES, step.bits), &step.picks[0]);
                let fits = |m: &Monoid| m.arity() == 1 && m.takes(0).contains(&value.value);
                let monoids: Vec<Monoid> = Monoid::ALL.into_iter().chain(monoids::every()).filter(fits).collect();
                let monoid = pick(&monoids, step.bits >> 3);
                let node = Node::Reduce { monoid, over, args: vec![value.id] };
                self.add(node, monoid.gives(value.value), over.kept(value.axes));
            }
            Kind::Region => {
                let (then, otherwise) = (self.pick(F32, &step.picks[0]), self.pick(F32, &step.picks[1]));
                let condition = self.region(step.bits);
                let function = pick(&self.style.functions, step.bits >> 3);
                let then = self.call(function, then, step);
                self.apply(Op::Select, F32, &[condition, then, otherwise]);
            }
        }
    }

    /// A primitive on operands of a type, where it takes that type.
    fn primitive(&mut self, op: Op, operands: ValueType, step: &Step) {
        let signature = op.row().signature;
        match signature {
            Signature::Select => {
                let mut args = self.picks(operands, 3, step);
                args[0] = self.pick(ValueType::Bool, &step.picks[0]);
                self.apply(op, operands, &args);
            }
            Signature::Convert(to) => {
                let from = if self.style.tame { ValueType::I32 } else { pick(&VALUES, step.bits >> 8) };
                let arg = self.pick(from, &step.picks[0]);
                self.apply(op, to, &[arg]);
            }
            Signature::Same { takes, .. } => {
                let bitwise = takes.contains(&ValueType::Bool) && step.bits & 128 != 0;
                let of = match takes.contains(&operands) {
                    _ if bitwise => ValueType::Bool,
                    true => operands,
                    false => pick(takes, step.bits >> 8),
                };
                let args = self.picks(of, signature.arity(), step);
                let result = signature.result(&vec![of; args.len()]).expect("it takes these");
                self.apply(op, result, &args);
            }
        }
    }

    /// A condition of the kinds that regions are made of.
    fn region(&mut self, bits: u32) -> Value {
        use ValueType::{Bool, I32};
        let (row, column) = (self.coordinate(Coordinate::Row), self.coordinate(Coordinate::Column));
        match bits % 6 {
            0 => {
                let boundary = self.scalar(I32);
                self.apply(Op::Lt, Bool, &[row, boundary])
            }
            1 => self.apply(Op::Ge, Bool, &[row, column]),
            2 => {
                let (sum, two, zero) = (self.apply(Op::Add, I32, &[row, column]), self.integer(2), self.integer(0));
                let parity = self.apply(Op::Rem, I32, &[sum, two]);
                self.apply(Op::Eq, Bool, &[parity, zero])
            }
            3 => {
                let (width, bands) = (self.integer(64), self.integer(2));
                let band = self.apply(Op::Div, I32, &[column, width]);
                self.apply(Op::Lt, Bool, &[band, bands])
            }
            4 => {
                let (batch, zero) = (self.coordinate(Coordinate::Batch), self.integer(0));
                self.apply(Op::Eq, Bool, &[batch, zero])
            }
            _ => {
                let (low, high) = (self.integer(5), self.integer(130));
                let (above, below) = (self.apply(Op::Ge, Bool, &[row, low]), self.apply(Op::Lt, Bool, &[column, high]));
                self.apply(Op::And, Bool, &[above, below])
            }
        }
    }

    /// A value of a type, of which there may be none.
    fn any_of(&self, value: ValueType, bits: u32) -> Option<Value> {
        let fits: Vec<Value> = self.values.iter().filter(|v| v.value == value).copied().collect();
        (!fits.is_empty()).then(|| pick(&fits, bits))
    }

    /// Reduces a value to any axes but all.
    fn reduce(&mut self, name: &str, value: Value, bits: u32) {
        // The relative error of a product grows without bound as a factor nears 0.
        // The index of the largest is another one where a rounding makes another one the largest.
        let wild = |m: &Monoid| value.value == ValueType::F32 && (*m == Monoid::Product || m.is_indexed());
        let own = if self.style.tame { Vec::new() } else { monoids::every().to_vec() };
        let fits = |m: &Monoid| m.takes(0).contains(&value.value) && !(self.style.tame && wild(m));
        let monoids: Vec<Monoid> = Monoid::ALL.into_iter().chain(own).filter(fits).collect();
        let monoid = pick(&monoids, bits >> 3);
        let gives = monoid.gives(value.value);
        let formats: Vec<DType> =
            self.style.formats.iter().copied().filter(|d| d.value_type() == gives && !d.is_packed()).collect();
        let others: Vec<Option<Value>> = (1..monoid.arity()).map(|i| self.any_of(monoid.takes(i)[0], bits >> 12)).collect();
        if formats.is_empty() || others.iter().any(Option::is_none) {
            return;
        }
        let operand = Operand { order: Order::RowMajor, ..pick(&formats, bits >> 8).over(subset((bits % 7) as u8)) };
        let (atomic, accumulate) = (bits & 1 == 1, bits & 6 == 6 && monoid.accumulates());
        let kind = SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand });
        let values = std::iter::once(value).chain(others.into_iter().flatten()).map(|value| value.id).collect();
        self.graph.sink(Sink { name: name.into(), values, kind }, None);
    }

    /// Sums an operand of the product over K.
    fn sum_operand(&mut self, name: &str, bits: u32) {
        let (side, value) = (pick(&Side::ALL, bits), self.style.accumulator);
        let formats: Vec<DType> = self.style.formats.iter().copied().filter(|d| d.value_type() == value).collect();
        let (atomic, accumulate) = (bits & 2 != 0, bits & 4 != 0);
        let axes = if bits & 8 != 0 { side.axis() | L } else { side.axis() };
        let operand = pick(&formats, bits >> 4).over(axes);
        let element = self.graph.push(Node::Element(side, value), None);
        let kind = SinkKind::Reduce(Reduction { monoid: Monoid::Sum, atomic, accumulate, operand });
        self.graph.sink(Sink::new(name, element, kind), None);
    }

    /// Adds the stores, and leaves only the nodes that they need: every argument must reach one.
    fn finish(mut self, stores: &[Step]) -> Graph {
        let mut updated = HashSet::new();
        // The first store takes the sum of the last floating-point values, which have most behind them.
        let last: Vec<Value> = self.values.iter().rev().filter(|v| v.value == ValueType::F32).take(3).copied().collect();
        let sum = last.iter().copied().reduce(|sum, v| self.apply(Op::Add, ValueType::F32, &[sum, v]));
        for (index, step) in stores.iter().enumerate() {
            let any = self.values[self.values.len() - 1 - step.picks[0].index(self.values.len())];
            // A style may have no format for a conversion's result.
            let holds = |v: &Value| self.style.formats.iter().any(|d| d.value_type() == v.value);
            let stored = sum.filter(|_| index == 0 || !holds(&any)).unwrap_or(any);
            let fits = |o: &Operand| o.axes == Axes::MNL && o.dtype.value_type() == stored.value;
            let update = self.loads.iter().find(|(name, operand)| fits(operand) && !updated.contains(name));
            let (name, operand) = match update {
                Some((name, operand)) if step.bits & 3 == 0 => (name.clone(), *operand),
                _ => {
                    let formats: Vec<DType> =
                        self.style.formats.iter().copied().filter(|d| d.value_type() == stored.value).collect();
                    let axes = if stored.axes.contains(L) || step.bits & 4 == 0 { Axes::MNL } else { Axes::MN };
                    let operand = Operand { dtype: pick(&formats, step.bits >> 3), axes, order: step.operand.order };
                    (format!("d{index}").as_str().into(), operand)
                }
            };
            updated.insert(name.clone());
            self.graph.sink(Sink::new(name, stored.id, SinkKind::Store(operand)), None);
            if self.style.reductions && step.bits >> 8 & 1 == 1 {
                self.reduce(&format!("r{index}"), any, step.bits >> 9);
            }
            if self.style.operand_sums && step.bits >> 20 & 3 == 1 {
                self.sum_operand(&format!("k{index}"), step.bits >> 22);
            }
        }
        pruned(&self.graph)
    }
}

/// The part of a graph that its sinks need.
pub fn pruned(graph: &Graph) -> Graph {
    let live = graph.live();
    let (mut out, mut ids) = (Graph::new(), Vec::new());
    for (id, node) in graph.nodes() {
        ids.push(if live[id.index()] { out.push(node.map_args(|a: NodeId| ids[a.index()]), None) } else { id });
    }
    for sink in graph.sinks() {
        out.sink(sink.map(|value| ids[value.index()]), None);
    }
    out
}
