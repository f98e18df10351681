//! THE table of primitives. One row holds everything about one primitive: name, doc, typing, CUDA spelling, value,
//! derivative, cost and error bound. The enum, the names in text and JSON, the listing in the docs and the tests come
//! from the table. No code outside this folder matches on a primitive.
//!
//! In a spelling, `$0`, `$1`, `$2` stand for the operands, which the printer has already made atomic expressions.
//! Values are evaluated in `f64`. An `f32` primitive is its exact value rounded once to `f32`. The reference executor
//! computes this value, and error bounds are measured against it. Integers and truth values are exact in `f64`. The
//! value for `f64` operands is that of this machine's library in `f64`, without another rounding.

use super::graph::{Graph, Node, NodeId};
use crate::dtype::{DType, ValueType};

/// Where a spelling is tested: the intervals of each operand's values. The last entry also applies to the operands that
/// follow.
pub type Domain = &'static [&'static [[f32; 2]]];

/// The domain of a row that states none.
const WIDE: Domain = &[&[[-1000.0, 1000.0]]];

/// A cheaper spelling, used if every stored matrix is 16 bit or narrower, and its distance from the exact value.
#[derive(Clone, Copy, Debug)]
pub struct Fast {
    /// The spelling.
    pub cuda: &'static str,
    /// Largest absolute error on the tested range.
    pub absolute: f64,
    /// Largest relative error on the tested range; an error within either bound passes.
    pub relative: f64,
    /// The tested range, for which the approximation is meant.
    pub domain: Domain,
    /// Issue slots for one element, roughly, on the scale of [`Row::cost`].
    pub cost: u32,
    /// Machine instructions, roughly.
    pub code: u32,
}

/// Gradients of the operands from the operands, the result and the result's gradient; `None` for a gradient of zero.
pub type Adjoint = fn(&mut Graph, &[NodeId], NodeId, NodeId) -> Vec<Option<NodeId>>;

/// How a primitive selects one of its operands as its result.
#[derive(Clone, Copy, Debug)]
pub struct Picks {
    /// The two operands. The first is selected if the condition holds.
    pub arms: [usize; 2],
    /// The condition.
    pub condition: fn(&mut Graph, &[NodeId]) -> NodeId,
}

/// A replacement for an application of a primitive, equal bit for bit.
#[derive(Clone, Debug)]
pub enum Rewrite {
    /// An existing value.
    Is(NodeId),
    /// A simpler node.
    Becomes(Node),
}

/// Replaces an application if that changes no bit of its value, whatever the operands are.
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
    /// The format that it rounds to, if a part of the prelude must be included for it.
    pub format: Option<DType>,
    /// Exact CUDA spelling for `f32` (or the only one).
    pub cuda: &'static str,
    /// CUDA spelling for `i32`, if it differs.
    pub cuda_i32: &'static str,
    /// CUDA spelling for `f64`, if it differs.
    pub cuda_f64: &'static str,
    /// The cheaper spelling, if there is one.
    pub fast: Option<Fast>,
    /// The value.
    pub eval: fn(&[f64]) -> f64,
    /// The value for `i32` operands, if arithmetic wraps. Operands of a division may be anything.
    pub eval_i32: Option<fn(&[i32]) -> i32>,
    /// The derivative; `None` if it is zero or undefined everywhere (comparisons, rounding, logic), or if the primitive
    /// selects an operand, which determines its derivative.
    pub adjoint: Option<Adjoint>,
    /// How it selects an operand, if it does: the gradient goes to the selected operand.
    pub picks: Option<Picks>,
    /// Its replacement for special operands.
    pub law: Option<Law>,
    /// The value as a sum of products, if it is one: of each the operands that it multiplies, and whether it is subtracted.
    pub products: &'static [(bool, &'static [usize])],
    /// Issue slots of the exact spelling for one element, roughly: one for an instruction, and seven for one of the
    /// special-function unit.
    pub cost: u32,
    /// Machine instructions of the exact spelling where it is inlined, roughly: its cost for the compiler. By default
    /// the issue slots, unless the code contains a long path that few elements take.
    pub code: u32,
    /// Whether the exact spelling for `f32`, where it is inlined, jumps to a long path for a few operands. The compiler takes
    /// long where many of them stand in one kernel (`docs/measurements/0068-compile-outliers.md`).
    pub forks: bool,
    /// Where the exact spelling is tested.
    pub domain: Domain,
    /// Largest error of the exact spelling, in units in the last place of the `f32` result. 0: bit-exact, may be
    /// folded.
    pub ulp: u32,
    /// The same for the `f64` spelling, in units of the `f64` result. The bounds are those of CUDA's documentation.
    pub ulp_f64: u32,
}

