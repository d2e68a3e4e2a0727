"""The old values that an atomic gives, where several threads hold the same elements of its tile."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.pairwise import diagonals
from warploom.check import Verdict
from warploom.ir.ops import smem, tile

DTYPES = {"i16": np.int16, "u64": np.uint64, "i32": np.int32, "f32": np.float32, "f64": np.float64,
          "f16": np.float16, "bf16": ml_dtypes.bfloat16}  # fmt: skip
CASES = [(d, f) for d in DTYPES for f in ("add", "cas", "xchg")
         if f == "cas" or (d != "i16" and (f == "add" or d not in ("f16", "bf16")))]  # fmt: skip


@wl.jit
def each(c_ptr, o_ptr, n, B: tl.constexpr, FN: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, B)
    new = (i + 5).to(c_ptr.dtype.element_ty)
    if FN == "add":
        old = tl.atomic_add(c_ptr + i, new, mask=i < n)
    elif FN == "cas":
        old = tl.atomic_cas(c_ptr + i, (i // 2 * 2).to(c_ptr.dtype.element_ty), new)
    else:
        old = tl.atomic_xchg(c_ptr + i, new, mask=i < n)
    tl.store(o_ptr + i, old)


def expected(c: Any, n: int, fn: str) -> tuple[Any, Any]:
    """(memory after, old values)"""
    i = np.arange(len(c))
    new = (i + 5).astype(c.dtype)
    done = c == i // 2 * 2 if fn == "cas" else i < n
    after = np.where(done, c + new if fn == "add" else new, c)
    return after, c if fn == "cas" else np.where(done, c, np.zeros_like(c))


def both(kernel: Any, args: list[Any], **how: Any) -> tuple[list[list[Any]], Any]:
    """The arrays as a run in order leaves them, then as the simulator does; and what was compiled."""
    compiled = kernel.compile_for(*args, grid=(1,), **how)
    assert compiled.cubin
    runs = []
    for run in (kernel[(1,)], None):
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        if run is None:
            compiled.simulate(*given, grid=(1,), seed=1)
        else:
            run(*given, **how)
        runs.append([a for a in given if isinstance(a, np.ndarray)])
    return runs, compiled


BLOCKS = [(1, 4), (16, 1), (24, 4), (8, 4), (32, 8)]  # and warps, of which two are taken


@pytest.mark.parametrize(("case", "shape"), diagonals(5, CASES, BLOCKS), ids=str)
def test_all_that_hold_an_element_get_its_old_value(
    case: tuple[str, str], shape: tuple[int, int]
) -> None:
    (dtype, fn), (block, warps) = case, shape
    c = np.arange(block).astype(DTYPES[dtype])
    n = block - block // 4
    args = [c, np.full(block, 99, c.dtype), n]
    runs, compiled = both(each, args, B=block, FN=fn, num_warps=warps)
    for memory, old in runs:
        after, found = expected(c, n, fn)
        np.testing.assert_array_equal(memory, after)
        np.testing.assert_array_equal(old, found)
    placed = compiled.lowered.placed.body.by_kind
    assert len(placed[tile.agree]) == len(placed[smem.exchange]) == 1


def test_no_exchange_where_nobody_shares_or_reads() -> None:
    c = np.arange(256, dtype=np.int32)
    whole = each.compile_for(c, c.copy(), 256, grid=(1,), B=256, FN="add", num_warps=4)
    assert not whole.lowered.placed.body.by_kind.get(smem.exchange)

    @wl.jit
    def unread(c_ptr):  # type: ignore[no-untyped-def]
        tl.atomic_add(c_ptr + tl.arange(0, 16), 1)

    by_kind = unread.compile_for(c, grid=(1,)).lowered.placed.body.by_kind
    assert tile.atomic in by_kind and tile.agree not in by_kind


@wl.jit
def counted_product(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, c_ptr, counts, o_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    T: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptr + m[:, None] * K + (step * BK + k)[None, :])
        b = tl.load(b_ptr + (step * BK + k)[:, None] + n[None, :] * K)
        acc = tl.dot(a, b, acc)
    t = tl.arange(0, T)
    old = tl.atomic_add(counts + t, 2)
    tl.store(o_ptr + t, old)
    tl.store(c_ptr + m[:, None] * BN + n[None, :], acc + tl.sum(old, 0).to(tl.float32))


@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize("block", [1, 16])
def test_beside_a_product(block: int, groups: int) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((64, 128)).astype(ml_dtypes.bfloat16) for _ in range(2))
    counts = np.arange(block, dtype=np.int32)
    args = [a, b, np.zeros((64, 64), np.float32), counts, np.zeros(block, np.int32), 128]
    runs, compiled = both(
        counted_product, args, BM=64, BN=64, BK=64, T=block, num_consumer_groups=groups
    )
    exact = a.astype(float) @ b.astype(float).T + counts.sum()
    for _, _, c, after, old in runs:
        np.testing.assert_array_equal(old, counts)
        np.testing.assert_array_equal(after, counts + 2)
        np.testing.assert_allclose(c, exact, atol=1e-3)
    assert compiled.check().verdict is Verdict.PROVED


@wl.jit
def locked(lock, total, B: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program adds one to every element, under a lock that is a tile of one element."""
    one = tl.arange(0, 1)
    while tl.sum(tl.atomic_cas(lock + one, 0, 1), 0) == 1:
        pass
    i = tl.arange(0, B)
    tl.store(total + i, tl.load(total + i, volatile=True) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_loop_that_asks_again_is_the_same_for_all_threads() -> None:
    total = np.zeros(64, np.float32)
    args = (np.zeros(1, np.int32), total)
    compiled = locked.compile_for(*args, grid=(3,), B=64, num_warps=4)
    assert compiled.cubin
    compiled.simulate(*args, grid=(3,), seed=2)
    assert (total == 3).all()
