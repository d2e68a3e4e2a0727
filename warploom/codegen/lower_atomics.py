"""Atomics of global and of shared memory, and stores of single elements of a slot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np

from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.lower_arith import literal
from warploom.codegen.lower_memory import Places, together
from warploom.codegen.lower_shared import geometry
from warploom.codegen.lower_tiles import at_register, load_text, store_text
from warploom.codegen.registers import c_type, itemsize, pointed, read, words_of
from warploom.codegen.text import all_of
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import smem, tile
from warploom.ir.types import DType, Scalar, Shared, Tile, dtype_of, elem_of
from warploom.layout.choose import thread_offsets
from warploom.layout.shared import linear_offset

# Functions of CUDA on 32- and 64-bit integers.
ATOMICS = {"add": "atomicAdd", "max": "atomicMax", "min": "atomicMin", "and": "atomicAnd",
           "or": "atomicOr", "xor": "atomicXor", "xchg": "atomicExch"}  # fmt: skip


def _acquires(o: Op) -> bool:
    """Does it read by an instruction that acquires?  A thread that waits for others then has no fence to wait
    for each time it looks."""
    read = o.kind is tile.atomic and o.attrs["fn"] == "load" and o.attrs.get("sem") == "acquire"
    return read and dtype_of(o.result.type).bits in (32, 64)


def _is_of_system(o: Op) -> bool:
    return o.attrs.get("scope") == "sys"


def _atomic_text(o: Op, pointer: str, value: str, compared: str = "") -> str:
    """compared: what cas compares memory with.  Which there are: passes/warp/order_atomics.py."""
    elem, fn, suffix = dtype_of(o.result.type), o.attrs["fn"], "_system" * _is_of_system(o)
    if fn == "load" and elem.bits in (32, 64):
        how = "acquire" if _acquires(o) else "relaxed"
        bits = f"load_{how}{elem.bits}{suffix}({pointer})"
        if elem.is_float:
            return f"float_of({bits})" if elem.bits == 32 else f"__longlong_as_double((i64){bits})"
        return f"({c_type(elem)}){bits}"
    if fn == "load":
        return f"*({c_type(elem)} const volatile*){pointer}"
    if fn == "cas":
        bits = f"u{elem.bits}"
        name = "atomic_cas_u16" if elem.bits == 16 else f"atomicCAS{suffix}"
        return f"({c_type(elem)}){name}(({bits}*){pointer}, ({bits}){compared}, ({bits}){value})"
    if elem.name == "i64" and fn in ("add", "xchg", "and", "or", "xor"):
        return f"(i64){ATOMICS[fn]}{suffix}((u64*){pointer}, (u64){value})"
    if elem.name == "f64" and fn == "xchg":
        bits = f"(u64)__double_as_longlong({value})"
        return f"__longlong_as_double((i64)atomicExch{suffix}((u64*){pointer}, {bits}))"
    if elem.is_float and fn in ("max", "min"):
        how = f"{c_type(elem)}, u{elem.bits}, {'true' if fn == 'max' else 'false'}"
        return f"atomic_extremum<{how}{', true' * _is_of_system(o)}>({pointer}, {value})"
    if elem.bits == 16:
        assert fn == "add", fn
        return f"atomic_add_{elem}({pointer}, {value})"
    return f"{ATOMICS[fn]}{suffix}({pointer}, {value})"


def _atomic(e: Emitter, o: Op) -> None:
    p, value, *rest = o.operands
    fn = o.attrs["fn"]
    t = o.result.type
    elem = dtype_of(t)
    used = o.result in e.used
    if isinstance(t, Scalar):
        _scalar_atomic(e, o, elem, used)
        return
    assert isinstance(t, Tile)
    holder = e.holder(t.layout)
    r, pointers = e.regs(value), e.regs(p)
    masks = e.regs(rest[0]) if rest and fn != "cas" else None
    _order(e, o, "release")
    n = 1 if used or _is_of_system(o) else together(o, t)
    if n > 1:
        for i in range(0, len(r.elements), n):
            pointer, mask = pointed(pointers, masks, i)
            test = all_of([holder, mask]) or "true"
            part = r.elements[i : i + n]
            given = words_of(r, i, 2 * n) if elem.bits == 16 else [read(x, elem) for x in part]
            e.line(f"red_add_{elem}x{n}({test}, {pointer}, {', '.join(given)});")
        return
    _each_atomically(e, o, partial(pointed, pointers, masks))
    _order(e, o, "acquire")


def _each_atomically(e: Emitter, o: Op, place: Callable[[int], tuple[str, str]]) -> None:
    """An atomic on each element of a tile.  place: the pointer of a register's, and its test."""
    _, value, *rest = o.operands
    fn, t, used = o.attrs["fn"], o.result.typed(Tile), o.result in e.used
    elem, holder = dtype_of(t), e.holder(t.layout)
    r, compared = e.regs(value), e.regs(rest[0]) if fn == "cas" else None
    results = []
    for i in range(len(r.elements)):
        pointer, mask = place(i)
        tests = [holder, e.inside(t, i), mask]
        old = read(compared.elements[i], elem) if compared else ""
        text = _atomic_text(o, pointer, read(r.elements[i], elem), old)
        if used:
            name = e.name("old")
            e.line(f"{c_type(elem)} {name} = {literal(0, elem)};")
            text = f"{name} = {text}"
            results.append(name)
        e.line_if(tests, f"{text};")
    if used:
        e.put(o.result, results)


