"""PyTorch slice by slice: a child process of a benchmark, which asks over a pipe.

A line in is a request, a line out its answer, both JSON. `case` prepares contenders: a CUDA graph of `launches` for
each. `slice` replays a graph `repeats` times between two events, and answers with the seconds of a launch. Between
requests the GPU is the parent's.
"""

import json
import sys

import torch

torch.backends.cudnn.benchmark = True
torch.set_grad_enabled(False)


def captured(run, sets, launches):
    """A graph of launches that turn through sets of operands. What runs for the first time runs outside of it."""
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
    torch.cuda.synchronize()
    return graph


def slice_of(graph, repeats, launches):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / (repeats * launches)


def serve(prepare):
    """Answers requests. `prepare` gives the graphs of a case, and what the parent is told about them."""
    # What libraries print must not get into the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    graphs, launches = {}, 1
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "case" in request:
                graphs = {}
                torch.cuda.empty_cache()
                launches = request["case"]["launches"]
                graphs, answer = prepare(**request["case"])
            elif "slice" in request:
                answer = slice_of(graphs[request["slice"]], request["repeats"], launches)
            else:
                answer = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
