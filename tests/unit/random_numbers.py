"""Random functions of numbers, and an interpreter that checks what analysis/facts.py says of each value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import numpy as np

from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import AxisFact, Interval, power_of_two
from warploom.ir.core import Builder, Fact, Func, Level, Op, Region, Value
from warploom.ir.fold import fold, wrap
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import (
    Pointer,
    Scalar,
    Tile,
    dtype_of,
    elem_of,
    i1,
    i8,
    i16,
    i32,
    i64,
    shape_of,
    u8,
    u32,
)


class Meaningless(Exception):
    """A run divides by zero, overflows, or breaks a promise: nothing is said of it."""


# ---- an interpreter that shares nothing with the rules but `fold`


class Run:
    """Runs a function on integers and checks each value that it makes."""

    def __init__(self, func: Func, arguments: Sequence[int]) -> None:
        self.facts = facts_of(func)
        self.env: dict[Value, Any] = {}
        self.seen: list[tuple[Value, Any]] = []
        for p, n in zip(func.params, arguments, strict=True):
            self.put(p, n)
        self.region(func.body)

    def put(self, v: Value, x: Any) -> None:
        self.env[v] = x
        self.seen.append((v, x))

    def check(self) -> None:
        for v, x in self.seen:
            if dtype_of(v.type).is_int:
                holds(self.facts, v, x)

    def region(self, region: Region) -> tuple[Any, ...]:
        for o in region.ops[:-1]:
            self.op(o)
        return tuple(self.env[v] for v in region.yielded)

    def op(self, o: Op) -> None:
        x = [self.env[v] for v in o.operands]
        match o.kind:
            case control.for_:
                self.loop(o, x)
            case control.while_:
                self.loop_while(o, x)
            case control.if_:
                for v, n in zip(o.results, self.region(o.regions[0 if x[0] else 1]), strict=True):
                    self.put(v, n)
            case control.assume:
                if not x[0]:
                    raise Meaningless
            case tile.multiple_of:
                if not isinstance(o.operands[0].type, Tile) and x[0] % o.attrs["by"][0]:
                    raise Meaningless
            case _:
                self.put(o.result, self.value(o, x))

    def loop(self, o: Op, x: list[Any]) -> None:
        (body,) = o.regions
        lo, hi, step, *carried = x
        if step <= 0:
            raise Meaningless
        for i in itertools.islice(range(lo, hi, step), 40):
            for p, n in zip(body.params, (i, *carried), strict=True):
                self.put(p, n)
            carried = list(self.region(body))
        for v, n in zip(o.results, carried, strict=True):
            self.put(v, n)

    def loop_while(self, o: Op, x: list[Any]) -> None:
        condition, body = o.regions
        for _ in range(40):
            for p, n in zip(condition.params, x, strict=True):
                self.put(p, n)
            goes_on, *kept = self.region(condition)
            if not goes_on:
                break
            for p, n in zip(body.params, kept, strict=True):
                self.put(p, n)
            x = list(self.region(body))
        else:
            raise Meaningless
        for v, n in zip(o.results, kept, strict=True):
            self.put(v, n)

    def value(self, o: Op, x: list[Any]) -> Any:
        attrs = o.attrs
        match o.kind:
            case arith.const:
                return attrs["value"]
            case tile.arange:
                return np.array(range(attrs["start"], attrs["end"]), object)
            case tile.splat:
                return np.full(attrs["shape"], x[0], object)
            case tile.expand_dims:
                return np.expand_dims(x[0], attrs["axis"])
            case tile.broadcast:
                return np.broadcast_to(x[0], attrs["shape"])
            case tile.transpose:
                return np.transpose(x[0], attrs["perm"])
            case tile.reduce:
                return {"max": np.max, "min": np.min}[attrs["fn"]](x[0], axis=attrs["axis"])
        arrays = np.broadcast_arrays(*(np.array(a, object) for a in x))
        flat = [element(o, list(row)) for row in zip(*(a.flat for a in arrays), strict=True)]
        shape = shape_of(o.result.type)
        return np.array(flat, object).reshape(shape) if shape else flat[0]


_PLACES: dict[Any, Callable[..., int]] = {
    arith.add: lambda x, y: x + y,
    arith.sub: lambda x, y: x - y,
    arith.mul: lambda x, y: x * y,
    arith.idiv: lambda x, y: -x if y == -1 else 0,
    arith.neg: lambda x: -x,
    arith.abs_: abs,
}


def element(o: Op, x: list[Any], wraps: bool = False) -> int:
    """An op on one element of each operand.  Where numbers of its dtype are taken not to overflow, what does
    is Meaningless; wraps: they aren't."""
    if o.kind is arith.addptr:
        elem = elem_of(o.result.type)
        assert isinstance(elem, Pointer)
        return int(x[0] + x[1] * elem.dtype.bytes)
    dtype = dtype_of(o.operands[-1].type)
    found = fold(o.kind, x, dtype, o.attrs.get("dtype"))
    if found is None:
        raise Meaningless
    if not wraps and o.kind in _PLACES and dtype.kind == "int" and dtype.bits >= 32:
        exact = _PLACES[o.kind](*x)
        if wrap(exact, dtype) != exact:
            raise Meaningless
    return found if isinstance(found, bool) else int(found)


