"""Dots in registers on a GPU, of batches too: the corpus's cases bit-equal on exact data, and beside float64 on random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpus import batched, in_order
from tests.e2e.corpus.judging import arrays, copies
from tests.gpu.probe import needs_gpu

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
