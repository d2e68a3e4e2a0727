"""Copies of boxes by the copy engine, by tensor maps."""

from __future__ import annotations

import itertools

from warploom.codegen import host, ptx
from warploom.codegen.context import Emitter, Lowering, ViewRef
from warploom.codegen.lower_barriers import barrier
from warploom.codegen.lower_shared import declared, geometry, plain
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import tma
from warploom.ir.types import Shared, TensorMap
from warploom.layout.shared import byte_offset

OWN_MAP_BYTES = 256  # memory for a descriptor that the kernel writes: 128 bytes, and 16 zeros


def instruction_box(t: TensorMap, limit: int = 256) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(box of one copy instruction in tile axis order, the axes innermost dimension first)."""
    others = [a for a in range(len(t.box)) if a != t.inner]
    return geometry(t).copy_box(limit), (t.inner, *reversed(others))


def _copies(e: Emitter, t: TensorMap, offsets: list[str], s: Value) -> list[tuple[str, str]]:
    """(coordinates innermost first, shared address) of every instruction that moves a box to or from a slot
    (or a part of one)."""
    box, order = instruction_box(t, e.target.box_limit)
    at, g = e.shared(s), geometry(s.typed(Shared))
    out = []
    thin = [offsets[a] for a in reversed(t.thin)]
    ranges = [range(0, n, step) for n, step in zip(t.box, box, strict=True)]
    for start in itertools.product(*ranges):
        text = ", ".join([*(_plus(offsets[t.axes[a]], start[a]) for a in order), *thin])
        out.append((text, str(at.plus(offset=int(byte_offset(g, start))))))
    return out


def cache_policy(o: Op) -> str:
    """The last argument of a hinted access, with its comma; "" where the op has no hint."""
    policy = o.attrs.get("cache_policy")
    return f", l2_{policy}()" if policy else ""


def _plus(text: str, n: int) -> str:
    if n == 0:
        return text
    return str(int(text) + n) if text.isdigit() else f"{text} + {n}"


def _map_write(e: Emitter, o: Op) -> None:
    m, v = o.operands
    t, ref = m.typed(TensorMap), e.env[v]
    assert isinstance(ref, ViewRef)
    base, *sizes = ref.op.operands
    name, e.made[name] = ptx.write_map(t.rank)
    _, order = instruction_box(t, e.target.box_limit)
    axes = host.map_axes(t, order)
    extents = [e.scalar(sizes[a]) for a in axes]
    strides = [f"{e.scalar(sizes[t.rank + a])} * {t.dtype.bytes}" for a in axes[1:]]
    numbers = ", ".join([*extents, *strides])
    e.line(f"{name}({e.env[m].removeprefix('*')}, {e.templates[m]}, {e.scalar(base)}, {numbers});")


def _tma_load(e: Emitter, o: Op) -> None:
    m, dst, _, _, *offsets = o.operands
    assert isinstance(m.type, TensorMap)
    to_many = bool(o.attrs.get("multicast"))
    mask = f", {e.scalar(offsets.pop())}" if to_many else ""
    policy = cache_policy(o)
    name, definition = ptx.tma_load(m.type.rank, to_many, bool(policy))
    e.made[name] = definition
    bar = barrier(e, o, 2)
    for coordinates, address in _copies(e, m.type, [e.scalar(v) for v in offsets], dst):
        e.line(f"{name}({address}, &{e.env[m]}, {coordinates}, {bar}{mask}{policy});")


def _tma_store(e: Emitter, o: Op) -> None:
    m, src, *offsets = o.operands
    assert isinstance(m.type, TensorMap)
    policy = cache_policy(o)
    name, definition = ptx.tma_store(m.type.rank, o.attrs.get("reduce"), bool(policy))
    e.made[name] = definition
    for coordinates, address in _copies(e, m.type, [e.scalar(v) for v in offsets], src):
        e.line(f"{name}(&{e.env[m]}, {coordinates}, {address}{policy});")


def _tma_store_wait(e: Emitter, o: Op) -> None:
    e.line(f"tma_wait{'_read' if o.attrs.get('read', True) else ''}<{o.attrs['pending']}>();")


LOWER: dict[OpKind, Lowering] = {
    tma.tensor_map: declared,
    tma.map_alloc: declared,
    tma.map_write: _map_write,
    tma.tma_load: _tma_load,
    tma.tma_store: _tma_store,
    tma.tma_store_commit: plain("tma_commit();"),
    tma.tma_store_wait: _tma_store_wait,
}
