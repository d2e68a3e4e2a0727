"""The expansion of a pipelined loop alone, on scalars: whatever ops are late, it computes the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warploom.ir.analysis import definitions
from warploom.ir.core import Builder, Func, Op, Value, walk
from warploom.ir.ops import control
from warploom.ir.parser import parse_func
from warploom.ir.rewrite import rewrite
from warploom.ir.verify import verify
from warploom.passes.warp.pipelined_loop import PipelinedLoop
from warploom.sim import oracle

# Recurrences of their own (a, s), one on the other (t), an invariant (n), and a value of two iterations
# before (old).
TEXT = """func @f(%p: ptr<i32>, %lo: i32, %hi: i32, %step: i32) level=TILE {
  %one = const() {value=1, dtype=i32} : i32
  %a, %s, %t, %n, %old = for(%lo, %hi, %step, %one, %lo, %hi, %step, %one) #loop0
    : i32, i32, i32, i32, i32
    do (%i: i32, %a0: i32, %s0: i32, %t0: i32, %n0: i32, %old0: i32) {
    %x = add(%a0, %i) #x : i32
    %y = mul(%x, %n0) #y : i32
    %z = sub(%y, %i) #z : i32
    %s1 = xor(%s0, %z) #s : i32
    %u = mul(%s1, %x) #u : i32
    %t1 = add(%t0, %u) #t : i32
    yield(%x, %s1, %t1, %n0, %a0)
  }
  %r1 = mul(%a, %s) : i32
  %r2 = xor(%t, %old) : i32
  %r3 = add(%r1, %r2) : i32
  %r4 = add(%r3, %n) : i32
  store(%p, %r4)
  yield()
}
"""
BEFORE = parse_func(TEXT)


class Halves(PipelinedLoop):
    """`late` ops are stage 1, and what follows from them in any iteration."""

    def __init__(self, o: Op, late: frozenset[str]) -> None:
        self.late = late
        super().__init__(o)

    def stages(self) -> dict[Op, int]:
        made = definitions(self.old)
        late = {o for o in self.ops if o.id in self.late}
        while True:
            ends = zip(self.params, self.old.yielded, strict=True)
            values = {v for o in late for v in o.results}
            values |= {p for p, v in ends if made.get(v) in late}
            more = {o for o in self.ops if not values.isdisjoint(o.operands)}
            if more <= late:
                return {o: int(o in late) for o in self.ops}
            late |= more


def pipelined(late: frozenset[str]) -> Func:
    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.kind is not control.for_:
            return None
        Halves(o, late).write(b)
        results = b.ops[-1].results
        b.ops[-1] = b.ops[-1].with_(results=tuple(Value(v.type, v.hint) for v in results))
        return b.ops[-1].results

    return rewrite(BEFORE, rule)


def result(func: Func, *bounds: int) -> int:
    out = np.zeros(1, np.int32)
    oracle.run(func, (out, *bounds), 1)
    return int(out[0])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.frozensets(st.sampled_from("xyzsut")),
    st.integers(-3, 3),
    st.integers(-4, 9),
    st.integers(1, 3),
)
def test_it_computes_the_same(late: frozenset[str], lo: int, span: int, step: int) -> None:
    after = pipelined(late)
    verify(after)
    assert result(after, lo, lo + span, step) == result(BEFORE, lo, lo + span, step)


def test_an_iteration_does_both_stages() -> None:
    """One loop, between stage 0 of the first iteration and stage 1 of the last, where there is one."""
    (guard,) = [o for o in walk(pipelined(frozenset("z")).body) if o.kind is control.if_]
    names = ["loop" if o.kind is control.for_ else o.id for o in guard.regions[0].ops]
    assert [n for n in names if n] == ["x", "y", "loop", "z", "s", "u", "t"]
    (loop,) = [o for o in guard.regions[0].ops if o.kind is control.for_]
    assert [o.id for o in loop.regions[0].ops[:-1]] == ["x", "y", "z", "s", "u", "t"]
