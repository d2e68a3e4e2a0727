"""Warploom: tile kernels to warp-specialized GPU kernels.

`@wl.jit` makes a kernel of a Triton-style function; `kernel[grid](…)` launches it, `kernel.compile(…)`
and `kernel.compile_for(…)` give a `CompiledKernel`, which prints, explains, checks and simulates.
A `wl.Script` is a kernel in which the user places every role and barrier.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from warploom import options as _options
from warploom.codegen.resources import Resources
from warploom.errors import (
    CompileError,
    InternalError,
    LaunchError,
    WarploomError,
    WarploomWarning,
)
from warploom.runtime.args import TensorDescriptor
from warploom.runtime.autotune import Autotuner, heuristics
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.config import Config, Hooks
from warploom.runtime.jit import JITFunction, jit
from warploom.schedule.model import Knobs, Schedule

if TYPE_CHECKING:
    from warploom.explicit.script import Class
    from warploom.frontend.language.core import constexpr_function
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


def autotune(
    configs: Sequence[Config] | str,
    key: Sequence[Any],
    *,
    restore_value: Sequence[str] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    prune_configs_by: Mapping[str, Any] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    do_bench: Callable[..., Any] | None = None,
    warmup: Any = None,
    rep: Any = None,
    use_cuda_graph: Any = None,
    cache_results: Any = None,
) -> Callable[[Any], Any]:
    """Decorator: choose among configs by timing, once for each value of the `key` parameters.

    restore_value, reset_to_zero: parameters whose arrays are restored, or zeroed, before each timed
    launch.  prune_configs_by: `early_config_prune`, or `perf_model` and `top_k`, as in Triton.
    do_bench, pre_hook, post_hook: the user's own timing, in this process, and what is called around each of
    its launches (`runtime.autotune.Hooks`).  warmup, rep and use_cuda_graph have no effect: the protocol is
    docs/internals/runtime.md's; nor has cache_results: verdicts are always kept.
    On a `wl.Script`, as in Tilus: autotune("block_m, block_n", [[128, 64], [128, 128]]), stacked at will.
    """
    if isinstance(configs, str):
        from warploom.runtime.script import autotune as of_script

        return of_script(configs, key)
    hooks = Hooks(pre_hook, post_hook, do_bench)
    return lambda fn: Autotuner(
        fn, configs, key, restore_value or (), reset_to_zero or (), prune_configs_by, hooks
    )


def cdiv(x: int, y: int) -> int:
    """The quotient rounded up: how many blocks of y cover x."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n; 0 where n is not positive, as Triton's."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


for _helper in (cdiv, next_power_of_2):  # kernels may call them with constexprs
    _helper.__warploom_constexpr__ = _helper  # type: ignore[union-attr]


if _options.as_triton():
    from warploom.runtime.serve import serve as _serve

    _serve()


def __getattr__(name: str) -> Any:
    """What launches of `@wl.jit` kernels do without is imported when it is first used."""
    if name == "Script":
        from warploom.runtime.script import Script

        return Script
    if name == "Class":
        from warploom.explicit.script import Class

        return Class
    if name == "constexpr_function":
        from warploom.frontend.language.core import constexpr_function

        return constexpr_function
    raise AttributeError(f"module 'warploom' has no attribute {name!r}")
