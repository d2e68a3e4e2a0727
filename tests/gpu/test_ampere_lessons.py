"""The Ampere ladder on the GPU at hand, compiled for it: bit-equal on exact data, launch after launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.explicit import ampere
from tests.explicit.test_ampere_lessons import LESSONS, arrays
from tests.explicit.test_lessons import kernel

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

SIZES = [(144, 144, 272), (64, 16, 16), (1024, 768, 1024), (256, 4096, 32)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_lesson_computes_the_product(path: Path, sizes: tuple[int, int, int]) -> None:
    a, b, _ = arrays(*sizes)
    m, n, _ = sizes
    given = [torch.from_numpy(x).cuda() for x in (a, b)]
    whole = torch.full((m + 2, n), torch.nan, device="cuda", dtype=torch.float16)
    for _ in range(3):  # split-K counts from zero each time
        whole[1:-1] = torch.nan
        kernel(path)(*given, whole[1:-1], *sizes)
        found = whole.cpu().numpy()
        assert np.array_equal(found[1:-1], a.astype(np.float64) @ b)
        assert np.isnan(found[[0, -1]]).all()


def test_stages_of_a_tilus_program() -> None:
    m, n, k = 1024, 768, 1024
    a, b, _ = arrays(m, n, k)
    given = [torch.from_numpy(x).cuda() for x in (a, b)]
    c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.float16)
    ampere.Staged()(m, n, k, *given, c)
    assert np.array_equal(c.cpu().numpy(), a.astype(np.float64) @ b)
