"""Plain products: operand orders, dtypes, ways to address memory, ways to walk over tiles and over K."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    Case,
    blocks,
    ints,
    nan,
    product,
    stored,
    strides,
)


@wl.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """The one everybody has: masks on all three axes, pointers moved along K."""
    pid = tl.program_id(0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_pid_n
    pid_n = pid % num_pid_n
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(
            a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k * BLOCK_K), other=0.0
        )
        b = tl.load(
            b_ptrs, mask=(offs_k[:, None] < K - k * BLOCK_K) & (offs_n[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = acc.to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + stride_cn * offs_n[None, :]
    tl.store(c_ptrs, c, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@wl.jit
def matmul_hinted(A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                  EVEN_K: tl.constexpr, GROUP_M: tl.constexpr):  # fmt: skip
    """triton.ops' matmul: rows and columns wrapped with `%` and hinted, K even or masked."""
    pid = tl.program_id(0)
    grid_m = tl.cdiv(M, BLOCK_M)
    grid_n = tl.cdiv(N, BLOCK_N)
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // (group_size)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    A = A + (ram[:, None] * stride_am + rk[None, :] * stride_ak)
    B = B + (rk[:, None] * stride_bk + rbn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            k_remaining = K - k * BLOCK_K
            _0 = tl.zeros((1, 1), dtype=C.dtype.element_ty)
            a = tl.load(A, mask=rk[None, :] < k_remaining, other=_0)
            b = tl.load(B, mask=rk[:, None] < k_remaining, other=_0)
        acc += tl.dot(a, b, out_dtype=tl.float32)
        A += BLOCK_K * stride_ak
        B += BLOCK_K * stride_bk
    acc = acc.to(C.dtype.element_ty)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    C = C + (rm[:, None] * stride_cm + rn[None, :] * stride_cn)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(C, acc, mask=mask)


@wl.jit
def matmul_blocks(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
                  stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                  GROUP_M: tl.constexpr):  # fmt: skip
    """Block pointers that are advanced, tiles in swizzled order."""
    pid_m, pid_n = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GROUP_M
    )
    a_bp = tl.make_block_ptr(base=a_ptr, shape=(M, K), strides=(stride_am, stride_ak),
                             offsets=(pid_m * BLOCK_M, 0), block_shape=(BLOCK_M, BLOCK_K), order=(1, 0))  # fmt: skip
    b_bp = tl.make_block_ptr(base=b_ptr, shape=(K, N), strides=(stride_bk, stride_bn),
                             offsets=(0, pid_n * BLOCK_N), block_shape=(BLOCK_K, BLOCK_N), order=(1, 0))  # fmt: skip
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_bp, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_bp, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc)
        a_bp = a_bp.advance((0, BLOCK_K))
        b_bp = tl.advance(b_bp, (BLOCK_K, 0))
    c_bp = tl.make_block_ptr(base=c_ptr, shape=(M, N), strides=(stride_cm, stride_cn),
                             offsets=(pid_m * BLOCK_M, pid_n * BLOCK_N), block_shape=(BLOCK_M, BLOCK_N),
                             order=(1, 0))  # fmt: skip
    tl.store(c_bp, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@wl.jit
def batched_descriptors(a_ptr, b_ptr, c_ptr, Z, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                        BLOCK_K: tl.constexpr, NUM_SMS: tl.constexpr):  # fmt: skip
    """Three-dimensional descriptors made on the device, persistent over batches and tiles."""
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[Z, M, K], strides=[M * K, K, 1],
                                       block_shape=[1, BLOCK_M, BLOCK_K])  # fmt: skip
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[Z, K, N], strides=[K * N, N, 1],
                                       block_shape=[1, BLOCK_K, BLOCK_N])  # fmt: skip
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[Z, M, N], strides=[M * N, N, 1],
                                       block_shape=[1, BLOCK_M, BLOCK_N])  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for t in tl.range(tl.program_id(0), Z * tiles_m * tiles_n, NUM_SMS, flatten=True):
        z = t // (tiles_m * tiles_n)
        r = t % (tiles_m * tiles_n)
        m = (r % tiles_m) * BLOCK_M
        n = (r // tiles_m) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([z, m, k * BLOCK_K]).reshape(BLOCK_M, BLOCK_K)
            b = b_desc.load([z, k * BLOCK_K, n]).reshape(BLOCK_K, BLOCK_N)
            acc = tl.dot(a, b, acc)
        c_desc.store([z, m, n], acc.to(c_ptr.dtype.element_ty).reshape(1, BLOCK_M, BLOCK_N))


@wl.jit
def bmm(A, B, C, M, N, K, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_ob,
        stride_om, stride_on, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
        DIVISIBLE_M: tl.constexpr, DIVISIBLE_N: tl.constexpr, DIVISIBLE_K: tl.constexpr):  # fmt: skip
    """A library's batched product: one mask or another by what divides, `while` over K."""
    pidb = tl.program_id(2)
    A += pidb * stride_ab
    B += pidb * stride_bb
    C += pidb * stride_ob
    offs_m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    offs_n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    offs_k = tl.arange(0, TILE_K)
    if not DIVISIBLE_M:
        mask_m = offs_m < M
    if not DIVISIBLE_N:
        mask_n = offs_n < N
    a_ptrs = A + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = B + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    o_ptrs = C + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    num_iters = tl.cdiv(K, TILE_K)
    o = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    while num_iters > 0:
        num_iters -= 1
        if DIVISIBLE_K:
            mask_a = None if DIVISIBLE_M else mask_m[:, None]
            mask_b = None if DIVISIBLE_N else mask_n[None, :]
        else:
            mask_k = offs_k < K
            mask_a = mask_k[None, :] if DIVISIBLE_M else mask_m[:, None] & mask_k[None, :]
            mask_b = mask_k[:, None] if DIVISIBLE_N else mask_k[:, None] & mask_n[None, :]
        a = tl.load(a_ptrs, mask_a)
        b = tl.load(b_ptrs, mask_b)
        offs_k += TILE_K
        a_ptrs += TILE_K * stride_ak
        b_ptrs += TILE_K * stride_bk
        o += tl.dot(a, b, allow_tf32=False)
    if DIVISIBLE_M and DIVISIBLE_N:
        mask_c = None
    elif DIVISIBLE_M:
        mask_c = mask_n[None, :]
    elif DIVISIBLE_N:
        mask_c = mask_m[:, None]
    else:
        mask_c = mask_m[:, None] & mask_n[None, :]
    tl.store(o_ptrs, o, mask_c)


@wl.jit
def persistent_flat(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr):  # fmt: skip
    """Triton's older persistent tutorial: one loop over the steps of all tiles, `if ki == 0` begins a tile."""
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)
    num_tiles = num_pid_m * num_pid_n
    tiles_per_SM = num_tiles // NUM_SMS
    if start_pid < num_tiles % NUM_SMS:
        tiles_per_SM += 1
    tile_id = start_pid - NUM_SMS
    ki = -1
    offs_k_for_mask = tl.arange(0, BLOCK_K)
    num_pid_in_group = GROUP_M * num_pid_n
    pid_m = 0
    pid_n = 0
    offs_am = tl.arange(0, BLOCK_M)
    offs_bn = tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, k_tiles * tiles_per_SM):
        ki = tl.where(ki == k_tiles - 1, 0, ki + 1)
        if ki == 0:
            tile_id += NUM_SMS
            group_id = tile_id // num_pid_in_group
            first_pid_m = group_id * GROUP_M
            group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
            pid_m = first_pid_m + (tile_id % group_size_m)
            pid_n = (tile_id % num_pid_in_group) // group_size_m
            offs_am = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
            offs_bn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        offs_k = ki * BLOCK_K + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + (offs_am[:, None] * K + offs_k[None, :])
        b_ptrs = b_ptr + (offs_k[:, None] * N + offs_bn[None, :])
        in_k = offs_k_for_mask < K - ki * BLOCK_K
        a = tl.load(a_ptrs, mask=in_k[None, :] & (offs_am < M)[:, None], other=0.0)
        b = tl.load(b_ptrs, mask=in_k[:, None] & (offs_bn < N)[None, :], other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        if ki == k_tiles - 1:
            offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
            offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
            c_ptrs = c_ptr + N * offs_cm[:, None] + offs_cn[None, :]
            c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
            tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=c_mask)
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)


