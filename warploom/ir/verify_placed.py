"""What must hold of a function at PLACED beyond what holds at WARP: the promises of passes/placed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warploom.ir.analysis import first_meeting, reaches_peers, unwaited
from warploom.ir.core import Func, Level, Op
from warploom.ir.named_barriers import meetings
from warploom.ir.ops import grid, mbarrier, mma, smem, task, tile
from warploom.ir.types import InFlight, Shared, Tile
from warploom.layout.shared import PLAIN_ALIGN_BYTES, SLOT_ALIGN_BYTES
from warploom.target import Target


@dataclass(frozen=True)
class Violation:
    """A broken rule, and the op that breaks it (None: the function as a whole)."""

    op: Op | None
    rule: str


def has_layouts(o: Op, _: Level) -> Iterator[Violation]:
    """Every tile that an op makes, or its regions take, has one."""
    for v in (*o.results, *(p for r in o.regions for p in r.params)):
        held = v.type.tile if isinstance(v.type, InFlight) else v.type
        if isinstance(held, Tile) and held.layout is None:
            yield Violation(o, f"%{v.hint}: {v.type} has no layout")


@dataclass(frozen=True)
class _Block:
    """Bytes [start, end) of shared memory; blocks of one `root` may share them."""

    op: Op
    name: str
    start: int
    end: int
    root: str


def allocated_bytes(o: Op, target: Target) -> int:
    """Bytes of a shared_alloc or mbarrier_alloc."""
    if o.kind is mbarrier.mbarrier_alloc:
        return target.sync.barrier_bytes * int(o.attrs["n"])
    t = o.result.typed(Shared)
    return t.slot_bytes * math.prod(t.lead)


def _memory(func: Func, target: Target) -> Iterator[Violation]:
    """Allocations are where they may be."""
    allocations = [
        o for o in func.body.ops if o.kind in (smem.shared_alloc, mbarrier.mbarrier_alloc)
    ]
    alias = {o.attrs["name"]: o.attrs.get("alias") for o in allocations}
    reuses = {o.attrs["name"]: o.attrs.get("reuses", ()) for o in allocations}
    blocks: list[_Block] = []
    for o in allocations:
        name, start = o.attrs["name"], o.attrs.get("offset")
        if start is None:
            yield Violation(o, "from PLACED on an allocation has an offset")
            return
        root, seen = name, {name}
        while alias[root] is not None:
            root = alias[root]
            if root not in alias or root in seen:
                yield Violation(o, f"{name} is an alias of {root}, which is no other allocation")
                return
            seen.add(root)
        align = target.sync.barrier_bytes
        if o.kind is smem.shared_alloc:
            align = SLOT_ALIGN_BYTES if o.attrs["swizzle"] else PLAIN_ALIGN_BYTES
        if start < 0 or start % align:
            yield Violation(o, f"offset {start} is not aligned to {align} bytes")
        blocks.append(_Block(o, name, start, start + allocated_bytes(o, target), root))
    for i, x in enumerate(blocks):
        if x.end > target.shared_bytes:
            yield Violation(x.op, f"{x.name} ends at byte {x.end} of {target.shared_bytes}")
        for y in blocks[:i]:
            is_told = x.root == y.root or x.root in reuses[y.root] or y.root in reuses[x.root]
            if x.start < y.end and y.start < x.end and not is_told:
                yield Violation(x.op, f"{x.name} overlaps {y.name} and neither reuses the other")


def _named_barriers(func: Func, target: Target) -> Iterator[Violation]:
    """Where more than a warp meets, a barrier is named; none is another's, and barrier 0 is the CTA's."""
    limit = target.sync.named_barriers
    owners: dict[int, object] = {0: None}
    for m in (
        meetings(func) if limit else ()
    ):  # else groups synchronise by counters in shared memory
        if len(m.ids) != m.barriers:
            yield Violation(m.op, f"from PLACED on {m.warps} warps meet at barriers with an id")
        for i in m.ids:
            if not 0 <= i < limit:
                yield Violation(m.op, f"barrier {i} is none of the {limit} that there are")
            if owners.setdefault(i, m.owner) != m.owner:
                yield Violation(m.op, f"barrier {i} is that of other threads")


def _grid(func: Func, target: Target) -> Iterator[Violation]:
    """One wait for earlier grids, before all that touches global memory."""
    waits = func.body.by_kind.get(grid.grid_wait, [])
    if waits and (not target.grid.dependent or len(waits) > 1 or waits[0] not in func.body.ops):
        yield Violation(waits[0], "a grid that may begin early waits once, before its tasks")
    if waits and (early := unwaited(func)) is not None:
        yield Violation(early, "nothing touches global memory before the grid has waited")


def _atomics(func: Func, _: Target) -> Iterator[Violation]:
    """Atomics acquire what somebody sees; one number's orders for all lanes of its warp."""
    ops = func.body.all_ops
    if not any(
        o.attrs.get("sem", "relaxed") != "relaxed" for o in func.body.by_kind.get(tile.atomic, ())
    ):
        return
    read = {v for o in ops for v in o.operands}
    elected = {i for o in ops if o.kind is task.elect for i in o.all_ops}
    for block in (func.body, *(r for o in ops for r in o.regions)):
        for at, o in enumerate(block.ops):
            sem = o.attrs.get("sem", "relaxed") if o.kind is tile.atomic else "relaxed"
            if sem != "relaxed" and o.result not in read:
                if sem != "release":
                    yield Violation(o, f"nobody reads what it met: it is not {sem}")
            elif sem != "relaxed" and not isinstance(o.result.type, Tile) and o not in elected:
                sides = reversed(block.ops[:at]), block.ops[at + 1 :]
                if not all(map(first_meeting, sides)):
                    yield Violation(o, "one number's order is all lanes' between two barriers")


def _fences(func: Func, _: Target) -> Iterator[Violation]:
    """Proxy fences cover what threads write to other CTAs; words of an operand are fenced."""
    wide = reaches_peers(func)
    for o in func.body.by_kind.get(smem.fence_async, ()) if wide else ():
        if o.attrs.get("space") != "global" and o.attrs.get("scope") != "cluster":
            yield Violation(
                o, "where threads access other CTAs' shared memory, it is the cluster's"
            )
    for o in func.body.by_kind.get(mma.wgmma, ()):
        if mma.packs(o) and not o.attrs.get("fenced"):
            yield Violation(o, "a fence stands behind the words of its register operand")


PLACED: tuple[Callable[[Func, Target], Iterator[Violation]], ...] = (
    _memory,
    _named_barriers,
    _atomics,
    _grid,
    _fences,
)
