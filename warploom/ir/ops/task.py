"""Channels and tasks: what crosses from task to task, and the regions that tasks run.

At CHANNEL a function is still one sequential program (and its in-order interpretation is still the
oracle's): the four communication ops stand around each crossing, and one cursor (slot, phase) a channel
is threaded through every enclosing loop and both arms of every if.
"""

from __future__ import annotations

from warploom.ir.core import (
    CHANNEL_ONLY,
    HARDWARE,
    Effect,
    Family,
    Func,
    Level,
    Op,
    Region,
    Runs,
    Type,
    op,
    require,
)
from warploom.ir.ops.arith import alike
from warploom.ir.ops.tile import is_source, sliced
from warploom.ir.types import Channel, Scalar, Tile, i32

_CURSOR = frozenset({Level.CHANNEL, Level.WARP, Level.PLACED})


@op(Family.PLACE, levels=CHANNEL_ONLY, effect=Effect.SYNC)
def channel(
    *, items: tuple[Tile | Scalar, ...], depth: int, via: tuple[str, ...], name: str
) -> Channel:
    """A ring of `depth` slots.  via[i] says how item i is filled: 'tma', 'cp_async' or 'registers', a number
    by one thread ('number')."""
    require(depth >= 1, f"a channel has at least one slot, not {depth}")
    require(len(items) == len(via), "one `via` an item")
    return Channel(items, depth)


@op(Family.NUMBER, levels=_CURSOR)
def ring_next(slot: Scalar, phase: Scalar, *, depth: int) -> tuple[Scalar, Scalar]:
    """The cursor after (slot, phase) on a ring: slot + 1, or 0 with phase flipped after the last.

    A ring starts at slot 0, phase 0.
    """
    require(slot == phase == Scalar(i32), f"a cursor is two i32, got {slot}, {phase}")
    return slot, phase


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.SYNC)
def producer_acquire(c: Channel, slot: Scalar, phase: Scalar) -> None:
    """Waits until the slot is free for this round (always in the first round)."""


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.READ | Effect.WRITE)
def produce(
    c: Channel,
    slot: Scalar,
    source: Type,
    *rest: Type,
    item: int,
    run: tuple[int, ...] = (),
    cache_policy: str | None = None,
) -> None:
    """Loads the item into the slot asynchronously (TMA or cp.async): from a view at offsets `rest`
    (load_box), or from a tile of pointers where the mask `rest`, if any, is true (load).
    run, cache_policy: as theirs; cp.async takes no policy."""
    t = c.items[item]
    fits = isinstance(t, Tile) and is_source(source, rest, t.shape, t.dtype)
    require(fits, f"produce from {source} into {c}")


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.WRITE)
def put(c: Channel, slot: Scalar, value: Type, *, item: int) -> None:
    """Writes a tile, or a number, from registers into the slot."""
    require(c.items[item] == value, f"{c} carries {c.items[item]}, got {value}")


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.SYNC)
def producer_commit(c: Channel, slot: Scalar) -> None:
    """The slot's items are on their way; the slot is full when the last byte has arrived."""


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.SYNC)
def consumer_wait(c: Channel, slot: Scalar, phase: Scalar) -> None:
    """Waits until the slot is full."""


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.READ)
def take(c: Channel, slot: Scalar, *, item: int) -> Type:
    """The item in the slot.  A dot reads it in place; any other use copies it to registers.

    A number is taken by the producer as well, which knows it already."""
    return c.items[item]


@op(Family.CHANNEL, levels=CHANNEL_ONLY, effect=Effect.SYNC)
def consumer_release(c: Channel, slot: Scalar) -> None:
    """This task has read the slot's items."""


@op(Family.MOVE, levels=frozenset({Level.TASK, Level.CHANNEL}), axes=sliced)
def slice_block(x: Tile, *block: Scalar, shape: tuple[int, ...]) -> Tile:
    """The part of x that starts at block[i]·shape[i] on each axis i (i32 operands): what one replica
    needs of a tile that a channel brings whole.  On an item of a channel it becomes a shared_slice."""
    require(len(block) == len(shape) == len(x.shape), f"slice_block {shape} of {x}")
    for n, m in zip(shape, x.shape, strict=True):
        require(m % n == 0, f"blocks of {shape} do not divide {x}")
    return Tile(shape, x.elem, x.layout)


