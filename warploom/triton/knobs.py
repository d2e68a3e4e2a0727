"""triton.knobs: what profilers and tests set.  What has no meaning here may be set, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from warploom.runtime.hooks import ENTER, EXIT, HookChain

__all__ = [
    "HookChain",
    "amd",
    "autotuning",
    "build",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "proton",
    "redis",
    "runtime",
]


class _Knobs(SimpleNamespace):
    """Names to set; within `scope()` for a while."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is set inside is as before after it."""
        before, chains = dict(vars(self)), [list(c) for c in (ENTER, EXIT)]
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)
            ENTER[:], EXIT[:] = chains


class _Runtime(_Knobs):
    """launch_enter_hook, launch_exit_hook: called around each launch; a function, a HookChain, or None."""

    launch_enter_hook = property(lambda self: ENTER, lambda self, hook: _become(ENTER, hook))
    launch_exit_hook = property(lambda self: EXIT, lambda self, hook: _become(EXIT, hook))


def _become(chain: HookChain, hook: Any) -> None:
    if hook is not chain:
        chain[:] = [] if hook is None else list(hook) if isinstance(hook, HookChain) else [hook]


def _knobs(names: str, **others: Any) -> _Knobs:
    """Knobs that are off, and others."""
    return _Knobs(**dict.fromkeys(names.split(), False), **others)


runtime = _Runtime(
    debug=False, interpret=False, override_arch=None, kernel_load_start_hook=None,
    kernel_load_end_hook=None, jit_cache_hook=None, jit_post_compile_hook=None,
    add_stages_inspection_hook=None,
)  # fmt: skip
autotuning = _Knobs(cache=True, print=False)
compilation = _knobs(
    "allow_non_constexpr_globals always_compile disable_line_info dump_ir enable_asan front_end_debugging "
    "override store_binary_only",
    instrumentation_mode="",
    listener=None,
    use_ir_loc=None,
)
cache = _Knobs(dir=None)
language = _Knobs(fp32_default="tf32", default_fp_fusion=True)
build, redis, amd = (_Knobs() for _ in range(3))
proton = _knobs("disable", enable_nvtx=True)
nvidia = _knobs(
    "disable_ptxas_opt dump_nvptx dump_ptxas_log",
    **dict.fromkeys(("libcuda_path", "libdevice_path", "mock_ptx_version", "ptxas_options")),
)
