"""Happens-before: vector clocks of warps and asynchronous engines, and who last touched which bytes.

A clock has one component for each thing whose progress others can know:

  warp w                 counts its releases (its program order)
  accesses of warp w     the same number, of what its lanes do as one; a relaxed arrival hands on the first,
                         not this one
  lanes of warp w        the same number, of what each lane does by itself: its warp knows it after they met
  elected of agent a     likewise, of what its elected thread does alone
  wgmma queue of warp w  groups that it knows to be finished (wait_group covers the executing warp only)
  cp.async of warp w     copies that have arrived (what a thread waits for itself others know after a barrier)
  bulk reads of agent a  groups of TMA stores that have finished reading shared memory
  bulk writes of agent a groups of them that have written global memory, too
  barrier b              phases that are complete (and so the bytes that they counted)
  bytes of barrier b     the same number; a relaxed wait or arrival hands on the first, not this one: what TMA
                         brought is then there for TMA and wgmma, but not for ordinary accesses
  named barrier n        generations that are complete (of the cluster's barrier likewise)
  CTA c has begun        0 or 1

What a thread knows is one row of 2·D numbers: the clock, and the clock as of its last proxy fence.  An agent
has a row for each warp (what each of its lanes knows) and one for the elected thread (Agent.elected).  An
ordinary write is ordered before an access of the async proxy (TMA, wgmma) only where the fenced half
covers it.  Barriers carry both halves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from warploom.errors import Note
from warploom.ir.core import Op
from warploom.sim.report import MemoryFault, Race
from warploom.sim.shared import Place

Array = np.ndarray[Any, np.dtype[Any]]


# What orders something asynchronous before others' accesses, by the kind of op that began it.
ORDERED_BY = {
    "wgmma": "a wgmma reads until its group is waited for: self.wgmma.wait_group first, then the arrival "
    "that gives the slot back",
    "tma_store": "the copy reads until its group is waited for: self.tma.wait_group(0) by the thread that "
    "issued it, then a barrier",
    "cp_async": "the bytes are there when their group has been waited for (self.cp_async.wait_group), for "
    "other threads behind a barrier after that; or at the mbarrier of self.cp_async.arrive",
    "tma_load": "the bytes are there when the copy's mbarrier completes its phase: wait for it",
}

# For each loop around what an agent does: the op, the name and the value of its variable, the iteration.
Loops: TypeAlias = tuple[tuple[Op, str, int, int], ...]
Regions: TypeAlias = tuple[int, ...]


def located(label: str, loops: Loops) -> str:
    """An agent and the iterations that it is in, in words."""
    at = ", ".join(f"{name}={i}" for _, name, i, _ in loops)
    return f"{label} ({at})" if at else label


@dataclass(eq=False, slots=True)
class Participant:
    """Who did something, an agent by its label, where, and in which iterations."""

    label: str
    loops: Loops
    op: Op

    @property
    def who(self) -> str:
        return located(self.label, self.loops)

    def note(self, what: str) -> Note:
        return Note(f"{what} by {self.who}", self.op.loc)


# These two are called for each access and each arrival: without NumPy's methods, which take several times
# as long on so few numbers.
def joined(rows: Array | Sequence[Array]) -> Array:
    """What any of several warps knows."""
    known: Array = np.maximum.reduce(rows)
    return known


def covers(known: Array, epochs: Array) -> bool:
    """Are all epochs known?"""
    return 0 not in (known >= epochs).tobytes()


class Components:
    """Numbers for the components, given out before a run."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, n: int = 1) -> range:
        first = self.size
        self.size += n
        return range(first, self.size)


@dataclass(eq=False, slots=True)
class Access:
    """One access to shared memory.  It is over for whoever knows `epochs` of `components`."""

    party: Participant
    place: Place
    components: Array
    epochs: Array
    is_generic_write: bool
    visible: Array | None = None  # of a copy by TMA: the components for ordinary accesses
    known: set[int] = field(default_factory=set)  # who knows that it is over, see Footprints

    @property
    def what(self) -> str:
        """The op in words."""
        return described(self.party.op, self.place)

    def note(self, verb: str) -> Note:
        return Note(f"{verb} by {self.party.who}: {self.what}", self.party.op.loc)


def described(o: Op, s: Place) -> str:
    """An access in words."""
    return f"{o.kind.name} of {s.words}"


class Partition:
    """Shared memory in regions: bytes that every access so far takes together.  An access that takes a part
    of a region only divides it; the part that it takes is a new region."""

    def __init__(self, granules: int) -> None:
        self.origins = [0]  # of each region the one that it was a part of
        self._region_of = np.zeros(granules, np.int64)

    def regions(self, granules: Array) -> Regions:
        """The regions that an access takes; those that were given for others may be divided by it."""
        found = []
        for region in np.unique(self._region_of[granules]).tolist():
            part = granules[self._region_of[granules] == region]
            if part.size < np.count_nonzero(self._region_of == region):
                self._region_of[part] = len(self.origins)
                found.append(len(self.origins))
                self.origins.append(region)
            else:
                found.append(region)
        return tuple(found)


