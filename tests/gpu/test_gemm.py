"""GEMMs on a GPU: the cases of the simulator's tests, bit-equal to float64 on integers and close to it on
random data.  Outputs start as NaN between guards, and all of their bytes are compared.  Each kernel
runs twice, the second time from the disk cache."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
from tests.e2e import gemms, road
from tests.e2e.gemms import (
    DESCRIBED,
    EIGHT_BIT,
    KNOBS,
    PRODUCERS,
    SIXTEEN_BIT,
    TRANSPOSED,
    UNIFORM,
    WS,
    Gemm,
)
from warploom.errors import WarploomWarning

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

TORCH = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def one_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All tests of this file share an own cache on disk."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    monkeypatch.setenv("WARPLOOM_CACHE", str(cache))
    yield
    torch.cuda.synchronize()


def upload(a: Any) -> tuple[Any, Any]:
    """(the bytes on the GPU of an array with its guards, a tensor on them with the array's strides)."""
    strides = [s // a.itemsize for s in a.strides]
    dtype = TORCH[a.dtype.name]
    if a.size == 0:
        return None, torch.empty_strided(a.shape, strides, dtype=dtype, device="cuda")
    host = road.around(a)
    whole = torch.zeros(-(-host.size // 16) * 16, dtype=torch.uint8, device="cuda")
    whole[: host.size] = torch.from_numpy(host.copy()).cuda()
    typed = whole.view(dtype)
    return whole, torch.as_strided(typed, a.shape, strides, road.GUARD // a.itemsize)


def download(whole: Any, like: Any) -> Any:
    """The bytes of an uploaded array and its guards."""
    return whole.cpu().numpy()[: road.around(like).size]


def assert_same(whole: Any, c: Any, wanted: Any) -> None:
    """C on the GPU is `wanted`; what lies between its rows and around it is as it was."""
    expected = road.clone(c)
    expected[...] = wanted
    wrong = int(np.sum(download(whole, c) != road.around(expected)))
    assert wrong == 0, f"{wrong} bytes of C differ"


def launch(kernel: Any, case: Gemm, arrays: tuple[Any, Any, Any], grid: int, meta: Any) -> Any:
    """(the variant that ran, C's bytes on the GPU)"""
    (_, a), (_, b), (whole, c) = map(upload, arrays)
    ran = kernel[(grid,)](*case.args(a, b, c), **meta)
    torch.cuda.synchronize()
    return ran, whole


def check(
    case: Gemm, knobs: dict[str, Any], kernel: Any = None, meta: Any = None, clean: bool = True
) -> Any:
    """Integer data, twice: as it comes, and by a kernel object that knows nothing, from the disk."""
    arrays = case.arrays(np.random.default_rng(0))
    wanted = gemms.exact(arrays[0], arrays[1], case.out)
    meta = {**case.meta, **knobs} if meta is None else meta
    fn = (kernel or case.jit).fn
    for turn in range(2):
        ran, whole = launch(wl.jit(fn), case, arrays, case.programs, meta)
        assert_same(whole, arrays[2], wanted)
        assert turn == 0 or ran.from_cache
        assert not clean or ran.resources.problems() == ()
    return ran


def paired(cases: list[Any]) -> list[Any]:
    """Every case with two of the knobs, all knobs in turn."""
    names = list(KNOBS)
    return [
        pytest.param(case, KNOBS[names[j % len(names)]], id=f"{case}-{names[j % len(names)]}")
        for i, case in enumerate(cases)
        for j in (2 * i, 2 * i + 1)
    ]


@pytest.mark.parametrize(("case", "knobs"), paired(SIXTEEN_BIT + EIGHT_BIT + DESCRIBED))
def test_dtypes_orders_and_descriptors(case: Gemm, knobs: dict[str, Any]) -> None:
    check(case, knobs)


@pytest.mark.parametrize(("case", "knobs"), paired([case for case, _ in PRODUCERS]))
def test_producers(case: Gemm, knobs: dict[str, Any]) -> None:
    check(case, knobs)


@pytest.mark.parametrize(("case", "knobs"), paired(TRANSPOSED))
def test_fp8_in_other_orders(case: Gemm, knobs: dict[str, Any]) -> None:
    check(case, knobs)


@pytest.mark.parametrize("orders", ["rr", "cc", "cr"])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_large_fp8_in_other_orders(orders: str, dtype: str) -> None:
    case = Gemm(1000, 784, 1040, dtype=dtype, orders=orders, blocks=(128, 192, 128), programs=7)
    ran = check(case, {**WS, "num_buffers_warp_spec": 2})
    assert "transpose" in [t.name for t in ran.schedule.tasks]


@pytest.mark.parametrize("types", [("e4m3", "e5m2"), ("e5m2", "e4m3")], ids="-".join)
@pytest.mark.parametrize("orders", ["rc", "cr"])
def test_two_kinds_of_bytes_in_one_product(types: tuple[str, str], orders: str) -> None:
    case = Gemm(333, 200, 272, dtype="e4m3", orders=orders, blocks=(128, 64, 64))
    a, b, c = case.arrays(np.random.default_rng(1))
    a, b = (
        road.filled(x, gemms.DTYPES[t], o) for x, t, o in zip((a, b), types, orders, strict=True)
    )
    _, whole = launch(case.jit, case, (a, b, c), 2, {**case.meta, **WS})
    assert_same(whole, c, gemms.exact(a, b, case.out))


@pytest.mark.parametrize("name", KNOBS)
def test_trip_counts_around_the_depth(name: str) -> None:
    """K = 0 and shorter than a block too; one program with two tiles, then fewer tiles than programs."""
    for k in (0, 12, 32, 64, 84, 96, 128, 192, 224):
        check(Gemm(100, 128, k, programs=1), KNOBS[name])
        check(Gemm(100, 128, k, programs=5), KNOBS[name])


@pytest.mark.parametrize("kernel", ["host", "device"])
@pytest.mark.parametrize("name", ["two-groups", "uniform"])
def test_k_zero_by_descriptors(name: str, kernel: str) -> None:
    check(Gemm(130, 70, 0, kernel=kernel), KNOBS[name])


@pytest.mark.parametrize("groups", [1, 2])
def test_small_m(groups: int) -> None:
    check(
        Gemm(50, 200, 96, blocks=(64, 128, 32), orders="rr"), {**WS, "num_consumer_groups": groups}
    )


@pytest.mark.parametrize(
    ("blocks", "groups"),
    [((128, 96, 32), 2), ((128, 48, 64), 2), ((64, 112, 16), 1), ((192, 64, 64), 3)],
)
def test_blocks_that_are_no_powers_of_two(blocks: tuple[int, int, int], groups: int) -> None:
    check(Gemm(200, 150, 100, blocks=blocks), {**WS, "num_consumer_groups": groups})


@pytest.mark.parametrize(
    ("dtype", "blocks"),
    [
        ("bf16", (128, 256, 64)),
        ("f16", (128, 192, 64)),
        ("bf16", (128, 128, 64)),
        ("e4m3", (128, 256, 128)),
        ("bf16", (64, 256, 64)),
    ],
)
def test_large_tiles_on_the_whole_gpu(dtype: str, blocks: tuple[int, int, int]) -> None:
    out = "f16" if dtype == "f16" else "bf16"
    shape = {"blocks": blocks, "dtype": dtype, "out": out, "programs": 132}
    check(Gemm(2100, 1900, 520 if dtype != "e4m3" else 528, **shape), WS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Gemm(500, 300, 1000, blocks=(128, 256, 64)), "two-groups"),
        (Gemm(500, 300, 1000, dtype="f16", out="f32", orders="rr"), "two-groups"),
        (Gemm(500, 300, 999, pads=(1, 1, 1), out="f32"), "one-group"),
        (Gemm(500, 300, 1000, dtype="f16", out="f16", orders="cr"), "uniform"),
        (Gemm(500, 300, 1008, dtype="e4m3", out="f32", blocks=(128, 128, 64)), "two-groups"),
        (Gemm(500, 300, 1008, dtype="e5m2", out="bf16", blocks=(128, 64, 64)), "depth-1"),
    ],
    ids=str,
)
def test_random_data(case: Gemm, name: str) -> None:
    """The tensor cores add fp8 products with 13 bits behind the leading one."""
    a, b, c = case.arrays(np.random.default_rng(1), integers=False)
    _, whole = launch(wl.jit(case.jit.fn), case, (a, b, c), 7, {**case.meta, **KNOBS[name]})
    found = road.clone(c)
    road.around(found)[...] = download(whole, c)
    accumulate = 2.0**-13 if case.dtype in ("e4m3", "e5m2") else 2.0**-23
    gemms.assert_close(found, a, b, case.out, accumulate)


# ---- the published kernel


@pytest.mark.skipif(not gemms.SEED.exists(), reason="the published kernel is not here")
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("name", ["two-groups", "depth-1", "uniform"])
def test_the_published_kernel(dtype: str, name: str) -> None:
    case = Gemm(512, 256, 192, dtype=dtype, out="f16", blocks=(128, 64, 64), programs=16)
    meta = {k: v for k, v in case.meta.items() if k != "GROUP_M"} | KNOBS[name]
    check(case, {}, gemms.seed_kernel().kernel, meta)


@pytest.mark.skipif(not gemms.SEED.exists(), reason="the published kernel is not here")
def test_the_published_kernel_as_configured() -> None:
    case = Gemm(1024, 2048, 1024, dtype="f16", out="f16", blocks=(128, 256, 64), programs=64)
    arrays = case.arrays(np.random.default_rng(3))
    ran, whole = launch(gemms.seed_kernel(), case, arrays, 64, {})
    assert_same(whole, arrays[2], gemms.exact(arrays[0], arrays[1], "f16"))
    assert ran.schedule.specialized and ran.resources.problems() == ()


# ---- streams, graphs, overlap


@pytest.mark.parametrize("knobs", [WS, UNIFORM], ids=["specialized", "uniform"])
@pytest.mark.parametrize("kernel", ["pointers", "host", "device"])
def test_graphs_and_streams(kernel: str, knobs: dict[str, Any]) -> None:
    """Captured on a stream of its own, then replayed on data that came later."""
    case = Gemm(300, 200, 136, kernel=kernel)
    a, b, c = case.arrays(np.random.default_rng(0))
    (_, ta), (_, tb), (whole, tc) = map(upload, (a, b, c))
    args, meta = case.args(ta, tb, tc), {**case.meta, **knobs}
    jitted = wl.jit(case.jit.fn)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        jitted[(3,)](*args, **meta)
    side.synchronize()
    wanted = gemms.exact(a, b, case.out)
    assert_same(whole, c, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        jitted[(3,)](*args, **meta)
    for sign in (-1, 1):
        ta.neg_()
        tc.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(whole, c, sign * wanted + wanted.dtype.type(0))  # no sum is -0


def test_in_place_warns_and_is_right() -> None:
    """A := A·B, a tile of whole rows at a time: right where no load runs ahead of a store."""
    case = Gemm(500, 64, 64, blocks=(128, 64, 64), programs=3)
    a, b, _ = case.arrays(np.random.default_rng(0))
    (whole, ta), (_, tb) = map(upload, (a, b))
    with pytest.warns(WarploomWarning, match="overlap"):
        ran = wl.jit(case.jit.fn)[(3,)](*case.args(ta, tb, ta), **case.meta, **WS)
    torch.cuda.synchronize()
    assert not ran.schedule.specialized
    assert_same(whole, a, gemms.exact(a, b, "bf16"))


def test_no_warning_for_neighbours() -> None:
    """A and C in one allocation, side by side, do not overlap."""
    case = Gemm(128, 64, 64, programs=1)
    a, b, _ = case.arrays(np.random.default_rng(0))
    both = torch.empty((256, 64), dtype=torch.bfloat16, device="cuda")
    ta, tc = both[:128], both[128:]
    ta.copy_(upload(a)[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        ran = wl.jit(case.jit.fn)[(1,)](*case.args(ta, upload(b)[1], tc), **case.meta, **WS)
    assert ran.schedule.specialized
    wanted = gemms.exact(a, b, "bf16").astype(np.float32)
    np.testing.assert_array_equal(tc.float().cpu().numpy(), wanted)
