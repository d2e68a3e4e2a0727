"""GEMMs over a batch: the offset of a batch is an axis of the view in front of the tile's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.gemms import UNIFORM, UNIFORM_TWO, WS, WS_ONE
from tests.pairwise import diagonals
from warploom.ir.core import walk
from warploom.ir.ops import tma
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
@pytest.mark.each(3)
def test_batches_and_heads(groups: int, pad: int) -> None:
    args = operands(pad)
    kernel = compiled(args, num_consumer_groups=groups)
    assert kernel.resources.problems() == ()
    maps = [o.result.type for o in walk(kernel.placed.body) if o.kind is tma.tensor_map]
    assert [m.thin for m in maps] == [(0, 1)] * (1 if pad else 3)  # type: ignore[attr-defined]
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


# ---- by descriptors and block pointers: boxes with axes of size 1


BLOCKS = {"BM": BM, "BN": BN, "BK": BK}


def arrays(pad_a: int, pad_b: int) -> list[Any]:
    """A, B, C of 2 batches of 3 heads, sizes, and the strides of the leading three axes of each."""
    rng = np.random.default_rng(0)
    z, h, m, n, k = 2, 3, 72, 80, 136
    a, b = (
        road.filled(rng.integers(-3, 4, s).astype(np.float32), np.float16, pad=pad)
        for s, pad in (((z, h, m, k), pad_a), ((z, h, k, n), pad_b))
    )
    c = road.array((z, h, m, n), np.float16)
    strides = [s // x.itemsize for x in (a, b, c) for s in x.strides[:3]]
    return [a, b, c, m, n, k, z, h, *strides]


def product(args: list[Any]) -> Any:
    return (args[0].astype(np.float64) @ args[1].astype(np.float64)).astype(np.float16)


@wl.jit
def described(
    a_desc: Any, b_desc: Any, c_desc: Any, K: Any,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr,
) -> None:  # fmt: skip
    z, m, n = tl.program_id(2), tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([z, m, k]).reshape(BM, BK)
        if TRANSPOSED:  # B is stored as its transpose
            b = tl.permute(b_desc.load([z, n, k]), (0, 2, 1)).reshape(BK, BN)
        else:
            b = tl.reshape(b_desc.load([z, k, n]), (BK, BN))
        acc = tl.dot(a, b, acc)
    c_desc.store([z, m, n], acc.to(c_desc.dtype)[None, :, :])


@wl.jit
def made_inside(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, Z: Any, H: Any,
    stride_az: Any, stride_ah: Any, stride_am: Any, stride_bz: Any, stride_bh: Any, stride_bk: Any,
    stride_cz: Any, stride_ch: Any, stride_cm: Any,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    """The head in the middle, as in attention: (batch, row, head, column)."""
    z, h = tl.program_id(2) // H, tl.program_id(2) % H
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_desc = tl.make_tensor_descriptor(
        a_ptr, [Z, M, H, K], [stride_az, stride_am, stride_ah, 1], [1, BM, 1, BK]
    )
    b_desc = tl.make_tensor_descriptor(
        b_ptr, [Z, K, H, N], [stride_bz, stride_bk, stride_bh, 1], [1, BK, 1, BN]
    )
    c_desc = tl.make_tensor_descriptor(
        c_ptr, [Z, M, H, N], [stride_cz, stride_cm, stride_ch, 1], [1, BM, 1, BN]
    )
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([z, m, h, k]).reshape(BM, BK)
        b = b_desc.load([z, k, h, n]).reshape(BK, BN)
        acc = tl.dot(a, b, acc)
    c_desc.store([z, m, h, n], acc.reshape(1, BM, 1, BN).to(c_ptr.dtype.element_ty))


@wl.jit
def by_block_pointers(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, Z: Any, H: Any,
    stride_az: Any, stride_ah: Any, stride_am: Any, stride_bz: Any, stride_bh: Any, stride_bk: Any,
    stride_cz: Any, stride_ch: Any, stride_cm: Any,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    z, h = tl.program_id(2) // H, tl.program_id(2) % H
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_block_ptr(
        a_ptr + z * stride_az, (H, M, K), (stride_ah, stride_am, 1), (h, m, 0), (1, BM, BK),
        (2, 1, 0),
    )  # fmt: skip
    # the block of B as memory has it transposed: axes (n, head, k)
    b = tl.make_block_ptr(
        b_ptr + z * stride_bz, (N, H, K), (1, stride_bh, stride_bk), (n, h, 0), (BN, 1, BK),
        (0, 2, 1),
    )  # fmt: skip
    c = tl.make_block_ptr(
        c_ptr + z * stride_cz, (H, M, N), (stride_ch, stride_cm, 1), (h, m, n), (1, BM, BN),
        (2, 1, 0),
    )  # fmt: skip
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(a, boundary_check=(1, 2)).reshape(BM, BK)
        y = tl.load(b, boundary_check=(0, 2)).reshape(BN, BK)
        acc = tl.dot(x, y.T, acc)
        a = tl.advance(a, (0, 0, BK))
        b = tl.advance(b, (0, 0, BK))
    tl.store(c, acc.to(c_ptr.dtype.element_ty).reshape(1, BM, BN), boundary_check=(1, 2))


@pytest.mark.parametrize(
    ("knobs", "transposed"),
    diagonals(4, [WS, WS_ONE, UNIFORM, UNIFORM_TWO], [False, True]),
    ids=str,
)
def test_boxes_of_a_described_batch(knobs: dict[str, Any], transposed: bool) -> None:
    rng = np.random.default_rng(1)
    z, m, n, k = 3, 150, 72, 136
    a, b = (
        road.filled(rng.integers(-3, 4, s).astype(np.float32), np.float16)
        for s in ((z, m, k), (z, n, k) if transposed else (z, k, n))
    )
    c = road.array((z, m, n), np.float16)
    blocks = ((1, 128, 64), (1, 64, 64), (1, 128, 64))
    args = [
        *(wl.TensorDescriptor.from_tensor(x, s) for x, s in zip((a, b, c), blocks, strict=True)),
        k,
    ]
    meta = {"BM": 128, "BN": 64, "BK": 64, "TRANSPOSED": transposed, **knobs}
    compiled, found = road.check_equal(described, args, (2, 2, z), meta, levels=True)
    right = b.astype(np.float64).transpose(0, 2, 1) if transposed else b.astype(np.float64)
    np.testing.assert_array_equal(found[2].base, (a.astype(np.float64) @ right).astype(np.float16))
    assert compiled.schedule.specialized == bool(knobs["num_consumer_groups"])
    assert {v for x in compiled.schedule.channels for v in x.via} == {"tma"}
    assert [s.via for s in compiled.schedule.stores] == ["tma"]
    maps = [o.result.type for o in walk(compiled.placed.body) if o.kind is tma.tensor_map]
    assert [t.thin for t in maps] == [(0,)] * 3  # type: ignore[attr-defined]
    assert "tma_load_3d" in compiled.cuda and "tma_store_3d" in compiled.cuda
    report = compiled.check()
    assert report.ok, str(report)
    assert compiled.resources.problems() == ()


@pytest.mark.parametrize(
    ("knobs", "pads"), diagonals(3, [UNIFORM, WS_ONE], [(0, 0), (4, 0), (1, 1)]), ids=str
)
def test_a_batch_axis_between_those_of_the_tile(
    knobs: dict[str, Any], pads: tuple[int, int]
) -> None:
    """Four axes, the head third: the view's axes are put in order, whatever producer moves the boxes."""
    args = arrays(*pads)
    compiled, found = road.check_equal(
        made_inside, args, (2, 2, 6), {**BLOCKS, **knobs}, levels=True
    )
    np.testing.assert_array_equal(found[2], product(args))
    assert compiled.schedule.specialized == bool(knobs["num_consumer_groups"])
    via = {0: "tma", 4: "cp_async", 1: "registers"}
    assert [v for x in compiled.schedule.channels for v in x.via] == [via[p] for p in pads]
    report = compiled.check()
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("knobs", "pads"), diagonals(3, [WS_ONE, UNIFORM], [(0, 0), (0, 4), (1, 1)]), ids=str
)
@pytest.mark.each(2)
def test_block_pointers_of_a_batch(knobs: dict[str, Any], pads: tuple[int, int]) -> None:
    args = arrays(*pads)
    meta = {**BLOCKS, **knobs}
    compiled, found = road.check_equal(by_block_pointers, args, (2, 2, 6), meta, levels=True)
    np.testing.assert_array_equal(found[2], product(args))
    assert compiled.schedule.specialized == bool(knobs["num_consumer_groups"])
    via = {0: "tma", 4: "cp_async", 1: "registers"}
    assert [v for x in compiled.schedule.channels for v in x.via] == [via[p] for p in pads]
    report = compiled.check()
    assert report.ok, str(report)
