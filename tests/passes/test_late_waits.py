"""The last dot of a uniform kernel's iteration, waited for in the next one: where it is, and what it computes."""

from __future__ import annotations

import pytest

from tests.pairwise import diagonals
from tests.passes import road
from tests.passes.test_expand_pipeline import CHAIN, POWERS, arguments, main_loop, protocol
from warploom.ir.ops import control
from warploom.ir.types import InFlight
from warploom.schedule.model import Knobs

TEXTS = {"chain": CHAIN, "powers": POWERS}


def uniform(slots: int, warps: int = 8) -> Knobs:
    return Knobs(num_consumer_groups=0, num_warps=warps, num_stages=slots)


def test_one_wait_an_iteration_is_for_both_dots() -> None:
    _, steps = road.lower(road.tile(CHAIN), uniform(3))
    loop = main_loop(steps)
    inside = protocol(loop)
    assert [x for x in inside if x.startswith("pending")] == ["pending 0"]
    assert inside[-1] == "wgmma"  # nothing waits behind the last dot
    assert any(isinstance(p.type, InFlight) for p in loop.regions[0].params)
    assert any(o.kind is control.if_ for o in loop.regions[0].ops)  # the late release


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        (CHAIN, 2),  # both are on their way while threads wait
        # the loop reads the sums of the iteration before beside the next
        (CHAIN.replace("%pb = cast(%p)", "%px = add(%p, %acc)\n      %pb = cast(%px)"), 3),
    ],
    ids=["two slots", "read twice"],
)
def test_what_is_drained_at_once(text: str, slots: int) -> None:
    _, steps = road.lower(road.tile(text), uniform(slots))
    assert protocol(main_loop(steps)).count("pending 0") == 2


@pytest.mark.parametrize(("text", "n"), diagonals(2, [*TEXTS], [0, 64, 100, 192, 300]))
@pytest.mark.each(2)
def test_it_computes_the_same(text: str, n: int) -> None:
    """Trip counts 0, 1 and more; two tiles a program."""
    _, steps = road.lower(road.tile(TEXTS[text]), uniform(3))
    assert protocol(main_loop(steps)).count("pending 0") == 1
    road.check_equal(
        road.tile(TEXTS[text]), arguments(500, n), 2, uniform(3), orders=("late", "early", "seeded")
    )
