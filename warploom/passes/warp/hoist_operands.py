"""Hoists loads of dots' operands that no iteration changes before their loop: registers hold the fragments.

Order: before expand_pipeline.  Which loops says the schedule (`Schedule.hoisted_operands`, ids), where the
registers suffice.
Changes: 3 families: attention, decoding, serving, by instructions that read registers: a fifth of their loads
from shared memory (Q's, of 32 rows a warp and heads of 64); attention's backward passes of others.

before:  for … {                              after:  %q = shared_load(%q_slot)
             %q = shared_load(%q_slot)                for … {
             dot(%q, shared_load(%k_slot))                dot(%q, shared_load(%k_slot))
         }                                            }

Only what lies in a slot that was taken before the loop moves: who took it gives it back after the loop, and
until then nobody writes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from warploom.ir.analysis import closure, defined, definitions
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import smem
from warploom.ir.rewrite import with_regions
from warploom.schedule.model import Schedule


def hoist_operands(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    wanted, made = frozenset(schedule.hoisted_operands), definitions(func.body)

    def visit(r: Region) -> Region:
        ops: list[Op] = []
        for o in r.ops:
            o = with_regions(o, visit)
            if o.id in wanted:
                (body,) = o.regions
                moved = _unchanging(body, made)
                ops += [x for x in body.ops if x in moved]
                rest = tuple(x for x in body.ops if x not in moved)
                o = o.with_(regions=(Region(body.params, rest),))
            ops.append(o)
        return Region(r.params, tuple(ops))

    return func.with_(body=visit(func.body))


def _unchanging(body: Region, made: Mapping[Value, Op]) -> Collection[Op]:
    """A loop's loads from slots that were taken before it, and what computes their places."""
    changing = set(defined(body))
    fixed: dict[Value, Op] = {}
    loads = []
    for o in body.ops:
        if not changing.isdisjoint(o.operands) or not (o.computes or o.kind is smem.shared_load):
            continue
        if o.kind is smem.shared_load:
            if not _lies_in(o.operands[0], made, fixed):
                continue
            loads.append(o)
        changing.difference_update(o.results)
        fixed.update(dict.fromkeys(o.results, o))
    return closure(loads, lambda o: [fixed[v] for v in o.operands if v in fixed])


def _lies_in(place: Value, made: Mapping[Value, Op], fixed: Mapping[Value, Op]) -> bool:
    """Is the place a part of a slot, one that is not among `fixed`, the ops of the loop?"""
    o = made.get(place)
    while o is not None and o.kind in smem.PARTS and o.kind is not smem.shared_slot:
        place, o = o.operands[0], made.get(o.operands[0])
    return o is not None and o.kind is smem.shared_slot and place not in fixed
