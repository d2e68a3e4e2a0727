"""`bench gemm`: the benchmark of the repository, beside its peers."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from warploom.cli.console import EXIT, UsageError, stderr

PEERS = "warploom,warploom_uniform,cublas,triton_plain,triton_tma,triton_ws,gluon"


def add_commands(commands: Any) -> None:
    bench = commands.add_parser("bench", help="time kernels beside their peers (needs a GPU)")
    what = bench.add_subparsers(dest="what", required=True, metavar="WHAT")
    gemm = what.add_parser("gemm", help="matrix products beside cuBLAS, Triton and Gluon")
    gemm.add_argument("--cases", default="core", help="core, bars, one, or names (default: core)")
    gemm.add_argument("--peers", default=PEERS, help=f"by comma (default: {PEERS})")
    gemm.add_argument("--out", type=Path, default=Path("out/gemm.json"))
    gemm.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs benchmarks.harness in a process of its own, then prints the report."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "harness.py").is_file():
        raise UsageError("benchmarks are not part of the installed package: run in the repository")
    if importlib.util.find_spec("torch") is None:
        stderr().print("bench needs torch (for cuBLAS and the tensors); see: warploom doctor")
        return EXIT.lacking
    out = args.out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    timing = ["-m", "benchmarks.harness", "--peers", args.peers, "--cases", args.cases]
    done = subprocess.run([sys.executable, *timing, "--out", str(out)], cwd=root, check=False)
    if done.returncode:
        return EXIT.found
    report = [sys.executable, "-m", "benchmarks.report", str(out)]
    return EXIT.found if subprocess.run(report, cwd=root, check=False).returncode else EXIT.ok
