"""tests/pairwise.py: all pairs, and no more rows than they need."""

from __future__ import annotations

import itertools

from tests.pairwise import diagonals, every, pairwise, part


def test_every_pair_stands_in_a_row_that_is_kept() -> None:
    axes = [0, 1, 2], "ab", [None, True], [4, 5, 6]
    rows = pairwise(*axes)
    assert [p.values for p in rows] == list(itertools.product(*axes))
    kept = [p.values for p in rows if not p.marks]
    assert 9 <= len(kept) <= 12
    for i, j in itertools.combinations(range(4), 2):
        assert {(r[i], r[j]) for r in kept} == set(itertools.product(axes[i], axes[j]))


def test_each_value_stands_in_a_diagonal_and_rows_keep_their_order() -> None:
    axes = [0, 1, 2], "ab", [4, 5]
    rows = diagonals(2, *axes)
    assert [p.values for p in rows] == list(itertools.product(*axes))
    kept = [p.values for p in rows if not p.marks]
    assert len(kept) == 6
    for i, j in itertools.combinations(range(3), 2):
        assert {(r[i], r[j]) for r in kept} == set(itertools.product(axes[i], axes[j]))


def test_every_second_from_the_first_on() -> None:
    assert [(p.values, bool(p.marks)) for p in every(2, [(1, 2), (3, 4), 5], first=1)] == [
        ((1, 2), True), ((3, 4), False), ((5,), True),
    ]  # fmt: skip


def test_of_a_part_each_value_stands_in_a_row_where_it_can() -> None:
    rows = [list(enumerate(row)) for row in itertools.product(range(3), range(3))]
    assert len({i // 3 for i in part(3, rows)}) == len({i % 3 for i in part(3, rows)}) == 3
    assert sorted(part(3, [{x} for x in range(8)])) == [0, 3, 6]
    assert sorted(part(2, [{x} for x in range(3)])) == [0, 2]
