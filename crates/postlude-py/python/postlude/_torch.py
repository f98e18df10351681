"""What PyTorch adds: gradients from the derived backward epilogue, and an operator that `torch.compile` knows."""

from __future__ import annotations

import functools
import json
from typing import Any, Sequence

import torch
from torch import Tensor

from ._native import Product
from .builder import build, format_of
from .call import _from_key, _key, _product

_OPERATOR = "postlude::gemm"


class Pair:
    """An epilogue that saves what its derivative needs, and the derivative. Made once for each set of gradients."""

    def __init__(self, key: str, names: tuple[str, ...], accumulator: bool):
        text, a, b, options = json.loads(key)
        arguments = _from_key(key).epilogue.arguments
        floats = ("f32", "f64", "f16", "bf16")
        stored = [(name, kind, axes) for name, role, kind, axes, _ in arguments if role == "output"]
        sinks = {sink["name"]: sink for sink in json.loads(text)["sinks"]}
        # A reduction has a gradient only if it is a sum.
        sums = {name for name, sink in sinks.items() if "monoid" not in sink or sink["monoid"] == "sum"}
        self.outputs = [name for name, _, _ in stored]
        self.differentiable = [name for name, kind, _ in stored if kind in floats and name in sums]
        kept = [name for name, kind, axes in stored if kind in floats and "MN" in axes]
        detached = [name for name in self.outputs if name not in self.differentiable]
        epilogue = _from_key(key).epilogue
        forward, backward, self.saved, self.through = epilogue.backward(
            list(names), a if accumulator else None, detached, kept
        )
        kinds = {name: kind for name, kind, _ in stored}
        self.forward_key = json.dumps([forward.to_json(), a, b, options])
        self.backward_key = json.dumps([backward.to_json(), kinds[self.through], None, [False, False, 0]])
        self.saves = [name for name, role, *_ in forward.arguments if role == "output"]
        self.needs = [name for name, role, *_ in backward.arguments if role in ("input", "table", "scalar")]
        self.gradients = [name for name, role, *_ in backward.arguments if role == "output"]


@functools.lru_cache(maxsize=1024)
def _pair(key: str, names: tuple[str, ...], accumulator: bool) -> Pair:
    return Pair(key, names, accumulator)


@functools.lru_cache(maxsize=64)
def _plain(a: str, d: str) -> str:
    """The product alone."""
    accumulator = "f64" if a == "f64" else "f32"
    epilogue = build(lambda e: e.store("d", e.acc(), d), default=a, accumulator=accumulator)
    return json.dumps([epilogue.to_json(), a, a, [False, False, 0]])


