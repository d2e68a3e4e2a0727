"""Byte offsets of slots: against the swizzle patterns of the PTX ISA, and as bijections."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warploom.layout.shared import Geometry, byte_offset, swizzle_for

# PTX ISA, tensor swizzling modes with 16-byte units, K-major canonical layouts of wgmma: in the unit rows of a
# pattern (one line for each 128 bytes, 8 lines) the unit that stands at each place.
PATTERN_128 = [[unit ^ line for unit in range(8)] for line in range(8)]
PATTERN_64 = [[unit ^ (line & 3) for unit in range(4)] + [4 + (unit ^ (line & 3)) for unit in range(4)] for line in range(8)]  # fmt: skip
PATTERN_32 = [[2 * (unit // 2) + (unit % 2 ^ line & 1) for unit in range(8)] for line in range(8)]


def units(geometry: Geometry) -> list[list[int]]:
    """Which 16-byte unit of the unswizzled order stands at each place of each 128-byte line."""
    size = 16 // geometry.itemsize
    rows, row = geometry.rows, geometry.row_elements
    r, u = np.meshgrid(np.arange(rows), np.arange(row // size), indexing="ij")
    at = byte_offset(geometry, (r, u * size))
    out = np.full(geometry.bytes // 16, -1)
    out[at // 16] = r * (row // size) + u
    return (out.reshape(-1, 8) - 8 * np.arange(len(out) // 8)[:, None]).tolist()


@pytest.mark.parametrize(
    ("swizzle", "pattern"), [(128, PATTERN_128), (64, PATTERN_64), (32, PATTERN_32)]
)
def test_patterns(swizzle: int, pattern: list[list[int]]) -> None:
    rows = 8 * 128 // swizzle
    assert units(Geometry((rows, swizzle // 2), 2, 1, swizzle)) == pattern


def test_first_offsets_of_the_128_byte_swizzle() -> None:
    """By hand: 64 bf16 a row of 128 bytes; row r has its units in the order of XOR with r mod 8."""
    g = Geometry((64, 64), 2, 1, 128)
    assert byte_offset(g, (0, 8)) == 16
    assert byte_offset(g, (1, 0)) == 128 + 16
    assert byte_offset(g, (1, 8)) == 128
    assert byte_offset(g, (7, 63)) == 7 * 128 + (7 ^ 7) * 16 + 14
    assert byte_offset(g, (9, 1)) == 9 * 128 + 16 + 2


def test_panels_follow_each_other() -> None:
    g = Geometry((64, 256), 2, 0, 128)  # inner axis 0: one panel of 64 elements, 256 rows
    assert (g.rows, g.row_bytes, g.panel_bytes) == (256, 128, 32768)
    g = Geometry((64, 256), 2, 1, 128)
    assert (g.rows, g.panel_bytes) == (64, 8192)
    assert byte_offset(g, (0, 64)) == 8192
    assert byte_offset(g, (2, 72)) == 8192 + 256 + (1 ^ 2) * 16
    assert Geometry((4, 10), 4, 1, 0).row_bytes == 40


geometries = st.builds(
    lambda rows, panels, lead, itemsize, swizzle, inner_last: (
        Geometry(
            (*lead, rows, panels * (swizzle or 16) // itemsize), itemsize, len(lead) + 1, swizzle
        )
        if inner_last
        else Geometry((panels * (swizzle or 16) // itemsize, rows, *lead), itemsize, 0, swizzle)
    ),
    st.sampled_from([1, 3, 8, 24, 64]),
    st.integers(1, 3),
    st.sampled_from([(), (2,), (3,)]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 32, 64, 128]),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(geometries)
def test_offsets_are_a_bijection_on_whole_patterns(g: Geometry) -> None:
    offsets = byte_offset(g, tuple(np.indices(g.shape))).reshape(-1)
    assert len(set(offsets)) == offsets.size
    assert not (offsets % g.itemsize).any()
    # Units only move inside their 128 bytes, so a slot of whole lines stays in its bytes.
    limit = -(-g.bytes // 128) * 128
    assert offsets.max() < limit
    if g.bytes % 128 == 0:
        assert sorted(offsets) == list(range(0, g.bytes, g.itemsize))


@settings(max_examples=60, deadline=None)
@given(geometries)
def test_swizzling_keeps_units_whole_and_is_its_own_inverse(g: Geometry) -> None:
    linear = np.arange(g.bytes)
    moved = g.permute(linear)
    assert np.array_equal(moved % 16, linear % 16)
    assert np.array_equal(g.permute(moved), linear)
    period = 8 * g.swizzle if g.swizzle else 16  # bytes after which the permutation repeats
    assert np.array_equal(g.permute(linear + period), moved + period)


def test_transposing_shape_and_inner_changes_no_byte() -> None:
    a, b = Geometry((24, 64), 2, 1, 64), Geometry((64, 24), 2, 0, 64)
    r, c = np.indices((24, 64))
    assert np.array_equal(byte_offset(a, (r, c)), byte_offset(b, (c, r)))


def test_panels_begin_where_the_pattern_does() -> None:
    assert [swizzle_for(192, rows) for rows in (8, 12, 64)] == [64, 0, 64]
    assert swizzle_for(128, 12) == 128  # one panel
    assert [swizzle_for(64, rows, 32) for rows in (2, 8)] == [0, 32]  # read in halves
