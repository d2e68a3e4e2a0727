"""A driver that records what it is asked for: launching without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from warploom.errors import LaunchError
from warploom.runtime.plan import LaunchPlan, MapKey, MapParam


class FakeDriver:
    """As warploom.runtime.launch.CudaDriver.  `launches`: (function, grid, threads, shared, stream, params);
    params are the first 8 bytes of each parameter.  `configured`: (grid, stream, pdl).  `results`: what the next launches return."""

    def __init__(self, device_count: int = 1, owner: Callable[[int], int] = lambda _: 0) -> None:
        self.device_count = device_count
        self.owner = owner
        self.launches: list[Any] = []
        self.encoded: list[tuple[MapParam, MapKey]] = []
        self.configured: list[tuple[tuple[int, int, int], int, bool]] = []
        self.prepared: list[tuple[int, int]] = []
        self.current: list[int] = []
        self.has_context: int | None = None  # the device whose context is the thread's
        self.entered: list[int] = []
        self.capturing = False
        self.results: list[int] = []
        self.params = 0
        self.memory: dict[int, Any] = {}  # what was allocated: address -> bytes (NumPy)
        self.shared: dict[int, tuple[bytes, int, int]] = {}  # what `share` says of an address
        self.milliseconds: list[float] = []  # of the next launches that are timed

    def configure(self, plan: LaunchPlan, grid: tuple[int, int, int], stream: int) -> Any:
        self.configured.append((grid, stream, plan.pdl))
        return (
            tuple(n * per for n, per in zip(grid, plan.cluster, strict=True)),
            plan.threads,
            plan.shared_bytes,
            stream,
        )

    def launch(self, config: Any, function: Any, address: int, _: int) -> tuple[int]:
        grid, threads, shared, stream = config
        pointers = (ctypes.c_void_p * self.params).from_address(address)
        values = [ctypes.c_int64.from_address(p or 0).value for p in pointers]
        self.launches.append((function, grid, threads, shared, stream, values))
        return (self.results.pop(0) if self.results else 0,)

    def load(self, cubin: bytes, name: str) -> str:
        return f"{name}:{len(cubin)}"

    def prepare(self, function: Any, device: int, shared_bytes: int) -> None:
        self.prepared.append((device, shared_bytes))

    def encode(self, m: MapParam, key: MapKey) -> bytes:
        self.encoded.append((m, key))
        return len(self.encoded).to_bytes(8, "little") + bytes(120)

    def is_capturing(self, stream: int, device: int = 0) -> bool:
        return self.capturing

    @contextlib.contextmanager
    def using(self, device: int) -> Iterator[None]:
        self.current.append(device)
        yield

    def is_current(self, device: int) -> bool:
        return device == self.has_context

    def enter(self, device: int) -> None:
        self.entered.append(device)

    def device_of(self, pointer: int) -> int:
        return self.owner(pointer)

    def architecture(self, device: int) -> tuple[int, int]:
        return 9, 0

    def device_name(self, device: int) -> str:
        return "fake H200"

    def copy_out(self, device: int, pointer: int, into: Any) -> None:
        if pointer in self.memory:
            into[:] = self.memory[pointer].tobytes()[: len(into)]
            return
        into[:] = bytes(pointer % 251 for _ in range(len(into)))

    def share(self, device: int, pointer: int) -> tuple[bytes, int, int] | None:
        return self.shared.get(pointer)

    def allocate(self, device: int, size: int, clear: bool = True) -> int:
        data = np.zeros(size, np.uint8)
        self.memory[data.ctypes.data] = data
        return int(data.ctypes.data)

    def free(self, device: int, pointer: int) -> None:
        del self.memory[pointer]

    def copy_in(self, device: int, pointer: int, data: Any) -> None:
        self.memory[pointer][: data.nbytes] = data.reshape(-1).view(np.uint8)

    def clear(self, device: int, pointer: int, size: int) -> None:
        self.memory[pointer][:size] = 0

    def elapsed(
        self, device: int, launch: Callable[[], None], times: int, stream: int = 0
    ) -> list[float]:
        for _ in range(times):
            launch()
        return [self.milliseconds.pop(0) if self.milliseconds else 1.0 for _ in range(times)]

    def check(self, result: Any, what: str) -> None:
        if result:
            raise LaunchError("driver", f"{what}: {result}")


class GpuArray:
    """An array 'on the GPU': an address, with no memory behind it."""

    def __init__(
        self, pointer: int, shape: tuple[int, ...], dtype: str = "float32", strides: Any = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "strides": strides,
            "typestr": self.dtype.str,
            "version": 3,
        }
