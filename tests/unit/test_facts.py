"""analysis/facts.py: what it says holds of every run, and is as precise as index arithmetic needs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.random_numbers import (
    Author,
    Meaningless,
    Run,
    element,
    is_held,
    tightest,
    tightest_along,
)
from warploom.analysis import axis_rules, scalar_rules
from warploom.analysis.axis_rules import Operand
from warploom.analysis.contiguity import constancy
from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import MOST, AxisFact, Interval, range_of
from warploom.ir.core import Builder, Fact, Func, Level, Op, OpKind, Region, Type, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.printer import print_func
from warploom.ir.types import DType, Pointer, Scalar, Tile, f32, i1, i8, i16, i32, i64, u8, u32

# ---- soundness


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**40))
@example(2876)  # x - x where x is more than something else
def test_all_that_is_said_of_random_functions_holds(seed: int) -> None:
    author = Author(Random(seed))
    func = author.func()
    note(print_func(func))
    for arguments in itertools.islice(itertools.product(*author.inputs), 12):
        with suppress(Meaningless):
            Run(func, arguments).check()


INTEGERS = {
    i32: st.integers(-70, 70) | st.sampled_from((-(2**31), 2**31 - 1, 1 << 20, 4096)),
    u8: st.integers(0, 255),
    i8: st.integers(-128, 127),
    u32: st.integers(0, 40) | st.sampled_from((2**32 - 1, 1 << 31)),
}
DTYPES = st.sampled_from(sorted(INTEGERS, key=str))
FLOATS = {arith.div, arith.div_rn, arith.pow_, arith.atan2, *arith.BESSEL}
NUMERIC = sorted(
    (
        k
        for k in scalar_rules.RULES
        if k in arith.BINARY - FLOATS | {arith.neg, arith.abs_, arith.not_}
    ),
    key=lambda k: k.name,
)


def made(kind: OpKind, t: Type, **attrs: Any) -> Op:
    """An op on two (or one) unknown values of a type."""
    b = Builder()
    kind(b, *(Value(t) for _ in range(2 if kind in arith.BINARY else 1)), **attrs)
    return b.ops[0]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", NUMERIC, ids=lambda k: k.name)
def test_a_rule_says_only_what_holds_of_all_numbers(kind: OpKind, data: st.DataObject) -> None:
    dtype = data.draw(DTYPES)
    o = made(kind, Scalar(dtype))
    sets = [data.draw(st.lists(INTEGERS[dtype], min_size=1, max_size=4)) for _ in o.operands]
    wraps = data.draw(st.booleans())
    found = scalar_rules.transfer(o, o.result, [tightest(xs) for xs in sets], wraps=wraps)
    for numbers in itertools.product(*sets):
        with suppress(Meaningless):
            assert is_in(found, element(o, list(numbers), wraps)), (numbers, found)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_conversion_says_only_what_holds_of_all_numbers(data: st.DataObject) -> None:
    dtype, to = data.draw(DTYPES), data.draw(st.sampled_from((i1, i8, u8, i16, i32, u32, i64)))
    o = made(arith.cast, Scalar(dtype), dtype=to)
    numbers = data.draw(st.lists(INTEGERS[dtype], min_size=1, max_size=4))
    found = scalar_rules.transfer(o, o.result, [tightest(numbers)])
    assert all(is_in(found, element(o, [n])) for n in numbers)


def is_in(found: Interval, n: int) -> bool:
    return found.low <= n <= found.high and n % found.divisor == 0


@st.composite
def rows(draw: st.DrawFn, dtype: DType, n: int) -> list[int]:
    """n numbers: along a line, in groups that are equal or follow each other, or any."""
    low, high = range_of(dtype)
    start = draw(st.integers(-40, 40).map(lambda k: k * draw(st.sampled_from((1, 2, 4, 8, 16)))))
    step, group = (
        draw(st.sampled_from((0, 1, 1, 2, -1, 4, 8, 3))),
        draw(st.sampled_from((1, 2, 4, 8))),
    )
    jumps = draw(st.lists(st.integers(-6, 6).map(lambda k: k * group), min_size=n, max_size=n))
    shape = draw(st.integers(0, 2))
    each = [
        (start + step * i, i % group + jumps[i // group], jumps[i // group])[shape]
        for i in range(n)
    ]
    return [min(max(x, low), high) for x in each]


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", [*NUMERIC, arith.cast], ids=lambda k: k.name)
def test_a_rule_says_only_what_holds_along_an_axis(kind: OpKind, data: st.DataObject) -> None:
    dtype, n = data.draw(DTYPES), 8
    attrs = (
        {"dtype": data.draw(st.sampled_from((i8, i16, i32, i64, u32)))}
        if kind is arith.cast
        else {}
    )
    o = made(kind, Tile((n,), dtype), **attrs)
    # what an operand may be: rows of several, of which the same is said
    choices = [data.draw(st.lists(rows(dtype, n), min_size=1, max_size=2)) for _ in o.operands]
    known = [
        Operand(
            functools.reduce(AxisFact.join, map(tightest_along, some)),
            tightest(list(itertools.chain(*some))),
        )
        for some in choices
    ]
    every = scalar_rules.transfer(o, o.result, [k.every for k in known])
    found = axis_rules.transfer(o, o.result, 0, known, every)
    for operands in itertools.product(*choices):
        with suppress(Meaningless):
            row = [element(o, list(x)) for x in zip(*operands, strict=True)]
            assert is_held(found, [int(x) for x in row]), (operands, row, found)


# ---- precision: the questions on which the older analyses disagreed


class Page:
    """A function of m (i32) and n (i64), both at least 0, and what is known of what is written to it."""

    def __init__(self, **attrs: Any) -> None:
        self.m, self.n = Value(Scalar(i32), "m"), Value(Scalar(i64), "n")
        self.p = Value(Pointer(f32), "p")
        self.b = Builder()
        self.attrs = {"nonnegative": (0, 1), **attrs}

    def c(self, value: int, dtype: DType = i32) -> Value:
        found: Value = arith.const(self.b, value=value, dtype=dtype)
        return found

    def facts(self) -> Facts:
        control.yield_(self.b)
        params = (self.m, self.n, self.p)
        return facts_of(Func("f", Region(params, tuple(self.b.ops)), Level.TILE, self.attrs))


def _m16(page: Page) -> Value:
    found: Value = arith.mul(page.b, page.m, page.c(16))
    return found


SIGNS: dict[str, tuple[bool, Callable[[Page], Value]]] = {
    "m": (True, lambda g: g.m),
    "m - 7": (False, lambda g: arith.sub(g.b, g.m, g.c(7))),
    "maximum(m - 7, 0)": (
        True, lambda g: arith.maximum(g.b, arith.sub(g.b, g.m, g.c(7)), g.c(0))),
    "(m - 7) + 7": (True, lambda g: arith.add(g.b, arith.sub(g.b, g.m, g.c(7)), g.c(7))),
    "shr(m, 7)": (True, lambda g: arith.shr(g.b, g.m, g.c(7))),
    "m % 5 - 4": (False, lambda g: arith.sub(g.b, arith.rem(g.b, g.m, g.c(5)), g.c(4))),
    "4 - m % 5": (True, lambda g: arith.sub(g.b, g.c(4), arith.rem(g.b, g.m, g.c(5)))),
    "cast(m) to i64": (True, lambda g: arith.cast(g.b, g.m, dtype=i64)),
    # wraps where n has more than 31 bits
    "cast(n) to i32": (False, lambda g: arith.cast(g.b, g.n, dtype=i32)),
    "cast(n % 8) to i32": (
        True, lambda g: arith.cast(g.b, arith.rem(g.b, g.n, g.c(8, i64)), dtype=i32)),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNS)
def test_signs(name: str) -> None:
    expected, write = SIGNS[name]
    page = Page()
    v = write(page)
    assert page.facts().never_negative(v) is expected


DIVISORS: dict[str, tuple[int, Callable[[Page], Value]]] = {
    "minimum(16m, 16)": (16, lambda g: arith.minimum(g.b, _m16(g), g.c(16))),
    "rem(16m, 16)": (MOST, lambda g: arith.rem(g.b, _m16(g), g.c(16))),  # it is 0
    "rem(16m, 48)": (16, lambda g: arith.rem(g.b, _m16(g), g.c(48))),
    "neg(16m)": (16, lambda g: arith.neg(g.b, _m16(g))),
    "shl(m, 2)": (4, lambda g: arith.shl(g.b, g.m, g.c(2))),
    "16m // 4": (4, lambda g: arith.idiv(g.b, _m16(g), g.c(4))),
    "16m - 8": (8, lambda g: arith.sub(g.b, _m16(g), g.c(8))),
    "p + 16m": (8, lambda g: arith.addptr(g.b, g.p, _m16(g))),
}


@pytest.mark.parametrize("name", DIVISORS)
def test_divisors(name: str) -> None:
    expected, write = DIVISORS[name]
    page = Page(facts=(Fact(), Fact(), Fact(8)))
    v = write(page)
    assert page.facts().divisor(v) == expected


def test_every_rule_works_where_numbers_wrap() -> None:
    page = Page(facts=(Fact(), Fact(), Fact(8)))
    chosen = arith.select(page.b, arith.lt(page.b, page.m, page.c(3)), _m16(page), page.c(32))
    values = [
        arith.addptr(page.b, page.p, chosen),
        arith.neg(page.b, chosen),
        arith.cast(page.b, chosen, dtype=i64),
    ]
    facts = page.facts()
    wrapping = Facts(facts.maker, facts.given, facts.scope, wraps=True)
    assert [wrapping.divisor(v) for v in values] == [8, 16, 16]
    assert not wrapping.never_negative(chosen)


def test_a_loop_s_index_and_what_it_carries() -> None:
    page = Page()
    iv, carried = Value(Scalar(i32)), Value(Scalar(i32))
    inner = Builder()
    left = arith.sub(inner, page.m, iv)
    following = arith.add(inner, carried, arith.const(inner, value=24, dtype=i32))
    control.yield_(inner, following)
    loop = control.for_(
        page.b, page.c(16), page.m, page.c(8), page.c(48), regions=(inner.region((iv, carried)),)
    )
    facts = page.facts()
    assert facts.interval(iv) == Interval(16, 2**31 - 8, 8)  # a multiple of 8
    assert facts.interval(carried) == facts.interval(loop) == Interval(48, 2**31 - 1, 8)
    assert facts.interval(left).low == 1  # the index is below the bound


def test_a_number_that_begins_before_0_and_goes_on() -> None:
    """The flattened loop of Triton's persistent tutorial: ki = -1, then 0 or one more."""
    page = Page()
    iv, ki = Value(Scalar(i32)), Value(Scalar(i32))
    inner = Builder()
    more = arith.add(inner, ki, arith.const(inner, value=1, dtype=i32))
    ends = arith.eq(inner, ki, page.m)
    now = arith.select(inner, ends, arith.const(inner, value=0, dtype=i32), more)
    control.yield_(inner, now)
    control.for_(
        page.b, page.c(0), page.m, page.c(1), page.c(-1), regions=(inner.region((iv, ki)),)
    )
    facts = page.facts()
    assert facts.interval(ki).low == -1
    assert facts.interval(now).low == 0


