"""Single features of the explicit language on a GPU: what the simulator says of them is what the card does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.language import (
    COMBINE,
    DIVISORS,
    DTYPES,
    PRINTED,
    PRINTED_LINES,
    REDUCED,
    Annotated,
    Divided,
    Elementwise,
    Handed,
    Hinted,
    Lent,
    Nested,
    Passed,
    Printed,
    Reread,
    SplitSum,
    dividends,
    elementwise,
    reached,
    reducer,
    values,
)
from tests.explicit.test_tilus_meaning import Writes
from warploom.ir.ops.tile import CACHE_POLICIES

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

WORDS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


class Upload:
    """A NumPy array of any dtype on the GPU, as the launcher takes it: the bytes are torch's."""

    def __init__(self, x: Any) -> None:
        self.dtype, self.shape = x.dtype, x.shape
        self.words = torch.from_numpy(x.view(WORDS[x.itemsize])).cuda()
        kinds = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}
        kinds |= {name: name for name in ("int32", "uint32", "int64", "uint64")}
        self.tensor = self.words.view(getattr(torch, kinds[x.dtype.name]))

    def back(self) -> Any:
        torch.cuda.synchronize()
        return self.words.cpu().numpy().view(self.dtype)


@pytest.mark.parametrize("n", [136, 133])
@pytest.mark.parametrize(("fn", "name"), REDUCED)
def test_tma_combines_into_memory(fn: str, name: str, n: int) -> None:
    rng = np.random.default_rng(n)
    m, ld = 70, 144
    x, y = (values(name, rng, (m, ld)) for _ in range(2))
    wanted = y.copy()
    wanted[:, : reached(n, name)] = COMBINE[fn](y, x)[:, : reached(n, name)]
    on_gpu = Upload(y)
    reducer(name)(fn)(m, n, ld, Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), wanted)


def test_launches_add_up() -> None:
    """Each adds to what the ones before left."""
    rng = np.random.default_rng(3)
    x, y = (values("f32", rng, (32, 64)) for _ in range(2))
    on_gpu, given = Upload(y), Upload(x)
    kernel = reducer("f32")("add")
    for _ in range(50):
        kernel(32, 64, 64, given.tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), y + 50 * x)


@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_hints_change_no_result(policy: str) -> None:
    n = 1000
    x = np.random.default_rng(1).normal(size=(n, 32)).astype(np.float32)
    on_gpu = Upload(np.zeros((4, n, 32), np.float32))
    Hinted(policy)(n, Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), np.stack([x] * 4))


@pytest.mark.parametrize(
    "how",
    [{}, {"by_tma": True, "waits": "relaxed", "arrivals": "relaxed", "acquires": "relaxed"}],
)
def test_rings_in_either_order(how: Any) -> None:
    x = np.random.default_rng(2).normal(size=(5000, 32)).astype(np.float32)
    on_gpu = Upload(np.zeros_like(x))
    Passed(**how)(len(x), Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), x)


def test_printf_prints_what_the_simulator_prints(capfd: pytest.CaptureFixture[str]) -> None:
    n, x, row = PRINTED
    given = Upload(row)
    capfd.readouterr()
    Printed()(n, x, given.tensor)
    torch.cuda.synchronize()
    found = capfd.readouterr().out.splitlines()
    assert sorted(found) == sorted(PRINTED_LINES)


@pytest.mark.parametrize(("d", "e"), DIVISORS)
def test_fast_divmod_is_exact(d: int, e: int) -> None:
    x = dividends(np.random.default_rng(d), d, d * e + 1)
    on_gpu = Upload(np.zeros((len(x), 4), np.int32))
    Divided()(len(x), d, e, Upload(x).tensor, on_gpu.tensor)
    wide = x.astype(np.int64)
    wanted = np.stack([wide // d, wide % d, wide // (d * e + 1), wide % (d * e + 1)], axis=1)
    assert np.array_equal(on_gpu.back(), wanted)


def test_groups_in_groups() -> None:
    x = np.random.default_rng(4).normal(size=(1000, 32)).astype(np.float32)
    on_gpu = Upload(np.zeros_like(x))
    Nested()(len(x), Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), x * np.float32(2) + np.float32(1))


def test_groups_in_loops_and_ifs() -> None:
    turns = 51
    x = np.random.default_rng(5).normal(size=(turns, 64)).astype(np.float32)
    on_gpu = Upload(np.zeros_like(x))
    Handed()(turns, Upload(x).tensor, on_gpu.tensor)
    signs = np.where(np.arange(turns) % 2 == 0, 1, -1).astype(np.float32)
    assert np.array_equal(on_gpu.back(), x * signs[:, None])


def test_elementwise_names_and_loops() -> None:
    x = np.random.default_rng(6).integers(-3, 4, (32, 8)).astype(np.float32)
    on_gpu = Upload(np.zeros((12, 32), np.float32))
    Elementwise()(3, Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), elementwise(x, 3).astype(np.float32))


def test_a_product_computed_in_an_annotated_layout() -> None:
    dtype = DTYPES["bf16"][1]
    x = np.random.default_rng(7).normal(size=(64, 64)).astype(dtype)
    on_gpu = Upload(np.zeros_like(x))
    Annotated("wgmma_acc(64x64)")(Upload(x).tensor, on_gpu.tensor)
    assert np.array_equal(on_gpu.back(), x * dtype(2))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_registers_that_groups_lend_each_other(n: int) -> None:
    """setmaxnreg in loops and branches, and the same threads' after them."""
    x = torch.arange(128, device="cuda", dtype=torch.float32)
    Lent()(x, n)
    assert torch.equal(x, torch.arange(7, 135, device="cuda", dtype=torch.float32))


def test_what_tma_reads_after_ordinary_stores() -> None:
    """Written by ordinary stores, read by TMA in the same kernel, many times over."""
    n = 500
    x = torch.randn(n, 32, 64, device="cuda")
    y, wanted = torch.zeros(n, 64, 32, device="cuda"), x * 2 + 1
    Reread()(x, y, n)
    assert torch.equal(x, wanted) and torch.equal(y, wanted.transpose(1, 2))


def test_what_tma_stored_is_read_back() -> None:
    """wait_group waits for the writes: no load comes before them, in many launches."""
    for turn in range(50):
        x = torch.randn(256, 32, device="cuda")
        y, z = torch.full_like(x, float("nan")), torch.full_like(x, float("nan"))
        Writes(False)(x, y, z, 256)
        assert torch.equal(y, x) and torch.equal(z, x + 1), turn


def test_memory_that_no_caller_passes() -> None:
    """Launch after launch, on two streams at once, and in a graph."""
    rows, parts = 1000, 16
    x = torch.randint(-4, 5, (rows, parts * 128), device="cuda").float()
    wanted, kernel = x.sum(dim=1), SplitSum()
    streams = [torch.cuda.Stream() for _ in range(2)]
    out = [torch.zeros(rows, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, y in zip(streams, out, strict=True):
            with torch.cuda.stream(stream):
                y.zero_()
                kernel(x, y, rows, parts)
    torch.cuda.synchronize()
    assert all(torch.equal(y, wanted) for y in out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        kernel(x, out[0], rows, parts)
    out[0].zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out[0], wanted)
