"""Tilus's Ampere surface: products right in adversarial orders, proved, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
from tests.eject.owned import owned, same_program
from tests.explicit import ampere
from tests.orders import default_orders
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import smem, tile
from warploom.ir.types import f16
from warploom.language import bfloat16, float16, float32, int32
from warploom.layout import mma_acc
from warploom.sim.scheduler import ORDERS
from warploom.sim.tensor_core import accumulate, rule
from warploom.target import SM_90A, Target
from warploom.target import TARGETS as TARGET_TABLE
from warploom.tilus.ir.layout import spatial

pytestmark = pytest.mark.usefixtures("without_nvrtc")
GRID = 3, 2  # of 144 × 96
TARGETS = ["sm_80", "sm_86", "sm_89", "sm_90a"]


def staged(m: int = 144, n: int = 96, k: int = 208, **how: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    return ampere.Staged(**how), (m, n, k, a, b, c), a.astype(np.float64) @ b


@pytest.mark.parametrize("sums", [float32, float16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.each(3)
def test_stages_filled_in_groups(target: str, sums: Any) -> None:
    script, args, want = staged(sums=sums)
    made = script.compile_for(*args, target=target)
    for order in default_orders(ORDERS):
        args[-1][:] = 0
        made.simulate(args[0], *args[3:], grid=GRID, order=order, seed=1)
        assert np.array_equal(args[-1], want), order
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.parametrize("how", [{"num_stages": 2}, {"num_stages": 5, "num_warps": 2}], ids=str)
def test_other_stages_and_warps(how: dict[str, int]) -> None:
    script, args, want = staged(**how)
    script(*args)
    assert np.array_equal(args[-1], want)
    assert script.check(*args).ok


def test_freed_shared_memory_is_used_again() -> None:
    script, args, _ = staged()
    allocations = {
        o.attrs["name"]: o
        for o in walk(script.compile_for(*args).placed.body)
        if o.kind is smem.shared_alloc
    }
    assert allocations["sc"].attrs["offset"] == allocations["sa"].attrs["offset"]


def test_without_a_barrier_the_reuse_is_a_race() -> None:
    class Hasty(wl.Script):
        def __call__(self, x_ptr: ~float32, y_ptr: ~float32):  # type: ignore[valid-type,operator,no-untyped-def]
            self.attrs.blocks = 1
            self.attrs.warps = 4
            x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
            y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
            s = self.shared_tensor(dtype=float32, shape=[32, 32])
            self.copy_async(x, s, [0, 0])
            self.copy_async_wait_all()
            self.sync()
            value = self.load_shared(s)
            self.free_shared(s)
            t = self.shared_tensor(dtype=float32, shape=[32, 32])
            self.store_shared(t, value)
            self.sync()
            self.store_global(y, self.load_shared(t), [0, 0])

    report = Hasty().compile(["*fp32:16"] * 2).check()
    assert not report.ok and "error[race]" in str(report)


@pytest.mark.parametrize("target", TARGETS)
def test_masks_made_by_a_lambda(target: str) -> None:
    n = 96
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-3, 4, (rows, 64)).astype(np.float16) for rows in (n, 64))
    s, sums = np.zeros((n, 64), np.float32), np.zeros(n, np.float32)
    made = ampere.Scores().compile_for(n, q, k, s, sums, target=target)
    made.simulate(n, q, k, s, sums, grid=2, order="late")
    want = np.where(
        np.arange(n)[:, None] >= np.arange(64), q.astype(np.float64) @ k.T.astype(np.float64), 0
    )
    assert np.array_equal(s, want) and np.array_equal(sums, want.sum(axis=1))
    assert made.check().ok


def test_a_product_lies_as_its_sum_is_annotated() -> None:
    made = ampere.Scores().compile(["i32:16", *["*fp16:16"] * 2, *["*fp32:16"] * 2])
    (dot,) = (o for o in walk(made.placed.body) if o.kind is tile.dot)
    assert dot.result.type.layout == mma_acc((64, 64), (4, 1), 4)
    assert dot.result.type.layout != mma_acc((64, 64), (2, 2), 4)


@pytest.mark.parametrize("layout", ampere.LAYOUTS.values(), ids=list(ampere.LAYOUTS))
def test_layouts_by_modes(layout: Any) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (32, 64)).astype(np.float32)
    y = np.zeros_like(x)
    script = ampere.Laid(layout)
    script(x, y)
    assert np.array_equal(y, 2 * x + np.arange(32)[:, None])
    made = script.compile(["*fp32:16"] * 2)
    given = {o.attrs["layout"] for o in walk(made.placed.body) if o.kind is tile.convert_layout}
    assert layout.bits() in given


HALVES = [(64, 48, 32), (16, 8, 16), (8, 24, 32), (24, 4, 16), (2, 16, 24, 16)]


def halves(shape: tuple[int, ...], target: Target) -> tuple[Any, Any, Any, Any]:
    """Arguments of `ampere.Halves`, and what the target's tensor cores make of them."""
    *batch, m, n, k = shape
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((*batch, *s)).astype(np.float16) for s in ((m, k), (k, n)))
    unit = target.unit_of("mma.sync")
    assert unit is not None
    how = rule(unit, f16, f16, f16)
    want = accumulate(a, b, accumulate(a, b, None, how), how)
    return a, b, np.zeros_like(want), want


