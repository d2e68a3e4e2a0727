"""What expressions are made of: for each op its text in a kernel, its value in NumPy, and its type.

The type's interval, grain and error follow from the operands': `make` refuses (Inexact) what a format does not hold,
so that every value without an error is the same number in whatever order it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.numbers import FORMATS, convert, holds, ulp, wide
from tests.fuzz.tree import E, T
from warploom.sim import special


class Inexact(Exception):
    """The result may need rounding."""


Rule = Callable[[dict[str, Any], list[T]], T]
Spell = Callable[[E, list[str]], str]
Value = Callable[[E, list[Any]], Any]


@dataclass(frozen=True)
class Op:
    rule: Rule
    spell: Spell
    value: Value


OPS: dict[str, Op] = {}


def make(op: str, *args: E, **attrs: Any) -> E:
    """The expression, with its type.  Raises Inexact."""
    return E(op, args, checked(OPS[op].rule(attrs, [a.t for a in args])), attrs)


def checked(t: T) -> T:
    """The type of a result: of integers what wraps may be anything, of floats what does not fit is refused."""
    if t.format.kind in "iu":
        low, high = t.format.range
        return t if low <= t.lo and t.hi <= high else t.like(lo=low, hi=high)
    if t.err:
        return t
    if not holds(t.dtype, t.lo, t.hi, t.grain):
        raise Inexact(t)
    return t


# ---- leaves


def _text_of(value: float, dtype: str) -> str:
    f = FORMATS[dtype]
    if f.kind == "b":
        return str(bool(value))
    text = repr(float(value) if f.is_float else int(value))
    return f"({text})" if text.startswith("-") else text


def literal(value: float, dtype: str) -> E:
    """A number beside a typed operand, whose dtype it takes."""
    return E("literal", (), _point(value, dtype), {"value": value})


def typed(value: float, dtype: str, shape: tuple[int, ...] = ()) -> E:
    """A number, or a tile of it, that has its dtype by itself."""
    return E("full", (), _point(value, dtype).like(shape=shape), {"value": value})


def _point(value: float, dtype: str) -> T:
    grain = 0
    while value != int(value * 2**grain) / 2**grain:
        grain += 1
    return T(dtype, (), value, value, grain)


def var(name: str, t: T) -> E:
    return E("var", (), t, {"name": name})


def _spell_full(e: E, _: list[str]) -> str:
    text = _text_of(e.attrs["value"], e.t.dtype)
    if not e.t.shape:
        return f"tl.cast({text}, {e.t.format.tl})"
    if e.attrs["value"] == 0 and e.t.format.kind != "b":
        return f"tl.zeros({e.t.shape}, {e.t.format.tl})"
    return f"tl.full({e.t.shape}, {text}, {e.t.format.tl})"


def _full(e: E, _: list[Any]) -> Any:
    number = np.asarray(e.attrs["value"]).astype(e.t.format.numpy)
    return np.full(e.t.shape, number) if e.t.shape else number[()]


def _never(attrs: dict[str, Any], ts: list[T]) -> T:
    raise AssertionError("leaves are made with their types")


OPS["literal"] = Op(_never, lambda e, _: _text_of(e.attrs["value"], e.t.dtype), _full)
OPS["full"] = Op(_never, _spell_full, _full)
OPS["arange"] = Op(
    lambda a, _: T("i32", (a["hi"] - a["lo"],), a["lo"], a["hi"] - 1),
    lambda e, _: f"tl.arange({e.attrs['lo']}, {e.attrs['hi']})",
    lambda e, _: np.arange(e.attrs["lo"], e.attrs["hi"], dtype=np.int32),
)


# ---- elementwise


def _shape(ts: list[T]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*(t.shape for t in ts)))


def _join(ts: list[T], lo: float, hi: float, grain: int, err: float = 0.0) -> T:
    return T(ts[0].dtype, _shape(ts), lo, hi, grain, err)


def _error(ts: list[T], lo: float, hi: float, err: float) -> float:
    """err with the rounding of a result in [lo, hi], where an operand has an error."""
    if not any(t.err for t in ts):
        return 0.0
    return err + ulp(ts[0].dtype, max(abs(lo), abs(hi)) + err)


def _add(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    lo, hi = x.lo + y.lo, x.hi + y.hi
    return _join(ts, lo, hi, max(x.grain, y.grain), _error(ts, lo, hi, x.err + y.err))


def _sub(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    lo, hi = x.lo - y.hi, x.hi - y.lo
    return _join(ts, lo, hi, max(x.grain, y.grain), _error(ts, lo, hi, x.err + y.err))


def _mul(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    corners = [p * q for p in (x.lo, x.hi) for q in (y.lo, y.hi)]
    lo, hi = min(corners), max(corners)
    err = x.err * y.top + y.err * x.top + x.err * y.err
    return _join(ts, lo, hi, x.grain + y.grain, _error(ts, lo, hi, err))


def _least(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    err = max(x.err, y.err)
    out = _join(ts, min(x.lo, y.lo), min(x.hi, y.hi), max(x.grain, y.grain), err)
    return out.like(dtype="f32") if x.dtype == "bf16" else out  # as in Triton


def _most(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    err = max(x.err, y.err)
    out = _join(ts, max(x.lo, y.lo), max(x.hi, y.hi), max(x.grain, y.grain), err)
    return out.like(dtype="f32") if x.dtype == "bf16" else out


def _whole(a: dict[str, Any], ts: list[T]) -> T:
    """Integer ops that may give any number."""
    low, high = ts[0].format.range
    return _join(ts, low, high, 0)


def _and(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    if min(x.lo, y.lo) >= 0:
        return _join(ts, 0, min(x.hi, y.hi), 0)
    return _join(ts, 0, y.hi, 0) if y.lo >= 0 else _whole(a, ts)


def _remainder(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts
    top = y.hi if y.format.is_float else max(abs(y.lo), abs(y.hi)) - 1
    return _join(ts, -top if x.lo < 0 else 0, top, max(x.grain, y.grain))


def _quotient(a: dict[str, Any], ts: list[T]) -> T:
    x, _y = ts
    return _join(ts, min(x.lo, 0), max(x.hi, 0), 0)


def _truth(a: dict[str, Any], ts: list[T]) -> T:
    return T("i1", _shape(ts), 0, 1)


def _neg(a: dict[str, Any], ts: list[T]) -> T:
    return ts[0].like(lo=-ts[0].hi, hi=-ts[0].lo)


def _abs(a: dict[str, Any], ts: list[T]) -> T:
    x = ts[0]
    return x.like(lo=0 if x.lo <= 0 <= x.hi else min(abs(x.lo), abs(x.hi)), hi=x.top)


def _floor(a: dict[str, Any], ts: list[T]) -> T:
    return ts[0].like(lo=math.floor(ts[0].lo), hi=math.ceil(ts[0].hi), grain=0)


def _select(a: dict[str, Any], ts: list[T]) -> T:
    _, x, y = ts
    return x.hull(y).like(shape=_shape(ts))


def _cast(a: dict[str, Any], ts: list[T]) -> T:
    x, to = ts[0], FORMATS[a["dtype"]]
    if to.kind == "b":
        return x.like(dtype="i1", lo=0, hi=1, grain=0)
    if to.is_int and x.format.is_float:
        x = x.like(lo=math.trunc(x.lo), hi=math.trunc(x.hi), grain=0)
    if to.is_int and not (to.range[0] <= x.lo and x.hi <= to.range[1]) and x.format.is_float:
        raise Inexact(x)
    err = x.err + ulp(to.name, x.top + x.err) if x.err else 0.0
    return x.like(dtype=to.name, err=err)


def _on(fn: Callable[..., Any]) -> Value:
    """The op computed as wide as its operands are computed, and rounded once."""

    def value(e: E, xs: list[Any]) -> Any:
        dtype = e.args[0].t.dtype
        out = fn(*(wide(x, dtype) for x in xs))
        if e.t.format.is_float and e.t.format.bits < 32:
            return convert(out, "f32", e.t.dtype)
        return out

    return value


def _idiv(x: Any, y: Any) -> Any:
    """Rounded towards zero; by 0 whatever, which nobody takes."""
    q = np.abs(x.astype(np.int64)) // np.maximum(np.abs(np.asarray(y).astype(np.int64)), 1)
    signed = np.where((x < 0) != (np.asarray(y) < 0), -q, q)
    return signed.astype(np.asarray(x).dtype)[()]


def _infix(symbol: str) -> Spell:
    return lambda e, s: f"({s[0]} {symbol} {s[1]})"


def _call(name: str) -> Spell:
    return lambda e, s: f"tl.{name}({', '.join(s)})"


def _libdevice(name: str) -> Spell:
    return lambda e, s: f"libdevice.{name}({', '.join(s)})"


for _name, _rule, _symbol, _fn in (
    ("add", _add, "+", np.add), ("sub", _sub, "-", np.subtract), ("mul", _mul, "*", np.multiply),
    ("and", _and, "&", np.bitwise_and), ("or", _whole, "|", np.bitwise_or), ("xor", _whole, "^", np.bitwise_xor),
    ("shl", _whole, "<<", np.left_shift), ("shr", _quotient, ">>", np.right_shift),
    ("rem", _remainder, "%", np.fmod), ("idiv", _quotient, "//", _idiv),
    ("lt", _truth, "<", np.less), ("le", _truth, "<=", np.less_equal), ("gt", _truth, ">", np.greater),
    ("ge", _truth, ">=", np.greater_equal), ("eq", _truth, "==", np.equal), ("ne", _truth, "!=", np.not_equal),
):  # fmt: skip
    OPS[_name] = Op(_rule, _infix(_symbol), _on(_fn))

OPS["min"] = Op(_least, _call("minimum"), _on(np.fmin))
OPS["max"] = Op(_most, _call("maximum"), _on(np.fmax))
OPS["neg"] = Op(_neg, lambda e, s: f"(-{s[0]})", _on(np.negative))
OPS["not"] = Op(
    lambda a, ts: ts[0] if ts[0].dtype == "i1" else _whole(a, ts), lambda e, s: f"(~{s[0]})", _on(np.invert)
)  # fmt: skip
OPS["abs"] = Op(_abs, _call("abs"), _on(np.abs))
OPS["floor"] = Op(_floor, _call("floor"), _on(np.floor))
OPS["ceil"] = Op(_floor, _call("ceil"), _on(np.ceil))
OPS["rint"] = Op(_floor, _libdevice("rint"), _on(np.rint))
OPS["trunc"] = Op(_floor, _libdevice("trunc"), _on(np.trunc))
OPS["round"] = Op(
    _floor, _libdevice("round"), _on(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x))
)
OPS["select"] = Op(
    _select, _call("where"), lambda e, xs: _broadcast(np.where(*xs), e).astype(e.t.format.numpy)
)  # fmt: skip
OPS["cast"] = Op(
    _cast,
    lambda e, s: f"{s[0]}.to({e.t.format.tl})",
    lambda e, xs: convert(xs[0], e.args[0].t.dtype, e.t.dtype),
)
OPS["fma"] = Op(
    lambda a, ts: _add(a, [_mul(a, ts[:2]), ts[2]]), _call("fma"), _on(lambda x, y, z: x * y + z)
)  # fmt: skip


def _broadcast(x: Any, e: E) -> Any:
    return np.broadcast_to(x, e.t.shape) if e.t.shape else np.asarray(x)[()]


def _bits(a: dict[str, Any], ts: list[T]) -> T:
    to = FORMATS[a["dtype"]]
    if to.is_float:  # only what was a float before
        return T(to.name, ts[0].shape, a["back"].lo, a["back"].hi, a["back"].grain)
    return T(to.name, ts[0].shape, *to.range)


OPS["bitcast"] = Op(
    _bits,
    lambda e, s: f"{s[0]}.to({e.t.format.tl}, bitcast=True)",
    lambda e, xs: np.asarray(xs[0]).view(e.t.format.numpy)[()],
)


def _power(a: dict[str, Any], ts: list[T]) -> T:
    """2 to the x, exact where x is whole and small."""
    x = ts[0]
    if x.grain or x.err or x.lo < -8 or x.hi > 8 or x.dtype != "f32":
        raise Inexact(x)
    return x.like(lo=2.0**x.lo, hi=2.0**x.hi, grain=max(0, -int(x.lo)))


OPS["exp2"] = Op(_power, _call("exp2"), _on(np.exp2))


# ---- functions that round: (text, value, from, to, steepest slope there, least and most value, its own error)


def _one_by_one(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python's for arrays."""
    return lambda x: np.frompyfunc(fn, 1, 1)(np.asarray(x, np.float64)).astype(np.float64)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


