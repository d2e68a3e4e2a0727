"""Integers divided by 0 at run time: an error where the result is used, in the oracle and the simulator alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import WarploomError
from warploom.sim.undefined import Divisions

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def both(kernel: Any, *args: Any, **meta: Any) -> None:
    """Runs a kernel of one program by the oracle, then by the simulator, which must leave the same."""
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel[(1,)](*kept, **meta)
    for order in ("late", "early"):
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        kernel.compile_for(*given, **meta, grid=1).simulate(*given, grid=1, order=order)
        for x, y in zip(kept, given, strict=True):
            assert np.array_equal(x, y)
    for x, y in zip(args, kept, strict=True):
        if isinstance(x, np.ndarray):
            x[...] = y


def refused(kernel: Any, *args: Any, line: str, **meta: Any) -> None:
    """Both refuse it at a line."""
    compiled = kernel.compile_for(*args, **meta, grid=1)
    for run in (lambda: kernel[(1,)](*args, **meta), lambda: compiled.simulate(*args, grid=1)):
        with pytest.raises(WarploomError) as said:
            run()
        text = str(said.value)
        assert "error[zero-division]" in text and line in text, text
        assert "0 at run time" in text and "help: test the divisor first" in text


@wl.jit
def quotient(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n // d)


@wl.jit
def remainder(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n % d)


@wl.jit
def guarded(o: Any, n: Any, d: Any) -> None:
    x = n // d if d != 0 else -1
    if d != 0:
        x += n % d
    tl.store(o, x)


@wl.jit
def selected(o: Any, n: Any, d: Any) -> None:
    tl.store(o, tl.where(d != 0, n // d, -1))


@wl.jit
def under_a_mask(x: Any, o: Any, w: Any, h: Any) -> None:
    i = tl.arange(0, 16)
    inside = i < w * h
    tl.store(o + i, tl.load(x + i // w * w + i % w, mask=inside, other=5))


@wl.jit
def by_elements(x: Any, d: Any, o: Any, KEPT: tl.constexpr) -> None:
    i = tl.arange(0, 64)
    by = tl.load(d + i)
    tl.store(o + i, tl.load(x + i) // by, mask=(by != 0) | (i >= KEPT))


@wl.jit
def condition_of_both(o: Any, n: Any, d: Any) -> None:
    if (d != 0) & (n // d > 2):
        tl.store(o, 1)


@wl.jit
def branch(o: Any, n: Any, d: Any) -> None:
    if n // d > 2:
        tl.store(o, 1)


@wl.jit
def trips(o: Any, n: Any, d: Any) -> None:
    x = 0
    for i in range(n // d):
        x += i
    tl.store(o, x)


@wl.jit
def address(x: Any, o: Any, n: Any, d: Any) -> None:
    tl.store(o, tl.load(x + n // d))


@wl.jit
def carried(o: Any, n: Any, d: Any, STEPS: tl.constexpr) -> None:
    x = n // d
    for _ in range(STEPS):
        x = x * 2
    tl.store(o, x, mask=d != 0)


@wl.jit
def summed(x: Any, d: Any, o: Any, WHERE: tl.constexpr) -> None:
    i = tl.arange(0, 64)
    by = tl.load(d + i)
    y = tl.load(x + i) // by
    y = tl.where(by != 0, y, 0) if WHERE else y
    tl.store(o, tl.sum(y))
    tl.store(o + i, tl.cumsum(y), mask=i < 3)


@wl.jit
def product(a: Any, b: Any, d: Any, o: Any, K: Any, WHERE: tl.constexpr) -> None:
    i, j = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + (k + j)[None, :])
        y = tl.load(b + (k + i)[:, None] * 64 + j[None, :])
        acc = tl.dot(x, y, acc)
    by = tl.load(d + j)
    n = 96 // by
    scale = tl.where(by != 0, n, 0) if WHERE else n
    tl.store(o + i[:, None] * 64 + j[None, :], acc * scale[None, :].to(tl.float32))


@wl.jit
def operand(a: Any, d: Any, o: Any) -> None:
    i = tl.arange(0, 64)
    by = tl.load(d + i)
    x = tl.load(a + i[:, None] * 64 + i[None, :])
    y = (96 // by)[:, None].to(tl.float16) + tl.zeros((64, 64), tl.float16)
    tl.store(o + i[:, None] * 64 + i[None, :], tl.dot(x, y))


@wl.jit
def ragged(a: Any, b: Any, d: Any, o: Any, M: Any, K: Any) -> None:
    i, j = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + (k + j)[None, :], mask=(i < M)[:, None], other=0.0)
        y = tl.load(b + (k + i)[:, None] * 64 + j[None, :])
        acc = tl.dot(x, y, acc)
    by = tl.load(d + i, mask=i < M, other=0)
    whole = acc.to(tl.int32) // by[:, None]
    tl.store(o + i[:, None] * 64 + j[None, :], whole, mask=(i < M)[:, None])


@wl.jit
def of_floats(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n / d)


@wl.jit
def of_a_product(o: Any, n: Any, a: Any, b: Any) -> None:
    a, b = tl.maximum(a, 1), tl.maximum(b, 1)
    tl.store(o, n // (a * b) + n // a)


@pytest.mark.parametrize(("kernel", "symbol"), [(quotient, "//"), (remainder, "%")])
def test_a_number_divided_by_zero(kernel: Any, symbol: str) -> None:
    out = np.zeros(1, np.int32)
    refused(kernel, out, 7, 0, line=f"tl.store(o, n {symbol} d)")
    both(kernel, out, 7, 2)
    assert out[0] == (3 if symbol == "//" else 1)


@pytest.mark.parametrize("kernel", [guarded, selected])
@pytest.mark.parametrize("d", [0, 2])
def test_what_is_guarded(kernel: Any, d: int) -> None:
    out = np.zeros(1, np.int32)
    both(kernel, out, 7, d)
    assert out[0] == (-1 if not d else 4 if kernel is guarded else 3)


@pytest.mark.parametrize("d", [0, 1])
def test_a_condition_that_tests_the_divisor_first(d: int) -> None:
    out = np.zeros(1, np.int32)
    both(condition_of_both, out, 7, d)
    assert out[0] == d


@pytest.mark.parametrize(
    ("kernel", "line"), [(branch, "if n // d > 2"), (trips, "range(n // d)"), (quotient, "n // d")]
)
def test_what_control_flow_asks_for(kernel: Any, line: str) -> None:
    refused(kernel, np.zeros(1, np.int32), 7, 0, line=line)


def test_an_address() -> None:
    refused(address, np.ones(8, np.int32), np.zeros(1, np.int32), 7, 0, line="tl.load(x + n // d)")


def test_divisors_that_wrap_around() -> None:
    out = np.zeros(1, np.int32)
    both(of_a_product, out, 7, 2, 3)  # neither factor is 0 …
    assert out[0] == 4
    refused(of_a_product, out, 7, 1 << 16, 1 << 16, line="n // (a * b)")  # … but this product is 0
    divisions = Divisions(of_a_product.compile_for(out, 7, 2, 3, grid=1).placed).ops
    assert len(divisions) == 1  # of a nothing is asked at run time


@pytest.mark.parametrize("steps", [0, 3])
def test_what_loops_carry(steps: int) -> None:
    out = np.zeros(1, np.int32)
    both(carried, out, 7, 0, STEPS=steps)
    assert out[0] == 0


@pytest.mark.parametrize("w", [0, 4])
def test_under_a_mask(w: int) -> None:
    x, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    both(under_a_mask, x, out, w, 2)
    assert np.array_equal(out, np.where(np.arange(16) < w * 2, x, 5))


def divisors() -> np.ndarray[Any, Any]:
    found = np.arange(1, 65, dtype=np.int32)
    found[[5, 17]] = 0
    return found


def test_elements_that_a_mask_drops() -> None:
    x, d, out = np.arange(64, dtype=np.int32) * 7, divisors(), np.zeros(64, np.int32)
    both(by_elements, x, d, out, KEPT=64)
    assert np.array_equal(out, np.where(d != 0, x // np.where(d != 0, d, 1), 0))
    refused(by_elements, x, d, out, KEPT=16, line="tl.load(x + i) // by")


@pytest.mark.parametrize("kernel", [summed])
def test_reductions(kernel: Any) -> None:
    x, d, out = np.arange(64, dtype=np.int32) * 7, divisors(), np.zeros(64, np.int32)
    both(kernel, x, d, out, WHERE=True)
    refused(kernel, x, d, out, WHERE=False, line="tl.load(x + i) // by")


@pytest.mark.parametrize("groups", [0, 1])
def test_beside_dots(groups: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 128), (128, 64)))
    out = np.zeros((64, 64), np.float32)
    both(product, a, b, divisors(), out, 128, WHERE=True, num_consumer_groups=groups)
    assert out[:, 5].any() == 0 and out[:, 4].any()
    refused(product, a, b, divisors(), out, 128, WHERE=False, line="96 // by")


@pytest.mark.parametrize("groups", [0, 1])
def test_rows_behind_the_last(groups: int) -> None:
    """They pass through shared memory on their way to a store that drops them."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((48, 128), (128, 64)))
    by, out = np.full(48, 3, np.int32), np.zeros((48, 64), np.int32)
    both(ragged, a, b, by, out, 48, 128, num_consumer_groups=groups)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(out, np.trunc(exact / 3).astype(np.int32))
    by[47] = 0
    refused(ragged, a, b, by, out, 48, 128, line="acc.to(tl.int32) // by")


