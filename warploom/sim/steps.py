"""What an agent does for each op that is not pure: control flow, memory, and Hopper's machinery."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warploom.ir import format
from warploom.ir.core import Op, Type
from warploom.ir.ops import arith, cluster, control, hopper, task, tile
from warploom.ir.types import Shared, TensorMap, Tile, View, dtype_of
from warploom.sim.agent import Agent, Block, Steps, name_of
from warploom.sim.barriers import CountedBarrier, MBarrier, Party, Together, Waiter
from warploom.sim.cluster import Reach
from warploom.sim.engines import BulkStores, Fresh, Product
from warploom.sim.evaluate import multiply
from warploom.sim.memory import ViewValue
from warploom.sim.order import Array
from warploom.sim.outline import step
from warploom.sim.report import MemoryFault, SimError, StepLimit
from warploom.sim.shared import LayoutError, Place

if TYPE_CHECKING:
    from warploom.sim.machine import Cta

# ---- control flow


@step(control.for_)
def _for(a: Agent, o: Op, lo: Any, hi: Any, by: Any, *init: Any) -> Steps:
    (body,) = o.regions
    number = dtype_of(o.operands[0].type).numpy.type
    first, stop, stride = a.numbers((lo, hi, by))
    if stride <= 0:
        raise SimError("loop-step", f"a loop's step is positive, not {stride}", o.loc)
    carried = init
    name = body.params[0].hint or "i"
    turns = range(first, stop, stride)
    a.cta.report.trips.setdefault(o, set()).add(len(turns))
    for turn, i in enumerate(turns):
        a.loops.append((o, name, i, turn))
        a.env.update(zip(body.params, (number(i), *carried), strict=True))
        carried = yield from a.region(body)
        a.loops.pop()
    return _results(o, carried)


@step(control.while_)
def _while(a: Agent, o: Op, *init: Any) -> Steps:
    condition, body = o.regions
    carried = init
    turn = 0
    while True:
        a.env.update(zip(condition.params, carried, strict=True))
        go, *rest = yield from a.region(condition)
        if not a.number(go):
            a.cta.report.trips.setdefault(o, set()).add(turn)
            return _results(o, tuple(rest))
        a.loops.append((o, "turn", turn, turn))
        a.env.update(zip(body.params, rest, strict=True))
        carried = yield from a.region(body)
        a.loops.pop()
        turn += 1
        most = a.cta.engine.max_turns
        if most is not None and turn > most:
            raise StepLimit("step-limit", f"a loop runs for more than {most} turns", o.loc)


@step(control.if_)
def _if(a: Agent, o: Op, c: Any) -> Steps:
    then, other = o.regions
    return _results(o, (yield from a.region(then if a.number(c) else other)))


def _results(o: Op, values: tuple[Any, ...]) -> Any:
    return values[0] if len(o.results) == 1 else values


@step(control.assume)
def _assume(a: Agent, o: Op, c: Any) -> None:
    if not a.number(c):
        raise a.error("assume", "an assumption does not hold", o)


@step(control.device_assert)
def _device_assert(a: Agent, o: Op, c: Any) -> None:
    if c is not None and not np.all(c):
        raise a.error("device-assert", f"device_assert failed: {o.attrs['message']}", o)


@step(control.device_print)
def _device_print(a: Agent, o: Op, *values: Any) -> None:
    if a.cta.has_data:
        print(o.attrs["prefix"], a.label, *values)


@step(control.printf)
def _printf(a: Agent, o: Op, *values: Any) -> None:
    if not a.cta.has_data:
        return
    dtypes = [dtype_of(v.type) for v in o.operands]
    for each in zip(*map(np.ravel, np.broadcast_arrays(*values)), strict=True) if values else [()]:
        pairs = list(zip(each, dtypes, strict=True))
        print(format.render(o.attrs["format"], pairs), end="")


@step(arith.fast_div)
def _fast_div(a: Agent, o: Op, x: Any, y: Any) -> Any:
    if x is None or y is None:
        return None
    if x < 0 or y < 1:
        if not a.cta.has_data:  # numbers that the checker made up: a launch refuses such divisors
            return np.int32(0)
        raise a.error("fast-div", f"divides {x} by {y}", o, "fast_divmod takes x ≥ 0 and y ≥ 1")
    return np.int32(x // y)


@step(task.elect)
def _elect(a: Agent, o: Op) -> Steps:
    if a.is_solo:
        raise a.error("elect", "elect inside elect", o)
    a.is_solo = True
    yield from a.region(o.regions[0])
    a.is_solo = False
    return ()


# ---- the program and global memory


@step(tile.program_id)
def _program_id(a: Agent, o: Op) -> Any:
    return np.int32(a.cta.ids[o.attrs["axis"]])


@step(tile.num_programs)
def _num_programs(a: Agent, o: Op) -> Any:
    return np.int32(a.cta.grid[o.attrs["axis"]])


@step(cluster.cta_rank)
def _cta_rank(a: Agent, o: Op) -> Any:
    return np.int32(a.cta.rank)


@step(cluster.cta_id)
def _cta_id(a: Agent, o: Op) -> Any:
    x, y, _ = a.cta.program.shape
    below, size = ((1, x), (x, y), (x * y, 8))[o.attrs["axis"]]
    return np.int32(a.cta.rank // below % size)


@step(task.replica_id)
def _replica_id(a: Agent, o: Op) -> Any:
    return np.int32(a.replica)


@step(tile.make_view)
def _make_view(a: Agent, o: Op, base: Any, *sizes: Any) -> ViewValue:
    rank, numbers = len(sizes) // 2, a.numbers(sizes)
    return ViewValue(int(base), tuple(numbers[:rank]), tuple(numbers[rank:]))


def _skips(a: Agent, o: Op, *operands: Any) -> bool:
    """A skeleton run leaves tiles alone."""
    a.time += a.cta.cost.tma_latency
    if a.cta.has_data:
        return False
    return any(isinstance(v.type, Tile) for v in (*o.operands, *o.results)) or any(
        x is None for x in operands
    )


@step(tile.load)
def _load(a: Agent, o: Op, p: Any, mask: Any = None, other: Any = None) -> Any:
    if _skips(a, o, p):
        return None
    a.touch(o, "read", p)
    _check_run(a, o, p, mask, o.attrs.get("run"))
    return a.cta.memory.load(dtype_of(o.result.type), p, mask, other, o.loc)


def _check_run(a: Agent, o: Op, p: Any, mask: Any, run: tuple[int, int] | None) -> None:
    """The elements that are promised to be adjacent, aligned and masked alike are (pointers count elements
    here, of buffers that start at 0)."""
    if not run:
        return
    axis, n = run
    on = np.ones(p.shape, bool) if mask is None else mask
    groups, masks = (np.moveaxis(x, axis, -1).reshape(-1, n) for x in (p, on))
    wrong = (groups[:, :1] % n != 0) | (groups != groups[:, :1] + np.arange(n))
    if np.any(wrong & masks) or np.any(masks != masks[:, :1]):
        raise a.error("run", f"its elements don't come in runs of {n} along axis {axis}", o)


@step(tile.store)
def _store(a: Agent, o: Op, p: Any, value: Any, mask: Any = None) -> None:
    if not _skips(a, o, p, value):
        a.touch(o, "write", p)
        _check_run(a, o, p, mask, o.attrs.get("run"))
        a.cta.memory.store(p, value, mask, o.loc)


@step(tile.atomic)
def _atomic(a: Agent, o: Op, p: Any, value: Any, rest: Any = None) -> Any:
    if _skips(a, o, p, value):
        return None
    return _atomically(a, o, p, value, rest)


def _atomically(a: Agent, o: Op, p: Any, value: Any, rest: Any) -> Steps:
    yield None  # another agent's may come first
    a.touch(o, "write", p)
    if o.attrs.get("run"):
        _check_run(a, o, p, rest, o.attrs["run"])
    return a.cta.memory.atomic(o.attrs["fn"], p, value, rest, o.loc)


@step(tile.load_box)
def _load_box(a: Agent, o: Op, view: ViewValue, *offsets: Any) -> Any:
    if _skips(a, o):
        return None
    kind = o.result.type
    assert isinstance(kind, Tile)
    return a.cta.memory.load_box(kind.dtype, view, a.numbers(offsets), kind.shape, o.loc)


@step(tile.store_box)
def _store_box(a: Agent, o: Op, view: ViewValue, value: Any, *offsets: Any) -> None:
    if not _skips(a, o):
        a.cta.memory.store_box(view, value, a.numbers(offsets), o.loc)


# ---- declarations


@step(hopper.tensor_map)
def _tensor_map(a: Agent, o: Op, view: ViewValue) -> ViewValue:
    kind = o.result.type
    assert isinstance(kind, TensorMap)
    size = kind.dtype.bytes
    if 0 not in view.extents:
        inner = kind.axes[kind.inner]
        for axis, (extent, stride) in enumerate(zip(view.extents, view.strides, strict=True)):
            if axis == inner and stride != 1 and extent > 1:
                raise a.error(
                    "tma-stride", f"axis {axis} of a tensor map has stride {stride}, not 1", o
                )
            if axis != inner and extent > 1 and stride * size % 16:
                raise a.error(
                    "tma-stride",
                    f"axis {axis} of a tensor map has a stride of {stride * size} bytes, no multiple of 16",
                    o,
                )
    return view


@step(hopper.shared_alloc)
def _shared_alloc(a: Agent, o: Op) -> Place:
    place = a.cta.outline.place(o.attrs["name"])
    return place.of_peer(a.cta.rank) if a.cta.rank else place


@step(hopper.mbarrier_alloc)
def _mbarrier_alloc(a: Agent, o: Op) -> list[MBarrier]:
    return a.cta.arrays[o.attrs["name"]]


# ---- shared memory


def _type(o: Op) -> Shared:
    kind = o.result.type
    assert isinstance(kind, Shared)
    return kind


@step(hopper.shared_slot)
def _shared_slot(a: Agent, o: Op, s: Place, *index: Any) -> Place:
    at = a.numbers(index)
    return a.place(o, lambda: s.slot(at))


@step(hopper.shared_slice)
def _shared_slice(a: Agent, o: Op, s: Place, *block: Any) -> Place:
    at = a.numbers(block)
    return a.place(o, lambda: s.part(at, _type(o)))


@step(hopper.shared_transpose)
def _shared_transpose(a: Agent, o: Op, s: Place) -> Place:
    return s.permuted(o.attrs["perm"], _type(o))


@step(cluster.peer)
def _peer(a: Agent, o: Op, x: Any, rank: Any) -> Any:
    ctas, r = a.cta.program.ctas, a.number(rank)
    if not 0 <= r < len(ctas):
        raise a.error("cluster-rank", f"CTA {r} of a cluster of {len(ctas)}", o)
    if isinstance(x, Place):
        return x.of_peer(r)
    return ctas[r].arrays[x[0].made.attrs["name"]]


def _cta_of(a: Agent, o: Op, s: Place) -> Cta:
    """The CTA that a place is in, after the check that it can be reached."""
    there = a.cta.program.ctas[s.rank]
    if there is not a.cta:
        there.reach(a, o, _what(o, s), None)
        proof = a.access_order[: len(a.rows)], a.epochs()
        there.reached[a, o] = Reach(a.party(o), _what(o, s), (proof,))
    return there


def _what(o: Op, s: Place) -> str:
    part = f" from {s.start}" if any(s.start) else ""
    return f"{o.kind.name} of {s.name}{part}"


@step(hopper.shared_load)
def _shared_load(a: Agent, o: Op, s: Place) -> Any:
    cta = _cta_of(a, o, s)
    cta.read(a, o, _what(o, s), s, a.access_order[: len(a.rows)], a.epochs(), False)
    a.spend("shared", s.type.tile_bytes / cta.cost.shared_bytes, name_of(o))
    if not cta.has_data:
        return None
    at = s.addresses
    _need_written(a, o, at, s)
    return cta.shared.read(at, s.type.dtype, False)


def _need_written(a: Agent, o: Op, at: Array, s: Place) -> None:
    if not a.cta.program.ctas[s.rank].shared.is_written(at):
        raise MemoryFault(
            "uninitialised", f"{a.who}: {_what(o, s)} reads bytes that nothing wrote", o.loc
        )


@step(hopper.shared_store)
def _shared_store(a: Agent, o: Op, s: Place, value: Any) -> None:
    cta = _cta_of(a, o, s)
    cta.write(a, o, _what(o, s), s, a.access_order[: len(a.rows)], a.epochs(), False, True)
    a.spend("shared", s.type.tile_bytes / cta.cost.shared_bytes, name_of(o))
    if not cta.has_data:
        return
    at, n = s.addresses, len(a.rows)
    for w in range(n):  # the warps share the rows; which has which does not matter
        part = slice(w * at.shape[0] // n, (w + 1) * at.shape[0] // n)
        a.lag(w, lambda part=part: cta.shared.write(at[part], value[part], s.type.dtype, False))  # type: ignore[misc]


@step(hopper.shared_get)
def _shared_get(a: Agent, o: Op, s: Place) -> Any:
    cta = _cta_of(a, o, s)
    cta.read(a, o, _what(o, s), s, a.access_order[: len(a.rows)], a.epochs(), False)
    _need_written(a, o, s.addresses, s)
    return cta.shared.read(s.addresses, s.type.dtype, False).flat[0]


@step(hopper.shared_put)
def _shared_put(a: Agent, o: Op, s: Place, value: Any) -> None:
    """Written at once, in skeleton runs too: control may depend on it."""
    cta = _cta_of(a, o, s)
    cta.write(a, o, _what(o, s), s, a.access_order[: len(a.rows)], a.epochs(), False, True)
    number = np.full(s.addresses.shape, value, s.type.dtype.numpy)
    cta.shared.write(s.addresses, number, s.type.dtype, False)


@step(hopper.fence_async)
def _fence_async(a: Agent, o: Op) -> None:
    if o.attrs.get("space") == "global":  # races there are not looked for
        return
    rows, half = a.rows, a.cta.width // 2
    np.maximum(rows[:, half:], rows[:, :half], out=rows[:, half:])
    for w in range(len(rows) if a.cta.has_data else 0):
        for cta in a.cta.program.ctas:
            a.lag(w, cta.shared.fence)
    a.time += a.cta.cost.sync


# ---- barriers


@step(hopper.group_sync)
def _group_sync(a: Agent, o: Op) -> Steps:
    if a.is_solo:
        raise a.error("sync-in-elect", "one thread can't pass a barrier of its whole replica", o)
    yield from a.settle(o)
    scope = o.attrs["scope"]
    if scope == "replica" or (scope == "task" and a.replicas == 1):
        a.clock[:] = a.clock.max(axis=0)
        a.released()
        a.time += a.cta.cost.barrier
        return ()
    barrier = a.cta.sync_barrier(a.name if scope == "task" else None)
    return (yield from _counted(a, o, barrier, a.cta.sync_threads(a, scope), True))


@step(hopper.named_barrier)
def _named_barrier(a: Agent, o: Op, index: Any = 0) -> Steps:
    if a.is_solo:
        raise a.error("sync-in-elect", "a named barrier counts whole warps", o)
    yield from a.settle(o)
    which = a.number(index)
    if not 0 <= which < o.attrs.get("n", 1):
        raise a.error("barrier-index", f"named barrier {which} of {o.attrs.get('n', 1)}", o)
    barrier = a.cta.named_barriers[o.attrs["id"] + which]
    return (yield from _counted(a, o, barrier, o.attrs["threads"], not o.attrs["arrive"]))


def _counted(a: Agent, o: Op, barrier: CountedBarrier, threads: int, waits: bool) -> Steps:
    mine = barrier.arrive(a.party(o), 32 * a.warps, threads, a.clock, a.time)
    a.log(o, barrier.name, mine)
    a.released()
    if not waits:
        yield None
        return ()
    yield from a.wait_until(
        Block(
            lambda: barrier.generation > mine,
            o,
            f"{barrier.name}, generation {mine}",
            lambda: f"{barrier.arrived} of {threads} threads arrived",
            lambda: (
                f"{threads - barrier.arrived} threads never come: a turn that nobody passes or that goes "
                "to another barrier, a branch that not all warps take, or a count that is wrong"
            ),
        )
    )
    barrier.touch("pass", mine, a.party(o))
    np.maximum(a.clock, barrier.done, out=a.clock)
    a.stall(barrier.done_time, o, barrier.name)
    return ()


@step(cluster.cluster_arrive)
def _cluster_arrive(a: Agent, o: Op) -> Steps:
    yield from a.settle(o)
    program, stamp = a.cta.program, a.clock.max(axis=0)
    program.barrier.arrive(a, o, program.relaxed(stamp) if _is_relaxed(o) else stamp)
    a.released()
    a.time += a.cta.cost.sync
    yield None
    return ()


def _is_relaxed(o: Op) -> bool:
    return bool(o.attrs.get("sem") == "relaxed")


@step(cluster.cluster_wait)
def _cluster_wait(a: Agent, o: Op) -> Steps:
    barrier = a.cta.program.barrier
    mine = barrier.wait(a, o)
    yield from a.wait_until(
        Block(
            lambda: barrier.generation > mine,
            o,
            f"{barrier.name}, generation {mine}",
            barrier.missing,
            lambda: "not every thread of the cluster arrives, or ends",
        )
    )
    barrier.passed(a, o)
    np.maximum(a.clock, barrier.done, out=a.clock)
    a.stall(barrier.done_time, o, "cluster")
    return ()


@step(hopper.mbarrier_wait)
def _mbarrier_wait(a: Agent, o: Op, barriers: list[MBarrier], index: Any, phase: Any) -> Steps:
    b, parity, party = a.barrier(o, barriers, index), a.number(phase), a.party(o)
    if parity not in (0, 1):
        raise a.error("parity", f"waits for parity {parity} of {b.name}", o)
    if a.cta.is_tracked:
        target = b.target(party, a.rows, parity)
    else:
        target = b.phases - 1 if b.phases % 2 != parity else b.phases
    is_bound = b.bound and b.tracked

    def ready() -> bool:
        return b.phases > target if is_bound else b.phases % 2 != parity

    a.log(o, b.name, target)
    a.target = target
    b.blocked[a] = party
    yield from a.wait_until(
        Block(
            ready,
            o,
            f"phase {target} of {b.name} (parity {parity})",
            lambda: f"phase {b.phases} still lacks {b.outstanding()}",
            b.cause,
        )
    )
    del b.blocked[a]
    a.passed = b, target, o
    b.touch("wait", b.phases, party)
    if not b.bound:
        target = b.phases - 1
    n = len(a.rows)
    b.waited.append(Waiter(party, a.program_order[:n], a.epochs()))
    if b.phases == target + 1 and target >= 0:
        acquired = b.wide_done if o.attrs.get("scope", "cta") == "cluster" else b.done
        if _is_relaxed(o):
            acquired = a.cta.program.relaxed(acquired)
        np.maximum(a.rows, acquired, out=a.rows)
        a.stall(b.done_time, o, b.name)
    if not b.bound:
        yield None  # others may go on between this and what follows
    return ()


def _arrive(
    a: Agent,
    o: Op,
    b: MBarrier,
    party: Party,
    row: Array,
    order: tuple[Array, Array],
    n: int = 1,
    others: Together | None = None,
) -> None:
    """n arrivals with what `row` knows; `order`: components and epochs of the arriving warps; others: of the
    same op."""
    program = a.cta.program
    there, stamp = program.ctas[b.rank], row
    rows = row[None] if a.cta.is_tracked else None
    if _is_relaxed(o):
        stamp = program.relaxed(row)
    if there is a.cta:
        b.arrive(party, stamp, a.time, rows, None, n, others)
        return
    what = f"an arrival at {b.name.partition(' of ')[0]}"
    there.reach(a, o, what, b.made)
    proofs = ((np.array([b.component]), np.array([b.phases + 1])), order)
    there.reached[a, b] = Reach(party, what, proofs)
    b.arrive(party, program.relaxed(row), a.time, rows, stamp, n, others)


@step(hopper.mbarrier_arrive)
def _mbarrier_arrive(
    a: Agent, o: Op, barriers: list[MBarrier], index: Any, mask: Any = None
) -> Steps:
    b, party, by = a.barrier(o, barriers, index), a.party(o), o.attrs.get("by", "warp")
    a.time += a.cta.cost.sync
    a.log(o, b.name, b.phases)
    targets = [b] if mask is None else [_same(a, b, r) for r in _ranks(a, o, a.number(mask))]
    warps = 1 if a.is_solo or by == "one" else a.warps
    times = (32 if by == "thread" and not a.is_solo else 1) * o.attrs.get("count", 1)
    order, together = (a.access_order[: len(a.rows)], a.epochs()), Together(warps * times)
    for w in range(warps):
        row = a.clock[w].copy()

        def run(row: Array = row) -> None:
            for target in targets:
                _arrive(a, o, target, party, row, order, times, together)

        a.lag(w, run)
    a.released()
    yield None
    return ()


@step(hopper.mbarrier_expect)
def _mbarrier_expect(a: Agent, o: Op, barriers: list[MBarrier], index: Any) -> Steps:
    b, party = a.barrier(o, barriers, index), a.party(o)
    if not a.is_solo:
        raise a.error(
            "outside-elect", "every thread would expect the bytes", o, "put it inside elect"
        )
    a.log(o, b.name, b.phases)
    a.time += a.cta.cost.sync
    b.expect(party, o.attrs["bytes"])
    _arrive(a, o, b, party, a.clock[0].copy(), (a.access_order[:1], a.epochs()))
    a.released()
    yield None
    return ()


# ---- TMA


@step(hopper.tma_load)
def _tma_load(
    a: Agent,
    o: Op,
    view: ViewValue,
    dst: Place,
    barriers: list[MBarrier],
    index: Any,
    *offsets: Any,
) -> Steps:
    cta, b, party = a.cta, a.barrier(o, barriers, index), a.party(o)
    if not a.is_solo:
        raise a.error(
            "outside-elect", "every thread would issue the copy", o, "put it inside elect"
        )
    ranks = [cta.rank]
    if o.attrs.get("multicast"):
        *offsets, mask = offsets  # type: ignore[assignment]
        ranks = _ranks(a, o, a.number(mask))
    at = a.offsets(offsets)
    stamp = a.clock[0].copy()
    end = cta.transfer(a, o, dst.type.tile_bytes) + cta.cost.tma_latency
    for rank in ranks:
        _issue_load(a, o, view, dst.of_peer(rank), _same(a, b, rank), party, at, stamp, end)
    a.released()
    yield None
    return ()


def _same(a: Agent, b: MBarrier, rank: int) -> MBarrier:
    """The same barrier in the CTA of that rank."""
    assert b.made is not None
    return a.cta.program.ctas[rank].arrays[b.made.attrs["name"]][b.index]


def _ranks(a: Agent, o: Op, mask: int) -> list[int]:
    """The CTAs that a multicast goes to."""
    n = len(a.cta.program.ctas)
    if mask <= 0 or mask >> n:
        raise a.error("multicast-mask", f"the mask {mask:#b} in a cluster of {n} CTAs", o)
    return [rank for rank in range(n) if mask >> rank & 1]


def _issue_load(
    a: Agent,
    o: Op,
    view: ViewValue,
    dst: Place,
    b: MBarrier,
    party: Party,
    at: list[int],
    stamp: Array,
    end: float,
) -> None:
    """One copy into one CTA, that of `dst` and `b`."""
    program = a.cta.program
    cta = program.ctas[b.rank]
    if cta is not a.cta:
        cta.reach(a, o, _what(o, dst), b.made)
        stamp = program.relaxed(stamp)
    if cta.is_tracked:
        b.bind(party, a.rows, "issues a copy that completes")
    a.log(o, b.name, b.phases)
    phase, size = b.phases, dst.type.tile_bytes
    component, visible = np.array([[b.component], [b.visible]])
    cta.write(a, o, _what(o, dst), dst, component, np.array([phase + 1]), True, False, visible)
    b.in_flight += size
    cta.loads[b] = (phase, party)

    def run() -> None:
        if cta is not a.cta:
            cta.still_runs(Reach(party, _what(o, dst)))
        if cta.has_data:
            data = cta.memory.load_box(dst.type.dtype, view, at, _box(o), o.loc)
            cta.shared.write(dst.addresses, data.reshape(dst.type.shape), dst.type.dtype, True)
        b.land(party, size, phase, stamp, end)

    cta.engine.issue("tma_load", run, end, a.own_lane("tma_load"))


def _box(o: Op) -> tuple[int, ...]:
    """The box that a TMA copy moves, with all axes of the view."""
    kind = o.operands[0].type
    assert isinstance(kind, TensorMap)
    return kind.thick


def _whole_units(view: ViewValue, kind: Type) -> ViewValue:
    """What a TMA store into the view can reach: rows end at the next multiple of 16 bytes."""
    assert isinstance(kind, TensorMap)
    axis, unit = kind.axes[kind.inner], max(1, 16 // kind.dtype.bytes)
    extents = list(view.extents)
    extents[axis] = -(-extents[axis] // unit) * unit
    return replace(view, extents=tuple(extents))


@step(hopper.tma_store)
def _tma_store(a: Agent, o: Op, view: ViewValue, src: Place, *offsets: Any) -> Steps:
    cta, bulk = a.cta, a.bulk
    if not a.is_solo:
        raise a.error(
            "outside-elect", "every thread would issue the copy", o, "put it inside elect"
        )
    group, at = bulk.committed + 1, a.offsets(offsets)
    cta.read(a, o, _what(o, src), src, np.array([a.bulk_order]), np.array([group]), True)
    bulk.open += 1
    bulk.last_op = o
    for left in (bulk.unread, bulk.unwritten):
        left[group] = left.get(group, 0) + 1
    end = cta.transfer(a, o, src.type.tile_bytes)
    read_by, written_by = end + cta.cost.store_read, end + cta.cost.store_written
    bulk.ends[group] = (
        max(read_by, bulk.ends.get(group, (0.0, 0.0))[0]),
        max(written_by, bulk.ends.get(group, (0.0, 0.0))[1]),
    )

    def read() -> None:
        data = None
        if cta.has_data:
            addresses = src.addresses
            _need_written(a, o, addresses, src)
            data = cta.shared.read(addresses, src.type.dtype, True)
        bulk.one_less(bulk.unread, group)

        def write() -> None:
            if data is not None:
                box, fn = data.reshape(_box(o)), o.attrs.get("reduce")
                reached = _whole_units(view, o.operands[0].type)
                if fn is None:
                    cta.memory.store_box(reached, box, at, o.loc)
                else:
                    cta.memory.reduce_box(fn, reached, box, at, o.loc)
            bulk.one_less(bulk.unwritten, group)

        cta.engine.issue("tma_store", write, written_by, a.own_lane("tma_store"))

    cta.engine.issue("tma_store", read, read_by, a.own_lane("tma_store"))
    yield None
    return ()


@step(hopper.tma_store_commit)
def _tma_store_commit(a: Agent, o: Op) -> None:
    if not a.is_solo:
        raise a.error("outside-elect", "bulk groups belong to the thread that issued the stores", o)
    a.bulk.committed += 1
    a.bulk.open = 0
    a.bulk.last_op = o


@step(hopper.tma_store_wait)
def _tma_store_wait(a: Agent, o: Op) -> Steps:
    if not a.is_solo:
        raise a.error("outside-elect", "bulk groups belong to the thread that issued the stores", o)
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
            lambda: "",
        )
    )
    over = [times[0 if only_read else 1] for g, times in bulk.ends.items() if g <= group]
    a.stall(max(over, default=a.time), o, "stores")
    bulk.known = max(bulk.known, group)
    a.clock[0, a.bulk_order] = bulk.known
    return ()


# ---- cp.async


@step(hopper.cp_async)
def _cp_async(a: Agent, o: Op, source: Any, dst: Place, *rest: Any) -> Steps:
    cta, n = a.cta, len(a.rows)
    at: list[int] = []
    pointers = not isinstance(o.operands[0].type, View)
    if not pointers:
        at = a.offsets(rest)
    elif cta.has_data:
        run = dst.type.inner, o.attrs["bytes"] // dst.type.dtype.bytes
        _check_run(a, o, source, rest[0] if rest else None, run)
    a.copies += 1
    epochs = np.full(n, a.copies)
    cta.write(a, o, _what(o, dst), dst, a.copy_order[:n], epochs, False, True)
    end = cta.transfer(a, o, dst.type.tile_bytes) + cta.cost.tma_latency
    a.copied = max(a.copied, end)

    def copy() -> None:
        if not cta.has_data:
            return
        if pointers:
            data = cta.memory.load(dst.type.dtype, source, rest[0] if rest else None, None, o.loc)
        else:
            data = cta.memory.load_box(dst.type.dtype, source, at, dst.type.shape, o.loc)
        cta.shared.write(dst.addresses, data, dst.type.dtype, False)

    cta.engine.issue("cp_async", copy, end, a.lane("cp_async"))
    yield None
    return ()


@step(hopper.cp_async_arrive)
def _cp_async_arrive(a: Agent, o: Op, barriers: list[MBarrier], index: Any) -> Steps:
    b, party, n = a.barrier(o, barriers, index), a.party(o), len(a.rows)
    stamps = a.rows.copy()
    stamps[np.arange(n), a.copy_order[:n]] = a.copies
    threads = 1 if a.is_solo else 32
    time, together = max(a.time, a.copied), Together(threads * n)

    def run() -> None:
        for row in stamps:
            rows = row[None] if a.cta.is_tracked else None
            b.arrive(party, row, time, rows, None, threads, together)

    a.cta.engine.issue("cp_async", run, time, a.lane("cp_async"))
    a.released()
    yield None
    return ()


# ---- wgmma


@step(hopper.in_flight)
def _in_flight(a: Agent, o: Op, value: Any) -> Fresh:
    return Fresh(value, a.count)


@step(hopper.no_acc)
def _no_acc(a: Agent, o: Op) -> Fresh:
    return Fresh(None, a.count)


@step(hopper.hold)
def _hold(a: Agent, o: Op, *values: Any) -> None:
    """Nothing: it is about the machine code."""


@step(hopper.stamp)
def _stamp(a: Agent, o: Op, *values: Any) -> None:
    """Nothing: it measures."""


@step(hopper.wgmma_fence)
def _wgmma_fence(a: Agent, o: Op) -> None:
    a.wgmma.last_fence = a.count


@step(hopper.wgmma)
def _wgmma(a: Agent, o: Op, x: Any, b: Place, acc: Fresh | Product, use_acc: Any) -> Steps:
    cta, queue = a.cta, a.wgmma
    if a.is_solo or a.warps != 4:
        raise a.error("wgmma-group", "wgmma is issued by one whole warp group", o)
    touched = [acc.born] if isinstance(acc, Fresh) else []
    if not isinstance(x, Place):
        touched.append(a.made.get(o.operands[0], 0))
    if queue.last_fence < max(touched, default=queue.last_fence):
        raise a.error(
            "wgmma-fence",
            "wgmma on registers that were touched after the last wgmma_fence",
            o,
            "call self.wgmma.fence() between the two",
        )
    group = queue.committed + 1
    for place, mn_axis in ((x, 0), (b, 1)):
        if isinstance(place, Place):
            epochs = np.full(4, group)
            try:
                place.operand(mn_axis)
                cta.read(a, o, _what(o, place), place, a.queue_order, epochs, True, mn_axis)
            except LayoutError as e:
                raise a.error("wgmma-layout", str(e), o) from None
    product = Product(o, x, b, acc, bool(use_acc), group)
    queue.unfinished.append(product)
    queue.last_op = o
    k, n = b.type.shape
    m = x.type.shape[0] if isinstance(x, Place) else _rows(o)
    product.end = cta.multiply(a, o, cta.cost.wgmma(m, n, k, b.type.dtype.bits))
    cta.engine.issue("wgmma", lambda: _perform(a, product), product.end, a.lane("wgmma"))
    yield None
    return product


def _rows(o: Op) -> int:
    kind = o.operands[0].type
    assert isinstance(kind, Tile)
    return kind.shape[0]


def _perform(a: Agent, p: Product) -> None:
    if a.cta.has_data:
        left = _operand(a, p.op, p.a, 0) if isinstance(p.a, Place) else p.a
        p.value = multiply(left, _operand(a, p.op, p.b, 1).T)
        if p.use_acc:
            start = p.acc.value
            p.value = p.value + (np.float32(np.nan) if start is None else start)
    p.is_done = True
    a.wgmma.unfinished.remove(p)


def _operand(a: Agent, o: Op, s: Place, mn_axis: int) -> Array:
    at = s.operand(mn_axis)
    _need_written(a, o, at, s)
    return a.cta.shared.read(at, s.type.dtype, True)


@step(hopper.wgmma_commit)
def _wgmma_commit(a: Agent, o: Op) -> None:
    a.wgmma.committed += 1
    a.wgmma.last_op = o


@step(hopper.wgmma_wait)
def _wgmma_wait(a: Agent, o: Op, *accs: Fresh | Product) -> Steps:
    queue = a.wgmma
    group = max(0, queue.committed - o.attrs["pending"])
    covered = [p for p in queue.unfinished if p.group <= group]
    yield from a.wait_until(
        Block(
            lambda: queue.finished(group),
            o,
            f"its wgmma group {group}",
            lambda: "the tensor core is not done",
            lambda: "",
        )
    )
    a.stall(max((p.end for p in covered), default=a.time), o, "wgmma")
    queue.known = max(queue.known, group)
    a.clock[np.arange(a.warps), a.queue_order] = queue.known
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
            kind = v.type
            assert isinstance(kind, Tile)
            values.append(np.full(kind.shape, np.nan, np.float32))
        else:
            values.append(acc.value)
    return _results(o, tuple(values))
