"""Tiles of pointers, indices and masks as sums over their axes: `base + Σ_d (start_d + index_d)·stride_d` and
`start_d + index_d < extent_d`, as polynomials over scalars, through splats, broadcasts, loops that advance
pointers, and nested loops."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from warploom.analysis.bounds import Bounds
from warploom.analysis.facts import Facts, facts_of, parameters
from warploom.analysis.lattice import Interval, exactly, limits_of, range_of
from warploom.analysis.scalar_rules import plus, times
from warploom.ir.analysis import defined
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.poly import Monomial, Poly
from warploom.ir.types import (
    DType,
    Pointer,
    Scalar,
    Tile,
    dtype_of,
    elem_of,
    i32,
    i64,
    shape_of,
    u64,
)


@dataclass(frozen=True)
class Affine:
    """An integer scalar or tile as start + Σ_d coefs[d]·index_d; a pointer's root is `base`, and `offsets`
    the i32 numbers that moved it from there, without those by which a loop goes on."""

    start: Poly
    coefs: tuple[Poly, ...]
    base: Value | None = None
    wraps: tuple[Wrap, ...] = ()
    offsets: tuple[Affine, ...] = ()

    def spread(self, along: Sequence[int | None]) -> Affine:
        """With the axes that `along` names, None for one along which it stays the same."""
        wraps = tuple(replace(w, axis=along.index(w.axis)) for w in self.wraps)
        coefs = tuple(Poly() if a is None else self.coefs[a] for a in along)
        offsets = tuple(x.spread(along) for x in self.offsets)
        return Affine(self.start, coefs, self.base, wraps, offsets)


@dataclass(frozen=True)
class Wrap:
    """`(start + index) % modulus` along an axis: the same as no wrap below the modulus."""

    axis: int
    start: Poly
    modulus: Poly


@dataclass(frozen=True)
class Bound:
    """One comparison of a mask: index along `axis` plus `start` is below `extent`, or not below 0."""

    axis: int
    start: Poly
    extent: Poly | None  # None: the comparison is start + index >= 0


@dataclass(frozen=True, eq=False)
class Trips:
    """The number of iterations of a loop, as an atom of polynomials."""

    lo: Value
    hi: Value
    step: Value


@dataclass(frozen=True, eq=False)
class Iteration:
    """The index (from 0) of the current iteration of a loop whose step is no constant divisor."""

    iv: Value
    lo: Value
    step: Value


@dataclass(eq=False)
class AffineTiles:
    """The sums that values are, by SSA value; filled in program order."""

    func: Func
    affine: dict[Value, Affine] = field(default_factory=dict)
    masks: dict[Value, tuple[Bound, ...]] = field(default_factory=dict)
    invariant: set[Hashable] = field(default_factory=set)
    order: dict[Hashable, int] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)
    loops: dict[Value, Op] = field(default_factory=dict)  # induction variable -> its loop
    assumed: set[Value] = field(default_factory=set)  # parameters taken to be non-negative
    notes: dict[str, str] = field(default_factory=dict)
    uses: dict[Value, list[tuple[Op, int]]] = field(default_factory=dict)
    parents: dict[Op, Op] = field(default_factory=dict)  # of a yield: the op whose region it ends
    wide: set[Monomial] = field(default_factory=set)  # products that are computed in 64 bits
    proofs: dict[frozenset[Value], Facts] = field(default_factory=dict)  # by what is taken

    def number(self, values: Iterable[Hashable]) -> None:
        for v in values:
            self.order.setdefault(v, len(self.order))

    def of(self, v: Value) -> Affine | None:
        """What is known of v; an integer scalar is at least an atom of its own."""
        if v in self.affine:
            return self.affine[v]
        if isinstance(v.type, Scalar) and v.type.dtype.kind in ("int", "uint"):
            return Affine(Poly.atom(v), ())
        if isinstance(v.type, Pointer):
            return Affine(Poly(), (), v)
        return None

    # ---- transfer functions

    def visit(self, o: Op) -> None:
        if o.results and (found := self._value(o)) is not None:
            self.affine[o.result] = found
        if o.results and (bounds := self._mask(o)) is not None:
            self.masks[o.result] = bounds

    def _value(self, o: Op) -> Affine | None:
        args = [self.of(v) for v in o.operands]
        kind = o.kind
        if kind is arith.const:
            dtype = o.attrs["dtype"]
            return Affine(Poly.const(int(o.attrs["value"])), ()) if dtype.is_int else None
        if kind is tile.arange:
            return Affine(Poly.const(o.attrs["start"]), (Poly.const(1),))
        if not args or args[0] is None:
            return None
        x = args[0]
        if kind is tile.splat or _moves(o):
            along = _along(o)
            if any(w.axis not in along for w in x.wraps):
                return None
            return x.spread(along)
        if kind is arith.rem and args[1] is not None:
            return _wrapped(x, args[1])
        if kind not in (arith.cast, arith.add, arith.sub, arith.mul, arith.addptr):
            return None
        elem = elem_of(o.result.type)
        if isinstance(elem, DType) and (elem.is_float or elem.bits < 32):
            return None  # narrow numbers wrap around
        if kind is arith.cast:
            known = facts_of(self.func).interval(o.operands[0])
            keeps = elem in (i32, i64) and known.within(limits_of(elem))
            return x if keeps and x.base is None else None
        if args[1] is None:
            return None
        found = _combine(o, x, args[1])
        if found is not None and kind is arith.addptr and dtype_of(o.operands[1].type) == i32:
            return replace(found, offsets=(*x.offsets, args[1]))
        if found is not None and kind is arith.mul and elem == i64:
            self.wide.update(m for m in found.start.terms if m)
        return found

    def _mask(self, o: Op) -> tuple[Bound, ...] | None:
        kind = o.kind
        if kind is arith.and_ and all(v in self.masks for v in o.operands):
            return self.masks[o.operands[0]] + self.masks[o.operands[1]]
        if _moves(o):
            bounds, along = self.masks.get(o.operands[0]), _along(o)
            if bounds is None or any(b.axis not in along for b in bounds):
                return None
            return tuple(replace(b, axis=along.index(b.axis)) for b in bounds)
        if kind not in _ORDERS:
            return None
        x, y = (self.of(v) for v in o.operands)
        if x is None or y is None:
            return None
        if kind in (arith.gt, arith.ge):  # x > y is y < x
            x, y = y, x
        strict = kind in (arith.lt, arith.gt)
        moving = [d for d, c in enumerate(x.coefs) if c]
        fixed = [d for d, c in enumerate(y.coefs) if c]
        one = Poly.const(1)
        if len(moving) == 1 and not fixed and x.coefs[moving[0]] == one:
            extent = y.start if strict else y.start + one
            return (Bound(moving[0], x.start, extent),)
        if len(fixed) == 1 and not moving and y.coefs[fixed[0]] == one:
            # x <= start + index: a lower bound; it is 0 <= start' + index after moving x over
            start = y.start - x.start - (one if strict else Poly())
            return (Bound(fixed[0], start, None),)
        return None

    # ---- loops

    def enter_loop(self, o: Op) -> None:
        """Carried integers and pointers that grow by an invariant step: functions of the iv."""
        (body,) = o.regions
        lo, hi, step, *init = o.operands
        iv, *carried = body.params
        self.loops[iv] = o
        self.number(body.params)
        growth = self._growth(o, carried)
        for param, first, by, result in zip(carried, init, growth, o.results, strict=True):
            start = self.of(first)
            if by is None or start is None:
                continue
            here = self._scaled(by, self._iteration(iv, lo, step))
            end = self._scaled(by, Poly.atom(self._trips(lo, hi, step)))
            self.affine[param] = _sum(start, here)
            self.affine[result] = _sum(start, end)

    def _growth(self, o: Op, carried: list[Value]) -> list[Affine | None]:
        """For each carried value, what one iteration adds, where that is the same in every one."""
        (body,) = o.regions
        trial = AffineTiles(
            self.func, dict(self.affine), invariant=self.invariant, order=self.order
        )
        markers: dict[Value, Value] = {}
        for p in carried:
            if not isinstance(p.type, (Scalar, Pointer, Tile)):
                continue
            elem, rank = elem_of(p.type), len(shape_of(p.type))
            if isinstance(elem, Pointer):
                markers[p] = Value(elem)
                trial.affine[p] = Affine(Poly(), (Poly(),) * rank, markers[p])
            elif elem in (i32, i64):
                markers[p] = Value(Scalar(i64))
                trial.affine[p] = Affine(Poly.atom(markers[p]), (Poly(),) * rank)
        trial.walk(body)
        inside = {*defined(body), *markers.values()}
        out: list[Affine | None] = []
        for p, y in zip(carried, body.yielded, strict=True):
            by = trial.of(y) if p in markers else None
            if by is not None and by.base is not None:
                by = Affine(by.start, by.coefs) if by.base is markers[p] else None
            elif by is not None:
                by = Affine(by.start - Poly.atom(markers[p]), by.coefs)
            if by is not None and any(self._depends(a, inside) for a in _atoms(by)):
                by = None
            out.append(by)
        return out

    def _depends(self, atom: Hashable, inside: set[Value]) -> bool:
        match atom:
            case Trips(lo=lo, hi=hi, step=step):
                return any(v in inside for v in (lo, hi, step))
            case Iteration():
                return True
        return atom in inside

    def _iteration(self, iv: Value, lo: Value, step: Value) -> Poly:
        """The iteration's index as a polynomial, in terms of iv where the step allows it."""
        start, unit = self.of(lo), self.of(step)
        assert start is not None and unit is not None
        if unit.start.constant == 1:
            return Poly.atom(iv) - start.start
        it = Iteration(iv, lo, step)
        self.number([it])
        return Poly.atom(it)

    def _trips(self, lo: Value, hi: Value, step: Value) -> Trips:
        t = Trips(lo, hi, step)
        self.number([t])
        if all(v in self.invariant for v in (lo, hi, step)):
            self.invariant.add(t)
        return t

    def _scaled(self, by: Affine, n: Poly) -> Affine:
        """by · n, with step·Iteration simplified to iv - lo where the step divides exactly."""

        def scale(p: Poly) -> Poly:
            only = next((m[0] for m in n.terms if len(m) == 1 == len(n.terms)), None)
            if isinstance(only, Iteration):
                step, lo = self.of(only.step), self.of(only.lo)
                assert step is not None and lo is not None
                quotient, rest = p.divide(step.start)
                if not rest:
                    return quotient * (Poly.atom(only.iv) - lo.start)
            return p * n

        return Affine(scale(by.start), tuple(scale(c) for c in by.coefs))

    def walk(self, region: Region) -> None:
        """Visit a region in order, loops included."""
        for o in region.ops:
            self.visit_op(o)

    def visit_op(self, o: Op) -> None:
        self.number(o.results)
        self.makers.update(dict.fromkeys(o.results, o))
        if (
            o.results
            and not o.regions
            and not o.kind.effect
            and o.kind not in (tile.program_id,)
            and all(v in self.invariant for v in o.operands)
        ):
            self.invariant.update(o.results)
        if o.kind is control.for_:
            self.enter_loop(o)
            self.walk(o.regions[0])
        elif o.regions:
            for r in o.regions:
                self.number(r.params)
                self.walk(r)
        else:
            self.visit(o)

    # ---- sizes

    def fits(self, p: Poly) -> bool:
        """Does the program compute p from 32-bit numbers in 32 bits?"""
        return not any(m in self.wide for m in p.terms) and not any(
            dtype_of(v.type) in (i64, u64) for a in p.atoms() for v in values_of(a)
        )

    # ---- signs

    def is_nonnegative(self, p: Poly) -> bool:
        """Is p never negative, by what is taken so far?"""
        return self._holds(p, self.assumed)

    def nonnegative(self, p: Poly) -> bool:
        """Is p never negative?  Parameters of which that needs to hold as well are taken to be so
        (`assumed`), as few as can be."""
        if self.is_nonnegative(p):
            return True
        given = {v for v in self.func.params if isinstance(v.type, Scalar) and v.type.dtype.is_int}
        if not self._holds(p, given):
            return False
        for v in [v for v in self.func.params if v in given - self.assumed]:
            if self._holds(p, given - {v}):
                given.discard(v)
        self.assumed |= given
        return True

    def _holds(self, p: Poly, given: Iterable[Value]) -> bool:
        """Is p never negative where these parameters aren't?"""
        facts = self._facts(frozenset(given))
        return Bounds(facts, lambda q: self._bounds(q, facts), self._poly).nonnegative(p)

    def _poly(self, v: Value) -> Poly:
        known = self.of(v)
        assert known is not None and not known.coefs
        return known.start

    def _facts(self, given: frozenset[Value]) -> Facts:
        if given not in self.proofs:
            known = parameters(self.func)
            known |= {v: known[v].refined(low=0) for v in given}
            self.proofs[given] = facts_of(self.func).under(known)
        return self.proofs[given]

    def _bounds(self, p: Poly, facts: Facts) -> Interval:
        total = exactly(0)
        for m, c in p.terms.items():
            atoms = (self._atom_bounds(a, facts) for a in m)
            total = plus(total, functools.reduce(times, atoms, exactly(c)))
        return total

    def _atom_bounds(self, a: Hashable, facts: Facts) -> Interval:
        if isinstance(a, (Trips, Iteration)):
            return Interval(0, range_of(i64)[1])
        assert isinstance(a, Value)
        found, known = facts.interval(a), self.affine.get(a)
        if known is None or known.coefs or known.start == Poly.atom(a):
            return found
        symbolic = self._bounds(known.start, facts)
        return found.refined(symbolic.low, symbolic.high)


