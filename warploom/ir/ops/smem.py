"""Shared memory and the barriers of its threads: allocations, slots and parts of them, ordinary loads and
stores, cp.async, fences.

Semantics follow the PTX ISA; each op says what it stands for.  "The replica" is the threads that run
the enclosing task region (all of them outside `elect`, one thread inside).
"""

from __future__ import annotations

import math
from dataclasses import replace

from warploom.ir.core import HARDWARE, Effect, Family, Level, Runs, Type, op, require
from warploom.ir.ops.tile import ORDERS, is_source
from warploom.ir.types import DType, Pointer, Scalar, Shared, Tile, i32, u32

SWIZZLES = (0, 32, 64, 128)


@op(Family.PLACE, levels=HARDWARE)
def shared_alloc(
    *,
    name: str,
    lead: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: DType,
    inner: int,
    swizzle: int,
    offset: int | None = None,
    alias: str | None = None,
    reuses: tuple[str, ...] = (),
) -> Shared:
    """Shared memory for slots `lead` of tiles `shape`; `offset` in bytes from PLACED on.

    Slots are row-major over lead, Shared.slot_bytes apart (aligned to 1024 bytes where swizzled, to 128
    otherwise).  alias: name of the allocation whose bytes this one reuses.
    reuses: from PLACED on, names of the allocations in whose bytes it lies: they are over when it is written.
    """
    require(swizzle in SWIZZLES, f"swizzle is one of {SWIZZLES} bytes, not {swizzle}")
    t = Shared(lead, shape, dtype, inner, swizzle, shape)
    if swizzle:
        row = shape[inner] * dtype.bytes
        require(
            row % swizzle == 0, f"axis {inner} of {t} is {row} bytes, no multiple of its swizzle"
        )
    return t


@op(Family.PLACE, levels=HARDWARE)
def shared_slot(s: Shared, *index: Scalar) -> Shared:
    """One slot of an allocation: an i32 index for every lead axis."""
    require(len(index) == len(s.lead), f"{s} takes {len(s.lead)} slot indices, got {len(index)}")
    return replace(s, lead=())


@op(Family.PLACE, levels=HARDWARE)
def shared_slice(s: Shared, *block: Scalar, shape: tuple[int, ...]) -> Shared:
    """The part of a slot that starts at block[i]·shape[i] on each axis i (i32 operands).

    A cut of the inner axis falls on whole panels, one of another axis on multiples of 8 rows (those of a
    batch counted), so that the swizzle pattern of the part is that of the whole.
    """
    require(not s.lead, f"slice a slot, not {s}")
    require(len(block) == len(shape) == len(s.shape), f"slice {shape} of {s}")
    for axis, (n, m) in enumerate(zip(shape, s.shape, strict=True)):
        require(m % n == 0, f"{n} does not divide axis {axis} of {s}")
        if n != m and s.swizzle:
            below = (x for a, x in enumerate(s.box) if axis < a != s.inner)
            unit = (
                s.swizzle // s.dtype.bytes
                if axis == s.inner
                else 8 // math.gcd(8, math.prod(below))
            )
            require(n % unit == 0, f"a slice of axis {axis} of {s} must be a multiple of {unit}")
    return replace(s, lead=(), shape=shape)


@op(Family.PLACE, levels=HARDWARE)
def shared_transpose(s: Shared, *, perm: tuple[int, ...]) -> Shared:
    """The same bytes with axes permuted: axis i of the result is axis perm[i] of s.  Its rows keep their
    order: all axes but the inner one follow each other as before."""
    require(sorted(perm) == list(range(len(s.shape))), f"{perm} permutes no axes of {s}")
    rows = [p for p in perm if p != s.inner]
    require(rows == sorted(rows), f"{perm} puts the rows of {s} in another order", "transpose-rows")
    shape, box = (tuple(t[p] for p in perm) for t in (s.shape, s.box))
    return replace(s, shape=shape, inner=perm.index(s.inner), box=box)


PARTS = frozenset((shared_slot, shared_slice, shared_transpose))  # views of shared memory


@op(Family.SHARED, levels=HARDWARE, effect=Effect.READ)
def shared_load(s: Shared, *, layout: object = None) -> Tile:
    """A slot (or part) into registers, by ordinary loads (or ldmatrix)."""
    require(not s.lead, f"load a slot, not {s}")
    return Tile(s.shape, s.dtype, layout)


@op(Family.SHARED, levels=HARDWARE, effect=Effect.WRITE)
def shared_store(s: Shared, value: Tile) -> None:
    """Registers into a slot (or part), by ordinary stores (or stmatrix): the generic proxy."""
    require(not s.lead, f"store into a slot, not {s}")
    require(s.shape == value.shape and s.dtype == value.dtype, f"store of {value} into {s}")


