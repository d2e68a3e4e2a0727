"""The record of how an H200 adds, asked again: a million sums a format, bit for bit; and whole kernels."""

from __future__ import annotations

import functools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.library_products import LibraryProduct
from tests.e2e.test_library_products import FIRSTS
from tests.explicit.products import BF16
from tests.gpu.probe import needs_gpu
from tests.gpu.sum_cases import CASES, problems
from tests.gpu.sums import Module, Way, compiled
from tests.sim.tensor_core_vectors import FORMATS, UNRECORDED, dtypes_of
from tests.sim.test_tensor_core import BLOCKS, DTYPES, FORMS, operands, product
from warploom.runtime.launch import driver
from warploom.sim.tensor_core import accumulate
from warploom.sim.tensor_core import rule as rule_of
from warploom.target.sm_90a import MMA_SYNC, WGMMA

pytestmark = [pytest.mark.gpu, needs_gpu]

ASKED = {**FORMATS, **UNRECORDED}
# Problems of each way: so many of each case.  Sums: 64 · n a problem.
ROUNDS = {
    Way("shared", 64, 1): 8,
    Way("shared", 64, 1, has_c=False): 1,
    Way("registers", 64, 2): 2,
    Way("shared", 32, 3): 2,
    Way("shared", 16, 4): 2,
    Way("shared", 256, 1): 1,
    Way("mma", 64, 1): 2,
    Way("mma", 16, 2): 2,
}


def ways(name: str) -> list[Way]:
    """Those that the format has."""
    return [w for w in ROUNDS if MMA_SYNC.product(*ASKED[name]) or w.by != "mma"]


@functools.cache
def cubins() -> dict[str, bytes]:
    """Of all formats, compiled side by side."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: compiled(name, ways(name)), ASKED)
    return dict(zip(ASKED, found, strict=True))


def expected(name: str, way: Way, a: Any, b: Any, c: Any) -> Any:
    rule = rule_of(MMA_SYNC if way.by == "mma" else WGMMA, *dtypes_of(name))
    left, right = (
        np.ascontiguousarray(x.swapaxes(1, 2)).reshape(len(x), x.shape[2], -1) for x in (a, b)
    )
    rows = [
        accumulate(x, y.T, z if way.has_c else None, rule)
        for x, y, z in zip(left, right, c, strict=True)
    ]
    return np.stack(rows).view(f"u{c.itemsize}")


@pytest.mark.parametrize("name", ASKED)
def test_a_million_sums(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked, wrong = 0, Counter[str]()
    with driver().using(0):
        module = Module(cubins()[name])
        for way in ways(name):
            a, b, c = problems(name, way.steps, way.n, ROUNDS[way] * len(CASES), len(name))
            found = module.ask(way, a, b, c)
            differs = found != expected(name, way, a, b, c)
            asked += differs.size
            for i, case in enumerate(CASES):
                wrong[f"{way}, {case.__name__}"] += int(differs[i :: len(CASES)].sum())
    wrong = +wrong
    with capsys.disabled():
        print(f"\n{name}: {asked:,} sums, {wrong.total():,} differ {dict(wrong) or ''}", end="")
    assert asked >= 10**6
    assert not wrong


# ---- whole kernels


def same_bits(kernel: Any, args: list[Any], grid: Any, meta: dict[str, Any]) -> None:
    """A launch leaves every byte as the exact simulation of the variant that ran does, guards included."""
    from tests.gpu.test_gemm import download, torch, upload

    sent = [upload(a) if isinstance(a, np.ndarray) else (None, a) for a in args]
    ran = kernel[grid](*[x for _, x in sent], **meta)
    torch.cuda.synchronize()
    simulated = [road.clone(a) for a in args]
    ran.simulate(*simulated, grid=grid, exact=True)
    outputs = 0
    for (whole, _), before, wanted in zip(sent, args, simulated, strict=True):
        if whole is not None:
            found = download(whole, before)
            wrong = int((found != road.around(wanted)).sum())
            assert wrong == 0, f"{wrong} bytes of {found.size} differ"
            outputs += not np.array_equal(road.around(before), road.around(wanted))
    assert outputs


@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")
@pytest.mark.parametrize("product", [p for p in FIRSTS if "dual" not in p.name], ids=str)
def test_a_library_gemm(product: LibraryProduct, own_cache: None) -> None:
    """Fast and promoted sums, transposed operands; of dual the epilogue has an exponential."""
    m, n, k = 192, 272, 1040
    inputs = product.random(np.random.default_rng(k), m, n, k)
    flat = [road.filled(x.ravel(), x.dtype) for x in inputs]
    args = product.arguments(flat, road.array((m * n,), BF16), m, n, k)
    same_bits(product.kernel, args, (3,), product.config.all_kwargs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DTYPES)
def test_a_gemm_of_each_format(name: str, form: str, own_cache: None) -> None:
    """The accumulators as they are, in float32."""
    m, n, k = 200, 136, 1296
    a, b, c = (road.filled(x, x.dtype) for x in operands(name, m, n, k))
    grid = (-(-m // BLOCKS["BM"]), -(-n // BLOCKS["BN"]))
    same_bits(product, [a, b, c, m, n, k], grid, {**BLOCKS, **FORMS[form]})


@wl.jit
def pair(a_ptr, b_ptr, c_ptr, d_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A·B, and of operands that were computed in registers."""
    rm, rn = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    first, second = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :])
        b = tl.load(b_ptr + rn[None, :] * K + rk[:, None])
        first = tl.dot(a, b, first)
        second = tl.dot((a.to(tl.float32) * 3.0).to(a.dtype), b, second)
    at = rm[:, None] * (tl.num_programs(0) * BN) + rn[None, :]
    tl.store(c_ptr + at, first)
    tl.store(d_ptr + at, second)


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3"])
def test_operands_in_registers(name: str, own_cache: None) -> None:
    k = 768
    a, b, c = (road.filled(x, x.dtype) for x in operands(name, 64, 128, k))
    same_bits(pair, [a, b, c, road.clone(c), k], (2,), {"BM": 64, "BN": 64, "BK": 64})
