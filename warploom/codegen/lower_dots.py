"""Dots in registers: loops of matrix instructions over the fragments that a warp holds."""

from __future__ import annotations

from math import prod

from warploom.codegen import ptx
from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.registers import Array, is_packed, word
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import tile
from warploom.ir.types import Tile, dtype_of, shape_of, u32
from warploom.layout import mma_operand, mma_scales


def _dot(e: Emitter, o: Op) -> None:
    """Loops over batches, steps of K, rows and columns; with scales the steps are written one after the
    other, since which bytes of a word hold a step's scales is part of the instruction."""
    left, right, acc, *scales = o.operands
    t, (*_, k) = o.result.typed(Tile), tile.dot_sizes(o)
    needed = [mma_operand(t.layout, axis, k, dtype_of(left.type).bits) for axis in (0, 1)]
    needed += [mma_scales(t.layout, i, shape_of(v.type)[1]) for i, v in enumerate(scales)]
    for v, layout in zip((left, right, *scales), needed, strict=True):
        if v.type.layout != layout:  # type: ignore[attr-defined]
            raise InternalError(f"codegen: a dot's operand is laid out as {v.type}")
    types = [dtype_of(v.type) for v in (left, right, *scales[:1])]
    a_type, b_type, *scaled = types
    form: ptx.Mma | ptx.ScaledMma = ptx.Mma(a_type, b_type, _halves(e, o))
    if scaled:
        form = ptx.ScaledMma(a_type, b_type, *scaled)
    e.made[form.name] = form.definition()
    a, b = (_fragments(e, v) for v in (left, right))
    words = [_scales(e, v) for v in scales]
    e.assign(o.result, acc)
    steps = k // form.k
    rank = len(t.shape) - 2
    batches = prod(count for axis, count, _ in t.layout.repeats if axis < rank)  # of a warp
    rows, columns = (
        layout.registers // form.elements(axis) // (steps * batches)
        for axis, layout in enumerate(needed[:2])
    )
    i, j = e.name("rows"), e.name("columns")
    per_a, per_b = form.registers
    batch = e.name("batch") if batches > 1 else ""

    def after(size: int) -> str:
        """Where a batch's part of a fragment begins, of so many registers."""
        return f" + {size} * {batch}" if batch else ""

    def instruction(step: str, function: str, *more: str) -> None:
        for name, count in ((i, rows), (j, columns)):
            e.line("#pragma unroll")
            e.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
        at = (
            f"{e.array(o.result).name}{after(4 * rows * columns)} + 4 * ({columns} * {i} + {j})",
            f"{a}{after(per_a * rows * steps)} + {per_a} * ({steps} * {i} + {step})",
            f"{b}{after(per_b * columns * steps)} + {per_b} * ({columns} * {step} + {j})",
        )
        e.line(f"{function}({', '.join((*at, *more))});")

    if isinstance(form, ptx.Mma):
        step = e.name("step")
        if batch:
            e.line("#pragma unroll")
            e.line(f"for (int {batch} = 0; {batch} < {batches}; ++{batch})")
        e.line("#pragma unroll")
        e.line(f"for (int {step} = 0; {step} < {steps}; ++{step})")
        instruction(step, form.name)
        return
    per_row = -(-shape_of(scales[0].type)[1] // 4)
    for n in range(steps):
        word, byte = divmod(n * form.groups, 4)
        given = (f"{x}[{per_row} * {at} + {word}]" for x, at in zip(words, (i, j), strict=True))
        instruction(str(n), f"{form.name}<{byte}>", *given)


def _halves(e: Emitter, o: Op) -> bool:
    """Does the target do such an instruction as two?"""
    unit, types = e.target.unit_of(o.attrs["unit"]), (dtype_of(v.type).name for v in o.operands[:3])
    product = unit.product(*types) if unit is not None else None
    return product is not None and product.halves


def _scales(e: Emitter, v: Value) -> str:
    """The array of an operand's scales: words, the last one of a row (a column) perhaps filled in part."""
    each, r = shape_of(v.type)[1], e.regs(v)
    if each % 4 == 0:
        return _fragments(e, v)
    found = [
        word(r.pick(range(at + i, min(at + each, at + i + 4))), 0)
        for at in range(0, len(r.elements), each)
        for i in range(0, each, 4)
    ]
    made = Array(e.name(v.hint, "scales"), u32, len(found))
    e.line(f"const {made.declaration} = {{{', '.join(found)}}};")
    return made.name


def _fragments(e: Emitter, v: Value) -> str:
    """The array of an operand's words (of f64: numbers)."""
    t, r = v.typed(Tile), e.regs(v)
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
