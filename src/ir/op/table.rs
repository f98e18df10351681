//! The rows of THE table of primitives, and nothing else. [`super`] explains the columns.

use super::Signature::{Convert, Select as Choice};
use super::laws::{integers, truth};
use super::signature::shorthands::{COMPARE, EQUATE, ROUNDS, TEST, bits, bitwise, float, integer, numeric};
use super::{Adjoint, Fast, Law, Picks, Rewrite, Row, values};
use crate::dtype::{DType, ValueType};
use crate::ir::NodeId;
use crate::ir::graph::{Graph, Node};
use crate::ir::monoid::{larger, smaller};
use serde::{Deserialize, Serialize};

primitives! {
    /// `a + b`.
    Add = "add", numeric(2), cost 1, ulp 1, cuda "$0 + $1", i32 "wrap_add($0, $1)", |x| x[0].wrapping_add(x[1]),
        eval |x| x[0] + x[1], adjoint |_, _, _, g| vec![Some(g), Some(g)],
        law |s, x| s.without(x, -0.0, 0),
        products [(false, &[0]), (false, &[1])];
    /// `a - b`.
    Sub = "sub", numeric(2), cost 1, ulp 1, cuda "$0 - $1", i32 "wrap_sub($0, $1)", |x| x[0].wrapping_sub(x[1]),
        eval |x| x[0] - x[1], adjoint |s, _, _, g| vec![Some(g), Some(s.neg_(g))],
        law |s, x| s.is(x[1], 0.0, 0).then_some(Rewrite::Is(x[0])),
        products [(false, &[0]), (true, &[1])];
    /// `a * b`.
    Mul = "mul", numeric(2), cost 1, ulp 1, cuda "$0 * $1", i32 "wrap_mul($0, $1)", |x| x[0].wrapping_mul(x[1]),
        eval |x| x[0] * x[1], adjoint |s, x, _, g| if x[0] == x[1] {
            // A square: what is the same for a row is doubled once for the row.
            let twice = s.f(Op::Add, &[g, g]);
            vec![Some(s.mul_(twice, x[0])), None]
        } else {
            vec![Some(s.mul_(g, x[1])), Some(s.mul_(g, x[0]))]
        },
        law |s, x| s.without(x, 1.0, 1), products [(false, &[0, 1])];
    /// `a / b`. Integers truncate towards zero; dividing an integer by zero gives 0. The fast form gives 0 where `|b|`
    /// exceeds 2^126.
    Div = "div", numeric(2), cost 10, code 19 forks, ulp 1, cuda "$0 / $1",
        i32 "divide($0, $1)", |x| if x[1] == 0 { 0 } else { x[0].wrapping_div(x[1]) },
        fast "__fdividef($0, $1)" (1e-37, 5e-7) on &[&[[-1000.0, 1000.0]], &[[-1000.0, -1e-37], [1e-37, 1000.0]]],
        eval |x| x[0] / x[1], adjoint |s, x, y, g| {
            let gx = s.f(Op::Div, &[g, x[1]]);
            let gy = s.mul_(gx, y);
            vec![Some(gx), Some(s.neg_(gy))]
        },
        law |s, x| s.is(x[1], 1.0, 1).then_some(Rewrite::Is(x[0]));
    /// `-a`.
    #[doc(alias = "negative")]
    Neg = "neg", numeric(1), cost 1, ulp 0, cuda "-$0", i32 "wrap_sub(0, $0)", |x| x[0].wrapping_neg(),
        eval |x| -x[0], adjoint |s, _, _, g| vec![Some(s.neg_(g))], law |s, x| s.twice(Op::Neg, x),
        products [(true, &[0])];
    /// `|a|`. Its derivative at 0 and at NaN is 0.
    #[doc(alias = "fabs")]
    #[doc(alias = "absolute")]
    Abs = "abs" method (abs()), numeric(1), cost 1, ulp 0, cuda "fabsf($0)", f64 "fabs($0)" within 0,
        i32 "($0 < 0 ? wrap_sub(0, $0) : $0)", |x| x[0].wrapping_abs(),
        eval |x| x[0].abs(), adjoint |s, x, _, g| {
            // Two conditions take two bits to save; a sign would be a number.
            let zero = s.k(g, 0.0); let below = s.f(Op::Lt, &[x[0], zero]); let above = s.f(Op::Gt, &[x[0], zero]);
            let negated = s.neg_(g); let rest = s.f(Op::Select, &[below, negated, zero]);
            vec![Some(s.f(Op::Select, &[above, g, rest]))]
        };
    /// The smaller value, and -0 of two zeros; NaN if either is NaN. If both are equal the gradient goes to the second.
    #[doc(alias = "minimum")]
    #[doc(alias = "fminimum")]
    Min = "min" method (min(b)), numeric(2), cost 1, ulp 0, cuda "min_nan($0, $1)", i32 "($0 < $1 ? $0 : $1)", |x| x[0].min(x[1]),
        eval |x| smaller(x[0], x[1]),
        picks [0, 1] |s, x| s.f(Op::Lt, x);
    /// The larger value, and +0 of two zeros; NaN if either is NaN, so `max(x, 0)` is the NaN-propagating ReLU. If both
    /// are equal the gradient goes to the second.
    #[doc(alias = "maximum")]
    #[doc(alias = "fmaximum")]
    Max = "max" method (max(b)), numeric(2), cost 1, ulp 0, cuda "max_nan($0, $1)", i32 "($0 > $1 ? $0 : $1)", |x| x[0].max(x[1]),
        eval |x| larger(x[0], x[1]),
        picks [0, 1] |s, x| s.f(Op::Gt, x);
    /// `a * b + c`, rounded once.
    #[doc(alias = "mul_add")]
    #[doc(alias = "addcmul")]
    Fma = "fma" method (fma(b, c)), numeric(3), cost 1, ulp 1, cuda "fmaf($0, $1, $2)", f64 "fma($0, $1, $2)" within 1,
        i32 "wrap_add(wrap_mul($0, $1), $2)", |x| x[0].wrapping_mul(x[1]).wrapping_add(x[2]),
        eval |x| x[0].mul_add(x[1], x[2]),
        adjoint |s, x, _, g| vec![Some(s.mul_(g, x[1])), Some(s.mul_(g, x[0])), Some(g)],
        products [(false, &[0, 1]), (false, &[2])];
    /// `e^a`.
    Exp = "exp" method (exp()), float(1), cost 8, ulp 2, domain &[&[[-150.0, 130.0]]], cuda "expf($0)", f64 "exp($0)" within 1,
        fast "exp_fast($0)" (1e-37, 5e-6) on &[&[[-87.0, 88.0]]],
        eval |x| x[0].exp(), adjoint |s, _, y, g| vec![Some(s.mul_(g, y))];
    /// `2^a`.
    Exp2 = "exp2" method (exp2()), float(1), cost 6, ulp 3, domain &[&[[-150.0, 130.0]]], cuda "exp2f($0)",
        f64 "exp2($0)" within 1,
        fast "exp2_fast($0)" (1e-37, 5e-7) on &[&[[-126.0, 127.9]]],
        eval |x| x[0].exp2(), adjoint |s, _, y, g| {
            let ln2 = s.k(g, std::f64::consts::LN_2); let d = s.mul_(y, ln2); vec![Some(s.mul_(g, d))]
        };
    /// Natural logarithm: -inf at 0, NaN below.
    #[doc(alias = "ln")]
    Log = "log" method (log()), float(1), cost 10, code 25, ulp 1, domain &[&[[0.0, f32::MAX]]], cuda "logf($0)",
        f64 "log($0)" within 1, fast "log_fast($0)" (4e-7, 1e-6) on &[&[[f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| x[0].ln(), adjoint |s, x, _, g| vec![Some(s.f(Op::Div, &[g, x[0]]))];
    /// `log(1 + a)`, accurate near 0; NaN if `a < -1`.
    #[doc(alias = "ln_1p")]
    Log1p = "log1p" method (log1p()), float(1), cost 16, code 28 forks, ulp 2, domain &[&[[-1.0, f32::MAX]]],
        cuda "log1pf($0)", f64 "log1p($0)" within 1,
        fast "log1p_fast($0)" (1e-37, 4e-6) cost 15 code 10 on &[&[[-1.0, f32::MAX]]],
        eval |x| x[0].ln_1p(), adjoint |s, x, _, g| {
            let one = s.k(g, 1.0); let d = s.f(Op::Add, &[one, x[0]]); vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// `e^a - 1`, accurate near 0.
    #[doc(alias = "exp_m1")]
    Expm1 = "expm1" method (expm1()), float(1), cost 14, code 36, ulp 2, domain &[&[[-150.0, 130.0]]], cuda "expm1f($0)",
        f64 "expm1($0)" within 1,
        fast "expm1_fast($0)" (1e-37, 5e-5) cost 12 code 7 on &[&[[-f32::MAX, 88.0]]],
        eval |x| x[0].exp_m1(), adjoint |s, _, y, g| {
            let one = s.k(g, 1.0); let d = s.f(Op::Add, &[y, one]); vec![Some(s.mul_(g, d))]
        };
    /// Square root; NaN below 0.
    Sqrt = "sqrt" method (sqrt()), float(1), cost 10, code 16 forks, ulp 0, domain &[&[[0.0, f32::MAX]]], cuda "sqrtf($0)",
        f64 "sqrt($0)" within 0, fast "sqrt_fast($0)" (1e-19, 5e-7) on &[&[[f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| x[0].sqrt(), adjoint |s, _, y, g| {
            let half = s.k(g, 0.5); let h = s.mul_(g, half); vec![Some(s.f(Op::Div, &[h, y]))]
        };
    /// `1 / sqrt(a)`: inf at 0, NaN below.
    Rsqrt = "rsqrt" method (rsqrt()), float(1), cost 6, ulp 2, domain &[&[[0.0, f32::MAX]]], cuda "rsqrtf($0)",
        f64 "rsqrt($0)" within 1,
        fast "rsqrt_fast($0)" (1e-37, 3e-7) cost 6 code 2 on &[&[[f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| 1.0 / x[0].sqrt(), adjoint |s, x, y, g| {
            let c = s.k(g, -0.5); let h = s.mul_(g, c); let h = s.mul_(h, y); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// `1 / a`.
    #[doc(alias = "reciprocal")]
    Recip = "recip" method (recip()), float(1), cost 8, code 17 forks, ulp 1, cuda "1.0f / $0", f64 "1.0 / $0" within 1,
        fast "recip_fast($0)" (1e-37, 5e-7) on &[&[[-1e37, -1e-37], [1e-37, 1e37]]],
        eval |x| 1.0 / x[0], adjoint |s, _, y, g| { let y2 = s.mul_(y, y); let d = s.neg_(y2); vec![Some(s.mul_(g, d))] };
    /// `a` to the power `b`, as C's `powf`. The gradient of the exponent uses `log(a)` and is correct for `a > 0`. The
    /// fast form treats `a` below 2^-126 as 0, and takes exponents up to 2^22.
    #[doc(alias = "powf")]
    #[doc(alias = "power")]
    Pow = "pow" method (pow(b)), float(2), cost 40, code 90, ulp 4, domain &[&[[0.0, 50.0]], &[[0.0, 10.0]]],
        cuda "powf($0, $1)", f64 "pow($0, $1)" within 2,
        fast "pow_fast($0, $1)" (1e-37, 3e-5) cost 26 code 14
            on &[&[[-1000.0, -f32::MIN_POSITIVE], [f32::MIN_POSITIVE, 1000.0]], &[[-10.0, 10.0]]],
        eval |x| x[0].powf(x[1]), adjoint |s, x, y, g| {
            let one = s.k(g, 1.0);
            let e = s.f(Op::Sub, &[x[1], one]);
            let p = s.f(Op::Pow, &[x[0], e]);
            let zero = s.k(g, 0.0);
            let da = s.mul_(x[1], p);
            let constant = s.f(Op::Eq, &[x[1], zero]); let da = s.f(Op::Select, &[constant, zero, da]);
            let log = s.f(Op::Log, &[x[0]]);
            let db = s.mul_(y, log);
            vec![Some(s.mul_(g, da)), Some(s.mul_(g, db))]
        },
        law |s, x| {
            let square = || Rewrite::Becomes(Node::Apply { op: Op::Mul, args: vec![x[0]; 2] });
            if s.is(x[1], 1.0, 1) { Some(Rewrite::Is(x[0])) } else { s.is(x[1], 2.0, 2).then(square) }
        };
    /// Hyperbolic tangent, between -1 and 1.
    Tanh = "tanh" method (tanh()), float(1), cost 16, ulp 2, domain &[&[[-12.0, 12.0]]], cuda "tanhf($0)",
        f64 "tanh($0)" within 2, fast "tanh_fast($0)" (1.5e-5, 1.5e-5) on &[&[[-12.0, 12.0]]],
        eval |x| x[0].tanh(), adjoint |s, _, y, g| {
            let one = s.k(g, 1.0); let y2 = s.mul_(y, y); let d = s.f(Op::Sub, &[one, y2]); vec![Some(s.mul_(g, d))]
        };
    /// Error function, between -1 and 1.
    Erf = "erf" method (erf()), float(1), cost 24, ulp 2, domain &[&[[-12.0, 12.0]]], cuda "erff($0)", f64 "erf($0)" within 2,
        fast "erf_fast($0)" (1e-37, 3e-5) cost 20 code 13 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| libm::erf(x[0]), adjoint |s, x, _, g| {
            let x2 = s.mul_(x[0], x[0]); let n = s.neg_(x2); let e = s.f(Op::Exp, &[n]);
            let c = s.k(g, std::f64::consts::FRAC_2_SQRT_PI); let d = s.mul_(e, c); vec![Some(s.mul_(g, d))]
        };
    /// Sine; the argument is in radians.
    Sin = "sin" method (sin()), float(1), cost 20, code 90, ulp 2, domain &[&[[-1e5, 1e5]]], cuda "sinf($0)",
        f64 "sin($0)" within 2,
        fast "sin_fast($0)" (1e-37, 1e-5) cost 15 code 14 on &[&[[-1e5, 1e5]]],
        eval |x| x[0].sin(), adjoint |s, x, _, g| { let d = s.f(Op::Cos, &[x[0]]); vec![Some(s.mul_(g, d))] };
    /// Cosine; the argument is in radians.
    Cos = "cos" method (cos()), float(1), cost 20, code 90, ulp 2, domain &[&[[-1e5, 1e5]]], cuda "cosf($0)",
        f64 "cos($0)" within 2,
        fast "cos_fast($0)" (1e-37, 1e-5) cost 16 code 15 on &[&[[-1e5, 1e5]]],
        eval |x| x[0].cos(), adjoint |s, x, _, g| {
            let d = s.f(Op::Sin, &[x[0]]); let d = s.neg_(d); vec![Some(s.mul_(g, d))]
        };
    /// Tangent; the argument is in radians.
    Tan = "tan" method (tan()), float(1), cost 30, code 110, ulp 4, domain &[&[[-1e5, 1e5]]], cuda "tanf($0)",
        f64 "tan($0)" within 2,
        fast "tan_fast($0)" (1e-37, 1e-5) cost 21 code 16 on &[&[[-1e5, 1e5]]],
        eval |x| x[0].tan(), adjoint |s, _, y, g| {
            let one = s.k(g, 1.0); let d = s.f(Op::Fma, &[y, y, one]); vec![Some(s.mul_(g, d))]
        };
    /// Arcsine, in radians; NaN beyond -1 and 1.
    #[doc(alias = "arcsin")]
    Asin = "asin" method (asin()), float(1), cost 20, code 30, ulp 2, domain &[&[[-1.0, 1.0]]], cuda "asinf($0)",
        f64 "asin($0)" within 2,
        fast "asin_fast($0)" (1e-37, 5e-6) cost 21 code 15 on &[&[[-1.0, 1.0]]],
        eval |x| x[0].asin(), adjoint |s, x, _, g| {
            let root = s.root_of_one_less_square(x[0]); vec![Some(s.f(Op::Div, &[g, root]))]
        };
    /// Arccosine, in radians, from 0 to pi; NaN beyond -1 and 1.
    #[doc(alias = "arccos")]
    Acos = "acos" method (acos()), float(1), cost 20, code 32, ulp 2, domain &[&[[-1.0, 1.0]]], cuda "acosf($0)",
        f64 "acos($0)" within 2,
        fast "acos_fast($0)" (1e-37, 2e-6) cost 16 code 11 on &[&[[-1.0, 1.0]]],
        eval |x| x[0].acos(), adjoint |s, x, _, g| {
            let root = s.root_of_one_less_square(x[0]); let d = s.f(Op::Div, &[g, root]); vec![Some(s.neg_(d))]
        };
    /// Arctangent, in radians, between -pi/2 and pi/2.
    #[doc(alias = "arctan")]
    Atan = "atan" method (atan()), float(1), cost 20, code 35, ulp 2, domain &[&[[-f32::MAX, f32::MAX]]], cuda "atanf($0)",
        f64 "atan($0)" within 2,
        fast "atan_fast($0)" (1e-37, 1e-6) cost 21 code 15 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| x[0].atan(), adjoint |s, x, _, g| {
            let one = s.k(g, 1.0); let d = s.f(Op::Fma, &[x[0], x[0], one]); vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// The angle of the point (`b`, `a`) in radians, from -pi to pi: the arctangent of `a / b` in the right quadrant. Its
    /// derivative at (0, 0) is 0.
    #[doc(alias = "arctan2")]
    Atan2 = "atan2" method (atan2(b)), float(2), cost 30, code 60, ulp 3, cuda "atan2f($0, $1)", f64 "atan2($0, $1)" within 2,
        fast "atan2_fast($0, $1)" (1e-37, 2e-6) cost 24 code 18 on &[&[[-1e30, -1e-30], [1e-30, 1e30]]],
        eval |x| x[0].atan2(x[1]), adjoint |s, x, _, g| {
            // Divided by the longer leg, because squares might overflow or vanish.
            let (a, b) = (s.f(Op::Abs, &[x[0]]), s.f(Op::Abs, &[x[1]]));
            let longer = s.f(Op::Max, &[a, b]);
            let (u, v) = (s.f(Op::Div, &[x[0], longer]), s.f(Op::Div, &[x[1], longer]));
            let (u2, zero) = (s.mul_(u, u), s.k(g, 0.0));
            let square = s.f(Op::Fma, &[v, v, u2]);
            let scale = s.mul_(square, longer);
            let scaled = s.f(Op::Div, &[g, scale]);
            let none = s.f(Op::Eq, &[longer, zero]);
            let (da, db) = (s.mul_(scaled, v), s.mul_(scaled, u));
            let db = s.neg_(db);
            vec![Some(s.f(Op::Select, &[none, zero, da])), Some(s.f(Op::Select, &[none, zero, db]))]
        };
    /// Hyperbolic sine.
    Sinh = "sinh" method (sinh()), float(1), cost 24, code 50, ulp 3, domain &[&[[-95.0, 95.0]]], cuda "sinhf($0)",
        f64 "sinh($0)" within 2,
        fast "sinh_fast($0)" (1e-37, 5e-6) cost 23 code 12 on &[&[[-89.0, 89.0]]],
        eval |x| x[0].sinh(), adjoint |s, x, _, g| { let d = s.f(Op::Cosh, &[x[0]]); vec![Some(s.mul_(g, d))] };
    /// Hyperbolic cosine, at least 1.
    Cosh = "cosh" method (cosh()), float(1), cost 16, code 25, ulp 3, domain &[&[[-95.0, 95.0]]], cuda "coshf($0)",
        f64 "cosh($0)" within 2,
        fast "cosh_fast($0)" (1e-37, 5e-6) cost 17 code 6 on &[&[[-89.0, 89.0]]],
        eval |x| x[0].cosh(), adjoint |s, x, _, g| { let d = s.f(Op::Sinh, &[x[0]]); vec![Some(s.mul_(g, d))] };
    /// Inverse hyperbolic sine.
    #[doc(alias = "arcsinh")]
    Asinh = "asinh" method (asinh()), float(1), cost 24, code 45, ulp 3, domain &[&[[-f32::MAX, f32::MAX]]], cuda "asinhf($0)",
        f64 "asinh($0)" within 3,
        fast "asinh_fast($0)" (1e-37, 2e-6) cost 29 code 18 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| libm::asinh(x[0]), adjoint |s, x, _, g| {
            let one = s.k(g, 1.0); let d = s.f(Op::Fma, &[x[0], x[0], one]); let d = s.f(Op::Sqrt, &[d]);
            vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// Inverse hyperbolic cosine, at least 0; NaN below 1.
    #[doc(alias = "arccosh")]
    Acosh = "acosh" method (acosh()), float(1), cost 24, code 45, ulp 4, domain &[&[[1.0, f32::MAX]]], cuda "acoshf($0)",
        f64 "acosh($0)" within 3,
        fast "acosh_fast($0)" (1e-37, 4e-6) cost 29 code 18 on &[&[[1.0, 1e38]]],
        eval |x| libm::acosh(x[0]), adjoint |s, x, _, g| {
            // Two roots, since the square overflows.
            let one = s.k(g, 1.0);
            let (less, more) = (s.f(Op::Sub, &[x[0], one]), s.f(Op::Add, &[x[0], one]));
            let (less, more) = (s.f(Op::Sqrt, &[less]), s.f(Op::Sqrt, &[more]));
            let d = s.mul_(less, more);
            vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// Inverse hyperbolic tangent: infinite at -1 and 1, NaN beyond.
    #[doc(alias = "arctanh")]
    Atanh = "atanh" method (atanh()), float(1), cost 24, code 45, ulp 3, domain &[&[[-1.0, 1.0]]], cuda "atanhf($0)",
        f64 "atanh($0)" within 2,
        fast "atanh_fast($0)" (1e-37, 2e-6) cost 23 code 12 on &[&[[-1.0, 1.0]]],
        eval |x| libm::atanh(x[0]), adjoint |s, x, _, g| {
            let d = s.one_less_square(x[0]); vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// Logarithm to base 2: -inf at 0, NaN below.
    Log2 = "log2" method (log2()), float(1), cost 10, code 25, ulp 1, domain &[&[[0.0, f32::MAX]]], cuda "log2f($0)",
        f64 "log2($0)" within 1,
        fast "log2_fast($0)" (4e-7, 1e-6) on &[&[[f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| x[0].log2(), adjoint |s, x, _, g| {
            let c = s.k(g, std::f64::consts::LOG2_E); let h = s.mul_(g, c); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// Logarithm to base 10: -inf at 0, NaN below.
    Log10 = "log10" method (log10()), float(1), cost 10, code 27, ulp 2, domain &[&[[0.0, f32::MAX]]], cuda "log10f($0)",
        f64 "log10($0)" within 1,
        fast "log10_fast($0)" (2e-7, 1e-6) on &[&[[f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| x[0].log10(), adjoint |s, x, _, g| {
            let c = s.k(g, std::f64::consts::LOG10_E); let h = s.mul_(g, c); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// `10^a`.
    Exp10 = "exp10" method (exp10()), float(1), cost 8, ulp 2, domain &[&[[-46.0, 39.0]]], cuda "exp10f($0)",
        f64 "exp10($0)" within 1,
        fast "exp10_fast($0)" (1e-37, 8e-6) on &[&[[-37.9, 38.5]]],
        eval |x| libm::exp10(x[0]), adjoint |s, _, y, g| {
            let c = s.k(g, std::f64::consts::LN_10); let d = s.mul_(y, c); vec![Some(s.mul_(g, d))]
        };
    /// Cube root, with the sign of `a`.
    Cbrt = "cbrt" method (cbrt()), float(1), cost 16, code 25, ulp 1, domain &[&[[-f32::MAX, f32::MAX]]], cuda "cbrtf($0)",
        f64 "cbrt($0)" within 1,
        fast "cbrt_fast($0)" (3e-13, 1.2e-5) cost 16 code 4 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| x[0].cbrt(), adjoint |s, _, y, g| {
            let y2 = s.mul_(y, y); let three = s.k(g, 3.0); let d = s.mul_(y2, three); vec![Some(s.f(Op::Div, &[g, d]))]
        };
    /// `1 - erf(a)`, accurate where the result is small.
    Erfc = "erfc" method (erfc()), float(1), cost 24, code 45, ulp 4, domain &[&[[-12.0, 12.0]]], cuda "erfcf($0)",
        f64 "erfc($0)" within 5,
        fast "erfc_fast($0)" (1e-37, 8e-6) cost 27 code 16 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| libm::erfc(x[0]), adjoint |s, x, _, g| {
            let x2 = s.mul_(x[0], x[0]); let n = s.neg_(x2); let e = s.f(Op::Exp, &[n]);
            let c = s.k(g, -std::f64::consts::FRAC_2_SQRT_PI); let d = s.mul_(e, c); vec![Some(s.mul_(g, d))]
        };
    /// `1 / cbrt(a)`, with the sign of `a`; infinite at 0.
    Rcbrt = "rcbrt" method (rcbrt()), float(1), cost 17, ulp 2, domain &[&[[-f32::MAX, f32::MAX]]], cuda "rcbrtf($0)",
        f64 "rcbrt($0)" within 1,
        fast "rcbrt_fast($0)" (1e-37, 1.2e-5) cost 16 code 4
            on &[&[[-f32::MAX, -f32::MIN_POSITIVE], [f32::MIN_POSITIVE, f32::MAX]]],
        eval |x| 1.0 / x[0].cbrt(), adjoint |s, x, y, g| {
            let c = s.k(g, -1.0 / 3.0); let h = s.mul_(g, c); let h = s.mul_(h, y); vec![Some(s.f(Op::Div, &[h, x[0]]))]
        };
    /// `sqrt(a^2 + b^2)` without overflow of the squares. The fast form is infinite from about 1e19 on. Its derivative
    /// at (0, 0) is 0.
    Hypot = "hypot" method (hypot(b)), float(2), cost 20, code 51, ulp 3, cuda "hypotf($0, $1)", f64 "hypot($0, $1)" within 2,
        fast "hypot_fast($0, $1)" (2e-19, 5e-7) cost 9 code 3 on &[&[[-1e19, 1e19]]],
        eval |x| x[0].hypot(x[1]), adjoint |s, x, y, g| {
            let zero = s.k(g, 0.0); let none = s.f(Op::Eq, &[y, zero]);
            let along = |s: &mut Graph, leg: NodeId| {
                let d = s.f(Op::Div, &[leg, y]); let d = s.f(Op::Select, &[none, zero, d]); Some(s.mul_(g, d))
            };
            vec![along(s, x[0]), along(s, x[1])]
        };
    /// `sin(pi a)`, without the rounding of `pi a`.
    Sinpi = "sinpi" method (sinpi()), float(1), cost 25, ulp 2, domain &[&[[-1e6, 1e6]]], cuda "sinpif($0)",
        f64 "sinpi($0)" within 2,
        fast "sinpi_fast($0)" (1e-37, 2e-6) cost 13 code 12 on &[&[[-1e6, 1e6]]],
        eval |x| values::sinpi(x[0]), adjoint |s, x, _, g| {
            let d = s.f(Op::Cospi, &[x[0]]); let pi = s.k(g, std::f64::consts::PI); let d = s.mul_(d, pi);
            vec![Some(s.mul_(g, d))]
        };
    /// `cos(pi a)`, without the rounding of `pi a`.
    Cospi = "cospi" method (cospi()), float(1), cost 25, ulp 2, domain &[&[[-1e6, 1e6]]], cuda "cospif($0)",
        f64 "cospi($0)" within 2,
        fast "cospi_fast($0)" (1e-37, 2e-6) cost 14 code 13 on &[&[[-1e6, 1e6]]],
        eval |x| values::cospi(x[0]), adjoint |s, x, _, g| {
            let d = s.f(Op::Sinpi, &[x[0]]); let pi = s.k(g, -std::f64::consts::PI); let d = s.mul_(d, pi);
            vec![Some(s.mul_(g, d))]
        };
    /// Inverse error function: infinite at -1 and 1, NaN beyond.
    #[doc(alias = "erf_inv")]
    Erfinv = "erfinv" method (erfinv()), float(1), cost 28, ulp 4, domain &[&[[-1.0, 1.0]]], cuda "erfinvf($0)",
        f64 "erfinv($0)" within 5,
        fast "erfinv_fast($0)" (1e-37, 6e-5) cost 26 code 13 on &[&[[-1.0, 1.0]]],
        eval |x| values::erfinv(x[0]), adjoint |s, _, y, g| {
            let y2 = s.mul_(y, y); let e = s.f(Op::Exp, &[y2]); let c = s.k(g, values::HALF_ROOT_OF_PI); let d = s.mul_(e, c);
            vec![Some(s.mul_(g, d))]
        };
    /// The cumulative normal distribution, `erfc(-a / sqrt(2)) / 2`: accurate where it is small.
    #[doc(alias = "ndtr")]
    #[doc(alias = "norm_cdf")]
    Normcdf = "normcdf" method (normcdf()), float(1), cost 40, code 64, ulp 6, domain &[&[[-12.0, 12.0]]],
        cuda "normcdff($0)", f64 "normcdf($0)" within 7,
        fast "normcdf_fast($0)" (1e-15, 2e-5) cost 19 code 12 on &[&[[-f32::MAX, f32::MAX]]],
        eval |x| values::normcdf(x[0]), adjoint |s, x, _, g| {
            let half = s.k(g, -0.5); let h = s.mul_(x[0], half); let n = s.mul_(h, x[0]); let e = s.f(Op::Exp, &[n]);
            let c = s.k(g, values::DENSITY_AT_0); let d = s.mul_(e, c); vec![Some(s.mul_(g, d))]
        };
    /// The largest integer that is not larger.
    Floor = "floor" method (floor()), float(1), cost 2, ulp 0, cuda "floorf($0)", f64 "floor($0)" within 0, eval |x| x[0].floor();
    /// The smallest integer that is not smaller.
    Ceil = "ceil" method (ceil()), float(1), cost 2, ulp 0, cuda "ceilf($0)", f64 "ceil($0)" within 0, eval |x| x[0].ceil();
    /// Nearest integer, ties to even.
    #[doc(alias = "rint")]
    #[doc(alias = "round_ties_even")]
    Round = "round" method (round()), float(1), cost 2, ulp 0, cuda "rintf($0)", f64 "rint($0)" within 0,
        eval |x| x[0].round_ties_even();
    /// Nearest integer towards 0.
    #[doc(alias = "fix")]
    Trunc = "trunc" method (trunc()), float(1), cost 2, ulp 0, cuda "truncf($0)", f64 "trunc($0)" within 0, eval |x| x[0].trunc();
    /// The magnitude of `a` with the sign of `b`, which may be that of a zero. Its derivative is 0 where `a` is 0.
    Copysign = "copysign" method (copysign(b)), float(2), cost 1, ulp 0, cuda "copysignf($0, $1)",
        f64 "copysign($0, $1)" within 0,
        eval |x| x[0].copysign(x[1]), adjoint |s, x, _, g| {
            let one = s.k(g, 1.0); let of_b = s.f(Op::Copysign, &[one, x[1]]); let of_a = s.f(Op::Sign, &[x[0]]);
            let d = s.mul_(of_a, of_b);
            vec![Some(s.mul_(g, d)), None]
        };
    /// The smaller value, and -0 of two zeros; if one is NaN, the other one (IEEE 754's `minNum`). If both are equal
    /// the gradient goes to the second.
    #[doc(alias = "fmin")]
    MinNum = "min_num" method (min_num(b)), float(2), cost 1, ulp 0, cuda "fminf($0, $1)", f64 "min_num($0, $1)" within 0,
        eval |x| if x[0].is_nan() { x[1] } else if x[1].is_nan() { x[0] } else { smaller(x[0], x[1]) },
        picks [0, 1] |s, x| { let (so, other) = (s.f(Op::Lt, x), s.f(Op::IsNan, &[x[1]])); s.f(Op::Or, &[so, other]) };
    /// The larger value, and +0 of two zeros; if one is NaN, the other one (IEEE 754's `maxNum`). If both are equal the
    /// gradient goes to the second.
    #[doc(alias = "fmax")]
    MaxNum = "max_num" method (max_num(b)), float(2), cost 1, ulp 0, cuda "fmaxf($0, $1)", f64 "max_num($0, $1)" within 0,
        eval |x| if x[0].is_nan() { x[1] } else if x[1].is_nan() { x[0] } else { larger(x[0], x[1]) },
        picks [0, 1] |s, x| { let (so, other) = (s.f(Op::Gt, x), s.f(Op::IsNan, &[x[1]])); s.f(Op::Or, &[so, other]) };
    /// The sign: -1, 0 or 1; NaN of NaN.
    #[doc(alias = "signum")]
    #[doc(alias = "sgn")]
    Sign = "sign" method (sign()), numeric(1), cost 3, ulp 0, cuda "sign($0)", i32 "($0 > 0) - ($0 < 0)", |x| x[0].signum(),
        eval |x| if x[0] > 0.0 { 1.0 } else if x[0] < 0.0 { -1.0 } else if x[0].is_nan() { x[0] } else { 0.0 };
    /// Remainder with the sign of the dividend, as C's `fmodf` and `%`. An integer modulo zero is 0.
    #[doc(alias = "fmod")]
    Rem = "rem", numeric(2), cost 20, code 75, ulp 0, cuda "fmodf($0, $1)", f64 "fmod($0, $1)" within 0,
        i32 "remainder($0, $1)", |x| if x[1] == 0 { 0 } else { x[0].wrapping_rem(x[1]) },
        eval |x| x[0] % x[1], adjoint |s, x, y, g| {
            // The quotient that the remainder uses: a separate division may round across an integer.
            let whole = s.f(Op::Sub, &[x[0], y]); let q = s.f(Op::Div, &[whole, x[1]]);
            let t = s.f(Op::Round, &[q]);
            let d = s.mul_(g, t);
            vec![Some(g), Some(s.neg_(d))]
        };
    /// Floor division of integers, as Python's `//`: the quotient rounds towards minus infinity. Division by zero gives 0.
    #[doc(alias = "floor_divide")]
    #[doc(alias = "div_floor")]
    FloorDiv = "floor_div" method (floor_div(b)), integer(2), cost 20, ulp 0, cuda "floor_div($0, $1)",
        integers |x| {
            let [a, b] = [x[0], x[1]];
            if b == 0 { 0 } else { a.wrapping_div(b) - i32::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) }
        };
    /// Floor modulus of integers, as Python's `%`: the remainder of floor division, with the sign of `b`. Modulo zero
    /// is 0.
    #[doc(alias = "remainder")]
    #[doc(alias = "mod_floor")]
    #[doc(alias = "rem_euclid")]
    FloorMod = "floor_mod" method (floor_mod(b)), integer(2), cost 20, ulp 0, cuda "floor_mod($0, $1)",
        integers |x| {
            let [a, b] = [x[0], x[1]]; let r = if b == 0 { 0 } else { a.wrapping_rem(b) };
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        };
    /// Shifts the bits of an integer up by `b` places, and fills with zeros. The result is 0 if `b` is not in 0 to 31.
    #[doc(alias = "bitwise_left_shift")]
    Shl = "shl", integer(2), cost 2, ulp 0, cuda "shift_left($0, $1)",
        integers |x| u32::try_from(x[1]).ok().and_then(|by| x[0].checked_shl(by)).unwrap_or(0),
        law |s, x| s.is(x[1], f32::NAN, 0).then_some(Rewrite::Is(x[0]));
    /// Shifts the bits of an integer down by `b` places, and fills with copies of its sign (an arithmetic shift). Only
    /// the sign is left, as 0 or -1, if `b` is not in 0 to 31.
    #[doc(alias = "bitwise_right_shift")]
    Shr = "shr", integer(2), cost 2, ulp 0, cuda "shift_right($0, $1)",
        integers |x| x[0] >> if (0..32).contains(&x[1]) { x[1] } else { 31 },
        law |s, x| s.is(x[1], f32::NAN, 0).then_some(Rewrite::Is(x[0]));
    /// The number of bits of an integer that are 1.
    #[doc(alias = "popc")]
    #[doc(alias = "count_ones")]
    #[doc(alias = "bit_count")]
    Popcount = "popcount" method (popcount()), integer(1), cost 2, ulp 0, cuda "__popc($0)",
        integers |x| x[0].count_ones() as i32;
    /// Whether a value is NaN.
    #[doc(alias = "isnan")]
    IsNan = "is_nan" method (is_nan()), TEST, cost 1, ulp 0, cuda "$0 != $0", eval |x| truth(x[0].is_nan());
    /// Whether a value is infinite, of either sign.
    #[doc(alias = "isinf")]
    IsInfinite = "is_infinite" method (is_infinite()), TEST, cost 2, ulp 0, cuda "fabsf($0) == __int_as_float(0x7f800000)",
        f64 "fabs($0) == __longlong_as_double(0x7ff0000000000000ll)" within 0,
        eval |x| truth(x[0].is_infinite());
    /// Whether a value is neither infinite nor NaN.
    #[doc(alias = "isfinite")]
    IsFinite = "is_finite" method (is_finite()), TEST, cost 2, ulp 0, cuda "fabsf($0) < __int_as_float(0x7f800000)",
        f64 "fabs($0) < __longlong_as_double(0x7ff0000000000000ll)" within 0,
        eval |x| truth(x[0].is_finite());
    /// `a == b`; false if either is NaN. For conditions, whether both are the same.
    #[doc(alias = "equal")]
    Eq = "eq" method (eq(b)), EQUATE, cost 1, ulp 0, cuda "$0 == $1", eval |x| truth(x[0] == x[1]);
    /// `a != b`; true if either is NaN. For conditions, whether they differ.
    #[doc(alias = "not_equal")]
    Ne = "ne" method (ne(b)), EQUATE, cost 1, ulp 0, cuda "$0 != $1", eval |x| truth(x[0] != x[1]);
    /// `a < b`; false if either is NaN.
    #[doc(alias = "less")]
    Lt = "lt" method (lt(b)), COMPARE, cost 1, ulp 0, cuda "$0 < $1", eval |x| truth(x[0] < x[1]);
    /// `a <= b`; false if either is NaN.
    #[doc(alias = "less_equal")]
    Le = "le" method (le(b)), COMPARE, cost 1, ulp 0, cuda "$0 <= $1", eval |x| truth(x[0] <= x[1]);
    /// `a > b`; false if either is NaN.
    #[doc(alias = "greater")]
    Gt = "gt" method (gt(b)), COMPARE, cost 1, ulp 0, cuda "$0 > $1", eval |x| truth(x[0] > x[1]);
    /// `a >= b`; false if either is NaN.
    #[doc(alias = "greater_equal")]
    Ge = "ge" method (ge(b)), COMPARE, cost 1, ulp 0, cuda "$0 >= $1", eval |x| truth(x[0] >= x[1]);
    /// Whether both hold. For integers, the bits that both have.
    #[doc(alias = "logical_and")]
    #[doc(alias = "bitwise_and")]
    And = "and" method (and(b)), bitwise(2), cost 1, ulp 0, cuda "$0 && $1", i32 "$0 & $1", |x| x[0] & x[1],
        eval |x| truth(x[0] != 0.0 && x[1] != 0.0),
        law |s, x| s.lattice(x, true);
    /// Whether either or both hold. For integers, the bits that either has.
    #[doc(alias = "logical_or")]
    #[doc(alias = "bitwise_or")]
    Or = "or" method (or(b)), bitwise(2), cost 1, ulp 0, cuda "$0 || $1", i32 "$0 | $1", |x| x[0] | x[1],
        eval |x| truth(x[0] != 0.0 || x[1] != 0.0),
        law |s, x| s.lattice(x, false);
    /// Whether exactly one holds. For integers, the bits in which they differ.
    #[doc(alias = "logical_xor")]
    #[doc(alias = "bitwise_xor")]
    Xor = "xor" method (xor(b)), bitwise(2), cost 1, ulp 0, cuda "$0 != $1", i32 "$0 ^ $1", |x| x[0] ^ x[1],
        eval |x| truth((x[0] != 0.0) != (x[1] != 0.0)),
        law |s, x| {
            let kept = [[0, 1], [1, 0]].into_iter().find(|[_, i]| s.truth(x[*i]) == Some(false));
            kept.map(|[kept, _]| Rewrite::Is(x[kept]))
        };
    /// The opposite. For an integer, every bit flipped.
    #[doc(alias = "logical_not")]
    #[doc(alias = "bitwise_not")]
    #[doc(alias = "invert")]
    Not = "not" method (not()), bitwise(1), cost 1, ulp 0, cuda "!$0", i32 "~$0", |x| !x[0],
        eval |x| truth(x[0] == 0.0), law |s, x| s.twice(Op::Not, x);
    /// The second operand if the first, a condition, holds, otherwise the third. The other arm does not affect the
    /// result, not even with a NaN. Arms have no effects, so a program cannot observe whether both are computed.
    #[doc(alias = "where")]
    #[doc(alias = "where_")]
    Select = "select" method (select(then, otherwise)), Choice, cost 1, ulp 0, cuda "$0 ? $1 : $2",
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
    /// To `f32`; an integer and an `f64` round to nearest even.
    ToF32 = "to_f32", Convert(ValueType::F32), cost 1, ulp 0, cuda "float($0)", i32 "float($0)", |x| x[0],
        eval |x| x[0], adjoint |_, _, _, g| vec![Some(g)];
    /// To `f64`: exact.
    ToF64 = "to_f64", Convert(ValueType::F64), cost 1, ulp 0, cuda "double($0)", i32 "double($0)", |x| x[0],
        eval |x| x[0], adjoint |_, _, _, g| vec![Some(g)];
    /// To `i32`: rounds towards zero and saturates; NaN gives 0.
    ToI32 = "to_i32", Convert(ValueType::I32), cost 2, ulp 0, cuda "to_int($0)", i32 "int($0)", |x| x[0],
        eval |x| f64::from(x[0] as i32);
    /// To a truth value: whether it differs from 0. NaN gives true.
    ToBool = "to_bool", Convert(ValueType::Bool), cost 1, ulp 0, cuda "($0 != 0)", eval |x| truth(x[0] != 0.0);
    /// The bits of an `f32` as an integer. The bits of a NaN are not specified.
    #[doc(alias = "bitcast")]
    #[doc(alias = "view")]
    #[doc(alias = "float_as_int")]
    ToBits = "to_bits" method (to_bits()), bits(&[ValueType::F32], ValueType::I32), cost 1, ulp 0, cuda "__float_as_int($0)",
        eval |x| f64::from((x[0] as f32).to_bits() as i32);
    /// The `f32` with the bits of an integer. The bits of a NaN are not specified.
    #[doc(alias = "bitcast")]
    #[doc(alias = "view")]
    #[doc(alias = "int_as_float")]
    FromBits = "from_bits" method (from_bits()), bits(&[ValueType::I32], ValueType::F32), cost 1, ulp 0,
        cuda "__int_as_float($0)",
        eval |x| f64::from(f32::from_bits(x[0] as i32 as u32));
    /// Rounds once to the nearest `f16`, ties to even. The result is an `f32` value. The gradient passes through
    /// unchanged.
    RoundF16 = "round_f16", ROUNDS, cost 2, ulp 0, cuda "widen(Narrow<f16>::of($0))",
        f64 "widen(Narrow<f16>::of(to_odd($0)))" within 0,
        eval |x| DType::F16.round(x[0]), adjoint |_, _, _, g| vec![Some(g)];
    /// Rounds once to the nearest `bf16`, ties to even. The result is an `f32` value. The gradient passes through
    /// unchanged.
    RoundBf16 = "round_bf16", ROUNDS, cost 2, ulp 0, cuda "widen(Narrow<bf16>::of($0))",
        f64 "widen(Narrow<bf16>::of(to_odd($0)))" within 0,
        eval |x| DType::BF16.round(x[0]), adjoint |_, _, _, g| vec![Some(g)];
    /// Rounds once to the nearest `e4m3`, ties to even. A number beyond 448 becomes 448. The result is an `f32` value.
    /// The gradient passes through unchanged up to 448, and is zero beyond.
    RoundE4m3 = "round_e4m3", ROUNDS, cost 2, format E4M3, ulp 0,
        cuda "widen(Narrow<e4m3>::of($0))", f64 "widen(Narrow<e4m3>::of(to_odd($0)))" within 0,
        eval |x| DType::E4M3.round(x[0]), adjoint |s, x, _, g| vec![Some(s.within(x[0], 448.0, g))];
    /// Rounds once to the nearest `e5m2`, ties to even. A number beyond 57344 becomes 57344. The result is an `f32`
    /// value. The gradient passes through unchanged up to 57344, and is zero beyond.
    RoundE5m2 = "round_e5m2", ROUNDS, cost 2, format E5M2, ulp 0,
        cuda "widen(Narrow<e5m2>::of($0))", f64 "widen(Narrow<e5m2>::of(to_odd($0)))" within 0,
        eval |x| DType::E5M2.round(x[0]), adjoint |s, x, _, g| vec![Some(s.within(x[0], 57344.0, g))];
    /// To the nearest integer from -128 to 127, ties to even; NaN gives 0.
    ToI8 = "to_i8", Convert(ValueType::I32), cost 2, format I8, ulp 0,
        cuda "widen(Narrow<int8>::of($0))", f64 "widen(Narrow<int8>::of(to_odd($0)))" within 0, eval |x| DType::I8.round(x[0]);
    /// To the nearest integer from 0 to 255, ties to even; NaN gives 0.
    ToU8 = "to_u8", Convert(ValueType::I32), cost 2, format U8, ulp 0,
        cuda "widen(Narrow<uint8>::of($0))", f64 "widen(Narrow<uint8>::of(to_odd($0)))" within 0, eval |x| DType::U8.round(x[0]);
}
