"""Dots that stay in flight while the next iteration issues its own (part of expand_pipeline).

The wait for an iteration's wgmmas and the release of the slots that they read are stage 1, all else is
stage 0.  The prologue is guarded, not peeled, so that the loop's wgmmas stand in the code once:

before (in a loop):                          after:
  %t = in_flight(%acc)                         %started = gt(%k, %lo)
  wgmma_fence()                                wgmma_fence()
  %f = wgmma(%a, %b, %t, %true)                %f = wgmma(%a, %b, %acc, %started)
  wgmma_commit()                               wgmma_commit()
  %next = wgmma_wait(%f) {pending=0}           wgmma_wait() {pending=1}
  mbarrier_arrive(%empty, %slot)               if(%started) { mbarrier_arrive(%empty, %previous) }
  yield(%next)                                 yield(%f, %slot)
                                             and after the loop the wait for all, the last release

The accumulator is carried as InFlight.  Where it starts as a constant zero it starts as `no_acc`, and
the first wgmma ignores it; after zero iterations a select gives the zeros.

The loop stays as it is where a dot's result is needed in the iteration that computes it; where a dot stands
deeper than the loop's own block or has a left operand in registers (pinned until the wait); where an operand
is written to shared memory in the loop itself (it would be overwritten while it is read); and where a ring
has a single slot, which has to be drained before it can be filled again, or, in a uniform kernel, two:
drained at once both are on their way while threads wait (docs/log/2026-11-29-kernels-with-dots.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warploom.ir import build, engines
from warploom.ir.analysis import only_user
from warploom.ir.core import Builder, Op, Region, Value
from warploom.ir.ops import arith, control, mbarrier, mma, smem, task
from warploom.ir.types import InFlight, Tile, dtype_of, i1, shape_of
from warploom.passes.warp.pipelined_loop import Copy, PipelinedLoop


@dataclass(frozen=True, eq=False)
class _Chain:
    """Products of one iteration that accumulate into carried value `index`, in order.  zero: does it start as
    a constant zero?"""

    index: int
    products: tuple[Op, ...]
    dropped: tuple[Op, ...]  # the in_flight before each, the wait after each
    zero: bool


class InFlightLoop(PipelinedLoop):
    """A loop whose `chains` stay in flight.  releases: of the rings that wgmma reads in place."""

    def __init__(
        self, o: Op, dots: Dots, chains: tuple[_Chain, ...], releases: Sequence[Op]
    ) -> None:
        self.chains, self.releases = chains, releases
        super().__init__(o.with_(regions=(self.carried_in_flight(o, dots),)))

    def carried_in_flight(self, o: Op, dots: Dots) -> Region:
        """The body without what brings sums into registers, with a wait for the wgmmas of the iteration
        before after the last one."""
        (old,) = o.regions
        params, ends = list(old.params), list(old.yielded)
        acc: dict[Op, tuple[Value, bool]] = {}  # wgmma -> accumulator, ignored at first
        for c in self.chains:
            tiles = c.products[0].result.typed(InFlight)
            at = params[1 + c.index] = Value(tiles, params[1 + c.index].hint)
            for n, w in enumerate(c.products):
                acc[w] = at, c.zero and n == 0
                at = w.result
            ends[c.index] = at
        dropped = {x for c in self.chains for x in c.dropped}
        flags = {dots.made[c.products[0].operands[3]]: c.products[0] for c in self.chains if c.zero}
        dropped |= {x for x, w in flags.items() if dots.only_user(x.result) is w}
        commits = [x for x in old.ops if engines.CLOSED.get(x.kind) == "products"]
        fence = next(x for x in old.ops if x.kind in engines.OPENED)
        b = Builder(o.loc, o.tasks)
        for x in old.ops[:-1]:
            if x in dropped:
                continue
            if x is fence:
                self.started = arith.gt(b, params[0], o.operands[0], hint="started")
            if x in acc:
                at, ignored = acc[x]
                use = x.operands[3]
                if ignored:
                    use = self.started
                elif not build.constant_of(dots.made.get(use)):
                    use = build.const(b, True, i1)
                x = x.with_(operands=(*x.operands[:2], at, use))
            b.append(x)
            if x is commits[-1]:
                engines.WAITS["products"](b, pending=len(commits))
                self.wait = b.ops[-1]
        control.yield_(b, *ends)
        return b.region(params)

    def stages(self) -> dict[Op, int]:
        return {o: int(o is self.wait or o in self.releases) for o in self.ops}

    @property
    def hints(self) -> list[str]:
        return [*(p.hint for p in self.params), *("previous" for _ in self.delayed)]

    def interleave(self, b: Builder, new: Copy, old: Copy) -> None:
        at = self.ops.index(self.wait)
        new.write(o for o in self.ops[:at] if self.stage[o] == 0)
        old.write([self.wait])
        self.release(b, new.get(self.started), old)
        new.write(o for o in self.ops[at:] if self.stage[o] == 0)

    def release(self, b: Builder, when: Value, old: Copy) -> None:
        if self.releases:
            build.if_(b, when, lambda inner: self.copy(inner, old.env).write(self.releases))

    def write(self, b: Builder) -> None:
        o = self.loop
        lo, hi, step, *start = o.operands
        init = list(start)
        for c in self.chains:
            t = start[c.index].type
            init[c.index] = (
                mma.no_acc(b, shape=shape_of(t), dtype=dtype_of(t), hint="acc_init")
                if c.zero
                else mma.in_flight(b, start[c.index], hint="acc_init")
            )
        none = [build.const(b, 0, dtype_of(v.type)) for v in self.delayed]
        self.new_loop(b, (lo, hi, step), (*init, *none))
        results = list(o.results)
        for c in self.chains:
            results[c.index] = Value(init[c.index].type, start[c.index].hint)
        last = [Value(v.type, "last") for v in self.delayed]
        b.ops[-1] = b.ops[-1].with_(results=(*results, *last))
        sums = tuple(
            Value(o.results[c.index].type, "sum") if c.zero else o.results[c.index]
            for c in self.chains
        )
        flights = tuple(results[c.index] for c in self.chains)
        b.append(Op(engines.WAITS["products"], flights, {"pending": 0}, sums, (), b.tasks, b.loc))
        if not self.releases and not any(c.zero for c in self.chains):
            return
        ran = arith.lt(b, lo, hi, hint="ran")
        self.release(b, ran, self.copy(b, dict(zip(self.delayed, last, strict=True))))
        for c, total in zip(self.chains, sums, strict=True):
            if c.zero:
                operands, final = (ran, total, start[c.index]), (o.results[c.index],)
                b.append(Op(arith.select, operands, {}, final, (), b.tasks, b.loc))


@dataclass(frozen=True)
class Dots:
    """The dots of a function: which loops can keep theirs in flight.  slots: of a ring, at least."""

    made: Mapping[Value, Op]
    uses: Mapping[Value, Sequence[Op]]
    slots: int = 2

    def in_flight(self, o: Op) -> InFlightLoop | None:
        """The loop with its dots in flight; None where it has none, or one can't be."""
        (body,) = o.regions
        inside = [x for x in body.all_ops if mma.is_issued(x)]
        found = (self.chain(i, o.operands[3 + i], body) for i in range(len(o.results)))
        chains = tuple(c for c in found if c is not None)
        if not inside or set(inside) != {w for c in chains for w in c.products}:
            return None
        if any(isinstance(w.operands[0].type, Tile) for w in inside):
            return None
        stored = {
            self.origin(x.operands[0])[0] for x in body.all_ops if x.kind is smem.shared_store
        }
        read = {self.origin(v) for w in inside for v in w.operands[:2]}
        if any(memory in stored for memory, _ in read):
            return None
        slots = {slot for _, slot in read if slot is not None}
        for x in body.ops:
            if (
                x.kind is task.ring_next
                and x.operands[0] in slots
                and x.attrs["depth"] < self.slots
            ):
                return None
        arrivals = (x for x in body.ops if x.kind is mbarrier.mbarrier_arrive)
        return InFlightLoop(o, self, chains, [x for x in arrivals if x.operands[1] in slots])

    def chain(self, index: int, init: Value, body: Region) -> _Chain | None:
        """The wgmmas through which a carried tile passes and nothing else."""
        here = set(body.ops)
        at = body.params[1 + index]
        products: list[Op] = []
        dropped: list[Op] = []
        while True:
            start = self.only_user(at)
            if start is None or start not in here:
                return None
            if start is body.ops[-1]:
                ok = bool(products) and start.operands[index] is at
                if not ok:
                    return None
                return _Chain(
                    index, tuple(products), tuple(dropped), build.is_zero(init, self.made.get)
                )
            if start.kind is not mma.in_flight:
                return None
            product = self.only_user(start.result)
            if product is None or not mma.is_issued(product) or product not in here:
                return None
            wait = self.only_user(product.result)
            if (
                wait is None
                or engines.WAITED.get(wait.kind) != "products"
                or len(wait.operands) != 1
            ):
                return None
            products.append(product)
            dropped += [start, wait]
            at = wait.result

    def only_user(self, v: Value) -> Op | None:
        return only_user(self.uses, v)

    def origin(self, v: Value) -> tuple[Value, Value | None]:
        """The allocation that shared memory v is a part of, and the index of its slot."""
        slot = None
        o = self.made.get(v)
        while o is not None and o.kind in smem.PARTS:
            slot = o.operands[1] if o.kind is smem.shared_slot else slot
            v = o.operands[0]
            o = self.made.get(v)
        return v, slot
