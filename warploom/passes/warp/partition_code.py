"""Takes the tasks apart: one region a task, each with its own copy of the control flow it needs.

Order: after insert_channels; the step from CHANNEL to WARP.  No single level holds both channels and
wgmma, so what this pass puts in the regions is lowered as it is copied: rings by ring_protocol, dots
and stores by select.  Afterwards expand_pipeline, and for uniform kernels partition_copies and
fuse_tasks.
Changes: every kernel.

before:  one sequential function with the communication ops
after:   declarations (tensor maps, shared memory, mbarriers), scalars that all tasks may compute
         tasks() {names=("consumer", "producer"), …} do { … } do { … }

A task's copy of a loop or an if carries only the values which that task uses, and of the hints of a loop
keeps `unroll` alone.  A producer that does nothing but TMA, and ops on numbers, is one `elect` around its
whole body.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from warploom.analysis.access import Accesses
from warploom.analysis.adjacent_axes import MOVES, moved_axis
from warploom.analysis.matrix_units import doing
from warploom.analysis.memory_order import announcing, ordered
from warploom.analysis.structure import Demand, structure_of
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import must_run
from warploom.ir.core import Builder, Family, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, cluster, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Pointer, Scalar, Shared, Tile, View, i32, shape_of
from warploom.passes.warp import lower_channels, lower_scalars, lower_sums, skip_idle
from warploom.passes.warp import ring_protocol as protocol
from warploom.passes.warp import select_instructions as select
from warploom.schedule import rings
from warploom.schedule.model import Schedule, StorePlan, TaskPlan
from warploom.target import MatrixUnit, Target


def partition_code(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    return _Partition(func, schedule, target).function()


@dataclass(eq=False)
class _Partition:
    """What all tasks share."""

    func: Func
    schedule: Schedule
    target: Target
    top: Builder = field(default_factory=Builder)
    maps: dict[str, Value] = field(default_factory=dict)  # store id -> tensor map
    staging: dict[str, select.Staging] = field(default_factory=dict)
    operands: dict[tuple[str, int], select.Staging] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.structure = structure_of(self.func)
        self.accesses = Accesses(self.func, self.target)
        self.ordered = ordered(self.accesses)
        self.announcing = announcing(self.accesses)
        # Whoever is told to load what is also stored does: that says between which stores.
        aliased = self.accesses.aliased
        self.demand = Demand.assigned(
            self.structure,
            lambda o: (
                o.tasks if (must_run(o) or o in aliased) and o.kind is not task.channel else ()
            ),
        )
        if self.demand.crossings:
            names = ", ".join(v.hint or "a value" for v in self.demand.crossings)
            raise InternalError(f"{names} crosses tasks without a channel")
        self.stores = {s.op: s for s in self.schedule.stores}
        self.idle = {p.loop: p for p in self.schedule.idle}
        self.promoted = {p.dot: p.columns for p in self.schedule.promotions}

    def function(self) -> Func:
        common = self.common()
        self.top.ops.extend(common)
        self.rings, self.own_maps = lower_channels.declare(
            self.func, self.schedule, self.target, self.structure, self.top
        )
        self.numbers = lower_scalars.declare(self.schedule, self.structure, self.top)
        self.sums = lower_sums.declare(self.func, self.schedule, self.top)
        plans = self.schedule.tasks
        regions = tuple(self.region(plan, common) for plan in plans)
        # Of a uniform kernel fuse_tasks makes one task: until then its loads have what warps a CTA has left.
        room = self.target.grid.warps - sum(t.warps * t.replicas for t in plans)
        b = self.top
        task.tasks(
            b,
            names=tuple(t.name for t in plans),
            warps=tuple(t.warps or min(plans[0].warps, room) for t in plans),
            replicas=tuple(t.replicas for t in plans),
            registers=tuple(t.registers for t in plans),
            regions=regions,
        )
        control.yield_(b)
        attrs = {k: v for k, v in self.func.attrs.items() if k != "replicas"}
        if self.schedule.ctas_per_sm > 1:
            attrs["ctas_per_sm"] = self.schedule.ctas_per_sm
        ops = tuple(o.with_(tasks=frozenset()) for o in b.ops)
        body = Region(self.func.params, ops)
        return self.func.with_(body=body, level=Level.WARP, attrs=attrs)

    def common(self) -> list[Op]:
        """Ops at the top that every thread may run before the tasks: scalars and views, without effects."""
        known = set(self.func.params)
        found = []
        for o in self.func.body.ops:
            plain = o.computes and o.kind is not task.replica_id
            whole = all(isinstance(v.type, (Scalar, Pointer, View)) for v in o.results)
            if not (plain and whole and o.results) or not set(o.operands) <= known:
                continue
            known.update(o.results)
            if o in self.demand.tasks:
                found.append(o)
        return found

    def region(self, plan: TaskPlan, common: Iterable[Op]) -> Region:
        writer = _Writer(self, plan)
        writer.env.update((v, v) for v in self.func.params)
        writer.env.update((v, v) for o in common for v in o.results)
        return writer.task(self.func.body, set(common))

    def copies_stored(self, o: Op) -> bool:
        """Does TMA copy what the program's threads may have stored?"""
        if o.kind is not task.produce or o not in self.accesses.aliased:
            return False
        number: int = o.attrs["item"]
        return self.rings[o.operands[0]].items[number].via == "tma"

    def store_plan(self, o: Op, replicas: int) -> tuple[Value, select.Staging]:
        """Tensor map and staging of a store that TMA does."""
        plan: StorePlan = self.stores[o.id]
        if o.id not in self.maps:
            view = self.accesses.view(o)
            inner = self.accesses.inner_axis(view, len(plan.chunk))
            if view is None or inner is None:
                raise InternalError(f"store {o.id} can't be done by TMA")
            staging = select.store_staging(self.top, o, plan, inner, replicas)
            t = staging.place.typed(Shared)
            self.staging[o.id] = staging
            self.maps[o.id] = tma.tensor_map(
                self.top,
                view.result,
                box=plan.chunk,
                inner=inner,
                swizzle=t.swizzle,
                hint=staging.place.hint.replace("_smem", "_map"),
            )
        return self.maps[o.id], self.staging[o.id]

    def operand_staging(
        self, o: Op, axis: int, unit: MatrixUnit, replicas: int, adjacent: int | None
    ) -> select.Staging:
        if (o.id, axis) not in self.operands:
            made = select.operand_staging(self.top, o, axis, unit, replicas, adjacent)
            self.operands[o.id, axis] = made
        return self.operands[o.id, axis]


