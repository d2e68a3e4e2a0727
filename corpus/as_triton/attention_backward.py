"""Attention as a function that PyTorch differentiates: the gradients in one launch, whose programs walk along the rows
for a block of dK and dV and then along the columns for a block of dQ."""

import torch
import triton
import triton.language as tl

from corpus.as_triton.attention import attention, softmax_of_products


@triton.jit
def delta_kernel(O, DO, Delta, N_CTX, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr):  # noqa: E741
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    at = head * HEAD_DIM * N_CTX + rows[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    o = tl.load(O + at)
    do = tl.load(DO + at).to(tl.float32)
    tl.store(Delta + head * N_CTX + rows, tl.sum(o * do, axis=1))


@triton.jit
def along_rows(
    dk, dv, Q, k, v, DO, M, Delta, stride_token, stride_d, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr, first_n, first_m, steps, MASK: tl.constexpr,
):  # fmt: skip
    """What `steps` blocks of rows from first_m on add to dK and dV of the columns from first_n on."""
    rows = first_m + tl.arange(0, BLOCK_M)
    columns = first_n + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD_DIM)
    qT_ptrs = Q + rows[None, :] * stride_token + depth[:, None] * stride_d
    do_ptrs = DO + rows[:, None] * stride_token + depth[None, :] * stride_d
    tl.static_assert(BLOCK_N % BLOCK_M == 0)
    row = first_m
    for _ in range(steps):
        qT = tl.load(qT_ptrs)
        rows = row + tl.arange(0, BLOCK_M)
        m = tl.load(M + rows)
        pT = tl.math.exp2(tl.dot(k, qT) - m[None, :])
        if MASK:
            pT = tl.where(rows[None, :] >= columns[:, None], pT, 0.0)
        do = tl.load(do_ptrs)
        dv += tl.dot(pT.to(tl.float16), do)
        delta = tl.load(Delta + rows)
        dpT = tl.dot(v, tl.trans(do)).to(tl.float32)
        dsT = (pT * (dpT - delta[None, :])).to(tl.float16)
        dk += tl.dot(dsT, tl.trans(qT))
        row += BLOCK_M
        qT_ptrs += BLOCK_M * stride_token
        do_ptrs += BLOCK_M * stride_token
    return dk, dv


@triton.jit
def along_columns(
    dq, q, K, V, do, m, Delta, stride_token, stride_d, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr, first_m, first_n, steps, MASK: tl.constexpr,
):  # fmt: skip
    """What `steps` blocks of columns from first_n on add to dQ of the rows from first_m on."""
    rows = first_m + tl.arange(0, BLOCK_M)
    columns = first_n + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, HEAD_DIM)
    kT_ptrs = K + columns[None, :] * stride_token + depth[:, None] * stride_d
    vT_ptrs = V + columns[None, :] * stride_token + depth[:, None] * stride_d
    delta = tl.load(Delta + rows)
    tl.static_assert(BLOCK_M % BLOCK_N == 0)
    column = first_n
    for _ in range(steps):
        kT = tl.load(kT_ptrs)
        vT = tl.load(vT_ptrs)
        p = tl.math.exp2(tl.dot(q, kT) - m)
        if MASK:
            columns = column + tl.arange(0, BLOCK_N)
            p = tl.where(rows[:, None] >= columns[None, :], p, 0.0)
        dp = tl.dot(do, vT).to(tl.float32)
        ds = (p * (dp - delta[:, None])).to(tl.float16)
        dq += tl.dot(ds, tl.trans(kT))
        column += BLOCK_N
        kT_ptrs += BLOCK_N * stride_token
        vT_ptrs += BLOCK_N * stride_token
    return dq


