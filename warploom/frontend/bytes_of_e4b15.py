"""float8e4b15 as bytes: 1 bit of sign, 4 of exponent with a bias of 15, 3 of mantissa; no infinity, no NaN.

No instruction takes it.  Kernels load, move, choose, store and convert such numbers; from the frontend on
they are bytes (u8), and conversions are integer arithmetic.  All go through f16, which has the same bias, so
that a byte is the upper bits of one, shifted.  Of f16 and f32 the nearest is taken, of two the larger in
magnitude; the largest is ±1.75, which NaN becomes too, as in Triton (whose bytes 0x7f and 0xff are read as
±1.875, but never written).
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from math import copysign
from typing import Any

from warploom.errors import CompileError
from warploom.ir.build import const
from warploom.ir.core import Builder, Family, Func, Op, Region, Type, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, Pointer, dtype_of, f8e4b15, f16, f32, i32, shape_of, u8, u16

_MOVES = {
    Family.FILL, Family.MOVE, Family.ACCESS, Family.SHARED, Family.PLACE, Family.CONTROL, Family.ISSUE,
}  # fmt: skip
_BITS = {
    arith.select, arith.bitcast, arith.addptr, arith.int_to_ptr, arith.ptr_to_int, arith.inline_asm,
    tile.gather,
}  # fmt: skip


def store_as_bytes(func: Func) -> Func:
    """The function with u8 in place of float8e4b15; itself where it has none.  Raises CompileError where an
    op computes with such numbers."""
    values = chain(func.params, *(o.results for o in func.body.all_ops))
    if not any(_stored(v.type) for v in values):
        return func
    for v in func.params:
        if _stored(v.type) and not isinstance(v.type, Pointer):
            raise CompileError(
                "storage-dtype",
                f"the argument {v.hint} is a float8e4b15",
                func.loc,
                help="pass a float, and convert it in the kernel with .to(tl.float8e4b15)",
            )
    return func.with_(body=_region(func.body, {}))


@lru_cache(4096)
def _stored(t: Type) -> Any:
    """The type with bytes in place of float8e4b15; None where it has none."""
    name = "elem" if hasattr(t, "elem") else "dtype"
    of = getattr(t, name, None)
    kept = _stored(of) if isinstance(of, Pointer) else u8 if of == f8e4b15 else None
    return kept and replace(t, **{name: kept})  # type: ignore[type-var]


def _region(region: Region, env: dict[Value, Value]) -> Region:
    b = Builder()
    params = tuple(_value(v, env) for v in region.params)
    for o in region.ops:
        _append(b, o, env)
    return Region(params, tuple(b.ops))


def _value(v: Value, env: dict[Value, Value]) -> Value:
    if t := _stored(v.type):
        env[v] = Value(t, v.hint)
    return env.get(v, v)


def _append(b: Builder, o: Op, env: dict[Value, Value]) -> None:
    operands = tuple(env.get(v, v) for v in o.operands)
    if any(_stored(v.type) for v in (*o.operands, *o.results)):
        b.loc, b.tasks = o.loc, o.tasks
        if (made := _converted(b, o, *operands)) is not None:
            env[o.result] = made
            return
        if o.kind is tile.atomic or not (o.kind.family in _MOVES or o.kind in _BITS):
            raise CompileError(
                "storage-dtype",
                f"{o.kind.name} of float8e4b15, which is for storage: no instruction computes with it",
                o.loc,
                help="convert it first, as in x.to(tl.float16)",
            )
    attrs: dict[str, Any] = {
        k: u8 if isinstance(v, DType) and v == f8e4b15 else v for k, v in o.attrs.items()
    }
    if o.kind is arith.inline_asm:
        attrs["outputs"] = attrs["outputs"].replace(f8e4b15.name, u8.name)
    regions = tuple(_region(r, env) for r in o.regions)
    results = tuple(_value(v, env) for v in o.results)
    b.append(o.with_(operands=operands, attrs=attrs, results=results, regions=regions))


def _converted(b: Builder, o: Op, *operands: Value) -> Value | None:
    """The result of a conversion, or of what is as simple; None of other ops."""
    if o.kind is arith.const:
        return const(b, _byte(o.attrs["value"]), u8, o.result.hint)
    if o.kind is arith.bitcast and operands[0].type in (o.result.type, _stored(o.result.type)):
        return operands[0]
    if o.kind is arith.abs_:
        return arith.and_(b, operands[0], _full(b, 0x7F, operands[0], u8), hint=o.result.hint)
    if o.kind is not arith.cast:
        return None
    (x,), (given,) = operands, o.operands
    if dtype_of(given.type) == f8e4b15:
        bits = arith.cast(b, x, dtype=i32)
        sign = arith.and_(b, bits, _full(b, 0x80, x))
        bits = arith.add(b, bits, sign)  # which moves up by one
        half = arith.cast(b, arith.shl(b, bits, _full(b, 7, x)), dtype=u16)
        found = arith.bitcast(b, half, dtype=f16, hint=o.result.hint)
        to: DType = o.attrs["dtype"]
        return found if to == f16 else arith.cast(b, found, dtype=to, hint=o.result.hint)
    if dtype_of(x.type) not in (f16, f32):
        raise CompileError(
            "storage-dtype",
            f"a conversion of {x.type} to float8e4b15",
            o.loc,
            help="convert it to tl.float16 or tl.float32 first",
        )
    return _rounded(b, x, o.result.hint)


def _rounded(b: Builder, x: Value, hint: str) -> Value:
    """The bytes of f16 or f32."""
    half = arith.cast(b, x, dtype=f16) if dtype_of(x.type) == f32 else x
    bits = arith.cast(b, arith.bitcast(b, half, dtype=u16), dtype=i32)
    if half is not x:
        # Rounded towards zero: what is just below the middle of two bytes stays there.
        back = arith.abs_(b, arith.cast(b, half, dtype=f32))
        bits = arith.sub(b, bits, arith.cast(b, arith.gt(b, back, arith.abs_(b, x)), dtype=i32))
    size = arith.minimum(b, arith.and_(b, bits, _full(b, 0x7FFF, x)), _full(b, 0x3F00, x))  # 1.75
    size = arith.shr(b, arith.add(b, size, _full(b, 0x40, x)), _full(b, 7, x))
    if half is not x:  # of a NaN, a conversion to f16 may lose the sign
        bits = arith.shr(b, arith.bitcast(b, x, dtype=i32), _full(b, 16, x))
    sign = arith.and_(b, arith.shr(b, bits, _full(b, 8, x)), _full(b, 0x80, x))
    return arith.cast(b, arith.or_(b, size, sign), dtype=u8, hint=hint)


def _full(b: Builder, n: int, like: Value, dtype: DType = i32) -> Value:
    """The number n, as often as `like` has elements."""
    x, shape = const(b, n, dtype), shape_of(like.type)
    return tile.splat(b, x, shape=shape) if shape else x


def _number(byte: int) -> float:
    exponent, mantissa = byte >> 3, byte & 7
    return (8 + mantissa if exponent else mantissa) * 2.0 ** ((exponent or 1) - 18)


_MIDDLES = [(_number(i) + _number(i + 1)) / 2 for i in range(0x7E)]


def _byte(x: Any) -> int:
    """The byte of a number that is known while compiling."""
    return bisect(_MIDDLES, abs(x)) + (0x80 if copysign(1, x) < 0 else 0)
