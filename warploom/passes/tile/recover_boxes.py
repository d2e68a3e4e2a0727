"""Recovers boxes from tiles of pointers: load → load_box, store → store_box.

Order: after canonicalize (constants are folded, so that a stride of 1 is visible), before a schedule
is chosen, which reads the views that this pass makes.

A tile of pointers is `base + Σ_d (start_d + index_d)·stride_d`, with a mask of comparisons
`start_d + index_d < extent_d`.  The pass follows the sum symbolically (polynomials over scalars)
through splats, broadcasts, loops that advance pointers and nested loops, and rewrites the access:

    before:  %p = addptr(%splat_base, %offsets)      in a loop: %next = addptr(%p, %step)
             %x = load(%p, %mask)
    after:   %v = make_view(%base, %extent0, %extent1, %stride0, %stride1)      before the loop
             %x = load_box(%v, %start0, %start1)

Coordinates have 32 bits: where the program computes in 64 what may be longer than that (a vector's start,
and no bound or stride says that it isn't), the start is part of the view's base.

Legal only where base, strides and extents are launch-invariant, every start is not negative (or the
mask says so), masked-off elements are zero, and the mask constrains whole axes.  `% M` on an index is a bound
where all that is loaded beyond it is masked off by the same bound before it reaches memory.  An axis
without a bound gets the largest extent.  An offset that varies and belongs to no axis of the tile, as a
batch's `z·stride_z`, becomes a leading axis of the view; so does one in the base of a view that the
program makes itself (a block pointer into a batch).  Anything else stays as it is;
func.attrs["access_notes"], pairs of (op id, reason), says why.  What a loop or an if passes on is not
negative where all that it comes from is not; of a number from memory `tl.assume` can say so.  A divisor in
index arithmetic is taken to be positive.  Integer parameters taken to be non-negative are listed in
func.attrs["nonnegative"] (indices): a launch with a negative one uses a variant compiled without this pass.

Where only a launch's arguments are missing (strides and places that the program reads from memory, as the
products of a group have them), the access is a box of a view of its own, whose base is the tile's corner.
TMA can't have it; but units of 16 bytes can be moved wherever they begin.  Only in kernels with dots, and
where nothing tells of adjacent elements that 4 bytes are aligned: else pointers do as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from warploom.analysis.access import TMA_BYTES
from warploom.analysis.bounds import Bounds
from warploom.analysis.contiguity import run_of
from warploom.analysis.facts import Facts, facts_of, parameters
from warploom.analysis.lattice import Interval, exactly, limits_of, power_of_two, range_of
from warploom.analysis.scalar_rules import plus, times
from warploom.ir.analysis import defined
from warploom.ir.core import Builder, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.poly import Monomial, Poly
from warploom.ir.types import DType, Pointer, Scalar, Tile, elem_of, i32, i64, shape_of, u64
from warploom.schedule.model import Schedule
from warploom.target import Target

_BOXES = (tile.load_box, tile.store_box)
MAX_RANK = 5  # of a view, and of TMA's tensors


@dataclass(frozen=True)
class Affine:
    """An integer scalar or tile as start + Σ_d coefs[d]·index_d; a pointer's root is `base`."""

    start: Poly
    coefs: tuple[Poly, ...]
    base: Value | None = None
    wraps: tuple[Wrap, ...] = ()


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


class NoBoxError(Exception):
    """Why an access is no box."""


