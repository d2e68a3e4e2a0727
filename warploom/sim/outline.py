"""What all runs of one function share, worked out once: the components of its clocks, its map of shared
memory, and every region as lines, each op with what runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from warploom.analysis.cost import elementwise
from warploom.errors import InternalError
from warploom.ir import engines
from warploom.ir.analysis import allocations_of, backward_slice, sources, unwaited
from warploom.ir.core import Func, Level, Op, OpKind, Region, Value, walk
from warploom.ir.ops import arith, cluster, control, mbarrier, mma, smem, task, tma, unaligned
from warploom.ir.ops.tma import MAP_BYTES
from warploom.ir.types import Pointer, Scalar, Shared, TensorMap, Tile, View, u8
from warploom.sim.evaluate import PURE, entering
from warploom.sim.global_order import STORES, Threads, is_bulk_store, is_ordered
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.offsets import Offsets
from warploom.sim.order import Array, Components, Partition, Regions
from warploom.sim.report import SyncStep
from warploom.sim.shared import Place, allocate, boundary, slot_pitch
from warploom.sim.translate import FLOW, Line, Mode, Translated, Translator
from warploom.sim.undefined import Divisions
from warploom.target import CostTable

_PLACES: dict[
    OpKind, slice
] = {  # operands that matter without data: slots and barriers, no offsets
    control.yield_: slice(0, 0),
    control.for_: slice(0, 3),
    control.while_: slice(0, 0),
    tma.tma_load: slice(1, 4),
    tma.tma_store: slice(1, 2),
    tma.map_write: slice(0, 0),
    smem.cp_async: slice(1, 2),
    mma.wgmma: slice(0, 3),
    mma.fma: slice(0, 2),
    **dict.fromkeys((smem.shared_store, *smem.BY_ELEMENT), slice(0, 1)),
    unaligned.prefetch_box: slice(0, 0),
}


def asked_without_data(o: Op) -> tuple[Value, ...]:
    """The operands that an op asks for in a skeleton run."""
    kept = o.operands[_PLACES[o.kind]] if o.kind in _PLACES else o.operands
    return (*kept, o.operands[-1]) if o.attrs.get("multicast") else kept


_MAP = Shared((), (MAP_BYTES,), u8, 0, 0, (MAP_BYTES,))  # a descriptor, as bytes that are tracked
_EXTREMES = (arith.minimum, arith.maximum)
_DIVIDING = (arith.idiv, arith.fast_div, arith.rem)

Forced = Callable[[int], bool]  # iteration -> outcome
# What an agent does for each op: a function, or a generator where it can block (steps*.py).
STEPS: dict[OpKind, Callable[..., Any]] = {}
step = entering(STEPS)


@dataclass(frozen=True)
class Numbering:
    """Which component of a clock stands for what, of one CTA; see order.py."""

    begun: range
    warps: range
    accesses: range
    queues: range
    copies: range
    bulk: range
    written: range
    lanes: range  # accesses of the warps' lanes, each by itself
    elected: range  # those of the agents' elected threads
    mbarriers: range
    visible: range  # bytes that the mbarriers counted
    named: range
    syncs: range


class Outline:
    """The fixed facts of a function at WARP or PLACED.

    watched: ops whose outcomes runs without data keep in their reports, and what is taken for the outcome
    instead, by the number of the innermost loop's iteration.  That of a scalar condition is itself; of
    minima, maxima and quotients, whether their first operand is smaller (of equal ones there is none)."""

    def __init__(
        self,
        func: Func,
        cost: CostTable,
        numerics: Numerics = FLOATS,
        watched: Mapping[Op, Forced | None] | None = None,
    ) -> None:
        self.func, self.cost, self.numerics = func, cost, numerics
        self.watched = watched or {}
        self.phases = task.phases(func)
        self.tasks = self.phases[-1]  # the one with register budgets
        self.agents = sum(n for o in self.phases for n in o.attrs["replicas"])
        self.offsets, self.divisions = Offsets(func), Divisions(func)
        self._lines: dict[tuple[Region, bool, bool], tuple[Line, ...]] = {}
        self._translated: dict[tuple[Region, Mode], Translated] = {}
        # Runs share equal steps of the protocol: there are many, and the collector sees each.
        self.steps: dict[Any, tuple[Any, dict[Any, SyncStep]]] = {}  # by agent and iterations
        self._places: dict[str, Place] = {}
        self._regions: dict[tuple[Place, int | None], tuple[int, Regions]] = {}

    @cached_property
    def warps(self) -> int:
        return task.warps_of(self.tasks)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        return tuple(walk(self.func.body))

    @cached_property
    def unwaited(self) -> Op | None:
        """What at PLACED touches global memory that the grids before this one may still write."""
        is_early = self.func.level is Level.PLACED and self.func.target.grid.dependent
        return unwaited(self.func) if is_early else None

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        return tuple(name for o in self.phases for name in o.attrs["names"])

    @cached_property
    def prologue(self) -> Region:
        """The ops before the first phase; it yields all that they make."""
        ops = self.func.body.ops
        before = ops[: ops.index(self.phases[0])]
        made = tuple(v for o in before for v in o.results)
        return Region((), (*before, ops[-1].with_(operands=made)))

    @cached_property
    def ctas(self) -> int:
        """CTAs of a program."""
        return math.prod(cluster.cluster_of(self.func))

    @cached_property
    def _components(self) -> tuple[tuple[Numbering, ...], int, int]:
        mbarriers = sum(o.attrs["n"] for o in self.ops if o.kind is mbarrier.mbarrier_alloc)
        sizes = [1, *[self.warps] * 4, self.agents, self.agents, self.warps, self.agents]
        sizes += [mbarriers, mbarriers]
        sizes += [self.func.target.sync.named_barriers, 1 + len(self.task_names)]
        parts = Components()
        numberings = tuple(Numbering(*map(parts.take, sizes)) for _ in range(self.ctas))
        return numberings, parts.take().start, parts.size

    @property
    def numberings(self) -> tuple[Numbering, ...]:
        """The components of each CTA of a program, by rank."""
        return self._components[0]

    @property
    def cluster_component(self) -> int:
        """That of the cluster's barrier."""
        return self._components[1]

    @property
    def width(self) -> int:
        """Numbers of a clock: twice its components."""
        return 2 * self._components[2]

    @cached_property
    def ordinary(self) -> Array:
        """The numbers of a clock that relaxed arrivals and waits do not hand on: ordinary accesses, cp.async,
        what TMA has stored, and that copies by TMA are visible to ordinary accesses."""
        found = np.zeros(self.width, np.bool_)
        for n in self.numberings:
            for part in (n.accesses, n.lanes, n.elected, n.copies, n.written, n.visible):
                for half in (0, self.width // 2):
                    found[half + part.start : half + part.stop] = True
        return found

    # ---- shared memory

    @cached_property
    def own_maps(self) -> dict[Value, str]:
        """The descriptors that the kernel writes, by their names."""
        return {o.result: o.attrs["name"] for o in self.ops if o.kind is tma.map_alloc}

    @cached_property
    def _allocations(self) -> dict[str, tuple[Shared, int | None, str | None]]:
        """Of shared memory; and after it, since who writes and who reads them is told alike, descriptors in
        global memory of the CTA's own."""
        found: dict[str, tuple[Shared, int | None, str | None]] = {}
        for o in self.ops:
            if o.kind is smem.shared_alloc:
                kind = o.result.typed(Shared)
                found[o.attrs["name"]] = kind, o.attrs.get("offset"), o.attrs.get("alias")
        found |= dict.fromkeys(self.own_maps.values(), (_MAP, None, None))
        return found

    @cached_property
    def roots(self) -> dict[str, str]:
        """Of each allocation the one that it is an alias of, itself where of none."""
        found: dict[str, str] = {}
        for name, (_, _, alias) in self._allocations.items():
            found[name] = name
            while alias in self._allocations:
                found[name], alias = alias, self._allocations[alias][2]
        return found

    @cached_property
    def holds_data(self) -> frozenset[str]:
        """The allocations that tiles are written to: what lies there no run without data knows."""
        made = allocations_of(self.func)
        kinds = {smem.shared_store, *smem.BY_ELEMENT, *engines.FILLS}
        written = (v for o in self.ops if o.kind in kinds for v in o.operands if v in made)
        return frozenset(made[v].attrs["name"] for v in written)

    @cached_property
    def shared(self) -> tuple[dict[str, int], int]:
        """The address of each allocation, and the bytes of all."""
        return allocate(self._allocations)

    @cached_property
    def granule(self) -> int:
        """Bytes that the edges of all tiles in shared memory are multiples of."""
        addresses, size = self.shared
        kinds = [v.type for o in self.ops for v in o.results]
        units = [boundary(t) for t in kinds if isinstance(t, Shared)]
        units += [slot_pitch(kind) for kind, _, _ in self._allocations.values()]
        return int(np.gcd.reduce([max(size, 1), *addresses.values(), *units]))

    def place(self, name: str) -> Place:
        """An allocation."""
        if name not in self._places:
            kind, _, _ = self._allocations[name]
            self._places[name] = Place(self.shared[0][name], kind, (0,) * len(kind.box), name)
        return self._places[name]

    @cached_property
    def partition(self) -> Partition:
        """Shared memory as the accesses so far divide it."""
        return Partition(-(-self.shared[1] // self.granule))

    def regions(self, s: Place, axis: int | None = None) -> Regions:
        """The regions that a tile covers, or that wgmma reads as its operand with this MN axis."""
        key, origins = (s, axis), self.partition.origins
        if key not in self._regions:
            addresses = s.addresses if axis is None else s.operand(axis)
            first = self.partition.regions(np.unique(addresses // self.granule))
            self._regions[key] = len(origins), first
        at, found = self._regions[key]
        if at < len(origins):  # some were divided since: it covers both parts
            for region in range(at, len(origins)):
                found = (*found, region) if origins[region] in found else found
            self._regions[key] = len(origins), found
        return found

    # ---- regions

    def lines(
        self, region: Region, is_skeleton: bool = False, has_data: bool = False
    ) -> tuple[Line, ...]:
        """The region's ops but its yield; of a skeleton those that it takes."""
        found = self._lines.get((region, is_skeleton, has_data))
        if found is None:
            ops = [*region.ops[:-1]]
            if is_skeleton:
                ops = [o for o in ops if self._is_in_skeleton(o) and not self._is_constant(o)]
            lines = map(self._line, ops)
            if has_data:  # else nobody knows the divisors, or the checker makes them up
                lines = map(self._dividing, lines)
            found = self._lines[region, is_skeleton, has_data] = tuple(lines)
        return found

    def translated(self, region: Region, mode: Mode) -> Translated:
        """What an agent does for a region."""
        found = self._translated.get((region, mode))
        if found is None:
            lines = partial(self.lines, is_skeleton=mode.is_skeleton, has_data=mode.has_data)
            given = self.given if mode.is_skeleton else {}
            translator = Translator(lines, given, self.offsets.wrapping, mode)
            found = self._translated[region, mode] = translator.translated(region)
        return found

    def _is_in_skeleton(self, o: Op) -> bool:
        if o.kind in PURE:
            return any(v in self._needed for v in o.results)
        return not o.accesses or not any(
            isinstance(v.type, Tile) for v in (*o.operands, *o.results)
        )

    @cached_property
    def _needed(self) -> set[Value]:
        """What a run without data computes: all that control flow, barriers and slots follow from."""
        roots = [
            v
            for o in self.ops
            if o.kind not in PURE and self._is_in_skeleton(o)
            for v in asked_without_data(o)
        ]
        roots += [o.regions[0].yielded[0] for o in self.ops if o.kind is control.while_]
        return backward_slice(roots, sources(self.func.body), lambda v: isinstance(v.type, Tile))

    @cached_property
    def given(self) -> dict[Value, Any]:
        """What a run without data need not compute: constants, and None for values that it has none of."""
        left_out = (o for o in self.ops if not self._is_in_skeleton(o))
        given: dict[Value, Any] = {v: None for o in left_out for v in o.results}
        for o in self.ops:
            if self._is_constant(o) and o.result in self._needed:
                given[o.result] = self.offsets.meaning(o, self.numerics.meaning(o))()
        return given

    @cached_property
    def threads(self) -> Threads:
        return Threads(self.func)

    @cached_property
    def contended(self) -> frozenset[Op]:
        """Tasks' accesses to global memory whose order counts: at PLACED, to arrays that ops store to."""
        if self.func.level is not Level.PLACED:
            return frozenset()
        made = sources(self.func.body)

        def arrays(o: Op) -> set[Value]:
            of = backward_slice(
                o.operands[:1],
                made,
                lambda v: not isinstance(v.type, Pointer | Tile | View | TensorMap),
            )
            return of & {*self.func.params}

        inside = (o for phase in self.phases for o in phase.all_ops)
        accesses = {o: arrays(o) for o in inside if is_ordered(o) or is_bulk_store(o)}
        written = {v for o, of in accesses.items() if o.kind in STORES for v in of}
        return frozenset(o for o, of in accesses.items() if of & written)

    def _is_constant(self, o: Op) -> bool:
        return o.kind is arith.const and isinstance(o.result.type, Scalar) and o not in self.watched

    def _dividing(self, line: Line) -> Line:
        """The line, where integers may be divided by 0."""
        if line.run is None:
            return line
        wrap = self.divisions.meaning if line.is_pure else self.divisions.step
        return line._replace(run=wrap(line.op, line.run))

    def _line(self, o: Op) -> Line:
        tiles = tuple(v for v in o.results if isinstance(v.type, Tile))
        if o.kind in PURE:
            unit, cycles = elementwise(self.cost, o)
            run = self.offsets.meaning(o, self.numerics.meaning(o))
            line = Line(o, run, True, o.operands, o.results, tiles, unit, cycles)
        elif o.kind in FLOW:
            line = Line(o, None, False, o.operands, o.results, tiles, "", 0.0)
        elif o.kind in STEPS:
            step = self.offsets.narrowed(o, STEPS[o.kind], first=2)
            line = Line(o, step, False, o.operands, o.results, tiles, "", 0.0)
        else:
            raise InternalError(f"the simulator has no meaning for {o.kind.name}")
        return self._watching(line) if o in self.watched else line

    def _watching(self, line: Line) -> Line:
        """The line, which keeps its outcome, with the number of the innermost loop's iteration."""
        find, is_pure, forced = line.run, line.is_pure, self.watched[line.op]
        assert find is not None
        is_extreme = line.op.kind in _EXTREMES
        is_choosing = is_extreme or line.op.kind in _DIVIDING
        true, false = (line.op, True), (line.op, False)

        def run(a: Any, o: Op, *values: Any) -> Any:
            if forced is not None:
                out = np.bool_(forced(sum(iteration for *_, iteration in a.loops)))
            elif is_pure:
                for x in values:
                    if x is None:
                        return None
                out = find(*values)
            else:
                out = find(a, o, *values)
            outcome: Any = out
            if is_choosing:
                x, y, *_ = values
                outcome = None if is_extreme and x == y else x < y
            if outcome is not None:
                outcomes, key = a.cta.report.outcomes, true if outcome else false
                iteration = a.iterations[-1][1] if a.iterations else 0
                if iteration > outcomes.get(key, -1):
                    outcomes[key] = iteration
            return out

        return line._replace(run=run, is_pure=False, tiles=(), unit="", cycles=0.0)


@lru_cache(maxsize=16)
def outline_of(func: Func, cost: CostTable, numerics: Numerics = FLOATS) -> Outline:
    """The outline of a function, kept for the functions that were run last."""
    return Outline(func, cost, numerics)
