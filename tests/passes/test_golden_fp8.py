"""The derived WARP programs of the library's 8-bit products beside the hand-written ones: the same effects in the
same order, on the same slots and dots, but for the end of a tile, which is explained."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from tests.passes.protocol import Protocol, machinery
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.kernels.explicit.fp8_gemm import Fp8Gemm, Fp8GemmPromoted
from warploom.kernels.fp8 import FP8_CONFIGS, FP8_PROMOTED_CONFIGS, fp8_gemm_rowwise

SIGNATURE = [*["*fp8e4nv:16"] * 2, *["*fp32:16"] * 2, "*bf16:16", *["i32:16"] * 3]
BY_HAND: dict[str, Any] = {
    "fast": Fp8Gemm(),
    "fast, a task stores": Fp8Gemm(),
    "promoted, whole": Fp8GemmPromoted(),
    "promoted, in halves": Fp8GemmPromoted(block_n=256, pieces=2, stages=3),
}
CONFIGS = {
    "fast": replace(FP8_CONFIGS[2], store_task=None),
    "fast, a task stores": FP8_CONFIGS[2],
    "promoted, whole": FP8_PROMOTED_CONFIGS[0],
    "promoted, in halves": FP8_PROMOTED_CONFIGS[2],
}
# Behind the loop.  By hand, a piece of the columns at a time: scaled, staged whole behind the store before it;
# the scales' slot is left without a fence, as wgmma's operands are.  Derived: the slot is left as soon as it is
# read; then the columns leave whole as well (`store_whole`), or are left to a task that stores, whole or in chunks of
# 64.
PIECE = [
    "store_wait",
    "group_sync",
    "shared_store c",
    "fence_async",
    "group_sync",
    "store c",
    "store_commit",
]
LAST = [*PIECE[:3], "arrive empty scale_b", *PIECE[3:]]
HANDED = ["wait out_free", "shared_store c", "fence_async", "arrive out_filled"]
LEFT = ["shared_load", "shared_load", "fence_async", "arrive empty scale_b"]
END_BY_HAND = {
    "fast": ["shared_load", "shared_load", *LAST, "store_wait"],
    "fast, a task stores": ["shared_load", "shared_load", *LAST, "store_wait"],
    "promoted, whole": ["shared_load", "shared_load", *LAST, "store_wait"],
    "promoted, in halves": [
        "shared_load", "shared_load", *PIECE, "shared_load", *LAST, "store_wait",
    ],
}  # fmt: skip
END = {
    "fast": [*LEFT, *PIECE, "store_wait"],
    "fast, a task stores": [*LEFT, *HANDED],
    "promoted, whole": [*LEFT, *HANDED * 3],
    "promoted, in halves": [*LEFT, *HANDED * 4],
}


@functools.cache
def programs(name: str) -> tuple[Func, Func]:
    """(hand-written, derived)."""
    options = dict(CONFIGS[name].all_kwargs)
    constexprs = {key: options.pop(key) for key in CONFIGS[name].kwargs}
    derived = fp8_gemm_rowwise.compile(signature=SIGNATURE, constexprs=constexprs, **options)
    by_hand = BY_HAND[name].compile(SIGNATURE)
    return parse_func(by_hand.ir["WARP"]), parse_func(derived.ir["WARP"])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.each(2)
def test_the_same_effects_until_the_scales_are_read(name: str) -> None:
    """Line by line: both tasks, but for the end of a tile."""
    by_hand, derived = (Protocol(f).tasks() for f in programs(name))
    assert derived["producer"] == by_hand["producer"]
    ends = []
    for lines in (by_hand["consumer"], derived["consumer"]):
        at = next(i for i, line in enumerate(lines) if line.strip() == "shared_load")
        ends.append([line.strip() for line in lines[at:]])
        del lines[at:]
    assert derived["consumer"] == by_hand["consumer"]
    assert ends == [END_BY_HAND[name], END[name]]


@pytest.mark.parametrize("name", CONFIGS)
def test_on_the_same_machinery(name: str) -> None:
    by_hand, derived = map(machinery, programs(name))
    for what in ("bytes", "dots"):
        assert derived[what] == by_hand[what]
    assert derived["barriers"][:2] == by_hand["barriers"][:2]  # those of the operands
    (depth, _), *_ = derived["barriers"]
    rings = ([slot for slot in x["slots"] if slot[0] == depth] for x in (by_hand, derived))
    first, second = rings
    assert first == second and len(first) == 2
