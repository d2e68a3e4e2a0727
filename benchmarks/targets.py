"""The targets as data, and where the committed records stand against them.

    python -m benchmarks.targets                    # both tables, from benchmarks/results
    python -m benchmarks.targets out/fp8.jsonl …    # from other records

A ratio "≥ r" holds if the ratio of burst medians is ≥ r − 0.005.  A peer that did not run beside ours
counts as its recorded ratio (`benchmarks/report.py`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import mma_sync
from benchmarks.groups import GROUPS, MMA_SYNC, Group, Target
from benchmarks.records import current
from benchmarks.report import (
    MARGIN,
    Results,
    best_of,
    geometric_mean,
    load,
    median,
)

FAMILIES = ("gemm", "attention", "fp8", "dual")  # the records of GROUPS
ALL = (*GROUPS, *MMA_SYNC)


def last() -> Results:
    """The committed records of all groups, in TFLOP/s."""
    found: Results = {}
    for family in FAMILIES:
        found |= current(family).by_case()
    return found | mma_sync.rates(current("mma_sync").by_case())


def ratios(results: Results, ours: str, peers: Sequence[str]) -> dict[str, float]:
    """Of each case that has both: ours to the best of the peers."""
    found = {}
    for case, records in results.items():
        _, best = best_of(case, records, peers)
        mine = median(records.get(ours))
        if not math.isnan(mine / best):
            found[case] = mine / best
    return found


def summary(found: dict[str, float]) -> str:
    """Geometric mean and worst."""
    if not found:
        return ""
    return f"{geometric_mean(list(found.values())):.3f} ({min(found.values()):.3f})"


def verdict(group: Group, results: Results, target: Target) -> tuple[str, bool]:
    """What was found, and whether it meets the target; a case without a figure of ours misses it."""
    found = ratios(results, target.ours, target.peers)
    absent = [
        case
        for case in group.shapes
        if math.isnan(median(results.get(case.name, {}).get(target.ours)))
    ]
    if not found:
        return "not measured", False
    met = not absent and geometric_mean(list(found.values())) >= target.mean - MARGIN
    low = [f"{case} {r:.3f}" for case, r in found.items() if r < target.each - MARGIN]
    text = "; ".join((summary(found), *low))
    if absent:
        text += f"; {len(absent)} of {len(group.shapes)} cases not measured"
    return text, met and not low


def table(found: Results) -> str:
    """A row a group."""
    columns = ("TFLOP/s", "of the best peer", "of Triton's best", "of by hand")
    lines = [f"| | {' | '.join(columns)} | by hand, of the best peer |"]
    lines.append("|---" * 6 + "|")
    for group in ALL:
        results = group.cases(found)
        if results:
            own = [x for r in results.values() if not math.isnan(x := median(r.get(group.ours)))]
            pairs = [(group.ours, group.peers), (group.ours, group.triton)]
            if group.by_hand:
                pairs += [(group.ours, (group.by_hand,)), (group.by_hand, group.peers)]
            cells = [f"{min(own):.0f} to {max(own):.0f}" if own else ""]
            cells += [summary(ratios(results, ours, peers)) for ours, peers in pairs]
            cells += [""] * (5 - len(cells))
            lines.append(f"| {group.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def judged(found: Results) -> tuple[str, bool]:
    """A row a target; all met?"""
    lines = ["| target | asked: mean, each | found: mean (worst) | |", "|---|---|---|---|"]
    all_met = True
    for group in ALL:
        results = group.cases(found)
        for target in group.targets if results else ():
            text, met = verdict(group, results, target)
            all_met &= met
            asked = ", ".join(f"{x:g}" if x else "–" for x in (target.mean, target.each))
            what = f"{group.name}: {target.ours} of {target.of}"
            lines.append(f"| {what} | {asked} | {text} | {'met' if met else '**missed**'} |")
    return "\n".join(lines), all_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="*", type=Path)
    args = parser.parse_args()
    found = mma_sync.rates(load(args.results)) if args.results else last()
    text, met = judged(found)
    print(f"{table(found)}\n\n{text}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
