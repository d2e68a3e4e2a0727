"""Register layouts by modes, as Tilus writes them: `spatial(4, 8).local(2, 2)`.

Each axis of a tile is divided into modes, the first the most significant.  The modes that are *spatial*
number the threads, those that are *local* the registers of each, the last one named varying fastest.  A
product replaces every element of the outer layout by the whole inner one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from warploom.layout.linear import LANE_BITS, Layout, Vector


@dataclass(frozen=True)
class RegisterLayout:
    """shape: of the tile.  mode_shape: the modes' sizes, those of axis 0 first.  spatial_modes, local_modes:
    which modes number threads and registers; -n among the spatial ones: n threads that hold the same.

    Raises ValueError where the modes do not make up the shape.

    >>> spatial(8, 4).local(1, 2)
    RegisterLayout(shape=(8, 8), mode_shape=(8, 4, 2), spatial_modes=(0, 1), local_modes=(2,))
    """

    shape: tuple[int, ...]
    mode_shape: tuple[int, ...]
    spatial_modes: tuple[int, ...]
    local_modes: tuple[int, ...]

    def __post_init__(self) -> None:
        used = sorted(m for m in (*self.spatial_modes, *self.local_modes) if m >= 0)
        if used != list(range(len(self.mode_shape))):
            raise ValueError(f"each of {len(self.mode_shape)} modes is spatial or local: {used}")
        sizes = tuple(math.prod(self.mode_shape[m] for m in group) for group in self.axes)
        if sizes != self.shape:
            raise ValueError(f"modes of {self.mode_shape} do not make up {self.shape}")

    @property
    def axes(self) -> tuple[range, ...]:
        """The modes of each axis."""
        found, at = [], 0
        for n in self.shape:
            first, size = at, 1
            while size < n and at < len(self.mode_shape):
                size *= self.mode_shape[at]
                at += 1
            found.append(range(first, at))
        return tuple(found)

    @property
    def spatial_size(self) -> int:
        """Threads that hold it."""
        return self.threads

    @property
    def local_size(self) -> int:
        """Elements that each of them holds."""
        return math.prod(self.mode_shape[m] for m in self.local_modes)

    @property
    def size(self) -> int:
        """Elements of the tile."""
        return math.prod(self.shape)

    @property
    def threads(self) -> int:
        return math.prod(-m if m < 0 else self.mode_shape[m] for m in self.spatial_modes)

    # ---- building

    def __mul__(self, inner: RegisterLayout) -> RegisterLayout:
        """Every element of this layout a whole `inner` one.  The one with fewer axes lacks leading ones, of
        size 1."""
        rank = max(len(self.shape), len(inner.shape))
        self, inner = _of_rank(self, rank), _of_rank(inner, rank)
        modes: list[int] = []
        outer_as: dict[int, int] = {}
        inner_as: dict[int, int] = {}
        for ours, its in zip(self.axes, inner.axes, strict=True):
            for x, group, named in ((self, ours, outer_as), (inner, its, inner_as)):
                for m in group:
                    named[m] = len(modes)
                    modes.append(x.mode_shape[m])

        def both(outer: Sequence[int], its: Sequence[int]) -> tuple[int, ...]:
            return tuple([outer_as.get(m, m) for m in outer] + [inner_as.get(m, m) for m in its])

        return RegisterLayout(
            tuple(a * b for a, b in zip(self.shape, inner.shape, strict=True)),
            tuple(modes),
            both(self.spatial_modes, inner.spatial_modes),
            both(self.local_modes, inner.local_modes),
        )

    def spatial(self, *shape: int, ranks: Sequence[int] | None = None) -> RegisterLayout:
        return self * spatial(*shape, ranks=ranks)

    def local(self, *shape: int, ranks: Sequence[int] | None = None) -> RegisterLayout:
        return self * local(*shape, ranks=ranks)

    def column_spatial(self, *shape: int) -> RegisterLayout:
        return self * column_spatial(*shape)

    def column_local(self, *shape: int) -> RegisterLayout:
        return self * column_local(*shape)

    # ---- what it is

    def bits(self) -> Layout:
        """The same layout as bits of lane and warp, and repeats in registers.  Raises ValueError where the
        threads are no whole warps, or a thread's number is no bits of a coordinate."""
        step: dict[int, Vector] = {}
        for axis, group in enumerate(self.axes):
            size = 1
            for m in reversed(group):
                step[m] = tuple(size if a == axis else 0 for a in range(len(self.shape)))
                size *= self.mode_shape[m]
        nothing = (0,) * len(self.shape)
        thread: list[Vector] = []
        for m in reversed(self.spatial_modes):
            n, v = (-m, nothing) if m < 0 else (self.mode_shape[m], step[m])
            if n & (n - 1) or any(x & (x - 1) for x in v):
                raise ValueError(
                    f"{self}: {n} threads in steps of {max(v)} are no bits of a coordinate"
                )
            thread += [tuple(x << i for x in v) for i in range(n.bit_length() - 1)]
        if len(thread) < LANE_BITS:
            raise ValueError(f"{self} is of {self.threads} threads, no whole warps")
        repeats = tuple(
            (max(range(len(self.shape)), key=step[m].__getitem__), self.mode_shape[m], max(step[m]))
            for m in reversed(self.local_modes)
            if self.mode_shape[m] > 1
        )
        return Layout(self.shape, (), tuple(thread[:LANE_BITS]), tuple(thread[LANE_BITS:]), repeats)


