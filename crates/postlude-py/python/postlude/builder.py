"""The builder: a Python function over expressions becomes an epilogue.

Building computes nothing. Each operator and method adds a node to a graph, which the library checks, evaluates on the CPU
and compiles for a GPU. An error names the line of Python that added the node.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Sequence

from . import _native
from ._methods import Methods
from ._native import ArgumentError, Epilogue

Number = (bool, int, float)
_HERE = os.path.dirname(os.path.abspath(__file__))

# NumPy's and PyTorch's names of the formats.
_FORMATS = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
}


def format_of(dtype: Any) -> str:
    """The library's name of a format: `f16` for `"f16"`, `torch.float16`, `numpy.float16`."""
    if isinstance(dtype, str) and dtype not in _FORMATS:
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    return _FORMATS.get(name, name)


def _at() -> str:
    """The line of the program that called the builder."""
    frame = sys._getframe(1)
    while frame is not None and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


class Expr(Methods):
    """A value of the epilogue under construction. Operators and methods add nodes; nothing is computed.

    A Python number takes the type of the value beside it. Every primitive and activation of the library is a method:
    `z.gelu()`, `z.leaky_relu(0.1)`, `z.max(0.0)`.
    """

    __slots__ = ("_builder", "_id")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: "Builder", id: int):
        self._builder = builder
        self._id = id

    @property
    def type(self) -> str:
        """Its type: `f32`, `f64`, `i32` or `bool`."""
        return self._builder._graph.value_type(self._id)

    def _apply(self, name: str, *rest: Any) -> "Expr":
        return self._builder._apply(name, [self, *rest])

    def cast(self, dtype: Any) -> "Expr":
        """Converts to another type, or rounds once to the precision of a narrower format."""
        return Expr(self._builder, self._builder._graph.cast(self._id, format_of(dtype), _at()))

    def select(self, then: Any, otherwise: Any) -> "Expr":
        """`then` where this condition holds, else `otherwise`."""
        return self._builder._select(self, then, otherwise)

    def region(self, condition: "Expr", function: Callable[["Expr"], Any]) -> "Regions":
        """Begins a region: where `condition` holds, the value is `function` of this one."""
        return Regions(self, [(condition, function(self))])

    def reduce_over(self, monoid: str, axes: str) -> "Expr":
        """What the elements come to along axes: a value of the graph."""
        return self._builder.reduce_over(self, monoid, axes)

    def softmax_over(self, axes: str) -> "Expr":
        """e^x over the sum of all e^x along these axes."""
        return self.log_softmax_over(axes).exp()

    def log_softmax_over(self, axes: str) -> "Expr":
        """The logarithm of the softmax along these axes."""
        return self - self.reduce_over("logsumexp", axes)

    def mean_square_over(self, axes: str) -> "Expr":
        """The mean of squares along these axes."""
        return (self * self).reduce_over("mean", axes)

    def __add__(self, other: Any) -> "Expr":
        return self._apply("add", other)

    def __radd__(self, other: Any) -> "Expr":
        return self._builder._apply("add", [other, self])

    def __sub__(self, other: Any) -> "Expr":
        return self._apply("sub", other)

    def __rsub__(self, other: Any) -> "Expr":
        return self._builder._apply("sub", [other, self])

    def __mul__(self, other: Any) -> "Expr":
        return self._apply("mul", other)

    def __rmul__(self, other: Any) -> "Expr":
        return self._builder._apply("mul", [other, self])

    def __truediv__(self, other: Any) -> "Expr":
        return self._apply("div", other)

    def __rtruediv__(self, other: Any) -> "Expr":
        return self._builder._apply("div", [other, self])

    def __floordiv__(self, other: Any) -> "Expr":
        return self._apply("floor_div", other)

    def __mod__(self, other: Any) -> "Expr":
        return self._apply("floor_mod", other)

    def __pow__(self, other: Any) -> "Expr":
        return self._apply("pow", other)

    def __lshift__(self, other: Any) -> "Expr":
        return self._apply("shl", other)

    def __rshift__(self, other: Any) -> "Expr":
        return self._apply("shr", other)

    def __and__(self, other: Any) -> "Expr":
        return self._apply("and", other)

    def __or__(self, other: Any) -> "Expr":
        return self._apply("or", other)

    def __xor__(self, other: Any) -> "Expr":
        return self._apply("xor", other)

    def __invert__(self) -> "Expr":
        return self._apply("not")

    def __neg__(self) -> "Expr":
        return self._apply("neg")

    def __abs__(self) -> "Expr":
        return self._apply("abs")

    def __lt__(self, other: Any) -> "Expr":
        return self._apply("lt", other)

    def __le__(self, other: Any) -> "Expr":
        return self._apply("le", other)

    def __gt__(self, other: Any) -> "Expr":
        return self._apply("gt", other)

    def __ge__(self, other: Any) -> "Expr":
        return self._apply("ge", other)

    def __eq__(self, other: Any) -> "Expr":  # type: ignore[override]
        return self._apply("eq", other)

    def __ne__(self, other: Any) -> "Expr":  # type: ignore[override]
        return self._apply("ne", other)

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression has no value while the graph is built: instead of `if` use `condition.select(then, otherwise)`, "
            "or `z.region(condition, function)`"
        )


