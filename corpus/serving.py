"""Attention as servers run it: few rows against long caches, split and merged, paged, ragged, sparse, in 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.arrays import filled
from corpus.attending import I32, f64, launch, normal, out, softmax, strides
from corpus.case import BF16, E4M3, E5M2, F16, F32, Case, blocks


@wl.jit
def split_decode(
    q_ptr, k_ptr, v_ptr, part_ptr, lse_ptr, seq_lens, sm_scale, stride_qb, stride_kb, stride_kn,
    SPLITS: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The G query heads of one key head are the rows of a tile; each program walks a part of the keys."""
    b = tl.program_id(0)
    split = tl.program_id(1)
    length = tl.load(seq_lens + b)
    per = tl.cdiv(tl.cdiv(length, BLOCK_N), SPLITS) * BLOCK_N
    begin = split * per
    end = tl.minimum(begin + per, length)
    hs = tl.arange(0, BLOCK_H)
    ds = tl.arange(0, D)
    q = tl.load(
        q_ptr + b * stride_qb + hs[:, None] * D + ds[None, :], mask=hs[:, None] < G, other=0.0
    )
    e_max = tl.zeros([BLOCK_H], dtype=tl.float32) - float("inf")
    e_sum = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, D], dtype=tl.float32)
    if end > begin:
        for start in range(begin, end, BLOCK_N):
            n = start + tl.arange(0, BLOCK_N)
            k = tl.load(
                k_ptr + b * stride_kb + n[None, :] * stride_kn + ds[:, None],
                mask=n[None, :] < end,
                other=0.0,
            )
            qk = tl.dot(q, k.to(q.dtype))
            qk *= sm_scale
            qk = tl.where((hs[:, None] < G) & (n[None, :] < end), qk, float("-inf"))
            v = tl.load(
                v_ptr + b * stride_kb + n[:, None] * stride_kn + ds[None, :],
                mask=n[:, None] < end,
                other=0.0,
            )
            n_e_max = tl.maximum(tl.max(qk, 1), e_max)
            re_scale = tl.exp(e_max - n_e_max)
            p = tl.exp(qk - n_e_max[:, None])
            acc *= re_scale[:, None]
            acc += tl.dot(p.to(v.dtype), v)
            e_sum = e_sum * re_scale + tl.sum(p, 1)
            e_max = n_e_max
        at = (b * SPLITS + split) * G
        tl.store(
            part_ptr + (at + hs[:, None]) * D + ds[None, :],
            acc / e_sum[:, None],
            mask=hs[:, None] < G,
        )
        tl.store(lse_ptr + at + hs, e_max + tl.log(e_sum), mask=hs < G)


def decode_case(
    lens=(150, 70, 300),
    g=8,
    d=64,
    block_h=16,
    block_n=64,
    splits=2,
    dtype=BF16,
    tasks=True,
    **knobs,
):
    b, n = len(lens), max(lens)
    q, k, v = (
        normal(0, b, g, d, dtype=dtype),
        normal(1, b, n, d, dtype=dtype),
        normal(2, b, n, d, dtype=dtype),
    )
    part, lse = out(b, splits, g, d, dtype=F32), out(b, splits, g, dtype=F32)
    seq = filled(np.array(lens), I32)
    args = [
        q,
        k,
        v,
        part,
        lse.reshape(-1) if g % 4 == 0 else lse,
        seq,
        d**-0.5,
        strides(q)[0],
        *strides(k)[:2],
    ]

    def wanted() -> dict[int, Any]:
        parts, logs = np.zeros((b, splits, g, d)), np.zeros((b, splits, g))
        for i, length in enumerate(lens):
            per = blocks(blocks(length, block_n), splits) * block_n
            for s in range(splits):
                lo, hi = s * per, min(s * per + per, length)
                p, logs[i, s] = softmax(f64(q)[i] @ f64(k)[i, lo:hi].T * d**-0.5)
                parts[i, s] = p @ f64(v)[i, lo:hi]
        return {3: parts, 4: logs.reshape(args[4].shape)}

    meta = {"SPLITS": splits, "G": g, "D": d, "BLOCK_H": block_h, "BLOCK_N": block_n}
    return launch(split_decode, args, (b, splits), meta, wanted(), tasks=tasks, knobs=knobs)


