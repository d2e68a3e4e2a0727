"""Epilogue warp: a task of its own issues the TMA stores of a loop over tiles and waits for them.

Who computes a tile does neither.

Order: after ping_pong_tiles; the loop over tiles has its final form.
Changes: persistent products, gated pairs, fp8 and promoted products of the library.

before (a chunk, in the consumer's loop):      after, in the consumer:
  shared_store(%staging, %chunk)                 mbarrier_wait(%free, …)
  fence_async()                                  shared_store(%staging, %chunk)
  elect { tma_store_wait() {pending=2} }         fence_async()
  group_sync()                                   mbarrier_arrive(%filled, …) by each warp
  elect { tma_store(%map, %staging, …)         and in task store, one thread for each replica:
          tma_store_commit() }                   the loop, with what the offsets are computed from
                                                   mbarrier_wait(%filled, …)
                                                   tma_store(…);  tma_store_commit()
                                                   tma_store_wait() {pending=1}: the chunk before was read
                                                   mbarrier_arrive(%free, …)

`StorePlan.by_task` names the stores, the schedule's tasks "store…" are where they go.  Chunks use their
buffers in turn and are a multiple of them, so a buffer's phase flips with each round; both tasks carry it.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import InternalError
from warploom.ir import build, engines
from warploom.ir.analysis import backward_slice, sources
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, mbarrier, smem, task
from warploom.ir.rewrite import clone_region
from warploom.ir.types import Scalar, Shared, i32
from warploom.passes.warp.backward_slices import Slice
from warploom.passes.warp.select_instructions import waits_for_stores
from warploom.schedule.model import Schedule


def specialize_stores(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    names = [f"store_{s.op.replace('/', '_')}" for s in schedule.stores if s.by_task]
    top = Builder()
    for o in func.body.ops:
        if o.kind is task.tasks:
            made = {x.attrs["name"]: x.result for x in top.ops if x.kind is smem.shared_alloc}
            with top.at(o):
                o = _tasks(o, [made[n] for n in names], schedule, top)
        top.append(o)
    return func.with_(body=top.region(func.body.params))


@dataclass(frozen=True, eq=False)
class _Store:
    """One store: its staging (replica, buffer), a pair of barriers for each, its chunks' tma_stores in order,
    and the part of the loop's body that is about it."""

    place: Value
    filled: Value
    free: Value
    chunks: tuple[Op, ...]
    span: range

    @property
    def buffers(self) -> int:
        return self.place.typed(Shared).lead[1]

    def flips(self, b: Builder, phase: Value, chunk: int) -> Value:
        """The phase of a chunk's buffer, from that of the tile's first chunk."""
        if chunk // self.buffers % 2 == 0:
            return phase
        return arith.xor(b, phase, build.const(b, 1))


def _tasks(o: Op, places: list[Value], schedule: Schedule, top: Builder) -> Op:
    names = o.attrs["names"]
    consumer = schedule.tasks[0]
    at = names.index(consumer.name)
    region = o.regions[at]
    loop = next(
        (x for x in region.ops if x.kind is control.for_ and _spans(x.regions[0], places[0])), None
    )
    if loop is None:
        raise InternalError("specialize_stores: the consumer has no loop over tiles that stores")
    allocs = (smem.shared_alloc, mbarrier.mbarrier_alloc)
    names_taken = {x.attrs["name"] for x in top.ops if x.kind in allocs}
    stores = [_declare(loop.regions[0], x, consumer.warps, names_taken, top) for x in places]
    regions = list(o.regions)
    regions[at] = _filling(region, loop, stores)
    tasks = [i for i, t in enumerate(schedule.tasks) if t.role == "store"]
    for replica, i in enumerate(tasks):
        regions[i] = _storing(region, loop, stores, replica)
    return o.with_(regions=tuple(regions))


def _spans(body: Region, place: Value) -> range | None:
    """Where in the body a staging is filled and stored."""
    mine = {x.result for x in body.ops if x.kind is smem.shared_slot and x.operands[0] is place}
    at = [
        i
        for i, x in enumerate(body.ops)
        if any(v in mine for y in x.all_ops for v in (*y.operands, *y.results))
    ]
    return range(at[0], at[-1] + 1) if at else None


def _declare(body: Region, place: Value, warps: int, names: set[str], top: Builder) -> _Store:
    span = _spans(body, place)
    if span is None or not isinstance(place.type, Shared):
        raise InternalError("specialize_stores: a store outside of the loop over tiles")
    chunks = tuple(
        x for i in span for x in body.ops[i].all_ops if engines.ISSUED.get(x.kind) == "stores"
    )
    n = place.type.lead[0] * place.type.lead[1]
    base = place.hint.removesuffix("_smem")  # two stores may have it from one array's kind
    filled = build.barriers(top, build.unique(f"{base}_filled", names), n, warps)
    free = build.barriers(top, build.unique(f"{base}_free", names), n, 1)
    return _Store(place, filled, free, chunks, span)


def _rounds(b: Builder, s: _Store, phase: Value) -> Value:
    """The phase after all chunks of a tile."""
    return s.flips(b, phase, len(s.chunks))


