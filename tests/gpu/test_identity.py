"""What a kernel reads may change between launches, on the card too."""

from __future__ import annotations

from typing import Any

import pytest

import warploom as wl
import warploom.language as tl

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

SCALE = 2


@tl.constexpr_function
def scale_of(n: Any) -> Any:
    return n * SCALE


@wl.jit
def scaled(x: Any, o: Any, factor: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i) * factor * scale_of(1))


def test_a_launch_runs_what_is_there_now(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    for value in (2, 10, 10, 2, 0.5, 2):
        monkeypatch.setitem(globals(), "SCALE", value)
        for given in (x, torch.ones_like(x)):  # addresses seen and unseen
            scaled[(1,)](given, out, 3.0, N=64)
            assert torch.equal(out, torch.full_like(out, 3 * value))


def test_zeros_have_signs() -> None:
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    for factor in (0.0, -0.0, 0.0):
        scaled[(1,)](x, out, factor, N=64)
        assert bool(torch.signbit(out).all()) == (str(factor) == "-0.0")
