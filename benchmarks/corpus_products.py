"""Third-party products (corpus/) at real sizes, in tiles as their authors take them.

A case is a function of where its arrays come from (`benchmarks.data`): on the GPU they are random, and
`benchmarks/corpus.py` checks and times what it is launched with; on paper they are enough to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import warploom.language as tl
from benchmarks.data import (
    E4M3_MAX,
    Paper,
    Source,
    float64,
    multiprocessors,
    strides,
    zeros,
)
from corpus import around, formats, plain, several
from corpus.case import blocks

Tile = tuple[int, int, int]


@dataclass
class Launches:
    """What a kernel is launched with.  calls: the arguments for each input set; grid: as a launch takes it;
    wanted: by position, what the outputs have to be, in float64; adds: to outputs that are 0 at first;
    dtypes: which of `meta` are dtypes (Triton has its own); fresh: arguments that are set to 0 before each
    launch."""

    kernel: Any
    calls: list[tuple[Any, ...]]
    grid: Any
    meta: dict[str, Any]
    wanted: Mapping[int, Callable[..., Any]]
    flops: int
    adds: bool = False
    dtypes: tuple[str, ...] = ()
    fresh: tuple[int, ...] = ()


Make = Callable[[Source], Launches]


def sets(source: Source, make: Callable[[], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Arguments for as many input sets as exceed the L2."""
    first = make()
    size = sum(x.nbytes for x in first if hasattr(x, "nbytes"))
    return [first, *(make() for _ in range(source.sets(size) - 1))]


def tiles(tile: Tile, **more: Any) -> dict[str, Any]:
    return dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True)) | more


def whole(
    source: Source, *shape: int, dtype: str = "int8", low: int = -127, high: int = 128
) -> Any:
    """Random whole numbers from `low` on and below `high`."""
    if isinstance(source, Paper):
        return np.zeros(shape, dtype)
    import torch

    return torch.randint(low, high, shape, device="cuda", dtype=getattr(torch, dtype))


def there(source: Source, values: Any) -> Any:
    """These numbers where the source's arrays lie."""
    if isinstance(source, Paper):
        return np.ascontiguousarray(values)
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).cuda()


def matrix(source: Source, rows: int, columns: int, dtype: str = "bf16", order: str = "r") -> Any:
    """Random; order: row-major in memory ('r') or column-major ('c')."""
    if order == "c":
        return matrix(source, columns, rows, dtype).T
    if dtype.startswith("int"):
        return whole(source, rows, columns, dtype=dtype)
    if dtype == "e4m3":
        return source.quantized(rows, columns)[0]
    return source.normal(rows, columns, dtype=dtype)


def product(a: Any, b: Any, *_: Any) -> Any:
    return float64(a) @ float64(b)


def repeated(x: Any, times: int, axis: int = 0) -> Any:
    """Each row (axis 0) or column in float64, so many times."""
    return float64(x).repeat_interleave(times, axis)


def silu(x: Any) -> Any:
    return x * x.sigmoid()


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + (x * 0.5**0.5).erf())


# ---- corpus/plain.py


def strided(
    kernel: Any,
    m: int,
    n: int,
    k: int,
    tile: Tile,
    dtype: str = "bf16",
    orders: str = "rc",
    *,
    right: str = "",
    out: str = "",
    flat: bool = True,
    source: Source,
    dtypes: tuple[str, ...] = (),
    **meta: Any,
) -> Launches:
    """C = A·B by a kernel that takes the three arrays, M, N, K and all strides."""

    def call() -> tuple[Any, ...]:
        a = matrix(source, m, k, dtype, orders[0])
        b = matrix(source, k, n, right or dtype, orders[1])
        c = source.empty(m, n, dtype=out or dtype)
        return (a, b, c, m, n, k, *strides(a), *strides(b), *strides(c))

    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    grid = (grid[0] * grid[1],) if flat else grid
    calls = sets(source, call)
    found = Launches(kernel, calls, grid, tiles(tile, **meta), {2: product}, 2 * m * n * k)
    found.dtypes = dtypes
    return found


def mixed(m: int, tile: Tile, left: str, right: str, orders: str, source: Source) -> Launches:
    """Operands of two dtypes, multiplied as the 16-bit one (f32: as bf16)."""
    how = tl.float16 if "fp16" in (left, right) else tl.bfloat16
    found = strided(around.mixed, m, 4096, 4096, tile, left, orders, right=right, out="bf16", flat=False,
                    source=source, dtypes=("AS",), AS=how)  # fmt: skip
    found.calls = [c[:-2] for c in found.calls]  # it takes no strides of C
    if left == "fp32":
        found.wanted = {2: lambda a, b, *_: a.bfloat16().double() @ b.bfloat16().double()}
    return found


