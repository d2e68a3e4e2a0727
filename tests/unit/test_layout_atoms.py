"""The atoms against the tables of the PTX ISA, as data; coalesced layouts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.layouts import covers, equivalent
from warploom.layout import Layout, blocked, coalesced, wgmma_a, wgmma_acc

# PTX ISA, wgmma, "Register fragments": a warp holds 16 rows, in which its fragments are those of
# mma.m16n8k16 and mma.m16n8k32, whose rows and columns the ISA gives as formulas of
# groupID = lane >> 2 and threadID_in_group = lane % 4.  Here: element of the fragment ->
# (row - groupID, column - width · threadID_in_group).
ACCUMULATOR = {0: (0, 0), 1: (0, 1), 2: (8, 0), 3: (8, 1)}  # .m16n8: c0 … c3
A_16 = {
    0: (0, 0), 1: (0, 1), 2: (8, 0), 3: (8, 1),
    4: (0, 8), 5: (0, 9), 6: (8, 8), 7: (8, 9),
}  # fmt: skip
A_8 = {
    0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (0, 3), 4: (8, 0), 5: (8, 1), 6: (8, 2), 7: (8, 3),
    8: (0, 16), 9: (0, 17), 10: (0, 18), 11: (0, 19), 12: (8, 16), 13: (8, 17), 14: (8, 18), 15: (8, 19),
}  # fmt: skip

A_32 = {0: (0, 0), 1: (8, 0), 2: (0, 4), 3: (8, 4)}


@pytest.mark.parametrize(
    ("layout", "table", "columns", "width"),
    [
        (wgmma_acc((64, 8)), ACCUMULATOR, 8, 2),
        (wgmma_acc((64, 96)), ACCUMULATOR, 8, 2),
        (wgmma_acc((64, 256)), ACCUMULATOR, 8, 2),
        (wgmma_acc((128, 176)), ACCUMULATOR, 8, 2),
        (wgmma_a((64, 64), 16), A_16, 16, 2),
        (wgmma_a((64, 96), 8), A_8, 32, 4),
        (wgmma_a((128, 32), 8), A_8, 32, 4),
        (wgmma_a((64, 24), 32), A_32, 8, 1),
        (wgmma_a((128, 8), 32), A_32, 8, 1),
    ],
    ids=str,
)
@pytest.mark.each(2)
def test_fragments_as_in_the_isa(
    layout: Layout, table: dict[int, tuple[int, int]], columns: int, width: int
) -> None:
    m, n = layout.shape
    size = len(table)
    steps = (
        n // columns
    )  # registers of instruction after instruction: columns first, then 64 rows more
    assert layout.registers == m // 64 * steps * size
    for r in range(layout.registers):
        block, i = divmod(r, size)
        row, column = table[i]
        for warp in range(4):
            for lane in range(32):
                at = layout.coords(r, lane, warp)
                want_row = 64 * (block // steps) + 16 * warp + row + (lane >> 2)
                want_column = columns * (block % steps) + column + width * (lane % 4)
                assert (int(at[0]), int(at[1])) == (want_row, want_column)


@pytest.mark.parametrize("n", [8, 96, 112, 176, 192, 256])
def test_accumulators_of_any_n_are_exact(n: int) -> None:
    x = wgmma_acc((64, n))
    assert covers(x) and not x.is_replicated and not x.overhangs
    assert x.registers == n // 2
    assert str(x) == f"wgmma_acc(64x{n})"


def test_a_fragment_of_16_bits_is_the_accumulator() -> None:
    """What lets P = softmax(Q·Kᵀ) feed the next wgmma without a conversion."""
    assert wgmma_a((64, 128), 16) == wgmma_acc((64, 128))
    assert not equivalent(wgmma_a((64, 128), 8), wgmma_acc((64, 128)))


@pytest.mark.parametrize("shape", [(32, 8), (64, 12), (64, 4), (96, 8)])
def test_wgmma_refuses_other_shapes(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError):
        wgmma_acc(shape)
    with pytest.raises(ValueError):
        wgmma_a(shape, 8)


shapes = st.lists(st.integers(1, 96), min_size=1, max_size=3).filter(
    lambda s: int(np.prod(s)) <= 1 << 14
)


@settings(max_examples=examples(60), deadline=None)
@given(shapes, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.data())
def test_coalesced_holds_everything(
    shape: list[int], itemsize: int, warps: int, data: st.DataObject
) -> None:
    inner = data.draw(st.integers(0, len(shape) - 1))
    x = coalesced(tuple(shape), inner, itemsize, warps)
    assert covers(x) and x.warps == warps
    assert x.contiguous(inner) * itemsize <= 16 or x.contiguous(inner) == x.registers
    assert Layout.parse(str(x)) == x
    # No register holds nothing at all.
    inside = np.all([c < n for c, n in zip(x.table, x.shape, strict=True)], axis=0)
    assert inside.any(axis=(0, 1)).all()


def test_coalesced_rows_fill_sectors() -> None:
    x = coalesced((128, 64), 1, 2, 4)
    assert x.contiguous(1) == 8  # 16 bytes
    rows, columns = x.coords(0, np.arange(8), 0)
    assert not rows.any() and list(columns) == list(range(0, 64, 8))
    assert coalesced((64, 128), 0, 2, 4) == coalesced((128, 64), 1, 2, 4).permute((1, 0))


@pytest.mark.parametrize(
    ("align", "vector"), [(16, 4), (8, 2), (4, 1), (2, 1)], ids=lambda x: str(x)
)
def test_alignment_bounds_vectors(align: int, vector: int) -> None:
    assert coalesced((64, 128), 1, 4, 4, align).contiguous(1) == vector


def test_small_tiles_use_every_thread_before_vectors() -> None:
    x = coalesced((128,), 0, 4, 4)
    assert x.registers == 1 and not x.is_replicated
    y = coalesced((5,), 0, 4, 1)
    assert y.overhangs and y.is_replicated and y.registers == 1


def test_blocked_refuses_vectors_that_do_not_divide() -> None:
    with pytest.raises(ValueError):
        blocked((64, 12), 1, 8, 4)
    with pytest.raises(ValueError):
        blocked((64, 12), 1, 3, 4)
