"""Reductions and scans of tuples of tiles by any function of two elements.

The function is an attribute, a text: steps one after the other, each an op on numbers of earlier ones.  Of a
tuple of n the numbers 0 … n-1 are the first element's parts, n … 2n-1 the second's, then one a step:

    sub 3 0; const f32 0.5; mul 6 7; cast f16 8 -> 9        # of one f32 … (n = 3: 0 … 5 are parts)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warploom.ir.core import KINDS, Builder, Family, Op, Type, Value, op, require
from warploom.ir.ops import arith
from warploom.ir.ops.tile import reduced, scanned
from warploom.ir.types import DTYPES, DType, Scalar, Tile, dtype_of

_OF_A_DTYPE = (arith.cast, arith.bitcast)
_STEPS = frozenset({*arith.UNARY, *arith.BINARY, arith.select, *_OF_A_DTYPE, arith.const})


@dataclass(frozen=True)
class Combination:
    """A function of two elements: its ops, on scalars, what they take and what they give."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]


def text_of(params: Sequence[Value], ops: Sequence[Op], results: Sequence[Value]) -> str | None:
    """The text of a function; None where it has other ops than a text has, or reads what is outside of it."""
    needed, wanted = list[Op](), set(results)
    for o in reversed(ops):
        if wanted.intersection(o.results):
            needed.insert(0, o)
            wanted.update(o.operands)
        elif o.kind.acts:
            return None
    number = {v: i for i, v in enumerate(params)}
    steps = []
    for o in needed:
        if o.kind not in _STEPS or not number.keys() >= {*o.operands}:
            return None
        said = [o.kind.name, *map(str, (number[v] for v in o.operands))]
        if o.kind is arith.const:
            said += [o.attrs["dtype"].name, repr(o.attrs["value"])]
        elif o.kind in _OF_A_DTYPE:
            said.insert(1, o.attrs["dtype"].name)
        steps.append(" ".join(said))
        number[o.result] = len(number)
    if not number.keys() >= {*results}:
        return None
    return f"{'; '.join(steps)} -> {' '.join(str(number[v]) for v in results)}"


@lru_cache(maxsize=256)
def combination(text: str, dtypes: tuple[DType, ...]) -> Combination:
    """What a text says of elements of these dtypes.  Raises RuleError."""
    b = Builder()
    params = tuple(Value(Scalar(d)) for d in (*dtypes, *dtypes))
    values = list(params)
    steps, arrow, last = text.rpartition("->")
    require(bool(arrow), f"no results in {text!r}", "combine")
    for step in filter(None, (s.strip() for s in steps.split(";"))):
        name, *words = step.split()
        kind = KINDS.get(name)
        require(kind in _STEPS, f"{name!r} is no step of a function that combines", "combine")
        assert kind is not None
        if kind is arith.const:
            d = DTYPES[words[0]]
            value = (
                float(words[1])
                if d.is_float
                else int({"True": 1, "False": 0}.get(words[1], words[1]))
            )
            values.append(kind(b, value=bool(value) if d.name == "i1" else value, dtype=d))
            continue
        attrs: dict[str, Any] = {"dtype": DTYPES[words.pop(0)]} if kind in _OF_A_DTYPE else {}
        values.append(kind(b, *_taken(values, words, text), **attrs))
    results = _taken(values, last.split(), text)
    same = [dtype_of(v.type) for v in results] == list(dtypes)
    require(same, f"{text!r} gives other dtypes than it takes", "combine")
    return Combination(params, tuple(b.ops), tuple(results))


def _taken(values: Sequence[Value], words: Sequence[str], text: str) -> list[Value]:
    known = all(w.isdecimal() and int(w) < len(values) for w in words)
    require(known, f"{text!r} reads a number that no step before it makes", "combine")
    return [values[int(w)] for w in words]


def _checked(parts: Sequence[Type], axis: int, combine: str) -> None:
    tiles = [t for t in parts if isinstance(t, Tile)]
    require(len(tiles) == len(parts), "only tiles are combined", "reduce-operand")
    first = tiles[0]
    same = all(t.shape == first.shape for t in tiles)
    types = ", ".join(map(str, tiles))
    require(same, f"{types} can't be combined together", "shape-mismatch")
    require(0 <= axis < len(first.shape), f"axis {axis} is outside {first}", "axis")
    n = first.shape[axis]
    require(n & (n - 1) == 0, f"{n} elements along axis {axis}: no power of two", "axis")
    combination(combine, tuple(dtype_of(t) for t in parts))


@op(Family.COMBINE, axes=reduced)
def reduce_by(
    first: Tile, *rest: Tile, axis: int, combine: str, layout: object = None
) -> tuple[Type, ...]:
    """Combines the elements of several tiles, each with its neighbours along an axis, which disappears; a
    power of two lie along it.

    combine: a function of two elements, associative and commutative (the module's docstring has its text).
    Tiles of rank 1 give scalars.
    """
    parts = (first, *rest)
    _checked(parts, axis, combine)
    shape = first.shape[:axis] + first.shape[axis + 1 :]
    return tuple(Tile(shape, t.dtype, layout) if shape else Scalar(t.dtype) for t in parts)


@op(Family.COMBINE, axes=scanned)
def scan_by(
    first: Tile, *rest: Tile, axis: int, combine: str, reverse: bool = False
) -> tuple[Type, ...]:
    """Each element of several tiles combined with all before it along an axis (reverse: after it); a
    power of two lie along it.

    combine: as of `reduce_by`; associative.  The element in front is its first.
    """
    _checked((first, *rest), axis, combine)
    return (first, *rest)


SEVERAL = (reduce_by, scan_by)  # ops of several tiles
