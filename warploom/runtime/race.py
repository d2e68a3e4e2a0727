"""The candidates of a tuner, compiled on threads and timed against each other in rounds."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from warploom.errors import LaunchError, WarploomError
from warploom.runtime.build import resources_fit
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.config import Config
from warploom.runtime.worker import TimingError

# After each round of the race so many candidates go on at most, and only those whose median so far is at most
# so many times the fastest's.  Timings of one kernel repeat within 0.8 % on a card of its own
# (docs/log/2026-11-21-automatic-attention.md); the margins are for one that is shared, or wakes up.
HEATS = ((12, 1.25), (8, 1.12), (4, 1.06), (4, 1.06), (4, 1.06))
ROUNDS = len(HEATS) + 1


@dataclass(frozen=True)
class Verdict:
    """What tuning found for one key.  times: config text -> milliseconds; skipped: -> why.  notes: what the
    timed arguments lacked of the real ones."""

    best: int  # index into the configs
    times: Mapping[str, float]
    skipped: Mapping[str, str]
    notes: Sequence[str] = ()


class Timer(Protocol):
    """Times compiled kernels on one set of arguments; worker.Worker does it in another process.

    notes: what these arguments lack of those of the call."""

    notes: tuple[str, ...]

    def time(self, kernel: CompiledKernel, grid: tuple[int, int, int]) -> float:
        """Milliseconds of one launch.  Raises TimingError where it fails, hangs or crashes."""

    def close(self) -> None: ...


@dataclass
class Candidate:
    """One config on its way: compiled, then timed (milliseconds, one a round), or skipped and why."""

    index: int
    config: Config
    kernel: CompiledKernel | None = None
    grid: tuple[int, int, int] = (1, 1, 1)
    times: list[float] = field(default_factory=list)
    skipped: str = ""


def candidate(
    index: int, config: Config, make: Callable[[], tuple[CompiledKernel, tuple[int, int, int]]]
) -> Candidate:
    """A candidate with the kernel and the grid that `make` gives, or why it is skipped."""
    made = Candidate(index, config)
    try:
        made.kernel, made.grid = make()
        machine = made.kernel.request.machine()
        made.skipped = "; ".join(resources_fit(made.kernel.resources, machine))
    except WarploomError as e:
        made.skipped = str(e).splitlines()[0]
    return made


def on_threads(make: Callable[[Any], Candidate], calls: Sequence[Any]) -> list[Candidate]:
    """All candidates, compiled on threads.  Those that spill registers are skipped where others do not."""
    with ThreadPoolExecutor(min(len(calls), os.cpu_count() or 1)) as pool:
        found = list(pool.map(make, calls))
    tight = [c for c in found if not c.skipped and _spills(c)]
    if any(not c.skipped and c not in tight for c in found):
        for c in tight:
            c.skipped = f"spills {_spills(c)} bytes of registers"
    return found


def _spills(c: Candidate) -> int:
    return 0 if c.kernel is None else c.kernel.resources.spill_bytes


def judge(candidates: Sequence[Candidate], timer: Timer, name: str) -> Verdict:
    """A race in rounds, in each of which those still in it are timed once, and the slower drop out.

    Rounds go through the candidates to and fro, so that a card that grows slower is no one's disadvantage,
    and begin after one timing that does not count.  Of those that stay to the end the smallest median wins.
    A candidate that fails is skipped with its reason.  Raises LaunchError where none is left.
    """

    def time(c: Candidate) -> None:
        assert c.kernel is not None
        try:
            c.times.append(timer.time(c.kernel, c.grid))
        except TimingError as e:
            c.skipped = str(e)

    def running(of: Sequence[Candidate]) -> list[Candidate]:
        left = [c for c in of if not c.skipped]
        return sorted(left, key=lambda c: statistics.median(c.times))

    for c in candidates:  # the first launches find a card that sleeps
        if not c.skipped:
            time(c)
            c.times.clear()
            if not c.skipped:
                break
    racing = list(candidates)
    for n in range(ROUNDS):
        for c in racing if n % 2 == 0 else racing[::-1]:
            if not c.skipped:
                time(c)
        fastest = running(racing)
        if n < len(HEATS) and fastest:
            most, close = HEATS[n]
            limit = close * statistics.median(fastest[0].times)
            fastest = [c for c in fastest[:most] if statistics.median(c.times) <= limit]
            if len(fastest) == 1:
                racing = fastest
                break
        racing = [c for c in racing if c in fastest]
    left = running(racing) or running(candidates)
    skipped = {str(c.config): c.skipped for c in candidates if c.skipped}
    if not left:
        raise none_runs(name, skipped)
    times = {str(c.config): statistics.median(c.times) for c in candidates if not c.skipped}
    return Verdict(left[0].index, times, skipped, tuple(timer.notes))


def none_runs(name: str, skipped: Mapping[str, str]) -> LaunchError:
    """The error where every candidate was skipped."""
    reasons = "".join(f"\n  {config}: {why}" for config, why in skipped.items())
    return LaunchError(
        "autotune-failed",
        f"no config of {name} runs:{reasons}",
        help="add a config with smaller blocks or fewer buffers",
    )


def verdict_from(entry: Mapping[str, bytes], configs: int) -> Verdict | None:
    """A stored verdict; None where it is not one on that many configs."""
    try:
        verdict = Verdict(**json.loads(entry["verdict"]))
        return verdict if 0 <= verdict.best < configs else None
    except (KeyError, ValueError, TypeError):
        return None
