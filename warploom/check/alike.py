"""Which values are equal, whatever task computes them.

Each task computes for itself the numbers that it needs: the bound of a producer's loop and that of its
consumer's are two values, and the conditions that hang on them two conditions, of one outcome.  Values are
sorted into classes by what computes them, and classes are split until all values of one come from values of
the same classes (Alpern, Wegman, Zadeck, "Detecting equality of variables in programs", POPL 1988).  So what
loops carry is equal where it begins and goes on alike.  Values of one class are equal in the same iterations
of the loops around them, in one CTA of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from warploom.ir.analysis import closure
from warploom.ir.analysis import loops as loops_around
from warploom.ir.core import Op, OpKind, Region, Value, walk
from warploom.ir.ops import arith, cluster, control, task, tile
from warploom.sim.evaluate import PURE

Parts = tuple[
    tuple[Any, ...], tuple[Value, ...]
]  # what computes a value, and what it is computed from

_COMMUTING = frozenset(
    (arith.add, arith.mul, arith.minimum, arith.maximum, arith.and_, arith.or_, arith.xor)
)
_TELLING: frozenset[OpKind] = frozenset(  # the same from the same operands, in any task
    (
        task.ring_next,
        tile.program_id,
        tile.num_programs,
        tile.make_view,
        cluster.cta_rank,
        cluster.cta_id,
    )
)


def alike(
    body: Region,
    values: Iterable[Value],
    is_kept: Callable[[Op], bool],
    handed_on: Mapping[Value, Value] | None = None,
) -> dict[Value, int]:
    """The class of each value, and of all that they are computed from.

    is_kept: whether what a load reads is the same at any time.  handed_on: values that are taken to equal
    others, in whatever way they come from these."""
    parts = _parts(body, is_kept)
    for got, put in (handed_on or {}).items():
        parts[got] = parts.get(put, ((put,), ()))
    behind = closure(values, lambda v: parts[v][1] if v in parts else ())
    own: dict[Value, Parts] = {v: parts.get(v, ((v,), ())) for v in behind}
    classes = _numbered({v: tag for v, (tag, _) in own.items()})
    while True:
        finer = _numbered({v: (classes[v], _from(*at, classes)) for v, at in own.items()})
        if max(finer.values(), default=0) == max(classes.values(), default=0):
            return finer
        classes = finer


def _from(
    tag: tuple[Any, ...], operands: tuple[Value, ...], classes: dict[Value, int]
) -> tuple[int, ...]:
    found = [classes[x] for x in operands]
    return tuple(sorted(found) if tag[0] in _COMMUTING else found)


def _numbered(keys: dict[Value, Any]) -> dict[Value, int]:
    numbers: dict[Any, int] = {}
    return {v: numbers.setdefault(key, len(numbers)) for v, key in keys.items()}


def _parts(body: Region, is_kept: Callable[[Op], bool]) -> dict[Value, Parts]:
    """What each value comes from.  What a loop carries is told by the kinds of the loops around it, too: its
    iterations are counted in these."""
    around, found = loops_around(body), dict[Value, Parts]()
    for o in walk(body):
        nest = (*(x.kind for x in around[o]), o.kind)
        if o.kind is control.for_:
            (inner,) = o.regions
            found[inner.params[0]] = ("iteration", nest), (o.operands[0], o.operands[2])
            rows = zip(inner.params[1:], o.operands[3:], inner.yielded, o.results, strict=True)
            for param, first, then, last in rows:
                found[param] = ("carried", nest), (first, then)
                found[last] = ("last", nest), (first, then, *o.operands[:3])
        elif o.kind is control.while_:
            condition, inner = o.regions
            goes_on, *kept = condition.yielded
            for param, first, then in zip(condition.params, o.operands, inner.yielded, strict=True):
                found[param] = ("carried", nest), (first, then)
            for param, last, passed in zip(inner.params, o.results, kept, strict=True):
                found[param] = ("passed", nest), (passed,)
                found[last] = ("last", nest), (passed, goes_on)
        elif o.kind is control.if_:
            for v, arms in zip(
                o.results, zip(*(r.yielded for r in o.regions), strict=True), strict=True
            ):
                found[v] = ("if",), (o.operands[0], *arms)
        else:
            for i, v in enumerate(o.results):
                found[v] = _computed(o, i, is_kept)
    return found


def _computed(o: Op, result: int, is_kept: Callable[[Op], bool]) -> Parts:
    is_told = o.kind in PURE or o.kind in _TELLING or (o.kind is tile.load and is_kept(o))
    if not is_told or o.regions:
        return (o, result), ()  # equal to nothing but itself
    attrs = tuple(sorted((name, repr(x)) for name, x in o.attrs.items()))
    return (o.kind, result, attrs, o.results[result].type), o.operands