LOOSE: dict[str, tuple[str, Any, float, float, float, float, float, float]] = {
    "exp": ("exp", np.exp, -8, 3, 21, 0, 21, 1e-4),
    "log": ("log", np.log, 0.5, 64, 2, -1, 5, 1e-5),
    "log2": ("log2", np.log2, 0.5, 64, 3, -1, 6, 1e-5),
    "sqrt": ("sqrt", np.sqrt, 0.25, 64, 1, 0.5, 8, 1e-5),
    "rsqrt": ("rsqrt", lambda x: 1 / np.sqrt(x), 0.25, 64, 4, 0.125, 2, 1e-5),
    "rcp": ("rcp", lambda x: 1 / x, 0.25, 64, 16, 1 / 64, 4, 1e-5),
    "sin": ("sin", np.sin, -8, 8, 1, -1, 1, 1e-5),
    "cos": ("cos", np.cos, -8, 8, 1, -1, 1, 1e-5),
    "tanh": ("tanh", np.tanh, -8, 8, 1, -1, 1, 1e-5),
    "erf": ("erf", _one_by_one(math.erf), -4, 4, 1.2, -1, 1, 1e-5),
    "sigmoid": ("sigmoid", _sigmoid, -8, 8, 0.25, 0, 1, 1e-5),
    "exp2_any": ("exp2", np.exp2, -8, 4, 12, 0, 16, 1e-4),
}
# Those of libdevice, by the name they have there.
LIBDEVICE: dict[str, tuple[Any, float, float, float, float, float, float]] = {
    "cbrt": (np.cbrt, 0.25, 64, 0.85, 0.6, 4, 1e-5),
    "tan": (np.tan, -1.25, 1.25, 10.1, -3.02, 3.02, 1e-5),
    "asin": (np.arcsin, -0.75, 0.75, 1.6, -0.85, 0.85, 1e-5),
    "acos": (np.arccos, -0.75, 0.75, 1.6, 0.7, 2.5, 1e-5),
    "atan": (np.arctan, -64, 64, 1, -1.6, 1.6, 1e-5),
    "sinh": (np.sinh, -3, 3, 10.1, -10.1, 10.1, 1e-4),
    "cosh": (np.cosh, -3, 3, 10.1, 1, 10.1, 1e-4),
    "asinh": (np.arcsinh, -64, 64, 1, -4.9, 4.9, 1e-5),
    "acosh": (np.arccosh, 1.25, 64, 1.4, 0.6, 4.9, 1e-5),
    "atanh": (np.arctanh, -0.75, 0.75, 2.3, -1, 1, 1e-5),
    "exp10": (lambda x: 10.0**x, -4, 1, 23.1, 0, 10, 1e-4),
    "expm1": (np.expm1, -8, 3, 20.1, -1, 19.1, 1e-4),
    "log10": (np.log10, 0.5, 64, 0.9, -0.4, 1.9, 1e-5),
    "log1p": (np.log1p, -0.5, 64, 2, -0.7, 4.2, 1e-5),
    "erfc": (_one_by_one(math.erfc), -4, 4, 1.2, 0, 2, 1e-5),
    "lgamma": (_one_by_one(math.lgamma), 0.5, 16, 3.6, -0.13, 28, 1e-4),
    "tgamma": (_one_by_one(math.gamma), 0.5, 5, 36.2, 0.8, 24, 1e-4),
}
# Later ones, whose values come from warploom/sim/special.py, which has tables of its own in the tests.
SPECIAL: dict[str, tuple[Any, float, float, float, float, float, float]] = {
    "erfinv": (_one_by_one(special.erfinv), -0.875, 0.875, 3.5, -1.17, 1.17, 1e-5),
    "erfcinv": (_one_by_one(special.erfcinv), 0.125, 1.875, 3.5, -1.17, 1.17, 1e-5),
    "erfcx": (_one_by_one(special.erfcx), -1, 16, 11.2, 0, 5.1, 1e-4),
    "j0": (_one_by_one(partial(special.bessel_j, 0)), -16, 16, 0.6, -0.41, 1, 1e-5),
    "j1": (_one_by_one(partial(special.bessel_j, 1)), -16, 16, 0.5, -0.6, 0.6, 1e-5),
    "y0": (_one_by_one(partial(special.bessel_y, 0)), 0.5, 16, 1.5, -0.45, 0.53, 1e-5),
    "y1": (_one_by_one(partial(special.bessel_y, 1)), 0.5, 16, 2.6, -1.5, 0.42, 1e-5),
    "cyl_bessel_i0": (_one_by_one(partial(special.bessel_i, 0)), -3, 3, 4, 1, 4.9, 1e-5),
    "cyl_bessel_i1": (_one_by_one(partial(special.bessel_i, 1)), -3, 3, 3.7, -4, 4, 1e-5),
}


