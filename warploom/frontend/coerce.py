"""What Triton leaves implicit, made explicit: constants, promotion, broadcasting, operators.

Everything that a kernel computes with is one of

    Value          an IR value: known at run time
    Const          a compile-time number with a dtype: `x = 5`, a specialized argument
    int/float/bool a literal or constexpr: takes the dtype of what it meets

The rules are those of Triton's documentation, "Triton Semantics" (type promotion, broadcasting, C rounding
of integer division).  An `Emitter` is the current place in the function being built; the language's
functions find it by `current()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, cast

from warploom.errors import CompileError, Loc
from warploom.frontend.operators import BIT_ARITHMETIC, COMPARISONS, KINDS, PYTHON
from warploom.frontend.promotion import (
    Number,
    holds,
    in_range,
    is_unsigned,
    literal_dtype,
    promote,
    rounded,
    width,
    wrap,
)
from warploom.frontend.reads import Reads
from warploom.frontend.refuse import refuse, still_in_flight
from warploom.ir.core import Builder, Op, OpKind, Region, Value
from warploom.ir.fold import quotient
from warploom.ir.ops import arith, tile
from warploom.ir.types import (
    DTYPES,
    DType,
    InFlight,
    Pointer,
    Scalar,
    Tile,
    elem_of,
    f8e4b8,
    f8e5b16,
    f32,
    i1,
    i8,
    i32,
    i64,
    shape_of,
    u32,
    u64,
)

MAX_TILE_ELEMENTS = 1 << 20  # of one tile; Triton's limit too

Operand = Any  # Value | Const | Number; anything else is refused with a message
Tensor = Any  # what kernels compute with, as type checkers of users' code see it


@dataclass(frozen=True)
class Const:
    """A number that is known while compiling and has a dtype of its own, which holds it."""

    value: Number
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.is_float:
            object.__setattr__(self, "value", rounded(self.value, self.dtype))


def describe(x: object) -> str:
    """A value as messages name it."""
    match x:
        case Value(type=t):
            return str(t)
        case Const(value=v, dtype=d):
            return f"the {d} {v}"
        case DType():
            return f"the dtype {x}"
        case tuple():
            return f"a tuple of {len(x)}"
        case str() | bool() | int() | float() | None:
            return repr(x)
        case type():
            return f"the type {x.__module__}.{x.__qualname__}"
    return f"a {type(x).__name__}"


# ---- emission


@dataclass
class Emitter:
    """Where new ops go, and everything that turns operands into the IR's explicit form."""

    builder: Builder = field(default_factory=Builder)
    loc: Loc | None = None
    reads: Reads = field(default_factory=Reads)  # the world outside of the kernel
    made: dict[Value, Loc] = field(default_factory=dict)  # where each value was made, for notes
    renamed: dict[Value, Value] = field(default_factory=dict)  # values that got the user's name
    by_element: bool = False  # inside of map_elementwise: the condition of an if may be a tile
    has_addresses: bool = False  # are there pointers made of numbers?

    # -- ops and regions

    def emit(self, kind: OpKind, *operands: Value, hint: str = "", **attrs: Any) -> Value:
        """Append one op at the current location; its result or results."""
        self.builder.loc = self.loc
        out = kind(self.builder, *map(self._current, operands), hint=hint, **attrs)
        self._remember(self.builder.ops[-1])
        return out

    def append(
        self, kind: OpKind, operands: tuple[Value, ...], hints: list[str], **attrs: Any
    ) -> tuple[Value, ...]:
        """As emit for ops with regions, with one hint for each result."""
        regions: tuple[Region, ...] = attrs.pop("regions")
        types = kind.infer(operands, attrs, regions)
        results = tuple(Value(t, h) for t, h in zip(types, hints, strict=True))
        inputs = tuple(map(self._current, operands))
        o = Op(kind, inputs, attrs, results, regions, self.builder.tasks, self.loc)
        self.builder.append(o)
        self._remember(o)
        return results

    def _current(self, v: Value) -> Value:
        return self.renamed.get(v, v)

    def _remember(self, o: Op) -> None:
        for v in o.results:
            if isinstance(v.type, Tile) and v.type.size > MAX_TILE_ELEMENTS:
                refuse(
                    "tile-size",
                    f"{v.type} has {v.type.size} elements, a tile at most {MAX_TILE_ELEMENTS}",
                    "take smaller blocks: more programs, or a loop",
                )
        if o.loc is not None:
            for v in o.results:
                self.made[v] = o.loc

    @contextmanager
    def inside(self, builder: Builder) -> Iterator[Builder]:
        """New ops go to `builder`."""
        saved, self.builder = self.builder, builder
        try:
            yield builder
        finally:
            self.builder = saved

    def is_last(self, v: object) -> bool:
        """True where the op appended last made v."""
        return isinstance(v, Value) and bool(self.builder.ops) and v in self.builder.ops[-1].results

    def rename(self, v: Value, name: str) -> Value:
        """The same value under the user's name, for a result of the last op.  Who still holds the old one
        (a tuple, say) means the new one: operands are looked up as ops are appended."""
        last = self.builder.ops[-1]
        named = Value(v.type, name)
        self.builder.ops[-1] = last.with_(
            results=tuple(named if r is v else r for r in last.results)
        )
        self.renamed[v] = named
        self._remember(self.builder.ops[-1])
        return named

    # -- constants and casts

    def dtype(self, x: Operand) -> DType | Pointer:
        """The element of any operand; refuses what is no number, pointer or tile of them."""
        match x:
            case Value(type=Scalar() | Pointer() | Tile()):
                return elem_of(x.type)
            case Const(dtype=d):
                return d
            case bool() | int() | float():
                return literal_dtype(x)
            case Value(type=InFlight()):
                still_in_flight("this reads")
        refuse(
            "operand-type",
            f"expected a number or a tile, found {describe(x)}",
            "only numbers, pointers and tiles can be computed with",
        )

    def number(self, x: Operand) -> DType:
        """As `dtype`, but refuses pointers."""
        d = self.dtype(x)
        if isinstance(d, Pointer):
            refuse(
                "pointer-arithmetic",
                f"expected a number, found {describe(x)}",
                "pointers take integer offsets (ptr + i, ptr - i); load to get a number",
            )
        return d

    def const(self, x: Number, dtype: DType) -> Value:
        value: Number
        if dtype is i1:
            value = bool(x)
        elif dtype.is_int:
            if isinstance(x, float) and not (isfinite(x) and in_range(int(x), dtype)):
                what = f"{x:g} does not fit into {dtype}"
                refuse("int-range", what, "give a number that the integer holds, or use floats")
            value = wrap(int(x), dtype)
        else:
            value = float(x)
        return self.emit(arith.const, value=value, dtype=dtype)

    def value(self, x: Operand) -> Value:
        """x as an IR value, constants by the dtype they have or take on their own."""
        if isinstance(x, Value):
            self.dtype(x)
            return x
        d = self.number(x)
        return self.const(x.value if isinstance(x, Const) else x, d)

    def carried(self, leaf: Value | Const | Number) -> Value:
        """A part of a variable as an IR value of any type (views as well)."""
        return leaf if isinstance(leaf, Value) else self.value(leaf)

    def strong(self, x: Operand) -> Operand:
        """x with a dtype of its own, whatever it meets: as Triton takes what is compared, stored and
        handed to most functions."""
        return Const(x, self.number(x)) if is_literal(x) else x

    def cast(self, x: Operand, dtype: DType) -> Value:
        """x converted to dtype (no op where it has it already)."""
        d = self.number(x)
        if not isinstance(x, Value):
            return self.const(known(x), dtype)
        return x if d == dtype else self.emit(arith.cast, x, dtype=dtype)

    def stored(self, x: Operand, dtype: DType) -> Value:
        """x as memory keeps it.  A truth value is a byte there, true where that is not 0."""
        x = self.strong(x)
        if dtype is i1 and self.number(x) is not i1:
            x = self.cast(x, i8)
        return self.cast(x, dtype)

    # -- shapes

    def shape(self, x: Operand) -> tuple[int, ...]:
        return shape_of(x.type) if isinstance(x, Value) else ()

    def is_tile(self, x: object) -> bool:
        return isinstance(x, Value) and isinstance(x.type, Tile)

    def expand_to(self, x: Operand, shape: tuple[int, ...]) -> Value:
        """x with leading axes added and axes of size 1 repeated until it has `shape`."""
        v = self.value(x)
        if shape == shape_of(v.type):
            return v
        if not isinstance(v.type, Tile):
            return self.emit(tile.splat, v, shape=shape)
        while len(shape_of(v.type)) < len(shape):
            v = self.emit(tile.expand_dims, v, axis=0)
        return v if shape_of(v.type) == shape else self.emit(tile.broadcast, v, shape=shape)

    def common_shape(self, *operands: Operand, code: str = "shape-mismatch") -> tuple[int, ...]:
        """The shape that all operands broadcast to."""
        out: tuple[int, ...] = ()
        for x in operands:
            s = self.shape(x)
            n = max(len(s), len(out))
            a, b = (1,) * (n - len(out)) + out, (1,) * (n - len(s)) + s
            if any(p != q and 1 not in (p, q) for p, q in zip(a, b, strict=True)):
                refuse(
                    code,
                    f"shapes {show(out)} and {show(s)} can't be broadcast together",
                    "sizes must be equal or 1; insert axes with x[:, None]",
                )
            out = tuple(q if p == 1 else p for p, q in zip(a, b, strict=True))
        return out

    def broadcast(self, *operands: Operand) -> tuple[Value, ...]:
        """All operands at their common shape."""
        shape = self.common_shape(*operands)
        return tuple(self.expand_to(x, shape) for x in operands)

    def unify(self, x: Operand, y: Operand) -> tuple[Value, Value]:
        """x and y in one dtype and one shape."""
        return self._alike(self.promoted(x, y), x, y)

    def _alike(self, d: DType, x: Operand, y: Operand) -> tuple[Value, Value]:
        shape = self.common_shape(x, y)
        return self.expand_to(self.cast(x, d), shape), self.expand_to(self.cast(y, d), shape)

    def promoted(
        self, x: Operand, y: Operand, division: bool = False, comparison: bool = False
    ) -> DType:
        """The dtype of x op y.  A literal that it can't hold is refused, or compared in its own dtype."""
        d = promote(self.number(x), is_literal(x), self.number(y), is_literal(y), division)
        for v in (x, y):
            if comparison and is_literal(v) and not holds(d, v):
                return promote(self.number(x), False, self.number(y), False)
            if is_literal(v) and d.is_int and not in_range(int(v), d):
                refuse(
                    "int-range",
                    f"{v} does not fit into {d}",
                    "cast the other operand to a wider or signed type",
                )
        return d

    # -- operators

    def binary(self, symbol: str, x: Operand, y: Operand) -> Value | Const:
        """x symbol y, by the language's rules.  `symbol` is Python's."""
        if symbol in ("+", "-") and Pointer in (type(self.dtype(x)), type(self.dtype(y))):
            return self.offset(symbol, x, y)
        if symbol in COMPARISONS:
            x, y = self._address(x, y), self._address(y, x)
        division = symbol in ("/", "//", "%")
        d = self.promoted(x, y, division, symbol in COMPARISONS)
        if symbol in COMPARISONS and is_literal(x) != is_literal(y):
            x, y = self.strong(x), self.strong(y)
        if symbol == "//" and d.is_float:
            refuse(
                "float-floordiv",
                f"// of {d}",
                "use tl.floor(x / y), or cast both operands to an integer type",
            )
        if symbol in ("//", "%") and d.is_int and _is_known(y) and not known(y):
            refuse(
                "constant-division",
                f"{describe(x)} {symbol} 0 has no result",
                "put an `if` of a constexpr condition around it where the divisor may be 0",
            )
        if symbol in ("&", "|", "^", "<<", ">>") and d.is_float:
            refuse("bitwise-float", f"{symbol} of {d}", "bitwise operators take integers")
        if symbol == "/" and d.is_int:
            d = f32
        if symbol not in COMPARISONS and d.is_int and _is_known(x) and _is_known(y):
            folded = _fold(symbol, known(x), known(y))
            if folded is not None:
                return Const(wrap(folded, d), d)
        if symbol in COMPARISONS and _is_known(x) and _is_known(y):
            return Const(bool(PYTHON[symbol](known(x), known(y))), i1)
        signs = is_unsigned(d) and not (is_literal(x) or is_unsigned(self.number(x)))
        if symbol == ">>" and signs:
            signed = DTYPES[f"i{d.bits}"]  # the left operand says whether its sign is shifted in
            return self.cast(self.emit(arith.shr, *self._alike(signed, x, y)), d)
        kind = BIT_ARITHMETIC[symbol] if d is i1 and symbol in BIT_ARITHMETIC else KINDS[symbol]
        return self.emit(kind, *self._alike(d, x, y))

    def _address(self, x: Operand, other: Operand) -> Operand:
        """A pointer as the number that it is; anything else as it is.  other: what it is compared with."""
        if not isinstance(self.dtype(x), Pointer):
            return x
        d = self.dtype(other)
        is_null = is_literal(other) and other == 0
        is_address = isinstance(other, Value) and d in (i64, u64)
        if not (isinstance(d, Pointer) or is_null or is_address):
            what = f"{describe(x)} beside {describe(other)}"
            help = "load what it points to; a tensor, also of no axes, is a pointer"
            refuse("pointer-compare", what, help)
        return self.emit(arith.ptr_to_int, x)

    def offset(self, symbol: str, x: Operand, y: Operand) -> Value:
        """Pointer ± integer."""
        if symbol == "+" and not isinstance(self.dtype(x), Pointer):
            x, y = y, x
        p, d = self.dtype(x), self.dtype(y)
        if not isinstance(p, Pointer) or isinstance(d, Pointer):
            refuse(
                "pointer-arithmetic",
                f"{describe(x)} {symbol} {describe(y)}",
                "a pointer can be moved by an integer: ptr + i, ptr - i",
            )
        if not d.is_int:
            refuse(
                "pointer-offset",
                f"a pointer offset is an integer, found {describe(y)}",
                "divide integers by //, or cast the offset with .to(tl.int32)",
            )
        # Unsigned offsets must not turn negative by their top bit.
        y = self.cast(y, i64 if width(d) > 32 or d is u32 else i32)
        if symbol == "-":
            y = self.emit(arith.neg, y)
        shape = self.common_shape(x, y)
        return self.emit(arith.addptr, self.expand_to(x, shape), self.expand_to(y, shape))

    def negative(self, x: Operand) -> Value | Const:
        d = self.number(x)
        if isinstance(x, Const):
            return Const(-x.value if d.is_float else wrap(-int(x.value), d), d)
        if d is i1:
            refuse("negate-bool", "- of a bool", "use ~x or `not x` for the opposite truth value")
        return self.emit(arith.neg, self.value(x))

    def invert(self, x: Operand) -> Value | Const:
        d = self.number(x)
        if d.is_float:
            refuse("bitwise-float", f"~ of {d}", "bitwise operators take integers")
        if isinstance(x, Const):
            return Const(not x.value if d is i1 else wrap(~int(x.value), d), d)
        return self.emit(arith.not_, self.value(x))

    def truth(self, x: Operand) -> Value:
        """A scalar as i1: x != 0."""
        v = self.value(x)
        if isinstance(v.type, Tile) and not self.by_element:
            refuse(
                "tile-condition",
                f"the truth of a whole tile, {v.type}",
                "combine tiles with & | ~, choose elementwise with tl.where, or reduce to one value",
            )
        if not isinstance(v.type, Pointer):
            return self.cast(v, i1)
        if not self.has_addresses:
            return self.const(True, i1)  # an array's; None is no pointer here
        return self.emit(arith.ne, self.emit(arith.ptr_to_int, v), self.const(0, i64))

    def logical(self, x: Operand) -> Value:
        """x != 0, elementwise."""
        return self.cast(x, i1) if self.shape(x) else self.truth(x)

    def select(self, c: Operand, x: Operand, y: Operand) -> Value:
        """Elementwise x where c, else y (tl.where)."""
        if isinstance(self.dtype(x), Pointer) and self.dtype(x) == self.dtype(y):
            c, x, y = self.broadcast(self.cast(c, i1), x, y)
        else:
            d = self.promoted(x, y)
            c, x, y = self.broadcast(self.cast(c, i1), self.cast(x, d), self.cast(y, d))
        return self.emit(arith.select, c, x, y)


