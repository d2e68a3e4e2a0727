"""What a loop changes where a mask holds that it doesn't change: it is selected once, after the loop.

Reductions over a row's blocks keep what they have where a program has no row.  Elements that are masked off
may compute what they like as long as nobody looks at them.

before:  for … carrying %acc from splat(0.0)        after:  for … carrying %acc from splat(0.0)
           %new = add(%acc, %x)                               %new = add(%acc, %x)
           yield(select(%mask, %new, %acc))                   yield(%new)
                                                            %sum = select(%mask, %acc, splat(0.0))

Only where the loop's tiles of floats follow from each other element by element, and start as a number: that
one takes no register while the loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.analysis.contiguity import decided
from warploom.analysis.facts import Facts, facts_of
from warploom.ir.analysis import definitions, uses
from warploom.ir.core import Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import DType, Tile


def select_after_loops(func: Func) -> Func:
    """At TILE, selections by masks from outside of a `for` loop move out of it."""
    if func.level is not Level.TILE:
        return func
    made = definitions(func.body)

    def rule(o: Op, b: Builder) -> Sequence[Value] | None:
        made.update(dict.fromkeys(o.results, o))  # it may read what another loop passes on now
        if o.kind is not control.for_:
            return None
        masks = _masks(o, made, facts_of(func))
        if not masks:
            return None
        (body,) = o.regions
        carried = control.carried(o)
        yielded = [made[v].operands[1] if i in masks else v for i, v in enumerate(body.yielded)]
        last = body.ops[-1].with_(operands=tuple(yielded))
        results = tuple(Value(v.type, v.hint) if i in masks else v for i, v in enumerate(o.results))
        b.append(o.with_(results=results, regions=(Region(body.params, (*body.ops[:-1], last)),)))
        return [
            arith.select(b, masks[i], v, carried[i].init[0], hint=v.hint) if i in masks else v
            for i, v in enumerate(results)
        ]

    return rewrite(func, rule)


def _masks(loop: Op, made: dict[Value, Op], facts: Facts) -> dict[int, Value]:
    """By the numbers of the values that a loop carries: masks by which they may be selected after it."""
    (body,) = loop.regions
    inside = {v for o in body.all_ops for v in o.results} | {*body.params}
    found: dict[int, Value] = {}
    for i, c in enumerate(control.carried(loop)):
        (init,), (p,), (y,) = c.init, c.params, c.yielded
        first, last, t = made.get(init), made.get(y), c.result.type
        if not (isinstance(t, Tile) and isinstance(t.elem, DType) and t.elem.is_float):
            continue
        if first is None or first.kind is not tile.splat or last is None or y not in inside:
            continue
        if last.kind is arith.select and last.operands[2] is p:
            mask = _mask(last.operands[0], made, facts)
            if isinstance(mask.type, Tile) and mask not in inside:
                found[i] = mask
    if not found:
        return {}
    users = uses(body)
    before: dict[int, Value] = {}
    while found != before:
        before = found
        found = {i: m for i, m in found.items() if _stays(body, i, found, made, users)}
    return found


def _mask(v: Value, made: dict[Value, Op], facts: Facts) -> Value:
    """A mask without comparisons that always hold."""
    o = made.get(v)
    while o is not None and o.kind is arith.and_:
        x, y = o.operands
        known = [_holds(made.get(n), facts) for n in (x, y)]
        if not any(known):
            return v
        v = y if known[0] else x
        o = made.get(v)
    return v


def _holds(o: Op | None, facts: Facts) -> bool:
    return o is not None and o.kind in arith.COMPARE and decided(facts, o) is True


def _root(v: Value, made: dict[Value, Op]) -> Value:
    """What a mask repeats along some axes."""
    while (o := made.get(v)) is not None and o.kind is tile.broadcast:
        (v,) = o.operands
    return v


def _stays(
    body: Region,
    i: int,
    found: dict[int, Value],
    made: dict[Value, Op],
    users: dict[Value, list[Op]],
) -> bool:
    """Does what follows from a carried tile reach only tiles that are selected by the same mask, element by
    element?"""
    alike = {n for n, m in found.items() if _root(m, made) is _root(found[i], made)}
    lead = len(body.params) - len(body.yielded)
    pending, seen = [body.params[lead + i]], set[Value]()
    for v in pending:
        for o in users.get(v, ()):
            if o is body.ops[-1]:
                if any(y is v and n not in alike for n, y in enumerate(o.operands)):
                    return False
            elif o.kind is not tile.broadcast and (
                o.kind not in arith.ELEMENTWISE or o.kind in arith.NOT_FOLDED
            ):
                return False
            else:
                pending += [r for r in o.results if r not in seen]
                seen.update(o.results)
    return True
