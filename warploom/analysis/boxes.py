"""The box of a view that an access by pointers is, or the reason why it is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warploom.analysis.affine_tiles import Affine, AffineTiles, Bound
from warploom.analysis.data_split import result_axis
from warploom.analysis.facts import facts_of
from warploom.ir.core import Family, Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.poly import Monomial, Poly
from warploom.ir.types import shape_of

MAX_RANK = 5  # of a view, and of TMA's tensors


class NoBoxError(Exception):
    """Why an access is no box."""


@dataclass(frozen=True)
class Box:
    """Per axis start, extent (None: unbounded) and stride, from `base` plus `shift` elements.  The
    tile's axes come last, after those of offsets that belong to none of them.  narrow: see make_view."""

    base: Value
    shift: Poly
    starts: tuple[Poly, ...]
    extents: tuple[Poly | None, ...]
    strides: tuple[Poly, ...]
    narrow: tuple[str, ...] = ()


def find_box(an: AffineTiles, o: Op, mask: Value | None) -> Box:
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
    corner = _Corner(an, strides, [None if c else Poly.const(1) for c in a.coefs], a.start)
    guarded = corner.bound(bounds, invariant)
    extra = corner.divide(invariant)
    corner.guard(guarded, extra)
    box = Box(
        a.base,
        corner.rest,
        (*(start for _, start in extra), *corner.starts),
        (*(None for _ in extra), *corner.extents),
        (*(stride for stride, _ in extra), *strides),
    )
    return replace(box, narrow=narrow(an, a.offsets, box))


@dataclass(eq=False)
class _Corner:
    """Where a box begins, and what of the offset is still to be explained by its axes."""

    an: AffineTiles
    strides: tuple[Poly, ...]
    extents: list[Poly | None]
    rest: Poly
    starts: list[Poly] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [Poly()] * len(self.strides)

    def bound(
        self, bounds: Mapping[int, Sequence[Bound]], invariant: Callable[[Monomial], bool]
    ) -> set[tuple[int, Poly]]:
        """Starts and extents of the axes that a mask bounds; the (axis, start)s that are no less than 0."""
        guarded = set()
        for d, along in bounds.items():
            for b in along:
                if b.extent is None:
                    guarded.add((d, b.start))
                    continue
                fixed, moving = b.extent.split(invariant)
                start, known = b.start - moving, self.extents[d]
                if known not in (None, fixed) or (known is not None and self.starts[d] != start):
                    raise NoBoxError(f"axis {d} has two different upper bounds")
                self.starts[d], self.extents[d] = start, fixed
            if self.extents[d] is not None:
                self.rest = self.rest - self.starts[d] * self.strides[d]
        return guarded

    def divide(self, invariant: Callable[[Monomial], bool]) -> list[tuple[Poly, Poly]]:
        """What no mask explains goes to the axis whose stride divides it, the rarer strides first, or to axes
        of its own: (stride, start)."""
        free = [d for d, end in enumerate(self.extents) if end is None]
        for d in sorted(free, key=lambda d: _rarity(self.strides[d])):
            # a constant stride divides whatever it likes, also offsets by strides of other axes
            takes_all = self.strides[d].constant is None
            moving, fixed = self.rest.split(
                lambda m, takes_all=takes_all: (  # type: ignore[misc]
                    not invariant(m) and (takes_all or not any(x in self.an.invariant for x in m))
                )
            )
            quotient, left = moving.divide(self.strides[d])
            start = self.starts[d] + quotient
            end = _fallen(self.an, start)
            self.starts[d], self.rest = start + end, left + fixed - end * self.strides[d]
        extra, self.rest = extra_axes(self.an, self.rest)
        axes = len(extra) + len(self.strides)
        if axes > MAX_RANK:
            raise NoBoxError(f"it takes {axes} axes, a view has at most {MAX_RANK}")
        return extra

    def guard(self, guarded: set[tuple[int, Poly]], extra: Sequence[tuple[Poly, Poly]]) -> None:
        """No axis may begin before its array, and each coordinate fits 32 bits."""
        an = self.an
        if not all(an.nonnegative(start) for _, start in extra):
            raise NoBoxError("an offset that belongs to no axis may be negative")
        for d, start in enumerate(self.starts):
            if (d, start) not in guarded and not an.nonnegative(start):
                raise NoBoxError(f"the start of axis {d} may be negative")
        for d, start in guarded:
            if start != self.starts[d] and not an.nonnegative(start):
                raise NoBoxError(f"axis {d} has a lower bound other than the array's")
        if any(self.extents[d] is None for d, _ in guarded):
            raise NoBoxError("a lower bound without an upper one")
        for d in _flat_axes(an, self.strides, [stride for stride, _ in extra]):
            end = self.extents[d]
            if an.fits(self.starts[d]) or (end is not None and an.fits(end)):
                continue
            if any(d == e for e, _ in guarded):
                raise NoBoxError(f"axis {d} has a lower bound, and its start has 64 bits")
            self.rest = self.rest + self.starts[d] * self.strides[d]
            self.extents[d] = None if end is None else end - self.starts[d]
            self.starts[d] = Poly()


def _flat_axes(an: AffineTiles, strides: Sequence[Poly], others: Sequence[Poly]) -> list[int]:
    """The axes that may be longer than a coordinate counts: their strides are constants, and no stride (of
    another axis, or of none of the tile's) that a launch gives in 32 bits bounds them."""
    if any(p.constant is None and an.fits(p) for p in (*strides, *others)):
        return []
    return [d for d, p in enumerate(strides) if p.constant is not None]


