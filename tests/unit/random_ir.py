"""Random small TILE functions for property tests: integer arithmetic, tiles, loops, ifs, one store each.

Every function has the parameters (out: ptr<i64>, x: i32, y: i32) and stores all that it computed at
`out`, so that the oracle's memory shows its meaning.
"""

from __future__ import annotations

from hypothesis import strategies as st

from warploom.errors import Loc
from warploom.ir.build import const, for_, if_
from warploom.ir.core import Builder, Func, Level, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import DType, Pointer, Scalar, Tile, i1, i8, i32, i64, u8, u16

DTYPES = (i1, i8, i32, i64, u8, u16)
OUT_SIZE = 64  # elements of `out`
TILE = 4  # elements of each tile

_BINARY = (arith.add, arith.sub, arith.mul, arith.minimum, arith.maximum)
_BITS = (arith.and_, arith.or_, arith.xor)
_COMPARE = (arith.lt, arith.le, arith.gt, arith.ge, arith.eq, arith.ne)


@st.composite
def functions(draw: st.DrawFn, decorated: bool = False) -> Func:
    """A random function; `decorated`: with random ids, tasks, locations and hints."""
    params = (Value(Pointer(i64), "out"), Value(Scalar(i32), "x"), Value(Scalar(i32), "y"))
    out = params[0]
    b = Builder()
    values = fill(draw, b, [params[1], params[2]], depth=2)
    stored = 0
    for v in values:
        wide = v if v.type in (Scalar(i64), Tile((TILE,), i64)) else arith.cast(b, v, dtype=i64)
        n = TILE if isinstance(v.type, Tile) else 1
        if stored + n > OUT_SIZE:
            break
        at = arith.addptr(b, out, const(b, stored))
        if n > 1:
            at = arith.addptr(
                b, tile.splat(b, at, shape=(TILE,)), tile.arange(b, start=0, end=TILE)
            )
        tile.store(b, at, wide)
        stored += n
    control.yield_(b)
    func = Func("random", b.region(params), Level.TILE)
    return decorate(draw, func) if decorated else func


def fill(draw: st.DrawFn, b: Builder, scope: list[Value], depth: int) -> list[Value]:
    """Appends a few ops; returns all values that are in scope after them."""
    values = list(scope)
    for _ in range(draw(st.integers(1, 6 if depth == 2 else 3))):
        choice = draw(st.integers(0, 9))
        if choice == 0:
            dtype = draw(st.sampled_from(DTYPES))
            low, high = (0, 1) if dtype is i1 else (-3, 3) if dtype.kind == "int" else (0, 5)
            values.append(const(b, draw(st.integers(low, high)), dtype))
        elif choice == 1:
            scalar = draw(st.sampled_from([v for v in values if isinstance(v.type, Scalar)]))
            values.append(tile.splat(b, scalar, shape=(TILE,)))
        elif choice == 2:
            values.append(tile.arange(b, start=1, end=1 + TILE))
        elif choice == 3:
            dtype = draw(st.sampled_from(DTYPES))
            values.append(arith.cast(b, draw(st.sampled_from(values)), dtype=dtype))
        elif choice == 4 and depth:
            values += loop(draw, b, values, depth)
        elif choice == 5 and depth:
            values += branch(draw, b, values, depth)
        else:
            values.append(binary(draw, b, values))
    return values


def binary(draw: st.DrawFn, b: Builder, values: list[Value]) -> Value:
    x = draw(st.sampled_from(values))
    y = draw(st.sampled_from([v for v in values if v.type == x.type]))
    dtype: DType = x.type.dtype  # type: ignore[attr-defined]
    kinds = (*_BITS, *_COMPARE) if dtype is i1 else (*_BINARY, *_BITS, *_COMPARE)
    result: Value = draw(st.sampled_from(kinds))(b, x, y)
    return result


def loop(draw: st.DrawFn, b: Builder, values: list[Value], depth: int) -> tuple[Value, ...]:
    init = draw(st.lists(st.sampled_from(values), max_size=3))
    bounds = (const(b, draw(st.integers(0, 2))), const(b, draw(st.integers(0, 3))), const(b, 1))

    def body(inner: Builder, iv: Value, carried: tuple[Value, ...]) -> list[Value]:
        known = fill(draw, inner, [*values, iv, *carried], depth - 1)
        return [draw(st.sampled_from([v for v in known if v.type == c.type])) for c in carried]

    return for_(b, bounds, init, body, iv="i")


def branch(draw: st.DrawFn, b: Builder, values: list[Value], depth: int) -> tuple[Value, ...]:
    x = draw(st.sampled_from([v for v in values if v.type == Scalar(i32)]))
    condition = draw(st.sampled_from(_COMPARE))(b, x, const(b, draw(st.integers(-2, 2))))
    results = draw(st.lists(st.sampled_from(values), max_size=2))

    def arm(inner: Builder) -> list[Value]:
        known = fill(draw, inner, values, depth - 1)
        return [draw(st.sampled_from([v for v in known if v.type == r.type])) for r in results]

    return if_(b, condition, arm, arm)


def decorate(draw: st.DrawFn, func: Func) -> Func:
    """Ids, tasks, locations and hints, which the text must keep."""
    hints = st.sampled_from(["", "acc", "acc_1", "größe", "a b", "7"])
    tasks = st.frozensets(st.sampled_from(["producer", "consumer"]))
    ids = st.sampled_from(["", "loop0.1/load0", "dot1"])
    call = Loc('a "b".py', 7, 3, 9)
    locs = st.sampled_from([None, call, Loc("k.py", 1, 2, 3, call)])

    def rule(o, b):  # type: ignore[no-untyped-def]
        results = tuple(Value(v.type, draw(hints)) for v in o.results)
        b.append(o.with_(results=results, tasks=draw(tasks), id=draw(ids), loc=draw(locs)))
        return results

    return rewrite(func, rule)
