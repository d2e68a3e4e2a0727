"""Measured timelines: a kernel launched with clock stamps, beside what the simulator predicts of it.

The stamped kernel is the same PLACED function with stamps (passes/placed/instrument.py) and two parameters
more.  It and the plain kernel alternate for a while, which warms the GPU up and says what stamps cost;
then the records are cleared and one more launch fills them.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from warploom.errors import LaunchError
from warploom.ir.core import Func
from warploom.ir.ops import task
from warploom.passes.placed.instrument import CAPACITY, Site, instrument, relieved
from warploom.runtime.args import CPU, Field, fields_of
from warploom.runtime.build import build
from warploom.runtime.cache import default_cache
from warploom.runtime.kernel import Kernel
from warploom.runtime.launch import LoadedKernel, Prepared, driver, grid_sizes
from warploom.runtime.values import flat
from warploom.runtime.workspace import (
    OwnMemoryLaunch,
    asked_for,
    on_device,
    prepared,
    with_programs,
)
from warploom.sim.machine import simulate
from warploom.timeline.compare import Comparison
from warploom.timeline.measured import Records, events_of
from warploom.timeline.model import from_report

ROUNDS = 5  # in which the plain and the stamped kernel alternate
BURST_MS = 2.0  # of a kernel in a round
MOST_LAUNCHES = 200  # in a burst
RECORD_BYTES = 8


@dataclass(frozen=True)
class Recording:
    """What a stamped launch left.  func: the stamped function; records: of each CTA's agents, as
    `events_of` takes them; plain_ms, stamped_ms: median time of a launch without and with stamps."""

    func: Func
    sites: tuple[Site, ...]
    records: list[list[Records]]
    plain_ms: float
    stamped_ms: float

    @property
    def is_cut(self) -> bool:
        """Has an agent made more stamps than there was room for?"""
        return any(len(r) == CAPACITY - 1 for cta in self.records for r in cta)


def measure(kernel: Kernel, args: Sequence[Any], grid: Any, program: int = 0) -> Comparison:
    """Both timelines of one program (its number in the grid, x first) of a launch.

    args: the run-time arguments in order; host arrays are copied to device 0, and stay as they are.  Arrays
    on the GPU are used in place, by many launches.  Raises LaunchError without a GPU, or where the grid has
    no such program.
    """
    fields, ctas = _launched(kernel, args, grid)
    recording = record(kernel, args, grid, program)
    device = next((f.array.device for f in fields if f.array and f.array.device != CPU), CPU)
    return compare(kernel, recording, [_on_host(f, device) for f in fields], ctas, program)


def _launched(
    kernel: Kernel, args: Sequence[Any], grid: Any
) -> tuple[list[Field], tuple[int, int, int]]:
    """The arguments and the grid of a launch as the kernel's function takes it."""
    fields = [f for a in flat(args) for f in fields_of("", a)]
    return with_programs(kernel.placed, fields, grid_sizes(grid))


def record(
    kernel: Kernel,
    args: Sequence[Any],
    grid: Any,
    program: int = 0,
    inside: bool = True,
) -> Recording:
    """Launches the stamped kernel.  inside: stamps also between start and stop of tasks.  Other arguments and
    errors are those of `measure`."""
    fields, sizes = _launched(kernel, args, grid)
    if not 0 <= program < sizes[0] * sizes[1] * sizes[2]:
        raise LaunchError("program", f"the grid {sizes} has no program {program}")
    with _on_device(fields) as (device, values), driver().using(device):
        return _record(kernel, device, sizes, values, program, inside)


def compare(
    kernel: Kernel, found: Recording, hosts: Sequence[Any], grid: Any, program: int = 0
) -> Comparison:
    """A recording beside the prediction for the same launch.  hosts: the arguments as `simulate` takes them;
    without data, which are not asked for: tiles take their time whatever is in them."""
    title = f"{kernel.name}, {'specialized' if kernel.schedule.specialized else 'uniform'}"
    report = events_of(
        found.func, found.sites, found.records, kernel.request.machine().cost, program
    )
    measured = from_report(report, title, program, "measured")
    how: dict[str, Any] = {"order": "timed", "program": program, "track": False, "data": False}
    predicted = simulate(kernel.placed, hosts, grid_sizes(grid), **how)
    return Comparison(
        from_report(predicted, title, program),
        measured,
        found.plain_ms,
        found.stamped_ms,
        found.is_cut,
    )


def cycles(kernel: Kernel, args: Sequence[Any], grid: Any, program: int = 0) -> float:
    """Cycles of one program, from the start of its first task to the end of its last, with no stamp
    in between.  Arguments and errors are those of `measure`."""
    found = record(kernel, args, grid, program, inside=False)
    return events_of(
        found.func, found.sites, found.records, kernel.request.machine().cost, program
    ).cycles


