"""Rows in Triton: a program has some rows, whole, so that memory is read once. Triton reads sources, so this is a module."""

import torch
import triton
import triton.language as tl


@triton.jit
def _at(m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    return rows, columns, rows.to(tl.int64) * n + columns, (rows < m) & (columns < n)


@triton.jit
def softmax_kernel(x, d, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, at, inside = _at(m, n, ROWS, BLOCK)
    z = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    e = tl.exp(z - tl.max(z, 1)[:, None])
    tl.store(d + at, (e / tl.sum(e, 1)[:, None]).to(d.dtype.element_ty), mask=inside)


@triton.jit
def softmax_input_kernel(y, g, d, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, at, inside = _at(m, n, ROWS, BLOCK)
    p = tl.load(y + at, mask=inside, other=0).to(tl.float32)
    q = tl.load(g + at, mask=inside, other=0).to(tl.float32)
    tl.store(d + at, (p * (q - tl.sum(p * q, 1)[:, None])).to(d.dtype.element_ty), mask=inside)


@triton.jit
def norm_kernel(x, r, s, w, b, d, means, rstds, m, n, epsilon, CENTRED: tl.constexpr, SUMS: tl.constexpr,
                ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, at, inside = _at(m, n, ROWS, BLOCK)
    z = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    if SUMS:
        z += tl.load(r + at, mask=inside, other=0).to(tl.float32)
        tl.store(s + at, z.to(s.dtype.element_ty), mask=inside)
    if CENTRED:
        mean = tl.sum(z, 1)[:, None] / n
        z = tl.where(inside, z - mean, 0)
        tl.store(means + rows, mean, mask=rows < m)
    rstd = tl.rsqrt(tl.sum(z * z, 1)[:, None] / n + epsilon)
    tl.store(rstds + rows, rstd, mask=rows < m)
    y = z * rstd * tl.load(w + columns, mask=columns < n, other=0).to(tl.float32)
    if CENTRED:
        y += tl.load(b + columns, mask=columns < n, other=0).to(tl.float32)
    tl.store(d + at, y.to(d.dtype.element_ty), mask=inside)


@triton.jit
def norm_input_kernel(x, g, w, d, means, rstds, dw, db, m, n, CENTRED: tl.constexpr, SUMS: tl.constexpr,
                      ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """With SUMS each program goes down its share of the rows, and leaves a slice of the sums over them."""
    columns = tl.arange(0, BLOCK)[None, :]
    weight = tl.load(w + columns, mask=columns < n, other=0).to(tl.float32)
    if SUMS:
        of_w = tl.zeros((ROWS, BLOCK), tl.float32)
        of_b = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(tl.program_id(0) * ROWS, m, tl.num_programs(0) * ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        at, inside = rows.to(tl.int64) * n + columns, (rows < m) & (columns < n)
        z = tl.load(x + at, mask=inside, other=0).to(tl.float32)
        q = tl.load(g + at, mask=inside, other=0).to(tl.float32)
        rstd = tl.load(rstds + rows, mask=rows < m, other=0)
        if CENTRED:
            z = z - tl.load(means + rows, mask=rows < m, other=0)
        z = tl.where(inside, z * rstd, 0)
        v = q * weight
        of_z = tl.sum(z * v, 1)[:, None] / n
        y = v - z * of_z
        if CENTRED:
            y -= tl.sum(v, 1)[:, None] / n
        tl.store(d + at, (y * rstd).to(d.dtype.element_ty), mask=inside)
        if SUMS:
            of_w += q * z
            of_b += q
    if SUMS:
        slice = tl.program_id(0) * n + tl.arange(0, BLOCK)
        tl.store(dw + slice, tl.sum(of_w, 0), mask=tl.arange(0, BLOCK) < n)
        tl.store(db + slice, tl.sum(of_b, 0), mask=tl.arange(0, BLOCK) < n)


@triton.jit
def cross_entropy_kernel(x, targets, loss, d, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, at, inside = _at(m, n, ROWS, BLOCK)
    z = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    target = tl.load(targets + rows, mask=rows < m, other=0)
    largest = tl.max(z, 1)[:, None]
    e = tl.exp(z - largest)
    sum = tl.sum(e, 1)[:, None]
    here = columns == target
    picked = tl.sum(tl.where(here, z, 0), 1)[:, None]
    tl.store(loss + rows, tl.log(sum) + largest - picked, mask=rows < m)
    tl.store(d + at, (e / sum - tl.where(here, 1.0, 0.0)).to(d.dtype.element_ty), mask=inside)


def shapes(n, bytes):
    """Rows of a program, columns, and warps: those of a few are timed, and the fastest taken."""
    block = triton.next_power_of_2(n)
    found = []
    for elements in (4096, 16384) if block <= 4096 else (block,):
        rows = max(1, elements // block)
        for each in (16, 32):
            warps = rows * block // (32 * each)
            if 1 <= warps <= 32 and (rows, block, warps) not in found:
                found.append((rows, block, warps))
    return found or [(1, block, 32)]


def fastest(runs):
    """The launch that takes least, of some that are alike."""
    best, least = None, float("inf")
    for run in runs:
        try:
            run()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(3):
                run()
            end.record()
            end.synchronize()
        except Exception:
            continue
        if start.elapsed_time(end) < least:
            best, least = run, start.elapsed_time(end)
    return best
