"""Register tensors computed from others: elementwise functions, reductions, scans, shapes, random numbers.

All take `out=`: a register tensor that becomes the result, cast to its dtype.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from warploom.explicit.handles import Changed
from warploom.explicit.operands import program, tile_value
from warploom.explicit.program import SETTLED
from warploom.frontend.coerce import (
    Operand,
    current,
    describe,
    show,
    static_bool,
    static_dtype,
    static_int,
    static_ints,
)
from warploom.frontend.language import combine, linear, random
from warploom.frontend.language import math as elementwise
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import KINDS, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, InFlight, Tile, i1, i32


def taken(out: Any) -> tuple[Value, Tile]:
    """The tensor that `out=` names, with its type: one that nothing was made in as well."""
    if isinstance(out, Value) and program().state.flight.get(out) == SETTLED:
        return out, out.typed(InFlight).tile
    v = tile_value(out, "out")
    return v, v.typed(Tile)


def written(made: Any, out: Any) -> Any:
    """What an instruction gives that made a tensor, for the tensor `out` where one is given."""
    if out is None:
        return made
    v, t = taken(out)
    if current().shape(made) != t.shape:
        refuse("out-shape", f"{describe(made)} for out, {t}", "make them of one shape")
    value = current().cast(made, cast(DType, t.elem))
    return Changed(((v, value),), value)


def with_out(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The instruction with `out=`."""
    declared = inspect.signature(fn)
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)

    @builtin
    @functools.wraps(fn)
    def wrapped(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        return written(fn(*args, **kwargs), out)

    wrapped.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[*declared.parameters.values(), out]
    )
    return wrapped


def combined(name: str, xs: Sequence[Operand], dim: Any, text: str, **how: Any) -> Any:
    """What the op called so makes of tensors."""
    tiles = [tile_value(x, name) for x in xs]
    if not tiles:
        refuse("reduce-operand", f"{name} of nothing", "give it register tensors")
    axis = shapes.axis_of(dim, len(current().shape(tiles[0])))
    return current().emit(KINDS[name], *tiles, axis=axis, combine=text, **how)


