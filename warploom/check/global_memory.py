"""Global memory within a launch: whether programs, and groups of a program, keep out of each other's words.

Every pair of accesses to one array, at least one of them a store, is brought together (disjoint.py):
executions of different programs or groups touch no common word, or store the same value there.  Where that
isn't shown, executions are sought that do (samples.py): then the kernel is broken, else it is not proved.
Atomics go together with atomics.  Accesses of one thread group come in its program's order; those of
different groups of one program are asked for like those of programs, as nothing here follows barriers.

What is taken for granted is said: different pointer arguments don't overlap, integer arguments aren't
negative, conditions on strides and the grid.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warploom.check.cases import Case
from warploom.check.data_flow import comes_first, depends_on_executor
from warploom.check.disjoint import Condition, Meeting, meet
from warploom.check.enumerated import Common, Unknown, common_word
from warploom.check.global_accesses import Access, Collected, collect
from warploom.check.inequalities import Facts
from warploom.check.launches import examples
from warploom.check.proxies import crossings
from warploom.check.report import CheckReport, Failure, Unproved
from warploom.check.terms import LAUNCH, ONE, Atom, atoms_of, show
from warploom.check.witness import Witness, find_witness
from warploom.errors import Note
from warploom.ir.core import Func, Op, Value
from warploom.ir.ops import tile
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.poly import Poly
from warploom.ir.types import Scalar
from warploom.sim.report import Race

Executors = list[tuple[Poly, Poly]]


@dataclass
class GlobalMemory:
    """What is known of a function's accesses to global memory.

    broken: races, with a witness.  unproved: what could not be decided.  conditions: what the proof takes for
    granted of the launch.  stores, pairs: that were looked at.  seconds: that it took."""

    broken: list[Race] = field(default_factory=list)
    unproved: list[Unproved] = field(default_factory=list)
    conditions: dict[str, None] = field(default_factory=dict)
    stores: int = 0
    pairs: int = 0
    seconds: float = 0.0
    is_enumerated: bool = False  # some of it word by word
    launches: tuple[str, ...] = ()  # for which
    asked: set[Op] = field(default_factory=set)  # that were looked at so
    reached: set[Op] = field(default_factory=set)  # of these, what the launch executes

    @property
    def verdict(self) -> str:
        """ "proved", "not proved" or "broken"."""
        return "broken" if self.broken else "not proved" if self.unproved else "proved"

    @property
    def claim(self) -> str:
        """What holds where it is proved, with its hypotheses."""
        if not self.stores:
            return "no store to global memory"
        where = f", at {'; '.join(self.launches)}" if self.is_enumerated else ""
        text = (
            f"global memory{where}: no two programs or groups write different values to a word, or read what "
            f"another one writes ({self.stores} stores), where different pointer arguments do not overlap "
            "and integer arguments are not negative"
        )
        return text + ("; and " + "; ".join(self.conditions) if self.conditions else "")


def check_global(
    func: Func, known: dict[Value, int] | None = None, grid: Sequence[int] | None = None
) -> GlobalMemory:
    """Decides a function at WARP or PLACED.  known: values of arguments of this launch, by parameter;
    grid: its programs along each axis.  Without them the verdict is that of all launches that keep the
    conditions."""
    start = time.perf_counter()
    checker = _Checker(collect(func, known, grid))
    checker.run()
    checker.report.seconds = time.perf_counter() - start
    return checker.report


def add_global_memory(
    report: CheckReport,
    func: Func,
    cases: Sequence[Case] | None,
    searched: Sequence[Case] = (),
) -> None:
    """Adds to a report what is known of global memory: for all launches, or for the given ones.  searched:
    inputs whose like are tried where nothing is known for all."""
    found = [_for_all(func, searched)] if cases is None else _launch_by_launch(func, cases)
    races = {(r.code, r.loc): r for one in found for r in one.broken}
    report.failures += map(Failure, races.values())
    report.unproved += dict.fromkeys(u for one in found for u in one.unproved)
    if not report.unproved and not report.failures:
        report.claims += dict.fromkeys(one.claim for one in found)


def _for_all(func: Func, searched: Sequence[Case]) -> GlobalMemory:
    """The verdict for all launches; where there is none, that for some, which the claim then names."""
    whole = check_global(func)
    if whole.verdict != "not proved":
        return whole
    launches = examples(func, searched)
    each = _launch_by_launch(func, launches)
    reached = {o for one in each for o in one.reached}
    left = {o for one in each for o in one.asked} - reached
    if not each or left or any(one.verdict != "proved" for one in each):
        return whole
    found = each[0]
    found.conditions = {c: None for one in each for c in one.conditions}
    found.launches = tuple(case.describe(func) for case in launches)
    return found


def _launch_by_launch(func: Func, cases: Sequence[Case]) -> list[GlobalMemory]:
    found: dict[object, GlobalMemory] = {}
    for case in cases:
        pairs = zip(func.params, case.args, strict=True)
        known = {v: int(a) for v, a in pairs if isinstance(v.type, Scalar) and v.type.dtype.is_int}
        key = tuple(known.values()), case.grid
        if key not in found:
            found[key] = check_global(func, known, case.grid)
            found[key].launches = (case.describe(func),)
    return list(found.values())


class _Checker:
    def __init__(self, found: Collected) -> None:
        self.found, self.terms, self.values = found, found.terms, found.values
        self.report = GlobalMemory()
        axes = {o.attrs["axis"] for o in found.func.body.all_ops if o.kind is tile.program_id}
        cluster = cluster_of(found.func)
        self.programs = [p for a in sorted(axes) if (p := self.values.program(a))]
        self.ctas = [p for a in range(3) if cluster[a] > 1 and (p := self.values.cta(a))]
        self._said: set[object] = set()

    def run(self) -> None:
        accesses = self.found.accesses
        plain = [a for a in accesses if a.writes and not a.is_atomic]
        self.report.stores = len(plain)
        for a in plain:
            if a.base is None:
                self._open(a, f"{a} goes to an address that is no pointer argument plus an offset")
        written = {a.base for a in plain} - {None}
        for i, a in enumerate(accesses):
            if a.base not in written:
                continue
            for b in accesses[i:]:
                if a.base is b.base and (a in plain or b in plain):
                    self._pair(*((a, b) if a in plain else (b, a)))
        alike = [p - self.terms.other(p) for p in (*self.programs, *self.ctas)]
        for reason, race, access in crossings(self.found, alike):
            if race is not None:
                self._broken(race)
            else:
                self._open(access, reason)

    # ---- one pair; a is a plain store

    def _pair(self, a: Access, b: Access) -> None:
        self.report.pairs += 1
        other = self.terms.other
        executors = [(p, other(p)) for p in (*self.programs, *self.ctas)]
        together = a.agent.phase == b.agent.phase
        if together and a.agent == b.agent and a.agent.replicas > 1:
            self.values.enter(a.agent.replicas)
            group = self.values.replica()
            executors.append((group, other(group)))
        if executors and (common := self._common(a, b, [p for p, _ in executors])) is not None:
            found = meet(self.terms, a, b, executors, self.programs)
            self._note(found, a)
            if not found.is_fine:
                self._stuck(a, b, executors, found, common)
                return
        if together and a.agent != b.agent:
            self._tasks_of_one_program(a, b)

    def _tasks_of_one_program(self, a: Access, b: Access) -> None:
        """Two tasks of a program: apart, or ordered by barriers, which nothing here follows."""
        if self._common(a, b, []) is None:
            return
        alike = [p - self.terms.other(p) for p in (*self.programs, *self.ctas)]
        found = meet(self.terms, a, b, [], self.programs, alike)
        self._note(found, a)
        if found.apart or found.agrees or (not b.writes and comes_first(self.found, a, b)):
            return
        words = f"whether {a} by {a.agent.task} and {b} by {b.agent.task} of one program keep apart"
        self._open(a, f"{words} or are ordered by barriers")

    def _common(self, a: Access, b: Access, executors: list[Poly]) -> Common | Unknown | None:
        """A word that two executors touch in this launch, None where there is none; Unknown where the launch
        is not known, or not enough of it."""
        if self.values.grid is None:
            return Unknown("the launch")
        self.report.asked |= {a.op, b.op}
        try:
            programs = [*self.programs, *self.ctas]
            found = common_word(self.values, a, b, executors, programs, self.report.reached)
        except Unknown as e:
            return e
        if found is None:
            self.report.is_enumerated = True
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
        if self._is_last_out(a, b):
            return
        # With strides left over, numbers could be found that no array has.
        strides = any(x.kind == "argument" for q in found.left for x in q.atoms())  # type: ignore[attr-defined]
        witness = None
        if isinstance(common, Common):
            names = [str(p) for p, _ in executors]
            witness = _seen(a, names, common) if common.is_certain and not b.is_atomic else None
        elif not b.is_atomic and not strides:
            witness = find_witness(self.terms, a, b, executors, found.conditions)
        if witness is not None:
            if not b.writes:
                if not _protocol(self.found.accesses):
                    self._broken(_race(a, b, witness, "reads what another one writes"))
                    return
            elif depends_on_executor(self.found, a) or depends_on_executor(self.found, b):
                self._broken(_race(a, b, witness, "write one word"))
                return
        self._open(a, self._reason(a, b, unknown, witness, found.is_cut))

    def _reason(
        self, a: Access, b: Access, unknown: list[Atom], witness: Witness | None, is_cut: bool
    ) -> str:
        if b.is_atomic or (not b.writes and _protocol(self.found.accesses)):
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
        for c in _strongest(found.conditions):
            self.report.conditions[str(c)] = None
        facts = Facts(self.terms, a.within, is_strict=True)
        for d in dict.fromkeys(found.assumed):
            mine = all(x.side == 0 for x in atoms_of([d]))
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


def _seen(a: Access, names: list[str], common: Common) -> Witness:
    def who(numbers: tuple[int, ...]) -> str:
        return ", ".join(f"{x} = {n}" for x, n in zip(names, numbers, strict=True))

    base = a.base.hint if a.base is not None else "memory"
    return Witness(
        f"element {common.word} of {base} by {who(common.one)} and by {who(common.other)}"
    )


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
        *LAUNCH,
        "program",
        "cta",
        "replica",
        "coordinate",
        "trip",
        "quotient",
        "remainder",
        "min",
        "max",
    )
    return [a for a in atoms_of(equations) if a.kind not in plain and not a.side]


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
