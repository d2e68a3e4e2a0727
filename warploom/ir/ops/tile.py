"""Ops on tiles: shape, reduction, dot, memory."""

from __future__ import annotations

import math
from typing import Any

from warploom.ir.core import (
    HARDWARE,
    MIXED,
    TILE_ONLY,
    Effect,
    Family,
    Level,
    Op,
    RuleError,
    Runs,
    Type,
    op,
    require,
)
from warploom.ir.ops import arith, scaled
from warploom.ir.types import (
    DTYPE_PREDICATES,
    DType,
    Pointer,
    Scalar,
    Tile,
    View,
    accumulators,
    dtype_of,
    elem_of,
    f32,
    i1,
    i8,
    i32,
    i64,
    like,
    shape_of,
    spreads,
    u8,
)

# ---- the program


@op(Family.NUMBER)
def program_id(*, axis: int) -> Scalar:
    """This program's index along grid axis 0, 1 or 2."""
    require(axis in (0, 1, 2), f"a grid has axes 0, 1 and 2, not {axis}", "program-axis")
    return Scalar(i32)


@op(Family.NUMBER)
def num_programs(*, axis: int) -> Scalar:
    """Size of the grid along an axis."""
    require(axis in (0, 1, 2), f"a grid has axes 0, 1 and 2, not {axis}", "program-axis")
    return Scalar(i32)


@op(Family.OUTPUT, effect=Effect.SYNC)
def globaltimer() -> Scalar:
    """The GPU's clock in nanoseconds (i64), read where it stands; on the CPU the host's."""
    return Scalar(i64)


# ---- along which axes of the operands an axis of the result lies (OpKind.axes)

Along = tuple[int | None, ...]


def _filled(o: Op, axis: int) -> Along:
    return (None,) * len(o.operands)


def _inserted(o: Op, axis: int) -> Along:
    at = o.attrs["axis"]
    return (None if axis == at else axis - (axis > at),)


def _repeated(o: Op, axis: int) -> Along:
    return (None if shape_of(o.operands[0].type)[axis] == 1 else axis,)


def _permuted(o: Op, axis: int) -> Along:
    return (o.attrs["perm"][axis],)


def inserts_units(o: Op) -> bool:
    """Does a reshape only insert or drop axes of size 1?"""
    of, to = ([n for n in s if n > 1] for s in (shape_of(o.operands[0].type), o.attrs["shape"]))
    return of == to


def _regrouped(o: Op, axis: int) -> Along:
    """The axis before which as many elements lie; none of size 1."""
    of, to = shape_of(o.operands[0].type), o.attrs["shape"]
    if to[axis] == 1:
        return (None,)
    same = (a for a, n in enumerate(of) if math.prod(of[:a]) == math.prod(to[:axis]) and n > 1)
    return (next(same, MIXED),)


def sliced(o: Op, axis: int) -> Along:
    """Of a part of the first operand."""
    whole = shape_of(o.operands[0].type)[axis] == o.attrs["shape"][axis]
    return (axis if whole else MIXED, *(None,) * (len(o.operands) - 1))


def reduced(o: Op, axis: int) -> Along:
    return (axis + (axis >= o.attrs["axis"]),) * len(o.operands)


def scanned(o: Op, axis: int) -> Along:
    return (MIXED if axis == o.attrs["axis"] else axis,) * len(o.operands)


def _gathered(o: Op, axis: int) -> Along:
    return (None if axis == o.attrs["axis"] else axis, axis)


def _multiplied(o: Op, axis: int) -> Along:
    """Rows of scales are rows of a and columns of b; a batch is one of all."""
    scales, rows = len(o.operands) > 3, len(shape_of(o.operands[0].type)) - 2
    if axis < rows:
        return (axis,) * 3
    left = axis == rows
    return (
        (axis, None, axis, *(0, None) * scales) if left else (None, axis, axis, *(None, 0) * scales)
    )


# ---- shape.  `layout` is given at PLACED only, where it can't be derived from the operand's.


