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
    turns rings becomes arithmetic.  env: what stands for values now."""

    needed: set[Value]
    env: Env = field(default_factory=dict)

    def region(self, r: Region, kept: Sequence[int] | None = None) -> Region:
        """kept: which of the values that it yields (None: all)."""
        b = Builder()
        self.ops(r.ops[:-1], b)
        ends = r.yielded if kept is None else [r.yielded[i] for i in kept]
        control.yield_(b, *(self.get(v) for v in ends))
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
        kept = [i for i, v in enumerate(o.results) if v in self.needed]
        results = tuple(o.results[i] for i in kept)
        if not o.regions:
            b.append(o)
        elif o.kind is control.if_:
            regions = tuple(self.region(r, kept) for r in o.regions)
            b.append(o.with_(results=results, regions=regions))
        elif o.kind is control.for_:
            (body,) = o.regions
            params = (body.params[0], *(body.params[1 + i] for i in kept))
            bare = Region(params, self.region(body, kept).ops)
            init = tuple(o.operands[3 + i] for i in kept)
            loop = o.with_(operands=(*o.operands[:3], *init), results=results, regions=(bare,))
            ends = _turned(b, loop)
            if ends is None:
                b.append(loop)
            else:
                self.env.update(zip(results, ends, strict=True))
        else:
            raise InternalError(f"slice: {o.kind.name} decides what a value is")


def _turned(b: Builder, o: Op) -> Values | None:
    """What a loop that does nothing but turn rings comes to; None where it does something else."""
    (body,) = o.regions
    turns = body.ops[:-1]
    after = dict(zip(body.params[1:], body.yielded, strict=True))
    cursors = {
        v: r
        for x in turns
        if x.kind is task.ring_next
        for v, r in zip(x.operands, x.results, strict=True)
    }
    if any(x.kind is not task.ring_next for x in turns) or cursors != after:
        return None
    lo, hi, step = o.operands[:3]
    assert isinstance(lo.type, Scalar)
    dtype = lo.type.dtype
    zero, one = build.const(b, 0, dtype), build.const(b, 1, dtype)
    up = arith.sub(b, arith.add(b, arith.sub(b, hi, lo), step), one)
    n = arith.idiv(b, arith.maximum(b, up, zero), step)
    n = n if dtype is i32 else arith.cast(b, n, dtype=i32)
    initial = dict(zip(body.params[1:], o.operands[3:], strict=True))
    ends: dict[Value, Value] = {}
    for x in turns:
        slot, phase = x.operands
        depth = build.const(b, x.attrs["depth"])
        total = arith.add(b, initial[slot], n)
        rounds = arith.idiv(b, total, depth)
        odd = arith.and_(b, rounds, build.const(b, 1))
        ends[slot] = arith.rem(b, total, depth)
        ends[phase] = arith.xor(b, initial[phase], odd)
    return tuple(ends[p] for p in body.params[1:])
