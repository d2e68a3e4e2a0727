"""Hopper's asynchronous machinery: shared memory, mbarriers, TMA, cp.async, wgmma, fences.

Semantics follow the PTX ISA; each op says what it stands for.  "The replica" is the threads that run
the enclosing task region (all of them outside `elect`, one thread inside).
"""

from __future__ import annotations

import math
from dataclasses import replace

from warploom.ir.core import HARDWARE, Effect, Level, RuleError, Type, op, require
from warploom.ir.ops.tile import check_policy, is_source
from warploom.ir.types import (
    Barriers,
    DType,
    InFlight,
    Pointer,
    Scalar,
    Shared,
    TensorMap,
    Tile,
    View,
    accumulator,
    f32,
    i1,
    i32,
    u32,
)

SWIZZLES = (0, 32, 64, 128)
PROMOTIONS = (64, 128, 256)
SCOPES = ("cta", "cluster")

_WHOLE, _FLOAT16 = ("i32", "u32", "u64"), ("f16", "bf16")
_BITS = ("i32", "u32", "i64", "u64")
# Element types of TMA's reductions (PTX ISA, "cp.reduce.async.bulk.tensor").
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": (*_WHOLE, "f32", *_FLOAT16),
    **dict.fromkeys(("min", "max"), (*_BITS, *_FLOAT16)),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), _BITS),
}


# ---- declarations: before `tasks`


@op(levels=HARDWARE)
def tensor_map(
    v: View,
    *,
    box: tuple[int, ...],
    inner: int,
    swizzle: int,
    promote: int = 256,
    thin: tuple[int, ...] | None = None,
) -> TensorMap:
    """A TMA descriptor of the view, encoded by the host at launch from launch-invariant operands.

    The emitted kernel takes it as a __grid_constant__ parameter.  `box` and `inner` count the tile's axes,
    which are the view's without the `thin` ones (none given: without its first ones); in those the box is
    one element thick.
    promote: bytes (64, 128, 256) that the L2 fetches together along a row (cuTensorMapEncodeTiled).
    """
    if thin is None:
        thin = tuple(range(v.rank - len(box)))
    proper = list(thin) == sorted(set(thin)) and all(0 <= a < v.rank for a in thin)
    require(proper and len(box) + len(thin) == v.rank, f"box {box} on {v}, thin along {thin}")
    require(promote in PROMOTIONS, f"promote is one of {PROMOTIONS} bytes, not {promote}")
    require(swizzle in SWIZZLES, f"swizzle is one of {SWIZZLES} bytes, not {swizzle}")
    return TensorMap(box, v.dtype, inner, swizzle, thin)


@op(levels=HARDWARE)
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
) -> Shared:
    """Shared memory for slots `lead` of tiles `shape`; `offset` in bytes from PLACED on.

    Slots are row-major over lead, Shared.slot_bytes apart (aligned to 1024 bytes where swizzled, to 128
    otherwise).  alias: name of the allocation whose bytes this one reuses.
    """
    require(swizzle in SWIZZLES, f"swizzle is one of {SWIZZLES} bytes, not {swizzle}")
    t = Shared(lead, shape, dtype, inner, swizzle, shape)
    if swizzle:
        row = shape[inner] * dtype.bytes
        require(
            row % swizzle == 0, f"axis {inner} of {t} is {row} bytes, no multiple of its swizzle"
        )
    return t


@op(levels=HARDWARE)
def mbarrier_alloc(*, name: str, n: int, count: int, offset: int | None = None) -> Barriers:
    """n mbarriers that expect `count` arrivals a phase, initialised (with fence.mbarrier_init and a CTA
    barrier) before any task starts."""
    require(count >= 1, f"an mbarrier expects at least one arrival, not {count}")
    return Barriers(n)


# ---- shared memory


@op(levels=HARDWARE)
def shared_slot(s: Shared, *index: Scalar) -> Shared:
    """One slot of an allocation: an i32 index for every lead axis."""
    require(len(index) == len(s.lead), f"{s} takes {len(s.lead)} slot indices, got {len(index)}")
    return replace(s, lead=())


