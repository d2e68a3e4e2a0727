"""Puts a ring between the task that loads and the tasks that use, with the four communication ops.

Order: after partition_data; before partition_code, which takes the tasks apart.
Changes: every kernel with a dot that feeds from memory.

before:  %a = load_box(%v, %row, %k) @{producer}        %c = dot(%a, %b, %acc) @{consumer}
after:   producer_acquire(%ring, %slot, %phase) @{producer}
         produce(%ring, %slot, %v, %row, %k) {item=0} @{producer}
         producer_commit(%ring, %slot) @{producer}
         consumer_wait(%ring, %slot, %phase) @{consumer}
         %a = take(%ring, %slot) {item=0} @{consumer}
         %c = dot(%a, %b, %acc) @{consumer}
         consumer_release(%ring, %slot) @{consumer}
         %slot1, %phase1 = ring_next(%slot, %phase) {depth=3} @{consumer, producer}

A number that the producer gets (from an atomic, say) is handed on before its first reader, and all tasks
go on with what they took:

         %n = atomic(%p, %one) {fn="add"} @{producer}
         …                                                         what comes before the first reader
         producer_acquire; put(%ring, %slot, %n) {item=0}; producer_commit @{producer}
         consumer_wait @{consumer};  %t = take(%ring, %slot) {item=0} @{consumer, producer}
         consumer_release(%ring, %slot) @{consumer}

All of a channel's ops stand in the block of its loads, so every task that runs the block counts alike;
a use deeper inside (in an `if`, a loop) waits and releases around the op that contains it.  The cursor
(slot, phase) is threaded through every enclosing loop and both arms of every `if`.  Ops that only view
an item (transpose, slice_block, concat) move to where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warploom.analysis.structure import structure_of
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import control, task, tile
from warploom.ir.types import Scalar, Tile, i32
from warploom.schedule import rings
from warploom.schedule.model import ChannelPlan, Schedule

Cursor = tuple[Value, Value]


def insert_channels(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    return _Inserter(func, schedule).function()


@dataclass(eq=False)
class _Ring:
    """One channel at work in a block: its loads, and where in the block the items are used."""

    plan: ChannelPlan
    loads: tuple[Op, ...]
    block: Region
    at: int  # index in the block of the last load: all items are produced there
    first: int
    last: int
    tasks: frozenset[str]
    channel: Value

    @property
    def is_number(self) -> bool:
        return self.plan.via == ("number",)


@dataclass(eq=False)
class _Inserter:
    func: Func
    schedule: Schedule
    rings: list[_Ring] = field(default_factory=list)
    declared: list[Op] = field(default_factory=list)  # the channels
    taken: dict[Value, Value] = field(default_factory=dict)  # item -> what `take` gave

    def __post_init__(self) -> None:
        self.structure = structure_of(self.func)
        self.views = {
            o
            for plan in self.schedule.channels
            for i in plan.all_items
            for o in self.view_ops(self.load(i).result)
        }
        for plan in self.schedule.channels:
            items = tuple(self.load(i).result.type for i in plan.items)
            assert all(isinstance(t, Tile | Scalar) for t in items)
            attrs = {"items": items, "depth": plan.depth, "via": plan.via, "name": plan.name}
            channel = Value(task.channel.infer((), attrs)[0], plan.name)
            self.declared.append(Op(task.channel, (), attrs, (channel,)))
            self.rings += [self.ring(plan, site, channel) for site in plan.sites]
        self.items = {o.result for r in self.rings for o in r.loads}

    def load(self, item: str) -> Op:
        """The load (or forward), or what else gives a number, that a schedule calls `item`."""
        loads = (tile.load, tile.load_box, tile.atomic, task.forward)
        found = [o for o in self.structure.ops if o.id == item and o.kind in loads]
        if len(found) != 1:
            raise InternalError(f"a channel carries {item}, of which there are {len(found)}")
        return found[0]

    def view_ops(self, v: Value) -> list[Op]:
        """The ops that only view item v."""
        found = []
        for o in self.structure.users.get(v, ()):
            if rings.is_view(o):
                found += [o, *self.view_ops(o.result)]
        return found

    def ring(self, plan: ChannelPlan, items: tuple[str, ...], channel: Value) -> _Ring:
        loads = tuple(self.load(i) for i in items)
        block = self.structure.block[loads[0]]
        at = max(i for i, o in enumerate(block.ops) if o in loads)
        spans = []
        for o in loads:
            span = rings.span(
                self.structure, o.result, block, lambda u: bool(u.tasks & set(plan.consumers))
            )
            if span is not None:
                spans.append(span)
        if not spans or min(s[0] for s in spans) <= at:
            raise InternalError(f"channel {plan.name} is not used after its last load")
        tasks = frozenset({plan.producer, *plan.consumers})
        first, last = min(s[0] for s in spans), max(s[1] for s in spans)
        return _Ring(plan, loads, block, at, first, last, tasks, channel)

    # ---- rebuilding

    def function(self) -> Func:
        b = Builder()
        body = self.func.body
        cursors: dict[Value, Cursor] = {}
        tasks = {r.channel: r.tasks for r in self.rings}
        b.ops += [o.with_(tasks=tasks[o.result]) for o in self.declared]
        if self.rings:
            b.tasks = frozenset(t for r in self.rings for t in r.tasks)
            zero = build.const(b, 0)
            cursors = dict.fromkeys(tasks, (zero, zero))
        self.ops(body, b, cursors)
        self.end(body, b, cursors)
        b.append(body.ops[-1])
        return self.func.with_(body=b.region(body.params), level=Level.CHANNEL)

    def inside(self, o: Op) -> list[Value]:
        """The channels that step inside an op's regions."""
        found = (r.channel for r in self.rings if o in self.structure.enclosing(r.loads[0]))
        return list(dict.fromkeys(found))

    def ops(self, region: Region, b: Builder, cursors: dict[Value, Cursor]) -> None:
        """Rebuilds all of a region but its yield; `cursors` moves on with the rings."""
        here = [r for r in self.rings if r.block is region]
        producing = {o for r in here for o in r.loads if not r.is_number}
        for i, o in enumerate(region.ops):
            for r in here:
                if r.first == i and r.is_number:
                    self.hand_on(r, b, cursors)
                elif r.first == i:
                    self.begin_use(r, b, cursors[r.channel])
            leaving = [r for r in here if r.last == i and not r.is_number]
            if o.kind is task.forward:  # its item waits in registers for a slot to be put in
                for r in leaving:
                    self.end_use(r, b, cursors)
                leaving = []
            if o in producing:
                for r in here:
                    if r.at == i:
                        self.produce(r, b, cursors[r.channel])
            elif o is region.ops[-1]:
                continue
            elif o in self.views:
                pass
            elif o.regions:
                self.control(o, b, cursors)
            else:
                with b.at(o):
                    b.append(o.with_(operands=self.operands(o.operands, b)))
            for r in leaving:
                self.end_use(r, b, cursors)

    def end(self, region: Region, b: Builder, cursors: dict[Value, Cursor]) -> tuple[Value, ...]:
        """What the region's yield passes on.  An item among it was taken to registers, its slot is free."""
        end = region.ops[-1]
        with b.at(end):
            values = self.operands(end.operands, b)
        for r in self.rings:
            if r.block is region and r.last == len(region.ops) - 1 and not r.is_number:
                self.end_use(r, b, cursors)
        return values

    def operands(self, values: tuple[Value, ...], b: Builder) -> tuple[Value, ...]:
        return tuple(self.operand(v, b) for v in values)

    def operand(self, v: Value, b: Builder) -> Value:
        """v, or the part of a taken item that it views, rebuilt here."""
        if v in self.taken:
            return self.taken[v]
        o = self.structure.maker(v)
        if o is None or o not in self.views:
            return v
        operands = self.operands(o.operands, b)
        with b.at(o):
            new = Value(v.type, v.hint)
            b.append(o.with_(operands=operands, results=(new,)))
        return new

    def produce(self, r: _Ring, b: Builder, cursor: Cursor) -> None:
        slot, phase = cursor
        with b.at(r.loads[0]):
            b.tasks = frozenset({r.plan.producer})
            task.producer_acquire(b, r.channel, slot, phase)
            for n, (o, via) in enumerate(zip(r.loads, r.plan.via, strict=True)):
                b.loc = o.loc
                if via == "registers":
                    b.append(o.with_(operands=self.operands(o.operands, b), tasks=b.tasks))
                    task.put(b, r.channel, slot, o.result, item=n)
                else:
                    # a load_box's operands, or a load's without `other`
                    ends = (r.channel, slot, *o.operands)
                    streams = o.id in self.schedule.streamed_loads
                    policy = {"cache_policy": "evict_first"} if streams else {}
                    how = {"item": n, **policy, **tile.policy_of(o)}
                    if run := o.attrs.get("run"):
                        how["run"] = run
                    b.append(Op(task.produce, ends, how, (), (), b.tasks, o.loc, o.id))
            task.producer_commit(b, r.channel, slot)

    def hand_on(self, r: _Ring, b: Builder, cursors: dict[Value, Cursor]) -> None:
        """All of a number's way: its slot is free again as soon as it was read."""
        slot, phase = cursors[r.channel]
        (o,) = r.loads
        with b.at(o):
            b.tasks = frozenset({r.plan.producer})
            task.producer_acquire(b, r.channel, slot, phase)
            task.put(b, r.channel, slot, o.result, item=0)
            task.producer_commit(b, r.channel, slot)
            b.tasks = frozenset(r.plan.consumers)
            task.consumer_wait(b, r.channel, slot, phase)
            b.tasks = r.tasks
            taken = task.take(b, r.channel, slot, item=0, hint=o.result.hint)
            self.taken[o.result] = taken
        self.end_use(r, b, cursors)

    def begin_use(self, r: _Ring, b: Builder, cursor: Cursor) -> None:
        slot, phase = cursor
        with b.at(r.loads[0]):
            b.tasks = frozenset(r.plan.consumers)
            task.consumer_wait(b, r.channel, slot, phase)
            for n, o in enumerate(r.loads):
                if self.structure.users.get(o.result):
                    hint = o.result.hint
                    self.taken[o.result] = task.take(b, r.channel, slot, item=n, hint=hint)

    def end_use(self, r: _Ring, b: Builder, cursors: dict[Value, Cursor]) -> None:
        slot, phase = cursors[r.channel]
        with b.at(r.loads[0]):
            b.tasks = frozenset(r.plan.consumers)
            task.consumer_release(b, r.channel, slot)
            b.tasks = r.tasks
            slot, phase = task.ring_next.several(b, slot, phase, depth=r.plan.depth)
            cursors[r.channel] = slot, phase

    # ---- control flow

    def control(self, o: Op, b: Builder, cursors: dict[Value, Cursor]) -> None:
        """A loop or an if that carries the cursors of the rings inside it."""
        inside = self.inside(o)
        loops = o.kind is not control.if_
        operands = self.operands(o.operands, b)
        operands += _flat(cursors, inside) if loops else ()
        regions = []
        for r in o.regions:
            inner_cursors = {channel: _cursor() for channel in inside if loops}
            own = {**cursors, **inner_cursors}
            inner = b.nested()
            self.ops(r, inner, own)
            values = (*self.end(r, inner, own), *_flat(own, inside))
            inner.append(r.ops[-1].with_(operands=values))
            regions.append(inner.region((*r.params, *_flat(inner_cursors, list(inner_cursors)))))
        new = {channel: _cursor() for channel in inside}
        results = (*o.results, *_flat(new, inside))
        b.append(o.with_(operands=operands, results=results, regions=tuple(regions)))
        cursors.update(new)


def _cursor() -> Cursor:
    return Value(Scalar(i32), "slot"), Value(Scalar(i32), "phase")


def _flat(cursors: Mapping[Value, Cursor], channels: list[Value]) -> tuple[Value, ...]:
    return tuple(v for c in channels for v in cursors[c])
