"""How many registers a thread holds at each op of a task: an estimate from layouts, before ptxas has its say.

What counts is what exists whole: results of loads, dots, reductions and scans, tiles that loops and ifs
carry, conversions that move data, and arithmetic on such that is read more than once, or by a dot.
Arithmetic that is read once is computed where it is read; what follows from numbers alone is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from warploom.analysis.liveness import WHOLE
from warploom.ir.core import Family, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import DType, Tile
from warploom.passes.placed.memory_tiles import tile_of
from warploom.target import Target

_BESIDE = 16  # registers of a thread that no tile takes
_REPEATED = 4  # how much more an op of a loop counts than one around it


class _Step(NamedTuple):
    """What an op takes of the registers and gives back, wherever it stands in its region.

    uses: the whole tiles that it reads.  made: those that it makes, and their registers.  carried: those that
    its loops go on with.  both: whether what it reads and what it makes are held at once.  inside: of the ops
    of its regions the registers, and how much they count."""

    uses: frozenset[Value]
    made: tuple[tuple[Value, int], ...]
    carried: frozenset[Value]
    both: bool
    inside: tuple[tuple[int, int], ...]


def limit_of(target: Target) -> int:
    """The registers of a thread that tiles may take: addresses, indices and what instructions are about to
    read take the others."""
    most = min(target.registers.per_thread, target.entry_limit or target.registers.per_thread)
    return most - _BESIDE


def part_of(v: Value) -> int:
    """The registers of a thread that a tile takes in its layout; masks are predicates, or computed again."""
    t = tile_of(v.type)
    if t is None or t.layout is None or not isinstance(t.elem, DType) or t.elem.bits == 1:
        return 0
    return -(-int(t.layout.registers) * t.elem.bits // 32)


@dataclass(eq=False)
class Pressure:
    """The registers of a task with layouts."""

    region: Region
    roots: dict[Value, frozenset[Value]] = field(default_factory=dict)  # whole tiles behind a value
    _uses: dict[Op, frozenset[Value]] = field(default_factory=dict)
    _readers: dict[Value, int] = field(default_factory=dict)
    _whole: set[Value] = field(default_factory=set)  # whoever makes them
    _steps: dict[Op, _Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for o in self.region.all_ops:
            for v in o.operands:
                self._readers[v] = self._readers.get(v, 0) + 1
            if o.kind is tile.dot:
                self._whole.update(o.operands[:2])
            elif o.kind is control.yield_:
                self._whole.update(o.operands)
        self._trace(self.region)

    def _trace(self, r: Region) -> None:
        for v in r.params:
            self.roots[v] = frozenset((v,)) if self._is_tile(v) else frozenset()
        for o in r.ops:
            for inner in o.regions:
                self._trace(inner)
            behind = frozenset[Value]().union(*(self.roots.get(v, ()) for v in o.operands))
            for v in o.results:
                whole = self._is_tile(v) and self._is_whole(o, v, behind)
                self.roots[v] = frozenset((v,)) if whole else behind

    @staticmethod
    def _is_tile(v: Value) -> bool:
        return isinstance(v.type, Tile) and isinstance(v.type.elem, DType)

    def _is_whole(self, o: Op, v: Value, behind: frozenset[Value]) -> bool:
        if o.regions or WHOLE[o.kind]:
            return True
        if o.kind is tile.convert_layout:
            return bool(behind)
        if o.kind.family is not Family.POINTWISE or not behind:
            return False
        return self._readers.get(v, 0) > 1 or v in self._whole

    def is_through(self, o: Op) -> bool:
        """Is what the op makes computed where it is read?"""
        made = (v in self.roots[v] for v in o.results)
        return not (o.regions or WHOLE[o.kind] or any(made))

    def uses(self, o: Op) -> frozenset[Value]:
        """The whole tiles that an op reads, in its regions too."""
        if o not in self._uses:
            found: set[Value] = set()
            for x in o.all_ops:
                if not self.is_through(x):
                    found.update(*(self.roots.get(v, ()) for v in x.operands))
            self._uses[o] = frozenset(found)
        return self._uses[o]

    def replaced(self, old: Sequence[Op], new: Sequence[Op]) -> None:
        """Ops were written again, with the same results and in another order inside."""
        for a, b in zip(old, new, strict=True):
            self._uses[b] = self.uses(a)

    def excess(self, r: Region, ops: Sequence[Op], limit: int) -> int:
        """The registers over the limit, summed over the ops of a region in this order and those inside."""
        return sum(n * (x - limit) for x, n in self._held(r, ops) if x > limit)

    def peak(self, r: Region) -> int:
        """The most that a region holds."""
        return max((x for x, _ in self._held(r, r.ops)), default=0)

    def _step(self, o: Op) -> _Step:
        if o not in self._steps:
            weight = _REPEATED if o.kind in control.LOOPS else 1
            self._steps[o] = _Step(
                self.uses(o),
                tuple((v, part_of(v)) for v in o.results if v in self.roots.get(v, ())),
                frozenset().union(
                    *(self.roots.get(x, ()) for c in control.carried(o) for x in c.init)
                ),
                o.kind.family is Family.COMBINE and o.kind is not tile.dot,
                tuple((x, weight * n) for r in o.regions for x, n in self._held(r, r.ops)),
            )
        return self._steps[o]

    def _held(self, r: Region, ops: Sequence[Op]) -> list[tuple[int, int]]:
        """Of each op of a region in this order, and of those inside, (registers, how much it counts)."""
        steps = [self._steps.get(o) or self._step(o) for o in ops]
        last: dict[Value, int] = {}
        for i, step in enumerate(steps):
            for v in step.uses:
                last[v] = i
        now = {v: part_of(v) for v in r.params if self._is_tile(v) and v in last}
        found: list[tuple[int, int]] = []
        total = sum(now.values())
        for i, (o, step) in enumerate(zip(ops, steps, strict=True)):
            uses, made, carried, both, inside = step
            dying = [v for v in uses if last[v] == i and v in now]
            if o.regions:
                base = total - sum(now[v] for v in dying if v in carried)
                found += [(base + x, n) for x, n in inside]
            before = total
            for v in dying:
                total -= now.pop(v)
            left = total
            for v, n in made:
                if v in last:
                    now[v] = n
                    total += n
            if not o.regions:
                found.append((total + before - left if both else max(before, total), 1))
        return found
