"""Attention in two phases, by descriptors, as an operator: blocks below the diagonal without a mask, then those on it.
With 8-bit operands V is stored transposed."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def inner(
    acc, l_i, m_i, q, desc_k, desc_v, offset_y, head_v, dtype: tl.constexpr, start_m, qk_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr, rows: tl.constexpr,
    columns: tl.constexpr, N_CTX: tl.constexpr, warp_specialize: tl.constexpr,
):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    at = offset_y + lo
    for start_n in tl.range(lo, hi, BLOCK_N, warp_specialize=warp_specialize):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = desc_k.load([at, 0]).T
        qk = tl.dot(q, k)
        if STAGE == 2:
            mask = rows[:, None] >= (start_n + columns[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_ij = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if dtype == tl.float8e5:  # noqa: SIM108 - as it is written
            v = desc_v.load([head_v, start_n]).T
        else:
            v = desc_v.load([at, 0])
        acc = tl.dot(p.to(dtype), v, acc)
        l_i = l_i * alpha + l_ij
        m_i = m_ij
        at += BLOCK_N
    return acc, l_i, m_i


def set_blocks(nargs):
    m, n, d = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["HEAD_DIM"]
    if not isinstance(nargs["desc_q"], TensorDescriptor):
        return
    nargs["desc_q"].block_shape = nargs["desc_o"].block_shape = [m, d]
    nargs["desc_k"].block_shape = [n, d]
    nargs["desc_v"].block_shape = [d, n] if nargs["FP8"] else [n, d]


configs = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=w, pre_hook=set_blocks)
    for m in (64, 128)
    for n in (32, 64, 128)
    for s in (2, 3)
    for w in (4, 8)
]


def keep(config):
    return not (
        config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] < 128 * 128 and config.num_warps == 8
    )


def prune(configs, named_args, **kwargs):
    """Below the diagonal whole blocks of columns fit only where they are no wider than the rows."""
    sizes = ((c, c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) for c in configs)
    return [c for c, m, n in sizes if m <= kwargs["N_CTX"] and (m >= n or kwargs["STAGE"] == 1)]


@triton.jit
def descriptor_of(desc_or_ptr, shape, strides, block_shape):
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    else:
        return tl.make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape)


@triton.autotune(
    configs=list(filter(keep, configs)),
    key=["N_CTX", "HEAD_DIM", "STAGE", "warp_specialize"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def forward_kernel(
    sm_scale, M, Z, H, desc_q, desc_k, desc_v, desc_o, N_CTX, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr, warp_specialize: tl.constexpr,
    FP8: tl.constexpr,
):  # fmt: skip
    dtype = tl.float8e5 if FP8 else tl.float16
    tl.static_assert(BLOCK_N <= HEAD_DIM * 2)
    start_m = tl.program_id(0)
    head = tl.program_id(1)
    total = Z * H * N_CTX
    desc_q = descriptor_of(desc_q, [total, HEAD_DIM], [HEAD_DIM, 1], [BLOCK_M, HEAD_DIM])
    if FP8:
        desc_v = descriptor_of(desc_v, [Z * H * HEAD_DIM, N_CTX], [N_CTX, 1], [HEAD_DIM, BLOCK_N])
    else:
        desc_v = descriptor_of(desc_v, [total, HEAD_DIM], [HEAD_DIM, 1], [BLOCK_N, HEAD_DIM])
    desc_k = descriptor_of(desc_k, [total, HEAD_DIM], [HEAD_DIM, 1], [BLOCK_N, HEAD_DIM])
    desc_o = descriptor_of(desc_o, [total, HEAD_DIM], [HEAD_DIM, 1], [BLOCK_M, HEAD_DIM])
    offset_y = (head // H) * (N_CTX * H) + (head % H) * N_CTX
    first = offset_y + start_m * BLOCK_M
    rows = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale
    qk_scale *= 1.44269504
    q = desc_q.load([first, 0])
    if STAGE & 1:
        acc, l_i, m_i = inner(
            acc, l_i, m_i, q, desc_k, desc_v, offset_y, head * HEAD_DIM, dtype, start_m, qk_scale, BLOCK_M, BLOCK_N,
            4 - STAGE, rows, columns, N_CTX, warp_specialize,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = inner(
            acc, l_i, m_i, q, desc_k, desc_v, offset_y, head * HEAD_DIM, dtype, start_m, qk_scale, BLOCK_M, BLOCK_N,
            2, rows, columns, N_CTX, warp_specialize,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + head * N_CTX + rows, m_i)
    desc_o.store([first, 0], acc.to(dtype))


def attention(q, k, v, causal, sm_scale, on_host=True, warp_specialize=False):
    """Outputs, and for the gradients the logarithms of the rows' sums, of base 2.  Of 8 bits: V is [Z, H, d, n]."""
    Z, H, n, d = q.shape
    fp8 = q.dtype == torch.float8_e5m2
    o, M = torch.empty_like(q), torch.empty((Z, H, n), device=q.device, dtype=torch.float32)
    given = [q, k, v, o]
    if on_host:
        given = [
            TensorDescriptor(t, [t.numel() // t.shape[3], t.shape[3]], [t.shape[3], 1], [1, 1])
            for t in given
        ]
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_M"]), Z * H, 1)  # noqa: E731
    forward_kernel[grid](
        sm_scale,
        M,
        Z,
        H,
        *given,
        N_CTX=n,
        HEAD_DIM=d,
        STAGE=3 if causal else 1,
        warp_specialize=warp_specialize,
        FP8=fp8,
    )
    return o, M


def softmax_of_products(q, k, causal, sm_scale):
    n = q.shape[2]
    p = torch.matmul(q.float(), k.float().transpose(2, 3)) * sm_scale
    if causal:
        p.masked_fill_(
            torch.ones((n, n), device=q.device, dtype=torch.bool).triu_(1), float("-inf")
        )
    return torch.softmax(p, dim=-1)


def check(device="cuda", n=1024):
    torch.manual_seed(20)
    q, k, v = (torch.empty((1, 2, n, 64), device=device).normal_(0, 0.5).half() for _ in range(3))
    for causal, on_host, specialize in (
        (True, True, True),
        (False, True, False),
        (True, True, False),
        (True, False, False),
    ):
        want = torch.matmul(softmax_of_products(q, k, causal, 0.5), v.float()).half()
        found, _ = attention(q, k, v, causal, 0.5, on_host, specialize)
        torch.testing.assert_close(found, want, atol=1e-2, rtol=0)
    q, k, v = (t.to(torch.float8_e5m2) for t in (q, k, v))
    want = torch.matmul(softmax_of_products(q, k, True, 0.5), v.float())
    found, _ = attention(q, k, v.transpose(2, 3).contiguous(), True, 0.5, on_host=False)
    torch.testing.assert_close(found.float(), want, atol=0.25, rtol=0.25)
