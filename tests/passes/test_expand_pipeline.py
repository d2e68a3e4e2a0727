"""Iterations of a consumer that overlap: what is chosen, what the loop becomes, what it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.pairwise import diagonals
from tests.passes import kernels, road
from warploom.ir.core import Op, walk
from warploom.ir.ops import arith, control, mbarrier, mma, regs, smem, task, tile, tma
from warploom.schedule.model import Knobs, PipelinePlan, Schedule

BF16 = ml_dtypes.bfloat16
TWO = Knobs(num_consumer_groups=2, num_buffers_warp_spec=2)
CHAIN = kernels.attention()

# acc = acc·1/2 + 2^clamp(q·kᵀ)·v, and the rows' sums of the powers, all exact in float32 for small integers.
POWERS = (
    CHAIN.replace(
        '%best = reduce(%s) {axis=1, fn="max"} : tile<128xf32>',
        '%best = reduce(%e) {axis=1, fn="add"} : tile<128xf32>\n'
        "      %m0 = mul(%m, %rows) : tile<128xf32>",
    )
    .replace("%m1 = maximum(%m, %best) : tile<128xf32>", "%m1 = add(%m0, %best) : tile<128xf32>")
    .replace("%p = maximum(%s, %zeros) : tile<128x64xf32>\n", "")
    .replace("cast(%p)", "cast(%e)")
    .replace(
        "%s = dot(%qt, %kt, %zeros) : tile<128x64xf32>",
        "%s = dot(%qt, %kt, %zeros) : tile<128x64xf32>\n"
        "      %s1 = maximum(%s, %lows) : tile<128x64xf32>\n"
        "      %s2 = minimum(%s1, %ones) : tile<128x64xf32>\n"
        "      %e = exp2(%s2) : tile<128x64xf32>",
    )
    .replace(
        "%halves =",
        "%rows = splat(%half) {shape=(128,)} : tile<128xf32>\n"
        "    %low = const() {value=-2.0, dtype=f32} : f32\n"
        "    %high = const() {value=1.0, dtype=f32} : f32\n"
        "    %lows = splat(%low) {shape=(128, 64)} : tile<128x64xf32>\n"
        "    %ones = splat(%high) {shape=(128, 64)} : tile<128x64xf32>\n"
        "    %halves =",
    )
)


def arguments(m: int, n: int) -> list[Any]:
    """q (m, 64), k and v (n, 64), c (m, 64), then M, N, D, ld."""
    rng = np.random.default_rng(n)
    left, k, v = (road.integers(rng, (max(r, 1), 64), BF16) for r in (m, n, n))
    return [left, k, v, np.full((m, 64), 7, np.float32), m, n, 64, 64]


def plans(schedule: Schedule) -> list[PipelinePlan]:
    return list(schedule.pipelines)


def main_loop(steps: list[tuple[str, Any]]) -> Op:
    """The innermost loop with dots of the last step."""
    loops = [
        o
        for o in walk(steps[-1][1].body)
        if o.kind is control.for_ and any(x.kind is mma.wgmma for x in o.regions[0].ops)
    ]
    (loop,) = loops
    return loop


def protocol(loop: Op) -> list[str]:
    """What the loop does beside arithmetic, in order."""
    names = []
    for o in loop.regions[0].ops:
        if o.kind in (mma.wgmma, regs.hold, mbarrier.mbarrier_wait, mbarrier.mbarrier_arrive):
            names.append(o.kind.name.removeprefix("mbarrier_"))
        elif o.kind is mma.wgmma_wait:
            names.append(f"pending {o.attrs['pending']}")
        elif o.kind is smem.named_barrier:
            names.append("pass turn" if o.attrs["arrive"] else "take turn")
    return names


def test_early_dots_overlap_with_the_late_ones_of_the_iteration_before() -> None:
    schedule, steps = road.lower(road.tile(CHAIN), replace(TWO, ping_pong=False))
    (plan,) = plans(schedule)
    assert plan.stages == (("loop0.0/dot0", 0), ("loop0.0/dot1", 1))
    assert protocol(main_loop(steps)) == [
        "wait", "wgmma", "wait", "wgmma", "pending 1", "arrive", "pending 0", "arrive"
    ]  # fmt: skip


def test_groups_take_turns() -> None:
    schedule, steps = road.lower(road.tile(CHAIN), replace(TWO, ping_pong=True))
    assert plans(schedule)[0].ping_pong
    assert protocol(main_loop(steps)) == [
        "wait", "take turn", "wgmma", "wait", "wgmma", "pass turn",
        "pending 1", "arrive", "pending 0", "arrive",
    ]  # fmt: skip


def loads(ops: tuple[Op, ...]) -> list[str]:
    """The rings that ops fill, in order."""
    return [o.operands[1].hint.removesuffix("t_slot") for o in ops if o.kind is tma.tma_load]


def test_loads_come_in_the_order_in_which_they_are_waited_for() -> None:
    """k of the next iteration before v of this one; the consumer's first k and last v stand outside."""
    _, steps = road.lower(road.tile(CHAIN), TWO)
    (tasks,) = [o for o in walk(steps[-1][1].body) if o.kind is task.tasks]
    arms = [
        o.regions[0]
        for o in walk(tasks.regions[1])
        if o.kind is control.if_ and any(x.kind is tma.tma_load for x in o.regions[0].ops)
    ]
    ((first, loop, last),) = [
        [x for x in r.ops if x.kind in (tma.tma_load, control.for_)] for r in arms
    ]
    assert loads((first,)) == ["k"] and loads((last,)) == ["v"]
    assert loads(loop.regions[0].ops) == ["k", "v"]
    *_, late = [o for o in loop.regions[0].ops if o.kind is tma.tma_load]
    assert late.operands[4] is not loop.regions[0].params[0]  # the row of the iteration before