@op(levels=HARDWARE)
def shared_slice(s: Shared, *block: Scalar, shape: tuple[int, ...]) -> Shared:
    """The part of a slot that starts at block[i]·shape[i] on each axis i (i32 operands).

    A cut of the inner axis falls on whole panels, one of another axis on multiples of 8 rows, so that
    the swizzle pattern of the part is that of the whole.
    """
    require(not s.lead, f"slice a slot, not {s}")
    require(len(block) == len(shape) == len(s.shape), f"slice {shape} of {s}")
    for axis, (n, m) in enumerate(zip(shape, s.shape, strict=True)):
        require(m % n == 0, f"{n} does not divide axis {axis} of {s}")
        if n != m and s.swizzle:
            unit = s.swizzle // s.dtype.bytes if axis == s.inner else 8
            require(n % unit == 0, f"a slice of axis {axis} of {s} must be a multiple of {unit}")
    return replace(s, lead=(), shape=shape)


@op(levels=HARDWARE)
def shared_transpose(s: Shared, *, perm: tuple[int, ...]) -> Shared:
    """The same bytes with axes permuted: axis i of the result is axis perm[i] of s."""
    require(sorted(perm) == list(range(len(s.shape))), f"{perm} permutes no axes of {s}")
    shape, box = (tuple(t[p] for p in perm) for t in (s.shape, s.box))
    return replace(s, shape=shape, inner=perm.index(s.inner), box=box)


@op(levels=HARDWARE, effect=Effect.READ)
def shared_load(s: Shared, *, layout: object = None) -> Tile:
    """A slot (or part) into registers, by ordinary loads (or ldmatrix)."""
    require(not s.lead, f"load a slot, not {s}")
    return Tile(s.shape, s.dtype, layout)


@op(levels=HARDWARE, effect=Effect.WRITE)
def shared_store(s: Shared, value: Tile) -> None:
    """Registers into a slot (or part), by ordinary stores (or stmatrix): the generic proxy."""
    require(not s.lead, f"store into a slot, not {s}")
    require(s.shape == value.shape and s.dtype == value.dtype, f"store of {value} into {s}")


def _is_number(s: Shared) -> None:
    require(
        not s.lead and math.prod(s.shape) == 1, f"a number lies in a slot of one element, not {s}"
    )
    bits = (32,) if s.peer else (32, 64)
    require(s.dtype.bits in bits, f"numbers in shared memory have 32 bits or 64, not {s.dtype}")


@op(levels=HARDWARE, effect=Effect.READ)
def shared_get(s: Shared) -> Scalar:
    """The number in a slot of one element, by an ordinary load of every executing thread."""
    _is_number(s)
    return Scalar(s.dtype)


@op(levels=HARDWARE, effect=Effect.WRITE)
def shared_put(s: Shared, value: Scalar) -> None:
    """A number into a slot of one element, by an ordinary store of one thread (inside elect)."""
    _is_number(s)
    require(value == Scalar(s.dtype), f"a number of {value} for {s}")


@op(levels=HARDWARE, effect=Effect.SYNC)
def fence_async(*, space: str = "shared") -> None:
    """fence.proxy.async by every executing thread: its generic accesses to memory of this space ('shared' or
    'global') so far, and those it has observed, are ordered with later accesses of the async proxy (TMA,
    wgmma)."""
    require(space in ("shared", "global"), f"a fence of shared or global memory, not {space}")


@op(levels=HARDWARE, effect=Effect.SYNC)
def group_sync(*, scope: str) -> None:
    """bar.sync of all threads of the 'replica', or of all replicas of the 'task', or of the 'cta'."""
    require(scope in ("replica", "task", "cta"), f"unknown scope {scope}")


@op(levels=HARDWARE, effect=Effect.SYNC)
def named_barrier(*index: Scalar, id: int, threads: int, arrive: bool, n: int = 1) -> None:
    """bar.sync (arrive=False) or bar.arrive (True) of barrier `id` (1..15) with `threads` expected.

    With an operand, an i32 below n, of barrier id + index."""
    require(id >= 1 and id + n <= 16, f"named barriers are 1 to 15, not {id} to {id + n - 1}")
    require(len(index) <= 1 and all(i == Scalar(i32) for i in index), "the index is an i32")
    require(bool(index) or n == 1, "several named barriers need an index")
    require(threads % 32 == 0, f"a named barrier counts whole warps, not {threads} threads")


# ---- mbarriers.  A phase completes when `count` arrivals and all expected bytes are in.


def _barrier(b: Type, *numbers: Type, peer: bool = False) -> None:
    require(isinstance(b, Barriers), f"expected mbarriers, got {b}")
    require(
        peer or not getattr(b, "peer", False), "another CTA's barrier takes arrivals only", "peer"
    )
    require(all(n == Scalar(i32) for n in numbers), "barrier index and phase are i32")


