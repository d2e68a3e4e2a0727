"""Says what fences cover.

Order: before allocate_shared; PLACED holds the fences to it.
Changes: products in clusters whose threads write to other CTAs, and integer products from registers.

A proxy fence orders what the thread did by ordinary accesses with engines (PTX ISA, "Async proxy"): of its
own CTA's shared memory, unless threads of the program access that of other CTAs as well, which costs more.
A register operand of integers goes to words where its wgmma is issued, after the wgmma_fence before the
group; register operands count as well (PTX ISA, "wgmma.fence"), so a fence stands after the words.

    before:  wgmma(%codes, %b, %acc, %use)
             shared_store(%there, %x)
             fence_async()
    after:   wgmma(%codes, %b, %acc, %use) {fenced=True}
             shared_store(%there, %x)
             fence_async() {scope="cluster"}
"""

from __future__ import annotations

from warploom.ir.analysis import reaches_peers
from warploom.ir.core import Func, Op
from warploom.ir.ops import mma, smem
from warploom.ir.rewrite import annotate


def place_fences(func: Func) -> Func:
    """See the module's docstring."""
    wide = reaches_peers(func)

    def placed(o: Op) -> dict[str, object]:
        if mma.packs(o):
            return {"fenced": True}
        is_wide = wide and o.kind is smem.fence_async and o.attrs.get("space") != "global"
        return {"scope": "cluster"} if is_wide else {}

    return annotate(func, placed)
