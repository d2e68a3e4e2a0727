"""Registers to and from shared memory, and to and from global memory by pointers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from warploom.codegen.context import Address, Emitter, Lowering
from warploom.codegen.formula import Bools, Ints, displaced
from warploom.codegen.lower_shared import geometry
from warploom.codegen.lower_tma import cache_policy
from warploom.codegen.registers import (
    Array,
    Element,
    Regs,
    c_type,
    is_packed,
    itemsize,
    pack,
    per_word,
    pointed,
    read,
    unword,
    word,
    words_of,
)
from warploom.codegen.text import all_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import smem, tile
from warploom.ir.types import DType, Pointer, Scalar, Shared, Tile, elem_of
from warploom.layout import Layout
from warploom.layout.choose import (
    MatrixForm,
    TransposingForm,
    matrix_form,
    thread_offsets,
    transposing_form,
    vector_elements,
)
from warploom.layout.shared import UNIT_BYTES, Geometry

# ---- 32-bit words of a tile


def fill(e: Emitter, dst: Array, start: int, words: Sequence[str]) -> None:
    """Assigns the elements from `start` from 32-bit words."""
    elem = dst.elem
    item = itemsize(elem)
    if item == 8:
        for i in range(len(words) // 2):
            bits = f"((u64){words[2 * i + 1]} << 32 | {words[2 * i]})"
            if isinstance(elem, DType) and elem.is_float:
                bits = f"__longlong_as_double((i64){bits})"
            e.line(f"{dst.name}[{start + i}] = ({c_type(elem)}){bits};")
        return
    assert isinstance(elem, DType)
    n = 4 // item
    for i, w in enumerate(words):
        if is_packed(elem):
            e.line(f"{dst.name}[{start // n + i}] = {w};")
            continue
        for j in range(min(n, dst.count - start - i * n)):
            e.line(f"{dst.name}[{start + i * n + j}] = {unword(elem, w, j)};")


def loaded(e: Emitter, dst: Array, start: int, size: int, text: str) -> None:
    """dst's elements from `start` from the value of a load of `size` bytes (u32, Vec2 or Vec4)."""
    if size <= 4:
        item = itemsize(dst.elem)
        if is_packed(dst.elem) or (size == 4 and item == 4):
            fill(e, dst, start, [text])
        else:
            name = e.name("loaded")
            e.line(f"const u32 {name} = {text};")
            for j in range(size // item):
                assert isinstance(dst.elem, DType)
                e.line(f"{dst.name}[{start + j}] = {unword(dst.elem, name, j)};")
        return
    name = e.name("loaded")
    e.line(f"const Vec{size // 4} {name} = {text};")
    fill(e, dst, start, [f"{name}.w[{i}]" for i in range(size // 4)])


# ---- shared memory


class Places:
    """Addresses of accesses, one table (warps, lanes) each: from the first one's where they follow from it,
    else each by its formula.  `needed` likewise: where an address matters.  many: as of loads of operands,
    they share what swizzles flip."""

    many = False

    def __init__(self, e: Emitter, base: Address, first: Ints, needed: Bools, hint: str) -> None:
        self.e, self.base, self.first, self.needed, self.hint = e, base, first, needed, hint
        self.name = e.thread_value(first, hint, needed)

    def at(self, table: Ints, needed: Bools) -> str:
        try:
            if (needed & ~self.needed).any():
                raise InternalError("codegen: the first access has no address there")
            text = displaced(self.name, self.first[needed], table[needed], self.many)
        except InternalError:
            text = self.e.thread_value(table, self.hint, needed)
        return f"{self.base} + {text}" if text != "0" else str(self.base)


def store_tile(
    e: Emitter, at: Address, g: Geometry, t: Tile, r: Regs, hint: str, peer: bool = False
) -> None:
    """A tile into a slot: stmatrix where it fits, else the widest ordinary stores.  peer: in another CTA,
    which stmatrix does not reach (PTX ISA, "stmatrix": .shared::cta)."""
    layout = t.layout
    form = matrix_form(layout, g) if e.target.shared.stores_matrices and not peer else None
    if form is not None:
        for start, call in _matrix_calls(e, at, g, layout, form, hint, "stmatrix"):
            given = ", ".join(word(r, start + i * form.elements) for i in range(form.count))
            e.line(f"{call}, {given});")
        return
    n = vector_elements(layout, g)
    size = n * g.itemsize
    offsets, real = thread_offsets(layout, g), layout.inside
    places = Places(e, at, offsets[..., 0], real[..., 0], f"{hint}_at")
    for start in range(0, layout.registers, n):
        where = places.at(offsets[..., start], real[..., start])
        given = ", ".join(words_of(r, start, size))
        text = f"store_{'peer' if peer else 'shared'}{8 * size}({where}, {given});"
        e.line_if([e.inside(t, start)], text)


def load_tile(
    e: Emitter, at: Address, g: Geometry, t: Tile, dst: Array, hint: str, peer: bool = False
) -> None:
    """A slot into registers: ldmatrix where it fits, else the widest ordinary loads.  peer: as above."""
    layout = t.layout
    offsets, real = thread_offsets(layout, g), layout.inside
    form = None if peer else matrix_form(layout, g, loads=True)
    load = f"load_{'peer' if peer else 'shared'}"
    if form is not None and is_packed(dst.elem):
        for start, call in _matrix_calls(e, at, g, layout, form, hint, "ldmatrix"):
            first = start // form.elements
            targets = ", ".join(f"{dst.name}[{first + i}]" for i in range(form.count))
            e.line(f"{call}, {targets});")
        return
    transposing = None if peer else transposing_form(layout, g)
    if transposing is not None:
        _load_transposed(e, at, g, layout, transposing, dst, hint)
        return
    n = vector_elements(layout, g)
    item = g.itemsize
    while n > 1 and n * item > 16:
        n //= 2
    places = Places(e, at, offsets[..., 0], real[..., 0], f"{hint}_at")
    places.many = True
    per = per_word(dst.elem)
    if n < per:  # parts of a packed word
        for w in range(dst.words):
            values = []
            for i in range(w * per, min((w + 1) * per, dst.count)):
                text = f"{load}{8 * item}({places.at(offsets[..., i], real[..., i])})"
                values.append(e.guarded(t, i, text, "0u"))
            values += ["0u"] * (per - len(values))
            e.line(f"{dst.name}[{w}] = join{8 * item}({', '.join(values)});")
        return
    quads = _quads(offsets) if n == 1 and item == 4 and not peer and real.all() else None
    if quads is not None and isinstance(dst.elem, DType):
        for quad in quads:
            name = e.name("loaded")
            where = places.at(offsets[..., quad[0]], real[..., quad[0]])
            e.line(f"const Vec4 {name} = {load}128({where});")
            for i, register in enumerate(quad):
                e.line(f"{dst.name}[{register}] = {unword(dst.elem, f'{name}.w[{i}]', 0)};")
        return
    if form is not None and n == 1 and item == 4:
        for start, call in _matrix_calls(e, at, g, layout, form, hint, "ldmatrix"):
            names = [e.name("word") for _ in range(form.count)]
            e.line(f"u32 {', '.join(names)};")
            e.line(f"{call}, {', '.join(names)});")
            fill(e, dst, start, names)
        return
    for start in range(0, layout.registers, n):
        size = n * item
        text = f"{load}{8 * size}({places.at(offsets[..., start], real[..., start])})"
        inside = e.inside(t, start)
        if inside:
            empty = "0u" if size <= 4 else f"Vec{size // 4}{{}}"
            text = f"{inside} ? {text} : {empty}"
        loaded(e, dst, start, size, text)


def _quads(offsets: Ints) -> list[list[int]] | None:
    """Registers whose words (at byte offsets (warps, lanes, registers)) are 16 bytes of a slot, in the order
    of their addresses, though they don't follow each other; None where not all of them are in such fours."""
    at = {offsets[..., r].tobytes(): r for r in range(offsets.shape[-1])}
    out = []
    for r in range(offsets.shape[-1]):
        first = offsets[..., r]
        if not (first % UNIT_BYTES).any():
            four = [at.get((first + 4 * i).tobytes()) for i in range(4)]
            out.append([x for x in four if x is not None])
    return out if 4 * len(out) == len(at) and all(len(q) == 4 for q in out) else None


def _matrix_calls(
    e: Emitter, at: Address, g: Geometry, layout: Layout, form: MatrixForm, hint: str, name: str
) -> Iterator[tuple[int, str]]:
    """ldmatrix or stmatrix, lane l of which gives the address of one 16-byte row.

    (first register, the call up to its address) of each."""
    rows = [form.row(lane) for lane in range(32)]
    row_at = _row_places(e, at, thread_offsets(layout, g), rows, hint, name == "ldmatrix")
    name = f"{name}{form.count}{'_trans' if form.trans else ''}"
    for start in range(0, layout.registers, form.count * form.elements):
        yield start, f"{name}({row_at(start)}"


def _row_places(
    e: Emitter, at: Address, offsets: Ints, rows: Iterable[tuple[int, int]], hint: str, many: bool
) -> Callable[[int], str]:
    """By first register C for the address of the row that each lane gives.  rows: of each lane the register,
    counted from there, and the lane whose offset (warps, lanes, registers) that is.  many: as of Places."""

    def table(start: int) -> Ints:
        return np.array([[w[lane, start + reg] for reg, lane in rows] for w in offsets])

    everywhere = np.ones(offsets.shape[:2], np.bool_)
    places = Places(e, at, table(0), everywhere, f"{hint}_row")
    places.many = many
    return lambda start: places.at(table(start), everywhere)


def _load_transposed(
    e: Emitter,
    at: Address,
    g: Geometry,
    layout: Layout,
    form: TransposingForm,
    dst: Array,
    hint: str,
) -> None:
    """Bytes transposed on their way from a slot: ldmatrix.trans, then two words of each pair of registers."""
    units = thread_offsets(layout, g) // UNIT_BYTES * UNIT_BYTES
    row_at = _row_places(e, at, units, form.rows, hint, many=True)
    selectors = [
        e.thread_value(np.array([words] * layout.warps), f"{hint}_bytes")
        for words in form.selectors
    ]
    names = [e.name("transposed") for _ in range(form.count)]
    e.line(f"u32 {', '.join(names)};")
    for start in range(0, layout.registers, 4 * form.count):
        e.line(f"ldmatrix{form.count}_trans({row_at(start)}, {', '.join(names)});")
        for i in range(form.count):
            low = i // 2 * 2
            text = f"__byte_perm({names[low]}, {names[low + 1]}, {selectors[i % 2]})"
            loaded(e, dst, start + 4 * i, 4, text)


def _shared_store(e: Emitter, o: Op) -> None:
    s, value = o.operands
    assert isinstance(s.type, Shared) and isinstance(value.type, Tile)
    hint, peer = s.hint or "slot", s.type.peer
    store_tile(e, e.shared(s), geometry(s.type), value.type, e.regs(value), hint, peer)


def _shared_load(e: Emitter, o: Op) -> None:
    (s,) = o.operands
    t = o.result.typed(Tile)
    assert isinstance(s.type, Shared)
    hint, peer = s.hint or "slot", s.type.peer
    load_tile(e, e.shared(s), geometry(s.type), t, e.array(o.result), hint, peer)


# ---- pointers


def _read_global(o: Op, bits: int, pointer: str, mask: str, other: str) -> str:
    """C for raw bits of global memory: of `other` where the mask ("" of none) is off."""
    policy, is_volatile = cache_policy(o), o.attrs.get("volatile")
    how = "_volatile" if is_volatile else "_hinted" * bool(policy)
    if not mask:
        return f"load_global{bits}{how}({pointer}{policy})"
    if is_volatile:
        return f"({mask} ? load_global{bits}{how}({pointer}{policy}) : {other})"
    return f"load_global{bits}_if{how}({mask}, {pointer}, {other}{policy})"


def _read_number(e: Emitter, o: Op, elem: DType, pointer: str, mask: str, other: str) -> str:
    """C for one element; `other` is in the type computed with, "" of zeros."""
    raw = _read_global(o, 8 * elem.bytes, pointer, mask, nothing(elem.bytes))
    text = from_memory(elem, raw)
    if not mask or not other:
        return text
    name = e.name("loaded")  # else the load would stand in a branch
    e.line(f"const {c_type(elem)} {name} = {text};")
    return f"{mask} ? {name} : {other}"


def _load(e: Emitter, o: Op) -> None:
    p, *rest = o.operands
    t, elem = o.result.type, elem_of(o.result.type)
    if isinstance(elem, Pointer):
        raise InternalError("codegen: a load of pointers")
    item = elem.bytes
    if isinstance(t, Scalar):
        mask, other = (*(e.scalar(v) for v in rest), "", "")[:2]
        e.define(o.result, _read_number(e, o, elem, e.scalar(p), mask, other))
        return
    assert isinstance(t, Tile)
    dst, pointers = e.array(o.result), e.regs(p)
    masks, others = (*map(e.regs, rest), None, None)[:2]
    n = together(o, t)
    if n > 1 and n >= per_word(elem):
        for start in range(0, dst.count, n):
            size = item * n
            given = ", ".join(words_of(others, start, size)) if others else ""
            raw = _read_global(o, 8 * size, *pointed(pointers, masks, start), nothing(size, given))
            loaded(e, dst, start, size, raw)
        return
    n = per_word(elem)
    values = []
    for i in range(dst.count):
        pointer, mask = pointed(pointers, masks, i)
        test = all_of((e.inside(t, i), mask))
        if n > 1 or (others and item >= 4):
            given = ", ".join(words_of(others, i, item)) if others else ""
            raw = _read_global(o, 8 * item, pointer, test, nothing(item, given))
            values.append(raw if n > 1 else from_memory(elem, raw))
        else:
            other = read(others.elements[i], elem) if others else ""
            values.append(f"({_read_number(e, o, elem, pointer, test, other)})")
    for w in range(dst.words):
        if n > 1:  # bits as they are: what unpacks them undoes it
            parts = [*values[w * n : (w + 1) * n], *["0u"] * n][:n]
            e.line(f"{dst.name}[{w}] = join{8 * item}({', '.join(parts)});")
        else:
            e.line(f"{dst.name}[{w}] = {pack(elem, values[w : w + 1])};")


def nothing(size: int, words: str = "") -> str:
    """C for `size` bytes of raw bits: the words given, or zeros."""
    return words or "0u" if size <= 4 else f"Vec{size // 4}{{{words}}}"


def together(o: Op, t: Tile) -> int:
    """How many elements, in consecutive registers, a load or store by pointers moves at once."""
    run = o.attrs.get("run", ())
    layout = t.layout
    assert isinstance(layout, Layout)
    if not run or t.shape[run[0]] % run[1] or layout.overhangs:
        return 1
    return math.gcd(run[1], layout.contiguous(run[0]))


def from_memory(elem: DType, bits: str) -> str:
    """The value (in the type computed with) of raw bits as load_global<bits> gives them."""
    if elem.bits == 64:
        return f"{'double_of' if elem.is_float else f'({c_type(elem)})long_of'}({bits})"
    if is_packed(elem):
        return f"{elem}_lo({bits})" if elem.bits == 16 else f"{elem}_at<0>({bits})"
    return unword(elem, bits, 0)


def _store(e: Emitter, o: Op) -> None:
    p, value, *rest = o.operands
    elem = elem_of(value.type)
    assert isinstance(elem, DType)
    item = elem.bytes
    policy = cache_policy(o)
    how = "_hinted" * bool(policy)
    if isinstance(value.type, Scalar):
        tests = [] if e.elected else [e.use("leader")]
        tests += [e.scalar(v) for v in rest]
        r = Regs(elem, (Element(None, 0, e.scalar(value)),))
        given = ", ".join(words_of(r, 0, item))
        text = f"store_global{8 * item}{how}({e.scalar(p)}, {given}{policy});"
        e.line_if(tests, text)
        return
    t = value.typed(Tile)
    r, pointers = e.regs(value), e.regs(p)
    masks = e.regs(rest[0]) if rest else None
    holder = e.holder(t.layout)
    n = together(o, t)
    for i in range(0, len(r.elements), n):
        pointer, mask = pointed(pointers, masks, i)
        given = ", ".join(words_of(r, i, item * n))
        text = f"store_global{8 * item * n}{how}({pointer}, {given}{policy});"
        e.line_if([holder, e.inside(t, i), mask], text)


LOWER: dict[OpKind, Lowering] = {
    smem.shared_store: _shared_store,
    smem.shared_load: _shared_load,
    tile.load: _load,
    tile.store: _store,
}
