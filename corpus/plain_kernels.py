"""Kernels without a dot as users write them, for benchmarks/plain.py: the same text runs as Triton's when its
two imports change."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def add(x_ptr: Any, y_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(
        out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask
    )


@wl.jit
def dropout(x_ptr: Any, keep_ptr: Any, out_ptr: Any, n: Any, p: Any, BLOCK: tl.constexpr) -> None:
    """Tutorial 04's first kernel: what is kept is given."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    keep = tl.load(keep_ptr + at, mask=mask)
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@wl.jit
def silu_mul(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """out = silu(x[:, :columns]) · x[:, columns:], a row of blocks a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    gate = tl.load(x_ptr + row * 2 * columns + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * columns + columns + at, mask=mask, other=0.0).to(tl.float32)
    y = gate / (1 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * columns + at, y.to(out_ptr.dtype.element_ty), mask=mask)


@wl.jit
def softmax_rows(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * columns + at, y, mask=at < columns)


@wl.jit
def rms_norm(
    x_ptr: Any, w_ptr: Any, out_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A tile of whole rows a program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (at[None, :] < columns)
    place = r[:, None] * columns + at[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / columns + 1e-5)
    w = tl.load(w_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    y = x * scale[:, None] * w[None, :]
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=inside)


@wl.jit
def layernorm_rows(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr
) -> None:
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    w = tl.load(w_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    y = (centred * scale * w + b).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * columns + at, y, mask=inside)


@wl.jit
def column_sums(
    x_ptr: Any, out_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Tutorial 05's last kernel: a strip of columns a program."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for i in range(0, rows, ROWS):
        r = i + tl.arange(0, ROWS)
        mask = (r[:, None] < rows) & (cols[None, :] < columns)
        total += tl.load(x_ptr + r[:, None] * columns + cols[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + cols, tl.sum(total, axis=0), mask=cols < columns)


@wl.jit
def row_sums(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Long rows, a program each, walked in blocks."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@wl.jit
def row_argmax(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=0))


@wl.jit
def total(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """The sum of everything: an atomic a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))


@wl.jit
def histogram(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(out_ptr + bins, 1, mask=at < n)


@wl.jit
def transpose(
    x_ptr: Any, out_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr, COLUMNS: tl.constexpr
) -> None:
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(
        x_ptr + r[:, None] * columns + c[None, :],
        mask=(r[:, None] < rows) & (c[None, :] < columns),
    )
    mask = (c[:, None] < columns) & (r[None, :] < rows)
    tl.store(out_ptr + c[:, None] * rows + r[None, :], tl.trans(x), mask=mask)


@wl.jit
def gather_rows(
    x_ptr: Any, index_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr
) -> None:
    """out[i] = x[index[i]]: an embedding."""
    row = tl.program_id(0)
    source = tl.load(index_ptr + row).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + source * columns + at, mask=mask)
    tl.store(out_ptr + row.to(tl.int64) * columns + at, x, mask=mask)


@wl.jit
def scatter_rows(
    x_ptr: Any, index_ptr: Any, out_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """out[index[i]] = x[i], a tile of rows a program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(index_ptr + r, mask=r < rows, other=0)
    mask = (r[:, None] < rows) & (at[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + at[None, :], mask=mask)
    tl.store(out_ptr + target[:, None] * columns + at[None, :], x, mask=mask)


@wl.jit
def scale_bias(
    x_ptr: Any, scale_ptr: Any, bias_ptr: Any, out_ptr: Any, rows: Any, columns: Any,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """out = x · scale (a column's) + bias (a row's)."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
    scale = tl.load(scale_ptr + c, mask=c < columns, other=0.0)
    bias = tl.load(bias_ptr + r, mask=r < rows, other=0.0)
    y = x * scale[None, :] + bias[:, None]
    tl.store(out_ptr + r[:, None] * columns + c[None, :], y, mask=mask)


@wl.jit
def quantize(x_ptr: Any, out_ptr: Any, scale_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Rows to int8 by their largest element."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    q = tl.floor(x / scale + 0.5).to(tl.int8)
    tl.store(out_ptr + row * columns + at, q, mask=at < columns)
    tl.store(scale_ptr + row, scale)


@wl.jit
def rotary(
    x_ptr: Any, cos_ptr: Any, sin_ptr: Any, out_ptr: Any, heads: Any, HALF: tl.constexpr,
    HEADS: tl.constexpr,
) -> None:  # fmt: skip
    """Both halves of every head turned by its position's angles; a position a program."""
    position = tl.program_id(0)
    h, c = tl.arange(0, HEADS), tl.arange(0, HALF)
    cos = tl.load(cos_ptr + position * HALF + c)[None, :]
    sin = tl.load(sin_ptr + position * HALF + c)[None, :]
    at = (position * heads + h[:, None]) * (2 * HALF) + c[None, :]
    mask = h[:, None] < heads
    first = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + at + HALF, mask=mask, other=0.0).to(tl.float32)
    dtype = out_ptr.dtype.element_ty
    tl.store(out_ptr + at, (first * cos - second * sin).to(dtype), mask=mask)
    tl.store(out_ptr + at + HALF, (second * cos + first * sin).to(dtype), mask=mask)


@wl.jit
def cross_entropy(
    x_ptr: Any, label_ptr: Any, loss_ptr: Any, columns: Any, BLOCK: tl.constexpr
) -> None:
    """−log softmax(x)[label], a long row a program: largest and sum of exponentials in one walk."""
    row = tl.program_id(0)
    largest = float("-inf")
    summed = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row.to(tl.int64) * columns + at, mask=at < columns, other=float("-inf")
        ).to(tl.float32)
        more = tl.maximum(largest, tl.max(x, axis=0))
        summed = summed * tl.exp(largest - more) + tl.sum(tl.exp(x - more), axis=0)
        largest = more
    label = tl.load(label_ptr + row)
    chosen = tl.load(x_ptr + row.to(tl.int64) * columns + label).to(tl.float32)
    tl.store(loss_ptr + row, largest + tl.log(summed) - chosen)