def _of(shape: Sequence[int], is_spatial: bool, ranks: Sequence[int]) -> RegisterLayout:
    if sorted(ranks) != list(range(len(shape))):
        raise ValueError(f"ranks of {len(shape)} axes are 0 to {len(shape) - 1}: {tuple(ranks)}")
    axes = [a for a, n in enumerate(shape) if n > 1]
    modes = tuple(axes.index(a) for a in sorted(axes, key=ranks.__getitem__))
    sizes = tuple(shape[a] for a in axes)
    return RegisterLayout(
        tuple(shape), sizes, modes if is_spatial else (), () if is_spatial else modes
    )


def spatial(*shape: int, ranks: Sequence[int] | None = None) -> RegisterLayout:
    """A thread for each element, in row-major order.  ranks: of the axes, 0 of the most significant one.
    Raises ValueError where these are no permutation."""
    return _of(shape, True, range(len(shape)) if ranks is None else ranks)


def column_spatial(*shape: int) -> RegisterLayout:
    """A thread for each element, in column-major order."""
    return _of(shape, True, range(len(shape))[::-1])


def local(*shape: int, ranks: Sequence[int] | None = None) -> RegisterLayout:
    """All elements in one thread, in row-major order.  ranks: as for `spatial`."""
    return _of(shape, False, range(len(shape)) if ranks is None else ranks)


def column_local(*shape: int) -> RegisterLayout:
    """All elements in one thread, in column-major order."""
    return _of(shape, False, range(len(shape))[::-1])


def register_layout(
    shape: Sequence[int],
    mode_shape: Sequence[int],
    spatial_modes: Sequence[int],
    local_modes: Sequence[int],
) -> RegisterLayout:
    """The layout of these modes."""
    return RegisterLayout(*map(tuple, (shape, mode_shape, spatial_modes, local_modes)))


def compose(outer: RegisterLayout, inner: RegisterLayout) -> RegisterLayout:
    """outer * inner."""
    return outer * inner


def reduce(layout: RegisterLayout, dims: Sequence[int], keepdims: bool = False) -> RegisterLayout:
    """Without axes `dims` (of size 1 where keepdims): the threads along them hold the same."""
    gone = {m for a in dims for m in layout.axes[a]}
    left = [m for m in range(len(layout.mode_shape)) if m not in gone]
    number = {m: i for i, m in enumerate(left)}
    spatial_modes = tuple(
        m if m < 0 else -layout.mode_shape[m] if m in gone else number[m]
        for m in layout.spatial_modes
    )
    shape = [1 if a in dims else n for a, n in enumerate(layout.shape) if keepdims or a not in dims]
    return RegisterLayout(
        tuple(shape),
        tuple(layout.mode_shape[m] for m in left),
        spatial_modes,
        tuple(number[m] for m in layout.local_modes if m not in gone),
    )


