"""More than one product, or one in parts: split K, stream-K, experts, gated pairs, complex numbers, convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import (
    BF16,
    F16,
    F32,
    Case,
    blocks,
    ints,
    nan,
    product,
)


@wl.jit
def split_k(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cs, stride_cm, BLOCK_M: tl.constexpr,
            BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
            ATOMIC: tl.constexpr):  # fmt: skip
    """K dealt to SPLIT_K programs step by step; their sums meet in memory."""
    pid = tl.program_id(0)
    pid_z = tl.program_id(1)
    num_n = tl.cdiv(N, BLOCK_N)
    rm = (pid // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = pid_z * BLOCK_K + tl.arange(0, BLOCK_K)
    a = a_ptr + (rm[:, None] * stride_am + rk[None, :])
    b = b_ptr + (rk[:, None] * stride_bk + rn[None, :])
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = K - k * (BLOCK_K * SPLIT_K)
        x = tl.load(a, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        y = tl.load(b, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
        a += BLOCK_K * SPLIT_K
        b += BLOCK_K * SPLIT_K * stride_bk
    c = c_ptr + rm[:, None] * stride_cm + rn[None, :]
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    if ATOMIC:
        tl.atomic_add(c, acc, mask=mask, sem="relaxed")
    else:
        tl.store(c + pid_z * stride_cs, acc, mask=mask)


@wl.jit
def add_parts(p_ptr, c_ptr, MN, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """What the programs of `split_k` left, added up."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for p in tl.static_range(PARTS):
        total += tl.load(p_ptr + p * MN + at, mask=at < MN, other=0.0)
    tl.store(c_ptr + at, total.to(c_ptr.dtype.element_ty), mask=at < MN)


@wl.jit
def split_k_locked(a_ptr, b_ptr, c_ptr, parts_ptr, counts_ptr, M, N, K, BLOCK_M: tl.constexpr,
                   BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):  # fmt: skip
    """Whoever comes last to a tile adds up the others' parts, which it finds by a counter."""
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    pid_z = tl.program_id(2)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(pid_z * BLOCK_K, K, BLOCK_K * SPLIT_K):
        rk = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    tile = pid_m * tl.num_programs(1) + pid_n
    at = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mine = parts_ptr + tile * SPLIT_K * BLOCK_M * BLOCK_N
    tl.store(mine + pid_z * BLOCK_M * BLOCK_N + at, acc)
    tl.debug_barrier()
    before = tl.atomic_add(counts_ptr + tile, 1)
    if before == SPLIT_K - 1:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for z in range(SPLIT_K):
            total += tl.load(mine + z * BLOCK_M * BLOCK_N + at)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], total.to(c_ptr.dtype.element_ty),
                 mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def steps_of(a_ptr, b_ptr, acc, M, N, K, rm, rn, start, end, BLOCK_K: tl.constexpr):
    for step in range(start, end):
        rk = step * BLOCK_K + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc += tl.dot(a, b)
    return acc


