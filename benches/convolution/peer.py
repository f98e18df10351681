"""cuDNN through PyTorch, slice by slice: a child process of the benchmark `convolution`, which asks over a pipe.

A line in is a request, a line out its answer, both JSON. `case` prepares a layer in channels_last f16 with cuDNN's
algorithms timed by PyTorch (benchmark mode), and captures for each contender a CUDA graph that turns through `sets`
of images. `slice` replays a graph `repeats` times between two events, and answers with the seconds of a launch.
Between requests the GPU is the parent's.
"""

import json
import sys

import torch
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True
torch.set_grad_enabled(False)


def prepare(n, h, w, c, k, r, s, stride, padding, groups, sets, launches, gradients):
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
    graphs = {}
    for name, run in (backward if gradients else forward).items():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(sets):
                run(i)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                run(i % sets)
        graphs[name] = graph
    torch.cuda.synchronize()
    return graphs


def slice_of(graph, repeats, launches):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / (repeats * launches)


def main():
    graphs, launches = {}, 1
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "case" in request:
                graphs = {}
                torch.cuda.empty_cache()
                launches = request["case"]["launches"]
                graphs = prepare(**request["case"])
                answer = list(graphs)
            elif "slice" in request:
                answer = slice_of(graphs[request["slice"]], request["repeats"], launches)
            else:
                answer = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


main()
