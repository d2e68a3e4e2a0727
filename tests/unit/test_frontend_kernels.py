"""Whole kernels through the frontend and the oracle against NumPy."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus import described_gemms
from tests.unit.tracing import kinds, launch, trace
from warploom.frontend.signature import DescriptorType, expand
from warploom.frontend.translate import translate
from warploom.ir.core import Fact
from warploom.ir.types import Pointer, Scalar, f16, i32
from warploom.ir.verify import verify
from warploom.kernels import gemm
from warploom.sim.oracle import run

RNG = np.random.default_rng(0)


def integers(*shape: int, dtype: type = np.float16) -> np.ndarray:
    """Small integers: products are exact in f32, so results are bit-equal."""
    return RNG.integers(-4, 5, shape).astype(dtype)


# ---- elementwise and rows


@wl.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


@pytest.mark.parametrize("n", [1, 47, 48, 49, 150])
def test_vector_add(n: int) -> None:
    x, y = RNG.standard_normal(n, np.float32), RNG.standard_normal(n, np.float32)
    out = np.zeros(n, np.float32)
    launch(add_kernel, -(-n // 48), x, y, out, n, BLOCK=48)
    assert np.array_equal(out, x + y)


@wl.jit
def softmax_kernel(out_ptr, x_ptr, row, cols, BLOCK: tl.constexpr, LIBRARY: tl.constexpr):
    start = tl.program_id(0) * row
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + offs, mask=offs < cols, other=-float("inf"))
    if LIBRARY:
        y = tl.softmax(x)
    else:
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
    tl.store(out_ptr + start + offs, y, mask=offs < cols)


@pytest.mark.parametrize("library", [False, True])
def test_softmax_rows(library: bool) -> None:
    x = RNG.standard_normal((5, 37), np.float32)
    out = np.zeros_like(x)
    launch(softmax_kernel, 5, out, x, 37, 37, BLOCK=40, LIBRARY=library)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


@wl.jit
def reductions_kernel(
    x_ptr, sums, maxima, minima, where_max, total, M: tl.constexpr, N: tl.constexpr
):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    tl.store(sums + m, tl.sum(x, axis=1))
    tl.store(maxima + n, x.max(0))
    tl.store(minima + m, tl.min(x, axis=-1))
    tl.store(where_max + m, tl.argmax(x, axis=1))
    tl.store(total, tl.sum(x))


def test_reductions() -> None:
    x = integers(6, 10, dtype=np.int32)
    outs = [np.zeros(k, np.int32) for k in (6, 10, 6, 6, 1)]
    launch(reductions_kernel, 1, x, *outs, M=6, N=10)
    wanted = (x.sum(1), x.max(0), x.min(1), x.argmax(1), [x.sum()])
    for got, want in zip(outs, wanted, strict=True):
        assert np.array_equal(got, want)


@wl.jit
def shapes_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    offs = tl.arange(0, M)[:, None] * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    y = tl.reshape(x.T, (N, M)).permute(1, 0)
    flat = tl.ravel(y)
    z = flat.reshape(M, N) + tl.expand_dims(tl.sum(y, 1), -1) * tl.broadcast_to(1.0, (M, N))
    tl.store(out_ptr + offs, z)


def test_shape_functions() -> None:
    x = integers(3, 5, dtype=np.float32)
    out = np.zeros_like(x)
    launch(shapes_kernel, 1, x, out, M=3, N=5)
    assert np.array_equal(out, x + x.sum(1, keepdims=True))


@wl.jit
def atomics_kernel(p, old_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    old = tl.atomic_add(p + offs % 2, 1, mask=offs < n)
    tl.store(old_ptr + offs, old, mask=offs < n)
    tl.atomic_max(p + 2, tl.program_id(0) + 7)


def test_atomics() -> None:
    p, old = np.zeros(3, np.int32), np.zeros(8, np.int32)
    launch(atomics_kernel, 2, p, old, 5, BLOCK=8)
    assert p.tolist() == [6, 4, 8]


@wl.jit
def math_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    results = (
        tl.exp(x), tl.exp2(x), x.log(), tl.log2(x), tl.sqrt(x), tl.rsqrt(x), tl.sin(x), tl.cos(x), x.erf(),
        tl.tanh(x), tl.floor(x), tl.ceil(x), abs(-x), tl.sigmoid(x), tl.clamp(x, 0.5, 2), tl.fma(x, x, 1),
        min(x, 1.0), max(x, 2), tl.where(x > 1, x, -1), x.to(tl.int32), tl.fdiv(x, 2.0),
        tl.div_rn(x, 3.0), tl.fdiv(1.0, x, ieee_rounding=True), x / 3, tl.cbrt(x), tl.cbrt(-x),
    )  # fmt: skip
    for i in tl.static_range(len(results)):
        tl.store(out_ptr + i * N + offs, results[i])


def test_elementwise_functions() -> None:
    x = RNG.uniform(0.1, 4, 13).astype(np.float32)
    d = x.astype(np.float64)
    wanted = [
        np.exp(d), np.exp2(d), np.log(d), np.log2(d), np.sqrt(d), 1 / np.sqrt(d), np.sin(d), np.cos(d),
        np.vectorize(math.erf)(d), np.tanh(d), np.floor(d), np.ceil(d), d, 1 / (1 + np.exp(-d)),
        np.clip(d, 0.5, 2), d * d + 1, np.minimum(d, 1), np.maximum(d, 2), np.where(d > 1, d, -1),
        np.trunc(d), d / 2, d / 3, 1 / d, d / 3, np.cbrt(d), -np.cbrt(d),
    ]  # fmt: skip
    out = np.zeros((len(wanted), 13), np.float32)
    launch(math_kernel, 1, x, out, N=13)
    assert np.allclose(out, np.array(wanted), rtol=1e-5, atol=1e-6)


@wl.jit
def more_atomics_kernel(p, f):
    pid = tl.program_id(0)
    tl.atomic_min(p, -pid)
    tl.atomic_and(p + 1, 6 + pid)
    tl.atomic_or(p + 2, 1 << pid)
    tl.atomic_xor(p + 3, 3)
    tl.atomic_xchg(p + 4, pid, sem="relaxed", scope="gpu")
    tl.atomic_add(f, 0.5)


def test_all_atomics() -> None:
    p, f = np.full(5, 7, np.int32), np.zeros(1, np.float32)
    launch(more_atomics_kernel, 3, p, f)
    assert p.tolist() == [-2, 7 & 6 & 7 & 8, 7 | 1 | 2 | 4, 7 ^ 3 ^ 3 ^ 3, 2]
    assert f[0] == 1.5


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_library_gemm_dtypes(dtype: type) -> None:
    a, b = integers(40, 24, dtype=dtype), integers(24, 50, dtype=dtype)
    c = np.zeros((40, 50), np.float32)
    args = [40, 50, 24, *strides(a), *strides(b), *strides(c)]
    launch(gemm.gemm_pointers, 2, a, b, c, *args, **BLOCKS)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


# ---- control flow


@wl.jit
def helper(x, scale=2.0, *, offset=0):
    if offset is None:
        return x
    return x * scale + offset


@wl.jit
def sign(x):
    if x < 0:
        return -1
    elif x == 0:
        return 0
    return 1


@wl.jit
def control_kernel(out_ptr, n, flag, STEPS: tl.constexpr):
    acc = 0
    for i in range(n):
        if i % 2 == 0 and flag:
            acc += i
        else:
            acc = acc - 1
    i = n
    while i > 3:
        i = i // 2
        acc += 100
    for s in tl.static_range(STEPS):
        acc += s * 1000
    for j in range(n, 0, -2):
        acc += j * 10000
    low = -1 if n < 5 else 1
    tl.store(out_ptr, acc)
    tl.store(out_ptr + 1, sign(n - 4))
    tl.store(out_ptr + 2, helper(low, offset=3).to(tl.int32))
    tl.store(out_ptr + 3, helper(low, offset=None))


def control_reference(n: int, flag: int, steps: int) -> list[int]:
    acc = sum(i if i % 2 == 0 and flag else -1 for i in range(n))
    i = n
    while i > 3:
        i //= 2
        acc += 100
    acc += sum(range(steps)) * 1000 + sum(range(n, 0, -2)) * 10000
    low = -1 if n < 5 else 1
    return [acc, (n > 4) - (n < 4), low * 2 + 3, low]


@pytest.mark.parametrize("n", [0, 1, 4, 9])
@pytest.mark.parametrize("flag", [0, 1])
def test_control_flow(n: int, flag: int) -> None:
    out = np.zeros(4, np.int32)
    launch(control_kernel, 1, out, n, flag, STEPS=3)
    assert out.tolist() == control_reference(n, flag, 3)


@wl.jit
def early_return_kernel(out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    if pid == 1:
        tl.store(out_ptr + pid, 7)
        return
    else:
        extra = 5
    tl.store(out_ptr + pid, extra + pid)


def test_early_return() -> None:
    out = np.zeros(5, np.int32)
    launch(early_return_kernel, 5, out, 3)
    assert out.tolist() == [5, 7, 7, 0, 0]


@wl.jit
def guarded_load_kernel(x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid) if pid < n else 9
    hit = 1 if pid < n and tl.load(x_ptr + pid) > 0 else 0
    tl.store(out_ptr + pid, x + hit)


def test_branches_with_loads_are_not_speculated() -> None:
    """The oracle faults on a load outside of the array."""
    x, out = np.array([0, 3], np.int32), np.zeros(4, np.int32)
    launch(guarded_load_kernel, 4, x, out, 2)
    assert out.tolist() == [0, 4, 9, 9]


@tl.constexpr_function
def count(n):
    return tuple(range(n))


@wl.jit
def carried_tuples(out_ptr, n):
    pair = (n, n + 1)
    for i in range(3):
        pair = (pair[1], pair[0] + i)
    a, b = pair
    swapped = (b, a) if n > 2 else (a, b)
    for k in count(2):
        tl.store(out_ptr + k, swapped[k])


@pytest.mark.parametrize("n", [1, 5])
def test_tuples_are_carried(n: int) -> None:
    out = np.zeros(2, np.int32)
    launch(carried_tuples, 1, out, n)
    a, b = n, n + 1
    for i in range(3):
        a, b = b, a + i
    assert out.tolist() == ([b, a] if n > 2 else [a, b])


# ---- matrix products


@wl.jit
def matmul_block_pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    a = tl.make_block_ptr(a_ptr, (M, K), (sam, sak), (m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (sbk, sbn), (0, n), (BLOCK_K, BLOCK_N), (1, 0))
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b, boundary_check=(0, 1))
        acc = tl.dot(x, y, acc)
        a = tl.advance(a, (0, BLOCK_K))
        b = tl.advance(b, (BLOCK_K, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (scm, scn), (m, n), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(c, acc.to(tl.float16), boundary_check=(0, 1))


def strides(x: np.ndarray) -> list[int]:
    return [s // x.itemsize for s in x.strides]


@pytest.mark.parametrize("size", [(16, 16, 16), (50, 70, 33), (7, 5, 0)])
def test_matmul_block_pointers(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, c = integers(m, k), integers(k, n), np.ones((m, n), np.float16)
    launch(
        matmul_block_pointers, (-(-m // 32), -(-n // 48)), a, b, c, m, n, k,
        *[k, 1], *[n, 1], *[n, 1], BLOCK_M=32, BLOCK_N=48, BLOCK_K=16,
    )  # fmt: skip
    assert np.array_equal(c, a @ b)


BLOCKS = {"BLOCK_M": 32, "BLOCK_N": 48, "BLOCK_K": 16, "GROUP_M": 2}


@pytest.mark.parametrize("a_order", "CF")
@pytest.mark.parametrize("b_order", "CF")
@pytest.mark.parametrize("size", [(32, 48, 16), (70, 100, 40), (3, 5, 0)])
def test_library_gemm_pointers(a_order: str, b_order: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a = np.asarray(integers(m, k), order=a_order)
    b = np.asarray(integers(k, n), order=b_order)
    c = np.ones((m, n), np.float16)
    func = launch(
        gemm.gemm_pointers, 3, a, b, c, m, n, k, *strides(a), *strides(b), *strides(c), **BLOCKS
    )
    assert np.array_equal(c, a @ b)
    assert kinds(func).count("dot") == 1


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_library_gemm_descriptors(trans_a: bool, trans_b: bool) -> None:
    m, n, k = 70, 100, 40
    a, b = integers(m, k), integers(k, n)
    stored_a = np.ascontiguousarray(a.T) if trans_a else a
    stored_b = np.ascontiguousarray(b.T) if trans_b else b
    flags = {"TRANS_A": trans_a, "TRANS_B": trans_b}
    leading = [x.shape[1] for x in (stored_a, stored_b)]
    c = np.zeros((m, n), np.float16)
    launch(
        described_gemms.gemm_device_descriptors,
        3,
        stored_a,
        stored_b,
        c,
        m,
        n,
        k,
        *leading,
        n,
        **BLOCKS,
        **flags,
    )
    assert np.array_equal(c, a @ b)

    host = [
        DescriptorType((16, 32) if trans_a else (32, 16), f16),
        DescriptorType((48, 16) if trans_b else (16, 48), f16),
        DescriptorType((32, 48), f16),
    ]
    func = translate(
        described_gemms.gemm_host_descriptors.fn, [*host, *[Scalar(i32)] * 3], {**BLOCKS, **flags}
    )
    verify(func)
    c = np.zeros((m, n), np.float16)
    args = [v for x in (stored_a, stored_b, c) for v in (x, *x.shape, *strides(x))]
    run(func, [*args, m, n, k], 3)
    assert np.array_equal(c, a @ b)


def test_host_descriptor_parameters() -> None:
    names = [name for name, _ in expand("x", DescriptorType((8, 16), f16))]
    assert names == ["x", "x_shape0", "x_shape1", "x_stride0", "x_stride1"]
    assert expand("n", Scalar(i32)) == (("n", Scalar(i32)),)


@wl.jit
def nan_padding_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK], padding_option="nan")
    p = tl.make_block_ptr(x_ptr, [n], [1], [2], [BLOCK], [0])
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, d.load([-2]))
    tl.store(out_ptr + BLOCK + offs, tl.load(p, boundary_check=(0,), padding_option="nan"))


def test_nan_padding() -> None:
    x, out = np.arange(4, dtype=np.float32), np.zeros(16, np.float32)
    launch(nan_padding_kernel, 1, x, out, 4, BLOCK=8)
    nan = np.nan
    wanted = [nan, nan, 0, 1, 2, 3, nan, nan, 2, 3, *[nan] * 6]
    assert np.array_equal(out, np.array(wanted, np.float32), equal_nan=True)


SEED = Path(__file__).resolve().parents[3] / "shared/seeds/code/seed000_matmul.py"


def test_seed_kernel() -> None:
    """The published kernel runs with its imports changed.  Square tile counts, as it needs."""
    if not SEED.exists():
        pytest.skip("the seed documents are not here")
    spec = importlib.util.spec_from_file_location("seed000", SEED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = module.matmul_persistent_ws_kernel.kernel  # below its autotuner
    m, n, k = 64, 96, 80
    a, b, c = integers(m, k), integers(k, n), np.zeros((m, n), np.float16)
    types = [*[Pointer(f16)] * 3, *[Scalar(i32)] * 9]
    func = translate(kernel.fn, types, {"BLOCK_M": 32, "BLOCK_N": 48, "BLOCK_K": 16})
    verify(func)
    assert kinds(func).count("dot") == 1 and "zeros" not in kinds(func)
    run(func, [a, b, c, m, n, k, k, 1, n, 1, n, 1], 4)
    assert np.array_equal(c, a @ b)


# ---- specialization


@wl.jit
def strided_kernel(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    if stride == 1:
        tl.store(out_ptr + offs, tl.load(x_ptr + offs))
    else:
        tl.store(out_ptr + offs, tl.load(x_ptr + offs * stride.to(tl.int64)))


def test_facts_fold_parameters() -> None:
    facts = (Fact(16), Fact(16), Fact(1, 1), Fact())
    types = [Pointer(f16), Pointer(f16), Scalar(i32), Scalar(i32)]
    func = translate(strided_kernel.fn, types, {"BLOCK": 8}, facts)
    assert [p.hint for p in func.params] == ["x_ptr", "out_ptr", "stride", "n"]
    assert func.attrs["facts"] == facts
    assert "if" not in kinds(func) and "mul" not in kinds(func)
    general = trace(strided_kernel, *[np.zeros(8, np.float16)] * 2, 3, 4, BLOCK=8)
    assert kinds(general).count("if") == 1


@wl.jit
def hinted_kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.assume(n > 0)
    n = tl.multiple_of(n, 8)
    for i in tl.range(
        0, n, BLOCK, num_stages=3, warp_specialize=True, loop_unroll_factor=2, flatten=True
    ):
        with tl.async_task([1]):
            offs = tl.max_contiguous(i + tl.arange(0, BLOCK), BLOCK)
            tl.store(x_ptr + offs, i)


def test_hints_reach_the_ir() -> None:
    func = trace(hinted_kernel, np.zeros(8, np.int32), 8, BLOCK=4)
    loop = next(o for o in func.body.ops if o.kind.name == "for")
    assert loop.attrs == {"num_stages": 3, "warp_specialize": True, "unroll": 2, "flatten": True}
    store = next(o for o in loop.regions[0].ops if o.kind.name == "store")
    assert store.tasks == {"user1"} and not loop.tasks
    assert kinds(func).count("assume") == 1
