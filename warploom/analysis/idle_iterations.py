"""Iterations that are of no use to one of the groups that share a tile.  Decides nothing.

*After the end.*  A tile reaches beyond what is stored: 6 tiles of 192 rows cover 1024, the last with 64 of
its rows.  A group whose rows all lie after the end computes what no store writes down.

    for j in lo … hi:  acc = acc + a[rows, j]·b[j]        every store that acc reaches writes boxes of
    store_box(%view, acc, rows, …)                        a view that ends before the group's rows begin

`dropping` finds the stores that decide it, by following what the loop gives.

*Masked.*  Where a mask lets nothing through, an iteration of an online softmax changes nothing: the scores
are -inf, so maxima stay, their exponentials are 0 and what is carried is scaled by 1.  `masked` finds that
by computing the loop's body with what is known: constants, and terms that are equal because they are
computed alike.  It takes numbers to be finite, as 0·v = 0 and x - x = 0 need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from warploom.analysis.access import Accesses
from warploom.analysis.loop_overlap import split_point
from warploom.analysis.mask_ranges import Bounds, UnknownError, ahead_of, bare
from warploom.analysis.structure import Structure
from warploom.ir.analysis import is_pure, moved, must_run
from warploom.ir.core import Builder, Family, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Tile, dtype_of, shape_of


class UsedError(Exception):
    """What an iteration computes is of use to every group; the message says for what."""


# ---- after the end


def dropping(
    accesses: Accesses,
    loop: Op,
    axis_of: Callable[[Value], int | None],
    mine: Callable[[Op], bool],
) -> tuple[Op, ...]:
    """The stores without which nobody would see what `loop` computes: each writes a part of its box that is
    the group's own, whose place is known before the loop.  Raises UsedError.

    axis_of: the axis along which groups share a value; mine: do they run the op?"""
    structure = accesses.structure
    _check_effects(loop, mine)
    found: dict[Op, None] = {}
    seen: set[Value] = set()
    work = list(loop.results)
    while work:
        v = work.pop()
        if v in seen:
            continue
        seen.add(v)
        for o in structure.users.get(v, ()):
            kept = o.operands[2:] if o.kind is tile.store_box else o.operands[:1] + o.operands[2:]
            if o.kind in (tile.store_box, tile.store) and v is o.operands[1] and v not in kept:
                found[o] = None
            else:
                work += _passed_on(structure, loop, o, v)
    for o in found:
        axis = axis_of(o.operands[1])
        if axis is None:
            raise UsedError(f"{o.id} is not shared by the groups")
        write = partial(outside, accesses=accesses, store=o, axis=axis)
        _dry(structure, loop, o, write)
    if not found:
        raise UsedError("no store shows what becomes of it")
    return tuple(found)


def _check_effects(loop: Op, mine: Callable[[Op], bool]) -> None:
    for o in walk(loop.regions[0]):
        if mine(o) and o.kind.family is not Family.PROMISE and any(map(must_run, o.all_ops)):
            raise UsedError(f"{o.id} is in it")


def _passed_on(structure: Structure, loop: Op, o: Op, v: Value) -> list[Value]:
    """What follows from v by way of op o.  Raises UsedError where it is more than values."""
    if o.kind is control.yield_:
        outer = structure.parent[o]
        is_arm = outer is not None and outer.kind is control.if_
        if outer is None or not (
            is_arm or (outer.kind is control.for_ and outer not in structure.enclosing(loop))
        ):
            raise UsedError(f"{v.hint or 'a value'} goes on to the next tile")
        return [x for c in control.carried(outer) if v in c.yielded for x in (*c.params, c.result)]
    if o.kind is control.for_ and v not in control.deciding(o):
        return [x for c in control.carried(o) if v in c.init for x in (*c.params, c.result)]
    if o.regions or not is_pure(o):
        raise UsedError(f"{o.id or o.kind.name} needs {v.hint or 'a value'}")
    return list(o.results)


def outside(bounds: Bounds, accesses: Accesses, store: Op, axis: int) -> Value:
    """Whether a store's part lies after the end of what it writes to.  Raises UnknownError."""
    if store.kind is tile.store:
        if len(store.operands) < 3:
            raise UnknownError(f"{store.id}, which has no mask")
        return bounds.never(store.operands[2])
    view = accesses.view(store)
    if view is None:
        raise UnknownError(f"the view of {store.id}")
    at = len(store.operands) - 2 - len(shape_of(store.operands[1].type)) + axis
    if (accesses.facts.constant(view.operands[1 + at]) or 0) >= tile.UNBOUNDED:
        raise UnknownError(f"where the memory of {store.id} ends")
    start, end = (bounds.scalar(v) for v in (store.operands[2 + at], view.operands[1 + at]))
    if start.type != end.type:
        start = arith.cast(bounds.b, start, dtype=dtype_of(end.type))
    return arith.ge(bounds.b, start, end)


def _dry(structure: Structure, loop: Op, o: Op, write: Callable[[Bounds], object]) -> None:
    """Raises UsedError where `write` could not be done before the loop."""
    scalar = ahead_of(structure, loop)
    try:
        write(Bounds(Builder(), structure, scalar, loop.regions[0].params[0]))
    except UnknownError as e:
        raise UsedError(f"{o.id} depends on {e}, which is not known in front of it") from e