@wl.constexpr_function
def rows_of(block, parts):
    return block // parts


@wl.jit
def persistent_tasks(a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     BLOCK_K: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """Meta's fork: roles by hand, the store in parts."""
    tl.static_assert(BLOCK_M % PARTS == 0, "parts of a tile")
    part: tl.constexpr = rows_of(BLOCK_N, PARTS)
    num_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for t in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        m = t // tl.cdiv(N, BLOCK_N) * BLOCK_M
        n = t % tl.cdiv(N, BLOCK_N) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            with tl.async_task([0]):
                a = a_desc.load([m, k * BLOCK_K])
                b = b_desc.load([k * BLOCK_K, n])
            with tl.async_task([1, 2]):
                acc = tl.dot(a, b, acc)
        with tl.async_task([1, 2]):
            if PARTS == 1:
                c_desc.store([m, n], acc.to(c_desc.dtype))
            else:
                halves = tl.permute(tl.reshape(acc, (BLOCK_M, PARTS, part)), (0, 2, 1))
                left, right = tl.split(halves)
                c_desc.store([m, n], left.to(c_desc.dtype))
                c_desc.store([m, n + part], right.to(c_desc.dtype))


@wl.jit
def asked(a_ptr, b_ptr, c_ptr, M, N, K, lda, ldb, ldc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
          BLOCK_K: tl.constexpr, WS: tl.constexpr, STAGES: tl.constexpr, UNROLL: tl.constexpr,
          FLAT: tl.constexpr):  # fmt: skip
    """Everything that tl.range takes; early return for tiles outside; asserts."""
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    if m >= M:
        return
    if n >= N:
        return
    tl.static_assert(BLOCK_K >= 16)
    tl.device_assert(m < M, "rows")
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=WS, num_stages=STAGES, loop_unroll_factor=UNROLL,
                      flatten=FLAT, disallow_acc_multi_buffer=True):  # fmt: skip
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc)
    c_desc.store([m, n], acc.to(c_ptr.dtype.element_ty))


