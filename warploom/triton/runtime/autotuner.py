"""triton.runtime.autotuner."""

from typing import Any

from warploom import autotune as _autotune
from warploom.runtime.autotune import Autotuner, Heuristics, heuristics, kernel_below
from warploom.runtime.config import Config
from warploom.triton.errors import OutOfResources

__all__ = ["Autotuner", "Config", "Heuristics", "OutOfResources", "autotune", "heuristics"]


def autotune(configs: Any, key: Any, **how: Any) -> Any:
    """Decorator: as `warploom.autotune`.  As in Triton no config is one without meta-parameters, and names in
    `key` that are no parameters count for nothing."""

    def decorate(fn: Any) -> Any:
        names = kernel_below(fn).arg_names
        return _autotune(configs or [Config({})], [n for n in key if n in names], **how)(fn)

    return decorate
