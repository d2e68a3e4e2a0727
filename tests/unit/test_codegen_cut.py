"""Rows that begin inside units of 16 bytes, as text: what lies wholly in the array is cut without questions, and
a producer loads the next step's units early where nothing in its loop orders memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes import kernels, road
from tests.passes.kernels import View
from warploom.codegen.emit import emit
from warploom.compile import lower
from warploom.schedule.model import Knobs
from warploom.target import SM_90A

ODD = View("a", "M", "K", "la", kernels.ODD)
EVEN = View("b", "K", "N", "lb", kernels.ALIGNED)
SPECIALIZED = Knobs(num_consumer_groups=2)


def source(func: str, knobs: Knobs) -> str:
    return emit(lower(road.tile(func), knobs, SM_90A).placed, SM_90A).source


def loop_of(text: str) -> str:
    """The producer's loop along K."""
    producer = text[text.index("==== producer") :]
    return producer[producer.index("++k)") :]


def test_whole_boxes_are_cut_without_masks() -> None:
    whole, part = loop_of(source(kernels.gemm(128, 64, 64, ODD, EVEN), SPECIALIZED)).split("else {")
    assert whole.count("= cut<2>(units +") == part.count("= shifted<2>(") == 8
    assert "load_units(" not in whole and "load_whole(" not in part
    assert "if (elements_left(row, M" in whole  # `row` is a product of what is not negative


def test_the_next_units_are_loaded_as_soon_as_these_are_cut() -> None:
    text = source(kernels.gemm(128, 64, 64, ODD, EVEN), SPECIALIZED)
    assert "u32 units[64];\n      bool units_are_read;\n      units_are_read = false;\n" in text
    loop = loop_of(text)
    first = loop.index("if (!units_are_read)")
    again = loop.index("if (units_are_read)")
    cuts = [loop.index(f"cut<2>(units + {i}") for i in (0, 24, 32)]
    assert first < cuts[0] < cuts[1] < again < cuts[2] and loop.count("if (units_are_read)") == 2
    assert "load_whole(units + 0, units2 + 64, second);" in loop[again : cuts[2]]
    assert "units_are_read = false;" in loop.split("else {")[1]


@pytest.mark.parametrize(
    "knobs",
    [
        Knobs(num_consumer_groups=0, num_warps=8),
        replace(SPECIALIZED, reg_dec_producer=104, reg_inc_consumer=200),
    ],
    ids=["uniform", "few registers"],
)
def test_elsewhere_they_are_loaded_in_their_step(knobs: Knobs) -> None:
    text = source(kernels.gemm(128, 64, 64, ODD, EVEN), knobs)
    assert "are_read" not in text and "cut<2>(units" in text
