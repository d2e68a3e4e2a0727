"""`wl.Script`: compiling, checking, simulating and launching explicit kernels.

`kernel(m, n, a, b)` launches on torch CUDA tensors and the like; on NumPy arrays and CPU tensors the
PLACED program runs in the simulator.  Before a variant's first launch on a GPU its protocol is checked
without data (option WARPLOOM_CHECK; the verdict is cached).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from warploom.analysis.lattice import range_of
from warploom.compile import Lowered, lower_explicit
from warploom.errors import CompileError, LaunchError, WarploomError
from warploom.explicit.script import ScriptBase
from warploom.explicit.translate import kernel_parameters, translate_script
from warploom.frontend.reads import Reads, Variants
from warploom.frontend.refuse import Refusal
from warploom.frontend.tokens import exact
from warploom.ir.core import Fact, Func
from warploom.ir.printer import print_func
from warploom.ir.types import DType, Pointer
from warploom.runtime.args import (
    CPU,
    Array,
    Field,
    Spec,
    TensorDescriptor,
    device_of,
    divisor,
    fields_of,
    pointer_spec,
)
from warploom.runtime.binding import Call, read_signature
from warploom.runtime.cache import DiskCache, compiler_package, digest, own_sources
from warploom.runtime.checked import check_first_launch, launch_of
from warploom.runtime.compiled import CompiledKernel, compile_request
from warploom.runtime.config import Config
from warploom.runtime.dynamo import step_aside
from warploom.runtime.jit import target_of
from warploom.runtime.launch import Prepared, grid_sizes
from warploom.runtime.mistakes import user_facing
from warploom.runtime.plan import grid_of
from warploom.runtime.race import Candidate, Verdict, candidate, judge, on_threads
from warploom.runtime.request import Request
from warploom.runtime.seen import SeenCalls
from warploom.runtime.signature import facts_of, types_of, workspaces_of
from warploom.runtime.snapshot import snapshot
from warploom.runtime.worker import Worker
from warploom.runtime.workspace import PerStream, asked_for, check_left_clean, on_device, on_host
from warploom.schedule.model import Knobs
from warploom.schedule.resources import Headroom
from warploom.target import DEFAULT, named


@dataclass(frozen=True)
class ScriptRequest(Request):
    """A request to compile a script; `script` is the instance whose attributes are compile-time values."""

    script: Script | None = None

    @property
    def name(self) -> str:
        return type(self.script).__name__

    @cached_property
    def _translation(self) -> tuple[Func, Reads]:
        assert self.script is not None
        reads = self.reader()
        names = [n for n, a in kernel_parameters(self.fn) if isinstance(a, DType | Pointer)]
        signature = dict(zip(names, types_of(self.specs), strict=True))
        values, facts = dict(self.constexprs), facts_of(self.specs)
        return translate_script(
            self.script, signature, values, facts, reads, named(self.target)
        ), reads

    @property
    def translated(self) -> Func:
        return self._translation[0]

    @property
    def roots(self) -> tuple[Any, ...]:
        return (self.script, type(self.script), *(value for _, value in self.constexprs))

    # Translating is quick, so the front key is the program itself; what it read counts in the process.

    @cached_property
    def prefix(self) -> str:
        text = print_func(self.translated)
        return digest(own_sources(), compiler_package(), text, self.knobs, self.target)

    def key_with(self, reads: Reads) -> str:
        return self.prefix

    def recorded(self, disk: DiskCache) -> Iterator[Reads]:
        yield self._translation[1]

    def record(self, disk: DiskCache, reads: Reads) -> None:
        pass

    @property
    def headrooms(self) -> tuple[Headroom, ...]:
        """A script's budgets are its author's."""
        return ()

    def translate(self, reads: Reads | None = None) -> Func:
        """The script at WARP."""
        return self.translated

    def lower(self) -> Lowered:
        func, reads = self._translation
        return replace(lower_explicit(func, self.machine(), self.knobs.debug), reads=reads)


# An array of any dtype, as an annotation of a kernel's parameter.
void_p = Pointer(DType("void", "void", 8, np.dtype("V1")))

# What a call like one before finds: its launch and grid, and whether what was translated still holds.
_Hit = tuple[Prepared | PerStream, tuple[int, int, int], Callable[[], bool]]


class Script(ScriptBase):
    """Base of explicit kernels.

    `__init__` takes compile-time values; `__call__(self, …)` is the kernel, its run-time parameters annotated
    with dtypes (`int32`) and pointers (`~float16`), others (`int`) compile-time values of the launch.
    """

    _compiled_for: Variants[CompiledKernel]
    _lowered_for: Variants[Lowered]
    _seen: SeenCalls[_Hit]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kernel = cls.__dict__.get("__call__")
        if kernel is not None:
            cls.kernel = kernel
            del cls.__call__

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(cls, "kernel"):
            raise CompileError(
                "no-kernel",
                f"{cls.__name__} has no kernel",
                help="define __call__(self, …), its parameters annotated with dtypes",
            )
        names = {n for space in cls.spaces for n in space}
        if names:
            given = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs).arguments
            if not names & set(given):
                return TunedScript(cls, args, kwargs)
        made = super().__new__(cls)
        made._compiled_for, made._lowered_for, made._seen = Variants(), Variants(), SeenCalls()
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch, on the current stream and the arrays' device; host arrays are simulated."""
        step_aside()
        hit = self._seen.find(args, kwargs)
        if hit is None or not hit[2]():
            hit = self._first(args, kwargs)
            if hit is None:
                return
            self._seen.add(args, kwargs, hit)
        hit[0].start(hit[1])

    def __getitem__(self, grid: Any) -> Any:
        raise LaunchError(
            "grid",
            f"{type(self).__name__} is launched without a grid",
            help="call it with its arguments; self.attrs.blocks says how many CTAs there are",
        )

    @user_facing
    def _first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Hit | None:
        call = self.bind(args, kwargs)
        device = device_of(call.fields, type(self).__name__)
        if device == CPU:
            grid = grid_of(self._lowered(self._request(call, DEFAULT.name)).placed, _numbers(call))
            if 0 not in grid:
                self._simulated(call, grid)
            return None
        kernel = self._compiled(self._request(call, target_of(device).name))
        check_first_launch(kernel, call.fields)
        grid = kernel.plan.grid_for(call.values())
        if 0 in grid:
            return None
        asked = asked_for(kernel.plan.workspaces, call.values())
        if asked:
            per_stream = PerStream(kernel.loaded(), device, call.values(), asked)
            return per_stream, grid, kernel.reads.holds
        return kernel.loaded().prepare(device, grid, call.values()), grid, kernel.reads.holds

    def _simulated(self, call: Call, grid: tuple[int, int, int], **how: Any) -> Any:
        """A run on the CPU.  Raises what `simulate` does, LaunchError for a workspace not left clean."""
        from warploom.sim.modes import simulate_in_mode

        lowered = self._lowered(self._request(call, DEFAULT.name))
        workspaces = workspaces_of(lowered.placed)
        own = on_host(asked_for(workspaces, _numbers(call)))
        values = [f.on_host for f in (*call.fields, *own)]
        report = simulate_in_mode(lowered.written, lowered.placed, values, grid, **how)
        check_left_clean(own, workspaces)
        return report

    # ---- compiling

    def _request(self, call: Call, target: str) -> ScriptRequest:
        return ScriptRequest(
            type(self).kernel, call.specs, call.constexprs, call.knobs, target, script=self
        )

    def _lowered(self, request: ScriptRequest) -> Lowered:
        key = request.specs, exact(request.constexprs)
        lowered = self._lowered_for.find(key, request.roots)
        if lowered is None:
            lowered = request.lower()
            assert lowered.reads is not None
            self._lowered_for.add(key, lowered.reads, lowered)
        return lowered

    def _compiled(self, request: ScriptRequest) -> CompiledKernel:
        key = request.specs, exact(request.constexprs), request.target, request.knobs
        kernel = self._compiled_for.find(key, request.roots)
        if kernel is None:
            kernel = compile_request(request)
            self._compiled_for.add(key, kernel.reads, kernel)
        return kernel

    @user_facing
    def compile(
        self,
        signature: Sequence[str] | Mapping[str, str],
        constexprs: Mapping[str, Any] | None = None,
        target: str = DEFAULT.name,
        debug: bool = False,
    ) -> CompiledKernel:
        """Compile a variant; needs no GPU.  signature: as for `@wl.jit` kernels (`"*bf16:16"`, `"i32:16"`),
        an entry for each run-time parameter.  constexprs: the others by name.  Raises CompileError."""
        declared = kernel_parameters(type(self).kernel)
        names = [n for n, a in declared if isinstance(a, DType | Pointer)]
        specs = read_signature(type(self).__name__, names, signature)
        rest = [n for n, _ in declared if n not in names]
        given = dict(constexprs or {})
        if set(given) != set(rest):
            raise CompileError(
                "constexpr-missing",
                f"{type(self).__name__} takes {', '.join(rest) or 'no'} compile-time values, got "
                f"{', '.join(given) or 'none'}",
                help=f"pass constexprs={{{', '.join(f'{n!r}: …' for n in rest)}}}",
            )
        call = Call(specs, (), tuple((n, given[n]) for n in rest), Knobs(debug=debug))
        return self._compiled(self._request(call, target))

    @user_facing
    def compile_for(self, *args: Any, target: str = DEFAULT.name, **kwargs: Any) -> CompiledKernel:
        """The variant that a launch with these arguments would use."""
        return self._compiled(self._request(self.bind(args, kwargs), target))

    @user_facing
    def check(self, *args: Any, **kwargs: Any) -> Any:
        """Deadlocks and races of the variant for these arguments; of global memory in this launch, where
        nothing is known for all."""
        return self._check(self.bind(args, kwargs))

    def _check(self, call: Call) -> Any:
        from warploom.check import check

        func = self._lowered(self._request(call, DEFAULT.name)).placed
        return check(func, launch=launch_of(func, call.fields))

    @user_facing
    def simulate(self, *args: Any, grid: Any = None, seed: int | None = None, **how: Any) -> Any:
        """Run on the CPU; arrays (NumPy, CPU tensors) are written in place.

        exact=True: dots add as the GPU's tensor cores do, bit for bit.
        algebra=True: compare the script as written and its PLACED program in a finite field instead, in two
        orders of events; arrays stay as they are (docs/simulator.md)."""
        call = self.bind(args, {})
        func = self._lowered(self._request(call, DEFAULT.name)).placed
        sizes = grid_of(func, _numbers(call)) if grid is None else grid_sizes(grid)
        return self._simulated(call, sizes, seed=seed, **how)

    @user_facing
    def timeline(self, *args: Any, measured: bool = False, program: int = 0, **kwargs: Any) -> Any:
        """The predicted `Timeline` of one program (a CTA, or a cluster) of a launch; with measured=True the
        `Comparison` with the one measured on the GPU, as of an automatic kernel."""
        call = self.bind(args, kwargs)
        kernel = self._compiled(self._request(call, DEFAULT.name))
        asked, device = (
            asked_for(workspaces_of(kernel.placed), call.values()),
            device_of(call.fields, kernel.name),
        )
        own = on_host(asked) if device == CPU else on_device(asked, device)
        values = [f.value for f in (*call.fields, *own)]
        grid = grid_of(kernel.placed, _numbers(call))
        if measured:
            return kernel.timeline(*values, grid=grid, measured=True, program=program)
        return kernel.timeline(*values, grid=grid, program=program)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What became of each line, for the variant for these arguments."""
        return self.compile_for(*args, **kwargs).explain()

    # ---- arguments

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Arguments to parameters.  A TensorDescriptor stands for 1 + 2·rank of them: its base, extents and
        strides.  Raises LaunchError."""
        name = type(self).__name__
        flat = [f.value for a in args for f in _parts("", a)]
        named = {f.name: f.value for n, a in kwargs.items() for f in _parts(n, a)}
        try:
            bound = inspect.signature(type(self).kernel).bind(self, *flat, **named)
        except TypeError as e:
            names = [n for n, _ in kernel_parameters(type(self).kernel)]
            help = f"its arguments: {', '.join(names)}"
            raise LaunchError("argument-count", f"{name}: {e}", help=help) from None
        bound.apply_defaults()
        specs: list[Spec] = []
        fields: list[Field] = []
        constexprs: list[tuple[str, Any]] = []
        for n, annotation in kernel_parameters(type(self).kernel):
            value = bound.arguments[n]
            if not isinstance(annotation, DType | Pointer):
                constexprs.append((n, _constexpr(value, f"{n} of {name}")))
                continue
            (field,) = fields_of(n, value)
            specs.append(_spec(field.array, value, annotation, f"{n} of {name}"))
            is_whole = isinstance(annotation, DType) and annotation.is_int
            fields.append(replace(field, value=int(value)) if is_whole else field)
        return Call(tuple(specs), tuple(fields), tuple(constexprs), Knobs())


