"""Assignments that control flow makes: parallel ones, one after the other where an order allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.eject.expressions import Expressions, call
from warploom.eject.flow import Copy
from warploom.eject.spelling import unspelled
from warploom.eject.text import Line, Node
from warploom.errors import Loc
from warploom.ir.core import Op, Value
from warploom.ir.types import InFlight, Scalar


@dataclass
class Assignments(Expressions):
    """Writes assignments.  depths: allocation or leader of a cursor -> the attribute with the depth of its
    ring."""

    depths: dict[Op | Value, str]

    def assign(self, copies: Sequence[Copy], loc: Loc | None, first: bool = False) -> list[Node]:
        """Parallel assignments, one after the other where an order allows it.  first: before a loop, where
        numbers declare their variables."""
        todo = [c for c in copies if not self._is_nothing(c)]
        out: list[Node] = []
        while todo:
            free = next((c for c in todo if not self._disturbs(c, todo)), None)
            group = [free] if free is not None else todo
            todo = [c for c in todo if c not in group]
            if free is not None and free.late is None and first:
                out.append(self._declaration(free, loc))
                continue
            left = ", ".join(self._targets(c, len(group) > 1) for c in group)
            right = ", ".join(self._source(c) for c in group)
            where = next((c.late.loc for c in group if c.late is not None), loc)
            out.append(Line(f"{left} = {right}", where))
            for c in group:
                self._check_copy(c)
        return out

    def _is_nothing(self, c: Copy) -> bool:
        if c.late is not None:
            return False
        (target,), (source,) = c.targets, c.sources
        return source not in self.flow.folded and self.flow.find(target) is self.flow.find(source)

    def _disturbs(self, c: Copy, others: Sequence[Copy]) -> bool:
        """Whether c writes what another one still reads."""
        written = {self.flow.find(t) for t in c.targets}
        return any(
            written & {self.flow.find(v) for v in self.flow.reads(d.sources)}
            for d in others
            if d is not c
        )

    def _targets(self, c: Copy, nested: bool) -> str:
        text = ", ".join(self.name(t) for t in c.targets)
        return f"({text})" if nested and len(c.targets) > 1 else text

    def _source(self, c: Copy) -> str:
        return self.next_slot(c.late) if c.late is not None else self.full(c.sources[0])

    def _declaration(self, c: Copy, loc: Loc | None) -> Line:
        (target,), (source,) = c.targets, c.sources
        name, e = self.name(target), self.tight(source)
        self._check_copy(c)
        if not e.literal:
            return Line(f"{name} = {e.text}", loc)
        return Line(f"{name}: {self.dtype(target.typed(Scalar).dtype)} = {e.text}", loc)

    def _check_copy(self, c: Copy) -> None:
        """Two variables of one register tensor: an instruction that changes it would change both."""
        if c.late is not None or c.sources[0] in self.flow.folded:
            return
        for v in (*c.targets, *c.sources):
            in_place = any(isinstance(m.type, InFlight) for m in self.flow.class_of(v))
            if in_place:
                raise unspelled(self.flow.made.get(c.sources[0]), "a copy of an accumulator")

    def next_slot(self, o: Op) -> str:
        depth = self.depths.get(self.flow.find(o.operands[0]), str(o.attrs["depth"]))
        return call("ring_next", *map(self.text, o.operands), depth)
