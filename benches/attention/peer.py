# Attention in PyTorch: each of its backends, and what it chooses itself. Heads lie as projections leave them: beside each other.
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "chosen": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def prepare(sequences, heads, queries, keys, width, causal, sets, launches):
    def heads_of(length):
        lines = torch.randn(sequences, length, heads, width, device="cuda", dtype=torch.float16)
        return lines.transpose(1, 2)

    given = [(heads_of(queries), heads_of(keys), heads_of(keys)) for _ in range(sets)]
    graphs, faults = {}, {}
    for name, backend in BACKENDS.items():
        def run(i):
            return F.scaled_dot_product_attention(*given[i], is_causal=causal)

        try:
            if backend is None:
                graphs[name] = captured(run, sets, launches)
            else:
                with sdpa_kernel(backend):
                    graphs[name] = captured(run, sets, launches)
        except Exception as error:
            faults[name] = str(error)[:200]
    return graphs, {"graphs": list(graphs), "faults": faults}
