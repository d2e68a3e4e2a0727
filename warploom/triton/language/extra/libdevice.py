"""triton.language.extra.libdevice: the functions of CUDA's mathematics by the names of libdevice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.frontend.coerce import Operand, Tensor, calc, current, describe
from warploom.frontend.language import math as elementwise
from warploom.frontend.language.core import builtin, named
from warploom.frontend.language.math import abs as abs
from warploom.frontend.language.math import div_rn as div_rn
from warploom.frontend.language.math import fma as fma
from warploom.frontend.language.math import umulhi as umulhi
from warploom.frontend.refuse import refuse
from warploom.ir.types import f32, f64, i8, i16, i32, i64, u32, u64

pow = elementwise.pow_
atan2 = elementwise.atan2
jn, yn = elementwise.jn, elementwise.yn
_one = elementwise.FUNCTIONS
globals().update(_one)


# ---- other names, and those of Triton's own accuracy

nearbyint = _one["rint"]
fast_sinf, fast_cosf, fast_tanf = _one["sin"], _one["cos"], _one["tan"]
fast_logf, fast_log2f, fast_log10f = _one["log"], _one["log2"], _one["log10"]
fast_expf, fast_exp10f, fast_tanhf = _one["exp"], _one["exp10"], _one["tanh"]
fast_powf, fast_dividef = pow, elementwise.fdiv


@builtin
def fmod(x: Operand, y: Operand) -> Tensor:
    """The remainder of x / y with the sign of x."""
    return calc("%", x, y)


@builtin
def mulhi(x: Operand, y: Operand) -> Tensor:
    """The upper half of the product of two integers of 32 or 64 bits, with their signs."""
    emitter = current()
    high = umulhi(x, y)
    a, b = emitter.unify(x, y)
    for one, other in ((a, b), (b, a)):  # as unsigned numbers negative ones are larger by 2^bits
        high = calc("-", high, emitter.select(calc("<", one, 0), other, 0))
    return high


@builtin
def hypot(x: Operand, y: Operand) -> Tensor:
    """The square root of x² + y², without overflow on the way; of an infinity infinite, even beside a NaN."""
    a, b = abs(x), abs(y)
    large, small = elementwise.maximum(a, b), elementwise.minimum(a, b)
    ratio, total = calc("/", small, large), calc("+", a, b)
    found = calc("*", large, _one["sqrt"](calc("+", calc("*", ratio, ratio), 1.0)))
    select = current().select
    found = select(calc("==", total, 0.0), total, found)
    found = select(calc("!=", total, total), total, found)
    return select(calc("==", large, float("inf")), large, found)


@builtin
def rhypot(x: Operand, y: Operand) -> Tensor:
    """1 / hypot(x, y)."""
    return calc("/", 1.0, hypot(x, y))


@builtin
def rcbrt(x: Operand) -> Tensor:
    """1 / cbrt(x)."""
    return calc("/", 1.0, _one["cbrt"](x))


@builtin
def sinpi(x: Operand) -> Tensor:
    """sin(π·x)."""
    return _one["sin"](calc("*", _reduced(x), _PI))


@builtin
def cospi(x: Operand) -> Tensor:
    """cos(π·x)."""
    return _one["cos"](calc("*", _reduced(x), _PI))


_PI = 3.141592653589793


def _reduced(x: Operand) -> Any:
    """x less its nearest multiple of 2."""
    return calc("-", x, calc("*", _one["rint"](calc("*", x, 0.5)), 2.0))


@builtin
def fdim(x: Operand, y: Operand) -> Tensor:
    """x - y where that is positive, 0 where it is not, NaN where x or y is."""
    return current().select(calc("<=", x, y), 0.0, calc("-", x, y))


@builtin
def saturatef(x: Operand) -> Tensor:
    """x limited to [0, 1]; a NaN gives 0."""
    return elementwise.clamp(x, 0.0, 1.0)


# ---- bits


def _bitcast(name: str, source: Any, to: Any) -> Callable[..., Tensor]:
    def fn(x: Operand) -> Tensor:
        return elementwise.to(current().cast(x, source), to, bitcast=True)

    return named(name, f"The bits of a {source} as {to}.", fn)


float_as_int = _bitcast("float_as_int", f32, i32)
float_as_uint = _bitcast("float_as_uint", f32, u32)
int_as_float = _bitcast("int_as_float", i32, f32)
uint_as_float = _bitcast("uint_as_float", u32, f32)
double_as_longlong = _bitcast("double_as_longlong", f64, i64)
longlong_as_double = _bitcast("longlong_as_double", i64, f64)


def _bits(x: Operand) -> Any:
    """The bits of a float as a signed integer."""
    to = {8: i8, 16: i16, 32: i32, 64: i64}[current().number(x).bits]
    return elementwise.to(x, to, bitcast=True)


def _unsigned(x: Operand) -> tuple[Any, int]:
    """(an integer's bits as an unsigned one, how many they are).  Refuses others."""
    emitter = current()
    d = emitter.number(x)
    if not d.is_int or d.bits not in (32, 64):
        what = f"bits of {describe(x)} are asked for"
        refuse("math-dtype", what, "cast the operand to an integer of 32 or 64 bits")
    return elementwise.to(x, u32 if d.bits == 32 else u64, bitcast=True), d.bits


@builtin
def popc(x: Operand) -> Tensor:
    """How many bits of an integer are 1 (i32)."""
    v, bits = _unsigned(x)
    for step in (1, 2, 4):  # sums of neighbours, in fields of twice the width
        mask = sum(((1 << step) - 1) << at for at in range(0, bits, 2 * step))
        v = calc("+", calc("&", v, mask), calc("&", calc(">>", v, step), mask))
    ones = sum(1 << at for at in range(0, bits, 8))
    return current().cast(calc(">>", calc("*", v, ones), bits - 8), i32)


@builtin
def clz(x: Operand) -> Tensor:
    """How many bits of an integer are 0 above its highest 1 (i32)."""
    v, bits = _unsigned(x)
    step = 1
    while step < bits:  # every bit below the highest 1 becomes 1
        v = calc("|", v, calc(">>", v, step))
        step *= 2
    return calc("-", bits, popc(v))


@builtin
def ffs(x: Operand) -> Tensor:
    """The place of an integer's lowest 1, counted from 1; 0 where it has none (i32)."""
    v, _ = _unsigned(x)
    below = calc("&", current().invert(v), calc("-", v, 1))
    return current().select(calc("==", v, 0), 0, calc("+", popc(below), 1))


@builtin
def brev(x: Operand) -> Tensor:
    """An integer's bits the other way around."""
    v, bits = _unsigned(x)
    step = 1
    while step < bits:
        mask = sum(((1 << step) - 1) << at for at in range(0, bits, 2 * step))
        low, high = calc("&", v, mask), calc("&", calc(">>", v, step), mask)
        v = calc("|", calc("<<", low, step), high)
        step *= 2
    return elementwise.to(v, current().number(x), bitcast=True)


@builtin
def signbit(x: Operand) -> Tensor:
    """Whether the sign bit is set: 1 or 0 (i32)."""
    return current().cast(calc("<", _bits(x), 0), i32)


@builtin
def copysign(x: Operand, y: Operand) -> Tensor:
    """The magnitude of x with the sign of y."""
    emitter = current()
    a, b = emitter.unify(x, y)
    size = abs(a)
    return emitter.select(calc("<", _bits(b), 0), emitter.negative(size), size)


@builtin
def isnan(x: Operand) -> Tensor:
    """1 where x is no number, else 0 (i32)."""
    return current().cast(calc("!=", x, x), i32)


@builtin
def isinf(x: Operand) -> Tensor:
    """1 where x is infinite, else 0 (i32)."""
    return current().cast(calc("==", abs(x), float("inf")), i32)


@builtin
def finitef(x: Operand) -> Tensor:
    """1 where x is a finite number, else 0 (i32)."""
    return current().cast(calc("<", abs(x), float("inf")), i32)


isfinited = finitef


# ---- to integers


def _integer(name: str, rounding: str, to: Any, means: str) -> Callable[..., Tensor]:
    def fn(x: Operand) -> Tensor:
        return current().cast(_one[rounding](x), to)

    return named(name, means, fn)


llrint = _integer("llrint", "rint", i64, "x rounded to an integer, halves to the even one (i64).")
llround = _integer("llround", "round", i64, "x rounded to an integer, halves away from 0 (i64).")
_INTEGERS = {"int": i32, "uint": u32, "ll": i64, "ull": u64}
_ROUNDINGS = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
for _to, _dtype in _INTEGERS.items():
    for _suffix, _way in _ROUNDINGS.items():
        for _name in (f"float2{_to}_{_suffix}", f"double2{_to}_{_suffix}"):
            globals()[_name] = _integer(_name, _way, _dtype, f"{_way}(x) as {_dtype}.")


# ---- halves of integers


@builtin
def hadd(x: Operand, y: Operand) -> Tensor:
    """(x + y) / 2 of integers, rounded down, without overflow on the way."""
    return calc("+", calc("&", x, y), calc(">>", calc("^", x, y), 1))


@builtin
def rhadd(x: Operand, y: Operand) -> Tensor:
    """(x + y + 1) / 2 of integers, rounded down, without overflow on the way."""
    return calc("-", calc("|", x, y), calc(">>", calc("^", x, y), 1))


@builtin
def sad(x: Operand, y: Operand, z: Operand) -> Tensor:
    """|x - y| + z of integers."""
    emitter = current()
    a, b = emitter.unify(x, y)
    size = emitter.select(calc("<", a, b), calc("-", b, a), calc("-", a, b))
    return calc("+", elementwise.to(size, u32, bitcast=True), z)


@builtin
def double2hiint(x: Operand) -> Tensor:
    """The upper 32 bits of a float64 (i32)."""
    return current().cast(calc(">>", double_as_longlong(x), 32), i32)


@builtin
def double2loint(x: Operand) -> Tensor:
    """The lower 32 bits of a float64 (i32)."""
    return current().cast(double_as_longlong(x), i32)


@builtin
def hiloint2double(hi: Operand, lo: Operand) -> Tensor:
    """The float64 of these upper and lower 32 bits."""
    emitter = current()
    low = calc("&", emitter.cast(lo, i64), 0xFFFFFFFF)
    return longlong_as_double(calc("|", calc("<<", emitter.cast(hi, i64), 32), low))


@builtin
def normcdf(x: Operand) -> Tensor:
    """The normal distribution up to x."""
    return calc("*", 0.5, _one["erfc"](calc("*", x, -0.7071067811865476)))


@builtin
def normcdfinv(x: Operand) -> Tensor:
    """The number up to which the normal distribution is x."""
    return calc("*", -1.4142135623730951, _one["erfcinv"](calc("*", x, 2.0)))


# ---- rounded in a direction


_PTX = {"rd": "rm", "ru": "rp", "rz": "rz", "rn": "rn"}
_LETTERS = {"f32": "f", "f64": "d", "i32": "r", "u32": "r", "i64": "l", "u64": "l"}


def _asm(text: str, letters: str, xs: Any, dtype: Any) -> Tensor:
    """An instruction.  letters: of the registers of the result and of the operands."""
    constraints = "=" + ",".join(letters)
    return elementwise.inline_asm_elementwise(text, constraints, xs, dtype, True, 1)


def _rounded(op: str, way: str, count: int) -> Callable[..., Tensor]:
    """An operation in f32 or f64; nothing is contracted with it."""

    def fn(*given: Operand) -> Tensor:
        emitter = current()
        if len(given) != count:
            refuse("arguments", f"{op} takes {count} operands, found {len(given)}", "see its name")
        xs = emitter.broadcast(*given)
        dtype = f64 if any(emitter.number(x) == f64 for x in xs) else f32
        text = f"{op}.{way}.{dtype.name} {', '.join(f'${i}' for i in range(count + 1))};"
        letters = _LETTERS[dtype.name] * (count + 1)
        return _asm(text, letters, [emitter.cast(x, dtype) for x in xs], dtype)

    return named(f"{op}_{way}", f"{op} in f32 or f64, rounded as PTX's .{way} does.", fn)


def _converted(source: Any, to: Any, way: str) -> Callable[..., Tensor]:
    def fn(x: Operand) -> Tensor:
        types = f"{to}.{source}".replace("i", "s")  # as PTX has them
        letters = _LETTERS[to.name] + _LETTERS[source.name]
        return _asm(f"cvt.{way}.{types} $0, $1;", letters, [current().cast(x, source)], to)

    return named(f"{source}2{to}_{way}", f"A {source} as {to}, rounded as PTX's .{way} does.", fn)


def _nearest(name: str, to: Any) -> Callable[..., Tensor]:
    return named(name, f"x as {to}, rounded to nearest even.", lambda x: current().cast(x, to))


_COUNTS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}
for _suffix, _way in _PTX.items():
    for _op, _count in _COUNTS.items():  # the language has div_rn and sqrt_rn
        globals().setdefault(f"{_op}_{_suffix}", _rounded(_op, _way, _count))
    for _from, _dtype in {**_INTEGERS, "double": f64}.items():
        for _to, _float in {"float": f32, "double": f64}.items():
            _name, _is_exact = f"{_from}2{_to}_{_suffix}", _float == f64 and _from[-1] != "l"
            if _suffix == "rn" and _from != _to:
                globals()[_name] = _nearest(_name, _float)
            elif not _is_exact:
                globals()[_name] = _converted(_dtype, _float, _way)