def _loose(low: float, high: float, slope: float, least: float, most: float, own: float) -> Rule:
    def rule(a: dict[str, Any], ts: list[T]) -> T:
        x = ts[0]
        assert low <= x.lo and x.hi <= high and x.dtype == "f32"
        return T("f32", x.shape, least, most, 0, 1.5 * slope * x.err + own)

    return rule


def _in_double(fn: Callable[..., Any]) -> Value:
    return lambda e, xs: np.asarray(fn(*(np.asarray(x, np.float64) for x in xs))).astype(
        np.float32
    )[()]


for _name, (_tl, _fn, _lo, _hi, *_rest) in LOOSE.items():
    OPS[_name] = Op(_loose(_lo, _hi, *_rest), _call(_tl), _in_double(_fn))
for _name, (_fn, _lo, _hi, *_rest) in (LIBDEVICE | SPECIAL).items():
    OPS[_name] = Op(_loose(_lo, _hi, *_rest), _libdevice(_name), _in_double(_fn))


# Those that round as IEEE 754 says, by their names in `tl`.
ROUNDED: dict[str, tuple[Any, float, float, float, float, float, float]] = {
    "sqrt_rn": (np.sqrt, 0.25, 64, 1, 0.5, 8, 1e-5)
}
for _name, (_fn, _lo, _hi, *_rest) in ROUNDED.items():
    OPS[_name] = Op(_loose(_lo, _hi, *_rest), _call(_name), _in_double(_fn))


