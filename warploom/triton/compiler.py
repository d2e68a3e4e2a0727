"""triton.compile, triton.compiler: a kernel compiled for a signature, without a launch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.hooks import LazyDict
from warploom.triton import errors
from warploom.triton.backends import CPU, GPUTarget
from warploom.triton.errors import CompilationError, CompileTimeAssertionFailure

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "LazyDict",
    "compile",
    "compiler",
    "errors",
    "triton_key",
]


class ASTSource:
    """A kernel, the types of its arguments by name ("*fp32", "i32", "constexpr"), the constexprs by name or
    position, and attrs: positions (i,) of arguments with [["tt.divisibility", 16]]."""

    def __init__(
        self,
        fn: Any,
        signature: Mapping[str, str],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[tuple[int, ...], Any] | None = None,
    ) -> None:
        self.fn = fn
        self.signature = dict(signature)
        names: tuple[str, ...] = fn.arg_names

        def name(at: Any) -> str:
            at = at[0] if isinstance(at, tuple) else at
            return names[at] if isinstance(at, int) else str(at)

        self.constants = {name(at): value for at, value in (constexprs or {}).items()}
        self.attrs = dict(attrs or {})
        self.name = fn.__name__

    def entries(self) -> dict[str, str]:
        """The signature as `kernel.compile` takes it."""
        aligned = {
            self.fn.arg_names[at[0]]
            for at, facts in self.attrs.items()
            if any(name == "tt.divisibility" for name, _ in facts)
        }
        return {
            name: f"{kind}:16" if name in aligned and ":" not in kind else kind
            for name, kind in self.signature.items()
            if name not in self.constants
        }


def compile(
    src: ASTSource, target: GPUTarget | None = None, options: Mapping[str, Any] | None = None
) -> CompiledKernel:
    """The compiled kernel.  target: "cuda" with a compute capability that there is a target for.  options: of
    a launch: num_warps, num_stages …  Raises CompilationError."""
    from warploom.runtime.binding import OF_TRITON
    from warploom.target import DEFAULT, for_device

    chosen = DEFAULT if target in (None, CPU) else for_device(divmod(int(target.arch), 10))
    if chosen is None:
        raise CompilationError("target", f"no kernel can be compiled for {target}")
    knobs = {name: value for name, value in (options or {}).items() if name not in OF_TRITON}
    kernel: CompiledKernel = src.fn.compile(
        src.entries(), src.constants, target=chosen.name, **knobs
    )
    return kernel


def triton_key() -> str:
    """What compiled code depends on of the compiler: its sources."""
    from warploom.runtime.cache import own_sources

    return str(own_sources())


__path__: list[str] = []  # a package, for `import triton.compiler.compiler`
compiler = sys.modules[f"{__name__}.compiler"] = sys.modules[__name__]
sys.modules[f"{__name__}.errors"] = errors
