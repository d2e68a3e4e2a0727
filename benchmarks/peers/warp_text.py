"""A program written as WARP text, through the code generator alone: the golden GEMM by default.

`WARP_TEXT=file.ir` names another one; its parameters must be those of the golden text (pointers to
A, B and C, then M, N, K) and its tile 128×256.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import Data
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "WARP text"
GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "gemm_bf16_tn.warp.ir"


@cache
def loaded(path: str) -> Any:
    """The text's kernel in the driver, ready to prepare launches."""
    from warploom.codegen.emit import emit
    from warploom.compile import lower_explicit
    from warploom.ir.parser import parse_func
    from warploom.runtime.launch import LoadedKernel, driver
    from warploom.runtime.nvrtc import compile_cuda
    from warploom.runtime.signature import plan_of
    from warploom.target import SM_90A

    func = parse_func(Path(path).read_text(), path)
    placed = lower_explicit(func, SM_90A).placed
    emitted = emit(placed, SM_90A)
    build = compile_cuda(emitted.source, name=emitted.name, target=SM_90A)
    if build.problems():
        print(f"{path}: {', '.join(build.problems())}", flush=True)
    return LoadedKernel(driver(), build.cubin, plan_of(emitted, placed))


def candidates(data: Data) -> list[Candidate]:
    case = data.case
    if case.dtype != "bf16" or case.layout != "TN":
        return []
    tiles = -(-case.m // 128) * -(-case.n // 256)

    def candidate(programs: int) -> Candidate:
        def make() -> Run:
            kernel = loaded(os.environ.get("WARP_TEXT", str(GOLDEN)))
            launches = [
                kernel.prepare(
                    torch.cuda.current_device(),
                    (min(tiles, programs), 1, 1),
                    (a.data_ptr(), b.data_ptr(), c.data_ptr(), case.m, case.n, case.k),
                )
                for a, b, c in zip(data.a, data.b, data.c, strict=True)
            ]
            return lambda i: launches[i]()

        return Candidate(f"{programs} programs", make)

    return [candidate(n) for n in (128, 132)]
