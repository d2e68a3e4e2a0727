"""The derived WARP program of the library's gated pair is the hand-written one: the same effects in the same
order, on the same memory, barriers, instructions and registers.  Arithmetic differs: see GATE."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.passes.protocol import Protocol, machinery
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.kernels.dual import dual_gemm_forward
from warploom.kernels.explicit.dual_gemm import DualGemm

# By hand the gate is x · rcp(1 + exp2(-log2(e) · x)); the source says x / (1 + exp(-x)), with scales.
GATE = {"consumer": ["exp2 64x128"], "producer": []}

BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 16}
POINTERS, SIZES = ["*bf16:16"] * 4, ["i32:16"] * 3


@functools.cache
def programs(stages: int = 4, **knobs: Any) -> tuple[Func, Func]:
    """(hand-written, derived)."""
    by_hand = DualGemm(stages=stages).compile([*POINTERS, *SIZES])
    derived = dual_gemm_forward.compile(
        signature=[*POINTERS, "fp32", "fp32", *SIZES], constexprs=BLOCKS,
        num_consumer_groups=2, num_buffers_warp_spec=stages, **knobs,
    )  # fmt: skip
    return parse_func(by_hand.ir["WARP"]), parse_func(derived.ir["WARP"])


def only_by_hand(by_hand: Func, derived: Func) -> dict[str, list[str]]:
    """Task -> lines of the hand-written program that the derived one lacks; raises where it has more, or
    another order."""
    found = {}
    theirs, mine = (Protocol(f).tasks() for f in (by_hand, derived))
    assert theirs.keys() == mine.keys()
    for name, lines in theirs.items():
        left = iter(mine[name])
        next_line, lacking = next(left, None), []
        for line in lines:
            if line == next_line:
                next_line = next(left, None)
            else:
                lacking.append(line.strip())
        assert next_line is None, f"{name}: {next_line.strip()} is not the hand-written program's"
        found[name] = lacking
    return found


@pytest.mark.parametrize("stages", [3, 4])
def test_the_same_effects_in_the_same_order(stages: int) -> None:
    assert only_by_hand(*programs(stages)) == GATE


def test_without_turns_they_differ() -> None:
    lacking = only_by_hand(*programs(stagger_epilogues=False))["consumer"]
    assert lacking.count("take turn") == 1 and lacking.count("pass turn") == 2


@pytest.mark.parametrize("stages", [3, 4])
def test_on_the_same_machinery(stages: int) -> None:
    by_hand, derived = map(machinery, programs(stages))
    assert derived == by_hand
    assert derived["dots"] == [((64, 64), (64, 256))]
