"""The last dot of a uniform kernel's iteration, waited for in the next one: where it is, and what it computes."""

from __future__ import annotations

import pytest

from tests.pairwise import diagonals
from tests.passes import road
from tests.passes.test_expand_pipeline import CHAIN, POWERS, arguments, main_loop, protocol
from warploom.ir.ops import control, mma, tma
from warploom.ir.types import InFlight, Tile
from warploom.schedule.model import Knobs

TEXTS = {"chain": CHAIN, "powers": POWERS}


def uniform(slots: int, warps: int = 8) -> Knobs:
    return Knobs(num_consumer_groups=0, num_warps=warps, num_stages=slots)


@pytest.mark.parametrize("slots", [2, 3])
def test_one_wait_an_iteration_is_for_both_dots(slots: int) -> None:
    _, steps = road.lower(road.tile(CHAIN), uniform(slots))
    loop = main_loop(steps)
    inside = protocol(loop)
    assert [x for x in inside if x.startswith("pending")] == ["pending 0"]
    assert inside[-1] == "wgmma"  # nothing waits behind the last dot
    assert any(isinstance(p.type, InFlight) for p in loop.regions[0].params)
    assert any(o.kind is control.if_ for o in loop.regions[0].ops)  # the late release


@pytest.mark.parametrize(
    ("slots", "order"),
    [(2, "first, K, wait, last, V"), (3, "first, K, V, wait, last")],
    ids=["two slots", "three slots"],
)
def test_boxes_are_asked_for_under_products(slots: int, order: str) -> None:
    """K's slot was given back an iteration ago; V's, of two slots, at the wait."""
    _, steps = road.lower(road.tile(CHAIN), uniform(slots))
    names = {"kt_slot": "K", "vt_slot": "V"}
    found = [x for o in main_loop(steps).regions[0].ops for x in o.all_ops]
    told = []
    for x in found:
        if x.kind is mma.wgmma:
            told.append("last" if isinstance(x.operands[0].type, Tile) else "first")
        elif x.kind is tma.tma_load:
            told.append(names[x.operands[1].hint])
        elif x.kind is mma.wgmma_wait:
            told.append("wait")
    assert ", ".join(told) == order


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        # copies by threads are asked for at the end: both are on their way while threads wait
        (CHAIN.replace("divisible=(16, 16, 1)", "divisible=(8, 4, 1)"), 2),
        # the loop reads the sums of the iteration before beside the next
        (CHAIN.replace("%pb = cast(%p)", "%px = add(%p, %acc)\n      %pb = cast(%px)"), 3),
    ],
    ids=["two slots, copied by threads", "read twice"],
)
def test_what_is_drained_at_once(text: str, slots: int) -> None:
    _, steps = road.lower(road.tile(text), uniform(slots))
    assert protocol(main_loop(steps)).count("pending 0") == 2


@pytest.mark.parametrize(
    ("text", "slots", "n"), diagonals(2, [*TEXTS], [2, 3], [0, 64, 100, 192, 300])
)
@pytest.mark.each(2)
def test_it_computes_the_same(text: str, slots: int, n: int) -> None:
    """Trip counts 0, 1 and more; two tiles a program."""
    func, knobs = road.tile(TEXTS[text]), uniform(slots)
    _, steps = road.lower(func, knobs)
    assert protocol(main_loop(steps)).count("pending 0") == 1
    road.check_equal(func, arguments(500, n), 2, knobs, orders=("late", "early", "seeded"))
