"""What an agent does for each op that is not pure: assertions, global and shared memory.

Barriers: steps_sync.py.  What goes on by itself: steps_async.py, steps_copies.py (cp.async).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from warploom.ir import format
from warploom.ir.core import Op
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, smem, task, tile, unaligned
from warploom.ir.types import Shared, Tile, dtype_of, pointee_of
from warploom.sim.accesses import combine_now, need_written, read_now, touch_global, write_now
from warploom.sim.agent import Agent, Steps, name_of
from warploom.sim.barriers import MBarrier
from warploom.sim.memory import ViewValue
from warploom.sim.outline import step
from warploom.sim.shared import Place
from warploom.sim.undefined import Undefined

# ---- assertions


def results_of(o: Op, values: tuple[Any, ...]) -> Any:
    return values[0] if len(o.results) == 1 else values


@step(control.assume)
def _assume(a: Agent, o: Op, c: Any) -> None:
    if not a.number(c):
        raise a.error(
            "assume", "an assumption does not hold", o, "keep the promise, or leave assume out"
        )


@step(control.device_assert)
def _device_assert(a: Agent, o: Op, c: Any) -> None:
    if c is not None and not np.all(c):
        raise a.error(
            "device-assert",
            f"device_assert failed: {o.attrs['message']}",
            o,
            "the values are those of this program: device_print shows them",
        )


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


# ---- the program and global memory


@step(tile.program_id)
def _program_id(a: Agent, o: Op) -> Any:
    return np.int32(a.cta.ids[o.attrs["axis"]])


@step(tile.num_programs)
def _num_programs(a: Agent, o: Op) -> Any:
    return np.int32(a.cta.grid[o.attrs["axis"]])


@step(tile.globaltimer)
def _globaltimer(a: Agent, o: Op) -> Any:
    return np.int64(time.perf_counter_ns())


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
    at = a.cta.memory.settled(base, pointee_of(o.operands[0].type), o.loc)
    sizes = tuple(numbers[:rank]), tuple(numbers[rank:])
    return ViewValue(int(at), *sizes, o.attrs.get("narrow", ()))


def skips(a: Agent, o: Op, *operands: Any) -> bool:
    """A skeleton run leaves tiles alone."""
    a.time += a.cta.cost.tma_latency
    if a.cta.has_data:
        return False
    for v in (*o.operands, *o.results):
        if isinstance(v.type, Tile):
            return True
    return any(x is None for x in operands)


@step(tile.load)
def _load(a: Agent, o: Op, p: Any, mask: Any = None, other: Any = None) -> Any:
    if skips(a, o, p):
        return None
    a.touch(o, "read", p)
    check_run(a, o, p, mask, o.attrs.get("run"))
    touch_global(a, o, p, mask)
    return a.cta.memory.load(dtype_of(o.result.type), p, mask, other, o.loc)


def check_run(a: Agent, o: Op, p: Any, mask: Any, run: tuple[int, int] | None) -> None:
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
    if not skips(a, o, p, value):
        a.touch(o, "write", p)
        check_run(a, o, p, mask, o.attrs.get("run"))
        touch_global(a, o, p, value, mask)
        a.cta.memory.store(pointee_of(o.operands[0].type), p, value, mask, o.loc)


@step(tile.atomic)
def _atomic(a: Agent, o: Op, p: Any, value: Any, rest: Any = None) -> Any:
    if skips(a, o, p, value):
        return None
    return _atomically(a, o, p, value, rest)


def _atomically(a: Agent, o: Op, p: Any, value: Any, rest: Any) -> Steps:
    yield None  # another agent's may come first
    a.touch(o, "write", p)
    if o.attrs.get("run"):
        check_run(a, o, p, rest, o.attrs["run"])
    elem = pointee_of(o.operands[0].type)
    return a.cta.memory.atomic(o.attrs["fn"], elem, p, value, rest, o.loc)


@step(tile.load_box)
@step(unaligned.load_unaligned)
def _load_box(a: Agent, o: Op, view: ViewValue, *offsets: Any) -> Any:
    if skips(a, o):
        return None
    kind = o.results[0].typed(Tile)
    touch_global(a, o, view, *offsets)
    return a.cta.memory.load_box(kind.dtype, view, a.numbers(offsets), kind.shape, o.loc)


@step(tile.store_box)
def _store_box(a: Agent, o: Op, view: ViewValue, value: Any, *offsets: Any) -> None:
    if not skips(a, o):
        touch_global(a, o, view, value, *offsets)
        a.cta.memory.store_box(view, value, a.numbers(offsets), o.loc)


# ---- declarations


@step(smem.shared_alloc)
def _shared_alloc(a: Agent, o: Op) -> Place:
    place = a.cta.outline.place(o.attrs["name"])
    return place.of_peer(a.cta.rank) if a.cta.rank else place


@step(mbarrier.mbarrier_alloc)
def _mbarrier_alloc(a: Agent, o: Op) -> list[MBarrier]:
    return a.cta.arrays[o.attrs["name"]]


# ---- shared memory


def _type(o: Op) -> Shared:
    kind = o.result.typed(Shared)
    return kind


@step(smem.shared_slot)
def _shared_slot(a: Agent, o: Op, s: Place, *index: Any) -> Place:
    at = tuple(a.numbers(index))
    return s.made.get(at) or a.place(o, lambda: s.slot(at))


@step(smem.shared_slice)
def _shared_slice(a: Agent, o: Op, s: Place, *block: Any) -> Place:
    at = a.numbers(block)
    return a.place(o, lambda: s.part(at, _type(o)))


@step(smem.shared_transpose)
def _shared_transpose(a: Agent, o: Op, s: Place) -> Place:
    return s.permuted(o.attrs["perm"], _type(o))


@step(cluster.peer)
def _peer(a: Agent, o: Op, x: Any, rank: Any) -> Any:
    ctas, r = a.cta.program.ctas, a.number(rank)
    if not 0 <= r < len(ctas):
        raise a.error(
            "cluster-rank",
            f"CTA {r} of a cluster of {len(ctas)}",
            o,
            f"ranks count from 0 to {len(ctas) - 1}",
        )
    if isinstance(x, Place):
        return x.of_peer(r)
    return ctas[r].arrays[x[0].made.attrs["name"]]


@step(smem.shared_load)
def _shared_load(a: Agent, o: Op, s: Place) -> Any:
    cta = read_now(a, o, s)
    a.spend("shared", s.type.tile_bytes / cta.cost.shared_bytes, name_of(o))
    if not cta.has_data:
        return None
    at = s.addresses
    need_written(a, o, at, s)
    return cta.shared.read(at, s.type.dtype, False)


@step(mma.fma)
def _fma(a: Agent, o: Op, x: Place, y: Place, acc: Any) -> Any:
    for s in (x, y):
        cta = read_now(a, o, s)
        a.spend("shared", s.type.tile_bytes / cta.cost.shared_bytes, name_of(o))
    products = o.result.typed(Tile).size * x.type.shape[-1]
    a.spend("alu", products / cta.cost.alu_lanes, name_of(o))
    if not cta.has_data:
        return None
    for s in (x, y):
        need_written(a, o, s.addresses, s)
    left, right = (cta.shared.read(s.addresses, s.type.dtype, False) for s in (x, y))
    return cta.numerics.fused(left, right, acc)


@step(smem.shared_store)
def _shared_store(a: Agent, o: Op, s: Place, value: Any) -> None:
    cta = write_now(a, o, s)
    a.spend("shared", s.type.tile_bytes / cta.cost.shared_bytes, name_of(o))
    if not cta.has_data:
        return
    at, n = s.addresses, len(a.rows)
    for w in range(n):  # the warps share the rows; which has which does not matter
        part = slice(w * at.shape[0] // n, (w + 1) * at.shape[0] // n)
        a.lag(w, lambda part=part: cta.shared.write(at[part], value[part], s.type.dtype, False))  # type: ignore[misc]


def _elements(o: Op, s: Place, indices: Any) -> tuple[Any, Any]:
    """The addresses of what a tile's elements go to, and which of them are inside the slot."""
    axis = o.attrs.get("axis")
    shape = o.operands[1].typed(Tile).shape
    if axis is None:
        return s.addresses, np.ones(shape, np.bool_)
    inside = (indices >= 0) & (indices < s.type.shape[axis])
    at = list(np.indices(shape))
    at[axis] = np.where(inside, indices, 0)
    return s.addresses[tuple(at)], inside


