"""Kernels as strangers write them: what Triton's Python front end takes beyond plain expressions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from warploom.errors import CompileError
from warploom.sim.report import MemoryFault


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def launched(kernel: Any, out: Any, *args: Any, **constexprs: Any) -> Any:
    """What a kernel of one program leaves in `out` on the oracle; it compiles for sm_90a as well."""
    kernel[(1,)](*args, out, **constexprs)
    assert kernel.compile_for(*args, out, grid=(1,), **constexprs).cuda
    return out


# ---- expressions of Python


@triton.jit
def added(first: Any, *rest: Any) -> Any:
    for x in rest:
        first = first + x
    return first


TABLE = {"scale": 2.0, "shift": 5}


@triton.jit
def python_s(x_ptr: Any, n: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    square = lambda v, by=1: v * v + by  # noqa: E731 - what is tested
    parts = [tl.load(x_ptr + i + j * N) for j in tl.static_range(4) if j != 2]
    own = {"a": square(parts[0]), "b": parts[1], **{}} if False else {"a": square(parts[0], by=2)}
    own2 = dict(zip(("c", "d"), parts[1:], strict=True), e=1.0)
    total = own["a"] + own2["c"] + own2.get("d") + own2.get("z", 0.5)
    for j, (p, q) in enumerate(zip((1, 2, 3), (4, 5, 6))):  # noqa: B905 - as it is written
        total += p * j + q
    for name in own2:
        total += 1.0 if name in own2 else 100.0
    for _, v in TABLE.items():
        total += v
    if (twice := n * 2) > 3:
        total += twice
    total = added(total, *[1.0, 2.0], x_ptr.dtype.element_ty.itemsize)
    if hasattr(total, "dtype") and not hasattr(total, "colour") and hasattr(tl, "dot"):
        total = total.to(total.dtype) + getattr(total, "colour", 3)
    k = 0
    while tl.condition(k < n, disable_licm=True):
        k += 1
    kinds = all([True, n is not None]) and any((False, True)) and reversed([1, 2])[0] == 2
    tl.store(out_ptr + i, total + k + (10 if kinds else 0))


def test_lambdas_comprehensions_dicts_and_python_s_functions() -> None:
    x = numbers(4, 32)
    out = launched(python_s, np.zeros(32, np.float32), x, 3, N=32)
    want = x[0] ** 2 + 2 + x[1] + x[3] + 0.5 + (0 + 2 + 6) + 15 + 3 + 7 + 6 + 3 + 4 + 3 + 3 + 10
    np.testing.assert_allclose(out, want, rtol=1e-5)


def test_a_dict_that_changes_is_read_again() -> None:
    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr, TABLE["shift"])

    out = np.zeros(1, np.int32)
    kernel[(1,)](out)
    assert out[0] == 5
    TABLE["shift"] = 6
    try:
        kernel[(1,)](out)
    finally:
        TABLE["shift"] = 5
    assert out[0] == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}["b"]', "no entry 'b'"),
        ("[x for x in out_ptr]", "can't iterate over"),
        ("added(1, **out_ptr)", r"can't use \*\* of"),
    ],
)
def test_refusals(text: str, message: str, tmp_path: Any) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "import warploom.triton as triton, warploom.triton.language as tl\n"
        "@triton.jit\ndef added(x, *rest):\n  return x\n"
        f"@triton.jit\ndef kernel(out_ptr):\n  tl.store(out_ptr, {text})\n"
    )
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(CompileError, match=message):
        space["kernel"][(1,)](np.zeros(1, np.int32))


# ---- tuples as arguments


class Matrix(NamedTuple):
    ptr: Any
    rows: Any
    row_stride: Any = 1


@triton.jit
def loaded(m: Any, N: tl.constexpr) -> Any:
    i = tl.arange(0, N)
    return tl.load(m.ptr + i * m.row_stride, mask=i < m.rows, other=0)


@triton.jit
def of_tuples(m: Any, ptrs: Any, nested: Any, out_ptr: Any, N: tl.constexpr) -> None:
    own = Matrix(out_ptr, m.rows)
    total = loaded(m, N)
    for p in ptrs:
        if p is not None:
            total += tl.load(p + tl.arange(0, N), mask=tl.arange(0, N) < m.rows)
    (a, (b, name)), sizes = nested
    for _ in range(2):
        m = Matrix(m.ptr, m.rows + a, m.row_stride)
    if name == "double":
        total = total * b
    i = tl.arange(0, N)
    tl.store(own.ptr + i * own.row_stride, total + m.rows + len(sizes), mask=i < own.rows)


def test_tuples_and_named_tuples_are_arguments() -> None:
    x, y, z = numbers(100), numbers(64), numbers(64, seed=1)
    nested = ((3, (2.0, "double")), [])
    out = np.zeros(50, np.float32)
    launched(of_tuples, out, Matrix(x, 50, 2), [y, None, z], nested, N=64)
    np.testing.assert_allclose(out, 2 * (x[::2] + (y + z)[:50]) + 56, rtol=1e-5)
    compiled = of_tuples.compile_for(Matrix(x, 50, 2), (y, None, z), nested, out, grid=(1,), N=64)
    found = np.zeros(50, np.float32)
    compiled.simulate(Matrix(x, 50, 2), (y, None, z), nested, found, grid=(1,))
    np.testing.assert_allclose(found, out, rtol=1e-6)


@triton.jit
def of_many(out_ptr: Any, *ptrs: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for p in ptrs:
        total += tl.load(p + i)
    tl.store(out_ptr + i, total)


def test_a_kernel_takes_any_number_of_arguments() -> None:
    xs = [numbers(32, seed=s) for s in range(3)]
    out = np.zeros(32, np.float32)
    of_many[(1,)](out, *xs, N=32)
    np.testing.assert_allclose(out, sum(xs), rtol=1e-6)
    of_many[(1,)](out, N=32)
    assert not out.any()


# ---- addresses


@triton.jit
def by_addresses(addresses: Any, x_ptr: Any, out_ptr: Any, G: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    half = tl.pointer_type(tl.float16)
    for g in range(G):
        p = tl.load(addresses + g).to(half)
        if p:  # noqa: SIM108 - what is tested
            row = tl.load(p + i).to(tl.float32)
        else:
            row = tl.load(x_ptr + i)
        tl.store(out_ptr + g * N + i, row)
    here = out_ptr.to(tl.int64)
    again = here.to(tl.pointer_type(tl.float32))
    same = (again == out_ptr) and (out_ptr + 1 != again)
    tl.store(again + G * N, tl.where(same, ((out_ptr + 3).to(tl.int64) - here) + 0.5, 0.0))
    many = tl.load(addresses + tl.arange(0, 2)).to(half, bitcast=True)
    tl.store(out_ptr + G * N + 1 + tl.arange(0, 2), tl.load(many + 1).to(tl.float32))
    bits = tl.load((x_ptr + i).to(tl.pointer_type(tl.int32)))
    tl.store(
        out_ptr + G * N + 3,
        tl.sum((bits == tl.load(x_ptr + i).to(tl.int32, bitcast=True)).to(tl.float32)),
    )


@pytest.mark.usefixtures("few_objects")
def test_addresses_from_memory_are_pointers() -> None:
    halves = [numbers(32, seed=s).astype(np.float16) for s in (1, 2)]
    addresses = np.array([*(h.ctypes.data for h in halves), 0], np.int64)
    x = numbers(32)
    out = launched(by_addresses, np.zeros(100, np.float32), addresses, x, G=3, N=32)
    want = [*(h.astype(np.float32) for h in halves), x]
    assert np.array_equal(out[:96].reshape(3, 32), want)
    assert out[96:].tolist() == [12.5, *(float(h[1]) for h in halves), 32]
    found = np.zeros(100, np.float32)
    compiled = by_addresses.compile_for(addresses, x, found, G=3, N=32)
    compiled.simulate(addresses, x, found, 3, grid=(1,))
    assert np.array_equal(found, out)


@triton.jit
def behind_a_condition(x_ptr: Any, n: Any, stride: Any, limit: Any, out_ptr: Any) -> None:
    if limit == 1:
        return
    i = tl.arange(0, 64)
    again = x_ptr.to(tl.int64).to(tl.pointer_type(tl.int32))  # known only where the kernel goes on
    x = tl.load(again + (64 + i) * stride, mask=64 + i < n)
    tl.store(out_ptr + i, x)


@pytest.mark.parametrize("stride", [1, 3])
def test_an_address_made_behind_a_condition_is_the_base_of_a_view(stride: int) -> None:
    x = np.arange(111 * stride, dtype=np.int32)
    want = np.r_[x[64 * stride :: stride], np.zeros(17, np.int32)]
    found = np.full(64, -1, np.int32)
    assert np.array_equal(launched(behind_a_condition, found, x, 111, stride, 0), want)
    compiled = behind_a_condition.compile_for(x, 111, stride, 0, found)
    found[:] = -1
    compiled.simulate(x, 111, stride, 0, found, grid=(1,))
    assert np.array_equal(found, want)


@pytest.mark.usefixtures("few_objects")
def test_an_address_of_nothing_is_refused() -> None:
    x = numbers(32)
    half = x.astype(np.float16)[:5]
    for address in (12345678, half.ctypes.data):  # of nothing, of an array that the kernel leaves
        with pytest.raises(MemoryFault, match="no array is at"):
            by_addresses[(1,)](
                np.array([address, address], np.int64), x, np.zeros(100, np.float32), 1, N=32
            )


# ---- pointers that a condition chooses


@triton.jit
def chooses(x_ptr: Any, y_ptr: Any, n: Any, out_ptr: Any, OTHER: tl.constexpr) -> None:
    i = tl.arange(0, 64)
    total = tl.zeros([64], tl.float32)
    for step in range(n):
        tl.store(y_ptr + step * 64 + i, total)
        own = x_ptr + n if step == n - 1 else x_ptr + step * 2
        total += tl.load(y_ptr if step == 5 and OTHER else own) * i
    tl.store(out_ptr + i, total)


@pytest.mark.parametrize("other", [False, True])
def test_of_one_array_what_a_condition_chooses_is_in_that_array(other: bool) -> None:
    """Then no barrier stands between such a load and stores to others; else the program's own stores count."""
    x, y, out = numbers(32), np.zeros(9 * 64, np.float32), np.zeros(64, np.float32)
    exact = sum(x[9 if step == 8 else 2 * step] for step in range(9)) - other * x[10]
    launched(chooses, out, x, y, 9, OTHER=other)
    assert np.allclose(out, exact * np.arange(64), rtol=1e-5)
    compiled = chooses.compile_for(x, y, 9, out, grid=(1,), OTHER=other)
    out[:] = 0
    compiled.simulate(x, y, 9, out, grid=(1,))
    assert np.allclose(out, exact * np.arange(64), rtol=1e-5)
    loop = compiled.cuda.partition("for (int step")[2].partition("\n    }\n")[0]
    assert "load_global" in loop and ("__syncthreads" in loop) is other


