"""Who comes last: programs that each take a number from a counter, of which one gets the highest.

A program that drew the last number knows that all others have drawn theirs: what they did before their
draws (which release it) is over for what it does after its own (which acquires it).  It is one program, so
that what two do as the last ones of one counter never happens.  How often a counter is drawn from is counted
in a run of the launch (trace.py); where it begins, the array says, or it is taken to be 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import DType, Tile, elem_of
from warploom.sim.agent import Agent
from warploom.sim.report import NeedsData

Column = np.ndarray[Any, np.dtype[Any]]


class Ticket:
    """A number that was drawn: which one, no run of one order can tell."""

    def __init__(self, counter: int) -> None:
        self.counter = counter

    def __int__(self) -> int:
        raise NeedsData


@dataclass(frozen=True)
class Last:
    """That a number drawn from a counter is `number`: a condition that holds in one program at most."""

    counter: int
    number: int

    def __int__(self) -> int:
        raise NeedsData


class Happening(Protocol):
    """What is drawn before or after: over for whoever knows `epochs` of `components`, made by threads that
    all knew `known`; lasts: the conditions that it is made under."""

    program: int
    known: Column
    components: Column
    epochs: Column
    lasts: tuple[Last, ...]


@dataclass(frozen=True, eq=False)
class _Draw:
    program: int
    known: Column
    components: Column
    epochs: Column


@dataclass
class Tickets:
    """The draws of a run, by the counter's address.  begins: where the counters begin, as far as it is known;
    taken: the arrays that are taken to begin at 0."""

    draws: dict[int, list[_Draw]] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    taken: dict[str, None] = field(default_factory=dict)

    def draw(self, a: Agent, counter: int, begin: int | None, name: str) -> Ticket:
        """One program takes a number.  Where one lane does it for its warp, it knows what the others did when
        they met before, and they what it met when they meet again."""
        components, epochs = a.proof_of_elected()
        draw = _Draw(a.cta.number, a.of_elected()[0].copy(), components, epochs)
        self.draws.setdefault(counter, []).append(draw)
        self.names[counter] = name
        if begin is not None:
            self.begins[counter] = begin
        return Ticket(counter)

    def part(self, x: Happening, y: Happening) -> bool:
        """Are x and y of two programs ordered, as one is made by the last to draw; or never both made, as
        both are?"""
        return self._is_after(x, y) or self._is_after(y, x)

    def _is_after(self, late: Happening, early: Happening) -> bool:
        return any(
            self._is_true(last)
            and (last in early.lasts or self._has_drawn(early, last.counter))
            and any(d.program == late.program and _knows(late, d) for d in self.draws[last.counter])
            for last in late.lasts
        )

    def _has_drawn(self, x: Happening, counter: int) -> bool:
        """Has its program drawn after it?"""
        return any(d.program == x.program and _knows(d, x) for d in self.draws[counter])

    def _is_true(self, last: Last) -> bool:
        """Is it the number of the counter's last draw?"""
        begin = self.begins.get(last.counter)
        if begin is None:
            begin = 0
            self.taken[self.names[last.counter]] = None
        return begin + len(self.draws.get(last.counter, ())) == last.number + 1


def _knows(late: Happening | _Draw, early: Happening | _Draw) -> bool:
    return bool((late.known[early.components] >= early.epochs).all())


def is_ticket(o: Op, counts_up: bool) -> bool:
    """Does an op draw one number, with the order that hands on what came before?"""
    elem = elem_of(o.result.type)
    is_number = isinstance(elem, DType) and elem.is_int and not isinstance(o.result.type, Tile)
    is_add = o.kind is tile.atomic and o.attrs["fn"] == "add" and o.attrs.get("sem") == "acq_rel"
    return counts_up and is_add and is_number and len(o.operands) == 2
