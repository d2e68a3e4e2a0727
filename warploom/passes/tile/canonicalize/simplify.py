"""Local simplification: constants, algebraic identities, splats, known control flow (and unit_axes.py:
axes of size 1; masked_loads.py: selections by a load's mask).

`Simplifier` is a rule for `ir/rewrite.py`.  Every step makes the function smaller or moves a constant to the
right, so repeating it ends.  Identities on integers hold under wrapping; on floats only those are
used that hold for NaN, infinities and signed zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.analysis.facts import Facts
from warploom.ir.core import Builder, Op, OpKind, Region, Type, Value
from warploom.ir.fold import Number, fold, wrap
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import inline, substitute
from warploom.ir.types import DType, Tile, dtype_of, i1
from warploom.passes.tile.canonicalize.masked_loads import masked_before
from warploom.passes.tile.canonicalize.unit_axes import simplify_units
from warploom.passes.tile.canonicalize.unroll_whiles import unroll_while

Replacement = Sequence[Value] | None

# Combining (x op c1) op c2 into x op (c1 op c2); exact under wrapping.
_ASSOCIATIVE = (arith.add, arith.mul, arith.and_, arith.or_, arith.xor)
_UNCHANGED_BY_0 = ("add", "or", "xor")  # what an atomic may do


class Simplifier:
    """One walk's memory: what defines each value seen so far.  at_tile: axes of size 1 are dropped as well;
    at later levels boxes are as they were cut, and a script's as it says."""

    def __init__(self, at_tile: bool = False) -> None:
        self.at_tile = at_tile
        self.made: dict[Value, Op] = {}
        self.facts = Facts(self.made.get, wraps=True)

    def __call__(self, o: Op, b: Builder) -> Replacement:
        first = len(b.ops)
        values = self._simplify(o, b)
        for new in b.ops[first:]:
            self.made.update(dict.fromkeys(new.results, new))
        if values is None:
            self.made.update(dict.fromkeys(o.results, o))
        return values

    # -- what is known of a value

    def maker(self, v: Value, kind: OpKind) -> Op | None:
        """The op that defines v, where it is of that kind."""
        o = self.made.get(v)
        return o if o is not None and o.kind is kind else None

    def number(self, v: Value) -> Number | None:
        """The constant that v is, or that a tile v is full of."""
        splat = self.maker(v, tile.splat)
        constant = self.maker(splat.operands[0] if splat else v, arith.const)
        if constant is None:
            return None
        value: Number = constant.attrs["value"]
        return value

    # -- making values

    def constant(self, b: Builder, value: Number, t: Type, hint: str = "") -> Value:
        """A scalar constant, or a tile full of it, of type t."""
        dtype = dtype_of(t)
        number = bool(value) if dtype == i1 else float(value) if dtype.is_float else int(value)
        scalar: Value = arith.const(b, value=number, dtype=dtype, hint=hint)
        return self.splat(b, scalar, t, hint) if isinstance(t, Tile) else scalar

    def splat(self, b: Builder, v: Value, t: Tile, hint: str = "") -> Value:
        layout = {} if t.layout is None else {"layout": t.layout}
        return tile.splat(b, v, shape=t.shape, hint=hint, **layout)

    # -- rules

    def _simplify(self, o: Op, b: Builder) -> Replacement:
        found = self._by_kind(o, b)
        if found is None and self.at_tile:
            return simplify_units(o, b, self.made.get)
        return found

    def _by_kind(self, o: Op, b: Builder) -> Replacement:
        if o.kind in arith.ELEMENTWISE:
            return self._fold(o, b) or self._scalarize(o, b) or self._identity(o, b)
        if o.kind in _SHAPE:
            return self._shape(o, b)
        if o.kind is tile.reduce:
            return self._reduce(o, b)
        if o.kind in (tile.load, tile.store):
            return self._access(o, b)
        if o.kind is tile.atomic and self.at_tile:
            return self._atomic(o, b)
        if o.kind is control.if_:
            return self._if(o, b)
        if o.kind is control.for_:
            return self._for(o, b)
        if o.kind is control.while_:
            return self._while(o, b)
        if o.kind in (control.assume, control.device_assert) and self.number(o.operands[0]) is True:
            return ()
        return None

    def _fold(self, o: Op, b: Builder) -> Replacement:
        values = [self.number(v) for v in o.operands]
        if o.kind in arith.NOT_FOLDED or not values:
            return None
        known = [v for v in values if v is not None]
        if o.kind is arith.select and values[0] is not None:
            return (o.operands[1 if values[0] else 2],)
        if len(known) < len(values):
            return None
        value = fold(o.kind, known, dtype_of(o.operands[-1].type), o.attrs.get("dtype"))
        return None if value is None else (self.constant(b, value, o.result.type, o.result.hint),)

    def _scalarize(self, o: Op, b: Builder) -> Replacement:
        """An op on splats is the splat of the op on scalars."""
        t = o.result.type
        if not isinstance(t, Tile):
            return None
        scalars: list[Value] = []
        for v in o.operands:
            splat = self.maker(v, tile.splat)
            if isinstance(v.type, Tile) and splat is None:
                return None
            scalars.append(splat.operands[0] if splat else v)
        value: Value = o.kind(b, *scalars, hint=o.result.hint, **o.attrs)
        return (self.splat(b, value, t, o.result.hint),)

    def _identity(self, o: Op, b: Builder) -> Replacement:
        if o.kind is arith.addptr:
            return self._addptr(o, b)
        if o.kind is arith.cast:
            return self._cast(o)
        if o.kind is arith.not_:
            return self._not(o, b)
        if o.kind is arith.abs_ and dtype_of(o.result.type).kind in ("uint", "bool"):
            return o.operands
        if o.kind is arith.select:
            _, x, y = o.operands
            if x is y or masked_before(o, self.made.get, self.number):
                return (x,)
            return None
        if o.kind not in arith.BINARY:
            return None
        x, y = o.operands
        dtype, t = dtype_of(x.type), o.result.type
        m, n = self.number(x), self.number(y)
        if m is not None and n is None and o.kind in arith.MIRRORED:
            return (arith.MIRRORED[o.kind](b, y, x, hint=o.result.hint),)
        if dtype.is_float:
            one = n == 1 and o.kind in (arith.mul, arith.div, arith.div_rn)
            zero = n == 0 and o.kind is arith.sub and math.copysign(1, n) == 1
            return (x,) if one or zero else None
        same = _on_same(o.kind, x, dtype) if x is y else None
        found = same if same is not None else _on_constant(o.kind, x, n, dtype)
        if found is not None:
            return (found if isinstance(found, Value) else self.constant(b, found, t),)
        if (
            o.kind in (arith.rem, arith.mul, arith.sub)
            and (v := self._whole_parts(o, b)) is not None
        ):
            return (v,)
        return None if n is None else self._reassociate(o, b, int(n), dtype)

    def _whole_parts(self, o: Op, b: Builder) -> Value | None:
        """x - x/n·n is x % n, which is 0 for a multiple of n, as x/n·n is then x."""
        x, y = o.operands
        if o.kind is arith.sub:
            product = self.maker(y, arith.mul)
            quotient = self.maker(product.operands[0], arith.idiv) if product else None
            if product is None or quotient is None or quotient.operands[0] is not x:
                return None
            n = self.number(product.operands[1])
            if n is None or n <= 0 or self.number(quotient.operands[1]) != n:
                return None
            return arith.rem(b, x, product.operands[1], hint=o.result.hint)
        n = self.number(y)
        # wrapping keeps multiples of powers of two
        if n is None or n <= 0 or int(n) & (int(n) - 1):
            return None
        if o.kind is arith.rem:
            return self.constant(b, 0, o.result.type) if self.divides(int(n), x) else None
        quotient = self.maker(x, arith.idiv)
        if quotient is None or self.number(quotient.operands[1]) != n:
            return None
        return quotient.operands[0] if self.divides(int(n), quotient.operands[0]) else None

    def divides(self, n: int, v: Value) -> bool:
        """Is v a multiple of the power of two n?"""
        return self.facts.divisor(v) >= n

    def _reassociate(self, o: Op, b: Builder, n: int, dtype: DType) -> Replacement:
        """(x op c1) op c2, for the kinds where that is x op c; subtraction counts as adding -c."""
        x, t = o.operands[0], o.result.type
        inner = self.made.get(x)
        additive = (arith.add, arith.sub)
        if inner is None or dtype.kind == "bool" or inner.kind not in (*_ASSOCIATIVE, arith.sub):
            return None
        m = self.number(inner.operands[1])
        if m is None:
            return None
        if o.kind in additive and inner.kind in additive:
            total = (n if o.kind is arith.add else -n) + (
                int(m) if inner.kind is arith.add else -int(m)
            )
            return (arith.add(b, inner.operands[0], self.constant(b, wrap(total, dtype), t)),)
        if o.kind is inner.kind and o.kind in _ASSOCIATIVE:
            value = fold(o.kind, (m, n), dtype)
            assert value is not None
            return (o.kind(b, inner.operands[0], self.constant(b, value, t), hint=o.result.hint),)
        return None

    def _addptr(self, o: Op, b: Builder) -> Replacement:
        p, offset = o.operands
        n = self.number(offset)
        if n == 0:
            return (p,)
        inner = self.maker(p, arith.addptr)
        m = self.number(inner.operands[1]) if inner else None
        if inner is None or n is None or m is None or inner.operands[1].type != offset.type:
            return None
        total, dtype = int(n) + int(m), dtype_of(offset.type)
        if wrap(total, dtype) != total:
            return None
        return (arith.addptr(b, inner.operands[0], self.constant(b, total, offset.type)),)

    def _cast(self, o: Op) -> Replacement:
        (x,) = o.operands
        if x.type == o.result.type:
            return (x,)
        inner = self.maker(x, arith.cast)
        if inner is None or inner.operands[0].type != o.result.type:
            return None
        return (inner.operands[0],) if _keeps(dtype_of(o.result.type), dtype_of(x.type)) else None

    def _not(self, o: Op, b: Builder) -> Replacement:
        inner = self.made.get(o.operands[0])
        if inner is None:
            return None
        if inner.kind is arith.not_:
            return (inner.operands[0],)
        if inner.kind in arith.NEGATED and not dtype_of(inner.operands[0].type).is_float:
            return (arith.NEGATED[inner.kind](b, *inner.operands, hint=o.result.hint),)
        return None

    def _shape(self, o: Op, b: Builder) -> Replacement:
        (x,) = o.operands
        t = o.result.type
        splat = self.maker(x, tile.splat)
        if splat is not None and isinstance(t, Tile):
            return (self.splat(b, splat.operands[0], t, o.result.hint),)
        inner = self.maker(x, o.kind)
        if inner is not None and o.kind is tile.transpose:
            return self._transpose(o, inner, b)
        if x.type != t:
            if inner is not None and o.kind in (tile.broadcast, tile.reshape):
                return (o.kind(b, inner.operands[0], hint=o.result.hint, **o.attrs),)
            return None
        moves = o.kind is tile.transpose and o.attrs["perm"] != tuple(range(len(o.attrs["perm"])))
        return None if moves else (x,)

    def _transpose(self, o: Op, inner: Op, b: Builder) -> Replacement:
        """A transpose of a transpose, before they have layouts."""
        if "layout" in o.attrs or "layout" in inner.attrs:
            return None
        perm = tuple(inner.attrs["perm"][axis] for axis in o.attrs["perm"])
        if perm == tuple(range(len(perm))):
            return inner.operands
        return (tile.transpose(b, inner.operands[0], perm=perm, hint=o.result.hint),)

    def _reduce(self, o: Op, b: Builder) -> Replacement:
        """Of equal elements: the greatest and the least are that element, the sum of zeros is zero."""
        (x,) = o.operands
        splat, t = self.maker(x, tile.splat), o.result.type
        same = o.attrs["fn"] in ("max", "min") or (o.attrs["fn"] == "add" and self.number(x) == 0)
        if splat is None or not same:
            return None
        value = splat.operands[0]
        return (self.splat(b, value, t, o.result.hint) if isinstance(t, Tile) else value,)

    def _access(self, o: Op, b: Builder) -> Replacement:
        """Masks that are known, and an `other` that is what masked-off elements get anyway."""
        needed = 1 if o.kind is tile.load else 2
        if len(o.operands) == needed:
            return None
        mask = self.number(o.operands[needed])
        kept = o.operands
        if mask is True:
            kept = o.operands[:needed]
        elif mask is False and not o.attrs.get("volatile"):
            if o.kind is tile.store:
                return ()
            return o.operands[2:] or (self.constant(b, 0, o.result.type),)
        elif o.kind is tile.load and len(o.operands) == 3:
            other = self.number(o.operands[2])
            if other is not None and other == 0 and math.copysign(1, other) == 1:
                kept = o.operands[:2]
        if kept is o.operands:
            return None
        if o.kind is tile.store:
            tile.store(b, *kept)
            return ()
        b.append(o.with_(operands=kept))
        return o.results

    def _atomic(self, o: Op, b: Builder) -> Replacement:
        """What changes nothing and releases nothing only reads: programs that wait don't queue where they
        look."""
        fn, sem = o.attrs["fn"], o.attrs.get("sem", "relaxed")
        changes = fn not in _UNCHANGED_BY_0 or self.number(o.operands[1]) != 0
        if changes or sem not in ("relaxed", "acquire") or dtype_of(o.result.type).is_float:
            return None
        b.append(o.with_(attrs={**o.attrs, "fn": "load"}))
        return o.results

    def _if(self, o: Op, b: Builder) -> Replacement:
        then, other = o.regions
        condition = self.number(o.operands[0])
        if condition is not None:
            taken = then if condition else other
            b.ops.extend(taken.ops[:-1])
            return taken.yielded
        same = {
            i: c.yielded[0]
            for i, c in enumerate(control.carried(o))
            if c.yielded[0] is c.yielded[1]
        }
        return without(o, b, same) if same else None

    def _for(self, o: Op, b: Builder) -> Replacement:
        lo, hi = (self.number(v) for v in o.operands[:2])
        if lo is not None and hi is not None and lo >= hi:
            return o.operands[3:]
        if self.at_tile and self._runs_once(o):
            return inline(b, o.regions[0], (o.operands[0], *o.operands[3:]))
        return self._without_constants(o, b)

    def _runs_once(self, o: Op) -> bool:
        """Is o a loop of exactly one iteration, of which the user asks nothing?  Then its body is better
        off without: what it loads needs no ring, and the ops around it are in one block with it."""
        lo, hi, step = (self.number(v) for v in o.operands[:3])
        if lo is None or hi is None or step is None or not lo < hi <= lo + step:
            return False
        return o.attrs.get("num_stages") is None and not o.attrs.get("warp_specialize")

    def _while(self, o: Op, b: Builder) -> Replacement:
        found = self._without_constants(o, b) or self._counted(o, b)
        return found or (unroll_while(o, b, self.number) if self.at_tile else None)

    def _without_constants(self, o: Op, b: Builder) -> Replacement:
        """A loop without the values that no iteration changes."""
        constant = {
            i: c
            for i, c in enumerate(control.carried(o))
            if all(y in (p, *c.init) for p, y in zip(c.params, c.yielded, strict=True))
        }
        if not constant:
            return None
        env = {p: c.init[0] for c in constant.values() for p in c.params}
        loop = o.with_(regions=tuple(substitute(r, env) for r in o.regions))
        return without(loop, b, {i: c.init[0] for i, c in constant.items()})

    def _counted(self, o: Op, b: Builder) -> Replacement:
        """A `while` that counts in equal steps up or down to what it doesn't change is a `for`.

        That one has no need to be tested: its trip count is known before it starts.  What counts stays
        carried, for those who read it after the loop."""
        condition, body = o.regions
        test, carried = condition.ops[0], condition.params
        if len(condition.ops) != 2 or condition.yielded != (*test.results, *carried):
            return None
        if arith.ordered(test) is None:
            return None
        left, right, kind = *test.operands, test.kind
        if left not in carried:
            left, right, kind = right, left, arith.MIRRORED[kind]
        if left not in carried or right in carried or dtype_of(left.type).is_float:
            return None
        i = carried.index(left)
        step = self._step(body.params[i], body.yielded[i])
        upward = kind in (arith.lt, arith.le)
        if step is None or step[1] != upward:
            return None
        if kind in (arith.le, arith.ge):
            one = self.constant(b, 1, right.type)
            right = (arith.add if upward else arith.sub)(b, right, one)
        lo, hi = (o.operands[i], right) if upward else (right, o.operands[i])
        at = Value(left.type, left.hint if upward else "")
        if upward:
            body = substitute(body, {body.params[i]: at})
        if isinstance(step[0], Op):  # the body may be where it was made
            by = tile.num_programs(b, **step[0].attrs)
        else:
            by = self.constant(b, step[0], left.type)
        region = Region((at, *body.params), body.ops)
        b.append(o.with_(kind=control.for_, operands=(lo, hi, by, *o.operands), regions=(region,)))
        return o.results

    def _step(self, old: Value, new: Value) -> tuple[Op | Number, bool] | None:
        """(by how much `new` differs from `old`: a number or `num_programs`, whether it is more), where that
        is known."""
        made = self.made.get(new)
        if made is None or made.kind not in (arith.add, arith.sub) or old not in made.operands:
            return None
        x, y = made.operands
        other = y if x is old else x
        if made.kind is arith.sub and x is not old:
            return None
        n = self.number(other)
        if n is None:
            programs = self.maker(other, tile.num_programs)
            return (programs, True) if programs and made.kind is arith.add else None
        return (abs(n), (n > 0) == (made.kind is arith.add)) if n else None


