"""check/sums.py: what it says of loops holds of all that they run for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from warploom.check.dependence import Dependence
from warploom.check.sums import Sums
from warploom.ir.build import const
from warploom.ir.core import Builder, Func, Level, Value
from warploom.ir.ops import arith, control
from warploom.ir.types import Scalar, f32, i8, i32
from warploom.sim.evaluate import prepared

BOUNDS = ("sum", "less", "product", "rounded", "rest", "smaller", "larger", "narrow", "half")


def bound(draw: st.DrawFn, b: Builder, scope: list[Value]) -> Value:
    """An i32 that is computed from others and from constants, as loops' bounds are."""
    x, y = draw(st.sampled_from(scope)), draw(st.sampled_from(scope))
    n = const(b, draw(st.sampled_from((-3, -1, 1, 2, 8))))
    match draw(st.sampled_from(BOUNDS)):
        case "sum":
            return arith.add(b, x, draw(st.sampled_from((y, n))))
        case "less":
            return arith.sub(b, x, draw(st.sampled_from((y, n))))
        case "product":
            return arith.mul(b, x, n)
        case "rounded":
            return arith.mul(b, arith.idiv(b, x, n), n)
        case "rest":
            return arith.rem(b, x, n)
        case "smaller":
            return arith.minimum(b, x, y)
        case "larger":
            return arith.maximum(b, x, y)
        case "narrow":
            return arith.cast(b, arith.cast(b, x, dtype=i8), dtype=i32)
    halves = arith.mul(b, arith.cast(b, x, dtype=f32), const(b, 0.5, f32))
    return arith.cast(b, halves, dtype=i32)


@st.composite
def loops(draw: st.DrawFn) -> Func:
    """One loop whose bounds are computed from x and y."""
    b, params = Builder(), (Value(Scalar(i32), "x"), Value(Scalar(i32), "y"))
    scope = list(params)
    for _ in range(draw(st.integers(1, 4))):
        scope.append(bound(draw, b, scope))
    lo, hi = (draw(st.sampled_from([*scope, const(b, 0)])) for _ in range(2))
    body = Builder()
    control.yield_(body)
    step = const(b, draw(st.sampled_from((1, 4))))
    control.for_(b, lo, hi, step, regions=[body.region([Value(Scalar(i32), "i")])])
    control.yield_(b)
    return Func("random", b.region(params), Level.TILE)


def counted(func: Func, numbers: tuple[int, ...]) -> int:
    """How often the loop runs where x and y are these."""
    found: dict[Value, Any] = dict(zip(func.params, map(np.int32, numbers), strict=True))
    for o in func.body.ops:
        given = [found[v] for v in o.operands[:3]]
        if o.kind is control.for_:
            return len(range(*map(int, given)))
        found[o.result] = prepared(o)(*given)
    raise AssertionError("there is no loop")


@settings(max_examples=examples(400), deadline=None)
@given(loops())
def test_no_loop_runs_more_often_than_is_said(func: Func) -> None:
    (loop,) = (o for o in func.body.ops if o.kind is control.for_)
    most = Sums(Dependence(func)).most_trips(loop)
    if most is not None:
        for numbers in itertools.product((-200, -9, -8, -5, -1, 0, 1, 2, 7, 16, 300), repeat=2):
            assert counted(func, numbers) <= most, (numbers, most)
