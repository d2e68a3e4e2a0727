"""Which values share one C variable, and which ops are emitted at all.

In SSA a loop-carried tile has four names: its initial value, the loop's parameter, the value yielded and
the loop's result.  They have to be one array: a copy of an accumulator costs a register and a move an
element, and a copy of one that the tensor core is writing serialises wgmma.  So values that copies would
connect are merged (union-find), unless they are alive at the same time, in which case a copy is right.

Liveness is by intervals over a numbering of the ops in program order: reads of op p happen at 2p, its
writes at 2p + 1.  A value from outside a loop that is read inside, or bounds it, lives to the loop's end.
Values that are only other names of a tile's registers (slices, transposes) lengthen the life of the tile, and
views that of the scalars that they are made of.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from warploom.errors import InternalError
from warploom.ir.analysis import must_run
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import arith, control, mma, smem, tile, tma, unaligned
from warploom.ir.types import InFlight, Pointer, Scalar, Tile, Units, dtype_of
from warploom.layout.choose import conversion

# Results that are other names of their first operand's registers (convert_layout where it is free).
VIEWS = frozenset({tile.slice_tile, tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape})
# The result is the operand's array after the instruction.
CHAINS = frozenset({mma.in_flight, mma.wgmma_wait})
_IN_PLACE = mma.PRODUCTS | {unaligned.load_unaligned_ahead, *control.LEAD}


@dataclass
class Variable:
    """One C variable: the values that it holds at different times."""

    values: list[Value] = field(default_factory=list)
    live: list[tuple[int, int]] = field(default_factory=list)
    name: str = ""  # given by the emitter at the declaration
    flag: str = ""  # of units: the variable that tells whether they were read

    @property
    def hint(self) -> str:
        """The shortest of the values' hints: `slot` rather than `slot_next`."""
        return min((v.hint for v in self.values if v.hint), key=len, default="")

    @property
    def is_mutable(self) -> bool:
        return len(self.values) > 1


@dataclass
class Storage:
    """variables: for every value that has one (not constants, splats, views, declarations).
    declare_before: variables whose first value is defined deeper than their scope, by the op before which
    they must be declared."""

    variables: dict[Value, Variable]
    declare_before: dict[Op, list[Variable]]


def registers_of(v: Value) -> Tile | Scalar | Pointer | None:
    """The type of what a value keeps in registers; None for declarations (shared memory, views, …)."""
    match v.type:
        case InFlight(tile=t) | Units(tile=t):
            return t
        case Tile() | Scalar() | Pointer():
            return v.type
    return None


def assign_storage(func: Func, needed: Container[Op]) -> Storage:
    """Variables of all values that the needed ops define.  Raises InternalError where an accumulator in
    flight would have to be copied inside a loop."""
    scan = _Scan(needed)
    scan.region(func.body, [])
    scan.finish()
    merged = _merge(scan)
    return Storage(merged, _scopes(merged, scan))