@op(Family.FILL, axes=_filled)
def splat(x: Type, *, shape: tuple[int, ...], layout: object = None) -> Tile:
    """A tile full of one scalar or pointer."""
    require(not isinstance(x, Tile), f"splat takes a scalar, got {x}")
    return Tile(shape, elem_of(x), layout)


@op(Family.FILL, axes=_filled)
def arange(*, start: int, end: int, layout: object = None) -> Tile:
    """[start, end) as i32."""
    require(start < end, f"arange({start}, {end}) is empty", "arange-empty")
    return Tile((end - start,), i32, layout)


@op(Family.MOVE, axes=_inserted)
def expand_dims(x: Tile, *, axis: int, layout: object = None) -> Tile:
    """Inserts an axis of size 1 before `axis`."""
    require(isinstance(x, Tile), f"expand_dims takes a tile, got {x}")
    require(0 <= axis <= len(x.shape), f"axis {axis} is outside {x}", "axis")
    return Tile((*x.shape[:axis], 1, *x.shape[axis:]), x.elem, layout)


@op(Family.MOVE, axes=_repeated)
def broadcast(x: Tile, *, shape: tuple[int, ...], layout: object = None) -> Tile:
    """Repeats axes of size 1 to `shape` (same rank)."""
    fits = isinstance(x, Tile) and len(x.shape) == len(shape) and spreads(x.shape, shape)
    require(fits, f"{x} can't be broadcast to {'x'.join(map(str, shape))}", "broadcast")
    return Tile(shape, x.elem, layout)


@op(Family.MOVE, axes=_permuted)
def transpose(x: Tile, *, perm: tuple[int, ...], layout: object = None) -> Tile:
    """Axis i of the result is axis perm[i] of x."""
    require(
        isinstance(x, Tile) and sorted(perm) == list(range(len(x.shape))),
        f"{perm} is no permutation of the axes of {x}",
        "axis",
    )
    return Tile(tuple(x.shape[p] for p in perm), x.elem, layout)


@op(Family.MOVE, axes=_regrouped)
def reshape(x: Tile, *, shape: tuple[int, ...], layout: object = None) -> Tile:
    """The same elements in row-major order under another shape."""
    require(isinstance(x, Tile), f"reshape takes a tile, got {x}")
    require(
        math.prod(shape) == x.size,
        f"reshape of {x} to {shape} changes the number of elements",
        "reshape",
    )
    return Tile(shape, x.elem, layout)


@op(Family.MOVE, axes=sliced)
def slice_tile(
    x: Tile, *, offset: tuple[int, ...], shape: tuple[int, ...], layout: object = None
) -> Tile:
    """The part of x that starts at constant `offset`.  At PLACED it selects whole registers."""
    ok = len(offset) == len(shape) == len(x.shape) and all(
        o >= 0 and o + s <= n for o, s, n in zip(offset, shape, x.shape, strict=True)
    )
    require(ok, f"slice {offset}+{shape} is outside {x}")
    return Tile(shape, x.elem, layout)


@op(Family.MOVE, levels=HARDWARE | {Level.TASK, Level.CHANNEL}, axes=scanned)
def concat(*parts: Tile, axis: int, layout: object = None) -> Tile:
    """The parts one after the other along an axis.  At PLACED a part's registers are some of the whole's.  On
    items of a channel it becomes one place in shared memory: they lie side by side in a slot."""
    first = parts[0]
    require(all(isinstance(t, Tile) for t in parts), "concat takes tiles")
    require(0 <= axis < len(first.shape), f"axis {axis} is outside {first}", "axis")
    for t in parts:
        same = all(
            a == axis or n == m for a, (n, m) in enumerate(zip(t.shape, first.shape, strict=True))
        )
        require(same and t.elem == first.elem, f"{t} can't follow {first} along axis {axis}")
    n = sum(t.shape[axis] for t in parts)
    return Tile((*first.shape[:axis], n, *first.shape[axis + 1 :]), first.elem, layout)


