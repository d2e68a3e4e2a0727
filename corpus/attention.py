"""Attention in the shapes that are found in the wild: what is added to the scores, what masks them, how the loop
runs, how memory is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.arrays import filled
from corpus.attending import I32, f64, launch, normal, out, softmax, strides
from corpus.case import BF16, F16, F32, Case


@wl.jit
def biased(
    Q, K, V, B, Out, sm_scale, stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn,
    stride_bh, stride_bm, stride_bn, stride_oh, stride_om, N_Q, N_KV,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A bias tile of memory is added to each block of scores; all memory by pointers."""
    off_h = tl.program_id(1)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q_ptrs = Q + off_h * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :]
    k_ptrs = K + off_h * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = V + off_h * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    b_ptrs = B + off_h * stride_bh + offs_m[:, None] * stride_bm + offs_n[None, :] * stride_bn
    q = tl.load(q_ptrs, mask=offs_m[:, None] < N_Q, other=0.0)
    m_i = tl.full([BLOCK_M], value=float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for start_n in range(0, N_KV, BLOCK_N):
        inside = start_n + offs_n < N_KV
        k = tl.load(k_ptrs, mask=inside[None, :], other=0.0)
        bias = tl.load(b_ptrs, mask=(offs_m[:, None] < N_Q) & inside[None, :], other=0.0)
        qk = tl.dot(q, k) * sm_scale + bias.to(tl.float32)
        qk = tl.where(inside[None, :], qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs, mask=inside[:, None], other=0.0)
        acc += tl.dot(p.to(V.dtype.element_ty), v)
        m_i = m_ij
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
        b_ptrs += BLOCK_N * stride_bn
    acc = acc / l_i[:, None]
    o_ptrs = Out + off_h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    tl.store(o_ptrs, acc.to(Out.dtype.element_ty), mask=offs_m[:, None] < N_Q)


def biased_case(
    heads=2, n_q=150, n_kv=170, d=64, block_m=128, block_n=64, dtype=BF16, bias=BF16, **knobs
) -> Case:
    q, k, v = (
        normal(0, heads, n_q, d, dtype=dtype),
        normal(1, heads, n_kv, d, dtype=dtype),
        normal(2, heads, n_kv, d, dtype=dtype),
    )
    b, o = normal(3, heads, n_q, n_kv, dtype=bias), out(heads, n_q, d, dtype=dtype)
    args = [
        q,
        k,
        v,
        b,
        o,
        d**-0.5,
        *strides(q)[:2],
        *strides(k)[:2],
        *strides(v)[:2],
        *strides(b),
        *strides(o)[:2],
        n_q,
        n_kv,
    ]
    meta = {"HEAD_DIM": d, "BLOCK_M": block_m, "BLOCK_N": block_n}

    def wanted() -> dict[int, Any]:
        s = f64(q) @ f64(k).swapaxes(1, 2) * d**-0.5 + f64(b)
        return {4: softmax(s)[0] @ f64(v)}

    return launch(biased, args, (-(-n_q // block_m), heads), meta, wanted(), knobs=knobs)


@wl.jit
def biased_by_descriptor(
    q_ptr, k_ptr, v_ptr, b_ptr, o_ptr, slopes_ptr, H, N, sm_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BIAS: tl.constexpr,
    ALIBI: tl.constexpr, CAP: tl.constexpr, SINK: tl.constexpr,
):  # fmt: skip
    """One kernel with many switches: bias by descriptor, ALiBi, soft cap, a sink beside the keys."""
    start = tl.program_id(0) * BLOCK_M
    h = tl.program_id(1)
    q_desc = tl.make_tensor_descriptor(
        q_ptr, shape=[H * N, D], strides=[D, 1], block_shape=[BLOCK_M, D]
    )
    k_desc = tl.make_tensor_descriptor(
        k_ptr + h * N * D, shape=[N, D], strides=[D, 1], block_shape=[BLOCK_N, D]
    )
    v_desc = tl.make_tensor_descriptor(
        v_ptr + h * N * D, shape=[N, D], strides=[D, 1], block_shape=[BLOCK_N, D]
    )
    b_desc = tl.make_tensor_descriptor(
        b_ptr + h * N * N, shape=[N, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N]
    )
    o_desc = tl.make_tensor_descriptor(
        o_ptr + h * N * D, shape=[N, D], strides=[D, 1], block_shape=[BLOCK_M, D]
    )
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    q = q_desc.load([h * N + start, 0])
    log2e: tl.constexpr = 1.44269504
    if SINK:
        m = tl.zeros([BLOCK_M], tl.float32) + tl.load(slopes_ptr + h) * log2e
        total = tl.full([BLOCK_M], 1.0, tl.float32)
    else:
        m = tl.zeros([BLOCK_M], tl.float32) - float("inf")
        total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    slope = tl.load(slopes_ptr + h) if ALIBI else 0.0
    for j in tl.range(0, N, BLOCK_N):
        k = tl.load_tensor_descriptor(k_desc, [j, 0])
        s = tl.dot(q, tl.trans(k)) * sm_scale
        if CAP > 0:
            s = CAP * (2 * tl.sigmoid(2 * s / CAP) - 1)
        if BIAS:
            s += b_desc.load([start, j])
        if ALIBI:
            s -= slope * tl.abs(rows[:, None] - (j + cols)[None, :])
        s = tl.where(j + cols[None, :] < N, s * log2e, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.math.exp2(s - m_new[:, None])
        scale = tl.math.exp2(m - m_new)
        total = total * scale + tl.sum(p, axis=1)
        v = v_desc.load([j, 0])
        acc = tl.dot(p.to(v.dtype), v, acc * scale[:, None])
        m = m_new
    o_desc.store([start, 0], (acc / total[:, None]).to(o_desc.dtype))


def switches_case(
    heads=2,
    n=200,
    d=64,
    block_m=128,
    block_n=128,
    bias=False,
    alibi=False,
    cap=0.0,
    sink=False,
    dtype=BF16,
    **knobs,
) -> Case:
    q, k, v = (normal(i, heads, n, d, dtype=dtype) for i in range(3))
    b, o = normal(3, heads, n, n, dtype=dtype), out(heads, n, d, dtype=dtype)
    slopes = normal(4, heads, dtype=F32)
    if alibi:
        slopes[...] = abs(slopes) * 0.1

    def wanted() -> dict[int, Any]:
        s = f64(q) @ f64(k).swapaxes(1, 2) * d**-0.5
        if cap:
            s = cap * np.tanh(s / cap)
        if bias:
            s = s + f64(b)
        at = np.arange(n)
        if alibi:
            s = s - f64(slopes)[:, None, None] * abs(at[:, None] - at[None, :])
        if sink:
            s = np.concatenate([s, np.broadcast_to(f64(slopes)[:, None, None], (heads, n, 1))], -1)
        return {4: softmax(s)[0][..., :n] @ f64(v)}

    meta = {
        "D": d,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BIAS": bias,
        "ALIBI": alibi,
        "CAP": cap,
        "SINK": sink,
    }
    args = [q, k, v, b, o, slopes, heads, n, d**-0.5]
    return launch(
        biased_by_descriptor, args, (-(-n // block_m), heads), meta, wanted(), knobs=knobs
    )


@wl.jit
def windowed(
    Q, K, V, Out, sm_scale, N_CTX, WINDOW, stride_h, stride_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Row i sees columns i - WINDOW … i; the loop's ends are known at run time; block pointers."""
    start_m = tl.program_id(0)
    off_h = tl.program_id(1)
    base = off_h * stride_h
    Q_block_ptr = tl.make_block_ptr(
        base=Q + base, shape=(N_CTX, BLOCK_D), strides=(stride_m, 1),
        offsets=(start_m * BLOCK_M, 0), block_shape=(BLOCK_M, BLOCK_D), order=(1, 0),
    )  # fmt: skip
    lo = tl.maximum(start_m * BLOCK_M - WINDOW, 0)
    lo = (lo // BLOCK_N) * BLOCK_N
    hi = tl.minimum((start_m + 1) * BLOCK_M, N_CTX)
    K_block_ptr = tl.make_block_ptr(
        base=K + base, shape=(BLOCK_D, N_CTX), strides=(1, stride_m),
        offsets=(0, lo), block_shape=(BLOCK_D, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    V_block_ptr = tl.make_block_ptr(
        base=V + base, shape=(N_CTX, BLOCK_D), strides=(stride_m, 1),
        offsets=(lo, 0), block_shape=(BLOCK_N, BLOCK_D), order=(1, 0),
    )  # fmt: skip
    O_block_ptr = tl.make_block_ptr(
        base=Out + base, shape=(N_CTX, BLOCK_D), strides=(stride_m, 1),
        offsets=(start_m * BLOCK_M, 0), block_shape=(BLOCK_M, BLOCK_D), order=(1, 0),
    )  # fmt: skip
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - 1.0e30
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    q = tl.load(Q_block_ptr, boundary_check=(0,), padding_option="zero")
    for start_n in range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = tl.load(K_block_ptr, boundary_check=(1,), padding_option="zero")
        qk = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        qk += tl.dot(q, k)
        cols = start_n + offs_n[None, :]
        seen = (cols <= offs_m[:, None]) & (cols >= offs_m[:, None] - WINDOW) & (cols < N_CTX)
        qk = tl.where(seen, qk * qk_scale, -1.0e30)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.where(seen, tl.exp2(qk - m_ij[:, None]), 0.0)
        alpha = tl.exp2(m_i - m_ij)
        acc *= alpha[:, None]
        v = tl.load(V_block_ptr, boundary_check=(0,), padding_option="zero")
        acc += tl.dot(p.to(V.dtype.element_ty), v)
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_ij
        K_block_ptr = tl.advance(K_block_ptr, (0, BLOCK_N))
        V_block_ptr = tl.advance(V_block_ptr, (BLOCK_N, 0))
    acc = acc / l_i[:, None]
    tl.store(O_block_ptr, acc.to(Out.dtype.element_ty), boundary_check=(0,))


def windowed_case(
    heads=2, n=300, d=64, window=70, block_m=128, block_n=64, dtype=BF16, **knobs
) -> Case:
    q, k, v = (normal(i, heads, n, d, dtype=dtype) for i in range(3))
    o = out(heads, n, d, dtype=dtype)

    def wanted() -> dict[int, Any]:
        at = np.arange(n)
        seen = (at[None, :] <= at[:, None]) & (at[None, :] >= at[:, None] - window)
        s = np.where(seen, f64(q) @ f64(k).swapaxes(1, 2) * d**-0.5, -np.inf)
        return {3: softmax(s)[0] @ f64(v)}

    args = [q, k, v, o, d**-0.5, n, window, *strides(q)[:2]]
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_D": d}
    return launch(windowed, args, (-(-n // block_m), heads), meta, wanted(), knobs=knobs)


@wl.jit
def documents(
    q_ptr, k_ptr, v_ptr, seg_ptr, o_ptr, lse_ptr, scale, n_ctx,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """A row sees the columns of its own document; ids are vectors in memory."""
    pid, h = tl.program_id(0), tl.program_id(1)
    rm = pid * BLOCK_M + tl.arange(0, BLOCK_M)
    rd = tl.arange(0, D)
    off = h.to(tl.int64) * n_ctx * D
    q = tl.load(q_ptr + off + rm[:, None] * D + rd, mask=(rm < n_ctx)[:, None], other=0.0)
    seg_q = tl.load(seg_ptr + rm, mask=rm < n_ctx, other=-1)
    m = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    stop = tl.minimum(n_ctx, (pid + 1) * BLOCK_M) if CAUSAL else n_ctx
    for j in range(0, stop, BLOCK_N):
        rn = j + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + off + rn[:, None] * D + rd, mask=(rn < n_ctx)[:, None], other=0.0)
        v = tl.load(v_ptr + off + rn[:, None] * D + rd, mask=(rn < n_ctx)[:, None], other=0.0)
        seg_k = tl.load(seg_ptr + rn, mask=rn < n_ctx, other=-2)
        ok = seg_q[:, None] == seg_k[None, :]
        if CAUSAL:
            ok = ok & (rn[None, :] <= rm[:, None])
        s = tl.where(ok, tl.dot(q, k.T) * scale, -1e30)
        m2 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m2[:, None]) * ok
        a = tl.exp(m - m2)
        total = total * a + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * a[:, None])
        m = m2
    tl.store(o_ptr + off + rm[:, None] * D + rd, acc / total[:, None], mask=(rm < n_ctx)[:, None])
    tl.store(lse_ptr + h * n_ctx + rm, m + tl.log(total), mask=rm < n_ctx)


def documents_case(
    heads=2, n=200, d=64, block_m=64, block_n=64, causal=True, dtype=BF16, **knobs
) -> Case:
    q, k, v = (normal(i, heads, n, d, dtype=dtype) for i in range(3))
    seg = filled(np.sort(np.random.default_rng(5).integers(0, 4, n)), I32)
    o, lse = out(heads, n, d, dtype=dtype), out(heads * n, dtype=F32)

    def wanted() -> dict[int, Any]:
        at = np.arange(n)
        seen = seg[:, None] == seg[None, :]
        if causal:
            seen = seen & (at[None, :] <= at[:, None])
        s = np.where(seen, f64(q) @ f64(k).swapaxes(1, 2) * d**-0.5, -np.inf)
        p, logs = softmax(s)
        return {4: p @ f64(v), 5: logs.ravel()}

    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal}
    args = [q, k, v, seg, o, lse, d**-0.5, n]
    return launch(documents, args, (-(-n // block_m), heads), meta, wanted(), knobs=knobs)


@wl.jit
def _inner(acc, l_i, m_i, q, K, V, start_m, qk_scale, N_CTX, stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, STAGE: tl.constexpr):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, tl.minimum((start_m + 1) * BLOCK_M, N_CTX)
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    for start_n in tl.range(lo, hi, BLOCK_N):
        n = start_n + offs_n
        k = tl.load(K + n[None, :] * stride_n + offs_d[:, None], mask=n[None, :] < N_CTX, other=0.0)
        qk = tl.dot(q, k)
        if STAGE == 2:
            mask = offs_m[:, None] >= n[None, :]
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        elif STAGE == 3:
            qk = tl.where(n[None, :] < N_CTX, qk * qk_scale, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        l_ij = tl.sum(p, 1)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha[:, None]
        v = tl.load(V + n[:, None] * stride_n + offs_d[None, :], mask=n[:, None] < N_CTX, other=0.0)
        p = p.to(v.dtype)
        acc = tl.dot(p, v, acc)
        m_i = m_ij
    return acc, l_i, m_i


@wl.jit
def by_stages(Q, K, V, sm_scale, M, Out, Z, H, N_CTX, stride_z, stride_h, stride_n, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr):  # fmt: skip
    """Two walks by a helper that is called twice: before the diagonal and on it."""
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    qvk_offset = off_z.to(tl.int64) * stride_z + off_h.to(tl.int64) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    qk_scale = sm_scale
    qk_scale *= 1.44269504
    q = tl.load(
        Q + qvk_offset + offs_m[:, None] * stride_n + offs_d[None, :],
        mask=offs_m[:, None] < N_CTX,
        other=0.0,
    )
    if STAGE & 1:
        acc, l_i, m_i = _inner(
            acc,
            l_i,
            m_i,
            q,
            K + qvk_offset,
            V + qvk_offset,
            start_m,
            qk_scale,
            N_CTX,
            stride_n,
            BLOCK_M,
            BLOCK_N,
            D,
            4 - STAGE,
        )
    if STAGE & 2:
        acc, l_i, m_i = _inner(
            acc,
            l_i,
            m_i,
            q,
            K + qvk_offset,
            V + qvk_offset,
            start_m,
            qk_scale,
            N_CTX,
            stride_n,
            BLOCK_M,
            BLOCK_N,
            D,
            2,
        )
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + off_hz * N_CTX + offs_m, m_i, mask=offs_m < N_CTX)
    tl.store(
        Out + qvk_offset + offs_m[:, None] * stride_n + offs_d[None, :],
        acc.to(Out.dtype.element_ty),
        mask=offs_m[:, None] < N_CTX,
    )


def stages_case(
    z=1, h=2, n=300, d=64, block_m=128, block_n=64, causal=True, dtype=F16, **knobs
) -> Case:
    q, k, v = (normal(i, z, h, n, d, dtype=dtype) for i in range(3))
    o, m = out(z, h, n, d, dtype=dtype), out(z * h * n, dtype=F32)

    def wanted() -> dict[int, Any]:
        s = f64(q) @ f64(k).swapaxes(2, 3) * d**-0.5
        if causal:
            s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        p, logs = softmax(s)
        return {4: logs.ravel() / np.log(2), 5: p @ f64(v)}

    args = [q, k, v, d**-0.5, m, o, z, h, n, *strides(q)[:3]]
    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n, "STAGE": 3 if causal else 1}
    return launch(by_stages, args, (-(-n // block_m), z * h), meta, wanted(), knobs=knobs)


@wl.jit
def in_a_while(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, n, stride_h, DQK: tl.constexpr, DV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Walks by a `while` with block pointers; head sizes differ (192 and 128); an `if` masks."""
    start = tl.program_id(0) * BLOCK_M
    h = tl.program_id(1)
    q_ptr += h * n * DQK
    k_ptr += h * n * DQK
    v_ptr += h * n * DV
    o_ptr += h * n * DV
    q_block = tl.make_block_ptr(q_ptr, (n, DQK), (DQK, 1), (start, 0), (BLOCK_M, DQK), (1, 0))
    k_block = tl.make_block_ptr(k_ptr, (n, DQK), (DQK, 1), (0, 0), (BLOCK_N, DQK), (1, 0))
    v_block = tl.make_block_ptr(v_ptr, (n, DV), (DV, 1), (0, 0), (BLOCK_N, DV), (1, 0))
    o_block = tl.make_block_ptr(o_ptr, (n, DV), (DV, 1), (start, 0), (BLOCK_M, DV), (1, 0))
    q = tl.load(q_block, boundary_check=(0, 1))
    rows = start + tl.arange(0, BLOCK_M)[:, None]
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.full([BLOCK_M], 0, tl.float32)
    acc = tl.zeros([BLOCK_M, DV], tl.float32)
    end = n
    if CAUSAL:
        end = min(n, start + BLOCK_M)
    j = 0
    while j < end:
        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.dot(q, tl.permute(k, (1, 0)), out_dtype=tl.float32) * scale
        if CAUSAL:
            if j + BLOCK_N > start:
                s = tl.where(rows >= j + tl.arange(0, BLOCK_N)[None, :], s, float("-inf"))
        else:
            if j + BLOCK_N > n:
                s = tl.where(j + tl.arange(0, BLOCK_N)[None, :] < n, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, axis=1, keep_dims=False))
        p = tl.exp2(s - new[:, None])
        total = total * tl.exp2(top - new) + p.sum(axis=1)
        acc *= tl.exp2(top - new)[:, None]
        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(p.to(v_ptr.type.element_ty), v, acc=acc)
        top = new
        k_block = tl.advance(k_block, [BLOCK_N, 0])
        v_block = tl.advance(v_block, [BLOCK_N, 0])
        j += BLOCK_N
    tl.store(o_block, (acc / total[:, None]).to(o_ptr.type.element_ty), boundary_check=(0, 1))


def while_case(
    heads=1, n=200, dqk=192, dv=128, block_m=128, block_n=64, causal=True, dtype=BF16, **knobs
) -> Case:
    q, k, v = (
        normal(0, heads, n, dqk, dtype=dtype),
        normal(1, heads, n, dqk, dtype=dtype),
        normal(2, heads, n, dv, dtype=dtype),
    )
    o = out(heads, n, dv, dtype=dtype)

    def wanted() -> dict[int, Any]:
        s = f64(q) @ f64(k).swapaxes(1, 2) * dqk**-0.5
        if causal:
            s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        return {3: softmax(s)[0] @ f64(v)}

    args = [q, k, v, o, float(dqk**-0.5 * 1.4426950408889634), n, n]
    meta = {"DQK": dqk, "DV": dv, "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal}
    return launch(in_a_while, args, (-(-n // block_m), heads), meta, wanted(), knobs=knobs)


CASES: dict[str, Callable[[], Case]] = {
    "bias": lambda: biased_case(),
    "bias-192x96": lambda: biased_case(block_m=192, block_n=96, n_q=200, n_kv=300),
    "bias-f32": lambda: biased_case(bias=F32, d=128, n_kv=172),
    "bias-d80": lambda: biased_case(d=80, block_n=80, dtype=F16, bias=F16),
    "bias-descriptor": lambda: switches_case(bias=True),
    "alibi": lambda: switches_case(alibi=True, block_n=112, n=400),
    "cap": lambda: switches_case(cap=20.0, d=96, block_n=176, n=600),
    "sink": lambda: switches_case(sink=True, d=128, block_m=64),
    "all": lambda: switches_case(bias=True, alibi=True, cap=10.0, sink=True, dtype=F16),
    "d256": lambda: switches_case(d=256, n=150, block_n=64),
    "window": lambda: windowed_case(),
    "window-s1": lambda: windowed_case(num_stages=1, block_n=144),
    "window-s4": lambda: windowed_case(num_stages=4, block_m=64),
    "documents": lambda: documents_case(),
    "documents-128": lambda: documents_case(block_m=128, block_n=128, causal=False, dtype=F16),
    "stages": lambda: stages_case(),
    "stages-full": lambda: stages_case(causal=False, block_n=112),
    "while": lambda: while_case(),
    "while-full": lambda: while_case(causal=False, dqk=128, dv=64, block_n=128, heads=2),
}
