"""Which loops of a consumer can overlap two iterations: dots of the next one under this one's arithmetic.

In a loop whose body computes a dot from another dot's result (through whatever arithmetic), the dots that
wait for none of their own iteration are *early*, the others *late*.  Where no early dot needs what the
iteration just before makes of its late ones, iteration i + 1's early dots can be issued together with
iteration i's late ones: the tensor cores work on both while the arithmetic between them runs.

    attention:      s = q·kᵀ (early)   p = softmax(s)   acc = acc·α + p·v (late)
    chained GEMMs:  t = a·b  (early)   u = cast(t)      acc = acc + u·c   (late)

It is a modulo schedule of two stages, initiation interval one iteration of the slower unit: `phase_cycles`
says what each unit has to do in an iteration.  Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warploom.analysis import cost
from warploom.analysis.mask_ranges import Bounds, UnknownError, ahead_of
from warploom.analysis.structure import Structure
from warploom.ir.analysis import backward_slice, effects, reads
from warploom.ir.core import Builder, Effect, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Tile
from warploom.target import Target


@dataclass(frozen=True)
class Overlap:
    """What one loop allows.  why_not: empty where it can overlap; then early and late are its dots."""

    loop: Op
    early: tuple[Op, ...]
    late: tuple[Op, ...]
    why_not: str = ""


def find(
    loop: Op, stays: Callable[[Op], bool], in_place: Callable[[Op, int], bool]
) -> Overlap | None:
    """What loop (a `for`) allows; None where none of its dots depends on another of the same iteration.

    stays: does the consumer run the op?  in_place: does wgmma read a dot's left (0) or right (1) operand
    where it lies?
    """
    (body,) = loop.regions
    before = _Dependences(body)
    dots = [o for o in body.ops if o.kind is tile.dot]
    results = {o.result for o in dots}
    late = tuple(o for o in dots if not results.isdisjoint(before.needs(o)))
    early = tuple(o for o in dots if o not in late)
    if not late:
        return None
    return Overlap(loop, early, late, _why_not(body, before, early, late, stays, in_place))


def _why_not(
    body: Region,
    before: _Dependences,
    early: Iterable[Op],
    late: Iterable[Op],
    stays: Callable[[Op], bool],
    in_place: Callable[[Op, int], bool],
) -> str:
    if any(o.kind is tile.dot for x in body.ops for r in x.regions for o in r.all_ops):
        return "some of its dots stand deeper than the loop's own block"
    for o in (*early, *late):
        if o.attrs.get("max_imprecise"):
            return f"{o.id} promotes its partial sums"
        if not in_place(o, 1):
            return f"{o.id}'s right operand goes through shared memory that the consumer writes"
    for o in body.ops:
        if stays(o) and o.kind not in (tile.dot, control.yield_):
            if any(x.kind is control.while_ for x in o.all_ops):
                return f"{o.id} is a loop that may not end"
            if effects(o) & (Effect.WRITE | Effect.SYNC):
                return f"{o.id} writes memory or orders accesses to it"
    carried = dict(zip(body.params[1:], body.yielded, strict=True))
    for v, end in carried.items():
        if end is not v and end in carried and before.any(carried[end], late):
            return f"{v.hint or 'a carried value'} is another one of two iterations before"
    for o in early:
        for v in carried.keys() & before.needs(o):
            if before.any(carried[v], late):
                return f"{o.id} needs what the iteration before makes of {_first(late).id}"
    return ""


def _first(ops: Iterable[Op]) -> Op:
    return next(iter(ops))


class _Dependences:
    """What an op of a block depends on inside the same iteration."""

    def __init__(self, body: Region) -> None:
        self.sources = {v: reads(o) for o in body.ops for v in o.results}

    def needs(self, o: Op) -> set[Value]:
        """What o is computed from; of the block's parameters, what they are at its start."""
        return backward_slice(reads(o), self.sources)

    def any(self, v: Value, ops: Iterable[Op]) -> bool:
        """Is v made by one of the ops, or of what they make?"""
        found = backward_slice([v], self.sources)
        return any(not found.isdisjoint(o.results) for o in ops)


@dataclass(frozen=True)
class SplitPoint:
    """A condition on the loop's index i: as long as i + offset < limit (where `inclusive`, ≤) the `if` takes
    the arm `before` (0: then), from there on the other.  offset: None for 0."""

    before: int
    offset: Value | None
    limit: Value
    inclusive: bool


def split_point(body: Region, o: Op) -> SplitPoint | None:
    """Where `o`, an `if` of a loop's body on a comparison of the index with what the loop does not change,
    turns from one arm to the other; None for any other `if`."""
    made = {v: x for x in body.ops for v in x.results}
    index = body.params[0]
    test = made.get(o.operands[0])
    if test is None or arith.ordered(test) is None:
        return None

    def invariant(v: Value) -> bool:
        maker = made.get(v)
        return v not in body.params and (maker is None or maker.kind is arith.const)

    left, right = test.operands
    for moving, limit, kind in ((left, right, test.kind), (right, left, arith.MIRRORED[test.kind])):
        maker = made.get(moving)
        offset: Value | None = None
        if maker is not None and maker.kind is arith.add and index in maker.operands:
            offset = next((v for v in maker.operands if v is not index), None)
        if (moving is index or (offset is not None and invariant(offset))) and invariant(limit):
            rises = kind in (arith.gt, arith.ge)  # false first
            return SplitPoint(int(rises), offset, limit, kind in (arith.gt, arith.le))
    return None


def split_of(loop: Op) -> Op | None:
    """The `if` of a loop at whose split point it is worth cutting: it changes tiles."""
    (body,) = loop.regions
    for o in body.ops:
        changes = any(isinstance(v.type, Tile) for v in o.results)
        if o.kind is control.if_ and changes and split_point(body, o) is not None:
            return o
    return None


def mask_of(structure: Structure, loop: Op) -> Op | None:
    """The `select` of a loop whose mask is true everywhere up to an index that can be computed before
    the loop, or from it on: the loop is cut there as it is at an `if`."""
    (body,) = loop.regions
    tell = Bounds(Builder(), structure, ahead_of(structure, loop), body.params[0])
    for o in body.ops:
        if o.kind is arith.select and isinstance(o.operands[0].type, Tile):
            try:
                tell.always(o.operands[0])
            except UnknownError:
                continue
            return o
    return None


def phase_cycles(body: Region, share: float, target: Target) -> tuple[float, float]:
    """(tensor, other): cycles of an SM in which one group's part (`share` of each tile) of an iteration
    keeps the tensor cores busy, and in which it keeps the other units busy."""
    tensor = other = 0.0
    for o in walk(body):
        if o.kind is tile.dot:
            tensor += cost.tensor(target, o) * share
        elif cost.computes_tile(o):
            other += cost.elementwise(target.cost, o)[1] * share
    return tensor, other
