"""Gives shared memory and mbarriers their byte offsets, named barriers their ids: WARP → PLACED.

Order: after assign_layouts, whose conversions and reductions may need scratch (exchanges.py) and a barrier
(named_barriers.py).

Slots come first (those that start at multiples of 1024 bytes before the others), then mbarriers of 8 bytes.
An allocation with `alias` takes the place of the one that it names; where nobody uses that, and it is gone,
it has one of its own.  Sets the function attributes
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

from warploom.errors import InternalError, Note, SharedMemoryError
from warploom.ir.core import Func, Level, Op, Region
from warploom.ir.ops import mbarrier, smem, task
from warploom.ir.types import Shared
from warploom.layout.shared import PLAIN_ALIGN_BYTES, SLOT_ALIGN_BYTES
from warploom.passes.placed.exchanges import SUFFIX, is_scratch, with_exchanges
from warploom.passes.placed.named_barriers import with_barriers
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
    offsets, top, consumers = _slots(allocations)
    barriers = [o for o in func.body.ops if o.kind is mbarrier.mbarrier_alloc]
    for o in barriers:
        offsets[o] = top
        top += target.sync.barrier_bytes * o.attrs["n"]
    if barriers:
        consumers.append(
            _Consumer(sum(target.sync.barrier_bytes * o.attrs["n"] for o in barriers), "mbarriers")
        )

    if top > target.shared_bytes:
        error = _too_much(func, top, consumers, target)
        error.unplanned = sum(c.bytes for c in consumers if not c.is_planned)
        raise error
    ops = tuple(
        o.with_(attrs={**o.attrs, "offset": offsets[o]}) if o in offsets else o
        for o in func.body.ops
    )
    last = task.phases(func)[-1].attrs
    warps = sum(w * n for w, n in zip(last["warps"], last["replicas"], strict=True))
    attrs = {**func.attrs, "shared_bytes": top, "threads": target.warp_size * warps}
    return func.with_(body=Region(func.body.params, ops), level=Level.PLACED, attrs=attrs)


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


def _shared(o: Op) -> Shared:
    t = o.result.type
    assert isinstance(t, Shared)
    return t


def _slots(allocations: list[Op]) -> tuple[dict[Op, int], int, list[_Consumer]]:
    """Offsets of the allocations, the first free byte behind them, and who takes how much."""
    named = {o.attrs["name"]: o for o in allocations}
    if len(named) != len(allocations):
        raise InternalError("allocate_shared: two allocations of one name")

    def owner(o: Op) -> Op:
        seen = {o}
        while o.attrs.get("alias") is not None:
            o = named[o.attrs["alias"]]
            if o in seen:
                raise InternalError(f"allocate_shared: {o.attrs['name']} is an alias of itself")
            seen.add(o)
        return o

    groups: dict[Op, list[Op]] = {}
    for o in allocations:
        groups.setdefault(owner(o), []).append(o)
    offsets: dict[Op, int] = {}
    consumers = []
    top = 0
    align = {
        head: SLOT_ALIGN_BYTES if any(o.attrs["swizzle"] for o in group) else PLAIN_ALIGN_BYTES
        for head, group in groups.items()
    }
    for head, group in sorted(groups.items(), key=lambda g: -align[g[0]]):
        top = _align(top, align[head])
        size = max(math.prod(o.attrs["lead"]) * _shared(o).slot_bytes for o in group)
        offsets.update(dict.fromkeys(group, top))
        consumers.append(_Consumer(size, _described(head), head))
        top += size
    return offsets, top, consumers


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
