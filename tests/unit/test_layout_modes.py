"""Layouts by modes, element by element against what their definition says of threads and registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from warploom.layout import mma_acc
from warploom.layout.modes import (
    RegisterLayout,
    auto_local_spatial,
    column_local,
    column_spatial,
    compose,
    concat,
    divide,
    flatten,
    left_divide,
    local,
    reduce,
    reshape,
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
        (lambda: flatten(spatial(4, 8), 1, 2), "axes 1 to 2 of"),
        (lambda: spatial(4, 4).bits(), "no whole warps"),
        (lambda: spatial(32, 1).local(3, 1).bits(), "no bits of a coordinate"),
        (lambda: auto_local_spatial(64, [3, 32]), "64 threads for a tile"),
        (lambda: column_local(4, 4).bits(), "no whole warps"),
    ],
)
def test_what_is_no_layout(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("shape", [(512,), (2, 16, 16), (64, 2, 4), (1, 128, 4)])
def test_a_reshaped_layout_holds_the_same_elements(shape: tuple[int, ...]) -> None:
    x = local(1, 2).column_spatial(2, 2).local(2, 1).spatial(8, 4).local(1, 1)
    assert x.size == 512
    found, was = held(reshape(x, shape)), held(x)
    assert found.keys() == was.keys()
    for at, c in was.items():
        assert np.ravel_multi_index(found[at], shape) == np.ravel_multi_index(c, x.shape)
    assert held(reshape(reshape(x, shape), x.shape)) == was


def test_a_concatenated_layout_has_both_tiles_axes() -> None:
    x, y = column_spatial(2, 4).local(1, 2), spatial(8).local(2)
    found = concat(x, y)
    assert found.shape == (2, 8, 16)
    outer, inner = held(x), held(y)
    assert held(found) == {
        (t * 8 + u, r * 2 + s): outer[t, r] + inner[u, s]
        for (t, r), (u, s) in itertools.product(outer, inner)
    }


FACTORS = {
    "warps of lanes": (local(1, 2).spatial(2, 2), spatial(8, 4).local(1, 2)),
    "columns": (column_spatial(2, 3), column_local(2, 2).spatial(4, 8)),
    "no power of two": (local(3, 1).spatial(2, 2), local(3, 5).spatial(4, 8)),
    "replicated": (reduce(spatial(2, 2, 2), dims=[2]), reduce(spatial(4, 2, 8), dims=[1])),
    "modes that merge": (spatial(4, 2), spatial(8, 1).local(1, 4)),
    "nothing left": (local(1, 1), spatial(4, 8)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_quotients_of_a_product_are_its_factors(name: str) -> None:
    outer, inner = FACTORS[name]
    product = held(outer * inner)
    assert held(divide(outer * inner, inner) * inner) == product
    assert held(outer * left_divide(outer * inner, outer)) == product
    assert held(divide(outer * inner, inner)) == held(outer)
    assert held(left_divide(outer * inner, outer)) == held(inner)


NO_QUOTIENTS = [
    lambda: divide(spatial(8, 4), column_spatial(4, 4)),
    lambda: divide(spatial(8, 4), local(2, 1)),
    lambda: divide(spatial(8, 4), spatial(3, 4)),
    lambda: divide(local(2, 1).spatial(4, 4), local(2, 1)),
    lambda: left_divide(spatial(8, 4), column_spatial(2, 2)),
    lambda: left_divide(spatial(8, 4).local(1, 2), local(1, 2)),
]


@pytest.mark.parametrize("make", NO_QUOTIENTS)
def test_what_is_no_product_has_no_quotient(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"is no product|do not divide"):
        make()
    with pytest.raises(ValueError, match="as one of"):
        reshape(spatial(8, 4), (16,))
    with pytest.raises(ValueError, match="do not divide"):
        reshape(local(3, 1).spatial(4, 8), (8, 12))


def test_ranks_order_the_axes() -> None:
    assert spatial(2, 3, 4, ranks=[0, 1, 2]) == spatial(2, 3, 4)
    assert local(2, 3, 4, ranks=[2, 1, 0]) == column_local(2, 3, 4)
    found = held(spatial(2, 1, 4, 8, ranks=[2, 0, 1, 3]))  # axis 2 varies slowest, then 0, then 3
    for (thread, _), (i, _, j, k) in found.items():
        assert thread == (j * 2 + i) * 8 + k
    with pytest.raises(ValueError, match="ranks of 2 axes are 0 to 1"):
        local(1, 2).spatial(4, 8, ranks=[1, 1])


def test_axes_are_flattened_from_one_to_another() -> None:
    x = local(2, 1, 1).spatial(2, 4, 4)
    assert flatten(x, 1).shape == (4, 16) and flatten(x, 0, 1).shape == (16, 4)
    assert flatten(x, 1, 1) == x and flatten(x) == reshape(x, (64,))
    assert held(flatten(x, 1)) == {at: (i, j * 4 + k) for at, (i, j, k) in held(x).items()}


def test_a_product_of_fewer_axes_lacks_leading_ones() -> None:
    assert local(3, 1).spatial(32) == local(3, 1).spatial(1, 32)
    assert spatial(32) * local(2, 4) == spatial(1, 32) * local(2, 4)
