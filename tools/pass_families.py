"""Which kernels each pass changes, by family: the file that a kernel stands in.

python -m tools.pass_families [PART …]

Parts: those of tests/launches.py, all by default.  Every kernel is compiled; a pass changes it where the text
of the IR after the pass is another one.  A pass stays that changes three families or more, and names them in
its docstring (`Changes:`).  Variants of a launch (of short rows: peel_single_trip_loops) are not seen.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import warnings
from pathlib import Path
from typing import Any

import warploom.compile as road
from tests.launches import FURTHER, PARTS
from warploom.errors import ReportedError
from warploom.ir.core import Func
from warploom.ir.printer import print_func
from warploom.passes import pipeline

Steps = tuple[tuple[str, Func], ...]


def changed(steps: Steps) -> set[str]:
    """The passes of a compilation that made another text."""
    pairs = itertools.pairwise(steps)
    return {
        name
        for (_, before), (name, after) in pairs
        if after is not before and print_func(after) != print_func(before)
    }


def families(parts: list[str]) -> dict[str, collections.Counter[str]]:
    """Pass -> how many kernels of each family it changes."""
    found = {name: collections.Counter[str]() for name in pipeline.names()}
    seen: set[str] = set()
    run = road._run

    def recorded(*args: Any) -> Steps:
        steps = run(*args)
        seen.update(changed(steps))
        return steps

    road._run = recorded
    try:
        for part in parts:
            for launch in (PARTS | FURTHER)[part]():
                seen.clear()
                try:
                    func, _ = launch.make()
                except ReportedError:
                    continue
                family = Path(func.loc.file).stem if func.loc else part
                for name in seen & found.keys():
                    found[name][family] += 1
    finally:
        road._run = run
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=list(PARTS | FURTHER))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, counts in families(args.parts).items():
        rows = ", ".join(f"{family} {n}" for family, n in counts.most_common())
        print(f"{name}: {len(counts)} families{': ' if rows else ''}{rows}", flush=True)


if __name__ == "__main__":
    main()
