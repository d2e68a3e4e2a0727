"""Which task needs which op: the analysis under task partition, code partition and dead-code removal.

Some ops are *fixed* to tasks (anchors: side effects, loads that a producer issues, dots).  Everything
else is pure or only reads memory that nobody writes, so each task that needs it runs its own copy:
address arithmetic and loop control are replicated, never communicated.  Demand runs backward from what
a task must do, through loop carries and ifs, and stops at ops that are fixed to another task: there a
value crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import control


class Made(NamedTuple):
    """Where a value comes from: result `number` of `op`, or parameter `number` of its region `region`.
    op is None for parameters of the function."""

    op: Op | None
    number: int
    region: int | None = None


@dataclass(eq=False)
class Structure:
    """Definitions, uses and nesting of a region, computed once.  `ops` is in program order."""

    root: Region
    made: dict[Value, Made] = field(default_factory=dict)
    users: dict[Value, list[Op]] = field(default_factory=dict)
    parent: dict[Op, Op | None] = field(default_factory=dict)
    block: dict[Op, Region] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        for i, p in enumerate(self.root.params):
            self.made[p] = Made(None, i)
        self._region(self.root, None)

    def _region(self, region: Region, parent: Op | None) -> None:
        for o in region.ops:
            self.parent[o], self.block[o] = parent, region
            self.ops.append(o)
            for v in o.operands:
                self.users.setdefault(v, []).append(o)
            for i, v in enumerate(o.results):
                self.made[v] = Made(o, i)
            for n, r in enumerate(o.regions):
                for i, p in enumerate(r.params):
                    self.made[p] = Made(o, i, n)
                self._region(r, o)

    def maker(self, v: Value) -> Op | None:
        """The op whose result v is; None for parameters."""
        made = self.made[v]
        return made.op if made.region is None else None

    def carried(self, v: Value) -> control.Carried | None:
        """What a loop or an if passes on as v, where v is its result or a parameter."""
        made = self.made[v]
        if made.op is None or made.op.kind not in control.LEAD:
            return None
        values = made.op.results if made.region is None else made.op.regions[made.region].params
        i = made.number - len(values) + len(made.op.results)
        return control.carried(made.op)[i] if i >= 0 else None

    def home(self, v: Value) -> Region:
        """The region in which v is made, or of which it is a parameter."""
        made = self.made[v]
        if made.op is None:
            return self.root
        return self.block[made.op] if made.region is None else made.op.regions[made.region]

    def enclosing(self, o: Op) -> Iterable[Op]:
        """The ops around o, inner first."""
        at = self.parent[o]
        while at is not None:
            yield at
            at = self.parent[at]

    def loops(self, o: Op) -> list[Op]:
        """The loops around o, inner first."""
        return [p for p in self.enclosing(o) if p.kind in control.LOOPS]

    def within(self, o: Op, block: Region) -> Op | None:
        """The op of `block` that is o or contains it."""
        at: Op | None = o
        while at is not None and self.block[at] is not block:
            at = self.parent[at]
        return at


_STRUCTURES: WeakKeyDictionary[Func, Structure] = WeakKeyDictionary()


def structure_of(func: Func) -> Structure:
    """That of a function's body, kept as long as the function is."""
    if func not in _STRUCTURES:
        _STRUCTURES[func] = Structure(func.body)
    return _STRUCTURES[func]


@dataclass(eq=False)
class Demand:
    """What each task runs (`tasks`), which values it holds (`live`) and which it must be sent
    (`crossings`: value -> tasks), after `run` was called for everything that must happen."""

    structure: Structure
    fixed: Mapping[Op, frozenset[str]]
    tasks: dict[Op, set[str]] = field(default_factory=dict)
    live: set[tuple[Value, str]] = field(default_factory=set)
    crossings: dict[Value, set[str]] = field(default_factory=dict)
    _work: list[tuple[Op | Value, str]] = field(default_factory=list)

    @staticmethod
    def assigned(structure: Structure, runs: Callable[[Op], Iterable[str]]) -> Demand:
        """Of ops that say which tasks run them.  runs: those that must do an op, whoever needs it."""
        plain = [o for o in structure.ops if not o.regions and o.kind is not control.yield_]
        demand = Demand(structure, {o: o.tasks for o in plain})
        for o in plain:
            for t in sorted(runs(o)):
                demand.run(o, t)
        return demand

    def run(self, o: Op, task: str) -> None:
        """`task` must execute o, hence all that o needs."""
        self._work.append((o, task))
        while self._work:
            what, t = self._work.pop()
            if isinstance(what, Op):
                self._run(what, t)
            else:
                self._need(what, t)

    def _push(self, values: Iterable[Value], task: str) -> None:
        self._work.extend((v, task) for v in values)

    def _run(self, o: Op, task: str) -> None:
        if task in self.tasks.setdefault(o, set()):
            return
        self.tasks[o].add(task)
        parent = self.structure.parent[o]
        if parent is not None:
            self._work.append((parent, task))
        self._push(control.deciding(o) if o.kind in control.LEAD else o.operands, task)

    def _need(self, v: Value, task: str) -> None:
        if (v, task) in self.live:
            return
        made = self.structure.made[v]
        o = made.op
        if o is None:
            self.live.add((v, task))
            return
        if made.region is None and o in self.fixed and task not in self.fixed[o]:
            self.crossings.setdefault(v, set()).add(task)
            return
        self.live.add((v, task))
        self._work.append((o, task))
        if (carried := self.structure.carried(v)) is not None:
            self._push((x for x in carried.all if x is not carried.result), task)
