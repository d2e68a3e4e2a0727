"""triton.runtime.autotuner: the tuner with Triton's constructor and attributes, which libraries subclass."""

from __future__ import annotations

import functools
from collections import UserDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Self

from warploom.runtime.autotune import Autotuner as _Autotuner
from warploom.runtime.autotune import Heuristics, heuristics, kernel_below
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.config import Config, Hooks
from warploom.runtime.jit import chip_of
from warploom.triton.errors import AutotunerError, OutOfResources, PTXASError

__all__ = [
    "Autotuner",
    "AutotunerError",
    "Config",
    "Heuristics",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "heuristics",
]


_OF_PRUNING = "early_config_prune", "perf_model", "top_k"  # Triton reads no other name


class _Chosen(UserDict[tuple[Any, ...], Config]):
    """The config of each key; `changed` is called where that becomes another one."""

    def __init__(self, changed: Callable[[], None], *given: Any) -> None:
        self._changed = changed
        super().__init__(*given)

    def __setitem__(self, key: tuple[Any, ...], config: Config) -> None:
        super().__setitem__(key, config)
        self._changed()

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        super().__delitem__(key)
        self._changed()

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self


class Autotuner(_Autotuner):
    """As Triton's: without configs there is one without meta-parameters, and names in `key` that are no
    parameters count for nothing.  `cache` has the config of each key: what users set there is launched, and
    a key that they take out is tuned again."""

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config] | None,
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: Any = None,
        rep: Any = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        self.keys = [name for name in key if name in arg_names]
        self.pre_hook, self.post_hook = pre_hook, post_hook
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        given = prune_configs_by or {}
        pruning = {name: given[name] for name in _OF_PRUNING if name in given}
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self.nargs: dict[str, Any] = {}
        self._best: Config | None = None
        self._first_chip: str | None = None
        super().__init__(
            fn,
            configs or [Config({})],
            self.keys,
            restore_value or (),
            reset_to_zero or (),
            pruning or None,
            Hooks(pre_hook, post_hook, do_bench),
        )
        self.base_fn = self.kernel.fn
        self.cache = {}

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel | None]:
        return functools.partial(self.run, grid=grid, warmup=False)

    @property
    def cache(self) -> MutableMapping[tuple[Any, ...], Config]:
        return self._chosen_configs

    @cache.setter
    def cache(self, given: Mapping[tuple[Any, ...], Config]) -> None:
        self._chosen_configs = _Chosen(self.forget_calls, given)
        self.forget_calls()

    @property
    def best_config(self) -> Config:
        return self._best or super().best_config

    def key_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the key's parameters, and the dtypes of all arguments that have one, as text."""
        named = dict(zip(self.arg_names, args, strict=False)) | dict(kwargs)
        known = {name: value for name, value in named.items() if name in self.arg_names}
        dtypes = (str(v.dtype) for v in known.values() if hasattr(v, "dtype"))
        return (*(known[name] for name in self.keys if name in known), *dtypes)

    def choose(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        key, chip = self.key_of(args, kwargs), chip_of(args, kwargs)
        self._first_chip = chip if self._first_chip is None else self._first_chip
        if chip != self._first_chip:  # Triton's keys don't say it
            key = *key, chip
        found = self.cache.get(key)
        if found is None:
            self.verdicts.pop((*self.key_of(args, kwargs), chip), None)
            found = self.cache[key] = super().choose(grid, args, kwargs)
        self._best = found
        return found


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: Any = None,
    rep: Any = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Decorator: as `warploom.autotune`, which says what each means, with Triton's order of parameters."""

    def decorate(fn: Any) -> Autotuner:
        names = kernel_below(fn).arg_names
        how = (pre_hook, post_hook, prune_configs_by, warmup, rep, use_cuda_graph, do_bench)
        return Autotuner(fn, names, configs, key, reset_to_zero, restore_value, *how, cache_results)

    return decorate
