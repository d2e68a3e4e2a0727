"""Which task runs what: the loads that a producer issues ahead, what stays with the consumers, and whether
there are tasks at all.

    loads that feed dots ─▶ producer        dots, stores, other effects ─▶ consumer
    address arithmetic, loop control ─▶ whoever needs it (analysis/structure.py)
    items that wgmma needs transposed ─▶ producer, then transpose warps
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from warploom.analysis.access import is_on_numbers
from warploom.analysis.scalars import Numbers
from warploom.analysis.structure import Demand
from warploom.errors import CompileError, Loc
from warploom.ir.analysis import must_run
from warploom.ir.core import Family, Op, Value
from warploom.ir.ops import control, mma, tile
from warploom.ir.types import DType, Tile, elem_of, shape_of
from warploom.layout import transposing
from warploom.schedule import rings
from warploom.schedule.context import Context, named
from warploom.schedule.hints import ids, spelled
from warploom.schedule.prefetch import why_direct
from warploom.schedule.resources import Headroom, transpose_registers
from warploom.target import Target

TRANSPOSE = "transpose"


@dataclass(frozen=True, eq=False)
class Roles:
    """Who runs what.  loads: in program order, those that have rings; forwards: of these, the ones whose
    items go through transpose warps."""

    specialized: bool
    demand: Demand
    loads: list[Op]
    forwards: frozenset[Op]

    @property
    def main(self) -> str:
        """The task of the dots."""
        return "consumer" if self.specialized else "main"

    @property
    def side(self) -> str:
        """The task of the loads."""
        return "producer" if self.specialized else "loads"

    @property
    def names(self) -> dict[str, str]:
        """The tasks, by the words that `demand` has for them."""
        return {"use": self.main, "load": self.side, "transpose": TRANSPOSE}

    def mine(self, o: Op) -> bool:
        """Does the task of the dots run op o?"""
        return "use" in self.demand.tasks.get(o, ())

    def loading(self, o: Op) -> bool:
        """Does the task of the loads run op o?"""
        return "load" in self.demand.tasks.get(o, ())

    def warp_groups(self, replicas: int) -> int:
        """Warp groups of the program, where so many run the dots."""
        return replicas + 1 + bool(self.forwards) if self.specialized else replicas

    def transpose_registers(self, headroom: Headroom, target: Target) -> int:
        """Registers a thread of the transpose warps, 0 where there are none: it holds an item at a time."""
        items = (transpose_registers(rings.slot_bytes(o.result), target) for o in self.forwards)
        return max((n + headroom.transpose for n in items), default=0)


def is_free(context: Context) -> bool:
    """Has nobody said whether to specialize, or asked for what only tasks have?"""
    knobs = context.knobs
    return not (knobs.ask_for_tasks or context.hints.for_tasks())


def uniform(context: Context, why: str, loc: Loc | None, of: str) -> None:
    """Records why there are no tasks: against every request for them a warning, an error where strict."""
    asked: list[tuple[str, str, Loc | None]] = []
    if context.knobs.num_consumer_groups:
        asked.append((f"num_consumer_groups={context.knobs.num_consumer_groups}", of, loc))
    asked += [(what, o.id, o.loc) for what, o in context.hints.for_tasks()]
    for what, at, where in asked:
        if context.knobs.strict:
            raise CompileError(
                "no-specialization",
                f"{what} was asked for, but {why}",
                where,
                help="drop strict=True to compile a uniform kernel",
            )
        context.because(at, f"uniform, against {what.split('=')[0]}", why, warn=True)
    if not asked:
        context.because("kernel", "uniform", why)


def assign(context: Context, plainly: bool) -> Roles:
    """The tasks' roles.  plainly: a uniform kernel, whatever could be had."""
    assigner = _Assigner(context)
    loads = assigner.producer_loads()
    demand, loads = assigner.demand(loads)
    specialized = not plainly and assigner.specialized(loads)
    if not specialized:
        loads = [o for o in context.ops if o in loads or o in assigner.in_runs]
        loads = [o for o in loads if not assigner.direct(o)]
        demand, loads = assigner.demand(loads, is_fused=True)
    elif any(context.hints.keeps(o) for o in loads):
        demand, loads = assigner.demand([o for o in loads if not assigner.kept(o)])
    vectors = [o for o in assigner.vectors(loads) if specialized or not assigner.direct(o)]
    if loads and vectors:
        ahead = [o for o in context.ops if o in loads or o in vectors]
        demand, loads = assigner.demand(ahead, is_fused=not specialized)
    assigner.settle(loads)
    forwards = assigner.forwarded(loads) if specialized else frozenset()
    return Roles(specialized, demand, loads, forwards)


