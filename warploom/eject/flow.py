"""From SSA to a script's variables: what is a statement, what folds into expressions, who shares a name.

Three decisions, all about readability alone:

- A pure value that is used once folds into the expression that uses it, unless the user named it, the
  expression would grow too large, or a tile's computation would move over a wait or a copy.
- Values that are one variable of the script form a *class*: what a loop carries, what both arms of an `if`
  leave, the accumulator that products change in place.  Values of a class are never alive together.
- The cursors that end a loop's body (`ring_next`) are computed where the variables are assigned, at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from warploom.eject.spelling import SPELLINGS
from warploom.errors import CompileError
from warploom.ir.analysis import defined, definitions, effects, is_pure, parents, uses
from warploom.ir.core import Effect, Func, Op, Region, Type, Value, walk
from warploom.ir.ops import arith, control, mma, task, tile
from warploom.ir.types import InFlight, Tile

MOST_NODES = 8  # ops in one expression

IN_PLACE = frozenset({mma.in_flight, mma.wgmma, mma.wgmma_wait, tile.agree, tile.convert_layout})


@dataclass(frozen=True)
class Copy:
    """An assignment that control flow makes: variables of a loop before it and at the end of its body,
    variables of an `if` at the end of an arm.  `late`: the ring_next whose results these are."""

    targets: tuple[Value, ...]
    sources: tuple[Value, ...]
    late: Op | None = None


def in_place_pairs(o: Op) -> Iterator[tuple[Value, Value]]:
    """(operand, result) that are one accumulator."""
    if o.kind is mma.wgmma:
        yield o.operands[2], o.result
    elif o.kind in IN_PLACE:
        yield from zip(o.operands, o.results, strict=True)


@dataclass
class Flow:
    """See the module's docstring.  Build it with `analyse`."""

    func: Func
    made: dict[Value, Op]
    users: dict[Value, list[Op]]
    around: dict[Op, Op | None]
    place: dict[Op, tuple[Region, int]] = field(default_factory=dict)
    folded: set[Value] = field(default_factory=set)
    late: set[Op] = field(default_factory=set)
    kept: set[Value] = field(default_factory=set)  # may not fold: an accumulator changes meanwhile
    leader: dict[Value, Value] = field(default_factory=dict)  # value -> its class' first
    members: dict[Value, list[Value]] = field(default_factory=dict)
    clashes: dict[Value, set[Value]] = field(default_factory=dict)

    # ---- folding

    def fold(self) -> None:
        """Decides what is written as an expression at its use."""
        self.folded, self.late = set(), set()
        self._anchors: dict[Value, list[Op]] = {}
        self._sizes: dict[Value, int] = {}
        loads: set[Op] = set()
        for o in reversed(list(walk(self.func.body))):
            if not o.results or o.regions:
                continue
            anchors = [a for v in o.results for a in self._anchors_of(v)]
            if o.kind is task.ring_next:
                if self._is_late(o):
                    self.late.add(o)
                continue
            if len(o.results) != 1 or not SPELLINGS[o.kind].is_value:
                continue
            if self._folds(o, anchors, loads):
                self.folded.add(o.result)
                self._anchors[o.result] = anchors
                if o.kind.effect is Effect.READ:
                    loads.add(anchors[0])

    def _anchors_of(self, v: Value) -> list[Op]:
        """The statements that print a use of v; one that prints it twice is there twice."""
        found: list[Op] = []
        for u in self.users.get(v, ()):
            inside = len(u.results) == 1 and u.results[0] in self.folded
            anchors = self._anchors[u.results[0]] if inside else [u]
            found += anchors * u.operands.count(v)
        return found

    def _folds(self, o: Op, anchors: list[Op], loads: set[Op]) -> bool:
        v = o.result
        if SPELLINGS[o.kind].always:
            return True
        if v in self.kept or isinstance(v.type, InFlight):
            return False
        if all(u.kind is tile.make_view for u in anchors) and o.kind is arith.cast:
            return True
        if self._in_condition(o):
            return True
        if len(anchors) != 1 or self.size(v) > MOST_NODES:
            return False
        (anchor,) = anchors
        crossed, top = self._path(o, anchor)
        if crossed is None:
            return False
        if o.kind.effect is Effect.READ:
            return not crossed and anchor not in loads and self._adjacent(o, top)
        if not is_pure(o) or (o.id and v.hint):
            return False
        if isinstance(v.type, Tile):
            pinned = anchor.kind is mma.wgmma
            return not crossed and not pinned and not self._effects_between(o, top)
        return True

    def size(self, v: Value) -> int:
        """Ops in the expression that v would be."""
        o = self.made.get(v)
        if o is None:
            return 0
        if v not in self._sizes:
            inner = sum(self.size(x) for x in o.operands if x in self.folded or x is v)
            self._sizes[v] = inner + (not SPELLINGS[o.kind].always)
        return self._sizes[v]

    def _in_condition(self, o: Op) -> bool:
        """Whether an op stands in the condition of a `while`, which is one expression."""
        parent = self.around[o]
        return (
            parent is not None
            and parent.kind is control.while_
            and self.place[o][0] is parent.regions[0]
        )

    def _path(self, o: Op, anchor: Op) -> tuple[bool | None, Op]:
        """(whether the use is in an inner `if` or elect; None where it is in another loop or task, the op
        of o's own block that holds the use)."""
        block = self.place[o][0]
        crossed = False
        at: Op = anchor
        while self.place[at][0] is not block:
            parent = self.around[at]
            if parent is None or parent.kind not in (control.if_, task.elect):
                return None, at
            crossed, at = True, parent
        return crossed, at

    def _adjacent(self, o: Op, anchor: Op) -> bool:
        block, i = self.place[o]
        between = block.ops[i + 1 : self.place[anchor][1]]
        return all(len(x.results) == 1 and x.results[0] in self.folded for x in between)

    def _effects_between(self, o: Op, anchor: Op) -> bool:
        block, i = self.place[o]
        return any(effects(x) for x in block.ops[i + 1 : self.place[anchor][1]])

    def _is_late(self, o: Op) -> bool:
        """A cursor that only the end of its block takes: both parts, next to each other."""
        block, _ = self.place[o]
        ending = block.ops[-1]
        once = [ending.operands.count(v) == 1 for v in o.results]
        return all(once) and all(self.users[v] == [ending] for v in o.results)

    # ---- what statements read

    def reads(self, values: Iterable[Value]) -> set[Value]:
        """The variables' values that expressions for `values` mention."""
        found: set[Value] = set()
        for v in values:
            o = self.made.get(v)
            if v in self.folded or (o is not None and o in self.late):
                assert o is not None
                found |= self.reads(o.operands)
            else:
                found.add(self.rep(v))
        return found

    def rep(self, v: Value) -> Value:
        """A loop's result is the variable that it carries."""
        return self._same.get(v, v)

    # ---- copies

    def copies(self, targets: Sequence[Value], sources: Sequence[Value]) -> list[Copy]:
        """The assignments of sources to targets; a late cursor's two parts are one."""
        found: list[Copy] = []
        done: set[int] = set()
        for i, s in enumerate(sources):
            if i in done:
                continue
            o = self.made.get(s)
            if o is not None and o in self.late:
                at = [sources.index(r) for r in o.results]
                done.update(at)
                found.append(Copy(tuple(targets[j] for j in at), o.results, o))
            else:
                found.append(Copy((targets[i],), (s,)))
        return found

    # ---- liveness

    def live(self) -> None:
        """Which values are alive together: fills `clashes`."""
        self._same: dict[Value, Value] = {}
        for o in walk(self.func.body):
            for c in control.carried(o) if o.kind in control.LOOPS else ():
                self._same.update(dict.fromkeys((c.result, *c.params[1:]), c.params[0]))
        self.clashes = {}
        self._block(self.func.body, set())

    def _clash(self, v: Value, others: Iterable[Value]) -> None:
        mine = self.clashes.setdefault(v, set())
        for w in others:
            if w is not v:
                mine.add(w)
                self.clashes.setdefault(w, set()).add(v)

    def _define(self, values: Iterable[Value], live: set[Value]) -> None:
        made = {self.rep(v) for v in values}
        for v in made:
            self._clash(v, live | made)
        live -= made

    def _assign(self, copies: list[Copy], live: set[Value]) -> set[Value]:
        """Live values before parallel assignments, given those after."""
        targets = {self.rep(t) for c in copies for t in c.targets}
        for c in copies:
            for t in c.targets:
                source = {self.rep(s) for s in c.sources} if c.late is None else set()
                self._clash(self.rep(t), live - source)
        return (live - targets) | self.reads(s for c in copies for s in c.sources)

    def _block(self, region: Region, live: set[Value]) -> set[Value]:
        """Live values at the start of a block, given those at its end (before its yield)."""
        live = set(live)
        for o in reversed(region.ops[:-1]):
            if o.kind in control.LOOPS:
                live = self._loop(o, live)
            elif o.kind is control.if_:
                live = self._if(o, live)
            elif o.kind is task.tasks:
                live = self._tasks(o, live)
            elif o.regions:
                live = set().union(*(self._block(r, live) for r in o.regions))
            elif o not in self.late and not (len(o.results) == 1 and o.result in self.folded):
                self._define(o.results, live)
                live |= self.reads(o.operands)
        return live

    def _tasks(self, o: Op, live: set[Value]) -> set[Value]:
        """What several groups need from before them is a variable that none of them assigns."""
        before = [self._block(r, live) for r in o.regions]
        inside = {self.rep(v) for r in o.regions for v in defined(r)}
        for v in set().union(*before):
            if sum(v in b for b in before) > 1:
                self._clash(v, inside)
        return set().union(*before)

    def _loop(self, o: Op, live: set[Value]) -> set[Value]:
        body, carried = o.regions[-1], control.carried(o)
        header = {self.rep(v) for v in live}
        ending = self.copies([c.params[-1] for c in carried], [c.yielded[-1] for c in carried])
        while True:
            inside = self._block(body, self._assign(ending, header))
            if o.kind is control.for_:
                index = body.params[0]
                self._clash(index, inside)
                inside.discard(index)
            else:
                inside |= self.reads(control.deciding(o))
            if inside <= header:
                break
            header |= inside
        if o.kind is control.for_:
            header |= self.reads(control.deciding(o))  # after the first assignment
        start = self.copies([c.params[0] for c in carried], [c.init[0] for c in carried])
        return self._assign(start, header)

    def _if(self, o: Op, live: set[Value]) -> set[Value]:
        before: set[Value] = set()
        for r in o.regions:
            before |= self._block(r, self._assign(self.copies(o.results, r.yielded), live))
        return before | self.reads(o.operands)

    # ---- classes

    def group(self) -> None:
        """Which values are one variable."""
        self.leader, self.members = {}, {}
        for v, rep in self._same.items():
            self._join(rep, v)
        for o in task.phases(self.func):
            for r in o.regions:  # a group's index has one name
                index = [i.result for i in walk(r) if i.kind is task.replica_id]
                for v in index[1:]:
                    self._join(index[0], v)
        for o in walk(self.func.body):
            for a, b in in_place_pairs(o):
                if a not in self.folded:
                    self._force(a, b, o)
        wishes = list(self._wishes())
        for a, b, o in wishes:
            if isinstance(a.type, InFlight):
                self._force(a, b, o)
        for a, b, _ in wishes:
            if not isinstance(a.type, InFlight) and a.type == b.type and not self._clashing(a, b):
                self._join(a, b)
        self._join_namesakes(self.func.body)

    def _join_namesakes(self, region: Region) -> None:
        """What the user assigned to one variable in one block is one variable again, where it may."""
        seen: dict[tuple[str, Type], Value] = {}
        for o in region.ops:
            for v in o.results:
                mine = v.hint and o.id and not o.regions and v not in self.folded
                if not mine or any(isinstance(m.type, InFlight) for m in self.class_of(v)):
                    continue
                first = seen.setdefault((v.hint, v.type), v)
                if first is not v and not self._clashing(first, v):
                    self._join(first, v)
            for r in o.regions:
                self._join_namesakes(r)

    def _wishes(self) -> Iterator[tuple[Value, Value, Op]]:
        """Pairs (variable, value assigned to it) that control flow connects."""
        for o in walk(self.func.body):
            carried = control.carried(o)
            if o.kind is control.if_:
                pairs = [(c.result, c.yielded[arm]) for arm in (0, 1) for c in carried]
            else:
                pairs = [(c.params[-1], c.yielded[-1]) for c in carried]
                pairs += [(c.params[0], c.init[0]) for c in carried]
            for a, b in pairs:
                maker = self.made.get(b)
                if b not in self.folded and (maker is None or maker not in self.late):
                    yield a, b, o

    def find(self, v: Value) -> Value:
        """The first value of v's class, which stands for the variable."""
        while v in self.leader:
            v = self.leader[v]
        return v

    def class_of(self, v: Value) -> list[Value]:
        found = self.find(v)
        return self.members.get(found, [found])

    def _join(self, a: Value, b: Value) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b:
            self.members[a] = [*self.members.get(a, [a]), *self.members.pop(b, [b])]
            self.leader[b] = a

    def _clashing(self, a: Value, b: Value) -> bool:
        theirs = {self.rep(w) for w in self.class_of(b)}
        mine = self.class_of(a)
        if self.find(a) is self.find(b):
            return False
        return any(not theirs.isdisjoint(self.clashes.get(self.rep(v), ())) for v in mine)

    def _force(self, a: Value, b: Value, o: Op) -> None:
        """a and b are one accumulator.  Where they clash, what reads the old contents late is to be
        computed before."""
        if self._clashing(a, b):
            raise _Clash(a, b, o)
        self._join(a, b)


