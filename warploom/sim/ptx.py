"""PTX as inline assembly has it, on NumPy values: what `inline_asm` means on the CPU.

Straight-line code on registers: moves, conversions, integer, bit and float arithmetic, comparisons and
predicates (PTX ISA).  Registers hold bits, as u64; an instruction's type says how they are read.  What is not
here is refused by name: it runs on the GPU alone.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from warploom.ir.core import Op
from warploom.ir.ops import arith
from warploom.ir.types import DTYPES, dtype_of
from warploom.sim.report import SimError

Array = np.ndarray[Any, np.dtype[Any]]

_BITS = {
    "pred": 1, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "tf32": 32, "e4m3": 8, "e5m2": 8,
    "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip
_FLOATS = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def _bits_of(kind: str) -> int:
    return _BITS.get(kind) or int(kind[1:])


def _read(bits: Array, kind: str) -> Array:
    """Bits as numbers of a type."""
    n = _bits_of(kind)
    if kind == "pred":
        on: Array = bits != 0
        return on
    narrow = np.ascontiguousarray(bits.astype(f"u{n // 8}"))
    if kind in _FLOATS:
        return narrow.view(_FLOATS[kind])
    return narrow.view(f"i{n // 8}") if kind[0] == "s" else narrow


def _write(x: Any, kind: str) -> Array:
    """Numbers of a type as bits."""
    n = _bits_of(kind)
    if kind == "pred":
        return np.asarray(x).astype(np.uint64)
    if kind in _FLOATS:
        return (
            np.ascontiguousarray(np.asarray(x).astype(_FLOATS[kind]))
            .view(f"u{n // 8}")
            .astype(np.uint64)
        )
    signed = np.asarray(x).astype(np.int64) if np.asarray(x).dtype.kind == "i" else np.asarray(x)
    return signed.astype(np.uint64) & np.uint64((1 << n) - 1 if n < 64 else 0xFFFFFFFFFFFFFFFF)


def _wide(x: Array) -> Array:
    """A float as what it is computed in."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


