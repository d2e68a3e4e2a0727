"""The expansion of one software-pipelined loop (part of expand_pipeline).

Each op of the body has a stage, 0 or 1: the vocabulary of modulo scheduling, with an initiation interval of
one iteration.  One iteration of the new loop does stage 0 of an iteration and stage 1 of the iteration
`distance` before it, in the order in which `interleave` writes them:

    before:  for i in lo … hi:      after:  if lo < hi:
               a(i)                           a(lo)                                 prologue
               b(i)                           for i in lo + step … hi:              steady state
                                                a(i) and b(i - step), interleaved
                                              b(last)                               epilogue

That is what `write` does; a subclass may guard the prologue instead of peeling it, or repeat stage 0 of the
last iteration instead of an epilogue.  What stage 1 reads of stage 0 is carried to it; where the
distance is more than one, each iteration in flight keeps to registers of its own, and the body is unrolled
as often (`unroll`: modulo variable expansion).

Of loops that fill or read rings there are two sides, the consumer's (overlapped_dots.py) and the producer's:
what the consumer waits for in stage 1 is asked for in stage 1, in the order in which it is waited for.

    before (in a loop):        after:
      load k;  load v            load k of the next iteration;  load v
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import definitions, effects, reads
from warploom.ir.core import Builder, Effect, Op, OpKind, Region, Value
from warploom.ir.ops import arith, mma, smem, task, tile
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Shared
from warploom.passes.warp.loop_tail import Tail

Bounds = tuple[Value, Value, Value]
Values = tuple[Value, ...]


class PipelinedLoop(ABC):
    """One loop.  ops: those that stand in a stage, all but kinds in `remade` (made again where they are
    read) and `implied` (written with others).

    kept, carried_late: the old loop's carried values that stage 0 advances, and those that stage 1 does
    and reads; delayed: values of stage 0 that stage 1 reads `distance` iterations later.  The new loop
    carries these, delayed ones for each iteration in flight.

    tail: what stands after the loop and runs in its epilogue."""

    remade: frozenset[OpKind] = frozenset()
    implied: frozenset[OpKind] = frozenset()
    distance = 1
    unroll = 1
    tail = Tail()

    def __init__(self, o: Op) -> None:
        self.loop = o
        (self.old,) = o.regions
        self.index, *self.params = self.old.params
        self.made = definitions(Region((), self.old.ops))
        apart = self.remade | self.implied
        self.ops = [x for x in self.old.ops[:-1] if x.kind not in apart]
        self.placed = frozenset(self.ops)
        self.stage = self.stages()
        self.ends = dict(zip(self.params, self.old.yielded, strict=True))
        self.late_params = {p for p, v in self.ends.items() if self.stage_of(v) == 1}
        late = [v for o in self.in_stage(1) for v in self.needs(o)]
        self.kept = [p for p in self.params if p not in self.late_params]
        self.carried_late = [p for p in self.params if p in self.late_params and p in late]
        self.delayed = [
            v for v in dict.fromkeys(late) if v not in self.late_params and self.stage_of(v) == 0
        ]

    @abstractmethod
    def stages(self) -> dict[Op, int]:
        """The stage of each of `ops`."""

    def interleave(self, b: Builder, new: Copy, old: Copy) -> None:
        """Writes one iteration: stage 0 through `new`, stage 1 through `old`."""
        new.write(self.in_stage(0))
        old.write(self.in_stage(1))

    def copy(self, b: Builder, env: Env) -> Copy:
        return Copy(self, b, env)

    # ---- dependences

    def in_stage(self, n: int) -> list[Op]:
        return [o for o in self.ops if self.stage[o] == n]

    def stage_of(self, v: Value) -> int:
        maker = self.made.get(v)
        return self.stage.get(maker, 0) if maker is not None else 0

    def needs(self, o: Op) -> list[Value]:
        """What o reads of the body, through what is made again: results of `ops` and parameters."""
        found: dict[Value, None] = {}
        work = list(reads(o))
        while work:
            v = work.pop()
            maker = self.made.get(v)
            if maker is not None and maker.kind in self.remade:
                work.extend(maker.operands)
            elif v in self.old.params or maker in self.placed:
                found[v] = None
        return list(found)

    # ---- the new code

    def write(self, b: Builder) -> None:
        """Appends the pipelined loop, and what of the tail runs in it."""
        lo, hi = self.loop.operands[:2]
        runs = arith.lt(b, lo, hi, hint="runs")
        build.if_(b, runs, self.with_iterations, self.without_iterations)
        b.ops[-1] = b.ops[-1].with_(results=(*self.loop.results, *self.tail.gives))

    def without_iterations(self, b: Builder) -> Values:
        """No iteration."""
        init = self.loop.operands[3:]
        env = dict(zip(self.loop.results, init, strict=True))
        self.tail.release(b, env)
        self.tail.run(b, env)
        return (*init, *(env[v] for v in self.tail.gives))

    def with_iterations(self, b: Builder) -> Values:
        """At least one iteration."""
        lo, _, step, *init = self.loop.operands
        first = self.prologue(b, lo, init)
        state = (
            *(first.get(self.ends[p]) for p in self.kept),
            *(first.env[p] for p in self.carried_late),
            *(first.get(v) for v in self.delayed),
        )
        second = arith.add(b, lo, step, hint="second")
        state = self.steady_state(b, first, second, state)
        # a slot that both stages read is kept, moved on, and delayed as it was
        finals = dict(zip(self.kept, state, strict=False))
        owed = (*self.carried_late, *self.delayed)
        last = self.copy(b, dict(zip(owed, state[len(finals) :], strict=True)))
        results = dict(zip(self.params, self.loop.results, strict=True))
        env = {results[p]: finals[p] for p in self.kept}
        self.epilogue(last, env)
        ends = (last.get(self.ends[p]) if p in self.late_params else finals[p] for p in self.params)
        return (*ends, *(env[v] for v in self.tail.gives))

    def prologue(self, b: Builder, index: Value, init: Sequence[Value]) -> Copy:
        """Writes stage 0 of an iteration before the loop."""
        copy = self.copy(b, dict(zip(self.old.params, (index, *init), strict=True)))
        copy.write(self.in_stage(0))
        return copy

    def steady_state(self, b: Builder, first: Copy, second: Value, state: Values) -> Values:
        """The loop from its second index on.  first: the copy of the first iteration."""
        _, hi, step = self.loop.operands[:3]
        return self.new_loop(b, (second, hi, step), state)

    def epilogue(self, last: Copy, env: Env) -> None:
        """Writes stage 1 of the last iteration, and the tail (env: its values)."""
        last.write(self.in_stage(1))

    def new_loop(self, b: Builder, bounds: Bounds, state: Values) -> Values:
        """The new loop.  state: what it carries; gives the same after it."""
        results = build.for_(b, bounds, state, self.body, iv=self.index.hint, hints=self.hints)
        loop = b.ops[-1]
        b.ops[-1] = loop.with_(id=self.loop.id, attrs=dict(self.loop.attrs))
        return results

    @property
    def hints(self) -> list[str]:
        """Names of what the new loop carries."""
        return [v.hint for v in (*self.kept, *self.carried_late, *self.delayed * self.unroll)]

    def body(self, b: Builder, i: Value, state: Values) -> Values:
        kept, late = len(self.kept), len(self.carried_late)
        own, rows = state[: kept + late], self.in_flight(state)
        for k in range(self.unroll):
            now, past = self.indices(b, i, k)
            now.update(zip(self.kept, own, strict=False))
            past.update(zip(self.carried_late, own[kept:], strict=True))
            past.update(zip(self.delayed, rows[k], strict=True))
            new, old = self.copy(b, now), self.copy(b, past)
            self.interleave(b, new, old)
            new.env |= {p: old.get(self.ends[p]) for p in self.late_params}
            own = (
                *(new.get(self.ends[p]) for p in self.kept),
                *(new.get(p) for p in self.carried_late),
            )
            rows[(k + self.distance) % self.unroll] = tuple(new.get(v) for v in self.delayed)
        return (*own, *(v for row in rows for v in row))

    def in_flight(self, state: Values) -> list[Values]:
        """The delayed values of each iteration in flight."""
        at, n = len(self.kept) + len(self.carried_late), len(self.delayed)
        return [state[at + k * n : at + (k + 1) * n] for k in range(self.unroll)]

    def indices(self, b: Builder, i: Value, k: int) -> tuple[Env, Env]:
        """The old loop's index in stage 0 and, where it is not carried there, in stage 1, in copy `k`
        of `unroll`.  i: the new loop's."""
        return {self.index: i}, {}


