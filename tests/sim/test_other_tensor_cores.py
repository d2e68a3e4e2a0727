"""simulate(exact=True) for the targets that no GPU here answers for: kernels' sums are those of the published
rules (arXiv 2511.10909), read again in fractions, and no neighbouring rule's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from corpus import in_order, microscaling
from corpus.case import E4M3, Case
from tests.sim.test_tensor_core import fraction_of, fused
from warploom.ir.types import DTYPES, DType
from warploom.sim.tensor_core import accumulate, rule
from warploom.target import TARGETS

pytestmark = pytest.mark.usefixtures("without_nvrtc")

# A and B, accumulator -> products of a sum, bits kept, bits of the result
AMPERE = {("f16", "f32"): (8, 24, 23), ("bf16", "f32"): (8, 24, 23), ("f32", "f32"): (4, 24, 23),
          ("f16", "f16"): (8, 24, 10)}  # fmt: skip
ADA = AMPERE | {("f8e4m3", "f32"): (16, 13, 13), ("f8e5m2", "f32"): (16, 13, 13)}
HOPPER = {("f16", "f32"): (16, 25, 23), ("bf16", "f32"): (16, 25, 23), ("f32", "f32"): (8, 25, 23),
          ("f16", "f16"): (16, 25, 10)}  # fmt: skip
RTX_BLACKWELL = HOPPER | {("f8e4m3", "f32"): (32, 25, 23), ("f8e5m2", "f32"): (32, 25, 23)}
RULES = {"sm_80": AMPERE, "sm_86": AMPERE, "sm_89": ADA, "sm_90a": HOPPER, "sm_120a": RTX_BLACKWELL}

# Of a chip whose products add as those of a chip before it, the first remains.
REPEATED = {
    (t, d)
    for t, first in (("sm_86", AMPERE), ("sm_89", AMPERE), ("sm_120a", HOPPER))
    for d in [*first][1:]
}
SUMS = [(i, (5 * i) % 16) for i in range(16)] + [(i, (7 * i + 3) % 16) for i in range(16)]

Term = tuple[Fraction, int]  # a number, and the exponent of its point


def start_of(c: float, fraction: int) -> Term:
    least = -14 if fraction == 10 else -126
    return Fraction(c), max(math.frexp(c)[1] - 1, least) if c else least


def chained(terms: Sequence[Term], step: int, kept: int, fraction: int) -> float:
    """The terms in order, so many in a sum, beginning at zero."""
    total = 0.0
    for at in range(0, len(terms), step):
        total = fused(
            [start_of(total, fraction), *terms[at : at + step]], kept, fraction, fraction == 10
        )
    return total


def products(a: Any, b: Any, dtype: DType) -> list[Term]:
    pairs = ((fraction_of(x, dtype), fraction_of(y, dtype)) for x, y in zip(a, b, strict=True))
    return [(x * y, e + f) for (x, e), (y, f) in pairs]  # type: ignore[misc]


def simulated(case: Case, target: str) -> Any:
    """What the kernel leaves."""
    given = {**case.meta, **case.knobs}
    made = case.kernel.compile_for(*case.args, grid=case.grid, target=target, **given)
    args = [np.copy(x) if isinstance(x, np.ndarray) else x for x in case.args]
    made.simulate(*args, grid=case.grid, exact=True)
    (result,) = case.wants
    return args[result]


def cancelling(m: int, n: int, k: int, dtype: DType, step: int, kept: int) -> tuple[Any, Any]:
    """Operands (m, k) and (k, n) of which small products remain: in every other sum of so many, two large ones,
    one in each half, cancel, and leave of the small ones as many bits as a sum keeps."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((m, k)) / 8, rng.standard_normal((k, n)) / 8
    size = kept - int(ml_dtypes.finfo(dtype.numpy).nmant if dtype.name != "f32" else 10) - 6
    for at in range(0, k, 2 * step):
        first, second = at, at + step // 2
        a[:, first] = 2.0 ** (size // 2) * rng.choice([-1, 1], m)
        a[:, second] = -a[:, first]
        b[[first, second]] = 2.0 ** (size - size // 2)
    return tuple(x.astype(np.float32).astype(dtype.numpy) for x in (a, b))  # type: ignore[return-value]


def agrees(found: Any, terms: Any, step: int, kept: int, fraction: int) -> bool:
    """Is each of the sums that were found, as many as there are terms for, the rule's?"""
    return all(chained(x, step, kept, fraction) == found[i, j] for (i, j), x in terms.items())


def neighbours(step: int, kept: int) -> dict[str, tuple[int, int]]:
    return {
        "a bit less": (step, kept - 1),
        "a bit more": (step, kept + 1),
        "half as many": (step // 2, kept),
        "twice as many": (step * 2, kept),
    }


@pytest.mark.parametrize(
    ("target", "dtype", "accumulator"),
    [
        pytest.param(t, *d, marks=pytest.mark.thorough if (t, d) in REPEATED else ())
        for t, rules in RULES.items()
        for d in rules
    ],
)
@pytest.mark.each(2)
def test_a_product_adds_by_its_targets_rule(target: str, dtype: str, accumulator: str) -> None:
    step, kept, fraction = RULES[target][dtype, accumulator]
    element = DTYPES[dtype]
    m, n, k = 16, 16, 64
    case = in_order.product(m, n, k, (16, 8, 32), element.numpy, "rc", 1)
    a, b, c, *rest = case.args
    a[...], b[...] = cancelling(m, n, k, element, step, kept)
    if accumulator == "f16":  # which no kernel asks for: dots of f16 have sums of f32
        unit = TARGETS[target].unit_of("mma.sync")
        assert unit is not None
        found = accumulate(a, b, None, rule(unit, element, element, element)).astype(np.float64)
    else:
        knobs = {**case.knobs, "matrix_unit": "mma.sync"}
        case = replace(case, args=(a, b, c, *rest), knobs=knobs)
        found = simulated(case, target).astype(np.float64)
    terms = {(i, j): products(a[i], b[:, j], element) for i, j in SUMS}
    assert agrees(found, terms, step, kept, fraction)
    for what, (other, bits) in neighbours(step, kept).items():
        assert not agrees(found, terms, other, bits, fraction), what


# ---- block scales: a rule of tcgen05.mma, which no GPU here has


FOURS = {"mxfp4": ("e2m1", 32, np.uint8), "nvfp4": ("e2m1", 16, E4M3)}
EIGHTS = {"e4m3": ("e4m3", 32, np.uint8), "e5m2": ("e5m2", 32, np.uint8)}


def packed(x: Any) -> Any:
    """Numbers of e2m1 as pairs in bytes."""
    fours = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return fours[:, ::2] | fours[:, 1::2] << 4


def scaled_terms(name: str, x: Any, s: Any, y: Any, t: Any) -> list[Term]:
    """Of a row and a column with their scales: of e2m1 one for 16 products."""
    format, group, _ = (FOURS | EIGHTS)[name]
    found = []
    for at in range(0, len(x), 16 if name in FOURS else 1):
        u, v = float(s[at // group]), float(t[at // group])
        by, e = Fraction(u) * Fraction(v), math.frexp(u)[1] + math.frexp(v)[1] - 2
        if name in FOURS:
            whole = sum(
                Fraction(float(p)) * Fraction(float(q))
                for p, q in zip(x[at : at + 16], y[at : at + 16], strict=True)
            )
            found.append((whole * by, e))
        else:
            ((product, f),) = products(x[at : at + 1], y[at : at + 1], DTYPES[f"f8{format}"])
            found.append((product * by, e + f))
    return found


@pytest.mark.parametrize("name", FOURS | EIGHTS)
@pytest.mark.each(2)
def test_block_scaled_products_add_as_the_literature_says_of_tcgen05(name: str) -> None:
    format, group, scale = (FOURS | EIGHTS)[name]
    step, kept = (4, 35) if name in FOURS else (32, 25)  # terms of a sum: groups of 16, or products
    m, n, k = 16, 16, 256
    case = microscaling.product(m, n, k, (16, 16, 128), format, format, group, 1)
    rng = np.random.default_rng(3)
    (a, x), (b, y) = (microscaling.elements(rng, rows, k, format) for rows in (m, n))
    sa, sb = (rng.integers(1, 12, (rows, k // group)).astype(np.uint8) for rows in (m, n))
    if name in FOURS:  # scales of every other sum are large, and its halves cancel
        for at in range(0, k, 128):
            x[:, at + 32 : at + 64] = -x[:, at : at + 32]
            y[:, at + 32 : at + 64] = y[:, at : at + 32]
        a, b = (packed(v) for v in (x, y))
        for of in (sa, sb):
            large = of.reshape(len(of), -1, 128 // group)[:, :, : 64 // group]
            large[...] = 0x78 if scale == E4M3 else 30
            if group == 16:  # the halves' other groups stay small
                large[:, :, 1::2] = rng.integers(1, 12, large[:, :, 1::2].shape)
    else:
        small, large = cancelling(m, n, k, DTYPES[f"f8{format}"], step, kept)
        a, b = small, np.ascontiguousarray(large.T)
        x, y = a, b
    if scale == E4M3:
        sa, sb = sa.view(E4M3), sb.view(E4M3)
        s, t = sa.astype(np.float64), sb.astype(np.float64)
    else:
        sa, sb = sa + np.uint8(110), sb + np.uint8(110)
        s, t = (np.exp2(v.astype(np.float64) - 127) for v in (sa, sb))
    case = replace(case, args=(a, sa, b, sb, *case.args[4:]))
    found = simulated(case, "sm_120a").astype(np.float64)
    stored = DTYPES[f"f8{format}"].numpy if name in EIGHTS else ml_dtypes.float4_e2m1fn
    x, y = x.astype(stored), y.astype(stored)
    terms = {(i, j): scaled_terms(name, x[i], s[i], y[j], t[j]) for i, j in SUMS}
    assert agrees(found, terms, step, kept, 23)
    for what, (other, bits) in neighbours(step, kept).items():
        assert not agrees(found, terms, other, bits, 23), what
