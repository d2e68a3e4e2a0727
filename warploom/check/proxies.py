"""Global memory that both proxies touch: ordinary accesses, and TMA, which is of the async proxy.

An access by TMA after an ordinary store of the same words needs a `fence.proxy.async` between them, by the
threads that stored (PTX ISA, "Async proxy" and "membar/fence": different proxies see each other's accesses
by a proxy fence).  After a TMA store its completion is one (cp.async.bulk: "followed by an implicit
generic-async proxy fence"): who waits for the group without `.read` sees what it wrote.

Nor do TMA stores keep an order with later stores of their program, those of TMA among them: where no such
wait stands between two that write different values to one word for sure, the earlier one may come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from warploom.check.data_flow import comes_first
from warploom.check.disjoint import Meeting, meet
from warploom.check.global_accesses import Access, Collected
from warploom.check.witness import find_witness
from warploom.errors import Note
from warploom.ir import engines
from warploom.ir.core import Op, Region
from warploom.ir.ops import control, smem, task
from warploom.ir.poly import Poly
from warploom.sim.report import Race

Crossing = tuple[str, Race | None, Access]
Is = Callable[[Op], bool]


def crossings(found: Collected, alike: Sequence[Poly]) -> Iterator[Crossing]:
    """(why it isn't proved, the race where it is one, the load) for each store and load of common words that
    nothing makes visible.  alike: differences of the programs' numbers: both are by one program."""
    for a in found.accesses:
        for b in found.accesses:
            is_pair = a.base is not None and a.base is b.base and a.writes and not b.writes
            if not is_pair or not (a.is_async or b.is_async) or _is_visible(found, a, b):
                continue
            met = meet(found.terms, a, b, [], [], alike)
            if met.apart or (comes_first(found, a, b) and not _stands_before(found, a, b)):
                continue
            race = _race(a, b)
            if _is_visible(found, a, b, perhaps=True):
                yield f"{b} may read words of {a}: {race.help}, but under a condition", None, b
            elif find_witness(found.terms, a, b, [], met.conditions, alike) is None:
                yield f"{b} may read words of {a}, and {race.help} is missing", None, b
            else:
                yield "", race, b


def overwritten(
    found: Collected, alike: Sequence[Poly]
) -> Iterator[tuple[Access, Meeting, Race | None]]:
    """The TMA stores of which a later store of their program may meet the word, how the two meet, and the
    race where they do so for sure: with that of another iteration, with another one of the same, or with one
    before it of the next."""
    values, terms = found.values, found.terms
    plain = [a for a in found.accesses if a.writes and not a.is_atomic and a.base is not None]
    for a, b in product(plain, plain):
        loops = [o for o in a.loops if o in b.loops]
        is_later = a is not b and _stands_before(found, a, b)
        is_pair = a.is_async and a.base is b.base and (is_later or loops)
        if not is_pair or _is_visible(found, a, b, perhaps=True):
            continue
        if any(o.kind is not control.for_ for o in loops):
            continue  # what tells two iterations apart is not known
        index = [values.scalar(o.regions[0].params[0]) for o in loops]
        pairs = [(i, terms.other(i)) for i in index]
        apart = [i - j for i, j in pairs]
        ways = [apart] if is_later else [[]]
        if a is not b and not is_later:  # in the next iteration of a loop
            steps = [d + values.scalar(o.operands[2]) for d, o in zip(apart, loops, strict=True)]
            ways = [[*apart[:n], step] for n, step in enumerate(steps)]
        for way in ways:
            same, others = [*alike, *way], pairs if a is b else []
            met = meet(terms, a, b, others, [], same)
            is_sure = not met.is_fine and (
                find_witness(terms, a, b, others, met.conditions, same) is not None
            )
            yield a, met, _race(a, b) if is_sure else None


def _race(a: Access, b: Access) -> Race:
    if a.is_async:
        may = f"be overwritten by the earlier {a}" if b.writes else f"read words from before {a}"
        what = "store" if b.writes else "load"
        return Race(
            "store-wait",
            f"{b} may {may}: nothing waits for the copy to have written them",
            b.loc,
            (Note("stored here by TMA", a.loc),),
            help=f"the thread that stored waits with self.tma.wait_group(0, read=False) before the {what}",
        )
    return Race(
        "proxy-fence",
        f"{b} may read words from before {a}: no fence stands between the two proxies",
        b.loc,
        (Note("stored here by ordinary accesses", a.loc),),
        help='the threads that stored call self.fence.proxy_async("global") before the load',
    )


def _is_visible(found: Collected, a: Access, b: Access, perhaps: bool = False) -> bool:
    """Is what a stores made visible before b, wherever b comes after it?  perhaps: where conditions hold."""
    always = _waits if a.is_async else _fences

    def makes(o: Op) -> bool:
        return always(o) or (perhaps and any(map(always, _inside(o))))

    for agent in found.func.body.ops:
        for region in agent.regions:
            here = _path(region, a.op)
            if here is None:
                continue
            there = _path(region, b.op)
            return _after(here, makes) if there is None else _between(here, there, makes)
    return False


def _stands_before(found: Collected, a: Access, b: Access) -> bool:
    """Does one agent run a before b in each iteration of the loops around both?"""
    for agent in found.func.body.ops:
        for region in agent.regions:
            here, there = _path(region, a.op), _path(region, b.op)
            if here is not None and there is not None:
                return [i for _, i in here] < [i for _, i in there]
    return False


def _inside(o: Op) -> Iterator[Op]:
    """All ops in an op's regions."""
    return (x for r in o.regions for x in r.all_ops)


def _fences(o: Op) -> bool:
    return o.kind is smem.fence_async and o.attrs.get("space") == "global"


def _waits(o: Op) -> bool:
    """A wait for all groups to have written; one thread of the replica executes it."""
    if o.kind is task.elect:
        return any(map(_waits, o.regions[0].ops))
    is_wait = engines.WAITED.get(o.kind) == "stores"
    return is_wait and not o.attrs.get("read", True) and o.attrs["pending"] == 0


# Where an op stands: from the outermost region to its own, the ops of each and the place in it.
Path = list[tuple[Region, int]]


def _path(region: Region, o: Op) -> Path | None:
    for i, x in enumerate(region.ops):
        if x is o:
            return [(region, i)]
        for inner in x.regions:
            rest = _path(inner, o)
            if rest is not None:
                return [(region, i), *rest]
    return None


def _after(path: Path, makes: Is) -> bool:
    """Does such an op always follow?"""
    return any(makes(x) for region, i in path for x in region.ops[i + 1 :])


def _before(path: Path, makes: Is) -> bool:
    """Does such an op always come before, in the regions of the path?"""
    return any(makes(x) for region, i in path for x in region.ops[:i])


def _between(a: Path, b: Path, makes: Is) -> bool:
    """Does such an op stand on each way from a to b?  Or is there no way: b comes before a, and no loop is
    around both."""
    depth = 0
    while depth + 1 < min(len(a), len(b)) and a[depth + 1][0] is b[depth + 1][0]:
        depth += 1
    (region, i), (_, j) = a[depth], b[depth]
    inner = _after(a[depth + 1 :], makes) or _before(b[depth + 1 :], makes)
    if i < j:
        return inner or any(map(makes, region.ops[i + 1 : j]))
    for k in range(depth, -1, -1):  # by the end of a loop around both, and its begin
        if any(map(makes, a[k][0].ops[a[k][1] + 1 :])) or any(map(makes, b[k][0].ops[: b[k][1]])):
            inner = True
        if k and a[k - 1][0].ops[a[k - 1][1]].kind in (control.for_, control.while_):
            return inner
    return True
