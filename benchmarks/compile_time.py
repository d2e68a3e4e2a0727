"""What compiling costs: seconds to import, to compile, to load from the cache; and Triton's.

    python -m benchmarks.compile_time --out out/compile.jsonl [--library]

--library: of each configuration that the library's kernels are tuned among instead, the cache empty: seconds
of the wall, of the processor (which other processes on the machine change less), and of the wall in NVRTC.

Each figure is taken in a fresh process after imports: with the cache empty and every verifier on, then
in another process with the cache that the first one left.  Python's bytecode is there from the second
process on, as it is of an installed package (without it 0.3 s go into compiling a hundred modules).  Triton's
(the persistent TMA kernel with the same tile, plain and specialized) runs where there is a GPU.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import begun
from benchmarks.records import Record, write

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
import importlib, json, resource, time
import benchmarks.launches
from benchmarks.cases import named
from benchmarks.data import Paper, make_data
peer = importlib.import_module("benchmarks.peers.{peer}")
candidates = peer.candidates(make_data(named("{case}"), Paper()))
run = candidates[{index}].make()
used, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
kernel = run.compiled()
wall, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
config = candidates[{index}].label
found = dict(config=config, wall=wall, cpu=cpu, nvrtc=kernel.resources.compile_seconds)
print(json.dumps(dict(found, count=len(candidates))))
"""
KERNELS = {  # name -> peer of the benchmark that has its configurations, and a case
    "GEMM": ("warploom", "bf16 TN 4096x4096x4096"),
    "GEMM, B along N": ("warploom", "bf16 NN 4096x4096x4096"),
    "GEMM, 64 rows": ("warploom", "bf16 TN 64x8192x8192"),
    "row-wise e4m3": ("warploom_fp8", "e4m3 rowwise TN 4096x4096x4096"),
    "row-wise e4m3, B in KxN": ("warploom_fp8", "e4m3 rowwise NN 4096x4096x4096"),
    "row-wise e4m3, promoted": ("warploom_fp8_promoted", "e4m3 rowwise TN 4096x4096x4096"),
    "attention, d = 128": ("warploom_auto_attention", "bf16 attention B4 H16 S4096 D128 full"),
    "attention, d = 128, causal": (
        "warploom_auto_attention",
        "bf16 attention B4 H16 S4096 D128 causal",
    ),
    "attention, d = 64": ("warploom_auto_attention", "bf16 attention B4 H32 S4096 D64 full"),
    "attention, d = 64, causal": (
        "warploom_auto_attention",
        "bf16 attention B4 H32 S4096 D64 causal",
    ),
    "gated pair": ("warploom_dual", "bf16 swiglu 4096x14336x4096"),
    "gated pair, e4m3": ("warploom_dual", "e4m3 swiglu 4096x14336x4096"),
}
TRITON = """
import time
import torch
from benchmarks.cases import Gemm
from benchmarks.data import Data
from benchmarks.peers.triton_tma import bind
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


@functools.cache
def bytecode() -> tempfile.TemporaryDirectory[str]:
    """Where the processes keep Python's bytecode, as an installed package does beside its sources."""
    return tempfile.TemporaryDirectory()


def fresh(code: str, **environment: str) -> Any:
    """What `code` prints last, as JSON, run in a process of its own.  Raises RuntimeError if it fails."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**inherited, "PYTHONPYCACHEPREFIX": bytecode().name, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return json.loads(done.stdout.splitlines()[-1])


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


def measure_library(repetitions: int = 3) -> list[Record]:
    """Of each kernel and configuration: seconds of the processor, one a process; shown are the least, of the
    wall as well."""
    result: list[Record] = []
    for name, (peer, case) in KERNELS.items():
        index, count = 0, 1
        while index < count:
            runs = []
            for _ in range(repetitions):
                with tempfile.TemporaryDirectory() as folder:
                    code = LIBRARY.format(peer=peer, case=case, index=index)
                    runs.append(fresh(code, WARPLOOM_CACHE=folder))
            count, index = runs[0]["count"], index + 1
            config = runs[0]["config"]
            cpu = [run["cpu"] for run in runs]
            result.append(Record(f"{name}: {config}", "warploom", burst=cpu))
            wall = min(run["wall"] for run in runs)
            print(f"{wall:6.2f} {min(cpu):6.2f}  {name}: {config}", flush=True)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What compiling costs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--library", action="store_true", help="every configuration of its kernels")
    parser.add_argument("--repetitions", type=int, default=3, help="of each, with --library")
    args = parser.parse_args(argv)
    report, run = begun("s")
    if args.library:
        report.records = measure_library(args.repetitions)
    else:
        report.records = [Record(name, "warploom", burst=s) for name, s in measure().items()]
        for record in report.records:
            print(f"{record.case:30s} {record.median * 1e3:8.0f} ms")
    for record in report.records:
        record.run = run
    write(args.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
