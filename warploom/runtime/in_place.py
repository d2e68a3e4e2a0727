"""Timing in this process, on the arguments themselves: of kernels that load addresses from memory.

A worker's copies of such arguments would hold the addresses of this process's memory, which mean nothing
there.  As in Triton, a candidate that hangs or crashes is then this process's trouble.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warploom.runtime.binding import Call
from warploom.runtime.launch import current_stream, driver

if TYPE_CHECKING:
    from warploom.runtime.compiled import CompiledKernel

ADDRESSES = ("i64", "u64")  # the dtypes of arrays that may hold some
FEWEST, MOST, ALL_MS = 3, 50, 20.0  # launches that are timed, and milliseconds of all


def bench(
    call: Call, kernels: Sequence[CompiledKernel | None], device: int
) -> Callable[..., Sequence[float]] | None:
    """What times a candidate's launches on a device, as `do_bench` of a tuner; None where a worker may.

    launch() starts one launch; the result is [median milliseconds].  Raises LaunchError where one fails."""
    if not any(f.array is not None and f.array.dtype in ADDRESSES for f in call.fields):
        return None
    one = next((k for k in kernels if k is not None), None)
    if one is None or not makes_pointers(one):
        return None

    def timed(launch: Callable[[], None], quantiles: Sequence[float] = ()) -> Sequence[float]:
        gpu, stream = driver(), current_stream(device)
        gpu.elapsed(device, launch, 1, stream)
        (first,) = gpu.elapsed(device, launch, 1, stream)
        times = max(FEWEST, min(MOST, int(ALL_MS / max(first, 1e-3))))
        return [statistics.median(gpu.elapsed(device, launch, times, stream))]

    return timed


def makes_pointers(kernel: CompiledKernel) -> bool:
    """Does it access memory at addresses that are numbers to it?"""
    from warploom.ir.ops import arith

    return arith.int_to_ptr in kernel.placed.body.by_kind
