"""How many registers a thread holds at each op of a task: an estimate from layouts, before ptxas has its say.

What counts is what exists whole: results of loads, dots, reductions and scans, tiles that loops and ifs
carry, conversions that move data, and arithmetic on such that is read more than once, or by a dot.
Arithmetic that is read once is computed where it is read; what follows from numbers alone is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from warploom.analysis.liveness import WHOLE
from warploom.ir.core import Family, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import DType, Tile
from warploom.passes.placed.task_layouts import tile_of
from warploom.target import Target

_BESIDE = 16  # registers of a thread that no tile takes
_REPEATED = 4  # how much more an op of a loop counts than one around it
# Numbers an op in order; of an op with regions (registers around it, the op, what its regions hold).
_Held: TypeAlias = "list[int | tuple[int, Op, list[_Held]]]"


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
    _multiplied: set[Value] = field(default_factory=set)
    _inside: dict[Op, list[list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for o in self.region.all_ops:
            for v in o.operands:
                self._readers[v] = self._readers.get(v, 0) + 1
            if o.kind is tile.dot:
                self._multiplied.update(o.operands[:2])
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
        return self._readers.get(v, 0) > 1 or v in self._multiplied

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
        return _over(self._held(r, ops), limit)

    def peak(self, r: Region) -> int:
        """The most that a region holds."""
        return max(_flat(self._held(r, r.ops)), default=0)

    def _held(self, r: Region, ops: Sequence[Op]) -> _Held:
        last: dict[Value, int] = {}
        for i, o in enumerate(ops):
            for v in self.uses(o):
                last[v] = i
        size = part_of
        mine = [v for v in r.params if self._is_tile(v)]
        now = {v: size(v) for v in mine if v in last}
        found: _Held = []
        total = sum(now.values())
        for i, o in enumerate(ops):
            carried = {v for c in control.carried(o) for x in c.init for v in self.roots.get(x, ())}
            dying = [v for v in self.uses(o) if last[v] == i and v in now]
            made = [v for v in o.results if v in self.roots.get(v, ()) and v in last]
            if o.regions:
                base = total - sum(now[v] for v in dying if v in carried)
                found.append((base, o, [self._held(x, x.ops) for x in o.regions]))
            freed = sum(now.pop(v) for v in dying)
            added = sum(size(v) for v in made)
            if not o.regions:
                both = o.kind.family is Family.COMBINE and o.kind is not tile.dot
                found.append(total + added if both else max(total, total - freed + added))
            now.update((v, size(v)) for v in made)
            total += added - freed
        return found


def _flat(held: _Held, base: int = 0) -> list[int]:
    found: list[int] = []
    for x in held:
        if isinstance(x, tuple):
            around, _, inside = x
            found.append(base + around)
            for r in inside:
                found += _flat(r, base + around)
        else:
            found.append(base + x)
    return found


def _over(held: _Held, limit: int, base: int = 0) -> int:
    found = 0
    for x in held:
        if isinstance(x, tuple):
            around, o, inside = x
            weight = _REPEATED if o.kind in control.LOOPS else 1
            found += weight * sum(_over(r, limit, base + around) for r in inside)
        else:
            found += max(0, base + x - limit)
    return found
