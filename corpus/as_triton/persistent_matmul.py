"""Products, a program for each tile, by pointers and by descriptors; and persistent ones: by pointers, by descriptors that the host makes (a config's hook gives them their block),
and by descriptors made in the kernel, the result stored in halves.  B is N×K.  Proton profiles them beside cuBLAS."""

import os
import tempfile

import torch
import triton
import triton.language as tl
import triton.profiler as proton
from triton._C.libtriton import nvidia
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile_of(tile_id, in_group, tiles_m, GROUP_M: tl.constexpr):
    group = tile_id // in_group
    first_m = group * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    return first_m + (tile_id % rows), (tile_id % in_group) // rows


def metadata(grid, kernel, args):
    return {
        "name": f"{kernel.name} [M={args['M']}]",
        "flops": 2 * args["M"] * args["N"] * args["K"],
    }


@triton.jit(launch_metadata=metadata)
def tile_by_pointers_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tile_of(tl.program_id(axis=0), GROUP_M * tiles_n, tiles_m, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    wrapped_rows = tl.where(rows < M, rows, 0)
    wrapped_columns = tl.where(columns < N, columns, 0)
    wrapped_rows = tl.max_contiguous(tl.multiple_of(wrapped_rows, BLOCK_M), BLOCK_M)
    wrapped_columns = tl.max_contiguous(tl.multiple_of(wrapped_columns, BLOCK_N), BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (wrapped_rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_ptrs = b_ptr + (depth[:, None] * stride_bk + wrapped_columns[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if c_ptr.dtype.element_ty == tl.float8e4nv:  # noqa: SIM108 - as it is written
        c = acc.to(tl.float8e4nv)
    else:
        c = acc.to(tl.float16)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c_ptrs, c, mask=(rows[:, None] < M) & (columns[None, :] < N))


def set_whole_blocks(nargs):
    m, n, k = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["BLOCK_K"]
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [n, k]
    nargs["c_desc"].block_shape = [m, n]


@triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8},
            num_stages=3, num_warps=w, pre_hook=set_whole_blocks,
        )
        for n, w in ((128, 4), (256, 8))
    ],
    key=["M", "N", "K", "WARP_SPECIALIZE"],
)  # fmt: skip
@triton.jit(launch_metadata=metadata)
def tile_by_descriptors_kernel(
    a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, FP8: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    dtype = tl.float8e4nv if FP8 else tl.float16
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tile_of(tl.program_id(axis=0), GROUP_M * tiles_n, tiles_m, GROUP_M)
    row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(tl.cdiv(K, BLOCK_K), warp_specialize=WARP_SPECIALIZE):
        a = a_desc.load([row, k * BLOCK_K])
        b = b_desc.load([column, k * BLOCK_K])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([row, column], acc.to(dtype))


@triton.jit(launch_metadata=metadata)
def pointers_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    tile_id_c = start - NUM_SMS
    depth = tl.arange(0, BLOCK_K)
    in_group = GROUP_M * tiles_n
    for tile_id in tl.range(start, tiles_m * tiles_n, NUM_SMS, flatten=True):
        tile_m, tile_n = tile_of(tile_id, in_group, tiles_m, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        rows = tl.where(rows < M, rows, 0)
        columns = tl.where(columns < N, columns, 0)
        rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK_M), BLOCK_M)
        columns = tl.max_contiguous(tl.multiple_of(columns, BLOCK_N), BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(steps):
            at = ki * BLOCK_K + depth
            a_ptrs = a_ptr + (rows[:, None] * stride_am + at[None, :] * stride_ak)
            b_ptrs = b_ptr + (at[:, None] * stride_bk + columns[None, :] * stride_bn)
            a = tl.load(a_ptrs, mask=depth[None, :] < K - ki * BLOCK_K, other=0.0)
            b = tl.load(b_ptrs, mask=depth[:, None] < K - ki * BLOCK_K, other=0.0)
            acc = tl.dot(a, b, acc)
        tile_id_c += NUM_SMS
        tile_m, tile_n = tile_of(tile_id_c, in_group, tiles_m, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        if c_ptr.dtype.element_ty == tl.float8e4nv:  # noqa: SIM108 - as it is written
            c = acc.to(tl.float8e4nv)
        else:
            c = acc.to(tl.float16)
        tl.store(c_ptrs, c, mask=mask)


def set_blocks(nargs):
    m, n, k = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["BLOCK_K"]
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [n, k]
    nargs["c_desc"].block_shape = [m, n // 2] if nargs["SUBTILE"] else [m, n]


@triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8, "SUBTILE": subtile},
            num_stages=3, num_warps=8, pre_hook=set_blocks,
        )
        for n in (128, 256)
        for subtile in (False, True)
    ],
    key=["M", "N", "K", "WARP_SPECIALIZE"],
)  # fmt: skip
@triton.jit(launch_metadata=metadata)
def host_descriptors_kernel(
    a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SUBTILE: tl.constexpr, NUM_SMS: tl.constexpr, FP8: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    dtype = tl.float8e4nv if FP8 else tl.float16
    start = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    tile_id_c = start - NUM_SMS
    in_group = GROUP_M * tiles_n
    for tile_id in tl.range(
        start, tiles_m * tiles_n, NUM_SMS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE
    ):
        tile_m, tile_n = tile_of(tile_id, in_group, tiles_m, GROUP_M)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(steps):
            a = a_desc.load([row, ki * BLOCK_K])
            b = b_desc.load([column, ki * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        tile_id_c += NUM_SMS
        tile_m, tile_n = tile_of(tile_id_c, in_group, tiles_m, GROUP_M)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        if SUBTILE:
            halves = tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2))
            left, right = tl.split(tl.permute(halves, (0, 2, 1)))
            c_desc.store([row, column], left.to(dtype))
            c_desc.store([row, column + BLOCK_N // 2], right.to(dtype))
        else:
            c_desc.store([row, column], acc.to(dtype))


@triton.jit(launch_metadata=metadata)
def own_descriptors_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    a_desc = tl.make_tensor_descriptor(
        a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K]
    )
    b_desc = tl.make_tensor_descriptor(
        b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K]
    )
    c_desc = tl.make_tensor_descriptor(
        c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N]
    )
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile_id in tl.range(tl.program_id(0), tiles_m * tiles_n, NUM_SMS, flatten=True):
        tile_m, tile_n = tile_of(tile_id, GROUP_M * tiles_n, tiles_m, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([tile_m * BLOCK_M, ki * BLOCK_K])
            b = b_desc.load([tile_n * BLOCK_N, ki * BLOCK_K])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))