@dataclass(eq=False)
class _Analysis:
    """Abstract values, by SSA value; filled in program order."""

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
    parents: dict[Op, Op] = field(
        default_factory=dict
    )  # of each yield, the op whose region it ends
    wide: set[Monomial] = field(
        default_factory=set
    )  # products that the program computes in 64 bits
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
        if kind is tile.splat:
            return Affine(x.start, (Poly(),) * len(o.attrs["shape"]), x.base)
        if kind is tile.expand_dims:
            axis = o.attrs["axis"]
            wraps = tuple(replace(w, axis=w.axis + (w.axis >= axis)) for w in x.wraps)
            return Affine(x.start, (*x.coefs[:axis], Poly(), *x.coefs[axis:]), x.base, wraps)
        if kind is tile.broadcast:
            # an axis of size 1 has index 0 only: whatever its coefficient, repeated it has none
            old = shape_of(o.operands[0].type)
            coefs = tuple(
                c if n == m else Poly()
                for c, n, m in zip(x.coefs, old, o.attrs["shape"], strict=True)
            )
            return Affine(x.start, coefs, x.base, x.wraps)
        if kind is tile.transpose:
            perm = o.attrs["perm"]
            wraps = tuple(replace(w, axis=perm.index(w.axis)) for w in x.wraps)
            return Affine(x.start, tuple(x.coefs[p] for p in perm), x.base, wraps)
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
        found = _combine(o, x, args[1]) if args[1] is not None else None
        if found is not None and kind is arith.mul and elem == i64:
            self.wide.update(m for m in found.start.terms if m)
        return found

    def _mask(self, o: Op) -> tuple[Bound, ...] | None:
        kind = o.kind
        if kind is arith.and_ and all(v in self.masks for v in o.operands):
            return self.masks[o.operands[0]] + self.masks[o.operands[1]]
        if kind in (tile.expand_dims, tile.broadcast, tile.transpose):
            return self._moved_mask(o)
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

    def _moved_mask(self, o: Op) -> tuple[Bound, ...] | None:
        bounds = self.masks.get(o.operands[0])
        if bounds is None:
            return None
        old = shape_of(o.operands[0].type)
        out = []
        for b in bounds:
            axis = b.axis
            if o.kind is tile.expand_dims:
                axis += axis >= o.attrs["axis"]
            elif o.kind is tile.transpose:
                axis = o.attrs["perm"].index(axis)
            elif old[axis] != o.attrs["shape"][axis]:
                return None
            out.append(Bound(axis, b.start, b.extent))
        return tuple(out)

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
        trial = _Analysis(self.func, dict(self.affine), invariant=self.invariant, order=self.order)
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
            _dtype(v) in (i64, u64) for a in p.atoms() for v in _values(a)
        )

    # ---- signs

    def nonnegative(self, p: Poly) -> bool:
        """Is p never negative?  Parameters of which that needs to hold as well are taken to be so
        (`assumed`), as few as can be."""
        if self._holds(p, self.assumed):
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
    )


def _atoms(a: Affine) -> Iterable[Hashable]:
    for p in (a.start, *a.coefs):
        yield from p.atoms()


# ---- boxes


@dataclass(frozen=True)
class Box:
    """Per axis start, extent (None: unbounded) and stride, from `base` plus `shift` elements.  The
    tile's axes come last, after those of offsets that belong to none of them."""

    base: Value
    shift: Poly
    starts: tuple[Poly, ...]
    extents: tuple[Poly | None, ...]
    strides: tuple[Poly, ...]


def _find_box(an: _Analysis, o: Op, mask: Value | None) -> Box:
    """The box of an access; NoBoxError with the reason where there is none."""
    pointer = o.operands[0]
    a = an.of(pointer)
    if a is None or a.base is None:
        raise NoBoxError("its addresses are not base + Σ index·stride")
    if a.base not in an.func.params:
        raise NoBoxError("its base pointer is read from memory")
    shape = shape_of(pointer.type)

    def invariant(m: Monomial) -> bool:
        return all(x in an.invariant for x in m)

    for d, (n, c) in enumerate(zip(shape, a.coefs, strict=True)):
        if n > 1 and not c:
            raise NoBoxError(f"every element along axis {d} has the same address")
        if not all(invariant(m) for m in c.terms):
            raise NoBoxError(f"the stride of axis {d} is not known at launch")
    # an axis of one element needs no stride: one that satisfies every alignment rule
    strides = tuple(c if c else Poly.const(16) for c in a.coefs)
    bounds = _bounds(an, mask)
    for w in a.wraps:
        bound = Bound(w.axis, w.start, w.modulus)
        if o.kind is not tile.load or not _only_used_below(an, o.result, bound):
            raise NoBoxError(f"it wraps around along axis {w.axis}, and what wraps may be used")
        bounds.setdefault(w.axis, []).append(bound)
    starts: list[Poly] = [Poly()] * len(shape)
    extents: list[Poly | None] = [None if c else Poly.const(1) for c in a.coefs]
    rest = a.start
    guarded = set()
    for d, along in bounds.items():
        for b in along:
            if b.extent is None:
                guarded.add((d, b.start))
                continue
            fixed, moving = b.extent.split(invariant)
            start = b.start - moving
            if extents[d] not in (None, fixed) or (extents[d] is not None and starts[d] != start):
                raise NoBoxError(f"axis {d} has two different upper bounds")
            starts[d], extents[d] = start, fixed
        if extents[d] is not None:
            rest = rest - starts[d] * strides[d]
    # what no mask explains goes to the axis whose stride divides it, the rarer strides first
    free = [d for d in range(len(shape)) if extents[d] is None]
    for d in sorted(free, key=lambda d: _rarity(strides[d])):
        # a constant stride divides whatever it likes, also offsets by strides of other axes
        takes_all = strides[d].constant is None
        moving_part, fixed_part = rest.split(
            lambda m, takes_all=takes_all: (  # type: ignore[misc]
                not invariant(m) and (takes_all or not any(x in an.invariant for x in m))
            )
        )
        quotient, left = moving_part.divide(strides[d])
        starts[d] = starts[d] + quotient
        rest = left + fixed_part
    extra, rest = _extra_axes(an, rest)
    if len(extra) + len(shape) > MAX_RANK:
        raise NoBoxError(f"it takes {len(extra) + len(shape)} axes, a view has at most {MAX_RANK}")
    if not all(an.nonnegative(start) for _, start in extra):
        raise NoBoxError("an offset that belongs to no axis may be negative")
    for d, start in enumerate(starts):
        lower = (d, start) in guarded
        if not lower and not an.nonnegative(start):
            raise NoBoxError(f"the start of axis {d} may be negative")
    for d, start in guarded:
        if start != starts[d] and not an.nonnegative(start):
            raise NoBoxError(f"axis {d} has a lower bound other than the array's")
    if any(d not in {e for e, x in enumerate(extents) if x is not None} for d, _ in guarded):
        raise NoBoxError("a lower bound without an upper one")
    for d in _flat_axes(an, strides, [stride for _, stride in extra]):
        end = extents[d]
        if an.fits(starts[d]) or (end is not None and an.fits(end)):
            continue
        if any(d == e for e, _ in guarded):
            raise NoBoxError(f"axis {d} has a lower bound, and its start has 64 bits")
        rest = rest + starts[d] * strides[d]
        extents[d] = None if end is None else end - starts[d]
        starts[d] = Poly()
    return Box(
        a.base,
        rest,
        (*(start for _, start in extra), *starts),
        (*(None for _ in extra), *extents),
        (*(stride for stride, _ in extra), *strides),
    )