# ---- aggregates


@triton.aggregate
class Running:
    """A sum of tiles, and how many."""

    total: tl.tensor
    count: tl.tensor
    SIZE: tl.constexpr
    scale: tl.constexpr = 2

    @triton.jit
    def add(self, x: Any) -> Any:
        return tl.aggregate_replace(self, total=self.total + x, count=self.count + 1)

    @triton.jit
    def __mul__(self, factor: Any) -> Any:
        return Running(self.total * factor, self.count, self.SIZE)

    @triton.jit
    def mean(self) -> Any:
        return tl.sum(self.total, 0) / (self.count * self.SIZE) * self.scale


@tl.core._aggregate
class Scaled(Running):
    factor: tl.constexpr

    @triton.constexpr_function
    def __init__(self, inner: Any, factor: Any) -> None:
        self.total, self.count = inner.total, inner.count
        self.SIZE, self.scale = inner.SIZE, tl.constexpr(3)
        self.factor = tl.constexpr(factor.value * 2)


@triton.jit
def aggregated(x_ptr: Any, T: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    a = Running(tl.zeros((N,), tl.float32), 0, SIZE=N)
    for t in range(T):
        a = a.add(tl.load(x_ptr + t * N + i))
        if t > 0:
            a = a * 0.5
    b = Scaled(a, 4)
    if isinstance(b, Running) and not isinstance(a, Scaled):
        tl.store(out_ptr, a.mean())
        tl.store(out_ptr + 1, b.mean())
        tl.store(out_ptr + 2, b.factor)


def test_aggregates() -> None:
    x = numbers(3, 32)
    out = launched(aggregated, np.zeros(3, np.float32), x, 3, N=32)
    total = ((x[0] + x[1]) * 0.5 + x[2]) * 0.5
    np.testing.assert_allclose(out, [total.sum() / 48, total.sum() / 32, 8], rtol=1e-5)


# ---- functions of single elements


@triton.jit
def clipped(x: Any, low: Any) -> Any:
    if x < low:
        return low, 0
    count = 0
    if x > 1:
        x = 1.0
        count = 2
    elif x > 0:
        x = x / 2
        count += 1
    return x, count


@triton.jit
def swapped(a: Any, b: Any) -> Any:
    return b, a


@triton.jit
def by_element(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y, count = tl.map_elementwise(clipped, x, -0.5)
    tl.store(out_ptr + i, y)
    tl.store(out_ptr + N + i, count.to(tl.float32))
    tl.store(out_ptr + 2 * N + i, tl.map_elementwise(swapped, x, pack=2))


def test_map_elementwise() -> None:
    x = numbers(64)
    out = launched(by_element, np.zeros((3, 64), np.float32), x, N=64)
    want = np.where(x < -0.5, -0.5, np.where(x > 1, 1, np.where(x > 0, x / 2, x)))
    count = np.where(x < -0.5, 0, np.where(x > 1, 2, x > 0))
    np.testing.assert_allclose(out, [want, count, x.reshape(32, 2)[:, ::-1].ravel()], rtol=1e-6)


def test_an_element_s_if_has_no_effects() -> None:
    @triton.jit
    def stores(x: Any, out_ptr: Any) -> Any:
        if x > 0:
            tl.store(out_ptr, 1.0)
        return x

    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.map_elementwise(stores, tl.arange(0, 8), out_ptr)

    with pytest.raises(CompileError, match="under an if on single elements"):
        kernel[(1,)](np.zeros(8, np.float32))


# ---- what came after Triton 3.6, and before 3.3


@triton.jit
def newer(x_ptr: Any, flag_ptr: Any, out_ptr: Any, N: tl.constexpr) -> tl.void:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    o = out_ptr + i
    tl.store(o, tl.squeeze(tl.unsqueeze(x, 1), 1) + tl.to_tensor(3))
    tl.store(o + N, tl.maximum(x, 0.5, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o + 2 * N, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.NONE))
    tl.store(o + 3 * N, tl.topk(x, N, descending=False))
    tl.store(o + 4 * N, tl.cumprod(x, dtype=tl.float64).to(tl.float32))
    tl.store(o + 5 * N, tl.expect_zero(x, x != x) + tl.fdiv(x, 2.0, approx=True))
    tl.store(o + 6 * N, x.to(tl.float16, fp_downcast_rounding="rtz").to(tl.float32))
    pair = (1, 2, 3)[tl.slice(1, None, None)] if tl.target_info.is_cuda() else (0,)
    if tl.target_info.cuda_capability_geq(9, 0) and not tl.target_info.is_hip():
        tl.store(o + 7 * N, x * pair[1])
    flags = flag_ptr + tl.arange(0, 4)
    tl.atomic_store(flags, tl.atomic_load(flags, sem="acquire") + 2)
    seen = tl.atomic_poll(flags, tl.arange(0, 4) + 2, timeout_ns=2000)
    late = flag_ptr.atomic_poll(77, timeout_ns=0)
    tl.store(flag_ptr + 4, tl.sum(seen.to(tl.int32)) + 10 * late)


def test_newer_names() -> None:
    x = numbers(32)
    x[3] = np.nan
    flags = np.array([0, 1, 2, 0, 9], np.int32)
    with np.errstate(invalid="ignore"):
        x = np.where(np.isnan(x), np.float32(0.25), x)
        out = launched(newer, np.zeros((8, 32), np.float32), x, flags, N=32)
        near = x.astype(np.float16)
        toward = np.where(
            np.abs(near.astype(np.float32)) > np.abs(x), np.nextafter(near, np.float16(0)), near
        )
    want = [
        x + 3, np.maximum(x, 0.5), np.clip(x, -1, 1), np.sort(x), np.cumprod(x.astype(float)), x * 1.5,
        toward, x * 3,
    ]  # fmt: skip
    np.testing.assert_allclose(out, np.array(want), rtol=1e-5)
    assert flags.tolist() == [2, 3, 4, 2, 3]


def test_a_nan_goes_through_where_it_is_asked_for() -> None:
    @triton.jit
    def kernel(x_ptr: Any, out_ptr: Any) -> None:
        x = tl.load(x_ptr)
        tl.store(out_ptr, tl.minimum(1.0, x, propagate_nan=tl.PropagateNan.ALL))
        tl.store(out_ptr + 1, tl.minimum(1.0, x))

    out = np.zeros(2, np.float32)
    kernel[(1,)](np.full(1, np.nan, np.float32), out)
    assert np.isnan(out[0]) and out[1] == 1


@triton.jit
def boxes(
    x_ptr: tl.const,
    at_ptr: tl.pi32_t,
    out_ptr: Any,
    M: Any,
    N: Any,
    R: tl.constexpr,
    C: tl.constexpr,
) -> None:
    rows = tl.load(at_ptr + tl.arange(0, R))
    of_x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, C])
    got = of_x.gather(rows, 1)
    to = tl._experimental_make_tensor_descriptor(out_ptr, [M, N], [N, 1], [1, C])
    to.scatter(got, rows, 0)
    whole = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [R, C])
    for _ in range(2):
        whole.atomic_add([M - 3, 0], tl.full((R, C), 1.0, tl.float32))
    tl._experimental_descriptor_store(
        whole, tl._experimental_descriptor_load(whole, [0, 0]) + 1, [0, 0]
    )