def concat_offsets(o: Op) -> list[tuple[int, ...]]:
    """Where in a concat's result each of its parts starts."""
    axis, at, out = o.attrs["axis"], 0, []
    for v in o.operands:
        shape = v.type.shape  # type: ignore[attr-defined]
        out.append(tuple(at if a == axis else 0 for a in range(len(shape))))
        at += shape[axis]
    return out


@op(Family.MOVE, axes=arith.alike)
def convert_layout(x: Tile, *, layout: object) -> Tile:
    """PLACED: the same tile under another layout (free, shuffles, or through shared memory)."""
    return Tile(x.shape, x.elem, layout)


@op(Family.MOVE, levels=HARDWARE, runs=Runs.ALL, axes=arith.alike)
def agree(x: Tile) -> Tile:
    """x, as the first of the threads that hold an element has it: an atomic gives its old values to one
    thread each, and this gives them to all."""
    return x


# What reductions and scans combine by.
COMBINES = {
    "add": arith.add, "mul": arith.mul, "max": arith.maximum, "min": arith.minimum,
    "and": arith.and_, "or": arith.or_, "xor": arith.xor,
}  # fmt: skip


def neutral(fn: str, d: DType) -> int | float:
    """What changes nothing that a reduction or a scan by `fn` combines with it."""
    if fn in ("max", "min"):
        if d.is_float:
            return -math.inf if fn == "max" else math.inf
        limit: int = DTYPE_PREDICATES[f"get_int_{'min' if fn == 'max' else 'max'}_value"](d)
        return limit
    return {"mul": 1, "and": -1 if d.kind == "int" else (1 << d.bits) - 1}.get(fn, 0)


def _combines(name: str, x: Tile, axis: int, fn: str) -> None:
    require(isinstance(x, Tile), f"{name} takes a tile, got {x}", "reduce-operand")
    require(0 <= axis < len(x.shape), f"axis {axis} is outside {x}", "axis")
    require(fn in COMBINES, f"unknown reduction {fn}")


@op(Family.COMBINE, axes=reduced)
def reduce(
    x: Tile,
    *,
    axis: int,
    fn: str,
    layout: object = None,
    by_lanes: bool = False,
    by_threads: int = 0,
) -> Type:
    """Combines along an axis with fn in add, mul, max, min, and, or, xor; the axis disappears.

    A rank-1 tile gives a scalar.  Order of summation is unspecified.  by_lanes: each warp adds up all parts;
    by_threads: so many lanes do those of an element, and all threads read what they found.
    """
    _combines("reduce", x, axis, fn)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    return Tile(rest, x.dtype, layout) if rest else Scalar(x.dtype)


@op(Family.COMBINE, axes=scanned)
def scan(x: Tile, *, axis: int, fn: str, reverse: bool = False) -> Tile:
    """Each element combined with all before it along an axis (reverse: after it), by fn as of `reduce`.

    fn is taken to be associative: which elements are combined first is unspecified.
    """
    _combines("scan", x, axis, fn)
    return x


@op(Family.COMBINE, axes=_gathered)
def gather(x: Tile, index: Tile, *, axis: int, flips: int = 0) -> Tile:
    """For each element of index the element of x in its place, but along `axis` at the index: in two axes and
    along the first, result[i, j] = x[index[i, j], j].  Indices outside of the axis are not defined (the
    oracle refuses them).

    flips: where not 0, the index is each place with these bits flipped (specialize_gathers).
    """
    for t, what in ((x, "takes from"), (index, "goes by")):
        require(isinstance(t, Tile), f"gather {what} a tile, got {t}", "gather-operand")
    require(0 <= axis < len(x.shape), f"axis {axis} is outside {x}", "axis")
    require(dtype_of(index).is_int, f"gather's indices are integers, got {index}", "gather-index")
    require(dtype_of(x).bits >= 8, f"gather moves whole bytes, not {x}", "gather-operand")
    fits = len(x.shape) == len(index.shape) and all(
        a == axis or n == m for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))
    )
    require(fits, f"indices {index} don't fit {x} beside axis {axis}", "shape-mismatch")
    whole = x.shape[axis] % (1 << flips.bit_length()) == 0 and x.shape == index.shape
    require(not flips or whole, f"places of {x} along axis {axis} with bits {flips:b} flipped")
    return Tile(index.shape, x.dtype, index.layout)


