"""Functions that neither Python nor NumPy has, against tables (to 15 digits) and identities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from warploom.sim import special

# From NIST's Digital Library of Mathematical Functions and from series in 30 digits.
VALUES = [
    (lambda: special.bessel_j(0, 1.0), 0.765197686557966551),
    (lambda: special.bessel_j(0, 50.0), 0.055812327669251815),
    (lambda: special.bessel_j(1, -2.5), -0.497094102464274038),
    (lambda: special.bessel_y(0, 0.5), -0.444518733506706557),
    (lambda: special.bessel_y(1, 3.0), 0.324674424791799978),
    (lambda: special.bessel_y(1, 50.0), -0.0567956685620147679),
    (lambda: special.bessel_i(0, 5.0), 27.2398718236044469),
    (lambda: special.bessel_i(1, -5.0), -24.3356421424505272),
    (lambda: special.erfcx(2.0), 0.255395676310505744),
    (lambda: special.erfcx(30.0), 0.0187958888614167515),
    (lambda: special.erfinv(0.5), 0.476936276204469873),
    (lambda: special.erfcinv(1e-10), 4.57282496738941173),
]


@pytest.mark.parametrize(("found", "want"), VALUES)
def test_values(found: object, want: float) -> None:
    assert found() == pytest.approx(want, rel=2e-14)  # type: ignore[operator]


def test_inverses() -> None:
    x = np.random.default_rng(0).uniform(-0.5, 6, 100)
    for v in map(float, x):
        assert special.erfcinv(math.erfc(v)) == pytest.approx(v, rel=1e-9)
    for y in (0.0, 2.0, 2.5, math.nan):
        assert not math.isfinite(special.erfcinv(y))
    assert special.erfinv(1.0) == math.inf and math.isnan(special.erfinv(1.5))
