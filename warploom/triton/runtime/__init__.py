"""triton.runtime."""

import sys

from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.autotune import Autotuner, Heuristics, heuristics
from warploom.runtime.config import Config
from warploom.runtime.jit import JITFunction
from warploom.runtime.launched import Launched as KernelInterface
from warploom.triton import errors
from warploom.triton.errors import InterpreterError, OutOfResources
from warploom.triton.runtime import autotuner, driver, jit

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "autotuner",
    "driver",
    "errors",
    "heuristics",
    "jit",
]

sys.modules[f"{__name__}.errors"] = errors
