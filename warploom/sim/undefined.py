"""Integers divided by 0 at run time: undefined, and an error where they are used.

PTX leaves such a quotient or remainder open.  A mask or a condition may drop it, and passes compute ahead of
conditions, so it is no error by itself.  Numbers that may not be used are `Undefined` here.  Arithmetic hands
them on element by element; a select, `False & x`, `True | x` and the mask of an access drop what they don't
take.  Whatever else asks for one (memory, a branch, an address, a dot) raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np

from warploom.analysis.facts import facts_of
from warploom.errors import Note
from warploom.ir.analysis import closure, passed_on
from warploom.ir.core import Func, Op, OpKind, Value, walk
from warploom.ir.engines import COPIES_PIECES
from warploom.ir.ops import arith, combine, smem, task, tile, tma
from warploom.ir.types import dtype_of, i1
from warploom.sim.evaluate import PURE, combination_of, prepared
from warploom.sim.report import SimError

Fn = Callable[..., Any]

_DIVISIONS = {arith.idiv: "//", arith.rem: "%"}
_MOVES = frozenset((
    tile.splat, tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape, tile.slice_tile, tile.concat,
    tile.convert_layout, tile.agree, task.forward,
))  # fmt: skip
_BY_INDEX = frozenset((tile.gather, task.slice_block))  # which move elements of the first operand
_FOLDS = frozenset((tile.reduce, tile.scan, *combine.SEVERAL))
_MOVING = (np.moveaxis, np.broadcast_to, np.concatenate)  # of NumPy's
_GIVEN_ON = frozenset((tile.make_view, tma.tensor_map))  # a view may be made before a condition
_HANDED = {  # what leaves tiles for others, and what gets them
    task.put: task.take,
    smem.shared_store: smem.shared_load,
    smem.shared_put: smem.shared_get,
}
# Accesses by pointers: where their operands say which, what is written, and under which mask.
_ACCESSES: dict[OpKind, tuple[int, int | None, int]] = {
    tile.load: (0, None, 1),
    tile.store: (0, 1, 2),
    tile.atomic: (0, 1, 2),
    task.produce: (2, None, 3),
    **dict.fromkeys(COPIES_PIECES, (0, None, 2)),
}


@dataclass(frozen=True)
class Fault:
    """A division by 0: the op, what was divided, and where in the tile ("" of a number)."""

    op: Op
    dividend: Any
    at: str

    def error(self, user: Op | None = None) -> SimError:
        """What is said where its result is used."""
        return SimError(
            "zero-division",
            f"{self.dividend} {_DIVISIONS[self.op.kind]} 0 at run time{self.at}, which has no defined result "
            "on a GPU",
            self.op.loc,
            () if user is None or user.loc == self.op.loc else (Note("it is used here", user.loc),),
            help="test the divisor first: `x // n if n != 0 else 0`, or an if around it",
        )


class Undefined:
    """Numbers, a tile or one by itself, some of which are undefined.

    numbers: what stands for them.  where: which are undefined, an array of their shape or True.  Whoever asks
    for more than their shape and parts takes them for numbers, and gets the error."""

    def __init__(self, numbers: Any, where: Any, fault: Fault) -> None:
        self.numbers, self.where, self.fault = numbers, where, fault

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.numbers)

    @property
    def ndim(self) -> int:
        return np.ndim(self.numbers)

    def reshape(self, *shape: Any) -> Any:
        return self.like(self.numbers.reshape(*shape), self.where.reshape(*shape))

    @property
    def flat(self) -> Any:
        return self.reshape(-1)

    def filling(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Undefined:
        """A tile that has this number everywhere."""
        return Undefined(np.full(shape, self.numbers, dtype), np.full(shape, True), self.fault)

    def __getitem__(self, index: Any) -> Any:
        return self.like(self.numbers[index], self.where[index])

    def like(self, numbers: Any, where: Any) -> Any:
        """Numbers that came of these, as Undefined where any is."""
        return Undefined(numbers, where, self.fault) if np.any(where) else numbers

    def __array__(self, *_: Any, **__: Any) -> Any:
        if np.any(self.where):
            self._refuse()
        return np.asarray(self.numbers)

    def __array_function__(self, fn: Fn, _: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """What NumPy's functions do with it, of which a few only move elements."""
        if fn not in _MOVING:
            self._refuse()
        return self.like(fn(*_each(_numbers, args)), fn(*_each(_where, args)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy asks for its protocols
            raise AttributeError(name)
        self._refuse()

    def _refuse(self, *_: Any) -> NoReturn:
        raise self.fault.error()

    __bool__ = __int__ = __index__ = __float__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


class Divisions:
    """The values of a function that may be undefined, and what its ops do with them."""

    def __init__(self, func: Func) -> None:
        ops = tuple(walk(func.body))
        divisions = {o for o in ops if _is_division(o)}
        facts = facts_of(func).wrapping() if divisions else None
        self.ops = {o for o in divisions if facts and not facts.never_zero(o.operands[1])}
        for o in (o for o in ops if o.kind in combine.SEVERAL):  # whose functions divide as well
            steps = [s for s in combination_of(o).ops if _is_division(s)]
            self.ops.update((o, *steps) if steps else ())
        self.values = _followers(ops, self.ops) if self.ops else frozenset()

    def meaning(self, o: Op, run: Fn) -> Fn:
        """What a pure op does; `run`: with numbers."""
        if o in self.ops and o.kind in combine.SEVERAL:
            return partial(run, wrap=partial(self._step_of, o))
        if o in self.ops:
            return partial(_divided, o, run)
        if self.values.isdisjoint(o.operands):
            return run
        return partial(_handed_on, o, run)

    def _step_of(self, o: Op, step: Op, run: Fn) -> Fn:
        """What a step does of the function by which o combines tiles."""
        here = step.with_(loc=o.loc)
        return partial(_divided if step in self.ops else _handed_on, here, run)

    def step(self, o: Op, run: Fn) -> Fn:
        """What an op with effects does; `run`: of the agent or program, the op and the operands."""
        if self.values.isdisjoint(o.operands):
            return run
        if o.kind in _ACCESSES:
            return partial(_accessed, run, *_ACCESSES[o.kind])
        if o.kind in _GIVEN_ON:
            return partial(_made, run)
        return run


def _is_division(o: Op) -> bool:
    """Does it divide integers?"""
    return o.kind in _DIVISIONS and dtype_of(o.operands[0].type).is_int


def _followers(ops: tuple[Op, ...], divisions: set[Op]) -> frozenset[Value]:
    """What may be undefined: quotients, and what follows from them."""
    followers: dict[Value, list[Value]] = {}
    got = {kind: [v for o in ops if o.kind is kind for v in o.results] for kind in _HANDED.values()}
    for o in ops:
        for v, given in passed_on(o).items():
            for x in given:
                followers.setdefault(x, []).append(v)
        results: Iterable[Value] = o.results if o.kind in PURE or o.kind in _GIVEN_ON else ()
        if o.kind in _HANDED:
            results = got[_HANDED[o.kind]]
        if o.kind is tile.load and len(o.operands) > 2:
            followers.setdefault(o.operands[2], []).append(o.result)
        for x in o.operands:
            followers.setdefault(x, []).extend(results)
    roots = [v for o in divisions for v in o.results]
    return frozenset(closure(roots, lambda v: followers.get(v, ())))


def _numbers(x: Any) -> Any:
    return x.numbers if type(x) is Undefined else x


def _each(part: Fn, xs: Sequence[Any]) -> list[Any]:
    """Parts of the arrays among the arguments of one of NumPy's functions."""
    is_array = (np.ndarray, Undefined)
    parts = (_each(part, x) if isinstance(x, list) else x for x in xs)
    return [part(x) if isinstance(x, is_array) else x for x in parts]


def _where(x: Any) -> Any:
    return x.where if type(x) is Undefined else np.zeros(np.shape(x), np.bool_)


def _fault(xs: Iterable[Any]) -> Fault | None:
    return next((x.fault for x in xs if type(x) is Undefined), None)


def _divided(o: Op, run: Fn, x: Any, y: Any) -> Any:
    numbers = _numbers(y)
    zero = numbers == 0
    fault = _fault((x, y))
    if fault is None:
        if not (zero.any() if isinstance(zero, np.ndarray) else zero):
            return run(x, y)
        at, of = "", x
        if np.ndim(zero):
            index = tuple(int(i) for i in np.argwhere(zero)[0])
            at, of = f" (at {index} of the tile)", x[index]
        fault = Fault(o, of, at)
    return Undefined(run(_numbers(x), numbers), zero | _where(x) | _where(y), fault)


def _handed_on(o: Op, run: Fn, *xs: Any) -> Any:
    fault = _fault(xs)
    if fault is None:
        return run(*xs)
    kind = o.kind
    if kind is arith.select:
        where = np.where(_numbers(xs[0]), _where(xs[1]), _where(xs[2])) | _where(xs[0])
    elif kind in (arith.and_, arith.or_) and dtype_of(o.result.type) == i1:
        decided = [~_where(x) & (_numbers(x) == (kind is arith.or_)) for x in xs]
        where = (_where(xs[0]) | _where(xs[1])) & ~decided[0] & ~decided[1]
    elif kind in arith.ELEMENTWISE or kind in _FOLDS:
        where = reduce(np.logical_or, map(_where, xs))
        where = _folded(o, where) if kind in _FOLDS else where
    elif kind in _MOVES:
        where = prepared(o)(*map(_where, xs))
    elif kind in _BY_INDEX and not any(type(x) is Undefined for x in xs[1:]):
        where = prepared(o)(_where(xs[0]), *xs[1:])
    else:
        return run(*xs)  # which asks for numbers
    out = run(*map(_numbers, xs))
    if not np.any(where):
        return out
    if isinstance(out, tuple):
        return tuple(Undefined(x, where, fault) for x in out)
    return Undefined(out, where, fault)


def _folded(o: Op, where: Any) -> Any:
    axis = o.attrs["axis"]
    if o.kind in (tile.reduce, combine.reduce_by):
        return where.any(axis)
    where = np.flip(where, axis) if o.attrs.get("reverse") else where
    found = np.logical_or.accumulate(where, axis)
    return np.flip(found, axis) if o.attrs.get("reverse") else found


def _accessed(run: Fn, pointers: int, value: int | None, mask: int, a: Any, o: Op, *xs: Any) -> Any:
    """An access by pointers, which takes what the mask lets it."""
    fault = _fault(xs)
    if fault is None:
        return run(a, o, *xs)
    has_mask = len(xs) > mask and o.attrs.get("fn") != "cas"
    taken = [x for i, x in enumerate(xs) if i in (pointers, value)]
    asked = [xs[mask]] if len(xs) > mask else []
    active = np.ones((), np.bool_)
    if has_mask and not np.any(_where(xs[mask])):
        active = _numbers(xs[mask])
    refused = [x for x in asked if np.any(_where(x))]
    refused += [x for x in taken if np.any(_where(x) & active)]
    if refused:
        raise refused[0].fault.error(o)
    out = run(a, o, *map(_numbers, xs))
    other = xs[2] if o.kind is tile.load and len(xs) > 2 else None
    return other.like(out, other.where & ~active) if type(other) is Undefined else out


def _made(run: Fn, a: Any, o: Op, *xs: Any) -> Any:
    fault = _fault(xs)
    return run(a, o, *xs) if fault is None else Undefined(None, True, fault)
