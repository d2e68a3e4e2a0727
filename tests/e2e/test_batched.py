"""GEMMs over a batch: the offset of a batch is an axis of the view in front of the tile's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.ir.core import walk
from warploom.ir.ops import hopper
from warploom.runtime.args import fields_of
from warploom.runtime.compiled import CompiledKernel
from warploom.sim.machine import simulate
from warploom.sim.oracle import run

BM, BN, BK = 64, 64, 64


@wl.jit
def batched(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, H: Any,
    stride_az: Any, stride_ah: Any, stride_am: Any, stride_bz: Any, stride_bh: Any, stride_bk: Any,
    stride_cz: Any, stride_ch: Any, stride_cm: Any,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    z, h = tl.program_id(2) // H, tl.program_id(2) % H
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + z * stride_az + h * stride_ah + rm[:, None] * stride_am
    b = b_ptr + z * stride_bz + h * stride_bh + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        cols = k + rk
        x = tl.load(a + cols[None, :], mask=(rm[:, None] < M) & (cols[None, :] < K), other=0.0)
        rows = cols[:, None] * stride_bk
        y = tl.load(b + rows, mask=(cols[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    c = c_ptr + z * stride_cz + h * stride_ch + rm[:, None] * stride_cm + rn[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def operands(pad: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    z, h, m, n, k = 2, 3, 72, 80, 136
    a, b, c = (
        np.zeros((z, h, rows, columns + more), np.float16)[..., :columns]
        for rows, columns, more in ((m, k, pad), (k, n, pad), (m, n, 0))
    )
    a[...], b[...] = rng.integers(-3, 4, a.shape), rng.integers(-3, 4, b.shape)
    strides = (s // x.itemsize for x in (a, b, c) for s in x.strides[:3])
    return a, b, c, m, n, k, h, *strides


def compiled(args: tuple[Any, ...], **knobs: Any) -> CompiledKernel:
    return batched.compile_for(*args, grid=(2, 2, 6), BM=BM, BN=BN, BK=BK, **knobs)


@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize("pad", [0, 1])
def test_batches_and_heads(groups: int, pad: int) -> None:
    args = operands(pad)
    kernel = compiled(args, num_consumer_groups=groups)
    assert kernel.resources.problems() == ()
    maps = [o.result.type for o in walk(kernel.placed.body) if o.kind is hopper.tensor_map]
    assert [m.extra for m in maps] == [2] * (1 if pad else 3)  # type: ignore[attr-defined]
    assert ("tma_load_4d" in kernel.cuda) == (not pad)
    expected = (args[0].astype(np.float32) @ args[1].astype(np.float32)).astype(np.float16)
    for go in (run, simulate):
        func = kernel.lowered.tile if go is run else kernel.placed
        found = np.full_like(args[2], np.nan)
        values = [f.on_host for x in (*args[:2], found, *args[3:]) for f in fields_of("", x)]
        go(func, values, (2, 2, 6))  # type: ignore[operator]
        assert np.array_equal(found, expected)


def test_the_host_describes_batches_as_outer_dimensions() -> None:
    args = operands()
    kernel = compiled(args)
    values = (1 << 32, 1 << 33, 1 << 34, *args[3:])
    (base, extents, strides), *_ = kernel.binder(values)[1]
    assert base == 1 << 32 and extents[:2] == (136, 72)
    assert strides == (272, *sorted(strides[1:])) and set(strides[1:]) == {72 * 272, 3 * 72 * 272}
    big = list(values)
    big[7] = 2**31 - 64  # elements from batch to batch: bytes take more than 32 bits
    assert 2 * big[7] in kernel.binder(tuple(big))[1][0][2]
