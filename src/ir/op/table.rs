//! The rows of THE table of primitives, and nothing else. [`super`] explains what the columns mean.

use super::Signature::{Compare, Convert, Float, Logic, Numeric, Select as Choice};
use super::laws::truth;
use super::{Adjoint, Fast, Law, Picks, Rewrite, Row};
use crate::dtype::{DType, ValueType};
use crate::ir::NodeId;
use crate::ir::graph::Node;
use crate::ir::monoid::{larger, smaller};
use serde::{Deserialize, Serialize};

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
    Div = "div", Numeric(2), cost 10, code 19, ulp 1, cuda "$0 / $1",
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
    /// `|a|`. Its derivative at 0 and at NaN is 0.
    Abs = "abs", Numeric(1), cost 1, ulp 0, cuda "fabsf($0)", i32 "($0 < 0 ? wrap_sub(0, $0) : $0)", |x| x[0].wrapping_abs(),
        eval |x| x[0].abs(), adjoint |s, x, _, g| {
            // By two conditions, which are two bits to save; a sign would be a number.
            let zero = s.k(0.0); let below = s.f(Op::Lt, &[x[0], zero]); let above = s.f(Op::Gt, &[x[0], zero]);
            let negated = s.neg_(g); let rest = s.f(Op::Select, &[below, negated, zero]);
            vec![Some(s.f(Op::Select, &[above, g, rest]))]
        };
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
    Log = "log", Float(1), cost 10, code 25, ulp 1, cuda "logf($0)", fast "log_fast($0)" (4e-7, 1e-6),
        eval |x| x[0].ln(), adjoint |s, x, _, g| vec![Some(s.f(Op::Div, &[g, x[0]]))];
    /// `log(1 + a)`, accurate near 0.
    Log1p = "log1p", Float(1), cost 16, code 28, ulp 2, cuda "log1pf($0)",
        eval |x| x[0].ln_1p(), adjoint |s, x, _, g| { let one = s.k(1.0); let d = s.f(Op::Add, &[one, x[0]]); vec![Some(s.f(Op::Div, &[g, d]))] };
    /// `e^a - 1`, accurate near 0.
    Expm1 = "expm1", Float(1), cost 14, code 36, ulp 2, cuda "expm1f($0)",
        eval |x| x[0].exp_m1(), adjoint |s, _, y, g| { let one = s.k(1.0); let d = s.f(Op::Add, &[y, one]); vec![Some(s.mul_(g, d))] };
    /// Square root.
    Sqrt = "sqrt", Float(1), cost 10, code 16, ulp 0, cuda "sqrtf($0)", fast "sqrt_fast($0)" (1e-19, 5e-7),
        eval |x| x[0].sqrt(), adjoint |s, _, y, g| { let half = s.k(0.5); let h = s.mul_(g, half); vec![Some(s.f(Op::Div, &[h, y]))] };
    /// `1 / sqrt(a)`.
    Rsqrt = "rsqrt", Float(1), cost 6, ulp 2, cuda "rsqrtf($0)",
        eval |x| 1.0 / x[0].sqrt(), adjoint |s, x, y, g| {
            let c = s.k(-0.5); let h = s.mul_(g, c); let h = s.mul_(h, y); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// `1 / a`.
    Recip = "recip", Float(1), cost 8, code 17, ulp 1, cuda "1.0f / $0", fast "recip_fast($0)" (1e-37, 5e-7),
        eval |x| 1.0 / x[0], adjoint |s, _, y, g| { let y2 = s.mul_(y, y); let d = s.neg_(y2); vec![Some(s.mul_(g, d))] };
    /// `a` to the power `b`, as C's `powf`. The gradient of the exponent takes `log(a)` and is right for `a > 0`.
    Pow = "pow", Float(2), cost 40, code 90, ulp 4, cuda "powf($0, $1)",
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
    Sin = "sin", Float(1), cost 20, code 90, ulp 2, cuda "sinf($0)", fast "sin_fast($0)" (2e-6, 1e-6),
        eval |x| x[0].sin(), adjoint |s, x, _, g| { let d = s.f(Op::Cos, &[x[0]]); vec![Some(s.mul_(g, d))] };
    /// Cosine; the argument is in radians.
    Cos = "cos", Float(1), cost 20, code 90, ulp 2, cuda "cosf($0)", fast "cos_fast($0)" (2e-6, 1e-6),
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
    Rem = "rem", Numeric(2), cost 20, code 75, ulp 0, cuda "fmodf($0, $1)",
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
