"""Removing what is not needed: equal computations, dead code, invariant computations in loops.

Plain functions on functions.  Each keeps what it does not change and returns `func` itself where
nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warploom.errors import InternalError
from warploom.ir.analysis import backward_slice, effects, is_pure, must_run
from warploom.ir.core import Func, Op, Region, Type, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.printer import print_attrs
from warploom.ir.rewrite import Env, substitute_operands, with_ops, with_regions, without
from warploom.ir.types import Barriers, InFlight, Pointer, Shared, TensorMap, Tile, View
from warploom.ir.types import Scalar as ScalarType

ROUNDS = 50  # each shrinks the function, so that real ones take less than ten


def until_stable(func: Func, steps: Sequence[Callable[[Func], Func]]) -> Func:
    """Applies the steps in turn until none changes the function (each returns what it does not change).

    Raises InternalError where that takes more than ROUNDS rounds.
    """
    for _ in range(ROUNDS):
        before = func
        for step in steps:
            func = step(func)
        if func is before:
            return func
    raise InternalError(f"@{func.name} still changes after {ROUNDS} rounds of simplification")


# ---- equal computations


def merge_equal(func: Func) -> Func:
    """Of pure ops that compute the same from the same operands in the same tasks, the first remains, for
    all uses in its scope.  Ops with regions and accumulators (each is a register array of its own) stay.
    """
    body = _merge(func.body, {}, {}, {})
    return func if body is func.body else func.with_(body=body)


_Key = tuple[object, ...]


def _merge(region: Region, seen: dict[_Key, Op], env: Env, order: dict[Value, int]) -> Region:
    for v in region.params:
        order[v] = len(order)
    kept: list[Op] = []
    for old in region.ops:
        o = substitute_operands(old, env)
        o = with_regions(o, lambda r: _merge(r, {**seen}, env, order))
        for v in o.results:
            order[v] = len(order)
        if o.results and not o.regions and _may_merge(o):
            operands = o.operands
            if arith.MIRRORED.get(o.kind) is o.kind:
                operands = tuple(sorted(operands, key=order.__getitem__))
            key = (
                o.kind,
                operands,
                print_attrs(o.attrs),
                tuple(v.type for v in o.results),
                o.tasks,
            )
            first = seen.setdefault(key, o)
            if first is not o:
                env.update(zip(o.results, first.results, strict=True))
                continue
        kept.append(o)
    return with_ops(region, kept)


def _may_merge(o: Op) -> bool:
    return is_pure(o) and not any(isinstance(v.type, InFlight) for v in o.results)


# ---- dead code


def drop_dead(func: Func) -> Func:
    """Drops ops that write nothing, synchronise nothing and whose results nothing uses; values that a
    loop carries for nobody but themselves; results of an `if` that nothing uses."""
    body = _live(func.body, set(func.body.yielded))
    return func if body is func.body else func.with_(body=body)


def is_droppable(o: Op) -> bool:
    """Whether the op may go where nothing uses its results."""
    if o.kind in (control.while_, control.yield_) or must_run(o):
        return False
    return all(is_droppable(i) for r in o.regions for i in r.ops[:-1])


def _live(region: Region, needed: set[Value]) -> Region:
    """The region without its dead ops; `needed` are the values that must stay (its last op's operands
    among them), and learns what the kept ops use."""
    kept: list[Op] = []
    for o in reversed(region.ops[:-1]):
        if needed.isdisjoint(o.results) and is_droppable(o):
            continue
        if o.kind in control.LEAD:
            o = _live_carried(o, needed)
        elif o.regions:
            o = _live_regions(o, [set(r.yielded) for r in o.regions], needed)
        needed.update(o.operands)
        kept.append(o)
    return with_ops(region, [*reversed(kept), region.ops[-1]])


def _live_regions(o: Op, wanted: list[set[Value]], needed: set[Value]) -> Op:
    left = iter(wanted)
    o = with_regions(o, lambda r: _live(r, next(left)))
    needed.update(*wanted)
    return o


def _live_carried(o: Op, needed: set[Value]) -> Op:
    """A value that a loop carries lives where a live computation inside uses it."""
    carried = control.carried(o)
    live = {i for i, v in enumerate(o.results) if v in needed}
    while True:
        kept = control.keeping(o, sorted(live)) if len(live) < len(carried) else o
        inner: set[Value] = set()
        found = _live_regions(kept, [set(r.yielded) for r in kept.regions], inner)
        used = {i for i, c in enumerate(carried) if not inner.isdisjoint(c.params)}
        if used <= live:
            break
        live |= used
    needed |= inner
    return found


# ---- loop-invariant code


def hoist_invariant(func: Func) -> Func:
    """Moves pure scalar and address computations out of the loops in which nothing they use is defined.

    Tiles move where they hold integers or pointers (addresses); others would only occupy registers.  Ops
    leave a loop's own body, not an `if` inside it.
    """
    body = _hoist(func.body)
    return func if body is func.body else func.with_(body=body)


def _hoist(region: Region) -> Region:
    ops: list[Op] = []
    for o in region.ops:
        o = with_regions(o, _hoist)
        if o.kind in control.LOOPS:
            o = with_regions(o, lambda r: _varying(r, ops))
        ops.append(o)
    return with_ops(region, ops)


def _varying(region: Region, moved: list[Op]) -> Region:
    """A loop's region without what goes before the loop, to `moved`."""
    inside: set[Value] = set(region.params)
    kept: list[Op] = []
    for o in region.ops:
        if _may_hoist(o) and not any(v in inside for v in o.operands):
            moved.append(o)
        else:
            inside.update(o.results)
            kept.append(o)
    return with_ops(region, kept)


def _may_hoist(o: Op) -> bool:
    if not o.results or o.regions or effects(o):
        return False
    return all(_is_address(v.type) for v in (*o.operands, *o.results))


# ---- views


def hoist_views(func: Func) -> Func:
    """Moves views that a launch's arguments determine, with what they are computed from, out of the loops
    and ifs around them: tensor maps are made from them before any task starts."""
    known = set(func.params)
    ops: list[Op] = []
    for o in func.body.ops:
        moved = _launch_views(o, known)
        ops += moved
        ops.append(without(o, set(moved)))
        for i in (*moved, o):
            if is_host(i) and known.issuperset(i.operands):
                known.update(i.results)
    body = with_ops(func.body, ops)
    return func if body is func.body else func.with_(body=body)


def is_host(o: Op) -> bool:
    """Can the host compute o where it knows the operands?"""
    return arith.is_of_host(o) or o.kind is tile.make_view


def _launch_views(o: Op, known: set[Value]) -> list[Op]:
    """The make_views inside o of `known` values alone, after the ops inside o that they need."""
    made: dict[Value, Op] = {}
    views: list[Op] = []
    for r in o.regions:
        for i in walk(r):
            if is_host(i) and all(v in known or v in made for v in i.operands):
                made.update(dict.fromkeys(i.results, i))
                views += [i] if i.kind is tile.make_view else []
    results = (v for i in views for v in i.results)
    needed = backward_slice(results, {v: i.operands for v, i in made.items()})
    return [i for i in dict.fromkeys(made.values()) if not needed.isdisjoint(i.results)]


def _is_address(t: Type) -> bool:
    if isinstance(t, Tile):
        return isinstance(t.elem, Pointer) or t.elem.is_int
    return isinstance(t, (ScalarType, Pointer, View, TensorMap, Shared, Barriers))
