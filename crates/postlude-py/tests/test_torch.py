"""The wheel with PyTorch: on the GPU if there is one, and on the CPU otherwise.

With `POSTLUDE_REQUIRE_GPU=1` a missing GPU fails.
"""

import os

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import postlude  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
needs_gpu = pytest.mark.skipif(not GPU, reason="no GPU")


def test_the_gpu_is_there_if_it_must_be():
    assert GPU or os.environ.get("POSTLUDE_REQUIRE_GPU") != "1"
    if GPU:
        found, words = postlude.gpu()
        assert found, words


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.5).to(dtype).to(DEVICE)


M, N, K = 96, 72, 64

# Name, epilogue, and what PyTorch computes from the exact product and the arguments.
ACTIVATIONS = {
    "relu": (lambda z: z.relu(), F.relu),
    "relu6": (lambda z: z.relu6(), F.relu6),
    "leaky_relu": (lambda z: z.leaky_relu(0.1), lambda z: F.leaky_relu(z, 0.1)),
    "elu": (lambda z: z.elu(1.5), lambda z: F.elu(z, 1.5)),
    "selu": (lambda z: z.selu(), F.selu),
    "celu": (lambda z: z.celu(0.7), lambda z: torch.where(z > 0, z, torch.expm1(z.clamp(max=0) / 0.7) * 0.7)),
    "sigmoid": (lambda z: z.sigmoid(), torch.sigmoid),
    "log_sigmoid": (lambda z: z.log_sigmoid(), F.logsigmoid),
    "tanh": (lambda z: z.tanh(), torch.tanh),
    "silu": (lambda z: z.silu(), F.silu),
    "gelu": (lambda z: z.gelu(), F.gelu),
    "gelu_tanh": (lambda z: z.gelu_tanh(), lambda z: F.gelu(z, approximate="tanh")),
    # PyTorch's own kernels and derivatives of these take 1 / 6 and alpha in f32.
    "hardswish": (lambda z: z.hardswish(), lambda z: z * (z + 3).clamp(0, 6) / 6),
    "hardsigmoid": (lambda z: z.hardsigmoid(), lambda z: (z + 3).clamp(0, 6) / 6),
    "hardtanh": (lambda z: z.hardtanh(), F.hardtanh),
    "softplus": (lambda z: z.softplus(1.0), F.softplus),
    "softsign": (lambda z: z.softsign(), F.softsign),
    "mish": (lambda z: z.mish(), F.mish),
    "softshrink": (lambda z: z.softshrink(0.3), lambda z: F.softshrink(z, 0.3)),
    "hardshrink": (lambda z: z.hardshrink(0.3), lambda z: F.hardshrink(z, 0.3)),
    "tanhshrink": (lambda z: z.tanhshrink(), F.tanhshrink),
    "threshold": (lambda z: z.threshold(0.1, -0.5), lambda z: F.threshold(z, 0.1, -0.5)),
    "exp": (lambda z: (z * 0.2).exp(), lambda z: (z * 0.2).exp()),
    "erf": (lambda z: z.erf(), torch.erf),
    "square": (lambda z: z * z, lambda z: z * z),
    "clamp": (lambda z: z.clamp(-0.4, 0.6), lambda z: z.clamp(-0.4, 0.6)),
    "where": (lambda z: (z > 0.1).select(z, z * 0.25), lambda z: torch.where(z > 0.1, z, z * 0.25)),
}


def with_bias(function):
    def epilogue(e):
        e.store("d", function(e.acc() + e.load("bias", over="N")))

    return epilogue


def rows_of(z):
    return torch.arange(z.shape[-2], device=z.device)[:, None]


