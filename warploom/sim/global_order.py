"""Ordinary accesses of one program's threads to global memory: who touched each element last.

Of every array that a function stores to, each element has its last write and its last reads since: their
access and thread.  Another thread's access comes after it only if that thread's warp knows it to be over
(order.py), by a barrier or whatever else hands on what threads did.  Which thread accesses an element its
tile's layout says, from PLACED on.  A TMA store is over for whoever knows that its bulk group has written,
the thread that issued it among them.  Atomics and volatile loads, which may order others, TMA's loads, the
fences between the proxies (check/proxies.py) and what other programs do are not looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from warploom.errors import Note
from warploom.ir import engines
from warploom.ir.analysis import closure, uses
from warploom.ir.core import Family, Func, Op, Value
from warploom.ir.ops import tile, unaligned
from warploom.ir.types import Tile
from warploom.sim.memory import Buffer
from warploom.sim.order import Array, Participant
from warploom.sim.report import Race

SEVERAL = -1  # in the place of a thread: any of those that run the op
WRITES = frozenset({tile.store, tile.store_box})
_BY_TILE = frozenset({*WRITES, tile.load, tile.load_box})
_ORDERED = _BY_TILE | {unaligned.load_unaligned} | engines.COPIES_PIECES
STORES = WRITES | engines.STORES_BOXES


def is_ordered(o: Op) -> bool:
    """Is it an access that barriers order?"""
    return o.kind in _ORDERED and not o.attrs.get("volatile")


def is_bulk_store(o: Op) -> bool:
    """Does TMA store what is there then, whatever was there before?"""
    return o.kind in engines.STORES_BOXES and o.attrs.get("reduce") is None


def is_of_one_thread(o: Op) -> bool:
    """Does one thread make the access for all of its group?"""
    tiles = (v for v in o.operands if isinstance(v.type, Tile))
    return o.kind in (tile.store, tile.atomic) and not any(tiles)


@dataclass(eq=False, slots=True)
class GlobalAccess:
    """first: the number of the first thread that may have made it."""

    party: Participant
    first: int
    components: Array
    epochs: Array


class _Last:
    """For each element of an array the last access of a kind, by its number, and its thread."""

    def __init__(self, size: int) -> None:
        self.access = np.zeros(size, np.int32)
        self.thread = np.zeros(size, np.int32)

    def take(self, other: _Last, first: int) -> None:
        """What another one has, from one of these elements on."""
        part = slice(first, first + len(other.access))
        self.access[part], self.thread[part] = other.access, other.thread


class _Memory:
    """Elements of one size, of arrays that overlap: the last stores to each and loads from it."""

    def __init__(self, begin: int, end: int, item: int) -> None:
        self.begin, self.end, self.item = begin, end, item
        self.stored, self.loaded = (_Last((end - begin) // item) for _ in range(2))

    def overlaps(self, other: _Memory) -> bool:
        is_alike = self.item == other.item and (self.begin - other.begin) % self.item == 0
        return is_alike and self.begin < other.end and other.begin < self.end


@dataclass
class GlobalAccesses:
    """What the threads of one CTA have accessed so far."""

    accesses: list[GlobalAccess | None] = field(default_factory=lambda: [None])
    # By where an array begins and ends, and the size of its elements.
    arrays: dict[tuple[int, int, int], _Memory] = field(default_factory=dict)

    def add(
        self, now: GlobalAccess, rows: Array, buffer: Buffer, at: Array, who: Array, writes: bool
    ) -> None:
        """An access that happens now, with the knowledge of `rows`, by threads `who` to elements `at`.
        Raises Race."""
        number = len(self.accesses)
        self.accesses.append(now)
        memory, first = self._memory(buffer)
        at = at + first
        self._need_over(now, rows, memory.stored, at, who, buffer, first)
        last = memory.stored if writes else memory.loaded
        if writes:
            self._need_over(now, rows, memory.loaded, at, who, buffer, first)
            memory.loaded.access[at] = 0
        else:
            who = np.where(self._going_on(now, rows, last, at, who), SEVERAL, who)
        last.access[at], last.thread[at] = number, who
        last.thread[at[last.thread[at] != who]] = SEVERAL  # more than one of its threads

    def _memory(self, buffer: Buffer) -> tuple[_Memory, int]:
        """Where a buffer lies: memory, and the number of the buffer's first element in it."""
        begin, item = buffer.data.ctypes.data, buffer.data.itemsize
        key = begin, begin + buffer.data.nbytes, item
        if key not in self.arrays:
            found = _Memory(*key)
            known = [x for x in dict.fromkeys(self.arrays.values()) if x.overlaps(found)]
            if known:
                begins, ends = [x.begin for x in (found, *known)], [x.end for x in (found, *known)]
                found = _Memory(min(begins), max(ends), item)
            for x in known:
                found.stored.take(x.stored, (x.begin - found.begin) // item)
                found.loaded.take(x.loaded, (x.begin - found.begin) // item)
            self.arrays = {k: found if x in known else x for k, x in self.arrays.items()}
            self.arrays[key] = found
        memory = self.arrays[key]
        return memory, (begin - memory.begin) // item

    def _need_over(
        self,
        now: GlobalAccess,
        rows: Array,
        last: _Last,
        at: Array,
        who: Array,
        buffer: Buffer,
        first: int,
    ) -> None:
        wrong = np.flatnonzero(self._going_on(now, rows, last, at, who))
        if not wrong.size:
            return
        i = int(at[wrong[0]])
        earlier = self.accesses[last.access[i]]
        assert earlier is not None
        did = "stores" if earlier.party.op.kind in STORES else "loads"
        does = "stores" if now.party.op.kind in STORES else "loads"
        by_bulk = earlier.party.op.kind in engines.STORES_BOXES
        thread = "a thread" if last.thread[i] == SEVERAL else f"thread {last.thread[i]}"
        raise Race(
            "global-race",
            f"{now.party.who} {does} element {i - first - buffer.origin} of {buffer.name}, which {thread} of "
            f"{earlier.party.who} {did} in no order with it",
            now.party.op.loc,
            (Note("the other access", earlier.party.op.loc),),
            help="the thread that stored waits with self.tma.wait_group(0, read=False) first"
            if by_bulk
            else "a barrier must stand between the two: self.sync()",
        )

    def _going_on(
        self, now: GlobalAccess, rows: Array, last: _Last, at: Array, who: Array
    ) -> Array:
        """Where the last accesses may still come: other threads made them, and these don't know it."""
        number, thread = last.access[at], last.thread[at]
        found: Array = (number > 0) & ((thread != who) | (who == SEVERAL))
        for n in np.unique(number[found]).tolist():
            earlier = self.accesses[n]
            assert earlier is not None
            knows = rows[:, earlier.components] >= earlier.epochs
            here = np.flatnonzero(found & (number == n))
            if knows.all():
                found[here] = False
                continue
            mine = np.concatenate([knows, knows.all(axis=0, keepdims=True)])
            mine = mine[np.where(who[here] == SEVERAL, len(knows), (who[here] - now.first) // 32)]
            theirs = thread[here]
            warp = np.where(theirs == SEVERAL, 0, (theirs - earlier.first) // 32)
            found[here] = ~np.where(
                theirs == SEVERAL, mine.all(axis=1), mine[np.arange(len(here)), warp]
            )
        return found


class Threads:
    """Which thread of its group accesses each element, in a function at PLACED."""

    def __init__(self, func: Func) -> None:
        self._users = uses(func.body)

    def of(self, o: Op) -> Array | None:
        """Of each element of an op's tile the thread; None where several may be, or nobody knows."""
        if o.kind not in _BY_TILE:
            return None
        kind = (o.operands[1] if o.kind in WRITES else o.result).type
        if not isinstance(kind, Tile) or kind.layout is None:
            return None
        return _threads(kind.layout, o.kind in WRITES or self._is_stored_alone(o.result))

    def _is_stored_alone(self, v: Value) -> bool:
        """Does what is loaded go nowhere but to stores in the same layout?  Then only the first of the
        threads that hold an element alike has a use for it."""

        def is_alike(o: Op) -> bool:
            is_alone = o.kind.family is Family.POINTWISE and len(o.results) == 1
            return is_alone and _layout(o.result) == _layout(v)

        def users(x: Value) -> Sequence[Op]:
            return self._users.get(x, ())

        values = closure([v], lambda x: [o.result for o in users(x) if is_alike(o)])
        return all(o.kind in WRITES or is_alike(o) for x in values for o in users(x))


def _layout(v: Value) -> Any:
    return v.type.layout if isinstance(v.type, Tile) else None


@lru_cache(maxsize=1024)
def _threads(layout: Any, is_once: bool) -> Array | None:
    """By layout.  is_once: of the threads that hold an element, the first accesses it."""
    lanes, warps = np.arange(32)[None, :], np.arange(layout.warps)[:, None]
    held = layout.inside
    if is_once:
        of_lane, of_warp = layout.copies
        held = held & (((lanes & of_lane) | (warps & of_warp)) == 0)[..., None]
    elements = layout.flat[held]
    if np.unique(elements).size < elements.size:
        return None
    found = np.full(math.prod(layout.shape), SEVERAL)
    found[elements] = np.broadcast_to((32 * warps + lanes)[..., None], held.shape)[held]
    return found
