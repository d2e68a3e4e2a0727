"""The data split: along which axis each value of the consumer task is cut among its replicas.

A value exists in *versions*: cut along one of its axes, or whole (None).  Starting from what must
happen (stores, cut where the dots' results that they hold are cut) demand runs backward: the version of
a result fixes the versions of the operands.  Pure ops are cloned where two versions are needed.  A dot
exists only in its cut version; whoever would need it whole makes the split impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from warploom.analysis.structure import Structure
from warploom.ir.core import MIXED, Effect, Op, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import shape_of

Axis = int | None
AXES = {"batch": -3, "M": -2, "N": -1}  # of a dot's result, from the last


class RefusalError(Exception):
    """Why a split is impossible, and the op where it was noticed."""

    def __init__(self, message: str, op: Op) -> None:
        super().__init__(message)
        self.op = op


@dataclass(eq=False)
class Split:
    """See the module's docstring.

    mine: is this op run by the replicated task?  items: values that a channel brings to it whole.
    axis: of the dots' results which is cut into `count` parts, by its name (AXES).  broadcasts: is what
    an atomic on a number gives broadcast to all replicas?  Raises RefusalError.
    """

    structure: Structure
    mine: Callable[[Op], bool]
    items: frozenset[Value]
    axis: str
    count: int
    broadcasts: Callable[[Op], bool] = lambda o: False
    versions: dict[Value, set[Axis]] = field(default_factory=dict)
    forward: dict[Value, int] = field(default_factory=dict)
    effects: dict[Op, Axis] = field(default_factory=dict)  # how each op with side effects is cut
    _work: list[tuple[Value, Axis, Op]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.count == 1:
            return
        ops = [o for o in self.structure.ops if self.mine(o)]
        while self._forward_round(ops):
            pass
        for o in ops:
            if (Effect.WRITE | Effect.SYNC) & o.kind.effect:
                self._root(o)
            elif o.kind is control.while_:  # it stays, whoever needs its results
                self._enclose(o)
                self._push(o.regions[0].yielded[0], None, o)
        self._settle()
        for o in ops:  # so does what observes memory for nobody, with its addresses
            if o.attrs.get("volatile") and not self.versions.get(o.result):
                self._push(o.result, self.forward.get(o.result), o)
                self._settle()

    def _settle(self) -> None:
        while self._work:
            self._want(*self._work.pop())

    # ---- forward: where dots' results go

    def _forward_round(self, ops: Iterable[Op]) -> bool:
        before = len(self.forward)
        for o in ops:
            if o.kind is tile.dot:
                self._mark(o.results, self._dot_axis(o))
            elif o.kind in control.LEAD:
                for c in control.carried(o):
                    self._same(c.all)
            elif o.results and o.results[0] not in self.forward:
                for i, v in enumerate(o.operands):
                    axis = self.forward.get(v)
                    found = result_axis(o, i, axis) if axis is not None else None
                    if found is not None:
                        self._mark(o.results, found)
                        break
        return len(self.forward) > before

    def _dot_axis(self, o: Op) -> int:
        rank = len(shape_of(o.result.type))
        assert o.kind.axes is not None
        if o.operands[2] in self.forward:
            return self.forward[o.operands[2]]
        for axis in range(rank):
            along = zip(o.operands[:2], o.kind.axes(o, axis), strict=False)
            if any(at is not None and self.forward.get(v) == at for v, at in along):
                return axis
        axis = rank + AXES[self.axis]
        if axis < 0:
            raise RefusalError("it multiplies no batch", o)
        return axis

    def _mark(self, values: Iterable[Value], axis: int) -> None:
        for v in values:
            self.forward.setdefault(v, axis)

    def _same(self, group: tuple[Value, ...]) -> None:
        """Values that a loop or an if identifies."""
        known = [self.forward[v] for v in group if v in self.forward]
        if known and shape_of(group[0].type):
            self._mark(group, known[0])

    # ---- backward: which versions are needed

    def _root(self, o: Op) -> None:
        cut = [
            (i, self.forward[v])
            for i, v in enumerate(o.operands)
            if v in self.forward and v not in self.items
        ]
        axis = cut[0][1] if cut else None
        self.effects[o] = axis
        if axis is None and self.gives(o) and not self.broadcasts(o):
            raise RefusalError("one replica's atomic would have to be known to all", o)
        for v in o.operands:
            self._push(v, axis if shape_of(v.type) else None, o)
        self._enclose(o)

    def gives(self, o: Op) -> bool:
        """Does an op that writes memory have a result that somebody needs?"""
        used = any(self.structure.users.get(v) for v in o.results)
        return used and Effect.WRITE in o.kind.effect

    def _push(self, v: Value, axis: Axis, by: Op) -> None:
        self._work.append((v, axis, by))

    def _enclose(self, o: Op) -> None:
        for outer in self.structure.enclosing(o):
            for v in control.deciding(outer):
                self._push(v, None, outer)

    def _want(self, v: Value, axis: Axis, by: Op) -> None:
        if axis is not None:
            n = shape_of(v.type)[axis]
            if n % self.count:
                raise RefusalError(f"an axis of {n} can't be cut into {self.count} equal parts", by)
        if axis in self.versions.setdefault(v, set()):
            return
        self.versions[v].add(axis)
        if v in self.items:
            return
        made = self.structure.made[v]
        o = made.op
        if o is None:
            return
        self._enclose(o)
        if o.kind in control.LEAD:
            for u in control.deciding(o):
                self._push(u, None, o)
            if (carried := self.structure.carried(v)) is not None:
                for u in carried.all:
                    self._push(u, axis, o)
            return
        if o.kind is tile.dot and axis != self._dot_axis(o):
            raise RefusalError("a result of a dot is needed whole, or cut along another axis", o)
        for u, at in zip(o.operands, operand_axes(o, axis), strict=True):
            self._push(u, at, o)

    # ---- memory that replicas share

    def out_of_order(self, accesses: Iterable[tuple[Op, object]], meet: bool) -> Op | None:
        """An access to what another replica writes: they keep no order.  None where each replica accesses
        its own part alone.

        accesses: those of the replicated task's, each with what tells the memory that it reaches.  meet: do
        all replicas meet before a load or store that has to stay in order (`memory_order.ordered`)?"""
        reached: dict[object, list[Op]] = {}
        for o, base in accesses if self.count > 1 else ():
            if self.mine(o) and not any(v in self.items for v in o.results):
                reached.setdefault(base, []).append(o)
        for ops in reached.values():
            writes = [o for o in ops if o in self.effects and Effect.WRITE in o.kind.effect]
            if not writes or len(ops) == 1 or all(o.kind is tile.atomic for o in ops):
                continue
            if meet and all(o.loads or o.stores for o in ops):
                continue
            axis = self.effects[writes[0]]
            if axis is None and len(writes) == len(ops):
                axes = {self.effects[o] for o in writes}
                if axes == {None}:  # replica 0 does them all
                    continue
            for o in ops:
                parts = (self.effects[o],) if o in self.effects else self.cuts(o.result)
                if parts and (axis is None or parts != (axis,)):
                    return o
                if parts and not all(_same_part(o, w, axis) for w in writes):
                    return o
        return None

    # ---- for whoever applies it

    def cuts(self, v: Value) -> tuple[Axis, ...]:
        """The versions of v, whole first."""
        found = self.versions.get(v, set())
        return tuple(sorted(found, key=lambda a: -1 if a is None else a))


def _same_part(o: Op, write: Op, axis: int | None) -> bool:
    """Do an access and a write of the same memory, both cut along `axis`, meet in one replica alone?  Two
    stores by pointers are not compared: kernels that store a tile piece by piece cut each piece alike."""
    if o.kind in (tile.load_box, tile.store_box) and write.kind is tile.store_box:
        return (axis or 0) < min(map(_rank, (o, write))) and _offset(o, axis) is _offset(
            write, axis
        )
    return Effect.WRITE in o.kind.effect or o.operands[0] is write.operands[0]


def _offset(o: Op, axis: int | None) -> Value:
    """Where a box starts along an axis of the tile."""
    return o.operands[len(o.operands) - _rank(o) + (axis or 0)]


def _rank(o: Op) -> int:
    """Axes of a box."""
    t = o.result.type if o.kind is tile.load_box else o.operands[1].type
    return len(shape_of(t))


def operand_axes(o: Op, axis: Axis) -> tuple[Axis, ...]:
    """Versions of the operands that make the result of `o` cut along `axis`.  Raises RefusalError."""
    if axis is None or not o.operands:
        return (None,) * len(o.operands)
    found = o.kind.axes(o, axis) if o.kind.axes is not None else (MIXED,)
    if MIXED in found:
        raise RefusalError(f"{o.kind.name} can't be cut along axis {axis}", o)
    return found


def result_axis(o: Op, operand: int, axis: int) -> Axis:
    """Where a cut of one operand along `axis` shows in the results; None where it vanishes."""
    rank = len(shape_of(o.results[0].type))
    if o.kind.axes is None:
        return None
    return next((d for d in range(rank) if o.kind.axes(o, d)[operand] == axis), None)
