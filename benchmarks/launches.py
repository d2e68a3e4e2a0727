"""Runs of warploom's own kernels: launched where there is a GPU, or compiled alone, for arrays on paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any


class KernelRun:
    """A `@wl.jit` kernel on each set's arguments, every launch prepared at the first.

    calls: the arguments, a tuple for each input set; options: constexprs, knobs and the grid."""

    def __init__(self, kernel: Any, calls: Sequence[tuple[Any, ...]], **options: Any) -> None:
        self.kernel, self.calls, self.options = kernel, calls, options

    @cached_property
    def launches(self) -> list[Any]:
        return [self.kernel.prepare(*call, **self.options) for call in self.calls]

    def __call__(self, i: int) -> None:
        self.launches[i]()

    def compiled(self) -> Any:
        """What would be launched; needs no GPU."""
        return self.kernel.compile_for(*self.calls[0], **self.options)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Programs along each axis."""
        given = {name: value for name, value in self.options.items() if name != "grid"}
        sizes: tuple[int, int, int] = self.kernel.sizes(self.options["grid"], self.calls[0], given)
        return sizes


class Chain:
    """Kernels that are launched one behind the other; the first one is what the run is of."""

    def __init__(self, runs: Iterable[KernelRun]) -> None:
        self.runs = tuple(runs)

    def __call__(self, i: int) -> None:
        for run in self.runs:
            run(i)

    @property
    def calls(self) -> Sequence[tuple[Any, ...]]:
        """The first one's arguments."""
        return self.runs[0].calls

    def compiled(self) -> Any:
        """What would be launched first; needs no GPU."""
        return self.runs[0].compiled()

    @property
    def grid(self) -> tuple[int, int, int]:
        """The first one's programs along each axis."""
        return self.runs[0].grid


class ScriptRun:
    """A `wl.Script` on each set's arguments, called as users call it."""

    def __init__(self, script: Any, calls: Sequence[tuple[Any, ...]]) -> None:
        self.script, self.calls = script, calls

    def __call__(self, i: int) -> None:
        self.script(*self.calls[i])

    def compiled(self) -> Any:
        """What would be launched; needs no GPU."""
        return self.script.compile_for(*self.calls[0])

    @property
    def grid(self) -> tuple[int, int, int]:
        """Programs along each axis."""
        numbers = [0 if hasattr(x, "dtype") else x for x in self.calls[0]]
        sizes: tuple[int, int, int] = self.compiled().plan.grid_for(numbers)
        return sizes
