"""Programmatic dependent launch: overlapping launches still see all that came before.  Needs a GPU and torch."""

from __future__ import annotations

from typing import Any

import pytest

from warploom.kernels.gemm import gemm_pointers

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")

META = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
KNOBS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}
SIZE, ROUNDS = 512, 200


def square(seed: int) -> Any:
    """A signed permutation: products of such matrices are exact, and each differs from the last."""
    random = torch.Generator(device="cuda").manual_seed(seed)
    at = torch.randperm(SIZE, device="cuda", generator=random)
    signs = torch.randint(0, 2, (SIZE, 1), device="cuda", generator=random) * 2 - 1
    return (torch.eye(SIZE, device="cuda")[at] * signs).to(torch.bfloat16)


def matmul(a: Any, b: Any, c: Any, programs: int = 16, **knobs: Any) -> None:
    """c = a . bT"""
    gemm_pointers[(programs,)](
        a, b, c, SIZE, SIZE, SIZE, *a.stride(), *b.T.stride(), *c.stride(),
        **META, **KNOBS, **knobs,
    )  # fmt: skip


def chain(c: Any, d: Any, b: Any, rounds: int, **knobs: Any) -> None:
    """Each launch reads what the one before wrote, and writes what it read."""
    for _ in range(rounds):
        matmul(c, b, d, **knobs)
        matmul(d, b, c, **knobs)


def expected(c: Any, b: Any, rounds: int) -> Any:
    c, b = c.float(), b.float().T
    for _ in range(2 * rounds):
        c = c @ b
    return c.to(torch.bfloat16)


@pytest.mark.parametrize("pdl", [True, False])
@pytest.mark.parametrize("programs", [16, 3])
def test_chains(pdl: bool, programs: int) -> None:
    c, d, b = square(1), square(2), square(3)
    result = expected(c, b, ROUNDS)
    chain(c, d, b, ROUNDS, pdl=pdl, programs=programs)
    assert torch.equal(c, result)


def test_other_kernels_and_copies_between() -> None:
    c, d, b = square(1), square(2), square(3)
    result = c.float()
    copy = torch.empty_like(c)
    for _ in range(ROUNDS):
        matmul(c, b, d)
        copy.copy_(d)
        d.zero_()
        matmul(copy, b, c)
        c.neg_()
        result = -(result @ b.float().T @ b.float().T)
    assert torch.equal(c.float(), result)


def test_graphs() -> None:
    c, d, b = square(1), square(2), square(3)
    result = expected(c, b, 21)
    chain(c, d, b, 1)  # compiled, and prepared for both directions
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(c, d, b, 2)
        d.zero_()
        chain(c, d, b, 2)
    for _ in range(5):
        graph.replay()
    assert torch.equal(c, result)


def test_two_streams_that_wait_for_each_other() -> None:
    c, d, b = square(1), square(2), square(3)
    result = expected(c, b, ROUNDS)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        for stream, (x, y) in zip(streams, [(c, d), (d, c)], strict=True):
            with torch.cuda.stream(stream):
                matmul(x, b, y)
            streams[stream is streams[0]].wait_stream(stream)
    torch.cuda.synchronize()
    assert torch.equal(c, result)
