"""Whose iterations consumer groups may take in turn, each group its own: a loop over tiles.

    for tile in range(program, tiles, programs):        group 0: its 1st, 3rd, 5th … iteration
        acc = …   a loop of dots                        group 1: its 2nd, 4th, 6th …
        store acc

One group's epilogue then runs under the other's dots.  Groups take turns at the dots (ping-pong), in the
order of the iterations, so what the producer loads is used in the order in which it comes.  Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from warploom.analysis.access import Accesses
from warploom.analysis.structure import Demand, Structure
from warploom.ir.analysis import backward_slice, must_run, sources
from warploom.ir.core import Family, Op
from warploom.ir.ops import control
from warploom.ir.types import Tile


def loop_of(structure: Structure, dots: Collection[Op]) -> Op | None:
    """The outermost `for` around all dots; None where there is none, or it is inside other control flow."""
    around = {tuple(structure.enclosing(o))[-1:] for o in dots}
    if len(around) != 1:
        return None
    (outer,) = next(iter(around)) or (None,)
    return outer if outer is not None and outer.kind is control.for_ else None


def why_not(loop: Op, accesses: Accesses, demand: Demand, mine: Callable[[Op], bool]) -> str:
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
    aliased = accesses.aliased()
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
