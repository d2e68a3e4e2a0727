"""Reductions and scans by any function: in registers and by shuffles, with at most one exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.ir.core import RuleError
from warploom.ir.ops import combine
from warploom.ir.types import f32


@wl.jit
def merged(m0, s0, w0, m1, s1, w1):
    """Mean, sum of squared differences and weight of two parts."""
    delta, weight = m1 - m0, w0 + w1
    part = tl.where(weight == 0.0, 0.0, w1 / weight)
    return m0 + delta * part, s0 + s1 + delta * delta * w0 * part, weight


@wl.jit
def composed(a, b, c, d):
    """x → a·x + b, then x → c·x + d: associative, not commutative."""
    return a * c, b * c + d


@wl.jit
def variance(x, out, N: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    mean, squares, weight = tl.reduce((v, v * 0.0, v * 0.0 + 1.0), 0, merged)
    tl.store(out + tl.program_id(0), squares / weight + mean * 0.0)


@wl.jit
def recurrence(x, out, N: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr, BACK: tl.constexpr):
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    v = tl.load(x + at)
    _, found = tl.associative_scan((v * 0.0 + 0.5, v), AXIS, composed, BACK)
    tl.store(out + at, found)


def compiled(kernel: Any, *args: Any, grid: int = 1, **how: Any) -> Any:
    return kernel.compile_for(*args, grid=(grid,), **how)


def test_a_tuple_takes_one_exchange() -> None:
    x, out = (
        np.random.default_rng(0).standard_normal((3, 2048), np.float32),
        np.zeros(3, np.float32),
    )
    made = compiled(variance, x, out, grid=3, N=2048, num_warps=8)
    assert "gather" not in made.ir["PLACED"]
    assert made.ir["PLACED"].count("exchange(") == 1
    assert made.cuda.count("__syncthreads") == 1
    made.simulate(x, out, grid=(3,))
    np.testing.assert_allclose(out, x.var(axis=1), rtol=1e-5)


@pytest.mark.parametrize(("axis", "back"), [(0, False), (1, False), (1, True)])
def test_scans_keep_the_order(axis: int, back: bool) -> None:
    x, out = (
        np.random.default_rng(1).standard_normal((16, 64), np.float32),
        np.zeros((16, 64), np.float32),
    )
    how = {"N": 16, "M": 64, "AXIS": axis, "BACK": back}
    made = compiled(recurrence, x, out, num_warps=4, **how)
    assert "scan_by" in made.ir["PLACED"]
    made.simulate(x, out, grid=(1,))
    exact, before = np.zeros_like(x), np.zeros(x.shape[1 - axis], np.float32)
    for i in range(x.shape[axis])[:: -1 if back else 1]:
        at = (i, slice(None)) if axis == 0 else (slice(None), i)
        before = exact[at] = before * 0.5 + x[at]
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text", ["add 0 2 -> 2", "add 0 1", "store 0 1 -> 2", "cast f16 0 -> 2", "add 0 x -> 2"]
)
def test_a_text_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(RuleError) as e:
        combine.combination(text, (f32,))
    assert e.value.code in ("combine", "type")


def test_a_text_is_read_as_it_was_written() -> None:
    text = "sub 1 0; const f32 0.5; mul 2 3; lt 4 0; select 5 0 4; cast f16 6; cast f32 7 -> 8"
    how = combine.combination(text, (f32,))
    assert combine.text_of(how.params, how.ops, how.results) == text


def test_in_a_field_the_steps_have_the_field_s_meaning() -> None:
    x, out = (
        np.random.default_rng(2).standard_normal((16, 64), np.float32),
        np.zeros((16, 64), np.float32),
    )
    made = compiled(recurrence, x, out, num_warps=4, N=16, M=64, AXIS=1, BACK=False)
    assert made.simulate(x, out, grid=(1,), algebra=True).is_equal


def test_it_prints_back_as_a_script(tmp_path) -> None:
    x, out = np.zeros((3, 256), np.float32), np.zeros(3, np.float32)
    text = compiled(variance, x, out, grid=3, N=256, num_warps=2).eject()
    assert "self.reduce_by(" in text and 'combine="' in text
