"""`@wl.jit`: from a call to a launch.

A call takes one of three roads.  The fast ones make a key of what the launch depends on, and find what to
launch under it: one of all but addresses and floats, which fill a launch's parameters (alike.py); one of
everything, where that can't be (seen.py).  The other binds the arguments to parameters, specializes, compiles
or finds the variant, prepares the launch, and leaves it for the fast roads.  On host arrays the kernel is
interpreted instead.
"""

from __future__ import annotations

import functools
import inspect as python_inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, overload

from warploom import options
from warploom.errors import CompileError, LaunchError, format_message
from warploom.frontend.reads import Variants
from warploom.frontend.source import capture, refuse_wrapper
from warploom.frontend.tokens import exact
from warploom.runtime.alike import AlikeCalls
from warploom.runtime.args import CPU, device_among, device_of, span
from warploom.runtime.array import Bytes
from warploom.runtime.binding import Call
from warploom.runtime.compiled import CompiledKernel, compile_request, is_cached
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.dynamo import step_aside
from warploom.runtime.hooks import AROUND, ENTER, EXIT, Hook, launch_with_hooks
from warploom.runtime.kernel_names import KernelNames, constant_name
from warploom.runtime.launch import CudaDriver, Prepared, current_stream, driver, grid_sizes
from warploom.runtime.launched import Launched
from warploom.runtime.mistakes import user_facing, warn
from warploom.runtime.request import Request
from warploom.runtime.seen import SeenCalls, Usual, usual
from warploom.runtime.variants import (
    OVERLAP,
    Accepted,
    Arguments,
    Changes,
    Compilations,
    Rule,
    captured_of,
    changed,
    kind_of_grid,
    variants_for,
)
from warploom.runtime.workspace import OwnMemoryLaunch
from warploom.schedule.model import Launch
from warploom.target import DEFAULT, Target, for_device, named, supported

KNOWN_KEPT = 4096  # kinds of calls whose variants one kernel remembers

# What the fast road finds: a launch, its kernel, and whether what was translated still holds.
Hit = tuple[Prepared | OwnMemoryLaunch, CompiledKernel, Callable[[], bool]]


@dataclass(frozen=True)
class _Known:
    """A variant that a call like one before takes."""

    kernel: CompiledKernel
    item_bytes: tuple[int, ...]  # of each array argument's elements; 0 for numbers


def target_of(device: int) -> Target:
    """What kernels for a device are compiled for.  Raises LaunchError `architecture`."""
    capability = driver().architecture(device)
    target = for_device(capability)
    if target is None:
        raise LaunchError(
            "architecture",
            f"device {device} has compute capability {capability[0]}.{capability[1]}",
            help=f"warploom compiles for {supported()}; NumPy arrays and CPU tensors run anywhere",
        )
    return target


def chip_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Target and name of the device that a call's arrays are on; "" for the CPU."""
    device = device_among((*args, *kwargs.values()))
    return "" if device == CPU else _chip(driver(), device)


@functools.cache
def _chip(of: CudaDriver, device: int) -> str:
    return f"{target_of(device).name} {of.device_name(device)}"


