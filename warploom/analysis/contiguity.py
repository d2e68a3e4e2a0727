"""Runs: which elements of a tile of pointers are adjacent, aligned, and masked alike, so that one access may
move several.

For pointers that are no box of a strided array (rows that an index names, a base read from memory, `other`
that is not zero).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import Interval
from warploom.ir.analysis import uses
from warploom.ir.core import Family, Func, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import annotate
from warploom.ir.types import Tile, bf16, dtype_of, elem_of, f16, f32, pointee_of

_VECTOR_BYTES = 16


def run_of(facts: Facts, o: Op) -> tuple[int, int] | None:
    """(axis, n): groups of n > 1 elements that a load or store by pointers may move at once."""
    if o.attrs.get("volatile"):
        return None
    if run := o.attrs.get("run"):
        axis, n = run
        return axis, n
    return groups(facts, o.operands[0], o.operands[1 if o.kind is tile.load else 2 :][:1])


def groups(facts: Facts, pointers: Value, masks: Sequence[Value]) -> tuple[int, int] | None:
    """The same of pointers and the masks of an access (none, or one)."""
    key = (pointers, *masks)
    if key not in facts.groups:
        facts.groups[key] = _groups(facts, pointers, masks)
    return facts.groups[key]


def _groups(facts: Facts, pointers: Value, masks: Sequence[Value]) -> tuple[int, int] | None:
    if not isinstance(pointers.type, Tile):
        return None
    size = pointee_of(pointers.type).bytes
    for axis, extent in reversed(tuple(enumerate(pointers.type.shape))):
        most = math.gcd(_VECTOR_BYTES // size, extent)
        inside, n = _where(facts, pointers, masks, axis, most)
        known = inside.axis(pointers, axis)
        if extent == 1 or (known.slope != 1 and known.contiguity == 1):
            continue
        n = math.gcd(n, known.contiguity)
        return (axis, n) if n > 1 else None
    return None


def _where(
    facts: Facts, pointers: Value, masks: Sequence[Value], axis: int, n: int
) -> tuple[Facts, int]:
    """What is known of pointers that a mask lets through, and of how many elements, n at most, the mask is
    alike: where x >= 2048, (x - 2048) % 64 < 32 goes by x as (y % 64) < 32 does by y >= 0."""
    known = [facts.axis(v, axis).constancy for v in masks]
    if not masks or (all(c % n == 0 for c in known) and facts.axis(pointers, axis).slope == 1):
        return facts, math.gcd(n, *known)
    places = _place_by_place(facts, pointers).keys() & _place_by_place(facts, masks[0]).keys()
    inside, held = facts, set[Value]()
    leaves = _conjuncts(facts, masks)
    while more := {v for v in leaves if v not in held and inside.axis(v, axis).constancy % n == 0}:
        held |= more
        inside = facts.where(_bounds(facts, held, places))
    return inside, math.gcd(n, *(inside.axis(v, axis).constancy for v in leaves))


def _conjuncts(facts: Facts, masks: Sequence[Value]) -> list[Value]:
    """The conditions that have to hold together."""
    found, pending = list[Value](), [*masks]
    for v in pending:
        o = facts.maker(v)
        if o is not None and o.kind is arith.and_:
            pending += o.operands
        else:
            found.append(v)
    return found


def _bounds(facts: Facts, conditions: set[Value], places: set[Value]) -> dict[Value, Interval]:
    """What comparisons that hold say of these values."""
    given: dict[Value, Interval] = {}
    for v in conditions:
        o = facts.maker(v)
        order = arith.ordered(o) if o is not None else None
        if order is None:
            continue
        less, more, strict = order
        low, high = facts.interval(less).low + strict, facts.interval(more).high - strict
        for x, bounds in ((less, {"high": high}), (more, {"low": low})):
            for same in _uncast(facts, x):
                if same in places:
                    given[same] = given.get(same, facts.interval(same)).refined(**bounds)
    return given


def _uncast(facts: Facts, x: Value) -> Iterator[Value]:
    """A number, and what it is a cast of that has the same value."""
    yield x
    while (o := facts.maker(x)) is not None and o.kind is arith.cast:
        if not facts.interval(o.operands[0]).within(facts.interval(x)):
            return
        x = o.operands[0]
        yield x


def _place_by_place(facts: Facts, pointers: Value) -> dict[Value, None]:
    """The integer tiles that each pointer follows from in its own place; none where it may follow from one in
    another place, too."""
    found: dict[Value, None] = {}
    pending = [pointers]
    for v in pending:
        o = facts.maker(v)
        if v in found or o is None:
            continue
        if o.kind.family in (Family.POINTWISE, Family.FILL, Family.NUMBER):
            pending += o.operands
        elif isinstance(v.type, Tile) or o.kind.family in (Family.COMBINE, Family.CONTROL):
            return {}
        if isinstance(v.type, Tile):
            found[v] = None
    return found


def decided(facts: Facts, o: Op) -> bool | None:
    """What a comparison of integers always gives, where their ranges tell."""
    order = arith.ordered(o)
    if order is None or not dtype_of(o.operands[0].type).is_int:
        return None
    less, more = (facts.interval(v) for v in order[:2])
    if less.high + order[2] <= more.low:
        return True
    return False if less.low + order[2] > more.high else None


def constancy(facts: Facts, o: Op, axis: int, most: int) -> int:
    """Of how many elements along an axis, `most` at most, a comparison o gives the same.

    A remainder goes on as what is divided, but other ways on either side of 0.  Where all of a group are on
    one side, each side is looked at by itself: x % 128 < 64 is alike for 8 adjacent x that begin at a
    multiple of 8, whatever their sign."""
    if decided(facts, o) is not None:
        return most
    n = math.gcd(facts.axis(o.result, axis).constancy, most)
    for x in _divided(facts, o):
        known, of_one_sign = facts.interval(x), math.gcd(facts.axis(x, axis).contiguity, most)
        if known.low < 0 <= known.high and of_one_sign > n:
            sides = (known.refined(low=0), known.refined(high=-1))
            parts = [constancy(facts.where({x: side}), o, axis, of_one_sign) for side in sides]
            return max(n, min(parts))
    return n


def _divided(facts: Facts, o: Op) -> Iterator[Value]:
    """What the remainders that op o follows from, place by place, are of."""
    for v in _place_by_place(facts, o.result):
        made = facts.maker(v)
        if made is not None and made.kind is arith.rem:
            yield made.operands[0]


def with_runs(func: Func) -> Func:
    """Loads and stores by pointers say which elements they may move at once; so do atomics that add floats of
    at most 32 bits and whose result nobody looks at (PTX ISA, "red", of vectors)."""
    facts, used = facts_of(func), uses(func.body)

    def may(o: Op) -> bool:
        if o.kind is not tile.atomic:
            return o.kind in (tile.load, tile.store)
        adds = o.attrs["fn"] == "add" and elem_of(o.result.type) in (f32, f16, bf16)
        return adds and o.result not in used

    def runs(o: Op) -> dict[str, object]:
        run = run_of(facts, o) if may(o) and not o.attrs.get("run") else None
        return {"run": run} if run is not None else {}

    return annotate(func, runs)