class Values:
    """What a Script and a Class compute with register tensors."""

    @with_out
    def cast(self, x: Operand, dtype: Any) -> Any:
        """x converted by value."""
        return current().cast(x, static_dtype(dtype, "dtype"))

    @with_out
    def where(self, condition: Operand, x: Operand, y: Operand) -> Any:
        """x where condition, else y: elementwise, or whole where the condition is one number."""
        emitter = current()
        c = emitter.cast(condition, i1)
        if isinstance(c.type, Tile):
            return elementwise.where(c, x, y)
        a, b = emitter.unify(x, y)
        return emitter.emit(arith.select, c, a, b)

    @with_out
    def sum(self, x: Operand, dim: Any = None, keepdim: Any = False) -> Any:
        """The sum along an axis, several, or all."""
        return _along(linear.sum, x, dim, keepdim)

    @with_out
    def max(self, x: Operand, dim: Any = None, keepdim: Any = False) -> Any:
        """The maximum along an axis, several, or all."""
        return _along(linear.max, x, dim, keepdim)

    @with_out
    def min(self, x: Operand, dim: Any = None, keepdim: Any = False) -> Any:
        """The minimum along an axis, several, or all."""
        return _along(linear.min, x, dim, keepdim)

    @with_out
    def concat(self, parts: Any, dim: Any) -> Any:
        """Register tensors one after the other along an axis."""
        tiles = [tile_value(x, "concat") for x in parts]
        axis = shapes.axis_of(dim, len(current().shape(tiles[0])))
        return current().emit(tile.concat, *tiles, axis=axis)

    @with_out
    def reduce(self, x: Operand, dim: Any, fn: str) -> Any:
        """Elements along an axis combined by fn (add, mul, max, min, and, or, xor), in their own dtype."""
        return linear.reduced(tile_value(x, "reduce"), dim, False, fn)

    @with_out
    def scan(
        self,
        x: Operand,
        dim: Any,
        op: str = "add",
        exclusive: Any = False,
        reverse: Any = False,
        fn: str | None = None,
    ) -> Any:
        """Each element combined, by op (or fn) as reduce, with all before it along an axis; reverse: after
        it.  exclusive: without itself."""
        return _scanned(tile_value(x, "scan"), dim, fn or op, exclusive, reverse)

    @builtin
    def reduce_by(self, *xs: Operand, dim: Any, combine: str) -> Any:
        """Tensors of one shape combined together along an axis, of a power of two elements, by a function of
        two elements, associative and commutative: one result for each.

        combine: its steps, each an op and numbers of what it takes, then what it gives; of n tensors 0 … n-1
        are the first element's values, n … 2n-1 the other's, then one a step: "mul 0 1; sqrt 2 -> 3"."""
        return combined("reduce_by", xs, dim, combine)

    @builtin
    def scan_by(self, *xs: Operand, dim: Any, combine: str, reverse: Any = False) -> Any:
        """Each element of tensors of one shape combined with all before it along an axis, of a power of two
        elements (reverse: after it); combine: as of reduce_by, associative."""
        return combined("scan_by", xs, dim, combine, reverse=static_bool(reverse, "reverse"))

    @with_out
    def cumsum(self, x: Operand, dim: Any = 0, exclusive: Any = False) -> Any:
        """scan by add."""
        return _scanned(tile_value(x, "cumsum"), dim, "add", exclusive, False)

    @with_out
    def cumprod(self, x: Operand, dim: Any = 0, exclusive: Any = False) -> Any:
        """scan by mul."""
        return _scanned(tile_value(x, "cumprod"), dim, "mul", exclusive, False)

    @with_out
    def gather(self, x: Operand, index: Operand, dim: Any) -> Any:
        """The elements of x at the indices of a tensor along an axis (tl.gather)."""
        return combine.gather(tile_value(x, "gather"), tile_value(index, "gather"), dim)

    @with_out
    def any(self, x: Operand, dim: Any = None, keepdim: Any = False) -> Any:
        """Whether any element along an axis (or of all) is not zero."""
        return _truths(x, dim, keepdim, "or")

    @with_out
    def all(self, x: Operand, dim: Any = None, keepdim: Any = False) -> Any:
        """Whether all elements along an axis (or all there are) are not zero."""
        return _truths(x, dim, keepdim, "and")

    # ---- shapes

    @with_out
    def squeeze(self, x: Operand, dim: Any) -> Any:
        """Without axes of size 1: one, or several."""
        v = tile_value(x, "squeeze")
        shape = current().shape(v)
        gone = {shapes.axis_of(d, len(shape)) for d in static_ints(dim, "dim")}
        for axis in gone:
            if shape[axis] != 1:
                refuse("axis", f"squeeze of axis {axis} of {v.type}", "its size has to be 1")
        return shapes.reshape(v, tuple(n for a, n in enumerate(shape) if a not in gone))

    @with_out
    def unsqueeze(self, x: Operand, dim: Any) -> Any:
        """Inserts axes of size 1; `dim` (one or several) counts in the result."""
        return shapes.expand_dims(x, dim)

    @with_out
    def flatten(self, x: Operand, start_dim: Any = 0, end_dim: Any = -1) -> Any:
        """Axes start_dim … end_dim as one, in row-major order."""
        v = tile_value(x, "flatten")
        shape = current().shape(v)
        first, last = (shapes.axis_of(d, len(shape)) for d in (start_dim, end_dim))
        if first > last:
            refuse("axis", f"flatten from axis {first} to axis {last}", "name them in order")
        size = math.prod(shape[first : last + 1])
        return shapes.reshape(v, (*shape[:first], size, *shape[last + 1 :]))

    @with_out
    def repeat(self, x: Operand, repeats: Any) -> Any:
        """x so many times along each axis, one after the other."""
        return _repeated(x, static_ints(repeats, "a repeat"), whole=True)

    @with_out
    def repeat_interleave(self, x: Operand, repeats: Any, dim: Any = None) -> Any:
        """Each element so many times along an axis; repeats for each axis, or one with dim."""
        v = tile_value(x, "repeat_interleave")
        times = static_ints(repeats, "a repeat")
        if dim is not None:
            rank = len(current().shape(v))
            n = static_int(repeats, "repeats")
            times = tuple(n if a == shapes.axis_of(dim, rank) else 1 for a in range(rank))
        return _repeated(v, times, whole=False)

    @builtin
    def view(self, x: Operand, *, layout: Any = None, dtype: Any = None) -> Any:
        """The bits of a register tensor as those of another dtype as wide."""
        v = tile_value(x, "view")
        d = cast(DType, cast(Tile, v.type).elem)
        new = d if dtype is None else static_dtype(dtype, "dtype")
        if layout is not None or new.bits != d.bits:
            refuse(
                "view",
                f"view of {v.type} as other elements of each thread",
                "which elements a thread holds is the compiler's: go by shared memory, or write "
                "self.bitcast, shifts and self.reshape",
            )
        return current().emit(arith.bitcast, v, dtype=new)

    @builtin
    def assign(self, dst: Any, src: Any) -> Any:
        """The register tensor dst becomes src, cast to its dtype."""
        return written(current().expand_to(src, current().shape(dst)), dst)

    # ---- arithmetic

    @with_out
    def add(self, lhs: Operand, rhs: Operand) -> Any:
        """lhs + rhs."""
        return current().binary("+", lhs, rhs)

    @with_out
    def square(self, x: Operand) -> Any:
        """x · x."""
        return current().binary("*", x, x)

    @with_out
    def maximum(self, lhs: Operand, rhs: Operand) -> Any:
        """The larger, elementwise; a NaN gives the other operand.  bf16 is computed in f32."""
        return elementwise.maximum(lhs, rhs)

    @with_out
    def minimum(self, lhs: Operand, rhs: Operand) -> Any:
        """The smaller, elementwise; a NaN gives the other operand.  bf16 is computed in f32."""
        return elementwise.minimum(lhs, rhs)

    abs = with_out(elementwise.abs)
    div_rn = with_out(elementwise.div_rn)
    pow = with_out(elementwise.pow_)
    atan2 = with_out(elementwise.atan2)
    jn = with_out(elementwise.jn)
    yn = with_out(elementwise.yn)
    fma = with_out(elementwise.fma)
    clip = with_out(elementwise.clamp)
    transpose = with_out(shapes.trans)

    @with_out
    def reshape(self, tensor: Operand, *sizes: Any, shape: Any = None) -> Any:
        """The same elements, in row-major order, under another shape."""
        return shapes.reshape(tensor, *(sizes if shape is None else (shape,)))

    expand_dims = with_out(shapes.expand_dims)
    broadcast_to = with_out(shapes.broadcast_to)
    randint4x = random.randint4x
    randint = with_out(random.randint)
    rand = with_out(random.rand)
    randn = with_out(random.randn)


