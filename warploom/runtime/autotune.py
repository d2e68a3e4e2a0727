"""`@wl.autotune` and `@wl.heuristics`: choosing meta-parameters at the first call of a kind.

Candidates are compiled here, on threads (NVRTC releases the GIL), and those that can't launch or spill are
dropped.  The rest is timed in a worker process (worker.py) that gets cubins, launch plans and copies of
the arguments (snapshot.py), so that a hang, a crash or a broken context costs one worker and never this
process; what copies would not do for is timed here (in_place.py).  The verdict is kept on disk.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from warploom.errors import CompileError, LaunchError, WarploomError
from warploom.frontend.reads import Reads
from warploom.frontend.source import parse_function
from warploom.runtime import in_place
from warploom.runtime.args import CPU
from warploom.runtime.binding import KNOBS, OF_TRITON, UNHEARD, Call, make_knobs, no_parameter
from warploom.runtime.cache import compiler_package, default_cache, digest, own_sources
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.config import KNOBS_OF_CONFIGS, Config, Hooks
from warploom.runtime.dynamo import step_aside
from warploom.runtime.jit import Hit, JITFunction, chip_of
from warploom.runtime.launch import Prepared, current_stream, driver
from warploom.runtime.launched import Launched
from warploom.runtime.mistakes import user_facing
from warploom.runtime.race import (
    Candidate,
    Timer,
    Verdict,
    candidate,
    judge,
    none_runs,
    on_threads,
    verdict_from,
)
from warploom.runtime.seen import SeenCalls
from warploom.runtime.snapshot import snapshot
from warploom.runtime.worker import Worker
from warploom.runtime.workspace import OwnMemoryLaunch


class Decorated(Launched):
    """A kernel under a decorator that completes its launches."""

    fn: JITFunction | Autotuner | Heuristics

    @property
    def kernel(self) -> JITFunction:
        """The kernel below this and other decorators."""
        return kernel_below(self)

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names of all parameters of the kernel, in order."""
        return self.kernel.arg_names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)  # which says that a grid is missing


