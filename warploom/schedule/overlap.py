"""Which loops of a consumer can overlap two iterations: dots of the next one under this one's arithmetic.

In a loop whose body computes a dot from another dot's result (through whatever arithmetic), the dots that
wait for none of their own iteration are *early*, the others *late*.  Where no early dot needs what the
iteration just before makes of its late ones, iteration i + 1's early dots can be issued together with
iteration i's late ones: the tensor cores work on both while the arithmetic between them runs.

    attention:      s = q·kᵀ (early)   p = softmax(s)   acc = acc·α + p·v (late)
    chained GEMMs:  t = a·b  (early)   u = cast(t)      acc = acc + u·c   (late)

It is a modulo schedule of two stages, initiation interval one iteration of the slower unit: `phase_cycles`
says what each unit has to do in an iteration.  `find` tells what a loop allows, `plans` is the part of the
chooser that decides what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warploom.ir.analysis import effects, free_values
from warploom.ir.core import Builder, Effect, Op, Region, Value, walk
from warploom.ir.cost import SM_90A, computes_tile
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Tile, dtype_of, shape_of
from warploom.schedule.bounds import Bounds, UnknownError, ahead_of
from warploom.schedule.demand import Structure
from warploom.schedule.model import Knobs, OverlapPlan, Reason


@dataclass(frozen=True)
class Overlap:
    """What one loop allows.  why_not: empty where it can overlap; then early and late are its dots."""

    loop: Op
    early: tuple[Op, ...]
    late: tuple[Op, ...]
    why_not: str = ""


def find(
    loop: Op, stays: Callable[[Op], bool], in_place: Callable[[Value], bool]
) -> Overlap | None:
    """What loop (a `for`) allows; None where none of its dots depends on another of the same iteration.

    stays: does the consumer run the op?  in_place: does wgmma read this right operand where it lies?
    """
    (body,) = loop.regions
    before = _Dependences(body)
    dots = [o for o in body.ops if o.kind is tile.dot]
    late = tuple(o for o in dots if any(d.kind is tile.dot for d in before.ops(o)))
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
    in_place: Callable[[Value], bool],
) -> str:
    if any(o.kind is tile.dot for x in body.ops for r in x.regions for o in walk(r)):
        return "some of its dots stand deeper than the loop's own block"
    for o in (*early, *late):
        if o.attrs.get("max_imprecise"):
            return f"{o.id} promotes its partial sums"
        if not in_place(o.operands[1]):
            return f"{o.id}'s right operand goes through shared memory that the consumer writes"
    for o in body.ops:
        if stays(o) and o.kind not in (tile.dot, control.yield_):
            if any(x.kind is control.while_ for r in o.regions for x in walk(r)):
                return f"{o.id} is a loop that may not end"
            if effects(o) & (Effect.WRITE | Effect.SYNC):
                return f"{o.id} writes memory or orders accesses to it"
    carried = dict(zip(body.params[1:], body.yielded, strict=True))
    for v, end in carried.items():
        if end is not v and end in carried and before.any(carried[end], late):
            return f"{v.hint or 'a carried value'} is another one of two iterations before"
    for o in early:
        for v in before.params(o):
            if v in carried and before.any(carried[v], late):
                return f"{o.id} needs what the iteration before makes of {_first(late).id}"
    return ""


def _first(ops: Iterable[Op]) -> Op:
    return next(iter(ops))


class _Dependences:
    """What an op of a block depends on inside the same iteration."""

    def __init__(self, body: Region) -> None:
        self.body = body
        self.made = {v: o for o in body.ops for v in o.results}
        self._ops: dict[Op, frozenset[Op]] = {}
        self._params: dict[Op, frozenset[Value]] = {}
        params = frozenset(body.params)
        for o in body.ops:
            needs = list(o.operands) + [v for r in o.regions for v in free_values(r)]
            makers = {self.made[v] for v in needs if v in self.made}
            self._ops[o] = frozenset(makers).union(*(self._ops[m] for m in makers))
            own = params & set(needs)
            self._params[o] = own.union(*(self._params[m] for m in makers))

    def ops(self, o: Op) -> frozenset[Op]:
        """The ops of the block that o waits for."""
        return self._ops[o]

    def params(self, o: Op) -> frozenset[Value]:
        """The block's parameters that o depends on."""
        return self._params[o]

    def any(self, v: Value, ops: Iterable[Op]) -> bool:
        """Is v made by one of the ops, or of what they make?"""
        o = self.made.get(v)
        return o is not None and any(x is o or x in self._ops[o] for x in ops)


