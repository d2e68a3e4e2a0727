"""Carried sums: values that a loop only scales and adds row sums to.  Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from warploom.ir.analysis import definitions, only_user, uses
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import DType, Tile

SUM_COLUMNS = 8  # columns of a wgmma result after which the lanes repeat


def chain(
    start: Value, end: Value, users: Mapping[Value, Sequence[Op]], made: Mapping[Value, Op]
) -> tuple[Op, ...]:
    """The ops that take the carried value `start` to `end`, which the loop yields for it, if it is a rank-1
    tile of floats that they scale (mul, div by values of its shape) and add row sums to, and nothing else
    reads; the row sums' reduces are among them.  Empty where that is not so."""
    t = start.type
    if (
        not (isinstance(t, Tile) and isinstance(t.elem, DType) and t.elem.is_float)
        or len(t.shape) != 1
    ):
        return ()
    found: list[Op] = []
    at = start
    while True:
        o = only_user(users, at)
        if o is None:
            return ()
        if o.kind is control.yield_:
            sums = any(x.kind is tile.reduce for x in found)
            return tuple(found) if at is end and sums else ()
        if o.kind is arith.add:
            (other,) = (v for v in o.operands if v is not at)
            r = made.get(other)
            if r is None or not _is_row_sum(r) or only_user(users, other) is not o:
                return ()
            found.append(r)
        elif not (o.kind is arith.mul or (o.kind is arith.div and o.operands[0] is at)):
            return ()
        found.append(o)
        at = o.result


def _is_row_sum(o: Op) -> bool:
    if o.kind is not tile.reduce or o.attrs["fn"] != "add" or o.attrs["axis"] != 1:
        return False
    t = o.operands[0].type
    return isinstance(t, Tile) and len(t.shape) == 2 and t.shape[1] % SUM_COLUMNS == 0


def deferrable(loop: Op, from_dot: Callable[[Value], bool]) -> Iterable[Op]:
    """The row sums of dots' results (and of what is computed from them) that `loop` only adds up."""
    (body,) = loop.regions
    users, made = uses(body), definitions(body)
    here = set(body.ops)
    for p, end in zip(body.params[1:], body.yielded, strict=True):
        found = chain(p, end, users, made)
        sums = [o for o in found if o.kind is tile.reduce]
        if set(found) <= here and all(from_dot(o.operands[0]) for o in sums):
            yield from sums
