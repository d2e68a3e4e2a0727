"""One operator on a GPU: compared with its reference, then each of its launches with Triton's, and timed."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from benchmarks.third_party import configs
from benchmarks.third_party.check import compare, compile_one
from benchmarks.third_party.counted import key, profile
from benchmarks.third_party.installed import Triton
from benchmarks.third_party.launches import Met, Recorder, smallest
from benchmarks.third_party.operators import (
    REAL,
    Operator,
    run,
)
from warploom.runtime.hooks import AROUND

GRAPH_MS = 2.0  # of launches in one graph
MOST_LAUNCHES = 500  # in one graph


def tune(operator: Operator, count: int) -> dict[str, Any]:
    """The config of each autotuned kernel, of so many, that is Triton's fastest; all runs by Triton."""
    theirs = Triton()
    tuned = configs.fix(configs.by_triton(theirs.start), count)
    inputs = operator.inputs(operator.source("cuda", REAL))
    told: dict[str, Any] = {"configs": tuned}
    AROUND.append(
        lambda kernel, _, grid, args, kwargs: theirs.start(
            kernel, kernel.sizes(grid, args, kwargs), args, kwargs
        )
    )
    try:
        run(operator, operator.run, inputs, 1)
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    return told


def beside(operator: Operator, bursts: int, slow: Sequence[Any] | None = None) -> dict[str, Any]:
    """What was found; says READY when everything is compiled and compared, and waits for a line to time.
    slow: launches that are not timed but looked at by Nsight Compute, which this process runs under."""
    configs.fix()
    told: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    small = operator.inputs(operator.source("cuda"))
    try:
        found = run(operator, operator.run, small, 1)
        compare(operator, small, found, told)
    except Exception as error:
        told["error"] = f"small: {type(error).__name__}: {error}"
    real = operator.inputs(operator.source("cuda", REAL))
    theirs = Triton()
    smallest.compile(["*fp32"])

    def later(met: Met, launch: Callable[[], Any]) -> Any:
        return theirs.launch(met) if "compile_refused" in met.told else launch()

    with Recorder(lambda met, launch: meet(met, launch, theirs), later) as recorder:
        try:
            run(operator, operator.run, real, 1)
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
    torch.cuda.synchronize()
    print("READY", flush=True)
    sys.stdin.readline()
    wanted = {key(one) for one in slow or ()}
    for met in recorder.met.values():
        if slow is not None and key(met.facts()) in wanted:
            profile(met, theirs)
        elif slow is None and "off" in met.told:
            time_one(met, theirs, bursts)
    return told | {"launches": [met.facts() for met in recorder.met.values()]}


def meet(met: Met, launch: Callable[[], Any], theirs: Triton) -> Any:
    """Compiles a kind of launch by both, runs both, and keeps the difference of what they leave in memory.
    What is refused here runs by Triton, so that those after it are met."""
    compile_one(met)
    before = [x.clone() for x in met.tensors()]
    ours = None
    if "registers" in met.told:
        found = launch()
        torch.cuda.synchronize()
        ours = [x.clone() for x in met.tensors()]
        restore(met, before)
    ran = theirs.first(met)
    if ours is None:
        return None if ran else launch()  # which says why
    if not ran:
        restore(met, ours)
        return found
    parts = zip(ours, met.tensors(), before, strict=True)
    met.told["off"] = float(f"{max((difference(*part) for part in parts), default=0.0):.2e}")
    restore(met, ours)
    return found


def restore(met: Met, kept: list[Any]) -> None:
    for x, y in zip(met.tensors(), kept, strict=True):
        x.data.copy_(y)  # autograd need not know


def difference(ours: Any, theirs: Any, before: Any) -> float:
    """Relative to the norm, over the elements that either changed."""
    written = (ours != before) | (theirs != before)
    x, y = ours[written].double(), theirs[written].double()
    same = (x == y) | (x.isnan() & y.isnan())
    off = torch.where(same, 0.0, x - y).norm()
    found = float(off) / (float(y[y.isfinite()].norm()) or 1.0)
    return found if math.isfinite(found) else math.inf


def time_one(met: Met, theirs: Triton, bursts: int) -> None:
    try:
        runs = {"us": captured(met.launch), "triton_us": captured(lambda: theirs.launch(met))}
    except Exception as error:
        met.told["timing_error"] = f"{type(error).__name__}: {error}"[:1000]
        return
    met.told |= in_turn(runs, bursts)


def captured(launch: Callable[[], Any]) -> tuple[Any, int]:
    """A graph of launches that takes about GRAPH_MS, and how many they are."""
    launch()
    once = milliseconds(*graph_of(launch, 10))
    return graph_of(launch, max(2, min(MOST_LAUNCHES, int(GRAPH_MS / once))))


def graph_of(launch: Callable[[], Any], count: int) -> tuple[Any, int]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Not by `torch.cuda.graph`, which unmaps what the program has freed: a kernel may be given its address.
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for _ in range(count):
            launch()
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph, count


def milliseconds(graph: Any, count: int) -> float:
    """Of one launch."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / count


def in_turn(runs: Mapping[str, tuple[Any, int]], bursts: int) -> dict[str, list[float]]:
    """Microseconds of a launch: of each run the bursts, each the median of three replays."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(bursts):
        for name, (graph, count) in runs.items():
            time.sleep(0.005)
            ms = statistics.median(milliseconds(graph, count) for _ in range(3))
            found[name].append(round(ms * 1e3, 3))
    return found
