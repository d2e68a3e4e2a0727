"""Exploration: every order of events that makes a difference, once.

A run is repeated from its list of choices (agents are Python generators: they can't be copied), and
steered into another order at one of them: dynamic partial-order reduction with source sets and sleep sets
(Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014).  Processes are
the agents and the actions of engines that anybody else can see; what only the own agent waits for (its
wgmmas, its TMA stores) happens at once.

Which orders differ.  Arrivals commute inside a phase; what counts is which phase each of them falls into and
how many phases each wait has seen.  So two steps on a barrier race where
  - an arrival in phase p + 1 does not follow from one in phase p: it could have come first;
  - a wait that saw n phases does not precede the end of phase n: it could have met the next one;
  - a wait that saw n phases does not follow from phase n - 2: of the same parity, it could have passed then;
and two accesses to a word of global memory race where one writes.  Every run is tracked: vector clocks judge
its accesses to shared memory for all orders with the same happens-before.

The warps of a replica pass a wait together.  Where they know different things, which would make that wrong,
the run is stopped with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from warploom.check.runs import MAX_STEPS, Case, is_reading
from warploom.ir.core import Func
from warploom.sim.agent import Agent
from warploom.sim.barriers import Transition
from warploom.sim.machine import simulate
from warploom.sim.report import SimError, SimReport, StepLimit
from warploom.sim.scheduler import Choice, Heads, Scheduler

MAX_STATES = 200_000  # of one program at one input
MORE = 3  # interleavings after the first that fails, for a shorter one
_PRIVATE = frozenset(
    ("wgmma", "tma_store", "copy")
)  # kinds of actions that only their own agent waits for

Simulation = Callable[[Scheduler], SimReport]  # runs the program; see `simulation`


@dataclass(eq=False)
class Step:
    """One step of one process.  agent: whose step, or whose action, it is.  before: the process's step
    before; origin: the step that issued the action (-1: none)."""

    process: str
    agent: str
    before: int
    origin: int
    touches: tuple[Transition, ...] = ()


class Redundant(Exception):
    """Whatever could go on here was explored before, in another order."""


class Diverged(Exception):
    """A list of choices that does not fit the program."""


class Guided(Scheduler):
    """Follows a list of choices (names of processes), then asks `choose`; its first option is what the order
    "early" would do.  Where the list does not fit the program: Diverged, or, if not `is_strict`, on from
    there with the options' first."""

    def __init__(
        self,
        path: Sequence[str] = (),
        choose: Callable[[list[Step], list[str]], str] = lambda steps, options: options[0],
        is_strict: bool = True,
    ) -> None:
        super().__init__(MAX_STEPS)
        self.path, self.choose, self.is_strict = path, choose, is_strict
        self.touched: list[Transition] = []
        self.steps: list[Step] = []
        self._latest: dict[str, int] = {}  # process -> its latest step
        self._step_of: dict[int, int] = {}  # tick -> step

    def pick(self, ready: list[Agent], heads: Heads) -> Choice:
        self.settle()
        heads.sort(key=lambda h: h[1].serial)
        for lane, action in heads:
            if action.kind in _PRIVATE:
                return lane
        first = self.tick % len(ready) if ready else 0
        options: dict[str, Choice] = {str(lane): lane for lane, _ in heads}
        options.update((a.label, a) for a in ready[first:] + ready[:first])
        at = len(self.steps)
        name = self.path[at] if at < len(self.path) else self.choose(self.steps, list(options))
        if name not in options:
            if self.is_strict:
                raise Diverged(f"{name} can't go on at step {at}")
            self.path, name = (), next(iter(options))
        tick = next((action.tick for lane, action in heads if str(lane) == name), 0)
        choice = options[name]
        agent = choice.label if isinstance(choice, Agent) else choice.agent
        before, origin = self._latest.get(name, -1), self._step_of.get(tick, -1)
        self.steps.append(Step(name, agent, before, origin))
        self._latest[name] = self._step_of[self.tick] = at
        return choice

    def settle(self) -> None:
        """What was touched belongs to the latest step."""
        if self.touched:
            if self.steps:
                self.steps[-1].touches += tuple(self.touched)
            self.touched.clear()


