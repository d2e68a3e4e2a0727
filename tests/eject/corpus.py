"""The kernels that ejecting is tested on, with arguments: the library's, and those of tests/e2e."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.e2e import kernels, road
from tests.e2e.gemms import DESCRIBED, EIGHT_BIT, KNOBS, PRODUCERS, SIXTEEN_BIT, Gemm
from warploom.kernels.gemm import GEMM_CONFIGS
from warploom.runtime.compiled import CompiledKernel

BF16 = ml_dtypes.bfloat16
TILES = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}
PLAIN = {"num_consumer_groups": 0, "num_warps": 4}


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
    for i in (0, 4, 7, 8, 10):
        config = GEMM_CONFIGS[i]
        tile = tuple(config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
        g = Gemm(160, 104, 72, blocks=tile)  # type: ignore[arg-type]
        found[f"config{i}"] = _gemm(g, dict(config.all_kwargs))
    return {**found, **_others()}
