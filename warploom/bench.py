"""Times launches on the present GPU: a kernel of one's own, or several beside each other.

    import warploom.bench as bench
    bench.do_bench(lambda: product[grid](a, b, c, m, n, k))          # milliseconds

One *repetition* launches back to back, with a CUDA event between launches, and takes the median of the
launches.

* **burst**: about 10 ms of launches after 0.12 s of idleness.  Repeats within about 0.5 %.
* **sustained**: about 60 ms of launches after 20 ms of the same: the card is hot and at its power
  limit.  Spreads by 5-10 %, so it decides nothing.

What is compared takes turns (`in_turn`), so that drift hits all alike.  Needs torch and a GPU.  How the
library's kernels are measured beside others: benchmarks/ in the repository.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping

BURST_MS, IDLE_S = 10.0, 0.12
SUSTAINED_MS, WARM_MS = 60.0, 20.0

# Launches on input set i, on the current stream.
Run = Callable[[int], object]


class Clock:
    """Times launches by CUDA events."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(513)]

    def median_ms(self, run: Run, sets: int, launches: int, expect_ms: float) -> float:
        """The median time of `launches` back-to-back launches.

        The device first sleeps long enough that the host, should a launch cost it more than the
        kernel runs, stays ahead to the end: otherwise its gaps would be timed.
        """
        launches = min(launches, len(self.events) - 1)
        host = math.inf
        for i in range(2):
            start = time.perf_counter()
            run(i % sets)
            host = min(host, time.perf_counter() - start)
        lag = max(0.0, 1.5 * host + 5e-6 - expect_ms * 1e-3) * launches + 1e-4
        self.torch.cuda._sleep(int(2e9 * min(lag, 0.05)))
        for i in range(launches):
            self.events[i].record()
            run(i % sets)
        self.events[launches].record()
        self.torch.cuda.synchronize()
        pairs = zip(self.events[:launches], self.events[1 : launches + 1], strict=True)
        return float(statistics.median(start.elapsed_time(stop) for start, stop in pairs))

    def quick_ms(self, run: Run, sets: int) -> float:
        """A first estimate of a launch's time."""
        run(0)
        self.torch.cuda.synchronize()
        once = self.median_ms(run, sets, 2, 1.0)
        return self.median_ms(run, sets, max(4, min(60, int(12 / once))), once)

    def burst_ms(self, run: Run, sets: int, expect_ms: float) -> float:
        self.torch.cuda.synchronize()
        time.sleep(IDLE_S)
        return self.median_ms(run, sets, max(4, int(BURST_MS / expect_ms)), expect_ms)

    def forget(self) -> None:
        """Gives memory that is no longer used back to the GPU."""
        self.torch.cuda.empty_cache()

    def sustained_ms(self, run: Run, sets: int, expect_ms: float) -> float:
        self.median_ms(run, sets, max(3, int(WARM_MS / expect_ms)), expect_ms)
        return self.median_ms(run, sets, max(6, int(SUSTAINED_MS / expect_ms)), expect_ms)


def in_turn(
    clock: Clock, runs: Mapping[str, Run], sets: int, bursts: int
) -> dict[str, list[float]]:
    """Milliseconds of each run's bursts: one burst of each, so many times over."""
    expected = {name: clock.quick_ms(run, sets) for name, run in runs.items()}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(bursts):
        for name, run in runs.items():
            found[name].append(clock.burst_ms(run, sets, expected[name]))
    return found


def do_bench(launch: Callable[[], object], *, bursts: int = 5) -> float:
    """Milliseconds of a launch: the median of so many bursts.

    launch: issues work on the current stream, without waiting for it; it is called some hundred times, each
    time with the same arguments, so data that fits stays in the L2 cache.  Raises what `launch` raises, and
    ValueError for less than one burst.

    Example: `do_bench(lambda: scale[(n,)](x, y, 2.0))`
    """
    if bursts < 1:
        raise ValueError(f"bursts={bursts}: at least one")
    return statistics.median(in_turn(Clock(), {"": lambda _: launch()}, 1, bursts)[""])
