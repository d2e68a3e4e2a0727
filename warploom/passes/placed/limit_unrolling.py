"""Keeps loops of known trip counts that wait from being unrolled, and limits the loops of fma.

Order: before allocate_shared, whose exchanges count on what a loop comes back to.
Changes: 12 families: GEMM, attention and convolution where a constexpr says how often a ring is walked; all
that copy by cp.async; products by fma.

Left to itself, the compiler of CUDA C++ unrolls a loop whose bounds are constants: each copy of a wait is a
loop of its own, and the copies' addresses and phases are kept in registers.  A loop that says how often it is
unrolled stays as it is.  Of the many pieces of a box that each thread copies by cp.async, addresses would be
kept across the loop around them: a few are issued in a row.  The multiply-adds of an fma are written in a row
where they are few.

    before:  for(%0, %4, %1) do (%k: i32) { group_sync() {scope="replica"}; … }
             cp_async(%view, %slot, %row, %col) {bytes=16}
    after:   for(%0, %4, %1) {unroll=1} do (%k: i32) { group_sync() {scope="replica"}; … }
             cp_async(%view, %slot, %row, %col) {bytes=16, unroll=4}
"""

from __future__ import annotations

from warploom.ir.analysis import definitions, effects
from warploom.ir.core import Effect, Func, Op, Value
from warploom.ir.ops import arith, control, mma, smem
from warploom.ir.rewrite import annotate
from warploom.ir.types import Tile, View
from warploom.layout import product_registers

PIECES = 4  # of a copy that a thread issues in a row
# Multiply-adds in a row: enough for loads of a step to run under those of the one before.
PRODUCTS = 512


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
        waits = all(map(is_constant, o.operands[:3])) and effects(o) & Effect.SYNC
        return {"unroll": 1} if waits else {}

    return annotate(func, limited)