class _Scan:
    """One walk in program order: intervals, copy edges and places."""

    def __init__(self, needed: Container[Op]) -> None:
        self.needed = needed
        self.at = 1
        self.start: dict[Value, int] = {}
        # For each value its reads: (time, spans of ops that can't run before this read).
        self.reads: dict[Value, list[tuple[int, tuple[tuple[int, int], ...]]]] = {}
        self.loops: dict[Value, list[Op]] = {}  # loops around the definition
        self.loop_end: dict[Op, int] = {}
        # Reads inside a loop of values from outside.
        self.late: list[tuple[Value, Op, tuple[tuple[int, int], ...]]] = []
        self.loop_start: dict[Op, int] = {}
        self.excluded: list[tuple[int, int]] = []  # spans of the then-arms whose else-arm this is
        self.roots: dict[Value, Value] = {}  # other names of registers -> whose they are
        self.sizes: dict[Value, tuple[Value, ...]] = {}  # of views: base, extents, strides
        self.edges: list[tuple[int, Value, Value]] = []  # (priority, a, b)
        self.place: dict[Value, tuple[Op, ...]] = {}
        self.stack: list[Op] = []
        self.order: list[Value] = []
        self.immediate: set[Value] = set()
        self.counters: set[Value] = set()  # induction variables: C's loop advances them
        self.carried: set[Value] = set()  # parameters of loops
        self.returning: set[Value] = set()  # sums in flight over a back edge, what is made of them
        self._live: dict[Value, list[tuple[int, int]]] = {}

    def define(self, v: Value, time: int, loops: list[Op], o: Op) -> None:
        if registers_of(v) is None:
            return
        self.start[v] = time
        self.reads[v] = []
        self.loops[v] = list(loops)
        self.place[v] = (*self.stack, o)
        self.order.append(v)

    def read(self, v: Value, time: int, loops: list[Op]) -> None:
        for size in self.sizes.get(v, ()):
            self.read(size, time, loops)
        v = self.roots.get(v, v)
        if v not in self.start:
            return
        self.reads[v].append((time, tuple(self.excluded)))
        outside = self.loops[v]
        if len(loops) > len(outside):
            self.late.append((v, loops[len(outside)], tuple(self.excluded)))

    def region(self, r: Region, loops: list[Op]) -> None:
        for o in r.ops:
            if o.kind is not control.yield_ and o not in self.needed:
                continue
            self.op(o, loops)

    def op(self, o: Op, loops: list[Op]) -> None:
        self.at += 1
        p = self.at
        if is_view(o):
            source = o.operands[0]
            self.roots[o.result] = self.roots.get(source, source)
            return
        if o.kind in (arith.const, tile.splat):
            for v in o.operands:
                # A splat is its scalar's expression wherever it is used.
                self.roots[o.result] = self.roots.get(v, v)
            self.immediate.add(o.result)
            return
        if o.kind is tile.make_view:  # accesses compute with what it is made of
            self.sizes[o.result] = o.operands
            return
        in_place = self._in_place(o)
        for i, v in enumerate(o.operands):
            apart = o.kind is tile.dot and i < 2  # read until its last instruction has written
            self.read(v, 2 * p + 2 if apart else 2 * p if in_place else 2 * p + 1, loops)
        if o.kind is mma.wgmma and isinstance(o.operands[0].type, Tile):
            self.pinned(o.operands[0], loops)
        match o.kind:
            case control.for_ | control.while_:
                self.loop(o, loops)
            case control.if_:
                self.if_(o, loops)
            case _:
                for r in o.regions:
                    self.stack.append(o)
                    self.region(r, loops)
                    self.stack.pop()
                for v in o.results:
                    self.define(v, 2 * p + 1 if in_place else 2 * p, loops, o)
                self._op_edges(o)

    def pinned(self, v: Value, loops: list[Op]) -> None:
        """A register operand of a wgmma stays untouched to the end of the loop (or function) around it."""
        root = self.roots.get(v, v)
        if root in self.start:
            if loops:
                self.late.append((root, loops[-1], tuple(self.excluded)))
            else:
                self.reads[root].append((1 << 60, ()))

    def _in_place(self, o: Op) -> bool:
        """May a result overwrite an operand's array?  Where element i of the one needs only element i of the
        other, and operands aren't other orders of their registers."""
        if o.kind in CHAINS or o.kind in _IN_PLACE:
            return True
        tiles = [v for v in o.operands if isinstance(v.type, Tile)]
        if not tiles and not any(isinstance(v.type, Tile) for v in o.results):
            return True
        same = (
            all(per_element(v) == per_element(o.results[0]) for v in tiles) if o.results else True
        )
        views = [v for v in tiles if v in self.roots and v not in self.immediate]
        if not self.returning.isdisjoint(
            tiles
        ):  # views of arrays of other types are never the result's
            mine = {registers_of(v) for v in o.results}
            views = [v for v in views if registers_of(self.roots[v]) in mine]
            self.returning.update(o.results)
        return o.kind in arith.ELEMENTWISE and same and not views

    def _op_edges(self, o: Op) -> None:
        if o.kind in mma.PRODUCTS:
            self.edges.append((0, o.result, o.operands[2]))
        elif o.kind is unaligned.load_unaligned_ahead:
            self.edges.append((0, o.results[1], o.operands[1]))
        elif o.kind in CHAINS:
            for a, b in zip(o.operands, o.results, strict=True):
                if o.kind is mma.wgmma_wait and a in self.carried:
                    self.returning.add(b)
                self.edges.append((0 if o.kind is mma.wgmma_wait else 1, b, a))
        elif (
            o.kind is arith.select
            and isinstance(o.operands[0].type, Scalar)
            and isinstance(registers_of(o.result), Tile)
        ):
            self.edges += [(2, o.result, v) for v in o.operands[1:]]

    def loop(self, o: Op, loops: list[Op]) -> None:
        inner = [*loops, o]
        self.loop_start[o] = self.at
        for r in o.regions:
            self.carried.update(r.params)
            for v in r.params:
                self.define(v, 2 * self.at + 1, inner, o)
            self.stack.append(o)
            self.region(r, inner)
            self.stack.pop()
        self.at += 1
        self.loop_end[o] = self.at
        if o.kind is control.for_:
            self.counters.add(o.regions[0].params[0])
            for v in o.operands[1:3]:  # C evaluates them in every iteration
                self.read(v, 2 * self.at, loops)
        for c in control.carried(o):
            self.define(c.result, 2 * self.at + 1, loops, o)
            first, *others = c.params
            self.edges += [(0, first, v) for v in (c.result, *others)]
            self.edges += [(1, first, v) for v in (*c.yielded, *c.init)]

    def if_(self, o: Op, loops: list[Op]) -> None:
        then, other = o.regions
        self.stack.append(o)
        start = self.at
        self.region(then, loops)
        self.excluded.append((2 * start + 1, 2 * self.at + 1))
        self.region(other, loops)
        self.excluded.pop()
        self.stack.pop()
        self.at += 1
        for c in control.carried(o):
            self.define(c.result, 2 * self.at + 1, loops, o)
            self.edges += [(1, c.result, v) for v in c.yielded]

    def live(self, v: Value) -> list[tuple[int, int]]:
        """When the value's register must not be overwritten: from its definition to each read, but for the
        other arms of the ifs that the read is in."""
        return self._live.get(v, [])

    def finish(self) -> None:
        """Reads in loops last to the loop's end (the next iteration reads again)."""
        for v, loop, excluded in self.late:
            before = tuple(s for s in excluded if s[1] <= 2 * self.loop_start[loop] + 1)
            self.reads[v].append((2 * self.loop_end[loop], before))
        self._live = {v: _segments(t, self.reads[v]) for v, t in self.start.items()}