def _record(
    kernel: Kernel,
    device: int,
    grid: tuple[int, int, int],
    values: Sequence[Any],
    program: int,
    inside: bool = True,
) -> Recording:
    """Builds the stamped kernel and launches both.  inside: stamps also between start and stop of tasks."""
    gpu = driver()
    func, sites = instrument(kernel.placed, CAPACITY, inside)
    tried = [f for f in (func, relieved(func)) if f is not None]
    builds = (
        build(kernel.request, replace(kernel.lowered, placed=f), default_cache()) for f in tried
    )
    built = min(builds, key=lambda b: b.badness)
    ctas, agents = int(np.prod(built.plan.cluster)), len(task.agents(func))
    size = ctas * agents * CAPACITY * RECORD_BYTES
    buffer = gpu.allocate(device, size)
    try:
        stamped = LoadedKernel(gpu, built.cubin, built.plan)
        plain = _ready(kernel.loaded(), kernel.placed, device, grid, tuple(values))
        marked = _ready(stamped, func, device, grid, (*values, buffer, program))
        times = _times(device, plain, marked)
        gpu.clear(device, buffer, size)
        gpu.elapsed(device, partial(marked, 0), 1)
        data = bytearray(size)
        gpu.copy_out(device, buffer, data)
    finally:
        gpu.free(device, buffer)
    rows = np.frombuffer(data, np.uint32).reshape(ctas, agents, CAPACITY, 2)
    records = [[_in_order(r) for r in cta] for cta in rows]
    return Recording(func, sites, records, *times)


def _ready(
    kernel: LoadedKernel,
    func: Func,
    device: int,
    grid: tuple[int, int, int],
    values: tuple[Any, ...],
) -> Prepared | OwnMemoryLaunch:
    """A launch of the arguments that the function has: what its plan asks for beside is memory for maps."""
    plan = kernel.plan
    if plan.programs and not func.attrs.get("programs"):
        return prepared(kernel, device, grid, values)
    more = plan.workspaces[len(func.attrs.get("workspaces", ())) :]
    own = on_device(asked_for(more, values), device)
    kernel.memory["measured"] = own
    return kernel.prepare(device, grid, (*values, *(f.launched for f in own)))


def _in_order(r: Records) -> Records:
    """An agent's records as they were made: from the last one downward, as far as they go."""
    r = r[::-1]
    return r[: int(np.argmin(r[:, 0] != 0))]


def _times(
    device: int, plain: Callable[[int], None], marked: Callable[[int], None]
) -> tuple[float, float]:
    """Median milliseconds of each, alternately."""
    gpu = driver()
    (first,) = gpu.elapsed(device, partial(plain, 0), 1)
    (first,) = gpu.elapsed(device, partial(plain, 0), 1)
    n = max(3, min(MOST_LAUNCHES, int(BURST_MS / max(first, 1e-3))))
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, one in zip(found, (plain, marked), strict=True):
            times += gpu.elapsed(device, partial(one, 0), n)
    return statistics.median(found[0]), statistics.median(found[1])


# ---- arguments


@contextmanager
def _on_device(fields: Sequence[Field]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(device, what a launch takes) of arguments; host arrays are on the GPU meanwhile."""
    devices = {f.array.device for f in fields if f.array is not None} - {CPU}
    if len(devices) > 1:
        raise LaunchError("mixed-devices", f"the arrays are on devices {sorted(devices)}")
    device = next(iter(devices), 0)
    gpu = driver()
    made: list[int] = []
    values = []
    try:
        for f in fields:
            value = f.launched
            if f.array is not None and f.array.device == CPU:
                low, high = f.array.bytes_range()
                made.append(gpu.allocate(device, high - low))
                gpu.copy_in(device, made[-1], _bytes_at(low, high - low))
                value = made[-1] + f.array.pointer - low
            values.append(value)
        yield device, tuple(values)
    finally:
        for pointer in made:
            gpu.free(device, pointer)


def _bytes_at(address: int, size: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _on_host(f: Field, device: int) -> Any:
    """The argument as the simulator takes it: an array's memory is copied from the GPU."""
    if f.array is None or f.array.device == CPU:
        return f.on_host
    from warploom.ir.types import ARGUMENT_DTYPES

    low, high = f.array.bytes_range()
    data = bytearray(high - low)
    driver().copy_out(device, low, data)
    dtype = ARGUMENT_DTYPES[f.array.dtype].numpy
    flat = np.frombuffer(data, dtype, offset=f.array.pointer - low)
    strides = tuple(s * dtype.itemsize for s in f.array.strides)
    return np.lib.stride_tricks.as_strided(flat, f.array.shape, strides)
