"""Ejected kernels on a GPU: the same arguments, the same bytes as the kernel they came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e import gemms
from tests.e2e.gemms import EIGHT_BIT, UNIFORM, WS, WS_SHALLOW, Gemm
from tests.eject.owned import owned

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

BASE = Gemm(300, 264, 200, programs=4)
CASES = [
    (BASE, WS),
    (BASE.with_(orders="cr"), WS_SHALLOW),
    (BASE.with_(kernel="host", orders="rr"), WS),
    (BASE.with_(kernel="device", orders="cc"), UNIFORM),
    (BASE.with_(pads=(4, 0, 1)), UNIFORM),
    (BASE.with_(pads=(1, 4, 0)), WS),
    (EIGHT_BIT[0], WS),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))
    yield
    torch.cuda.synchronize()


@pytest.mark.parametrize(("case", "knobs"), CASES, ids=lambda x: str(x) if x in CASES else "")
def test_products(case: Gemm, knobs: dict[str, Any], tmp_path: Path) -> None:
    from tests.gpu.test_gemm import assert_same, upload

    arrays = case.arrays(np.random.default_rng(0))
    wanted = gemms.exact(arrays[0], arrays[1], case.out)
    (_, a), (_, b), (whole, c) = map(upload, arrays)
    args = case.args(a, b, c)
    compiled = case.jit.compile_for(*args, grid=case.programs, **case.meta, **knobs)
    script, _ = owned(compiled.eject(), tmp_path, case.programs)
    for _ in range(2):  # the second time a launch that has been seen
        script(*args)
        torch.cuda.synchronize()
        assert_same(whole, arrays[2], wanted)
