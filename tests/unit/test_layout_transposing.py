"""Tiles transposed between slots: what the instructions bring is what the layout says, without bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.layouts import covers
from warploom.codegen.lower_memory import _quads
from warploom.layout import transposing
from warploom.layout.choose import matrix_form, thread_offsets, transposing_form
from warploom.layout.shared import Geometry, swizzle_for

SHAPES = [(128, 192), (128, 256), (32, 64), (64, 128), (16, 64), (128, 80), (64, 48)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("inner", [0, 1])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.each(3)
def test_each_byte_arrives(shape: tuple[int, int], inner: int, warps: int) -> None:
    """ldmatrix.trans and prmt, done by hand on a slot whose other axis is adjacent."""
    layout = transposing(shape, 1, inner, warps)
    if layout is None:
        assert (shape[0] // 16) * (shape[1] // 16) % warps
        return
    assert covers(layout) and not layout.is_replicated and not layout.overhangs
    source = Geometry(shape, 1, 1 - inner, swizzle_for(shape[1 - inner], shape[inner]))
    target = Geometry(shape, 1, inner, swizzle_for(shape[inner], shape[1 - inner]))
    form = transposing_form(layout, source)
    assert form is not None and matrix_form(layout, target) is not None
    memory = np.random.default_rng(0).integers(0, 256, source.bytes)
    offsets = thread_offsets(layout, source)
    for w in range(layout.warps):
        for start in range(0, layout.registers, 4 * form.count):
            at = np.array([offsets[w, lane, start + reg] // 16 * 16 for reg, lane in form.rows])
            if source.swizzle:
                for m in range(form.count):
                    banks = at[8 * m : 8 * m + 8] // 16 % 8
                    assert len(set(banks)) == 8 or source.swizzle < 64
            for lane in range(32):
                brought = []
                for m in range(form.count):
                    rows = at[8 * m : 8 * m + 8]
                    for row in (rows[2 * (lane % 4)], rows[2 * (lane % 4) + 1]):
                        brought += list(memory[row + 2 * (lane // 4) : row + 2 * (lane // 4) + 2])
                for word in range(form.count):
                    pair = brought[word // 2 * 8 : word // 2 * 8 + 8]
                    selector = form.selectors[word % 2][lane]
                    for b in range(4):
                        wanted = memory[offsets[w, lane, start + 4 * word + b]]
                        assert pair[selector >> 4 * b & 7] == wanted


@pytest.mark.parametrize("shape", [(128, 32), (256, 32), (64, 64), (192, 32), (128, 16)], ids=str)
@pytest.mark.parametrize("inner", [0, 1])
def test_words_are_moved_in_vectors(shape: tuple[int, int], inner: int) -> None:
    """Where both slots have rows of 128 bytes, 8 lanes that are served together meet all banks both ways."""
    layout = transposing(shape, 4, inner, 4)
    assert layout is not None
    assert covers(layout) and not layout.is_replicated and not layout.overhangs
    assert layout.contiguous(inner) == 4
    target, source = (
        Geometry(shape, 4, a, swizzle_for(4 * shape[a], shape[1 - a])) for a in (inner, 1 - inner)
    )
    written, read = thread_offsets(layout, target), thread_offsets(layout, source)
    fours = _quads(read)
    assert fours is not None
    assert sorted(r for four in fours for r in four) == list(range(layout.registers))
    if target.swizzle == source.swizzle == 128:
        firsts = [written[..., r] for r in range(0, layout.registers, 4)]
        for at in (*firsts, *(read[..., four[0]] for four in fours)):
            units = at.reshape(-1, 8) // 16 % 8
            assert (np.sort(units, axis=1) == np.arange(8)).all()


def test_tiles_that_no_layout_turns() -> None:
    assert transposing((64, 64), 2, 0, 4) is None  # wgmma takes 16 bits either way
    assert transposing((64, 10), 4, 0, 4) is None and transposing((8, 8), 4, 0, 4) is None


def test_stores_of_turned_tiles_have_no_conflicts() -> None:
    layout = transposing((128, 192), 1, 0, 4)
    assert layout is not None
    target = Geometry((128, 192), 1, 0, 128)
    form = matrix_form(layout, target)
    assert form is not None and form.count == 4
    offsets = thread_offsets(layout, target)
    for start in range(0, layout.registers, 16):
        for matrix in range(4):
            rows = [form.row(8 * matrix + i) for i in range(8)]
            at = np.array([offsets[0, lane, start + reg] for reg, lane in rows])
            assert len(set(at // 16 % 8)) == 8
