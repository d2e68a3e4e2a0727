"""Layouts: where elements live, in registers (linear, atoms) and in shared memory (shared).

Imports nothing of the IR.
"""

from warploom.layout.atoms import (
    along_axis,
    blocked,
    coalesced,
    is_group_acc,
    transposing,
    wgmma_a,
    wgmma_acc,
    whole,
)
from warploom.layout.fragments import (
    fma_acc,
    mma_acc,
    mma_operand,
    mma_scales,
    product_registers,
    warp_grid,
)
from warploom.layout.linear import Layout

__all__ = [
    "Layout",
    "along_axis",
    "blocked",
    "coalesced",
    "fma_acc",
    "is_group_acc",
    "mma_acc",
    "mma_operand",
    "mma_scales",
    "product_registers",
    "transposing",
    "warp_grid",
    "wgmma_a",
    "wgmma_acc",
    "whole",
]
