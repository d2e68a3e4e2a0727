"""What is known to divide a number or an address: from the launch's facts, through index arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from warploom.ir.analysis import definitions
from warploom.ir.core import Builder, Fact, Func, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Pointer, dtype_of

LIMIT = 16  # bytes that TMA and the widest vector access want; facts say no more (Fact.divisible)


def power_of_two(n: int, limit: int = LIMIT) -> int:
    """The largest power of two up to `limit` that divides n."""
    return limit if n == 0 else min(limit, n & -n)


def divisor(
    v: Value, maker: Callable[[Value], Op | None], facts: Mapping[Value, int], limit: int = LIMIT
) -> int:
    """The largest power of two up to `limit` that is known to divide an integer, or the address of a pointer
    in bytes.  maker: the op that defines a value; facts: divisors of parameters."""
    if v in facts:
        return min(limit, facts[v])
    made = maker(v)
    if made is None:
        return 1
    parts = (divisor(x, maker, facts, limit) for x in made.operands)
    match made.kind:
        case arith.const:
            return power_of_two(made.attrs["value"], limit)
        case arith.cast if dtype_of(made.operands[0].type).is_int:
            return next(parts)
        case arith.mul:
            return min(limit, math.prod(parts))
        case arith.add | arith.sub:
            return min(parts)
        case arith.addptr if isinstance(v.type, Pointer):
            base, offset = parts
            return min(base, offset * v.type.dtype.bytes)
    return 1


def facts_of(func: Func) -> dict[Value, int]:
    """Parameter -> what is known to divide it."""
    facts: tuple[Fact, ...] = func.attrs.get("facts", ())
    return {p: f.divisible for p, f in zip(func.params, facts, strict=False)}


def of_view(
    base: Value,
    strides: Sequence[Value],
    maker: Callable[[Value], Op | None],
    facts: Mapping[Value, int],
) -> tuple[int, ...]:
    """make_view's attribute `divisible`, as far as it is known."""
    return tuple(divisor(v, maker, facts) for v in (base, *strides))


def describe_views(func: Func) -> Func:
    """Views that say nothing of their divisors (descriptors, block pointers) say what is known."""
    made, facts = definitions(func.body), facts_of(func)

    def rule(o: Op, b: Builder) -> Sequence[Value] | None:
        if o.kind is not tile.make_view or o.attrs.get("divisible"):
            return None
        base, *sizes = o.operands
        known = of_view(base, sizes[len(sizes) // 2 :], made.get, facts)
        b.append(o.with_(attrs={**o.attrs, "divisible": known}))
        return o.results

    return rewrite(func, rule)