def _float(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda kind, *xs: fn(*map(_wide, xs))


def _sat(x: Any) -> Any:
    return np.clip(np.nan_to_num(x, nan=0.0), 0, 1)


def _divide(kind: str, x: Array, y: Array) -> Any:
    if kind in _FLOATS:
        return _wide(x) / _wide(y)
    safe = np.where(y == 0, 1, y)
    q = np.abs(x.astype(object)) // np.abs(safe.astype(object))
    return (q * np.sign(x.astype(object)) * np.sign(safe.astype(object))).astype(np.int64)


def _shift_right(kind: str, x: Array, n: Array) -> Any:
    bits = _bits_of(kind)
    beyond = -(x < 0).astype(np.int64) if kind[0] == "s" else 0
    return np.where(n >= bits, beyond, x >> np.minimum(n, bits - 1).astype(x.dtype))


def _shift_left(kind: str, x: Array, n: Array) -> Any:
    bits = _bits_of(kind)
    return np.where(n >= bits, 0, x << np.minimum(n, bits - 1).astype(x.dtype))


def _permute(kind: str, a: Array, b: Array, c: Array) -> Any:
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    out = np.zeros(np.broadcast(a, b, c).shape, np.uint64)
    for i in range(4):
        choice = (c >> (4 * i)) & 0xF
        byte = (both >> ((choice & 7).astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        out |= np.where(choice & 8, sign, byte) << np.uint64(8 * i)
    return out


def _lop3(kind: str, a: Array, b: Array, c: Array, table: Array) -> Any:
    t, out = int(np.ravel(table)[0]), np.uint64(0)
    for i in range(8):
        if t >> i & 1:
            parts = [
                x.astype(np.uint64) if i >> (2 - j) & 1 else ~x.astype(np.uint64)
                for j, x in enumerate((a, b, c))
            ]
            out = out | (parts[0] & parts[1] & parts[2])
    return out & np.uint64(0xFFFFFFFF)


def _extract(kind: str, a: Array, at: Array, n: Array) -> Any:
    value = (a.astype(np.int64) >> at.astype(np.int64)) & ((1 << n.astype(np.int64)) - 1)
    if kind[0] == "s":
        value = np.where(
            (n > 0) & (value >> np.maximum(n.astype(np.int64) - 1, 0) & 1 == 1),
            value - (1 << n.astype(np.int64)),
            value,
        )
    return value


def _insert(kind: str, a: Array, b: Array, at: Array, n: Array) -> Any:
    """bfi: the lowest n bits of a, in b from bit `at` on."""
    mask = (1 << np.minimum(n, 64 - np.minimum(at, 63))) - 1 << np.minimum(at, 63)
    return (b.astype(np.int64) & ~mask) | (a.astype(np.int64) << np.minimum(at, 63) & mask)


def _first_bit(kind: str, x: Array) -> Any:
    """bfind: the highest bit that is no sign; -1 where there is none."""
    low = np.where(x < 0, ~x, x) if kind[0] == "s" else x
    return np.array([int(v).bit_length() - 1 for v in low.ravel()], np.int64).reshape(x.shape)


def _dot4(kind: str, a: Array, b: Array, c: Array) -> Any:
    """dp4a: the products of four bytes each, added to c."""
    one = "i1" if kind[0] == "s" else "u1"
    parts = [np.ascontiguousarray(x.astype(np.uint32)).reshape(-1, 1).view(one) for x in (a, b)]
    return c.astype(np.int64) + (parts[0].astype(np.int64) * parts[1]).sum(1).reshape(a.shape)


def _lanes(op: str, kind: str, a: Array, b: Array, c: Array) -> Array:
    """vadd4, vabsdiff2 and their like: on the bytes, or halves, of two words."""
    size = 4 // int(op[-1])
    width = f"{'i' if kind[0] == 's' else 'u'}{size}"
    words = (np.ascontiguousarray(v.astype(np.uint32)).reshape(-1, 1) for v in (a, b))
    x, y = (v.view(width).astype(np.int64) for v in words)
    made = _VIDEO[op[1:-1]](x, y).astype(f"u{size}")
    return (
        np.ascontiguousarray(made)
        .view(np.uint32)
        .reshape(np.broadcast(a, b).shape)
        .astype(np.uint64)
    )


_VIDEO: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "absdiff": lambda x, y: np.abs(x - y), "avrg": lambda x, y: (x + y + 1) >> 1,
}  # fmt: skip


def _popc(kind: str, x: Array) -> Any:
    return np.bitwise_count(x.astype(np.uint64))


def _clz(kind: str, x: Array) -> Any:
    n = _bits_of(kind)
    return np.array([n - int(v).bit_length() for v in x.ravel()], np.int64).reshape(x.shape)


def _brev(kind: str, x: Array) -> Any:
    n = _bits_of(kind)
    return np.array([int(f"{int(v):0{n}b}"[::-1], 2) for v in x.ravel()], np.uint64).reshape(
        x.shape
    )


# ---- rounding in a direction: rm down, rp up, rz to zero


def _direction(parts: list[str]) -> str | None:
    """The one that an instruction names."""
    return next((p for p in parts if p in ("rm", "rp", "rz")), None)


def _root(x: Fraction) -> Fraction:
    """A square root, cut off far beyond the digits of a float64."""
    digits = 1 << 2400
    return Fraction(math.isqrt(int(x * digits * digits)), digits)


# (on Fractions; on floats)
_EXACT: dict[str, tuple[Callable[..., Fraction], Callable[..., Any]]] = {
    "add": (operator.add, operator.add), "sub": (operator.sub, operator.sub),
    "mul": (operator.mul, operator.mul), "div": (operator.truediv, operator.truediv),
    "fma": (lambda x, y, z: x * y + z, lambda x, y, z: x * y + z),
    "rcp": (lambda x: 1 / x, lambda x: 1 / x), "sqrt": (_root, np.sqrt), "cvt": (lambda x: x, lambda x: x),
}  # fmt: skip


def _directed(way: str, op: str, xs: list[Array], to: Any) -> Array:
    """The exact result rounded one way to the type `to`; zeros, poles and what isn't finite as usual."""
    exact, usual = _EXACT[op]

    def one(*given: Any) -> Any:
        try:
            value = exact(*map(Fraction, given))
        except (ZeroDivisionError, OverflowError, ValueError):
            return usual(*map(to, given))
        if not value:
            return usual(*map(to, given))
        try:
            near = to(float(value))
        except OverflowError:
            near = to(math.copysign(math.inf, value))
        above = near == math.inf or (near != -math.inf and Fraction(float(near)) > value)
        below = near == -math.inf or (near != math.inf and Fraction(float(near)) < value)
        down = way == "rm" or (way == "rz" and value > 0)
        if above if down else below:
            return np.nextafter(near, to(-math.inf if down else math.inf))
        return near

    numbers = [np.asarray(x.tolist(), object) for x in xs]
    return np.asarray(np.frompyfunc(one, len(xs), 1)(*numbers), to)


def _fused(kind: str, x: Array, y: Array, *z: Array) -> Any:
    """x · y, or x · y + z: rounded once where the result is written."""
    return sum(z, start=_wide(x).astype(np.float64) * _wide(y))


# Of operands read by the instruction's type; the result is written by it.
_OPS: dict[str, Callable[..., Any]] = {
    "mov": lambda kind, x: x, "abs": _float(np.abs), "neg": _float(np.negative), "not": lambda kind, x: ~x,
    "add": _float(np.add), "sub": _float(np.subtract), "div": _divide, "min": _float(np.fmin),
    "max": _float(np.fmax), "and": lambda kind, x, y: x & y, "or": lambda kind, x, y: x | y,
    "xor": lambda kind, x, y: x ^ y, "shl": _shift_left, "shr": _shift_right, "prmt": _permute, "lop3": _lop3,
    "bfe": _extract, "popc": _popc, "clz": _clz, "brev": _brev,
    "ex2": _float(np.exp2), "lg2": _float(np.log2), "sin": _float(np.sin), "cos": _float(np.cos),
    "tanh": _float(np.tanh), "sqrt": _float(np.sqrt), "rsqrt": _float(lambda x: 1 / np.sqrt(x)),
    "rcp": _float(lambda x: 1 / x), "rem": _float(np.fmod), "selp": lambda kind, x, y, p: np.where(p, x, y),
    "copysign": lambda kind, x, y: np.copysign(_wide(y), _wide(x)),
    "mul": _fused, "fma": _fused, "mad": _fused, "bfi": _insert, "bfind": _first_bit, "dp4a": _dot4,
    "sad": lambda kind, x, y, z: np.abs(x.astype(np.int64) - y) + z, "cnot": lambda kind, x: x == 0,
}  # fmt: skip
_COMPARE: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_TYPE = re.compile(r"[usbf]\d+|pred|bf16|f16x2|bf16x2|tf32|e4m3x2|e5m2x2")
_VIDEO_OP = re.compile(rf"v({'|'.join(_VIDEO)})[24]")


class Machine:
    """One piece of assembly on arrays of bits, $0 … being `slots`."""

    def __init__(self, slots: list[Array]) -> None:
        self.slots = slots
        self.registers: dict[str, Array] = {}

    def run(self, text: str, loc: Any) -> None:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).replace("{\n", "\n")
        for statement in self._statements(text):
            words = statement.split(None, 1)
            if statement.startswith(".reg"):
                continue
            guard = None
            if words[0].startswith("@"):
                guard, statement = words[0][1:], words[1]
                words = statement.split(None, 1)
            try:
                self._one(words[0], words[1] if len(words) > 1 else "", guard)
            except (KeyError, ValueError, IndexError, TypeError) as e:
                raise SimError(
                    "inline-asm",
                    f"the CPU doesn't know `{statement.strip()}` ({e})",
                    loc,
                    help="launch it on a GPU, or write it with the functions of tl",
                ) from None

    @staticmethod
    def _statements(text: str) -> list[str]:
        parts = (re.sub(r"^[\s{]*[\s}]*", "", p).strip() for p in text.split(";"))
        return [p for p in parts if p]

    def _one(self, name: str, rest: str, guard: str | None) -> None:
        op, *parts = name.split(".")
        operands = self._operands(rest)
        types = [p for p in parts if _TYPE.fullmatch(p)]
        with np.errstate(all="ignore"):
            target, made = self._result(op, parts, types, operands)
        self._store(target, made, guard)

    def _result(self, op: str, parts: list[str], types: list[str], operands: list[str]) -> Any:
        kind = types[-1] if types else "b32"
        target, *given = operands
        if op == "cvt":
            return target, self._converted(parts, types, given)
        if op == "shf":
            return target, self._funnel(parts, given)
        if (op == "dp4a" or _VIDEO_OP.fullmatch(op)) and len(set(types)) > 1:
            raise ValueError("operands of two kinds")
        if _VIDEO_OP.fullmatch(op) and not {"sat", "add"} & set(parts):
            return target, _lanes(op, kind, *(self._value(g, kind) for g in given))
        if op in ("setp", "set"):
            x, y = (_read(self._value(g, kind), kind) for g in given[:2])
            how = _COMPARE.get(parts[0]) or _COMPARE[parts[0].removesuffix("u")]
            return target, how(x, y).astype(np.uint64)
        if kind.endswith("x2"):
            return target, self._pairs(op, kind, given)
        if op == "mov" and (target.startswith("{") or (given and given[0].startswith("{"))):
            return target, self._moved(target, kind, given[0])
        if op in ("mul", "mad") and kind not in _FLOATS:
            return target, self._product(op, parts, kind, given)
        xs = [self._value(g, kind) for g in given]
        if op == "selp":
            return target, np.where(xs[2] != 0, xs[0], xs[1])
        read = [_read(x, kind) for x in xs]
        if op in ("shl", "shr", "bfe", "bfi", "prmt", "lop3"):
            read[1:] = [x.astype(np.int64) for x in xs[1:]]
        way = _direction(parts)
        if way and op in _EXACT and kind in ("f32", "f64"):
            return target, _write(_directed(way, op, read, _FLOATS[kind].type), kind)
        out = _OPS[op](kind, *read)
        out = _sat(out) if "sat" in parts else out
        return target, _write(out, "u32" if op in ("popc", "clz", "bfind") else kind)

    def _funnel(self, parts: list[str], given: list[str]) -> Array:
        """shf: 32 bits of two words, shifted together."""
        low, high, n = (self._value(g, "b32") & np.uint64(0xFFFFFFFF) for g in given)
        n = n & np.uint64(31) if "wrap" in parts else np.minimum(n, np.uint64(32))
        both = low | (high << np.uint64(32))
        shifted = (both << n) >> np.uint64(32) if "l" in parts else both >> n
        return np.asarray(shifted & np.uint64(0xFFFFFFFF))

    def _pairs(self, op: str, kind: str, given: list[str]) -> Array:
        half = kind[:-2]
        out: Any = np.uint64(0)
        for shift in (0, 16):
            bits = [(self._value(g, kind) >> np.uint64(shift)) & np.uint64(0xFFFF) for g in given]
            made = _OPS[op](half, *(_read(b, half) for b in bits))
            out = out | (_write(made, half) << np.uint64(shift))
        return np.asarray(out)

    def _product(self, op: str, parts: list[str], kind: str, given: list[str]) -> Array:
        xs = [_read(self._value(g, kind), kind).astype(object) for g in given]
        n = _bits_of(kind)
        product = xs[0] * xs[1]
        product = product >> n if "hi" in parts else product
        wide = 2 * n if "wide" in parts else n
        product = product + xs[2] if op == "mad" else product
        return np.asarray(product % (1 << wide)).astype(np.uint64)

    def _converted(self, parts: list[str], types: list[str], given: list[str]) -> Array:
        to, *_, source = types
        if to.endswith("x2"):
            half, own = to[:-2], source.removesuffix("x2")
            words = [self._value(g, source) for g in given[:2]]
            if source.endswith("x2"):  # the second of the one operand first
                words = [words[0] >> np.uint64(_bits_of(own)), words[0]]
            high, low = (_write(self._limited(_read(w, own), half, parts), half) for w in words)
            return np.asarray(low | (high << np.uint64(_bits_of(half))))
        x = _read(self._value(given[0], source), source)
        if source in _FLOATS and to not in _FLOATS:
            way = next((_ROUND[p] for p in parts if p in _ROUND), np.trunc)
            limits = np.iinfo(f"{'i' if to[0] == 's' else 'u'}{_bits_of(to) // 8}")
            x = np.clip(np.nan_to_num(way(x.astype(np.float64))), limits.min, limits.max)
            return _write(x.astype(np.int64) if to != "u64" else x.astype(np.uint64), to)
        if source in _FLOATS and any(p in _ROUND for p in parts):
            x = next(_ROUND[p] for p in parts if p in _ROUND)(_wide(x))
        side = _direction(parts)
        if side and to in ("f32", "f64"):
            return _write(_directed(side, "cvt", [x], _FLOATS[to].type), to)
        if "relu" in parts:
            x = np.maximum(x, x.dtype.type(0))
        if "sat" in parts and to in _FLOATS:
            x = _sat(x)
        if "rz" in parts and source == "f32" and to == "bf16":
            return np.asarray(self._value(given[0], source) >> np.uint64(16))
        return _write(x, to)

    @staticmethod
    def _limited(x: Array, to: str, parts: list[str]) -> Array:
        """With satfinite no more than the largest number of the type."""
        if "satfinite" not in parts:
            return x
        most = float(ml_dtypes.finfo(_FLOATS[to]).max)  # type: ignore[no-untyped-call]
        return np.clip(x, -most, most)

    def _moved(self, target: str, kind: str, source: str) -> Any:
        if source.startswith("{"):
            names = [n.strip() for n in source.strip("{} ").split(",")]
            n = _bits_of(kind) // len(names)
            parts = [self._value(name, f"b{n}") for name in names]
            out: Any = np.uint64(0)
            for i, p in enumerate(parts):
                out = out | ((p & np.uint64((1 << n) - 1)) << np.uint64(n * i))
            return np.asarray(out)
        return self._value(source, kind)

    def _operands(self, rest: str) -> list[str]:
        return [x.strip() for x in re.findall(r"\{[^}]*\}|[^,{}]+", rest) if x.strip()]

    def _value(self, name: str, kind: str) -> Array:
        if name.startswith("$"):
            return self.slots[int(name[1:])]
        if name in self.registers:
            return self.registers[name]
        if name == "%smid":
            return np.asarray(0, np.uint64)
        negative = name.startswith("-")
        digits = name.lstrip("-")
        if digits[:2] in ("0f", "0F", "0d", "0D"):
            return np.asarray(int(digits[2:], 16), np.uint64)
        if re.fullmatch(r"\d+\.\d*(e[+-]?\d+)?", digits):
            return _write(np.float64(name), kind)
        value = int(digits.rstrip("U"), 0) * (-1 if negative else 1)
        return np.asarray(value % (1 << 64), np.uint64)

    def _store(self, target: str, made: Array, guard: str | None) -> None:
        if target.startswith("{"):
            names = [n.strip() for n in target.strip("{} ").split(",")]
            raise_bits = (
                64 // len(names) if made.max(initial=0) >> np.uint64(32) else 32 // len(names)
            )
            for i, n in enumerate(names):
                mask = np.uint64((1 << raise_bits) - 1)
                self._store(n, (made >> np.uint64(raise_bits * i)) & mask, guard)
            return
        if guard is not None:
            negated = guard.startswith("!")
            on = (self.registers[guard.lstrip("!")] != 0) ^ negated
            old = (
                self.slots[int(target[1:])]
                if target.startswith("$")
                else self.registers.get(target, made)
            )
            made = np.where(on, made, old)
        if target.startswith("$"):
            self.slots[int(target[1:])] = np.asarray(made)
        else:
            self.registers[target] = np.asarray(made)


def elementwise(o: Op, *xs: Any) -> Any:
    """What the op inline_asm gives: `pack` neighbours along the last axis at a time."""
    outputs = [DTYPES[name] for name in o.attrs["outputs"].split(",")]
    inputs = [dtype_of(v.type) for v in o.operands]
    pack, shape = o.attrs["pack"], np.shape(xs[0])
    operands = arith.asm_operands(o.attrs["constraints"], outputs, inputs, pack)
    count = -(-max(1, int(np.prod(shape))) // pack)
    slots: list[Array] = []
    for operand in operands[: len(outputs)]:
        slots += [np.zeros(count, np.uint64) for _ in range(operand.registers)]
    for operand, dtype, x in zip(operands[len(outputs) :], inputs, xs, strict=True):
        flat = np.resize(np.ascontiguousarray(x, dtype.numpy).reshape(-1), count * pack)
        bits = flat.view(f"u{dtype.bytes}").astype(np.uint64).reshape(count, operand.registers, -1)
        for r in range(operand.registers):
            places = np.arange(bits.shape[2], dtype=np.uint64) * np.uint64(dtype.bits)
            slots.append(np.bitwise_or.reduce(bits[:, r] << places, axis=1))
    machine = Machine(slots)
    machine.run(o.attrs["asm"], o.loc)
    first = sum(x.registers for x in operands[: o.attrs["output"]])
    own, dtype = operands[o.attrs["output"]], outputs[o.attrs["output"]]
    parts = []
    for r in range(first, first + own.registers):
        word = np.broadcast_to(machine.slots[r], (count,))
        parts += [word >> np.uint64(dtype.bits * e) for e in range(own.elements)]
    words = np.stack(parts, 1).astype(f"u{dtype.bytes}").reshape(-1)[: max(1, int(np.prod(shape)))]
    return np.ascontiguousarray(words).view(dtype.numpy).reshape(shape)[()]