def _tuple(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def _lies(x: Tensor) -> Tensor:
    """The tensor, or a copy of one that no launch reads: expanded, or with gaps in both directions."""
    if x.dim() < 2:
        return x.contiguous()
    rows = x.stride(-1) == 1 and x.stride(-2) >= x.size(-1)
    columns = x.stride(-2) == 1 and x.stride(-1) >= x.size(-2)
    return x if rows or columns else x.contiguous()


def _matmul(run: Any, a: Tensor, b: Tensor) -> Tensor:
    return run(_plain(format_of(a.dtype), format_of(a.dtype)), _lies(a), _lies(b), {}, (0, 0, 0))[0]


def _operands(run: Any, a: Tensor, b: Tensor, dz: Tensor, needs: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of both operands."""
    da = db = None
    if needs[0]:
        da = _matmul(run, dz, b.mT)
        if a.dim() == 2 and da.dim() == 3:
            da = da.sum(0)
    if needs[1]:
        if b.dim() == 2 and dz.dim() == 3:
            left = a if a.dim() == 3 else a.expand(dz.size(0), *a.shape)
            db = _matmul(run, left.reshape(-1, left.size(-1)).mT, dz.reshape(-1, dz.size(-1)))
        else:
            db = _matmul(run, a.mT, dz)
    return da, db


def _backward(
    run: Any, pair: Pair, a: Tensor, b: Tensor | None, args: dict, kept: dict, gradients: dict, origin: Any, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, dict]:
    """The gradients of `a`, of `b`, and of the arguments by name."""
    given = {}
    for name in pair.needs:
        if name in kept:
            given[name] = kept[name]
        elif name.startswith("upstream_"):
            given[name] = gradients[name.removeprefix("upstream_")].contiguous()
        elif name in args:
            given[name] = args[name]
    results = run(pair.backward_key, _lies(gradients[pair.through]), None, given, origin)
    named = dict(zip(pair.gradients, results))
    da = db = None
    dz = named.pop("grad_acc", None)
    if dz is not None:
        da, db = (dz, None) if b is None else _operands(run, a, b, dz, needs)
    return da, db, {name.removeprefix("grad_"): gradient for name, gradient in named.items()}


def _eager(key: str, a: Tensor, b: Tensor | None, args: dict, origin: Any) -> tuple:
    return _tuple(_from_key(key).run(a, b, args, None, tuple(origin)))


class _Gemm(torch.autograd.Function):
    """A product whose gradients the derived epilogue computes."""

    @staticmethod
    def forward(ctx: Any, pair: Pair, names: tuple, numbers: dict, origin: tuple, a: Tensor, b: Tensor | None, *tensors: Tensor):
        outputs = dict(zip(pair.saves, _eager(pair.forward_key, a, b, {**dict(zip(names, tensors)), **numbers}, origin)))
        ctx.pair, ctx.names, ctx.numbers, ctx.origin = pair, names, numbers, origin
        ctx.kept = [name for name in pair.needs if name in outputs]
        ctx.save_for_backward(a, b, *tensors, *[outputs[name] for name in ctx.kept])
        visible = tuple(outputs[name] for name in pair.outputs)
        ctx.mark_non_differentiable(*[outputs[name] for name in pair.outputs if name not in pair.differentiable])
        return visible

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor):
        a, b, *rest = ctx.saved_tensors
        tensors, kept = rest[: len(ctx.names)], rest[len(ctx.names) :]
        args = {**dict(zip(ctx.names, tensors)), **ctx.numbers}
        named = dict(zip(ctx.pair.outputs, gradients))
        needs = ctx.needs_input_grad[4:6]
        da, db, others = _backward(_eager, ctx.pair, a, b, args, dict(zip(ctx.kept, kept)), named, ctx.origin, needs)
        shaped = [others[name].reshape(x.shape) if name in others else None for name, x in zip(ctx.names, tensors)]
        return None, None, None, None, da if needs[0] else None, db if needs[1] else None, *shaped


def _split(args: dict) -> tuple[list[str], list[Tensor], dict]:
    names = [name for name, value in args.items() if isinstance(value, Tensor)]
    numbers = {name: value for name, value in args.items() if value is not None and not isinstance(value, Tensor)}
    return names, [args[name] for name in names], numbers


def call(a: Tensor, b: Tensor | None, epilogue: Any, args: dict, origin: tuple, options: tuple) -> Any:
    """A call without `out`, on tensors of PyTorch."""
    if torch.compiler.is_compiling():
        return _compiled(a, b, epilogue, args, origin, options)
    product = _product(epilogue, a, b, args, None, options)
    if torch.is_grad_enabled():
        names, tensors, numbers = _split(args)
        wanted = tuple(name for name, tensor in zip(names, tensors) if tensor.requires_grad)
        operands = a.requires_grad or (b is not None and b.requires_grad)
        if wanted or operands:
            key = _key(product, format_of(a.dtype), None if b is None else format_of(b.dtype), options)
            outputs = _Gemm.apply(_pair(key, wanted, operands), tuple(names), numbers, origin, a, b, *tensors)
            return outputs[0] if len(outputs) == 1 else outputs
    return product.run(a, b, args, None, origin)


class _Like:
    """What tracing asks of a tensor: its format."""

    def __init__(self, dtype: Any):
        self.dtype = dtype


@torch.compiler.assume_constant_result
def _traced(epilogue: Any, a: Any, b: Any, names: tuple, dtypes: tuple, numbers: tuple, kinds: tuple, options: tuple) -> str:
    """The product as text, found while `torch.compile` traces."""
    args = {name: _Like(dtype) for name, dtype in zip(names, dtypes)}
    args.update(zip(numbers, kinds))
    like_b = None if b is None else _Like(b)
    product = _product(epilogue, _Like(a), like_b, args, None, options)
    return _key(product, format_of(a), None if b is None else format_of(b), options)


@torch.compiler.assume_constant_result
def _traced_pair(key: str, names: tuple, accumulator: bool) -> str:
    return json.dumps([_pair(key, names, accumulator).forward_key, key, names, accumulator])


@torch.compiler.assume_constant_result
def _visible(key: str) -> int:
    return len([1 for _, role, *_ in _from_key(key).epilogue.arguments if role == "output"])


@torch.compiler.assume_constant_result
def _first(pair: str) -> str:
    return json.loads(pair)[0]


def _compiled(a: Tensor, b: Tensor | None, epilogue: Any, args: dict, origin: tuple, options: tuple) -> Any:
    names, tensors, numbers = _split(args)
    kinds = tuple([type(value)(0) for value in numbers.values()])
    dtypes = tuple([tensor.dtype for tensor in tensors])
    dtype_b = None if b is None else b.dtype
    key = _traced(epilogue, a.dtype, dtype_b, tuple(names), dtypes, tuple(numbers), kinds, options)
    visible = _visible(key)
    wanted = tuple([name for name, tensor in zip(names, tensors) if tensor.requires_grad])
    operands = a.requires_grad or (b is not None and b.requires_grad)
    pair = ""
    if torch.is_grad_enabled() and (operands or len(wanted) > 0):
        pair = _traced_pair(key, wanted, operands)
        key = _first(pair)
    words = ",".join(names) + "|" + ",".join(numbers)
    values = [float(value) for value in numbers.values()]
    outputs = torch.ops.postlude.gemm(a, b, tensors, values, words, key, pair, list(origin))[:visible]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _named(words: str, tensors: Sequence[Tensor], numbers: Sequence[float]) -> tuple[list[str], dict]:
    of_tensors, of_numbers = ([word for word in part.split(",") if word] for part in words.split("|"))
    return of_tensors, {**dict(zip(of_tensors, tensors)), **dict(zip(of_numbers, numbers))}


@torch.library.custom_op(
    _OPERATOR,
    mutates_args=(),
    schema="(Tensor a, Tensor? b, Tensor[] tensors, float[] numbers, str words, str key, str pair, int[] origin) -> Tensor[]",
)
def _gemm(a, b, tensors, numbers, words, key, pair, origin):
    _, args = _named(words, tensors, numbers)
    return list(_eager(key, a, b, args, tuple(origin)))


@_gemm.register_fake
def _fake(a, b, tensors, numbers, words, key, pair, origin):
    product: Product = _from_key(key)
    m, n = a.size(-2), a.size(-1) if b is None else b.size(-1)
    batch = a.size(0) if a.dim() == 3 else b.size(0) if b is not None and b.dim() == 3 else None
    outputs = []
    for extents, packed, transposed, name in product.output_shapes:
        sizes = {"M": m, "N": n, "L": batch}
        shape = [sizes[axis] for axis in extents if sizes[axis] is not None]
        if packed:
            shape[-1] = (shape[-1] + packed - 1) // packed * packed // 8
        output = a.new_empty(shape, dtype=getattr(torch, name))
        outputs.append(output.mT if transposed else output)
    return outputs


def _setup(ctx, inputs, output):
    a, b, tensors, numbers, words, key, pair, origin = inputs
    ctx.words, ctx.pair, ctx.origin, ctx.numbers = words, pair, origin, numbers
    if pair:
        _, text, names, accumulator = json.loads(pair)
        found = _pair(text, tuple(names), accumulator)
        outputs = dict(zip(found.saves, output))
        kept = [outputs[name] for name in found.needs if name in outputs]
        ctx.count = len(tensors)
        ctx.save_for_backward(a, b, *tensors, *kept)


def _through_operator(key: str, a: Tensor, b: Tensor | None, args: dict, origin: Any) -> tuple:
    names, tensors, numbers = _split(args)
    words = ",".join(names) + "|" + ",".join(numbers)
    values = [float(value) for value in numbers.values()]
    return tuple(torch.ops.postlude.gemm(a, b, tensors, values, words, key, "", list(origin)))


def _operator_backward(ctx, gradients):
    if not ctx.pair:
        raise RuntimeError("the operator was called without a pair, so it has no gradient: call `postlude.gemm`")
    _, text, wanted, accumulator = json.loads(ctx.pair)
    pair = _pair(text, tuple(wanted), accumulator)
    a, b, *rest = ctx.saved_tensors
    tensors, kept = rest[: ctx.count], rest[ctx.count :]
    names, args = _named(ctx.words, tensors, ctx.numbers)
    saved = dict(zip([name for name in pair.needs if name in pair.saves], kept))
    named = dict(zip(pair.saves, gradients))
    needs = ctx.needs_input_grad[0:2]
    da, db, others = _backward(_through_operator, pair, a, b, args, saved, named, ctx.origin, needs)
    shaped = [others[name].reshape(x.shape) if name in others else None for name, x in zip(names, tensors)]
    # An empty list counts as one of tensors.
    return da if needs[0] else None, db if needs[1] else None, shaped, None if ctx.numbers else [], None, None, None, None


_gemm.register_autograd(_operator_backward, setup_context=_setup)
