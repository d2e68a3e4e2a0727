"""The chooser: from a TILE function and the user's knobs to a schedule, every decision with its reason.

    loads that feed dots ─▶ producer        dots, stores, other effects ─▶ consumer
    address arithmetic, loop control ─▶ whoever needs it (schedule/demand.py)
    rows, else columns, of the dots' results ─▶ consumer groups (schedule/split.py)
    rings as deep, store staging as wide as shared memory allows

It knows ops, never kernels.  The result is deterministic: ops are visited in program order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

from warploom.errors import CompileError, Loc
from warploom.ir.core import Effect, Func, Op, Value
from warploom.ir.ops import control, tile
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.printer import print_func
from warploom.ir.types import DType, Tile, dtype_of, shape_of
from warploom.layout import turning
from warploom.layout.shared import swizzle_for
from warploom.schedule import clusters, dealing, forms, joining, linear, overlap, rings, tile_ends
from warploom.schedule.access import Accesses
from warploom.schedule.demand import Demand, Structure
from warploom.schedule.hints import Hints, ids, spelled
from warploom.schedule.liveness import Peak, peak
from warploom.schedule.model import (
    MANY_TURNS,
    ChannelPlan,
    Knobs,
    Launch,
    OverlapPlan,
    PromotionPlan,
    Reason,
    Schedule,
    SplitPlan,
    StorePlan,
    TaskPlan,
    relayed,
)
from warploom.schedule.numbers import NUMBER_DEPTH, SLOT_BYTES, Numbers
from warploom.schedule.resources import (
    INSTRUCTION_RESERVE,
    LEAST_RESERVE,
    RESERVE,
    RESERVE_OF_PIECES,
    WARP_GROUP,
    WORK,
    Room,
    budgets,
    check_registers,
    entry_registers,
    excess,
    fits,
    transposer_registers,
)
from warploom.schedule.split import RefusalError, Split
from warploom.target import Target

GROUP_WARPS = 4
MAX_DEPTH = 8  # slots beyond which a ring hides nothing more
TRANSPOSER = "transposer"
LANDING_DEPTH = 2  # slots before a transposer: one lands, the other is turned
VECTOR_DEPTH = 2  # slots of vectors between loops: the next ones come before these are read
MAX_GROUPS = 4  # tried where fewer can't hold a dot's result
STAGING_CHUNK = 64  # rows of a store's staging chunk
_WORKS = {
    "issues": "only issues TMA",
    "copies": "copies boxes by cp.async",
    "holds": "brings boxes through its registers",
    "loads": "loads tiles by pointers",
}
MIN_COLUMNS = 32  # columns that a group is left with where N is split
# Registers left beside the tiles, and whether only the largest result of a dot counts: what is surely enough,
# then what may be just enough, at last what holds each result alone.  ptxas will tell.
_WAYS = ((RESERVE, False), (LEAST_RESERVE, False), (LEAST_RESERVE, True))


def tile_hash(func: Func) -> str:
    """What a schedule carries to show for which TILE text it was made."""
    return hashlib.sha256(print_func(func).encode()).hexdigest()[:16]


def choose(
    func: Func,
    knobs: Knobs,
    target: Target,
    room: Room | None = None,
    launch: Launch | None = None,
) -> Schedule:
    """The schedule for a canonical, numbered TILE function.  room: registers to leave beyond the estimate.
    launch: what is known of the launches; it counts where nobody says whether to specialize.

    Raises CompileError for a dot that wgmma can't take, for memory or registers over the limit and, where
    knobs.strict, for a requested specialization that can't happen (otherwise a Reason with `warn`).
    """
    chooser = _Chooser(func, knobs, target, room or Room())
    schedule = chooser.schedule()
    if not schedule.specialized or not chooser.free:
        return schedule
    return _faster(chooser, schedule, launch or Launch())


def _faster(chooser: _Chooser, schedule: Schedule, launch: Launch) -> Schedule:
    """A specialized kernel's schedule, or the uniform one's where that is predicted to be faster."""
    plain = _Chooser(chooser.func, chooser.knobs, chooser.target, chooser.room, plainly=True)
    work = forms.work_of(chooser.accesses, schedule)
    try:
        other = plain.schedule()
    except CompileError:  # as uniform it doesn't fit
        return schedule
    if work is None or any(r.warn for r in other.reasons):
        return schedule
    tasks, uniform = (
        forms.form_of(chooser.accesses, s, work, c.need, c.target)
        for s, c in ((schedule, chooser), (other, plain))
    )
    verdict = forms.weigh(work, tasks, uniform, launch)
    others = (replace(launch, turns=n) for n in range(1, MANY_TURNS + 1))
    each = {(v.uniform, v.short) for v in (forms.weigh(work, tasks, uniform, x) for x in others)}
    if verdict.uniform:
        reason = Reason("kernel", "uniform", verdict.because)
        return replace(other, reasons=(reason, *other.reasons), by_turns=len(each) > 1)
    reason = Reason("kernel", "specialized rather than uniform", verdict.because)
    short = (work.loop.id, verdict.short) if verdict.short else None
    reasons = (*schedule.reasons, reason)
    return replace(schedule, reasons=reasons, short=short, by_turns=len(each) > 1)


@dataclass(eq=False)
class _Chooser:
    func: Func
    knobs: Knobs
    target: Target
    room: Room = field(default_factory=Room)
    plainly: bool = False  # a uniform kernel, whatever could be had
    again: dict[tuple[Op, ...], list[tuple[Op, ...]]] = field(
        default_factory=dict
    )  # as rings.shared
    cramped: str = ""  # why the first split that registers forbade needs too many
    reserve: int = RESERVE  # registers a thread of a consumer beside its tiles
    alone: bool = False  # count what the largest result of a dot takes, not all tiles together
    need: int = 0  # registers a thread of a consumer, with the split that was chosen
    relays: frozenset[Op] = frozenset()  # loads whose items go through a transposer
    pieces: int = 1  # of the columns of promoting dots, with that split
    reasons: list[Reason] = field(default_factory=list)
    stayed: dict[Op, str] = field(default_factory=dict)  # loads that no producer does, and why
    cut: tuple[dict[Value, int], int] = field(default_factory=lambda: ({}, 1))  # as Split.forward

    def __post_init__(self) -> None:
        self.structure = Structure(self.func.body)
        self.accesses = Accesses(self.func, self.structure, self.target)
        self.ops = [o for o in self.structure.ops if o.kind is not control.yield_]
        self.dots = [o for o in self.ops if o.kind is tile.dot]
        self.aliased = self.accesses.aliased()
        self.hints = Hints(self.func, self.structure)

    def because(self, subject: str, decision: str, reason: str, warn: bool = False) -> None:
        self.reasons.append(Reason(subject, decision, reason, warn))

    def unmet(self, o: Op, decision: str, why: str) -> None:
        """What the source or the launch asks of op o is not done: a warning, an error where strict."""
        if self.knobs.strict:
            raise CompileError(
                "not-as-asked",
                f"{o.id}: {decision}, because {why}",
                o.loc,
                help="ask for what fits, or drop strict=True for a warning",
            )
        self.because(o.id, decision, why, warn=True)

    def tell_hints(
        self,
        specialized: bool,
        channels: tuple[ChannelPlan, ...],
        stores: tuple[StorePlan, ...] = (),
    ) -> None:
        """What became of the hints in the source."""
        handed = [s.op for s in stores if s.by_task]
        for o, told in self.hints.kept(specialized, channels, handed):
            if told.warn:
                self.unmet(o, told.decision, told.because)
            else:
                self.reasons.append(told)

    # ---- the road

    def schedule(self) -> Schedule:
        self.check_limits()
        if not self.dots:
            return self.plain()
        for o in self.dots:
            self.check_dot_types(o)
        loads = self.producer_loads()
        demand, loads = self.demand(loads)
        specialized = self.specialized(loads)
        if not specialized:
            demand, loads = self.demand(loads, is_fused=True)
        elif any(self.hints.keeps(o) for o in loads):
            demand, loads = self.demand([o for o in loads if not self.kept(o)])
        if specialized and (vectors := self.vectors(loads)):
            demand, loads = self.demand([o for o in self.ops if o in loads or o in vectors])
        main, side = ("consumer", "producer") if specialized else ("main", "loads")
        self.relays = self.relayed(loads) if specialized else frozenset()
        dealt = self.deal(demand, loads, specialized)
        axis, replicas = (
            (None, self.groups_in_turn()) if dealt else self.split(demand, loads, specialized)
        )
        vias = self.vias(loads)
        joins = self.joins(vias, replicas, specialized)

        def mine(o: Op) -> bool:
            return "use" in demand.tasks.get(o, ())

        groups = rings.group(self.structure, loads, mine, joins.stands)
        kept = {o for g in groups for o in g}
        if specialized and not (self.relays or dealt or joins.groups or self.knobs.num_ctas > 1):
            groups, self.again = rings.shared(self.accesses, groups, vias, self.stages_asked)
        loads = [o for o in loads if o in kept]
        shared = specialized and not dealt
        ends = tile_ends.find(self.structure, mine, replicas) if shared else []
        wanted = tile_ends.wanted_depth(ends, self.knobs)
        for o in self.relays:  # a transposer runs the control flow around what it turns
            for outer in self.structure.enclosing(o):
                demand.run(outer, "turn")
        names = {"use": main, "load": side, "turn": TRANSPOSER}
        numbers = self.number_channels(demand, names)
        channels, stores = self.memory(
            groups, vias, main, side, replicas, specialized, wanted, numbers
        )
        stores = self.handed_over(stores, loads, replicas, specialized, bool(numbers))
        self.tell_hints(specialized, channels, stores)
        lean = shared and self.overlapping(demand, loads)
        tasks = self.tasks(main, side, replicas, vias, loads, specialized, lean)
        if any(s.by_task for s in stores):
            tasks = _with_stores(tasks)
        overlaps = self.overlaps(demand, loads, tasks[0]) if shared else ()
        deferred = self.deferred(overlaps)
        entry = entry_registers(sum(t.warps * t.replicas for t in tasks) * 32, self.target)
        promotions = self.promotions(joins, tasks[0].registers or entry)
        turns = self.turns(ends, channels)
        assign = {
            o.id: tuple(names[t] for t in names if t in demand.tasks[o]) for o in self.ops if o.id
        }
        late = any(c.depth > 1 for c in channels)
        self.because(
            "kernel",
            f"{int(late)} wgmma in flight",
            "the slot of the step before is released while the next step runs"
            if late
            else "a ring of one slot is drained each step",
        )
        return Schedule(
            tile_hash=tile_hash(self.func),
            specialized=specialized,
            tasks=tasks,
            assign=assign,
            split=SplitPlan(axis, 1 if dealt else replicas),
            channels=(*channels, *numbers),
            stores=stores,
            wgmma_in_flight=int(late),
            reasons=tuple(self.reasons),
            overlaps=overlaps,
            deferred=deferred,
            joined=joins.ids(),
            promotions=promotions,
            turns=turns,
            relays=tuple(o.id for o in loads if o in self.relays),
            dealt=dealt,
        )

    def overlaps(
        self, demand: Demand, loads: list[Op], consumer: TaskPlan
    ) -> tuple[OverlapPlan, ...]:
        """Loops of the consumer whose iterations overlap."""
        threads = self.groups(consumer.replicas) * WARP_GROUP
        registers = consumer.registers or entry_registers(threads, self.target, self.knobs.maxnreg)
        chosen, reasons = overlap.plans(
            self.structure,
            self.knobs,
            overlap.Groups(consumer.replicas, registers - self.room.consumer),
            lambda o: "use" in demand.tasks.get(o, ()),
            self.in_place(loads),
        )
        self.tell(reasons)
        return tuple(chosen)

    def overlapping(self, demand: Demand, loads: list[Op]) -> bool:
        """Are iterations of some loop of the consumer to overlap, if there are registers?"""
        if self.knobs.consumer_stages == 1 or self.knobs.num_ctas > 1:
            return False

        def mine(o: Op) -> bool:
            return "use" in demand.tasks.get(o, ())

        loops = (o for o in self.structure.ops if o.kind is control.for_ and mine(o))
        found = (overlap.find(o, mine, self.in_place(loads)) for o in loops)
        return any(x is not None and not x.why_not for x in found)

    def in_place(self, loads: list[Op]) -> Callable[[Value], bool]:
        """Does wgmma read a right operand where a load put it?"""
        items = {o.result for o in loads}

        def in_place(v: Value) -> bool:
            maker = self.structure.maker(v)
            while v not in items and maker is not None and maker.kind in rings.VIEWS:
                v = maker.operands[0]
                maker = self.structure.maker(v)
            return v in items

        return in_place

    def turns(
        self,
        ends: list[tile_ends.TileEnd],
        channels: tuple[ChannelPlan, ...],
    ) -> tuple[str, ...]:
        """The main loops behind which the groups take turns."""

        def depth(loop: Op) -> int:
            inside = {o.id for o in self.structure.ops if loop in self.structure.enclosing(o)}
            return min((c.depth for c in channels if inside.intersection(c.all_items)), default=0)

        chosen, reasons = tile_ends.plans(ends, self.knobs, depth)
        self.tell(reasons)
        if self.knobs.end_turns and not ends:
            why = "no loop over tiles, shared by several groups, goes on behind it"
            self.unmet(self.dots[0], "groups don't finish their tiles in turns", why)
        return chosen

    def tell(self, reasons: list[Reason]) -> None:
        """Records decisions; one against a request is a warning, an error where strict."""
        for r in reasons:
            if r.warn:
                self.unmet(next(o for o in self.ops if o.id == r.subject), r.decision, r.because)
            else:
                self.reasons.append(r)

    def deferred(self, overlaps: tuple[OverlapPlan, ...]) -> tuple[str, ...]:
        """Row sums that cross lanes behind their loop."""
        loops = {p.loop for p in overlaps}
        found = [o for p in self.ops if p.id in loops for o in linear.deferrable(p, self.from_dot)]
        for o in found:
            self.because(
                o.id,
                "its lanes are added up behind the loop",
                "the loop only scales the sum and adds to it",
            )
        return tuple(o.id for o in found)

    def promotions(self, joins: joining.Joins, registers: int) -> tuple[PromotionPlan, ...]:
        """How the promoting dots add up their partial sums, dots that become one as one.  registers: that a
        thread of the consumer has."""
        rest = self.need - self.partial(self.pieces)
        plans = []
        for o in (o for o in self.dots if o.attrs.get("max_imprecise")):
            group = next((g for g in joins.groups if o in g), (o,))
            rows, columns = (
                n // parts for n, parts in zip(shape_of(o.result.type), self.parts(o), strict=True)
            )
            counts = _pieces([columns * len(group)])
            fits = (
                p
                for p in counts
                if rest + rows * columns * len(group) // p // WARP_GROUP <= registers
            )
            at_once = columns * len(group) // next(fits, counts[-1])
            plans.append(PromotionPlan(o.id, at_once))
            said = f"promoted each {o.attrs['max_imprecise']} of K, {at_once} columns at a time"
            self.because(o.id, said, "a partial sum and the total fit the registers")
        return tuple(plans)

    def check_limits(self) -> None:
        """Knobs that no CTA can have."""
        knobs, target = self.knobs, self.target
        if not 1 <= knobs.num_warps <= target.max_warps:
            raise CompileError(
                "num-warps",
                f"num_warps={knobs.num_warps}: a CTA has 1 to {target.max_warps} warps",
                self.func.loc,
                help=f"use num_warps={GROUP_WARPS} or {2 * GROUP_WARPS}",
            )
        most = target.max_registers_per_thread
        if knobs.maxnreg is not None and not 1 <= knobs.maxnreg <= most:
            raise CompileError(
                "maxnreg",
                f"maxnreg={knobs.maxnreg}: a thread has 1 to {most} registers",
                self.func.loc,
                help="leave maxnreg out: by default a thread gets what a CTA of its size can have",
            )

    def plain(self) -> Schedule:
        """One task, no channels: nothing here feeds a tensor core."""
        because = "it has no dot: there is nothing that a producer could run ahead of"
        self.uniform(because, self.func.loc, "kernel")
        self.tell_hints(False, ())
        return Schedule(
            tile_hash=tile_hash(self.func),
            specialized=False,
            tasks=(TaskPlan("main", "main", self.knobs.num_warps, 1, None),),
            assign={o.id: ("main",) for o in self.ops if o.id},
            split=SplitPlan(None, 1),
            channels=(),
            stores=tuple(
                StorePlan(o.id, "direct")
                for o in self.ops
                if o.kind in (tile.store, tile.store_box)
            ),
            wgmma_in_flight=0,
            reasons=tuple(self.reasons),
        )

    def uniform(self, why: str, loc: Loc | None, subject: str) -> None:
        """Records why there are no tasks: against every request for them a warning, an error where strict."""
        asked: list[tuple[str, str, Loc | None]] = []
        if self.knobs.num_consumer_groups:
            asked.append((f"num_consumer_groups={self.knobs.num_consumer_groups}", subject, loc))
        asked += [(what, o.id, o.loc) for what, o in self.hints.for_tasks()]
        for what, of, where in asked:
            if self.knobs.strict:
                raise CompileError(
                    "no-specialization",
                    f"{what} was asked for, but {why}",
                    where,
                    help="drop strict=True to compile a uniform kernel",
                )
            self.because(of, f"uniform, against {what.split('=')[0]}", why, warn=True)
        if not asked:
            self.because("kernel", "uniform", why)

    # ---- tasks

    def producer_loads(self) -> list[Op]:
        """Loads of whole tiles that reach a dot's operands by tile arithmetic alone, and those for which the
        source asks."""
        seen: set[Op] = set()
        found = [o for o in self.ops if self.hints.wants_producer(o)]
        work = [v for o in reversed(self.dots) for v in (o.operands[1], o.operands[0])]
        while work:
            made = self.structure.made[work.pop()]
            o = made.op
            if o is None or made.region is not None or o in seen or o.regions:
                continue
            seen.add(o)
            if o.kind in (tile.load, tile.load_box):
                found.append(o)
            elif o.kind not in (tile.dot, tile.reduce, tile.atomic):
                work.extend(v for v in reversed(o.operands) if isinstance(v.type, Tile))
        return [o for o in self.ops if o in found and self.movable(o)]

    def movable(self, o: Op) -> bool:
        """May load o be issued by a task of its own?  Small ones are not worth a slot."""
        why = self.why_not_movable(o)
        if why:
            self.stays(o, why)
        return why is None

    def why_not_movable(self, o: Op) -> str | None:
        shape = shape_of(o.result.type)
        if len(shape) != 2 or shape[0] * shape[1] < WARP_GROUP:
            return f"a ring carries matrices of {WARP_GROUP} elements and more"
        return self.why_not_ahead(o)

    def why_not_ahead(self, o: Op) -> str | None:
        if o.attrs.get("volatile"):
            return "it is volatile"
        if o in self.aliased:
            base = self.accesses.base(o.operands[0])
            name = "an unknown pointer" if base is None else self.func.params[base].hint
            return f"the kernel also writes through {name}"
        if any(
            outer.kind is control.while_ and self.structure.within(o, outer.regions[0]) is not None
            for outer in self.structure.enclosing(o)
        ):
            return "it decides whether a loop goes on"
        return None

    def vectors(self, loads: list[Op]) -> list[Op]:
        """Rows of numbers that the consumer reads in a loop: the producer brings them where TMA can, so that
        no tile's end waits for memory."""
        return [
            o
            for o in self.ops
            if o.kind is tile.load_box
            and rings.is_vector(o)
            and o not in loads
            and any(p.kind is not control.if_ for p in self.structure.enclosing(o))
            and self.why_not_ahead(o) is None
            and self.hints.keeps(o) is None
            and self.accesses.why_not_tma(o, shape_of(o.result.type)) is None
        ]

    def relayed(self, loads: list[Op]) -> frozenset[Op]:
        """Bytes that wgmma needs in another order than memory has them, and that can land as they are."""
        found = set()
        for o in loads:
            t = o.result.type
            assert isinstance(t, Tile)
            if not isinstance(t.elem, DType) or t.elem.bits != 8 or rings.is_vector(o):
                continue
            wanted = rings.wanted_inner(self.structure, o.result)
            if wanted is None or rings.misplaced(self.accesses, o) is None:
                continue
            lands = rings.choose_via(self.accesses, o, relayed=True)[0] != "registers"
            if lands and turning(t.shape, wanted, GROUP_WARPS) is not None:
                found.add(o)
        return frozenset(found)

    def stays(self, o: Op, why: str) -> None:
        """Load o is not given to a producer, though it might have been."""
        self.stayed[o] = why
        if self.hints.wants_producer(o) and self.knobs.num_consumer_groups != 0:
            self.unmet(o, f"not moved ahead, against {spelled(ids(o))}", why)
        else:
            self.because(o.id, "not moved ahead", why)

    def kept(self, o: Op) -> bool:
        """Does the source keep load o in the task that uses it?"""
        why = self.hints.keeps(o)
        if why:
            self.because(o.id, "not moved ahead", why)
        return why is not None

    def demand(self, loads: list[Op], is_fused: bool = False) -> tuple[Demand, list[Op]]:
        """Who runs what ('use', 'load'), and the loads that a producer can issue by itself.

        is_fused: both are going to be one task, which runs once what gives numbers."""
        while True:
            numbers = Numbers(self.structure, self.accesses)
            while True:
                fixed = self.fixed(loads, numbers, is_fused)
                stuck = self.stuck(numbers, fixed)
                if stuck is None:
                    break
                numbers.drop(*stuck)
            demand = Demand(self.structure, fixed)
            for o in self.ops:
                if o in fixed and not o.regions:
                    for t in sorted(fixed[o]):
                        if t == "use" or not is_fused or o in loads:
                            demand.run(o, t)
            blocked = self.blocked(demand, loads, numbers)
            if not blocked:
                break
            loads = [o for o in loads if o not in blocked]
        for o in self.ops:  # what nobody needs stays where it can do no harm
            if o not in demand.tasks:
                demand.run(o, "use")
        return demand, loads

    def fixed(self, loads: list[Op], numbers: Numbers, is_fused: bool) -> dict[Op, frozenset[str]]:
        """Where ops have to run that are not replicated."""
        fixed = {o: frozenset({"use"}) for o in self.ops if self.anchored(o)}
        fixed |= {o: frozenset({"load"}) for o in loads}
        if is_fused:
            return fixed | {o: frozenset({"use", "load"}) for o in numbers.given}
        return fixed | {o: frozenset({"load"}) for o in numbers.ops}

    def stuck(self, numbers: Numbers, fixed: dict[Op, frozenset[str]]) -> tuple[Op, str] | None:
        """An op that gives numbers, and what of the consumers' it would have to wait for."""
        for o in numbers.ops:
            alone = Demand(self.structure, fixed)
            alone.run(o, "load")
            sent = next((v for v, tasks in alone.crossings.items() if "load" in tasks), None)
            if sent is not None:
                return o, f"it depends on {self.made_by(sent)}"
        return None

    def made_by(self, v: Value) -> str:
        maker = self.structure.maker(v)
        return maker.id if maker is not None else "a value"

    def anchored(self, o: Op) -> bool:
        effects = (Effect.WRITE | Effect.SYNC) & o.kind.effect
        fixed = o.kind is tile.dot or bool(effects) or bool(o.attrs.get("volatile"))
        return fixed or (o.kind in (tile.load, tile.load_box) and o in self.aliased)

    def blocked(self, demand: Demand, loads: list[Op], numbers: Numbers) -> set[Op]:
        """Loads whose addresses or conditions need what only the consumer (or a load) computes."""
        needed = [o for o in loads if (o.result, "load") in demand.live]
        for o in needed:
            self.stays(o, "an address or a condition depends on it")
        found = set(needed)
        if found or not any("load" in tasks for tasks in demand.crossings.values()):
            return found
        for o in loads:
            alone = Demand(self.structure, demand.fixed)
            alone.run(o, "load")
            sent = [v for v, tasks in alone.crossings.items() if "load" in tasks]
            if sent:
                maker = self.structure.maker(sent[0])
                because = numbers.why_not.get(maker, "") if maker is not None else ""
                more = f", which stays with the consumers: {because}" if because else ""
                self.stays(o, f"its address or condition depends on {self.made_by(sent[0])}{more}")
                found.add(o)
        return found

    @property
    def free(self) -> bool:
        """Has nobody said whether to specialize, or asked for what only tasks have?"""
        k = self.knobs
        of_tasks = (k.num_consumer_groups, k.num_buffers_warp_spec, k.consumer_stages)
        registers = (k.reg_dec_producer, k.reg_inc_consumer)
        said = any(x is not None for x in (*of_tasks, *registers, k.ping_pong, k.wait_eighths))
        return not said and k.num_ctas == 1 and not self.hints.for_tasks()

    def specialized(self, loads: list[Op]) -> bool:
        if self.plainly:
            return False
        if self.knobs.num_consumer_groups == 0:
            self.because("kernel", "uniform", "num_consumer_groups=0")
            for what, o in self.hints.for_tasks():
                self.because(o.id, f"no task, against {what}", "num_consumer_groups=0 comes first")
            return False
        free = [o for o in loads if not self.hints.keeps(o)]
        asked = [o for o in free if self.hints.wants_producer(o)]
        looped = [
            o for o in free if any(p.kind is not control.if_ for p in self.structure.enclosing(o))
        ]
        if looped or asked:
            why = (
                f"{_ids(looped)} feed dots in a loop: a producer runs ahead"
                if looped
                else f"{spelled(ids(asked[0]))} gives {_ids(asked)} to a task of their own"
            )
            self.because("kernel", "specialized", why)
            return True
        first = self.dots[0]
        if not loads:
            why = f"no load that feeds {_ids(self.dots)} could be given to a producer"
            if self.stayed:
                o, because = next(iter(self.stayed.items()))
                why += f": {o.id} not, as {because}"
        elif free:
            why = f"{_ids(free)} stand in no loop: there is nothing to run ahead of"
        else:
            why = f"{_ids(loads)} must not leave: {self.hints.keeps(loads[0])}"
        self.uniform(why, first.loc, first.id)
        return False

    # ---- tiles in turn

    def groups_in_turn(self) -> int:
        """Consumer groups where each takes tiles of its own."""
        return self.knobs.num_consumer_groups or self.asked_groups() or 2

    def deal(self, demand: Demand, loads: list[Op], specialized: bool) -> str:
        """The loop whose iterations the consumer groups take in turn; empty where they share tiles."""
        if self.knobs.ping_pong != "tiles":
            return ""
        loop = dealing.loop_of(self.structure, self.dots)
        why = self.why_not_dealt(loop, demand, loads, specialized)
        if why or loop is None:
            self.unmet(loop or self.dots[0], "groups share a tile, against ping_pong='tiles'", why)
            return ""
        self.because(
            loop.id,
            f"{self.groups_in_turn()} groups take its iterations in turn, each a tile of its own",
            "its iterations need nothing of each other: one group's epilogue runs under another's dots",
        )
        return loop.id

    def why_not_dealt(
        self, loop: Op | None, demand: Demand, loads: list[Op], specialized: bool
    ) -> str:
        if not specialized:
            return "the kernel is uniform"
        if loop is None:
            return "its dots stand in no loop over tiles"
        if self.groups_in_turn() < 2:
            return "there is one group"
        if self.knobs.num_ctas > 1:
            return "not yet in clusters, whose CTAs release each other's slots"

        def mine(o: Op) -> bool:
            return "use" in demand.tasks.get(o, ())

        why: str | None = dealing.why_not(loop, self.accesses, demand, mine)
        if why:
            return why
        for self.reserve, self.alone in _WAYS:
            why = self.try_split(demand, loads, True, 0, 1, self.groups_in_turn())
            if why is None:
                return ""
        return str(why)

    # ---- data split

    def split(self, demand: Demand, loads: list[Op], specialized: bool) -> tuple[str | None, int]:
        warps = self.knobs.num_warps
        if warps % GROUP_WARPS:
            raise CompileError(
                "num-warps",
                f"num_warps={warps}: a dot runs on warp groups of {GROUP_WARPS} warps",
                self.dots[0].loc,
                help=f"use num_warps={GROUP_WARPS}",
            )
        each = warps // GROUP_WARPS
        asked = self.asked_groups()
        groups = self.knobs.num_consumer_groups or asked
        wanted = each
        if specialized:
            wanted = groups * each if groups else max(2, each)
        refusals: list[str] = []
        counts = (*range(wanted, 0, -1), *range(wanted + 1, MAX_GROUPS + 1))
        for self.reserve, self.alone in _WAYS:
            for count, axis in ((n, axis) for n in counts for axis in ((0, 1) if n > 1 else (0,))):
                name = "MN"[axis]
                why = self.try_split(demand, loads, specialized, axis, count)
                if why is None:
                    self.explain_split(name if count > 1 else None, count, wanted, refusals)
                    return (name if count > 1 else None), count
                refusals.append(f"{name} / {count}: {why}")
        raise self.dot_error()

    def asked_groups(self) -> int | None:
        """Consumer groups by the dots' tl.async_task: as many as it has numbers, from two on."""
        named = next((o for o in self.dots if ids(o)), None)
        n, given = len(self.hints.main), self.knobs.num_consumer_groups
        if named is None or n < 2:
            return None
        if given and given != n:
            why = f"num_consumer_groups={given} comes first"
            self.because(named.id, f"not {n} groups, against {spelled(ids(named))}", why)
        return n

    def explain_split(self, axis: str | None, count: int, wanted: int, refusals: list[str]) -> None:
        """Records the split; one that was not asked for is a warning, or an error where strict."""
        asked = self.knobs.num_consumer_groups
        given = asked is not None or self.knobs.num_warps != GROUP_WARPS
        warn = given and count != wanted
        reason = (
            "; ".join(dict.fromkeys(refusals[:2])) or "each part fills whole wgmma instructions"
        )
        if warn and asked and self.knobs.strict:
            raise CompileError(
                "no-specialization",
                f"num_consumer_groups={asked} was asked for, but {reason}",
                self.dots[0].loc,
                help=f"use blocks that {wanted} groups can share, or drop strict=True for {count}",
            )
        decision = f"{axis} split over {count} groups" if axis else "one consumer group"
        if warn:
            decision += f" instead of {wanted}"
        self.because(self.dots[0].id if warn else "kernel", decision, reason, warn)

    def try_split(
        self,
        demand: Demand,
        loads: list[Op],
        specialized: bool,
        axis: int,
        count: int,
        groups: int = 0,
    ) -> str | None:
        """None where the dots' axis can be cut into `count` parts, else why not.  groups: where each has a
        tile of its own, how many there are."""

        def mine(o: Op) -> bool:
            return "use" in demand.tasks.get(o, ())

        items = frozenset(o.result for o in loads)
        try:
            split = Split(self.structure, mine, items, axis, count)
        except RefusalError as refusal:
            return f"{refusal.op.id}: {refusal}"
        for o in self.dots:
            m, n = shape_of(o.result.type)
            cut = split.forward.get(o.result, axis)
            rows, columns = (m // count, n) if cut == 0 else (m, n // count)
            if rows % self.target.wgmma_m:
                return f"{o.id} would be left with {rows} rows, wgmma takes multiples of 64"
            if columns % 8 or columns > self.target.wgmma_max_n:
                return f"{o.id} would be left with {columns} columns, wgmma takes multiples of 8 up to 256"
            if count > 1 and cut == 1 and columns < MIN_COLUMNS:
                return f"{o.id} would be left with {columns} columns, fewer than {MIN_COLUMNS}"
        before, self.cut = self.cut, (split.forward, count)

        def registers(v: Value) -> int:
            m, *rest = (*shape_of(v.type), 1)
            whole = -(-m * prod(rest) * dtype_of(v.type).bits // (32 * WARP_GROUP))
            versions = split.versions.get(v) or {split.forward.get(v)}
            return sum(whole if cut is None else -(-whole // count) for cut in versions)

        if self.alone:
            worst = max((o.result for o in self.dots), key=registers)
            tiles = Peak(registers(worst), (worst,))
        else:
            tiles = peak(self.structure, mine, items, registers)
        why = self.why_cramped(tiles, loads, specialized, groups or count)
        if why is not None:
            self.cut, self.cramped = before, self.cramped or why
        return why

    def why_cramped(
        self, tiles: Peak, loads: list[Op], specialized: bool, count: int
    ) -> str | None:
        """None where the registers of `count` groups hold what the dots keep there, else why not."""
        groups = self.groups(count) if specialized else count
        turner = self.transposer_registers()
        if groups * GROUP_WARPS > self.target.max_warps:
            return None  # no CTA has so many warps: `tasks` says that
        limit = None if specialized else self.knobs.maxnreg
        entry = entry_registers(groups * WARP_GROUP, self.target, limit)
        for o in self.dots:
            columns = shape_of(o.result.type)[1] // self.parts(o)[1]
            one = columns * dtype_of(o.result.type).bits // 64
            if one + INSTRUCTION_RESERVE > entry and groups > 1:
                return (
                    f"{o.id}: an instruction of {columns} columns needs {one} registers a thread for its "
                    f"result and {INSTRUCTION_RESERVE} more, {groups} warp groups are launched with {entry}"
                )
        reserve = self.reserve + self.room.consumer
        work = self.work(loads)
        if not specialized and work in ("holds", "loads") and self.reserve == RESERVE:
            reserve += RESERVE_OF_PIECES
        have = 0
        for pieces in self.piece_counts():
            need = tiles.registers + self.partial(pieces) + reserve
            have = entry_registers(groups * WARP_GROUP, self.target)
            if specialized:
                found = budgets(count, work, self.target, need, self.room, turner)
                most = budgets(count, work, self.target, 0, self.room, turner)
                have = self.knobs.reg_inc_consumer or (found or most or (0, entry))[1]
            if need <= have:
                self.need, self.pieces = need, pieces
                return None
        names = ", ".join(dict.fromkeys(self.naming(v) for v in tiles.values))
        return (
            f"{names} {'need' if len(tiles.values) > 1 else 'needs'} {tiles.registers} registers a thread, "
            f"of the {have} that a thread has {reserve} are for the rest"
        )

    def groups(self, replicas: int) -> int:
        """Warp groups of a specialized kernel."""
        return replicas + 1 + bool(self.relays)

    def transposer_registers(self) -> int:
        """Registers a thread of the transposer, 0 where there is none: it holds an item at a time."""
        items = (transposer_registers(rings.slot_bytes(o.result)) for o in self.relays)
        return max(items, default=0)

    def promoted(self) -> list[tuple[int, int]]:
        """Shapes of the promoting dots' results, after the split that `cut` says."""
        found = []
        for o in self.dots:
            if o.attrs.get("max_imprecise"):
                (m, n), (rows, columns) = shape_of(o.result.type), self.parts(o)
                found.append((m // rows, n // columns))
        return found

    def piece_counts(self) -> list[int]:
        """Into how many pieces the columns of promoting dots may be cut, fewest first: wide products are the
        fastest."""
        return _pieces([n for _, n in self.promoted()])

    def partial(self, pieces: int) -> int:
        """Registers a thread of a partial sum before it is promoted."""
        return max((m * n // pieces // WARP_GROUP for m, n in self.promoted()), default=0)

    def naming(self, v: Value) -> str:
        """The op that a tile comes from, or the name of one that a loop carries."""
        o = self.structure.maker(v)
        return o.id if o is not None and o.id else v.hint or "a tile"

    def work(self, loads: list[Op]) -> str:
        """The heaviest of what filling the rings asks of threads, after the split that `cut` says."""
        vias = (rings.choose_via(self.accesses, o, self.parts, o in self.relays) for o in loads)
        found = (_work(o, via) for o, (via, _) in zip(loads, vias, strict=True))
        return max(found, key=WORK.index, default=WORK[0])

    def check_dot_types(self, o: Op) -> None:
        a = dtype_of(o.operands[0].type)
        k = shape_of(o.operands[0].type)[1]
        if a.bits > 16:
            raise CompileError(
                "dot-dtype",
                f"dot of {a}: the tensor core path takes f16, bf16 and fp8 operands",
                o.loc,
                help="cast the operands to bf16 or f16: there is no tf32, whatever input_precision permits",
            )
        unit = 32 // a.bytes
        if k % unit:
            raise CompileError(
                "wgmma-k",
                f"dot over K = {k}: wgmma takes multiples of {unit} for {a}",
                o.loc,
                help=f"use a BLOCK_K that is a multiple of {unit}",
            )
        limit = o.attrs.get("max_imprecise")
        if limit and limit < unit:
            raise CompileError(
                "dot-promotion",
                f"max_num_imprecise_acc={limit}: an instruction sums {unit} of K",
                o.loc,
                help=f"use max_num_imprecise_acc={unit}",
            )

    def dot_error(self) -> CompileError:
        """For dots that no split makes legal."""
        for o in self.dots:
            m, n = shape_of(o.result.type)
            if m % self.target.wgmma_m:
                return CompileError(
                    "wgmma-m",
                    f"dot of {m} rows: wgmma takes multiples of {self.target.wgmma_m}",
                    o.loc,
                    help=f"use a BLOCK_M that is a multiple of {self.target.wgmma_m}, or compute the "
                    "transposed product",
                )
            if n % 8 or n > self.target.wgmma_max_n:
                return CompileError(
                    "wgmma-n",
                    f"dot of {n} columns: wgmma takes multiples of 8 up to {self.target.wgmma_max_n}",
                    o.loc,
                    help="use a BLOCK_N that is a multiple of 8, or split a wider one among more groups",
                )
        return CompileError(
            "registers",
            self.cramped,
            self.dots[0].loc,
            help="use smaller blocks, more consumer groups, or (uniform) num_warps=8",
        )

    # ---- channels, stores, memory

    def parts(self, dot: Op) -> tuple[int, int]:
        """Into how many parts M and N of a dot are cut by the split that was chosen."""
        cut, count = self.cut
        axis = cut.get(dot.result)
        return (count if axis == 0 else 1), (count if axis == 1 else 1)

    def vias(self, loads: list[Op]) -> dict[Op, str]:
        found = {}
        for o in loads:
            via, fact = rings.choose_via(self.accesses, o, self.parts, o in self.relays)
            self.because(o.id, f"filled by {via}", fact)
            if o in self.relays:
                why = rings.misplaced(self.accesses, o, self.parts)
                assert why is not None
                self.because(o.id, "turned by a transposer", why)
            found[o] = via
        return found

    def joins(self, vias: dict[Op, str], replicas: int, specialized: bool) -> joining.Joins:
        """Dots that multiply the same left operand, as one."""
        groups = self.groups(replicas) if specialized else replicas
        most = self.target.wgmma_max_n
        if groups > 1:  # what one instruction may take of the registers: see why_cramped
            entry = entry_registers(groups * WARP_GROUP, self.target)
            most = min(most, 2 * (entry - INSTRUCTION_RESERVE))

        def columns(dot: Op) -> int:
            return shape_of(dot.result.type)[1] if self.parts(dot)[1] == 1 else 0

        def via(o: Op) -> str | None:  # what a transposer makes of them lies in rings of their own
            return None if o in self.relays else vias.get(o)

        found = joining.find(self.structure, via, columns, most)
        for g in found.groups:
            n = sum(map(columns, g))
            self.because(
                g[-1].id,
                f"one product of {n} columns with {_ids(list(g[:-1]))}",
                "they multiply the same tile; the right operands lie side by side in a slot",
            )
        for o, why in found.refused:
            self.because(o.id, "a product of its own", why)
        return found

    def memory(
        self,
        groups: list[tuple[Op, ...]],
        vias: dict[Op, str],
        main: str,
        side: str,
        replicas: int,
        specialized: bool,
        wanted: int,
        numbers: tuple[ChannelPlan, ...],
    ) -> tuple[tuple[ChannelPlan, ...], tuple[StorePlan, ...]]:
        """Depths and staging that fit together: rings of `wanted` slots come before more than one buffer of
        staging, two slots before any."""
        links = [x for g in groups for x in self.links(g, groups, main, side, specialized)]
        slot = [sum(rings.slot_bytes(o.result) for o in x.loads) for x in links]
        other = self.operand_staging(vias, replicas) + sum(c.depth * SLOT_BYTES for c in numbers)
        self.check_depth(specialized)
        wishes = [x.wish for x in links]

        def depths(common: int) -> list[int]:
            return [w.most if w.exact else min(w.most, common) for w in wishes]

        def ring_bytes(common: int) -> int:
            return sum(n * d for n, d in zip(slot, depths(common), strict=True))

        def staging(buffers: int, shared: Op | None, common: int) -> int:
            """Bytes of staging beside the rings."""
            bytes_of = self.staging_bytes(buffers, replicas)
            total = sum(bytes_of.values())
            if shared is not None and host is not None:
                total -= min(bytes_of[shared], rings.slot_bytes(host.result) * depths(common)[0])
            return total

        def room(shared: Op | None) -> tuple[int, int]:
            """(slots, buffers of staging): the best that fits."""
            counts = (4, 2, 1) if asked is None else (asked,)
            for buffers, enough in (
                *((n, wanted) for n in counts),
                *((n, 2) for n in (*counts, 0)),
            ):
                fit = (
                    d
                    for d in range(most, 0, -1)
                    if fits(ring_bytes(d), staging(buffers, shared, d), other, self.target)
                )
                common = next(fit, 0)
                if common >= min(enough, most):
                    break
            return common, buffers

        most = max((w.most for w in wishes if not w.exact), default=1)
        asked = self.knobs.store_buffers
        host = max(links[0].loads, key=lambda o: rings.slot_bytes(o.result)) if links else None
        sharing = self.sharing(groups, replicas) if specialized else None
        common, buffers = room(None)
        if sharing is not None and host is not None and room(sharing) > (common, buffers):
            (common, buffers), before = room(sharing), common
            more = f"the ring gets {common} slots instead of {before}" if common > before else ""
            self.because(
                sharing.id,
                f"staged where {host.id} was",
                f"it comes when all loads are over, so their slots are free, behind a barrier of all groups"
                f"; {more or 'there is room for more chunks'}",
            )
        else:
            sharing = None
        if not common:
            raise self.memory_error(ring_bytes(1) + other, depths(1), slot, wishes)
        channels = tuple(
            ChannelPlan(
                name=x.name,
                items=tuple(relayed(o.id) if x.producer == TRANSPOSER else o.id for o in x.loads),
                via=tuple("registers" if x.producer == TRANSPOSER else vias[o] for o in x.loads),
                producer=x.producer,
                consumers=(x.consumer,),
                depth=d,
                multicast=()
                if TRANSPOSER in (x.producer, x.consumer)
                else self.multicast(x.loads, vias, specialized),
                also=tuple(tuple(o.id for o in g) for g in self.again.get(x.loads, ())),
            )
            for x, d in zip(links, depths(common), strict=True)
        )
        for x, c, n, w in zip(links, channels, slot, wishes, strict=True):
            source = w.by if w.by and c.depth == w.most else "what fits"
            self.because(c.name, f"{c.depth} slots of {n} bytes", source)
            if c.also:
                loops = ", ".join(i for site in c.also for i in site)
                why = "a loop that follows brings the same kind of blocks"
                self.because(c.name, f"its slots serve {loops} as well", why)
            if c.depth < w.most and w.by and not w.exact and w.most != Knobs().num_stages:
                fewer = f"shared memory has no room for {w.most} slots of {sum(slot)} bytes"
                self.unmet(x.loads[0], f"{c.depth} stages instead of {w.most}", fewer)
        return channels, self.stores(buffers, replicas, sharing, host)

    def sharing(self, groups: list[tuple[Op, ...]], replicas: int) -> Op | None:
        """The store whose staging may lie in a ring's slots: it comes once, when all loads are over."""
        if self.knobs.num_ctas > 1 or self.relays or not groups:
            return None
        top = self.func.body

        def place(o: Op) -> int:
            outer = self.structure.within(o, top)
            assert outer is not None
            return top.ops.index(outer)

        last = max(place(o) for g in groups for o in g)
        found = [
            o
            for o, _, _ in self.staged(replicas)
            if place(o) > last and all(p.kind is control.if_ for p in self.structure.enclosing(o))
        ]
        return found[0] if found else None

    def links(
        self,
        g: tuple[Op, ...],
        groups: list[tuple[Op, ...]],
        main: str,
        side: str,
        specialized: bool,
    ) -> list[_Link]:
        """The rings of loads that are read together: one, and two for each with a transposer between."""
        wish = self.wish(g, groups, specialized)
        direct = tuple(o for o in g if o not in self.relays)
        found = [_Link(_name(direct), direct, side, main, wish)] if direct else []
        for o in (o for o in g if o in self.relays):
            name = _name((o,))
            landing = _Wish(min(LANDING_DEPTH, wish.most))
            found.append(_Link(f"{name}_landed", (o,), side, TRANSPOSER, landing))
            found.append(_Link(name, (o,), TRANSPOSER, main, wish))
        return found

    def number_channels(self, demand: Demand, names: dict[str, str]) -> tuple[ChannelPlan, ...]:
        """A ring for each number that the producer alone gets to know."""
        plans = []
        for v, tasks in demand.crossings.items():
            o = self.structure.maker(v)
            assert o is not None
            if isinstance(v.type, Tile):
                continue
            name = v.hint or o.id.rsplit("/", 1)[-1]
            readers = tuple(names[t] for t in names if t in tasks)
            plans.append(
                ChannelPlan(name, (o.id,), ("number",), names["load"], readers, NUMBER_DEPTH)
            )
            self.because(
                o.id,
                f"done once, by the {names['load']}; the number crosses to the {readers[0]}",
                "both need it, and it must not be done twice",
            )
        return tuple(plans)

    def multicast(
        self, g: tuple[Op, ...], vias: dict[Op, str], specialized: bool
    ) -> tuple[int | None, ...]:
        """Of each load of a ring the axis of which the cluster's CTAs load a part each, for all."""
        ctas = prod(cluster_of(self.func))
        if ctas == 1:
            return ()
        found: list[int | None] = []
        for o in g:
            axis, why = None, "it is another one in each CTA"
            if clusters.is_common(self.func, self.structure, o):
                axis, why = self.part_axis(o, vias[o], ctas, specialized)
            told = "every CTA loads its own"
            if axis is not None:
                told = f"multicast: each CTA loads 1/{ctas} of axis {axis} for all"
            self.because(o.id, told, why)
            found.append(axis)
        return tuple(found) if any(a is not None for a in found) else ()

    def part_axis(self, o: Op, via: str, ctas: int, specialized: bool) -> tuple[int | None, str]:
        if via != "tma" or not specialized:
            return None, "only a producer's TMA multicasts"
        view = self.accesses.view(o)
        shape = shape_of(o.result.type)
        memory_inner = self.accesses.inner_axis(view, len(shape)) if view is not None else None
        inner, _ = rings.item_layout(self.structure, o.result, memory_inner)
        axis = clusters.part_axis(shape, inner, dtype_of(o.result.type).bytes, ctas)
        if axis is None:
            return None, "its rows and panels have no equal parts"
        return axis, "all CTAs of the cluster need the same"

    def check_depth(self, specialized: bool) -> None:
        knob = _depth_knob(specialized)
        asked = getattr(self.knobs, knob)
        if asked is not None and asked < 1:
            raise CompileError(
                "depth",
                f"{knob}={asked}: a ring has at least one slot",
                self.func.loc,
                help=f"use {knob}=3, or leave it out for what fits",
            )

    def stages_asked(self, o: Op) -> int | None:
        """The depth that the source asks for load o's ring."""
        return self.hints.stages(o)

    def wish(self, g: tuple[Op, ...], groups: list[tuple[Op, ...]], specialized: bool) -> _Wish:
        """How deep the ring of loads g shall be."""
        loop, asked = self.hints.speaker(g[0]), self.hints.stages(g[0])
        inner = self.innermost(g[0], groups)
        if loop is not None and asked is not None:
            if specialized or inner or asked == 1:
                return _Wish(asked, "num_stages of its loop", specialized, loop.loc)
            why = "in a uniform kernel only innermost loops run ahead"
            self.unmet(loop, f"one stage instead of {asked}", why)
        if not inner and all(map(rings.is_vector, g)):
            return _Wish(VECTOR_DEPTH)
        if not inner or loop is not None:
            return _Wish(1)
        knob = _depth_knob(specialized)
        asked = getattr(self.knobs, knob)
        return _Wish(MAX_DEPTH) if asked is None else _Wish(asked, knob, specialized)

    def innermost(self, o: Op, groups: list[tuple[Op, ...]]) -> bool:
        """Does o stand in a loop that holds no further loop with a channel?"""
        loops = [p for p in self.structure.enclosing(o) if p.kind is not control.if_]
        if not loops:
            return False
        mine = loops[0]
        for g in groups:
            around = [p for p in self.structure.enclosing(g[0]) if p.kind is not control.if_]
            if mine in around[1:]:
                return False
        return True

    def operand_staging(self, vias: dict[Op, str], replicas: int) -> int:
        """Bytes of right operands that are computed in registers and have to go back to shared memory."""
        items = {o.result for o in vias}
        total = 0
        for o in self.dots:
            v = o.operands[1]
            at = v
            while (m := self.structure.maker(at)) is not None and m.kind in rings.VIEWS:
                at = m.operands[0]
            if at not in items:
                total += rings.slot_bytes(v) * (replicas // self.parts(o)[1])
        return total

    def staged(self, replicas: int) -> list[tuple[Op, tuple[int, int], tuple[int, int]]]:
        """(store, chunk, what a replica stores) of the stores that TMA may do."""
        found = []
        for o in self.ops:
            if o.kind is not tile.store_box or len(shape_of(o.operands[1].type)) != 2:
                continue
            if o in self.aliased or self.accesses.rewrites(o):
                continue
            view = self.accesses.view(o)
            inner = self.accesses.inner_axis(view, 2) if view is not None else None
            if inner is None or not self.from_dot(o.operands[1]):
                continue
            shape = list(shape_of(o.operands[1].type))
            cut = self.cut[0].get(o.operands[1])  # of a turned product M lies along axis 1
            if cut is not None:
                shape[cut] //= replicas
            m, n = shape
            size = dtype_of(o.operands[1].type).bytes
            swizzle = swizzle_for(shape[inner] * size)
            if not swizzle or shape[1 - inner] % STAGING_CHUNK:
                continue
            chunk = (
                (STAGING_CHUNK, swizzle // size) if inner == 1 else (swizzle // size, STAGING_CHUNK)
            )
            if self.accesses.why_not_tma(o, chunk) is None:
                found.append((o, chunk, (m, n)))
        return found

    def from_dot(self, v: Value) -> bool:
        """Is v computed from a dot's result (whose layout makes direct stores slow)?"""
        work, seen = [v], set()
        while work:
            made = self.structure.made[work.pop()]
            o = made.op
            if o is None or o in seen:
                continue
            seen.add(o)
            if o.kind is tile.dot:
                return True
            work.extend(x for x in o.operands if isinstance(x.type, Tile))
            work.extend(x for r in o.regions for x in r.yielded if isinstance(x.type, Tile))
        return False

    def staging_bytes(self, buffers: int, replicas: int) -> dict[Op, int]:
        """Of each store, for all replicas."""
        found = {}
        for o, chunk, shape in self.staged(replicas):
            size = dtype_of(o.operands[1].type).bytes
            count = _buffers(_chunks(shape, chunk), buffers)
            found[o] = count * chunk[0] * chunk[1] * size * replicas
        return found

    def stores(
        self, buffers: int, replicas: int, sharing: Op | None, host: Op | None
    ) -> tuple[StorePlan, ...]:
        """sharing: the store whose staging lies in the slots of `host`, a load."""
        asked = self.knobs.store_buffers
        staged = {o: (chunk, shape) for o, chunk, shape in self.staged(replicas)}
        plans = []
        for o in self.ops:
            if o.kind not in (tile.store, tile.store_box):
                continue
            if o in staged and buffers:
                chunk, shape = staged[o]
                n = _chunks(shape, chunk)
                count = _buffers(n, buffers)
                why = "legal, and the result of a dot lies scattered over registers"
                if asked is not None and asked != count:
                    chunks = f"its {n} chunks go through as many buffers as divide them"
                    self.unmet(o, f"{count} buffers of staging instead of {asked}", chunks)
                if n == count == 2:  # each would wait until the other has been read
                    chunk, count, why = shape, 1, f"{why}; there is room for all of it"
                shares = host.id if o is sharing and host is not None else ""
                plans.append(StorePlan(o.id, "tma", chunk, count, shares))
                chunks = "one chunk" if count == 1 else f"{count} chunks"
                said = f"stored by TMA through {chunks} of {chunk[0]}x{chunk[1]}"
                self.because(o.id, said, why)
            else:
                if o in staged and asked:
                    self.unmet(o, "no staging", self.why_direct(o, True))
                plans.append(StorePlan(o.id, "direct"))
                why = "store_buffers=0" if asked == 0 else self.why_direct(o, o in staged)
                self.because(o.id, "stored directly", why)
        return tuple(plans)

    def handed_over(
        self,
        stores: tuple[StorePlan, ...],
        loads: list[Op],
        replicas: int,
        specialized: bool,
        counted: bool,
    ) -> tuple[StorePlan, ...]:
        """The stores, those of a loop over tiles given to a task of their own where that was asked for."""
        asked = self.knobs.store_task
        hinted = {o.id: spelled(ids(o)) for o in self.ops if self.hints.wants_store_task(o)}
        wanted = {s.op: "store_task=True" for s in stores} if asked else hinted
        if asked is False or not wanted:
            return stores
        why = self.why_not_handed(loads, replicas, specialized, counted)
        fit = [s.op for s in stores if s.via == "tma" and not s.shares and s.op in wanted]
        handed = [] if why else fit
        if not handed and asked:
            why = why or "no store goes through TMA"
            self.unmet(self.dots[0], "the consumers issue their stores, against store_task", why)
        for op in handed:
            self.because(op, "issued by a task of its own, beside the producer", wanted[op])
        return tuple(replace(s, by_task=s.op in handed) for s in stores)

    def why_not_handed(
        self, loads: list[Op], replicas: int, specialized: bool, counted: bool
    ) -> str:
        if not specialized:
            return "the kernel is uniform"
        if self.work(loads) != "issues" or self.relays:
            return "the warps beside the producer's first one are not free"
        if replicas >= GROUP_WARPS:
            return f"{replicas} groups have more stores than the producer's warp group has warps"
        if self.knobs.num_ctas > 1:
            return "not yet in clusters"
        if counted:
            return "its control flow follows numbers that it would have to be told"
        loops = {self.structure.parent[o] for o, _, _ in self.staged(replicas)}
        outer = next(iter(loops), None)
        if len(loops) > 1 or outer is None or outer.kind is not control.for_:
            return "they stand in no loop over tiles"
        if self.structure.parent[outer] is not None:
            return f"{outer.id} stands in other control flow"
        return ""

    def why_direct(self, o: Op, legal: bool) -> str:
        if legal:
            return "shared memory has no room for staging"
        if o.kind is tile.store:
            return "it is no box of a strided array"
        if o in self.aliased:
            return "the kernel loads the same memory, later loads must see it"
        if o.kind is tile.store_box and self.accesses.rewrites(o):
            return "its place may be written again, and TMA stores keep no order"
        shape = shape_of(o.operands[1].type)
        return self.accesses.why_not_tma(o, tuple(min(n, 64) for n in shape)) or (
            "it stores no result of a dot, or not in whole chunks"
        )

    def memory_error(
        self, need: int, depths: list[int], slot: list[int], wishes: list[_Wish]
    ) -> CompileError:
        over = excess(need, 0, 0, self.target)
        by = next((w for w in wishes if w.exact and w.most > 1), None)
        depth = max(depths, default=1)
        slots = "slot" if depth == 1 else "slots"
        return CompileError(
            "shared-memory",
            f"rings of {depth} {slots} of {sum(slot)} bytes need {need} bytes of shared memory, "
            f"{over} more than there are ({self.target.shared_bytes}, less a reserve)",
            (by and by.loc) or self.dots[0].loc,
            help=f"lower {by.by} or the block sizes" if by else "lower the block sizes",
        )

    # ---- registers

    def tasks(
        self,
        main: str,
        side: str,
        replicas: int,
        vias: dict[Op, str],
        loads: list[Op],
        specialized: bool,
        lean: bool,
    ) -> tuple[TaskPlan, ...]:
        """lean: the consumer takes what registers there are, as what overlaps needs room to be scheduled in
        (3 to 5 % of attention, docs/performance.md)."""
        if not specialized:
            tasks = (TaskPlan(main, "main", GROUP_WARPS, replicas, None),)
            return (*tasks, TaskPlan(side, "inline", 0, 1, None)) if loads else tasks
        work = self.work(loads)
        turner = self.transposer_registers()
        pair = budgets(replicas, work, self.target, self.need, self.room, turner, lean)
        entry = entry_registers(self.groups(replicas) * WARP_GROUP, self.target)
        dec, inc = self.knobs.reg_dec_producer, self.knobs.reg_inc_consumer
        if pair is None or pair[1] == entry:
            pair = None
        low = dec if dec else pair[0] if pair else None
        high = inc if inc else pair[1] if pair else None
        plans: tuple[TaskPlan, ...] = (
            TaskPlan(main, "consumer", GROUP_WARPS, replicas, high),
            TaskPlan(side, "producer", GROUP_WARPS, 1, low),
        )
        if turner:
            own = turner if pair or low or high else None
            plans += (TaskPlan(TRANSPOSER, "transposer", GROUP_WARPS, 1, own),)
        check_registers(plans, self.target, self.knobs.maxnreg, self.func.loc)
        total = sum(t.warps * t.replicas for t in plans)
        if total > self.target.max_warps:
            raise CompileError(
                "warps",
                f"{replicas} consumer groups and what fills their rings are {total} warps, a CTA has at most "
                f"{self.target.max_warps}",
                self.func.loc,
                help="lower num_consumer_groups",
            )
        said = "asked for" if dec or inc else f"the producer {_WORKS[work]}"
        if lean and not (dec or inc):
            said += "; a consumer that overlaps iterations takes all that is left"
        if self.room != Room() and not (dec or inc):
            said += "; ptxas spilled with another budget"
        for t in plans:
            self.because(t.name, f"{t.registers or 'all'} registers a thread", said)
        return plans


def _with_stores(tasks: tuple[TaskPlan, ...]) -> tuple[TaskPlan, ...]:
    """A store task for each replica of the consumer, beside a producer of one warp."""
    consumer, producer = tasks
    n, low = consumer.replicas, producer.registers
    names = [f"store{i}" for i in range(n)] if n > 1 else ["store"]
    stores = tuple(TaskPlan(name, "store", 1, 1, low) for name in names)
    left = GROUP_WARPS - 1 - n
    spare = (TaskPlan("spare", "spare", left, 1, low),) if left else ()
    return (consumer, replace(producer, warps=1), *stores, *spare)


@dataclass(frozen=True)
class _Link:
    """A ring between two tasks: of what these loads bring."""

    name: str
    loads: tuple[Op, ...]
    producer: str
    consumer: str
    wish: _Wish


@dataclass(frozen=True)
class _Wish:
    """How deep a ring shall be at most, who says so (empty: nobody), and whether not less will do."""

    most: int
    by: str = ""
    exact: bool = False
    loc: Loc | None = None


def _depth_knob(specialized: bool) -> str:
    return "num_buffers_warp_spec" if specialized else "num_stages"


def _pieces(columns: list[int]) -> list[int]:
    """Into how many pieces all of these columns can be cut."""
    counts = range(1, max(columns, default=0) // MIN_COLUMNS + 1)
    return [p for p in counts if all(n % (8 * p) == 0 for n in columns)] or [1]


def _buffers(chunks: int, wanted: int) -> int:
    """Staging buffers for so many chunks: a divisor, so that each chunk always uses the same one."""
    return max((n for n in range(1, wanted + 1) if chunks % n == 0), default=0)


def _chunks(shape: tuple[int, int], chunk: tuple[int, int]) -> int:
    return (shape[0] // chunk[0]) * (shape[1] // chunk[1])


def _work(o: Op, via: str) -> str:
    """What filling by load o asks of a producer's threads."""
    if via != "registers":
        return "issues" if via == "tma" else "copies"
    return "holds" if o.kind is tile.load_box else "loads"


def _name(group: tuple[Op, ...]) -> str:
    return "_".join(o.result.hint or o.id.rsplit("/", 1)[-1] for o in group)


def _ids(ops: list[Op]) -> str:
    return ", ".join(o.id for o in ops)
