"""Turns small ifs in loops of kernels without dots into masked loads and selections.

Order: at TILE after recover_boxes, whose masks are comparisons of places, before the choice of a schedule,
so that loads of the loop stand in one block: what runs ahead, and in what order, is decided by blocks.
Changes: 3 families: recurrences that load a value of the step before where there is one, of sequences one
after the other as well; returns of episodes, which take that of the step after.

A branch parts what could be on its way together: what the loop loads before it arrives before the load
inside is issued, and the recurrence waits for memory twice a step.  In a loop that loads and acts on nothing
(the first step of a mean and a variance is an arm of its own) it parts the loads of one step from the next
one's.

    before:  %y = if(%some) do { %x = load(%p, %m)  %f = cast(%x)  yield(%f) } do { yield(%zeros) }
    after:   %on = splat(%some)
             %both = and(%m, %on)
             %x = load(%p, %both)
             %f = cast(%x)
             %y = select(%on, %f, %zeros)

An arm of other loads than by pointers, of more ops than a branch costs, or one that divides integers (by 0 it
may be, where it does not run) stays.
"""

from __future__ import annotations

from warploom.ir import build
from warploom.ir.analysis import must_run, waits
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import Env, substitute, with_ops, with_regions
from warploom.ir.types import DType, Scalar, Tile, dtype_of, i1, shape_of

MOST_OPS = 12  # of both arms


def convert_ifs(func: Func) -> Func:
    """See the module's docstring."""
    body = _region(func.body, in_loop=False, sums=False)
    return func if body is func.body else func.with_(body=body)


def _region(region: Region, in_loop: bool, sums: bool) -> Region:
    """sums: does the innermost loop around it load, and act on nothing?"""
    env: Env = {}
    b = Builder()
    for old in region.ops:
        is_loop = old.kind in control.LOOPS
        inside = in_loop or is_loop, _only_sums(old) if is_loop else sums
        o = with_regions(old, lambda r, inside=inside: _region(r, *inside))  # type: ignore[misc]
        if not (in_loop and _is_small(o, sums)):
            b.append(o)
            continue
        with b.at(o):
            env.update(zip(o.results, _converted(o, b), strict=True))
    return substitute(with_ops(region, b.ops), env) if env else with_ops(region, b.ops)


def _only_sums(loop: Op) -> bool:
    ops = [o for r in loop.regions for o in r.all_ops]
    return any(o.loads for o in ops) and not any(must_run(o) for o in ops)


def _is_small(o: Op, sums: bool) -> bool:
    """Is o an if of few ops, loads by pointers among them (but where a loop only sums), that does nothing but
    compute its results?"""
    if o.kind is not control.if_ or not o.results or not all(map(_is_number, o.results)):
        return False
    ops = [x for r in o.regions for x in r.ops[:-1]]
    if len(ops) > MOST_OPS or not (sums or any(x.kind is tile.load for x in ops)):
        return False
    return all(_is_plain_load(x) or _is_cheap(x) for x in ops)


def _is_number(v: Value) -> bool:
    """Or a tile of numbers: whose memory a pointer reaches would not be known of a selected one."""
    return isinstance(v.type, Scalar) or (
        isinstance(v.type, Tile) and isinstance(v.type.elem, DType)
    )


def _is_plain_load(o: Op) -> bool:
    return o.kind is tile.load and not o.attrs.get("volatile")


def _is_cheap(o: Op) -> bool:
    divides = o.kind in (arith.idiv, arith.rem) and dtype_of(o.result.type).is_int
    return o.computes and not (waits(o) or divides)


def _converted(o: Op, b: Builder) -> list[Value]:
    """What the if gives, computed without it."""
    (condition,) = o.operands
    no = arith.xor(b, condition, build.const(b, True, i1))
    ends = [_arm(r, on, b) for r, on in zip(o.regions, (condition, no), strict=True)]
    return [
        arith.select(b, _spread(b, condition, x), x, y, hint=x.hint)
        for x, y in zip(*ends, strict=True)
    ]


def _arm(region: Region, on: Value, b: Builder) -> list[Value]:
    """What a region yields, its loads done where `on` holds."""
    for o in region.ops[:-1]:
        b.append(_masked(o, on, b) if o.kind is tile.load else o)
    return list(region.ops[-1].operands)


def _masked(o: Op, on: Value, b: Builder) -> Op:
    p, *rest = o.operands
    on = _spread(b, on, p)
    mask = arith.and_(b, rest[0], on) if rest else on
    return o.with_(operands=(p, mask, *rest[1:]))


def _spread(b: Builder, on: Value, over: Value) -> Value:
    """A condition for each element of what is a tile."""
    if not isinstance(over.type, Tile):
        return on
    spread: Value = tile.splat(b, on, shape=shape_of(over.type))
    return spread
