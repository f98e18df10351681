# Networks in PyTorch: eager, and compiled, each in a CUDA graph. Attention takes PyTorch's fused kernel, and q, k and v
# are one product; images are channels_last.
import os
import signal
import time

import torch.nn as nn
import torch.nn.functional as F

HALF = {"device": "cuda", "dtype": torch.float16}


class Block(nn.Module):
    def __init__(self, inputs, inner, stride):
        super().__init__()
        outputs = 4 * inner
        self.convs = nn.ModuleList(
            [nn.Conv2d(inputs, inner, 1, bias=False), nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
             nn.Conv2d(inner, outputs, 1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(outputs)])
        self.straight = None
        if stride > 1 or inputs != outputs:
            self.straight = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            if i < 2:
                y = F.relu(y)
        return F.relu(y + (x if self.straight is None else self.straight(x)))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for stage, count in enumerate([3, 4, 6, 3]):
            for block in range(count):
                blocks.append(Block(inputs, 64 << stage, 2 if block == 0 and stage > 0 else 1))
                inputs = 4 * (64 << stage)
        self.blocks, self.classes = nn.Sequential(*blocks), nn.Linear(inputs, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.classes(self.blocks(x).mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, wide, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.norms = nn.ModuleList([nn.LayerNorm(wide), nn.LayerNorm(wide)])

    def forward(self, x):
        batch, length, wide = x.shape
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in self.qkv(x).split(wide, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, wide)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


def network(kind, batch, **of):
    if kind == "resnet50":
        model = ResNet50().eval().to(**HALF).to(memory_format=torch.channels_last)
        return model, lambda: torch.randn(batch, 3, 224, 224, **HALF).to(memory_format=torch.channels_last)
    if kind == "mlp":
        wide, layers = of["wide"], []
        for layer in range(of["layers"]):
            layers += [nn.Linear(wide, wide), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).eval().to(**HALF), lambda: torch.randn(batch, wide, **HALF)
    layers = [Layer(of["wide"], of["heads"]) for _ in range(of["layers"])]
    return nn.Sequential(*layers).eval().to(**HALF), lambda: torch.randn(batch, of["length"], of["wide"], **HALF)


def out_of_time(signum, frame):
    raise TimeoutError("the time limit of compiling is over")


def timed(kind, batch, sets, launches, compiled, limit, of):
    model, make = network(kind, batch, **of)
    x = [make() for _ in range(sets)]
    graphs, seconds = {"eager": captured(lambda i: model(x[i]), sets, launches)}, {}
    memory = torch.cuda.max_memory_allocated()
    torch._dynamo.reset()
    import torch._inductor.config as config

    config.freezing = True
    for mode in compiled:
        signal.signal(signal.SIGALRM, out_of_time)
        signal.alarm(limit)
        try:
            start = time.time()
            fast = torch.compile(model, mode=None if mode == "default" else "max-autotune-no-cudagraphs", dynamic=False)
            fast(x[0])
            torch.cuda.synchronize()
            seconds[mode] = time.time() - start
            signal.alarm(0)
            graphs[mode] = captured(lambda i: fast(x[i]), sets, launches)
        except BaseException as error:
            seconds[mode] = f"{type(error).__name__}: {error}"[:300]
        signal.alarm(0)
        torch._dynamo.reset()
    return graphs, {"graphs": list(graphs), "seconds": seconds, "memory": memory}


def prepare(kind, **of):
    return ({}, numbers(of["path"], of["inputs"])) if kind == "numbers" else timed(kind, **of)