@step(smem.shared_scatter)
def _shared_scatter(a: Agent, o: Op, s: Place, value: Any, indices: Any) -> None:
    cta = write_now(a, o, s)
    if not cta.has_data:
        return
    a.spend("shared", value.size * s.type.dtype.bytes / cta.cost.shared_bytes, name_of(o))
    at, inside = _elements(o, s, indices)
    for w, n in enumerate(np.array_split(np.arange(value.size), len(a.rows))):
        mine = n[inside.flat[n]]
        a.lag(w, lambda i=mine: cta.shared.write(at.flat[i], value.flat[i], s.type.dtype, False))  # type: ignore[misc]


@step(smem.shared_atomic)
def _shared_atomic(a: Agent, o: Op, s: Place, value: Any, rest: Any = None) -> Any:
    if not a.cta.has_data:
        combine_now(a, o, s)
        return None
    return _combining(a, o, s, value, rest)


def _combining(a: Agent, o: Op, s: Place, value: Any, rest: Any) -> Steps:
    yield None  # another agent's may come first
    cta, dtype, fn = combine_now(a, o, s), s.type.dtype, o.attrs["fn"]
    a.spend("shared", 2 * value.size * dtype.bytes / cta.cost.shared_bytes, name_of(o))
    at, inside = _elements(o, s, rest)
    compared = rest if fn == "cas" else value
    need_written(a, o, at[inside], s)
    old = np.zeros_like(value)
    for i in np.flatnonzero(inside):
        one = at.flat[i : i + 1]
        (found,) = cta.shared.read(one, dtype, False)
        old.flat[i] = found
        new = cta.memory.updated(fn, found, value.flat[i], compared.flat[i])
        cta.shared.write(one, np.asarray([new], value.dtype), dtype, False)
    return old


