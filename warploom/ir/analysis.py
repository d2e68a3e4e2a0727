"""Facts of IR, computed when asked for and never stored: plain functions that return dicts and sets.

They know control flow (`for`, `while`, `if`) and nothing else about particular ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TypeVar

from warploom.ir.core import Effect, Family, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, grid, smem, tile, tma
from warploom.ir.types import Shared, dtype_of

T = TypeVar("T")


def definitions(region: Region) -> dict[Value, Op]:
    """The op that defines each value inside a region, nested ones too.  Region parameters are absent."""
    return {v: o for o in region.all_ops for v in o.results}


def defined(region: Region) -> Iterator[Value]:
    """Every value that a region defines, nested ones too: parameters and results, in program order."""
    yield from region.params
    for o in region.ops:
        yield from o.results
        for inner in o.regions:
            yield from defined(inner)


def blocks(region: Region) -> Iterator[Region]:
    """A region and those inside it, outer before inner."""
    yield region
    yield from (r for o in region.all_ops for r in o.regions)


def uses(region: Region) -> dict[Value, list[Op]]:
    """The ops that take each value as an operand, in program order; yields are uses.  Values that nothing
    uses are absent."""
    found: dict[Value, list[Op]] = {}
    for o in walk(region):
        for v in dict.fromkeys(o.operands):
            found.setdefault(v, []).append(o)
    return found


def parents(region: Region) -> dict[Op, Op | None]:
    """The op whose region holds each op directly; None for the ops of `region` itself."""
    found: dict[Op, Op | None] = dict.fromkeys(region.ops)
    for o in walk(region):
        for inner in o.regions:
            found.update(dict.fromkeys(inner.ops, o))
    return found


def loops(region: Region) -> dict[Op, tuple[Op, ...]]:
    """The loops (`for`, `while`) around each op, outermost first; a loop is not around itself."""
    found: dict[Op, tuple[Op, ...]] = {}

    def visit(region: Region, around: tuple[Op, ...]) -> None:
        for o in region.ops:
            found[o] = around
            inside = (*around, o) if o.kind in control.LOOPS else around
            for inner in o.regions:
                visit(inner, inside)

    visit(region, ())
    return found


def effects(o: Op) -> Effect:
    """What the op and everything inside its regions does."""
    kinds = {k for r in o.regions for k in r.by_kind}
    return reduce(or_, {k.effect for k in kinds}, o.kind.effect)


def first_meeting(ops: Iterable[Op]) -> Op | None:
    """The barrier of a replica, or a task, that is the first of the ops to do more than compute."""
    acting = (o for o in ops if (o.regions or o.kind.effect) and o.kind.family is not Family.OUTPUT)
    first = next(acting, None)
    return first if first is not None and first.kind is smem.group_sync else None


def touches_global(o: Op) -> bool:
    """Does it read or write global memory, itself or by an engine?"""
    return o.accesses or o.kind in (tma.tma_load, tma.tma_store, tma.map_write, smem.cp_async)


def reaches_peers(func: Func) -> bool:
    """Do threads access the shared memory of other CTAs, by ordinary instructions?"""
    ops = (o for kind in smem.ORDINARY for o in func.body.by_kind.get(kind, ()))
    return any(isinstance(t := o.operands[0].type, Shared) and t.peer for o in ops)


def unwaited(func: Func) -> Op | None:
    """What touches global memory before the wait for earlier grids; where there is none, the first to."""
    for o in walk(func.body):
        if o.kind is grid.grid_wait:
            return None
        if touches_global(o):
            return o
    return None


def must_run(o: Op) -> bool:
    """Whether the op itself, apart from its regions, does something though nobody uses its results: it
    writes, synchronises, or observes memory (a volatile load).  Whoever keeps what is needed keeps these and
    all that their operands are made from."""
    return bool(o.kind.acts or o.attrs.get("volatile"))


def is_pure(o: Op) -> bool:
    """Whether the op only computes its results, so that it may be dropped, cloned or merged.  A `while`
    is not (it may not end), nor is a yield."""
    if o.kind is control.while_ or o.kind is control.yield_ or o.kind.effect is not Effect.NONE:
        return False
    return all(is_pure(i) for r in o.regions for i in r.ops[:-1])


def streams(region: Region) -> bool:
    """Is there a loop that loads and in which no thread waits for another?"""
    loops = (o for o in region.all_ops if o.kind is control.for_)
    return any(
        any(x.loads for x in o.regions[0].ops) and not any(map(waits, o.regions[0].ops))
        for o in loops
    )


def waits(o: Op) -> bool:
    """Do threads wait for each other, or for memory time and again, in op o?"""
    return any(
        x.kind.family in (Family.COMBINE, Family.WAIT) or x.kind in control.LOOPS for x in o.all_ops
    )


def free_values(region: Region) -> tuple[Value, ...]:
    """Values that a region uses and does not define, in the order of their first use."""
    bound: set[Value] = set()
    found: dict[Value, None] = {}

    def visit(region: Region) -> None:
        bound.update(region.params)
        for o in region.ops:
            found.update(dict.fromkeys(v for v in o.operands if v not in bound))
            for inner in o.regions:
                visit(inner)
            bound.update(o.results)

    visit(region)
    return tuple(found)


def sources(region: Region) -> dict[Value, tuple[Value, ...]]:
    """The values that each value inside a region is computed from directly.

    Control flow is followed value by value: a carried value comes from its initial value, from what its
    loop yields for it and from what decides the trip count; a result of an `if` from both arms and the
    condition; the results of any other op with regions from everything that those regions yield.
    """
    found: dict[Value, tuple[Value, ...]] = {}
    for o in walk(region):
        if o.kind not in control.LEAD:
            inner = tuple(v for r in o.regions for v in r.yielded)
            behind = (*o.operands, *inner) if inner else o.operands
            for v in o.results:
                found[v] = behind
            continue
        decides = control.deciding(o)
        if o.kind is control.for_:
            found[o.regions[0].params[0]] = decides
        found |= {v: (*may_be, *decides) for v, may_be in passed_on(o).items()}
    return found


def reads(o: Op) -> tuple[Value, ...]:
    """What o takes from outside: its operands, and what stands in its regions."""
    return (*o.operands, *(v for r in o.regions for v in free_values(r)))


def only_user(users: Mapping[Value, Sequence[Op]], v: Value) -> Op | None:
    """The op that takes v, once, where no other does."""
    found = users.get(v, ())
    once = len(found) == 1 and found[0].operands.count(v) == 1
    return found[0] if once else None


def passed_on(o: Op) -> dict[Value, tuple[Value, ...]]:
    """What each value that a loop or an if carries may be."""
    found: dict[Value, tuple[Value, ...]] = {}
    for c in control.carried(o):
        if o.kind is control.while_:  # its body, and who reads it, get what the condition yields
            found[c.params[0]] = (*c.init, c.yielded[1])
            found |= dict.fromkeys((c.params[1], c.result), c.yielded[:1])
        else:
            found |= dict.fromkeys((*c.params, c.result), (*c.init, *c.yielded))
    return found


def moved(o: Op) -> Value | None:
    """The tile or number of which o's result has the elements, unchanged and no others; None for what is
    made in another way, or of several."""
    spreads = o.kind.family is Family.MOVE or o.kind is tile.splat
    return o.operands[0] if spreads and len(o.operands) == 1 else None


def converted(o: Op | None) -> Value | None:
    """As `moved`, where the elements may also have another integer type that holds their numbers.  What fits
    no 32 bits is not looked for."""
    if o is None or o.kind is not arith.cast:
        return None if o is None else moved(o)
    source, to = dtype_of(o.operands[0].type), dtype_of(o.result.type)
    is_kept = source.is_int and to.is_int and to.bits >= min(source.bits, 32)
    return o.operands[0] if is_kept else None


def backward_slice(
    roots: Iterable[Value],
    sources: dict[Value, tuple[Value, ...]],
    stop: Callable[[Value], bool] = lambda v: False,
) -> set[Value]:
    """All values that `roots` are computed from, the roots included.

    `sources` is what the function of that name returns.  A value for which `stop` holds is part of the
    slice, but what it is computed from is not.  Map the slice through `definitions` to get ops.
    """
    return closure(roots, lambda v: () if stop(v) else sources.get(v, ()))


def closure(roots: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """The roots and all that can be reached from them: what follows a root, what follows that, and so on."""
    found: set[T] = set()
    pending = list(roots)
    while pending:
        x = pending.pop()
        if x not in found:
            found.add(x)
            pending.extend(following(x))
    return found


def allocations_of(func: Func) -> dict[Value, Op]:
    """For each value that is shared memory the allocation that it is a part of."""
    found: dict[Value, Op] = {}
    for o in walk(func.body):
        if o.kind is smem.shared_alloc:
            found[o.result] = o
        elif o.operands and o.operands[0] in found:
            found.update((v, found[o.operands[0]]) for v in o.results if isinstance(v.type, Shared))
    return found
