"""One operator without a GPU: run on the oracle, compared with its reference, its kernels compiled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.third_party import configs
from benchmarks.third_party.installed import Triton
from benchmarks.third_party.launches import Met, Recorder, smallest, timed
from benchmarks.third_party.operators import (
    Operator,
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
    inputs = operator.inputs(operator.source("cpu", dry))
    with Recorder(meet, (lambda met, _: None) if dry else None) as recorder:
        start = time.perf_counter()
        try:
            found = run(operator, operator.run, inputs, 1)
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
        told["seconds"] = round(time.perf_counter() - start, 2)
    if dry or "error" in told:
        pass
    elif operator.reference is not None:
        wanted = run(operator, operator.reference, exact(inputs), 1)
        told["errors"] = {n: float(f"{e:.2e}") for n, e in errors(found, wanted).items()}
        told["right"] = all(e < operator.tolerance for e in told["errors"].values())
    else:
        told["finite"] = all(bool(torch.isfinite(x).all()) for x in found.values())
    told["launches"] = [met.facts() for met in recorder.met.values()]
    return told


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