def _parts(name: str, value: Any) -> tuple[Field, ...]:
    """The parameters that an argument stands for."""
    is_descriptor = isinstance(value, TensorDescriptor)
    return fields_of(name, value) if is_descriptor else (Field(name, value, None),)


def _constexpr(value: Any, what: str) -> Any:
    """A compile-time value, which is part of the variant's key."""
    try:
        hash(value)
    except (TypeError, ValueError):
        raise LaunchError(
            "constexpr-hash",
            f"{what} is a compile-time value, got a {type(value).__name__}",
            help="annotate what is known at launch only: ~float16 (an array), int32, float32",
        ) from None
    return value


def _spec(array: Array | None, value: Any, annotation: DType | Pointer, what: str) -> Spec:
    if annotation == void_p and array is not None:
        return pointer_spec(array)
    if isinstance(annotation, Pointer):
        if array is None or array.dtype != annotation.dtype.name:
            found = f"an array of {array.dtype}" if array is not None else reprlib.repr(value)
            raise LaunchError(
                "argument-type",
                f"{what} is ~{annotation.dtype}, got {found}",
                help="pass an array of that dtype, or annotate the parameter with the array's",
            )
        return pointer_spec(array)
    is_number = array is None and hasattr(value, "__float__")
    low, high = range_of(annotation) if annotation.is_int else (-math.inf, math.inf)
    is_whole = is_number and math.isfinite(value) and low <= value <= high and int(value) == value
    if not is_number or (annotation.is_int and not is_whole):
        found = repr(value) if is_number else f"a {type(value).__name__}"
        raise LaunchError(
            "argument-type", f"{what} is an {annotation}, got {found}", help="pass such a number"
        )
    if not annotation.is_int:
        return Spec("scalar", annotation.name, Fact())
    n = int(value)
    return Spec("scalar", annotation.name, Fact(divisor(n), 1 if n == 1 else None))


