"""Gives shared memory and mbarriers their byte offsets, named barriers their ids: WARP → PLACED.

Order: after assign_layouts, whose conversions and reductions may need scratch (exchanges.py) and a barrier.
Changes: every kernel.

Slots come first (those that start at multiples of 1024 bytes before the others), then mbarriers of 8 bytes.
An allocation takes the bytes of others where their accesses are over when it is written, by barriers that
are there anyway (analysis/shared_reuse.py), and names them (`reuses`).  One with `alias` takes the place of
the one that it names; where nobody uses that, and it is gone, it has one of its own.  Sets the function
attributes
  "shared_bytes"  int  dynamic shared memory of the kernel
  "threads"       int  threads of a CTA

    before:  %s = shared_alloc() {name="s", lead=(2,), shape=(64, 64), dtype=bf16, inner=1, swizzle=128}
             %f = mbarrier_alloc() {name="f", n=2, count=1}
    after:   %s = shared_alloc() {name="s", …, swizzle=128, offset=0}
             %f = mbarrier_alloc() {name="f", n=2, count=1, offset=16384}

Refuses (CompileError `shared-memory`, `named-barriers`) what doesn't fit in the target's shared memory, or
takes more barriers than it has, and says what to change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warploom.analysis.shared_reuse import SharedReuse
from warploom.errors import InternalError, Note, SharedMemoryError
from warploom.ir.core import Func, Level, Op, Region
from warploom.ir.ops import mbarrier, smem, task
from warploom.ir.types import Shared
from warploom.layout.shared import PLAIN_ALIGN_BYTES, SLOT_ALIGN_BYTES
from warploom.passes.placed.exchanges import SUFFIX, is_scratch, with_barriers, with_exchanges
from warploom.schedule.model import Schedule
from warploom.target import Target


@dataclass(frozen=True)
class _Consumer:
    """What takes shared memory: bytes, and how it is called in messages."""

    bytes: int
    what: str
    op: Op | None = None

    @property
    def is_planned(self) -> bool:
        """Did the schedule count with it?"""
        return self.op is not None and not is_scratch(self.op)


def allocate_shared(func: Func, schedule: Schedule | None, target: Target) -> Func:
    """See the module's docstring."""
    func = with_barriers(with_exchanges(_without_lost_aliases(func)), target)
    allocations = [o for o in func.body.ops if o.kind is smem.shared_alloc]
    if len({o.attrs["name"] for o in allocations}) != len(allocations):
        raise InternalError("allocate_shared: two allocations of one name")
    reuse = SharedReuse(func)
    blocks = _blocks(allocations, reuse)
    top = max((b.end for b in blocks.values()), default=0)
    consumers = [
        _Consumer(b.end - b.start, _described(b.head), b.head)
        for b in dict.fromkeys(blocks.values())
    ]
    barriers = [o for o in func.body.ops if o.kind is mbarrier.mbarrier_alloc]
    placed = {o: _placed(o, blocks, reuse) for o in allocations}
    for o in barriers:
        placed[o] = o.with_(attrs={**o.attrs, "offset": top})
        top += target.sync.barrier_bytes * o.attrs["n"]
    if barriers:
        consumers.append(
            _Consumer(sum(target.sync.barrier_bytes * o.attrs["n"] for o in barriers), "mbarriers")
        )

    if top > target.shared_bytes:
        error = _too_much(func, top, consumers, target)
        stores = schedule.stores if schedule is not None else ()
        reused = {p.staging for p in stores if p.reuses}
        apart = [
            o
            for o in allocations
            if o.attrs["name"] in reused and not placed[o].attrs.get("reuses")
        ]
        error.schedule = schedule
        error.unplanned = sum(c.bytes for c in consumers if not c.is_planned or c.op in apart)
        raise error
    ops = tuple(placed.get(o, o) for o in func.body.ops)
    warps = task.warps_of(task.phases(func)[-1])
    attrs = {**func.attrs, "shared_bytes": top, "threads": target.warp_size * warps}
    return func.with_(body=Region(func.body.params, ops), level=Level.PLACED, attrs=attrs)


def bytes_needed(func: Func, target: Target) -> int:
    """The shared memory that a function at WARP is going to take."""
    func = with_exchanges(_without_lost_aliases(func))
    allocations = [o for o in func.body.ops if o.kind is smem.shared_alloc]
    top = max((b.end for b in _blocks(allocations, SharedReuse(func)).values()), default=0)
    barriers = [int(o.attrs["n"]) for o in func.body.ops if o.kind is mbarrier.mbarrier_alloc]
    return top + target.sync.barrier_bytes * sum(barriers)