class JITFunction(KernelNames, Launched):
    """A kernel.  `kernel[grid](*args, META=…, num_warps=…)` launches it; made by `@wl.jit`."""

    @user_facing
    def __init__(
        self,
        fn: Callable[..., Any],
        do_not_specialize: Sequence[str | int] = (),
        do_not_specialize_on_alignment: Sequence[str | int] = (),
        debug: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        if not python_inspect.isfunction(fn):
            raise CompileError(
                "not-a-function",
                f"jit takes a function, not {fn!r}",
                help="write @jit above a def",
            )
        refuse_wrapper(fn)
        capture(fn)
        super().__init__(fn, do_not_specialize, do_not_specialize_on_alignment, debug)
        self.repr = functools.partial(constant_name, fn.__name__) if repr is None else repr
        self.launch_metadata = launch_metadata
        self.pre_run_hooks: list[Hook] = []
        self.__warploom_fn__ = fn
        self.__globals__ = fn.__globals__
        functools.update_wrapper(self, fn, updated=())
        self._variants = Compilations()
        self.seen: SeenCalls[Hit] = SeenCalls()
        self.alike = AlikeCalls()
        self._known: dict[Any, _Known] = {}  # by kind_of_grid, changes and `Usual.classes`
        # By grid, `Usual.classes` and `Usual.extents`.
        self._accepted: dict[Any, Accepted[CompiledKernel]] = {}
        self._targets: dict[int, Target] = {}  # of the devices in _known
        self._interpreted: Variants[Any] = Variants()

    def __repr__(self) -> str:
        return f"<warploom kernel {self.fn.__qualname__}>"

    @user_facing
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            "no-grid",
            f"kernel {self.fn.__name__} was called without a grid",
            help=f"launch it as {self.fn.__name__}[(programs,)](…)",
        )

    # ---- launching

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch; the compiled variant that ran, or None where the kernel was interpreted on the CPU."""
        step_aside()
        if self.is_hooked:
            launch = functools.partial(self._run_unseen, grid, args, kwargs)
            found: CompiledKernel | None = launch_with_hooks(self, launch, grid, args, kwargs)
            return found
        if self.alike:
            grid = self.grid_of(grid, args, kwargs)
            kernel = self.alike.launched(grid, args, kwargs)
            if kernel is not None:
                return kernel
        hit = self.seen.find(args, kwargs)
        if hit is not None:
            prepared, kernel, holds = hit
            if holds():
                prepared.start(self.grid_of(grid, args, kwargs))
                return kernel
        return self._run_unseen(grid, args, kwargs)

    @property
    def is_hooked(self) -> bool:
        """Whether something has to be called around each launch."""
        return bool(AROUND or ENTER or EXIT or self.pre_run_hooks)

    def add_pre_run_hook(self, hook: Hook) -> None:
        """Has hook(*args, **kwargs) called before each launch."""
        self.pre_run_hooks.append(hook)

    def resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a launch; decorators above add theirs."""
        return dict(kwargs)

    @user_facing
    def _run_unseen(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> CompiledKernel | None:
        sizes = self.sizes(grid, args, kwargs)
        if 0 in sizes:
            return None
        found = self._seen_variant(args, kwargs, sizes)
        if found is None:
            call = self.bind(args, kwargs)
            if self.device_of(call) == CPU:
                self._interpret(call, sizes)
                return None
            taken, prepared = self._prepare(call, sizes)
            self._remember(args, kwargs, call, taken, sizes)
            kernel = taken[-1][1]
        else:
            kernel, prepared = found
        self.seen.add(args, kwargs, (prepared, kernel, kernel.reads.holds))
        prepared()
        return kernel

    # Between the two roads: arguments never seen, but of a variant that is there.  Only for the usual
    # case, arrays and numbers by position; everything else binds.

    def _usual(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Usual | None:
        """The arguments without binding; None where only that can read them."""
        too_many = self._takes_many or len(args) > len(self.parameters)
        if too_many or not self._run_time_names.isdisjoint(kwargs):
            return None
        return usual(args, self._constexpr_flags, kwargs)

    def _seen_variant(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: tuple[int, int, int]
    ) -> tuple[CompiledKernel, Prepared | OwnMemoryLaunch] | None:
        made = self._usual(args, kwargs)
        if made is None:
            return None
        classes, items = made
        target = self._targets.get(device := made.device)
        if target is None:
            return None
        kind = kind_of_grid(sizes, target, kwargs.get("num_ctas", 1))
        usual = self._known.get((kind, (), classes))
        if usual is None:
            return None

        def known(changes: Changes) -> CompiledKernel:
            kernel = (self._known[kind, changes, classes] if changes else usual).kernel
            if not kernel.reads.is_current():
                raise KeyError
            return kernel

        def bytes_of(i: int) -> Bytes | None:
            item_bytes = usual.item_bytes[i]
            if not item_bytes:
                return None
            _, pointer, shape, strides, *_ = items[i]
            low, high = span(item_bytes, tuple(shape), strides)
            return Bytes(pointer + low, pointer + high)

        values, extents = made.values, made.extents
        accepted = self._accepted.get((sizes, classes, extents))
        if accepted is None or not (accepted.kernel.reads.is_current() and accepted.takes(values)):
            arguments = Arguments(values, bytes_of, sizes)
            try:
                found = variants_for(known, arguments, _tell_nobody)
            except KeyError:
                return None
            kernel, captured = found[-1][1], captured_of(found)
            if (accepted := Accepted.of(found, arguments)) is not None:
                if len(self._accepted) >= KNOWN_KEPT:
                    self._accepted.clear()
                self._accepted[sizes, classes, extents] = accepted
        else:
            kernel, captured = accepted.kernel, accepted.captured
        if kernel.plan.programs:
            return kernel, kernel.prepared(device, sizes, values, captured)
        if accepted is not None:
            self.alike.add(sizes, args, kwargs, self._constexpr_flags, accepted, device)
        return kernel, kernel.loaded().prepare_bound(device, sizes, *kernel.binder(values))

    def _remember(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        call: Call,
        taken: Sequence[tuple[Changes, CompiledKernel]],
        sizes: tuple[int, int, int],
    ) -> None:
        """Lets `_seen_variant` find the variants that a call led to."""
        made = self._usual(args, kwargs)
        if made is None or len(made.items) != len(call.fields):
            return  # defaults or descriptors
        item_bytes = tuple(0 if f.array is None else ITEM_BYTES[f.array.dtype] for f in call.fields)
        if len(self._known) >= KNOWN_KEPT:
            self._known.clear()
        device, target = self.device_of(call), named(taken[0][1].request.target)
        self._targets[device] = target
        kind = kind_of_grid(sizes, target, kwargs.get("num_ctas", 1))
        for changes, kernel in taken:
            self._known[kind, changes, made.classes] = _Known(kernel, item_bytes)

    @functools.cached_property
    def _constexpr_flags(self) -> tuple[bool, ...]:
        return tuple(p.constexpr for p in self.parameters)

    @functools.cached_property
    def _takes_many(self) -> bool:
        return any(p.many for p in self.parameters)

    @functools.cached_property
    def _run_time_names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if not p.constexpr)

    def sizes(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[int, int, int]:
        return grid_sizes(self.grid_of(grid, args, kwargs))

    @user_facing
    def prepare(self, *args: Any, grid: Any, **kwargs: Any) -> Prepared | OwnMemoryLaunch:
        """A launch with everything in place: call the result to launch on the current stream.

        It holds addresses, not arrays: keep the arrays alive.  Raises LaunchError on host arrays.
        """
        call = self.bind(args, kwargs)
        if self.device_of(call) == CPU:
            raise LaunchError(
                "no-device",
                "a prepared launch needs arrays on a GPU",
                help="on host arrays call the kernel, which is interpreted",
            )
        return self._prepare(call, self.sizes(grid, args, kwargs))[1]

    def _prepare(
        self, call: Call, sizes: tuple[int, int, int]
    ) -> tuple[list[tuple[Changes, CompiledKernel]], Prepared | OwnMemoryLaunch]:
        device = self.device_of(call)
        taken = self._variants_for(call, target_of(device).name, device, sizes)
        return taken, taken[-1][1].prepared(device, sizes, call.values(), captured_of(taken))

    def variant_for(
        self, call: Call, device: int, sizes: tuple[int, int, int] | None = None
    ) -> CompiledKernel:
        """The compiled kernel that a call on a GPU runs.  Raises LaunchError on another architecture."""
        return self._variants_for(call, target_of(device).name, device, sizes)[-1][1]

    def device_of(self, call: Call) -> int:
        """The device of all arrays; CPU where the call has none.  Raises LaunchError on a mixture."""
        return device_of(call.fields, self.fn.__name__)

    # ---- variants

    def _variants_for(
        self,
        call: Call,
        target: str,
        device: int = CPU,
        sizes: tuple[int, int, int] | None = None,
    ) -> list[tuple[Changes, CompiledKernel]]:
        """The variants that a call leads to; it runs the last one."""
        decided = call.knobs.num_consumer_groups is not None
        waves, axes = kind_of_grid(None if decided else sizes, named(target), call.knobs.num_ctas)
        request = Request(
            self.fn,
            call.specs,
            call.constexprs,
            call.knobs,
            target,
            launch=Launch(waves, axes=axes),
            called=self._called(call),
        )

        def kernel_of(changes: Changes) -> CompiledKernel:
            refuse = functools.partial(self._refuse_under_capture, device=device)
            return self._variants.get(changed(request, changes), refuse)

        def bytes_of(i: int) -> Bytes | None:
            return call.fields[i].bytes

        def tell(rule: Rule, kernel: CompiledKernel, reason: Any) -> None:
            if _costs_speed(rule, kernel):
                x, y = (call.fields[i].name for i in reason)
                text = (
                    f"{self.fn.__name__}: {x} and {y} overlap in memory; the uniform variant runs, which "
                    "loads nothing ahead of a store"
                )
                help = "pass arrays that share no memory"
                warn(format_message("warning", "overlap", text, None, (), help))

        return variants_for(kernel_of, Arguments(call.values(), bytes_of, sizes), tell)

    def _called(self, call: Call) -> str:
        """The name that `repr` gives a variant, with what can't be in a name as _; "" without it."""
        if self.repr is None:
            return ""
        constants = dict(call.constexprs)
        run_time = [n for n in self.arg_names if n not in constants]
        signature = dict(zip(run_time, map(str, call.specs), strict=False))
        variant = SimpleNamespace(constants=constants, signature=signature, jit_function=self)
        return re.sub(r"\W", "_", str(self.repr(variant)), flags=re.ASCII)

    def _refuse_under_capture(self, request: Request, device: int) -> None:
        """Compiling takes seconds and may not happen while a stream records; the cache may serve."""
        if device == CPU or not driver().is_capturing(current_stream(device), device):
            return
        if not is_cached(request):
            raise LaunchError(
                "compile-under-capture",
                f"kernel {self.fn.__name__} is not compiled for these arguments, and the stream is "
                "being captured into a graph",
                help="call the kernel once with such arguments before the capture",
            )

    # ---- compiling without launching

    @user_facing
    def compile(
        self,
        signature: Sequence[str] | Mapping[str, str],
        constexprs: Mapping[str, Any] | None = None,
        target: str = DEFAULT.name,
        **knobs: Any,
    ) -> CompiledKernel:
        """Compile a variant; needs no GPU.

        signature: an entry (`"*fp16:16"`, `"i32:16"`, `"i32=1"`) for every parameter that is no
        constexpr, in order or by name.  knobs: those of `wl.Config`, strict=True, debug=True, and
        schedule= to apply instead of choosing.  Raises CompileError.
        """
        return compile_request(self.requested(signature, constexprs, target, knobs))

    @user_facing
    def compile_for(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """The variant that a launch with these arguments would use, without launching.

        Host arrays are taken as they are (addresses too), so this needs no GPU.  Other keywords are
        constexprs and knobs, as in a launch, and target=.  Raises CompileError or LaunchError.
        """
        target = DEFAULT.name if "target" in self.arg_names else kwargs.pop("target", DEFAULT.name)
        call = self.bind(args, kwargs)
        self.device_of(call)
        sizes = None if grid is None else self.sizes(grid, args, kwargs)
        return self._variants_for(call, target, sizes=sizes)[-1][1]

    # ---- on the CPU

    def _interpret(self, call: Call, sizes: tuple[int, int, int]) -> None:
        """Run the kernel on host arrays: the oracle, or under WARPLOOM_SIM=1 the simulator, which
        leaves a timeline where WARPLOOM_TIMELINE says."""
        args = [f.on_host for f in call.fields]
        if options.get().sim:
            from warploom.sim.machine import simulate

            drawing = options.get().timeline
            order = "seeded" if drawing is None else "timed"
            placed = self._variants_for(call, DEFAULT.name)[-1][1].placed
            report = simulate(placed, args, sizes, order=order)
            if drawing is not None:
                from warploom.timeline.model import from_report

                try:
                    from_report(report, self.fn.__name__).save(drawing)
                except OSError as e:
                    raise options.unwritable(drawing, "TIMELINE", e) from None
            return
        from warploom.sim.oracle import run

        key = call.specs, exact(call.constexprs), call.knobs
        request = Request(self.fn, call.specs, call.constexprs, call.knobs)
        func = self._interpreted.find(key, request.roots)
        if func is None:
            reads = request.reader()
            func = request.translate(reads)
            self._interpreted.add(key, reads, func)
        run(func, args, sizes)


def _costs_speed(rule: Rule, kernel: CompiledKernel) -> bool:
    """Without rings little is lost where arguments overlap: rows that replace themselves."""
    return rule is OVERLAP and kernel.plan.rings


def _tell_nobody(rule: Rule, kernel: CompiledKernel, _: Any) -> None:
    """Raises KeyError where a launch has to be told something: the road that binds does."""
    if _costs_speed(rule, kernel):
        raise KeyError


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    fn: None = None,
    *,
    do_not_specialize: Sequence[str | int] = (),
    do_not_specialize_on_alignment: Sequence[str | int] = (),
    debug: bool | None = None,
    repr: Callable[..., str] | None = None,
    launch_metadata: Callable[..., dict[str, Any]] | None = None,
    noinline: bool | None = None,
    version: Any = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(
    fn: Any = None,
    *,
    do_not_specialize: Sequence[str | int] | None = None,
    do_not_specialize_on_alignment: Sequence[str | int] | None = None,
    debug: bool | None = None,
    repr: Callable[..., str] | None = None,
    launch_metadata: Callable[..., dict[str, Any]] | None = None,
    noinline: bool | None = None,
    version: Any = None,
) -> Any:
    """Decorator: a Triton-style kernel.

    do_not_specialize: parameters (names or positions) whose values must not lead to variants;
    do_not_specialize_on_alignment: whose divisibility must not.  debug: the knob, where a launch doesn't say.
    launch_metadata: what hooks around launches are told more (runtime/hooks.py): a dict, given the grid,
    metadata (name and knobs) and the arguments by name.
    repr: what a variant is called on the GPU, given its constants and signature.
    noinline and version change nothing: helpers are always inlined, and a variant knows what it was made of.
    """

    def made(f: Callable[..., Any]) -> JITFunction:
        return JITFunction(
            f,
            do_not_specialize or (),
            do_not_specialize_on_alignment or (),
            debug,
            repr,
            launch_metadata,
        )

    return made if fn is None else made(fn)
