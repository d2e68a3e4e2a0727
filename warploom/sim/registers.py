"""setmaxnreg: the pool of registers that a CTA's warps give to and take from.

PTX ISA, "setmaxnreg": each warp has so many registers a thread; what it gives up ("dec") goes to a pool of
its CTA, and more ("inc") comes out of it: the warp blocks until there is enough.  A launch hands all its
registers to its warps, so the pool begins empty.  Those of a warp that has ended do not return to it, and of
two groups that ask at once each may get a part (both seen on hardware).  Between two setmaxnregs all warps of
a warp group synchronise.

Nothing is ordered by it: a tracked run takes no knowledge from it, so what it proves of barriers and accesses
holds however warps compete for the pool.  Whether they can run it dry is decided afterwards (`prove`), from
the exchanges of the run.  An exploration (see `simulate`, confluent=False) does not block on it at all: each
order of the rest is run, and judged likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warploom.errors import Note
from warploom.ir.core import Op
from warploom.ir.ops import regs
from warploom.sim.agent import Agent, Block, Steps
from warploom.sim.barriers import Touch
from warploom.sim.cuts import Stuck, find_stuck
from warploom.sim.outline import step
from warploom.sim.report import Deadlock, Exchange, SimError

if TYPE_CHECKING:
    from warploom.sim.machine import Cta


@dataclass(eq=False)
class RegisterPool:
    """The registers of one CTA.

    entry: registers a thread at the launch.  held: what each warp's threads have.  free: registers that
    nobody has.  exchanges: of each warp, in tracked runs.  time: when the last were given back."""

    cta: Cta
    entry: int
    free: int = 0
    time: float = 0.0
    held: list[int] = field(init=False)
    exchanges: list[list[Exchange]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = [self.entry] * self.cta.warps
        self.exchanges = [[] for _ in self.held]

    @property
    def size(self) -> str:
        """All registers of the CTA, in words."""
        return f"{self.cta.target.warp_size * len(self.held)} × {self.entry}"

    def enter(self, a: Agent, o: Op) -> None:
        """Keeps the exchanges of an agent's warps; each must know those before of its warp group to be over.
        Raises ProtocolError."""
        own, new = self.cta.numbers.warps, list[Exchange]()
        for i, w in enumerate(a.warps_of_cta):
            known = a.clock[i, own.start : own.stop].copy()
            size = self.cta.target.warp_group
            group = w - w % size
            for other, theirs in enumerate(self.exchanges[group : group + size], group):
                before = theirs[: len(self.exchanges[w])][-1:]  # the one before this
                if other != w and before and known[other] < before[0].epoch:
                    raise a.error(
                        "setmaxnreg-sync",
                        "another warp of the warp group may still be at its setmaxnreg before this one",
                        o,
                        "all warps of a warp group synchronise between two of them: self.sync()",
                    )
            epoch, registers = int(a.positions[i]), o.attrs["registers"]
            new.append(Exchange(a.who, a.label, o, w, self.held[w], registers, known, epoch))
        for e in new:
            self.exchanges[e.warp].append(e)

    def prove(self) -> None:
        """Raises Deadlock where in some order of events a warp waits for ever, SimError `unexplored` where
        there are too many orders."""
        stuck = find_stuck(self.exchanges) if any(self.exchanges) else None
        if stuck is None:
            return
        if not stuck.waiting:
            raise SimError(
                "unexplored",
                "there are too many orders in which warps may take registers from the pool",
                stuck.path[-1].op.loc,
                help="let barriers order the groups that take from it",
            )
        raise self._deadlock(stuck)

    def holders(self, but: Agent) -> str:
        """What the other agents have, in words."""
        others = (a for a in self.cta.agents if a is not but)
        return ", ".join(
            f"{a.label} has {'/'.join(map(str, sorted({self.held[w] for w in a.warps_of_cta})))}"
            for a in others
        )

    def _deadlock(self, stuck: Stuck) -> Deadlock:
        """The story of a stuck state: who asks, who has what, who would give back later."""
        waiting = {e.label: e for e in stuck.waiting}
        notes, causes = list[Note](), list[str]()
        # Of each task's warps what they have behind them, and before.
        tasks: dict[str, list[tuple[list[Exchange], list[Exchange]]]] = {}
        for sequence, n in zip(self.exchanges, stuck.done, strict=True):
            if sequence:
                rows = tasks.setdefault(sequence[min(n, len(sequence) - 1)].label, [])
                rows.append((sequence[:n], sequence[n:]))
        for label, rows in tasks.items():
            have = sorted({past[-1].after if past else next_[0].before for past, next_ in rows})
            held = f"{label} has {' and '.join(map(str, have))} registers a thread"
            last = next((past[-1].op.loc for past, _ in rows if past), None)
            if label in waiting:
                e = waiting[label]
                asks = sum(w.asks for w in stuck.waiting if w.label == label)
                notes.append(
                    Note(f"{e.who} asks for {e.after} registers a thread, {asks} more", e.op.loc)
                )
                if len(have) > 1:
                    notes.append(Note(f"{held}: some of its warps got theirs", e.op.loc))
                    causes.append("warps of several groups ask at once and each group gets a part")
            else:
                notes.append(Note(held, last))
            late = [e for _, next_ in rows for e in next_ if e.asks < 0]
            if late and label not in waiting:
                behind = ", ".join(waiting)
                notes.append(
                    Note(
                        f"{label} gives back {-sum(e.asks for e in late)}, but comes to it only after "
                        f"{behind} went on",
                        late[0].op.loc,
                    )
                )
                causes.append(
                    "registers are given back too late: before whoever asks is waited for"
                )
        asked, first = sum(e.asks for e in stuck.waiting), stuck.waiting[0]
        causes = causes or ["more is asked for than is ever given back before: lower a budget"]
        return Deadlock(
            "setmaxnreg",
            f"setmaxnreg waits for ever: {asked} registers are asked for, {asked - stuck.free} more than the "
            f"pool has ({stuck.free} of {self.size} are free)",
            first.op.loc,
            tuple(notes),
            help=f"likely cause: {'; '.join(dict.fromkeys(causes))}",
            order=tuple(stuck.path),
        )


@step(regs.setmaxnreg)
def change(a: Agent, o: Op) -> Steps:
    """What an agent does for a setmaxnreg: gives back at once, or takes warp by warp, and waits."""
    pool, registers, said = a.cta.pool, o.attrs["registers"], o.attrs.get("action", "")
    held = [pool.held[w] for w in a.warps_of_cta]
    if a.is_solo:
        raise a.error("setmaxnreg-group", "one thread can't change its warp group's registers", o)
    if (said == "dec" and min(held) < registers) or (said == "inc" and max(held) > registers):
        raise a.error("setmaxnreg-action", f"{said} to {registers} of {held[0]} registers", o)
    if a.cta.is_tracked:
        pool.enter(a, o)
        a.log(o, f"{registers} registers")
    if a.cta.is_bound:
        yield None  # others may come first
    has_waited = False
    for i, w in enumerate(a.warps_of_cta):
        asks = a.cta.target.warp_size * (registers - held[i])
        if a.cta.is_bound and asks > pool.free:
            has_waited = True
            yield from a.wait_until(_block(a, o, asks, (len(held) - i) * asks))
        pool.free -= asks
        pool.held[w] = registers
        pool.time = max(pool.time, a.time) if asks < 0 else pool.time
    if has_waited and pool.time > a.time:
        a.stall(pool.time, o, "registers")
    if a.cta.touched is not None:
        a.cta.touched.append(Touch("registers", "setmaxnreg", registers, False, a.party(o)))


def _block(a: Agent, o: Op, one: int, all_: int) -> Block:
    pool = a.cta.pool
    return Block(
        lambda: pool.free >= one,
        o,
        f"setmaxnreg to {o.attrs['registers']} registers a thread",
        lambda: (
            f"it asks for {all_} more, the pool has {pool.free} of {pool.size}; {pool.holders(a)}"
        ),
        lambda: "nobody gives registers back: whoever could waits, too, or has ended",
        "setmaxnreg",
    )
