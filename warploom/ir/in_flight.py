"""Register operands that a wgmma may still be reading: how long they have to stay as they are.

wgmma reads A from registers asynchronously, and until a wgmma_wait covers its group nothing may write them
(PTX ISA, "wgmma.wait_group").  An SSA value never changes, but its registers do where a loop makes the value
again: the next iteration writes what the iteration before is still being computed from.  No compiler helps
there: ptxas takes the write for intended, and the result is wrong without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import control, mma, task, tile
from warploom.ir.types import Pointer, Tile

# Other names of the same registers.
_NAMES = frozenset(
    {tile.slice_tile, tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape}
)

_STEPS = frozenset({mma.wgmma, mma.wgmma_commit, mma.wgmma_wait})  # that change what is being read
_Reads = frozenset[Op]  # wgmmas that may still be reading their register operand
_State = tuple[_Reads, ...]  # of no group yet, then of the latest group, the one before, …


def overwritten_operands(func: Func) -> list[tuple[Op, Op]]:
    """(wgmma, loop): the loop makes the wgmma's register operand again where the wgmma may still be reading
    it.  At WARP and PLACED; in the order of the code."""
    scan = _scanned(func)
    return sorted(scan.found, key=lambda pair: scan.order[pair[0]])


def finished_operands(func: Func) -> dict[Op, tuple[Op, ...]]:
    """For each wgmma_wait the wgmmas with a register operand that it finishes, on any path, and whose operand
    can be named there.  At PLACED."""
    scan, named = _scanned(func), set[Value]()
    found: dict[Op, tuple[Op, ...]] = {}

    def visit(r: Region) -> None:
        named.update(r.params)
        for o in r.ops:
            if o in scan.finished:
                found[o] = tuple(w for w in scan.finished[o] if _operand(w) in named)
            for inner in o.regions:
                visit(inner)
            named.update(o.results)
        named.difference_update(r.params, *(o.results for o in r.ops))

    visit(func.body)
    return found


def _operand(wgmma: Op) -> Value:
    """What holds the registers of its operand."""
    return wgmma.result if _is_packed(wgmma.operands[0]) else wgmma.operands[0]


def _scanned(func: Func) -> _Scan:
    scan = _Scan(func)
    if any(map(_from_registers, func.body.by_kind.get(mma.wgmma, ()))):
        for phase in task.phases(func):
            for region in phase.regions:
                scan.region(region, ())
    return scan


def _from_registers(o: Op) -> bool:
    return o.kind is mma.wgmma and isinstance(o.operands[0].type, Tile)


class _Scan:
    def __init__(self, func: Func) -> None:
        self.func = func
        waits = [o.attrs["pending"] for o in func.body.by_kind.get(mma.wgmma_wait, ())]
        self.oldest = max(
            waits, default=0
        )  # groups that any wait leaves: older ones are not told apart
        self.loops: list[Op] = []  # around what is looked at
        self.found: dict[tuple[Op, Op], None] = {}
        self.finished: dict[Op, dict[Op, None]] = {}

    @cached_property
    def order(self) -> dict[Op, int]:
        return {o: i for i, o in enumerate(self.func.body.by_kind[mma.wgmma])}

    @cached_property
    def readers(self) -> dict[Value, list[Op]]:
        """The wgmmas that read each register operand."""
        found: dict[Value, list[Op]] = {}
        for w in filter(_from_registers, self.order):
            found.setdefault(self.registers(w.operands[0]), []).append(w)
        return found

    @cached_property
    def root(self) -> dict[Value, Value]:
        kinds = self.func.body.by_kind
        named = (o for kind in (*_NAMES, *control.LOOPS) for o in kinds.get(kind, ()))
        return dict(pair for o in named for pair in _same_registers(o))

    def region(self, r: Region, state: _State) -> _State:
        state = state or (frozenset(),) * (self.oldest + 2)
        for o in r.ops:
            if o.kind in _STEPS or any(not _STEPS.isdisjoint(i.by_kind) for i in o.regions):
                state = self.op(o, state)
            self.make(o.results, state)
        return state

    def make(self, values: Iterable[Value], state: _State) -> None:
        """What is made while something may be reading what it was before."""
        for w in (w for v in values for w in self.readers.get(v, ())):
            if self.loops and any(w in reads for reads in state):
                self.found[w, self.loops[-1]] = None

    def op(self, o: Op, state: _State) -> _State:
        match o.kind:
            case mma.wgmma if _from_registers(o):
                return (state[0] | {o}, *state[1:])
            case mma.wgmma_commit:
                *young, old, oldest = state
                return (frozenset(), *young, old | oldest)
            case mma.wgmma_wait:
                kept = o.attrs["pending"] + 1
                finished = self.finished.setdefault(o, {})
                over = frozenset[Op]().union(*state[kept:])
                finished.update(dict.fromkeys(sorted(over, key=self.order.__getitem__)))
                return (*state[:kept], *(frozenset() for _ in state[kept:]))
            case k if k in control.LOOPS:
                return self.loop(o, state)
            case control.if_:
                return _either(*(self.region(r, state) for r in o.regions))
        for r in o.regions:
            state = self.region(r, state)
        return state

    def loop(self, o: Op, state: _State) -> _State:
        """What is read after it: what any number of iterations leaves."""
        before: _State = ()
        self.loops.append(o)
        while state != before:
            before, after = state, state
            for r in o.regions:
                self.make(r.params, after)
                after = self.region(r, after)
            state = _either(before, after)
        self.loops.pop()
        return state

    def registers(self, v: Value) -> Value:
        while v in self.root:
            v = self.root[v]
        return v


def _same_registers(o: Op) -> list[tuple[Value, Value]]:
    """(value, an older one that it only is another name of), of a loop or an op of _NAMES."""
    if o.kind in control.LOOPS:
        unchanged = [
            c
            for c in control.carried(o)
            if all(y is p for p, y in zip(c.params, c.yielded, strict=True))
        ]
        return [(v, c.init[0]) for c in unchanged for v in (*c.params, c.result)]
    return [] if _is_packed(o.result) else [(o.result, o.operands[0])]


def _is_packed(v: Value) -> bool:
    """Integers go to a wgmma in words that are made where it is issued."""
    return isinstance(v.type, Tile) and not isinstance(v.type.elem, Pointer) and v.type.elem.is_int


def _either(*states: _State) -> _State:
    return tuple(frozenset().union(*reads) for reads in zip(*states, strict=True))
