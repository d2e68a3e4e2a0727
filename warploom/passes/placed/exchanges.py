"""Gives conversions, reductions and scans that cross warps scratch memory, and the barriers that guard it.

A part of allocate_shared, which places what this declares.  Layouts say what crosses warps, and how many
bytes that takes.

Every replica of a task has scratch for one op at a time: what the most demanding one needs, and twice what
small ones do, which then take turns in its halves.  `exchange` before an op names its part: the warps write
there, meet, and read.  Whoever comes to a half again has passed the barrier of the exchange in the other one,
and so have all who read here before: no barrier but its own.  Else it is `guarded` by one more.

    before:  %y = reduce(%x) {axis=0, fn="add", layout=…}
    after:   %main_scratch = shared_alloc() {name="main_scratch", lead=(), shape=(1024,), dtype=u8, …}
             …
             %half = shared_slice(%main_scratch, %0) {shape=(512,)}
             exchange(%half)
             %y = reduce(%x) {axis=0, fn="add", layout=…}

Then the barriers at which a replica or a task meets, those of exchanges among them, get their numbers.
Barrier 0 is that of all threads of the CTA; a program's own `named_barrier`s keep theirs.  Each task takes a
barrier for each replica, and one for all of them together, where it meets there: the first that are free.

    before:  group_sync() {scope="replica"}          in a task of two replicas of 4 warps
    after:   group_sync() {scope="replica", id=1}    replica 1 meets at barrier 2
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.errors import CompileError
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.named_barriers import meetings
from warploom.ir.ops import control, smem, task
from warploom.ir.rewrite import annotate
from warploom.ir.types import i32, u8
from warploom.layout.shared import PLAIN_ALIGN_BYTES
from warploom.passes.placed.layout_rules import RULES
from warploom.passes.placed.task_layouts import tiles
from warploom.target import Target

_SMALL = 1024  # bytes: of reductions to a few numbers

SUFFIX = "_scratch"  # of a task's name: the name of its scratch


def with_exchanges(func: Func) -> Func:
    """The function with an `exchange` before each op that needs one."""
    ops: list[Op] = []
    for o in func.body.ops:
        if o.kind is task.tasks:
            rows = zip(o.attrs["names"], o.attrs["replicas"], o.regions, strict=True)
            o = o.with_(regions=tuple(_with_scratch(ops, *row) for row in rows))
        ops.append(o)
    return func.with_(body=Region(func.body.params, tuple(ops)))


def is_scratch(o: Op) -> bool:
    """Is an allocation one that was made here?"""
    return o.attrs["dtype"] == u8 and bool(o.attrs["name"].endswith(SUFFIX))


def _needed(o: Op) -> int:
    """Bytes of scratch that an op takes."""
    return RULES[o.kind].scratch(o) if tiles(o) else 0


def _scratch(region: Region) -> int:
    """Bytes for a task's exchanges, for one replica."""
    needed = [n for o in walk(region) if (n := _needed(o))]
    small = max((n for n in needed if n <= _SMALL), default=0) if len(needed) > 1 else 0
    most = max([0, 2 * small, *needed])
    return -(-most // PLAIN_ALIGN_BYTES) * PLAIN_ALIGN_BYTES


def _with_scratch(before: list[Op], name: str, replicas: int, region: Region) -> Region:
    """The task's region with its exchanges; what declares their scratch is appended to `before`."""
    size = _scratch(region)
    if not size:
        return region
    declared, head = Builder(before[-1].loc if before else None), Builder(region.ops[-1].loc)
    lead = (replicas,) if replicas > 1 else ()
    place = smem.shared_alloc(
        declared, name=name + SUFFIX, lead=lead, shape=(size,), dtype=u8, inner=0, swizzle=0,
        hint="scratch",
    )  # fmt: skip
    before += declared.ops
    if replicas > 1:
        place = smem.shared_slot(head, place, task.replica_id(head), hint="scratch")
    halves = [
        smem.shared_slice(head, place, build.const(head, i, i32), shape=(size // 2,), hint="half")
        for i in range(2)
    ]
    body = _Exchanges(place, halves, size).region(region)
    return Region(body.params, (*head.ops, *body.ops))


@dataclass
class _Exchanges:
    """Writes a task's exchanges.  read: the halves that somebody may still read."""

    whole: Value
    halves: list[Value]
    size: int
    read: set[int] = field(default_factory=set)
    count: int = 0  # of exchanges so far

    def region(self, r: Region) -> Region:
        b = Builder()
        for o in r.ops:
            with b.at(o):
                self.before(b, o)
            b.append(self.nested(o) if o.regions else o)
        return Region(r.params, tuple(b.ops))

    def nested(self, o: Op) -> Op:
        """An op whose regions may be what ran before them, and run before what follows: there any scratch may
        still be read, where it has exchanges.  The two regions of a while loop follow each other."""
        regions: list[Region] = []
        in_turn = [o.regions] if o.kind is control.while_ else [(r,) for r in o.regions]
        for rs in in_turn:
            before, count = self.read, self.count
            self.read = {0, 1}
            regions += map(self.region, rs)
            self.read = before if self.count == count else {0, 1}
        return o.with_(regions=tuple(regions))

    def before(self, b: Builder, o: Op) -> None:
        if o.kind is smem.group_sync and o.attrs["scope"] == "replica":
            self.read = set()
        needed = _needed(o)
        if not needed:
            return
        self.count += 1
        free = next((h for h in (0, 1) if h not in self.read), 0)
        parts = {free} if needed <= self.size // 2 else {0, 1}
        place = self.halves[free] if len(parts) == 1 else self.whole
        twice = bool(o.attrs.get("by_threads"))
        smem.exchange(b, place, guarded=bool(parts & self.read), twice=twice)
        self.read = parts


def with_barriers(func: Func, target: Target) -> Func:
    """The function with an `id` at every group_sync and exchange of more than a warp.  Raises CompileError
    `named-barriers` where there are not enough.  Where the target has none, groups synchronise by counters
    in shared memory."""
    limit = target.sync.named_barriers
    unnamed = [m for m in meetings(func) if m.barriers and not m.ids] if limit else []
    free = set(range(1, limit)).difference(*(m.ids for m in meetings(func)))
    first: dict[tuple[str, str] | None, int] = {None: 0}
    for m in unnamed:
        if m.owner in first:
            continue
        places = (i for i in free if free.issuperset(range(i, i + m.barriers)))
        first[m.owner] = at = min(places, default=0)
        if not at:
            raise CompileError(
                "named-barriers",
                f"the kernel needs more than the {limit} named barriers of a program",
                loc=func.loc,
                help="fewer tasks or consumer groups",
            )
        free -= set(range(at, at + m.barriers))
    ids = {m.op: first[m.owner] for m in unnamed}
    return annotate(func, lambda o: {"id": ids[o]} if o in ids else {})
