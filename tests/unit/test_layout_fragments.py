"""Fragments of mma.sync, element by element as the PTX ISA states them ("Matrix Fragments for mma.m16n8k…"), in every
instruction of the loops that code generation writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.pairwise import pairwise
from warploom.codegen.ptx import Mma, in_part
from warploom.ir.types import f32
from warploom.layout import mma_acc, mma_operand, mma_scales, warp_grid, wgmma_acc
from warploom.layout.fragments import atom

# bits of an element -> K of an instruction; (row, column) of A's and B's register i, of lane 4·g + t
Formula = Callable[[int, int, int], tuple[int, int]]
FORMS: dict[int, tuple[int, int, Formula, int, Formula]] = {
    16: (
        16,
        8,
        lambda i, g, t: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
        4,
        lambda i, g, t: (2 * t + i % 2 + 8 * (i // 2), g),
    ),
    8: (
        32,
        16,
        lambda i, g, t: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
        8,
        lambda i, g, t: (4 * t + i % 4 + 16 * (i // 4), g),
    ),
    32: (
        8,
        4,
        lambda i, g, t: (g + 8 * (i % 2), t + 4 * (i // 2)),
        2,
        lambda i, g, t: (t + 4 * i, g),
    ),
    64: (4, 2, lambda i, g, t: (g + 8 * i, t), 1, lambda i, g, t: (t, g)),
}


SHAPES = [
    (16, 8, 1), (16, 24, 1), (64, 32, 2), (32, 96, 4), (48, 40, 4), (64, 48, 8), (16, 16, 4)
]  # fmt: skip


@pytest.mark.parametrize(("bits", "shape", "rows_first"), pairwise([*FORMS], SHAPES, [False, True]))
@pytest.mark.each(2)
def test_every_instruction_has_its_elements(
    bits: int, shape: tuple[int, int, int], rows_first: bool
) -> None:
    m, n, warps = shape
    depth, a_count, a_at, b_count, b_at = FORMS[bits]
    k = 2 * depth
    rows, columns = grid = warp_grid((m, n), warps, rows_first)
    acc = mma_acc((m, n), grid, warps)
    a, b = (mma_operand(acc, axis, k, bits) for axis in (0, 1))
    tall, wide = m // 16 // rows, n // 8 // columns
    assert acc.registers == 4 * tall * wide
    assert (a.registers, b.registers) == (a_count * tall * 2, b_count * wide * 2)
    done = set()
    for w in range(warps):
        for i, j, step in ((i, j, s) for i in range(tall) for j in range(wide) for s in range(2)):
            first = 4 * (wide * i + j)
            row, column = (int(acc.table[x][w, 0, first]) for x in (0, 1))
            done.add((row, column))
            for lane in range(32):
                g, t = divmod(lane, 4)
                for layout, start, count, formula, at in (
                    (
                        acc,
                        first,
                        4,
                        lambda r, g, t: (g + 8 * (r // 2), 2 * t + r % 2),
                        (row, column),
                    ),
                    (a, a_count * (2 * i + step), a_count, a_at, (row, step * depth)),
                    (b, b_count * (wide * step + j), b_count, b_at, (step * depth, column)),
                ):
                    for r in range(count):
                        found = tuple(int(x[w, lane, start + r]) for x in layout.table)
                        assert found == tuple(
                            p + q for p, q in zip(at, formula(r, g, t), strict=True)
                        )
    assert done == {(r, c) for r in range(0, m, 16) for c in range(0, n, 8)}


IN_PART = [(8, 8), (4, 16), (1, 1), (2, 4), (24, 2), (16, 1), (5, 3), (8, 24), (32, 12)]


@pytest.mark.parametrize("bits", FORMS)
@pytest.mark.parametrize(("m", "n"), IN_PART)
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.each(3)
def test_instructions_that_a_product_fills_in_part(
    bits: int, m: int, n: int, warps: int, paired: bool
) -> None:
    """Every instruction, done as the PTX ISA states it on the registers that threads have, zeros in the others: what
    each thread holds of the accumulator is the product's."""
    depth, a_count, a_at, b_count, b_at = FORMS[bits]
    rows, columns = grid = warp_grid((m, n), warps, False)
    high, wide = atom(m, n)
    acc = mma_acc((m, n), grid, warps)
    a, b = (mma_operand(acc, axis, depth, bits, paired) for axis in (0, 1))
    x = np.arange(m * depth).reshape(m, depth) % 7 - 3
    y = np.arange(depth * n).reshape(depth, n) % 5 - 2
    tall, across = m // high // rows, n // wide // columns
    per_word = max(1, 32 // bits)
    own_a = [r for r in range(a_count) if high == 16 or r // per_word % 2 == 0]
    if paired:
        own_a.sort(key=lambda r: r // per_word % 2)  # the words of row g first
    own_c = [r for r in range(4) if (high == 16 or r < 2) and (wide > 1 or r % 2 == 0)]
    assert acc.registers == len(own_c) * tall * across
    assert (a.registers, b.registers) == (len(own_a) * tall, b_count * across)
    lanes = [(lane, *divmod(lane, 4)) for lane in range(32)]
    for w in range(warps):
        for i, j in ((i, j) for i in range(tall) for j in range(across)):
            left, right = np.zeros((16, depth)), np.zeros((depth, 8))
            for lane, g, t in lanes:
                for at, r in enumerate(own_a):
                    left[a_at(r, g, t)] = x[tuple(c[w, lane, len(own_a) * i + at] for c in a.table)]
                for r in range(b_count):
                    right[b_at(r, g, t)] = y[tuple(c[w, lane, b_count * j + r] for c in b.table)]
            done = left @ right
            for lane, g, t in lanes:
                for at, r in enumerate(own_c):
                    here = len(own_c) * (across * i + j) + at
                    found = tuple(int(c[w, lane, here]) for c in acc.table)
                    assert done[g + 8 * (r // 2), 2 * t + r % 2] == (x @ y)[found]
    assert len({tuple(map(int, c)) for c in np.stack(acc.table).reshape(2, -1).T}) == m * n


@pytest.mark.parametrize(("m", "n"), [(8, 8), (4, 16), (1, 1), (24, 2)])
def test_scales_of_instructions_filled_in_part(m: int, n: int) -> None:
    acc = mma_acc((m, n), (1, 1), 1)
    high, wide = atom(m, n)
    a, b = (mma_scales(acc, axis, 2) for axis in (0, 1))
    assert (a.registers, b.registers) == (2 * (m // high), 2 * (n // wide))
    for g in range(8):
        assert [int(c[0, 4 * g, 1]) for c in a.table] == [g % high, 1]
        assert [int(c[0, 4 * g, 1]) for c in b.table] == [g % wide, 1]


def test_warps_share_what_they_read() -> None:
    assert warp_grid((128, 128), 4, rows_first=False) == (2, 2)
    assert warp_grid((128, 128), 4, rows_first=True) == (4, 1)
    assert warp_grid((16, 128), 4, rows_first=False) == (1, 4)
    assert warp_grid((16, 128), 4, rows_first=True) == (1, 4)
    assert warp_grid((48, 24), 4, rows_first=False) == (1, 1)
    assert warp_grid((6, 64, 64), 4, rows_first=False) == (2, 2, 1)
    assert warp_grid((3, 64, 64), 4, rows_first=True) == (1, 4, 1)


def test_a_result_is_the_next_left_operand_and_a_warp_group_s_accumulator() -> None:
    acc = mma_acc((64, 32), (4, 1), 4)
    assert acc == wgmma_acc((64, 32)) == mma_operand(acc, 0, 32, 16)
    words = mma_operand(acc, 0, 32, 32, paired=True)
    assert acc == words
    assert acc.permutation(mma_operand(acc, 0, 32, 32)) is None


def test_what_no_instructions_fill() -> None:
    with pytest.raises(ValueError, match="no accumulator"):
        mma_acc((24, 8), (2, 1), 2)
    with pytest.raises(ValueError, match="16 of K"):
        mma_operand(mma_acc((16, 8), (1, 1), 1), 1, 24, 16)


@pytest.mark.parametrize(("m", "n", "warps"), [(16, 8, 1), (32, 96, 4), (48, 40, 4), (64, 48, 8)])
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_every_instruction_has_its_scales(m: int, n: int, warps: int, groups: int) -> None:
    """PTX ISA, "Block Scaling for mma.sync", thread-id 0: of each four lanes the first two supply rows g and
    g + 8 of A, the first one column g of B."""
    rows, columns = grid = warp_grid((m, n), warps, False)
    acc = mma_acc((m, n), grid, warps)
    a, b = (mma_scales(acc, axis, groups) for axis in (0, 1))
    tall, wide = m // 16 // rows, n // 8 // columns
    assert (a.registers, b.registers) == (tall * groups, wide * groups)
    for w in range(warps):
        for i, j, s in ((i, j, s) for i in range(tall) for j in range(wide) for s in range(groups)):
            row, column = (int(acc.table[x][w, 0, 4 * (wide * i + j)]) for x in (0, 1))
            for g in range(8):
                for t in (0, 1):
                    found = tuple(int(x[w, 4 * g + t, groups * i + s]) for x in a.table)
                    assert found == (row + g + 8 * t, s)
                found = tuple(int(x[w, 4 * g, groups * j + s]) for x in b.table)
                assert found == (column + g, s)


def test_bytes_of_e2m1_are_the_fragments_of_k_64() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k64": an operand's bytes along K, two elements each, the first in
    the lower bits."""
    acc = mma_acc((16, 8), (1, 1), 1)
    a, b = (mma_operand(acc, axis, 32, 8) for axis in (0, 1))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for i in range(32):
            row = g if i < 8 or 16 <= i < 24 else g + 8
            k = 8 * t + i % 8 + (32 if i >= 16 else 0)
            y, x = (int(c[0, lane, i // 2]) for c in a.table)
            assert (y, 2 * x + i % 2) == (row, k)
        for i in range(16):
            k = 8 * t + i % 8 + (32 if i >= 8 else 0)
            y, x = (int(c[0, lane, i // 2]) for c in b.table)
            assert (2 * y + i % 2, x) == (k, g)


@pytest.mark.parametrize(
    ("both_rows", "given"), [(True, "a[0], a[2], a[1], a[3]"), (False, "a[0], 0, a[1], 0")]
)
def test_an_instruction_that_takes_k_in_pairs(both_rows: bool, given: str) -> None:
    """PTX ISA, m16n8k8 of .tf32: rows g and g + 8 of the word t, then of the word t + 4."""
    acc = mma_acc((16 if both_rows else 8, 8), (1, 1), 1)
    a = mma_operand(acc, 0, 8, 32, paired=True)
    held = [(0, 0), (0, 1), (8, 0), (8, 1)][: a.registers]
    assert [tuple(int(c[0, 0, i]) for c in a.table) for i in range(a.registers)] == held
    name, text = in_part(Mma(f32, f32, f32), both_rows, True, True)
    assert name.endswith("_paired") and f"some[4] = {{{given}}}" in text