@builtin
def rsqrt_rn(x: Operand) -> Tensor:
    """1 / √x of a float32, rounded to nearest even."""
    wide = current().cast(x, f64)
    return current().cast(calc("/", 1.0, _one["sqrt"](wide)), f32)


# ---- parts of a number


def _exponent(x: Operand) -> Any:
    """e with |x| / 2^e in [1, 2) (i64), for a finite x other than 0."""
    emitter = current()
    mantissa, bias, lift = (52, 1023, 54) if emitter.number(x) == f64 else (23, 127, 25)
    small = calc("<", abs(x), 2.0 ** (1 - bias))
    bits = emitter.cast(_bits(emitter.select(small, calc("*", x, 2.0**lift), x)), i64)
    field = calc("&", calc(">>", bits, mantissa), 2 * bias + 1)
    return calc("-", field, emitter.select(small, bias + lift, emitter.cast(bias, i64)))


@builtin
def ilogb(x: Operand) -> Tensor:
    """The exponent of 2 in x (i32): of 0 and of no number the least i32, of an infinity the largest."""
    emitter = current()
    e = emitter.select(calc("==", abs(x), float("inf")), 2**31 - 1, emitter.cast(_exponent(x), i32))
    neither = calc("|", calc("==", x, 0.0), calc("!=", x, x))
    return emitter.select(neither, -(2**31), e)


