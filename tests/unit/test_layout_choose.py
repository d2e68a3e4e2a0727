"""Widths, conflicts, conversions and matrix instructions, each against a brute-force reading."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.layouts import layouts
from tests.unit.test_layout_linear import numbered, spread
from warploom.layout import Layout, blocked, coalesced, wgmma_a, wgmma_acc
from warploom.layout.choose import (
    LINE,
    MatrixForm,
    conversion,
    flipped,
    matrix_form,
    scratch_geometry,
    sector_ratio,
    thread_offsets,
    vector_elements,
    wavefronts,
)
from warploom.layout.reductions import reduce_row, reduce_scratch, reduces_by_threads
from warploom.layout.shared import Geometry, byte_offset

few = settings(max_examples=examples(40), deadline=None)
ROWS = Geometry((64, 64), 2, 1, 128)
COLUMNS = Geometry((64, 64), 2, 0, 128)


@pytest.mark.parametrize(
    ("addresses", "width", "cycles"),
    [
        (np.arange(32) * 4, 4, 1),
        (np.zeros(32, int), 4, 1),  # one word: a broadcast
        (np.arange(32) * 2, 2, 1),
        (np.arange(32) * 8, 4, 2),
        (np.arange(32) * 128, 4, 32),
        (np.arange(32) * 16, 16, 4),
        (np.arange(32) * 128, 16, 32),
    ],
)
def test_wavefronts(addresses: np.ndarray, width: int, cycles: int) -> None:
    assert wavefronts(addresses, width) == cycles


def fragment(form: MatrixForm, words: np.ndarray) -> dict[int, np.ndarray]:
    """stmatrix as the ISA words it, by a warp that holds words[lane, register, unit]: the 16-byte row that
    lands at the address of lane 8·j + i is row i of matrix j."""
    rows = {}
    for j in range(form.count):
        for i in range(8):
            units = [
                words[i // 2 + 4 * k, j, i % 2] if form.trans else words[4 * i + k // 2, j, k % 2]
                for k in range(8)
            ]
            rows[8 * j + i] = np.concatenate([np.atleast_1d(u) for u in units])
    return rows


@pytest.mark.parametrize(
    ("layout", "geometry", "trans", "count"),
    [
        (wgmma_acc((64, 64)), ROWS, False, 4),
        (wgmma_acc((64, 64)), COLUMNS, True, 4),
        (wgmma_acc((64, 24)), Geometry((64, 24), 2, 1, 0), False, 2),
        (wgmma_acc((64, 8)), Geometry((64, 8), 2, 1, 0), False, 2),
        (wgmma_acc((64, 8)), Geometry((64, 8), 2, 0, 128), True, 2),
        (wgmma_acc((128, 96)), Geometry((128, 96), 2, 1, 64), False, 4),
        (wgmma_a((64, 64), 8), Geometry((64, 64), 1, 1, 64), False, 4),
    ],
    ids=str,
)
def test_matrix_instructions_move_the_tile(
    layout: Layout, geometry: Geometry, trans: bool, count: int
) -> None:
    """Executes stmatrix, word by word, and compares the slot's bytes with plain stores."""
    form = matrix_form(layout, geometry)
    assert form is not None and (form.trans, form.count) == (trans, count)
    per_word, size = form.elements, geometry.itemsize
    tile = numbered(layout.shape)
    held = spread(layout, tile)
    slot = np.full(geometry.bytes // size, -1)
    for warp in range(layout.warps):
        for first in range(0, layout.registers, count * per_word):
            words = held[warp, :, first : first + count * per_word]
            words = words.reshape(32, count, 2, per_word // 2)
            rows = fragment(form, words)
            for lane, row in rows.items():
                reg, holder = form.row(lane)
                at = int(byte_offset(geometry, layout.coords(first + reg, holder, warp)))
                assert at % 16 == 0
                slot[at // size : at // size + len(row)] = row
    plain = np.full_like(slot, -2)
    plain[byte_offset(geometry, tuple(np.indices(layout.shape))) // size] = tile
    assert np.array_equal(slot, plain)


def test_matrix_instructions_have_no_conflicts_in_swizzled_slots() -> None:
    for geometry in (ROWS, COLUMNS):
        layout = wgmma_acc((64, 64))
        form = matrix_form(layout, geometry)
        assert form is not None
        addresses = [int(byte_offset(geometry, layout.coords(*form.row(n)))) for n in range(32)]
        assert wavefronts(np.array(addresses), 16) == 4


@pytest.mark.parametrize(
    ("layout", "geometry"),
    [
        (wgmma_acc((64, 64)), Geometry((64, 64), 4, 1, 128)),  # f32: words are single elements
        (coalesced((64, 64), 1, 2, 4), ROWS),  # rows in one lane
        (wgmma_acc((64, 64)).drop(1), Geometry((64,), 2, 0, 0)),  # replicated
        (wgmma_acc((64, 12 * 8)), Geometry((64, 12 * 8), 1, 1, 32)),
    ],
)
def test_matrix_instructions_refuse(layout: Layout, geometry: Geometry) -> None:
    assert matrix_form(layout, geometry) is None


def test_vector_elements() -> None:
    assert vector_elements(wgmma_acc((64, 64)), ROWS) == 2
    assert vector_elements(wgmma_acc((64, 64)), COLUMNS) == 1
    assert vector_elements(blocked((64, 64), 1, 16, 4), ROWS) == 8  # 16 bytes at most
    assert vector_elements(coalesced((64, 64), 1, 4, 4), Geometry((64, 64), 4, 1, 128)) == 4


@few
@given(layouts(exact=True), st.randoms(use_true_random=False))
def test_conversions_do_what_they_say(x: Layout, rng: object) -> None:
    vectors = [*x.reg, *x.lane]
    rng.shuffle(vectors)  # type: ignore[attr-defined]
    y = Layout(x.shape, tuple(vectors[5:]), tuple(vectors[:5]), x.warp, x.repeats)
    how = conversion(x, y)
    tile = numbered(x.shape)
    mine, wanted = spread(x, tile), spread(y, tile)
    lanes = np.arange(32)
    if how.kind == "free":
        assert np.array_equal(mine[..., list(how.permutation)], wanted)
    elif how.kind == "lane":
        assert how.shuffle is not None
        source = np.zeros(32, int)
        for b, v in enumerate(how.shuffle.matrix):
            source ^= (lanes >> b & 1) * v
        for r, (reg, base) in enumerate(zip(how.shuffle.registers, how.shuffle.lanes, strict=True)):
            assert np.array_equal(mine[:, source ^ base, reg], wanted[..., r])
    else:
        # Registers and lanes change places: some register would have to come from two registers.
        assert {tuple(v) for v in x.reg} != {tuple(v) for v in y.reg}


@few
@given(layouts(exact=True), st.data())
def test_flipped_places_are_where_it_says(x: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(x.shape) - 1))
    least = x.shape[axis] & -x.shape[axis]  # bits below it stay inside
    flips = data.draw(st.integers(0, least - 1))
    how = flipped(x, axis, flips)
    tile = numbered(x.shape)
    mine, wanted = spread(x, tile), spread(x, tile.take(np.arange(x.shape[axis]) ^ flips, axis))
    lanes, each = np.arange(32), how.permutation
    if how.kind == "free":
        assert np.array_equal(mine[..., list(each)], wanted)
    elif how.shuffle is not None:
        assert how.shuffle.matrix == (1, 2, 4, 8, 16)
        for r, (reg, base) in enumerate(zip(how.shuffle.registers, how.shuffle.lanes, strict=True)):
            assert np.array_equal(mine[:, lanes ^ base, reg], wanted[..., r])
    else:  # some warp has to ask another one
        assert any(set(wanted[w].flat) - set(mine[w].flat) for w in range(x.warps))


def test_bits_of_registers_lanes_and_warps() -> None:
    row = coalesced((512,), 0, 4, 4)
    kinds = [flipped(row, 0, 1 << b).kind for b in range(9)]
    assert kinds == [*["free"] * 2, *["lane"] * 5, *["shared"] * 2]
    assert flipped(row, 0, 127).kind == "lane"  # the other way around


def test_kinds_of_conversion() -> None:
    acc = wgmma_acc((64, 64))
    assert conversion(acc, acc).kind == "free"
    swapped = Layout(acc.shape, acc.reg, acc.lane[::-1], acc.warp, acc.repeats)
    assert conversion(acc, swapped).kind == "lane"
    assert conversion(acc, coalesced((64, 64), 1, 2, 4)).kind == "shared"
    rows = acc.drop(1)  # one row a quad, replicated in it
    assert conversion(rows, blocked((64,), 0, 1, 4)).kind == "shared"
    assert conversion(rows, Layout((64,), ((8,),), rows.lane[::-1], rows.warp)).kind == "lane"


def test_scratch_has_few_conflicts() -> None:
    acc, plain = wgmma_acc((64, 64)), coalesced((64, 64), 1, 2, 4)
    g = scratch_geometry(acc, plain, 2)
    assert g.bytes == 64 * 64 * 2 and g.swizzle == 128
    for layout in (acc, plain):
        width = vector_elements(layout, g)
        offsets = thread_offsets(layout, g)[0, :, ::width]
        cycles = [wavefronts(o, 2 * width) for o in offsets.T]
        assert max(cycles) <= max(1, width * 2 // 4)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_transpose_writes_other_banks_from_lane_to_lane(size: int) -> None:
    """Element by element along columns, then whole vectors along rows, or the other way round."""
    rows, columns = (coalesced((64, 64), axis, size, 4) for axis in (1, 0))
    g = scratch_geometry(rows, columns, size)
    every = np.sort(byte_offset(g, np.meshgrid(*map(np.arange, g.shape))), axis=None)
    np.testing.assert_array_equal(every, np.arange(0, g.bytes, size))  # each element has a place
    for layout in (rows, columns):
        width = vector_elements(layout, g)
        offsets = thread_offsets(layout, g)[0, :, ::width]
        cycles = [wavefronts(o, size * width) for o in offsets.T]
        assert max(cycles) <= max(1, width * size // 4) * (2 if size == 4 else 1)


def test_reduce_scratch() -> None:
    acc = wgmma_acc((64, 128))
    assert reduce_scratch(acc, 1, 4) == 0  # a row is one warp's
    assert reduce_scratch(acc, 0, 4) == 5 * 128 * 4  # four warps' parts of a column, and the sums
    assert reduce_scratch(blocked((1024,), 0, 4, 8), 0, 4) == 8 * 4


def test_who_combines_the_warps_parts() -> None:
    """Few threads an element where each holds many elements of many parts; in banks of their own."""
    tall = coalesced((64, 64), 1, 2, 16)  # 8 columns a thread, 16 warps' parts of each
    assert reduces_by_threads(tall, 0, 4) == 8
    row = reduce_row(tall, 0, 4)
    assert reduce_scratch(tall, 0, 4) == (16 + 1) * row * 4
    lane = np.arange(32)
    assert len(set((lane % 8 * row + lane // 8) % 32)) == 32
    assert reduces_by_threads(coalesced((64, 4), 0, 2, 8), 1, 4) == 0  # few parts, few elements
    assert reduces_by_threads(blocked((4096,), 0, 4, 16), 0, 4) == 0  # a number: by lanes


def test_sector_ratio() -> None:
    acc, plain = wgmma_acc((64, 64)), coalesced((64, 64), 1, 2, 4)
    assert sector_ratio(plain, 1, 2, 8) == 1
    assert sector_ratio(acc, 1, 2, 8) == 2  # 16 bytes of each 32
    assert sector_ratio(acc, 1, 4, 4) == 1
    assert sector_ratio(blocked((4096, 1), 0, 1, 4), 1, 4, 1) == 8  # every lane in a row of its own
    assert sector_ratio(acc.drop(0), 0, 4, 4) == 1  # replicated lanes read the same sectors
    assert sector_ratio(plain, 1, 2, 8, LINE) == 1
    assert sector_ratio(acc, 1, 4, 4, LINE) == 4  # 32 bytes of each of 8 lines
