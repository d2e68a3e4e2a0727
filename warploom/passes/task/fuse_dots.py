"""Horizontal fusion: dots that multiply the same left operand become one wider dot.

Order: after partition_data, which cuts each dot's tiles; before insert_channels, which finds the right
operands as parts of one item.  `Schedule.fused_dots` names the dots of each.
Changes: gated pairs of the library and of others, LoRA, products that share an operand.

before:  %g, %u = for(…, %zero, %zero) do (%i, %g1, %u1) {   after:  %s = for(…, %zeros) do (%i, %s1) {
           %g2 = dot(%a, %b1, %g1)                                     %b = concat(%b1, %b2) {axis=1}
           %u2 = dot(%a, %b2, %u1)                                     %s2 = dot(%a, %b, %s1)
           yield(%g2, %u2)                                             yield(%s2)
         }                                                           }
                                                                     %g = slice_tile(%s);  %u = slice_tile(%s)

The wide dot stands where the last of its dots stood and keeps the first one's id; what needs an earlier one's
result comes after it.  Sums that a loop carries and that are joined in it are carried as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warploom.analysis.dot_fusion import between
from warploom.errors import InternalError
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import control, tile
from warploom.ir.rewrite import rewrite, with_regions
from warploom.ir.types import shape_of
from warploom.passes.tile.canonicalize.cleanup import drop_dead
from warploom.schedule.model import Schedule


def fuse_dots(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    dots = {o.id: o for o in walk(func.body) if o.kind is tile.dot}
    for ids in schedule.fused_dots:
        if not set(ids) <= set(dots):
            raise InternalError(f"the dots {', '.join(ids)} are not there to be joined")
        func = func.with_(body=_join(func.body, [dots[i] for i in ids]))
    return drop_dead(rewrite(rewrite(func, _carry), _Simplify().rule))


def _join(r: Region, dots: Sequence[Op]) -> Region:
    """The region with one dot, on the concat of `dots`' operands; their results are slices of its result."""
    b = Builder()
    if dots[0] not in r.ops:
        for o in r.ops:
            b.append(with_regions(o, lambda x: _join(x, dots)))
        return b.region(r.params)
    late = set(between(r, dots))
    for i, o in enumerate(r.ops):
        if o is dots[-1]:
            with b.at(o):
                right, acc = (_concat(b, [x.operands[n] for x in dots]) for n in (1, 2))
                whole = tile.dot(b, o.operands[0], right, acc, hint=acc.hint, **o.attrs)
                b.ops[-1] = b.ops[-1].with_(id=dots[0].id)
                _slices(b, whole, [x.result for x in dots])
            b.ops += [x for x in r.ops[:i] if x in late]
        elif o not in late and o not in dots:
            b.append(o)
    return b.region(r.params)


def _concat(b: Builder, parts: Sequence[Value]) -> Value:
    return tile.concat(b, *parts, axis=1, hint=_hint(parts))


def _slices(b: Builder, whole: Value, parts: Sequence[Value]) -> None:
    """Defines `parts` as what lies side by side in `whole`."""
    for n, v in enumerate(parts):
        shape = shape_of(v.type)
        attrs = {"offset": (0, n * shape[1]), "shape": shape}
        b.append(Op(tile.slice_tile, (whole,), attrs, (v,), (), b.tasks, b.loc))


def _carry(o: Op, b: Builder) -> Sequence[Value] | None:
    """Rule: what a loop carries apart and joins is carried whole."""
    if o.kind is not control.for_:
        return None
    results = o.results
    wholes: list[tuple[Value, list[Value]]] = []
    while (x := _joins_carried(o.regions[0])) is not None:
        at = [o.regions[0].params.index(v) - 1 for v in x.operands]
        parts = [o.results[i] for i in at]
        with b.at(x):
            o = _carried_whole(o, at, b)
        wholes.append((o.results[min(at)], parts))  # it took the first one's place
    if not wholes:
        return None
    b.append(o)
    for whole, parts in wholes:
        _slices(b, whole, parts)
    return results


def _joins_carried(body: Region) -> Op | None:
    """A concat of different values that the loop carries."""
    carried = set(body.params[1:])
    for x in body.ops:
        different = len(set(x.operands)) == len(x.operands)
        if x.kind is tile.concat and different and carried.issuperset(x.operands):
            return x
    return None


def _carried_whole(o: Op, at: Sequence[int], b: Builder) -> Op:
    """The loop with the values number `at` as one, in the first one's place; b builds before it."""
    (body,) = o.regions
    first = min(at)
    dropped = set(at) - {first}

    def kept(values: Sequence[Value], whole: Value) -> list[Value]:
        found = [whole if i == first else v for i, v in enumerate(values)]
        return [v for i, v in enumerate(found) if i not in dropped]

    init = _concat(b, [o.operands[3 + i] for i in at])
    param, result = (
        Value(init.type, _hint(v[i] for i in at)) for v in (body.params[1:], o.results)
    )
    inner = b.nested()
    _slices(inner, param, [body.params[1 + i] for i in at])
    inner.ops += body.ops[:-1]
    end = _concat(inner, [body.yielded[i] for i in at])
    inner.append(body.ops[-1].with_(operands=tuple(kept(body.yielded, end))))
    params = (body.params[0], *kept(body.params[1:], param))
    operands = (*o.operands[:3], *kept(o.operands[3:], init))
    results = tuple(kept(o.results, result))
    return o.with_(operands=operands, results=results, regions=(inner.region(params),))


class _Simplify:
    """Rules for a concat: of all slices of a value, in order, it is that value; of one number everywhere, a
    wider splat of it."""

    def __init__(self) -> None:
        self.made: dict[Value, Op] = {}

    def rule(self, o: Op, b: Builder) -> Sequence[Value] | None:
        self.made.update((v, o) for v in o.results)
        if o.kind is not tile.concat:
            return None
        makers = [self.made.get(v) for v in o.operands]
        known = [x for x in makers if x is not None]
        if len(known) < len(makers) or len({x.operands for x in known}) > 1:
            return None
        (source, *_) = known[0].operands or (o.result,)
        if all(x.kind is tile.splat for x in known):
            return (tile.splat(b, source, shape=shape_of(o.result.type), hint=o.result.hint),)
        cut = all(x.kind is tile.slice_tile for x in known) and source.type == o.result.type
        whole = cut and [x.attrs["offset"] for x in known] == tile.concat_offsets(o)
        return (source,) if whole else None


def _hint(parts: Iterable[Value]) -> str:
    return "_".join(dict.fromkeys(v.hint for v in parts if v.hint))
