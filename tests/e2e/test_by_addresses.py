"""Products whose operands' addresses come from memory: a load may read what an earlier tile stored, so rings bring
operands within each run of the loop over K, which stores nothing, after a barrier in front of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.orders import ORDERS, default_orders
from warploom.check import Verdict
from warploom.ir.core import Op, walk
from warploom.ir.ops import control, smem, tma
from warploom.sim.oracle import run


@wl.jit
def by_pointers(addresses, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    half = tl.pointer_type(tl.float16)
    for g in range(groups):
        m, n = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        t = tl.program_id(0)
        while t < tl.cdiv(m, BM) * tiles_n:
            a = tl.load(addresses + g * 3).to(half)
            b = tl.load(addresses + g * 3 + 1).to(half)
            c = tl.load(addresses + g * 3 + 2).to(half)
            i = t // tiles_n * BM + tl.arange(0, BM)
            j = t % tiles_n * BN + tl.arange(0, BN)
            z = tl.arange(0, BK)
            a_ptrs, b_ptrs = a + i[:, None] * k + z[None, :], b + z[:, None] * n + j[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(tl.cdiv(k, BK)):
                tl.multiple_of(a_ptrs, [1, 16])
                tl.multiple_of(b_ptrs, [1, 16])
                acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
                a_ptrs += BK
                b_ptrs += BK * n
            tl.store(c + i[:, None] * n + j[None, :], acc.to(tl.float16))
            t += tl.num_programs(0)


@wl.jit
def by_descriptors(addresses, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    half = tl.pointer_type(tl.float16)
    for g in range(groups):
        m, n = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        a = tl.make_tensor_descriptor(tl.load(addresses + g * 3).to(half), [m, k], [k, 1], [BM, BK])
        b = tl.make_tensor_descriptor(
            tl.load(addresses + g * 3 + 1).to(half), [k, n], [n, 1], [BK, BN]
        )
        c = tl.make_tensor_descriptor(
            tl.load(addresses + g * 3 + 2).to(half), [m, n], [n, 1], [BM, BN]
        )
        t = tl.program_id(0)
        while t < tl.cdiv(m, BM) * tiles_n:
            row, col = t // tiles_n * BM, t % tiles_n * BN
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for z in range(tl.cdiv(k, BK)):
                acc = tl.dot(a.load([row, z * BK]), b.load([z * BK, col]), acc)
            c.store([row, col], acc.to(tl.float16))
            t += tl.num_programs(0)


META = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3}


class Chain:
    """Each product's left operand is the result of the one before."""

    def __init__(self, sizes: list[tuple[int, int, int]]) -> None:
        random = np.random.default_rng(3)

        def aligned(rows: int, columns: int) -> Any:
            owner = np.zeros(rows * columns + 64, np.float16)
            at = -owner.ctypes.data % 128 // 2
            return owner[at : at + rows * columns].reshape(rows, columns)

        self.left = [aligned(sizes[0][0], sizes[0][2])]
        self.right = [aligned(k, n) for _, n, k in sizes]
        for x in (*self.left, *self.right):
            x[:] = random.integers(-1, 2, x.shape) * (random.random(x.shape) < 0.3)
        self.left += [aligned(m, n) for m, n, _ in sizes]
        held = zip(self.left, self.right, self.left[1:], strict=False)
        self.addresses = np.array([[x.ctypes.data for x in xs] for xs in held], np.int64).ravel()
        self.args = [self.addresses, np.array(sizes, np.int32).ravel(), len(sizes)]

    def wanted(self) -> list[Any]:
        found = [self.left[0].astype(np.float32)]
        for b in self.right:
            found.append((found[-1] @ b.astype(np.float32)).astype(np.float16).astype(np.float32))
        return found[1:]


def fills(o: Op) -> bool:
    return any(x.kind in (smem.cp_async, tma.tma_load) for x in o.all_ops)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [by_pointers, by_descriptors])
