"""Uniform kernels: puts the code of the inline producer into the one task, some iterations ahead.

Order: last before layouts; does nothing to specialized schedules.
Changes: 12 families, all uniform kernels with dots.

before (two regions, a ring of d slots):   after (one):
  for %k … mbarrier_wait(%full); use(%k)      for the first d - 1:  mbarrier_wait(%empty); cp_async(…)
  for %k … mbarrier_wait(%empty);             for %k …
           cp_async(…)                          mbarrier_wait(%full); use(%k)
                                                if (lt(add(%k, d - 1), %end))
                                                  mbarrier_wait(%empty); cp_async(…)

Both regions are copies of one program, so their loops and ifs correspond by id.  Innermost loops of loads
are software-pipelined (pipelined_loop.py): loads are stage 0, uses stage 1, as many iterations later as
`Schedule.prefetched` says.  Around them the two copies are merged block by block, loads before uses.  The
loads keep their own carried values (cursors, advanced addresses): they are that many iterations ahead.
A ring of one slot can't run ahead: loads come before uses in the same iteration.  Of two slots that an
iteration gives back itself each is filled again right then, for the iteration after the next: nothing else
would be on its way while the next one is waited for.  Where constants say that a loop has no more iterations
than its rings have slots, all its loads come before it.  Where an iteration gives slots back that the one
before has read (late_waits.py), loads run under its first products, as who asks for boxes multiplies, too:
all of them, an iteration nearer, or of two slots the boxes for those that are free by then.

    for %k …  mbarrier_wait(%full); wgmma(…); wgmma_commit()
              if (…)  elect: mbarrier_wait(%empty); tma_load(…)
              wgmma_wait(); mbarrier_arrive(%empty_late, %previous); …
              if (…)  elect: mbarrier_wait(%empty_late); tma_load(…)

Where copies complete by group, an iteration begins with the one wait for all that it reads, and each
iteration of the loads is one group, empty where there is nothing left to load: so the group that an iteration
waits for always has as many after it.

    for k in first depth-1:   if in range: loads(k);  cp_async_commit()
    for k:                    cp_async_wait() {pending=depth-2};  group_sync()
                              if k + depth-1 in range: loads(k + depth-1)
                              cp_async_commit();  use(k)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from warploom.errors import InternalError
from warploom.ir import build, engines
from warploom.ir.analysis import closure, definitions, is_pure
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, smem, task
from warploom.ir.rewrite import (
    clone_op,
    rewrite,
    rewrite_tasks,
    substitute,
    substitute_operands,
    with_ops,
    with_regions,
)
from warploom.ir.types import dtype_of
from warploom.passes.warp.pipelined_loop import Copy, PipelinedLoop, Values
from warploom.schedule.model import Schedule


def fuse_tasks(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    fuser = _Fuser({}, definitions(func.body), dict(schedule.prefetched))

    def tasks(o: Op) -> Op:
        if len(o.regions) != 2:
            raise InternalError("a uniform kernel has one task and the loads fused into it")
        attrs = {k: v[:1] if isinstance(v, tuple) else v for k, v in o.attrs.items()}
        return o.with_(attrs=attrs, regions=(_merge(*o.regions, fuser),))

    return rewrite_tasks(func, tasks)


def _merge(main: Region, loads: Region, fuser: _Fuser) -> Region:
    """One task's region: a replica id that both use is made once."""
    ids = [o for r in (main, loads) for o in r.ops if o.kind is task.replica_id]
    b = Builder()
    if ids:
        b.append(ids[0])
        fuser.env = {o.result: ids[0].result for o in ids[1:]}
    main_ops = [o for o in main.ops[:-1] if o not in ids]
    load_ops = [o for o in loads.ops[:-1] if o not in ids]
    fuser.block(main_ops, load_ops, b)
    control.yield_(b)
    fused = b.region()
    by_group = any(engines.WAITED.get(o.kind) == "copies" for o in walk(fused))
    return _without_phases(fused) if by_group else fused