def simulation(func: Func, case: Case, program: int | None, confluent: bool) -> Simulation:
    """Runs one program, or all together (None), without data, tracked; in memory of its own where the
    function writes any."""

    def run(scheduler: Scheduler) -> SimReport:
        return simulate(
            func,
            case.args if is_reading(func) else case.copied().args,
            case.grid,
            data=False,
            confluent=confluent,
            scheduler=scheduler,
            program=program,
            together=program is None,
            fills=case.fills,
        )

    return run


def attempt(run: Simulation, scheduler: Scheduler) -> SimReport | SimError:
    """One run, or what is wrong with it.  Raises StepLimit and NeedsData: nothing is known then."""
    try:
        return run(scheduler)
    except StepLimit:
        raise
    except SimError as error:
        return error
    finally:
        if isinstance(scheduler, Guided):
            scheduler.settle()


# ---- exploring


@dataclass(frozen=True)
class Failing:
    """An interleaving (names of processes) that fails, its steps, and how."""

    path: tuple[str, ...]
    steps: list[Step]
    error: SimError

    @cached_property
    def history(self) -> History:
        """Which of its steps follow from which."""
        return History(self.steps)


@dataclass(frozen=True)
class Exploration:
    """What was explored.  steps: of all runs, with what they repeat of others.  is_complete: nothing was left
    out for a limit."""

    interleavings: int
    states: int
    steps: int
    is_complete: bool
    failures: list[Failing]
    report: SimReport | None  # of an interleaving in which nothing is wrong


@dataclass(eq=False)
class _Frame:
    """A state on the current path: which processes can go on, which one does, which were explored (with what
    they touched), and which ought to be."""

    options: list[str]
    chosen: str
    asleep: dict[str, tuple[Transition, ...]]
    wanted: set[str]


def explore(
    run: Simulation,
    max_states: int = MAX_STATES,
    max_steps: int | None = None,
) -> Exploration:
    """Runs a program (see `simulation`; confluent=False) in every order of events that makes a difference.

    Each interleaving is run from its start.  max_steps: of all runs, with what they repeat of others."""
    frames: list[_Frame] = []
    interleavings = states = taken = 0
    failures: list[Failing] = []
    report: SimReport | None = None

    def choose(steps: list[Step], options: list[str]) -> str:
        asleep = {}
        if frames:
            done = steps[-1]
            for name, touches in frames[-1].asleep.items():
                if name != done.process and _commute(touches, done.touches):
                    asleep[name] = touches
        chosen = next((o for o in options if o not in asleep), None)
        if chosen is None:
            raise Redundant
        frames.append(_Frame(options, chosen, asleep, {chosen}))
        return chosen

    after_failure = MORE
    while True:
        repeated = len(frames)
        guide = Guided([f.chosen for f in frames], choose)
        try:
            result = attempt(run, guide)
            interleavings += 1
            if isinstance(result, SimReport):
                report = result
            else:
                failures.append(Failing(tuple(f.chosen for f in frames), guide.steps, result))
        except Redundant:
            pass
        states += len(guide.steps) - repeated + (repeated > 0)
        taken += len(guide.steps)
        for at, firsts in History(guide.steps).reversals():
            frame = frames[at]
            firsts = [name for name in firsts if name in frame.options] or frame.options
            if not frame.wanted.intersection(firsts):
                frame.wanted.add(firsts[0])
        while frames:
            frame = frames[-1]
            frame.asleep[frame.chosen] = guide.steps[len(frames) - 1].touches
            untried = [o for o in frame.options if o in frame.wanted and o not in frame.asleep]
            if untried:
                frame.chosen = untried[0]
                break
            frames.pop()
        after_failure -= bool(failures)
        if not frames or after_failure == 0:
            return Exploration(interleavings, states, taken, not frames, failures, report)
        if states >= max_states or (max_steps is not None and taken >= max_steps):
            return Exploration(interleavings, states, taken, False, failures, report)


