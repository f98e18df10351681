# The calls of the Python package on tensors of PyTorch: as they are, into an output that is kept, and in a CUDA graph.
import postlude


class Calls:
    """Calls one after another, with a graph's interface."""

    def __init__(self, run, launches):
        self.run, self.launches = run, launches
        run()
        torch.cuda.synchronize()

    def replay(self):
        for _ in range(self.launches):
            self.run()


def epilogue(e):
    e.store("d", (e.acc() + e.load("bias", over="N")).gelu_tanh())


def prepare(m, n, k, launches):
    half = {"device": "cuda", "dtype": torch.float16}
    # The same numbers as the parent's, as far as power is concerned: even between -1 and 1.
    drawn = [torch.rand(*extents, **half) * 2 - 1 for extents in ((m, k), (n, k), (n,))]
    a, w, bias = drawn
    d = torch.empty(m, n, **half)
    runs = {
        "gemm": lambda: postlude.gemm(a, w.T, epilogue, bias=bias),
        "gemm, out": lambda: postlude.gemm(a, w.T, epilogue, bias=bias, out=d),
        "addmm, gelu": lambda: torch._addmm_activation(bias, a, w.T, use_gelu=True),
    }
    graphs = {name: Calls(run, launches) for name, run in runs.items()}
    graphs["gemm, graph"] = captured(lambda _: runs["gemm, out"](), 1, launches)
    kernel = next(line.strip() for line in postlude.explain(a, w.T, epilogue, bias=bias).splitlines() if line.strip())
    return graphs, {"graphs": list(graphs), "kernel": kernel}
