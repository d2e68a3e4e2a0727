"""Shared memory's addresses against the PTX ISA's own examples, and descriptors against TMA's layout."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.types import Shared, bf16, f8e4m3, f32
from warploom.sim.shared import (
    LayoutError,
    Place,
    SharedMemory,
    decode_descriptor,
    encode_descriptor,
    swizzled,
)


def place(
    shape: tuple[int, ...], inner: int, swizzle: int, dtype=bf16, address: int = 2048
) -> Place:
    return Place(address, Shared((), shape, dtype, inner, swizzle, shape), (0,) * len(shape), "t")


def test_descriptor_fields() -> None:
    # 13-0 start, 29-16 leading, 45-32 stride (all >> 4), 63-62 swizzle: 1 is 128 bytes
    d = encode_descriptor(0x1400, 16, 1024, 128)
    assert d == (0x140 | 1 << 16 | 64 << 32 | 1 << 62)
    with pytest.raises(LayoutError):
        encode_descriptor(0x1408, 16, 1024, 128)


def test_canonical_layout_examples() -> None:
    """Figures 166 to 170 of the PTX ISA: exact layouts in elements, before the swizzle."""

    def linear(k_major, leading, stride, swizzle, mn, k, size):
        d = encode_descriptor(0, leading, stride, swizzle)
        return swizzled(decode_descriptor(d, k_major, mn, k, size), swizzle) // size

    row, col = np.arange(16)[:, None], np.arange(8)[None, :]
    # K-major, none, tf32: ((8,2),(4,2)):((4,32),(1,64))
    expected = row % 8 * 4 + row // 8 * 32 + col % 4 + col // 4 * 64
    np.testing.assert_array_equal(linear(True, 64 * 4, 32 * 4, 0, 16, 8, 4), expected)
    # K-major, 32B, tf32: ((8,2),(4,2)):((8,64),(1,4))
    expected = row % 8 * 8 + row // 8 * 64 + col % 4 + col // 4 * 4
    np.testing.assert_array_equal(linear(True, 16, 64 * 4, 32, 16, 8, 4), expected)
    row, col = np.arange(16)[:, None], np.arange(16)[None, :]
    # MN-major, none, bf16: ((8,1,2),(8,2)):((1,8,64),(8,128))
    expected = row % 8 + row // 8 * 64 + col % 8 * 8 + col // 8 * 128
    np.testing.assert_array_equal(linear(False, 128 * 2, 64 * 2, 0, 16, 16, 2), expected)
    row = np.arange(32)[:, None]
    # MN-major, 32B, bf16: ((8,2,2),(8,2)):((1,8,128),(16,256))
    expected = row % 16 + row // 16 * 128 + col % 8 * 16 + col // 8 * 256
    np.testing.assert_array_equal(linear(False, 128 * 2, 256 * 2, 32, 32, 16, 2), expected)
    row = np.arange(64)[:, None]
    # MN-major, 64B, bf16: ((8,4,2),(8,2)):((1,8,256),(32,512))
    expected = row % 32 + row // 32 * 256 + col % 8 * 32 + col // 8 * 512
    np.testing.assert_array_equal(linear(False, 256 * 2, 512 * 2, 64, 64, 16, 2), expected)


def test_swizzle_is_an_exchange_of_16_byte_units() -> None:
    a = np.arange(2048)
    for mode in (32, 64, 128):
        s = swizzled(a, mode)
        np.testing.assert_array_equal(np.sort(s), a)
        np.testing.assert_array_equal(s // mode, a // mode)
        np.testing.assert_array_equal(s % 16, a % 16)
    assert swizzled(np.array([1 << 7]), 128)[0] == (1 << 7) + 16
    assert swizzled(np.array([7 << 7]), 32)[0] == (7 << 7) + 16


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("inner", [0, 1])
@pytest.mark.parametrize("shape", [(64, 64), (128, 64), (64, 128), (64, 192)])
def test_wgmma_reads_what_tma_wrote(shape: tuple[int, int], inner: int, swizzle: int) -> None:
    p = place(shape, inner, swizzle)
    np.testing.assert_array_equal(p.operand(0), p.addresses)
    np.testing.assert_array_equal(p.operand(1).T, p.addresses)


@pytest.mark.parametrize("swizzle", [64, 128])
def test_wgmma_reads_what_tma_wrote_in_8_bits(swizzle: int) -> None:
    p = place((64, 128), 1, swizzle, f8e4m3)
    np.testing.assert_array_equal(p.operand(0), p.addresses)


def test_parts_keep_the_pattern() -> None:
    whole = place((128, 64), 1, 128)
    part = whole.part((1, 0), Shared((), (64, 64), bf16, 1, 128, (128, 64)))
    np.testing.assert_array_equal(part.addresses, whole.addresses[64:])
    np.testing.assert_array_equal(part.operand(0), whole.addresses[64:])
    with pytest.raises(IndexError):
        whole.part((2, 0), Shared((), (64, 64), bf16, 1, 128, (128, 64)))


def test_what_a_descriptor_cannot_say() -> None:
    with pytest.raises(LayoutError, match="row-major"):
        place((64, 64), 1, 0).operand(0)
    with pytest.raises(LayoutError, match="boundary"):
        place((64, 64), 1, 128, address=256).operand(0)
    place((16, 8), 1, 0).operand(1)  # B, N-major, N = 8: rows of 16 bytes are core matrices


def test_ordinary_stores_reach_the_async_proxy_by_a_fence() -> None:
    memory, p = SharedMemory(4096), place((8, 64), 1, 128, address=0)
    at, x = p.addresses, np.arange(512).reshape(8, 64).astype(bf16.numpy)
    assert not memory.is_written(at)
    memory.write(at, x, bf16, asynchronous=False)
    np.testing.assert_array_equal(memory.read(at, bf16, False), x)
    assert np.isnan(memory.read(at, bf16, True).astype(np.float32)).all()
    memory.fence()
    np.testing.assert_array_equal(memory.read(at, bf16, True), x)
    assert memory.is_written(at)


def test_slots_of_swizzled_allocations_are_aligned() -> None:
    t = Shared((3,), (8, 32), f32, 1, 128, (8, 32))
    p = Place(0, t, (0, 0), "ring")
    assert [p.slot((i,)).address for i in range(3)] == [0, 1024, 2048]
    small = Place(0, Shared((3,), (4, 32), f32, 1, 128, (4, 32)), (0, 0), "ring")
    assert small.slot((1,)).address == 1024
    with pytest.raises(IndexError, match="slot"):
        p.slot((3,))
