"""Kernels that are refused here, handed to the Triton that is installed.

A kernel's function is made anew with that Triton's modules, dtypes and functions in the place of ours, in its
globals, closure and defaults; helpers likewise.  While the installed Triton works, `triton` in sys.modules is
its own.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from warploom.errors import CompileError
from warploom.frontend.language.core import Constexpr
from warploom.ir.types import DType
from warploom.runtime.args import TensorDescriptor
from warploom.runtime.hooks import AROUND
from warploom.runtime.jit import JITFunction
from warploom.runtime.mistakes import warn
from warploom.runtime.serve import SERVED, serve, stop
from warploom.triton import allocators


class Fallback:
    """The installed Triton.  Raises ModuleNotFoundError where there is none."""

    def __init__(self) -> None:
        self._own: dict[str, types.ModuleType] = {}  # of the installed one, while ours is served
        self._kernels: dict[JITFunction, Any] = {}
        self.refused: dict[JITFunction, str] = {}  # and why
        self._names: dict[int, list[tuple[str, str]]] = {}  # id of a value -> modules, names
        with self.working():
            for name in _modules():
                importlib.import_module(name)

    def start(self) -> None:
        AROUND.insert(0, self.around)

    def stop(self) -> None:
        AROUND.remove(self.around)

    def around(
        self,
        kernel: JITFunction,
        launch: Callable[[], Any],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The launch; where the kernel is refused, by the installed Triton, which is said once a kernel."""
        if kernel not in self.refused:
            try:
                return launch()
            except CompileError as error:
                why = self.refused[kernel] = str(error).splitlines()[0]
                warn(f"{kernel.fn.__name__} is handed to the installed Triton: {why}")
        return self.launch(kernel, grid, args, kwargs)

    def launch(
        self,
        kernel: JITFunction,
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        warmup: bool = False,
    ) -> Any:
        """A launch by the installed Triton, and what that gives.  warmup: compile, and launch nothing."""
        with self.working():
            given = [self._theirs(a) for a in args]
            named = {name: self._theirs(v) for name, v in kwargs.items()}
            theirs = self._kernel(kernel)
            for allocator in allocators:
                sys.modules["triton"].set_allocator(allocator)
            if warmup:
                return theirs.run(*given, grid=grid, warmup=True, **named)
            return theirs[grid](*given, **named)

    @contextmanager
    def working(self) -> Iterator[None]:
        """`triton` is the installed one."""
        ours = {m: sys.modules[m] for m in sys.modules if m.partition(".")[0] in SERVED}
        stop()
        sys.modules.update(self._own)
        try:
            yield
        finally:
            self._own = {m: sys.modules[m] for m in sys.modules if m.partition(".")[0] in SERVED}
            for name in self._own:
                del sys.modules[name]
            sys.modules.update(ours)
            serve()

    # ---- a kernel of ours as one of theirs

    def _kernel(self, kernel: JITFunction) -> Any:
        if kernel not in self._kernels:
            self._kernels[kernel] = (
                kernel  # for one whose attributes have names of kernels that call it
            )
            triton = sys.modules["triton"]
            self._kernels[kernel] = triton.jit(
                do_not_specialize=kernel.unspecialized,
                do_not_specialize_on_alignment=kernel.unaligned,
            )(self._function(kernel.fn))
        return self._kernels[kernel]

    def _function(self, fn: Any) -> types.FunctionType:
        space = {"__builtins__": builtins, "__name__": fn.__module__}
        names = {*re.findall(r"\w+", inspect.getsource(fn.__code__))}  # those of defaults, too
        for name, value in fn.__globals__.items():
            if name in names or isinstance(value, types.ModuleType):
                space[name] = self._theirs(value)
        cells = fn.__closure__ and tuple(
            types.CellType(self._theirs(c.cell_contents)) for c in fn.__closure__
        )
        defaults = fn.__defaults__ and tuple(map(self._theirs, fn.__defaults__))
        made = types.FunctionType(fn.__code__, space, fn.__name__, defaults, cells)
        for field in ("__kwdefaults__", "__annotations__"):
            given = getattr(fn, field)
            setattr(made, field, given and {k: self._theirs(v) for k, v in given.items()})
        made.__module__, made.__qualname__ = fn.__module__, fn.__qualname__
        return made

    def _theirs(self, value: Any) -> Any:
        """What stands for a value of ours in the installed Triton; other values are themselves."""
        match value:
            case JITFunction():
                return self._kernel(value)
            case types.ModuleType() if value.__name__.startswith("warploom.triton"):
                return _module(value)
            case Constexpr():
                return sys.modules["triton.language"].constexpr(self._theirs(value.value))
            case TensorDescriptor():
                kind = sys.modules["triton.tools.tensor_descriptor"].TensorDescriptor
                fields = (value.base, *map(list, (value.shape, value.strides, value.block_shape)))
                return kind(*fields, value.padding)
            case DType() | type() | types.FunctionType():
                return self._named(value)
        return value

    def _named(self, value: Any) -> Any:
        """A dtype, class or function of our modules by the name that it has there."""
        if not self._names:
            for module in _modules():
                for name, own in vars(sys.modules[f"warploom.{module}"]).items():
                    self._names.setdefault(id(own), []).append((module, name))
        known = ((sys.modules[module], name) for module, name in self._names.get(id(value), ()))
        return next((getattr(m, name) for m, name in known if hasattr(m, name)), value)


def _module(ours: types.ModuleType) -> types.ModuleType:
    """The installed module of that name; ours where there is none."""
    try:
        return importlib.import_module(ours.__name__.removeprefix("warploom."))
    except ModuleNotFoundError:
        return ours


def _modules() -> list[str]:
    """Those of Triton's modules that kernels take names from."""
    below = ("language", "language.math", "language.extra", "language.extra.libdevice")
    return ["triton", *(f"triton.{name}" for name in (*below, "tools.tensor_descriptor"))]
