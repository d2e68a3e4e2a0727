"""Questions that passes and the code generator ask of layouts: widths, conflicts, conversions, matrix
instructions.  Everything is answered by enumeration: a layout is at most some ten thousand elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from warploom.layout.atoms import along_axis, blocked
from warploom.layout.linear import Coords, Layout
from warploom.layout.shared import UNIT_BYTES, Geometry, byte_offset

Ints = npt.NDArray[np.int64]
SECTOR, LINE = 32, 128  # bytes


def vector_elements(layout: Layout, geometry: Geometry) -> int:
    """Elements that one ordinary access (at most 16 bytes) between registers and the slot can move."""
    return min(layout.contiguous(geometry.inner), max(1, UNIT_BYTES // geometry.itemsize))


def wavefronts(addresses: Ints, width: int) -> int:
    """Passes that shared memory needs for accesses by a warp: 32 byte addresses each, of `width` bytes.

    32 banks of 4 bytes; lanes that read the same word share it.  Accesses of 8 and 16 bytes go by half and by
    quarter warps (assumed here).  Without conflicts: 1, 2 and 4 for widths of up to 4, 8 and 16.  (CUDA
    C++ Best Practices Guide, "Shared Memory and Memory Banks".)
    """
    parts = np.asarray(addresses, np.int64).reshape(-1, 32 // max(1, width // 4))
    words = (parts[:, :, None] + np.arange(0, max(width, 4), 4)) // 4
    rows = np.arange(len(parts))[:, None] << 40
    words = np.unique(rows + words.reshape(len(parts), -1))
    banks = np.bincount((words >> 40) * 32 + words % 32, minlength=32 * len(parts))
    return int(banks.reshape(-1, 32).max(axis=1).sum())


def sector_ratio(
    layout: Layout, inner: int, itemsize: int, vector: int, unit: int = SECTOR
) -> float:
    """How many times more sectors of global memory (or lines) a warp's access touches than its bytes fill.

    `vector`: adjacent elements of one access at most; `inner`: the axis adjacent in memory.  1 is coalesced;
    8 (f32) to 16 (16 bits) is every lane in a sector of its own.
    """
    width = min(vector, layout.contiguous(inner))
    at = layout.coords(np.arange(width)[None, :], np.arange(32)[:, None])
    elements = np.unique(np.stack([c.reshape(-1) for c in at]), axis=1)
    units = elements.copy()
    units[inner] = units[inner] * itemsize // unit
    touched = int(np.unique(units, axis=1).shape[1])
    return touched / float(-(-elements.shape[1] * itemsize // unit))


# ---- conversions


IN_PLACE = (1, 2, 4, 8, 16)  # the matrix of shuffles from the same lane, or by one distance


@dataclass(frozen=True)
class Shuffle:
    """A conversion inside each warp: register r of lane l takes register `registers[r]` of lane
    `lanes[r] ^ (⊕ over set bits b of l of matrix[b])`: one shuffle a register."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    matrix: tuple[int, ...]


@dataclass(frozen=True)
class Conversion:
    """How a tile gets from one layout to another.

    kind 'free': register r takes register permutation[r].  'lane': by `shuffle`.  'shared': through scratch
    shared memory (the tile's size), written in one layout, read in the other.
    """

    kind: str
    permutation: tuple[int, ...] = ()
    shuffle: Shuffle | None = None


@lru_cache(maxsize=1024)
def conversion(src: Layout, dst: Layout) -> Conversion:
    """The cheapest conversion between two layouts of one tile over the same threads."""
    permutation = src.permutation(dst)
    if permutation is not None:
        return Conversion("free", permutation)
    shuffle = None if dst.overhangs or src.threads != dst.threads else _shuffle(src, dst.table)
    if shuffle is not None:
        return Conversion("lane", shuffle=shuffle)
    return Conversion("shared")


@lru_cache(maxsize=1024)
def flipped(layout: Layout, axis: int, flips: int) -> Conversion:
    """How each thread gets the elements at its places with these bits flipped along an axis."""
    wanted = tuple(c ^ flips if a == axis else c for a, c in enumerate(layout.table))
    shuffle = _shuffle(layout, wanted)
    if shuffle is None:
        return Conversion("shared")
    if shuffle.matrix == IN_PLACE and not any(shuffle.lanes):
        return Conversion("free", shuffle.registers)
    return Conversion("lane", shuffle=shuffle)


