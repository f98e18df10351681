//! THE table of primitives. One row holds everything there is to know about one: name, doc, typing, CUDA spelling, value,
//! derivative, cost and error bound. The enum, the names in text and JSON, the listing in the docs and the tests come from
//! the table; nothing outside this file matches on a primitive.
//!
//! In a spelling `$0`, `$1`, `$2` stand for the operands, which the printer has already made atomic expressions.
//! Values are evaluated in `f64`: an `f32` primitive is its exact value rounded once to `f32`, which is what the reference
//! executor computes and what the bounds are measured against. Integers and truth values are exact in `f64`.

use super::graph::{Constant, Graph, Node, NodeId};
use super::monoid::{larger, smaller};
use crate::dtype::{DType, ValueType};
use serde::{Deserialize, Serialize};

/// What operands a primitive takes and what it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// `f32` operands, `f32` result.
    Float(usize),
    /// Operands all `f32` or all `i32`; the result has their type.
    Numeric(usize),
    /// Two operands of one numeric type; the result is a truth value.
    Compare,
    /// Truth values throughout.
    Logic(usize),
    /// A truth value and two operands of one type, which is the result's.
    Select,
    /// Any one operand; the result has the given type.
    Convert(ValueType),
}

impl Signature {
    /// How many operands.
    pub const fn arity(self) -> usize {
        match self {
            Signature::Float(n) | Signature::Numeric(n) | Signature::Logic(n) => n,
            Signature::Compare => 2,
            Signature::Select => 3,
            Signature::Convert(_) => 1,
        }
    }
}

/// A cheaper spelling, used where every stored matrix is 16 bit or narrower, and how far it may be from the exact value.
#[derive(Clone, Copy, Debug)]
pub struct Fast {
    /// The spelling.
    pub cuda: &'static str,
    /// Largest absolute error on the tested range.
    pub absolute: f64,
    /// Largest relative error on the tested range; an error within either bound passes.
    pub relative: f64,
}

/// Gradients of the operands from the operands, the result and the result's gradient; `None` where it is zero.
pub type Adjoint = fn(&mut Graph, &[NodeId], NodeId, NodeId) -> Vec<Option<NodeId>>;

/// How a primitive whose result is one of its operands picks it.
#[derive(Clone, Copy, Debug)]
pub struct Picks {
    /// The two operands: the first is picked where the condition holds.
    pub arms: [usize; 2],
    /// The condition.
    pub condition: fn(&mut Graph, &[NodeId]) -> NodeId,
}

/// What an application of a primitive may be replaced by, bit for bit.
#[derive(Clone, Debug)]
pub enum Rewrite {
    /// A value that is there.
    Is(NodeId),
    /// A simpler node.
    Becomes(Node),
}

/// Replaces an application where that changes no bit of its value, whatever the operands are.
pub type Law = fn(&Graph, &[NodeId]) -> Option<Rewrite>;

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The name, in text, JSON, CUDA comments and messages.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// Typing.
    pub signature: Signature,
    /// Exact CUDA spelling for `f32` (or the only one).
    pub cuda: &'static str,
    /// CUDA spelling for `i32`, where it differs.
    pub cuda_i32: &'static str,
    /// The cheaper spelling, if there is one.
    pub fast: Option<Fast>,
    /// The value.
    pub eval: fn(&[f64]) -> f64,
    /// The value for `i32` operands, where arithmetic wraps; operands of division may be anything.
    pub eval_i32: Option<fn(&[i32]) -> i32>,
    /// The derivative; `None` where it is zero or undefined everywhere (comparisons, rounding, logic), and where the
    /// primitive picks an operand, which says it all.
    pub adjoint: Option<Adjoint>,
    /// How it picks an operand, if that is what it does: the gradient goes to the one that is picked.
    pub picks: Option<Picks>,
    /// What it may be replaced by where operands are special.
    pub law: Option<Law>,
    /// Issue slots for one element, roughly: decides whether a region's arms are worth a branch.
    pub cost: u32,
    /// Largest error of the exact spelling, in units in the last place of the `f32` result. 0: bit-exact, may be folded.
    pub ulp: u32,
}

