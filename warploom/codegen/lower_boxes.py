"""Boxes of views: from and to global memory by ordinary accesses, and by cp.async.

Copies, which need no tile, are a loop: unrolled, their rows' addresses would be kept across the loop around
it.  Rows that begin inside units of 16 bytes: lower_unaligned.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warploom.codegen.boxes import Place, Rows, box_of
from warploom.codegen.context import Emitter, Lowering, ViewRef
from warploom.codegen.formula import Bools, Ints
from warploom.codegen.lower_memory import Places, loaded, nothing
from warploom.codegen.lower_shared import geometry, plain
from warploom.codegen.lower_tma import cache_policy
from warploom.codegen.registers import affine, per_word, read, words_of
from warploom.codegen.text import all_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import smem, tile
from warploom.ir.types import Shared, Tile
from warploom.layout import Layout, blocked
from warploom.layout.choose import thread_offsets

# ---- loads and stores


def _load_box(e: Emitter, o: Op) -> None:
    v, *offsets = o.operands
    t = o.result.typed(Tile)
    box = box_of(e, v, offsets, t.shape)
    n = box.vector(t.layout)
    item = box.elem.bytes
    dst = e.array(o.result)
    per = per_word(dst.elem)
    rows = Rows(box, t)
    policy = cache_policy(o)

    bits = 8 * item * n
    how = "_hinted" * bool(policy)

    def value(start: int) -> str:
        if rows.is_outside(start):
            return nothing(item * n)
        pointer, test, valid = rows.access(start, n)
        if not valid:
            if not test:
                return f"load_global{bits}{how}({pointer}{policy})"
            return f"load_global{bits}_if{how}({test}, {pointer}, {nothing(item * n)}{policy})"
        count = f"{test} ? {valid} : 0" if test else valid
        if not policy:
            return f"load_part{bits}<{item}>({pointer}, {count})"
        name = e.name("count")  # what is at the edge goes without the hint
        e.line(f"const int {name} = {count};")
        whole = f"load_global{bits}{how}({pointer}{policy})"
        return f"({name} == {n} ? {whole} : load_part{bits}<{item}>({pointer}, {name}))"

    if n >= per:
        for start in range(0, t.layout.registers, n):
            loaded(e, dst, start, n * item, value(start))
        return
    for w in range(dst.words):  # packed words of several loads
        starts = range(w * per, (w + 1) * per, n)
        values = [value(r) if r < t.layout.registers else "0u" for r in starts]
        e.line(f"{dst.name}[{w}] = join{8 * item * n}({', '.join(values)});")


def _store_box(e: Emitter, o: Op) -> None:
    """Where rows may end inside what a thread stores at once, a box that lies whole in the array, which all
    threads know, asks nothing more."""
    v, value, *offsets = o.operands
    t = value.typed(Tile)
    box = box_of(e, v, offsets, t.shape)
    n = box.vector(t.layout)
    item = box.elem.bytes
    r = e.regs(value)
    holder = e.holder(t.layout)
    rows = Rows(box, t)
    policy, bits = cache_policy(o), 8 * n * item
    starts = [s for s in range(0, t.layout.registers, n) if not rows.is_outside(s)]
    given = {s: ", ".join(words_of(r, s, n * item)) for s in starts}

    def stored(start: int, pointer: str) -> str:
        return f"store_global{bits}{'_hinted' * bool(policy)}({pointer}, {given[start]}{policy});"

    def masked() -> None:
        for start in starts:
            pointer, test, valid = rows.access(start, n)
            whole = stored(start, pointer)
            part = f"store_part{bits}<{item}>({pointer}, {valid}, {given[start]});"
            if not valid:
                text = whole
            elif policy:  # what is at the edge goes without the hint
                text = f"{{ if ({valid} == {n}) {whole} else {part} }}"
            else:
                text = part
            e.line_if((holder, test), text)

    is_whole = rows.inside() if len(starts) > 1 and box.inner_of_vectors(n) is not None else None
    if not is_whole:
        masked()
        return
    pointers = [rows.pointer(rows.place(s)) for s in starts]
    with e.block(f"if ({is_whole})"):
        for start, pointer in zip(starts, pointers, strict=True):
            e.line_if((holder,), stored(start, pointer))
    with e.block("else"):
        masked()


def _make_view(e: Emitter, o: Op) -> None:
    e.env[o.result] = ViewRef(o)


# ---- copies


def _cp_async(e: Emitter, o: Op) -> None:
    """Every thread copies pieces of `bytes`; what lies out of bounds is filled with zeros.  A box that lies
    whole in the array, which all threads know, asks nothing more."""
    v, dst, *offsets = o.operands
    t = dst.type
    if isinstance(v.type, Tile):
        _cp_async_pointers(e, o)
        return
    assert isinstance(t, Shared) and e.frame is not None
    box = box_of(e, v, offsets, t.shape)
    size, item = o.attrs["bytes"], t.dtype.bytes
    n = size // item
    inner = box.inner
    if n * item != size or inner is None or t.inner != inner - box.rank + len(t.shape):
        raise InternalError(
            f"codegen: cp_async of {size} bytes along another axis than memory's: {t}"
        )
    layout = blocked(t.shape, t.inner, n, e.frame.warps)
    starts = list(range(0, layout.registers, n))
    table, inside = thread_offsets(layout, geometry(t)), layout.inside
    to, real = [table[..., r] for r in starts], [inside[..., r] for r in starts]
    rows = Rows(box, Tile(t.shape, t.dtype, layout))
    at = [rows.place(r) for r in starts]
    unroll = o.attrs.get("unroll") or len(starts)
    body, steps, further = _iteration(at, to, real, unroll)
    trips = len(starts) // body
    places = Places(e, e.shared(dst), to[0], real[0], f"{dst.hint or 'slot'}_at")
    moved = f" + {affine(0, further)}" if further else ""
    spots = [
        tuple(replace(c, step=step) for c, step in zip(at[j], steps, strict=True))
        for j in range(body)
    ]
    into = [places.at(to[j], real[j]) + moved for j in range(body)]
    pointers = [rows.pointer(place) for place in spots]
    holder, whole = e.holder(layout), rows.inside()

    def masked() -> list[str]:
        lines = []
        for j, place in enumerate(spots):
            held = all_of((holder, rows.held(place, starts[j::body])))
            test = rows.test(place, but=inner)
            count, name = rows.valid(n, inner, place[inner]), e.name("count")
            count = f"{count} * {item}" if item > 1 else count
            lines.append(f"const int {name} = {f'{test} ? {count} : 0' if test else count};")
            source = f"{name} ? {pointers[j]} : {e.scalar(box.view.operands[0])}"
            copy = f"cp_async<{size}>({into[j]}, {source}, {name});"
            lines.append(f"if ({held}) {copy}" if held else copy)
        return lines

    if not whole:
        _repeated(e, masked(), trips, unroll // body)
        return
    copies = (f"cp_async<{size}>({x}, {p}, {size});" for x, p in zip(into, pointers, strict=True))
    with e.block(f"if ({whole})"):
        plain_copies = [f"if ({holder}) {copy}" if holder else copy for copy in copies]
        _repeated(e, plain_copies, trips, unroll // body)
    with e.block("else"):
        _repeated(e, masked(), trips, unroll // body)


def _repeated(e: Emitter, lines: Sequence[str], trips: int, unroll: int) -> None:
    """Lines once, or for each i below `trips`."""
    if trips == 1:
        e.lines((0, text) for text in lines)
        return
    e.line(f"#pragma unroll {max(1, unroll)}")
    with e.block(f"for (int i = 0; i < {trips}; ++i)"):
        e.lines((0, text) for text in lines)


def _cp_async_pointers(e: Emitter, o: Op) -> None:
    """Every thread copies the pieces whose pointers it holds, zeros for those that are masked off."""
    v, dst, *masks = o.operands
    t, layout = dst.type, v.type.layout  # type: ignore[attr-defined]
    assert isinstance(t, Shared) and isinstance(layout, Layout)
    size = o.attrs["bytes"]
    n = size // t.dtype.bytes
    if layout.contiguous(t.inner) % n:
        raise InternalError(f"codegen: cp_async of {size} bytes from pointers in {layout}")
    pointers, mask = e.regs(v), e.regs(masks[0]) if masks else None
    table, inside = thread_offsets(layout, geometry(t)), layout.inside
    places = Places(e, e.shared(dst), table[..., 0], inside[..., 0], f"{dst.hint or 'slot'}_at")
    holder = e.holder(layout)
    assert isinstance(v.type, Tile)
    for r in range(0, layout.registers, n):
        into = places.at(table[..., r], inside[..., r])
        kept = read(mask.elements[r], mask.elem) if mask else "true"
        copy = f"cp_async_if<{size}>({into}, {read(pointers.elements[r], pointers.elem)}, {kept});"
        e.line_if((holder, e.inside(v.type, r)), copy)


def _wait(e: Emitter, o: Op) -> None:
    e.line(f"cp_async_wait<{o.attrs['pending']}>();")


def _iteration(
    at: Sequence[Place], offsets: Sequence[Ints], real: Sequence[Bools], most: int
) -> tuple[int, tuple[int, ...], int]:
    """How more than `most` accesses at places `at` and `offsets` in the slot (where `real`) become a loop:
    accesses in its body, what each iteration adds to the coordinates, and to the offsets.  The smallest body
    that there is; at worst all."""
    count = len(at)
    for body in range(1, count // 2 + 1):
        if count % body or count <= most:
            continue
        steps = tuple(b.more - a.more for a, b in zip(at[0], at[body], strict=True))
        further = int((offsets[body] - offsets[0]).flat[0])
        if all(
            [(c.base, c.more) for c in at[k]]
            == [(c.base, c.more + k // body * s) for c, s in zip(at[k % body], steps, strict=True)]
            and not (real[k] & ~real[k % body]).any()
            and (offsets[k] == offsets[k % body] + k // body * further)[real[k]].all()
            for k in range(count)
        ):
            return body, steps, further
    return count, (0,) * len(at[0]), 0


LOWER: dict[OpKind, Lowering] = {
    smem.cp_async: _cp_async,
    smem.cp_async_commit: plain("cp_async_commit();"),
    smem.cp_async_wait: _wait,
    tile.make_view: _make_view,
    tile.load_box: _load_box,
    tile.store_box: _store_box,
}
