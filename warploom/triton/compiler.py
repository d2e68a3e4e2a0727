"""triton.compile, triton.compiler: a kernel compiled for a signature, without a launch."""

from __future__ import annotations

import functools
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from warploom.runtime.args import parse_spec
from warploom.runtime.compiled import CompiledKernel as _Compiled
from warploom.runtime.compiled import compile_request
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.fixed import FixedLauncher
from warploom.runtime.hooks import AROUND_COMPILE, LazyDict
from warploom.runtime.introspection import Asm
from warploom.runtime.mistakes import user_facing
from warploom.runtime.plan import ScalarParam
from warploom.runtime.variants import for_foreign
from warploom.target import DEFAULT, Target
from warploom.triton import errors
from warploom.triton.backends import CUDABackend, GPUTarget, target_for
from warploom.triton.errors import CompilationError, CompileTimeAssertionFailure
from warploom.triton.runtime.cache import triton_key

if TYPE_CHECKING:
    from warploom.triton.ttir import Module

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

    def make_ir(
        self, target: GPUTarget, options: Any, codegen_fns: Any, module_map: Any, context: None
    ) -> Module:
        """The loads and stores of the kernel."""
        from warploom.triton.ttir import module_of

        chosen = target_for(target) or DEFAULT
        return module_of(self.fn, self.signature, self.constants, chosen)

    def entries(self) -> dict[str, str]:
        """The signature as `kernel.compile` takes it.  Of a descriptor Triton's says no more than that its
        rows begin at multiples of 16 bytes."""
        aligned = {
            self.fn.arg_names[at[0]]
            for at, facts in self.attrs.items()
            if any(name == "tt.divisibility" for name, _ in facts)
        }
        return {
            name: f"{kind}:16" if name in aligned and ":" not in kind else descriptor_entry(kind)
            for name, kind in self.signature.items()
            if name not in self.constants
        }


def descriptor_entry(kind: str) -> str:
    """Of "tensordesc<bf16[64, 32]>" our entry, "desc<bf16,[64,32],(8)>:16"; other entries as they are."""
    found = re.fullmatch(r"tensordesc<(\w+)\[([\d, ]+)\]>", kind)
    if found is None:
        return kind
    dtype, block = found[1], found[2].replace(" ", "")
    unit = 16 // ITEM_BYTES[parse_spec(dtype).dtype]
    strides = ",".join([str(unit)] * block.count(","))
    return f"desc<{dtype},[{block}],({strides})>:16"


class Forms(Asm):
    """The forms of a kernel by their names.  Who asks for the "cubin" launches it himself, with the arguments
    in order, and as many warps and as much shared memory as `metadata` says: he is given that of the variant
    for others.  Raises CompilationError where that one takes something else."""

    def __init__(self, kernel: _Compiled) -> None:
        super().__init__(kernel)
        self.metadata = kernel.metadata

    def __getitem__(self, name: str) -> Any:
        if name != "cubin":
            return super().__getitem__(name)
        kernel = self._kernel
        if not kernel.request.foreign:
            kernel = compile_request(for_foreign(kernel.request))
        plan, said = kernel.plan, self.metadata
        each = [p.arg if isinstance(p, ScalarParam) else None for p in plan.params]
        choices = (
            *(plan.disjoint, plan.nonnegative, plan.positive, plan.spaced),
            *(plan.short, plan.one_array),
        )
        if each != list(range(len(kernel.request.specs))):
            refused = "it takes descriptors, which are made for each launch"
        elif any(choices):
            refused = "which variant runs is decided at each launch from the arguments"
        elif plan.threads != 32 * said.num_warps or plan.shared_bytes > said.shared:
            refused = "the variant for others has other warps, or more shared memory, than this one"
        else:
            return kernel.cubin
        raise CompilationError(
            "foreign-launch",
            f"{plan.name} can't be launched by others: {refused}",
            help="compile it without `warploom run`; to read it: kernel.compiled.cubin",
        )


class CompiledKernel(metaclass=ABCMeta):
    """A kernel that `compile` gave.  It launches by `kernel[grid](*args)`, or as Triton's launchers do, by
    `run(x, y, z, stream, function, metadata, launch_metadata, enter_hook, exit_hook, *args)`.

    Its attributes can be pickled (Inductor does so with `__dict__`); what was compiled stands aside, and is
    found again, from the cache on disk, in the process that needs it."""

    __slots__ = ("__dict__", "_compiled", "_fixed")
    run: Callable[..., None] | None

    def __init__(self, src: ASTSource, target: Target, options: Mapping[str, Any]) -> None:
        self.src, self.target, self.options = src, target.name, dict(options)
        self.packed_metadata = self.module = self.function = None
        self.run = None
        self._make(are_kept())
        src.fn.__getstate__()  # kept by the kernel: workers take its function away before they pickle it

    def _make(self, foreign: bool) -> None:
        """Compiles it.  foreign: for others to launch."""
        self.foreign, self._fixed = foreign, None
        made = self._compiled = _compiled(self.src, self.target, self.options, foreign)
        self.name, self.hash, self.metadata = made.name, made.hash, made.metadata
        self.n_regs, self.n_spills = made.n_regs, made.n_spills
        self.n_max_threads = made.n_max_threads

    @property
    def compiled(self) -> _Compiled:
        """What was compiled: sources, resources, schedule, `explain()` …"""
        made: _Compiled | None = getattr(self, "_compiled", None)
        if made is None:
            made = self._compiled = _compiled(self.src, self.target, self.options, self.foreign)
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
        """Makes `run`.  What a worker compiled, which doesn't know what for, is compiled again for others."""
        if self.run is not None:
            return
        if are_kept() and not self.foreign:
            self._make(True)
        self.run = self._launcher.runner(self.src.fn)

    def launch_metadata(self, grid: Any, stream: int, *args: Any) -> None:
        """None: hooks are told when `run` is called."""
        return None

    @property
    def _launcher(self) -> FixedLauncher:
        made: FixedLauncher | None = getattr(self, "_fixed", None)
        if made is None:
            made = self._fixed = FixedLauncher(self.compiled)  # type: ignore[assignment]
        return made

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, stream: int | None = None) -> None:
            self._launcher.launch(self.src.fn, grid, stream, args)

        return launch


CompiledKernel.register(_Compiled)


@user_facing
def _compiled(src: ASTSource, target: str, options: Mapping[str, Any], foreign: bool) -> _Compiled:
    request = src.fn.live().requested(src.entries(), src.constants, target, dict(options))
    return compile_request(for_foreign(request) if foreign else request)


def are_kept() -> bool:
    """Whether Inductor keeps what it compiles now for C++ to launch (AOTInductor, cpp_wrapper): it times
    kernels here, and then takes their cubins."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.triton.store_cubin)


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