class Copy:
    """Copies ops of a loop's body into a builder; `env`: values of the body -> of the copy."""

    def __init__(self, loop: PipelinedLoop, b: Builder, env: Env) -> None:
        self.loop, self.b, self.env = loop, b, dict(env)

    def get(self, v: Value) -> Value:
        """v in the copy, made again where it has to be."""
        if v not in self.env:
            maker = self.loop.made.get(v)
            if maker is None and v not in self.loop.old.params:
                return v  # from outside of the loop
            if maker is None or maker.kind not in self.loop.remade:
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
        self.b.append(clone_op(o, self.env))


class RingLoop(PipelinedLoop):
    """A loop that fills or reads rings.  What is made again takes no instruction, or no register that another
    place could spare; a wgmma stands for its fence and commit as well.

    outer: definitions around the loop."""

    remade = smem.PARTS | {
        arith.const, tile.splat, tile.expand_dims, tile.broadcast, tile.arange, mma.no_acc,
    }  # fmt: skip
    implied = mma.GROUPING

    def __init__(self, o: Op, outer: Mapping[Value, Op]) -> None:
        self.outer = outer
        super().__init__(o)

    def slots(self, o: Op) -> Iterable[Value]:
        """Indices of the slots whose memory o accesses."""
        work = [v for v in reads(o) if isinstance(v.type, Shared)]
        while work:
            v = work.pop()
            maker = self.maker(v)
            if maker is None:
                continue
            if maker.kind is smem.shared_slot:
                yield maker.operands[1]
            else:
                work += [v for v in maker.operands if isinstance(v.type, Shared)]

    def maker(self, v: Value) -> Op | None:
        """The op that makes v, in the loop or around it."""
        return self.made.get(v) or self.outer.get(v)


