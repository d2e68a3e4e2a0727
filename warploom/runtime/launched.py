"""What a kernel and the decorators above it have in common: how they are launched, by Triton's names too."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from warploom.runtime.args import Mock
from warploom.runtime.compiled import CompiledKernel


class Launched(ABC):
    """Something that `kernel[grid](…)` launches."""

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        """The launcher for a grid: 1 to 3 sizes, or a function of the arguments (a dict) giving them."""
        return functools.partial(self.launch, grid)

    @abstractmethod
    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch on a grid; the compiled variant that ran, or None where it was interpreted on the CPU."""

    @abstractmethod
    def compile_for(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """The variant that a launch with these arguments would use, without launching."""

    def run(
        self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any
    ) -> CompiledKernel | None:
        """A launch with the grid by name; warmup: compile, and launch nothing."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self.launch(grid, *args, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> CompiledKernel:
        """As compile_for; a dtype of torch stands for an array of it, aligned to 16 bytes."""
        named = {name: Mock.of(value) for name, value in kwargs.items()}
        return self.compile_for(*map(Mock.of, args), grid=grid, **named)
