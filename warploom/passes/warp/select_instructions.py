"""Dots as wgmma or fma, stores of dots' results by TMA: the part of partition_code that knows instructions.

dot:     wgmma_fence, wgmma, wgmma_commit, wgmma_wait {pending=0}.  a and b are read in place from their
         slots; an a computed in registers stays there, a b computed in registers goes to shared memory.
         Or fma, which reads both in place; what is computed in registers goes to shared memory.
store:   chunk by chunk: registers → staging, fence_async, wait until the next chunk's staging was read,
         one barrier (which says both), tma_store by one thread.  The last stores are waited for at the
         end of the task; the next tile's loads run meanwhile.

`expand_pipeline` afterwards keeps dots in flight across iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warploom.errors import InternalError
from warploom.ir import build, engines
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, mma, smem, task, tile, tma
from warploom.ir.types import InFlight, Shared, Tile, dtype_of, f32, i1, shape_of
from warploom.layout.shared import swizzle_for
from warploom.schedule import rings
from warploom.schedule.model import StorePlan
from warploom.target import MatrixUnit


def in_registers(b: Builder, o: Op, unit: MatrixUnit, operands: Iterable[Value]) -> Value:
    """Dot o of these operands by a unit that reads registers and completes in order."""
    done: Value = tile.dot(b, *operands, unit=unit.instruction, hint=o.result.hint)
    b.ops[-1] = b.ops[-1].with_(id=o.id)
    return done


def by_threads(b: Builder, o: Op, operands: Iterable[Value]) -> Value:
    """Dot o of these operands, two of them in shared memory, by the threads' own multiply-adds."""
    done: Value = mma.fma(b, *operands, hint=o.result.hint)
    b.ops[-1] = b.ops[-1].with_(id=o.id)
    return done


def readable(t: Shared, is_a: bool) -> bool:
    """Can wgmma read its left (right) operand in place?  Swizzled, and K-major but for 16 bits."""
    k_axis = 1 if is_a else 0
    return bool(t.swizzle) and (t.inner == k_axis or not mma.only_k_major(t.dtype))


def dot(
    b: Builder, o: Op, a: Value, right: Value, acc: Value, zero: bool, columns: int | None = None
) -> Value:
    """acc + a @ right, waited for.  a: Shared or Tile; right: Shared; zero: acc is known to be zero.
    columns: that a promoting dot computes at a time."""
    if o.attrs.get("max_imprecise"):
        return _promoted(b, a, right, acc, rings.promotion_step(o), columns)
    if zero:
        start = mma.no_acc(b, shape=shape_of(acc.type), dtype=dtype_of(acc.type))
        return _issued(b, a, right, start, build.const(b, False, i1), o.result.hint, o.id)
    start = mma.in_flight(b, acc)
    return _issued(b, a, right, start, build.const(b, True, i1), o.result.hint, o.id)


def _issued(
    b: Builder, a: Value, right: Value, acc: Value, use: Value, hint: str, id: str = ""
) -> Value:
    assert isinstance(acc.type, InFlight)
    engines.OPENS["products"](b)
    flight = mma.wgmma(b, a, right, acc, use, hint=hint)
    b.ops[-1] = b.ops[-1].with_(id=id)
    engines.CLOSES["products"](b)
    return engines.WAITS["products"](b, flight, pending=0, hint=hint)


