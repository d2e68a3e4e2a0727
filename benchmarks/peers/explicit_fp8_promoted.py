"""Warploom's explicit door: row-wise scaled e4m3 with sums promoted to float32, written by hand."""

from __future__ import annotations

from benchmarks.harness import Candidate
from benchmarks.peers.explicit_fp8 import candidate
from benchmarks.products import Fp8Data

NAME = "explicit fp8, promoted"
KINDS = ("fp8",)

# block_n, pieces, stages
SHAPES = [(256, 4, 3), (192, 2, 4), (192, 1, 4), (128, 2, 5), (128, 1, 5)]


def candidates(data: Fp8Data) -> list[Candidate]:
    from warploom.kernels.explicit.fp8_gemm import Fp8GemmPromoted

    return [
        candidate(data, Fp8GemmPromoted, block_n=n, pieces=pieces, stages=stages, turns=turns)
        for n, pieces, stages in SHAPES
        for turns in (False, True)
    ]