def test_operands_of_dots() -> None:
    x, out = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
    refused(operand, x, divisors(), out, line="96 // by")
    both(operand, x, np.full(64, 3, np.int32), out)
    assert (out == 32 * 64).all()


def test_floats_have_an_infinity() -> None:
    out = np.zeros(1, np.float32)
    both(of_floats, out, 7, 0)
    assert np.isinf(out[0])


# ---- inside the functions of reductions and scans


@wl.jit
def divide(a: Any, b: Any) -> Any:
    return a // b


@wl.jit
def divide_where(a: Any, b: Any) -> Any:
    return tl.where(b != 0, a // b, a)


@wl.jit
def divide_first(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a % c, b + d


@wl.jit
def reduced_by(x: Any, o: Any, F: tl.constexpr) -> None:
    tl.store(o, tl.reduce(tl.load(x + tl.arange(0, 16)), 0, F))


@wl.jit
def scanned_by(x: Any, o: Any, F: tl.constexpr, KEPT: tl.constexpr, BACK: tl.constexpr) -> None:
    i = tl.arange(0, 16)
    found = tl.associative_scan(tl.load(x + i), 0, F, reverse=BACK)
    tl.store(o + i, found, mask=i >= KEPT if BACK else i < KEPT)


@wl.jit
def scanned_in_pairs(x: Any, o: Any, ALSO: tl.constexpr) -> None:
    i = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    a = tl.load(x + i)
    left, right = tl.associative_scan((a, a), 0, divide_first)
    tl.store(o + i, left + right if ALSO else right)


def test_functions_that_combine_divide_as_kernels_do() -> None:
    """What is in front of a 0 is right, what is behind it is refused where it is stored."""
    x, o = np.ones(16, np.int32), np.zeros(16, np.int32)
    both(reduced_by, x, o, F=divide)
    x[5] = 0
    refused(reduced_by, x, o, F=divide, line="tl.reduce(")
    both(reduced_by, x, o, F=divide_where)
    both(scanned_by, x, o, F=divide_where, KEPT=16, BACK=False)
    o[:] = 0
    both(scanned_by, x, o, F=divide, KEPT=5, BACK=False)
    assert o.tolist() == [1] * 5 + [0] * 11
    refused(scanned_by, x, o, F=divide, KEPT=6, BACK=False, line="tl.associative_scan(")
    both(scanned_by, x, o, F=divide, KEPT=6, BACK=True)
    refused(scanned_by, x, o, F=divide, KEPT=5, BACK=True, line="tl.associative_scan(")


def test_a_part_that_divides_by_0_is_refused_where_it_is_used() -> None:
    x, o = np.arange(16).astype(np.int32)[::-1].copy(), np.zeros(16, np.int32)
    both(scanned_in_pairs, x, o, ALSO=False)
    assert o.tolist() == np.cumsum(x.reshape(4, 4), 0).ravel().tolist()
    refused(scanned_in_pairs, x, o, ALSO=True, line="tl.associative_scan(")
