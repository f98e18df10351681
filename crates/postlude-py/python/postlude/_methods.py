"""The methods of expressions that the library's tables name. None is written here: each row is a method."""

from __future__ import annotations

import keyword
from typing import Any, Callable

from . import _native


class Methods:
    """A method for each primitive and activation, and one for each monoid along axes."""

    __slots__ = ()


def _method(name: str, parameters: list[str] | None, doc: str) -> Callable[..., Any]:
    def method(self: Any, *rest: Any) -> Any:
        if parameters is not None and len(rest) != len(parameters):
            raise TypeError(f"`{name}` takes {len(parameters)} parameter(s) ({', '.join(parameters)}), got {len(rest)}")
        return self._apply(name, *rest)

    method.__name__ = name
    method.__qualname__ = f"Expr.{name}"
    method.__doc__ = doc.strip()
    return method


def _over(monoid: str) -> Callable[..., Any]:
    def method(self: Any, axes: str) -> Any:
        return self.reduce_over(monoid, axes)

    method.__name__ = f"{monoid}_over"
    method.__doc__ = f"The `{monoid}` along these axes: a value of the graph."
    return method


def stub() -> str:
    """The stub file of this module."""
    lines = ["# Made from the library's tables: `BLESS=1 pytest tests/test_cpu.py` writes it.", "", "from typing import Any", ""]
    lines += ["from .builder import Expr", "", "class Methods:"]
    for name, parameters, doc in _native.methods():
        if keyword.iskeyword(name) or name == "select":
            continue
        rest = "*rest: Any" if parameters is None else ", ".join(f"{parameter}: Any" for parameter in parameters)
        head = f"    def {name}(self{', ' + rest if rest else ''}) -> Expr:"
        text = doc.strip().replace(chr(92), chr(92) * 2)
        lines += [head, f'        """{text}"""', ""]
    for monoid in _native.monoids():
        lines += [f"    def {monoid}_over(self, axes: str) -> Expr:", f'        """{_over(monoid).__doc__}"""', ""]
    lines += ["def stub() -> str: ..."]
    return "\n".join(lines) + "\n"


for _name, _parameters, _doc in _native.methods():
    setattr(Methods, _name, _method(_name, _parameters, _doc))
for _monoid in _native.monoids():
    setattr(Methods, f"{_monoid}_over", _over(_monoid))
