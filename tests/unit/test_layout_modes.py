"""Layouts by modes, element by element against what their definition says of threads and registers."""

from __future__ import annotations

import itertools
import math

import pytest

from warploom.layout import mma_acc
from warploom.layout.modes import (
    RegisterLayout,
    auto_local_spatial,
    column_local,
    column_spatial,
    compose,
    local,
    reduce,
    spatial,
)


def held(x: RegisterLayout) -> dict[tuple[int, int], tuple[int, ...]]:
    """(thread, register) -> coordinates, from the modes alone."""
    found = {}
    sizes = [-m if m < 0 else x.mode_shape[m] for m in x.spatial_modes]
    locals_ = [x.mode_shape[m] for m in x.local_modes]
    for thread in itertools.product(*map(range, sizes)):
        for register in itertools.product(*map(range, locals_)):
            at = {m: i for m, i in zip(x.spatial_modes, thread, strict=True) if m >= 0}
            at |= dict(zip(x.local_modes, register, strict=True))
            coordinates = []
            for group in x.axes:
                c = 0
                for m in group:
                    c = c * x.mode_shape[m] + at[m]
                coordinates.append(c)
            t = r = 0
            for i, n in zip(thread, sizes, strict=True):
                t = t * n + i
            for i, n in zip(register, locals_, strict=True):
                r = r * n + i
            found[t, r] = tuple(coordinates)
    return found


LAYOUTS = {
    "rows": spatial(8, 4),
    "columns": column_spatial(8, 16),
    "a vector a thread": spatial(8, 8).local(1, 4),
    "columns in registers": spatial(4, 8).column_local(2, 4),
    "three rows a thread": local(3, 1).spatial(16, 8),
    "warps, then lanes": spatial(2, 2).local(2, 1).spatial(8, 4).local(1, 2),
    "replicated": reduce(spatial(4, 8, 4), dims=[2]).local(2, 2),
    "one axis": auto_local_spatial(64, [6, 64]),
}


@pytest.mark.parametrize("x", LAYOUTS.values(), ids=list(LAYOUTS))
def test_bits_hold_what_modes_hold(x: RegisterLayout) -> None:
    made = x.bits()
    assert made.threads == x.threads and made.shape == x.shape
    for (t, r), coordinates in held(x).items():
        assert tuple(int(c) for c in made.coords(r, t % 32, t // 32)) == coordinates
    assert made.registers == math.prod(x.mode_shape[m] for m in x.local_modes)


def test_products_are_outer_times_inner() -> None:
    outer, inner = spatial(2, 3).local(2, 1), column_spatial(4, 2).local(1, 3)
    whole = held(compose(outer, inner))
    threads, registers = inner.threads, 3
    for (t, r), (row, column) in held(outer).items():
        for (u, s), (i, j) in held(inner).items():
            assert whole[t * threads + u, r * registers + s] == (row * 4 + i, column * 6 + j)


def test_the_accumulator_of_mma_sync() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": two warps along rows, two along columns."""
    warps = local(1, 2).column_spatial(2, 2).local(1, 2)
    atom = local(2, 1).spatial(8, 4).local(1, 2)
    assert (warps * atom).bits() == mma_acc((32, 64), (2, 2), 4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RegisterLayout((4, 4), (4,), (0,), ()), "do not make up"),
        (lambda: RegisterLayout((4, 4), (4, 4), (0,), ()), "spatial or local"),
        (lambda: spatial(4, 8) * local(2), "times one of"),
        (lambda: spatial(4, 4).bits(), "no whole warps"),
        (lambda: spatial(32, 1).local(3, 1).bits(), "no bits of a coordinate"),
        (lambda: auto_local_spatial(64, [3, 32]), "64 threads for a tile"),
        (lambda: column_local(4, 4).bits(), "no whole warps"),
    ],
)
def test_what_is_no_layout(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]