@dataclass(frozen=True)
class TurningPoint:
    """A condition on the loop's index i: as long as i + offset < limit (where `inclusive`, ≤) the `if` takes
    the arm `before` (0: then), from there on the other.  offset: None for 0."""

    before: int
    offset: Value | None
    limit: Value
    inclusive: bool


def turning_point(body: Region, o: Op) -> TurningPoint | None:
    """Where `o`, an `if` of a loop's body on a comparison of the index with what the loop does not change,
    turns from one arm to the other; None for any other `if`."""
    made = {v: x for x in body.ops for v in x.results}
    index = body.params[0]
    test = made.get(o.operands[0])
    if test is None or test.kind not in _COMPARED:
        return None

    def invariant(v: Value) -> bool:
        maker = made.get(v)
        return v not in body.params and (maker is None or maker.kind is arith.const)

    left, right = test.operands
    for moving, limit, kind in ((left, right, test.kind), (right, left, _COMPARED[test.kind])):
        maker = made.get(moving)
        offset: Value | None = None
        if maker is not None and maker.kind is arith.add and index in maker.operands:
            offset = next((v for v in maker.operands if v is not index), None)
        if (moving is index or (offset is not None and invariant(offset))) and invariant(limit):
            rises = kind in (arith.gt, arith.ge)  # false first
            return TurningPoint(int(rises), offset, limit, kind in (arith.gt, arith.le))
    return None


_COMPARED = {arith.lt: arith.gt, arith.gt: arith.lt, arith.le: arith.ge, arith.ge: arith.le}


def split_of(loop: Op) -> Op | None:
    """The `if` of a loop at whose turning point it is worth cutting: it changes tiles."""
    (body,) = loop.regions
    for o in body.ops:
        changes = any(isinstance(v.type, Tile) for v in o.results)
        if o.kind is control.if_ and changes and turning_point(body, o) is not None:
            return o
    return None


