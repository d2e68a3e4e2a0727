"""Elementwise arithmetic on scalars and tiles.

Operands of one op have equal types (broadcasting and promotion are explicit before).  Integers wrap.
At PLACED equal types include equal layouts, so these rules are the layout check as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warploom.ir.core import HARDWARE, KINDS, Family, Op, OpKind, Type, Value, op, require
from warploom.ir.types import (
    ARGUMENT_DTYPES,
    DType,
    Pointer,
    Scalar,
    Tile,
    dtype_of,
    elem_of,
    f32,
    i1,
    i32,
    i64,
    like,
    shape_of,
    u8,
)


def alike(o: Op, axis: int) -> tuple[int | None, ...]:
    """Tiles of the same shape, and numbers, which are the same for all elements (see OpKind.axes)."""
    return tuple(axis if shape_of(v.type) else None for v in o.operands)


_pointwise = op(Family.POINTWISE, axes=alike)


def _same(name: str, x: Type, y: Type) -> Type:
    dtype_of(x)
    if shape_of(x) != shape_of(y):
        require(False, f"{name} needs equal shapes, got {x} and {y}", "shape-mismatch")
    require(x == y, f"{name} needs equal types, got {x} and {y}", "dtype-mismatch")
    return x


def _int(name: str, t: Type) -> None:
    require(dtype_of(t).is_int, f"{name} needs integers, got {t}", "dtype-mismatch")


def _float(name: str, t: Type) -> None:
    require(dtype_of(t).is_float, f"{name} needs floating-point numbers, got {t}", "dtype-mismatch")


def _exact(name: str, t: Type) -> None:
    require(dtype_of(t).name in ("f32", "f64"), f"{name} divides f32 or f64, got {t}", "math-dtype")


@op(Family.NUMBER)
def const(*, value: int | float | bool, dtype: DType) -> Scalar:
    """A scalar constant."""
    return Scalar(dtype)


Check = Callable[[str, Type], object]  # refuses operands that an op of this name doesn't take


def _entered(rule: Callable[..., Type], name: str, doc: str) -> OpKind:
    rule.__name__, rule.__doc__ = name, doc
    return _pointwise(rule)


def _binary(name: str, doc: str, check: Check | None = None) -> OpKind:
    """An op on two numbers of one type, which it gives."""

    def rule(x: Type, y: Type) -> Type:
        if check is not None:
            check(name, x)
        return _same(name, x, y)

    return _entered(rule, name, doc)


def _compare(name: str, symbol: str) -> OpKind:
    def rule(x: Type, y: Type) -> Type:
        return like(_same(name, x, y), i1)

    return _entered(rule, name, f"x {symbol} y, as i1.")


def _unary(name: str, doc: str, check: Check = lambda name, t: dtype_of(t)) -> OpKind:
    def rule(x: Type) -> Type:
        check(name, x)
        return x

    return _entered(rule, name, doc)


# ---- binary, x op y

add = _binary("add", "x + y.")
sub = _binary("sub", "x - y.")
mul = _binary("mul", "x · y.")
div = _binary(
    "div",
    """Floating-point x / y: f32 within 2 units in the last place (PTX div.full.f32), f64 correctly
    rounded.""",
    _float,
)
div_rn = _binary(
    "div_rn",
    "x / y, correctly rounded (f32, f64).  Of f32 it is many instructions, and calls for some operands.",
    _exact,
)
idiv = _binary("idiv", "Integer quotient, rounded towards zero (C's /).  By zero, anything.", _int)


@op(Family.NUMBER, levels=HARDWARE)
def fast_div(x: Scalar, y: Scalar) -> Scalar:
    """x // y of i32 numbers, x ≥ 0, y ≥ 1.  y is known at launch: the host computes what the kernel
    multiplies by instead of dividing (host.DividerParam)."""
    require(x == y == Scalar(i32), f"fast_div divides i32 by i32, not {x} by {y}", "fast-div")
    return x


rem = _binary("rem", "Remainder with the sign of x (C's %; fmod on floats).")
pow_ = _binary("pow", "x to the power of y (floats).", _float)
atan2 = _binary(
    "atan2", "The angle of the point (y, x), in radians: its first operand is y.", _float
)
jn = _binary(
    "jn", "Bessel function of the first kind of x.  Its first operand is the order: whole.", _float
)
yn = _binary(
    "yn", "Bessel function of the second kind of x.  Its first operand is the order: whole.", _float
)
BESSEL = (jn, yn)
minimum = _binary(
    "minimum",
    "The smaller; on floats a NaN operand gives the other one (as PTX min, Triton's default).",
)
maximum = _binary("maximum", "The larger; on floats a NaN operand gives the other one.")
and_ = _binary("and", "Bitwise (on i1 logical) and.", _int)
or_ = _binary("or", "Bitwise (on i1 logical) or.", _int)
xor = _binary("xor", "Bitwise (on i1 logical) exclusive or.", _int)
shl = _binary("shl", "x << y.", _int)
shr = _binary("shr", "x >> y: arithmetic on signed, logical on unsigned integers.", _int)
lt, le = _compare("lt", "<"), _compare("le", "<=")
gt, ge = _compare("gt", ">"), _compare("ge", ">=")
eq, ne = _compare("eq", "=="), _compare("ne", "!=")

# ---- unary

neg = _unary("neg", "-x.")
abs_ = _unary("abs", "|x|.")
not_ = _unary("not", "Bitwise (on i1 logical) complement.", _int)

# Functions of one floating-point number, by the names that C and NumPy have for them (but where their tables
# say otherwise).
MATH: list[OpKind] = []
# What the special function unit computes, or most of it.  Not div, which is several instructions beside one
# of these: who counts the unit's cycles counts it in, who places code by these leaves it out.
SPECIAL: set[OpKind] = set()


def _math(name: str, doc: str, special: bool = True) -> OpKind:
    """A function of one floating-point number; special: see SPECIAL."""
    kind = _unary(name, doc, _float)
    MATH.append(kind)
    SPECIAL.update({kind} if special else ())
    return kind


exp = _math("exp", "e to the x (on the GPU: ex2.approx of x·log2 e, as Triton's tl.exp).")
exp2 = _math("exp2", "2 to the x (ex2.approx).")
log = _math("log", "Natural logarithm.")
log2 = _math("log2", "Base-2 logarithm.")
sqrt = _math("sqrt", "Square root.")
sqrt_rn = _math("sqrt_rn", "Square root, correctly rounded (f32, f64).")
rsqrt = _math("rsqrt", "1 / sqrt(x).")
rcp = _math("rcp", "1 / x, within 1 unit in the last place (f32: PTX rcp.approx.ftz).")
sin = _math("sin", "Sine, x in radians.")
cos = _math("cos", "Cosine, x in radians.")
tanh = _math("tanh", "Hyperbolic tangent.")
erf = _math("erf", "Error function.")
cbrt = _math("cbrt", "Cube root, of negative numbers as well.")
tan = _math("tan", "Tangent.")
asin = _math("asin", "Arc sine.")
acos = _math("acos", "Arc cosine.")
atan = _math("atan", "Arc tangent.")
sinh = _math("sinh", "Hyperbolic sine.")
cosh = _math("cosh", "Hyperbolic cosine.")
asinh = _math("asinh", "Inverse hyperbolic sine.")
acosh = _math("acosh", "Inverse hyperbolic cosine.")
atanh = _math("atanh", "Inverse hyperbolic tangent.")
exp10 = _math("exp10", "10 to the x.")
expm1 = _math("expm1", "e to the x, less 1.")
log10 = _math("log10", "Base-10 logarithm.")
log1p = _math("log1p", "Natural logarithm of 1 + x.")
erfc = _math("erfc", "1 - erf(x).")
lgamma = _math("lgamma", "Logarithm of the gamma function's magnitude.")
tgamma = _math("tgamma", "Gamma function.")
erfinv = _math("erfinv", "Inverse of the error function.")
erfcinv = _math("erfcinv", "Inverse of erfc.")
erfcx = _math("erfcx", "erfc(x)·exp(x²).")
j0 = _math("j0", "Bessel function of the first kind, of order 0.")
j1 = _math("j1", "Bessel function of the first kind, of order 1.")
y0 = _math("y0", "Bessel function of the second kind, of order 0.")
y1 = _math("y1", "Bessel function of the second kind, of order 1.")
cyl_bessel_i0 = _math("cyl_bessel_i0", "Modified Bessel function of order 0.")
cyl_bessel_i1 = _math("cyl_bessel_i1", "Modified Bessel function of order 1.")
trunc = _math("trunc", "x rounded towards zero, as a float.", special=False)
rint = _math(
    "rint", "x rounded to the nearest integer, halves to the even one, as a float.", special=False
)
round_ = _math(
    "round", "x rounded to the nearest integer, halves away from 0, as a float.", special=False
)
floor = _math("floor", "Largest integer not above x, as a float.", special=False)
ceil = _math("ceil", "Smallest integer not below x, as a float.", special=False)


# ---- other elementwise


@_pointwise
def select(c: Type, x: Type, y: Type) -> Type:
    """x where c, else y.  A scalar c may choose between two tiles or in-flight values whole."""
    require(elem_of(c) == i1, f"select needs an i1 condition, got {c}", "dtype-mismatch")
    require(x == y, f"select needs equal types, got {x} and {y}", "dtype-mismatch")
    ok = not isinstance(c, Tile) or (
        isinstance(x, Tile) and c.shape == x.shape and c.layout == x.layout
    )
    require(ok, f"select's condition {c} does not fit {x}", "shape-mismatch")
    return x


@_pointwise
def cast(x: Type, *, dtype: DType) -> Type:
    """Conversion of value: float to float rounds to nearest even (fp8: saturating to finite), float to
    integer truncates, to i1 is x != 0, integer to integer wraps."""
    dtype_of(x)
    return like(x, dtype)


@_pointwise
def bitcast(x: Type, *, dtype: DType) -> Type:
    """The same bits read as another dtype of the same size."""
    require(dtype_of(x).bits == dtype.bits, f"bitcast from {x} to {dtype} changes the size")
    return like(x, dtype)


ENCODINGS = ("e2m1", "e4m3", "e5m2", "ue8m0")


@_pointwise
def decode(x: Type, *, encoding: str) -> Type:
    """The f32 that a byte stands for: "e4m3" and "e5m2" as f8e4m3 and f8e5m2 do (which it takes too, for
    targets that don't convert them), "e2m1" by its lowest four bits (±0, 0.5, 1, 1.5, 2, 3, 4, 6), "ue8m0" as
    2^(x - 127), 255 as NaN (OCP Microscaling Formats 1.0)."""
    require(encoding in ENCODINGS, f"no encoding is {encoding}")
    given = dtype_of(x)
    fits = given == u8 or given.name == f"f8{encoding}"
    require(fits, f"decode of {encoding} takes bytes, got {x}", "dtype-mismatch")
    return like(x, f32)


@_pointwise
def addptr(p: Type, offset: Type) -> Type:
    """p advanced by `offset` elements (i32 or i64; 32-bit offsets are sign-extended before use)."""
    e = elem_of(p)
    require(isinstance(e, Pointer), f"addptr needs a pointer, got {p}", "not-a-pointer")
    require(
        shape_of(p) == shape_of(offset)
        and (not isinstance(p, Tile) or not isinstance(offset, Tile) or p.layout == offset.layout),
        f"addptr's offset {offset} does not fit {p}",
        "shape-mismatch",
    )
    require(
        dtype_of(offset).is_int, f"a pointer offset is an integer, got {offset}", "pointer-offset"
    )
    return p


@_pointwise
def int_to_ptr(x: Type, *, dtype: DType) -> Type:
    """The address x (i64), of elements of dtype.  What it belongs to is not known: it may be any array's."""
    require(dtype_of(x) == i64, f"an address is an i64, got {x}", "dtype-mismatch")
    return like(x, Pointer(dtype))


@_pointwise
def ptr_to_int(p: Type) -> Type:
    """The address p points at, as an i64."""
    require(isinstance(elem_of(p), Pointer), f"ptr_to_int of {p}", "not-a-pointer")
    return like(p, i64)


@dataclass(frozen=True)
class AsmOperand:
    """One operand of inline assembly: its letter (r, h, l: bits of 32, 16, 64; f, d), how many registers it
    has in one run, and how many elements each holds."""

    letter: str
    registers: int
    elements: int


LETTER_BITS = {"r": 32, "h": 16, "l": 64, "f": 32, "d": 64}


def asm_operands(
    constraints: str, outputs: Sequence[DType], inputs: Sequence[DType], pack: int
) -> list[AsmOperand]:
    """The operands of inline assembly, outputs first.  RuleError where the constraints don't fit them."""
    letters = [c.strip() for c in constraints.split(",") if c.strip()]
    found = []
    for dtype, prefix in (*((d, "=") for d in outputs), *((d, "") for d in inputs)):
        first = letters[0].lstrip("=&") if letters else ""
        fits = first in LETTER_BITS and letters[0].startswith("=") == bool(prefix)
        require(fits, f"no constraint for an operand of {dtype} in {constraints!r}", "inline-asm")
        each = max(1, LETTER_BITS[first] // dtype.bits)
        ok = dtype.bits <= LETTER_BITS[first] and (
            first not in "fd" or dtype.name == f"f{dtype.bits}"
        )
        require(ok, f"the constraint {letters[0]} doesn't take {dtype}", "inline-asm")
        count = max(1, pack // each)
        same = letters[:count] == [letters[0]] * count
        require(same, f"{dtype} needs {count} × {letters[0]} for pack={pack}", "inline-asm")
        letters = letters[count:]
        found.append(AsmOperand(first, count, min(each, pack)))
    require(not letters, f"constraints without an operand: {', '.join(letters)}", "inline-asm")
    return found


@_pointwise
def inline_asm(
    x: Type, *more: Type, asm: str, constraints: str, outputs: str, output: int, pack: int
) -> Type:
    """PTX on elements, `pack` at a time ($0 … as LLVM numbers them: outputs, then operands); gives output
    number `output`, whose dtypes `outputs` lists.  It has no effects beside its outputs."""
    for y in more:
        require(shape_of(y) == shape_of(x), f"inline_asm of {x} and {y}", "shape-mismatch")
    dtypes = [ARGUMENT_DTYPES[name] for name in outputs.split(",")]
    asm_operands(constraints, dtypes, [dtype_of(v) for v in (x, *more)], pack)
    return like(x, dtypes[output])


NOT_FOLDED = frozenset((addptr, bitcast, inline_asm, int_to_ptr, ptr_to_int))  # of known numbers

UNARY: frozenset[OpKind] = frozenset((neg, abs_, not_, *MATH))
COMPARE: frozenset[OpKind] = frozenset((lt, le, gt, ge, eq, ne))
BINARY: frozenset[OpKind] = COMPARE | {
    add, sub, mul, div, div_rn, idiv, rem, pow_, atan2, jn, yn, minimum, maximum, and_, or_, xor, shl, shr,
}  # fmt: skip
ELEMENTWISE: frozenset[OpKind] = frozenset(
    k for k in KINDS.values() if k.family is Family.POINTWISE
)

# What the host can compute, of integers: codegen/host.py spells each in Python.
HOST: frozenset[OpKind] = COMPARE | {
    const, add, sub, mul, idiv, fast_div, rem, minimum, maximum, and_, or_, xor, shl, shr,
    neg, not_, abs_, select, cast, addptr,
}  # fmt: skip


def is_of_host(o: Op) -> bool:
    """Can the host compute o where it knows the operands?  Its floats are wider than the GPU's."""
    computed = o.operands[1:] if o.kind is addptr else (*o.operands, *o.results)
    types = [v.type for v in computed]
    return o.kind in HOST and all(isinstance(t, Scalar) and t.dtype.is_int for t in types)


# An op that means the same with exchanged operands; the comparison that is true where this one is false.
MIRRORED: dict[OpKind, OpKind] = {
    **{k: k for k in (add, mul, and_, or_, xor, eq, ne)}, lt: gt, gt: lt, le: ge, ge: le,
}  # fmt: skip
NEGATED: dict[OpKind, OpKind] = {lt: ge, ge: lt, gt: le, le: gt, eq: ne, ne: eq}
_STRICT = {lt: True, gt: True, le: False, ge: False}


def ordered(o: Op) -> tuple[Value, Value, bool] | None:
    """What x < y, x > y, x <= y or x >= y says: (the lesser, the greater, whether they differ)."""
    if o.kind not in _STRICT:
        return None
    x, y = o.operands if o.kind in (lt, le) else reversed(o.operands)
    return x, y, _STRICT[o.kind]
