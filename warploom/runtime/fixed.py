"""Launches of a kernel that was compiled for a signature, whatever arguments come.

Who compiles before there are arguments (`triton.compile`, PyTorch's Inductor) launches what he got, and
nothing else; where arguments break what the variant takes for granted (they overlap, a size is 0), the
variant for that is compiled and launched in its place, as in a call of the kernel.

A small kernel takes less time than its launch.  So two functions are written for each kernel, without loops,
tables of arguments or tests that its signature settles: one reads the arguments and finds what launches with
their like have taken, the other packs them and launches.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from warploom.errors import LaunchError
from warploom.frontend.source import parameters
from warploom.runtime.args import CPU, Field, device_of, fields_of, inspect, probe_of, probe_torch
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.hooks import AROUND, ENTER, EXIT, launch_with_hooks
from warploom.runtime.launch import Prepared, grid_sizes, thread
from warploom.runtime.plan import NAMES, parameter_texts
from warploom.runtime.seen import CALLS_KEPT, SeenCalls
from warploom.runtime.values import contradiction, first_overlap
from warploom.runtime.variants import (
    Accepted,
    Arguments,
    Changes,
    Compilations,
    changed,
    variants_for,
)
from warploom.runtime.workspace import OwnMemoryLaunch

Start = Callable[..., None]
# What reading arguments raises that only binding can read, or that are unlike those of any launch before.
UNREAD = (AttributeError, KeyError, TypeError, ValueError, RuntimeError)
FLOATS_OF_COMPLEX = ("f16", "f32", "f64")  # one of them has a conjugate's imaginary part
# What Triton's launchers are given after the grid and the stream, and what a launch here does without.
OF_TRITON = "function, metadata, launch_metadata, enter, exit"


def starter(kernel: CompiledKernel, device: int, count: int) -> Start:
    """A function of a grid's sizes, a stream, numbers and addresses that launches a variant on a device.

    It fills the block of parameters of a launch that has ended, as the driver copies them; tensor maps stay
    where they are the same."""
    if device in kernel.starts:
        return kernel.starts[device]
    loaded = kernel.loaded()
    idle: list[Any] = []

    def made(grid: tuple[int, int, int], values: tuple[Any, ...]) -> tuple[Prepared, Any, int, int]:
        prepared = loaded.prepare(device, grid, values)
        return prepared, prepared.memory, prepared.begin, prepared.address

    def named(text: str) -> str:
        return re.sub(r"\ba\[(\d+)\]", r"a\1", text)

    scalars, keys = parameter_texts(kernel.plan)
    encoded = [f"encoded({device}, {i}, {named(key)}), " for i, key in enumerate(keys)]
    values = f"({''.join(f'a{i}, ' for i in range(count))})"
    is_ready = "stream or thread.has_context" if loaded.driver.device_count == 1 else "stream"
    text = (
        f"def run(x, y, z, stream, {values[1:-1]}):",
        f" values = {values if keys else None}",
        " try:",
        "  prepared, memory, begin, address, filled, maps = pop()",  # no other thread's
        *([f"  if filled != values: maps = {''.join(encoded)}"] if keys else []),
        f"  pack(memory, begin, {'*maps, ' if keys else ''}{named(', '.join(scalars))})",
        " except unfilled:",  # `made` says what is wrong with a number
        f"  prepared, memory, begin, address = made((x, y, z), {values})",
        "  values, maps = None, ()",
        " config = configs.get(((x, y, z), stream))",
        f" if config is not None and ({is_ready}):",
        "  result = launch(config, function, address, 0)[0]",
        "  if result: prepared.failed(result, config, (x, y, z))",
        " else: prepared.start((x, y, z), stream)",
        " push((prepared, memory, begin, address, values, maps))",
    )
    kernel.starts[device] = _executed(
        text,
        pop=idle.pop, push=idle.append, made=made, pack=loaded.layout.packer.pack_into,
        encoded=loaded.encoded, configs=loaded.configs, launch=loaded.driver.launch,
        function=loaded.function, thread=thread,
        unfilled=(IndexError, struct.error, OverflowError, TypeError), **NAMES,
    )  # fmt: skip
    return kernel.starts[device]


def _executed(text: Sequence[str], **names: Any) -> Callable[..., Any]:
    """The function `run` of this text."""
    exec("\n".join(text), names)
    run: Callable[..., Any] = names["run"]
    return run


def are_apart(x: Any, y: Any) -> bool:
    """Whether two arrays share no memory."""
    spans = [None if a is None else a.bytes() for a in map(inspect, (x, y))]
    return first_overlap([(0, 1)], lambda i: spans[i]) is None


def apart_tests(
    pairs: Iterable[tuple[int, int]], arrays: Mapping[int, str], names: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Lines, and tests that tensors share no memory, over their names, and p with a name for its address.

    A tensor ends at the latest with its storage; where that doesn't tell, strides do."""
    names["are_apart"] = are_apart
    pairs = sorted((i, j) for i, j in pairs if i != j and i in arrays and j in arrays)
    tested = sorted({arrays[i] for pair in pairs for i in pair})
    lines = [f"s = {a}.untyped_storage(); e{a} = s.data_ptr() + s.nbytes()" for a in tested]
    named = [(arrays[i], arrays[j]) for i, j in pairs]
    return lines, [f"(e{a} <= p{b} or e{b} <= p{a} or are_apart({a}, {b}))" for a, b in named]


