"""Timing in a process of its own, where a kernel may hang, crash or break its context.

The parent (`Worker`) starts `python -P -c "… worker.main()"`, hands the arguments over (snapshot.py) and
sends orders (cubin, launch plan, grid) as pickles of plain data over pipes.  No code of the user's runs in
the worker, and no kernel in it can write to the user's memory, which is open to it only while it copies.  A
worker that answers too late or dies is killed, and the next order starts another.

The start: the parent sends what the arguments are, with IPC handles of their memory; the worker says which
regions it `wants` through the pipe, gets their bytes, and is `ready`.

Protocol of one timing: one launch to see that it works, one to see how long it takes, a short pause, then
launches for about 10 ms between CUDA events; the median counts.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pickle
import select
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from warploom.runtime.kernel import Kernel
from warploom.runtime.snapshot import PIECE, Snapshot, handle_of, kept_bytes, pieces

START_LIMIT = 120.0  # seconds for a worker to import, make a context and copy what it can
TIME_LIMIT = 20.0  # seconds for one order: far above any honest kernel
BURST_MS = 10.0
PAUSE_S = 0.02
MOST_LAUNCHES = 1000


class TimingError(Exception):
    """A kernel that could not be timed; the text says why."""


# ---- the parent's side


class Worker:
    """A worker process, started when there is something to time and again after it was lost.

    notes: what the timings don't show, such as arrays of which only a part was copied."""

    def __init__(
        self,
        arguments: Snapshot,
        *,
        entry: str = "from warploom.runtime.worker import main; main()",
        limit: float | None = None,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._arguments = arguments
        self._entry = entry
        self._limit = TIME_LIMIT if limit is None else limit
        self._process: subprocess.Popen[bytes] | None = None

    def time(self, kernel: Kernel, grid: tuple[int, int, int]) -> float:
        """Milliseconds of one launch.  Raises TimingError where it fails, hangs or crashes."""
        if self._process is None:
            self._start()
        order = _packed((kernel.cubin, kernel.plan.to_json(), grid))
        what, answer = self._ask([order], self._limit, "the kernel hangs")
        if what == "ms":
            return float(answer)
        if what == "broken":  # the context is lost: the next order needs a new process
            self._kill()
        raise TimingError(str(answer))

    def close(self) -> None:
        """End the process."""
        self._kill()

    def _start(self) -> None:
        a = self._arguments
        handles = [handle_of(a.device, r) for r in a.regions]
        try:
            self._hand_over(handles)
        except TimingError:
            if not any(handles):
                raise
            self._hand_over([None] * len(handles))  # sharing may be what failed

    def _hand_over(self, handles: Sequence[tuple[bytes, int] | None]) -> None:
        """Start a process and give it the arguments.  Raises TimingError."""
        root = str(Path(__file__).parent.parent.parent)
        code = f"import sys; sys.path.insert(0, {root!r}); {self._entry}"
        command = [sys.executable, "-P", "-c", code]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        a = self._arguments
        sizes = [r.size for r in a.regions]
        header = (a.device, list(zip(sizes, handles, strict=True)), a.values, a.restore, a.zero)
        wanted = self._expect("wants", [_packed(header)])
        regions = [a.regions[i] for i in wanted]
        kept = kept_bytes(regions)
        self.notes = tuple(
            f"{', '.join(r.names)}: the first {n:,} of {r.size:,} bytes, repeated"
            for r, n in zip(regions, kept, strict=True)
            if n < r.size
        )
        data = (p for r, n in zip(regions, kept, strict=True) for p in pieces(a.device, r, n))
        self._expect("ready", itertools.chain([_packed(kept)], data))

    def _expect(self, wish: str, messages: Iterable[bytes | bytearray]) -> Any:
        """What the worker answers to a part of the start."""
        what, answer = self._ask(messages, START_LIMIT, "it does not start")
        if what != wish:
            self._kill()
            raise TimingError(f"the timing worker does not start: {answer}")
        return answer

    def _ask(
        self, messages: Iterable[bytes | bytearray], limit: float, silence: str
    ) -> tuple[str, Any]:
        """Send, and wait for the answer.  Raises TimingError (and kills) on silence and death."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            for message in messages:
                _send(process.stdin, message, limit)
            answer: tuple[str, Any] = _receive(process.stdout, limit)
            return answer
        except TimeoutError:
            self._kill()
            raise TimingError(f"no answer in {limit:g} s: {silence}") from None
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
                pipe.close()
        return code


def _packed(message: Any) -> bytes:
    data = pickle.dumps(message)
    return struct.pack("<Q", len(data)) + data


def _send(pipe: IO[bytes], data: bytes | bytearray, limit: float) -> None:
    """All bytes into a pipe that doesn't block.  Raises TimeoutError where none moves for `limit` seconds."""
    left = memoryview(data)
    while left:
        _wait(pipe, select.POLLOUT, limit)
        left = left[os.write(pipe.fileno(), left) :]


def _receive(pipe: IO[bytes], limit: float | None = None) -> Any:
    """The next message.  Raises EOFError at the end, TimeoutError after `limit` seconds."""
    deadline = None if limit is None else time.monotonic() + limit

    def read(n: int) -> bytes:
        data = b""
        while len(data) < n:
            if deadline is not None:
                _wait(pipe, select.POLLIN, deadline - time.monotonic())
            piece = os.read(pipe.fileno(), n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    (length,) = struct.unpack("<Q", read(8))
    return pickle.loads(read(length))


def _wait(pipe: IO[bytes], event: int, seconds: float) -> None:
    """Until a pipe is ready, or broken.  Raises TimeoutError."""
    poll = select.poll()  # select.select takes no file numbers from 1024 on
    poll.register(pipe.fileno(), event)
    if seconds <= 0 or not poll.poll(seconds * 1000):
        raise TimeoutError


def _read(pipe: IO[bytes], n: int) -> bytearray:
    """The next n bytes.  Raises EOFError."""
    data = bytearray(n)
    left = memoryview(data)
    while left:
        got = os.readv(pipe.fileno(), [left])
        if not got:
            raise EOFError
        left = left[got:]
    return data


# ---- the worker's side


def main() -> None:
    """The worker: arguments first, then orders until the pipe closes."""
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not reach the pipe

    def answer(what: str, value: Any) -> None:
        answers.write(_packed((what, value)))
        answers.flush()

    try:
        arguments = _Arguments(*_receive(orders))
        answer("wants", arguments.wanted)
        arguments.fill(_receive(orders), orders)
    except Exception as e:
        answer("failed", f"{type(e).__name__}: {e}")
        return
    answer("ready", None)
    while True:
        try:
            cubin, plan, grid = _receive(orders)
        except EOFError:
            return
        try:
            answer("ms", arguments.time(cubin, plan, grid))
        except Exception as e:
            answer("broken" if arguments.is_broken() else "failed", str(e).splitlines()[0])


class _Arguments:
    """The arguments in this process's device memory.

    regions: bytes, and handle and offset where the parent shares them.  wanted: those that could not be had
    that way, whose bytes `fill` reads."""

    def __init__(
        self,
        device: int,
        regions: Sequence[tuple[int, tuple[bytes, int] | None]],
        values: Sequence[Any],
        restore: Sequence[tuple[int, int, int]],
        zero: Sequence[tuple[int, int, int]],
    ) -> None:
        from cuda.bindings import driver as cu

        from warploom.runtime.launch import CudaDriver

        self.cu, self.driver, self.device = cu, CudaDriver(), device
        self.call(cu.cuCtxSetCurrent, self.driver.context(device))
        self.sizes = [size for size, _ in regions]
        self.bases = [int(self.call(cu.cuMemAlloc, size)) for size in self.sizes]
        self.wanted = [i for i, (_, shared) in enumerate(regions) if not self._copied(i, shared)]
        self.values = tuple(self.bases[v[0]] + v[1] if isinstance(v, tuple) else v for v in values)
        self.restore = restore
        self.zeroed = [(self.bases[region] + offset, size) for region, offset, size in zero]

    def call(self, function: Any, *args: Any) -> Any:
        result, *values = function(*args)
        self.driver.check(result, function.__name__)
        return values[0] if values else None

    def _copied(self, i: int, shared: tuple[bytes, int] | None) -> bool:
        """Copy a region out of the parent's memory; False where that can't be opened here."""
        if shared is None:
            return False
        cu, (data, offset) = self.cu, shared
        handle = cu.CUipcMemHandle()
        ctypes.memmove(handle.getPtr(), data, len(data))
        lazily = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS  # the only flag that there is
        result, opened = cu.cuIpcOpenMemHandle(handle, lazily)
        if result:
            return False
        self.call(cu.cuMemcpyDtoD, self.bases[i], int(opened) + offset, self.sizes[i])
        self.call(cu.cuCtxSynchronize)
        self.call(cu.cuIpcCloseMemHandle, opened)
        return True

    def fill(self, kept: Sequence[int], pipe: IO[bytes]) -> None:
        """Read the first `kept` bytes of each wanted region, and repeat them up to its end."""
        cu = self.cu
        for i, n in zip(self.wanted, kept, strict=True):
            base, size = self.bases[i], self.sizes[i]
            for at in range(0, n, PIECE):
                piece = _read(pipe, min(PIECE, n - at))
                view = (ctypes.c_char * len(piece)).from_buffer(piece)
                self.call(cu.cuMemcpyHtoD, base + at, ctypes.addressof(view), len(piece))
            for at in range(n, size, max(1, n)):
                self.call(cu.cuMemcpyDtoD, base + at, base, min(n, size - at))
        self.restored = []
        for region, offset, size in self.restore:
            address = self.bases[region] + offset
            saved = int(self.call(cu.cuMemAlloc, size))
            self.call(cu.cuMemcpyDtoD, saved, address, size)
            self.restored.append((address, saved, size))
        self.call(cu.cuCtxSynchronize)
        self.events = [self.call(cu.cuEventCreate, 0) for _ in range(2 * MOST_LAUNCHES)]

    def is_broken(self) -> bool:
        """Whether the context reports an error that stays (CUDA driver API, "sticky" errors)."""
        (result,) = self.cu.cuCtxSynchronize()
        return bool(result)

    def time(self, cubin: bytes, plan: str, grid: tuple[int, int, int]) -> float:
        """Median milliseconds of a launch."""
        from warploom.runtime.launch import LoadedKernel
        from warploom.runtime.plan import LaunchPlan
        from warploom.runtime.workspace import prepared

        kernel = LoadedKernel(self.driver, cubin, LaunchPlan.from_json(plan))
        launch = prepared(kernel, self.device, grid, tuple(self.values))
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
