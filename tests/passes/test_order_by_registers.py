"""What orders ops by registers leaves where it is."""

from __future__ import annotations

from tests.passes.ir_cases import cases
from warploom.ir.ops import mma, task
from warploom.ir.parser import parse_func
from warploom.ir.types import Tile
from warploom.passes.placed import order_by_registers as passed
from warploom.passes.placed.register_pressure import Pressure


def test_what_a_product_reads_is_written_before_its_fence() -> None:
    func = parse_func(cases()["part_lifetimes"].before)
    (phase,) = task.phases(func)
    region = phase.regions[0]
    pressure = Pressure(region)
    ops = list(region.ops)
    ordering = passed._Ordering(region, pressure, 1, ops)
    ordering.ordered()
    (product,) = (o for o in ops if o.kind is mma.wgmma)
    (factor,) = (
        o
        for o in ops
        if isinstance(product.operands[0].type, Tile) and product.operands[0] in o.results
    )
    fence = max(i for i, o in enumerate(ordering.ops) if o.kind is mma.wgmma_fence)
    assert ordering.ops.index(factor) < fence < ordering.ops.index(product)
    late = passed._may_pass(factor, ordering.ops[fence])
    assert late and not ordering.may_pass(factor, ordering.ops[fence])
