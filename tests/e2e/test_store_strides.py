"""Strides that a launch gives are held against what lies between them, where stores keep no order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.ir.nested_axes import first_meeting
from warploom.triton.report import Report


@wl.jit
def masked(x_ptr, out_ptr, n, step, height, width, KIND: tl.constexpr, N: tl.constexpr):
    """Tiles and rows of which a mask, or a view's end, leaves height × width."""
    rows, columns, at = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N)
    x = tl.load(x_ptr + rows * N + columns)
    out_ptrs = out_ptr + rows * N + columns
    for t in range(n):
        y = (tl.dot(x, x) + t).to(tl.bfloat16)
        if KIND == "a tile":
            mask = (rows < height) & (columns < width)
            tl.store(out_ptr + t * step + rows * N + columns, y, mask=mask)
        elif KIND == "pointers":
            tl.store(out_ptrs, y, mask=(rows < height) & (columns < width))
            out_ptrs += step * N
        elif KIND == "a pitch":
            row = t * N + rows
            tl.store(out_ptr + row * step + columns, y, mask=(row < height) & (columns < width))
        elif KIND == "a block pointer":
            block = tl.make_block_ptr(
                out_ptr + t * step, (height, width), (width, 1), (0, 0), (N, N), (1, 0)
            )
            tl.store(block, y, boundary_check=(0, 1))
        elif KIND == "a descriptor":
            out = tl.make_tensor_descriptor(out_ptr, [height, width], [step, 1], [N, N])
            out.store([t * N, 0], y)
        elif KIND == "two boxes":
            out = tl.make_tensor_descriptor(out_ptr, [height, width], [step, 1], [N, N])
            out.store([0, 0], y)
            out.store([N, 0], y + 1)
        elif KIND == "a row":
            tl.store(out_ptr + t * step + at, tl.load(x_ptr + at) + t, mask=at < width)
        elif KIND == "some of a row":
            mask = (at < width) & (at != t)
            tl.store(out_ptr + t * step + at, tl.load(x_ptr + at) + t, mask=mask)
        elif KIND == "every other":
            mask = (at < width) & (at != t)
            tl.store(out_ptr + t * step + at * 2, tl.load(x_ptr + at) + t, mask=mask)
        elif KIND == "windows":
            tl.store(out_ptr + t * 16 + at, tl.load(x_ptr + at) + t, mask=at < width)
        elif KIND == "some windows":
            mask = (at < width) & (t < height)
            tl.store(out_ptr + t * 16 + at, tl.load(x_ptr + at) + t, mask=mask)
        elif KIND == "windows without a number":
            tl.store(out_ptr + t.to(tl.int8) * 16 + at, tl.load(x_ptr + at) + t, mask=at < width)
        elif KIND == "a narrow step":
            tl.store(out_ptr + t * step.to(tl.uint8) + at, tl.load(x_ptr + at) + t, mask=at < width)
        elif KIND == "columns":
            out = tl.make_tensor_descriptor(out_ptr, [height, width], [N, 1], [N, N])
            out.store([0, t * N], y)


@wl.jit
def nested(x_ptr, out_ptr, n, m, outer, inner, width, KIND: tl.constexpr, N: tl.constexpr):
    """Tiles and rows at sums of two strides."""
    rows, columns, at = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N)
    x = tl.load(x_ptr + rows * N + columns)
    out = tl.make_tensor_descriptor(out_ptr, [16 * N, N], [N, 1], [N, N])
    for i in range(n):
        for j in range(m):
            y = (tl.dot(x, x) + i * 4 + j).to(tl.bfloat16)
            if KIND == "a descriptor":
                out.store([i * outer + j * inner, 0], y)
            elif KIND == "a tile":
                tl.store(out_ptr + i * outer + j * inner + rows * N + columns, y)
            elif KIND == "products":
                place = i * (outer * width) + j * (inner * width)
                tl.store(out_ptr + place + rows * width + columns, y, mask=columns < width)
            elif KIND == "some of a row":
                row = (tl.load(x_ptr + at).to(tl.float32) + i * 4 + j).to(tl.bfloat16)
                mask = (at < width) & (at != j)
                tl.store(out_ptr + i * outer + j * inner + at, row, mask=mask)


