"""Kernels in Triton for `compare_triton.py`, as a practised user of it writes them.

Sizes and strides are constants of a kernel, as they are of ours; there are no masks, as sizes
divide. Constants have capital names.
"""

# ruff: noqa: D103

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


@triton.jit
def gelu(x, out, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at).to(tl.float32)
    if EXACT:
        y = 0.5 * v * (1 + tl.math.erf(v * 0.7071067811865476))
    else:
        y = v * tl.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v))
    tl.store(out + at, y.to(out.dtype.element_ty))


@triton.jit
def softmax(x, out, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    v = tl.load(x + at).to(tl.float32)
    e = tl.exp(v - tl.max(v, 1)[:, None])
    tl.store(out + at, (e / tl.sum(e, 1)[:, None]).to(out.dtype.element_ty))


@triton.jit
def layer_norm(x, w, b, out, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    v = tl.load(x + at).to(tl.float32)
    d = v - (tl.sum(v, 1) / COLUMNS)[:, None]
    scale = tl.rsqrt(tl.sum(d * d, 1) / COLUMNS + 1e-5)
    y = d * scale[:, None] * tl.load(w + columns)[None, :] + tl.load(b + columns)[None, :]
    tl.store(out + at, y.to(out.dtype.element_ty))


@triton.jit
def layer_norm_gradient(x, w, dy, dx, dw, db, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """The input's gradient of ROWS rows, and what they add to the parameters'."""
    program, columns = tl.program_id(0), tl.arange(0, COLUMNS)
    weight = tl.load(w + columns)
    sum_w = tl.zeros([COLUMNS], tl.float32)
    sum_b = tl.zeros([COLUMNS], tl.float32)
    for i in range(ROWS):
        at = (program * ROWS + i) * COLUMNS + columns
        v = tl.load(x + at).to(tl.float32)
        g = tl.load(dy + at).to(tl.float32)
        d = v - tl.sum(v, 0) / COLUMNS
        scale = tl.rsqrt(tl.sum(d * d, 0) / COLUMNS + 1e-5)
        h, wg = d * scale, weight * g
        c1, c2 = tl.sum(wg, 0) / COLUMNS, tl.sum(wg * h, 0) / COLUMNS
        tl.store(dx + at, ((wg - c1 - h * c2) * scale).to(dx.dtype.element_ty))
        sum_w += g * h
        sum_b += g
    tl.store(dw + program * COLUMNS + columns, sum_w)
    tl.store(db + program * COLUMNS + columns, sum_b)


@triton.jit
def sum_of_parts(a, b, to_a, to_b, COLUMNS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.arange(0, PARTS)[:, None] * COLUMNS + columns[None, :]
    tl.store(to_a + columns, tl.sum(tl.load(a + at), 0))
    tl.store(to_b + columns, tl.sum(tl.load(b + at), 0))


@triton.jit
def matmul(
    a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """`a[batch, M, K] @ b[batch, K, N]`; GROUP rows of tiles are neighbors, for the cache."""
    tile, batch = tl.program_id(0), tl.program_id(1)
    wide: tl.constexpr = N // BN
    span: tl.constexpr = GROUP * wide
    first = tile // span * GROUP
    line, column = first + tile % GROUP, tile % span // GROUP
    rows, columns, depth = (
        line * BM + tl.arange(0, BM),
        column * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    left = a + batch * M * K + rows[:, None] * K + depth[None, :]
    right = b + batch * K * N + depth[:, None] * N + columns[None, :]
    kind: tl.constexpr = tl.int32 if out.dtype.element_ty == tl.int32 else tl.float32
    total = tl.zeros([BM, BN], kind)
    for _ in range(K // BK):
        total = tl.dot(tl.load(left), tl.load(right), total, input_precision="ieee", out_dtype=kind)
        left += BK
        right += BK * N
    at = batch * M * N + rows[:, None] * N + columns[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty))


@triton.jit
def attention(
    q, k, v, out, lse, LENGTH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Arrays of (batch, LENGTH, HEADS, D); a program has BM queries of a head."""
    block, head = tl.program_id(0), tl.program_id(1)
    STRIDE: tl.constexpr = HEADS * D
    base = head // HEADS * LENGTH * STRIDE + head % HEADS * D
    features = tl.arange(0, D)
    rows = block * BM + tl.arange(0, BM)
    at = base + rows[:, None] * STRIDE + features[None, :]
    scale: tl.constexpr = 1.4426950408889634 / D**0.5
    query = tl.load(q + at)
    top = tl.full([BM], float("-inf"), tl.float32)
    weight = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    last = LENGTH
    if CAUSAL:
        last = (block + 1) * BM
    for start in range(0, last, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + base + columns[None, :] * STRIDE + features[:, None])
        s = tl.dot(query, key) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= columns[None, :], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        factor = tl.exp2(top - new)
        weight = weight * factor + tl.sum(p, 1)
        value = tl.load(v + base + columns[:, None] * STRIDE + features[None, :])
        total = tl.dot(p.to(value.dtype), value, total * factor[:, None])
        top = new
    tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty))
    tl.store(lse + head * LENGTH + rows, top + tl.log2(weight))


@triton.jit
def attention_delta(
    out, d_out, delta, LENGTH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr
):
    block, head = tl.program_id(0), tl.program_id(1)
    STRIDE: tl.constexpr = HEADS * D
    base = head // HEADS * LENGTH * STRIDE + head % HEADS * D
    rows = block * BM + tl.arange(0, BM)
    at = base + rows[:, None] * STRIDE + tl.arange(0, D)[None, :]
    products = tl.load(out + at).to(tl.float32) * tl.load(d_out + at).to(tl.float32)
    tl.store(delta + head * LENGTH + rows, tl.sum(products, 1))


@triton.jit
def attention_dkdv(
    q, k, v, d_out, lse, delta, dk, dv, LENGTH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Gradients of BN keys and values; s and p are transposed, a row a key."""
    block, head = tl.program_id(0), tl.program_id(1)
    STRIDE: tl.constexpr = HEADS * D
    base = head // HEADS * LENGTH * STRIDE + head % HEADS * D
    features = tl.arange(0, D)
    keys = block * BN + tl.arange(0, BN)
    at = base + keys[:, None] * STRIDE + features[None, :]
    scale: tl.constexpr = 1.4426950408889634 / D**0.5
    key, value = tl.load(k + at), tl.load(v + at)
    sum_k = tl.zeros([BN, D], tl.float32)
    sum_v = tl.zeros([BN, D], tl.float32)
    first = 0
    if CAUSAL:
        first = block * BN // BM * BM
    for start in range(first, LENGTH, BM):
        rows = start + tl.arange(0, BM)
        query = tl.load(q + base + rows[:, None] * STRIDE + features[None, :])
        grad = tl.load(d_out + base + rows[:, None] * STRIDE + features[None, :])
        p = tl.exp2(
            tl.dot(key, tl.trans(query)) * scale - tl.load(lse + head * LENGTH + rows)[None, :]
        )
        if CAUSAL:
            p = tl.where(rows[None, :] >= keys[:, None], p, 0.0)
        sum_v = tl.dot(p.to(grad.dtype), grad, sum_v)
        dp = tl.dot(value, tl.trans(grad))
        ds = p * (dp - tl.load(delta + head * LENGTH + rows)[None, :])
        sum_k = tl.dot(ds.to(query.dtype), query, sum_k)
    tl.store(dv + at, sum_v.to(dv.dtype.element_ty))
    tl.store(dk + at, (sum_k * D**-0.5).to(dk.dtype.element_ty))


@triton.jit
def attention_dq(
    q, k, v, d_out, lse, delta, dq, LENGTH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    STRIDE: tl.constexpr = HEADS * D
    base = head // HEADS * LENGTH * STRIDE + head % HEADS * D
    features = tl.arange(0, D)
    rows = block * BM + tl.arange(0, BM)
    at = base + rows[:, None] * STRIDE + features[None, :]
    scale: tl.constexpr = 1.4426950408889634 / D**0.5
    query, grad = tl.load(q + at), tl.load(d_out + at)
    top, row_delta = tl.load(lse + head * LENGTH + rows), tl.load(delta + head * LENGTH + rows)
    total = tl.zeros([BM, D], tl.float32)
    last = LENGTH
    if CAUSAL:
        last = (block + 1) * BM
    for start in range(0, last, BN):
        columns = start + tl.arange(0, BN)
        where = base + columns[:, None] * STRIDE + features[None, :]
        key, value = tl.load(k + where), tl.load(v + where)
        p = tl.exp2(tl.dot(query, tl.trans(key)) * scale - top[:, None])
        if CAUSAL:
            p = tl.where(rows[:, None] >= columns[None, :], p, 0.0)
        ds = p * (tl.dot(grad, tl.trans(value)) - row_delta[:, None])
        total = tl.dot(ds.to(key.dtype), key, total)
    tl.store(dq + at, (total * D**-0.5).to(dq.dtype.element_ty))


@triton.jit
def convolution(
    x, w, out, N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, F: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """3×3 with padding 1, of (N, H, W, C) and (3, 3, C, F), as a product of windows."""
    rows, columns = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    depth = tl.arange(0, BK)
    image, line, column = rows // (H * W), rows // W % H, rows % W
    total = tl.zeros([BM, BN], tl.float32)
    for step in range(9 * (C // BK)):
        tap, c = step // (C // BK), step % (C // BK) * BK
        i, j = line + tap // 3 - 1, column + tap % 3 - 1
        inside = (i >= 0) & (i < H) & (j >= 0) & (j < W)
        at = ((image * H + i) * W + j) * C + c
        left = tl.load(x + at[:, None] + depth[None, :], mask=inside[:, None], other=0.0)
        right = tl.load(w + ((tap * C + c) + depth)[:, None] * F + columns[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + rows[:, None] * F + columns[None, :], total.to(out.dtype.element_ty))