def test_descriptors_gather_scatter_and_add() -> None:
    x = numbers(9, 16)
    rows = np.array([5, 0, 7, 12], np.int32)
    out = np.zeros((9, 16), np.float32)
    boxes[(1,)](x, rows, out, 9, 16, R=4, C=8)
    want = np.zeros((9, 16), np.float32)
    want[rows[:3], :8] = x[rows[:3], 1:9]
    want[6:, :8] += 2
    want[:4, :8] += 1
    np.testing.assert_allclose(out, want, rtol=1e-6)
    assert boxes.compile_for(x, rows, out, 9, 16, R=4, C=8).cuda


@triton.constexpr_function
def is_of_amd() -> bool:
    target = tl.target_info.current_target()
    return target.backend == "hip" and target.arch == "gfx942"


@triton.jit
def by_target(out_ptr: Any) -> None:
    info = tl.target_info
    other = info.is_hip_cdna3() or info.is_hip_cdna4() or info.is_hip_gfx1250()
    tl.static_assert(not other and info.current_target().backend == "cuda" and not is_of_amd())
    tl.store(out_ptr, 1 if info.cuda_capability_geq(9, 0) else 2)


def test_what_a_kernel_knows_of_its_target() -> None:
    out = launched(by_target, np.zeros(1, np.int32))
    assert out[0] == 1
    ampere = by_target.compile_for(out, grid=(1,), target="sm_80")
    ampere.simulate(out, grid=(1,))
    assert out[0] == 2