def batched(z: int, m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    sms = multiprocessors()

    def call() -> tuple[Any, ...]:
        return (source.normal(z, m, k), source.normal(z, k, n), source.empty(z, m, n), z, m, n, k)

    meta = tiles(tile, NUM_SMS=sms)
    flops = 2 * z * m * n * k
    calls = sets(source, call)
    return Launches(plain.batched_descriptors, calls, (sms,), meta, {2: product}, flops)


def bmm(z: int, m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a, b = source.normal(z, m, k, dtype="fp16"), source.normal(z, k, n, dtype="fp16")
        c = source.empty(z, m, n, dtype="fp16")
        return (a, b, c, m, n, k, *strides(a), *strides(b), *strides(c))

    meta: dict[str, Any] = {f"TILE_{x}": size for x, size in zip("MNK", tile, strict=True)}
    for x, size in zip("MNK", (m, n, k), strict=True):
        meta[f"DIVISIBLE_{x}"] = size % meta[f"TILE_{x}"] == 0
    grid = (blocks(m, tile[0]), blocks(n, tile[1]), z)
    return Launches(plain.bmm, sets(source, call), grid, meta, {2: product}, 2 * z * m * n * k)


def flat(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    sms = multiprocessors()

    def call() -> tuple[Any, ...]:
        return (source.normal(m, k), source.normal(k, n), source.empty(m, n), m, n, k)

    meta = tiles(tile, GROUP_M=8, NUM_SMS=sms)
    calls = sets(source, call)
    return Launches(plain.persistent_flat, calls, (sms,), meta, {2: product}, 2 * m * n * k)


def asked(m: int, n: int, k: int, tile: Tile, ws: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        return (source.normal(m, k), source.normal(k, n), source.empty(m, n), m, n, k, k, n, n)

    meta = tiles(tile, WS=ws, STAGES=3, UNROLL=1, FLAT=False)
    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    return Launches(plain.asked, sets(source, call), grid, meta, {2: product}, 2 * m * n * k)


# ---- corpus/around.py


def linear(m: int, n: int, k: int, tile: Tile, act: str, kept: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        x, w = source.normal(m, k), source.normal(n, k, deviation=k**-0.5)
        more = (source.normal(n, dtype="fp32"), source.normal(m, n), source.empty(m, n))
        return (x, w, *more, source.empty(m, n, dtype="fp32"), m, n, k, k, k, n)

    def before(x: Any, w: Any, bias: Any, *_: Any) -> Any:
        return float64(x) @ float64(w).T + float64(bias)

    meta = tiles(tile, HAS_BIAS=True, HAS_RESIDUAL=True, SAVE_PRE=kept, ACTIVATION=act)
    act_of = {"silu": silu, "gelu": gelu}[act]
    wanted = {4: lambda *args: act_of(before(*args)) + float64(args[3])}
    if kept:
        wanted[5] = before
    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    return Launches(around.linear, sets(source, call), grid, meta, wanted, 2 * m * n * k)


def beta(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    """C is 0 when it is checked: beta's part is judged by the tests."""

    def call() -> tuple[Any, ...]:
        a, b = source.normal(m, k), source.normal(k, n)
        return (a, b, zeros(a, m, n), 2.0, 0.5, m, n, k)

    def wanted(a: Any, b: Any, *_: Any) -> Any:
        return 2 * product(a, b)

    grid, calls = (blocks(m, tile[0]), blocks(n, tile[1])), sets(source, call)
    return Launches(around.gemm_beta, calls, grid, tiles(tile), {2: wanted}, 2 * m * n * k, True)


def quantised(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    """What it stores in e4m3 differs by that much from float64: its scales, maximum and sums are checked."""
    across = blocks(n, tile[1])

    def call() -> tuple[Any, ...]:
        a, b = (source.normal(*s, dtype="fp16") for s in ((m, k), (k, n)))
        more = (source.empty(m, n, dtype="e4m3"), source.empty(m, across, dtype="fp32"))
        return (a, b, *more, zeros(a, 1), zeros(a, m), m, n, k)

    def scales(a: Any, b: Any, *_: Any) -> Any:
        return product(a, b).abs().view(m, across, -1).amax(2) / E4M3_MAX

    wanted: Mapping[int, Callable[..., Any]] = {
        3: scales,
        4: lambda a, b, *_: product(a, b).abs().amax()[None],
        5: lambda a, b, *_: product(a, b).sum(1),
    }
    grid, meta = (blocks(m, tile[0]), across), tiles(tile, TOP=E4M3_MAX)
    calls = sets(source, call)
    return Launches(around.quantised, calls, grid, meta, wanted, 2 * m * n * k, True)


def int8_weights(m: int, n: int, k: int, tile: Tile, zero: bool, source: Source) -> Launches:
    group = 128

    def call() -> tuple[Any, ...]:
        x = source.normal(m, k, dtype="fp16")
        s = source.normal(k // group, n, dtype="fp16", deviation=0.01)
        z = source.normal(k // group, n, dtype="fp16")
        return (x, whole(source, k, n), s, z, source.empty(m, n, dtype="fp16"), m, n, k)

    def wanted(x: Any, w: Any, s: Any, z: Any, *_: Any) -> Any:
        full = float64(w) - (repeated(z, group) if zero else 0)
        return float64(x) @ (full * repeated(s, group))

    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    meta = tiles(tile, GROUP=group, ZEROS=zero)
    calls = sets(source, call)
    return Launches(around.weight_only_int8, calls, grid, meta, {4: wanted}, 2 * m * n * k)


def gptq(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    group = 128
    all_bits = {"dtype": "int32", "low": -(2**31), "high": 2**31}

    def call() -> tuple[Any, ...]:
        s = source.normal(k // group, n, dtype="fp16", deviation=0.01)
        packed = whole(source, k // 8, n, **all_bits)  # type: ignore[arg-type]
        zero = whole(source, k // group, n // 8, **all_bits)  # type: ignore[arg-type]
        more = (source.empty(m, n, dtype="fp16"), m, n, k, k, n, n, n // 8, n, group)
        return (source.normal(m, k, dtype="fp16"), packed, s, zero, *more)

    def nibbles(x: Any, axis: int) -> Any:
        """Eight numbers of each, one behind the other along an axis."""
        shifts = there(source, np.arange(0, 32, 4, dtype=np.int32))
        return ((x.unsqueeze(axis + 1) >> shifts.view(-1, *(1,) * (1 - axis))) & 15).flatten(
            axis, axis + 1
        )

    def wanted(x: Any, packed: Any, s: Any, zero: Any, *_: Any) -> Any:
        full = nibbles(packed, 0).double() - repeated(nibbles(zero, 1), group)
        return float64(x) @ (full * repeated(s, group))

    grid, calls = (blocks(m, tile[0]), blocks(n, tile[1])), sets(source, call)
    return Launches(around.gptq_int4, calls, grid, tiles(tile), {4: wanted}, 2 * m * n * k)


def interleaved(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        x = source.normal(m, k, dtype="fp16")
        return (x, whole(source, k, n // 2), source.empty(m, n, dtype="fp16"), m, n, k)

    def wanted(x: Any, packed: Any, *_: Any) -> Any:
        pairs = packed << 4 >> 4, packed >> 4
        import torch

        return float64(x) @ torch.stack(pairs, 2).flatten(1).double()

    grid, calls = (blocks(m, tile[0]), blocks(n, tile[1])), sets(source, call)
    return Launches(around.int4_interleaved, calls, grid, tiles(tile), {2: wanted}, 2 * m * n * k)


def block_scaled(m: int, n: int, k: int, tile: Tile, one: bool, source: Source) -> Launches:
    """e4m3 by blocks of scales; one: the kernel in which a tile of B has a single scale."""
    size = 128

    def call() -> tuple[Any, ...]:
        a, b = (source.quantized(rows, k)[0] for rows in (m, n))
        sa = source.normal(m, k // size, dtype="fp32")
        sb = source.normal(n // size, k // size, dtype="fp32")
        c = source.empty(m, n)
        if one:
            return (a, b, c, sa, sb, m)
        return (a, b, c, sa, sb, m, n, k, size, size, k, 1, 1, k, n, 1, *strides(sa), 1, k // size)

    def wanted(a: Any, b: Any, c: Any, sa: Any, sb: Any, *_: Any) -> Any:
        left = float64(a) * repeated(sa, size, 1)
        return left @ (float64(b) * repeated(repeated(sb, size, 0), size, 1)).T

    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    calls = sets(source, call)
    flops = 2 * m * n * k
    if one:
        meta = tiles(tile, N=n, K=k)
        return Launches(around.fp8_deepseek, calls, grid, meta, {2: wanted}, flops)
    meta = tiles(tile, GROUP_M=32)
    grid = (grid[0] * grid[1],)
    return Launches(around.w8a8_block_fp8, calls, grid, meta, {2: wanted}, flops)


def normed(m: int, n: int, k: int, tile: Tile, layer: bool, source: Source) -> Launches:
    """LayerNorm or RMSNorm in front of a product."""

    def call() -> tuple[Any, ...]:
        x, y = source.normal(m, k, dtype="fp16"), source.empty(m, n, dtype="fp16")
        if not layer:
            return (x, source.normal(n, k, dtype="fp16"), y, m, n, k, 1e-5)
        g, b = source.normal(k, dtype="fp32"), source.normal(k, dtype="fp32")
        return (x, g, b, source.normal(k, n, dtype="fp16"), y, m, n, k, 1e-5)

    def after_layer(x: Any, g: Any, b: Any, w: Any, *_: Any) -> Any:
        x = float64(x)
        x = (x - x.mean(1, keepdim=True)) * (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
        return (x * float64(g) + float64(b)) @ float64(w)

    def after_rms(x: Any, w: Any, *_: Any) -> Any:
        scale = (float64(x).square().mean(1, keepdim=True) + 1e-5).rsqrt()
        return float64(x) @ float64(w).T * scale

    grid, calls = (blocks(m, tile[0]), blocks(n, tile[1])), sets(source, call)
    if layer:
        kernel, wanted = around.layer_norm_gemm, {4: after_layer}
    else:
        kernel, wanted = around.rms_norm_gemm, {2: after_rms}
    return Launches(kernel, calls, grid, tiles(tile), wanted, 2 * m * n * k)


# ---- corpus/several.py


def split(m: int, n: int, k: int, tile: Tile, parts: int, how: str, source: Source) -> Launches:
    """K dealt to `parts` programs, whose sums meet by atomics, in memory, or at whoever comes last."""
    grid = (blocks(m, tile[0]), blocks(n, tile[1]))

    def call() -> tuple[Any, ...]:
        a, b = source.normal(m, k, dtype="fp16"), source.normal(k, n, dtype="fp16")
        if how == "locked":
            held = source.empty(grid[0] * grid[1] * parts * tile[0] * tile[1], dtype="fp32")
            c, counts = source.empty(m, n, dtype="fp16"), zeros(a, grid[0] * grid[1], dtype="int32")
            return (a, b, c, held, counts, m, n, k)
        c = zeros(a, m, n) if how == "atomic" else source.empty(parts, m, n, dtype="fp32")
        return (a, b, c, m, n, k, k, n, m * n, n)

    def each(a: Any, b: Any, *_: Any) -> Any:
        import torch

        a, b = float64(a).view(m, -1, parts, tile[2]), float64(b).view(-1, parts, tile[2], n)
        sums = [a[:, :, z].reshape(m, -1) @ b[:, z].reshape(-1, n) for z in range(parts)]
        return torch.stack(sums)

    flops = 2 * m * n * k
    if how == "locked":
        meta = tiles(tile, SPLIT_K=parts)
        kernel, calls = several.split_k_locked, sets(source, call)
        return Launches(kernel, calls, (*grid, parts), meta, {2: product}, flops, fresh=(4,))
    meta = tiles(tile, SPLIT_K=parts, ATOMIC=how == "atomic")
    wanted = {2: product if how == "atomic" else each}
    spread = (grid[0] * grid[1], parts)
    adds = how == "atomic"
    return Launches(several.split_k, sets(source, call), spread, meta, wanted, flops, adds)


def add_parts(m: int, n: int, parts: int, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        return (source.normal(parts, m, n, dtype="fp32"), source.empty(m, n, dtype="fp16"), m * n)

    wanted = {1: lambda p, *_: float64(p).sum(0)}
    meta = {"PARTS": parts, "BLOCK": 1024}
    grid = (blocks(m * n, 1024),)
    return Launches(several.add_parts, sets(source, call), grid, meta, wanted, parts * m * n)


def stream(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    count = blocks(m, tile[0]) * blocks(n, tile[1])
    total = count * blocks(k, tile[2])

    def call() -> tuple[Any, ...]:
        a, b = source.normal(m, k, dtype="fp16"), source.normal(k, n, dtype="fp16")
        return (a, b, zeros(a, m, n), zeros(a, count, dtype="int32"), m, n, k, total)

    grid, calls = (multiprocessors(),), sets(source, call)
    flops = 2 * m * n * k
    return Launches(several.stream_k, calls, grid, tiles(tile), {2: product}, flops, True)


def experts(tokens: int, count: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    """A mixture of experts, two for each token, of which the second half is weighted as it comes."""
    top_k = 2
    ids, owner, padded, of = several.routed(tokens, count, top_k, tile[0])

    def call() -> tuple[Any, ...]:
        x, w = source.normal(tokens, k), source.normal(count, n, k, deviation=k**-0.5)
        weights = source.normal(tokens * top_k, dtype="fp32")
        lists = (there(source, v) for v in (ids, owner, np.array([padded], np.int32)))
        sizes = (n, k, tokens * top_k, k, n * k, k, n)
        return (x, w, source.empty(tokens * top_k, n), weights, *lists, *sizes)

    def wanted(x: Any, w: Any, y: Any, weights: Any, *_: Any) -> Any:
        rows, found = repeated(x, top_k), float64(y)
        for e in range(count):
            mine = there(source, np.nonzero(of == e)[0])
            found[mine] = rows[mine] @ float64(w[e]).T
        return found * float64(weights)[:, None]

    meta = tiles(tile, GROUP_M=8, MUL_ROUTED_WEIGHT=True, top_k=top_k, compute_type=tl.bfloat16)
    grid = (padded // tile[0] * blocks(n, tile[1]),)
    calls = sets(source, call)
    flops = 2 * tokens * top_k * n * k
    dtypes = ("compute_type",)
    return Launches(several.moe, calls, grid, meta, {2: wanted}, flops, dtypes=dtypes)


def grouped(sizes: tuple[int, ...], n: int, k: int, tile: Tile, source: Source) -> Launches:
    """An expert each for groups of rows that lie one behind the other."""
    ends = np.cumsum(sizes).astype(np.int32)

    def call() -> tuple[Any, ...]:
        x, w = source.normal(int(ends[-1]), k), source.normal(len(sizes), k, n)
        return (x, w, source.empty(int(ends[-1]), n), there(source, ends), n, k)

    def wanted(x: Any, w: Any, y: Any, *_: Any) -> Any:
        found = float64(y)
        for e, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
            found[end - size : end] = product(x[end - size : end], w[e])
        return found

    meta, grid = tiles(tile, E=len(sizes)), (multiprocessors(),)
    flops = 2 * int(ends[-1]) * n * k
    calls = sets(source, call)
    return Launches(several.grouped_by_offsets, calls, grid, meta, {2: wanted}, flops)


def swiglu(m: int, n: int, k: int, tile: Tile, three: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        weights = (source.normal(n, k, deviation=k**-0.5) for _ in range(3))
        return (source.normal(m, k), *weights, source.empty(m, n), source.empty(m, n), m, n, k)

    wanted = {4: lambda x, g, u, *_: silu(product(x, g.T)) * product(x, u.T)}
    if three:
        wanted[5] = lambda x, g, u, v, *_: product(x, v.T)
    grid, meta = (blocks(m, tile[0]), blocks(n, tile[1])), tiles(tile, THREE=three)
    flops = (6 if three else 4) * m * n * k
    return Launches(several.swiglu, sets(source, call), grid, meta, wanted, flops)


def two_sums(m: int, n: int, k: int, tile: Tile, together: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        pairs = [(source.normal(m, k), source.normal(k, n)) for _ in range(2)]
        return (*pairs[0], *pairs[1], source.empty(m, n), m, n, k, k)

    def wanted(a: Any, b: Any, c: Any, d: Any, *_: Any) -> Any:
        return product(a, b) + product(c, d)

    grid, meta = (blocks(m, tile[0]), blocks(n, tile[1])), tiles(tile, TOGETHER=together)
    calls = sets(source, call)
    return Launches(several.sum_of_two, calls, grid, meta, {4: wanted}, 4 * m * n * k)


def complexes(m: int, n: int, k: int, tile: Tile, negate: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a, b = ([source.normal(*s) for _ in range(2)] for s in ((m, k), (k, n)))
        c = (source.empty(m, n, dtype="fp32") for _ in range(2))
        return (*a, *b, *c, m, n, k)

    wanted: Mapping[int, Callable[..., Any]] = {
        4: lambda ar, ai, br, bi, *_: product(ar, br) - product(ai, bi),
        5: lambda ar, ai, br, bi, *_: product(ar, bi) + product(ai, br),
    }
    grid, meta = (blocks(m, tile[0]), blocks(n, tile[1])), tiles(tile, NEGATE=negate)
    calls = sets(source, call)
    return Launches(several.complex_gemm, calls, grid, meta, wanted, 8 * m * n * k)


def convolution(images: int, size: int, channels: int, filters: int, taps: int, stride: int, tile: Tile,
                source: Source) -> Launches:  # fmt: skip
    pad = taps // 2
    p = (size + 2 * pad - taps) // stride + 1

    def call() -> tuple[Any, ...]:
        x = source.normal(images, size, size, channels, dtype="fp16")
        f = source.normal(filters, taps, taps, channels, dtype="fp16")
        y = source.empty(images, p, p, filters, dtype="fp16")
        return (x, f, y, images, size, size, channels, p, p, filters)

    def wanted(x: Any, f: Any, *_: Any) -> Any:
        import torch

        transposed = (v.double().permute(0, 3, 1, 2) for v in (x, f))
        return torch.nn.functional.conv2d(*transposed, stride=stride, padding=pad).permute(
            0, 2, 3, 1
        )

    meta = tiles(tile, R=taps, S=taps, STRIDE=stride, PAD=pad)
    grid = (blocks(images * p * p, tile[0]), blocks(filters, tile[1]))
    flops = 2 * images * p * p * filters * taps * taps * channels
    return Launches(several.conv2d, sets(source, call), grid, meta, {2: wanted}, flops)


def syrk(n: int, k: int, block: int, block_k: int, mirror: bool, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a = source.normal(n, k)
        return (a, zeros(a, n, n), n, k)

    def wanted(a: Any, *_: Any) -> Any:
        full = product(a, a.T)
        kept = full.view(n // block, block, n // block, block)
        for i in range(0 if mirror else n // block):
            kept[i, :, i + 1 :] = 0
        return full

    meta, grid = {"BLOCK": block, "BLOCK_K": block_k, "MIRROR": mirror}, (n // block,) * 2
    return Launches(several.syrk, sets(source, call), grid, meta, {1: wanted}, n * n * k, True)


def weight_grad(t: int, n_in: int, n_out: int, tile: Tile, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        x, dy = source.normal(t, n_in), source.normal(t, n_out)
        sums = (source.empty(*s, dtype="fp32") for s in ((n_out, n_in), (n_out,)))
        return (x, dy, *sums, t, n_in, n_out)

    wanted: Mapping[int, Callable[..., Any]] = {
        2: lambda x, dy, *_: product(dy.T, x),
        3: lambda x, dy, *_: float64(dy).sum(0),
    }
    grid, calls = (blocks(n_out, tile[0]), blocks(n_in, tile[1])), sets(source, call)
    return Launches(several.weight_grad, calls, grid, tiles(tile), wanted, 2 * t * n_in * n_out)


def lora(m: int, n: int, k: int, rank: int, tile: Tile, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a = source.normal(k, rank, deviation=k**-0.5)
        more = (source.normal(rank, n), source.empty(m, n), m, n, k, 2.0)
        return (source.normal(m, k), source.normal(k, n), a, *more)

    def wanted(x: Any, w: Any, a: Any, b: Any, *_: Any) -> Any:
        return product(x, w) + 2 * product(product(x, a), b)

    grid, meta = (blocks(m, tile[0]), blocks(n, tile[1])), tiles(tile, R=rank)
    flops = 2 * m * k * (n + rank) + 2 * m * n * rank
    return Launches(several.lora, sets(source, call), grid, meta, {4: wanted}, flops)


def block_sparse(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    """Every other block of A, at random."""
    there_is = np.random.default_rng(0).random((m // tile[0], k // tile[2])) < 0.5
    which = np.nonzero(there_is)[1].astype(np.int32)
    rows = np.concatenate([[0], np.cumsum(there_is.sum(1))]).astype(np.int32)

    def call() -> tuple[Any, ...]:
        a = source.normal(len(which), tile[0], tile[2])
        lists = (there(source, which), there(source, rows))
        return (a, source.normal(k, n), source.empty(m, n), *lists, m, n)

    def wanted(a: Any, b: Any, *_: Any) -> Any:
        full = float64(b).new_zeros(m // tile[0], tile[0], k // tile[2], tile[2])
        for at, (i, j) in enumerate(np.argwhere(there_is)):
            full[i, :, j] = float64(a[at])
        return full.view(m, k) @ float64(b)

    grid = (m // tile[0], blocks(n, tile[1]))
    flops = 2 * len(which) * tile[0] * tile[2] * n
    return Launches(several.banded, sets(source, call), grid, tiles(tile), {2: wanted}, flops)


# ---- corpus/formats.py


def tf32(m: int, n: int, k: int, tile: Tile, how: str, relu: bool, source: Source) -> Launches:
    found = strided(formats.matmul_f32, m, n, k, tile, "fp32", flat=False, source=source,
                    PRECISION=how, RELU=relu)  # fmt: skip
    if relu:
        found.wanted = {2: lambda a, b, *_: product(a.relu(), b)}
    return found


def two_layers(m: int, h: int, k: int, n: int, tile: Tile, source: Source) -> Launches:
    f32 = {"dtype": "fp32"}

    def call() -> tuple[Any, ...]:
        weights = (source.normal(k, h, **f32), source.normal(h, n, **f32))  # type: ignore[arg-type]
        return (source.normal(m, k, **f32), *weights, source.empty(m, n, **f32), m, h, k, n)  # type: ignore[arg-type]

    meta = tiles(tile, BLOCK_H=64)
    wanted = {3: lambda x, v, w, *_: product(product(x, v).relu(), w)}
    flops = 2 * m * h * (k + n)
    grid = (blocks(m, tile[0]),)
    return Launches(formats.two_layers, sets(source, call), grid, meta, wanted, flops)


def scaled_int8(m: int, n: int, k: int, tile: Tile, order: str, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a, b = whole(source, m, k), matrix(source, k, n, "int8", order)
        scales = (source.normal(x, dtype="fp32") for x in (m, n))
        return (a, b, source.empty(m, n), *scales, m, n, k, *strides(a), *strides(b))

    def wanted(a: Any, b: Any, c: Any, sa: Any, sb: Any, *_: Any) -> Any:
        return product(a, b) * float64(sa)[:, None] * float64(sb)

    grid, meta = (blocks(m, tile[0]) * blocks(n, tile[1]),), tiles(tile, GROUP_M=8)
    calls = sets(source, call)
    return Launches(formats.scaled_int8, calls, grid, meta, {2: wanted}, 2 * m * n * k)


def zero_points(m: int, n: int, k: int, tile: Tile, source: Source) -> Launches:
    def call() -> tuple[Any, ...]:
        a = whole(source, m, k, dtype="uint8", low=0, high=256)
        return (a, whole(source, n, k), source.empty(m, n, dtype="int32"), m, n, k)

    wanted = {2: lambda a, b, *_: (float64(a) - 7) @ float64(b).T}
    grid, meta = (blocks(m, tile[0]), blocks(n, tile[1])), tiles(tile, ZERO=7)
    calls = sets(source, call)
    return Launches(formats.zero_points, calls, grid, meta, wanted, 4 * m * n * k)


def cases() -> dict[str, Callable[..., Launches]]:
    """Each takes `source`."""
    wide, square, small = (128, 256, 64), (128, 128, 64), (64, 128, 64)
    big = (4096, 4096, 4096)
    found: dict[str, Callable[..., Launches]] = {}
    for orders in ("rr", "rc", "cr", "cc"):
        found[f"matmul {orders}"] = partial(strided, plain.matmul, *big, wide, orders=orders)
    matmul = partial(strided, plain.matmul)
    found |= {
        "matmul f16 128x128": partial(matmul, *big, square, "fp16"),
        "matmul K 512": partial(matmul, 8192, 4096, 512, wide),
        "matmul 1024": partial(matmul, 1024, 1024, 1024, small),
        "matmul odd": partial(matmul, 4000, 4001, 4003, square, orders="rr"),
        "matmul e4m3": partial(matmul, *big, (128, 256, 128), "e4m3", out="bf16"),
        "matmul e4m3 rr": partial(matmul, *big, (128, 128, 128), "e4m3", "rr", out="bf16"),
        "matmul int8": partial(matmul, *big, (128, 128, 128), "int8", out="int32"),
        "decode 16": partial(matmul, 16, 4096, 4096, (16, 64, 128)),
        "decode 32": partial(matmul, 32, 4096, 4096, (32, 64, 128)),
        "decode 64": partial(matmul, 64, 4096, 4096, (64, 64, 128)),
        "decode 16 rr": partial(matmul, 16, 4096, 4096, (16, 64, 128), orders="rr"),
        "hinted": partial(
            strided, plain.matmul_hinted, *big, (128, 128, 32), "fp16", EVEN_K=True, GROUP_M=8
        ),
        "hinted odd K": partial(
            strided, plain.matmul_hinted, 4096, 4096, 4000, square, "fp16", EVEN_K=False, GROUP_M=8
        ),
        "blocks K 512": partial(
            strided, plain.matmul_blocks, 8192, 4096, 512, square, "fp16", "rr", flat=False, GROUP_M=8
        ),
        "blocks rr": partial(
            strided, plain.matmul_blocks, *big, wide, "fp16", "rr", flat=False, GROUP_M=8
        ),
        "batched": partial(batched, 16, 2048, 2048, 512, square),
        "bmm": partial(bmm, 64, 1024, 1024, 128, (128, 128, 32)),
        "bmm odd": partial(bmm, 64, 1000, 1000, 120, (128, 128, 32)),
        "flat": partial(flat, *big, square),
        "asked": partial(asked, *big, square, False),
        "asked for tasks": partial(asked, *big, square, True),
        "linear gelu": partial(linear, 4096, 4096, 1024, square, "gelu", False),
        "linear silu kept": partial(linear, 4096, 4096, 1024, square, "silu", True),
        "beta": partial(beta, *big, square),
        "quantised": partial(quantised, *big, square),
        "int8 weights": partial(int8_weights, *big, square, False),
        "int8 weights with zeros": partial(int8_weights, *big, square, True),
        "int8 weights, 64 rows": partial(int8_weights, 64, 4096, 4096, (64, 64, 64), False),
        "int8 weights, 16 rows": partial(int8_weights, 16, 4096, 4096, (16, 64, 128), False),
        "gptq": partial(gptq, *big, small),
        "gptq, 64 rows": partial(gptq, 64, 4096, 4096, (64, 64, 64)),
        "interleaved": partial(interleaved, *big, square),
        "mixed f32": partial(mixed, 4096, square, "fp32", "fp32", "rc"),
        "mixed e4m3 by bf16": partial(mixed, 4096, square, "e4m3", "bf16", "rr"),
        "mixed bf16 by e4m3": partial(mixed, 4096, square, "bf16", "e4m3", "rc"),
        "mixed bf16 by e4m3 rr": partial(mixed, 4096, square, "bf16", "e4m3", "rr"),
        "mixed f16 by int8": partial(mixed, 4096, square, "fp16", "int8", "rc"),
        "blocks of scales": partial(block_scaled, *big, (64, 128, 128), False),
        "blocks of scales 128": partial(block_scaled, *big, (128, 128, 128), False),
        "deepseek": partial(block_scaled, *big, (64, 128, 128), True),
        "layer norm": partial(normed, 4096, 4096, 1024, small, True),
        "rms norm": partial(normed, 4096, 4096, 1024, square, False),
        "split K, atomics": partial(split, 64, 4096, 8192, (64, 64, 64), 8, "atomic"),
        "split K, 16 rows": partial(split, 16, 4096, 4096, (16, 64, 128), 4, "atomic"),
        "split K, parts": partial(split, 512, 1024, 8192, square, 4, "parts"),
        "split K, the last adds": partial(split, 512, 1024, 8192, square, 4, "locked"),
        "parts added": partial(add_parts, 512, 4096, 8),
        "stream K": partial(stream, 4096, 3072, 4096, (128, 128, 32)),
        "experts": partial(experts, 4096, 8, 4096, 4096, square),
        "experts 64": partial(experts, 1024, 8, 4096, 4096, (64, 128, 64)),
        "experts, few rows": partial(experts, 64, 8, 4096, 4096, (16, 128, 128)),
        "grouped": partial(grouped, (1024,) * 8, 4096, 4096, square),
        "grouped uneven": partial(
            grouped, (100, 0, 2000, 700, 1300, 5, 3000, 1087), 4096, 4096, square
        ),
        "swiglu": partial(swiglu, 4096, 4096, 4096, (128, 128, 64), False),
        "three shared": partial(swiglu, 4096, 4096, 4096, (128, 64, 64), True),
        "two sums": partial(two_sums, 4096, 4096, 2048, square, False),
        "two sums together": partial(two_sums, 4096, 4096, 2048, square, True),
        "complex": partial(complexes, 2048, 2048, 2048, (64, 64, 64), False),
        "complex negated": partial(complexes, 2048, 2048, 2048, (128, 64, 64), True),
        "convolution 64": partial(convolution, 32, 56, 64, 64, 3, 1, (128, 64, 64)),
        "convolution 256": partial(convolution, 32, 28, 256, 256, 3, 1, square),
        "convolution 1x1": partial(convolution, 32, 28, 512, 256, 1, 1, square),
        "syrk": partial(syrk, 4096, 4096, 128, 64, False),
        "syrk mirrored": partial(syrk, 4096, 1024, 128, 64, True),
        "weight gradient": partial(weight_grad, 8192, 4096, 4096, square),
        "lora 16": partial(lora, *big, 16, square),
        "lora 64": partial(lora, *big, 64, square),
        "block-sparse": partial(block_sparse, *big, square),
        "f32": partial(tf32, *big, (128, 128, 32), "tf32", False),
        "f32 relu": partial(tf32, *big, (128, 128, 32), "tf32", True),
        "f32 three times": partial(tf32, *big, (128, 128, 32), "tf32x3", False),
        "f32 layers": partial(two_layers, 16384, 1024, 256, 64, (64, 64, 32)),
        "int8 scaled": partial(scaled_int8, *big, (128, 128, 128), "c"),
        "int8 scaled rr": partial(scaled_int8, *big, (128, 128, 128), "r"),
        "zero points": partial(zero_points, 4096, 4096, 4096, (128, 128, 128)),
    }  # fmt: skip
    return found
