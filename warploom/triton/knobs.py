"""triton.knobs: what profilers and tests set.  What has no meaning here may be set, and changes nothing."""

from __future__ import annotations

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


class _Runtime(SimpleNamespace):
    """launch_enter_hook, launch_exit_hook: called around each launch; a function, a HookChain, or None."""

    launch_enter_hook = property(lambda self: ENTER, lambda self, hook: _become(ENTER, hook))
    launch_exit_hook = property(lambda self: EXIT, lambda self, hook: _become(EXIT, hook))


def _become(chain: HookChain, hook: Any) -> None:
    if hook is not chain:
        chain[:] = [] if hook is None else list(hook) if isinstance(hook, HookChain) else [hook]


runtime = _Runtime(debug=False, interpret=False, override_arch=None, kernel_load_end_hook=None)
autotuning = SimpleNamespace(cache=True, print=False)
compilation = SimpleNamespace(always_compile=False, listener=None, override=False, use_ir_loc=None)
cache = SimpleNamespace(dir=None)
language = SimpleNamespace(fp32_default="tf32", default_fp_fusion=True)
build, proton, redis, amd = (SimpleNamespace() for _ in range(4))
nvidia = SimpleNamespace(disable_ptxas_opt=False, mock_ptx_version=None)