def _ratio(a: dict[str, Any], ts: list[T]) -> T:
    """x / y with y in [1/4, 64]."""
    x, y = ts
    assert y.lo >= 0.25 and x.dtype == y.dtype == "f32"
    top = x.top / y.lo
    err = (x.err + top * y.err) / (y.lo - min(y.err, y.lo / 2)) + 4 * ulp("f32", top)
    return _join(ts, -top if x.lo < 0 else 0, top, 0, err)


def _pow(a: dict[str, Any], ts: list[T]) -> T:
    """x to the y with x in [1/2, 4] and y in [-2, 2]: both slopes are below 32."""
    x, y = ts
    assert x.lo >= 0.5 and x.hi <= 4 and y.top <= 2
    return _join(ts, 0, 16, 0, 1.5 * 32 * (x.err + y.err) + 1e-4)


def _angle(a: dict[str, Any], ts: list[T]) -> T:
    """The angle of (y, x) with x in [1/4, 64]."""
    x = ts[1]
    assert x.lo >= 0.25
    return _join(ts, -1.6, 1.6, 0, 1.5 * 4 * (ts[0].err + x.err) + 1e-5)


OPS["pow"] = Op(_pow, _libdevice("pow"), _in_double(np.power))
OPS["atan2"] = Op(_angle, _libdevice("atan2"), _in_double(np.arctan2))
OPS["div"] = Op(_ratio, _infix("/"), _in_double(np.divide))
OPS["div_rn"] = Op(_ratio, _call("div_rn"), _in_double(np.divide))
OPS["fdiv"] = Op(_ratio, _call("fdiv"), _in_double(np.divide))