def show(shape: tuple[int, ...]) -> str:
    """A shape as messages write it."""
    return "x".join(map(str, shape)) or "scalar"


def is_literal(x: object) -> bool:
    return isinstance(x, bool | int | float)


def _is_known(x: object) -> bool:
    return isinstance(x, Const) or is_literal(x)


def known(x: Operand) -> Number:
    """The number behind a Const or literal."""
    return cast(Number, x.value if isinstance(x, Const) else x)


def _fold(symbol: str, x: Number, y: Number) -> int | None:
    """x symbol y on integers with C's rounding; None where the result is left to run time."""
    a, b = int(x), int(y)
    if symbol in ("//", "%"):
        if b == 0:
            return None
        q = quotient(a, b)
        return q if symbol == "//" else a - q * b
    if symbol in ("<<", ">>") and not 0 <= b < 64:
        return None
    fold = PYTHON.get(symbol)
    return None if fold is None or symbol == "/" else int(fold(a, b))


# ---- the emitter in use

_CURRENT: ContextVar[Emitter | None] = ContextVar("warploom_emitter", default=None)


def is_translating() -> bool:
    """Is a kernel being translated?"""
    return _CURRENT.get() is not None


def current() -> Emitter:
    """The emitter of the kernel being translated.  Raises CompileError outside of one."""
    emitter = _CURRENT.get()
    if emitter is None:
        raise CompileError(
            "outside-kernel",
            "functions of warploom.language can only be called inside a kernel",
            help="call them in a function under @jit, and launch that: kernel[grid](…)",
        )
    return emitter


