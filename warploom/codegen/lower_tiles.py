"""Tiles: shape ops (other names of registers), arange, reductions, layout conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from warploom.codegen.context import Address, Emitter, Lowering
from warploom.codegen.formula import Ints, displaced
from warploom.codegen.lower_arith import expression, literal
from warploom.codegen.lower_casts import paren
from warploom.codegen.lower_memory import load_tile, store_tile
from warploom.codegen.registers import Element, Regs, c_type, pack, per_word, read
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import tile
from warploom.ir.ops.tile import concat_offsets
from warploom.ir.types import DType, Pointer, Scalar, Tile
from warploom.layout import Layout
from warploom.layout.choose import Conversion, Shuffle, conversion, flipped, scratch_geometry
from warploom.layout.linear import inside_of, row_major
from warploom.layout.reductions import reduce_row

# ---- other names of registers


def _source_coords(o: Op, at: list[Ints]) -> list[Ints]:
    """For a shape op: the operand's coordinates of the result's elements at `at`."""
    (x,) = o.operands
    shape = x.type.shape  # type: ignore[attr-defined]
    match o.kind:
        case tile.slice_tile:
            return [c + n for c, n in zip(at, o.attrs["offset"], strict=True)]
        case tile.expand_dims:
            return [c for a, c in enumerate(at) if a != o.attrs["axis"]]
        case tile.broadcast:
            return [c * (n != 1) for c, n in zip(at, shape, strict=True)]
        case tile.transpose:
            perm = o.attrs["perm"]
            return [at[perm.index(a)] for a in range(len(perm))]
        case tile.reshape:
            flat = row_major(at, o.attrs["shape"])
            out = []
            for n in reversed(shape):
                out.append(flat % n)
                flat = flat // n
            return out[::-1]
        case _:
            return at


def _view(e: Emitter, o: Op) -> None:
    (x,) = o.operands
    t, source = o.result.typed(Tile), x.typed(Tile)
    at = _source_coords(o, list(t.layout.table))
    registers = source.layout.registers_at(at, t.layout.inside)
    if registers is None:
        raise InternalError(f"codegen: {o.kind.name} from {source} to {t} needs a conversion first")
    e.env[o.result] = e.regs(x).pick(registers)


def _concat(e: Emitter, o: Op) -> None:
    t = o.result.typed(Tile)
    elements: dict[int, Element] = {}
    for v, offset in zip(o.operands, concat_offsets(o), strict=True):
        part = t.layout.slice(offset, v.type.shape)  # type: ignore[attr-defined]
        if part is None or part[0] != v.type.layout:  # type: ignore[attr-defined]
            raise InternalError(f"codegen: concat of {v.type} into {t} needs a conversion first")
        elements.update(zip(part[1], e.regs(v).elements, strict=True))
    whole = tuple(elements[r] for r in range(t.layout.registers))
    e.copy(e.array(o.result), Regs(e.regs(o.operands[0]).elem, whole))


def _arange(e: Emitter, o: Op) -> None:
    t = o.result.typed(Tile)
    dst = e.array(o.result)
    start = o.attrs["start"]
    for r in range(dst.count):
        text = e.coordinate(t.layout, 0, r)
        e.line(f"{dst.name}[{r}] = {f'{text} + {start}' if start else text};")


# ---- reductions


def _reduce(e: Emitter, o: Op) -> None:
    """In the thread, then across lanes by shuffles, then across warps through scratch."""
    (x,) = o.operands
    t = x.typed(Tile)
    axis, elem, layout = o.attrs["axis"], t.dtype, t.layout
    kind = tile.COMBINES[o.attrs["fn"]]

    def combine(a: str, b: str) -> str:
        return expression(kind, elem, paren(a), paren(b))

    result = layout.drop(axis)
    together = groups(layout, axis, result)
    source = e.regs(x)
    kind_c = c_type(elem)
    part = e.name(o.result.hint or "part", "part")
    e.line(f"{kind_c} {part}[{result.registers}];")
    for i, members in enumerate(together):
        values = []
        for r in members:
            value = read(source.elements[r], elem)
            values.append(e.guarded(t, r, value, literal(tile.neutral(o.attrs["fn"], elem), elem)))
        e.line(f"{part}[{i}] = {_tree(values, combine)};")

    def each(text: str) -> None:
        if result.registers > 1:
            e.unrolled("i", result.registers, text.replace("@", f"{part}[i]"))
        else:
            e.line(text.replace("@", f"{part}[0]"))

    for bit, v in enumerate(layout.lane):
        if v[axis]:
            if any(n for a, n in enumerate(v) if a != axis):
                raise InternalError(
                    f"codegen: lanes of {layout} mix axes in a reduction along {axis}"
                )
            each(f"@ = {combine('@', f'__shfl_xor_sync(~0u, @, {1 << bit})')};")
    if any(v[axis] for v in layout.warp):
        _across_warps(e, o, result, part, combine)
    if isinstance(o.result.type, Scalar):
        text = f"{part}[0]"
        e.define(o.result, f"round_{elem}({text})" if per_word(elem) > 1 else text)
        return
    target = o.result.typed(Tile)
    order = result.permutation(target.layout)
    if order is None:
        raise InternalError(f"codegen: a reduction gives {result}, not {target.layout}")
    e.put(o.result, [f"{part}[{r}]" for r in order])


def _tree(values: list[str], combine: Callable[[str, str], str]) -> str:
    """All values as one, neighbours first."""
    while len(values) > 1:
        pairs = [values[j : j + 2] for j in range(0, len(values), 2)]
        values = [combine(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return values[0]


def groups(layout: Layout, axis: int, result: Layout) -> list[list[int]]:
    """For each register of the result the registers that are combined into it."""
    at = [c for a, c in enumerate(layout.table) if a != axis]
    if not at:
        return [list(range(layout.registers))]
    to = result.registers_at(at, inside_of(at, result.shape))
    if to is None:
        raise InternalError(f"codegen: {layout} has no reduction along axis {axis} in registers")
    return [[r for r, i in enumerate(to) if i == j] for j in range(result.registers)]


def _across_warps(
    e: Emitter, o: Op, result: Layout, part: str, combine: Callable[[str, str], str]
) -> None:
    t, axis = o.operands[0].typed(Tile), o.attrs["axis"]
    layout, elem, size = t.layout, t.dtype, t.dtype.bytes
    bits = [b for b, v in enumerate(layout.warp) if v[axis]]
    row, parts = reduce_row(layout, axis, size), 1 << len(bits)
    flat, index = crossing(layout, result, bits)
    write = index[:, None, None] * row + flat
    lanes, way = o.attrs.get("by_threads", 0), e.way
    scratch = e.exchange((parts + (lanes > 0)) * row * size)
    temp = Tile(result.shape, elem, result)
    for i in range(result.registers):
        where = at_register(e, write, i, size, "partial_at")
        text = store_text(elem, f"{scratch} + {where}", f"{part}[{i}]")
        e.line_if([e.inside(temp, i) if result.shape else ""], text)
    e.exchanged()
    if lanes:
        assert way is not None
        _by_threads(e, temp, lanes, (parts, row), scratch, combine)
        e.meet(way)
        scratch, parts = scratch.plus(offset=parts * row * size), 1
    for i in range(result.registers):
        where = at_register(e, flat, i, size, "total_at")
        if o.attrs.get("by_lanes"):  # a lane takes one part, or several lanes the same
            lane = f"({e.use('lane')} & {parts - 1}) * {size}"
            e.line(f"{part}[{i}] = {load_text(elem, f'{scratch} + {where} + {lane}')};")
            for bit in range(len(bits)):
                other = f"__shfl_xor_sync(~0u, {part}[{i}], {1 << bit})"
                e.line(f"{part}[{i}] = {combine(f'{part}[{i}]', other)};")
            continue
        if not result.shape and elem.name == "f32" and parts % 4 == 0:
            values = _adjacent(e, f"{scratch} + {where}", parts)
        else:
            places = (f"{scratch} + {where} + {p * row * size}" for p in range(parts))
            values = [load_text(elem, place) for place in places]
        total = _tree(values, combine)
        e.line_if([e.inside(temp, i) if result.shape else ""], f"{part}[{i}] = {total};")


def _by_threads(
    e: Emitter,
    sums: Tile,
    lanes: int,
    partials: tuple[int, int],
    scratch: Address,
    combine: Callable[[str, str], str],
) -> None:
    """Adjacent lanes combine what all warps have of an element, and write it after all parts.  sums: in
    the layout in which all read it; partials: rows, and elements from one to the next."""
    (parts, row), elem, size = partials, sums.dtype, sums.dtype.bytes
    thread = np.arange(32 * sums.layout.warps).reshape(-1, 32)
    mine = thread // lanes % sums.size
    first = e.thread_value((thread % lanes * row + mine) * size, "parts_at")
    to = e.thread_value(mine * size, "total_at")
    for i in range(0, sums.size, thread.size // lanes):
        at = f"{scratch} + {first} + {i * size}"
        values = [load_text(elem, f"{at} + {p * row * size}") for p in range(0, parts, lanes)]
        total = e.name("total")
        e.line(f"{c_type(elem)} {total} = {_tree(values, combine)};")
        for bit in range(lanes.bit_length() - 1):
            e.line(f"{total} = {combine(total, f'__shfl_xor_sync(~0u, {total}, {1 << bit})')};")
        owner = f"{e.use('lane')} % {lanes} == 0" if lanes > 1 else ""
        place = f"{scratch} + {to} + {(i + parts * row) * size}"
        e.line_if([owner], store_text(elem, place, total))


def crossing(layout: Layout, result: Layout, bits: Sequence[int]) -> tuple[Ints, Ints]:
    """What is kept of a tile, numbered row by row, for each (warp, lane, register); and each warp's number
    among those that hold parts of one row, in these bits of its own."""
    flat = result.flat if result.shape else np.int64(0)
    warps = np.arange(layout.warps)
    rank = sum((((warps >> b) & 1) << i for i, b in enumerate(bits)), np.zeros_like(warps))
    return np.broadcast_to(flat, (layout.warps, 32, result.registers)), rank


def _adjacent(e: Emitter, address: str, count: int) -> list[str]:
    """`count` adjacent f32 in shared memory, four by a load."""
    values = []
    for i in range(0, count, 4):
        name = e.name("partials")
        e.line(f"const Vec4 {name} = load_shared128({address} + {4 * i});")
        values += [f"float_of({name}.w[{j}])" for j in range(4)]
    return values


def at_register(e: Emitter, index: Ints, register: int, size: int, hint: str) -> str:
    try:
        first = index[..., 0] * size
        other = (index[..., register] * size).reshape(-1)
        return displaced(e.thread_value(first, hint), first.reshape(-1), other)
    except InternalError:
        return e.thread_value(index[..., register] * size, hint)


def store_text(elem: DType, address: str, value: str) -> str:
    if elem.bits == 64:
        bits = f"__double_as_longlong({value})" if elem.is_float else f"(i64){value}"
        return f"store_shared64({address}, (u32){bits}, (u32)({bits} >> 32));"
    if per_word(elem) > 1:
        value = f"{pack(elem, [value])}"
    elif elem.is_float:
        value = f"float_bits({value})"
    return (
        f"store_shared{elem.bits}({address}, {value if per_word(elem) > 1 else '(u32)' + value});"
    )


def load_text(elem: DType, address: str) -> str:
    if elem.bits == 64:
        return f"{'load_double' if elem.is_float else 'load_long'}({address})"
    word = f"load_shared{elem.bits}({address})"
    if per_word(elem) > 1:
        return f"{elem}_lo({word})" if elem.bits == 16 else f"{elem}_at<0>({word})"
    return f"float_of({word})" if elem.is_float else f"({c_type(elem)}){word}"


# ---- gathers


def _gather(e: Emitter, o: Op) -> None:
    """Through scratch, where the whole tile lies row by row; vectors of lanes spread over the banks.  By
    shuffles where the elements come from the same warp."""
    x, index = o.operands
    t, by, axis = x.typed(Tile), index.typed(Tile), o.attrs["axis"]
    if (flips := o.attrs.get("flips")) and _moved(e, o, flipped(t.layout, axis, flips)):
        return
    elem, size, source, at = t.dtype, t.dtype.bytes, e.regs(x), e.regs(index)
    scratch = e.exchange(t.size * size)
    places = t.layout.flat
    spread = size == 4 and t.size % 32 == 0 and len(t.shape) == 1 and t.layout.contiguous(0) > 1
    if spread:
        places = places ^ (places >> 5 & 3)  # as the prelude's `spread`
    for r in range(t.layout.registers):
        where = f"{scratch} + {at_register(e, places, r, size, 'put_at')}"
        e.line_if([e.inside(t, r)], store_text(elem, where, read(source.elements[r], elem)))
    e.exchanged()
    beside = [c * (a != axis) for a, c in enumerate(by.layout.table)]
    lines, step = row_major(beside, t.shape), math.prod(t.shape[axis + 1 :]) * size
    part = e.name(o.result.hint or "gathered", "gathered")
    e.line(f"{c_type(elem)} {part}[{by.layout.registers}];")
    for r in range(by.layout.registers):
        line, inside = at_register(e, lines, r, size, "line_at"), e.inside(by, r)
        number = f"(u32){paren(read(at.elements[r], by.dtype))}"
        where = f"{scratch} + {line} + {f'spread({number})' if spread else number} * {step}"
        e.line_if([inside], f"{part}[{r}] = {load_text(elem, where)};")
    e.put(o.result, [f"{part}[{r}]" for r in range(by.layout.registers)])


# ---- conversions


def _convert(e: Emitter, o: Op) -> None:
    (x,) = o.operands
    source, t = x.typed(Tile), o.result.typed(Tile)
    if not _moved(e, o, conversion(source.layout, t.layout)):
        size = 8 if isinstance(t.elem, Pointer) else t.elem.bytes
        g = scratch_geometry(source.layout, t.layout, size)
        scratch = e.exchange(g.bytes)
        store_tile(e, scratch, g, source, e.regs(x), "scratch")
        e.exchanged()
        load_tile(e, scratch, g, t, e.array(o.result), "scratch")


def _moved(e: Emitter, o: Op, how: Conversion) -> bool:
    """The first operand's elements inside a thread or a warp; False where they come from elsewhere."""
    source = e.regs(o.operands[0])
    if how.kind == "free":
        e.env[o.result] = source.pick(how.permutation)
    elif how.shuffle is not None:
        _shuffled(e, o.result, source, how.shuffle)
    return how.kind != "shared"


