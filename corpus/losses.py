"""Losses and returns, whose kernels leave a gradient as well, and steps through time from the last one on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import F32, Case, ints, nan


@wl.jit
def squared_error(x_ptr, y_ptr, loss_ptr, grad_ptr, columns, BLOCK: tl.constexpr):
    """A row's mean squared error, and what its backward pass takes."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    d = x - tl.load(y_ptr + row * columns + at, mask=inside, other=0.0)
    tl.store(loss_ptr + row, tl.sum(d * d, axis=0) / columns)
    tl.store(grad_ptr + row * columns + at, d * (2.0 / columns), mask=inside)


@wl.jit
def divergence(p_ptr, q_ptr, loss_ptr, each_ptr, columns, BLOCK: tl.constexpr):
    """Σ p·(log p - log q) of a row, a block at a time, where q_ptr has logarithms; and each element's part."""
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        p = tl.load(p_ptr + row * columns + at, mask=inside, other=1.0)
        q = tl.load(q_ptr + row * columns + at, mask=inside, other=0.0)
        part = p * (tl.log(p) - q)
        total += tl.sum(part, axis=0)
        tl.store(each_ptr + row * columns + at, part, mask=inside)
    tl.store(loss_ptr + row, total)


@wl.jit
def cross_entropy(x_ptr, target_ptr, loss_ptr, grad_ptr, columns, BLOCK: tl.constexpr):
    """A row's cross entropy by an online softmax, then, along the row again, its gradient."""
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    most, total = float("-inf"), 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        larger = tl.maximum(most, tl.max(x, axis=0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(x - larger), axis=0)
        most = larger
    tl.store(loss_ptr + row, most + tl.log(total) - tl.load(x_ptr + row * columns + target))
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        grad = tl.exp(x - most) / total - tl.where(at == target, 1.0, 0.0)
        tl.store(grad_ptr + row * columns + at, grad, mask=at < columns)


@wl.jit
def advantages(rewards_ptr, values_ptr, out_ptr, T, N, by, BLOCK: tl.constexpr):
    """Generalised advantage estimates of N episodes: steps from the last one on, of which each takes the value
    of the one after it where there is one."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    found = tl.zeros((BLOCK,), tl.float32)
    for t in range(T - 1, -1, -1):
        at = t * N + column
        if t + 1 < T:
            following = tl.load(values_ptr + at + N, mask=inside, other=0.0)
        else:
            following = tl.zeros((BLOCK,), tl.float32)
        reward = tl.load(rewards_ptr + at, mask=inside, other=0.0)
        delta = reward + by * following - tl.load(values_ptr + at, mask=inside, other=0.0)
        found = delta + by * found
        tl.store(out_ptr + at, found, mask=inside)


def cases() -> Iterator[Case]:
    rows, columns = 3, 1000
    x, y = ints(rows, columns, dtype=F32), ints(rows, columns, dtype=F32)[::-1].copy()
    d = (x - y).astype(np.float64)
    args = (x, y, nan(rows, dtype=F32), nan(rows, columns, dtype=F32), columns)
    wants = {2: (d * d).mean(1), 3: 2 * d / columns}
    yield Case("squared-error", squared_error, args, rows, {"BLOCK": 1024}, wants, 1e-6)
    p = 1.0 + ints(rows, columns, dtype=F32, low=0)
    q = ints(rows, columns, dtype=F32)
    each = p * (np.log(p.astype(np.float64)) - q)
    args = (p, q, nan(rows, dtype=F32), nan(rows, columns, dtype=F32), columns)
    for block in (256, 1024):  # a row in several blocks, and in one
        wants = {2: each.sum(1), 3: each}
        yield Case(f"divergence-{block}", divergence, args, rows, {"BLOCK": block}, wants, 1e-5)
    target = np.arange(rows, dtype=np.int32) * 7
    e = np.exp(x.astype(np.float64))
    share = e / e.sum(1, keepdims=True)
    picked = np.arange(columns) == target[:, None]
    args = (x, target, nan(rows, dtype=F32), nan(rows, columns, dtype=F32), columns)
    for block in (256, 1024):
        wants = {2: -np.log(share[picked]), 3: share - picked}
        yield Case(
            f"cross-entropy-{block}", cross_entropy, args, rows, {"BLOCK": block}, wants, 1e-5
        )
    T, N, by = 5, 100, 0.5
    rewards, values = ints(T, N, dtype=F32), ints(T + 1, N, dtype=F32)[:T].copy()
    out, found = np.zeros((T, N)), np.zeros(N)
    for t in reversed(range(T)):
        following = values[t + 1] if t + 1 < T else 0.0
        found = rewards[t] + by * following - values[t] + by * found
        out[t] = found
    args = (rewards, values, nan(T, N, dtype=F32), T, N, by)
    yield Case("advantages", advantages, args, 2, {"BLOCK": 64}, {2: out})
