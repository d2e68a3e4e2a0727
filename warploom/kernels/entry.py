"""What the library's entries ask of their arguments, told before anything is tuned or launched.

A kernel that takes addresses and sizes believes them: arrays that are smaller, strided, of another dtype or
written over an input would give wrong numbers without a word.  An `Entry` is a tuned kernel that looks first,
at each call that differs from those before; `Given` holds the questions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warploom.errors import LaunchError
from warploom.runtime.args import CPU, Array, inspect, span
from warploom.runtime.autotune import Autotuner
from warploom.runtime.config import Config
from warploom.runtime.jit import target_of
from warploom.runtime.launch import grid_sizes
from warploom.runtime.mistakes import user_facing
from warploom.runtime.seen import SeenCalls
from warploom.target import DEFAULT, Target, named

HALVES = ("f16", "bf16")
BYTES = ("f8e4m3", "f8e5m2")
FLOATS = ("f16", "bf16", "f32")


class Given:
    """The arguments of a call of an entry, by name.  Every method raises LaunchError `library-argument`."""

    def __init__(self, entry: str, named: Mapping[str, Any]) -> None:
        self.entry, self.named = entry, named
        self._arrays: dict[str, Array] = {}

    def refuse(self, name: str, found: str, wanted: str, help: str) -> LaunchError:
        """The error to raise."""
        text = f"{self.entry}: {label(name)} is {found}, not {wanted}"
        return LaunchError("library-argument", text, help=help)

    def number(self, name: str, least: int = 0) -> int:
        """A whole number from `least` on."""
        value = self.named[name]
        try:
            number = operator.index(value)
        except TypeError:
            number = least - 1
        if number < least or isinstance(value, bool):
            raise self.refuse(
                name, repr(value), f"a whole number from {least} on", "pass the array's own size"
            )
        return number

    def finite(self, name: str) -> float:
        """A number that is neither infinite nor nan."""
        value = self.named[name]
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise self.refuse(
                name, repr(value), "a finite number", f"leave {name} out, or pass one"
            )
        return found

    def array(self, name: str, dtypes: Sequence[str]) -> Array:
        """An array of one of these dtypes."""
        value = self.named[name]
        found = inspect(value)
        if found is None:
            help = "pass an array: torch, NumPy, DLPack, __cuda_array_interface__"
            raise self.refuse(name, f"a {type(value).__name__}", "an array", help)
        if found.dtype not in dtypes:
            raise self.refuse(
                name, f"of {found.dtype}", " or ".join(dtypes), f"convert {label(name)}"
            )
        self._arrays[name] = found
        return found

    def sizes(self, name: str, axes: str, dtypes: Sequence[str]) -> tuple[int, ...]:
        """The sizes of an array with these axes (their names, separated by commas)."""
        found = self.array(name, dtypes).shape
        if len(found) != axes.count(",") + 1:
            help = f"reshape {label(name)} to ({axes})"
            raise self.refuse(name, f"of shape {found}", f"({axes})", help)
        return found

    def dense(
        self, name: str, shape: tuple[int, ...], dtypes: Sequence[str], written: bool = False
    ) -> Array:
        """An array of this shape (or flat, of as many elements), row-major and without gaps."""
        found = self.array(name, dtypes)
        wanted = f"{shape}, row-major and without gaps"
        if found.shape not in (shape, (math.prod(shape),)):
            raise self.refuse(
                name, f"of shape {found.shape}", wanted, "pass arrays whose sizes agree"
            )
        if not _is_dense(found):
            how = f"of shape {found.shape} and strides {found.strides}"
            help = f"pass {label(name)}.contiguous()"
            if written:
                help = f"allocate {label(name)} whole: the result would be in its copy alone"
            raise self.refuse(name, how, wanted, help)
        return found

    def matrix(
        self, name: str, sizes: tuple[int, int], strides: tuple[int, int], dtypes: Sequence[str]
    ) -> Array:
        """An array that holds a matrix of these sizes and strides (in elements): its own strides, or those
        of its transpose, where it has the matrix's shape; else enough memory."""
        found = self.array(name, dtypes)
        own = {
            axes
            for axes in ((0, 1), (1, 0))
            if len(found.shape) == 2 and (found.shape[axes[0]], found.shape[axes[1]]) == sizes
        }
        theirs = [tuple(found.strides[i] for i in axes) for axes in own]
        if 0 not in sizes and theirs and not any(_same(sizes, strides, x) for x in theirs):
            raise self.refuse(
                name,
                f"of shape {found.shape} and strides {found.strides}",
                f"a matrix of {sizes} with strides {strides}",
                f"pass *{label(name)}.stride(), of the transpose where that is meant",
            )
        low, high = span(1, sizes, strides)
        first, last = span(1, found.shape, found.strides)
        if low < high and (low < first or high > last):
            raise self.refuse(
                name,
                f"of {last - first} elements",
                f"enough for {sizes} with strides {strides}, which reach element {high - 1}",
                "pass the sizes and strides of the arrays",
            )
        return found

    def one_place_each(self, name: str, sizes: tuple[int, int], strides: tuple[int, int]) -> None:
        """A result has one place for each element."""
        (n, near), (m, far) = sorted(zip(sizes, map(abs, strides), strict=True), key=lambda x: x[1])
        if n and m and ((n > 1 and near == 0) or (m > 1 and far <= (n - 1) * near)):
            raise self.refuse(
                name,
                f"a matrix of {sizes} with strides {strides}, whose elements share memory",
                "one with a place for each element",
                f"allocate {label(name)} whole, instead of expanding it",
            )

    def apart(self, *results: str) -> None:
        """Results share no memory with any other array that was asked for."""
        for result in results:
            low, high = self._arrays[result].bytes_range()
            for name, other in self._arrays.items():
                first, last = other.bytes_range()
                if name != result and low < last and first < high:
                    raise self.refuse(
                        result,
                        f"in the same memory as {label(name)}",
                        "memory of its own",
                        f"allocate {label(result)}: the kernel writes it while it reads",
                    )


