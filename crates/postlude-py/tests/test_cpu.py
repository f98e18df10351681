"""The wheel on the CPU, with NumPy alone: `pytest` in an environment that has the wheel."""

import json
import math
import os
import pathlib
import pickle
import re
import threading

import numpy as np
import pytest

import postlude


def operands(m=5, n=7, k=6, dtype="float32"):
    rng = np.random.default_rng(1)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def bias_relu(e):
    z = e.acc() + e.load("bias", over="N")
    e.store("d", z.relu())


def close(got, exact, tolerance=1e-5):
    assert got.shape == exact.shape
    assert np.allclose(got.astype("float64"), exact, rtol=tolerance, atol=tolerance), abs(got - exact).max()


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
def test_views_count_as_they_lie(transposed_a, transposed_b):
    a, b = operands()
    bias = np.arange(7, dtype="float32") - 3
    exact = np.maximum(a @ b + bias, 0)
    a = np.asfortranarray(a) if transposed_a else a
    b = np.ascontiguousarray(b.T).T if transposed_b else b
    close(postlude.gemm(a, b, bias_relu, bias=bias), exact)


def test_slices_have_strides():
    a, b = operands()
    wide = np.zeros((5, 20), "float32")
    wide[:, 3:9] = a
    close(postlude.gemm(wide[:, 3:9], b, bias_relu, bias=np.zeros(7, "float32")), np.maximum(a @ b, 0))
    with pytest.raises(postlude.ArgumentError, match="leave neither rows nor columns contiguous"):
        postlude.gemm(wide[:, ::2], b, bias_relu, bias=np.zeros(7, "float32"))


def test_batches_and_shared_operands():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((3, 4, 6)).astype("float32"), rng.standard_normal((6, 7)).astype("float32")
    close(postlude.gemm(a, b, lambda e: e.store("d", e.acc())), a @ b)


def test_regions_scalars_and_several_outputs():
    a, b = operands()

    def epilogue(e):
        z = e.acc()
        first = e.row() < e.scalar("boundary", "i32")
        y = z.region(first, lambda z: z.sigmoid()).otherwise(lambda z: z.tanh())
        e.store("d", y)
        e.store("positive", y > 0.25, "bool")
        e.reduce("sums", y, "sum", over="N")
        e.reduce("best", y, "argmax", over="M")

    d, positive, sums, best = postlude.gemm(a, b, epilogue, boundary=2)
    z = a @ b
    exact = np.where(np.arange(5)[:, None] < 2, 1 / (1 + np.exp(-z)), np.tanh(z))
    close(d, exact)
    assert (positive == (d > 0.25)).all()
    close(sums, d.sum(0))
    assert (best == d.argmax(1)).all() and best.dtype == np.int32


def test_formats_follow_the_arguments():
    a, b = operands(dtype="float64")
    d = postlude.gemm(a, b, lambda e: e.store("d", e.acc() * 0.1))
    assert d.dtype == np.float64 and np.allclose(d, a @ b * 0.1, rtol=1e-14)
    a, b = (x.astype("int8") for x in operands())
    d = postlude.gemm(a, b, lambda e: e.store("d", e.acc(), "i32"))
    assert (d == a.astype("int32") @ b.astype("int32")).all()
    half = [x.astype("float16") for x in operands()]
    assert postlude.gemm(*half, bias_relu, bias=np.zeros(7, "float32")).dtype == np.float16


def test_outputs_of_the_caller_and_updates_in_place():
    a, b = operands()
    d = np.full((5, 9), 7, "float32")
    returned = postlude.gemm(a, b, lambda e: e.store("d", e.acc()), out=d[:, :7])
    close(d[:, :7], a @ b)
    assert (d[:, 7:] == 7).all() and np.shares_memory(returned, d)
    c = np.ones((5, 7), "float32")
    postlude.gemm(a, b, lambda e: e.store("c", e.acc() + e.load("c")), c=c)
    close(c, a @ b + 1)
    with pytest.raises(postlude.ArgumentError, match="shares memory with `a`"):
        postlude.pointwise(a, lambda e: e.store("d", e.acc()), out=a)


def test_origin_of_a_shard():
    a, b = operands()
    d = postlude.gemm(a, b, lambda e: e.store("d", e.row() * 100 + e.column(), "i32"), origin=(10, 3, 0))
    assert d[1, 2] == 1105


def test_documents_and_derivatives():
    a, b = operands()
    bias = np.zeros(7, "float32")
    traced = postlude.trace(bias_relu, a, b, bias=bias)
    for form in (traced, str(traced), traced.to_json(), pickle.loads(pickle.dumps(traced))):
        close(postlude.gemm(a, b, form, bias=bias), np.maximum(a @ b, 0))
    forward, backward, saved, through = traced.backward(["bias"], "f32")
    assert through == "d" and len(saved) == 1 and {"grad_acc", "grad_bias"} <= {name for name, *_ in backward.arguments}
    assert json.loads(traced.to_json()) and "digraph" in traced.to_dot()