ATOMICS = ("add", "max", "min", "xchg", "cas")


def _fits(s: Shared, value: Tile, index: Type | None, axis: int | None) -> None:
    """Has a tile one element for each of a slot, or, along `axis`, for each index?"""
    require(not s.lead and not s.peer, f"combine elements of a slot of this CTA, not {s}")
    require(value.dtype == s.dtype, f"elements of {value} for {s}")
    if axis is None:
        require(value.shape == s.shape, f"elements of {value} for {s}")
        return
    require(0 <= axis < len(s.shape), f"{s} has no axis {axis}")
    others = len(value.shape) == len(s.shape) and all(
        value.shape[a] == n for a, n in enumerate(s.shape) if a != axis
    )
    require(others, f"indices along axis {axis} of {s} for {value}")
    fits = isinstance(index, Tile) and index.shape == value.shape and index.dtype == i32
    require(fits, f"indices of {value} are as many i32, not {index}")


@op(Family.SHARED, levels=HARDWARE, effect=Effect.READ | Effect.WRITE, runs=Runs.ALL)
def shared_atomic(
    s: Shared,
    value: Tile,
    *rest: Type,
    fn: str,
    axis: int | None = None,
    sem: str = "relaxed",
) -> Tile:
    """Combines each element of value into one of a slot (or part), atomically (fn in add, max, min, xchg);
    gives the old ones.  fn cas: value replaces what is equal to the one operand of rest.

    Without `axis` an element goes where it is in the tile; with it rest is a tile of indices along that axis,
    and what is outside the slot is dropped (its old element is 0).  sem: what it orders of the accesses of
    the thread that does it, as of `atomic`."""
    require(fn in ATOMICS, f"an atomic of shared memory is {', '.join(ATOMICS)}, not {fn}")
    require(sem in ORDERS, f"an atomic is {', '.join(ORDERS)}, not {sem}", "atomic-order")
    require(s.dtype.bits in (32, 64), f"atomics of shared memory have 32 bits or 64, not {s.dtype}")
    _fits(s, value, rest[0] if rest else None, axis)
    if fn == "cas":
        require(axis is None and rest == (value,), f"cas compares {value} with one operand like it")
    else:
        require(len(rest) == (axis is not None), f"atomic of {value} with {rest}")
    return value


@op(Family.SHARED, levels=HARDWARE, effect=Effect.WRITE, runs=Runs.ALL)
def shared_scatter(s: Shared, value: Tile, index: Tile, *, axis: int) -> None:
    """Each element of value into the slot (or part) at its index along `axis`, by ordinary stores; what is
    outside is dropped.  Which of several for one element stays is open."""
    _fits(s, value, index, axis)


def _is_number(s: Shared) -> None:
    require(
        not s.lead and math.prod(s.shape) == 1, f"a number lies in a slot of one element, not {s}"
    )
    bits = (32,) if s.peer else (32, 64)
    require(s.dtype.bits in bits, f"numbers in shared memory have 32 bits or 64, not {s.dtype}")


@op(Family.SHARED, levels=HARDWARE, effect=Effect.READ)
def shared_get(s: Shared) -> Scalar:
    """The number in a slot of one element, by an ordinary load of every executing thread."""
    _is_number(s)
    return Scalar(s.dtype)


@op(Family.SHARED, levels=HARDWARE, effect=Effect.WRITE, runs=Runs.ONE)
def shared_put(s: Shared, value: Scalar) -> None:
    """A number into a slot of one element, by an ordinary store of one thread (inside elect)."""
    _is_number(s)
    require(value == Scalar(s.dtype), f"a number of {value} for {s}")


@op(Family.SHARED, levels={Level.PLACED}, effect=Effect.READ | Effect.WRITE)
def exchange(
    s: Shared, *, guarded: bool = False, twice: bool = False, id: int | None = None
) -> None:
    """The way on which elements go from warp to warp in the op that follows (a conversion, a reduction, a
    scan): all threads of the replica write to these bytes, meet at a barrier, and read them.  guarded: they
    meet before they write as well, as some may still read there what an exchange before left.  twice: they
    write what they made of it there as well, where nothing was, meet again, and read that.  id: as of
    group_sync."""
    require(not s.lead and not s.peer, f"an exchange goes through a slot, not {s}")


