"""What compiling costs: seconds to import, to compile, to load from the cache; and Triton's.

    python -m benchmarks.compile_time --out results.json [--library]

--library: of each of the library's kernels instead, in its first configuration, the cache empty.

Each figure is taken in a fresh process after imports: with the cache empty and every verifier on, then
in another process with the cache that the first one left.  Triton's (the persistent TMA kernel
with the same tile, plain and specialized) runs where there is a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORT = """
import time
start = time.perf_counter()
import warploom
print(time.perf_counter() - start)
"""
COMPILE = """
import time
from warploom.kernels.gemm import gemm_pointers
strides = "i32:16 i32=1 i32=1 i32:16 i32:16 i32=1"
signature = ["*bf16:16"] * 3 + ["i32:16"] * 3 + strides.split()
tile = dict(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, GROUP_M=16)
start = time.perf_counter()
gemm_pointers.compile(signature, tile, num_consumer_groups=2, num_buffers_warp_spec=3).cubin
print(time.perf_counter() - start)
"""
LIBRARY = """
import importlib, time
import warploom.bench.launches
from warploom.bench.cases import named
from warploom.bench.data import Paper, make_data
peer = importlib.import_module("warploom.bench.peers.{peer}")
run = peer.candidates(make_data(named("{case}"), Paper()))[0].make()
start = time.perf_counter()
run.compiled().cubin
print(time.perf_counter() - start)
"""
KERNELS = {
    "GEMM": ("warploom", "bf16 TN 4096x4096x4096"),
    "attention, d = 64": ("warploom_auto_attention", "bf16 attention B4 H32 S4096 D64 causal"),
    "attention, d = 128": ("warploom_auto_attention", "bf16 attention B4 H16 S4096 D128 full"),
    "gated pair": ("warploom_dual", "bf16 swiglu 8192x8192x8192"),
    "gated pair, e4m3": ("warploom_dual", "e4m3 swiglu 8192x8192x8192"),
    "row-wise e4m3": ("warploom_fp8", "e4m3 rowwise TN 4096x4096x4096"),
    "row-wise e4m3, promoted": ("warploom_fp8_promoted", "e4m3 rowwise TN 4096x4096x4096"),
    "row-wise e4m3, B turned": ("warploom_fp8", "e4m3 rowwise NN 4096x4096x4096"),
}
TRITON = """
import time
import torch
from warploom.bench.cases import Gemm
from warploom.bench.data import Data
from warploom.bench.peers.triton_tma import bind
case = Gemm(256, 512, 512)
a, b = (torch.randn(n, case.k, device="cuda").bfloat16() for n in (case.m, case.n))
c = torch.empty(case.m, case.n, device="cuda", dtype=torch.bfloat16)
run = bind(Data(case, [a], [b.t()], [c]), (128, 256, 64, 16, 8, 3, True), True, {specialize})
torch.cuda.synchronize()
start = time.perf_counter()
run(0)
torch.cuda.synchronize()
print(time.perf_counter() - start)
"""


def fresh(code: str, **environment: str) -> float:
    """The number that `code` prints, run in a process of its own.  Raises RuntimeError if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return float(done.stdout.split()[-1])


def has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def measure(repetitions: int = 5) -> dict[str, list[float]]:
    """Name -> seconds, one a repetition."""
    triton = {"Triton TMA": False, "Triton TMA, warp_specialize": True} if has_gpu() else {}
    names = ["import", "compile", "from the cache", *triton]
    result: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repetitions):
        result["import"].append(fresh(IMPORT))
        with tempfile.TemporaryDirectory() as folder:
            result["compile"].append(fresh(COMPILE, WARPLOOM_CACHE=folder))
            result["from the cache"].append(fresh(COMPILE, WARPLOOM_CACHE=folder))
        for name, specialize in triton.items():
            with tempfile.TemporaryDirectory() as folder:
                code = TRITON.format(specialize=specialize)
                result[name].append(fresh(code, TRITON_CACHE_DIR=folder))
    return result


def measure_library(repetitions: int = 3) -> dict[str, list[float]]:
    """Name of a kernel -> seconds, one a repetition."""
    result: dict[str, list[float]] = {name: [] for name in KERNELS}
    for _ in range(repetitions):
        for name, (peer, case) in KERNELS.items():
            with tempfile.TemporaryDirectory() as folder:
                code = LIBRARY.format(peer=peer, case=case)
                result[name].append(fresh(code, WARPLOOM_CACHE=folder))
            print(f"{name}: {result[name][-1]:.2f} s", flush=True)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What compiling costs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--library", action="store_true", help="each of the library's kernels")
    args = parser.parse_args(argv)
    seconds = measure_library() if args.library else measure()
    report: dict[str, Any] = {"compile_seconds": seconds}
    if has_gpu():
        from warploom.bench.measure import machine

        report = {"machine": machine(), **report}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    for name, values in report["compile_seconds"].items():
        print(f"{name:30s} {statistics.median(values) * 1e3:8.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
