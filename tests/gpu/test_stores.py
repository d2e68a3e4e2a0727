"""Staging in a ring's slots, its buffers, and tasks that store, on a GPU: bit-equal on integers, odd sizes,
three launches each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_stores import FULL, WIDE, one_tile
from warploom.kernels.dual import dual_gemm_forward
from warploom.kernels.fp8 import fp8_gemm_rowwise
from warploom.kernels.gemm import config, gemm_pointers, persistent_grid

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

TASK = {"store_task": True}
FAST, PROMOTED = config(128, 256, 128, 8, 2, 3), config(128, 192, 128, 8, 2, 4, PROMOTE=True)
SHAPES = [(200, 520, 200), (1000, 1032, 1544), (4096, 2048, 512)]


def whole(shape: tuple[int, int], seed: int, dtype: Any) -> Any:
    """Small integers."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    random = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(-3, 4, shape, device="cuda", generator=random).to(dtype)


def right_thrice(
    kernel: Any, inputs: tuple[Any, ...], wanted: Any, made: Any, **knobs: Any
) -> None:
    """`kernel(*inputs, C, M, N, K)` with a config and more knobs, its C between guards."""
    m, n = wanted.shape
    k = inputs[0].shape[1]
    grid = persistent_grid(m, n, 132)(made.kwargs)
    for _ in range(3):
        guarded = torch.full((m + 128, n), torch.nan, device="cuda", dtype=wanted.dtype)
        c = guarded[64 : m + 64]
        kernel(grid, inputs, c, m, n, k, {**made.all_kwargs, **knobs})
        torch.cuda.synchronize()
        assert torch.equal(c, wanted)
        assert guarded[:64].isnan().all() and guarded[m + 64 :].isnan().all()


def product(grid: Any, ab: Any, c: Any, m: int, n: int, k: int, knobs: dict[str, Any]) -> None:
    strides = (k, 1, 1, k, n, 1)
    gemm_pointers[grid](*ab, c, m, n, k, *strides, strict=True, **knobs)


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("made", "knobs"),
    [
        (config(128, 256, 64, 4, 2, 3), TASK),
        (config(128, 256, 64, 4, 2, 3), {**TASK, "store_buffers": 2}),
        (config(128, 256, 64, 4, 2, 2), {"store_whole": True}),
        (config(128, 128, 64, 4, 2, 3), {**TASK, "store_whole": True}),
        (config(128, 256, 64, 4, 2, 4), {**TASK, "store_buffers": 1}),
        (config(128, 256, 64, 4, 2, 4), {"store_buffers": 2}),
        (config(128, 128, 64, 4, 2, 5, ping_pong=True), TASK),
        (config(64, 128, 64, 4, 1, 6), TASK),
    ],
)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_task_stores(m: int, n: int, k: int, made: Any, knobs: Any, out: str) -> None:
    if out == "float32" and made.ping_pong:
        knobs = {**knobs, "store_buffers": 2}
    a, b = whole((m, k), m, torch.bfloat16), whole((n, k), n, torch.bfloat16)
    wanted = (a.double() @ b.double().T).to(getattr(torch, out))
    right_thrice(product, (a, b), wanted, made, **knobs)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("made", [FAST, PROMOTED])
@pytest.mark.parametrize(
    "knobs", [TASK, {**TASK, "store_buffers": 1}, {**TASK, "store_whole": True}]
)
def test_a_task_stores_8_bit_products(m: int, n: int, k: int, made: Any, knobs: Any) -> None:
    k = k // 16 * 16
    a, b = whole((m, k), m, torch.float8_e4m3fn), whole((n, k), n, torch.float8_e4m3fn)
    by_row = 2.0 ** (torch.arange(m, device="cuda") % 5)
    by_column = 2.0 ** -(torch.arange(n, device="cuda") % 3)
    wanted = a.double() @ b.double().T * by_row[:, None] * by_column

    def scaled(grid: Any, ab: Any, c: Any, m: int, n: int, k: int, knobs: dict[str, Any]) -> None:
        fp8_gemm_rowwise[grid](*ab, by_row, by_column, c, m, n, k, strict=True, **knobs)

    right_thrice(scaled, (a, b), wanted.bfloat16(), made, **knobs)


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_a_task_stores_pairs(m: int, n: int, k: int, depth: int) -> None:
    """Against float64: gates are no integers."""
    a, b, c = (whole((rows, k), rows, torch.bfloat16) for rows in (m, n, n))
    made = config(128, 128, 64, 8, 2, depth)
    out = torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)
    grid = persistent_grid(m, n, 132)(made.kwargs)
    knobs = {**made.all_kwargs, **TASK}
    for _ in range(3):
        dual_gemm_forward[grid](a, b, c, out, 0.01, 0.01, m, n, k, strict=True, **knobs)
    gate, up = (a.double() @ w.double().T * 0.01 for w in (b, c))
    wanted = torch.nn.functional.silu(gate) * up
    assert ((out.double() - wanted).abs() <= wanted.abs() * 2**-7 + 1e-4).all()


@pytest.mark.parametrize(
    "knobs",
    [
        {"store_buffers": 1},
        {"store_buffers": 0},
        FULL,
        {"store_whole": True},
    ],
)
@pytest.mark.parametrize(("m", "n", "k"), [(200, 520, 200), (1000, 1032, 1544), (128, 256, 0)])
def test_it_is_right(m: int, n: int, k: int, knobs: dict[str, Any]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    meta = {**WIDE, **knobs}
    random = torch.Generator(device="cuda").manual_seed(m)
    a, b = (
        torch.randint(-3, 4, (rows, k), device="cuda", generator=random).bfloat16()
        for rows in (m, n)
    )
    right = (a.double() @ b.double().T).bfloat16()
    grid = (-(-m // meta["BLOCK_M"]), -(-n // meta["BLOCK_N"]))
    for _ in range(3):
        c = torch.full((m, n), float("nan"), device="cuda").bfloat16()
        one_tile[grid](a, b, c, m, n, k, **meta)
        torch.cuda.synchronize()
        assert torch.equal(c, right)
