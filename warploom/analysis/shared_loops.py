"""Loops whose iterations several may share.  Decides nothing: choosers and passes both ask here.

`reduction_of`: CTAs, each adding up a part of the sums (chosen in schedule/clusters.py).  The loop carries
sums of tiles, which the order of the iterations changes only as far as rounding does, and what grows by the
same amount in each iteration, so that any iteration can be the first one.

`loop_over_tiles`: consumer groups, each its own, in turn.

    for tile in range(program, tiles, programs):        group 0: its 1st, 3rd, 5th … iteration
        acc = …   a loop of dots                        group 1: its 2nd, 4th, 6th …
        store acc

One group's epilogue then runs under the other's dots.  Groups take turns at the dots (ping-pong), in the
order of the iterations, so what the producer loads is used in the order in which it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from warploom.analysis.access import Accesses
from warploom.analysis.memory_order import announcing
from warploom.analysis.scalars import Numbers
from warploom.analysis.structure import Demand, Structure
from warploom.errors import Loc
from warploom.ir.analysis import backward_slice, must_run, sources
from warploom.ir.core import Family, Op
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Tile


class NoReductionError(Exception):
    """Why CTAs can't share the iterations of a kernel's loop, and where."""

    def __init__(self, message: str, loc: Loc | None) -> None:
        super().__init__(message)
        self.loc = loc


@dataclass(frozen=True)
class Reduction:
    """loop: with the dots.  sums: the numbers of what it carries that are sums of tiles.  growing: of the
    others, with the op that makes the next one of the present one and an amount made outside of the loop."""

    loop: Op
    sums: tuple[int, ...]
    growing: tuple[tuple[int, Op], ...]


def reduction_of(accesses: Accesses) -> Reduction:
    """The one loop with dots of a canonical TILE function.  Raises NoReductionError."""
    structure = accesses.structure
    dots = [o for o in structure.ops if o.kind is tile.dot]
    if not dots:
        raise NoReductionError("the kernel has no dot", accesses.func.loc)
    outermost = {structure.within(o, structure.root) for o in dots}
    loop = outermost.pop()
    if outermost or loop is None or loop.kind is not control.for_:
        raise NoReductionError(
            "its dots are not all in one loop, around which is none", dots[0].loc
        )
    _check_order(accesses, loop)
    sums, growing = [], []
    for i, c in enumerate(control.carried(loop)):
        if _is_sum(structure, loop, c):
            sums.append(i)
        elif (o := _step(structure, loop, c)) is not None:
            growing.append((i, o))
        else:
            name = c.result.hint or "a value"
            what = f"the loop carries {name}, which is no sum of tiles and grows by no fixed amount"
            raise NoReductionError(what, loop.loc)
    return Reduction(loop, tuple(sums), tuple(growing))


def _check_order(accesses: Accesses, loop: Op) -> None:
    """Raises NoReductionError where something asks for an order that CTAs don't keep.  What follows the loop
    is done by one of them."""
    structure, aliased = accesses.structure, accesses.aliased
    numbers, telling = Numbers(structure, accesses), announcing(accesses)
    top = structure.root.ops
    before = set(top[: top.index(loop)])
    for o in structure.ops:
        outer = structure.within(o, structure.root)
        if numbers.gives(o):
            why = "what it reads from memory there has to be the same number for all CTAs"
        elif o in telling:
            why = "it tells others that stores are done, and one CTA does not know of another's"
        elif outer is not loop and outer not in before:
            continue
        elif o in aliased:
            why = "the kernel loads memory that it also writes, and CTAs keep no order"
        elif o.kind is control.while_ or (o.kind.acts and o.kind.family is not Family.PROMISE):
            why = "it does more there than load and compute, and each CTA would do it"
        else:
            continue
        raise NoReductionError(why, o.loc)


def _is_sum(structure: Structure, loop: Op, c: control.Carried) -> bool:
    """Does an iteration only add to this tile, one term after the other?"""
    (at,), (last,) = c.params, c.yielded
    while isinstance(at.type, Tile) and at is not last:
        if len(users := structure.users.get(at, [])) != 1:
            return False
        (o,) = users
        if structure.parent[o] is not loop:
            return False
        if o.kind is control.for_ and at in o.operands[3:]:
            inner = control.carried(o)[o.operands.index(at) - 3]
            if not _is_sum(structure, o, inner):
                return False
            at = inner.result
        elif (o.kind is tile.dot and at is o.operands[2]) or o.kind is arith.add:
            at = o.result
        else:
            return False
    ends = structure.users.get(last, [])
    return at is last and at is not c.params[0] and len(ends) == 1


def _step(structure: Structure, loop: Op, c: control.Carried) -> Op | None:
    """The op by which a value grows in each iteration by what is made outside of the loop."""
    (param,), (after,) = c.params, c.yielded
    o = structure.maker(after)
    if o is None or o.kind not in (arith.add, arith.addptr) or o.operands.count(param) != 1:
        return None
    (amount,) = (v for v in o.operands if v is not param)
    inside = structure.within(loop, structure.home(amount)) is None
    return None if inside else o


def loop_over_tiles(structure: Structure, dots: Collection[Op]) -> Op | None:
    """The outermost `for` around all dots; None where there is none, or it is inside other control flow."""
    around = {tuple(structure.enclosing(o))[-1:] for o in dots}
    if len(around) != 1:
        return None
    (outer,) = next(iter(around)) or (None,)
    return outer if outer is not None and outer.kind is control.for_ else None


def why_not_alternate(
    loop: Op, accesses: Accesses, demand: Demand, mine: Callable[[Op], bool]
) -> str:
    """Why the consumer's iterations of `loop` depend on each other; empty where they don't.

    mine: does the consumer run the op?  demand: what it needs, as task "use".
    """
    structure = accesses.structure
    (body,) = loop.regions
    for v in loop.results:
        if (v, "use") in demand.live:
            return f"{v.hint or 'a value'} is used behind the loop"
    carried = [
        (p, end)
        for p, end in zip(body.params[1:], body.yielded, strict=True)
        if (p, "use") in demand.live
    ]
    reach = sources(body)
    for p, end in carried:
        if any(isinstance(v.type, Tile) for v in backward_slice([end], reach)):
            return f"{p.hint or 'a value'} is handed from iteration to iteration"
    for v, tasks in demand.crossings.items():
        o = structure.made[v].op
        if (
            "use" in tasks
            and not isinstance(v.type, Tile)
            and o is not None
            and structure.within(o, body)
        ):
            return f"all groups would have to be told the number of {o.id}"
    aliased = accesses.aliased
    for o in structure.ops:
        if not mine(o) or o.regions or o.kind is control.yield_:
            continue
        if o in aliased:
            return f"{o.id} reads or writes what the kernel also writes or reads"
        if not must_run(o) or o.kind.family is Family.PROMISE:
            continue
        if structure.within(o, body) is None:
            return f"{o.id} stands outside the loop, where every group would do it"
        if not o.stores:
            return f"{o.id} has an order"
        if accesses.rewrites(o):
            return f"{o.id} may write a place twice, and groups store in no order"
    return ""
