"""Tilus's Hopper ladder and idioms on the GPU: bit-equal on exact data, launch after launch.

`python -m benchmarks` has no case for the ladder: `warploom run corpus/tilus_hopper.py 4096` times each step beside
torch.matmul, with all schedules of its space."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.explicit import test_tilus_ampere as ampere
from tests.explicit import test_tilus_language as idioms
from tests.explicit.served import served
from tests.explicit.test_tilus_hopper import LARGE, arrays, step

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

SIZES = [(200, 136, 264), (1024, 768, 1024), (4096, 2048, 64)]


def upload(x: Any) -> Any:
    return torch.from_numpy(x).cuda()


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_step_computes_the_product(name: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b, _ = arrays(*sizes)
    wanted = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float16)
    given = [upload(x) for x in (a, b)]
    whole = torch.full((m + 2, n), torch.nan, device="cuda", dtype=torch.float16)
    made = step(name, LARGE[name], 64)
    for _ in range(3):
        whole[1:-1] = torch.nan
        made(m, n, k, *given, whole[1:-1])
        found = whole.cpu().numpy()
        assert np.array_equal(found[1:-1], wanted)
        assert np.isnan(found[[0, -1]]).all()


@pytest.mark.parametrize("op", idioms.UFUNCS)
@pytest.mark.parametrize("reverse", [False, True])
def test_exclusive_scans(op: str, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (4, 32)).astype(np.int32)
    on_gpu, on_cpu = upload(x), x.copy()
    idioms.Scan(op, True, reverse)(on_gpu)
    idioms.Scan(op, True, reverse)(on_cpu)
    assert np.array_equal(on_gpu.cpu().numpy(), on_cpu)


SAME = {
    "scatters": (idioms.Scatters, [np.zeros(4, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)]),
    "two groups": (idioms.TwoGroups, [np.zeros((2, 32), np.float32)]),
    "elements": (idioms.Elements, [np.zeros(4, np.int32), 7]),
    "stores by a warp": (idioms.Stores, [np.zeros((128, 64), np.float16), 128]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_simulator_and_the_gpu_agree(name: str) -> None:
    cls, args = SAME[name]
    on_cpu = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    on_gpu = [upload(x) if isinstance(x, np.ndarray) else x for x in args]
    cls()(*on_cpu)
    cls()(*on_gpu)
    for x, y in zip(on_cpu, on_gpu, strict=True):
        assert not isinstance(x, np.ndarray) or np.array_equal(x, y.cpu().numpy())


def test_random_numbers() -> None:
    p = torch.zeros(128, device="cuda")
    q = torch.zeros(128, device="cuda", dtype=torch.uint32)
    idioms.Random()(p, q)
    assert q[:2].tolist() == [2632642643, 4242219303]


def test_semaphores_put_programs_in_order() -> None:
    p = torch.zeros((64, 128), device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they order is not proved
        for _ in range(3):  # the counters are zero again
            idioms.Semaphores()(p, 64)
    assert bool((p == 111).all())


@pytest.mark.parametrize("parts", [1, 4])
def test_split_k_by_semaphores(parts: int) -> None:
    m, n, k = 1000, 264, 2056
    a, b, _ = ampere.arrays(m, n, k)
    c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.float16)
    made = served("corpus.tilus_ampere").SplitK(**ampere.SMALL, split_k_factor=parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            c[:] = torch.nan
            made(m, n, k, upload(a), upload(b), c)
            found = c.double().cpu().numpy()
            assert np.allclose(found, a.astype(np.float64) @ b, rtol=2e-3, atol=2.0)