# ---- masked


@dataclass(frozen=True)
class Masked:
    """A `select` whose condition, where it is false everywhere, makes an iteration one without effect; the
    branch that holds it (None: it stands in the loop's own block); numbers that have to be positive for it,
    as indices of the function's parameters."""

    select: Op
    branch: Op | None
    positive: tuple[int, ...]


def masked(structure: Structure, loop: Op, mine: Callable[[Op], bool]) -> Masked:
    """The mask of a loop.  Raises UsedError."""
    _check_effects(loop, mine)
    (body,) = loop.regions
    why = "it has no mask"
    for branch, region in ((None, body), *((o, r) for o in body.ops for r in o.regions)):
        for o in region.ops:
            if o.kind is not arith.select or not isinstance(o.operands[0].type, Tile):
                continue
            step = _Step(structure, body, o, branch)
            try:
                step.run()
            except UsedError as used:
                why = str(used)
                continue
            _dry(structure, loop, o, partial(Bounds.false_from, mask=o.operands[0]))
            return Masked(o, branch, tuple(step.positive))
    raise UsedError(why)


Term = Hashable


@dataclass(eq=False)
class _Step:
    """One iteration, the mask of `select` false everywhere.  Equal terms are equal numbers: a float is one,
    a value that is not looked into another, an op with its operands' terms a third."""

    structure: Structure
    body: Region
    select: Op
    branch: Op | None
    env: dict[Value, Term] = field(default_factory=dict)
    positive: dict[int, None] = field(default_factory=dict)

    def run(self) -> None:
        """Raises UsedError where a carried value changes."""
        self.ops(self.body)
        for p, end in zip(self.body.params[1:], self.body.yielded, strict=True):
            if self.term(end) != p:
                raise UsedError(f"without effect of its mask {p.hint or 'a value'} changes")

    def term(self, v: Value) -> Term:
        if v not in self.env:
            o = self.structure.maker(v)
            outer = o is not None and not o.regions and is_pure(o) and len(o.results) == 1
            self.env[v] = self.op(o) if outer and o is not None else v
        return self.env[v]

    def ops(self, region: Region) -> None:
        for o in region.ops[:-1]:
            if o is self.branch:
                point = split_point(self.body, o)
                if point is None:
                    raise UsedError(f"{o.id} does not change its way once")
                arm = o.regions[1 - point.before]
                if self.select not in arm.ops:
                    raise UsedError(f"{o.id} masks what comes first")
                self.ops(arm)
                self.env |= zip(o.results, map(self.term, arm.yielded), strict=True)
            elif o.regions or not is_pure(o) or len(o.results) != 1:
                self.env |= ((v, v) for v in o.results)
            else:
                self.env[o.result] = self.op(o)

    def op(self, o: Op) -> Term:
        if o is self.select:
            return self.term(o.operands[2])
        x, *more = (*map(self.term, o.operands), None)
        y = more[0] if more else None
        found = self.simple(o, x, y)
        if found is not None:
            return found
        attrs = tuple(sorted((k, str(v)) for k, v in o.attrs.items()))
        return o.kind.name, attrs, tuple(map(self.term, o.operands))

    def simple(self, o: Op, x: Term, y: Term) -> Term | None:
        """What o comes to, if it is less than o of its operands."""
        kind = o.kind
        if kind is arith.const:
            return float(o.attrs["value"]) if dtype_of(o.result.type).is_float else None
        if moved(o) is not None or (kind is arith.cast and x in (0.0, 1.0, -math.inf)):
            return x if isinstance(x, float) else None
        if kind is tile.reduce:
            same = -math.inf if o.attrs["fn"] == "max" else 0.0 if o.attrs["fn"] == "add" else None
            return x if x == same and isinstance(x, float) else None
        if kind in (arith.exp, arith.exp2) and isinstance(x, float):
            return {0.0: 1.0, -math.inf: 0.0}.get(x)
        if kind is arith.maximum and -math.inf in (x, y):
            return x if y == -math.inf else y
        if kind is tile.dot and 0.0 in (x, y):
            return self.term(o.operands[2])
        if kind is arith.add and 0.0 in (x, y):
            return x if y == 0.0 else y
        if kind is arith.sub and (x == y) != (x == -math.inf):
            return 0.0 if x == y else x
        if kind is arith.mul:
            return self.product(o, x, y)
        return None

    def product(self, o: Op, x: Term, y: Term) -> Term | None:
        if 0.0 in (x, y):
            return 0.0
        if 1.0 in (x, y):
            return x if y == 1.0 else y
        for limit, factor in ((x, o.operands[1]), (y, o.operands[0])):
            number = self.parameter(factor) if limit == -math.inf else None
            if number is not None:
                self.positive[number] = None
                return limit
        return None

    def parameter(self, v: Value) -> int | None:
        """Which of the function's parameters is spread over tile v."""
        made = self.structure.made[bare(self.structure, v)]
        return made.number if made.op is None else None
