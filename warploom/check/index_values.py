"""What scalars and elements of tiles are, as polynomials over atoms (terms.py), evaluated on demand.

A tile is evaluated at coordinates: shape ops move the coordinates, integer arithmetic adds polynomials,
anything else is an atom.  A value that a loop carries in equal steps (a pointer that is advanced) is its
first value plus so many steps; another one that a loop carries, or that lies in shared memory, is *one of*
what is put there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from warploom.check.sums import keeps_number
from warploom.check.terms import ONE, Atom, Terms, atoms_of
from warploom.ir import engines
from warploom.ir.analysis import definitions
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import arith, cluster, control, smem, task, tile, tma, unaligned
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.poly import Poly
from warploom.ir.types import DType, Pointer, Scalar, Tile, dtype_of, elem_of, i1, shape_of

Coords = tuple[Poly, ...]
COMPARISONS = {
    arith.lt: "lt", arith.le: "le", arith.gt: "gt", arith.ge: "ge", arith.eq: "eq", arith.ne: "ne",
}  # fmt: skip
_NONNEGATIVE = frozenset(
    {"program", "programs", "argument", "cta", "replica", "trip", "coordinate", "drawn"}
)
_VARYING = frozenset({"trip", "free", "drawn", "one_of"})  # from iteration to iteration
_LOGIC = frozenset((arith.and_, arith.or_, arith.not_))
_PASS_ON = frozenset(
    (arith.addptr, tile.make_view, tma.tensor_map, tile.splat, tile.expand_dims, tile.broadcast,
     tile.transpose, tile.reshape, tile.slice_tile, tile.convert_layout, tile.agree)
)  # fmt: skip


class Values:
    """The values of one function.  known: arguments whose value is known; grid: of the launch, or None."""

    def __init__(
        self,
        func: Func,
        terms: Terms,
        known: dict[Value, int],
        grid: Sequence[int] | None,
    ) -> None:
        self.func, self.terms, self.known, self.grid = func, terms, known, grid
        self.made = definitions(func.body)
        self.owner = {
            v: (o, r, i)
            for o in func.body.all_ops
            for r, region in enumerate(o.regions)
            for i, v in enumerate(region.params)
        }
        self.replicas = 1  # of the task that is followed
        self.programs_read: set[int] = set()
        self._cache: dict[tuple[Value, Coords], Poly] = {}
        self._in_progress: set[tuple[Value, Coords] | tuple[Op, int]] = set()
        self._inside: dict[Op, frozenset[Value]] = {}
        self._written = self._find_written()
        self._puts = self._find_puts()

    def enter(self, replicas: int) -> None:
        """The values that follow are those of a task with so many replicas."""
        self.replicas = replicas

    def scalar(self, v: Value) -> Poly:
        """A number or a pointer."""
        return self.at(v, ())

    def at(self, v: Value, coords: Coords) -> Poly:
        """A scalar, or the element of a tile at coordinates; of a pointer the argument plus the offset."""
        key = v, coords if isinstance(v.type, Tile) else ()
        if key not in self._cache:
            if key in self._in_progress:
                return self._free(*key)
            self._in_progress.add(key)
            found = self._value(*key)
            self._in_progress.discard(key)
            self._cache[key] = found
        return self._cache[key]

    def _value(self, v: Value, coords: Coords) -> Poly:
        if v in self.known:
            return Poly.const(self.known[v])
        o = self.made.get(v)
        if o is None:
            if v in self.owner:
                return self._parameter(v, coords)
            return self.terms.atom("argument", (), v, name=v.hint or "an argument")
        if o.kind in _RULES:
            return _RULES[o.kind](self, o, coords)
        if o.kind in arith.ELEMENTWISE:
            return self._elementwise(o, coords)
        if o.kind is control.for_:
            return self._result(o, o.results.index(v), coords)
        if o.kind is control.while_:
            return self.at(o.regions[0].yielded[1 + o.results.index(v)], coords)
        if o.kind is control.if_:
            return self._chosen(o, o.results.index(v), coords)
        return self._free(v, coords)

    def _free(self, v: Value, coords: Coords) -> Poly:
        """A number that nothing is known of, one for each execution."""
        o = self.made.get(v) or (self.owner[v][0] if v in self.owner else None)
        name = v.hint or (f"the result of {o.kind.name}" if o is not None else "a value")
        return self.terms.atom("free", coords, v, loc=o.loc if o else None, name=name)

    # ---- arithmetic

    def _elementwise(self, o: Op, coords: Coords) -> Poly:
        args = [self.at(x, coords) for x in o.operands]
        elem = elem_of(o.operands[0].type)
        if isinstance(elem, DType) and elem.is_int:
            if o.kind in COMPARISONS:
                return self._compare(COMPARISONS[o.kind], *args)
            found = self._integer(o, args)
            if found is not None:
                return found
        name = o.kind.name
        if o.kind in COMPARISONS or (o.kind in _LOGIC and elem != i1):
            name += " of numbers"  # floats aren't a whole apart; bits are no truth values
        return self.terms.atom(name, args, o.attrs.get("dtype"), loc=o.loc)

    def _integer(self, o: Op, args: list[Poly]) -> Poly | None:
        """Integer arithmetic, where polynomials know it."""
        t, kind = self.terms, o.kind
        if kind is arith.add:
            return args[0] + args[1]
        if kind is arith.sub:
            return args[0] - args[1]
        if kind is arith.mul:
            return args[0] * args[1]
        if kind is arith.neg:
            return -args[0]
        if kind is arith.abs_ and t.range_of(args[0])[0] >= 0:
            return args[0]
        if kind in (arith.idiv, arith.fast_div):
            return t.div(args[0], args[1], o.loc)
        if kind is arith.rem:
            return t.rem(args[0], args[1], o.loc)
        if kind in (arith.minimum, arith.maximum):
            return t.least("min" if kind is arith.minimum else "max", *args)
        if kind is arith.cast and keeps_number(dtype_of(o.operands[0].type), o.attrs["dtype"]):
            return args[0]
        n = args[1].constant if len(args) == 2 else None
        if n is None or not 0 <= n < 1 << 40:
            return None
        if kind is arith.shl and n < 63:
            return args[0] * Poly.const(1 << n)
        if kind is arith.shr and n < 63 and self._is_nonnegative(args[0]):
            return t.div(args[0], Poly.const(1 << n), loc=o.loc)
        if kind is arith.and_ and n & (n + 1) == 0 and n > 1 and self._is_nonnegative(args[0]):
            return t.rem(args[0], Poly.const(n + 1), loc=o.loc)
        return None

    def _is_nonnegative(self, p: Poly) -> bool:
        """Is it a sum of what is never negative?  (Shifts and masks of negative numbers are left alone.)"""
        return all(c >= 0 for c in p.terms.values()) and all(
            map(self._is_nonnegative_atom, p.atoms())
        )

    def _is_nonnegative_atom(self, a: object) -> bool:
        assert isinstance(a, Atom)
        if a.kind in ("quotient", "remainder"):
            return all(map(self._is_nonnegative, a.args))
        return a.kind in _NONNEGATIVE

    def _compare(self, name: str, x: Poly, y: Poly) -> Poly:
        low, high = self.terms.range_of(y - x)
        holds = {
            "lt": low > 0, "le": low >= 0, "gt": high < 0, "ge": high <= 0,
            "eq": low == high == 0, "ne": low > 0 or high < 0,
        }  # fmt: skip
        fails = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
        if holds[name] or holds[fails[name]]:
            return Poly.const(int(holds[name]))
        return self.terms.atom(name, (x, y))

    def less(self, x: Poly, y: Poly) -> Poly:
        """x < y, as 0 or 1."""
        return self._compare("lt", x, y)

    # ---- control flow

    def _chosen(self, o: Op, i: int, coords: Coords) -> Poly:
        then, other = (self.at(r.yielded[i], coords) for r in o.regions)
        return self.terms.select(self.scalar(o.operands[0]), then, other, o.loc)

    def trip(self, o: Op) -> Poly:
        """Which iteration of a `for` it is, from 0."""
        bounds = [self.scalar(v) for v in o.operands[:3]]
        name = f"the trip of {o.regions[0].params[0].hint or 'the loop'}"
        return self.terms.atom("trip", bounds, o, loc=o.loc, name=name)

    def _parameter(self, v: Value, coords: Coords) -> Poly:
        """What a region is given: a loop's index, or what it carries."""
        o, r, i = self.owner[v]
        if o.kind is control.for_ and self._is_one_iteration(o):
            return self.scalar(o.operands[0]) if i == 0 else self.at(o.operands[2 + i], coords)
        if o.kind is control.for_ and i == 0:
            return self.scalar(o.operands[0]) + self.scalar(o.operands[2]) * self.trip(o)
        if o.kind is control.for_:
            carried = self._steps(o, i - 1, coords)
            if carried is not None:
                return carried[0] + carried[1] * self.trip(o)
            return self._carried(v, o, o.operands[2 + i], o.regions[0].yielded[i - 1], coords)
        if o.kind is control.while_ and r == 1:
            return self.at(o.regions[0].yielded[1 + i], coords)
        if o.kind is control.while_:
            return self._carried(v, o, o.operands[i], o.regions[1].yielded[i], coords)
        return self._free(v, coords)

    def _is_one_iteration(self, o: Op) -> bool:
        low, end, step = (self.scalar(v).constant for v in o.operands[:3])
        if low is None or end is None or step is None:
            return False
        return low < end <= low + step

    def _result(self, o: Op, i: int, coords: Coords) -> Poly:
        if self._is_one_iteration(o):
            return self.at(o.regions[0].yielded[i], coords)
        carried = self._steps(o, i, coords)
        if carried is not None and not carried[1]:
            return carried[0]
        return self._free(o.results[i], coords)

    def _steps(self, o: Op, i: int, coords: Coords) -> tuple[Poly, Poly] | None:
        """(first value, step) of what a `for` carries in equal steps."""
        v, end = o.regions[0].params[1 + i], o.regions[0].yielded[i]
        first = o.operands[3 + i]
        if end is v:
            return self.at(first, coords), Poly()
        if not _counts(v) or (o, i) in self._in_progress:
            return None
        self._in_progress.add((o, i))
        unknown, inside = self._free(v, coords), self._values_inside(o)
        saved = self._cache
        self._cache = {k: p for k, p in saved.items() if k[0] not in inside}
        self._cache[v, coords] = unknown
        step = self.at(end, coords) - unknown
        self._cache = saved
        self._in_progress.discard((o, i))
        varies = self._varies_in(o)
        return None if any(map(varies, atoms_of([step]))) else (self.at(first, coords), step)

    def _values_inside(self, o: Op) -> frozenset[Value]:
        if o not in self._inside:
            ops = [x for r in o.regions for x in r.all_ops]
            params = [v for x in (o, *ops) for r in x.regions for v in r.params]
            self._inside[o] = frozenset([*params, *(v for x in ops for v in x.results)])
        return self._inside[o]

    def _varies_in(self, o: Op) -> Callable[[Atom], bool]:
        """Whether an atom may be another one in another iteration of a loop."""
        inside = {o, *(x for r in o.regions for x in r.all_ops), *self._values_inside(o)}
        return lambda a: a.about in inside

    def _carried(self, v: Value, o: Op, first: Value, after: Value, coords: Coords) -> Poly:
        """What a loop carries: its first value, or what an earlier iteration left."""
        if not _counts(v) or isinstance(v.type, Tile):
            return self._free(v, coords)
        begins, ends = self.at(first, ()), self.at(after, ())
        found = self._one_of(v, begins, ends, varies=self._varies_in(o))
        if len(found.terms) == 1 and len(_choices(begins)) == len(_choices(ends)) == 1:
            self.terms.carriers[v] = o
        return found

    def _one_of(self, v: Value, *choices: Poly, varies: Callable[[Atom], bool]) -> Poly:
        """A number that is one of others, which don't follow from itself and are of other iterations."""
        unknown = self._free(v, ())
        found = dict.fromkeys(p for x in choices for p in _choices(x))
        (own,) = unknown.atoms()
        found.pop(unknown, None)
        if not found or any(own in atoms_of([p]) for p in found):
            return unknown
        if len(found) == 1 and not any(a.kind in _VARYING for a in atoms_of(found)):
            return next(iter(found))
        args = [self.terms.earlier(p, varies) for p in found]
        return self.terms.atom("one_of", args, v, loc=own.loc, name=own.name)  # type: ignore[attr-defined]

    # ---- memory

    def base_of(self, v: Value) -> Value | None:
        """The pointer argument that a pointer, tile of pointers, view or tensor map is based on."""
        while (o := self.made.get(v)) is not None and o.kind in _PASS_ON:
            v = o.operands[0]
        return v if v not in self.made and v not in self.owner else None

    def _find_written(self) -> set[Value | None]:
        stores = (o for o in self.func.body.all_ops if o.kind in engines.WRITES_GLOBAL)
        return {self.base_of(o.operands[0]) for o in stores}

    @cached_property
    def counters(self) -> set[Value | None]:
        """The arrays whose words atomics only ever count up."""
        atomics = [o for o in self.func.body.all_ops if o.kind is tile.atomic]
        found = {self.base_of(o.operands[0]) for o in atomics} - {None}
        return found - {self.base_of(o.operands[0]) for o in atomics if not self._counts_up(o)}

    def _counts_up(self, o: Op) -> bool:
        if o.attrs["fn"] != "add" or len(o.operands) > 2 or isinstance(o.operands[0].type, Tile):
            return False
        elem = elem_of(o.result.type)
        by = (
            self.scalar(o.operands[1]).constant if isinstance(elem, DType) and elem.is_int else None
        )
        return by is not None and by >= 1

    def _find_puts(self) -> dict[str, list[Value]]:
        found: dict[str, list[Value]] = {}
        for o in self.func.body.all_ops:
            if (at := engines.DESTINATION.get(o.kind)) is not None:
                put = o.operands[1] if o.kind is smem.shared_put else o.operands[0]
                found.setdefault(self.allocation(o.operands[at]), []).append(put)
        return found

    @cached_property
    def _instead(self) -> dict[Op, Op]:
        """Of gets from one place, each in a branch of one `if`, one for the other: an iteration makes one of
        them, so that both are one number."""
        found: dict[Op, Op] = {}
        for o in self.func.body.all_ops:
            if o.kind is control.if_:
                mine, others = (self._gets(region) for region in o.regions)
                for name, (get, *more) in mine.items():
                    if name and not more and len(others.get(name, ())) == 1:
                        found[others[name][0]] = found.get(get, get)
        return found

    def _gets(self, region: Region) -> dict[str, list[Op]]:
        """Those that a branch makes, once at most, by the name of what they read."""
        found: dict[str, list[Op]] = {}
        for o in region.ops:
            if o.kind is smem.shared_get:
                found.setdefault(self.allocation(o.operands[0]), []).append(o)
            for inner in o.regions if o.kind is control.if_ else ():
                for name, gets in self._gets(inner).items():
                    found.setdefault(name, []).extend(gets)
        return found

    def allocation(self, v: Value) -> str:
        """The name of the shared memory that a place is part of; "" where another CTA's."""
        o = self.made.get(v)
        while o is not None and o.kind is not smem.shared_alloc:
            if o.kind is cluster.peer or not o.operands:
                return ""
            o = self.made.get(o.operands[0])
        return "" if o is None else str(o.attrs["name"])

    def _is_read_only(self, v: Value) -> bool:
        base = self.base_of(v)
        return base is not None and base not in self._written and None not in self._written

    # ---- the rules, one a kind of op

    def _const(self, o: Op, coords: Coords) -> Poly:
        value = o.attrs["value"]
        if o.attrs["dtype"].is_int:
            return Poly.const(int(value))
        return self.terms.atom("number", (), repr(value), name=repr(value))

    def _program(self, o: Op, coords: Coords) -> Poly:
        axis = o.attrs["axis"]
        self.programs_read.add(axis)
        return self.program(axis)

    def program(self, axis: int) -> Poly:
        """The program's id along an axis."""
        if self.programs(axis) == ONE:
            return Poly()
        return self.terms.atom("program", (self.programs(axis),), axis, name=f"program_id({axis})")

    def programs(self, axis: int) -> Poly:
        """The grid's size along an axis."""
        if self.grid is not None:
            return Poly.const((*self.grid, 1, 1, 1)[axis])
        own = self.func.attrs.get("grid", ())
        if own:
            ctas = self._of_host(own[axis]) if axis < len(own) else ONE
            return self.terms.div(ctas, Poly.const(cluster_of(self.func)[axis]))
        return self.terms.atom("programs", (), axis, name=f"num_programs({axis})")

    def _of_host(self, expression: Any) -> Poly:
        """A size of an explicit kernel's own grid (codegen/host.py says what such expressions are)."""
        match expression:
            case ("arg", i):
                return self.scalar(self.func.params[i])
            case ("const", n):
                return Poly.const(int(n))
            case ("cast", _, x):
                return self._of_host(x)
        kind, _, *operands = expression
        args = [self._of_host(x) for x in operands]
        known: dict[str, Callable[[Poly, Poly], Poly]] = {
            "add": lambda x, y: x + y,
            "sub": lambda x, y: x - y,
            "mul": lambda x, y: x * y,
            "idiv": self.terms.div,
            "rem": self.terms.rem,
            "minimum": lambda x, y: self.terms.least("min", x, y),
            "maximum": lambda x, y: self.terms.least("max", x, y),
        }
        if kind in known:
            return known[kind](*args)
        return self.terms.atom(kind, args)

    def _programs(self, o: Op, coords: Coords) -> Poly:
        return self.programs(o.attrs["axis"])

    def cta(self, axis: int) -> Poly:
        """The CTA's place in its cluster along an axis."""
        n = cluster_of(self.func)[axis]
        if n == 1:
            return Poly()
        return self.terms.atom("cta", (Poly.const(n),), axis, name=f"the CTA's place {axis}")

    def _cta_id(self, o: Op, coords: Coords) -> Poly:
        return self.cta(o.attrs["axis"])

    def _cta_rank(self, o: Op, coords: Coords) -> Poly:
        x, y, _ = cluster_of(self.func)
        return self.cta(0) + self.cta(1) * Poly.const(x) + self.cta(2) * Poly.const(x * y)

    def _replica(self, o: Op, coords: Coords) -> Poly:
        return self.replica()

    def replica(self) -> Poly:
        """The replica's number in the task that is followed."""
        if self.replicas == 1:
            return Poly()
        return self.terms.atom(
            "replica", (Poly.const(self.replicas),), self.replicas, name="the group"
        )

    def _arange(self, o: Op, coords: Coords) -> Poly:
        return Poly.const(o.attrs["start"]) + coords[0]

    def _splat(self, o: Op, coords: Coords) -> Poly:
        return self.at(o.operands[0], ())

    def _expand(self, o: Op, coords: Coords) -> Poly:
        axis = o.attrs["axis"]
        return self.at(o.operands[0], coords[:axis] + coords[axis + 1 :])

    def _broadcast(self, o: Op, coords: Coords) -> Poly:
        shape = shape_of(o.operands[0].type)
        at = [Poly() if n == 1 else c for n, c in zip(shape, coords, strict=True)]
        return self.at(o.operands[0], tuple(at))

    def _transpose(self, o: Op, coords: Coords) -> Poly:
        at = dict(zip(o.attrs["perm"], coords, strict=True))
        return self.at(o.operands[0], tuple(at[i] for i in range(len(coords))))

    def _slice(self, o: Op, coords: Coords) -> Poly:
        offset = map(Poly.const, o.attrs["offset"])
        return self.at(o.operands[0], tuple(c + n for c, n in zip(coords, offset, strict=True)))

    def _convert(self, o: Op, coords: Coords) -> Poly:
        return self.at(o.operands[0], coords)

    def _reshape(self, o: Op, coords: Coords) -> Poly:
        """By the place in row-major order; axes of size 1 come and go."""
        before, after = shape_of(o.operands[0].type), o.attrs["shape"]
        kept = [c for c, n in zip(coords, after, strict=True) if n > 1]
        if [n for n in before if n > 1] == [n for n in after if n > 1]:
            rest = iter(kept)
            return self.at(o.operands[0], tuple(next(rest) if n > 1 else Poly() for n in before))
        place = Poly()
        for c, n in zip(coords, after, strict=True):
            place = place * Poly.const(n) + c
        at: list[Poly] = []
        for i, n in enumerate(before):
            below = Poly.const(math.prod(before[i + 1 :]))
            digit = self.terms.div(place, below)
            at.append(
                digit if i == 0 else self.terms.rem(digit, Poly.const(n)) if n > 1 else Poly()
            )
        return self.at(o.operands[0], tuple(at))

    def _addptr(self, o: Op, coords: Coords) -> Poly:
        return self.at(o.operands[0], coords) + self.at(o.operands[1], coords)

    def _select(self, o: Op, coords: Coords) -> Poly:
        c, x, y = (self.at(v, coords) for v in o.operands)
        return self.terms.select(c, x, y, o.loc)

    def _load(self, o: Op, coords: Coords) -> Poly:
        """A function of the address where nothing in the kernel writes the array."""
        if o.attrs.get("volatile") or not self._is_read_only(o.operands[0]):
            return self._free(o.result, coords)
        args = [self.at(v, coords) for v in o.operands]
        return self.terms.atom("load", args, loc=o.loc, name=o.result.hint)

    def _load_box(self, o: Op, coords: Coords) -> Poly:
        if not self._is_read_only(o.operands[0]):
            return self._free(o.result, coords)
        offsets = [self.scalar(v) for v in o.operands[1:]]
        thin = len(offsets) - len(coords)
        at = [x + c for x, c in zip(offsets, (*(Poly(),) * thin, *coords), strict=True)]
        return self.terms.atom("load", at, o.operands[0], loc=o.loc, name=o.result.hint)

    def _atomic(self, o: Op, coords: Coords) -> Poly:
        """A number drawn from a counter is nobody else's."""
        counter = Poly() if coords else self.scalar(o.operands[0])
        is_one = not coords and all(a.kind == "argument" for a in atoms_of([counter]))
        if not is_one or self.base_of(o.operands[0]) not in self.counters:
            return self._free(o.result, coords)
        return self.terms.atom(
            "drawn", (counter,), o, loc=o.loc, name=o.result.hint or "the number drawn"
        )

    def _shared_get(self, o: Op, coords: Coords) -> Poly:
        name = self.allocation(o.operands[0])
        if not name or "" in self._puts:
            return self._free(o.result, coords)
        puts = [self.at(x, ()) for x in self._puts.get(name, [])]
        if not puts or not _counts(o.result) or isinstance(o.result.type, Tile):
            return self._free(o.result, coords)
        found = self._instead.get(o, o)
        return self._one_of(found.result, *puts, varies=lambda a: a.kind in _VARYING)