def test_a_product_reads_what_an_earlier_tile_stored(kernel: Any, groups: int) -> None:
    """With two groups also what the other one stored: both meet before their loads."""
    m = 64 * groups
    sizes = [(m, 128, 96), (m, 64, 128), (m, 64, 64)]
    meta = META | {"BM": m, "num_warps": 4 * groups}
    compiled = kernel.compile_for(*Chain(sizes).args, grid=(1,), **meta)
    assert compiled.plan.rings and [n for _, n in compiled.schedule.prefetched] == [7]
    assert compiled.schedule.split.count == groups
    for order in ("", *default_orders(ORDERS)):
        chain = Chain(sizes)
        if order:
            compiled.simulate(*chain.args, grid=(1,), order=order, seed=1)
        else:
            run(compiled.lowered.written, chain.args, (1,))
        for i, (x, y) in enumerate(zip(chain.left[1:], chain.wanted(), strict=True)):
            np.testing.assert_array_equal(x, y, f"product {i}, {order or 'the oracle'}")


@pytest.mark.parametrize("kernel", [by_pointers, by_descriptors])
def test_copies_begin_after_a_barrier_before_their_loop(kernel: Any) -> None:
    """And are over before one that stands before the store.  TMA sees what threads stored by their fences."""
    compiled = kernel.compile_for(*Chain([(64, 64, 64)]).args, grid=(1,), **META)
    body = compiled.lowered.placed.body
    described = kernel is by_descriptors
    assert any(o.kind is (tma.tma_load if described else smem.cp_async) for o in walk(body))
    loops = (o for o in walk(body) if o.kind in control.LOOPS)
    (ops,) = (o.regions[-1].ops for o in loops if any(x.stores for x in o.regions[-1].ops))
    first = next(i for i, o in enumerate(ops) if fills(o))
    last = max(i for i, o in enumerate(ops) if fills(o))
    store = next(i for i, o in enumerate(ops) if o.stores)
    syncs = [i for i, o in enumerate(ops) if o.kind is smem.group_sync]
    assert any(i < first for i in syncs) and any(last < i < store for i in syncs)
    if described:
        before = [o for o in ops[:first] if o.kind in (smem.fence_async, smem.group_sync)]
        assert [o.kind for o in before[:2]] == [smem.fence_async, smem.group_sync]
        assert before[0].attrs["space"] == "global"


def test_the_checker_finds_nothing() -> None:
    compiled = by_pointers.compile_for(*Chain([(64, 64, 64)]).args, grid=(1,), **META)
    report = compiled.check()
    assert report.verdict is not Verdict.BROKEN, str(report)


def test_slots_in_shared_memory_that_nobody_else_would_use() -> None:
    """Of a launch of one program a multiprocessor more than of one of many; never more than are asked for."""

    def depth(grid: int, **knobs: int) -> int:
        args = Chain([(64, 64, 64)]).args
        compiled = by_pointers.compile_for(*args, grid=(grid,), **META | knobs)
        assert compiled.plan.by_waves == (not knobs)
        (ring,) = compiled.schedule.channels
        assert dict(compiled.schedule.prefetched).popitem()[1] == ring.depth - 1
        return ring.depth

    assert depth(1) == 8 > depth(5000) >= 3
    assert depth(1, num_stages=2) == 2 and depth(1, num_stages=4) == 4


def test_a_box_that_lies_whole_in_its_array_is_copied_without_masks() -> None:
    args = Chain([(64, 64, 64)]).args
    text = by_descriptors.compile_for(*args, grid=(1,), **META, tma=False).cuda
    copies = [line.strip() for line in text.splitlines() if "cp_async<16>(" in line]
    whole = [line for line in copies if line.endswith(", 16);")]
    assert 2 * len(whole) == len(copies) > 0


def test_a_box_that_lies_whole_in_its_array_is_stored_without_masks() -> None:
    """Nothing says where rows of C end, but a tile is mostly whole."""
    text = by_descriptors.compile_for(*Chain([(64, 64, 64)]).args, grid=(1,), **META).cuda
    stores = [
        line.strip() for line in text.splitlines() if re.search(r"store_\w+(<2>)?\(row", line)
    ]
    plain = [line for line in stores if line.startswith("store_global32(")]
    masked = [line for line in stores if line.startswith("if (in_row")]
    assert len(plain) == len(masked) == 16 and len(stores) == 32
