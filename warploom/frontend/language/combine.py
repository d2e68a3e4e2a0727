"""Reductions and scans by any function, on several tiles at once; sorting, counting, rearranging.

A function whose steps the IR can write down (ir/ops/combine.py) is one op.  What it cannot is built of
gathers: a reduction combines neighbours in log2(n) steps, a scan each element with the one 1, 2, 4 … in front
of it, a sort exchanges partners of a bitonic network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from warploom.errors import CompileError
from warploom.frontend.coerce import (
    Operand,
    Tensor,
    calc,
    current,
    describe,
    is_literal,
    static_bool,
    static_int,
)
from warploom.frontend.language.core import builtin, method
from warploom.frontend.language.linear import of_bits, reduced, scanned, widened
from warploom.frontend.language.shape import arange, axis_of, expand_dims, full, reshape, tile_of
from warploom.frontend.refuse import refuse
from warploom.ir.core import Builder, OpKind, Region, Value
from warploom.ir.ops import arith, combine, control, tile
from warploom.ir.types import DTYPE_PREDICATES, DType, Scalar, Tile, i1, i8, i32, shape_of

__all__ = [
    "associative_scan", "bitonic_merge", "cat", "flip", "gather", "histogram", "map_elementwise",
    "reduce", "reduce_or", "sort", "topk",
]  # fmt: skip

Combine = Callable[..., Any]
WRITTEN_OUT = 32  # elements up to which a sort's steps are no loop
IN_BODY = 1 << 15  # elements, counted once a step, up to which a loop's body has several steps
COUNTED = 1 << 15  # comparisons that a histogram makes at once


# ---- elements by their places


@method
def gather(src: Operand, index: Operand, axis: int) -> Tensor:
    """The elements of src at the indices of a tile along an axis: of two axes and along the first,
    result[i, j] = src[index[i, j], j].

    Beside the axis src and index have the same shape.  Indices outside of the axis are not defined."""
    emitter = current()
    x, at = tile_of(src, "gather"), tile_of(index, "gather")
    d = emitter.number(x)
    a = axis_of(axis, len(emitter.shape(x)))
    if not emitter.number(at).is_int:
        refuse("gather-index", f"gather by {describe(index)}", "cast the indices to tl.int32")
    found: Value = emitter.emit(tile.gather, emitter.cast(x, i8) if d == i1 else x, at, axis=a)
    return emitter.cast(found, i1) if d == i1 else found


def _along(row: Operand, rank: int, axis: int) -> Value:
    """A tile of rank 1 as one of `rank` axes that lies along `axis`."""
    found: Value = expand_dims(row, tuple(a for a in range(rank) if a != axis))
    return found


def _take(x: Value, row: Operand, axis: int) -> Value:
    """The elements of x at the places that a tile of rank 1 says, along an axis."""
    emitter = current()
    shape = emitter.shape(x)
    (n,) = emitter.shape(row)
    at = emitter.expand_to(_along(row, len(shape), axis), (*shape[:axis], n, *shape[axis + 1 :]))
    found: Value = gather(x, at, axis)
    return found


# ---- by any function


@method
def associative_scan(input: Any, axis: int, combine_fn: Combine, reverse: bool = False) -> Any:
    """Each element combined with all before it along an axis (reverse: after it).

    input: a tile, or a tuple of tiles of one shape.  combine_fn: an associative kernel function of two
    elements (a0, a1 …, b0, b1 … of a tuple, a before b), which gives one."""
    parts, what = _tiles(input, "associative_scan"), "associative_scan"
    back, shape = static_bool(reverse, "reverse"), current().shape(parts[0])
    a = axis_of(axis, len(shape))
    how = _trial(combine_fn, parts, what)
    found: tuple[Value, ...]
    if how.name is not None:
        found = (scanned(parts[0], a, back, how.name),)
    elif how.text is not None and _is_power_of_two(shape[a]):
        found = _several(combine.scan_by, parts, axis=a, combine=how.text, reverse=back)
    else:
        found = _scan(parts, a, combine_fn, back)
    return found if isinstance(input, tuple) else found[0]


@method
def reduce(input: Any, axis: int | None, combine_fn: Combine, keep_dims: bool = False) -> Any:
    """The elements along an axis (all axes without one) combined; input and combine_fn as of
    associative_scan."""
    parts = _tiles(input, "reduce")
    how = _trial(combine_fn, parts, "reduce")
    if how.name is not None:
        found = reduced(parts[0], axis, keep_dims, how.name)
        return (found,) if isinstance(input, tuple) else found
    rank = len(current().shape(parts[0]))
    axes = range(rank) if axis is None else [axis_of(axis, rank)]
    for a in reversed(axes):
        if how.text is not None and _is_power_of_two(current().shape(parts[0])[a]):
            parts = _several(combine.reduce_by, parts, axis=a, combine=how.text)
        else:
            parts = _fold(parts, a, combine_fn)
    if static_bool(keep_dims, "keep_dims"):
        parts = tuple(expand_dims(p, tuple(axes)) for p in parts)
    return parts if isinstance(input, tuple) else parts[0]


def _tiles(input: Any, what: str) -> tuple[Value, ...]:
    """The tiles that are combined together.  Refuses those of several shapes."""
    parts = tuple(tile_of(x, what) for x in (input if isinstance(input, tuple) else (input,)))
    if len({current().shape(p) for p in parts}) != 1:
        given = ", ".join(map(describe, parts)) or "no tile"
        refuse("shape-mismatch", f"{what} of {given}", "give tiles of one shape")
    return parts


def _combined(fn: Combine, a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, ...]:
    """What the function makes of elements a before elements b, in the types of a."""
    emitter = current()
    found = fn(*a, *b)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(a):
        given = f"{len(results)} values of {len(a)} and {len(a)}"
        refuse(
            "combine", f"a function that combines gives {given}", "give one for each of the first"
        )
    return tuple(
        emitter.expand_to(emitter.cast(r, emitter.number(x)), emitter.shape(x))
        for r, x in zip(results, a, strict=True)
    )


def _chosen(c: Operand, a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(current().select(c, x, y) for x, y in zip(a, b, strict=True))


def _fold(parts: tuple[Value, ...], axis: int, fn: Combine) -> tuple[Value, ...]:
    """All elements along an axis as one, which disappears."""
    emitter = current()
    shape = emitter.shape(parts[0])
    n = shape[axis]
    while n > 1:
        half = (n + 1) // 2
        left = calc("*", arange(0, half), 2)
        right = calc("+", left, 1)
        last = right if n % 2 == 0 else emitter.emit(arith.minimum, *emitter.unify(right, n - 1))
        a = tuple(_take(p, left, axis) for p in parts)
        b = tuple(_take(p, last, axis) for p in parts)
        both = _combined(fn, a, b)
        if n % 2:
            paired = _along(calc("<", right, n), len(shape), axis)
            both = _chosen(emitter.expand_to(paired, emitter.shape(a[0])), both, a)
        parts, n = both, half
    rest = shape[:axis] + shape[axis + 1 :]
    if rest:
        return tuple(reshape(p, rest) for p in parts)
    return tuple(
        emitter.emit(tile.reduce, p, axis=0, fn="or" if emitter.number(p) == i1 else "add")
        for p in parts
    )


def _scan(parts: tuple[Value, ...], a: int, fn: Combine, back: bool) -> tuple[Value, ...]:
    emitter = current()
    shape = emitter.shape(parts[0])
    n, step = shape[a], 1
    while step < n:
        from_ = calc("+" if back else "-", arange(0, n), step)
        bound = (arith.minimum, n - 1) if back else (arith.maximum, 0)
        at = emitter.emit(bound[0], *emitter.unify(from_, bound[1]))
        inside = calc("<", from_, n) if back else calc(">=", from_, 0)
        there = emitter.expand_to(_along(inside, len(shape), a), shape)
        before = tuple(_take(p, at, a) for p in parts)
        parts = _chosen(there, _combined(fn, before, parts), parts)
        step *= 2
    return parts


_COMBINATIONS = {
    arith.add: "add", arith.mul: "mul", arith.maximum: "max", arith.minimum: "min",
    arith.and_: "and", arith.or_: "or", arith.xor: "xor",
}  # fmt: skip


class _How(NamedTuple):
    """What a function makes of two elements: the IR's name of it, or its text; neither where it has none."""

    name: str | None = None
    text: str | None = None