def target_at(device: int) -> Target:
    """What calls with arrays on a device are compiled for: on the CPU the default."""
    return DEFAULT if device == CPU else target_of(device)


def label(name: str) -> str:
    """A parameter as its caller calls it."""
    return name.removesuffix("_ptr")


def _is_dense(array: Array) -> bool:
    step = 1
    for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if n != 1 and stride != step and 0 not in array.shape:
            return False
        step *= n
    return True


def _same(sizes: Sequence[int], x: Sequence[int], y: Sequence[int]) -> bool:
    return all(a == b for n, a, b in zip(sizes, x, y, strict=True) if n > 1)


class Entry(Autotuner):
    """A tuned kernel of the library, which checks what it is given before it tunes or launches.

    tiles: the grid that the kernel needs, by its parameters; else it takes programs along one axis, as many
    as there are, and one at least where its `result` (sizes by name) has an element.
    configs: for chips whose matrix unit runs beside the threads (`MatrixUnit.is_async`); in_order: for those
    whose products are done in registers."""

    def __init__(
        self,
        name: str,
        fn: Any,
        check: Callable[[Given], None],
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None = None,
        in_order: Sequence[Config] = (),
        tiles: Callable[[Mapping[str, Any]], tuple[int, ...]] | None = None,
        result: Sequence[str] = ("M", "N"),
    ) -> None:
        super().__init__(fn, (*configs, *in_order), key, prune_configs_by=prune_configs_by)
        self.name, self.check = name, check
        self.tiles, self.result = tiles, result
        self._in_order = len(in_order)
        tuned = {name for config in self.configs for name in config.kwargs}
        self._asked = [name for name in self.kernel.arg_names if name not in tuned]
        self._accepted: SeenCalls[bool] = SeenCalls()

    @user_facing
    def look_at(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises LaunchError where an argument of a call is not what the kernel takes."""
        if self._accepted.find(args, kwargs):
            return
        named = self.kernel.meta(args, kwargs)
        if any(name not in named for name in self._asked):
            return  # binding says what is missing
        self.check(Given(self.name, named))
        self._accepted.add(args, kwargs, True)

    @user_facing
    def choose(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config:
        """As Autotuner.choose.  Raises LaunchError where arguments or grid are not what the kernel takes."""
        self.look_at(args, kwargs)
        config = super().choose(grid, args, kwargs)
        self.look_at_grid(grid, config, args, kwargs)
        return config

    @user_facing
    def look_at_grid(
        self, grid: Any, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        named = self.kernel.meta(args, {**kwargs, **config.all_kwargs})
        sizes = grid_sizes(grid(named) if callable(grid) else grid)
        if self.tiles is not None:
            exact = grid_sizes(self.tiles(named))
            fits, wanted = sizes == exact, f"{exact}, as its config has tiles"
        else:
            least = min(1, *(named[name] for name in self.result))
            fits, wanted = sizes[0] >= least and sizes[1:] == (1, 1), "some programs along one axis"
        if not fits:
            help = f"pass the grid function that stands beside {self.name}"
            raise Given(self.name, named).refuse("the grid", f"{sizes}", wanted, help)

    def _first(self, target: str | None) -> Config:
        return self.configs_for(DEFAULT if target is None else named(target))[0]

    def configs_for(self, target: Target) -> tuple[Config, ...]:
        """The configs for chips like the target, or all where it has none of its own."""
        at = len(self.configs) - self._in_order
        mine = self.configs[:at] if target.matrix_units[0].is_async else self.configs[at:]
        return mine or self.configs

    def _candidates(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Config, ...]:
        device = self.kernel.device_of(
            self.kernel.bind(args, self._with(self.configs[0], args, kwargs))
        )
        return self.configs_for(target_at(device))
