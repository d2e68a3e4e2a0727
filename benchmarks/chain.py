"""Times chains of launches between two CUDA events, with and without programmatic dependent launch.

    python -m benchmarks.chain [--case 4]

The harness records an event between launches, which may keep them from overlapping; here only the
ends of a chain are recorded.  Each configuration takes turns with and without, as a stream and as a
graph; the figure is the median microseconds of one launch.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from benchmarks.cases import TARGETS
from benchmarks.data import Data, make_data
from benchmarks.measure import Candidate
from benchmarks.peers import warploom
from warploom.bench import Run

LAUNCHES, ROUNDS = 48, 15


def chain(run: Run, data: Data) -> None:
    for i in range(LAUNCHES):
        run(i % len(data))


def captured(run: Run, data: Data) -> torch.cuda.CUDAGraph:
    chain(run, data)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(run, data)
    return graph


def microseconds(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return 1e3 * start.elapsed_time(end) / LAUNCHES


def compare(candidates: list[Candidate], data: Data) -> list[tuple[float, float]]:
    """(stream, graph) microseconds of a launch, for each candidate."""
    runs = [c.make() for c in candidates]
    graphs = [captured(run, data) for run in runs]
    times: list[list[tuple[float, float]]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, graph, found in zip(runs, graphs, times, strict=True):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            torch.cuda._sleep(2_000_000)  # the host gets ahead
            events[0].record()
            chain(run, data)
            events[1].record()
            torch.cuda._sleep(200_000)
            events[2].record()
            graph.replay()
            events[3].record()
            torch.cuda.synchronize()
            found.append((microseconds(*events[:2]), microseconds(*events[2:])))
    return [(statistics.median(s for s, _ in t), statistics.median(g for _, g in t)) for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--case", type=int, help="index into the cases of the targets (default: short ones)"
    )
    chosen = parser.parse_args().case
    for i in [2, 5] if chosen is None else [chosen]:
        data = make_data(TARGETS[i])
        print(TARGETS[i].name)
        pairs = zip(
            warploom.candidates(data, pdl=False), warploom.candidates(data, pdl=True), strict=True
        )
        for serial, dependent in pairs:
            try:
                (s, sg), (d, dg) = compare([serial, dependent], data)
            except Exception as e:  # a configuration that doesn't fit
                print(f"  {serial.label}: {str(e).splitlines()[0]}")
                continue
            print(f"  {serial.label}: stream {s:.2f} -> {d:.2f} us, graph {sg:.2f} -> {dg:.2f} us")


if __name__ == "__main__":
    main()