@op(Family.FENCE, levels=HARDWARE, effect=Effect.SYNC)
def fence_async(*, space: str = "shared", scope: str = "cta") -> None:
    """fence.proxy.async by every executing thread: its generic accesses to memory of this space ('shared' or
    'global') so far, and those it has observed, are ordered with later accesses of the async proxy (TMA,
    wgmma).  scope: of 'shared' memory that of the CTA, or of all CTAs of the 'cluster' (which `place_fences`
    says where it matters)."""
    require(space in ("shared", "global"), f"a fence of shared or global memory, not {space}")
    require(scope in ("cta", "cluster"), f"a fence of the CTA or the cluster, not {scope}")


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def group_sync(*, scope: str, id: int | None = None, memory: bool = False) -> None:
    """bar.sync of all threads of the 'replica', or of all replicas of the 'task', or of the 'cta'.

    memory: it stands here for the access to global memory that follows alone, where others may load or store
    the same elements.

    id: from PLACED on the number of the barrier, of replicas that of the first, which the others' follow; 0
    is that of all threads of the CTA; a replica of one warp needs none (bar.warp.sync)."""
    require(scope in ("replica", "task", "cta"), f"unknown scope {scope}")


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def named_barrier(*index: Scalar, id: int, threads: int, arrive: bool, n: int = 1) -> None:
    """bar.sync (arrive=False) or bar.arrive (True) of barrier `id` (1..15) with `threads` expected.

    With an operand, an i32 below n, of barrier id + index."""
    require(id >= 1 and id + n <= 16, f"named barriers are 1 to 15, not {id} to {id + n - 1}")
    require(len(index) <= 1 and all(i == Scalar(i32) for i in index), "the index is an i32")
    require(bool(index) or n == 1, "several named barriers need an index")
    require(threads % 32 == 0, f"a named barrier counts whole warps, not {threads} threads")


@op(Family.ISSUE, levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE, runs=Runs.ALL)
def cp_async(source: Type, dst: Shared, *rest: Type, bytes: int, unroll: int | None = None) -> None:
    """Fills a slot from global memory, in pieces of `bytes` (4, 8 or 16; 0 until a script's alignment is
    known); each thread issues its own.  They are there for the thread once it waited for their group
    (cp_async_wait), or for the mbarrier of cp_async_arrive; for others after a barrier behind that (PTX ISA,
    cp.async: before, no copy is ordered with another one).

    From a view: the box of dst's shape at offsets `rest`; out of bounds zeros.  From a tile of pointers of
    dst's shape: the elements at them, zeros where the mask (`rest`, may be left out) is false.  Then along
    dst's inner axis each aligned group of `bytes` is adjacent in memory, starts at a multiple of its size,
    and is masked alike.

    unroll: the pieces of a box that a thread issues in a row; more are a loop (None: no loop, all in a row).
    There is no cache policy: ptxas (of CUDA 13.1 to 13.5) gives the policy of cp.async a wrong register
    where the address has a uniform part, which is an illegal instruction on the card (seen on an H200)."""
    require(bytes in (0, 4, 8, 16), f"cp.async copies 4, 8 or 16 bytes, not {bytes}")
    fits = not dst.lead and not dst.peer and is_source(source, rest, dst.shape, dst.dtype)
    require(fits, f"cp_async of {source} into {dst}")


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def cp_async_commit() -> None:
    """cp.async.commit_group by every thread: closes the group of its cp_asyncs so far that are in none; a
    group may be empty."""


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def cp_async_wait(*, pending: int) -> None:
    """cp.async.wait_group: until at most `pending` of the thread's latest groups of cp_asyncs are going on.
    What the others wrote this thread sees, and no other one before a barrier; of other accesses it orders
    none (PTX ISA, cp.async.wait_group)."""
    require(pending >= 0, "pending is not negative")


@op(Family.OUTPUT, levels={Level.PLACED}, effect=Effect.SYNC)
def stamp(buffer: Pointer, program: Scalar, *index: Scalar, site: int, capacity: int) -> None:
    """Writes down that the replica was here, and when; its elected thread does, in one program of the launch.

    A record is two u32: site | index << 16, and %clock, the SM's cycle counter (PTX ISA, special registers).
    Each replica of each task of each CTA has `capacity` records (a power of two) of the buffer, and fills
    them downward from the last; what comes when only the first is left is lost.  index: which barrier of
    an array.  Only passes/placed/instrument.py makes these, for measured timelines; elsewhere it means
    nothing.
    """
    require(buffer == Pointer(u32) and program == Scalar(i32), f"stamps of {program} in {buffer}")
    require(len(index) <= 1 and all(i == Scalar(i32) for i in index), "the index is an i32")
    require(0 < site < 1 << 16, f"a site is a number of 16 bits, not {site}")
    require(capacity & (capacity - 1) == 0, f"a capacity is a power of two, not {capacity}")


PIECEWISE = frozenset((cp_async,))  # copies of which each thread issues some pieces
# How the threads of a task themselves read and write shared memory, each at once.
BY_ELEMENT = (shared_atomic, shared_scatter)
ORDINARY = (shared_load, shared_store, shared_get, shared_put, *BY_ELEMENT)
