# A layer in channels_last f16 with cuDNN's algorithms timed by PyTorch (benchmark mode).
import torch.nn.functional as F


def prepare(n, h, w, c, k, r, s, stride, padding, groups, sets, launches, gradients, names):
    half = {"device": "cuda", "dtype": torch.float16}
    x = [torch.randn(n, c, h, w, **half).to(memory_format=torch.channels_last) for _ in range(sets)]
    weight = (torch.randn(k, c // groups, r, s, **half) * 0.05).to(memory_format=torch.channels_last)
    bias = torch.randn(k, **half)
    p, q = (h + 2 * padding - r) // stride + 1, (w + 2 * padding - s) // stride + 1
    z = [torch.randn(n, k, p, q, **half).to(memory_format=torch.channels_last) for _ in range(sets)]
    mean, variance, gain, shift = (torch.rand(k, **half) + 0.5 for _ in range(4))
    steps, pads, ones = [stride] * 2, [padding] * 2, [1, 1]

    def normed(i):
        return F.batch_norm(F.conv2d(x[i], weight, None, stride, padding, 1, groups), mean, variance, gain, shift, False)

    def gradient(i, mask):
        return torch.ops.aten.convolution_backward(
            z[i], x[i], weight, None, steps, pads, ones, False, [0, 0], groups, mask
        )

    def through_relu(i):
        before = torch.ops.aten.threshold_backward(gradient(i, [True, False, False])[0], x[i], 0)
        return before, before.sum((0, 2, 3))

    forward = {
        "bias, relu": lambda i: torch.cudnn_convolution_relu(x[i], weight, bias, steps, pads, ones, groups),
        "bias, add, relu": lambda i: torch.cudnn_convolution_add_relu(x[i], weight, z[i], 1.0, bias, steps, pads, ones, groups),
        "bn, relu in passes": lambda i: torch.relu_(normed(i)),
        "bn, add, relu in passes": lambda i: torch.relu_(normed(i).add_(z[i])),
    }
    backward = {
        "of images": lambda i: gradient(i, [True, False, False]),
        "of images, relu, sum in passes": through_relu,
        "of filters": lambda i: gradient(i, [False, True, False]),
    }
    contenders = backward if gradients else forward
    graphs = {name: captured(run, sets, launches) for name, run in contenders.items() if name in names}
    return graphs, list(graphs)
