"""Hints to the compiler, assertions and prints."""

from __future__ import annotations

from typing import Any

from warploom.frontend.coerce import (
    Const,
    Operand,
    Tensor,
    current,
    describe,
    static_bool,
    static_ints,
)
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import DTYPES, Pointer, i1

__all__ = [
    "assume", "debug_barrier", "device_assert", "device_print", "expect_zero", "max_constancy",
    "max_contiguous", "multiple_of", "static_assert", "static_print",
]  # fmt: skip


def _hint(x: Operand, values: Any, what: str) -> Operand:
    current().dtype(x)
    static_ints(values, what)
    return x


@builtin
def multiple_of(input: Operand, values: Any) -> Tensor:
    """The input itself, with the promise that it is a multiple of `values`: a number, or a tile of integers
    or pointers (bytes), one divisor an axis, that of the first element of each row of neighbours.  The
    compiler moves wider pieces of memory by it.  Runs on the CPU check it."""
    emitter, by = current(), static_ints(values, "multiple_of's divisor")
    if isinstance(input, Value):
        emitter.emit(tile.multiple_of, input, by=by)
    return input


@builtin
def globaltimer() -> Tensor:
    """Nanoseconds (i64) on a clock that all programs share, read after what stands before it was issued: by
    one thread for the whole program (in scripts by each thread that is there).  On the CPU the host's."""
    return current().emit(tile.globaltimer)


@builtin
def max_contiguous(input: Operand, values: Any) -> Tensor:
    """The input itself; contiguity is derived from the index arithmetic."""
    return _hint(input, values, "max_contiguous' length")


@builtin
def max_constancy(input: Operand, values: Any) -> Tensor:
    """The input itself; constancy is derived from the index arithmetic."""
    return _hint(input, values, "max_constancy's length")


@builtin
def assume(cond: Operand) -> None:
    """Promises that a scalar condition holds.  The simulator checks the promise."""
    emitter = current()
    if isinstance(cond, bool | Const):
        static_assert(cond, "an assumption is false")
        return
    emitter.emit(control.assume, emitter.truth(cond))


@builtin
def static_assert(cond: Any, msg: Any = "") -> None:
    """Refuses the kernel where a compile-time condition is false."""
    if not static_bool(cond, "the condition of static_assert"):
        refuse(
            "static-assert",
            f"static assertion failed{': ' if msg else ''}{msg}",
            "the kernel refuses these constexprs; change them",
        )


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Prints while compiling."""
    print(*(describe(v) if isinstance(v, Value | Const) else v for v in values), sep=sep, end=end)


@builtin
def device_print(prefix: str, *args: Operand, hex: bool = False) -> None:
    """Prints values of each program at run time; hex: their bits, in base 16."""
    emitter = current()
    if not isinstance(prefix, str):
        refuse(
            "print-prefix", f"device_print starts with {describe(prefix)}", "start with a string"
        )
    values = [emitter.value(a) for a in args]
    if static_bool(hex, "hex"):
        values = [_bits(v) for v in values]
        emitter.emit(control.device_print, *values, prefix=prefix, hex=True)
    else:
        emitter.emit(control.device_print, *values, prefix=prefix)


def _bits(v: Value) -> Value:
    """A number's bits as an unsigned integer; pointers as they are."""
    d = current().dtype(v)
    if isinstance(d, Pointer):
        return v
    unsigned = DTYPES[f"u{d.bits}"]
    if d == i1:
        return current().cast(v, unsigned)
    return current().emit(arith.bitcast, v, dtype=unsigned)


@builtin
def device_assert(cond: Operand, msg: str = "", mask: Operand = None) -> None:
    """Stops the program where cond (a scalar or tile) is false and mask, if any, is true; in debug builds."""
    emitter = current()
    ok = emitter.cast(cond, i1)
    if mask is not None:
        ok = emitter.value(emitter.binary("|", ok, emitter.invert(emitter.cast(mask, i1))))
    emitter.emit(control.device_assert, ok, message=str(msg))


@builtin
def expect_zero(x: Operand, mask: Operand) -> Tensor:
    """x itself, with the claim that it is 0 where mask is true; runs on the CPU and debug builds check it."""
    emitter = current()
    device_assert(emitter.binary("==", x, 0), "expect_zero: x is not 0 where mask is true", mask)
    return x


@builtin
def debug_barrier() -> None:
    """Nothing: a kernel is one sequential program, whose order holds for all of its accesses."""
