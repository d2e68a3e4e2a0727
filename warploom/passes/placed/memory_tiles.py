"""How the tiles that a task loads and stores lie in global memory, and which layouts suit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.analysis.access import inner_axis
from warploom.analysis.box_access import BoxAccess
from warploom.analysis.facts import Facts
from warploom.ir.core import Type, Value
from warploom.ir.types import DType, InFlight, Pointer, Tile
from warploom.layout import Layout, blocked, coalesced, is_group_acc
from warploom.layout.choose import LINE, SECTOR, sector_ratio

# A layout from elsewhere serves a load or store unless it touches more than so many times the sectors that
# its bytes fill: a transposed tile (4 and more) converts.  An accumulator stays as it is (2 of 16 bits, 4 of
# 8 bits), but not with every lane on its own, nor with scalar accesses that could be vectors: a convolution
# that stores by channels took 43 us so, exchanged 12.5 (docs/log/2026-11-30-halves-of-sectors.md).
WORST_SECTOR_RATIO = 2.0
WORST_OF_ACCUMULATORS = 4.0
# The same of lines, in a task of one warp, whose lanes exchange without a barrier: each access asks the
# second cache for every line that it touches.  392 lines a program, from fragments of 8 rows, took 52.0 us
# (chunk_gla_fwd_A_kernel_intra_sub_inter of gsa), 96 lines 34.3.  Of those that the exchanged tile touches:
# rows of 32 bytes are lines of their own, and to exchange the 32 of fragments for 16 cost 5.5 of 53.7 us
# (chunk_gated_delta_rule_fwd_kkt_solve_kernel).
WORST_LINE_RATIO = 2.0


def tile_of(t: Type) -> Tile | None:
    """The tile that a value of the type keeps in registers."""
    return t.tile if isinstance(t, InFlight) else t if isinstance(t, Tile) else None


def shape_of_tile(v: Value) -> tuple[int, ...]:
    t = tile_of(v.type)
    assert t is not None
    return t.shape


def itemsize(t: Type) -> int:
    """Bytes of an element; of a pointer 8."""
    inner = tile_of(t)
    assert inner is not None
    return 8 if isinstance(inner.elem, Pointer) else inner.elem.bytes


@dataclass(frozen=True)
class Memory:
    """How a memory op's tile lies in memory: elements of `itemsize` bytes adjacent along axis `inner`, rows
    aligned to `align` bytes; `vector` elements at most move at once.  scattered: no two are known to be
    adjacent, so that one layout is as good as another.  in_pieces: always `vector` elements move at once,
    even where a tile then has fewer pieces than there are threads.  by_lines: do lines count that
    one warp touches?
    partial_sectors: may scalar accesses fill them in part?"""

    inner: int
    align: int
    itemsize: int
    scattered: bool = False
    in_pieces: bool = False
    by_lines: bool = True
    partial_sectors: bool = False

    @property
    def vector(self) -> int:
        return max(1, min(16, self.align) // self.itemsize)

    def layout(self, shape: tuple[int, ...], warps: int) -> Layout:
        if self.in_pieces:
            return blocked(shape, self.inner, self.vector, warps)
        return coalesced(shape, self.inner, self.itemsize, warps, self.align)

    def accepts(self, layout: Layout) -> bool:
        if self.scattered:
            return True
        if self.in_pieces and layout.contiguous(self.inner) % self.vector:
            return False
        if layout.warps == 1 and self.by_lines:
            least = self.ratio(self.layout(layout.shape, 1), LINE)
            if self.ratio(layout, LINE) > WORST_LINE_RATIO * least:
                return False
        if not self.partial_sectors and self.leaves_partial_sectors(layout):
            return False
        return self.ratio(layout) <= (
            WORST_OF_ACCUMULATORS if is_group_acc(layout) else WORST_SECTOR_RATIO
        )

    def leaves_partial_sectors(self, layout: Layout) -> bool:
        """Are accesses scalar that could be vectors, and fill at most half of the sectors that they touch?  A
        thread with no more elements than one vector has is exempt: an exchange costs more."""
        scalar = layout.registers > self.vector > 1 and layout.contiguous(self.inner) == 1
        return scalar and self.ratio(layout) >= WORST_SECTOR_RATIO

    def ratio(self, layout: Layout, unit: int = SECTOR) -> float:
        """Sectors (or other units) that an access touches, by those that its bytes fill."""
        return sector_ratio(layout, self.inner, self.itemsize, self.vector, unit)


def of_view(
    facts: Facts, view: Value, offsets: Sequence[Value], shape: tuple[int, ...], dtype: DType
) -> Memory:
    """As a box of a shape at offsets, along the view's last axes, sees it."""
    o, rank = facts.maker(view), len(shape)
    inner = inner_axis(facts, o, rank)
    if o is None or inner is None:
        return Memory(rank - 1, dtype.bytes, dtype.bytes)
    box = BoxAccess(facts, o, offsets, dtype, shape)
    align = max(dtype.bytes, box.row_alignment(inner + len(offsets) - rank))
    return Memory(inner, align, dtype.bytes)


def of_pointers(facts: Facts, p: Value, itemsize: int, run: tuple[int, ...]) -> Memory:
    """Elements behind a tile of pointers move one at a time, but for proven runs."""
    if run:
        return Memory(run[0], run[1] * itemsize, itemsize)
    axes = [facts.axis(p, a) for a in range(len(shape_of_tile(p)))]
    unit = [a for a, known in enumerate(axes) if known.slope == 1 or known.contiguity > 1]
    return Memory(unit[-1] if unit else len(axes) - 1, itemsize, itemsize, not unit)
