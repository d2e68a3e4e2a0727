"""triton.runtime."""

import sys

from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.jit import JITFunction
from warploom.triton import errors
from warploom.triton.errors import InterpreterError, OutOfResources
from warploom.triton.runtime import autotuner, cache, driver, jit
from warploom.triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from warploom.triton.runtime.jit import KernelInterface, TensorWrapper, reinterpret

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "autotune",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "jit",
    "reinterpret",
]

sys.modules[f"{__name__}.errors"] = errors
