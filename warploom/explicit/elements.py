"""Single elements: of register tensors, as numbers that all threads of the group know, and of global views.

A register tensor whose elements a script assigns one by one (`phases[stage] ^= 1`) is no tile at all but a
tuple of numbers: which it is shows at the assignment, and the script is translated again with that known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from warploom.explicit.handles import GlobalView
from warploom.explicit.operands import known_int, tile_value, view_of
from warploom.explicit.values import Values
from warploom.frontend.coerce import Const, Operand, current, describe, show, static_int
from warploom.frontend.language import memory
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import Handle, builtin
from warploom.frontend.language.linear import reduced
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import arith
from warploom.ir.types import DType, Tile, i1, i32

MOST_NUMBERS = 64  # elements of a register tensor that are numbers


@dataclass(frozen=True)
class Numbers(Handle):
    """A register tensor of one axis whose elements are numbers."""

    carried = ("values",)
    values: tuple[Any, ...]
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.values),)

    def __getitem__(self, index: Operand) -> Any:
        """The element; of an index known at run time only, by selects."""
        if not isinstance(index, Value):
            return self.values[self._inside(index)]
        found, at = self.values[0], current().cast(index, i32)
        for i, x in enumerate(self.values[1:], 1):
            found = _chosen(at, i, x, found)
        return found

    def with_element(self, index: Operand, x: Operand) -> Numbers:
        """The same elements but one, which is x."""
        made: Any = (
            current().cast(x, self.dtype) if isinstance(x, Value) else _constant(x, self.dtype)
        )
        values = list(self.values)
        if not isinstance(index, Value):
            values[self._inside(index)] = made
        else:
            at = current().cast(index, i32)
            values = [_chosen(at, i, made, old) for i, old in enumerate(values)]
        return replace(self, values=tuple(values))

    def _inside(self, index: Operand) -> int:
        i = static_int(index, "an index")
        if not 0 <= i < len(self.values):
            refuse("element", f"element {i} of {len(self.values)}", "count from 0")
        return i


def numbers(init: Any, shape: tuple[int, ...], dtype: DType) -> Numbers:
    """A register tensor as numbers, all `init`, or what this function says of their index."""
    if len(shape) != 1 or shape[0] > MOST_NUMBERS:
        refuse(
            "element",
            f"elements of a register tensor of {show(shape)} are assigned one by one",
            f"such tensors have one axis and at most {MOST_NUMBERS} elements: use shared memory, or where()",
        )
    made = (init(Const(i, i32)) if callable(init) else init for i in range(shape[0]))
    values = (
        current().cast(x, dtype) if isinstance(x, Value) else _constant(x, dtype) for x in made
    )
    return Numbers(tuple(values), dtype)


def _constant(x: Any, dtype: DType) -> Const:
    number = known_int(x)
    return Const(int(number) if dtype.is_int else float(number), dtype)


def _chosen(at: Value, i: int, x: Operand, other: Operand) -> Value:
    emitter = current()
    here = emitter.emit(arith.eq, at, emitter.const(i, i32))
    return emitter.select(here, x, other)


@builtin
def element(x: Value, *index: Operand) -> Value:
    """One element of a register tensor, which all threads of the group then know: a reduction."""
    emitter, v = current(), tile_value(x, "an element")
    shape = emitter.shape(v)
    if len(index) != len(shape):
        refuse("element", f"{len(index)} indices of {describe(x)}", "give one an axis, or slices")
    dtype = cast(Tile, v.type).dtype
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            places = shapes.places_along(emitter.shape(v), axis)
            here = emitter.binary("==", places, index[axis])
            v = emitter.select(here, v, _constant(0, dtype))
        elif not isinstance(index[axis], Value):
            static_int(index[axis], "an index")
        kind = i32 if dtype == i1 else dtype
        v = reduced(emitter.cast(v, kind), axis, False, "add")
    return emitter.cast(v, dtype)


@builtin
def number(x: Operand) -> Operand:
    """x.item() of a number: itself."""
    return x


@builtin
def item(x: Any) -> Any:
    """x.item(): the only element, as a number."""
    shape = x.shape if isinstance(x, Numbers) else current().shape(x)
    if math.prod(shape) != 1:
        refuse(
            "element", f"item() of {describe(x)}", "it is the only element of a tensor: index it"
        )
    return x[0] if isinstance(x, Numbers) else element(x, *(0 for _ in shape))


@builtin
def tolist(x: Any) -> Any:
    """x.tolist(): the elements as a tuple of numbers."""
    if isinstance(x, Numbers):
        return x.values
    shape = current().shape(x)
    if math.prod(shape) > MOST_NUMBERS:
        refuse(
            "element", f"tolist() of {describe(x)}", f"it takes {MOST_NUMBERS} elements or fewer"
        )
    return tuple(element(x, *at) for at in itertools.product(*map(range, shape)))


@dataclass(frozen=True)
class GlobalElement(Handle):
    """g[i, j] of a global view: one element of memory."""

    carried = ("pointer",)
    pointer: Value


def global_element(view: GlobalView, index: tuple[Operand, ...]) -> GlobalElement:
    """The element at an index, one number an axis."""
    if len(index) != len(view.shape):
        refuse(
            "element",
            f"{len(index)} indices of a view of {len(view.shape)} axes",
            "give one an axis",
        )
    return GlobalElement(pointer_to(view, index))


def pointer_to(view: GlobalView, index: tuple[Operand, ...]) -> Value:
    """A view's pointer moved by indices: a pointer, or a tile of them."""
    emitter = current()
    at: Any = view_of(view).pointer
    for i, step in zip(index, view.strides, strict=True):
        at = emitter.binary("+", at, emitter.binary("*", i, step))
    return cast(Value, at)


@builtin
def squeeze(x: Value, dim: Any) -> Any:
    """x.squeeze(dim), as self.squeeze."""
    return Values.squeeze(None, x, dim)


@builtin
def unsqueeze(x: Value, dim: Any) -> Any:
    """x.unsqueeze(dim), as self.unsqueeze."""
    return Values.unsqueeze(None, x, dim)


OF_REGISTERS: dict[str, Callable[..., Any]] = {
    "item": item,
    "tolist": tolist,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
}
METHODS: dict[str, Callable[..., Any]] = {
    "item": builtin(lambda x: memory.load(x.pointer)),
    "item_ptr": builtin(lambda x: x.pointer),
}
