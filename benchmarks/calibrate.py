"""The cost table of warploom/target/sm_90a.py, measured: micro-kernels (benchmarks/probes.py), whole kernels.

python -m benchmarks.calibrate --out FILE    measure on the GPU (needs torch); --only "in order": the rate of
                                             mma.sync alone
python -m benchmarks.calibrate --fit FILE    the cost table that a file of measurements gives, and how far
                                             predictions made with the current table are off; needs no GPU

A micro-kernel is timed by its own clock (`warploom.runtime.measure.cycles`: no stamp but at the start and the
end of tasks), at two numbers of iterations; what counts is what an iteration more costs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import probes
from benchmarks.measure import begun
from benchmarks.records import Record, read, write
from warploom.sim.machine import simulate
from warploom.target import SM_90A, CostTable

FEW, MANY, TIMES = 16, 80, 3
SIGNATURE = ["*fp32:16", "*bf16:16", "i32"]
PROBES: dict[str, Any] = {
    **{
        f"products {n} {each}": probes.Products(n, each)
        for n in (8, 64, 128, 192, 256)
        for each in (1, 9)
    },
    **{
        f"products {n} {each}, registers": probes.Products(n, each, registers=True)
        for n in (64, 128)
        for each in (1, 9)
    },
    **{
        f"products {n} 9, {g} groups": probes.Products(n, 9, groups=g)
        for n, g in ((64, 3), (128, 2))
    },
    "products 64 9, registers, 3 groups": probes.Products(64, 9, registers=True, groups=3),
    **{f"in order 64, {g} groups": probes.InOrder(64, g) for g in (1, 2, 4)},
    **{what: probes.Arithmetic(what) for what in ("add", "exp2", "cast", "softmax")},
    **{f"{what}, 2 groups": probes.Arithmetic(what, 2) for what in ("add", "exp2", "softmax")},
    "exp2 beside products": probes.ExpBesideProducts(),
    "shared stores": probes.SharedStores(),
    "barrier": probes.Barriers(),
    "round alone": probes.Rounds(alone=True),
    "round": probes.Rounds(alone=False),
    **{f"load {rows} 1": probes.Loads(rows, 1) for rows in (8, 64, 128, 256)},
    **{f"load {rows} 1, far": probes.Loads(rows, 1, region=probes.FAR) for rows in (8, 64)},
    "ring of 8×128, far": probes.Ring(128, 8, region=probes.FAR),
    **{f"load 256 4, {n} share": probes.Loads(256, 4, n) for n in (1, 4, 16)},
    **{
        f"ring of {ahead}×{rows}, {n} share": probes.Ring(rows, ahead, n)
        for rows, ahead in ((128, 2), (128, 8), (256, 4))
        for n in (1, 4, 16)
    },
    "store read": probes.Stores(read=True),
    "store written": probes.Stores(read=False),
}


def arguments() -> list[Any]:
    """What the probes read and write."""
    import ml_dtypes

    return [
        np.zeros((64, 256), np.float32),
        np.zeros((probes.PROGRAMS * probes.FAR, 64), ml_dtypes.bfloat16),
    ]


# ---- whole kernels: one program of each


def gemm(m: int, n: int, k: int, groups: int) -> tuple[Any, tuple[Any, ...], Any]:
    """(kernel, arguments, grid) of the library's GEMM on 132 programs."""
    from warploom.kernels.gemm import gemm_pointers

    a, b, c = (_array(s) for s in ((m, k), (n, k), (m, n)))
    tile = {"BLOCK_M": 128, "BLOCK_N": 256 if groups else 128, "BLOCK_K": 64, "GROUP_M": 16}
    knobs = {"num_consumer_groups": groups} | ({} if groups else {"num_warps": 8})
    given = (a, b, c, m, n, k, k, 1, 1, k, n, 1)
    kernel = gemm_pointers.compile_for(*given, grid=(probes.PROGRAMS,), **tile, **knobs)
    return kernel, given, (probes.PROGRAMS,)


def attention(heads: int, seq: int, d: int, groups: int) -> tuple[Any, tuple[Any, ...], Any]:
    """(kernel, arguments, grid) of the explicit attention, a tile a program."""
    from warploom.kernels.explicit.attention import Attention

    tensors = [_array((heads, seq, d)) for _ in range(4)]
    lse, counter = np.zeros((heads, seq), np.float32), np.zeros(2, np.int32)
    script = Attention(d=d, groups=groups)
    given = (*tensors, lse, counter, heads, seq, d**-0.5 * math.log2(math.e))
    kernel = script.compile_for(*given)
    return kernel, given, kernel.plan.grid_for([x if np.ndim(x) == 0 else 0 for x in given])


PROGRAMS: dict[str, Any] = {
    "gemm 4096x4096x1024": lambda: gemm(4096, 4096, 1024, 2),
    "gemm 4096x4096x4096": lambda: gemm(4096, 4096, 4096, 2),
    "gemm 4096x4096x1024, uniform": lambda: gemm(4096, 4096, 1024, 0),
    "attention 12x1408x128": lambda: attention(12, 1408, 128, 2),
    "attention 12x2112x64": lambda: attention(12, 2112, 64, 3),
}


def _array(shape: tuple[int, ...]) -> Any:
    import ml_dtypes

    numbers = np.random.default_rng(0).standard_normal(shape, np.float32)
    return numbers.astype(ml_dtypes.bfloat16)


# ---- measuring