# ---- PTX: (instruction, register, type, value)

_ASSEMBLY: dict[str, tuple[str, Rule, Any]] = {
    "add.s32": ("r", _add, np.add), "xor.b32": ("r", _whole, np.bitwise_xor), "mul.lo.s32": ("r", _mul, np.multiply),
    "add.f32": ("f", _add, np.add), "max.f32": ("f", _most, np.fmax),
}  # fmt: skip
ASSEMBLY = {"i32": ("add.s32", "xor.b32", "mul.lo.s32"), "f32": ("add.f32", "max.f32")}


def _spell_assembly(e: E, s: list[str]) -> str:
    r = _ASSEMBLY[e.attrs["text"]][0]
    text = f"{e.attrs['text']} $0, $1, $2;"
    told = f'"={r},{r},{r}", [{s[0]}, {s[1]}], {e.t.format.tl}, is_pure=True, pack=1'
    return f'tl.inline_asm_elementwise("{text}", {told})'


OPS["asm"] = Op(
    lambda a, ts: _ASSEMBLY[a["text"]][1](a, ts),
    _spell_assembly,
    lambda e, xs: _ASSEMBLY[e.attrs["text"]][2](*xs),
)


# ---- shapes


def _spell_shape(e: E, s: list[str]) -> str:
    return f"tl.{e.attrs.get('spell', e.op)}({s[0]}, {e.t.shape})"


def _expand_spell(e: E, s: list[str]) -> str:
    axis, rank = e.attrs["axis"], len(e.t.shape)
    if e.attrs.get("as_index"):
        return f"{s[0]}[{', '.join('None' if i == axis else ':' for i in range(rank))}]"
    return f"tl.expand_dims({s[0]}, {axis})"


