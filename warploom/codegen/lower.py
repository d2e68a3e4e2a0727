"""The table: what each op kind that is legal at PLACED becomes in C++.

A lowering function takes the emitter and the op, reads operands through the emitter's readers and writes
lines.  `yield` belongs to whoever lowers the op around it, `tasks` is the kernel's frame (emit.py).
"""

from __future__ import annotations

from warploom.codegen import (
    lower_arith,
    lower_atomics,
    lower_barriers,
    lower_boxes,
    lower_casts,
    lower_combine,
    lower_control,
    lower_dots,
    lower_memory,
    lower_shared,
    lower_tiles,
    lower_tma,
    lower_unaligned,
    lower_wgmma,
)
from warploom.codegen.context import Lowering
from warploom.ir.core import OpKind

_PARTS = (
    lower_arith, lower_atomics, lower_barriers, lower_boxes, lower_casts, lower_combine,
    lower_control, lower_dots, lower_memory, lower_shared, lower_tiles, lower_tma, lower_unaligned,
    lower_wgmma,
)  # fmt: skip
LOWER: dict[OpKind, Lowering] = {kind: how for part in _PARTS for kind, how in part.LOWER.items()}
