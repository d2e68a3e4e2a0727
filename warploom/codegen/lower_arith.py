"""Elementwise arithmetic: one C expression an element, on scalars and tiles alike; and inline assembly."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from warploom.analysis.contiguity import constancy, decided
from warploom.codegen.context import Emitter, Lowering, defined, uniform
from warploom.codegen.lower_casts import paren, rounded, same_bits, same_bits_of_word
from warploom.codegen.registers import Array, c_type, is_packed, map_lines, read, word, words
from warploom.codegen.storage import registers_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.fold import held
from warploom.ir.ops import arith, tile
from warploom.ir.types import DTYPES, DType, Scalar, Tile, dtype_of, elem_of, i1, i32, u32, u64
from warploom.layout import Layout

LOG2_E = "1.44269504088896341f"
# Integers whose sums and products C leaves undefined where they overflow (narrow ones it promotes to int),
# and the type in which they are defined.
WRAPS = {"i8": "u32", "i16": "u32", "u16": "u32", "i32": "u32", "i64": "u64"}

OPERATORS = {
    arith.add: "+", arith.sub: "-", arith.mul: "*", arith.div: "/", arith.idiv: "/", arith.rem: "%",
    arith.and_: "&", arith.or_: "|", arith.xor: "^", arith.shl: "<<", arith.shr: ">>",
    arith.lt: "<", arith.le: "<=", arith.gt: ">", arith.ge: ">=", arith.eq: "==", arith.ne: "!=",
}  # fmt: skip

# What is done to pairs of 16-bit floats at once.  It rounds as the way over float does: that is exact, or so
# much closer than the result that rounding twice changes nothing.
PAIRED = {arith.add: "add", arith.sub: "sub", arith.mul: "mul"}

# Functions of NVRTC's own on float; the double ones lose the f.
FUNCTIONS = {
    **{kind: f"{kind.name}f" for kind in arith.MATH},
    arith.exp2: "exp2_approx", arith.sqrt: "sqrt_approx", arith.rcp: "rcp_approx", arith.abs_: "abs_f32",
    arith.sqrt_rn: "__fsqrt_rn",
}  # fmt: skip
DOUBLE = {
    "abs_f32": "fabs",
    "exp2_approx": "exp2",
    "rcp_approx": "__drcp_rn",
    "sqrt_approx": "sqrt",
    "__fsqrt_rn": "__dsqrt_rn",
    **{f: f[:-1] for f in FUNCTIONS.values() if f.endswith("f")},
}


# How C makes a float (a double) of its bits, and those of NaN and of infinity.
_BITS = ("__int_as_float", "0x7fffffff", "0x7f800000")
_LONG_BITS = ("__longlong_as_double", "0x7ff8000000000000ll", "0x7ff0000000000000ll")


def literal(value: int | float | bool, elem: DType) -> str:
    """A constant of the C type that `elem` is computed with."""
    if elem.is_float:
        x = held(value, elem)
        suffix = "" if elem.bits == 64 else "f"
        if not math.isfinite(x):
            made, nan, infinity = _BITS if suffix else _LONG_BITS
            return f"{'-' * (x < 0)}{made}({nan if math.isnan(x) else infinity})"
        return f"{x!r}{suffix}" if x >= 0 and "-0" not in f"{x!r}"[:2] else f"({x!r}{suffix})"
    if elem.name == "i1":
        return "true" if value else "false"
    n = int(value)
    suffix = {"i64": "ll", "u64": "ull", "u32": "u"}.get(elem.name, "")
    if n == -(1 << 31) and elem.name == "i32":
        return "(-2147483647 - 1)"
    if n == -(1 << 63):
        return "(-9223372036854775807ll - 1)"
    return f"{n}{suffix}" if n >= 0 else f"({n}{suffix})"


def expression(kind: OpKind, elem: DType, x: str, y: str = "", *, nonzero: bool = False) -> str:
    """C for kind(x, y) on operands of dtype `elem`, not yet rounded to it.  Integers wrap.

    nonzero: y is known not to be 0.  Dividing integers by 0 is undefined in C: NVRTC takes it that no divisor
    is 0, and drops a program's own test of one."""
    if kind in (arith.idiv, arith.rem) and elem.is_int and not nonzero:
        y = f"nonzero({y})"
    real, wide = elem.is_float, elem.bits == 64
    zero = "0ull" if wide else "0u"  # unsigned: its difference to anything is defined
    if kind in OPERATORS:
        if kind is arith.div and not wide:
            return f"div_full({x}, {y})"
        if kind is arith.rem and real:
            return f"{'fmod' if wide else 'fmodf'}({x}, {y})"
        if kind in (arith.shl, arith.shr) and not _is_short_shift(y, elem):
            return _clamped_shift(kind, elem, x, y)
        if elem.name == "i1" and kind in (arith.and_, arith.or_):  # no bytes are made of predicates
            return f"{x} {OPERATORS[kind] * 2} {y}"
        text = f"{x} {OPERATORS[kind]} {y}"
        if kind in arith.COMPARE:
            return text
        if elem.name in WRAPS and kind in (arith.add, arith.sub, arith.mul, arith.shl):
            return f"({c_type(elem)})(({WRAPS[elem.name]}){x} {OPERATORS[kind]} {y})"
        return f"({c_type(elem)})({text})" if elem.bits < 32 and not real else text
    if kind in (arith.pow_, arith.atan2):
        return f"{kind.name}{'' if wide else 'f'}({x}, {y})"
    if kind in arith.BESSEL:
        return f"{kind.name}{'' if wide else 'f'}((int){paren(x)}, {y})"
    if kind is arith.div_rn:
        return f"{'__ddiv_rn' if wide else '__fdiv_rn'}({x}, {y})"
    if kind in (arith.minimum, arith.maximum):
        name = "min" if kind is arith.minimum else "max"
        if real:
            return f"f{name}{'' if wide else 'f'}({x}, {y})"
        return f"({c_type(elem)}){name}({x}, {y})" if elem.bits < 32 else f"{name}({x}, {y})"
    if kind is arith.neg:
        return f"-{x}" if real else f"({c_type(elem)})({zero} - {x})"
    if kind is arith.abs_ and not real:
        return x if elem.kind == "uint" else f"({c_type(elem)})({x} < 0 ? {zero} - {x} : {x})"
    if kind is arith.not_:
        return f"!{x}" if elem.name == "i1" else f"({c_type(elem)})~{x}"
    if kind is arith.exp:
        return f"exp({x})" if wide else f"exp2_approx({x} * {LOG2_E})"
    if kind in FUNCTIONS:
        name = FUNCTIONS[kind]
        return f"{DOUBLE[name] if wide else name}({x})"
    raise InternalError(f"codegen: no expression for {kind.name} on {elem}")


