"""Dots in registers: loops of matrix instructions over the fragments that a warp holds, and the threads' own
multiply-adds, of blocks of rows and columns that they read from shared memory step by step."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from warploom.codegen import ptx
from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.formula import Ints
from warploom.codegen.lower_shared import geometry
from warploom.codegen.registers import Array, is_packed, per_word, word
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import mma, tile
from warploom.ir.types import Shared, Tile, dtype_of, shape_of, u32
from warploom.layout import Layout, mma_operand, mma_scales, product_registers
from warploom.layout.fragments import ROWS, atom
from warploom.layout.shared import byte_offset


def _dot(e: Emitter, o: Op) -> None:
    """Loops over batches, steps of K, rows and columns; with scales the steps are written one after the
    other, since which bytes of a word hold a step's scales is part of the instruction."""
    left, right, acc, *scales = o.operands
    t, (*_, k) = o.result.typed(Tile), tile.dot_sizes(o)
    bits = dtype_of(left.type).bits
    pairs = left.typed(Tile).layout == mma_operand(t.layout, 0, k, bits, paired=True)
    needed = [mma_operand(t.layout, axis, k, bits, pairs) for axis in (0, 1)]
    needed += [mma_scales(t.layout, i, shape_of(v.type)[1]) for i, v in enumerate(scales)]
    for v, layout in zip((left, right, *scales), needed, strict=True):
        if v.typed(Tile).layout != layout:
            raise InternalError(f"codegen: a dot's operand is laid out as {v.type}")
    form, name = _instruction(e, o, pairs)
    a, b = (_fragments(e, v) for v in (left, right))
    words = [_scales(e, v) for v in scales]
    e.assign(o.result, acc)
    steps = k // form.k
    rank = len(t.shape) - 2
    batches = prod(count for axis, count, _ in t.layout.repeats if axis < rank)  # of a warp
    absent = atom(*t.shape[-2:])[0] < ROWS, False  # every second register of A
    rows, columns = (
        layout.registers // (form.elements(axis) >> absent[axis]) // (steps * batches)
        for axis, layout in enumerate(needed[:2])
    )
    i, j = e.name("rows"), e.name("columns")
    per_a, per_b = (n >> lacks for n, lacks in zip(form.registers, absent, strict=True))
    sums = t.layout.registers // (rows * columns * batches * per_word(t.elem))
    batch = e.name("batch") if batches > 1 else ""

    def after(size: int) -> str:
        """Where a batch's part of a fragment begins, of so many registers."""
        return f" + {size} * {batch}" if batch else ""

    def instruction(step: str, function: str, *more: str) -> None:
        for name, count in ((i, rows), (j, columns)):
            e.unrolled(name, count)
        at = (
            f"{e.array(o.result).name}{after(sums * rows * columns)} + {sums} * ({columns} * {i} + {j})",
            f"{a}{after(per_a * rows * steps)} + {per_a} * ({steps} * {i} + {step})",
            f"{b}{after(per_b * columns * steps)} + {per_b} * ({columns} * {step} + {j})",
        )
        e.line(f"{function}({', '.join((*at, *more))});")

    if isinstance(form, ptx.Mma):
        step = e.name("step")
        if batch:
            e.unrolled(batch, batches)
        e.unrolled(step, steps)
        instruction(step, name)
        return
    per_row = -(-shape_of(scales[0].type)[1] // 4)
    for n in range(steps):
        word, byte = divmod(n * form.groups, 4)
        given = (f"{x}[{per_row} * {at} + {word}]" for x, at in zip(words, (i, j), strict=True))
        instruction(str(n), f"{name}<{byte}>", *given)


def _instruction(e: Emitter, o: Op, pairs: bool) -> tuple[ptx.Mma | ptx.ScaledMma, str]:
    """A dot's instruction, and the device function of what it fills of that, or that takes K in pairs."""
    a, b, *scaled = (dtype_of(v.type) for v in (*o.operands[:2], *o.operands[3:4]))
    form: ptx.Mma | ptx.ScaledMma = ptx.Mma(a, b, dtype_of(o.result.type), _halves(e, o))
    if scaled:
        form = ptx.ScaledMma(a, b, *scaled)
    e.made[form.name] = form.definition()
    rows, columns = atom(*shape_of(o.result.type)[-2:])
    if rows == ROWS and columns > 1 and not pairs:
        return form, form.name
    name, e.made[name] = ptx.in_part(form, rows == ROWS, columns > 1, pairs)
    return form, name


def _halves(e: Emitter, o: Op) -> bool:
    """Does the target do such an instruction as two?"""
    unit = e.target.unit_of(o.attrs["unit"])
    a, b, total = (dtype_of(v.type).name for v in o.operands[:3])
    product = unit.product(a, b, total) if unit is not None else None
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


# ---- multiply-adds of the threads

STEP = 4  # of K that a thread reads at a time: 16 bytes


def _fma(e: Emitter, o: Op) -> None:
    """Loops over batches and steps of K: the rows and columns of a step, then all their products."""
    a, b, acc = o.operands
    t, k = o.result.typed(Tile), a.typed(Shared).shape[-1]
    *batch, rows, columns = product_registers(t.layout)
    e.assign(o.result, acc)
    step = math.gcd(STEP, k)
    left, right = (
        _Read(e, v, t.layout, axis, registers, step)
        for axis, (v, registers) in enumerate(((a, rows), (b, columns)))
    )
    i, j, at = e.name("i"), e.name("j"), e.name("k")
    sums, inner = e.array(o.result).name, e.name("step")
    index = f"{_index(rows, i)} + {_index(columns, j)}"
    each, more = "", ""
    if batch and len(batch[0]) > 1:
        each = e.name("batch")
        index, more = f"{_index(batch[0], each)} + {index}", each
        e.unrolled(each, len(batch[0]))
    e.line(f"#pragma unroll {max(1, min(k, o.attrs['unroll']) // step)}")
    with e.block(f"for (int {at} = 0; {at} < {k}; {at} += {step})"):
        for side in (left, right):
            side.load(at, more, batch[0] if batch else ())
        for name, count in ((inner, step), (i, len(rows)), (j, len(columns))):
            e.unrolled(name, count)
        x, y = left.element(i, inner), right.element(j, inner)
        e.line(f"{sums}[{index}] = __fmaf_rn({x}, {y}, {sums}[{index}]);")


class _Read:
    """A thread's rows (axis 0) or columns (axis 1) of an operand in shared memory, a step of K at a time: as
    vectors along K, or where that is not the inner axis, of rows that are adjacent."""

    def __init__(
        self, e: Emitter, v: Value, acc: Layout, axis: int, registers: tuple[int, ...], step: int
    ) -> None:
        s = v.typed(Shared)
        self.e, self.step, self.count, self.layout = e, step, len(registers), acc
        self.axis, self.rank = axis, len(s.shape) - 2
        self.geometry = geometry(s)
        self.along_k = s.inner == self.rank + 1 - axis
        self.name = e.name(v.hint or "operand")
        own = acc.table[self.rank + axis]
        self.width = step
        if not self.along_k:
            near = (n for n in (4, 2, 1) if _adjacent(own[..., list(registers)], n))
            self.width = next(near)
        # Of each vector where it lies: a variable, and bytes to add, which the swizzle does not reach.
        self.places: list[tuple[str, int]] = []
        seen: list[tuple[str, Ints]] = []
        for register in registers[:: 1 if self.along_k else self.width]:
            table = self.offsets(register)
            for base, first in seen:
                apart = table - first
                if (apart == apart.flat[0]).all() and int(apart.flat[0]) % self.period == 0:
                    self.places.append((base, int(apart.flat[0])))
                    break
            else:
                base = e.name(f"{self.name}_at")
                thread = e.thread_value(table, f"{self.name}_of")
                e.line(f"const u32 {base} = {e.shared(v)} + {thread};")
                seen.append((base, table))
                self.places.append((base, 0))

    @property
    def period(self) -> int:
        """Bytes of which a multiple changes nothing that the swizzle exchanges."""
        return 128 if self.geometry.swizzle else 1

    def offsets(self, register: int) -> Ints:
        """Where the element of the accumulator's register finds its first factor, a number a thread."""
        here = [x[..., register] for x in self.layout.table]
        first = np.zeros_like(here[0])
        of_axis = here[self.rank + self.axis]
        matrix = [of_axis, first] if self.axis == 0 else [first, of_axis]
        return byte_offset(self.geometry, [*here[: self.rank], *matrix])

    def load(self, k: str, batch: str, batches: tuple[int, ...]) -> None:
        """Declares the numbers of the step at k, of a batch."""
        e, shape = self.e, f"[{self.step}][{self.count}]"
        e.line(f"float {self.name}{f'[{self.count}][{self.step}]' if self.along_k else shape};")
        more = ""
        if batch:
            apart = self.offsets(batches[1]) - self.offsets(batches[0])
            more = f" + {int(apart.flat[0])} * {batch}"
        for n, (base, bytes_) in enumerate(self.places):
            after = f" + {bytes_}{more}" if bytes_ else more
            if self.along_k:
                to, at = f"{self.name}[{n}]", self.at(base, k)
                e.line(f"load_floats<{self.width}>({to}, {at}{after});")
                continue
            for i in range(self.step):
                to = f"{self.name}[{i}] + {n * self.width}"
                at = self.at(base, f"({k} + {i})" if i else k)
                e.line(f"load_floats<{self.width}>({to}, {at}{after});")

    def at(self, base: str, k: str) -> str:
        """C for a vector's address at k, given where it lies at 0."""
        g = self.geometry
        if not self.along_k:
            flip = f" ^ ({k} * {g.row_bytes} >> {g.shift} & {g.unit_mask}) << 4"
            return f"({base}{flip if g.unit_mask else ''}) + {k} * {g.row_bytes}"
        if not g.swizzle:
            return f"{base} + {k} * {g.itemsize}"
        if g.shape[g.inner] == g.row_elements:
            return f"({base} ^ {k} * {g.itemsize})"
        panel = f"{k} / {g.row_elements} * {g.panel_bytes}"
        return f"({base} ^ {k} % {g.row_elements} * {g.itemsize}) + {panel}"

    def element(self, n: str, step: str) -> str:
        """C for the number of row (column) n at a step."""
        return f"{self.name}[{n}][{step}]" if self.along_k else f"{self.name}[{step}][{n}]"


def _adjacent(own: Ints, n: int) -> bool:
    """Are a thread's rows (columns), one array each on the last axis, adjacent and aligned by n?"""
    runs = own.reshape(*own.shape[:-1], -1, n) if own.shape[-1] % n == 0 else None
    if runs is None or (runs[..., 0] % n).any():
        return False
    return bool((runs == runs[..., :1] + np.arange(n)).all())


def _index(registers: tuple[int, ...], name: str) -> str:
    """C for the register number `name` of a list that counts evenly, in runs that lie evenly apart."""
    n = len(registers)
    for run in (n, *(d for d in range(n - 1, 0, -1) if n % d == 0)):
        near, far = (registers[1] if run > 1 else 0), (registers[run] if run < n else 0)
        if all(r == near * (i % run) + far * (i // run) for i, r in enumerate(registers)):
            apart = f"{near} * ({name} % {run}) + {far} * ({name} / {run})"
            return f"{near} * {name}" if run == n else apart
    raise InternalError(f"codegen: registers {registers} of a block")


LOWER: dict[OpKind, Lowering] = {tile.dot: _dot, mma.fma: _fma}