def local_box(an: AffineTiles, o: Op, mask: Value | None) -> Box:
    """The box of an access as one of a view that begins at its corner, or as many iterations of the loops
    around before it as surely aren't negative; NoBoxError where there is none."""
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
            varying, fixed = rest.split(lambda m: any(x in an.loops for x in m))
            start, left = varying.divide(a.coefs[d])
            if an.fits(start) and an.nonnegative(start):
                starts[d], rest = start, left + fixed
    box = Box(a.base, rest, tuple(starts), tuple(extents), a.coefs)
    return replace(box, narrow=narrow(an, a.offsets, box))


def narrow(an: AffineTiles, offsets: Sequence[Affine], box: Box) -> tuple[str, ...]:
    """Which parts of a box's places each i32 offset of its pointers has; see make_view."""
    parts = [(Poly.const(1), box.shift), *zip(box.strides, box.starts, strict=True)]
    found = []
    for offset in offsets:
        left, marks, scaled = offset.start, "", False
        coefs = (*(None,) * (len(parts) - len(offset.coefs)), *offset.coefs)
        for (stride, start), coef in zip(parts, coefs, strict=True):
            place = start * stride
            is_part = all(left.terms.get(m) == c for m, c in place.terms.items())
            mark = "-" if coef is None else "i"
            if is_part and (marks or box.base in an.func.params):
                left, mark = left - place, "c"
            marks += mark if coef in (None, stride) else "-"
            is_sum = stride != Poly.const(1) or (coef is None and bool(place))
            scaled |= marks[-1] != "-" and is_sum
        if scaled and an.is_nonnegative(left):  # a coordinate by itself is an i32
            found.append(marks)
    return tuple(dict.fromkeys(found))


def extra_axes(an: AffineTiles, offset: Poly) -> tuple[list[tuple[Poly, Poly]], Poly]:
    """([(stride, start)] of the axes that explain what varies in `offset`, the invariant rest).

    Each term is what is known at launch (the stride) times what varies (the start): a batch's index,
    an attention head's.  What counts down begins at the loop's end, so that no start is negative."""
    found: dict[Monomial, dict[Monomial, int]] = {}
    rest: dict[Monomial, int] = {}
    for m, c in offset.terms.items():
        moving = tuple(x for x in m if x not in an.invariant)
        if moving:
            found.setdefault(tuple(x for x in m if x in an.invariant), {})[moving] = c
        else:
            rest[m] = c
    axes, fixed = [], Poly(rest)
    for m, starts in found.items():
        unit = math.gcd(*starts.values())
        stride, start = Poly({m: unit}), Poly({s: c // unit for s, c in starts.items()})
        end = _fallen(an, start)
        axes.append((stride, start + end))
        fixed = fixed - end * stride
    return axes, fixed


def _fallen(an: AffineTiles, start: Poly) -> Poly:
    """What a start that may be negative lacks in the last iteration of loops that lower it, whose ends are
    known at launch.  Nothing in kernels without dots: a recurrence's loads by pointers can be masked where
    they stand under an `if` (passes/tile/convert_ifs.py)."""
    total, scope = Poly(), facts_of(an.func).scope
    assert scope is not None
    if an.nonnegative(start) or tile.dot not in an.func.body.by_kind:
        return total
    for m, c in start.terms.items():
        at = m[0] if len(m) == 1 and c < 0 else None
        loop = scope.indices.get(at) if isinstance(at, Value) else None
        stop = an.of(loop.operands[1]) if loop is not None else None
        if stop is not None and all(a in an.invariant for a in stop.start.atoms()):
            total = total - Poly.const(c) * (stop.start - Poly.const(1))
    return total


def _only_used_below(an: AffineTiles, loaded: Value, bound: Bound) -> bool:
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


def _next_uses(an: AffineTiles, o: Op, i: int, axis: int) -> list[tuple[Value, int]] | None:
    """Where an axis of operand i of o goes: (value, axis) pairs; None where it is mixed or escapes."""
    value = o.operands[i]
    outer = an.parents[o] if o.kind is control.yield_ else o
    if outer.kind in (control.for_, control.if_):
        carried = (c for c in control.carried(outer) if value in (*c.init, *c.yielded))
        return [(v, axis) for c in carried for v in (*c.params, c.result)]
    keeps = o.kind.family in (Family.POINTWISE, Family.MOVE) or o.kind in (tile.reduce, tile.dot)
    at = result_axis(o, i, axis) if keeps and o.kind is not arith.addptr else None
    if at is None or shape_of(o.result.type)[at] != shape_of(value.type)[axis]:
        return None
    return [(o.result, at)]


def _rarity(stride: Poly) -> tuple[bool, int]:
    """Symbolic strides before constants, larger constants before smaller ones."""
    return stride.constant is not None, -abs(stride.constant or 0)


def _bounds(an: AffineTiles, mask: Value | None) -> dict[int, list[Bound]]:
    if mask is None:
        return {}
    found = an.masks.get(mask)
    if found is None:
        raise NoBoxError("its mask is no conjunction of bounds along axes")
    out: dict[int, list[Bound]] = {}
    for b in found:
        out.setdefault(b.axis, []).append(b)
    return out