def without(o: Op, b: Builder, known: dict[int, Value]) -> list[Value]:
    """Appends a loop or an if without what it passes on as `known` values; returns what stands for the old
    op's results."""
    b.append(control.keeping(o, [i for i in range(len(o.results)) if i not in known]))
    return [known.get(i, v) for i, v in enumerate(o.results)]


def _on_same(kind: OpKind, x: Value, dtype: DType) -> Value | Number | None:
    """x op x on integers."""
    if kind in (arith.and_, arith.or_, arith.minimum, arith.maximum):
        return x
    if kind is arith.xor or (kind is arith.sub and dtype.kind != "bool"):
        return 0
    if kind in arith.COMPARE:
        return kind in (arith.le, arith.ge, arith.eq)
    return None


def _on_constant(kind: OpKind, x: Value, n: Number | None, dtype: DType) -> Value | Number | None:
    """x op n on integers."""
    if n is None:
        return None
    ones = True if dtype.kind == "bool" else wrap(-1, dtype)
    if n == 0 and kind in (arith.add, arith.sub, arith.or_, arith.xor, arith.shl, arith.shr):
        return x
    if n == 0 and kind in (arith.mul, arith.and_):
        return 0
    if n == ones and kind is arith.and_:
        return x
    if n == ones and kind is arith.or_:
        return n
    if dtype.kind == "bool":
        keeps = (kind is arith.eq and n) or (kind is arith.ne and not n)
        return x if keeps else None
    if n == 1 and kind in (arith.mul, arith.idiv):
        return x
    if n == 1 and kind is arith.rem:
        return 0
    return None


def _keeps(narrow: DType, wide: DType) -> bool:
    """Whether every value survives narrow → wide → narrow."""
    if narrow.is_float and wide.is_float:
        return wide.bits > narrow.bits and wide.bits >= 32
    both = narrow.kind in ("int", "uint") and wide.kind in ("int", "uint")
    return (both or narrow.kind == "bool") and wide.is_int and wide.bits >= narrow.bits


_SHAPE = frozenset(
    (tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape, tile.slice_tile)
)
