"""What of a function is emitted: ops with effects, and what they need on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warploom.codegen.storage import VIEWS
from warploom.ir.analysis import must_run
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import control, smem, tile, tma, unaligned
from warploom.ir.types import Tile, dtype_of
from warploom.layout.choose import conversion


def passing(needed: Iterable[Op]) -> frozenset[Value]:
    """8-bit tiles that go from a slot to another one, or into a matrix instruction: nobody computes with
    them, so they stay words."""
    moves = (smem.shared_store, tile.dot)
    loaded = {o.result for o in needed if o.kind is smem.shared_load}
    read = {v for o in needed if o.kind not in moves for v in operands(o)}
    return frozenset(v for v in loaded - read if dtype_of(v.type).bits == 8)


def is_view(o: Op) -> bool:
    """Is the op's result another name of its operand's registers?"""
    if o.kind in VIEWS:
        return True
    if o.kind is tile.convert_layout:
        source, result = o.operands[0].typed(Tile), o.result.typed(Tile)
        return conversion(source.layout, result.layout).kind == "free"
    if o.kind is tile.agree:
        return not any(o.result.typed(Tile).layout.copies)
    return False


def needed_ops(func: Func, debug: bool) -> set[Op]:
    """Ops with effects, and what they need on the device.  A tensor map needs nothing there: its view is
    the host's."""
    needed: set[Op] = set()
    wanted: set[Value] = set()

    def visit(r: Region, keep_yield: bool) -> None:
        for o in reversed(r.ops):
            if o.kind is control.yield_:
                wanted.update(o.operands if keep_yield else ())
                continue
            has_effect = any(_has_effect(i, debug) for i in o.all_ops)
            if not has_effect and not any(v in wanted for v in o.results):
                continue
            needed.add(o)
            if o.kind is not tma.tensor_map:
                wanted.update(o.operands)
            for sub in reversed(o.regions):
                visit(sub, True)

    visit(func.body, False)
    return needed


def operands(o: Op) -> Iterator[Value]:
    yield from o.operands
    for r in o.regions:
        yield from r.yielded


def _has_effect(o: Op, debug: bool) -> bool:
    if o.kind is control.assume or (o.kind is control.device_assert and not debug):
        return False
    return must_run(o) or o.kind is unaligned.prefetch_box