@op(Family.COMBINE, axes=_multiplied)
def dot(
    a: Tile,
    b: Tile,
    acc: Tile,
    *scales: Tile,
    max_imprecise: int | None = None,
    transposed: bool = False,
    ieee: bool = False,
    unit: str | None = None,
) -> Tile:
    """acc + a @ b in acc's dtype: f64 for f64, f32 for other floats (for f16 also f16, which each instruction
    rounds to), i32 (which wraps) for 8-bit integers.  Tiles of three axes are batches of matrices: of each a
    one b, the batch first.

    With scales, of a (M×groups) and of b (N×groups), it is what `dot_scaled` says of 8-bit floats, or of u8,
    which are two e2m1 along K then; K counts bytes (PTX ISA, "Block Scaling for mma.sync").

    At WARP it is done in registers, by the target's matrix unit of the instruction `unit`, which completes in
    order (PTX ISA, "mma").
    f32 operands are multiplied as tf32: their lowest 13 bits don't count (PTX ISA, "wgmma.mma_async",
    precision and rounding).  `ieee`: they do, and products are added by fma.  `max_imprecise`: FP8 partial
    sums are added to acc in full float32 at least every so many elements of K.  `transposed`: it is the
    transpose of the kernel's own.
    """
    for name, t in (("a", a), ("b", b)):
        require(isinstance(t, Tile), f"dot's {name} is no tile but {t}", "dot-operand")
    require(
        len(a.shape) == len(b.shape) in (2, 3),
        f"dot needs two tiles of 2 axes, or of 3 (a batch first), got {a} and {b}",
        "dot-rank",
    )
    for t in (a, b):
        require(
            t.dtype.is_float or t.dtype in (i8, u8),
            f"dot multiplies floats and 8-bit integers, not {t.dtype}",
            "dot-integer",
        )
    bytes_alike = a.dtype.bits == b.dtype.bits == 8 and a.dtype.is_float == b.dtype.is_float
    require(
        a.dtype == b.dtype or bytes_alike,
        f"dot can't multiply {a.dtype} by {b.dtype}",
        "dot-dtype",
    )
    (*batch, m, k), (*batch_b, k2, n) = a.shape, b.shape
    require(k == k2, f"dot operands disagree on K: a is {m}x{k}, b is {k2}x{n}", "dot-shape")
    require(batch == batch_b, f"dot operands disagree on the batch: {a} and {b}", "dot-shape")
    require(not ieee or a.dtype == f32, f"dot takes f32 as IEEE has it, not {a.dtype}", "dot-dtype")
    sums = (f32,) if scales else accumulators(a.dtype)
    require(len(scales) in (0, 2), f"dot takes scales of both operands, not {len(scales)}")
    for s, rows in zip(scales, (m, n), strict=False):
        require(a.dtype.bits == 8 and not batch, f"dot scales no {a}")
        scaled.check_scale(s, rows, 2 * k if a.dtype == u8 else k)
    shape = (*batch, m, n)
    require(
        acc.shape == shape and acc.dtype in sums,
        f"dot accumulates {'x'.join(map(str, shape))}x{sums[0]} into {acc}",
        "dot-acc",
    )
    return acc


def dot_sizes(o: Op) -> tuple[int, int, int, int]:
    """(batches, M, N, K) of a dot."""
    *batch, m, n = shape_of(o.result.type)
    return math.prod(batch), m, n, shape_of(o.operands[0].type)[-1]


# ---- memory by pointers

# Which lines the L2 gives up first (PTX ISA, "createpolicy": the primary priorities).  Hints: they change
# no result.
CACHE_POLICIES = ("evict_first", "evict_last", "evict_normal", "evict_unchanged")


def check_policy(cache_policy: str | None) -> None:
    """Refuses what is no cache policy; None: no hint."""
    require(
        cache_policy is None or cache_policy in CACHE_POLICIES,
        f"a cache policy is one of {', '.join(CACHE_POLICIES)}, not {cache_policy}",
        "cache-policy",
    )


