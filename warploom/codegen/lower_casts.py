"""Casts: numbers as another dtype, and bits as another dtype."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.registers import Array, Regs, c_type, is_packed, map_lines, per_word, word
from warploom.ir.core import Op, OpKind
from warploom.ir.fold import fold
from warploom.ir.ops import arith
from warploom.ir.types import DType, Pointer, Scalar, dtype_of

# Of two of four bytes in a word, all at once.
FROM_BYTES = {
    ("i8", "f16"): "i8_f16x2", ("i8", "bf16"): "i8_bf16x2",
    ("f8e4m3", "f16"): "f8e4m3_f16x2", ("f8e5m2", "f16"): "f8e5m2_f16x2",
}  # fmt: skip


def rounded(text: str, elem: DType | Pointer) -> str:
    """A scalar of a 16- or 8-bit float is a C float that holds such a value."""
    return f"round_{elem}({text})" if is_packed(elem) else text


def converted(text: str, source: DType, to: DType) -> str:
    """C for cast: `text` of dtype `source` as `to`, not yet rounded to a packed float."""
    if to.name == "i1":
        return f"({text} != 0)"
    if source.is_float and to.is_int:
        return _truncated(text, source, to)
    if source.bits == 64 and source.is_float and is_packed(to):
        return f"to_odd({text})"
    return text if c_type(source) == c_type(to) else f"({c_type(to)}){paren(text)}"


def _truncated(text: str, source: DType, to: DType) -> str:
    """C for a float as an integer, by functions that are defined out of its range, as C's casts are not."""
    unsigned = "u" if to.kind == "uint" else ""
    of, whole = "double" if source.bits == 64 else "float", "ll" if to.bits == 64 else "int"
    found = f"__{of}2{unsigned}{whole}_rz({text})"
    if to.bits >= 32:
        return found
    if unsigned:
        return f"({c_type(to)})min({found}, {(1 << to.bits) - 1}u)"
    half = 1 << (to.bits - 1)
    return f"({c_type(to)})min(max({found}, {-half}), {half - 1})"


def paren(text: str) -> str:
    closed = text.replace("_", "").replace(".", "").isalnum() or text.endswith(("]", ")"))
    return text if closed else f"({text})"


def _cast(e: Emitter, o: Op) -> None:
    (x,) = o.operands
    source, to = dtype_of(x.type), o.attrs["dtype"]
    if isinstance(o.result.type, Scalar):
        if x in e.constants:
            known = fold(o.kind, [e.constants[x]], source, to)
            if known is not None:
                e.constants[o.result] = known
        text = converted(e.scalar(x), source, to)
        e.define(o.result, text if source == to else rounded(text, to))
        return
    dst, r = e.array(o.result), e.regs(x)
    if (source.name, to.name) in FROM_BYTES and dst.count % 4 == 0:
        e.lines(_from_bytes(dst, r, FROM_BYTES[source.name, to.name]))
        return
    e.lines(map_lines(dst, [r], lambda v: converted(v, source, to)))


def _from_bytes(dst: Array, r: Regs, function: str) -> Iterator[tuple[int, str]]:
    """C lines that make 16-bit floats of 8-bit elements, four at a time."""
    for i in range(0, dst.count, 4):
        four = word(r, i)
        for half in range(2):
            yield 0, f"{dst.name}[{i // 2 + half}] = {function}<{half}>({four});"


def _decode(e: Emitter, o: Op) -> None:
    (x,), name = o.operands, f"decode_{o.attrs['encoding']}"
    if isinstance(x.type, Scalar) or not is_packed((r := e.regs(x)).elem):
        e.elementwise(o, lambda v: f"{name}({v})")
        return
    dst = e.array(o.result)
    for i in range(dst.count):  # its bytes, not its numbers
        e.line(f"{dst.name}[{i}] = {name}((u8)({word(r, i // 4 * 4)} >> {8 * (i % 4)}));")


def _bitcast(e: Emitter, o: Op) -> None:
    (x,) = o.operands
    source, to = dtype_of(x.type), o.attrs["dtype"]
    if isinstance(o.result.type, Scalar) or source.bits >= 32:
        e.elementwise(o, lambda v: same_bits(v, source, to))
        return
    r, dst = e.regs(x), e.array(o.result)
    if is_packed(to):  # word by word
        n = per_word(to)
        for w in range(dst.words):
            e.line(f"{dst.name}[{w}] = {word(r, w * n)};")
        return
    n = 32 // source.bits
    for i in range(dst.count):
        part = word(r, i // n * n)
        e.line(f"{dst.name}[{i}] = ({c_type(to)})({part} >> {source.bits * (i % n)});")


def same_bits(text: str, source: DType, to: DType) -> str:
    """C for a bitcast of one element."""
    if source == to or (source.is_int and to.is_int):
        return text if source == to else f"({c_type(to)}){paren(text)}"
    if source.bits == 64:
        if source.is_float:
            return f"({c_type(to)})__double_as_longlong({text})"
        return f"__longlong_as_double((i64){paren(text)})"
    if source.bits == 32:
        if source.is_float:
            return f"({c_type(to)})float_bits({text})"
        return f"float_of((u32){paren(text)})"
    # A 16- or 8-bit float scalar lives as a float: its bits are those of its packed form.
    if is_packed(source):
        others = ", 0.0f" * (per_word(source) - 1)
        bits = f"pack_{source}({text}{others})"
        return same_bits_of_word(bits, to)
    return same_bits_of_word(f"(u32){paren(text)}", to)


def same_bits_of_word(bits: str, to: DType) -> str:
    """The lowest element of a 32-bit word as `to`."""
    if not is_packed(to):
        return f"({c_type(to)}){paren(bits)}"
    return f"{to}_lo({bits})" if to.bits == 16 else f"{to}_at<0>({bits})"


LOWER: dict[OpKind, Lowering] = {
    arith.cast: _cast,
    arith.bitcast: _bitcast,
    arith.decode: _decode,
}
