"""Timing in a process of its own, where a kernel may hang, crash or break its context.

The parent (`Worker`) takes a snapshot of the arguments' memory into files, starts
`python -P -c "… worker.main()"` and sends orders (cubin, launch plan, grid) as pickles of plain data over
pipes.  No code of the user's runs in the worker.  A worker that answers too late or dies is killed,
and the next order starts another.

Protocol of one timing: one launch to see that it works, one to see how long it takes, a short pause, then
launches for about 10 ms between CUDA events; the median counts.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warploom.runtime.binding import Call
    from warploom.runtime.compiled import CompiledKernel

START_LIMIT = 120.0  # seconds for a worker to import, make a context and fill the arguments
TIME_LIMIT = 20.0  # seconds for one order: far above any honest kernel
BURST_MS = 10.0
PAUSE_S = 0.02
MOST_LAUNCHES = 1000
COPIED_BYTES = 1 << 30  # of all arguments together; beyond, each keeps its share of leading bytes
ALIGNMENT = 256  # of device memory that cuMemAlloc gives (CUDA C++ Programming Guide, 5.3.2)


class TimingError(Exception):
    """A kernel that could not be timed; the text says why."""


@dataclass(frozen=True)
class Region:
    """A piece of device memory that arguments point into.  `file` holds its first bytes; the worker
    repeats them up to `size`."""

    size: int
    file: str


@dataclass(frozen=True)
class Snapshot:
    """The arguments of a call as plain data.

    values: numbers, and (region, offset in bytes) for arrays.  restore, zero: (region, offset, bytes)
    to write back, or zero, before each launch.
    """

    device: int
    regions: tuple[Region, ...]
    values: tuple[Any, ...]
    restore: tuple[tuple[int, int, int], ...]
    zero: tuple[tuple[int, int, int], ...]
    folder: Any = None  # keeps the files; not sent


def snapshot(call: Call, device: int, restore: Sequence[int], zero: Sequence[int]) -> Snapshot:
    """Copies the arrays of a call out of device memory.  Arrays that share memory still do."""
    from warploom.runtime.launch import driver

    ranges = [None if f.array is None else f.array.bytes_range() for f in call.fields]
    merged = merge([r for r in ranges if r is not None])
    total = sum(high - low for low, high in merged)
    share = min(1.0, COPIED_BYTES / total) if total else 1.0
    shared = "/dev/shm"
    folder = tempfile.TemporaryDirectory(
        prefix="warploom-", dir=shared if os.access(shared, os.W_OK) else None
    )
    regions = []
    for i, (low, high) in enumerate(merged):
        size = high - low
        kept = min(size, max(ALIGNMENT, int(size * share)))
        path = Path(folder.name) / str(i)
        with path.open("w+b") as file:
            file.truncate(kept)
            with mmap.mmap(file.fileno(), kept) as data:
                driver().copy_out(device, low, data)
        regions.append(Region(size, str(path)))

    def place(low: int) -> tuple[int, int]:
        for i, (start, end) in reversed([*enumerate(merged)]):
            if start <= low <= end:
                return i, low - start
        return 0, 0  # an array without elements, outside all others

    values = tuple(f.value if f.array is None else place(f.array.pointer) for f in call.fields)

    def spans(indices: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        found = [r for i in indices if (r := ranges[i]) is not None and r[0] < r[1]]
        return tuple((*place(low), high - low) for low, high in found)

    return Snapshot(device, tuple(regions), values, spans(restore), spans(zero), folder)


def merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of byte ranges as disjoint ones, starts rounded down to the allocator's alignment.  Ranges
    that only touch may be of two allocations, out of which one copy can't read."""
    found: list[tuple[int, int]] = []
    for low, high in sorted((low - low % ALIGNMENT, high) for low, high in ranges if low < high):
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


# ---- the parent's side