def test_descriptors_of_addresses() -> None:
    make = triton.tools.experimental_descriptor.create_2d_tma_descriptor

    @triton.jit
    def kernel(desc: Any, out_ptr: Any) -> None:
        x = tl._experimental_descriptor_load(desc, [2, 0], [4, 8], tl.bfloat16)
        i, j = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
        tl.store(out_ptr + i * 8 + j, x.to(tl.float32))

    import ml_dtypes

    x = numbers(9, 8).astype(ml_dtypes.bfloat16)
    out = np.zeros((4, 8), np.float32)
    kernel[(1,)](make(x.ctypes.data, 9, 8, 4, 8, 2), out)
    assert np.array_equal(out, x[2:6].astype(np.float32))

    @triton.jit
    def copied(source: Any, target: Any) -> None:
        x = tl._experimental_descriptor_load(source, [2, 0], [4, 8], tl.bfloat16)
        tl._experimental_descriptor_store(target, x + x, [5, 0])

    y = np.zeros_like(x)
    copied[(1,)](make(x.ctypes.data, 9, 8, 4, 8, 2), make(y.ctypes.data, 9, 8, 4, 8, 2))
    assert np.array_equal(y[5:], 2 * x[2:6])


@triton.jit
def mixed_integers(a_ptr: Any, u_ptr: Any, w_ptr: Any, h_ptr: Any, out_ptr: Any) -> None:
    i = tl.arange(0, 16)
    a, u, w = tl.load(a_ptr + i), tl.load(u_ptr + i), tl.load(w_ptr + i)
    shifted = a >> (u & 7)
    tl.static_assert(shifted.dtype == tl.uint8)
    tl.store(out_ptr + i, shifted.to(tl.int8, bitcast=True))
    compared = (u < 300).to(tl.int32) + 2 * (a < 300).to(tl.int32) + 4 * (u == 256).to(tl.int32)
    compared += 8 * (u > -1).to(tl.int32) + 16 * (w < -1).to(tl.int32)
    tl.store(out_ptr + 16 + i, compared)
    h = tl.load(h_ptr + i)
    tl.static_assert(tl.fdiv(h, h + 1).dtype == tl.float16)
    square = tl.full((16, 16), 1, tl.float16)
    tl.static_assert(tl.dot(square, square, out_dtype=tl.float16).dtype == tl.float16)
    wide = square.to(tl.bfloat16)
    tl.static_assert(tl.dot(wide, wide, out_dtype=tl.float16).dtype == tl.float32)
    tl.store(out_ptr + 32 + i, (tl.fdiv(h, h) == 1).to(tl.int32))


