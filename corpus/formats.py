"""Products of float32 (as tf32) and of 8-bit integers: what people write around them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, F32, Case, blocks, ints, nan, product, stored, strides


@wl.jit
def matmul_f32(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
               PRECISION: tl.constexpr, RELU: tl.constexpr,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """The tutorial's, in float32; the left operand goes through an activation first."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        if RELU:
            a = tl.maximum(a, 0.0)
        acc += tl.dot(a, b, input_precision=PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, acc, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@wl.jit
def two_layers(x_ptr, w1_ptr, w2_ptr, out_ptr, M, H, K, N,
               BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """relu(x @ w1) @ w2 in float32, the hidden layer a block at a time and never in memory."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    out = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for h0 in range(0, H, BLOCK_H):
        h = h0 + tl.arange(0, BLOCK_H)
        hidden = tl.zeros((BLOCK_M, BLOCK_H), dtype=tl.float32)
        for k0 in range(0, K, BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)
            x = tl.load(
                x_ptr + m[:, None] * K + k[None, :],
                mask=(m[:, None] < M) & (k[None, :] < K),
                other=0.0,
            )
            w = tl.load(
                w1_ptr + k[:, None] * H + h[None, :],
                mask=(k[:, None] < K) & (h[None, :] < H),
                other=0.0,
            )
            hidden = tl.dot(x, w, hidden)
        w = tl.load(
            w2_ptr + h[:, None] * N + n[None, :],
            mask=(h[:, None] < H) & (n[None, :] < N),
            other=0.0,
        )
        out = tl.dot(tl.maximum(hidden, 0.0), w, out)
    tl.store(out_ptr + m[:, None] * N + n[None, :], out, mask=(m[:, None] < M) & (n[None, :] < N))


@wl.jit
def scaled_int8(a_ptr, b_ptr, c_ptr, sa_ptr, sb_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):  # fmt: skip
    """W8A8: int8 by int8, a scale for each row and each column, in bfloat16."""
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    width = GROUP_M * num_n
    group = pid // width
    size = min(num_m - group * GROUP_M, GROUP_M)
    pid_m = group * GROUP_M + (pid % size)
    pid_n = (pid % width) // size
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for k0 in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < K - k0), other=0)
        b = tl.load(b_ptrs, mask=(n[None, :] < N) & (k[:, None] < K - k0), other=0)
        acc += tl.dot(a, b, out_dtype=tl.int32)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    sa = tl.load(sa_ptr + m, mask=m < M, other=0.0)
    sb = tl.load(sb_ptr + n, mask=n < N, other=0.0)
    c = (acc.to(tl.float32) * sa[:, None] * sb[None, :]).to(tl.bfloat16)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c, mask=(m[:, None] < M) & (n[None, :] < N))


@wl.jit
def zero_points(a_ptr, b_ptr, c_ptr, M, N, K, ZERO: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """uint8 activations with a zero point by int8 weights, through descriptors: (a - zero) @ b as
    a @ b - zero * sum(b)."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    ones = tl.full((BLOCK_M, BLOCK_K), 1, tl.uint8)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for k in range(0, K, BLOCK_K):
        b = b_desc.load([n, k]).T
        acc = tl.dot(a_desc.load([m, k]), b, acc)
        sums = tl.dot(ones, b, sums)
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    c_desc.store([m, n], acc - ZERO * sums)


def cases() -> Iterator[Case]:
    for orders, (m, n, k), tile in (
        ("rr", (136, 100, 75), (128, 64, 32)),
        ("rc", (100, 136, 104), (64, 128, 32)),
        ("cr", (136, 72, 40), (128, 64, 16)),
        ("cc", (72, 200, 136), (64, 128, 64)),
    ):
        for precision in ("tf32", "tf32x3"):
            a, b = (
                stored(ints(x, y, dtype=F32), o)
                for x, y, o in ((m, k, orders[0]), (k, n, orders[1]))
            )
            relu = orders == "rc"
            want = product(np.maximum(a, 0) if relu else a, b)
            if (
                precision == "tf32x3"
            ):  # 13 bits more than tf32 has: fractions that sums in float32 hold
                a, want = a + a * np.float32(2.0**-15), want * (1 + 2.0**-15)
            c = nan(m, n, dtype=F32)
            meta = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
            yield Case(
                f"f32-{precision}-{orders}",
                matmul_f32,
                (a, b, c, m, n, k, *strides(a, b, c)),
                (blocks(m, tile[0]), blocks(n, tile[1])),
                {**meta, "PRECISION": precision, "RELU": relu},
                {2: want},
            )
    for m, h, k, n in ((100, 136, 72, 64), (64, 64, 20, 48)):
        x, w1, w2 = ints(m, k, dtype=F32), ints(k, h, dtype=F32), ints(h, n, dtype=F32)
        meta = {"BLOCK_M": 64, "BLOCK_H": 64, "BLOCK_K": 32, "BLOCK_N": 64}
        want = product(np.maximum(product(x, w1), 0), w2)
        yield Case(
            f"f32-layers-{m}",
            two_layers,
            (x, w1, w2, nan(m, n, dtype=F32), m, h, k, n),
            (blocks(m, 64),),
            meta,
            {3: want},
        )
    for orders, (m, n, k) in (
        ("rc", (136, 144, 400)),
        ("rr", (72, 208, 136)),
        ("cc", (130, 70, 90)),
    ):
        a = stored(ints(m, k, dtype=np.int8, low=-128, high=128), orders[0])
        b = stored(ints(k, n, dtype=np.int8, low=-128, high=128), orders[1])
        sa, sb = (2.0 ** -ints(s, dtype=F32, low=5, high=9) for s in (m, n))
        want = (product(a, b) * sa[:, None] * sb[None, :]).astype(BF16).astype(np.float64)
        meta = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 2}
        yield Case(
            f"int8-scaled-{orders}",
            scaled_int8,
            (a, b, nan(m, n, dtype=BF16), sa, sb, m, n, k, *strides(a, b)),
            (blocks(m, 64) * blocks(n, 128),),
            meta,
            {2: want},
        )
    for m, n, k, bn in ((72, 96, 144, 40), (130, 256, 80, 256)):
        a = ints(m, k, dtype=np.uint8, low=0, high=256)
        b = ints(n, k, dtype=np.int8, low=-128, high=128)
        want = product(a.astype(np.float64) - 7, b.T)
        meta = {"BLOCK_M": 64, "BLOCK_N": bn, "BLOCK_K": 32, "ZERO": 7}
        yield Case(
            f"int8-zero-{bn}",
            zero_points,
            (a, b, nan(m, n, dtype=np.int32), m, n, k),
            (blocks(m, 64), blocks(n, bn)),
            meta,
            {2: want},
        )
