//! Activations: one row each (name, doc, parameters, body). The builder method, CUDA, CPU value, derivative, text and
//! JSON names, docs and tests follow from the row. To add an activation, add a row.
//!
//! A row is a definition over primitives and other rows. It has no privileges over a user's function. Its derivative
//! follows from the body; `gradient` expresses it by the value instead, so that less is saved. If an output is kept for
//! the derivative, the value is the rounded one. [`crate::grad`](crate::grad#borders) lists the derivative of each
//! activation at its borders. (`tanh` is a primitive, and therefore not here.)

use super::expr::{Builder, Expr};
use super::into::IntoExpr;
use crate::ir::graph::Node;
use crate::ir::op::Adjoint;
use crate::ir::{Function, Graph, NodeId, Op};
use std::panic::Location;

/// sqrt(2 / pi), the inner factor of GELU's tanh form.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// SELU's scale and alpha (Klambauer et al. 2017, "Self-Normalizing Neural Networks").
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

macro_rules! activations {
    ($( $(#[doc = $doc:literal])+ $(#[doc(alias = $alias:literal)])* $name:ident($x:ident $(, $p:ident)*) = $body:expr
        $(, gradient |$y:ident, $g:ident| [$($d:expr),+])?; )*) => {
        $(static $name: Function = Function {
            name: stringify!($name),
            doc: concat!($($doc),+),
            parameters: &[stringify!($x) $(, stringify!($p))*],
            body: {
                fn body(graph: &mut Graph, args: &[NodeId]) -> NodeId {
                    Builder::over(graph, |builder| {
                        let mut args = args.iter().map(|id| builder.handle(*id));
                        let mut next = || args.next().expect("a call's arguments are counted by the check");
                        let $x = next();
                        $(let $p = next();)*
                        Expr::from($body).id
                    })
                }
                body
            },
            gradient: activations!(@gradient [$x $(, $p)*] $($y $g [$($d),+])?),
        };)*

        /// Every activation, in table order:
        ///
        $(#[doc = concat!("- [`", stringify!($name), "`](Expr::", stringify!($name), "):", $($doc),+)])*
        pub static ALL: &[&Function] = &[$(&$name),*];

        impl<'g> Expr<'g> {
            $($(#[doc = $doc])+
            $(#[doc(alias = $alias)])*
            #[track_caller]
            pub fn $name(self $(, $p: impl IntoExpr<'g>)*) -> Expr<'g> {
                let at = Location::caller();
                let f64 = self.is_f64() $(|| $p.is_f64())*;
                let args = vec![self.beside(f64, self.builder, at).id $(, $p.beside(f64, self.builder, at).id)*];
                self.builder.push(Node::Call { function: &$name, args }, Some(at))
            })*
        }

        /// The activations without parameters, as functions.
        pub mod functions {
            use super::Expr;
            $(activations!(@function [$($doc)+] $name $($p)*);)*
        }
    };
    (@function [$($doc:literal)+] $name:ident) => {
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $name(x: Expr<'_>) -> Expr<'_> {
            x.$name()
        }
    };
    (@function [$($doc:literal)+] $name:ident $($p:ident)+) => {};
    (@gradient [$($x:ident),+]) => { None };
    (@gradient [$($x:ident),+] $y:ident $g:ident [$($d:expr),+]) => {{
        #[allow(unused_variables, reason = "a derivative that follows from the value alone does not use the arguments")]
        fn gradient(graph: &mut Graph, args: &[NodeId], y: NodeId, g: NodeId) -> Vec<Option<NodeId>> {
            let mut gradients = Vec::new();
            Builder::over(graph, |builder| {
                let mut args = args.iter().map(|id| builder.handle(*id));
                let mut next = || args.next().expect("a call's arguments are counted by the check");
                $(let $x = next();)+
                let ($y, $g) = (builder.handle(y), builder.handle(g));
                $(gradients.push(Some(Expr::from($d).id));)+
                y
            });
            gradients
        }
        Some(gradient as Adjoint)
    }};
}

#[allow(non_upper_case_globals)]
mod table {
    use super::*;

    activations! {
        /// max(x, 0). Propagates NaN, as PyTorch's does; its derivative at 0 is 0.
        relu(x) = x.max(0.0), gradient |y, g| [y.gt(0.0).select(g, 0.0)];
        /// x clamped to [0, 6].
        relu6(x) = x.clamp(0.0, 6.0), gradient |y, g| [(y.gt(0.0) & y.lt(6.0)).select(g, 0.0)];
        /// x clamped to [low, high]; NaN stays NaN. Its derivative at both bounds is 1.
        #[doc(alias = "clip")]
        clamp(x, low, high) = x.max(low).min(high), gradient |y, g| [
            (x.ge(low) & x.le(high)).select(g, 0.0),
            (x.lt(low) & low.lt(high)).select(g, 0.0),
            (x.gt(high) | high.lt(low)).select(g, 0.0)
        ];
        /// x where x > 0, else slope * x.
        leaky_relu(x, slope) = x.gt(0.0).select(x, x * slope);
        /// x where x > 0, else slope * x, with a slope that is loaded or passed at launch.
        prelu(x, slope) = x.gt(0.0).select(x, x * slope);
        /// x where x > 0, else alpha * (e^x - 1).
        elu(x, alpha) = x.gt(0.0).select(x, x.expm1() * alpha), gradient |y, g| [
            g * positive(x, y, alpha).select(1.0, y + alpha),
            x.gt(0.0).select(0.0, g * x.min(0.0).expm1())
        ];
        /// scale * elu(x, alpha) with the self-normalising constants.
        selu(x) = x.elu(SELU_ALPHA) * SELU_SCALE,
            gradient |y, g| [g * y.gt(0.0).select(SELU_SCALE, y + SELU_SCALE * SELU_ALPHA)];
        /// x where x > 0, else alpha * (e^(x / alpha) - 1).
        celu(x, alpha) = x.gt(0.0).select(x, (x.min(0.0) / alpha).expm1() * alpha), gradient |y, g| [
            g * y.gt(0.0).select(1.0, y / alpha + 1.0),
            { let u = x.min(0.0) / alpha; x.gt(0.0).select(0.0, g * (u.expm1() - u * u.exp())) }
        ];
        /// 1 / (1 + e^-x).
        sigmoid(x) = ((-x).exp() + 1.0).recip(), gradient |y, g| [g * (y * one_less(y))];
        /// log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|), which neither overflows nor cancels. Its derivative is 1 - e^y.
        #[doc(alias = "logsigmoid")]
        log_sigmoid(x) = x.min(0.0) - (-x.abs()).exp().log1p(), gradient |y, g| [g * -y.expm1()];
        /// x * sigmoid(x), also called swish.
        silu(x) = x * x.sigmoid();
        /// GELU in its exact form, x * (1 + erf(x / sqrt(2))) / 2; the same as `gelu_erf`.
        gelu(x) = x.gelu_erf();
        /// x * (1 + erf(x / sqrt(2))) / 2.
        gelu_erf(x) = x * x.normcdf();
        /// x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 (Hendrycks and Gimpel 2016).
        #[doc(alias = "gelu_new")]
        #[doc(alias = "GELU_taylor")]
        gelu_tanh(x) = { let h = x * 0.5; h.fma((x * (x * x).fma(0.044715 * SQRT_2_OVER_PI, SQRT_2_OVER_PI)).tanh(), h) };
        /// x * sigmoid(1.702 x).
        #[doc(alias = "quick_gelu")]
        gelu_quick(x) = x * (x * 1.702).sigmoid();
        /// x * relu6(x + 3) / 6.
        #[doc(alias = "hard_swish")]
        #[doc(alias = "hardsilu")]
        hardswish(x) = x * x.hardsigmoid(), gradient |y, g| [
            g * x.le(-3.0).select(0.0, x.lt(3.0).select(x.fma(1.0 / 3.0, 0.5), 1.0))
        ];
        /// relu6(x + 3) / 6.
        #[doc(alias = "hard_sigmoid")]
        hardsigmoid(x) = (x + 3.0).relu6() * (1.0 / 6.0);
        /// x clamped to [-1, 1].
        #[doc(alias = "hard_tanh")]
        hardtanh(x) = x.clamp(-1.0, 1.0), gradient |y, g| [(y.gt(-1.0) & y.lt(1.0)).select(g, 0.0)];
        /// log(1 + e^(beta x)) / beta, computed as max(x, 0) + log(1 + e^-|beta x|) / beta for beta > 0. Its derivative
        /// is 1 - e^(-beta y).
        softplus(x, beta) = x.max(0.0) + (-(x * beta).abs()).exp().log1p() / beta, gradient |y, g| [
            g * -(-(y * beta)).expm1(),
            { let e = (-(x * beta).abs()).exp(); -g * (e.log1p() / beta + x.abs() * e / (e + 1.0)) / beta }
        ];
        /// x / (1 + |x|).
        #[doc(alias = "soft_sign")]
        softsign(x) = x / (x.abs() + 1.0), gradient |y, g| [{ let r = (x.abs() + 1.0).recip(); g * (r * r) }];
        /// x * tanh(softplus(x)), computed as x * n / (n + 2) with n = e^x (e^x + 2). This form does not cancel, and x is
        /// limited to 20 in n, so that n does not overflow.
        mish(x) = { let n = mish_term(x.min(20.0).exp()); x * (n / (n + 2.0)) },
            gradient |y, g| [{
                let e = x.min(20.0).exp();
                let n = mish_term(e);
                let r = (n + 2.0).recip();
                g * x.fma(e * 4.0 * (e + 1.0) * r * r, n * r)
            }];
        /// relu(x)^2.
        #[doc(alias = "squared_relu")]
        relu_squared(x) = { let r = x.relu(); r * r };
        /// x - x clamped to [-lambda, lambda]: 0 near 0, and closer to 0 by lambda elsewhere.
        #[doc(alias = "soft_shrink")]
        softshrink(x, lambda) = x - x.clamp(-lambda, lambda);
        /// x where x > limit, else value.
        threshold(x, limit, value) = x.gt(limit).select(x, value);
        /// x + sin(a x)^2 / a (Ziyin et al. 2020, "Neural Networks Fail to Learn Periodic Functions").
        snake(x, a) = { let s = (x * a).sin(); x + s * s / a };
        /// x * sigmoid(x), which is `silu` under its other name. With a factor in the sigmoid it is `swish_beta`.
        swish(x) = x.silu();
        /// x * sigmoid(beta x) (Ramachandran et al. 2017, "Searching for Activation Functions"); ONNX's Swish, whose
        /// alpha is this beta.
        swish_beta(x, beta) = x * (x * beta).sigmoid();
        /// 0 where |x| <= lambda, else x. Its derivative at the borders is 0.
        #[doc(alias = "hard_shrink")]
        hardshrink(x, lambda) = x.abs().le(lambda).select(0.0, x);
        /// x + bias where x < -lambda, x - bias where x > lambda, else 0; NaN stays NaN. ONNX's Shrink. Its derivative
        /// at the borders is 0.
        shrink(x, bias, lambda) = x.abs().le(lambda).select(0.0, x.lt(0.0).select(x + bias, x - bias));
        /// x - tanh(x). Near 0, where it is about x^3 / 3, it is as accurate as the rounding of x, as in PyTorch.
        tanhshrink(x) = x - x.tanh();
        /// alpha x + beta clamped to [0, 1]: ONNX's HardSigmoid, whose defaults are 0.2 and 0.5. `hardsigmoid` is
        /// PyTorch's. Its derivative at both bounds is alpha, as that of `clamp`.
        #[doc(alias = "hard_sigmoid")]
        hardsigmoid_with(x, alpha, beta) = x.fma(alpha, beta).clamp(0.0, 1.0);
        /// alpha * tanh(beta x): ONNX's ScaledTanh.
        scaled_tanh(x, alpha, beta) = (x * beta).tanh() * alpha;
        /// x where x > limit, else 0; NaN stays NaN. ONNX's ThresholdedRelu, whose alpha is this limit. Its derivative
        /// at the limit is 0.
        thresholded_relu(x, limit) = x.le(limit).select(0.0, x);
        /// alpha x + beta, rounded once: ONNX's Affine.
        affine(x, alpha, beta) = x.fma(alpha, beta);
        /// alpha * log(1 + e^(beta x)): ONNX's ParametricSoftplus.
        parametric_softplus(x, alpha, beta) = (x * beta).softplus(1.0) * alpha;
        /// PyTorch's rrelu in evaluation mode: x where x > 0, else x times the mean of both slopes.
        rrelu(x, lower, upper) = x.leaky_relu((lower + upper) * 0.5);
    }
}

/// e (e + 2), with tanh(log(1 + e)) = n / (n + 2) for this n.
fn mish_term(e: Expr<'_>) -> Expr<'_> {
    e.fma(e, e + e)
}

/// 1 - y. To the left of an operator the 1 would always be an `f32`.
fn one_less(y: Expr<'_>) -> Expr<'_> {
    let at = Location::caller();
    1.0.beside(y.is_f64(), y.builder, at).apply(Op::Sub, &[y], at)
}

/// Whether x > 0, from the value of `elu` where alpha is known to be positive. With a negative alpha no value tells.
fn positive<'g>(x: Expr<'g>, y: Expr<'g>, alpha: Expr<'g>) -> Expr<'g> {
    if alpha.constant().is_some_and(|alpha| alpha > 0.0) { y.gt(0.0) } else { x.gt(0.0) }
}

pub use table::ALL;
/// Activations as functions, to pass them on: `bias_activation(F16, F16, activation::relu)`. For those with parameters
/// write a closure: `|z| z.leaky_relu(0.1)`.
pub use table::functions::*;

/// The hyperbolic tangent: a primitive that is also an activation.
#[track_caller]
pub fn tanh(x: Expr<'_>) -> Expr<'_> {
    x.tanh()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_doc() {
        let mut names: Vec<_> = ALL.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for function in ALL {
            assert!(function.doc.trim().len() > 8, "{} has no doc", function.name);
            assert!(crate::ir::Op::from_name(function.name).is_none(), "{} names a primitive too", function.name);
        }
    }
}