def _numbers(call: Call) -> tuple[Any, ...]:
    """What the grid is computed from: numbers (addresses don't matter)."""
    return tuple(0 if f.array is not None else f.value for f in call.fields)


# ---- tuning


def autotune(names: str, values: Sequence[Any]) -> Callable[[type], type]:
    """Decorator of a Script: tries `values` for the parameters of __init__ named (several, separated by
    commas, with a list of values each).  Stacked decorators multiply."""
    split = [n.strip() for n in names.split(",")]
    rows = [row if len(split) > 1 else [row] for row in values]
    for row in rows:
        if len(row) != len(split):
            raise CompileError("autotune", f"{len(row)} values for {len(split)} names ({names})")

    def decorate(cls: type) -> type:
        space = [dict(zip(split, row, strict=True)) for row in rows]
        cls.spaces = (_Space(split, space), *cls.spaces)  # type: ignore[attr-defined]
        return cls

    return decorate


class _Space(tuple):  # type: ignore[type-arg]
    """The rows of one @autotune; iterating gives its names."""

    rows: list[dict[str, Any]]

    def __new__(cls, names: Sequence[str], rows: list[dict[str, Any]]) -> _Space:
        made = super().__new__(cls, names)
        made.rows = rows
        return made


_SAYS_NO = AssertionError, ValueError, Refusal, WarploomError  # to what does not go together


