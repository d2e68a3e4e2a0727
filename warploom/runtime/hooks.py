"""What others ask to be called around launches: profilers, loggers.

    from warploom.runtime.hooks import ENTER
    ENTER.add(lambda metadata: print(metadata.get()["name"]))

A launch without hooks pays for tests of empty lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from warploom.schedule.model import Knobs

Hook = Callable[..., Any]


class HookChain(list[Hook]):
    """Functions that are called one after the other.  is_reversed: those added last are called first."""

    def __init__(self, is_reversed: bool = False) -> None:
        super().__init__()
        self.is_reversed = is_reversed

    @property
    def calls(self) -> list[Hook]:
        """The functions."""
        return self

    def add(self, hook: Hook) -> None:
        """Appends a function that is not in the chain yet."""
        if hook not in self:
            self.append(hook)

    def remove(self, hook: Hook) -> None:
        """Takes a function out, if it is in the chain."""
        if hook in self:
            super().remove(hook)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for hook in reversed(self) if self.is_reversed else tuple(self):
            hook(*args, **kwargs)


class LazyDict:
    """What a hook is told.  `get()` gives the dict; what was added as a function is computed then."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self._later: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def add(self, compute: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Adds the entries of the dict that compute(*args) gives."""
        self._later.append((compute, args))

    def get(self) -> dict[str, Any]:
        for compute, args in self._later:
            self.data |= compute(*args)
        self._later.clear()
        return self.data


# Functions of (kernel, launch, grid, args, kwargs) that launch by launch() and give what it gives: they may
# time it, or catch what it raises.  The last one is the outermost.
AROUND: list[Callable[..., Any]] = []

# Functions of (source, compile) that compile by compile(), as `triton.compile` is asked to, and give what it
# gives: they may catch what it raises.  The last one is the outermost.
AROUND_COMPILE: list[Callable[..., Any]] = []

ENTER = HookChain()  # before each launch, with a LazyDict
EXIT = HookChain(is_reversed=True)  # after it, with the same

_DEFAULTS = vars(Knobs())


def launch_with_hooks(
    kernel: Any,
    launch: Callable[[], Any],
    grid: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """What launch() gives, a launch of a JITFunction, with everything around it that was asked for."""
    for hook in kernel.pre_run_hooks:
        hook(*args, **kwargs)
    name = kernel.fn.__name__
    data = LazyDict({"name": name, "function": None, "stream": None})
    if kernel.launch_metadata is not None:
        metadata = SimpleNamespace(name=name, **{**_DEFAULTS, **kwargs})
        named = kernel.meta(args, kwargs)
        data.add(kernel.launch_metadata, (kernel.sizes(grid, args, kwargs), metadata, named))
    for wrapper in AROUND:
        launch = functools.partial(wrapper, kernel, launch, grid, args, kwargs)
    ENTER(data)
    try:
        return launch()
    finally:
        EXIT(data)
