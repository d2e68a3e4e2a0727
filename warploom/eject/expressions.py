"""Values as Python expressions: for each op kind that computes something, how a script writes it.

What the language adds by itself (promotion of literals, broadcasting) is left out: an operand may be *loose*,
of fewer elements than its value, where the operator spreads it to the same result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from warploom.eject.flow import Flow
from warploom.eject.spelling import UNSAID, Spelling, enter, spelling_of, unspelled
from warploom.frontend import language
from warploom.frontend.operators import KINDS
from warploom.frontend.promotion import literal_dtype, promote
from warploom.ir import core
from warploom.ir.core import Family, Level, Op, OpKind, Value
from warploom.ir.ops import arith, cluster, combine, mma, smem, tile, tma
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import DType, Scalar, Tile, dtype_of, elem_of, f32, f64, i64, shape_of

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


@dataclass
class Expressions:
    """Writes values out.  names: leader of a variable's class -> name."""

    flow: Flow
    names: dict[Value, str]

    def __post_init__(self) -> None:
        self.used: set[str] = set()  # names of warploom.language, which the script imports
        self.in_clusters = cluster_of(self.flow.func) != (1, 1, 1)

    # ---- names

    def name(self, v: Value) -> str:
        """The variable that holds v."""
        return self.names[self.flow.find(v)]

    def use(self, name: str) -> str:
        self.used.add(name)
        return name

    def dtype(self, d: DType) -> str:
        return self.use(DTYPE_NAMES[d.name])

    def _written(self, v: Value) -> Op | None:
        """The op to write in place of v; None where v has a name."""
        is_named = v not in self.flow.folded and self.flow.find(v) in self.names
        return None if is_named else self.flow.made.get(v)

    # ---- values

    def loose(self, v: Value) -> Expr:
        """v, perhaps without the axes along which it is constant."""
        o = self._written(v)
        if o is not None and o.kind in (tile.splat, tile.broadcast):
            return self.loose(o.operands[0])
        return self.tight(v)

    def tight(self, v: Value) -> Expr:
        """v, of its own shape; a scalar constant may still be a bare literal."""
        if v not in self.flow.folded and self.flow.find(v) in self.names:
            return Expr(self.name(v), ATOM, shape_of(v.type))
        o = self.flow.made.get(v)
        if o is None:
            raise unspelled(None, f"a value of type {v.type}")
        row = spelling_of(o)
        if not row.is_value:
            raise unspelled(o, o.kind.name)
        return self.expression(row, o)

    def expression(self, row: Spelling, o: Op) -> Expr:
        """What an op computes, written out."""
        found: Expr | str = row.write(self, o)
        return found if isinstance(found, Expr) else Expr(found, ATOM, shape_of(o.result.type))

    def typed(self, v: Value) -> Expr:
        """As tight, and a literal says its dtype where that is not what a bare one has."""
        e = self.tight(v)
        if not e.literal:
            return e
        d = dtype_of(v.type)
        return e if literal_dtype(self._literal(v)) == d else self._as(d, e)

    def text(self, v: Value) -> str:
        """v as an argument of a call that casts numbers to what it takes."""
        return self.tight(v).text

    def full(self, v: Value) -> str:
        """v as an argument of a call that neither casts nor spreads."""
        return self.typed(v).text

    def items(self, values: Sequence[Value]) -> str:
        return f"[{', '.join(map(self.text, values))}]"

    def barrier(self, array: Value, index: Value) -> str:
        """One mbarrier of an array."""
        name = self.text(array)
        only = array.type.n == 1 and self.text(index) == "0"  # type: ignore[attr-defined]
        return name if only else f"{name}[{self.text(index)}]"

    # ---- operands of one dtype

    def _as(self, d: DType, e: Expr) -> Expr:
        return Expr(f"{self.dtype(d)}({e.text})", ATOM, e.shape)

    def spread(
        self, o: Op, values: Sequence[Value], strong: bool = False, beside: Sequence[Expr] = ()
    ) -> list[Expr]:
        """Operands of `o` that all have one dtype, as loose as the language allows.  strong: it gives
        literals their own dtype.  beside: its other operands."""
        shape, found = shape_of(o.result.type), [self.loose(v) for v in values]
        for i, v in enumerate(values):
            if _together([*beside, *found]) == shape:
                break
            found[i] = self.tight(v)
        t = values[0].type
        elem = elem_of(t) if isinstance(t, Tile | Scalar) else None
        if not isinstance(elem, DType):
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
        o = self.flow.made.get(v)
        while o is not None and o.kind is not arith.const:
            o = self.flow.made.get(o.operands[0])
        assert o is not None
        return o.attrs["value"]


