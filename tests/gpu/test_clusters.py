"""Clusters on a GPU: bit-equal to NumPy on integers, at odd sizes; both ways through a peer's shared memory."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.explicit.broken.cluster import Exchange, Multicast
from tests.explicit.squares import Squares
from warploom.kernels.explicit.gemm import Gemm
from warploom.kernels.gemm import gemm_pointers

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SHAPES = [(300, 600, 144), (64, 8, 16), (2560, 4096, 320), (1000, 1048, 528)]


@pytest.fixture(autouse=True)
def gpu() -> Any:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    yield
    torch.cuda.synchronize()


def integers(*shape: int) -> Any:
    return torch.randint(-3, 4, shape, device="cuda").to(torch.bfloat16)


def check_product(kernel: Any, m: int, n: int, k: int, transposed: bool = True) -> None:
    a, b = integers(m, k), integers(n, k) if transposed else integers(k, n)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        kernel(a, b, c, m, n, k)
    want = (a.float() @ (b.float().t() if transposed else b.float())).to(torch.bfloat16)
    assert torch.equal(c, want)


@functools.cache
def product(ctas: int, share: str) -> Gemm:
    """One for all shapes: those that divide alike are one variant, compiled and checked once."""
    return Gemm(programs=120, ctas=ctas, share=share)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("ctas", "share"), [(2, "a"), (2, "b"), (4, "a"), (4, "b")])
def test_products(ctas: int, share: str, shape: tuple[int, int, int]) -> None:
    check_product(product(ctas, share), *shape)


@pytest.mark.parametrize("share", ["a", "b"])
def test_the_other_order(share: str) -> None:
    check_product(Gemm(programs=120, ctas=2, share=share, transposed=False), 1000, 1048, 528, False)


def test_automatic_in_the_other_order() -> None:
    def kernel(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        gemm_pointers[(60,)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
            BLOCK_M=256, BLOCK_N=256, BLOCK_K=64, GROUP_M=4, num_ctas=2, num_consumer_groups=2,
        )  # fmt: skip

    check_product(kernel, 1000, 1048, 528, False)


def test_a_small_ring() -> None:
    check_product(Multicast(), 384, 256, 448)


def test_exchange_through_shared_memory() -> None:
    x = torch.randn(64 * 200, 32, device="cuda")
    y = torch.zeros_like(x)
    for _ in range(3):
        Exchange()(x, y, len(x))
    theirs = x.view(-1, 2, 32, 32).flip(1)
    assert torch.equal(y.view(-1, 2, 32, 32), theirs + (theirs + 1.0))


def test_resident_programs() -> None:
    """The whole chip in clusters of 2; clusters of 4 leave some multiprocessors out."""
    args = (integers(64, 64), integers(64, 64), integers(64, 64), 64, 64, 64)
    found = [Gemm(ctas=n).compile_for(*args).loaded().resident(0) for n in (1, 2, 4)]
    chip = torch.cuda.get_device_properties(0).multi_processor_count
    assert found[0] == chip and chip // 2 - 2 <= found[1] <= chip // 2
    assert chip // 4 * 3 // 4 <= found[2] <= chip // 4


@pytest.mark.parametrize("shape", [(300, 600, 144), (1000, 1048, 528), (2560, 4096, 320)], ids=str)
@pytest.mark.parametrize(("ctas", "tile"), [(2, (256, 256)), (2, (128, 512)), (4, (512, 256))])
def test_automatic(ctas: int, tile: tuple[int, int], shape: tuple[int, int, int]) -> None:
    m, n, k = shape

    def kernel(a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
        gemm_pointers[(120 // ctas,)](
            a, b.t(), c, m, n, k, *a.stride(), *b.t().stride(), *c.stride(),
            BLOCK_M=tile[0], BLOCK_N=tile[1], BLOCK_K=64, GROUP_M=4,
            num_ctas=ctas, num_consumer_groups=2,
        )  # fmt: skip

    check_product(kernel, m, n, k)


def test_clusters_of_two_dimensions() -> None:
    m, n, k = 1000, 776, 528
    a, b = integers(m, k), integers(n, k)
    c = torch.full((m, n), float("nan"), device="cuda")
    for _ in range(3):
        Squares()(a, b, c, m, n, k)
    assert torch.equal(c, a.float() @ b.float().t())
