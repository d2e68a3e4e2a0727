"""The library's gated pair and attention with a tile a program: staging lies where operands were."""

from __future__ import annotations

import numpy as np
import pytest

from tests.e2e import one_tile
from tests.orders import default_orders
from tests.pairwise import every
from warploom.analysis.shared_reuse import SharedReuse
from warploom.check import Case, Verdict, check
from warploom.ir.ops import smem
from warploom.ir.types import Pointer, Scalar
from warploom.ir.verify_placed import allocated_bytes
from warploom.runtime.compiled import CompiledKernel
from warploom.sim.machine import simulate

KERNELS = {
    "dual": (lambda: one_tile.dual(4), ("a",), 32768),
    "attention-128": (lambda: one_tile.attention(128, False, depth=2), ("q",), 32768),
    "attention-128-causal": (lambda: one_tile.attention(128, True, depth=2), ("q",), 32768),
    "attention-64-causal": (lambda: one_tile.attention(64, True, 192), ("q",), 24576),
}


def launch(made: CompiledKernel) -> Case:
    """With small arrays: nothing follows from what is in them."""
    values = [
        np.zeros(16, p.type.dtype.numpy)
        if isinstance(p.type, Pointer)
        else (512 if isinstance(p.type, Scalar) and p.type.dtype.is_int else 1.0)
        for p in made.placed.params
    ]
    return Case(tuple(values), (4, 1, 1))


@pytest.mark.parametrize("name", every(2, [*KERNELS]))
@pytest.mark.each(2)
def test_staging_lies_where_an_operand_was_and_is_proved(name: str) -> None:
    make, hosts, saved = KERNELS[name]
    made = make()
    func = made.placed
    allocations = [o for o in func.body.ops if o.kind is smem.shared_alloc]
    assert [o.attrs["reuses"] for o in allocations if "reuses" in o.attrs] == [hosts]
    whole = sum(allocated_bytes(o, func.target) for o in allocations)
    last = max(o.attrs["offset"] + allocated_bytes(o, func.target) for o in allocations)
    assert whole - last == saved
    assert f"in the bytes of {hosts[0]}" in str(made.explain())
    assert check(func, launch=launch(made)).verdict is Verdict.PROVED


def test_the_gated_pair_computes_the_same() -> None:
    m, n, k = 128, 128, 256
    rng = np.random.default_rng(3)
    a, b1, b2 = ((rng.integers(-2, 3, s) / 8).astype("float32") for s in ((m, k), (n, k), (n, k)))
    func = one_tile.dual(4).placed
    dtype = func.params[0].type.dtype.numpy  # type: ignore[attr-defined]
    gate, up = a @ b1.T, a @ b2.T
    wanted = gate / (1 + np.exp(-gate)) * up
    for order in default_orders(("late", "early", "reverse")):
        c = np.zeros((m, n), dtype)
        args = [a.astype(dtype), b1.astype(dtype), b2.astype(dtype), c, m, n, k]
        simulate(func, args[: len(func.params)], (1, 1, 1), order=order, seed=2)
        np.testing.assert_allclose(c.astype("float32"), wanted, rtol=2**-7, atol=1e-2)


def depth(made: CompiledKernel, name: str) -> int:
    """Slots of a ring."""
    (ring,) = (o for o in made.placed.body.ops if o.attrs.get("name") == name)
    slots: int = ring.attrs["lead"][0]
    return slots


def test_rings_are_as_deep_as_that_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slots of K and V instead of two; where no allocation turns out to be over, the chooser chooses
    again, without counting on it."""
    made = one_tile.attention(128, False)
    assert [depth(made, name) for name in "kv"] == [3, 3]
    assert made.placed.attrs["shared_bytes"] <= made.placed.target.shared_bytes
    assert "where load_box0 was" in str(made.explain())
    monkeypatch.setattr(SharedReuse, "after", lambda self, x, y: None)
    apart = one_tile.attention(128, True)
    assert [depth(apart, name) for name in "kv"] == [2, 2]
    assert not any("reuses" in o.attrs for o in apart.placed.body.ops)
