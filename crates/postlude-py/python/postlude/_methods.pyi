# Made from the library's tables: `BLESS=1 pytest tests/test_cpu.py` writes it.

from typing import Any

from .builder import Expr

class Methods:
    def add(self, *rest: Any) -> Expr:
        """`a + b`."""

    def sub(self, *rest: Any) -> Expr:
        """`a - b`."""

    def mul(self, *rest: Any) -> Expr:
        """`a * b`."""

    def div(self, *rest: Any) -> Expr:
        """`a / b`. Integers truncate towards zero; dividing an integer by zero gives 0. The fast form gives 0 where `|b|` exceeds 2^126."""

    def neg(self, *rest: Any) -> Expr:
        """`-a`."""

    def abs(self, *rest: Any) -> Expr:
        """`|a|`. Its derivative at 0 and at NaN is 0."""

    def min(self, *rest: Any) -> Expr:
        """The smaller value, and -0 of two zeros; NaN if either is NaN. If both are equal the gradient goes to the second."""

    def max(self, *rest: Any) -> Expr:
        """The larger value, and +0 of two zeros; NaN if either is NaN, so `max(x, 0)` is the NaN-propagating ReLU. If both are equal the gradient goes to the second."""

    def fma(self, *rest: Any) -> Expr:
        """`a * b + c`, rounded once."""

    def exp(self, *rest: Any) -> Expr:
        """`e^a`."""

    def exp2(self, *rest: Any) -> Expr:
        """`2^a`."""

    def log(self, *rest: Any) -> Expr:
        """Natural logarithm: -inf at 0, NaN below."""

    def log1p(self, *rest: Any) -> Expr:
        """`log(1 + a)`, accurate near 0; NaN if `a < -1`."""

    def expm1(self, *rest: Any) -> Expr:
        """`e^a - 1`, accurate near 0."""

    def sqrt(self, *rest: Any) -> Expr:
        """Square root; NaN below 0."""

    def rsqrt(self, *rest: Any) -> Expr:
        """`1 / sqrt(a)`: inf at 0, NaN below."""

    def recip(self, *rest: Any) -> Expr:
        """`1 / a`."""

    def pow(self, *rest: Any) -> Expr:
        """`a` to the power `b`, as C's `powf`. The gradient of the exponent uses `log(a)` and is correct for `a > 0`. The fast form treats `a` below 2^-126 as 0, and takes exponents up to 2^22."""

    def tanh(self, *rest: Any) -> Expr:
        """Hyperbolic tangent, between -1 and 1."""

    def erf(self, *rest: Any) -> Expr:
        """Error function, between -1 and 1."""

    def sin(self, *rest: Any) -> Expr:
        """Sine; the argument is in radians."""

    def cos(self, *rest: Any) -> Expr:
        """Cosine; the argument is in radians."""

    def tan(self, *rest: Any) -> Expr:
        """Tangent; the argument is in radians."""

    def asin(self, *rest: Any) -> Expr:
        """Arcsine, in radians; NaN beyond -1 and 1."""

    def acos(self, *rest: Any) -> Expr:
        """Arccosine, in radians, from 0 to pi; NaN beyond -1 and 1."""

    def atan(self, *rest: Any) -> Expr:
        """Arctangent, in radians, between -pi/2 and pi/2."""

    def atan2(self, *rest: Any) -> Expr:
        """The angle of the point (`b`, `a`) in radians, from -pi to pi: the arctangent of `a / b` in the right quadrant. Its derivative at (0, 0) is 0."""

    def sinh(self, *rest: Any) -> Expr:
        """Hyperbolic sine."""

    def cosh(self, *rest: Any) -> Expr:
        """Hyperbolic cosine, at least 1."""

    def asinh(self, *rest: Any) -> Expr:
        """Inverse hyperbolic sine."""

    def acosh(self, *rest: Any) -> Expr:
        """Inverse hyperbolic cosine, at least 0; NaN below 1."""

    def atanh(self, *rest: Any) -> Expr:
        """Inverse hyperbolic tangent: infinite at -1 and 1, NaN beyond."""

    def log2(self, *rest: Any) -> Expr:
        """Logarithm to base 2: -inf at 0, NaN below."""

    def log10(self, *rest: Any) -> Expr:
        """Logarithm to base 10: -inf at 0, NaN below."""

    def exp10(self, *rest: Any) -> Expr:
        """`10^a`."""

    def cbrt(self, *rest: Any) -> Expr:
        """Cube root, with the sign of `a`."""

    def erfc(self, *rest: Any) -> Expr:
        """`1 - erf(a)`, accurate where the result is small."""

    def rcbrt(self, *rest: Any) -> Expr:
        """`1 / cbrt(a)`, with the sign of `a`; infinite at 0."""

    def hypot(self, *rest: Any) -> Expr:
        """`sqrt(a^2 + b^2)` without overflow of the squares. The fast form is infinite from about 1e19 on. Its derivative at (0, 0) is 0."""

    def sinpi(self, *rest: Any) -> Expr:
        """`sin(pi a)`, without the rounding of `pi a`."""

    def cospi(self, *rest: Any) -> Expr:
        """`cos(pi a)`, without the rounding of `pi a`."""

    def erfinv(self, *rest: Any) -> Expr:
        """Inverse error function: infinite at -1 and 1, NaN beyond."""

    def normcdf(self, *rest: Any) -> Expr:
        """The cumulative normal distribution, `erfc(-a / sqrt(2)) / 2`: accurate where it is small."""

    def floor(self, *rest: Any) -> Expr:
        """The largest integer that is not larger."""

    def ceil(self, *rest: Any) -> Expr:
        """The smallest integer that is not smaller."""

    def round(self, *rest: Any) -> Expr:
        """Nearest integer, ties to even."""

    def trunc(self, *rest: Any) -> Expr:
        """Nearest integer towards 0."""

    def copysign(self, *rest: Any) -> Expr:
        """The magnitude of `a` with the sign of `b`, which may be that of a zero. Its derivative is 0 where `a` is 0."""

    def min_num(self, *rest: Any) -> Expr:
        """The smaller value, and -0 of two zeros; if one is NaN, the other one (IEEE 754's `minNum`). If both are equal the gradient goes to the second."""

    def max_num(self, *rest: Any) -> Expr:
        """The larger value, and +0 of two zeros; if one is NaN, the other one (IEEE 754's `maxNum`). If both are equal the gradient goes to the second."""

    def sign(self, *rest: Any) -> Expr:
        """The sign: -1, 0 or 1; NaN of NaN."""

    def rem(self, *rest: Any) -> Expr:
        """Remainder with the sign of the dividend, as C's `fmodf` and `%`. An integer modulo zero is 0."""

    def floor_div(self, *rest: Any) -> Expr:
        """Floor division of integers, as Python's `//`: the quotient rounds towards minus infinity. Division by zero gives 0."""

    def floor_mod(self, *rest: Any) -> Expr:
        """Floor modulus of integers, as Python's `%`: the remainder of floor division, with the sign of `b`. Modulo zero is 0."""

    def shl(self, *rest: Any) -> Expr:
        """Shifts the bits of an integer up by `b` places, and fills with zeros. The result is 0 if `b` is not in 0 to 31."""

    def shr(self, *rest: Any) -> Expr:
        """Shifts the bits of an integer down by `b` places, and fills with copies of its sign (an arithmetic shift). Only the sign is left, as 0 or -1, if `b` is not in 0 to 31."""

    def popcount(self, *rest: Any) -> Expr:
        """The number of bits of an integer that are 1."""

    def is_nan(self, *rest: Any) -> Expr:
        """Whether a value is NaN."""

    def is_infinite(self, *rest: Any) -> Expr:
        """Whether a value is infinite, of either sign."""

    def is_finite(self, *rest: Any) -> Expr:
        """Whether a value is neither infinite nor NaN."""

    def eq(self, *rest: Any) -> Expr:
        """`a == b`; false if either is NaN. For conditions, whether both are the same."""

    def ne(self, *rest: Any) -> Expr:
        """`a != b`; true if either is NaN. For conditions, whether they differ."""

    def lt(self, *rest: Any) -> Expr:
        """`a < b`; false if either is NaN."""

    def le(self, *rest: Any) -> Expr:
        """`a <= b`; false if either is NaN."""

    def gt(self, *rest: Any) -> Expr:
        """`a > b`; false if either is NaN."""

    def ge(self, *rest: Any) -> Expr:
        """`a >= b`; false if either is NaN."""

    def xor(self, *rest: Any) -> Expr:
        """Whether exactly one holds. For integers, the bits in which they differ."""

    def to_f32(self, *rest: Any) -> Expr:
        """To `f32`; an integer and an `f64` round to nearest even."""

    def to_f64(self, *rest: Any) -> Expr:
        """To `f64`: exact."""

    def to_i32(self, *rest: Any) -> Expr:
        """To `i32`: rounds towards zero and saturates; NaN gives 0."""

    def to_bool(self, *rest: Any) -> Expr:
        """To a truth value: whether it differs from 0. NaN gives true."""

    def to_bits(self, *rest: Any) -> Expr:
        """The bits of an `f32` as an integer. The bits of a NaN are not specified."""

    def from_bits(self, *rest: Any) -> Expr:
        """The `f32` with the bits of an integer. The bits of a NaN are not specified."""

    def round_f16(self, *rest: Any) -> Expr:
        """Rounds once to the nearest `f16`, ties to even. The result is an `f32` value. The gradient passes through unchanged."""

    def round_bf16(self, *rest: Any) -> Expr:
        """Rounds once to the nearest `bf16`, ties to even. The result is an `f32` value. The gradient passes through unchanged."""

    def round_e4m3(self, *rest: Any) -> Expr:
        """Rounds once to the nearest `e4m3`, ties to even. A number beyond 448 becomes 448. The result is an `f32` value. The gradient passes through unchanged up to 448, and is zero beyond."""

    def round_e5m2(self, *rest: Any) -> Expr:
        """Rounds once to the nearest `e5m2`, ties to even. A number beyond 57344 becomes 57344. The result is an `f32` value. The gradient passes through unchanged up to 57344, and is zero beyond."""

    def to_i8(self, *rest: Any) -> Expr:
        """To the nearest integer from -128 to 127, ties to even; NaN gives 0."""

    def to_u8(self, *rest: Any) -> Expr:
        """To the nearest integer from 0 to 255, ties to even; NaN gives 0."""

    def relu(self) -> Expr:
        """max(x, 0). Propagates NaN, as PyTorch's does; its derivative at 0 is 0."""

    def relu6(self) -> Expr:
        """x clamped to [0, 6]."""

    def clamp(self, low: Any, high: Any) -> Expr:
        """x clamped to [low, high]; NaN stays NaN. Its derivative at both bounds is 1."""

    def leaky_relu(self, slope: Any) -> Expr:
        """x where x > 0, else slope * x."""

    def prelu(self, slope: Any) -> Expr:
        """x where x > 0, else slope * x, with a slope that is loaded or passed at launch."""

    def elu(self, alpha: Any) -> Expr:
        """x where x > 0, else alpha * (e^x - 1)."""

    def selu(self) -> Expr:
        """scale * elu(x, alpha) with the self-normalising constants."""

    def celu(self, alpha: Any) -> Expr:
        """x where x > 0, else alpha * (e^(x / alpha) - 1)."""

    def sigmoid(self) -> Expr:
        """1 / (1 + e^-x)."""

    def log_sigmoid(self) -> Expr:
        """log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|), which neither overflows nor cancels. Its derivative is 1 - e^y."""

    def silu(self) -> Expr:
        """x * sigmoid(x), also called swish."""

    def gelu(self) -> Expr:
        """GELU in its exact form, x * (1 + erf(x / sqrt(2))) / 2; the same as `gelu_erf`."""

    def gelu_erf(self) -> Expr:
        """x * (1 + erf(x / sqrt(2))) / 2."""

    def gelu_tanh(self) -> Expr:
        """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 (Hendrycks and Gimpel 2016)."""

    def gelu_quick(self) -> Expr:
        """x * sigmoid(1.702 x)."""

    def hardswish(self) -> Expr:
        """x * relu6(x + 3) / 6."""

    def hardsigmoid(self) -> Expr:
        """relu6(x + 3) / 6."""

    def hardtanh(self) -> Expr:
        """x clamped to [-1, 1]."""

    def softplus(self, beta: Any) -> Expr:
        """log(1 + e^(beta x)) / beta, computed as max(x, 0) + log(1 + e^-|beta x|) / beta for beta > 0. Its derivative is 1 - e^(-beta y)."""

    def softsign(self) -> Expr:
        """x / (1 + |x|)."""

    def mish(self) -> Expr:
        """x * tanh(softplus(x)), computed as x * n / (n + 2) with n = e^x (e^x + 2). This form does not cancel, and x is limited to 20 in n, so that n does not overflow."""

    def relu_squared(self) -> Expr:
        """relu(x)^2."""

    def softshrink(self, lambda: Any) -> Expr:
        """x - x clamped to [-lambda, lambda]: 0 near 0, and closer to 0 by lambda elsewhere."""

    def threshold(self, limit: Any, value: Any) -> Expr:
        """x where x > limit, else value."""

    def snake(self, a: Any) -> Expr:
        """x + sin(a x)^2 / a (Ziyin et al. 2020, "Neural Networks Fail to Learn Periodic Functions")."""

    def swish(self) -> Expr:
        """x * sigmoid(x), which is `silu` under its other name. With a factor in the sigmoid it is `swish_beta`."""

    def swish_beta(self, beta: Any) -> Expr:
        """x * sigmoid(beta x) (Ramachandran et al. 2017, "Searching for Activation Functions"); ONNX's Swish, whose alpha is this beta."""

    def hardshrink(self, lambda: Any) -> Expr:
        """0 where |x| <= lambda, else x. Its derivative at the borders is 0."""

    def shrink(self, bias: Any, lambda: Any) -> Expr:
        """x + bias where x < -lambda, x - bias where x > lambda, else 0; NaN stays NaN. ONNX's Shrink. Its derivative at the borders is 0."""

    def tanhshrink(self) -> Expr:
        """x - tanh(x). Near 0, where it is about x^3 / 3, it is as accurate as the rounding of x, as in PyTorch."""

    def hardsigmoid_with(self, alpha: Any, beta: Any) -> Expr:
        """alpha x + beta clamped to [0, 1]: ONNX's HardSigmoid, whose defaults are 0.2 and 0.5. `hardsigmoid` is PyTorch's. Its derivative at both bounds is alpha, as that of `clamp`."""

    def scaled_tanh(self, alpha: Any, beta: Any) -> Expr:
        """alpha * tanh(beta x): ONNX's ScaledTanh."""

    def thresholded_relu(self, limit: Any) -> Expr:
        """x where x > limit, else 0; NaN stays NaN. ONNX's ThresholdedRelu, whose alpha is this limit. Its derivative at the limit is 0."""

    def affine(self, alpha: Any, beta: Any) -> Expr:
        """alpha x + beta, rounded once: ONNX's Affine."""

    def parametric_softplus(self, alpha: Any, beta: Any) -> Expr:
        """alpha * log(1 + e^(beta x)): ONNX's ParametricSoftplus."""

    def rrelu(self, lower: Any, upper: Any) -> Expr:
        """PyTorch's rrelu in evaluation mode: x where x > 0, else x times the mean of both slopes."""

    def sum_over(self, axes: str) -> Expr:
        """The `sum` along these axes: a value of the graph."""

    def product_over(self, axes: str) -> Expr:
        """The `product` along these axes: a value of the graph."""

    def max_over(self, axes: str) -> Expr:
        """The `max` along these axes: a value of the graph."""

    def min_over(self, axes: str) -> Expr:
        """The `min` along these axes: a value of the graph."""

    def absmax_over(self, axes: str) -> Expr:
        """The `absmax` along these axes: a value of the graph."""

    def logsumexp_over(self, axes: str) -> Expr:
        """The `logsumexp` along these axes: a value of the graph."""

    def mean_over(self, axes: str) -> Expr:
        """The `mean` along these axes: a value of the graph."""

    def variance_over(self, axes: str) -> Expr:
        """The `variance` along these axes: a value of the graph."""

    def sumsquares_over(self, axes: str) -> Expr:
        """The `sumsquares` along these axes: a value of the graph."""

    def norm2_over(self, axes: str) -> Expr:
        """The `norm2` along these axes: a value of the graph."""

    def count_over(self, axes: str) -> Expr:
        """The `count` along these axes: a value of the graph."""

    def argmax_over(self, axes: str) -> Expr:
        """The `argmax` along these axes: a value of the graph."""

    def argmin_over(self, axes: str) -> Expr:
        """The `argmin` along these axes: a value of the graph."""

def stub() -> str: ...