OPS["expand_dims"] = Op(
    lambda a, ts: ts[0].like(shape=(*ts[0].shape[: a["axis"]], 1, *ts[0].shape[a["axis"] :])),
    _expand_spell,
    lambda e, xs: np.expand_dims(xs[0], e.attrs["axis"]),
)
OPS["broadcast_to"] = Op(
    lambda a, ts: ts[0].like(shape=a["shape"]),
    _spell_shape,
    lambda e, xs: np.broadcast_to(xs[0], e.t.shape),
)
OPS["reshape"] = Op(
    lambda a, ts: ts[0].like(shape=a["shape"]),
    _spell_shape,
    lambda e, xs: np.reshape(xs[0], e.t.shape),
)
OPS["ravel"] = Op(
    lambda a, ts: ts[0].like(shape=(math.prod(ts[0].shape),)),
    _call("ravel"),
    lambda e, xs: np.ravel(xs[0]),
)
OPS["permute"] = Op(
    lambda a, ts: ts[0].like(shape=tuple(ts[0].shape[i] for i in a["perm"])),
    lambda e, s: (
        f"tl.trans({s[0]})"
        if e.attrs["perm"] == (1, 0)
        else f"tl.permute({s[0]}, {e.attrs['perm']})"
    ),
    lambda e, xs: np.transpose(xs[0], e.attrs["perm"]),
)
OPS["join"] = Op(
    lambda a, ts: ts[0].hull(ts[1]).like(shape=(*ts[0].shape, 2)),
    _call("join"),
    lambda e, xs: np.stack(xs, axis=-1),
)
OPS["interleave"] = Op(
    lambda a, ts: ts[0].hull(ts[1]).like(shape=(*ts[0].shape[:-1], 2 * ts[0].shape[-1])),
    _call("interleave"),
    lambda e, xs: np.stack(xs, axis=-1).reshape(e.t.shape),
)
OPS["gather"] = Op(
    lambda a, ts: ts[0],
    lambda e, s: f"tl.gather({s[0]}, {s[1]}, axis={e.attrs['axis']})",
    lambda e, xs: np.take_along_axis(xs[0], xs[1], axis=e.attrs["axis"]),
)
OPS["flip"] = Op(
    lambda a, ts: ts[0],
    lambda e, s: f"tl.flip({s[0]}, {e.attrs['axis']})",
    lambda e, xs: np.flip(xs[0], axis=e.attrs["axis"]),
)
OPS["sort"] = Op(
    lambda a, ts: ts[0],
    lambda e, s: f"tl.sort({s[0]}{', descending=True' if e.attrs['descending'] else ''})",
    lambda e, xs: np.flip(np.sort(xs[0]), -1) if e.attrs["descending"] else np.sort(xs[0]),
)
OPS["half"] = Op(  # of a tile whose last axis is 2
    lambda a, ts: ts[0].like(shape=ts[0].shape[:-1]),
    lambda e, s: f"tl.split({s[0]})[{e.attrs['which']}]",
    lambda e, xs: xs[0][..., e.attrs["which"]],
)


# ---- along an axis


def _widened(x: T, a: dict[str, Any]) -> T:
    """As sum, max, min, cumsum and cumprod widen what they combine; a function given by the user does not."""
    fn, f = a["fn"], x.format
    if a.get("by_function") or f.bits >= 32 or fn in ("xor", "and", "or", "argmax", "argmin"):
        return x
    if f.is_float:
        is_wide = fn in ("max", "min") or (x.dtype == "bf16" and "reverse" in a)
        return x.like(dtype="f32") if is_wide else x
    if fn == "mul":
        return x
    return x.like(dtype="i32" if f.kind == "i" or fn in ("max", "min") else "u32")


def _reduced(a: dict[str, Any], ts: list[T]) -> T:
    x, axis, fn = _widened(ts[0], a), a["axis"], a["fn"]
    n = math.prod(x.shape) if axis is None else x.shape[axis]
    kept = (
        ()
        if axis is None
        else (*x.shape[:axis], *((1,) if a.get("keep") else ()), *x.shape[axis + 1 :])
    )
    out = x.like(shape=kept)
    if fn == "sum":
        err = n * x.err + n * ulp(x.dtype, n * x.top) if x.err else 0.0
        return out.like(lo=n * x.lo, hi=n * x.hi, err=err)
    if fn in ("argmax", "argmin"):
        return T("i32", kept, 0, n - 1)
    if fn == "mul":
        if not (x.lo >= -1 and x.hi <= 1 and x.grain == 0):
            raise Inexact(x)
        return out.like(lo=-1, hi=1)
    return (
        out.like(lo=x.format.range[0], hi=x.format.range[1]) if fn in ("xor", "and", "or") else out
    )


_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce, "max": np.fmax.reduce, "min": np.fmin.reduce, "mul": np.multiply.reduce,
    "xor": np.bitwise_xor.reduce, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce,
    "argmax": np.argmax, "argmin": np.argmin,
}  # fmt: skip
COMBINERS = {"max": "combine_max", "min": "combine_min", "mul": "combine_mul", "and": "combine_and",
             "or": "combine_or", "xor": "combine_xor", "sum": "combine_add"}  # fmt: skip


def _spell_reduce(e: E, s: list[str]) -> str:
    fn, axis = e.attrs["fn"], e.attrs["axis"]
    keep = ", keep_dims=True" if e.attrs.get("keep") else ""
    if e.attrs.get("by_function") or fn in ("mul", "and", "or"):
        return f"tl.reduce({s[0]}, {axis}, {COMBINERS[fn]}{keep})"
    name = "xor_sum" if fn == "xor" else fn
    return f"tl.{name}({s[0]}{'' if axis is None else f', axis={axis}'}{keep})"