macro_rules! primitives {
    ($( $(#[doc = $doc:literal])+ $(#[doc(alias = $alias:literal)])* $variant:ident = $name:literal
        $(method ($method:ident($($p:ident),*)))?, $sig:expr, cost $cost:literal,
        $(code $code:literal $($forks:ident)?,)? $(format $format:ident,)? ulp $ulp:tt,
        $(domain $domain:expr,)? cuda $cuda:literal
        $(, f64 $cuda_f64:literal within $ulp_f64:literal)?
        $(, integers $integers:expr)? $(, i32 $cuda_i32:literal, $eval_i32:expr)?
        $(, fast $fast:literal ($abs:literal, $rel:literal) $(cost $fast_cost:literal)? $(code $fast_code:literal)? on $on:expr)?
        $(, eval $eval:expr)? $(, adjoint $adjoint:expr)? $(, picks $arms:tt $condition:expr)? $(, law $law:expr)?
        $(, products $products:expr)?; )*) => {
        /// A primitive of the epilogue graph. The [table](crate::ir::op) defines each one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Op { $(
            $(#[doc = $doc])+
            #[doc = ""]
            #[doc = primitives!(@accuracy $ulp $($abs $rel)?)]
            $(#[doc(alias = $alias)])*
            #[serde(rename = $name)]
            $variant,
        )* }

        impl Op {
            /// Every primitive, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];
        }

        pub(super) static TABLE: &[Row] = &[$( Row {
            name: $name,
            doc: concat!($($doc),+),
            signature: $sig,
            format: primitives!(@opt $(DType::$format)?),
            cuda: $cuda,
            cuda_i32: primitives!(@or $cuda $(, $cuda_i32)?),
            cuda_f64: primitives!(@or $cuda $(, $cuda_f64)?),
            fast: primitives!(@opt $(Fast {
                cuda: $fast,
                absolute: $abs,
                relative: $rel,
                domain: $on,
                cost: primitives!(@or $cost $(, $fast_cost)?),
                code: primitives!(@or 4 $(, $fast_code)?),
            })?),
            eval: primitives!(@eval $($eval)? $(; $integers)?),
            eval_i32: primitives!(@opt $($eval_i32 as fn(&[i32]) -> i32)? $($integers as fn(&[i32]) -> i32)?),
            adjoint: primitives!(@opt $($adjoint as Adjoint)?),
            picks: primitives!(@opt $(Picks { arms: $arms, condition: $condition })?),
            law: primitives!(@opt $($law as Law)?),
            products: primitives!(@products $($products)?),
            cost: $cost,
            code: primitives!(@or $cost $(, $code)?),
            forks: primitives!(@forks $($($forks)?)?),
            domain: primitives!(@domain $($domain)?),
            ulp: $ulp,
            ulp_f64: primitives!(@or $ulp $(, $ulp_f64)?),
        } ),*];

        /// Passes every row to `builder_method!`: its documentation, its variant, and its method, if it has one.
        macro_rules! primitive_methods {
            () => { $( builder_method! {
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = primitives!(@accuracy $ulp $($abs $rel)?)]
                #[doc = ""]
                #[doc = concat!("It is the primitive [`Op::", stringify!($variant), "`].")]
                $(#[doc(alias = $alias)])*
                $variant $($method($($p),*))?
            } )* };
        }
        pub(crate) use primitive_methods;
    };
    (@accuracy 0) => { "Kernels compute it exactly." };
    (@accuracy 0 $abs:literal $rel:literal) => { concat!("Kernels compute it exactly", primitives!(@fast $abs $rel)) };
    (@accuracy $ulp:tt $($abs:literal $rel:literal)?) => {
        concat!("Kernels are within ", $ulp, " ulp of the exact `f32` value", primitives!(@fast $($abs $rel)?))
    };
    (@fast) => { "." };
    (@fast $abs:literal $rel:literal) => {
        concat!("; where only 16-bit results are stored, within ", $rel, " of it (relative) or ", $abs, " (absolute).")
    };
    (@or $a:literal) => { $a };
    (@or $a:literal, $b:literal) => { $b };
    (@opt) => { None };
    (@opt $e:expr) => { Some($e) };
    (@products) => { &[] };
    (@products $products:expr) => { &$products };
    (@eval $eval:expr) => { $eval };
    (@eval ; $eval:expr) => { |x| integers($eval, x) };
    (@forks) => { false };
    (@forks forks) => { true };
    (@domain) => { super::WIDE };
    (@domain $domain:expr) => { $domain };
}
pub(crate) use primitives;

mod condition;
mod laws;
mod signature;
mod table;
mod values;

pub(crate) use condition::Condition;
pub use signature::Signature;
pub use table::Op;
pub(crate) use table::primitive_methods;

impl Op {
    /// The row.
    pub fn row(self) -> &'static Row {
        &table::TABLE[self as usize]
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether it is the larger of its operands, and NaN where one of them is.
    pub(crate) fn is_maximum(self) -> bool {
        self == Op::Max
    }

    /// Whether it says that both of its operands are equal.
    pub(crate) fn is_equality(self) -> bool {
        self == Op::Eq
    }

    /// The primitive of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Whether the value jumps: operands that differ by a rounding may give values that differ by more.
    pub fn jumps(self) -> bool {
        let row = self.row();
        self == Op::Rem || !row.is_differentiable() && row.signature.takes_floats()
    }

    /// Whether the exact spelling for `f32` [forks](Row::forks).
    pub(crate) fn forks(self) -> bool {
        self.row().forks
    }

    /// The conversion to a format. For `f32`, `f64`, `i32` and `bool` it changes the type. For other formats it rounds
    /// like a store, and its result has the type of a load from that format. Integers of four bits, which no epilogue
    /// stores, convert as those of eight.
    pub fn cast(to: DType) -> Op {
        match to {
            DType::F32 => Op::ToF32,
            DType::F64 => Op::ToF64,
            DType::I32 => Op::ToI32,
            DType::Bool | DType::Bits8 | DType::Bits128 => Op::ToBool,
            DType::F16 => Op::RoundF16,
            DType::BF16 => Op::RoundBf16,
            DType::E4M3 => Op::RoundE4m3,
            DType::E5M2 => Op::RoundE5m2,
            DType::I8 | DType::I4 => Op::ToI8,
            DType::U8 | DType::U4 => Op::ToU8,
        }
    }
}

impl Row {
    /// The test intervals of an operand.
    pub fn intervals(domain: Domain, operand: usize) -> &'static [[f32; 2]] {
        domain[operand.min(domain.len() - 1)]
    }

    /// The exact CUDA spelling for operands whose first has this type.
    pub fn spelling(&self, first: Option<ValueType>) -> &'static str {
        match first {
            _ if self.signature == Signature::Select => self.cuda,
            Some(ValueType::I32) => self.cuda_i32,
            Some(ValueType::F64) => self.cuda_f64,
            _ => self.cuda,
        }
    }

    /// Whether its value on operands of these types is the same on every machine.
    pub fn is_exact(&self, operands: &[ValueType]) -> bool {
        (if operands.contains(&ValueType::F64) { self.ulp_f64 } else { self.ulp }) == 0
    }

    /// The value on operands of these types, if they and the result are integers.
    pub fn on_integers(&self, operands: &[ValueType]) -> Option<fn(&[i32]) -> i32> {
        let is_same = matches!(self.signature, Signature::Same { gives: None, .. });
        self.eval_i32.filter(|_| is_same && operands.iter().all(|t| *t == ValueType::I32))
    }

    /// Gradients of the operands from the operands, the result and the result's gradient, `None` for a gradient of
    /// zero; no list if there is no derivative.
    pub fn gradients(&self, graph: &mut Graph, args: &[NodeId], y: NodeId, g: NodeId) -> Option<Vec<Option<NodeId>>> {
        if let Some(Picks { arms, condition }) = self.picks {
            let condition = condition(graph, args);
            let zero = graph.k(g, 0.0);
            let mut gradients = vec![None; args.len()];
            gradients[arms[0]] = Some(graph.f(Op::Select, &[condition, g, zero]));
            gradients[arms[1]] = Some(graph.f(Op::Select, &[condition, zero, g]));
            return Some(gradients);
        }
        self.adjoint.map(|adjoint| adjoint(graph, args, y, g))
    }

    /// Issue slots for one element, roughly, in the spelling that a kernel uses.
    pub fn cost_of(&self, fast_math: bool) -> u32 {
        self.fast.filter(|_| fast_math).map_or(self.cost, |fast| fast.cost)
    }

    /// Whether a gradient flows through.
    pub fn is_differentiable(&self) -> bool {
        self.adjoint.is_some() || self.picks.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_add_up_to_the_value() {
        let mut with_products = 0;
        for row in Op::ALL.iter().map(|op| op.row()).filter(|row| !row.products.is_empty()) {
            let x: Vec<f64> = [1.5, -2.25, 3.0].into_iter().take(row.signature.arity()).collect();
            let product = |operands: &[usize]| operands.iter().map(|&i| x[i]).product::<f64>();
            let sum: f64 = row.products.iter().map(|(less, of)| if *less { -product(of) } else { product(of) }).sum();
            assert_eq!((row.eval)(&x), sum, "{}", row.name);
            with_products += 1;
        }
        assert_eq!(with_products, 5, "add, sub, mul, neg, fma");
    }

    #[test]
    fn every_row_is_complete() {
        for &op in Op::ALL {
            let row = op.row();
            assert_eq!(Op::from_name(row.name), Some(op));
            assert_eq!(serde_json::to_string(&op).unwrap(), format!("\"{}\"", row.name));
            assert!(row.doc.trim().len() > 3, "{} has no doc", row.name);
            let spellings = [Some(row.cuda), Some(row.cuda_i32), Some(row.cuda_f64), row.fast.map(|f| f.cuda)];
            for spelling in spellings.into_iter().flatten() {
                for operand in 0..row.signature.arity() {
                    assert!(spelling.contains(&format!("${operand}")), "{}: `{spelling}` drops operand {operand}", row.name);
                }
                assert!(!spelling.contains(&format!("${}", row.signature.arity())), "{}: `{spelling}`", row.name);
            }
            let integers = row.signature.result(&vec![ValueType::I32; row.signature.arity()]) == Some(ValueType::I32);
            // The spelling for doubles must not use single precision.
            let takes_doubles = row.signature.result(&vec![ValueType::F64; row.signature.arity()]).is_some();
            let words = row.cuda_f64.split(|c: char| !c.is_alphanumeric() && c != '_');
            let single =
                |word: &str| word.ends_with('f') && !["erf", "normcdf", "of"].contains(&word) || word.ends_with("_float");
            let single: Vec<&str> = words.filter(|word| single(word)).collect();
            assert!(!takes_doubles || single.is_empty(), "{}: {single:?} of f64", row.name);
            let by_eval = matches!(row.signature, Signature::Convert(_) | Signature::Select);
            assert!(!integers || by_eval || row.eval_i32.is_some(), "{} has no i32 value", row.name);
            for domain in [Some(row.domain), row.fast.map(|fast| fast.domain)].into_iter().flatten() {
                assert!((1..=row.signature.arity()).contains(&domain.len()), "{}: {domain:?}", row.name);
                assert!(domain.iter().all(|of| of.iter().all(|[low, high]| low < high)), "{}: {domain:?}", row.name);
            }
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
        // Python's quotients and remainders, for every pair of signs.
        for (a, b, quotient, rest) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -2, -3, 0), (7, 0, 0, 0)]
        {
            assert_eq!([value(Op::FloorDiv, &[a, b]), value(Op::FloorMod, &[a, b])], [quotient, rest], "{a} {b}");
        }
        assert_eq!(value(Op::FloorDiv, &[i32::MIN, -1]), i32::MIN);
        assert_eq!(value(Op::FloorMod, &[i32::MIN, -1]), 0);
        assert_eq!(value(Op::FloorMod, &[i32::MIN, i32::MAX]), i32::MAX - 1);
        for (by, left, right) in [(0, -5, -5), (1, -10, -3), (31, i32::MIN, -1), (32, 0, -1), (-1, 0, -1), (i32::MIN, 0, -1)] {
            assert_eq!([value(Op::Shl, &[-5, by]), value(Op::Shr, &[-5, by])], [left, right], "by {by}");
        }
        assert_eq!(value(Op::Shr, &[5, 99]), 0);
        assert_eq!(value(Op::Popcount, &[-1]), 32);
        assert_eq!(value(Op::Sign, &[i32::MIN]), -1);
    }

    #[test]
    fn edges_of_floats_are_defined() {
        let value = |op: Op, x: &[f64]| (op.row().eval)(x);
        assert!(value(Op::Max, &[f64::NAN, 0.0]).is_nan() && value(Op::Min, &[0.0, f64::NAN]).is_nan());
        for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
            let signs = [Op::Max, Op::Min].map(|op| value(op, &zeros).is_sign_negative());
            assert_eq!(signs, [false, true], "{zeros:?}");
        }
        assert_eq!([value(Op::MinNum, &[f64::NAN, 1.0]), value(Op::MaxNum, &[1.0, f64::NAN])], [1.0, 1.0]);
        assert!(value(Op::MinNum, &[f64::NAN, f64::NAN]).is_nan());
        assert!(value(Op::Copysign, &[2.0, -0.0]) == -2.0);
        assert_eq!(value(Op::ToBits, &[-0.0]), f64::from(i32::MIN));
        assert_eq!(value(Op::FromBits, &[f64::from(0x3f80_0000)]), 1.0);
        assert!(value(Op::Sign, &[f64::NAN]).is_nan());
        assert_eq!(value(Op::Sign, &[-0.0]), 0.0);
        assert_eq!(value(Op::Round, &[2.5]), 2.0);
        assert_eq!(value(Op::ToI32, &[f64::NAN]), 0.0);
        assert_eq!(value(Op::ToI32, &[3e9]), f64::from(i32::MAX));
        assert_eq!(value(Op::Select, &[1.0, 2.0, f64::NAN]), 2.0);
    }
}