def check(kernel: Any, kind: str, numbers: tuple[int, ...], is_apart: bool, by_tma: bool) -> None:
    """A launch takes the variant in order where it has to, and does what the oracle does."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    want, out = (np.zeros(16 * 64 * 64, ml_dtypes.bfloat16) for _ in range(2))
    meta = {"KIND": kind, "N": 64, "num_warps": 4}
    kernel[(1,)](x, want, *numbers, **meta)
    compiled = kernel.compile_for(x, out, *numbers, grid=(1,), **meta)
    assert compiled.request.in_order is not is_apart
    assert ("tma_store" in compiled.cuda) == (is_apart and by_tma)
    for order in ("late", "early", "reverse"):
        out[:] = 0
        compiled.simulate(x, out, *numbers, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(np.float32)), order


TILES = "a tile", "pointers", "a pitch", "a block pointer", "a descriptor", "two boxes", "columns"
# (step, height, width), and whether iterations keep apart
MASKED = [
    *[("a tile", (4096, 64, 64), True), ("a tile", (1024, 64, 64), False)],
    *[("a tile", (512, 8, 64), True), ("a tile", (512, 16, 64), False)],
    *[("pointers", (64, 64, 64), True), ("pointers", (16, 64, 64), False)],
    *[("a pitch", (48, 512, 48), True), ("a pitch", (16, 512, 48), False)],
    *[("a block pointer", (4096, 64, 64), True), ("a block pointer", (1024, 64, 64), False)],
    *[("a descriptor", (64, 512, 64), True), ("a descriptor", (16, 512, 64), False)],
    ("two boxes", (16, 512, 64), False),
    *[("a row", (48, 64, 48), True), ("a row", (16, 64, 48), False)],
    *[("some of a row", (48, 64, 48), True), ("some of a row", (16, 64, 48), False)],
    *[("every other", (96, 64, 48), True), ("every other", (48, 64, 48), False)],
    *[("windows", (0, 64, 16), True), ("windows", (0, 64, 17), False)],
    *[("some windows", (0, 64, 16), True), ("some windows", (0, 64, 48), False)],
    ("windows without a number", (0, 64, 48), True),  # of which no launch's numbers tell
    *[("a narrow step", (64, 64, 48), True), ("a narrow step", (256, 64, 48), False)],
    *[("columns", (0, 64, 64), True), ("columns", (0, 64, 192), False)],
]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("kind, numbers, is_apart", MASKED)
def test_strides_are_at_least_what_a_mask_leaves(
    kind: str, numbers: tuple[int, int, int], is_apart: bool
) -> None:
    n = 1 if kind == "two boxes" else 3
    check(masked, kind, (n, *numbers), is_apart, kind in TILES)


# (outer, inner, width), and whether iterations keep apart
NESTED = [
    *[("a descriptor", (128, 64, 64), True), ("a descriptor", (64, 192, 64), True)],
    *[("a descriptor", (64, 64, 64), False), ("a descriptor", (128, 32, 64), False)],
    *[("a tile", (8192, 4096, 64), True), ("a tile", (4096, 12288, 64), True)],
    *[("a tile", (4096, 4096, 64), False), ("a tile", (4096, 8192, 64), False)],
    *[("products", (128, 64, 32), True), ("products", (64, 64, 32), False)],
    *[("some of a row", (128, 64, 64), True), ("some of a row", (64, 32, 32), True)],
    *[("some of a row", (64, 64, 64), False), ("some of a row", (64, 16, 32), False)],
]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("kind, numbers, is_apart", NESTED)
def test_strides_of_nested_loops_count_together(
    kind: str, numbers: tuple[int, int, int], is_apart: bool
) -> None:
    check(nested, kind, (3, 2, *numbers), is_apart, "row" not in kind)


@pytest.mark.usefixtures("without_nvrtc")
def test_who_reads_is_told_why_stores_are_in_order() -> None:
    x, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros(4 * 64 * 64, ml_dtypes.bfloat16)
    for step, told in (4096, False), (1024, True):
        numbers = (3, step, 64, 64)
        compiled = masked.compile_for(x, out, *numbers, grid=(1,), KIND="a tile", N=64)
        assert ("whose stores may meet" in str(compiled.explain())) == told
        report = Report()
        report.around(masked, lambda kernel=compiled: kernel, (1,), (), {})  # type: ignore[misc]
        assert ("(stores in order, as they may meet)" in next(report.lines())) == told


def test_axes_are_nested() -> None:
    assert first_meeting([(1, 64), (64, 8), (512, 1 << 62)]) is None
    assert first_meeting([(512, 9), (64, 9), (1, 64)]) == (0, 576)
    assert first_meeting([(-64, 9), (1, 64)]) is None
    assert first_meeting([(0, 2), (1, 64)]) == (0, 1)
    assert first_meeting([(0, 1), (1, 0)]) is None