@dataclass(eq=False)
class _Writer:
    """Writes one task's region.  `env`: values of the function -> values of the region; `places`: items
    (and views of them) -> their shared memory; `staged`: likewise the operands that this block has written
    last, as a unit reads them in steps of K."""

    shared: _Partition
    plan: TaskPlan
    env: dict[Value, Value] = field(default_factory=dict)
    places: dict[Value, Value] = field(default_factory=dict)
    staged: dict[tuple[Value, int, MatrixUnit, int], Value] = field(default_factory=dict)
    stored: bool = False  # some store went through TMA
    alone: bool = False  # in what replica 0 does alone
    replica: Value = field(default_factory=lambda: Value(Scalar(i32), "replica"))
    replica_used: bool = False

    def task(self, body: Region, common: set[Op]) -> Region:
        self.elected = self.plan.role == "producer" and self.only_issues()
        b = Builder()
        self.ops((o for o in body.ops[:-1] if o not in common), b)
        if self.stored:
            select.wait_stores(b)
        control.yield_(b)
        region = b.region()
        if self.elected and len(region.ops) > 1:
            b = Builder()
            task.elect(b, regions=(region,))
            control.yield_(b)
            region = b.region()
        if any(r.everyone is not None for r in self.shared.rings.values()):
            region = _in_step(region)
        if self.shared.sums and self.plan.warps:
            region = lower_sums.announced(region)
        if self.replica_used:
            first = Op(task.replica_id, results=(self.replica,))
            region = Region((), (first, *region.ops))
        return region

    def only_issues(self) -> bool:
        """Can one thread do all that this task does: scalars, and boxes that TMA moves?"""
        for o in self.shared.structure.ops:
            if not self.runs(o) or o.kind is control.yield_:
                continue
            if any(isinstance(v.type, Tile) for v in o.results if self.lives(v)):
                return False
            ring = self.shared.rings.get(o.operands[0]) if o.operands else None
            if ring is not None and not ring.only_tma:
                return False
        return True

    def runs(self, o: Op) -> bool:
        return self.plan.name in self.shared.demand.tasks.get(o, ())

    def lives(self, v: Value) -> bool:
        return (v, self.plan.name) in self.shared.demand.live

    # ---- values

    def get(self, v: Value) -> Value:
        if v in self.env:
            return self.env[v]
        raise InternalError(f"{v.hint or v} of type {v.type} is not known to task {self.plan.name}")

    def fresh(self, v: Value) -> Value:
        new = Value(v.type, v.hint)
        self.env[v] = new
        return new

    def replica_id(self, b: Builder) -> Value:
        if self.plan.replicas == 1:
            return build.const(b, 0)
        self.replica_used = True
        return self.replica

    # ---- ops

    def ops(self, ops: Iterable[Op], b: Builder) -> None:
        unit: list[Op] = []
        for o in ops:
            if not self.runs(o) or o.kind is task.channel:
                continue
            if unit or o.kind is task.producer_acquire:
                unit.append(o)
                if o.kind is task.producer_commit:
                    self.fill(unit, b)
                    unit = []
                continue
            b.loc = o.loc
            self.op(o, b)

    def op(self, o: Op, b: Builder) -> None:
        kind = o.kind
        if kind is control.if_ and self.for_one_replica(o):
            for inner in o.regions[0].ops:  # all replicas come to the barrier
                self.in_order(inner, b)
            self.alone = True
            self.control(o, b)
            self.alone = False
        elif kind in control.LEAD:
            self.in_order(o, b)
            self.control(o, b)
        elif kind is task.replica_id:
            self.env[o.result] = self.replica_id(b)
        elif o.operands and o.operands[0] in self.shared.numbers:
            self.number(o, self.shared.numbers[o.operands[0]], b)
        elif kind is task.consumer_wait:
            protocol.wait(b, self.shared.rings[o.operands[0]], *map(self.get, o.operands[1:]))
        elif kind is task.take:
            ring = self.shared.rings[o.operands[0]]
            self.place(o.result, self.slot_of(o, ring, b), b)
        elif o.operands and o.operands[0] in self.places and rings.is_view(o):
            blocks = [self.get(v) for v in o.operands[1:] if v not in self.places]
            place = protocol.view(b, o, self.places[o.operands[0]], blocks)
            self.place(o.result, place, b)
        elif kind is task.consumer_release:
            protocol.release(b, self.shared.rings[o.operands[0]], self.get(o.operands[1]))
        elif kind is tile.dot:
            self.dot(o, b)
        elif kind is tile.store_box and self.shared.stores[o.id].via == "tma":
            self.store(o, b)
        elif kind is cluster.cluster_sum:
            meeting, x = self.shared.sums[o], self.get(o.operands[0])
            self.env[o.result] = lower_sums.cluster_sum(b, meeting, x, self.replica_id(b))
        else:
            self.in_order(o, b)
            self.copy(o, b)
            if kind is tile.make_view and self.plan.role == "inline":
                self.write_maps(o.result, b)

    def write_maps(self, view: Value, b: Builder) -> None:
        """The descriptors that the kernel writes: when their view is known, by the thread that copies."""

        def write(inner: Builder) -> None:
            for m in self.shared.own_maps[view]:
                tma.map_write(inner, m, self.get(view))

        if view in self.shared.own_maps:
            build.elect(b, write)

    def in_order(self, o: Op, b: Builder) -> None:
        """A barrier before what others stored or still load or store, and before what tells others of all
        stores.  (What the producer does orders its own accesses alone: it has no part in the stores.  What is
        going to be fused into the one task the other copy orders.)"""
        if self.elected or self.alone or self.plan.role == "inline":
            return
        if o in self.shared.announcing and self.plan.role != "producer":
            if any(s.via == "tma" for s in self.shared.stores.values()):
                select.wait_stores(b, read=False)
            # Groups that take tiles in turn announce each its own.
            smem.group_sync(b, scope="replica" if self.shared.schedule.ping_pong_loop else "task")
        elif o in self.shared.ordered and o.regions:  # not for what follows at once alone: it stays
            if any(map(self.shared.copies_stored, o.all_ops)):
                smem.fence_async(b, space="global")
            smem.group_sync(b, scope="task")
        elif o in self.shared.ordered:
            smem.group_sync(b, scope="task", memory=True)

    def for_one_replica(self, o: Op) -> bool:
        """Is o what replica 0 does alone?"""
        maker = self.shared.structure.maker
        test = maker(o.operands[0])
        replica = maker(test.operands[0]) if test is not None and test.kind is arith.eq else None
        return replica is not None and replica.kind is task.replica_id

    def number(self, o: Op, ring: lower_scalars.NumberRing, b: Builder) -> None:
        """What a consumer does to a ring of numbers; whoever put the number knows it."""
        slot = self.get(o.operands[1])
        if o.kind is task.consumer_wait:
            mbarrier.mbarrier_wait(b, ring.full, slot, self.get(o.operands[2]))
        elif o.kind is task.consumer_release:
            mbarrier.mbarrier_arrive(b, ring.empty, slot, by="warp")
        else:
            users = self.shared.structure.users[o.operands[0]]
            (put,) = (u for u in users if u.kind is task.put)
            known = self.get(put.operands[2]) if self.runs(put) else None
            self.env[o.result] = known or ring.take(b, slot, o.result.hint)

    def copy(self, o: Op, b: Builder) -> None:
        operands = tuple(self.get(v) for v in o.operands)
        results = tuple(self.fresh(v) for v in o.results)
        b.append(o.with_(operands=operands, results=results, tasks=frozenset()))

    def slot_of(self, o: Op, ring: lower_channels.Ring, b: Builder) -> Value:
        """Where a taken item lies; of items that are read as one, each stands for the whole."""
        item, slot = o.attrs["item"], self.get(o.operands[1])
        slots = ring.items[item].slots
        for other in b.ops[-len(ring.items) :]:
            if other.kind is smem.shared_slot and other.operands == (slots, slot):
                return other.result
        hint = o.result.hint if ring.items[item].part is None else slots.hint.removesuffix("_smem")
        return smem.shared_slot(b, slots, slot, hint=hint)

    def place(self, v: Value, place: Value, b: Builder) -> None:
        """An item in its slot; where it is used other than in place, in registers as well."""
        self.places[v] = place
        users = self.shared.structure.users.get(v, ())
        if not all(lower_channels.in_place(o, v) for o in users):
            self.env[v] = smem.shared_load(b, place, hint=v.hint)

    def fill(self, unit: list[Op], b: Builder) -> None:
        """From producer_acquire to producer_commit.  What goes through registers is loaded first: the
        wait for the slot overlaps with it."""
        acquire = unit[0]
        b.loc = acquire.loc
        slot, phase = (self.get(v) for v in acquire.operands[1:])
        if acquire.operands[0] in self.shared.numbers:
            (number,) = (self.get(o.operands[2]) for o in unit if o.kind is task.put)
            numbers = self.shared.numbers[acquire.operands[0]]
            lower_scalars.put(b, numbers, slot, phase, number, self.elected)
            return
        ring = self.shared.rings[acquire.operands[0]]
        sources = [protocol.Source()] * len(ring.items)
        made = {o.result: o for o in unit if o.loads or o.kind is task.forward}
        for o in unit:
            if o.kind is task.produce:
                box = tuple(self.get(v) for v in o.operands[2:])
                policy = tile.policy_of(o)
                sources[o.attrs["item"]] = protocol.Source(box, o.operands[2], policy=policy)
            elif o.kind is task.put:
                sources[o.attrs["item"]] = self.source(made[o.operands[2]])

        inline = self.plan.role == "inline"
        sharing = self.shared.schedule.tasks[0].replicas if inline else 1
        protocol.fill(b, ring, slot, phase, sources, self.elected, sharing)

    def source(self, o: Op) -> protocol.Source:
        """A load, or what transpose warps forward, that goes through registers."""
        if o.kind is tile.load_box:
            box = tuple(self.get(v) for v in o.operands)
            return protocol.Source(box, policy=tile.policy_of(o))
        if o.kind is task.forward:
            return protocol.Source(load=lambda b: self.get(o.operands[0]))

        def load(b: Builder) -> Value:
            self.copy(o, b)
            return self.env[o.result]

        return protocol.Source(load=load)

    def dot(self, o: Op, b: Builder) -> None:
        left, right, acc, *scales = o.operands
        unit = doing(o, self.shared.target, self.plan.warps)
        if not unit.reads_shared:
            left, right, *scales = (self.in_registers(v, b) for v in (left, right, *scales))
            operands = (left, right, self.get(acc), *scales)
            self.env[o.result] = select.in_registers(b, o, unit, operands)
            return
        if not unit.is_async:
            operands = (*self.in_shared(o, unit, (0, 1), b), self.get(acc))
            self.env[o.result] = select.by_threads(b, o, operands)
            return
        a = self.readable(left, True) or self.in_registers(left, b)
        (right_place,) = self.in_shared(o, unit, (1,), b)
        zero = build.is_zero(acc, self.shared.structure.maker)
        columns = self.shared.promoted.get(o.id)
        self.env[o.result] = select.dot(b, o, a, right_place, self.get(acc), zero, columns)

    def in_shared(self, o: Op, unit: MatrixUnit, axes: tuple[int, ...], b: Builder) -> list[Value]:
        """Where a unit reads a dot's left (axis 0) and right (axis 1) operands; what is not there yet is
        written there first."""
        found = {axis: self.readable(o.operands[axis], axis == 0, unit) for axis in axes}
        how = unit, rings.promotion_step(o)
        for axis in (axis for axis in axes if found[axis] is None):
            found[axis] = self.staged.get((o.operands[axis], axis, *how))
        staged = [
            (
                axis,
                self.shared.operand_staging(
                    o, axis, unit, self.plan.replicas, self.adjacent(o.operands[axis])
                ),
                self.in_registers(o.operands[axis], b),
            )
            for axis, place in found.items()
            if place is None
        ]
        if staged:
            given = [x[1:] for x in staged]
            places = select.stage_operands(b, given, self.replica_id(b), unit)
            new = dict(zip((x[0] for x in staged), places, strict=True))
            found |= new
            self.staged = {(o.operands[axis], axis, *how): place for axis, place in new.items()}
        return [place for place in found.values() if place is not None]

    def adjacent(self, v: Value) -> int | None:
        """The axis along which what a tile follows from, element by element, lies adjacent in memory."""
        place, o = self.places.get(v), self.shared.structure.maker(v)
        if place is not None:
            return place.type.inner if isinstance(place.type, Shared) else None
        if o is not None and o.kind is tile.load_box:
            view = self.shared.accesses.view(o)
            return self.shared.accesses.inner_axis(view, len(shape_of(v.type)))
        tiles = [x for x in o.operands if shape_of(x.type)] if o is not None else []
        if o is None or not tiles:
            return None
        if o.kind.family is Family.POINTWISE:
            found = {self.adjacent(x) for x in tiles} - {None}
            return found.pop() if len(found) == 1 else None
        axis = self.adjacent(tiles[0]) if o.kind in MOVES else None
        return None if axis is None else moved_axis(o, axis)

    def readable(self, v: Value, is_a: bool, unit: MatrixUnit | None = None) -> Value | None:
        """Where a unit (None: wgmma) can read operand v in place."""
        place = self.places.get(v)
        if place is None or not isinstance(place.type, Shared):
            return None
        anyhow = unit is not None and not unit.is_async
        return place if anyhow or select.readable(place.type, is_a) else None

    def in_registers(self, v: Value, b: Builder) -> Value:
        if v in self.env or v not in self.places:
            return self.get(v)
        return smem.shared_load(b, self.places[v], hint=v.hint)

    def store(self, o: Op, b: Builder) -> None:
        tensor_map, staging = self.shared.store_plan(o, self.plan.replicas)
        value = self.get(o.operands[1])
        offsets = tuple(self.get(v) for v in o.operands[2:])
        policy = tile.policy_of(o)
        if any(x.loads for x in self.shared.accesses.loads_around(o, after=False)):
            # What they read may be where this writes, where a launch passes one array twice.
            smem.fence_async(b, space="global")
        select.store(b, value, offsets, tensor_map, staging, self.replica_id(b), policy)
        self.stored = True

    # ---- control flow

    def control(self, o: Op, b: Builder) -> None:
        carried = enumerate(control.carried(o))
        kept = [i for i, c in carried if any(map(self.lives, (c.result, *c.params)))]
        bare = control.keeping(o, kept)
        operands = tuple(map(self.get, bare.operands))
        regions = []
        for r in bare.regions:
            params = tuple(map(self.fresh, r.params))
            inner = b.nested()
            self.staged = {}
            self.ops(r.ops[:-1], inner)
            self.staged = {}
            control.yield_(inner, *map(self.get, r.yielded))
            regions.append(inner.region(params))
        results = tuple(map(self.fresh, bare.results))
        # The schedule has heard what a loop asks for; only `unroll` is left to do.
        attrs = {k: v for k, v in o.attrs.items() if k == "unroll"}
        made = o.with_(
            attrs=attrs,
            operands=operands,
            results=results,
            regions=tuple(regions),
            tasks=frozenset(),
        )
        idle = self.shared.idle.get(o.id) if self.plan.role == "consumer" else None
        if idle is None:
            b.append(made)
        else:
            bounds = operands[0], operands[1]
            end = skip_idle.end_for(b, idle, self.shared.accesses, o, self.env.get, bounds)
            skip_idle.skip_idle(b, made, end)


def _in_step(region: Region) -> Region:
    """A task of a CTA whose peers multicast into it: no CTA begins before all barriers are initialised, or
    ends while others may still arrive at its own."""
    b = Builder()
    cluster.cluster_arrive(b)
    cluster.cluster_wait(b)
    start = list(b.ops)
    *body, end = region.ops
    b = Builder()
    cluster.cluster_arrive(b)
    cluster.cluster_wait(b)
    return Region(region.params, (*start, *body, *b.ops, end))