@dataclass(eq=False)
class _Assigner:
    context: Context
    stayed: dict[Op, str] = field(default_factory=dict)  # loads that no producer does, and why
    in_runs: set[Op] = field(
        default_factory=set
    )  # those that a ring can bring within each run of their loop
    small: dict[Op, str] = field(default_factory=dict)  # vectors among them, if none brings these

    def producer_loads(self) -> list[Op]:
        """Loads of whole tiles that reach a dot's operands by tile arithmetic alone, and those for which the
        source asks."""
        seen: set[Op] = set()
        found = [o for o in self.context.ops if self.context.hints.wants_producer(o)]
        work = [v for o in reversed(self.context.dots) for v in (o.operands[1], o.operands[0])]
        while work:
            made = self.context.structure.made[work.pop()]
            o = made.op
            if o is None or made.region is not None or o in seen or o.regions:
                continue
            seen.add(o)
            if o.loads:
                found.append(o)
            elif o.kind.family is not Family.COMBINE and not o.accesses:
                work.extend(v for v in reversed(o.operands) if isinstance(v.type, Tile))
        return [o for o in self.context.ops if o in found and self.movable(o)]

    def movable(self, o: Op) -> bool:
        """May load o be issued by a task of its own?  Small ones are not worth a slot."""
        why = self.why_not_movable(o)
        if why is None:
            why = self.written_through(o)
            if why and self.context.accesses.unwritten_loop(o) is not None:
                self.in_runs.add(o)
        if why and self.is_brought(o):
            self.small[o] = why
        elif why:
            self.stays(o, why)
        return why is None

    def settle(self, loads: list[Op]) -> None:
        """Tells of vectors for which there turned out to be nobody."""
        for o, why in self.small.items():
            if o not in loads:
                self.stays(o, why)

    def why_not_movable(self, o: Op) -> str | None:
        shape = shape_of(o.result.type)
        least = self.context.target.group_threads
        if len(shape) not in (2, 3) or prod(shape) < least:
            return f"a ring carries matrices, or batches of them, of {least} elements and more"
        return self.why_not_ahead(o)

    def why_not_ahead(self, o: Op) -> str | None:
        if o.id in (self.context.held or ()):
            if self.context.crowded:
                return "its slot would keep other programs from the multiprocessor"
            return "shared memory has no room for its slot"
        if o.attrs.get("volatile"):
            return "it is volatile"
        structure = self.context.structure
        loops = (p for p in structure.loops(o) if p.kind is control.while_)
        if any(structure.within(o, p.regions[0]) is not None for p in loops):
            return "it decides whether a loop goes on"
        return None

    def written_through(self, o: Op) -> str | None:
        """What the kernel writes through that may be what load o reads."""
        if o not in self.context.aliased:
            return None
        base = self.context.accesses.base(o.operands[0])
        name = "an unknown pointer" if base is None else self.context.func.params[base].hint
        return f"the kernel also writes through {name}"

    def vectors(self, loads: list[Op]) -> list[Op]:
        """Rows of numbers that the consumer reads in a loop: whoever brings its operands brings them, where
        TMA can, so that no step and no tile's end waits for memory."""
        return [o for o in self.context.ops if o not in loads and self.is_brought(o)]

    def is_brought(self, o: Op) -> bool:
        """Is o the load of a row in a loop, for which TMA can run ahead?"""
        return (
            o.kind is tile.load_box
            and rings.is_vector(o)
            and bool(self.context.structure.loops(o))
            and o not in self.context.aliased
            and self.why_not_ahead(o) is None
            and self.context.hints.keeps(o) is None
            and self.context.accesses.why_not_tma(o, shape_of(o.result.type)) is None
        )

    def direct(self, o: Op) -> bool:
        """Does a uniform kernel load o straight into registers?"""
        why = why_direct(self.context, o)
        if why:
            self.small.pop(o, None)
            self.context.because(o.id, "loaded into registers", why)
        return why is not None

    def forwarded(self, loads: list[Op]) -> frozenset[Op]:
        """Operands that wgmma needs in another order than memory has them, and that can land as they are."""
        found = set()
        for o in loads:
            elem, shape = elem_of(o.result.type), shape_of(o.result.type)
            if not isinstance(elem, DType) or rings.is_vector(o) or not mma.only_k_major(elem):
                continue
            wanted = rings.wanted_inner(self.context.structure, o.result)
            if wanted is None or rings.misplaced(self.context.accesses, o) is None:
                continue
            arrives = rings.choose_via(self.context.accesses, o, forwarded=True)[0] != "registers"
            warps = self.context.target.warp_group
            if arrives and transposing(shape, elem.bytes, wanted, warps) is not None:
                found.add(o)
        return frozenset(found)

    def stays(self, o: Op, why: str) -> None:
        """Load o is not given to a producer, though it might have been."""
        self.stayed[o] = why
        if self.context.hints.wants_producer(o) and self.context.knobs.num_consumer_groups != 0:
            self.context.unmet(o, f"not brought by a producer, against {spelled(ids(o))}", why)
        else:
            self.context.because(o.id, "not brought by a producer", why)

    def kept(self, o: Op) -> bool:
        """Does the source keep load o in the task that uses it?"""
        why = self.context.hints.keeps(o)
        if why:
            self.context.because(o.id, "not brought by a producer", why)
        return why is not None

    def demand(self, loads: list[Op], is_fused: bool = False) -> tuple[Demand, list[Op]]:
        """Who runs what ('use', 'load'), and the loads that a producer can issue by itself.

        is_fused: both are going to be one task, which runs once what gives numbers."""
        while True:
            numbers = Numbers(self.context.structure, self.context.accesses)
            while True:
                fixed = self.fixed(loads, numbers, is_fused)
                stuck = self.stuck(numbers, fixed)
                if stuck is None:
                    break
                numbers.drop(*stuck)
            demand = Demand(self.context.structure, fixed)
            for o in self.context.ops:
                if o in fixed and not o.regions:
                    for t in sorted(fixed[o]):
                        if t == "use" or not is_fused or o in loads:
                            demand.run(o, t)
            blocked = self.blocked(demand, loads, numbers)
            if not blocked:
                break
            loads = [o for o in loads if o not in blocked]
        for o in self.context.ops:  # what nobody needs stays where it can do no harm
            if o not in demand.tasks:
                demand.run(o, "use")
        return demand, loads

    def fixed(self, loads: list[Op], numbers: Numbers, is_fused: bool) -> dict[Op, frozenset[str]]:
        """Where ops have to run that are not replicated."""
        fixed = {o: frozenset({"use"}) for o in self.context.ops if self.anchored(o)}
        if is_fused:  # what gives numbers runs once
            given = {*numbers.given, *(o for o in fixed if o.loads and is_on_numbers(o))}
            fixed |= dict.fromkeys(given, frozenset({"use", "load"}))
        else:
            fixed |= {o: frozenset({"load"}) for o in numbers.ops}
        return fixed | {o: frozenset({"load"}) for o in loads}

    def stuck(self, numbers: Numbers, fixed: dict[Op, frozenset[str]]) -> tuple[Op, str] | None:
        """An op that gives numbers, and what of the consumers' it would have to wait for."""
        for o in numbers.ops:
            sent = self.sent_for(o, fixed)
            if sent is not None:
                return o, f"it depends on {self.made_by(sent)}"
        return None

    def sent_for(self, o: Op, fixed: Mapping[Op, frozenset[str]]) -> Value | None:
        """What a producer that runs o would have to be sent."""
        alone = Demand(self.context.structure, fixed)
        alone.run(o, "load")
        return next((v for v, tasks in alone.crossings.items() if "load" in tasks), None)

    def made_by(self, v: Value) -> str:
        maker = self.context.structure.maker(v)
        return maker.id if maker is not None else "a value"

    def anchored(self, o: Op) -> bool:
        fixed = o.kind is tile.dot or must_run(o)
        return fixed or (o.loads and o in self.context.aliased)

    def blocked(self, demand: Demand, loads: list[Op], numbers: Numbers) -> set[Op]:
        """Loads whose addresses or conditions need what only the consumer (or a load) computes."""
        needed = [o for o in loads if (o.result, "load") in demand.live]
        for o in needed:
            self.stays(o, "an address or a condition depends on it")
        found = set(needed)
        if found or not any("load" in tasks for tasks in demand.crossings.values()):
            return found
        for o in loads:
            sent = self.sent_for(o, demand.fixed)
            if sent is not None:
                maker = self.context.structure.maker(sent)
                because = numbers.why_not.get(maker, "") if maker is not None else ""
                more = f", which stays with the consumers: {because}" if because else ""
                self.stays(o, f"its address or condition depends on {self.made_by(sent)}{more}")
                found.add(o)
        return found

    def specialized(self, loads: list[Op]) -> bool:
        if self.context.knobs.num_consumer_groups == 0:
            self.context.because("kernel", "uniform", "num_consumer_groups=0")
            for what, o in self.context.hints.for_tasks():
                self.context.because(
                    o.id, f"no task, against {what}", "num_consumer_groups=0 comes first"
                )
            return False
        warps, group = self.context.knobs.num_warps, self.context.target.warp_group
        if warps % group:
            why = f"num_warps={warps}: tasks are made of groups of {group} warps"
            uniform(self.context, why, self.context.dots[0].loc, self.context.dots[0].id)
            return False
        free = [o for o in loads if not self.context.hints.keeps(o)]
        asked = [o for o in free if self.context.hints.wants_producer(o)]
        looped = [o for o in free if self.context.structure.loops(o)]
        if looped or asked:
            why = (
                f"{named(looped)} feed dots in a loop: a producer runs ahead"
                if looped
                else f"{spelled(ids(asked[0]))} gives {named(asked)} to a task of their own"
            )
            self.context.because("kernel", "specialized", why)
            return True
        first = self.context.dots[0]
        if not loads:
            why = f"no load that feeds {named(self.context.dots)} could be given to a producer"
            if self.stayed:
                o, because = next(iter(self.stayed.items()))
                why += f": {o.id} not, as {because}"
        elif free:
            why = f"{named(free)} stand in no loop: there is nothing to run ahead of"
        else:
            why = f"{named(loads)} must not leave: {self.context.hints.keeps(loads[0])}"
        uniform(self.context, why, first.loc, first.id)
        return False