@pytest.mark.parametrize("shape", HALVES, ids=str)
@pytest.mark.parametrize("target", [*TARGETS, "sm_120a"])
@pytest.mark.each(3)
def test_sums_in_float16(target: str, shape: tuple[int, ...]) -> None:
    """As the chip's tensor core rounds them, in any order of events, and as their text says them."""
    a, b, c, want = halves(shape, TARGET_TABLE[target])
    made = ampere.Halves(*shape).compile_for(a, b, c, target=target)
    for order in ORDERS:
        c[:] = 0
        made.simulate(a, b, c, grid=1, order=order, exact=True)
        np.testing.assert_array_equal(c, want)
    made.simulate(a, b, c, grid=1)
    np.testing.assert_allclose(c.astype(float), 2 * (a.astype(float) @ b), rtol=0.02, atol=0.05)
    assert made.check().ok
    assert "m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}" in made.cuda
    assert "mma.sync m16n8k16 in f16, both operands from registers" in str(made.explain())


def test_sums_in_float16_come_back_from_their_text(tmp_path: Path) -> None:
    a, b, c, _ = halves(HALVES[0], SM_90A)
    made = ampere.Halves(*HALVES[0]).compile_for(a, b, c)
    script, signature = owned(made.eject(), tmp_path, 1)
    same_program(made, script.compile(signature))


@pytest.mark.parametrize("how", [{}, {"num_stages": 4}], ids=str)
def test_ejected_scripts_copy_in_groups(how: dict[str, int]) -> None:
    script, args, want = staged(**how)
    text = script.compile_for(*args).eject()
    assert "self.cp_async.commit_group()" in text and "self.cp_async.wait_group(" in text
    del want


class Refused(wl.Script):
    """What one line of a script asks."""

    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.ask = ask

    def __call__(self, x_ptr: ~float16, n: int32):  # type: ignore[valid-type,operator,no-untyped-def]
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[4, n, 64])
        s = self.shared_tensor(dtype=float16, shape=[64, 64])
        if self.ask == "axes":
            self.copy_async(x, s, [0, 0, 0], dims=[2, 0])
        if self.ask == "freed":
            self.free_shared(s)
            self.copy_async(x, s, [0, 0, 0])
        if self.ask == "twice":
            self.free_shared(s)
            self.free_shared(s)
        if self.ask == "layout":
            t = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
            self.annotate_layout(t, spatial(4, 4).local(16, 16))
        if self.ask == "shared layout":
            self.annotate_layout(s, spatial(8, 16).local(8, 4))
        if self.ask == "arguments":
            self.register_tensor(dtype=float32, shape=[64, 64], init=lambda i: i)
        if self.ask == "accumulator":
            t = self.register_tensor(dtype=bfloat16, shape=[64, 64], init=0.0)
            self.dot(t, t, acc_dtype=float16)
        if self.ask == "two accumulators":
            t = self.register_tensor(dtype=float16, shape=[64, 64], init=0.0)
            self.dot(t, t, self.dot(t, t), acc_dtype=float16)
        if self.ask == "one column":
            t = self.register_tensor(dtype=float16, shape=[64, 64], init=0.0)
            self.dot(
                t, self.register_tensor(dtype=float16, shape=[64, 1], init=0.0), acc_dtype=float16
            )
        if self.ask == "config":
            self.cuda.resolve_dot_config(float16, float32, m=16, n=64, k=8, num_warps=4)
        if self.ask == "defaults":
            self.register_tensor(dtype=float32, shape=[64], init=lambda i, j=1: i)


@pytest.mark.parametrize(
    ("ask", "code", "words"),
    [
        ("axes", "dims", "of a view of 3 axes"),
        ("freed", "freed-shared", "was freed, its bytes may be another tensor's"),
        ("twice", "freed-shared", "was freed"),
        ("layout", "annotate", "no whole warps"),
        ("shared layout", "annotate", "a register layout of a shared tensor"),
        ("arguments", "lambda", "a lambda of 1 arguments, called with 2"),
        ("accumulator", "dot-dtype", "a sum in f16, of products that sum in f32"),
        ("two accumulators", "dot-dtype", "that sum in f32 or f16, into "),
        ("one column", "dot-shape", "1 columns in float16: two of them share a register"),
        ("config", "dot-config", "take 16 of K at a time, not 8"),
        ("defaults", "unsupported", "lambda"),
    ],
)
def test_what_is_refused(ask: str, code: str, words: str) -> None:
    with pytest.raises(CompileError, match=words) as refused:
        Refused(ask).compile(["*fp16:16", "i32:16"])
    assert refused.value.code == code and refused.value.loc is not None
