"""Linear attention: a state that is carried from chunk to chunk through dots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.attending import f64, integers, launch, normal, out
from corpus.case import BF16, F16, F32, Case


@wl.jit
def linear(
    q_ptr, k_ptr, v_ptr, o_ptr, T, DK: tl.constexpr, DV: tl.constexpr, BLOCK_V: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """o_t = q_t · Σ_{s ≤ t} k_s vᵀ_s: inside a chunk by a masked product, across chunks by the state."""
    i_v, h = tl.program_id(0), tl.program_id(1)
    q_block = tl.make_block_ptr(q_ptr + h * T * DK, (T, DK), (DK, 1), (0, 0), (CHUNK, DK), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + h * T * DK, (DK, T), (1, DK), (0, 0), (DK, CHUNK), (0, 1))
    v_block = tl.make_block_ptr(
        v_ptr + h * T * DV, (T, DV), (DV, 1), (0, i_v * BLOCK_V), (CHUNK, BLOCK_V), (1, 0)
    )
    o_block = tl.make_block_ptr(
        o_ptr + h * T * DV, (T, DV), (DV, 1), (0, i_v * BLOCK_V), (CHUNK, BLOCK_V), (1, 0)
    )
    at = tl.arange(0, CHUNK)
    seen = at[:, None] >= at[None, :]
    state = tl.zeros([DK, BLOCK_V], dtype=tl.float32)
    for _ in range(0, tl.cdiv(T, CHUNK)):
        q = tl.load(q_block, boundary_check=(0, 1))
        k = tl.load(k_block, boundary_check=(0, 1))
        v = tl.load(v_block, boundary_check=(0, 1))
        s = tl.dot(q, k, allow_tf32=False)
        s = tl.where(seen, s, 0)
        o = tl.dot(s.to(q.dtype), v, allow_tf32=False)
        o += tl.dot(q, state.to(q.dtype), allow_tf32=False)
        state += tl.dot(k, v, allow_tf32=False)
        tl.store(o_block, o.to(o_ptr.dtype.element_ty), boundary_check=(0, 1))
        q_block = tl.advance(q_block, (CHUNK, 0))
        k_block = tl.advance(k_block, (0, CHUNK))
        v_block = tl.advance(v_block, (CHUNK, 0))
        o_block = tl.advance(o_block, (CHUNK, 0))


def linear_case(heads=2, t=200, dk=64, dv=64, block_v=64, chunk=64, dtype=BF16, **knobs):
    q, k = (
        normal(0, heads, t, dk, dtype=dtype, scale=0.3),
        normal(1, heads, t, dk, dtype=dtype, scale=0.3),
    )
    v, o = normal(2, heads, t, dv, dtype=dtype), out(heads, t, dv, dtype=dtype)

    def wanted() -> dict[int, Any]:
        return {3: np.tril(f64(q) @ f64(k).swapaxes(1, 2)) @ f64(v)}

    meta = {"DK": dk, "DV": dv, "BLOCK_V": block_v, "CHUNK": chunk}
    return launch(
        linear, [q, k, v, o, t], (dv // block_v, heads), meta, wanted(), off=0.03, knobs=knobs
    )


@wl.jit
def decayed(
    c_ptr, b_ptr, x_ptr, a_ptr, y_ptr, last_ptr, T, N: tl.constexpr, P: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """A state-space layer in chunks (Mamba 2): log decays `a`, already summed inside their chunks."""
    h = tl.program_id(0)
    c_ptr += h * T * N
    b_ptr += h * T * N
    x_ptr += h * T * P
    y_ptr += h * T * P
    a_ptr += h * T
    i = tl.arange(0, CHUNK)
    n = tl.arange(0, N)
    p = tl.arange(0, P)
    state = tl.zeros([N, P], tl.float32)
    for t in range(0, T, CHUNK):
        at = t + i
        inside = at[:, None] < T
        c = tl.load(c_ptr + at[:, None] * N + n[None, :], mask=inside, other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + at[:, None] * P + p[None, :], mask=inside, other=0.0)
        a = tl.load(a_ptr + at, mask=at < T, other=0.0)
        end = tl.load(a_ptr + tl.minimum(t + CHUNK, T) - 1)
        s = tl.dot(c, tl.trans(b))
        decay = tl.exp(a[:, None] - a[None, :])
        s = tl.where(i[:, None] >= i[None, :], s * decay, 0.0)
        y = tl.dot(s.to(x.dtype), x)
        y += tl.dot(c, state.to(c.dtype)) * tl.exp(a)[:, None]
        tl.store(y_ptr + at[:, None] * P + p[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
        left = tl.exp(end - a)
        bd = (b * left[:, None]).to(x.dtype)
        state = state * tl.exp(end) + tl.dot(tl.trans(bd), x)
    tl.store(last_ptr + h * N * P + n[:, None] * P + p[None, :], state)


def decayed_case(heads=2, t=200, n=64, p=64, chunk=64, dtype=BF16, **knobs):
    c, b = (
        normal(0, heads, t, n, dtype=dtype, scale=0.3),
        normal(1, heads, t, n, dtype=dtype, scale=0.3),
    )
    x, y, last = (
        normal(2, heads, t, p, dtype=dtype),
        out(heads, t, p, dtype=dtype),
        out(heads, n, p, dtype=F32),
    )
    logs = -abs(normal(3, heads, t, dtype=F32)) * 0.05
    a = normal(3, heads * t, dtype=F32)
    summed = np.concatenate([np.cumsum(logs[:, j : j + chunk], 1) for j in range(0, t, chunk)], 1)
    a[...] = summed.ravel()

    def wanted() -> dict[int, Any]:
        total = np.cumsum(f64(logs), 1)
        decay = np.tril(np.exp(np.minimum(total[:, :, None] - total[:, None, :], 0)))
        s = decay * (f64(c) @ f64(b).swapaxes(1, 2))
        state = (f64(b) * np.exp(total[:, -1:] - total)[..., None]).swapaxes(1, 2) @ f64(x)
        return {4: s @ f64(x), 5: state}

    meta = {"N": n, "P": p, "CHUNK": chunk}
    return launch(
        decayed, [c, b, x, a, y, last, t], (heads,), meta, wanted(), off=0.03, knobs=knobs
    )


@wl.jit
def chunk_state(
    b_ptr, x_ptr, w_ptr, s_ptr, T, N: tl.constexpr, P: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """States of all chunks: Xᵀ·(w·B), the right operand scaled on its way."""
    chunk, h = tl.program_id(1), tl.program_id(2)
    blocks = tl.cdiv(N, BLOCK_N)
    pid_p, pid_n = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    t0 = chunk * CHUNK
    offs_p = pid_p * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    size = min(CHUNK, T - t0)
    x_ptrs = x_ptr + (h * T + t0 + offs_k[None, :]) * P + offs_p[:, None]
    b_ptrs = b_ptr + (h * T + t0 + offs_k[:, None]) * N + offs_n[None, :]
    w_ptrs = w_ptr + h * T + t0 + offs_k
    acc = tl.zeros((BLOCK_P, BLOCK_N), dtype=tl.float32)
    for k in range(0, size, BLOCK_K):
        x = tl.load(x_ptrs, mask=(offs_p[:, None] < P) & (offs_k[None, :] < size - k), other=0.0)
        b = tl.load(
            b_ptrs, mask=(offs_k[:, None] < size - k) & (offs_n[None, :] < N), other=0.0
        ).to(tl.float32)
        w = tl.load(w_ptrs, mask=offs_k < size - k, other=0.0).to(tl.float32)
        b *= w[:, None]
        b = b.to(x_ptr.dtype.element_ty)
        acc += tl.dot(x, b)
        x_ptrs += BLOCK_K * P
        b_ptrs += BLOCK_K * N
        w_ptrs += BLOCK_K
    chunks = tl.num_programs(1)
    s_ptrs = s_ptr + ((h * chunks + chunk) * P + offs_p[:, None]) * N + offs_n[None, :]
    tl.store(
        s_ptrs, acc.to(s_ptr.dtype.element_ty), mask=(offs_p[:, None] < P) & (offs_n[None, :] < N)
    )


def chunk_state_case(
    heads=2, t=330, n=128, p=64, chunk=128, block_n=64, block_p=64, block_k=32, dtype=BF16, **knobs
):
    chunks = -(-t // chunk)
    b, x, w = (
        integers(0, heads, t, n, dtype=dtype),
        integers(1, heads, t, p, dtype=dtype),
        integers(2, heads * t, dtype=F32),
    )
    s = out(heads, chunks, p, n, dtype=F32)

    def wanted() -> dict[int, Any]:
        found = np.zeros(s.shape)
        for i in range(chunks):
            at = slice(i * chunk, (i + 1) * chunk)
            scaled = f64(b)[:, at] * f64(w).reshape(heads, t)[:, at, None]
            found[:, i] = f64(x)[:, at].swapaxes(1, 2) @ scaled
        return {3: found}

    meta = {
        "N": n,
        "P": p,
        "CHUNK": chunk,
        "BLOCK_N": block_n,
        "BLOCK_P": block_p,
        "BLOCK_K": block_k,
    }
    grid = (-(-p // block_p) * -(-n // block_n), chunks, heads)
    return launch(chunk_state, [b, x, w, s, t], grid, meta, wanted(), off=0.0, knobs=knobs)


@wl.jit
def gated(
    q_ptr, k_ptr, v_ptr, g_ptr, o_ptr, h0_ptr, scale, T, DK: tl.constexpr, DV: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Gated linear attention: a decay for each key feature, summed inside a chunk; a first state is given."""
    i_v, h = tl.program_id(0), tl.program_id(1)
    i_t = tl.arange(0, CHUNK)
    i_k = tl.arange(0, DK)
    cols = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_s = i_t[:, None] >= i_t[None, :]
    state = tl.load(h0_ptr + h * DK * DV + i_k[:, None] * DV + cols[None, :]).to(tl.float32)
    for t in range(0, T, CHUNK):
        rows = t + i_t
        ok = rows[:, None] < T
        qk_at = (h * T + rows[:, None]) * DK + i_k[None, :]
        q = tl.load(q_ptr + qk_at, mask=ok, other=0.0)
        k = tl.load(k_ptr + qk_at, mask=ok, other=0.0)
        g = tl.load(g_ptr + qk_at, mask=ok, other=0.0)
        v = tl.load(v_ptr + (h * T + rows[:, None]) * DV + cols[None, :], mask=ok, other=0.0)
        last = tl.load(g_ptr + (h * T + tl.minimum(t + CHUNK, T) - 1) * DK + i_k)
        qg = (q * tl.exp(g) * scale).to(q.dtype)
        kg = (k * tl.exp(-g)).to(k.dtype)
        a = tl.dot(qg, tl.trans(kg))
        a = tl.where(m_s, a, 0.0)
        o = tl.dot(a.to(v.dtype), v) + tl.dot(qg, state.to(v.dtype))
        tl.store(
            o_ptr + (h * T + rows[:, None]) * DV + cols[None, :],
            o.to(o_ptr.dtype.element_ty),
            mask=ok,
        )
        kd = (k * tl.exp(last[None, :] - g)).to(k.dtype)
        state = state * tl.exp(last)[:, None] + tl.dot(tl.trans(kd), v)


