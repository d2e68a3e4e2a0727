"""The library's programs that mutants are made of, and inputs of their data runs.

They are small enough for the data runs, with all that the larger ones have: the hand-written GEMM of
tests/golden, attention by hand (causal, two consumers in ping-pong, tiles from a counter), and what the
compiler makes of the library's Triton-style attention (two groups; the library's four, which skip what is of
no use to their rows), dual GEMM and promoted FP8 GEMM (groups that store; a task that stores).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.mutants.change import Mutant, mutants
from tests.mutants.conditions import Seen
from tests.mutants.guards import conditional
from tests.mutants.judge import Trial, seen_in, trial
from warploom.check import Case
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.kernels.attention import ATTENTION_CONFIGS, attention_forward, section_of
from warploom.kernels.dual import dual_gemm_forward
from warploom.kernels.explicit.attention import Attention
from warploom.kernels.fp8 import fp8_gemm_rowwise
from warploom.runtime.config import Config

ROOT = Path(__file__).parents[2]
SEQUENCES = ((1, 1), (1, 100), (1, 300), (2, 200))  # heads, rows
PRODUCTS = (  # M, N, steps along K, programs
    (128, 64, 0, 1),
    (100, 40, 1, 1),
    (128, 64, 3, 1),
    (128, 64, 6, 1),
    (128, 160, 2, 1),
    (256, 128, 3, 2),
)
FAR_PRODUCTS = ((128, 64, 16, 1), (256, 192, 2, 6))  # late iterations; many programs
FAR_SEQUENCES = ((1, 600), (5, 100))


@dataclass(frozen=True, eq=False)
class Program:
    """A function and inputs for data runs.  far: those that reach late iterations and many programs, for
    conditions alone."""

    name: str
    func: Func
    cases: list[Case]
    far: list[Case]

    @cached_property
    def changed(self) -> list[Mutant]:
        """Mutants that differ from it in every run."""
        return list(mutants(self.func))

    @cached_property
    def conditional(self) -> list[Mutant]:
        """Mutants that differ from it under a condition."""
        return list(conditional(self.func, self._seen, self.name))

    @cached_property
    def signed(self) -> list[Mutant]:
        """The same, under conditions that fail where words and numbers are negative."""
        return list(conditional(self.func, self._seen, f"{self.name}/signed", signed=True))

    @cached_property
    def _seen(self) -> list[Seen]:
        return [seen_in(self.func, c) for c in (*self.cases, *self.far)]

    @cached_property
    def trials(self) -> list[Trial]:
        return [trial(self.func, c) for c in self.cases]

    @cached_property
    def far_trials(self) -> list[Trial]:
        return [trial(self.func, c) for c in self.far]


def array(dtype: Any) -> Any:
    """Stands for any: the data runs make their own."""
    return np.zeros(16, dtype)


Made = tuple[Func, list[Case], list[Case]]  # a program, its cases, its far cases


def gemm() -> Made:
    """The hand-written GEMM."""
    file = ROOT / "tests" / "golden" / "gemm_bf16_tn.warp.ir"
    func = parse_func(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    x = array(ml_dtypes.bfloat16)
    return func, *products(lambda m, n, k: (x, x, x, m, 4 * n, k), 64)


def attention_by_hand() -> Made:
    kernel = Attention(causal=True, d=64, block=64, programs=2)
    x, lse, counter = array(ml_dtypes.bfloat16), array(np.float32), np.zeros(2, np.int32)
    signature = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]

    def case(heads: int, rows: int) -> Case:
        tiles = heads * -(-rows // kernel.rows)
        return Case((x, x, x, x, lse, counter, heads, rows, 0.1), (min(2, tiles),))

    placed = kernel.compile(signature).placed
    return placed, [case(*s) for s in SEQUENCES], [case(*s) for s in FAR_SEQUENCES]


TWO_GROUPS = Config(
    {"BLOCK_M": 128, "BLOCK_N": 64, "Q_STAGES": 1, "BALANCED_PAIRS": False},
    num_consumer_groups=2,
    num_buffers_warp_spec=2,
)
FOUR_GROUPS = next(c for c in ATTENTION_CONFIGS[64, True] if c.num_consumer_groups == 4)


def attention(causal: bool, config: Config = TWO_GROUPS) -> Made:
    """Causal: tiles are drawn from a counter; else taken in turn."""
    tile = {
        "D": 64,
        "CAUSAL": causal,
        "GQA_GROUP": 1,
        "LSE": True,
        "DYNAMIC": causal,
        **config.kwargs,
    }
    knobs = {name: x for name, x in config.all_kwargs.items() if name not in config.kwargs}
    signature = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), "*bf16:16")
    signature |= {
        "lse_ptr": "*fp32:16",
        "counter_ptr": "*i32:16",
        "heads": "i32",
        "seq": "i32",
        "section": "i32",
    }
    built = attention_forward.compile({**signature, "scale": "fp32"}, tile, **knobs)
    x, lse, counter = array(ml_dtypes.bfloat16), array(np.float32), np.zeros(2, np.int32)
    block = tile["BLOCK_M"]

    def case(heads: int, rows: int, most: int) -> Case:
        rows = rows * block // 128  # as many tiles whatever their size
        section, tiles = section_of(heads, rows, 64), heads * -(-rows // block)
        # Two tiles of Q in memory: a ring that one program goes round where it has all three tiles.
        programs = 1 if tiles == 3 and tile["Q_STAGES"] == 2 else min(most, tiles)
        return Case((x, x, x, x, lse, counter, heads, rows, section, 0.1), (programs,))

    near, far = [case(*s, 2) for s in SEQUENCES], [case(*s, 5) for s in FAR_SEQUENCES]
    return built.placed, near, far


def products(
    args: Callable[[int, int, int], tuple[Any, ...]], k: int
) -> tuple[list[Case], list[Case]]:
    """The inputs of a product whose steps along K have k columns."""

    def case(m: int, n: int, steps: int, programs: int) -> Case:
        return Case(args(m, n, steps * k), (programs,))

    return [case(*p) for p in PRODUCTS], [case(*p) for p in FAR_PRODUCTS]


def dual(store_task: bool | None = None) -> Made:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2}
    signature = dict.fromkeys(("a_ptr", "b1_ptr", "b2_ptr", "c_ptr"), "*bf16:16")
    signature |= {"scale1": "fp32", "scale2": "fp32"} | dict.fromkeys("MNK", "i32:16")
    built = dual_gemm_forward.compile(
        signature,
        tile,
        num_consumer_groups=2,
        num_buffers_warp_spec=2,
        store_task=store_task,
    )
    x = array(ml_dtypes.bfloat16)
    return built.placed, *products(lambda m, n, k: (x, x, x, x, 1.0, 1.0, m, n, k), 64)


def fp8_promoted(store_task: bool | None = None) -> Made:
    tile = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 2, "PROMOTE": True}
    signature = {"a_ptr": "*fp8e4nv:16", "b_ptr": "*fp8e4nv:16", "c_ptr": "*bf16:16"}
    signature |= {"scale_a_ptr": "*fp32:16", "scale_b_ptr": "*fp32:16"}
    signature |= dict.fromkeys("MNK", "i32:16")
    built = fp8_gemm_rowwise.compile(
        signature,
        tile,
        num_consumer_groups=2,
        num_buffers_warp_spec=2,
        store_task=store_task,
    )
    x, s, c = array(ml_dtypes.float8_e4m3fn), array(np.float32), array(ml_dtypes.bfloat16)
    return built.placed, *products(lambda m, n, k: (x, x, s, s, c, m, n, k), 128)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "gemm": gemm,
    "dual GEMM": dual,
    "dual GEMM, store task": functools.partial(dual, True),
    "FP8 GEMM, promoted": fp8_promoted,
    "FP8 GEMM, promoted, store task": functools.partial(fp8_promoted, True),
    "attention by hand, causal": attention_by_hand,
    "attention": functools.partial(attention, False),
    "attention, causal": functools.partial(attention, True),
    "attention, four groups": functools.partial(attention, True, FOUR_GROUPS),
}


@functools.cache
def program(name: str) -> Program:
    """One of PROGRAMS."""
    return Program(name, *PROGRAMS[name]())
