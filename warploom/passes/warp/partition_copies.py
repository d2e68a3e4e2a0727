"""Cooperative copies: in uniform kernels of several replicas each replica fills its part of every slot.

Order: after partition_code, whose inline task fills slots whole; before fuse_tasks puts that task's code
into the main task, which all replicas run.
Changes: uniform products of several warp groups: gathered, block-scaled, chained.

    before:  mbarrier_wait(%empty, %slot, %free)
             %place = shared_slot(%b_smem, %slot)
             cp_async(%v, %place, %k, %col) {bytes=8}
             cp_async_arrive(%full, %slot)
    after:   %id = replica_id()
             mbarrier_wait(%empty, %slot, %free)
             %place = shared_slot(%b_smem, %slot)
             %part = shared_slice(%place, %id, %zero) {shape=(32, 64)}
             cp_async(%v, %part, add(%k, mul(%id, 32)), %col) {bytes=8}
             cp_async_arrive(%full, %slot)

Every replica waits for the slot and arrives for what it wrote, so lower_channels counts the arrivals of
all.  One thread's TMA is replica 0's.  A slot that has no equal parts (the swizzle repeats after 8 rows and
whole panels), or a tile of pointers that can't be computed by parts, is replica 0's as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from warploom.analysis.data_split import RefusalError, Split
from warploom.analysis.structure import structure_of
from warploom.ir import engines
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import smem, task
from warploom.ir.rewrite import rewrite_tasks
from warploom.ir.types import Shared, Tile
from warploom.passes.partition_values import Cutter
from warploom.schedule.model import Schedule

# Which operand says where a copy goes.
_PLACE = {k: engines.DESTINATION[k] for k in (*engines.COPIES_PIECES, smem.shared_store)}


def partition_copies(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    count = schedule.tasks[0].replicas

    def tasks(o: Op) -> Op:
        main, loads = o.regions
        return o.with_(regions=(main, _Copies(_split(func, loads, count)).whole(loads)))

    return rewrite_tasks(func, tasks)


def _split(func: Func, loads: Region, count: int) -> Split:
    """How the copies are cut: each along the first axis on which it can be."""
    structure = structure_of(func)
    ops = list(walk(loads))
    mine = set(ops).__contains__

    def split(places: dict[Value, int]) -> Split:
        return Split(structure, mine, frozenset(), "M", count, forward=dict(places))

    cut: dict[Value, int] = {}
    for o in ops:
        if o.kind not in _PLACE:
            continue
        place = o.operands[_PLACE[o.kind]]
        for axis in _axes(o, place, count):
            try:
                split({place: axis})
            except RefusalError:
                continue
            cut[place] = axis
            break
    return split(cut)


def _axes(o: Op, place: Value, count: int) -> Iterable[int]:
    """The axes along which a copy's place has equal parts, the rows' first."""
    t = place.typed(Shared)
    for axis in sorted(range(len(t.shape)), key=lambda a: a == t.inner):
        unit = 1
        if axis != t.inner:
            below = math.prod(n for a, n in enumerate(t.shape) if axis < a != t.inner)
            unit = 8 // math.gcd(8, below) if t.swizzle else 1
        elif t.swizzle:
            unit = t.swizzle // t.dtype.bytes
        elif o.kind in engines.COPIES_PIECES:
            unit = o.attrs["bytes"] // t.dtype.bytes
        if t.shape[axis] % (count * unit) == 0:
            yield axis


class _Copies(Cutter):
    """Copies into shared memory go to the replica's part of the slot."""

    def effect(self, o: Op, b: Builder) -> None:
        axis = self.split.effects[o]
        if o.kind is task.elect or (o.kind in _PLACE and axis is None):
            self.alone(o, b)
        elif o.kind in _PLACE and axis is not None:
            self.copy(o, axis, b)
        else:
            b.append(o)

    def copy(self, o: Op, axis: int, b: Builder) -> None:
        operands = list(o.operands)
        at = _PLACE[o.kind]
        t = operands[at].typed(Shared)
        shape = self.cut_shape(t.shape, axis)
        blocks = self.blocks(b, axis, len(shape))
        operands[at] = smem.shared_slice(b, operands[at], *blocks, shape=shape)
        if o.kind is smem.shared_store:
            operands[1] = self.get(b, operands[1], axis)
        elif isinstance(operands[0].type, Tile):
            operands = [self.get(b, v, axis) if isinstance(v.type, Tile) else v for v in operands]
        else:
            offset = len(operands) - len(shape) + axis
            operands[offset] = self.start(b, operands[offset], shape[axis])
        b.append(o.with_(operands=tuple(operands)))
