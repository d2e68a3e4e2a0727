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

from warploom.errors import Note
from warploom.sim.cuts import Stuck, find_stuck
from warploom.sim.report import Deadlock, Exchange, SimError
from warploom.target import Target


@dataclass(eq=False)
class RegisterPool:
    """The registers of one CTA.

    entry: registers a thread at the launch.  held: what each warp's threads have.  owners: the warps of each
    agent, by its label.  free: registers that nobody has.  exchanges: of each warp, in tracked runs.  time:
    when the last were given back."""

    target: Target
    warps: int
    entry: int
    owners: dict[str, range] = field(default_factory=dict)
    free: int = 0
    time: float = 0.0
    held: list[int] = field(init=False)
    exchanges: list[list[Exchange]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = [self.entry] * self.warps
        self.exchanges = [[] for _ in self.held]

    @property
    def size(self) -> str:
        """All registers of the CTA, in words."""
        return f"{self.target.warp_size * self.warps} × {self.entry}"

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

    def holders(self, but: str) -> str:
        """What the other agents have, in words."""
        return ", ".join(
            f"{label} has {'/'.join(map(str, sorted({self.held[w] for w in warps})))}"
            for label, warps in self.owners.items()
            if label != but
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
