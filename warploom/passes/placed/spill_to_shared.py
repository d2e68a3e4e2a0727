"""Uniform kernels: spills what loops read and don't change to shared memory, where a thread lacks registers.

Order: after assign_layouts, which says what a tile takes of a thread; before order_by_registers.
Changes: chunks and attention whose loops multiply by a tile that was computed before them.

before:  %q = mul(%x, %g)                      after:  %q = mul(%x, %g)
         for … {                                       group_sync();  shared_store(%s, %q);  group_sync()
             %y = dot(%q, %k)                          for … {
         }                                                 %q1 = shared_load(%s)
                                                           %y = dot(%q1, %k)
                                                       }

What a thread can't hold ptxas keeps in local memory: word by word, a copy for each thread that has the
element, and beyond what the first cache holds of all threads of a multiprocessor it comes from the second in
each iteration.  From shared memory ldmatrix brings fragments as they are multiplied, four registers at once.
Of a loop's tiles the widest are spilled until those that are left fit together with what an iteration holds;
tiles that a loop doesn't read ptxas spills around it, and they don't count.  A slot that is given back only
after the loop holds its tile already.  A kernel takes no more shared memory than leaves as many programs on a
multiprocessor as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from warploom.ir import build
from warploom.ir.analysis import blocks, definitions, free_values, moved
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import control, mbarrier, smem, task, tile
from warploom.ir.rewrite import (
    Env,
    clone_op,
    rewrite_tasks,
    substitute_operands,
    with_ops,
    with_regions,
)
from warploom.ir.types import Shared, Tile
from warploom.layout.shared import swizzle_for
from warploom.passes.placed.part_lifetimes import resident_parted
from warploom.passes.placed.register_pressure import Pressure, limit_of, part_of
from warploom.passes.tile.canonicalize.cleanup import drop_dead
from warploom.target import Target


def spill_to_shared(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    (phase,) = task.phases(func)
    (region,) = phase.regions
    if not region.by_kind.get(tile.dot):
        return func
    spills = _spills(phase, limit_of(target))
    if not spills:
        return func
    threads = target.warp_size * phase.attrs["warps"][0] * phase.attrs["replicas"][0]
    most = target.resident(threads, target.registers.per_thread, 0)  # as registers allow

    programs = min(most, resident_parted(func, target, most))
    for spill in spills:
        spilled = spill.applied(func)
        if spill.load is not None or resident_parted(spilled, target, programs) >= programs:
            func = spilled
    return drop_dead(func)


@dataclass(frozen=True, eq=False)
class _Spill:
    """A tile that loops read anew.  loops: the first parameters of their bodies.  moves: for each value that
    they read the ops that make it of the tile.  load: of a slot that holds the tile all the while.  replicas:
    of the task; each has a tile of its own."""

    value: Value
    loops: frozenset[Value]
    moves: Mapping[Value, tuple[Op, ...]]
    load: Op | None
    replicas: int

    def applied(self, func: Func) -> Func:
        """The function with the tile spilled."""
        b = Builder(func.loc)
        place = None
        if self.load is None:
            names = {o.attrs["name"] for o in func.body.by_kind.get(smem.shared_alloc, ())}
            t = self.value.typed(Tile)
            inner = max(range(len(t.shape)), key=lambda a: (t.layout.contiguous(a), a))
            rows = prod(t.shape) // t.shape[inner]
            swizzle = swizzle_for(t.shape[inner] * t.dtype.bytes, rows)
            name = build.unique(f"spilled_{self.value.hint or 'tile'}", names)
            place = build.slots(b, t, (self.replicas,), name, "spilled", inner, swizzle)
        at = next(i for i, o in enumerate(func.body.ops) if o.kind is task.tasks)
        ops = (*func.body.ops[:at], *b.ops, *func.body.ops[at:])
        func = func.with_(body=with_ops(func.body, ops))
        return rewrite_tasks(
            func, lambda o: with_regions(o, lambda r: self._region(r, place, inside=False))
        )

    def _region(self, r: Region, place: Value | None, inside: bool) -> Region:
        b = Builder()
        for o in r.ops:
            b.loc, b.tasks = o.loc, o.tasks
            new = with_regions(
                o, lambda x: self._region(x, place, inside or not self.loops.isdisjoint(x.params))
            )
            for v in dict.fromkeys(o.operands):
                if inside and v in self.moves:
                    new = substitute_operands(new, {v: self._loaded(b, v, place)})
            b.append(new)
            if place is not None and self.value in o.results:
                smem.group_sync(b, scope="replica")
                smem.shared_store(b, _slot(b, place), self.value)
                smem.group_sync(b, scope="replica")
        return with_ops(r, b.ops)

    def _loaded(self, b: Builder, v: Value, place: Value | None) -> Value:
        env: Env = {}
        if self.load is not None:
            b.append(clone_op(self.load, env))
        else:
            assert place is not None
            layout = self.value.typed(Tile).layout
            hint = self.value.hint
            env[self.value] = smem.shared_load(b, _slot(b, place), layout=layout, hint=hint)
        for o in self.moves[v]:
            b.append(clone_op(o, env))
        return env[v]


def _slot(b: Builder, place: Value) -> Value:
    is_alone = place.typed(Shared).lead == (1,)
    mine = build.const(b, 0) if is_alone else task.replica_id(b)
    return smem.shared_slot(b, place, mine, hint="spilled")


def _spills(phase: Op, limit: int) -> list[_Spill]:
    """What to spill, the widest first."""
    (region,), (replicas,) = phase.regions, phase.attrs["replicas"]
    pressure, made = Pressure(region), definitions(region)
    loops: dict[Value, dict[Value, None]] = {}
    moves: dict[Value, dict[Value, tuple[Op, ...]]] = {}
    for loop in region.all_ops:
        if loop.kind is not control.for_ or not loop.regions[0].by_kind.get(tile.dot):
            continue
        (body,) = loop.regions
        fixed: set[Value] = set()
        read: dict[Value, dict[Value, tuple[Op, ...]]] = {}
        for v in free_values(body):
            fixed |= pressure.roots.get(v, frozenset())
            root, way = _root(v, made)
            if root in made and root in pressure.roots.get(root, ()):
                read.setdefault(root, {})[v] = way
        held = sum(map(part_of, fixed)) + pressure.peak(body)
        for root in sorted(read, key=part_of, reverse=True):
            if held <= limit:
                break
            held -= part_of(root)
            loops.setdefault(root, {})[body.params[0]] = None
            moves.setdefault(root, {}).update(read[root])
    found = []
    for v, bodies in loops.items():
        inside = frozenset(bodies)
        found.append(_Spill(v, inside, moves[v], _held_slot(made[v], inside, region), replicas))
    return sorted(found, key=lambda s: part_of(s.value), reverse=True)


def _root(v: Value, made: Mapping[Value, Op]) -> tuple[Value, tuple[Op, ...]]:
    """The tile whose elements a tile has, and the ops that make it of that."""
    way: list[Op] = []
    while (o := made.get(v)) is not None and (source := moved(o)) is not None:
        if not isinstance(source.type, Tile):
            break
        way.insert(0, o)
        v = source
    return v, tuple(way)


def _held_slot(load: Op, loops: frozenset[Value], region: Region) -> Op | None:
    """The op, if it loads a slot that nobody gives back or writes before the loops are over."""
    made = definitions(region)
    slot = made.get(load.operands[0]) if load.kind is smem.shared_load else None
    if slot is None or slot.kind is not smem.shared_slot:
        return None
    index = set(slot.operands[1:])
    block = next(r for r in blocks(region) if load in r.ops)
    last = max(i for i, o in enumerate(block.ops) if _holds(o, loops))
    for o in (x for y in block.ops[block.ops.index(load) : last + 1] for x in y.all_ops):
        if o.kind is mbarrier.mbarrier_arrive and not index.isdisjoint(o.operands):
            return None
        reads = o.kind is smem.shared_load or o.kind in smem.PARTS
        if not reads and slot.operands[0] in {_allocation(v, made) for v in o.operands}:
            return None
    return load


def _holds(o: Op, loops: frozenset[Value]) -> bool:
    return any(not loops.isdisjoint(r.params) for x in o.all_ops for r in x.regions)


def _allocation(place: Value, made: Mapping[Value, Op]) -> Value:
    """What a slot, or a part of one, was allocated as."""
    while (o := made.get(place)) is not None and o.kind in smem.PARTS:
        place = o.operands[0]
    return place
