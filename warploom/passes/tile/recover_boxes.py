"""Recovers boxes from tiles of pointers: load → load_box, store → store_box.

Order: after canonicalize (constants are folded, so that a stride of 1 is visible), before a schedule
is chosen, which reads the views that this pass makes.
Changes: every kernel with dots, and what loads blocks of arrays.

A tile of pointers is `base + Σ_d (start_d + index_d)·stride_d`, with a mask of comparisons
`start_d + index_d < extent_d`.  The pass follows the sum symbolically (polynomials over scalars)
through splats, broadcasts, loops that advance pointers and nested loops, and rewrites the access:

    before:  %p = addptr(%splat_base, %offsets)      in a loop: %next = addptr(%p, %step)
             %x = load(%p, %mask)
    after:   %v = make_view(%base, %extent0, %extent1, %stride0, %stride1)      before the loop
             %p = addptr(%splat_base, %offsets)       unused: canonicalize drops it
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
func.attrs["nonnegative"] (indices), those taken to be positive, so that no divisor is 0, in "positive": a
launch with others uses a variant compiled without this pass.

Where only a launch's arguments are missing (strides and places that the program reads from memory, as the
products of a group have them), the access is a box of a view of its own, whose base is the tile's corner.
TMA can't have it; but units of 16 bytes can be moved wherever they begin.  Only in kernels with dots, and
where nothing tells of adjacent elements that 4 bytes are aligned: else pointers do as well.  Without dots,
where adjacent elements are aligned and only the mask may end among them: a box moves all but its last ones
together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from warploom.analysis.access import BOX_ALIGNMENT
from warploom.analysis.affine_tiles import AffineTiles, Iteration, Trips, values_of
from warploom.analysis.boxes import (
    MAX_RANK,
    Box,
    NoBoxError,
    extra_axes,
    find_box,
    local_box,
    narrow,
)
from warploom.analysis.contiguity import groups, run_of
from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import power_of_two
from warploom.ir.core import Builder, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.poly import Monomial, Poly
from warploom.ir.rewrite import with_regions
from warploom.ir.types import DType, Tile, dtype_of, i32, i64, pointee_of, shape_of

_BOXES = (tile.load_box, tile.store_box)


@dataclass
class _Rewriter:
    an: AffineTiles
    facts: Facts
    has_dots: bool
    views: dict[tuple[object, ...], Value] = field(default_factory=dict)
    narrow: dict[Value, tuple[str, ...]] = field(default_factory=dict)  # of views: for all accesses
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
            o = with_regions(o, self.region)
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
                shape, policy = shape_of(o.result.type), tile.policy_of(o)
                loaded = tile.load_box(b, view, *offsets, shape=shape, hint=o.result.hint, **policy)
                b.ops[-1] = b.ops[-1].with_(id=o.id)
                if filled:
                    loaded = arith.select(b, rest[0], loaded, rest[1], hint=o.result.hint)
                b.ops[-1] = b.ops[-1].with_(results=o.results)

    def found(self, o: Op, mask: Value | None) -> Box:
        """The box of access o; NoBoxError with the reason where there is none."""
        try:
            return find_box(self.an, o, mask)
        except NoBoxError:
            if not self.local(o):
                raise
        return local_box(self.an, o, mask)

    def local(self, o: Op) -> bool:
        """Should an access be a box of a view of its own rather than one by pointers?"""
        rank = len(shape_of(o.operands[0].type))
        if self.has_dots:
            return rank == 2 and self.together(o) < 4
        return rank == 1 and self.together(o) < self.together(o, masked=False)

    def together(self, o: Op, masked: bool = True) -> int:
        """Bytes that access o by pointers moves at once, with its mask or as if it had none."""
        run = run_of(self.facts, o) if masked else groups(self.facts, o.operands[0], ())
        return pointee_of(o.operands[0].type).bytes * (run[1] if run else 1)

    def user_view(self, o: Op, b: Builder) -> None:
        """A view of the program's own: what varies in its base becomes leading axes.  `moved` then says
        for the old view the new one and the offsets along its further axes."""
        b.append(o)
        an, base = self.an, o.operands[0]
        a = an.of(base)
        boxed = all(u.kind in _BOXES and i == 0 for u, i in an.uses.get(o.result, ()))
        if a is None or a.base is None or a.base not in an.func.params or not a.start or not boxed:
            return
        extra, rest = extra_axes(an, a.start)
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
        starts = tuple(p for _, p in extra)
        n = len(extra)  # of the program's own axes its offsets say nothing
        lead = Box(a.base, rest, starts, tuple(extents[:n]), tuple(strides[:n]))
        marks = tuple(m + "-" * rank for m in narrow(an, a.offsets, lead))
        box = Box(a.base, rest, starts, tuple(extents), tuple(strides), marks)
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
        (where it is computed from what a loop or an if inside makes) before o."""
        key = (box.base, box.shift, box.extents, box.strides)
        if key in self.views:
            view = self.views[key]
            self.narrow[view] = tuple(x for x in self.narrow[view] if x in box.narrow)
            return view
        parts = (Poly.atom(box.base), box.shift, *(p for p in box.extents if p), *box.strides)
        if all(v in self.outside for p in parts for a in p.atoms() for v in values_of(a)):
            with self.preamble.at(o):
                view = self.views[key] = self.made_view(box, self.preamble)
            self.narrow[view] = box.narrow
            return view
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
        aligned = self.divisor(Poly.atom(box.base))
        if box.shift:
            aligned = min(aligned, self.divisor(box.shift) * pointee_of(box.base.type).bytes)
        known = (aligned, *(self.divisor(s) for s in box.strides))
        return tile.make_view(b, base, *sizes, *strides, divisible=known, **_marks(box.narrow))

    def divisor(self, p: Poly) -> int:
        """The largest power of two up to 16 that is known to divide p."""
        return min((self._term_divisor(m, c) for m, c in p.terms.items()), default=BOX_ALIGNMENT)

    def _term_divisor(self, m: Monomial, c: int) -> int:
        known = (self.facts.divisor(a) for a in m if isinstance(a, Value))
        return min(BOX_ALIGNMENT, math.prod(known, start=power_of_two(c)))

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
                one = arith.const(b, value=1, dtype=dtype_of(lo.type))
                span = arith.sub(b, arith.add(b, arith.sub(b, hi, lo), step), one)
                zero = arith.const(b, value=0, dtype=dtype_of(lo.type))
                v = arith.maximum(b, arith.idiv(b, span, step), zero)
            case Iteration(iv=iv, lo=lo, step=step):
                v = arith.idiv(b, arith.sub(b, iv, lo), step)
            case _:
                assert isinstance(a, Value)
                v = a
        return v if dtype_of(v.type) == dtype else arith.cast(b, v, dtype=dtype)


