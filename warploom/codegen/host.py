"""What the host computes at launch: tensor maps and dividers, from launch arguments by tiny programs
(ir/host_expressions.py).  `python_text` is an expression as Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.host_expressions import Expr, Expressions
from warploom.ir.ops import arith, tile
from warploom.ir.types import TensorMap


@dataclass(frozen=True)
class PointerParam:
    """Kernel parameter: the address in argument `arg`."""

    name: str
    arg: int
    kind: str = "pointer"


@dataclass(frozen=True)
class ScalarParam:
    """Kernel parameter: argument `arg` as `dtype` (16- and 8-bit floats are passed as f32)."""

    name: str
    arg: int
    dtype: str
    kind: str = "scalar"


@dataclass(frozen=True)
class TensorMapParam:
    """Kernel parameter: a CUtensorMap, 128 bytes.  All tuples have the innermost dimension first.

    base: address in bytes; extents in elements; strides in bytes, of every dimension but the innermost;
    box in elements: what one copy instruction moves; swizzle in bytes; dtype by its IR name;
    promote: bytes that the L2 fetches together.
    Elements out of bounds read as zeros.
    """

    name: str
    base: Expr
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int
    dtype: str
    promote: int = 256
    kind: str = "tensor_map"


@dataclass(frozen=True)
class OwnMapsParam:
    """Kernel parameter: memory for the descriptors that the kernel writes, so many `bytes` a CTA."""

    name: str
    bytes: int
    kind: str = "own_maps"


@dataclass(frozen=True)
class DividerParam:
    """Kernel parameter: how to divide by `divisor`, as a u64: a multiplier of 32 bits, above it a shift.

    For 0 ≤ n < 2^31 and d ≥ 1, with l = ceil(log2 d) and m = ceil(2^(31 + l) / d):  n // d = m·n >> (31 + l),
    since 2^(31 + l) ≤ m·d < 2^(31 + l) + 2^l (Granlund and Montgomery, "Division by invariant integers using
    multiplication", 1994, theorem 4.2 with N = 31).  m < 2^32 as 2^l < 2·d.
    """

    name: str
    divisor: Expr
    kind: str = "divider"


Param: TypeAlias = PointerParam | ScalarParam | TensorMapParam | OwnMapsParam | DividerParam


def tensor_map_param(
    name: str, o: Op, box: Sequence[int], order: Sequence[int], program: Expressions
) -> TensorMapParam:
    """The parameter for a tensor_map op.  `order`: tile axes, innermost dimension first; `box` in that order.
    The axes of the view in which the box is one element thick are the outermost dimensions.

    Raises InternalError where the view isn't made of launch arguments.
    """
    view = program.definition(o.operands[0])
    if view.kind is not tile.make_view:
        raise InternalError("codegen: the view of a tensor_map must come from make_view")
    base, *sizes = view.operands
    rank = len(sizes) // 2
    kind = o.result.typed(TensorMap)
    axes = map_axes(kind, order)
    extents = tuple(program.expression(sizes[a]) for a in axes)
    strides = tuple(
        ("mul", "i64", program.expression(sizes[rank + a]), ("const", kind.dtype.bytes))
        for a in axes[1:]
    )
    return _map_param(name, o, program.expression(base), extents, strides, box)


def map_axes(kind: TensorMap, order: Sequence[int]) -> tuple[int, ...]:
    """The axes of the view, innermost dimension of the descriptor first.  order: likewise, of the tile."""
    return (*(kind.axes[a] for a in order), *reversed(kind.thin))


def map_template(name: str, o: Op, box: Sequence[int]) -> TensorMapParam:
    """The parameter that a kernel copies where it writes the descriptor that map_alloc op o declares: it puts
    in the base, extents and strides, which are made up here."""
    size = o.result.typed(TensorMap).dtype.bytes
    sides = (*box, *(1,) * len(o.result.typed(TensorMap).thin))
    strides, row = [], -(-box[0] * size // 16) * 16
    for n in sides[1:]:
        strides.append(("const", row))
        row *= n
    extents = tuple(("const", n) for n in sides)
    return _map_param(name, o, ("const", 0), extents, tuple(strides), box)


def _map_param(
    name: str,
    o: Op,
    base: Expr,
    extents: tuple[Expr, ...],
    strides: tuple[Expr, ...],
    box: Sequence[int],
) -> TensorMapParam:
    kind = o.result.typed(TensorMap)
    sides = (*box, *(1,) * len(kind.thin))
    fetched = o.attrs.get("promote", 256)
    return TensorMapParam(
        name, base, extents, strides, sides, kind.swizzle, kind.dtype.name, fetched
    )


# How Python spells an op on integers before it is wrapped to its dtype.
PYTHON: dict[OpKind, str] = {
    arith.add: "({} + {})",
    arith.sub: "({} - {})",
    arith.mul: "({} * {})",
    arith.idiv: "_quotient({}, {})",
    arith.fast_div: "_quotient({}, {})",
    arith.rem: "_remainder({}, {})",
    arith.minimum: "min({}, {})",
    arith.maximum: "max({}, {})",
    arith.and_: "({} & {})",
    arith.or_: "({} | {})",
    arith.xor: "({} ^ {})",
    arith.shl: "({} << {})",
    arith.shr: "({} >> {})",
    arith.lt: "({} < {})",
    arith.le: "({} <= {})",
    arith.gt: "({} > {})",
    arith.ge: "({} >= {})",
    arith.eq: "({} == {})",
    arith.ne: "({} != {})",
    arith.neg: "(-{})",
    arith.not_: "(~{})",
    arith.abs_: "abs({})",
    arith.select: "({1} if {0} else {2})",
    arith.cast: "{}",
}
_BY_NAME = {k.name: text for k, text in PYTHON.items()}
_WRAPS = frozenset({"add", "sub", "mul", "shl", "neg", "abs", "not"})


def python_text(e: Expr) -> str:
    """An expression as Python over `a`, the tuple of arguments; needs `_quotient` and `_remainder`
    (runtime/plan.py)."""
    match e:
        case ("arg", i):
            return f"a[{i}]"
        case ("const", n):
            return f"({int(n)})"
        case ("cast", source, x, str(dtype)):
            widens = int(dtype[1:]) > int(source[1:]) and not (source[0] == "i" and dtype[0] == "u")
            return python_text(x) if widens or dtype == source else _wrap(python_text(x), dtype)
        case ("not", "i1", x):
            return f"(not {python_text(x)})"
        case (kind, dtype, *operands):
            text = _BY_NAME[kind].format(*map(python_text, operands))
            return _wrap(text, dtype) if kind in _WRAPS and dtype != "i64" else text
    raise InternalError(f"codegen: no host expression is {e!r}")


def _wrap(text: str, dtype: str) -> str:
    bits = int(dtype[1:])
    if dtype == "i1":
        return f"bool({text})"
    mask = (1 << bits) - 1
    if dtype[0] == "u":
        return f"({text} & {mask})"
    half = 1 << (bits - 1)
    return f"((({text} + {half}) & {mask}) - {half})"