def test_what_need_not_wait_runs_under_the_last_dots() -> None:
    """q is given back before them, and the sums' lanes are added up before their end."""
    _, steps = road.lower(road.tile(POWERS), replace(TWO, ping_pong=False, mma_wait_position=3))
    (arm,) = [
        o.regions[0].ops
        for o in walk(steps[-1][1].body)
        if o.kind is control.if_ and any(x.kind is mma.wgmma for x in o.regions[0].ops)
    ]
    behind = arm[max(i for i, o in enumerate(arm) if o.kind is control.for_) :]
    kinds = [o.kind for o in behind]
    release, dot, wait = map(kinds.index, (mbarrier.mbarrier_arrive, mma.wgmma, mma.wgmma_wait))
    assert release < dot < kinds.index(tile.reduce) < kinds.index(regs.hold) < wait
    assert behind[release].operands[0].hint == "empty_qt"


def test_the_wait_stands_amid_the_powers() -> None:
    schedule, steps = road.lower(
        road.tile(POWERS), replace(TWO, ping_pong=False, mma_wait_position=3)
    )
    assert schedule.delayed_reductions == ("loop0.0/reduce0",)
    loop = main_loop(steps)
    assert protocol(loop)[4:] == ["pending 1", "arrive", "hold", "pending 0", "arrive"]
    powers = [o.result.type.shape for o in loop.regions[0].ops if o.kind.name == "exp2"]
    assert powers == [(64, 24), (64, 40)]
    kinds = [o.kind for o in loop.regions[0].ops]
    sums = [o.operands[1] for o in loop.regions[0].ops if o.kind is arith.add]
    made = {v: o for o in loop.regions[0].ops for v in o.results}
    slices = [made[v].attrs["offset"][1] for v in sums if made.get(v, loop).kind is tile.slice_tile]
    assert slices == [0, 8, 16, 0, 8, 16, 24, 32]  # of the first part, then of the second
    early = kinds[: kinds.index(regs.hold)]
    assert early.count(arith.add) == 3 and kinds.count(tile.reduce) == 0


def test_a_sum_that_the_loop_reads_is_added_up_in_each_iteration() -> None:
    text = POWERS.replace(
        "%pb = cast(%e)",
        "%mc = expand_dims(%m) {axis=1} : tile<128x1xf32>\n"
        "      %mb = broadcast(%mc) {shape=(128, 64)} : tile<128x64xf32>\n"
        "      %em = add(%e, %mb) : tile<128x64xf32>\n"
        "      %pb = cast(%em)",
    )
    schedule, _ = road.lower(road.tile(text), TWO)
    assert schedule.pipelines and not schedule.delayed_reductions


