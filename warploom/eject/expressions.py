"""Values as Python expressions: for each op kind that computes something, how a script writes it.

What the language adds by itself (promotion of literals, broadcasting) is left out: an operand may be *loose*,
of fewer elements than its value, where the operator spreads it to the same result.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from warploom.errors import CompileError
from warploom.frontend import language
from warploom.frontend.coerce import literal_dtype, promote
from warploom.frontend.operators import KINDS
from warploom.ir import core
from warploom.ir.core import Family, Level, Op, OpKind, Type, Value
from warploom.ir.ops import arith, cluster, smem, tile
from warploom.ir.types import DType, Pointer, Shared, Tile, f32, f64, i64, shape_of

# How tightly Python binds, from the loosest on.
CHOICE, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(9)

_LANGUAGE = {name: getattr(language, name) for name in language.NAMES}
DTYPE_NAMES = {d.name: name for name, d in _LANGUAGE.items() if isinstance(d, DType)}


@dataclass(frozen=True)
class Expr:
    """Python text and how tightly it binds.  shape: of what it evaluates to.  literal: a number without a
    dtype of its own."""

    text: str
    binds: int = ATOM
    shape: tuple[int, ...] = ()
    literal: bool = False

    def at(self, binds: int) -> str:
        """The text as an operand of an operator that binds so."""
        return self.text if self.binds >= binds else f"({self.text})"


class Names(Protocol):
    """What expressions need of the printer."""

    in_clusters: bool  # programs are clusters of several CTAs

    def name_of(self, v: Value) -> str | None:
        """The variable that holds v; None where v is written out."""

    def maker(self, v: Value) -> Op | None:
        """The op that defines v."""

    def use(self, name: str) -> str:
        """The name, which the script imports from warploom.language."""


class Expressions:
    """Writes values out."""

    def __init__(self, names: Names) -> None:
        self.names = names

    # ---- entry points

    def loose(self, v: Value) -> Expr:
        """v, perhaps without the axes along which it is constant."""
        o = self._written(v)
        if o is not None and o.kind in (tile.splat, tile.broadcast):
            return self.loose(o.operands[0])
        return self.tight(v)

    def tight(self, v: Value) -> Expr:
        """v, of its own shape; a scalar constant may still be a bare literal."""
        name = self.names.name_of(v)
        if name is not None:
            return Expr(name, ATOM, shape_of(v.type))
        o = self.names.maker(v)
        if o is None:
            raise unspelled(None, f"a value of type {v.type}")
        write = EXPRESSIONS.get(o.kind)
        if write is None:
            raise unspelled(o, o.kind.name)
        check_attributes(o)
        return write(self, o)

    def typed(self, v: Value) -> Expr:
        """As tight, and a literal says its dtype where that is not what a bare one has."""
        e = self.tight(v)
        if not e.literal:
            return e
        number = self._number(v)
        d = _scalar_dtype(v.type)
        return e if literal_dtype(number) == d else self._as(d, e)

    def text(self, v: Value) -> str:
        """v as an argument of a call that casts numbers to what it takes."""
        return self.tight(v).text

    def full(self, v: Value) -> str:
        """v as an argument of a call that neither casts nor spreads."""
        return self.typed(v).text

    def items(self, values: Sequence[Value]) -> str:
        return ", ".join(map(self.text, values))

    # ---- parts

    def _written(self, v: Value) -> Op | None:
        """The op to write in place of v; None where v has a name."""
        return None if self.names.name_of(v) is not None else self.names.maker(v)

    def _number(self, v: Value) -> Any:
        o = self.names.maker(v)
        assert o is not None and o.kind is arith.const
        return o.attrs["value"]

    def _as(self, d: DType, e: Expr) -> Expr:
        return Expr(f"{self.dtype(d)}({e.text})", ATOM, e.shape)

    def dtype(self, d: DType) -> str:
        return self.names.use(DTYPE_NAMES[d.name])

    def spread(
        self,
        shape: tuple[int, ...],
        values: Sequence[Value],
        strong: bool = False,
        beside: Sequence[Expr] = (),
    ) -> list[Expr]:
        """Operands of an operator whose result has `shape` and whose operands all have one dtype, as loose
        as the language allows.  strong: it gives literals their own dtype.  beside: its other operands."""
        found = [self.loose(v) for v in values]
        for i, v in enumerate(values):
            if _together([*beside, *found]) == shape:
                break
            found[i] = self.tight(v)
        d = values[0].type
        elem = d.elem if isinstance(d, Tile) else getattr(d, "dtype", None)
        if not isinstance(elem, DType) or isinstance(d, Pointer):
            return found
        typed = any(not e.literal for e in found)
        for i, (e, v) in enumerate(zip(found, values, strict=True)):
            if not e.literal:
                continue
            own = literal_dtype(self._literal(v))
            given = promote(own, not strong, elem, False) if typed else own
            if given != elem:
                found[i] = self._as(elem, e)
            typed = True
        return found

    def _literal(self, v: Value) -> Any:
        """The number that a loose literal stands for."""
        o = self.names.maker(v)
        while o is not None and o.kind is not arith.const:
            o = self.names.maker(o.operands[0])
        assert o is not None
        return o.attrs["value"]


def unspelled(o: Op | None, what: str) -> CompileError:
    """The refusal of what scripts can't say."""
    return CompileError(
        "eject",
        f"{what} has no spelling in scripts yet, so this kernel can't be ejected",
        o.loc if o is not None else None,
        help="leave out what needs it, or read the program with compiled.ir['WARP']",
    )