def _together(exprs: Sequence[Expr]) -> tuple[int, ...]:
    """The shape that operands broadcast to."""
    rank = max(len(e.shape) for e in exprs)
    padded = [(1,) * (rank - len(e.shape)) + e.shape for e in exprs]
    return tuple(max(axis) for axis in zip(*padded, strict=True))


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


def call(name: str, *parts: str) -> str:
    """A call of an instruction."""
    return f"self.{name}({', '.join(parts)})"


def keywords(o: Op, *names: str) -> list[str]:
    """Attributes that are not what their rule takes by itself, as keyword arguments.  `a=b`: a, called b."""
    out = []
    for entry in names:
        name, _, said = entry.partition("=")
        given = o.attrs.get(name)
        if given not in (None, o.kind.attributes[name]):
            text = quoted(given) if isinstance(given, str) else given
            out.append(f"{said or name}={text}")
    return out


# ---- the table's rows.  A text is that of an atom of the result's shape.

Writer = Callable[[Expressions, Op], Expr | str]


def value(*kinds: OpKind, says: str = "", always: bool = False) -> Callable[[Writer], Writer]:
    """Enters the spelling of kinds that compute a value; says, always: see Spelling."""

    def register(write: Writer) -> Writer:
        enter(kinds, write, says, is_value=True, always=always)
        return write

    return register


def plain(x: Expressions, o: Op, name: str, says: str, keys: str = "", bare: bool = False) -> str:
    """A call with all operands (bare: none), these attributes, and those of `keys` as `keywords`."""
    parts = [x.full(v) for v in (() if bare else o.operands)]
    for given in (o.attrs[n] for n in says.split()):
        if isinstance(given, DType):
            parts.append(x.dtype(given))
        elif isinstance(given, tuple):
            parts.append(sizes(given))
        else:
            parts.append(quoted(given) if isinstance(given, str) else str(given))
    return call(name, *parts, *keywords(o, *keys.split()))


for _kind, _name, _says in (
    (arith.abs_, "abs", ""),
    (arith.bitcast, "bitcast", "dtype"),
    (arith.decode, "decode", "encoding"),
    (arith.int_to_ptr, "int_to_ptr", "dtype"),
    (arith.ptr_to_int, "ptr_to_int", ""),
    (tile.arange, "arange", "start end"),
    (tile.reshape, "reshape", "shape"),
    (smem.shared_load, "load_shared", ""),
    (smem.shared_get, "load_shared", ""),
    (mma.fma, "dot", ""),
):
    value(_kind, says=_says)(partial(plain, name=_name, says=_says))
value(tile.broadcast, says="shape", always=True)(partial(plain, name="broadcast_to", says="shape"))


@value(arith.const, says="value dtype", always=True)
def _const(x: Expressions, o: Op) -> Expr:
    text = number(o.attrs["value"])
    return Expr(text, UNARY if text.startswith("-") else ATOM, (), True)


_SYMBOLS = {
    CHOICE: "< <= > >= == !=", OR: "|", XOR: "^", AND: "&", SHIFT: "<< >>", SUM: "+ -", PRODUCT: "* / // %",
}  # fmt: skip
OPERATORS = {KINDS[s]: (s, binds) for binds, all in _SYMBOLS.items() for s in all.split()}


@value(*OPERATORS)
def _binary(x: Expressions, o: Op) -> Expr | str:
    symbol, binds = OPERATORS[o.kind]
    d = dtype_of(o.operands[0].type)
    if o.kind in (arith.div, arith.rem) and d.bits < 32 and d.is_float:
        raise unspelled(o, f"{o.kind.name} of {d}")
    ceiling = _cdiv(x, o)
    if ceiling is not None:
        return ceiling
    a, b = x.spread(o, o.operands)
    left, right = binds, binds + 1
    if binds == CHOICE:  # comparisons would chain
        left = right
    elif binds <= SHIFT:  # nobody remembers which of & | ^ << binds tighter
        left, right = binds if a.binds == binds else SUM, SUM
    return Expr(f"{a.at(left)} {symbol} {b.at(right)}", binds, shape_of(o.result.type))


def _cdiv(x: Expressions, o: Op) -> str | None:
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
    return f"{x.use('cdiv')}({x.full(above.operands[0])}, {divisor.attrs['value']})"


@value(arith.fast_div)
def _fast_div(x: Expressions, o: Op) -> str:
    return f"{call('fast_divmod', *map(x.full, o.operands))}[0]"


@value(arith.div_rn, arith.pow_, arith.atan2, *arith.BESSEL)
def _function_of_two(x: Expressions, o: Op) -> str:
    return call(o.kind.name, *(e.text for e in x.spread(o, o.operands, strong=True)))


@value(arith.minimum, arith.maximum)
def _extreme(x: Expressions, o: Op) -> str:
    d = dtype_of(o.result.type)
    if d.name == "bf16":
        raise unspelled(o, f"{o.kind.name} of {d}")
    name = f"self.{o.kind.name}" if shape_of(o.result.type) else o.kind.name[:3]
    a, b = x.spread(o, o.operands, strong=True)
    return f"{name}({a.text}, {b.text})"


