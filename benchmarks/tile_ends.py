"""From how much arithmetic behind the main loop on it pays that consumer groups stagger their epilogues.

    python -m benchmarks.tile_ends --out out/tile_ends.jsonl

C = f(A·Bᵀ) in bf16, persistent, two groups; f is so many rounds of exp2.  Each staggered and not, with
as many slots, alternating, in bursts (`benchmarks/measure.py`), in TFLOP/s.  This is what
schedule/epilogues.py's LONG stands on.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import torch

import warploom as wl
import warploom.language as tl
from benchmarks.measure import begun
from benchmarks.records import Record, write
from warploom.bench import Clock, in_turn

SHAPES = [(8192, 8192, 1024), (8192, 8192, 4096)]
ENDS = [(256, 0), (256, 1), (256, 2), (256, 4), (128, 1), (128, 3)]  # columns of a tile, rounds
SLOTS = {
    256: (3, 4),
    128: (5, 6),
}  # of the ring, by columns: with four or two buffers of staging, or one
WAYS: dict[str, dict[str, Any]] = {
    "staggered": {"stagger_epilogues": True},
    "together": {"stagger_epilogues": False},
    "staggered, task": {"stagger_epilogues": True, "store_task": True},
    "together, task": {"stagger_epilogues": False, "store_task": True},
}
SETS, BURSTS = 4, 3


@wl.jit
def activated(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ROUNDS: tl.constexpr,
) -> None:  # fmt: skip
    """C = exp2(… exp2(A·Bᵀ / 64) / 64 …)."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    for t in tl.range(tl.program_id(0), tiles_m * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        m = t % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = t // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
            b = tl.load(b_ptr + n * K + k[:, None], mask=(n < N) & (k[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc)
        for _ in tl.static_range(ROUNDS):
            acc = tl.exp2(acc * 0.015625)
        tl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def measured(m: int, n: int, k: int, columns: int, rounds: int) -> list[Record]:
    """A record a way to end tiles; config: the cycles of an end, and whether the compiler would stagger."""
    draw = {"device": "cuda", "dtype": torch.bfloat16}
    sets = [(torch.randn(m, k, **draw), torch.randn(n, k, **draw)) for _ in range(SETS)]
    c = torch.empty(m, n, **draw)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    blocks = {"BLOCK_M": 128, "BLOCK_N": columns, "BLOCK_K": 64, "ROUNDS": rounds}
    ways = {}
    for slots in SLOTS[columns]:
        for how, asked in WAYS.items():
            knobs = {
                **blocks, **asked, "num_consumer_groups": 2, "num_buffers_warp_spec": slots
            }  # fmt: skip
            name = f"{how}, {slots} slots"
            ways[name] = [
                activated.prepare(a, b, c, m, n, k, grid=(programs,), **knobs) for a, b in sets
            ]
    automatic = {**blocks, "num_consumer_groups": 2}
    kernel = activated.compile_for(*sets[0], c, m, n, k, grid=(programs,), **automatic)
    told = re.search(r"(\d+) cycles of", kernel.explain())
    config = (
        f"{told.group(1) if told else '?'} cycles, chosen: {bool(kernel.schedule.staggered_loops)}"
    )
    runs = {name: (lambda i, x=launches: x[i]()) for name, launches in ways.items()}
    case = f"{m}x{n}x{k} tile 128x{columns}, {rounds} rounds"
    return [
        Record(case, name, burst=[2 * m * n * k / ms / 1e9 for ms in spent], config=config)
        for name, spent in in_turn(Clock(), runs, SETS, BURSTS).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    report, run = begun("TFLOP/s")
    for m, n, k in SHAPES:
        for columns, rounds in ENDS:
            records = measured(m, n, k, columns, rounds)
            for record in records:
                record.run = run
            report.records += records
            write(out, report)
            print(f"{records[0].case}: {records[0].config}")
            for record in records:
                print(f"    {record.peer:30s} {record.median:.0f}", flush=True)


if __name__ == "__main__":
    main()
