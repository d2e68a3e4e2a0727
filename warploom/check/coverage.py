"""Whether the runs say all there is to say: each condition that decides events was taken both ways, and each
loop was run for longer than anything in it takes to come back.

Where they don't, inputs are looked for that flip what was not flipped (solve.py).  A condition that no input
was found to flip is taken to be *free*: the program is run with outcomes of the checker's choice, in all
agents, always, never, late, alternating.  Where all of these are right, its outcome does not matter.  What is
left is named in the report as not proved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from warploom.check.course import Courses
from warploom.check.dependence import Condition, Source, in_words
from warploom.check.jointly import Joint, joints
from warploom.check.lengthen import Lengthening
from warploom.check.recurrence import loop_name
from warploom.check.report import Unproved
from warploom.check.runs import NOT_CONFLUENT, UNFIT, Case, Runs
from warploom.check.search import MOST_STEPS, Checker, Search
from warploom.check.solve import Solver
from warploom.check.trips import Compared, compared
from warploom.check.values import Wish
from warploom.errors import Loc
from warploom.ir.analysis import closure
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control
from warploom.sim.chosen import IN_TURN, LATE, PATTERNS, Fill
from warploom.sim.outline import Forced
from warploom.sim.report import NeedsData, SimError, StepLimit

MOST_WISHES = 10  # inputs that are tried to flip one condition
FEW_WISHES = 3  # likewise, with a loop that is long
AGAIN_STEPS = 2_000  # of an input that is to flip what was seen to come both ways
MOST_TOGETHER = 4  # conditions of which all outcomes are run together
MOST_PAIRS = 16  # pairs of conditions that are flipped together
CHOICE_STEPS, MOST_OF_A_CHOICE = (
    10_000,
    3,
)  # for minima and quotients, and inputs that are tried to flip one
LARGEST_CONSTANT, MOST_CONSTANTS = 2000, 3  # that are passed with all numbers large
MOST_CHOOSING = (
    4  # conditions that choose what another one compares: this is flipped with each outcome
)
_UNIFORM = Source.ARGUMENT | Source.PROGRAM | Source.MEMORY

FREE: tuple[Forced, ...] = (
    lambda i: True,
    lambda i: False,
    lambda i: i % 2 == 0,
    lambda i: i % 2 == 1,
    lambda i: i >= LATE // 2,
    lambda i: i < LATE // 2,
    lambda i: i % 5 == 4,
    lambda i: i % 5 != 4,
)
CONSTANT = 2  # so many of these, the first ones, are the same in all iterations


def _firsts(conditions: Sequence[Condition], kinds: Mapping[Value, int]) -> tuple[Condition, ...]:
    """The first of each class of equal ones."""
    first = {kinds[c.value]: c for c in reversed(conditions)}
    return tuple(c for c in conditions if first[kinds[c.value]] is c)


def _both(other: Op) -> str:
    """A loop, whose place is told beside the reason, and another one, in words."""
    at = f"{other.loc.file}:{other.loc.line}" if other.loc else "another place"
    return f"this loop and the one at {at}, of another task"


class Coverage:
    """Completes the runs of a checker, and says what stays open."""

    def __init__(
        self, checker: Checker, solver: Solver, courses: Courses, cases: list[Case]
    ) -> None:
        self.search = Search(checker, solver, cases)
        self.loops = Lengthening(self.search)
        self.checker, self.solver, self.courses = checker, solver, courses
        self.dependence, self.space = solver.dependence, solver.space
        self.runs, self.report = checker.runs, checker.report
        self.apart = Compared()  # loops of different tasks, without partners
        self.cases = cases
        self.busy = cases[0]  # of these, the shortest in which each loop runs several times
        self._constant: dict[Condition, bool | None] = {}
        self._free: dict[int, bool] = {}  # by the class of conditions
        self._apart: list[Joint] = []  # of which not all outcomes were run
        # Loops that were run for long with one outcome alone: why, and where.
        self._brief: list[tuple[str, Loc | None]] = []

    def complete(self) -> None:
        """Runs what is missing; stops where something is broken."""
        self.busy = self.checker.busy or self.search.longest
        self._flip_choices()
        self._flip_all(self._one_of_each_class)
        if self.report.failures:
            return
        unseen = [c for c in self._one_of_each_class if not self._seen(c)]
        self.search.begin()
        self._part()
        self._flip_pairs()
        self._flip_together()
        self._fill()
        self.loops.lengthen()
        self._flip_all([c for c in unseen if self._seen(c)])
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
        for loop, event in self.loops.loops.items():
            if not self.loops.is_long(loop):
                trips = self.checker.recurrences.trips.get(loop, 0)
                reason = (
                    f"the {event.kind.name} is in a loop for which no input was found that makes it run for "
                    f"more than {trips} iterations"
                )
                self._open(reason, loop.loc)
        for reason, loc in self._brief:
            self._open(reason, loc)
        self._leave_loops()
        for joint in self._apart:
            reason = (
                f"what the {joint.op.kind.name} means hangs on several conditions together, of which not all "
                "outcomes were run together"
            )
            self._open(reason, joint.op.loc)
        for event, value, sources in self.dependence.operands:
            counts = self.dependence.counts(value)
            if sources & ~(Source.ITERATION | Source.ARGUMENT | Source.PROGRAM) or (
                counts > self._iterations(event) if Source.ITERATION in sources else counts == 1
            ):
                reason = (
                    f"which slot, phase or CTA the {event.kind.name} means hangs on "
                    f"{in_words(sources)}"
                )
                self._open(reason, event.loc, is_searched=False)

    def _leave_loops(self) -> None:
        """Names the loops of different tasks that part, and those of which nothing shows that they don't."""
        for parting in self.apart.partings:
            reason = f"{_both(parting.other)}, do not run equally often"
            self._open(reason, parting.one.loc)
        for one, other in self.apart.unlike:
            reason = (
                f"{_both(other)}, end by what is computed differently: that they run equally often was "
                "not shown"
            )
            self._open(reason, one.loc, is_searched=False)
        for loop in self.apart.ranked:
            reason = (
                "replicas, or CTAs of a cluster, go on in this loop by numbers of their own: that they run "
                "it equally often was not shown"
            )
            self._open(reason, loop.loc, is_searched=False)

    def _iterations(self, event: Op) -> int:
        """The iterations for which the loops around an event were run."""
        trips = self.checker.recurrences.trips
        around = (trips.get(loop, 0) for loop in self.dependence.loops.get(event, ()))
        return max([self.space.longest, *around])

    # ---- loops

    def _lengthen_with_outcomes(self) -> None:
        """What is proved of long loops is proved with the outcomes that the long runs had.  So with each
        outcome of a condition that is the same in all iterations every loop is run for long: where an input
        makes it, else with the outcome given."""
        self.search.begin()
        for condition in self.dependence.conditions:
            if condition.sources & Source.ITERATION or not condition.sources & _UNIFORM:
                continue
            if self._is_constant(condition) or not self._is_run(condition):
                continue
            for outcome, loop in itertools.product((True, False), self.loops.loops):
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

        if is_long():
            return
        for wish in itertools.islice(self._wishes(condition, base), FEW_WISHES):
            self.search.run(base, wish)
            if is_long() or self.report.failures:
                return
        trips = self.runs.trips_with[condition.op, outcome].get(loop, 0)
        where = f"where the condition at {condition.loc} is {str(outcome).lower()}"
        most = self.solver.drawn.most_found(loop, base, (condition, outcome))
        if most is not None and most < trips:  # another CTA ran it for longer
            most = self.solver.drawn.most_found(loop, base, (condition, outcome), of_any=True)
        if most is not None and (0 < most <= trips or most == trips):
            self.report.runs_at_most.setdefault(f"{loop_name(loop)}, {where}", most)
        elif not self._is_right_with(condition, lambda i: outcome, [base]):
            reason = (
                f"the {condition.decides.kind.name} depends on {in_words(condition.sources)}: {where}, no "
                f"input was found that makes the {loop_name(loop)} run for more than {trips} iterations"
            )
            self._brief.append((reason, condition.loc))

    def _part(self) -> None:
        """Runs inputs at which loops of different tasks run unequally often."""
        base = self.space.least(self.cases[0])
        self.apart = compared(self.dependence, self.solver.drawn, base)
        for wish in (w for parting in self.apart.partings for w in parting.wishes):
            self.search.run(base, wish)
            if self.report.failures:
                return

    # ---- conditions

    def _seen(self, condition: Condition) -> int:
        both = {(condition.op, True), (condition.op, False)}
        return len(both & self.runs.outcomes.keys())

    def _most_steps(self, condition: Condition) -> int | None:
        """Of a program that is to flip a condition: small ones do for what flipped before."""
        return AGAIN_STEPS if self._seen(condition) == 2 else None

    def _is_covered(self, condition: Condition) -> bool:
        return self._seen(condition) == 2 or not self._is_run(condition)

    def _is_run(self, condition: Condition) -> bool:
        """Is it computed in runs without data at all?"""
        return condition.op in self.runs.outline.watched

    def _flip_all(self, pending: Sequence[Condition]) -> None:
        """Flips each condition within its share of the steps; then of what others left of theirs."""
        runs, before, was_cut = self.runs, -1, self.search.is_cut
        end, path_end = runs.taken + MOST_STEPS, runs.path_steps + MOST_STEPS
        while pending and before < runs.taken < end and runs.path_steps < path_end:
            before, cut = runs.taken, list[Condition]()
            for i, condition in enumerate(pending):
                left = max(0, min(end - runs.taken, path_end - runs.path_steps))
                self.search.begin(left // (len(pending) - i))
                self._flip(condition)
                if self.report.failures:
                    return
                if self.search.is_over():
                    cut.append(condition)
            pending = cut
        self.search.is_cut = was_cut or bool(pending)

    @cached_property
    def _one_of_each_class(self) -> tuple[Condition, ...]:
        """The first of the conditions that always come to the same: what flips it flips them all."""
        return _firsts(self.dependence.conditions, self.dependence.alike)

    def _flip_choices(self) -> None:
        """Runs inputs at which minima, maxima and quotients may flip on which numbers that decide events
        hang: a few, within a part of the steps, first small ones."""
        self.search.begin(CHOICE_STEPS)
        is_cut = self.search.is_cut
        choices = _firsts(self.dependence.choices, self.dependence.alike_in_turn)
        bases = dict.fromkeys((self.busy, self.search.longest))
        for base, choice in itertools.product(bases, choices):
            if self.search.is_over():
                break
            for wish in itertools.islice(self.solver.flipping(choice, base), MOST_OF_A_CHOICE):
                self.search.run(base, wish, self._most_steps(choice))
                if choice.value in self.dependence.addresses:  # which word is read must matter
                    self._run_patterns(base, wish)
                if self.report.failures:
                    return
        for wish in self._larger():
            self.search.run(self.search.longest, wish)
            if self.report.failures:
                return
        self.search.is_cut = is_cut

    def _run_patterns(self, base: Case, wish: Wish) -> None:
        """Runs an input with what is wished for, with other numbers in parts of each array."""
        case, programs = self.search.made(base, wish)
        for at, (name, fill) in enumerate(case.memory if case is not None else ()):
            if case is not None and not self.space.is_written(name):
                for pattern in PATTERNS[1:]:
                    if not self.search.is_over():
                        other = Fill(fill.base, fill.base + 1, pattern)
                        self.search.run_filled(case, at, other, programs)

    def _larger(self) -> Iterator[Wish]:
        """All numbers larger than a constant with which what goes along a loop is compared, so that none ends
        the loop before and no other condition hides it; one of them twice as large."""
        every = (*self.dependence.choices, *self.dependence.conditions)
        operands = (v for c in every if Source.ITERATION in c.sources for v in c.op.operands)
        constants = {n for v in operands if (n := self.solver.sums.constant(v)) is not None}
        least = 2 * self.space.longest
        for n in sorted(n for n in constants if least <= n <= LARGEST_CONSTANT)[:MOST_CONSTANTS]:
            size = n + self.space.longest
            for double in (None, *sorted(self.space.free)):
                numbers = {i: (2 if i == double else 1) * size for i in self.space.free}
                yield Wish({i: self.space.allowed(i, x)[-1] for i, x in numbers.items()}, {})

    def _flip(self, condition: Condition) -> None:
        """Runs inputs at which the condition may flip, beside the longest, the busiest and the smallest;
        where these don't flip it, beside the longest that comes to it.  Where another condition chooses the
        numbers that it compares, also beside the longest in which that comes to each outcome."""
        if self._is_constant(condition) or not self._is_worth_it(condition):
            return
        bases = dict.fromkeys((self.search.longest, self.busy, self.cases[0]))
        for base in itertools.chain(self._chosen(condition), bases, self._reaching(condition)):
            for wish in itertools.islice(self._wishes(condition, base), MOST_WISHES):
                self.search.run(base, wish, self._most_steps(condition))
                if self.report.failures or (self._seen(condition) == 2 and base is self.cases[0]):
                    return

    def _chosen(self, condition: Condition) -> dict[Case, None]:
        """The longest inputs with each outcome of the conditions that choose what a condition compares."""
        every = itertools.product(self._choosing(condition)[:MOST_CHOOSING], (False, True))
        found = (self.runs.reaching(c.op, outcome) for c, outcome in every)
        return dict.fromkeys(case for case, _ in filter(None, found))

    def _choosing(self, condition: Condition) -> list[Condition]:
        """The conditions and choices that another condition is computed from."""
        behind = closure([condition.value], self.dependence.behind) - {condition.value}
        every = (*self.dependence.choices, *self.dependence.conditions)
        return [c for c in every if c.value in behind]

    def _reaching(self, condition: Condition) -> Iterator[Case]:
        """The longest input that comes to a condition, if it was seen to come to one outcome alone."""
        found = self.runs.reaching(condition.op) if self._seen(condition) < 2 else None
        if found is not None:
            yield found[0]

    def _is_worth_it(self, condition: Condition) -> bool:
        """May an input do what those that were found don't?  What hangs on the iteration in a known way, or
        on words that programs share, was run both ways by loops of all lengths; so was what all tasks go on
        by, which decides how often their loops run."""
        if self._seen(condition) == 2 and self.dependence.ends_loops_of_all_tasks(condition):
            return False
        if Source.ITERATION in condition.sources:
            around = self.dependence.loops.get(condition.op, ())
            known = all(self.courses.of(condition, loop).is_known for loop in around)
            return not known or self._seen(condition) < 2
        if Source.SHARED_WORD in condition.sources and self._seen(condition) == 2:
            return False
        return bool(condition.sources & _UNIFORM)

    def _is_constant(self, condition: Condition) -> bool:
        """Whether it comes to the same at all inputs: by what is known of its values, or as far as many
        inputs say."""
        return self._always(condition) is not None

    def _always(self, condition: Condition) -> bool | None:
        """What it comes to at all inputs; None where that is not one outcome."""
        if condition in self._constant:
            return self._constant[condition]
        outcome = self.solver.sums.outcome(condition.value)
        if outcome is None and condition.op.kind in (arith.and_, arith.or_):
            parts = [
                self._always(self._by_value[x])
                if x in self._by_value
                else self.solver.sums.outcome(x)
                for x in condition.op.operands
            ]
            ends = condition.op.kind is arith.or_  # what one part decides alone
            if ends in parts:
                outcome = ends
            elif len(parts) == 2 and None not in parts:
                outcome = not ends
        elif outcome is None:
            outcome = self.solver.drawn.constant(condition, self.cases[0])
            if outcome is not None and (condition.op, not outcome) in self.runs.outcomes:
                outcome = None
            if outcome is not None:
                self.report.taken.setdefault(str(condition.loc), outcome)
        self._constant[condition] = outcome
        return outcome

    @cached_property
    def _by_value(self) -> dict[Value, Condition]:
        return {c.value: c for c in self.dependence.conditions}

    def _flip_pairs(self) -> None:
        """Flips conditions that are the same in all iterations two by two."""
        flipped, base = list[Wish](), self.search.longest
        for condition in self.dependence.conditions:
            if condition.sources & (_UNIFORM | Source.ITERATION) == condition.sources & _UNIFORM:
                now = self.solver.outcome(condition, base, Wish({}, {}))
                for wish in self.solver.flipping(condition, base):
                    case, _ = self.search.made(base, wish)
                    if case is not None and self.solver.outcome(condition, case, wish) != now:
                        flipped.append(wish)
                        break
        for one, other in itertools.islice(itertools.combinations(flipped, 2), MOST_PAIRS):
            for base in dict.fromkeys((self.search.longest, self.busy)):
                self.search.run(base, one.and_(other))

    def _flip_together(self) -> None:
        """Runs all outcomes of conditions that choose one slot, phase or bound; keeps where it can't."""
        for joint in joints(self.dependence):
            conditions = [c for c in joint.conditions if not self._is_constant(c)]
            every = itertools.product((True, False), repeat=len(conditions))
            if len(conditions) > MOST_TOGETHER or not all(
                self._run_with(list(zip(conditions, outcomes, strict=True))) for outcomes in every
            ):
                self._apart.append(joint)
            if self.report.failures:
                return

    def _run_with(self, wanted: Sequence[tuple[Condition, bool]]) -> bool:
        """Runs an input at which conditions come each to an outcome; whether one was found."""
        base = self.search.longest
        for wish in itertools.islice(
            self.solver.making_each(wanted, base, Wish({}, {})), MOST_WISHES
        ):
            case, _ = self.search.made(base, wish)
            if case is not None and all(self.solver.outcome(c, case, wish) == x for c, x in wanted):
                self.search.run(base, wish)
                return not self.search.is_over()
        return False

    def _fill(self) -> None:
        """Other numbers in parts of the arrays that loops are counted by; where words decide iteration by
        iteration, also late ones, and some in turn, in loops so long that both outcomes recur."""
        base = self.search.longest
        for at, (name, fill) in enumerate(base.memory):
            if not self.space.is_written(name):
                for pattern, other in itertools.product(PATTERNS[1:], (0, fill.base + 1)):
                    self.search.run_filled(base, at, Fill(fill.base, other, pattern))
        by_iteration = Source.MEMORY | Source.ITERATION
        conditions = [c for c in self.dependence.conditions if by_iteration in c.sources]
        inside = [loop for c in conditions for loop in self.dependence.loops.get(c.op, ())]
        for loop in dict.fromkeys(o for o in inside if o.kind is control.for_):
            recurrences = self.checker.recurrences
            enough = recurrences.enough(loop)
            late, alternating = LATE + enough, 2 * IN_TURN * recurrences.depth + enough
            for trips, pattern in ((late, "late"), (alternating, "in turn")):
                for wish in itertools.islice(self.solver.trips(loop, trips, base), 1):
                    case, _ = self.search.made(base, wish)
                    for at, (name, fill) in enumerate(case.memory if case is not None else ()):
                        if case is not None and not self.space.is_written(name):
                            number = fill.base or 1
                            self.search.run_filled(case, at, Fill(number, 0, pattern))
                            self.search.run_filled(case, at, Fill(0, number, pattern))

    def _wishes(self, condition: Condition, base: Case) -> Iterator[Wish]:
        """What may flip a condition; where that can be told, what does."""
        seen, now = set(), self.solver.outcome(condition, base, Wish({}, {}))
        is_told = now is not None and Source.ITERATION not in condition.sources
        for wish in self.solver.flipping(condition, base):
            key = tuple(sorted(wish.numbers.items())), tuple(sorted(wish.ids.items()))
            if key in seen:
                continue
            seen.add(key)
            if not is_told:
                yield wish
                continue
            if self.solver.outcome(condition, self.space.changed(base, wish.numbers), wish) == now:
                continue
            for same in (wish, self.solver.pinned(condition, base, wish)):
                case, _ = self.search.made(base, same)
                if case is not None and self.solver.outcome(condition, case, same) != now:
                    yield same
                    break
            else:
                continue
            if len(seen) > 3:
                return

    def _words(self) -> None:
        """Words that programs share: what other programs add to them in between."""
        if any(Source.SHARED_WORD in c.sources for c in self.dependence.conditions):
            for drift in (1, 3):
                base = self.search.longest
                memory = tuple(
                    (name, Fill(fill.base, drift=drift if self.space.is_written(name) else 0))
                    for name, fill in base.memory
                )
                self.checker.run(Case(base.args, base.grid, memory))

    # ---- conditions that no input flips

    def _is_free(self, condition: Condition) -> bool:
        """Whether everything is right whatever the outcome, of it and of all conditions that are equal."""
        kind = self.dependence.alike[condition.value]
        if kind not in self._free:
            self._free[kind] = self._is_free_indeed(condition)
        return self._free[kind]

    def _is_free_indeed(self, condition: Condition) -> bool:
        begun, is_constant = self.runs.taken, not condition.sources & ~_UNIFORM
        cases = dict.fromkeys((self.search.longest, self.cases[0], self.cases[-1]))
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
        runs = Runs(self.dependence.func, dict.fromkeys(ops, own), shares=False)
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
            f"the {event.kind.name} depends on {in_words(condition.sources)}: no input was found that flips "
            f"this condition{outcome}, and its outcome matters"
        )
        self._open(reason, condition.loc)

    def _open(self, reason: str, loc: Loc | None, is_searched: bool = True) -> None:
        """is_searched: more inputs might show it."""
        if is_searched and self.search.is_cut:
            reason += f" (the search for inputs ended at {MOST_STEPS} steps)"
        unproved = Unproved(reason, loc)
        if unproved not in self.report.unproved:
            self.report.unproved.append(unproved)