@wl.jit
def product_of(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
               INTEGERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
               GROUP_M: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """A product whose sums are not always f32: tiles in groups of rows, one a program."""
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if INTEGERS else tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0)
        sums = tl.dot(
            a, b, sums, input_precision=PRECISION, out_dtype=tl.int32 if INTEGERS else tl.float32
        )
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, sums, mask=c_mask)


@wl.jit
def gelu(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """x · Φ(x), by erf."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < n)


@wl.jit
def group_norm(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, out_ptr: Any, pixels: Any, CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Some channels of an image a program, in two walks; weights are a channel's."""
    group = tl.program_id(0)
    size = CHANNELS * pixels
    x_ptr += group.to(tl.int64) * size
    out_ptr += group.to(tl.int64) * size
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / size
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / size - mean * mean + 1e-5)
    first = group % GROUPS * CHANNELS
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        channel = first + at // pixels
        w = tl.load(w_ptr + channel, mask=at < size, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + channel, mask=at < size, other=0.0).to(tl.float32)
        y = (x - mean) * scale * w + b
        tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < size)


@wl.jit
def adam(
    p_ptr: Any, g_ptr: Any, m_ptr: Any, v_ptr: Any, p_out: Any, m_out: Any, v_out: Any, n: Any,
    rate: Any, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A step of the optimizer, not in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    g = tl.load(g_ptr + at, mask=mask)
    m = 0.9 * tl.load(m_ptr + at, mask=mask) + 0.1 * g
    v = 0.999 * tl.load(v_ptr + at, mask=mask) + 0.001 * g * g
    p = tl.load(p_ptr + at, mask=mask) - rate * m / (tl.sqrt(v) + 1e-8)
    tl.store(p_out + at, p, mask=mask)
    tl.store(m_out + at, m, mask=mask)
    tl.store(v_out + at, v, mask=mask)


@wl.jit
def add_rms_norm(
    x_ptr: Any, residual_ptr: Any, w_ptr: Any, sum_ptr: Any, out_ptr: Any, columns: Any,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """The sum of two rows, and its norm; a row a program."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    dtype = out_ptr.dtype.element_ty
    tl.store(sum_ptr + row * columns + at, x.to(dtype), mask=mask)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + 1e-5)
    w = tl.load(w_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + at, (x * scale * w).to(dtype), mask=mask)


@wl.jit
def matrix_vector(
    a_ptr: Any, x_ptr: Any, out_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A tile of whole rows a program, walked in blocks."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = (r[:, None] < rows) & (c[None, :] < columns)
        a = tl.load(a_ptr + r[:, None] * columns + c[None, :], mask=mask, other=0.0)
        x = tl.load(x_ptr + c, mask=c < columns, other=0.0)
        total += a.to(tl.float32) * x[None, :].to(tl.float32)
    tl.store(out_ptr + r, tl.sum(total, axis=1), mask=r < rows)


@wl.jit
def running_sums(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Of each row, in one block."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    y = tl.cumsum(x, axis=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * columns + at, y, mask=at < columns)


@wl.jit
def long_running_sums(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Of long rows, a program each, walked in blocks."""
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        y = total + tl.cumsum(x, axis=0)
        tl.store(out_ptr + row * columns + at, y.to(out_ptr.dtype.element_ty), mask=at < columns)
        total += tl.sum(x, axis=0)


@wl.jit
def sampled_rows(
    x_ptr: Any, chance_ptr: Any, out_ptr: Any, columns: Any, temperature: Any, BLOCK: tl.constexpr
) -> None:
    """Of each row of logits the first place at which the probabilities up to it exceed a chance."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp((x - tl.max(x, axis=0)) / temperature)
    upto = tl.cumsum(e, axis=0)
    wanted = tl.load(chance_ptr + row) * tl.sum(e, axis=0)
    found = tl.min(tl.where((upto >= wanted) & (at < columns), at, columns - 1), axis=0)
    tl.store(out_ptr + row, found)