class Worker:
    """A worker process, started when there is something to time and again after it was lost."""

    def __init__(
        self,
        arguments: Snapshot,
        *,
        entry: str = "from warploom.runtime.worker import main; main()",
        limit: float | None = None,
    ) -> None:
        self._arguments = arguments
        self._entry = entry
        self._limit = TIME_LIMIT if limit is None else limit
        self._process: subprocess.Popen[bytes] | None = None

    def time(self, kernel: CompiledKernel, grid: tuple[int, int, int]) -> float:
        """Milliseconds of one launch.  Raises TimingError where it fails, hangs or crashes."""
        if self._process is None:
            self._start()
        what, answer = self._ask((kernel.cubin, kernel.plan.to_json(), grid), self._limit)
        if what == "ms":
            return float(answer)
        if what == "broken":  # the context is lost: the next order needs a new process
            self._kill()
        raise TimingError(str(answer))

    def close(self) -> None:
        """End the process and remove the files."""
        self._kill()
        if self._arguments.folder is not None:
            self._arguments.folder.cleanup()

    def _start(self) -> None:
        root = str(Path(__file__).parent.parent.parent)
        code = f"import sys; sys.path.insert(0, {root!r}); {self._entry}"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        a = self._arguments
        what, answer = self._ask(
            (a.device, [(r.size, r.file) for r in a.regions], a.values, a.restore, a.zero),
            START_LIMIT,
        )
        if what != "ready":
            self._kill()
            raise TimingError(f"the timing worker does not start: {answer}")

    def _ask(self, order: Any, limit: float) -> tuple[str, Any]:
        """Send an order, wait for the answer.  Raises TimingError (and kills) on silence and death."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, order)
            answer: tuple[str, Any] = _receive(process.stdout, time.monotonic() + limit)
            return answer
        except TimeoutError:
            self._kill()
            raise TimingError(f"no answer in {limit:g} s: the kernel hangs") from None
        except (EOFError, OSError, pickle.UnpicklingError):
            code = self._kill()
            raise TimingError(f"the timing worker died (exit status {code})") from None

    def _kill(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # what was not yet written has no reader
                    continue
        return code


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes], deadline: float | None = None) -> Any:
    """The next message.  Raises EOFError at the end, TimeoutError after the deadline."""

    def read(n: int) -> bytes:
        data = b""
        while len(data) < n:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([pipe], [], [], left)[0]:
                    raise TimeoutError
            piece = os.read(pipe.fileno(), n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    (length,) = struct.unpack("<Q", read(8))
    return pickle.loads(read(length))


# ---- the worker's side


def main() -> None:
    """The worker: arguments first, then orders until the pipe closes."""
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not reach the pipe
    try:
        arguments = _Arguments(*_receive(orders))
    except Exception as e:
        _send(answers, ("failed", f"{type(e).__name__}: {e}"))
        return
    _send(answers, ("ready", None))
    while True:
        try:
            cubin, plan, grid = _receive(orders)
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = ("ms", arguments.time(cubin, plan, grid))
        except Exception as e:
            answer = ("broken" if arguments.is_broken() else "failed", str(e).splitlines()[0])
        _send(answers, answer)


class _Arguments:
    """The arguments in this process's device memory."""

    def __init__(
        self,
        device: int,
        regions: Sequence[tuple[int, str]],
        values: Sequence[Any],
        restore: Sequence[tuple[int, int, int]],
        zero: Sequence[tuple[int, int, int]],
    ) -> None:
        from cuda.bindings import driver as cu

        from warploom.runtime.launch import CudaDriver

        self.cu, self.driver, self.device = cu, CudaDriver(), device
        self.call(cu.cuCtxSetCurrent, self.driver.context(device))
        self.bases = [self._fill(size, Path(file)) for size, file in regions]
        self.values = tuple(self.bases[v[0]] + v[1] if isinstance(v, tuple) else v for v in values)
        self.restored = []
        for region, offset, size in restore:
            address = self.bases[region] + offset
            saved = int(self.call(cu.cuMemAlloc, size))
            self.call(cu.cuMemcpyDtoD, saved, address, size)
            self.restored.append((address, saved, size))
        self.zeroed = [(self.bases[region] + offset, size) for region, offset, size in zero]
        self.call(cu.cuCtxSynchronize)
        self.events = [self.call(cu.cuEventCreate, 0) for _ in range(2 * MOST_LAUNCHES)]

    def call(self, function: Any, *args: Any) -> Any:
        result, *values = function(*args)
        self.driver.check(result, function.__name__)
        return values[0] if values else None

    def _fill(self, size: int, file: Path) -> int:
        """Device memory of `size` bytes that repeats the file's."""
        base = int(self.call(self.cu.cuMemAlloc, size))
        with file.open("r+b") as f, mmap.mmap(f.fileno(), 0) as data:
            view = (ctypes.c_char * len(data)).from_buffer(data)
            for at in range(0, size, len(data)):
                n = min(len(data), size - at)
                self.call(self.cu.cuMemcpyHtoD, base + at, ctypes.addressof(view), n)
            del view  # releases the map
        return base

    def is_broken(self) -> bool:
        """Whether the context reports an error that stays (CUDA driver API, "sticky" errors)."""
        (result,) = self.cu.cuCtxSynchronize()
        return bool(result)

    def time(self, cubin: bytes, plan: str, grid: tuple[int, int, int]) -> float:
        """Median milliseconds of a launch."""
        from warploom.runtime.launch import LoadedKernel
        from warploom.runtime.plan import LaunchPlan

        kernel = LoadedKernel(self.driver, cubin, LaunchPlan.from_json(plan))
        launch = kernel.prepare(self.device, grid, self.values)
        self._burst(launch, 1)
        n = int(BURST_MS / max(self._burst(launch, 1), BURST_MS / MOST_LAUNCHES))
        time.sleep(PAUSE_S)
        return self._burst(launch, max(3, n))

    def _burst(self, launch: Any, n: int) -> float:
        cu = self.cu
        for i in range(n):
            for address, saved, size in self.restored:
                self.call(cu.cuMemcpyDtoDAsync, address, saved, size, 0)
            for address, size in self.zeroed:
                self.call(cu.cuMemsetD8Async, address, 0, size, 0)
            self.call(cu.cuEventRecord, self.events[2 * i], 0)
            launch(0)
            self.call(cu.cuEventRecord, self.events[2 * i + 1], 0)
        self.call(cu.cuCtxSynchronize)
        pairs = ((self.events[2 * i], self.events[2 * i + 1]) for i in range(n))
        times = [float(self.call(cu.cuEventElapsedTime, a, b)) for a, b in pairs]
        return statistics.median(times)
