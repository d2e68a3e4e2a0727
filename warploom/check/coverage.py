"""Whether the runs say all there is to say: each condition that decides events was turned both ways, and each
loop was run for longer than anything in it takes to come back.

Where they don't, inputs are looked for that turn what was not turned (solve.py).  A condition that no input
was found to turn is taken to be *free*: the program is run with outcomes of the checker's choice, in all
agents, always, never, late, in turns.  Where all of these are right, its outcome does not matter.  What is
left is named in the report as not proved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

from warploom.analysis.facts import facts_of
from warploom.check.cases import MOST_PROGRAMS, NOT_CONFLUENT, UNFIT, Case, Runs, Steering
from warploom.check.course import Courses
from warploom.check.dependence import Condition, Dependence, Source, in_words
from warploom.check.recurrence import Recurrences, loop_name
from warploom.check.report import CheckReport, Unproved
from warploom.check.solve import Solver
from warploom.check.trips import Parting, partings
from warploom.check.values import Wish
from warploom.ir.analysis import loops
from warploom.ir.core import Op
from warploom.ir.ops import control
from warploom.sim.agent import NeedsData
from warploom.sim.chosen import LATE, PATTERNS, RISING, Fill
from warploom.sim.outline import Forced
from warploom.sim.report import SimError, StepLimit, TripLimit

MOST_WISHES = 10  # inputs that are tried to turn one condition
FEW_WISHES = 3  # likewise, with a loop that is long
MOST_PAIRS = 16  # pairs of conditions that are turned together
MOST_STEPS = (
    20_000  # of the inputs that are tried to turn conditions, and of those that lengthen loops
)
LARGEST, MOST_IDLE = 1 << 30, 3  # numbers that lengthen a loop, and doublings without effect
MUCH = 2  # times the iterations that are asked for
FAR = 64  # programs
FARTHEST = 256  # words of an array are apart, an iteration that is asked for
FEWEST = 8  # tiles an iteration, before which a number that has no effect may still have one
_UNIFORM = Source.ARGUMENT | Source.PROGRAM | Source.MEMORY

FREE: tuple[Forced, ...] = (
    lambda turn: True,
    lambda turn: False,
    lambda turn: turn % 2 == 0,
    lambda turn: turn % 2 == 1,
    lambda turn: turn >= LATE // 2,
    lambda turn: turn < LATE // 2,
    lambda turn: turn % 5 == 4,
    lambda turn: turn % 5 != 4,
)
CONSTANT = 2  # so many of these, the first ones, are the same in all iterations


class Checker(Protocol):
    """What runs inputs: protocol.py."""

    report: CheckReport
    recurrences: Recurrences
    runs: Runs
    rich: Case | None
    busy: Case | None
    whole: set[Op]

    def run(self, case: Case, programs: tuple[int, ...] = ()) -> None: ...
    def longest(self, loop: Op) -> Case: ...


class Coverage:
    """Completes the runs of a checker, and says what stays open."""

    def __init__(
        self, checker: Checker, dependence: Dependence, steering: Steering, cases: list[Case]
    ) -> None:
        self.checker, self.dependence, self.steering = checker, dependence, steering
        self.runs, self.report = checker.runs, checker.report
        self.solver = Solver(dependence, steering)
        self.courses = Courses(self.solver.values, self.solver.sums)
        self.parted: list[Parting] = []
        self._begun = 0  # steps that were taken before the search
        self.around = loops(dependence.func.body)
        self.cases = cases
        self.busy = cases[0]  # of these, the shortest in which each loop runs several times
        self._constant: dict[Condition, bool] = {}
        self.facts = facts_of(dependence.func)
        # Of each `while` what makes it longer: how often it runs then, and whether at the largest number.
        self._grown: dict[Op, dict[int, tuple[int, bool]]] = {}
        self._free: dict[int, bool] = {}  # by the class of conditions
        self._brief: list[Unproved] = []  # loops that were run for long with one outcome alone

    def complete(self) -> None:
        """Runs what is missing; stops where something is broken."""
        self._begun = self.runs.taken
        self.busy = self.checker.busy or self.longest
        for condition in self.dependence.conditions:
            self._turn(condition)
            if self.report.failures:
                return
        self._part()
        self._turn_pairs()
        self._fill()
        self._lengthen()
        self._lengthen_with_outcomes()
        self._words()

    def judge(self) -> None:
        """Adds to the report what is not proved."""
        if self.report.failures:
            return
        for condition in self.dependence.conditions:
            if self._is_covered(condition):
                continue
            if not self._is_constant(condition) and not self._is_free(condition):
                self._leave(condition)
        for loop, event in self._loops.items():
            if not self._is_long(loop):
                trips = self.checker.recurrences.trips.get(loop, 0)
                reason = (
                    f"the {event.kind.name} is in a loop for which no input was found that makes it run for "
                    f"more than {trips} iterations"
                )
                self._open(Unproved(reason, loop.loc))
        for unproved in self._brief:
            self._open(unproved)
        for parting in self.parted:
            at = (
                f"{parting.other.loc.file}:{parting.other.loc.line}"
                if parting.other.loc
                else "another"
            )
            reason = f"this loop and the one at {at}, of another task, do not run equally often"
            self._open(Unproved(reason, parting.one.loc))
        for event, value, sources in self.dependence.operands:
            counts = self.dependence.counts(value)
            if sources & ~(Source.TURN | Source.ARGUMENT | Source.PROGRAM) or (
                counts > self._iterations(event) if Source.TURN in sources else counts == 1
            ):
                reason = (
                    f"which slot, phase or CTA the {event.kind.name} means hangs on "
                    f"{in_words(sources)}"
                )
                self._open(Unproved(reason, event.loc))

    def _iterations(self, event: Op) -> int:
        """The iterations for which the loops around an event were run."""
        trips = self.checker.recurrences.trips
        around = (trips.get(loop, 0) for loop in self.around.get(event, ()))
        return max([self.steering.longest, *around])

    # ---- loops

    @cached_property
    def _loops(self) -> dict[Op, Op]:
        """The loops that decide events, each with one of them."""
        found = self.dependence.deciding.items()
        return {o: event for o, event in found if o.kind is not control.if_}

    def _lengthen(self) -> None:
        """Runs each loop for as long as its state takes to recur, where an input makes it."""
        self._begun = self.runs.taken
        for loop in self._loops:
            most = self.solver.sums.most_trips(loop) if loop.kind is control.for_ else None
            enough = self.checker.recurrences.enough(loop)
            most = (
                most
                if most is not None or loop.kind is not control.for_
                else self.solver.drawn.most_found(loop, self.cases[0])
            )
            enough = enough if most is None else min(most, enough)
            least = self.steering.least(self.cases[0])
            rich = self.checker.rich or self.cases[0]
            bases = dict.fromkeys((rich, least, self.longest))
            times = (
                (1,) if enough == most else (1, 2)
            )  # what is found may fall short of what is asked
            for more, base in itertools.product(times, bases):
                if self._is_long(loop):
                    break
                for wish in self._longer(loop, more * enough, base):
                    self._try(base, wish)
                    if self._is_long(loop) or self.report.failures:
                        break
            if Source.MEMORY in self._decided_by(loop):
                self._rise(loop)

    def _decided_by(self, loop: Op) -> Source:
        """Where the number of a loop's iterations comes from."""
        is_for = loop.kind is control.for_
        values = loop.operands[:3] if is_for else loop.regions[0].yielded[:1]
        found = Source.NOTHING
        for v in values:
            found |= self.dependence.sources(v)
        return found

    def _rise(self, loop: Op) -> None:
        """Runs a loop whose bounds are differences of words: offsets, each larger than the one before; in a
        program far from the first, too, where its number counts."""
        most = MUCH * self.checker.recurrences.enough(loop)
        far = self.steering.with_grid(self.longest, [FAR])
        for base in (self.longest, far):
            by = 1 if base is not None else LARGEST
            while by < LARGEST and not self._is_long(loop) and not self.report.failures:
                assert base is not None
                by = 2 * by + 1
                memory = tuple(
                    (name, fill if self.steering.is_written(name) else Fill(0, by, RISING))
                    for name, fill in base.memory
                )
                case, last = Case(base.args, base.grid, memory), base.grid[0] - 1
                found = self._trips(loop, case, last, most)
                if found is None or found > most or by > most * FARTHEST:
                    break
                self.checker.run(case, (0, last) if last else ())

    def _longer(self, loop: Op, trips: int, base: Case) -> Iterator[Wish]:
        """What may make a loop run so often."""
        if loop.kind is control.for_:
            yield from self.solver.trips(loop, trips, base)
            return
        for i in sorted(self.steering.free):
            yield from self._doubled(loop, trips, base, i)

    def _doubled(self, loop: Op, trips: int, base: Case, i: int) -> Iterator[Wish]:
        """One number twice as large each time, as long as that makes a loop longer; where that makes it much
        longer than asked for, one in between."""

        def made(n: int) -> int:
            return self.steering.allowed(i, n)[-1]

        def found(n: int) -> int | None:
            return self._trips(loop, self.steering.case(base.values, {i: made(n)}), 0, MUCH * trips)

        n, most, best, idle = max(1, base.values[i]), 0, None, 0
        while n < LARGEST and idle < MOST_IDLE and most < trips:
            n *= 2
            now = found(n)
            if now is None:
                yield Wish({i: made(n)}, {})  # something is wrong with it
                return
            best, idle = (n, 0) if now > most else (best, idle + (n > FEWEST * trips))
            most = max(now, most)
        if most > (found(max(1, base.values[i])) or 0):
            self._grown.setdefault(loop, {})[i] = most, most < trips and n >= LARGEST
        low, high = n // 2, n
        while most > MUCH * trips and high - low > 1 and now is not None:
            n = (low + high) // 2
            now = found(n)
            if now is not None and now >= trips:
                high = best = n
                most = now
            else:
                low = n
        if best is not None:
            yield Wish({i: made(best)}, {})

    def _trips(self, loop: Op, case: Case, program: int, most: int) -> int | None:
        """How often a program runs a loop, one more than `most` where its run takes more of some
        loop; None where it can't be run."""
        path = self.runs.told(case, program)
        if path is not None and path.is_guess and any(n > most for _, n in path.trips):
            return most + 1
        if path is not None:
            return max((n for o, n in path.trips if o is loop), default=0)
        try:
            return max(self.runs(case, program, most).trips.get(loop, (0,)))
        except TripLimit:
            return most + 1
        except (SimError, NeedsData, StepLimit):
            return None

    def _is_long(self, loop: Op) -> bool:
        """Was it run for as long as it takes, or as often as it ever is?"""
        recurrences = self.checker.recurrences
        trips = recurrences.trips.get(loop, 0)
        if trips >= recurrences.enough(loop) and recurrences.period(loop) is not None:
            return True
        if loop.kind is control.for_:
            if not any(self.dependence.sources(v) for v in loop.operands[:3]):
                return True
            most = self.solver.sums.most_trips(loop)
            if most is not None and trips >= most:
                return True
            most = self.solver.drawn.most_found(loop, self.cases[0])
        else:
            goes_on = loop.regions[0].yielded[0]
            is_told = not self.dependence.sources(goes_on) & ~(Source.ARGUMENT | Source.TURN)
            grown = list(self._grown.get(loop, {}).values())
            is_told = is_told and len(grown) == 1 and grown[0][1]  # by one number alone
            most = grown[0][0] if is_told else None
        if most is None or trips < max(most, 1):
            return False
        self.report.runs_at_most.setdefault(loop_name(loop), most)
        self.checker.whole.add(loop)
        return True

    def _lengthen_with_outcomes(self) -> None:
        """What is proved of long loops is proved with the outcomes that the long runs had.  So with each
        outcome of a condition that is the same in all iterations every loop is run for long: where an input
        makes it, else with the outcome given."""
        for condition in self.dependence.conditions:
            if condition.sources & Source.TURN or not condition.sources & _UNIFORM:
                continue
            if self._is_constant(condition) or not self._is_run(condition):
                continue
            for outcome, loop in itertools.product((True, False), self._loops):
                if self.report.failures:
                    return
                seen = (condition.op, outcome) in self.runs.outcomes
                if seen and loop in self.checker.recurrences.trips:
                    self._lengthen_with(condition, outcome, loop)

    def _lengthen_with(self, condition: Condition, outcome: bool, loop: Op) -> None:
        base = self.checker.longest(loop)
        enough = min(self.checker.recurrences.enough(loop), self.runs.length(base, loop))

        def is_long() -> bool:
            return self.runs.trips_with[condition.op, outcome].get(loop, 0) >= enough

        for wish in itertools.islice(self._wishes(condition, base), 0 if is_long() else FEW_WISHES):
            self._try(base, wish)
            if is_long() or self.report.failures:
                return
        trips = self.runs.trips_with[condition.op, outcome].get(loop, 0)
        where = f"where the condition at {condition.loc} is {str(outcome).lower()}"
        most = self.solver.drawn.most_found_with(condition, outcome, loop, base)
        if is_long():
            return
        if most is not None and most <= trips:
            self.report.runs_at_most.setdefault(f"{loop_name(loop)}, {where}", most)
        elif not self._is_right_with(condition, lambda turn: outcome, [base]):
            reason = (
                f"the {condition.decides.kind.name} depends on {in_words(condition.sources)}: {where}, no "
                f"input was found that makes the {loop_name(loop)} run for more than {trips} iterations"
            )
            self._brief.append(Unproved(reason, condition.loc))

    def _part(self) -> None:
        """Runs inputs at which loops of different tasks run unequally often."""
        base = self.steering.least(self.cases[0])
        for parting in partings(self.dependence, self.solver.drawn, base):
            for wish in parting.wishes:
                self._try(base, wish)
                if self.report.failures:
                    return
            self.parted.append(parting)

    # ---- conditions

    @property
    def longest(self) -> Case:
        """Of the inputs that were found the one with the longest loops."""
        return max(self.cases, key=self.runs.length)

    def _seen(self, condition: Condition) -> int:
        both = {(condition.op, True), (condition.op, False)}
        return len(both & self.runs.outcomes.keys())

    def _is_covered(self, condition: Condition) -> bool:
        return self._seen(condition) == 2 or not self._is_run(condition)

    def _is_run(self, condition: Condition) -> bool:
        """Is it computed in runs without data at all?"""
        return condition.op in self.runs.outline.watched

    def _turn(self, condition: Condition) -> None:
        """Runs inputs at which the condition may turn, beside the longest, the busiest and the smallest."""
        if self._is_constant(condition) or not self._is_worth_it(condition):
            return
        for base in dict.fromkeys((self.longest, self.busy, self.cases[0])):
            for wish in itertools.islice(self._wishes(condition, base), MOST_WISHES):
                self._try(base, wish)
                if self.report.failures or (self._seen(condition) == 2 and base is self.cases[0]):
                    return

    def _is_worth_it(self, condition: Condition) -> bool:
        """May an input do what those that were found don't?  What hangs on the iteration in a known way, or
        on words that programs share, was run both ways by loops of all lengths."""
        if Source.TURN in condition.sources:
            around = self.around.get(condition.op, ())
            known = all(self.courses.of(condition, loop).is_known for loop in around)
            return not known or self._seen(condition) < 2
        if Source.SHARED_WORD in condition.sources and self._seen(condition) == 2:
            return False
        return bool(condition.sources & _UNIFORM)

    def _is_constant(self, condition: Condition) -> bool:
        """Whether it comes to the same at all inputs: by what is known of its values, or as far as many
        inputs say."""
        if condition not in self._constant and self.facts.constant(condition.value) is not None:
            self._constant[condition] = True
        if condition not in self._constant:
            outcome = self.solver.drawn.constant(condition, self.cases[0])
            if outcome is not None and (condition.op, not outcome) in self.runs.outcomes:
                outcome = None
            if outcome is not None:
                self.report.taken.setdefault(str(condition.loc), outcome)
            self._constant[condition] = outcome is not None
        return self._constant[condition]

    def _turn_pairs(self) -> None:
        """Turns conditions that are the same in all iterations two by two."""
        turned, base = list[Wish](), self.longest
        for condition in self.dependence.conditions:
            if condition.sources & (_UNIFORM | Source.TURN) == condition.sources & _UNIFORM:
                now = self.solver.outcome(condition, base, Wish({}, {}))
                for wish in self.solver.turning(condition, base):
                    case, _ = self._made(base, wish)
                    if case is not None and self.solver.outcome(condition, case, wish) != now:
                        turned.append(wish)
                        break
        for one, other in itertools.islice(itertools.combinations(turned, 2), MOST_PAIRS):
            for base in dict.fromkeys((self.longest, self.busy)):
                self._try(base, one.and_(other))

    def _fill(self) -> None:
        """Other numbers in parts of the arrays that loops are counted by; where words decide iteration by
        iteration, also late ones in loops that run for so long that both outcomes recur."""
        base = self.longest
        for at, (name, fill) in enumerate(base.memory):
            if not self.steering.is_written(name):
                for pattern, other in itertools.product(PATTERNS[1:], (0, fill.base + 1)):
                    self._run_filled(base, at, Fill(fill.base, other, pattern))
        by_turn = Source.MEMORY | Source.TURN
        conditions = [c for c in self.dependence.conditions if by_turn in c.sources]
        inside = [loop for c in conditions for loop in self.around.get(c.op, ())]
        for loop in dict.fromkeys(o for o in inside if o.kind is control.for_):
            trips = LATE + self.checker.recurrences.enough(loop)
            for wish in itertools.islice(self.solver.trips(loop, trips, base), 1):
                case, _ = self._made(base, wish)
                for at, (name, fill) in enumerate(case.memory if case is not None else ()):
                    if case is not None and not self.steering.is_written(name):
                        number = fill.base or 1
                        self._run_filled(case, at, Fill(number, 0, "late"))
                        self._run_filled(case, at, Fill(0, number, "late"))

    def _run_filled(self, case: Case, at: int, fill: Fill) -> None:
        """The input with other numbers in one of its arrays."""
        memory = list(case.memory)
        memory[at] = memory[at][0], fill
        self.checker.run(Case(case.args, case.grid, tuple(memory)))

    def _wishes(self, condition: Condition, base: Case) -> Iterator[Wish]:
        """What may turn a condition; where that can be told, what does."""
        seen, now = set(), self.solver.outcome(condition, base, Wish({}, {}))
        is_told = now is not None and Source.TURN not in condition.sources
        for wish in self.solver.turning(condition, base):
            key = tuple(sorted(wish.numbers.items())), tuple(sorted(wish.ids.items()))
            if key in seen:
                continue
            seen.add(key)
            if is_told:
                case, _ = self._made(base, wish)
                if case is None or self.solver.outcome(condition, case, wish) == now:
                    continue
            yield wish
            if is_told and len(seen) > 3:
                return

    def _try(self, base: Case, wish: Wish) -> None:
        """Runs an input with what is wished for, also with other numbers in parts of an array."""
        case, programs = self._made(base, wish)
        if case is None:
            return
        if self.runs.taken - self._begun > MOST_STEPS:
            return
        self.checker.run(case, programs)
        for i in wish.numbers:
            if i > self.steering.grid and not self.report.failures:
                at = i - self.steering.grid - 1
                name, fill = case.memory[at]
                was = base.memory[at][1].base
                for pattern in PATTERNS[1:]:
                    memory = list(case.memory)
                    memory[at] = name, Fill(was, fill.base, pattern)
                    self.checker.run(Case(case.args, case.grid, tuple(memory)), programs)

    def _made(self, base: Case, wish: Wish) -> tuple[Case | None, tuple[int, ...]]:
        """The input, and the programs of it to be run (none: all)."""
        case = self.steering.case(base.values, wish.numbers)
        if wish.ids:
            wanted = [wish.ids.get(axis, 0) for axis in range(3)]
            grown = self.steering.with_grid(case, [n + 1 for n in wanted])
            if grown is None:
                return None, ()
            case = grown
            x, y, _ = (*case.grid, 1, 1)[:3]
            at = wanted[0] + x * (wanted[1] + y * wanted[2])
            programs = math.prod(case.grid)
            case = self._with_work(case, at, base, wish)
            if programs > MOST_PROGRAMS:
                return case, tuple(sorted({0, at, programs - 1}))
        elif not self.steering.has_own_grid:
            case = self._with_work(case, 0, base, wish)
        return case, ()

    def _with_work(self, case: Case, at: int, base: Case, wish: Wish) -> Case:
        """The same, or larger numbers with which a program runs its loops as often as the first one does in
        the base: in a launch with more programs than tiles the last ones do nothing, and a number that turns
        a condition may leave little to do."""

        def trips(case: Case, program: int) -> dict[Op, int]:
            path, most = self.runs.path(case, program), dict[Op, int]()
            for loop, n in sorted(path.trips, key=lambda x: x[1]) if path is not None else ():
                most[loop] = n
            return most

        wanted = trips(base, 0)

        def lacking(case: Case) -> list[int]:
            """By how much loops are too short."""
            found = trips(case, at)
            return [
                -(-n // max(found.get(o, 0), 1)) for o, n in wanted.items() if found.get(o, 0) < n
            ]

        missing = lacking(case)
        programs = math.prod(case.grid) if wish.ids else 1
        for i in self.steering.variables if missing else ():
            if i >= self.steering.grid or i in wish.numbers:
                continue
            for n in sorted({case.args[i], *self.steering.units(i)}):
                for factor in sorted({programs, *missing}):
                    args = self.steering.case(case.values, {i: n * factor}).args
                    larger = Case(args, case.grid, case.memory)
                    still = lacking(larger)
                    if (len(still), sum(still)) < (len(missing), sum(missing)):
                        case, missing = larger, still
                    if not missing:
                        return case
        return case

    def _words(self) -> None:
        """Words that programs share: what other programs add to them in between."""
        if any(Source.SHARED_WORD in c.sources for c in self.dependence.conditions):
            for drift in (1, 3):
                base = self.longest
                memory = tuple(
                    (name, Fill(fill.base, drift=drift if self.steering.is_written(name) else 0))
                    for name, fill in base.memory
                )
                self.checker.run(Case(base.args, base.grid, memory))

    # ---- conditions that no input turns

    def _is_free(self, condition: Condition) -> bool:
        """Whether everything is right whatever the outcome, of it and of all conditions that are equal."""
        kind = self.dependence.alike[condition.value]
        if kind not in self._free:
            self._free[kind] = self._is_free_indeed(condition)
        return self._free[kind]

    def _is_free_indeed(self, condition: Condition) -> bool:
        begun, is_constant = self.runs.taken, not condition.sources & ~_UNIFORM
        cases = dict.fromkeys((self.longest, self.cases[0], self.cases[-1]))
        for own in FREE[:CONSTANT] if is_constant else FREE:
            if self.runs.taken - begun > MOST_STEPS:
                return False
            if not self._is_right_with(condition, own, cases):
                return False
        return True

    def _is_right_with(self, condition: Condition, own: Forced, cases: Iterable[Case]) -> bool:
        """Whether inputs run right with given outcomes of a condition and of all that are equal to it: these,
        and for each of them the longest one that came to it."""
        ops = [c.op for c in self.dependence.twins(condition)]
        reaching = [found for o in ops if (found := self.runs.reaching(o)) is not None]
        if len(reaching) < len(ops) or self.dependence.is_one_of_many(condition.value):
            return (
                False  # no run came to one; or replicas would have to be given different outcomes
            )
        runs = Runs(self.dependence.func, dict.fromkeys(ops, own))
        ends = ((c, p) for c in cases for p in sorted({0, max(0, math.prod(c.grid) - 1)}))
        for case, program in dict.fromkeys((*reaching, *ends)):
            if program < math.prod(case.grid):
                try:
                    runs(case, program)
                except SimError as e:
                    if e.code not in UNFIT or e.code in NOT_CONFLUENT:
                        return False
                except (NeedsData, StepLimit):
                    return False
        self.runs.taken += runs.taken
        return True

    def _leave(self, condition: Condition) -> None:
        event = condition.decides
        outcome = "" if self._seen(condition) else ", which no run came to"
        reason = (
            f"the {event.kind.name} depends on {in_words(condition.sources)}: no input was found that turns "
            f"this condition{outcome}, and its outcome matters"
        )
        self._open(Unproved(reason, condition.loc))

    def _open(self, unproved: Unproved) -> None:
        if unproved not in self.report.unproved:
            self.report.unproved.append(unproved)