@value(arith.neg, arith.not_)
def _sign(x: Expressions, o: Op) -> Expr:
    symbol = "-" if o.kind is arith.neg else "~"
    e = x.typed(o.operands[0])
    return Expr(f"{symbol}{e.at(UNARY)}", UNARY, e.shape)


@value(*(arith.UNARY - {arith.neg, arith.not_, arith.abs_}))
def _math(x: Expressions, o: Op) -> str:
    d = dtype_of(o.result.type)
    if d not in (f32, f64):
        raise unspelled(o, f"{o.kind.name} of {d}")
    return call(o.kind.name, x.full(o.operands[0]))


@value(arith.select)
def _select(x: Expressions, o: Op) -> str:
    c, *values = o.operands
    shape = shape_of(o.result.type)
    if shape_of(c.type) != shape:  # one number decides: the chosen tiles are whole
        return call("where", x.full(c), *(e.text for e in x.spread(o, values)))
    condition = x.loose(c)
    if shape and not condition.shape:  # a single condition would choose whole tiles
        condition = x.tight(c)
    chosen = x.spread(o, values, beside=[condition])
    return call("where", condition.text, *(e.text for e in chosen))


@value(arith.cast, says="dtype")
def _cast(x: Expressions, o: Op) -> str:
    return f"{x.typed(o.operands[0]).at(ATOM)}.to({x.dtype(o.attrs['dtype'])})"


@value(arith.inline_asm, says="asm constraints outputs output pack")
def _inline_asm(x: Expressions, o: Op) -> str:
    options = [f"{n}={o.attrs[n]!r}" for n in ("constraints", "outputs", "output", "pack")]
    return call("inline_asm", repr(o.attrs["asm"]), *map(x.full, o.operands), *options)


@value(arith.addptr)
def _addptr(x: Expressions, o: Op) -> Expr:
    shape = shape_of(o.result.type)
    found = [x.loose(v) for v in o.operands]
    for i, v in enumerate(o.operands):
        if _together(found) != shape:
            found[i] = x.tight(v)
    if found[1].literal and dtype_of(o.operands[1].type) == i64:
        found[1] = x._as(i64, found[1])
    p, n = found
    return Expr(f"{p.at(SUM)} + {n.at(SUM + 1)}", SUM, shape)


_GRID = {  # where a program is one CTA, and where it is a cluster
    tile.program_id: ("blockIdx", "cluster.clusterIdx"),
    tile.num_programs: ("gridDim", "cluster.gridDim"),
    cluster.cta_id: ("cluster.blockIdx", "cluster.blockIdx"),
}


@value(*_GRID, says="axis", always=True)
def _grid(x: Expressions, o: Op) -> str:
    return f"self.{_GRID[o.kind][x.in_clusters]}.{'xyz'[o.attrs['axis']]}"


@value(cluster.cta_rank, always=True)
def _rank(x: Expressions, o: Op) -> str:
    return "self.cluster.blockRank"


@value(cluster.peer, always=True)
def _peer(x: Expressions, o: Op) -> str:
    return call("cluster.map_shared_addr", *map(x.text, o.operands))


@value(tile.splat, says="shape", always=True)
def _splat(x: Expressions, o: Op) -> str:
    shape, e = sizes(o.attrs["shape"]), x.tight(o.operands[0])
    if not e.literal:
        return call("broadcast_to", e.text, shape)
    d = x.dtype(dtype_of(o.operands[0].type))
    return call("register_tensor", f"dtype={d}", f"shape={shape}", f"init={e.text}")


@value(tile.expand_dims, says="axis", always=True)
def _expand(x: Expressions, o: Op) -> str:
    e = x.tight(o.operands[0])
    axis, rank = o.attrs["axis"], len(e.shape) + 1
    return f"{e.at(ATOM)}[{', '.join('None' if a == axis else ':' for a in range(rank))}]"


@value(tile.transpose, says="perm")
def _transpose(x: Expressions, o: Op) -> str:
    perm = o.attrs["perm"]
    return call("transpose", x.text(o.operands[0]), *(map(str, perm) if perm != (1, 0) else ()))


@value(tile.slice_tile, says="offset shape")
def _slice(x: Expressions, o: Op) -> str:
    e = x.tight(o.operands[0])
    cuts = zip(o.attrs["offset"], o.attrs["shape"], e.shape, strict=True)
    parts = (":" if n == whole else f"{at}:{at + n}" for at, n, whole in cuts)
    return f"{e.at(ATOM)}[{', '.join(parts)}]"


