"""Which launches are slower than Triton's, and what bounds them: hardware counters, by Nsight Compute.

An operator's process runs under `ncu`, which looks at nothing until it is asked to: at one launch of each
compiler, of those kinds that are slower here than there.  Needs access to the counters.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.counters import SECTIONS, read

if TYPE_CHECKING:
    from benchmarks.third_party.installed import Triton
    from benchmarks.third_party.launches import Met

# What is kept of a kernel: figures by the names that Nsight Compute has for them.  Percentages are of what
# the hardware can do; stalls are warps that wait so, on average, at each instruction that is issued.
FIGURES = {
    "us": "gpu__time_duration.sum",
    "instructions": "smsp__inst_executed.sum",
    "issue slots %": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps a multiprocessor": "sm__warps_active.avg.per_cycle_active",
    "memory %": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 %": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "L1 %": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "tensor cores %": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}
SLOW, LONG = 0.95, 10  # of Triton's speed; microseconds, from which a launch's time counts
STALL, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # to microseconds


def ratio(one: Mapping[str, Any]) -> float | None:
    """Triton's time over ours."""
    if "us" not in one or "triton_us" not in one:
        return None
    return statistics.median(one["triton_us"]) / statistics.median(one["us"])


def slow_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An operator's launches that take LONG and are under SLOW of Triton's speed."""
    return [
        one
        for one in found.get("launches", [])
        if statistics.median(one.get("us", [0])) >= LONG and (ratio(one) or 1) < SLOW
    ]


def key(one: Mapping[str, Any]) -> str:
    """Which kind of launch it is, the same in every run."""
    return json.dumps([one[name] for name in ("kernel", "grid", "arguments")])


def with_counters(timed: Mapping[str, Any], counted: Mapping[str, Any]) -> dict[str, Any]:
    """What a run timed, and the counters that another run found."""
    counters = {key(one): one.get("counters") for one in counted.get("launches", [])}
    launches = [dict(one, counters=counters.get(key(one))) for one in timed["launches"]]
    return dict(timed, launches=launches)


def under_ncu(report: Path) -> list[str]:
    """What stands before the command of an operator's process."""
    sections = [word for s in (*SECTIONS, "SourceCounters") for word in ("--section", s)]
    asked = ["--profile-from-start", "off", "--clock-control", "none", "--force-overwrite"]
    return ["ncu", *asked, *sections, "--export", str(report)]


def profile(met: Met, theirs: Triton) -> None:
    """One launch of ours, then one of Triton's, for `ncu` to look at."""
    import torch

    met.told["counted"] = True
    for launch in (met.launch, lambda: theirs.launch(met)):
        launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def add(found: Mapping[str, Any], report: Path) -> None:
    """Puts the counters of a report beside the launches that are `counted`; the machine code with its stalls
    lies beside the report.  A report of other kernels than these says so instead."""
    counted = [one for one in found.get("launches", []) if one.get("counted")]
    if not counted:
        return
    rows = read(_page(report, "raw"))
    report.with_suffix(".sass.csv").write_text(
        _page(report, "source", "--print-kernel-base", "mangled")
    )
    if len(rows) != 2 * len(counted):
        names = [row.get("Kernel Name", "") for row in rows]
        counted[0]["counters"] = {"error": f"{len(rows)} kernels were counted: {names}"}
        return
    for one, ours, theirs in zip(counted, rows[::2], rows[1::2], strict=True):
        one["counters"] = {"warploom": figures(ours), "Triton": figures(theirs)}


def _page(report: Path, page: str, *more: str) -> str:
    command = ["ncu", "--import", str(report), "--csv", "--page", page, *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def figures(row: Mapping[str, str]) -> dict[str, float]:
    """FIGURES of a kernel, and the three stalls that most warps wait for."""
    values: dict[str, tuple[float, str]] = {}
    for title, text in row.items():
        name, _, unit = title.partition(" [")
        try:
            values[name] = float(text.replace(",", "")), unit.rstrip("]")
        except ValueError:
            continue
    found = {}
    for short, name in FIGURES.items():
        if name in values:
            value, unit = values[name]
            found[short] = value * UNITS.get(unit, 1.0) if short == "us" else value
    waits = {n: v for n, (v, _) in values.items() if n.startswith(STALL) and n.endswith(PER_ISSUE)}
    most: Sequence[str] = sorted(waits, key=lambda n: -waits[n])[:3]
    for name in most:
        found["stall: " + name.removeprefix(STALL).removesuffix(PER_ISSUE)] = waits[name]
    return {name: float(f"{value:.4g}") for name, value in found.items()}
