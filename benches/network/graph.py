# A network of this library, written as JSON, that PyTorch computes node by node: with its own kernels in the network's format,
# and exactly in f64. The parent compares results with both.
import struct

FORMATS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i64": torch.int64}


def tensor(form):
    """A tensor by its bytes, or by the file that has them."""
    if "path" in form:
        with open(form["path"], "rb") as file:
            content = bytearray(file.read())
    else:
        content = bytearray.fromhex(form["bytes"])
    return torch.frombuffer(content, dtype=FORMATS[form["format"]]).reshape(form["shape"])


def attributes(node):
    def value(form):
        ((kind, x),) = form.items()
        return struct.unpack("f", struct.pack("I", x))[0] if kind == "float_bits" else x

    return {name: value(form) for name, form in node.get("attributes", [])}


def same(pads):
    """Padding of both sides, where they are the same."""
    half = len(pads) // 2
    assert pads[:half] == pads[half:], "padding of one side alone"
    return pads[:half]


def conv(x, w, b=None, strides=(1, 1), pads=(0, 0, 0, 0), group=1):
    return F.conv2d(x, w, b, strides, same(pads), 1, group)


def batch_norm(x, scale, bias, mean, variance, epsilon=1e-5):
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def max_pool(x, kernel_shape, strides, pads=(0, 0, 0, 0)):
    return F.max_pool2d(x, kernel_shape, strides, same(pads))


def gemm(x, w, b, transB=0):
    return F.linear(x, w if transB else w.t(), b)


def layer_norm(x, scale, bias, epsilon=1e-5, axis=-1):
    assert axis == -1
    return F.layer_norm(x, x.shape[-1:], scale, bias, epsilon)


# What the operators of ONNX are in PyTorch, as far as the networks use them.
OPERATORS = {
    "Add": torch.add, "Mul": torch.mul, "MatMul": torch.matmul, "Relu": F.relu, "Gelu": lambda x, **how: F.gelu(x, **how),
    "Softmax": lambda x, axis: F.softmax(x, axis), "Clip": torch.clip, "Conv": conv, "BatchNormalization": batch_norm,
    "MaxPool": max_pool, "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True), "Flatten": lambda x: x.flatten(1),
    "Gemm": gemm, "LayerNormalization": layer_norm, "Transpose": lambda x, perm: x.permute(perm),
    "Reshape": lambda x, shape: x.reshape(shape.tolist()), "Concat": lambda *x, axis: torch.cat(x, axis),
    "ReduceMean": lambda x, axes, keepdims=1: x.mean(axes.tolist(), keepdim=bool(keepdims)),
    "DepthToSpace": lambda x, blocksize: depth_to_space(x, blocksize),
}


def depth_to_space(x, size):
    n, c, h, w = x.shape
    x = x.reshape(n, size, size, c // size**2, h, w)
    return x.permute(0, 3, 4, 1, 5, 2).reshape(n, c // size**2, h * size, w * size)


def run(network, inputs, dtype):
    """The outputs, computed in one format from the values that the network holds."""
    def given(of):
        return of.cuda().to(dtype) if of.is_floating_point() else of

    edges = [given(tensor(edge["constant"])) if "constant" in edge else None for edge in network["edges"]]
    for edge, of in enumerate(network["edges"]):
        if of["name"] in inputs and "input" in of:
            edges[edge] = given(inputs[of["name"]])
    for node in network["nodes"]:
        x = [None if edge is None else edges[edge] for edge in node["inputs"]]
        (out,) = node["outputs"]
        edges[out] = OPERATORS[node["operator"]](*x, **attributes(node))
    return {name: edges[edge] for name, edge in network["outputs"]}


def numbers(path, inputs):
    """Where the results lie: f64, from the same network and inputs."""
    with open(path) as file:
        network = json.load(file)
    inputs = {name: tensor(form) for name, form in inputs.items()}
    (own,) = {FORMATS[edge["input"]["format"]] for edge in network["edges"] if "input" in edge}
    answer = {}
    for name, dtype in [("own", own), ("exact", torch.float64)]:
        (y,) = run(network, inputs, dtype).values()
        with open(f"{path}.{name}", "wb") as file:
            file.write(y.double().contiguous().cpu().numpy().tobytes())
        answer[name] = f"{path}.{name}"
    return answer
