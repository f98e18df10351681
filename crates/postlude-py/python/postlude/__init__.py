"""Postlude: composable GEMM epilogues. A Python function becomes one fused CUDA kernel, compiled at run time.

>>> import numpy, postlude
>>> def epilogue(e):
...     z = e.acc() + e.load("bias", over="N")
...     e.store("d", z.relu())
>>> a, b = numpy.ones((2, 3), "float32"), numpy.ones((3, 4), "float32")
>>> bias = numpy.array([0, 1, -9, 2], "float32")
>>> postlude.gemm(a, b, epilogue, bias=bias)
array([[3., 4., 0., 5.],
       [3., 4., 0., 5.]], dtype=float32)

Tensors of PyTorch on a GPU are read and written where they lie, on PyTorch's current stream. Everything else, NumPy's
arrays included, goes through DLPack. Tensors on the CPU are computed by the library's reference, which defines the result.
"""

from ._native import (
    ArgumentError,
    CheckError,
    CompileError,
    DeviceError,
    Epilogue,
    Error,
    GradError,
    PlanError,
    __version__,
    gpu,
)
from .builder import Builder, Expr, Regions, build
from .call import autotune, explain, gemm, pointwise, source, trace

__all__ = [
    "ArgumentError",
    "Builder",
    "CheckError",
    "CompileError",
    "DeviceError",
    "Epilogue",
    "Error",
    "Expr",
    "GradError",
    "PlanError",
    "Regions",
    "__version__",
    "autotune",
    "build",
    "explain",
    "gemm",
    "gpu",
    "pointwise",
    "source",
    "trace",
]
