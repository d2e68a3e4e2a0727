"""Warploom's explicit door: row-wise scaled e4m3 with sums promoted to float32, written by hand."""

from __future__ import annotations

from benchmarks.harness import Candidate
from benchmarks.peers.explicit_fp8 import candidate
from benchmarks.products import Fp8Data

NAME = "explicit fp8, promoted"
KINDS = ("fp8",)

SHAPES: list[dict[str, int]] = [
    {"block_n": 192},
    {"block_n": 192, "turns": 1},
    {"block_n": 192, "stages": 5, "rounds": 2},
    {"block_n": 208},
    {"block_n": 176},
    {"block_n": 256, "pieces": 2},
    {"block_n": 256, "pieces": 2, "turns": 1},
    {"block_n": 256, "pieces": 4, "in_flight": 2},
    {"block_n": 128, "stages": 6},
]


def candidates(data: Fp8Data) -> list[Candidate]:
    from warploom.kernels.explicit.fp8_gemm import Fp8GemmPromoted

    return [
        candidate(data, Fp8GemmPromoted, band=band, **how) for how in SHAPES for band in (8, 16)
    ]
