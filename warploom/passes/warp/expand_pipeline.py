"""Expands the loops that the schedule pipelines: one iteration of the new loop runs ops of several old ones.

Order: after delay_row_reduction; before what looks at the consumer's loops in their final form.
Changes: 16 families: products of all kinds, attention forward and backward, decoding; softmax, layer norm.

`Schedule.pipelines` gives the stages of a loop's ops; pipelined_loop.py writes the prologue, the steady state
and the epilogue.  Its instances say what belongs to which stage at WARP, where waits, releases and fences
stand beside the ops that the schedule names:

- in_flight_dots.py: sums of dots, in flight while the next iteration issues its own;
- late_waits.py: the last dot of a uniform kernel's iteration, waited for in the next one;
- overlapped_dots.py: a consumer whose dots wait for each other (attention), and its producer's loads;
- prefetched_loads.py: loads of a loop without dots, which wait in registers (of one with dots:
  prefetch_beside_rings, when rings' loads are in their places).

The first of them, a sum that one dot adds to:

before:  for … (%k, %acc, %slot)           after:  for … (%k, %sums, %slot, %previous)
           mbarrier_wait(%full, %slot)               mbarrier_wait(%full, %slot)
           %a = in_flight(%acc)                      %started = gt(%k, %first)
           wgmma(%x, %y, %a); wgmma_commit()         wgmma(%x, %y, %sums, %started); wgmma_commit()
           wgmma_wait() {pending=0}                  wgmma_wait() {pending=1}
           mbarrier_arrive(%empty, %slot)            if (%started) mbarrier_arrive(%empty, %previous)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from warploom.ir import build
from warploom.ir.analysis import definitions, uses
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control
from warploom.ir.rewrite import rewrite, rewrite_tasks, with_regions
from warploom.passes.tile.canonicalize.simplify import Simplifier
from warploom.passes.warp.in_flight_dots import Dots
from warploom.passes.warp.late_waits import LateWait, late_wait
from warploom.passes.warp.overlapped_dots import ConsumerLoop
from warploom.passes.warp.ping_pong import ISSUE, OrderBarrier
from warploom.passes.warp.pipelined_loop import PipelinedLoop, ProducerLoop
from warploom.passes.warp.prefetched_loads import PrefetchedLoop
from warploom.passes.warp.skip_idle import REST
from warploom.schedule.model import Schedule, TaskPlan
from warploom.target import Target


def expand_pipeline(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    slots = 3 if schedule.tasks[-1].role == "inline" else 2
    kernel = _Kernel(schedule, target, Dots(definitions(func.body), uses(func.body), slots))

    def expanded(o: Op) -> Op:
        tasks = list(map(partial(_Task, kernel), o.regions, schedule.tasks))
        # consumers first: what they wait for late their producer asks for late
        regions = {t: t.region() for t in sorted(tasks, key=lambda t: not t.consumes)}
        return o.with_(regions=tuple(regions[t] for t in tasks))

    func = rewrite_tasks(func, expanded)
    # arms without an iteration hold what is known now: sums of zeros
    return rewrite(func, Simplifier()) if kernel.late else func


@dataclass(frozen=True)
class _Kernel:
    """late: loop -> full barriers that the consumers' stage 1 waits for."""

    schedule: Schedule
    target: Target
    dots: Dots
    late: dict[str, set[Value]] = field(default_factory=dict)


class _Task:
    """The region of one task."""

    def __init__(self, kernel: _Kernel, region: Region, plan: TaskPlan) -> None:
        self.kernel, self.old = kernel, region
        self.plans = {p.loop: p for p in kernel.schedule.pipelines}
        self.consumes = plan.role == "consumer"
        self.order = OrderBarrier.of(region, plan.replicas, plan.warps, ISSUE, kernel.target)
        # what is left of a ping-pong loop -> where the loop began
        self.left: dict[str, Value] = {}

    def region(self) -> Region:
        return self.order.begin(self.rewritten(self.old))

    def rewritten(self, r: Region) -> Region:
        b = Builder()
        ops = deque(r.ops)
        while ops:
            o = ops.popleft()
            o = with_regions(o, self.rewritten)
            loop = self.pipelined(o, tuple(ops)) if o.kind is control.for_ else None
            if loop is None:
                b.append(self.remainder(o) if o.id in self.left else o)
                continue
            with b.at(o):
                loop.write(b)
            if isinstance(loop, ConsumerLoop):
                ops = deque(loop.tail.rest)
        return Region(r.params, tuple(b.ops))

    def pipelined(self, o: Op, behind: Sequence[Op]) -> PipelinedLoop | LateWait | None:
        """What becomes of a loop; None: it stays."""
        plan, late = self.plans.get(o.id), self.kernel.late
        if plan is None:
            return self.in_flight(o)
        if self.consumes:
            if plan.ping_pong:
                self.left[f"{o.id}{REST}"] = o.operands[0]
            order = self.order if plan.ping_pong else None
            loop = ConsumerLoop(o, plan, order, self.kernel.dots.made, behind)
            late[o.id] = loop.late_rings()
            return loop
        if o.id in late:
            loads = ProducerLoop(o, late[o.id]) if late[o.id] else None
            return loads if loads and not loads.tangled else None
        return None if plan.beside_rings else PrefetchedLoop(o, plan)

    def in_flight(self, o: Op) -> PipelinedLoop | LateWait | None:
        """The loop with dots in flight over its back edge."""
        schedule, dots = self.kernel.schedule, self.kernel.dots
        if not schedule.dots_in_flight:
            return None
        if (sums := dots.in_flight(o)) is not None or schedule.specialized:
            return sums
        main, target = schedule.tasks[0], self.kernel.target
        threads = target.warp_size * main.warps
        room = target.entry_registers(threads * main.replicas)
        boxes = all(via == "tma" for c in schedule.channels for via in c.via)
        return late_wait(o, dots, threads, room, 2 if boxes else dots.slots)

    def remainder(self, o: Op) -> Op:
        """What is left of a loop, which passes its turns on: one an iteration but the first."""
        (body,) = o.regions
        b = Builder(o.loc, o.tasks)

        def skip(inner: Builder) -> None:
            self.order.wait(inner)
            self.order.arrive(inner)

        build.if_(b, arith.gt(b, body.params[0], self.left[o.id]), skip)
        return o.with_(regions=(Region(body.params, (*b.ops, *body.ops)),))
