"""What an agent issues and waits for: copies by TMA, and products by wgmma (by cp.async: steps_copies.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from warploom.ir.core import Op, Type
from warploom.ir.ops import mma, regs, smem, tma
from warploom.ir.types import InFlight, TensorMap, Tile
from warploom.sim.accesses import (
    need_written,
    reach,
    read,
    read_map,
    touch_by_bulk,
    write,
    write_map,
)
from warploom.sim.agent import Agent, Block, Steps
from warploom.sim.barriers import MBarrier
from warploom.sim.cluster import PeerAccess
from warploom.sim.engines import BulkStores, Fresh, Product, WgmmaQueue
from warploom.sim.memory import MapCell, ViewValue
from warploom.sim.order import Array, Participant, described
from warploom.sim.outline import step
from warploom.sim.shared import LayoutError, Place
from warploom.sim.steps import results_of
from warploom.sim.steps_sync import ranks_of, same_barrier

# ---- TMA

_FACTS = (
    "the arguments break what the kernel was compiled for: compile a variant for them (compile_for derives "
    "what divides their strides), or pass arrays that keep it"
)


@step(tma.tensor_map)
def _tensor_map(a: Agent, o: Op, view: ViewValue) -> ViewValue:
    _check_view(a, o, view, o.result.typed(TensorMap))
    return view


@step(tma.map_alloc)
def _map_alloc(a: Agent, o: Op) -> MapCell:
    return MapCell()


@step(tma.map_write)
def _map_write(a: Agent, o: Op, cell: MapCell, view: ViewValue) -> None:
    a.need_solo(o, "every thread would write the descriptor", "put it inside elect")
    write_map(a, o)
    if not a.cta.is_skeleton:
        _check_view(a, o, view, o.operands[0].typed(TensorMap))
        cell.view = view


def _check_view(a: Agent, o: Op, view: ViewValue, kind: TensorMap) -> None:
    """Raises ProtocolError where no descriptor can say a view's strides."""
    inner, unit = kind.axes[kind.inner], kind.dtype.bytes
    if min(view.extents) <= 0:
        return
    for axis, (extent, stride) in enumerate(zip(view.extents, view.strides, strict=True)):
        if axis == inner and stride != 1 and extent > 1:
            what = f"{stride}, not 1"
        elif axis != inner and extent > 1 and stride * unit % 16:
            what = f"{stride * unit} bytes, no multiple of 16"
        elif stride <= 0 and o.kind is tma.map_write:
            what = f"{stride}, which is not positive"
        else:
            continue
        raise a.error(
            "tma-stride", f"axis {axis} of a tensor map has a stride of {what}", o, _FACTS
        )


@step(tma.tma_load)
def _tma_load(
    a: Agent,
    o: Op,
    map_: ViewValue | MapCell,
    dst: Place,
    barriers: list[MBarrier],
    index: Any,
    *offsets: Any,
) -> Steps:
    cta, b, party = a.cta, a.barrier(o, barriers, index), a.party(o)
    a.need_solo(o, "every thread would issue the copy", "put it inside elect")
    ranks = [cta.rank]
    if o.attrs.get("multicast"):
        *offsets, mask = offsets  # type: ignore[assignment]
        ranks = ranks_of(a, o, a.number(mask))
    at = a.offsets(offsets)
    _begins_whole(a, o, o.operands[0].type, at)
    stamp = a.rows[0].copy()
    end = a.transfer(o, dst.type.tile_bytes) + cta.cost.tma_latency
    for rank in ranks:
        _issue_load(
            a, o, _view_of(map_), dst.of_peer(rank), same_barrier(a, b, rank), party, at, stamp, end
        )
    a.released()
    yield None
    return ()


def _view_of(map_: ViewValue | MapCell) -> ViewValue:
    """The view that a copy is of."""
    view = map_.view if type(map_) is MapCell else map_
    return view  # type: ignore[return-value]  # None in a skeleton run, which asks for none


def _begins_whole(a: Agent, o: Op, kind: Type, at: list[int]) -> None:
    """A box begins at a whole unit of 16 bytes along the adjacent axis: the hardware ends other copies as an
    illegal instruction (docs/log/2026-11-21-operands-tma-cannot-load.md)."""
    assert isinstance(kind, TensorMap)
    if not a.cta.has_data:  # a skeleton run knows no offsets
        return
    axis, size = kind.axes[kind.inner], kind.dtype.bytes
    if at[axis] * size % 16:
        raise a.error(
            "tma-start",
            f"a TMA box begins at element {at[axis]} of axis {axis}, {at[axis] * size} bytes, no multiple "
            "of 16",
            o,
            "begin at a multiple, or copy by cp.async",
        )