CATALOGUE = {name: (with_bias(ours), lambda z, theirs=theirs, **x: theirs(z + x["bias"]), ("bias",)) for name, (ours, theirs) in ACTIVATIONS.items()}
CATALOGUE.update(
    {
        "plain": (lambda e: e.store("d", e.acc()), lambda z: z, ()),
        "alpha_beta": (
            lambda e: e.store("d", e.acc() * e.scalar("alpha") + e.load("c") * e.scalar("beta")),
            lambda z, alpha, beta, c: z * alpha + c * beta,
            ("c", "alpha", "beta"),
        ),
        "residual": (
            lambda e: e.store("d", (e.acc() + e.load("bias", over="N")).silu() + e.load("c")),
            lambda z, bias, c: F.silu(z + bias) + c,
            ("bias", "c"),
        ),
        "row_scale": (
            lambda e: e.store("d", e.acc() * e.load("scale", over="M")),
            lambda z, scale: z * scale[:, None],
            ("scale",),
        ),
        "gate": (lambda e: e.store("d", e.load("c").silu() * e.acc()), lambda z, c: F.silu(c) * z, ("c",)),
        "region": (
            lambda e: e.store(
                "d", e.acc().region(e.row() < e.scalar("boundary", "i32"), lambda z: z.sigmoid()).otherwise(lambda z: z.tanh())
            ),
            lambda z, boundary: torch.where(rows_of(z) < boundary, torch.sigmoid(z), torch.tanh(z)),
            ("boundary",),
        ),
        "causal": (
            lambda e: e.store("d", (e.column() <= e.row()).select(e.acc(), 0.0)),
            lambda z: z.tril(),
            (),
        ),
        "softcap": (lambda e: e.store("d", (e.acc() / 3.0).tanh() * 3.0), lambda z: torch.tanh(z / 3) * 3, ()),
    }
)


def arguments(names, dtype, m=M, n=N):
    known = {
        "bias": lambda: draw(n, dtype=dtype, seed=1),
        "scale": lambda: draw(m, dtype=dtype, seed=2),
        "c": lambda: draw(m, n, dtype=dtype, seed=3),
        "alpha": lambda: 0.75,
        "beta": lambda: -1.25,
        "boundary": lambda: 40,
    }
    return {name: known[name]() for name in names}


def exact(value):
    return value.double() if isinstance(value, torch.Tensor) else value


def bound(dtype):
    return {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]


def close(got, want, dtype):
    assert got.shape == want.shape
    limit = bound(dtype) * (1 + want.abs())
    assert ((got.double() - want).abs() <= limit).all(), ((got.double() - want).abs() / limit).max().item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue_against_eager(name, dtype):
    epilogue, theirs, names = CATALOGUE[name]
    a, w = draw(M, K, dtype=dtype), draw(N, K, dtype=dtype, seed=9)
    args = arguments(names, dtype)
    got = postlude.gemm(a, w.T, epilogue, **args)
    assert got.dtype == dtype and got.device == a.device and got.is_contiguous()
    close(got, theirs(a.double() @ w.double().T, **{name: exact(x) for name, x in args.items()}), dtype)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "threshold"])
def test_gradients_against_autograd_in_f64(name):
    epilogue, theirs, names = CATALOGUE[name]
    args = arguments(names, torch.float64)
    ours = {name: x.clone().requires_grad_() if isinstance(x, torch.Tensor) else x for name, x in args.items()}
    other = {name: x.clone().requires_grad_() if isinstance(x, torch.Tensor) else x for name, x in args.items()}
    a, w, upstream = draw(M, K, dtype=torch.float64), draw(N, K, dtype=torch.float64, seed=9), draw(M, N, dtype=torch.float64, seed=5)
    leaves = [[x.clone().requires_grad_() for x in (a, w)] for _ in range(2)]
    postlude.gemm(leaves[0][0], leaves[0][1].T, epilogue, **ours).backward(upstream)
    theirs(leaves[1][0] @ leaves[1][1].T, **other).backward(upstream)
    pairs = list(zip(*leaves)) + [(ours[n], other[n]) for n in names if isinstance(args[n], torch.Tensor)]
    for mine, reference in pairs:
        assert torch.allclose(mine.grad, reference.grad, rtol=1e-9, atol=1e-10), (mine.grad - reference.grad).abs().max()