def _promoted(
    b: Builder, a: Value, right: Value, acc: Value, step: int, columns: int | None
) -> Value:
    """fp8: wgmma keeps fewer bits than float32, so partial sums over `step` of K are added to acc by ordinary
    additions, a piece of the columns at a time.  Each is waited for: the tensor core is another group's
    meanwhile."""
    assert isinstance(right.type, Shared) and isinstance(a.type, (Shared, Tile))
    m, k = a.type.shape
    width = columns or right.type.shape[1]
    pieces = right.type.shape[1] // width
    totals = [acc]
    if pieces > 1:
        totals = [
            tile.slice_tile(b, acc, offset=(0, j * width), shape=(m, width), hint=acc.hint)
            for j in range(pieces)
        ]
    zero = build.const(b, 0)
    for i in range(k // step):
        at = build.const(b, i)
        part_a = a
        if step < k and isinstance(a.type, Tile):
            part_a = tile.slice_tile(b, a, offset=(0, i * step), shape=(m, step), hint=a.hint)
        elif step < k:
            part_a = smem.shared_slice(b, a, zero, at, shape=(m, step))
        for j in range(pieces):
            part_b = right
            if step < k or pieces > 1:
                column = build.const(b, j)
                part_b = smem.shared_slice(b, right, at, column, shape=(step, width))
            start = mma.no_acc(b, shape=(m, width), dtype=f32)
            part = _issued(b, part_a, part_b, start, build.const(b, False, i1), "part")
            totals[j] = arith.add(b, totals[j], part, hint=acc.hint)
    return totals[0] if pieces == 1 else tile.concat(b, *totals, axis=1, hint=acc.hint)


@dataclass(frozen=True, eq=False)
class Staging:
    """Shared memory that a task's replicas write before the async proxy reads it: one part each."""

    place: Value
    buffers: int
    chunk: tuple[int, ...] = ()  # of a store


def operand_staging(
    top: Builder, o: Op, axis: int, unit: MatrixUnit, replicas: int, adjacent: int | None
) -> Staging:
    """Room for a dot's left (axis 0) or right (axis 1) operand that is computed in registers, as its unit
    reads it.  adjacent: the axis along which threads hold elements side by side, where one is known: a warp
    group reads right operands along either."""
    t = o.operands[axis].typed(Tile)
    rows, columns = t.shape[-2:]
    inner = len(t.shape) - 1
    swizzle = swizzle_for(columns * t.dtype.bytes, rows)
    is_along_k = adjacent == 0 and len(t.shape) == 2
    if unit.is_async and (is_along_k or mma.only_k_major(t.dtype) or columns * t.dtype.bytes % 32):
        inner, swizzle = 0, swizzle_for(rings.promotion_step(o) * t.dtype.bytes, columns)
    if len(t.shape) > 2 and rows % 8:
        swizzle = 0  # as rings.item_layout
    side = ("left", "operand")[axis]
    name, hint = f"{side}_{o.id.replace('/', '_')}", f"{side}_smem"
    return Staging(build.slots(top, t, (replicas,), name, hint, inner, swizzle), 1)


def stage_operands(
    b: Builder, staged: Iterable[tuple[Staging, Value]], replica: Value, unit: MatrixUnit
) -> list[Value]:
    """Writes operands to shared memory: after the readers of those before, before the unit reads."""
    slots = [
        (smem.shared_slot(b, s.place, replica, hint=s.place.hint.removesuffix("_smem")), value)
        for s, value in staged
    ]
    if slots:
        smem.group_sync(b, scope="replica")
        for place, value in slots:
            smem.shared_store(b, place, value)
        if unit.is_async:
            smem.fence_async(b)
        smem.group_sync(b, scope="replica")
    return [place for place, _ in slots]


def store_staging(top: Builder, o: Op, plan: StorePlan, inner: int, replicas: int) -> Staging:
    """Room for a store's chunks."""
    t = o.operands[1].typed(Tile)
    hint = o.operands[0].hint.removesuffix("_view") or "out"
    rows, *columns = plan.chunk
    lead = (1,) if plan.across else (replicas, plan.buffers)
    chunk = Tile((replicas * rows if plan.across else rows, *columns), t.dtype)
    swizzle = swizzle_for(plan.chunk[inner] * t.dtype.bytes, plan.chunk[1 - inner])
    place = build.slots(top, chunk, lead, plan.staging, f"{hint}_smem", inner, swizzle)
    return Staging(place, plan.buffers, plan.chunk)


def store(
    b: Builder,
    value: Value,
    offsets: tuple[Value, ...],
    tensor_map: Value,
    staging: Staging,
    replica: Value,
    policy: Mapping[str, Any],
) -> None:
    """A tile through its staging chunks, in rounds of as many as there are buffers.

    With n > 2 buffers, the wait in chunk j leaves n - 2 of the latest stores unread, so that the buffer of
    chunk j + 1 (last used by chunk j + 1 - n) is free when the barrier is over.  Chunks of one store use
    the buffers in turn and are a multiple of them, so this holds across tiles as well.  With fewer, that
    wait would be for the store just issued: a round is filled together, after a wait for the one before.
    """
    shape = shape_of(value.type)
    rows, columns = staging.chunk
    if shape[0] % rows or shape[1] % columns:
        raise InternalError(f"chunks of {rows}x{columns} do not cover {value.type}")
    corners = [(r, c) for r in range(0, shape[0], rows) for c in range(0, shape[1], columns)]
    n = staging.buffers

    def fill(corner: tuple[int, int], place: Value) -> None:
        part = value
        if len(corners) > 1:
            part = tile.slice_tile(b, value, offset=corner, shape=(rows, columns), hint="chunk")
        smem.shared_store(b, place, part)

    def issue(corner: tuple[int, int], place: Value) -> None:
        shifts = zip(offsets, (*(0,) * (len(offsets) - 2), *corner), strict=True)
        at = [arith.add(b, first, build.const(b, c)) if c else first for first, c in shifts]

        def body(inner: Builder) -> None:
            tma.tma_store(inner, tensor_map, place, *at, **policy)
            engines.CLOSES["stores"](inner)

        build.elect(b, body)

    if n > 2:
        for j, corner in enumerate(corners):
            fill(corner, place := _part(b, staging, replica, j % n))
            smem.fence_async(b)
            wait_stores(b, n - 2)
            smem.group_sync(b, scope="replica")
            issue(corner, place)
        return
    for first in range(0, len(corners), n):
        some = enumerate(corners[first : first + n])
        filled = [(corner, _part(b, staging, replica, j)) for j, corner in some]
        wait_stores(b, 0)
        smem.group_sync(b, scope="replica")
        for corner, place in filled:
            fill(corner, place)
        smem.fence_async(b)
        smem.group_sync(b, scope="replica")
        for corner, place in filled:
            issue(corner, place)


def _part(b: Builder, staging: Staging, replica: Value, j: int) -> Value:
    """Buffer j of a replica's staging."""
    number = build.const(b, j)
    slots = staging.place.type
    if isinstance(slots, Shared) and len(slots.lead) == 1:  # one box, whose rows the replicas share
        box = smem.shared_slot(b, staging.place, number, hint="staging")
        return smem.shared_slice(b, box, replica, number, shape=staging.chunk, hint="staging")
    return smem.shared_slot(b, staging.place, replica, number, hint="staging")


def wait_stores(b: Builder, pending: int = 0, read: bool = True) -> None:
    """All but the last `pending` stores that this replica has issued have read what they store: shared memory
    must outlive that.  read=False: they are written, for the thread that issued them to tell (PTX ISA,
    "cp.async.bulk.wait_group"; their completion is a proxy fence)."""

    def body(inner: Builder) -> None:
        engines.WAITS["stores"](inner, pending=pending, read=read)

    build.elect(b, body)


def waits_for_stores(o: Op | None) -> bool:
    """Does o do nothing but wait for stores, as for staging that they still read?"""
    ops = o.regions[0].ops[:-1] if o is not None and o.kind is task.elect else ()
    return bool(ops) and all(engines.WAITED.get(x.kind) == "stores" for x in ops)