@pytest.mark.parametrize("way", ("if", "while", "assume"))
def test_a_difference_where_a_comparison_holds(way: str) -> None:
    page = Page(nonnegative=())
    k = page.c(3)
    inner = Builder()
    if way == "if":
        v = arith.sub(inner, page.m, k)
        control.yield_(inner)
        other = Builder()
        w = arith.sub(other, k, page.m)
        control.yield_(other)
        test = arith.ge(page.b, page.m, k)
        control.if_(page.b, test, regions=(inner.region(), other.region()))
        assert page.facts().interval(w).low == 1
    elif way == "while":
        before, at = Value(Scalar(i32)), Value(Scalar(i32))
        test = Builder()
        control.yield_(test, arith.gt(test, before, k), before)
        v = arith.sub(inner, at, k)
        control.yield_(inner, v)
        control.while_(page.b, page.m, regions=(test.region((before,)), inner.region((at,))))
        assert page.facts().interval(v).low == 1
        return
    else:
        control.assume(page.b, arith.ge(page.b, page.m, k))
        v = arith.sub(page.b, page.m, k)
        assert page.facts().interval(page.m).low == 3
    assert page.facts().interval(v).low == 0


def test_a_constant_is_known_before_what_is_compared_with_it() -> None:
    """What the assumption is about follows from the maximum, which has the same constant."""
    page = Page(nonnegative=())
    zero = page.c(0)
    v = arith.maximum(page.b, page.m, zero)
    w = arith.idiv(page.b, v, page.c(8))
    control.assume(page.b, arith.ge(page.b, w, zero))
    assert page.facts().interval(v).low == page.facts().interval(w).low == 0


