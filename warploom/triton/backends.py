"""triton.backends.compiler: the target's name."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from warploom.target import Target

__all__ = ["GPUTarget", "compiler"]

compiler = sys.modules[__name__]


@dataclass(frozen=True)
class GPUTarget:
    """backend "cuda", the compute capability (90) and the size of a warp."""

    backend: str
    arch: int
    warp_size: int

    @staticmethod
    def of(target: Target) -> GPUTarget:
        digits = "".join(c for c in target.name if c.isdigit())
        return GPUTarget("cuda", int(digits), 32)