def _reduce(e: E, xs: list[Any]) -> Any:
    fn, axis, x = e.attrs["fn"], e.attrs["axis"], xs[0]
    x = wide(x, e.args[0].t.dtype)
    if e.t.format.is_int and fn not in ("argmax", "argmin"):
        x = x.astype(e.t.format.numpy)
    if axis is None:
        x, axis = np.ravel(x), 0
    out = _REDUCE[fn](x, axis=axis)
    if e.attrs.get("keep"):
        out = np.expand_dims(out, axis)
    return np.asarray(out).astype(e.t.format.numpy)[()]


OPS["reduce"] = Op(_reduced, _spell_reduce, _reduce)


def _scanned(a: dict[str, Any], ts: list[T]) -> T:
    x, fn = _widened(ts[0], a), a["fn"]
    n = x.shape[a["axis"]]
    if fn == "sum":
        return x.like(lo=min(x.lo, n * x.lo), hi=max(x.hi, n * x.hi))
    return _reduced(a, ts).like(shape=x.shape)


_SCAN: dict[str, Callable[..., Any]] = {
    "sum": np.add.accumulate, "mul": np.multiply.accumulate, "max": np.maximum.accumulate,
    "min": np.minimum.accumulate, "xor": np.bitwise_xor.accumulate, "and": np.bitwise_and.accumulate,
    "or": np.bitwise_or.accumulate,
}  # fmt: skip


def _spell_scan(e: E, s: list[str]) -> str:
    fn, axis, back = e.attrs["fn"], e.attrs["axis"], ", reverse=True" if e.attrs["reverse"] else ""
    if fn in ("sum", "mul") and not e.attrs.get("by_function"):
        return f"tl.{'cumsum' if fn == 'sum' else 'cumprod'}({s[0]}, axis={axis}{back})"
    return f"tl.associative_scan({s[0]}, {axis}, {COMBINERS[fn]}{back})"


def _scan(e: E, xs: list[Any]) -> Any:
    x, axis = wide(xs[0], e.args[0].t.dtype), e.attrs["axis"]
    if e.t.format.is_int:
        x = x.astype(e.t.format.numpy)
    if e.attrs["reverse"]:
        x = np.flip(x, axis)
    out = _SCAN[e.attrs["fn"]](x, axis=axis, dtype=x.dtype)
    return (np.flip(out, axis) if e.attrs["reverse"] else out).astype(e.t.format.numpy)


OPS["scan"] = Op(_scanned, _spell_scan, _scan)


# ---- pairs along an axis: (text of a function of a, b and, behind them, c, d; its value)

PAIRS: dict[str, tuple[str, Callable[..., tuple[Any, Any]]]] = {
    "both": ("a + c, tl.maximum(b, d)", lambda a, b, c, d: (a + c, np.maximum(b, d))),
    "furthest": (
        "tl.where((a > c) | ((a == c) & (b < d)), a, c), tl.where((a > c) | ((a == c) & (b < d)), b, d)",
        lambda a, b, c, d: tuple(np.where((a > c) | ((a == c) & (b < d)), (a, b), (c, d))),
    ),
    "affine": ("a * c, b * c + d", lambda a, b, c, d: (a * c, b * c + d)),
    "last": ("tl.where(d != 0, c, a), tl.where(d != 0, d, b)",
             lambda a, b, c, d: (np.where(d != 0, c, a), np.where(d != 0, d, b))),
}  # fmt: skip
IN_TURN = ("affine", "last")  # not commutative, so that they are only scanned


def _paired(a: dict[str, Any], ts: list[T]) -> T:
    """The type of a part; those that add up have as many terms as lie along the axis."""
    x, n = ts[a["which"]], ts[0].shape[a["axis"]]
    shape = x.shape if "reverse" in a else (*x.shape[: a["axis"]], *x.shape[a["axis"] + 1 :])
    if (a["fn"], a["which"]) in (("both", 0), ("affine", 1)):
        return x.like(shape=shape, lo=-n * x.top, hi=n * x.top)
    return x.like(shape=shape, lo=min(-1, x.lo), hi=max(1, x.hi))


def _spell_pair(e: E, s: list[str]) -> str:
    back = ", reverse=True" if e.attrs.get("reverse") else ""
    fn = "associative_scan" if "reverse" in e.attrs else "reduce"
    both = f"({s[0]}, {s[1]}), {e.attrs['axis']}, combine_{e.attrs['fn']}{back}"
    return f"tl.{fn}({both})[{e.attrs['which']}]"


def _pair(e: E, xs: list[Any]) -> Any:
    axis, fn = e.attrs["axis"], PAIRS[e.attrs["fn"]][1]
    parts = [np.moveaxis(x, axis, 0) for x in xs]
    places = range(len(parts[0]))
    found = []
    for i in reversed(places) if e.attrs.get("reverse") else places:
        here = tuple(x[i] for x in parts)
        found.append(fn(*found[-1], *here) if found else here)
    if "reverse" not in e.attrs:
        return np.asarray(found[-1][e.attrs["which"]]).astype(e.t.format.numpy)[()]
    out = np.stack([one[e.attrs["which"]] for one in found])
    return np.moveaxis(out[::-1] if e.attrs["reverse"] else out, 0, axis).astype(e.t.format.numpy)