def _together(exprs: Sequence[Expr]) -> tuple[int, ...]:
    """The shape that operands broadcast to."""
    rank = max(len(e.shape) for e in exprs)
    padded = [(1,) * (rank - len(e.shape)) + e.shape for e in exprs]
    return tuple(max(axis) for axis in zip(*padded, strict=True))


def _scalar_dtype(t: Type) -> DType:
    assert not isinstance(t, Tile | Pointer)
    found: DType = t.dtype  # type: ignore[attr-defined]
    return found


def sizes(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def quoted(text: str) -> str:
    """A string as Python writes it, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def number(value: Any) -> str:
    """A constant as Python writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


# ---- the table

Writer = Callable[[Expressions, Op], Expr]
EXPRESSIONS: dict[OpKind, Writer] = {}
SAID: dict[OpKind, frozenset[str]] = {}  # the attributes that a kind's spelling says


def writes(*kinds: OpKind, says: str = "") -> Callable[[Writer], Writer]:
    """Registers the spelling of kinds.  says: the attributes that it takes account of."""

    def register(fn: Writer) -> Writer:
        EXPRESSIONS.update(dict.fromkeys(kinds, fn))
        SAID.update(dict.fromkeys(kinds, frozenset(says.split())))
        return fn

    return register


def check_attributes(o: Op) -> None:
    """Refuses an attribute that no spelling says, but where it says nothing either."""
    for name, value in o.attrs.items():
        if name not in SAID.get(o.kind, ()) and value not in (None, False, ()):
            raise unspelled(o, f"{name}={value} of {o.kind.name}")


@writes(arith.const, says="value dtype")
def _const(x: Expressions, o: Op) -> Expr:
    text = number(o.attrs["value"])
    return Expr(text, UNARY if text.startswith("-") else ATOM, (), True)


_SYMBOLS = {
    CHOICE: "< <= > >= == !=", OR: "|", XOR: "^", AND: "&", SHIFT: "<< >>", SUM: "+ -", PRODUCT: "* / // %",
}  # fmt: skip
OPERATORS = {KINDS[s]: (s, binds) for binds, all in _SYMBOLS.items() for s in all.split()}


@writes(*OPERATORS)
def _binary(x: Expressions, o: Op) -> Expr:
    symbol, binds = OPERATORS[o.kind]
    d = o.operands[0].type
    elem = d.elem if isinstance(d, Tile) else _scalar_dtype(d)
    if o.kind in (arith.div, arith.rem) and elem.bits < 32 and elem.is_float:  # type: ignore[union-attr]
        raise unspelled(o, f"{o.kind.name} of {elem}")
    ceiling = _cdiv(x, o)
    if ceiling is not None:
        return ceiling
    shape = shape_of(o.result.type)
    a, b = x.spread(shape, o.operands)
    left, right = binds, binds + 1
    if binds == CHOICE:  # comparisons would chain
        left = right
    elif binds <= SHIFT:  # nobody remembers which of & | ^ << binds tighter
        left, right = binds if a.binds == binds else SUM, SUM
    return Expr(f"{a.at(left)} {symbol} {b.at(right)}", binds, shape)


def _cdiv(x: Expressions, o: Op) -> Expr | None:
    """(a + (n - 1)) // n as cdiv(a, n)."""
    if o.kind is not arith.idiv or isinstance(o.result.type, Tile):
        return None
    a, n = o.operands
    above, divisor = x._written(a), x._written(n)
    if above is None or divisor is None or above.kind is not arith.add:
        return None
    more = x._written(above.operands[1])
    if any(c is None or c.kind is not arith.const for c in (divisor, more)):
        return None
    assert more is not None
    if divisor.attrs.get("value", 0) < 2 or more.attrs["value"] != divisor.attrs["value"] - 1:
        return None
    return Expr(f"{x.names.use('cdiv')}({x.full(above.operands[0])}, {divisor.attrs['value']})")


@writes(arith.fast_div)
def _fast_div(x: Expressions, o: Op) -> Expr:
    a, b = map(x.full, o.operands)
    return Expr(f"self.fast_divmod({a}, {b})[0]")


@writes(arith.div_rn)
def _div_rn(x: Expressions, o: Op) -> Expr:
    shape = shape_of(o.result.type)
    a, b = x.spread(shape, o.operands, strong=True)
    return Expr(f"self.div_rn({a.text}, {b.text})", ATOM, shape)


@writes(arith.minimum, arith.maximum)
def _extreme(x: Expressions, o: Op) -> Expr:
    shape = shape_of(o.result.type)
    elem = o.result.type.elem if shape else _scalar_dtype(o.result.type)  # type: ignore[attr-defined]
    if elem.name == "bf16":
        raise unspelled(o, f"{o.kind.name} of {elem}")
    a, b = x.spread(shape, o.operands, strong=True)
    short = {arith.minimum: "min", arith.maximum: "max"}[o.kind]
    name = f"self.{o.kind.name}" if shape else short
    return Expr(f"{name}({a.text}, {b.text})", ATOM, shape)


@writes(arith.neg, arith.not_)
def _sign(x: Expressions, o: Op) -> Expr:
    symbol = "-" if o.kind is arith.neg else "~"
    e = x.typed(o.operands[0])
    return Expr(f"{symbol}{e.at(UNARY)}", UNARY, e.shape)


@writes(arith.abs_)
def _abs(x: Expressions, o: Op) -> Expr:
    return Expr(f"self.abs({x.full(o.operands[0])})", ATOM, shape_of(o.result.type))


@writes(*(arith.UNARY - {arith.neg, arith.not_, arith.abs_}))
def _math(x: Expressions, o: Op) -> Expr:
    e = x.typed(o.operands[0])
    d = o.result.type
    elem = d.elem if isinstance(d, Tile) else _scalar_dtype(d)
    if elem not in (f32, f64):
        raise unspelled(o, f"{o.kind.name} of {elem}")
    return Expr(f"self.{o.kind.name}({e.text})", ATOM, e.shape)


@writes(arith.select)
def _select(x: Expressions, o: Op) -> Expr:
    c, *values = o.operands
    shape = shape_of(o.result.type)
    if shape_of(c.type) != shape:  # one number decides: the chosen tiles are whole
        a, b = x.spread(shape, values)
        return Expr(f"self.where({x.full(c)}, {a.text}, {b.text})", ATOM, shape)
    condition = x.loose(c)
    if shape and not condition.shape:  # a single condition would choose whole tiles
        condition = x.tight(c)
    a, b = x.spread(shape, values, beside=[condition])
    return Expr(f"self.where({condition.text}, {a.text}, {b.text})", ATOM, shape)


@writes(arith.cast, says="dtype")
def _cast(x: Expressions, o: Op) -> Expr:
    e = x.typed(o.operands[0])
    return Expr(f"{e.at(ATOM)}.to({x.dtype(o.attrs['dtype'])})", ATOM, e.shape)


@writes(arith.bitcast, says="dtype")
def _bitcast(x: Expressions, o: Op) -> Expr:
    e = x.typed(o.operands[0])
    return Expr(f"self.bitcast({e.text}, {x.dtype(o.attrs['dtype'])})", ATOM, e.shape)


@writes(arith.addptr)
def _addptr(x: Expressions, o: Op) -> Expr:
    shape = shape_of(o.result.type)
    found = [x.loose(v) for v in o.operands]
    for i, v in enumerate(o.operands):
        if _together(found) != shape:
            found[i] = x.tight(v)
    offset = o.operands[1].type
    wide = (offset.elem if isinstance(offset, Tile) else _scalar_dtype(offset)) == i64
    if found[1].literal and wide:
        found[1] = x._as(i64, found[1])
    p, n = found
    return Expr(f"{p.at(SUM)} + {n.at(SUM + 1)}", SUM, shape)


@writes(tile.program_id, tile.num_programs, cluster.cta_id, says="axis")
def _grid(x: Expressions, o: Op) -> Expr:
    alone = {tile.program_id: "blockIdx", tile.num_programs: "gridDim"}
    grouped = {
        tile.program_id: "cluster.clusterIdx",
        tile.num_programs: "cluster.gridDim",
        cluster.cta_id: "cluster.blockIdx",
    }
    what = (grouped if x.names.in_clusters else alone)[o.kind]
    return Expr(f"self.{what}.{'xyz'[o.attrs['axis']]}")


@writes(cluster.cta_rank)
def _rank(x: Expressions, o: Op) -> Expr:
    return Expr("self.cluster.blockRank")


@writes(cluster.peer)
def _peer(x: Expressions, o: Op) -> Expr:
    return Expr(f"self.cluster.map_shared_addr({x.items(o.operands)})")


@writes(tile.splat, says="shape")
def _splat(x: Expressions, o: Op) -> Expr:
    shape = o.attrs["shape"]
    e = x.tight(o.operands[0])
    if e.literal:
        d = x.dtype(_scalar_dtype(o.operands[0].type))
        return Expr(
            f"self.register_tensor(dtype={d}, shape={sizes(shape)}, init={e.text})", ATOM, shape
        )
    return Expr(f"self.broadcast_to({e.text}, {sizes(shape)})", ATOM, shape)


@writes(tile.broadcast, says="shape")
def _broadcast(x: Expressions, o: Op) -> Expr:
    shape = o.attrs["shape"]
    return Expr(f"self.broadcast_to({x.full(o.operands[0])}, {sizes(shape)})", ATOM, shape)


@writes(tile.arange, says="start end")
def _arange(x: Expressions, o: Op) -> Expr:
    return Expr(f"self.arange({o.attrs['start']}, {o.attrs['end']})", ATOM, shape_of(o.result.type))


@writes(tile.expand_dims, says="axis")
def _expand(x: Expressions, o: Op) -> Expr:
    e = x.tight(o.operands[0])
    axis, rank = o.attrs["axis"], len(e.shape) + 1
    entries = ", ".join("None" if a == axis else ":" for a in range(rank))
    return Expr(f"{e.at(ATOM)}[{entries}]", ATOM, shape_of(o.result.type))


@writes(tile.reshape, says="shape")
def _reshape(x: Expressions, o: Op) -> Expr:
    shape = o.attrs["shape"]
    return Expr(f"self.reshape({x.full(o.operands[0])}, {sizes(shape)})", ATOM, shape)


@writes(tile.transpose, says="perm")
def _transpose(x: Expressions, o: Op) -> Expr:
    perm = o.attrs["perm"]
    e = x.tight(o.operands[0])
    order = "" if perm == (1, 0) else "".join(f", {p}" for p in perm)
    return Expr(f"self.transpose({e.text}{order})", ATOM, shape_of(o.result.type))


@writes(tile.slice_tile, says="offset shape")
def _slice(x: Expressions, o: Op) -> Expr:
    e = x.tight(o.operands[0])
    cuts = []
    for at, n, whole in zip(o.attrs["offset"], o.attrs["shape"], e.shape, strict=True):
        cuts.append(":" if n == whole else f"{at}:{at + n}")
    return Expr(f"{e.at(ATOM)}[{', '.join(cuts)}]", ATOM, o.attrs["shape"])


@writes(tile.concat, says="axis")
def _concat(x: Expressions, o: Op) -> Expr:
    parts = ", ".join(x.full(v) for v in o.operands)
    return Expr(f"self.concat([{parts}], dim={o.attrs['axis']})", ATOM, shape_of(o.result.type))


@writes(tile.reduce, says="axis fn")
def _reduce(x: Expressions, o: Op) -> Expr:
    e = x.tight(o.operands[0])
    fn, axis = o.attrs["fn"], o.attrs["axis"]
    d = o.operands[0].type
    assert isinstance(d, Tile)
    plain = {"add": "sum", "max": "max", "min": "min"}.get(fn)
    wide = d.dtype.bits >= 32 or (fn == "add" and d.dtype.is_float)
    if plain and wide:
        return Expr(f"self.{plain}({e.text}, dim={axis})", ATOM, shape_of(o.result.type))
    return Expr(f'self.reduce({e.text}, dim={axis}, fn="{fn}")', ATOM, shape_of(o.result.type))


def _by_name(x: Expressions, o: Op) -> Expr:
    """What a script writes as the op itself is called, with its attributes by name."""
    parts = [x.tight(v).text for v in o.operands]
    for name in attributes(o.kind):
        value = o.attrs.get(name)
        if value is not None and value is not False:  # axis 0 is neither
            said = f'"{value}"' if isinstance(value, str) else value
            parts.append(f"{'dim' if name == 'axis' else name}={said}")
    return Expr(f"self.{o.kind.name}({', '.join(parts)})", ATOM, shape_of(o.result.type))


def attributes(kind: OpKind) -> list[str]:
    """What an op's rule declares beside its operands and layout."""
    declared = inspect.signature(kind.rule).parameters.values()
    return [p.name for p in declared if p.kind is p.KEYWORD_ONLY and p.name != "layout"]


for _kind in core.KINDS.values():
    if _kind.family is Family.COMBINE and _kind is not tile.reduce and Level.WARP in _kind.levels:
        writes(_kind, says=" ".join(attributes(_kind)))(_by_name)


# ---- memory


def hint(o: Op, name: str = "cache_policy") -> list[str]:
    """The keyword argument of an access that has a hint for the L2."""
    policy = o.attrs.get("cache_policy")
    return [f'{name}="{policy}"'] if policy else []


@writes(tile.load, says="volatile cache_policy")
def _load(x: Expressions, o: Op) -> Expr:
    p, *rest = o.operands
    shape = shape_of(p.type)
    parts = [x.tight(p).text]
    for name, v in zip(("mask", "other"), rest, strict=False):
        e = x.loose(v)
        if len(e.shape) > len(shape) or (e.shape and not shape):
            e = x.tight(v)
        parts.append(f"{name}={e.text}")
    if o.attrs.get("volatile"):
        parts.append("volatile=True")
    parts += hint(o, "eviction_policy")
    return Expr(f"self.load({', '.join(parts)})", ATOM, shape)


@writes(tile.atomic, says="fn sem")
def _atomic(x: Expressions, o: Op) -> Expr:
    p, value, *rest = o.operands
    if o.attrs["fn"] == "cas":
        parts = [x.tight(p).text, x.loose(rest[0]).text, x.loose(value).text]
    else:
        parts = [x.tight(p).text, x.loose(value).text, *(f"mask={x.loose(m).text}" for m in rest)]
    sem = o.attrs.get("sem", "relaxed")
    parts += [f'sem="{sem}"'] if sem != "acq_rel" else []
    return Expr(f"self.atomic_{o.attrs['fn']}({', '.join(parts)})", ATOM, shape_of(o.result.type))


@writes(tile.load_box, says="shape cache_policy")
def _load_box(x: Expressions, o: Op) -> Expr:
    view, *offsets = o.operands
    shape = o.attrs["shape"]
    parts = [x.text(view), f"offsets=[{x.items(offsets)}]", f"shape={sizes(shape)}", *hint(o)]
    return Expr(f"self.load_global({', '.join(parts)})", ATOM, shape)


@writes(smem.shared_load, smem.shared_get)
def _shared_load(x: Expressions, o: Op) -> Expr:
    return Expr(f"self.load_shared({x.text(o.operands[0])})", ATOM, shape_of(o.result.type))


@writes(smem.shared_slot)
def _slot(x: Expressions, o: Op) -> Expr:
    s, *index = o.operands
    return Expr(f"{x.text(s)}[{x.items(index)}]" if index else x.text(s))


@writes(smem.shared_slice, says="shape")
def _part(x: Expressions, o: Op) -> Expr:
    s, *block = o.operands
    return Expr(f"{x.text(s)}.block({sizes(o.attrs['shape'])}, at=[{x.items(block)}])")


@writes(smem.shared_transpose, says="perm")
def _turned(x: Expressions, o: Op) -> Expr:
    perm = o.attrs["perm"]
    plain = perm == tuple(range(len(perm)))[::-1]
    order = "" if plain else ", ".join(map(str, perm))
    return Expr(f"{x.text(o.operands[0])}.transpose({order})")


def barrier(x: Expressions, array: Value, index: Value) -> str:
    """One mbarrier of an array."""
    name = x.text(array)
    only = array.type.n == 1 and x.text(index) == "0"  # type: ignore[attr-defined]
    return name if only else f"{name}[{x.text(index)}]"


def slot_bytes(s: Value) -> int:
    assert isinstance(s.type, Shared)
    return s.type.tile_bytes
