"""What one launch does to global memory: a run of the simulator without data in which addresses are computed.

No tile of numbers is moved; where an access goes follows from arguments, program ids and what the launch's
arrays hold.  What a program learns from arrays that the kernel writes, or from an atomic, it learns in one
order of events; it counts as not known here, and so the words that are found are those of every order.
Programs are kept apart by their words; the groups of one program by their words or by happens-before
(sim/order.py), which is that of all orders where the protocol is proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from random import Random
from typing import Any

import numpy as np

from warploom.check.global_accesses import Access, Collected
from warploom.check.places import Column, Common, Unknown, place_of, threads_of, words_of
from warploom.check.runs import Case
from warploom.check.tickets import Last, Ticket, Tickets, is_ticket
from warploom.ir import engines
from warploom.ir.analysis import backward_slice, closure, sources
from warploom.ir.core import Effect, Op, OpKind, Value
from warploom.ir.ops import arith, control, smem, tile, unaligned
from warploom.ir.types import Pointer, Scalar, Tile, elem_of
from warploom.sim.accesses import global_proof
from warploom.sim.agent import Agent, Steps
from warploom.sim.evaluate import PURE
from warploom.sim.flow import is_true
from warploom.sim.global_order import SEVERAL
from warploom.sim.machine import simulate
from warploom.sim.outline import STEPS, Outline
from warploom.sim.report import NeedsData, SimError
from warploom.sim.scheduler import Ordered
from warploom.sim.translate import Line

MOST_STEPS = 40_000  # of the scheduler, all programs together
MOST_STEPS_OF_SAMPLES = 10_000  # of launches that nobody asked about
MOST_PROGRAMS = 1024
MOST_EVENTS = 60_000  # executions of accesses
MOST_WORDS = 4_000_000  # touched by all accesses
_LOADS = (tile.load, tile.load_box, unaligned.load_unaligned)
_COPIES = engines.MOVES_BOXES | engines.COPIES_PIECES
_NEVER = np.iinfo(np.int64).max


@dataclass(eq=False)
class _Event:
    """One execution of an access.  It is over for whoever knows `epochs` of `components`; known: what all
    threads that made it knew then.  lasts: conditions on numbers drawn, under which it is made.  is_sure:
    made for certain.  threads: of each word, where that is asked for."""

    op: Op
    program: int
    agent: int
    who: str
    words: Column
    known: Column
    components: Column
    epochs: Column
    lasts: tuple[Last, ...]
    is_sure: bool
    threads: Column | None
    number: int  # of all that were made so far


@dataclass
class Trace:
    """The accesses of a launch to arrays that it writes.  read: arrays whose contents decided something."""

    tickets: Tickets = field(default_factory=Tickets)
    events: dict[Op, list[_Event]] = field(default_factory=dict)
    read: dict[str, None] = field(default_factory=dict)
    words: int = 0
    executions: int = 0

    def reaches(self, a: Access) -> bool:
        """Does an access touch a word?"""
        return any(len(e.words) for e in self._of(a))

    def common(self, a: Access, b: Access, only_within: bool = False) -> Common | None:
        """A word that a and b touch by two programs, or by two groups of one program that nothing orders;
        None where there is none.  only_within: programs are known to keep apart."""
        ones, others = self._of(a), self._of(b)
        programs = None if only_within else self._of_two_programs(ones, others)
        if programs is not None:
            return programs
        for one, other, suspects in _of_two_agents(ones, others):
            word = suspects[np.isin(suspects, one.words)][:1]
            if len(word):
                return _common(int(word[0]), one, other)
        return None

    def common_of_threads(self, a: Access, b: Access) -> Common | None:
        """A word that a and b touch by two threads of one group, in no order; None where there is none."""
        groups: dict[tuple[int, int], list[_Event]] = {}
        ones, others = self._of(a), self._of(b)
        for e in dict.fromkeys((*ones, *others)):
            groups.setdefault((e.program, e.agent), []).append(e)
        for events in groups.values():
            events.sort(key=lambda e: e.number)
            words, times = np.unique(np.concatenate([e.words for e in events]), return_counts=True)
            shared = words[times > 1]
            met = [e for e in events if np.isin(shared, e.words).any()] if len(shared) else []
            for one, other in combinations(met, 2):
                if (one.op in a.ops and other.op in b.ops) or (
                    one.op in b.ops and other.op in a.ops
                ):
                    common, i, j = np.intersect1d(one.words, other.words, True, True)
                    assert one.threads is not None and other.threads is not None
                    x, y = one.threads[i], other.threads[j]
                    wrong = common[(x != y) | (x == SEVERAL)]
                    if len(wrong) and not _knows(other, one):
                        return _common(int(wrong[0]), one, other)
        return None

    def _of(self, a: Access) -> list[_Event]:
        return [e for o in a.ops for e in self.events.get(o, ())]

    def _of_two_programs(self, ones: list[_Event], others: list[_Event]) -> Common | None:
        for e, suspects in _meeting(ones, others, lambda e: e.program):
            for one in ones:
                if one.program == e.program:
                    continue
                word = suspects[np.isin(suspects, one.words)][:1]
                if len(word) and not self.tickets.part(one, e):
                    return _common(int(word[0]), one, e)
        return None


def _meeting(
    ones: list[_Event], others: list[_Event], whose: Callable[[_Event], int]
) -> Iterable[tuple[_Event, Column]]:
    """Those of the others with words that another one (program, agent) touches in the ones."""
    words = np.concatenate([np.zeros(0, np.int64), *(e.words for e in ones)])
    if not len(words):
        return
    owners = np.repeat([whose(e) for e in ones], [len(e.words) for e in ones])
    order = np.lexsort((owners, words))
    words, owners = words[order], owners[order]
    begins = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
    ends = np.concatenate([begins[1:] - 1, [len(words) - 1]])
    found, lows, highs = words[begins], owners[begins], owners[ends]
    for e in others:
        at = np.searchsorted(found, e.words)
        at[at == len(found)] = 0
        wrong = (found[at] == e.words) & ((lows[at] != whose(e)) | (highs[at] != whose(e)))
        if wrong.any():
            yield e, e.words[wrong]


def _of_two_agents(
    ones: list[_Event], others: list[_Event]
) -> Iterable[tuple[_Event, _Event, Column]]:
    """Executions by two groups of one program that are not ordered, and words that may be of both."""
    by_program: dict[int, tuple[list[_Event], list[_Event]]] = {}
    for side, events in enumerate((ones, others)):
        for e in events:
            by_program.setdefault(e.program, ([], []))[side].append(e)
    for mine, theirs in by_program.values():
        for other, suspects in _meeting(mine, theirs, lambda e: e.agent):
            for one in mine:
                if one.agent != other.agent and not _is_ordered(one, other):
                    yield one, other, suspects


def _is_ordered(x: _Event, y: _Event) -> bool:
    return _knows(x, y) or _knows(y, x)


def _knows(late: _Event, early: _Event) -> bool:
    """Do all threads that make the one know that the other is over?"""
    return bool((late.known[early.components] >= early.epochs).all())


def _common(word: int, one: _Event, other: _Event) -> Common:
    return Common(word, one.who, other.who, one.is_sure and other.is_sure)


def traced(
    found: Collected, case: Case, has_contents: bool, unparted: Iterable[tuple[Op, Op]]
) -> Trace:
    """What a launch does.  has_contents: its arrays hold what they will hold then.  unparted: accesses whose
    threads are told apart.  Raises Unknown."""
    written = {a.base for a in found.accesses if a.writes}
    if None in written:
        raise Unknown("an address that is no pointer argument plus an offset")
    if math.prod(case.grid) > MOST_PROGRAMS:
        raise Unknown("too many programs")
    most = MOST_STEPS if has_contents else MOST_STEPS_OF_SAMPLES
    outline = _Traced(found, written, has_contents, {o for pair in unparted for o in pair})
    args = [_given(p, x) for p, x in zip(found.func.params, case.args, strict=True)]
    try:
        simulate(
            found.func, args, case.grid, order="early", data=False, confluent=True,
            scheduler=Ordered("early", Random(0), most), outline=outline,
        )  # fmt: skip
    except NeedsData:
        raise Unknown("control flow that follows from data") from None
    except SimError as e:
        raise Unknown(e.message) from None
    return outline.trace


def _given(p: Value, x: Any) -> Any:
    """An argument as the simulator takes it: of arrays that are not on the host nothing is known."""
    if isinstance(p.type, Pointer) and not isinstance(x, np.ndarray):
        return np.zeros(0, p.type.dtype.numpy)
    return x


class _Traced(Outline):
    """The lines of a function whose accesses to written arrays tell their words, instead of making them."""

    def __init__(
        self,
        found: Collected,
        written: Collection[Value | None],
        contents: bool,
        unparted: Collection[Op],
    ) -> None:
        super().__init__(found.func, found.func.target.cost)
        self.found, self.written, self.has_contents = found, written, contents
        self.unparted = unparted
        self.trace = Trace()
        self.recorded = {o: a.base for a in found.accesses if a.base in written for o in a.ops}
        self._open_stores: dict[Agent, list[_Event]] = {}
        self._lasts: dict[Agent, list[Last | None]] = {}  # of the branches that an agent is in
        self._handed: dict[tuple[Any, int], Ticket] = {}  # by place in shared memory

    @cached_property
    def _followed(self) -> set[Value]:
        """What the places of accesses follow from."""
        roots = [v for o in self.recorded for v in place_of(o)]
        return backward_slice(roots, sources(self.func.body), _is_no_number)

    @cached_property
    def _needed(self) -> set[Value]:
        return super()._needed | self._followed

    def _is_in_skeleton(self, o: Op) -> bool:
        is_index = o.kind in _LOADS and o.result in self._followed
        return o in self.recorded or is_index or super()._is_in_skeleton(o)

    def _line(self, o: Op) -> Line:
        line = super()._line(o)
        if line.run is None:
            return line._replace(run=self._branching) if o.kind is control.if_ else line
        if o.kind in PURE and any(v in self._ticketed for v in o.operands):
            return line._replace(run=_on_tickets(line.run, o))
        if o.kind in PURE:
            is_followed = any(v in self._followed for v in o.results)
            return line._replace(tiles=()) if is_followed else line
        if o in self.recorded:
            return line._replace(run=self._telling(line, line.run))
        if o.kind in _LOADS:
            return line._replace(run=self._loading)
        if engines.WAITED.get(o.kind) == "stores":
            return line._replace(run=self._waiting)
        own: dict[OpKind, Callable[..., Any]] = {
            smem.shared_put: self._putting, smem.shared_get: self._getting,
        }  # fmt: skip
        return line._replace(run=own[o.kind]) if o.kind in own else line

    @cached_property
    def _ticketed(self) -> set[Value]:
        """What may be a number drawn from a counter, or a condition on one."""
        values, following = self.found.values, sources(self.func.body)
        puts: dict[str, list[Value]] = {}
        for o in self.ops:
            if o.kind is smem.shared_put:
                puts.setdefault(values.allocation(o.operands[0]), []).append(o.operands[1])
        for o in self.ops:
            if o.kind is smem.shared_get:
                put = puts.get(values.allocation(o.operands[0]), ())
                following[o.result] = (*following.get(o.result, ()), *put)
        after: dict[Value, list[Value]] = {}
        for v, given in following.items():
            for x in given:
                after.setdefault(x, []).append(v)
        roots = [o.result for o in self.ops if self._is_ticket(o)]
        return closure(roots, lambda v: after.get(v, ()))

    def _is_ticket(self, o: Op) -> bool:
        values = self.found.values
        if o.kind is not tile.atomic:
            return False
        base = values.base_of(o.operands[0])
        return base in values.counters and is_ticket(o, values.scalar(o.operands[1]).constant == 1)

    # ---- what ops do

    def _telling(self, line: Line, step: Callable[..., Any]) -> Callable[..., Any]:
        """Tells the words, then does what the protocol takes of it."""
        is_copy = line.op.kind in _COPIES

        is_draw = self._is_ticket(line.op)

        def run(a: Agent, o: Op, *values: Any) -> Any:
            words = words_of(o, values)
            threads = None
            if o in self.unparted:
                threads = threads_of(o, values, words, self.threads.of(o))
            self._tell(a, o, words - a.cta.program.params[self.recorded[o]], threads)  # type: ignore[index]
            if is_draw:
                return self._draw(a, o, int(words[0]))
            return step(a, o, *values) if is_copy else None

        return run

    def _draw(self, a: Agent, o: Op, counter: int) -> Ticket:
        base, begin = self.recorded[o], None
        assert base is not None and isinstance(base.type, Pointer)
        if self.has_contents and a.cta.memory.split(counter)[0].data.size:
            begin = int(a.cta.memory.load(base.type.dtype, np.int64(counter), None, None, o.loc))
        return self.trace.tickets.draw(a, counter, begin, base.hint)

    def _branching(
        self, a: Agent, o: Op, then: Callable[[], Steps], other: Callable[[], Steps], c: Any
    ) -> Any:
        """One branch; or both, where no run of one order can tell which: what they do is as if both came."""
        if c is not None and not isinstance(c, Last | Ticket):
            return (yield from (then if is_true(c) else other)())
        syncs = [x for r in o.regions[isinstance(c, Last) :] for x in r.all_ops]
        if any(Effect.SYNC in x.kind.effect for x in syncs):
            raise Unknown("barriers under a condition that follows from data")
        for part, last in ((then, c if isinstance(c, Last) else None), (other, None)):
            self._lasts.setdefault(a, []).append(last)
            yield from part()
            self._lasts[a].pop()
        return None if len(o.results) == 1 else (None,) * len(o.results)

    def _putting(self, a: Agent, o: Op, place: Any, value: Any) -> Any:
        if value is None:
            raise Unknown("a number that tasks hand on")
        key = a.cta, int(place.addresses.flat[0])
        self._handed.pop(key, None)
        if isinstance(value, Ticket):
            self._handed[key], value = value, 0
        return STEPS[o.kind](a, o, place, value)

    def _getting(self, a: Agent, o: Op, place: Any) -> Any:
        number = STEPS[o.kind](a, o, place)
        return self._handed.get((a.cta, int(place.addresses.flat[0])), number)

    def _tell(self, a: Agent, o: Op, words: Column, threads: Column | None) -> None:
        self.trace.words += len(words)
        self.trace.executions += 1
        if self.trace.words > MOST_WORDS or self.trace.executions > MOST_EVENTS:
            raise Unknown("too many words")
        cta = a.cta
        rows, components, epochs = global_proof(a, o)
        if threads is not None and components is a.elected_order:
            threads = np.zeros(len(words), np.int64)
        if o.kind in _COPIES:
            epochs = np.full(len(rows), _NEVER)
        axes = max([1, *(i + 1 for i, n in enumerate(cta.grid) if n > 1)])
        who = f"program {', '.join(map(str, cta.ids[:axes]))} ({a.who})"
        known = rows.min(axis=0)
        branches = self._lasts.get(a, [])
        lasts = tuple(x for x in branches if x is not None)
        event = _Event(
            o,
            cta.number,
            a.index,
            who,
            words,
            known,
            components,
            epochs,
            lasts,
            not branches,
            threads,
            self.trace.executions,
        )
        self.trace.events.setdefault(o, []).append(event)
        if o.kind in engines.STORES_BOXES:
            self._open_stores.setdefault(a, []).append(event)

    def _waiting(self, a: Agent, o: Op) -> Any:
        """Stores are over when the thread that made them has waited for all to be written."""
        yield from STEPS[o.kind](a, o)
        if o.attrs["pending"] == 0 and not o.attrs.get("read", True):
            for event in self._open_stores.pop(a, ()):
                event.epochs = a.epochs()
        return ()

    def _loading(self, a: Agent, o: Op, *values: Any) -> Any:
        """A number out of an array, None where the kernel writes it or nothing is known of it."""
        base = self.found.values.base_of(o.operands[0])
        is_known = self.has_contents and base is not None and base not in self.written
        if not is_known or o.attrs.get("volatile") or any(x is None for x in values):
            return None
        assert base is not None
        self.trace.read[base.hint] = None
        memory = a.cta.memory
        if o.kind is tile.load:
            p, mask, other = (*values, None, None)[:3]
            return memory.load(elem_of(o.result.type), p, mask, other, o.loc)  # type: ignore[arg-type]
        kind = o.result.typed(Tile)
        return memory.load_box(kind.dtype, values[0], a.numbers(values[1:]), kind.shape, o.loc)


def _on_tickets(run: Callable[..., Any], o: Op) -> Callable[..., Any]:
    """A pure op of numbers that may be drawn: whether one is a certain number stays a condition on it."""

    def found(*values: Any) -> Any:
        if not any(isinstance(x, Ticket | Last) for x in values):
            return run(*values)
        first, *rest = values
        if isinstance(first, Ticket) and not rest and o.kind is arith.cast and _is_wide(o):
            return first
        is_question = o.kind is arith.eq and isinstance(first, Ticket) and rest
        if is_question and not isinstance(rest[0], Ticket | Last):
            return Last(first.counter, int(rest[0]))
        return None if len(o.results) == 1 else (None,) * len(o.results)

    return found


def _is_wide(o: Op) -> bool:
    """Does a cast keep the number?"""
    dtype = o.attrs["dtype"]
    return bool(dtype.is_int and dtype.bits >= 32)


def _is_no_number(v: Value) -> bool:
    """Is it a tile that no address is made of?"""
    if not isinstance(v.type, Scalar | Pointer | Tile):
        return False
    elem = elem_of(v.type)
    return not isinstance(elem, Pointer) and not elem.is_int