def holds(facts: Facts, v: Value, x: Any) -> None:
    """Everything that is said of v is true of x."""
    known = facts.interval(v)
    for n in np.array(x, object).flat:
        assert known.low <= n <= known.high, (v, n, known)
        assert n % known.divisor == 0, (v, n, known)
    for d, extent in enumerate(shape_of(v.type)):
        fact = facts.axis(v, d)
        for row in np.moveaxis(x, d, -1).reshape(-1, extent):
            holds_along(fact, [int(n) for n in row])


def holds_along(fact: AxisFact, row: list[int]) -> None:
    said = fact, row
    assert row[0] % fact.first == 0, said
    if fact.slope is not None:
        assert all(b - a == fact.slope for a, b in itertools.pairwise(row)), said
    for i in range(0, len(row), fact.constancy):
        assert len(set(row[i : i + fact.constancy])) == 1, said
    if fact.contiguity > 1:
        for i in range(0, len(row), fact.contiguity):
            group = row[i : i + fact.contiguity]
            assert group[0] % fact.contiguity == 0, said
            assert group == list(range(group[0], group[0] + len(group))), said


# ---- random functions

INPUTS = {
    i32: (-9, -1, 0, 1, 7, 16, 40),
    i64: (-3, 0, 5, 64),
    u8: (0, 3, 129, 255),
    i1: (False, True),
}
_KINDS = (
    arith.add, arith.sub, arith.mul, arith.idiv, arith.rem, arith.minimum, arith.maximum, arith.and_,
    arith.or_, arith.xor, arith.shl, arith.shr,
)  # fmt: skip
_CONSTANTS = (-16, -5, -1, 0, 1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 48, 64, 100, 127)
_SHAPES = ((4,), (8,), (2, 4), (8, 4), (1, 8))