macro_rules! primitives {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, $sig:expr, cost $cost:literal, ulp $ulp:literal,
        cuda $cuda:literal, $(i32 $cuda_i32:literal, $eval_i32:expr,)? $(fast $fast:literal ($abs:literal, $rel:literal),)?
        eval $eval:expr $(, adjoint $adjoint:expr)? $(, picks $arms:tt $condition:expr)? $(, law $law:expr)?; )*) => {
        /// A primitive of the epilogue graph. See the [table](super::op) for what each one means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Op { $( $(#[doc = $doc])+ #[serde(rename = $name)] $variant, )* }

        impl Op {
            /// Every primitive, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];
        }

        static TABLE: &[Row] = &[$( Row {
            name: $name,
            doc: concat!($($doc),+),
            signature: $sig,
            cuda: $cuda,
            cuda_i32: primitives!(@or $cuda $(, $cuda_i32)?),
            fast: primitives!(@opt $(Fast { cuda: $fast, absolute: $abs, relative: $rel })?),
            eval: $eval,
            eval_i32: primitives!(@opt $($eval_i32 as fn(&[i32]) -> i32)?),
            adjoint: primitives!(@opt $($adjoint as Adjoint)?),
            picks: primitives!(@opt $(Picks { arms: $arms, condition: $condition })?),
            law: primitives!(@opt $($law as Law)?),
            cost: $cost,
            ulp: $ulp,
        } ),*];
    };
    (@or $a:literal) => { $a };
    (@or $a:literal, $b:literal) => { $b };
    (@opt) => { None };
    (@opt $e:expr) => { Some($e) };
}

impl Op {
    /// The row.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The primitive of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// The conversion to a format: a change of type for `f32`, `i32` and `bool`, a rounding of the `f32` value to the
    /// precision of a narrower format otherwise.
    pub fn cast(to: DType) -> Op {
        match to {
            DType::F32 => Op::ToF32,
            DType::I32 => Op::ToI32,
            DType::Bool | DType::Bits8 | DType::Bits128 => Op::ToBool,
            DType::F16 => Op::RoundF16,
            DType::BF16 => Op::RoundBf16,
        }
    }
}

impl Row {
    /// Gradients of the operands from the operands, the result and the result's gradient, `None` where it is zero; nothing
    /// at all where there is no derivative.
    pub fn gradients(&self, graph: &mut Graph, args: &[NodeId], y: NodeId, g: NodeId) -> Option<Vec<Option<NodeId>>> {
        if let Some(Picks { arms, condition }) = self.picks {
            let condition = condition(graph, args);
            let zero = graph.k(0.0);
            let mut gradients = vec![None; args.len()];
            gradients[arms[0]] = Some(graph.f(Op::Select, &[condition, g, zero]));
            gradients[arms[1]] = Some(graph.f(Op::Select, &[condition, zero, g]));
            return Some(gradients);
        }
        self.adjoint.map(|adjoint| adjoint(graph, args, y, g))
    }

    /// Whether a gradient flows through.
    pub fn is_differentiable(&self) -> bool {
        self.adjoint.is_some() || self.picks.is_some()
    }
}

/// Shorthands for derivatives, which are graphs too.
impl Graph {
    fn f(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.apply(op, args)
    }
    fn k(&mut self, x: f32) -> NodeId {
        self.constant_f32(x)
    }
    fn mul_(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.f(Op::Mul, &[a, b])
    }
    fn neg_(&mut self, a: NodeId) -> NodeId {
        self.f(Op::Neg, &[a])
    }
}

/// Shorthands for laws.
impl Graph {
    /// Whether a value is this constant, bit for bit.
    fn is(&self, id: NodeId, float: f32, integer: i32) -> bool {
        match self.node(id) {
            Node::Constant(Constant::F32(bits)) => *bits == float.to_bits(),
            Node::Constant(Constant::I32(x)) => *x == integer,
            _ => false,
        }
    }

    fn truth(&self, id: NodeId) -> Option<bool> {
        if let Node::Constant(Constant::Bool(b)) = self.node(id) { Some(*b) } else { None }
    }

