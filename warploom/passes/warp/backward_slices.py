"""The part of a region that computes some values, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Op, Region, Value
from warploom.ir.ops import arith, control, task
from warploom.ir.rewrite import Env, substitute_operands
from warploom.ir.types import Scalar, i32

Values = tuple[Value, ...]


@dataclass(eq=False)
class Slice:
    """Copies what computes the needed values (closed under ir.analysis.backward_slice).  A loop that only
    steps rings becomes arithmetic.  env: what stands for values now."""

    needed: set[Value]
    env: Env = field(default_factory=dict)

    def region(self, r: Region) -> Region:
        b = Builder()
        self.ops(r.ops[:-1], b)
        control.yield_(b, *map(self.get, r.yielded))
        return b.region(r.params)

    def get(self, v: Value) -> Value:
        return self.env.get(v, v)

    def ops(self, ops: Sequence[Op], b: Builder) -> None:
        for o in ops:
            if any(v in self.needed for v in o.results):
                with b.at(o):
                    self.op(o, b)

    def op(self, o: Op, b: Builder) -> None:
        o = substitute_operands(o, self.env)
        if not o.regions:
            b.append(o)
            return
        if o.kind not in (control.if_, control.for_):
            raise InternalError(f"slice: {o.kind.name} decides what a value is")
        kept = [i for i, v in enumerate(o.results) if v in self.needed]
        bare = control.keeping(o, kept)
        bare = bare.with_(regions=tuple(map(self.region, bare.regions)))
        ends = _closed_form(b, bare) if o.kind is control.for_ else None
        if ends is None:
            b.append(bare)
        else:
            self.env.update(zip(bare.results, ends, strict=True))


def _closed_form(b: Builder, o: Op) -> Values | None:
    """What a loop that does nothing but step rings comes to; None where it does something else."""
    (body,) = o.regions
    steps = body.ops[:-1]
    after = dict(zip(body.params[1:], body.yielded, strict=True))
    cursors = {
        v: r
        for x in steps
        if x.kind is task.ring_next
        for v, r in zip(x.operands, x.results, strict=True)
    }
    if any(x.kind is not task.ring_next for x in steps) or cursors != after:
        return None
    lo, hi, step = o.operands[:3]
    dtype = lo.typed(Scalar).dtype
    zero, one = build.const(b, 0, dtype), build.const(b, 1, dtype)
    up = arith.sub(b, arith.add(b, arith.sub(b, hi, lo), step), one)
    n = arith.idiv(b, arith.maximum(b, up, zero), step)
    n = n if dtype is i32 else arith.cast(b, n, dtype=i32)
    initial = dict(zip(body.params[1:], o.operands[3:], strict=True))
    ends: dict[Value, Value] = {}
    for x in steps:
        slot, phase = x.operands
        depth = build.const(b, x.attrs["depth"])
        total = arith.add(b, initial[slot], n)
        rounds = arith.idiv(b, total, depth)
        odd = arith.and_(b, rounds, build.const(b, 1))
        ends[slot] = arith.rem(b, total, depth)
        ends[phase] = arith.xor(b, initial[phase], odd)
    return tuple(ends[p] for p in body.params[1:])
