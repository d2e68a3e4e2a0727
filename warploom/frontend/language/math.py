"""Elementwise functions."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any, cast

from warploom.frontend.coerce import (
    Operand,
    Tensor,
    calc,
    current,
    describe,
    is_literal,
    is_translating,
    static_bool,
    static_dtype,
    static_int,
)
from warploom.frontend.language.core import builtin, method, named
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import OpKind, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, Pointer, bf16, f32, f64, i8, i32, i64, u8, u16, u32, u64

__all__ = [
    "PropagateNan",
    "abs",
    "add",
    "cbrt",
    "cdiv",
    "ceil",
    "clamp",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "fdiv",
    "floor",
    "fma",
    "inline_asm_elementwise",
    "log",
    "log2",
    "maximum",
    "minimum",
    "mul",
    "rcp",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "sqrt_rn",
    "sub",
    "tanh",
    "to_tensor",
    "umulhi",
    "where",
]  # fmt: skip

Function = Callable[[Operand], Tensor]


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """PTX on each element of tiles or numbers (broadcast to one shape).

    $0 … are the results, then the args, in registers that `constraints` names ("=r,r": bits of 32, h of 16,
    l of 64; f, d).  `pack` elements at a time; those narrower than a register share one.  dtype: of the
    result, or of several in a tuple.  It may have no effects beside its results (is_pure changes nothing).
    Without args it moves %smid or %globaltimer, which all threads of a program agree on.

    The CPU knows moves, conversions, integer, bit and float arithmetic, comparisons; other instructions run
    on the GPU alone.

    y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    """
    emitter = current()
    several = isinstance(dtype, tuple)
    dtypes = [static_dtype(d, "a result's dtype") for d in (dtype if several else (dtype,))]
    given = emitter.broadcast(*(args if isinstance(args, tuple | list) else (args,)))
    static_bool(is_pure, "is_pure")
    if not given:
        return _of_nothing(asm, constraints, dtypes)
    found = tuple(
        emitter.emit(
            arith.inline_asm,
            *(emitter.cast(v, i8) if emitter.number(v).kind == "bool" else v for v in given),
            asm=asm,
            constraints=constraints,
            outputs=",".join(d.name for d in dtypes),
            output=i,
            pack=static_int(pack, "pack"),
        )
        for i in range(len(dtypes))
    )
    return found if several else found[0]


def _of_nothing(asm: str, constraints: str, dtypes: list[DType]) -> Tensor:
    """Assembly without operands: a special register that is the same for all threads of a program."""
    found = re.fullmatch(r"\s*mov\.[bus](32|64)\s+\$0,\s*%(\w+)\s*;\s*", asm)
    names = {("32", "smid"): i32, ("64", "globaltimer"): i64}
    register = names.get((found[1], found[2])) if found else None
    if found is None or register is None or len(dtypes) != 1 or dtypes[0].bits != register.bits:
        what = (
            "assembly without an operand, but `mov.u32 $0, %smid;` or `mov.u64 $0, %globaltimer;`"
        )
        refuse("inline-asm", what, "give it a tile or a number")
    emitter = current()
    if found[2] == "globaltimer":
        return emitter.cast(emitter.emit(tile.globaltimer), dtypes[0])
    letters = {"constraints": f"{constraints.strip()},r", "outputs": dtypes[0].name}
    return emitter.emit(
        arith.inline_asm, emitter.const(0, i32), asm=asm, output=0, pack=1, **letters
    )


@builtin
def int_to_ptr(x: Operand, dtype: DType) -> Tensor:
    """Addresses (integers of 64 bits, or pointers) as pointers to elements of dtype: what
    x.to(tl.pointer_type(dtype)) gives."""
    emitter = current()
    elem = emitter.dtype(x)
    if elem == Pointer(dtype):
        return x
    if isinstance(elem, Pointer):
        x = ptr_to_int(x)
    elif elem not in (i64, u64) and not is_literal(x):
        refuse("pointer-cast", f"{describe(x)} as a pointer", "an address is a tl.int64")
    emitter.has_addresses = True
    address = emitter.cast(x, i64)
    return emitter.emit(arith.int_to_ptr, address, dtype=static_dtype(dtype, "the dtype"))


@builtin
def ptr_to_int(x: Operand) -> Tensor:
    """The addresses of pointers (i64): what x.to(tl.int64) gives of pointers."""
    if not isinstance(current().dtype(x), Pointer):
        refuse("not-a-pointer", f"ptr_to_int of {describe(x)}", "give a pointer")
    return current().emit(arith.ptr_to_int, x)


@method
def to(
    x: Operand, dtype: DType, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """x converted to dtype by value, or with bitcast=True its bits read as dtype (of the same size).
    Integers of 64 bits become pointers by tl.pointer_type(dtype), pointers such integers.

    Float to float rounds to nearest even (fp_downcast_rounding="rtne") or, where it gets narrower, towards
    zero ("rtz")."""
    emitter = current()
    if isinstance(dtype, Pointer):
        return int_to_ptr(x, dtype.dtype)
    dtype = static_dtype(dtype, "the target of a cast")
    one_of("cast-rounding", "fp_downcast_rounding", fp_downcast_rounding, None, "rtne", "rtz")
    if fp_downcast_rounding == "rtz":
        return _towards_zero(x, dtype)
    if isinstance(emitter.dtype(x), Pointer):
        if dtype not in (i64, u64):
            refuse("pointer-cast", f"{describe(x)} as {dtype}", "an address is a tl.int64")
        return emitter.cast(ptr_to_int(x), dtype)
    if static_bool(bitcast, "bitcast"):
        return emitter.emit(arith.bitcast, emitter.value(x), dtype=dtype)
    return emitter.cast(x, dtype)


def _towards_zero(x: Operand, dtype: DType) -> Tensor:
    """A float as a narrower one that is no larger in magnitude."""
    emitter = current()
    d = emitter.number(x)
    if not (d.is_float and dtype.is_float and dtype.bits < d.bits):
        what = f"a cast of {describe(x)} to {dtype} that rounds towards zero"
        refuse("cast-rounding", what, "leave fp_downcast_rounding out: nothing is rounded")
    near = emitter.cast(x, dtype)
    beyond = emitter.binary(">", abs(emitter.cast(near, d)), abs(x))
    bits: Value = emitter.emit(arith.bitcast, near, dtype={8: u8, 16: u16, 32: u32}[dtype.bits])
    less = emitter.binary("-", bits, 1)
    bits = emitter.select(beyond, less, bits)
    return emitter.emit(arith.bitcast, bits, dtype=dtype)


@method
def cast_(
    input: Operand, dtype: DType, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """The same as x.to(dtype)."""
    return to(input, dtype, fp_downcast_rounding, bitcast)


def _narrow(x: Operand) -> Operand:
    """Constants made strong, bf16 widened: what Triton does before minimum, maximum and clamp."""
    emitter = current()
    return emitter.cast(x, f32) if emitter.number(x) == bf16 else emitter.strong(x)


@builtin
def where(condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where condition, else y, elementwise; both are evaluated, broadcast to one shape and promoted to one
    dtype.  Pointers may be chosen among as well."""
    return current().select(condition, x, y)