def _is_short_shift(y: str, elem: DType) -> bool:
    """Is the text a number of bits that C shifts by?  It computes narrow integers in 32 bits."""
    digits = y.rstrip("ul")
    return digits.isdecimal() and int(digits) < max(elem.bits, 32)


def _clamped_shift(kind: OpKind, elem: DType, x: str, y: str) -> str:
    """A shift by any number of bits, as PTX has it.  One by the width or more is undefined in C: NVRTC drops
    what it is stored to."""
    bits, left = max(elem.bits, 32), kind is arith.shl
    sign = "u" if left or elem.kind == "uint" else "s"
    operand = f"(u{bits}){paren(x)}" if left else x
    return f"({c_type(elem)}){kind.name}_{sign}{bits}({operand}, {y})"


def _operation(e: Emitter, o: Op) -> None:
    """Unary and binary ops."""
    elem = dtype_of(o.operands[0].type)
    result = o.result
    nonzero = o.kind in (arith.idiv, arith.rem) and e.signs.never_zero(o.operands[1], o)
    if isinstance(result.type, Scalar):
        x = [e.scalar(v) for v in o.operands]
        text = expression(o.kind, elem, *x, nonzero=nonzero)
        e.define(result, rounded(text, elem) if o.kind not in arith.COMPARE else text)
        return
    known = decided(e.facts, o)
    if known is not None and not e.storage.variables[result].is_mutable:
        e.env[result] = uniform(result.typed(Tile), literal(known, i1))
        return
    sources = [e.regs(v) for v in o.operands]
    dst = e.array(result)
    if (bits := _by_bits(e, o)) is not None:
        kind, by = bits
        e.lines(map_lines(dst, sources[:1], lambda x: expression(kind, elem, x, literal(by, elem))))
        return
    if o.kind in arith.COMPARE and not e.storage.variables[result].is_mutable:
        alike = _alike(e, o)
        if len(set(alike)) < len(alike):
            for r in sorted(set(alike)):
                pair = (read(s.elements[r], elem) for s in sources)
                e.line(f"{dst.name}[{r}] = {expression(o.kind, elem, *pair)};")
            e.env[result] = e.regs(result).pick(alike)
            return
    if (steps := _shared(e, o)) is not None:
        first = e.name(f"{result.hint or 'tile'}_first", "first")
        e.line(
            f"const int {first} = {expression(o.kind, elem, *(read(r.elements[0], elem) for r in sources))};"
        )
        for i, more in enumerate(steps):
            e.line(f"{dst.name}[{i}] = {expression(arith.add, elem, first, literal(more, elem))};")
        return
    if o.kind in PAIRED and elem.is_float and elem.bits == 16:
        pairs = Array(dst.name, u32, dst.words)
        name = f"{PAIRED[o.kind]}_{elem}x2"
        e.lines(map_lines(pairs, [words(s) for s in sources], lambda x, y: f"{name}({x}, {y})"))
        return
    e.lines(map_lines(dst, sources, lambda *x: expression(o.kind, elem, *x, nonzero=nonzero)))


