# Rows in PyTorch: compiled, by its own kernels where it has one for all, and in Triton. Every contender of a case is compared
# with the first, and those that differ are not timed.
import importlib.util
import os
import tempfile

import torch.nn.functional as F

FOLDER = tempfile.mkdtemp()


def kernels():
    path = os.path.join(FOLDER, "kernels.py")
    with open(path, "w") as file:
        file.write(KERNELS)
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ROWS = None
# What graphs of a case read and write.
KEPT = []


def normed(z, w, b):
    return torch.native_layer_norm(z, w.shape, w, b, 1e-5)


def rms(z, w):
    z = z.float()
    rstd = torch.rsqrt((z * z).mean(-1, keepdim=True) + 1e-6)
    return z * rstd * w.float(), rstd


def rms_input(x, g, w, rstd):
    z, v = x.float() * rstd, g.float() * w.float()
    return ((v - z * (z * v).mean(-1, keepdim=True)) * rstd).to(x.dtype)


def entropy(x, target):
    logs = torch.log_softmax(x.float(), -1)
    here = torch.arange(x.shape[1], device=x.device)[None, :] == target[:, None]
    return -torch.where(here, logs, 0).sum(-1), (logs.exp() - here.float()).to(x.dtype)


def both(norm, x, r, *weights):
    s = x + r
    return (s, *norm(s, *weights))


def ways(case, x, g, w, b, mean, rstd, target):
    """The function in PyTorch, its arguments, and whether PyTorch has a kernel for it."""
    of_layer = lambda mask: lambda g, x, w, b, mean, rstd: torch.ops.aten.native_layer_norm_backward(  # noqa: E731
        g, x, w.shape, mean, rstd, w, b, mask)
    half = lambda z, w: (lambda y, rstd: (y.to(z.dtype), rstd))(*rms(z, w))  # noqa: E731
    return {
        "softmax": (lambda x: torch.softmax(x, -1), (x,), True),
        "softmax, input": (lambda g, x: torch._softmax_backward_data(g, x, -1, x.dtype), (g, x), True),
        "layer norm": (normed, (x, w, b), True),
        "rms norm": (half, (x, w), False),
        "layer norm, input": (of_layer([True, False, False]), (g, x, w, b, mean, rstd), True),
        "layer norm, all": (of_layer([True] * 3), (g, x, w, b, mean, rstd), True),
        "rms norm, input": (rms_input, (x, g, w, rstd), False),
        "layer norm of a sum": (lambda *all: both(normed, *all), (x, g, w, b), False),
        "rms norm of a sum": (lambda *all: both(half, *all), (x, g, w), False),
        "cross-entropy": (entropy, (x, target), False),
    }[case]


def in_triton(case, x, g, w, b, mean, rstd, target):
    m, n = x.shape
    k, d = ROWS, torch.empty_like(x)
    s = torch.empty_like(x) if "sum" in case else None
    loss, means, rstds = (torch.empty(m, device="cuda") for _ in range(3))
    blocks = 132 * (1 if n > 4096 else 4)
    sums = [torch.empty((blocks, n), device="cuda") for _ in range(2)] if case == "layer norm, all" else [None] * 2

    def of(rows, block, warps):
        grid, shape = ((m + rows - 1) // rows,), {"ROWS": rows, "BLOCK": block, "num_warps": warps}
        centred = {"CENTRED": case.startswith("layer")}

        def run():
            if case == "softmax":
                k.softmax_kernel[grid](x, d, m, n, **shape)
            elif case == "softmax, input":
                k.softmax_input_kernel[grid](x, g, d, m, n, **shape)
            elif case == "cross-entropy":
                k.cross_entropy_kernel[grid](x, target, loss, d, m, n, **shape)
                return loss, d
            elif case.endswith("input") or case.endswith("all"):
                all = case.endswith("all")
                k.norm_input_kernel[(blocks,) if all else grid](x, g, w, d, mean, rstd, *sums, m, n, SUMS=all, **centred, **shape)
                if all:
                    return d, sums[0].sum(0).to(x.dtype), sums[1].sum(0).to(x.dtype)
            else:
                summed = s is not None
                k.norm_kernel[grid](x, g, s, w, b, d, means, rstds, m, n, 1e-5 if centred["CENTRED"] else 1e-6,
                                    SUMS=summed, **centred, **shape)
                return ((s,) if summed else ()) + (d,)
            return d
        return run
    return k.fastest([of(*shape) for shape in k.shapes(n, x.element_size())])


def alike(one, other):
    one, other = ([x for x in (given if isinstance(given, tuple) else (given,)) if x is not None] for given in (one, other))
    pairs = [(a, b) for a, b in zip(one, other) if a.shape == b.shape]
    return bool(pairs) and all(torch.allclose(a.float(), b.float(), rtol=0.03, atol=0.03 * b.float().abs().max().item())
                               for a, b in pairs)


def prepare(name, m, n, dtype, launches):
    global ROWS
    ROWS = ROWS or kernels()
    KEPT.clear()
    torch.compiler.reset()
    torch.manual_seed(0)
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x, g = (torch.randn((m, n), device="cuda", dtype=dtype) for _ in range(2))
    w, b = (torch.randn(n, device="cuda", dtype=dtype) for _ in range(2))
    if name == "softmax, input":
        x = torch.softmax(x, -1)
    mean, rstd = (torch.randn((m, 1), device="cuda") * 0.1 + i for i in range(2))
    target = torch.randint(0, n, (m,), device="cuda")
    given = (x, g, w, b, mean, rstd, target)
    run, args, has_kernel = ways(name, *given)
    first, graphs, faults = run(*args), {}, {}
    contenders = {"compiled": lambda: torch.compile(run, dynamic=False), "triton": lambda: None}
    if has_kernel:
        contenders["eager"] = lambda: run
    for contender, make in contenders.items():
        try:
            launch = in_triton(name, *given) if contender == "triton" else (lambda f: lambda: f(*args))(make())
            result = launch()
            if not alike(result, first):
                raise ValueError("its results differ")
            KEPT.append(launch)
            graphs[contender] = captured(lambda _: launch(), 1, launches)
        except Exception as error:
            faults[contender] = str(error)[:200]
    return graphs, {"graphs": list(graphs), "faults": faults}
