"""Memory that a script asks for itself (`self.global_tensor`): hidden arguments behind those of its caller.

On a GPU it belongs to a kernel on a stream, so that the launches which use it come one after the other; it is
made at the first of them and used again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import LaunchError
from warploom.ir.types import DTYPES
from warploom.runtime.args import CPU, Array, Field
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.launch import LoadedKernel, Prepared, current_stream, driver
from warploom.runtime.plan import Workspace, evaluate


@dataclass(frozen=True)
class Asked:
    """A workspace of one launch."""

    of: Workspace
    elements: int

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.of.dtype]

    def field(self, value: Any, pointer: int, device: int) -> Field:
        """The argument that it is."""
        array = Array(self.of.dtype, pointer, (self.elements,), (1,), device)
        return Field(self.of.name, value, array)


def asked_for(workspaces: Sequence[Workspace], args: Sequence[Any]) -> tuple[Asked, ...]:
    """What a launch with these arguments asks for (addresses don't matter).  Raises LaunchError."""
    out = tuple(Asked(w, int(evaluate(w.elements, args))) for w in workspaces)
    for a in out:
        if a.elements < 0:
            raise LaunchError("workspace", f"{a.of.name} has {a.elements} elements")
    return out


def on_host(asked: Sequence[Asked]) -> tuple[Field, ...]:
    """Arrays for a simulation: zeros, or bytes that nobody should read."""
    fields = []
    for a in asked:
        words = np.full(a.bytes, 0 if a.of.clean else 0xFF, np.uint8)
        value = words.view(DTYPES[a.of.dtype].numpy)
        fields.append(a.field(value, words.ctypes.data, CPU))
    return tuple(fields)


def check_left_clean(fields: Sequence[Field], asked: Sequence[Asked]) -> None:
    """Raises LaunchError where a kernel leaves something in memory that the next one needs clean."""
    for field, a in zip(fields, asked, strict=True):
        if a.of.clean and field.value.view(np.uint8).any():
            raise LaunchError(
                "workspace-clean",
                f"the kernel leaves numbers in {a.of.name}, which it asks for with requires_clean=True",
                help="let it write zeros where it wrote before: the next launch finds what this one leaves",
            )


class _Memory:
    """Zeroed bytes on a GPU, given back with the object."""

    def __init__(self, device: int, size: int) -> None:
        self.pointer = driver().allocate(device, size)
        driver().copy_out(device, self.pointer, bytearray(1))  # which waits until they are zeroed
        weakref.finalize(self, driver().free, device, self.pointer).atexit = False


def on_device(asked: Sequence[Asked], device: int) -> tuple[Field, ...]:
    """Zeroed memory on a GPU."""
    made = [(a, _Memory(device, max(1, a.bytes))) for a in asked]
    return tuple(a.field(memory, memory.pointer, device) for a, memory in made)


class PerStream:
    """A launch with memory of its own on each stream.  values: the caller's numbers and addresses."""

    def __init__(
        self, kernel: LoadedKernel, device: int, values: tuple[Any, ...], asked: Sequence[Asked]
    ) -> None:
        self.kernel, self.device, self.values, self.asked = kernel, device, values, asked
        self._of: dict[int, tuple[Prepared, tuple[Field, ...]]] = {}

    def start(self, grid: tuple[int, int, int]) -> None:
        """Launches on the current stream.  Raises LaunchError."""
        stream = current_stream(self.device)
        if stream not in self._of:
            if driver().is_capturing(stream, self.device):
                raise LaunchError(
                    "workspace-capture",
                    f"{self.kernel.plan.name} needs memory of its own, which can't be made during a capture",
                    help="launch it once on this stream before the graph is captured",
                )
            fields = on_device(self.asked, self.device)
            values = (*self.values, *(f.launched for f in fields))
            self._of[stream] = self.kernel.prepare(self.device, grid, values), fields
        prepared, _ = self._of[stream]
        prepared.start(grid)
