"""Loads what several ops read of a slot anew for each of them, where registers are short.

Order: before assign_layouts, which finds a layout for each of the loads.  Scripts say themselves what they
load.
Changes: 3 families: chunked linear attention of others (gla/chunk and common/chunk_o of
flash-linear-attention): states that are summed up and multiplied, by a warp group too, decays that many small
dots use.

before:  %h = shared_load(%slot)               after:  %h = shared_load(%slot)
         %s = reduce(mul(%h, %h))                      %s = reduce(mul(%h, %h))
         mbarrier_arrive(%empty, %i)                   %h1 = shared_load(%slot)
         %x = cast(%h) {dtype=bf16}                    %x = cast(%h1) {dtype=bf16}
                                                       mbarrier_arrive(%empty, %i)

A thread that needs more registers than it has keeps such tiles in local memory, which costs a store and a
load; in the slot they lie already, and each reader takes the layout that suits it (a right operand's is
repeated in all warps that share its columns).  The slot is given back after its last reader, if nothing but
waits for other slots, arithmetic and accesses to global memory are between.  A box of global memory that
arms of ifs read is loaded anew in them, up to the first store.  A task is left alone unless its
tiles are estimated to take more registers than a thread has, and then if this does not lower them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from warploom.analysis.facts import Facts, facts_of
from warploom.ir import engines
from warploom.ir.analysis import definitions
from warploom.ir.core import Family, Func, Op, Region, Value
from warploom.ir.ops import control, mbarrier, smem, task, tile
from warploom.ir.rewrite import Env, clone_op, rewrite_regions, substitute_operands, with_regions
from warploom.passes.placed.assign_layouts import with_layouts
from warploom.passes.placed.register_pressure import Pressure, limit_of
from warploom.passes.tile.canonicalize.cleanup import drop_dead
from warploom.target import Target

# What a slot's return may wait for: the next slots of other rings, which their producers bring whether or not
# it is given back.
_PASSABLE = engines.MULTIPLIES | {
    mbarrier.mbarrier_wait,
    mbarrier.mbarrier_arrive,
    smem.fence_async,
    smem.group_sync,
    smem.shared_store,
    tile.store,
    tile.store_box,
    *engines.OPENED,
    *engines.CLOSED,
    *engines.WAITED,
}

# How many times less must exceed a thread's registers where a warp group's dots take most of them: else ptxas
# keeps as much in local memory as before, and takes seconds to say so.
RELIEF = 2

_FILLING = engines.COPIES_BOXES | {task.elect, mbarrier.mbarrier_expect}  # slots that are free


def reload_slots(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    facts = facts_of(func)
    made = rewrite_regions(func, lambda r, warps: _task(r, warps, facts, target), "warps")
    return func if made is func else drop_dead(made)


def _task(r: Region, warps: int, facts: Facts, target: Target) -> Region:
    if engines.MULTIPLIES.isdisjoint(r.by_kind) or not r.by_kind.get(smem.shared_load):
        return r
    limit = limit_of(target)

    def over(x: Region) -> int:
        placed, _ = with_layouts(x, warps * target.warp_size, facts, by_lines=False)
        return Pressure(placed).excess(placed, placed.ops, limit)

    before = over(r)
    if not before:
        return r
    after = _Reload(definitions(r)).region(r)
    enough = 1 if r.by_kind.get(tile.dot) else RELIEF
    return after if over(after) < before / enough else r


@dataclass
class _Reload:
    """Writes a task's region.  made: the op that makes each value.  at: for an op what it reads that is
    loaded anew, and the ops that do it."""

    made: Mapping[Value, Op]
    at: dict[Op, list[tuple[Value, tuple[Op, ...]]]] = field(default_factory=dict)

    def region(self, r: Region) -> Region:
        ops = list(r.ops)
        for o in r.ops:
            if o.kind is smem.shared_load or o.kind is tile.load_box:
                ops = self.plan(ops, o)
        return Region(r.params, tuple(x for o in ops for x in self.written(o)))

    def written(self, o: Op) -> list[Op]:
        """The op, after loads of what it reads anew."""
        new: list[Op] = []
        env: Env = {}
        for v, chain in self.at.get(o, ()):
            inner: Env = {}
            new += (clone_op(x, inner) for x in chain)
            env[v] = inner[v]
        return [*new, with_regions(substitute_operands(o, env), self.region)]

    def plan(self, ops: list[Op], load: Op) -> list[Op]:
        """Notes the readers of a load that load anew; the ops, with the slot given back after the last of
        them."""
        at, slot = ops.index(load), self.made.get(load.operands[0])
        index = set(slot.operands[1:]) if slot is not None and not load.loads else set()
        chains: dict[Value, tuple[Op, ...]] = {load.result: (load,)}  # what follows from it alone
        readers: list[tuple[Op, Value]] = []
        last = at
        kept: list[Op] = []  # what gives the slot back before its last reader
        waiting: list[Op] = []
        for i, o in enumerate(ops[at + 1 :], at + 1):
            if not _is_passable(o, waiting or kept) or (
                load.loads and any(x.stores for x in o.all_ops)
            ):
                break
            inner = o.all_ops[1:]
            if any(x.kind is mbarrier.mbarrier_arrive and index & {*x.operands} for x in inner):
                break
            if o.kind is mbarrier.mbarrier_arrive and index & set(o.operands):
                if o.attrs.get("by") == "one" or not o.attrs.get("synced", True):
                    break  # what the threads meet for stands before it
                waiting.append(o)
            if _is_chain(o) and o.operands[0] in chains:
                chains[o.result] = (*chains[o.operands[0]], o)
                continue
            here = [(x, v) for x in o.all_ops for v in dict.fromkeys(x.operands) if v in chains]
            if here:
                readers += here
                last, kept = i, [*kept, *waiting]
                waiting = []
        anew = readers[1:]
        if load.loads:  # ahead of what reads it at once it is loaded once
            inside = [r for r in readers if r[0] not in ops]
            anew = inside[1:] if len(inside) == len(readers) else inside
        if not anew:
            return ops
        for o, v in anew:
            self.at.setdefault(o, []).append((v, chains[v]))
        late: list[Op] = []
        for o in kept:
            i = ops.index(o)
            before, after = ops[i - 1], ops[i + 1]
            if before.kind is smem.fence_async:
                late.append(
                    before if after.kind is not mbarrier.mbarrier_arrive else before.with_()
                )
            late.append(o)
        return [*(o for o in ops[: last + 1] if o not in late), *late, *ops[last + 1 :]]


def _is_passable(o: Op, given_back: Sequence[Op]) -> bool:
    """May a load stand after it?  given_back: what then stands after it as well."""
    acting = (x for x in o.all_ops if x.kind.acts)
    passable = _PASSABLE if given_back else _PASSABLE | _FILLING
    return o.kind not in control.LOOPS and all(x.kind in passable for x in acting)


def _is_chain(o: Op) -> bool:
    """Does its result follow from one tile alone, element by element or in other places?"""
    return len(o.operands) == 1 and o.kind.family in (Family.POINTWISE, Family.MOVE)
