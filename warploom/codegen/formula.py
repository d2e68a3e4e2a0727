"""C expressions for what depends on the thread: from a table of values, one a warp and lane.

Coordinates and (swizzled) addresses of a layout are mostly sums or exclusive ors of one constant a bit of
the thread's number.  Finding those constants in the table of values needs no case for each layout.  Where
rows have a length that is no power of two they need not be; then the expression holds the table itself.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from warploom.errors import InternalError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def displaced(name: str, first: Ints, other: Ints, shared_flips: bool = False) -> str:
    """C for `other`, given that the variable (or literal) `name` holds `first`, one value a thread.
    shared_flips: flip what a swizzle permutes alone and add the rest, which is part of an access: of many the
    flipped ones are few, each computed once."""
    if not first.size:
        return name
    more = other - first
    if (more == more[0]).all():
        n = int(more[0])
        if name.isdigit():
            return str(int(name) + n)
        return f"{name} + {n}" if n else name
    low = (1 << 10) - 1  # swizzles permute bits below the period of 1024 bytes
    x, a = (first & low) ^ (other & low), (other & ~low) - (first & ~low)
    is_parted = bool((x == x[0]).all() and (a == a[0]).all())
    flip = other ^ first
    if (flip == flip[0]).all() and not (is_parted and shared_flips):
        return f"({name} ^ {int(flip[0])})"
    if is_parted:
        return f"({name} ^ {int(x[0])})" + f" + {int(a[0])}" * bool(a[0])
    raise InternalError(f"codegen: no common displacement from {name}")


def thread_formula(table: Ints, needed: Bools | None = None) -> tuple[str, set[str]]:
    """C for table[warp, lane] and which of the variables `lane`, `warp` it reads.

    needed: where the value matters (a layout may overhang its tile).  Values that are linear neither over F2
    nor over the integers, nor a multiple of such, nor below a period of a swizzle over one and above it over
    the other, are looked up bit by bit.
    """
    if needed is None:
        needed = np.ones(table.shape, np.bool_)
    found = _linear(table, needed)
    if found is not None:
        return found
    for period in (1024, 512, 256):
        low, high = _linear(table % period, needed), _linear(table // period, needed)
        if low is not None and high is not None:
            return f"({low[0]}) + {period} * ({high[0]})", low[1] | high[1]
    # Rows whose length is no power of two: a factor, and row numbers that are linear over F2.
    factor = int(np.gcd.reduce(table[needed]))
    if factor > 1:
        rows = _linear(table // factor, needed)
        if rows is not None:
            return f"{factor} * ({rows[0]})", rows[1]
    return _looked_up(table, needed)


def _looked_up(table: Ints, needed: Bools) -> tuple[str, set[str]]:
    """Each bit of the value out of a word that has it for all lanes, one word a warp: for any table."""
    least = int(table[needed].min(initial=0))
    values = np.where(needed, table - least, 0)
    terms, reads = [str(least)] if least else [], set[str]()
    for bit in range(int(values.max()).bit_length()):
        words = [sum(int(v >> bit & 1) << lane for lane, v in enumerate(row)) for row in values]
        if not any(words):
            continue
        word = f"{words[0]:#x}u"
        if len(set(words)) > 1:
            of_warps = [f"(warp == {n}) * {w:#x}u" for n, w in enumerate(words) if w]
            word = f"({' + '.join(of_warps)})"
            reads.add("warp")
        reads.add("lane")
        terms.append(f"(int)({word} >> lane & 1u) * {1 << bit}")
    return " + ".join(terms) or "0", reads


def _linear(table: Ints, needed: Bools) -> tuple[str, set[str]] | None:
    warps = table.shape[0]
    bits = [("lane", b) for b in range(5)] + [("warp", b) for b in range(warps.bit_length() - 1)]
    base = int(table[0, 0]) if needed[0, 0] else 0
    ones = [(0, 1 << b) if name == "lane" else (1 << b, 0) for name, b in bits]
    for xor in (False, True):
        # A bit that alone leads out of the tile does so in company as well: any constant will do.
        values = [int(table[at]) if needed[at] else base for at in ones]
        parts = [v ^ base if xor else v - base for v in values]
        if np.array_equal(_rebuilt(base, parts, warps, xor)[needed], table[needed]):
            text = _text(base, parts, bits, warps, xor)
            return text, {name for (name, _), v in zip(bits, parts, strict=True) if v}
    return None


@cache
def _bits(warps: int) -> Ints:
    """(bits of the lane, then of the warp, warps, 32): what each is for every thread."""
    thread = np.arange(32 * warps).reshape(warps, 32)
    return (thread >> np.arange(4 + warps.bit_length())[:, None, None]) & 1


def _rebuilt(base: int, parts: list[int], warps: int, xor: bool) -> Ints:
    terms: Ints = _bits(warps) * np.array(parts, np.int64)[:, None, None]
    total: Ints = base ^ np.bitwise_xor.reduce(terms) if xor else base + terms.sum(0)
    return total


def _text(base: int, parts: list[int], bits: list[tuple[str, int]], warps: int, xor: bool) -> str:
    terms: list[str] = []
    i = 0
    while i < len(bits):
        name, b = bits[i]
        v = parts[i]
        n = 1
        while i + n < len(bits) and bits[i + n][0] == name and v and parts[i + n] == v << n:
            n += 1
        # Bits of the products must not meet, or the sum of a run would differ from its exclusive or.
        if xor:
            n = next(m for m in range(n, 0, -1) if _disjoint(v, m))
        if v:
            terms.append(_run(name, b, n, v, 5 if name == "lane" else warps.bit_length() - 1))
        i += n
    if base:
        terms.append(str(base))
    if not terms:
        return "0"
    return (" ^ " if xor else " + ").join(terms)


def _disjoint(v: int, n: int) -> bool:
    return all(not (v << i) & (v << j) for i in range(n) for j in range(i))


def _run(name: str, bit: int, n: int, v: int, width: int) -> str:
    """v · (bits bit … bit + n - 1 of the variable)."""
    whole = bit == 0 and n == width
    field = name
    if not whole:
        if bit == 0:
            field = f"{name} % {1 << n}"
        elif bit + n == width:
            field = f"{name} / {1 << bit}"
        else:
            field = f"{name} / {1 << bit} % {1 << n}"
    if v == 1:
        return field if whole else f"({field})"
    return f"{field} * {v}"