class Author:
    """Writes a random function, op by op."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        dtypes = [rng.choice(sorted(INPUTS, key=str)) for _ in range(rng.randint(1, 3))]
        self.params = tuple(Value(Scalar(d), f"p{i}") for i, d in enumerate(dtypes))
        self.inputs = [
            rng.sample(INPUTS[d], rng.randint(1, min(4, len(INPUTS[d])))) for d in dtypes
        ]

    def often(self) -> bool:
        return self.rng.random() < 0.5

    def func(self) -> Func:
        b = Builder()
        self.block(b, list(self.params), self.rng.randint(3, 14), 2)
        control.yield_(b)
        facts = tuple(self.fact(p, xs) for p, xs in zip(self.params, self.inputs, strict=True))
        signs = [i for i, xs in enumerate(self.inputs) if min(xs) >= 0 and self.often()]
        attrs = {"facts": facts, "nonnegative": tuple(signs)}
        return Func("f", Region(self.params, tuple(b.ops)), Level.TILE, attrs)

    def fact(self, p: Value, inputs: list[int]) -> Fact:
        if not self.often() or dtype_of(p.type) == i1:
            return Fact()
        by = min((n & -n for n in inputs if n), default=16)
        return Fact(min(by, 16), inputs[0] if len(inputs) == 1 else None)

    def pick(self, pool: Iterable[Value], t: Any = None) -> Value | None:
        found = [v for v in pool if t is None or v.type == t]
        return self.rng.choice(found[-12:]) if found else None

    def block(self, b: Builder, pool: list[Value], size: int, depth: int) -> None:
        for _ in range(size):
            pool.extend(self.step(b, pool, depth))

    def step(self, b: Builder, pool: list[Value], depth: int) -> tuple[Value, ...]:
        which = self.rng.randint(0, 13)
        x = self.pick(pool)
        if x is None or which == 0:
            dtype = self.rng.choice((i32, i64, u8, i8))
            value = wrap(self.rng.choice(_CONSTANTS), dtype)
            return (arith.const(b, value=value, dtype=dtype),)
        if which == 1:
            start = self.rng.choice((0, 0, 4, 8, -8, 3))
            return (tile.arange(b, start=start, end=start + self.rng.choice((4, 8))),)
        if which == 2:
            return (self.shaped(b, x),)
        if which == 3:
            to = self.rng.choice((i32, i64, u8, i8, i16, u32, i1))
            return (arith.cast(b, x, dtype=to),)
        if which == 4 and depth:
            return self.loop(b, pool, depth)
        if which == 5 and depth:
            return self.choice(b, pool, depth)
        if which == 6 and depth:
            return self.loop_while(b, pool, depth)
        y = self.other(b, pool, x)
        if which == 7:
            kind = self.rng.choice(sorted(arith.COMPARE, key=lambda k: k.name))
            return (kind(b, x, y),)
        if which == 8 and (c := self.test(b, pool, x)) is not None:
            return (arith.select(b, c, x, y),)
        if dtype_of(x.type) == i1:
            return (self.rng.choice((arith.and_, arith.or_, arith.xor))(b, x, y),)
        if which == 9:
            return (self.rng.choice((arith.neg, arith.abs_, arith.not_))(b, x),)
        return (self.rng.choice(_KINDS)(b, x, y),)

    def other(self, b: Builder, pool: list[Value], x: Value) -> Value:
        """An operand of x's type: one that there is, or a constant."""
        y = self.pick(pool, x.type)
        if y is not None and self.often():
            return y
        dtype = dtype_of(x.type)
        n = self.rng.choice(_CONSTANTS)
        c = arith.const(b, value=bool(n % 2) if dtype == i1 else wrap(n, dtype), dtype=dtype)
        full: Value = tile.splat(b, c, shape=x.type.shape) if isinstance(x.type, Tile) else c
        return full

    def test(self, b: Builder, pool: list[Value], x: Value) -> Value | None:
        whole = self.pick(pool, Scalar(i1))
        if isinstance(x.type, Tile):
            return self.pick(pool, Tile(x.type.shape, i1)) or whole
        return whole

    def shaped(self, b: Builder, x: Value) -> Value:
        shape = shape_of(x.type)
        which = self.rng.randint(0, 3)
        found: Value
        if not shape:
            found = tile.splat(b, x, shape=self.rng.choice(_SHAPES))
        elif which == 0 and len(shape) < 3:
            found = tile.expand_dims(b, x, axis=self.rng.randint(0, len(shape)))
        elif which == 1 and 1 in shape:
            found = tile.broadcast(b, x, shape=tuple(4 if n == 1 else n for n in shape))
        elif which == 2 and dtype_of(x.type) != i1:
            fn = self.rng.choice(("max", "min"))
            found = tile.reduce(b, x, axis=len(shape) - 1, fn=fn)
        else:
            perm = tuple(self.rng.sample(range(len(shape)), len(shape)))
            found = tile.transpose(b, x, perm=perm)
        return found

    def passed(self, pool: list[Value]) -> tuple[Value, ...]:
        return tuple(v for _ in range(self.rng.randint(1, 2)) if (v := self.pick(pool)))

    def ended(self, b: Builder, pool: list[Value], like: Sequence[Value]) -> None:
        control.yield_(b, *(self.pick(pool, v.type) or v for v in like))

    def inner(
        self, pool: list[Value], params: Sequence[Value], depth: int
    ) -> tuple[Builder, list[Value]]:
        b, inside = Builder(), [*pool, *params]
        self.block(b, inside, self.rng.randint(1, 4), depth - 1)
        return b, inside

    def loop(self, b: Builder, pool: list[Value], depth: int) -> tuple[Value, ...]:
        init = self.passed(pool)
        lo, hi, step = (self.bound(b, pool, n) for n in ((0, -4, 8), (1, 5, 24, 32), (1, 2, 8)))
        params = (Value(Scalar(i32), "iv"), *(Value(v.type) for v in init))
        inner, inside = self.inner(pool, params, depth)
        self.ended(inner, inside, params[1:])
        return results(control.for_(b, lo, hi, step, *init, regions=(inner.region(params),)))

    def bound(self, b: Builder, pool: list[Value], constants: Sequence[int]) -> Value:
        v = self.pick(pool, Scalar(i32))
        if v is not None and self.rng.randint(0, 3) == 0:
            return v
        found: Value = arith.const(b, value=self.rng.choice(constants), dtype=i32)
        return found

    def choice(self, b: Builder, pool: list[Value], depth: int) -> tuple[Value, ...]:
        like, c = self.passed(pool), self.condition(b, pool)
        regions = []
        for _ in range(2):
            inner, inside = self.inner(pool, (), depth)
            self.ended(inner, inside, like)
            regions.append(inner.region())
        return results(control.if_(b, c, regions=tuple(regions)))

    def condition(self, b: Builder, pool: list[Value]) -> Value:
        x = self.pick([v for v in pool if isinstance(v.type, Scalar) and v.type.dtype != i1])
        if x is None:
            x = arith.const(b, value=5, dtype=i32)
        kind = self.rng.choice(sorted(arith.COMPARE, key=lambda k: k.name))
        c: Value = kind(b, x, self.other(b, pool, x))
        if (more := self.pick(pool, Scalar(i1))) is not None and self.often():
            c = self.rng.choice((arith.and_, arith.or_))(b, c, more)
        if self.often():
            c = arith.not_(b, c)
        return c

    def loop_while(self, b: Builder, pool: list[Value], depth: int) -> tuple[Value, ...]:
        """Counts to a bound, and carries other values along."""
        count = arith.const(b, value=self.rng.choice((-3, 0, 2)), dtype=i32)
        init = (count, *self.passed(pool))
        before = tuple(Value(v.type) for v in init)
        c = Builder()
        goes_on = arith.lt(c, before[0], self.bound(c, pool, (1, 6, 9)))
        control.yield_(c, goes_on, *before)
        params = tuple(Value(v.type) for v in init)
        inner, inside = self.inner(pool, params, depth)
        following = arith.add(inner, params[0], arith.const(inner, value=2, dtype=i32))
        control.yield_(inner, following, *(self.pick(inside, v.type) or v for v in params[1:]))
        return results(control.while_(b, *init, regions=(c.region(before), inner.region(params))))


def results(found: Any) -> tuple[Value, ...]:
    return found if isinstance(found, tuple) else (found,)


# ---- the most that can be said of some values


def tightest(numbers: Sequence[int]) -> Interval:
    """The most that an interval says of all of them."""
    divisor = min(power_of_two(n) for n in numbers)
    return Interval(min(numbers), max(numbers), divisor)


def tightest_along(row: Sequence[int]) -> AxisFact:
    """The most that an axis fact says of a row."""
    steps = {b - a for a, b in itertools.pairwise(row)}
    (slope,) = steps if len(steps) == 1 else (None,)
    sizes = [1 << i for i in range(17)]

    def largest(said: Callable[[int], AxisFact]) -> int:
        return max(n for n in sizes if is_held(said(n), row))

    return AxisFact(
        slope,
        power_of_two(row[0]),
        largest(lambda n: AxisFact(contiguity=n)),
        largest(lambda n: AxisFact(constancy=n)),
    )


def is_held(fact: AxisFact, row: Sequence[int]) -> bool:
    try:
        holds_along(fact, list(row))
    except AssertionError:
        return False
    return True