def _logical(symbol: str, name: str) -> Callable[..., Tensor]:
    def logical(x: Operand, y: Operand) -> Tensor:
        emitter = current()
        return emitter.binary(symbol, emitter.logical(x), emitter.logical(y))

    logical.__name__ = logical.__qualname__ = name
    logical.__doc__ = f"(x != 0) {symbol} (y != 0), as truth values."
    return method(logical)


logical_and, logical_or = _logical("&", "logical_and"), _logical("|", "logical_or")


class PropagateNan(enum.Enum):
    """What minimum, maximum and clamp make of a NaN: the other operand, or a NaN."""

    NONE = "none"
    ALL = "all"


def _extreme(kind: OpKind, x: Operand, y: Operand, propagate_nan: Any) -> Tensor:
    emitter = current()
    one_of("propagate-nan", "propagate_nan", propagate_nan, PropagateNan.NONE, PropagateNan.ALL)
    a, b = emitter.unify(_narrow(x), _narrow(y))
    found: Value = emitter.emit(kind, a, b)
    if propagate_nan is PropagateNan.NONE or not emitter.number(a).is_float:
        return found
    return emitter.select(
        emitter.binary("!=", a, a), a, emitter.select(emitter.binary("!=", b, b), b, found)
    )


@builtin
def minimum(x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE) -> Tensor:
    """The smaller, elementwise; a NaN gives the other operand, or with PropagateNan.ALL a NaN.  bf16 is
    computed in f32."""
    return _extreme(arith.minimum, x, y, propagate_nan)