def _trial(fn: Any, parts: Sequence[Value], what: str) -> _How:
    """A kernel function that combines, translated apart, of numbers, and looked at."""
    if not callable(fn):
        refuse("combine", f"{what} by {describe(fn)}", "give a function decorated by @jit")
    emitter, trial = current(), Builder()
    dtypes = [emitter.number(p) for p in parts]
    params = [Value(Scalar(d), "x") for d in (*dtypes, *dtypes)]
    try:
        with emitter.inside(trial):
            results = _combined(fn, params[: len(parts)], params[len(parts) :])
    except CompileError:  # it takes tiles only
        return _How()
    made = trial.ops[-1] if trial.ops else None
    if len(parts) == len(trial.ops) == 1 and made is not None and results[0] in made.results:
        name = _COMBINATIONS.get(made.kind) if {*made.operands} == {*params} else None
        if name is not None:
            return _How(name)
    return _How(text=combine.text_of(params, trial.ops, results))


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _several(kind: OpKind, parts: Sequence[Value], **attrs: Any) -> tuple[Value, ...]:
    """The results of an op that has one or several."""
    found = current().emit(kind, *parts, **attrs)
    return found if isinstance(found, tuple) else (found,)


@method
def reduce_or(input: Operand, axis: int | None = None, keep_dims: bool = False) -> Tensor:
    """Bitwise or along an axis (all axes without one); of truth values whether any is true."""
    return of_bits(input, axis, keep_dims, "reduce_or", "or")


