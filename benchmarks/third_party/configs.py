"""Which config an autotuned kernel runs with: the same for both, so that code is compared and not choices.

By default the one that Triton found fastest on an H200 (configs.json; `--tune` makes it), or else the middle
one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from warploom.runtime import autotune
from warploom.runtime.race import Verdict

CHOSEN = Path(__file__).with_name("configs.json")

# Milliseconds of a launch with a config's keywords; infinite where it fails.
Timer = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], float]


def thin(configs: Sequence[Any], count: int) -> list[Any]:
    """So many of the configs, evenly spread; of one the middle."""
    if len(configs) <= count:
        return list(configs)
    return [configs[(2 * i + 1) * len(configs) // (2 * count)] for i in range(count)]


@cache
def chosen() -> dict[str, str]:
    """Kernel to config."""
    found: dict[str, str] = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    return found


def fix(time: Timer | None = None, count: int = 1) -> dict[str, str]:
    """Has every autotuned kernel take its config.  time: of so many configs take the fastest by it instead;
    the result fills with them."""
    tuned: dict[str, str] = {}

    def first_call(self: Any, key: Any, grid: Any, args: Any, kwargs: Any) -> Verdict:
        left, name = self._pruned(args, kwargs), self.kernel.fn.__name__
        if time is None:
            known = [(i, c) for i, c in left if str(c) == chosen().get(name)]
            return Verdict((known or thin(left, 1))[0][0], {}, {})
        best = math.inf, left[0]
        for i, config in thin(left, count):
            self.prepare_arguments(config, args, kwargs)
            given = self._with(config, args, kwargs)
            best = min(
                best, (time(self.kernel, grid, args, given), (i, config)), key=lambda x: x[0]
            )
        tuned.setdefault(name, str(best[1][1]))
        return Verdict(best[1][0], {}, {})

    autotune.Autotuner._first_call = first_call  # type: ignore[method-assign]
    return tuned


def by_triton(launch: Callable[[Any, Any, Any, Any], object]) -> Timer:
    """Times by events, a few launches: good enough to choose, also while others use the GPU."""

    def time(kernel: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
        sizes = kernel.sizes(grid, args, kwargs)
        times = []
        try:
            for _ in range(6):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                launch(kernel, sizes, args, kwargs)
                stop.record()
                torch.cuda.synchronize()
                times.append(float(start.elapsed_time(stop)))
        except Exception:  # too much shared memory, say
            return math.inf
        return min(times[1:])

    return time