@wl.jit
def combine(
    part_ptr, lse_ptr, o_ptr, splits, G: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr
):
    """Partial results, weighed by their log-sum-exps."""
    b = tl.program_id(0)
    g = tl.program_id(1)
    d = tl.arange(0, D)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for s in range(0, splits):
        at = (b * SPLITS + s) * G + g
        lse = tl.load(lse_ptr + at)
        x = tl.load(part_ptr + at * D + d)
        new = tl.maximum(lse, top)
        old = tl.exp(top - new)
        w = tl.exp(lse - new)
        acc = acc * old + w * x
        total = total * old + w
        top = new
    tl.store(o_ptr + (b * G + g) * D + d, acc / total)


def combine_case(b=3, g=4, d=64, splits=5, dtype=BF16, **knobs):
    part, lse, o = (
        normal(0, b, splits, g, d, dtype=F32),
        normal(1, b, splits, g, dtype=F32),
        out(b, g, d, dtype=dtype),
    )

    def wanted() -> dict[int, Any]:
        w = softmax(f64(lse).swapaxes(1, 2))[0]
        return {2: np.einsum("bgs,bsgd->bgd", w, f64(part))}

    return launch(
        combine,
        [part, lse, o, splits],
        (b, g),
        {"G": g, "D": d, "SPLITS": splits},
        wanted(),
        tasks=False,
        knobs=knobs,
    )


