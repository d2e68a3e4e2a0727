"""What the protocol of a function depends on: the conditions that decide its events, and their sources.

An *event* is what another agent or an engine can notice: a wait, an arrival, a copy, a product, an access to
shared memory.  Whether, how often and on which barrier or slot it happens is *decided* by the conditions of
the `if`s, `while`s and loops around it, and by what its operands are computed from.  A decision comes down to
*conditions*: comparisons of scalars, each with the sources that its operands flow from.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warploom.check.alike import alike
from warploom.errors import Loc
from warploom.ir import engines
from warploom.ir.analysis import closure, definitions, loops, parents, passed_on
from warploom.ir.core import KINDS, Func, Op, OpKind, Value, walk
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, regs, smem, task, tile, tma
from warploom.ir.types import (
    Barriers,
    InFlight,
    Pointer,
    Scalar,
    Shared,
    TensorMap,
    Tile,
    View,
    dtype_of,
    i1,
)
from warploom.sim.outline import asked_without_data


class Source(enum.Flag):
    """Where a value comes from, beside constants, ring cursors and the numbers of replicas and CTAs of a
    cluster, which every run has all of."""

    NOTHING = 0
    ARGUMENT = enum.auto()
    PROGRAM = enum.auto()  # program_id, num_programs
    ITERATION = enum.auto()  # a loop's variable, or what a loop carries and changes
    MEMORY = enum.auto()  # words that the kernel only reads
    SHARED_WORD = enum.auto()  # words that the kernel writes: counters, flags
    TILE = enum.auto()  # data of tiles
    CLOCK = enum.auto()  # beside SHARED_WORD: no launch decides it either


_PLACES = frozenset(
    (
        tma.tensor_map,
        tma.map_alloc,
        smem.shared_alloc,
        mbarrier.mbarrier_alloc,
        smem.shared_slot,
        smem.shared_slice,
        smem.shared_transpose,
        mma.in_flight,
        mma.no_acc,
        regs.hold,
        smem.stamp,
        cluster.peer,
        cluster.cta_rank,
        cluster.cta_id,
    )
)
EVENTS: frozenset[OpKind] = (
    frozenset(
        kind
        for module in (smem, mbarrier, tma, mma, regs, cluster)
        for kind in vars(module).values()
        if isinstance(kind, OpKind) and KINDS.get(kind.name) is kind and kind not in _PLACES
    )
    - _PLACES
)
COMPARISONS = frozenset((arith.lt, arith.le, arith.gt, arith.ge, arith.eq, arith.ne))
# They compare, too: which operand is smaller, or whether a quotient is 0.
CHOOSING = frozenset((arith.minimum, arith.maximum, arith.idiv, arith.fast_div, arith.rem))
CONNECTING = frozenset((arith.and_, arith.or_, arith.xor, arith.select))
_CONNECTIVES = CONNECTING | frozenset((arith.not_, arith.const))
_STRUCTURE = frozenset(
    (task.ring_next, task.replica_id, cluster.cta_rank, cluster.cta_id, arith.const)
)
_RANKS = frozenset((task.replica_id, cluster.cta_rank, cluster.cta_id))
_DATA = (Tile, InFlight, View)  # what no run without data computes
_BRANCHES = (control.for_, control.if_, control.while_)


_REDUCING = (arith.idiv, arith.fast_div, arith.rem, arith.shr, arith.and_)


def asked(event: Op) -> tuple[Value, ...]:
    """The operands of an event that say what it does: barriers and slots, their numbers, phases, masks."""
    values = event.operands[:1] if event.kind is smem.shared_put else asked_without_data(event)
    return tuple(v for v in values if isinstance(v.type, (Scalar, Shared, Barriers)))


@dataclass(frozen=True, eq=False)
class Condition:
    """A scalar i1 that decides something, or a choice on the way to it: whether the first operand of what
    computes it is the smaller one.  op: what computes it.  decides: the event, or the op around it, that
    hangs on it."""

    value: Value
    op: Op
    sources: Source
    decides: Op

    @property
    def loc(self) -> Loc | None:
        return self.op.loc or self.decides.loc


@dataclass(frozen=True, eq=False)
class Reading:
    """A word of memory that decides something: its array (a parameter), whether the kernel writes it."""

    array: Value
    is_written: bool


class Dependence:
    """The decisions of one function at WARP or PLACED."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.made = definitions(func.body)
        self._memo: dict[Value, Source] = {}
        self._own: dict[Value, Source] = {}
        self._is_cursor: dict[Value, bool] = {}

    @cached_property
    def flow(self) -> dict[Value, tuple[Value, ...]]:
        """What each value is, or is computed from; conditions that choose between values are not part."""
        found: dict[Value, tuple[Value, ...]] = {}
        puts: dict[str, list[Value]] = {}
        gets: list[Op] = []
        for o in walk(self.func.body):
            if o.kind in _BRANCHES:
                found.update(passed_on(o))
            elif o.kind is smem.shared_get:
                gets.append(o)
            else:
                inner = tuple(v for r in o.regions for v in r.yielded)
                found.update(dict.fromkeys(o.results, (*o.operands, *inner)))
                if o.kind is smem.shared_put:
                    puts.setdefault(self._allocation(o.operands[0]), []).append(o.operands[1])
        for o in gets:
            found[o.result] = (o.operands[0], *puts.get(self._allocation(o.operands[0]), ()))
        return found

    def _allocation(self, place: Value) -> str:
        o = self.made[place]
        while o.kind is not smem.shared_alloc:
            o = self.made[o.operands[0]]
        return str(o.attrs["name"])

    # ---- decisions

    @cached_property
    def _owner(self) -> dict[Value, Op]:
        """The loop or `if` that a value is a parameter or a result of."""
        found: dict[Value, Op] = {}
        for o in walk(self.func.body):
            if o.kind in _BRANCHES:
                found.update(dict.fromkeys(o.results, o))
                for r in o.regions:
                    found.update(dict.fromkeys(r.params, o))
        return found

    @cached_property
    def loops(self) -> dict[Op, tuple[Op, ...]]:
        """The loops around each op, the outermost first."""
        return loops(self.func.body)

    @cached_property
    def events(self) -> tuple[Op, ...]:
        return tuple(o for o in walk(self.func.body) if o.kind in EVENTS)

    @cached_property
    def deciding(self) -> dict[Op, Op]:
        """The loops and `if`s that decide events, each with the first event that it does."""
        return self._decisions[0]

    @cached_property
    def needed(self) -> dict[Value, Op]:
        """The values that decide events, each with an event that it decides."""
        return self._decisions[1]

    @cached_property
    def _decisions(self) -> tuple[dict[Op, Op], dict[Value, Op]]:
        deciding: dict[Op, Op] = {}
        needed: dict[Value, Op] = {}
        around = parents(self.func.body)
        pending: list[tuple[Value, Op]] = []

        def decide(o: Op, event: Op) -> None:
            if o not in deciding:
                deciding[o] = event
                pending.extend((v, event) for v in control.deciding(o))

        for event in self.events:
            pending += [(v, event) for v in asked(event)]
            at = around[event]
            while at is not None:
                if at.kind in _BRANCHES:
                    decide(at, event)
                at = around[at]
        while pending:
            v, event = pending.pop()
            if v in needed or isinstance(v.type, _DATA):
                continue
            needed[v] = event
            if v in self._owner:
                decide(self._owner[v], event)
            pending += [(x, event) for x in self.flow.get(v, ())]
        return deciding, needed

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The comparisons, and other scalar i1s, that decide events and hang on an input; then what connects
        several of them: an outcome of `a and b` is more than one of each."""
        found, connected = list[Condition](), list[Condition]()
        for v, event in self.needed.items():
            o = self.made.get(v)
            if o is None or o.kind in _BRANCHES or v.type != Scalar(i1):
                continue
            if o.kind in _CONNECTIVES and o.kind not in CONNECTING:
                continue
            sources = self.sources(v)
            if sources:
                kept = connected if o.kind in CONNECTING else found
                kept.append(Condition(v, o, sources, event))
        return tuple(found + connected)

    @cached_property
    def choices(self) -> tuple[Condition, ...]:
        """The minima, maxima and quotients that numbers which decide events are made of."""
        made = ((v, self.made.get(v), event) for v, event in self.needed.items())
        return tuple(
            Condition(v, o, sources, event)
            for v, o, event in made
            if o is not None and o.kind in CHOOSING and (sources := self.sources(v))
        )

    def bend(self, loop: Op) -> int:
        """About the iteration of the loops around from which a loop's trip count changes evenly: the largest
        constant that it is made of, where that is by more than sums."""
        made = [self.made.get(x) for x in closure(loop.operands[:3], self.flow_of)]
        ops = [o for o in made if o is not None]
        if all(o.kind in (arith.const, arith.add, arith.sub, arith.mul, arith.cast) for o in ops):
            return 0
        return max((abs(int(o.attrs["value"])) for o in ops if o.kind is arith.const), default=0)

    @cached_property
    def operands(self) -> tuple[tuple[Op, Value, Source], ...]:
        """The slots, phases, ranks and masks of events that inputs decide by more than conditions do."""
        found = []
        for event in self.events:
            for v in asked(event):
                sources = self._through(v)
                if sources:
                    found.append((event, v, sources))
        return tuple(found)

    def _through(self, v: Value) -> Source:
        """The sources of a value, but for those of conditions."""
        is_condition = {c.value for c in self.conditions}
        values = closure([v], lambda x: () if x in is_condition else self.flow_of(x))
        found = Source.NOTHING
        for x in values - is_condition:
            if not isinstance(x.type, Pointer):
                found |= self.own(x)
        return found

    def flow_of(self, v: Value) -> tuple[Value, ...]:
        """What a value flows from; where it is read from memory, what its address does."""
        return () if isinstance(v.type, _DATA) else self.flow.get(v, ())

    def counts(self, v: Value) -> int:
        """The least common multiple of the constants that numbers of iterations are divided by on their way
        to a value, and reduced modulo: after so many an expression of cursors comes back."""
        out = 1
        for x in closure([v], self.flow_of):
            o = self.made.get(x)
            if o is None or o.kind not in _REDUCING or o.result.type == Scalar(i1):
                continue
            if o.kind is arith.idiv and o.operands[1] in self._strides:
                continue  # how often another loop runs
            if self.sources(o.operands[0]) & Source.ITERATION:
                by = self.made.get(o.operands[1])
                n = by.attrs["value"] if by is not None and by.kind is arith.const else 1 << 30
                n = {arith.shr: 1 << min(n, 30), arith.and_: n + 1}.get(o.kind, n)
                out = math.lcm(out, max(1, abs(n)))
        return out

    @cached_property
    def _strides(self) -> frozenset[Value]:
        """The steps of loops."""
        ops = walk(self.func.body)
        return frozenset(o.operands[2] for o in ops if o.kind is control.for_)

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """The arrays of integers whose words decide something."""
        arrays: dict[Value, bool] = {}
        for v in self.needed:
            o = self.made.get(v)
            if o is not None and o.kind in (tile.load, tile.atomic) and dtype_of(v.type).is_int:
                for array in self.arrays(o.operands[0]):
                    arrays[array] = array in self.written
        return tuple(Reading(a, w) for a, w in arrays.items())

    @cached_property
    def addresses(self) -> set[Value]:
        """What the addresses of words that decide something are computed from."""
        made = (self.made.get(v) for v in self.needed)
        loads = [o for o in made if o is not None and o.kind is tile.load]
        return closure([x for o in loads for x in o.operands], self.flow_of)

    def arrays(self, pointer: Value) -> list[Value]:
        """The parameters that a pointer or view may point into: those that it is made from, not what its
        offsets are read from."""

        def behind(v: Value) -> tuple[Value, ...]:
            made_from = self.flow.get(v, ())
            return tuple(x for x in made_from if _points(x)) or made_from

        reached = closure([pointer], behind)
        return [p for p in self.func.params if p in reached and isinstance(p.type, Pointer)]

    @cached_property
    def written(self) -> frozenset[Value]:
        """The array parameters that the kernel writes."""
        ops = (o for o in walk(self.func.body) if o.kind in engines.WRITES_GLOBAL)
        return frozenset(a for o in ops for a in self.arrays(o.operands[0]))

    # ---- sources

    def sources(self, v: Value) -> Source:
        """Where a value comes from, by way of all that it is computed from."""
        if v not in self._memo:
            found = Source.NOTHING
            for x in closure([v], self.behind):
                if not isinstance(x.type, Pointer):
                    found |= self.own(x)
            self._memo[v] = found
        return self._memo[v]

    def behind(self, v: Value) -> tuple[Value, ...]:
        """What a value flows from, and the condition that chooses it."""
        owner = self._owner.get(v)
        chosen = owner.operands[:1] if owner is not None and owner.kind is control.if_ else ()
        return (*self.flow_of(v), *chosen)

    def own(self, v: Value) -> Source:
        """What one value brings in by itself."""
        if v not in self._own:
            self._own[v] = self._brings(v)
        return self._own[v]

    def _brings(self, v: Value) -> Source:
        if v in self._parameters:
            return self._parameters[v]
        owner, o = self._owner.get(v), self.made.get(v)
        if owner is not None:
            if owner.kind is control.for_ and v is owner.regions[0].params[0]:
                return Source.ITERATION
            return Source.ITERATION if self._changes(v) else Source.NOTHING
        if o is None:
            return Source.NOTHING
        if o.kind in (tile.program_id, tile.num_programs):
            return Source.PROGRAM
        if o.kind is tile.globaltimer:
            return Source.SHARED_WORD | Source.CLOCK
        if o.kind is tile.atomic:
            return Source.SHARED_WORD
        if o.kind is tile.load:
            written = any(a in self.written for a in self.arrays(o.operands[0]))
            return Source.SHARED_WORD if written else Source.MEMORY
        if any(isinstance(x.type, Tile) for x in o.operands):
            return Source.TILE
        return Source.NOTHING

    @cached_property
    def _parameters(self) -> dict[Value, Source]:
        return {
            p: Source.NOTHING
            if isinstance(p.type, Pointer) or fact.value is not None
            else Source.ARGUMENT
            for p, fact in zip(self.func.params, self.func.facts, strict=True)
        }

    def _changes(self, v: Value) -> bool:
        """Does a loop compute what it carries from that itself, but by moving a ring's cursor?"""
        behind = closure(self.flow.get(v, ()), lambda x: self.flow.get(x, ()))
        if v not in behind:
            return False
        return any(
            x in self.made
            and self.made[x].kind not in _STRUCTURE
            and self.made[x].kind not in _BRANCHES
            and v in closure(self.flow.get(x, ()), lambda y: self.flow.get(y, ()))
            for x in behind
        )

    @cached_property
    def alike(self) -> dict[Value, int]:
        """The classes of equal values among those that decide events (alike.py)."""
        return alike(self.func.body, self.needed, self._is_kept)

    @cached_property
    def alike_in_turn(self) -> dict[Value, int]:
        """The same, where the nth number that a task gets from a place is the nth that another one puts."""
        gets = (o for o in walk(self.func.body) if o.kind is smem.shared_get)
        puts = {o.result: self.flow[o.result][1:] for o in gets}
        handed_on = {got: put[0] for got, put in puts.items() if len(put) == 1}
        return alike(self.func.body, self.needed, self._is_kept, handed_on)

    @cached_property
    def alike_in_loops(self) -> dict[Value, int]:
        """The same, where a `while` goes along by the numbers that another one hands on: one at the begin of
        each iteration, and that by which it ends."""
        whiles = [o for o in walk(self.func.body) if o.kind is control.while_]
        given = {
            frozenset((c.params[1], c.result)): (o, c.params[0])
            for o in whiles
            for i, c in enumerate(control.carried(o))
            if o.regions[0].yielded[i + 1] is c.params[0]
        }
        handed_on: dict[Value, Value] = {}
        for c in itertools.chain(*map(control.carried, whiles)):
            first, then = (self.made.get(v) for v in (*c.init, c.yielded[1]))
            if first is None or then is None or {first.kind, then.kind} != {smem.shared_get}:
                continue
            puts = self.flow[first.result][1:]
            by, number = given.get(frozenset(puts), (None, None))
            if len(puts) != 2 or puts != self.flow[then.result][1:] or by is None or number is None:
                continue
            if self._puts_always(puts, by):
                handed_on[c.params[0]] = number
        return alike(self.func.body, self.needed, self._is_kept, handed_on)

    def _puts_always(self, values: tuple[Value, ...], loop: Op) -> bool:
        """Is each put under no more conditions than the loop: the one inside in each iteration?"""
        around = parents(self.func.body)

        def branches(o: Op) -> list[Op]:
            found, at = list[Op](), around[o]
            while at is not None:
                found += [at] if at.kind in _BRANCHES else []
                at = around[at]
            return found

        puts = (o for o in walk(self.func.body) if o.kind is smem.shared_put)
        found = [branches(o) for o in puts if o.operands[1] in values]
        outer = branches(loop)
        return len(found) == 2 and all(x in found for x in (outer, [loop, *outer]))

    def _is_kept(self, load: Op) -> bool:
        return not load.attrs.get("volatile") and self.own(load.result) is Source.MEMORY

    def twins(self, condition: Condition) -> list[Condition]:
        """The conditions that always come to the same, in whatever task: itself, too."""
        return [c for c in self.conditions if self.alike[c.value] == self.alike[condition.value]]

    def ends_loops_of_all_tasks(self, condition: Condition) -> bool:
        """Is it what each task's `while` goes on by, equal in all of them, and nothing else?  Then it decides
        how often all these loops run, each as often as the others."""
        twins = self.twins(condition)
        whiles = {o.regions[0].yielded[0]: o for o in self.deciding if o.kind is control.while_}
        if any(c.value not in whiles for c in twins) or self.is_one_of_many(condition.value):
            return False
        ends = {whiles[c.value] for c in twins}
        asked = [o for o in walk(self.func.body) for c in twins if c.value in o.operands]
        if {*asked} != {o.regions[0].ops[-1] for o in ends}:
            return False
        at_once = [
            [set(r.all_ops) for r in o.regions if not self.deciding.keys().isdisjoint(r.all_ops)]
            for o in task.phases(self.func)
        ]
        return all(
            not any(ops & ends for ops in tasks) or all(ops & ends for ops in tasks)
            for tasks in at_once
        )

    def is_cursor(self, v: Value) -> bool:
        """Is it made from a ring's cursor?"""
        if v not in self._is_cursor:
            made = (self.made.get(x) for x in closure([v], self.flow_of))
            self._is_cursor[v] = any(o is not None and o.kind is task.ring_next for o in made)
        return self._is_cursor[v]

    def is_one_of_many(self, v: Value) -> bool:
        """Whether agents that run one op have different values there: replicas, CTAs of a cluster."""
        behind = closure([v], self.behind)
        return any(x in self.made and self.made[x].kind in _RANKS for x in behind)

    def inputs(self, v: Value) -> Iterator[Op]:
        """The ops that bring in what a value hangs on, for words."""
        for x in closure([v], self.flow_of):
            o = self.made.get(x)
            if o is not None and o.kind in (tile.load, tile.atomic):
                yield o


def _points(v: Value) -> bool:
    """Is it a pointer, or made of some?"""
    inner = v.type.elem if isinstance(v.type, Tile) else v.type
    return isinstance(inner, (Pointer, View, TensorMap))


def in_words(sources: Source) -> str:
    """Sources as a noun phrase."""
    names = {
        Source.ARGUMENT: "an argument",
        Source.PROGRAM: "the program's number",
        Source.ITERATION: "the iteration",
        Source.MEMORY: "a word of memory",
        Source.SHARED_WORD: "a word of memory that the kernel writes",
        Source.TILE: "the data of a tile",
        Source.CLOCK: "the clock",
    }
    if Source.CLOCK in sources:
        sources &= ~Source.SHARED_WORD
    return " and ".join(words for s, words in names.items() if s in sources)
