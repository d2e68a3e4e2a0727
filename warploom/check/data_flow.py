"""What a stored value follows from, through registers and shared memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from warploom.check.disjoint import meet
from warploom.check.global_accesses import Access, Collected
from warploom.ir import engines
from warploom.ir.analysis import sources
from warploom.ir.core import Op, Value
from warploom.ir.ops import cluster, control, smem, task, tile

_EXECUTORS = frozenset(
    {
        tile.program_id,
        tile.globaltimer,
        task.replica_id,
        cluster.cta_id,
        cluster.cta_rank,
        tile.atomic,
        smem.shared_atomic,
    }
)


def depends_on_executor(found: Collected, a: Access) -> bool:
    """Does what a store writes follow from who executes it?"""
    return any(o.kind in _EXECUTORS for o in _ops_before(found, a))


def comes_first(found: Collected, a: Access, b: Access) -> bool:
    """Does a store (a) of what a load (b) reads always come after it, because what is stored follows from
    what was loaded?  Both then are of the same tile: of the same iteration of the loops around both, so that
    what these carry from one to the next does not count."""
    carried = {v for x in (*a.loops, *b.loops) for r in x.regions for v in r.params}
    if b.op not in _ops_before(found, a, carried):
        return False
    values, other = found.values, found.terms.other
    pairs = []
    for x, y in zip(a.loops, b.loops, strict=False):
        if x.kind is not control.for_ or y.kind is not control.for_:
            return False
        i, j = (values.scalar(o.regions[0].params[0]) for o in (x, y))
        pairs.append((i, other(j)))
    return not pairs or meet(found.terms, a, b, pairs, []).is_fine


def _ops_before(found: Collected, a: Access, given: Collection[Value] = ()) -> dict[Op, None]:
    """The ops that the stored value follows from, where what is given follows from nothing."""
    return dict.fromkeys(_walk(found, a.op.operands[1], given))


def _walk(found: Collected, stored: Value, given: Collection[Value]) -> Iterator[Op]:
    body, made = found.func.body, found.values.made
    following = sources(body)
    filled: dict[str, list[Op]] = {}
    for o in body.all_ops:
        if o.kind in engines.DESTINATION:
            place = o.operands[engines.DESTINATION[o.kind]]
            filled.setdefault(found.values.allocation(place), []).append(o)
    seen = set(given)
    work = [stored]
    while work:
        v = work.pop()
        if v in seen:
            continue
        seen.add(v)
        maker = made.get(v)
        work.extend(following.get(v, ()))
        if maker is None:
            continue
        yield maker
        if maker.kind is smem.shared_alloc:
            for filler in filled.get(str(maker.attrs["name"]), ()):
                yield filler
                work.extend(filler.operands)
