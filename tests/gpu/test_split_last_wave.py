"""Programs of a last wave, shared by CTAs on a GPU: bit-equal on exact data, always the same on random numbers,
launch after launch, on several streams and in graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corpus import split_k
from corpus.plain import matmul
from tests.gpu.probe import needs_gpu
from tests.gpu.test_automatic_split_k import launched, right_on_exact_data
from warploom.schedule.model import LAST_WAVE

pytestmark = [pytest.mark.gpu, needs_gpu]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", split_k.CASES)
def test_every_case_is_right(name: str) -> None:
    case = split_k.made(name)
    right_on_exact_data(replace(case, knobs={**case.knobs, "split_k": LAST_WAVE}))


@pytest.mark.parametrize("split", [None, LAST_WAVE])
@pytest.mark.parametrize(
    ("shape", "tile"),
    [((1500, 1616, 8200), (128, 128, 64)), ((1500, 3120, 2056), (128, 256, 64)), ((96, 8200, 1240), (16, 64, 128)),
     ((1500, 1613, 1234), (128, 128, 64)), ((300, 200, 4096), (128, 128, 64)), ((640, 3333, 777), (64, 128, 64))],
    ids=str,
)  # fmt: skip
def test_random_numbers_beside_float64(
    shape: tuple[int, int, int], tile: tuple[int, int, int], split: Any
) -> None:
    ran, found, wanted, size = launched(*shape, tile, split_k=split)
    assert (found - wanted).abs().max() <= 2.0**-18 * size.max()
    assert ran.plan.programs == (split == LAST_WAVE or shape == (1500, 1616, 8200))


def test_streams_and_graphs() -> None:
    """156 programs of 128 steps: each stream has memory of its own; a graph runs whole programs."""
    a = torch.randn(1500, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(1616, 8192, device="cuda", dtype=torch.bfloat16).t()
    outs = [torch.full((1500, 1616), float("nan"), device="cuda") for _ in range(9)]

    def product(c: Any, **knobs: Any) -> Any:
        args = (a, b, c, 1500, 1616, 8192, *a.stride(), *b.stride(), *c.stride())
        return matmul[156,](*args, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, **knobs)

    whole = torch.empty_like(outs[0])
    assert not product(whole, split_k=1).plan.programs
    assert product(outs[-1]).plan.programs
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(20):
        for i, c in enumerate(outs[:-1]):
            with torch.cuda.stream(streams[i % 2]):
                product(c)
    torch.cuda.synchronize()
    assert all(torch.equal(c, outs[-1]) for c in outs)
    graph, c = torch.cuda.CUDAGraph(), torch.full_like(whole, float("nan"))
    with torch.cuda.graph(graph):
        product(c)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(c, whole)
