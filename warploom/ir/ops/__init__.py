"""Every op kind, declared once: signature = schema, docstring = semantics, body = type rule."""

from warploom.ir.ops import (
    arith,
    cluster,
    control,
    mbarrier,
    mma,
    regs,
    smem,
    task,
    tile,
    tma,
    unaligned,
)

__all__ = [
    "arith",
    "cluster",
    "control",
    "mbarrier",
    "mma",
    "regs",
    "smem",
    "task",
    "tile",
    "tma",
    "unaligned",
]
