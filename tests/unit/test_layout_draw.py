"""Pictures of layouts: every cell names a holder of its element."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np

from warploom.layout import wgmma_acc, whole
from warploom.layout.draw import as_svg, as_text, holders_of


def test_cells_name_who_holds_them() -> None:
    layout = wgmma_acc((64, 16))
    cells = holders_of(layout)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            thread, register = map(int, cell.split(":"))
            at = layout.coords(np.array([register]), thread % 32, thread // 32)
            assert [int(c[0]) for c in at] == [i, j]
    assert cells[0][:4] == ["0:0", "0:1", "1:0", "1:1"]
    assert cells[8][0] == "0:2"


def test_text_and_svg_have_every_cell() -> None:
    layout = wgmma_acc((64, 8))
    lines = as_text(layout).splitlines()
    assert len(lines) == 65 and lines[1].split() == holders_of(layout)[0]
    root = ElementTree.fromstring(as_svg(layout))
    assert len(root.findall("{http://www.w3.org/2000/svg}text")) == 64 * 8


def test_copies_are_told() -> None:
    assert "of several holders the first" in as_text(whole((2, 2), 1))
    assert "of several" not in as_text(wgmma_acc((64, 8)))
