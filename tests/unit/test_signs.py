"""analysis/signs.py: what it says of divisors holds of every run, and it says enough of grouped tiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.random_numbers import Author, Meaningless, Run
from warploom.analysis.facts import facts_of
from warploom.analysis.signs import Signs, extents
from warploom.ir.core import Builder, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.types import Scalar, dtype_of, i32, i64, u32

# ---- soundness


class Claims(Run):
    """Notes what is claimed of the operands of each op that is run.  A division by 0 is one by 1: a program
    may divide before it tests the divisor."""

    def __init__(self, func: Func, arguments: Sequence[int], signs: Signs) -> None:
        self.signs = signs
        self.claimed: list[tuple[Value, int, bool, bool]] = []
        super().__init__(func, arguments)

    def op(self, o: Op) -> None:
        for v in o.operands:
            if isinstance(v.type, Scalar) and v.type.dtype.is_int:
                claim = self.signs.never_zero(v, o), self.signs.positive(v, o)
                self.claimed.append((v, self.env[v], *claim))
        super().op(o)

    def value(self, o: Op, x: list[Any]) -> Any:
        if o.kind in (arith.idiv, arith.rem) and isinstance(o.result.type, Scalar) and x[1] == 0:
            return x[0] if o.kind is arith.idiv else 0
        return super().value(o, x)

    def check(self) -> None:
        for v, n, never_zero, positive in self.claimed:
            assert n != 0 or not never_zero, (v, n)
            assert n > 0 or not positive, (v, n)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**40))
def test_all_claims_about_random_functions_hold(seed: int) -> None:
    author = Author(Random(seed))
    func = author.func()
    note(print_func(func))
    signs = Signs(facts_of(func))
    for arguments in itertools.islice(itertools.product(*author.inputs), 12):
        with suppress(Meaningless):
            Claims(func, arguments, signs).check()


_KINDS = (
    arith.mul, arith.mul, arith.idiv, arith.idiv, arith.rem, arith.minimum, arith.maximum, arith.sub,
    arith.sub, arith.add,
)  # fmt: skip
_COMPARED = (arith.lt, arith.le, arith.gt, arith.ge, arith.eq, arith.ne)


class Tiler:
    """Writes a random function on three numbers as those are that find a tile: loops up to products and
    quotients, tests, and quotients, differences and minima of what they count."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.dtype = self.rng.choice((i32, i32, i64, u32))
        self.params = tuple(Value(Scalar(self.dtype), name) for name in "mng")
        b = Builder()
        self.block(b, list(self.params), 2)
        control.yield_(b)
        signs = tuple(i for i in range(3) if self.rng.random() < 0.4)
        attrs = {"nonnegative": signs}
        self.func = Func("f", Region(self.params, tuple(b.ops)), Level.TILE, attrs)
        few = (0, 1, 2, 5) if self.dtype is u32 else (-5, -2, -1, 0, 1, 3, 7)
        self.inputs = [[n for n in few if n >= 0 or i not in signs] for i in range(3)]

    def number(self, b: Builder, pool: list[Value]) -> Value:
        if self.rng.random() < 0.25:
            n = self.rng.choice((0, 1, 1, 2, 3, 8))
            return arith.const(b, value=n, dtype=self.dtype)
        return self.rng.choice(pool[-6:] if self.rng.random() < 0.6 else pool)

    def block(self, b: Builder, pool: list[Value], depth: int) -> None:
        for _ in range(self.rng.randint(3, 7)):
            which = self.rng.random()
            if depth and which < 0.2:
                index, inner = Value(Scalar(self.dtype), "t"), Builder()
                ends = self.number(b, pool), self.number(b, pool)
                step = arith.const(b, value=self.rng.choice((1, 2)), dtype=self.dtype)
                self.block(inner, [*pool, index], depth - 1)
                control.yield_(inner)
                control.for_(b, *ends, step, regions=(inner.region((index,)),))
            elif depth and which < 0.35:
                test = self.rng.choice(_COMPARED)(b, self.number(b, pool), self.number(b, pool))
                regions = []
                for _ in range(2):
                    inner = Builder()
                    self.block(inner, [*pool], depth - 1)
                    control.yield_(inner)
                    regions.append(inner.region())
                control.if_(b, test, regions=tuple(regions))
            else:
                kind = self.rng.choice(_KINDS)
                pool.append(kind(b, self.number(b, pool), self.number(b, pool)))


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**40))
def test_all_claims_about_random_tilers_hold(seed: int) -> None:
    tiler = Tiler(seed)
    note(print_func(tiler.func))
    signs = Signs(facts_of(tiler.func))
    every = list(itertools.product(*tiler.inputs))
    for arguments in tiler.rng.sample(every, min(len(every), 16)):
        with suppress(Meaningless):
            Claims(tiler.func, arguments, signs).check()


