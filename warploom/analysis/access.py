"""What is known of global accesses: strides, alignment, invariance, aliasing.  Decides nothing.

TMA's conditions are those of the CUDA driver API's cuTensorMapEncodeTiled (base and outer strides
multiples of 16 bytes, inner stride one element, box sides at most 256) and of PTX ISA, "Tensors"
(inner box a multiple of 16 bytes).  Nor may a box begin inside a unit of 16 bytes: the hardware ends such a
copy as an illegal instruction (docs/log/2026-11-21-operands-tma-cannot-load.md).  cp.async copies 4, 8
or 16 aligned bytes (PTX ISA, cp.async).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import power_of_two
from warploom.analysis.launch_numbers import LaunchNumbers
from warploom.analysis.moving_places import Needs
from warploom.analysis.store_places import StorePlaces
from warploom.analysis.structure import Structure, structure_of
from warploom.ir import engines
from warploom.ir.analysis import moved, passed_on, sources
from warploom.ir.core import Effect, Family, Func, Op, Value
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.types import DType, Pointer, Scalar, pointee_of
from warploom.layout.shared import Geometry, swizzle_for
from warploom.target import Target

BOX_ALIGNMENT = 16  # its unit of addresses, strides and rows
MIN_BOX = 64  # rows that an instruction moves where a box is cut: fewer would take too many of them
# What points where its first operand does; an address that is computed from numbers is based on nothing.
_COPIES = engines.COPIES_PIECES | {task.produce}  # they read global memory, and write shared memory
_HARMLESS = (control.assume, control.device_assert, control.device_print)  # they order no accesses
_OF_ONE_ARRAY = (arith.addptr, tile.make_view, arith.int_to_ptr, arith.ptr_to_int)


@dataclass(eq=False)
class Accesses:
    """Facts of one function's global accesses."""

    func: Func
    target: Target

    @property
    def structure(self) -> Structure:
        """Who makes and who uses the function's values."""
        return structure_of(self.func)

    # ---- scalars

    @property
    def facts(self) -> Facts:
        """What is known of the function's numbers."""
        return facts_of(self.func)

    def invariant(self, v: Value) -> bool:
        """Can the host compute v from the launch's arguments alone?"""
        return self._numbers.is_of_launch(v)

    @cached_property
    def _numbers(self) -> LaunchNumbers:
        return LaunchNumbers(self.structure, self.facts)

    # ---- views

    def view(self, o: Op) -> Op | None:
        """The make_view of a load_box or store_box, where it stands in this function."""
        made = self.structure.maker(o.operands[0])
        return made if made is not None and made.kind is tile.make_view else None

    def inner_axis(self, view: Op | None, rank: int) -> int | None:
        """See the function."""
        return inner_axis(self.facts, view, rank)

    def _alignments(self, view: Op) -> tuple[int, ...]:
        """Powers of two dividing the base (bytes) and each stride (elements)."""
        rank = len(view.operands) // 2
        divisors = tuple(view.attrs.get("divisible", ())) or (1,) * (rank + 1)
        values = (view.operands[0], *view.operands[1 + rank :])
        return tuple(max(n, self.facts.divisor(v)) for n, v in zip(divisors, values, strict=True))

    def why_not_tma(self, o: Op, shape: tuple[int, ...]) -> str | None:
        """None where TMA may move boxes of `shape` for the load_box or store_box o, else the fact
        that forbids it."""
        if not self.target.box_limit:
            return "no engine moves boxes (the target has none, or tma=False)"
        view = self.view(o)
        if view is None:
            return "its view is not made in this function"
        if not all(self.invariant(v) for v in view.operands):
            if (why := self._why_no_own_map(o, view)) is not None:
                return why
        elif o.loads and o in self.aliased:
            return "the kernel may store what it reads, and an engine sees no ordinary stores"
        inner = self.inner_axis(view, len(shape))
        if inner is None:
            return "no axis has a stride of exactly one element"
        dtype = pointee_of(view.operands[0].type)
        base, *strides = self._alignments(view)
        fault = tma_fault(base, strides, len(strides) - len(shape), inner, dtype)
        if fault is not None:
            return fault
        start = o.operands[len(o.operands) - len(shape) + inner]
        if (n := self.facts.divisor(start) * dtype.bytes) % 16:
            return (
                f"on {_axis(inner)} it begins at a multiple of {n} bytes, as far as is known, TMA's boxes "
                "at one of 16"
            )
        if o.kind is tile.store_box:
            extent = view.operands[1 + len(strides) - len(shape) + inner]
            # contiguous rows end where the next one starts: the same value, known as a stride
            pairs = zip(view.operands[1 + len(strides) :], strides, strict=True)
            known = max([self.facts.divisor(extent), *(n for v, n in pairs if v is extent)])
            bytes_known = known * dtype.bytes
            if (self.facts.constant(extent) or 0) < tile.UNBOUNDED and bytes_known % 16:
                return (
                    f"its rows end at a multiple of {bytes_known} bytes, as far as is known, and a TMA "
                    "store writes whole units of 16"
                )
        if shape[inner] * dtype.bytes % 16:
            return f"its rows of {shape[inner] * dtype.bytes} bytes are no multiple of 16"
        limit = self.target.box_limit
        box = self.tma_box(o, shape)
        for axis, n in enumerate(shape):
            if n > limit and axis != inner and box[axis] < MIN_BOX:
                return (
                    f"its box is {n} wide on axis {axis}, TMA's limit is {limit}, and {n} is made of "
                    f"whole boxes of {box[axis]} at most"
                )
        return None

    def _why_no_own_map(self, o: Op, view: Op) -> str | None:
        """Why the kernel can't write the descriptor for boxes of a view that the launch doesn't know; None
        where it can: for loads of a uniform kernel, whose copies by the descriptor before are all over."""
        why = "its base, extents or strides are not known at launch"
        if not o.loads or o not in self.aliased or not view.attrs.get("promised"):
            return why
        if self.func.attrs.get("programs"):
            return f"{why}, and CTAs share programs"
        if not self.target.writes_maps:
            return f"{why}, and kernels for {self.target.name} write no descriptors"
        loop = self.unwritten_loop(o)
        if loop is None:
            return "the kernel may store what it reads, and an engine sees no ordinary stores"
        if loop in self.structure.loops(view):
            return f"{why}, and change while copies are on their way"
        return None

    def tma_box(self, o: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What one TMA instruction moves of boxes of `shape` that TMA takes, for a load_box or store_box."""
        view = self.view(o)
        inner = self.inner_axis(view, len(shape))
        assert view is not None and inner is not None
        size = pointee_of(view.operands[0].type).bytes
        swizzle = swizzle_for(shape[inner] * size, math.prod(shape) // shape[inner])
        return Geometry(shape, size, inner, swizzle).copy_box(self.target.box_limit)

    def piece_bytes(self, o: Op, shape: tuple[int, ...]) -> int:
        """Bytes of the aligned runs that an engine can copy for load_box o, the most that it can, or 0."""
        view = self.view(o)
        inner = self.inner_axis(view, len(shape))
        if view is None or inner is None:
            return 0
        size = pointee_of(view.operands[0].type).bytes
        base, *strides = self._alignments(view)
        extra = len(strides) - len(shape)
        start = o.operands[1 + extra + inner]
        facts = [base, self.facts.divisor(start) * size, power_of_two(shape[inner] * size)]
        facts += [n * size for axis, n in enumerate(strides, -extra) if axis != inner]
        return max((p for p in self.target.pieces if all(f % p == 0 for f in facts)), default=0)

    # ---- aliasing

    def base(self, v: Value) -> int | None:
        """The parameter that a pointer, tile of pointers or view is based on; None: not known."""
        found = self._bases(v, set())
        return next(iter(found)) if len(found) == 1 else None

    def _bases(self, v: Value, seen: set[Value]) -> set[int | None]:
        """What v may be based on, following what loops, ifs and selections pass on."""
        if v in seen:
            return set()
        seen.add(v)
        made = self.structure.made[v]
        o = made.op
        if o is None:
            return {made.number if isinstance(v.type, Pointer) else None}
        if v in self._carried:
            return set().union(*(self._bases(x, seen) for x in self._carried[v]))
        if o.kind in _OF_ONE_ARRAY:
            return self._bases(o.operands[0], seen)
        if o.kind is arith.select:
            return self._bases(o.operands[1], seen) | self._bases(o.operands[2], seen)
        return {None} if (inner := moved(o)) is None else self._bases(inner, seen)

    @cached_property
    def _sources(self) -> dict[Value, tuple[Value, ...]]:
        return sources(self.structure.root)

    @cached_property
    def _carried(self) -> dict[Value, tuple[Value, ...]]:
        return {v: may_be for o in self.structure.ops for v, may_be in passed_on(o).items()}

    @cached_property
    def memory_ops(self) -> tuple[Op, ...]:
        """The accesses to global memory, those by pointers or views that fill slots among them."""
        return tuple(filter(_touches, self.structure.ops))

    def base_of(self, o: Op) -> int | None:
        """The base of the memory that one of `memory_ops` accesses."""
        return self.base(o.operands[2 if o.kind is task.produce else 0])

    def reached(self) -> list[tuple[Op, int | None]]:
        """The accesses, each with the base of its memory; all with None where they may overlap."""
        bases = [self.base_of(o) for o in self.memory_ops]
        if None in bases or self.keeps_order:
            bases = [None] * len(bases)
        return list(zip(self.memory_ops, bases, strict=True))

    def written(self) -> set[int | None]:
        """Bases that the function stores to (None among them: a base that is not known)."""
        return {self.base_of(o) for o in self.memory_ops if writes_memory(o)}

    @cached_property
    def aliased(self) -> frozenset[Op]:
        """Accesses whose memory the function both loads and writes, as far as bases tell.  Atomics among
        themselves are no such case: their order does not matter.

        func.attrs["overlap"] (True: the arguments of this variant overlap) makes it all accesses."""
        if self.func.attrs.get("overlap"):
            return frozenset(self.memory_ops)
        written = self.written()
        read = {self.base_of(o) for o in self.memory_ops if only_reads(o)}
        both = written & read
        found = set()
        for o in self.memory_ops:
            base = self.base_of(o)
            others = written if only_reads(o) else read
            if base in both or (base is None and others) or None in others:
                found.add(o)
        return frozenset(found)

    def loads_around(self, o: Op, after: bool) -> list[Op]:
        """The loads that may run before access o, or after it: as they stand, or in a loop of both."""
        at, loops = self.memory_ops.index(o), set(self.structure.loops(o))
        return [
            x
            for i, x in enumerate(self.memory_ops)
            if only_reads(x)
            and ((i > at if after else i < at) or not loops.isdisjoint(self.structure.loops(x)))
        ]

    def unwritten_loop(self, o: Op) -> Op | None:
        """The innermost loop around a load, where nothing in it may write what the load reads, or orders
        memory: the load may move ahead within each run of that loop, whatever stands around it.  None where
        there is no loop, or something does."""
        loop = next(iter(self.structure.loops(o)), None)
        return loop if loop is not None and self.leaves(o, loop) else None

    def leaves(self, o: Op, loop: Op) -> bool:
        """Does a loop leave alone what load o reads?"""
        base = None if self.func.attrs.get("overlap") else self.base_of(o)
        return not o.attrs.get("volatile") and not any(
            orders_memory(x)
            or (writes_memory(x) and (base is None or self.base_of(x) in (base, None)))
            for x in loop.all_ops
        )

    @cached_property
    def first_workspace(self) -> int:
        """The place of the first parameter that is memory of the kernel's own, or of one after the last."""
        return len(self.func.params) - len(self.func.attrs.get("workspaces", ()))

    def in_workspace(self, o: Op) -> bool:
        """Does an access reach memory of the kernel's own?  At these levels: split_last_wave's."""
        return _touches(o) and (self.base_of(o) or 0) >= self.first_workspace

    def rewrites(self, o: Op) -> bool:
        """May the place that a store writes be written again, by another iteration or another op?
        Asynchronous stores keep no order among themselves."""
        if self.keeps_order:
            return True
        offsets = o.operands[2:] if o.kind is tile.store_box else o.operands[:1]
        for loop in self.structure.enclosing(o):
            if self._places.repeats(loop) and not self._places.varies(offsets, loop):
                return True
        if self.meets_itself(o):
            return True
        base = self.base(o.operands[0])
        others = [x for x in self.memory_ops if x is not o and writes_memory(x)]
        return any(
            self.base(x.operands[0]) in (base, None) and not self.apart(o, x) for x in others
        )

    @property
    def keeps_order(self) -> bool:
        """Do all stores keep the program's order, because in this variant any two may meet?

        func.attrs["overlap"] says it of all accesses, func.attrs["in_order"] of stores."""
        return bool(self.func.attrs.get("overlap") or self.func.attrs.get("in_order"))

    @cached_property
    def _places(self) -> StorePlaces:
        told = self.func.attrs.get("replicas", ())  # at sequential levels, by the names of tasks
        counts = [n for _, n in told] or [n + 1 for _, n in task.agents(self.func)]
        most = max(counts, default=1)
        return StorePlaces(self.structure, self.facts, self._numbers, most)

    def meets_itself(self, o: Op) -> bool:
        """May an iteration of a loop store to some, and not all, of the places of another one?"""
        return not self._holds(self._places.spacing(o))

    def apart(self, x: Op, y: Op) -> bool:
        """Do two store_boxes of one view write boxes that lie a constant distance apart on some axis, in
        whatever iterations?"""
        return self._holds(self._places.beside(x, y))

    def _holds(self, needs: Needs | None) -> bool:
        """Are stores apart that need so much for it?  In this variant launches have what others lack."""
        return needs is not None and not (needs and self.keeps_order)

    def spacing(self, o: Op) -> Needs:
        """What has to hold for `meets_itself` and `apart` to say what they say of a store."""
        found = self._places.spacing(o) or frozenset()
        return found.union(
            *(self._places.beside(o, x) or () for x in self.memory_ops if x is not o)
        )


def _touches(o: Op) -> bool:
    return o.accesses or o.kind in _COPIES


def writes_memory(o: Op) -> bool:
    """Does an op write global memory, perhaps after it has read it?"""
    return o.accesses and Effect.WRITE in o.kind.effect


def is_on_numbers(o: Op) -> bool:
    """Is o an access to memory with no tile among operands and results?"""
    values = (*o.operands, *o.results)
    return o.accesses and all(isinstance(v.type, Scalar | Pointer) for v in values)


def orders_memory(o: Op) -> bool:
    """May op o by itself order memory, so that no load passes it?"""
    if o.kind is tile.atomic:
        return bool(o.attrs.get("sem", "relaxed") != "relaxed")
    ours = o.kind.family is Family.CHANNEL or o.kind in _HARMLESS
    return Effect.SYNC in o.kind.effect and not ours


def only_reads(o: Op) -> bool:
    """Does an op read global memory, and write none?"""
    return o.loads or o.kind in _COPIES


def inner_axis(facts: Facts, view: Op | None, rank: int) -> int | None:
    """The axis of boxes of `rank` axes whose stride in a view is exactly 1, the last such one.  None where
    there is none, or the view (its make_view) is not known."""
    if view is None or view.kind is not tile.make_view:
        return None
    strides = view.operands[len(view.operands) - rank :]
    ones = [i for i, v in enumerate(strides) if facts.constant(v) == 1]
    return ones[-1] if ones else None


def alignments(facts: Facts, base: Value, strides: Sequence[Value]) -> tuple[int, ...]:
    """make_view's attribute `divisible`, as far as it is known: for the base in bytes, and each stride."""
    return tuple(min(BOX_ALIGNMENT, facts.divisor(v)) for v in (base, *strides))


def tma_fault(
    base: int, strides: Sequence[int], extra: int, inner: int, dtype: DType
) -> str | None:
    """What forbids TMA a view whose base (bytes) and strides (elements) have these divisors; extra: axes that
    the view has and its boxes have not; inner: the axis of boxes whose stride is one element."""
    if base < BOX_ALIGNMENT:
        return f"its base is only known to be aligned to {base} bytes, TMA needs {BOX_ALIGNMENT}"
    for axis, n in enumerate(strides, -extra):
        if axis != inner and n * dtype.bytes % BOX_ALIGNMENT:
            return (
                f"the stride of {_axis(axis)} is only known to be a multiple of {n * dtype.bytes} "
                f"bytes, TMA needs {BOX_ALIGNMENT}"
            )
    return None


def _axis(axis: int) -> str:
    """An axis of a box; a negative one is an axis of the view that the box doesn't have."""
    return f"axis {axis}" if axis >= 0 else f"the {-axis}. axis in front of the tile"
