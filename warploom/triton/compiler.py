"""triton.compile, triton.compiler: a kernel compiled for a signature, without a launch."""

from __future__ import annotations

import functools
import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any

from warploom.runtime.compiled import CompiledKernel as _Compiled
from warploom.runtime.fixed import FixedLauncher
from warploom.runtime.hooks import AROUND_COMPILE, LazyDict
from warploom.runtime.introspection import Asm
from warploom.runtime.plan import ScalarParam
from warploom.target import DEFAULT, Target
from warploom.triton import errors
from warploom.triton.backends import CUDABackend, GPUTarget, target_for
from warploom.triton.errors import CompilationError, CompileTimeAssertionFailure
from warploom.triton.runtime.cache import triton_key

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "LazyDict",
    "compile",
    "compiler",
    "errors",
    "make_backend",
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


class Forms(Asm):
    """The forms of a kernel by their names.  Who asks for the "cubin" (AOTInductor) launches it himself, with
    what Triton's takes: raises CompilationError where this one takes something else."""

    def __getitem__(self, name: str) -> Any:
        plan = self._kernel.plan
        each = [p.arg if isinstance(p, ScalarParam) else None for p in plan.params]
        choices = (
            *(plan.disjoint, plan.nonnegative, plan.positive, plan.spaced),
            *(plan.short, plan.one_array),
        )
        if name == "cubin" and (
            each != list(range(len(self._kernel.request.specs)))
            or plan.cluster != (1, 1, 1)
            or plan.programs
            or any(choices)
        ):
            raise CompilationError(
                "foreign-launch",
                f"{plan.name} can't be launched by others: its parameters, or which variant runs, are chosen "
                "at each launch from the arguments",
                help="AOTInductor and cpp_wrapper: compile without `warploom run`; to read it: "
                "kernel.compiled.cubin",
            )
        return super().__getitem__(name)


class CompiledKernel(metaclass=ABCMeta):
    """A kernel that `compile` gave.  It launches by `kernel[grid](*args)`, or as Triton's launchers do, by
    `run(x, y, z, stream, function, metadata, launch_metadata, enter_hook, exit_hook, *args)`.

    Its attributes can be pickled (Inductor does so with `__dict__`); what was compiled stands aside, and is
    found again, from the cache on disk, in the process that needs it."""

    __slots__ = ("__dict__", "_compiled", "_fixed")
    run: Callable[..., None] | None

    def __init__(self, src: ASTSource, target: Target, options: Mapping[str, Any]) -> None:
        self.src, self.target, self.options = src, target.name, dict(options)
        made = self.compiled
        self.name, self.hash, self.metadata = made.name, made.hash, made.metadata
        self.n_regs, self.n_spills = made.n_regs, made.n_spills
        self.n_max_threads = made.n_max_threads
        self.packed_metadata = self.module = self.function = None
        self.run = None

    @property
    def compiled(self) -> _Compiled:
        """What was compiled: sources, resources, schedule, `explain()` …"""
        made: _Compiled | None = getattr(self, "_compiled", None)
        if made is None:
            src = self.src
            made = self._compiled = src.fn.live().compile(
                src.entries(), src.constants, target=self.target, **self.options
            )
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in CompiledKernel.__slots__ or "src" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.compiled, name)

    @property
    def asm(self) -> Forms:
        """The kernel's forms: "cuda", "ptx", "cubin" …"""
        return Forms(self.compiled)

    def _init_handles(self) -> None:
        """Makes `run`."""
        if self.run is not None:
            return
        self.run = self._launcher.runner(self.src.fn)

    def launch_metadata(self, grid: Any, stream: int, *args: Any) -> None:
        """None: hooks are told when `run` is called."""
        return None

    @property
    def _launcher(self) -> FixedLauncher:
        made: FixedLauncher | None = getattr(self, "_fixed", None)
        if made is None:
            made = self._fixed = FixedLauncher(self.compiled)
        return made

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, stream: int | None = None) -> None:
            self._launcher.launch(self.src.fn, grid, stream, args)

        return launch


CompiledKernel.register(_Compiled)


def compile(
    src: ASTSource, target: GPUTarget | None = None, options: Mapping[str, Any] | None = None
) -> CompiledKernel:
    """The compiled kernel.  target: "cuda" with a compute capability that there is a target for.  options: of
    a launch: num_warps, num_stages …; `debug` has device asserts run.  Raises CompilationError."""
    from warploom.runtime.binding import OF_TRITON, UNHEARD

    chosen = DEFAULT if target is None else target_for(target)
    if chosen is None:
        raise CompilationError("target", f"no kernel can be compiled for {target}")
    silent = OF_TRITON.keys() | UNHEARD
    knobs = {name: value for name, value in (options or {}).items() if name not in silent}
    if knobs.get("debug") is True:
        knobs["debug"] = "asserts"
    made = functools.partial(CompiledKernel, src, chosen, knobs)
    for wrapper in AROUND_COMPILE:
        made = functools.partial(wrapper, src, made)
    return made()


def make_backend(target: GPUTarget) -> CUDABackend:
    """What compiles for a target.  Raises RuntimeError where nothing does."""
    if not CUDABackend.supports_target(target):
        raise RuntimeError(f"no kernel can be compiled for {target}")
    return CUDABackend(target)


__path__: list[str] = []  # a package, for `import triton.compiler.compiler`
compiler = sys.modules[f"{__name__}.compiler"] = sys.modules[__name__]
sys.modules[f"{__name__}.errors"] = errors
