"""Strip-mines rows that no registers hold.

Order: after canonicalize (and peel_single_trip_loops); before recover_boxes, which sees a loop over parts as
it sees a user's.
Changes: kernels without dots whose tiles have more elements a thread than there are registers: group norm of
65,536 columns on 4 warps, 512 a thread; masked copies of 1024×1024 scores on 4 warps, 8192 a thread.  Each op
would be emitted for each element, and most of them live in local memory; for the first NVRTC took 48 s
(docs/log/2026-11-23-compile-time.md), the second was refused.

before:  %x = load(%p, %mask) : tile<65536xf32>
         %s = reduce(mul(%x, %x)) {axis=0, fn="add"}
         store(%q, sub(%x, splat(%s)), %mask)
after:   %t = for %part in 0 … 16, carrying %sum from zeros:
             %x1 = load(…) : tile<4096xf32>;  yield(add(%sum, mul(%x1, %x1)))
         %s = reduce(%t) {axis=0, fn="add"}
         for %part in 0 … 16:  %x2 = load(…);  store(…, sub(%x2, splat(%s)), …)

Reductions and stores are the roots; a loop does those that follow each other, and computes again what they
need, loads too.  So a load moves past the stores before its loop, and past those of the loop's earlier parts:
the parameters that they store to are noted (func.attrs["reordered"]) for a launch to compare with those
loaded, as where loads run ahead, and with each other in one loop.  A tile may be stored where it was
loaded; arguments that are one array are one parameter here (runtime/variants.py).  Of two stores to one
array each has a loop of its own: where they meet the second one's elements stay.  Of tiles with several
axes the first is cut, and nothing is reduced or stored where it was loaded.  Where an op does not fit this,
a region stays as it is.  func.attrs["strips"] is what `explain()` tells of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from warploom.analysis.access import Accesses
from warploom.analysis.data_split import operand_axes
from warploom.ir import build
from warploom.ir.analysis import closure
from warploom.ir.core import Builder, Effect, Func, Op, Region, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import with_ops, with_regions
from warploom.ir.types import DType, Tile, dtype_of, elem_of, f32, shape_of
from warploom.schedule.model import Knobs
from warploom.target import Target

PART = 32  # elements a thread of a part: its loads are on their way together
_ROOTS = (tile.reduce, tile.store)
_PLAIN = (tile.splat, tile.arange, tile.load, tile.broadcast, tile.expand_dims, *_ROOTS)
_Cut = tuple[Value, int]  # a value, and the axis along which it is done part by part


def has_wide_rows(func: Func, knobs: Knobs, target: Target) -> bool:
    """Is there a tile of more elements a thread than it has registers, and no dot?"""
    most = target.registers.per_thread * knobs.num_warps * target.warp_size
    if func.attrs.get("overlap") or any(o.kind is tile.dot for o in func.body.all_ops):
        return False
    return any(_size(v) > most for o in func.body.all_ops for v in o.results)


def strip_mine_rows(func: Func, knobs: Knobs, target: Target) -> Func:
    """See the module's docstring."""
    threads = max(1, knobs.num_warps) * target.warp_size  # the chooser refuses fewer
    miner = _Miner(Accesses(func, target), threads, target)
    body = miner.region(func.body)
    if body is func.body:
        return func
    notes = {"reordered": tuple(sorted(miner.pairs)), "strips": tuple(sorted(miner.strips))}
    return func.with_(body=body, attrs={**func.attrs, **notes})


def _size(v: Value) -> int:
    return v.type.size if isinstance(v.type, Tile) else 0


@dataclass(eq=False)
class _Loop:
    """Roots that one loop does, and the ops of their region that it stands before."""

    roots: list[Op]
    end: int = 0
    loads: list[Op] = field(default_factory=list)


