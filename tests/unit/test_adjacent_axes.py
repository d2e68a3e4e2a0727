"""Where neighbours along an axis lie after a tile was moved."""

from __future__ import annotations

import pytest

from warploom.analysis.adjacent_axes import moved_axis
from warploom.ir.parser import parse_func


@pytest.mark.parametrize(
    ("moved", "axes"),
    [
        ("transpose(%x) {perm=(1, 0)} : tile<8x4xi32>", (1, 0)),
        ("expand_dims(%x) {axis=1} : tile<4x1x8xi32>", (0, 2)),
        ("expand_dims(%x) {axis=2} : tile<4x8x1xi32>", (0, 1)),
        ("slice_tile(%x) {offset=(0, 0), shape=(2, 8)} : tile<2x8xi32>", (0, 1)),
        ("reshape(%x) {shape=(4, 4, 2)} : tile<4x4x2xi32>", (0, 2)),
        ("reshape(%x) {shape=(2, 2, 8)} : tile<2x2x8xi32>", (1, 2)),
        ("reshape(%x) {shape=(32,)} : tile<32xi32>", (0, 0)),
    ],
)
def test_moved(moved: str, axes: tuple[int, int]) -> None:
    func = parse_func(
        "func @f(%p: ptr<i32>) level=TILE {\n  %i = arange() {start=0, end=32} : tile<32xi32>\n"
        f"  %x = reshape(%i) {{shape=(4, 8)}} : tile<4x8xi32>\n  %y = {moved}\n  yield()\n}}\n"
    )
    o = func.body.ops[2]
    assert tuple(moved_axis(o, axis) for axis in (0, 1)) == axes