_MOVES = (tile.expand_dims, tile.broadcast, tile.transpose)


def _moves(o: Op) -> bool:
    """Does o keep which elements follow each other along an axis?"""
    return o.kind in _MOVES or (o.kind is tile.reshape and tile.inserts_units(o))


def _along(o: Op) -> list[int | None]:
    """For each axis of what o makes by moving elements the operand's, None where it has none (an axis of size
    1 has index 0 only: repeated it is no axis any more)."""
    old, new = (shape_of(v.type) for v in (o.operands[0], o.result))
    if o.kind is tile.broadcast:
        return [d if n == m else None for d, (n, m) in enumerate(zip(old, new, strict=True))]
    assert o.kind.axes is not None
    return [o.kind.axes(o, d)[0] for d in range(len(new))]


_ORDERS = (arith.lt, arith.le, arith.gt, arith.ge)


def _wrapped(x: Affine, modulus: Affine) -> Affine | None:
    """x % modulus, where x steps by one along one axis and the modulus is the same everywhere."""
    moving = [d for d, c in enumerate(x.coefs) if c]
    if len(moving) != 1 or any(modulus.coefs) or x.wraps or x.base is not None:
        return None
    if x.coefs[moving[0]] != Poly.const(1):
        return None
    return replace(x, wraps=(Wrap(moving[0], x.start, modulus.start),))


