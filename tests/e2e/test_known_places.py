"""What is known of an access widens it, or leaves it out: where a mask holds, behind a known end."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_runs import runs
from warploom.ir.ops import tile
from warploom.schedule.model import Schedule


@wl.jit
def rotated(x_ptr: Any, y_ptr: Any, out_ptr: Any, B: tl.constexpr) -> None:
    """Rows of two tensors side by side, each with the halves of its groups exchanged: the second one's
    places are negative where the first one's mask holds."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    row, column = at // 256, at % 256
    out = tl.zeros((B,), tl.bfloat16)
    for ptr, first in ((x_ptr, 0), (y_ptr, 128)):
        inside = (column >= first) & (column < first + 128)
        place = (column - first) % 64
        low = tl.load(
            ptr + row * 128 + (column - first) // 64 * 64 + place + 32, inside & (place < 32), 0.0
        )
        high = tl.load(
            ptr + row * 128 + (column - first) // 64 * 64 + place - 32, inside & (place >= 32), 0.0
        )
        out += low + high
    tl.store(out_ptr + at, out)


def test_where_a_mask_holds_remainders_go_on() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((8, 128)).astype(ml_dtypes.bfloat16) for _ in range(2))
    out = np.zeros((8, 256), ml_dtypes.bfloat16)
    made = rotated.compile_for(x, y, out, grid=(2,), B=1024, num_warps=4)
    assert runs(made, tile.load) == [(0, 8)] * 4
    made.simulate(x, y, out, grid=(2,))
    halves = np.concatenate([x, y], 1).reshape(8, 4, 2, 32)
    np.testing.assert_array_equal(out, halves[:, :, ::-1].reshape(8, 256))


