"""A loop in two stages: stage 0 of one iteration runs together with stage 1 of the iteration before.

    before:  for i in lo … hi:      after:  if lo < hi:
               a(i)                           a(first)
               b(i)                           for i in second … hi:  a(i) and b(i - 1), mixed
                                              b(last)

Part of pipeline_consumer, whose loops say what stands in which stage and how a turn mixes the two.  What
stage 1 reads of stage 0 is carried to the next turn; views, constants and splats are made again where they
are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from warploom.analysis.loop_overlap import TurningPoint
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import definitions, reads
from warploom.ir.core import Builder, Op, OpKind, Region, Value
from warploom.ir.ops import arith, mma, smem, tile
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Scalar, Shared
from warploom.passes.warp.loop_tail import Tail
from warploom.passes.warp.skip_idle import following

# Made again where they are read: they take no instruction, or no register that another place could spare.
_REMADE = frozenset(
    (arith.const, tile.splat, tile.expand_dims, tile.broadcast, tile.arange, mma.no_acc)
) | frozenset((smem.shared_slot, smem.shared_slice, smem.shared_transpose))
_AROUND_WGMMA = (mma.wgmma_fence, mma.wgmma_commit)
Arms = Mapping[Op, int]  # branches and selects that always go one way: 0 is the first


# The loops that one is cut into: where each ends, and what goes one way in it.
Cuts = Sequence[tuple[Value, Arms]]


class TwoStages(ABC):
    """One loop.  ops: what stands in a stage (a wgmma stands for its fence and commit as well).

    kept, carried_late: the old loop's carried values that stage 0 advances, and those that stage 1 does
    and reads; delayed: values of stage 0 that stage 1 reads a turn later.

    outer: definitions around the loop; behind: the rest of its block, of which `tail` moves in."""

    def __init__(
        self, o: Op, outer: Mapping[Value, Op] | None = None, behind: Sequence[Op] = ()
    ) -> None:
        self.loop = o
        self.outer = outer or {}
        (self.old,) = o.regions
        self.made = definitions(Region((), self.old.ops))
        self.ops = [
            x for x in self.old.ops[:-1] if x.kind not in _REMADE and x.kind not in _AROUND_WGMMA
        ]
        self.index = {x: i for i, x in enumerate(self.ops)}
        self.stage = self.stages()
        carried = zip(self.old.params[1:], self.old.yielded, strict=True)
        self.ends = dict(carried)
        self.late_params = {p for p, v in self.ends.items() if self.stage_of(v) == 1}
        late = [v for o in self.ops if self.stage[o] == 1 for v in self.needs(o)]
        params = self.old.params[1:]
        self.kept = [p for p in params if p not in self.late_params]
        self.carried_late = [p for p in params if p in self.late_params and p in late]
        self.delayed = [
            v for v in dict.fromkeys(late) if v not in self.late_params and self.stage_of(v) == 0
        ]
        self.tail = self.find_tail(behind)

    @abstractmethod
    def stages(self) -> dict[Op, int]:
        """The stage of each of `ops`."""

    @abstractmethod
    def mixed(self, b: Builder, new: Copy, old: Copy) -> None:
        """Writes one turn: stage 0 through `new`, stage 1 through `old`."""

    def cuts(self, first: Copy) -> Cuts:
        """Where the loop is cut, at turning points of stage 0.  first: the first iteration's copy, behind
        which scalars of the loop's own are known."""
        return [(self.loop.operands[1], {})]

    def copy(self, b: Builder, env: Env, arms: Arms | None = None) -> Copy:
        return Copy(self, b, env, arms or {})

    def inside(self, point: TurningPoint) -> bool:
        """Does the branch surely turn before the loop's end?  One does that compares the end itself with what
        lies ahead of the index (nothing wraps: the end is behind a start that is not negative)."""
        lo, hi = (self.loop.operands[i] for i in (0, 1))
        start, ahead = self.constant(lo), self.constant(point.offset)
        return point.limit is hi and start is not None and start >= 0 and (ahead or 0) >= 1

    def constant(self, v: Value | None) -> int | None:
        made = self.outer.get(v) if v is not None else None
        return int(made.attrs["value"]) if made is not None and made.kind is arith.const else None

    # ---- dependences

    def needs(self, o: Op) -> list[Value]:
        """What o reads of the body, through what is made again: results of `ops` and parameters."""
        found: dict[Value, None] = {}
        work = list(reads(o))
        params = set(self.old.params)
        while work:
            v = work.pop()
            maker = self.made.get(v)
            if maker is not None and maker.kind in _REMADE:
                work.extend(maker.operands)
            elif v in params or maker in self.index:
                found[v] = None
        return list(found)

    def slots(self, o: Op) -> Iterable[Value]:
        """Indices of the slots whose memory o accesses."""
        work = [v for v in reads(o) if isinstance(v.type, Shared)]
        while work:
            v = work.pop()
            maker = self.made.get(v) or self.outer.get(v)
            if maker is None:
                continue
            if maker.kind is smem.shared_slot:
                yield maker.operands[1]
            else:
                work += [v for v in maker.operands if isinstance(v.type, Shared)]

    def stage_of(self, v: Value) -> int:
        maker = self.made.get(v)
        return self.stage.get(maker, 0) if maker is not None else 0

    def find_tail(self, behind: Sequence[Op]) -> Tail:
        done = {i for o in self.ops if self.stage[o] == 1 for i in self.slots(o)}
        ends = zip(self.old.params[1:], self.loop.results, strict=True)
        late = {v for p, v in ends if p in self.late_params}
        return Tail.find(
            behind,
            [v for v in self.loop.results if v not in late],
            late,
            lambda slot: slot not in done,
            self.slots,
            lambda o: o.kind in _REMADE,
        )

    # ---- the new code

    def write(self, b: Builder) -> None:
        o = self.loop
        lo, hi = o.operands[:2]
        init = o.operands[3:]

        def none(b: Builder) -> Sequence[Value]:
            env = dict(zip(o.results, init, strict=True))
            self.tail.release(b, env)
            self.tail.run(b, env)
            return [*init, *(env[v] for v in self.tail.gives)]

        runs = arith.lt(b, lo, hi, hint="runs")
        build.if_(b, runs, self.some, none)
        b.ops[-1] = b.ops[-1].with_(results=(*o.results, *self.tail.gives))

    def finish(self, last: Copy, late: Sequence[Op], env: Env) -> None:
        """Writes stage 1 of the last iteration, and the tail (env: its values)."""
        self.tail.release(last.b, env)
        last.write(late)
        self.tail.run(last.b, env)

    def some(self, b: Builder) -> Sequence[Value]:
        """At least one iteration."""
        o = self.loop
        lo, hi, step = o.operands[:3]
        early = [x for x in self.ops if self.stage[x] == 0]
        late = [x for x in self.ops if self.stage[x] == 1]
        params = self.old.params
        first = self.copy(b, dict(zip(params, (lo, *o.operands[3:]), strict=True)))
        first.write(early)
        init = [
            *(first.get(self.ends[p]) for p in self.kept),
            *(first.env[p] for p in self.carried_late),
            *(first.get(v) for v in self.delayed),
        ]
        at = arith.add(b, lo, step, hint="second")
        last_turn: Sequence[Value] = init
        for end, arms in self.cuts(first):
            last_turn = self.iterations(b, (at, end, step), last_turn, arms)
            if end is not hi:
                at = following(b, at, end, step)
        # a slot that both stages read is kept, moved on, and delayed as it was
        finals = dict(zip(self.kept, last_turn, strict=False))
        owed = (*self.carried_late, *self.delayed)
        last = self.copy(b, dict(zip(owed, last_turn[len(finals) :], strict=True)))
        results = dict(zip(params[1:], o.results, strict=True))
        env = {results[p]: finals[p] for p in self.kept}
        self.finish(last, late, env)
        ends = (last.get(self.ends[p]) if p in self.late_params else finals[p] for p in params[1:])
        return [*ends, *(env[v] for v in self.tail.gives)]

    def iterations(
        self, b: Builder, bounds: tuple[Value, Value, Value], init: Sequence[Value], arms: Arms
    ) -> tuple[Value, ...]:
        """A loop of turns."""
        names = (*self.kept, *self.carried_late, *self.delayed)
        index = self.old.params[0]

        def turn(inner: Builder, i: Value, carried: tuple[Value, ...]) -> Sequence[Value]:
            now = {index: i, **dict(zip(self.kept, carried, strict=False))}
            past = dict(zip(names[len(self.kept) :], carried[len(self.kept) :], strict=True))
            new, old = self.copy(inner, now, arms), self.copy(inner, past, arms)
            self.mixed(inner, new, old)
            new.env |= {p: old.get(self.ends[p]) for p in self.late_params}
            return [
                *(new.get(self.ends[p]) for p in self.kept),
                *(new.get(p) for p in self.carried_late),
                *(new.get(v) for v in self.delayed),
            ]

        place = len(b.ops)
        hints = [v.hint for v in names]
        results = build.for_(b, bounds, init, turn, iv=index.hint, hints=hints)
        b.ops[place] = b.ops[place].with_(id=self.loop.id, attrs=dict(self.loop.attrs))
        return results