@op(Family.MOVE, levels=frozenset({Level.TASK, Level.CHANNEL}), axes=alike)
def forward(x: Tile) -> Tile:
    """x, by way of a task of its own: its readers find it in other slots than those that it was loaded to,
    which may be laid out with another axis adjacent.  (Operands of wgmma that are not of 16 bits are K-major;
    memory may have them the other way.)"""
    return x


# ---- WARP and PLACED


@op(Family.CONTROL, levels=HARDWARE, effect=Effect.SYNC)
def tasks(
    *,
    names: tuple[str, ...],
    warps: tuple[int, ...],
    replicas: tuple[int, ...],
    registers: tuple[int | None, ...],
    regions: tuple[Region, ...],
    synced: bool = True,
) -> None:
    """Runs its regions concurrently, each by warps[i] warps, replicated replicas[i] times.

    Tasks take consecutive warps in the order given, the replicas of one task after each other.  A
    region is run by all the threads of a replica together; `replica_id` tells replicas apart.
    registers[i] is the task's budget a thread: it begins with this setmaxnreg (None: without); tasks that
    share a warp group have the same one, which all its threads take before they part.  Ends when all end.
    A function ends in one, or in several *phases* of the same number of warps: between two stands a barrier
    of the CTA, unless the first is not `synced` (its threads have met as it ends).  Names are unique among
    all phases; only the last may have register budgets, where no other has a setmaxnreg.  Ops before are run
    by every thread (scalars), or declare shared memory, barriers and tensor maps.
    """
    n = len(regions)
    require(len(names) == len(warps) == len(replicas) == len(registers) == n, "one entry a region")
    require(all(not r.params and not r.yielded for r in regions), "task regions pass no values")


def warps_of(o: Op) -> int:
    """How many warps run a `tasks` op: all of the CTA."""
    return sum(w * n for w, n in zip(o.attrs["warps"], o.attrs["replicas"], strict=True))


def sharing(o: Op, group: int) -> tuple[tuple[int, ...], ...]:
    """The tasks of a `tasks` op by number, those that have parts of the same warp groups,
    of `group` warps, together."""
    out: list[tuple[int, ...]] = []
    first = 0
    for i, (warps, n) in enumerate(zip(o.attrs["warps"], o.attrs["replicas"], strict=True)):
        out = [*out[:-1], (*out[-1], i)] if first % group else [*out, (i,)]
        first += warps * n
    return tuple(out)


def phases(func: Func) -> tuple[Op, ...]:
    """The `tasks` ops of a function at WARP or PLACED, in order."""
    return tuple(o for o in func.body.ops if o.kind is tasks)


def agents(func: Func) -> list[tuple[str, int]]:
    """(task, replica) of all that run in a CTA, phase after phase."""
    per_phase = (zip(o.attrs["names"], o.attrs["replicas"], strict=True) for o in phases(func))
    return [(name, r) for rows in per_phase for name, n in rows for r in range(n)]


@op(Family.NUMBER, levels=frozenset({Level.TASK, Level.CHANNEL, Level.WARP, Level.PLACED}))
def replica_id() -> Scalar:
    """Index of the replica that executes, 0 in a task of one replica (and at sequential levels an index
    that the interpreter runs through, see `partition_data`)."""
    return Scalar(i32)


@op(Family.CONTROL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def elect(*, regions: tuple[Region, ...], synced: bool = False) -> None:
    """Its region is run by one thread of the replica, always the same one (thread 0 of its warp 0).

    TMA copies, expect-tx, bulk commits and waits stand inside.  Inside, every op counts for one thread.
    synced: after it the lanes of each warp meet (bar.warp.sync).
    """
    (body,) = regions
    require(not body.params and not body.yielded, "an elect region passes no values")


def sole_elect(region: Region) -> Op | None:
    """The one elect of a task, outside control flow: its warp comes there converged."""
    elects = [o for o in region.all_ops if o.kind is elect]
    return elects[0] if len(elects) == 1 and elects[0] in region.ops else None