# ---- the consumer: fills


def _filling(region: Region, loop: Op, stores: list[_Store]) -> Region:
    replica = next((x.result for x in region.ops if x.kind is task.replica_id), None)
    b = Builder()
    for x in region.ops:
        if x is loop:
            with b.at(x):
                phases = [build.const(b, 0) for _ in stores]
                _fill_loop(b, x, stores, phases, replica)
        elif not waits_for_stores(x):  # the stores' task waits for them
            b.append(x)
    return b.region()


def _fill_loop(
    b: Builder, o: Op, stores: list[_Store], init: list[Value], replica: Value | None
) -> None:
    (body,) = o.regions
    phases = [Value(Scalar(i32), "stored") for _ in stores]
    inner = b.nested()
    done = {id(s): 0 for s in stores}
    for i, x in enumerate(body.ops[:-1]):
        s = next((s for s in stores if i in s.span), None)
        if s is None or not (x.kind in _PROTOCOL or x.kind is smem.shared_store):
            inner.append(x)
        elif x.kind is smem.shared_store:
            chunk = done[id(s)]
            done[id(s)] += 1
            number = build.const(inner, chunk % s.buffers)
            if replica is not None:
                first = arith.mul(inner, replica, build.const(inner, s.buffers))
                number = arith.add(inner, first, number)
            phase = s.flips(inner, phases[stores.index(s)], chunk)
            free = arith.xor(inner, phase, build.const(inner, 1))
            mbarrier.mbarrier_wait(inner, s.free, number, free)
            inner.append(x)
            smem.fence_async(inner)
            mbarrier.mbarrier_arrive(inner, s.filled, number, by="warp")
    ends = [_rounds(inner, s, p) for s, p in zip(stores, phases, strict=True)]
    control.yield_(inner, *body.yielded, *ends)
    b.append(
        o.with_(
            operands=(*o.operands, *init),
            results=(*o.results, *(Value(p.type, p.hint) for p in phases)),
            regions=(inner.region((*body.params, *phases)),),
        )
    )


_PROTOCOL = frozenset((smem.fence_async, smem.group_sync, task.elect))


# ---- the store's task


def _storing(region: Region, loop: Op, stores: list[_Store], replica: int) -> Region:
    (body,) = loop.regions
    roots = [v for s in stores for c in s.chunks for v in c.operands[2:]]
    needed = backward_slice((*roots, *loop.operands[:3]), sources(region))
    b = Builder(loop.loc, loop.tasks)
    cut = Slice(needed)
    for x in region.ops:
        if x.kind is task.replica_id:
            cut.env[x.result] = build.const(b, replica)
        elif x is loop:
            break
        else:
            cut.ops([x], b)
    kept = [i for i, p in enumerate(body.params[1:]) if p in needed]
    phases = [Value(Scalar(i32), "stored") for _ in stores]
    inner = b.nested()
    cut.ops(body.ops[:-1], inner)
    for s, phase in zip(stores, phases, strict=True):
        _send(inner, s, phase, replica, cut)
    ends = [_rounds(inner, s, p) for s, p in zip(stores, phases, strict=True)]
    control.yield_(inner, *(cut.get(body.yielded[i]) for i in kept), *ends)
    params = (body.params[0], *(body.params[1 + i] for i in kept), *phases)
    init = [cut.get(loop.operands[3 + i]) for i in kept]
    init += [build.const(b, 0) for _ in stores]
    build_loop = loop.with_(
        operands=(*(cut.get(v) for v in loop.operands[:3]), *init),
        results=tuple(Value(v.type, v.hint) for v in init),
        regions=(inner.region(params),),
    )
    b.append(build_loop)
    control.yield_(b)
    whole = Builder(loop.loc, loop.tasks)
    task.elect(whole, regions=(clone_region(b.region(), {}),))
    control.yield_(whole)
    return whole.region()


def _send(b: Builder, s: _Store, phase: Value, replica: int, cut: Slice) -> None:
    """Stores all chunks of a tile; a buffer is given back when the next one's store is on its way."""
    late = int(s.buffers > 1)

    def number(chunk: int) -> Value:
        return build.const(b, replica * s.buffers + chunk % s.buffers)

    def give_back(chunk: int, pending: int) -> None:
        engines.WAITS["stores"](b, pending=pending, read=True)
        mbarrier.mbarrier_arrive(b, s.free, number(chunk), by="warp")

    last = len(s.chunks) - 1
    for i, chunk in enumerate(s.chunks):
        mbarrier.mbarrier_wait(b, s.filled, number(i), s.flips(b, phase, i))
        buffer = build.const(b, i % s.buffers)
        place = smem.shared_slot(b, s.place, build.const(b, replica), buffer, hint="staging")
        operands = (chunk.operands[0], place, *(cut.get(v) for v in chunk.operands[2:]))
        b.append(chunk.with_(operands=operands))
        engines.CLOSES["stores"](b)
        if i >= late:
            give_back(i - late, late)
    if late:
        give_back(last, 0)