def _choices(p: Poly) -> tuple[Poly, ...]:
    """What a number is one of."""
    if len(p.terms) == 1:
        ((m, c),) = p.terms.items()
        if c == 1 and len(m) == 1 and isinstance(m[0], Atom) and m[0].kind == "one_of":
            return m[0].args
    return (p,)


def _counts(v: Value) -> bool:
    """Is it an integer or an address, or a tile of them?"""
    if not isinstance(v.type, Scalar | Pointer | Tile):
        return False
    elem = elem_of(v.type)
    return isinstance(elem, Pointer) or elem.is_int


_RULES: dict[object, Callable[[Values, Op, Coords], Poly]] = {
    arith.const: Values._const,
    arith.addptr: Values._addptr,
    arith.select: Values._select,
    tile.program_id: Values._program,
    tile.num_programs: Values._programs,
    cluster.cta_id: Values._cta_id,
    cluster.cta_rank: Values._cta_rank,
    task.replica_id: Values._replica,
    tile.arange: Values._arange,
    tile.splat: Values._splat,
    tile.expand_dims: Values._expand,
    tile.broadcast: Values._broadcast,
    tile.transpose: Values._transpose,
    tile.slice_tile: Values._slice,
    tile.convert_layout: Values._convert,
    tile.agree: Values._convert,
    tile.reshape: Values._reshape,
    tile.load: Values._load,
    tile.load_box: Values._load_box,
    unaligned.load_unaligned: Values._load_box,
    tile.atomic: Values._atomic,
    smem.shared_get: Values._shared_get,
}