def _shuffle(src: Layout, table: Coords) -> Shuffle | None:
    """table: the places that each thread wants."""
    if src.overhangs:
        return None
    # The lowest holder in the same warp.  Warps must agree, as they run the same instructions.
    wanted = np.stack(table)  # (rank, warps, 32, registers)
    found: Ints | None = None
    for w in range(src.warps):
        held = np.full((*src.shape, 2), -1, np.int64)
        mine = [c[w].reshape(-1)[::-1] for c in src.table]
        lane, reg = (
            x[::-1] for x in np.unravel_index(np.arange(32 * src.registers), (32, src.registers))
        )
        held[tuple(mine)] = np.stack([lane, reg], axis=-1)
        take = held[tuple(wanted[:, w])]  # (32, registers, 2)
        if (take < 0).any() or (found is not None and not np.array_equal(found, take)):
            return None
        found = take
    assert found is not None
    lanes, registers = found[..., 0], found[..., 1]
    if (registers != registers[:1]).any():
        return None
    base = lanes[0]
    matrix = tuple(int(lanes[1 << b, 0] ^ base[0]) for b in range(5))
    affine = np.zeros(32, np.int64)
    for b in range(5):
        affine ^= ((np.arange(32) >> b) & 1) * matrix[b]
    if not np.array_equal(lanes, affine[:, None] ^ base[None, :]):
        return None
    return Shuffle(tuple(map(int, registers[0])), tuple(map(int, base)), matrix)


@lru_cache(maxsize=1024)
def scratch_geometry(src: Layout, dst: Layout, itemsize: int) -> Geometry:
    """How a conversion through shared memory lays the tile out: of the inner axes and swizzles that fit the
    one with the fewest bank conflicts.  A transpose writes every eighth row at a time: what exchanges units
    by groups of eight rows (shift 10, for rows of 128 bytes) spreads them."""
    best, least = None, float("inf")
    for inner in reversed(range(len(src.shape))):
        row = src.shape[inner] * itemsize
        for swizzle, shift in ((0, 7), *((s, n) for n in (7, 10) for s in (128, 64, 32))):
            if swizzle and row % swizzle:
                continue
            geometry = Geometry(src.shape, itemsize, inner, swizzle, shift)
            cost = float(_accesses(src, geometry) + _accesses(dst, geometry))
            if cost < least:
                best, least = geometry, cost
    assert best is not None
    return best


def _accesses(layout: Layout, geometry: Geometry) -> int:
    """Wavefronts for moving the tile between the registers of warp 0 and the slot."""
    width = vector_elements(layout, geometry)
    first = np.arange(0, layout.registers, width)
    at = layout.coords(first[:, None], np.arange(32)[None, :])
    inside = [np.minimum(c, n - 1) for c, n in zip(at, layout.shape, strict=True)]
    offsets = byte_offset(geometry, inside)
    return wavefronts(offsets, width * geometry.itemsize)


# ---- scans


@dataclass(frozen=True)
class ScanForm:
    """How elements follow each other along an axis: `run` registers of a thread, then lanes, then warps, then
    the same again.

    runs: for each register of what the axis is dropped from, and each repetition, the registers in order.
    lane: the lowest of the `lanes` bits of the lane's index along the axis; warps: the bits of the warp's.
    """

    runs: tuple[tuple[tuple[int, ...], ...], ...]
    lane: int
    lanes: int
    warps: tuple[int, ...]


@lru_cache(maxsize=256)
def scan_form(layout: Layout, axis: int) -> ScanForm | None:
    """The form of a layout; None where elements follow each other in another way."""
    lanes = [b for b, v in enumerate(layout.lane) if v[axis]]
    warps = sorted((v[axis], b) for b, v in enumerate(layout.warp) if v[axis])
    along = [*(layout.lane[b] for b in lanes), *(layout.warp[b] for _, b in warps)]
    if any(sum(map(bool, v)) > 1 for v in along) or lanes != list(range(*_ends(lanes))):
        return None
    strides = [v[axis] for v in along]
    run = strides[0] if strides else 0
    if strides != [run << i for i in range(len(strides))]:
        return None
    at = layout.table[axis]
    moved = at - at[..., :1]
    others = np.stack([c for a, c in enumerate(layout.table) if a != axis] or [np.zeros_like(at)])
    if (moved != moved[:1, :1]).any():
        return None
    found: dict[tuple[int, ...], dict[int, list[tuple[int, int]]]] = {}
    period = run << len(strides) if strides else int(at.max()) + 1
    for r in range(layout.registers):
        same = (int(q) for q in range(r + 1) if (others[..., q] == others[..., r]).all())
        copy, place = divmod(int(at[0, 0, r]), period)
        found.setdefault((next(same),), {}).setdefault(copy, []).append((place, r))
    full = list(range(run if strides else period))
    for copies in found.values():
        for places in copies.values():
            if strides and sorted(p for p, _ in places) != full:
                return None
            if len({p for p, _ in places}) != len(places):
                return None
    runs = tuple(
        tuple(tuple(r for _, r in sorted(copies[c])) for c in sorted(copies))
        for copies in found.values()
    )
    if len({len(x) for x in runs}) != 1:
        return None
    return ScanForm(runs, lanes[0] if lanes else 0, len(lanes), tuple(b for _, b in warps))