@builtin
def logb(x: Operand) -> Tensor:
    """The exponent of 2 in x, as a float: of 0 -inf, of an infinity inf."""
    emitter = current()
    e = emitter.select(
        calc("==", x, 0.0), float("-inf"), emitter.cast(_exponent(x), emitter.number(x))
    )
    return emitter.select(calc("<", abs(x), float("inf")), e, abs(x))


@builtin
def ldexp(x: Operand, n: Operand) -> Tensor:
    """x times 2 to the n, rounded once."""
    emitter = current()
    value, left = emitter.cast(x, f64), emitter.cast(n, i64)
    for _ in range(3):  # steps between normal numbers, but for the last one that isn't lost
        step = emitter.select(calc("<", left, -1022), -969, elementwise.minimum(left, 1023))
        power = longlong_as_double(calc("<<", calc("+", step, 1023), 52))
        value, left = calc("*", value, power), calc("-", left, step)
    return emitter.cast(value, emitter.number(x))


scalbn = ldexp


@builtin
def nextafter(x: Operand, y: Operand) -> Tensor:
    """The number next to x on the way to y."""
    emitter = current()
    select = emitter.select
    a, b = emitter.unify(x, y)
    bits = _bits(a)
    grows = calc("==", calc("<", a, b), calc(">", a, 0.0))
    moved = select(grows, calc("+", bits, 1), calc("-", bits, 1))
    least = calc("|", calc("&", _bits(b), -(2 ** (emitter.number(bits).bits - 1))), 1)
    moved = select(calc("==", a, 0.0), least, moved)
    found = select(calc("==", a, b), b, elementwise.to(moved, emitter.number(a), bitcast=True))
    none = calc("|", calc("!=", a, a), calc("!=", b, b))
    return select(none, calc("+", a, b), found)