def _segments(
    start: int, reads: Iterable[tuple[int, tuple[tuple[int, int], ...]]]
) -> list[tuple[int, int]]:
    """The union of [start, read] minus excluded spans, as disjoint segments.  What nobody reads is written
    all the same: at that moment it needs a place of its own."""
    out = [(start, start + 1)]
    for time, excluded in reads:
        at = start
        for a, b in sorted(excluded):
            if b <= at or a >= time:
                continue
            out.append((at, a))
            at = b
        out.append((at, time))
    return sorted({(a, b) for a, b in out if a <= b})


def per_element(v: Value) -> int:
    """Bits of an array entry's element, 0 for what isn't a tile of numbers."""
    t = registers_of(v)
    if not isinstance(t, Tile):
        return 0
    return 64 if isinstance(t.elem, Pointer) else t.elem.bits


def _merge(scan: _Scan) -> dict[Value, Variable]:
    variables: dict[Value, Variable] = {}
    for v in scan.order:
        variables[v] = Variable([v], list(scan.live(v)))
    for _, a, b in sorted(scan.edges, key=lambda e: (e[0], not _in_flight(e[1]))):
        if a not in variables or b not in variables or variables[a] is variables[b]:
            continue
        if a in scan.counters or b in scan.counters:
            continue
        x, y = variables[a], variables[b]
        if registers_of(a) != registers_of(b) or _overlap(x.live, y.live):
            if _in_flight(a) and _in_flight(b):
                raise InternalError(
                    f"codegen: {a.hint or 'a value without a name'} is in flight and would have to be copied:"
                    f" {a.type} and {b.type} are alive at the same time"
                )
            continue
        x.values += y.values
        x.live += y.live
        for v in y.values:
            variables[v] = x
    return variables


