"""CTAs of a cluster share the iterations of a loop (passes/tile/split_reduction.py), asked for and by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus import split_k
from corpus.plain import matmul
from tests.e2e.corpus import judging
from warploom.errors import CompileError
from warploom.kernels.gemm import gemm_pointers
from warploom.runtime.compiled import CompiledKernel
from warploom.schedule.model import Launch
from warploom.schedule.split_k import most_programs
from warploom.target import SM_90A

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
QUICK = ("in-order", "two-groups", "rows")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough)
        for name in split_k.CASES
    ],
)
@pytest.mark.each(2)
def test_every_case_is_right_and_proved(name: str, tmp_path: Path) -> None:
    judging.judge(split_k.made(name), "auto", tmp_path, orders=("late",))


@pytest.mark.parametrize("name", ["pair", "taps", "bytes", "hinted", "fewer-steps"])
@pytest.mark.each(2)
def test_every_case_is_right(name: str) -> None:
    case = split_k.made(name)
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **case.knobs)
    assert compiled.plan.cluster == (case.knobs["split_k"], 1, 1)
    found = judging.copies(case.args)
    compiled.simulate(*found, grid=case.grid, order="reverse")
    assert not case.judge(judging.arrays(found))


def test_parts_are_added_in_the_order_of_ranks() -> None:
    """So that a result is always the same, in the simulator as in the oracle."""
    a, b = (np.random.default_rng(i).standard_normal((16, 512)).astype(BF16) for i in (0, 1))
    b = np.concatenate([b] * 4).T
    results = []
    for order in ("late", "early", "reverse", ""):
        c = np.zeros((16, 64), np.float32)
        args = (a, b, c, 16, 64, 512, *(s // 2 for x in (a, b) for s in x.strides), 64, 1)
        meta: dict[str, Any] = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "split_k": 8}
        if order:
            matmul.compile_for(*args, grid=(1,), **meta).simulate(*args, grid=(1,), order=order)
        else:
            matmul[1,](*args, **meta)
        results.append(c)
    assert all(np.array_equal(c, results[0]) for c in results[:3])
    np.testing.assert_allclose(results[3], results[0], rtol=1e-5, atol=1e-4)


@wl.jit
def counted(a_ptr, b_ptr, c_ptr, K):
    """What the loop counts beside its sum is used after it."""
    r = tl.arange(0, 64)
    acc, done = tl.zeros((64, 64), dtype=tl.float32), 2
    for k in range(0, K, 64):
        a = tl.load(a_ptr + r[:, None] * K + (k + r)[None, :])
        b = tl.load(b_ptr + (k + r)[:, None] * 64 + r[None, :])
        acc = tl.dot(a, b, acc)
        done += 3
    tl.store(c_ptr + r[:, None] * 64 + r[None, :], acc + done)


@pytest.mark.parametrize("split", [2, 8, "last_wave"])
@pytest.mark.parametrize("steps", [5, 0])
@pytest.mark.each(2)
def test_a_count_is_that_of_all_iterations(split: Any, steps: int) -> None:
    a, b, c = (
        np.ones((64, 64 * steps), BF16),
        np.ones((64 * steps, 64), BF16),
        np.zeros((64, 64), np.float32),
    )
    made = counted.compile_for(a, b, c, 64 * steps, grid=(1,), split_k=split)
    made.simulate(a, b, c, 64 * steps, grid=(1,))
    assert (c == 64 * steps + 2 + 3 * steps).all()


# ---- by themselves


def compiled(m: int, n: int, k: int, tile: tuple[int, int, int], **knobs: Any) -> CompiledKernel:
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (np.lib.stride_tricks.as_strided(np.zeros(8, BF16), s, (0, 0)) for s in shapes)
    meta = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True)) | knobs
    grid = (-(-m // tile[0]) * -(-n // tile[1]),)
    return matmul.compile_for(a, b, c, m, n, k, k, 1, 1, k, n, 1, grid=grid, **meta)  # type: ignore[no-any-return]


ROWS = (16, 64, 128)


def test_short_grids_of_many_steps_take_a_variant() -> None:
    def ctas(n: int, k: int, **knobs: Any) -> int:
        made = compiled(16, n, k, ROWS, **knobs)
        assert made.request.launch.split_k == made.plan.cluster[0]
        return made.plan.cluster[0]

    assert ctas(1024, 8192) == 4  # 16 programs
    assert ctas(2048, 8192) == 2
    assert ctas(8192, 8192) == 1  # one a multiprocessor
    assert ctas(1024, 256) == 1  # two steps
    assert ctas(1024, 8192, split_k=1) == 1
    assert ctas(1024, 8192, num_stages=2) == 4


def test_who_has_no_such_variant() -> None:
    assert compiled(16, 8192, 8192, ROWS).plan.split_k is not None
    for knobs in ({"split_k": 1}, {"split_k": 2}):
        assert compiled(16, 8192, 8192, ROWS, **knobs).plan.split_k is None
    with pytest.raises(CompileError, match="a cluster of sm_80 has 1 CTA at most"):
        matmul.compile(
            signature=["*bf16"] * 3 + ["i32"] * 9,
            constexprs={"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64},
            target="sm_80", split_k=2,
        )  # fmt: skip


def test_a_variant_that_does_not_fit_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch never fails for what nobody asked for."""
    from warploom.runtime import variants

    compile_request, asked = variants.compile_request, []

    def refusing(request: Any) -> Any:
        asked.append(request.launch.split_k)
        if request.launch.split_k > 1:
            raise CompileError("shared-memory", "too large")
        return compile_request(request)

    monkeypatch.setattr(variants, "compile_request", refusing)
    for _ in range(2):
        assert compiled(16, 960, 8192, (16, 64, 96)).plan.cluster == (1, 1, 1)
    assert asked == [1, 4]