@builtin
def remainder(x: Operand, y: Operand) -> Tensor:
    """x less its nearest multiple of y (halves: of the even one), exact."""
    emitter = current()
    a, b = emitter.unify(x, y)
    size, step = abs(a), abs(b)
    rest = calc("%", size, calc("+", step, step))
    rest = emitter.select(calc(">", rest, calc("-", step, rest)), calc("-", rest, step), rest)
    rest = emitter.select(calc(">=", rest, calc("-", step, rest)), calc("-", rest, step), rest)
    return emitter.select(calc("<", _bits(a), 0), emitter.negative(rest), rest)


def _norm(name: str, count: int) -> Callable[..., Tensor]:
    is_inverse = name.startswith("r")

    def fn(*given: Operand) -> Tensor:
        sizes = [abs(x) for x in current().broadcast(*given)]
        large = sizes[0]
        for x in sizes[1:]:
            large = elementwise.maximum(large, x)
        safe = current().select(calc(">", large, 0.0), large, 1.0)
        total: Any = 0.0
        for x in sizes:
            part = calc("/", x, safe)
            total = calc("+", total, calc("*", part, part))
        found = calc("*", large, _one["sqrt"](total))
        found = current().select(calc("==", large, float("inf")), large, found)
        return calc("/", 1.0, found) if is_inverse else found

    means = f"The length of a vector of {count}, without overflow on the way"
    return named(name, f"1 / {means[0].lower()}{means[1:]}." if is_inverse else f"{means}.", fn)


