"""Launches to look at word by word, where nothing is known for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.check.cases import Case, Steering
from warploom.ir.core import Func
from warploom.ir.ops import tile
from warploom.ir.types import Scalar

GRIDS = ((2, 1, 1), (7, 3, 2), (132, 2, 2))
FACTORS = (1, 3)


def examples(func: Func, searched: Sequence[Case]) -> list[Case]:
    """The largest of the inputs that were searched for, and one with all numbers three times as large (so
    that strides keep their relation to extents), on small and on large grids."""
    steering, facts = Steering(func), func.attrs.get("facts", ())
    free = [
        i
        for i, p in enumerate(func.params)
        if isinstance(p.type, Scalar)
        and p.type.dtype.is_int
        and (i >= len(facts) or facts[i].value is None)
    ]
    if not searched:
        return []
    largest = max(searched, key=lambda c: math.prod(1 + int(c.args[i]) for i in free))
    axes = {o.attrs["axis"] for o in func.body.all_ops if o.kind is tile.program_id}
    found = []
    for factor in FACTORS:
        more = {i: factor * int(largest.args[i]) for i in free}
        case = steering.case(largest.values[: len(func.params) + 1], more)
        grids = (case.grid,) if steering.has_own_grid else map(tuple, _grids(axes))
        found += [Case(case.args, grid) for grid in grids]
    return list({c.key: c for c in found}.values())


def _grids(axes: set[int]) -> list[tuple[int, ...]]:
    """On the axes that programs ask for."""
    return list(dict.fromkeys(tuple(n if i in axes else 1 for i, n in enumerate(g)) for g in GRIDS))
