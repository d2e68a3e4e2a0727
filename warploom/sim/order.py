"""Happens-before: vector clocks of warps and asynchronous engines, and who last touched which bytes.

A clock has one component for each thing whose progress others can know:

  warp w                 counts its releases (its program order)
  accesses of warp w     the same number; a relaxed arrival hands on the first, not this one
  wgmma queue of warp w  groups that it knows to be finished (wait_group covers the executing warp only)
  cp.async of warp w     copies that have landed
  bulk reads of agent a  groups of TMA stores that have finished reading shared memory
  barrier b              phases that are complete (and so the bytes that they counted)
  bytes of barrier b     the same number; a relaxed wait or arrival hands on the first, not this one: what TMA
                         brought is then there for TMA and wgmma, but not for ordinary accesses
  named barrier n        generations that are complete (of the cluster's barrier likewise)
  CTA c has begun        0 or 1

What a thread knows is one row of 2·D numbers: the clock, and the clock as of its last proxy fence.  An
ordinary write is ordered before an access of the async proxy (TMA, wgmma) only where the fenced half
covers it.  Barriers carry both halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from warploom.errors import Note
from warploom.ir.core import Op
from warploom.sim.report import MemoryFault, Race

Array = np.ndarray[Any, np.dtype[Any]]


# What orders something asynchronous before others' accesses, by the kind of op that began it.
ORDERED_BY = {
    "wgmma": "a wgmma reads until its group is waited for: self.wgmma.wait_group first, then the arrival "
    "that gives the slot back",
    "tma_store": "the copy reads until its group is waited for: self.tma.wait_group(0) by the thread that "
    "issued it, then a barrier",
    "tma_load": "the bytes are there when the copy's mbarrier completes its phase: wait for it",
}

Granules: TypeAlias = slice | Array  # a slice where they lie side by side


def _distinct(ids: Array) -> list[int]:
    """The different numbers, in order.  Of most accesses each column holds one number only."""
    columns = ids.reshape(len(ids), -1)
    first = columns[0]
    if (columns == first).all():
        return sorted(set(first.tolist()))
    low, high = columns.min(axis=0), columns.max(axis=0)
    mixed = columns[:, low != high]
    return sorted({*low.tolist(), *mixed.ravel().tolist()})


class Components:
    """Numbers for the components, given out before a run."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, n: int = 1) -> range:
        first = self.size
        self.size += n
        return range(first, self.size)


@dataclass(frozen=True, eq=False)
class Access:
    """One access to shared memory.  It is over for whoever knows `epochs` of `components`."""

    who: str  # agent, and the loop iterations that it was in
    what: str  # the op in words
    op: Op
    components: Array
    epochs: Array
    is_generic_write: bool
    visible: Array | None = None  # of a copy by TMA: the components for ordinary accesses

    def note(self, verb: str) -> Note:
        return Note(f"{verb} by {self.who}: {self.what}", self.op.loc)


class Footprints:
    """For every granule of shared memory the last write, and each reader's last read since."""

    def __init__(self, size: int, granule: int, readers: int, components: int) -> None:
        self.components = components
        self.last_write = np.full(-(-size // granule), -1, np.int32)
        self.last_reads = np.full((self.last_write.size, readers), -1, np.int32)
        self.accesses: list[Access] = []

    def _is_over(self, earlier: Access, rows: Array, is_async: bool) -> bool:
        shift = self.components if is_async and earlier.is_generic_write else 0
        components = earlier.components
        if earlier.visible is not None and not is_async:
            components = earlier.visible
        known = rows[:, components + shift if shift else components]
        return bool((known >= earlier.epochs).all())

    def _race(
        self, now: Access, earlier: Access, verbs: tuple[str, str], fence: bool, relaxed: bool
    ) -> Race:
        kind = "proxy-fence" if fence else "race"
        how = "is not made visible to the async proxy before" if fence else "is not ordered before"
        return Race(
            kind,
            f"{earlier.who}: {earlier.what} {how} {now.what} by {now.who}, which touches the same bytes",
            now.op.loc,
            (earlier.note(f"earlier {verbs[0]}"), now.note(f"later {verbs[1]}")),
            help=(
                "the writers call self.fence.proxy_async() before the barrier that publishes their data"
                if fence
                else "the wait between the two is relaxed, which orders TMA and wgmma but no ordinary "
                "accesses: wait with sem='acquire'"
                if relaxed
                else "two copies go to the same bytes: one of them belongs into another slot, or after "
                "a wait for the slot's release"
                if earlier.op.kind.name == now.op.kind.name == "tma_load"
                else ORDERED_BY.get(earlier.op.kind.name, "a barrier must stand between the two")
            ),
        )

    def _check(
        self, now: Access, ids: Array, rows: Array, is_async: bool, verbs: tuple[str, str]
    ) -> None:
        for i in _distinct(ids):
            if i < 0:
                continue
            earlier = self.accesses[i]
            if not self._is_over(earlier, rows, is_async):
                only_fence = is_async and self._is_over(earlier, rows, False)
                only_relaxed = earlier.visible is not None and self._is_over(earlier, rows, True)
                raise self._race(now, earlier, verbs, only_fence, only_relaxed)

    def read(self, now: Access, at: Granules, reader: int, rows: Array, is_async: bool) -> None:
        """A read that begins now, with the knowledge of `rows` (one a warp that takes part).

        Raises Race, or MemoryFault where nothing ever wrote the bytes."""
        writes = self.last_write[at]
        if (writes < 0).any():
            raise MemoryFault(
                "uninitialised", f"{now.who}: {now.what} reads bytes that nothing wrote", now.op.loc
            )
        self._check(now, writes, rows, is_async, ("write", "read"))
        self.last_reads[at, reader] = len(self.accesses)
        self.accesses.append(now)

    def write(self, now: Access, at: Granules, rows: Array, is_async: bool) -> None:
        """A write that may happen from now on.  Raises Race."""
        self._check(now, self.last_write[at], rows, is_async, ("write", "write"))
        self._check(now, self.last_reads[at], rows, is_async, ("read", "write"))
        self.last_write[at] = len(self.accesses)
        self.last_reads[at] = -1
        self.accesses.append(now)
