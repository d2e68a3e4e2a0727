"""Inline assembly."""

from __future__ import annotations

from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.lower_casts import paren, same_bits, same_bits_of_word
from warploom.codegen.registers import read, word
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith
from warploom.ir.types import DTYPES, DType, Tile, dtype_of, u32, u64

_C = {"r": "u32", "h": "u16", "l": "u64", "f": "float", "d": "double"}


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
            e.line(f"{_C[x.letter]} {', '.join(own)};")
        to = [f'"={x.letter}"({n})' for x, own in zip(operands, names, strict=False) for n in own]
        given = [
            f'"{x.letter}"({_input(e, v, x, start + r * x.elements, count)})'
            for x, v in zip(operands[len(outputs) :], o.operands, strict=True)
            for r in range(x.registers)
        ]
        e.line(f"asm volatile({_text(o.attrs['asm'])} : {', '.join(to)} : {', '.join(given)});")
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
    return f"({_C[x.letter]}){paren(word(r, at))}"


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


def _text(asm: str) -> str:
    """LLVM's placeholders as CUDA's, in a C string."""
    out = asm.replace("%", "%%").replace("$$", "\0")
    out = out.replace("$", "%").replace("\0", "$")
    out = out.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{out}"'


LOWER: dict[OpKind, Lowering] = {arith.inline_asm: _inline_asm}