def gated_case(heads=2, t=200, dk=64, dv=128, chunk=64, block_v=64, dtype=BF16, **knobs):
    q, k, v = (
        normal(0, heads, t, dk, dtype=dtype),
        normal(1, heads, t, dk, dtype=dtype),
        normal(2, heads, t, dv, dtype=dtype),
    )
    g, o, h0 = (
        normal(3, heads, t, dk, dtype=F32),
        out(heads, t, dv, dtype=dtype),
        normal(4, heads, dk, dv, dtype=F32),
    )
    logs = -abs(f64(normal(5, heads, t, dk, dtype=F32))) * 0.02
    g[...] = np.concatenate([np.cumsum(logs[:, j : j + chunk], 1) for j in range(0, t, chunk)], 1)

    def wanted() -> dict[int, Any]:
        found, state = np.zeros(o.shape), f64(h0)
        kk, vv = f64(k, v)
        for i in range(t):
            state = state * np.exp(logs[:, i])[:, :, None] + kk[:, i, :, None] * vv[:, i, None, :]
            found[:, i] = np.einsum("hk,hkv->hv", f64(q)[:, i] * dk**-0.5, state)
        return {4: found}

    meta = {"DK": dk, "DV": dv, "CHUNK": chunk, "BLOCK_V": block_v}
    return launch(
        gated,
        [q, k, v, g, o, h0, dk**-0.5, t],
        (dv // block_v, heads),
        meta,
        wanted(),
        off=0.04,
        knobs=knobs,
    )


CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: linear_case(),
    "linear-128": lambda: linear_case(dk=128, dv=128, block_v=128, t=300),
    "linear-c128": lambda: linear_case(chunk=128, t=500, dtype=F16),
    "decayed": lambda: decayed_case(),
    "decayed-128": lambda: decayed_case(n=128, chunk=128, t=600),
    "chunk-state": lambda: chunk_state_case(),
    "chunk-state-128": lambda: chunk_state_case(block_n=128, p=128, block_p=128, block_k=64),
    "gated": lambda: gated_case(),
}
