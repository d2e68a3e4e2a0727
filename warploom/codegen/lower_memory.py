"""Registers to and from memory."""

from __future__ import annotations

import numpy as np

from warploom.codegen.context import Address, Emitter, Lowering, displaced
from warploom.codegen.lower_hopper import geometry
from warploom.codegen.registers import word
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import hopper
from warploom.ir.types import Shared, Tile
from warploom.layout.choose import MatrixForm, matrix_form, thread_offsets, vector_elements


def _shared_store(e: Emitter, o: Op) -> None:
    s, value = o.operands
    assert isinstance(s.type, Shared) and isinstance(value.type, Tile)
    layout, g = value.type.layout, geometry(s.type)
    form = matrix_form(layout, g)
    if form is not None and form.count == 4 and 128 % (32 * layout.warps) == 0:
        _by_matrix(e, o, form)


def _by_matrix(e: Emitter, o: Op, form: MatrixForm) -> None:
    """stmatrix: lane l gives the address of one 16-byte row."""
    s, value = o.operands
    assert isinstance(s.type, Shared) and isinstance(value.type, Tile)
    layout, g = value.type.layout, geometry(s.type)
    offsets = thread_offsets(layout, g)  # (warps, lanes, registers)
    rows = [form.row(lane) for lane in range(32)]
    per = form.count * form.elements
    r = e.regs(value)

    def at(start: int) -> np.ndarray:  # type: ignore[type-arg]
        table = [[offsets[w, lane, start + reg] for reg, lane in rows] for w in range(layout.warps)]
        return np.array(table)

    first = at(0)
    name = e.thread_value(first, f"{s.hint or 'slot'}_row")
    instruction = "stmatrix4_trans" if form.trans else "stmatrix4"
    for start in range(0, layout.registers, per):
        where = displaced(name, first.reshape(-1), at(start).reshape(-1))
        given = ", ".join(word(r, start + i * form.elements) for i in range(form.count))
        e.line(f"{instruction}({_sum(e.shared(s), where)}, {given});")


def _sum(at: Address, text: str) -> str:
    return f"{at} + {text}"


LOWER: dict[OpKind, Lowering] = {
    hopper.shared_store: _shared_store,
}
_ = vector_elements
