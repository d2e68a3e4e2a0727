"""Numbers from memory on a GPU: drawn tiles, lists of work; every kind of producer, launches and graphs in a row."""

from __future__ import annotations

from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_numbers import drawn, listed, product
from warploom.kernels.attention import attention_forward, grid_of, leave, section_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
META = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
KNOBS = [
    {"num_consumer_groups": 1},
    {"num_consumer_groups": 2},
    {"num_consumer_groups": 0},
    {"num_consumer_groups": 0, "num_warps": 8},
]


def integers(m: int, n: int, pad: int = 0) -> Any:
    whole = torch.randint(-3, 4, (m, n + pad), device="cuda").bfloat16()
    return whole[:, :n]


def products(m: int, n: int, k: int, pad: int) -> tuple[Any, ...]:
    a, b = integers(m, k, pad), integers(k, n)
    return a, b, torch.full((m, n), float("nan"), device="cuda"), a.float() @ b.float()


@pytest.mark.parametrize("how", ["begin", "end", "all"])
@pytest.mark.parametrize("knobs", KNOBS, ids=str)
@pytest.mark.parametrize("pad", [0, 1], ids=["tma", "unaligned"])
def test_drawn_tiles(how: str, knobs: dict[str, int], pad: int) -> None:
    m, n, k = 5000, 1032, 456
    a, b, c, wanted = products(m, n, k, pad)
    tiles = -(-m // 128) * -(-n // 64)
    for programs in (1, 132, 1000):
        counter = torch.zeros(1, device="cuda", dtype=torch.int32)
        c.fill_(float("nan"))
        drawn[programs,](
            a, b, c, counter, m, n, k, a.stride(0), b.stride(0), c.stride(0),
            HOW=how, **META, **knobs,
        )  # fmt: skip
        torch.cuda.synchronize()
        assert torch.equal(c, wanted)
        assert int(counter) == tiles + (programs if how == "all" else 0)


@pytest.mark.parametrize("dtype", ["int64", "uint32"])
def test_counters_of_other_types(dtype: str) -> None:
    a, b, c, wanted = products(1000, 512, 256, 0)
    counter = torch.zeros(1, device="cuda", dtype=getattr(torch, dtype))
    drawn[100,](
        a, b, c, counter, 1000, 512, 256, a.stride(0), b.stride(0), c.stride(0),
        HOW="end", num_consumer_groups=2, **META,
    )  # fmt: skip
    torch.cuda.synchronize()
    assert torch.equal(c, wanted)


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_a_list_of_work(knobs: dict[str, int]) -> None:
    m, n, k = 128 * 300, 64, 256
    a, b, c, wanted = products(m, n, k, 0)
    work = torch.full((300 + 132,), -1, device="cuda", dtype=torch.int32)
    work[:300] = torch.randperm(300, device="cuda")
    c.zero_()
    listed[132,](
        a, b, c, work, m, n, k, a.stride(0), b.stride(0), c.stride(0), **META, **knobs
    )  # fmt: skip
    torch.cuda.synchronize()
    even = (torch.arange(m, device="cuda") // 128 % 2 == 0)[:, None]
    assert torch.equal(c, torch.where(even, wanted, 0.0))


@wl.jit
def persistent(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, counter: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """Drawn tiles; the last program to leave sets the counter back."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    columns = tl.cdiv(N, BLOCK_N)
    t = tl.program_id(0)
    while t < tl.cdiv(M, BLOCK_M) * columns:
        product(a, b, c, t // columns * BLOCK_M, t % columns * BLOCK_N, K, BLOCK_K)
        t = tl.atomic_add(counter, 1) + tl.num_programs(0)
    leave(counter)


def test_launches_in_a_row_and_in_graphs() -> None:
    m, n, k = 2000, 520, 200
    a, b, c, wanted = products(m, n, k, 0)
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)

    def launch() -> None:
        persistent[132,](
            a, b, c, counter, m, n, k, a.stride(0), b.stride(0), c.stride(0),
            num_consumer_groups=2, **META,
        )  # fmt: skip

    for _ in range(50):
        launch()
    torch.cuda.synchronize()
    assert torch.equal(c, wanted) and not counter.any()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            launch()
    c.fill_(float("nan"))
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(c, wanted) and not counter.any()


def test_attention_without_heads_leaves_everything_as_it_was() -> None:
    q = torch.empty(0, 128, 64, device="cuda", dtype=torch.bfloat16)
    lse, counter = torch.empty(1, device="cuda"), torch.zeros(2, device="cuda", dtype=torch.int32)
    attention_forward[grid_of(0, 128, 132)](
        q, q, q, q, lse, counter, 0, 128, section_of(0, 128, 64), 1.0,
        D=64, CAUSAL=True, DYNAMIC=True, BLOCK_M=128, BLOCK_N=128, num_consumer_groups=2,
    )  # fmt: skip
    torch.cuda.synchronize()
    assert not counter.any()
