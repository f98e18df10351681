# Attention in PyTorch: each of its backends, and what it chooses itself. Heads lie as projections leave them: beside each other.
# Functions of scores are masks in memory to these, and functions to FlexAttention, which is compiled.
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "chosen": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def functions(sequences, heads, queries, keys, function):
    """The mask in memory, and FlexAttention's function of scores and condition."""
    where = {"device": "cuda"}
    back = torch.arange(queries, **where)[:, None] - torch.arange(keys, **where)[None, :]
    if function == "padding":
        seen = (torch.arange(keys, **where) < keys * 3 // 4).expand(sequences, keys).contiguous()
        return seen[:, None, None, :], None, lambda b, h, q, k: seen[b, k]
    if function == "alibi":
        slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, **where) / heads)
        bias = (slopes[:, None, None] * -back).to(torch.float16)[None]
        return bias, lambda score, b, h, q, k: score + slopes[h] * (k - q), None
    if function == "cap":
        return None, lambda score, b, h, q, k: torch.tanh(score / 20) * 20, None
    return ((back >= 0) & (back < 256))[None, None], None, lambda b, h, q, k: (q - k >= 0) & (q - k < 256)


def flexible(given, sequences, heads, queries, keys, score, condition):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attention = torch.compile(flex_attention, dynamic=False)
    blocks = condition and create_block_mask(condition, sequences if score is None else None, None, queries, keys, device="cuda")
    return lambda i: attention(*given[i], score_mod=score, block_mask=blocks)


def prepare(sequences, heads, queries, keys, width, causal, sets, launches, function):
    def heads_of(length):
        lines = torch.randn(sequences, length, heads, width, device="cuda", dtype=torch.float16)
        return lines.transpose(1, 2)

    given = [(heads_of(queries), heads_of(keys), heads_of(keys)) for _ in range(sets)]
    graphs, faults = {}, {}
    mask, score, condition = functions(sequences, heads, queries, keys, function) if function else (None, None, None)
    backends = BACKENDS if function is None else {"chosen": None, "efficient": BACKENDS["efficient"]}
    if function == "cap":
        backends = {}
    for name, backend in backends.items():
        def run(i):
            return F.scaled_dot_product_attention(*given[i], attn_mask=mask, is_causal=causal)

        try:
            if backend is None:
                graphs[name] = captured(run, sets, launches)
            else:
                with sdpa_kernel(backend):
                    graphs[name] = captured(run, sets, launches)
        except Exception as error:
            faults[name] = str(error)[:200]
    if function:
        try:
            graphs["flex"] = captured(flexible(given, sequences, heads, queries, keys, score, condition), sets, launches)
        except Exception as error:
            faults["flex"] = str(error)[:200]
    return graphs, {"graphs": list(graphs), "faults": faults}
