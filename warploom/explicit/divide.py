"""Groups inside groups, loops and ifs: each range of warps gets the code that it runs.

A group whose code holds smaller groups becomes a task for each range of warps that these divide it
into.  A range runs the group's own code (numbers, loops, ifs, waits, arrivals) and, where they stand, the
groups that it belongs to; so code is repeated, once for each range.  The first range runs what one thread of
the group does.  A barrier of the whole group becomes a named barrier.

What the group's threads do together on registers can't be divided.  There a smaller group that only
issues copies, waits and arrives is run by the one elected thread instead (TMA's stores at the end of a tile);
another one is refused: what is around it belongs into a group of its own.

    before:  group of warps 0-3 {                   after:  task of warps 0-1 { for … { wait(full) A } }
               for … {                                      task of warps 2-3 { for … { wait(full) B } }
                 wait(full)
                 group of warps 0-1 { A }
                 group of warps 2-3 { B }
               }
             }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from warploom.errors import CompileError, Note
from warploom.explicit.program import Group
from warploom.ir.analysis import is_pure
from warploom.ir.core import Op, Region, walk
from warploom.ir.ops import arith, cluster, control, mbarrier, regs, smem, task, tile
from warploom.ir.rewrite import clone_region
from warploom.ir.types import InFlight, Tile, i32
from warploom.target import Target

WARP = 32  # threads


@dataclass(frozen=True)
class Part:
    """A task of the kernel; see `task.tasks`."""

    name: str
    first: int
    warps: int
    replicas: int
    region: Region


@dataclass(frozen=True)
class _Owner:
    """Whose code it is: warps of the replica that runs it, of all its replicas, and its number among these
    (None: it is one of one)."""

    warps: range
    all: range
    replica: int | None


@dataclass
class Divider:
    """Divides the groups of one kernel.

    groups: by the keys of their markers.  threads: warps of the CTA.  explicit: named barriers that the
    script uses by number.  name: makes a task's name that no other has."""

    target: Target
    groups: Mapping[str, Group]
    threads: range
    explicit: set[int]
    name: Callable[[str], str]
    barriers: dict[range, int] = field(default_factory=dict)

    def parts(self, group: Group, region: Region, name: str) -> list[Part]:
        """The tasks that a group at the top becomes: one (named `name`) where no smaller group divides it."""
        t = group.threads
        assert t.warps is not None
        if not any(o.kind is task.tasks for o in walk(region)):
            return [Part(name, t.first, t.warps, t.replicas, region)]
        barriers = dict(self.barriers)
        try:
            return self._divided(group, region, name)
        except CompileError as e:
            left = self.elected(region)
            if e.code != "group-collective" or left is region:
                raise
            self.barriers = barriers
            return self.parts(group, left, name)

    def elected(self, region: Region) -> Region:
        """The region, with smaller groups that one thread may run run by the elected one."""
        ops = [o for old in region.ops for o in self.by_one_thread(old)]
        same = len(ops) == len(region.ops) and all(
            a is b for a, b in zip(ops, region.ops, strict=True)
        )
        return region if same else Region(region.params, tuple(ops))

    def by_one_thread(self, o: Op) -> Sequence[Op]:
        if o.kind is not task.tasks:
            regions = tuple(map(self.elected, o.regions))
            changed = any(a is not b for a, b in zip(regions, o.regions, strict=True))
            return [o.with_(regions=regions)] if changed else [o]
        threads = self.of(o).threads
        body = _by_one_thread(o.regions[0], threads.warps or 0)
        if threads.replicas > 1 or body is None:
            return [o]
        return [Op(task.elect, (), {}, (), (body,), frozenset(), o.loc)]

    def _divided(self, group: Group, region: Region, name: str) -> list[Part]:
        """A task for each range of warps."""
        out = []
        for owner, offset in self._replicas(group, 0):
            edges = {owner.warps.start, owner.warps.stop, *self._edges(region, offset)}
            for start, stop in pairwise(sorted(edges)):
                cut = _Cut(self, range(start, stop))
                ops = cut.ops(region, owner, offset)
                ending = region.ops[-1].with_(operands=())
                body = clone_region(Region((), (*ops, ending)), {})
                fresh = self.name(cut.name or f"{name}_{start}")
                out.append(Part(fresh, start, stop - start, 1, body))
        return out

    def _replicas(self, group: Group, offset: int) -> Iterator[tuple[_Owner, int]]:
        """A group's replicas, and how far the groups inside each are from where their markers say."""
        t = group.threads
        assert t.warps is not None
        first = t.first + offset
        whole = range(first, first + t.warps * t.replicas)
        for r in range(t.replicas):
            start = first + r * t.warps
            own = range(start, start + t.warps)
            number = r if t.replicas > 1 else None
            yield _Owner(own, whole, number), offset + r * t.warps

    def _edges(self, region: Region, offset: int) -> Iterator[int]:
        """Where the groups inside begin and end."""
        for o in region.ops:
            if o.kind is not task.tasks:
                for r in o.regions:
                    yield from self._edges(r, offset)
                continue
            for owner, inner in self._replicas(self.of(o), offset):
                yield from (owner.warps.start, owner.warps.stop)
                yield from self._edges(o.regions[0], inner)

    def of(self, marker: Op) -> Group:
        return self.groups[marker.attrs["names"][0]]

    def barrier(self, warps: range, o: Op) -> Op:
        """The barrier of these warps, which run it in several tasks."""
        if warps == self.threads:
            return o.with_(attrs={"scope": "cta"})
        if warps not in self.barriers:
            taken = self.explicit | set(self.barriers.values())
            last = self.target.sync.named_barriers - 1
            free = [i for i in range(last, 0, -1) if i not in taken]  # passes take the first ones
            if not free:
                raise CompileError(
                    "named-barriers",
                    f"no named barrier is left for this sync of a divided group: a CTA has {last}",
                    o.loc,
                    help="use mbarriers, or fewer groups that sync",
                )
            self.barriers[warps] = free[0]
        threads = self.target.warp_size * len(warps)
        attrs = {"id": self.barriers[warps], "threads": threads, "arrive": False}
        return o.with_(kind=smem.named_barrier, attrs=attrs)