@builtin
def maximum(x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE) -> Tensor:
    """The larger, elementwise; a NaN as for minimum.  bf16 is computed in f32."""
    return _extreme(arith.maximum, x, y, propagate_nan)


@builtin
def clamp(
    x: Operand, min: Operand, max: Operand, propagate_nan: PropagateNan = PropagateNan.NONE
) -> Tensor:
    """x limited to [min, max]; a NaN gives min, or with PropagateNan.ALL a NaN.  bf16 is computed in f32."""
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


@builtin
def to_tensor(x: Operand) -> Tensor:
    """A number as a value of its own dtype; tiles and values as they are."""
    return current().value(x)


@builtin
def fma(x: Operand, y: Operand, z: Operand) -> Tensor:
    """x·y + z: x and y as one dtype, then all three; of floats one fused operation on the GPU unless
    enable_fp_fusion=False."""
    emitter = current()
    a, b = emitter.unify(emitter.strong(x), emitter.strong(y))
    c = emitter.strong(z)
    d = emitter.promoted(a, c)
    wide = f32 if d.is_float and d.bits < 32 else d  # which holds products of narrow floats exactly
    a, b, c = (emitter.cast(emitter.cast(v, d), wide) for v in (a, b, c))
    return emitter.cast(emitter.binary("+", emitter.binary("*", a, b), c), d)


@builtin
def fdiv(x: Operand, y: Operand, ieee_rounding: bool = False, approx: bool = False) -> Tensor:
    """x / y of floats, in their dtype: of f32 as /, within 2 units in the last place (so approx changes
    nothing), or (ieee_rounding) as div_rn."""
    emitter = current()
    if not (emitter.number(x).is_float and emitter.number(y).is_float):
        refuse(
            "math-dtype", f"fdiv of {describe(x)} and {describe(y)}", "fdiv divides floats; use /"
        )
    d = emitter.promoted(x, y)
    if not ieee_rounding:
        return emitter.cast(emitter.binary("/", x, y), d)
    if d.bits < 32:  # f32 has so many more bits that rounding twice is rounding once
        x, y = emitter.cast(x, f32), emitter.cast(y, f32)
    return emitter.cast(_exact(x, y), d)


def _operation(symbol: str, name: str) -> Callable[..., Tensor]:
    def operation(x: Operand, y: Operand, sanitize_overflow: bool = True) -> Tensor:
        return calc(symbol, x, y)

    return named(name, f"x {symbol} y.", operation)


add, sub, mul = _operation("+", "add"), _operation("-", "sub"), _operation("*", "mul")


@builtin
def div_rn(x: Operand, y: Operand) -> Tensor:
    """x / y, correctly rounded (f32, f64): slower than /, which is off by up to 2 units in the last place."""
    return _exact(x, y)


def _exact(x: Operand, y: Operand) -> Tensor:
    emitter = current()
    return emitter.emit(arith.div_rn, *emitter.unify(emitter.strong(x), emitter.strong(y)))


@builtin
def umulhi(x: Operand, y: Operand) -> Tensor:
    """The upper half of the product of two integers of 32 or 64 bits, whose bits are taken as unsigned."""
    emitter = current()
    d = emitter.promoted(x, y)
    if not d.is_int or d.bits not in (32, 64):
        what = f"umulhi of {describe(x)} and {describe(y)}"
        refuse("math-dtype", what, "cast both to integers of 32 or 64 bits")
    unsigned = u32 if d.bits == 32 else u64
    a, b = (
        v if d == unsigned else emitter.emit(arith.bitcast, v, dtype=unsigned)
        for v in emitter.unify(x, y)
    )
    if d.bits == 32:
        product = emitter.binary("*", emitter.cast(a, u64), emitter.cast(b, u64))
        high = emitter.cast(emitter.binary(">>", product, 32), u32)
    else:
        high = _upper_half(a, b)
    return high if d == unsigned else emitter.emit(arith.bitcast, high, dtype=d)


