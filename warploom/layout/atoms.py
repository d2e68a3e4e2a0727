"""The layouts that hardware and coalescing dictate.

Facts: PTX ISA, "Asynchronous warpgroup level matrix instructions", register fragments of
wgmma.mma_async .m64nNk16, .m64nNk8 and .m64nNk32 (accumulator D, matrix A).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial

from warploom.layout.linear import LANE_BITS, NAMED, Layout, Vector, parse_shape


def along(axis: int, n: int, rank: int) -> Vector:
    """The vector of n on one axis."""
    return tuple(n if a == axis else 0 for a in range(rank))


def doubled(v: Vector, count: int) -> list[Vector]:
    """v, 2·v, 4·v, …: what bits of a number up to count, a power of two, stand for."""
    return [tuple(x << i for x in v) for i in range(int(math.log2(count)))]


@lru_cache(maxsize=256)
def wgmma_acc(shape: tuple[int, ...]) -> Layout:
    """The accumulator of wgmma m64nN, M a multiple of 64 and N of 8, over one warp group.

    Register i of lane l of warp w: row 16·w + l/4 + 8·(i/2 mod 2), column 2·(l mod 4) + i mod 2 + 8·(i/4);
    for M > 64 the next instruction's registers follow.  It is as well the A operand in registers for
    16-bit types, (M, K): its 8 registers of a K step of 16 stand in this order.  Raises ValueError on
    other shapes.
    """
    if not _is_whole(shape, 8):
        raise ValueError(f"no wgmma accumulator is {_dims(shape)}")
    return _fragment(shape, 2)


@lru_cache(maxsize=256)
def wgmma_a(shape: tuple[int, ...], bits: int) -> Layout:
    """wgmma's A operand (M, K) in registers, for elements of 16, 8 or 32 bits.

    16 bits: as the accumulator.  8 bits: register i of lane l of warp w holds row 16·w + l/4 + 8·(i/4 mod 2),
    column 4·(l mod 4) + i mod 4 + 16·(i/8).  32 bits: row 16·w + l/4 + 8·(i mod 2), column l mod 4 + 4·(i/2).
    Raises ValueError on other shapes and sizes.
    """
    if bits == 16:
        return wgmma_acc(shape)
    if bits not in (8, 32) or not _is_whole(shape, 256 // bits):
        raise ValueError(f"no wgmma A operand is {_dims(shape)} of {bits} bits")
    return _fragment(shape, 32 // bits)


def _is_whole(shape: tuple[int, ...], columns: int) -> bool:
    """Do instructions of 64 rows and so many columns fill a shape?"""
    return len(shape) == 2 and shape[0] % 64 == shape[1] % columns == 0 < min(shape)


def _fragment(shape: tuple[int, ...], word: int) -> Layout:
    """What a warp group's registers of 32 bits hold, `word` elements each."""
    return Layout(
        shape,
        reg=(*doubled((0, 1), word), (8, 0)),
        lane=((0, word), (0, 2 * word), (1, 0), (2, 0), (4, 0)),
        warp=((16, 0), (32, 0)),
        repeats=_repeats((1, shape[1] // (4 * word), 4 * word), (0, shape[0] // 64, 64)),
    )


def _repeats(*repeats: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    return tuple(r for r in repeats if r[1] > 1)


@lru_cache(maxsize=256)
def blocked(shape: tuple[int, ...], inner: int, vector: int, warps: int) -> Layout:
    """A layout for coalesced access to memory in which axis `inner` is contiguous.

    Each thread holds `vector` (a power of two that divides the axis) adjacent elements, adjacent lanes follow
    along the inner axis, then along the other axes from the last to the first; then warps, then repeats.
    What lanes and warps can't divide evenly overhangs; what they can't use is replicated.
    """
    rank = len(shape)
    if shape[inner] % vector or vector & (vector - 1):
        raise ValueError(f"vectors of {vector} don't divide axis {inner} of {shape}")
    order = [inner, *(a for a in reversed(range(rank)) if a != inner)]
    covered = [1] * rank  # extent of what is spread so far
    covered[inner] = vector

    def spread(bits: int, axes: list[int]) -> list[Vector]:
        vectors: list[Vector] = []

        def take(axis: int) -> None:
            vectors.append(along(axis, covered[axis], rank))
            covered[axis] *= 2

        for axis in axes:  # evenly first
            while len(vectors) < bits and shape[axis] % (2 * covered[axis]) == 0:
                take(axis)
            # Half a sector (16 bytes) a row would waste bandwidth: rather overhang on the inner axis.
            if axis == inner and covered[axis] < min(shape[axis], 16):
                while len(vectors) < bits and covered[axis] < shape[axis]:
                    take(axis)
        for axis in axes:  # then overhanging
            while len(vectors) < bits and covered[axis] < shape[axis]:
                take(axis)
        vectors += [(0,) * rank] * (bits - len(vectors))
        return vectors

    lane = spread(LANE_BITS, order)
    warp = spread(warps.bit_length() - 1, order[1:] + order[:1])
    repeats = _repeats(*((a, math.ceil(shape[a] / covered[a]), covered[a]) for a in order))
    unit = doubled(along(inner, 1, rank), vector)
    return Layout(shape, tuple(unit), tuple(lane), tuple(warp), repeats)


def coalesced(
    shape: tuple[int, ...], inner: int, itemsize: int, warps: int, align: int = 16
) -> Layout:
    """`blocked` with the widest vector that the elements (itemsize bytes), the alignment (bytes that divide
    every row's address) and an even spread over the threads allow."""
    share = max(1, math.prod(shape) // (32 * warps))
    extent = shape[inner]
    widest = max(1, min(16, align) // itemsize)
    vector = min(extent & -extent, 1 << (share.bit_length() - 1), 1 << (widest.bit_length() - 1))
    return blocked(shape, inner, vector, warps)


def along_axis(
    shape: tuple[int, ...], axis: int, inner: int, vector: int, warps: int
) -> Layout | None:
    """A layout for coalesced access in which each thread has as much of `axis`, another than `inner`, as can
    be, all in a row: lanes and then warps share out the other axes, and the axis only where more of them are
    left.  None for sizes that are no powers of two."""
    rank = len(shape)
    if any(n & (n - 1) for n in shape) or vector > shape[inner]:
        return None
    covered = [vector if a == inner else 1 for a in range(rank)]
    order = [inner, *(a for a in reversed(range(rank)) if a not in (axis, inner))]
    bits = LANE_BITS + warps.bit_length() - 1
    threads: list[Vector] = []
    for at in order:
        while len(threads) < bits and covered[at] < shape[at]:
            threads.append(along(at, covered[at], rank))
            covered[at] *= 2
    run = shape[axis] >> (bits - len(threads))
    if not run:
        return None
    threads += doubled(along(axis, run, rank), 1 << (bits - len(threads)))
    unit = doubled(along(inner, 1, rank), vector)
    repeats = _repeats((axis, run, 1), *((a, shape[a] // covered[a], covered[a]) for a in order))
    return Layout(
        shape, tuple(unit), tuple(threads[:LANE_BITS]), tuple(threads[LANE_BITS:]), repeats
    )


def whole(shape: tuple[int, ...], warps: int) -> Layout:
    """Every thread holds everything, in row-major order: what any reshape of a small tile can go through."""
    rank = len(shape)
    nowhere = ((0,) * rank,)
    repeats = _repeats(*((a, shape[a], 1) for a in reversed(range(rank))))
    return Layout(shape, (), nowhere * LANE_BITS, nowhere * (warps.bit_length() - 1), repeats)


@lru_cache(maxsize=256)
def transposing(shape: tuple[int, ...], itemsize: int, inner: int, warps: int) -> Layout | None:
    """Matrices of 8- or 32-bit elements on their way from slots where the other axis is adjacent to slots
    where `inner` is; None for other sizes, and where the tile is not made of whole blocks for every warp.

    Bytes: a thread holds pairs of words, each 4 bytes along `inner`, of two neighbours on the other axis:
    what two 8×8 matrices of ldmatrix.trans bring together, as a 16-bit unit there is two bytes
    (layout.choose, `transposing_form`), and stmatrix takes.  In the upper half of the lanes
    the two neighbours change places, so that the 8 rows that an stmatrix writes lie in 8
    different units of a 128-byte row.  Blocks are 16×16.

    Words: a thread holds 4×4 blocks, which it reads and writes in vectors of 16 bytes.  8 lanes that are
    served together go along the diagonal, so that both their reads and their writes, in rows swizzled by 128
    bytes, lie in 8 different units.
    """
    if len(shape) != 2 or itemsize not in (1, 4):
        return None
    return (
        _transposing_words(shape, inner, warps)
        if itemsize == 4
        else _transposing_bytes(shape, inner, warps)
    )


def _transposing_bytes(shape: tuple[int, ...], inner: int, warps: int) -> Layout | None:
    other = 1 - inner
    if any(n % 16 for n in shape):
        return None
    lanes = [*(along(inner, n, 2) for n in (4, 8)), *(along(other, n, 2) for n in (2, 4, 8 + 1))]
    reg = along(inner, 1, 2), along(inner, 2, 2), along(other, 1, 2)
    return _shared_out(shape, reg, lanes, 16, inner, LANE_BITS + (warps - 1).bit_length())


def _transposing_words(shape: tuple[int, ...], inner: int, warps: int) -> Layout | None:
    other = 1 - inner
    if any(n % 4 for n in shape):
        return None
    units = [n for n in (4, 8, 16) if all(size % (2 * n) == 0 for size in shape)]
    vectors = [*((n, n) for n in units), *(along(other, n, 2) for n in units)]
    reg = tuple(along(a, n, 2) for a in (inner, other) for n in (1, 2))
    bits = LANE_BITS + warps.bit_length() - 1
    return _shared_out(shape, reg, vectors, 4 << len(units), inner, bits)


def _shared_out(
    shape: tuple[int, ...],
    reg: tuple[Vector, ...],
    threads: list[Vector],
    size: int,
    inner: int,
    bits: int,
) -> Layout | None:
    """A layout in which `threads` share squares of this size, and so many bits of their number more of them,
    evenly; None where that can't be."""
    covered = {inner: size, 1 - inner: size}
    while len(threads) < bits:
        fits = [a for a in (1 - inner, inner) if shape[a] % (2 * covered[a]) == 0]
        if not fits:
            return None
        threads = [*threads, along(fits[0], covered[fits[0]], 2)]
        covered[fits[0]] *= 2
    repeats = _repeats(*((a, shape[a] // n, n) for a, n in covered.items()))
    return Layout(shape, reg, tuple(threads[:LANE_BITS]), tuple(threads[LANE_BITS:]), repeats)


# ---- short forms


def _dims(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def is_group_acc(x: Layout) -> bool:
    """Is x what `wgmma_acc` gives for its shape?"""
    return _recognise(x, 8, wgmma_acc) is not None


def _recognise(x: Layout, columns: int, made: Callable[[tuple[int, ...]], Layout]) -> str | None:
    fits = x.warps == 4 and _is_whole(x.shape, columns)
    return _dims(x.shape) if fits and x == made(x.shape) else None


def _parse_blocked(text: str) -> Layout:
    m = re.fullmatch(r"\s*([\dx]+)\s*,\s*inner=(\d+)\s*,\s*vector=(\d+)\s*,\s*warps=(\d+)\s*", text)
    if m is None:
        raise ValueError(f"a blocked layout is (shape, inner=, vector=, warps=), not ({text})")
    shape, inner, vector, warps = m.groups()
    return blocked(parse_shape(shape), int(inner), int(vector), int(warps))


def _recognise_blocked(x: Layout) -> str | None:
    for inner in reversed(range(len(x.shape))):
        vector = x.contiguous(inner)
        while vector:  # the merged register digit can be wider than the vector
            if x.shape[inner] % vector == 0 and x == blocked(x.shape, inner, vector, x.warps):
                return f"{_dims(x.shape)}, inner={inner}, vector={vector}, warps={x.warps}"
            vector //= 2
    return None


for _name, _columns, _made in (
    ("wgmma_acc", 8, wgmma_acc),
    ("wgmma_a8", 32, partial(wgmma_a, bits=8)),
    ("wgmma_a32", 8, partial(wgmma_a, bits=32)),
):
    NAMED[_name] = (
        lambda text, made=_made: made(parse_shape(text)),  # type: ignore[misc]
        partial(_recognise, columns=_columns, made=_made),
    )
NAMED["blocked"] = (_parse_blocked, _recognise_blocked)