@triton.jit
def backward_kernel(
    Q, K, V, sm_scale, DO, DQ, DK, DV, M, Delta, stride_z, stride_h, stride_token, stride_d, H, N_CTX,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr,
    PARTS: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Blocks on the diagonal are walked along in PARTS.  K was multiplied by the scale and by 1/ln 2."""
    LN2: tl.constexpr = 0.6931471824645996
    head = tl.program_id(2)
    first_token = (head * N_CTX).to(tl.int64)
    at = (stride_h * (head % H) + stride_z * (head // H)).to(tl.int64)
    pid = tl.program_id(0)
    Q += at
    K += at
    V += at
    DO += at
    DQ += at
    DK += at
    DV += at
    M += first_token
    Delta += first_token
    depth = tl.arange(0, HEAD_DIM)
    first_n = pid * BLOCK_N1
    first_m = 0
    columns = first_n + tl.arange(0, BLOCK_N1)
    dv = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
    dk = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
    k = tl.load(K + columns[:, None] * stride_token + depth[None, :] * stride_d)
    v = tl.load(V + columns[:, None] * stride_token + depth[None, :] * stride_d)
    MASKED_M: tl.constexpr = BLOCK_M1 // PARTS
    if CAUSAL:
        first_m = first_n
        steps = BLOCK_N1 // MASKED_M
        dk, dv = along_rows(
            dk, dv, Q, k, v, DO, M, Delta, stride_token, stride_d, MASKED_M, BLOCK_N1, HEAD_DIM, first_n,
            first_m, steps, MASK=True,
        )  # fmt: skip
        first_m += steps * MASKED_M
    steps = (N_CTX - first_m) // BLOCK_M1
    dk, dv = along_rows(
        dk, dv, Q, k, v, DO, M, Delta, stride_token, stride_d, BLOCK_M1, BLOCK_N1, HEAD_DIM, first_n,
        first_m, steps, MASK=False,
    )  # fmt: skip
    tl.store(DV + columns[:, None] * stride_token + depth[None, :] * stride_d, dv)
    dk *= sm_scale
    tl.store(DK + columns[:, None] * stride_token + depth[None, :] * stride_d, dk)

    first_m = pid * BLOCK_M2
    first_n = 0
    steps = N_CTX // BLOCK_N2
    MASKED_N: tl.constexpr = BLOCK_N2 // PARTS
    rows = first_m + tl.arange(0, BLOCK_M2)
    q = tl.load(Q + rows[:, None] * stride_token + depth[None, :] * stride_d)
    dq = tl.zeros([BLOCK_M2, HEAD_DIM], dtype=tl.float32)
    do = tl.load(DO + rows[:, None] * stride_token + depth[None, :] * stride_d)
    m = tl.load(M + rows)[:, None]
    if CAUSAL:
        end_n = first_m + BLOCK_M2
        steps = BLOCK_M2 // MASKED_N
        dq = along_columns(
            dq, q, K, V, do, m, Delta, stride_token, stride_d, BLOCK_M2, MASKED_N, HEAD_DIM, first_m,
            end_n - steps * MASKED_N, steps, MASK=True,
        )  # fmt: skip
        end_n -= steps * MASKED_N
        steps = end_n // BLOCK_N2
        first_n = end_n - steps * BLOCK_N2
    dq = along_columns(
        dq, q, K, V, do, m, Delta, stride_token, stride_d, BLOCK_M2, BLOCK_N2, HEAD_DIM, first_m, first_n,
        steps, MASK=False,
    )  # fmt: skip
    tl.store(DQ + rows[:, None] * stride_token + depth[None, :] * stride_d, dq * LN2)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale):
        o, M = attention(q, k, v, causal, sm_scale)
        ctx.save_for_backward(q, k, v, o, M)
        ctx.sm_scale, ctx.causal = sm_scale, causal
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, M = ctx.saved_tensors
        assert do.is_contiguous()
        assert q.stride() == k.stride() == v.stride() == o.stride() == do.stride()
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        batch, heads, n, d = q.shape
        scaled_k = k * (ctx.sm_scale * 1.4426950408889634)
        delta = torch.empty_like(M)
        delta_kernel[(n // 128, batch * heads)](o, do, delta, n, BLOCK_M=128, HEAD_DIM=d)
        backward_kernel[(n // 128, 1, batch * heads)](
            q, scaled_k, v, ctx.sm_scale, do, dq, dk, dv, M, delta, *q.stride(), heads, n,
            BLOCK_M1=32, BLOCK_N1=128, BLOCK_M2=128, BLOCK_N2=32, PARTS=2, HEAD_DIM=d, CAUSAL=ctx.causal,
            num_warps=4, num_stages=5,
        )  # fmt: skip
        return dq, dk, dv, None, None


def check(device="cuda", n=1024):
    torch.manual_seed(20)
    for causal in (True, False):
        q, k, v = (
            torch.empty((1, 2, n, 64), device=device).normal_(0, 0.5).half().requires_grad_()
            for _ in range(3)
        )
        do = torch.randn_like(q)
        found = torch.autograd.grad(Attention.apply(q, k, v, causal, 0.5), (q, k, v), do)
        want = torch.matmul(softmax_of_products(q, k, causal, 0.5).half(), v)
        for got, exact in zip(found, torch.autograd.grad(want, (q, k, v), do), strict=True):
            torch.testing.assert_close(got, exact, atol=1e-2, rtol=0)