@wl.jit
def stream_k(a_ptr, b_ptr, c_ptr, locks_ptr, M, N, K, total_steps, BLOCK_M: tl.constexpr,
             BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Stream-K: the steps of all tiles dealt in equal runs; a tile that starts elsewhere is added under a lock."""
    pid = tl.program_id(0)
    per = tl.cdiv(total_steps, tl.num_programs(0))
    step = pid * per
    last = min(step + per, total_steps)
    steps_per_tile = tl.cdiv(K, BLOCK_K)
    num_n = tl.cdiv(N, BLOCK_N)
    while step < last:
        tile = step // steps_per_tile
        first = step - tile * steps_per_tile
        end = min(steps_per_tile, first + last - step)
        rm = (tile // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = (tile % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        acc = steps_of(a_ptr, b_ptr, acc, M, N, K, rm, rn, first, end, BLOCK_K)
        c = c_ptr + rm[:, None] * N + rn[None, :]
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        if first == 0 and end == steps_per_tile:
            tl.store(c, acc, mask=mask)
        else:
            while tl.atomic_cas(locks_ptr + tile, 0, 1) == 1:
                pass
            total = tl.load(c, mask=mask, other=0.0) + acc
            tl.store(c, total, mask=mask)
            tl.debug_barrier()
            tl.atomic_xchg(locks_ptr + tile, 0)
        step += end - first


@wl.jit
def moe(a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
        num_tokens_post_padded_ptr, N, K, num_valid_tokens, stride_am, stride_be, stride_bn, stride_cm,
        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
        MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr, compute_type: tl.constexpr):  # fmt: skip
    """Experts' products on sorted tokens: rows gathered, weights of a tile's expert, rows scattered."""
    pid = tl.program_id(axis=0)
    num_tokens_post_padded = tl.load(num_tokens_post_padded_ptr)
    num_pid_m = tl.cdiv(num_tokens_post_padded, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    if pid_m * BLOCK_M >= num_tokens_post_padded:
        return
    offs_token_id = pid_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_token = tl.load(sorted_token_ids_ptr + offs_token_id)
    token_mask = offs_token < num_valid_tokens
    off_experts = tl.load(expert_ids_ptr + pid_m).to(tl.int64)
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_token[:, None] // top_k * stride_am + offs_k[None, :])
    b_ptrs = b_ptr + off_experts * stride_be + (offs_k[:, None] + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(
            a_ptrs, mask=token_mask[:, None] & (offs_k[None, :] < K - k * BLOCK_K), other=0.0
        )
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator += tl.dot(a, b)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    if MUL_ROUTED_WEIGHT:
        moe_weight = tl.load(topk_weights_ptr + offs_token, mask=token_mask, other=0)
        accumulator = accumulator * moe_weight[:, None]
    accumulator = accumulator.to(compute_type)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_token[:, None] + offs_cn[None, :]
    c_mask = token_mask[:, None] & (offs_cn[None, :] < N)
    tl.store(c_ptrs, accumulator, mask=c_mask)


@wl.jit
def grouped_by_offsets(x_ptr, w_ptr, y_ptr, ends_ptr, N, K, E: tl.constexpr, BLOCK_M: tl.constexpr,
                       BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """torch's _grouped_mm: rows of X by ends of groups, W an expert's each; persistent over all."""
    t = tl.program_id(0)
    begin = 0
    tiles_before = 0
    for e in range(E):
        end = tl.load(ends_ptr + e)
        rows = end - begin
        n_tiles = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(rows, BLOCK_M) * n_tiles
        while t < tiles_before + tiles:
            r = t - tiles_before
            rm = begin + r // n_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = r % n_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                rk = k + tl.arange(0, BLOCK_K)
                x = tl.load(
                    x_ptr + rm[:, None] * K + rk[None, :],
                    mask=(rm[:, None] < end) & (rk[None, :] < K),
                    other=0.0,
                )
                w = tl.load(w_ptr + e * K * N + rk[:, None] * N + rn[None, :],
                            mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)  # fmt: skip
                acc = tl.dot(x, w, acc)
            tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc.to(y_ptr.dtype.element_ty),
                     mask=(rm[:, None] < end) & (rn[None, :] < N))  # fmt: skip
            t += tl.num_programs(0)
        tiles_before += tiles
        begin = end


@wl.jit
def swiglu(x_ptr, wg_ptr, wu_ptr, wv_ptr, h_ptr, v_ptr, M, N, K, BLOCK_M: tl.constexpr,
           BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, THREE: tl.constexpr):  # fmt: skip
    """Two or three products that share X."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    value = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        w_at = rn[None, :] * K + rk[:, None]
        w_mask = (rn[None, :] < N) & (rk[:, None] < K)
        gate = tl.dot(x, tl.load(wg_ptr + w_at, mask=w_mask, other=0.0), gate)
        up = tl.dot(x, tl.load(wu_ptr + w_at, mask=w_mask, other=0.0), up)
        if THREE:
            value = tl.dot(x, tl.load(wv_ptr + w_at, mask=w_mask, other=0.0), value)
    at = rm[:, None] * N + rn[None, :]
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    h = gate * tl.sigmoid(gate) * up
    tl.store(h_ptr + at, h.to(h_ptr.dtype.element_ty), mask=mask)
    if THREE:
        tl.store(v_ptr + at, value.to(v_ptr.dtype.element_ty), mask=mask)


@wl.jit
def sum_of_two(a1_ptr, b1_ptr, a2_ptr, b2_ptr, c_ptr, M, N, K1, K2, BLOCK_M: tl.constexpr,
               BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TOGETHER: tl.constexpr):  # fmt: skip
    """A1·B1 + A2·B2 on one accumulator, in one loop or one after the other."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K1, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        a = tl.load(a1_ptr + rm * K1 + rk[None, :], mask=(rm < M) & (rk[None, :] < K1), other=0.0)
        b = tl.load(b1_ptr + rk[:, None] * N + rn, mask=(rk[:, None] < K1) & (rn < N), other=0.0)
        acc = tl.dot(a, b, acc)
        if TOGETHER:
            a = tl.load(
                a2_ptr + rm * K2 + rk[None, :], mask=(rm < M) & (rk[None, :] < K2), other=0.0
            )
            b = tl.load(
                b2_ptr + rk[:, None] * N + rn, mask=(rk[:, None] < K2) & (rn < N), other=0.0
            )
            acc = tl.dot(a, b, acc)
    if not TOGETHER:
        for k in range(0, K2, BLOCK_K):
            rk = k + tl.arange(0, BLOCK_K)
            a = tl.load(
                a2_ptr + rm * K2 + rk[None, :], mask=(rm < M) & (rk[None, :] < K2), other=0.0
            )
            b = tl.load(
                b2_ptr + rk[:, None] * N + rn, mask=(rk[:, None] < K2) & (rn < N), other=0.0
            )
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rm * N + rn, acc.to(c_ptr.dtype.element_ty), mask=(rm < M) & (rn < N))


@wl.jit
def complex_gemm(ar_ptr, ai_ptr, br_ptr, bi_ptr, cr_ptr, ci_ptr, M, N, K, BLOCK_M: tl.constexpr,
                 BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NEGATE: tl.constexpr):  # fmt: skip
    """Four real products make a complex one."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    re = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    im = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    rest = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        am = (rm < M) & (rk[None, :] < K)
        bm = (rk[:, None] < K) & (rn < N)
        ar = tl.load(ar_ptr + rm * K + rk[None, :], mask=am, other=0.0)
        ai = tl.load(ai_ptr + rm * K + rk[None, :], mask=am, other=0.0)
        br = tl.load(br_ptr + rk[:, None] * N + rn, mask=bm, other=0.0)
        bi = tl.load(bi_ptr + rk[:, None] * N + rn, mask=bm, other=0.0)
        re = tl.dot(ar, br, re)
        if NEGATE:
            re = tl.dot(-ai, bi, re)
        else:
            rest = tl.dot(ai, bi, rest)
        im = tl.dot(ar, bi, im)
        im = tl.dot(ai, br, im)
    mask = (rm < M) & (rn < N)
    tl.store(cr_ptr + rm * N + rn, re - rest, mask=mask)
    tl.store(ci_ptr + rm * N + rn, im, mask=mask)


@wl.jit
def conv2d(x_ptr, w_ptr, y_ptr, NB, H, W, C, P, Q, KC, R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr,
           PAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Implicit GEMM, NHWC by KRSC: rows are output pixels, K runs over filter taps and channels."""
    pix = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    kc = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    n = pix // (P * Q)
    p = pix % (P * Q) // Q
    q = pix % Q
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    c_steps = tl.cdiv(C, BLOCK_K)
    for rsc in range(0, R * S * c_steps):
        c = rsc % c_steps * BLOCK_K + tl.arange(0, BLOCK_K)
        r = rsc // c_steps // S
        s = rsc // c_steps % S
        h = p * STRIDE + r - PAD
        w = q * STRIDE + s - PAD
        inside = (n < NB) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x = tl.load(x_ptr + (((n * H + h) * W + w) * C)[:, None] + c[None, :],
                    mask=inside[:, None] & (c[None, :] < C), other=0.0)  # fmt: skip
        f = tl.load(w_ptr + ((kc * R + r) * S + s)[None, :] * C + c[:, None],
                    mask=(kc[None, :] < KC) & (c[:, None] < C), other=0.0)  # fmt: skip
        acc = tl.dot(x, f, acc)
    tl.store(y_ptr + pix[:, None] * KC + kc[None, :], acc.to(y_ptr.dtype.element_ty),
             mask=(pix[:, None] < NB * P * Q) & (kc[None, :] < KC))  # fmt: skip


@wl.jit
def syrk(a_ptr, c_ptr, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, MIRROR: tl.constexpr):
    """C = A·Aᵀ, its lower triangle; programs above it leave at once; the upper one is mirrored."""
    i = tl.program_id(0)
    j = tl.program_id(1)
    if j > i:
        return
    rm = i * BLOCK + tl.arange(0, BLOCK)
    rn = j * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < N) & (rk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            a_ptr + rn[:, None] * K + rk[None, :],
            mask=(rn[:, None] < N) & (rk[None, :] < K),
            other=0.0,
        )
        acc = tl.dot(a, tl.trans(b), acc)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], c, mask=(rm[:, None] < N) & (rn[None, :] < N))
    if MIRROR:
        tl.store(
            c_ptr + rn[:, None] * N + rm[None, :], c.T, mask=(rn[:, None] < N) & (rm[None, :] < N)
        )


@wl.jit
def weight_grad(x_ptr, dy_ptr, dw_ptr, db_ptr, T, NI, NO, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                BLOCK_K: tl.constexpr):  # fmt: skip
    """dW = dYᵀ·X over tokens, and the bias' gradient from the same blocks."""
    ro = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ri = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for t in range(0, T, BLOCK_K):
        rt = t + tl.arange(0, BLOCK_K)
        dy = tl.load(
            dy_ptr + rt[:, None] * NO + ro[None, :],
            mask=(rt[:, None] < T) & (ro[None, :] < NO),
            other=0.0,
        )
        x = tl.load(
            x_ptr + rt[:, None] * NI + ri[None, :],
            mask=(rt[:, None] < T) & (ri[None, :] < NI),
            other=0.0,
        )
        acc += tl.dot(dy.T, x)
        db += tl.sum(dy.to(tl.float32), axis=0)
    tl.store(
        dw_ptr + ro[:, None] * NI + ri[None, :], acc, mask=(ro[:, None] < NO) & (ri[None, :] < NI)
    )
    if tl.program_id(1) == 0:
        tl.store(db_ptr + ro, db, mask=ro < NO)


@wl.jit
def lora(x_ptr, w_ptr, a_ptr, b_ptr, y_ptr, M, N, K, scaling, R: tl.constexpr, BLOCK_M: tl.constexpr,
         BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """X·W + scaling·(X·A)·B, the thin product beside the thick one."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rr = tl.arange(0, R)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    thin = tl.zeros((BLOCK_M, R), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        w = tl.load(
            w_ptr + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        a = tl.load(a_ptr + rk[:, None] * R + rr[None, :], mask=rk[:, None] < K, other=0.0)
        acc = tl.dot(x, w, acc)
        thin = tl.dot(x, a, thin)
    b = tl.load(b_ptr + rr[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
    acc += scaling * tl.dot(thin.to(b.dtype), b)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc.to(y_ptr.dtype.element_ty),
             mask=(rm[:, None] < M) & (rn[None, :] < N))  # fmt: skip


@wl.jit
def banded(a_ptr, b_ptr, c_ptr, which_ptr, rows_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr):  # fmt: skip
    """Block-sparse A by rows of blocks (BSR): trip counts from memory, none for some rows."""
    i = tl.program_id(0)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rm = tl.arange(0, BLOCK_M)
    rk = tl.arange(0, BLOCK_K)
    start = tl.load(rows_ptr + i)
    stop = tl.load(rows_ptr + i + 1)
    if start == stop:
        return
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(start, stop):
        j = tl.load(which_ptr + at)
        a = tl.load(a_ptr + at * BLOCK_M * BLOCK_K + rm[:, None] * BLOCK_K + rk[None, :])
        b = tl.load(
            b_ptr + (j * BLOCK_K + rk[:, None]) * N + rn[None, :], mask=rn[None, :] < N, other=0.0
        )
        acc += tl.dot(a, b)
    out = i * BLOCK_M + rm
    tl.store(c_ptr + out[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(out[:, None] < M) & (rn[None, :] < N))  # fmt: skip


# ---- cases

TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
M, N, K = 100, 72, 136


def routed(
    tokens: int, experts: int, top_k: int, block: int
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """(sorted token ids padded to blocks, expert of each block, how many, expert of each (token, k))"""
    of = np.random.default_rng(0).integers(0, experts, tokens * top_k)
    ids, owner = [], []
    for e in range(experts):
        mine = np.nonzero(of == e)[0]
        pad = -len(mine) % block
        ids += [*mine, *[tokens * top_k] * pad]
        owner += [e] * ((len(mine) + pad) // block)
    return np.array(ids, np.int32), np.array(owner, np.int32), len(ids), of


def cases() -> Iterator[Case]:
    grid = (blocks(M, 64), blocks(N, 64))
    a, b = ints(M, 328, dtype=F16), ints(328, N, dtype=F16)
    for atomic in (True, False):
        c = np.zeros((M, N), F32) if atomic else nan(3, M, N, dtype=F32)
        parts = [
            sum(product(a[:, k : k + 64], b[k : k + 64]) for k in range(64 * z, 328, 192))
            for z in range(3)
        ]
        yield Case(f"splitk-{'atomic' if atomic else 'parts'}", split_k, (a, b, c, M, N, 328, 328, N, M * N, N),
                   (grid[0] * grid[1], 3), {**TILE, "SPLIT_K": 3, "ATOMIC": atomic},
                   {2: sum(parts) if atomic else np.stack(parts)})  # fmt: skip
    p = ints(3, M, N, dtype=F32)
    yield Case("splitk-add", add_parts, (p, nan(M, N, dtype=F16), M * N), (blocks(M * N, 1024),), {"PARTS": 3, "BLOCK": 1024},
               {1: p.sum(0)}, tasks=False)  # fmt: skip
    yield Case("splitk-locked", split_k_locked,
               (a, b, nan(M, N, dtype=F16), nan(4 * 3 * 64 * 64, dtype=F32), np.zeros(4, np.int32), M, N, 328), (*grid, 3),
               {**TILE, "SPLIT_K": 3}, {2: product(a, b), 4: np.full(4, 3)})  # fmt: skip
    total = 4 * blocks(328, 64)
    yield Case("streamk", stream_k, (a, b, np.zeros((M, N), F32), np.zeros(4, np.int32), M, N, 328, total), (5,), TILE,
               {2: product(a, b), 3: np.zeros(4)})  # fmt: skip
    tokens, experts, top_k, n, k = 50, 3, 2, 72, 136
    ids, owner, padded, of = routed(tokens, experts, top_k, 64)
    x, w = ints(tokens, k), ints(experts, n, k)
    weights = ints(tokens * top_k, dtype=F32, low=1, high=4)
    y = np.stack([product(w[of[i]], x[i // top_k]) for i in range(tokens * top_k)])
    for weighted in (False, True):
        meta = {
            **TILE,
            "GROUP_M": 4,
            "MUL_ROUTED_WEIGHT": weighted,
            "top_k": top_k,
            "compute_type": tl.bfloat16,
        }
        yield Case(f"moe{'-weighted' if weighted else ''}", moe,
                   (x, w, nan(tokens * top_k, n), weights, ids, owner, np.array([padded], np.int32), n, k, tokens * top_k, k,
                    n * k, k, n), ((padded // 64 + 1) * blocks(n, 64),), meta,
                   {2: y * weights[:, None] if weighted else y})  # fmt: skip
    sizes = [70, 0, 5, 64]
    ends = np.cumsum(sizes).astype(np.int32)
    x, w = ints(int(ends[-1]), k), ints(4, k, n)
    y = np.concatenate(
        [product(x[e - s : e], w[i]) for i, (e, s) in enumerate(zip(ends, sizes, strict=True))]
    )
    yield Case(
        "grouped",
        grouped_by_offsets,
        (x, w, nan(int(ends[-1]), n), ends, n, k),
        (2,),
        {**TILE, "E": 4},
        {2: y},
    )
    for three in (False, True):
        x, wg, wu, wv = ints(M, K), ints(N, K), ints(N, K, low=-1), ints(N, K, low=0)
        g, u = product(x, wg.T), product(x, wu.T)
        yield Case(f"swiglu-{2 + three}", swiglu, (x, wg, wu, wv, nan(M, N, dtype=F32), nan(M, N, dtype=F32), M, N, K), grid,
                   {**TILE, "THREE": three},
                   {4: g / (1 + np.exp(-g)) * u} | ({5: product(x, wv.T)} if three else {}), off=2.0**-18)  # fmt: skip
    for together in (False, True):
        a1, b1, a2, b2 = ints(M, K), ints(K, N), ints(M, 72, low=-1), ints(72, N, low=0)
        yield Case(f"two-sums{'-together' if together else ''}", sum_of_two, (a1, b1, a2, b2, nan(M, N), M, N, K, 72), grid,
                   {**TILE, "TOGETHER": together}, {4: product(a1, b1) + product(a2, b2)})  # fmt: skip
    for negate in (False, True):
        ar, ai, br, bi = ints(M, K), ints(M, K, low=-1), ints(K, N), ints(K, N, low=0)
        yield Case(f"complex{'-negated' if negate else ''}", complex_gemm,
                   (ar, ai, br, bi, nan(M, N, dtype=F32), nan(M, N, dtype=F32), M, N, K), grid, {**TILE, "NEGATE": negate},
                   {4: product(ar, br) - product(ai, bi), 5: product(ar, bi) + product(ai, br)})  # fmt: skip
    for c, stride, pad, taps in ((72, 1, 1, 3), (64, 2, 0, 1), (40, 2, 2, 3)):
        nb, h, wd, kc = 2, 7, 6, 40
        x, f = ints(nb, h, wd, c, dtype=F16), ints(kc, taps, taps, c, dtype=F16)
        p, q = (h + 2 * pad - taps) // stride + 1, (wd + 2 * pad - taps) // stride + 1
        wide = np.pad(x.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        y = np.zeros((nb, p, q, kc))
        for r in range(taps):
            for s in range(taps):
                seen = wide[:, r : r + stride * p : stride, s : s + stride * q : stride][:, :p, :q]
                y += seen @ f[:, r, s].astype(np.float64).T
        meta = {**TILE, "R": taps, "S": taps, "STRIDE": stride, "PAD": pad}
        yield Case(f"conv-{c}-{taps}", conv2d, (x, f, nan(nb, p, q, kc, dtype=F16), nb, h, wd, c, p, q, kc),
                   (blocks(nb * p * q, 64), 1), meta, {2: y})  # fmt: skip
    for mirror in (False, True):
        a = ints(130, K)
        full = product(a, a.T)
        tri = np.kron(np.tril(np.ones((3, 3))), np.ones((64, 64)))[:130, :130] > 0
        yield Case(f"syrk{'-mirrored' if mirror else ''}", syrk, (a, np.zeros((130, 130), F32), 130, K), (3, 3),
                   {"BLOCK": 64, "BLOCK_K": 64, "MIRROR": mirror}, {1: full if mirror else np.where(tri, full, 0)})  # fmt: skip
    x, dy = ints(K, N), ints(K, M)
    yield Case("weight-grad", weight_grad, (x, dy, nan(M, N, dtype=F32), nan(M, dtype=F32), K, N, M), grid, TILE,
               {2: product(dy.T, x), 3: dy.astype(np.float64).sum(0)})  # fmt: skip
    for r in (16, 64):
        x, w, la, lb = ints(M, K), ints(K, N), ints(K, r, low=-1, high=2), ints(r, N)
        thin = product(x, la).astype(BF16)
        yield Case(f"lora-{r}", lora, (x, w, la, lb, nan(M, N, dtype=F32), M, N, K, 2.0), grid, {**TILE, "R": r},
                   {4: product(x, w) + 2 * product(thin, lb)})  # fmt: skip
    rows = np.array([0, 2, 2, 3], np.int32)
    which = np.array([1, 3, 0], np.int32)
    x, y = ints(3, 64, 64), ints(256, N)
    out = np.zeros((192, N))
    for i in range(3):
        for at in range(rows[i], rows[i + 1]):
            out[64 * i : 64 * i + 64] += product(x[at], y[64 * which[at] : 64 * which[at] + 64])
    yield Case(
        "banded",
        banded,
        (x, y, np.zeros((192, N), BF16), which, rows, 192, N),
        (3, 2),
        TILE,
        {2: out},
    )