def _in_flight(v: Value) -> bool:
    return isinstance(v.type, InFlight | Units)


def _overlap(x: Iterable[tuple[int, int]], y: Iterable[tuple[int, int]]) -> bool:
    y = list(y)
    return any(a < d and c < b for a, b in x for c, d in y)


def _scopes(variables: dict[Value, Variable], scan: _Scan) -> dict[Op, list[Variable]]:
    """Variables of several values live in the innermost scope around all of them; where the first value is
    defined deeper, they are declared before the op of that scope which contains it."""
    out: dict[Op, list[Variable]] = {}
    seen: set[int] = set()
    order = {v: i for i, v in enumerate(scan.order)}
    for v in scan.order:
        variable = variables[v]
        if id(variable) in seen or not variable.is_mutable:
            continue
        seen.add(id(variable))
        variable.values.sort(key=order.__getitem__)
        paths = [scan.place[x] for x in variable.values]
        depth = 0
        while all(len(p) > depth + 1 for p in paths) and len({p[depth] for p in paths}) == 1:
            depth += 1
        first = paths[0]
        if first and len(first) > depth + 1:
            out.setdefault(first[depth], []).append(variable)
    return out


def only_moved(needed: Iterable[Op]) -> frozenset[Value]:
    """8-bit tiles that go from a slot to another one, or into a matrix instruction: nobody computes with
    them, so they stay words."""
    moves = (smem.shared_store, tile.dot)
    loaded = {o.result for o in needed if o.kind is smem.shared_load}
    read = {v for o in needed if o.kind not in moves for v in operands(o)}
    return frozenset(v for v in loaded - read if dtype_of(v.type).bits == 8)


def is_view(o: Op) -> bool:
    """Is the op's result another name of its operand's registers?"""
    if o.kind in VIEWS:
        return True
    if o.kind is tile.convert_layout:
        source, result = o.operands[0].typed(Tile), o.result.typed(Tile)
        return conversion(source.layout, result.layout).kind == "free"
    if o.kind is tile.agree:
        return not any(o.result.typed(Tile).layout.copies)
    return False


def needed_ops(func: Func, debug: bool) -> set[Op]:
    """Ops with effects, and what they need on the device.  A tensor map needs nothing there: its view is
    the host's."""
    needed: set[Op] = set()
    wanted: set[Value] = set()

    def visit(r: Region, keep_yield: bool) -> None:
        for o in reversed(r.ops):
            if o.kind is control.yield_:
                wanted.update(o.operands if keep_yield else ())
                continue
            has_effect = any(_has_effect(i, debug) for i in o.all_ops)
            if not has_effect and not any(v in wanted for v in o.results):
                continue
            needed.add(o)
            if o.kind is not tma.tensor_map:
                wanted.update(o.operands)
            for sub in reversed(o.regions):
                visit(sub, True)

    visit(func.body, False)
    return needed


def operands(o: Op) -> Iterator[Value]:
    yield from o.operands
    for r in o.regions:
        yield from r.yielded


def _has_effect(o: Op, debug: bool) -> bool:
    if o.kind is control.assume or (o.kind is control.device_assert and not debug):
        return False
    return must_run(o) or o.kind is unaligned.prefetch_box