class Footprints:
    """For every region of shared memory the last write, and since then each reader's last read and the last
    atomic of each that made some: these are ordered with reads and writes, not with each other."""

    def __init__(
        self, partition: Partition, components: int, roots: Mapping[str, str] | None = None
    ) -> None:
        """roots: of each allocation the one that it is an alias of."""
        self.components = components
        self._roots = roots or {}
        self.accesses: list[Access] = []
        self._partition = partition
        self._last_write = [-1]
        self._last_reads: list[dict[int, int]] = [{}]  # who -> access
        self._last_atomics: list[dict[int, int]] = [{}]  # the same

    def _root(self, access: Access) -> str:
        name = access.place.allocation
        return self._roots.get(name, name)

    def _divide(self) -> None:
        """Follows the partition: of a region's parts is known what is known of the region."""
        if len(self._partition.origins) == len(self._last_write):
            return
        for origin in self._partition.origins[len(self._last_write) :]:
            self._last_write.append(self._last_write[origin])
            self._last_reads.append(self._last_reads[origin].copy())
            self._last_atomics.append(self._last_atomics[origin].copy())

    def _is_over(self, earlier: Access, rows: Array, is_async: bool) -> bool:
        shift = self.components if is_async and earlier.is_generic_write else 0
        components = earlier.components
        if earlier.visible is not None and not is_async:
            components = earlier.visible
        known = rows.take(components + shift if shift else components, axis=1)
        return covers(known, earlier.epochs)

    def _race(
        self, now: Access, earlier: Access, verbs: tuple[str, str], fence: bool, relaxed: bool
    ) -> Race:
        kind = "proxy-fence" if fence else "race"
        how = "is not made visible to the async proxy before" if fence else "is not ordered before"
        return Race(
            kind,
            f"{earlier.party.who}: {earlier.what} {how} {now.what} by {now.party.who}, which touches the "
            "same bytes",
            now.party.op.loc,
            (earlier.note(f"earlier {verbs[0]}"), now.note(f"later {verbs[1]}")),
            help=(
                "the writers call self.fence.proxy_async() before the barrier that publishes their data"
                if fence
                else "the wait between the two is relaxed, which orders TMA and wgmma but no ordinary "
                "accesses: wait with sem='acquire'"
                if relaxed
                else "two copies go to the same bytes: one of them belongs into another slot, or after "
                "a wait for the slot's release"
                if earlier.party.op.kind.name == now.party.op.kind.name == "tma_load"
                else ORDERED_BY.get(
                    earlier.party.op.kind.name, "a barrier must stand between the two"
                )
            ),
        )

    def _check(
        self,
        now: Access,
        ids: set[int],
        who: int,
        rows: Array,
        is_async: bool,
        verbs: tuple[str, str],
    ) -> None:
        every = self.accesses
        for i in sorted([i for i in ids if i >= 0 and who not in every[i].known]):
            earlier = every[i]
            if not self._is_over(earlier, rows, is_async):
                only_fence = is_async and self._is_over(earlier, rows, False)
                only_relaxed = earlier.visible is not None and self._is_over(earlier, rows, True)
                raise self._race(now, earlier, verbs, only_fence, only_relaxed)
            earlier.known.add(who)

    def read(self, now: Access, at: Regions, who: int, rows: Array, is_async: bool) -> None:
        """A read that begins now, with the knowledge of `rows` (one a warp that takes part).  who: a number
        of the agent and of the way in which it accesses: what it knew once it knows for ever.

        Raises Race, or MemoryFault where nothing ever wrote the bytes, or what lay there before."""
        self._divide()
        writes = self._written(now, at)
        self._check(now, writes, who, rows, is_async, ("write", "read"))
        self._check(now, self._combined(at), who, rows, is_async, ("atomic", "read"))
        self._need_own(now, writes)
        for i in at:
            self._last_reads[i][who] = len(self.accesses)
        self.accesses.append(now)

    def _written(self, now: Access, at: Regions) -> set[int]:
        """The last writes of what an access reads.  Raises MemoryFault where there are none."""
        writes = {self._last_write[i] for i in at}
        if min(writes) < 0:
            what = f"{now.party.who}: {now.what} reads bytes that nothing wrote"
            raise MemoryFault("uninitialised", what, now.party.op.loc)
        return writes

    def _need_own(self, now: Access, writes: set[int]) -> None:
        """Raises MemoryFault where what lay there before is read."""
        root = self._root(now)
        for write in map(self.accesses.__getitem__, writes):
            if self._root(write) != root:
                what = f"{now.party.who}: {now.what} reads what {write.what} left in the same bytes"
                raise MemoryFault("uninitialised", what, now.party.op.loc, (write.note("written"),))

    def _combined(self, at: Regions) -> set[int]:
        return {made for i in at for made in self._last_atomics[i].values()}

    def combine(self, now: Access, at: Regions, who: int, rows: Array) -> None:
        """Atomics that may happen from now on.  Raises Race, and MemoryFault as a read."""
        self._divide()
        writes = self._written(now, at)
        self._check(now, writes, who, rows, False, ("write", "atomic"))
        reads = {read for i in at for read in self._last_reads[i].values()}
        self._check(now, reads, who, rows, False, ("read", "atomic"))
        self._need_own(now, writes)
        for i in at:
            self._last_atomics[i][who] = len(self.accesses)
        self.accesses.append(now)

    def write(self, now: Access, at: Regions, who: int, rows: Array, is_async: bool) -> None:
        """A write that may happen from now on.  Raises Race."""
        self._divide()
        writes = {self._last_write[i] for i in at}
        self._check(now, writes, who, rows, is_async, ("write", "write"))
        reads = {read for i in at for read in self._last_reads[i].values()}
        self._check(now, reads, who, rows, is_async, ("read", "write"))
        self._check(now, self._combined(at), who, rows, is_async, ("atomic", "write"))
        for i in at:
            self._last_write[i] = len(self.accesses)
            self._last_reads[i].clear()
            self._last_atomics[i].clear()
        self.accesses.append(now)
