"""Uniform kernels: puts the code of the inline producer into the one task, some iterations ahead.

Order: last before layouts; does nothing to specialized schedules.
Changes: 14 families, all uniform kernels with dots.

    consumer region        loads region            fused
    for k:                 for k:                  for k in first depth-1:   loads(k)
      use(k)                 loads(k)              for k:
                                                     use(k)
                                                     if k + depth-1 in range: loads(k + depth-1)

Both regions are copies of one program, so their loops and ifs correspond by id.  Only innermost loops of
loads are run ahead; around them the two copies are merged block by block, loads before uses.  The loads
keep their own carried values (cursors, advanced addresses): they are that many iterations ahead.
A ring of one slot can't run ahead: loads come before uses in the same iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import is_pure
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.rewrite import clone_op, inline, substitute_operands
from warploom.ir.types import Scalar
from warploom.schedule.model import Schedule
from warploom.target import Target


def fuse_tasks(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    *before, tasks, end = func.body.ops
    if len(tasks.regions) != 2:
        raise InternalError("a uniform kernel has one task and the loads fused into it")
    main, loads = tasks.regions
    fused = _merge(main, loads)
    attrs = {k: v[:1] if isinstance(v, tuple) else v for k, v in tasks.attrs.items()}
    new = tasks.with_(attrs=attrs, regions=(fused,))
    return func.with_(body=Region(func.body.params, (*before, new, end)))


def _merge(main: Region, loads: Region) -> Region:
    """One task's region: a replica id that both use is made once."""
    ids = [o for r in (main, loads) for o in r.ops if o.kind is task.replica_id]
    b = Builder()
    env: dict[Value, Value] = {}
    if ids:
        b.append(ids[0])
        env = {o.result: ids[0].result for o in ids[1:]}
    main_ops = [o for o in main.ops[:-1] if o not in ids]
    load_ops = [o for o in loads.ops[:-1] if o not in ids]
    _Fuser(env).block(main_ops, load_ops, b)
    control.yield_(b)
    return b.region()


@dataclass(eq=False)
class _Fuser:
    """`env` maps values of the loads' copy that were replaced."""

    env: dict[Value, Value]

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
        if main.kind is control.for_:
            ahead = _ahead(loads)
            if ahead:
                self.run_ahead(main, loads, ahead, b)
                return
        n = len(loads.results)
        regions = []
        for r, s in zip(main.regions, loads.regions, strict=True):
            inner = b.nested()
            if main.kind is control.for_:
                self.env[s.params[0]] = r.params[0]
            self.block(r.ops[:-1], s.ops[:-1], inner)
            control.yield_(inner, *r.yielded, *self.get(s.yielded[len(s.yielded) - n :]))
            regions.append(inner.region((*r.params, *s.params[len(s.params) - n :])))
        init = self.get(loads.operands[control.LEAD[main.kind] :])
        b.append(
            main.with_(
                operands=(*main.operands, *init),
                results=(*main.results, *loads.results),
                regions=tuple(regions),
            )
        )

    # ---- running ahead

    def run_ahead(self, main: Op, loads: Op, ahead: int, b: Builder) -> None:
        """The prologue, and the loop whose loads are `ahead` iterations before its uses."""
        lo, hi, step = main.operands[:3]
        (use,), (load,) = main.regions, loads.regions
        dtype = lo.type.dtype if isinstance(lo.type, Scalar) else None
        assert dtype is not None
        distance = arith.mul(b, step, build.const(b, ahead, dtype))
        stop = arith.minimum(b, hi, arith.add(b, lo, distance))
        init = self.get(loads.operands[3:])

        def prologue(inner: Builder, iv: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            return inline(inner, load, (iv, *carried), self.env)

        hints = tuple(p.hint for p in load.params[1:])
        state = build.for_(b, (lo, stop, step), init, prologue, iv="early", hints=hints)
        carried = tuple(Value(v.type, v.hint) for v in state)
        inner = b.nested()
        inner.ops.extend(use.ops[:-1])
        early = arith.add(inner, use.params[0], distance, hint="early")
        more = arith.lt(inner, early, hi, hint="more")
        next_state = build.if_(
            inner,
            more,
            lambda then: inline(then, load, (early, *carried), self.env),
            lambda other: carried,
        )
        control.yield_(inner, *use.yielded, *next_state)
        b.append(
            main.with_(
                operands=(*main.operands, *state),
                results=(*main.results, *loads.results),
                regions=(inner.region((*use.params, *carried)),),
            )
        )

    def copy(self, o: Op, b: Builder) -> None:
        """An op of the loads that stands once, as it is but for replaced operands."""
        b.append(clone_op(o, self.env) if o.regions else substitute_operands(o, self.env))

    def get(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self.env.get(v, v) for v in values)


def _partner(o: Op, ops: Sequence[Op]) -> Op | None:
    """The copy in the other task of a loop or an if."""
    if not o.regions or not o.id:
        return None
    return next((x for x in ops if x.id == o.id and x.kind is o.kind), None)


def _ahead(loop: Op) -> int:
    """By how many iterations the loads of this loop may run ahead: not at all where a loop inside it
    loads as well (that one does) or where it gets numbers from memory, else one less than the shallowest
    ring that steps in it."""
    (body,) = loop.regions
    nested = [o for o in body.all_ops if o.kind in control.LOOPS]
    if any(o.kind is task.ring_next for x in nested for o in x.all_ops):
        return 0
    if any(o.kind is tile.atomic or o.attrs.get("volatile") for o in walk(body)):
        return 0  # once an iteration, by both
    depths = [o.attrs["depth"] for o in walk(body) if o.kind is task.ring_next]
    return min(depths, default=1) - 1
