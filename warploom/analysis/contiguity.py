"""Runs: which elements of a tile of pointers are adjacent, aligned, and masked alike, so that one access may
move several.

For pointers that are no box of a strided array (rows that an index names, a base read from memory, `other`
that is not zero).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.analysis.facts import Facts, facts_of
from warploom.ir.analysis import uses
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Tile, bf16, elem_of, f16, f32, pointee_of

_VECTOR_BYTES = 16


def run_of(facts: Facts, o: Op) -> tuple[int, int] | None:
    """(axis, n): groups of n > 1 elements that a load or store by pointers may move at once."""
    if o.attrs.get("volatile"):
        return None
    if told := o.attrs.get("run"):
        axis, n = told
        return axis, n
    return groups(facts, o.operands[0], o.operands[1 if o.kind is tile.load else 2 :][:1])


def groups(facts: Facts, pointers: Value, masks: Sequence[Value]) -> tuple[int, int] | None:
    """The same of pointers and the masks of an access (none, or one)."""
    if not isinstance(pointers.type, Tile):
        return None
    size = pointee_of(pointers.type).bytes
    for axis, extent in reversed(tuple(enumerate(pointers.type.shape))):
        known = facts.axis(pointers, axis)
        if extent == 1 or (known.slope != 1 and known.contiguity == 1):
            continue
        n = math.gcd(_VECTOR_BYTES // size, known.contiguity, extent)
        for mask in masks:
            n = math.gcd(n, facts.axis(mask, axis).constancy)
        return (axis, n) if n > 1 else None
    return None


def with_runs(func: Func) -> Func:
    """Loads and stores by pointers say which elements they may move at once; so do atomics that add floats of
    at most 32 bits and whose result nobody looks at (PTX ISA, "red", of vectors)."""
    facts, used = facts_of(func), uses(func.body)

    def may(o: Op) -> bool:
        if o.kind is not tile.atomic:
            return o.kind in (tile.load, tile.store)
        adds = o.attrs["fn"] == "add" and elem_of(o.result.type) in (f32, f16, bf16)
        return adds and o.result not in used

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if not may(o) or o.attrs.get("run"):
            return None
        run = run_of(facts, o)
        if run is None:
            return None
        b.append(o.with_(attrs={**o.attrs, "run": run}))
        return o.results

    return rewrite(func, rule)
