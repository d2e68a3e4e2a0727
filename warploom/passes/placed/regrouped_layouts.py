"""Layout rules of reshapes, of parts of tiles, and of tiles made of parts: not every layout of one side has
one of the other, so that `settle` searches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from warploom.errors import CompileError, InternalError
from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.layout import Layout, blocked, whole
from warploom.passes.placed.memory_tiles import shape_of_tile
from warploom.passes.placed.task_layouts import (
    Flow,
    LayoutRule,
    Settled,
    TaskLayouts,
)

LARGEST_WHOLE = 256  # elements that a thread may have to hold alone: its registers


def _only_units(o: Op) -> bool:
    """Does a reshape add and drop nothing but axes of size 1?"""
    old, new = shape_of_tile(o.operands[0]), shape_of_tile(o.result)
    kept = [n for n in old if n != 1]
    return kept != [] and kept == [n for n in new if n != 1]


def _without_units(o: Op, y: Layout) -> Settled:
    """The operand's layout, which there always is where only axes of size 1 differ."""
    x = y
    for axis in reversed(range(len(y.shape))):
        x = x.drop(axis) if y.shape[axis] == 1 else x
    for axis, n in enumerate(shape_of_tile(o.operands[0])):
        x = x.insert(axis) if n == 1 else x
    return Settled((x,), (y,), {"layout": y})


def _regroups(t: TaskLayouts, o: Op) -> None:
    (x,), y = o.operands, o.result
    if x in t.cheap and _only_units(o):
        t.cheap.add(y)
        return
    t.flow(x, y, lambda layout: layout.reshape(shape_of_tile(y)))
    t.flow(y, x, lambda layout: layout.reshape(shape_of_tile(x)))


def _regrouped(t: TaskLayouts, o: Op) -> Settled:
    x, y = _reshaped(t, o)
    return Settled((x,), (y,), {"layout": y})


def _reshaped(t: TaskLayouts, o: Op) -> tuple[Layout, Layout]:
    """Layouts of a reshape's operand and result."""
    old, new = shape_of_tile(o.operands[0]), shape_of_tile(o.result)
    back, there = t.layout[o.result].reshape(old), t.of(o.operands[0]).reshape(new)
    if back is not None:
        return back, t.layout[o.result]
    if there is not None:
        return t.of(o.operands[0]), there
    pairs: list[tuple[Layout | None, Layout | None]]
    pairs = [(y.reshape(old), y) for y in _plain(new, t.warps)]
    pairs += [(x, x.reshape(new)) for x in _plain(old, t.warps)]
    found = [(x, y) for x, y in pairs if x is not None and y is not None]
    if found:
        return min(found, key=lambda pair: pair[1].registers)
    if math.prod(old) <= LARGEST_WHOLE:
        return whole(old, t.warps), whole(new, t.warps)
    dims = ["x".join(map(str, s)) for s in (old, new)]
    raise CompileError(
        "reshape-layout",
        f"{dims[0]} can't be reshaped to {dims[1]}: no division of the elements among threads fits "
        f"both shapes, and one thread doesn't hold more than {LARGEST_WHOLE}",
        o.loc,
        help="use shapes whose sizes are powers of two",
    )


def _plain(shape: tuple[int, ...], warps: int) -> Iterator[Layout]:
    """Simple layouts of a shape: spread over threads along all axes, or along one of them."""
    inner = len(shape) - 1
    yield blocked(shape, inner, 1, warps)
    for axis in range(len(shape)):
        one = tuple(n if a == axis else 1 for a, n in enumerate(shape))
        yield blocked(one, axis, 1, warps).broadcast(shape)


def _slices(t: TaskLayouts, o: Op) -> None:
    offset, shape = o.attrs["offset"], o.attrs["shape"]
    size = shape_of_tile(o.operands[0])
    t.flow(o.operands[0], o.result, _cutter(offset, shape))
    t.flow(o.result, o.operands[0], lambda y: _continued(y, offset, size))


def _sliced(t: TaskLayouts, o: Op) -> Settled:
    x, offset, shape = o.operands[0], o.attrs["offset"], o.attrs["shape"]
    size, inner = shape_of_tile(x), len(shape) - 1
    candidates = [t.of(x)]
    if all(n % m == 0 for n, m in zip(size, shape, strict=True)):
        counts = [n // m for n, m in zip(size, shape, strict=True)]
        plain = blocked(shape, inner, 1, t.warps)
        parts = [y for y in (t.layout[o.result], plain) if not y.overhangs]
        candidates += [y.product(counts) for y in parts]
    candidates.append(_divisible(t, size, [n != m for n, m in zip(size, shape, strict=True)]))
    for y in candidates:
        part = _part(y, offset, shape)
        if part is not None:
            return Settled((y,), (part,), {"layout": part})
    raise InternalError(f"assign_layouts: no layout lets {shape} at {offset} be cut from {x.type}")


def _divisible(t: TaskLayouts, size: tuple[int, ...], cut: Sequence[bool]) -> Layout:
    """A layout that can be cut anywhere along some axes: threads share out the others, and each holds
    all of those."""
    kept = tuple(1 if c else n for n, c in zip(size, cut, strict=True))
    return blocked(kept, len(size) - 1, 1, t.warps).broadcast(size)


def _joins(t: TaskLayouts, o: Op) -> None:
    equal = len({shape_of_tile(v) for v in o.operands}) == 1
    for v, offset in zip(o.operands, tile.concat_offsets(o), strict=True):
        t.flow(o.result, v, _cutter(offset, shape_of_tile(v)))
        if equal:
            t.flow(v, o.result, _repeater(o.attrs["axis"], len(o.operands)))


def _joined(t: TaskLayouts, o: Op) -> Settled:
    size = shape_of_tile(o.result)
    last = _divisible(t, size, [a == o.attrs["axis"] for a in range(len(size))])
    for joined in (t.of(o.result), last):
        cuts = zip(o.operands, tile.concat_offsets(o), strict=True)
        parts = [_part(joined, offset, shape_of_tile(v)) for v, offset in cuts]
        if None not in parts:
            return Settled(tuple(parts), (joined,), {"layout": joined})
    raise InternalError(f"assign_layouts: no layout of {o.result.type} is made of its parts")


def _cutter(offset: tuple[int, ...], shape: tuple[int, ...]) -> Flow:
    return lambda x: _part(x, offset, shape)


def _repeater(axis: int, count: int) -> Flow:
    """From a part's layout to that of `count` such parts along an axis."""

    def whole(x: Layout) -> Layout | None:
        counts = [count if a == axis else 1 for a in range(len(x.shape))]
        return None if x.overhangs else x.product(counts)

    return whole


def _part(x: Layout, offset: tuple[int, ...], shape: tuple[int, ...]) -> Layout | None:
    found = x.slice(offset, shape)
    return None if found is None else found[0]


def _continued(y: Layout, offset: tuple[int, ...], whole: tuple[int, ...]) -> Layout | None:
    """From the layout of the part at `offset` to one of the whole that goes on alike."""
    unit = tuple(math.gcd(*at) for at in zip(y.shape, offset, whole, strict=True))
    found = _part(y, (0,) * len(unit), unit)
    if found is None or found.overhangs:
        return None
    x = found.product([n // m for n, m in zip(whole, unit, strict=True)]).merged()
    return x if _part(x, offset, y.shape) == y else None


RESHAPE = LayoutRule(_regroups, _regrouped, _without_units, searches=True)
SLICE = LayoutRule(_slices, _sliced, searches=True)
CONCAT = LayoutRule(_joins, _joined, searches=True)