def test_random_tilers_lead_to_claims() -> None:
    """Else the test above says little: most claims are not those of ranges alone."""
    found = 0
    for seed in range(100):
        func = Tiler(seed).func
        signs = Signs(facts_of(func))
        for o in walk(func.body):
            for v in o.operands:
                if isinstance(v.type, Scalar) and dtype_of(v.type).is_int:
                    found += signs.never_zero(v, o) and not signs.facts.at(v, o).is_nonzero
    assert found > 100


# ---- what it knows


class Loop:
    """`for t in range(start, bound(m, n))`, in whose body ops are written."""

    def __init__(
        self,
        bound: Callable[[Builder, Value, Value], Value],
        start: int = 0,
        nonnegative: Any = (0, 1),
    ) -> None:
        self.b, self.inner, self.nonnegative = Builder(), Builder(), nonnegative
        self.m, self.n, self.t = (Value(Scalar(i32), name) for name in "mnt")
        first, one = (arith.const(self.b, value=x, dtype=i32) for x in (start, 1))
        self.ends = first, bound(self.b, self.m, self.n), one

    def c(self, n: int) -> Value:
        return arith.const(self.inner, value=n, dtype=i32)

    def never_zero(self, *divisors: Value) -> list[bool]:
        """Of each, what is known where the body divides by it."""
        start = len(self.inner.ops)
        for v in divisors:
            arith.idiv(self.inner, self.t, v)
        by, signs = self.inner.ops[start:], self.signs_of()
        return [signs.never_zero(v, o) for v, o in zip(divisors, by, strict=False)]

    def signs_of(self) -> Signs:
        control.yield_(self.inner)
        control.for_(self.b, *self.ends, regions=(self.inner.region((self.t,)),))
        control.yield_(self.b)
        region = Region((self.m, self.n), tuple(self.b.ops))
        func = Func("f", region, Level.TILE, {"nonnegative": self.nonnegative})
        return Signs(facts_of(func))


def _product(b: Builder, m: Value, n: Value) -> Value:
    return arith.mul(b, m, n)


def _cdiv(b: Builder, x: Value, n: int) -> Value:
    by, more = (arith.const(b, value=k, dtype=i32) for k in (n, n - 1))
    return arith.idiv(b, arith.add(b, x, more), by)


def test_no_factor_of_a_bound_is_zero() -> None:
    assert Loop(_product).never_zero(Value(Scalar(i32))) == [False]
    for signs in ((), (0, 1)):
        loop = Loop(_product, nonnegative=signs)
        scaled = arith.mul(loop.inner, loop.n, loop.c(8))
        assert loop.never_zero(loop.m, loop.n, scaled) == [True, True, True]
    loop = Loop(_product, start=-1)
    assert loop.never_zero(loop.m, loop.n) == [False, False]


def test_no_number_of_blocks_is_zero() -> None:
    loop = Loop(lambda b, m, n: _product(b, _cdiv(b, m, 128), _cdiv(b, n, 64)))
    wide = _cdiv(loop.inner, loop.n, 32)
    assert loop.never_zero(loop.m, loop.n, wide) == [True, True, True]