def _by_bits(e: Emitter, o: Op) -> tuple[OpKind, int] | None:
    """The op on bits, and its number, that does the same as a tile's division by a power of two: where no
    element is negative, even if sums wrap.  NVRTC doesn't see that signed rests of x and x + 16 by 16 are
    equal, and loads what they lead to twice."""
    if o.kind not in (arith.idiv, arith.rem) or not dtype_of(o.result.type).is_int:
        return None
    x, y = o.operands
    n = e.wrapping.constant(y)
    if n is None or n < 2 or n & (n - 1) or not e.wrapping.never_negative(x):
        return None
    return (arith.and_, n - 1) if o.kind is arith.rem else (arith.shr, n.bit_length() - 1)


class Steps(NamedTuple):
    """Of a tile of indices: by how much each register exceeds the first one, and a power of two that divides
    the first ones."""

    more: tuple[int, ...]
    first: int


def steps_of(e: Emitter, v: Value) -> Steps | None:
    """How an i32 tile's registers follow each other, where every thread agrees on that."""
    if v not in e.steps:
        e.steps[v] = _steps(e, v)
    found: Steps | None = e.steps[v]
    return found


def _steps(e: Emitter, v: Value) -> Steps | None:
    if not isinstance(v.type, Tile) or v.type.elem != i32:
        return None
    moved, first = np.zeros((1, 1, v.type.layout.registers), np.int64), 1
    for axis, coordinates in enumerate(v.type.layout.table):
        known = e.facts.axis(v, axis)
        if known.slope is None:
            return None
        more = known.slope * coordinates
        first = max(first, math.gcd(known.first, *map(int, np.unique(more[..., 0]))))
        moved = moved + more - more[..., :1]
    if (moved != moved[:1, :1]).any():
        return None
    return Steps(tuple(map(int, moved[0, 0])), first)


