"""Warploom: the library's GEMM from its Triton-style source, in clusters (num_ctas)."""

from __future__ import annotations

from benchmarks.data import Data, multiprocessors
from benchmarks.measure import Candidate
from benchmarks.peers.warploom import bind

NAME = "warploom in clusters"


def candidates(data: Data) -> list[Candidate]:
    from warploom.kernels.gemm import persistent_grid

    # of 4 CTAs only 30 clusters fit on an H200's 132 multiprocessors
    clusters = {2: multiprocessors() // 2, 4: multiprocessors() // 11 * 10 // 4}

    def candidate(tile: tuple[int, int, int], ctas: int, band: int) -> Candidate:
        (programs,) = persistent_grid(data.case.m, data.case.n, clusters[ctas])(
            {"BLOCK_M": tile[0], "BLOCK_N": tile[1]}
        )
        return Candidate(
            f"{tile} x {ctas} CTAs, band {band}, {programs} clusters",
            lambda: bind(data, tile, band, programs, num_ctas=ctas, num_consumer_groups=2),
        )

    return [
        candidate(tile, ctas, band)
        for tile, ctas in (((256, 256, 64), 2), ((128, 512, 64), 2), ((512, 256, 64), 4))
        for band in (4, 8)
    ]
