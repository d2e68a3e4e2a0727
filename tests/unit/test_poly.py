"""Poly is a ring with a partial division; compared with integer arithmetic at random points."""

from hypothesis import given
from hypothesis import strategies as st

from warploom.ir.poly import Poly

ATOMS = ["x", "y", "z"]
monomials = st.lists(st.sampled_from(ATOMS), max_size=3).map(lambda m: tuple(sorted(m, key=id)))
polys = st.dictionaries(monomials, st.integers(-9, 9).filter(bool), max_size=4).map(Poly)
points = st.fixed_dictionaries({a: st.integers(-20, 20) for a in ATOMS})


def at(p: Poly, point: dict[str, int]) -> int:
    total = 0
    for m, c in p.terms.items():
        for a in m:
            c *= point[a]
        total += c
    return total


@given(polys, polys, points)
def test_ring_operations_agree_with_integers(p: Poly, q: Poly, point: dict[str, int]) -> None:
    assert at(p + q, point) == at(p, point) + at(q, point)
    assert at(p - q, point) == at(p, point) - at(q, point)
    assert at(p * q, point) == at(p, point) * at(q, point)


@given(polys, polys, points)
def test_division_is_exact_with_its_rest(p: Poly, q: Poly, point: dict[str, int]) -> None:
    quotient, rest = p.divide(q)
    assert quotient * q + rest == p
    assert at(quotient, point) * at(q, point) + at(rest, point) == at(p, point)


@given(polys, monomials, st.integers(-9, 9).filter(bool))
def test_a_product_with_one_term_divides_back(p: Poly, m: tuple[str, ...], c: int) -> None:
    divisor = Poly({m: c})
    assert (p * divisor).divide(divisor) == (p, Poly())


def test_constants() -> None:
    assert Poly().constant == 0
    assert Poly.const(7).constant == 7
    assert Poly.atom("x").constant is None
    assert (Poly.atom("x") - Poly.atom("x")).constant == 0
