"""Compares the reference kernel with float64, each shape in a process of its own with a time limit.

python -m benchmarks.reference.run [M N K]
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

# One tile, edges in each direction, K under a step and no multiple of one, fewer and many more
# tiles than programs, an incomplete band; all with N and K multiples of 8 (tensor maps want that).
SHAPES = [
    (128, 256, 64),
    (1, 8, 8),
    (129, 264, 72),
    (256, 512, 4096),
    (2560, 4104, 328),
    (4224, 8192, 1024),
    (3000, 5000, 2000),
    (8192, 8192, 512),
]
LIMIT_S = 90


def check(m: int, n: int, k: int) -> float:
    """The relative error of three runs on fresh data (NaN if something was not written)."""
    import torch

    from benchmarks.peers.reference import loaded

    worst = 0.0
    for seed in range(3):
        random = torch.Generator(device="cuda").manual_seed(seed)
        a, b = (
            torch.randn(rows, k, device="cuda", generator=random).to(torch.bfloat16)
            for rows in (m, n)
        )
        guard = torch.full((m + 2, n), math.nan, device="cuda", dtype=torch.bfloat16)
        out = guard[1:-1]
        loaded().prepare(a, b, out, torch.cuda.current_stream().cuda_stream)()
        torch.cuda.synchronize()
        if not bool(guard[0].isnan().all()) or not bool(guard[-1].isnan().all()):
            return math.nan  # wrote outside
        reference = a.double() @ b.double().t()
        error = float((out.double() - reference).norm() / reference.norm())
        worst = error if math.isnan(error) else max(worst, error)
        if math.isnan(worst):
            return worst
    return worst


def main(argv: Sequence[str]) -> int:
    if len(argv) == 3:
        m, n, k = map(int, argv)
        error = check(m, n, k)
        print(f"{m}x{n}x{k}: relative error {error:.2e}")
        return 0 if error < 6e-3 else 1
    command = [sys.executable, "-m", "benchmarks.reference.run"]
    running = [subprocess.Popen([*command, *map(str, shape)]) for shape in SHAPES]
    failed = 0
    for shape, process in zip(SHAPES, running, strict=True):
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = -1
        if code:
            print(f"{shape}: {'hung' if code == -1 else f'failed ({code})'}", flush=True)
            failed += 1
    print(f"reference kernel: {len(SHAPES) - failed} of {len(SHAPES)} shapes right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
