"""Checks and times the lessons' programs (docs/lessons/), beside cuBLAS.

    python -m benchmarks.lessons --check [LESSON …]       # each in a process of its own: a hang costs one
    python -m benchmarks.lessons --out benchmarks/results/lessons.jsonl

The figures are bursts (harness.py) in TFLOP/s, medians of five repetitions in which all take turns; what
`tools/lessons_table.py` reads.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import Gemm
from benchmarks.data import Data, make_data
from benchmarks.measure import TOLERANCE, begun, check
from benchmarks.records import Record, Report, write
from warploom.bench import Clock, Run, in_turn

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "lessons"
SHAPES = [Gemm(8192, 8192, 8192), Gemm(4096, 4096, 4096), Gemm(8192, 8192, 512)]
ODD = [Gemm(144, 264, 208), Gemm(1000, 1048, 520), Gemm(2560, 4096, 320)]  # for correctness
SECONDS = 90  # of one lesson's check


def lessons() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("[0-9]*.py"))}


def script(path: Path) -> Any:
    """The lesson's kernel: the one script of the file's own, or the one that it hands on."""
    from warploom import Script

    spec = importlib.util.spec_from_file_location(f"lesson_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (made,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Script) and value is not Script
    )
    return made()


def bind(kernel: Any, data: Data) -> Run:
    case = data.case
    calls = [
        (data.a[i], data.b[i].t(), data.c[i], case.m, case.n, case.k) for i in range(len(data))
    ]
    return lambda i: kernel(*calls[i])


def check_one(name: str) -> int:
    kernel = script(lessons()[name])
    for case in ODD:
        data = make_data(case)
        reference = data.reference(0)
        error = check(data, bind(kernel, data), 0, reference)
        print(f"{name} {case.name}: relative error {error:.3g}", flush=True)
        if not error < TOLERANCE:
            return 1
    return 0


def measure(names: Sequence[str], bursts: int) -> Report:
    clock = Clock()
    kernels = {name: script(lessons()[name]) for name in names}
    report, started = begun("TFLOP/s")
    for case in SHAPES:
        data = make_data(case)
        reference = data.reference(0)
        runs = {name: bind(kernel, data) for name, kernel in kernels.items()}
        runs["cuBLAS"] = lambda i, data=data: torch.matmul(data.a[i], data.b[i], out=data.c[i])
        for name, run in runs.items():
            if not check(data, run, 0, reference) < TOLERANCE:
                raise RuntimeError(f"{name} is wrong on {case.name}")
        for name, spent in in_turn(clock, runs, len(data), bursts).items():
            rates = [case.flops / ms / 1e9 for ms in spent]
            report.records.append(Record(case.name, name, started, rates))
        print(
            case.name, *(f"{r.peer} {r.median:.0f}" for r in report.records if r.case == case.name)
        )
    return report


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("lessons", nargs="*", help="names such as 03_ring (default: all)")
    parser.add_argument("--check", action="store_true", help="only check, on odd shapes")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    names = args.lessons or list(lessons())
    if args.check and len(names) == 1:
        return check_one(names[0])
    if args.check:
        failed = []
        for name in names:
            command = [sys.executable, "-m", "benchmarks.lessons", "--check", name]
            try:
                if subprocess.run(command, timeout=SECONDS, check=False).returncode:
                    failed.append(name)
            except subprocess.TimeoutExpired:
                failed.append(f"{name} (silent for {SECONDS} s)")
        print("failed:", ", ".join(failed) or "none")
        return int(bool(failed))
    report = measure(names, args.bursts)
    if args.out:
        write(args.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