def test_gradients_of_batches_and_several_outputs():
    def epilogue(e):
        z = e.acc() + e.load("bias", over="N")
        e.store("d", z.tanh())
        e.store("e", z * 2.0)
        e.store("mask", z > 0.0, "bool")

    def run(f, shared):
        a = draw(3, 8, 5, dtype=torch.float64).requires_grad_()
        b = draw(*(() if shared else (3,)), 5, 6, dtype=torch.float64, seed=1).requires_grad_()
        bias = draw(6, dtype=torch.float64, seed=2).requires_grad_()
        d, e, mask = f(a, b, bias)
        assert not mask.requires_grad
        (d * 3 + e.sin()).sum().backward()
        return a.grad, b.grad, bias.grad

    for shared in (False, True):
        mine = run(lambda a, b, bias: postlude.gemm(a, b, epilogue, bias=bias), shared)
        theirs = run(lambda a, b, bias: (torch.tanh(a @ b + bias), (a @ b + bias) * 2, (a @ b + bias) > 0), shared)
        for x, y in zip(mine, theirs):
            assert torch.allclose(x, y, rtol=1e-10, atol=1e-10)


def off(got, want):
    """The error in the Frobenius norm, relative."""
    return ((got.double() - want).norm() / want.norm()).item()


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_at_kinks(dtype):
    """Where a clamp decides, autograd in f64 on the forward pass's own decisions says the same as far from its bounds."""

    def epilogue(clamped):
        def build(e):
            z = e.acc() * e.scalar("alpha") + e.load("c") * e.scalar("beta") + e.load("bias", over="N")
            e.store("d", (z.clamp(-0.5, 0.75) if clamped else z) * e.load("row_scale", over="M"))
            e.store("inside", (z >= -0.5) & (z <= 0.75), "bool")

        return build

    m, n, k = 3000, 5000, 2104
    leaves = {
        "a": draw(m, k, dtype=dtype),
        "w": draw(n, k, dtype=dtype, seed=9),
        "c": draw(m, n, dtype=dtype, seed=3),
        "bias": draw(n, dtype=dtype, seed=1),
        "row_scale": draw(m, dtype=dtype, seed=2),
    }
    upstream, scalars = draw(m, n, dtype=dtype, seed=5), {"alpha": 0.0625, "beta": -1.25}

    def ours(clamped):
        x = {name: value.clone().requires_grad_() for name, value in leaves.items()}
        args = {name: value for name, value in x.items() if name not in ("a", "w")}
        d, inside = postlude.gemm(x["a"], x["w"].T, epilogue(clamped), **args, **scalars)
        d.backward(upstream)
        return inside, {name: value.grad for name, value in x.items()}

    def theirs(inside):
        x = {name: value.double().requires_grad_() for name, value in leaves.items()}
        z = x["a"] @ x["w"].T * scalars["alpha"] + x["c"] * scalars["beta"] + x["bias"]
        if inside is not None:
            z = torch.where(inside, z, torch.where(z < 0.125, -0.5, 0.75).double())
        (z * x["row_scale"][:, None]).backward(upstream.double())
        return {name: value.grad for name, value in x.items()}

    inside, at_kinks = ours(True)
    _, elsewhere = ours(False)
    assert 0.2 < inside.double().mean() < 0.8
    want, plain = theirs(inside), theirs(None)
    for name in leaves:
        near, far = off(at_kinks[name], want[name]), off(elsewhere[name], plain[name])
        print(dtype, name, f"{near:.2e} at kinks, {far:.2e} without a clamp")
        assert near < 1.5 * far, (name, near, far)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"] + (["inductor"] if GPU else []))
