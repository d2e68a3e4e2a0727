"""Dots of float32 with all bits, by the threads' own multiply-adds: in the order of K, one rounding each, on every
chip; what is computed goes to shared memory first."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
from corpus.case import F32, Case
from corpus.in_order import CASES, chunks, wholes
from tests.e2e.corpus import judging
from tests.e2e.road import default_orders
from tests.eject.owned import owned, same_program
from tests.pairwise import diagonals, every
from tests.sass import disassembler, loops
from warploom.check import CheckReport
from warploom.errors import CompileError
from warploom.ir.core import Level, walk
from warploom.ir.ops import mma, smem, tile
from warploom.language import float32
from warploom.layout import fma_acc, product_registers
from warploom.sim.tensor_core import Exact
from warploom.target import SM_90A, TARGETS

IEEE = [name for name in CASES if name.startswith("ieee")]


def compiled(case: Case, target: str = "sm_90a", **knobs: Any) -> Any:
    given = {**case.knobs, **knobs}
    return case.kernel.compile_for(*case.args, grid=case.grid, target=target, **case.meta, **given)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("name", "target"), diagonals(4, IEEE, ["sm_80", "sm_86", "sm_89", "sm_120a"])
)
@pytest.mark.each(2)
def test_every_chip_does_them_so(name: str, target: str) -> None:
    case = CASES[name]()
    made = compiled(case, target)
    assert any(o.kind is mma.fma for o in walk(made.placed.body))
    for order in default_orders():
        found = tuple(np.copy(x, order="K") if isinstance(x, np.ndarray) else x for x in case.args)
        made.simulate(*found, grid=case.grid, order=order)
        assert not case.judge(found), order
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.each(2)
def test_tasks_and_uniform_kernels(groups: int, tmp_path: Path) -> None:
    case = CASES["ieee-64x64-four"]()
    case = replace(case, knobs={**case.knobs, "num_consumer_groups": groups})
    assert judging.judge(case, "auto", tmp_path).startswith("tasks" if groups else "uniform")


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning")
@pytest.mark.parametrize(
    ("rows", "asked", "axis", "count"), [(80, 4, "M", 2), (16, 4, "M", 2), (24, 2, "N", 2)]
)
@pytest.mark.each(2)
def test_groups_share_rows_where_the_swizzle_begins_again(
    rows: int, asked: int, axis: str, count: int, tmp_path: Path
) -> None:
    """Not the 20 rows that four groups would have of 80 each, nor the 12 of 24."""
    case = wholes(90, 70, 40, (rows, 64, 16), "rr", 4)
    case = replace(case, knobs={**case.knobs, "num_consumer_groups": asked})
    judging.judge(case, "auto", tmp_path)
    split = compiled(case).schedule.split
    assert (split.axis, split.count) == (axis, count)


def rounded(x: Fraction) -> np.float32:
    """The float32 nearest to x, of two the even one."""
    near = np.float32(float(x))
    around = [np.nextafter(near, np.float32(s)) for s in (-np.inf, np.inf)]
    return min(
        (near, *around), key=lambda f: (abs(Fraction(float(f)) - x), int(f.view(np.uint32)) & 1)
    )


def test_the_exact_mode_rounds_each_step_once() -> None:
    """Also where the sum in float64 lies just between two numbers, and among subnormal ones."""
    random = np.random.default_rng(0)
    a = random.integers(1 << 23, 1 << 24, (4, 40)).astype(F32)
    b = (random.integers(1 << 23, 1 << 24, (40, 3)) | 1).astype(F32)
    start = np.ldexp(random.standard_normal((4, 3)), 70).astype(F32)
    halfway = np.array([[1 + 2.0**-23]], F32), np.array([[2.0**-24 * (1 + 2.0**-23)]], F32)
    tiny = np.array([[2.0**-75]], F32), np.array([[3 * 2.0**-75]], F32)
    cases = (
        (a, b, start),
        (np.ldexp(a, -100), np.ldexp(b, -65), np.ldexp(start, -210)),
        (*halfway, np.array([[1.0]], F32)),
        (*tiny, np.array([[2.0**-149]], F32)),
    )
    for left, right, total in cases:
        found = Exact(SM_90A).fused(left, right, total)
        for i, j in np.ndindex(*total.shape):
            want = total[i, j]
            for x, y in zip(left[i], right[:, j], strict=True):
                want = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(want)))
            assert found[i, j] == want, (i, j)


def test_the_exact_mode_has_infinities_and_nans() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    a = np.array([[inf, 1], [inf, 0], [-3e38, 1], [nan, 1]], F32)
    found = Exact(SM_90A).fused(a, np.array([[2], [-inf]], F32), np.zeros((4, 1), F32))[:, 0]
    assert np.isnan(found[[0, 1, 3]]).all() and found[2] == -inf
    assert found[0].view(np.uint32) == 0x7FFFFFFF


@pytest.mark.usefixtures("without_nvrtc")
def test_bits_are_those_of_a_chain_of_multiply_adds() -> None:
    case = wholes(64, 64, 40, (64, 64, 16), "rr", 4)
    random = np.random.default_rng(1)
    for x in case.args[:2]:
        x[...] = random.standard_normal(x.shape)
    made = compiled(case)
    found = list(case.args)
    made.simulate(*found, grid=case.grid, exact=True)
    a, b, c = found[:3]
    want = Exact(SM_90A).fused(a, b, np.zeros_like(c))
    np.testing.assert_array_equal(c, want)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert 0 < np.abs(want - exact).max() < 1e-5


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "shape", [(16, 16), (64, 64), (128, 128), (100, 24), (8, 8), (1, 40), (3, 16, 8), (4, 48, 20)]
)
@pytest.mark.parametrize("adjacent", [(False, True), (True, True), (False, False)])
@pytest.mark.each(3)
def test_threads_share_a_product_evenly(
    shape: tuple[int, ...], adjacent: tuple[bool, bool], warps: int
) -> None:
    """Each has whole rows by whole columns, and as few elements as the shape allows."""
    acc = fma_acc(shape, adjacent, warps)
    assert not acc.overhangs
    axes = product_registers(acc)
    *_, rows, columns = (len(x) for x in axes)
    held = {tuple(int(x) for x in c) for c in np.stack([t.ravel() for t in acc.table], -1)}
    assert len(held) == np.prod(shape)
    powers = [n & -n for n in shape]
    assert acc.registers == np.prod(shape) // min(32 * warps, int(np.prod(powers)))
    if shape == (128, 128) and warps == 4:
        assert (rows, columns) in ((8, 16), (16, 8))


@pytest.mark.usefixtures("without_nvrtc")
def test_it_is_explained_and_the_knob_of_units_leaves_it() -> None:
    case = CASES["ieee-64x64-four"]()
    assert "16 × 16 fma a thread, both operands from shared memory" in compiled(case).explain()
    made = compiled(case, matrix_unit="mma.sync")
    assert any(o.kind is mma.fma for o in walk(made.placed.body))
    with pytest.raises(CompileError, match=r"sm_80 multiplies by mma.sync\n"):
        compiled(case, "sm_80", matrix_unit="wgmma")


@pytest.mark.usefixtures("without_nvrtc")
def test_what_is_computed_goes_through_shared_memory() -> None:
    """The triangle of Q·Kᵀ, the left operand of the second dot; between two barriers."""
    made = compiled(chunks(70, 32, 32, 64, F32, 4, "ieee"), "sm_86")
    ops = list(walk(made.lowered.at(Level.WARP).body))
    (at,) = (i for i, o in enumerate(ops) if o.kind is smem.shared_store)
    assert ops[at - 1].kind is ops[at + 1].kind is smem.group_sync
    assert [o.kind for o in ops if o.kind in (mma.fma, tile.dot)] == [mma.fma, mma.fma]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("name", "target"), [("ieee-64x64-four", "sm_90a"), ("ieee-chunk-32-four", "sm_80")]
)
def test_an_ejected_kernel_is_the_same_program(name: str, target: str, tmp_path: Path) -> None:
    case = CASES[name]()
    made = compiled(case, target)
    text = made.eject()
    assert "self.dot(" in text
    script, signature = owned(text, tmp_path, case.grid)
    same_program(made, script.compile(signature, target=target))


class Square(wl.Script):
    """y = x·x of a tile in shared memory, with and without the barrier that its threads need."""

    def __init__(self, synced: bool) -> None:
        super().__init__()
        self.synced = synced

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        x = self.shared_tensor(dtype=float32, shape=[32, 32])
        self.store_shared(x, self.load_global(g_x, offsets=[0, 0], shape=[32, 32]))
        if self.synced:
            self.sync()
        self.store_global(g_y, self.dot(x, x), offsets=[0, 0])


@pytest.mark.usefixtures("without_nvrtc")
def test_a_script_multiplies_where_tensors_lie_and_a_missing_barrier_is_found() -> None:
    x = np.arange(32 * 32, dtype=F32).reshape(32, 32) % 7
    y = np.zeros_like(x)
    assert Square(True).check(x, y).ok
    Square(True)(x, y)
    np.testing.assert_array_equal(y, x @ x)
    report: CheckReport = Square(False).check(x, y)
    assert not report.ok and "fma of x" in str(report)


@pytest.mark.skipif(disassembler() is None, reason="no disassembler")
@pytest.mark.parametrize("target", every(2, [t for t in TARGETS if t != "sm_121a"]))
@pytest.mark.each(2)
def test_a_step_is_mostly_multiply_adds(target: str) -> None:
    """8x4 elements a thread, 4 of K at a time: 128 multiply-adds to 12 loads of 16 bytes."""
    case = wholes(256, 256, 256, (64, 64, 32), "rr", 4)
    case = replace(case, kernel=wl.jit(case.kernel.fn))
    made = compiled(case, target, num_consumer_groups=0)
    assert made.resources.problems() == ()
    (loop,) = loops(made.cubin, "FFMA")
    assert loop.count("LDS.128") * 128 == loop.count("FFMA") * 12 > 0
