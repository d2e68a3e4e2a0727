"""Whether stores in loops keep out of each other's places, and what that takes.

A loop's iterations may keep apart whatever the loops around and in it do: by an axis of the place that these
don't change, or change by less than a step of that loop.  Those left then have to keep apart in one iteration
of that one:

    for t in range(n):                                 by 128 rows, and i adds 64 at most
        for i in range(2): out.store([t * 128 + i * 64, 0], …)      of 64 rows
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from warploom.analysis.facts import Facts
from warploom.analysis.moving_places import Extent, MovingPlace, Needs
from warploom.analysis.structure import Structure
from warploom.ir.analysis import backward_slice, moved, sources
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.types import shape_of

_FAR = 1 << 30  # what is known to change by so much is not known to be bounded


@dataclass(eq=False)
class StorePlaces:
    """The places that a function's stores write."""

    structure: Structure
    facts: Facts
    replicas: int = 1  # of a task, at most

    @cached_property
    def _sources(self) -> dict[Value, tuple[Value, ...]]:
        return sources(self.structure.root)

    def spacing(self, o: Op, sides: Sequence[float] = ()) -> Needs | None:
        """What has to hold for the iterations of all loops around a store to keep out of each other's places;
        None where that is not known to be so.  sides: of what a box's view gets in an iteration, if that is
        not the box."""
        starts: dict[Value, float] = dict(zip(o.operands[2:], sides or _sides(o), strict=False))
        starts = {v: n + self._spread(v, self._replicas) for v, n in starts.items()}
        left = [x for x in self.structure.loops(o) if self.repeats(x)]
        left = [x for x in left if self.varies((*self._base(o), *starts), x)]
        needs: Needs = frozenset()
        while left:
            for loop in left:  # one whose iterations keep apart whatever the other loops do
                others = {p for x in left if x is not loop for r in x.regions for p in r.params}
                moving = MovingPlace(loop, self.facts, self.structure, self._sources)
                if (found := moving.needs(self._extents(o, starts, moving, others))) is not None:
                    break
            else:
                return None
            needs |= found | self._axes(o, moving)
            left.remove(loop)
        return needs

    def _base(self, o: Op) -> tuple[Value, ...]:
        """The pointers that say where a store is, or its view."""
        if o.kind is not tile.store_box:
            return o.operands[:1]
        view = self.structure.maker(o.operands[0])
        return view.operands[:1] if view is not None and view.kind is tile.make_view else ()

    def _extents(
        self, o: Op, starts: Mapping[Value, float], moving: MovingPlace, others: Set[Value]
    ) -> dict[Value, Extent]:
        """What lies around the values that say where a store is, with all that other loops add to it."""
        own = {p for r in moving.loop.regions for p in r.params}
        ends = starts
        if not moving.is_shared:
            ends = {v: n + self._spread(v, others) for v, n in starts.items()}
        alone = {v: Extent(((1, int(n)),)) for v, n in ends.items() if n < math.inf}
        if o.kind is not tile.store_box:
            return {v: self._around(v, len(o.operands) > 2, others) for v in o.operands[:1]}
        base = self._base(o)
        if not base or moving.is_shared:
            return alone | dict.fromkeys(base, Extent((), True))
        view = self.structure.maker(o.operands[0])
        assert view is not None
        axes = self._box(o, view, others | own | self._replicas)
        if self.varies(base, moving.loop):
            known = Extent(tuple(x for x in axes if x is not None), is_trusted=True)
            return {} if self.varies(starts, moving.loop) else dict.fromkeys(base, known)
        if not others.isdisjoint(backward_slice(base, self._sources)):
            return {}
        extents = view.operands[1 : 1 + len(axes)]
        for a, (v, extent, axis) in enumerate(zip(o.operands[2:], extents, axes, strict=True)):
            end = self.facts.constant(extent)
            if v in alone and axis is not None and end and self._wraps(v, end, axis, axes):
                stride, *_ = axis
                around = [x for x in (*axes[:a], *axes[a + 1 :]) if x is not None]
                alone[v] = Extent((*around, (stride, int(ends[v]))), unit=abs(stride))
        return alone

    def _around(self, v: Value, is_masked: bool, others: Set[Value]) -> Extent:
        """The same of a tile of pointers."""
        counts = shape_of(v.type)
        slopes = [self.facts.axis(v, a).slope for a in range(len(counts))]
        known = [(s, n) for s, n in zip(slopes, counts, strict=True) if s]
        spread = self._spread(v, others | self._replicas)
        if 0 < spread < _FAR:
            known.append((1, 1 + int(spread)))
        return Extent(tuple(known), is_masked or None in slopes)

    def _box(self, o: Op, view: Op, moving: Set[Value]) -> list[tuple[int, int] | None]:
        """Of each axis of a view whose stride is known: that, and how many a box has there and loops add.
        An axis is taken to end where that of the next larger stride goes on, if a box does."""
        sides = _sides(o)
        strides = [self.facts.constant(x) for x in view.operands[1 + len(sides) :]]
        found: list[tuple[int, int] | None] = []
        ends = [self.facts.constant(x) or tile.UNBOUNDED for x in view.operands[1 : 1 + len(sides)]]
        for v, n, end, stride in zip(o.operands[2:], sides, ends, strides, strict=True):
            n = min(n, end)
            most = min(n + int(self._spread(v, moving)), end)
            if stride and (larger := [abs(s) for s in strides if s and abs(s) > abs(stride)]):
                most = min(most, max(n, -(-min(larger) // abs(stride))))
            found.append((stride, most) if stride else None)
        return found

    def _wraps(
        self, v: Value, end: int, axis: tuple[int, int], axes: Sequence[tuple[int, int] | None]
    ) -> bool:
        """May boxes along an axis go on into what others have along the next larger one, before its end?"""
        stride, n = abs(axis[0]), axis[1]
        larger = [abs(x[0]) for x in axes if x is not None and abs(x[0]) > stride]
        known = self.facts.interval(v)
        return not larger or min(end, known.high - known.low + n) * stride > min(larger)

    def _axes(self, o: Op, moving: MovingPlace) -> Needs:
        """What has to hold for a loop to move a box along axes of its view by more than what the box has
        along the others, as far as that is known: other strides are taken to be large enough."""
        view = self.structure.maker(o.operands[0])
        if o.kind is not tile.store_box or view is None or view.kind is not tile.make_view:
            return frozenset()
        if moving.is_shared:
            return frozenset()
        rank, sides = len(o.operands) - 2, _sides(o)
        extents, strides = view.operands[1 : 1 + rank], view.operands[1 + rank :]
        numbers = {p for x in self.structure.loops(o) for r in x.regions for p in r.params}
        spans = []  # of each axis what boxes have along it, where that is known
        for v, n, extent, stride in zip(o.operands[2:], sides, extents, strides, strict=True):
            most, by = self.facts.constant(extent), self.facts.constant(stride)
            spread = self._spread(v, numbers | self._replicas)
            n += int(spread) if spread < _FAR else 0
            spans.append(0 if most is None or by is None else (min(n, most) - 1) * abs(by))
        needs: Needs = frozenset()
        for a, (start, stride) in enumerate(zip(o.operands[2:], strides, strict=True)):
            if self.facts.constant(stride) is None and self.varies([start], moving.loop):
                others = sum(spans[:a] + spans[a + 1 :])
                needs |= moving.at_least(moving.size(stride), 1 + others) or frozenset()
        return needs

    @cached_property
    def _replicas(self) -> set[Value]:
        """Which replica of a task it is: what one stores the others have to keep out of."""
        return {o.result for o in self.structure.ops if o.kind is task.replica_id}

    def _spread(self, v: Value, moving: Set[Value]) -> float:
        """By how much v changes at most with these numbers, beside what is added to it without them."""
        if backward_slice([v], self._sources).isdisjoint(moving):
            return 0
        if v in self._replicas:
            return self.replicas - 1
        o = self.structure.maker(v)
        if o is not None and o.kind in (arith.add, arith.sub, arith.addptr):
            return sum(self._spread(x, moving) for x in o.operands)
        if o is not None and o.kind is arith.mul:
            for x, c in (o.operands, reversed(o.operands)):
                if (n := self.facts.constant(c)) is not None:
                    return abs(n) * self._spread(x, moving)
        inner = moved(o) if o is not None else None
        if o is not None and o.kind is arith.cast:
            inner = o.operands[0]
        if inner is not None:
            return self._spread(inner, moving)
        known = self.facts.interval(v)
        return known.high - known.low

    def beside(self, x: Op, y: Op) -> Needs | None:
        """What has to hold for two store_boxes of one view to write boxes a constant distance apart on some
        axis, in whatever iterations; None where that is not known to be so."""
        same = x.kind is y.kind is tile.store_box and x.operands[0] is y.operands[0]
        if not same or self.structure.parent[x] is not self.structure.parent[y]:
            return None
        loops = [o for o in self.structure.loops(x) if self.repeats(o)]
        both: list[float] = []  # of each axis what the two store, where their starts move as one
        is_apart = False
        for a, b, n, m in zip(x.operands[2:], y.operands[2:], _sides(x), _sides(y), strict=True):
            (root, i), (other, j) = self._shifted(a), self._shifted(b)
            both.append(max(i + n, j + m) - min(i, j) if root is other else math.inf)
            if root is other and abs(i - j) >= (n if i < j else m):
                is_apart = True
                if root is None or not any(self.varies([root], o) for o in loops):
                    return frozenset()
        return self.spacing(x, both) if is_apart else None

    def _shifted(self, v: Value) -> tuple[Value | None, int]:
        """v as (value, constant added to it); (None, v) for constants."""
        n = self.facts.constant(v)
        if n is not None:
            return None, n
        o = self.structure.maker(v)
        if o is not None and o.kind is arith.add:
            for x, c in (o.operands, reversed(o.operands)):
                n = self.facts.constant(c)
                if n is not None:
                    return x, n
        return v, 0

    def repeats(self, o: Op) -> bool:
        """May the regions of op o run more than once?"""
        if o.kind is not control.for_:
            return o.kind is not control.if_
        lo, hi, step = (self.facts.constant(v) for v in o.operands[:3])
        return lo is None or hi is None or step is None or lo + step < hi

    def varies(self, values: Iterable[Value], loop: Op) -> bool:
        """Does one of these values depend on what changes from iteration to iteration of a loop?"""
        found = backward_slice(values, self._sources)
        return any(not found.isdisjoint(r.params) for r in loop.regions)


def _sides(o: Op) -> tuple[int, ...]:
    """The box of a store_box with all axes of the view; of others nothing."""
    if o.kind is not tile.store_box:
        return ()
    shape = shape_of(o.operands[1].type)
    return (*(1,) * (len(o.operands) - 2 - len(shape)), *shape)
