"""What an H200 answered: sums by chains of wgmma and of mma.sync, as bits.

tensor_core_h200.npz holds 2159 of 37 120 recorded answers, those that tell the rule's neighbours apart and
some of each category.  a, b: (n, 128) bytes, of which the first 32 · steps are K elements in order; c, d: bits;
steps: chained instructions; format, kernel, category: indices into formats, kernels, categories.  Kernels: ssN
wgmma of shared memory, rsN with A in registers, _nc with scale-d false (c is stored as 0), mm1 mma.sync."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.ir.types import DTYPES, DType
from warploom.sim.tensor_core import Arithmetic, accumulate
from warploom.sim.tensor_core import rule as rule_of
from warploom.target.sm_90a import MMA_SYNC, WGMMA

FILE = Path(__file__).with_name("tensor_core_h200.npz")
# name of a format -> A, B, accumulator
FORMATS = {
    "f16": ("f16", "f16", "f32"),
    "bf16": ("bf16", "bf16", "f32"),
    "tf32": ("f32", "f32", "f32"),
    "e4m3": ("f8e4m3", "f8e4m3", "f32"),
    "e5m2": ("f8e5m2", "f8e5m2", "f32"),
    "e4m3_e5m2": ("f8e4m3", "f8e5m2", "f32"),
    "f16_f16": ("f16", "f16", "f16"),
    "e4m3_f16": ("f8e4m3", "f8e4m3", "f16"),
    "e5m2_f16": ("f8e5m2", "f8e5m2", "f16"),
}
UNRECORDED = {  # which the GPU is asked all the same
    "e5m2_e4m3": ("f8e5m2", "f8e4m3", "f32"),
    "e4m3_e5m2_f16": ("f8e4m3", "f8e5m2", "f16"),
}


@dataclass(frozen=True)
class Answers:
    """Sums of one format by one kernel: a, b (n, K), c and d (n,)."""

    format: str
    kernel: str
    a: Any
    b: Any
    c: Any
    d: Any

    @property
    def dtypes(self) -> tuple[DType, DType, DType]:
        return dtypes_of(self.format)

    @property
    def rule(self) -> Arithmetic:
        return rule_of(MMA_SYNC if self.kernel.startswith("mm") else WGMMA, *self.dtypes)

    def wrong(self, rule: Arithmetic) -> int:
        """How many sums a rule gets wrong, bit for bit."""
        wrong = 0
        for at in range(0, self.d.size, 32):
            a, b, c, d = (x[at : at + 32] for x in (self.a, self.b, self.c, self.d))
            start = np.broadcast_to(c[:, None], (c.size, c.size))
            found = np.diagonal(accumulate(a, b.T, start, rule)).view(d.dtype)
            wrong += int((found != d).sum())
        return wrong


def dtypes_of(name: str) -> tuple[DType, DType, DType]:
    a, b, accumulator = {**FORMATS, **UNRECORDED}[name]
    return DTYPES[a], DTYPES[b], DTYPES[accumulator]


def answers() -> Iterator[Answers]:
    """All recorded ones, by format, kernel and length."""
    z = np.load(FILE)
    kinds = np.stack([z["format"], z["kernel"], z["steps"]], axis=1)
    for kind in np.unique(kinds, axis=0):
        at = (kinds == kind).all(axis=1)
        name, kernel = str(z["formats"][kind[0]]), str(z["kernels"][kind[1]])
        a, b, accumulator = dtypes_of(name)
        word = np.dtype(f"u{accumulator.bytes}")
        left, right = (np.ascontiguousarray(z[x][at, : 32 * kind[2]]) for x in "ab")
        c, d = (z[x][at].astype(word) for x in "cd")
        yield Answers(
            name, kernel, left.view(a.numpy), right.view(b.numpy), c.view(accumulator.numpy), d
        )