def _flat_axes(an: _Analysis, strides: Sequence[Poly], others: Sequence[Poly]) -> list[int]:
    """The axes that may be longer than a coordinate counts: their strides are constants, and no stride (of
    another axis, or of none of the tile's) that a launch gives in 32 bits bounds them."""
    if any(p.constant is None and an.fits(p) for p in (*strides, *others)):
        return []
    return [d for d, p in enumerate(strides) if p.constant is not None]


def _local_box(an: _Analysis, o: Op, mask: Value | None) -> Box:
    """The box of an access as one of a view that begins at its corner, or as many iterations of the loops
    around in front of it as surely aren't negative; NoBoxError where there is none."""
    pointer = o.operands[0]
    a = an.of(pointer)
    shape = shape_of(pointer.type)
    if a is None or a.base is None or a.wraps:
        raise NoBoxError("its addresses are not base + Σ index·stride")
    if not all(a.coefs) or all(c.constant != 1 for c in a.coefs):
        raise NoBoxError("no axis has a stride of one element")
    extents: list[Poly | None] = [None] * len(shape)
    for d, along in _bounds(an, mask).items():
        if len(along) > 1 or along[0].extent is None:
            raise NoBoxError(f"axis {d} has several bounds")
        extents[d] = along[0].extent - along[0].start
    starts: list[Poly] = [Poly()] * len(shape)
    rest = a.start
    for d in sorted(range(len(shape)), key=lambda d: _rarity(a.coefs[d])):
        if extents[d] is None:
            turning, fixed = rest.split(lambda m: any(x in an.loops for x in m))
            start, left = turning.divide(a.coefs[d])
            if an.fits(start) and an.nonnegative(start):
                starts[d], rest = start, left + fixed
    return Box(a.base, rest, tuple(starts), tuple(extents), a.coefs)