def _upper_half(a: Value, b: Value) -> Value:
    """The upper 64 bits of a product of u64, from products of halves."""

    low, high = (
        [calc("&", v, 0xFFFFFFFF) for v in (a, b)],
        [calc(">>", v, 32) for v in (a, b)],
    )
    first = calc("*", low[0], low[1])
    cross, other = calc("*", high[0], low[1]), calc("*", low[0], high[1])
    middle = calc("+", calc("+", calc(">>", first, 32), calc("&", cross, 0xFFFFFFFF)), other)
    carried = calc("+", calc(">>", cross, 32), calc(">>", middle, 32))
    return cast(Value, calc("+", calc("*", high[0], high[1]), carried))


@method
def cdiv(x: Operand, div: Operand) -> Tensor:
    """The smallest integer not below x / div, for x >= 0 and div > 0."""
    if is_literal(x) and is_literal(div):
        found = -(-x // div)
        return current().strong(found) if is_translating() else found
    emitter = current()
    less = div - 1 if is_literal(div) else emitter.binary("-", div, 1)
    return emitter.binary("//", emitter.binary("+", x, less), div)


def _function(kind: OpKind) -> Function:
    """The language's function of an op on one floating-point number."""

    def function(x: Operand) -> Tensor:
        emitter = current()
        if emitter.number(x) not in (f32, f64):
            refuse(
                "math-dtype",
                f"{kind.name} computes in f32 or f64, found {describe(x)}",
                "cast the operand first, as in x.to(tl.float32)",
            )
        return emitter.emit(kind, emitter.value(x))

    return named(kind.name, f"{kind.doc.rstrip('.')} (f32, f64).", function)


FUNCTIONS = {
    kind.name: _function(kind) for kind in arith.MATH
}  # those that Triton's tl has not, too

exp = method(FUNCTIONS["exp"])
exp2 = method(FUNCTIONS["exp2"])
log = method(FUNCTIONS["log"])
log2 = method(FUNCTIONS["log2"])
sqrt = method(FUNCTIONS["sqrt"])
rsqrt = method(FUNCTIONS["rsqrt"])
rcp = method(FUNCTIONS["rcp"])
sin = method(FUNCTIONS["sin"])
cos = method(FUNCTIONS["cos"])
erf = method(FUNCTIONS["erf"])
tanh = FUNCTIONS["tanh"]
cbrt = FUNCTIONS["cbrt"]
sqrt_rn = method(FUNCTIONS["sqrt_rn"])
floor = method(FUNCTIONS["floor"])
ceil = method(FUNCTIONS["ceil"])


def _function_of_two(kind: OpKind) -> Callable[[Operand, Operand], Tensor]:
    def function(x: Operand, y: Operand) -> Tensor:
        emitter = current()
        a, b = emitter.unify(x, y)
        if emitter.number(a) not in (f32, f64):
            what = f"{kind.name} computes in f32 or f64, found {describe(x)} and {describe(y)}"
            refuse("math-dtype", what, "cast the operands first, as in x.to(tl.float32)")
        return emitter.emit(kind, a, b)

    return named(kind.name, f"{kind.doc.rstrip('.')} (f32, f64).", function)


pow_ = _function_of_two(arith.pow_)
atan2 = _function_of_two(arith.atan2)


def _bessel(kind: OpKind) -> Callable[[Operand, Operand], Tensor]:
    def function(n: Operand, x: Operand) -> Tensor:
        emitter = current()
        order, value = emitter.broadcast(n, x)
        if emitter.number(value) not in (f32, f64) or not emitter.number(order).is_int:
            what = f"{kind.name} takes an integer and an f32 or f64, found {describe(n)} and {describe(x)}"
            refuse("math-dtype", what, "cast the operands first, as in x.to(tl.float32)")
        return emitter.emit(kind, emitter.cast(order, emitter.number(value)), value)

    first = kind.doc.partition(" of x.")[0]
    return named(
        kind.name, f"{first} of order n, an integer, of x (f32, f64); NaN for n < 0.", function
    )


jn, yn = _bessel(arith.jn), _bessel(arith.yn)


@method
def abs(x: Operand) -> Tensor:
    """|x|; of an unsigned integer x itself."""
    emitter = current()
    d = emitter.number(x)
    v = emitter.value(x)
    return v if d.kind in ("uint", "bool") else emitter.emit(arith.abs_, v)


@method
def sigmoid(x: Operand) -> Tensor:
    """1 / (1 + e^-x) (f32, f64)."""
    emitter = current()
    return emitter.binary("/", 1, emitter.binary("+", 1, exp(emitter.negative(x))))
