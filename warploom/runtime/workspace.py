"""Arguments of a kernel after those of its caller: memory that a script asks for itself
(`self.global_tensor`), and what a kernel asks for that shares out the programs of its last wave, or writes
tensor maps: the sizes of their grid, and memory as well.

On a GPU memory belongs to a kernel on a stream, so that the launches which use it come one after the other;
it is made at the first of them and used again.  A graph may run beside other launches on its stream: memory
in which a launch leaves nothing for the next is made for each one that is captured.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warploom.errors import LaunchError
from warploom.runtime.args import CPU, Array, Field
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.launch import LoadedKernel, Prepared, current_stream, driver, grid_sizes
from warploom.runtime.plan import Workspace, evaluate, grid_of

if TYPE_CHECKING:
    from warploom.ir.core import Func


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
    import numpy as np

    from warploom.ir.types import DTYPES

    fields = []
    for a in asked:
        words = np.full(a.bytes, 0 if a.of.clean else 0xFF, np.uint8)
        value = words.view(DTYPES[a.of.dtype].numpy)
        fields.append(a.field(value, words.ctypes.data, CPU))
    return tuple(fields)


def check_left_clean(fields: Sequence[Field], asked: Sequence[Workspace]) -> None:
    """Raises LaunchError where a kernel leaves something in memory that the next one needs clean.  fields:
    its arguments, the last of which are workspaces."""
    for field, a in zip(fields[len(fields) - len(asked) :], asked, strict=True):
        if a.clean and field.value.view("u1").any():
            raise LaunchError(
                "workspace-clean",
                f"the kernel leaves numbers in {a.name}, which it asks for with requires_clean=True",
                help="let it write zeros where it wrote before: the next launch finds what this one leaves",
            )


class _Memory:
    """Bytes on a GPU, given back with the object; zeroed, but where a stream is being captured."""

    def __init__(self, device: int, size: int, captured: bool = False) -> None:
        self.pointer = driver().allocate(device, size, clear=not captured)
        if not captured:
            driver().copy_out(
                device, self.pointer, bytearray(1)
            )  # which waits until they are zeroed
        weakref.finalize(self, driver().free, device, self.pointer).atexit = False


def on_device(asked: Sequence[Asked], device: int, captured: bool = False) -> tuple[Field, ...]:
    """Memory on a GPU; zeroed, but where a stream is being captured."""
    made = [(a, _Memory(device, max(1, a.bytes), captured)) for a in asked]
    return tuple(a.field(memory, memory.pointer, device) for a, memory in made)


def with_programs(
    func: Func, fields: Sequence[Field], grid: tuple[int, int, int]
) -> tuple[list[Field], tuple[int, int, int]]:
    """A launch of so many programs on the host as `func` takes it: its arguments, and its grid.  Raises
    LaunchError."""
    if not func.attrs.get("programs"):
        return list(fields), grid
    given = [*fields, *(Field("programs", n, None) for n in grid)]
    numbers = [0 if f.array is not None else f.value for f in given]
    from warploom.runtime.signature import workspaces_of

    own = on_host(asked_for(workspaces_of(func), numbers))
    return [*given, *own], grid_of(func, numbers) if 0 not in grid else grid


class OwnMemoryLaunch:
    """A launch of a kernel that shares out the programs of its last wave, or writes tensor maps.  values: the
    caller's numbers and addresses.  captured: what a launch is instead whose stream is being captured, as a
    graph may run beside other launches on the stream's memory; None where nobody chose this kernel but its
    user, or a graph can have memory of its own."""

    def __init__(
        self,
        kernel: LoadedKernel,
        device: int,
        grid: tuple[int, int, int],
        values: tuple[Any, ...],
        captured: Callable[[], Prepared] | None = None,
    ) -> None:
        self.kernel, self.device, self.grid, self.values = kernel, device, grid, values
        self._captured = captured
        self._needs_zeros = any(w.clean for w in kernel.plan.workspaces)
        self._of: dict[tuple[Any, int], tuple[Prepared, tuple[Field, ...]]] = {}

    def __call__(self, stream: int | None = None) -> None:
        """Launch on `stream` (a raw handle; the current one where None) with the prepared grid."""
        self.start(self.grid, stream)

    def start(self, grid: Any, stream: int | None = None) -> None:
        """Launch on another grid of programs: 1 to 3 sizes, or one number.  Raises LaunchError."""
        sizes = grid_sizes(grid)
        if 0 in sizes:
            return
        if stream is None:
            stream = current_stream(self.device)
        if self._captured is not None and driver().is_capturing(stream, self.device):
            self._captured().start(sizes, stream)
            return
        if not self._needs_zeros and driver().is_capturing(stream, self.device):
            asked = asked_for(self.kernel.plan.workspaces, (*self.values, *sizes))
            fields = on_device(asked, self.device, captured=True)
            self.kernel.captured.append(fields)  # nobody says when the graph is gone
            self._prepared(sizes, fields)(stream)
            return
        if (sizes, stream) not in self._of:
            asked = asked_for(self.kernel.plan.workspaces, (*self.values, *sizes))
            fields = _of_stream(self.kernel, self.device, stream, asked)
            self._of[sizes, stream] = self._prepared(sizes, fields), fields
        prepared, _ = self._of[sizes, stream]
        prepared(stream)

    def _prepared(self, sizes: tuple[int, int, int], own: Sequence[Field]) -> Prepared:
        """The launch with this memory."""
        given = (*self.values, *sizes)
        values = (*given, *(f.launched for f in own))
        return self.kernel.prepare(self.device, self.kernel.plan.grid_for(given), values)


def prepared(
    kernel: LoadedKernel,
    device: int,
    grid: tuple[int, int, int],
    values: tuple[Any, ...],
    captured: Callable[[], Prepared] | None = None,
) -> Prepared | OwnMemoryLaunch:
    """A launch of so many programs.  captured: as of OwnMemoryLaunch."""
    if kernel.plan.programs:
        return OwnMemoryLaunch(kernel, device, grid, values, captured)
    return kernel.prepare(device, grid, values)


def _of_stream(
    kernel: LoadedKernel, device: int, stream: int, asked: Sequence[Asked]
) -> tuple[Field, ...]:
    """Memory of a kernel on a stream, for all of its launches there; larger grids may need more.  Raises
    LaunchError."""
    found: tuple[Field, ...] = kernel.memory.get((device, stream), ())
    held = [f.array.shape[0] for f in found if f.array is not None]
    if not held or any(n < a.elements for n, a in zip(held, asked, strict=True)):
        found = kernel.memory[device, stream] = _made(kernel, device, stream, asked)
    return found


def _made(
    kernel: LoadedKernel, device: int, stream: int, asked: Sequence[Asked]
) -> tuple[Field, ...]:
    """Zeroed memory for launches on a stream.  Raises LaunchError during a capture."""
    if driver().is_capturing(stream, device):
        raise LaunchError(
            "workspace-capture",
            f"{kernel.plan.name} needs memory of its own, which can't be made during a capture",
            help="launch it once on this stream before the graph is captured",
        )
    return on_device(asked, device)


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
            fields = _made(self.kernel, self.device, stream, self.asked)
            values = (*self.values, *(f.launched for f in fields))
            self._of[stream] = self.kernel.prepare(self.device, grid, values), fields
        prepared, _ = self._of[stream]
        prepared.start(grid)
