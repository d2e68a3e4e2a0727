"""The same kernels for every chip: right in the simulator, proved by the checker, built without spills.

No chip but sm_90a's was at hand: of the others is said that kernels are compiled and simulated, not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
from corpus import catalog
from corpus.case import Case
from tests.e2e.road import default_orders
from tests.eject.owned import owned, same_program
from tests.pairwise import diagonals
from warploom.errors import CompileError
from warploom.ir.core import OpKind, walk
from warploom.ir.ops import mbarrier, mma, regs, smem, tile, tma
from warploom.target import TARGETS, for_device

TWINS = {"sm_121a"}  # what sm_120a is: in `make test-all` alone
OTHERS = [name for name in TARGETS if name != "sm_90a"]


def on(targets: list[str]) -> Any:
    """A test for each of these targets."""
    marks = {name: (pytest.mark.thorough,) * (name in TWINS) for name in targets}
    return pytest.mark.parametrize("target", [pytest.param(t, marks=marks[t]) for t in targets])


PRODUCTS = ["matmul-77x51x97", "matmul-int8-rc", "f32-tf32-rr", "in order-32x96-eight"]
OF_MORE = [
    "attention-alibi",
    "states-linear",
    "states-chunk-state",
    "layernorm",
    "splitk-atomic",
    "bmm-100x64",
]
IN_REGISTERS = ["batched-bf16", "batched-ieee", "in order-32x32-f64"]
CASES = PRODUCTS + OF_MORE + IN_REGISTERS
BUILT = ["matmul-bf16-rc", "attention-alibi", "layernorm", "splitk-atomic", "batched-ieee"]
TASKS = {"num_consumer_groups": 1, "num_buffers_warp_spec": 2}


def compiled(case: Case, target: str, **knobs: Any) -> Any:
    given = {**case.meta, **case.knobs, **knobs}
    return case.kernel.compile_for(*case.args, grid=case.grid, target=target, **given)


def simulated(case: Case, made: Any) -> None:
    for order in default_orders():
        found = tuple(np.copy(x, order="K") if isinstance(x, np.ndarray) else x for x in case.args)
        made.simulate(*found, grid=case.grid, order=order)
        assert not case.judge(found), order


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("target", "name"),
    [
        *diagonals(5, [t for t in OTHERS if t not in TWINS], CASES),
        *(
            pytest.param(t, c, marks=pytest.mark.thorough)
            for t in OTHERS
            if t in TWINS
            for c in CASES
        ),
    ],
)
@pytest.mark.each(2)
def test_a_kernel_is_right_and_proved(target: str, name: str) -> None:
    case = catalog.by_name()[name]
    made = compiled(case, target)
    kinds = {o.kind for o in walk(made.placed.body)}
    assert kinds & {tile.dot, mma.fma} and mma.wgmma not in kinds
    assert regs.setmaxnreg not in kinds
    if not TARGETS[target].box_limit:
        assert not kinds & {tma.tma_load, tma.tma_store}
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


# uniform kernels, each with what its loads do
PIPELINED: dict[str, dict[str, Any]] = {
    "three stages": {},
    "two stages": {"num_stages": 2},
    "one stage": {"num_stages": 1},
    "five stages, two groups": {"num_stages": 5, "num_warps": 8},
}


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("target", "how"),
    diagonals(2, [t for t in OTHERS if not TARGETS[t].box_limit], [*PIPELINED]),
)
@pytest.mark.each(2)
def test_uniform_kernels_copy_in_groups(target: str, how: str) -> None:
    """What a group waits for, it copied itself: no mbarrier, and stages as deep as the ring."""
    case = catalog.by_name()["matmul-bf16-rc"]
    knobs = PIPELINED[how]
    made = compiled(case, target, num_consumer_groups=0, **knobs)
    ops = list(walk(made.placed.body))
    kinds = {o.kind for o in ops}
    assert not made.schedule.specialized
    assert smem.cp_async_commit in kinds and mbarrier.mbarrier_wait not in kinds
    (ring,) = made.schedule.channels
    pending = [o.attrs["pending"] for o in ops if o.kind is smem.cp_async_wait]
    assert pending == [max(0, ring.depth - 2)]
    assert ring.depth == knobs.get("num_stages", ring.depth)
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(("warps", "waits"), [(2, smem.cp_async_wait), (4, mbarrier.mbarrier_wait)])
def test_copies_for_no_engine_are_waited_for_in_groups(warps: int, waits: OpKind) -> None:
    """wgmma, which takes four warps, reads by the async proxy what cp.async wrote: after a fence."""
    case = catalog.by_name()["matmul-bf16-rc"]
    made = compiled(case, "sm_90a", tma=False, num_consumer_groups=0, num_warps=warps)
    kinds = {o.kind for o in walk(made.placed.body)}
    assert kinds & {smem.cp_async_wait, mbarrier.mbarrier_wait} == {waits}
    assert (smem.fence_async in kinds) == (mma.wgmma in kinds) == (warps == 4)
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("name", ["matmul-bf16-rc", "matmul-77x51x97", "attention-alibi"])
def test_a_pipeline_of_groups_comes_back_from_its_text(name: str, tmp_path: Path) -> None:
    case = catalog.by_name()[name]
    made = compiled(case, "sm_80")
    script, signature = owned(made.eject(), tmp_path, case.grid)
    same_program(made, script.compile(signature, target="sm_80"))


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("name", "groups"),
    diagonals(2, ["matmul-bf16-rc", "attention-bias-descriptor", "f32-tf32-rr"], [None, 0, 2]),
)
@pytest.mark.each(2)
def test_tma_can_be_left_alone(name: str, groups: int | None) -> None:
    case = catalog.by_name()[name]
    made = compiled(case, "sm_90a", tma=False, num_consumer_groups=groups)
    assert not any(o.kind in (tma.tma_load, tma.tma_store) for o in walk(made.placed.body))
    assert made.schedule.specialized == (groups == 2)
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@on(OTHERS)
@pytest.mark.each(2)
def test_tasks_feed_products(target: str) -> None:
    """By TMA where there is one, else by producers that copy piece by piece."""
    case = catalog.by_name()["matmul-bf16-rc"]
    made = compiled(case, target, **TASKS)
    kinds = {o.kind for o in walk(made.placed.body)}
    assert made.schedule.specialized
    assert (tma.tma_load if TARGETS[target].box_limit else smem.cp_async) in kinds
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


@pytest.mark.parametrize(("target", "name"), diagonals(3, OTHERS, BUILT))
@pytest.mark.each(2)
def test_a_build_has_no_problems(target: str, name: str) -> None:
    case = catalog.by_name()[name]
    made = compiled(replace(case, kernel=wl.jit(case.kernel.fn)), target)  # others had no cubin
    assert made.cubin.startswith(b"\x7fELF") and made.resources.problems() == ()


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("target", "name", "lacks"),
    [
        ("sm_80", "matmul-e4m3-rc", "sm_80 has no matrix unit for f8e4m3 by f8e4m3"),
        ("sm_86", "skinny-e5m2", "sm_86 has no matrix unit for f8e5m2 by f8e5m2"),
    ],
)
def test_what_a_chip_lacks_is_said(target: str, name: str, lacks: str) -> None:
    with pytest.raises(CompileError, match=lacks) as refused:
        compiled(catalog.by_name()[name], target)
    assert refused.value.code == "target" and refused.value.loc is not None


@pytest.mark.parametrize("name", ["mixed-bf16-e4m3-rc", "mixed-e4m3-bf16-rr"])
@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
def test_8_bit_floats_are_converted_by_arithmetic(target: str, name: str) -> None:
    case = catalog.by_name()[name]
    made = compiled(replace(case, kernel=wl.jit(case.kernel.fn)), target)
    simulated(case, made)
    assert made.cubin.startswith(b"\x7fELF") and made.resources.problems() == ()


@pytest.mark.usefixtures("without_nvrtc")
@on(OTHERS)
def test_clusters_are_refused(target: str) -> None:
    with pytest.raises(CompileError, match=r"num_ctas=2: a cluster of .* has 1 CTAs at most"):
        compiled(catalog.by_name()["matmul-bf16-rc"], target, num_ctas=2)


def test_a_device_gets_its_target() -> None:
    for capability, name in (
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_89"),
        ((12, 0), "sm_120a"),
        ((12, 1), "sm_121a"),
    ):
        found = for_device(capability)
        assert found is not None and found.name == name
    assert for_device((7, 5)) is None
