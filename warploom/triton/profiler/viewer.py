"""triton.profiler.viewer: a profile as a tree of names, with a column for each metric.

tree, metrics = parse(["time/ms", "tflop16/s"], "matmul.hatchet")
print_tree(tree, metrics)
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "parse", "print_tree"]

_SECONDS = {"s": 1e-9, "ms": 1e-6, "us": 1e-3, "ns": 1.0}  # of a nanosecond
_SCALE = {"": 1.0, "g": 1e9, "t": 1e12}


def parse(
    metrics: Sequence[str],
    filename: str,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """A file's tree, every node with its metrics and those below it, and the metrics that it has.

    metrics: "time/ms" (s, ms, us, ns; avg_time/… of a launch), "tflop16/s", "gbyte/s" … (t, g or no prefix),
    or a name as the file has it.  include, exclude: regular expressions; a node that is left out goes with
    all below it, one that is included brings those above it.  threshold: the least share of
    the whole that a node has of the first metric.
    Raises ValueError on a metric of none of these forms."""
    root = json.loads(Path(filename).read_text())[0]
    _sum(root)
    chosen = [m for m in metrics if _value(root, m) is not None]
    least = None if threshold is None or not chosen else threshold * (_value(root, chosen[0]) or 0)

    def kept(node: dict[str, Any]) -> bool:
        name = node["frame"]["name"]
        if exclude and re.search(exclude, name):
            return False
        if least is not None and (_value(node, chosen[0]) or 0) < least:
            return False
        node["children"] = [c for c in node["children"] if kept(c)]
        return not include or bool(node["children"]) or bool(re.search(include, name))

    kept(root)
    return root, chosen


def _sum(node: dict[str, Any]) -> None:
    for child in node["children"]:
        _sum(child)
        for name, value in child["metrics"].items():
            node["metrics"][name] = node["metrics"].get(name, 0) + value


def _value(node: dict[str, Any], metric: str) -> float | None:
    """A node's number, None where it has none."""
    own = node["metrics"]
    time = own.get("time (ns)")
    if metric in own:
        return float(own[metric])
    what, _, unit = metric.partition("/")
    if what in ("time", "avg_time", "cpu_time") and unit in _SECONDS:
        found = own.get("cpu_time (ns)") if what == "cpu_time" else time
        if found is None:
            return None
        count = own.get("count", 1) if what == "avg_time" else 1
        return float(found) * _SECONDS[unit] / count
    rate = re.fullmatch(r"([gt]?)(flop|byte)(\d*)/s", metric)
    if rate is None:
        if re.fullmatch(r"\w+", metric):
            return None
        raise ValueError(
            f"there is no metric {metric!r}: time/ms, avg_time/us, tflop16/s, gbyte/s …"
        )
    total = own.get(f"{rate[2]}s{rate[3]}")
    return None if total is None or not time else float(total) / (time * 1e-9) / _SCALE[rate[1]]


def print_tree(tree: dict[str, Any], metrics: Sequence[str], depth: int = 100) -> None:
    """Prints a tree that `parse` gave, so many levels of it."""
    print("  ".join(metrics))

    def lines(node: dict[str, Any], level: int) -> None:
        numbers = ((_value(node, m), m) for m in metrics)
        columns = "  ".join("-" if v is None else f"{v:.3f}" for v, _ in numbers)
        print(f"{'  ' * level}{columns} {node['frame']['name']}")
        for child in node["children"] if level < depth else ():
            lines(child, level + 1)

    lines(tree, 0)


def main() -> None:
    """The command: viewer.py -m time/ms,tflop16/s FILE."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("-m", "--metrics", default="time/ms")
    parser.add_argument("-d", "--depth", type=int, default=100)
    parser.add_argument("file")
    args = parser.parse_args()
    print_tree(*parse(args.metrics.split(","), args.file), depth=args.depth)


if __name__ == "__main__":
    main()
