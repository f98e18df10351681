"""Computes the examples' matrices with PyTorch: `python tests/peers/make.py > tests/peers/numbers.txt`.

Everything is in double precision, and made of the same eighths. A section is an example; the example prints its titles.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def eighths(*dims, seed):
    count = torch.Size(dims).numel()
    return (((torch.arange(count) * 7 + seed * 5) % 17) / 8.0 - 1.0).reshape(dims).requires_grad_()


def show(title, values):
    print(title)
    for row in values.detach().reshape(-1, values.shape[-1]).tolist():
        print(" ", *(f"{x:.9g}" for x in row))


def cublaslt_epilogues():
    x, w1, b1 = eighths(4, 16, seed=1), eighths(8, 16, seed=2), eighths(8, seed=3)
    dy, w2 = eighths(4, 8, seed=4), eighths(8, 8, seed=5)
    z = 0.5 * (x @ w1.T) + b1
    z.retain_grad()
    assert (z != 0).all()  # at 0 cuBLASLt's mask holds, and PyTorch's derivative is 0
    h = torch.relu(z)
    (h @ w2.T).backward(dy)
    show("RELU_BIAS: relu(0.5 x w1^T + b1)", h)
    show("RELU_AUX_BIAS, aux: 1 where the value before relu is not negative", (z >= 0).double())
    show("DRELU_BGRAD, d: dy w2 where aux holds", z.grad)
    show("DRELU_BGRAD, bgrad: its sum over the rows, the gradient of b1", b1.grad)


def paddle_fused_gemm():
    for name, activation in [("relu", torch.relu), ("gelu", lambda z: F.gelu(z, approximate="tanh"))]:
        x, y1, b1 = eighths(2, 3, 4, seed=1), eighths(4, 8, seed=2), eighths(8, seed=3)
        y2, b2, dout = eighths(8, 5, seed=4), eighths(5, seed=5), eighths(2, 3, 5, seed=6)
        z = x @ y1 + b1
        assert (z != 0).all()
        out2 = activation(z) @ y2 + b2
        out2.backward(dout)
        show(f"{name}, Out2", out2)
        for title, tensor in [("DX", x), ("DY1", y1), ("DY2", y2), ("DBias1", b1), ("DBias2", b2)]:
            show(f"{name}, {title}", tensor.grad)


def custom_operator():
    operators = {"add_relu": (lambda x, y: torch.relu(x + y), 0), "mul_sigmoid": (lambda x, y: x * torch.sigmoid(y), 32)}
    for name, (operator, bits) in operators.items():
        x, y = eighths(3, 8, seed=1), eighths(3, 8, seed=2)
        result = operator(x, y)
        result.backward(eighths(3, 8, seed=3))
        show(f"{name}, x: in place; {bits} bits an element saved", result)
        show(f"{name}, grad_x", x.grad)
        show(f"{name}, grad_y", y.grad)
    c = eighths(3, 8, seed=6)
    result = torch.relu(torch.addmm(c, eighths(3, 5, seed=4), eighths(5, 8, seed=5)))
    result.backward(eighths(3, 8, seed=3))
    show("behind a product, c: relu(a b + c), in place", result)
    show("behind a product, g: its gradient before relu, in place", c.grad)


def batched():
    a, b = eighths(3, 4, 8, seed=1)[:, :, :6], eighths(6, 5, seed=2)
    c, bias, alpha = eighths(3, 4, 5, seed=3), eighths(3, 1, 5, seed=4), torch.tensor([1.0, 0.5, -2.0]).reshape(3, 1, 1)
    d = torch.baddbmm(c, alpha * a, b.expand(3, 6, 5), beta=0.25) + bias
    show("D: a line has a row of each of the 3 entries", d.permute(1, 0, 2).reshape(4, 15))
    show("total: the sum of each entry's elements", d.sum((1, 2)))


def masks():
    score = 0.5 * (eighths(4, 6, seed=1) @ eighths(8, 6, seed=2).T)
    masked = score.masked_fill(torch.ones(8, 8).triu(1)[4:].bool(), -torch.inf)
    show("causal, rows 4 to 7 of 8: scores, and nothing behind the diagonal", masked)
    show("causal, the log-sum-exp of each row", torch.logsumexp(masked, 1))
    z = (eighths(4, 6, seed=3) @ eighths(8, 6, seed=4).T).detach().requires_grad_()
    torch.relu(z).backward(eighths(4, 8, seed=5))
    show("forward: relu, and a bit where it passes, 1 byte a row", torch.relu(z))
    show("backward: the gradient where the bit is set", z.grad)
    z, kind = eighths(4, 6, seed=5) @ eighths(8, 6, seed=6).T, torch.tensor([0, 1, 2, 1]).reshape(4, 1)
    by_kind = torch.where(kind == 0, torch.sigmoid(z), torch.where(kind == 1, torch.tanh(z), torch.relu(z)))
    show("kinds 0 1 2 1: sigmoid, tanh or relu, by row", by_kind)


def custom_monoid():
    offset = torch.tensor([0.0, 1000.0, 3.0, -1000.0]).reshape(4, 1)
    d = eighths(4, 6, seed=1) @ eighths(6, 8, seed=2) + offset
    variance, mean = torch.var_mean(d, 1, correction=0)
    show("variance, a state of 3 words: of each row", variance)
    show("mean of each row", mean)
    show("layer norm of D = A B + offset", F.layer_norm(d, (8,), eighths(8, seed=3), eighths(8, seed=4), eps=1e-5))


print(f"# By tests/peers/make.py, with PyTorch {torch.__version__.split('+')[0]} on the CPU, in double precision.")
for example in [cublaslt_epilogues, paddle_fused_gemm, custom_operator, batched, masks, custom_monoid]:
    print(f"\n== {example.__name__}")
    example()
