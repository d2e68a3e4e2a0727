"""The workloads, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gemm:
    """C[M,N] = A·B.  Layout TN: B is stored N×K (so C = A·Bᵀ of row-major arrays); NN: B is stored K×N."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "TN"

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


CORE = [
    Gemm(8192, 8192, 8192),
    Gemm(4096, 4096, 4096),
    Gemm(2048, 2048, 2048),
    Gemm(8192, 8192, 512),
]

# The cases of the bars: the shapes that peers were measured on, and a short K.
_TN = [(8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (16384, 4096, 4096)]
_TN += [(4096, 4096, 16384), (64, 8192, 8192), (8192, 8192, 512)]
_NN = [(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (64, 8192, 8192)]
_NN += [(8192, 8192, 512)]
BARS = [Gemm(*shape) for shape in _TN]
BARS += [Gemm(*shape, layout="NN") for shape in _NN]
BARS += [Gemm(*shape, dtype="fp16") for shape in _TN[:2]]

CASES: dict[str, list[Gemm]] = {"core": CORE, "bars": BARS, "one": CORE[:1]}