@dataclass
class _Cut:
    """The code of one range of warps."""

    divider: Divider
    warps: range
    name: str = ""  # of a group that is this range

    def ops(self, region: Region, owner: _Owner, offset: int) -> list[Op]:
        """What the range runs of a region of its owner's code, without the yield at its end."""
        return [new for o in region.ops[:-1] for new in self._op(o, owner, offset)]

    def _op(self, o: Op, owner: _Owner, offset: int) -> Sequence[Op]:
        if o.kind is task.tasks:
            found: list[Op] = []
            for inner, moved in self.divider._replicas(self.divider.of(o), offset):
                if self.warps.start in inner.warps:
                    given = self.divider.of(o).name
                    if given and inner.warps == self.warps:
                        self.name = given if inner.replica is None else f"{given}{inner.replica}"
                    found += self.ops(o.regions[0], inner, moved)
            return found
        if o.kind is task.replica_id and owner.replica is not None:
            return [o.with_(kind=arith.const, attrs={"value": owner.replica, "dtype": i32})]
        if o.kind is smem.group_sync:
            whole = owner.all if o.attrs["scope"] == "task" else owner.warps
            return [o if whole == self.warps else self.divider.barrier(whole, o)]
        if owner.warps == self.warps:
            return [o]
        values = (*o.operands, *o.results, *(v for r in o.regions for v in r.params))
        if any(isinstance(v.type, Tile | InFlight) for v in values):
            raise self._collective(o, owner)
        if o.kind in (control.for_, control.while_, control.if_):
            regions = tuple(
                Region(r.params, (*self.ops(r, owner, offset), r.ops[-1])) for r in o.regions
            )
            return [o.with_(regions=regions)]
        is_first = self.warps.start == owner.warps.start
        by_one = o.kind is mbarrier.mbarrier_arrive and o.attrs.get("by") == "one"
        if o.kind in _BY_ONE_THREAD or by_one:
            return [o] if is_first else []
        if o.kind in _BY_ALL or is_pure(o):
            return [o]
        raise self._collective(o, owner)

    def _collective(self, o: Op, owner: _Owner) -> CompileError:
        return CompileError(
            "group-collective",
            f"all {len(owner.warps)} warps of the group run {o.kind.name} together, but other groups "
            "divide them",
            o.loc,
            tuple(
                Note("this group has a part of them", g.threads.loc) for g in self._dividing(owner)
            ),
            "put it into a thread_group of its own, which no other group has a part of; a smaller group "
            "inside may copy by TMA, wait and arrive",
        )

    def _dividing(self, owner: _Owner) -> Iterator[Group]:
        """A group that begins or ends among the owner's warps."""
        for g in self.divider.groups.values():
            t = g.threads
            assert t.warps is not None
            edges = (t.first + i * t.warps for i in range(t.replicas + 1))
            if any(owner.warps.start < e < owner.warps.stop for e in edges):
                yield g
                return


def _by_one_thread(region: Region, warps: int) -> Region | None:
    """What a group of so many warps does, done by one thread; None: it takes them all."""
    ops: list[Op] = []
    for o in region.ops:
        if o.kind is task.elect:
            ops += o.regions[0].ops[:-1]
            continue
        if o.kind is mbarrier.mbarrier_arrive and o.attrs.get("by") == "thread":
            if warps > 1:  # the other warps' arrivals are theirs
                return None
            o = o.with_(attrs={**o.attrs, "count": WARP * o.attrs.get("count", 1)})
        elif o.kind in (control.for_, control.while_, control.if_):
            regions = [_by_one_thread(r, warps) for r in o.regions]
            o = o.with_(regions=tuple(r for r in regions if r is not None))
            if len(o.regions) < len(regions):
                return None
        elif not (o.kind in _ALONE or is_pure(o)):
            return None
        values = (*o.operands, *o.results)
        if any(isinstance(v.type, Tile | InFlight) for v in values):
            return None
        ops.append(o)
    return Region(region.params, tuple(ops))


_ALONE = frozenset(
    (
        control.yield_,
        control.assume,
        control.printf,
        mbarrier.mbarrier_wait,
        mbarrier.mbarrier_arrive,
        smem.fence_async,
        smem.shared_get,
    )
)
_BY_ALL = frozenset(
    (
        mbarrier.mbarrier_wait,
        mbarrier.mbarrier_arrive,
        smem.named_barrier,
        regs.setmaxnreg,
        smem.fence_async,
        smem.shared_get,
        cluster.cluster_arrive,
        cluster.cluster_wait,
        control.assume,
        control.device_assert,
        tile.load,
    )
)
_BY_ONE_THREAD = frozenset((task.elect, control.printf, control.device_print, tile.store))