class Autotuner(Decorated):
    """A kernel with a list of configs; `kernel[grid](…)` runs the fastest for the arguments' key."""

    @user_facing
    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str],
        restore_value: Sequence[str] = (),
        reset_to_zero: Sequence[str] = (),
        prune_configs_by: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        _check(
            configs, {"key": key, "restore_value": restore_value, "reset_to_zero": reset_to_zero}
        )
        self.fn = fn
        self.configs = tuple(configs)
        self.restore_value, self.reset_to_zero = tuple(restore_value), tuple(reset_to_zero)
        self.prune_configs_by = _pruning(prune_configs_by)
        self.hooks = hooks or Hooks()
        functools.update_wrapper(cast(Any, self), fn, updated=())
        self._chosen = frozenset(name for c in self.configs for name in c.all_kwargs)
        self.verdicts: dict[Any, Verdict] = {}
        self._last: Verdict | None = None  # of the last call that was not seen before
        self._seen: SeenCalls[tuple[Hit | None, Config]] = SeenCalls()
        kernel = self.kernel
        names = (*key, *self.restore_value, *self.reset_to_zero)
        for name in names:
            if name not in kernel.arg_names:
                raise CompileError(
                    "autotune",
                    f"autotune of {kernel.fn.__name__} names {name}, which is no parameter",
                    help=f"its parameters: {', '.join(kernel.arg_names)}",
                )
        self._key = tuple((name, kernel.arg_names.index(name)) for name in key)
        for c in self.configs:  # one that can't be compiled would only be skipped
            known = {*kernel.arg_names, *OF_TRITON, *UNHEARD}
            others = {n: v for n, v in c.all_kwargs.items() if n not in known}
            if unknown := [n for n in others if n not in KNOBS]:
                raise CompileError(
                    "autotune",
                    f"config {c}: {no_parameter(unknown[0], kernel)}",
                    help=f"its parameters: {', '.join(kernel.arg_names)}; knobs: {', '.join(KNOBS)}",
                )
            make_knobs(others)

    def __repr__(self) -> str:
        return f"<autotuned {self.kernel!r}, {len(self.configs)} configs>"

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch with the fastest config; tunes at the first call of a key."""
        step_aside()
        if seen := self._seen.find(args, kwargs):
            hit, config = seen
            if not callable(grid):
                self.look_at_grid(grid, config, args, kwargs)
            if hit is None or self.kernel.is_hooked:  # launched by what is alike, or bound
                return self.kernel.launch(grid, *args, **kwargs, **config.all_kwargs)
            prepared, kernel, holds = hit
            if holds():
                prepared.start(self.kernel.grid_of(grid, args, {**kwargs, **config.all_kwargs}))
                return kernel
        config = self.choose(grid, args, kwargs)
        resolved = {**kwargs, **config.all_kwargs}
        self.prepare_arguments(config, args, kwargs)
        found: CompiledKernel | None = self.fn.launch(grid, *args, **resolved)
        # heuristics may look at more than the key holds, and hooks change what arguments hold
        if isinstance(self.fn, JITFunction) and not config.pre_hook and found is not None:
            self._seen.add(args, kwargs, (self.kernel.seen.find(args, resolved), config))
        return found

    def forget_calls(self) -> None:
        """Asks for the config of every call again, also of those that were seen before."""
        self._seen = SeenCalls()

    def look_at_grid(
        self, grid: Any, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Raises LaunchError where the kernel is not made for a grid; any is a user's own to choose."""

    def prepare(self, *args: Any, grid: Any, **kwargs: Any) -> Prepared | OwnMemoryLaunch:
        """As JITFunction.prepare, with the fastest config."""
        config = self.choose(grid, args, kwargs)
        self.prepare_arguments(config, args, kwargs)
        return self.fn.prepare(*args, grid=grid, **kwargs, **config.all_kwargs)

    def prepare_arguments(
        self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Calls the config's pre_hook."""
        if config.pre_hook is not None:
            config.pre_hook(self.kernel.meta(args, {**kwargs, **config.all_kwargs}))

    @property
    def best_config(self) -> Config:
        """The config that the last tuned or looked-up key led to; before any call the first."""
        return self.configs[0 if self._last is None else self._last.best]

    def resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a launch: those given, and those of the config that is known to be fastest
        (the first where none is)."""
        verdict = self.verdicts.get((*self.key_of(args, kwargs), chip_of(args, kwargs)))
        config = self.configs[verdict.best] if verdict else self._first(kwargs.get("target"))
        return self.fn.resolve(args, {**config.all_kwargs, **kwargs})

    def compile(
        self, signature: Any, constexprs: Mapping[str, Any] | None = None, **knobs: Any
    ) -> CompiledKernel:
        """As JITFunction.compile; meta-parameters and knobs that are not given are the first config's."""
        first = self._first(knobs.get("target")).all_kwargs
        meta = {k: v for k, v in first.items() if k not in KNOBS_OF_CONFIGS}
        rest = {k: v for k, v in first.items() if k in KNOBS_OF_CONFIGS}
        return self.fn.compile(signature, {**meta, **(constexprs or {})}, **{**rest, **knobs})

    def compile_for(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """As JITFunction.compile_for, with the config that is known to be the fastest, or the first."""
        return self.kernel.compile_for(*args, grid=grid, **self.resolve(args, kwargs))

    def key_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the key's parameters, and the dtypes of all arrays."""
        n = len(args)
        values = [args[i] if i < n else kwargs.get(name) for name, i in self._key]
        others = (a for a in (*args, *kwargs.values()) if type(a) is not int)
        dtypes = [d for a in others if (d := getattr(a, "dtype", None)) is not None]
        return (*values, *dtypes)

    @user_facing
    def choose(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        """The config for a call."""
        if not self._chosen.isdisjoint(kwargs):
            raise LaunchError(
                "autotune-argument",
                f"{', '.join(sorted(self._chosen & set(kwargs)))} of {self.kernel.fn.__name__} is "
                "given in the call and in the configs of autotune",
                help="leave it out of one of the two",
            )
        key = *self.key_of(args, kwargs), chip_of(args, kwargs)
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = self.verdicts[key] = self._first_call(key, grid, args, kwargs)
        self._last = verdict
        return self.configs[verdict.best]

    # ---- tuning

    def _first_call(
        self, key: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Verdict:
        kernel = self.kernel
        configs = self._pruned(args, kwargs)
        call = kernel.bind(args, self._with(configs[0][1], args, kwargs))
        device = kernel.device_of(call)
        if device == CPU or len(configs) == 1:  # interpreted, all configs are as good
            return Verdict(configs[0][0], {}, {})
        disk, name = default_cache(), self._stored_name(key)
        stored = disk.load("tuned", name)
        if stored is not None and (verdict := verdict_from(stored, len(self.configs))):
            values = (value for _, value in call.constexprs)
            if Reads.again((kernel.fn, *values), stored.get("reads", b"[]").decode()):
                return verdict
        if driver().is_capturing(current_stream(device), device):
            raise LaunchError(
                "tune-under-capture",
                f"{kernel.fn.__name__} is not tuned for {key}, and the stream is being captured into "
                "a graph",
                help="call the kernel once with such arguments before the capture",
            )
        candidates = self._compiled(configs, grid, args, kwargs, device)
        bench = self.hooks.do_bench or in_place.bench(call, [c.kernel for c in candidates], device)
        if bench is not None:
            return self._benched(bench, candidates, grid, args, kwargs)
        timer = self.make_timer(call, device)
        try:
            verdict = judge(candidates, timer, kernel.fn.__name__)
        finally:
            timer.close()
        if self.hooks.pre_hook is not None:
            self.hooks.pre_hook(kernel.meta(args, kwargs), reset_only=True)
        first = candidates[0].kernel  # what it read stands for all: a wrong verdict is only slow
        parts = {"verdict": json.dumps(asdict(verdict)).encode()}
        parts |= {} if first is None else {"reads": first.reads.text.encode()}
        disk.store("tuned", name, parts)
        return verdict

    def _benched(
        self,
        bench: Callable[..., Any],
        candidates: Sequence[Candidate],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Verdict:
        """The verdict of what times launches on the arguments themselves, as a user's do_bench."""
        hooks, times = self.hooks, dict[int, float]()
        for c in candidates:
            if c.skipped:
                continue
            named = self.kernel.meta(args, {**kwargs, **c.config.all_kwargs})

            def once(c: Candidate = c, named: dict[str, Any] = named) -> None:
                self.prepare_arguments(c.config, args, kwargs)
                with hooks.around(named):
                    self.fn.launch(grid, *args, **{**kwargs, **c.config.all_kwargs})

            found = bench(once, quantiles=(0.5, 0.2, 0.8))
            times[c.index] = float(found[0] if isinstance(found, list | tuple) else found)
        skipped = {str(c.config): c.skipped for c in candidates if c.skipped}
        if not times:
            raise none_runs(self.kernel.fn.__name__, skipped)
        milliseconds = {str(self.configs[i]): ms for i, ms in times.items()}
        return Verdict(min(times, key=lambda i: times[i]), milliseconds, skipped)

    def make_timer(self, call: Call, device: int) -> Timer:
        """A worker process with copies of the call's arguments."""
        names = [f.name for f in call.fields]
        restore = [names.index(n) for n in self.restore_value if n in names]
        zero = [names.index(n) for n in self.reset_to_zero if n in names]
        return Worker(snapshot(call, device, restore, zero))

    def _with(
        self, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        return self.fn.resolve(args, {**kwargs, **config.all_kwargs})

    def _stored_name(self, key: Any) -> str:
        """What a verdict on disk depends on."""
        return digest(
            own_sources(),
            compiler_package(),
            self.kernel.fn.__name__,
            parse_function(self.kernel.fn).digest,
            tuple(map(str, self.configs)),
            tuple(map(str, key)),
        )

    def _first(self, target: str | None) -> Config:
        """The config that stands for all where none is known to be the fastest; target: the one asked for."""
        return self.configs[0]

    def _candidates(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Config, ...]:
        """The configs that are tried for a call, before `prune_configs_by`."""
        return self.configs

    def _pruned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[int, Config]]:
        """The configs that `prune_configs_by` leaves, with their indices."""
        left = list(self._candidates(args, kwargs))
        named = self.kernel.meta(args, kwargs)
        if early := self.prune_configs_by.get("early_config_prune"):
            left = list(early(left, named, **kwargs) or ())
        model, top = self.prune_configs_by.get("perf_model"), self.prune_configs_by.get("top_k")
        if model is not None and top is not None:
            count = int(top * len(self.configs)) if isinstance(top, float) else top
            left = sorted(left, key=lambda c: model(**{**named, **_every_knob(c)}))[: max(1, count)]
        for c in left:
            c.forget()
        self.configs += tuple(c for c in left if c not in self.configs)  # some make configs
        found = [(i, c) for i, c in enumerate(self.configs) if c in left]
        if not found:
            raise CompileError(
                "autotune",
                "prune_configs_by leaves no config",
                help="let early_config_prune return at least one of those it got",
            )
        return found

    def _compiled(
        self,
        configs: Sequence[tuple[int, Config]],
        grid: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        device: int,
    ) -> list[Candidate]:
        """All candidates, compiled; those that can't be are skipped."""
        kernel = self.kernel

        def bound(config: Config) -> tuple[Call, tuple[int, int, int]] | WarploomError:
            try:
                self.prepare_arguments(config, args, kwargs)
                given = self._with(config, args, kwargs)
                return kernel.bind(args, given), kernel.sizes(grid, args, given)
            except WarploomError as e:
                return e

        def one(index: int, config: Config, found: Any) -> Candidate:
            def make() -> tuple[CompiledKernel, tuple[int, int, int]]:
                if isinstance(found, WarploomError):
                    raise found
                call, sizes = found
                return kernel.variant_for(call, device, sizes), sizes

            return candidate(index, config, make)

        # bound in turn: hooks change the arguments
        return on_threads(lambda c: one(*c), [(i, c, bound(c)) for i, c in configs])


def _every_knob(c: Config) -> dict[str, Any]:
    """What a model of the time is told of a config: as in Triton also warps, stages and CTAs by default."""
    usual = {"num_warps": c.num_warps, "num_stages": c.num_stages, "num_ctas": c.num_ctas}
    return {**usual, **c.all_kwargs}


class Heuristics(Decorated):
    """A kernel whose meta-parameters are computed from the arguments; made by `@wl.heuristics`."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        if not isinstance(values, Mapping):
            raise CompileError(
                "heuristics",
                f"heuristics takes a dict of functions, not {values!r}",
                help='write {"BLOCK": lambda args: …}',
            )
        for name, compute in values.items():
            if not callable(compute):
                raise CompileError(
                    "heuristics",
                    f"the value of {name} is {compute!r}, not a function of the arguments",
                    help=f"write {{{name!r}: lambda args: …}}",
                )
        self.fn = fn
        self.values = dict(values)
        functools.update_wrapper(cast(Any, self), fn, updated=())

    def resolve(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a launch: those given, and the computed ones."""
        return self.fn.resolve(args, self._computed(args, kwargs))

    def _computed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(kwargs)
        for name, compute in self.values.items():
            given[name] = compute(self.kernel.meta(args, given))
        return given

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel | None:
        """Launch with the computed values."""
        step_aside()
        return self.fn.launch(grid, *args, **self._computed(args, kwargs))

    def prepare(self, *args: Any, grid: Any, **kwargs: Any) -> Prepared | OwnMemoryLaunch:
        """As JITFunction.prepare."""
        return self.kernel.prepare(*args, grid=grid, **self.resolve(args, kwargs))

    def compile(self, signature: Any, *args: Any, **kwargs: Any) -> CompiledKernel:
        """As JITFunction.compile: without arguments nothing can be computed, constexprs are given."""
        return self.fn.compile(signature, *args, **kwargs)

    def compile_for(self, *args: Any, grid: Any = None, **kwargs: Any) -> CompiledKernel:
        """As JITFunction.compile_for, with the computed values."""
        return self.kernel.compile_for(*args, grid=grid, **self.resolve(args, kwargs))


def _check(configs: Sequence[Config], lists: Mapping[str, Any]) -> None:
    """Raises CompileError on what is no list of configs, or no list of names."""
    if not configs:
        raise CompileError(
            "autotune",
            "autotune needs at least one config",
            help="pass configs=[wl.Config({…})]",
        )
    for c in configs:
        if not isinstance(c, Config) or not isinstance(c.kwargs, Mapping):
            raise CompileError(
                "autotune",
                f"{c!r} is no config",
                help="write wl.Config({meta-parameters by name}, num_warps=…)",
            )
    for what, names in lists.items():
        if not isinstance(names, list | tuple):
            raise CompileError(
                "autotune",
                f"{what} is a list of parameter names, not {names!r}",
                help=f'write {what}=["name"]',
            )


def _pruning(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts of `prune_configs_by`.  Raises CompileError on others, and on values of other kinds."""
    found = {} if given is None else dict(given) if isinstance(given, Mapping) else {"": given}
    top = found.get("top_k")
    for name, value in found.items():
        good = name in ("early_config_prune", "perf_model") and (value is None or callable(value))
        few = name == "top_k" and (
            value is None
            or (type(top) is int and top > 0)
            or (isinstance(top, float) and 0 < top <= 1)
        )
        if not (good or few):
            raise CompileError(
                "autotune",
                f"prune_configs_by has {name}={value!r}"
                if name
                else f"prune_configs_by is {value!r}",
                help="a dict of early_config_prune and perf_model, which are functions, and top_k, a count "
                "or a share of the configs",
            )
    return found


def kernel_below(fn: Any) -> JITFunction:
    """The JITFunction under decorators.  Raises CompileError where there is none."""
    while not isinstance(fn, JITFunction):
        if not isinstance(fn, Autotuner | Heuristics):
            raise CompileError(
                "not-a-kernel",
                f"{getattr(fn, '__name__', fn)!r} is no kernel",
                help="put @jit directly above the function, below @autotune and @heuristics",
            )
        fn = fn.fn
    return fn


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Decorator: meta-parameters computed from all arguments (a dict by name) at every call."""
    return lambda fn: Heuristics(fn, values)
