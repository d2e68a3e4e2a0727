"""`while` loops whose conditions are known in advance, unrolled: a binary search over a table of known size.

Their trip count follows from constants, though not in equal steps; the first iterations then compute with
constants as well.

    before:  %low = while(%n = 5, %at = %x) do { %go = gt(%n, 1)  yield(%go, %n, %at) }
                 do { %half = idiv(%n, 2)  %y = f(%at)  yield(%half, %y) }
    after:   %y = f(%x)  %y1 = f(%y)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warploom.ir.core import Builder, Op, Region, Value
from warploom.ir.fold import Number, fold
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import inline
from warploom.ir.types import Scalar, dtype_of

MOST_TRIPS = 16
MOST_OPS = 512  # of all iterations


def unroll_while(
    o: Op, b: Builder, number: Callable[[Value], Number | None]
) -> Sequence[Value] | None:
    """A rule for ir/rewrite.py.  number: the constant that a value is."""
    condition, body = o.regions
    if any(x.kind is tile.dot for x in body.all_ops):
        return None
    trips = _trips(o, number)
    if trips is None or trips * len((*condition.all_ops, *body.all_ops)) > MOST_OPS:
        return None
    values: Sequence[Value] = o.operands
    for _ in range(trips):
        values = inline(b, body, inline(b, condition, values)[1:])
    return inline(b, condition, values)[1:]


def _trips(o: Op, number: Callable[[Value], Number | None]) -> int | None:
    """How many iterations there are, where constants tell."""
    condition, body = o.regions
    given: Sequence[Number | None] = [number(v) for v in o.operands]
    for trips in range(MOST_TRIPS + 1):
        go, *kept = _evaluated(condition, given, number)
        if go is None or not go:
            return None if go is None else trips
        given = _evaluated(body, kept, number)
    return None


def _evaluated(
    region: Region, given: Sequence[Number | None], number: Callable[[Value], Number | None]
) -> list[Number | None]:
    """What a region yields from these numbers, as far as constants tell."""
    env = dict(zip(region.params, given, strict=True))
    for o in region.ops[:-1]:
        if o.kind is arith.const:
            env[o.result] = o.attrs["value"]
        elif o.kind in arith.ELEMENTWISE and isinstance(o.result.type, Scalar):
            found = [env[v] if v in env else number(v) for v in o.operands]
            known = [n for n in found if n is not None]
            if len(known) == len(found) and o.kind not in arith.NOT_FOLDED:
                to = o.attrs.get("dtype")
                env[o.result] = fold(o.kind, known, dtype_of(o.operands[-1].type), to)
    return [env[v] if v in env else number(v) for v in region.yielded]
