"""Offsets of pointers that 32 bits don't hold: an access by one is an error.

The emitted code computes an i32 offset as it stands, which wraps, or as part of a box, in 64 bits.  Here i32
values on their way to a pointer are computed exactly; a tile in which one doesn't fit is held in int64 from
there on.  The pointer made of it is marked, and memory refuses the access (memory.py); an address that nobody
accesses, such as a masked-off one, does no harm.  Wherever else such a value goes it wraps, as on the GPU.
Of a box, whose places recover_boxes computes in 64 bits, the view says which sums were narrow (make_view).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from warploom.ir.analysis import definitions, passed_on
from warploom.ir.core import Func, Op, OpKind, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Pointer, Scalar, Tile, elem_of, i32
from warploom.sim.memory import marked

Fn = Callable[..., Any]

_EXACT: dict[OpKind, Fn] = {
    arith.add: operator.add,
    arith.sub: operator.sub,
    arith.mul: operator.mul,
    arith.neg: operator.neg,
}
# Which hand on their operands' elements, and from which operand on.
_MOVES: dict[OpKind, int] = {
    arith.select: 1,
    tile.splat: 0,
    tile.expand_dims: 0,
    tile.broadcast: 0,
    tile.transpose: 0,
    tile.reshape: 0,
    tile.slice_tile: 0,
    tile.convert_layout: 0,
    tile.agree: 0,
}
_WIDE = np.dtype(np.int64)
_widened = operator.methodcaller("astype", np.int64)
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1


class Offsets:
    """The i32 values of a function that become offsets of pointers, and what its ops do with them."""

    def __init__(self, func: Func) -> None:
        self.ops = tuple(walk(func.body))
        self.values = self._found(func)

    def meaning(self, o: Op, run: Fn) -> Fn:
        """What a pure op does to its operands; `run`: with those that are as wide as their types."""
        if not self.values:
            return run
        if o.kind is arith.addptr:
            return _addptr if o.operands[1] in self.values else run
        if o.results[0] in self.values:
            if o.kind in _EXACT:
                return _exact(_EXACT[o.kind])
            if o.kind in _MOVES:
                return run
        return self.narrowed(o, run)

    def wrapping(self, o: Op) -> list[int]:
        """Which operands of an op wrap; what a loop carries stays as it is."""
        others = o.operands[: control.LEAD.get(o.kind)]  # that it doesn't pass on
        return [i for i, v in enumerate(others) if v in self.values]

    def narrowed(self, o: Op, run: Fn, first: int = 0) -> Fn:
        """`run`, whose operands begin at its argument `first`, on operands that wrap."""
        at = [i + first for i in self.wrapping(o)]
        if not at:
            return run

        def wraps(*xs: Any) -> Any:
            for i in at:
                if getattr(xs[i], "dtype", None) is _WIDE:
                    return run(*(wrapped(x) if i in at else x for i, x in enumerate(xs)))
            return run(*xs)

        return wraps

    def _found(self, func: Func) -> frozenset[Value]:
        makers = definitions(func.body)
        carried: dict[Value, tuple[Value, ...]] = {}
        for o in self.ops:
            carried.update(passed_on(o))
        found: set[Value] = set()
        left = [o.operands[1] for o in self.ops if o.kind is arith.addptr]
        while left:
            v = left.pop()
            if v in found or not _is_i32(v):
                continue
            found.add(v)
            left += carried.get(v, ())
            left += [to for to, given in carried.items() if v in given]  # they hold the same
            maker = makers.get(v)
            if maker is not None and (maker.kind in _EXACT or maker.kind in _MOVES):
                left += maker.operands[_MOVES.get(maker.kind, 0) :]
        return frozenset(found)


def _is_i32(v: Value) -> bool:
    if not isinstance(v.type, Scalar | Tile):
        return False
    element = elem_of(v.type)
    return not isinstance(element, Pointer) and element == i32


def wrapped(x: Any) -> Any:
    """An i32 that may be wide, in 32 bits."""
    return x.astype(np.int32) if getattr(x, "dtype", None) is _WIDE else x


def _fits(x: Any) -> bool:
    if not isinstance(x, np.ndarray):
        return _LOW <= int(x) <= _HIGH
    return bool(x.size == 0 or (x.min() >= _LOW and x.max() <= _HIGH))


def _exact(fn: Fn) -> Fn:
    def run(*xs: Any) -> Any:
        wide = fn(*map(_widened, xs))
        return wide.astype(np.int32) if _fits(wide) else wide

    return run


def _addptr(p: Any, offset: Any) -> Any:
    if offset.dtype != _WIDE:
        return p + offset.astype(np.int64)
    return marked(p, offset, (offset < _LOW) | (offset > _HIGH))
