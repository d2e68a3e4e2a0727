"""Matrix products that read shared memory: those of the tensor cores that run beside the threads, wgmma
(outside elect; the replica is one warp group), and the threads' own, fma.

Semantics follow the PTX ISA, wgmma.mma_async and fma.
"""

from __future__ import annotations

from warploom.ir.core import HARDWARE, Effect, Family, Op, RuleError, Runs, Type, op, require
from warploom.ir.ops.tile import dot
from warploom.ir.types import DType, InFlight, Scalar, Shared, Tile, accumulator, f32, i1, i32


@op(Family.ACCUMULATOR, levels=HARDWARE)
def in_flight(t: Tile) -> InFlight:
    """A tile as the start of an accumulation chain (no instruction)."""
    require(t.dtype in (f32, i32), f"wgmma accumulates in f32 or i32, not {t.dtype}")
    return InFlight(t)


@op(Family.ACCUMULATOR, levels=HARDWARE)
def no_acc(*, shape: tuple[int, ...], dtype: DType = f32, layout: object = None) -> InFlight:
    """An accumulator without contents (no instruction): the first wgmma on it has use_acc false.  Waiting
    for it where no wgmma wrote it gives undefined elements, which a select must discard."""
    require(dtype in (f32, i32), f"wgmma accumulates in f32 or i32, not {dtype}")
    return InFlight(Tile(shape, dtype, layout))


@op(Family.FENCE, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def wgmma_fence() -> None:
    """wgmma.fence: orders register accesses before the following wgmmas; needed before the first, and
    whenever the accumulator or a register operand was written by other instructions."""


def only_k_major(dtype: DType) -> bool:
    """Do wgmma's operands of this type lie along K in shared memory?  16-bit ones may lie along M or N as
    well (PTX ISA, "wgmma.mma_async", imm-trans-a and imm-trans-b)."""
    return dtype.bits != 16


@op(Family.ISSUE, levels=HARDWARE, effect=Effect.SYNC | Effect.READ)
def wgmma(a: Type, b: Shared, acc: InFlight, use_acc: Scalar, *, fenced: bool = False) -> InFlight:
    """Issues acc ← a·b + (acc where use_acc, else 0), asynchronously: a chain of wgmma.mma_async over K.

    a: Shared (m, k) or a Tile (m, k) in registers, pinned until the wait; b: Shared (k, n); m a multiple
    of 64.  f16 and bf16 in either order (`inner`), others K-major only.  f32 counts as tf32: the lowest 13
    bits of each element are ignored.  i8 and u8, in any pair, accumulate in i32, which wraps; other operands
    in f32.  (PTX ISA, "wgmma.mma_async".)  fenced: a wgmma_fence stands between the words that a register
    operand of integers goes to and the instruction (`place_fences`).
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


def packs(o: Op) -> bool:
    """Is it a wgmma of integers in registers?  They go to words where it is issued."""
    return o.kind is wgmma and isinstance(t := o.operands[0].type, Tile) and t.dtype.is_int


ISSUING = frozenset((wgmma, wgmma_fence))  # a run of these goes on without a stop


def is_issued(o: Op) -> bool:
    """Is o a product that runs beside the threads until they wait for it?"""
    return o.kind.family is Family.ISSUE and any(isinstance(v.type, InFlight) for v in o.results)


@op(Family.SHARED, levels=HARDWARE, effect=Effect.READ)
def fma(a: Shared, b: Shared, acc: Tile, *, unroll: int | None = None) -> Tile:
    """acc + a @ b of f32 by the threads' own multiply-adds (PTX ISA, fma.rn), which read a (m, k) and
    b (k, n) where they lie, in any order; of three axes each, that of every batch.  Each element is acc, to
    which the products are added in the order of K, each with one rounding.  unroll: from PLACED on, how many
    of K are written in a row."""
    for s in (a, b):
        require(not s.lead and not s.peer, f"fma multiplies a slot of the CTA's own, not {s}")
        require(s.dtype == f32, f"fma multiplies f32, not {s.dtype}", "dot-dtype")
    out: Tile = dot.rule(Tile(a.shape, f32), Tile(b.shape, f32), acc, ieee=True)
    return out


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def wgmma_commit() -> None:
    """wgmma.commit_group: closes the group of wgmmas issued so far."""


PRODUCTS = frozenset((wgmma, fma, dot))  # what computes at WARP, whichever unit does it
GROUPING = frozenset((wgmma_fence, wgmma_commit))  # what begins and ends a group of products


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def wgmma_wait(*acc: InFlight, pending: int) -> tuple[Tile, ...]:
    """wgmma.wait_group: until at most `pending` of the latest groups are unfinished.  Its operands must
    be finished by then; they come back as tiles.  With no operands it only orders (reads of older
    groups' shared operands are over)."""
    require(pending >= 0, "pending is not negative")
    return tuple(a.tile for a in acc)
