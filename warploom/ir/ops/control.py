"""Structured control flow: a region is one list of ops that ends in yield."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from warploom.ir.core import HARDWARE, Effect, Family, Op, OpKind, Region, Type, Value, op, require
from warploom.ir.format import check
from warploom.ir.types import Scalar, Tile, dtype_of, i1


def _types(region: Region) -> tuple[Type, ...]:
    return tuple(v.type for v in region.params)


def _yields(region: Region) -> tuple[Type, ...]:
    return tuple(v.type for v in region.yielded)


@op(Family.CONTROL)
def yield_(*values: Type) -> None:
    """Ends a region; its operands are the region's values."""


@op(Family.CONTROL)
def for_(
    lo: Type,
    hi: Type,
    step: Type,
    *init: Type,
    regions: tuple[Region, ...],
    num_stages: int | None = None,
    warp_specialize: bool | None = None,
    flatten: bool = False,
    unroll: int | None = None,
    disallow_acc_multi_buffer: bool = False,
    disable_licm: bool = False,
) -> tuple[Type, ...]:
    """for iv in range(lo, hi, step), step > 0, carrying values.

    Region parameters: (iv, *carried), yields the next carried values; results are the last ones (init
    where the loop runs zero times).  The attributes are the user's hints of tl.range; from WARP on there is
    only `unroll`, the copies of the body an iteration.
    """
    require(isinstance(lo, Scalar) and lo.dtype.is_int, f"loop bounds are integers, got {lo}")
    require(lo == hi == step, f"loop bounds differ in type: {lo}, {hi}, {step}")
    (body,) = regions
    require(_types(body) == (lo, *init), "loop parameters differ from (iv, *initial values)")
    require(
        _yields(body) == init, "yielded values differ in type from the initial ones", "loop-type"
    )
    return init


@op(Family.CONTROL)
def while_(*init: Type, regions: tuple[Region, ...]) -> tuple[Type, ...]:
    """regions: condition(*carried) yields (i1, *carried), body(*carried) yields the next carried."""
    condition, body = regions
    require(_types(condition) == init and _types(body) == init, "while parameters differ from init")
    require(_yields(condition) == (Scalar(i1), *init), "a while condition yields (i1, *carried)")
    require(
        _yields(body) == init, "yielded values differ in type from the initial ones", "loop-type"
    )
    return init


@op(Family.CONTROL)
def if_(c: Type, *, regions: tuple[Region, ...]) -> tuple[Type, ...]:
    """regions: then, else (each without parameters, both yielding the results)."""
    require(c == Scalar(i1), f"an if condition is a scalar i1, got {c}", "condition-type")
    then, other = regions
    require(not then.params and not other.params, "if regions take no parameters")
    require(_yields(then) == _yields(other), "the arms of an if yield different types", "if-type")
    return _yields(then)


LOOPS: frozenset[OpKind] = frozenset((for_, while_))
# Of the ops that pass values on, how many operands stand before the initial values.
LEAD: dict[OpKind, int] = {for_: 3, while_: 0, if_: 1}


class Carried(NamedTuple):
    """One value that a loop carries from iteration to iteration, or that an if gives.

    init: before the first iteration (an if has none).  params, yielded: of the regions, in order; an if's
    have no parameters."""

    init: tuple[Value, ...]
    params: tuple[Value, ...]
    yielded: tuple[Value, ...]
    result: Value

    @property
    def all(self) -> tuple[Value, ...]:
        """Every value that stands for it, the result last."""
        return (*self.init, *self.params, *self.yielded, self.result)


def carried(o: Op) -> tuple[Carried, ...]:
    """What a loop or an if passes on, a result each; of other ops nothing."""
    if o.kind not in LEAD:
        return ()
    n = len(o.results)
    yielded = zip(*(r.yielded[len(r.yielded) - n :] for r in o.regions), strict=True)
    if o.kind is if_:
        return tuple(map(Carried, repeat(()), repeat(()), yielded, o.results))
    init = zip(o.operands[LEAD[o.kind] :], strict=True)
    params = zip(*(r.params[len(r.params) - n :] for r in o.regions), strict=True)
    return tuple(map(Carried, init, params, yielded, o.results))


def deciding(o: Op) -> tuple[Value, ...]:
    """What decides which regions of a loop or an if run, and how often: bounds, or a condition."""
    if o.kind is while_:
        return o.regions[0].yielded[:1]
    return o.operands[: LEAD.get(o.kind, 0)]


def keeping(o: Op, kept: Sequence[int]) -> Op:
    """A loop or an if that passes on only some of its values, by their numbers."""

    def some(values: tuple[Value, ...]) -> tuple[Value, ...]:
        lead = len(values) - len(o.results)
        return (*values[:lead], *(values[lead + i] for i in kept))

    regions = (
        Region(
            some(r.params) if r.params else (),
            (*r.ops[:-1], r.ops[-1].with_(operands=some(r.yielded))),
        )
        for r in o.regions
    )
    operands = o.operands if o.kind is if_ else some(o.operands)
    return o.with_(operands=operands, results=some(o.results), regions=tuple(regions))


@op(Family.PROMISE, effect=Effect.SYNC)
def assume(c: Type) -> None:
    """The user's promise that the scalar c holds.  The oracle checks it."""
    require(c == Scalar(i1), f"assume takes a scalar i1, got {c}")


@op(Family.PROMISE, effect=Effect.SYNC)
def device_assert(c: Type, *, message: str) -> None:
    """Fails the program where c (scalar or tile of i1) is false; kept in debug builds only."""


@op(Family.OUTPUT, effect=Effect.SYNC)
def device_print(*values: Type, prefix: str, hex: bool = False) -> None:
    """Prints scalars and tiles; hex: integers, by their digits in base 16."""


@op(Family.OUTPUT, levels=HARDWARE, effect=Effect.SYNC)
def printf(*values: Type, format: str) -> None:
    """Prints numbers as C's printf does (ir/format.py): once, by one thread.  With tiles, which all have one
    shape, once for each element, by a thread that holds it; the order of elements is not defined.
    """
    check(format, [dtype_of(v) for v in values])
    shapes = {v.shape for v in values if isinstance(v, Tile)}
    require(len(shapes) <= 1, f"printf of tiles of several shapes: {shapes}", "shape-mismatch")
