"""Whether the iterations of a loop store to places of their own.

That a place depends on what changes is not enough: `i // 2` is the same for two iterations, and boxes of 64
rows that begin at `i` overlap.  A number is told apart where the place follows from it not by quotients and
remainders alone, or by both.  By constants it has to move on as far as an iteration stores; what else it is
multiplied by, added to or compared with is taken to keep its values far enough apart.  What bounds a loop
tells nothing apart: two runs of `range(0, t)` store to the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod

from warploom.analysis.facts import Facts
from warploom.analysis.structure import Structure
from warploom.ir.analysis import backward_slice, passed_on
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control
from warploom.ir.types import shape_of

_PARTS = (arith.idiv, arith.rem)


@dataclass(eq=False)
class MovingPlace:
    """A place.  extents: of each value that says where it is, how much of that an iteration stores."""

    extents: Mapping[Value, int]
    facts: Facts
    structure: Structure
    sources: dict[Value, tuple[Value, ...]]
    told: dict[tuple[Value, float], bool] = field(default_factory=dict)
    open: set[Value] = field(default_factory=set)  # asked about, so that no way leads back

    @cached_property
    def after(self) -> dict[Value, list[Value]]:
        """What of the place's computation follows from each value directly."""
        found: dict[Value, list[Value]] = {}
        for v in backward_slice(self.extents, self.sources):
            for x in dict.fromkeys(self._sources(v)):
                found.setdefault(x, []).append(v)
        return found

    def _sources(self, v: Value) -> tuple[Value, ...]:
        """What v is computed from, without what decides how often or whether that happens."""
        made = self.structure.made.get(v)
        if made is None or made.op is None or made.op.kind not in control.LEAD:
            return self.sources.get(v, ())
        return passed_on(made.op).get(v, ())

    def moves(self, loop: Op) -> bool:
        """Does each iteration of a loop have a place of its own?"""
        return any(self._tells(v, n) for v, n in self._changing(loop).items())

    def _changing(self, loop: Op) -> dict[Value, float]:
        """What changes from iteration to iteration, and by how much."""
        found: dict[Value, float] = {p: inf for r in loop.regions for p in r.params}
        for c in control.carried(loop):
            o, p = self.structure.maker(c.yielded[-1]), c.params[-1]
            if o is not None and o.kind is arith.add and p in o.operands:
                found[p] = min(map(self._size, o.operands))
        if loop.kind is control.for_:
            found[loop.regions[0].params[0]] = self._size(loop.operands[2])
        return found

    def _size(self, v: Value) -> float:
        n = self.facts.constant(v)
        return inf if n is None else abs(n)

    def _tells(self, v: Value, apart: float) -> bool:
        """Is the place another one for each value of v, if those are so far apart?"""
        if (v, apart) in self.told or v in self.open:
            return self.told.get((v, apart), False)
        self.open.add(v)
        self.told[v, apart] = (v in self.extents and self._clears(v, apart)) or self._leads(
            v, apart
        )
        self.open.remove(v)
        return self.told[v, apart]

    def _leads(self, v: Value, apart: float) -> bool:
        """Does what follows from v tell its values apart?"""
        parts = set()
        for x in self.after.get(v, ()):
            o = self.structure.maker(x)
            if o is not None and o.kind in _PARTS and o.operands[0] is v:
                parts |= {o.kind} if self._tells(x, inf) else set()
            elif self._tells(x, self._scaled(o, v, apart)):
                return True
        return len(parts) == len(_PARTS)

    def _scaled(self, o: Op | None, v: Value, apart: float) -> float:
        factors = o.operands if o is not None and o.kind is arith.mul else ()
        return prod((self._size(x) for x in factors if x is not v), start=apart)

    def _clears(self, v: Value, apart: float) -> bool:
        """Does what is stored at one value of v not reach to the next one?"""
        if apart == inf or not (shape := shape_of(v.type)):
            return apart >= self.extents[v]
        steps = ((self.facts.axis(v, a).slope or inf, n) for a, n in enumerate(shape))
        return all(apart % s or apart >= n * abs(s) for s, n in steps)