def test_plans_without_a_gpu():
    a, b = (np.zeros((256, 256), "float16") for _ in range(2))
    words = postlude.explain(a, b.T, bias_relu, bias=np.zeros(256, "float16"), target="sm_90a")
    assert "shared memory" in words
    assert "epilogue_visit" in postlude.source(a, b.T, bias_relu, bias=np.zeros(256, "float16"), target="sm_80")
    with pytest.raises(postlude.ArgumentError, match="name a `target`"):
        postlude.explain(a, b, bias_relu, bias=np.zeros(256, "float16"))


def test_errors_point_at_python():
    def wrong(e):
        e.store("d", e.acc() + e.row())

    a, b = operands()
    with pytest.raises(postlude.CheckError) as raised:
        postlude.gemm(a, b, wrong)
    line = wrong.__code__.co_firstlineno + 1
    assert "error[E0201]" in str(raised.value) and f"test_cpu.py:{line}" in str(raised.value)
    with pytest.raises(postlude.ArgumentError, match=re.escape("argument `bias`: has extents [6]")):
        postlude.gemm(a, b, bias_relu, bias=np.zeros(6, "float32"))
    with pytest.raises(postlude.ArgumentError, match="argument `bias`: missing"):
        postlude.gemm(a, b, lambda e: e.store("d", e.acc() + e.load("bias", over="N")))
    with pytest.raises(postlude.ArgumentError, match="same axis K"):
        postlude.gemm(a, b[:-1], bias_relu, bias=np.zeros(7, "float32"))
    with pytest.raises(postlude.ArgumentError, match="not a tensor"):
        postlude.gemm(a, b, bias_relu, bias="x")
    with pytest.raises(TypeError, match="has no value while the graph is built"):
        postlude.gemm(a, b, lambda e: e.store("d", e.acc() if e.acc() > 0 else 0.0))
    with pytest.raises(postlude.CheckError):
        postlude.Epilogue.from_text("%0 = nonsense")
    with pytest.raises(postlude.GradError):
        postlude.build(lambda e: e.store("d", e.acc(), "i8")).backward(["nothing"])
    read_only = np.zeros((5, 7), "float32")
    read_only.flags.writeable = False
    with pytest.raises((postlude.ArgumentError, BufferError), match="read"):
        postlude.gemm(a, b, lambda e: e.store("d", e.acc()), out=read_only)


def test_empty_operands():
    a, b = np.zeros((0, 3), "float32"), np.zeros((3, 4), "float32")
    assert postlude.gemm(a, b, lambda e: e.store("d", e.acc())).shape == (0, 4)


def test_threads_share_products():
    a, b = operands(40, 40, 40)
    bias, results = np.zeros(40, "float32"), []
    threads = [threading.Thread(target=lambda: results.append(postlude.gemm(a, b, bias_relu, bias=bias))) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 4 and all((result == results[0]).all() for result in results)


def test_every_method_of_the_tables_is_typed_and_documented():
    from postlude import _methods, _native

    stub = pathlib.Path(__file__).parent.parent / "python" / "postlude" / "_methods.pyi"
    if os.environ.get("BLESS"):
        stub.write_text(_methods.stub())
    assert stub.read_text() == _methods.stub(), "BLESS=1 writes the stub"
    assert pathlib.Path(postlude.__file__).with_name("py.typed").exists()
    for name, _, _ in _native.methods():
        assert getattr(postlude.Expr, name).__doc__, name
    for name in postlude.__all__:
        assert getattr(postlude, name) is not None


def test_the_programs_of_the_documents_run(tmp_path):
    import doctest
    assert doctest.testmod(postlude).failed == 0
    for readme in filter(None, os.environ.get("POSTLUDE_README", "").split(os.pathsep)):
        for program in re.findall(r"```python\n(.*?)```", pathlib.Path(readme).read_text(), re.S):
            exec(compile(program, readme, "exec"), {})


def test_activations_are_what_they_say():
    z = np.linspace(-3, 3, 11, dtype="float32").reshape(1, 11)
    got = postlude.pointwise(z, lambda e: e.store("d", e.acc().gelu()))
    close(got, np.vectorize(lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))))(z.astype("float64")))
    got = postlude.pointwise(z, lambda e: e.store("d", (2.0 - e.acc()).clamp(-1, 1)))
    close(got, np.clip(2 - z, -1, 1))
    got = postlude.pointwise(z, lambda e: e.store("d", e.acc().softmax_over("N")))
    close(got, np.exp(z) / np.exp(z).sum())