def _marks(narrow: tuple[str, ...]) -> dict[str, Any]:
    """make_view's attribute, where it says something."""
    return {"narrow": narrow} if narrow else {}


def recover_boxes(func: Func) -> Func:
    """See the module's docstring."""
    assert func.level is Level.TILE
    an = AffineTiles(func)
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
    for i, o in enumerate(ops):
        if o.kind is tile.make_view and o.result in rewriter.narrow:
            known = {k: v for k, v in o.attrs.items() if k != "narrow"}
            ops[i] = o.with_(attrs=known | _marks(rewriter.narrow[o.result]))
    assumed = tuple(i for i, p in enumerate(func.params) if p in an.assumed)
    attrs = {**func.attrs, "access_notes": tuple(an.notes.items()), "nonnegative": assumed}
    attrs["positive"] = _positive(func)
    return func.with_(body=Region(func.body.params, tuple(ops)), attrs=attrs)


def _positive(func: Func) -> tuple[int, ...]:
    """The integer parameters, few, that have to be positive for divisors not to be 0: of divisors of which
    that is enough.  (Where y may be 0, x / y costs a test: see `lower_arith.expression`.)"""
    facts, taken = facts_of(func), set[Value]()
    sizes = [p for p in func.params if facts.interval(p).low < 1 <= facts.interval(p).high]

    under: dict[frozenset[Value], Facts] = {}

    def never_zero(v: Value, given: set[Value]) -> bool:
        where = frozenset(given)
        if where not in under:
            under[where] = facts.where({p: facts.interval(p).refined(low=1) for p in given})
        return under[where].never_zero(v)

    for o in walk(func.body):
        if o.kind not in (arith.idiv, arith.rem) or never_zero(o.operands[1], taken):
            continue
        given = taken.union(sizes)
        if never_zero(o.operands[1], given):
            for p in sizes:
                if p not in taken and never_zero(o.operands[1], given - {p}):
                    given.discard(p)
            taken = given
    return tuple(i for i, p in enumerate(func.params) if p in taken)
