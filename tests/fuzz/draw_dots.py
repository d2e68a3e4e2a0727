"""Random kernels around products: sums over K, several dots, chains as in attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.draw import Draw
from tests.fuzz.numbers import FORMATS
from tests.fuzz.ops import PACKED, SCALES, Inexact, literal, make, typed, var
from tests.fuzz.tree import Access, E, If, Let, Store, T

UNIT = {  # of K
    "f16": 16, "bf16": 16, "e4m3": 32, "e5m2": 32, "i8": 32, "u8": 32, "f32": 8, "f64": 4,
}  # fmt: skip
# Of products in registers: the left operand's format, and those that may be on its right.
IN_ORDER = {
    "f16": ("f16",), "bf16": ("bf16",), "f32": ("f32",), "f64": ("f64",), "e4m3": ("e4m3", "e4m3", "e5m2"),
    "e5m2": ("e5m2", "e4m3"), "i8": ("i8", "i8", "u8"), "u8": ("u8", "i8"),
}  # fmt: skip


BATCHES_FROM = 120_000  # the first seed that may draw batches of products, and scaled ones
IN_PLACE_FROM = (
    700_000  # likewise: products whose left operand is stored to after the loop that reads it
)


@dataclass(frozen=True)
class Sizes:
    m: int
    n: int
    k: int


def product(d: Draw) -> None:
    """The kernel's main part, and some statements before and after it."""
    if not d.is_shared and d.maybe(0.3):
        d.statements(d.r.choice([1, 2]))
    dtypes = ["f16", "bf16", "f16", "bf16", "e4m3", "e5m2", "i8", "f32"]
    dtype = d.r.choice([*dtypes, "u8", "f64"] if d.in_order else dtypes)
    newer = d.seed >= BATCHES_FROM and d.in_order and not d.is_shared
    if newer and d.maybe(0.3):
        batches(d, dtype)
    elif newer and d.maybe(0.3):
        scaled(d)
    elif not d.is_shared and d.maybe(0.3) and FORMATS[dtype].is_float:
        chain(d, dtype)
    else:
        sum_over_k(d, dtype, d.r.choice(IN_ORDER[dtype]) if d.in_order else dtype)
    if d.maybe(0.4):
        d.statements(d.r.choice([1, 2]))


def sums(dtype: str) -> str:
    """What products of a format are added up in."""
    return "i32" if FORMATS[dtype].is_int else "f64" if dtype == "f64" else "f32"


def _sizes(d: Draw, dtype: str) -> Sizes:
    r, unit = d.r, UNIT[dtype]
    if d.in_order:
        n = r.choice([8, 8, 16, 16, 24, 32, 32, 40, 64])
        return Sizes(d.rows, n, unit * r.choice([1, 1, 2, 3, 4]))
    n = r.choice([8, 16, 16, 32, 32, 48, 64, 64, 96 if d.rows < 192 else 40])
    if d.rows == 64 and d.maybe(0.12):  # made as its transpose
        return Sizes(r.choice([16, 32]), 64, unit * r.choice([1, 2]))
    return Sizes(d.rows, n, unit * r.choice([1, 1, 2, 3]) if unit >= 16 else r.choice([8, 16, 32]))


