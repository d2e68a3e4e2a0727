"""One token a sequence against its cache: pages of a few heads' keys, and keys that are values too (latent)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.arrays import filled
from corpus.attending import I32, f64, launch, normal, out, softmax, strides
from corpus.case import BF16, F16, F32, Case, blocks


@wl.jit
def over_pages(
    q_ptr, k_cache, v_cache, o_ptr, lse_ptr, table_ptr, lens_ptr, sinks_ptr, scale, stride_table,
    stride_page, stride_slot, H_KV: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, SINK: tl.constexpr,
):  # fmt: skip
    """The G query heads of a key head against pages that a table names; the last WINDOW keys alone where it is
    not 0, scores that don't exceed CAP, and a sink beside the keys of the first split."""
    b = tl.program_id(0)
    hk = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lens_ptr + b)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0) // BLOCK_N * BLOCK_N
    per = tl.cdiv(tl.cdiv(length - first, BLOCK_N), SPLITS) * BLOCK_N
    begin = first + split * per
    end = tl.minimum(begin + per, length)
    g = tl.arange(0, BLOCK_H)
    d = tl.arange(0, D)
    row = (b * H_KV + hk) * G + g
    q = tl.load(q_ptr + row[:, None] * D + d[None, :], mask=(g < G)[:, None], other=0.0)
    if SINK:
        here = (g < G) & (split == 0)
        m = tl.load(sinks_ptr + hk * G + g, mask=here, other=-float("inf")) * 1.4426950408889634
        m = tl.maximum(m, -1e30)
        total = tl.where(here, 1.0, 0.0)
    else:
        m = tl.full([BLOCK_H], -1e30, tl.float32)
        total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        page = tl.load(table_ptr + b * stride_table + n // PAGE, mask=n < end, other=0)
        at = page.to(tl.int64) * stride_page + (n % PAGE) * stride_slot + hk * D
        k = tl.load(k_cache + at[:, None] + d[None, :], mask=(n < end)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        if CAP > 0:
            s = CAP * (2 * tl.sigmoid(2 * s / CAP) - 1)
        seen = n < end
        if WINDOW > 0:
            seen = seen & (n >= length - WINDOW)
        s = tl.where(seen[None, :], s * 1.4426950408889634, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        alpha = tl.math.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_cache + at[:, None] + d[None, :], mask=(n < end)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    row = row * SPLITS + split
    some = (g < G) & (total > 0)
    part = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(o_ptr + row[:, None] * D + d[None, :], part, mask=(g < G)[:, None])
    lse = tl.where(some, m + tl.math.log2(tl.where(total > 0, total, 1.0)), -float("inf"))
    tl.store(lse_ptr + row, lse, mask=g < G)


def over_pages_case(
    lens=(170, 90, 133), h_kv=2, g=8, d=64, page=16, block_h=16, block_n=64, splits=2, window=0, cap=0.0,
    sink=False, dtype=BF16, tasks=True, **knobs,
) -> Case:  # fmt: skip
    b, per = len(lens), -(-max(lens) // page)
    table = filled(np.random.default_rng(0).permutation(b * per).reshape(b, per), I32)
    k, v = (normal(i, b * per, page, h_kv, d, dtype=dtype) for i in (1, 2))
    q, sinks = normal(3, b, h_kv, g, d, dtype=dtype), normal(4, h_kv * g, dtype=F32)
    o, lse = out(b, h_kv, g, splits, d, dtype=F32), out(b * h_kv * g * splits, dtype=F32)

    def wanted() -> dict[int, Any]:
        parts, logs = np.zeros(o.shape), np.zeros(o.shape[:-1])
        for i, length in enumerate(lens):
            first = max(length - window, 0) // block_n * block_n if window else 0
            step = blocks(blocks(length - first, block_n), splits) * block_n
            for j in range(h_kv):
                kk, vv = (f64(x)[table[i]].reshape(-1, h_kv, d)[:length, j] for x in (k, v))
                s = f64(q)[i, j] @ kk.T * d**-0.5
                s = cap * np.tanh(s / cap) if cap else s
                s[:, : max(length - window, 0) if window else 0] = -np.inf
                for x in range(splits):
                    lo, hi = first + x * step, min(first + x * step + step, length)
                    mine, values = s[:, lo:hi], vv[lo:hi]
                    if sink and x == 0:
                        own = f64(sinks)[j * g : j * g + g, None]
                        mine = np.concatenate([mine, own], 1)
                        values = np.concatenate([values, np.zeros((1, d))])
                    if mine.shape[1] == 0 or lo >= hi:
                        logs[i, j, :, x] = -np.inf
                        continue
                    p, found = softmax(mine)
                    parts[i, j, :, x], logs[i, j, :, x] = p @ values, found / np.log(2)
        return {3: parts, 4: logs.ravel()}

    args = [q, k, v, o, lse, table, filled(np.array(lens), I32), sinks, d**-0.5]
    args += [strides(table)[0], *strides(k)[:2]]
    meta = {
        "H_KV": h_kv,
        "G": g,
        "D": d,
        "PAGE": page,
        "BLOCK_H": block_h,
        "BLOCK_N": block_n,
        "SPLITS": splits,
        "WINDOW": window,
        "CAP": cap,
        "SINK": sink,
    }
    return launch(over_pages, args, (b, h_kv, splits), meta, wanted(), tasks=tasks, knobs=knobs)


@wl.jit
def latent(
    q_ptr, kv_ptr, part_ptr, lse_ptr, first_ptr, slots_ptr, scale, stride_qb, stride_qh, stride_kv,
    HEADS: tl.constexpr, D: tl.constexpr, ROPE: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """All heads share keys of D + ROPE features whose first D are the values too; a list names each one's slot."""
    b = tl.program_id(0)
    split = tl.program_id(2)
    first = tl.load(first_ptr + b)
    length = tl.load(first_ptr + b + 1) - first
    per = tl.cdiv(tl.cdiv(length, BLOCK_N), SPLITS) * BLOCK_N
    begin = split * per
    end = tl.minimum(begin + per, length)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, D)
    r = D + tl.arange(0, ROPE)
    mine = (h < HEADS)[:, None]
    at = b * stride_qb + h[:, None] * stride_qh
    q = tl.load(q_ptr + at + d[None, :], mask=mine, other=0.0)
    q_rope = tl.load(q_ptr + at + r[None, :], mask=mine, other=0.0)
    m = tl.full([BLOCK_H], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        slot = tl.load(slots_ptr + first + n, mask=n < end, other=0).to(tl.int64)
        rows = slot[:, None] * stride_kv
        kv = tl.load(kv_ptr + rows + d[None, :], mask=(n < end)[:, None], other=0.0)
        k_rope = tl.load(kv_ptr + rows + r[None, :], mask=(n < end)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(kv))
        s += tl.dot(q_rope, tl.trans(k_rope))
        s = tl.where((n < end)[None, :], s * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(kv.dtype), kv)
        m = m_new
    row = (b * HEADS + h) * SPLITS + split
    tl.store(part_ptr + row[:, None] * D + d[None, :], acc / total[:, None], mask=mine)
    tl.store(lse_ptr + row, m + tl.log(total), mask=h < HEADS)


def latent_case(
    lens=(150, 130), heads=16, d=512, rope=64, block_h=16, block_n=64, splits=2, dtype=BF16, tasks=True,
    **knobs,
) -> Case:  # fmt: skip
    b, n = len(lens), sum(lens)
    firsts = np.concatenate([[0], np.cumsum(lens)])
    slots = np.random.default_rng(0).permutation(n)
    kv, q = normal(1, n, d + rope, dtype=dtype), normal(0, b, heads, d + rope, dtype=dtype)
    part, lse = out(b, heads, splits, d, dtype=F32), out(b * heads * splits, dtype=F32)
    scale = float((128 + rope) ** -0.5)

    def wanted() -> dict[int, Any]:
        parts, logs = np.zeros(part.shape), np.zeros((b, heads, splits))
        for i, length in enumerate(lens):
            mine = f64(kv)[slots[firsts[i] : firsts[i + 1]]]
            step = blocks(blocks(length, block_n), splits) * block_n
            for x in range(splits):
                here = mine[x * step : min(x * step + step, length)]
                p, logs[i, :, x] = softmax(f64(q)[i] @ here.T * scale)
                parts[i, :, x] = p @ here[:, :d]
        return {2: parts, 3: logs.ravel()}

    args = [q, kv, part, lse, filled(firsts, I32), filled(slots, I32), scale]
    args += [*strides(q)[:2], strides(kv)[0]]
    meta = {"HEADS": heads, "D": d, "ROPE": rope, "BLOCK_H": block_h, "BLOCK_N": block_n}
    meta["SPLITS"] = splits
    grid = (b, -(-heads // block_h), splits)
    return launch(latent, args, grid, meta, wanted(), tasks=tasks, knobs=knobs)


CASES: dict[str, Callable[[], Case]] = {
    "pages": lambda: over_pages_case(),
    "pages-all": lambda: over_pages_case(window=70, cap=20.0, sink=True, d=128, page=64, splits=1),
    "pages-sink": lambda: over_pages_case(
        (300, 130), sink=True, g=4, page=32, block_n=128, dtype=F16
    ),
    "pages-eight": lambda: over_pages_case((90, 70), g=8, block_h=8, tasks=False),
    "pages-one": lambda: over_pages_case((90, 70), g=1, block_h=1, tasks=False),
    "latent": lambda: latent_case(),
    "latent-64": lambda: latent_case(
        d=256, heads=64, block_h=64, block_n=64, lens=(200,), splits=1
    ),
}
