"""The library's Triton-style products, with data and results, for the simulator and a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import warploom as wl
from tests.explicit import products
from tests.explicit.products import E4M3, Inputs, Make
from warploom.kernels.dual import (
    DUAL_CONFIGS,
    DUAL_FP8_CONFIGS,
    DUAL_FP8_IN_ORDER_CONFIGS,
    DUAL_IN_ORDER_CONFIGS,
    dual_gemm_forward,
)
from warploom.kernels.fp8 import (
    FP8_CONFIGS,
    FP8_IN_ORDER_CONFIGS,
    FP8_PROMOTED_CONFIGS,
    FP8_PROMOTED_IN_ORDER_CONFIGS,
    FP8_TRANSPOSED_CONFIGS,
    fp8_gemm_rowwise,
)
from warploom.kernels.gemm import GEMM_CONFIGS, GEMM_IN_ORDER_CONFIGS, gemm_pointers
from warploom.kernels.gemm import config as gemm_config


@dataclass(frozen=True)
class LibraryProduct:
    """A kernel at one of its configs.  more: arguments between C and the sizes; strided: strides of A, Bᵀ and C
    behind them."""

    name: str
    kernel: Any
    config: wl.Config
    exact: Make
    random: Make
    wanted: Any
    pointers: tuple[str, ...]  # of inputs and C, in a signature
    more: tuple[float, ...] = ()
    strided: bool = False

    def __str__(self) -> str:
        tile = "x".join(str(self.config.kwargs[f"BLOCK_{axis}"]) for axis in "MNK")
        how = self.config.all_kwargs
        depth = how.get("num_buffers_warp_spec", f"warps{how.get('num_warps', 4)}")
        return f"{self.name}-{tile}-{self.config.kwargs['GROUP_M']}-{depth}"

    def arguments(self, inputs: Sequence[Any], c: Any, m: int, n: int, k: int) -> list[Any]:
        strides = (k, 1, 1, k, n, 1) if self.strided else ()
        return [*inputs, c, *self.more, m, n, k, *strides]

    @property
    def signature(self) -> list[str]:
        """All aligned."""
        strides = ["i32:16", "i32=1", "i32=1", "i32:16", "i32:16", "i32=1"] * self.strided
        return [*self.pointers, *["fp32"] * len(self.more), *["i32:16"] * 3, *strides]


def _narrow(make: Make) -> Make:
    """The same in e4m3."""

    def made(*args: Any) -> Inputs:
        return tuple(x.astype(E4M3) for x in make(*args))

    return made


def _dual(name: str, config: wl.Config, dtype: str, narrow: bool) -> LibraryProduct:
    exact, random = products.dual_exact, products.dual_random
    if narrow:
        exact, random = _narrow(exact), _narrow(random)
    pointers = (*[f"*{dtype}:16"] * 3, "*bf16:16")
    return LibraryProduct(
        name, dual_gemm_forward, config, exact, random, products.dual_wanted, pointers, (1.0, 1.0)
    )


def _stored(make: Make, config: wl.Config) -> Make:
    """The same as the kernel's config takes it."""

    def made(*args: Any) -> Inputs:
        a, b, *scales = make(*args)
        return (*_turned(a, b, config), *scales)

    return made


def _turned(a: Any, b: Any, config: wl.Config) -> tuple[Any, Any]:
    """Between operands as they are stored and as A (M, K) and B (N, K), either way."""
    stored = (config.kwargs.get(f"{name}_TRANSPOSED", False) for name in "AB")
    a, b = (np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), stored, strict=True))
    return a, b


def _fp8(name: str, config: wl.Config) -> LibraryProduct:
    def wanted(a: Any, b: Any, *scales: Any) -> Any:
        return products.fp8_wanted(*_turned(a, b, config), *scales)

    return LibraryProduct(
        name, fp8_gemm_rowwise, config, _stored(products.fp8_exact, config),
        _stored(products.fp8_random, config), wanted,
        (*["*fp8e4nv:16"] * 2, *["*fp32:16"] * 2, "*bf16:16"),
    )  # fmt: skip


def _gemm(config: wl.Config) -> LibraryProduct:
    task = "-task" if config.all_kwargs.get("store_task") else ""
    way = "-ping-pong" if config.all_kwargs.get("ping_pong") else ""
    return LibraryProduct(
        f"gemm{way}{task}", gemm_pointers, config, products.plain_exact, products.plain_random,
        products.plain_wanted, ("*bf16:16",) * 3, strided=True,
    )  # fmt: skip


GEMMS = [_gemm(config) for config in GEMM_CONFIGS]
PRODUCTS = [
    *(_dual("dual", config, "bf16", False) for config in DUAL_CONFIGS),
    *(_dual("dual-e4m3", config, "fp8e4nv", True) for config in DUAL_FP8_CONFIGS),
    *(_fp8("fp8", config) for config in FP8_CONFIGS),
    *(_fp8("transposed", config) for config in FP8_TRANSPOSED_CONFIGS),
    _fp8(
        "both-transposed",
        gemm_config(128, 128, 128, 8, 2, 3, A_TRANSPOSED=True, B_TRANSPOSED=True, PROMOTE=True),
    ),
    *(_fp8(f"promoted-{c.kwargs['BLOCK_N']}", c) for c in FP8_PROMOTED_CONFIGS),
]
# For chips without wgmma.
IN_ORDER = [
    *map(_gemm, GEMM_IN_ORDER_CONFIGS),
    *(_dual("dual", config, "bf16", False) for config in DUAL_IN_ORDER_CONFIGS),
    *(_dual("dual-e4m3", config, "fp8e4nv", True) for config in DUAL_FP8_IN_ORDER_CONFIGS),
    *(_fp8("fp8", config) for config in FP8_IN_ORDER_CONFIGS),
    *(_fp8("promoted", config) for config in FP8_PROMOTED_IN_ORDER_CONFIGS),
]