def test_promises_count_where_the_value_is_made() -> None:
    page = Page()
    v, w = arith.add(page.b, page.m, page.c(1)), arith.add(page.b, page.m, page.c(2))
    tile.multiple_of(page.b, v, by=(32,))
    inner, other = Builder(), Builder()
    tile.multiple_of(inner, w, by=(32,))
    for b in (inner, other):
        control.yield_(b)
    test = arith.eq(page.b, page.m, page.c(0))
    control.if_(page.b, test, regions=(inner.region(), other.region()))
    zero = arith.eq(page.b, arith.rem(page.b, page.n, page.c(64, i64)), page.c(0, i64))
    control.assume(page.b, zero)
    facts = page.facts()
    assert (facts.divisor(v), facts.divisor(w), facts.divisor(page.n)) == (32, 1, 64)


def _row(page: Page, size: int = 64) -> Value:
    start = tile.splat(page.b, _m16(page), shape=(size,))
    found: Value = arith.add(page.b, start, tile.arange(page.b, start=0, end=size))
    return found


def _tiled(page: Page, n: int, size: int = 64) -> Value:
    found: Value = tile.splat(page.b, page.c(n), shape=(size,))
    return found


AXES: dict[str, tuple[AxisFact, Callable[[Page], Value]]] = {
    "16m + i": (AxisFact(1, 16, 16, 1), _row),
    "16m - i": (
        AxisFact(-1, 16),
        lambda g: arith.sub(
            g.b, tile.splat(g.b, _m16(g), shape=(64,)), tile.arange(g.b, start=0, end=64))),
    "(16m + i) · 3": (AxisFact(3, 16), lambda g: arith.mul(g.b, _row(g), _tiled(g, 3))),
    "(16m + i) % 8": (AxisFact(None, 1, 8, 1), lambda g: arith.rem(g.b, _row(g), _tiled(g, 8))),
    "(16m + i) // 8": (AxisFact(None, 1, 1, 8), lambda g: arith.idiv(g.b, _row(g), _tiled(g, 8))),
    "(16m + i) < 24": (AxisFact(None, 1, 1, 8), lambda g: arith.lt(g.b, _row(g), _tiled(g, 24))),
    "8 · (16m + i) // 8": (
        AxisFact(1, 16, 16, 1),
        lambda g: arith.idiv(g.b, arith.mul(g.b, _row(g), _tiled(g, 8)), _tiled(g, 8))),
    "p + 16m + i": (
        AxisFact(1, 16, 4, 1),
        lambda g: arith.addptr(g.b, tile.splat(g.b, g.p, shape=(64,)), _row(g))),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_axes(name: str) -> None:
    expected, write = AXES[name]
    page = Page(facts=(Fact(), Fact(), Fact(16)))
    v = write(page)
    assert page.facts().axis(v, 0) == expected


@pytest.mark.parametrize("kind", [arith.lt, arith.ge, arith.eq], ids=lambda k: k.name)
@pytest.mark.parametrize("divisor", [4, 12, 16, 128])
def test_remainders_of_numbers_of_either_sign_are_alike(kind: OpKind, divisor: int) -> None:
    found = set()
    for away, bound in itertools.product((0, -16, 4), (-8, 0, 3, 8, 64)):
        p, b = Value(Scalar(i32), "p"), Builder()

        def number(n: int, b: Builder = b) -> Value:
            made: Value = arith.const(b, value=n, dtype=i32)
            return made

        first = arith.add(b, arith.mul(b, p, number(8)), number(away))
        x = arith.add(b, tile.splat(b, first, shape=(16,)), tile.arange(b, start=0, end=16))
        rest = arith.rem(b, x, tile.splat(b, number(divisor), shape=(16,)))
        kind(b, rest, tile.splat(b, number(bound), shape=(16,)))
        (compared,) = (o for o in b.ops if o.kind is kind)
        control.yield_(b)
        func = Func("f", Region((p,), tuple(b.ops)), Level.TILE, {})
        n = constancy(facts_of(func), compared, 0, 8)
        found.add((away, bound, n))
        for at in range(-24, 24):
            values = [math.fmod(8 * at + away + i, divisor) for i in range(16)]
            outcomes = [
                {arith.lt: v < bound, arith.ge: v >= bound, arith.eq: v == bound}[kind]
                for v in values
            ]
            for i in range(0, 16, n):
                assert len(set(outcomes[i : i + n])) == 1, (away, bound, n, at)
    if divisor >= 16 and kind is not arith.eq:
        assert {(0, 8, 8), (-16, 8, 8), (-16, 64, 8), (4, 8, 4)} <= found


def test_facts_are_kept_with_their_function() -> None:
    func = Func("f", Region((), ()), Level.TILE)
    assert facts_of(func) is facts_of(func)
