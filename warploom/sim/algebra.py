"""The algebra mode: floats are residues modulo a prime, so that reassociation changes nothing, and any wrong
operand, phase or missing wait does.

What the modes of sim/field.py make of a program's floats:

  in memory        every element of an array of floats is a random residue of its own, so that arrays of ones
                   tell wrong elements apart too; infinities and NaN stay.  Integers stay
  constants        the residue of m·2^e; so are scalar arguments
  + - · / dot      the field's.  fma, promotion, deferred and split sums are reassociations: exact
  casts            between floats the identity; integer to float the residue; float to integer the residue's
                   own number, wrapped
  exp2, sqrt, …    fixed random maps, but exp(0) = 1, exp(-inf) = 0, log(1) = 0, log(0) = -inf, …
  max, min, <, ==  by the order of the residues from -(P - 1)/2 to (P - 1)/2; -inf is below all of them

Two programs that are equal but for the order of their sums give the same residues; two that differ agree in
an element with probability about d / P, d the degree of the polynomial that it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import LaunchError, Loc, whole_number
from warploom.ir import engines
from warploom.ir.analysis import backward_slice, sources
from warploom.ir.core import SEQUENTIAL, Func, Value, walk
from warploom.ir.types import Pointer
from warploom.sim import field
from warploom.sim.machine import simulate
from warploom.sim.memory import bind, flattened
from warploom.sim.oracle import run
from warploom.sim.report import SimReport
from warploom.sim.residues import ALGEBRA

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Difference:
    """An array in which two programs left different elements.  index: the first one's, or None where it lies
    between the array's elements; count: how many differ; lines: where the program writes the array."""

    array: str
    index: tuple[int, ...] | None
    expected: float
    found: float
    count: int
    lines: tuple[Loc, ...]

    def __str__(self) -> str:
        where = "between its elements" if self.index is None else f"at {self.index}"
        text = (
            f"{self.array} differs {where}: {self.found:.0f} modulo {field.P}, expected "
            f"{self.expected:.0f} ({self.count} elements in all)"
        )
        return "\n".join([text, *(f"  it is written at {loc}" for loc in self.lines)])


