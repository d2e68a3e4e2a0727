"""Products on a GPU, written between guards: what the explicit and the library's ones are held to alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SHAPES = [(192, 272, 208), (1000, 1040, 528), (2560, 3072, 1024), (64, 16, 400)]
GUARD = 64  # rows of NaN on both sides of C

Launch = Callable[[list[Any], Any, int, int, int], object]  # (operands, C, m, n, k)


def upload(x: Any) -> Any:
    """A NumPy array (bf16 and e4m3 from ml_dtypes) on the GPU."""
    if x.dtype.name == "float8_e4m3fn":
        return torch.from_numpy(x.view(np.uint8)).cuda().view(torch.float8_e4m3fn)
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


def launched(launch: Launch, inputs: Any, m: int, n: int, k: int) -> Any:
    """C as float64, after several launches into memory between guards."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    tensors = [upload(x) for x in inputs]
    for _ in range(3):
        whole = torch.full((m + 2 * GUARD, n), torch.nan, device="cuda", dtype=torch.bfloat16)
        c = whole[GUARD : GUARD + m]
        launch(tensors, c, m, n, k)
        torch.cuda.synchronize()
        assert whole[:GUARD].isnan().all() and whole[GUARD + m :].isnan().all()
    return c.double().cpu().numpy()


def equal_on_exact_data(product: Any, launch: Launch, m: int, n: int, k: int) -> None:
    """`product` has `exact(rng, m, n, k)`, operands whose sums f32 holds, and `wanted(*operands)`."""
    inputs = product.exact(np.random.default_rng(m + n + k), m, n, k)
    c = launched(launch, inputs, m, n, k)
    wanted = torch.from_numpy(product.wanted(*inputs)).float().bfloat16().double().numpy()
    assert np.array_equal(c, wanted)


def close_on_random_data(
    product: Any, launch: Launch, m: int, n: int, k: int, loose: float
) -> None:
    """`loose`: what an element may be off beside its rounding, in units of √k."""
    inputs = product.random(np.random.default_rng(m + n + k), m, n, k)
    c = launched(launch, inputs, m, n, k)
    wanted = product.wanted(*inputs)
    assert np.all(abs(c - wanted) <= abs(wanted) * 2**-8 + loose * np.sqrt(k))
    assert np.linalg.norm(c - wanted) <= 6e-3 * np.linalg.norm(wanted)
