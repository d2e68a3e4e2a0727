"""Launches of a kernel that was compiled for a signature, whatever arguments come.

Who compiles before there are arguments (`triton.compile`, PyTorch's Inductor) launches what he got, and
nothing else; where arguments break what the variant takes for granted (they overlap, a size is 0), the
variant for that is compiled and launched in its place, as in a call of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warploom.errors import LaunchError
from warploom.frontend.source import parameters
from warploom.runtime.args import CPU, Field, fields_of
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.launch import Prepared, grid_sizes
from warploom.runtime.seen import (
    CALLS_KEPT,
    TYPES_KEPT,
    UNKEYED,
    Read,
    Reader,
    SeenCalls,
    reader_of,
)
from warploom.runtime.values import contradiction
from warploom.runtime.variants import (
    Accepted,
    Arguments,
    Changes,
    Compilations,
    changed,
    variants_for,
)
from warploom.runtime.workspace import LastWaveLaunch


class _Alike:
    """Launches on a device that differ in addresses and floats alone."""

    def __init__(self, accepted: Accepted[CompiledKernel], device: int, read: Read) -> None:
        self.accepted, self._device = accepted, device
        self.is_free = not accepted.disjoint  # whatever arguments overlap
        self._bind, self._loaded = accepted.kernel.binder, accepted.kernel.loaded()
        self._is_whole = float not in map(type, read[1])  # no -0.0, which is equal to 0.0
        # Launches that have ended, as the driver copies their parameters, with what these are.
        self._idle: list[tuple[Sequence[int | float], Prepared]] = []

    def start(self, grid: Any, stream: int | None, values: Sequence[int | float]) -> None:
        try:
            held, prepared = self._idle.pop()  # no other thread's
        except IndexError:
            sizes, bound = grid_sizes(grid), self._bind(values)
            prepared = self._loaded.prepare_bound(self._device, sizes, *bound)
        else:
            if held != values or not self._is_whole:
                self._loaded.fill(prepared, *self._bind(values))
        prepared.start(grid, stream)
        self._idle.append((values, prepared))


class FixedLauncher:
    """Launches one compiled kernel.  Arguments are the run-time ones in order, or all of the kernel's
    parameters, in which case those that the variant fixes don't count."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._variants = Compilations()
        # Of arguments that no reader reads.
        self._seen: SeenCalls[Prepared | LastWaveLaunch] = SeenCalls()
        # Of each combination of types; replaced, never changed, as other threads may be reading it.
        self._alike: tuple[tuple[Reader, dict[Any, _Alike]], ...] = ()
        fixed = dict(kernel.request.constexprs)
        names = [p.name for p in parameters(kernel.request.fn)]
        self._run_time = [(i, name) for i, name in enumerate(names) if name not in fixed]
        # Must arrays be disjoint?  Else their shapes and strides decide nothing.
        self._by_extents = bool(kernel.plan.disjoint)

    def __call__(self, grid: Any, stream: int | None, args: Sequence[Any]) -> CompiledKernel | None:
        """Launches on a stream (a raw handle; None: the current one); the kernel.  Host arrays are taken
        through the oracle, which gives None."""
        for read, launches in self._alike:
            try:
                found = read(args)
            except UNKEYED:  # binding says what is wrong
                break
            if found is not None:
                alike = launches.get(found[0])
                if alike is not None and (alike.is_free or alike.accepted.takes(found[1])):
                    alike.start(grid, stream, found[1])
                    return self.kernel
                break
        prepared = self._seen.find(args, {}) or self._prepare(grid, args)
        if prepared is None:
            return None
        prepared.start(grid, stream)
        return self.kernel

    def _prepare(self, grid: Any, args: Sequence[Any]) -> Prepared | LastWaveLaunch | None:
        """A launch with its parameters in place; None where it has been interpreted."""
        sizes, fields = grid_sizes(grid), self._fields(args)
        device = next((f.array.device for f in fields if f.array is not None), 0)
        if device == CPU:
            from warploom.sim.oracle import run

            run(self.kernel.lowered.written, [f.on_host for f in fields], sizes)
            return None

        def bytes_of(i: int) -> tuple[int, int] | None:
            array = fields[i].array
            return None if array is None else array.bytes_range()

        arguments = Arguments(tuple([f.launched for f in fields]), bytes_of)
        found = variants_for(self._variant, arguments, lambda *_: None)
        kernel = found[-1][1]
        if kernel.plan.programs:
            launch = kernel.prepared(device, sizes, arguments.values)
            self._seen.add(args, {}, launch)
            return launch
        prepared = kernel.loaded().prepare_bound(device, sizes, *arguments.bound(kernel))
        accepted = Accepted.of(found, arguments)
        if accepted is None or not self._add(args, accepted, device):
            self._seen.add(args, {}, prepared)
        return prepared

    def _add(self, args: Sequence[Any], accepted: Accepted[CompiledKernel], device: int) -> bool:
        """Lets launches like this one be found; false where no reader reads what decides of them."""
        if accepted.disjoint and not self._by_extents:
            return False
        known = ((read(args), launches) for read, launches in self._alike)
        found, launches = next((one for one in known if one[0] is not None), (None, {}))
        if found is None:
            few = len(args) == len(self._run_time)
            used = range(len(args)) if few else [i for i, _ in self._run_time]
            own = reader_of(args, used, self._by_extents)
            if own is None or (found := own(args)) is None:
                return False
            self._alike = ((own, launches), *self._alike[: TYPES_KEPT - 1])
        if len(launches) >= CALLS_KEPT:
            launches.clear()
        launches[found[0]] = _Alike(accepted, device, found)
        return True

    def _fields(self, args: Sequence[Any]) -> list[Field]:
        """The arguments as parameters.  Raises LaunchError where the variant isn't made for one."""
        if len(args) != len(self._run_time):
            args = [args[i] for i, _ in self._run_time]
        found: list[Field] = []
        for (_, name), spec, value in zip(
            self._run_time, self.kernel.request.specs, args, strict=True
        ):
            fields = fields_of(name, value)
            if why := contradiction(spec, value, fields):
                raise LaunchError(
                    "variant-argument",
                    f"{name} of {self.kernel.name}: {why}",
                    help="compile the kernel for a signature that takes such arguments",
                )
            found += fields
        return found

    def _variant(self, changes: Changes) -> CompiledKernel:
        if not changes:
            return self.kernel
        return self._variants.get(changed(self.kernel.request, changes), lambda _: None)