def programs(device):
    if torch.device(device).type == "cpu":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def check(device="cuda", n=512):
    torch.manual_seed(0)
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, device=device, dtype=torch.int8)
    )
    m, k, sms = n // 2, n, programs(device)
    a = torch.randn((m, k), device=device).half()
    b = torch.randn((n, k), device=device).half()
    c = torch.empty((m, n), device=device, dtype=torch.float16)
    tiles = lambda meta: triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])  # noqa: E731
    one_each = lambda meta: (tiles(meta),)  # noqa: E731
    grid = lambda meta: (min(sms, tiles(meta)),)  # noqa: E731
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    block = tile | {"NUM_SMS": sms}

    def strided(a, b, c):
        strides = [a.stride(0), a.stride(1), b.stride(1), b.stride(0), c.stride(0), c.stride(1)]
        return a, b, c, m, n, k, *strides

    def described(*tensors):
        return *(TensorDescriptor(x, x.shape, x.stride(), [1, 1]) for x in tensors), m, n, k

    def compare(launch, a, b, c, off=2e-2):
        c.zero_()
        launch(a, b, c)
        want = (
            (a.float() @ b.float().T).clamp(-448, 448)
            if c.itemsize == 1
            else a.float() @ b.float().T
        )
        torch.testing.assert_close(
            c.float(), want.to(c.dtype).float(), atol=off, rtol=min(off, 0.15)
        )

    options = {"num_warps": 8, "num_stages": 3}
    launches = [
        lambda *t: tile_by_pointers_kernel[one_each](*strided(*t), **tile, **options),
        lambda *t: pointers_kernel[grid](*strided(*t), **block, **options),
        lambda *t: own_descriptors_kernel[grid](*t, m, n, k, **block, num_warps=8),
    ]
    for specialize in (False, True):
        launches += [
            lambda *t, s=specialize: tile_by_descriptors_kernel[one_each](
                *described(*t), FP8=t[0].itemsize == 1, WARP_SPECIALIZE=s
            ),
            lambda *t, s=specialize: host_descriptors_kernel[grid](
                *described(*t), NUM_SMS=sms, FP8=t[0].itemsize == 1, WARP_SPECIALIZE=s, FLATTEN=s
            ),
        ]
    for launch in launches:
        compare(launch, a, b, c)
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    for launch in launches[:4]:
        # long sums of 8-bit products have fewer bits
        compare(launch, a8, b8, torch.empty_like(c, dtype=torch.float8_e4m3fn), max(0.15, k / 4096))
    profile(a, b, c, lambda: own_descriptors_kernel[grid](a, b, c, m, n, k, **block, num_warps=8))


def profile(a, b, c, launch):
    """Launches a product and cuBLAS's under a session of Proton, and prints what it found."""
    (m, k), n = a.shape, b.shape[0]
    cublas = nvidia.cublas.CublasLt(torch.empty(32 << 20, device=a.device, dtype=torch.uint8))
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "matmul")  # noqa: PTH118 - as it is written
        session = proton.start(name, hook="triton")
        proton.deactivate(session)
        launch()
        proton.activate(session)
        for _ in range(2):
            launch()
            sizes = {"bytes": 2 * (m * k + n * k + m * n), "flops16": 2.0 * m * n * k}
            with proton.scope(f"cublas [M={m}, N={n}, K={k}]", sizes):
                cublas.matmul(a, b, c)
        proton.finalize(session)
        import triton.profiler.viewer as proton_viewer  # Triton's own needs another package

        tree, metrics = proton_viewer.parse(["time/ms"], f"{name}.hatchet")
        proton_viewer.print_tree(tree, metrics)