OPS["reduce_pair"] = OPS["scan_pair"] = Op(_paired, _spell_pair, _pair)


# ---- products


def _product(a: dict[str, Any], ts: list[T]) -> T:
    x, y = ts[:2]
    k = x.shape[-1]
    corners = [p * q for p in (x.lo, x.hi) for q in (y.lo, y.hi)]
    sums = "i32" if x.format.is_int else "f64" if x.dtype == "f64" else "f32"
    own = T(
        sums, (*x.shape[:-1], y.shape[-1]), k * min(corners), k * max(corners), x.grain + y.grain
    )
    out = checked(own if len(ts) == 2 else _add(a, [own, ts[2]]))
    return checked(out.like(dtype=a["out"])) if a.get("out") else out


def _spell_dot(e: E, s: list[str]) -> str:
    extra = "".join(f", {k}={v}" for k, v in e.attrs["options"])
    if e.attrs.get("out"):
        extra += f", out_dtype={FORMATS[e.attrs['out']].tl}"
    if len(s) == 3 and e.attrs.get("plus"):
        return f"({s[2]} + tl.dot({s[0]}, {s[1]}{extra}))"
    return f"tl.dot({', '.join(s)}{extra})"


def _dot(e: E, xs: list[Any]) -> Any:
    x, y = (np.asarray(v).astype(np.float64) for v in xs[:2])
    out = x @ y
    if len(xs) == 3:
        out = out + np.asarray(xs[2]).astype(np.float64)
    return out.astype(e.t.format.numpy)


OPS["dot"] = Op(_product, _spell_dot, _dot)

PACKED = "e2m1"  # two numbers a byte, along K
SCALES = (126, 128)  # of ue8m0: a half to two


def _meant(format: str, x: T, k_axis: int) -> T:
    """The type of the numbers that an operand with its scales stands for."""
    if format == PACKED:
        shape = tuple(n * (2 if a == k_axis else 1) for a, n in enumerate(x.shape))
        return T("f32", shape, -12, 12, 2)
    return T("f32", x.shape, 2 * x.lo, 2 * x.hi, x.grain + 1)


def _scaled_product(a: dict[str, Any], ts: list[T]) -> T:
    x, y = (_meant(f, t, 1 - i) for i, (f, t) in enumerate(zip(a["formats"], ts, strict=False)))
    return _product({}, [x, y, ts[2]])


def _spell_scaled_dot(e: E, s: list[str]) -> str:
    x, y, acc, *scales = s
    left, right = (repr(f) for f in e.attrs["formats"])
    return f"tl.dot_scaled({x}, {scales[0]}, {left}, {y}, {scales[1]}, {right}, {acc})"


def _scaled_dot(e: E, xs: list[Any]) -> Any:
    found = []
    for i, (format, x, scale) in enumerate(zip(e.attrs["formats"], xs[:2], xs[3:], strict=True)):
        x, k = np.asarray(x), 1 - i
        if format == PACKED:
            pairs = np.stack([x & 15, x >> 4], axis=k + 1)
            shape = [n * (2 if a == k else 1) for a, n in enumerate(x.shape)]
            x = pairs.astype(np.uint8).reshape(shape).view(ml_dtypes.float4_e2m1fn)
        factor = np.exp2(np.repeat(np.asarray(scale).astype(np.float64) - 127, 32, axis=1))
        found.append(x.astype(np.float64) * (factor if i == 0 else factor.T))
    out = found[0] @ found[1] + np.asarray(xs[2]).astype(np.float64)
    return out.astype(np.float32)


OPS["dot_scaled"] = Op(_scaled_product, _spell_scaled_dot, _scaled_dot)

# ---- the launch

OPS["program_id"] = Op(
    lambda a, _: T("i32", (), 0, a["most"] - 1),
    lambda e, _: f"tl.program_id({e.attrs['axis']})",
    lambda e, _: e.attrs,  # the reference knows
)
OPS["num_programs"] = Op(
    lambda a, _: T("i32", (), a["most"], a["most"]),
    lambda e, _: f"tl.num_programs({e.attrs['axis']})",
    lambda e, _: e.attrs,
)
OPS["cdiv"] = Op(
    lambda a, ts: T("i32", (), 0, ts[0].hi + 1),
    _call("cdiv"),
    lambda e, xs: np.int32(-(-int(xs[0]) // int(xs[1]))),
)
