"""triton.runtime."""

import sys

from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.jit import JITFunction
from warploom.runtime.launched import Launched as KernelInterface
from warploom.triton import errors
from warploom.triton.errors import InterpreterError, OutOfResources
from warploom.triton.runtime import autotuner, driver, jit
from warploom.triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "autotune",
    "autotuner",
    "driver",
    "errors",
    "heuristics",
    "jit",
]

sys.modules[f"{__name__}.errors"] = errors