@op(levels=HARDWARE, effect=Effect.SYNC)
def mbarrier_wait(
    b: Barriers, index: Scalar, phase: Scalar, *, sem: str = "acquire", scope: str = "cta"
) -> None:
    """Blocks while the barrier's current phase has parity `phase`: returns once that phase completed.

    mbarrier.try_wait.parity: on a fresh barrier (phase 0 running) a wait for parity 1 passes at once.
    It acquires in `scope`: what other CTAs of the cluster wrote by ordinary stores before their arrivals is
    seen with 'cluster' only.

    sem: 'relaxed', it acquires nothing: what follows comes after the phase for asynchronous operations (TMA
    may write what wgmmas have read; wgmma and TMA may read what TMA brought), but no ordinary access is
    ordered with anything.
    """
    _barrier(b, index, phase)
    require(sem in ("acquire", "relaxed"), f"a wait is acquire or relaxed, not {sem}", "sem")
    require(scope in SCOPES, f"the scope is one of {SCOPES}, not {scope}")


@op(levels=HARDWARE, effect=Effect.SYNC)
def mbarrier_arrive(
    b: Barriers,
    index: Scalar,
    *mask: Scalar,
    by: str = "warp",
    sem: str = "release",
    count: int = 1,
) -> None:
    """mbarrier.arrive: once a 'thread', once a 'warp' (lane 0, after __syncwarp), or 'one' for the whole
    replica (its elected thread; only where the replica was synchronised before).  Inside elect it is one
    arrival whatever `by` says.  With a mask (i32) it is one at b[index] of each CTA of the cluster in it, bit
    r for rank r.

    sem: a 'release' orders what the thread did before, in the CTA (of a peer's barrier, or with a mask, in
    the cluster); 'relaxed' orders asynchronous operations that are over (wgmma's reads), but no ordinary
    accesses.  count: as how many arrivals each of them counts.  All arrivals of one op count in one phase."""
    _barrier(b, index, *mask, peer=not mask)
    require(len(mask) <= 1, "one mask")
    require(1 <= count < 1 << 20, f"an arrival counts 1 to 2**20 - 1 times, not {count}")
    require(by in ("thread", "warp", "one"), f"unknown arrival {by}")
    _release(sem)


@op(levels=HARDWARE, effect=Effect.SYNC)
def mbarrier_expect(b: Barriers, index: Scalar, *, bytes: int, sem: str = "release") -> None:
    """mbarrier.arrive.expect_tx: expects `bytes` more in this phase, then arrives once (inside elect).
    sem: as of mbarrier_arrive."""
    _barrier(b, index, peer=True)
    _release(sem)


def _release(sem: str) -> None:
    require(sem in ("release", "relaxed"), f"an arrival is release or relaxed, not {sem}", "sem")


# ---- TMA (inside elect)


def _fits(m: TensorMap, s: Shared) -> bool:
    """Whether a slot, or a part whose rows are adjacent in each panel, is a box of the map."""
    outer = [a for a, n in enumerate(s.shape) if a != s.inner and n > 1]
    if s.peer or any(s.shape[a] != s.box[a] for a in outer[1:]):
        return False
    box = m.box, m.dtype, m.inner, m.swizzle
    return not s.lead and (s.shape, s.dtype, s.inner, s.swizzle) == box


@op(levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE)
def tma_load(
    m: TensorMap,
    dst: Shared,
    b: Barriers,
    index: Scalar,
    *offsets: Scalar,
    multicast: bool = False,
    cache_policy: str | None = None,
) -> None:
    """cp.async.bulk.tensor global → shared of the box at offsets (i32, the view's axes); elements out of
    bounds are 0.  Its tile_bytes complete on barrier b[index] (complete_tx, counted also for zeros).

    multicast: the last operand is a mask (i32) of CTAs of the cluster, bit r for rank r.  The box goes to the
    same place in each one's shared memory, and its bytes complete on each one's barrier b[index].
    cache_policy: a hint for the L2 (tile.CACHE_POLICIES)."""
    check_policy(cache_policy)
    require(_fits(m, dst), f"tma_load of {m} into {dst}", "tma-shape")
    require(len(offsets) == m.rank + multicast, f"{m} takes {m.rank} offsets")
    _barrier(b, index)


