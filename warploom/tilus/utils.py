"""tilus.utils: helpers for hosts and kernels."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from warploom.errors import LaunchError
from warploom.ir.types import DType
from warploom.language import cdiv
from warploom.runtime.cache import default_cache
from warploom.runtime.cache_folder import clear
from warploom.tilus.option import get_option

__all__ = [
    "benchmark_func", "cdiv", "clear_cache", "dtype_from_torch", "dtype_to_torch", "floor_log2", "gcd",
    "idiv", "lcm", "nbytes_from_nbits", "parallel_imap", "parallel_map", "prod",
]  # fmt: skip

L2_BYTES = 128 << 20  # more than any L2 has

gcd, lcm = math.gcd, math.lcm


def benchmark_func(
    run_func: Callable[[], Any],
    warmup: int = 1,
    repeat: int = 5,
    median: bool = True,
    clear_l2_cache: bool = True,
) -> Any:
    """Milliseconds of a call, by CUDA events: the median of `repeat` calls after `warmup` others, or with
    median=False the list.  clear_l2_cache: before each call.  Without a GPU the clock's, of kernels that are
    simulated: they compare nothing.

    >>> benchmark_func(lambda: None, repeat=3, median=False)
    [..., ..., ...]
    """
    if repeat < 1:
        raise ValueError(f"repeat is 1 or more, not {repeat}")
    torch = sys.modules.get("torch")
    timed = _on_gpu if torch is not None and torch.cuda.is_available() else _on_host
    times = timed(run_func, warmup, repeat, clear_l2_cache)
    return statistics.median(times) if median else times


def _on_gpu(run: Callable[[], Any], warmup: int, repeat: int, clear: bool) -> list[float]:
    import torch

    slab = torch.empty(L2_BYTES if clear else 0, dtype=torch.int8, device="cuda")
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeat)]
    for _ in range(warmup):
        run()
    torch.cuda._sleep(int(3e5 * repeat))  # so that the host stays ahead
    for start, stop in pairs:
        slab.zero_()
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) for start, stop in pairs]


def _on_host(run: Callable[[], Any], warmup: int, repeat: int, clear: bool) -> list[float]:
    times = []
    for _ in range(warmup + repeat):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return times[warmup:]


def prod(values: Iterable[Any]) -> Any:
    """The product of the values; 1 of none."""
    return math.prod(values)


def idiv(a: int, b: int) -> int:
    """a / b.  Raises ValueError where b does not divide a."""
    if a % b:
        raise ValueError(f"{b} does not divide {a}")
    return a // b


def floor_log2(n: int) -> int:
    """The largest k with 2**k <= n."""
    return n.bit_length() - 1


def nbytes_from_nbits(nbits: int) -> int:
    """Bits in bytes.  Raises ValueError where they are no whole bytes."""
    return idiv(nbits, 8)


_TORCH = {"float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2", "int1": "bool"}


def dtype_to_torch(dtype: DType) -> Any:
    """torch's dtype for one of kernels.  Raises LaunchError where torch has none."""
    import torch

    for name, d in _names().items():
        if d == dtype:
            return getattr(torch, name)
    raise LaunchError("argument-type", f"torch has no {dtype}", help="pass another dtype")


def dtype_from_torch(torch_dtype: Any) -> DType | None:
    """The dtype for torch's, for its name, or for None None.  Raises LaunchError where there is none."""
    if torch_dtype is None or isinstance(torch_dtype, DType):
        return torch_dtype
    name = str(torch_dtype).removeprefix("torch.")
    found = _names().get(name)
    if found is None:
        raise LaunchError("argument-type", f"kernels have no {name}", help=", ".join(_names()))
    return found


def _names() -> dict[str, DType]:
    """Dtypes by torch's names."""
    import warploom.language as tl

    own = ("float64", "float32", "bfloat16", "float16", *_TORCH)
    ints = (f"{u}int{n}" for n in (8, 16, 32, 64) for u in ("", "u"))
    return {_TORCH.get(name, name): getattr(tl, name) for name in (*own, *ints)}


def clear_cache() -> None:
    """Deletes all that is kept in the folder that WARPLOOM_CACHE, or `option.cache_dir`, names."""
    root = default_cache().root
    if root is not None:
        clear(root)


def parallel_imap(
    func: Callable[[Any], Any], jobs: Iterable[Any], num_workers: int | None = None
) -> Iterator[Any]:
    """func of each of the jobs, in their order, by `num_workers` threads (compiling releases the GIL; without
    a number as many as `option.parallel_workers` says).  What a job raises is raised where its result comes.

    >>> list(parallel_imap(abs, [1, -2]))
    [1, 2]
    """
    with ThreadPoolExecutor(num_workers or get_option("parallel_workers")) as workers:
        yield from workers.map(func, jobs)


def parallel_map(
    func: Callable[[Any], Any], jobs: Iterable[Any], num_workers: int | None = None
) -> list[Any]:
    """`parallel_imap`, all of it."""
    return list(parallel_imap(func, jobs, num_workers))
