"""tl.float8e4b15: bytes that kernels move and convert; here against the format, and Triton's own assembly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from warploom import Script
from warploom.errors import CompileError, LaunchError
from warploom.triton.language.extra import cuda
from warploom.triton.tools.tensor_descriptor import TensorDescriptor

BYTES = np.arange(256).astype(np.uint8)
HALVES = np.arange(65536).astype(np.uint16).view(np.float16)


def numbers(b: Any) -> Any:
    """What bytes stand for: 1 bit of sign, 4 of exponent with a bias of 15, 3 of mantissa."""
    exponent, mantissa = b.astype(int) >> 3 & 15, b.astype(int) & 7
    size = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 18), mantissa * 2.0**-17)
    return np.where(b > 127, -size, size)


def nearest(x: Any) -> Any:
    """The byte of the number next to each, of two the larger in magnitude; up to 1.75, as of NaN."""
    size = np.fmin(np.abs(x.astype(np.float64)), 1.75)
    values = numbers(BYTES[:127])
    above = np.searchsorted(values, size)  # the first that is not smaller
    below = np.maximum(above - 1, 0)
    found = np.where(size - values[below] < values[above] - size, below, above)
    return (found + 128 * np.signbit(x)).astype(np.uint8)


def e4b15(x: Any) -> Any:
    return triton.reinterpret(x, tl.float8e4b15)


@triton.jit
def convert(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


def converted(x: Any, y: Any, target: Any) -> Any:
    """y, once by the oracle and once by the simulator, which agree: all of x, stored as y's dtype."""
    n, grid = target.size, (-(-target.size // 1000),)
    convert[grid](x, y, n, BLOCK=1000)
    found = target.copy()
    target[:] = 0
    convert.compile_for(x, y, n, grid=grid, BLOCK=1000).simulate(x, y, n, grid=grid)
    np.testing.assert_array_equal(target, found)
    return found


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e5m2]
)
def test_all_bytes_as_numbers(dtype: Any) -> None:
    y = np.zeros(256, dtype)
    found = converted(e4b15(BYTES), y, y)
    wanted = numbers(BYTES).astype(dtype)
    assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))  # the signs of zeros as well


def test_all_halves_as_bytes() -> None:
    y = np.zeros(65536, np.uint8)
    assert np.array_equal(converted(HALVES, e4b15(y), y), nearest(HALVES))


def test_floats_are_rounded_once() -> None:
    """Next to the middle of two bytes, closer than an f16 tells."""
    values = numbers(BYTES[:127]).astype(np.float32)
    middles = (values[1:] + values[:-1]) / 2
    x = np.concatenate([middles, np.nextafter(middles, 0), np.nextafter(middles, 9), values])
    x = np.concatenate([x, [1.875, 3, 65520, 1e30, np.inf, np.nan, 1e-30, 1e-45]])
    x = np.concatenate([x, -x]).astype(np.float32)
    y = np.zeros(x.size, np.uint8)
    assert np.array_equal(converted(x, e4b15(y), y), nearest(x))


TO_HALVES = tl.constexpr(
    "{.reg .b32 a<2>, b<2>; prmt.b32 a0, 0, $2, 0x5746; and.b32 b0, a0, 0x7f007f00; "
    "and.b32 b1, a0, 0x00ff00ff; and.b32 a1, a0, 0x00800080; shr.b32 b0, b0, 1; add.u32 b1, b1, a1; "
    "lop3.b32 $0, b0, 0x80008000, a0, 0xf8; shl.b32 $1, b1, 7;}"
)
TO_BYTES = tl.constexpr(
    "{.reg .b32 a<2>, b<2>; .reg .b32 most; mov.b32 most, 0x3F003F00; and.b32 a0, $1, 0x7fff7fff; "
    "and.b32 a1, $2, 0x7fff7fff; min.f16x2 a0, a0, most; min.f16x2 a1, a1, most; "
    "mad.lo.u32 a0, a0, 2, 0x00800080; mad.lo.u32 a1, a1, 2, 0x00800080; "
    "lop3.b32 b0, $1, 0x80008000, a0, 0xea; lop3.b32 b1, $2, 0x80008000, a1, 0xea; "
    "prmt.b32 $0, b0, b1, 0x7531;}"
)