def _alike(e: Emitter, o: Op) -> tuple[int, ...]:
    """For each register of a comparison the first one that has the same outcome."""
    layout: Layout = o.result.type.layout  # type: ignore[attr-defined]
    groups = _between_multiples(e, o)
    if groups is None:
        runs = [_run(layout, axis) for axis in range(len(layout.shape))]
        alike = [constancy(e.facts, o, axis, n) if n > 1 else 1 for axis, n in enumerate(runs)]
        if max(alike, default=1) == 1:
            return tuple(range(layout.registers))
        places = [c // n for c, n in zip(layout.table, alike, strict=True)]
        groups = [b"".join(c[..., r].tobytes() for c in places) for r in range(layout.registers)]
    return tuple(groups.index(g) for g in groups)


def _run(layout: Layout, axis: int) -> int:
    """How many registers from the first on hold elements that follow each other along an axis."""
    n = 1
    for v in layout.reg:
        if v != tuple(n * (a == axis) for a in range(len(layout.shape))):
            break
        n *= 2
    return n


def _between_multiples(e: Emitter, o: Op) -> list[Any] | None:
    """Which group each register is in: x < y and x >= y of a moving x (mirrored: y > x and y <= x) change
    only where x passes y, so in no group that begins at a multiple of n where n divides y.  None where all
    are by themselves."""
    x, y = o.operands if o.kind in (arith.lt, arith.ge) else o.operands[::-1]
    moving, limit = steps_of(e, x), steps_of(e, y)
    ordered = o.kind in (arith.lt, arith.ge, arith.gt, arith.le)
    if not ordered or moving is None or limit is None or any(limit.more):
        return None
    n = math.gcd(moving.first, limit.first)
    groups = [more // n for more in moving.more]
    return groups if len(set(groups)) < len(groups) else None


def _shared(e: Emitter, o: Op) -> tuple[int, ...] | None:
    """By how much the elements of a sum or difference of indices exceed the first one, where some are the
    same (row + 8 - (column + 8)): as the first one and a constant, the C compiler finds them, and does once
    what is computed from them."""
    if o.kind not in (arith.add, arith.sub):
        return None
    operands, found = [steps_of(e, v) for v in o.operands], steps_of(e, o.result)
    moving = all(s is not None and len(set(s.more)) > 1 for s in operands)
    is_shared = found is not None and len(set(found.more)) < len(found.more)
    return found.more if found is not None and moving and is_shared else None


def _fast_div(e: Emitter, o: Op) -> str:
    x, y = o.operands
    return f"fast_div({e.scalar(x)}, {e.dividers[e.program.expression(y)]})"


def _const(e: Emitter, o: Op) -> None:
    e.constants[o.result] = o.attrs["value"]
    e.env[o.result] = literal(o.attrs["value"], o.attrs["dtype"])


def _select(e: Emitter, o: Op) -> None:
    c, x, y = o.operands
    t = registers_of(o.result)
    if not isinstance(t, Tile):
        e.define(o.result, f"{e.scalar(c)} ? {e.scalar(x)} : {e.scalar(y)}")
    elif isinstance(c.type, Tile):
        dst = e.array(o.result)
        sources = [e.regs(v) for v in o.operands]
        e.lines(map_lines(dst, sources, lambda c, x, y: f"{c} ? {x} : {y}"))
    else:
        # One of the two is in place already where it shares the result's array.
        in_place = e.storage.variables.get(y) is e.storage.variables[o.result]
        kept, other = (y, x) if in_place else (x, y)
        dst = e.array(o.result)
        e.copy(dst, e.regs(kept))
        with e.block(f"if ({'' if in_place else '!'}{e.scalar(c)})"):
            e.copy(dst, e.regs(other))
            if is_packed(t.elem) or dtype_of(t).name == "f32":
                # Else ptxas computes both and selects, with twice the registers.
                e.line(f"pin({dst.name});")


def _addptr(e: Emitter, o: Op) -> None:
    p, offset = o.operands
    steps = steps_of(e, offset)
    if steps is None or len(set(e.regs(p).elements)) > 1:
        e.elementwise(o, lambda x, y: f"{x} + {y}")
        return
    dst, base, by = e.array(o.result), e.regs(p), e.regs(offset)
    # One address and constants, which accesses have room for (places don't wrap: memory has fewer).
    first = e.name(f"{o.result.hint or 'tile'}_first", "first")
    text = f"{read(base.elements[0], base.elem)} + {read(by.elements[0], by.elem)}"
    e.line(f"{c_type(base.elem)} const {first} = {text};")
    for i, more in enumerate(steps.more):
        e.line(f"{dst.name}[{i}] = {first} + {more};")


def _address(e: Emitter, o: Op) -> None:
    """Numbers as pointers, pointers as numbers."""
    to = c_type(elem_of(o.result.type))
    e.elementwise(o, lambda v: f"({to}){paren(v)}")


def _splat(e: Emitter, o: Op) -> None:
    assert isinstance(o.result.type, Tile)
    e.env[o.result] = uniform(o.result.type, e.scalar(o.operands[0]))


# ---- inline assembly

_ASM_TYPES = {"r": "u32", "h": "u16", "l": "u64", "f": "float", "d": "double"}


def _inline_asm(e: Emitter, o: Op) -> None:
    """`pack` elements of a thread at a time; where it holds fewer, the last one again."""
    outputs = [DTYPES[name] for name in o.attrs["outputs"].split(",")]
    inputs = [dtype_of(v.type) for v in o.operands]
    pack, which = o.attrs["pack"], o.attrs["output"]
    operands = arith.asm_operands(o.attrs["constraints"], outputs, inputs, pack)
    is_tile = isinstance(o.result.type, Tile)
    count = len(e.regs(o.operands[0]).elements) if is_tile else 1
    found: list[str] = []
    for start in range(0, count, pack):
        names = [[e.name("asm") for _ in range(x.registers)] for x in operands[: len(outputs)]]
        for x, own in zip(operands, names, strict=False):
            e.line(f"{_ASM_TYPES[x.letter]} {', '.join(own)};")
        to = [f'"={x.letter}"({n})' for x, own in zip(operands, names, strict=False) for n in own]
        given = [
            f'"{x.letter}"({_input(e, v, x, start + r * x.elements, count)})'
            for x, v in zip(operands[len(outputs) :], o.operands, strict=True)
            for r in range(x.registers)
        ]
        e.line(f"asm volatile({asm_text(o.attrs['asm'])} : {', '.join(to)} : {', '.join(given)});")
        for name in names[which]:
            found += _elements(name, operands[which], outputs[which])
    if is_tile:
        e.put(o.result, found[:count])
    else:
        e.define(o.result, found[0])


def _input(e: Emitter, v: Value, x: arith.AsmOperand, at: int, count: int) -> str:
    """The register that holds the elements of v from `at` on."""
    dtype, at = dtype_of(v.type), min(at, count - 1)
    if not isinstance(v.type, Tile):
        text = e.scalar(v)
        if x.letter in "fd":
            return text
        return same_bits(text, dtype, u64 if x.letter == "l" else u32)
    r = e.regs(v)
    if x.letter in "fd":
        return read(r.elements[at], r.elem)
    if x.letter == "l" and dtype.bits == 64:
        return same_bits(read(r.elements[at], r.elem), dtype, u64)
    return f"({_ASM_TYPES[x.letter]}){paren(word(r, at))}"


def _elements(name: str, x: arith.AsmOperand, dtype: DType) -> list[str]:
    """The elements in a register, as C."""
    if x.letter in "fd":
        return [name]
    if dtype.bits == 64:
        return [same_bits(name, u64, dtype)]
    if dtype.bits == 32:
        return [same_bits(name, u32, dtype)]
    parts = [f"(u32){name}", *(f"((u32){name} >> {i * dtype.bits})" for i in range(1, x.elements))]
    return [same_bits_of_word(p, dtype) for p in parts]


def asm_text(asm: str) -> str:
    """LLVM's placeholders as CUDA's, in a C string."""
    out = asm.replace("%", "%%").replace("$$", "\0")
    out = out.replace("$", "%").replace("\0", "$")
    out = out.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{out}"'


LOWER: dict[OpKind, Lowering] = {
    **dict.fromkeys(arith.UNARY | arith.BINARY, _operation),
    arith.const: _const,
    arith.fast_div: defined(_fast_div),
    arith.select: _select,
    arith.addptr: _addptr,
    arith.int_to_ptr: _address,
    arith.ptr_to_int: _address,
    tile.splat: _splat,
    arith.inline_asm: _inline_asm,
}
