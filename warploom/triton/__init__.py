"""Triton's names: a Triton file runs when `import triton` becomes `import warploom.triton as triton`, and
`import triton.language as tl` becomes `import warploom.triton.language as tl`.

`warploom run script.py` serves `import triton` from here, in scripts and in the libraries that they import,
without a change to any file (runtime/serve.py).  docs/triton.md says of each name what it is here.
"""

from typing import Any

from warploom import Config, JITFunction, cdiv, heuristics, jit, next_power_of_2
from warploom.frontend.language.core import aggregate
from warploom.runtime.args import Mock as MockTensor
from warploom.triton import (
    _C,
    backends,
    compiler,
    errors,
    knobs,
    language,
    profiler,
    runtime,
    testing,
    tools,
)
from warploom.triton.compiler import compile
from warploom.triton.errors import (
    CompilationError,
    InterpreterError,
    OutOfResources,
    TritonError,
)
from warploom.triton.runtime.autotuner import autotune
from warploom.triton.runtime.jit import (
    KernelInterface,
    TensorWrapper,
    constexpr_function,
    reinterpret,
)

__all__ = [
    "_C",
    "CompilationError",
    "Config",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "aggregate",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "profiler",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]

__version__ = "3.6.0"  # whose language and host side this is


def set_allocator(allocator: Any) -> None:
    """Keeps it for what the installed Triton is handed (--fallback); here descriptors that kernels make need
    no memory of the host's."""
    allocators[:] = [allocator]


allocators: list[Any] = []  # the last one that was set


def must_use_result(fn: Any, is_used: bool = True) -> Any:
    """The function itself."""
    return fn