def mask_of(structure: Structure, loop: Op) -> Op | None:
    """The `select` of a loop whose mask is true everywhere up to an index that can be computed in front of
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


def phase_cycles(body: Region, share: float) -> tuple[float, float]:
    """(tensor, other): cycles of an SM in which one group's part (`share` of each tile) of an iteration
    keeps the tensor cores busy, and in which it keeps the other units busy."""
    tensor = other = 0.0
    for o in walk(body):
        if o.kind is tile.dot:
            (m, k), (_, n) = shape_of(o.operands[0].type), shape_of(o.operands[1].type)
            tensor += SM_90A.wgmma(m, n, k, dtype_of(o.operands[0].type).bits) * share
        elif computes_tile(o):
            other += SM_90A.elementwise(o)[1] * share
    return tensor, other


# Arithmetic under the dots from which on it pays that another group's dots run meanwhile, as a part of
# theirs, and the cycles of a group's iteration from which on a turn is worth its barriers: the backward pass
# in two walks is 1 % (144 to 253 cycles of arithmetic beside 176 to 272 of dots) and 2.4 % faster without
# turns (126 to 253 beside 352 to 544; docs/performance.md, "Strangers' attention kernels").
_SUBSTANTIAL = 0.6
_WORTH_A_TURN = 600
# Eighths of the special functions before the wait for the late dots, where nobody says: measured on
# attention (docs/performance.md).  Three groups and more keep the tensor cores busy among themselves.
_EIGHTHS = {1: 2, 2: 2}
_RESERVE = 24  # registers a thread beside what is in flight


@dataclass(frozen=True)
class Groups:
    """The consumer: how many groups share a tile, and how many registers a thread of them has."""

    count: int
    registers: int


def plans(
    structure: Structure,
    knobs: Knobs,
    groups: Groups,
    stays: Callable[[Op], bool],
    in_place: Callable[[Value], bool],
    cramped: Callable[[Overlap], str],
) -> tuple[list[OverlapPlan], list[Reason]]:
    """What is done to the consumer's loops, and why.  cramped: why the rings of a loop don't allow it."""
    chosen: list[OverlapPlan] = []
    reasons: list[Reason] = []
    for o in structure.ops:
        found = find(o, stays, in_place) if o.kind is control.for_ and stays(o) else None
        if found is None:
            continue
        why = found.why_not or _why_not_chosen(found, knobs, groups, in_place) or cramped(found)
        if why:
            asked = bool(knobs.consumer_stages and knobs.consumer_stages > 1)
            asked = asked or knobs.ping_pong is True
            reasons.append(Reason(o.id, "iterations don't overlap", why, warn=asked))
            continue
        early, late = (tuple(d.id for d in dots) for dots in (found.early, found.late))
        reasons.append(
            Reason(
                o.id,
                f"{', '.join(early)} of the next iteration in flight with {', '.join(late)}",
                "the former need nothing of the latter: the arithmetic between them runs under both",
            )
        )
        eighths, why = knobs.wait_eighths, "wait_eighths"
        if eighths is None:
            eighths, why = _EIGHTHS.get(groups.count, 0), f"usually best with {groups.count} groups"
        where = f"{', '.join(late)} waited for after {eighths}/8 of the special functions"
        reasons.append(Reason(o.id, where, why))
        cut = split_of(o) or mask_of(structure, o)
        if cut is not None:
            told = Reason(cut.id, "its loop is cut in two without it", "it turns once")
            if cut.kind is not control.if_:
                why = "its mask lets all through in the middle, or up to an end"
                told = Reason(cut.id, "its loop is cut around iterations without it", why)
            reasons.append(told)
        ping_pong, reason = _ping_pong(found, knobs, groups)
        reasons.append(reason)
        chosen.append(
            OverlapPlan(o.id, early, late, eighths, ping_pong, cut.id if cut is not None else "")
        )
    return chosen, reasons


def _why_not_chosen(
    found: Overlap, knobs: Knobs, groups: Groups, in_place: Callable[[Value], bool]
) -> str:
    if knobs.consumer_stages == 1:
        return "consumer_stages=1"
    need = _RESERVE
    for o in (*found.early, *found.late):
        need += _registers(o.result, groups)
    for o in found.late:
        if not in_place(o.operands[0]):
            need += _registers(o.operands[0], groups)
    if need > groups.registers:
        return f"it takes about {need} registers a thread, of {groups.registers}"
    return ""


def _registers(v: Value, groups: Groups) -> int:
    m, n = shape_of(v.type)
    return m * n * dtype_of(v.type).bits // (32 * 128 * groups.count)


def _ping_pong(found: Overlap, knobs: Knobs, groups: Groups) -> tuple[bool, Reason]:
    def told(yes: bool, why: str, warn: bool = False) -> tuple[bool, Reason]:
        decision = "groups take turns at issuing dots" if yes else "groups issue dots as they come"
        return yes, Reason(found.loop.id, decision, why, warn)

    if groups.count < 2:
        return told(False, "there is one group", warn=knobs.ping_pong is True)
    if isinstance(knobs.ping_pong, bool):
        return told(knobs.ping_pong, f"ping_pong={knobs.ping_pong}")
    tensor, other = phase_cycles(found.loop.regions[0], 1 / groups.count)
    cycles = f"in an iteration {other:.0f} cycles of arithmetic stand beside {tensor:.0f} of dots"
    return told(other >= _SUBSTANTIAL * tensor and tensor + other >= _WORTH_A_TURN, cycles)