def policy_of(o: Op) -> dict[str, Any]:
    """The cache policy of an access, as what it becomes is given it: nothing where it has none."""
    policy = o.attrs.get("cache_policy")
    return {"cache_policy": policy} if policy else {}


def _pointed(name: str, p: Type) -> DType:
    """What lies where pointers point."""
    e = elem_of(p)
    if not isinstance(e, Pointer):
        raise RuleError(f"{name} needs a pointer, got {p}", "not-a-pointer")
    return e.dtype


@op(Family.ACCESS, effect=Effect.READ, axes=arith.alike)
def load(
    p: Type,
    *rest: Type,
    volatile: bool = False,
    run: tuple[int, ...] = (),
    cache_policy: str | None = None,
    layout: object = None,
) -> Type:
    """Elements at p; rest is (), (mask,) or (mask, other).  Masked-off elements are `other`, or 0.

    run=(axis, n): along the axis each aligned group of n elements is adjacent in memory, starts at a
    multiple of its size, and is masked alike.  cache_policy: a hint for the L2, one of CACHE_POLICIES.
    """
    check_policy(cache_policy)
    require(
        not (volatile and cache_policy), "a volatile load takes no cache policy", "cache-policy"
    )
    pointed = _pointed("load", p)
    value = like(p, pointed)
    if rest:
        require(rest[0] == like(p, i1), f"load's mask {rest[0]} does not fit {p}", "mask-shape")
    if len(rest) > 1:
        require(rest[1] == value, f"load's other {rest[1]} is not {value}", "other-type")
    return value


@op(Family.ACCESS, effect=Effect.WRITE, axes=arith.alike)
def store(
    p: Type,
    value: Type,
    *rest: Type,
    run: tuple[int, ...] = (),
    cache_policy: str | None = None,
) -> None:
    """Writes value at p; rest is () or (mask,).  run, cache_policy: as of `load`."""
    check_policy(cache_policy)
    pointed = _pointed("store", p)
    require(value == like(p, pointed), f"store of {value} to {p}", "store-type")
    if rest:
        require(rest[0] == like(p, i1), f"store's mask {rest[0]} does not fit {p}", "mask-shape")


ORDERS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("gpu", "sys")


@op(Family.ACCESS, effect=Effect.READ | Effect.WRITE, axes=arith.alike)
def atomic(
    p: Type,
    value: Type,
    *rest: Type,
    fn: str,
    sem: str = "relaxed",
    scope: str = "gpu",
    run: tuple[int, ...] = (),
) -> Type:
    """Combines value into memory at p (fn in add, max, min, and, or, xor, xchg); gives the old value.

    rest is () or (mask,).  fn cas: value replaces what is equal to the one operand of rest.  fn load: reads
    alone, whatever value is.

    sem: what it orders of the accesses of the thread that does it, for all threads of the GPU: 'release'
    those before it, 'acquire' those after it, 'acq_rel' both, 'relaxed' none (PTX ISA, "membar/fence" and
    "Release and Acquire Patterns"): a fence before it, after it, both or none.  Of one number's, 'release'
    orders all that the program wrote before it, unless it is the producer that does it, for all tasks.
    scope: who it is atomic and ordered for, the threads of the 'gpu' or all of the system ('sys': other GPUs,
    the host).  run: as of `load`; each element is still combined by itself.
    """
    require(sem in ORDERS, f"an atomic is {', '.join(ORDERS)}, not {sem}", "atomic-order")
    require(scope in SCOPES, f"an atomic is of {' or '.join(SCOPES)}, not {scope}", "atomic-order")
    pointed = _pointed("atomic", p)
    require(value == like(p, pointed), f"atomic of {value} to {p}", "store-type")
    if fn == "cas":
        require(rest == (value,), f"cas compares {value} with one operand of that type, not {rest}")
    elif rest:
        require(rest == (like(p, i1),), f"atomic's mask {rest[0]} does not fit {p}", "mask-shape")
    return value


