"""Random expressions over the variables that are visible: well typed, and exact."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from tests.fuzz.numbers import FORMATS
from tests.fuzz.ops import (
    ASSEMBLY,
    IN_TURN,
    LIBDEVICE,
    LOOSE,
    PAIRS,
    ROUNDED,
    SPECIAL,
    Inexact,
    literal,
    make,
    typed,
    var,
)
from tests.fuzz.tree import E, T, parts

# What a drawn value may be at most, and how fine: what the next op does with it still fits the format.
LIMIT = {"f64": 256, "f32": 256, "f16": 64, "bf16": 16, "e4m3": 4, "e5m2": 4}
GRAIN = {"f64": 4, "f32": 4, "f16": 2, "bf16": 1, "e4m3": 0, "e5m2": 0}
COMPUTED = ("f32", "f32", "f32", "f16", "bf16", "i32", "i32")
STORED = (
    "f32",
    "f32",
    "f16",
    "bf16",
    "i32",
    "i32",
    "i16",
    "i8",
    "u8",
    "u32",
    "i64",
    "e4m3",
    "e5m2",
    "u16",
    "f64",
)


# The first seed that draws libdevice's functions, gathers, flips and sorts: those before it keep their kernels.
FUNCTIONS_FROM = 90_000
SPECIAL_FROM = 150_000  # likewise, of those that neither Python nor NumPy has
ZEROS_FROM = 300_000  # likewise, of integers divided by what may be 0
PAIRS_FROM = (
    400_000  # likewise, of functions that combine pairs, square roots that are rounded, and PTX
)


class Expressions:
    """Draws expressions.  `vars` are the visible variables, the latest last."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.has_functions = seed >= FUNCTIONS_FROM
        of_libdevice = LIBDEVICE | (SPECIAL if seed >= SPECIAL_FROM else {})
        of_libdevice |= ROUNDED if seed >= PAIRS_FROM else {}
        self.of_libdevice = of_libdevice if self.has_functions else {}
        self.has_zeros, self.has_pairs = seed >= ZEROS_FROM, seed >= PAIRS_FROM
        self.vars: list[tuple[str, T]] = []
        self.made = 0
        self.helpers = 0

    def maybe(self, p: float) -> bool:
        return self.r.random() < p

    def fresh(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    # ---- making values fit

    def tame(self, e: E, limit: float | None = None) -> E:
        """e within the limits of its dtype: clamped, and rounded down where it is too fine."""
        d = e.t.dtype
        if not e.t.format.is_float or e.t.format.bits == 8:
            return e
        if e.t.grain > GRAIN[d]:
            e = self.to(make("floor", self.to(e, "f32")), d)
        limit = LIMIT[d] if limit is None else limit
        if e.t.top > limit:
            e = self.fit(e, -limit, limit)
        return e

    def fit(self, e: E, lo: float, hi: float) -> E:
        """e clamped to [lo, hi], in its dtype."""
        d = e.t.dtype
        bounded = make("min", make("max", e, typed(lo, d)), typed(hi, d))
        return self.to(bounded, d)

    def to(self, e: E, dtype: str) -> E:
        """e as another dtype, made small enough to be exact in it."""
        if e.t.dtype == dtype:
            return e
        f, g = e.t.format, FORMATS[dtype]
        if f.bits == 8 and f.is_float and not g.is_float:
            e = make("cast", e, dtype="f32")
            f = e.t.format
        if g.is_float and f.is_int and e.t.top > LIMIT[dtype]:
            by = self.r.choice([3, 5, 7]) if LIMIT[dtype] > 8 else 3
            e = make("rem", e, literal(by, e.t.dtype))
        elif f.is_float and g.is_float and (e.t.top > LIMIT[dtype] or e.t.grain > GRAIN[dtype]):
            if f.bits == 8:
                e = make("cast", e, dtype="f32")
            e = self.tame(e, LIMIT[dtype])
            if e.t.grain > GRAIN[dtype]:
                e = self.to(make("floor", self.to(e, "f32")), dtype)
        elif f.is_float and g.is_int:
            low, high = max(g.range[0], -100), min(g.range[1], 100)
            if e.t.lo < low or e.t.hi > high:
                e = self.fit(self.to(e, "f32") if f.bits < 32 else e, low, high)
        return e if e.t.dtype == dtype else make("cast", e, dtype=dtype)

    # ---- drawing

    def tile(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        """A value of a shape (() for a number) and dtype, with up to `depth` ops on the way to variables."""
        for _ in range(6):
            try:
                return self.tame(self._tile(shape, dtype, depth))
            except Inexact:
                depth = max(0, depth - 1)
        return self.leaf(shape, dtype)

    def _tile(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        if depth <= 0:
            return self.leaf(shape, dtype)
        if shape and self.maybe(0.3):
            e = self.by_shape(shape, dtype, depth)
            if e is not None:
                return e
        if dtype == "i1":
            return self.truth(shape, depth)
        f = FORMATS[dtype]
        if f.is_float and f.bits == 8:
            if self.maybe(0.2):
                two = (self.tile(shape, dtype, depth - 1) for _ in range(2))
                return make("select", self.tile(shape, "i1", 1), *two)
            return self.to(self.tile(shape, "f32", depth - 1), dtype)
        if self.has_pairs and dtype in ASSEMBLY and self.maybe(0.04):
            two = (self.tile(shape, dtype, depth - 1) for _ in range(2))
            return make("asm", *two, text=self.r.choice(ASSEMBLY[dtype]))
        if self.has_zeros and dtype in ("i32", "f32") and self.maybe(0.12):
            return self.to(self.divided_where(shape, depth), dtype)
        if self.maybe(0.12):
            return self.call(shape, dtype, depth)
        draw = self.r.choice(self.floats if f.is_float else self.integers)
        return draw(self, shape, dtype, depth)

    def leaf(self, shape: tuple[int, ...], dtype: str) -> E:
        """A variable where there is a fitting one, else something of constants and indices."""
        exact = [(n, t) for n, t in self.vars if t.shape == shape and not t.err]
        same = [v for v in exact if v[1].dtype == dtype]
        r = self.r
        if same and self.maybe(0.75):
            return self.tame(var(*r.choice(same[-4:])))
        if exact and self.maybe(0.7):
            v = var(*r.choice(exact[-4:]))
            if v.t.dtype == "i1" and dtype != "i1":
                return make("select", v, typed(1, dtype, shape), typed(2, dtype, shape))
            if dtype == "i1":
                return self.compare(v)
            return self.to(v, dtype)
        if dtype == "i1":
            return self.compare(self.leaf(shape, "i32"))
        if len(shape) == 1 and self.maybe(0.5):
            lo = r.choice([0, 0, 1, 5])
            return self.to(make("arange", lo=lo, hi=lo + shape[0]), dtype)
        if len(shape) == 2 and self.maybe(0.5):
            return self.spread(self.leaf((shape[r.randrange(2)],), dtype), shape)
        high = 4 if dtype in ("e4m3", "e5m2") else 9
        low = 0 if FORMATS[dtype].kind == "u" else -3
        return typed(
            r.randrange(low, high + 1) if dtype != "e5m2" else r.randrange(low, 5), dtype, shape
        )

    def spread(self, e: E, shape: tuple[int, ...]) -> E:
        """A vector as the rows or columns of a shape of two axes."""
        axis = 1 if e.t.shape[0] == shape[0] and (shape[0] != shape[1] or self.maybe(0.5)) else 0
        if e.t.shape[0] != shape[1 - axis]:
            axis = 1 - axis
        thin = make("expand_dims", e, axis=axis, as_index=self.maybe(0.7))
        return make("broadcast_to", thin, shape=shape)

    # ---- elementwise

    def two(self, shape: tuple[int, ...], dtype: str, depth: int) -> tuple[E, E]:
        """Two operands; the second may be a number or a broadcast vector of a lower rank."""
        x = self.tile(shape, dtype, depth - 1)
        if self.maybe(0.25):
            return x, literal(self.r.choice([1, 2, 3]), dtype)
        if len(shape) == 2 and self.maybe(0.25):
            axis = self.r.randrange(2)
            y = self.tile((shape[1 - axis],), dtype, depth - 1)
            return x, make("expand_dims", y, axis=axis, as_index=True)
        return x, self.tile(shape, dtype, depth - 1)

    def arithmetic(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        op = self.r.choice(["add", "sub", "mul", "add", "sub"])
        x, y = self.two(shape, dtype, depth)
        if self.maybe(0.1):
            return make("fma", x, y, self.tile(shape, dtype, depth - 1))
        return make(op, x, y)

    def extreme(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        op = self.r.choice(["min", "max"])
        out = make(op, self.tile(shape, dtype, depth - 1), self.tile(shape, dtype, depth - 1))
        return self.to(out, dtype)

    def unary(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        f = FORMATS[dtype]
        x = self.tile(shape, dtype, depth - 1)
        if f.kind == "u":
            return make("not", x)
        return make(self.r.choice(["neg", "abs"] if f.is_float else ["neg", "abs", "not"]), x)

    def choice(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        x, y = (self.tile(shape, dtype, depth - 1) for _ in range(2))
        if self.maybe(0.2):
            y = literal(self.r.choice([0, 1, 2]), dtype)
        return make("select", self.tile(shape, "i1", depth - 1), x, y)

    def converted(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        other = self.r.choice(STORED)
        return self.to(self.tile(shape, other, depth - 1), dtype)

    def rounded(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        x = make(
            "mul", self.tile(shape, "f32", depth - 1), literal(self.r.choice([0.5, 0.25]), "f32")
        )
        more = ("rint", "trunc", "round") if self.has_functions else ()
        return self.to(make(self.r.choice(["floor", "ceil", *more]), x), dtype)

    def special(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        x = self.tile(shape, "f32", depth - 1)
        match self.r.randrange(3):
            case 0:
                whole = make("floor", x) if x.t.grain else x
                return self.to(make("exp2", self.fit(whole, -3, 3)), dtype)
            case 1:
                return self.to(make("rem", x, literal(self.r.choice([2, 3, 5]), "f32")), dtype)
            case _:
                bits = make("bitcast", x, dtype="i32")
                return self.to(make("bitcast", bits, dtype="f32", back=x.t), dtype)

    def bitwise(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        op = self.r.choice(["and", "or", "xor", "and"])
        return make(op, self.tile(shape, dtype, depth - 1), self.tile(shape, dtype, depth - 1))

    def shifted(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        by = literal(self.r.choice([1, 2, 3]), dtype)
        return make(self.r.choice(["shl", "shr"]), self.tile(shape, dtype, depth - 1), by)

    def divided(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        x = self.tile(shape, dtype, depth - 1)
        if self.maybe(0.3) and dtype == "i32":
            y: E = make(
                "add",
                make("rem", make("abs", self.tame_int(shape, depth)), literal(9, dtype)),
                literal(1, dtype),
            )
        else:
            y = literal(self.r.choice([2, 3, 7, 10]), dtype)
        return make(self.r.choice(["idiv", "rem"]), x, y)

    def divided_where(self, shape: tuple[int, ...], depth: int) -> E:
        """Integers by others, some of which may be 0 at run time: what those give is not taken."""
        x = self.tile(shape, "i32", depth - 1)
        y = make("rem", self.tame_int(shape, depth), literal(self.r.choice([2, 3, 9]), "i32"))
        q = make(self.r.choice(["idiv", "rem"]), x, y)
        if self.maybe(0.5):
            q = self.tame(make("add", q, self.leaf(shape, "i32")))
        taken = make("ne", y, literal(0, "i32"))
        if self.maybe(0.3):
            return make("select", make("and", taken, make("gt", q, literal(1, "i32"))), q, x)
        return make("select", taken, q, self.leaf(shape, "i32"))

    def tame_int(self, shape: tuple[int, ...], depth: int) -> E:
        return make("rem", self.tile(shape, "i32", depth - 1), literal(100, "i32"))

    def bits(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        """The bits of a float that is not -0."""
        x = make("abs", self.tile(shape, "f32", depth - 1))
        return self.to(make("bitcast", x, dtype="i32"), dtype)

    floats: tuple[Callable[..., E], ...] = (
        arithmetic, arithmetic, arithmetic, extreme, unary, choice, choice, converted, rounded, special,
    )  # fmt: skip
    integers: tuple[Callable[..., E], ...] = (
        arithmetic, arithmetic, extreme, unary, choice, converted, bitwise, bitwise, shifted, divided, bits,
    )  # fmt: skip

    # ---- truth values

    def compare(self, x: E, y: E | None = None) -> E:
        d = x.t.dtype
        if x.t.format.is_float and x.t.format.bits == 8:
            x = make("cast", x, dtype="f32")
            d = "f32"
        other = y if y is not None and y.t.dtype == d else literal(self.r.choice([0, 1, 2, 3]), d)
        return make(self.r.choice(["lt", "le", "gt", "ge", "eq", "ne"]), x, other)

    def truth(self, shape: tuple[int, ...], depth: int) -> E:
        r = self.r.random()
        if r < 0.25 and depth > 1:
            op = self.r.choice(["and", "or", "xor"])
            return make(op, self.truth(shape, depth - 1), self.truth(shape, depth - 1))
        if r < 0.35:
            return make("not", self.truth(shape, depth - 1))
        dtype = self.r.choice(("f32", "i32", "f16", "bf16", "i8", "u32"))
        x = self.tile(shape, dtype, depth - 1)
        return self.compare(x, self.tile(shape, dtype, depth - 2) if self.maybe(0.4) else None)

    # ---- shapes

    def by_shape(self, shape: tuple[int, ...], dtype: str, depth: int) -> E | None:
        """A value whose elements come from other places; None where nothing fits."""
        if FORMATS[dtype].bits == 8 and self.maybe(0.5):
            return None
        r, d = self.r, depth - 1
        match r.randrange(8 if self.has_functions else 7):
            case 7:
                return self.moved(shape, dtype, d)
            case 0 if len(shape) == 2:
                return make("permute", self.tile(shape[::-1], dtype, d), perm=(1, 0))
            case 1 if len(shape) == 2:
                return self.spread(self.tile((shape[r.randrange(2)],), dtype, d), shape)
            case 2:
                return self.reduced(shape, dtype, d)
            case 3:
                return self.scanned(shape, dtype, d)
            case 4 if shape[-1] % 2 == 0:
                half = (*shape[:-1], shape[-1] // 2)
                return make("interleave", self.tile(half, dtype, d), self.tile(half, dtype, d))
            case 5 if math.prod(shape) <= 4096:
                pair = make("join", self.tile(shape, dtype, d), self.tile(shape, dtype, d))
                return make("half", pair, which=r.randrange(2))
            case 6:
                return self.reshaped(shape, dtype, d)
        return None

    def moved(self, shape: tuple[int, ...], dtype: str, depth: int) -> E | None:
        """Elements at other places of their axis: by an index, turned around, or in order."""
        if FORMATS[dtype].bits == 8 and FORMATS[dtype].is_float:
            return None
        r, axis = self.r, self.r.randrange(len(shape))
        x = self.tile(shape, dtype, depth)
        n = shape[axis]
        is_power = n & (n - 1) == 0
        if r.random() < 0.6 or not is_power:
            at = make("abs", self.tame_int(shape, depth))
            return make("gather", x, make("rem", at, literal(n, "i32")), axis=axis)
        if (
            r.random() < 0.5
            or dtype == "i1"
            or math.prod(shape) > 1024
            or shape[-1] & (shape[-1] - 1)
        ):
            return make("flip", x, axis=axis)
        return make("sort", x, descending=self.maybe(0.5))

    def reshaped(self, shape: tuple[int, ...], dtype: str, depth: int) -> E | None:
        """By way of another shape of as many elements."""
        size, r = math.prod(shape), self.r
        others = {t.shape for _, t in self.vars if math.prod(t.shape) == size and t.shape != shape}
        if others and self.maybe(0.7):
            source = self.tile(r.choice(sorted(others)), dtype, depth)
            return self.ravelled(source, shape)
        if len(shape) == 2 and shape[0] % 2 == 0:
            x = make("reshape", self.tile(shape, dtype, depth), shape=(2, shape[0] // 2, shape[1]))
            perm = r.choice([(0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1)])
            return make("reshape", make("permute", x, perm=perm), shape=shape)
        return None

    def ravelled(self, x: E, shape: tuple[int, ...]) -> E:
        if len(shape) == 1 and len(x.t.shape) > 1:
            return make("ravel", x)
        return make("reshape", x, shape=shape, spell=self.r.choice(["reshape", "view"]))

    def along(self, dtype: str, fns: tuple[str, ...]) -> tuple[str, bool]:
        """(what combines, whether a function of the user does)."""
        fn = self.r.choice(
            fns if FORMATS[dtype].is_int else [f for f in fns if f not in ("xor", "and", "or")]
        )
        narrow = dtype == "bf16" and fn in ("min", "max")
        return fn, self.maybe(0.3) and not narrow

    def reduced(self, shape: tuple[int, ...], dtype: str, depth: int) -> E | None:
        """A reduction of what has one more axis."""
        r = self.r
        source = r.choice(["f32", "i32", dtype])
        if (FORMATS[source].bits == 8 and FORMATS[source].is_float) or source == "i1":
            source = "f32"
        wider = [t.shape for _, t in self.vars if len(t.shape) == len(shape) + 1]
        fits = [(s, a) for s in wider for a in range(len(s)) if (*s[:a], *s[a + 1 :]) == shape]
        if fits:
            big, axis = r.choice(fits)
        elif len(shape) == 1 and math.prod(shape) <= 256:
            axis = r.randrange(2)
            big = (*shape[:axis], r.choice([4, 16]), *shape[axis:])
        else:
            return None
        x = self.tile(big, source, depth)
        if r.random() < 0.12:
            return self.to(make("reduce", x, axis=axis, fn=r.choice(["argmax", "argmin"])), dtype)
        if self.has_pairs and r.random() < 0.25:
            return self.to(self.paired("reduce_pair", self.to(x, "f32"), axis), dtype)
        fn, own = self.along(source, ("sum", "sum", "max", "min", "xor", "and", "or", "mul"))
        if fn == "mul" and source in ("f32", "f16", "bf16"):
            x = self.fit(make("floor", self.to(x, "f32")), -1, 1)
            own = False
        elif fn == "sum" and x.t.format.is_float:
            x = self.tame(x, max(1, LIMIT[source] // 16))
        return self.to(make("reduce", x, axis=axis, fn=fn, by_function=own), dtype)

    def scanned(self, shape: tuple[int, ...], dtype: str, depth: int) -> E | None:
        r, source = self.r, self.r.choice(["f32", "i32"])
        x = self.tile(shape, source, depth)
        if self.has_pairs and r.random() < 0.25:
            axis, back = r.randrange(len(shape)), self.maybe(0.3)
            pair = self.paired("scan_pair", self.to(x, "f32"), axis, reverse=back)
            return self.to(pair, dtype)
        fn, own = self.along(source, ("sum", "sum", "max", "min", "xor", "mul"))
        if fn == "mul":
            x = self.fit(make("floor", x) if source == "f32" else x, -1, 1)
        elif fn == "sum" and source == "f32":
            x = self.tame(x, 8)
        axis, back = r.randrange(len(shape)), self.maybe(0.3)
        return self.to(make("scan", x, axis=axis, fn=fn, reverse=back, by_function=own), dtype)

    def paired(self, op: str, x: E, axis: int, **rest: bool) -> E:
        """Two tiles reduced or scanned together, by a function that gives both parts at once."""
        fn = self.r.choice(
            sorted(PAIRS) if op == "scan_pair" else [f for f in sorted(PAIRS) if f not in IN_TURN]
        )
        y = self.tile(x.t.shape, "i32" if fn == "furthest" else "f32", 1)
        x = self.fit(make("floor", x), -1, 1) if fn == "affine" else self.tame(x, 8)
        y = self.tame(y, 8)
        return make(op, x, y, axis=axis, fn=fn, which=self.r.randrange(2), **rest)

    # ---- helpers

    def call(self, shape: tuple[int, ...], dtype: str, depth: int) -> E:
        """A call of a function of its own, which computes something of its parameters (perhaps in cases)."""
        actual = [self.tile(shape, dtype, depth - 1) for _ in range(self.r.choice([1, 2]))]
        number = None
        if self.maybe(0.3):
            number = self.number()
            actual.append(number)
        saved, self.vars = self.vars, [(f"x{i}", a.t) for i, a in enumerate(actual)]
        inner: list[E] = []
        if number is not None and self.maybe(0.7):
            inner = [self.compare(var(*self.vars[-1])), self.tile(shape, dtype, 1)]
        last = self.tile(shape, dtype, 2)
        if not any(p.op == "var" for p in parts(last)):
            last = var(*self.vars[0])
        self.vars = saved
        t = last.t if not inner else inner[1].t.hull(last.t)
        self.helpers += 1
        name = f"helper{self.helpers}"
        return E("call", tuple(actual), t, {"name": name, "bodies": (*inner, last)})

    # ---- numbers

    def number(self) -> E:
        """A run-time integer with a known small range."""
        small = [(n, t) for n, t in self.vars if t.shape == () and t.dtype == "i32" and t.top <= 64]
        if not small:
            return typed(self.r.randrange(4), "i32")
        e = var(*self.r.choice(small))
        if self.maybe(0.3):
            e = make(self.r.choice(["add", "mul"]), e, literal(self.r.choice([1, 2]), "i32"))
        return e

    def test(self) -> E:
        """A condition of a number."""
        e = self.number()
        if self.maybe(0.3):
            e = make("rem", e, literal(2, "i32"))
        test = self.compare(e)
        if self.maybe(0.2):
            test = make(self.r.choice(["and", "or"]), test, self.compare(self.number()))
        return test

    # ---- what rounds

    def of_two(self, x: E) -> E:
        """A function of x and something else."""
        y = self.tile(x.t.shape, "f32", 1)
        if self.maybe(0.5):
            return make("atan2", x, self.fit(y, 1, 32))
        return make("pow", self.fit(x, 0.5, 4), self.fit(y, -2, 2))

    def loose(self, shape: tuple[int, ...], depth: int) -> E:
        """An f32 tile of elementary functions, with a bound of its error."""
        x = self.tile(shape, "f32", 1) if depth <= 1 else self.loose(shape, depth - 1)
        if self.has_pairs and self.maybe(0.15):
            return self.of_two(x)
        r = self.r.random()
        if r < 0.6 or not x.t.err:
            name = self.r.choice(sorted((*LOOSE, *self.of_libdevice)))
            low, high = LOOSE[name][2:4] if name in LOOSE else self.of_libdevice[name][1:3]
            return make(name, self.fit(x, low, high))
        if r < 0.75 and self.has_functions and self.maybe(0.5):
            return self.of_two(x)
        if r < 0.75:
            y = self.fit(self.tile(shape, "f32", 1), 1, 32)
            return make(self.r.choice(["div", "div_rn", "fdiv"]), x, y)
        if r < 0.9:
            return make(
                self.r.choice(["add", "sub", "mul"]), x, self.tame(self.tile(shape, "f32", 1), 8)
            )
        return make("select", self.tile(shape, "i1", 1), x, self.tile(shape, "f32", 1))
