"""Dots in registers: loops of matrix instructions over the fragments that a warp holds."""

from __future__ import annotations

from warploom.codegen import ptx
from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.registers import Array, is_packed, word
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import tile
from warploom.ir.types import Tile, u32
from warploom.layout import mma_operand


def _dot(e: Emitter, o: Op) -> None:
    *operands, acc = o.operands
    t, (_, k) = o.result.type, operands[0].type.shape  # type: ignore[attr-defined]
    assert isinstance(t, Tile)
    for axis, v in enumerate(operands):
        assert isinstance(v.type, Tile)
        if v.type.layout != mma_operand(t.layout, axis, k, v.type.dtype.bits):
            raise InternalError(f"codegen: a dot's operand {axis} is laid out as {v.type.layout}")
    form = ptx.Mma(*(v.type.dtype for v in operands))  # type: ignore[attr-defined]
    e.made[form.name] = form.definition()
    given = [_fragments(e, v) for v in operands]
    e.assign(o.result, acc)
    steps = k // form.k
    rows, columns = (
        v.type.layout.registers // form.elements(axis) // steps  # type: ignore[attr-defined]
        for axis, v in enumerate(operands)
    )
    step, i, j = (e.name(name) for name in ("step", "rows", "columns"))
    for name, count in ((step, steps), (i, rows), (j, columns)):
        e.line("#pragma unroll")
        e.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
    (a, b), (per_a, per_b) = given, form.registers
    at = [
        f"{e.array(o.result).name} + 4 * ({columns} * {i} + {j})",
        f"{a} + {per_a} * ({steps} * {i} + {step})",
        f"{b} + {per_b} * ({columns} * {step} + {j})",
    ]
    e.line(f"{form.name}({', '.join(at)});")


def _fragments(e: Emitter, v: Value) -> str:
    """The array of an operand's words (of f64: numbers)."""
    t, r = v.type, e.regs(v)
    assert isinstance(t, Tile)
    whole = r.array
    if whole is not None and (is_packed(whole.elem) or t.dtype.bits == 64):
        return whole.name
    if t.dtype.bits == 64:
        made = Array(e.name(v.hint, "operand"), t.dtype, len(r.elements))
        e.line(f"{made.declaration};")
        e.copy(made, r)
        return made.name
    per = 32 // t.dtype.bits
    words = [word(r, i) for i in range(0, len(r.elements), per)]
    made = Array(e.name(v.hint, "operand"), u32, len(words))
    e.line(f"const {made.declaration} = {{{', '.join(words)}}};")
    return made.name


LOWER: dict[OpKind, Lowering] = {tile.dot: _dot}
