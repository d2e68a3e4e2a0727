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


def test_an_address_of_nothing_is_refused() -> None:
    x = numbers(32)
    half = x.astype(np.float16)[:5]
    for address in (12345678, half.ctypes.data):  # of nothing, of an array that the kernel leaves
        with pytest.raises(MemoryFault, match="no array is at"):
            by_addresses[(1,)](
                np.array([address, address], np.int64), x, np.zeros(100, np.float32), 1, N=32
            )