class Regions:
    """Cases of (condition, value), tried in order. `Expr.region` begins them, and `otherwise` closes them."""

    def __init__(self, subject: Expr, cases: list[tuple[Expr, Any]]):
        self._subject = subject
        self._cases = cases

    def region(self, condition: Expr, function: Callable[[Expr], Any]) -> "Regions":
        """Adds a region."""
        return Regions(self._subject, [*self._cases, (condition, function(self._subject))])

    def otherwise(self, function: Callable[[Expr], Any]) -> Expr:
        """The value where no condition holds."""
        value = function(self._subject)
        for condition, then in reversed(self._cases):
            value = self._subject._builder._select(condition, then, value)
        return value


class Builder:
    """Collects the nodes of one epilogue. The function of `build` receives it.

    A format that a `load` or `store` leaves out is that of the argument of this name, or else that of `a`.
    """

    def __init__(self, formats: dict[str, str] | None = None, default: str = "f32", accumulator: str = "f32"):
        self._graph = _native.Graph()
        self._formats = formats or {}
        self._default = default
        self._accumulator = accumulator

    def _value(self, value: Any, beside: str) -> int:
        if isinstance(value, Expr):
            if value._builder is not self:
                raise ArgumentError(f"an expression of another builder is used at {_at()}: build it with this one")
            return value._id
        if isinstance(value, Regions):
            raise ArgumentError("a region has a value once it is closed: `z.region(condition, f).otherwise(g)`")
        if isinstance(value, Number):
            kind = beside
            if beside == "bool" and not isinstance(value, bool):
                kind = "i32" if isinstance(value, int) else "f32"
            elif beside == "i32" and isinstance(value, float):
                kind = "f32"
            return self._graph.constant(float(value), kind, _at())
        raise ArgumentError(f"{value!r} is not an expression or a number, at {_at()}")

    def _beside(self, values: Sequence[Any]) -> str:
        """The type that a number takes."""
        kinds = [value.type for value in values if isinstance(value, Expr)]
        return kinds[0] if kinds else "f32"

    def _apply(self, name: str, values: Sequence[Any]) -> Expr:
        beside = self._beside(values)
        return Expr(self, self._graph.apply(name, [self._value(value, beside) for value in values], _at()))

    def _select(self, condition: Any, then: Any, otherwise: Any) -> Expr:
        beside = self._beside([then, otherwise])
        values = [self._value(condition, "bool"), self._value(then, beside), self._value(otherwise, beside)]
        return Expr(self, self._graph.apply("select", values, _at()))

    def _operand(self, name: str, dtype: Any, over: str | None, order: str, batched: bool) -> tuple[str, str, bool]:
        kind = format_of(dtype) if dtype is not None else self._formats.get(name, self._default)
        axes = "MNL" if over is None else over + ("L" if batched and "L" not in over else "")
        if order not in ("row_major", "column_major"):
            raise ArgumentError(f"no order `{order}`: `row_major` or `column_major`")
        return (kind, axes, order == "column_major")

    def acc(self) -> Expr:
        """The accumulator: an element of the product."""
        return Expr(self, self._graph.accumulator(self._accumulator, _at()))

    def a(self) -> Expr:
        """An element of the left operand, which can only be summed over K."""
        return Expr(self, self._graph.element("a", self._accumulator, _at()))

    def b(self) -> Expr:
        """An element of the right operand, which can only be summed over K."""
        return Expr(self, self._graph.element("b", self._accumulator, _at()))

    def row(self) -> Expr:
        """The row of the output element."""
        return Expr(self, self._graph.coordinate("row", _at()))

    def column(self) -> Expr:
        """The column of the output element."""
        return Expr(self, self._graph.coordinate("column", _at()))

    def batch(self) -> Expr:
        """The batch entry of the output element."""
        return Expr(self, self._graph.coordinate("batch", _at()))

    def constant(self, value: float | int | bool, dtype: Any = None) -> Expr:
        """A constant: an `f32`, an `i32` for an integer, a `bool`, or of the named type."""
        natural = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
        return Expr(self, self._graph.constant(float(value), format_of(dtype) if dtype is not None else natural, _at()))

    def scalar(self, name: str, dtype: Any = None, default: float | int | bool | None = None) -> Expr:
        """A number that a call passes by value; one with a default may be left out."""
        kind = format_of(dtype) if dtype is not None else self._formats.get(name, "f32")
        kind = kind if kind in ("f64", "i32", "bool") else "f32"
        return Expr(self, self._graph.scalar(name, kind, None if default is None else float(default), _at()))

    def load(
        self,
        name: str,
        dtype: Any = None,
        *,
        over: str | None = None,
        order: str = "row_major",
        batched: bool = False,
        default: float | None = None,
    ) -> Expr:
        """An element of a tensor: a matrix, or a vector `over="N"` or `over="M"`, or one number `over=""`.

        One with a default may be left out of a call.
        """
        operand = self._operand(name, dtype, over, order, batched)
        return Expr(self, self._graph.load(name, operand, None if default is None else float(default), _at()))

    def gather(self, name: str, index: Any, dtype: Any = None) -> Expr:
        """An element of a table at an integer index; 0 outside the table."""
        kind = format_of(dtype) if dtype is not None else self._formats.get(name, self._default)
        return Expr(self, self._graph.gather(name, kind, self._value(index, "i32"), _at()))

    def store(self, name: str, value: Any, dtype: Any = None, *, over: str | None = None, order: str = "row_major") -> None:
        """Stores a value, rounded once to its format. A store under the name of a load updates that tensor in place."""
        operand = self._operand(name, dtype, over, order, False)
        self._graph.store(name, self._value(value, "f32"), operand, _at())

    def reduce(
        self,
        name: str,
        value: Any,
        monoid: str,
        dtype: Any = None,
        *,
        over: str = "",
        batched: bool = False,
        atomic: bool = False,
        accumulate: bool = False,
    ) -> None:
        """Reduces a value over every axis that the result does not vary along, and stores the result.

        `over="N"` gives one result a column, `over="M"` one a row, `over=""` one.
        """
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        ids = [self._value(value, "f32") for value in values]
        if monoid in ("argmax", "argmin") and len(ids) == 1:
            index = {"M": self.column, "N": self.row}.get(over.replace("L", ""))
            ids.extend([index()._id] if index else [])
        wide = dtype is None and name not in self._formats and monoid in ("argmax", "argmin", "count")
        natural = "i32" if wide else dtype
        if natural is None and name not in self._formats:
            natural = "f64" if self._accumulator == "f64" else "f32"
        operand = self._operand(name, natural, over, "row_major", batched)
        self._graph.reduce(name, ids, monoid, (atomic, accumulate), operand, _at())

    def reduce_over(self, value: Any, monoid: str, axes: str) -> Expr:
        """What elements come to along some of the axes M, N and L: a value of the graph."""
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        ids = [self._value(value, "f32") for value in values]
        if monoid in ("argmax", "argmin") and len(ids) == 1:
            index = {"M": self.row, "N": self.column, "L": self.batch}.get(axes)
            ids.extend([index()._id] if index else [])
        return Expr(self, self._graph.reduce_over(monoid, axes, ids, _at()))


def build(function: Callable[[Builder], Any], **options: Any) -> Epilogue:
    """Builds the graph with a function and checks it.

    `formats` gives formats by the names of arguments, `default` that of the others, and `accumulator` the type of the
    product: `f32`, `f64` or `i32`. Raises `CheckError` with every broken rule.
    """
    builder = Builder(**options)
    function(builder)
    return builder._graph.finish()