def _order(e: Emitter, o: Op, side: str) -> None:
    """The fence that an atomic has before it ('release') or after it ('acquire'), if it orders there."""
    if o.attrs.get("sem", "relaxed") in (side, "acq_rel") and not _acquires(o):
        e.line("fence_system();" if _is_of_system(o) else "fence_gpu();")


def _scalar_atomic(e: Emitter, o: Op, elem: DType, used: bool) -> None:
    """One thread's; all lanes of its warp get the result."""
    p, value, *rest = o.operands
    compared = e.scalar(rest.pop()) if o.attrs["fn"] == "cas" else ""
    text = _atomic_text(o, e.scalar(p), e.scalar(value), compared)
    tests = [] if e.elected else [e.use("leader")]
    tests += [e.scalar(v) for v in rest]
    name = e.name(o.result.hint, "old") if used else ""
    if used:
        e.line(f"{c_type(elem)} {name} = {literal(0, elem)};")
    with e.block(f"if ({' && '.join(tests)})") if tests else nullcontext():
        _order(e, o, "release")
        e.line(f"{name} = {text};" if used else f"{text};")
        _order(e, o, "acquire")
    if used:
        e.define(o.result, name if e.elected else f"__shfl_sync(~0u, {name}, 0)")


def _element_places(e: Emitter, o: Op) -> Callable[[int], tuple[str, str]]:
    """By register the address in shared memory of the element it goes to, and the test that it is inside."""
    s, value, *rest = o.operands
    kind, t = s.typed(Shared), value.typed(Tile)
    at, g, hint = e.shared(s), geometry(kind), s.hint or "slot"
    axis, real = o.attrs.get("axis"), t.layout.inside
    if axis is None:
        offsets = thread_offsets(t.layout, g)
        places = Places(e, at, offsets[..., 0], real[..., 0], f"{hint}_at")
        return lambda i: (places.at(offsets[..., i], real[..., i]), "")
    indices, size = e.regs(rest[0]), kind.shape[axis]
    coords = [np.zeros_like(c) if a == axis else c for a, c in enumerate(t.layout.table)]
    offsets = linear_offset(g, coords)

    def place(i: int) -> tuple[str, str]:
        index = f"(u32)({read(indices.elements[i], indices.elem)})"
        along = f"{index} * {g.row_strides[axis] * g.row_bytes}u"
        if axis == g.inner:
            n, item = g.row_elements, g.itemsize
            along = f"{index} * {item}u"
            if n < g.shape[axis]:
                along = f"{index} / {n}u * {g.panel_bytes}u + {index} % {n}u * {item}u"
        where = f"{e.thread_value(offsets[..., i], f'{hint}_at', real[..., i])} + {along}"
        if g.swizzle:
            name = e.name(f"{hint}_at")
            e.line(f"const u32 {name} = {where};")
            where = f"({name} ^ ({name} >> {g.shift} & {g.unit_mask}u) << 4)"
        return f"{at} + {where}", f"{index} < {size}u"

    return place


def _shared_atomic(e: Emitter, o: Op) -> None:
    elem, places = c_type(elem_of(o.result.type)), _element_places(e, o)

    def place(i: int) -> tuple[str, str]:
        address, test = places(i)
        return f"shared_pointer<{elem}>({address})", test

    _order(e, o, "release")
    _each_atomically(e, o, place)
    _order(e, o, "acquire")


def _shared_scatter(e: Emitter, o: Op) -> None:
    value = o.operands[1]
    t, r, place = value.typed(Tile), e.regs(value), _element_places(e, o)
    size = itemsize(elem_of(t))
    for i in range(len(r.elements)):
        address, test = place(i)
        text = f"store_shared{8 * size}({address}, {', '.join(words_of(r, i, size))});"
        e.line_if([e.holder(t.layout), e.inside(t, i), test], text)


def _agree(e: Emitter, o: Op) -> None:
    """Through scratch, where threads hold the same elements."""
    (x,) = o.operands
    t, r = x.typed(Tile), e.regs(x)
    if not any(t.layout.copies):
        e.env[o.result] = r
        return
    elem, size = t.dtype, t.dtype.bytes
    scratch = e.exchange(t.size * size)
    places = t.layout.flat
    at = [
        f"{scratch} + {at_register(e, places, i, size, 'old_at')}" for i in range(len(r.elements))
    ]
    for i, place in enumerate(at):
        text = store_text(elem, place, read(r.elements[i], elem))
        e.line_if([e.holder(t.layout), e.inside(t, i)], text)
    e.exchanged()
    zero = literal(0, elem)
    e.put(o.result, [e.guarded(t, i, load_text(elem, place), zero) for i, place in enumerate(at)])


LOWER: dict[OpKind, Lowering] = {
    smem.shared_atomic: _shared_atomic,
    smem.shared_scatter: _shared_scatter,
    tile.atomic: _atomic,
    tile.agree: _agree,
}