@pytest.mark.parametrize(
    ("text", "knobs", "because"),
    [
        (CHAIN, replace(TWO, consumer_stages=1), "consumer_stages=1"),
        (
            CHAIN.replace("dot(%qt, %kt, %zeros)", "dot(%qt, %kt, %acc)"),
            TWO,
            "loop0.0/dot0 needs what the iteration before makes of loop0.0/dot1",
        ),
    ],
    ids=["asked", "recurrence"],
)
def test_what_does_not_overlap(text: str, knobs: Knobs, because: str) -> None:
    schedule, steps = road.lower(road.tile(text), knobs)
    assert not schedule.pipelines
    assert because in [r.because for r in schedule.reasons]
    assert [x for x in protocol(main_loop(steps)) if "pending" in x] == ["pending 0"] * 2


TEXTS = {"chain": CHAIN, "powers": POWERS}


@pytest.mark.parametrize(
    ("text", "depth", "n"), diagonals(2, [*TEXTS], [1, 2], [0, 64, 100, 192, 300])
)
@pytest.mark.each(2)
def test_it_computes_the_same(text: str, depth: int, n: int) -> None:
    """Trip counts 0, 1 and more; two tiles a program."""
    eighths = {0: 2, 64: 0, 100: 8, 192: 3, 300: 4}[n]
    knobs = Knobs(num_consumer_groups=2, num_buffers_warp_spec=depth, mma_wait_position=eighths)
    schedule, _ = road.check_equal(
        road.tile(TEXTS[text]), arguments(500, n), 2, knobs, orders=("late", "early", "seeded")
    )
    assert schedule.pipelines


def test_what_overlaps_takes_the_registers_that_a_lean_producer_leaves() -> None:
    for stages, budgets in ((None, (240, 24)), (1, (232, 40))):
        schedule, _ = road.lower(road.tile(CHAIN), replace(TWO, consumer_stages=stages))
        assert tuple(t.registers for t in schedule.tasks) == budgets


def test_one_group_takes_no_turns() -> None:
    knobs = Knobs(num_consumer_groups=1, num_buffers_warp_spec=2, ping_pong=True)
    schedule, _ = road.lower(road.tile(CHAIN), knobs)
    assert not plans(schedule)[0].ping_pong
    assert "there is one group" in [r.because for r in schedule.reasons if r.warn]


MASKED = (
    POWERS.replace(
        "%e = exp2(%s2) : tile<128x64xf32>",
        "%next_at = add(%at, %c64) : i32\n"
        "      %is_last = gt(%next_at, %N) : i1\n"
        "      %seen = if(%is_last) #mask : tile<128x64xf32> do {\n"
        "        %sm = minimum(%s2, %lows) : tile<128x64xf32>\n"
        "        yield(%sm)\n      } do {\n        yield(%s2)\n      }\n"
        "      %e = exp2(%seen) : tile<128x64xf32>",
    )
    .replace("for(%c0, %steps, %c1,", "for(%c0, %N, %c64,")
    .replace("%at = mul(%j, %c64)", "%at = add(%j, %c0)")
)


def test_a_branch_that_turns_once_cuts_the_loop() -> None:
    """Two loops without the branch instead of one with it, whatever way round the comparison is written."""
    texts = [
        MASKED,
        MASKED.replace("gt(%next_at, %N)", "lt(%N, %next_at)"),
        MASKED.replace("gt(%next_at, %N)", "ge(%at, %N1)")
        .replace("%next_at = add(%at, %c64)", "%next_at = add(%c64, %at)")
        .replace("%halves =", "%N1 = sub(%N, %c63) : i32\n    %halves ="),
    ]
    for text in texts:
        schedule, steps = road.lower(
            road.tile(text.replace("%at = add(%j, %c0)", "%at = or(%j, %c0)")), TWO
        )
        assert plans(schedule)[0].split == ""  # not seen through any other arithmetic
        text = text.replace("      %at = add(%j, %c0) : i32\n", "").replace("%at", "%j")
        schedule, steps = road.lower(road.tile(text), TWO)
        assert plans(schedule)[0].split
        loops = [
            o
            for o in walk(steps[-1][1].body)
            if o.kind is control.for_ and any(x.kind is mma.wgmma for x in o.regions[0].ops)
        ]
        assert len(loops) == 2
        assert not any(x.kind is control.if_ for o in loops for x in walk(o.regions[0]))
        for n in (0, 64, 100, 192, 300):
            road.check_equal(road.tile(text), arguments(200, n), 2, TWO)