def _ends(bits: list[int]) -> tuple[int, int]:
    return (bits[0], bits[0] + len(bits)) if bits else (0, 0)


def scan_layout(shape: tuple[int, ...], axis: int, warps: int) -> Layout:
    """The layout that has a form along the axis and the cheapest scan."""
    vectors = (v for v in (4, 2, 1) if shape[axis] % v == 0 and (v == 1 or shape[axis] >= 32 * v))
    others = [a for a in range(len(shape)) if a != axis]
    down = along_axis(shape, axis, others[-1], 1, warps) if others else None
    found = [blocked(shape, axis, next(vectors), warps), *([down] if down else [])]
    return min(found, key=lambda x: scan_cost(x, axis))


def scan_cost(layout: Layout, axis: int) -> float:
    """Instructions of a thread for a scan, about; infinite without a form.  What is before a run is
    combined with all of it."""
    form = scan_form(layout, axis)
    if form is None:
        return math.inf
    copies = len(form.runs[0])
    if not form.lanes and not form.warps and copies == 1:
        return layout.registers
    across = 2 * form.lanes + 2 * bool(form.lanes) + 2 * (1 << len(form.warps))
    return 2 * layout.registers + len(form.runs) * copies * across


def scan_scratch(layout: Layout, axis: int, itemsize: int) -> int:
    """Bytes of scratch for a scan: of each warp along the axis what it comes to, for each repetition and each
    element off the axis, where warps share it; else 0."""
    form = scan_form(layout, axis)
    assert form is not None
    elements = math.prod(n for a, n in enumerate(layout.shape) if a != axis)
    parts = (1 << len(form.warps)) * len(form.runs[0])
    return parts * elements * itemsize if form.warps else 0


# ---- ldmatrix and stmatrix


