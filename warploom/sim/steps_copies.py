"""What an agent copies by cp.async, and how it waits for its groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.ir.core import Op
from warploom.ir.ops import mbarrier, smem
from warploom.ir.types import View
from warploom.sim.accesses import touch_global, write
from warploom.sim.agent import Agent, Block, Steps
from warploom.sim.barriers import MBarrier, Together
from warploom.sim.outline import step
from warploom.sim.shared import Place
from warploom.sim.steps import check_run


@step(smem.cp_async)
def _copy_pieces(a: Agent, o: Op, source: Any, dst: Place, *rest: Any) -> Steps:
    cta, n = a.cta, len(a.rows)
    at: list[int] = []
    pointers = not isinstance(o.operands[0].type, View)
    if not pointers:
        at = a.offsets(rest)
    elif cta.has_data:
        run = dst.type.inner, o.attrs["bytes"] // dst.type.dtype.bytes
        check_run(a, o, source, rest[0] if rest else None, run)
    copies = a.copies
    touch_global(a, o, source, dst, *rest)
    copies.issued += 1
    write(a, cta, o, dst, a.copy_order[:n], np.full(n, copies.issued), False)
    cta.copied[a] = a.party(o)
    end = a.transfer(o, dst.type.tile_bytes) + cta.cost.tma_latency
    copies.end = max(copies.end, end)

    def copy() -> None:
        copies.arrived += 1
        if not cta.has_data:
            return
        if pointers:
            data = cta.memory.load(dst.type.dtype, source, rest[0] if rest else None, None, o.loc)
        else:
            data = cta.memory.load_box(dst.type.dtype, source, at, dst.type.shape, o.loc)
        cta.shared.write(dst.addresses, data, dst.type.dtype, False)

    cta.engine.issue("copy", copy, end, a.lane("copy"))
    yield None
    return ()


@step(smem.cp_async_commit)
def _commit_copies(a: Agent, o: Op) -> None:
    a.copies.groups.append((a.copies.issued, a.copies.end))


@step(smem.cp_async_wait)
def _wait_for_copies(a: Agent, o: Op) -> Steps:
    copies = a.copies
    group = max(0, len(copies.groups) - o.attrs["pending"])
    issued, end = copies.groups[group - 1] if group else (0, a.time)
    yield from a.wait_until(
        Block(
            lambda: copies.arrived >= issued,
            o,
            f"its group {group} of cp.asyncs",
            lambda: "the copies are not over",
        )
    )
    a.stall(end, o, "copies")
    copies.waited, copies.known = max(copies.waited, group), max(copies.known, issued)
    return ()


@step(mbarrier.cp_async_arrive)
def _arrive_after_copies(a: Agent, o: Op, barriers: list[MBarrier], index: Any) -> Steps:
    b, party, n = a.barrier(o, barriers, index), a.party(o), len(a.rows)
    stamps = a.known().copy()
    stamps[np.arange(n), a.copy_order[:n]] = a.copies.issued
    threads = 1 if a.is_solo else a.cta.target.warp_size
    time, together = max(a.time, a.copies.end), Together(threads * n)

    def run() -> None:
        for row in stamps:
            rows = row[None] if a.cta.is_tracked else None
            b.arrive(party, row, time, rows, None, threads, together)

    a.cta.engine.issue("arrival", run, time, a.lane("copy"))
    a.released()
    yield None
    return ()
