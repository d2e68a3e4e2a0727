"""Launches of a kernel that was compiled for a signature, whatever arguments come.

Who compiles before there are arguments (`triton.compile`, PyTorch's Inductor) launches what he got, and
nothing else; where arguments break what the variant takes for granted (they overlap, a size is 0), the
variant for that is compiled and launched in its place, as in a call of the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from warploom.errors import LaunchError
from warploom.frontend.source import parameters
from warploom.runtime.args import CPU, Field, fields_of
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.launch import Prepared, grid_sizes
from warploom.runtime.seen import CALLS_KEPT, SeenCalls, usual
from warploom.runtime.values import contradiction
from warploom.runtime.variants import (
    Accepted,
    Arguments,
    Changes,
    Compilations,
    changed,
    variants_for,
)


class FixedLauncher:
    """Launches one compiled kernel.  Arguments are the run-time ones in order, or all of the kernel's
    parameters, in which case those that the variant fixes don't count."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._variants = Compilations()
        self._seen: SeenCalls[Prepared] = SeenCalls()
        self._accepted: dict[Any, Accepted[CompiledKernel]] = {}
        fixed = dict(kernel.request.constexprs)
        names = [p.name for p in parameters(kernel.request.fn)]
        self._run_time = [(i, name) for i, name in enumerate(names) if name not in fixed]

    def __call__(self, grid: Any, stream: int | None, args: Sequence[Any]) -> CompiledKernel | None:
        """Launches on a stream (a raw handle; None: the current one); the kernel.  Host arrays are taken
        through the oracle, which gives None."""
        prepared = self._seen.find(args, {})
        if prepared is None:
            prepared = self._prepare(grid, args)
            if prepared is None:
                return None
            self._seen.add(args, {}, prepared)
        prepared.start(grid, stream)
        return self.kernel

    def _prepare(self, grid: Any, args: Sequence[Any]) -> Prepared | None:
        """A launch with its parameters in place; None where it has been interpreted."""
        sizes, args = grid_sizes(grid), self._run_time_of(args)
        made = usual(args, itertools.repeat(False))
        known = None if made is None or made.device == CPU else (made.classes, made.extents)
        accepted = self._accepted.get(known)
        if made is not None and accepted is not None and accepted.takes(made.values):
            bound = accepted.kernel.binder(made.values)
            return accepted.kernel.loaded().prepare_bound(made.device, sizes, *bound)
        fields = self._fields(args)
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
        accepted = Accepted.of(found, arguments)
        if known is not None and accepted is not None:
            if len(self._accepted) >= CALLS_KEPT:
                self._accepted.clear()
            self._accepted[known] = accepted
        kernel = found[-1][1]
        return kernel.loaded().prepare_bound(device, sizes, *arguments.bound(kernel))

    def _run_time_of(self, args: Sequence[Any]) -> Sequence[Any]:
        """The run-time ones of all of the kernel's arguments."""
        if len(args) == len(self._run_time):
            return args
        return [args[i] for i, _ in self._run_time]

    def _fields(self, args: Sequence[Any]) -> list[Field]:
        """The arguments as parameters.  Raises LaunchError where the variant isn't made for one."""
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