def auto_local_spatial(num_threads: int, shape: Sequence[int]) -> RegisterLayout:
    """local(…).spatial(…) of a shape: neighbouring threads along the last axes, what is left in registers.
    Raises ValueError where the threads do not divide the shape."""
    along: list[int] = []
    left = num_threads
    for n in reversed(shape):
        take = math.gcd(left, n)
        along.insert(0, take)
        left //= take
    if left > 1:
        raise ValueError(f"{num_threads} threads for a tile of {tuple(shape)}")
    return local(*(n // s for n, s in zip(shape, along, strict=True))).spatial(*along)


def replicated(*shape: int, num_workers: int) -> RegisterLayout:
    """All elements in each of so many threads."""
    one = local(*shape)
    return RegisterLayout(one.shape, one.mode_shape, (-num_workers,), one.local_modes)


def permute(layout: RegisterLayout, dims: Sequence[int]) -> RegisterLayout:
    """Axis i of the result is axis dims[i]."""
    order = [m for d in dims for m in layout.axes[d]]
    number = {m: i for i, m in enumerate(order)}

    def renamed(modes: Sequence[int]) -> tuple[int, ...]:
        return tuple(number.get(m, m) for m in modes)

    return RegisterLayout(
        tuple(layout.shape[d] for d in dims),
        tuple(layout.mode_shape[m] for m in order),
        renamed(layout.spatial_modes),
        renamed(layout.local_modes),
    )


def _under(layout: RegisterLayout, shape: Sequence[int]) -> RegisterLayout:
    """The same modes of a tile of another shape."""
    return RegisterLayout(tuple(shape), layout.mode_shape, layout.spatial_modes, layout.local_modes)


def _of_rank(layout: RegisterLayout, rank: int) -> RegisterLayout:
    """With leading axes of size 1."""
    return _under(layout, (*[1] * (rank - len(layout.shape)), *layout.shape))


def flatten(layout: RegisterLayout, start_dim: int = 0, end_dim: int = -1) -> RegisterLayout:
    """One axis of the elements of axes start_dim to end_dim, in row-major order.  Raises ValueError where
    there are no such axes."""
    rank = len(layout.shape)
    end = end_dim + rank if end_dim < 0 else end_dim
    if not 0 <= start_dim <= end < rank:
        raise ValueError(f"axes {start_dim} to {end_dim} of a layout of {layout.shape}")
    whole = math.prod(layout.shape[start_dim : end + 1])
    return _under(layout, (*layout.shape[:start_dim], whole, *layout.shape[end + 1 :]))


def squeeze(layout: RegisterLayout, dims: Sequence[int]) -> RegisterLayout:
    """Without axes `dims`, of size 1.  Raises ValueError where one is larger."""
    return _under(layout, [n for a, n in enumerate(layout.shape) if a not in dims])


def unsqueeze(layout: RegisterLayout, dims: Sequence[int]) -> RegisterLayout:
    """With axes of size 1, numbered in the result."""
    left, rank = iter(layout.shape), len(layout.shape) + len(dims)
    return _under(layout, [1 if a in dims else next(left) for a in range(rank)])


def concat(lhs: RegisterLayout, rhs: RegisterLayout) -> RegisterLayout:
    """The axes of both: every element of lhs's tile a whole tile of rhs, along axes of its own."""
    return _under(lhs, (*lhs.shape, *[1] * len(rhs.shape))) * rhs


def reshape(layout: RegisterLayout, shape: Sequence[int]) -> RegisterLayout:
    """The same elements, in row-major order, under another shape.  Raises ValueError where an axis of it
    would end within a mode that it does not divide, and where the sizes differ."""
    if math.prod(shape) != layout.size:
        raise ValueError(f"a layout of {layout.shape} as one of {tuple(shape)}")
    return _under(_cut(_merged(layout), shape)[0], shape)


def divide(lhs: RegisterLayout, rhs: RegisterLayout) -> RegisterLayout:
    """The layout x with x * rhs = lhs.  Raises ValueError where there is none."""
    return _quotient(lhs, rhs, is_outer=False)


def left_divide(layout: RegisterLayout, lhs_divisor: RegisterLayout) -> RegisterLayout:
    """The layout x with lhs_divisor * x = layout.  Raises ValueError where there is none."""
    return _quotient(layout, lhs_divisor, is_outer=True)


def _quotient(layout: RegisterLayout, by: RegisterLayout, is_outer: bool) -> RegisterLayout:
    """What `by` has to be multiplied with for `layout`: from the left (is_outer) or from the right."""
    failed = ValueError(f"{layout} is no product with {by}")
    by = _of_rank(by, len(layout.shape))
    if len(layout.shape) != len(by.shape) or any(map(int.__mod__, layout.shape, by.shape)):
        raise failed
    shape = tuple(map(int.__floordiv__, layout.shape, by.shape))
    whole, by = _merged(layout), _merged(by)
    wanted: list[int] = []  # sizes of modes, of each axis those of `by` and what is left
    rest: set[int] = set()  # of these, what is left
    for n, group in zip(shape, by.axes, strict=True):
        sizes = [by.mode_shape[m] for m in group]
        rest.add(len(wanted) + (len(sizes) if is_outer else 0))
        wanted += [*sizes, n] if is_outer else [n, *sizes]
    cut, owners = _cut(whole, wanted)
    kept = [m for m, owner in enumerate(owners) if owner in rest]
    number = {m: i for i, m in enumerate(kept)}

    def left(modes: tuple[int, ...], taken: tuple[int, ...]) -> tuple[int, ...]:
        part = modes[len(taken) :] if is_outer else modes[: len(modes) - len(taken)]
        if any(m >= 0 and m not in number for m in part):
            raise failed
        return tuple(number.get(m, m) for m in part)

    spatial_modes = left(cut.spatial_modes, by.spatial_modes)
    local_modes = left(cut.local_modes, by.local_modes)
    if sorted(m for m in (*spatial_modes, *local_modes) if m >= 0) != list(range(len(kept))):
        raise failed
    found = RegisterLayout(
        shape, tuple(cut.mode_shape[m] for m in kept), spatial_modes, local_modes
    )
    if _merged(by * found if is_outer else found * by) != whole:
        raise failed
    return found


def _cut(layout: RegisterLayout, sizes: Sequence[int]) -> tuple[RegisterLayout, list[int]]:
    """The same layout, its modes cut where numbers of these sizes end that make up its size, the first the
    most significant; and to which of the sizes each mode belongs.  Raises ValueError where one can't be."""
    pieces: dict[int, list[int]] = {}
    owners: list[int] = []
    at, room = len(sizes), 1
    for m in reversed(range(len(layout.mode_shape))):
        left, pieces[m] = layout.mode_shape[m], []
        while left > 1:
            while room == 1:
                at -= 1
                room = sizes[at]
            n = min(left, room)
            if left % n or room % n:
                raise ValueError(f"{layout} has a mode that {sizes[at]} elements do not divide")
            pieces[m].insert(0, n)
            owners.insert(0, at)
            left, room = left // n, room // n
    number: dict[int, range] = {}
    for m in range(len(layout.mode_shape)):
        first = sum(map(len, number.values()))
        number[m] = range(first, first + len(pieces[m]))

    def renamed(modes: Sequence[int]) -> tuple[int, ...]:
        return tuple(x for m in modes for x in number.get(m, (m,)))

    mode_shape = tuple(n for m in number for n in pieces[m])
    spatial_modes, local_modes = renamed(layout.spatial_modes), renamed(layout.local_modes)
    return RegisterLayout(layout.shape, mode_shape, spatial_modes, local_modes), owners


def _merged(layout: RegisterLayout) -> RegisterLayout:
    """The same layout of as few modes as can be."""
    groups = (layout.spatial_modes, layout.local_modes)
    follows = {b: a for modes in groups for a, b in pairwise(modes) if a >= 0}
    kept: list[int] = []
    sizes: list[int] = []
    for axis in layout.axes:
        for m in axis:
            if m != axis[0] and follows.get(m) == m - 1:
                sizes[-1] *= layout.mode_shape[m]
            else:
                kept.append(m)
                sizes.append(layout.mode_shape[m])
    number = {m: i for i, m in enumerate(kept)}
    spatial_modes: list[int] = []
    for m in layout.spatial_modes:
        if m < 0 and spatial_modes and spatial_modes[-1] < 0:
            spatial_modes[-1] *= -m
        elif m < 0 or m in number:
            spatial_modes.append(number.get(m, m))
    local_modes = tuple(number[m] for m in layout.local_modes if m in number)
    return RegisterLayout(layout.shape, tuple(sizes), tuple(spatial_modes), local_modes)
