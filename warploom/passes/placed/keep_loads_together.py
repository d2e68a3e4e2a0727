"""Keeps the loads of a loop's iteration together where they and its sums take most of a thread's registers.

Order: after allocate_shared, as it goes by layouts and by how many threads there are.  PLACED → PLACED.
Changes: gradients of layer norms whose rows a few warps walk along, with sums of weights in registers.

ptxas orders what is near its limit so that little is held at once: it loads some rows, computes with them,
and loads the next, and so threads wait for memory several times an iteration.  Few of them have room on a
multiprocessor then, so that nothing else fills these waits.  Now what computes waits for the last of the
loads whose places are known before.

    before:  %x = load_box(%v, %i)                  after:  %x = load_box(%v, %i)
             %a = cast(%x)                                  %y = load_box(%w, %i)
             %y = load_box(%w, %i)                          %z = after(%x, %y)
             %b = mul(%a, %y)                               %a = cast(%z)
                                                            %b = mul(%a, %y)

It refuses nothing.
"""

from __future__ import annotations

from itertools import takewhile

from warploom.ir.analysis import closure, waits
from warploom.ir.core import Builder, Effect, Family, Func, Op, Region, Value
from warploom.ir.engines import MULTIPLIES
from warploom.ir.ops import control, tile
from warploom.ir.rewrite import substitute, with_ops, with_regions
from warploom.ir.types import DType, Tile, elem_of
from warploom.passes.placed.register_pressure import limit_of, part_of
from warploom.target import Target

COMPUTED = 16  # registers of a thread for what it computes of a row


def has_plain_loops(func: Func) -> bool:
    """Is there anything for the pass to do?"""
    return any(map(_is_plain, func.body.by_kind.get(control.for_, ())))


def keep_loads_together(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    limit, given = limit_of(target), target.entry_registers(func.attrs["threads"])
    held = range(limit // 2 + 1, min(limit, given) - COMPUTED + 1)
    body = _region(func.body, held)
    return func if body is func.body else func.with_(body=body)


def _region(r: Region, held: range) -> Region:
    ops = [with_regions(o, lambda x: _region(x, held)) for o in r.ops]
    return with_ops(
        r, [with_regions(o, lambda x: _body(x, held)) if _is_plain(o) else o for o in ops]
    )


def _is_plain(o: Op) -> bool:
    """Is it a loop without products that stores, and of which one iteration is written at a time?  One that
    only adds up holds nothing else, and may begin with the first rows."""
    if o.kind is not control.for_ or o.attrs.get("unroll") not in (None, 1):
        return False
    inside = o.all_ops[1:]
    return any(x.stores for x in inside) and not any(
        x.kind in MULTIPLIES or x.kind in control.LOOPS for x in inside
    )


def _body(body: Region, held: range) -> Region:
    """The body of a loop.  held: registers for what it loads and carries, with which it is changed."""
    head = list(takewhile(_may_follow, body.ops[:-1]))
    loads = [o for o in head if o.loads and len(o.results) == 1 and isinstance(o.result.type, Tile)]
    registers = sum(part_of(v) for v in (*body.params, *(o.result for o in loads)))
    made = {v: o for o in head for v in o.results}
    places = closure(
        (made[v] for o in loads for v in o.operands if v in made),
        lambda o: [made[v] for v in o.operands if v in made],
    )
    alone = places.isdisjoint(loads) and not any(o.result in body.yielded for o in loads)
    if len(loads) < 2 or not alone or registers not in held:
        return body
    *earlier, last = loads
    first = [o for o in head if o in places or o in loads]
    b = Builder(loc=last.loc, tasks=last.tasks)
    env: dict[Value, Value] = {
        o.result: tile.after(b, o.result, last.result, hint=o.result.hint)
        for o in earlier
        if _has_words(o.result) and _has_words(last.result)
    }
    rest = tuple(o for o in body.ops if o not in first)
    return Region(body.params, (*first, *b.ops, *substitute(Region((), rest), env).ops))


def _may_follow(o: Op) -> bool:
    """May loads that come after it be issued before it?"""
    if o.regions or waits(o) or o.attrs.get("volatile") or o.kind.family is Family.COMBINE:
        return False
    return o.loads or o.kind.effect is Effect.NONE


def _has_words(v: Value) -> bool:
    """Does a thread hold v in registers of 32 bits?"""
    elem = elem_of(v.type)
    return isinstance(elem, DType) and (elem.bits == 32 or (elem.is_float and elem.bits < 32))