def _shuffled(e: Emitter, result: Value, r: Regs, how: Shuffle) -> None:
    table = np.zeros((1, 32), np.int64)
    for b, m in enumerate(how.matrix):
        table ^= ((np.arange(32) >> b) & 1) * m
    name = e.thread_value(table, "from_lane")
    dst = e.array(result)
    elem = dst.elem
    n = per_word(elem)

    def lane(i: int) -> str:
        return f"{name} ^ {how.lanes[i]}" if how.lanes[i] else name

    def one(i: int) -> str:
        value = read(r.elements[how.registers[i]], elem)
        if isinstance(elem, Pointer):
            return f"({c_type(elem)})__shfl_sync(~0u, (u64){value}, {lane(i)})"
        if elem.bits < 32 and n == 1:
            return f"({c_type(elem)})__shfl_sync(~0u, (int){value}, {lane(i)})"
        if elem.name == "f32":
            return f"float_of(__shfl_sync(~0u, float_bits({value}), {lane(i)}))"
        return f"__shfl_sync(~0u, {value}, {lane(i)})"

    for w in range(dst.words):
        part = list(range(w * n, min((w + 1) * n, dst.count)))
        elements = [r.elements[how.registers[i]] for i in part]
        first = elements[0]
        together = (
            n > 1
            and first.array is not None
            and first.index % n == 0
            and len({how.lanes[i] for i in part}) == 1
            and all(
                x.array == first.array and x.index == first.index + j
                for j, x in enumerate(elements)
            )
        )
        if together:
            assert first.array is not None
            value = f"__shfl_sync(~0u, {first.array.name}[{first.index // n}], {lane(part[0])})"
        else:
            value = pack(elem, [one(i) for i in part])
        e.line(f"{dst.name}[{w}] = {value};")


LOWER: dict[OpKind, Lowering] = {
    tile.slice_tile: _view,
    tile.expand_dims: _view,
    tile.broadcast: _view,
    tile.transpose: _view,
    tile.reshape: _view,
    tile.concat: _concat,
    tile.arange: _arange,
    tile.reduce: _reduce,
    tile.gather: _gather,
    tile.convert_layout: _convert,
}