@wl.jit
def paged(
    q_ptr, k_cache, v_cache, table_ptr, lens_ptr, o_ptr, scale, stride_table, stride_page, stride_slot,
    stride_head, n_ctx, H: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Keys and values lie in pages that a table names: row pointers are gathered."""
    b, h = tl.program_id(1) // H, tl.program_id(1) % H
    m0 = tl.program_id(0) * BLOCK_M
    length = tl.load(lens_ptr + b)
    offs_m = m0 + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    q_at = ((b * H + h) * n_ctx + offs_m[:, None]) * D + offs_d[None, :]
    q = tl.load(q_ptr + q_at, mask=offs_m[:, None] < n_ctx, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + offs_n
        page = tl.load(table_ptr + b * stride_table + n // PAGE, mask=n < length, other=0)
        row = page.to(tl.int64) * stride_page + (n % PAGE) * stride_slot + h * stride_head
        k = tl.load(k_cache + row[None, :] + offs_d[:, None], mask=(n < length)[None, :], other=0.0)
        v = tl.load(v_cache + row[:, None] + offs_d[None, :], mask=(n < length)[:, None], other=0.0)
        s = tl.dot(q, k) * scale
        s = tl.where((n < length)[None, :], s, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    tl.store(
        o_ptr + q_at, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < n_ctx
    )


def paged_case(
    lens=(170, 90), h=2, n_ctx=70, page=16, d=64, block_m=64, block_n=64, dtype=BF16, **knobs
):
    b, per = len(lens), -(-max(lens) // page)
    rng = np.random.default_rng(0)
    table = filled(rng.permutation(b * per).reshape(b, per), I32)
    k, v = normal(1, b * per, page, h, d, dtype=dtype), normal(2, b * per, page, h, d, dtype=dtype)
    q, o = normal(3, b, h, n_ctx, d, dtype=dtype), out(b, h, n_ctx, d, dtype=dtype)

    def wanted() -> dict[int, Any]:
        found = np.zeros(o.shape)
        for i, n in enumerate(lens):
            for j in range(h):
                kk, vv = (f64(x)[table[i]].reshape(-1, h, d)[:n, j] for x in (k, v))
                found[i, j] = softmax(f64(q)[i, j] @ kk.T * d**-0.5)[0] @ vv
        return {5: found}

    args = [
        q,
        k,
        v,
        table,
        filled(np.array(lens), I32),
        o,
        d**-0.5,
        strides(table)[0],
        *strides(k)[:3],
        n_ctx,
    ]
    meta = {"H": h, "PAGE": page, "D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(paged, args, (-(-n_ctx // block_m), b * h), meta, wanted(), knobs=knobs)


@wl.jit
def paged_by_blocks(
    q_ptr, k_cache, v_cache, table_ptr, lens_ptr, o_ptr, scale, stride_table, n_ctx,
    H: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """A page is a block: its number is loaded in the loop, its rows lie one behind the other."""
    b, h = tl.program_id(1) // H, tl.program_id(1) % H
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, PAGE)
    offs_d = tl.arange(0, D)
    length = tl.load(lens_ptr + b)
    q_at = ((b * H + h) * n_ctx + offs_m[:, None]) * D + offs_d[None, :]
    q = tl.load(q_ptr + q_at, mask=offs_m[:, None] < n_ctx, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for i in range(0, tl.cdiv(length, PAGE)):
        page = tl.load(table_ptr + b * stride_table + i)
        at = ((page * PAGE + offs_n[:, None]) * H + h) * D + offs_d[None, :]
        k = tl.load(k_cache + at)
        v = tl.load(v_cache + at)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((i * PAGE + offs_n < length)[None, :], s, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    tl.store(
        o_ptr + q_at, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < n_ctx
    )


def pages_case(lens=(170, 90), h=2, n_ctx=70, page=64, d=64, block_m=64, dtype=BF16, **knobs):
    like = paged_case(lens, h, n_ctx, page, d, block_m, dtype=dtype)
    q, k, v, table, lens_, o, scale, stride = like.args[:8]
    meta = {"H": h, "D": d, "BLOCK_M": block_m, "PAGE": page}
    return launch(
        paged_by_blocks,
        [q, k, v, table, lens_, o, scale, stride, n_ctx],
        like.grid,
        meta,
        like.wants,
        knobs=knobs,
    )


@wl.jit
def ragged(
    q_ptr, k_ptr, v_ptr, o_ptr, cu_q, cu_k, scale, stride_qt, stride_kt, H: tl.constexpr, H_KV: tl.constexpr,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Sequences one behind the other (cu_seqlens), heads inside a row, several query heads a key head."""
    start_m = tl.program_id(0)
    h = tl.program_id(1)
    z = tl.program_id(2)
    q0 = tl.load(cu_q + z)
    len_q = tl.load(cu_q + z + 1) - q0
    if start_m * BLOCK_M >= len_q:
        return
    k0 = tl.load(cu_k + z)
    len_k = tl.load(cu_k + z + 1) - k0
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    hk = h // (H // H_KV)
    q_ptrs = q_ptr + (q0 + offs_m[:, None]) * stride_qt + h * D + offs_d[None, :]
    k_ptrs = k_ptr + (k0 + offs_n[None, :]) * stride_kt + hk * D + offs_d[:, None]
    v_ptrs = v_ptr + (k0 + offs_n[:, None]) * stride_kt + hk * D + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < len_q, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    diff = len_k - len_q
    last = tl.minimum(len_k, (start_m + 1) * BLOCK_M + diff) if CAUSAL else len_k
    for start_n in range(0, last, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = tl.load(
            k_ptrs + start_n * stride_kt, mask=(start_n + offs_n)[None, :] < len_k, other=0.0
        )
        s = tl.dot(q, k) * scale
        if CAUSAL:
            s += tl.where(offs_m[:, None] + diff >= (start_n + offs_n)[None, :], 0, float("-inf"))
        else:
            s = tl.where((start_n + offs_n)[None, :] < len_k, s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(
            v_ptrs + start_n * stride_kt, mask=(start_n + offs_n)[:, None] < len_k, other=0.0
        )
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_new
    o_ptrs = o_ptr + (q0 + offs_m[:, None]) * stride_qt + h * D + offs_d[None, :]
    tl.store(o_ptrs, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < len_q)


def ragged_case(
    lens_q=(70, 1, 200),
    lens_k=(100, 33, 200),
    h=4,
    h_kv=2,
    d=64,
    block_m=64,
    block_n=64,
    causal=True,
    dtype=BF16,
    **knobs,
):
    cq, ck = (np.concatenate([[0], np.cumsum(x)]) for x in (lens_q, lens_k))
    q, o = normal(0, int(cq[-1]), h, d, dtype=dtype), out(int(cq[-1]), h, d, dtype=dtype)
    k, v = (
        normal(1, int(ck[-1]), h_kv, d, dtype=dtype),
        normal(2, int(ck[-1]), h_kv, d, dtype=dtype),
    )

    def wanted() -> dict[int, Any]:
        found = np.zeros(o.shape)
        for i, (nq, nk) in enumerate(zip(lens_q, lens_k, strict=True)):
            for j in range(h):
                qq = f64(q)[cq[i] : cq[i + 1], j]
                kk, vv = (f64(x)[ck[i] : ck[i + 1], j // (h // h_kv)] for x in (k, v))
                s = qq @ kk.T * d**-0.5
                if causal:
                    s = np.where(np.arange(nq)[:, None] + nk - nq >= np.arange(nk), s, -np.inf)
                found[cq[i] : cq[i + 1], j] = softmax(s)[0] @ vv
        return {3: found}

    args = [
        q,
        k,
        v,
        o,
        filled(cq, I32),
        filled(ck, I32),
        d**-0.5,
        strides(q)[0],
        strides(k)[0],
    ]
    meta = {"H": h, "H_KV": h_kv, "D": d, "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal}
    return launch(
        ragged, args, (-(-max(lens_q) // block_m), h, len(lens_q)), meta, wanted(), knobs=knobs
    )


@wl.jit
def block_sparse(
    q_ptr, k_ptr, v_ptr, o_ptr, counts_ptr, index_ptr, scale, n, most,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The blocks of keys that a list names, per block of rows."""
    i, h = tl.program_id(0), tl.program_id(1)
    q_ptr += h * n * D
    k_ptr += h * n * D
    v_ptr += h * n * D
    o_ptr += h * n * D
    rm = i * BLOCK + tl.arange(0, BLOCK)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    count = tl.load(counts_ptr + i)
    for e in range(count):
        block = tl.load(index_ptr + i * most + e)
        rn = block * BLOCK + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where(rn[None, :] < n, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2((s - new[:, None]) * 1.4426950408889634)
        old = tl.exp2((top - new) * 1.4426950408889634)
        total = total * old + tl.sum(p, 1)
        v = tl.load(v_ptr + rn[:, None] * D + rd[None, :], mask=rn[:, None] < n, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])
        top = new
    tl.store(
        o_ptr + rm[:, None] * D + rd[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty),
        mask=rm[:, None] < n,
    )


def sparse_case(h=2, n=330, d=64, block=64, dtype=BF16, **knobs):
    q, k, v = (normal(i, h, n, d, dtype=dtype) for i in range(3))
    o, blocks = out(h, n, d, dtype=dtype), -(-n // block)
    rng = np.random.default_rng(1)
    keep = rng.random((blocks, blocks)) < 0.5
    keep[:, 0] = True
    keep[1] = True
    index = np.zeros((blocks, blocks))
    for i in range(blocks):
        index[i, : keep[i].sum()] = np.flatnonzero(keep[i])

    def wanted() -> dict[int, Any]:
        seen = np.repeat(np.repeat(keep, block, 0), block, 1)[:n, :n]
        s = np.where(seen, f64(q) @ f64(k).swapaxes(1, 2) * d**-0.5, -np.inf)
        return {3: softmax(s)[0] @ f64(v)}

    index = filled(index, I32)
    args = [q, k, v, o, filled(keep.sum(1), I32), index, d**-0.5, n, strides(index)[0]]
    return launch(block_sparse, args, (blocks, h), {"D": d, "BLOCK": block}, wanted(), knobs=knobs)


@wl.jit
def packed(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, n_q, n_kv, stride_qh, stride_qm, stride_kh, stride_kn,
    G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Rows of a tile are positions times the G heads of a group; the mask goes by position."""
    hk = tl.program_id(1)
    at = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    pos, g = at // G, at % G
    d = tl.arange(0, D)
    inside = pos < n_q
    q_at = (hk * G + g)[:, None] * stride_qh + pos[:, None] * stride_qm + d[None, :]
    q = tl.load(q_ptr + q_at, mask=inside[:, None], other=0.0)
    m_i = tl.full([BLOCK_M], -1e30, tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    hi = tl.minimum(n_kv, tl.cdiv((tl.program_id(0) + 1) * BLOCK_M, G) + n_kv - n_q)
    for start in tl.range(0, hi, BLOCK_N, num_stages=2):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(
            k_ptr + hk * stride_kh + n[:, None] * stride_kn + d[None, :],
            mask=n[:, None] < n_kv,
            other=0.0,
        )
        s = tl.dot(q, k.T, out_dtype=tl.float32)
        s = tl.where(n[None, :] <= pos[:, None] + n_kv - n_q, s * scale, -1e30)
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        v = tl.load(
            v_ptr + hk * stride_kh + n[:, None] * stride_kn + d[None, :],
            mask=n[:, None] < n_kv,
            other=0.0,
        )
        acc = tl.dot(p.to(q.dtype), v, acc * alpha[:, None])
        m_i = m_new
    tl.store(o_ptr + q_at, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), mask=inside[:, None])


def packed_case(hk=2, g=4, n_q=40, n_kv=200, d=128, block_m=128, block_n=64, dtype=BF16, **knobs):
    q, o = normal(0, hk * g, n_q, d, dtype=dtype), out(hk * g, n_q, d, dtype=dtype)
    k, v = normal(1, hk, n_kv, d, dtype=dtype), normal(2, hk, n_kv, d, dtype=dtype)

    def wanted() -> dict[int, Any]:
        kk, vv = (np.repeat(f64(x), g, 0) for x in (k, v))
        seen = np.arange(n_kv) <= np.arange(n_q)[:, None] + n_kv - n_q
        s = np.where(seen, f64(q) @ kk.swapaxes(1, 2) * d**-0.5, -np.inf)
        return {3: softmax(s)[0] @ vv}

    args = [
        q,
        k,
        v,
        o,
        float(d**-0.5 * 1.4426950408889634),
        n_q,
        n_kv,
        *strides(q)[:2],
        *strides(k)[:2],
    ]
    meta = {"G": g, "D": d, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return launch(packed, args, (-(-n_q * g // block_m), hk), meta, wanted(), knobs=knobs)


@wl.jit
def in_eight_bits(
    q_ptr, k_ptr, v_ptr, o_ptr, q_scale, k_scale, v_scale, n, sm_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, V_TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Q, K and V in 8 bits with scales a head; P goes to 8 bits too.  V_TRANSPOSED: V lies (D, n)."""
    i, h = tl.program_id(0), tl.program_id(1)
    rm = i * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.arange(0, BLOCK_N)
    rd = tl.arange(0, D)
    base = h * n * D
    q = tl.load(q_ptr + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < n, other=0.0)
    scale = sm_scale * tl.load(q_scale + h) * tl.load(k_scale + h) * 1.4426950408889634
    m = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for j in range(0, n, BLOCK_N):
        cols = j + rn
        k = tl.load(
            k_ptr + base + cols[:, None] * D + rd[None, :], mask=cols[:, None] < n, other=0.0
        )
        s = tl.dot(q, tl.trans(k))
        s = tl.where(cols[None, :] < n, s * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if V_TRANSPOSED:
            v = tl.load(
                v_ptr + base + rd[:, None] * n + cols[None, :], mask=cols[None, :] < n, other=0.0
            )
            acc += tl.dot(p.to(v.dtype), v.T)
        else:
            v = tl.load(
                v_ptr + base + cols[:, None] * D + rd[None, :], mask=cols[:, None] < n, other=0.0
            )
            acc += tl.dot(p.to(v.dtype), v)
        m = m_new
    o = acc / total[:, None] * tl.load(v_scale + h)
    tl.store(
        o_ptr + base + rm[:, None] * D + rd[None, :],
        o.to(o_ptr.dtype.element_ty),
        mask=rm[:, None] < n,
    )


def eight_bit_case(
    heads=2, n=208, d=64, block_m=128, block_n=64, transposed=True, dtype=E4M3, **knobs
):
    q, k, v = (normal(i, heads, n, d, dtype=dtype) for i in range(3))
    v_stored = normal(2, heads, d, n, dtype=dtype) if transposed else v
    scales = [filled(np.array([0.5, 1.5][:1] * heads), F32) for _ in range(3)]
    o = out(heads, n, d)

    def wanted() -> dict[int, Any]:
        vv = f64(v_stored).swapaxes(1, 2) if transposed else f64(v)
        s = f64(q) @ f64(k).swapaxes(1, 2) * (d**-0.5 * 0.25)
        return {3: softmax(s)[0] @ vv * 0.5}

    meta = {"D": d, "BLOCK_M": block_m, "BLOCK_N": block_n, "V_TRANSPOSED": transposed}
    args = [q, k, v_stored, o, *scales, n, d**-0.5]
    return launch(
        in_eight_bits, args, (-(-n // block_m), heads), meta, wanted(), off=0.15, knobs=knobs
    )


CASES: dict[str, Callable[[], Case]] = {
    "decode": lambda: decode_case(),
    "decode-64": lambda: decode_case(g=64, block_h=64, d=128),
    "decode-128n": lambda: decode_case(block_n=128, lens=(900, 5000), d=128),
    "combine": lambda: combine_case(),
    "paged": lambda: paged_case(),
    "paged-128": lambda: paged_case(block_m=128, d=128, n_ctx=150, lens=(400, 330)),
    "pages": lambda: pages_case(),
    "pages-128": lambda: pages_case(page=128, block_m=128, lens=(400, 500), n_ctx=200),
    "ragged": lambda: ragged_case(),
    "ragged-full": lambda: ragged_case(causal=False, block_m=128, lens_k=(300, 33, 400), dtype=F16),
    "ragged-128": lambda: ragged_case((130, 7, 200), (150, 33, 220), 2, 1, 128, 128, causal=False),
    "sparse": lambda: sparse_case(),
    "sparse-128": lambda: sparse_case(block=128, n=700),
    "packed": lambda: packed_case(),
    "fp8": lambda: eight_bit_case(),
    "fp8-128": lambda: eight_bit_case(d=128, block_n=128, n=400, transposed=False),
    "e5m2": lambda: eight_bit_case(dtype=E5M2, block_n=128, n=400),
}