@op(levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE)
def tma_store(
    m: TensorMap,
    src: Shared,
    *offsets: Scalar,
    reduce: str | None = None,
    cache_policy: str | None = None,
) -> None:
    """cp.async.bulk.tensor shared → global, in the executing thread's current bulk group; elements out
    of bounds are dropped, but along the inner axis in whole units of 16 bytes: a unit that holds one
    element in bounds is written whole (seen on an H200).

    reduce: combines each element into global memory (cp.reduce.async.bulk.tensor), atomically one by one,
    for the dtypes of REDUCTIONS; at the end of a row whole units of 16 bytes likewise.  inc: 0 where the old
    value is at least the slot's, else one more; dec: the slot's where the old value is 0 or greater, else one
    less.  cache_policy: a hint for the L2.
    """
    check_policy(cache_policy)
    if reduce is not None:
        known = ", ".join(REDUCTIONS)
        require(reduce in REDUCTIONS, f"TMA reduces by {known}, not {reduce}", "tma-reduce")
        dtypes = REDUCTIONS[reduce]
        require(
            m.dtype.name in dtypes,
            f"TMA has no {reduce} of {m.dtype} (there is one of {', '.join(dtypes)})",
            "tma-reduce",
        )
    require(_fits(m, src), f"tma_store of {src} to {m}")
    require(len(offsets) == m.rank, f"{m} takes {m.rank} offsets")


@op(levels=HARDWARE, effect=Effect.SYNC)
def tma_store_commit() -> None:
    """cp.async.bulk.commit_group: closes the executing thread's bulk group."""


@op(levels=HARDWARE, effect=Effect.SYNC)
def tma_store_wait(*, pending: int, read: bool = True) -> None:
    """cp.async.bulk.wait_group(.read): until at most `pending` of the thread's latest bulk groups have
    not finished (reading their source, where read)."""
    require(pending >= 0, "pending is not negative")


# ---- cp.async (outside elect: all threads of the replica share the copy)


@op(levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE)
def cp_async(source: Type, dst: Shared, *rest: Type, bytes: int) -> None:
    """Fills a slot from global memory, in pieces of `bytes` (4, 8 or 16).

    From a view: the box of dst's shape at offsets `rest`; out of bounds zeros.  From a tile of pointers of
    dst's shape: the elements at them, zeros where the mask (`rest`, may be left out) is false.  Then along
    dst's inner axis each aligned group of `bytes` is adjacent in memory, starts at a multiple of its size,
    and is masked alike.

    There is no cache policy: ptxas (of CUDA 13.1 to 13.5) gives the policy of cp.async a wrong register
    where the address has a uniform part, which is an illegal instruction on the card (seen on an H200)."""
    require(bytes in (4, 8, 16), f"cp.async copies 4, 8 or 16 bytes, not {bytes}")
    fits = not dst.lead and not dst.peer and is_source(source, rest, dst.shape, dst.dtype)
    require(fits, f"cp_async of {source} into {dst}")


@op(levels=HARDWARE, effect=Effect.SYNC)
def cp_async_arrive(b: Barriers, index: Scalar) -> None:
    """cp.async.mbarrier.arrive.noinc by every thread: each arrives when its own copies so far are done."""
    _barrier(b, index)


# ---- wgmma (outside elect; the replica is one warp group)


@op(levels=HARDWARE)
def in_flight(t: Tile) -> InFlight:
    """A tile as the start of an accumulation chain (no instruction)."""
    require(t.dtype in (f32, i32), f"wgmma accumulates in f32 or i32, not {t.dtype}")
    return InFlight(t)


@op(levels=HARDWARE)
def no_acc(*, shape: tuple[int, ...], dtype: DType = f32, layout: object = None) -> InFlight:
    """An accumulator without contents (no instruction): the first wgmma on it has use_acc false.  Waiting
    for it where no wgmma wrote it gives undefined elements, which a select must discard."""
    require(dtype in (f32, i32), f"wgmma accumulates in f32 or i32, not {dtype}")
    return InFlight(Tile(shape, dtype, layout))


@op(levels=HARDWARE, effect=Effect.SYNC)
def wgmma_fence() -> None:
    """wgmma.fence: orders register accesses before the following wgmmas; needed before the first, and
    whenever the accumulator or a register operand was written by other instructions."""


def only_k_major(dtype: DType) -> bool:
    """Do wgmma's operands of this type lie along K in shared memory?  16-bit ones may lie along M or N as
    well (PTX ISA, "wgmma.mma_async", imm-trans-a and imm-trans-b)."""
    return dtype.bits != 16