def _operand(d: Draw, dtype: str, at: tuple[E, E], reach: tuple[int, int], sizes: tuple[int, int], var_of: str,
             name: str = "") -> tuple[Access, str]:  # fmt: skip
    """How one operand's block is read, and its array."""
    r = d.r
    ragged = [d.maybe(0.3), d.maybe(0.3)]
    shape = tuple(
        max(1, n - r.randrange(1, min(n, 20))) if cut and n > 1 else max(1, n)
        for n, cut in zip(reach, ragged, strict=True)
    )
    array = name or d.array(dtype, shape, lo=0 if dtype == "u8" else -2, hi=2)
    a = d.array_of(array)
    bounded = tuple(i for i in range(2) if a.shape[i] < reach[i] or d.maybe(0.3))
    way = r.choice(["ptr", "ptr", "desc", "block"])
    if way == "desc" and a.pad % (16 // max(1, FORMATS[dtype].bits // 8)):
        way = "block"
    wrap: tuple[int, ...] = ()
    walk = ""
    if way != "ptr":
        bounded = (0, 1)
    elif bounded and d.maybe(0.15):
        wrap, bounded = bounded[:1], bounded[1:]
    if way != "desc" and not wrap and d.maybe(0.4):
        walk = var_of
    other = r.choice([None, 0, 0]) if way == "ptr" and bounded else None
    return Access(array, at, sizes, way, bounded=bounded, wrap=wrap, other=other, walk=walk), array


def _touched(d: Draw, x: E) -> E:
    """Perhaps something computed of an operand, of its dtype; it is a variable."""
    if not d.maybe(0.2):
        return x
    dtype = x.t.dtype
    for _ in range(4):
        try:
            match d.r.randrange(4):
                case 0:
                    e = make("select", d.tile(x.t.shape, "i1", 1), x, typed(1, dtype, x.t.shape))
                case 1:
                    e = d.to(make("add", d.to(x, "f32"), literal(1, "f32")), dtype)
                case 2:
                    e = d.to(make("mul", d.to(x, "f32"), literal(2, "f32")), dtype)
                case _:
                    e = d.to(d.fit(d.tile(x.t.shape, "f32", 2), -2, 2), dtype)
                    e = make("select", d.tile(x.t.shape, "i1", 1), x, e)
            if e.t.top <= 8 and e.t.grain == 0:
                return d.let(d.fresh("t"), e)
        except Inexact:
            continue
    return x


def _grown(start: T, build: Callable[[E], E], name: str, times: int) -> T:
    """The type of a variable that a loop changes by `build` up to so many times.  Raises Inexact."""
    t = start
    for _ in range(times):
        t = t.hull(build(var(name, t)).t)
    return t


class _Sum:
    """An accumulator of a loop: how it starts, and what an iteration makes of it."""

    def __init__(self, d: Draw, shape: tuple[int, ...], dtype: str) -> None:
        self.d, self.name = d, d.fresh("acc")
        self.start = typed(0, dtype, shape)
        r = d.r
        if d.maybe(0.2):
            self.start = d.tile(shape, dtype, 2) if dtype != "i32" else typed(1, dtype, shape)
        self.scale = r.choice([1, 1, 1, 1, 1, 2, -1]) if dtype == "f32" and not d.is_shared else 1
        self.plus = d.maybe(0.4)
        self.after = not d.is_shared and d.maybe(0.08) and dtype == "f32"
        self.out = "f16" if dtype == "f32" and d.maybe(0.04) else ""
        options: list[tuple[str, Any]] = []
        if d.maybe(0.2):
            options.append(("max_num_imprecise_acc", 32))
        self.options = tuple(options)
        self.precision = repr(r.choice(["tf32", "ieee", "tf32x3"])) if d.in_order else ""

    def begin(self, x: E, y: E, times: int) -> T:
        """Its declaration in front of the loop; gives its type."""
        try:
            t = _grown(self.start.t, lambda acc: self.step(acc, x, y), self.name, times)
        except Inexact:
            self.scale, self.after = 1, False
            t = _grown(self.start.t, lambda acc: self.step(acc, x, y), self.name, times)
        self.d.out.append(Let(self.name, self.start))
        self.d.vars.append((self.name, t))
        return t

    def step(self, acc: E, x: E, y: E) -> E:
        if self.scale != 1:
            acc = make("mul", acc, literal(self.scale, acc.t.dtype))
        options = self.options if x.t.dtype in ("e4m3", "e5m2") else ()
        if self.precision and x.t.dtype == "f32":
            options = (("input_precision", self.precision),)
        found = make("dot", x, y, acc, plus=self.plus, options=options)
        return make("max", found, typed(0, found.t.dtype)) if self.after else found


def _loop(d: Draw, dtype: str) -> tuple[E, E, int]:
    r = d.r
    stored = r.choice([0, 2, 2, 3, 4, 5] if d.is_shared else [0, 1, 1, 2, 2, 3, 4, 5])
    if not d.is_shared and d.maybe(0.1):
        d.counted()
        return literal(0, "i32"), var(*d.vars[-1]), 3
    return literal(0, "i32"), d.integer("steps", stored, max(stored, 1)), max(stored, 1)


def sum_over_k(d: Draw, dtype: str, of_right: str) -> None:
    """acc += A·B over a loop of 0 to 5 steps; perhaps two accumulators, guards, what else a loop may hold."""
    s = _sizes(d, dtype)
    lo, hi, most = _loop(d, dtype)
    k = d.fresh("k")
    step = make("mul", var(k, T("i32", (), 0, most - 1)), literal(s.k, "i32"))
    row = make("mul", d.slot, literal(s.m, "i32"))
    zero = literal(0, "i32")
    a, _ = _operand(d, dtype, (row, step), (d.slots * s.m, most * s.k), (s.m, s.k), k)
    b, b_array = _operand(d, of_right, (step, zero), (most * s.k, s.n), (s.k, s.n), k)
    two = d.maybe(0.35)
    c = b
    if two:
        c, _ = _operand(
            d,
            of_right,
            (step, zero),
            (most * s.k, s.n),
            (s.k, s.n),
            k,
            b_array if d.maybe(0.15) else "",
        )
    outer = d.r.choice([1, 1, 1, 1, 1, 2])
    in_place = d.seed >= IN_PLACE_FROM and not (d.is_shared or a.wrap) and d.maybe(0.5)
    if in_place:
        outer = 2
    operand = T(dtype, (s.m, s.k), -8, 8), T(of_right, (s.k, s.n), -8, 8)
    accs = [_Sum(d, (s.m, s.n), sums(dtype)) for _ in range(1 + two)]
    types = [acc.begin(var("x", operand[0]), var("y", operand[1]), outer * most) for acc in accs]
    carried = [d.carried()] if not d.is_shared and d.maybe(0.2) else []

    def body() -> None:
        x, y = _touched(d, d.loaded(a)), _touched(d, d.loaded(b))
        right = [y, _touched(d, d.loaded(c))] if two else [y]
        if not d.is_shared and d.maybe(0.15):
            d.statements(1)
        steps = [
            Let(acc.name, acc.step(var(acc.name, t), x, z))
            for acc, t, z in zip(accs, types, right, strict=True)
        ]
        guarded = not d.is_shared and d.maybe(0.12)
        d.out.extend([If(d.test(), tuple(steps))] if guarded else steps)
        for one in carried:
            d.change(*one)
        if not d.is_shared and d.maybe(0.05):
            d.store_out()

    if outer > 1:
        name = d.fresh("j")
        count = d.integer("rounds", 2 if d.is_shared or in_place else d.r.choice([1, 2]), 2)

        def rounds() -> None:
            d.inside_loop(k, lo, hi, most, body)
            if in_place:
                _store_to(d, a, (row, zero))

        d.inside_loop(name, literal(0, "i32"), count, outer, rounds)
    else:
        d.inside_loop(k, lo, hi, most, body)
    _epilogue(d, [(acc.name, t) for acc, t in zip(accs, types, strict=True)])


def _store_to(d: Draw, a: Access, at: tuple[E, E]) -> None:
    """Changes a block of an operand: the next loop over K reads that."""
    array = d.array_of(a.array)
    chosen = [typed(n, array.dtype, a.sizes) for n in (array.lo, array.hi)]
    value = make("select", d.tile(a.sizes, "i1", 1), *chosen)
    d.out.append(Store(Access(a.array, at, a.sizes, bounded=(0, 1)), value))


def batches(d: Draw, dtype: str) -> None:
    """acc += A·B of some matrices at once."""
    r, s = d.r, _sizes(d, dtype)
    count, rows = r.choice([(1, 16), (2, 16), (2, 32), (3, 16), (4, 16), (4, 32)])
    lo, hi, most = _loop(d, dtype)
    k = d.fresh("k")
    step = make("mul", var(k, T("i32", (), 0, most - 1)), literal(s.k, "i32"))
    first, zero = make("mul", d.slot, literal(count, "i32")), literal(0, "i32")
    deep = most * s.k
    a = _batch(d, dtype, (first, zero, step), (d.slots * count, rows, deep), (count, rows, s.k))
    right = r.choice(IN_ORDER[dtype])
    b = _batch(d, right, (first, step, zero), (d.slots * count, deep, s.n), (count, s.k, s.n))
    acc = _Sum(d, (count, rows, s.n), sums(dtype))
    operand = T(dtype, (count, rows, s.k), -8, 8), T(right, (count, s.k, s.n), -8, 8)
    t = acc.begin(var("x", operand[0]), var("y", operand[1]), most)

    def body() -> None:
        x, y = _touched(d, d.loaded(a)), _touched(d, d.loaded(b))
        d.out.append(Let(acc.name, acc.step(var(acc.name, t), x, y)))

    d.inside_loop(k, lo, hi, most, body)
    e = var(acc.name, t)
    if d.maybe(0.4):
        e = d.let(d.fresh("v"), make("reshape", e, shape=(count * rows, s.n)))
    d.store_value(e, t.dtype)


def _batch(
    d: Draw, dtype: str, at: tuple[E, ...], reach: tuple[int, ...], sizes: tuple[int, ...]
) -> Access:
    """How a batch of matrices is read."""
    cut = [d.maybe(0.3) and n > 1 for n in reach]
    shape = [
        max(1, n - d.r.randrange(1, min(n, 20))) if c else max(1, n)
        for n, c in zip(reach, cut, strict=True)
    ]
    array = d.array(dtype, tuple(shape), lo=0 if dtype == "u8" else -2, hi=2)
    way = d.r.choice(["ptr", "ptr", "desc"])
    if way == "desc" and d.array_of(array).pad % (16 // max(1, FORMATS[dtype].bits // 8)):
        way = "ptr"
    bounded = tuple(i for i, c in enumerate(cut) if c or way == "desc" or d.maybe(0.3))
    return Access(array, at, sizes, way, bounded=bounded)


def scaled(d: Draw) -> None:
    """acc = dot_scaled(A, its scales, B, its scales, acc) over a loop."""
    r = d.r
    formats = r.choice(["e4m3", "e5m2", PACKED]), r.choice(["e4m3", "e5m2", PACKED, "bf16"])
    m, n, k = r.choice([16, 32, 64]), r.choice([16, 32, 64]), r.choice([32, 64, 128])
    lo, hi, most = _loop(d, "e4m3")
    at = d.fresh("k")
    step, zero = var(at, T("i32", (), 0, most - 1)), literal(0, "i32")
    slot = make("mul", d.slot, literal(m, "i32"))

    def block(format: str, k_axis: int) -> Access:
        each = k // (2 if format == PACKED else 1)
        place = make("mul", step, literal(each, "i32"))
        dtype = "u8" if format == PACKED else format
        told = {"lo": 0, "hi": 255} if dtype == "u8" else {}
        sizes, reach = (m, each), (d.slots * m, most * each)
        where = slot, place
        if k_axis == 0:
            sizes, reach, where = (each, n), (most * each, n), (place, zero)
        return Access(d.array(dtype, tuple(max(1, x) for x in reach), **told), where, sizes)

    def factors(rows: int, slots: int, first: E) -> Access:
        groups = k // 32
        place = make("mul", step, literal(groups, "i32"))
        array = d.array("u8", (slots * rows, max(1, most * groups)), lo=SCALES[0], hi=SCALES[1])
        return Access(array, (first, place), (rows, groups))

    left, right = block(formats[0], 1), block(formats[1], 0)
    scales = factors(m, d.slots, slot), factors(n, 1, zero)
    name, start = d.fresh("acc"), typed(0, "f32", (m, n))

    def product(acc: E, x: E, y: E, of_x: E, of_y: E) -> E:
        return make("dot_scaled", x, y, acc, of_x, of_y, formats=formats)

    def given(access: Access) -> E:
        a = d.array_of(access.array)
        return var("x", T(a.dtype, access.sizes, a.lo, a.hi))

    t = _grown(start.t, lambda acc: product(acc, *map(given, (left, right, *scales))), name, most)
    d.out.append(Let(name, start))
    d.vars.append((name, t))

    def body() -> None:
        values = [d.loaded(x) for x in (left, right, *scales)]
        d.out.append(Let(name, product(var(name, t), *values)))

    d.inside_loop(at, lo, hi, most, body)
    _epilogue(d, [(name, t)])


def _epilogue(d: Draw, accs: list[tuple[str, T]]) -> None:
    """What becomes of the sums."""
    values = [var(*a) for a in accs]
    e = values[0]
    if len(values) > 1 and values[0].t.shape == values[1].t.shape:
        op = d.r.choice(["add", "sub", "max", "select"])
        if op == "select":
            e = make("select", make("gt", values[0], literal(0, e.t.dtype)), *values)
        else:
            e = make(op, *values)
    if d.maybe(0.4):
        row = d.tile(e.t.shape[:1], e.t.dtype, 1)
        e = make("add", e, make("expand_dims", row, axis=1, as_index=True))
    if d.maybe(0.3):
        e = make("max", e, typed(0, e.t.dtype))
    e = d.let(d.fresh("v"), e)
    if d.maybe(0.2):
        d.let(d.fresh("v"), make("reduce", d.to(e, "f32") if e.t.dtype == "i32" else d.tame(e, 64),
                                axis=d.r.randrange(2), fn=d.r.choice(["sum", "max"])))  # fmt: skip
        d.store_out()
    d.vars.append(d.vars.pop(next(i for i, (n, _) in enumerate(d.vars) if n == e.attrs["name"])))
    small = d.tame(e) if e.t.format.is_float else e
    dtype = d.r.choice(["f32", "bf16", "f16", "f32", "i32"])
    value = e if dtype == e.t.dtype else d.to(small, dtype)
    d.store_value(value, dtype)


def chain(d: Draw, dtype: str) -> None:
    """acc += f(Q·Kᵀ)·V over blocks of keys, as in attention."""
    r, unit = d.r, UNIT[dtype]
    head = unit * r.choice([1, 2]) if unit >= 16 else 16
    keys = max(unit, r.choice([32, 64]))
    width = r.choice([8, 16, 24, 32] if d.in_order else [16, 32, 64])
    of_sums = sums(dtype)
    m = d.rows
    lo, hi, most = _loop(d, dtype)
    n = d.fresh("n")
    place = make("mul", var(n, T("i32", (), 0, most - 1)), literal(keys, "i32"))
    zero = literal(0, "i32")
    q_access, _ = _operand(
        d, dtype, (make("mul", d.slot, literal(m, "i32")), zero), (d.slots * m, head), (m, head), ""
    )
    q = _touched(d, d.loaded(q_access))
    transposed = d.maybe(0.5)
    at, reach, sizes = ((place, zero), (most * keys, head), (keys, head))
    if transposed:
        at, reach, sizes = at[::-1], reach[::-1], sizes[::-1]  # type: ignore[assignment]
    k_access, _ = _operand(d, dtype, at, reach, sizes, n)
    v_access, _ = _operand(d, dtype, (place, zero), (most * keys, width), (keys, width), n)
    acc = _Sum(d, (m, width), of_sums)
    t = acc.begin(
        var("x", T(dtype, (m, keys), -2, 2)), var("y", T(dtype, (keys, width), -2, 2)), most
    )
    peak = T(of_sums, (m,), 0, 16)
    with_peak, total = d.maybe(0.5), d.maybe(0.4)
    if with_peak:
        d.let("peak", typed(0, of_sums, (m,)))
        d.vars[-1] = ("peak", peak)
    totals = T(of_sums, (m,), -2 * keys * most, 2 * keys * most)
    if total:
        d.let("total", typed(0, of_sums, (m,)))
        d.vars[-1] = ("total", totals)

    def body() -> None:
        keys_tile = d.loaded(k_access)
        right = keys_tile if transposed else make("permute", keys_tile, perm=(1, 0))
        scores = d.let(d.fresh("s"), d.fit(make("dot", q, right, options=()), -16, 16))
        p: E = d.fit(scores, -2, 2)
        if with_peak:
            new = d.let(
                d.fresh("v"),
                d.fit(
                    make("max", var("peak", peak), make("reduce", scores, axis=1, fn="max")), 0, 16
                ),
            )
            column = make("expand_dims", new, axis=1, as_index=True)
            near = make("gt", scores, make("sub", column, literal(r.choice([2, 4]), of_sums)))
            p = make("select", near, p, typed(0, of_sums))
            d.out.append(Let("peak", new))
        elif d.maybe(0.4):
            p = make("select", d.tile(p.t.shape, "i1", 2), p, typed(r.choice([0, 1]), of_sums))
        p = d.let(d.fresh("p"), p)
        if total:
            d.out.append(
                Let(
                    "total",
                    make(
                        "add",
                        var("total", totals.like(lo=0, hi=0)),
                        make("reduce", p, axis=1, fn="sum"),
                    ),
                )
            )
        values = d.loaded(v_access)
        d.out.append(Let(acc.name, acc.step(var(acc.name, t), d.to(p, dtype), values)))

    d.inside_loop(n, lo, hi, most, body)
    if total:
        d.let(d.fresh("v"), d.tame(var("total", totals), 64))
        d.store_out()
    _epilogue(d, [(acc.name, t)])
