"""Calls: an epilogue behind the product of two tensors, or over one tensor."""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Union

from ._native import ArgumentError, Epilogue, Product
from .builder import Builder, build, format_of

EpilogueLike = Union[Epilogue, str, Callable[[Builder], Any]]

# Products by what they were asked for. A function is traced once for the formats of its arguments.
_PRODUCTS: dict[tuple, tuple[Any, Product]] = {}
_MOST = 4096
# What PyTorch adds: gradients and `torch.compile`. Loaded with the first tensor of PyTorch.
_torch: Any = None


def _kind(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return type(value) if dtype is None else dtype


def _scalar_format(value: Any, real: str) -> str:
    return "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else real


def trace(epilogue: EpilogueLike, a: Any, b: Any = None, out: Any = None, **args: Any) -> Epilogue:
    """The epilogue that a call with these arguments runs. Formats that it leaves out are those of the arguments."""
    if isinstance(epilogue, Epilogue):
        return epilogue
    if isinstance(epilogue, str):
        return Epilogue.from_json(epilogue) if epilogue.lstrip().startswith("{") else Epilogue.from_text(epilogue)
    kind = format_of(a.dtype)
    accumulator = "f64" if kind == "f64" else "i32" if kind in ("i32", "i8", "u8") else "f32"
    # A Python number is as wide as the product.
    real = "f64" if kind == "f64" else "f32"
    formats = {
        name: _scalar_format(value, real) if getattr(value, "dtype", None) is None else format_of(value.dtype)
        for name, value in args.items()
        if value is not None
    }
    outputs = out if isinstance(out, dict) else {} if out is None else {"d": out}
    formats.update({name: format_of(value.dtype) for name, value in outputs.items()})
    return build(epilogue, formats=formats, default=kind, accumulator=accumulator)


@functools.lru_cache(maxsize=_MOST)
def _of(text: str, a: str, b: str | None, options: tuple) -> Product:
    """The product of an epilogue in JSON. Equal epilogues share their kernels."""
    return Product(Epilogue.from_json(text), a, b, *options)


def _product(epilogue: EpilogueLike, a: Any, b: Any, args: dict, out: Any, options: tuple) -> Product:
    kinds = tuple([(name, _kind(value)) for name, value in args.items()])
    if out is not None:
        kinds += tuple((name, _kind(value)) for name, value in out.items()) if isinstance(out, dict) else (_kind(out),)
    # An epilogue is known by its identity, and kept, so that no other one gets the same.
    name = id(epilogue) if isinstance(epilogue, Epilogue) else epilogue
    try:
        key = (name, a.dtype, None if b is None else b.dtype, options, kinds)
    except AttributeError:
        raise ArgumentError("operands are tensors of PyTorch, NumPy or DLPack with a `dtype`") from None
    found = _PRODUCTS.get(key)
    if found is None:
        traced = trace(epilogue, a, b, out, **args)
        product = _of(traced.to_json(), format_of(a.dtype), None if b is None else format_of(b.dtype), options)
        if len(_PRODUCTS) >= _MOST:
            _PRODUCTS.clear()
        found = _PRODUCTS[key] = (epilogue, product)
    return found[1]


def _hooks(a: Any) -> Any:
    global _torch
    if _torch is None and type(a).__module__.partition(".")[0] == "torch":
        from . import _torch as hooks

        _torch = hooks
    return _torch


def _call(a: Any, b: Any, epilogue: EpilogueLike, args: dict, out: Any, origin: tuple, options: tuple) -> Any:
    hooks = _torch or _hooks(a)
    if hooks is not None and out is None and isinstance(a, hooks.Tensor):
        return hooks.call(a, b, epilogue, args, origin, options)
    return _product(epilogue, a, b, args, out, options).run(a, b, args, out, origin)


def gemm(
    a: Any,
    b: Any,
    epilogue: EpilogueLike,
    *,
    out: Any = None,
    origin: tuple[int, int, int] = (0, 0, 0),
    tf32: bool = False,
    fast_accumulation: bool = False,
    split_k: int = 0,
    **args: Any,
) -> Any:
    """`epilogue` behind the product `a @ b`, in one kernel.

    `a` is M x K and `b` is K x N, or either has a batch axis in front. Views count as they lie: `w.T` is a column-major
    operand, and nothing is copied. `args` are the epilogue's arguments by name: tensors, and numbers for its scalars.

    Returns the output, or a tuple of the outputs in the order of the epilogue. `out` is a tensor to write to, or a
    dictionary of them by name; other outputs come from the allocator of `a`'s library. Outputs of PyTorch have gradients,
    unless `out` is given.
    """
    return _call(a, b, epilogue, args, out, origin, (tf32, fast_accumulation, split_k))


def pointwise(
    a: Any, epilogue: EpilogueLike, *, out: Any = None, origin: tuple[int, int, int] = (0, 0, 0), **args: Any
) -> Any:
    """`epilogue` over the elements of the matrix `a`, which are its accumulators. Otherwise as `gemm`."""
    return _call(a, None, epilogue, args, out, origin, (False, False, 0))


def explain(
    a: Any, b: Any, epilogue: EpilogueLike, *, target: str | None = None, multiprocessors: int = 132, **args: Any
) -> str:
    """Which kernel `gemm` would run, and why. Without a GPU, name a `target` such as `"sm_90a"`."""
    product = _product(epilogue, a, b, args, None, (False, False, 0))
    return product.explain(a, b, args, None, target, multiprocessors)


def source(
    a: Any, b: Any, epilogue: EpilogueLike, *, target: str | None = None, multiprocessors: int = 132, **args: Any
) -> str:
    """The CUDA source of the kernel that `gemm` would run. Without a GPU, name a `target` such as `"sm_90a"`."""
    product = _product(epilogue, a, b, args, None, (False, False, 0))
    return product.source(a, b, args, None, target, multiprocessors)


def autotune(a: Any, b: Any, epilogue: EpilogueLike, *, out: Any = None, seconds: float = 10.0, **args: Any) -> str:
    """Measures the tiles that fit on these tensors, and says what it found. Later calls of the kind run the fastest."""
    return _product(epilogue, a, b, args, out, (False, False, 0)).autotune(a, b, args, out, seconds)


def _key(product: Product, a: str, b: str | None, options: tuple) -> str:
    """A product as text: the same in every process."""
    return json.dumps([product.epilogue.to_json(), a, b, options])


@functools.lru_cache(maxsize=_MOST)
def _from_key(key: str) -> Product:
    text, a, b, options = json.loads(key)
    return _of(text, a, b, tuple(options))


__all__ = ["autotune", "explain", "gemm", "pointwise", "source", "trace"]