@dataclass(eq=False)
class _Miner:
    accesses: Accesses
    threads: int
    target: Target
    pairs: set[tuple[int, int]] = field(default_factory=set)  # (stored, loaded) parameters
    strips: set[tuple[int, int]] = field(default_factory=set)  # (elements of a tile, its parts)

    def __post_init__(self) -> None:
        self.structure = self.accesses.structure
        self.most = self.target.registers.per_thread * self.threads

    def region(self, region: Region) -> Region:
        ops = [with_regions(o, self.region) for o in region.ops]
        plan = self.plan(region)
        if plan is None:
            return with_ops(region, ops)
        loops, parts = plan
        roots = {r for loop in loops for r in loop.roots}
        b = Builder()
        for i, (old, o) in enumerate(zip(region.ops, ops, strict=True)):
            for loop in loops:
                if loop.end == i:
                    self.write(loop, parts, b)
            if old not in roots:
                b.append(o)
        return Region(region.params, tuple(b.ops))

    # ---- what is done where

    def plan(self, region: Region) -> tuple[list[_Loop], int] | None:
        """The loops of a region and the parts of its wide tiles; None where it stays as it is."""
        wide = {v for o in region.ops for v in (*o.operands, *o.results) if _size(v) > self.most}
        mine = [o for o in region.ops if not wide.isdisjoint((*o.operands, *o.results))]
        shapes = {shape_of(v.type) for v in wide}
        if len(shapes) != 1 or not any(o.kind in _ROOTS for o in mine):
            return None
        if not all(self.fits(o) for o in mine):
            return None
        ((n, *others),) = shapes
        if others and any(o.kind is tile.reduce for o in mine):
            return None
        parts = self.parts(n * math.prod(others))
        loops = self.loops(region, set(mine))
        pairs: set[tuple[int, int]] = set()
        for i, loop in enumerate(loops):
            cuts = closure((c for r in loop.roots for c in self.cuts(r, 0)), self.before)
            made = [self.structure.maker(v) for v, _ in cuts]
            needed = {*loop.roots, *(o for o in made if o is not None)}
            if None in made or not all(map(self.fits, needed)):
                return None
            loop.loads = [o for o in region.ops if o in needed and o.kind is tile.load]
            if sum(o.kind is tile.load for o in needed) > len(loop.loads):
                return None  # it is loaded outside of this region
            found = self.conflicts(region, loop, loops[:i])
            if found is None:
                return None
            pairs |= found
        if n % parts:
            return None
        self.pairs |= pairs
        self.strips.add((n * math.prod(others), parts))
        return loops, parts

    def parts(self, n: int) -> int:
        """How many parts a tile of n elements has."""
        return -(-n // (PART * self.threads))

    def fits(self, o: Op) -> bool:
        """Can it be done part by part?"""
        plain = o.kind in _PLAIN or o.kind in arith.ELEMENTWISE
        return plain and not o.attrs.get("volatile")

    def cuts(self, o: Op, axis: int) -> Iterator[_Cut]:
        """The operands of which a part of an op takes a part."""
        axes = (0,) * len(o.operands) if o.kind in _ROOTS else operand_axes(o, axis)
        for v, a in zip(o.operands, axes, strict=True):
            if a is not None and shape_of(v.type):
                yield v, a

    def before(self, cut: _Cut) -> Iterable[_Cut]:
        """What a part is made of."""
        v, axis = cut
        o = self.structure.maker(v)
        return self.cuts(o, axis) if o is not None and self.fits(o) else ()

    def loops(self, region: Region, mine: set[Op]) -> list[_Loop]:
        """Roots that follow each other, up to what needs what they reduce or must not pass them."""
        found: list[_Loop] = []
        roots: list[Op] = []
        for i, o in enumerate(region.ops):
            made = {v for r in roots for v in r.results}
            inner = {v for x in o.all_ops for v in x.operands}
            acts = o.regions or (o not in mine and o.kind.effect is not Effect.NONE)
            last = i == len(region.ops) - 1
            acts = acts or (o in mine and any(self.overwrites(o, r) for r in roots))
            if roots and (last or acts or not made.isdisjoint((*o.operands, *inner))):
                found.append(_Loop(roots, i))
                roots = []
            if o in mine and o.kind in _ROOTS:
                roots = [*roots, o]
        return found

    def overwrites(self, o: Op, earlier: Op) -> bool:
        """May a store write what an earlier one did?  A later part of that would then come after it."""
        if not o.kind is earlier.kind is tile.store:
            return False
        bases = self.accesses.base(o.operands[0]), self.accesses.base(earlier.operands[0])
        return None in bases or bases[0] == bases[1]

    def conflicts(
        self, region: Region, loop: _Loop, earlier: list[_Loop]
    ) -> set[tuple[int, int]] | None:
        """The parameters that a launch must compare; None where a load would move past a store that it
        may not pass."""
        place = {o: i for i, o in enumerate(region.ops)}
        bases = (self.accesses.base(o.operands[0]) for o in loop.roots if o.kind is tile.store)
        found = {(x, y) for x, y in combinations(bases, 2) if x is not None and y is not None}
        for load in loop.loads:
            to = self.accesses.base(load.operands[0])
            between = [*region.ops[place[load] : loop.end], *loop.roots]
            for o in {x for y in between for x in y.all_ops}:
                if not o.kind.effect & (Effect.WRITE | Effect.SYNC):
                    continue
                stored = self.accesses.base(o.operands[0]) if o.kind in _STORES else None
                if stored is None or to is None:
                    return None
                if stored != to:
                    found.add((stored, to))
                    continue
                here = o in loop.roots and self.in_place(load, o, place)
                if not here or not all(self.is_passed(x, to) for x in earlier):
                    return None
        return found

    def in_place(self, load: Op, store: Op, place: dict[Op, int]) -> bool:
        """Is a tile stored where it was loaded before, each element at a place of its own?"""
        p = store.operands[0]
        apart = len(shape_of(p.type)) == 1 and self.accesses.facts.axis(p, 0).slope
        return load.operands[0] is p and place[load] < place[store] and bool(apart)

    def is_passed(self, loop: _Loop, base: int) -> bool:
        """Have all threads loaded from a parameter when one goes on after the loop?"""
        reads = any(self.accesses.base(o.operands[0]) == base for o in loop.loads)
        return not reads or any(o.kind is tile.reduce for o in loop.roots)

    # ---- a loop

    def write(self, loop: _Loop, parts: int, b: Builder) -> None:
        m = shape_of(loop.roots[0].operands[0].type)[0] // parts
        b.loc = loop.roots[0].loc
        sums = [o for o in loop.roots if o.kind is tile.reduce]
        init = [
            tile.splat(
                b, build.const(b, tile.neutral(o.attrs["fn"], _summed(o)), _summed(o)), shape=(m,)
            )
            for o in sums
        ]

        def body(inner: Builder, i: Value, carried: tuple[Value, ...]) -> Iterable[Value]:
            part = _Part(self, inner, parts, i)
            for o in loop.loads:
                part.get(o.result, 0)
            after = dict(zip(sums, carried, strict=True))
            for o in loop.roots:
                operands = [part.get(v, 0) for v in o.operands]
                with inner.at(o):
                    if o.kind is tile.store:
                        inner.append(o.with_(operands=tuple(operands)))
                    else:
                        combine = tile.COMBINES[o.attrs["fn"]]
                        (x,) = operands
                        if _summed(o) != dtype_of(o.result.type):
                            x = arith.cast(inner, x, dtype=_summed(o))
                        after[o] = combine(inner, after[o], x)
            return after.values()

        hints = [o.result.hint for o in sums]
        bounds = build.const(b, 0), build.const(b, parts), build.const(b, 1)
        totals = build.for_(b, bounds, init, body, iv="part", hints=hints, unroll=1)
        for o, total in zip(sums, totals, strict=True):
            if _summed(o) == dtype_of(o.result.type):
                b.append(o.with_(operands=(total,)))
                continue
            with b.at(o):
                exact = tile.reduce(b, total, **o.attrs)
                cast = {"dtype": dtype_of(o.result.type)}
                b.append(Op(arith.cast, (exact,), cast, o.results, (), b.tasks, o.loc))


def _summed(o: Op) -> DType:
    """The dtype in which a reduction sums: it rounds once."""
    d = dtype_of(o.result.type)
    return f32 if d.is_float and d.bits < 32 else d


_STORES = (tile.store, tile.atomic, tile.store_box)


@dataclass(eq=False)
class _Part:
    """Writes the i-th part of tiles."""

    miner: _Miner
    b: Builder
    parts: int
    i: Value
    done: dict[_Cut, Value] = field(default_factory=dict)

    def get(self, v: Value, axis: int | None) -> Value:
        """The part of v along an axis; v itself where nothing of it is cut."""
        if axis is None or not shape_of(v.type):
            return v
        if (v, axis) not in self.done:
            o = self.miner.structure.maker(v)
            assert o is not None
            axes = operand_axes(o, axis)
            operands = [self.get(x, a) for x, a in zip(o.operands, axes, strict=True)]
            with self.b.at(o):
                self.done[v, axis] = self.part(o, axis, operands)
        return self.done[v, axis]

    def part(self, o: Op, axis: int, operands: list[Value]) -> Value:
        b, hint, whole = self.b, o.result.hint, shape_of(o.result.type)
        shape = tuple(n // self.parts if a == axis else n for a, n in enumerate(whole))
        if o.kind is tile.arange:
            (m,) = shape
            start = arith.mul(b, self.i, build.const(b, m))
            start = arith.add(b, start, build.const(b, o.attrs["start"]))
            local = tile.arange(b, start=0, end=m)
            return arith.add(b, local, tile.splat(b, start, shape=shape), hint=hint)
        attrs = {**o.attrs, "shape": shape} if "shape" in o.attrs else o.attrs
        result = Value(Tile(shape, elem_of(o.result.type)), hint)
        b.append(o.with_(operands=tuple(operands), attrs=attrs, results=(result,), id=""))
        return result