def test_integers_of_two_dtypes_as_in_triton() -> None:
    """A shift to the right is arithmetic by its left operand; what a literal is compared with may be wider."""
    rng = np.random.default_rng(0)
    a, u = rng.integers(-128, 128, 16).astype(np.int8), rng.integers(0, 256, 16).astype(np.uint8)
    w, h = rng.integers(0, 1 << 31, 16).astype(np.uint32), (1 + rng.random(16)).astype(np.float16)
    out = launched(mixed_integers, np.zeros(48, np.int32), a, u, w, h)
    assert np.array_equal(out[:16], a.astype(np.int32) >> (u & 7))
    assert (out[16:32] == 1 + 2 + 8 + 16).all() and (out[32:] == 1).all()


@triton.jit
def power(x: Any, N: tl.constexpr) -> Any:
    if N == 0:
        return x * 0 + 1
    half = power(x, N // 2)
    return half * half * x if N % 2 else half * half


@triton.jit
def powers(x_ptr: Any, out_ptr: Any, N: tl.constexpr, DEPTH: tl.constexpr) -> None:
    i = tl.arange(0, 8)
    tl.store(out_ptr + i, power(tl.load(x_ptr + i), N) + deep(i, DEPTH))


@triton.jit
def deep(x: Any, N: tl.constexpr) -> Any:
    if N > 0:
        return deep(x + 1, N - 1)
    return x


def test_functions_that_call_themselves_are_ended_by_constexprs() -> None:
    x = np.arange(8, dtype=np.int32)
    out = launched(powers, np.zeros_like(x), x, N=5, DEPTH=31)
    assert np.array_equal(out, x**5 + x + 31)
    with pytest.raises(CompileError, match="deep calls itself 32 times") as e:
        launched(powers, out, x, N=5, DEPTH=40)
    assert "an `if` of a constexpr" in str(e.value.help)
    assert str(e.value).count("called from here") == 2


@triton.jit
def single_elements(x_ptr: Any, out_ptr: Any) -> None:
    one = tl.load(x_ptr + tl.arange(0, 1))
    tl.static_assert(not one.item().type.is_block())
    tl.store(out_ptr, one.item() + tl.item(one[None, :]) + (one < 9).item().to(tl.float32))
    tl.store(out_ptr + 1, tl.load(x_ptr).item())


def test_the_only_element_of_a_tile() -> None:
    out = launched(single_elements, np.zeros(2, np.float32), np.full(1, 2.5, np.float32))
    assert out.tolist() == [6, 2.5]


@triton.jit
def axes_that_are_not_named(x_ptr: Any, out_ptr: Any, M: tl.constexpr, N: tl.constexpr) -> None:
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.static_assert(x[None].shape == (1, M, N) and x[:, None].shape == (M, 1, N))
    tl.store(out_ptr + at, tl.sum(x[None], 0) + tl.sum(x[:, None], 1) + x[:])


def test_axes_that_a_subscript_does_not_name_are_kept() -> None:
    x = numbers(8, 16)
    out = launched(axes_that_are_not_named, np.zeros_like(x), x, M=8, N=16)
    assert np.array_equal(out, 3 * x)


@triton.jit
def dtypes_by_name(x_ptr: Any, out_ptr: Any) -> None:
    x = tl.load(x_ptr)
    tl.static_assert(x.dtype.name == "fp16" and tl.float8e4nv.name == "fp8e4nv")
    tl.static_assert(x_ptr.dtype.element_ty.name == "fp16" and tl.uint8.name == "uint8")
    tl.static_assert(tl.bfloat16.name == "bf16" and (x > 0).dtype.name == "int1")
    tl.store(out_ptr, x)


def test_names_of_dtypes() -> None:
    out = launched(dtypes_by_name, np.zeros(1, np.float16), np.full(1, 3, np.float16))
    assert out[0] == 3


def test_repr_names_a_kernel() -> None:
    named = triton.jit(repr=lambda s: f"sum of {s.constants['N']}, {s.signature['x_ptr']}")
    kernel = named(lambda_free)
    x, out = numbers(8), np.zeros(8, np.float32)
    compiled = kernel.warmup(x, out, N=8, grid=(1,))
    assert compiled.name == compiled.metadata.name == "sum_of_8___fp32_16"
    assert "sum_of_8___fp32_16(" in compiled.cuda
    assert named(lambda_free).warmup(x, out, N=4, grid=(1,)).name.startswith("sum_of_4")


def lambda_free(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


def test_device_print_shows_bits(capsys: pytest.CaptureFixture[str]) -> None:
    @triton.jit
    def kernel(n: Any) -> None:
        tl.device_print("n", n, hex=True)

    kernel[(1,)](255)
    assert "0xff" in capsys.readouterr().out
    assert "0x%" in kernel.compile_for(254, grid=(1,)).cuda


most = triton.constexpr_function(max)


@triton.jit
def filled(out_ptr: Any, N: tl.constexpr, M: tl.constexpr) -> None:
    tl.store(out_ptr + tl.arange(0, N), most(N, M))


def test_functions_without_python_text_run_while_compiling() -> None:
    out = launched(filled, np.zeros(16, np.float32), N=16, M=3)
    assert (out == 16).all()


# ---- annotations


@triton.jit
def parted(x_ptr: Any, n: Any, out_ptr: Any, N: tl.constexpr, PARTS: tl.constexpr) -> None:
    # As PyTorch's template of decoding attention has it: what only the run knows, called a constexpr.
    chunk: tl.constexpr = tl.cdiv(n, PARTS) // N
    rest: tl.constexpr = N
    total = tl.zeros((N,), tl.float32)
    for part in range(PARTS):
        for block in range(part * chunk, part * chunk + chunk):
            total += tl.load(x_ptr + block * N + tl.arange(0, rest)) * (part + 1)
    tl.store(out_ptr + tl.arange(0, N), total)


def test_what_is_annotated_as_a_constexpr_may_be_known_to_the_run_alone() -> None:
    x = numbers(12, 16)
    out = launched(parted, np.zeros(16, np.float32), x, 12 * 16, N=16, PARTS=4)
    expected = (x.reshape(4, 3, 16) * np.arange(1, 5, dtype=np.float32)[:, None, None]).sum((0, 1))
    np.testing.assert_allclose(out, expected, rtol=1e-5)