# ---- cases


def of(name: str, kernel: Any, m: int, n: int, k: int, tile: tuple[int, int, int], dtype: Any = BF16,
       out: Any = None, orders: str = "rr", right: Any = None, grid: Any = None, **more: Any) -> Case:  # fmt: skip
    """C = A·B by a kernel that takes all strides."""
    knobs, meta = more.pop("knobs", {}), more
    a = stored(ints(m, k, dtype=dtype), orders[0])
    b = stored(ints(k, n, dtype=right or dtype), orders[1])
    c = nan(m, n, dtype=out or dtype)
    bm, bn, bk = tile
    return Case(name, kernel, (a, b, c, m, n, k, *strides(a, b, c)),
                grid or (blocks(m, bm) * blocks(n, bn),),
                {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, **meta}, {2: product(a, b)}, knobs=knobs)  # fmt: skip


TYPES = {"bf16": (BF16, None, BF16), "f16": (F16, None, F16), "f32": (F32, None, F32),
         "e4m3": (E4M3, None, F16), "e5m2": (E5M2, None, BF16), "e4m3-e5m2": (E4M3, E5M2, F32),
         "int8": (np.int8, None, np.int32)}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, (left, right, out) in TYPES.items():
        for orders in ("rr", "rc", "cr", "cc"):
            yield of(
                f"matmul-{name}-{orders}",
                matmul,
                100,
                72,
                176,
                (64, 64, 64),
                left,
                out,
                orders,
                right,
            )
    for m, n, k in [(65, 63, 1), (1, 1, 1), (127, 129, 31), (64, 64, 0), (77, 51, 97)]:
        yield of(f"matmul-{m}x{n}x{k}", matmul, m, n, k, (64, 64, 32))
        yield of(f"matmul-{m}x{n}x{k}-c", matmul, m, n, k, (64, 64, 32), orders="cc", dtype=F16)
    for even, k in ((True, 128), (False, 104)):
        yield of(
            f"hinted-{k}",
            matmul_hinted,
            136,
            120,
            k,
            (64, 64, 64),
            orders="rc",
            EVEN_K=even,
            GROUP_M=4,
        )
    for orders, k in (("rr", 136), ("cc", 72), ("rc", 75)):
        yield of(f"blocks-{orders}", matmul_blocks, 136, 88, k, (128, 64, 64), F16, orders=orders,
                 grid=(2, 2), GROUP_M=2)  # fmt: skip
    for m, n, k in ((72, 80, 136), (70, 80, 40)):
        a, b, c = ints(3, m, k), ints(3, k, n), nan(3, m, n)
        meta = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "NUM_SMS": 2}
        yield Case(
            f"batched-{m}",
            batched_descriptors,
            (a, b, c, 3, m, n, k),
            (2,),
            meta,
            {2: product(a, b)},
        )
    for m, n, k in ((128, 64, 128), (100, 64, 128), (100, 60, 50)):
        a, b, c = ints(2, m, k, dtype=F16), ints(2, k, n, dtype=F16), nan(2, m, n, dtype=F16)
        meta = {f"DIVISIBLE_{x}": v % 64 == 0 for x, v in zip("MNK", (m, n, k), strict=True)}
        meta |= {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64}
        yield Case(f"bmm-{m}x{n}", bmm, (a, b, c, m, n, k, *strides(a, b, c)), (blocks(m, 64), blocks(n, 64), 2),
                   meta, {2: product(a, b)})  # fmt: skip
    for m, n, k in ((136, 88, 136), (72, 40, 56)):
        a, b, c = ints(m, k), ints(k, n), nan(m, n)
        meta = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2, "NUM_SMS": 2}
        yield Case(f"flat-{m}", persistent_flat, (a, b, c, m, n, k), (2,), meta, {2: product(a, b)})
    for parts in (1, 2):
        m, n, k = 200, 136, 136
        a, b, c = ints(m, k), ints(k, n), nan(m, n)
        described = (wl.TensorDescriptor.from_tensor(a, (128, 64)), wl.TensorDescriptor.from_tensor(b, (64, 128)),
                     wl.TensorDescriptor.from_tensor(c, (128, 128 // parts)))  # fmt: skip
        meta = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "PARTS": parts}
        yield Case(f"tasks-{parts}", persistent_tasks, (*described, m, n, k), (2,), meta, {2: product(a, b)},
                   knobs={"num_consumer_groups": 2, "num_warps": 4})  # fmt: skip
    for i, (ws, stages, unroll, flat) in enumerate([(True, 1, 2, False), (False, 4, 1, True),
                                                    (True, 3, 4, True), (None, 2, None, False)]):  # fmt: skip
        m, n, k = 72, 88, (200, 64, 328, 0)[i]
        a, b, c = ints(m, k), ints(k, n), nan(m, n)
        meta = {
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_K": 64,
            "WS": ws,
            "STAGES": stages,
            "UNROLL": unroll,
            "FLAT": flat,
        }
        yield Case(f"asked-{i}", asked, (a, b, c, m, n, k, k, n, n), (3, 2), meta, {2: product(a, b)},
                   tasks=ws is not False)  # fmt: skip
    tiles = [(64, 8, 16), (64, 24, 32), (64, 112, 64), (64, 208, 64), (128, 208, 64), (192, 64, 64),
             (256, 128, 64), (128, 256, 64), (64, 256, 128), (192, 128, 32), (256, 112, 16), (128, 48, 128)]  # fmt: skip
    for i, tile in enumerate(tiles):
        for knobs in ({"num_warps": 4}, {"num_warps": 8}):
            m, n, k = tile[0] + 9, tile[1] + 16, 2 * tile[2] + 8
            knobs = {**knobs, "num_stages": i % 5 + 1}
            yield of(f"tile-{'x'.join(map(str, tile))}-{knobs['num_warps']}", matmul, m, n, k, tile,
                     orders=("rr", "rc", "cr", "cc")[i % 4], knobs=knobs)  # fmt: skip
    for bm in (16, 32):
        yield of(f"decode-{bm}", matmul, bm - 3, 72, 136, (bm, 64, 64), orders="rc")
