"""Measures cases beside peers and writes records (`benchmarks.records`) as it goes.

    python -m benchmarks.harness --peers warploom,cublas,triton_tma --cases core --out out/gemm.jsonl

`--peers`: modules of `benchmarks.peers`.  What figures mean: `benchmarks.measure`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, Case, named
from benchmarks.measure import Steps, begun, run_case
from benchmarks.records import Record, Report, read, write
from warploom.bench import Clock

PEERS = "benchmarks.peers"
CONTENDS = 0.97  # of the best: a first figure is within 1 %
# Former names of knobs and of the library's constexprs, in records.
FORMER = {
    "AND_BACK": "SERPENTINE",
    "DRAWN": "DYNAMIC",
    "PAIRS": "BALANCED_PAIRS",
    "PARTS": "SPLIT_KV_TAIL",
    "SHARED_BY": "GQA_GROUP",
    "sit_out": "skip_idle",
    "wait_eighths": "mma_wait_position",
}


def load_peers(names: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(the modules by the name that they are shown under; why each of the others can't be had)."""
    peers: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            module = importlib.import_module(f"{PEERS}.{name}")
            peers[module.NAME] = module
        except Exception as error:  # whatever another library does when it is imported
            missing[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return peers, missing


class Told(Steps):
    """Steps that are written to a file: the last one as JSON."""

    def __init__(self, file: Path, skipped: Mapping[tuple[str, str, str], str]) -> None:
        super().__init__(skipped)
        self.file = file

    def begin(self, case: str, peer: str, label: str) -> None:
        self.file.write_text(json.dumps([case, peer, label]))


def beaten(reports: Iterable[Path]) -> dict[tuple[str, str, str], str]:
    """(case, peer, configuration)s that came under CONTENDS of their peer's best when these reports were
    made, or did not run right: why each is not worth another trial."""
    found = {}
    for file in reports:
        for record in read(file).records:
            figures = [x for _, x in record.tried if not isinstance(x, str)]
            for label, x in record.tried:
                at = record.case, record.peer, with_current_names(label)
                if isinstance(x, str):
                    found[at] = x
                elif x < CONTENDS * max(figures):
                    found[at] = f"{x} of {max(figures)} in {file.name}"
    return found


def with_current_names(label: str) -> str:
    """A configuration as it is spelled now: records keep the names that knobs and constexprs had when they
    were made."""
    names = "|".join(FORMER)
    return re.sub(rf"\b({names})(?==)", lambda m: FORMER[m[1]], label)


def cases_of(text: str) -> Sequence[Case]:
    """A list's name (`CASES`), or names of cases by comma.  Raises ValueError on anything else."""
    return CASES[text] if text in CASES else [named(name.strip()) for name in text.split(",")]


def line(entry: Record) -> str:
    """What became of a peer."""
    if entry.error:
        return f"   {entry.peer:36s} {entry.error[:150]}"
    burst, hot = (statistics.median(x or [0.0]) for x in (entry.burst, entry.sustained))
    spread = f"{min(entry.burst, default=0):.0f}..{max(entry.burst, default=0):.0f}"
    return (
        f"   {entry.peer:36s} burst {burst:6.1f} ({spread})  sustained {hot:6.1f}  "
        f"err {entry.rel_err:.1e}  {entry.config}"
    )


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Times implementations side by side")
    parser.add_argument("--peers", required=True, help="modules of peers, by comma")
    parser.add_argument("--cases", default="core", help=f"one of {', '.join(CASES)}, or case names")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--sustained", type=int, default=3)
    parser.add_argument("--limit", type=float, default=math.inf, help="start no case after (s)")
    parser.add_argument("--commit", default="", help="the commit measured, where git is absent")
    parser.add_argument("--steps", type=Path, help="a file for what is being done, at any time")
    parser.add_argument("--skip", type=Path, help="JSON: [case, peer, configuration]s to leave out")
    parser.add_argument(
        "--tried", type=Path, nargs="*", default=[], help="records: what was slow there is left out"
    )
    parser.add_argument("--resume", action="store_true", help="keep the cases that --out has")
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    args = arguments().parse_args(argv)
    # What is measured is the library's, whose protocols its tests prove: a proof may take a minute.
    os.environ.setdefault("WARPLOOM_CHECK", "0")
    start = time.monotonic()
    peers, missing = load_peers(args.peers.split(","))
    for name, why in missing.items():
        print(f"missing: {name}: {why}", flush=True)
    report, run = begun("TFLOP/s", commit=args.commit, missing=missing)
    if args.resume and args.out.is_file():
        earlier = read(args.out)
        report = Report({**earlier.runs, **report.runs}, earlier.records)
    skipped = beaten(args.tried)
    for case, peer, label in json.loads(args.skip.read_text()) if args.skip else []:
        skipped[case, peer, label] = "took the process down"
    steps = Told(args.steps, skipped) if args.steps else Steps(skipped)
    done = {record.case for record in report.records}
    clock = Clock()
    for case in cases_of(args.cases):
        if case.name in done:
            continue
        if time.monotonic() - start > args.limit:
            print(f"skipped, out of time: {case.name}", flush=True)
            continue
        entries = run_case(case, peers, args.bursts, args.sustained, clock, steps)
        for entry in entries:
            entry.run = run
        report.records += entries
        write(args.out, report)
        clock.forget()
        print(f"{case.name}  ({time.monotonic() - start:.0f} s)", flush=True)
        for entry in sorted(entries, key=lambda e: -statistics.median(e.burst or [0.0])):
            print(line(entry), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
