"""Fewer cases than a product of parameters has: each pair of values of two parameters occurs in one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def pairwise(*axes: Sequence[Any]) -> list[Any]:
    """Rows of the product of `axes`, in its order, such that each two values of two axes stand in one of them
    together; those left out are marked thorough.

    pairwise([0, 1], [0, 1], [0, 1]): 4 of 8 rows.  Each time the first row that has most of the pairs not seen
    yet; names of tests stay those of the whole product."""
    rows = list(itertools.product(*(range(len(a)) for a in axes)))
    kept: set[tuple[int, ...]] = set()
    missing = {pair for row in rows for pair in _pairs(row)}
    while missing:
        best = max(rows, key=lambda row: len(missing & _pairs(row)))
        kept.add(best)
        missing -= _pairs(best)
    marks = {True: (), False: (pytest.mark.thorough,)}
    return [
        pytest.param(*(a[i] for a, i in zip(axes, row, strict=True)), marks=marks[row in kept])
        for row in rows
    ]


def _pairs(row: Sequence[int]) -> set[tuple[int, int, int, int]]:
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}


def every(n: int, rows: Sequence[Any], first: int = 0) -> list[Any]:
    """The rows from the first on, each n-th; the others are marked thorough."""
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            marks=() if i % n == first else pytest.mark.thorough,
        )
        for i, row in enumerate(rows)
    ]


def diagonals(n: int, *axes: Sequence[Any]) -> list[Any]:
    """Rows of the product of `axes`, in its order, of which each n-th diagonal is run: each value stands in one,
    where no axis is shorter than n.  The others are marked thorough."""
    rows = itertools.product(*(range(len(a)) for a in axes))
    return [
        pytest.param(
            *(a[i] for a, i in zip(axes, row, strict=True)),
            marks=pytest.mark.thorough if sum(row) % n else (),
        )
        for row in rows
    ]


def part(n: int, rows: Sequence[Iterable[Any]]) -> list[int]:
    """The n-th part of the rows, such that as many of their values as can be stand in one; else each n-th."""
    left = sorted(range(len(rows)), key=lambda i: (i % n, i))
    values = [set(row) for row in rows]
    taken: list[int] = []
    seen: set[Any] = set()
    while len(taken) * n < len(rows):
        taken.append(max(left, key=lambda i: len(values[i] - seen)))
        left.remove(taken[-1])
        seen |= values[taken[-1]]
    return taken
