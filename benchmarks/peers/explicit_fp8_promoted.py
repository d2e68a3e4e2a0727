"""Warploom's explicit door: row-wise scaled e4m3 with sums promoted to float32, in all its variants."""

from __future__ import annotations

from benchmarks.data import Fp8Data, multiprocessors
from benchmarks.measure import Candidate
from benchmarks.peers.explicit_fp8 import variants

NAME = "explicit fp8, promoted"
KINDS = ("fp8",)


def candidates(data: Fp8Data) -> list[Candidate]:
    if data.case.layout != "TN":
        return []
    from warploom.kernels.explicit.fp8_gemm import TunedFp8GemmPromoted

    return variants(data, TunedFp8GemmPromoted(multiprocessors()))
