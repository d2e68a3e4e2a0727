"""The sums that the GPU is asked tell the rule from others, also where the record was thin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import sum_cases
from tests.gpu.sum_cases import CASES, Problem
from tests.sim.tensor_core_vectors import FORMATS, UNRECORDED, dtypes_of
from warploom.sim import tensor_core
from warploom.sim.tensor_core import Arithmetic, accumulate, rule
from warploom.target.sm_90a import WGMMA

EVERY = [*FORMATS, *UNRECORDED]
every = pytest.mark.parametrize("name", EVERY)


def sums(made: Any, rule: Arithmetic) -> Any:
    a, b, c = made
    left, right = (np.ascontiguousarray(x.swapaxes(0, 1)).reshape(x.shape[1], -1) for x in (a, b))
    return accumulate(left, right.T, c, rule).view(f"u{c.itemsize}")


def drawn(name: str, case: Any, seed: int = 0, steps: int = 1) -> Any:
    with np.errstate(all="ignore"):
        return case(Problem(np.random.default_rng(seed), name, steps, 16))


def rule_of(name: str) -> Arithmetic:
    return rule(WGMMA, *dtypes_of(name))


@every
@pytest.mark.each(2)
def test_neighbours_differ_on_them(name: str) -> None:
    rule = rule_of(name)
    made = [drawn(name, case, seed, 2) for case in CASES for seed in range(8)]
    others = {
        "less": replace(rule, kept=rule.kept - 1),
        "more": replace(rule, kept=rule.kept + 1),
        "halves": replace(rule, k=rule.k // 2),
        "apart": replace(rule, after=True),
    }
    if rule.rounding == "cut":
        others["shorter"] = replace(rule, fraction=rule.fraction - 1)
    if name in ("bf16", "tf32"):
        others |= {f"floor {f}": replace(rule, floor=f) for f in (-(10**5), -134, -132)}
    for what, other in others.items():
        assert any((sums(m, rule) != sums(m, other)).any() for m in made), what


@pytest.mark.parametrize("name", ["bf16", "tf32", "f16", "e4m3", "e5m2"])
def test_subnormal_operands_show_their_exponent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [drawn(name, sum_cases.subnormal_operands, seed) for seed in range(4)]
    right = [sums(m, rule_of(name)) for m in made]

    def normalised(values: Any, dtype: Any) -> Any:
        exponents = np.frexp(values)[1] - 1
        return np.where(values == 0, -(10**6), exponents).astype(np.int32)

    monkeypatch.setattr(tensor_core, "_exponents", normalised)
    wrong = sum(int((x != sums(m, rule_of(name))).sum()) for x, m in zip(right, made, strict=True))
    assert wrong > 100


@pytest.mark.parametrize("name", [x for x in EVERY if x != "f16_f16"])
def test_zeros_show_that_they_never_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of f16 alone no c is small enough: a zero's exponent of -14 changes nothing."""
    made = [drawn(name, sum_cases.tiny_c_alone, seed) for seed in range(4)]
    right = [sums(m, rule_of(name)) for m in made]
    assert all(np.any(x) for x in right)
    monkeypatch.setattr(tensor_core, "_NEVER", -14)
    wrong = sum(int((x != sums(m, rule_of(name))).sum()) for x, m in zip(right, made, strict=True))
    assert wrong > 100


def test_cases_hold_what_they_promise() -> None:
    a, b, c = drawn("e4m3", sum_cases.tiny_c_alone)
    assert not np.any(a.astype(np.float32)) and np.any(b.astype(np.float32))
    assert ((np.abs(c) > 0) & (np.abs(c) < 2.0**-126)).any()  # subnormal results
    a, _, _ = drawn("bf16", sum_cases.subnormal_operands)
    assert ((np.abs(a.astype(np.float64)) < 2.0**-126) & (a != 0)).mean() > 0.3
    a, b, c = drawn("tf32", sum_cases.normal)
    assert (a.view(np.uint32) & 0x1FFF).any() and (b.view(np.uint32) & 0x1FFF).any()
    a, b, c = drawn("bf16", sum_cases.minus_zeros)
    assert np.signbit(c[c == 0]).all()
