"""Hardware counters of kernels, by Nsight Compute: what bounds a kernel that falls short of a target.

python -m benchmarks.counters --peers warploom_attention,warploom_auto_attention
    --cases "bf16 attention B16 H32 S1024 D64 full" --out counters.json

Needs `ncu` and access to the counters.  Each peer's configurations (`--configs`: the first so many) run in a
process of their own, once under the profiler after two launches to warm up; clocks are left alone.  Figures
are per multiprocessor or its quarter, as the metrics' names say; time under the profiler is no benchmark.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import named
from benchmarks.data import make_data

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "Occupancy",
)


def launch(peer: str, case: str, config: int) -> None:
    """Runs one configuration three times, the last under the profiler; prints its label."""
    import torch

    data = make_data(named(case))
    candidate = importlib.import_module(f"benchmarks.peers.{peer}").candidates(data)[config]
    run = candidate.make()
    for _ in range(2):
        run(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(f"label: {candidate.label}", flush=True)


def read(text: str) -> list[dict[str, str]]:
    """Of `ncu --csv --page raw`: a kernel's metrics by name, units behind them."""
    lines = [x for x in text.splitlines() if x.startswith('"')]
    names, units, *rows = csv.reader(lines)
    titles = [f"{n} [{u}]" if u else n for n, u in zip(names, units, strict=True)]
    return [dict(zip(titles, row, strict=True)) for row in rows]


def profile(peer: str, case: str, config: int) -> dict[str, Any]:
    """The counters of one configuration, or the error."""
    command = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv"]
    command += ["--page", "raw", *(x for s in SECTIONS for x in ("--section", s))]
    command += [sys.executable, "-m", "benchmarks.counters", "--launch", peer, case, str(config)]
    found: dict[str, Any] = {"peer": peer, "case": case, "config": config}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return {**found, "error": str(e)[:300]}
    found["label"] = next((x for x in done.stdout.splitlines() if x.startswith("label: ")), "")
    try:
        found["kernels"] = read(done.stdout)
    except ValueError:
        found["error"] = (done.stdout + done.stderr)[-600:]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Hardware counters of kernels")
    parser.add_argument("--peers", default="")
    parser.add_argument("--cases", default="")
    parser.add_argument("--configs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--launch", nargs=3, metavar=("PEER", "CASE", "CONFIG"))
    args = parser.parse_args(argv)
    if args.launch:
        peer, case, config = args.launch
        launch(peer, case, int(config))
        return 0
    results = []
    for case in args.cases.split(","):
        for peer in args.peers.split(","):
            for config in range(args.configs):
                results.append(profile(peer, case, config))
                args.out.write_text(json.dumps(results, indent=1) + "\n")
                print(peer, case, config, results[-1].get("error", "read"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