def _without_phases(fused: Region) -> Region:
    """Rings without barriers count slots alone: their phases are nobody's."""
    made = {v: o for o in walk(fused) for v in o.results}
    passed: dict[Value, list[Value]] = {}
    for c in (c for o in walk(fused) for c in control.carried(o)):
        for v in (*c.params, *c.yielded, c.result):
            passed.setdefault(v, []).extend(c.all)
    waits = [o for o in walk(fused) if o.kind is mbarrier.mbarrier_wait]

    def sources(v: Value) -> tuple[Value, ...]:
        o = made.get(v)
        return (*passed.get(v, ()), *(o.operands if o is not None and not o.regions else ()))

    counted = closure((v for o in waits for v in o.operands), sources)

    def without(o: Op, b: Builder) -> Sequence[Value] | None:
        if o.kind is not task.ring_next or o.results[1] in counted:
            return None
        zero = build.const(b, 0)
        how = {"depth": o.attrs["depth"], "hint": o.results[0].hint}
        slot, _ = task.ring_next.several(b, o.operands[0], zero, **how)
        return slot, zero

    return rewrite(fused, without)


@dataclass(eq=False)
class _Fuser:
    """`env` maps values of the loads' copy that were replaced.  made: the ops that make values.  distances:
    of loops, as the schedule says."""

    env: dict[Value, Value]
    made: Mapping[Value, Op]
    distances: Mapping[str, int]

    # ---- merging blocks

    def block(self, main: Sequence[Op], loads: Sequence[Op], b: Builder) -> None:
        """Interleaves two copies of a block: up to each op that both have, loads first."""
        rest = list(main)
        for o in loads:
            partner = _partner(o, rest)
            if partner is None:
                self.once(o, rest, b)
                continue
            at = rest.index(partner)
            b.ops.extend(rest[:at])
            rest = rest[at + 1 :]
            with b.at(partner):
                self.both(partner, o, b)
        b.ops.extend(rest)

    def once(self, o: Op, rest: list[Op], b: Builder) -> None:
        """An op of the loads; where the other copy computes the same, that one is moved up instead.  What
        gives a number runs once, where it stands in the other copy."""
        twin = next((x for x in rest if o.id and x.id == o.id and not is_pure(x)), None)
        if twin is not None:
            at = rest.index(twin)
            b.ops.extend(rest[: at + 1])
            del rest[: at + 1]
            self.env.update(zip(o.results, twin.results, strict=True))
            return
        operands = self.get(o.operands)
        for twin in rest:
            same = twin.kind is o.kind and twin.operands == operands and twin.attrs == o.attrs
            if same and is_pure(o) and not o.regions:
                rest.remove(twin)
                b.append(twin)
                self.env.update(zip(o.results, twin.results, strict=True))
                return
        self.copy(o, b)

    def both(self, main: Op, loads: Op, b: Builder) -> None:
        """The two copies of a loop or an if as one."""
        ahead = self.distances.get(main.id, 0)
        by_group = any(o.kind in engines.CLOSED for r in loads.regions for o in walk(r))
        if ahead and not by_group and self.trips(main) <= ahead + 1:
            self.copy(loads, b)
            b.append(main)
            return
        if ahead == 1 and not by_group and not _late(main):
            ahead = 2
        n = len(loads.results)
        init = self.get(loads.operands[control.LEAD[main.kind] :])
        early: tuple[Op, ...] = ()
        regions = []
        for r, s in zip(main.regions, loads.regions, strict=True):
            inner = b.nested()
            if main.kind is control.for_:
                self.env[s.params[0]] = r.params[0]
            if ahead:
                early = tuple(_without_groups(substitute(s, self.env).ops[:-1]))
                inner.ops += [*early, *_without_groups(r.ops[:-1])]
            else:
                self.block(r.ops[:-1], s.ops[:-1], inner)
            control.yield_(inner, *r.yielded, *self.get(s.yielded[len(s.yielded) - n :]))
            regions.append(inner.region((*r.params, *s.params[len(s.params) - n :])))
        fused = main.with_(
            operands=(*main.operands, *init),
            results=(*main.results, *loads.results),
            regions=tuple(regions),
        )
        if ahead:
            _LoadsAhead(fused, early, n, ahead, by_group, _late(main)).write(b)
        else:
            b.append(fused)

    def trips(self, loop: Op) -> float:
        """The iterations of a `for`; infinite where its bounds are no constants."""
        lo, hi, step = (build.constant_of(self.made.get(v)) for v in loop.operands[:3])
        return inf if lo is None or hi is None or not step else -((lo - hi) // step)

    def copy(self, o: Op, b: Builder) -> None:
        """An op of the loads that stands once, as it is but for replaced operands."""
        b.append(clone_op(o, self.env) if o.regions else substitute_operands(o, self.env))

    def get(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self.env.get(v, v) for v in values)


Ahead = tuple[Value, Value]  # an iteration, and whether there is one


class _LoadsAhead(PipelinedLoop):
    """A loop whose `loads` are stage 0, some iterations ahead of its uses.  kept: what the loads carry, the
    last of its values.  The prologue is a loop, as there may be fewer iterations, and the steady state runs
    stage 0 where there is such an iteration.  by_group: see the module's docstring.  late: what tells that
    slots are free which uses give back an iteration late."""

    def __init__(
        self,
        o: Op,
        loads: Collection[Op],
        kept: int,
        distance: int,
        by_group: bool,
        late: frozenset[Value],
    ) -> None:
        self.loads, self.distance, self.by_group = loads, distance, by_group
        # what goes through registers would be waited for before the uses
        self.is_first = by_group and not any(
            x.kind is smem.shared_store for o in loads for x in o.all_ops
        )
        super().__init__(o)
        uses = len(self.params) - kept
        self.carried_late, self.kept = self.params[:uses], self.params[uses:]
        self.under = self.under_products(late)
        self.all_under = bool(self.under) and distance > 1
        self.distance -= self.all_under

    def stages(self) -> dict[Op, int]:
        return {o: int(o not in self.loads) for o in self.ops}

    @property
    def hints(self) -> list[str]:
        return [p.hint for p in self.params]

    def write(self, b: Builder) -> None:
        lo, hi, step, *init = self.loop.operands
        distance = build.const(b, self.distance, dtype_of(lo.type))
        self.lead = arith.mul(b, step, distance)
        stop = arith.add(b, lo, self.lead)
        load = self.load_group if self.by_group else self.load
        stop = stop if self.by_group else arith.minimum(b, hi, stop)
        once = {"unroll": 1} if self.by_group else {}
        uses, hints = len(self.carried_late), [p.hint for p in self.kept]
        early = build.for_(b, (lo, stop, step), init[uses:], load, iv="early", hints=hints, **once)
        self.new_loop(b, (lo, hi, step), (*init[:uses], *early))
        b.ops[-1] = b.ops[-1].with_(results=self.loop.results)

    def under_products(self, late: frozenset[Value]) -> list[Op]:
        """Copies of boxes into slots that the iteration before gave back, and what they need."""

        def is_early(o: Op) -> bool:
            waits = (x for x in o.all_ops if x.kind is mbarrier.mbarrier_wait)
            return engines.copies_boxes(o) and late.isdisjoint(x.operands[0] for x in waits)

        waits = (o for o in self.in_stage(1) if engines.WAITED.get(o.kind) == "products")
        drained = all(o.attrs["pending"] == 0 for o in waits)
        if self.by_group or not late or not drained or not any(map(_closes_products, self.ops)):
            return []
        copies = [o for o in self.in_stage(0) if is_early(o)]
        found = closure(copies, lambda o: [self.made[v] for v in self.needs(o) if v in self.made])
        alone = all(is_pure(o) for o in found.difference(copies))
        return [o for o in self.in_stage(0) if alone and o in found]

    def load(self, b: Builder, index: Value, carried: Values, done: Collection[Op] = ()) -> Values:
        """Stage 0 of an iteration, but for what is done."""
        new = self.first_stage(b, index, carried)
        new.write(o for o in self.in_stage(0) if o not in done or is_pure(o))
        return tuple(new.get(self.ends[p]) for p in self.kept)

    def first_stage(self, b: Builder, index: Value, carried: Values) -> Copy:
        return self.copy(b, dict(zip((self.index, *self.kept), (index, *carried), strict=True)))

    def load_group(self, b: Builder, index: Value, carried: Values) -> Values:
        """Stage 0 of an iteration of the prologue, if any: a loop of one iteration or none, since the
        checker asks for both outcomes of a condition, and inside loops that run at all there may be one only.
        A group in any case, as waits count them."""
        _, hi, step, *_ = self.loop.operands
        after = arith.minimum(b, hi, arith.add(b, index, step))
        hints = [p.hint for p in self.kept]
        out = build.for_(b, (index, after, step), carried, self.load, iv="present", hints=hints)
        engines.CLOSES["copies"](b)
        return out

    def body(self, b: Builder, i: Value, state: Values) -> Values:
        uses = len(self.carried_late)
        carried = state[uses:]
        if self.by_group:
            engines.WAITS["copies"](b, pending=self.distance - 1)
            smem.group_sync(b, scope="task")
        if self.is_first:
            carried = self.load_ahead(b, self.ahead(b, i), carried)
        old = self.copy(b, dict(zip((self.index, *self.carried_late), (i, *state), strict=False)))
        rest, at = self.in_stage(1), None
        if self.under:
            issued = next(n for n, o in enumerate(rest, 1) if _closes_products(o))
            old.write(rest[:issued])
            rest, at = rest[issued:], self.ahead(b, i)
            carried = self.load_under(b, at, carried)
        old.write(rest)
        if not (self.is_first or self.all_under):
            carried = self.load_ahead(b, at or self.ahead(b, i), carried, self.under)
        return (*(old.get(self.ends[p]) for p in self.carried_late), *carried)

    def load_under(self, b: Builder, at: Ahead, carried: Values) -> Values:
        """What of stage 0 runs under products."""
        if self.all_under:
            return self.load_ahead(b, at, carried)
        index, more = at
        build.if_(b, more, lambda b: self.first_stage(b, index, carried).write(self.under))
        return carried

    def load_ahead(
        self, b: Builder, at: Ahead, carried: Values, done: Collection[Op] = ()
    ) -> Values:
        """Stage 0 of an iteration, if there is one, but for what is done."""
        index, more = at
        out = build.if_(b, more, lambda b: self.load(b, index, carried, done), lambda b: carried)
        if self.by_group:
            engines.CLOSES["copies"](b)
        return out

    def ahead(self, b: Builder, i: Value) -> Ahead:
        """The iteration that is to be loaded now, and whether there is one."""
        index = arith.add(b, i, self.lead, hint="early")
        return index, arith.lt(b, index, self.loop.operands[1], hint="more")


def _closes_products(o: Op) -> bool:
    return engines.CLOSED.get(o.kind) == "products"


def _late(loop: Op) -> frozenset[Value]:
    """What is told that slots are free which another iteration has read."""
    inside = list(walk(loop.regions[0]))
    read = {o.operands[1] for o in inside if o.kind is mbarrier.mbarrier_wait}
    arrivals = (o for o in inside if o.kind is mbarrier.mbarrier_arrive)
    return frozenset(o.operands[0] for o in arrivals if o.operands[1] not in read)


def _without_groups(ops: Sequence[Op]) -> list[Op]:
    """Without commits of groups, and waits for them with the barrier after each."""
    found: list[Op] = []
    for before, o in zip((None, *ops), ops, strict=False):
        waited = before is not None and engines.WAITED.get(before.kind) == "copies"
        if waited or "copies" in (engines.CLOSED.get(o.kind), engines.WAITED.get(o.kind)):
            continue
        found.append(with_regions(o, lambda r: with_ops(r, _without_groups(r.ops))))
    return found


def _partner(o: Op, ops: Sequence[Op]) -> Op | None:
    """The copy in the other task of a loop or an if."""
    if not o.regions or not o.id:
        return None
    return next((x for x in ops if x.id == o.id and x.kind is o.kind), None)