def _commute(one: tuple[Transition, ...], other: tuple[Transition, ...]) -> bool:
    """Whether two steps, possible in the same state, lead to the same state in either order."""
    return not any(a.thing == b.thing and _conflict(a, b) for a in one for b in other)


def _conflict(a: Transition, b: Transition) -> bool:
    modes = {a.mode, b.mode}
    if modes & {"read", "write"}:
        return "write" in modes
    if modes == {"arrive"}:
        return a.phase != b.phase or a.completes or b.completes
    if modes == {"arrive", "wait"}:
        return a.phase != b.phase or a.completes or b.completes
    return False  # waits change nothing, and nothing undoes what a counted barrier lets pass


class History:
    """Which step of a run follows from which: sets of steps, as bits.

    past[j]: what step j's process had behind it; full[j]: that, j itself, and what let j happen as it did."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.past: list[int] = []
        self.full: list[int] = []
        self.arrivals: dict[tuple[str, int], list[int]] = {}  # barrier and phase -> steps
        self.waits: dict[tuple[str, int], list[int]] = {}  # barrier and phases seen -> steps
        self.ends: dict[
            tuple[str, int], int
        ] = {}  # barrier and phase -> the step that completed it
        self.words: dict[str, list[tuple[int, bool]]] = {}  # word -> steps, whether they write
        for j, step in enumerate(steps):
            past = 0
            for i in (step.before, step.origin):
                past |= self.full[i] if i >= 0 else 0
            full = past | 1 << j
            for t in step.touches:
                for i in self._direct(t):
                    full |= self.full[i] if i < j else 0
            self.past.append(past)
            self.full.append(full)
            for t in step.touches:
                self._enter(j, t)

    def _direct(self, t: Transition) -> Iterator[int]:
        """The steps that a touch comes after because of what it touches."""
        if t.mode in ("read", "write"):
            yield from (
                i for i, writes in self.words.get(t.thing, ()) if writes or t.mode == "write"
            )
            return
        phase = t.phase if t.mode == "pass" else t.phase - 1
        yield from self.arrivals.get((t.thing, phase), ())
        if t.mode != "pass":
            yield from self.waits.get((t.thing, phase), ())

    def _enter(self, j: int, t: Transition) -> None:
        key = t.thing, t.phase
        if t.mode == "arrive":
            self.arrivals.setdefault(key, []).append(j)
            if t.completes:
                self.ends[key] = j
        elif t.mode == "wait":
            self.waits.setdefault(key, []).append(j)
        elif t.mode in ("read", "write"):
            self.words.setdefault(t.thing, []).append((j, t.mode == "write"))

    # ---- races

    def reversals(self) -> Iterator[tuple[int, list[str]]]:
        """For each race the step before which the other one could have come, and the processes that can go
        first there to bring it about."""
        for i, j in dict.fromkeys(self._races()):
            later = [k for k in range(i + 1, j) if not self.full[k] >> i & 1]
            mask = sum(1 << k for k in later)
            firsts = [self.steps[k].process for k in later if not self.full[k] & mask & ~(1 << k)]
            if not self.past[j] & mask:
                firsts.insert(0, self.steps[j].process)
            yield i, firsts

    def _races(self) -> Iterator[tuple[int, int]]:
        for (thing, phase), steps in self.arrivals.items():
            for j in steps:
                yield from self._before(j, self.arrivals.get((thing, phase - 1), ()))
        for (thing, seen), steps in self.waits.items():
            for j in steps:
                yield from self._before(j, self.arrivals.get((thing, seen - 2), ()))
                end = self.ends.get((thing, seen))
                if end is not None and not any(
                    self.past[a] >> j & 1 for a in self.arrivals[thing, seen]
                ):
                    yield j, end
        for accesses in self.words.values():
            for n, (j, writes) in enumerate(accesses):
                covered = self.past[j]
                for i, other_writes in reversed(accesses[:n]):
                    if (writes or other_writes) and not covered >> i & 1:
                        yield i, j
                        covered |= self.full[i]

    def _before(self, j: int, steps: Sequence[int]) -> Iterator[tuple[int, int]]:
        yield from ((i, j) for i in steps if i < j and not self.past[j] >> i & 1)