    /// The operands, if the value is this primitive.
    fn operands(&self, id: NodeId, of: Op) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Apply { op, args } if *op == of => Some(args),
            _ => None,
        }
    }

    /// `x op unit` and `unit op x` are `x`.
    fn without(&self, x: &[NodeId], float: f32, integer: i32) -> Option<Rewrite> {
        let unit = |i: usize| self.is(x[i], float, integer);
        let kept = if unit(1) { Some(x[0]) } else { unit(0).then_some(x[1]) };
        kept.map(Rewrite::Is)
    }

    /// `op(op(x))` is `x`.
    fn twice(&self, op: Op, x: &[NodeId]) -> Option<Rewrite> {
        self.operands(x[0], op).map(|inner| Rewrite::Is(inner[0]))
    }

    /// `x op unit` is `x`, `x op zero` is `zero`, `x op x` is `x`.
    fn lattice(&self, x: &[NodeId], unit: bool) -> Option<Rewrite> {
        let decided = [x, &[x[1], x[0]]].into_iter().find_map(|x| Some(if self.truth(x[0])? == unit { x[1] } else { x[0] }));
        decided.or((x[0] == x[1]).then_some(x[0])).map(Rewrite::Is)
    }
}

impl Node {
    /// The two factors of a product: a sum of such is one fused multiply-add an element.
    pub fn factors(&self) -> Option<[NodeId; 2]> {
        match self {
            Node::Apply { op: Op::Mul, args } => <[NodeId; 2]>::try_from(args.as_slice()).ok(),
            _ => None,
        }
    }

    /// What a sum adds up, or a difference takes the second of from the first; and whether it is a difference.
    pub fn addends(&self) -> Option<([NodeId; 2], bool)> {
        match self {
            Node::Apply { op: op @ (Op::Add | Op::Sub), args } => Some((args.as_slice().try_into().ok()?, *op == Op::Sub)),
            _ => None,
        }
    }
}

fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}

use Signature::{Compare, Convert, Float, Logic, Numeric, Select as Choice};

