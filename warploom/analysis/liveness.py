"""How many registers the tiles of a task take at once: an estimate before ptxas has its say.

What must exist whole counts: results of dots and their accumulators, register operands of dots, tiles that
the task itself loads, tiles that loops and ifs carry.  What arithmetic makes of them is computed where it is
read, element by element: it takes no registers, but keeps its operands alive until then.  A reduction
counts as early as its operands exist, wherever the program has it: ptxas can move it there.
Tiles of pointers don't count, nor of integers that loops and ifs carry but for sums of dots: they are mostly
addresses, which are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warploom.analysis.structure import Structure
from warploom.ir.core import Family, Op, Value
from warploom.ir.ops import control, tile
from warploom.ir.rules import Rules
from warploom.ir.types import DType, Tile

WHOLE: Rules[bool] = Rules(
    "is what it makes, if anything, in registers before anybody reads it",
    {
        **dict.fromkeys((Family.COMBINE, Family.ACCESS, Family.SHARED, Family.ACCUMULATOR), True),
        **dict.fromkeys((Family.ISSUE, Family.WAIT, Family.SIGNAL, Family.FENCE), True),
        **dict.fromkeys((Family.PROMISE, Family.OUTPUT, Family.CONTROL, Family.CHANNEL), True),
        Family.REGISTERS: True,
        **dict.fromkeys(
            (Family.POINTWISE, Family.FILL, Family.MOVE, Family.NUMBER, Family.PLACE), False
        ),
    },
)


@dataclass(frozen=True)
class Peak:
    """The registers a thread that tiles take where they take most, and the tiles."""

    registers: int
    values: tuple[Value, ...] = ()


def peak(
    structure: Structure,
    mine: Callable[[Op], bool],
    items: frozenset[Value],
    registers: Callable[[Value], int],
) -> Peak:
    """The worst point of the task that runs the ops `mine`.  items: what lies in rings, not in registers.
    registers: what a tile takes of a thread's, if it is whole."""
    return _Scan(structure, mine, items, registers).peak()


@dataclass(eq=False)
class _Scan:
    structure: Structure
    mine: Callable[[Op], bool]
    items: frozenset[Value]
    registers: Callable[[Value], int]
    at: dict[Op, int] = field(default_factory=dict)  # first moment of an op
    end: dict[Op, int] = field(default_factory=dict)  # last moment of an op and what is in it
    same: dict[Value, Value] = field(default_factory=dict)  # carried values -> one of them
    sums: set[Value] = field(default_factory=set)  # what dots add to, as `one` of what carries it
    readers: dict[Value, frozenset[Op]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, o in enumerate(self.structure.ops):
            self.at[o] = self.end[o] = i
            for outer in self.structure.enclosing(o):
                self.end[outer] = i
            for c in control.carried(o):
                for v in (*c.params, *c.yielded):
                    self.same[self.one(v)] = self.one(c.result)
        self.sums = {self.one(o.result) for o in self.structure.ops if o.kind is tile.dot}

    def one(self, v: Value) -> Value:
        while v in self.same and self.same[v] is not v:
            v = self.same[v]
        return v

    def peak(self) -> Peak:
        spans: dict[Value, tuple[int, int]] = {}
        for v in self.structure.made:
            if not self.counts(v):
                continue
            first = self.born(v)
            last = max((self.reach(v, o) for o in self.read_by(v)), default=first)
            one = self.one(v)
            a, b = spans.get(one, (first, last))
            spans[one] = min(a, first), max(b, last)
        worst = Peak(0)
        for moment in {a for a, _ in spans.values()}:
            alive = tuple(v for v, (a, b) in spans.items() if a <= moment < max(b, a + 1))
            total = sum(map(self.registers, alive))
            if total > worst.registers:
                worst = Peak(total, alive)
        return worst

    def counts(self, v: Value) -> bool:
        """Must v exist whole in the task's registers?"""
        t = v.type
        if not isinstance(t, Tile) or not isinstance(t.elem, DType):
            return False
        o = self.structure.made[v].op
        if o is None or not self.mine(o):
            return False
        if o.regions and not t.elem.is_float and self.one(v) not in self.sums:
            return False
        if v in self.items:
            return any(u.kind is not tile.dot for u in self.structure.users.get(v, ()))
        if o.regions or WHOLE[o.kind]:
            return True
        is_operand = any(
            u.kind is tile.dot and u.operands[0] is v for u in self.structure.users.get(v, ())
        )
        return is_operand and not self.in_place(v)

    def in_place(self, v: Value) -> bool:
        """Is v an item, or another view of one, that wgmma reads where it lies?"""
        o = self.structure.maker(v)
        while v not in self.items and o is not None and o.kind is tile.transpose:
            v = o.operands[0]
            o = self.structure.maker(v)
        return v in self.items

    def born(self, v: Value) -> int:
        made = self.structure.made[v]
        assert made.op is not None
        if made.region is None and made.op.regions:
            return self.end[made.op]
        return self.at[made.op]

    def read_by(self, v: Value) -> frozenset[Op]:
        """Ops that read v's registers: through arithmetic, where its result is needed whole or stored."""
        if v not in self.readers:
            found: set[Op] = set()
            for o in self.structure.users.get(v, ()):
                if not self.mine(o) and o.kind is not control.yield_:
                    continue
                fused = len(o.results) == 1 and o.computes
                if fused and not WHOLE[o.kind] and not self.counts(o.result):
                    found |= self.read_by(o.result)
                else:
                    found.add(o)
            self.readers[v] = frozenset(found)
        return self.readers[v]

    def reach(self, v: Value, reader: Op) -> int:
        """Until when v lives for the sake of a reader: to the end of the outermost loop around that one which
        v was made before."""
        made = self.structure.made[v]
        assert made.op is not None
        around = set(self.structure.enclosing(made.op))
        if made.region is not None:
            around.add(made.op)
        loops = [p for p in self.structure.loops(reader) if p not in around]
        return self.end[loops[-1]] if loops else self.read_time(reader)

    def read_time(self, reader: Op) -> int:
        """When an op reads: a reduction as soon as what it reduces is there."""
        if reader.kind is tile.reduce:
            makers = [self.structure.maker(v) for v in reader.operands]
            return max((self.end[m] for m in makers if m is not None), default=self.at[reader])
        return self.at[reader]
