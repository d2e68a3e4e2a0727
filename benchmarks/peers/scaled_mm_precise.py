"""torch's row-wise scaled product of e4m3, with sums promoted to float32."""

from __future__ import annotations

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate
from benchmarks.peers import scaled_mm

NAME = "torch._scaled_mm, precise"
KINDS = ("fp8",)


def candidates(data: Fp8Data) -> list[Candidate]:
    return scaled_mm.candidates(data, fast=False)
