"""Layers without products: token shift, a bias of each column, a residual that is added and normed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import F32, Case, blocks, ints, nan


@wl.jit
def mixed(x_ptr, mix_ptr, starts_ptr, out_ptr, C, decay, BLOCK: tl.constexpr):
    """A decayed sum of x mixed with the step before (token shift), of sequences one after the other."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < C
    mix = tl.load(mix_ptr + channel, mask=inside, other=0.0)
    state = tl.zeros((BLOCK,), tl.float32)
    first = tl.load(starts_ptr + tl.program_id(1))
    last = tl.load(starts_ptr + tl.program_id(1) + 1)
    for t in range(first, last):
        at = t.to(tl.int64) * C + channel
        before = tl.zeros((BLOCK,), tl.float32)
        if t > first:
            before = tl.load(x_ptr + at - C, mask=inside, other=0.0)
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        state = state * decay + x * mix + before * (1.0 - mix)
        tl.store(out_ptr + at, state, mask=inside)


@wl.jit
def biased(x_ptr, bias_ptr, out_ptr, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Elements, counted along the array, plus the bias of their column."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    bias = tl.load(bias_ptr + at % COLUMNS, mask=inside, other=0.0)
    scale = tl.load(bias_ptr + COLUMNS + at // COLUMNS, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside, other=0.0) * scale + bias, mask=inside)


@wl.jit
def add_rms_norm(x_ptr, residual_ptr, w_ptr, sum_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    """x plus its residual, which is kept, and that normed."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    x += tl.load(residual_ptr + row * columns + at, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    tl.store(sum_ptr + row * columns + at, x, mask=inside)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + at, x * scale * w, mask=inside)


def cases() -> Iterator[Case]:
    T, C, decay = 6, 100, 0.5
    x, mix = ints(T, C, dtype=F32), ints(C, dtype=F32)
    starts, out, state = np.array([0, 4, 6], np.int32), np.zeros((T, C)), np.zeros(C)
    for t in range(T):
        is_first = t in starts
        before, state = (0.0, 0.0) if is_first else (x[t - 1], state)
        state = state * decay + x[t] * mix + before * (1.0 - mix)
        out[t] = state
    args = (x, mix, starts, nan(T, C, dtype=F32), C, decay)
    yield Case("mixed", mixed, args, (2, 2), {"BLOCK": 64}, {3: out})
    rows, columns, block = 3, 512, 256
    x, bias = ints(rows, columns, dtype=F32), ints(columns + rows, dtype=F32)
    want = x * bias[columns:, None] + bias[:columns]
    args = (x, bias, nan(rows, columns, dtype=F32), x.size)
    meta = {"COLUMNS": columns, "BLOCK": block}
    yield Case("biased", biased, args, blocks(x.size, block), meta, {2: want})
    columns = 1000
    x, residual, w = (
        ints(rows, columns, dtype=F32),
        ints(rows, columns, dtype=F32)[::-1].copy(),
        ints(columns, dtype=F32),
    )
    total = (x + residual).astype(np.float64)
    args = (
        x,
        residual,
        w,
        nan(rows, columns, dtype=F32),
        nan(rows, columns, dtype=F32),
        columns,
        1e-5,
    )
    scale = 1 / np.sqrt((total * total).mean(1, keepdims=True) + 1e-5)
    wants = {3: total, 4: total * scale * w}
    yield Case("add-rms-norm", add_rms_norm, args, rows, {"BLOCK": 1024}, wants, 1e-6)
