"""How the stores are done: by TMA through staging in shared memory, or directly; by a task of their own
or by the consumers.

How many buffers of staging there are is decided with the rings (schedule/memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from warploom.analysis.memory_order import announcing
from warploom.ir.core import Op
from warploom.ir.ops import control, tile
from warploom.ir.types import dtype_of, shape_of
from warploom.layout.shared import swizzle_for
from warploom.schedule import rings
from warploom.schedule.consumer_partition import ConsumerPartition
from warploom.schedule.context import Context
from warploom.schedule.hints import ids, spelled
from warploom.schedule.model import StorePlan
from warploom.schedule.roles import Roles

STAGING_CHUNK = 64  # rows of a store's staging chunk
MANY_WORDS = 16  # of a thread: its stores by itself then cost more than two barriers
BUFFERS = (4, 2, 1)  # buffers of staging, best first
WHOLE = 1 << 16  # as many as there are chunks


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores of a context, with the roles and the partition that were chosen."""

    context: Context
    roles: Roles
    partition: ConsumerPartition

    @cached_property
    def staged(self) -> list[tuple[Op, tuple[int, int], tuple[int, int]]]:
        """(store, chunk, what a replica stores) of the stores that TMA may do."""
        found = []
        for o in self.context.ops:
            if o.kind is not tile.store_box or len(shape_of(o.operands[1].type)) != 2:
                continue
            if o in self.context.aliased or self.context.accesses.rewrites(o):
                continue
            view = self.context.accesses.view(o)
            inner = self.context.accesses.inner_axis(view, 2)
            if inner is None or not self.context.from_dot(o.operands[1]):
                continue
            shape = list(shape_of(o.operands[1].type))
            # of a transposed product M lies along axis 1
            cut = self.partition.cut[0].get(o.operands[1])
            if cut is not None:
                shape[cut] //= self.partition.replicas
            m, n = shape
            size = dtype_of(o.operands[1].type).bytes
            rows = self.chunk_rows(shape, inner, size)
            swizzle = swizzle_for(shape[inner] * size, rows)
            if not swizzle or not rows:
                continue
            chunk = (rows, swizzle // size) if inner == 1 else (swizzle // size, rows)
            if self.context.accesses.why_not_tma(o, chunk) is None:
                found.append((o, chunk, (m, n)))
        return found

    def chunk_rows(self, shape: list[int], inner: int, size: int) -> int:
        """Rows of the chunks of a store, 0 where it is not to go by TMA.  Dots in registers may leave fewer
        than `STAGING_CHUNK`: all of them, where a thread has many words to store."""
        rows = shape[1 - inner]
        if rows % STAGING_CHUNK == 0:
            return STAGING_CHUNK
        words = shape[0] * shape[1] * size // (4 * self.context.target.warp_size)
        small = rows < STAGING_CHUNK and words >= MANY_WORDS * self.partition.warps
        in_order = not any(self.partition.unit(o).is_async for o in self.context.dots)
        return rows if small and in_order else 0

    def staging_bytes(self, buffers: int) -> dict[Op, int]:
        """Of each store, for all replicas; none of those that lie where an item was."""
        reused = self.reused(buffers)
        found = {}
        for o, chunk, shape in self.staged:
            size = dtype_of(o.operands[1].type).bytes
            count = _buffers(_chunks(shape, chunk), buffers)
            found[o] = (
                count * chunk[0] * chunk[1] * size * self.partition.replicas * (o not in reused)
            )
        return found

    def reused(self, buffers: int) -> dict[Op, Op]:
        """The stores whose staging finds room where an item was that is loaded once, and that item's load:
        a barrier of the replica stands before it anyway (not where chunks are stored while others are
        filled), and what other replicas read of the item lies elsewhere."""
        found: dict[Op, Op] = {}
        for o, chunk, shape in self.staged:
            chunks = _chunks(shape, chunk)
            count = _buffers(chunks, buffers)
            is_whole = count == chunks and (count <= 2 or bool(self.context.knobs.store_whole))
            if self.context.structure.loops(o) or not count or not (is_whole or count <= 2):
                continue
            hosts = (
                h
                for h in self.once
                if h not in found.values() and self.is_room(o, chunk, h, is_whole)
            )
            if (host := next(hosts, None)) is not None:
                found[o] = host
        return found

    @cached_property
    def once(self) -> tuple[Op, ...]:
        """Loads of items in no loop, each in slots of its own."""
        loops, forwards = self.context.structure.loops, self.roles.forwards
        return tuple(
            o
            for o in self.roles.loads
            if not loops(o) and o not in forwards and len(shape_of(o.result.type)) == 2
        )

    def is_room(self, o: Op, chunk: tuple[int, int], h: Op, is_whole: bool) -> bool:
        """Is there room for a store's staging where the item of load h was?"""
        value, item = o.operands[1], h.result
        rows, columns = shape_of(value.type)
        size, item_size = dtype_of(value.type).bytes, dtype_of(item.type).bytes
        if self.partition.replicas == 1:
            part = rows * columns if is_whole else chunk[0] * chunk[1]
            return part * size <= prod(shape_of(item.type)) * item_size
        accesses, structure = self.context.accesses, self.context.structure
        readers = list(rings.real_users(structure, item))
        parts = self.partition.parts
        is_cut = all(
            d.kind is tile.dot and d.operands[0] is v is item and parts(d)[0] > 1
            for d, v in readers
        )
        if accesses.view(h) is None or not is_cut or self.partition.cut[0].get(value) != 0:
            return False
        inner, swizzle = rings.item_layout(
            structure, item, accesses.inner_axis(accesses.view(h), 2)
        )
        return (
            is_whole
            and rows == shape_of(item.type)[0]
            and columns * size <= shape_of(item.type)[1] * item_size
            and (inner, swizzle) == (1, swizzle_for(columns * size, rows))
            and accesses.inner_axis(accesses.view(o), 2) == 1
        )

    def plans(self, buffers: int) -> tuple[StorePlan, ...]:
        """How each store is done, with so many buffers of staging at most."""
        asked, whole = self.context.knobs.store_buffers, self.context.knobs.store_whole
        staged = {o: (chunk, shape) for o, chunk, shape in self.staged}
        reused = self.reused(buffers)
        plans = []
        for o in self.context.ops:
            if not o.stores:
                continue
            if o in staged and buffers:
                chunk, shape = staged[o]
                n = _chunks(shape, chunk)
                count = _buffers(n, buffers)
                why = "legal, and the result of a dot lies scattered over registers"
                if asked is not None and asked != count:
                    chunks = f"its {n} chunks go through as many buffers as divide them"
                    self.context.unmet(o, f"{count} buffers of staging instead of {asked}", chunks)
                # of two chunks each would wait until the other has been read
                if n == count and (n == 2 or whole):
                    chunk, count, why = shape, 1, f"{why}; there is room for all of it"
                elif whole and n > 1:
                    few = f"shared memory has room for {count} of its {n} chunks"
                    self.context.unmet(o, "stored chunk by chunk, against store_whole", few)
                across = chunk == shape and self.is_across(o, chunk)
                reuses = reused[o].id if o in reused else ""
                plans.append(StorePlan(o.id, "tma", chunk, count, across=across, reuses=reuses))
                chunks = "one chunk" if count == 1 else f"{count} chunks"
                said = f"stored by TMA through {chunks} of {chunk[0]}x{chunk[1]}"
                if reuses:
                    said = f"{said}, where {reuses} was"
                self.context.because(o.id, said, why)
            else:
                if o in staged and asked:
                    self.context.unmet(o, "no staging", self.why_direct(o, True))
                plans.append(StorePlan(o.id, "direct"))
                why = "store_buffers=0" if asked == 0 else self.why_direct(o, o in staged)
                self.context.because(o.id, "stored directly", why)
        return tuple(plans)

    def is_across(self, o: Op, part: tuple[int, int]) -> bool:
        """Do the parts that the replicas store make one box?  Where its panels are several, each replica's
        rows lie there where its rows of an operand were, and can have their bytes."""
        row = part[1] * dtype_of(o.operands[1].type).bytes
        return (
            self.partition.cut[0].get(o.operands[1]) == 0
            and self.partition.replicas > 1
            and self.context.accesses.inner_axis(self.context.accesses.view(o), 2) == 1
            and row > swizzle_for(row, part[0])
            and not self.context.structure.loops(o)
        )

    def why_direct(self, o: Op, legal: bool) -> str:
        if legal:
            return "shared memory has no room for staging"
        if o.kind is tile.store:
            return "it is no box of a strided array"
        if o in self.context.aliased:
            return "the kernel loads the same memory, later loads must see it"
        if o.kind is tile.store_box and self.context.accesses.rewrites(o):
            return "its place may be written again, and TMA stores keep no order"
        shape = shape_of(o.operands[1].type)
        return self.context.accesses.why_not_tma(o, tuple(min(n, 64) for n in shape)) or (
            "it stores no result of a dot, or not in whole chunks"
        )

    def handed_over(self, stores: tuple[StorePlan, ...], counted: bool) -> tuple[StorePlan, ...]:
        """The stores, those of a loop over tiles given to a task of their own where that was asked for.
        counted: numbers cross from the producer."""
        asked = self.context.knobs.store_task
        hinted = {
            o.id: spelled(ids(o))
            for o in self.context.ops
            if self.context.hints.wants_store_task(o)
        }
        wanted = {s.op: "store_task=True" for s in stores} if asked else hinted
        if asked is False or not wanted:
            return stores
        why = self.why_not_handed(counted)
        fit = [s.op for s in stores if s.via == "tma" and s.op in wanted]
        handed = [] if why else fit
        if not handed and asked:
            why = why or "no store goes through TMA"
            self.context.unmet(
                self.context.dots[0], "the consumers issue their stores, against store_task", why
            )
        for op in handed:
            self.context.because(op, "issued by a task of its own, beside the producer", wanted[op])
        return tuple(replace(s, by_task=s.op in handed) for s in stores)

    def why_not_handed(self, counted: bool) -> str:
        replicas = self.partition.replicas
        if not self.roles.specialized:
            return "the kernel is uniform"
        if self.partition.work(self.roles.loads) != "issues" or self.roles.forwards:
            return "the warps beside the producer's first one are not free"
        if replicas >= self.context.target.warp_group:
            return f"{replicas} groups have more stores than the producer's warp group has warps"
        if self.context.knobs.num_ctas > 1:
            return "not yet in clusters"
        if announcing(self.context.accesses):
            return "an atomic tells others that they are done"
        if counted:
            return "its control flow follows numbers that it would have to be told"
        loops = {self.context.structure.parent[o] for o, _, _ in self.staged}
        outer = next(iter(loops), None)
        if len(loops) > 1 or outer is None or outer.kind is not control.for_:
            return "they stand in no loop over tiles"
        if self.context.structure.parent[outer] is not None:
            return f"{outer.id} stands in other control flow"
        return ""


def _buffers(chunks: int, wanted: int) -> int:
    """Staging buffers for so many chunks: a divisor, so that each chunk always uses the same one."""
    most = min(chunks, wanted)
    return max((n for n in range(1, most + 1) if chunks % n == 0), default=0)


def _chunks(shape: tuple[int, int], chunk: tuple[int, int]) -> int:
    return (shape[0] // chunk[0]) * (shape[1] // chunk[1])