class Copy:
    """Copies ops of a loop's body into a builder; `env`: values of the body -> of the copy."""

    def __init__(self, loop: TwoStages, b: Builder, env: Env, arms: Arms) -> None:
        self.loop, self.b, self.env, self.arms = loop, b, dict(env), arms

    def get(self, v: Value) -> Value:
        """v in the copy, made again where it has to be."""
        if v not in self.env:
            maker = self.loop.made.get(v)
            if maker is None and v not in self.loop.old.params:
                return v  # from outside of the loop
            if maker is None or maker.kind not in _REMADE:
                raise InternalError(f"{v.hint or 'a value'} of {self.loop.loop.id} comes too late")
            for x in maker.operands:
                self.env[x] = self.get(x)
            self.b.append(clone_op(maker, self.env))
        return self.env[v]

    def write(self, ops: Iterable[Op]) -> None:
        for o in ops:
            for v in reads(o):
                self.env[v] = self.get(v)
            with self.b.at(o):
                self.op(o)

    def op(self, o: Op) -> None:
        if o in self.arms and o.regions:
            arm = o.regions[self.arms[o]]
            self.write(arm.ops[:-1])
            for v, y in zip(o.results, arm.yielded, strict=True):
                self.env[v] = self.get(y)
        elif o in self.arms:
            self.env[o.result] = self.get(o.operands[1 + self.arms[o]])
        else:
            self.b.append(clone_op(o, self.env))

    def bound(self, point: TurningPoint, between: tuple[Value, Value] | None) -> Value:
        """The first index at which the branch has turned, at least and at most as `between` says: the limit
        is brought there before anything is taken from it, as it may be the least or the greatest number."""
        at = self.get(point.limit)
        assert isinstance(at.type, Scalar)
        offset = None if point.offset is None else self.get(point.offset)
        one = build.const(self.b, 1, at.type.dtype) if point.inclusive else None

        def moved(v: Value, there: OpKind, back: OpKind) -> Value:
            v = v if offset is None else there(self.b, v, offset)
            return v if one is None else back(self.b, v, one)

        if between is not None:
            low, high = (moved(v, arith.add, arith.sub) for v in between)
            at = arith.minimum(self.b, arith.maximum(self.b, at, low), high, hint="turn")
        return moved(at, arith.sub, arith.add)