class ProducerLoop(RingLoop):
    """The producer's side of a consumer's loop.  What the consumer waits for in stage 1 (`late`: the full
    barriers) is asked for an iteration later.

    tangled: an op fills slots for both stages, or the slot of a late one is not the loop's own: the loop has
    to stay as it is."""

    def __init__(self, o: Op, late: set[Value]) -> None:
        self.late = late
        self.tangled = False
        super().__init__(o, {})

    def stages(self) -> dict[Op, int]:
        late = self.late_slots()
        early = {o.operands[0] for o in self.ops if o.kind is task.ring_next} - late
        self.tangled = not late <= set(self.old.params) or not early
        readers: dict[Value, list[Op]] = {}
        for o in self.ops:
            for v in self.needs(o):
                readers.setdefault(v, []).append(o)
        stage: dict[Op, int] = {}
        behind = 0  # stage of the op behind that fills something
        for o in reversed(self.ops):
            touched = {*reads(o), *self.slots(o)}
            if touched & (late | early):
                self.tangled |= bool(touched & late and touched & early)
                behind = stage[o] = int(bool(touched & late))
            elif effects(o) & (Effect.WRITE | Effect.SYNC):
                stage[o] = behind
            else:
                users = [x for v in o.results for x in readers.get(v, ())]
                passed_on = not set(o.results).isdisjoint(self.old.yielded)
                stage[o] = int(bool(users) and not passed_on and all(stage[x] for x in users))
        return stage

    def late_slots(self) -> set[Value]:
        """Slots that are filled for stage 1."""
        inside = [x for o in self.ops for x in o.all_ops]
        return {
            x.operands[i + 1] for x in inside for i, v in enumerate(x.operands) if v in self.late
        }
