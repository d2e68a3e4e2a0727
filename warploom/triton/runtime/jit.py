"""triton.runtime.jit."""

from warploom.frontend.language.core import constexpr_function
from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.jit import JITFunction, jit
from warploom.runtime.launched import Launched as KernelInterface

__all__ = ["JITFunction", "KernelInterface", "MockTensor", "constexpr_function", "jit"]
