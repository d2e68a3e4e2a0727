"""Clock stamps, for a measured timeline: where a program waits, issues, hands on and hears of completion.

PLACED → PLACED, on demand (no kernel that a user launches has them).  The function gets two parameters
more, the buffer of records and the number of the program to measure; else it is the same program.

before:  mbarrier_wait(%full, %slot, %phase)
after:   stamp(%stamps, %measured, %slot) {site=3}
         mbarrier_wait(%full, %slot, %phase)
         stamp(%stamps, %measured, %slot) {site=4}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from warploom.ir.core import Builder, Fact, Family, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import control, mma, regs, smem, task
from warploom.ir.types import Barriers, Pointer, Scalar, i32, u32

CAPACITY = 1 << 14  # records an agent; a GEMM's main loop makes some 8 an iteration

SITES = (Family.WAIT, Family.SIGNAL, Family.ISSUE)


@dataclass(frozen=True)
class Site:
    """A place of the program.

    role: 'start' or 'stop' of a task; 'begin' or 'end' of a wait; 'issue' before a copy or a group's first
    wgmma; 'done' after an arrival, an expectation or a commit.  op: which one (None at start and stop).
    work: the ops that compute between here and the next site, as far as control flow doesn't part them.
    """

    role: str
    op: Op | None
    work: tuple[Op, ...] = ()


def instrument(
    func: Func, capacity: int = CAPACITY, inside: bool = True
) -> tuple[Func, tuple[Site, ...]]:
    """The function with stamps, and its sites: number n of a stamp is sites[n - 1].

    inside: False where only the start and the stop of tasks are of interest."""
    assert func.level is Level.PLACED
    buffer, program = Value(Pointer(u32), "stamps"), Value(Scalar(i32), "measured")
    maker = _Maker(buffer, program, capacity, inside)
    ops = tuple(
        o.with_(regions=tuple(map(maker.task, o.regions))) if o.kind is task.tasks else o
        for o in func.body.ops
    )
    attrs = {**func.attrs, "facts": (*func.facts, Fact(16), Fact())}
    body = Region((*func.params, buffer, program), ops)
    stamped = func.with_(body=body, attrs=attrs)
    return stamped, tuple(Site(role, op, tuple(work)) for role, op, work in maker.sites)


class _Maker:
    """Walks a task's regions.  `open`: the work of the sites that may be the last one passed."""

    def __init__(self, buffer: Value, program: Value, capacity: int, inside: bool) -> None:
        self.buffer, self.program, self.capacity = buffer, program, capacity
        self.inside = inside
        self.sites: list[tuple[str, Op | None, list[Op]]] = []
        self.open: list[list[Op]] = []

    def task(self, region: Region) -> Region:
        b = Builder()
        self._mark(b, "start", None)
        self._mark(b, "start", None)  # what a stamp itself costs
        if self.inside:
            self._ops(b, region.ops[:-1])
        else:
            b.ops += region.ops[:-1]
        self._mark(b, "stop", None)
        b.append(region.ops[-1])
        return b.region(region.params)

    def _ops(self, b: Builder, ops: Sequence[Op]) -> None:
        for i, o in enumerate(ops):
            product = _product(ops, i)
            if o.kind.family is Family.WAIT and not _only_arrives(o):
                self._mark(b, "begin", o)
                b.append(o)
                self._mark(b, "end", o)
            elif (o.kind.family is Family.ISSUE and o.kind not in mma.ISSUING) or product:
                self._mark(b, "issue", product or o)
                b.append(o)
            elif o.kind.family is Family.SIGNAL or _only_arrives(o):
                b.append(o)
                self._mark(b, "done", o)
            elif o.regions and _has_sites(o):
                self._nested(b, o)
            else:
                self._works(o)
                b.append(o)

    def _nested(self, b: Builder, o: Op) -> None:
        """An op with sites in its regions: any of them may end it, and a loop's body follows itself."""
        before, regions = self.open, []
        after: list[list[Op]] = []
        for r in o.regions:
            inside, self.open = Builder(), list(before)
            self._ops(inside, r.ops[:-1])
            inside.append(r.ops[-1])
            regions.append(inside.region(r.params))
            after += [w for w in self.open if not any(w is x for x in after)]
        self.open = after
        if o.kind in control.LOOPS:
            for first in takewhile(lambda i: not _has_sites(i), o.regions[0].ops):
                self._works(first)
        b.append(o.with_(regions=tuple(regions)))

    def _works(self, o: Op) -> None:
        for work in self.open:
            work += o.all_ops

    def _mark(self, b: Builder, role: str, o: Op | None) -> None:
        work: list[Op] = []
        self.open = [work]
        self.sites.append((role, o, work))
        attrs = {"site": len(self.sites), "capacity": self.capacity}
        operands = (self.buffer, self.program, *_index(o))
        b.append(Op(smem.stamp, operands, attrs, loc=o.loc if o else None))


def _product(ops: Sequence[Op], i: int) -> Op | None:
    """The first wgmma of a run of products and their fence, where one starts at ops[i]."""
    if i > 0 and ops[i - 1].kind in mma.ISSUING:
        return None
    run = takewhile(lambda o: o.kind in mma.ISSUING, ops[i:])
    return next((o for o in run if mma.is_issued(o)), None)


def _only_arrives(o: Op) -> bool:
    return o.kind is smem.named_barrier and bool(o.attrs["arrive"])


def _has_sites(o: Op) -> bool:
    return any(i.kind.family in SITES or i.kind in mma.ISSUING for i in o.all_ops)


def _index(o: Op | None) -> tuple[Value, ...]:
    """Which barrier of its array an op is about, where it is one."""
    if o is None:
        return ()
    if o.kind is smem.named_barrier:
        return o.operands
    at = next((i for i, v in enumerate(o.operands) if isinstance(v.type, Barriers)), None)
    return () if at is None else (o.operands[at + 1],)


def relieved(func: Func) -> Func | None:
    """The function with 8 registers a thread fewer in the task that has most, and what that frees in the one
    that has fewest: a stamp takes about six, of which a lean producer has none to spare.  None where
    budgets aren't set, or change later on."""
    last = task.phases(func)[-1]
    if any(o.kind is regs.setmaxnreg for r in last.regions for o in walk(r)):
        return None
    warps = [w * n for w, n in zip(last.attrs["warps"], last.attrs["replicas"], strict=True)]
    rows = task.sharing(last, func.target.warp_group)
    threads = [sum(warps[i] for i in row) for row in rows]
    budgets = [last.attrs["registers"][row[0]] for row in rows]
    if any(r is None for r in budgets) or len(budgets) < 2:
        return None
    rich, poor = budgets.index(max(budgets)), budgets.index(min(budgets))
    budgets[rich] -= 8
    budgets[poor] += 8 * threads[rich] // threads[poor] // 8 * 8
    each = tuple(r for r, row in zip(budgets, rows, strict=True) for _ in row)
    changed = last.with_(attrs={**last.attrs, "registers": each})
    ops = tuple(changed if o is last else o for o in func.body.ops)
    return func.with_(body=Region(func.body.params, ops))