def _combine(o: Op, x: Affine, y: Affine) -> Affine | None:
    if o.kind is arith.sub:
        if y.base is not None:
            return None
        return _sum(x, Affine(-y.start, tuple(-c for c in y.coefs), None, y.wraps))
    if o.kind in (arith.add, arith.addptr):
        return _sum(x, y)
    # a product of two that both move along an axis is no affine function of the index
    if x.base is not None or y.base is not None or (any(x.coefs) and any(y.coefs)):
        return None
    if any(y.coefs):
        x, y = y, x
    return Affine(x.start * y.start, tuple(c * y.start for c in x.coefs), None, x.wraps + y.wraps)


def _sum(x: Affine, y: Affine) -> Affine:
    n = max(len(x.coefs), len(y.coefs))
    xs, ys = ((*a.coefs, *(Poly(),) * (n - len(a.coefs))) for a in (x, y))
    return Affine(
        x.start + y.start,
        tuple(a + b for a, b in zip(xs, ys, strict=True)),
        x.base if x.base is not None else y.base,
        x.wraps + tuple(w for w in y.wraps if w not in x.wraps),
        x.offsets,
    )


def _atoms(a: Affine) -> Iterable[Hashable]:
    for p in (a.start, *a.coefs):
        yield from p.atoms()


def values_of(atom: Hashable) -> tuple[Value, ...]:
    """The SSA values that an atom is computed from."""
    match atom:
        case Trips(lo=lo, hi=hi, step=step):
            return (lo, hi, step)
        case Iteration(iv=iv, lo=lo, step=step):
            return (iv, lo, step)
    assert isinstance(atom, Value)
    return (atom,)