def _issue_load(
    a: Agent,
    o: Op,
    view: ViewValue,
    dst: Place,
    b: MBarrier,
    party: Participant,
    at: list[int],
    stamp: Array,
    end: float,
) -> None:
    """One copy into one CTA, that of `dst` and `b`."""
    program = a.cta.program
    cta = program.ctas[b.rank]
    if cta is not a.cta:
        reach(a, cta, o, described(o, dst), b.made)
        stamp = program.relaxed(stamp)
    if cta.is_tracked:
        b.bind(party, a.rows, "issues a copy that completes")
    a.log(o, b.name, b.phases)
    phase, size = b.phases, dst.type.tile_bytes
    read_map(a, o, b.proof[0], np.array([phase + 1]))
    write(a, cta, o, dst, b.proof[0], np.array([phase + 1]), True, b.proof[1])
    b.in_flight += size
    cta.loads[b] = (phase, party)

    def run() -> None:
        if cta is not a.cta:
            cta.still_runs(PeerAccess(party, described(o, dst)))
        if cta.has_data:
            data = cta.memory.load_box(dst.type.dtype, view, at, _box(o), o.loc)
            cta.shared.write(dst.addresses, data.reshape(dst.type.shape), dst.type.dtype, True)
        b.land(party, size, phase, stamp, end)

    cta.engine.issue("tma_load", run, end, a.own_lane("tma_load"))


def _box(o: Op) -> tuple[int, ...]:
    """The box that a TMA copy moves, with all axes of the view."""
    kind = o.operands[0].typed(TensorMap)
    return kind.thick