def test_compile_goes_through_without_breaks(backend):
    torch._dynamo.reset()
    epilogue = CATALOGUE["residual"][0]

    def layer(x, w, bias, c):
        return postlude.gemm(x * 2, w.T, epilogue, bias=bias, c=c) + 1

    x, w = draw(M, K), draw(N, K, seed=9)
    args = list(arguments(("bias", "c"), torch.float32).values())
    want = layer(x, w, *args)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert torch.allclose(compiled(x, w, *args), want, atol=1e-5)
    leaves = [t.clone().requires_grad_() for t in (x, w, *args)]
    again = [t.clone().requires_grad_() for t in (x, w, *args)]
    compiled(*leaves).sum().backward()
    layer(*again).sum().backward()
    for mine, theirs in zip(leaves, again):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-4)


def test_the_operator_keeps_its_promises():
    key = postlude.call._key(postlude.call._product(CATALOGUE["plain"][0], draw(4, 4), draw(4, 4), {}, None, (False, False, 0)), "f32", "f32", (False, False, 0))
    sample = (draw(5, 4), draw(4, 6), [], [], "|", key, "", [0, 0, 0])
    torch.library.opcheck(torch.ops.postlude.gemm.default, sample, test_utils=("test_schema", "test_faketensor"))


def test_a_network_learns():
    def hidden(e):
        e.store("d", (e.acc() + e.load("bias", over="N")).tanh())

    def last(e):
        e.store("d", e.acc() + e.load("bias", over="N"))

    x = draw(256, 8)
    target = (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin())
    weights = [(draw(32, 8, seed=1) * 0.6).requires_grad_(), torch.zeros(32, device=DEVICE, requires_grad=True)]
    weights += [(draw(1, 32, seed=2) * 0.3).requires_grad_(), torch.zeros(1, device=DEVICE, requires_grad=True)]
    optimiser = torch.optim.Adam(weights, lr=1e-2)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        y = postlude.gemm(postlude.gemm(x, weights[0].T, hidden, bias=weights[1]), weights[2].T, last, bias=weights[3])
        loss = (y - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5, (losses[0], losses[-1])


def test_errors_are_exceptions():
    a, b = draw(4, 4), draw(4, 4)
    with pytest.raises(postlude.ArgumentError, match="no format `complex64`"):
        postlude.gemm(a, b, CATALOGUE["relu"][0], bias=torch.zeros(4, dtype=torch.complex64, device=DEVICE))
    if GPU:
        with pytest.raises(postlude.ArgumentError, match="is on the CPU"):
            postlude.gemm(a, b, CATALOGUE["relu"][0], bias=torch.zeros(4))


@needs_gpu
def test_streams_and_graphs():
    epilogue, _, names = CATALOGUE["residual"]
    a, w = draw(M, K, dtype=torch.float16), draw(N, K, dtype=torch.float16, seed=9)
    args = arguments(names, torch.float16)
    want = postlude.gemm(a, w.T, epilogue, **args)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # The clearing goes first only if the product follows it in the same stream.
        late = torch.empty_like(a)
        torch.cuda._sleep(20_000_000)
        late.copy_(a)
        got = postlude.gemm(late, w.T, epilogue, **args)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(got, want)
    graph, fixed = torch.cuda.CUDAGraph(), a.clone()
    with torch.cuda.stream(stream):
        postlude.gemm(fixed, w.T, epilogue, **args)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        captured = postlude.gemm(fixed, w.T, epilogue, **args)
    fixed.copy_(a * 2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, postlude.gemm(a * 2, w.T, epilogue, **args))


@needs_gpu
def test_fp8_and_tuning():
    a = draw(64, 128).to(torch.float8_e4m3fn)
    w = draw(48, 128, seed=1).to(torch.float8_e4m3fn)
    got = postlude.gemm(a, w.T, lambda e: e.store("d", e.acc() * e.scalar("scale"), "bf16"), scale=0.5)
    close(got, a.double() @ w.double().T * 0.5, torch.bfloat16)
    a, w = draw(512, 512, dtype=torch.float16), draw(512, 512, dtype=torch.float16, seed=1)
    assert "trials" in postlude.autotune(a, w.T, CATALOGUE["plain"][0], seconds=2.0)
    assert "registers" in postlude.explain(a, w.T, CATALOGUE["plain"][0])
