"""Flash attention written by hand: numbers, proof, resources, machine code."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests import sass
from tests.pairwise import every
from tests.softmax import expected
from warploom.check import check
from warploom.errors import WarploomWarning
from warploom.kernels.explicit.attention import Attention, configs

SIGNATURE = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")


@functools.cache
def compiled(**options: Any) -> Any:
    return Attention(**options).compile(SIGNATURE)


@pytest.mark.parametrize(
    ("heads", "seq", "options"),
    every(
        3,
        [
            (2, 200, {}),
            (1, 140, {"causal": True, "pingpong": False}),
            (3, 300, {"causal": True, "lse": True, "programs": 2}),
            (4, 129, {"shared_by": 4, "q_stages": 2, "programs": 3, "lse": True}),
            (1, 1, {"causal": True, "lse": True}),
            (2, 330, {"d": 64, "groups": 3, "eighths": 0, "programs": 1}),
            (1, 400, {"d": 64, "groups": 3, "causal": True, "eighths": 0}),
            (1, 200, {"d": 64, "causal": True, "block": 64, "q_stages": 2}),
            (2, 150, {"groups": 1, "pingpong": False, "stages": 3, "block": 64}),
            (3, 300, {"store_role": True, "programs": 2, "lse": True}),
            (2, 330, {"d": 64, "groups": 3, "causal": True, "store_role": True, "programs": 1}),
        ],
    ),
)
@pytest.mark.each(2)
def test_it_computes_attention(heads: int, seq: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(seq)
    d, kv_heads = options.get("d", 128), heads // options.get("shared_by", 1)
    q, k, v = (
        rng.standard_normal((n, seq, d)).astype(ml_dtypes.bfloat16)
        for n in (heads, kv_heads, kv_heads)
    )
    o, lse = np.full_like(q, np.nan), np.full((heads, seq), np.nan, np.float32)
    counter = np.zeros(2, np.int32)
    Attention(**options)(q, k, v, o, lse, counter, heads, seq, d**-0.5 * np.log2(np.e))
    assert not counter.any()  # as the next launch wants it
    right, right_lse = expected(q, k, v, options.get("causal", False))
    error = np.abs(o.astype(np.float64) - right)
    assert error.max() < 0.02 and np.sqrt((error**2).mean()) < 0.002
    if options.get("lse"):
        assert np.abs(lse - right_lse).max() < 1e-5
    else:
        assert np.isnan(lse).all()


VARIANTS = [
    *({"d": 128, "causal": causal, **configs(128, causal, 4096)[0]} for causal in (False, True)),
    *({"d": 64, "causal": causal, **configs(64, causal, 4096)[causal]} for causal in (False, True)),
    {"d": 64, "causal": True, **configs(64, True, 1024)[0]},
    {"q_stages": 2, "eighths": 0, "lse": True, "pingpong": False},
    {"causal": True, "eighths": 3, "store_role": True},
    {"d": 64, "groups": 3, "causal": True, "eighths": 0, "q_stages": 2, "store_role": True},
]


@pytest.mark.parametrize("options", every(2, VARIANTS))
@pytest.mark.each(2)
def test_it_compiles_without_spills(options: dict[str, Any]) -> None:
    assert compiled(**options).resources.problems() == ()


def test_a_tile_that_does_not_fit_is_told() -> None:
    """160 registers for 72 + 36 + 32 of S, P and O, and what else there is."""
    with pytest.warns(WarploomWarning, match=r"spills.*consumer 160"):
        compiled(d=64, groups=3, block=144, eighths=0)


@needs_nvdisasm
@pytest.mark.parametrize("options", every(4, VARIANTS))
@pytest.mark.each(2)
def test_the_wait_stands_where_it_was_put_and_nothing_is_to_spare(options: dict[str, Any]) -> None:
    """A block of 64 × 128 in 128 threads: 64 exponentials, each with its scaling folded into one FFMA, packed
    conversions, and no move of a matrix register.  With the 2 of the rescaling, those asked for come before the
    second wait, and a few that the assembler moved up; without hold it is at most those few."""
    eighths, d = options.get("eighths", 2), options.get("d", 128)
    for loop in sass.loops(compiled(**options).cubin):
        first, held, late = loop.before_waits("MUFU.EX2")
        assert first == 0 and held + late == 66
        assert held <= 2 if eighths == 0 else 8 * eighths + 2 <= held <= 8 * eighths + 16
    assert loop.count("HGMMA") == d // 16 + 8
    assert loop.count("FFMA") <= 70 and loop.count("FMUL") <= d // 2 + 4
    assert loop.count("FADD") <= 64 and loop.count("FMNMX") <= 70
    assert loop.count("F2FP") == 32 and loop.count("SHFL") == 4
    assert loop.count("MOV") + loop.count("FSEL") <= 2
    assert len(loop.body) <= 420 + 60 * (d == 128)


@pytest.mark.parametrize(
    "options",
    every(
        3,
        [
            {"causal": True},
            {"d": 64, "groups": 3, "eighths": 0},
            {"d": 64, "groups": 3, "eighths": 0, "store_role": True},
        ],
        first=2,
    ),
)
def test_it_is_proved(options: dict[str, Any]) -> None:
    x, lse = np.zeros(16, ml_dtypes.bfloat16), np.zeros(4, np.float32)
    counter = np.zeros(2, np.int32)
    kernel = Attention(**options)
    sizes = [(1, 1), (1, 200), (3, 300)]
    cases = [
        ((x, x, x, x, lse, counter, heads, seq, 0.1), (min(2, heads * -(-seq // kernel.rows)), 1))
        for heads, seq in sizes
    ]
    report = check(compiled(**options).placed, cases)
    assert report.ok, str(report)
    assert len(report.runs) == len(cases)
