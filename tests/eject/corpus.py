"""The kernels that ejecting is tested on, with arguments: the library's, and those of tests/e2e."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import warploom as wl
import warploom.language as tl
from corpus import tutorials
from tests.e2e import kernels, road
from tests.e2e.gemms import DESCRIBED, EIGHT_BIT, KNOBS, PRODUCERS, SIXTEEN_BIT, TRANSPOSED, Gemm
from warploom.kernels.gemm import GEMM_CONFIGS
from warploom.runtime.compiled import CompiledKernel

BF16 = ml_dtypes.bfloat16
TILES = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}
PLAIN = {"num_consumer_groups": 0, "num_warps": 4}


@wl.jit
def hinted(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """A product with everything that a loop may ask for, by block pointers."""
    b_block = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, 0), (BLOCK_K, BLOCK_N), (1, 0))
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    for t in tl.range(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0), warp_specialize=True
    ):
        tl.device_assert(t * BLOCK_M < M, "inside")
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        b = b_block
        for k in tl.range(0, K, BLOCK_K, num_stages=2, loop_unroll_factor=2):
            acc = tl.dot(a.load([t * BLOCK_M, k]), tl.load(b, boundary_check=(0, 1)), acc)
            b = tl.advance(b, (BLOCK_K, 0))
        c.store([t * BLOCK_M, 0], acc.to(tl.bfloat16))


@wl.jit
def assorted(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """What the others don't do: a while, 64-bit numbers, reshapes, the rarer atomics and reductions."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=3)
    total = tl.sum(tl.abs(x), axis=0)
    steps = 0
    while total > 10:
        total = total // 3
        steps += 1
    wide = x.to(tl.int64) * n
    transposed = tl.trans(tl.reshape((wide % 7).to(tl.int32), (2, BLOCK // 2)))
    best = tl.argmax(transposed, axis=1)
    tl.atomic_xor(out_ptr, tl.xor_sum(x, axis=0))
    tl.atomic_or(out_ptr + 1, steps)
    tl.atomic_and(out_ptr + 2, -steps)
    scale = tl.exp2(steps.to(tl.float32)) if steps % 2 == 0 else 0.5
    half = tl.where(best > 0, (best * scale).to(tl.float16), -1.0)
    if steps > 1:
        tl.store(out_ptr + 8 + tl.program_id(0), steps, mask=n > 0)
    else:
        tl.device_print("few steps", steps, total)
    where = out_ptr + 16 + tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
    tl.store(where, half.to(tl.int32))


@dataclass(frozen=True)
class Case:
    """A launch: `make` gives fresh arguments."""

    jit: Any
    make: Callable[[], list[Any]]
    grid: Any
    meta: dict[str, Any]

    def compiled(self) -> CompiledKernel:
        return road.compile_for(self.jit, self.make(), self.grid, self.meta)


def _gemm(g: Gemm, knobs: dict[str, Any]) -> Case:
    def make() -> list[Any]:
        return g.args(*g.arrays(np.random.default_rng(0)))

    return Case(g.jit, make, g.programs, {**g.meta, **knobs})


def _numbers(*shape: int, dtype: Any = BF16, low: int = -2, high: int = 3, pad: int = 0) -> Any:
    rng = np.random.default_rng(sum(shape))
    return road.filled(rng.integers(low, high, shape).astype(np.float32), dtype, pad=pad)


def _lead(a: Any) -> int:
    return int(a.strides[0]) // int(a.itemsize)


def _product(m: int, n: int, k: int, pad: int, rights: int, *more: Any) -> list[Any]:
    a = _numbers(m, k, pad=pad)
    bs = [_numbers(k, n + i, pad=pad)[:, :n] for i in range(rights)]
    c = road.array((m, n), np.float32)
    return [a, *bs, c, *(x() for x in more), m, n, k, _lead(a), _lead(bs[0]), _lead(c)]


def _gathered(product: list[Any], rows: Any) -> list[Any]:
    """The arguments of a product of as many rows as an index names."""
    a, b, _, _, n, k, lda, ldb, _ = product
    c = road.array((len(rows), n), np.float32)
    return [a, rows, b, c, len(rows), n, k, lda, ldb, _lead(c)]


def _others() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, pad in [("two-groups", 0), ("depth-1", 1), ("uniform", 4)]:
        found[f"gated-{name}"] = Case(
            kernels.gated, lambda pad=pad: _product(150, 100, 136, pad, 2), (2, 2),
            {**TILES, **KNOBS[name]},
        )  # fmt: skip
    found["gated-cluster"] = Case(
        kernels.gated, lambda: _product(150, 100, 136, 0, 2), (2, 2),
        {**TILES, **KNOBS["two-groups"], "BLOCK_M": 256, "num_ctas": 2},
    )  # fmt: skip
    for name, by_data in [("two-groups", False), ("depth-1", True), ("uniform", True)]:
        keep = lambda: road.filled(np.array([1, 0, 0, 1, 1, 0, 1, 1]), np.int32)  # noqa: E731
        found[f"block_sparse-{name}"] = Case(
            kernels.block_sparse, lambda keep=keep: _product(130, 70, 250, 0, 1, keep), (2, 2),
            {**TILES, **KNOBS[name], "BY_DATA": by_data},
        )  # fmt: skip
    for name, pad in [("two-groups", 0), ("one-group", 1), ("uniform", 0)]:
        sums = lambda: road.array((300,), np.float32)  # noqa: E731
        found[f"product_and_sums-{name}"] = Case(
            kernels.product_and_sums,
            lambda pad=pad, sums=sums: _product(300, 60, 100, pad, 1, sums), 2,
            {**TILES, **KNOBS[name]},
        )  # fmt: skip
    for name, pad in [("two-groups", 0), ("depth-1", 1), ("uniform-two", 2)]:
        index = lambda: road.filled(np.arange(150) * 7 % 130, np.int32)  # noqa: E731
        found[f"gathered-{name}"] = Case(
            kernels.gathered,
            lambda pad=pad, index=index: _gathered(_product(130, 70, 96, pad, 1), index()), 3,
            {**TILES, **KNOBS[name]},
        )  # fmt: skip
    for name in ("two-groups", "depth-1", "uniform"):
        found[f"batched-{name}"] = Case(
            kernels.batched,
            lambda: [
                _numbers(3, 140, 64), _numbers(3, 64, 72), road.array((3, 140, 72), np.float32),
                140, 72, 64,
            ],
            (2, 2, 3), {**TILES, **KNOBS[name]},
        )  # fmt: skip
    for name, softmax in [
        ("two-groups", True), ("one-group", False), ("depth-1", True), ("uniform", True),
    ]:  # fmt: skip
        found[f"attention-{name}"] = Case(
            kernels.attention,
            lambda: [
                _numbers(200, 64), _numbers(150, 64, high=2), _numbers(150, 64),
                road.array((200, 64), np.float32), 1.0, 200, 150,
            ],
            2, {"BLOCK_Q": 128, "BLOCK_K": 64, "HEAD": 64, "SOFTMAX": softmax, **KNOBS[name]},
        )  # fmt: skip
    found["two-phases"] = Case(
        tutorials.attention,
        lambda: [
            0.125, road.array((256,), np.float32), 1, 1, *(_numbers(256, 64) for _ in range(3)),
            road.array((256, 64), BF16), 256,
        ],
        (2, 1),
        {"HEAD_DIM": 64, "BLOCK_M": 128, "BLOCK_N": 64, "STAGE": 3, "WARP_SPECIALIZE": True},
    )  # fmt: skip
    for dtype in (np.float32, BF16, np.int32):
        found[f"add-{np.dtype(dtype).name}"] = Case(
            kernels.add,
            lambda dtype=dtype: [
                _numbers(500, dtype=dtype), _numbers(500, dtype=dtype, low=-5),
                road.array((500,), dtype), 500,
            ],
            2, {"BLOCK": 256, **PLAIN},
        )  # fmt: skip
    found["softmax_rows"] = Case(
        kernels.softmax_rows,
        lambda: [_numbers(5, 100, dtype=np.float32), road.array((5, 100), np.float32), 5, 100],
        2, {"BLOCK": 128, **PLAIN},
    )  # fmt: skip
    for warps in (1, 8):
        found[f"statistics-{warps}"] = Case(
            kernels.statistics,
            lambda: [
                _numbers(50, 40, dtype=np.int32, low=-100, high=100),
                road.filled(np.zeros(90), np.int32),
                *(road.filled(np.zeros(50), np.int32) for _ in range(2)), 50, 40,
            ],
            4, {"BLOCK_M": 16, "BLOCK_N": 64, **PLAIN, "num_warps": warps},
        )  # fmt: skip
    found["hinted"] = Case(
        hinted,
        lambda: [_numbers(300, 96), _numbers(96, 64), road.array((300, 64), BF16), 300, 64, 96],
        2, {**TILES, "num_consumer_groups": 2},
    )  # fmt: skip
    found["assorted"] = Case(
        assorted,
        lambda: [
            _numbers(200, dtype=np.int32, low=-9, high=30), road.filled(np.arange(300), np.int32), 200
        ],
        4, {"BLOCK": 64, **PLAIN},
    )  # fmt: skip
    found["histogram"] = Case(
        kernels.histogram,
        lambda: [
            _numbers(1000, dtype=np.int32, low=0, high=500),
            road.filled(np.zeros(17), np.int32), 1000,
        ],
        4, {"BINS": 16, "BLOCK": 256, **PLAIN},
    )  # fmt: skip
    return found


def cases() -> dict[str, Case]:
    """Name -> launch.  The knobs take turns over the GEMMs."""
    found: dict[str, Case] = {}
    names = itertools.cycle(KNOBS)
    for g in (*SIXTEEN_BIT, *EIGHT_BIT, *DESCRIBED, *(g for g, _ in PRODUCERS)):
        name = next(names)
        found[f"{g}-{name}"] = _gemm(g, KNOBS[name])
    for g in TRANSPOSED[::3]:
        found[f"{g}-transposed"] = _gemm(g, KNOBS["two-groups"])
    for i in (0, 4, 7, 8, 10):
        config = GEMM_CONFIGS[i]
        tile = tuple(config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
        g = Gemm(160, 104, 72, blocks=tile)  # type: ignore[arg-type]
        found[f"config{i}"] = _gemm(g, dict(config.all_kwargs))
    return {**found, **_others()}