@builtin
def map_elementwise(scalar_fn: Combine, *args: Operand, pack: int = 1) -> Any:
    """What a kernel function of numbers makes of each element of tiles (broadcast to one shape): a tile, or a
    tuple of them.  pack: it takes so many elements of each tile at once, and gives as many of each result.

    It is inlined on whole tiles: both arms of its ifs are computed, and chosen by element."""
    if not callable(scalar_fn):
        what = f"map_elementwise by {describe(scalar_fn)}"
        refuse("combine", what, "give a function decorated by @jit")
    emitter, count = current(), static_int(pack, "pack")
    tiles = emitter.broadcast(*args)
    shape = emitter.shape(tiles[0])
    if count < 1 or (shape and shape[-1] % count):
        refuse("map-pack", f"pack={count} of tiles of {shape}", "take a divisor of the last axis")
    given = [part for t in tiles for part in _parts(t, count)]
    before, emitter.by_element = emitter.by_element, True
    try:
        found = scalar_fn(*given)
    finally:
        emitter.by_element = before
    if count == 1:
        return found
    results = [_joined(found[i : i + count], shape) for i in range(0, len(found), count)]
    return results[0] if len(results) == 1 else tuple(results)


def _parts(x: Value, count: int) -> list[Value]:
    """Every count-th element along the last axis, from the first, the second … on."""
    if count == 1:
        return [x]
    *lead, n = current().shape(x)
    places = [calc("+", calc("*", arange(0, n // count), count), i) for i in range(count)]
    return [_take(x, at, len(lead)) for at in places]


def _joined(parts: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """The parts of a tile in their places again."""
    emitter, axis = current(), len(shape) - 1
    at = arange(0, shape[axis])
    found = [_take(p, calc("//", at, len(parts)), axis) for p in parts]
    out = found[0]
    for i, p in enumerate(found[1:], 1):
        mine = _along(calc("==", calc("%", at, len(parts)), i), len(shape), axis)
        out = emitter.select(emitter.expand_to(mine, shape), p, out)
    return out


# ---- sorting


@method
def sort(x: Operand, dim: int | None = None, descending: bool = False) -> Tensor:
    """The elements along an axis (the last without `dim`) in order.  NaNs have no place in it."""
    return _sorted(x, dim, static_bool(descending, "descending"), "sort")


@builtin
def topk(x: Operand, k: int, dim: int | None = None, descending: bool = True) -> Tensor:
    """The k largest elements along an axis (the last without `dim`), the largest first; without `descending`
    the k smallest, the smallest first.  Of fewer than all, narrow types are widened as by max."""
    found = _sorted(x, dim, static_bool(descending, "descending"), "topk")
    a = axis_of(-1 if dim is None else dim, len(current().shape(found)))
    count, n = static_int(k, "topk's count"), current().shape(found)[a]
    if not 1 <= count <= n:
        refuse("topk", f"the largest {count} of {n}", f"ask for 1 to {n}")
    return widened(_take(found, arange(0, count), a)) if count < n else found


@builtin
def bitonic_merge(x: Operand, dim: int | None = None, descending: bool = False) -> Tensor:
    """The elements along an axis in order, where they rise and then fall, or fall and then rise; there is a
    power of two of them."""
    t = tile_of(x, "bitonic_merge")
    a = axis_of(-1 if dim is None else dim, len(current().shape(t)))
    n = current().shape(t)[a]
    if n & (n - 1):
        refuse(
            "sort", f"bitonic_merge of {n} elements", "pad them to a power of two, or use tl.sort"
        )
    return _exchanged(t, a, n, static_bool(descending, "descending"))


def _sorted(x: Operand, dim: Any, descending: bool, what: str) -> Value:
    emitter = current()
    t = tile_of(x, what)
    d = emitter.number(t)
    t = emitter.cast(t, i8) if d == i1 else t
    shape = emitter.shape(t)
    a = axis_of(-1 if dim is None else dim, len(shape))
    n, size = shape[a], 1 << (shape[a] - 1).bit_length()
    if size > n:  # what is added stays behind
        places = arange(0, size)
        whole = _take(t, emitter.emit(arith.minimum, *emitter.unify(places, n - 1)), a)
        own = emitter.expand_to(_along(calc("<", places, n), len(shape), a), emitter.shape(whole))
        t = emitter.select(own, whole, _extreme(emitter.number(t), highest=not descending))
    if size > WRITTEN_OUT:
        t = _sorted_by_loop(t, a, descending)
    else:
        length = 2
        while length <= size:
            t = _exchanged(t, a, length, descending)
            length *= 2
    t = _take(t, arange(0, n), a) if size > n else t
    return emitter.cast(t, i1) if d == i1 else t


def _sorted_by_loop(t: Value, axis: int, descending: bool) -> Value:
    """The tile in order along an axis of 2^m elements, by a loop over the lengths of the runs, whose body has
    the steps of the longest; shorter runs leave out the first of these.  Of large tiles by a loop over the
    steps of all runs, m (m + 1) / 2, with one body."""
    emitter = current()
    n = emitter.shape(t)[axis]
    m = (n - 1).bit_length()
    by_steps = m * prod(emitter.shape(t)) > IN_BODY
    init = (t, emitter.const(2, i32), *([emitter.const(1, i32)] * by_steps))
    index, x, length, *rest = (Value(v.type) for v in (init[1], *init))
    with emitter.inside(emitter.builder.nested()) as body:
        falls = _falls(arange(0, n), length, descending)
        twice = calc("<<", length, 1)
        if by_steps:
            (step,) = rest
            x_next = _partners(x, axis, step, falls)
            is_last = calc("==", step, 1)  # the next runs are twice as long
            next_step = emitter.select(is_last, length, calc(">>", step, 1))
            emitter.emit(control.yield_, x_next, emitter.select(is_last, twice, length), next_step)
        else:
            x_next = x
            for i in range(1, m + 1):
                x_next = _where_long(x_next, axis, n >> i, length, falls)
            emitter.emit(control.yield_, x_next, twice)
    bounds = [emitter.const(k, i32) for k in (0, m * (m + 1) // 2 if by_steps else m, 1)]
    region = Region((index, x, length, *rest), tuple(body.ops))
    names = ["sorted", "length", *["step"] * by_steps]
    results = emitter.append(control.for_, (*bounds, *init), names, regions=(region,), unroll=1)
    return results[0]


def _where_long(x: Value, axis: int, step: int, length: Value, falls: Operand) -> Value:
    """One step of the network where runs are longer than it."""
    emitter = current()
    with emitter.inside(emitter.builder.nested()) as taken:
        emitter.emit(control.yield_, _partners(x, axis, step, falls))
    with emitter.inside(emitter.builder.nested()) as left:
        emitter.emit(control.yield_, x)
    arms = tuple(Region((), tuple(arm.ops)) for arm in (taken, left))
    (found,) = emitter.append(control.if_, (calc(">", length, step),), ["sorted"], regions=arms)
    return found


def _extreme(d: DType, highest: bool) -> Operand:
    """The highest or the lowest value of a dtype."""
    if d.is_float:
        finite = {"f8e4m3": 448.0}.get(d.name, float("inf"))
        return finite if highest else -finite
    return DTYPE_PREDICATES[f"get_int_{'max' if highest else 'min'}_value"](d)


def _exchanged(x: Value, axis: int, length: int, descending: bool) -> Value:
    """Runs of `length` elements along an axis, each bitonic, in order: rising and falling in turn, the first
    as asked for (Batcher's network, its last steps)."""
    falls = _falls(arange(0, current().shape(x)[axis]), length, descending)
    step = length // 2
    while step:
        x = _partners(x, axis, step, falls)
        step //= 2
    return x


def _falls(places: Operand, length: Operand, descending: bool) -> Any:
    """Which elements are of a run of `length` that is to fall."""
    falls = calc("!=", calc("&", places, length), 0)
    return current().invert(falls) if descending else falls


def _partners(x: Value, axis: int, step: Operand, falls: Operand) -> Any:
    """One step of the network: elements that lie `step` apart, a power of two, put in order."""
    emitter = current()
    shape = emitter.shape(x)
    places = arange(0, shape[axis])
    other = _take(x, calc("^", places, step), axis)
    is_first = calc("==", calc("&", places, step), 0)
    # the first of two gets the greater one where the run falls, the second where it rises
    greater = emitter.expand_to(_along(calc("==", is_first, falls), len(shape), axis), shape)
    if emitter.number(x).is_int:
        highest, lowest = (emitter.emit(k, x, other) for k in (arith.maximum, arith.minimum))
        return emitter.select(greater, highest, lowest)
    swap = emitter.select(greater, calc("<", x, other), calc(">", x, other))
    return emitter.select(swap, other, x)


# ---- rearranging, counting


@method
def flip(x: Operand, dim: int | None = None) -> Tensor:
    """The elements along an axis (the last without `dim`) the other way around."""
    t = tile_of(x, "flip")
    a = axis_of(-1 if dim is None else dim, len(current().shape(t)))
    n = current().shape(t)[a]
    return _take(t, calc("-", n - 1, arange(0, n)), a)


@builtin
def cat(input: Operand, other: Operand, can_reorder: bool = False, dim: int = 0) -> Tensor:
    """Both tiles, one after the other along an axis; can_reorder changes nothing."""
    emitter = current()
    x, y = tile_of(input, "cat"), tile_of(other, "cat")
    d = emitter.promoted(x, y)
    x, y = emitter.cast(x, d), emitter.cast(y, d)
    a = axis_of(dim, len(emitter.shape(x)))
    first, second = (shape_of(v.type) for v in (x, y))
    if first[:a] + first[a + 1 :] != second[:a] + second[a + 1 :]:
        refuse(
            "shape-mismatch",
            f"cat of {describe(x)} and {describe(y)}",
            "beside the axis their shapes are the same",
        )
    n, m = first[a], second[a]
    places = arange(0, n + m)
    low = _take(x, emitter.emit(arith.minimum, *emitter.unify(places, n - 1)), a)
    high = _take(y, emitter.emit(arith.maximum, *emitter.unify(calc("-", places, n), 0)), a)
    is_low = _along(calc("<", places, n), len(first), a)
    return emitter.select(emitter.expand_to(is_low, emitter.shape(low)), low, high)


@method
def histogram(input: Operand, num_bins: int, mask: Operand = None) -> Tensor:
    """How many elements of a tile of integers are 0, 1 … num_bins - 1 (i32), of those where mask is true;
    others count nowhere."""
    emitter = current()
    x = tile_of(input, "histogram")
    bins = static_int(num_bins, "histogram's number of bins")
    if not emitter.number(x).is_int or bins < 1:
        what = f"histogram of {describe(x)} in {bins} bins"
        refuse("histogram", what, "count integers, in at least one bin")
    assert isinstance(x.type, Tile)
    flat = reshape(x, x.type.size)
    counted: Operand = True
    if mask is not None:
        counted = reshape(emitter.expand_to(emitter.logical(mask), emitter.shape(x)), x.type.size)
        counted = expand_dims(counted, 1)
    at_once = max(1, min(bins, COUNTED // x.type.size))
    places = arange(0, bins)
    found: Any = None
    for low in range(0, bins, at_once):
        bin_ = calc("+", arange(0, at_once), low)
        equal = calc("==", expand_dims(emitter.cast(flat, i32), 1), expand_dims(bin_, 0))
        hits = emitter.cast(calc("&", equal, counted) if not is_literal(counted) else equal, i32)
        counts = reduced(hits, 0, False, "add")
        if at_once == bins:
            return counts
        near = emitter.emit(arith.maximum, *emitter.unify(calc("-", places, low), 0))
        spread = _take(counts, emitter.emit(arith.minimum, *emitter.unify(near, at_once - 1)), 0)
        here = calc("&", calc(">=", places, low), calc("<", places, low + at_once))
        found = emitter.select(here, spread, full((bins,), 0, i32) if found is None else found)
    return found