def test_the_kernel_says_so() -> None:
    said = compiled(16, 8192, 8192, ROWS).explain()
    assert "split-K by up to 8 CTAs where the grid is short" in said
    said = compiled(16, 1024, 8192, ROWS).explain()
    assert "a cluster of 4 CTAs, each with 1/4 of the iterations of its loop" in said


def test_clusters_find_room() -> None:
    assert [most_programs(SM_90A, n) for n in (2, 4, 8)] == [64, 24, 12]
    assert Launch().split_k == 1


# ---- what can't be shared


@wl.jit
def carried(a_ptr, b_ptr, c_ptr, K, SCALED: tl.constexpr, STORES: tl.constexpr):
    r = tl.arange(0, 64)
    acc = tl.zeros((64, 64), dtype=tl.float32)
    for k in range(0, K, 64):
        a = tl.load(a_ptr + r[:, None] * K + (k + r)[None, :])
        b = tl.load(b_ptr + (k + r)[:, None] * 64 + r[None, :])
        if SCALED:
            acc = acc * 0.5
        acc = tl.dot(a, b, acc)
        if STORES:
            tl.store(c_ptr + r[:, None] * 64 + r[None, :], acc)
    tl.store(c_ptr + r[:, None] * 64 + r[None, :], acc)


REFUSED = {
    "scaled": ({"SCALED": True, "STORES": False}, "which is no sum of tiles and grows by no fixed amount"),
    "stores": ({"SCALED": False, "STORES": True}, "it does more there than load and compute"),
    "three": ({"SCALED": False, "STORES": False, "split_k": 3}, "are 1, 2, 4 or 8"),
    "scaled, in the last wave": ({"SCALED": True, "STORES": False, "split_k": "last_wave"}, "which is no sum of tiles"),
    "stores, in the last wave": ({"SCALED": False, "STORES": True, "split_k": "last_wave"}, "it does more there than"),
    "num_ctas": ({"SCALED": False, "STORES": False, "num_ctas": 2}, "num_ctas=2 divides the program already"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shared_is_refused(name: str) -> None:
    meta, why = REFUSED[name]
    a, b, c = np.zeros((64, 128), BF16), np.zeros((128, 64), BF16), np.zeros((64, 64), np.float32)
    with pytest.raises(CompileError) as refused:
        carried.compile_for(a, b, c, 128, grid=(1,), **{"split_k": 2, **meta})
    assert refused.value.code == "split-k" and why in str(refused.value)


def test_a_loop_over_tiles_is_not_shared() -> None:
    a, b, c = (np.zeros((64, 64), BF16) for _ in range(3))
    args = (a, b, c, 64, 64, 64, *([64, 1] * 3))
    meta = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1}
    with pytest.raises(CompileError, match="it does more there than load and compute"):
        gemm_pointers.compile_for(*args, grid=(1,), split_k=2, **meta)
