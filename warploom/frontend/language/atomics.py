"""Atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.frontend.coerce import Operand, Tensor, calc, current
from warploom.frontend.language.core import method, named
from warploom.frontend.language.math import int_to_ptr, to
from warploom.frontend.language.memory import fitted, mask_for, pointer_of
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import i1, i16, i32, i64

__all__ = [
    "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or",
    "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor",
]  # fmt: skip


def combined(
    fn: str, pointer: Operand, val: Operand, mask: Operand, compared: Operand, sem: Any, scope: Any,
    integer: bool,
) -> Tensor:  # fmt: skip
    """An atomic's old values; it orders as asked, for the whole GPU at least."""
    one_of("atomic-order", "sem", sem, None, *tile.ORDERS)
    one_of("atomic-order", "scope", scope, None, "cta", *tile.SCOPES)
    emitter, name = current(), f"atomic_{fn}"
    d = pointer_of(pointer, name)
    if integer and not d.is_int:
        refuse("atomic-dtype", f"{name} of {d}", "use an integer pointer")
    shape = emitter.shape(pointer)
    value, *rest = (
        fitted(emitter.stored(x, d), shape, "store-shape", "the value")
        for x in (val, compared)
        if x is not None
    )
    if mask is not None:
        rest.append(mask_for(mask, shape, name))
    attrs = {"fn": fn, "sem": sem or "acq_rel"}  # as in Triton
    if scope == "sys":
        attrs["scope"] = scope
        if d.bits < 32:
            refuse("atomic-dtype", f"{name} of {d} with scope='sys'", "combine 32 or 64 bits there")
    return emitter.emit(tile.atomic, emitter.value(pointer), value, *rest, **attrs)


def _atomic(fn: str, does: str, integer: bool = False) -> Callable[..., Tensor]:
    """The language's atomic_<fn>.  integer: it takes integers alone."""

    def atomic(
        pointer: Operand,
        val: Operand,
        mask: Operand = None,
        sem: str | None = None,
        scope: str | None = None,
    ) -> Tensor:
        return combined(fn, pointer, val, mask, None, sem, scope, integer)

    means = (
        f"{does}; gives the old values. sem: what it orders of the accesses around it; 'acq_rel' (where not "
        "given) both sides, 'release' those before it, 'acquire' those behind it, 'relaxed' none. "
        "scope: 'gpu' (as is 'cta'), or 'sys' for other GPUs and the host as well."
    )
    return method(named(f"atomic_{fn}", means, atomic))


atomic_add = _atomic("add", "Replaces what the pointers point at by its sum with val")
atomic_max = _atomic("max", "Replaces what the pointers point at by its maximum with val")
atomic_min = _atomic("min", "Replaces what the pointers point at by its minimum with val")
atomic_and = _atomic("and", "Replaces what the pointers point at by its bitwise and with val", True)
atomic_or = _atomic("or", "Replaces what the pointers point at by its bitwise or with val", True)
atomic_xor = _atomic(
    "xor", "Replaces what the pointers point at by its exclusive or with val", True
)
atomic_xchg = _atomic("xchg", "Writes val where the pointers point")


@method
def atomic_load(
    pointer: Operand, mask: Operand = None, sem: str | None = None, scope: str | None = None
) -> Tensor:
    """What the pointers point at, read at once and from memory; 0 where masked off.  sem: 'acquire' (where
    not given) or 'relaxed'; scope as of the other atomics.  Elements of 32 or 64 bits, or int16."""
    one_of("atomic-order", "sem", sem, None, "acquire", "relaxed")
    return combined("load", pointer, 0, mask, None, sem or "acquire", scope, False)


@method
def atomic_store(
    pointer: Operand,
    val: Operand,
    mask: Operand = None,
    sem: str | None = None,
    scope: str | None = None,
) -> None:
    """Writes val where the pointers point, by an atomic.  sem: 'release' (where not given) or 'relaxed'."""
    one_of("atomic-order", "sem", sem, None, "release", "relaxed")
    combined("xchg", pointer, val, mask, None, sem or "release", scope, False)


TRY_NS = 500  # that a read of atomic_poll takes, about


@method
def atomic_poll(
    pointer: Operand,
    expected_value: Operand,
    sem: str | None = None,
    scope: str | None = None,
    timeout_ns: int | None = None,
) -> Tensor:
    """Reads until the pointers point at expected_value; true for each element where that was seen.

    sem: 'acquire' (where not given) or 'relaxed'.  timeout_ns: for about how long, counted in reads of
    500 ns; each element is read at least once."""
    one_of("atomic-order", "sem", sem, None, "acquire", "relaxed")
    emitter = current()
    expected = emitter.stored(expected_value, pointer_of(pointer, "atomic_poll"))
    shape = emitter.shape(pointer)
    wanted = fitted(expected, shape, "store-shape", "the expected value")
    tries = None if timeout_ns is None else emitter.cast(calc("//", timeout_ns, TRY_NS), i64)
    start = (emitter.expand_to(emitter.const(False, i1), shape), emitter.const(0, i64))
    inner, outer = (tuple(Value(v.type) for v in start) for _ in range(2))
    with emitter.inside(emitter.builder.nested()) as reading:
        seen: Any = inner[0]
        mask = emitter.invert(seen) if shape else None
        found = atomic_load(pointer, mask, sem, scope)
        seen = emitter.binary("|", seen, emitter.binary("==", found, wanted))
        missing: Any = emitter.invert(seen)
        for axis in reversed(range(len(shape))):
            missing = emitter.emit(tile.reduce, missing, axis=axis, fn="or")
        n: Any = emitter.binary("+", inner[1], 1)
        if tries is not None:
            missing = emitter.binary("&", missing, emitter.binary("<=", n, tries))
        emitter.emit(control.yield_, missing, seen, n)
    with emitter.inside(emitter.builder.nested()) as again:
        emitter.emit(control.yield_, *outer)
    regions = Region(inner, tuple(reading.ops)), Region(outer, tuple(again.ops))
    return emitter.append(control.while_, start, ["seen", "n"], regions=regions)[0]


_BITS = {16: i16, 32: i32, 64: i64}


@method
def atomic_cas(
    pointer: Operand, cmp: Operand, val: Operand, sem: str | None = None, scope: str | None = None
) -> Tensor:
    """Replaces what the pointers point at by val where it equals cmp; gives the old values.  Elements of 16,
    32 or 64 bits; floats are compared by their bits.  sem, scope: as of the other atomics."""
    d = pointer_of(pointer, "atomic_cas")
    if not d.is_float or d.bits not in _BITS:
        return combined("cas", pointer, val, None, cmp, sem, scope, True)
    bits = _BITS[d.bits]
    new, compared = (to(current().stored(x, d), bits, bitcast=True) for x in (val, cmp))
    old = combined("cas", int_to_ptr(pointer, bits), new, None, compared, sem, scope, True)
    return to(old, d, bitcast=True)
