"""One operator without a GPU: run on the oracle, compared with its reference, its kernels compiled."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.third_party import configs
from benchmarks.third_party.installed import Triton
from benchmarks.third_party.launches import Met, Recorder, smallest, timed
from benchmarks.third_party.operators import (
    REAL,
    TINY,
    Operator,
    Tensors,
    errors,
    exact,
    run,
)
from warploom.errors import ReportedError


def check(
    operator: Operator, compiles: bool = True, theirs: Triton | None = None, dry: bool = False
) -> dict[str, Any]:
    """What was found: errors of outputs and gradients, and of each kind of launch what it compiles to;
    theirs: also by Triton.  dry: with inputs of real size, which are only compiled for."""

    def meet(met: Met, launch: Callable[[], Any]) -> Any:
        if compiles:
            compile_one(met)
        if theirs is not None:
            theirs.first(met)
        return None if dry else timed(met.told, "oracle", launch)

    configs.fix()
    if compiles:
        smallest.compile(["*fp32"])
    told: dict[str, Any] = {}
    inputs = operator.inputs(operator.source("cpu", *([REAL] if dry else [])))
    with Recorder(meet, (lambda met, _: None) if dry else None) as recorder:
        found = run_timed(operator, inputs, told)
    if not dry and found is not None:
        compare(operator, inputs, found, told)
    told["launches"] = [met.facts() for met in recorder.met.values()]
    return told


def run_timed(operator: Operator, inputs: Tensors, told: dict[str, Any]) -> Tensors | None:
    start = time.perf_counter()
    try:
        return run(operator, operator.run, inputs, 1)
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
        return None
    finally:
        told["seconds"] = round(time.perf_counter() - start, 2)


def compare(operator: Operator, inputs: Tensors, found: Tensors, told: dict[str, Any]) -> None:
    """With the reference; without one only whether the numbers are finite."""
    if operator.reference is None:
        told["finite"] = all(bool(torch.isfinite(x).all()) for x in found.values())
        return
    wanted = run(operator, operator.reference, exact(inputs), 1)
    told["errors"] = {n: float(f"{e:.2e}") for n, e in errors(found, wanted).items()}
    told["right"] = all(e < operator.tolerance for e in told["errors"].values())


def simulate(operator: Operator) -> Iterator[dict[str, Any]]:
    """What was found on the simulator with tiny inputs; again after each kernel's check, which may take long.

    Every kernel runs as it is compiled for a GPU, with the asynchrony of one, in a random order of events."""
    os.environ["WARPLOOM_SIM"] = "1"
    configs.fix()
    told: dict[str, Any] = {}
    inputs = operator.inputs(operator.source("cpu", TINY))
    with Recorder(lambda met, launch: timed(met.told, "simulate", launch)) as recorder:
        found = run_timed(operator, inputs, told)
    if found is not None:
        compare(operator, inputs, found, told)
    kinds = list(recorder.met.values())
    for met in [None, *kinds]:
        if met is not None:
            check_one(met)
        yield told | {"launches": [m.facts() for m in kinds]}


def check_one(met: Met) -> None:
    """Deadlocks and races, into `met.told`: "proved", "not proved" or "broken", and why."""
    try:
        kernel = met.kernel.compile_for(*met.args, grid=met.grid, **met.kwargs)
        report = timed(met.told, "check", kernel.check)
    except Exception as error:
        met.told["check"], met.told["check_says"] = "failed", f"{type(error).__name__}: {error}"
        return
    met.told["check"] = report.verdict.value
    if not report.ok:
        met.told["check_says"] = str(report)[:1000]


def compile_one(met: Met) -> None:
    """What a launch compiles to, into `met.told`."""
    print(
        f"{met.name}: {met.facts()['arguments']}", file=sys.stderr, flush=True
    )  # should it be the last
    used = time.process_time()
    try:
        kernel = timed(
            met.told,
            "compile",
            lambda: met.kernel.compile_for(*met.args, grid=met.grid, **met.kwargs),
        )
    except ReportedError:
        return
    except Exception as error:
        met.told["compile_refused"] = f"{type(error).__name__}: {error}"
        return
    r = kernel.resources
    met.told |= {
        "cpu_seconds": round(time.process_time() - used, 3),
        "cached": kernel.from_cache,
        "rings": kernel.plan.rings,
        "threads": kernel.plan.threads,
        "registers": r.registers,
        "spills": r.spill_bytes,
        "shared": kernel.plan.shared_bytes,
    }
