"""Products with something before or behind: prologues, epilogues, operands converted on the way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import (
    BF16,
    E4M3,
    F16,
    F32,
    Case,
    blocks,
    ints,
    nan,
    product,
    strides,
)


@wl.jit
def gelu_tanh(x):
    c = 0.7978845608028654
    return 0.5 * x * (1.0 + tl.sigmoid(2.0 * c * (x + 0.044715 * x * x * x)) * 2.0 - 1.0)


@wl.jit
def activation(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        return gelu_tanh(x)
    elif ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    return x


@wl.jit
def linear(x_ptr, w_ptr, bias_ptr, res_ptr, out_ptr, pre_ptr, M, N, K, stride_xm, stride_wn, stride_om,
           HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE_PRE: tl.constexpr,
           ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr):  # fmt: skip
    """torch's Linear, fused: bias, activation, residual, and what the backward pass wants kept."""
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    x = x_ptr + rm[:, None] * stride_xm + rk[None, :]
    w = w_ptr + rn[None, :] * stride_wn + rk[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K, 0, -BLOCK_K):
        xs = tl.load(x, mask=(rm[:, None] < M) & (rk[None, :] < k), other=0.0)
        ws = tl.load(w, mask=(rk[:, None] < k) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(xs, ws, acc)
        x += BLOCK_K
        w += BLOCK_K
    if HAS_BIAS:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc += bias[None, :]
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    at = rm[:, None] * stride_om + rn[None, :]
    if SAVE_PRE:
        tl.store(pre_ptr + at, acc, mask=mask)
    acc = activation(acc, ACTIVATION)
    if HAS_RESIDUAL:
        acc += tl.load(res_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, acc, mask=mask)


@wl.jit
def gemm_beta(a_ptr, b_ptr, c_ptr, alpha, beta, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
              BLOCK_K: tl.constexpr):  # fmt: skip
    """BLAS: C = alpha·A·B + beta·C in place."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + m[:, None] * N + n[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    acc = acc * alpha
    if beta != 0.0:
        acc += beta * tl.load(c_ptrs, mask=mask)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@wl.jit
def quantised(a_ptr, b_ptr, q_ptr, scale_ptr, amax_ptr, rows_ptr, M, N, K, BLOCK_M: tl.constexpr,
              BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TOP: tl.constexpr):  # fmt: skip
    """A product in fp8 with a scale for each row of a tile; the largest element and row sums beside it."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b)
    row_max = tl.max(tl.abs(acc), axis=1)
    tl.atomic_max(amax_ptr, tl.max(row_max, axis=0))
    tl.atomic_add(rows_ptr + m, tl.sum(acc, axis=1), mask=m < M)
    scale = tl.maximum(row_max, 1.0) / TOP
    q = (acc / scale[:, None]).to(q_ptr.dtype.element_ty)
    tl.store(q_ptr + m[:, None] * N + n[None, :], q, mask=(m[:, None] < M) & (n[None, :] < N))
    tl.store(scale_ptr + m * tl.num_programs(1) + tl.program_id(1), scale, mask=m < M)


@wl.jit
def weight_only_int8(x_ptr, w_ptr, s_ptr, z_ptr, o_ptr, M, N, K, GROUP: tl.constexpr, ZEROS: tl.constexpr,
                     BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """W in int8 with a scale (and zero) per group of K."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rm[:, None] * K + rk[None, :]
    w_ptrs = w_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(x_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        w = tl.load(w_ptrs, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0)
        g = k * BLOCK_K // GROUP
        s = tl.load(s_ptr + g * N + rn, mask=rn < N, other=0.0)
        if ZEROS:
            z = tl.load(z_ptr + g * N + rn, mask=rn < N, other=0.0)
            wf = (w.to(x.dtype) - z[None, :]) * s[None, :]
        else:
            wf = w.to(x.dtype) * s[None, :]
        acc = tl.dot(x, wf.to(x.dtype), acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * N
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], acc.to(o_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def gptq_int4(a_ptr, b_ptr, s_ptr, zp_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_sg, stride_zg,
              stride_cm, groupsize, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
              BLOCK_K: tl.constexpr):  # fmt: skip
    """GPTQ: eight weights of K in an int32, zeros packed along N, scales per group."""
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_am = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_bn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :])
    a_mask = offs_am[:, None] < M
    b_ptrs = b_ptr + ((offs_k[:, None] // 8) * stride_bk + offs_bn[None, :])
    scales_ptrs = s_ptr + offs_bn
    zeros_ptrs = zp_ptr + (offs_bn // 8)
    shifter = (offs_k % 8) * 4
    zeros_shifter = (offs_bn % 8) * 4
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        g_idx = (k * BLOCK_K) // groupsize
        scales = tl.load(scales_ptrs + g_idx * stride_sg)
        zeros = tl.load(zeros_ptrs + g_idx * stride_zg)
        zeros = (zeros >> zeros_shifter) & 0xF
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs)
        b = (b >> shifter[:, None]) & 0xF
        b = (b - zeros[None, :]) * scales[None, :]
        accumulator += tl.dot(a, b.to(a.dtype))
        a_ptrs += BLOCK_K
        b_ptrs += (BLOCK_K // 8) * stride_bk
    c_ptrs = c_ptr + stride_cm * offs_am[:, None] + offs_bn[None, :]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=offs_am[:, None] < M)


@wl.jit
def int4_interleaved(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     BLOCK_K: tl.constexpr):  # fmt: skip
    """Two weights of N in a byte, unpacked by shifts and `interleave`."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rh = tl.program_id(1) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        rk = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        p = tl.load(b_ptr + rk[:, None] * (N // 2) + rh[None, :], mask=(rk[:, None] < K) & (rh[None, :] < N // 2),
                    other=0)  # fmt: skip
        low = (p << 4).to(tl.int8) >> 4
        high = p >> 4
        b = tl.interleave(low.to(a.dtype), high.to(a.dtype))
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def mixed(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
          BLOCK_K: tl.constexpr, AS: tl.constexpr):  # fmt: skip
    """Operands of whatever type, multiplied in another."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        kk = k + rk
        a = tl.load(
            a_ptr + rm[:, None] * sam + kk[None, :] * sak,
            mask=(rm[:, None] < M) & (kk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + kk[:, None] * sbk + rn[None, :] * sbn,
            mask=(kk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a.to(AS), b.to(AS), acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def w8a8_block_fp8(A, B, C, As, Bs, M, N, K, group_n, group_k, stride_am, stride_ak, stride_bk, stride_bn,
                   stride_cm, stride_cn, stride_As_m, stride_As_k, stride_Bs_k, stride_Bs_n,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   GROUP_M: tl.constexpr):  # fmt: skip
    """DeepSeek-V3's blocks: A scaled by 1×128, B by 128×128."""
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = A + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = B + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    As_ptrs = As + offs_am * stride_As_m
    offs_bsn = offs_bn // group_n
    Bs_ptrs = Bs + offs_bsn * stride_Bs_n
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        k_start = k * BLOCK_K
        offs_ks = k_start // group_k
        a_s = tl.load(As_ptrs + offs_ks * stride_As_k)
        b_s = tl.load(Bs_ptrs + offs_ks * stride_Bs_k)
        accumulator += tl.dot(a, b) * a_s[:, None] * b_s[None, :]
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if C.dtype.element_ty == tl.bfloat16:
        c = accumulator.to(tl.bfloat16)
    elif C.dtype.element_ty == tl.float16:
        c = accumulator.to(tl.float16)
    else:
        c = accumulator.to(tl.float32)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = C + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


@wl.jit
def fp8_deepseek(a_ptr, b_ptr, c_ptr, a_s_ptr, b_s_ptr, M, N: tl.constexpr, K: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """The published inference code's: a scale of B is one number for the whole tile."""
    pid_m = tl.program_id(axis=0)
    pid_n = tl.program_id(axis=1)
    k = tl.cdiv(K, BLOCK_K)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + offs_n[None, :] * K + offs_k[:, None]
    a_s_ptrs = a_s_ptr + offs_m * k
    b_s_ptrs = b_s_ptr + (offs_n // BLOCK_K) * k
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(k):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - i * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - i * BLOCK_K, other=0.0)
        a_s = tl.load(a_s_ptrs)
        b_s = tl.load(b_s_ptrs)
        accumulator += tl.dot(a, b) * a_s[:, None] * b_s[None, :]
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
        a_s_ptrs += 1
        b_s_ptrs += 1
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, c, mask=mask)


@wl.jit
def layer_norm_gemm(x_ptr, g_ptr, beta_ptr, w_ptr, y_ptr, M, N, K, eps, BLOCK_M: tl.constexpr,
                    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """LayerNorm(X)·W: a walk over K for mean and variance, another one for the product."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    squares = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K),
                    other=0.0).to(tl.float32)  # fmt: skip
        total += tl.sum(x, axis=1)
        squares += tl.sum(x * x, axis=1)
    mean = total / K
    rstd = tl.rsqrt(squares / K - mean * mean + eps)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        g = tl.load(g_ptr + rk, mask=rk < K, other=0.0)
        b = tl.load(beta_ptr + rk, mask=rk < K, other=0.0)
        w = tl.load(
            w_ptr + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        normed = (x.to(tl.float32) - mean[:, None]) * rstd[:, None] * g[None, :] + b[None, :]
        acc = tl.dot(normed.to(w.dtype), w, acc)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc.to(y_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def rms_norm_gemm(x_ptr, w_ptr, y_ptr, M, N, K, eps, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  BLOCK_K: tl.constexpr):  # fmt: skip
    """RMSNorm in one walk: squares beside the product, rows scaled at the end."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    ss = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(
            x_ptr + rm[:, None] * K + (k + rk)[None, :],
            mask=(rm[:, None] < M) & (k + rk < K)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + rn[None, :] * K + (k + rk)[:, None],
            mask=(rn[None, :] < N) & (k + rk < K)[:, None],
            other=0.0,
        )
        xf = x.to(tl.float32)
        ss += tl.sum(xf * xf, axis=1)
        acc = tl.dot(x, w, acc)
    acc = acc * tl.rsqrt(ss / K + eps)[:, None]
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc.to(y_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


# ---- cases

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
M, N, K = 100, 72, 136


def erf(x):
    import math

    return np.vectorize(math.erf)(x)


ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: (
        x / (1 + np.exp(np.minimum(-2 * 0.7978845608028654 * (x + 0.044715 * x**3), 700)))
    ),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def cases() -> Iterator[Case]:
    grid = (blocks(M, 64), blocks(N, 64))
    for name, act in ACTIVATIONS.items():
        for pre in (False, True):
            x, w = ints(M, K), ints(N, K)
            bias, res = ints(N, dtype=F32), ints(M, N)
            out, kept = nan(M, N), nan(M, N, dtype=F32)
            y = product(x, w.T) + bias.astype(np.float64)
            wants = {4: act(y) + res.astype(np.float64)} | ({5: y} if pre else {})
            meta = {
                "HAS_BIAS": True,
                "HAS_RESIDUAL": True,
                "SAVE_PRE": pre,
                "ACTIVATION": name,
                **TILE,
            }
            yield Case(f"linear-{name}{'-kept' if pre else ''}", linear,
                       (x, w, bias, res, out, kept, M, N, K, K, K, N), grid, meta, wants,
                       off=0.0 if name in ("", "relu") else 2.0**-7)  # fmt: skip
    for alpha, beta in ((1.0, 0.0), (2.0, 1.0), (1.0, -2.0)):
        a, b, c = ints(M, K), ints(K, N), ints(M, N, dtype=F32)
        yield Case(f"beta{beta}", gemm_beta, (a, b, c, alpha, beta, M, N, K), grid, TILE,
                   {2: alpha * product(a, b) + beta * c.astype(np.float64)})  # fmt: skip
    a, b = ints(M, K, dtype=F16), ints(K, N, dtype=F16)
    y = product(a, b)
    tiles = grid[1]
    scales = np.stack(
        [np.maximum(np.abs(y[:, 64 * j : 64 * j + 64]).max(1), 1) / 448 for j in range(tiles)], 1
    )
    q = y / np.repeat(scales, 64, 1)[:, :N]
    yield Case("quantised", quantised,
               (a, b, nan(M, N, dtype=E4M3), nan(M, tiles, dtype=F32), np.zeros(1, F32), np.zeros(M, F32), M, N, K),
               grid, {**TILE, "TOP": 448.0},
               {2: q, 3: scales, 4: np.abs(y).max().reshape(1), 5: y.sum(1)}, off=2.0**-3)  # fmt: skip
    for group, zeros, dtype in ((64, False, BF16), (64, True, F16), (128, False, F16)):
        k = 264
        x, w = ints(M, k, dtype=dtype), ints(k, N, dtype=np.int8, low=-4, high=5)
        s = ints(blocks(k, group), N, dtype=dtype, low=1, high=3)
        z = ints(blocks(k, group), N, dtype=dtype, low=0, high=2)
        wide = [np.repeat(v.astype(np.float64), group, 0)[:k] for v in (s, z)]
        full = (w.astype(np.float64) - (wide[1] if zeros else 0)) * wide[0]
        yield Case(f"int8-{group}{'-zeros' if zeros else ''}", weight_only_int8,
                   (x, w, s, z, nan(M, N, dtype=F32), M, N, k), grid, {**TILE, "GROUP": group, "ZEROS": zeros},
                   {4: product(x, full)})  # fmt: skip
    m, n, k, group = 70, 128, 256, 128
    codes = ints(k, n, dtype=np.int64, low=0, high=16)
    zeros = ints(k // group, n, dtype=np.int64, low=0, high=8)
    packed = sum((codes[i::8] << (4 * i)) for i in range(8)).astype(np.uint32).view(np.int32)
    zeros_packed = (
        sum((zeros[:, i::8] << (4 * i)) for i in range(8)).astype(np.uint32).view(np.int32)
    )
    s = ints(k // group, n, dtype=F16, low=1, high=3)
    x = ints(m, k, dtype=F16)
    full = (codes - np.repeat(zeros, group, 0)) * np.repeat(s.astype(np.float64), group, 0)
    yield Case("gptq", gptq_int4, (x, packed, s, zeros_packed, nan(m, n, dtype=F32), m, n, k, k, n, n, n // 8, n, group),
               (2, 2), TILE, {4: product(x, full)})  # fmt: skip
    m, n, k = 70, 72, 136
    codes = ints(k, n, dtype=np.int64, low=-8, high=8)
    packed = ((codes[:, 0::2] & 15) | ((codes[:, 1::2] & 15) << 4)).astype(np.uint8).view(np.int8)
    x = ints(m, k, dtype=F16)
    yield Case("interleaved", int4_interleaved, (x, packed, nan(m, n, dtype=F32), m, n, k), (2, 2), TILE,
               {2: product(x, codes)})  # fmt: skip
    for name, left, right, how in (
        ("f32-bf16", F32, F32, tl.bfloat16), ("e4m3-bf16", E4M3, BF16, tl.bfloat16), ("bf16-e4m3", BF16, E4M3, tl.bfloat16),
        ("int8-f16", np.int8, F16, tl.float16), ("bf16-f16", BF16, F16, tl.float16), ("f16-e5m2", F16, F16, tl.float8e5),
    ):  # fmt: skip
        for order in ("rr", "rc"):
            a, b = ints(M, K, dtype=left), ints(K, N, dtype=right)
            b = b if order == "rr" else np.ascontiguousarray(b.T).T
            yield Case(f"mixed-{name}-{order}", mixed, (a, b, nan(M, N, dtype=F32), M, N, K, *strides(a, b)), grid,
                       {**TILE, "AS": how}, {2: product(a, b)})  # fmt: skip
    for m, n, k, bm in ((70, 200, 392, 64), (130, 256, 256, 128)):
        a, b = ints(m, k, dtype=E4M3), ints(n, k, dtype=E4M3)
        sa = ints(m, blocks(k, 128), dtype=F32, low=1, high=4)
        sb = ints(blocks(n, 128), blocks(k, 128), dtype=F32, low=1, high=4)
        y = sum(
            product(a[:, i : i + 128], b[:, i : i + 128].T)
            * sa[:, i // 128, None].astype(np.float64)
            * np.repeat(sb[:, i // 128], 128)[None, :n].astype(np.float64)
            for i in range(0, k, 128)
        )
        c = nan(m, n)
        meta = {"BLOCK_M": bm, "BLOCK_N": 128, "BLOCK_K": 128}
        yield Case(f"blockscaled-{m}", w8a8_block_fp8,
                   (a, b, c, sa, sb, m, n, k, 128, 128, k, 1, 1, k, n, 1, *strides(sa), 1, sb.shape[1]),
                   (blocks(m, bm) * blocks(n, 128),), {**meta, "GROUP_M": 4}, {2: y})  # fmt: skip
        yield Case(f"deepseek-{m}", fp8_deepseek, (a, b, c, sa, sb, m), (blocks(m, bm), blocks(n, 128)),
                   {**meta, "N": n, "K": k}, {2: y})  # fmt: skip
    x, w = ints(M, K, dtype=F16), ints(K, N, dtype=F16)
    g, beta = ints(K, dtype=F32), ints(K, dtype=F32)
    xf = x.astype(np.float64)
    normed = (xf - xf.mean(1, keepdims=True)) / np.sqrt(xf.var(1, keepdims=True) + 1e-5)
    yield Case("layernorm", layer_norm_gemm, (x, g, beta, w, nan(M, N, dtype=F32), M, N, K, 1e-5), grid, TILE,
               {4: (normed * g + beta) @ w.astype(np.float64)}, off=2.0**-9)  # fmt: skip
    wt = np.ascontiguousarray(w.T)
    yield Case("rmsnorm", rms_norm_gemm, (x, wt, nan(M, N, dtype=F32), M, N, K, 1e-5), grid, TILE,
               {2: product(x, w) / np.sqrt((xf**2).mean(1, keepdims=True) + 1e-5)}, off=2.0**-18)  # fmt: skip