@triton.jit
def by_assembly(h_ptr: Any, y_ptr: Any, back_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(h_ptr + at)
    y = tl.inline_asm_elementwise(TO_BYTES, "=r,r,r", [h], tl.float8e4b15, is_pure=True, pack=4)
    tl.static_assert(y.dtype == tl.float8e4b15)
    tl.store(y_ptr + at, y)
    back = tl.inline_asm_elementwise(TO_HALVES, "=r,=r,r", [y], tl.float16, is_pure=True, pack=4)
    tl.store(back_ptr + at, back)


def test_conversions_are_those_of_triton_s_assembly() -> None:
    """triton/language/extra/cuda/utils.py of Triton 3.6."""
    y, back = np.zeros(65536, np.uint8), np.zeros(65536, np.float16)
    by_assembly[(64,)](HALVES, e4b15(y), back, BLOCK=1024)
    np.testing.assert_array_equal(y, nearest(HALVES))
    np.testing.assert_array_equal(back, numbers(y))


@triton.jit
def product(a_ptr: Any, b_ptr: Any, c_ptr: Any, K: Any, N: tl.constexpr, BK: tl.constexpr) -> None:
    m, n, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((64, N), tl.float32)
    for at in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + at + k[None, :], mask=at + k[None, :] < K, other=0.0)
        inside = at + k[:, None] < K
        b = tl.load(b_ptr + (at + k[:, None]) * N + n[None, :], mask=inside, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("other", ["e4b15", "e5"])
def test_products_are_those_of_halves(other: str) -> None:
    random = np.random.default_rng(0)
    a = nearest(random.integers(-3, 4, (64, 80)) / 4)
    b = nearest(random.integers(-3, 4, (80, 32)) / 4)
    wanted = numbers(a) @ numbers(b)
    right = e4b15(b) if other == "e4b15" else numbers(b).astype(ml_dtypes.float8_e5m2)
    c = np.zeros((64, 32), np.float32)
    sizes = {"N": 32, "BK": 32}
    product[(1,)](e4b15(a), right, c, 80, **sizes)
    np.testing.assert_array_equal(c, wanted)
    compiled = product.compile_for(e4b15(a), right, c, 80, grid=(1,), **sizes)
    c[:] = 0
    compiled.simulate(e4b15(a), right, c, 80, grid=(1,))
    np.testing.assert_array_equal(c, wanted)
    assert compiled.check().ok


@triton.jit
def moved(x: Any, y_ptr: Any, bytes_ptr: Any, n: Any, SELECTED: tl.constexpr) -> None:
    """Boxes, shapes, choices, loops, bits and constants of bytes."""
    tl.static_assert(x.dtype == SELECTED and SELECTED.is_fp8e4b15() and SELECTED.is_fp8())
    tl.static_assert(SELECTED.fp_mantissa_width == 3 and SELECTED.primitive_bitwidth == 8)
    box = x.load([0, 0])
    total = tl.zeros((16, 16), tl.float8e4b15)
    for i in range(n):
        total = tl.where(i == 2, tl.trans(box), total)
    bits = total.to(tl.uint8, bitcast=True)
    total = tl.where(bits == 3, tl.full((16, 16), 0.3, SELECTED), tl.abs(total))
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    ptr = bytes_ptr.to(tl.pointer_type(tl.float8e4b15), bitcast=True)
    tl.store(ptr + at, total)
    tl.store(y_ptr, tl.max(cuda.convert_custom_float8_sm80(total, tl.float16)))
    tl.store(y_ptr + 1, tl.max(cuda.convert_custom_float8_sm70(box, tl.float32)))
    tl.store(y_ptr + 2, tl.cast(0.4, tl.float8e4b15, fp_downcast_rounding="rtz").to(tl.float32))


def test_bytes_are_moved_like_others() -> None:
    x = BYTES.reshape(16, 16).copy()
    y, found = np.zeros(3, np.float32), np.zeros((16, 16), np.uint8)
    box = TensorDescriptor.from_tensor(e4b15(x), (16, 16))
    wanted = x.T & 0x7F
    wanted[x.T == 3] = nearest(np.array([0.3]))[0]
    moved[(1,)](box, y, found, 4, SELECTED=tl.float8e4b15)
    np.testing.assert_array_equal(found, wanted)
    assert y.tolist() == [1.875, 1.875, 0.375]
    compiled = moved.compile_for(box, y, found, 4, grid=(1,), SELECTED=tl.float8e4b15)
    found[:], y[:] = 0, 0
    compiled.simulate(box, y, found, 4, grid=(1,))
    np.testing.assert_array_equal(found, wanted)


def test_constants_are_rounded_as_values_are() -> None:
    @triton.jit
    def kernel(y_ptr: Any, X: tl.constexpr) -> None:
        tl.store(y_ptr, X)

    for x in (0.0, -0.0, 0.1, 1.0625, -1.1874, 1.8, 5, float("-inf"), float("nan"), 2.0**-18):
        y = np.zeros(1, np.uint8)
        kernel[(1,)](e4b15(y), X=x)
        assert y == nearest(np.array([x], np.float64))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("x + x", "add of float8e4b15"),
        ("-x", "neg of float8e4b15"),
        ("x < 1.0", "lt of float8e4b15"),
        ("tl.sum(x, 0)", "reduce of float8e4b15"),
        ("tl.atomic_xchg(x_ptr + at, x)", "atomic of float8e4b15"),
        ("at.to(tl.float8e4b15)", "a conversion of tile<64xi32> to float8e4b15"),
        ("y.to(tl.bfloat16).to(tl.float8e4b15)", "a conversion of tile<64xbf16> to float8e4b15"),
    ],
)
def test_what_computes_with_bytes_is_refused(what: str, message: str, tmp_path: Any) -> None:
    text = f"""
import warploom.triton as triton
import warploom.triton.language as tl
@triton.jit
def kernel(x_ptr, y_ptr):
    at = tl.arange(0, 64)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(y_ptr + at, {what})
"""
    file = tmp_path / "kernel.py"
    file.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), names)
    with pytest.raises(CompileError, match=message) as e:
        names["kernel"][(1,)](e4b15(BYTES.copy()), np.zeros(256, np.float32))
    assert e.value.loc is not None and e.value.loc.line == 8 and "tl.float" in str(e.value.help)