def calc(symbol: str, x: Operand, y: Operand) -> Any:
    """x symbol y in the kernel being translated, by the language's rules.  `symbol` is Python's."""
    return current().binary(symbol, x, y)


@contextmanager
def translating(emitter: Emitter) -> Iterator[None]:
    """Makes `emitter` the current one."""
    token = _CURRENT.set(emitter)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def static_int(x: object, what: str) -> int:
    """A compile-time integer; refuses anything else, naming `what` it should have been."""
    if isinstance(x, Const):
        x = x.value
    if isinstance(x, int) and not isinstance(x, bool):
        return x
    refuse(
        "constexpr-required",
        f"{what} must be a constexpr integer, found {describe(x)}",
        "declare the parameter it comes from as tl.constexpr (in a script: as int)"
        if isinstance(x, Value)
        else "pass an int; // divides integers to an integer",
    )


def static_ints(x: object, what: str) -> tuple[int, ...]:
    """A compile-time tuple of integers."""
    if not isinstance(x, tuple | list):
        return (static_int(x, what),)
    return tuple(static_int(i, what) for i in x)


def static_bool(x: object, what: str) -> bool:
    """A compile-time truth value."""
    if isinstance(x, Const):
        x = x.value
    if isinstance(x, Value):
        refuse(
            "constexpr-required",
            f"{what} must be a constexpr, found {describe(x)}",
            "decide it while compiling: declare what it depends on as tl.constexpr",
        )
    return bool(x)


def static_dtype(x: object, what: str) -> DType:
    """A dtype such as tl.float16."""
    if isinstance(x, DType):
        if x in (f8e4b8, f8e5b16):
            refuse(
                "other-chips",
                f"{what} is {x}, a format of other chips",
                "take tl.float8e4nv or tl.float8e5",
            )
        if x.bits < 8:
            refuse(
                "narrow-dtype",
                f"{what} is {x}, of {x.bits} bits: only views of global memory are of such dtypes",
                f"what self.load_global gives of one are {x.numpy} numbers; to store some, pack bytes by "
                "shifts",
            )
        return x
    if isinstance(scalar := getattr(x, "elem", None), DType):  # of a block type
        return scalar
    word = getattr(x, "__name__", str(x)).rpartition(".")[2]  # of np.float32, torch.float32
    known = {
        "bfloat16",
        *(f"{d.kind}{d.bits}" for d in DTYPES.values() if d.bits > 8 or not d.is_float),
    }
    refuse(
        "not-a-dtype",
        f"{what} must be a dtype, found {describe(x)}",
        f"pass tl.{word}" if word in known else "pass tl.float16 or the like",
    )
