"""mbarriers with full phase counters behind their parity, and counted (named) barriers.

PTX ISA, "mbarrier": a phase completes when its pending arrivals and its transaction count are both zero;
the next one begins at once.  A wait tests parity only; the counter here tells a wait that is a whole phase
off from one that is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from warploom.errors import Note
from warploom.ir.core import Op
from warploom.sim.order import Array, Participant, covers, joined
from warploom.sim.report import ProtocolError

TX_LIMIT = (1 << 20) - 1  # range of the transaction count (PTX ISA, "tx-count of mbarrier object")


class Transition(NamedTuple):
    """What one step did to something that several parties share.

    thing: a barrier's name, or an address of global memory.  mode: "arrive" (a copy, too), "wait" (a parity
    wait that passes), "pass" (of a counted barrier), "read" or "write" (global memory), or
    "setmaxnreg" (which orders nothing).  phase: an arrival's; of a wait how many phases are complete; of a
    setmaxnreg the registers.  completes: the arrival completed its phase."""

    thing: str
    mode: str
    phase: int
    completes: bool
    party: Participant


class Barrier:
    """A barrier of any kind.  touched: where it is kept, what was done."""

    name: str
    touched: list[Transition] | None

    def touch(self, mode: str, phase: int, party: Participant, completes: bool = False) -> None:
        """Notes what one step did to it (see Transition)."""
        if self.touched is not None:
            self.touched.append(Transition(self.name, mode, phase, completes, party))


@dataclass(eq=False)
class Together:
    """The arrivals of all threads of a replica by one op: how many there are, and for each barrier how many
    were made so far, and in which phase."""

    all: int
    done: dict[MBarrier, int] = field(default_factory=dict)
    phases: dict[MBarrier, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Waiter:
    """A wait that passed: the components and epochs that prove it is over."""

    party: Participant
    components: Array
    epochs: Array


@dataclass(eq=False)
class MBarrier(Barrier):
    """One mbarrier.  `phases` counts completed phases: the running one has that index.

    `component` is its number in the clocks (`visible`: as ordinary accesses know it); `stamp` what the
    arrivals of the running phase released, `done` what those of the last completed one did (`wide_stamp`,
    `wide_done`: in the scope of the cluster, for waits that acquire in it).  It is element `index` of
    `made`'s array in the CTA of rank `rank`."""

    name: str
    count: int
    component: int
    visible: int
    width: int  # of a stamp: 2·D
    tracked: bool
    bound: bool = True  # arrivals and waits must be bound to one phase in every order
    touched: list[Transition] | None = None
    rank: int = 0
    made: Op | None = None
    index: int = 0
    is_wide: bool = False  # in a cluster, whose other CTAs take part
    phases: int = 0
    pending: int = 0
    bytes: int = 0
    in_flight: int = 0  # bytes of copies issued that have not arrived
    stamp: Array = field(init=False)
    done: Array = field(init=False)
    proof: Array = field(init=False)  # (2, 1): the components that tell that its copies are over
    wide_stamp: Array = field(init=False)
    wide_done: Array = field(init=False)
    time: float = 0.0  # of the running phase's latest arrival
    done_time: float = 0.0
    arrivals: list[Participant] = field(default_factory=list)
    last: Participant | None = None  # who completed the phase before
    waited: list[Waiter] = field(default_factory=list)  # on the last completed phase
    blocked: dict[Participant, int] = field(default_factory=dict)  # waits that go on, for a phase

    def __post_init__(self) -> None:
        self.proof = np.array([[self.component], [self.visible]])
        self.pending = self.count
        self.done = self.wide_done = np.zeros(self.width, np.int64)
        self._begin_phase()

    # ---- changes

    def arrive(
        self,
        party: Participant,
        stamp: Array,
        time: float,
        rows: Array | None = None,
        wide: Array | None = None,
        n: int = 1,
        others: Together | None = None,
    ) -> None:
        """n arrivals.  `rows`: what the arriving threads know, to prove which phase they count in.  `stamp`:
        what they release in the CTA, `wide` in the cluster (where that is more).  others: which they are
        part of."""
        if self.tracked and others is not None:
            self._count_together(party, n, others)
        if rows is not None:
            self.bind(party, rows, "arrives")
        phase, now = self.phases, min(n, max(self.pending, 1))
        if self.pending == 0:
            raise ProtocolError(
                "over-arrival",
                f"{party.who} arrives at {self.name}, whose phase {self.phases} has all its "
                f"{self.count} arrivals and waits for {self.bytes} bytes",
                party.op.loc,
                self._arrival_notes() + self._made_note(),
                help=f"the barrier was made for {self.count} arrivals a phase",
            )
        self.pending -= now
        self._take(stamp, wide)
        self.time = max(self.time, time)
        self.arrivals.append(party)
        self._advance(party)
        self.touch("arrive", phase, party, self.phases > phase)
        if n > now:
            self.arrive(party, stamp, time, rows, wide, n - now)

    def _count_together(self, party: Participant, n: int, others: Together) -> None:
        """Threads that arrive together count in one phase: else it ends when some of them have come, and what
        the rest did before is not after it."""
        first = others.phases.setdefault(self, self.phases)
        before = others.done.get(self, 0)
        others.done[self] = before + n
        if first != self.phases or n > self.pending > 0:
            came = before + (self.pending if first == self.phases else 0)
            raise ProtocolError(
                "split-arrival",
                f"{party.who} arrives at {self.name} {others.all} times together; phase {first} is complete "
                f"after {came} of them, the others count in phase {first + 1}",
                party.op.loc,
                () if self.made is None else (Note("the barrier's count", self.made.loc),),
                help=f"the barrier was made for {self.count} arrivals a phase: count all that come",
            )

    def expect(self, party: Participant, n: int) -> None:
        """expect-tx: the running phase waits for n more bytes."""
        self._transact(party, n)

    def land(self, party: Participant, n: int, phase: int, stamp: Array, time: float) -> None:
        """complete-tx by a copy that was issued in `phase`."""
        self.in_flight -= n
        if self.tracked and phase != self.phases:
            raise ProtocolError(
                "late-copy",
                f"{party.who}: a copy issued for phase {phase} of {self.name} arrives in phase {self.phases}",
                party.op.loc,
                help="the barrier expects fewer bytes than its copies bring",
            )
        self._take(stamp, None)
        self.time = max(self.time, time)
        phase = self.phases
        self._transact(party, -n)
        self._advance(party)
        self.touch("arrive", phase, party, self.phases > phase)

    def _take(self, stamp: Array, wide: Array | None) -> None:
        """What an arrival releases is added to the running phase."""
        np.maximum(self.stamp, stamp, out=self.stamp)
        if self.wide_stamp is not self.stamp:
            np.maximum(self.wide_stamp, stamp if wide is None else wide, out=self.wide_stamp)

    def _begin_phase(self) -> None:
        """Nothing was released in it; in a program of one CTA its scope is all there is."""
        self.stamp = self.wide_stamp = np.zeros(self.width, np.int64)
        if self.is_wide:
            self.wide_stamp = self.stamp.copy()

    def _transact(self, party: Participant, n: int) -> None:
        self.bytes += n
        if abs(self.bytes) > TX_LIMIT:
            raise ProtocolError(
                "tx-overflow",
                f"the transaction count of {self.name} reaches {self.bytes}, outside ±{TX_LIMIT}",
                party.op.loc,
                help="expect the bytes of one slot in one phase; copies and expectations must meet in it",
            )

    def _advance(self, party: Participant) -> None:
        if self.pending or self.bytes:
            return
        if self.tracked:
            self._check_waiters(party)
            half = self.width // 2
            for stamp in (self.stamp, self.wide_stamp) if self.is_wide else (self.stamp,):
                for at in (self.component, self.visible):
                    stamp[at] = stamp[at + half] = self.phases + 1
        self.done, self.wide_done, self.done_time = self.stamp, self.wide_stamp, self.time
        self._begin_phase()
        self.phases += 1
        self.pending = self.count
        self.arrivals, self.waited, self.last = [], [], party

    # ---- binding arrivals and waits to full phases

    def bind(self, party: Participant, rows: Array, verb: str) -> None:
        """Proof that an arrival (or a copy's expectation) can't fall into an earlier phase: whoever makes it
        knows that all earlier ones are complete.  Where that is not asked for, the warps that make it must
        at least know the same: they are run in step."""
        all_known = rows[:, self.component].tolist()
        known = min(all_known)
        if known < self.phases and (self.bound or known != max(all_known)):
            raise ProtocolError(
                "unbound-arrival",
                f"{party.who} {verb} at {self.name} in phase {self.phases}, but knows only of "
                f"{known} completed: in another order it counts in phase {known}",
                party.op.loc,
                self._arrival_notes() + self._made_note(),
                help=f"wait for phase {self.phases - 1} of {self.name} before arriving again, or for what "
                f"follows from it (the slot's release); it was made for {self.count} "
                "arrivals a phase: too "
                "few, or one arrives twice"
                if verb == "arrives"
                else "arrive_and_expect_tx before the copy keeps the phase open until its bytes are there",
            )

    def target(self, party: Participant, rows: Array, parity: int) -> int:
        """The full phase that a wait for `parity` means to whoever makes it: the first that it does
        not know to be complete, or the one before (then it passes at once)."""
        known: set[int] = set(rows[:, self.component].tolist())
        targets = {n - (n % 2 != parity) for n in known}
        if len(targets) > 1:
            raise ProtocolError(
                "unbound-wait",
                f"{party.who} waits for parity {parity} of {self.name}, which means phase {min(targets)} "
                f"to one of its warps and {max(targets)} to another",
                party.op.loc,
                help="the group's warps know of different phases: let them synchronise (self.sync()) first",
            )
        if not self.bound:
            return self.phases - (self.phases % 2 != parity)
        (target,) = targets
        if self.phases > target + 1:
            raise self._late(party, target, self._arrival_notes())
        return target

    def _late(self, party: Participant, target: int, notes: tuple[Note, ...]) -> ProtocolError:
        return ProtocolError(
            "late-wait",
            f"{party.who} waits for phase {target} of {self.name} (parity {target & 1}), which can be a "
            f"whole phase further by then: parity can't tell, and it hangs or passes by luck",
            party.op.loc,
            notes,
            help="the next phase must not complete before every waiter has seen this one; a wait's phase "
            "flips each time the ring comes round (self.ring_next)",
        )

    def _check_waiters(self, party: Participant) -> None:
        """The running phase completes: every wait for the previous one must be over before."""
        for w in self.waited:
            known = self.wide_stamp.take(w.components)
            if not covers(known, w.epochs) and (self.bound or (known >= w.epochs).any()):
                raise self._late(
                    w.party, self.phases - 1, (party.note("the next phase is completed"),)
                )
        for waiting, target in self.blocked.items() if self.bound else ():
            if target == self.phases - 1:
                raise self._late(waiting, target, (party.note("the next phase is completed"),))

    # ---- words

    def _arrival_notes(self) -> tuple[Note, ...]:
        before = () if self.last is None else (self.last.note("the phase before is completed"),)
        return before + tuple(p.note("an earlier arrival") for p in self.arrivals[-3:])

    def _made_note(self) -> tuple[Note, ...]:
        return () if self.made is None else (Note("the barrier's count", self.made.loc),)

    def parties(self) -> tuple[Note, ...]:
        """Who did their part of a phase that does not complete, and where its number of arrivals is set."""
        came = tuple(p.note(f"an arrival at {self.name}") for p in self.arrivals[-3:])
        return came + self._made_note() if came and (self.pending or self.bytes) else came

    def outstanding(self) -> str:
        """What the running phase still lacks."""
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.count} arrivals")
        if self.bytes > 0:
            parts.append(f"{self.bytes} bytes ({self.in_flight} of them on their way)")
        elif self.bytes < 0:
            parts.append(f"an expectation of {-self.bytes} bytes that came already")
        return " and ".join(parts) or "nothing"

    def cause(self) -> str:
        """The likely reason why the running phase does not complete."""
        if self.bytes and not self.pending and self.bytes != self.in_flight:
            return f"expect-tx and the copies differ by {self.bytes - self.in_flight} bytes"
        if self.bytes < 0 and self.pending:
            return "copies come, but nobody expects them: a missing arrive_and_expect_tx"
        if self.pending == self.count and not self.phases:
            return (
                "nothing ever arrives: a missing release or expect, or a wait that begins with the wrong "
                "phase (who fills slots begins with 1, which a fresh barrier lets pass, who reads with 0)"
            )
        if self.pending == self.count:
            return "nothing arrives: a missing release or expect, or a phase that is off by one"
        if self.pending:
            return (
                f"only {self.count - self.pending} of {self.count} arrivals come: wrong count, or one of "
                "those who arrive leaves this round out"
            )
        return "copies that never land"


