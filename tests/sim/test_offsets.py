"""Offsets computed in i32 that i32 does not hold: an access by one is an error, one that is masked off is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import WarploomError

pytestmark = pytest.mark.usefixtures("without_nvrtc")
FAR = 1 << 16  # FAR * FAR is 2**32, which wraps to 0


@wl.jit
def scalar(x: Any, o: Any, n: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (n * s + i)))


@wl.jit
def gathered(x: Any, idx: Any, o: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + tl.load(idx + i) * s))


@wl.jit
def masked(x: Any, idx: Any, o: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    at = tl.load(idx + i)
    tl.store(o + i, tl.load(x + at * s, mask=at < 4, other=7))


@wl.jit
def carried(x: Any, o: Any, steps: Any, s: Any) -> None:
    at = 0
    for _ in range(steps):
        at += s
    if steps > 3:
        tl.store(o, tl.load(x + at))


@wl.jit
def hashed(x: Any, o: Any, s: Any) -> None:
    """Integers that wrap on purpose, and an index made of their bits."""
    i = tl.arange(0, 16)
    h = i * s * s + i * 40503
    tl.store(o + i, tl.load(x + (h & 15)) + h)


@wl.jit
def back(x: Any, o: Any, n: Any, s: Any) -> None:
    """Beyond 32 bits on the way, inside in the end."""
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (i + n * s - n * s)))


@wl.jit
def wide(x: Any, o: Any, n: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (n.to(tl.int64) * s - n.to(tl.int64) * s + i)))


def ints(n: int = 64) -> Any:
    return np.arange(n, dtype=np.int32)


def both(kernel: Any, *args: Any) -> list[str]:
    """What the oracle and the simulator say; "" where they ran."""
    said = []
    for how in ("oracle", "simulator"):
        try:
            if how == "oracle":
                kernel[(1,)](*args)
            else:
                kernel.compile_for(*args, grid=1).simulate(*args, grid=1)
            said.append("")
        except WarploomError as error:
            said.append(str(error))
    return said


def test_an_offset_that_one_number_takes_too_far() -> None:
    for said in both(scalar, ints(), ints(), FAR, FAR):
        assert "error[offset-overflow]: load of element 42949672" in said or "42949673" in said
        assert "tl.load(x + (n * s + i))" in said and "row.to(tl.int64) * stride" in said


@pytest.mark.parametrize("at", [0, 7, 15])
def test_an_element_of_a_tile(at: int) -> None:
    idx = np.zeros(16, np.int32)
    idx[at] = FAR
    for said in both(gathered, ints(), idx, ints(), FAR):
        assert "error[offset-overflow]: load of element 4294967296 of x" in said


def test_what_is_masked_off_does_no_harm() -> None:
    out = ints()
    idx = np.where(ints(16) % 2 == 0, ints(16) // 4, FAR).astype(np.int32)
    assert both(masked, ints(), idx, out, FAR)[0].startswith(
        "error[out-of-bounds]"
    )  # 1 · FAR fits i32
    idx = np.where(ints(16) % 2 == 0, 0, FAR).astype(np.int32)
    assert both(masked, ints(), idx, out, FAR) == ["", ""]
    assert out[:16].tolist() == [0, 7] * 8


def test_what_a_loop_carries() -> None:
    oracle, _ = both(carried, ints(), ints(), 4, 1 << 30)
    assert "error[offset-overflow]: load of element 4294967296 of x" in oracle
    assert both(carried, ints(), ints(), 3, 1 << 30) == ["", ""]


def test_numbers_that_are_no_offsets_wrap() -> None:
    out = ints()
    assert both(hashed, ints(), out, FAR + 1) == ["", ""]
    i = np.arange(16, dtype=np.int64)
    h = (i * (FAR + 1) ** 2 + i * 40503).astype(np.int32)
    assert np.array_equal(out[:16], (h & 15) + h)


@pytest.mark.parametrize("kernel", [back, wide])
def test_what_fits_in_the_end(kernel: Any) -> None:
    out = np.zeros(16, np.int32)
    assert both(kernel, ints(), out, FAR, FAR + 1) == ["", ""]
    assert np.array_equal(out, ints(16))


# ---- boxes, whose places the compiled program computes in 64 bits


@wl.jit
def rows(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    m, k = row + tl.arange(0, M), tl.arange(0, K)
    tile = tl.load(x + (m[:, None] * stride + k[None, :]))
    tl.store(o + (tl.arange(0, M)[:, None] * K + k[None, :]), tile)


@wl.jit
def of_two_sums(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    """No i32 overflows: each row's place and each column's are added by themselves."""
    m, k = row + tl.arange(0, M), tl.arange(0, K)
    tile = tl.load((x + m[:, None] * stride) + k[None, :] * (stride // 2))
    tl.store(o + (tl.arange(0, M)[:, None] * K + k[None, :]), tile)


@wl.jit
def cast(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    m, k = row + tl.arange(0, M), tl.arange(0, K)
    tile = tl.load(x + (m[:, None].to(tl.int64) * stride + k[None, :]))
    tl.store(o + (tl.arange(0, M)[:, None] * K + k[None, :]), tile)


@wl.jit
def bounded(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    """Rows that i32 does not reach are masked off."""
    m, k = row + tl.arange(0, M), tl.arange(0, K)
    tile = tl.load(x + (m[:, None] * stride + k[None, :]), mask=(m < row + 2)[:, None], other=0)
    tl.store(o + (tl.arange(0, M)[:, None] * K + k[None, :]), tile)


@wl.jit
def batch(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    """An offset that belongs to no axis of the tile."""
    m, k = tl.arange(0, M), tl.arange(0, K)
    z = tl.program_id(0) + row
    tile = tl.load(x + (z * stride + m[:, None] * K + k[None, :]))
    tl.store(o + (m[:, None] * K + k[None, :]), tile)


@wl.jit
def block_of_batch(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    z = tl.program_id(0) + row
    blocks = tl.make_block_ptr(x + z * stride, (M, K), (K, 1), (0, 0), (M, K), (1, 0))
    tile = tl.load(blocks, boundary_check=(0, 1))
    tl.store(o + (tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]), tile)


@wl.jit
def product(x: Any, o: Any, stride: Any, row: Any, M: tl.constexpr, K: tl.constexpr) -> None:
    """Pointers that a loop moves on: the columns' part is small, the rows' is not."""
    m, k = row + tl.arange(0, M), tl.arange(0, K)
    at = x + (m[:, None] * stride + k[None, :])
    acc = tl.zeros((M, M), tl.int32)
    for _ in range(2):
        t = tl.load(at)
        acc = tl.dot(t, tl.trans(t), acc)
        at += K
    i = tl.arange(0, M)
    tl.store(o + (i[:, None] * M + i[None, :]), acc)


FAR_ROWS = (1 << 31) - 1


@pytest.fixture(scope="module")
def long() -> Any:
    """5 GiB of zeros that nothing is written to, so that they take no memory."""
    return np.zeros(5 << 30, np.int8)


def last_row(stride: int, rows: int) -> int:
    """The first of `rows` rows the last of which i32 reaches."""
    return ((1 << 31) - 1 - 64) // stride - (rows - 1)


@pytest.mark.parametrize("kernel", [rows, batch, block_of_batch, product])
@pytest.mark.parametrize("groups", [0, 1])
def test_a_box_that_i32_does_not_reach(long: Any, kernel: Any, groups: int) -> None:
    stride, out = 1 << 20, np.zeros((64, 64), np.int32 if kernel is product else np.int8)
    meta = {"M": 64, "K": 64, "num_consumer_groups": groups}
    count = 1 if kernel in (batch, block_of_batch) else 64
    near = last_row(stride, count)
    for row in (near, near + 2):
        compiled = kernel.compile_for(long, out, stride, row, **meta, grid=1)
        assert any("load_box" in text or "tma_load" in text for text in compiled.ir.values())
        for run in (
            lambda row=row: kernel[(1,)](long, out, stride, row, **meta),
            lambda row=row, c=compiled: c.simulate(long, out, stride, row, grid=1),
        ):
            if row == near:
                run()
                continue
            with pytest.raises(WarploomError) as said:
                run()
            assert "error[offset-overflow]: load of element 21" in str(said.value)
            assert "row.to(tl.int64) * stride" in str(said.value)


@pytest.mark.parametrize("kernel", [of_two_sums, cast, bounded])
def test_boxes_that_64_bits_reach(long: Any, kernel: Any) -> None:
    stride, row, out = 1 << 20, (1 << 11) - 2, np.zeros((64, 64), np.int8)
    meta = {"M": 64, "K": 32 if kernel is of_two_sums else 64}
    kernel[(1,)](long, out, stride, row - 62 * (kernel is of_two_sums), **meta)
    args = long, out, stride, row - 62 * (kernel is of_two_sums)
    kernel.compile_for(*args, **meta, grid=1).simulate(*args, grid=1)
