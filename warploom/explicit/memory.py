"""Stores and atomics at indices, element by element, and semaphores in global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

from warploom.explicit.elements import GlobalElement, pointer_to
from warploom.explicit.handles import GlobalView
from warploom.explicit.operands import one_thread, program, tile_value, view_of, whole_group
from warploom.explicit.values import written
from warploom.frontend.coerce import Operand, current, describe
from warploom.frontend.language import atomics, memory
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import Region, Value
from warploom.ir.ops import arith, control, smem
from warploom.ir.types import Pointer, i32


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
        at = tile_value(indices, "indices")
        if emitter.shape(at) != shape or not emitter.number(at).is_int:
            refuse(
                "scatter", f"indices {at.type} for {values.type}", "one integer for each element"
            )
        index[shapes.axis_of(dim, len(shape))] = at
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
    ) -> NoReturn:
        """Not there: go by a global_tensor, or by gather."""
        _not_in_shared(
            "store_shared_scatter", "self.gather(values, index, dim) with the inverse indices"
        )


def _not_in_shared(what: str, instead: str) -> NoReturn:
    refuse(
        "not-yet",
        f"{what} is not supported: shared memory is stored by whole slots",
        f"write {instead}",
    )


_SUBTRACTS = {"sub": "add", "exch": "xchg"}


def _atomic(fn: str, scatters: bool) -> Callable[..., Any]:
    """self.atomic.global_[scatter_]fn."""
    does = {
        "add": "dst + value", "sub": "dst - value", "min": "the smaller", "max": "the larger",
        "exch": "value",
    }[fn]  # fmt: skip

    def combine(
        dst: Any, values: Any, dim: Any, indices: Any, sem: str, scope: str, output: Any
    ) -> Any:
        whole_group(f"an atomic {fn}")
        v = current().cast(tile_value(values, f"an atomic {fn}"), view_of(dst).dtype)
        pointers, inside = _places(dst, v, dim, indices)
        one_of("scope", "scope", scope, "cta", "cluster", "gpu")
        if fn == "sub":
            v = cast(Value, current().negative(v))
        wide = "gpu" if scope == "cluster" else scope
        do = getattr(atomics, f"atomic_{_SUBTRACTS.get(fn, fn)}")
        return written(do(pointers, v, inside, sem=sem, scope=wide), output)

    if scatters:

        def scatter(
            self: Any, dst: Any, *, dim: Any, indices: Any, values: Any, sem: str = "relaxed",
            scope: str = "gpu", output: Any = None,
        ) -> Any:  # fmt: skip
            return combine(dst, values, dim, indices, sem, scope, output)

        scatter.__doc__ = (
            f"Each element of values goes atomically to dst at its index along dim, which becomes {does}; "
            "gives the old values. Out of bounds dropped."
        )
        return builtin(scatter)

    def elementwise(
        self: Any,
        dst: Any,
        values: Any,
        sem: str = "relaxed",
        scope: str = "gpu",
        output: Any = None,
    ) -> Any:
        return combine(dst, values, None, None, sem, scope, output)

    elementwise.__doc__ = (
        f"Each element of dst, a global view that begins where values go, becomes {does}, atomically; gives "
        "the old values. sem: 'relaxed', 'acquire', 'release', 'acq_rel'. output: the tensor that becomes "
        "the old values."
    )
    return builtin(elementwise)


def _in_shared(name: str) -> Callable[..., Any]:
    def fn(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _not_in_shared(
            f"self.atomic.{name}",
            f"self.atomic.{name.replace('shared', 'global')} on a global_tensor",
        )

    fn.__name__, fn.__doc__ = name, f"atomic.{name} of Tilus; not supported yet."
    return builtin(fn)


class Atomic:
    """self.atomic: atomics of global memory, element by element or at indices."""

    global_add = _atomic("add", False)
    global_sub = _atomic("sub", False)
    global_min = _atomic("min", False)
    global_max = _atomic("max", False)
    global_exch = _atomic("exch", False)
    global_scatter_add = _atomic("add", True)
    global_scatter_sub = _atomic("sub", True)
    global_scatter_min = _atomic("min", True)
    global_scatter_max = _atomic("max", True)

    @builtin
    def global_cas(
        self,
        dst: Any,
        compare: Any,
        values: Any,
        sem: str = "relaxed",
        scope: str = "gpu",
        output: Any = None,
    ) -> Any:
        """Each element of dst that equals compare's becomes that of values, atomically; gives the old
        values.  All of values is inside dst."""
        whole_group("an atomic cas")
        v = tile_value(values, "an atomic cas")
        pointers, _ = _places(dst, v, None, None)
        wide = "gpu" if scope == "cluster" else scope
        return written(atomics.atomic_cas(pointers, compare, v, sem=sem, scope=wide), output)


IN_SHARED = [
    f"shared_{name}"
    for name in (
        *["add", "sub", "min", "max", "exch", "cas"],
        *(f"scatter_{f}" for f in ["add", "sub", "min", "max"]),
    )
]
for _name in IN_SHARED:
    setattr(Atomic, _name, _in_shared(_name))


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
