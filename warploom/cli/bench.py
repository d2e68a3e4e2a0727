"""`bench`: times functions that launch, beside each other, on the present GPU."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

from warploom.bench import Clock, in_turn
from warploom.cli import kernel
from warploom.cli.console import EXIT, UsageError, remark, say

LIBRARY = ("gemm", "fp8", "attention", "dual")


def add_commands(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="time functions that launch kernels (needs torch and a GPU)",
        description="Times functions without arguments, each of which launches work on the current stream: "
        "milliseconds, bursts of 10 ms in turn.  The library's kernels beside their peers: `python -m "
        "benchmarks`, in a checkout of the repository.",
    )
    bench.add_argument("functions", metavar="PATH.py:FUNCTION", nargs="+")
    bench.add_argument("--bursts", type=int, default=5, help="repetitions (default: %(default)s)")
    bench.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    for name in args.functions:
        if name in LIBRARY:
            raise UsageError(
                f"the library's kernels are timed beside their peers in a checkout of the repository: "
                f"python -m benchmarks {name}"
            )
    if args.bursts < 1:
        raise UsageError(f"--bursts {args.bursts}: at least one")
    launches = {name: _function(name) for name in args.functions}
    if not _has_gpu():
        remark("bench needs torch and a GPU, and finds none.")
        return EXIT.lacking
    runs = {name: lambda _, launch=launch: launch() for name, launch in launches.items()}
    for name, found in in_turn(Clock(), runs, 1, args.bursts).items():
        spread = f"{min(found):.4f}..{max(found):.4f}"
        say(f"{statistics.median(found):.4f} ms  {spread}  {name}")
    return EXIT.ok


def _function(name: str) -> Callable[[], object]:
    module, path, attribute = kernel.module_of(name)
    found = getattr(module, attribute, None)
    if not callable(found) or hasattr(found, "compile_for"):
        raise UsageError(f"{attribute} in {path} is no function that launches, without arguments")
    return found  # type: ignore[no-any-return]


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
