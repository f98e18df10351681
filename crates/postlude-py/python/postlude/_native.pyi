"""The compiled part: graphs, checked epilogues, and products on tensors."""

from typing import Any

__version__: str

class Error(Exception):
    """The base of every error of this library."""

class CheckError(Error):
    """The epilogue, or the document it was read from, breaks rules."""

class GradError(Error):
    """The epilogue has no derivative."""

class PlanError(Error):
    """No kernel exists for the problem."""

class ArgumentError(Error):
    """Arguments do not fit; nothing ran."""

class CompileError(Error):
    """The kernel could not be compiled."""

class DeviceError(Error):
    """The device failed; nothing ran."""

class Epilogue:
    """A checked epilogue. It can be printed, serialised, differentiated and run."""

    @staticmethod
    def from_text(text: str) -> Epilogue: ...
    @staticmethod
    def from_json(json: str) -> Epilogue: ...
    def to_json(self) -> str: ...
    def to_dot(self) -> str: ...
    @property
    def arguments(self) -> list[tuple[str, str, str, str, bool]]:
        """Name, role, format, letters of the axes, and whether a call may leave it out."""
    def backward(
        self,
        names: list[str],
        accumulator: str | None = None,
        detached: list[str] = ...,
        kept: list[str] = ...,
        exact: bool = False,
    ) -> tuple[Epilogue, Epilogue, list[str], str]:
        """The saving epilogue, the derivative, the names of saved values, and the output that the gradient comes in through."""

class Graph:
    def __init__(self) -> None: ...
    def accumulator(self, value: str, at: str) -> int: ...
    def element(self, side: str, value: str, at: str) -> int: ...
    def coordinate(self, name: str, at: str) -> int: ...
    def constant(self, value: float, value_type: str, at: str) -> int: ...
    def scalar(self, name: str, value_type: str, default: float | None, at: str) -> int: ...
    def load(self, name: str, described: tuple[str, str, bool], default: float | None, at: str) -> int: ...
    def gather(self, name: str, format: str, index: int, at: str) -> int: ...
    def apply(self, name: str, args: list[int], at: str) -> int: ...
    def cast(self, value: int, format: str, at: str) -> int: ...
    def reduce_over(self, monoid: str, over: str, args: list[int], at: str) -> int: ...
    def store(self, name: str, value: int, described: tuple[str, str, bool], at: str) -> None: ...
    def reduce(
        self, name: str, values: list[int], monoid: str, flags: tuple[bool, bool], described: tuple[str, str, bool], at: str
    ) -> None: ...
    def value_type(self, value: int) -> str: ...
    def finish(self) -> Epilogue: ...

class Product:
    def __init__(
        self,
        epilogue: Epilogue,
        a: str,
        b: str | None = None,
        tf32: bool = False,
        fast_accumulation: bool = False,
        split_k: int = 0,
    ) -> None: ...
    @property
    def epilogue(self) -> Epilogue: ...
    @property
    def output_shapes(self) -> list[tuple[str, int, bool, str]]: ...
    def run(self, a: Any, b: Any, args: dict[str, Any], out: Any = None, origin: tuple[int, int, int] = (0, 0, 0)) -> Any: ...
    def explain(
        self, a: Any, b: Any, args: dict[str, Any], out: Any = None, target: str | None = None, multiprocessors: int = 132
    ) -> str: ...
    def source(
        self, a: Any, b: Any, args: dict[str, Any], out: Any = None, target: str | None = None, multiprocessors: int = 132
    ) -> str: ...
    def autotune(self, a: Any, b: Any, args: dict[str, Any], out: Any = None, seconds: float = 10.0) -> str: ...

def methods() -> list[tuple[str, list[str] | None, str]]: ...
def monoids() -> list[str]: ...
def gpu() -> tuple[bool, str]:
    """Whether a GPU and a compiler for it are there, in words."""