class FixedLauncher:
    """Launches one compiled kernel.  Arguments are the run-time ones in order, or all of the kernel's
    parameters, in which case those that the variant fixes don't count."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        self._variants = Compilations()
        # Of arguments that are not read by the functions written here.
        self._seen: SeenCalls[Prepared | OwnMemoryLaunch] = SeenCalls()
        # By device and integers of a launch; and by device, dtypes of arrays, and integers.
        self._known: dict[Any, Start] = {}
        fixed = dict(kernel.request.constexprs)
        names = [p.name for p in parameters(kernel.request.fn)]
        self._run_time = [(i, name) for i, name in enumerate(names) if name not in fixed]
        specs = kernel.request.specs
        self._arrays = [i for i, s in enumerate(specs) if s.kind == "pointer"]
        self._integers = [
            i for i, s in enumerate(specs) if s.kind == "scalar" and s.dtype[0] in "iu"
        ]
        # Do the functions written here read arguments?
        self._is_read = bool(self._arrays) and all(s.kind != "descriptor" for s in specs)
        named = [f"a{i}" for i in range(len(specs))]
        self._checked = self._written("", named, True, self._started)

    def __call__(self, grid: Any, stream: int | None, args: Sequence[Any]) -> CompiledKernel | None:
        """Launches on a stream (a raw handle; None: the current one); the kernel.  Host arrays are taken
        through the oracle, which gives None."""
        found: CompiledKernel | None = self._checked(
            *grid_sizes(grid), stream, *self._run_time_ones(args)
        )
        return found

    def launch(self, jit: Any, grid: Any, stream: int | None, args: Sequence[Any]) -> None:
        """As __call__; hooks are told of a JITFunction."""
        launch = functools.partial(self, grid, stream, args)
        if AROUND or ENTER or EXIT:
            launch_with_hooks(jit.live(), launch, grid, args, {})
        else:
            launch()

    def runner(self, jit: Any) -> Callable[..., None]:
        """A function that launches as Triton's launchers do, whose hooks are told of a JITFunction.

        It is given all parameters.  Of arguments after the first ones of their kind it tests the device, the
        alignment and what overlaps, and takes it that dtypes are those of the signature."""

        places = {place: f"a{i}" for i, (place, _) in enumerate(self._run_time)}
        count = len(parameters(self.kernel.request.fn))
        given = [places.get(place, f"fixed{place}") for place in range(count)]
        return self._written(f"{OF_TRITON}, ", given, False, functools.partial(self.launch, jit))

    def _written(
        self, head: str, given: Sequence[str], checked: bool, unread: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A function run(x, y, z, stream, `head`, `given`) that launches arguments with known ones' like, and
        gives `unread` the others.  checked: dtypes are tested, and whether memory holds an array's numbers
        with the other sign; else whether there are hooks."""
        specs, arrays = self.kernel.request.specs, self._arrays
        values = [f"pa{i}" if i in arrays else f"a{i}" for i in range(len(specs))]
        first, *others = [f"a{i}.get_device()" for i in arrays] or [""]
        tests = [" == ".join([f"-1 < (device := {first})", *others])]
        # Arrays without elements are at address 0.
        tests += [f"(pa{i} or not a{i}.numel())" for i in arrays]
        aligned: dict[int, list[str]] = {}
        for i in arrays:
            aligned.setdefault(specs[i].fact.divisible, []).append(values[i])
        tests += [f"not ({' | '.join(each)}) & {n - 1}" for n, each in aligned.items() if n > 1]
        names: dict[str, Any] = {}
        ends, apart = apart_tests(self.kernel.plan.disjoint, {i: f"a{i}" for i in arrays}, names)
        tests += apart
        key = ["device", *(f"a{i}.dtype" for i in arrays if checked)]
        key += [values[i] for i in self._integers]
        if checked:
            tests += [f"not a{i}.is_neg()" for i in arrays if specs[i].dtype in FLOATS_OF_COMPLEX]
        else:
            tests.append("not (AROUND or ENTER or EXIT)")
        reads = (
            *(f"  pa{i} = a{i}.data_ptr()" for i in arrays),
            *(f"  {line}" for line in ends),
            f"  start = known[{', '.join(key)},] if {' and '.join(tests)} else None",
        )  # fmt: skip
        text = (
            f"def run(x, y, z, stream, {head}{', '.join(given)}):",
            " try:",
            *(reads if self._is_read else ["  start = None"]),
            " except UNREAD: start = None",
            f" if start is None: return unread((x, y, z), stream, ({''.join(f'{a}, ' for a in given)}))",
            f" start({', '.join(['x', 'y', 'z', 'stream', *values])})",
            " return kernel",
        )
        return _executed(
            text, known=self._known, unread=unread, kernel=self.kernel, UNREAD=UNREAD,
            AROUND=AROUND, ENTER=ENTER, EXIT=EXIT, **names,
        )  # fmt: skip

    def _run_time_ones(self, args: Sequence[Any]) -> Sequence[Any]:
        return args if len(args) == len(self._run_time) else [args[i] for i, _ in self._run_time]

    def _started(
        self, grid: tuple[int, int, int], stream: int | None, given: Sequence[Any]
    ) -> CompiledKernel | None:
        """A launch with arguments unlike those that are known; what __call__ gives."""
        args = self._run_time_ones(given)
        prepared = self._seen.find(args, {}) or self._prepare(grid, args)
        if prepared is None:
            return None
        prepared.start(grid, stream)
        return self.kernel

    def _prepare(self, grid: Any, args: Sequence[Any]) -> Prepared | OwnMemoryLaunch | None:
        """A launch with its parameters in place; None where it has been interpreted."""
        sizes, fields = grid_sizes(grid), self._fields(args)
        has_arrays = any(f.array is not None for f in fields)
        device = device_of(fields, self.kernel.name) if has_arrays else 0
        if device == CPU:
            from warploom.sim.oracle import run

            run(self.kernel.lowered.written, [f.on_host for f in fields], sizes)
            return None

        arguments = Arguments(tuple([f.launched for f in fields]), lambda i: fields[i].bytes)
        found = variants_for(self._variant, arguments, lambda *_: None)
        kernel = found[-1][1]
        if kernel.plan.programs:
            launch = kernel.prepared(device, sizes, arguments.values)
            self._seen.add(args, {}, launch)
            return launch
        prepared = kernel.loaded().prepare_bound(device, sizes, *arguments.bound(kernel))
        accepted = Accepted.of(found, arguments)
        if accepted is None or not self._learned(args, accepted, device):
            self._seen.add(args, {}, prepared)
        return prepared

    def _learned(
        self, args: Sequence[Any], accepted: Accepted[CompiledKernel], device: int
    ) -> bool:
        """Lets launches like this one be found; false where what is read doesn't decide of them."""
        arrays = [args[i] for i in self._arrays]
        if not self._is_read or any(probe_of(type(x), x) is not probe_torch for x in arrays):
            return False
        if not set(accepted.disjoint) <= set(self.kernel.plan.disjoint):
            return False
        if len(self._known) >= CALLS_KEPT:
            self._known.clear()
        integers = [args[i] for i in self._integers]
        start = starter(accepted.kernel, device, len(args))
        for read in (), [x.dtype for x in arrays]:
            self._known[device, *read, *integers] = start
        return True

    def _fields(self, args: Sequence[Any]) -> list[Field]:
        """The arguments as parameters.  Raises LaunchError where the variant isn't made for one."""
        found: list[Field] = []
        for (_, name), spec, value in zip(
            self._run_time, self.kernel.request.specs, args, strict=True
        ):
            fields = fields_of(name, value)
            if why := contradiction(spec, value, fields):
                raise LaunchError(
                    "variant-argument",
                    f"{name} of {self.kernel.name}: {why}",
                    help="compile the kernel for a signature that takes such arguments",
                )
            found += fields
        return found

    def _variant(self, changes: Changes) -> CompiledKernel:
        if not changes:
            return self.kernel
        return self._variants.get(changed(self.kernel.request, changes), lambda _: None)