primitives! {
    /// `a + b`.
    Add = "add", Numeric(2), cost 1, ulp 1, cuda "$0 + $1", i32 "wrap_add($0, $1)", |x| x[0].wrapping_add(x[1]),
        eval |x| x[0] + x[1], adjoint |_, _, _, g| vec![Some(g), Some(g)],
        law |s, x| s.without(x, -0.0, 0);
    /// `a - b`.
    Sub = "sub", Numeric(2), cost 1, ulp 1, cuda "$0 - $1", i32 "wrap_sub($0, $1)", |x| x[0].wrapping_sub(x[1]),
        eval |x| x[0] - x[1], adjoint |s, _, _, g| vec![Some(g), Some(s.neg_(g))],
        law |s, x| s.is(x[1], 0.0, 0).then_some(Rewrite::Is(x[0]));
    /// `a * b`.
    Mul = "mul", Numeric(2), cost 1, ulp 1, cuda "$0 * $1", i32 "wrap_mul($0, $1)", |x| x[0].wrapping_mul(x[1]),
        eval |x| x[0] * x[1], adjoint |s, x, _, g| vec![Some(s.mul_(g, x[1])), Some(s.mul_(g, x[0]))],
        law |s, x| s.without(x, 1.0, 1);
    /// `a / b`. Integers truncate towards zero; dividing an integer by zero gives 0. The fast form gives 0 where `|b|`
    /// exceeds 2^126.
    Div = "div", Numeric(2), cost 10, ulp 1, cuda "$0 / $1",
        i32 "divide($0, $1)", |x| if x[1] == 0 { 0 } else { x[0].wrapping_div(x[1]) },
        fast "__fdividef($0, $1)" (1e-37, 5e-7),
        eval |x| x[0] / x[1], adjoint |s, x, y, g| {
            let gx = s.f(Op::Div, &[g, x[1]]);
            let gy = s.mul_(gx, y);
            vec![Some(gx), Some(s.neg_(gy))]
        },
        law |s, x| s.is(x[1], 1.0, 1).then_some(Rewrite::Is(x[0]));
    /// `-a`.
    Neg = "neg", Numeric(1), cost 1, ulp 0, cuda "-$0", i32 "wrap_sub(0, $0)", |x| x[0].wrapping_neg(),
        eval |x| -x[0], adjoint |s, _, _, g| vec![Some(s.neg_(g))], law |s, x| s.twice(Op::Neg, x);
    /// `|a|`. Its derivative at 0 is 0.
    Abs = "abs", Numeric(1), cost 1, ulp 0, cuda "fabsf($0)", i32 "($0 < 0 ? wrap_sub(0, $0) : $0)", |x| x[0].wrapping_abs(),
        eval |x| x[0].abs(), adjoint |s, x, _, g| { let sign = s.f(Op::Sign, &[x[0]]); vec![Some(s.mul_(g, sign))] };
    /// The smaller, of two zeros -0; NaN if either is NaN. Where both are equal the gradient goes to the second.
    Min = "min", Numeric(2), cost 1, ulp 0, cuda "min_nan($0, $1)", i32 "($0 < $1 ? $0 : $1)", |x| x[0].min(x[1]),
        eval |x| smaller(x[0], x[1]),
        picks [0, 1] |s, x| s.f(Op::Lt, x);
    /// The larger, of two zeros +0; NaN if either is NaN, which is what makes `max(x, 0)` the NaN-propagating ReLU. Where both are equal
    /// the gradient goes to the second.
    Max = "max", Numeric(2), cost 1, ulp 0, cuda "max_nan($0, $1)", i32 "($0 > $1 ? $0 : $1)", |x| x[0].max(x[1]),
        eval |x| larger(x[0], x[1]),
        picks [0, 1] |s, x| s.f(Op::Gt, x);
    /// `a * b + c`, rounded once.
    Fma = "fma", Numeric(3), cost 1, ulp 1, cuda "fmaf($0, $1, $2)",
        i32 "wrap_add(wrap_mul($0, $1), $2)", |x| x[0].wrapping_mul(x[1]).wrapping_add(x[2]),
        eval |x| x[0].mul_add(x[1], x[2]),
        adjoint |s, x, _, g| vec![Some(s.mul_(g, x[1])), Some(s.mul_(g, x[0])), Some(g)];
    /// `e^a`.
    Exp = "exp", Float(1), cost 8, ulp 2, cuda "expf($0)", fast "exp_fast($0)" (1e-37, 5e-6),
        eval |x| x[0].exp(), adjoint |s, _, y, g| vec![Some(s.mul_(g, y))];
    /// `2^a`.
    Exp2 = "exp2", Float(1), cost 6, ulp 3, cuda "exp2f($0)", fast "exp2_fast($0)" (1e-37, 5e-7),
        eval |x| x[0].exp2(), adjoint |s, _, y, g| { let ln2 = s.k(std::f32::consts::LN_2); let d = s.mul_(y, ln2); vec![Some(s.mul_(g, d))] };
    /// Natural logarithm.
    Log = "log", Float(1), cost 10, ulp 1, cuda "logf($0)", fast "log_fast($0)" (4e-7, 1e-6),
        eval |x| x[0].ln(), adjoint |s, x, _, g| vec![Some(s.f(Op::Div, &[g, x[0]]))];
    /// `log(1 + a)`, accurate near 0.
    Log1p = "log1p", Float(1), cost 16, ulp 2, cuda "log1pf($0)",
        eval |x| x[0].ln_1p(), adjoint |s, x, _, g| { let one = s.k(1.0); let d = s.f(Op::Add, &[one, x[0]]); vec![Some(s.f(Op::Div, &[g, d]))] };
    /// `e^a - 1`, accurate near 0.
    Expm1 = "expm1", Float(1), cost 14, ulp 2, cuda "expm1f($0)",
        eval |x| x[0].exp_m1(), adjoint |s, _, y, g| { let one = s.k(1.0); let d = s.f(Op::Add, &[y, one]); vec![Some(s.mul_(g, d))] };
    /// Square root.
    Sqrt = "sqrt", Float(1), cost 10, ulp 0, cuda "sqrtf($0)", fast "sqrt_fast($0)" (1e-19, 5e-7),
        eval |x| x[0].sqrt(), adjoint |s, _, y, g| { let half = s.k(0.5); let h = s.mul_(g, half); vec![Some(s.f(Op::Div, &[h, y]))] };
    /// `1 / sqrt(a)`.
    Rsqrt = "rsqrt", Float(1), cost 6, ulp 2, cuda "rsqrtf($0)",
        eval |x| 1.0 / x[0].sqrt(), adjoint |s, x, y, g| {
            let c = s.k(-0.5); let h = s.mul_(g, c); let h = s.mul_(h, y); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// `1 / a`.
    Recip = "recip", Float(1), cost 8, ulp 1, cuda "1.0f / $0", fast "recip_fast($0)" (1e-37, 5e-7),
        eval |x| 1.0 / x[0], adjoint |s, _, y, g| { let y2 = s.mul_(y, y); let d = s.neg_(y2); vec![Some(s.mul_(g, d))] };
    /// `a` to the power `b`, as C's `powf`. The gradient of the exponent takes `log(a)` and is right for `a > 0`.
    Pow = "pow", Float(2), cost 40, ulp 4, cuda "powf($0, $1)",
        eval |x| x[0].powf(x[1]), adjoint |s, x, y, g| {
            let one = s.k(1.0);
            let e = s.f(Op::Sub, &[x[1], one]);
            let p = s.f(Op::Pow, &[x[0], e]);
            let zero = s.k(0.0);
            let da = s.mul_(x[1], p);
            let constant = s.f(Op::Eq, &[x[1], zero]); let da = s.f(Op::Select, &[constant, zero, da]);
            let log = s.f(Op::Log, &[x[0]]);
            let db = s.mul_(y, log);
            vec![Some(s.mul_(g, da)), Some(s.mul_(g, db))]
        };
    /// Hyperbolic tangent.
    Tanh = "tanh", Float(1), cost 16, ulp 2, cuda "tanhf($0)", fast "tanh_fast($0)" (1.5e-5, 1.5e-5),
        eval |x| x[0].tanh(), adjoint |s, _, y, g| {
            let one = s.k(1.0); let y2 = s.mul_(y, y); let d = s.f(Op::Sub, &[one, y2]); vec![Some(s.mul_(g, d))]
        };
    /// Error function.
    Erf = "erf", Float(1), cost 24, ulp 2, cuda "erff($0)",
        eval |x| libm::erf(x[0]), adjoint |s, x, _, g| {
            let x2 = s.mul_(x[0], x[0]); let n = s.neg_(x2); let e = s.f(Op::Exp, &[n]);
            let c = s.k(std::f32::consts::FRAC_2_SQRT_PI); let d = s.mul_(e, c); vec![Some(s.mul_(g, d))]
        };
    /// Sine; the argument is in radians.
    Sin = "sin", Float(1), cost 20, ulp 2, cuda "sinf($0)", fast "sin_fast($0)" (2e-6, 1e-6),
        eval |x| x[0].sin(), adjoint |s, x, _, g| { let d = s.f(Op::Cos, &[x[0]]); vec![Some(s.mul_(g, d))] };
    /// Cosine; the argument is in radians.
    Cos = "cos", Float(1), cost 20, ulp 2, cuda "cosf($0)", fast "cos_fast($0)" (2e-6, 1e-6),
        eval |x| x[0].cos(), adjoint |s, x, _, g| { let d = s.f(Op::Sin, &[x[0]]); let d = s.neg_(d); vec![Some(s.mul_(g, d))] };
    /// Largest integer not above.
    Floor = "floor", Float(1), cost 2, ulp 0, cuda "floorf($0)", eval |x| x[0].floor();
    /// Smallest integer not below.
    Ceil = "ceil", Float(1), cost 2, ulp 0, cuda "ceilf($0)", eval |x| x[0].ceil();
    /// Nearest integer, ties to even.
    Round = "round", Float(1), cost 2, ulp 0, cuda "rintf($0)", eval |x| x[0].round_ties_even();
    /// -1, 0 or 1; NaN of NaN.
    Sign = "sign", Float(1), cost 3, ulp 0, cuda "sign($0)",
        eval |x| if x[0] > 0.0 { 1.0 } else if x[0] < 0.0 { -1.0 } else { x[0] * 0.0 + if x[0].is_nan() { x[0] } else { 0.0 } };
    /// Remainder with the sign of the dividend, as C's `fmodf` and `%`. An integer modulo zero is 0.
    Rem = "rem", Numeric(2), cost 20, ulp 0, cuda "fmodf($0, $1)",
        i32 "remainder($0, $1)", |x| if x[1] == 0 { 0 } else { x[0].wrapping_rem(x[1]) },
        eval |x| x[0] % x[1], adjoint |s, x, y, g| {
            // As the remainder has it: a quotient by itself may round across an integer.
            let whole = s.f(Op::Sub, &[x[0], y]); let q = s.f(Op::Div, &[whole, x[1]]);
            let t = s.f(Op::Round, &[q]);
            let d = s.mul_(g, t);
            vec![Some(g), Some(s.neg_(d))]
        };
    /// `a == b`; false if either is NaN.
    Eq = "eq", Compare, cost 1, ulp 0, cuda "$0 == $1", eval |x| truth(x[0] == x[1]);
    /// `a != b`; true if either is NaN.
    Ne = "ne", Compare, cost 1, ulp 0, cuda "$0 != $1", eval |x| truth(x[0] != x[1]);
    /// `a < b`; false if either is NaN.
    Lt = "lt", Compare, cost 1, ulp 0, cuda "$0 < $1", eval |x| truth(x[0] < x[1]);
    /// `a <= b`; false if either is NaN.
    Le = "le", Compare, cost 1, ulp 0, cuda "$0 <= $1", eval |x| truth(x[0] <= x[1]);
    /// `a > b`; false if either is NaN.
    Gt = "gt", Compare, cost 1, ulp 0, cuda "$0 > $1", eval |x| truth(x[0] > x[1]);
    /// `a >= b`; false if either is NaN.
    Ge = "ge", Compare, cost 1, ulp 0, cuda "$0 >= $1", eval |x| truth(x[0] >= x[1]);
    /// Both.
    And = "and", Logic(2), cost 1, ulp 0, cuda "$0 && $1", eval |x| truth(x[0] != 0.0 && x[1] != 0.0),
        law |s, x| s.lattice(x, true);
    /// Either or both.
    Or = "or", Logic(2), cost 1, ulp 0, cuda "$0 || $1", eval |x| truth(x[0] != 0.0 || x[1] != 0.0),
        law |s, x| s.lattice(x, false);
    /// The opposite.
    Not = "not", Logic(1), cost 1, ulp 0, cuda "!$0", eval |x| truth(x[0] == 0.0), law |s, x| s.twice(Op::Not, x);
    /// The second operand where the first holds, else the third. Nothing of the other arm reaches the result, not even
    /// a NaN; that neither arm has effects makes it unobservable whether both are computed.
    Select = "select", Choice, cost 1, ulp 0, cuda "$0 ? $1 : $2",
        eval |x| if x[0] != 0.0 { x[1] } else { x[2] },
        picks [1, 2] |_, x| x[0],
        law |s, x| {
            let arm = |i: usize| s.operands(x[i], Op::Select).filter(|inner| inner[0] == x[0]).map(|inner| inner[i]);
            let becomes = |args: [NodeId; 3]| Some(Rewrite::Becomes(Node::Apply { op: Op::Select, args: args.to_vec() }));
            match (s.operands(x[0], Op::Not), arm(1), arm(2)) {
                _ if x[1] == x[2] => Some(Rewrite::Is(x[1])),
                (Some(inner), ..) => becomes([inner[0], x[2], x[1]]),
                (None, None, None) => None,
                (None, then, otherwise) => becomes([x[0], then.unwrap_or(x[1]), otherwise.unwrap_or(x[2])]),
            }
        };
    /// To `f32`; an integer rounds to nearest even.
    ToF32 = "to_f32", Convert(ValueType::F32), cost 1, ulp 0, cuda "float($0)", i32 "float($0)", |x| x[0],
        eval |x| x[0], adjoint |_, _, _, g| vec![Some(g)];
    /// To `i32`: towards zero, saturating; NaN gives 0.
    ToI32 = "to_i32", Convert(ValueType::I32), cost 2, ulp 0, cuda "to_int($0)", i32 "int($0)", |x| x[0],
        eval |x| f64::from(x[0] as i32);
    /// To a truth value: whether it differs from 0. NaN gives true.
    ToBool = "to_bool", Convert(ValueType::Bool), cost 1, ulp 0, cuda "($0 != 0)", eval |x| truth(x[0] != 0.0);
    /// Rounds to the nearest `f16`, ties to even; stays an `f32` value. The gradient passes straight through.
    RoundF16 = "round_f16", Float(1), cost 2, ulp 0, cuda "widen(Narrow<f16>::of($0))",
        eval |x| DType::F16.round(x[0]), adjoint |_, _, _, g| vec![Some(g)];
    /// Rounds to the nearest `bf16`, ties to even; stays an `f32` value. The gradient passes straight through.
    RoundBf16 = "round_bf16", Float(1), cost 2, ulp 0, cuda "widen(Narrow<bf16>::of($0))",
        eval |x| DType::BF16.round(x[0]), adjoint |_, _, _, g| vec![Some(g)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete() {
        for &op in Op::ALL {
            let row = op.row();
            assert_eq!(Op::from_name(row.name), Some(op));
            assert_eq!(serde_json::to_string(&op).unwrap(), format!("\"{}\"", row.name));
            assert!(row.doc.trim().len() > 3, "{} has no doc", row.name);
            let spellings = [Some(row.cuda), Some(row.cuda_i32), row.fast.map(|f| f.cuda)];
            for spelling in spellings.into_iter().flatten() {
                for operand in 0..row.signature.arity() {
                    assert!(spelling.contains(&format!("${operand}")), "{}: `{spelling}` drops operand {operand}", row.name);
                }
                assert!(!spelling.contains(&format!("${}", row.signature.arity())), "{}: `{spelling}`", row.name);
            }
            let integers = matches!(row.signature, Numeric(_));
            assert!(!integers || row.eval_i32.is_some(), "{} has no i32 value", row.name);
        }
    }

    #[test]
    fn integer_edges_are_defined() {
        let value = |op: Op, x: &[i32]| (op.row().eval_i32.unwrap())(x);
        assert_eq!(value(Op::Div, &[7, 0]), 0);
        assert_eq!(value(Op::Rem, &[7, 0]), 0);
        assert_eq!(value(Op::Div, &[i32::MIN, -1]), i32::MIN);
        assert_eq!(value(Op::Rem, &[i32::MIN, -1]), 0);
        assert_eq!(value(Op::Div, &[-7, 2]), -3);
        assert_eq!(value(Op::Rem, &[-7, 2]), -1);
        assert_eq!(value(Op::Mul, &[i32::MAX, 2]), -2);
    }

    #[test]
    fn edges_of_floats_are_defined() {
        let value = |op: Op, x: &[f64]| (op.row().eval)(x);
        assert!(value(Op::Max, &[f64::NAN, 0.0]).is_nan() && value(Op::Min, &[0.0, f64::NAN]).is_nan());
        for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
            let signs = [Op::Max, Op::Min].map(|op| value(op, &zeros).is_sign_negative());
            assert_eq!(signs, [false, true], "{zeros:?}");
        }
        assert!(value(Op::Sign, &[f64::NAN]).is_nan());
        assert_eq!(value(Op::Sign, &[-0.0]), 0.0);
        assert_eq!(value(Op::Round, &[2.5]), 2.0);
        assert_eq!(value(Op::ToI32, &[f64::NAN]), 0.0);
        assert_eq!(value(Op::ToI32, &[3e9]), f64::from(i32::MAX));
        assert_eq!(value(Op::Select, &[1.0, 2.0, f64::NAN]), 2.0);
    }
}
