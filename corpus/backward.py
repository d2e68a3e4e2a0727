"""The backward pass of attention: five dots, shared and transposed operands, a loop for dK and dV, one for dQ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.arrays import filled
from corpus.attending import f64, launch, normal, out, softmax, strides
from corpus.case import BF16, F16, F32, Case


@wl.jit
def delta(Out, DO, Delta, N_CTX, D: tl.constexpr, BLOCK_M: tl.constexpr):
    """delta = Σ o · do of each row."""
    off_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    off_h = tl.program_id(1)
    off_d = tl.arange(0, D)
    at = off_h * N_CTX * D + off_m[:, None] * D + off_d[None, :]
    o = tl.load(Out + at, mask=off_m[:, None] < N_CTX, other=0.0).to(tl.float32)
    do = tl.load(DO + at, mask=off_m[:, None] < N_CTX, other=0.0).to(tl.float32)
    tl.store(Delta + off_h * N_CTX + off_m, tl.sum(o * do, axis=1), mask=off_m < N_CTX)


class Gradients:
    """What the backward pass is given and has to give, in float64.  scaled: what K was multiplied by before,
    as where the scores are to be powers of two without a product."""

    def __init__(
        self, heads: int, n: int, d: int, causal: bool, dtype: Any, scaled: float = 1.0
    ) -> None:
        self.q, self.k, self.v, self.do = (normal(i, heads, n, d, dtype=dtype) for i in range(4))
        self.k = filled(f64(self.k) * scaled, dtype)
        q, k, v, do = f64(self.q, self.k, self.v, self.do)
        k = k / scaled
        s = q @ k.swapaxes(1, 2) * d**-0.5
        if causal:
            s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf)
        p, lse = softmax(s)
        self.o = filled(p @ v, dtype)
        delta = (f64(self.o) * do).sum(-1)
        self.lse, self.delta, self.lse2 = (
            filled(x.ravel(), F32) for x in (lse, delta, lse / np.log(2))
        )
        ds = p * (do @ v.swapaxes(1, 2) - delta[..., None]) * d**-0.5
        self.dq, self.dk, self.dv = ds @ k, ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ do


def delta_case(heads=2, n=150, d=64, block_m=64, dtype=BF16, **knobs):
    g = Gradients(heads, n, d, False, dtype)
    found = out(heads * n, dtype=F32)
    meta = {"D": d, "BLOCK_M": block_m}
    return launch(
        delta,
        [g.o, g.do, found, n],
        (-(-n // block_m), heads),
        meta,
        {2: f64(g.delta)},
        off=1e-5,
        tasks=False,
        knobs=knobs,
    )


@wl.jit
def keys_and_values(
    Q, K, V, sm_scale, DO, DK, DV, M, Delta, stride_h, stride_tok, N_CTX,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV of a block of keys: walks over the rows with transposed scores."""
    pid = tl.program_id(0)
    adj = tl.program_id(1) * stride_h
    Q += adj
    K += adj
    V += adj
    DO += adj
    DK += adj
    DV += adj
    M += tl.program_id(1) * N_CTX
    Delta += tl.program_id(1) * N_CTX
    offs_k = tl.arange(0, HEAD_DIM)
    start_n = pid * BLOCK_N1
    start_m = 0
    if CAUSAL:
        start_m = start_n // BLOCK_M1 * BLOCK_M1
    offs_n = start_n + tl.arange(0, BLOCK_N1)
    inside = offs_n[:, None] < N_CTX
    dv = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
    dk = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
    k = tl.load(K + offs_n[:, None] * stride_tok + offs_k[None, :], mask=inside, other=0.0)
    v = tl.load(V + offs_n[:, None] * stride_tok + offs_k[None, :], mask=inside, other=0.0)
    offs_m = start_m + tl.arange(0, BLOCK_M1)
    qT_ptrs = Q + offs_m[None, :] * stride_tok + offs_k[:, None]
    do_ptrs = DO + offs_m[:, None] * stride_tok + offs_k[None, :]
    num_steps = tl.cdiv(N_CTX - start_m, BLOCK_M1)
    curr_m = start_m
    for _ in range(num_steps):
        offs_m = curr_m + tl.arange(0, BLOCK_M1)
        qT = tl.load(qT_ptrs, mask=offs_m[None, :] < N_CTX, other=0.0)
        m = tl.load(M + offs_m, mask=offs_m < N_CTX, other=float("inf"))
        qkT = tl.dot(k, qT)
        pT = tl.math.exp2(qkT * (sm_scale * 1.4426950408889634) - m[None, :])
        if CAUSAL:
            pT = tl.where(offs_m[None, :] >= offs_n[:, None], pT, 0.0)
        do = tl.load(do_ptrs, mask=offs_m[:, None] < N_CTX, other=0.0)
        ppT = pT
        ppT = ppT.to(DO.dtype.element_ty)
        dv += tl.dot(ppT, do)
        Di = tl.load(Delta + offs_m, mask=offs_m < N_CTX, other=0.0)
        dpT = tl.dot(v, tl.trans(do)).to(tl.float32)
        dsT = pT * (dpT - Di[None, :])
        dsT = dsT.to(Q.dtype.element_ty)
        dk += tl.dot(dsT, tl.trans(qT))
        curr_m += BLOCK_M1
        qT_ptrs += BLOCK_M1 * stride_tok
        do_ptrs += BLOCK_M1 * stride_tok
    tl.store(
        DV + offs_n[:, None] * stride_tok + offs_k[None, :], dv.to(DV.dtype.element_ty), mask=inside
    )
    dk *= sm_scale
    tl.store(
        DK + offs_n[:, None] * stride_tok + offs_k[None, :], dk.to(DK.dtype.element_ty), mask=inside
    )