@value(tile.concat, says="axis")
def _concat(x: Expressions, o: Op) -> str:
    return call("concat", f"[{', '.join(map(x.full, o.operands))}]", f"dim={o.attrs['axis']}")


@value(tile.reduce, says="axis fn")
def _reduce(x: Expressions, o: Op) -> str:
    tile_text, fn, axis = x.text(o.operands[0]), o.attrs["fn"], f"dim={o.attrs['axis']}"
    d = dtype_of(o.operands[0].type)
    plain = {"add": "sum", "max": "max", "min": "min"}.get(fn)
    if plain and (d.bits >= 32 or (fn == "add" and d.is_float)):
        return call(plain, tile_text, axis)
    return call("reduce", tile_text, axis, f'fn="{fn}"')


def by_name(x: Expressions, o: Op) -> str:
    """What a script writes as the op itself is called, with its attributes by name."""
    parts = [x.text(v) for v in o.operands]
    for name in o.kind.attributes:
        given = None if name in UNSAID else o.attrs.get(name)
        if given is not None and given is not False:  # axis 0 is neither
            said = quoted(given) if isinstance(given, str) else given
            parts.append(f"{'dim' if name == 'axis' else name}={said}")
    return call(o.kind.name, *parts)


for _kind in core.KINDS.values():
    _named = _kind.family is Family.COMBINE and _kind not in (tile.reduce, *combine.SEVERAL)
    if _named and Level.WARP in _kind.levels:
        value(_kind, says=" ".join(n for n in _kind.attributes if n != "layout"))(by_name)


# ---- memory


@value(tile.load, says="volatile cache_policy")
def _load(x: Expressions, o: Op) -> str:
    p, *rest = o.operands
    shape = shape_of(p.type)
    parts = [x.text(p)]
    for name, v in zip(("mask", "other"), rest, strict=False):
        e = x.loose(v)
        if len(e.shape) > len(shape) or (e.shape and not shape):
            e = x.tight(v)
        parts.append(f"{name}={e.text}")
    return call("load", *parts, *keywords(o, "volatile", "cache_policy=eviction_policy"))


@value(tile.globaltimer)
def _globaltimer(x: Expressions, o: Op) -> str:
    return call("globaltimer")


@value(tile.atomic, says="fn sem scope")
def _atomic(x: Expressions, o: Op) -> str:
    p, new, *rest = o.operands
    parts = [x.text(p), *([] if o.attrs["fn"] == "load" else [x.loose(new).text])]
    if o.attrs["fn"] == "cas":
        parts.insert(1, x.loose(rest[0]).text)
    else:
        parts += [f"mask={x.loose(m).text}" for m in rest]
    sem, scope = o.attrs.get("sem", "relaxed"), o.attrs.get("scope", "gpu")
    parts += [f'sem="{sem}"'] if sem != "acq_rel" else []
    parts += [f'scope="{scope}"'] if scope != "gpu" else []
    return call(f"atomic_{o.attrs['fn']}", *parts)


@value(smem.shared_atomic, says="fn axis sem")
def _shared_atomic(x: Expressions, o: Op) -> str:
    s, new, *rest = map(x.full, o.operands)
    fn, axis = o.attrs["fn"], o.attrs.get("axis")
    name = {"xchg": "exch"}.get(fn, fn)
    given = keywords(o, "sem")
    if axis is None:
        return call(f"atomic.shared_{name}", s, *rest, new, *given)
    where = f"dim={axis}", f"indices={rest[0]}", f"values={new}"
    return call(f"atomic.shared_scatter_{name}", s, *where, *given)


@value(tile.load_box, says="shape cache_policy")
def _load_box(x: Expressions, o: Op) -> str:
    view, *offsets = o.operands
    where = f"offsets={x.items(offsets)}", f"shape={sizes(o.attrs['shape'])}"
    return call("load_global", x.text(view), *where, *keywords(o, "cache_policy"))


@value(smem.shared_slot, always=True)
def _slot(x: Expressions, o: Op) -> str:
    s, *index = o.operands
    return x.text(s) + (x.items(index) if index else "")


@value(smem.shared_slice, says="shape", always=True)
def _part(x: Expressions, o: Op) -> str:
    s, *block = o.operands
    return f"{x.text(s)}.block({sizes(o.attrs['shape'])}, at={x.items(block)})"


@value(smem.shared_transpose, says="perm", always=True)
def _transposed(x: Expressions, o: Op) -> str:
    perm = o.attrs["perm"]
    plain = perm == tuple(range(len(perm)))[::-1]
    return f"{x.text(o.operands[0])}.transpose({'' if plain else ', '.join(map(str, perm))})"


@value(tma.tensor_map, says="box inner swizzle promote thin", always=True)
def _map(x: Expressions, o: Op) -> str:
    """The view: the copies that use it say the rest."""
    return x.text(o.operands[0])