@op(levels=HARDWARE, effect=Effect.SYNC | Effect.READ)
def wgmma(a: Type, b: Shared, acc: InFlight, use_acc: Scalar) -> InFlight:
    """Issues acc ← a·b + (acc where use_acc, else 0), asynchronously: a chain of wgmma.mma_async over K.

    a: Shared (m, k) or a Tile (m, k) in registers, pinned until the wait; b: Shared (k, n); m a multiple
    of 64.  f16 and bf16 in either order (`inner`), others K-major only.  f32 counts as tf32: the lowest 13
    bits of each element are ignored.  i8 and u8, in any pair, accumulate in i32, which wraps; other operands
    in f32.  (PTX ISA, "wgmma.mma_async".)
    """
    for t in (a, b):
        if isinstance(t, Shared):
            require(not t.lead and len(t.shape) == 2, f"wgmma operand {t}")
            require(not t.peer, "wgmma reads the shared memory of its own CTA", "peer")
    if not isinstance(a, (Shared, Tile)):
        raise RuleError(f"wgmma's a is shared memory or a tile, not {a}")
    (m, k), (k2, n) = a.shape, b.shape
    require(k == k2, f"wgmma operands disagree on K: {a}, {b}", "wgmma-shape")
    require(acc.tile.shape == (m, n), f"wgmma of {a}, {b} into {acc}", "wgmma-shape")
    require(m % 64 == 0, f"wgmma needs M to be a multiple of 64, got {m}", "wgmma-m")
    require(n % 8 == 0, f"wgmma needs N to be a multiple of 8, got {n}", "wgmma-n")
    unit = 32 // b.dtype.bytes
    require(k % unit == 0, f"wgmma needs K to be a multiple of {unit}, got {k}", "wgmma-k")
    alike = a.dtype == b.dtype or (a.dtype.bits == b.dtype.bits == 8)
    require(
        alike and a.dtype.is_float == b.dtype.is_float,
        f"wgmma can't multiply {a.dtype} by {b.dtype}",
        "wgmma-dtype",
    )
    sums = accumulator(b.dtype)
    require(
        acc.tile.dtype == sums,
        f"wgmma of {b.dtype} accumulates in {sums}, not {acc.tile.dtype}",
        "wgmma-dtype",
    )
    for s, k_axis in ((a, 1), (b, 0)):
        if isinstance(s, Shared) and only_k_major(s.dtype):
            require(
                s.inner == k_axis,
                f"wgmma operands of {s.dtype} are K-major, {s} is not",
                "wgmma-major",
            )
    require(use_acc == Scalar(i1), "use_acc is a scalar i1")
    return acc


@op(levels=HARDWARE, effect=Effect.SYNC)
def wgmma_commit() -> None:
    """wgmma.commit_group: closes the group of wgmmas issued so far."""


@op(levels=HARDWARE, effect=Effect.SYNC)
def wgmma_wait(*acc: InFlight, pending: int) -> tuple[Tile, ...]:
    """wgmma.wait_group: until at most `pending` of the latest groups are unfinished.  Its operands must
    be finished by then; they come back as tiles.  With no operands it only orders (reads of older
    groups' shared operands are over)."""
    require(pending >= 0, "pending is not negative")
    return tuple(a.tile for a in acc)


@op(levels=HARDWARE, effect=Effect.SYNC)
def hold(*values: Type) -> None:
    """Order in the machine code: what follows stays behind the computation of these tiles and numbers.

    The assembler may move a wgmma_wait up past arithmetic that doesn't need it (seen with ptxas 12.8, 13.0
    and NVRTC 13.5), so the place of a wait amid arithmetic that is to hide it is lost.  Emitted as a store
    that never happens and whose predicate depends on the values; elsewhere it means nothing.  Held by
    habits of the assembler, not by its contract: `runtime/sass.py` counts what stands before a wait.
    """
    require(len(values) > 0, "hold needs a value")


@op(levels=HARDWARE, effect=Effect.SYNC)
def setmaxnreg(*, registers: int, action: str = "") -> None:
    """From here on each thread of the replica may use so many registers: all of it executes it together.

    Less than it has goes back to the CTA's pool ("dec"); for more ("inc") each warp waits until the pool has
    enough.  The pool is empty at first: all that the CTA was launched with is its warps' own, and what a warp
    has when it ends is nobody's.  Between two of them the warps of a warp group synchronise; otherwise
    setmaxnreg orders nothing.  action: "inc" or "dec" where the source says which it is ("" else).
    (PTX ISA, "setmaxnreg".)
    """
    require(action in ("", "inc", "dec"), f"setmaxnreg is inc or dec, not {action}", "action")


# ---- measuring


@op(levels={Level.PLACED}, effect=Effect.SYNC)
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