def _without_lost_aliases(func: Func) -> Func:
    names = {o.attrs["name"] for o in func.body.ops if o.kind is smem.shared_alloc}
    lost = {
        o
        for o in func.body.ops
        if o.kind is smem.shared_alloc and o.attrs.get("alias", o.attrs["name"]) not in names
    }
    ops = tuple(
        o.with_(attrs={k: v for k, v in o.attrs.items() if k != "alias"}) if o in lost else o
        for o in func.body.ops
    )
    return func.with_(body=Region(func.body.params, ops))


@dataclass(frozen=True)
class _Block:
    """Bytes [start, end) that an allocation and its aliases take."""

    head: Op
    start: int
    end: int

    def overlaps(self, other: _Block) -> bool:
        return self.start < other.end and other.start < self.end


def _blocks(allocations: list[Op], reuse: SharedReuse) -> dict[Op, _Block]:
    """Where each allocation lies: at the first byte where it may overlap what lies there already."""
    groups: dict[Op, list[Op]] = {}
    for o in allocations:
        groups.setdefault(reuse.roots[o.result], []).append(o)
    align = {
        head: SLOT_ALIGN_BYTES if any(o.attrs["swizzle"] for o in group) else PLAIN_ALIGN_BYTES
        for head, group in groups.items()
    }
    placed: list[_Block] = []

    def is_free(block: _Block) -> bool:
        return all(_may_overlap(reuse, block, b) for b in placed if b.overlaps(block))

    for head, group in sorted(groups.items(), key=lambda g: -align[g[0]]):
        size = max(math.prod(o.attrs["lead"]) * o.result.typed(Shared).slot_bytes for o in group)
        starts = {_align(at, align[head]) for b in placed for at in (b.start, b.end)} | {0}
        found = (_Block(head, at, at + size) for at in sorted(starts))
        placed.append(next(filter(is_free, found)))
    return {o: b for b in placed for o in groups[b.head]}


def _may_overlap(reuse: SharedReuse, a: _Block, b: _Block) -> bool:
    return reuse.fits(a.head, b.head, b.start - a.start) or reuse.fits(
        b.head, a.head, a.start - b.start
    )


def _placed(o: Op, blocks: dict[Op, _Block], reuse: SharedReuse) -> Op:
    """An allocation with its offset, and with those whose bytes it has."""
    at = blocks[o]
    attrs = {**o.attrs, "offset": at.start}
    heads = dict.fromkeys(b for b in blocks.values() if b is not at and b.overlaps(at))
    earlier = [b for b in heads if reuse.fits(b.head, at.head, at.start - b.start)]
    if o is at.head and earlier:
        attrs["reuses"] = tuple(b.head.attrs["name"] for b in earlier)
    return o.with_(attrs=attrs)


def _described(o: Op) -> str:
    if is_scratch(o):
        task_name = o.attrs["name"].removesuffix(SUFFIX)
        return f"scratch of {task_name}'s conversions and reductions"
    slots, a = math.prod(o.attrs["lead"]), o.attrs
    dims = "x".join(map(str, a["shape"]))
    return f"{a['name']} ({slots} slot{'s' * (slots != 1)} of {dims}x{a['dtype']})"


def _align(n: int, to: int) -> int:
    return -(-n // to) * to


def _too_much(
    func: Func, total: int, consumers: list[_Consumer], target: Target
) -> SharedMemoryError:
    limit = target.shared_bytes
    over = total - limit
    ranked = sorted(consumers, key=lambda c: -c.bytes)
    notes = tuple(
        Note(f"{c.bytes} bytes: {c.what}", c.op.loc if c.op is not None else None)
        for c in ranked[:4]
    )
    return SharedMemoryError(
        "shared-memory",
        f"the kernel needs {total} bytes of shared memory, {over} more than the {limit} that a CTA may use "
        f"on {target.name}",
        func.loc,
        notes,
        _advice(ranked, over),
    )


def _advice(ranked: list[_Consumer], over: int) -> str:
    """Which knob frees enough: rings are as many slots deep as num_buffers_warp_spec says."""
    blocks = "use smaller tiles (BLOCK_M, BLOCK_N or BLOCK_K)"
    depths = {
        c.op.attrs["lead"][0] for c in ranked if c.op is not None and len(c.op.attrs["lead"]) == 1
    }
    if not depths or max(depths) < 2:
        return blocks
    depth = max(depths)
    a_slot = sum(
        c.bytes // depth for c in ranked if c.op is not None and c.op.attrs["lead"] == (depth,)
    )
    fits = depth - -(-over // a_slot)
    if fits < 1:
        return f"even one slot a ring is too much: {blocks}"
    return (
        f"make the rings {fits} slots deep instead of {depth} (num_buffers_warp_spec), or {blocks}"
    )