@wl.jit
def transposed_mask(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    """What the mask says of a place is no matter of the transposed one."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :] - N * N // 2
    v = tl.load(x_ptr + N * N // 2 + tl.trans(at) % 64, mask=at >= 0, other=0.0)
    tl.store(out_ptr + at + N * N // 2, v)


def test_a_mask_says_nothing_of_other_places() -> None:
    x, out = np.arange(256, dtype=np.float32), np.zeros((16, 16), np.float32)
    made = transposed_mask.compile_for(x, out, grid=(1,), N=16, num_warps=1)
    assert runs(made, tile.load) == [()]
    made.simulate(x, out, grid=(1,))
    at = np.arange(256).reshape(16, 16) - 128
    np.testing.assert_array_equal(out, np.where(at >= 0, x[128 + np.fmod(at.T, 64)], 0))


@wl.jit
def in_planes(
    a_ptr: Any, b_ptr: Any, out_ptr: Any, k: Any, B: tl.constexpr, HW: tl.constexpr
) -> None:
    """a @ b.T, of which each column is a plane of an image: as a convolution of pixels stores channels."""
    at, columns, ks = tl.program_id(0) * 128 + tl.arange(0, 128), tl.arange(0, B), tl.arange(0, 64)
    total = tl.zeros((128, B), tl.float32)
    for i in range(0, k, 64):
        a = tl.load(a_ptr + at[:, None] * k + i + ks[None, :])
        total = tl.dot(a, tl.load(b_ptr + columns[:, None] * k + i + ks[None, :]).T, total)
    to = (at // HW * B * HW + at % HW)[:, None] + columns[None, :] * HW
    tl.store(out_ptr + to, total.to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("warps", [4, 8])
def test_sums_in_columns_are_exchanged_for_whole_sectors(warps: int) -> None:
    """Of 16 bits a warp's rows fill half a sector, of 32 bits a whole one."""
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (n, 64)).astype(ml_dtypes.bfloat16) for n in (128, 32))
    for dtype, bits, how_often in (
        (ml_dtypes.bfloat16, 128, 16 // warps),
        (np.float32, 32, 128 // warps),
    ):
        out = np.zeros((2, 32, 64), dtype)
        made = in_planes.compile_for(a, b, out, 64, grid=(1,), B=32, HW=64, num_warps=warps)
        stores = re.findall(r"  store_global(\d+)\(", made.cuda)
        assert stores == [str(bits)] * how_often
        made.simulate(a, b, out, 64, grid=(1,))
        want = (a.astype(float) @ b.astype(float).T).reshape(2, 64, 32).swapaxes(1, 2)
        np.testing.assert_array_equal(out.astype(float), want)


@pytest.mark.usefixtures("without_nvrtc")
def test_no_exchange_without_room_for_it() -> None:
    """Seven slots of 32 KB leave nothing for 32 KB more: there are six, unless seven are asked for, by a launch
    or a schedule."""

    def made(**knobs: Any) -> tuple[int, set[str], str]:
        found = in_planes.compile(
            ["*bf16:16", "*bf16:16", "*bf16:16", "i32:16"],
            {"B": 128, "HW": 64},
            num_warps=4,
            **knobs,
        )
        (ring,) = found.schedule.channels
        stores = set(re.findall(r"  store_global(\d+)\(", found.cuda))
        return ring.depth, stores, found.schedule.to_json()

    assert made(num_stages=3)[:2] == (3, {"128"})
    assert made(num_stages=7)[:2] == (6, {"128"})
    depth, stores, schedule = made(num_consumer_groups=1, num_buffers_warp_spec=7)
    assert (depth, stores) == (7, {"16"})
    assert made(schedule=Schedule.from_json(schedule))[:2] == (7, {"16"})


@wl.jit
def in_planes_and_rows(
    a_ptr: Any, b_ptr: Any, out_ptr: Any, rows_ptr: Any, k: Any, S: tl.constexpr
) -> None:
    at, columns, ks = tl.arange(0, 128), tl.arange(0, 256), tl.arange(0, 64)
    total = tl.zeros((128, 256), tl.float32)
    for i in tl.range(0, k, 64, num_stages=S):
        a = tl.load(a_ptr + at[:, None] * k + i + ks[None, :])
        total = tl.dot(a, tl.load(b_ptr + columns[:, None] * k + i + ks[None, :]).T, total)
    to = (at // 64 * 256 * 64 + at % 64)[:, None] + columns[None, :] * 64
    tl.store(out_ptr + to, total.to(out_ptr.dtype.element_ty))
    if S < 4:
        tl.store(rows_ptr + at[:, None] * 256 + columns[None, :], total.to(tl.bfloat16))


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("stages", "knobs"),
    [(4, {}), (3, {"store_buffers": 2, "num_consumer_groups": 2}), (3, {"store_whole": True})],
)
def test_an_exchange_takes_nothing_that_was_asked_for(
    stages: int, knobs: dict[str, Any], strict: bool
) -> None:
    """Slots of 48 KB as many as the loop says, staging as the launch does, and the tasks."""
    made = in_planes_and_rows.compile(
        [*["*bf16:16"] * 4, "i32:16"], {"S": stages}, num_warps=4, strict=strict, **knobs
    )
    assert made.schedule.specialized and [c.depth for c in made.schedule.channels] == [stages]
    assert set(re.findall(r"  store_global(\d+)\(", made.cuda)) == {"16"}


@wl.jit
def widened(x_ptr: Any, out_ptr: Any, N: tl.constexpr, B: tl.constexpr) -> None:
    at = tl.program_id(0) * N + tl.arange(0, B)
    v = tl.load(x_ptr + at, mask=tl.arange(0, B) < N, other=0.0)
    tl.store(out_ptr + at, tl.exp(v.to(tl.float32)), mask=tl.arange(0, B) < N)


def test_wider_elements_are_stored_in_whole_sectors() -> None:
    """Eight bf16 a thread would be stored as two halves of 32 bytes each."""
    x, out = np.zeros((3, 4096), ml_dtypes.bfloat16), np.zeros((3, 4096), np.float32)
    made = widened.compile_for(x, out, grid=(3,), N=4096, B=4096, num_warps=4)
    assert {*re.findall(r"= (load_global\w+)\(", made.cuda)} == {"load_global64"}
    assert "store_global128(" in made.cuda and made.resources.dynamic_shared == 0


def test_what_lies_behind_a_known_end_is_no_code() -> None:
    x = np.random.default_rng(5).standard_normal((3, 2752)).astype(np.float32)
    out = np.zeros((3, 2752), np.float32)
    made = widened.compile_for(x, out, grid=(3,), N=2752, B=4096, num_warps=4)
    assert len(re.findall(r"= load_global128(?:_if)?\(", made.cuda)) == 6  # of 8, 512 elements each
    assert len(re.findall(r"store_global128\(", made.cuda)) == 7  # and its definition
    made.simulate(x, out, grid=(3,))
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)


@wl.jit
def sums_of_channels(
    x_ptr: Any, out_ptr: Any, C: tl.constexpr, HW: tl.constexpr, R: tl.constexpr, B: tl.constexpr
) -> None:
    """Of x[2, R / HW, C, HW], as Inductor's batch norm sums: an offset of the box belongs to no axis of its
    tile."""
    at = tl.program_id(0) + tl.arange(0, 1)[:, None]
    first = HW * (at % C) + C * R * (at // C)
    total = tl.zeros((1, B), tl.float32)
    for start in range(0, R, B):
        r = start + tl.arange(0, B)[None, :]
        x = tl.load(x_ptr + first + C * HW * (r // HW) + r % HW, (r < R) & (at < 2 * C), 0.0)
        total += x.to(tl.float32)
    tl.store(out_ptr + at, tl.sum(total, 1)[:, None], at < 2 * C)


def test_offsets_that_belong_to_no_axis_leave_rows_aligned() -> None:
    x = np.random.default_rng(6).standard_normal((2, 2, 4, 1024)).astype(ml_dtypes.bfloat16)
    out = np.zeros((2, 4), np.float32)
    sizes = {"C": 4, "HW": 1024, "R": 2048, "B": 1024}
    made = sums_of_channels.compile_for(x, out, grid=(8,), **sizes, num_warps=4)
    assert {*re.findall(r"load_global(\d+)\w*\(in_row", made.cuda)} == {"128"}
    made.simulate(x, out, grid=(8,))
    np.testing.assert_allclose(out, x.astype(float).sum((1, 3)), rtol=1e-5)
