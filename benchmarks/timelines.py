"""Measured beside predicted: the library's GEMM and the explicit attention, for docs/timeline.md.

python -m benchmarks.timelines --out FOLDER    timelines.json, and of each kernel a picture and a trace

Needs a GPU and torch.  `exact`: the last launch with stamps left the same bits as the plain kernel.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from warploom.runtime.launch import driver
from warploom.timeline.compare import Comparison

GEMM_TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 16}
DRAWN = {"gemm": 12_000.0, "attention": 14_000.0}  # cycles


def gemm(size: int, k: int) -> tuple[Comparison, bool]:
    """The library's GEMM: C = A·Bᵀ of bf16 arrays stored row by row, 132 persistent programs."""
    from warploom.kernels.gemm import gemm_pointers

    a, b = (torch.randn(size, k, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
    arguments = (a, b, c, size, size, k, k, 1, 1, k, size, 1)
    knobs = {"num_consumer_groups": 2}
    kernel = gemm_pointers.compile_for(*arguments, grid=(132,), **GEMM_TILE, **knobs)
    gemm_pointers[(132,)](*arguments, **GEMM_TILE, **knobs)
    plain = c.clone()
    found = kernel.timeline(*arguments, grid=(132,), measured=True)
    return found, bool(torch.equal(plain, c))


def attention(heads: int, seq: int, d: int) -> tuple[Comparison, bool]:
    """The explicit attention, one tile a program (tiles that are drawn from a counter can't be predicted for
    one program alone)."""
    from warploom.kernels.explicit.attention import Attention

    q, k, v, o = (torch.randn(heads, seq, d, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    lse = torch.empty(heads, seq, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    scale = d**-0.5 * math.log2(math.e)
    kernel = Attention(d=d)
    arguments = (q, k, v, o, lse, counter, heads, seq, scale)
    kernel(*arguments)
    plain = o.clone()
    found = kernel.timeline(*arguments, measured=True)
    return found, bool(torch.equal(plain, o))


CASES: dict[str, Callable[[], tuple[Comparison, bool]]] = {
    "gemm": lambda: gemm(4096, 1024),
    "gemm 4096": lambda: gemm(4096, 4096),
    "attention": lambda: attention(12, 1408, 128),
}


def facts(found: Comparison, is_exact: bool) -> dict[str, Any]:
    """What docs/timeline.md quotes."""
    measured = found.measured.stalls()
    predicted = found.predicted.stalls()
    return {
        "exact": is_exact,
        "cut": found.is_cut,
        "plain_ms": found.plain_ms,
        "stamped_ms": found.stamped_ms,
        "cycles": {"predicted": found.predicted.cycles, "measured": found.measured.cycles},
        "stalls": [
            {"for": b, "agent": a, "predicted": predicted.get((b, a), 0.0), "measured": m}
            for (b, a), m in sorted(measured.items(), key=lambda item: -item[1])
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"device": driver().device_name(0)}
    for name in args.cases.split(","):
        found, is_exact = CASES[name]()
        print(f"{name}: exact {is_exact}\n{found}\n", flush=True)
        results[name] = facts(found, is_exact)
        stem = name.replace(" ", "_")
        found.save(args.out / f"{stem}.json")
        if name in DRAWN:
            found.window(DRAWN[name]).save(args.out / f"{stem}.svg")
        (args.out / "timelines.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
