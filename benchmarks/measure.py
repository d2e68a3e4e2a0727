"""Measures implementations of one workload side by side, after checking each against float64.

What a figure is (a burst, a sustained one): `warploom.bench`.  Implementations take turns within each
repetition; the figure of one is the median over its repetitions.  Inputs are normally distributed; outputs
are NaN before a checked run.  A wrong implementation gets no time.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.cases import Case
from benchmarks.data import Reference, make_data
from benchmarks.records import Record, Report, run_of
from warploom.bench import Clock, Run

T = TypeVar("T")

FINALISTS = 4
TOLERANCE = 6e-3  # of ‖out − ref‖ / ‖ref‖; bf16 rounding alone gives 1.7e-3


@dataclass
class Candidate:
    """One configuration of a peer; `make` compiles and binds it (and may raise).  What it makes of our own
    kernels also has `compiled()` (`launches.py`), for which arrays on paper suffice."""

    label: str
    make: Callable[[], Run]


def each(configs: Iterable[T], make: Callable[[T], Run]) -> list[Candidate]:
    """A candidate for each configuration, which is its label."""
    return [Candidate(str(config), functools.partial(make, config)) for config in configs]


def check(data: Any, run: Run, i: int, reference: Reference) -> float:
    """Runs set i once: ‖out − ref‖ / ‖ref‖; NaN for an element unwritten, not finite or far off.  The output
    is filled with NaN before.  Raises what `run` raises."""
    data.outputs[i][...] = math.nan
    out = run(i)
    return reference.error(out if hasattr(out, "dtype") else data.outputs[i])


class Steps:
    """What is being done, told before it is done; and what is not to be done.

    A harness that is watched (`benchmarks.watch`) writes each step to a file, so that what took the
    process down is known and left out in the next.  `skipped`: why, by (case, peer, configuration)."""

    def __init__(self, skipped: Mapping[tuple[str, str, str], str] | None = None) -> None:
        self.skipped = dict(skipped or {})

    def begin(self, case: str, peer: str, label: str) -> None:
        """Called before a configuration is made, checked or timed."""


def lost(error: Exception) -> bool:
    """Whether the error says that the CUDA context is lost: nothing after it could be trusted."""
    return "CUDA error" in str(error) or "illegal" in str(error)


def pick(
    candidates: Sequence[Candidate],
    data: Any,
    reference: Reference,
    clock: Clock,
    entry: Record,
    steps: Steps,
) -> Run:
    """The fastest right configuration: all are checked and timed, the best few again in bursts.  What became
    of each goes into `entry.tried`.  Raises RuntimeError where none runs right, and an error that loses the
    CUDA context as it is."""
    right: list[tuple[float, Candidate, Run]] = []
    for candidate in candidates:
        why = steps.skipped.get((entry.case, entry.peer, candidate.label))
        if why is not None:
            entry.tried.append((candidate.label, why))
            continue
        steps.begin(entry.case, entry.peer, candidate.label)
        try:
            run = candidate.make()
            if not check(data, run, 0, reference) < TOLERANCE:
                entry.tried.append((candidate.label, "wrong"))
                continue
            # behind a pause: right after the check the card is hot, and may be 12 % slower
            ms = clock.burst_ms(run, len(data), clock.quick_ms(run, len(data)))
        except Exception as error:
            if lost(error):
                raise
            entry.tried.append((candidate.label, f"{type(error).__name__}: {str(error)[:200]}"))
            continue
        right.append((ms, candidate, run))
        entry.tried.append((candidate.label, round(data.case.flops / ms / 1e9, 1)))
    if not right:
        raise RuntimeError(f"no configuration ran right: {entry.tried}")
    right.sort(key=lambda r: r[0])
    finalists = right[:FINALISTS]
    if len(finalists) > 1:
        finalists = [
            (min(clock.burst_ms(run, len(data), ms) for _ in range(2)), candidate, run)
            for ms, candidate, run in finalists
        ]
    _, best, run = min(finalists, key=lambda r: r[0])
    entry.config = best.label
    return run


def run_case(
    case: Case,
    peers: Mapping[str, Any],
    bursts: int,
    sustained: int,
    clock: Clock,
    steps: Steps | None = None,
    data: Any = None,
) -> list[Record]:
    """Checks, tunes and times every peer that takes the case.  `peers`: modules by name
    (`benchmarks.peers`); `data`: the case's arrays, random ones by default."""
    steps = steps or Steps()
    data = make_data(case) if data is None else data
    reference = [data.reference(i) for i in (0, len(data) - 1)]
    entries, live = [], []
    for name, peer in peers.items():
        if case.kind not in getattr(peer, "KINDS", ("gemm",)):
            continue
        entry = Record(case.name, name)
        try:
            candidates = peer.candidates(data)
            if not candidates:
                continue
            entries.append(entry)
            run = pick(candidates, data, reference[0], clock, entry, steps)
            steps.begin(case.name, name, entry.config)
            entry.rel_err = max(
                check(data, run, 0, reference[0]), check(data, run, len(data) - 1, reference[1])
            )
            if not entry.rel_err < TOLERANCE:
                raise RuntimeError(f"wrong result, relative error {entry.rel_err:.2g}")
            live.append((entry, run, clock.quick_ms(run, len(data))))
        except Exception as error:
            entry.error = f"{type(error).__name__}: {str(error)[:500]}"
            traceback.print_exc(limit=3)
            if lost(error):
                raise
    del reference
    clock.forget()
    for figures, time_ms, rounds in (
        ("burst", clock.burst_ms, bursts),
        ("sustained", clock.sustained_ms, sustained),
    ):
        for _ in range(rounds):
            for entry, run, ms in live:
                steps.begin(case.name, entry.peer, entry.config)
                taken = time_ms(run, len(data), ms)
                getattr(entry, figures).append(case.flops / taken / 1e9)
    return entries


def begun(unit: str, *, commit: str = "", **more: Any) -> tuple[Report, str]:
    """A report whose run begins now, and the run's name.  commit: by default what git says."""
    found = run_of(
        machine(), unit=unit, commit=commit or _output("git", "rev-parse", "HEAD"), **more
    )
    return Report({found.run: found}), found.run


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _device() -> str:
    """The GPU's name; or the machine's, where there is none."""
    if importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            return str(torch.cuda.get_device_name(0))
    return f"no GPU, {platform.machine()}"


def machine() -> dict[str, str]:
    """What the figures depend on, beside the code."""

    def version(module: str) -> str:
        try:
            return str(importlib.import_module(module).__version__)
        except (ImportError, AttributeError):
            return ""

    return {
        "device": _device(),
        "driver": _output(
            "nvidia-smi", "--id=0", "--query-gpu=driver_version", "--format=csv,noheader"
        ),
        "python": sys.version.split()[0],
        **{name: version(name) for name in ("torch", "triton", "numpy", "warploom")},
        "cuda-core": version("cuda.core"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