class _Clash(Exception):
    """An accumulator changes while its old contents are needed."""

    def __init__(self, a: Value, b: Value, o: Op) -> None:
        super().__init__()
        self.a, self.b, self.op = a, b, o


def analyse(func: Func) -> Flow:
    """The variables of a function at WARP.  Raises CompileError `eject` where an accumulator's old contents
    are needed beside the new ones."""
    made, around = definitions(func.body), parents(func.body)
    flow = Flow(func, made, uses(func.body), around)
    for region in (func.body, *(r for o in walk(func.body) for r in o.regions)):
        for i, o in enumerate(region.ops):
            flow.place[o] = region, i
    while True:
        flow.fold()
        flow.live()
        try:
            flow.group()
        except _Clash as clash:
            late = {v for v in flow.folded if _reads_tile(flow, v, clash)} - flow.kept
            if not late:
                raise CompileError(
                    "eject",
                    f"{clash.a.hint or 'an accumulator'} is changed by {clash.op.kind.name} while its old "
                    "contents are still needed, which scripts have no words for",
                    clash.op.loc,
                    help="keep the old contents in a variable that no product changes",
                ) from None
            flow.kept |= late
            continue
        return flow


def _reads_tile(flow: Flow, v: Value, clash: _Clash) -> bool:
    o = flow.made[v]
    same = {*flow.class_of(clash.a), *flow.class_of(clash.b)}
    return not SPELLINGS[o.kind].always and any(x in same for x in o.operands)
