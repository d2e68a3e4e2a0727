"""Dots in registers: what no warp group fills, and what one, two or eight warps share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus import attention, skinny, states
from corpus.case import BF16, E4M3, F16, Case
from corpus.in_order import CASES, product
from tests.e2e.corpus import judging
from tests.pairwise import diagonals, every
from warploom.ir.core import Level, walk
from warploom.ir.ops import mma, tile
from warploom.layout.choose import conversion

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def compiled_for(case: Case, **knobs: Any) -> Any:
    given = {**case.knobs, **knobs}
    return case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **given)


@pytest.mark.parametrize("name", every(5, [*CASES]))
@pytest.mark.each(2)
def test_every_case_is_right_and_proved(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    judging.judge(case, "auto", tmp_path)
    made = compiled_for(case)
    func = made.lowered.at(Level.PLACED)
    kinds = {o.kind for o in walk(func.body)}
    assert (mma.fma if name.startswith("ieee") else tile.dot) in kinds
    assert func.attrs["threads"] == 32 * case.knobs["num_warps"] or made.schedule.specialized


@pytest.mark.parametrize("name", ["32x16-four", "48x32-four", "32x32-e4m3", "state-four"])
@pytest.mark.each(2)
def test_tasks_feed_them_as_well(name: str, tmp_path: Path) -> None:
    """A producer runs ahead of consumers that load fragments from its ring."""
    assert judging.judge(CASES[name](), "tasks", tmp_path).startswith("tasks")


def test_it_is_explained() -> None:
    told = compiled_for(CASES["32x32-two"]()).explain()
    assert "by mma.sync, from registers" in told and "wgmma takes 128 threads, 64 rows" in told
    assert "32 × mma.sync m16n8k16, both operands from registers" in told


def test_two_groups_divide_columns(tmp_path: Path) -> None:
    case = product(40, 200, 96, (32, 128, 32), BF16, "rr", 4)
    made = compiled_for(case, num_consumer_groups=2)
    assert made.schedule.split.count == 2
    found = [x.copy() if isinstance(x, np.ndarray) else x for x in case.args]
    made.simulate(*found, grid=case.grid, order="late")
    assert not case.judge(tuple(found))


def test_operands_come_by_ldmatrix_and_results_of_dots_need_no_conversion() -> None:
    made = compiled_for(CASES["chunk-64-two"]())
    assert "ldmatrix4(" in made.cuda and "ldmatrix4_trans(" in made.cuda
    func = made.lowered.at(Level.PLACED)
    converted = [o for o in walk(func.body) if o.kind is tile.convert_layout]
    made_by = {o.result: o for o in walk(func.body) if len(o.results) == 1}
    dots = [o for o in walk(func.body) if o.kind is tile.dot]
    assert len(dots) == 2 and made_by[dots[1].operands[0]].kind is not tile.convert_layout
    assert not any(o.result in dots[1].operands for o in converted)


@pytest.mark.parametrize("dtype", [F16, E4M3], ids=["f16", "e4m3"])
def test_a_dot_that_a_warp_group_fills_goes_to_the_warp_group(dtype: Any) -> None:
    made = compiled_for(product(128, 64, 64, (64, 64, 64), dtype, "rc", 4))
    kinds = {o.kind for o in walk(made.lowered.at(Level.PLACED).body)}
    assert mma.wgmma in kinds and tile.dot not in kinds


@pytest.mark.parametrize(
    ("name", "groups"), diagonals(3, ["80x64", "16x256", "200x64", "e5m2", "e4m3"], [None, 0, 2])
)
@pytest.mark.each(2)
def test_the_unit_that_is_asked_for_does_all_dots(
    name: str, groups: int | None, tmp_path: Path
) -> None:
    """Also those whose rows wgmma takes, as they are or as columns."""
    case = skinny.CASES[name]()
    case = replace(
        case, knobs={**case.knobs, "matrix_unit": "mma.sync", "num_consumer_groups": groups}
    )
    judging.judge(case, "auto", tmp_path)
    kinds = [o.kind for o in walk(compiled_for(case).lowered.at(Level.PLACED).body)]
    assert mma.wgmma not in kinds and tile.dot in kinds


CHAINS = {
    "attention": (
        lambda: attention.stages_case(1, 2, 200, 64, causal=True),
        {"num_consumer_groups": 0},
        ("operands of loop0/dot0 are loaded before it", "its lanes are added up behind the loop"),
    ),
    "attention-tasks": (
        lambda: attention.stages_case(1, 1, 300, 64, causal=False),
        {"num_consumer_groups": 1},
        ("operands of loop0/dot0 are loaded before it", "its lanes are added up behind the loop"),
    ),
    "state": (
        lambda: states.linear_case(t=100, chunk=16),
        {"num_warps": 1},
        ("stored by TMA through one chunk of 16x64",),
    ),
    "state-wide": (
        lambda: states.linear_case(t=100, chunk=32),
        {"num_warps": 2},
        ("stored by TMA through one chunk of 32x64",),
    ),
    "state-four": (
        lambda: states.linear_case(t=100, chunk=16),
        {"num_warps": 4, "num_consumer_groups": 0},
        ("stored directly",),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.each(2)
def test_chains_of_dots(name: str, tmp_path: Path) -> None:
    make, knobs, decided = CHAINS[name]
    case = make()
    case = replace(case, knobs={**case.knobs, "matrix_unit": "mma.sync", **knobs})
    judging.judge(case, "auto", tmp_path)
    told = {r.decision for r in compiled_for(case).schedule.reasons}
    assert told.issuperset(decided)


@pytest.mark.parametrize(("chunk", "warps"), [(16, 1), (16, 2)])
def test_a_sum_that_dots_read_on_the_right_is_made_as_its_transpose(chunk: int, warps: int) -> None:
    """The state of linear attention is the right operand as a thread holds it: it never leaves registers."""
    case = states.linear_case(t=100, chunk=chunk)
    knobs = {"matrix_unit": "mma.sync", "num_warps": warps, "store_buffers": 0}
    made = compiled_for(replace(case, knobs={**case.knobs, **knobs}))
    why = "as its transpose it is the right operand of the dots that read it"
    assert [r.subject for r in made.schedule.reasons if r.because == why] == ["loop0/dot3"]
    converted = [
        conversion(o.operands[0].type.layout, o.attrs["layout"]).kind
        for o in walk(made.lowered.at(Level.PLACED).body)
        if o.kind is tile.convert_layout and o.result.type.shape == (64, 64)
    ]
    assert converted == ["free"]


@pytest.mark.parametrize(("programs", "shared"), [(4096, 2), (100, 1)])
def test_programs_share_a_multiprocessor_where_there_are_many(programs: int, shared: int) -> None:
    """Under dots that complete in order nothing of the same group runs: another program's work does."""
    case = product(256, 256, 256, (128, 128, 64), BF16, "rc", 4)
    knobs = {**case.knobs, "matrix_unit": "mma.sync"}
    made = case.kernel.compile_for(*case.args, grid=(programs,), **case.meta, **knobs)
    assert made.schedule.specialized and made.schedule.ctas_per_sm == shared
    assert any("predicted" in r.because for r in made.schedule.reasons)


def test_bits_are_those_of_the_instruction() -> None:
    """Each instruction cuts what is too small for its sum (docs/simulator.md): exact sums would differ."""
    rng = np.random.default_rng(5)
    case = product(16, 8, 64, (16, 8, 32), F16, "rc", 1)
    a, b, c = (np.array(x) for x in case.args[:3])
    a[...] = rng.standard_normal(a.shape) * 2.0 ** rng.integers(-8, 8, a.shape)
    b[...] = rng.standard_normal(b.shape) * 2.0 ** rng.integers(-8, 8, b.shape)
    made = compiled_for(case)
    made.simulate(a, b, c, *case.args[3:], grid=case.grid, exact=True)
    from warploom.ir.types import f16, f32
    from warploom.sim.tensor_core import accumulate, rule
    from warploom.target.sm_90a import MMA_SYNC

    want = accumulate(a, b, None, rule(MMA_SYNC, f16, f16, f32))
    assert np.array_equal(c.view(np.uint32), want.view(np.uint32))
