"""analysis/bounds.py: polynomials over the places of grouped tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from warploom.analysis.bounds import Bounds
from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import Interval, exactly
from warploom.analysis.scalar_rules import plus, times
from warploom.ir.core import Builder, Func, Level, Region, Value
from warploom.ir.ops import arith, control
from warploom.ir.poly import Poly
from warploom.ir.types import Scalar, i32

GROUP = 4


@dataclass
class Tiles:
    """for tile in range(tiles_m · tiles_n): the places of grouped tiles, as values and as polynomials."""

    m: Value
    n: Value
    values: dict[str, Value]
    facts: Facts
    polys: dict[Value, Poly]

    def poly(self, v: Value) -> Poly:
        return self.polys.get(v, Poly.atom(v))

    def bounds(self, p: Poly) -> Interval:
        total = exactly(0)
        for m, c in p.terms.items():
            term = exactly(c)
            for a in m:
                assert isinstance(a, Value)
                term = times(term, self.facts.interval(a))
            total = plus(total, term)
        return total

    def nonnegative(self, p: Poly) -> bool:
        return Bounds(self.facts, self.bounds, self.poly).nonnegative(p)

    def p(self, name: str) -> Poly:
        return self.poly(self.values[name])


def tiles() -> Tiles:
    m, n, tile = (Value(Scalar(i32), name) for name in ("m", "n", "tile"))
    b, outer = Builder(), Builder()
    count = arith.mul(outer, m, n)
    zero, one = (arith.const(outer, value=i, dtype=i32) for i in (0, 1))
    size, two = (arith.const(b, value=i, dtype=i32) for i in (GROUP, 2))
    in_group = arith.mul(b, size, n)
    group = arith.idiv(b, tile, in_group)
    first = arith.mul(b, group, size)
    left = arith.sub(b, m, first)
    rows = arith.minimum(b, left, size)
    rest = arith.rem(b, tile, in_group)
    column = arith.idiv(b, rest, rows)
    row = arith.rem(b, rest, rows)
    odd = arith.rem(b, group, two)
    control.yield_(b)
    control.for_(outer, zero, count, one, regions=(b.region((tile,)),))
    control.yield_(outer)
    func = Func("f", Region((m, n), tuple(outer.ops)), Level.TILE, {"nonnegative": (0, 1)})
    facts = facts_of(func)
    polys = {
        count: Poly.atom(m) * Poly.atom(n),
        size: Poly.const(GROUP),
        two: Poly.const(2),
        one: Poly.const(1),
        zero: Poly(),
        in_group: Poly.const(GROUP) * Poly.atom(n),
        first: Poly.const(GROUP) * Poly.atom(group),
        left: Poly.atom(m) - Poly.const(GROUP) * Poly.atom(group),
    }
    values = {
        "m": m, "n": n, "tile": tile, "group": group, "rows": rows, "rest": rest, "column": column,
        "row": row, "odd": odd,
    }  # fmt: skip
    return Tiles(m, n, values, facts.under(facts.given), polys)


def runs(most: int = 6) -> list[dict[str, int]]:
    """What the values are in each iteration of small loops."""
    found = []
    for m, n in itertools.product(range(1, most), repeat=2):
        for tile in range(m * n):
            group, rest = divmod(tile, GROUP * n)
            rows = min(m - group * GROUP, GROUP)
            column, row = divmod(rest, rows)
            found.append({"m": m, "n": n, "tile": tile, "group": group, "rows": rows, "rest": rest,
                          "column": column, "row": row, "odd": group % 2})  # fmt: skip
    return found


def test_a_column_walked_back_is_one_of_the_array() -> None:
    t = tiles()
    one, two = Poly.const(1), Poly.const(2)
    back = t.p("column") + t.p("odd") * (t.p("n") - one - two * t.p("column"))
    assert t.nonnegative(back)
    assert t.nonnegative(t.p("n") - one - t.p("column"))
    assert t.nonnegative(Poly.const(256) * back)
    assert not t.nonnegative(t.p("n") - two - t.p("column"))
    assert not t.nonnegative(back - one)


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
@pytest.mark.parametrize(
    "names", (("n", "column", "odd"), ("m", "group", "rows", "row"), ("tile", "rest", "n"))
)
def test_what_is_proved_holds(names: tuple[str, ...], data: st.DataObject) -> None:
    t = tiles()
    terms = data.draw(
        st.lists(st.tuples(st.sampled_from((-2, -1, 1, 2)), st.lists(st.sampled_from(names), max_size=2)),
                 min_size=1, max_size=4)
    )  # fmt: skip
    p = Poly()
    for c, factors in terms:
        term = Poly.const(c)
        for name in factors:
            term = term * t.p(name)
        p = p + term
    if t.nonnegative(p):
        for run in runs():
            by: dict[Hashable, int] = {t.values[name]: n for name, n in run.items()}
            total = sum(c * math.prod(by[a] for a in m) for m, c in p.terms.items())
            assert total >= 0, (terms, run)