@dataclass(frozen=True)
class AlgebraReport:
    """Whether a program computes in the field what its reference computes.

    elements: of all arrays.  void: elements of floats that are infinite or NaN on both sides, which tell
    little.  simulated: of the program's run."""

    name: str
    order: str
    elements: int
    void: int
    differences: tuple[Difference, ...]
    simulated: SimReport

    @property
    def is_equal(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        what = f"{self.name}, order {self.order}"
        if self.differences:
            return "\n".join([f"{what}: wrong in the field", *map(str, self.differences)])
        return (
            f"{what}: equal modulo {field.P} in {self.elements} elements ({self.void} inf or NaN)"
        )


def compare(
    reference: Func,
    func: Func,
    args: Sequence[Any],
    grid: int | Sequence[int],
    *,
    order: str = "late",
    seed: int = 0,
    given: bool = False,
    programs: Sequence[int] | None = None,
    **options: Any,
) -> AlgebraReport:
    """Runs two functions with the same parameters in the field, on copies of the arguments.  The second may
    have more, after the reference's, and another grid; then `programs` is the reference's.

    reference: the oracle runs it; at WARP or PLACED it is simulated in order "early".  func: likewise, in
    `order`.  seed: of the residues in memory and of the order.  given: an array's floats stand for themselves
    (m·2^e), instead of random residues: for programs whose control flow follows from them.  options: as for
    `simulate`.  Raises what `simulate` does, LaunchError where arrays that overlap have different dtypes.

        compare(kernel.lowered.written, kernel.placed, args, grid).is_equal"""
    seed = whole_number("seed", seed, 0)
    bind(func, args)  # what doesn't fit is told as of any run
    wanted, found = (_Arguments(func, args, seed, given) for _ in range(2))
    common = range(len(reference.params))
    _run(reference, wanted, programs or grid, "early", {**options, "seed": seed})
    report = _run(func, found, grid, order, {**options, "seed": seed})
    differences, elements, void = [], 0, 0
    for i, (x, y) in enumerate(zip(wanted.buffers, found.buffers, strict=True)):
        if not any(argument in common for argument in wanted.owners[i]):
            continue
        is_float = x.dtype == np.float64
        differs = (x != y) & ~(np.isnan(x) & np.isnan(y)) if is_float else x != y
        elements += x.size
        void += int((~np.isfinite(x) & ~differs).sum()) if is_float else 0
        if differs.any():
            differences.append(_difference(func, i, wanted, found, differs))
    return AlgebraReport(func.name, order, elements, void, tuple(differences), report)


def _run(func: Func, args: _Arguments, grid: Any, order: str, options: dict[str, Any]) -> SimReport:
    if func.level not in SEQUENTIAL:
        return simulate(func, args.of(func), grid, order=order, numerics=ALGEBRA, **options)
    run(func, args.of(func), grid, ALGEBRA)
    return SimReport()


class _Arguments:
    """Arguments in the field: arrays that overlap in memory do so here.

    values: one for each argument.  buffers: what the arrays are views of.  place: of each array its buffer's
    number and the number of its first byte's element in it."""

    def __init__(self, func: Func, args: Sequence[Any], seed: int, given: bool) -> None:
        self.names = [p.hint or f"argument {i}" for i, p in enumerate(func.params)]
        self.values = list(args)
        self.buffers: list[Array] = []
        self.owners: list[dict[int, int]] = []  # of each buffer: argument, where it begins
        arrays = {
            i: a
            for i, (a, p) in enumerate(zip(args, func.params, strict=True))
            if isinstance(p.type, Pointer)
        }
        for i in [i for i, a in arrays.items() if a.size == 0]:
            empty, t = arrays.pop(i), func.params[i].typed(Pointer)
            self.values[i] = np.zeros(empty.shape, ALGEBRA.holds(t.dtype))
        for group in _overlapping(arrays):
            rng = np.random.default_rng((seed, len(self.buffers)))
            self._add(func, {i: arrays[i] for i in group}, rng, given)

    def of(self, func: Func) -> list[Any]:
        """Those of one of the functions that they are for."""
        return self.values[: len(func.params)]

    def _add(
        self, func: Func, arrays: dict[int, Array], rng: np.random.Generator, given: bool
    ) -> None:
        """One buffer, for arrays that overlap."""
        spans = {i: flattened(a)[0] for i, a in arrays.items()}
        first = min(_bytes(x)[0] for x in spans.values())
        size = next(iter(spans.values())).itemsize
        starts = {i: (_bytes(x)[0] - first) // size for i, x in spans.items()}
        dtypes = {x.dtype for x in spans.values()}
        if len(dtypes) > 1 or any((_bytes(x)[0] - first) % size for x in spans.values()):
            raise LaunchError(
                "algebra-overlap",
                f"{' and '.join(self.names[i] for i in arrays)} overlap and have different dtypes, or begin "
                "inside each other's elements",
                help="the algebra mode holds one residue for each element: pass arrays apart",
            )
        dtype = next(iter(dtypes))
        length = max(starts[i] + x.size for i, x in spans.items())
        raw = np.zeros(length, dtype)
        for i, x in spans.items():
            raw[starts[i] : starts[i] + x.size] = x
        kind = func.params[next(iter(arrays))].typed(Pointer)
        buffer = _residues(raw, rng, given) if kind.dtype.is_float else raw
        for i, a in arrays.items():
            origin = starts[i] + flattened(a)[1]
            strides = [s // size * buffer.itemsize for s in a.strides]
            self.values[i] = np.ndarray(
                a.shape, buffer.dtype, buffer, origin * buffer.itemsize, strides
            )
            self.values[i].flags.writeable = a.flags.writeable
        self.buffers.append(buffer)
        self.owners.append(starts)


def _overlapping(arrays: dict[int, Array]) -> Iterator[list[int]]:
    """The numbers of arrays that overlap in memory, directly or by way of others."""
    spans = sorted((*_bytes(flattened(a)[0]), i) for i, a in arrays.items())
    group: list[int] = []
    reach = 0
    for first, stop, i in spans:
        if group and first >= reach:
            yield group
            group = []
        group.append(i)
        reach = max(reach, stop)
    if group:
        yield group


def _bytes(flat: Array) -> tuple[int, int]:
    """The addresses of an array's first byte and of that after its last."""
    return flat.ctypes.data, flat.ctypes.data + flat.nbytes


def _residues(raw: Array, rng: np.random.Generator, given: bool) -> Array:
    wide = raw.astype(np.float64)
    if given:
        return np.asarray(field.naturals(wide))
    return np.where(np.isfinite(wide), field.random(rng, raw.size), wide)


def _difference(
    func: Func, number: int, wanted: _Arguments, found: _Arguments, differs: Array
) -> Difference:
    owners = wanted.owners[number]
    lines = tuple(dict.fromkeys(_written_at(func, [func.params[i] for i in owners])))
    for i in owners:
        x, y = wanted.values[i], found.values[i]
        wrong = np.argwhere((x != y) & ~((x != x) & (y != y)))
        if wrong.size:
            at = tuple(int(n) for n in wrong[0])
            pair = float(x[at]), float(y[at])
            return Difference(wanted.names[i], at, *pair, len(wrong), lines)
    first = int(np.flatnonzero(differs)[0])
    pair = float(wanted.buffers[number][first]), float(found.buffers[number][first])
    name = wanted.names[next(iter(owners))]
    return Difference(name, None, *pair, int(differs.sum()), lines)


def _written_at(func: Func, params: Sequence[Value]) -> Iterator[Loc]:
    """Where a function writes to the arrays of pointer parameters."""
    known = sources(func.body)
    for o in walk(func.body):
        if o.kind in engines.WRITES_GLOBAL and o.loc is not None:
            target = o.operands[0]
            if any(p in backward_slice([target], known) for p in params):
                yield o.loc
