"""check/course.py and sums.py: what they say of conditions in a loop holds in all its iterations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from warploom.check.course import Course, Courses
from warploom.check.dependence import Condition, Dependence, Source
from warploom.check.input_space import InputSpace
from warploom.check.solve import Solver
from warploom.ir.build import const
from warploom.ir.core import Builder, Func, Level, Op, Value, walk
from warploom.ir.ops import arith, control
from warploom.ir.types import Scalar, i32
from warploom.sim.evaluate import prepared

NUMBERS = (-9, -1, 0, 1, 2, 7, 40)
STEPS = (1, 3, 8)
COMPARED = (arith.lt, arith.le, arith.gt, arith.ge, arith.eq, arith.ne)


@st.composite
def loops(draw: st.DrawFn) -> Func:
    """One loop from x by z, with comparisons of its variable, the number of its iteration, its bounds and
    constants, and with what connects them."""
    b = Builder()
    x, y, z = (Value(Scalar(i32), name) for name in "xyz")
    lo = draw(st.sampled_from([x, const(b, 0), const(b, 3)]))
    step = draw(st.sampled_from([z, const(b, 1), const(b, 3)]))
    turn, body = Value(Scalar(i32), "i"), Builder()
    count = arith.idiv(body, arith.sub(body, turn, lo), step)
    numbers = [turn, count, arith.sub(body, turn, lo)]
    for _ in range(draw(st.integers(0, 2))):
        some, n = draw(st.sampled_from(numbers)), draw(st.sampled_from([2, 3]))
        kind = draw(st.sampled_from([arith.add, arith.sub, arith.mul, arith.rem, arith.shr]))
        numbers.append(kind(body, some, const(body, n)))
    tests: list[Value] = []
    for _ in range(draw(st.integers(1, 3))):
        one = draw(st.sampled_from(numbers))
        n = const(body, draw(st.sampled_from([-1, 0, 1, 2, 5, 30])))
        other = draw(st.sampled_from([*numbers, lo, y, n, n]))
        tests.append(draw(st.sampled_from(COMPARED))(body, one, other))
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from([arith.and_, arith.or_, arith.xor]))
        tests.append(kind(body, draw(st.sampled_from(tests)), draw(st.sampled_from(tests))))
    control.yield_(body)
    control.for_(b, lo, y, step, regions=[body.region([turn])])
    control.yield_(b)
    return Func("random", b.region((x, y, z)), Level.TILE)


def outcomes(func: Func, numbers: tuple[int, ...]) -> dict[Op, list[bool]]:
    """What each i1 comes to in the iterations of the loop, where x, y and z are these."""
    found: dict[Value, Any] = dict(zip(func.params, map(np.int32, numbers), strict=True))
    seen: dict[Op, list[bool]] = {}

    def run(ops: tuple[Op, ...]) -> None:
        for o in ops[:-1]:
            if o.kind is control.for_:
                for i in range(*(int(found[v]) for v in o.operands[:3])):
                    found[o.regions[0].params[0]] = np.int32(i)
                    run(o.regions[0].ops)
            else:
                found[o.result] = prepared(o)(*(found[v] for v in o.operands))
                if isinstance(found[o.result], np.bool_):
                    seen.setdefault(o, []).append(bool(found[o.result]))

    run(func.body.ops)
    return seen


def of_each(func: Func, hold: Callable[[Op, list[bool]], bool]) -> None:
    """Asserts something of each i1 and its outcomes, at many numbers."""
    for numbers in itertools.product(NUMBERS, NUMBERS, STEPS):
        for o, seen in outcomes(func, numbers).items():
            assert hold(o, seen), (str(o.kind.name), numbers, seen)


@settings(max_examples=examples(100), deadline=None)
@given(loops())
def test_conditions_go_along_a_loop_as_is_said(func: Func) -> None:
    solver = Solver(Dependence(func), InputSpace(func))
    courses = Courses(solver.values, solver.sums)
    (loop,) = (o for o in func.body.ops if o.kind is control.for_)

    def hold(o: Op, seen: list[bool]) -> bool:
        course = courses.of(Condition(o.result, o, Source.ITERATION, o), loop)
        middle = seen[course.head : max(course.head, len(seen) - course.tail)]
        return not course.is_known or middle[course.period :] == middle[: -course.period]

    of_each(func, hold)


@settings(max_examples=examples(100), deadline=None)
@given(loops())
def test_a_comparison_comes_to_what_is_said(func: Func) -> None:
    sums = Solver(Dependence(func), InputSpace(func)).sums
    known = {o: sums.outcome(o.result) for o in walk(func.body) if o.kind in COMPARED}
    of_each(func, lambda o, seen: known.get(o) is None or set(seen) == {known[o]})


def course(write: Callable[[Builder, Value, Value], Value], lo: int | None = None) -> Course:
    """Of a condition on a loop's variable and the number of its iteration, by an argument."""
    b, x, y, z, turn = Builder(), *(Value(Scalar(i32), name) for name in "xyzi")
    first, body = x if lo is None else const(b, lo), Builder()
    count = arith.idiv(body, arith.sub(body, turn, first), z)
    condition = write(body, turn, count)
    control.yield_(body)
    control.for_(b, first, y, z, regions=[body.region([turn])])
    control.yield_(b)
    func = Func("one", b.region((x, y, z)), Level.TILE)
    solver = Solver(Dependence(func), InputSpace(func))
    o = solver.dependence.made[condition]
    (loop,) = (o for o in func.body.ops if o.kind is control.for_)
    return Courses(solver.values, solver.sums).of(
        Condition(condition, o, Source.ITERATION, o), loop
    )


def test_the_number_of_an_iteration_is_known_whatever_the_loop_begins_with_and_steps_by() -> None:
    late = course(lambda b, turn, n: arith.ne(b, n, const(b, 2)))
    assert (late.is_known, late.head, late.tail) == (True, 3, 0)
    every = course(lambda b, turn, n: arith.eq(b, arith.rem(b, n, const(b, 5)), const(b, 3)))
    assert (every.is_known, every.period) == (True, 5)
    both = course(
        lambda b, turn, n: arith.or_(
            b,
            arith.lt(b, n, const(b, 4)),
            arith.eq(b, arith.rem(b, n, const(b, 2)), const(b, 0)),
        )
    )
    assert (both.is_known, both.head, both.period) == (True, 4, 2)
    assert not course(lambda b, turn, n: arith.ne(b, turn, const(b, 2))).is_known


def test_what_the_bounds_of_a_loop_decide_is_decided() -> None:
    b, x, y, turn = Builder(), *(Value(Scalar(i32), name) for name in "xyi")
    body = Builder()
    after = arith.add(body, turn, const(body, 1))
    tests = {
        arith.ge(body, turn, x): True,
        arith.lt(body, turn, y): True,
        arith.le(body, after, y): True,
        arith.eq(body, after, x): False,
        arith.lt(body, after, y): None,
        arith.gt(body, turn, x): None,
    }
    control.yield_(body)
    control.for_(b, x, y, const(b, 2), regions=[body.region([turn])])
    control.yield_(b)
    func = Func("bounds", b.region((x, y)), Level.TILE)
    sums = Solver(Dependence(func), InputSpace(func)).sums
    assert {v: sums.outcome(v) for v in tests} == tests
