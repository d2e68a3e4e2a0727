"""Tables of rules: what each op means to one question.

An analysis that has to know something of every op asks its table.  A rule stands there for one kind, or for
a whole family (core.Family): an op is then answered by what it was declared to be.  There is no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from warploom.errors import InternalError
from warploom.ir.core import ALL_LEVELS, KINDS, Family, Level, OpKind

R = TypeVar("R")

TABLES: list[Rules[object]] = []  # all that there are: a test asks whether they are complete


class Rules(dict[OpKind | Family, R]):
    """The answers to a question, by kind or by family; a kind's own goes before its family's.

    >>> from warploom.ir.ops import arith, tile
    >>> unit = Rules("which unit computes it", {Family.POINTWISE: "alu", arith.exp: "sfu"})
    >>> unit[arith.exp], unit[arith.add]
    ('sfu', 'alu')
    >>> unit[tile.dot]
    Traceback (most recent call last):
    warploom.errors.InternalError: which unit computes it: dot has no rule
    """

    def __init__(
        self,
        question: str,
        rules: Mapping[OpKind | Family, R],
        levels: frozenset[Level] = ALL_LEVELS,
    ) -> None:
        """levels: those at which it is asked."""
        super().__init__(rules)
        self.question, self.levels = question, levels
        TABLES.append(self)  # type: ignore[arg-type]

    def __missing__(self, kind: OpKind | Family) -> R:
        if isinstance(kind, OpKind) and kind.family in self:
            return self[kind.family]
        raise InternalError(f"{self.question}: {kind.name} has no rule")

    def incomplete(self) -> set[OpKind]:
        """The kinds that it forgets: of a family some of which it answers for."""
        families = {k.family for k in self if isinstance(k, OpKind)} - set(self)
        asked = (k for k in KINDS.values() if k.levels & self.levels)
        return {k for k in asked if k.family in families and k not in self}