norm3d, norm4d = _norm("norm3d", 3), _norm("norm4d", 4)
rnorm3d, rnorm4d = _norm("rnorm3d", 3), _norm("rnorm4d", 4)


@builtin
def byte_perm(x: Operand, y: Operand, s: Operand) -> Tensor:
    """Four of the eight bytes of x and y (32 bits each), each chosen by four bits of s."""
    return _asm("prmt.b32 $0, $1, $2, $3;", "rrrr", current().broadcast(x, y, s), i32)


@builtin
def mul24(x: Operand, y: Operand) -> Tensor:
    """The lower 32 bits of the product of the lower 24 bits of two integers, with their signs."""
    a, b = (calc(">>", calc("<<", v, 8), 8) for v in (x, y))
    return calc("*", a, b)


@builtin
def rcp64h(x: Operand) -> Tensor:
    """1 / x of a float64, about: the upper 32 bits of the quotient, the lower ones 0."""
    near = _asm("rcp.approx.ftz.f64 $0, $1;", "dd", [current().cast(x, f64)], f64)
    bits = calc("&", elementwise.to(near, i64, bitcast=True), -1 << 32)
    return elementwise.to(bits, f64, bitcast=True)


__all__ = [
    name
    for name, value in vars().items()
    if name[0] != "_" and getattr(value, "__warploom_builtin__", False)
]
