"""Triton's gated pair of products: one persistent kernel with tensor descriptors, weights as given."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.harness import Candidate, Run
from benchmarks.products import DualData

NAME = "Triton dual, persistent TMA"
KINDS = ("dual",)


@triton.jit
def dual_gemm(
    a, b1, b2, c, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    k_steps = tl.cdiv(K, BK)
    for tile in tl.range(
        tl.program_id(0), m_tiles * n_tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=SPECIALIZE
    ):
        band = tile // (BAND * n_tiles)
        in_band = tile % (BAND * n_tiles)
        rows = tl.minimum(m_tiles - band * BAND, BAND)
        row = (band * BAND + in_band % rows) * BM
        column = (in_band // rows) * BN
        gate = tl.zeros((BM, BN), dtype=tl.float32)
        up = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(k_steps):
            x = a.load([row, step * BK])
            gate = tl.dot(x, b1.load([column, step * BK]).T, gate)
            up = tl.dot(x, b2.load([column, step * BK]).T, up)
        out = (gate / (1 + tl.exp(-gate)) * up).to(c.dtype)
        if SPECIALIZE:  # the pass cuts BM in two, but not a descriptor of the host's
            m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
            inside = (m[:, None] < M) & (n[None, :] < N)
            tl.store(c_ptr + m[:, None] * N + n[None, :], out, mask=inside)
        else:
            c.store([row, column], out)


# BM, BN, BK, BAND, warps, stages
CONFIGS = [
    (128, 128, 64, 8, 8, 3),
    (128, 128, 64, 16, 8, 3),
    (128, 128, 64, 8, 8, 4),
    (128, 128, 32, 8, 8, 4),
    (128, 64, 64, 8, 4, 4),
    (128, 64, 64, 8, 8, 4),
]


def bind(data: DualData, config: tuple[int, ...], flatten: bool, specialize: bool) -> Run:
    """A run of one configuration; the descriptors are made beforehand."""
    case = data.case
    bm, bn, bk, band, warps, stages = config
    sets = [
        [
            TensorDescriptor.from_tensor(x, block)
            for x, block in zip(tensors, ([bm, bk], [bn, bk], [bn, bk], [bm, bn]), strict=True)
        ]
        for tensors in zip(data.a, data.b1, data.b2, data.c, strict=True)
    ]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    programs = min(sms, triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn))

    def run(i: int) -> None:
        dual_gemm[(programs,)](
            *sets[i], data.c[i], case.m, case.n, case.k, BM=bm, BN=bn, BK=bk, BAND=band, PROGRAMS=programs,
            FLATTEN=flatten, SPECIALIZE=specialize, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    return run


def candidates(data: DualData) -> list[Candidate]:
    return [
        Candidate(
            f"{config}{' flatten' if flatten else ''}",
            lambda config=config, flatten=flatten: bind(data, config, flatten, False),  # type: ignore[misc]
        )
        for config in CONFIGS
        for flatten in (False, True)
    ]