@pytest.mark.parametrize("signs", [(0, 1), ()], ids=["sizes", "any numbers"])
def test_the_rows_of_a_group_of_tiles(signs: tuple[int, ...]) -> None:
    """min(m - t // (8n) · 8, 8) is 1 or more, unless m and n are both negative."""
    loop = Loop(_product, nonnegative=signs)
    b, eight = loop.inner, loop.c(8)
    group = arith.idiv(b, loop.t, arith.mul(b, loop.n, eight))
    rest = arith.sub(b, loop.m, arith.mul(b, group, eight))
    rows = arith.minimum(b, rest, eight)
    other = arith.sub(b, loop.n, arith.mul(b, group, eight))
    assert loop.never_zero(rows, other) == [bool(signs), False]


def test_two_orders_together() -> None:
    """t < m + n where m <= t: n is not 0."""
    t, inner = Value(Scalar(i32), "t"), Builder()
    b, m, n = Builder(), Value(Scalar(i32), "m"), Value(Scalar(i32), "n")
    then, other = Builder(), Builder()
    for x in (then, other):
        arith.idiv(x, t, n)
        control.yield_(x)
    control.if_(inner, arith.ge(inner, t, m), regions=(then.region(), other.region()))
    control.yield_(inner)
    zero, one = (arith.const(b, value=x, dtype=i32) for x in (0, 1))
    control.for_(b, zero, arith.add(b, m, n), one, regions=(inner.region((t,)),))
    control.yield_(b)
    func = Func("f", Region((m, n), tuple(b.ops)), Level.TILE, {})
    signs = Signs(facts_of(func))
    assert [signs.never_zero(n, x.ops[0]) for x in (then, other)] == [True, False]


def test_extents_of_tensor_maps_and_promises_of_tasks() -> None:
    """The driver encodes no map of an extent that is 0; what a task promises of arguments holds before it."""
    func = parse_func(
        """
func @f(%p: ptr<bf16>, %m: i32, %n: i32, %k: i32) level=WARP {
  %0 = const() {value=0, dtype=i32} : i32
  %1 = const() {value=1, dtype=i64} : i64
  %2 = cast(%m) {dtype=i64} : i64
  %3 = cast(%n) {dtype=i64} : i64
  %4 = make_view(%p, %2, %3, %3, %1) {divisible=(16, 16, 1)} : view<2xbf16>
  %5 = tensor_map(%4) {box=(64, 64), inner=1, swizzle=128} : tensormap<64x64xbf16, inner=1, swizzle=128>
  %6 = idiv(%m, %n) : i32
  %7 = idiv(%m, %k) : i32
  tasks() {names=("a",), warps=(4,), replicas=(1,), registers=(0,)} do {
    %8 = gt(%k, %0) : i1
    assume(%8)
    yield()
  }
  yield()
}
"""
    )
    facts = facts_of(func)
    by_n, by_k = (o for o in func.body.ops if o.kind is arith.idiv)
    signs, alone = Signs(facts, extents(func.body.ops, facts)), Signs(facts)
    n = by_n.operands[1]
    assert (signs.never_zero(n, by_n), alone.never_zero(n, by_n)) == (True, False)
    assert alone.positive(by_k.operands[1], by_k)


def test_a_long_expression_is_given_up() -> None:
    loop = Loop(_product)
    x = loop.m
    for _ in range(3000):
        x = arith.mul(loop.inner, x, loop.m)
    assert loop.never_zero(x) == [False]


def test_tiles_of_one_divisor() -> None:
    loop = Loop(_product)
    divisor = tile.splat(loop.inner, loop.n, shape=(8,))
    arith.rem(loop.inner, tile.arange(loop.inner, start=0, end=8), divisor)
    assert loop.signs_of().never_zero(divisor, loop.inner.ops[-2])
