"""Global memory within a launch: whether programs, and groups of a program, keep out of each other's words.

Every pair of accesses to one array, at least one of which writes, is brought together (disjoint.py):
executions of different programs or groups touch no common word, or store the same value there.  Where that
isn't shown, executions are sought that do (samples.py): then the kernel is broken, else it is not proved.
Atomics go together with atomics.  Accesses of one thread group come in its program's order; those of
different groups of one program are asked for like those of programs, as nothing here follows barriers.

What is taken for granted is said: different pointer arguments don't overlap, integer arguments aren't
negative, conditions on strides and the grid.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

from warploom.check.data_flow import comes_first, depends_on_executor
from warploom.check.disjoint import Condition, Meeting, meet
from warploom.check.global_accesses import Access, collect
from warploom.check.inequalities import Facts
from warploom.check.own_threads import same_threads, unparted
from warploom.check.places import Common, Unknown
from warploom.check.proxies import crossings, overwritten
from warploom.check.report import Unproved
from warploom.check.runs import Case
from warploom.check.terms import LAUNCH, ONE, Atom, atoms_of, show
from warploom.check.trace import Trace, traced
from warploom.check.witness import Witness, find_witness
from warploom.errors import Note
from warploom.ir.core import Func, Level, Op, walk
from warploom.ir.ops import control, tile
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.poly import Poly
from warploom.sim.global_order import Threads, is_ordered
from warploom.sim.report import Race

Executors = list[tuple[Poly, Poly]]
Settled = Container[tuple[Op, Op]]


@dataclass
class GlobalMemory:
    """What is known of a function's accesses to global memory.

    broken: races, with a witness.  unproved: what could not be decided.  conditions: what the proof takes for
    granted of the launch.  stores, pairs: that were looked at.  seconds: that it took."""

    broken: list[Race] = field(default_factory=list)
    unproved: list[Unproved] = field(default_factory=list)
    conditions: dict[str, Condition | None] = field(default_factory=dict)
    stores: int = 0
    pairs: int = 0
    seconds: float = 0.0
    launches: tuple[str, ...] = ()  # for which
    shared: tuple[str, ...] = ()  # arguments whose arrays share memory, which was looked at
    asked: set[Op] = field(default_factory=set)  # that were looked at so
    reached: set[Op] = field(default_factory=set)  # of these, what the launch executes
    settled: dict[tuple[Op, Op], list[Condition]] = field(default_factory=dict)  # pairs kept apart
    read: dict[str, None] = field(default_factory=dict)  # arrays whose contents decided something

    @property
    def verdict(self) -> str:
        """ "proved", "not proved" or "broken"."""
        return "broken" if self.broken else "not proved" if self.unproved else "proved"

    @property
    def claim(self) -> str:
        """What holds where it is proved, with its hypotheses."""
        if not self.stores:
            return "no store to global memory"
        where = f", at {'; '.join(self.launches)}" if self.launches else ""
        where += f", with what {', '.join(self.read)} hold" if self.read else ""
        apart = "different pointer arguments do not overlap"
        apart += f" (but {', '.join(self.shared)}, as in this launch)" if self.shared else ""
        text = (
            f"global memory{where}: no two programs or groups write different values to a word, or read what "
            f"another one writes ({self.stores} stores), where {apart} and integer arguments are not negative"
        )
        if not self.launches:
            text += ", and the grid has one program along axes that no program asks for"
        return text + ("; and " + "; ".join(self.conditions) if self.conditions else "")


def asked_axes(func: Func) -> set[int]:
    """The axes of the grid along which programs ask who they are."""
    return {o.attrs["axis"] for o in func.body.all_ops if o.kind is tile.program_id}


def check_global(
    func: Func, case: Case | None = None, has_contents: bool = False, settled: Settled = frozenset()
) -> GlobalMemory:
    """Decides a function at WARP or PLACED, in the launch `case`; without one in all launches that keep the
    conditions.  has_contents: its arrays hold what they will hold then.  settled: pairs that keep apart in
    all launches."""
    start = time.perf_counter()
    checker = _Checker(func, case, has_contents, settled)
    checker.run()
    checker.report.seconds = time.perf_counter() - start
    return checker.report


class _Checker:
    def __init__(self, func: Func, case: Case | None, has_contents: bool, settled: Settled) -> None:
        known = case.numbers(func) if case else None
        self.found = found = collect(func, known, case.grid if case else None)
        self.case, self.has_contents, self.settled = case, has_contents, settled
        self.terms, self.values = found.terms, found.values
        self.report = GlobalMemory()
        is_grid_known = case is not None or found.func.attrs.get("grid")
        axes = {0, 1, 2} if is_grid_known else asked_axes(found.func)
        cluster = cluster_of(found.func)
        self.programs = [p for a in sorted(axes) if (p := self.values.program(a))]
        self.ctas = [p for a in range(3) if cluster[a] > 1 and (p := self.values.cta(a))]
        self.unparted, self.threads = unparted(func), Threads(func)
        self.of_replicas = unparted(func, by_task=True)
        self._said: set[object] = set()
        self._held: list[Condition] = []
        self._trace: Trace | Unknown | None = None

    def run(self) -> None:
        accesses = self.found.accesses
        plain = [a for a in accesses if a.writes and not a.is_atomic]
        self.report.stores = len(plain)
        for a in plain:
            if a.base is None:
                self._open(a, f"{a} goes to an address that is no pointer argument plus an offset")
        for a, b in combinations_with_replacement(accesses, 2):
            if a.base is not b.base or a.base is None:
                continue
            for one, other in ((a, b), (b, a)):
                if one in plain or (_combines(one) and not (other.writes or other.is_atomic)):
                    self._pair(one, other)
                    break
        alike = [p - self.terms.other(p) for p in (*self.programs, *self.ctas)]
        for reason, race, access in crossings(self.found, alike):
            if race is not None:
                self._broken(race)
            else:
                self._open(access, reason)
        for access, met, race in overwritten(self.found, alike):
            self._note(met, access)
            if race is not None:
                self._broken(race)

    # ---- one pair; a is a plain store, or an atomic where b is a load

    def _pair(self, a: Access, b: Access) -> None:
        self.report.pairs += 1
        if (a.op, b.op) in self.settled:
            return
        self.report.asked |= {a.op, b.op}
        self._held = []
        together = a.agent.phase == b.agent.phase
        numbers = [*self.programs, *self.ctas]
        if together and a.agent == b.agent and a.agent.replicas > 1:
            self.values.enter(a.agent.replicas)
            if not self._replicas_meet(a, b):
                numbers.append(self.values.replica())
        if numbers and not self._keep_apart(a, b, [(p, self.terms.other(p)) for p in numbers]):
            return
        keep_apart = self._threads_keep_apart if a.agent == b.agent else self._tasks_keep_apart
        if not together or keep_apart(a, b):
            self.report.settled[a.op, b.op] = self._held

    def _keep_apart(self, a: Access, b: Access, executors: Executors) -> bool:
        """Do a and b by different executors keep apart?  Says what they do where they don't."""
        seen = self._common(a, b, False)
        if seen is None:
            return True
        found = meet(self.terms, a, b, executors, self.programs)
        if found.is_fine and found.takes_one_program:
            both = str(a) if a is b else f"{a} and {b}"
            where = "; ".join(map(str, _strongest(found.conditions)))
            words = f"they keep apart where {where}, and may touch one word on other grids"
            self._open(a, f"{both} in two programs: {words}")
            return False
        self._note(found, a)
        if found.is_fine or self._is_last_out(a, b):
            return True
        self._stuck(a, b, executors, found, seen)
        return False

    def _threads_keep_apart(self, a: Access, b: Access) -> bool:
        """The threads of one group: does a barrier part all executions, or is each element one thread's?"""
        pairs = {(x, y) for x in a.ops for y in b.ops}
        if self.unparted.isdisjoint(pairs | {(y, x) for x, y in pairs}):
            return True
        left = ""
        if same_threads(self.threads, a, b):
            places = [(c, self.terms.other(c)) for c in a.coordinates if c]
            found = meet(self.terms, a, b, places, self.programs, self._one_group(a))
            self._note(found, a)
            if found.is_fine or not places:
                return True
            left = ", ".join(show(Poly.atom(x)) for x in _unknown(found.left)[:2])
        seen = self._common(a, b, True, of_threads=True)
        if seen is None:
            return True
        both = f"two executions of {a}" if a is b else f"{a} and {b}"
        if isinstance(seen, Common) and seen.is_certain:
            where = f"element {seen.word} of {a.base.hint if a.base else 'memory'} by {seen.one}"
            self._broken(
                Race(
                    "global-race", f"{both} touch one word by different threads: {where}", b.loc,
                    () if a is b else (Note("the other one", a.loc),),
                    help="a barrier must stand between the two: self.sync()",
                )
            )  # fmt: skip
            return False
        why = f": the place depends on {left}" if left else ""
        self._open(
            a, f"{both} by threads of one group may touch one word, with no barrier between{why}"
        )
        return False

    def _replicas_meet(self, a: Access, b: Access) -> bool:
        """Does a barrier of all replicas part executions by two of them?  Not of one access in the same
        iteration, which have to keep apart."""
        pairs = {(x, y) for x in a.ops for y in b.ops}
        counted = all(o.kind is control.for_ for o in a.loops)
        if (
            self.found.func.level is not Level.PLACED
            or not all(map(is_ordered, (*a.ops, *b.ops)))
            or not self.of_replicas.isdisjoint(pairs | {(y, x) for x, y in pairs})
            or (a is b and not counted)
        ):
            return False
        if a is not b:
            return True
        index = (self.values.scalar(o.regions[0].params[0]) for o in a.loops)
        same = [p - self.terms.other(p) for p in (*self.programs, *self.ctas, *index)]
        replica = self.values.replica()
        found = meet(self.terms, a, a, [(replica, self.terms.other(replica))], self.programs, same)
        self._note(found, a)
        return found.is_fine

    def _one_group(self, a: Access) -> list[Poly]:
        """Differences that are 0 where two executions are of one group."""
        numbers = [*self.programs, *self.ctas]
        if a.agent.replicas > 1:
            self.values.enter(a.agent.replicas)
            numbers.append(self.values.replica())
        return [p - self.terms.other(p) for p in numbers]

    def _tasks_keep_apart(self, a: Access, b: Access) -> bool:
        """Two tasks of a program: are they apart, or ordered by barriers in this launch?"""
        seen = self._common(a, b, True)
        if seen is None:
            return True
        alike = [p - self.terms.other(p) for p in (*self.programs, *self.ctas)]
        found = meet(self.terms, a, b, [], self.programs, alike)
        self._note(found, a)
        if found.apart or found.agrees or (not b.writes and comes_first(self.found, a, b)):
            return True
        if isinstance(seen, Common) and not b.is_atomic and (not b.writes or _store_others(a, b)):
            how = "write one word" if b.writes else "reads what another group writes"
            self._broken(_race(a, b, _witness(a, seen), how))
            return False
        words = f"whether {a} by {a.agent.task} and {b} by {b.agent.task} of one program keep apart"
        self._open(a, f"{words} or are ordered by barriers")
        return False

    def _common(
        self, a: Access, b: Access, only_within: bool, of_threads: bool = False
    ) -> Common | Unknown | None:
        """A word that two programs, or groups that nothing orders, touch in this launch; None where there is
        none; Unknown where the launch is not known, or not enough of it.  only_within: groups alone.
        of_threads: those of one group."""
        if self.case is None:
            return Unknown("the launch")
        if self._trace is None:
            try:
                self._trace = traced(self.found, self.case, self.has_contents, self.unparted)
            except Unknown as e:
                self._trace = e
        if isinstance(self._trace, Unknown):
            return self._trace
        trace = self._trace
        found = trace.common_of_threads(a, b) if of_threads else trace.common(a, b, only_within)
        self.report.reached |= {x.op for x in (a, b) if self._trace.reaches(x)}
        if found is None:
            self.report.read |= self._trace.read
            for name in self._trace.tickets.taken:
                self.report.conditions[f"{name} holds 0 at first"] = None
        return found

    def _stuck(
        self,
        a: Access,
        b: Access,
        executors: Executors,
        found: Meeting,
        common: Common | Unknown,
    ) -> None:
        unknown = _unknown((*found.left, a.offset, b.offset))
        # With strides left over, numbers could be found that no array has.
        strides = any(x.kind == "argument" for q in found.left for x in q.atoms())  # type: ignore[attr-defined]
        witness = None
        if isinstance(common, Common):
            is_sure = common.is_certain and not b.is_atomic
            witness = _witness(a, common) if is_sure else None
        elif not b.is_atomic and not strides:
            witness = find_witness(self.terms, a, b, executors, found.conditions)
        if witness is not None and (axis := self._lone_axis(a, b, executors)) is not None:
            both = f"two executions of {a}" if a is b else f"{a} and {b}"
            alone = f"they keep apart on grids of one program along axis {axis}"
            self._open(a, f"{both} touch one word ({witness.words}); {alone}")
            return
        if witness is not None:
            if not b.writes:
                if not _protocol(self.found.accesses):
                    self._broken(_race(a, b, witness, "reads what another one writes"))
                    return
            elif self._waits():
                pass  # for other programs: what orders these stores
            elif depends_on_executor(self.found, a) or depends_on_executor(self.found, b):
                self._broken(_race(a, b, witness, "write one word"))
                return
        self._open(a, self._reason(a, b, unknown, witness, found.is_cut))

    def _lone_axis(self, a: Access, b: Access, executors: Executors) -> int | None:
        """Where all grids are asked about, of several axes one that neither place follows: perhaps one
        program along it is meant.  Those that differ along others keep apart."""
        if self.case is not None or self.found.func.attrs.get("grid"):
            return None
        followed = set(atoms_of([a.offset, b.offset]))
        for axis, (p, q) in zip(sorted(asked_axes(self.found.func)), executors, strict=False):
            others = [pair for pair in executors if pair[0] is not p]
            if others and followed.isdisjoint(p.atoms()):
                found = meet(self.terms, a, b, others, self.programs, [p - q])
                if found.is_fine and not found.takes_one_program:
                    return axis
        return None

    def _waits(self) -> bool:
        """Do programs wait for each other: is a word asked again and again that a program releases?"""
        flags = {x for a in _protocol(self.found.accesses) for x in a.ops}
        loops = (o for o in self.found.func.body.all_ops if o.kind is control.while_)
        return any(not flags.isdisjoint(walk(o.regions[0])) for o in loops)

    def _reason(
        self, a: Access, b: Access, unknown: list[Atom], witness: Witness | None, is_cut: bool
    ) -> str:
        if b.is_atomic or ((not b.writes or self._waits()) and _protocol(self.found.accesses)):
            flags = ", ".join(str(x) for x in _protocol(self.found.accesses)[:2]) or str(b)
            return f"{a} and {b} may touch one word, ordered perhaps by {flags}"
        if witness is not None:
            return f"{a} and {b} touch one word ({witness.words}), perhaps with the same value"
        both = str(a) if a is b else f"{a} and {b}"
        if is_cut:
            return f"{both} may touch one word in two programs: too many cases to tell"
        if unknown:
            names = ", ".join(
                dict.fromkeys(show(Poly.atom(x)).replace("′", "") for x in unknown[:2])
            )
            where = next((x.loc for x in unknown if x.loc), None)
            at = f" (line {where.line})" if where else ""
            return f"{both} in two programs: the place depends on {names}{at}"
        return f"{both} may touch one word in two programs: nothing tells that they do not"

    def _is_last_out(self, a: Access, b: Access) -> bool:
        """Is one the reset of a counter by the last program to leave (its ticket is the last), and does the
        other draw from it before it takes its ticket?"""
        if not b.is_atomic or b.agent != a.agent:
            return False
        atoms = [x for e in a.equal for x in e.atoms() if isinstance(x, Atom)]
        last = self.values.programs(0) - ONE
        ops = list(self.found.func.body.all_ops)
        for x in atoms:
            ticket = next((y for y in self.found.accesses if y.op is x.about), None)
            if x.kind != "drawn" or ticket is None or ticket.loops or ticket.agent.replicas > 1:
                continue
            is_last = any(e in (Poly.atom(x) - last, last - Poly.atom(x)) for e in a.equal)
            if is_last and ops.index(b.op) <= ops.index(ticket.op):
                self.report.conditions[
                    "the last program to leave resets the counters that all drew from"
                ] = None
                return True
        return False

    # ---- what is said

    def _note(self, found: Meeting, a: Access) -> None:
        if not found.is_fine:
            return
        strongest = _strongest(found.conditions)
        self._held += strongest
        for c in strongest:
            self.report.conditions[str(c)] = c
        for x in atoms_of([a.offset]):
            if x.kind == "drawn":
                base = self.values.base_of(x.about.operands[0])  # type: ignore[attr-defined]
                name = base.hint if base is not None else "the counter"
                self.report.conditions[f"{name} holds no negative number at first"] = None
        facts = Facts(self.terms, a.within, is_strict=True)
        for d in dict.fromkeys(found.assumed):
            mine = all(not x.is_other for x in atoms_of([d]))
            if mine and not facts.at_least_0(d - Poly.const(1)):
                self.report.conditions[f"the divisor {show(d)} is positive"] = None

    def _open(self, a: Access, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            self.report.unproved.append(Unproved(reason, a.loc))

    def _broken(self, race: Race) -> None:
        key = race.code, race.loc, tuple(n.loc for n in race.notes)
        if key not in self._said:
            self._said.add(key)
            self.report.broken.append(race)


def _combines(a: Access) -> bool:
    """Is it an atomic that writes?"""
    return a.is_atomic and a.op.attrs.get("fn") != "load"


def _race(a: Access, b: Access, witness: Witness, how: str) -> Race:
    who = "two executions of one store" if a is b else f"{a} and {b}"
    message = (
        f"{who} {how}: {witness.words}"
        if b.writes
        else f"{b} {how} without synchronisation: {witness.words}"
    )
    notes = () if a is b else (Note("the other one", a.loc if not b.writes else b.loc),)
    return Race(
        "global-race", message, (b if not b.writes else a).loc, notes,
        help="give each program or group words of its own, or combine by atomics",
    )  # fmt: skip


def _store_others(a: Access, b: Access) -> bool:
    """Are the stored values different expressions of what is known?"""
    if a.value is None or b.value is None or a.value == b.value:
        return False
    return all(x.kind != "free" for x in atoms_of([a.value, b.value]))


def _witness(a: Access, common: Common) -> Witness:
    base = a.base.hint if a.base is not None else "memory"
    return Witness(f"element {common.word} of {base} by {common.one} and by {common.other}")


def _protocol(accesses: Iterable[Access]) -> list[Access]:
    """What may synchronise programs: atomics with an order, and loads that are made again and again."""
    ordered = ("acquire", "release", "acq_rel")
    return [
        a
        for a in accesses
        if (a.is_atomic and a.op.attrs.get("sem") in ordered) or a.op.attrs.get("volatile")
    ]


def _unknown(equations: Iterable[Poly]) -> list[Atom]:
    """The atoms of what is left that aren't plain numbers: what the place depends on."""
    plain = (
        *LAUNCH, "program", "cta", "replica", "coordinate", "trip", "quotient", "remainder", "min", "max"
    )  # fmt: skip
    return [a for a in atoms_of(equations) if a.kind not in plain and not a.is_other]


def _strongest(conditions: Iterable[Condition]) -> list[Condition]:
    """Without those bounds by a number on strides that have others as well."""
    found = list(dict.fromkeys(conditions))
    return [
        c
        for c in found
        if c.least is None
        or c.least.constant is None
        or not any(d is not c and d.big == c.big and d.least != c.least for d in found)
    ]
