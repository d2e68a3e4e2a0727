"""tests/pairwise.py: all pairs, and no more rows than they need."""

from __future__ import annotations

import itertools

from tests.pairwise import pairwise


def test_every_pair_stands_in_a_row_that_is_kept() -> None:
    axes = [0, 1, 2], "ab", [None, True], [4, 5, 6]
    rows = pairwise(*axes)
    assert [p.values for p in rows] == list(itertools.product(*axes))
    kept = [p.values for p in rows if not p.marks]
    assert 9 <= len(kept) <= 12
    for i, j in itertools.combinations(range(4), 2):
        assert {(r[i], r[j]) for r in kept} == set(itertools.product(axes[i], axes[j]))