@dataclass(eq=False)
class CountedBarrier(Barrier):
    """bar.sync and bar.arrive: `threads` arrivals make a generation."""

    name: str
    component: int
    width: int
    tracked: bool
    bound: bool = True
    touched: list[Transition] | None = None
    threads: int = 0
    arrived: int = 0
    generation: int = 0
    stamp: Array = field(init=False)
    done: Array = field(init=False)
    time: float = 0.0
    done_time: float = 0.0
    parties: list[Participant] = field(default_factory=list)
    last: Participant | None = None  # who completed the generation before

    def __post_init__(self) -> None:
        self.stamp = np.zeros(self.width, np.int64)
        self.done = np.zeros(self.width, np.int64)

    def arrive(self, party: Participant, n: int, threads: int, rows: Array, time: float) -> int:
        """n threads arrive at a barrier of `threads`; gives the generation that they arrive in."""
        if self.tracked and self.bound and min(rows[:, self.component].tolist()) < self.generation:
            raise ProtocolError(
                "unbound-arrival",
                f"{party.who} arrives at {self.name} in generation {self.generation} without knowing that "
                "the one before is complete",
                party.op.loc,
                () if self.last is None else (self.last.note("the one before is completed"),),
                help="all parties name the barrier's thread count"
                if threads == self.threads
                else f"it counts {threads} threads, the arrivals before counted {self.threads}: all "
                "parties of a barrier name the same number, that of all who arrive or wait",
            )
        if self.arrived and threads != self.threads:
            raise ProtocolError(
                "barrier-count",
                f"{party.who} arrives at {self.name} for {threads} threads, others for {self.threads}",
                party.op.loc,
                tuple(p.note("earlier arrival") for p in self.parties),
                help="all parties of a barrier name the same number, that of all who arrive or wait",
            )
        mine, self.threads = self.generation, threads
        self.arrived += n
        np.maximum(self.stamp, joined(rows), out=self.stamp)
        self.time = max(self.time, time)
        self.parties.append(party)
        if self.arrived > threads:
            raise ProtocolError(
                "over-arrival",
                f"{self.arrived} threads arrive at {self.name}, which expects {threads}",
                party.op.loc,
                tuple(p.note("arrival") for p in self.parties),
                help=f"name the {self.arrived} threads that come, or let fewer come",
            )
        if self.arrived == threads:
            self.generation += 1
            if self.tracked:
                for at in (self.component, self.component + self.width // 2):
                    self.stamp[at] = self.generation
            self.done, self.done_time = self.stamp, self.time
            self.stamp = np.zeros(self.width, np.int64)
            self.arrived, self.parties, self.last = 0, [], party
        self.touch("arrive", mine, party, self.generation > mine)
        return mine