def measure(only: str = "") -> dict[str, dict[str, float]]:
    """Cycles of an iteration of each probe and of a program of each whole kernel, with `only` in its name."""
    import torch

    from warploom.runtime.measure import cycles

    grid = (probes.PROGRAMS,)
    dtypes = (torch.float32, torch.bfloat16)
    arrays = [
        torch.zeros(x.shape, device="cuda", dtype=dtype)
        for x, dtype in zip(arguments(), dtypes, strict=True)
    ]
    iterations: dict[str, float] = {}
    for name, script in PROBES.items():
        if only not in name:
            continue
        kernel = script.compile(SIGNATURE)
        found = [
            (cycles(kernel, [*arrays, MANY], grid, 1) - cycles(kernel, [*arrays, FEW], grid, 1))
            / (MANY - FEW)
            for _ in range(TIMES)
        ]
        iterations[name] = statistics.median(found)
        print(
            f"{name}: {iterations[name]:.1f}  ({', '.join(f'{x:.1f}' for x in found)})", flush=True
        )
    programs: dict[str, float] = {}
    for name, make in PROGRAMS.items():
        if only not in name:
            continue
        kernel, given, sizes = make()
        found = [cycles(kernel, given, sizes, p) for p in (0, 40, 80)]
        programs[name] = statistics.median(found)
        print(f"{name}: {programs[name]:.0f}  ({', '.join(f'{x:.0f}' for x in found)})", flush=True)
    return {"probe": iterations, "program": programs}


# ---- what it means


def fit(iterations: dict[str, float], scalar: float = SM_90A.cost.scalar) -> CostTable:
    """The cost table that explains the cycles of an iteration of each probe (benchmarks/probes.py)."""

    def product(n: int) -> float:
        """Cycles of one instruction: eight more products of 64×n×64 are 32 of them."""
        return (iterations[f"products {n} 9"] - iterations[f"products {n} 1"]) / 32

    def sync() -> float:
        """An arrival and a wait that finds it."""
        return iterations["round alone"] / 2

    def wake() -> float:
        """There, and back."""
        return iterations["round"] / 2 - sync()

    def bytes_() -> float:
        """As kernels load: always ahead, and neighbours the same."""
        return 4 * box / iterations["ring of 4×256, 16 share"]

    def arrives() -> float:
        return box / bytes_()

    tile, box = 64 * 128, 64 * 64 * 2  # elements; bytes of a box of 64 rows
    told: dict[str, Callable[[], float]] = {
        "tensor_macs_16bit": lambda: 64 * 256 * 16 / product(256),
        "in_order_macs_16bit": lambda: 64 * 64 * 64 / iterations["in order 64, 1 groups"],
        "mma_least": lambda: product(8),
        "tensor_latency": lambda: iterations["products 256 1"] - 4 * product(256) - wake(),
        "alu_lanes": lambda: tile / iterations["add"],
        "convert_lanes": lambda: 2 * tile / iterations["cast"],
        "sfu_lanes": lambda: tile / iterations["exp2"],
        "shared_bytes": lambda: box / iterations["shared stores"],
        "tma_bytes": bytes_,
        "tma_latency": lambda: iterations["load 64 1"] - sync() - arrives() - wake(),
        "store_read": lambda: iterations["store read"] - arrives() - wake(),
        "store_written": lambda: iterations["store written"] - arrives() - wake(),
        "sync": sync,
        "wake": wake,
        "barrier": lambda: iterations["barrier"],
    }
    found = {}
    for name, tell in told.items():
        with contextlib.suppress(KeyError):  # of probes that were not measured nothing follows
            found[name] = max(0, round(tell()))
    return replace(SM_90A.cost, **found, scalar=scalar)


def predicted(table: CostTable, names: Collection[str] = (*PROBES, *PROGRAMS)) -> dict[str, float]:
    """The simulator's cycles for the same iterations and programs."""
    how: dict[str, Any] = {"order": "timed", "program": 1, "track": False, "data": False}
    found = {}
    for name, script in ((n, x) for n, x in PROBES.items() if n in names):
        kernel, arrays = script.compile(SIGNATURE), arguments()
        few, many = (
            simulate(kernel.placed, [*arrays, n], (probes.PROGRAMS, 1, 1), cost=table, **how).cycles
            for n in (FEW, MANY)
        )
        found[name] = (many - few) / (MANY - FEW)
    for name, make in ((n, x) for n, x in PROGRAMS.items() if n in names):
        kernel, given, sizes = make()
        report = simulate(
            kernel.placed, given, (*sizes, 1, 1)[:3], cost=table, **how | {"program": 0}
        )
        found[name] = report.cycles
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="measure; where the results go")
    what.add_argument("--fit", type=Path, help="results to fit the cost table to")
    parser.add_argument("--only", default="", help="what has this in its name (with --out)")
    args = parser.parse_args()
    if args.out is not None:
        report, run = begun("cycles")
        for what, found in measure(args.only).items():
            report.records += [Record(name, what, run, [cycles]) for name, cycles in found.items()]
        write(args.out, report)
        return
    records = read(args.fit).records
    data = {
        what: {r.case: r.median for r in records if r.peer == what} for what in ("probe", "program")
    }
    table = fit(data["probe"])
    print(table)
    measured = {**data["probe"], **data["program"]}
    now, then = predicted(SM_90A.cost, measured), predicted(table, measured)
    print(f"{'':32}  measured   current table   fitted")
    for name, m in measured.items():
        errors = "".join(f"{p:10,.0f} ({p / m - 1:+.0%})" for p in (now[name], then[name]))
        print(f"{name:32}{m:10,.1f}{errors}")


if __name__ == "__main__":
    main()
