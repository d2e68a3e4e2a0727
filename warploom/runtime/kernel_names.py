"""What others read of a kernel by Triton's names, and how a kernel travels to another process."""

from __future__ import annotations

import functools
import hashlib
import inspect
import runpy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.errors import LaunchError
from warploom.runtime.binding import Callee


@dataclass(frozen=True)
class KernelParam:
    """A parameter of a kernel: its position, its name, and whether it is a tl.constexpr."""

    num: int
    name: str
    is_constexpr: bool
    annotation: str
    is_const: bool = False
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False


class KernelNames(Callee):
    """A kernel with the attributes that Inductor and other libraries read of Triton's.

    A kernel is pickled without its function, by the file that defines it: `fn` is None in the process that
    loads it, and `live()` runs the file where the function is needed."""

    fn: Any
    __name__: str
    repr: Callable[[Any], str]
    used_global_vals: Any = None

    @functools.cached_property
    def params(self) -> tuple[KernelParam, ...]:
        found = enumerate(self.parameters)
        return tuple(KernelParam(i, p.name, p.constexpr, p.annotation) for i, p in found)

    @property
    def constexprs(self) -> list[int]:
        """Positions of the parameters that are tl.constexpr."""
        return [p.num for p in self.params if p.is_constexpr]

    @functools.cached_property
    def src(self) -> str:
        """The kernel's text from its `def` on; empty where there is no source file."""
        try:
            text = inspect.cleandoc("\n" + inspect.getsource(self.fn))
        except OSError:
            return ""
        return text[text.index("def ") :]

    @functools.cached_property
    def cache_key(self) -> str:
        return hashlib.sha256(self.src.encode()).hexdigest()

    @functools.cached_property
    def _hash_lock(self) -> Any:
        return threading.RLock()

    @functools.cached_property
    def _place(self) -> tuple[str, str]:
        return self.fn.__code__.co_filename, self.fn.__name__

    def __copy__(self) -> KernelNames:
        return self

    def __deepcopy__(self, _: Any) -> KernelNames:
        return self

    def __getstate__(self) -> dict[str, Any]:
        names = ("params", "arg_names", "src", "cache_key", "_place", "__name__")
        state = {name: getattr(self, name) for name in names}
        return {**state, "fn": None, "repr": functools.partial(constant_name, self.__name__)}

    def live(self) -> Any:
        """The kernel with its function: itself, or where it came from another process, the one that its file
        defines.  Raises LaunchError where that file is gone, or defines it no more."""
        if self.fn is not None:
            return self
        path, name = self._place
        try:
            found = runpy.run_path(path).get(name)
        except OSError as error:
            raise LaunchError(
                "kernel-file",
                f"kernel {name} was compiled in another process, and its file can't be read: {error}",
                help="keep the file for as long as the kernel is launched",
            ) from None
        while found is not None and not isinstance(found, KernelNames):
            found = getattr(found, "fn", None)
        if found is None:
            raise LaunchError(
                "kernel-file",
                f"{path} defines no kernel {name} any more",
                help="compile the kernel in this process",
            )
        return found


def constant_name(name: str, _: Any) -> str:
    """The `repr` of a kernel that was given none: its name, whatever it is specialized for."""
    return name
