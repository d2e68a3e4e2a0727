"""Triton with tensor descriptors: row-wise scaled e4m3 with sums promoted to float32 every 128 of K."""

from __future__ import annotations

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate
from benchmarks.peers.triton_fp8 import PROMOTED, variants

NAME = "Triton fp8, promoted"
KINDS = ("fp8",)


def candidates(data: Fp8Data) -> list[Candidate]:
    plain = variants(data, PROMOTED, imprecise=128)
    specialized = variants(data, PROMOTED[:2], specialize=True, imprecise=128)
    for candidate in specialized:
        candidate.label += " warp_specialize"
    return plain + specialized
