"""Stores and atomics at indices, element by element, and semaphores in global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from warploom.explicit.elements import GlobalElement, pointer_to
from warploom.explicit.handles import GlobalView
from warploom.explicit.operands import (
    one_thread,
    program,
    shared_of,
    tile_value,
    view_of,
    whole_group,
)
from warploom.explicit.values import written
from warploom.frontend.coerce import Operand, current, describe
from warploom.frontend.language import atomics, memory
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import Region, Value
from warploom.ir.ops import arith, control, smem, tile
from warploom.ir.types import Pointer, Shared, i32, u64


def _places(dst: GlobalView, values: Value, dim: Any, indices: Operand) -> tuple[Value, Value]:
    """Pointers to the elements of a view that a tile's elements go to, and which of them are inside it.

    Without `indices` an element goes where it is in the tile, with them along `dim` where they say."""
    emitter = current()
    shape = emitter.shape(values)
    if len(view_of(dst).shape) != len(shape):
        refuse(
            "view-rank",
            f"{values.type} into a view of {len(dst.shape)} axes",
            "make the view of as many axes as the tensor has",
        )
    index: list[Any] = [shapes.places_along(shape, a) for a in range(len(shape))]
    if indices is not None:
        index[shapes.axis_of(dim, len(shape))] = _indices(indices, values)
    inside: Any = None
    for i, n in zip(index, dst.shape, strict=True):
        for one in (emitter.binary("<", i, n), emitter.binary(">=", i, 0)):
            inside = one if inside is None else emitter.binary("&", inside, one)
    pointers = emitter.expand_to(pointer_to(dst, tuple(index)), shape)
    return pointers, emitter.expand_to(inside, shape)


class Scatters:
    """Stores at indices."""

    @builtin
    def store_global_scatter(
        self, dst: GlobalView, *, dim: Any, indices: Operand, values: Operand
    ) -> None:
        """dst[…, indices[k], …] = values[k], indices along the axis dim; out of bounds dropped.  Which of
        several values for one element stays is open: self.atomic.global_scatter_add and its like combine
        them."""
        whole_group("store_global_scatter")
        v = tile_value(values, "store_global_scatter")
        pointers, inside = _places(dst, v, dim, indices)
        memory.store(pointers, v, inside)

    @builtin
    def store_shared_scatter(
        self, dst: Any, *, dim: Any, indices: Operand, values: Operand
    ) -> None:
        """dst[…, indices[k], …] = values[k] of a shared tensor, as store_global_scatter."""
        whole_group("store_shared_scatter")
        s, v, at, axis = _elements("store_shared_scatter", dst, values, dim, indices)
        current().emit(smem.shared_scatter, s, v, *at, **axis)


def _indices(x: Any, values: Value) -> Value:
    """A tile of integers, one for each value."""
    at, emitter = tile_value(x, "indices"), current()
    if emitter.shape(at) != emitter.shape(values) or not emitter.number(at).is_int:
        refuse("scatter", f"indices {at.type} for {values.type}", "one integer for each element")
    return at


def _elements(what: str, dst: Any, values: Any, dim: Any, indices: Any) -> Any:
    """A slot, a tensor for elements of it, its indices along `dim` where there are any, and the attribute
    that says so."""
    s, emitter = shared_of(dst), current()
    t = cast(Shared, s.type)
    v = emitter.cast(tile_value(values, what), t.dtype)
    shape, rest, attrs = emitter.shape(v), [], {}
    if indices is not None:
        at = _indices(indices, v)
        axis = shapes.axis_of(dim, len(t.shape))
        attrs["axis"] = axis
        if emitter.number(at).bits == 64:
            inside = emitter.binary("<", emitter.cast(at, u64), t.shape[axis])
            at = emitter.select(inside, at, -1)
        rest = [emitter.cast(at, i32)]
    axes = range(len(t.shape))
    if len(shape) != len(t.shape) or any(
        shape[a] != t.shape[a] for a in axes if a != attrs.get("axis")
    ):
        refuse(
            "store-shape",
            f"{what} of {v.type} into {t}",
            "as many elements as the slot has along each axis but that of indices",
        )
    return s, v, rest, attrs


_CALLED = {"sub": "add", "exch": "xchg"}  # what does it
_DOES = {
    "add": "dst + value", "sub": "dst - value", "min": "the smaller", "max": "the larger",
    "exch": "value",
}  # fmt: skip
_SCOPES = ("cta", "cluster", "gpu", "sys")


def _in_global(
    fn: str, dst: Any, values: Any, dim: Any, indices: Any, sem: Any, scope: Any, compare: Any
) -> Any:
    whole_group(f"an atomic {fn}")
    v = current().cast(tile_value(values, f"an atomic {fn}"), view_of(dst).dtype)
    pointers, inside = _places(dst, v, dim, indices)
    one_of("scope", "scope", scope, *_SCOPES)
    wide = "gpu" if scope == "cluster" else scope
    if fn == "cas":
        return atomics.atomic_cas(pointers, compare, v, sem=sem, scope=wide)
    if fn == "sub":
        v = cast(Value, current().negative(v))
    do = getattr(atomics, f"atomic_{_CALLED.get(fn, fn)}")
    return do(pointers, v, inside, sem=sem, scope=wide)


def _in_shared(
    fn: str, dst: Any, values: Any, dim: Any, indices: Any, sem: Any, scope: Any, compare: Any
) -> Any:
    what = f"an atomic {fn}"
    whole_group(what)
    s, v, rest, attrs = _elements(what, dst, values, dim, indices)
    one_of("scope", "scope", scope, *_SCOPES)
    one_of("atomic-order", "sem", sem, *tile.ORDERS)
    dtype = cast(Shared, s.type).dtype
    if dtype.bits < 32:
        refuse("atomic-dtype", f"{what} on {dtype} in shared memory", "use 32 or 64 bits")
    if fn == "sub":
        v = current().negative(v)
    if fn == "cas":
        rest = [current().expand_to(current().cast(compare, dtype), current().shape(v))]
    if sem != "relaxed":
        attrs["sem"] = sem
    return current().emit(smem.shared_atomic, s, v, *rest, fn=_CALLED.get(fn, fn), **attrs)


def _atomic(space: str, fn: str) -> Callable[..., Any]:
    """self.atomic.<space>_fn."""
    combine = _in_shared if space == "shared" else _in_global

    def elementwise(
        self: Any,
        dst: Any,
        values: Any,
        sem: str = "relaxed",
        scope: str = _SCOPE[space],
        output: Any = None,
    ) -> Any:
        return written(combine(fn, dst, values, None, None, sem, scope, None), output)

    where = {"global": "a global view that begins where values go", "shared": "a shared tensor"}
    elementwise.__doc__ = (
        f"Each element of dst, {where[space]}, becomes {_DOES[fn]}, atomically; gives the old values. sem: "
        "'relaxed', 'acquire', 'release', 'acq_rel'. output: the tensor that becomes the old values."
    )
    return builtin(elementwise)


def _scatter(space: str, fn: str) -> Callable[..., Any]:
    """self.atomic.<space>_scatter_fn."""
    combine = _in_shared if space == "shared" else _in_global

    def scatter(
        self: Any, dst: Any, *, dim: Any, indices: Any, values: Any, sem: str = "relaxed",
        scope: str = _SCOPE[space], output: Any = None,
    ) -> Any:  # fmt: skip
        return written(combine(fn, dst, values, dim, indices, sem, scope, None), output)

    scatter.__doc__ = (
        f"Each element of values goes atomically to dst at its index along dim, which becomes {_DOES[fn]}; "
        "gives the old values. Out of bounds dropped."
    )
    return builtin(scatter)


def _cas(space: str) -> Callable[..., Any]:
    """self.atomic.<space>_cas."""
    combine = _in_shared if space == "shared" else _in_global

    def cas(
        self: Any,
        dst: Any,
        compare: Any,
        values: Any,
        sem: str = "relaxed",
        scope: str = _SCOPE[space],
        output: Any = None,
    ) -> Any:
        return written(combine("cas", dst, values, None, None, sem, scope, compare), output)

    cas.__doc__ = (
        "Each element of dst that equals compare's becomes that of values, atomically; gives the old values."
        + "  All of values is inside dst." * (space == "global")
    )
    return builtin(cas)


_SCOPE = {"global": "gpu", "shared": "cta"}


class Atomic:
    """self.atomic: atomics of global and of shared memory, element by element or at indices."""


for _space in _SCOPE:
    for _fn in _DOES:
        setattr(Atomic, f"{_space}_{_fn}", _atomic(_space, _fn))
        if _fn != "exch":
            setattr(Atomic, f"{_space}_scatter_{_fn}", _scatter(_space, _fn))
    setattr(Atomic, f"{_space}_cas", _cas(_space))


# ---- semaphores


class Semaphores:
    """Numbers in global memory by which CTAs wait for each other."""

    @builtin
    def lock_semaphore(self, semaphore: Any, value: Operand) -> None:
        """Waits until the int32 at a pointer (`~counters[i, j]`) is value: one thread asks again and again,
        the group waits for it.  What was done before the release of that value is seen after it."""
        p, here = _semaphore(semaphore), program().here
        wanted = current().cast(value, i32)
        one_thread(lambda: _spin(p, wanted))
        if here.kind != "one":
            current().emit(smem.group_sync, scope="replica")

    @builtin
    def release_semaphore(self, semaphore: Any, value: Operand) -> None:
        """The int32 at a pointer becomes value, by one thread, after all that it knows of: the group's own
        stores are before a self.sync()."""
        p = _semaphore(semaphore)
        number = current().cast(value, i32)
        one_thread(lambda: atomics.atomic_xchg(p, number, sem="release"))


def _semaphore(x: Any) -> Value:
    p = x.pointer if isinstance(x, GlobalElement) else x
    if not isinstance(p, Value) or p.type != Pointer(i32):
        refuse(
            "semaphore",
            f"a semaphore is a pointer to an int32, found {describe(x)}",
            "write ~counters[i] of a global_tensor(dtype=int32, …, requires_clean=True)",
        )
    return p


def _spin(p: Value, wanted: Value) -> None:
    """while atomic read of *p != wanted: pass"""
    emitter = current()
    with emitter.inside(emitter.builder.nested()) as builder:
        now = atomics.atomic_add(p, 0, sem="acquire")
        emitter.emit(control.yield_, emitter.emit(arith.ne, now, wanted))
    with emitter.inside(emitter.builder.nested()) as body:
        emitter.emit(control.yield_)
    regions = (Region((), tuple(builder.ops)), Region((), tuple(body.ops)))
    emitter.append(control.while_, (), [], regions=regions)
