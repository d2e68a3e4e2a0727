"""Where a tile's elements live: the one essay of the code base.

A tile in registers is spread over the threads of a replica.  A *layout* answers one question: which
element does register `r` of lane `l` of warp `w` hold?

**The atom.**  Hardware answers it with shifts and masks.  In the accumulator of a wgmma m64nN
instruction, bit 0 of the register number moves one column, bit 1 moves eight rows, lane bits 0 and 1
move two and four columns, lane bits 2 to 4 one, two and four rows, and the warp's two bits sixteen and
thirty-two rows.  So a layout is a list of coordinate vectors, one for each bit of register, lane and
warp, and the coordinate of an element is the exclusive or of the vectors whose bits are set.  Such a map
is linear over F2 (the field of two elements, where addition is exclusive or), and so everything that one
wants to know of it is linear algebra: a projection is the map with an axis struck out, a permutation of
axes permutes vector entries, two maps put the same elements into the same thread exactly if their lane
and warp vectors agree modulo what their registers span.  A zero vector means replication: threads that
differ in that bit alone hold the same element.

**The repeats.**  Linear maps alone only know powers of two, and the fastest GEMM tiles have N = 96, 112,
176 or 192.  So the atom is repeated any whole number of times along an axis, in registers: a repeat
(axis, count, step) adds i·step to the coordinate for its i-th copy.  Register numbers count the atom's bits
first, then the repeats as a mixed-radix number whose first entry varies fastest:

    register = atom bits + 2^len(reg) · (i0 + count0 · (i1 + count1 · (...)))
    coordinate = XOR of the vectors of all set bits + Σ i_k · step_k on axis_k

Example, wgmma's accumulator of 64×96 (`wgmma_acc(64x96)`): reg (0,1) (8,0); lane (0,2) (0,4) (1,0) (2,0)
(4,0); warp (16,0) (32,0); one repeat (axis 1, count 12, step 8).  Its 48 registers are the instruction's.

**Overhang.**  Where the atom doesn't divide an axis (5 rows over 32 lanes), coordinates beyond the shape
exist.  Whoever reads or writes memory, or reduces, leaves those elements out: `overhangs` tells.

**Equality.**  The same map can be written in several ways (two register bits of 8 and 16 columns are a repeat
of four by 8).  Layouts compare equal if they are the same map with the same register numbering; then tile
types that hold them are equal too and no conversion stands between them.  `permutation` asks less: the same
elements in every thread, registers in any order, so that a conversion costs nothing.

**Algebra.**  `drop` strikes out an axis (what a reduction leaves; its lane and warp bits become zero vectors:
every thread of the group that shared a row now holds the result).  `insert` adds an axis of extent 1,
so `drop` then `insert` is the layout that a broadcast along the axis needs.  `permute` transposes, `slice`
picks whole registers, `product` repeats a layout over a larger tile, `holders` inverts it (who holds
an element).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = tuple[int, ...]
Coords: TypeAlias = tuple[npt.NDArray[np.int64], ...]
Index: TypeAlias = int | npt.NDArray[Any]
_Written: TypeAlias = tuple[
    tuple[int, ...],
    tuple[Vector, ...],
    tuple[Vector, ...],
    tuple[Vector, ...],
    tuple[tuple[int, int, int], ...],
]

LANE_BITS = 5


@dataclass(frozen=True, eq=False)
class Layout:
    """One layout; see the module's docstring.

    Raises ValueError on vectors of the wrong rank, fewer or more than 5 lane vectors, and repeats
    that name no axis.
    """

    shape: tuple[int, ...]  # of the tile
    reg: tuple[Vector, ...]  # one coordinate vector a bit of the register index, inside the atom
    lane: tuple[Vector, ...]  # 5 vectors, one a bit of the lane
    warp: tuple[Vector, ...]  # log2(warps) vectors, one a bit of the warp's index in the replica
    repeats: tuple[tuple[int, int, int], ...] = ()  # (axis, count, step), the first varies fastest

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if len(self.lane) != LANE_BITS:
            raise ValueError(f"a layout has {LANE_BITS} lane vectors, not {len(self.lane)}")
        for v in (*self.reg, *self.lane, *self.warp):
            if len(v) != rank:
                raise ValueError(f"{v} is no coordinate of a tile of rank {rank}")
        for axis, count, step in self.repeats:
            if not 0 <= axis < rank or count < 1 or step < 0:
                raise ValueError(f"bad repeat ({axis}, {count}, {step}) of a tile of rank {rank}")

    # ---- sizes

    @cached_property
    def registers(self) -> int:
        """Elements that each thread holds (replicated and overhanging ones included)."""
        return math.prod((c for _, c, _ in self.repeats), start=1 << len(self.reg))

    @property
    def warps(self) -> int:
        return 1 << len(self.warp)

    @cached_property
    def copies(self) -> tuple[int, int]:
        """The bits of the lane and of the warp in which threads differ that hold the same elements."""
        lane, warp = (
            sum(1 << b for b, v in enumerate(vectors) if not any(v))
            for vectors in (self.lane, self.warp)
        )
        return lane, warp

    @property
    def threads(self) -> int:
        """Threads of the replica."""
        return 32 * self.warps

    # ---- the map

    def coords(self, reg: Index, lane: Index, warp: Index = 0) -> Coords:
        """The coordinates that register `reg` of lane `lane` of warp `warp` holds: one int64 array an axis.

        Integers and integer arrays broadcast against each other.
        """
        r, t, w = (np.asarray(x, np.int64) for x in (reg, lane, warp))
        copy = r >> len(self.reg)
        out = []
        for axis in range(len(self.shape)):
            c = np.zeros(np.broadcast_shapes(r.shape, t.shape, w.shape), np.int64)
            for index, vectors in ((r, self.reg), (t, self.lane), (w, self.warp)):
                for bit, v in enumerate(vectors):
                    if v[axis]:
                        c = c ^ (((index >> bit) & 1) * v[axis])
            out.append(c)
        for axis, count, step in self.repeats:
            out[axis] = out[axis] + (copy % count) * step
            copy = copy // count
        return tuple(out)

    @cached_property
    def table(self) -> Coords:
        """coords of everything: arrays of shape (warps, 32, registers), one an axis."""
        return self.coords(
            np.arange(self.registers)[None, None, :],
            np.arange(32)[None, :, None],
            np.arange(self.warps)[:, None, None],
        )

    @cached_property
    def overhangs(self) -> bool:
        """Are there coordinates beyond the shape?"""
        return any(int(c.max()) >= n for c, n in zip(self.table, self.shape, strict=True))

    @cached_property
    def is_replicated(self) -> bool:
        """Is some element held more than once?"""
        flat = self.flat[self.inside]
        return _distinct(flat) != flat.size

    @cached_property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Where the coordinates of `table` are inside the tile."""
        return inside_of(self.table, self.shape)

    @cached_property
    def flat(self) -> npt.NDArray[np.int64]:
        """Row-major element number of everything in `table` (meaningless outside the shape)."""
        return row_major(self.table, self.shape)

    def holders(self) -> npt.NDArray[np.int64]:
        """The inverse: who holds each element, as an array of the tile's shape and a last axis of 3 (warp,
        lane, register); of several holders the lowest, -1 where there is none."""
        out = np.full((math.prod(self.shape), 3), -1, np.int64)
        inside, flat = self.inside.reshape(-1), self.flat.reshape(-1)
        where = np.flatnonzero(inside)[::-1]  # the lowest is written last and stays
        for column, index in enumerate(np.unravel_index(where, self.table[0].shape)):
            out[flat[where], column] = index
        return out.reshape(*self.shape, 3)

    # ---- comparing

    @cached_property
    def digits(self) -> tuple[tuple[Vector, int], ...]:
        """The register index as mixed-radix digits (vector, count), fastest first, merged as far as they
        go: the i-th value of a digit adds i·vector.  Atom bits whose exclusive or can carry stay alone."""
        rank = len(self.shape)
        crowded = [0] * rank  # bits of an axis that more than one atom vector touches
        seen = [0] * rank
        for v in (*self.reg, *self.lane, *self.warp):
            for axis in range(rank):
                crowded[axis] |= seen[axis] & v[axis]
                seen[axis] |= v[axis]
        digits: list[tuple[Vector, int, bool]] = []  # the flag: adding is what its map does
        for v in self.reg:
            adds = all((x & (x - 1)) == 0 and not x & crowded[a] for a, x in enumerate(v))
            digits.append((v, 2, adds))
        for axis, count, step in self.repeats:
            digits.append((tuple(step if a == axis else 0 for a in range(rank)), count, True))
        merged: list[tuple[Vector, int, bool]] = []
        for v, count, adds in digits:
            if count == 1:
                continue
            if merged and adds and merged[-1][2]:
                u, n, _ = merged[-1]
                if tuple(x * n for x in u) == v:
                    merged[-1] = (u, n * count, True)
                    continue
            merged.append((v, count, adds))
        return tuple((v, count) for v, count, _ in merged)

    @cached_property
    def _written(self) -> _Written:
        """Its fields: what it is called in memos, where equal maps may be written otherwise."""
        return self.shape, self.reg, self.lane, self.warp, self.repeats

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.shape, self.lane, self.warp, self.digits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def permutation(self, dst: Layout) -> tuple[int, ...] | None:
        """For each register of `dst` the register of this layout that holds its element, in every thread the
        same; None where there are no such registers (elements outside the shape don't matter)."""
        if self.shape != dst.shape or self.threads != dst.threads:
            return None
        return self.registers_at(dst.table, dst.inside)

    def registers_at(
        self, at: Sequence[npt.NDArray[np.int64]], inside: npt.NDArray[np.bool_]
    ) -> tuple[int, ...] | None:
        """For each register of `at`, coordinates of (warps, lanes, registers), the first register of this
        layout that holds them in every thread where `inside`; None where there is none."""
        have = np.where(self.inside, self.flat, -1)
        want = row_major(at, self.shape)
        first = np.argmax(have[0, 0, :, None] == want[0, 0], axis=0)  # what the first thread takes
        good = ((have[..., first] == want) | ~inside).all(axis=(0, 1)) & inside[0, 0]
        for r in np.flatnonzero(~good):
            match = ((have == want[..., r : r + 1]) | ~inside[..., r, None]).all(axis=(0, 1))
            if not match.any():
                return None
            first[r] = np.argmax(match)
        return tuple(first.tolist())

    def contiguous(self, axis: int) -> int:
        """Elements adjacent along `axis` in consecutive registers, aligned: a power of two, the widest vector
        access that memory with that inner axis allows."""
        if not self.digits:
            return 1
        unit = tuple(int(a == axis) for a in range(len(self.shape)))
        (v, count), *others = self.digits
        if v != unit:
            return 1
        # Everything else must keep groups aligned: an address that is no multiple of the width traps.
        moves = [u[axis] for u, _ in others]
        moves += [u[axis] for u in (*self.lane, *self.warp)]
        return math.gcd(count & -count, *(m & -m for m in moves if m))

    # ---- algebra

    def _map(self, shape: Sequence[int], vector: Callable[[Vector], Vector]) -> Layout:
        """Every vector through `vector`; register bits and repeats that become zero vanish."""
        rank = len(self.shape)
        repeats = []
        for axis, count, step in self.repeats:
            v = vector(tuple(step if a == axis else 0 for a in range(rank)))
            if any(v):
                at = next(a for a, x in enumerate(v) if x)
                repeats.append((at, count, v[at]))
        return Layout(
            tuple(shape),
            tuple(u for u in map(vector, self.reg) if any(u)),
            tuple(map(vector, self.lane)),
            tuple(map(vector, self.warp)),
            tuple(repeats),
        )

    def drop(self, axis: int) -> Layout:
        """Without an axis: what a reduction along it leaves.  Its registers vanish; its lane and warp bits
        become replication (every thread that held a part holds the result)."""
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        return self._map(shape, lambda v: v[:axis] + v[axis + 1 :])

    def insert(self, axis: int) -> Layout:
        """With a new axis of extent 1 before `axis` (expand_dims)."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return self._map(shape, lambda v: (*v[:axis], 0, *v[axis:]))

    def permute(self, perm: Sequence[int]) -> Layout:
        """Axis i of the result is axis perm[i] of this."""
        return self._map([self.shape[p] for p in perm], lambda v: tuple(v[p] for p in perm))

    def unbroadcast(self, shape: Sequence[int]) -> Layout:
        """The layout of a tile of `shape` (axes of extent 1 where it is to be repeated) that broadcasts into
        this one without moving anything."""
        out = self
        for axis, n in enumerate(shape):
            if n == 1 and self.shape[axis] != 1:
                out = out.drop(axis).insert(axis)
        return out

    def broadcast(self, shape: Sequence[int]) -> Layout:
        """This layout's tile with axes of extent 1 repeated to `shape`, in registers."""
        more = tuple(
            (axis, n, 1)
            for axis, (n, m) in enumerate(zip(shape, self.shape, strict=True))
            if m == 1 and n != 1
        )
        return Layout(tuple(shape), self.reg, self.lane, self.warp, self.repeats + more)

    def spread(self, shape: Sequence[int]) -> Layout:
        """As `broadcast`, but threads that hold the same elements of this hold different ones of that, as far
        as there are such threads."""
        lane, warp, repeats = list(self.lane), list(self.warp), list(self.repeats)
        for axis, (n, m) in enumerate(zip(shape, self.shape, strict=True)):
            step = 1
            for bits in (lane, warp) if m == 1 else ():
                for b, v in enumerate(bits):
                    if not any(v) and n % (2 * step) == 0:
                        bits[b] = tuple(step * (a == axis) for a in range(len(shape)))
                        step *= 2
            if m == 1 and n > step:
                repeats.append((axis, n // step, step))
        return Layout(tuple(shape), self.reg, tuple(lane), tuple(warp), tuple(repeats))

    def product(self, counts: Sequence[int]) -> Layout:
        """This layout repeated counts[axis] times along each axis, in registers, lower axes outermost.

        The tile must not overhang on an axis that is repeated.
        """
        more = tuple(
            (axis, counts[axis], self.shape[axis])
            for axis in reversed(range(len(counts)))
            if counts[axis] > 1
        )
        shape = tuple(n * c for n, c in zip(self.shape, counts, strict=True))
        return Layout(shape, self.reg, self.lane, self.warp, self.repeats + more)

    def merged(self) -> Layout:
        """The same map with repeats that go on where the one before ends written as one: equal texts."""
        repeats: list[tuple[int, int, int]] = []
        for axis, count, step in self.repeats:
            if repeats and repeats[-1][0] == axis and repeats[-1][1] * repeats[-1][2] == step:
                _, n, first = repeats.pop()
                count, step = n * count, first
            repeats.append((axis, count, step))
        return Layout(self.shape, self.reg, self.lane, self.warp, tuple(repeats))

    def reshape(self, shape: Sequence[int]) -> Layout | None:
        """The same threads holding the same elements of the tile in row-major order under another shape; None
        where that is no layout."""
        return _reshaped(self._written, tuple(shape))

    def _reshaped(self, sizes: tuple[int, ...]) -> Layout | None:
        strides = [math.prod(sizes[a + 1 :]) for a in range(len(sizes))]
        mine = [math.prod(self.shape[a + 1 :]) for a in range(len(self.shape))]

        def vector(v: Vector) -> Vector:
            flat = sum(x * s for x, s in zip(v, mine, strict=True))
            return tuple(flat // s % n for s, n in zip(strides, sizes, strict=True))

        repeats: list[tuple[int, int, int]] = []
        for axis, count, step in self.repeats:
            flat = step * mine[axis]
            while count > 1:  # cut where the repeat runs over the end of a new axis
                at = next((a for a, s in enumerate(strides) if s <= flat), len(sizes) - 1)
                room = max(1, sizes[at] * strides[at] // max(1, flat))
                here = count if at == 0 else math.gcd(count, room)
                if flat % strides[at] or (here == 1 and count > 1):
                    return None
                repeats.append((at, here, flat // strides[at]))
                flat, count = flat * here, count // here
        lane, warp, reg = (tuple(map(vector, vs)) for vs in (self.lane, self.warp, self.reg))
        out = Layout(sizes, reg, lane, warp, tuple(repeats))
        inside = self.inside
        same = np.array_equal(out.inside, inside)
        return out if same and np.array_equal(out.flat[inside], self.flat[inside]) else None

    def slice(
        self, offset: Sequence[int], shape: Sequence[int]
    ) -> tuple[Layout, tuple[int, ...]] | None:
        """The part that starts at `offset`: its layout, and the register of this layout that each of its
        registers is.  None where the cut doesn't fall on whole registers, or their order is no layout's."""
        return _part(self._written, tuple(offset), tuple(shape))

    def _part(
        self, offset: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[Layout, tuple[int, ...]] | None:
        inside = np.ones(self.table[0].shape, np.bool_)
        for c, o, n, whole in zip(self.table, offset, shape, self.shape, strict=True):
            if n != whole:
                inside &= (c >= o) & (c < o + n)
        # A register that is cut between threads can only be kept where the tile itself ends there.
        if self.overhangs:
            inside |= ~self.inside
            some = (inside & self.inside).any(axis=(0, 1))
        else:
            some = inside.any(axis=(0, 1))
        all_ = inside.all(axis=(0, 1))
        if (some & ~all_).any():
            return None
        registers = tuple(int(r) for r in np.flatnonzero(some))
        part = self._sliced(offset, shape)
        if part is None or part.registers != len(registers):
            return None
        chosen = np.array(registers)
        moved = zip((c[..., chosen] for c in self.table), offset, part.table, strict=True)
        if not all(np.array_equal(c - o, d) for c, o, d in moved):
            return None
        return part, registers

    def _sliced(self, offset: Sequence[int], shape: Sequence[int]) -> Layout | None:
        """The digits that stay when an axis is cut to `shape`; whether they fit is slice's to check."""
        digits: list[tuple[Vector, int]] = []
        gap = False  # a digit went after the last one that stays: what follows may go on from it
        for v, count in self.digits:
            axes = [a for a, x in enumerate(v) if x]
            if len(axes) > 1:
                return None
            if axes and _values(v[axes[0]], offset[axes[0]], shape[axes[0]]) <= 1:
                gap = True
                continue
            u, n = digits[-1] if digits else (v, 0)
            if gap and tuple(x * n for x in u) == v:
                digits[-1] = (u, n * count)
            else:
                digits.append((v, count))
            gap = False
        repeats: list[tuple[int, int, int]] = []
        for v, count in digits:
            axis = next((a for a, x in enumerate(v) if x), 0)
            most = _values(v[axis], offset[axis], shape[axis]) if v[axis] else count
            repeats.append((axis, min(count, most), v[axis]))
        reg: list[Vector] = []  # the atom's bits as far as they survived
        for v in self.reg:
            axis, count, step = repeats[0] if repeats else (0, 1, 0)
            if count % 2 or v != tuple(step if a == axis else 0 for a in range(len(shape))):
                break
            reg.append(v)
            repeats[:1] = [(axis, count // 2, step * 2)] if count > 2 else []
        return Layout(tuple(shape), tuple(reg), self.lane, self.warp, tuple(repeats))

    # ---- text

    def __str__(self) -> str:
        for name, (_, recognise) in NAMED.items():
            arguments = recognise(self)
            if arguments is not None:
                return f"{name}({arguments})"

        def vectors(vs: Sequence[Sequence[int]]) -> str:
            return "".join(f"({','.join(map(str, v))})" for v in vs)

        parts = ["x".join(map(str, self.shape))]
        for name, vs in (("reg", self.reg), ("lane", self.lane), ("warp", self.warp)):
            if vs:
                parts.append(f"{name}={vectors(vs)}")
        if self.repeats:
            parts.append(f"rep={vectors(self.repeats)}")
        return f"layout({', '.join(parts)})"

    @staticmethod
    def parse(text: str) -> Layout:
        """Inverse of str(): `layout(64x8, reg=(0,1), lane=…, warp=…, rep=(axis,count,step))`, or the short
        form of a known atom, `wgmma_acc(64x256)`.  Raises ValueError on anything else."""
        m = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text, re.DOTALL)
        if m is None:
            raise ValueError(f"no layout: {text!r}")
        name, arguments = m.groups()
        if name in NAMED:
            return NAMED[name][0](arguments)
        if name != "layout":
            raise ValueError(f"unknown layout {name!r}; known are layout, {', '.join(NAMED)}")
        shape, *fields = re.split(r"\s*,\s*(?=[a-z])", arguments.strip())
        values: dict[str, tuple[Vector, ...]] = {"reg": (), "lane": (), "warp": (), "rep": ()}
        for f in fields:
            key, _, body = f.partition("=")
            if key not in values or not re.fullmatch(r"(\(\s*\d+\s*(,\s*\d+\s*)*\)\s*)*", body):
                raise ValueError(f"bad field {f!r} of a layout")
            groups = re.findall(r"\(([^)]*)\)", body)
            values[key] = tuple(tuple(int(x) for x in g.split(",")) for g in groups)
        if any(len(r) != 3 for r in values["rep"]):
            raise ValueError(f"a repeat is (axis,count,step): {text!r}")
        repeats = tuple((a, c, s) for a, c, s in values["rep"])
        return Layout(parse_shape(shape), values["reg"], values["lane"], values["warp"], repeats)


# A program has few layouts, whose parts are asked for again and again.


@lru_cache(maxsize=1024)
def _reshaped(written: _Written, shape: tuple[int, ...]) -> Layout | None:
    return Layout(*written)._reshaped(shape)


@lru_cache(maxsize=1024)
def _part(
    written: _Written, offset: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Layout, tuple[int, ...]] | None:
    return Layout(*written)._part(offset, shape)


def row_major(at: Sequence[npt.NDArray[np.int64]], shape: Sequence[int]) -> npt.NDArray[np.int64]:
    """The number of each element in a tile of this shape."""
    flat = np.zeros(at[0].shape, np.int64)
    for c, n in zip(at, shape, strict=True):
        flat = flat * n + c
    return flat


def inside_of(at: Sequence[npt.NDArray[np.int64]], shape: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Where coordinates are inside a tile of this shape."""
    found: npt.NDArray[np.bool_] = np.all([c < n for c, n in zip(at, shape, strict=True)], axis=0)
    return found


def _distinct(numbers: npt.NDArray[Any]) -> int:
    """How many different ones: without np.unique, whose first call imports numpy.ma (20 ms)."""
    return len(set(numbers.reshape(-1).tolist()))


def parse_shape(text: str) -> tuple[int, ...]:
    """`64x256` as (64, 256).  Raises ValueError."""
    return tuple(int(n) for n in text.strip().split("x"))


# Short forms of str() and parse(): name -> (arguments' text to layout, layout to that text or None).
# layout/atoms.py fills it in.
NAMED: dict[str, tuple[Callable[[str], Layout], Callable[[Layout], str | None]]] = {}


def _values(step: int, offset: int, size: int) -> int:
    """How many values of a digit fall into `size` elements from `offset` on."""
    return -(-(size - offset % step) // step)