def dkdv_case(heads=2, n=200, d=64, block_m=64, block_n=128, causal=True, dtype=BF16, **knobs):
    g = Gradients(heads, n, d, causal, dtype)
    dk, dv = out(heads, n, d, dtype=dtype), out(heads, n, d, dtype=dtype)
    args = [g.q, g.k, g.v, d**-0.5, g.do, dk, dv, g.lse2, g.delta, *strides(g.q)[:2], n]
    meta = {"BLOCK_M1": block_m, "BLOCK_N1": block_n, "HEAD_DIM": d, "CAUSAL": causal}
    return launch(
        keys_and_values,
        args,
        (-(-n // block_n), heads),
        meta,
        {5: g.dk, 6: g.dv},
        knobs=knobs,
    )


@wl.jit
def queries(
    Q, K, V, sm_scale, DO, DQ, L, Delta, N_CTX, D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dQ of a block of rows; by descriptors."""
    h = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_M
    q_desc = tl.make_tensor_descriptor(Q + h * N_CTX * D, [N_CTX, D], [D, 1], [BLOCK_M, D])
    k_desc = tl.make_tensor_descriptor(K + h * N_CTX * D, [N_CTX, D], [D, 1], [BLOCK_N, D])
    v_desc = tl.make_tensor_descriptor(V + h * N_CTX * D, [N_CTX, D], [D, 1], [BLOCK_N, D])
    do_desc = tl.make_tensor_descriptor(DO + h * N_CTX * D, [N_CTX, D], [D, 1], [BLOCK_M, D])
    dq_desc = tl.make_tensor_descriptor(DQ + h * N_CTX * D, [N_CTX, D], [D, 1], [BLOCK_M, D])
    rows = start + tl.arange(0, BLOCK_M)
    q = q_desc.load([start, 0])
    do = do_desc.load([start, 0])
    lse = tl.load(L + h * N_CTX + rows, mask=rows < N_CTX, other=0.0)
    di = tl.load(Delta + h * N_CTX + rows, mask=rows < N_CTX, other=0.0)
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(N_CTX, start + BLOCK_M) if CAUSAL else N_CTX
    for j in range(0, end, BLOCK_N):
        k = k_desc.load([j, 0])
        v = v_desc.load([j, 0])
        cols = j + tl.arange(0, BLOCK_N)
        p = tl.exp(tl.dot(q, k.T) * sm_scale - lse[:, None])
        if CAUSAL:
            p = tl.where(cols[None, :] <= rows[:, None], p, 0.0)
        else:
            p = tl.where(cols[None, :] < N_CTX, p, 0.0)
        dp = tl.dot(do, v.T)
        ds = p * (dp - di[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    dq_desc.store([start, 0], (dq * sm_scale).to(DQ.dtype.element_ty))


def dq_case(heads=2, n=200, d=64, block_m=128, block_n=64, causal=True, dtype=BF16, **knobs):
    g = Gradients(heads, n, d, causal, dtype)
    dq = out(heads, n, d, dtype=dtype)
    args = [g.q, g.k, g.v, d**-0.5, g.do, dq, g.lse, g.delta, n]
    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal}
    return launch(queries, args, (-(-n // block_m), heads), meta, {5: g.dq}, knobs=knobs)


@wl.jit
def _over_rows(
    dk, dv, Q, DO, k, v, M, Delta, stride_tok, first_n, first_m, steps, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """dK and dV of the block at first_n from `steps` blocks of rows from first_m on."""
    offs_m = first_m + tl.arange(0, BLOCK_M)
    offs_n = first_n + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    qT_ptrs = Q + offs_m[None, :] * stride_tok + offs_d[:, None]
    do_ptrs = DO + offs_m[:, None] * stride_tok + offs_d[None, :]
    row = first_m
    for _ in range(steps):
        qT = tl.load(qT_ptrs)
        offs_m = row + tl.arange(0, BLOCK_M)
        m = tl.load(M + offs_m)
        pT = tl.math.exp2(tl.dot(k, qT) - m[None, :])
        if MASK:
            pT = tl.where(offs_m[None, :] >= offs_n[:, None], pT, 0.0)
        do = tl.load(do_ptrs)
        dv += tl.dot(pT.to(do.dtype), do)
        delta_i = tl.load(Delta + offs_m)
        dpT = tl.dot(v, tl.trans(do)).to(tl.float32)
        dsT = (pT * (dpT - delta_i[None, :])).to(qT.dtype)
        dk += tl.dot(dsT, tl.trans(qT))
        row += BLOCK_M
        qT_ptrs += BLOCK_M * stride_tok
        do_ptrs += BLOCK_M * stride_tok
    return dk, dv


@wl.jit
def _over_columns(
    dq, q, K, V, do, m, delta_i, stride_tok, first_m, first_n, steps, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """dQ of the rows at first_m from `steps` blocks of columns from first_n on."""
    offs_m = first_m + tl.arange(0, BLOCK_M)
    offs_n = first_n + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    kT_ptrs = K + offs_n[None, :] * stride_tok + offs_d[:, None]
    vT_ptrs = V + offs_n[None, :] * stride_tok + offs_d[:, None]
    column = first_n
    for _ in range(steps):
        kT = tl.load(kT_ptrs)
        vT = tl.load(vT_ptrs)
        p = tl.math.exp2(tl.dot(q, kT) - m)
        if MASK:
            offs_n = column + tl.arange(0, BLOCK_N)
            p = tl.where(offs_m[:, None] >= offs_n[None, :], p, 0.0)
        dp = tl.dot(do, vT).to(tl.float32)
        ds = (p * (dp - delta_i[:, None])).to(kT.dtype)
        dq += tl.dot(ds, tl.trans(kT))
        column += BLOCK_N
        kT_ptrs += BLOCK_N * stride_tok
        vT_ptrs += BLOCK_N * stride_tok
    return dq


@wl.jit
def in_two_walks(
    Q, K, V, sm_scale, DO, DQ, DK, DV, M, Delta, stride_z, stride_h, stride_tok, H, N_CTX,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr,
    BLOCK_N2: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One launch for all three: a program walks the rows for its block of dK and dV, then the columns for its
    block of dQ; what the diagonal cuts goes first, in blocks of 1/PARTS."""
    LN2: tl.constexpr = 0.6931471824645996
    head = tl.program_id(2)
    token = (head * N_CTX).to(tl.int64)
    adj = (stride_h * (head % H) + stride_z * (head // H)).to(tl.int64)
    pid = tl.program_id(0)
    Q += adj
    K += adj
    V += adj
    DO += adj
    DQ += adj
    DK += adj
    DV += adj
    M += token
    Delta += token
    offs_d = tl.arange(0, D)
    first_n = pid * BLOCK_N1
    first_m = 0
    CUT_M: tl.constexpr = BLOCK_M1 // PARTS
    offs_n = first_n + tl.arange(0, BLOCK_N1)
    dv = tl.zeros([BLOCK_N1, D], dtype=tl.float32)
    dk = tl.zeros([BLOCK_N1, D], dtype=tl.float32)
    k = tl.load(K + offs_n[:, None] * stride_tok + offs_d[None, :])
    v = tl.load(V + offs_n[:, None] * stride_tok + offs_d[None, :])
    if CAUSAL:
        first_m = first_n
        dk, dv = _over_rows(
            dk, dv, Q, DO, k, v, M, Delta, stride_tok, first_n, first_m, BLOCK_N1 // CUT_M,
            CUT_M, BLOCK_N1, D, True,
        )  # fmt: skip
        first_m += BLOCK_N1
    dk, dv = _over_rows(
        dk, dv, Q, DO, k, v, M, Delta, stride_tok, first_n, first_m, (N_CTX - first_m) // BLOCK_M1,
        BLOCK_M1, BLOCK_N1, D, False,
    )  # fmt: skip
    at = offs_n[:, None] * stride_tok + offs_d[None, :]
    tl.store(DV + at, dv.to(DV.dtype.element_ty))
    dk *= sm_scale
    tl.store(DK + at, dk.to(DK.dtype.element_ty))

    first_m = pid * BLOCK_M2
    first_n = 0
    steps = N_CTX // BLOCK_N2
    CUT_N: tl.constexpr = BLOCK_N2 // PARTS
    offs_m = first_m + tl.arange(0, BLOCK_M2)
    at = offs_m[:, None] * stride_tok + offs_d[None, :]
    q = tl.load(Q + at)
    do = tl.load(DO + at)
    dq = tl.zeros([BLOCK_M2, D], dtype=tl.float32)
    m = tl.load(M + offs_m)[:, None]
    delta_i = tl.load(Delta + offs_m)
    if CAUSAL:
        end_n = first_m + BLOCK_M2
        steps = BLOCK_M2 // CUT_N
        dq = _over_columns(
            dq, q, K, V, do, m, delta_i, stride_tok, first_m, end_n - steps * CUT_N, steps,
            BLOCK_M2, CUT_N, D, True,
        )  # fmt: skip
        end_n -= steps * CUT_N
        steps = end_n // BLOCK_N2
        first_n = end_n - steps * BLOCK_N2
    dq = _over_columns(
        dq, q, K, V, do, m, delta_i, stride_tok, first_m, first_n, steps, BLOCK_M2, BLOCK_N2, D, False,
    )  # fmt: skip
    dq *= LN2
    tl.store(DQ + at, dq.to(DQ.dtype.element_ty))


def two_walks_case(
    z=1, heads=2, n=256, d=64, rows=(32, 128), columns=(128, 32), parts=2, causal=True, dtype=F16,
    **knobs,
):  # fmt: skip
    """rows: of a block of rows and of columns where rows are walked; columns: where columns are."""
    g = Gradients(z * heads, n, d, causal, dtype, scaled=d**-0.5 / np.log(2))
    dq, dk, dv = (out(z * heads, n, d, dtype=dtype) for _ in range(3))
    args = [g.q, g.k, g.v, d**-0.5, g.do, dq, dk, dv, g.lse2, g.delta]
    args += [heads * n * d, *strides(g.q)[:2], heads, n]
    meta = {
        "BLOCK_M1": rows[0],
        "BLOCK_N1": rows[1],
        "BLOCK_M2": columns[0],
        "BLOCK_N2": columns[1],
        "PARTS": parts,
        "D": d,
        "CAUSAL": causal,
    }
    wants = {5: g.dq, 6: g.dk, 7: g.dv}
    return launch(in_two_walks, args, (n // rows[1], 1, z * heads), meta, wants, knobs=knobs)


@wl.jit
def at_once(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, scale, n,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """All five dots in one loop; dQ is added up in memory by atomics."""
    h = tl.program_id(1)
    base = h * n * D
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    kv = base + cols[:, None] * D + d[None, :]
    k = tl.load(k_ptr + kv, mask=cols[:, None] < n, other=0.0)
    v = tl.load(v_ptr + kv, mask=cols[:, None] < n, other=0.0)
    dk = tl.zeros([BLOCK_N, D], tl.float32)
    dv = tl.zeros([BLOCK_N, D], tl.float32)
    for i in range(0, n, BLOCK_M):
        rows = i + tl.arange(0, BLOCK_M)
        at = base + rows[:, None] * D + d[None, :]
        q = tl.load(q_ptr + at, mask=rows[:, None] < n, other=0.0)
        do = tl.load(do_ptr + at, mask=rows[:, None] < n, other=0.0)
        lse = tl.load(lse_ptr + h * n + rows, mask=rows < n, other=0.0)
        delta = tl.load(delta_ptr + h * n + rows, mask=rows < n, other=0.0)
        s = tl.dot(q, tl.trans(k))
        p = tl.exp(s * scale - lse[:, None])
        p = tl.where((rows[:, None] < n) & (cols[None, :] < n), p, 0.0)
        dv += tl.dot(tl.trans(p.to(do.dtype)), do)
        dp = tl.dot(do, tl.trans(v))
        ds = (p * (dp - delta[:, None]) * scale).to(q.dtype)
        dk += tl.dot(tl.trans(ds), q)
        dq = tl.dot(ds, k)
        tl.atomic_add(dq_ptr + at, dq, mask=rows[:, None] < n)
    tl.store(dk_ptr + kv, dk.to(dk_ptr.dtype.element_ty), mask=cols[:, None] < n)
    tl.store(dv_ptr + kv, dv.to(dv_ptr.dtype.element_ty), mask=cols[:, None] < n)


def at_once_case(heads=1, n=200, d=64, block_m=64, block_n=64, dtype=BF16, **knobs):
    g = Gradients(heads, n, d, False, dtype)
    dk, dv, dq = (
        out(heads, n, d, dtype=dtype),
        out(heads, n, d, dtype=dtype),
        out(heads, n, d, dtype=F32),
    )
    dq[...] = 0
    args = [g.q, g.k, g.v, g.do, dq, dk, dv, g.lse, g.delta, d**-0.5, n]
    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(
        at_once,
        args,
        (-(-n // block_n), heads),
        meta,
        {4: g.dq, 5: g.dk, 6: g.dv},
        knobs=knobs,
    )


CASES: dict[str, Callable[[], Case]] = {
    "delta": lambda: delta_case(),
    "dkdv": lambda: dkdv_case(),
    "dkdv-full": lambda: dkdv_case(causal=False, n=300),
    "dkdv-128": lambda: dkdv_case(d=128, causal=False, dtype=F16),
    "dkdv-32": lambda: dkdv_case(block_m=32, d=64),
    "dq": lambda: dq_case(),
    "dq-full": lambda: dq_case(causal=False, d=128, block_n=64),
    "two-walks": lambda: two_walks_case(),
    "two-walks-128": lambda: two_walks_case(n=512, d=128, causal=False),
    "at-once": lambda: at_once_case(),
    "at-once-128": lambda: at_once_case(block_n=128, d=128),
}
