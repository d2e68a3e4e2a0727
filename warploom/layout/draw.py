"""Pictures of layouts: who holds each element of a tile, as text and as SVG."""

from __future__ import annotations

from warploom.layout.linear import Layout

MOST_COLUMNS = 64  # that a drawing shows; further ones are cut
CELL = (54, 18)  # pixels of an SVG cell


def holders_of(layout: Layout) -> list[list[str]]:
    """For each element of a tile of one or two axes its first holder, "thread:register"."""
    if not 1 <= len(layout.shape) <= 2:
        raise ValueError(f"a drawing has one or two axes, the layout {len(layout.shape)}")
    found = layout.holders().reshape(-1, layout.shape[-1], 3).tolist()
    return [[f"{32 * warp + lane}:{register}" for warp, lane, register in row] for row in found]


def as_text(layout: Layout) -> str:
    """A table: one line a row of the tile, in each cell "thread:register"."""
    rows = holders_of(layout)
    shown = [row[:MOST_COLUMNS] for row in rows]
    width = max(len(cell) for row in shown for cell in row)
    lines = [
        f"{layout}: {layout.threads} threads, {layout.registers} registers (thread:register"
        f"{', of several holders the first' * layout.is_replicated})"
    ]
    lines += [" ".join(cell.rjust(width) for cell in row) for row in shown]
    if len(rows[0]) > MOST_COLUMNS:
        lines.append(f"… {len(rows[0]) - MOST_COLUMNS} further columns")
    return "\n".join(lines)


def as_svg(layout: Layout) -> str:
    """The same as an SVG picture; the colour is the thread's."""
    rows = [row[:MOST_COLUMNS] for row in holders_of(layout)]
    w, h = CELL
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w * len(rows[0])}" height="{h * len(rows)}" '
        'font-family="monospace" font-size="10" text-anchor="middle">'
    ]
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            hue = int(cell.partition(":")[0] or 0) * 47 % 360
            parts.append(
                f'<rect x="{w * j}" y="{h * i}" width="{w}" height="{h}" '
                f'fill="hsl({hue},60%,85%)" stroke="white"/>'
                f'<text x="{w * j + w // 2}" y="{h * i + h - 5}">{cell}</text>'
            )
    return "".join(parts) + "</svg>"
