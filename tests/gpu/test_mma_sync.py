"""Dots in registers on a GPU, of batches too: the corpus's cases bit-equal on exact data, and beside float64 on random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpus import batched, in_order
from tests.e2e.corpus.judging import arrays, copies
from tests.explicit import ampere
from tests.explicit.test_ampere import HALVES, halves
from tests.gpu.probe import needs_gpu
from warploom.target import SM_90A

pytestmark = [pytest.mark.gpu, needs_gpu]
torch = pytest.importorskip("torch")


def on_device(x: Any) -> Any:
    """An array on the GPU, in the same strides."""
    if not isinstance(x, np.ndarray):
        return x
    order = np.argsort([-s for s in x.strides], kind="stable")
    kept = x.transpose(order)
    words = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize]
    signed = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    moved = torch.from_numpy(np.ascontiguousarray(kept).view(words).view(signed)).cuda()
    moved = moved.view(TYPES[x.dtype.name])
    return moved.permute(*np.argsort(order).tolist())


TYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}


CASES = {
    **in_order.CASES,
    **{f"batched-{name}": made for name, made in batched.CASES.items()},
}


@pytest.mark.parametrize("groups", [None, 0, 1])
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name: str, groups: int | None) -> None:
    case = CASES[name]()
    given = copies(case.args)
    moved = [on_device(x) for x in given]
    knobs = dict(case.knobs) if groups is None else {**case.knobs, "num_consumer_groups": groups}
    case.kernel[case.grid](*moved, **case.meta, **knobs)
    found = list(given)
    for i in case.wants:
        found[i] = moved[i].cpu().numpy()
    assert not case.judge(arrays(tuple(found)))


@pytest.mark.parametrize("warps", [3, 5, 6, 7])
@pytest.mark.parametrize(
    "name", ["32x32-two", "16x48-two", "32x32-f64", "64x64-f64", "ieee-32x32-four", "chunk-64-two"]
)
def test_groups_of_one_or_two_warps(name: str, warps: int) -> None:
    """Several share a warp group."""
    case = CASES[name]()
    given = copies(case.args)
    moved = [on_device(x) for x in given]
    case.kernel[case.grid](*moved, **case.meta, **{**case.knobs, "num_warps": warps})
    found = list(given)
    for i in case.wants:
        found[i] = moved[i].cpu().numpy()
    assert not case.judge(arrays(tuple(found)))


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize(
    "name", ["ieee-64x64-four", "ieee-64x128-eight", "32x32-two", "chunk-64-two"]
)
def test_without_tma(name: str, groups: int) -> None:
    case = CASES[name]()
    given = copies(case.args)
    moved = [on_device(x) for x in given]
    knobs = {**case.knobs, "num_consumer_groups": groups, "tma": False}
    case.kernel[case.grid](*moved, **case.meta, **knobs)
    found = list(given)
    for i in case.wants:
        found[i] = moved[i].cpu().numpy()
    assert not case.judge(arrays(tuple(found)))


@pytest.mark.parametrize("order", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 128, 16), (100, 24, 12)], ids=str)
def test_float32_with_all_bits_is_the_simulators(tile: tuple[int, int, int], order: str) -> None:
    """Bit for bit, among them sums that cancel, subnormal numbers and infinities."""
    case = in_order.wholes(200, 168, 96, tile, order, 4)
    random = np.random.default_rng(0)
    for x in case.args[:2]:
        x[...] = random.standard_normal(x.shape) * 2.0 ** random.integers(-40, 20, x.shape)
    case.args[0][:8] *= np.float32(2.0**-75)
    case.args[1][:, :8] *= np.float32(2.0**-60)
    case.args[0][9, 5] = np.inf
    here, moved = copies(case.args), [on_device(x) for x in copies(case.args)]
    compiled = case.kernel.compile_for(*here, grid=case.grid, **case.meta, **case.knobs)
    compiled.simulate(*here, grid=case.grid, exact=True)
    case.kernel[case.grid](*moved, **case.meta, **case.knobs)
    np.testing.assert_array_equal(moved[2].cpu().numpy(), here[2])


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("tile", [(16, 16, 32), (32, 48, 64), (48, 96, 32)], ids=str)
def test_random_numbers_beside_float64(tile: tuple[int, int, int], warps: int) -> None:
    from corpus.plain import matmul

    m, n, k = 200, 168, 328
    rows, columns, depth = tile
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c = torch.full((m, n), float("nan"), device="cuda")
    matmul[-(-m // rows) * -(-n // columns),](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=depth, num_warps=warps,
    )  # fmt: skip
    wanted = a.double() @ b.double()
    assert (c.double() - wanted).abs().max() <= 2.0**-18 * (
        a.double().abs() @ b.double().abs()
    ).max()


@pytest.mark.parametrize("shape", HALVES, ids=str)
def test_sums_in_float16_round_as_the_simulator_has_it(shape: tuple[int, ...]) -> None:
    a, b, c, want = halves(shape, SM_90A)
    moved = [on_device(x) for x in (a, b, c)]
    for _ in range(3):
        moved[2].fill_(77)
        ampere.Halves(*shape)(*moved)
        np.testing.assert_array_equal(moved[2].cpu().numpy(), want)
