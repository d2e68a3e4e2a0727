"""Warploom: tile kernels to warp-specialized GPU kernels.

`@wl.jit` makes a kernel of a Triton-style function; `kernel[grid](…)` launches it, `kernel.compile(…)`
and `kernel.compile_for(…)` give a `CompiledKernel`, which prints, explains, checks and simulates.
A `wl.Script` is a kernel in which the user places every role and barrier.
"""

from typing import TYPE_CHECKING, Any

from warploom.errors import (
    CompileError,
    InternalError,
    LaunchError,
    WarploomError,
    WarploomWarning,
)
from warploom.runtime.args import TensorDescriptor
from warploom.runtime.autotune import Config, autotune, heuristics
from warploom.runtime.compiled import CompiledKernel, Resources
from warploom.runtime.jit import JITFunction, jit
from warploom.schedule.model import Knobs, Schedule

if TYPE_CHECKING:
    from warploom.explicit.script import Class
    from warploom.language.core import constexpr_function
    from warploom.runtime.script import Script

__version__ = "0.1.0"

__all__ = [
    "Class",
    "CompileError",
    "CompiledKernel",
    "Config",
    "InternalError",
    "JITFunction",
    "Knobs",
    "LaunchError",
    "Resources",
    "Schedule",
    "Script",
    "TensorDescriptor",
    "WarploomError",
    "WarploomWarning",
    "autotune",
    "cdiv",
    "constexpr_function",
    "heuristics",
    "jit",
    "next_power_of_2",
]


def cdiv(x: int, y: int) -> int:
    """The quotient rounded up: how many blocks of y cover x."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


for _helper in (cdiv, next_power_of_2):  # kernels may call them with constexprs
    _helper.__warploom_constexpr__ = _helper  # type: ignore[union-attr]


def __getattr__(name: str) -> Any:
    """What launches of `@wl.jit` kernels do without is imported when it is first used."""
    if name == "Script":
        from warploom.runtime.script import Script

        return Script
    if name == "Class":
        from warploom.explicit.script import Class

        return Class
    if name == "constexpr_function":
        from warploom.language.core import constexpr_function

        return constexpr_function
    raise AttributeError(f"module 'warploom' has no attribute {name!r}")
