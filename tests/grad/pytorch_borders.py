"""Prints PyTorch's derivatives at and near the borders of its activations: `pytorch_borders.txt`.

    python3 tests/grad/pytorch_borders.py > tests/grad/pytorch_borders.txt

A line has a name, its parameters (`-` if it has none), x, and the derivative in f32 at x. It needs PyTorch 2.7 or later:
before, hardswish had other derivatives.
At NaN it lists only activations whose kernels agree: others differ between vector and scalar code.
"""

import torch
import torch.nn.functional as F

STEP = 0.125
NAN = float("nan")

ACTIVATIONS = [
    ("relu", [], F.relu, [0.0], True),
    ("relu6", [], F.relu6, [0.0, 6.0], False),
    ("clamp", [-0.75, 1.25], lambda x: torch.clamp(x, -0.75, 1.25), [-0.75, 1.25], True),
    ("leaky_relu", [0.125], lambda x: F.leaky_relu(x, 0.125), [0.0], True),
    ("prelu", [0.125], lambda x: F.prelu(x, torch.tensor([0.125])), [0.0], True),
    ("elu", [0.5], lambda x: F.elu(x, 0.5), [0.0], False),
    ("selu", [], F.selu, [0.0], False),
    ("celu", [1.5], lambda x: F.celu(x, 1.5), [0.0], False),
    ("hardswish", [], F.hardswish, [-3.0, 3.0], False),
    ("hardsigmoid", [], F.hardsigmoid, [-3.0, 3.0], True),
    ("hardtanh", [], F.hardtanh, [-1.0, 1.0], False),
    ("relu_squared", [], lambda x: F.relu(x).square(), [0.0], False),
    ("softshrink", [0.5], lambda x: F.softshrink(x, 0.5), [-0.5, 0.5], False),
    ("threshold", [0.25, -2.0], lambda x: F.threshold(x, 0.25, -2.0), [0.25], True),
    ("hardshrink", [0.5], lambda x: F.hardshrink(x, 0.5), [-0.5, 0.5], False),
    ("shrink", [0.25, 0.5], lambda x: torch.where(x.abs() <= 0.5, x * 0, torch.where(x < 0, x + 0.25, x - 0.25)),
     [-0.5, 0.5], False),
    ("hardsigmoid_with", [0.25, 0.5], lambda x: torch.clamp(x * 0.25 + 0.5, 0.0, 1.0), [-2.0, 2.0], False),
    ("thresholded_relu", [0.5], lambda x: F.threshold(x, 0.5, 0.0), [0.5], False),
    ("rrelu", [0.125, 0.375], lambda x: F.rrelu(x, 0.125, 0.375, training=False), [0.0], False),
    ("abs", [], torch.abs, [0.0], True),
]


def number(x):
    return "nan" if x != x else f"{x + 0.0:.6g}"


def derivative(function, x):
    x = torch.tensor([x], dtype=torch.float32, requires_grad=True)
    function(x).backward(torch.ones(1))
    return x.grad.item()


for name, parameters, function, borders, at_nan in ACTIVATIONS:
    points = [border + step for border in borders for step in (-STEP, 0.0, STEP)]
    for x in points + ([NAN] if at_nan else []):
        given = ",".join(number(p) for p in parameters) or "-"
        print(name, given, number(x), number(derivative(function, x)))
