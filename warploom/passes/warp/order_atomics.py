"""Says what atomics order, where the lanes of a warp meet around them, and who gets what they found.

Order: at WARP, after broadcast_scalars, which leaves such a result to one thread or to one warp.
Changes: 7 families: split-K and stream-K, whose locks and tickets are atomics; sums of gradients, whose old
values nobody reads.

Who reads no result can't tell whose value was met, so nothing is acquired (PTX ISA, "Release and Acquire
Patterns").  One number's atomic is done by one thread: what the other lanes did before is released, and what
they do behind is ordered, where a barrier stands between (PTX ISA, "Causality order").

    before:  %n = atomic(%p, %one) {fn="add", sem="acq_rel"}      by a lone warp that reads %n
             %m = atomic(%q, %one) {fn="add", sem="acq_rel"}      nobody reads %m
    after:   group_sync() {scope="replica"}
             %n = atomic(%p, %one) {fn="add", sem="acq_rel"}
             group_sync() {scope="replica"}
             %m = atomic(%q, %one) {fn="add", sem="release"}

One thread does the atomic of each element of a tile; that its result is read means that all threads that hold
the element get it.

    before:  %n = atomic(%p, %x) {fn="add"}                       of tiles; somebody reads %n
    after:   %m = atomic(%p, %x) {fn="add"}
             %n = agree(%m)
"""

from __future__ import annotations

from warploom.analysis.scalars import is_on_numbers
from warploom.ir.analysis import first_meeting
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import smem, task, tile
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions
from warploom.ir.types import Tile

_WITHOUT_ACQUIRE = {"acquire": "relaxed", "acq_rel": "release"}


ATOMICS = frozenset((tile.atomic, smem.shared_atomic))


def order_atomics(func: Func) -> Func:
    """See the module's docstring."""
    read = {v for o in func.body.all_ops for v in o.operands}
    return rewrite_tasks(func, lambda o: with_regions(o, lambda r: _region(r, read)))


def _region(region: Region, read: set[Value], elected: bool = False) -> Region:
    b = Builder()
    for i, o in enumerate(region.ops):
        o = with_regions(o, lambda r, o=o: _region(r, read, elected or o.kind is task.elect))  # type: ignore[misc]
        if o.kind not in ATOMICS:
            b.append(o)
            continue
        if o.result in read and isinstance(o.result.type, Tile):
            found = Value(o.result.type, o.result.hint)
            b.append(o.with_(results=(found,)))
            b.append(Op(tile.agree, (found,), results=(o.result,), loc=o.loc, tasks=o.tasks))
            continue
        sem, is_read = o.attrs.get("sem", "relaxed"), o.result in read
        if not is_read and sem in _WITHOUT_ACQUIRE:
            o = o.with_(attrs={**o.attrs, "sem": _WITHOUT_ACQUIRE[sem]})
        meets = is_read and sem != "relaxed" and is_on_numbers(o) and not elected
        with b.at(o):
            if meets and not first_meeting(reversed(b.ops)):
                smem.group_sync(b, scope="replica")
            b.append(o)
            if meets and not first_meeting(region.ops[i + 1 :]):
                smem.group_sync(b, scope="replica")
    return with_ops(region, b.ops)