@step(smem.shared_get)
def _shared_get(a: Agent, o: Op, s: Place) -> Any:
    cta = read_now(a, o, s)
    if not cta.has_data and s.allocation in cta.outline.holds_data:
        return None
    need_written(a, o, s.addresses, s)
    at = s.first_byte
    a.got[at] = a.got.get(at, 0) + 1
    cta.report.is_in_turn &= a.got[at] == cta.put.get(at)
    return cta.shared.read(s.addresses, s.type.dtype, False).flat[0]


@step(smem.shared_put)
def _shared_put(a: Agent, o: Op, s: Place, value: Any) -> None:
    """Written at once, in skeleton runs too: control may depend on it."""
    cta = write_now(a, o, s)
    shape, dtype = s.addresses.shape, cta.numerics.holds(s.type.dtype)
    is_undefined = type(value) is Undefined
    number = value.filling(shape, dtype) if is_undefined else np.full(shape, value, dtype)
    cta.shared.write(s.addresses, number, s.type.dtype, False)
    cta.put[s.first_byte] = cta.put.get(s.first_byte, 0) + 1


@step(smem.fence_async)
def _fence_async(a: Agent, o: Op) -> None:
    if o.attrs.get("space") == "global":  # races there are not looked for
        return
    rows, half = a.rows, a.cta.width // 2
    for some in (rows, a.elected):
        np.maximum(some[:, half:], some[:, :half], out=some[:, half:])
    if not a.is_solo:
        a.fenced[:] = a.positions
    a.copies.fenced = a.copies.known
    for w in range(len(rows) if a.cta.has_data else 0):
        for cta in a.cta.program.ctas if o.attrs.get("scope") == "cluster" else (a.cta,):
            a.lag(w, cta.shared.fence)
    a.time += a.cta.cost.sync
