"""self.cuda and self.utils: layouts that hosts and scripts ask for, and helpers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warploom.explicit.operands import known_int
from warploom.frontend.language.core import builtin
from warploom.frontend.language.math import cdiv
from warploom.frontend.refuse import refuse
from warploom.ir.types import DType
from warploom.layout import Layout, mma_acc, mma_operand, warp_grid
from warploom.layout.modes import RegisterLayout, auto_local_spatial


@dataclass(frozen=True)
class DotConfig:
    """Layouts of a product in registers: of a (m, k), b (k, n), and the sum c (m, n)."""

    la: Layout
    lb: Layout
    lc: Layout


@dataclass(frozen=True)
class SharedLayout:
    """A shared tensor whose rows are swizzled, as they are by default."""

    dtype: DType | None
    shape: tuple[int, ...]


class Cuda:
    """self.cuda: layouts that instructions take, for scripts and their __init__."""

    @builtin
    def resolve_dot_config(
        self,
        operand_dtype: Any,
        acc_dtype: Any = None,
        *,
        m: Any,
        n: Any,
        k: Any,
        num_warps: Any = None,
        warp_m: Any = None,
        warp_n: Any = None,
    ) -> DotConfig:
        """Layouts .la, .lb and .lc of a product of (m, k) by (k, n) by mma.sync, for annotate_layout: by
        warp_m × warp_n warps, or by num_warps, so that a warp reads as little as can be."""
        rows, columns, depth, warps = (known_int(x) for x in (m, n, k, num_warps))
        grid: tuple[Any, ...] = known_int(warp_m), known_int(warp_n)
        if None in grid:
            if warps is None:
                refuse(
                    "dot-config", "no number of warps", "give num_warps=, or warp_m= and warp_n="
                )
            grid = warp_grid((rows, columns), warps, False)
        try:
            acc = mma_acc((rows, columns), grid, warps or grid[0] * grid[1])
            left, right = (mma_operand(acc, axis, depth, operand_dtype.bits) for axis in (0, 1))
        except ValueError as e:
            refuse(
                "dot-config",
                str(e),
                "a warp takes 32 bytes of K, or more, and the warps share rows and columns",
            )
        return DotConfig(left, right, acc)

    @builtin
    def default_register_layout(self, num_warps: Any, dtype: Any, shape: Any) -> RegisterLayout:
        """The layout of a tensor by so many warps: neighbouring threads along its last axes."""
        sizes = tuple(map(known_int, shape))
        try:
            return auto_local_spatial(32 * known_int(num_warps), sizes)
        except ValueError as e:
            refuse("annotate", str(e), "leave the layout to the instructions")

    @builtin
    def shared_layout(self, shape: Any) -> SharedLayout:
        """A shared tensor of this shape, whatever its dtype."""
        return SharedLayout(None, tuple(map(known_int, shape)))

    @builtin
    def swizzled_shared_layout(self, dtype: Any, shape: Any) -> SharedLayout:
        """The layout of a shared tensor of this shape: swizzled rows, which is the default."""
        return SharedLayout(dtype, tuple(map(known_int, shape)))


class Utils:
    """self.utils: helpers."""

    ceil_div = staticmethod(cdiv)
    cdiv = staticmethod(cdiv)