class TunedScript:
    """A script whose schedule is chosen at the first call of a kind: by `debug_schedule` where the class has
    one, else by timing all schedules on the GPU.  On host arrays the first one that compiles runs.  Schedules
    that `__init__` says no to, by an assertion or a ValueError, are left out."""

    def __init__(self, cls: type[Script], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        rows = itertools.product(*(space.rows for space in cls.spaces))  # type: ignore[attr-defined]
        schedules = [{k: v for row in picked for k, v in row.items()} for picked in rows]
        if cls.debug_schedule is not None:
            schedules = [dict(cls.debug_schedule)]
        self.schedules: list[dict[str, Any]] = []
        self.scripts: list[Script] = []
        for s in schedules:
            try:
                self.scripts.append(cls(*args, **{**kwargs, **s}))
            except _SAYS_NO:
                if s is schedules[-1] and not self.scripts:
                    raise
            else:
                self.schedules.append(s)
        self._chosen: dict[Any, Script] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        step_aside()
        self.choose(*args, **kwargs)(*args, **kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Script:
        """The script for these arguments."""
        call = self.scripts[0].bind(args, kwargs)
        key = call.specs, call.constexprs, _numbers(call)
        if key not in self._chosen:
            self._chosen[key] = self._tune(call, args, kwargs)
        return self._chosen[key]

    def _tune(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Script:
        name = type(self.scripts[0]).__name__
        device = device_of(call.fields, name)
        if device == CPU or len(self.scripts) == 1:
            return self._first_translated(call)

        def one(i: int) -> Candidate:
            def make() -> tuple[CompiledKernel, tuple[int, int, int]]:
                kernel = self.scripts[i].compile_for(*args, **kwargs)
                return kernel, kernel.plan.grid_for(call.values())

            return candidate(i, Config(self.schedules[i]), make)

        candidates = on_threads(one, range(len(self.scripts)))
        launched = call
        own = [c.kernel.plan.workspaces for c in candidates if c.kernel is not None]
        if any(own):  # all that are timed get the same memory
            for c in candidates:
                if c.kernel is not None and c.kernel.plan.workspaces != own[0] and not c.skipped:
                    c.skipped = "it asks for other memory of its own than the first schedule"
            fields = on_device(asked_for(own[0], call.values()), device)
            call = replace(call, fields=(*call.fields, *fields))
        worker = Worker(snapshot(call, device, [], []))
        try:
            verdict: Verdict = judge(candidates, worker, name)
        finally:
            worker.close()
        return self._first_sound(candidates, verdict, launched)

    def _first_translated(self, call: Call) -> Script:
        """The first schedule that goes; raises what it says of the last where none does."""
        for script in self.scripts[:-1]:
            with contextlib.suppress(CompileError):
                script._lowered(script._request(call, DEFAULT.name))
                return script
        return self.scripts[-1]

    def _first_sound(self, candidates: Sequence[Candidate], verdict: Verdict, call: Call) -> Script:
        """The fastest schedule that the check lets be launched; timing, on copies in a process of its own,
        needs no check.  Raises what it says of the fastest where there is none."""
        timed = [c for c in candidates if str(c.config) in verdict.times]
        timed.sort(key=lambda c: (c.index != verdict.best, verdict.times[str(c.config)]))
        refused: WarploomError | None = None
        for c in timed:
            assert c.kernel is not None
            try:
                check_first_launch(c.kernel, call.fields)
            except WarploomError as e:
                refused = refused or e
                continue
            return self.scripts[c.index]
        assert refused is not None
        raise refused

    def __getattr__(self, name: str) -> Any:
        if name in ("compile", "compile_for", "check", "simulate", "timeline", "explain", "bind"):
            return getattr(self.scripts[0], name)
        raise AttributeError(name)
