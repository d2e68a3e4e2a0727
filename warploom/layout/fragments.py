"""The fragments of matrix instructions that a warp executes alone, in registers, over any number of warps,
and the blocks of a product that threads make themselves.

Facts: PTX ISA, "Matrix Fragments for mma.m16n8k4", ".m16n8k8", ".m16n8k16 with floating point type" and
".m16n8k32".  They are one pattern: with t = lane mod 4, g = lane / 4 and words of 32 bits (of wider elements
one element), A has rows g and g + 8, B column g, and both along K the word t, and the word t + 4 where
an instruction's K has eight; the accumulator has columns 2t and 2t + 1 of rows g and g + 8.

A product that fills no whole instructions fills a part of each (`atom`): lanes whose rows (columns) lie
beyond hold those of lanes that have some, so that what they compute is the same, and registers of such rows
are absent: rows g + 8 of 8, the columns 2t + 1 of one.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

from warploom.layout.atoms import doubled
from warploom.layout.linear import Layout, Vector

ROWS, COLUMNS, K_BYTES = 16, 8, 32  # of one instruction
REPEATED = 16  # columns that several warps compute at most, where each multiplies them


def atom(m: int, n: int) -> tuple[int, int]:
    """The rows and columns of a product of m × n that each instruction does: powers of two."""
    return math.gcd(m, ROWS), math.gcd(n, COLUMNS)


def warp_grid(
    shape: tuple[int, ...], warps: int, rows_first: bool, multiplied: bool = False
) -> tuple[int, ...]:
    """How many warps share each axis of a product, (M, N) or (batch, M, N): the batches first, which warps
    share no operand of; then, as many as there are instructions for, rows and columns, in the way in which a
    warp reads the fewest elements of both operands.  What is left of `warps` does the same work again.

    rows_first: as many along the rows as can be, so that a warp has whole rows, and its result is the left
    operand of a product that follows.  multiplied: it is one; warps share few columns not even then, as to
    compute them again takes less than to exchange them."""
    *batch, m, n = shape
    if batch:
        each = min(warps, _two_part(batch[0]))
        return (each, *warp_grid((m, n), warps // each, rows_first, multiplied))
    high, wide = atom(m, n)
    most_rows, most_columns = _two_part(m // high), _two_part(n // wide)
    grids = [
        (r, min(warps // r, most_columns))
        for r in (1 << i for i in range(warps.bit_length()))
        if r <= most_rows
    ]
    if multiplied and n <= REPEATED:
        return grids[-1][0], 1
    if rows_first:
        return grids[-1]
    return min(grids, key=lambda g: (-g[0] * g[1], m // g[0] + n // g[1], -g[0]))


@lru_cache(maxsize=256)
def mma_acc(shape: tuple[int, ...], grid: tuple[int, ...], warps: int) -> Layout:
    """The accumulator, (M, N) or (batch, M, N), of a product whose axes the warps of a `grid` share.

    Warps take neighbouring rows by 16, and neighbouring columns by 8 or 16, so that up to four have a part of
    each 32 columns, 128 bytes of 32 bits: of what is stored at a time.  Raises ValueError on shapes that the
    grid doesn't divide into instructions."""
    (*batch, m, n), (*shared, rows, columns) = shape, grid
    high, wide = atom(m, n)
    if m % (high * rows) or n % (wide * columns) or not m * n:
        raise ValueError(f"no accumulator of {rows}x{columns} warps is {m}x{n}")
    zero = (0,) * len(batch)
    first, count = (*batch, 1)[0], (*shared, 1)[0]  # batches, and warps that share them
    step = wide * _two_part(n // wide // columns)
    if columns > 1:
        step = min(step, max(COLUMNS, 4 * COLUMNS // columns))
    warp = [*doubled((high, 0), rows), *doubled((0, step), columns)]
    warp += [(0, 0)] * ((warps // (rows * columns * count)).bit_length() - 1)
    at = len(batch)
    repeats = (
        (at + 1, step // wide, wide),
        (at + 1, n // columns // step, columns * step),
        (at, m // (high * rows), high * rows),
        (0, first // count, count),
    )
    return Layout(
        shape,
        reg=tuple((*zero, *v) for v in ((0, 1), (8, 0)) if v[0] < high and v[1] < wide),
        lane=tuple(
            (*zero, row % high, column % wide)
            for row, column in ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
        ),
        warp=(*doubled((1, 0, 0), count), *((*zero, *v) for v in warp)),
        repeats=tuple(r for r in repeats if r[1] > 1),
    )


@lru_cache(maxsize=256)
def mma_operand(acc: Layout, axis: int, k: int, bits: int, paired: bool = False) -> Layout:
    """The left (axis 0: M × K) or right (axis 1: K × N) operand, of elements so wide, of the product that has
    this accumulator: each warp holds the rows (columns) of its part of each batch.  Of 16 bits and whole
    rows A lies as an accumulator does; B lies instruction by instruction of K, so that one `ldmatrix` brings
    16 columns for one of them.

    paired: the words t and t + 4 of an instruction are 2t and 2t + 1 of K, and A's of a row come first.  A
    product is the same in any order of K that both its operands have; in this one an accumulator of 32 bits
    is a left operand, and lanes read twice as many bytes of a row.  Raises ValueError where no instructions
    fill K."""
    step, word = 8 * K_BYTES // bits, max(1, 32 // bits)
    if k % step or not k:
        raise ValueError(f"instructions take {step} of K at a time, not {k}")

    *batch, m, n = acc.shape
    rank, own = len(batch), atom(m, n)[axis]

    def at(mn: int, k: int, b: int = 0) -> Vector:
        return (b,) * rank + ((mn, k) if axis == 0 else (k, mn))

    in_word = [at(0, 1 << i) for i in range(word.bit_length() - 1)]
    rows = [at(8, 0)] if own > COLUMNS else []
    first, second = (2 * word, [at(0, word)]) if paired else (word, [at(0, 4 * word)])
    if step == 4 * word:
        first, second = word, []
    words = [*second, *rows] if paired else [*rows, *second]
    along = [(rank + 1 - axis, k // step, step)] if k > step else []
    across = [r for r in acc.repeats if r[0] == rank + axis]
    batches = [r for r in acc.repeats if r[0] < rank]
    return Layout(
        (*batch, m, k) if axis == 0 else (*batch, k, n),
        reg=(*in_word, *words),
        lane=(at(0, first), at(0, 2 * first), *(at(n % own, 0) for n in (1, 2, 4))),
        warp=tuple(at(v[rank + axis], 0, *v[:rank]) for v in acc.warp),
        repeats=(*along, *across, *batches) if axis == 0 else (*across, *along, *batches),
    )


@lru_cache(maxsize=256)
def mma_scales(acc: Layout, axis: int, groups: int) -> Layout:
    """The scales of the left (axis 0: M × groups) or right (axis 1: N × groups) operand of the product that
    has this accumulator.  Of each four lanes t = 0 gives row g and t = 1 row g + 8 of A, t = 0 column g of B
    (PTX ISA, "Block Scaling for mma.sync", with thread-id 0); the others hold what these hold."""

    def at(mn: int) -> Vector:
        return (mn, 0)

    own = atom(*acc.shape)[axis]
    second = at(8 if own > COLUMNS else 0)
    along = [(1, groups, 1)] if groups > 1 else []
    return Layout(
        (acc.shape[axis], groups),
        reg=(),
        lane=(second, at(0), *(at(n % own) for n in (1, 2, 4))),
        warp=tuple(at(v[axis]) for v in acc.warp),
        repeats=(*along, *((0, count, step) for a, count, step in acc.repeats if a == axis)),
    )


@lru_cache(maxsize=256)
def fma_acc(shape: tuple[int, ...], adjacent: tuple[bool, bool], warps: int) -> Layout:
    """The accumulator, (M, N) or (batch, M, N), of a product that threads make by themselves: each has some
    rows and some columns, all elements of which are its own.  Batches are shared first; rows and columns so
    that as many threads as can be have elements of their own, and read the fewest of both operands.

    adjacent: are rows (columns) of an operand adjacent in memory?  Then a thread has up to four in a row;
    else neighbours are other lanes'."""
    (*batch, m, n), zero = shape, (0,) * (len(shape) - 2)
    first = min(warps, _two_part((*batch, 1)[0]))
    sizes = [1 << i for i in range(6)]
    ways = [
        (v, w, lanes, across, rows, columns)
        for v in ((4, 2, 1) if adjacent[0] else (1,))
        for lanes in sizes
        for rows in sizes
        if m % (v * lanes * rows) == 0
        for w in ((4, 2, 1) if adjacent[1] else (1,))
        for across in sizes
        for columns in sizes
        if n % (w * across * columns) == 0
        and lanes * across <= 32
        and rows * columns * first <= warps
    ]

    def cost(way: tuple[int, ...]) -> tuple[int, ...]:
        v, w, lanes, across, rows, columns = way
        own, shared = m // (lanes * rows) + n // (across * columns), m // rows + n // columns
        return (-lanes * across * rows * columns, own, shared, -v * w, -across)

    v, w, lanes, across, rows, columns = min(ways, key=cost)
    lane = [*doubled((0, w), across), *doubled((v, 0), lanes)]
    warp = [*doubled((lanes * v, 0), rows), *doubled((0, across * w), columns)]
    idle = (warps // (first * rows * columns)).bit_length() - 1
    high, wide = v * lanes * rows, w * across * columns
    at = len(batch)
    repeats = (
        (at + 1, n // wide, wide),
        (at, m // high, high),
        (0, (*batch, 1)[0] // first, first),
    )
    return Layout(
        shape,
        reg=tuple((*zero, *x) for x in (*doubled((0, 1), w), *doubled((1, 0), v))),
        lane=tuple((*zero, *x) for x in (*lane, *[(0, 0)] * (5 - len(lane)))),
        warp=(
            *doubled((1, 0, 0), first),
            *((*zero, *x) for x in (*warp, *[(0, 0)] * idle)),
        ),
        repeats=tuple(r for r in repeats if r[1] > 1),
    )


def product_registers(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Of an accumulator, (M, N) or (batch, M, N), of which each thread has whole rows by whole columns: the
    registers of each axis' first elements.  That of an element is the sum of its axes'.  Raises ValueError on
    others."""
    axes = []
    for table in layout.table:
        found: dict[bytes, int] = {}
        for register in range(layout.registers):
            found.setdefault(table[..., register].tobytes(), register)
        axes.append(tuple(found.values()))
    for registers in itertools.product(*map(tuple, axes)):
        at = sum(registers)
        if at >= layout.registers or any(
            (t[..., at] != t[..., r]).any() for t, r in zip(layout.table, registers, strict=True)
        ):
            raise ValueError(f"no block of rows and columns: {layout}")
    if math.prod(map(len, axes)) != layout.registers:
        raise ValueError(f"no block of rows and columns: {layout}")
    return tuple(axes)


def _two_part(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n
