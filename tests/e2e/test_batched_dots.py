"""Dots of batches: tiles of three axes, multiplied in registers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus.batched import CASES, of
from corpus.case import BF16, F16, Case
from tests.e2e.corpus import judging
from tests.pairwise import every
from warploom.errors import CompileError
from warploom.ir.core import Level, walk
from warploom.ir.ops import mma, tile
from warploom.ir.types import f16, f32
from warploom.sim.tensor_core import accumulate, rule
from warploom.target.sm_90a import MMA_SYNC

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def compiled_for(case: Case, **knobs: Any) -> Any:
    given = {**case.knobs, **knobs}
    return case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **given)


@pytest.mark.parametrize("name", every(5, [*CASES]))
@pytest.mark.each(2)
def test_every_case_is_right_and_proved(name: str, tmp_path: Path) -> None:
    judging.judge(CASES[name](), "auto", tmp_path)


@pytest.mark.parametrize("name", ["bf16", "odd-batch", "ieee", "few-deep", "pieces"])
@pytest.mark.each(2)
def test_tasks_feed_them_as_well(name: str, tmp_path: Path) -> None:
    assert judging.judge(CASES[name](), "tasks", tmp_path).startswith("tasks")


def test_no_warp_shares_a_batch_that_it_need_not() -> None:
    made = compiled_for(CASES["heads"]())
    func = made.lowered.at(Level.PLACED)
    dots = [o for o in walk(func.body) if o.kind is tile.dot]
    assert [o.result.type.layout.warp for o in dots] == [((1, 0, 0), (2, 0, 0))] * 2
    assert not any(o.kind is tile.convert_layout for o in walk(func.body))
    assert "ldmatrix4(" in made.cuda and "ldmatrix4_trans(" in made.cuda
    assert "64 × mma.sync m16n8k16, both operands from registers" in made.explain()


def test_groups_divide_the_batch() -> None:
    case = of((5, 72, 40, 64), (4, 64, 32, 32), BF16)
    made = compiled_for(case, num_consumer_groups=2)
    assert (made.schedule.split.axis, made.schedule.split.count) == ("batch", 2)
    assert mma.wgmma not in {o.kind for o in walk(made.lowered.at(Level.PLACED).body)}
    found = judging.copies(case.args)
    made.simulate(*found, grid=case.grid, order="late")
    assert not case.judge(found)


def test_ctas_of_a_cluster_divide_their_rows() -> None:
    case = of((3, 40, 40, 64), (2, 32, 32, 32), F16, "rc", 4)
    made = compiled_for(case, num_ctas=2)
    found = judging.copies(case.args)
    made.simulate(*found, grid=case.grid, order="late")
    assert not case.judge(found) and made.check().ok


def test_bits_are_those_of_the_instruction() -> None:
    rng = np.random.default_rng(5)
    case = of((2, 16, 8, 64), (2, 16, 8, 32), F16, "rr", 1)
    a, b, c = (np.array(x) for x in case.args[:3])
    for x in (a, b):
        x[...] = rng.standard_normal(x.shape) * 2.0 ** rng.integers(-8, 8, x.shape)
    compiled_for(case).simulate(a, b, c, *case.args[3:], grid=case.grid, exact=True)
    adds = rule(MMA_SYNC, f16, f16, f32)
    want = np.stack([accumulate(*of_one, None, adds) for of_one in zip(a, b, strict=True)])
    assert np.array_equal(c.view(np.uint32), want.view(np.uint32))


@wl.jit
def transposed(
    a_ptr, b_ptr, c_ptr, H: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Heads lie between rows: what is loaded is no batch of matrices before it is permuted."""
    h, m = tl.arange(0, H), tl.arange(0, M)
    n, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((H, M, N), tl.float32)
    for at in range(0, 2 * K, K):
        row, last = (m[:, None, None] * H + h[None, :, None]) * 2 * K, at + k[None, None, :]
        a = tl.permute(tl.load(a_ptr + row + last), (1, 0, 2))
        b = tl.load(b_ptr + ((at + k)[:, None, None] * H + h[None, :, None]) * N + n[None, None, :])
        total += tl.dot(a, tl.permute(b, (1, 0, 2)))
    place = (m[None, :, None] * H + h[:, None, None]) * N + n[None, None, :]
    tl.store(c_ptr + place, total)


@pytest.mark.parametrize("groups", [0, 1])
def test_rows_of_a_slot_keep_their_order(groups: int) -> None:
    heads, m, n, k = 4, 16, 16, 32
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-2, 3, s).astype(np.float16) for s in ((m, heads, 2 * k), (2 * k, heads, n))
    )
    c = np.zeros((m, heads, n), np.float32)
    meta = {"H": heads, "M": m, "N": n, "K": k, "num_consumer_groups": groups}
    made = transposed.compile_for(a, b, c, grid=(1,), **meta)
    made.simulate(a, b, c, grid=(1,), order="late")
    assert np.array_equal(c, np.einsum("mhk,khn->mhn", a.astype(np.float64), b.astype(np.float64)))
    assert made.check().ok


def test_what_multiplies_one_pair_at_a_time_is_refused() -> None:
    with pytest.raises(CompileError, match="wgmma multiplies one pair of matrices") as refused:
        compiled_for(CASES["bf16"](), matrix_unit="wgmma")
    assert refused.value.code == "dot-rank"
