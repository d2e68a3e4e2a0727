"""Dots with something between or behind them: chains, a gated MLP, cross-entropy on logits that are never stored,
softmax in two passes."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.arrays import filled
from corpus.attending import I32, f64, integers, launch, normal, out, softmax
from corpus.case import BF16, F32, Case


@wl.jit
def chain(
    A, B, C, Out, M, K, N, L: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """(A·B)·C, B's columns in blocks; the first product never leaves the registers."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rl = tl.arange(0, L)
    acc = tl.zeros((BLOCK_M, L), tl.float32)
    for n0 in range(0, N, BLOCK_N):
        rn = n0 + tl.arange(0, BLOCK_N)
        ab = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k0 in range(0, K, BLOCK_K):
            rk = k0 + tl.arange(0, BLOCK_K)
            a = tl.load(
                A + rm[:, None] * K + rk[None, :],
                mask=(rm[:, None] < M) & (rk[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                B + rk[:, None] * N + rn[None, :],
                mask=(rk[:, None] < K) & (rn[None, :] < N),
                other=0.0,
            )
            ab = tl.dot(a, b, ab)
        c = tl.load(C + rn[:, None] * L + rl[None, :], mask=rn[:, None] < N, other=0.0)
        acc = tl.dot(ab.to(c.dtype), c, acc)
    tl.store(Out + rm[:, None] * L + rl[None, :], acc, mask=rm[:, None] < M)


def chain_case(
    m=150, k=72, n=136, cols=64, block_m=128, block_n=64, block_k=32, dtype=BF16, **knobs
):
    a, b, c = (
        integers(0, m, k, low=-1, high=2, dtype=dtype),
        integers(1, k, n, low=0, high=2, dtype=dtype),
        integers(2, n, cols, dtype=dtype),
    )
    o = out(m, cols, dtype=F32)
    meta = {"L": cols, "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return launch(
        chain,
        [a, b, c, o, m, k, n],
        (-(-m // block_m),),
        meta,
        {3: f64(a) @ f64(b) @ f64(c)},
        off=0.0,
        knobs=knobs,
    )


@wl.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@wl.jit
def mlp(
    x_ptr, w1_ptr, w2_ptr, b1_ptr, y_ptr, M, H, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """gelu(x·W1 + b)·W2 with the hidden layer in blocks."""
    start = tl.program_id(0) * BLOCK_M
    x_desc = tl.make_tensor_descriptor(x_ptr, [M, D], [D, 1], [BLOCK_M, D])
    w1_desc = tl.make_tensor_descriptor(w1_ptr, [D, H], [H, 1], [D, BLOCK_H])
    w2_desc = tl.make_tensor_descriptor(w2_ptr, [H, D], [D, 1], [BLOCK_H, D])
    y_desc = tl.make_tensor_descriptor(y_ptr, [M, D], [D, 1], [BLOCK_M, D])
    x = x_desc.load([start, 0])
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for h in tl.range(0, H, BLOCK_H, num_stages=2):
        b = tl.load(
            b1_ptr + h + tl.arange(0, BLOCK_H), mask=h + tl.arange(0, BLOCK_H) < H, other=0.0
        )
        hidden = tl.dot(x, w1_desc.load([0, h])) + b[None, :].to(tl.float32)
        acc += tl.dot(gelu(hidden).to(x.dtype), w2_desc.load([h, 0]))
    y_desc.store([start, 0], acc.to(y_ptr.dtype.element_ty))


def mlp_case(m=150, d=64, hidden=200, block_m=128, block_h=64, dtype=BF16, **knobs):
    x, w1, w2 = (
        normal(0, m, d, dtype=dtype),
        normal(1, d, hidden, dtype=dtype, scale=0.1),
        normal(2, hidden, d, dtype=dtype, scale=0.1),
    )
    b, y = normal(3, hidden, dtype=dtype), out(m, d, dtype=dtype)

    def wanted() -> dict[int, Any]:
        t = f64(x) @ f64(w1) + f64(b)
        return {4: 0.5 * t * (1 + np.vectorize(erf)(t / np.sqrt(2))) @ f64(w2)}

    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_H": block_h}
    return launch(
        mlp, [x, w1, w2, b, y, m, hidden], (-(-m // block_m),), meta, wanted(), knobs=knobs
    )


@wl.jit
def cross_entropy(
    x_ptr, w_ptr, target_ptr, loss_ptr, lse_ptr, M, V, D, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """-log softmax(x·Wᵀ)[target]: the logits exist a block at a time."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    target = tl.load(target_ptr + rm, mask=rm < M, other=-1)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    picked = tl.zeros((BLOCK_M,), tl.float32)
    for v0 in range(0, V, BLOCK_V):
        rv = v0 + tl.arange(0, BLOCK_V)
        logits = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
        for d0 in range(0, D, BLOCK_D):
            rd = d0 + tl.arange(0, BLOCK_D)
            x = tl.load(
                x_ptr + rm[:, None] * D + rd[None, :],
                mask=(rm[:, None] < M) & (rd[None, :] < D),
                other=0.0,
            )
            w = tl.load(
                w_ptr + rv[:, None] * D + rd[None, :],
                mask=(rv[:, None] < V) & (rd[None, :] < D),
                other=0.0,
            )
            logits += tl.dot(x, w.T)
        logits = tl.where(rv[None, :] < V, logits, -float("inf"))
        new = tl.maximum(top, tl.max(logits, axis=1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(logits - new[:, None]), axis=1)
        picked += tl.sum(tl.where(rv[None, :] == target[:, None], logits, 0.0), axis=1)
        top = new
    lse = top + tl.log(total)
    tl.store(lse_ptr + rm, lse, mask=rm < M)
    tl.store(loss_ptr + rm, lse - picked, mask=rm < M)


def cross_entropy_case(
    m=150, v=200, d=136, block_m=128, block_v=64, block_d=64, dtype=BF16, **knobs
):
    x, w = normal(0, m, d, dtype=dtype), normal(1, v, d, dtype=dtype, scale=0.2)
    target = filled(np.random.default_rng(2).integers(0, v, m), I32)
    loss, lse = out(m, dtype=F32), out(m, dtype=F32)
    meta = {"BLOCK_M": block_m, "BLOCK_V": block_v, "BLOCK_D": block_d}

    def wanted() -> dict[int, Any]:
        logits = f64(x) @ f64(w).T
        logs = softmax(logits)[1]
        return {3: logs - logits[np.arange(m), target], 4: logs}

    return launch(
        cross_entropy,
        [x, w, target, loss, lse, m, v, d],
        (-(-m // block_m),),
        meta,
        wanted(),
        off=1e-4,
        knobs=knobs,
    )


def attended(q: Any, k: Any, v: Any) -> Any:
    """What plain attention writes into argument 3."""
    return {3: softmax(f64(q) @ f64(k).T * q.shape[-1] ** -0.5)[0] @ f64(v)}


@wl.jit
def two_passes(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, n, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The maximum of all scores first, then sums and products: two loops over K."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    top = tl.full([BLOCK_M], -float("inf"), tl.float32)
    for j in range(0, n, BLOCK_N):
        rn = j + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        s = tl.where(rn[None, :] < n, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        top = tl.maximum(top, tl.max(s, 1))
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for j in range(0, n, BLOCK_N):
        rn = j + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        v = tl.load(v_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        s = tl.where(rn[None, :] < n, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        p = tl.exp(s - top[:, None])
        total += tl.sum(p, 1)
        acc += tl.dot(p.to(v.dtype), v)
    tl.store(
        o_ptr + rm[:, None] * D + rd[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty),
        mask=rm[:, None] < n,
    )


def two_passes_case(n=200, d=64, block_m=128, block_n=64, dtype=BF16, **knobs):
    q, k, v = (normal(i, n, d, dtype=dtype) for i in range(3))
    o = out(n, d, dtype=dtype)
    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(
        two_passes,
        [q, k, v, o, d**-0.5, n],
        (-(-n // block_m),),
        meta,
        attended(q, k, v),
        knobs=knobs,
    )


@wl.jit
def halves(
    q_ptr, k_ptr, v_ptr, o_ptr, n, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The head in two halves, accumulators in a tuple, an inner loop unrolled."""
    HALF: tl.constexpr = D // 2
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rd = tl.arange(0, HALF)
    q0 = tl.load(q_ptr + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    q1 = tl.load(q_ptr + rm[:, None] * D + HALF + rd[None, :], mask=rm[:, None] < n, other=0.0)
    accs = (tl.zeros([BLOCK_M, HALF], tl.float32), tl.zeros([BLOCK_M, HALF], tl.float32))
    top = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for j in range(0, n, 2 * BLOCK_N):
        for u in tl.static_range(2):
            rn = j + u * BLOCK_N + tl.arange(0, BLOCK_N)
            k_at = k_ptr + rn[:, None] * D + rd[None, :]
            k0 = tl.load(k_at, mask=rn[:, None] < n, other=0.0)
            k1 = tl.load(k_at + HALF, mask=rn[:, None] < n, other=0.0)
            s = tl.dot(q0, k0.T)
            s = tl.dot(q1, k1.T, acc=s)
            s = tl.where(rn[None, :] < n, s * scale, -1.0e30)
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp(s - new[:, None])
            old = tl.exp(top - new)
            total = total * old + tl.sum(p, 1)
            v_at = v_ptr + rn[:, None] * D + rd[None, :]
            v0 = tl.load(v_at, mask=rn[:, None] < n, other=0.0)
            v1 = tl.load(v_at + HALF, mask=rn[:, None] < n, other=0.0)
            pb = p.to(v0.dtype)
            accs = (tl.dot(pb, v0, accs[0] * old[:, None]), tl.dot(pb, v1, accs[1] * old[:, None]))
            top = new
    o_at = o_ptr + rm[:, None] * D + rd[None, :]
    tl.store(o_at, (accs[0] / total[:, None]).to(o_ptr.dtype.element_ty), mask=rm[:, None] < n)
    tl.store(
        o_at + HALF, (accs[1] / total[:, None]).to(o_ptr.dtype.element_ty), mask=rm[:, None] < n
    )


def halves_case(n=300, d=128, block_m=128, block_n=64, dtype=BF16, **knobs):
    q, k, v = (normal(i, n, d, dtype=dtype) for i in range(3))
    o = out(n, d, dtype=dtype)
    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(
        halves, [q, k, v, o, n, d**-0.5], (-(-n // block_m),), meta, attended(q, k, v), knobs=knobs
    )


@wl.jit
def rotated(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, o_ptr, n, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Q is rotated (interleaved pairs) in the kernel: reshape and split, then join."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rd = tl.arange(0, D)
    rh = tl.arange(0, D // 2)
    q = tl.load(q_ptr + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    cos = tl.load(cos_ptr + rm[:, None] * (D // 2) + rh[None, :], mask=rm[:, None] < n, other=0.0)
    sin = tl.load(sin_ptr + rm[:, None] * (D // 2) + rh[None, :], mask=rm[:, None] < n, other=0.0)
    x, y = tl.split(tl.reshape(q, (BLOCK_M, D // 2, 2)))
    rotated = tl.join(x * cos - y * sin, x * sin + y * cos)
    q = tl.reshape(rotated, (BLOCK_M, D)).to(q_ptr.dtype.element_ty)
    top = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for j in range(0, n, BLOCK_N):
        rn = j + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        v = tl.load(v_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        s = tl.where(rn[None, :] < n, tl.dot(q, k.T) * scale, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        old = tl.exp(top - new)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])
        top = new
    tl.store(
        o_ptr + rm[:, None] * D + rd[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty),
        mask=rm[:, None] < n,
    )


def rotated_case(n=200, d=64, block_m=128, block_n=64, dtype=BF16, **knobs):
    q, k, v = (normal(i, n, d, dtype=dtype) for i in range(3))
    o = out(n, d, dtype=dtype)
    angle = np.random.default_rng(3).random((n, d // 2)) * 6
    cos, sin = filled(np.cos(angle), F32), filled(np.sin(angle), F32)

    def wanted() -> dict[int, Any]:
        x, y = f64(q)[:, ::2], f64(q)[:, 1::2]
        parts = [x * f64(cos) - y * f64(sin), x * f64(sin) + y * f64(cos)]
        rotated = np.stack(parts, -1).reshape(n, d)
        return {5: softmax(rotated @ f64(k).T * d**-0.5)[0] @ f64(v)}

    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(
        rotated,
        [q, k, v, cos, sin, o, n, d**-0.5],
        (-(-n // block_m),),
        meta,
        wanted(),
        off=0.03,
        knobs=knobs,
    )


CASES: dict[str, Callable[[], Case]] = {
    "chain": lambda: chain_case(),
    "chain-192": lambda: chain_case(block_m=192, m=300, k=136, cols=128),
    "mlp": lambda: mlp_case(),
    "mlp-256": lambda: mlp_case(d=128, hidden=400, block_h=96),
    "cross-entropy": lambda: cross_entropy_case(),
    "cross-entropy-256": lambda: cross_entropy_case(block_v=256, v=600),
    "two-passes": lambda: two_passes_case(),
    "halves": lambda: halves_case(),
    "rotated": lambda: rotated_case(),
}
