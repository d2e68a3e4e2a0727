"""CTAs share the programs of a last wave that does not fill (passes/tile/split_last_wave.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus import split_k
from corpus.case import Case
from corpus.plain import matmul
from tests.e2e import road
from tests.e2e.corpus import judging
from tests.pairwise import every
from warploom.errors import CompileError
from warploom.runtime.compiled import CompiledKernel
from warploom.schedule.model import LAST_WAVE
from warploom.target import SM_90A

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
FULL = SM_90A.multiprocessors
QUICK = ("two-groups", "rows")


def made(name: str) -> Case:
    case = split_k.made(name)
    return replace(case, knobs={**case.knobs, "split_k": LAST_WAVE})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough)
        for name in split_k.CASES
    ],
)
@pytest.mark.each(2)
def test_every_case_is_right_and_proved(name: str, tmp_path: Path) -> None:
    """All programs of these grids are of the last wave; its owner gets a script of the same program."""
    judging.judge(made(name), "auto", tmp_path, orders=("late",))


@pytest.mark.parametrize("name", every(2, ["pair", "taps", "bytes", "hinted", "fewer-steps"]))
def test_every_case_is_right(name: str) -> None:
    case = made(name)
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **case.knobs)
    assert compiled.plan.programs
    found = judging.copies(case.args)
    compiled.simulate(*found, grid=case.grid, order="reverse")
    assert not case.judge(judging.arrays(found))


def product(
    m: int, n: int, k: int, tile: tuple[int, int, int], digits: int | None = None
) -> tuple[Any, ...]:
    """(arguments, grid, constexprs) of random numbers, rounded to so many digits"""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape) for shape in ((m, k), (k, n)))
    a, b = (road.filled(x if digits is None else x.round(digits), BF16) for x in (a, b))
    c = road.array((m, n), np.float32)
    args = (a, b, c, m, n, k, *(s // x.itemsize for x in (a, b, c) for s in x.strides))
    meta = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    return args, (-(-m // tile[0]) * -(-n // tile[1]),), meta


@pytest.mark.parametrize("form", every(2, [{}, {"num_consumer_groups": 0}]))
def test_whole_programs_and_those_of_the_last_wave(form: dict[str, Any]) -> None:
    """The same bits in every order: parts are added in theirs, whoever comes last."""
    args, grid, meta = product(64, FULL * 32 + 70, 150, (64, 32, 32))
    compiled = matmul.compile_for(*args, grid=grid, **meta, **form, split_k=LAST_WAVE)
    assert compiled.plan.grid_for((*args[3:], 0, 0, 0, FULL + 3, 1, 1)) == (FULL + 12, 1, 1)
    results = [
        road.simulated(compiled, args, grid, order)[2] for order in ("late", "early", "reverse")
    ]
    assert all(np.array_equal(c, results[0]) for c in results)
    exact = args[0].astype(float) @ args[1].astype(float)
    np.testing.assert_allclose(results[0], exact, rtol=1e-4, atol=1e-3)
    report = compiled.simulate(*args, grid=grid, algebra=True)
    assert report.is_equal, str(report)


@pytest.mark.thorough
def test_whole_programs_and_those_of_the_last_wave_are_proved() -> None:
    args, grid, meta = product(64, FULL * 32 + 70, 150, (64, 32, 32))
    report = matmul.compile_for(*args, grid=grid, **meta, split_k=LAST_WAVE).check(*args, grid=grid)
    assert report.ok, str(report)


def test_every_level_computes_the_same() -> None:
    args, grid, meta = product(130, 70, 150, (128, 64, 32), digits=0)
    compiled, _ = road.check_equal(
        matmul,
        args,
        grid,
        {**meta, "split_k": LAST_WAVE, "num_consumer_groups": 2},
        ("late",),
        levels=True,
    )
    assert compiled.schedule.tasks[0].replicas == 2


# ---- by themselves


def compiled(
    programs: int, k: int, tile: tuple[int, int, int] = (128, 128, 64), **knobs: Any
) -> CompiledKernel:
    m, n = tile[0], programs * tile[1]
    a, b, c = (
        np.lib.stride_tricks.as_strided(np.zeros(8, BF16), s, (0, 0))
        for s in ((m, k), (k, n), (m, n))
    )
    meta = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True)) | knobs
    return matmul.compile_for(a, b, c, m, n, k, k, 1, 1, k, n, 1, grid=(programs,), **meta)  # type: ignore[no-any-return]


def test_which_launches_take_the_variant() -> None:
    """What was measured to gain a tenth and more, and nothing that lost."""

    def is_shared(programs: int, k: int, **knobs: Any) -> bool:
        kernel = compiled(programs, k, **knobs)
        assert (kernel.request.launch.split_k == LAST_WAVE) == kernel.plan.programs
        return kernel.plan.programs

    assert [p for p in (132, 139, 160, 264, 270, 330, 396, 420) if is_shared(p, 8192)] == [
        139,
        160,
        270,
    ]
    assert not is_shared(160, 1024)
    assert not is_shared(160, 8192, split_k=1)
    assert not is_shared(
        160, 8192, num_stages=2, num_consumer_groups=0
    )  # two share a multiprocessor
    assert compiled(160, 1024, split_k=LAST_WAVE).plan.programs


def test_the_kernel_says_so() -> None:
    said = compiled(160, 1024).explain()
    assert "Stream-K for the last wave where that is not nearly full" in said
    said = compiled(160, 8192).explain()
    assert "up to 4 CTAs share the iterations of each program of the last wave" in said
    assert "because the programs of the last wave are few" in said


def test_the_usual_variant_is_what_it_was() -> None:
    assert compiled(160, 1024).cuda == compiled(160, 1024, split_k=1).cuda


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(CompileError, match="'last_wave': num_ctas=2 divides the program already"):
        compiled(160, 1024, split_k=LAST_WAVE, num_ctas=2)


@wl.jit
def plane_product(
    a: Any, b: Any, c: Any, M: Any, N: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
) -> None:  # fmt: skip
    m, n = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(0, K, BK):
        k = t + tl.arange(0, BK)
        x = tl.load(
            a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0
        )
        y = tl.load(
            b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0
        )
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def test_no_grid_is_checked_that_no_launch_has() -> None:
    """What turns a condition is sought among numbers of programs of 31 bits."""
    args = [*(road.filled(np.ones(s), BF16) for s in ((640, 208), (208, 384)))]
    args += [road.array((640, 384), np.float32), 640, 384, 208]
    meta = {"BM": 128, "BN": 256, "BK": 64, "split_k": LAST_WAVE}
    report = plane_product.compile_for(*args, grid=(5, 2), **meta).check()
    assert not report.failures, str(report)
