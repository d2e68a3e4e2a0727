"""Rings of scalars as shared memory and mbarriers: the part of partition_code that knows them.

    producer_acquire   mbarrier_wait(empty[slot], phase ^ 1), all three by one thread
    put                shared_put(numbers[slot])
    producer_commit    mbarrier_arrive(full[slot])
    consumer_wait      mbarrier_wait(full[slot], phase)
    take               shared_get(numbers[slot]); the producer knows the number
    consumer_release   mbarrier_arrive(empty[slot]) by each warp

A slot has one element of 32 or 64 bits; smaller numbers are widened.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.analysis.structure import Structure
from warploom.ir import build
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, mbarrier, smem, task
from warploom.ir.types import Channel, DType, Scalar, Shared, Tile, f32, i32
from warploom.schedule.model import Schedule


@dataclass(frozen=True, eq=False)
class NumberRing:
    """A channel's declarations: slots, their barriers, and what dtype the number has in its tasks."""

    slots: Value
    full: Value
    empty: Value
    dtype: DType

    def place(self, b: Builder, slot: Value) -> Value:
        return smem.shared_slot(b, self.slots, slot, hint=self.slots.hint.replace("_smem", "_slot"))

    def take(self, b: Builder, slot: Value, hint: str) -> Value:
        """The number that the producer put into the slot."""
        return get_number(b, self.place(b, slot), self.dtype, hint)


def declare(schedule: Schedule, structure: Structure, top: Builder) -> dict[Value, NumberRing]:
    """Declares every channel of numbers before the tasks, after those of tiles."""
    names = {o.attrs["name"] for o in top.ops if "name" in o.attrs}
    channels = [o for o in structure.ops if o.kind is task.channel and "number" in o.attrs["via"]]
    return {o.result: _declare(o, schedule, names, top) for o in channels}


def _declare(o: Op, schedule: Schedule, names: set[str], top: Builder) -> NumberRing:
    plan = next(c for c in schedule.channels if c.name == o.attrs["name"])
    channel = o.result.typed(Channel)
    (item,) = channel.items
    assert isinstance(item, Scalar)
    name, n = plan.name, 0
    while names & {name, f"full_{name}", f"empty_{name}"}:
        n += 1
        name = f"{plan.name}{n}"
    names |= {name, f"full_{name}", f"empty_{name}"}
    tasks = [t for t in schedule.tasks if t.name in plan.consumers]
    readers = sum(t.warps * t.replicas for t in tasks)
    slots = slots_of(top, item.dtype, plan.depth, name, f"{name}_smem")
    full, empty = (
        build.barriers(top, f"{k}_{name}", plan.depth, count)
        for k, count in (("full", 1), ("empty", readers))
    )
    return NumberRing(slots, full, empty, item.dtype)


def slots_of(top: Builder, dtype: DType, depth: int, name: str, hint: str) -> Value:
    """Shared memory for so many numbers of a dtype, each of at least 32 bits."""
    stored = dtype if dtype.bits >= 32 else f32 if dtype.is_float else i32
    return build.slots(top, Tile((1, 1), stored), (depth,), name, hint)


def put_number(b: Builder, place: Value, number: Value) -> None:
    """Stores a number, as wide as its slot."""
    t = place.typed(Shared)
    wide = number if number.type == Scalar(t.dtype) else arith.cast(b, number, dtype=t.dtype)
    smem.shared_put(b, place, wide)


def get_number(b: Builder, place: Value, dtype: DType, hint: str) -> Value:
    """Inverse of put_number."""
    number: Value = smem.shared_get(b, place, hint=hint)
    if number.type != Scalar(dtype):
        number = arith.cast(b, number, dtype=dtype, hint=hint)
    return number


def put(
    b: Builder, ring: NumberRing, slot: Value, phase: Value, number: Value, elected: bool
) -> None:
    """From acquire to commit, in the task's values, by one thread: another warp's wait might come when the
    consumers are a round further.  elected: one thread runs this already."""

    def store(b: Builder) -> None:
        free = arith.xor(b, phase, build.const(b, 1), hint="free")
        mbarrier.mbarrier_wait(b, ring.empty, slot, free)
        put_number(b, ring.place(b, slot), number)
        mbarrier.mbarrier_arrive(b, ring.full, slot, by="thread")

    if elected:
        store(b)
    else:
        build.elect(b, store)