def whole_units(view: ViewValue, kind: Type) -> ViewValue:
    """What a TMA store into the view can reach: rows end at the next multiple of 16 bytes."""
    assert isinstance(kind, TensorMap)
    axis, unit = kind.axes[kind.inner], max(1, 16 // kind.dtype.bytes)
    extents = list(view.extents)
    extents[axis] = -(-extents[axis] // unit) * unit
    return replace(view, extents=tuple(extents))


@step(tma.tma_store)
def _tma_store(a: Agent, o: Op, view: ViewValue, src: Place, *offsets: Any) -> Steps:
    cta, bulk = a.cta, a.bulk
    a.need_solo(o, "every thread would issue the copy", "put it inside elect")
    group, at = bulk.committed + 1, a.offsets(offsets)
    _begins_whole(a, o, o.operands[0].type, at)
    read(a, cta, o, src, np.array([a.bulk_order]), np.array([group]), True)
    touch_by_bulk(a, o, view, at, group)
    bulk.open += 1
    bulk.last_op = o
    for left in (bulk.unread, bulk.unwritten):
        left[group] = left.get(group, 0) + 1
    end = a.transfer(o, src.type.tile_bytes)
    read_by, written_by = end + cta.cost.store_read, end + cta.cost.store_written
    bulk.ends[group] = (
        max(read_by, bulk.ends.get(group, (0.0, 0.0))[0]),
        max(written_by, bulk.ends.get(group, (0.0, 0.0))[1]),
    )

    def reads() -> None:
        data = None
        if cta.has_data:
            addresses = src.addresses
            need_written(a, o, addresses, src)
            data = cta.shared.read(addresses, src.type.dtype, True)
        bulk.one_less(bulk.unread, group)

        def writes() -> None:
            if data is not None:
                box, fn = data.reshape(_box(o)), o.attrs.get("reduce")
                reached = whole_units(view, o.operands[0].type)
                if fn is None:
                    cta.memory.store_box(reached, box, at, o.loc)
                else:
                    cta.memory.reduce_box(fn, reached, box, at, o.loc)
            bulk.one_less(bulk.unwritten, group)

        cta.engine.issue("tma_store", writes, written_by, a.own_lane("tma_store"))

    cta.engine.issue("tma_store", reads, read_by, a.own_lane("tma_store"))
    yield None
    return ()


@step(tma.tma_store_commit)
def _tma_store_commit(a: Agent, o: Op) -> None:
    a.need_solo(o, "bulk groups belong to the thread that issued the stores")
    a.bulk.committed += 1
    a.bulk.open = 0
    a.bulk.last_op = o


@step(tma.tma_store_wait)
def _tma_store_wait(a: Agent, o: Op) -> Steps:
    a.need_solo(o, "bulk groups belong to the thread that issued the stores")
    bulk = a.bulk
    group = max(0, bulk.committed - o.attrs["pending"])
    only_read = bool(o.attrs.get("read", True))
    left = bulk.unread if only_read else bulk.unwritten
    yield from a.wait_until(
        Block(
            lambda: BulkStores.over(left, group),
            o,
            f"its bulk group {group}",
            lambda: "the stores are not over",
        )
    )
    over = [times[0 if only_read else 1] for g, times in bulk.ends.items() if g <= group]
    a.stall(max(over, default=a.time), o, "stores")
    bulk.known = max(bulk.known, group)
    a.rows[0, a.bulk_order] = bulk.known
    if not only_read:
        a.rows[0, a.written_order] = bulk.known
    return ()


# ---- wgmma


@step(mma.in_flight)
def _in_flight(a: Agent, o: Op, value: Any) -> Fresh:
    return Fresh(value, a.count)


@step(mma.no_acc)
def _no_acc(a: Agent, o: Op) -> Fresh:
    return Fresh(None, a.count)


@step(regs.hold)
def _hold(a: Agent, o: Op, *values: Any) -> None:
    """Nothing: it is about the machine code."""


@step(smem.stamp)
def _stamp(a: Agent, o: Op, *values: Any) -> None:
    """Nothing: it measures."""


@step(mma.wgmma_fence)
def _wgmma_fence(a: Agent, o: Op) -> None:
    a.wgmma.last_fence = a.count


@step(mma.wgmma)
def _wgmma(a: Agent, o: Op, x: Any, b: Place, acc: Fresh | Product, use_acc: Any) -> Steps:
    cta, queue = a.cta, a.wgmma
    if a.is_solo or a.warps != cta.target.warp_group:
        raise a.error("wgmma-group", "wgmma is issued by one whole warp group", o)
    touched = [acc.born] if isinstance(acc, Fresh) else []
    if not isinstance(x, Place):
        touched.append(a.made.get(o.operands[0], 0))
        if mma.packs(o) and not o.attrs.get("fenced"):
            touched.append(a.count)  # the words that the operand goes to
    if queue.last_fence < max(touched, default=queue.last_fence):
        raise a.error(
            "wgmma-fence",
            "wgmma on registers that were touched after the last wgmma_fence",
            o,
            "call self.wgmma.fence() between the two",
        )
    group = queue.committed + 1
    epochs = np.array([group])
    try:
        for place, mn_axis in ((x, 0), (b, 1)):
            if not isinstance(place, Place):
                continue
            if not cta.is_tracked:
                place.operand(mn_axis)  # else `read` asks for it
            read(a, cta, o, place, a.queue_order, epochs, True, mn_axis)
    except LayoutError as e:
        raise a.error("wgmma-layout", str(e), o) from None
    product = Product(o, x, b, acc, bool(use_acc), group)
    queue.unfinished.append(product)
    queue.last_op = o
    k, n = b.type.shape
    m = x.type.shape[0] if isinstance(x, Place) else _rows(o)
    product.end = a.multiply(o, (m, n, k), b.type.dtype.bits)
    cta.engine.issue("wgmma", lambda: _perform(a, product), product.end, a.lane("wgmma"))
    yield None
    return product


def _rows(o: Op) -> int:
    kind = o.operands[0].typed(Tile)
    return kind.shape[0]


def _perform(a: Agent, p: Product) -> None:
    if a.cta.has_data:
        left = _operand(a, p.op, p.a, 0) if isinstance(p.a, Place) else p.a
        start = None
        if p.use_acc:
            start = _garbage(a, p.op.result.type) if p.acc.value is None else p.acc.value
        p.value = a.cta.numerics.multiply(left, _operand(a, p.op, p.b, 1).T, start)
    p.is_done = True
    a.wgmma.unfinished.remove(p)


def _garbage(a: Agent, kind: Type) -> Array:
    """An accumulator that nothing wrote."""
    t = kind.tile if isinstance(kind, InFlight) else kind
    assert isinstance(t, Tile)
    return np.full(t.shape, a.cta.numerics.garbage(t.dtype))


def _operand(a: Agent, o: Op, s: Place, mn_axis: int) -> Any:
    at = s.operand(mn_axis)
    need_written(a, o, at, s)
    return a.cta.shared.read(at, s.type.dtype, True)


@step(mma.wgmma_commit)
def _wgmma_commit(a: Agent, o: Op) -> None:
    a.wgmma.committed += 1
    a.wgmma.last_op = o


def _group_block(o: Op, queue: WgmmaQueue, group: int) -> Block:
    return Block(
        lambda: queue.finished(group),
        o,
        f"its wgmma group {group}",
        lambda: "the tensor core is not done",
    )


@step(mma.wgmma_wait)
def _wgmma_wait(a: Agent, o: Op, *accs: Fresh | Product) -> Steps:
    queue = a.wgmma
    group = max(0, queue.committed - o.attrs["pending"])
    if queue.finished(group):
        yield None  # as it will stay
        end = a.time
    else:
        end = max(p.end for p in queue.unfinished if p.group <= group)
        yield from a.wait_until(_group_block(o, queue, group))
    a.stall(end, o, "wgmma")
    queue.known = max(queue.known, group)
    a.queues[:] = queue.known
    values = []
    for v, acc in zip(o.results, accs, strict=True):
        if isinstance(acc, Product) and acc.group > group:
            raise a.error(
                "in-flight",
                f"the accumulator of wgmma group {acc.group} is read, the wait covers groups up to {group}",
                o,
                "commit the wgmma, and wait with fewer groups pending",
            )
        if acc.value is None and a.cta.has_data:
            values.append(_garbage(a, v.type))
        else:
            values.append(acc.value)
    return results_of(o, tuple(values))
