"""triton.backends.compiler: the target's name."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from warploom.target import Target

__all__ = ["GPUTarget", "compiler"]

__path__: list[str] = []  # a package, for `import triton.backends.compiler`
compiler = sys.modules[f"{__name__}.compiler"] = sys.modules[__name__]


@dataclass(frozen=True)
class GPUTarget:
    """backend "cuda", the compute capability (90) and the size of a warp; without a GPU "cpu", 0 and 0."""

    backend: str
    arch: int
    warp_size: int

    @staticmethod
    def of(target: Target) -> GPUTarget:
        digits = "".join(c for c in target.name if c.isdigit())
        return GPUTarget("cuda", int(digits), 32)


CPU = GPUTarget("cpu", 0, 0)
