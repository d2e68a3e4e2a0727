"""Statements that copy between global and shared memory: TMA and cp.async."""

from __future__ import annotations

from warploom.eject.expressions import call, keywords
from warploom.eject.statements import Statements, statement
from warploom.ir.core import Op
from warploom.ir.ops import mbarrier, smem, tma
from warploom.ir.types import TensorMap, Tile


def _options(s: Statements, o: Op) -> list[str]:
    """Keyword arguments of a copy: which axes of the view are the slot's, what the L2 fetches and keeps."""
    m = o.operands[0]
    if s.flow.made[m].kind is tma.map_alloc:
        return keywords(o, "cache_policy")
    t = m.typed(TensorMap)
    leading = t.thin == tuple(range(len(t.thin)))
    dims = [] if leading else [f"dims={list(t.axes)}"]
    return [*dims, *keywords(s.flow.made[m], "promote"), *keywords(o, "cache_policy")]


@statement(tma.map_alloc, says="name rank dtype box inner swizzle promote thin")
def _map_alloc(s: Statements, o: Op) -> str:
    a, t = o.attrs, o.result.typed(TensorMap)
    parts = [f"dtype={s.dtype(a['dtype'])}", f"shape={list(a['box'])}"]
    parts += [f"inner={a['inner']}", f"swizzle={a['swizzle']}"]
    parts += [f"rank={a['rank']}"] if t.thin else []
    parts += [] if t.thin == tuple(range(len(t.thin))) else [f"dims={list(t.axes)}"]
    return f"{s.name(o.result)} = {call('tma.map_alloc', *parts, *keywords(o, 'promote'))}"


@statement(tma.map_write)
def _map_write(s: Statements, o: Op) -> str:
    return call("tma.write_map", *map(s.text, o.operands))


@statement(tma.tma_load, says="multicast cache_policy")
def _tma_load(s: Statements, o: Op) -> str:
    m, slot, array, index, *offsets = o.operands
    many = [f"multicast_mask={s.text(offsets.pop())}"] if o.attrs.get("multicast") else []
    parts = s.text(m), s.text(slot), s.items(offsets), s.barrier(array, index)
    return call("tma.global_to_shared", *parts, *many, *_options(s, o))


@statement(tma.tma_store, says="reduce cache_policy")
def _tma_store(s: Statements, o: Op) -> str:
    m, slot, *offsets = o.operands
    how = [*keywords(o, "reduce"), *_options(s, o)]
    return call("tma.shared_to_global", s.text(slot), s.text(m), s.items(offsets), *how)


@statement(tma.tma_store_wait, says="pending read")
def _tma_wait(s: Statements, o: Op) -> str:
    read = ["read=True"] if o.attrs.get("read", True) else []
    return call("tma.wait_group", str(o.attrs["pending"]), *read)


@statement(smem.cp_async, says="bytes")
def _cp_async(s: Statements, o: Op) -> str:
    source, to, *rest = o.operands
    by_pointers = isinstance(source.type, Tile)
    where = [f"mask={s.text(m)}" for m in rest] if by_pointers else [s.items(rest)]
    return call("cp_async.load", s.text(source), s.text(to), *where, f"bytes={o.attrs['bytes']}")


@statement(mbarrier.cp_async_arrive)
def _cp_arrive(s: Statements, o: Op) -> str:
    return call("cp_async.arrive", s.barrier(*o.operands))