def _extra_axes(an: _Analysis, offset: Poly) -> tuple[list[tuple[Poly, Poly]], Poly]:
    """([(stride, start)] of the axes that explain what varies in `offset`, the invariant rest).

    Each term is what is known at launch (the stride) times what varies (the start): a batch's index,
    an attention head's."""
    found: dict[Monomial, dict[Monomial, int]] = {}
    rest: dict[Monomial, int] = {}
    for m, c in offset.terms.items():
        moving = tuple(x for x in m if x not in an.invariant)
        if moving:
            found.setdefault(tuple(x for x in m if x in an.invariant), {})[moving] = c
        else:
            rest[m] = c
    axes = []
    for m, starts in found.items():
        unit = math.gcd(*starts.values())
        start = Poly({s: c // unit for s, c in starts.items()})
        axes.append((Poly({m: unit}), start))
    return axes, Poly(rest)


def _only_used_below(an: _Analysis, loaded: Value, bound: Bound) -> bool:
    """Whether what a tile holds at and above `bound` can reach memory: every way from it to a store
    keeps the axis, and the store is masked by the same bound."""
    work = [(loaded, bound.axis)]
    seen = set(work)
    while work:
        value, axis = work.pop()
        for o, i in an.uses.get(value, ()):
            if o.kind is tile.store:
                here = replace(bound, axis=axis)
                masks = an.masks.get(o.operands[2], ()) if len(o.operands) > 2 else ()
                if i != 1 or here not in masks:
                    return False
                continue
            reached = _next_uses(an, o, i, axis)
            if reached is None:
                return False
            work += [r for r in reached if r not in seen]
            seen.update(reached)
    return True


def _next_uses(an: _Analysis, o: Op, i: int, axis: int) -> list[tuple[Value, int]] | None:
    """Where an axis of operand i of o goes: (value, axis) pairs; None where it is mixed or escapes."""
    if o.kind in arith.ELEMENTWISE and o.kind is not arith.addptr:
        return [(o.result, axis)]
    if o.kind is tile.broadcast:
        return [(o.result, axis)]
    if o.kind is tile.expand_dims:
        return [(o.result, axis + (axis >= o.attrs["axis"]))]
    if o.kind is tile.transpose:
        return [(o.result, o.attrs["perm"].index(axis))]
    if o.kind is tile.reduce and axis != o.attrs["axis"]:
        return [(o.result, axis - (axis > o.attrs["axis"]))]
    if o.kind is tile.dot and (i, axis) in ((0, 0), (1, 1), (2, 0), (2, 1)):
        return [(o.result, axis)]
    if o.kind is control.for_ and i >= 3:
        return [(o.regions[0].params[i - 2], axis), (o.results[i - 3], axis)]
    if o.kind is control.yield_:
        parent = an.parents[o]
        out = [(parent.results[i], axis)] if parent.kind in (control.for_, control.if_) else None
        if out and parent.kind is control.for_:
            out.append((parent.regions[0].params[i + 1], axis))
        return out
    return None


def _rarity(stride: Poly) -> tuple[bool, int]:
    """Symbolic strides before constants, larger constants before smaller ones."""
    return stride.constant is not None, -abs(stride.constant or 0)


def _bounds(an: _Analysis, mask: Value | None) -> dict[int, list[Bound]]:
    if mask is None:
        return {}
    found = an.masks.get(mask)
    if found is None:
        raise NoBoxError("its mask is no conjunction of bounds along axes")
    out: dict[int, list[Bound]] = {}
    for b in found:
        out.setdefault(b.axis, []).append(b)
    return out


@dataclass
class _Rewriter:
    an: _Analysis
    facts: Facts
    has_dots: bool
    views: dict[tuple[object, ...], Value] = field(default_factory=dict)
    moved: dict[Value, tuple[Value, ...]] = field(default_factory=dict)  # see user_view
    preamble: Builder = field(default_factory=Builder)  # before the current top-level op
    outside: set[Value] = field(default_factory=set)  # what is known there
    loops: int = 0  # around the current op

    def region(self, region: Region) -> Region:
        b = Builder()
        for o in region.ops:
            self.op(o, b)
        return Region(region.params, tuple(b.ops))

    def op(self, o: Op, b: Builder) -> None:
        if o.kind in (tile.load, tile.store) and isinstance(o.operands[0].type, Tile):
            try:
                self.access(o, b)
                return
            except NoBoxError as why:
                self.an.notes[o.id] = str(why)
        if o.kind is tile.make_view:
            self.user_view(o, b)
            return
        if o.kind in _BOXES and o.operands[0] in self.moved:
            lead = 1 if o.kind is tile.load_box else 2
            view, *offsets = self.moved[o.operands[0]]
            o = o.with_(operands=(view, *o.operands[1:lead], *offsets, *o.operands[lead:]))
        if o.regions:
            self.loops += o.kind is not control.if_
            o = o.with_(regions=tuple(self.region(r) for r in o.regions))
            self.loops -= o.kind is not control.if_
        b.append(o)

    def access(self, o: Op, b: Builder) -> None:
        rest = o.operands[1:] if o.kind is tile.load else o.operands[2:]
        if o.kind is tile.load and o.attrs.get("volatile"):
            raise NoBoxError("it is volatile")
        filled = len(rest) > 1 and not self.is_zero(rest[1])
        # A vector in a loop becomes a box, and its reader puts in what is `other`: a producer may bring it.
        # Without dots a load of runs by pointers has `other` in its registers before.
        boxed = self.loops and len(shape_of(o.operands[0].type)) == 1
        if filled and not (boxed and (self.has_dots or self.together(o) < 8)):
            raise NoBoxError("masked-off elements are not zero (`other`)")
        box = self.found(o, rest[0] if rest else None)
        view = self.view(box, o, b)
        with b.at(o):
            offsets = [self.scalar(p, b, i32) for p in box.starts]
            if o.kind is tile.store:
                tile.store_box(b, view, o.operands[1], *offsets, **tile.policy_of(o))
                b.ops[-1] = b.ops[-1].with_(id=o.id)
            else:
                t = o.result.type
                assert isinstance(t, Tile)
                policy = tile.policy_of(o)
                loaded = tile.load_box(
                    b, view, *offsets, shape=t.shape, hint=o.result.hint, **policy
                )
                b.ops[-1] = b.ops[-1].with_(id=o.id)
                if filled:
                    loaded = arith.select(b, rest[0], loaded, rest[1], hint=o.result.hint)
                b.ops[-1] = b.ops[-1].with_(results=o.results)

    def found(self, o: Op, mask: Value | None) -> Box:
        """The box of access o; NoBoxError with the reason where there is none."""
        try:
            return _find_box(self.an, o, mask)
        except NoBoxError:
            if not self.local(o):
                raise
        return _local_box(self.an, o, mask)

    def local(self, o: Op) -> bool:
        """Should an access be a box of a view of its own rather than one by pointers?"""
        return self.has_dots and len(shape_of(o.operands[0].type)) == 2 and self.together(o) < 4

    def together(self, o: Op) -> int:
        """Bytes that access o by pointers moves at once."""
        elem = elem_of(o.operands[0].type)
        assert isinstance(elem, Pointer)
        run = run_of(self.facts, o)
        return elem.dtype.bytes * (run[1] if run else 1)

    def user_view(self, o: Op, b: Builder) -> None:
        """A view of the program's own: what varies in its base becomes leading axes.  `moved` then says
        for the old view the new one and the offsets along its further axes."""
        b.append(o)
        an, base = self.an, o.operands[0]
        a = an.of(base)
        boxed = all(u.kind in _BOXES and i == 0 for u, i in an.uses.get(o.result, ()))
        if a is None or a.base is None or a.base not in an.func.params or not a.start or not boxed:
            return
        extra, rest = _extra_axes(an, a.start)
        rank = len(o.operands) // 2
        if len(extra) + rank > MAX_RANK or not all(an.nonnegative(start) for _, start in extra):
            return
        sizes = [an.of(v) for v in o.operands[1:]]
        extents: list[Poly | None] = [None] * len(extra)
        strides = [stride for stride, _ in extra]
        for i, s in enumerate(sizes):
            if s is None:
                return
            (extents if i < rank else strides).append(s.start)
        if not all(x in an.invariant for p in (*extents, *strides) if p for x in p.atoms()):
            return
        box = Box(a.base, rest, tuple(p for _, p in extra), tuple(extents), tuple(strides))
        view = self.view(box, o, b)
        with b.at(o):
            self.moved[o.result] = (view, *(self.scalar(p, b, i32) for p in box.starts))

    def is_zero(self, v: Value) -> bool:
        o = self.an.makers.get(v)
        while o is not None and o.kind in (tile.splat, tile.broadcast, arith.cast):
            o = self.an.makers.get(o.operands[0])
        return o is not None and o.kind is arith.const and o.attrs["value"] == 0

    def view(self, box: Box, o: Op, b: Builder) -> Value:
        """The view of access o, made once before the top-level op that holds the first access to it, or
        (where it is computed from what a loop or an if inside makes) in front of o."""
        key = (box.base, box.shift, box.extents, box.strides)
        if key in self.views:
            return self.views[key]
        sizes = (box.shift, *(p for p in box.extents if p is not None), *box.strides)
        if all(v in self.outside for p in sizes for a in p.atoms() for v in _values(a)):
            with self.preamble.at(o):
                self.views[key] = self.made_view(box, self.preamble)
            return self.views[key]
        with b.at(o):
            return self.made_view(box, b)

    def made_view(self, box: Box, b: Builder) -> Value:
        base = box.base
        if box.shift:
            base = arith.addptr(b, base, self.scalar(box.shift, b, i64))
        sizes = [
            self.scalar(Poly.const(tile.UNBOUNDED) if e is None else e, b, i64) for e in box.extents
        ]
        strides = [self.scalar(s, b, i64) for s in box.strides]
        pointee = box.base.type
        assert isinstance(pointee, Pointer)
        aligned = self.divisor(Poly.atom(box.base))
        if box.shift:
            aligned = min(aligned, self.divisor(box.shift) * pointee.dtype.bytes)
        known = (aligned, *(self.divisor(s) for s in box.strides))
        view: Value = tile.make_view(b, base, *sizes, *strides, divisible=known)
        return view

    def divisor(self, p: Poly) -> int:
        """The largest power of two up to 16 that is known to divide p."""
        return min((self._term_divisor(m, c) for m, c in p.terms.items()), default=TMA_BYTES)

    def _term_divisor(self, m: Monomial, c: int) -> int:
        known = (self.facts.divisor(a) for a in m if isinstance(a, Value))
        return min(TMA_BYTES, math.prod(known, start=power_of_two(c)))

    def scalar(self, p: Poly, b: Builder, dtype: DType) -> Value:
        """Ops that compute p, in a deterministic order."""
        total: Value | None = None
        order = self.an.order
        terms = sorted(
            p.terms.items(), key=lambda t: (not t[0], sorted(order.get(a, 0) for a in t[0]))
        )
        for m, c in terms:
            term: Value | None = None
            for a in sorted(m, key=lambda a: order.get(a, 0)):
                x = self.atom(a, b, dtype)
                term = x if term is None else arith.mul(b, term, x)
            if term is None:
                term = arith.const(b, value=c, dtype=dtype)
            elif c != 1:
                term = arith.mul(b, term, arith.const(b, value=c, dtype=dtype))
            total = term if total is None else arith.add(b, total, term)
        return arith.const(b, value=0, dtype=dtype) if total is None else total

    def atom(self, a: Hashable, b: Builder, dtype: DType) -> Value:
        match a:
            case Trips(lo=lo, hi=hi, step=step):
                one = arith.const(b, value=1, dtype=_dtype(lo))
                span = arith.sub(b, arith.add(b, arith.sub(b, hi, lo), step), one)
                zero = arith.const(b, value=0, dtype=_dtype(lo))
                v = arith.maximum(b, arith.idiv(b, span, step), zero)
            case Iteration(iv=iv, lo=lo, step=step):
                v = arith.idiv(b, arith.sub(b, iv, lo), step)
            case _:
                assert isinstance(a, Value)
                v = a
        out: Value = v if _dtype(v) == dtype else arith.cast(b, v, dtype=dtype)
        return out


def _values(atom: Hashable) -> tuple[Value, ...]:
    """The SSA values that an atom is computed from."""
    match atom:
        case Trips(lo=lo, hi=hi, step=step):
            return (lo, hi, step)
        case Iteration(iv=iv, lo=lo, step=step):
            return (iv, lo, step)
    assert isinstance(atom, Value)
    return (atom,)


def _dtype(v: Value) -> DType:
    assert isinstance(v.type, Scalar)
    return v.type.dtype


def recover_boxes(func: Func, schedule: Schedule | None, target: Target) -> Func:
    """See the module's docstring."""
    assert func.level is Level.TILE
    an = _Analysis(func)
    an.number(func.params)
    an.invariant.update(func.params)
    an.walk(func.body)
    for o in walk(func.body):
        for i, v in enumerate(o.operands):
            an.uses.setdefault(v, []).append((o, i))
        an.parents.update({r.ops[-1]: o for r in o.regions})
    dots = any(o.kind is tile.dot for o in walk(func.body))
    rewriter = _Rewriter(an, facts_of(func), dots, outside=set(func.params))
    ops: list[Op] = []
    for o in func.body.ops:
        rewriter.preamble = Builder()
        b = Builder()
        rewriter.op(o, b)
        rewriter.outside.update(o.results)
        ops += rewriter.preamble.ops + b.ops
    assumed = tuple(i for i, p in enumerate(func.params) if p in an.assumed)
    attrs = {**func.attrs, "access_notes": tuple(an.notes.items()), "nonnegative": assumed}
    return func.with_(body=Region(func.body.params, tuple(ops)), attrs=attrs)
