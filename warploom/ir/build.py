"""Shorthands for building IR where calling the op kinds directly would be long: constants, control flow.

Each control-flow helper takes callbacks that fill a region and always returns the tuple of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from warploom.ir.core import Builder, Op, OpKind, Region, Value
from warploom.ir.ops import arith, control, mbarrier, smem, task, tile
from warploom.ir.types import DType, Tile, i1, i32

Body = Callable[[Builder], Iterable[Value] | None]


def const(b: Builder, value: int | float | bool, dtype: DType = i32, hint: str = "") -> Value:
    """A scalar constant.  The number is stored as the kind of Python number that fits the dtype."""
    number = bool(value) if dtype == i1 else float(value) if dtype.is_float else int(value)
    return arith.const(b, value=number, dtype=dtype, hint=hint)


def slots(
    b: Builder,
    t: Tile,
    lead: tuple[int, ...],
    name: str,
    hint: str,
    inner: int | None = None,
    swizzle: int = 0,
) -> Value:
    """Slots of shared memory for tiles like t, adjacent along the last axis or `inner`."""
    at = len(t.shape) - 1 if inner is None else inner
    how: dict[str, Any] = {"shape": t.shape, "dtype": t.dtype, "inner": at, "swizzle": swizzle}
    return smem.shared_alloc(b, name=name, lead=lead, hint=hint, **how)


def barriers(b: Builder, name: str, n: int, count: int, hint: str = "") -> Value:
    """Declares n mbarriers, a phase of each of so many arrivals."""
    return mbarrier.mbarrier_alloc(b, name=name, n=n, count=count, hint=hint or name)


def unique(name: str, names: set[str]) -> str:
    """The name, with a number after it where `names` has it already; they learn it."""
    n, candidate = 0, name
    while candidate in names:
        n += 1
        candidate = f"{name}{n}"
    names.add(candidate)
    return candidate


def for_(
    b: Builder,
    bounds: tuple[Value, Value, Value],
    init: Sequence[Value],
    body: Callable[[Builder, Value, tuple[Value, ...]], Iterable[Value]],
    *,
    iv: str = "",
    hints: Sequence[str] = (),
    **attrs: Any,
) -> tuple[Value, ...]:
    """for iv in range(*bounds), carrying values: body(builder, iv, carried) returns the next ones.

    `hints` name the carried values (default: as the initial ones).
    """
    names = tuple(hints) or tuple(v.hint for v in init)
    inner = b.nested()
    index = Value(bounds[0].type, iv)
    carried = tuple(Value(v.type, name) for v, name in zip(init, names, strict=True))
    control.yield_(inner, *body(inner, index, carried))
    region = inner.region((index, *carried))
    return _append(b, control.for_, (*bounds, *init), attrs, (region,), names)


def if_(b: Builder, condition: Value, then: Body, other: Body | None = None) -> tuple[Value, ...]:
    """Both arms return the values that they yield (None: no values); a missing `other` does nothing."""
    regions = tuple(_filled(b, arm) for arm in (then, other or (lambda _: None)))
    names = tuple(v.hint for v in regions[0].yielded)
    return _append(b, control.if_, (condition,), {}, regions, names)


def elect(b: Builder, body: Body) -> None:
    """A region that one thread of the replica runs."""
    task.elect(b, regions=(_filled(b, body),))


def constant_of(o: Op | None) -> int | float | bool | None:
    """The value of a `const`; None for any other op."""
    return o.attrs["value"] if o is not None and o.kind is arith.const else None


def is_zero(v: Value, maker: Callable[[Value], Op | None]) -> bool:
    """Is v a splat of the constant zero?  maker(v): the op that makes v."""
    o = maker(v)
    return o is not None and o.kind is tile.splat and constant_of(maker(o.operands[0])) == 0


def _filled(b: Builder, body: Body) -> Region:
    inner = b.nested()
    control.yield_(inner, *(body(inner) or ()))
    return inner.region()


def _append(
    b: Builder,
    kind: OpKind,
    operands: tuple[Value, ...],
    attrs: dict[str, Any],
    regions: tuple[Region, ...],
    hints: tuple[str, ...],
) -> tuple[Value, ...]:
    types = kind.infer(operands, attrs, regions)
    results = tuple(Value(t, hint) for t, hint in zip(types, hints, strict=True))
    b.append(Op(kind, operands, attrs, results, regions, b.tasks, b.loc))
    return results
