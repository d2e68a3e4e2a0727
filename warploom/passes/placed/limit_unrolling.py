"""Says how often loops are unrolled: not at all where they wait, a few times where they only load and add up.

Order: before allocate_shared, whose exchanges count on what a loop comes back to.
Changes: 14 families: GEMM, attention and convolution where a constexpr says how often a ring is walked; all
that copy by cp.async; products by fma; rows that are read in parts.

Left to itself, the compiler of CUDA C++ unrolls a loop whose bounds are constants: each copy of a wait is a
loop of its own, and the copies' addresses and phases are kept in registers.  A loop that says how often it is
unrolled stays as it is.  Of the many pieces of a box that each thread copies by cp.async, addresses would be
kept across the loop around them: a few are issued in a row.  The multiply-adds of an fma are written in a row
where they are few.  A loop that loads, and neither stores nor lets threads meet, is unrolled until what a
thread loads in a row is enough to keep memory busy; by itself the compiler unrolls short bodies only.  One
that stores too is written out where it runs a few times: a wide row's, read again when its mean is known.

    before:  for(%0, %4, %1) do (%k: i32) { group_sync() {scope="replica"}; … }
             cp_async(%view, %slot, %row, %col) {bytes=16}
    after:   for(%0, %4, %1) {unroll=1} do (%k: i32) { group_sync() {scope="replica"}; … }
             cp_async(%view, %slot, %row, %col) {bytes=16, unroll=4}
"""

from __future__ import annotations

from warploom.ir.analysis import definitions, effects
from warploom.ir.core import Effect, Family, Func, Op, Value
from warploom.ir.ops import arith, control, mma, smem, tile
from warploom.ir.rewrite import annotate
from warploom.ir.types import Tile, View
from warploom.layout import product_registers

PIECES = 4  # of a copy that a thread issues in a row
# Multiply-adds in a row: enough for loads of a step to run under those of the one before.
PRODUCTS = 512
# Bytes that a thread's loads in a row bring: 1024 threads keep 64 KB on their way, twice what an SM
# needs for 25 to 32 bytes a ns at 1 us, as registers let half of them be issued before the first is used.
IN_A_ROW = 64
MOST_COPIES = 8  # half as many where nobody knows how often the loop runs
_PLAIN = (Family.NUMBER, Family.POINTWISE, Family.FILL, Family.MOVE, Family.CONTROL)
MOST_ELEMENTS = 2048  # that the copies of a body make: NVRTC's time grows with their square


def limit_unrolling(func: Func) -> Func:
    """See the module's docstring."""
    made = definitions(func.body)

    def is_constant(v: Value) -> bool:
        return v in made and made[v].kind is arith.const

    def limited(o: Op) -> dict[str, int]:
        if o.kind in smem.PIECEWISE and isinstance(o.operands[0].type, View):
            return {"unroll": PIECES}
        if o.kind is mma.fma:
            *_, rows, columns = product_registers(o.result.typed(Tile).layout)
            return {"unroll": PRODUCTS // (len(rows) * len(columns))}
        if o.kind is not control.for_ or o.attrs.get("unroll") is not None:
            return {}
        if effects(o) & Effect.SYNC:
            return {"unroll": 1} if all(map(is_constant, o.operands[:3])) else {}
        copies = _copies(o, trips(o))
        return {"unroll": copies} if copies > 1 else {}

    def trips(o: Op) -> int | None:
        if not all(map(is_constant, o.operands[:3])):
            return None
        lo, hi, step = (int(made[v].attrs["value"]) for v in o.operands[:3])
        return max(0, -((lo - hi) // step)) if step > 0 else None

    return annotate(func, limited)


def _copies(loop: Op, trips: int | None) -> int:
    """How often a loop's body is written, so that its loads stand together; 1: as often as the compiler
    likes."""
    ops = loop.regions[0].all_ops
    loads = [o for o in ops if o.loads and not o.attrs.get("volatile")]
    stores = [o for o in ops if o.kind in (tile.store, tile.store_box)]
    plain = (o.kind.family in _PLAIN or o in loads or o in stores for o in ops)
    if any(o.kind in control.LOOPS for o in ops) or not all(plain):
        return 1
    loaded = sum(_held(o) * o.result.typed(Tile).dtype.bytes for o in loads if _held(o))
    if not loaded:
        return 1
    written = MOST_COPIES if trips is not None else MOST_COPIES // 2
    most = min(written, MOST_ELEMENTS // sum(map(_held, ops)))
    if stores:  # what is loaded next stays after them, but for what is prefetched
        return trips if trips is not None and trips <= most else 1
    copies = min(most, IN_A_ROW // loaded)
    return trips if trips is not None and trips <= min(most, 2 * copies) else copies


def _held(o: Op) -> int:
    """Elements that a thread has of the tiles that o makes."""
    layouts = (v.type.layout for v in o.results if isinstance(v.type, Tile))
    return sum(layout.registers for layout in layouts if layout is not None)