@op(Family.PROMISE, levels=TILE_ONLY, effect=Effect.SYNC)
def multiple_of(x: Type, *, by: tuple[int, ...]) -> None:
    """The user's promise about integers, or about addresses in bytes.  A scalar is a multiple of by[0].  Of a
    tile, where elements along axis d follow each other (by one; of pointers: one element), the first of them
    is a multiple of by[d]; of others nothing is said.  The oracle checks it."""
    e = elem_of(x)
    require(
        isinstance(e, Pointer) or (isinstance(e, DType) and e.is_int),
        f"only integers and pointers are multiples, not {x}",
        "multiple-of",
    )
    axes = max(1, len(shape_of(x)))
    require(
        len(by) == axes,
        f"{x} has {axes} ax{'e' if axes > 1 else 'i'}s, {len(by)} divisors are given",
        "multiple-of",
    )
    require(all(n > 0 for n in by), f"divisors are positive, not {by}", "multiple-of")


# ---- memory by views

UNBOUNDED = 2**31 - 1  # an extent that no coordinate (i32) reaches


@op(Family.PLACE)
def make_view(
    base: Type,
    *sizes: Type,
    divisible: tuple[int, ...] = (),
    promised: tuple[int, ...] = (),
    narrow: tuple[str, ...] = (),
) -> View:
    """A strided array: operands are base, then rank extents, then rank strides (i64, in elements).

    `divisible`: for base (bytes) and each stride (elements), the power of two known to divide it.
    `promised`: likewise, as who makes a descriptor promises it.  It counts for what is read from memory, as
    the launch knows the others, and says that strides are positive.  canonicalize makes `divisible` of it.
    `narrow`: sums that the program computes in i32, which no access may overflow; of each a letter for the
    base and for each axis.  c: how far the base is from its parameter, or a coordinate times the stride, is a
    term; i: the index in the box times the stride; -: neither.
    A descriptor of the user's and a pointer tile recovered by recover_boxes both become this.
    """
    require(isinstance(base, Pointer), f"a view's base is a pointer, got {base}", "not-a-pointer")
    assert isinstance(base, Pointer)
    require(len(sizes) % 2 == 0 and 2 <= len(sizes) <= 10, "a view has 1 to 5 axes", "view-rank")
    return View(len(sizes) // 2, base.dtype)


@op(Family.ACCESS, effect=Effect.READ, axes=_filled)
def load_box(
    v: View,
    *offsets: Type,
    shape: tuple[int, ...],
    cache_policy: str | None = None,
    layout: object = None,
) -> Tile:
    """The box of `shape` at `offsets` (i32, one an axis); elements outside the extents are 0.

    A view may have more axes than the box: in the leading ones the box is one element thick.

    At WARP and PLACED it is a collective copy from global memory straight into registers.
    cache_policy: as of `load`.
    """
    check_policy(cache_policy)
    require(
        len(offsets) == v.rank >= len(shape), f"load_box of rank {len(shape)} from {v}", "view-rank"
    )
    return Tile(shape, v.dtype, layout)


def is_source(source: Type, rest: tuple[Type, ...], shape: tuple[int, ...], dtype: DType) -> bool:
    """May a copy read a tile of this shape from a view at offsets `rest`, or from a tile of pointers under a
    mask (perhaps none) `rest`?"""
    if isinstance(source, View):
        return source.dtype == dtype and len(rest) == source.rank >= len(shape)
    tiles = isinstance(source, Tile) and source.elem == Pointer(dtype) and source.shape == shape
    return tiles and rest in ((), (like(source, i1),))


@op(Family.ACCESS, effect=Effect.WRITE)
def store_box(v: View, value: Tile, *offsets: Type, cache_policy: str | None = None) -> None:
    """Writes a tile at offsets (as load_box's); elements outside the extents are dropped."""
    check_policy(cache_policy)
    require(len(offsets) == v.rank >= len(value.shape), f"store_box of {value} to {v}", "view-rank")
    require(v.dtype == value.dtype, f"store_box of {value} to {v}", "store-type")