def test_a_number_is_no_argument() -> None:
    @triton.jit
    def kernel(y_ptr: Any, x: tl.float8e4b15) -> None:
        tl.store(y_ptr, x)

    with pytest.raises(CompileError, match="the argument x is a float8e4b15"):
        kernel[(1,)](np.zeros(1, np.float32), 0.5)


def test_a_wrapper_is_an_array_of_the_same_bytes() -> None:
    x = np.zeros((6, 8), np.int8)[::2]
    wrapped = e4b15(x)
    assert isinstance(wrapped, triton.TensorWrapper) and wrapped.base is x
    assert (wrapped.shape, wrapped.stride()) == ((3, 8), (16, 1))
    assert wrapped.stride(0) == 16 and wrapped.data_ptr() == x.ctypes.data
    assert wrapped.dtype is tl.float8e4b15 and tl.dtype("fp8e4b15") is wrapped.dtype
    assert triton.reinterpret(wrapped, tl.int8).dtype == np.int8
    with pytest.raises(LaunchError, match="a i32 array as f8e4b15"):
        e4b15(np.zeros(3, np.int32))
    with pytest.raises(LaunchError, match="a list as f8e4b15"):
        e4b15([1])


class Halved(Script):
    """As a script's: by TMA into shared memory, from there into registers and back."""

    def __call__(self, x_ptr: ~tl.float8e4b15, y_ptr: ~tl.float8e4b15) -> None:
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=tl.float8e4b15, shape=[16, 16])
        g_y = self.global_view(y_ptr, dtype=tl.float8e4b15, shape=[16, 16])
        slot = self.shared_tensor(dtype=tl.float8e4b15, shape=[16, 16])
        full = self.mbarrier.alloc(count=1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=slot.nbytes)
            self.tma.global_to_shared(src=g_x, dst=slot, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        x = self.load_shared(slot).to(tl.float32)
        self.store_global(g_y, (x * 0.5).to(tl.float8e4b15), offsets=[0, 0])


def test_scripts_have_it_too() -> None:
    x, y = BYTES.reshape(16, 16).copy(), np.zeros((16, 16), np.uint8)
    Halved()(e4b15(x), e4b15(y))
    np.testing.assert_array_equal(y, nearest(numbers(x) / 2))