for _kind in arith.MATH:
    setattr(Values, _kind.name, with_out(elementwise.FUNCTIONS[_kind.name]))


def _along(fn: Callable[..., Any], x: Operand, dim: Any, keepdim: Any) -> Any:
    """A reduction along one axis, several, or all."""
    v: Any = tile_value(x, fn.__name__)
    if dim is None or not isinstance(dim, tuple):
        return fn(v, dim, keep_dims=keepdim)
    axes = sorted({shapes.axis_of(d, len(current().shape(v))) for d in dim})
    for axis in reversed(axes):
        v = fn(v, axis)
    return shapes.expand_dims(v, tuple(axes)) if static_bool(keepdim, "keepdim") else v


def _truths(x: Operand, dim: Any, keepdim: Any, fn: str) -> Any:
    """Truth values of x combined along an axis, or all."""
    emitter = current()
    numbers = emitter.cast(emitter.cast(tile_value(x, "any or all"), i1), i32)
    return emitter.cast(linear.reduced(numbers, dim, keepdim, fn), i1)


def _scanned(x: Value, dim: Any, fn: str, exclusive: Any, reverse: Any) -> Any:
    one_of("scan", "op", fn, *tile.COMBINES)
    found = linear.scanned(x, dim, reverse, fn)
    if not static_bool(exclusive, "exclusive"):
        return found
    emitter = current()
    shape = emitter.shape(x)
    axis = shapes.axis_of(dim, len(shape))
    step, first = (1, shape[axis] - 1) if static_bool(reverse, "reverse") else (-1, 0)
    at = emitter.expand_to(shapes.places_along(shape, axis), shape)
    inside = emitter.binary("+", at, step)
    inside = elementwise.clamp(inside, 0, shape[axis] - 1) if shape[axis] > 1 else at
    moved = combine.gather(found, inside, axis)
    return emitter.select(
        emitter.binary("==", at, first),
        emitter.cast(tile.neutral(fn, emitter.number(x)), emitter.number(x)),
        moved,
    )


def _repeated(x: Operand, times: tuple[int, ...], whole: bool) -> Any:
    """x repeated along its axes: whole, or element by element."""
    v = tile_value(x, "repeat")
    shape = current().shape(v)
    if len(times) != len(shape) or min(times) < 1:
        refuse("axis", f"repeats {times} of a tensor of {show(shape)}", "give 1 or more an axis")
    pairs = [(n, k) if whole else (k, n) for n, k in zip(times, shape, strict=True)]
    apart = shapes.expand_dims(v, tuple(2 * a + (0 if whole else 1) for a in range(len(shape))))
    wide = shapes.broadcast_to(apart, tuple(n for pair in pairs for n in pair))
    return shapes.reshape(wide, tuple(a * b for a, b in pairs))
