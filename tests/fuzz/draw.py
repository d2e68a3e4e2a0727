"""Draws a random kernel of a seed: programs, loops, memory, products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.draw_expr import LIMIT, STORED, Expressions
from tests.fuzz.numbers import FORMATS, holds
from tests.fuzz.ops import Inexact, literal, make, typed, var
from tests.fuzz.tree import (
    Access,
    Array,
    Atomic,
    E,
    For,
    If,
    Kernel,
    Let,
    Load,
    Note,
    Return,
    Store,
    T,
    While,
)

READ = ("f32", "f16", "bf16", "i32", "i8", "e4m3", "e5m2", "u8", "i64", "f16", "bf16", "f32", "i16")
IN_ORDER_FROM = (
    60_000  # the first seed that may draw dots in registers: those before it keep their kernels
)
SPLIT_K_FROM = 100_000  # likewise: loops whose iterations CTAs share
ODD_WARPS_FROM = 300_000  # likewise: numbers of warps beside a dot that are no power of two
SHARED_FROM = (
    400_000  # likewise: split_k is for loops drawn to be shared, and reads go by addresses
)
LAST_WAVE_FROM = 600_000  # likewise: programs of the last wave whose iterations CTAs share
BLOCKS = 4  # the most that a loop's index times its step goes through, in blocks of an array


class Draw(Expressions):
    """One kernel under construction.  `out` is the block that statements go to."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed
        self.out: list[Any] = []
        self.arrays: list[Array] = []
        self.numbers: dict[str, int] = {}
        self.knobs: dict[str, Any] = {}
        self.budget = self.r.randrange(4, 12)
        self.repeats = 1  # iterations of the loops around, at most
        self.loops: list[tuple[str, int]] = []  # (variable, iterations) of the loops around
        self.is_top = True
        self.in_order = False  # dots that one warp does by itself, in registers
        self.is_shared = False  # CTAs share the iterations of the loop of dots

    # ---- the frame

    def kernel(self) -> Kernel:
        r = self.r
        # Imported here: products draw statements too.
        from tests.fuzz.draw_dots import product

        has_dots = self.maybe(0.66 if self.seed >= SHARED_FROM else 0.55)
        self.is_shared = has_dots and self.seed >= SHARED_FROM and self.maybe(0.3)
        grid = r.choice([(1,), (2,), (2,), (3,), (2, 2), (1, 2), (2, 1, 2)])
        self.is_line = len(grid) == 1
        programs = self.programs(grid)
        self.tiles(programs)
        if has_dots:
            self.in_order = self.seed >= IN_ORDER_FROM and self.maybe(1 / 3)
            self.rows = r.choice(
                [16, 16, 32, 32, 48, 64, 80]
                if self.in_order
                else [64] * 12 + [128] * 4 + [192, 256]
            )
            product(self)
        else:
            self.rows = r.choice([16, 32, 64, 64, 128])
            self.statements(self.budget)
        for _ in range(r.choice([1, 1, 2])):
            self.store_out()
        body = self.out
        while self.around:
            body = [*self.around.pop(), self.wrap.pop()(tuple(body))]
        self.choose_knobs(has_dots)
        return Kernel(self.seed, tuple(body), tuple(self.arrays), self.numbers, grid, self.knobs)

    def programs(self, grid: tuple[int, ...]) -> int:
        """`pid`: the program's number."""
        total = 1
        e: E | None = None
        for axis, n in enumerate(grid):
            here = make("program_id", axis=axis, most=n)
            if e is None:
                e = here
            else:
                e = make("add", make("mul", e, make("num_programs", axis=axis, most=n)), here)
            total *= n
        assert e is not None
        self.let("pid", e)
        return total

    def tiles(self, programs: int) -> None:
        """`slot`: the number of the tile at work, no two of them alike; perhaps of a persistent loop."""
        self.around: list[list[Any]] = []
        self.wrap: list[Callable[[tuple[Any, ...]], Any]] = []
        if not self.is_shared and self.maybe(0.25):
            self.return_early(programs)
        pid = self.vars[0]
        self.is_persistent = not self.is_shared and self.maybe(0.3)
        if self.is_persistent:
            count = self.integer("tiles", self.r.randrange(0, 2 * programs + 1), 2 * programs)
            self.persistent(var(*pid), count, programs)
            return
        self.slot, self.slots = var(*pid), programs

    def return_early(self, programs: int) -> None:
        pid = var(*self.vars[0])
        bound = self.integer("limit", self.r.randrange(1, programs + 1), programs)
        test = make(self.r.choice(["ge", "ge", "eq"]), pid, bound)
        self.out.append(Return(test))

    def persistent(self, pid: E, count: E, programs: int) -> None:
        """A loop over tiles, `programs` apart."""
        name = self.fresh("tile")
        t = T("i32", (), 0, max(0, int(count.t.hi) - 1))
        hints = self.hints()
        self.around.append(self.out)
        self.out = []
        step = "tl.num_programs(0)" if self.is_line and self.maybe(0.8) else ""
        self.wrap.append(
            lambda body: For(name, pid, count, programs, "tl.range", hints, body, step)
        )
        self.slot, self.slots = var(name, t), int(count.t.hi)
        self.vars.append((name, t))

    def hints(self) -> tuple[tuple[str, Any], ...]:
        """Of a tl.range."""
        r, found = self.r, []
        if self.maybe(0.3):
            found.append(("num_stages", r.choice([1, 2, 3, 4])))
        if self.maybe(0.2):
            found.append(("warp_specialize", r.choice([True, True, False])))
        if self.maybe(0.1):
            found.append(("flatten", True))
        if self.maybe(0.1):
            found.append(("loop_unroll_factor", 2))
        if self.maybe(0.05):
            found.append(("disallow_acc_multi_buffer", True))
        return tuple(found)

    def choose_knobs(self, has_dots: bool) -> None:
        r, k = self.r, self.knobs
        warps = [4, 4, 4, 8] if has_dots else [1, 2, 4, 4, 8]
        if self.in_order:
            warps = [1, 2, 8] if self.rows % 64 == 0 else [1, 2, 4, 4, 8]
            if self.seed >= ODD_WARPS_FROM:
                warps += [3, 5, 6]
            if self.seed >= SHARED_FROM:  # others have no tasks
                warps += [8, 8] if self.rows % 64 == 0 else [4, 4, 8]
        k["num_warps"] = r.choice(warps)
        if has_dots:
            groups = r.choice([None, None, 0, 1, 1, 2, 2, *([1, 2] * (self.seed >= SHARED_FROM))])
            if groups is not None:
                k["num_consumer_groups"] = groups
            if groups and self.maybe(0.5):
                k["num_buffers_warp_spec"] = r.choice([1, 2, 3, 4])
            if groups != 0:
                if self.is_persistent and self.maybe(0.4):  # what only a loop over tiles has
                    k |= (
                        {"num_consumer_groups": 2, "ping_pong": "tiles"}
                        if self.maybe(0.5)
                        else {"store_task": True}
                    )
                for name, values, p in (
                    ("ping_pong", [True, False, "tiles"], 0.15), ("consumer_stages", [1, 2], 0.1),
                    ("mma_wait_position", [0, 4, 8], 0.05), ("stagger_epilogues", [True, False], 0.05),
                    ("store_task", [True, False], 0.1), ("skip_idle", [True, "masked"], 0.08),
                    ("ctas_per_sm", [1, 2], 0.05),
                ):  # fmt: skip
                    if self.maybe(p):
                        k[name] = r.choice(values)
            if self.maybe(0.12):
                k["num_ctas"] = 2
        for name, values, p in (
            ("num_stages", [1, 2, 3, 4], 0.4), ("store_buffers", [0, 1, 2], 0.1),
            ("store_whole", [True, False], 0.05), ("matrix_unit", ["mma.sync" if self.seed >= IN_ORDER_FROM else None, None], 0.1), ("enable_fp_fusion", [False], 0.1),
            ("pdl", [False], 0.1), ("debug", [True], 0.04),
        ):  # fmt: skip
            if self.maybe(p):
                k[name] = r.choice(values)
        if self.seed >= SHARED_FROM:
            is_split = self.is_shared or self.maybe(0.01)
        else:
            is_split = has_dots and self.seed >= SPLIT_K_FROM and self.maybe(0.4)
        if is_split:
            k.pop("num_ctas", None)
            k["split_k"] = r.choice([2, 4, 8])
            if self.seed >= LAST_WAVE_FROM and self.maybe(0.4):
                k["split_k"] = "last_wave"

    # ---- what statements are built with

    def let(self, name: str, e: E) -> E:
        self.out.append(Let(name, e))
        self.vars.append((name, e.t))
        return var(name, e.t)

    def integer(self, stem: str, value: int, most: int) -> E:
        """A run-time argument, from 0 to `most`."""
        name = self.fresh(stem)
        self.numbers[name] = value
        t = T("i32", (), 0, most)
        self.vars.append((name, t))
        return var(name, t)

    def block(self, draw: Callable[[], None]) -> tuple[Any, ...]:
        """The statements that `draw` makes; the variables that it introduces end with it."""
        saved, self.out, n, top = self.out, [], len(self.vars), self.is_top
        self.is_top = False
        draw()
        made, self.out, self.is_top = tuple(self.out), saved, top
        del self.vars[n:]
        return made

    def assign(self, name: str, t: T, e: E) -> None:
        """A new value of a variable that keeps its type."""
        assert e.t.like(shape=t.shape).within(t) and e.t.shape == t.shape, (e.t, t)
        self.out.append(Let(name, e))

    def shape(self) -> tuple[int, ...]:
        """Of a tile: rows of the kernel, or something small."""
        r = self.r
        columns = r.choice([8, 16, 32, 32, 64])
        return r.choice(
            [(self.rows, columns), (self.rows, columns), (self.rows,), (columns,), (16, columns)]
        )

    def statements(self, budget: int) -> None:
        kinds: tuple[tuple[Callable[[], None], int], ...] = (
            (self.load_in, 6), (self.compute, 4), (self.loop, 2), (self.branch, 2), (self.gather, 2),
            (self.scratch, 2), (self.atomic, 2), (self.counted, 1), (self.repeat, 1), (self.note, 1),
            (self.store_out, 1), (self.loose_out, 1), (self.unroll, 1),
        )  # fmt: skip
        for _ in range(budget):
            draw = self.r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
            if len(self.loops) >= 2 and draw in (self.loop, self.repeat, self.unroll):
                draw = self.compute
            draw()

    # ---- memory

    def array(
        self,
        dtype: str,
        shape: tuple[int, ...],
        data: str = "ints",
        batched: bool = False,
        **rest: Any,
    ) -> str:
        name = self.fresh({"ints": "a", "empty": "o", "zeros": "z"}[data])
        r = self.r
        order = "c" if len(shape) == 2 and not batched and self.maybe(0.2) else "r"
        pad = r.choice([0, 0, 0, 0, 4, 1])
        if FORMATS[dtype].kind == "u":
            rest.setdefault("lo", 0)
        self.arrays.append(Array(name, dtype, shape, order, pad, data=data, **rest))
        return name

    def place(
        self, sizes: tuple[int, ...], axis: int | None = None, apart: bool = False
    ) -> tuple[list[E], list[int], str]:
        """Where a block of its own starts in an array of blocks, how far blocks reach, and the loop that moves it.

        Rows go by slot; along `axis` the place may go by a loop's index.  apart: then no two slots get to one
        place, as programs that write have no order among each other."""
        at: list[E] = [make("mul", self.slot, literal(sizes[0], "i32"))]
        reach = [self.slots * sizes[0]]
        for n in sizes[1:]:
            at.append(literal(0, "i32"))
            reach.append(n)
        if axis is not None and self.loops and self.maybe(0.8):
            name, _trips = self.loops[-1]
            t = next(t for n, t in reversed(self.vars) if n == name)
            far = sizes[axis] * (self.slots if apart and axis == 0 else 1)
            step = make("mul", var(name, t), literal(far, "i32"))
            at[axis] = make("add", at[axis], step) if axis == 0 else step
            reach[axis] = max(reach[axis] + int(t.hi) * far, sizes[axis])
            return at, reach, name
        return at, reach, ""

    def block_of(self, sizes: tuple[int, ...], dtype: str, data: str, is_read: bool) -> Access:
        """A block of a new array, read or written somehow."""
        r = self.r
        axis = r.randrange(len(sizes)) if is_read else len(sizes) - 1
        at, reach, moved = self.place(sizes, axis, apart=not is_read)
        ragged = [self.maybe(0.35) for _ in sizes]
        shape = [
            max(1, n - r.randrange(1, n)) if cut and n > 1 else n
            for n, cut in zip(reach, ragged, strict=True)
        ]
        bounded = tuple(i for i, cut in enumerate(ragged) if cut or self.maybe(0.2))
        wrap: tuple[int, ...] = ()
        way = r.choice(["ptr", "ptr", "ptr", "desc", "block"])
        if is_read and way == "ptr" and bounded and self.maybe(0.2):
            wrap, bounded = bounded, ()
        lead, hint = None, ""
        if self.maybe(0.15):
            lead, shape = literal(1, "i32"), [2, *shape]
            hint = "batch" if way == "desc" else ""
            if self.maybe(0.5):
                lead = make("rem", self.number(), literal(2, "i32"))
        rest: dict[str, Any] = {}
        if is_read and way == "ptr" and not hint and self.maybe(0.1):
            more = ["address"] if self.seed >= SHARED_FROM else []
            hint = r.choice(["volatile", "first", *more])
        low = {"e4m3": 2, "e5m2": 2}.get(dtype, 3)
        name = self.array(
            dtype,
            tuple(shape),
            data,
            lead is not None,
            **({"lo": -low, "hi": low} if FORMATS[dtype].kind != "u" else {}),
        )
        if way != "ptr":
            bounded = tuple(range(len(sizes)))
            if self.array_of(name).pad % (16 // max(1, FORMATS[dtype].bits // 8)) and way == "desc":
                way = "block"
            hint = "" if way == "block" else hint
        if is_read and way == "ptr" and bounded:
            rest["other"] = r.choice([None, 0, 0, 1])
        walk = (
            moved
            if is_read and way in ("ptr", "block") and moved and not wrap and self.maybe(0.4)
            else ""
        )
        return Access(
            name, tuple(at), sizes, way, lead, bounded, wrap=wrap, hint=hint, walk=walk, **rest
        )

    def array_of(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)

    def loaded(self, access: Access, name: str = "") -> E:
        """A load; its result is a visible variable from here on."""
        a = self.array_of(access.array)
        lo, hi = min(a.lo, access.other or 0, 0), max(a.hi, access.other or 0, 0)
        t = T(a.dtype, access.sizes, lo, hi)
        name = name or self.fresh("x")
        self.out.append(Load(name, access, t))
        self.vars.append((name, t))
        return var(name, t)

    def load_in(self) -> None:
        dtype = self.r.choice(READ)
        self.loaded(self.block_of(self.shape(), dtype, "ints", True))

    def gather(self) -> None:
        """Rows that an index names; the index itself is loaded."""
        r, (n, columns) = self.r, (self.r.choice([16, 32, 64]), self.r.choice([16, 32, 64]))
        table = r.choice([8, 20])
        at = self.loaded(self.index_array(n, table))
        dtype = r.choice(READ)
        name = self.array(dtype, (table, columns), lo=0)
        e = at
        mask = None
        if self.maybe(0.3):
            mask = make(
                "expand_dims", make("lt", e, literal(table // 2, e.t.dtype)), axis=1, as_index=True
            )
        access = Access(name, (literal(0, "i32"), literal(0, "i32")), (n, columns), index={0: e}, mask=mask,
                        other=0 if mask is not None else None)  # fmt: skip
        self.loaded(access)

    def index_array(self, n: int, table: int) -> Access:
        at, reach, _ = self.place((n,), 0)
        name = self.array(self.r.choice(["i32", "i32", "i64"]), (reach[0],), lo=0, hi=table - 1)
        return Access(name, tuple(at), (n,))

    def scratch(self) -> None:
        """What is read, changed, written and read again in one array: order counts."""
        if self.is_top and self.maybe(0.3):
            return
        r, sizes = self.r, (self.rows, self.r.choice([16, 32]))
        dtype = r.choice(["f32", "f16", "i32", "bf16"])
        at, reach, _ = self.place(sizes)
        name = self.array(dtype, tuple(reach))
        access = Access(
            name,
            tuple(at),
            sizes,
            r.choice(["ptr", "ptr", "block"]),
            bounded=r.choice([(), (0, 1)]),
        )
        if access.way == "block":
            access = replace(access, bounded=(0, 1))
        before = self.known(name, sizes)
        self.out.append(Load(before[0], access, before[1]))
        self.vars.append(before)
        value = self.within(self.tile(sizes, dtype, 2), before[1])
        self.out.append(Store(access, value))
        if self.maybe(0.8):
            again = (self.fresh("x"), before[1])
            half = (sizes[0] // 2, sizes[1])
            if self.maybe(0.3):  # a part of it, in another layout
                down = make("add", at[0], literal(half[0], "i32"))
                part = Access(name, (down, at[1]), half, "ptr")
                again = (again[0], again[1].like(shape=half))
                self.out.append(Load(again[0], part, again[1]))
            else:
                self.out.append(Load(again[0], access, again[1]))
            self.vars.append(again)

    def known(self, array: str, sizes: tuple[int, ...]) -> tuple[str, T]:
        a = self.array_of(array)
        return self.fresh("x"), T(a.dtype, sizes, min(a.lo, -3), max(a.hi, 3))

    def within(self, e: E, t: T) -> E:
        """e made to lie where t says."""
        e = self.to(e, t.dtype)
        if e.t.grain > t.grain and e.t.format.is_float:
            e = self.to(make("floor", self.to(e, "f32")), t.dtype)
        if e.t.lo < t.lo or e.t.hi > t.hi:
            low, high = max(t.lo, -1e6), min(t.hi, 1e6)
            e = self.fit(e, low, high)
        return e

    # ---- results

    def result(self) -> E:
        """Something that was computed, mostly of the latest variables."""
        tiles = [(n, t) for n, t in self.vars if t.shape and len(t.shape) < 3]
        if tiles and self.maybe(0.85):
            last = var(*self.r.choice(tiles[-3:]))
            if last.t.err:
                return last
            shape = last.t.shape
            if self.maybe(0.5):
                return self.tile(shape, self.r.choice(["f32", "f32", "i32", last.t.dtype]), 2)
            return last
        return self.tile(self.shape(), "f32", 2)

    def store_out(self) -> None:
        value = self.result()
        if value.t.err:
            self.store_value(value, "f32")
            return
        if value.t.dtype == "i1":
            value = make("cast", value, dtype="i32")
        dtype = value.t.dtype if self.maybe(0.5) else self.r.choice(STORED)
        if holds(dtype, value.t.lo, value.t.hi, value.t.grain) and FORMATS[dtype].kind != "b":
            # The store converts by itself.
            self.store_value(value, dtype)
        else:
            self.store_value(self.to(value, dtype), dtype)

    def store_value(self, value: E, dtype: str) -> None:
        access = self.block_of(value.t.shape, dtype, "empty", False)
        if self.maybe(0.1) and access.way == "ptr":
            access = replace(access, mask=self.tile(value.t.shape, "i1", 2))
        self.out.append(Store(access, value))

    def loose_out(self) -> None:
        shape = self.r.choice([(self.rows, 16), (self.rows,), (32,)])
        e = self.let(self.fresh("f"), self.loose(shape, self.r.choice([1, 1, 2])))
        if len(shape) == 2 and self.maybe(0.3):
            e = make("reduce", e, axis=self.r.randrange(2), fn=self.r.choice(["sum", "max", "min"]))
        self.store_value(e, "f32")

    def atomic(self) -> None:
        r = self.r
        n = r.choice([16, 32, self.rows])
        sem = r.choice(["", "", "relaxed", "acquire", "release", "acq_rel"])
        if self.maybe(0.5):  # of all programs, in any order
            dtype = r.choice(["f32", "i32", "i32", "u32"])
            fn = "add" if dtype == "f32" else r.choice(["add", "max", "min", "and", "or", "xor"])
            name = self.array(dtype, (n,), "zeros")
            access = Access(
                name,
                (literal(0, "i32"),),
                (n,),
                mask=self.tile((n,), "i1", 1) if self.maybe(0.3) else None,
            )
            if self.maybe(0.2):
                access = Access(name, (literal(0, "i32"),), ())
            value = self.tile(access.sizes, dtype, 2)
            self.out.append(Atomic("", access, fn, self.tame(value, 64), value.t, sem=sem))
            return
        # Whose old values are used has to have an element for each thread.
        n = r.choice([256, 256, 512])
        at, reach, _ = self.place((n,))
        dtype = r.choice(["i32", "i32", "i64", "u32"])
        name = self.array(dtype, tuple(reach), "zeros")
        fn = r.choice(["add", "max", "xchg", "cas", "or", "xor"])
        access = Access(name, tuple(at), (n,))
        value, t = self.tile((n,), dtype, 2), T(dtype, (n,), *FORMATS[dtype].range)
        compare = typed(0, dtype, (n,)) if fn == "cas" else None
        old = self.fresh("old")
        self.out.append(Atomic(old, access, fn, value, t, compare, sem))
        self.vars.append((old, t))

    def counted(self) -> None:
        """A trip count that memory holds."""
        name = self.array("i32", (self.slots,), lo=0, hi=3)
        self.loaded(Access(name, (self.slot,), ()))

    # ---- computing and control

    def compute(self) -> None:
        shape = self.shape()
        same = [t.shape for _, t in self.vars if t.shape and not t.err]
        if same and self.maybe(0.7):
            shape = self.r.choice(same[-4:])
        dtype = self.r.choice(
            ("f32", "f32", "i32", "f16", "bf16", "i32", "i8", "u32", "i64", "i16", "u8")
        )
        self.let(self.fresh("v"), self.tile(shape, dtype, self.r.choice([2, 3, 3])))

    def carried(self) -> tuple[str, T]:
        """A variable that what follows will change: its type covers all its values."""
        shape, dtype = self.shape(), self.r.choice(["f32", "f32", "i32", "f16"])
        start = self.tile(shape, dtype, 1)
        limit = LIMIT.get(dtype, 0)
        t = T(dtype, shape, -limit, limit) if limit else T(dtype, shape, *FORMATS[dtype].range)
        name = self.fresh("c")
        self.out.append(Let(name, self.within(start, t)))
        self.vars.append((name, t))
        return name, t

    def change(self, name: str, t: T) -> None:
        """name = something of itself."""
        for _ in range(5):
            try:
                op = self.r.choice(["add", "sub", "max", "min"])
                e = make(op, self.tame(var(name, t), t.top / 2) if t.format.is_float else var(name, t),
                         self.tame(self.tile(t.shape, t.dtype, 2)))  # fmt: skip
                self.out.append(Let(name, self.within(e, t)))
                return
            except Inexact:
                continue

    def trips(self) -> tuple[E, E, int]:
        """(from, to, the most of them) of a loop that stays small."""
        r = self.r
        stored = [
            (n, t)
            for n, t in self.vars
            if t.shape == () and t.dtype == "i32" and t.lo >= 0 and t.hi <= 3
        ]
        if stored and self.maybe(0.3):
            hi: E = var(*r.choice(stored))
        elif self.maybe(0.8):
            value = r.choice([0, 1, 1, 2, 3, 4]) if self.repeats < 4 else r.choice([0, 1, 2])
            hi = self.integer("n", value, max(value, 1))
        else:
            hi = typed(r.randrange(0, 4), "i32")
        lo = literal(0, "i32")
        if self.loops and self.maybe(0.2):
            name = self.loops[-1][0]
            lo = var(name, next(t for n, t in reversed(self.vars) if n == name))
        return lo, hi, max(1, int(hi.t.hi))

    def loop(self) -> None:
        lo, hi, most = self.trips()
        changed = [self.carried() for _ in range(self.r.choice([0, 1, 1, 2]))]
        name = self.fresh("i")
        self.inside_loop(name, lo, hi, most, lambda: self.loop_body(changed))

    def loop_body(self, changed: list[tuple[str, T]]) -> None:
        self.statements(self.r.choice([1, 2, 2, 3]))
        for c in changed:
            if self.maybe(0.8):
                self.change(*c)

    def inside_loop(
        self, name: str, lo: E, hi: E, most: int, draw: Callable[[], None], step: int = 1
    ) -> None:
        kind = self.r.choice(["range", "tl.range"])
        hints = self.hints() if kind == "tl.range" else ()

        def body() -> None:
            self.vars.append((name, T("i32", (), 0, most - 1)))
            self.loops.append((name, most))
            self.repeats *= most
            draw()
            self.repeats //= most
            self.loops.pop()

        self.out.append(For(name, lo, hi, step, kind, hints, self.block(body)))

    def unroll(self) -> None:
        changed = self.carried()
        name = self.fresh("u")

        def body() -> None:
            self.vars.append((name, T("i32", (), 0, 2)))
            self.change(*changed)

        count = self.r.choice([1, 2, 3])
        made = self.block(body)
        self.out.append(
            For(name, literal(0, "i32"), literal(count, "i32"), 1, "tl.static_range", (), made)
        )

    def repeat(self) -> None:
        changed = self.carried()
        halve = self.maybe(0.4)
        if halve:
            limit = self.integer("m", self.r.choice([0, 1, 2, 5]), 8)
        else:
            _, limit, _ = self.trips()
        name = self.fresh("w")

        def body() -> None:
            self.vars.append((name, T("i32", (), 0, 8)))
            self.repeats *= 3
            if self.maybe(0.5):
                self.compute()
            self.change(*changed)
            self.repeats //= 3

        self.out.append(While(name, limit, halve, self.block(body)))

    def branch(self) -> None:
        changed = [self.carried() for _ in range(self.r.choice([0, 1, 1]))]

        def arm() -> None:
            self.statements(self.r.choice([0, 1, 2]))
            for c in changed:
                self.change(*c)

        test = self.test()
        then = self.block(arm)
        other = self.block(arm) if self.maybe(0.5) else ()
        self.out.append(If(test, then, other))

    def note(self) -> None:
        match self.r.randrange(4):
            case 0:
                self.out.append(Note("print", self.number()))
            case 1:
                self.out.append(Note("assert", make("le", self.number(), literal(10_000, "i32"))))
            case 2:
                self.out.append(Note("assume", make("ge", self.slot, literal(0, "i32"))))
            case 3:
                by = self.r.choice([8, 16])
                e = self.let(self.fresh("v"), make("mul", self.slot, literal(by, "i32")))
                self.out.append(Note("multiple_of", e, by))


def draw(seed: int) -> Kernel:
    """The kernel of a seed."""
    return Draw(seed).kernel()
