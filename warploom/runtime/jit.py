"""`@wl.jit`: from a call to a launch.

A call takes one of two roads.  The fast one makes a key of everything that the launch depends on (addresses,
shapes, strides, numbers) and finds a prepared launch under it.  The other binds the arguments to
parameters, specializes, compiles or finds the variant, prepares the launch, and leaves it for the fast
road.  On host arrays the kernel is interpreted instead.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect as python_inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from warploom import options
from warploom.errors import CompileError, LaunchError, format_message
from warploom.frontend.reads import Variants
from warploom.frontend.source import capture, refuse_wrapper
from warploom.frontend.tokens import exact
from warploom.runtime.args import (
    CPU,
    ITEM_BYTES,
    KEYS,
    TensorDescriptor,
    span,
)
from warploom.runtime.binding import Call, Callee
from warploom.runtime.compiled import (
    CompiledKernel,
    Request,
    compile_request,
    for_empty,
    for_negative,
    for_overlap,
    for_short,
    is_cached,
)
from warploom.runtime.dynamo import step_aside
from warploom.runtime.launch import Prepared, current_stream, driver, grid_sizes
from warploom.runtime.mistakes import user_facing, warn
from warploom.schedule.model import MANY_WAVES, Launch
from warploom.target import DEFAULT, Target, for_device, named, supported

HITS_KEPT = 4096  # prepared launches that one kernel remembers


# What `launch_key` raises: of arguments that can't be hashed, and of torch's tensors without an address.
UNKEYED = (TypeError, ValueError, RuntimeError)

# What the fast road finds: a launch, its kernel, and whether what was translated still holds.
Hit = tuple[Prepared, CompiledKernel, Callable[[], bool]]


def launch_key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """All that a launch depends on: numbers, and of arrays address, dtype, shape, strides, device.

    Integers stand for themselves, other values beside their type (True == 1 == 1.0, 0.0 == -0.0).
    """
    key: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is int:
            key.append(value)
        else:
            read = KEYS.get(kind)
            if read is not None:
                key.append(read(value))
            elif kind is bool or kind is str or (kind is float and value):
                key.append((kind, value))
            else:
                key.append(exact(value))
    return (*key, *kwargs)


@dataclass(frozen=True)
class _Usual:
    """A variant that a call took without any of the checks in `_variant_for` objecting."""

    kernel: CompiledKernel
    device: int
    item_bytes: tuple[int, ...]  # of each array argument's elements; 0 for numbers


def _typed(request: Request) -> tuple[Request, Any]:
    """A request as a key: True is not 1."""
    return request, exact(request.constexprs)


def waves_of(sizes: tuple[int, int, int] | None, target: Target) -> int:
    """`Launch.waves` of a grid; 0 where it is not known."""
    if sizes is None:
        return 0
    return min(MANY_WAVES, -(-math.prod(sizes) // target.multiprocessors))


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


def _is_array(item: Any) -> bool:
    """Is a run-time argument, as `launch_key` has it, an array?"""
    return type(item) is tuple and len(item) > 2


def overlap(x_bytes: int, x: Any, y_bytes: int, y: Any) -> bool:
    """Whether two arrays, as probes read them, share memory."""
    if x_bytes == 0 or y_bytes == 0:
        return False
    x_low, x_high = span(x_bytes, tuple(x[2]), x[3])
    y_low, y_high = span(y_bytes, tuple(y[2]), y[3])
    return bool(x[1] + x_low < y[1] + y_high and y[1] + y_low < x[1] + x_high)


class JITFunction(Callee):
    """A kernel.  `kernel[grid](*args, META=…, num_warps=…)` launches it; made by `@wl.jit`."""

    @user_facing
    def __init__(self, fn: Callable[..., Any], do_not_specialize: Sequence[str | int] = ()) -> None:
        if not python_inspect.isfunction(fn):
            raise CompileError(
                "not-a-function",
                f"jit takes a function, not {fn!r}",
                help="write @wl.jit above a def",
            )
        refuse_wrapper(fn)
        capture(fn)
        super().__init__(fn, do_not_specialize)
        self.__warploom_fn__ = fn
        functools.update_wrapper(self, fn, updated=())
        self._variants: Variants[CompiledKernel] = Variants()
        self._hits: dict[Any, Hit] = {}
        self._usual: dict[Any, _Usual] = {}
        self._targets: dict[int | None, Target] = {}  # of the devices in _usual
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

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        """The launcher for a grid: 1 to 3 sizes, or a function of the arguments (a dict) giving them."""
        return functools.partial(self.run, grid)

    # ---- launching

    def run(self, grid: Any, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch; the compiled variant that ran, or None where the kernel was interpreted on the CPU."""
        step_aside()
        try:
            hit = self._hits.get(launch_key(args, kwargs))
        except UNKEYED:  # the other road says what is wrong
            hit = None
        if hit is None or not hit[2]():
            return self._run_unseen(grid, args, kwargs)
        prepared, kernel, _ = hit
        prepared.start(grid(self.meta(args, kwargs)) if callable(grid) else grid)
        return kernel

    def seen(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hit | None:
        """What `run` would launch without binding: a call like one before."""
        try:
            return self._hits.get(launch_key(args, kwargs))
        except UNKEYED:
            return None

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
            kernel, prepared = self._prepare(call, sizes)
            self._remember_variant(args, kwargs, call, kernel, sizes)
        else:
            kernel, prepared = found
        if len(self._hits) >= HITS_KEPT:
            self._hits.clear()
        # the key is made here: binding found out how to read arrays of types that were not seen before
        self._hits[launch_key(args, kwargs)] = prepared, kernel, kernel.reads.holds
        prepared()
        return kernel

    # Between the two roads: arguments never seen, but of a variant that is there.  Only for the usual
    # case, arrays and numbers by position; everything else binds.

    def _variant_key(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], list[Any]] | None:
        """(what the variant depends on, the run-time arguments as launch_key has them)."""
        classes: list[Any] = []
        items: list[Any] = []
        for constexpr, value in zip(self._constexpr_flags, args, strict=False):
            kind = type(value)
            if constexpr or value is None:
                classes.append(exact(value))
            elif kind is int:
                # i32 or wider, 1, and the divisor up to 16
                wide = not -(1 << 31) <= value < 1 << 31
                classes.append((value if wide else 0, value == 1, value & -value & 15))
                items.append(value)
            elif kind is float or kind is bool:
                classes.append(kind)
                items.append((kind, value))
            else:
                read = KEYS.get(kind)
                if read is None or kind is TensorDescriptor:
                    return None
                item = read(value)
                classes.append((item[0], item[1] & 15, item[4]))
                items.append(item)
        for name, value in kwargs.items():
            if name in self._run_time_names:
                return None
            classes.append((name, exact(value)))
        return tuple(classes), items

    def _seen_variant(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: tuple[int, int, int]
    ) -> tuple[CompiledKernel, Prepared] | None:
        try:
            made = self._variant_key(args, kwargs)
        except UNKEYED:  # binding says what is wrong
            return None
        device = None if made is None else next((x[4] for x in made[1] if _is_array(x)), None)
        target = self._targets.get(device)
        if made is None or target is None:
            return None
        waves = waves_of(sizes, target)
        usual = self._usual.get((waves, False, made[0]))
        if usual is None:
            return None
        items = made[1]
        values = tuple([item if type(item) is int else item[1] for item in items])
        if usual.kernel.is_short(values):
            usual = self._usual.get((waves, True, made[0]))
            if usual is None:
                return None
        if not usual.kernel.reads.is_current():
            return None
        plan = usual.kernel.plan
        for i in plan.nonnegative:
            if values[i] < 0:
                return None
        for i, j in plan.disjoint:
            if i != j and overlap(usual.item_bytes[i], items[i], usual.item_bytes[j], items[j]):
                return None
        scalars, keys = usual.kernel.binder(values)
        for _, dims, _ in keys:
            if 0 in dims:
                return None
        prepared = usual.kernel.loaded().prepare_bound(usual.device, sizes, scalars, keys)
        return usual.kernel, prepared

    def _remember_variant(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        call: Call,
        kernel: CompiledKernel,
        sizes: tuple[int, int, int],
    ) -> None:
        made = self._variant_key(args, kwargs)
        request = kernel.request
        whole = made is not None and len(made[1]) == len(call.fields)
        if (
            made is None
            or not whole
            or not request.structured
            or request.overlap
            or request.specs != call.specs
        ):
            return  # defaults, descriptors, or a launch that took another variant
        item_bytes = tuple(0 if f.array is None else ITEM_BYTES[f.array.dtype] for f in call.fields)
        if len(self._usual) >= HITS_KEPT:
            self._usual.clear()
        device, target = self.device_of(call), named(request.target)
        self._targets[device] = target
        waves = waves_of(sizes, target)
        self._usual[waves, request.launch.short, made[0]] = _Usual(kernel, device, item_bytes)
        if request.launch.short:  # whether a call is short the other variant tells
            long = dataclasses.replace(request.launch, short=False)
            usual = self._compiled(dataclasses.replace(request, launch=long), device)
            self._usual[waves, False, made[0]] = _Usual(usual, device, item_bytes)

    @functools.cached_property
    def _constexpr_flags(self) -> tuple[bool, ...]:
        return tuple(p.constexpr for p in self.parameters)

    @functools.cached_property
    def _run_time_names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if not p.constexpr)

    def sizes(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[int, int, int]:
        return grid_sizes(_grid_of(grid, self.meta(args, kwargs)) if callable(grid) else grid)

    @user_facing
    def prepare(self, *args: Any, grid: Any, **kwargs: Any) -> Prepared:
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

    def _prepare(self, call: Call, sizes: tuple[int, int, int]) -> tuple[CompiledKernel, Prepared]:
        device = self.device_of(call)
        kernel = self.variant_for(call, device, sizes)
        return kernel, kernel.loaded().prepare(device, sizes, call.values())

    def variant_for(
        self, call: Call, device: int, sizes: tuple[int, int, int] | None = None
    ) -> CompiledKernel:
        """The compiled kernel that a call on a GPU runs.  Raises LaunchError on another architecture."""
        return self._variant_for(call, target_of(device).name, device, sizes)

    def device_of(self, call: Call) -> int:
        """The device of all arrays; CPU where the call has none.  Raises LaunchError on a mixture."""
        devices = {f.array.device for f in call.fields if f.array is not None}
        if len(devices) <= 1:
            return next(iter(devices), CPU)
        places = ", ".join(
            f"{f.name} on {'the CPU' if f.array.device == CPU else f'device {f.array.device}'}"
            for f in call.fields
            if f.array is not None
        )
        raise LaunchError(
            "mixed-devices",
            f"the arrays of {self.fn.__name__} are in different places: {places}",
            help="move all of them to one device (tensor.cuda())",
        )

    # ---- variants

    def _variant_for(
        self,
        call: Call,
        target: str,
        device: int = CPU,
        sizes: tuple[int, int, int] | None = None,
    ) -> CompiledKernel:
        """The variant that a call needs.  What the usual variant takes for granted is checked here: sizes
        and strides are not negative, arguments don't overlap, boxes aren't empty; and whether its main loop
        is as long as was assumed."""
        launch = Launch(
            0 if call.knobs.num_consumer_groups is not None else waves_of(sizes, named(target))
        )
        request = Request(self.fn, call.specs, call.constexprs, call.knobs, target, launch=launch)
        kernel = self._compiled(request, device)
        values = call.values()
        if kernel.is_short(values):
            kernel = self._compiled(request := for_short(request), device)
        if any(values[i] < 0 for i in kernel.plan.nonnegative):
            kernel = self._compiled(request := for_negative(request), device)
        if overlap := self._overlap(kernel, call):
            if kernel.plan.rings:  # without them little is lost: rows that replace themselves
                warn(
                    format_message(
                        "warning",
                        "overlap",
                        f"{self.fn.__name__}: {overlap} overlap in memory; the uniform variant runs, which "
                        "loads nothing ahead of a store",
                        None,
                        (),
                        "pass arrays that share no memory",
                    )
                )
            kernel = self._compiled(request := for_overlap(request), device)
        if any(0 in dims for _, dims, _ in kernel.binder(values)[1]):
            kernel = self._compiled(for_empty(request), device)
        return kernel

    def _overlap(self, kernel: CompiledKernel, call: Call) -> str:
        """Names of the first pair of arguments that overlap and must not; empty where there is none."""
        for i, j in kernel.plan.disjoint:
            x, y = call.fields[i], call.fields[j]
            if i == j or x.array is None or y.array is None:
                continue
            (x_low, x_high), (y_low, y_high) = x.array.bytes_range(), y.array.bytes_range()
            if x_low < y_high and y_low < x_high:
                return f"{x.name} and {y.name}"
        return ""

    def _compiled(self, request: Request, device: int = CPU) -> CompiledKernel:
        any_grid = dataclasses.replace(request, launch=dataclasses.replace(request.launch, waves=0))
        kernel = self._variants.find(_typed(any_grid))
        if kernel is not None and (request == any_grid or not kernel.plan.by_waves):
            return kernel
        kernel = self._variants.find(_typed(request))
        if kernel is None:
            self._refuse_under_capture(request, device)
            kernel = compile_request(request)
            key = _typed(request if kernel.plan.by_waves else any_grid)
            self._variants.add(key, kernel.reads, kernel)
        return kernel

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
        return self._variant_for(call, target, sizes=sizes)

    # ---- on the CPU

    def _interpret(self, call: Call, sizes: tuple[int, int, int]) -> None:
        """Run the kernel on host arrays: the oracle, or under WARPLOOM_SIM=1 the simulator, which
        leaves a timeline where WARPLOOM_TIMELINE says."""
        args = [f.on_host for f in call.fields]
        if options.get().sim:
            from warploom.sim.machine import simulate

            drawing = options.get().timeline
            order = "seeded" if drawing is None else "timed"
            placed = self._variant_for(call, DEFAULT.name).placed
            report = simulate(placed, args, sizes, order=order)
            if drawing is not None:
                from warploom.timeline.model import from_report

                try:
                    from_report(report, self.fn.__name__).save(drawing)
                except OSError as e:
                    raise options.unwritable(drawing, "TIMELINE", e) from None
            return
        from warploom.sim.oracle import run

        key = call.specs, exact(call.constexprs)
        func = self._interpreted.find(key)
        if func is None:
            request = Request(self.fn, call.specs, call.constexprs, call.knobs)
            reads = request.reader()
            func = request.translate(reads)
            self._interpreted.add(key, reads, func)
        run(func, args, sizes)


def _grid_of(grid: Callable[..., Any], meta: Mapping[str, Any]) -> Any:
    """What a grid function gives.  Raises LaunchError where it doesn't take the meta-parameters."""
    try:
        python_inspect.signature(grid).bind(meta)
    except TypeError:
        raise LaunchError(
            "grid",
            f"the grid function takes {python_inspect.signature(grid)}, not one dict of meta-parameters",
            help='lambda meta: (wl.cdiv(n, meta["BLOCK"]),)',
        ) from None
    return grid(meta)


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    fn: None = None, *, do_not_specialize: Sequence[str | int] = ()
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(fn: Any = None, *, do_not_specialize: Sequence[str | int] = ()) -> Any:
    """Decorator: a Triton-style kernel.

    do_not_specialize: parameters (names or positions) whose values must not lead to variants.
    """
    if fn is None:
        return lambda f: JITFunction(f, do_not_specialize)
    return JITFunction(fn, do_not_specialize)