@dataclass(frozen=True)
class MatrixForm:
    """ldmatrix/stmatrix .m8n8.b16 fits between a register layout and a slot.

    One instruction moves `count` (1, 2 or 4) 8×8 matrices of 16-bit units; its j-th 32-bit register
    operand is the j-th of `count` consecutive words (4 bytes of consecutive registers) of each thread.  PTX
    ISA, ldmatrix: lane 8·j + i gives the address of row i (16 bytes) of matrix j; lane l holds the two
    units 2·(l mod 4) and +1 of row l/4, with .trans of column l/4.
    """

    trans: bool
    count: int
    elements: int  # of one 32-bit word

    def row(self, lane: int) -> tuple[int, int]:
        """What `lane` has to give the address of: (register, counted from the instruction's first; lane)
        whose element starts that row."""
        matrix, i = (lane // 8) % self.count, lane % 8
        first = matrix * self.elements
        return (first + i % 2, i // 2) if self.trans else (first, 4 * i)


@lru_cache(maxsize=1024)
def matrix_form(layout: Layout, geometry: Geometry, loads: bool = False) -> MatrixForm | None:
    """The form in which ldmatrix (loads) or stmatrix moves a whole tile of `layout` from or to the slot (or
    an equally laid out part of it); None where it doesn't fit.  Every 16-byte row must be one lane group's,
    and is written by one alone; warps may read the same."""
    if layout.overhangs or (layout.is_replicated and not loads) or geometry.row_bytes % UNIT_BYTES:
        return None
    elements = 4 // geometry.itemsize  # of a word
    if elements == 0 or layout.registers % elements:
        return None
    words = layout.registers // elements
    count = next(c for c in (4, 2, 1) if words % c == 0)
    inner = geometry.inner
    for trans in (False, True) if geometry.itemsize == 2 else (False,):
        form = MatrixForm(trans, count, elements)
        # Take the rows' elements from the thread that the instruction would take them from, and look whether
        # they lie there: element e of a row starting at (register, lane).
        reg, lane, along = _fragment(form, layout.registers)
        at = layout.coords(reg, lane, np.arange(layout.warps)[:, None, None, None])
        start = [c[..., :1] for c in at]
        good = np.array_equal(at[inner], start[inner] + along)
        good &= not (start[inner] % (UNIT_BYTES // geometry.itemsize)).any()
        good &= all(
            np.array_equal(c, np.broadcast_to(s, c.shape))
            for a, (c, s) in enumerate(zip(at, start, strict=True))
            if a != inner
        )
        if good:
            return form
    return None


def _fragment(form: MatrixForm, registers: int) -> tuple[Ints, Ints, Ints]:
    """(register, lane) of every element of every row, shape (words, 8 rows, elements of a row), and the
    element's index in its row."""
    word = np.arange(registers // form.elements)[:, None, None]
    i = np.arange(8)[None, :, None]
    e = np.arange(4 * form.elements)[None, None, :]
    if form.trans:  # row i is unit i mod 2 of lanes i/2, i/2 + 4, …
        reg, lane = word * 2 + i % 2, i // 2 + 4 * e
    else:
        reg, lane = word * form.elements + e % form.elements, 4 * i + e // form.elements
    shape = np.broadcast_shapes(reg.shape, lane.shape)
    return np.broadcast_to(reg, shape), np.broadcast_to(lane, shape), e


@dataclass(frozen=True)
class TransposingForm:
    """How ldmatrix.trans and byte permutations bring bytes into a layout that has them transposed.

    A 16-bit unit is two bytes of a row: transposed, a lane holds two bytes of two rows each in one register,
    in those of a pair of matrices 2×4 bytes.  Lane l gives the address of the 16-byte unit that holds the
    element rows[l]: (register, counted from the instruction's first; lane).  selectors: for both words that
    a pair becomes, lane by lane, which of the registers' bytes they take (PTX ISA, "prmt").
    """

    count: int  # matrices of one instruction
    rows: tuple[tuple[int, int], ...]
    selectors: tuple[tuple[int, ...], tuple[int, ...]]


_PAIR = 8  # bytes that a pair of matrices brings to a lane


@lru_cache(maxsize=1024)
def transposing_form(layout: Layout, geometry: Geometry) -> TransposingForm | None:
    """The form in which a whole tile of bytes is transposed on its way from the slot to registers; None where
    it does not fit: pairs of words, each of 4 bytes across the slot's rows, of two neighbours along them."""
    if geometry.itemsize != 1 or len(layout.shape) != 2 or geometry.row_bytes % UNIT_BYTES:
        return None
    if layout.overhangs or layout.is_replicated or layout.registers % _PAIR:
        return None
    by_pair = (layout.warps, 32, -1, 2, 4)  # warps, lanes, pairs, words of a pair, bytes of a word
    along, across = (layout.table[a].reshape(by_pair) for a in (geometry.inner, 1 - geometry.inner))
    quad, column = np.arange(32) % 4, np.arange(32) // 4
    unit = along // UNIT_BYTES
    side = along % UNIT_BYTES - 2 * column[:, None, None, None]  # which byte of its 16-bit unit
    good = (unit == unit[:, :1, :, :1, :1]).all() and (side // 2 == 0).all()
    good = (
        good
        and (side == side[:1, :, :1, :, :1]).all()
        and (side[..., 0, :] != side[..., 1, :]).all()
    )
    if not good or (across != across[:, quad][:, :, :, :1]).any():
        return None

    def matrix(lane: Ints, byte: Ints) -> Ints:
        """The one of a pair that brings a byte of its words to a lane.  In two lanes of four they change
        places: then no two of a matrix's 8 rows of 128 bytes lie in the same banks."""
        return (lane % 4 // 2) ^ (byte // 2)

    count = 4 if layout.registers % (2 * _PAIR) == 0 else 2
    rows = []
    for lane in range(32):
        m, i = lane // 8 % count, lane % 8
        byte = next(b for b in (i % 2, i % 2 + 2) if matrix(np.array(i // 2), np.array(b)) == m % 2)
        rows.append((m // 2 * _PAIR + byte, i // 2))
    lanes, bytes_ = np.arange(32)[:, None], np.arange(4)[None, :]
    words = []
    for w in range(2):
        source = 4 * matrix(lanes, bytes_) + 2 * (bytes_ % 2) + side[0, :, 0, w, :1]
        words.append(tuple(map(int, (source << 4 * bytes_).sum(1))))
    return TransposingForm(count, tuple(rows), (words[0], words[1]))


# ---- addresses


def thread_offsets(layout: Layout, geometry: Geometry) -> Ints:
    """Byte offset in the slot of every element: shape (warps, 32, registers).  Meaningless on overhang."""
    return byte_offset(geometry, layout.table)
