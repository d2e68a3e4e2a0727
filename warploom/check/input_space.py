"""What the trip counts of a function depend on, and the inputs that its numbers make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from warploom.check.runs import Case, ring_depth
from warploom.ir.analysis import backward_slice, sources
from warploom.ir.core import KINDS, Func, Value, walk
from warploom.ir.ops import arith, control, tile, tma
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import DTYPES, Pointer, Scalar, TensorMap, dtype_of
from warploom.sim.chosen import Fill
from warploom.sim.evaluate import ON_INTEGERS


class InputSpace:
    """The inputs of a function, by what its trip counts depend on.

    A *variable* is a parameter by its index, or, after the last of them, the number of programs."""

    def __init__(self, func: Func, arrays: Sequence[tuple[str, bool]] = ()) -> None:
        self.func = func
        self.grid = len(func.params)
        self.arrays = [name for name, _ in arrays]
        self.longest = 3 * ring_depth(func) + 3
        self._written = dict(arrays)
        self._own_grid: tuple[Any, ...] = func.attrs.get("grid", ())
        roots: list[Value] = []
        for o in walk(func.body):
            roots += o.operands[:1] if o.kind is control.assume else control.deciding(o)
        self._constants = {
            o.result: o.attrs["value"]
            for o in walk(func.body)
            if o.kind is arith.const and isinstance(o.attrs["value"], int)
        }
        self._slice = backward_slice(roots, sources(func.body))
        self.free = {
            i
            for i, (param, fact) in enumerate(zip(func.params, func.facts, strict=True))
            if isinstance(param.type, Scalar) and param.type.dtype.is_int and fact.value is None
        }
        self.variables = [
            i for i in sorted(self.free) if self._own_grid or func.params[i] in self._slice
        ]
        ids = (tile.program_id, tile.num_programs)
        follows_grid = any(o.kind in ids and o.result in self._slice for o in walk(func.body))
        if follows_grid and not self._own_grid:
            self.variables.append(self.grid)
        self.variables += [self.array(name) for name, written in arrays if not written]

    @cached_property
    def sizes(self) -> set[int]:
        """The parameters that are taken not to be negative: what extents and grids are made of; in a kernel
        that does not say its grid itself what loops end by, too."""
        kinds = (tile.make_view, tma.tensor_map)
        asked = [o.operands for o in walk(self.func.body) if o.kind in kinds]
        if not self._own_grid:
            asked += [control.deciding(o) for o in walk(self.func.body) if o.kind in control.LOOPS]
        extents = [v for values in asked for v in values if isinstance(v.type, Scalar)]
        behind = backward_slice(extents, sources(self.func.body))
        of_grid = set(itertools.chain(*map(_arguments, self._own_grid)))
        return {i for i in self.free if self.func.params[i] in behind or i in of_grid}

    def array(self, name: str) -> int:
        """The variable that stands for the numbers in an array."""
        return self.grid + 1 + self.arrays.index(name)

    @cached_property
    def smallest(self) -> Case:
        """The input to begin with."""
        return self.case(_smallest(self.func))

    def is_written(self, name: str) -> bool:
        """Does the kernel write the array whose words decide something?"""
        return self._written[name]

    def with_grid(self, case: Case, least: Sequence[int]) -> Case | None:
        """The same with a grid that is at least so large along each axis; None where none was found."""
        grid = (*case.grid, 1, 1)[:3]
        if not self._own_grid:
            return Case(case.args, tuple(map(max, grid, least)), case.memory)
        for i in sorted(self.free):
            for unit, more in itertools.product(self.units(i), least):
                n = unit * (more + 1)
                grown = self.case(case.values, {i: max(n, case.args[i])})
                if all(a >= b for a, b in zip((*grown.grid, 1, 1), least, strict=False)):
                    return grown
        return None

    def programs(self, case: Case, args: Sequence[Any]) -> list[Any]:
        """The sizes of the grid at an input where its numbers are these (or arrays of them)."""
        if not self._own_grid:
            return [np.int32(n) for n in (*case.grid, 1, 1)[:3]]
        ctas = [np.maximum(0, _evaluated(e, args)) for e in self._own_grid]
        per_program = cluster_of(self.func)
        sizes = [n // per for n, per in zip(ctas, per_program, strict=False)]
        return [*sizes, *(np.int32(1),) * (3 - len(sizes))]

    def divisor(self, i: int) -> int:
        """What parameter i is a multiple of, as far as the variant knows."""
        return self.func.facts[i].divisible

    def least(self, case: Case) -> Case:
        """The same with all numbers as small as they may be, but not zero."""
        return self.case(case.values, {i: self.divisor(i) for i in self.free})

    def allowed(self, i: int, n: int) -> list[int]:
        """The numbers next to n that variable i may have, as far as the variant knows."""
        if i >= self.grid:
            return [n]  # programs, or words of an array
        by, bounds = self.divisor(i), np.iinfo(dtype_of(self.func.params[i].type).numpy)
        below = n - n % by
        least = 0 if i in self.sizes else bounds.min
        return [x for x in sorted({below, n + -n % by}) if least <= x <= bounds.max]

    @property
    def has_own_grid(self) -> bool:
        """An explicit kernel says by itself how many programs it has."""
        return bool(self._own_grid)

    def units(self, variable: int) -> list[int]:
        """Constants that a loop bound may be counted in: what it is divided by, what a loop steps by."""
        found = {1}
        if variable >= self.grid:
            return [1]
        for o in walk(self.func.body):
            if o.kind in (arith.idiv, arith.fast_div, arith.rem) and o.result in self._slice:
                found.add(self._constants.get(o.operands[1], 1))
            elif o.kind is arith.shr and o.result in self._slice:
                found.add(1 << min(self._constants.get(o.operands[1], 0), 10))
            elif o.kind is control.for_:
                found.add(self._constants.get(o.operands[2], 1))
            elif o.kind is tma.tensor_map and isinstance(o.result.type, TensorMap):
                found.update(o.result.type.box)
        return sorted((n for n in found if 1 <= n <= 1024), reverse=True)

    def case(self, values: Sequence[Any], changed: Mapping[int, int] | None = None) -> Case:
        """The input with these values of all variables (and other parameters), some of them changed."""
        rest = [1, *(0 if self._written[name] else 1 for name in self.arrays)]
        at = [*values, *rest[max(0, len(values) - self.grid) :]]
        for i, n in (changed or {}).items():
            at[i] = n
        args = tuple(at[: self.grid])
        memory = tuple(zip(self.arrays, map(Fill, at[self.grid + 1 :]), strict=True))
        if not self._own_grid:
            return Case(args, (at[self.grid],), memory)
        ctas = (max(0, int(_evaluated(e, args))) for e in self._own_grid)
        per_program = cluster_of(self.func)
        grid = tuple(n // per for n, per in zip(ctas, per_program, strict=False))
        return Case(args, grid, memory)

    def changed(self, case: Case, numbers: Mapping[int, int]) -> Case:
        """An input with some numbers changed; other arrays hold what they held."""
        found = self.case(case.values, numbers)
        both = zip(case.memory, found.memory, strict=True)
        memory = tuple(new if self.array(new[0]) in numbers else old for old, new in both)
        keeps_grid = not self._own_grid and self.grid not in numbers
        return Case(found.args, case.grid if keeps_grid else found.grid, memory)


def _evaluated(expression: tuple[Any, ...], args: Sequence[Any]) -> Any:
    """A size of an explicit kernel's grid (codegen/host.py says what such expressions are)."""
    match expression:
        case ("arg", i):
            return args[i]
        case ("const", n):
            return n
        case ("cast", dtype, x):
            return _number(_evaluated(x, args), dtype)
    kind, dtype, *operands = expression
    return ON_INTEGERS[KINDS[kind]](*(_number(_evaluated(x, args), dtype) for x in operands))


def _arguments(expression: tuple[Any, ...]) -> Iterator[int]:
    """The parameters that a size of a grid is made of."""
    if expression[0] == "arg":
        yield expression[1]
    for x in expression[1:]:
        if isinstance(x, tuple):
            yield from _arguments(x)


def _number(x: Any, dtype: str) -> Any:
    return np.asarray(x).astype(DTYPES[dtype].numpy)[()]


def _smallest(func: Func) -> list[Any]:
    """Arguments as small as the function takes them: pointers to little, integers 16 (or as specialized)."""
    args: list[Any] = []
    for param, fact in zip(func.params, func.facts, strict=True):
        match param.type:
            case Pointer(dtype=dtype):
                args.append(np.zeros(4096, dtype.numpy))
            case Scalar(dtype=dtype) if dtype.is_int:
                args.append(16 if fact.value is None else fact.value)
            case _:
                args.append(1.0)
    return args
