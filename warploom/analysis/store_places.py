"""Whether stores in loops keep out of each other's places, and what that takes.

A loop's iterations may keep apart whatever the loops around and in it do: by an axis of the place that these
don't change, or change by less than a step of that loop.  Those left then have to keep apart in one iteration
of that one:

    for t in range(n):                                 by 128 rows, and i adds 64 at most
        for i in range(2): out.store([t * 128 + i * 64, 0], …)      of 64 rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from warploom.analysis.facts import Facts
from warploom.analysis.launch_numbers import FAR, UNBOUNDED, LaunchNumbers
from warploom.analysis.moving_places import SUMS, Axis, Extent, MovingPlace, Needs, fewest, nested
from warploom.analysis.structure import Structure
from warploom.analysis.tile_slopes import TileSlopes
from warploom.ir.analysis import backward_slice, converted, sources
from warploom.ir.core import Op, Value
from warploom.ir.host_expressions import expr, least
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.types import shape_of


@dataclass(eq=False)
class StorePlaces:
    """The places that a function's stores write."""

    structure: Structure
    facts: Facts
    numbers: LaunchNumbers
    replicas: int = 1  # of a task, at most

    @cached_property
    def _sources(self) -> dict[Value, tuple[Value, ...]]:
        return sources(self.structure.root)

    @cached_property
    def _slopes(self) -> TileSlopes:
        return TileSlopes(self.structure, self.facts, self.numbers)

    def spacing(self, o: Op, sides: Sequence[int] = ()) -> Needs | None:
        """What has to hold for the iterations of all loops around a store to keep out of each other's places;
        None where that is not known to be so.  sides: of what a box's view gets in an iteration, if that is
        not the box."""
        starts = {
            v: (Axis(1, n), *self._spread(v, self._replicas))
            for v, n in zip(o.operands[2:], sides or _sides(o), strict=False)
        }
        left = [x for x in self.structure.loops(o) if self.repeats(x)]
        left = [x for x in left if self.varies((*self._base(o), *starts), x)]
        needs: Needs = frozenset()
        view = self._of_view(o, sides) if left else None
        while left:
            tried = ((x, self._parted(o, x, starts, left, view)) for x in left)
            apart = [(x, found) for x, found in tried if found is not None]
            if not apart:
                return None
            loop, found = min(apart, key=lambda one: len(one[1]))
            needs |= found
            left.remove(loop)
        return needs

    def _parted(
        self,
        o: Op,
        loop: Op,
        starts: Mapping[Value, tuple[Axis, ...]],
        left: Sequence[Op],
        view: Needs | None,
    ) -> Needs | None:
        """What has to hold for a loop's iterations to keep apart whatever others of these loops do: along an
        axis of a view in which no two places are one, or in memory.  view: of what `_of_view` gives."""
        others = {p for x in left if x is not loop for r in x.regions for p in r.params}
        moving = MovingPlace(loop, self.facts, self.structure, self._sources, self.numbers)
        if o.kind is not tile.store_box:
            return moving.needs({v: self._around(o, moving, others) for v in o.operands[:1]})
        ends = starts
        if not moving.is_shared:
            ends = {v: (*n, *self._spread(v, others)) for v, n in starts.items()}
        ends = {v: _merged(n) for v, n in ends.items()}
        alone = {v: Extent(n) for v, n in ends.items() if all(x.size != UNBOUNDED for x in n)}
        if moving.is_shared or self._view(o) is None:
            return moving.needs(alone | dict.fromkeys(self._base(o), Extent((), True)))
        found = [moving.needs(self._in_memory(o, ends, moving, others))]
        base = self._base(o)
        if view is not None and not any(self.varies(base, x) for x in left):
            along = replace(moving, told={}).needs(alone)
            found.insert(0, None if along is None else along | view)
        return fewest(found)

    def _base(self, o: Op) -> tuple[Value, ...]:
        """The pointers that say where a store is, or its view."""
        if o.kind is not tile.store_box:
            return o.operands[:1]
        view = self._view(o)
        return view.operands[:1] if view is not None else ()

    def _view(self, o: Op) -> Op | None:
        """The make_view of a store_box, where it is known."""
        view = self.structure.maker(o.operands[0]) if o.kind is tile.store_box else None
        return view if view is not None and view.kind is tile.make_view else None

    def _in_memory(
        self,
        o: Op,
        ends: Mapping[Value, tuple[Axis, ...]],
        moving: MovingPlace,
        others: Set[Value],
    ) -> dict[Value, Extent]:
        """What lies in memory around the values that say where a box is, with all that other loops add to it.
        ends: of what it has along its view's axes."""
        base, view = self._base(o), self._view(o)
        assert view is not None
        own = {p for r in moving.loop.regions for p in r.params}
        reached = self._reached(o, view, others | own | self._replicas)
        axes = [axis for axis in reached if axis is not None]
        if len(axes) < len(reached):
            return {}
        if self.varies(base, moving.loop):
            return (
                {} if self.varies(ends, moving.loop) else dict.fromkeys(base, Extent(tuple(axes)))
            )
        if not others.isdisjoint(backward_slice(base, self._sources)):
            return {}
        return {
            v: Extent(
                (*axes[:a], *axes[a + 1 :], *(x.times(axis.stride) for x in ends[v])),
                unit=abs(axis.stride),
            )
            for a, (v, axis) in enumerate(zip(o.operands[2:], axes, strict=True))
            if isinstance(axis.stride, int)
        }

    def _around(self, o: Op, moving: MovingPlace, others: Set[Value]) -> Extent:
        """The same of a tile of pointers."""
        v = o.operands[0]
        mask = o.operands[2] if len(o.operands) > 2 else None
        known: list[Axis] = []
        for a, n in enumerate(shape_of(v.type)):
            slope = self._slopes.along(v, a)
            if moving.is_shared:  # whatever the mask leaves
                known += [Axis(slope, n)] if isinstance(slope, int) else []
            elif slope is None:
                known.append(Axis(1, UNBOUNDED))
            else:
                known.append(Axis(slope, n if mask is None else self._slopes.end(mask, a, n)))
        is_trusted = moving.is_shared and (mask is not None or len(known) < len(shape_of(v.type)))
        around = _merged(self._spread(v, others | self._replicas))
        return Extent((*(x for x in known if x.stride), *around), is_trusted)

    def _reached(
        self, o: Op, view: Op, moving: Set[Value], sides: Sequence[int] = ()
    ) -> list[Axis | None]:
        """Of each axis of a view what boxes reach there, with all that these numbers add; None where its
        stride is not the launch's."""
        sides = sides or _sides(o)
        rank = len(sides)
        found: list[Axis | None] = []
        for v, n, extent, stride in zip(
            o.operands[2:],
            sides,
            view.operands[1 : 1 + rank],
            map(self.numbers.of, view.operands[1 + rank :]),
            strict=True,
        ):
            most = Extent(_merged((Axis(1, n), *self._spread(v, moving)))).span
            if isinstance(most, int):
                most = min(most, UNBOUNDED)
            end = self.numbers.of(extent)
            bounded = most if end is None or end == tile.UNBOUNDED else least(most, end)
            found.append(None if stride is None else Axis(stride, bounded))
        return found

    def _of_view(self, o: Op, sides: Sequence[int] = ()) -> Needs | None:
        """What has to hold for no two places in a view of which the launch knows the strides to be one in
        memory, as far as a store reaches in all iterations; None where that is not known to be so."""
        view = self._view(o)
        if view is None:
            return frozenset()
        numbers = {p for x in self.structure.loops(o) for r in x.regions for p in r.params}
        axes = self._reached(o, view, numbers | self._replicas, sides)
        known = [x for x in axes if x is not None and x.size != 1]
        return None if None in axes else nested(known)

    @cached_property
    def _replicas(self) -> set[Value]:
        """Which replica of a task it is: what one stores the others have to keep out of."""
        return {o.result for o in self.structure.ops if o.kind is task.replica_id}

    def _spread(self, v: Value, moving: Set[Value]) -> tuple[Axis, ...]:
        """What these numbers add to v, beside what is added to it without them."""
        if backward_slice([v], self._sources).isdisjoint(moving):
            return ()
        if v in self._replicas:
            return (Axis(1, self.replicas),)
        o = self.structure.maker(v)
        if o is not None and o.kind in SUMS:
            return tuple(axis for x in o.operands for axis in self._spread(x, moving))
        if (inner := converted(o)) is not None:
            return self._spread(inner, moving)
        known = self.facts.interval(v)
        if o is not None and o.kind is arith.mul:
            for x, c in (o.operands, reversed(o.operands)):
                n = self.numbers.of(c)
                if isinstance(n, int) or (n is not None and known.high - known.low >= FAR):
                    return tuple(axis.times(n) for axis in self._spread(x, moving))
        if known.high - known.low < FAR:
            return (Axis(1, 1 + int(known.high - known.low)),)
        return (self._counted(v),)

    def _counted(self, v: Value) -> Axis:
        """Of a number that is not known to be bounded: what a launch knows of it."""
        o, made = self.structure.maker(v), self.structure.made[v]
        if o is not None and o.kind is arith.rem and self.facts.never_negative(o.operands[0]):
            by = self.numbers.of(o.operands[1])
            if by is not None:
                return Axis(1, ("abs", "i64", expr(by)))
        if o is None and made.op is not None and made.op.kind is control.for_ and made.number == 0:
            step = self.numbers.of(made.op.operands[2])
            if step is not None:
                return Axis(step, self.numbers.iterations(made.op))
        return Axis(1, UNBOUNDED)

    def beside(self, x: Op, y: Op) -> Needs | None:
        """What has to hold for two store_boxes of one view to write boxes a constant distance apart on some
        axis, in whatever iterations; None where that is not known to be so."""
        same = x.kind is y.kind is tile.store_box and x.operands[0] is y.operands[0]
        if not same or self.structure.parent[x] is not self.structure.parent[y]:
            return None
        loops = [o for o in self.structure.loops(x) if self.repeats(o)]
        both: list[int] = []  # of each axis what the two store, where their starts move as one
        is_apart = is_always_apart = False
        for a, b, n, m in zip(x.operands[2:], y.operands[2:], _sides(x), _sides(y), strict=True):
            (root, i), (other, j) = self._shifted(a), self._shifted(b)
            both.append(max(i + n, j + m) - min(i, j) if root is other else UNBOUNDED)
            if root is other and abs(i - j) >= (n if i < j else m):
                is_apart = True
                is_always_apart |= root is None or not any(self.varies([root], o) for o in loops)
        if is_always_apart:
            return self._of_view(x, both)
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


def _merged(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Axes, those with known numbers as one that reaches as far."""
    axes = tuple(axes)
    span = Extent(tuple(x for x in axes if x.is_known)).span
    assert isinstance(span, int)
    rest = (x for x in axes if not x.is_known)
    return (Axis(1, span if span < FAR else UNBOUNDED), *rest)
