"""Shared memory: slots and parts of them, numbers, the way of an exchange."""

from __future__ import annotations

import math

from warploom.codegen.context import Address, Emitter, Lowering
from warploom.codegen.lower_casts import same_bits
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import smem
from warploom.ir.types import Shared, TensorMap, dtype_of, i64, u32, u64
from warploom.layout.shared import Geometry


def is_peer(s: Value) -> bool:
    """Is this shared memory of another CTA?"""
    return isinstance(s.type, Shared) and s.type.peer


def geometry(s: Shared | TensorMap) -> Geometry:
    """Of the allocated slot (a slice's addresses follow the slot's strides)."""
    return Geometry(s.box, s.dtype.bytes, s.inner, s.swizzle)


def plain(text: str) -> Lowering:
    """Always this line."""
    return lambda e, o: e.line(text)


def declared(e: Emitter, o: Op) -> None:
    """Allocations and tensor maps: the frame has declared them."""


def _shared_slot(e: Emitter, o: Op) -> None:
    s, *index = o.operands
    t = s.typed(Shared)
    at = e.shared(s)
    strides = [math.prod(t.lead[i + 1 :]) * t.slot_bytes for i in range(len(t.lead))]
    e.env[o.result] = _moved(e, o, at, list(zip(index, strides, strict=True)))


def _shared_slice(e: Emitter, o: Op) -> None:
    s, *block = o.operands
    t = s.typed(Shared)
    g = geometry(t)
    strides = []
    for axis, n in enumerate(o.attrs["shape"]):
        if axis == t.inner and t.swizzle:
            strides.append(n // g.row_elements * g.panel_bytes)
        elif axis == t.inner:
            strides.append(n * g.itemsize)
        else:
            strides.append(n * g.row_strides[axis] * g.row_bytes)
    e.env[o.result] = _moved(e, o, e.shared(s), list(zip(block, strides, strict=True)))


def _moved(e: Emitter, o: Op, at: Address, terms: list) -> Address:  # type: ignore[type-arg]
    """`at` plus Σ index·stride, in a variable of its own where that isn't constant."""
    text, offset = [], 0
    for index, stride in terms:
        known = e.const(index)
        if known is not None:
            offset += known * stride
        elif stride:
            text.append(f"{e.scalar(index)} * {stride}")
    if not text:
        return at.plus(offset=offset)
    name = e.name(o.result.hint, "slot")
    e.line(f"const u32 {name} = {' + '.join([at.base, *text])};")
    return Address(name, at.offset + offset)


def _shared_transpose(e: Emitter, o: Op) -> None:
    e.env[o.result] = e.shared(o.operands[0])


def _shared_get(e: Emitter, o: Op) -> None:
    (s,) = o.operands
    dtype = dtype_of(o.result.type)
    text = f"load_{'peer' if is_peer(s) else 'shared'}32({e.shared(s)})"
    if dtype.bits == 64:
        text = f"load_long({e.shared(s)})"
    if not e.elected:
        # The same in all lanes: told to the compiler, and all lanes have read when the warp goes on.
        text = f"__shfl_sync(~0u, {text}, 0)"
    e.define(o.result, same_bits(text, i64 if dtype.bits == 64 else u32, dtype))


def _shared_put(e: Emitter, o: Op) -> None:
    s, value = o.operands
    dtype = dtype_of(value.type)
    if dtype.bits == 64:
        bits = same_bits(e.scalar(value), dtype, u64)
        e.line(f"store_shared64({e.shared(s)}, (u32)({bits}), (u32)(({bits}) >> 32));")
        return
    text = same_bits(e.scalar(value), dtype, u32)
    e.line(f"store_{'peer' if is_peer(s) else 'shared'}32({e.shared(s)}, {text});")


def _exchange(e: Emitter, o: Op) -> None:
    """The next op's way: see Emitter.exchange."""
    e.way = o


def _stamp(e: Emitter, o: Op) -> None:
    buffer, program, *index = o.operands
    e.stamping = e.scalar(program), o.attrs["capacity"]
    what = str(o.attrs["site"])
    if index:
        known = e.const(index[0])
        what = (
            f"{what} | {e.scalar(index[0])} << 16" if known is None else f"{what} | {known} << 16"
        )
    n = e.constant("STAMP_BYTES", 8 * o.attrs["capacity"])
    e.line(f"stamp<{n}>({e.scalar(buffer)}, {e.use('stamp_at')}, {what});")


LOWER: dict[OpKind, Lowering] = {
    smem.shared_alloc: declared,
    smem.shared_slot: _shared_slot,
    smem.shared_slice: _shared_slice,
    smem.shared_transpose: _shared_transpose,
    smem.shared_get: _shared_get,
    smem.shared_put: _shared_put,
    smem.exchange: _exchange,
    smem.stamp: _stamp,
}
